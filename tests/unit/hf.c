/* hf.c - the readers of examples/: JSON, safetensors, and Hugging Face models as a whole, which
 * have to be the same models as their ggml files. */
#include "../../examples/kit/json.c"
#include "../../examples/pack/hf.c"
#include "../lib/t.h"
#include "../lib/toy_hf.h"

/* ---- JSON ---- */

static int parses(const char *text)
{
    json value;
    size_t wrong;
    return json_parse(&value, text, strlen(text), &wrong) == 0;
}

static void test_json_grammar(void)
{
    static const char *const good[] = {
        "null", " true ", "false", "0", "-0", "-1.5e+10", "1E5", "0.25", "\"\"", "\"a\"", "[]",
        "[1]", "[ 1 , 2 ]", "{}", "{\"a\":1}", "{ \"a\" : [ ] , \"b\" : { } }", "\"\\u00e9\\n\\\"\"",
        "\"\xc3\xa9\"", "[[[[]]]]", "\t\n\r[\t]\r\n"
    };
    static const char *const bad[] = {
        "", " ", "nul", "nulll", "tru", "01", "-", "+1", "1.", ".5", "1e", "1e+", "--1", "\"", "\"a",
        "\"\\x\"", "\"\\u12g4\"", "\"\\u123\"", "\"\n\"", "'a'", "[", "]", "[1", "[1,", "[1,]", "[,1]",
        "[1 2]", "{", "}", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,}", "{a:1}", "{1:1}",
        "{\"a\" 1}", "1 2", "[] []", "[1]x", "\"\\", "nan", "Infinity", "0x10"
    };
    char deep[200];
    json value;
    size_t i, wrong = 0;
    for (i = 0; i < sizeof good / sizeof good[0]; i++) {
        T_CHECK(parses(good[i]), "%s", good[i]);
    }
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        T_CHECK(!parses(bad[i]), "%s", bad[i]);
    }
    memset(deep, '[', 64);
    memset(deep + 64, ']', 64);
    deep[128] = '\0';
    T_CHECK(parses(deep), "64 levels");
    memset(deep, '[', 65);
    memset(deep + 65, ']', 65);
    deep[130] = '\0';
    T_CHECK(!parses(deep), "65 levels");
    T_CHECK(json_parse(&value, "[1, x]", 6, &wrong) == -1 && wrong == 4 && value.at == NULL,
            "wrong at %u", (unsigned)wrong);
    T_CHECK(json_parse(&value, "\"\0\"", 3, &wrong) == -1, "a NUL in a string");
}

static json from(const char *text)
{
    json value;
    size_t wrong;
    T_CHECK(json_parse(&value, text, strlen(text), &wrong) == 0, "%s", text);
    return value;
}

static void test_json_values(void)
{
    json root = from(" { \"a\" : [ 1 , \"x\\u0041\" , { \"b\" : null } ] , \"c\" : -2.5e1 , "
                     "\"ab\" : true } "), key, value, list;
    const char *cursor = NULL, names[] = "acab";
    char text[32];
    double x = 0;
    int64_t n = 0;
    int i = 0;
    while (json_next(root, &cursor, &key, &value)) {
        T_CHECK(json_string(key, text, sizeof text) >= 1 && text[0] == names[i], "key %d", i);
        i++;
    }
    T_CHECK(i == 3, "%d members", i);
    T_CHECK(json_number(json_get(root, "c"), &x) == 0 && x == -25, "c is %g", x);
    T_CHECK(json_type(json_get(root, "ab")) == 't' && json_get(root, "b").at == NULL, "members");
    list = json_get(root, "a");
    cursor = NULL;
    T_CHECK(json_next(list, &cursor, &key, &value) && key.at == NULL &&
            json_integer(value, 0, 5, &n) == 0 && n == 1, "first");
    T_CHECK(json_integer(value, 2, 5, &n) != 0, "out of range");
    T_CHECK(json_next(list, &cursor, &key, &value) && json_is(value, "xA") &&
            !json_is(value, "xB") && !json_is(value, "x"), "second");
    T_CHECK(json_next(list, &cursor, &key, &value) &&
            json_type(json_get(value, "b")) == 'n', "third");
    T_CHECK(!json_next(list, &cursor, &key, &value) && value.at == NULL, "the end");
    T_CHECK(json_integer(from("1.5"), 0, 5, &n) != 0, "no whole number");
    T_CHECK(json_integer(from("1e300"), 0, INT64_MAX, &n) != 0, "too large");
    T_CHECK(json_number(from("\"1\""), &x) != 0 && json_number(value, &x) != 0, "no number");
    cursor = NULL;
    T_CHECK(!json_next(from("\"ab\""), &cursor, &key, &value), "no container");
    T_CHECK(json_string(value, text, sizeof text) == 0 && json_type(value) == '\0', "no value");
}

