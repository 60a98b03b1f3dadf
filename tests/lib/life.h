/* life.h - what tests of sessions share: models, recordings, sessions, answers. Uses the public
 * header only. */
#ifndef LIFE_H
#define LIFE_H
#include "t.h"
#include "toy_model.h"
#include "whisper_npu.h"

#define LIFE_FN __attribute__((unused)) static

/* ---- files ---- */

/* All of a file, to be freed, or NULL. */
LIFE_FN unsigned char *life_load(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    unsigned char *data = NULL;
    long length;
    if (file == NULL) {
        return NULL;
    }
    if (fseek(file, 0, SEEK_END) == 0 && (length = ftell(file)) >= 0 &&
        fseek(file, 0, SEEK_SET) == 0 && (data = malloc((size_t)length + 1)) != NULL) {
        *size = fread(data, 1, (size_t)length, file);
    }
    (void)fclose(file);
    return data;
}

/* A file in the cache of examples/fetch.sh; "" if it is not there. */
LIFE_FN const char *life_cached(char *path, size_t size, const char *name)
{
    const char *cache = getenv("WHISPER_NPU_CACHE"), *home = getenv("HOME");
    FILE *file;
    (void)snprintf(path, size, "%s%s/%s", cache != NULL ? cache : home != NULL ? home : "",
                   cache != NULL ? "" : "/.cache/whisper_npu", name);
    file = fopen(path, "rb");
    if (file == NULL) {
        path[0] = '\0';
    } else {
        (void)fclose(file);
    }
    return path;
}

/* ---- models and recordings ---- */

LIFE_FN wnpu_model *life_toy(uint32_t seed, const wnpu_model_config *config)
{
    toy_options o = toy_small();
    wnpu_model *model = NULL;
    wnpu_error error;
    size_t size = 0;
    unsigned char *file;
    o.seed = seed;
    file = toy_model(&o, &size);
    T_CHECK(wnpu_model_open_memory(&model, file, size, config, &error) == WNPU_OK, "toy model: %s",
            error.message);
    free(file);
    return model;
}

/* A toy that can be asked for WNPU_COMPUTE_FLOAT. */
LIFE_FN wnpu_model *life_float_toy(uint32_t seed)
{
    wnpu_model_config config;
    wnpu_model_config_init(&config, sizeof config);
    config.keep_float = 1;
    return life_toy(seed, &config);
}

/* Bursts of a wandering tone in noise of that seed, 16 kHz. */
LIFE_FN float *life_burst(size_t n, uint32_t s)
{
    float *x = malloc((n > 0 ? n : 1) * sizeof *x);
    size_t i;
    for (i = 0; x != NULL && i < n; i++) {
        double t = (double)i / 16000;
        s = s * 1664525u + 1013904223u;
        x[i] = (float)(0.3 * sin(t * 900 * (1 + 0.2 * sin(t * 3))) * (sin(t * 5) > 0) +
                       0.01 * ((double)(s >> 8) / 8388608.0 - 1));
    }
    return x;
}

LIFE_FN float *life_sound(size_t n)
{
    return life_burst(n, 99);
}

LIFE_FN wnpu_audio life_audio(const float *x, size_t n)
{
    wnpu_audio a;
    wnpu_audio_init(&a, sizeof a);
    a.data = x;
    a.frames = n;
    return a;
}

/* ---- sessions ---- */

/* A toy talks nonsense for ever: few tokens a window keep tests short, and no gate would ever let
 * it pass. */
LIFE_FN wnpu_params life_params(void)
{
    wnpu_params p;
    wnpu_params_init(&p, sizeof p);
    p.beam = 1;
    p.max_tokens = 12;
    p.no_speech_threshold = 2;
    p.temperature_step = 0;
    p.vad = 0; /* the sounds are no speech; LIFE_SPEECH asks the detector */
    return p;
}

/* Sessions of one configuration take each other's snapshots, for any number of threads. */
LIFE_FN wnpu_config life_config(unsigned threads)
{
    wnpu_config c;
    wnpu_config_init(&c, sizeof c);
    c.threads = threads;
    c.result_bytes = 1 << 20;
    c.max_phrase_tokens = 1 << 16;
    return c;
}

