/* test_wnpu.c - packed models: the format, that a pack is the model it was made from, and what
 * happens to damaged ones. */
#define _POSIX_C_SOURCE 200809L

#include <sys/mman.h>

/* Maps fail on demand. */
static int no_maps;

static void *test_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    return no_maps ? MAP_FAILED : mmap(at, size, protection, flags, file, offset);
}
#define mmap test_mmap
#include "../../whisper_npu.c"
#undef mmap

#include "../lib/life.h"
#include <sys/wait.h>

/* ---- bytes that are written and read ---- */

typedef struct sink {
    toy_bytes bytes;
    size_t most;   /* taken at once; 0: all */
    size_t room;   /* then it fails; 0: never */
} sink;

static int64_t sink_write(void *user, const void *data, size_t size)
{
    sink *s = user;
    size_t n = s->most > 0 && size > s->most ? s->most : size;
    if (s->room > 0 && s->bytes.size + n > s->room) {
        return -1;
    }
    toy_put(&s->bytes, data, n);
    return (int64_t)n;
}

/* The pack of a model, 64-byte aligned; to be freed. */
static unsigned char *pack_of(const wnpu_model *m, size_t *size)
{
    sink s;
    wnpu_error error;
    void *aligned = NULL;
    memset(&s, 0, sizeof s);
    T_CHECK(wnpu_model_save(m, sink_write, &s, &error) == WNPU_OK, "%s", error.message);
    T_CHECK(!s.bytes.failed && posix_memalign(&aligned, 64, s.bytes.size) == 0, "no memory");
    memcpy(aligned, s.bytes.data, s.bytes.size);
    *size = s.bytes.size;
    free(s.bytes.data);
    return aligned;
}

static wnpu_model *open_toy(const toy_options *o, int keep_float)
{
    wnpu_model_config config;
    wnpu_model *m = NULL;
    wnpu_error error = {0, ""};
    size_t size = 0;
    unsigned char *file = toy_model(o, &size);
    wnpu_model_config_init(&config, sizeof config);
    config.keep_float = (uint32_t)keep_float;
    T_CHECK(wnpu_model_open_memory(&m, file, size, &config, &error) == WNPU_OK, "%s",
            error.message);
    free(file);
    return m;
}

static unsigned char *toy_pack(const toy_options *o, size_t *size)
{
    wnpu_model *m = open_toy(o, 0);
    unsigned char *pack = pack_of(m, size);
    wnpu_model_close(m);
    return pack;
}

/* A toy that is small, but of odd sizes, so that there is padding everywhere. */
static toy_options odd_toy(void)
{
    toy_options o = toy_least(TOY_F16);
    o.state = 20;
    o.audio_head = 5;
    o.audio_layer = 2;
    o.text_layer = 11;
    o.audio_ctx = 3;
    o.mels = 7;
    return o;
}

static wnpu_model_config counted(life_counter *c)
{
    wnpu_model_config config;
    life_count(c);
    wnpu_model_config_init(&config, sizeof config);
    config.allocator = &c->allocator;
    return config;
}

/* Opens in place, expects it to fail with this code and words, and nothing to leak. */
static void refused(const unsigned char *pack, size_t size, int code, const char *words)
{
    life_counter c;
    wnpu_model_config config = counted(&c);
    wnpu_model *m = (wnpu_model *)(void *)&c;
    wnpu_error error = {0, ""};
    int status = wnpu_model_open_static(&m, pack, size, &config, &error);
    T_CHECK(status == code && error.code == code && m == NULL, "status %d, not %d: %s", status,
            code, error.message);
    T_CHECK(strstr(error.message, words) != NULL, "no '%s' in '%s'", words, error.message);
    T_CHECK(c.live == 0, "%ld blocks leak", c.live);
}

/* ---- the format, read from its definition ---- */

static uint64_t get64(const unsigned char *p)
{
    return toy_get_u32(p) | (uint64_t)toy_get_u32(p + 4) << 32;
}

static void put32(unsigned char *p, uint32_t x)
{
    int i;
    for (i = 0; i < 4; i++) {
        p[i] = (unsigned char)(x >> 8 * i);
    }
}

static void put64(unsigned char *p, uint64_t x)
{
    put32(p, (uint32_t)x);
    put32(p + 4, (uint32_t)(x >> 32));
}

/* What a forger does after changing the header. */
static void seal(unsigned char *pack)
{
    put64(pack + 24, mf_checksum(pack + 32, (size_t)get64(pack + 32) - 32));
}

static const unsigned char *entry(const unsigned char *pack, uint32_t i)
{
    return pack + 128 + 64 * (size_t)i;
}

/* Known answers: the four first ones are published everywhere, the low words of the rest are from
 * the content checksums of zstd 1.5.4, which are XXH64 too. */
