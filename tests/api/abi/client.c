/* client.c - a program compiled with some header, to be linked to the library of now. See
 * tests/api/test_abi.sh.
 *
 *     client MODEL                transcribes, and prints what it got through its own structures
 *     client --structures MODEL   every structure that carries its size, at every size
 *     client --whole MODEL        likewise, but only at the size that it has
 *     client --parameters         sets all parameters to their defaults by name, and prints those
 *                                 that its wnpu_params does not have
 *
 * -DABI_HEADER='"FILE"': the header. -DABI_NEWER: it is a newer one, whose structures end in a
 * field that the library does not know, abi_future. -DABI_FROZEN: it is an older one. Put
 * structures that were added since into #ifndef ABI_FROZEN. */
#include ABI_HEADER

#include <math.h>
#include <stddef.h>
#include "../../lib/t.h"

#define GUARD 0xa5 /* bytes that nobody may write */
#ifdef ABI_FROZEN
#define BEYOND 0u  /* the library may know what is beyond the header's structures */
#else
#define BEYOND 64u
#endif

/* ---- an accelerator that can do nothing ---- */

static int no_describe(void *self, wnpu_accel_info *info)
{
    (void)self;
    info->max_in_flight = 1;
    info->max_chain = 1;
    info->name = "idle";
    return WNPU_OK;
}

static int no_resident(void *self, uint32_t shape, uint32_t n, uint32_t k, const int8_t *data,
                       size_t ldb, uint64_t *b, wnpu_error *error)
{
    (void)self, (void)shape, (void)n, (void)k, (void)data, (void)ldb, (void)b, (void)error;
    return WNPU_E_MEMORY;
}

static int no_release(void *self, uint64_t b)
{
    (void)self, (void)b;
    return WNPU_OK;
}

static int no_submit(void *self, const wnpu_accel_product *products, size_t count, uint64_t *job,
                     wnpu_error *error)
{
    (void)self, (void)products, (void)count, (void)job, (void)error;
    return WNPU_E_ACCEL;
}

static int no_wait(void *self, uint64_t job, int64_t deadline_ns, wnpu_error *error)
{
    (void)self, (void)job, (void)deadline_ns, (void)error;
    return WNPU_E_ACCEL;
}

static int no_health(void *self)
{
    (void)self;
    return WNPU_ACCEL_OK;
}

static int no_probe(void *self, int64_t deadline_ns, wnpu_error *error)
{
    (void)self, (void)deadline_ns, (void)error;
    return WNPU_E_ACCEL;
}

static void no_distrust(void *self, const char *reason)
{
    (void)self, (void)reason;
}

static int no_account(void *self, wnpu_accel_account *account)
{
    (void)self;
    account->health = WNPU_ACCEL_OK;
    return WNPU_OK;
}

static void no_close(void *self)
{
    (void)self;
}

static wnpu_accel idle(void)
{
    wnpu_accel a;
    memset(&a, 0, sizeof a);
    a.struct_size = (uint32_t)sizeof a;
    a.describe = no_describe;
    a.resident = no_resident;
    a.release = no_release;
    a.submit = no_submit;
    a.wait = no_wait;
    a.health = no_health;
    a.probe = no_probe;
    a.distrust = no_distrust;
    a.account = no_account;
    a.close = no_close;
    return a;
}

/* ---- a run ---- */

static float noise[32000];
static wnpu_accel accel;
static wnpu_model_config model_config;
static wnpu_config config;
static wnpu_params params;
static wnpu_audio audio;
static wnpu_error error;
static wnpu_model *model;
static wnpu_session *session;

static void fill(void)
{
    uint32_t s = 1;
    size_t i;
    for (i = 0; i < sizeof noise / sizeof noise[0]; i++) {
        s = s * 1664525u + 1013904223u;
        noise[i] = (float)(s >> 8) / 16777216.0f - 0.5f;
    }
    accel = idle();
    wnpu_model_config_init(&model_config, sizeof model_config);
    wnpu_config_init(&config, sizeof config);
    config.threads = 1;
    config.accel = &accel;
    wnpu_params_init(&params, sizeof params);
    params.vad = 0; /* noise is no speech */
    params.max_tokens = 6;
    params.words = 1;
    params.no_speech_threshold = 2;
    params.logprob_threshold = -INFINITY;
    wnpu_audio_init(&audio, sizeof audio);
    audio.data = noise;
    audio.frames = sizeof noise / sizeof noise[0];
}