static void check_text(const char *string, const char *bytes, size_t length)
{
    char text[64];
    memset(text, 'z', sizeof text);
    T_CHECK(json_string(from(string), text, sizeof text) == length &&
            memcmp(text, bytes, length) == 0 && text[length] == 'z', "%s", string);
    memset(text, 'z', sizeof text);
    T_CHECK(json_string(from(string), text, 1) == length && text[1] == 'z', "%s cut", string);
}

static void test_json_strings(void)
{
    check_text("\"\"", "", 0);
    check_text("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8);
    check_text("\"\\u0000\"", "\0", 1);
    check_text("\"\\u007f\\u0080\\u07ff\"", "\x7f\xc2\x80\xdf\xbf", 5);
    check_text("\"\\u0800\\uFFFD\"", "\xe0\xa0\x80\xef\xbf\xbd", 6);
    check_text("\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80", 4);
    check_text("\"\\ud83dx\"", "\xef\xbf\xbdx", 4);
    check_text("\"\\ud83d\\u0041\"", "\xef\xbf\xbd" "A", 4);
    check_text("\"\\ude00\"", "\xef\xbf\xbd", 3);
    check_text("\"\\ud83d\"", "\xef\xbf\xbd", 3);
    check_text("\"\xc3\xa9\"", "\xc3\xa9", 2);
}

/* ---- models ---- */

static wnpu_model *open_bytes(const unsigned char *file, size_t size)
{
    wnpu_model *m = NULL;
    wnpu_error error = {0, ""};
    T_CHECK(wnpu_model_open_memory(&m, file, size, NULL, &error) == WNPU_OK, "%s", error.message);
    return m;
}

static wnpu_model *open_dir(toy_dir *dir)
{
    wnpu_model *m = NULL;
    wnpu_error error = {0, ""};
    hf h;
    if (hf_open(&h, &dir->files) != 0) {
        T_CHECK(0, "%s", h.why);
    } else {
        T_CHECK(wnpu_model_open_source(&m, &h.source, NULL, &error) == WNPU_OK, "%s",
                error.message);
    }
    hf_close(&h);
    return m;
}

static void hf_same(const wnpu_model *a, const wnpu_model *b, const char *what)
{
    T_CHECK(a != NULL && b != NULL && a->data_size == b->data_size &&
            memcmp(a->data, b->data, a->data_size) == 0, "%s: another model", what);
    T_CHECK(a != NULL && b != NULL && a->n_audio_head == b->n_audio_head &&
            a->n_text_head == b->n_text_head && a->vocab.eot == b->vocab.eot, "%s: sizes", what);
}

/* A toy whose floats are all halves of floats, which BF16 holds exactly. */
static void cut_floats(unsigned char *ggml, size_t size)
{
    toy_tensor t;
    size_t j;
    int i;
    for (i = 0; toy_find(ggml, size, NULL, i, &t); i++) {
        for (j = 0; j < t.rows * t.columns; j++) {
            memset(ggml + t.data + 4 * j, 0, 2);
        }
    }
}

static toy_options distilled(int type)
{
    toy_options o = toy_least(type);
    o.state = 32;
    o.audio_layer = 3;
    o.text_layer = 2;
    o.audio_ctx = 6;
    o.mels = 8;
    o.n_base = 300;
    o.n_vocab = 300 + 1509 + 2;
    return o;
}

static void test_types(void)
{
    static const int types[] = {TOY_HF_F32, TOY_HF_F16, TOY_HF_BF16};
    int i;
    for (i = 0; i < 3; i++) {
        toy_options o = distilled(types[i] == TOY_HF_F16 ? TOY_F16 : TOY_F32);
        toy_dir dir;
        size_t size = 0;
        unsigned char *ggml;
        wnpu_model *a, *b;
        o.vector_type = types[i] == TOY_HF_F16 ? TOY_F16 : TOY_F32;
        ggml = toy_hf(&dir, &o, types[i], &size);
        if (types[i] == TOY_HF_BF16) {
            cut_floats(ggml, size);
        }
        a = open_bytes(ggml, size);
        b = open_dir(&dir);
        hf_same(a, b, i == 0 ? "F32" : i == 1 ? "F16" : "BF16");
        wnpu_model_close(b);
        dir.most = 7; /* short reads, and odd ones */
        b = open_dir(&dir);
        hf_same(a, b, "short reads");
        wnpu_model_close(b);
        wnpu_model_close(a);
        toy_dir_free(&dir);
        free(ggml);
    }
}

/* vocab.json and added_tokens.json, shards, names without "model.", filters turned round. */
static void test_other_files(void)
{
    toy_options o = distilled(TOY_F32);
    toy_dir dir;
    size_t size = 0, i, at;
    unsigned char *ggml = toy_hf(&dir, &o, TOY_HF_F32, &size);
    wnpu_model *a = open_bytes(ggml, size), *b;
    toy_bytes *out;
    toy_dir_remove(&dir, "tokenizer.json");
    toy_put_words(toy_dir_file(&dir, "vocab.json"), &o);
    toy_dir_remove(&dir, "model.safetensors");
    toy_put_safetensors(toy_dir_file(&dir, "model-00001-of-00002.safetensors"), ggml, size,
                        TOY_HF_F32, 0, 20);
    out = toy_dir_file(&dir, "model-00002-of-00002.safetensors");
    toy_put_safetensors(out, ggml, size, TOY_HF_F32, 20, 100000);
    toy_dir_text(&dir, "model.safetensors.index.json", "{\"metadata\": {}, \"weight_map\": {"
                 "\"a\": \"model-00001-of-00002.safetensors\", "
                 "\"b\": \"model-00002-of-00002.safetensors\", "
                 "\"c\": \"model-00001-of-00002.safetensors\"}}");
    b = open_dir(&dir);
    hf_same(a, b, "shards");
    wnpu_model_close(b);
    for (i = 8; i + 8 < out->size; i++) { /* as long as before, so that offsets stay */
        if (memcmp(out->data + i, "\"model.", 7) == 0) {
            memcpy(out->data + i, "      \"", 7);
        }
    }
    b = open_dir(&dir);
    hf_same(a, b, "no prefix");
    wnpu_model_close(b);
    out = toy_dir_file(&dir, "preprocessor_config.json");
    out->size = 0;
    toy_puts(out, "{\"mel_filters\": [");
    for (i = 0; i < 201; i++) {
        toy_puts(out, i > 0 ? ", [" : "[");
        for (at = 0; at < (size_t)o.mels; at++) {
            char text[40];
            (void)snprintf(text, sizeof text, "%s%.9g", at > 0 ? "," : "",
                           (double)a->filters[at * 201 + i]);
            toy_puts(out, text);
        }
        toy_puts(out, "]");
    }
    toy_puts(out, "]}");
    b = open_dir(&dir);
    hf_same(a, b, "filters turned round");
    wnpu_model_close(b);
    wnpu_model_close(a);
    toy_dir_free(&dir);
    free(ggml);
}

/* Special tokens, which other vocabularies have, and gaps. */
static void test_vocabulary(void)
{
    toy_options o = distilled(TOY_F32);
    toy_dir dir;
    size_t size = 0, length = 0;
    unsigned char *ggml = toy_hf(&dir, &o, TOY_HF_F32, &size);
    wnpu_model *m;
    toy_dir_remove(&dir, "tokenizer.json");
    toy_put_words(toy_dir_file(&dir, "vocab.json"), &o);
    toy_dir_text(&dir, "added_tokens.json", "{\"<|endoftext|>\": 300, \"<|translate|>\": 304, "
                 "\" na\\u00efve\": 299}");
    m = open_dir(&dir);
    T_CHECK(m != NULL && m->vocab.eot == 300 && m->vocab.translate == 304 &&
            m->vocab.n_base == 305, "special tokens");
    T_CHECK(strcmp(wnpu_token_text(m, 299, &length), " na\xc3\xafve") == 0 && length == 7,
            "an added token is what it says");
    T_CHECK(wnpu_token_text(m, 256, &length) != NULL && length >= 2, "a token of two letters");
    wnpu_model_close(m);
    toy_dir_free(&dir);
    free(ggml);
}

/* Triangles: one peak, nothing beside them, and area 1 (Slaney's norm) where bins are many. */
static void test_slaney(void)
{
    float *filters = malloc(80 * 201 * sizeof *filters);
    int i, m;
    slaney(filters, 80);
    for (m = 0; m < 80; m++) {
        const float *f = filters + m * 201;
        int turns = 0;
        double area = 0;
        for (i = 0; i < 201; i++) {
            T_CHECK(f[i] >= 0 && f[i] < 0.03f, "filter %d, bin %d: %g", m, i, (double)f[i]);
            turns += i > 0 && i < 200 && f[i] > f[i - 1] && f[i] >= f[i + 1];
            area += 40 * (double)f[i];
        }
        T_CHECK(turns == 1 && (m < 60 || fabs(area - 1) < 0.02), "filter %d: %d peaks, area %g", m,
                turns, area);
    }
    free(filters);
}

/* The filters of a real model, bit by bit. */
static void test_real_filters(void)
{
    float filters[80 * 201];
    char path[512];
    wnpu_model *m = NULL;
    wnpu_error error = {0, ""};
    if (wnpu_model_open(&m, life_cached(path, sizeof path, "ggml-tiny.bin"), NULL, &error) !=
        WNPU_OK) {
        t_skip(error.message);
        return;
    }
    slaney(filters, 80);
    T_CHECK(memcmp(filters, m->filters, sizeof filters) == 0, "they differ");
    wnpu_model_close(m);
}

/* Alignment heads are taken if the model has all of them. */
static void test_heads(void)
{
    static const struct {
        const char *text;
        uint32_t n;
        int note, failed;
    } known[] = {
        {"{\"alignment_heads\": [[0, 1], [0, 0]]}", 2, 0, 0},
        {"{\"alignment_heads\": [[0, 1], [17, 0]]}", 0, 1, 0},
        {"{\"alignment_heads\": [[0]]}", 0, 1, 0}, {"{\"alignment_heads\": 5}", 0, 0, 0},
        {"{}", 0, 0, 0}, {"{", 0, 0, 1}
    };
    size_t i;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        toy_options o = toy_least(TOY_F32);
        toy_dir dir;
        hf h;
        size_t size = 0;
        unsigned char *ggml;
        int failed;
        o.text_head = 2;
        ggml = toy_hf(&dir, &o, TOY_HF_F32, &size);
        toy_dir_text(&dir, "generation_config.json", known[i].text);
        failed = hf_open(&h, &dir.files) != 0;
        T_CHECK(failed == known[i].failed && h.n_heads == known[i].n &&
                (h.note[0] != '\0') == known[i].note, "%s: %u heads, '%s', '%s'", known[i].text,
                (unsigned)h.n_heads, h.note, h.why);
        T_CHECK(i > 0 || (h.heads[0][1] == 1 && h.heads[1][1] == 0), "other heads");
        free(ggml);
        hf_close(&h);
        toy_dir_free(&dir);
    }
}