static void test_checksum(void)
{
    static const struct {
        const char *text;
        uint64_t sum;
    } known[] = {
        {"", 0xef46db3751d8e999u}, {"a", 0xd24ec4f1a98c6e5bu}, {"abc", 0x44bc2cf5ad770999u},
        {"Nobody inspects the spammish repetition", 0xfbcea83c8a378bf1u}
    };
    static const struct {
        size_t n;
        uint32_t low;
    } lows[] = {
        {5, 0xdb7051feu}, {12, 0x33af5133u}, {40, 0x253d76b6u}, {63, 0x31c7493cu},
        {64, 0xf6eeb01fu}, {100, 0x170fe531u}, {1000, 0x33f1a3fbu}
    };
    unsigned char bytes[1001];
    size_t i;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        T_CHECK(mf_checksum(known[i].text, strlen(known[i].text)) == known[i].sum, "'%s'",
                known[i].text);
    }
    for (i = 0; i < 1000; i++) {
        bytes[i + 1] = (unsigned char)(i * 7 + 3);
    }
    for (i = 0; i < sizeof lows / sizeof lows[0]; i++) {
        T_CHECK((uint32_t)mf_checksum(bytes + 1, lows[i].n) == lows[i].low, "%u bytes",
                (unsigned)lows[i].n);
    }
}

static void test_format(void)
{
    static const unsigned char magic[8] = {0x89, 'W', 'N', 'P', 'U', 13, 10, 26};
    toy_options o = odd_toy();
    size_t size = 0, at, data;
    unsigned char *pack = toy_pack(&o, &size);
    uint32_t i, j, n = toy_get_u32(pack + 40);
    T_CHECK(memcmp(pack, magic, 8) == 0 && toy_get_u32(pack + 8) == 4 &&
            toy_get_u32(pack + 12) == 0x01020304, "magic, version, mark");
    T_CHECK(get64(pack + 16) == size, "size");
    data = (size_t)get64(pack + 32);
    T_CHECK(data % 4096 == 0 && data >= 128 + 64 * n && data - 128 - 64 * n < 4096, "data at %u",
            (unsigned)data);
    T_CHECK(get64(pack + 24) == mf_checksum(pack + 32, data - 32), "the header's checksum");
    T_CHECK(n == 13 + 2 * 6 + 11 * 10, "%u sections", (unsigned)n);
    T_CHECK((int32_t)toy_get_u32(pack + 44) == o.n_vocab && toy_get_u32(pack + 48) == 3 &&
            toy_get_u32(pack + 80) == 7 && toy_get_u32(pack + 84) == 256, "sizes");
    for (i = 0, at = data; i < n; i++) {
        const unsigned char *e = entry(pack, i);
        size_t bytes = (size_t)get64(e + 48);
        T_CHECK(get64(e + 40) == at && bytes > 0 && bytes % 64 == 0, "%s does not begin where the "
                "last one ends", (const char *)e);
        T_CHECK(get64(e + 56) == mf_checksum(pack + at, bytes), "checksum of %s", (const char *)e);
        T_CHECK(e[39] == '\0' && e[0] != '\0', "name of %u", (unsigned)i);
        for (j = 0; j < i; j++) {
            T_CHECK(strcmp((const char *)e, (const char *)entry(pack, j)) != 0, "%s twice",
                    (const char *)e);
        }
        at += bytes;
    }
    T_CHECK(at == size, "sections end at %u of %u", (unsigned)at, (unsigned)size);
    for (i = 128 + 64 * n; i < data; i++) {
        T_CHECK(pack[i] == 0, "padding at %u", (unsigned)i);
    }
    free(pack);
}

/* Where every piece lies in the data. Whoever changes this changes the format: packs that are out
 * there then hold something else than the library believes, and MF_PACK_VERSION has to rise. */
static void test_layout(void)
{
    toy_options o = toy_least(TOY_F16);
    wnpu_model *m = open_toy(&o, 0);
    const void *pieces[64];
    uint64_t offsets[64];
    const gm_weight *weights[6];
    size_t i, n = 0;
    weights[0] = &m->conv1;
    weights[1] = &m->conv2;
    weights[2] = &m->encoder[0].qkv;
    weights[3] = &m->encoder[0].fc2;
    weights[4] = &m->embedding;
    weights[5] = &m->decoder[0].cross_kv;
    pieces[n++] = m->filters;
    pieces[n++] = m->vocab.offset;
    pieces[n++] = m->vocab.bytes;
    pieces[n++] = m->vocab.slots;
    pieces[n++] = m->vocab.special;
    pieces[n++] = m->audio_position;
    pieces[n++] = m->encoder_norm.weight;
    pieces[n++] = m->encoder_norm.bias;
    pieces[n++] = m->embedding_low;
    pieces[n++] = m->embedding_mean;
    pieces[n++] = m->wide_columns;
    pieces[n++] = m->wide_values;
    pieces[n++] = m->text_position;
    pieces[n++] = m->decoder_norm.weight;
    pieces[n++] = m->decoder[0].mlp_norm.bias;
    pieces[n++] = m->alignment;
    for (i = 0; i < 6; i++) {
        pieces[n++] = weights[i]->packed;
        pieces[n++] = weights[i]->scale;
        pieces[n++] = weights[i]->correction;
        if (weights[i]->bias != NULL) {
            pieces[n++] = weights[i]->bias;
        }
    }
    for (i = 0; i < n; i++) {
        offsets[i] = (uint64_t)((const unsigned char *)pieces[i] - m->data);
    }
    T_CHECK(mf_checksum(offsets, n * sizeof offsets[0]) == 0x573e7e3c1855e4a4u &&
            MF_PACK_VERSION == 4,
            "the layout's checksum is 0x%016llx: raise MF_PACK_VERSION and correct this test",
            (unsigned long long)mf_checksum(offsets, n * sizeof offsets[0]));
    wnpu_model_close(m);
}

