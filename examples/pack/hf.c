/* hf.c - see hf.h
 *
 * Sources: modeling_whisper.py and configuration_whisper.py of transformers for names of tensors
 * and
 * keys of config.json; GPT-2's encoder.py for the byte-level alphabet; librosa.filters.mel with its
 * defaults (Slaney), by which OpenAI's mel filters were made. */
#include "hf.h"
#include "../kit/json.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_JSON (64u << 20)    /* size limit of a JSON file; the largest known ones have 4 MB */
#define MAX_HEADER (100u << 20) /* limit of a safetensors header, from the format's specification */
#define MAX_LAYERS 64
#define BINS 201                /* bins of an FFT of 400 samples */

enum { /* indices into hf.sizes */
    VOCAB, AUDIO_CTX, AUDIO_STATE, AUDIO_HEAD, AUDIO_LAYER,
    TEXT_CTX, TEXT_STATE, TEXT_HEAD, TEXT_LAYER, MELS, FTYPE
};

struct hf_tensor {
    char name[64];              /* OpenAI's name, as in ggml files */
    char file[128];             /* "": not found yet */
    unsigned char head[12 + 4 * 4 + 64]; /* the tensor's header in the ggml file */
    size_t head_size;
    uint64_t offset, bytes;     /* of the data in the file */
    int widen;                  /* BF16: values are converted to float */
};

struct hf_piece {
    uint64_t start, size;       /* in the ggml file */
    const unsigned char *memory; /* NULL: the tensor's data */
    const struct hf_tensor *tensor;
};

__attribute__((format(printf, 2, 3)))
static int fail(hf *h, const char *format, ...)
{
    va_list args;
    char *c;
    va_start(args, format);
    (void)vsnprintf(h->why, sizeof h->why, format, args);
    va_end(args);
    for (c = h->why; *c != '\0'; c++) { /* names come from untrusted files */
        *c = *c >= 0x20 && *c < 0x7f ? *c : '?';
    }
    return -1;
}

/* ---- files ---- */

static int has_file(const hf *h, const char *name)
{
    return h->files.size(h->files.user, name) >= 0;
}

static int read_all(hf *h, const char *name, uint64_t offset, void *buffer, size_t size)
{
    size_t done = 0;
    while (done < size) {
        int64_t got = h->files.read(h->files.user, name, offset + done,
                                    (unsigned char *)buffer + done, size - done);
        if (got <= 0 || (uint64_t)got > size - done) {
            return fail(h, "%s: cannot be read", name);
        }
        done += (size_t)got;
    }
    return 0;
}

/* Reads a JSON file. The caller frees *text. */
static int read_json(hf *h, const char *name, char **text, json *value)
{
    int64_t size = h->files.size(h->files.user, name);
    size_t wrong = 0;
    *text = NULL;
    value->at = value->end = NULL;
    if (size < 0 || size > (int64_t)MAX_JSON) {
        return fail(h, "%s: %s", name, size < 0 ? "there is no such file" : "is too large");
    }
    *text = malloc((size_t)size + 1);
    if (*text == NULL) {
        return fail(h, "%s: no memory", name);
    }
    if (read_all(h, name, 0, *text, (size_t)size) != 0) {
        return -1;
    }
    if (json_parse(value, *text, (size_t)size, &wrong) != 0) {
        return fail(h, "%s: not JSON at byte %lu", name, (unsigned long)wrong);
    }
    return 0;
}

/* ---- the front of the ggml file ---- */

static int put(hf *h, const void *data, size_t size)
{
    if (h->front_capacity - h->front_size < size) {
        size_t capacity = 2 * (h->front_capacity + size) + 65536;
        unsigned char *grown = realloc(h->front, capacity);
        if (grown == NULL) {
            return fail(h, "no memory for the vocabulary");
        }
        h->front = grown;
        h->front_capacity = capacity;
    }
    if (size > 0) {
        memcpy(h->front + h->front_size, data, size);
        h->front_size += size;
    }
    return 0;
}

static void store32(unsigned char *p, uint32_t x)
{
    p[0] = (unsigned char)x;
    p[1] = (unsigned char)(x >> 8);
    p[2] = (unsigned char)(x >> 16);
    p[3] = (unsigned char)(x >> 24);
}

static int put32(hf *h, uint32_t x)
{
    unsigned char bytes[4];
    store32(bytes, x);
    return put(h, bytes, sizeof bytes);
}

/* ---- config.json ---- */