/* ---- refusals ---- */

static void hf_refused(toy_dir *dir, const char *expected)
{
    wnpu_model *m = NULL;
    wnpu_error error = {0, ""};
    hf h;
    const char *why = h.why;
    int failed = hf_open(&h, &dir->files) != 0;
    if (!failed && wnpu_model_open_source(&m, &h.source, NULL, &error) != WNPU_OK) {
        failed = 1;
        why = error.message;
    }
    T_CHECK(failed && strstr(why, expected) != NULL, "no '%s' in '%s'", expected, why);
    wnpu_model_close(m);
    hf_close(&h);
}

/* With one file's text replaced. */
static void refused_with(const char *file, const char *was, const char *is,
                         const char *expected)
{
    toy_options o = toy_least(TOY_F32);
    toy_dir dir;
    size_t size = 0;
    unsigned char *ggml = toy_hf(&dir, &o, TOY_HF_F32, &size);
    toy_bytes *bytes = toy_dir_file(&dir, file);
    char *text = malloc(bytes->size + 1), *at;
    memcpy(text, bytes->data, bytes->size);
    text[bytes->size] = '\0';
    at = text;
    while (strncmp(at, was, strlen(was)) != 0 && at < text + bytes->size) {
        at++;
    }
    T_CHECK(at < text + bytes->size, "no '%s' in %s", was, file);
    if (at < text + bytes->size) {
        toy_bytes changed = {NULL, 0, 0, 0};
        toy_put(&changed, text, (size_t)(at - text));
        toy_puts(&changed, is);
        toy_put(&changed, at + strlen(was), bytes->size - (size_t)(at - text) - strlen(was));
        free(bytes->data);
        *bytes = changed;
        hf_refused(&dir, expected);
    }
    free(text);
    toy_dir_free(&dir);
    free(ggml);
}