LIFE_FN wnpu_session *life_open(const wnpu_model *m, const wnpu_config *c)
{
    wnpu_session *s = NULL;
    wnpu_error error;
    T_CHECK(wnpu_session_open(&s, m, c, NULL, 0, &error) == WNPU_OK, "%s", error.message);
    return s;
}

LIFE_FN wnpu_session *life_session(const wnpu_model *m, unsigned threads)
{
    wnpu_config c = life_config(threads);
    return life_open(m, &c);
}

/* A host's parallel-for that cancels instead of its step-th work. */
typedef struct life_watch {
    wnpu_session *session;
    int step;
} life_watch;

LIFE_FN void life_stop_there(void *user, size_t count,
                             void (*task)(void *context, size_t index), void *context)
{
    life_watch *w = user;
    size_t i;
    if (--w->step == 0) {
        wnpu_cancel(w->session);
    }
    for (i = 0; i < count; i++) {
        task(context, i);
    }
}

/* ---- modes: every way to use a session ---- */

#define LIFE_PHRASES 600
#define LIFE_CHOICES 20

/* One sound in many forms, and phrases. */
typedef struct life_sounds {
    wnpu_audio plain;           /* 16 kHz float */
    wnpu_audio wide;            /* 192 kHz, 8 channels that cancel */
    wnpu_audio stereo;          /* 44.1 kHz 16 bits */
    float *x, *w;
    int16_t *s;
    char text[LIFE_PHRASES][16];
    const char *phrases[LIFE_PHRASES];
} life_sounds;

enum {
    LIFE_GREEDY, LIFE_BEAM, LIFE_SAMPLES, LIFE_WORDS, LIFE_WIDE, LIFE_STEREO, LIFE_HOTWORDS,
    LIFE_EACH, LIFE_AHEAD, LIFE_READER, LIFE_CHOOSE, LIFE_DETECT, LIFE_SPEECH, LIFE_MODES
};
static const char *const life_modes[LIFE_MODES] __attribute__((unused)) = {
    "greedy", "beam", "samples", "words", "wide", "stereo", "hotwords", "each", "ahead", "reader",
    "choose", "detect", "speech"
};

/* 16-bit samples behind a header of 44 bytes, if the demo recording is there. */
LIFE_FN void life_demo(float *x, size_t n)
{
    char path[512];
    size_t size = 0, i;
    unsigned char *demo = life_load(life_cached(path, sizeof path, "a13.wav"), &size);
    for (i = 0; i < n && 44 + 2 * i + 1 < size; i++) {
        int16_t sample;
        memcpy(&sample, demo + 44 + 2 * i, sizeof sample);
        x[i] = (float)sample / 32768.0f;
    }
    free(demo);
}

/* All forms of x[16000 * seconds], which is freed with them. */
LIFE_FN void life_derive_sounds(life_sounds *l, float *x, size_t seconds)
{
    size_t i, c;
    memset(l, 0, sizeof *l);
    l->x = x;
    l->plain = life_audio(l->x, 16000 * seconds);
    l->stereo = l->plain;
    l->stereo.rate = 44100;
    l->stereo.channels = 2;
    l->stereo.format = WNPU_SAMPLE_S16;
    l->stereo.frames = 44100 * (seconds < 20 ? seconds : 20) - 160;
    l->stereo.data = l->s = malloc((size_t)l->stereo.frames * 2 * sizeof *l->s);
    for (i = 0; i < l->stereo.frames; i++) {
        l->s[2 * i] = l->s[2 * i + 1] = (int16_t)(20000 * l->x[i * 160 / 441]);
    }
    l->wide = l->plain;
    l->wide.rate = 192000;
    l->wide.channels = 8;
    l->wide.frames = 192000 * 2;
    l->wide.data = l->w = malloc((size_t)l->wide.frames * 8 * sizeof *l->w);
    for (i = 0; i < l->wide.frames; i++) {
        for (c = 0; c < 8; c++) {
            l->w[8 * i + c] = l->x[i / 12] * (c % 2 ? -1.0f : 1.0f);
        }
    }
    for (i = 0; i < LIFE_PHRASES; i++) {
        (void)snprintf(l->text[i], sizeof l->text[i], "%c%c number %d", (int)('a' + i % 26),
                       (int)('a' + i / 26), (int)(i % 100));
        l->phrases[i] = l->text[i];
    }
}