static int64_t print(void *user, const void *data, size_t size)
{
    return (int64_t)fwrite(data, 1, size, user);
}

static int run(const char *path)
{
    wnpu_segment segment;
    wnpu_model_info info;
    wnpu_stats stats;
    wnpu_word word;
    size_t i, j, k;
    memset(&info, 0, sizeof info);
    memset(&stats, 0, sizeof stats);
    memset(&word, 0, sizeof word);
    info.struct_size = (uint32_t)sizeof info;
    stats.struct_size = (uint32_t)sizeof stats;
    word.struct_size = (uint32_t)sizeof word;
    if (wnpu_model_open(&model, path, &model_config, &error) != WNPU_OK ||
        wnpu_session_open(&session, model, &config, NULL, 0, &error) != WNPU_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    if (wnpu_transcribe(session, &params, &audio) != WNPU_OK ||
        wnpu_model_get_info(model, &info) != WNPU_OK ||
        wnpu_get_stats(session, &stats) != WNPU_OK) {
        fprintf(stderr, "%s\n", wnpu_session_error(session));
        return 1;
    }
    printf("%d %d %s %s\n", info.n_vocab, info.n_text_layer, info.name, info.weight_type);
    printf("%u windows, %u tokens, %d ms, language %d\n", (unsigned)stats.windows,
           (unsigned)stats.tokens, (int)stats.audio_ms, stats.language);
    for (i = 0; wnpu_get_segment(session, i, &segment) == WNPU_OK; i++) {
        printf("%d %d %d %d %.6f", (int)segment.t0_ms, (int)segment.t1_ms, segment.language,
               segment.window, (double)segment.mean_logprob);
        for (k = 0; k < segment.n_tokens; k++) {
            printf(" %d", segment.tokens[k].id);
        }
        for (j = 0; wnpu_get_word(session, i, j, &word) == WNPU_OK; j++) {
            printf(" [%d %d %d]", (int)word.t0_ms, (int)word.t1_ms, (int)word.n_tokens);
        }
        printf("\n");
    }
    return wnpu_write(session, WNPU_FORMAT_JSON, print, stdout) != WNPU_OK;
}

/* ---- every size of every structure ---- */

static const char *model_path;
static int whole_only;

static int get_info(void *to) { return wnpu_model_get_info(model, to); }
static int get_memory(void *to) { return wnpu_get_memory(session, to); }
static int get_stats(void *to) { return wnpu_get_stats(session, to); }
static int get_word(void *to) { return wnpu_get_word(session, 0, 0, to); }
static int get_accel_stats(void *to) { return wnpu_get_accel_stats(session, to); }
static int get_accel_stage(void *to) { return wnpu_get_accel_stage(session, 1, to); }

static int get_model_memory(void *to)
{
    return wnpu_model_measure(model_path, NULL, to, &error);
}

static int get_align(void *to)
{
    static const char *const lines[] = {"a text"};
    wnpu_params timed = params;
    timed.words = 1;
    (void)wnpu_transcribe(session, &timed, &audio);
    return wnpu_align(session, lines, 1, 0, to);
}

static int get_choice(void *to)
{
    static const char *const phrases[] = {"a", "b"};
    wnpu_params p = params;
    p.words = 0;
    return wnpu_choose(session, &p, &audio, phrases, 2, to);
}

static int use_model_config(void *from)
{
    wnpu_model *other = NULL;
    int status = wnpu_model_open(&other, model_path, from, &error);
    wnpu_model_close(other);
    return status;
}

static int use_config(void *from)
{
    return wnpu_session_size(model, from, &error) > 0 ? WNPU_OK : error.code;
}

static int use_params(void *from)
{
    int status = wnpu_transcribe(session, from, &audio);
    (void)snprintf(error.message, sizeof error.message, "%s", wnpu_session_error(session));
    return status;
}

static int use_audio(void *from)
{
    int status = wnpu_transcribe(session, &params, from);
    (void)snprintf(error.message, sizeof error.message, "%s", wnpu_session_error(session));
    return status;
}

static int get_format(void *to)
{
    return wnpu_get_format(WNPU_FORMAT_VTT, to);
}

static int get_param(void *to)
{
    return wnpu_param_info(0, to);
}

/* A WAV file of one sample, a byte at a time. */
static int64_t read_wav(void *user, void *buffer, size_t size)
{
    static const unsigned char file[] = "RIFF\046\0\0\0WAVEfmt \020\0\0\0\1\0\1\0\x80\x3e\0\0"
                                        "\0\x7d\0\0\2\0\020\0data\2\0\0\0\5"; /* and a NUL */
    size_t *at = user;
    if (*at >= sizeof file || size == 0) {
        return 0;
    }
    *(unsigned char *)buffer = file[(*at)++];
    return 1;
}

static int use_wav_reader(void *from)
{
    wnpu_wav_reader *reader = from;
    wnpu_audio opened;
    size_t at = 0;
    int16_t sample = 0;
    int status;
    wnpu_audio_init(&opened, sizeof opened);
    reader->read = read_wav;
    reader->user = &at;
    status = wnpu_wav_reader_open(reader, &opened, &error);
    if (status == WNPU_OK && (opened.read(opened.user, &sample, 1) != 1 || sample != 5 ||
                              opened.read(opened.user, &sample, 1) != 0)) {
        return WNPU_E_INTERNAL;
    }
    return status;
}

static int64_t nowhere(void *user, const void *data, size_t size)
{
    (void)user;
    (void)data;
    return (int64_t)size;
}

/* A session cannot be told why: it is const for writers. */
static int no_reason(int status)
{
    (void)snprintf(error.message, sizeof error.message, "writers return a status and no reason");
    return status;
}

static int use_write_options(void *from)
{
    return no_reason(wnpu_write_with(session, from, NULL, nowhere, NULL));
}

static int use_write_cursor(void *from)
{
    wnpu_write_options o;
    wnpu_write_options_init(&o, sizeof o);
    return no_reason(wnpu_write_with(session, &o, from, nowhere, NULL));
}

/* Begins a live run with these options, in a session of its own, and describes it. */
static int begin_stream(const wnpu_stream_options *options, void *live)
{
    wnpu_config c = config;
    wnpu_session *other = NULL;
    int status;
    c.stream_bytes = 1 << 16;
    status = wnpu_session_open(&other, model, &c, NULL, 0, &error);
    if (status == WNPU_OK) {
        status = wnpu_stream_begin(other, NULL, options);
        (void)snprintf(error.message, sizeof error.message, "%s", wnpu_session_error(other));
    }
    status = status == WNPU_OK && live != NULL ? wnpu_get_live(other, live) : status;
    wnpu_session_close(other);
    return status;
}

static int use_stream_options(void *from)
{
    return begin_stream(from, NULL);
}

static int get_live(void *to)
{
    return begin_stream(NULL, to);
}

static int use_accel_info(void *from)
{
    (void)wnpu_session_accel_bytes(model, &config, from, &error);
    return error.code;
}

static int use_accel(void *from)
{
    wnpu_config c = config;
    wnpu_session *other = NULL;
    int status;
    c.accel = from;
    status = wnpu_session_open(&other, model, &c, NULL, 0, &error);
    wnpu_session_close(other);
    return status;
}

#ifdef WITH_NPU
static int use_amdxdna_config(void *from)
{
    uint64_t fixed = 0;
    int status = wnpu_amdxdna_memory(from, NULL, 0, &fixed, &error);
    /* With a structure that ends before the pack, or without a pack: the built-in kernels. */
    return status > 0 ? WNPU_OK : status;
}

static int get_diagnosis(void *to)
{
    wnpu_amdxdna_config c;
    wnpu_amdxdna_config_init(&c, sizeof c);
    c.root = "/there/is/no/such/machine";
    return wnpu_amdxdna_diagnose(&c, to);
}
#endif

typedef struct structure {
    const char *name;
    size_t size;
    int (*get)(void *);   /* the library fills it */
    int (*use)(void *);   /* or reads it */
    const void *good;     /* then this is one that is right */
    size_t least;         /* and these are the bytes that it cannot do without */
} structure;

/* Whatever the library is told of the size, it stays inside, and gives the same as far as it goes.
 */
static void filled(const structure *s)
{
    static const uint32_t wrong[] = {0, 3, 65537, UINT32_MAX};
    unsigned char whole[4096], part[4096];
    uint32_t size, i;
    memset(whole, 0, sizeof whole);
    size = (uint32_t)s->size;
    memcpy(whole, &size, 4);
    T_CHECK(s->get(whole) == WNPU_OK, "%s: whole", s->name);
    size = whole_only ? size : 4;
    for (; size <= s->size + (whole_only ? 0 : BEYOND); size += 4) {
        memset(part, GUARD, sizeof part);
        memcpy(part, &size, 4);
        T_CHECK(s->get(part) == WNPU_OK, "%s: size %u", s->name, (unsigned)size);
        T_CHECK(memcmp(part, &size, 4) == 0, "%s: size %u was changed", s->name, (unsigned)size);
        if (strstr(s->name, "stats") == NULL && strstr(s->name, "stage") == NULL) {
            T_CHECK(memcmp(part + 4, whole + 4, size - 4) == 0, "%s: size %u: other contents",
                    s->name, (unsigned)size);
        }
        for (i = size; i < sizeof part && part[i] == GUARD; i++) {
        }
        T_CHECK(i == sizeof part, "%s: size %u: byte %u was written", s->name, (unsigned)size,
                (unsigned)i);
    }
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        memset(part, GUARD, sizeof part);
        memcpy(part, &wrong[i], 4);
        T_CHECK(s->get(part) == WNPU_E_ARGUMENT && part[4] == GUARD, "%s: size %lu", s->name,
                (unsigned long)wrong[i]);
    }
}