static void test_config_refusals(void)
{
    static const char config[] = "config.json", vocab[] = "tokenizer.json";
    static const char mel[] = "preprocessor_config.json";
    refused_with(config, "{", "[", "config.json: not JSON at byte");
    refused_with(config, "\"d_model\": 4", "\"d_model\": 4.5", "d_model is no number");
    refused_with(config, "\"d_model\"", "\"dmodel\"", "d_model is no number");
    refused_with(config, "\"decoder_layers\": 1", "\"decoder_layers\": 65", "from 1 to 64");
    refused_with(config, "\"whisper\"", "\"bert\"", "model_type");
    refused_with(config, "\"gelu\"", "\"relu\"", "gelu");
    refused_with(config, "_embedding\": false", "_embedding\": true", "scale_embedding");
    refused_with(config, "\"scale", "\"tie_word_embeddings\": false, \"scale", "tie_word");
    refused_with(config, "\"decoder_ffn_dim\": 16", "\"decoder_ffn_dim\": 17", "4 * d_model");
    refused_with(config, "\"encoder_attention_heads\": 1", "\"encoder_attention_heads\": 3",
                 "n_audio_head 3");
    refused_with(config, "\"vocab_size\": 1766", "\"vocab_size\": 1767", "1767");
    refused_with(config, "\"encoder_layers\": 1", "\"encoder_layers\": 2", "15 tensors are missing");
    refused_with(vocab, "\"BPE\"", "\"Unigram\"", "not a BPE");
    refused_with(vocab, "\"vocab\"", "\"words\"", "has no vocabulary");
    refused_with(vocab, ": 255", ": \"255\"", "a token has no text, or no number below");
    refused_with(vocab, ": 255", ": 1766", "a token has no text, or no number below");
    refused_with(vocab, "\"added_tokens\": []", "\"added_tokens\": [{\"id\": 1}]", "no text");
    refused_with(vocab, "\"vocab\": {", "\"vocab\": {\"\\u0144\": 300, ", "alphabet");
    refused_with(vocab, "\"vocab\": {", "\"vocab\": {\" \": 300, ", "alphabet");
    refused_with(mel, "16000", "8000", "sampling_rate is not 16000");
    refused_with(mel, "[[", "[[0, ", "mel_filters are not");
    refused_with(mel, "[[", "[[], [", "mel_filters are not");
    refused_with(mel, "[[", "[[\"\", ", "mel_filters are not");
}