/* ---- a pack is the model ---- */

static void same_vocabulary(const tk_vocab *a, const tk_vocab *b)
{
    T_CHECK(a->n_vocab == b->n_vocab && a->n_base == b->n_base && a->n_added == b->n_added &&
            a->bytes_size == b->bytes_size && a->slot_mask == b->slot_mask &&
            a->longest == b->longest && a->encodable == b->encodable &&
            a->n_special == b->n_special && a->multilingual == b->multilingual &&
            a->n_languages == b->n_languages && a->eot == b->eot && a->sot == b->sot &&
            a->language0 == b->language0 && a->translate == b->translate &&
            a->timestamp0 == b->timestamp0 && a->no_speech == b->no_speech, "vocabularies differ");
    T_CHECK(memcmp(a->byte_id, b->byte_id, sizeof a->byte_id) == 0, "single bytes differ");
}

static void same_model(const wnpu_model *a, const wnpu_model *b)
{
    wnpu_model_info x, y;
    x.struct_size = y.struct_size = sizeof x;
    T_CHECK(a->data_size == b->data_size && memcmp(a->data, b->data, a->data_size) == 0,
            "data differ");
    same_vocabulary(&a->vocab, &b->vocab);
    (void)wnpu_model_get_info(a, &x);
    (void)wnpu_model_get_info(b, &y);
    x.bytes = y.bytes = x.shared_bytes = y.shared_bytes = 0;
    T_CHECK(memcmp(&x, &y, sizeof x) == 0, "information differs");
}

typedef struct source {
    const unsigned char *data;
    size_t size, most, fail_at; /* fail_at: offset that cannot be read; 0: none */
    size_t change_at;           /* byte that is another after the first read; 0: none */
    int reads;
} source;

static int64_t source_read(void *user, uint64_t offset, void *buffer, size_t size)
{
    source *s = user;
    size_t n = size < s->most ? size : s->most;
    T_CHECK(offset <= s->size && size <= s->size - offset && size > 0, "a read outside");
    if (s->fail_at != 0 && offset + n > s->fail_at) {
        return -5;
    }
    memcpy(buffer, s->data + offset, n);
    if (s->reads++ > 0 && s->change_at >= offset && s->change_at < offset + n) {
        ((unsigned char *)buffer)[s->change_at - offset] ^= 1;
    }
    return (int64_t)n;
}

static int open_source(wnpu_model **m, source *from, const wnpu_model_config *config,
                       wnpu_error *error)
{
    wnpu_source s;
    s.read = source_read;
    s.size = from->size;
    s.user = from;
    return wnpu_model_open_source(m, &s, config, error);
}

/* Writes bytes to a new file and returns its name, which is static. */
static const char *file_of(const unsigned char *bytes, size_t size)
{
    static char path[64];
    int file;
    (void)snprintf(path, sizeof path, "/tmp/test_wnpu.XXXXXX");
    file = mkstemp(path);
    T_CHECK(file >= 0 && write(file, bytes, size) == (ssize_t)size, "cannot write %s", path);
    (void)close(file);
    return path;
}

static void test_ways(void)
{
    toy_options o = odd_toy();
    size_t size = 0, again = 0;
    wnpu_model *ggml = open_toy(&o, 0), *m = NULL;
    unsigned char *pack = pack_of(ggml, &size), *copy = malloc(size + 1), *second;
    const char *path = file_of(pack, size);
    wnpu_error error = {0, ""};
    source from = {pack, size, 1000, 0, 0, 0};
    int way;
    memcpy(copy + 1, pack, size); /* not aligned */
    for (way = 0; way < 7; way++) {
        life_counter c;
        wnpu_model_config config = counted(&c);
        int status, shared = way == 0 || way == 4;
        config.full_check = 1;
        config.copy = way == 1 || way == 5;
        no_maps = way == 6;
        status = way < 2 ? wnpu_model_open_static(&m, pack, size, &config, &error) :
                 way == 2 ? wnpu_model_open_memory(&m, copy + 1, size, &config, &error) :
                 way == 3 ? open_source(&m, &from, &config, &error) :
                            wnpu_model_open(&m, path, &config, &error);
        T_CHECK(status == WNPU_OK, "way %d: %s", way, error.message);
        if (status != WNPU_OK) {
            continue;
        }
        same_model(ggml, m);
        T_CHECK(m->shared == (shared ? size : 0), "way %d shares %u", way, (unsigned)m->shared);
        T_CHECK(c.live == 1 && (c.bytes < 16384) == shared, "way %d took %u", way,
                (unsigned)c.bytes);
        T_CHECK((m->map != NULL) == (way == 4), "way %d is mapped", way);
        T_CHECK(wnpu_model_verify(m, &error) == WNPU_OK, "%s", error.message);
        second = pack_of(m, &again);
        T_CHECK(again == size && memcmp(second, pack, size) == 0, "way %d: another pack", way);
        free(second);
        wnpu_model_close(m);
        T_CHECK(c.live == 0, "way %d leaks", way);
    }
    no_maps = 0;
    (void)unlink(path);
    wnpu_model_close(ggml);
    free(copy);
    free(pack);
}