/* Fields beyond the end count as their defaults; bytes that the library does not know have to be 0,
 * and it says so when they are not. */
static void used(const structure *s)
{
    static const uint32_t wrong[] = {0, 3, 65537, UINT32_MAX};
    unsigned char part[4096];
    uint32_t size, i;
    /* Whole words: no header ever ended inside a pointer. */
    size = (uint32_t)(whole_only ? s->size : s->least);
    for (; size <= s->size + (whole_only ? 0 : BEYOND); size += sizeof(void *)) {
        memset(part, GUARD, sizeof part); /* to be left alone */
        memset(part, 0, size);
        memcpy(part, s->good, size < s->size ? size : s->size);
        memcpy(part, &size, 4);
        T_CHECK(s->use(part) == WNPU_OK, "%s: size %u: %s", s->name, (unsigned)size,
                error.message);
    }
    for (i = BEYOND == 0; i < sizeof wrong / sizeof wrong[0] + 1; i++) {
        int status;
        memset(part, 0, sizeof part);
        memcpy(part, s->good, s->size);
        size = i == 0 ? (uint32_t)s->size + 8 : wrong[i - 1];
        part[s->size] = i == 0;
        memcpy(part, &size, 4);
        error.message[0] = '\0';
        status = s->use(part);
        T_CHECK(status == WNPU_E_VERSION && strlen(error.message) > 20, "%s: size %lu: %d '%s'",
                s->name, (unsigned long)size, status, error.message);
    }
}