LIFE_FN void life_make_sounds(life_sounds *l, size_t seconds, int demo)
{
    float *x = life_sound(16000 * seconds);
    if (demo) {
        life_demo(x, 16000 * seconds);
    }
    life_derive_sounds(l, x, seconds);
}

LIFE_FN void life_free_sounds(life_sounds *l)
{
    free(l->x);
    free(l->w);
    free(l->s);
}

LIFE_FN int life_is_toy(const wnpu_model *m)
{
    wnpu_model_info info;
    info.struct_size = sizeof info;
    return wnpu_model_get_info(m, &info) == WNPU_OK && info.n_text_layer <= 2;
}

LIFE_FN void life_mode_params(const life_sounds *l, int mode, int toy, wnpu_params *p)
{
    wnpu_params_init(p, sizeof *p);
    if (toy) {
        *p = life_params();
    }
    p->beam = mode == LIFE_BEAM || mode == LIFE_HOTWORDS ? 5 : 1;
    p->temperature = mode == LIFE_SAMPLES ? 0.8f : 0.0f;
    p->words = mode == LIFE_WORDS;
    p->condition_on_previous = mode == LIFE_WORDS || mode == LIFE_READER;
    p->initial_prompt = mode == LIFE_READER ? "What was said before" : NULL;
    p->prefix = mode == LIFE_READER ? "And" : NULL;
    p->hotwords = l != NULL ? l->phrases : NULL;
    p->n_hotwords = mode == LIFE_HOTWORDS ? LIFE_PHRASES : 0;
    p->language_mode = mode == LIFE_EACH ? WNPU_LANGUAGE_EACH : WNPU_LANGUAGE_ONCE;
    p->language_windows = mode == LIFE_AHEAD ? 2 : 1;
}

/* A reader that gives the plain sound in odd pieces. */
typedef struct life_reader {
    const wnpu_audio *from;
    uint64_t at;
} life_reader;

LIFE_FN int64_t life_read(void *user, void *buffer, size_t frames)
{
    life_reader *r = user;
    uint64_t left = r->from->frames - r->at, n = 1 + r->at * 7919 % 5000;
    n = n < left ? n : left;
    n = n < frames ? n : frames;
    memcpy(buffer, (const float *)r->from->data + r->at, (size_t)n * sizeof(float));
    r->at += n;
    return (int64_t)n;
}

/* A whole run; WNPU_OK or an error. */
LIFE_FN int life_run(const life_sounds *l, int mode, int toy, wnpu_session *s)
{
    wnpu_audio a = mode == LIFE_WIDE ? l->wide : mode == LIFE_STEREO ? l->stereo : l->plain;
    life_reader reader;
    wnpu_choice choice;
    wnpu_params p;
    int status;
    life_mode_params(l, mode, toy, &p);
    if (mode == LIFE_CHOOSE) {
        choice.struct_size = sizeof choice;
        return wnpu_choose(s, &p, &a, l->phrases, LIFE_CHOICES, &choice);
    }
    if (mode == LIFE_DETECT) {
        status = wnpu_detect_language(s, &a, NULL, 0);
        return status > 0 || status == WNPU_E_UNSUPPORTED ? WNPU_OK : status;
    }
    if (mode == LIFE_SPEECH) {
        return wnpu_detect_speech(s, &p, &a);
    }
    if (mode == LIFE_READER) {
        reader.from = &l->plain;
        reader.at = 0;
        a.data = NULL;
        a.read = life_read;
        a.user = &reader;
    }
    return wnpu_transcribe(s, &p, &a);
}

/* ---- live runs ---- */

/* Options for the recording; step_ms 0: without tentative text. */
LIFE_FN wnpu_stream_options life_stream(const wnpu_audio *a, int32_t step_ms)
{
    wnpu_stream_options o;
    wnpu_stream_options_init(&o, sizeof o);
    o.format = a->format;
    o.rate = a->rate;
    o.channels = a->channels;
    o.channel = a->channel;
    o.step_ms = step_ms;
    return o;
}

/* Pushes the next n frames of the recording, or what is left of it. There has to be room. */
LIFE_FN void life_push(wnpu_session *s, const wnpu_audio *a, uint64_t *at, size_t n)
{
    const unsigned char *data = a->data;
    n = n < a->frames - *at ? n : (size_t)(a->frames - *at);
    T_CHECK(wnpu_stream_push(s, data + *at * wnpu_frame_bytes(a), n) == n, "no room for %lu frames",
            (unsigned long)n);
    *at += n;
}