static void test_types(void)
{
    static const int types[] = {TOY_F32, TOY_Q4_0, TOY_Q5_1, TOY_Q8_0, TOY_Q6_K};
    size_t i, size = 0;
    for (i = 0; i < sizeof types / sizeof types[0]; i++) {
        toy_options o = toy_least(types[i]);
        wnpu_model *ggml = open_toy(&o, 0), *m = NULL;
        unsigned char *pack = pack_of(ggml, &size);
        wnpu_error error = {0, ""};
        T_CHECK(wnpu_model_open_static(&m, pack, size, NULL, &error) == WNPU_OK, "%s",
                error.message);
        same_model(ggml, m);
        wnpu_model_close(m);
        wnpu_model_close(ggml);
        free(pack);
    }
}

static char *transcript(const wnpu_model *m, int isa)
{
    wnpu_config config;
    wnpu_params params;
    wnpu_session *s = NULL;
    wnpu_audio audio;
    wnpu_error error = {0, ""};
    sink json;
    float *x = malloc(80000 * sizeof *x);
    size_t i;
    memset(&json, 0, sizeof json);
    for (i = 0; i < 80000; i++) {
        x[i] = (float)(0.3 * sin((double)i * 0.05 * (1 + 0.2 * sin((double)i / 4000))));
    }
    wnpu_config_init(&config, sizeof config);
    config.threads = 1;
    config.isa = isa;
    wnpu_params_init(&params, sizeof params);
    params.beam = 1;
    params.max_tokens = 12;
    params.no_speech_threshold = 2;
    params.vad = 0; /* the toy's sound is no speech */
    wnpu_audio_init(&audio, sizeof audio);
    audio.data = x;
    audio.frames = 80000;
    T_CHECK(wnpu_session_open(&s, m, &config, NULL, 0, &error) == WNPU_OK, "%s", error.message);
    T_CHECK(wnpu_transcribe(s, &params, &audio) == WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(wnpu_write(s, WNPU_FORMAT_JSON, sink_write, &json) == WNPU_OK, "json");
    toy_put(&json.bytes, "", 1);
    wnpu_session_close(s);
    free(x);
    return (char *)json.bytes.data;
}

static void test_transcripts(void)
{
    toy_options o = toy_small();
    size_t size = 0;
    wnpu_model *ggml = open_toy(&o, 0), *m = NULL;
    unsigned char *pack = pack_of(ggml, &size);
    wnpu_error error = {0, ""};
    char *is, *should = transcript(ggml, WNPU_ISA_AUTO);
    int isa;
    T_CHECK(wnpu_model_open_static(&m, pack, size, NULL, &error) == WNPU_OK, "%s", error.message);
    T_CHECK(strstr(should, "\"text\"") != NULL, "the toy is silent");
    for (isa = WNPU_ISA_AUTO; isa < CP_ISAS; isa++) {
        if (wnpu_isa_available((wnpu_isa)isa)) {
            is = transcript(m, isa);
            T_CHECK(strcmp(is, should) == 0, "%s: %s", wnpu_isa_name((wnpu_isa)isa), is);
            free(is);
        }
    }
    free(should);
    wnpu_model_close(m);
    wnpu_model_close(ggml);
    free(pack);
}

/* ---- damage ---- */

static void test_header_damage(void)
{
    toy_options o = odd_toy();
    size_t size = 0, i, data;
    unsigned char *pack = toy_pack(&o, &size);
    data = (size_t)get64(pack + 32);
    for (i = 0; i < data; i += i < 400 ? 1 : 13) {
        wnpu_model *m = NULL;
        wnpu_error error = {0, ""};
        int status;
        pack[i] ^= (unsigned char)(1 << i % 8);
        status = wnpu_model_open_static(&m, pack, size, NULL, &error);
        T_CHECK(status == (i < 8 ? WNPU_E_MODEL : i < 12 ? WNPU_E_VERSION :
                           i < 16 ? WNPU_E_UNSUPPORTED : WNPU_E_MODEL) && m == NULL &&
                error.message[0] != '\0', "byte %u: %d, %s", (unsigned)i, status, error.message);
        wnpu_model_close(m);
        pack[i] ^= (unsigned char)(1 << i % 8);
    }
    free(pack);
}

/* A byte in each section: found and named, by the full check at the latest. */
static void test_section_damage(void)
{
    toy_options o = odd_toy();
    size_t size = 0;
    unsigned char *pack = toy_pack(&o, &size);
    uint32_t i, n = toy_get_u32(pack + 40);
    for (i = 0; i < n; i++) {
        const unsigned char *e = entry(pack, i);
        uint64_t first = get64(e + 40), bytes = get64(e + 48);
        size_t at = (size_t)(first + (i % 3 == 0 ? 0 : i % 3 == 1 ? bytes - 1 : bytes / 2));
        wnpu_model_config config;
        wnpu_model *m = NULL;
        wnpu_error error = {0, ""};
        char quoted[64];
        (void)snprintf(quoted, sizeof quoted, "'%.40s'", (const char *)e);
        pack[at] ^= 4;
        if (wnpu_model_open_static(&m, pack, size, NULL, &error) == WNPU_OK) {
            T_CHECK(wnpu_model_verify(m, &error) == WNPU_E_MODEL &&
                    strstr(error.message, quoted) != NULL, "%s: %s", quoted, error.message);
        }
        wnpu_model_close(m);
        wnpu_model_config_init(&config, sizeof config);
        config.full_check = 1;
        T_CHECK(wnpu_model_open_static(&m, pack, size, &config, &error) == WNPU_E_MODEL &&
                m == NULL && strstr(error.message, quoted) != NULL, "%s: %s", quoted,
                error.message);
        pack[at] ^= 4;
    }
    free(pack);
}

/* Damage after opening, as by a failing flash. */
static void test_later_damage(void)
{
    toy_options o = odd_toy();
    size_t size = 0;
    unsigned char *pack = toy_pack(&o, &size);
    wnpu_model *m = NULL;
    wnpu_error error = {0, ""};
    T_CHECK(wnpu_model_open_static(&m, pack, size, NULL, &error) == WNPU_OK, "%s", error.message);
    T_CHECK(wnpu_model_verify(m, &error) == WNPU_OK && error.code == 0, "%s", error.message);
    pack[size - 1] ^= 1;
    T_CHECK(wnpu_model_verify(m, &error) == WNPU_E_MODEL &&
            strstr(error.message, "'decoder.alignment'") != NULL, "%s", error.message);
    pack[size - 1] ^= 1;
    pack[130] ^= 1;
    T_CHECK(wnpu_model_verify(m, &error) == WNPU_E_MODEL &&
            strstr(error.message, "header") != NULL, "%s", error.message);
    put64(pack + 128 + 40, UINT64_MAX);
    seal(pack);
    T_CHECK(wnpu_model_verify(m, &error) == WNPU_E_MODEL &&
            strstr(error.message, "header") != NULL, "%s", error.message);
    wnpu_model_close(m);
    free(pack);
}

static void test_truncation(void)
{
    toy_options o = toy_least(TOY_F16);
    size_t size = 0, n;
    unsigned char *pack = toy_pack(&o, &size);
    for (n = 0; n < size; n += n < 256 ? 1 : 509) {
        refused(pack, n, WNPU_E_MODEL, "");
    }
    refused(pack, size - 1, WNPU_E_MODEL, "truncated");
    refused(pack, 100, WNPU_E_MODEL, "truncated");
    pack[5] = '\n';
    refused(pack, size, WNPU_E_MODEL, "a pack whose first bytes are damaged");
    free(pack);
}

/* Values that a forger could put there, behind a checksum that fits. */
static void test_forgery(void)
{
    toy_options o = toy_least(TOY_F16);
    static const uint32_t values[] = {0, 1, 2, 3, 5, 64, 255, 4096, 0x7fffffff, 0xffffffff};
    size_t size = 0, i, j;
    unsigned char *pack = toy_pack(&o, &size), *forged = NULL;
    void *aligned = NULL;
    T_CHECK(posix_memalign(&aligned, 64, size) == 0, "no memory");
    forged = aligned;
    for (i = 32; i < 200; i += 4) {
        for (j = 0; j < sizeof values / sizeof values[0]; j++) {
            wnpu_model *m = NULL;
            wnpu_error error = {0, ""};
            memcpy(forged, pack, size);
            put32(forged + i, values[j]);
            if (get64(forged + 32) <= size && get64(forged + 32) > 32) {
                seal(forged);
            }
            /* What changes no size may be claimed: 2 or 3 audio positions of 4 floats, which padding
             * makes alike, heads, types, and a section's checksum. */
            T_CHECK(wnpu_model_open_static(&m, forged, size, NULL, &error) != WNPU_OK ||
                    memcmp(forged, pack, size) == 0 || (i == 48 && values[j] < 4) || i == 56 ||
                    i == 72 || i == 96 || (i >= 100 && i < 128) || (i >= 184 && i < 192),
                    "byte %u: %u is taken", (unsigned)i, (unsigned)values[j]);
            wnpu_model_close(m);
        }
    }
    free(forged);
    free(pack);
}

static size_t section_at(const unsigned char *pack, const char *name)
{
    uint32_t i, n = toy_get_u32(pack + 40);
    for (i = 0; i < n; i++) {
        if (strcmp((const char *)entry(pack, i), name) == 0) {
            return (size_t)get64(entry(pack, i) + 40);
        }
    }
    T_CHECK(0, "no section %s", name);
    return 0;
}

/* Indices and floats are checked without the full check: they could lead out of bounds. */
static void test_values(void)
{
    toy_options o = toy_least(TOY_F16);
    size_t size = 0, at;
    unsigned char *pack = toy_pack(&o, &size), saved[4];
    wnpu_model *m = NULL;
    wnpu_error error = {0, ""};
    static const struct {
        const char *section;
        size_t offset;
        uint32_t value;
        const char *words;
    } bad[] = {
        {"filters", 8, 0x7fc00000u, "mel filter"},
        {"vocabulary", 4, 0xfffffff0u, "vocabulary"},
        {"vocabulary", 8, 0, "vocabulary"},
        {"vocabulary", 4 * 256, 511, "vocabulary"},
        {"encoder.position", 4, 0x7f800000u, "'encoder.positional_embedding'"},
        {"decoder.0.cross_norm", 0, 0xff800000u, "'decoder.blocks.0.cross_attn_ln.weight'"},
        {"decoder.norm", 64, 0x7f7fffffu, "'decoder.ln.bias'"},
        {"encoder.conv1", 64, 0x477fe000u, "'encoder.conv1.weight'"},       /* a scale */
        {"encoder.0.attn_out", 64, 0xbf800000u, "'encoder.blocks.0.attn.out.weight'"},
        {"decoder.embedding_mean", 4, 0x7f800000u, "'decoder.token_embedding.weight'"},
        {"decoder.embedding_apart", 64, 0x7fc00000u, "'decoder.token_embedding.weight'"},
        {"encoder.conv1", 64 + 2 * 64, 0x7f800001u, "'encoder.conv1.weight'"}, /* the bias */
        {"decoder.alignment", 0, 0x00000063u, "alignment heads"}, /* layer 99, counted from 1 */
        {"decoder.alignment", 0, 0x00630001u, "alignment heads"}, /* head 99 */
        {"decoder.alignment", 0, 0x00010000u, "alignment heads"}, /* a head and no layer */
        {"decoder.alignment", 4, 0x00000001u, "alignment heads"}  /* behind the end */
    };
    size_t i;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        at = section_at(pack, bad[i].section) + bad[i].offset;
        memcpy(saved, pack + at, 4);
        put32(pack + at, bad[i].value);
        refused(pack, size, WNPU_E_MODEL, bad[i].words);
        memcpy(pack + at, saved, 4);
    }
    T_CHECK(wnpu_model_open_static(&m, pack, size, NULL, &error) == WNPU_OK, "%s", error.message);
    at = (size_t)((const unsigned char *)(m->vocab.slots + m->vocab.slot_mask) - pack);
    wnpu_model_close(m);
    memcpy(saved, pack + at, 4);
    put32(pack + at, 256); /* the last ordinary token */
    T_CHECK(wnpu_model_open_static(&m, pack, size, NULL, &error) == WNPU_OK, "%s", error.message);
    put32(pack + at, 257);
    refused(pack, size, WNPU_E_MODEL, "vocabulary");
    memcpy(pack + at, saved, 4);
    at = (size_t)((const unsigned char *)m->vocab.special - pack) + 24 * 1509 + 20;
    wnpu_model_close(m);
    put32(pack + at, 0x41414141); /* the name of the last special token does not end */
    refused(pack, size, WNPU_E_MODEL, "vocabulary");
    free(pack);
}