/* An accelerator has no defaults: an older one that lacks functions is refused. */
static void accelerator(void)
{
    wnpu_accel a = idle();
    uint32_t size;
    for (size = 0; size < (uint32_t)sizeof a; size += 4) {
        a.struct_size = size;
        error.message[0] = '\0';
        T_CHECK(use_accel(&a) == WNPU_E_VERSION && strlen(error.message) > 20, "size %u: %s",
                (unsigned)size, error.message);
    }
    a.struct_size = (uint32_t)sizeof a + 64;
    T_CHECK(use_accel(&a) == WNPU_OK, "a newer author: %s", error.message);
}

/* They may become fields: what an older library does not know it must not ignore. */
static void reserved_fields(void)
{
    wnpu_model_config m = model_config;
    wnpu_config c = config;
    wnpu_audio a = audio;
    m.reserved = c.reserved = a.reserved = 1;
    T_CHECK(use_model_config(&m) == WNPU_E_ARGUMENT && use_config(&c) == WNPU_E_ARGUMENT &&
            use_audio(&a) == WNPU_E_ARGUMENT, "a reserved field is ignored");
}

static int on_token(void *user, const wnpu_token_event *event)
{
    *(uint32_t *)user = event->struct_size;
    return 0;
}

/* A view that the library makes: it says how much of it there is. */
static void token_event(void)
{
    wnpu_params p = params;
    uint32_t size = 0;
    p.on_token = on_token;
    p.user = &size;
    T_CHECK(use_params(&p) == WNPU_OK && size >= sizeof(wnpu_token_event) &&
            (BEYOND == 0 || size == sizeof(wnpu_token_event)), "wnpu_token_event: %u",
            (unsigned)size);
}