static void test_weight_refusals(void)
{
    static const char file[] = "model.safetensors";
    static const char name[] = "\"model.encoder.conv1.bias\"";
    refused_with(file, "\"F32\"", "\"F64\"", "expected F32, F16 or BF16");
    refused_with(file, "\"F32\"", "\"F16\"", "data_offsets");
    refused_with(file, "\"F32\"", "[32] ", "has type [32]");
    refused_with(file, name, "\"model.encoder.conv1.bia5\"", "conv1.bia5 is unknown");
    refused_with(file, name, "\"modex.encoder.conv1.bias\"", "merge adapters");
    refused_with(file, name, "\"model.encoder.conv2.bias\"", "twice");
    refused_with(file, name, "\"proj_out.weight\"         ", "the first is OpenAI's encoder.conv1.bias");
    refused_with(file, ".layers.0.", ".layers.1.", "is unknown");
    refused_with(file, ".layers.0.", ".layers.x.", "is unknown");
    refused_with(file, "\"shape\": [8, 4", "\"shape\": [8, 0", "an invalid shape");
    refused_with(file, "\"shape\": [8", "\"shape\":-[8", "not JSON");
    refused_with(file, "\"shape\": [8, 4", "\"shape\": [4, 8", "has shape {8, 4}");
    refused_with(file, "\"data_offsets\": [0, ", "\"data_offsets\": [4, ", "data_offsets");
    refused_with(file, "\"data_offsets\": [0, ", "\"data_offsets\": [-4,", "data_offsets");
    refused_with(file, "\"data_offsets\": [", "\"data_0ffsets\": [", "data_offsets");
}