static void test_refusals(void)
{
    toy_options o = toy_least(TOY_F16);
    size_t size = 0;
    unsigned char *pack = toy_pack(&o, &size);
    wnpu_model_config config;
    wnpu_model *m = NULL, *exact;
    wnpu_error error = {0, ""};
    sink s;
    memset(&s, 0, sizeof s);
    put32(pack + 8, 5);
    refused(pack, size, WNPU_E_VERSION, "format 5, this library reads format 4; update the library");
    put32(pack + 8, 3);
    refused(pack, size, WNPU_E_VERSION, "format 3, this library reads format 4; pack the model");
    put32(pack + 8, 4);
    put32(pack + 100, 7);
    seal(pack);
    refused(pack, size, WNPU_E_MODEL, "in 7 bits");
    put32(pack + 100, 8);
    seal(pack);
    put32(pack + 12, 0x04030201);
    refused(pack, size, WNPU_E_UNSUPPORTED, "byte order");
    put32(pack + 12, 0x01020304);
    wnpu_model_config_init(&config, sizeof config);
    config.keep_float = 1;
    T_CHECK(wnpu_model_open_static(&m, pack, size, &config, &error) == WNPU_E_UNSUPPORTED &&
            strstr(error.message, "keep_float") != NULL && m == NULL, "%s", error.message);
    exact = open_toy(&o, 1);
    T_CHECK(wnpu_model_save(exact, sink_write, &s, &error) == WNPU_E_UNSUPPORTED &&
            strstr(error.message, "keep_float") != NULL && s.bytes.size == 0, "%s", error.message);
    T_CHECK(wnpu_model_verify(exact, &error) == WNPU_E_UNSUPPORTED &&
            strstr(error.message, "pack") != NULL, "%s", error.message);
    wnpu_model_close(exact);
    config.keep_float = 0;
    config.copy = 2;
    T_CHECK(wnpu_model_open_static(&m, pack, size, &config, &error) == WNPU_E_ARGUMENT, "copy 2");
    config.copy = 0;
    config.full_check = 2;
    T_CHECK(wnpu_model_open_static(&m, pack, size, &config, &error) == WNPU_E_ARGUMENT, "check 2");
    refused(pack + 1, size - 1, WNPU_E_ARGUMENT, "aligned to 64");
    T_CHECK(wnpu_model_open_static(&m, NULL, 0, NULL, &error) == WNPU_E_ARGUMENT, "NULL data");
    T_CHECK(wnpu_model_open_static(NULL, pack, size, NULL, &error) == WNPU_E_ARGUMENT, "NULL");
    T_CHECK(wnpu_model_verify(NULL, &error) == WNPU_E_ARGUMENT, "NULL");
    T_CHECK(wnpu_model_save(NULL, sink_write, &s, &error) == WNPU_E_ARGUMENT, "NULL");
    free(pack);
}