#define FILLED(type, get) {#type, sizeof(type), get, NULL, NULL, 0}
#define USED(type, use, good, least) {#type, sizeof(type), NULL, use, good, least}

/* wnpu_accel_account is filled by accelerators: tests/unit/accel.c, tests/npu/test_npu.c. */
static void structures(void)
{
    static wnpu_accel_info info;
    static wnpu_wav_reader wav;
    static wnpu_write_options write_options;
    static wnpu_write_cursor cursor;
    static wnpu_stream_options stream_options;
#ifdef WITH_NPU
    static wnpu_amdxdna_config npu;
#endif
    const structure all[] = {
        USED(wnpu_model_config, use_model_config, &model_config, 8),
        USED(wnpu_config, use_config, &config, 8),
        USED(wnpu_params, use_params, &params, 8),
        USED(wnpu_audio, use_audio, &audio, offsetof(wnpu_audio, read)),
        USED(wnpu_wav_reader, use_wav_reader, &wav, sizeof(wnpu_wav_reader)),
        USED(wnpu_accel_info, use_accel_info, &info, 8),
        USED(wnpu_write_options, use_write_options, &write_options, 8),
        USED(wnpu_write_cursor, use_write_cursor, &cursor, sizeof cursor),
        USED(wnpu_stream_options, use_stream_options, &stream_options, 8),
        FILLED(wnpu_model_info, get_info),
        FILLED(wnpu_model_memory, get_model_memory),
        FILLED(wnpu_memory, get_memory),
        FILLED(wnpu_stats, get_stats),
        FILLED(wnpu_word, get_word),
        FILLED(wnpu_accel_stats, get_accel_stats),
        FILLED(wnpu_accel_stage, get_accel_stage),
        FILLED(wnpu_choice, get_choice),
        FILLED(wnpu_align_stats, get_align),
        FILLED(wnpu_param, get_param),
        FILLED(wnpu_format_info, get_format),
        FILLED(wnpu_live, get_live),
#ifdef WITH_NPU
        USED(wnpu_amdxdna_config, use_amdxdna_config, &npu, 8),
        FILLED(wnpu_amdxdna_diagnosis, get_diagnosis),
#endif
    };
    size_t i;
    wnpu_wav_reader_init(&wav, sizeof wav);
    wnpu_write_options_init(&write_options, sizeof write_options);
    wnpu_write_options_subtitles(&write_options);
    wnpu_stream_options_init(&stream_options, sizeof stream_options);
#ifdef WITH_NPU
    wnpu_amdxdna_config_init(&npu, sizeof npu);
#endif
    for (i = 0; i < sizeof all / sizeof all[0]; i++) {
        printf("%s\n", all[i].name);
        if (!whole_only || wnpu_segment_count(session) == 0) {
            (void)wnpu_transcribe(session, &params, &audio);
        }
        if (all[i].get != NULL) {
            filled(&all[i]);
        } else {
            used(&all[i]);
        }
    }
    token_event();
    printf("wnpu_token_event\nwnpu_accel\nwnpu_accel_account\n");
}

/* ---- parameters by name ---- */