/* ---- allocations that are counted and fail on demand ---- */

typedef struct life_counter {
    wnpu_allocator allocator;
    long live, calls, fail_at; /* fail_at: number of the call that fails, from 1 */
    size_t bytes, most;
    size_t left, fresh; /* bytes that were given back neither wiped nor fresh, and fresh ones */
} life_counter;

LIFE_FN void *life_alloc(void *user, size_t size, size_t alignment)
{
    life_counter *c = user;
    void *memory = NULL;
    if (++c->calls == c->fail_at || posix_memalign(&memory, alignment, size) != 0) {
        return NULL;
    }
    memset(memory, 0xa5, size); /* the library may not rely on zeros */
    c->live++;
    c->bytes += size;
    c->most = c->bytes > c->most ? c->bytes : c->most;
    return memory;
}

LIFE_FN void life_release(void *user, void *memory, size_t size)
{
    life_counter *c = user;
    size_t i;
    for (i = 0; i < size; i++) {
        unsigned char byte = ((unsigned char *)memory)[i];
        c->fresh += byte == 0xa5;
        c->left += byte != 0xa5 && byte != 0;
    }
    c->live--;
    c->bytes -= size;
    free(memory);
}

LIFE_FN void life_count(life_counter *c)
{
    memset(c, 0, sizeof *c);
    c->allocator.alloc = life_alloc;
    c->allocator.release = life_release;
    c->allocator.user = c;
}

/* ---- answers ---- */

/* Room that is there before a run, for tests in which nothing may be allocated. */
typedef struct life_text {
    char bytes[1 << 18];
    size_t n;
    int full;
} life_text;

LIFE_FN int64_t life_collect(void *user, const void *data, size_t size)
{
    life_text *t = user;
    if (size >= sizeof t->bytes - t->n) {
        t->full = 1;
        return -1;
    }
    memcpy(t->bytes + t->n, data, size);
    t->n += size;
    t->bytes[t->n] = '\0';
    return (int64_t)size;
}

LIFE_FN void life_json(const wnpu_session *s, life_text *t)
{
    t->n = 0;
    t->full = 0;
    t->bytes[0] = '\0';
    T_CHECK(wnpu_write(s, WNPU_FORMAT_JSON, life_collect, t) == WNPU_OK && !t->full, "writes");
}

LIFE_FN int life_same(const life_text *a, const life_text *b)
{
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

/* One number of everything that a run counts, but for times. */
LIFE_FN uint64_t life_counts(const wnpu_session *s)
{
    wnpu_stats t;
    t.struct_size = sizeof t;
    T_CHECK(wnpu_get_stats(s, &t) == WNPU_OK, "stats");
    return t.windows + 1009u * t.tokens + 1013u * t.prompt_tokens + 10007u * t.retries +
           100003u * t.skips + 1000003u * t.returns + 10000019u * t.silent +
           100000007u * t.loops + 1000000007u * (uint64_t)t.unaccepted +
           (uint64_t)t.audio_ms * 31u + (uint64_t)t.speech_ms * 37u +
           (uint64_t)t.unresolved_ms * 41u;
}

/* A result in malloc()ed memory. */
typedef struct life_bytes {
    char *bytes; /* ends in NUL */
    size_t n;
} life_bytes;

LIFE_FN int64_t life_grow(void *user, const void *data, size_t size)
{
    life_bytes *t = user;
    t->bytes = realloc(t->bytes, t->n + size + 1);
    memcpy(t->bytes + t->n, data, size);
    t->n += size;
    t->bytes[t->n] = '\0';
    return (int64_t)size;
}

LIFE_FN life_bytes life_written(const wnpu_session *s, wnpu_format format)
{
    life_bytes t = {NULL, 0};
    T_CHECK(wnpu_write(s, format, life_grow, &t) == WNPU_OK, "format %d: %s", (int)format,
            wnpu_session_error(s));
    return t;
}

LIFE_FN int life_alike(life_bytes a, life_bytes b)
{
    return a.n == b.n && memcmp(a.bytes, b.bytes, a.n) == 0;
}

/* 1 if the segments of s are the first of those of whole. */
LIFE_FN int life_begins(const wnpu_session *s, const wnpu_session *whole)
{
    wnpu_segment a, b;
    size_t i, n = wnpu_segment_count(s);
    for (i = 0; i < n; i++) {
        if (wnpu_get_segment(s, i, &a) != WNPU_OK || wnpu_get_segment(whole, i, &b) != WNPU_OK ||
            a.t0_ms != b.t0_ms || a.t1_ms != b.t1_ms || a.n_tokens != b.n_tokens ||
            strcmp(a.text, b.text) != 0) {
            return 0;
        }
    }
    return 1;
}

/* Well-formed UTF-8 without NUL (Unicode 15, table 3-7). */
LIFE_FN int life_is_utf8(const char *text, size_t length)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + length;
    while (p < end) {
        unsigned c = *p++, more = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3, low = 0x80;
        unsigned high = 0xbf;
        if (c == 0 || (c >= 0x80 && c < 0xc2) || c > 0xf4 || (size_t)(end - p) < more) {
            return 0;
        }
        low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : low;
        high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : high;
        for (; more > 0; more--, low = 0x80, high = 0xbf) {
            if (*p < low || *p > high) {
                return 0;
            }
            p++;
        }
    }
    return 1;
}