/* A ggml file is not used in place, but may be opened like a pack. */
static void test_static_ggml(void)
{
    toy_options o = toy_least(TOY_F16);
    size_t size = 0;
    unsigned char *file = toy_model(&o, &size);
    void *aligned = NULL;
    wnpu_model *m = NULL;
    wnpu_error error = {0, ""};
    T_CHECK(posix_memalign(&aligned, 64, size) == 0, "no memory");
    memcpy(aligned, file, size);
    T_CHECK(wnpu_model_open_static(&m, aligned, size, NULL, &error) == WNPU_OK && m->shared == 0,
            "%s", error.message);
    wnpu_model_close(m);
    free(aligned);
    free(file);
}

/* ---- faults ---- */

static void test_memory_faults(void)
{
    toy_options o = toy_least(TOY_F16);
    size_t size = 0;
    unsigned char *pack = toy_pack(&o, &size);
    const char *path = file_of(pack, size);
    wnpu_error error = {0, ""};
    int way, fail;
    for (way = 0; way < 3; way++) {
        for (fail = 1; fail <= 3; fail++) {
            life_counter c;
            wnpu_model_config config = counted(&c);
            wnpu_model *m = NULL;
            int status;
            c.fail_at = fail;
            status = way == 0 ? wnpu_model_open_static(&m, pack, size, &config, &error) :
                     way == 1 ? wnpu_model_open_memory(&m, pack, size, &config, &error) :
                                wnpu_model_open(&m, path, &config, &error);
            T_CHECK(status == (fail < 3 ? WNPU_E_MEMORY : WNPU_OK), "way %d, %d: %s", way, fail,
                    error.message);
            if (m != NULL) {
                sink s;
                memset(&s, 0, sizeof s);
                T_CHECK(wnpu_model_save(m, sink_write, &s, &error) == WNPU_E_MEMORY &&
                        s.bytes.size == 0, "saved without memory");
                T_CHECK(wnpu_model_save(m, sink_write, &s, &error) == WNPU_OK, "%s",
                        error.message);
                free(s.bytes.data);
            }
            wnpu_model_close(m);
            T_CHECK(c.live == 0, "leak");
        }
    }
    (void)unlink(path);
    free(pack);
}