static int parameters(void)
{
    wnpu_params p, standard;
    wnpu_param info;
    int bad = 0;
    size_t i;
    memset(&p, 0, sizeof p);
    wnpu_params_init(&p, sizeof p);
    standard = p;
    memset(&info, 0, sizeof info);
    info.struct_size = (uint32_t)sizeof info;
    for (i = 0; wnpu_param_info(i, &info) == WNPU_OK; i++) {
        char value[64];
        int status;
        if (info.type == WNPU_PARAM_CHOICE) {
            (void)snprintf(value, sizeof value, "%.*s", (int)strcspn(info.choices, "|"),
                           info.choices);
        } else if (info.type == WNPU_PARAM_LANGUAGE) {
            (void)snprintf(value, sizeof value, "auto");
        } else if (info.type == WNPU_PARAM_TEXT || info.type == WNPU_PARAM_LIST) {
            value[0] = '\0';
        } else {
            (void)snprintf(value, sizeof value, "%.9f", info.fallback);
            value[info.type == WNPU_PARAM_FLOAT ? sizeof value - 1 : strcspn(value, ".")] = '\0';
        }
        if (info.has_off && info.fallback == info.off) {
            (void)snprintf(value, sizeof value, "off");
        }
        status = wnpu_params_set(&p, info.name, value, &error);
        if (status == WNPU_E_VERSION) {
            printf("%s\n", info.name);
        } else if (status != WNPU_OK) {
            fprintf(stderr, "%s=%s: %s\n", info.name, value, error.message);
            bad = 1;
        } else if (value[0] == '\0') { /* the pointer is in the structure */
            bad += memcmp(&p, &standard, sizeof p) == 0;
            p = standard;
        }
        if (memcmp(&p, &standard, sizeof p) != 0) {
            fprintf(stderr, "%s=%s is not the default\n", info.name, value);
            return 1;
        }
    }
    return bad;
}

/* ---- what only a newer header knows ---- */

#ifdef ABI_NEWER
static int refused(int status, const char *message)
{
    if (status == WNPU_E_VERSION && strlen(message) > 20) {
        return 0;
    }
    fprintf(stderr, "status %d, '%s'\n", status, message);
    return 1;
}

/* What the program asks for in vain is refused with a reason; what it is given is 0. */
static int newer(void)
{
    wnpu_stats stats;
    wnpu_model *other = NULL;
    int bad;
    memset(&stats, 0xff, sizeof stats);
    stats.struct_size = (uint32_t)sizeof stats;
    bad = wnpu_get_stats(session, &stats) != WNPU_OK || stats.abi_future != 0;
    model_config.abi_future = 1;
    config.abi_future = 1;
    params.abi_future = 1;
    bad += refused(wnpu_model_open(&other, model_path, &model_config, &error), error.message);
    bad += refused(use_config(&config), error.message);
    bad += refused(wnpu_transcribe(session, &params, &audio), wnpu_session_error(session));
    params.abi_future = 0;
    audio.abi_future = 1;
    bad += refused(wnpu_transcribe(session, &params, &audio), wnpu_session_error(session));
    return bad;
}
#endif

int main(int argc, char **argv)
{
    int status;
    if (argc < 2) {
        return 1;
    }
    if (strcmp(argv[1], "--parameters") == 0) {
        return parameters();
    }
    fill();
    model_path = argv[argc - 1];
    whole_only = strcmp(argv[1], "--whole") == 0;
    if (argc == 3) {
        status = wnpu_model_open(&model, model_path, &model_config, &error) != WNPU_OK ||
                 wnpu_session_open(&session, model, &config, NULL, 0, &error) != WNPU_OK;
        T_CHECK(status == 0, "%s", error.message);
        if (status == 0) {
            t_run("structures of every size", structures);
            t_run("accelerators of every size", accelerator);
            t_run("reserved fields", reserved_fields);
        }
        wnpu_session_close(session);
        wnpu_model_close(model);
        return t_end();
    }
    status = run(argv[1]);
#ifdef ABI_NEWER
    status = status != 0 ? status : newer();
#endif
    wnpu_session_close(session);
    wnpu_model_close(model);
    return status;
}