static int check_config(hf *h, json config)
{
    int64_t encoder = 0, decoder = 0, four = 4 * (int64_t)h->sizes[TEXT_STATE];
    json type = json_get(config, "model_type"), gelu = json_get(config, "activation_function");
    if (type.at != NULL && !json_is(type, "whisper")) {
        return fail(h, "config.json: model_type is not whisper");
    }
    if (gelu.at != NULL && !json_is(gelu, "gelu")) {
        return fail(h, "config.json: activation_function must be gelu");
    }
    if (json_type(json_get(config, "scale_embedding")) == 't') {
        return fail(h, "config.json: scale_embedding is not supported");
    }
    if (json_type(json_get(config, "tie_word_embeddings")) == 'f') {
        return fail(h, "config.json: a separate output projection "
                    "(tie_word_embeddings: false) is not supported");
    }
    (void)json_integer(json_get(config, "encoder_ffn_dim"), 1, INT_MAX, &encoder);
    (void)json_integer(json_get(config, "decoder_ffn_dim"), 1, INT_MAX, &decoder);
    if (encoder != four || decoder != four) {
        return fail(h, "config.json: encoder_ffn_dim and decoder_ffn_dim must be 4 * d_model");
    }
    return 0;
}

static int read_config(hf *h)
{
    static const struct {
        const char *key;
        int size, most;
    } keys[] = {
        {"vocab_size", VOCAB, 1 << 20}, {"max_source_positions", AUDIO_CTX, 1 << 20},
        {"d_model", AUDIO_STATE, 1 << 20}, {"encoder_attention_heads", AUDIO_HEAD, 1 << 20},
        {"encoder_layers", AUDIO_LAYER, MAX_LAYERS}, {"max_target_positions", TEXT_CTX, 1 << 20},
        {"d_model", TEXT_STATE, 1 << 20}, {"decoder_attention_heads", TEXT_HEAD, 1 << 20},
        {"decoder_layers", TEXT_LAYER, MAX_LAYERS}, {"num_mel_bins", MELS, 1024}
    };
    char *text;
    json config;
    size_t i;
    int failed = read_json(h, "config.json", &text, &config);
    for (i = 0; i < sizeof keys / sizeof keys[0] && !failed; i++) {
        int64_t value = 0;
        if (json_integer(json_get(config, keys[i].key), 1, keys[i].most, &value) != 0) {
            failed = fail(h, "config.json: %s is no number from 1 to %d", keys[i].key,
                          keys[i].most);
        }
        h->sizes[keys[i].size] = (int32_t)value;
    }
    failed = failed || check_config(h, config) != 0;
    free(text);
    return failed ? -1 : 0;
}

/* ---- generation_config.json ---- */

/* Takes alignment_heads if the model has all of them: distilled models are often saved with those
 * of the model that they were distilled from. */
static int read_heads(hf *h)
{
    static const char name[] = "generation_config.json";
    const size_t most = sizeof h->heads / sizeof h->heads[0];
    char *text;
    const char *cursor = NULL;
    json config, none, pair;
    size_t n = 0;
    int failed, wrong = 0;
    if (!has_file(h, name)) {
        return 0;
    }
    failed = read_json(h, name, &text, &config);
    while (!failed && json_next(json_get(config, "alignment_heads"), &cursor, &none, &pair)) {
        const char *inner = NULL;
        json layer = {NULL, NULL}, head = {NULL, NULL};
        int64_t l = 0, k = 0;
        (void)(json_next(pair, &inner, &none, &layer) && json_next(pair, &inner, &none, &head));
        wrong |= n == most || json_integer(layer, 0, h->sizes[TEXT_LAYER] - 1, &l) != 0 ||
                 json_integer(head, 0, h->sizes[TEXT_HEAD] - 1, &k) != 0;
        if (!wrong) {
            h->heads[n][0] = (uint16_t)l;
            h->heads[n++][1] = (uint16_t)k;
        }
    }
    free(text);
    h->n_heads = wrong ? 0 : (uint32_t)n;
    if (wrong) {
        (void)snprintf(h->note, sizeof h->note, "%s: alignment_heads are not heads of this model "
                       "and are ignored", name);
    }
    return failed ? -1 : 0;
}

/* ---- mel filters ---- */

static double mel_to_hz(double mel)
{
    return mel < 15 ? mel * 200 / 3 : 1000 * exp(log(6.4) / 27 * (mel - 15));
}

/* Triangles of area 1, evenly spaced on Slaney's mel scale: linear to 1000 Hz, logarithmic above.
 * Rounds like librosa, so that the filters have the same bits as those in OpenAI's files. */