static void test_read_faults(void)
{
    toy_options o = toy_least(TOY_F16);
    size_t size = 0, at;
    unsigned char *pack = toy_pack(&o, &size);
    for (at = 1; at < size; at += at < 9000 ? 1000 : 10000) {
        source from = {pack, size, 1 << 20, at, 0, 0};
        life_counter c;
        wnpu_model_config config = counted(&c);
        wnpu_model *m = NULL;
        wnpu_error error = {0, ""};
        T_CHECK(open_source(&m, &from, &config, &error) == WNPU_E_IO && m == NULL && c.live == 0,
                "byte %u: %s", (unsigned)at, error.message);
        from.fail_at = 0;
        from.change_at = at;
        config.full_check = 1;
        if (open_source(&m, &from, &config, &error) == WNPU_OK) {
            T_CHECK(at < (size_t)get64(pack + 32), "a change at %u is not found", (unsigned)at);
        }
        wnpu_model_close(m);
        T_CHECK(c.live == 0, "leak");
    }
    free(pack);
}

static void test_write_faults(void)
{
    toy_options o = toy_least(TOY_F16);
    size_t size = 0;
    wnpu_model *m = open_toy(&o, 0);
    unsigned char *pack = pack_of(m, &size);
    wnpu_error error = {0, ""};
    size_t room;
    sink s;
    memset(&s, 0, sizeof s);
    s.most = 777;
    T_CHECK(wnpu_model_save(m, sink_write, &s, &error) == WNPU_OK && s.bytes.size == size &&
            memcmp(s.bytes.data, pack, size) == 0, "short writes: %s", error.message);
    for (room = 1; room < size; room = room * 3 + 1) {
        s.room = room;
        s.bytes.size = 0;
        T_CHECK(wnpu_model_save(m, sink_write, &s, &error) == WNPU_E_IO && s.bytes.size <= room,
                "%s", error.message);
    }
    free(s.bytes.data);
    wnpu_model_close(m);
    free(pack);
}

/* ---- shared pages ---- */