/* ---- text from on_token ---- */

#define LIFE_WINDOWS 5000

typedef struct life_heard {
    char text[1 << 15];         /* [n] of the window, since the latest restart */
    size_t n;
    char all[1 << 16];          /* of window w: from at[w] to at[w + 1] */
    size_t at[LIFE_WINDOWS + 1];
    int32_t window, windows;    /* the latest; how many are complete */
    int open;                   /* the latest is not complete */
    size_t events, pieces, restarts, withdrawn; /* withdrawn: restarts that took text back */
    size_t placed;              /* pieces whose place is known */
} life_heard;

LIFE_FN void life_listen(life_heard *h)
{
    memset(h, 0, sizeof *h);
    h->window = -1;
}

/* Takes an event. Returns what is wrong with it, or NULL. */
LIFE_FN const char *life_hear(life_heard *h, const wnpu_token_event *e)
{
    size_t n = e->text_length;
    h->events++;
    h->pieces += n > 0;
    if (e->struct_size != sizeof *e || strlen(e->text) != n || !life_is_utf8(e->text, n)) {
        return "no text";
    }
    if (!e->restart && (!h->open || e->window != h->window)) {
        return "a window that begins without restart";
    }
    if (e->window < 0 || e->window > h->windows || e->window >= LIFE_WINDOWS ||
        e->window_ms < 0) {
        return "no window, or not in order";
    }
    if (e->place_ms != -1 && (e->place_ms < e->window_ms || e->place_ms > e->window_ms + 31000)) {
        return "a place outside the window";
    }
    h->placed += n > 0 && e->place_ms >= 0;
    if (e->restart) {
        h->withdrawn += h->open && h->window == e->window && h->n > 0;
        h->restarts++;
        h->n = 0;
    }
    h->window = e->window;
    h->open = 1;
    if (n > sizeof h->text - h->n || h->at[e->window] + h->n + n > sizeof h->all) {
        return "too much text";
    }
    memcpy(h->text + h->n, e->text, n);
    h->n += n;
    if (e->complete) { /* perhaps once more, after a return to an earlier state */
        memcpy(h->all + h->at[e->window], h->text, h->n);
        h->at[e->window + 1] = h->at[e->window] + h->n;
        h->windows = e->window + 1;
        h->open = 0;
    }
    return NULL;
}

/* Whether the complete windows have the text of the session's segments. */
LIFE_FN int life_heard_all(const life_heard *h, const wnpu_session *s)
{
    wnpu_segment g;
    size_t i, at = 0, n = h->at[h->windows];
    for (i = 0; wnpu_get_segment(s, i, &g) == WNPU_OK; i++) {
        if (g.window >= h->windows || at < h->at[g.window] || g.text_length > n - at ||
            at + g.text_length > h->at[g.window + 1] ||
            memcmp(h->all + at, g.text, g.text_length) != 0) {
            return 0;
        }
        at += g.text_length;
    }
    return at == n;
}
#endif