static void slaney(float *filters, int n_mels)
{
    double last = 15 + log(8.0) / (log(6.4) / 27), hz[3];
    int m, i, k;
    for (m = 0; m < n_mels; m++) {
        for (k = 0; k < 3; k++) {
            hz[k] = mel_to_hz(last * (m + k) / (n_mels + 1));
        }
        for (i = 0; i < BINS; i++) {
            double up = (i * 40.0 - hz[0]) / (hz[1] - hz[0]);
            double down = (hz[2] - i * 40.0) / (hz[2] - hz[1]);
            double height = up < down ? up : down;
            float rounded = (float)(height > 0 ? height : 0);
            filters[m * BINS + i] = (float)((double)rounded * (2.0 / (hz[2] - hz[0])));
        }
    }
}

/* Reads filters from JSON: [n_mels][201] numbers or [201][n_mels]; both occur. */
static int listed(hf *h, json rows, float *filters, int n_mels)
{
    const char *cursor = NULL, *inner;
    json none, row, cell;
    int n_rows = 0, n_cells, turned, r, c, bad;
    while (json_next(rows, &cursor, &none, &row)) {
        n_rows++;
    }
    turned = n_rows != n_mels;
    n_cells = turned ? n_mels : BINS;
    bad = n_rows != (turned ? BINS : n_mels);
    cursor = NULL;
    for (r = 0; !bad && json_next(rows, &cursor, &none, &row); r++) {
        inner = NULL;
        for (c = 0; !bad && json_next(row, &inner, &none, &cell); c++) {
            double x = 0;
            bad = c == n_cells || json_number(cell, &x) != 0;
            if (!bad) {
                filters[turned ? c * BINS + r : r * BINS + c] = (float)x;
            }
        }
        bad |= c != n_cells;
    }
    return !bad ? 0 : fail(h, "preprocessor_config.json: mel_filters are not %d x %d numbers",
                           n_mels, BINS);
}

static int check_preprocessor(hf *h, json config)
{
    static const struct {
        const char *key;
        int value;
    } keys[] = {
        {"sampling_rate", 16000}, {"n_fft", 400}, {"hop_length", 160}, {"chunk_length", 30}
    };
    int64_t value;
    size_t i;
    for (i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        json given = json_get(config, keys[i].key);
        if (given.at != NULL && json_integer(given, keys[i].value, keys[i].value, &value) != 0) {
            return fail(h, "preprocessor_config.json: %s is not %d", keys[i].key, keys[i].value);
        }
    }
    return 0;
}

static int put_filters(hf *h)
{
    int n_mels = h->sizes[MELS], failed = 0, i;
    float *filters = calloc((size_t)n_mels * BINS, sizeof *filters);
    char *text = NULL;
    json config, rows = {NULL, NULL};
    if (filters == NULL) {
        return fail(h, "no memory for the mel filters");
    }
    if (has_file(h, "preprocessor_config.json")) {
        failed = read_json(h, "preprocessor_config.json", &text, &config) != 0 ||
                 check_preprocessor(h, config) != 0;
        rows = failed ? rows : json_get(config, "mel_filters");
    }
    if (!failed && json_type(rows) == '[') {
        failed = listed(h, rows, filters, n_mels) != 0;
    } else {
        slaney(filters, n_mels);
    }
    failed = failed || put32(h, (uint32_t)n_mels) != 0 || put32(h, BINS) != 0;
    for (i = 0; i < n_mels * BINS && !failed; i++) {
        uint32_t bits;
        memcpy(&bits, &filters[i], sizeof bits);
        failed = put32(h, bits) != 0;
    }
    free(text);
    free(filters);
    return failed ? -1 : 0;
}

/* ---- the vocabulary ---- */

typedef struct words {
    json *text;                 /* [n_vocab] strings; if at is NULL there is no such token */
    unsigned char *plain;       /* [n_vocab] 1: an added token, whose text is not byte-encoded */
    uint32_t count;             /* one more than the highest id */
} words;

static int take_word(hf *h, words *w, const char *file, json text, json id, int plain)
{
    int64_t i = 0;
    if (json_type(text) != '"' || json_integer(id, 0, INT_MAX, &i) != 0 || i >= h->sizes[VOCAB]) {
        return fail(h, "%s: a token has no text, or no number below vocab_size = %ld", file,
                    (long)h->sizes[VOCAB]);
    }
    w->text[i] = text;
    w->plain[i] = (unsigned char)plain;
    w->count = w->count > i ? w->count : (uint32_t)i + 1;
    return 0;
}