/* Adds proj_out.weight to a safetensors header: the embedding's entry, with the data from byte
 * `from` of its own or, if that is negative, with the very same. */
static void add_projection(toy_bytes *file, long from)
{
    static const char name[] = "\"model.decoder.embed_tokens.weight\": ";
    toy_bytes header = {NULL, 0, 0, 0}, whole = {NULL, 0, 0, 0};
    size_t length = toy_get_u32(file->data);
    char *text = calloc(length + 1, 1), *entry, *end, *at, offsets[64];
    unsigned long first = 0, last = 0;
    memcpy(text, file->data + 8, length);
    entry = strstr(text, name) + strlen(name);
    end = strchr(entry, '}') + 1;
    at = strstr(entry, "\"data_offsets\": [");
    T_CHECK(sscanf(at, "\"data_offsets\": [%lu, %lu]", &first, &last) == 2, "no offsets");
    toy_puts(&header, "{\"proj_out.weight\": ");
    toy_put(&header, entry, (size_t)(at - entry));
    if (from >= 0) {
        last = last - first + (unsigned long)from;
        first = (unsigned long)from;
    }
    (void)snprintf(offsets, sizeof offsets, "\"data_offsets\": [%lu, %lu]}", first, last);
    toy_puts(&header, offsets);
    toy_puts(&header, ", ");
    toy_puts(&header, text + 1);
    T_CHECK(end > at, "an entry ends");
    toy_put_i32(&whole, (int32_t)header.size);
    toy_put_i32(&whole, 0);
    toy_put(&whole, header.data, header.size);
    toy_put(&whole, file->data + 8 + length, file->size - 8 - length);
    free(text);
    free(header.data);
    free(file->data);
    *file = whole;
}