/* Kilobytes of a kind that /proc/PID/smaps counts for mappings of the path. */
static long smaps(pid_t pid, const char *path, const char *kind)
{
    char line[512];
    FILE *file;
    long sum = 0, n;
    int ours = 0;
    (void)snprintf(line, sizeof line, "/proc/%ld/smaps", (long)pid);
    file = fopen(line, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strchr(line, '-') != NULL && strchr(line, '-') < strchr(line, ' ')) {
            ours = strstr(line, path) != NULL;
        } else if (ours && strncmp(line, kind, strlen(kind)) == 0 &&
                   sscanf(line + strlen(kind), " %ld", &n) == 1) {
            sum += n;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return sum;
}

/* Opens the pack as any program would, reads all of it and transcribes a second. */
static wnpu_model *used_model(const char *path)
{
    static const float sound[16000];
    wnpu_model *m = NULL;
    wnpu_session *session = NULL;
    wnpu_config config;
    wnpu_params params;
    wnpu_audio audio;
    wnpu_error error = {0, ""};
    wnpu_config_init(&config, sizeof config);
    config.threads = 1;
    wnpu_params_init(&params, sizeof params);
    params.beam = 1;
    params.vad = 0;
    params.max_tokens = 2;
    params.temperature_step = 0;
    wnpu_audio_init(&audio, sizeof audio);
    audio.data = sound;
    audio.frames = sizeof sound / sizeof sound[0];
    T_CHECK(wnpu_model_open(&m, path, NULL, &error) == WNPU_OK &&
            wnpu_model_verify(m, &error) == WNPU_OK &&
            wnpu_session_open(&session, m, &config, NULL, 0, &error) == WNPU_OK, "%s",
            error.message);
    T_CHECK(wnpu_transcribe(session, &params, &audio) >= WNPU_OK, "%s",
            wnpu_session_error(session));
    wnpu_session_close(session);
    return m;
}

/* All of the file is in the process's memory, and no page of it is the process's own. */
static void check_pages(pid_t pid, const char *path, size_t size)
{
    long all = (long)(size / 1024), rss = smaps(pid, path, "Rss:");
    long shared = smaps(pid, path, "Shared_Clean:") + smaps(pid, path, "Shared_Dirty:");
    long own = smaps(pid, path, "Private_Clean:") + smaps(pid, path, "Private_Dirty:");
    if (rss == 0) {
        t_skip("/proc/PID/smaps does not tell");
        return;
    }
    printf("  of %ld KiB %ld are resident, %ld shared, %ld own\n", all, rss, shared, own);
    T_CHECK(rss >= all && shared >= all && own == 0, "that should be all, all and none");
}

/* Two processes use one pack, which is freed. */
static void two_processes(unsigned char *pack, size_t size)
{
    const char *path = file_of(pack, size);
    wnpu_model *m = NULL;
    int to[2], from[2], status = -1;
    char byte = 0;
    pid_t child;
    free(pack);
    T_CHECK(pipe(to) == 0 && pipe(from) == 0, "pipes");
    fflush(stdout);
    child = fork();
    if (child == 0) {
        int good;
        m = used_model(path);
        good = write(from[1], "x", 1) == 1 && read(to[0], &byte, 1) == 1 && t_bad == 0;
        _exit(good ? 0 : 1);
    }
    T_CHECK(read(from[0], &byte, 1) == 1, "the other process");
    m = used_model(path);
    check_pages(child, path, size);
    check_pages(getpid(), path, size);
    T_CHECK(write(to[1], "x", 1) == 1 && waitpid(child, &status, 0) == child && status == 0,
            "the other process failed");
    wnpu_model_close(m);
    (void)unlink(path);
}

static void test_shared_pages(void)
{
    toy_options o = toy_small();
    size_t size = 0;
    unsigned char *pack = toy_pack(&o, &size);
    two_processes(pack, size);
}

/* ---- real models ---- */

static void real_model(const char *name, size_t least)
{
    char path[512];
    wnpu_model *ggml = NULL, *m = NULL;
    wnpu_error error = {0, ""};
    size_t size = 0;
    unsigned char *pack;
    int32_t a[64], b[64];
    static const char text[] = " Hello, world: 3.14 na\xc3\xafve \xe3\x81\x93\xe3\x82\x93";
    if (wnpu_model_open(&ggml, life_cached(path, sizeof path, name), NULL, &error) != WNPU_OK) {
        t_skip(error.message);
        return;
    }
    pack = pack_of(ggml, &size);
    T_CHECK(size > least, "%u bytes", (unsigned)size);
    T_CHECK(wnpu_model_open_static(&m, pack, size, NULL, &error) == WNPU_OK, "%s", error.message);
    if (m != NULL) {
        int64_t n = wnpu_tokenize(ggml, text, sizeof text - 1, a, 64);
        same_model(ggml, m);
        T_CHECK(n > 5 && wnpu_tokenize(m, text, sizeof text - 1, b, 64) == n &&
                memcmp(a, b, (size_t)n * sizeof a[0]) == 0, "tokens differ");
        T_CHECK(wnpu_model_verify(m, &error) == WNPU_OK, "%s", error.message);
        T_CHECK(m->size < 16384, "%u bytes of memory", (unsigned)m->size);
    }
    wnpu_model_close(m);
    wnpu_model_close(ggml);
    two_processes(pack, size);
}

static void test_tiny(void)
{
    real_model("ggml-tiny.bin", 50000000);
}

static void test_base_en(void)
{
    real_model("ggml-base.en.bin", 90000000);
}

int main(void)
{
    t_run("checksums", test_checksum);
    t_run("the format", test_format);
    t_run("the layout", test_layout);
    t_run("every way of opening", test_ways);
    t_run("every type of weights", test_types);
    t_run("transcripts are the same", test_transcripts);
    t_run("damaged headers", test_header_damage);
    t_run("damaged sections are named", test_section_damage);
    t_run("damage after opening", test_later_damage);
    t_run("a pack cut at any byte", test_truncation);
    t_run("forged headers", test_forgery);
    t_run("bad values", test_values);
    t_run("refusals", test_refusals);
    t_run("a ggml file that stays", test_static_ggml);
    t_run("allocations that fail", test_memory_faults);
    t_run("reads that fail", test_read_faults);
    t_run("writes that fail", test_write_faults);
    t_run("two processes share the pages", test_shared_pages);
    t_run("tiny", test_tiny);
    t_run("base.en", test_base_en);
    return t_end();
}