/* Reads {"text": id, ...}. */
static int take_words(hf *h, words *w, const char *file, json map, int plain)
{
    const char *cursor = NULL;
    json text, id;
    while (json_next(map, &cursor, &text, &id)) {
        if (take_word(h, w, file, text, id, plain) != 0) {
            return -1;
        }
    }
    return json_type(map) == '{' ? 0 : fail(h, "%s: has no vocabulary", file);
}

static int take_tokenizer(hf *h, words *w, json tokenizer)
{
    static const char file[] = "tokenizer.json";
    json model = json_get(tokenizer, "model"), added = json_get(tokenizer, "added_tokens");
    json none, token;
    const char *cursor = NULL;
    if (!json_is(json_get(model, "type"), "BPE")) {
        return fail(h, "%s: not a BPE tokenizer", file);
    }
    if (take_words(h, w, file, json_get(model, "vocab"), 0) != 0) {
        return -1;
    }
    while (json_next(added, &cursor, &none, &token)) {
        if (take_word(h, w, file, json_get(token, "content"), json_get(token, "id"), 1) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Decodes the next UTF-8 character. Returns -1 if it is invalid. Overlong forms need no check: they
 * are not in the alphabet. */
static int32_t character(const unsigned char **at, const unsigned char *end)
{
    int32_t code = *(*at)++;
    int more = code < 0x80 ? 0 : code >= 0xc0 && code < 0xe0 ? 1 : code >= 0xe0 && code < 0xf0 ? 2 :
               -1;
    if (more < 0 || end - *at < more) {
        return -1;
    }
    code &= more == 0 ? 0x7f : 0x3f >> more;
    for (; more > 0; more--) {
        code = code << 6 | (*(*at)++ & 0x3f);
    }
    return code;
}

/* Decodes byte-level BPE in place: it represents the 188 printable bytes of Latin-1 by themselves
 * and the other 68, in order, by U+0100 and up. Returns the number of bytes, or -1. */
static int32_t show_bytes(unsigned char *text, size_t length)
{
    const unsigned char *at = text, *end = text + length;
    int32_t n = 0;
    while (at < end) {
        int32_t code = character(&at, end), byte;
        if (code >= 0x100 && code < 0x144) {
            byte = code - 0x100;
            byte = byte < 33 ? byte : byte < 67 ? byte + 94 : 173; /* 0..32, 127..160, 173 */
        } else if ((code >= 33 && code < 127) || (code >= 161 && code < 256 && code != 173)) {
            byte = code;
        } else {
            return -1;
        }
        text[n++] = (unsigned char)byte;
    }
    return n;
}

static int put_words(hf *h, const words *w)
{
    unsigned char text[1024];
    uint32_t i;
    if (put32(h, w->count) != 0) {
        return -1;
    }
    for (i = 0; i < w->count; i++) {
        size_t length = json_string(w->text[i], (char *)text, sizeof text);
        int32_t bytes = length > sizeof text ? -1 : (int32_t)length;
        if (bytes >= 0 && !w->plain[i]) {
            bytes = show_bytes(text, length);
        }
        if (bytes < 0) {
            return fail(h, "token %lu is not in the alphabet of byte-level BPE, or too long",
                        (unsigned long)i);
        }
        if (put32(h, (uint32_t)bytes) != 0 || put(h, text, (size_t)bytes) != 0) {
            return -1;
        }
    }
    return 0;
}

static int put_vocabulary(hf *h)
{
    size_t n = (size_t)h->sizes[VOCAB];
    words w;
    char *text = NULL, *more = NULL;
    json root, added;
    int failed;
    w.count = 0;
    w.text = calloc(n, sizeof *w.text);
    w.plain = calloc(n, 1);
    if (w.text == NULL || w.plain == NULL) {
        failed = fail(h, "no memory for the vocabulary");
    } else if (has_file(h, "tokenizer.json")) {
        failed = read_json(h, "tokenizer.json", &text, &root) != 0 ||
                 take_tokenizer(h, &w, root) != 0;
    } else {
        failed = read_json(h, "vocab.json", &text, &root) != 0 ||
                 take_words(h, &w, "vocab.json", root, 0) != 0;
        if (!failed && has_file(h, "added_tokens.json")) {
            failed = read_json(h, "added_tokens.json", &more, &added) != 0 ||
                     take_words(h, &w, "added_tokens.json", added, 1) != 0;
        }
    }
    failed = failed || put_words(h, &w) != 0;
    free(more);
    free(text);
    free(w.plain);
    free(w.text);
    return failed ? -1 : 0;
}

/* ---- names of tensors ---- */

/* Names of transformers without "model.", and OpenAI's. In layers both follow the layer's
 * number. */
static const char *const single[][2] = {
    {"encoder.conv1.weight", "encoder.conv1.weight"},
    {"encoder.conv1.bias", "encoder.conv1.bias"},
    {"encoder.conv2.weight", "encoder.conv2.weight"},
    {"encoder.conv2.bias", "encoder.conv2.bias"},
    {"encoder.embed_positions.weight", "encoder.positional_embedding"},
    {"encoder.layer_norm.weight", "encoder.ln_post.weight"},
    {"encoder.layer_norm.bias", "encoder.ln_post.bias"},
    {"decoder.embed_tokens.weight", "decoder.token_embedding.weight"},
    {"decoder.embed_positions.weight", "decoder.positional_embedding"},
    {"decoder.layer_norm.weight", "decoder.ln.weight"},
    {"decoder.layer_norm.bias", "decoder.ln.bias"}
};

static const char *const layered[][2] = {
    {"self_attn_layer_norm.weight", "attn_ln.weight"},
    {"self_attn_layer_norm.bias", "attn_ln.bias"},
    {"self_attn.q_proj.weight", "attn.query.weight"},
    {"self_attn.q_proj.bias", "attn.query.bias"},
    {"self_attn.k_proj.weight", "attn.key.weight"},
    {"self_attn.v_proj.weight", "attn.value.weight"},
    {"self_attn.v_proj.bias", "attn.value.bias"},
    {"self_attn.out_proj.weight", "attn.out.weight"},
    {"self_attn.out_proj.bias", "attn.out.bias"},
    {"final_layer_norm.weight", "mlp_ln.weight"},
    {"final_layer_norm.bias", "mlp_ln.bias"},
    {"fc1.weight", "mlp.0.weight"},
    {"fc1.bias", "mlp.0.bias"},
    {"fc2.weight", "mlp.2.weight"},
    {"fc2.bias", "mlp.2.bias"},
    /* decoder only */
    {"encoder_attn_layer_norm.weight", "cross_attn_ln.weight"},
    {"encoder_attn_layer_norm.bias", "cross_attn_ln.bias"},
    {"encoder_attn.q_proj.weight", "cross_attn.query.weight"},
    {"encoder_attn.q_proj.bias", "cross_attn.query.bias"},
    {"encoder_attn.k_proj.weight", "cross_attn.key.weight"},
    {"encoder_attn.v_proj.weight", "cross_attn.value.weight"},
    {"encoder_attn.v_proj.bias", "cross_attn.value.bias"},
    {"encoder_attn.out_proj.weight", "cross_attn.out.weight"},
    {"encoder_attn.out_proj.bias", "cross_attn.out.bias"}
};

#define EMBEDDING 7 /* index in single */
#define SINGLE (sizeof single / sizeof single[0])
#define LAYERED (sizeof layered / sizeof layered[0])
#define ENCODER_PARTS 15u

/* Tensors are numbered: those outside layers, the encoder's layers, the decoder's layers. */
static size_t in_layer(const hf *h, int decoder, size_t layer)
{
    return decoder ? SINGLE + (size_t)h->sizes[AUDIO_LAYER] * ENCODER_PARTS + layer * LAYERED :
                     SINGLE + layer * ENCODER_PARTS;
}

/* Number of the tensor with this name in transformers, or n_tensors. */
static size_t number_of(const hf *h, const char *name)
{
    int decoder = strncmp(name, "decoder.layers.", 15) == 0;
    size_t i, layer, parts = decoder ? LAYERED : ENCODER_PARTS;
    char *rest;
    if (!decoder && strncmp(name, "encoder.layers.", 15) != 0) {
        for (i = 0; i < SINGLE && strcmp(name, single[i][0]) != 0; i++) {
        }
        return i < SINGLE ? i : h->n_tensors;
    }
    layer = name[15] >= '0' && name[15] <= '9' ? strtoul(name + 15, &rest, 10) : MAX_LAYERS;
    if (layer >= (size_t)h->sizes[decoder ? TEXT_LAYER : AUDIO_LAYER] || *rest != '.') {
        return h->n_tensors;
    }
    for (i = 0; i < parts && strcmp(rest + 1, layered[i][0]) != 0; i++) {
    }
    return i < parts ? in_layer(h, decoder, layer) + i : h->n_tensors;
}

static int name_tensors(hf *h)
{
    size_t i, layer;
    int decoder;
    h->n_tensors = in_layer(h, 1, (size_t)h->sizes[TEXT_LAYER]);
    h->tensors = calloc(h->n_tensors + 1, sizeof *h->tensors); /* the last one is proj_out.weight */
    h->pieces = calloc(2 * h->n_tensors + 1, sizeof *h->pieces);
    if (h->tensors == NULL || h->pieces == NULL) {
        return fail(h, "no memory for the list of tensors");
    }
    for (i = 0; i < SINGLE; i++) {
        (void)snprintf(h->tensors[i].name, sizeof h->tensors[i].name, "%s", single[i][1]);
    }
    for (decoder = 0; decoder < 2; decoder++) {
        for (layer = 0; layer < (size_t)h->sizes[decoder ? TEXT_LAYER : AUDIO_LAYER]; layer++) {
            struct hf_tensor *t = h->tensors + in_layer(h, decoder, layer);
            for (i = 0; i < (decoder ? LAYERED : ENCODER_PARTS); i++) {
                (void)snprintf(t[i].name, sizeof t[i].name, "%s.blocks.%u.%s",
                               decoder ? "decoder" : "encoder", (unsigned)layer, layered[i][1]);
            }
        }
    }
    return 0;
}

/* ---- data of tensors ---- */

/* Fills t from a header's {"dtype": ..., "shape": ..., "data_offsets": ...}. The file has room
 * bytes of data from data_at on. */
static int describe(hf *h, struct hf_tensor *t, const char *file, const char *name, json entry,
                    uint64_t data_at, uint64_t room)
{
    json type = json_get(entry, "dtype"), offsets = json_get(entry, "data_offsets"), none, item;
    int half = json_is(type, "F16"), brain = json_is(type, "BF16"), full = json_is(type, "F32");
    uint64_t values = 1, width = full ? 4 : 2;
    int64_t x = 0, ne[4], range[2] = {0, 0};
    uint32_t n_dims = 0, i;
    const char *cursor = NULL;
    if (!half && !brain && !full) {
        return fail(h, "%s: %s has type %.*s, expected F32, F16 or BF16", file, name,
                    type.at != NULL ? (int)(type.end - type.at < 20 ? type.end - type.at : 20) : 0,
                    type.at != NULL ? type.at : "");
    }
    while (n_dims < 5 && json_next(json_get(entry, "shape"), &cursor, &none, &item)) {
        if (n_dims == 4 || json_integer(item, 1, INT_MAX, &x) != 0 ||
            values > UINT64_MAX / 4 / (uint64_t)x) {
            return fail(h, "%s: %s has an invalid shape", file, name);
        }
        values *= (uint64_t)x;
        ne[n_dims++] = x;
    }
    for (i = 0, cursor = NULL; json_next(offsets, &cursor, &none, &item); i++) {
        if (i == 2 || json_integer(item, 0, (int64_t)1 << 53, &range[i]) != 0) {
            i = 3;
            break;
        }
    }
    if (i != 2 || n_dims == 0 || range[0] > range[1] || (uint64_t)range[1] > room ||
        (uint64_t)(range[1] - range[0]) != values * width) {
        return fail(h, "%s: data_offsets of %s do not match its shape or exceed the file",
                    file, name);
    }
    (void)snprintf(t->file, sizeof t->file, "%s", file);
    t->offset = data_at + (uint64_t)range[0];
    t->widen = brain;
    t->bytes = values * (brain ? 4 : width);
    t->head_size = 12 + 4 * n_dims + strlen(t->name);
    store32(t->head, n_dims);
    store32(t->head + 4, (uint32_t)strlen(t->name));
    store32(t->head + 8, half ? 1 : 0);
    for (i = 0; i < n_dims; i++) {
        store32(t->head + 12 + 4 * i, (uint32_t)ne[n_dims - 1 - i]); /* in ggml's order */
    }
    memcpy(t->head + 12 + 4 * n_dims, t->name, strlen(t->name));
    return 0;
}

/* Reads one entry of a safetensors header. */
static int take_tensor(hf *h, const char *file, json key, json entry, uint64_t data_at,
                       uint64_t room)
{
    char text[96];
    size_t length = json_string(key, text, sizeof text - 1), number;
    const char *name = text;
    text[length < sizeof text - 1 ? length : sizeof text - 1] = '\0';
    if (strcmp(name, "__metadata__") == 0) {
        return 0;
    }
    if (strcmp(name, "proj_out.weight") == 0) {
        return describe(h, &h->tensors[h->n_tensors], file, text, entry, data_at, room);
    }
    if (strncmp(name, "model.", 6) == 0) {
        name += 6;
    }
    number = length < sizeof text && strlen(text) == length ? number_of(h, name) : h->n_tensors;
    if (number == h->n_tensors) {
        return fail(h, "%s: %s is unknown in a Whisper model of %ld and %ld layers; merge adapters "
                    "into the model first", file, text, (long)h->sizes[AUDIO_LAYER],
                    (long)h->sizes[TEXT_LAYER]);
    }
    if (h->tensors[number].file[0] != '\0') {
        return fail(h, "%s: %s is there twice", file, text);
    }
    return describe(h, &h->tensors[number], file, text, entry, data_at, room);
}

/* Reads a file: eight bytes with the size of the JSON header, the header, the data. */
static int read_safetensors(hf *h, const char *file)
{
    int64_t size = h->files.size(h->files.user, file);
    unsigned char start[8];
    uint64_t header = 0;
    size_t wrong;
    const char *cursor = NULL;
    char *text;
    json root, key, entry;
    int i, failed = 0;
    if (size < 8) {
        return fail(h, "%s: %s", file, size < 0 ? "there is no such file" : "is empty");
    }
    if (read_all(h, file, 0, start, sizeof start) != 0) {
        return -1;
    }
    for (i = 7; i >= 0; i--) {
        header = header << 8 | start[i];
    }
    if (header > MAX_HEADER || header > (uint64_t)size - 8) {
        return fail(h, "%s: not a safetensors file, or truncated", file);
    }
    text = malloc((size_t)header + 1);
    if (text == NULL) {
        return fail(h, "%s: no memory for its header", file);
    }
    if (read_all(h, file, 8, text, (size_t)header) != 0) {
        failed = 1;
    } else if (json_parse(&root, text, (size_t)header, &wrong) != 0 || json_type(root) != '{') {
        failed = fail(h, "%s: its header is not JSON; not a safetensors file, or damaged", file);
    }
    while (!failed && json_next(root, &cursor, &key, &entry)) {
        failed = take_tensor(h, file, key, entry, 8 + header, (uint64_t)size - 8 - header) != 0;
    }
    free(text);
    return failed ? -1 : 0;
}

/* Reads {"weight_map": {tensor: file, ...}} and each file once. Names with a slash are refused
 * because they could refer to other directories. */
static int read_shards(hf *h, const char *index)
{
    char *text, (*seen)[128] = NULL;
    json root, key, value;
    const char *cursor = NULL;
    size_t n_seen = 0, i;
    int failed = read_json(h, index, &text, &root) != 0;
    seen = failed ? NULL : calloc(1024, sizeof *seen);
    failed = failed || (seen == NULL && fail(h, "no memory") != 0);
    while (!failed && json_next(json_get(root, "weight_map"), &cursor, &key, &value)) {
        char file[128] = "";
        size_t length = json_string(value, file, sizeof file - 1);
        if (length == 0 || length > sizeof file - 1 || memchr(file, '/', length) != NULL ||
            memchr(file, '\0', length) != NULL || file[0] == '.') {
            failed = fail(h, "%s: a file has an invalid name", index);
            break;
        }
        file[length] = '\0';
        for (i = 0; i < n_seen && strcmp(seen[i], file) != 0; i++) {
        }
        if (i < n_seen) {
            continue;
        }
        if (n_seen == 1024) {
            failed = fail(h, "%s: more than 1024 files", index);
            break;
        }
        memcpy(seen[n_seen++], file, sizeof file);
        failed = read_safetensors(h, file) != 0;
    }
    free(seen);
    free(text);
    return failed ? -1 : 0;
}

/* The library uses one matrix for embedding and output projection. If the files contain both, they
 * must be equal: fine-tuning may have changed only one. */
static int check_projection(hf *h)
{
    const struct hf_tensor *e = &h->tensors[EMBEDDING], *p = &h->tensors[h->n_tensors];
    uint64_t size = e->widen ? e->bytes / 2 : e->bytes, at;
    unsigned char ours[16384], theirs[16384];
    int same = p->bytes == e->bytes && p->widen == e->widen;
    for (at = 0; p->file[0] != '\0' && same && at < size; at += sizeof ours) {
        size_t n = size - at < sizeof ours ? (size_t)(size - at) : sizeof ours;
        if (read_all(h, e->file, e->offset + at, ours, n) != 0 ||
            read_all(h, p->file, p->offset + at, theirs, n) != 0) {
            return -1;
        }
        same = memcmp(ours, theirs, n) == 0;
    }
    return p->file[0] == '\0' || same ? 0 : fail(h, "%s: proj_out.weight is not the embedding; a "
                                                 "separate output projection is not supported",
                                                 p->file);
}

static int read_weights(hf *h)
{
    static const char one[] = "model.safetensors", many[] = "model.safetensors.index.json";
    size_t i, missing = 0;
    int failed;
    if (!has_file(h, one) && !has_file(h, many)) {
        return fail(h, "there is neither %s nor %s%s", one, many, has_file(h, "pytorch_model.bin") ?
                    "; save the model with safe_serialization=True" : "");
    }
    failed = has_file(h, one) ? read_safetensors(h, one) : read_shards(h, many);
    for (i = 0; i < h->n_tensors && !failed; i++) {
        missing += h->tensors[i].file[0] == '\0';
    }
    for (i = 0; i < h->n_tensors && missing > 0; i++) {
        if (h->tensors[i].file[0] == '\0') {
            return fail(h, "%lu tensors are missing, the first is OpenAI's %s",
                        (unsigned long)missing, h->tensors[i].name);
        }
    }
    return failed ? -1 : check_projection(h);
}

/* ---- the ggml file ---- */

static void add_piece(hf *h, const unsigned char *memory, const struct hf_tensor *tensor,
                      uint64_t size)
{
    struct hf_piece *piece = &h->pieces[h->n_pieces++];
    piece->start = h->source.size;
    piece->size = size;
    piece->memory = memory;
    piece->tensor = tensor;
    h->source.size += size;
}

/* BF16 values are the upper halves of floats. offset and size refer to the floats. */
static int64_t read_wide(const hf *h, const struct hf_tensor *t, uint64_t offset,
                         unsigned char *buffer, size_t size)
{
    unsigned char in[4096];
    size_t done = 0, skip = (size_t)(offset % 4), want = (size + skip + 3) / 4 * 2, i;
    int64_t got;
    want = want < sizeof in ? want : sizeof in;
    got = h->files.read(h->files.user, t->file, t->offset + offset / 4 * 2, in, want);
    if (got == 1 && want > 1) { /* half a value cannot be used */
        int64_t other = h->files.read(h->files.user, t->file, t->offset + offset / 4 * 2 + 1,
                                      in + 1, 1);
        got = other == 1 ? 2 : -1;
    }
    if (got < 2 || (uint64_t)got > want) {
        return got < 0 ? got : -1;
    }
    for (i = skip; i < (size_t)got / 2 * 4 && done < size; i++) {
        buffer[done++] = i % 4 < 2 ? 0 : in[i / 4 * 2 + i % 4 - 2];
    }
    return (int64_t)done;
}

/* Reads do not cross pieces: short reads are allowed. */
static int64_t read_source(void *user, uint64_t offset, void *buffer, size_t size)
{
    const hf *h = user;
    size_t low = 0, high = h->n_pieces;
    const struct hf_piece *piece;
    uint64_t inside;
    if (offset >= h->source.size) {
        return 0;
    }
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        low = h->pieces[middle].start <= offset ? middle : low;
        high = h->pieces[middle].start <= offset ? high : middle;
    }
    piece = &h->pieces[low];
    inside = offset - piece->start;
    size = size < piece->size - inside ? size : (size_t)(piece->size - inside);
    if (piece->memory != NULL) {
        memcpy(buffer, piece->memory + inside, size);
        return (int64_t)size;
    }
    if (piece->tensor->widen) {
        return read_wide(h, piece->tensor, inside, buffer, size);
    }
    return h->files.read(h->files.user, piece->tensor->file, piece->tensor->offset + inside, buffer,
                         size);
}

int hf_open(hf *h, const hf_files *files)
{
    size_t i;
    int failed;
    memset(h, 0, sizeof *h);
    h->files = *files;
    failed = read_config(h) != 0 || read_heads(h) != 0 || put32(h, 0x67676d6c) != 0;
    for (i = 0; i <= FTYPE && !failed; i++) {
        failed = put32(h, (uint32_t)h->sizes[i]) != 0;
    }
    if (failed || put_filters(h) != 0 || put_vocabulary(h) != 0 || name_tensors(h) != 0 ||
        read_weights(h) != 0) {
        return -1;
    }
    add_piece(h, h->front, NULL, h->front_size);
    for (i = 0; i < h->n_tensors; i++) {
        struct hf_tensor *t = &h->tensors[i];
        add_piece(h, t->head, NULL, t->head_size);
        add_piece(h, NULL, t, t->bytes);
    }
    h->source.read = read_source;
    h->source.user = h;
    return 0;
}

void hf_close(hf *h)
{
    free(h->front);
    free(h->pieces);
    free(h->tensors);
    memset(h, 0, sizeof *h);
}