/* An output projection that is stored as well has to be the embedding. */
static void test_projection(void)
{
    toy_options o = toy_least(TOY_F32);
    int other;
    for (other = 0; other < 2; other++) {
        toy_dir dir;
        size_t size = 0;
        unsigned char *ggml = toy_hf(&dir, &o, TOY_HF_F32, &size);
        add_projection(toy_dir_file(&dir, "model.safetensors"), other ? 0 : -1);
        if (other) {
            hf_refused(&dir, "proj_out.weight is not the embedding");
        } else {
            hf h;
            T_CHECK(hf_open(&h, &dir.files) == 0, "%s", h.why);
            hf_close(&h);
        }
        toy_dir_free(&dir);
        free(ggml);
    }
}

static void test_file_refusals(void)
{
    toy_options o = toy_least(TOY_F32);
    toy_dir dir;
    size_t size = 0, n;
    unsigned char *ggml = toy_hf(&dir, &o, TOY_HF_F32, &size);
    toy_bytes *out = toy_dir_file(&dir, "model.safetensors"), *index;
    size_t whole = out->size;
    wnpu_model *m;
    for (n = 0; n < whole; n += n < 100 ? 1 : 997) {
        out->size = n;
        hf_refused(&dir, n < 8 ? "is empty" : "");
    }
    out->size = whole;
    out->data[4] = 1;
    hf_refused(&dir, "not a safetensors file, or truncated");
    out->data[4] = 0;
    dir.fail_at = whole - 1;
    hf_refused(&dir, "unreadable");
    dir.fail_at = 9;
    hf_refused(&dir, "cannot be read");
    dir.fail_at = 0;
    toy_dir_remove(&dir, "model.safetensors");
    hf_refused(&dir, "neither model.safetensors nor");
    toy_dir_text(&dir, "pytorch_model.bin", "PK");
    hf_refused(&dir, "safe_serialization");
    index = toy_dir_file(&dir, "model.safetensors.index.json");
    toy_puts(index, "{\"weight_map\": {\"a\": \"../x\"}}");
    hf_refused(&dir, "invalid name");
    toy_dir_text(&dir, "model.safetensors.index.json", "{\"weight_map\": {\"a\": \"x\"}}");
    hf_refused(&dir, "x: there is no such file");
    toy_dir_text(&dir, "model.safetensors.index.json", "{}");
    hf_refused(&dir, "50 tensors are missing"); /* 11 single, 15 and 24 in layers */
    toy_dir_remove(&dir, "tokenizer.json");
    hf_refused(&dir, "vocab.json: there is no such file");
    toy_dir_remove(&dir, "config.json");
    hf_refused(&dir, "config.json: there is no such file");
    m = open_bytes(ggml, size);
    wnpu_model_close(m);
    toy_dir_free(&dir);
    free(ggml);
}

static void hf_tests(void)
{
    t_run("JSON: what is and what is not", test_json_grammar);
    t_run("JSON: values", test_json_values);
    t_run("JSON: strings", test_json_strings);
    t_run("F32, F16 and BF16 give the ggml file's model", test_types);
    t_run("shards, vocab.json, other names and filters", test_other_files);
    t_run("special and added tokens", test_vocabulary);
    t_run("mel filters", test_slaney);
    t_run("mel filters of a real model", test_real_filters);
    t_run("alignment heads", test_heads);
    t_run("messages: configuration and vocabulary", test_config_refusals);
    t_run("messages: weights", test_weight_refusals);
    t_run("an output projection beside the embedding", test_projection);
    t_run("messages: files", test_file_refusals);
}
