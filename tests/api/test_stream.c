/* test_stream.c - audio that is pushed in pieces gives, after each step, the beginning of what the
 * whole recording gives, and in the end the same bytes. So it is after a step that was cancelled,
 * after a snapshot, and with another thread that pushes. What is lost is in the ledger.
 *
 * TEST_CHUNKS=N divides twenty recordings into pieces in N ways instead of 24, on four instruction
 * sets. TEST_STREAM_SECONDS=N lets two threads work for N seconds instead of 3. */
#define _GNU_SOURCE 1
#include "../lib/life.h"
#include "../lib/voicelike.h"
#include <pthread.h>
#include <time.h>

static uint32_t random_state = 4711;

static uint32_t random32(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

/* ---- recordings ---- */

#define TOY_SECONDS 50

/* Speech-like sounds, with pauses that end windows, silence and noise, made of one voice. */
static float *make_sound(int kind, size_t n)
{
    static float *voice;
    static size_t have;
    float *x = malloc(n * sizeof *x);
    size_t i;
    if (voice == NULL) {
        have = 16000 * TOY_SECONDS + 77;
        voice = voicelike(have, 1);
    }
    for (i = 0; i < n; i++) {
        size_t at = i / 8000; /* half seconds */
        float noise = (float)(voice_chance() - 0.5) * 0.02f;
        x[i] = voice[i % have];
        switch (kind) {
        case 0: break;
        case 1: x[i] *= (at >= 14 && at < 26) || (at >= 40 && at < 80) ? 0.001f : 1.0f; break;
        case 2: x[i] = x[i] * (at % 24 < 12 ? 1.0f : 0.0005f) + noise * 0.1f; break;
        case 3: x[i] = x[i] * 0.05f + noise; break;
        case 4: x[i] = noise * 0.001f; break;
        default: x[i] = 0; break;
        }
    }
    return x;
}

/* ---- what a session shows ---- */

/* Everything that may only grow, one line each, but not the last span of the ledger. */
typedef struct shown {
    char *text;
    size_t n, capacity;
} shown;

__attribute__((format(printf, 2, 3))) static void show(shown *w, const char *format, ...)
{
    va_list args;
    size_t n;
    va_start(args, format);
    if (w->capacity - w->n < 4096) {
        w->capacity = 2 * w->capacity + 65536;
        w->text = realloc(w->text, w->capacity);
    }
    n = (size_t)vsnprintf(w->text + w->n, w->capacity - w->n, format, args);
    w->n += n < w->capacity - w->n ? n : 0;
    va_end(args);
}

static void show_segments(const wnpu_session *s, shown *w)
{
    wnpu_segment g;
    wnpu_word word;
    size_t i, k;
    for (i = 0; wnpu_get_segment(s, i, &g) == WNPU_OK; i++) {
        show(w, "%ld %ld %d %d %a %.1000s\n", (long)g.t0_ms, (long)g.t1_ms, (int)g.window,
             (int)g.language, (double)g.mean_logprob, g.text);
        for (k = 0; k < wnpu_word_count(s, i); k++) {
            word.struct_size = sizeof word;
            T_CHECK(wnpu_get_word(s, i, k, &word) == WNPU_OK, "word");
            show(w, " %ld %ld %.200s\n", (long)word.t0_ms, (long)word.t1_ms, word.text);
        }
    }
}

static void show_spans(const wnpu_session *s, shown *w)
{
    wnpu_speech_span span;
    size_t i;
    for (i = 0; wnpu_get_speech_span(s, i, &span) == WNPU_OK; i++) {
        show(w, "%ld %ld\n", (long)span.t0_ms, (long)span.t1_ms);
    }
}

static void show_ledger(const wnpu_session *s, shown *w)
{
    wnpu_ledger_span span;
    size_t i;
    for (i = 0; i + 1 < wnpu_ledger_count(s) && wnpu_get_ledger_span(s, i, &span) == WNPU_OK; i++) {
        show(w, "%ld %ld %d %d\n", (long)span.t0_ms, (long)span.t1_ms, (int)span.kind,
             (int)span.reason);
    }
}

static size_t n_confirmed; /* bytes of text that were final before their segment */

/* The text of all segments, and what has been confirmed of the open window. */
static void show_text(const wnpu_session *s, shown *w)
{
    wnpu_segment g;
    wnpu_live live = {.struct_size = sizeof live};
    size_t i;
    for (i = 0; wnpu_get_segment(s, i, &g) == WNPU_OK; i++) {
        show(w, "%s", g.text);
    }
    if (wnpu_get_live(s, &live) == WNPU_OK) {
        T_CHECK(live.confirmed_length <= live.likely_length, "confirmed, but not likely");
        show(w, "%.*s", (int)live.confirmed_length, live.text);
        n_confirmed += live.confirmed_length;
    }
}

/* Whether the text that is final begins with what it was, which becomes what it is. */
static int is_final(const wnpu_session *s, shown *before)
{
    shown now = {NULL, 0, 0};
    int kept;
    show_text(s, &now);
    kept = before->n <= now.n && (before->n == 0 || memcmp(before->text, now.text, before->n) == 0);
    free(before->text);
    *before = now;
    return kept;
}

#define PARTS 4
typedef struct view {
    shown part[PARTS];
} view;

static void look(const wnpu_session *s, view *v)
{
    int i;
    for (i = 0; i < PARTS; i++) {
        v->part[i].n = 0;
        show(&v->part[i], "%s", "");
    }
    show_segments(s, &v->part[0]);
    show_spans(s, &v->part[1]);
    show_ledger(s, &v->part[2]);
    show_text(s, &v->part[3]);
}

static int is_beginning(const view *a, const view *of)
{
    int i;
    for (i = 0; i < PARTS; i++) {
        if (a->part[i].n > of->part[i].n ||
            memcmp(a->part[i].text, of->part[i].text, a->part[i].n) != 0) {
            return 0;
        }
    }
    return 1;
}

static void free_view(view *v)
{
    int i;
    for (i = 0; i < PARTS; i++) {
        free(v->part[i].text);
    }
}

/* ---- live runs ---- */

/* Pushes the recording in random pieces, of which most are about `usual` frames, with steps at
 * random times, and checks what each step leaves against the one before and `whole`. */
/* Begins a live run whose replacements and hotword are gone after that. */
static int begin_briefly(wnpu_session *s, const wnpu_params *params, const wnpu_stream_options *o)
{
    wnpu_params p = *params;
    char replace[64] = "", hotword[64] = "";
    const char *items = hotword;
    int status;
    if (p.replace != NULL && p.n_hotwords == 1) {
        (void)snprintf(replace, sizeof replace, "%s", p.replace);
        (void)snprintf(hotword, sizeof hotword, "%s", p.hotwords[0]);
        p.replace = replace;
        p.hotwords = &items;
    }
    status = wnpu_stream_begin(s, &p, o);
    memset(replace, '?', sizeof replace);
    memset(hotword, '?', sizeof hotword);
    items = NULL;
    return status;
}

static int live_run(wnpu_session *s, const wnpu_params *p, const wnpu_audio *a, const view *whole)
{
    /* tentative text changes nothing, but takes time */
    wnpu_stream_options o = life_stream(a, random32() % 6 == 0 ? 1000 : 0);
    size_t usual = a->rate / (1 + random32() % 50);
    uint64_t at = 0;
    view now, before;
    int status;
    status = begin_briefly(s, p, &o);
    memset(&now, 0, sizeof now);
    memset(&before, 0, sizeof before);
    T_CHECK(status == WNPU_OK, "begin: %s", wnpu_session_error(s));
    look(s, &before);
    while (at < a->frames && status == WNPU_OK) {
        size_t n = random32() % 8 == 0 ? random32() % (10 * usual) : random32() % (2 * usual);
        life_push(s, a, &at, n < wnpu_stream_room(s) ? n : wnpu_stream_room(s));
        if (random32() % 3 > 0 || wnpu_stream_room(s) == 0) {
            view swap = before;
            status = wnpu_stream_step(s, NULL);
            look(s, &now);
            T_CHECK(is_beginning(&before, &now), "at frame %lu something changed",
                    (unsigned long)at);
            T_CHECK(is_beginning(&now, whole), "at frame %lu it differs", (unsigned long)at);
            before = now;
            now = swap;
        }
    }
    T_CHECK(status == WNPU_OK, "step: %d, %s", status, wnpu_session_error(s));
    free_view(&now);
    free_view(&before);
    return wnpu_stream_finish(s);
}

/* A recording, how it is transcribed, and the result. */
typedef struct recording {
    char name[64];
    wnpu_audio audio;
    wnpu_params params;
    unsigned batch;
    void *memory;
    int status, done;
    uint64_t counts;
    life_bytes want;
    view whole;
} recording;

static void transcribe_whole(wnpu_session *s, recording *r)
{
    r->status = wnpu_transcribe(s, &r->params, &r->audio);
    T_CHECK(r->status >= WNPU_OK, "%s: %s", r->name, wnpu_session_error(s));
    r->want = life_written(s, WNPU_FORMAT_JSON);
    r->counts = life_counts(s);
    look(s, &r->whole);
    r->done = 1;
}

static void free_recording(recording *r)
{
    free(r->want.bytes);
    free(r->memory);
    free_view(&r->whole);
    memset(r, 0, sizeof *r);
}

static void is_whole(const wnpu_session *s, const recording *r, int status)
{
    life_bytes is = life_written(s, WNPU_FORMAT_JSON);
    T_CHECK(status == r->status, "%s: status %d, whole %d", r->name, status, r->status);
    T_CHECK(life_alike(r->want, is), "%s: other results", r->name);
    T_CHECK(life_counts(s) == r->counts, "%s: other counts", r->name);
    if (getenv("TEST_SHOW") != NULL && !life_alike(r->want, is)) {
        printf("--- whole\n%s--- live\n%s", r->want.bytes, is.bytes);
    }
    free(is.bytes);
}

static wnpu_session *open_session(const wnpu_model *m, unsigned batch)
{
    wnpu_config c = life_config(2);
    c.stream_bytes = 1 << 20;
    c.batch = batch;
    return life_open(m, &c);
}

static void make_toy_recording(recording *r, int kind)
{
    size_t n = 16000 * TOY_SECONDS + 77;
    memset(r, 0, sizeof *r);
    r->memory = make_sound(kind, n);
    r->audio = life_audio(r->memory, n);
    r->params = life_params();
    r->params.vad = kind != 4;
    r->params.words = kind % 2;
    r->params.max_tokens = 40;
    (void)snprintf(r->name, sizeof r->name, "toy, sound %d", kind);
}

/* A toy is never certain of its words, so no gate may ask. */
static void confirm_words(recording *r, size_t seconds)
{
    r->audio.frames = 16000 * seconds;
    r->params.vad = 1;
    r->params.commit_step_ms = 1500;
    r->params.hold_ms = 300;
    r->params.logprob_threshold = -INFINITY;
    r->params.compression_threshold = 0;
}

/* With skip_late no step is made in what was not looked at when the recording ended: the rest is
 * decoded as a whole. */
static void late_end(wnpu_session *s, const recording *r)
{
    wnpu_stream_options o = life_stream(&r->audio, 0);
    wnpu_live live = {.struct_size = sizeof live};
    uint32_t events = WNPU_EVENT_MORE;
    uint64_t at = 0;
    int status;
    o.skip_late = 1;
    status = wnpu_stream_begin(s, &r->params, &o);
    life_push(s, &r->audio, &at, 16000 * 5 / 2); /* a step of 1.5 s, and no second one */
    status = status == WNPU_OK ? wnpu_stream_end(s) : status;
    while ((events & WNPU_EVENT_MORE) && status == WNPU_OK) {
        status = wnpu_stream_step(s, &events);
        T_CHECK(wnpu_get_live(s, &live) == WNPU_OK && live.confirmed_length == 0,
                "%zu bytes confirmed", live.confirmed_length);
    }
    T_CHECK(live.skipped == 1, "%u steps skipped", (unsigned)live.skipped);
    (void)wnpu_stream_finish(s);
}

/* With skip_late a run that keeps pace gives the same, and one that is late leaves steps out. */
static void late(wnpu_session *s, const recording *r)
{
    int is_late;
    for (is_late = 0; is_late < 2; is_late++) {
        wnpu_stream_options o = life_stream(&r->audio, 0);
        wnpu_live live = {.struct_size = sizeof live};
        uint64_t at = 0;
        int status;
        o.skip_late = 1;
        status = wnpu_stream_begin(s, &r->params, &o);
        while (at < r->audio.frames && status == WNPU_OK) {
            uint32_t events = WNPU_EVENT_MORE;
            life_push(s, &r->audio, &at, is_late ? wnpu_stream_room(s) : 8000);
            while ((events & WNPU_EVENT_MORE) && status == WNPU_OK) {
                status = wnpu_stream_step(s, &events);
            }
        }
        T_CHECK(wnpu_get_live(s, &live) == WNPU_OK && (live.skipped > 2) == is_late,
                "late %d: %u steps skipped", is_late, (unsigned)live.skipped);
        T_CHECK(is_late || live.skipped == 0, "%u steps skipped", (unsigned)live.skipped);
        status = wnpu_stream_finish(s);
        if (is_late) {
            T_CHECK(status == r->status, "status %d", status);
        } else {
            is_whole(s, r, status);
        }
    }
}

static void toy_chunks(void)
{
    wnpu_model *m = life_toy(7, NULL);
    recording r;
    unsigned batch;
    int kind;
    for (batch = 0; batch <= 2; batch++) {
        wnpu_session *s = open_session(m, batch);
        for (kind = 0; kind < 6; kind++) {
            make_toy_recording(&r, kind);
            if (batch + (unsigned)kind == 1) {
                confirm_words(&r, 26);
            }
            n_confirmed = 0;
            transcribe_whole(s, &r);
            is_whole(s, &r, live_run(s, &r.params, &r.audio, &r.whole));
            if (r.params.commit_step_ms > 0 && batch == 0) {
                late(s, &r);
                late_end(s, &r);
            }
            T_CHECK((n_confirmed > 0) == (r.params.commit_step_ms > 0), "%s: %d bytes confirmed",
                    r.name, (int)n_confirmed);
            free_recording(&r);
        }
        wnpu_session_close(s);
    }
    wnpu_model_close(m);
}

/* ---- sample formats ---- */

/* Writes a sample in a format. Any byte is a valid A-law or mu-law sample. */
static void put_sample(unsigned char *at, int32_t format, float value)
{
    double wide = (double)value;
    int64_t n = (int64_t)(value * 2147483000.0f);
    int16_t narrow = (int16_t)(n / 65536);
    int32_t whole = (int32_t)n;
    switch (format) {
    case WNPU_SAMPLE_F32: case WNPU_SAMPLE_F32LE: memcpy(at, &value, sizeof value); break;
    case WNPU_SAMPLE_F64LE: memcpy(at, &wide, sizeof wide); break;
    case WNPU_SAMPLE_S16: case WNPU_SAMPLE_S16LE: memcpy(at, &narrow, sizeof narrow); break;
    case WNPU_SAMPLE_S32LE: memcpy(at, &whole, sizeof whole); break;
    case WNPU_SAMPLE_S24LE: memcpy(at, (unsigned char *)&whole + 1, 3); break;
    case WNPU_SAMPLE_U8: *at = (unsigned char)(128 + n / 16777216); break;
    default: *at = (unsigned char)(narrow >> 8) ^ 0x55; break;
    }
}

/* Every format, rate and number of channels, mixed or one of them, as in a file. */
static void formats(void)
{
    static const uint32_t rates[] = {8000, 11025, 16000, 22050, 32000, 44100, 48000, 96000, 192000};
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = open_session(m, 0);
    uint32_t i, channels;
    int32_t format;
    for (i = 0; i < 72; i++) {
        recording r;
        size_t n, k, frame;
        float *x = make_sound(0, 16000 * 3);
        memset(&r, 0, sizeof r);
        (void)snprintf(r.name, sizeof r.name, "format %d", (int)i);
        format = (int32_t)(i % 10);
        channels = 1 + i % 8;
        wnpu_audio_init(&r.audio, sizeof r.audio);
        r.audio.format = format;
        r.audio.rate = rates[i % 9];
        r.audio.channels = channels;
        r.audio.channel = i % 3 == 0 ? WNPU_CHANNEL_MIX : (int32_t)(i / 3 % channels);
        frame = wnpu_frame_bytes(&r.audio);
        n = 3 * (size_t)r.audio.rate;
        r.memory = malloc(n * frame);
        for (k = 0; k < n * channels; k++) {
            size_t at = k / channels * 16000 / r.audio.rate, c = k % channels;
            put_sample((unsigned char *)r.memory + k * (frame / channels), format,
                       x[at] * (c == 1 ? -0.5f : 1.0f / (float)(1 + c)));
        }
        r.audio.data = r.memory;
        r.audio.frames = n;
        r.params = life_params();
        r.params.vad = i % 2;
        transcribe_whole(s, &r);
        is_whole(s, &r, live_run(s, &r.params, &r.audio, &r.whole));
        free_recording(&r);
        free(x);
    }
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- real speech ---- */

#define RECORDINGS 20

static const char *const files[RECORDINGS] = {
    "short/mini_3526-176653-0003.wav", "short/mini_7367-86737-0098.wav",
    "hard/fmt_19-198-0001_8k.wav", "hard/fmt_19-198-0001_44k.wav",
    "hard/fmt_19-198-0001_stereo.wav", "hard/fmt_19-198-0001_f32.wav",
    "hard/fmt_19-198-0001_f64.wav", "hard/fmt_19-198-0001_mulaw.wav",
    "hard/fmt_19-198-0001_alaw.wav", "hard/fmt_19-198-0001_s24.wav",
    "hard/fmt_19-198-0001_u8.wav", "hard/chan_antiphase.wav", "hard/babble1_snr10_19-198-0001.wav",
    "hard/music_snr5_19-198-0001.wav", "hard/phone_19-198-0001.wav",
    "hard/quiet50dB_19-198-0001.wav", "hard/trim_0.02s.wav", "hard/trim_30.00s.wav",
    "long/lj_LJ001-0001_0032.wav", NULL /* silence */
};

static const char *hotwords[] = {"Ferdinand", "Sir Walter"};

/* Each recording has its own way of transcribing it. */
static void set_ways(recording *r, size_t number)
{
    wnpu_params_init(&r->params, sizeof r->params);
    r->params.words = number % 2 == 0;
    r->params.beam = number % 5 == 1 ? 5 : 1;
    r->batch = number % 4 == 3 ? 2 : 0;
    r->params.language_mode = number % 6 == 2 ? WNPU_LANGUAGE_EACH : WNPU_LANGUAGE_ONCE;
    r->params.condition_on_previous = number % 6 == 0;
    r->params.vad = number % 7 != 6;
    r->params.commit_step_ms = number == 1 || number % 10 == 4 ? 1000 : 0;
    if (number % 10 == 1) {
        r->params.hotwords = hotwords;
        r->params.n_hotwords = sizeof hotwords / sizeof hotwords[0];
    }
    if (number % 10 == 3) { /* see begin_briefly() */
        static const char *const heard[] = {"furthermore=and,the"};
        r->params.hotwords = heard;
        r->params.n_hotwords = 1;
        r->params.replace = "a => one\nof => from";
    }
}

/* Returns 0 if the file is missing. */
static int load_recording(recording *r, const char *directory, size_t number)
{
    char path[512];
    size_t size = 0;
    memset(r, 0, sizeof *r);
    (void)snprintf(r->name, sizeof r->name, "%.60s",
                   files[number] != NULL ? files[number] : "silence");
    set_ways(r, number);
    if (files[number] == NULL) {
        r->memory = calloc(16000 * 70, sizeof(float));
        r->audio = life_audio(r->memory, 16000 * 70);
        return 1;
    }
    (void)snprintf(path, sizeof path, "%s/%s", directory, files[number]);
    r->memory = life_load(path, &size);
    wnpu_audio_init(&r->audio, sizeof r->audio);
    if (r->memory == NULL || wnpu_wav_open(&r->audio, r->memory, size, NULL) != WNPU_OK) {
        return 0;
    }
    if (r->audio.frames > 70 * r->audio.rate) {
        r->audio.frames = 70 * r->audio.rate;
    }
    return 1;
}

/* Up to four instruction sets besides the slow scalar one, which has every fortieth turn. */
static int32_t choose_isa(int turn)
{
    static const wnpu_isa order[] = {
        WNPU_ISA_AVX2, WNPU_ISA_SSE41, WNPU_ISA_AVX512, WNPU_ISA_AVX_VNNI, WNPU_ISA_NEON,
        WNPU_ISA_NEON_DOT, WNPU_ISA_NEON_I8MM
    };
    wnpu_isa found[4] = {WNPU_ISA_AUTO};
    size_t i, n = 0;
    for (i = 0; i < sizeof order / sizeof order[0] && n < 4; i++) {
        if (wnpu_isa_available(order[i])) {
            found[n++] = order[i];
        }
    }
    return turn % 40 == 39 ? WNPU_ISA_SCALAR : (int32_t)found[n > 0 ? (size_t)turn % n : 0];
}

static int number_of(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text != NULL && atoi(text) > 0 ? atoi(text) : otherwise;
}

/* One turn: a recording, in pieces of other sizes, on the next instruction set. */
static void turn_of(const wnpu_model *m, recording *r, int turn)
{
    wnpu_config c;
    wnpu_session *s;
    wnpu_config_init(&c, sizeof c);
    c.threads = 2;
    c.batch = r->batch;
    c.stream_bytes = 4 << 20;
    if (!r->done) {
        s = life_open(m, &c);
        transcribe_whole(s, r);
        wnpu_session_close(s);
    }
    c.threads = 1 + (uint32_t)turn % 2;
    c.isa = choose_isa(turn);
    s = life_open(m, &c);
    is_whole(s, r, live_run(s, &r->params, &r->audio, &r->whole));
    wnpu_session_close(s);
}

static void speech_chunks(void)
{
    static recording all[RECORDINGS];
    const char *directory = getenv("WNPU_SPEECH");
    wnpu_model *m = NULL;
    char path[512];
    int i, turns = number_of("TEST_CHUNKS", 24);
    directory = directory != NULL ? directory : "../shared/speech";
    if (life_cached(path, sizeof path, "ggml-tiny.bin")[0] == '\0' ||
        wnpu_model_open(&m, path, NULL, NULL) != WNPU_OK) {
        t_skip("examples/fetch.sh tiny fetches the model");
        return;
    }
    for (i = 0; i < RECORDINGS; i++) {
        if (!load_recording(&all[i], directory, (size_t)i)) {
            t_skip("no recordings; WNPU_SPEECH names their directory");
            wnpu_model_close(m);
            return;
        }
    }
    for (i = 0; i < turns; i++) {
        turn_of(m, &all[i % RECORDINGS], i + i / RECORDINGS);
    }
    for (i = 0; i < RECORDINGS; i++) {
        free_recording(&all[i]);
    }
    wnpu_model_close(m);
}

/* ---- losses ---- */

static int16_t *make_samples(int kind, size_t n)
{
    float *x = make_sound(kind, n);
    int16_t *y = malloc(n * sizeof *y);
    size_t i;
    for (i = 0; i < n; i++) {
        y[i] = (int16_t)(20000 * x[i]);
    }
    free(x);
    return y;
}

/* A pushing program that keeps what the session should have heard. */
typedef struct pusher {
    wnpu_session *session;
    int16_t *from;
    int16_t *heard;             /* [n] with zeros where frames were lost */
    unsigned char *gone;        /* [n / 16 + 1] milliseconds of which frames were lost */
    size_t at, n, lost;
} pusher;

/* The recorder delivers n frames, or loses them. */
static void push_or_lose(pusher *p, size_t n, int lose)
{
    size_t accepted;
    n = n < p->n - p->at ? n : p->n - p->at;
    accepted = wnpu_stream_push(p->session, lose ? NULL : p->from + p->at, n);
    memcpy(p->heard + p->at, p->from + p->at, accepted * sizeof *p->heard);
    if (accepted < n) {
        memset(p->gone + (p->at + accepted) / 16, 1, (p->at + n - 1) / 16 + 1 -
                                                     (p->at + accepted) / 16);
    }
    p->at += n;
    p->lost += n - accepted;
}

static void push(pusher *p, size_t n)
{
    push_or_lose(p, n, 0);
}

static void open_pusher(pusher *p, wnpu_session *s, int kind, size_t n)
{
    memset(p, 0, sizeof *p);
    p->session = s;
    p->n = n;
    p->from = make_samples(kind, n);
    p->heard = calloc(n, sizeof *p->heard);
    p->gone = calloc(n / 16 + 1, 1);
}

static void close_pusher(pusher *p)
{
    free(p->from);
    free(p->heard);
    free(p->gone);
}

/* Milliseconds of overrun in a ledger that has neither gaps nor overlaps; the spans are marked in
 * lost[ms]. */
static int64_t overrun_ms(const wnpu_session *s, const unsigned char *lost, size_t ms)
{
    wnpu_ledger_span span;
    int64_t end = 0, sum = 0, t;
    size_t i, wrong = 0;
    for (i = 0; wnpu_get_ledger_span(s, i, &span) == WNPU_OK; i++) {
        T_CHECK(span.t0_ms == end && span.t1_ms > end, "span %lu begins at %ld, not %ld",
                (unsigned long)i, (long)span.t0_ms, (long)end);
        end = span.t1_ms;
        if (span.reason == WNPU_REASON_OVERRUN) {
            T_CHECK(span.kind == WNPU_LEDGER_UNRESOLVED, "overrun is unresolved");
            sum += span.t1_ms - span.t0_ms;
        }
        for (t = span.t0_ms; t < span.t1_ms && (size_t)t < ms; t++) {
            wrong += (span.reason == WNPU_REASON_OVERRUN) != lost[t];
        }
    }
    T_CHECK(wrong == 0, "%lu ms are not what they were", (unsigned long)wrong);
    T_CHECK((size_t)end == ms, "the ledger ends at %ld of %lu ms", (long)end, (unsigned long)ms);
    return sum;
}

/* Compares a finished live run with one of what it heard: the same but for the ledger. */
static void heard_the_same(const pusher *p, const wnpu_params *params, wnpu_session *other)
{
    size_t ms = p->n / 16;
    int64_t sum = overrun_ms(p->session, p->gone, ms);
    wnpu_stats stats;
    wnpu_audio a;
    view is, want;
    memset(&is, 0, sizeof is);
    memset(&want, 0, sizeof want);
    stats.struct_size = sizeof stats;
    T_CHECK(wnpu_get_stats(p->session, &stats) == WNPU_OK && stats.unresolved_ms >= sum &&
            stats.audio_ms == (int64_t)ms, "%ld ms unresolved, %ld lost, of %ld",
            (long)stats.unresolved_ms, (long)sum, (long)stats.audio_ms);
    T_CHECK(sum >= (int64_t)p->lost / 16, "%ld ms lost, want %lu", (long)sum,
            (unsigned long)p->lost / 16);
    wnpu_audio_init(&a, sizeof a);
    a.format = WNPU_SAMPLE_S16;
    a.data = p->heard;
    a.frames = p->n;
    T_CHECK(wnpu_transcribe(other, params, &a) >= WNPU_OK, "%s", wnpu_session_error(other));
    look(p->session, &is);
    look(other, &want);
    is.part[2].n = want.part[2].n = 0;
    T_CHECK(is_beginning(&is, &want) && is_beginning(&want, &is), "silence gives another text");
    free_view(&is);
    free_view(&want);
}

/* More losses in one window than there is room for: each is counted, and what is counted beside
 * them lies between losses close together. The last one, far from the others, is by itself. */
static void many_losses(size_t n_losses)
{
    enum { HEARD = 800, LOST = 16 };
    wnpu_model *m = life_toy(7, NULL);
    wnpu_config c = life_config(1);
    wnpu_params p = life_params();
    unsigned char *is;
    wnpu_ledger_span span;
    wnpu_session *s;
    size_t i, k, ms, extra = 0, missing = 0;
    int64_t end = 0, t;
    pusher w;
    c.stream_bytes = HEARD * 2;
    s = life_open(m, &c);
    open_pusher(&w, s, 0, 16000 * 29);
    T_CHECK(wnpu_stream_begin(s, &p, NULL) == WNPU_OK, "%s", wnpu_session_error(s));
    for (k = 0; w.at < w.n; k++) {
        push(&w, HEARD);
        if (k < n_losses || k + 5 == n_losses + (w.n - n_losses * (HEARD + LOST)) / HEARD) {
            push(&w, LOST);
        }
        T_CHECK(wnpu_stream_step(s, NULL) == WNPU_OK, "%s", wnpu_session_error(s));
    }
    T_CHECK(w.lost == (n_losses + 1) * LOST, "%lu frames lost", (unsigned long)w.lost);
    T_CHECK(wnpu_stream_finish(s) == WNPU_INCOMPLETE, "%s", wnpu_session_error(s));
    ms = w.n / 16;
    is = calloc(ms, 1);
    for (i = 0; wnpu_get_ledger_span(s, i, &span) == WNPU_OK; i++) {
        T_CHECK(span.t0_ms == end && span.t1_ms > end && span.t1_ms <= (int64_t)ms,
                "span %lu: %ld..%ld", (unsigned long)i, (long)span.t0_ms, (long)span.t1_ms);
        for (end = span.t1_ms, t = span.t0_ms; t < end && span.reason == WNPU_REASON_OVERRUN; t++) {
            is[t] = 1;
        }
    }
    T_CHECK(end == (int64_t)ms, "the ledger ends at %ld of %lu ms", (long)end, (unsigned long)ms);
    for (i = 0; i < ms; i++) {
        missing += w.gone[i] && !is[i];
        extra += is[i] && !w.gone[i];
        T_CHECK(!is[i] || w.gone[i] || i < n_losses * (HEARD + LOST) / 16, "%lu ms is not lost",
                (unsigned long)i);
    }
    k = n_losses + 1 > 256 ? n_losses + 1 - 256 : 0;
    T_CHECK(missing == 0 && extra <= k * HEARD / 16, "%lu ms are missing, %lu too many",
            (unsigned long)missing, (unsigned long)extra);
    T_CHECK((extra > 0) == (k > 0), "%lu ms more than lost", (unsigned long)extra);
    free(is);
    wnpu_session_close(s);
    close_pusher(&w);
    wnpu_model_close(m);
}

static void losses(void)
{
    many_losses(60);
    many_losses(200);
    many_losses(400);
}

/* Audio comes in while nothing is read, in time with it, and much faster. */
static void overrun(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_config c = life_config(1);
    wnpu_session *s, *other;
    wnpu_params p = life_params();
    wnpu_live live;
    uint32_t events, seen = 0;
    pusher w;
    int status;
    c.stream_bytes = 2 * 16000 * 2 + 1;
    s = life_open(m, &c);
    other = life_open(m, &c);
    open_pusher(&w, s, 1, 16000 * TOY_SECONDS);
    p.vad = p.words = 1;
    T_CHECK(wnpu_stream_begin(s, &p, NULL) == WNPU_OK, "%s", wnpu_session_error(s));
    while (w.at < w.n) {
        size_t second = w.at / 16000;
        int busy = (second % 10 >= 4 && second % 10 < 8) || second >= 46;
        push_or_lose(&w, 320, second == 22 || w.at % 16000 == 0);
        if (busy ? second < 20 ? 0 : random32() % 60 == 0 : random32() % 3 == 0) {
            T_CHECK(wnpu_stream_step(s, &events) == WNPU_OK, "%s", wnpu_session_error(s));
            seen |= events;
        }
    }
    live.struct_size = sizeof live;
    T_CHECK(wnpu_get_live(s, &live) == WNPU_OK && live.overrun_ms == (int64_t)w.lost / 16,
            "%ld ms lost", (long)live.overrun_ms);
    T_CHECK(w.lost > 16000 * 3 && w.lost < 16000 * 30, "%lu frames lost", (unsigned long)w.lost);
    status = wnpu_stream_finish(s);
    T_CHECK(status == WNPU_INCOMPLETE && (seen & WNPU_EVENT_COMMITTED), "status %d, events %x",
            status, (unsigned)seen);
    heard_the_same(&w, &p, other);
    wnpu_session_close(s);
    wnpu_session_close(other);
    close_pusher(&w);
    wnpu_model_close(m);
}

/* ---- misuse ---- */

/* A callback tries everything that is not allowed in one. */
static int call_in(void *user, const wnpu_segment *segment)
{
    wnpu_session *s = user;
    int16_t samples[16] = {0};
    T_CHECK(segment->text_length > 0, "a segment");
    T_CHECK(wnpu_stream_step(s, NULL) == WNPU_E_STATE && wnpu_stream_finish(s) == WNPU_E_STATE &&
            wnpu_stream_begin(s, NULL, NULL) == WNPU_E_STATE && wnpu_reset(s) == WNPU_E_STATE,
            "busy");
    T_CHECK(wnpu_stream_push(s, samples, 16) == 16, "a callback may push");
    return 0;
}

static void misuse(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_config c = life_config(1);
    wnpu_session *s = life_open(m, &c);
    wnpu_stream_options o;
    wnpu_params p = life_params();
    wnpu_audio a;
    wnpu_live live;
    wnpu_memory memory;
    wnpu_choice choice;
    const char *phrase = "yes";
    uint32_t events = 99;
    size_t without, n = 16000 * 70, at;
    int16_t *x = make_samples(1, n);
    live.struct_size = sizeof live;
    choice.struct_size = sizeof choice;
    memory.struct_size = sizeof memory;
    wnpu_audio_init(&a, sizeof a);
    a.format = WNPU_SAMPLE_S16;
    a.data = x;
    a.frames = 16000;
    T_CHECK(wnpu_stream_begin(s, &p, NULL) == WNPU_E_STATE &&
            strstr(wnpu_session_error(s), "stream_bytes") != NULL, "no room: %s",
            wnpu_session_error(s));
    T_CHECK(wnpu_stream_push(s, x, 16) == 0 && wnpu_stream_room(s) == 0 &&
            wnpu_get_live(s, &live) == WNPU_E_STATE, "not open");
    T_CHECK(wnpu_get_memory(s, &memory) == WNPU_OK && memory.stream == 0, "no memory for it");
    wnpu_session_close(s);
    without = wnpu_session_size(m, &c, NULL);
    c.stream_bytes = 64000;
    without += 8 * (size_t)c.max_phrase_tokens; /* for replacements and spellings */
    T_CHECK(wnpu_session_size(m, &c, NULL) >= without + 64000 &&
            wnpu_session_size(m, &c, NULL) <= without + 64000 + 4096, "the size is known");
    s = life_open(m, &c);
    T_CHECK(wnpu_get_memory(s, &memory) == WNPU_OK && memory.stream == 64000, "memory for it");
    T_CHECK(wnpu_stream_step(s, &events) == WNPU_E_STATE && events == 0 &&
            wnpu_stream_finish(s) == WNPU_E_STATE &&
            wnpu_stream_resume(s, &p) == WNPU_E_STATE, "nothing is open");
    wnpu_stream_options_init(&o, sizeof o);
    o.rate = 7999;
    T_CHECK(wnpu_stream_begin(s, &p, &o) == WNPU_E_ARGUMENT, "rate");
    wnpu_stream_options_init(&o, sizeof o);
    o.format = WNPU_SAMPLE_F64LE;
    o.channels = 256;
    T_CHECK(wnpu_stream_begin(s, &p, &o) == WNPU_E_ARGUMENT &&
            strstr(wnpu_session_error(s), "stream_bytes") != NULL, "too small: %s",
            wnpu_session_error(s));
    p.language_windows = 2;
    T_CHECK(wnpu_stream_begin(s, &p, NULL) == WNPU_E_ARGUMENT &&
            strstr(wnpu_session_error(s), "language_windows") != NULL, "%s", wnpu_session_error(s));
    p = life_params();
    p.append = 1;
    T_CHECK(wnpu_stream_begin(s, &p, NULL) == WNPU_E_ARGUMENT &&
            strstr(wnpu_session_error(s), "append") != NULL, "%s", wnpu_session_error(s));
    p = life_params();
    p.on_segment = call_in;
    p.user = s;
    T_CHECK(wnpu_stream_begin(s, &p, NULL) == WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(wnpu_stream_begin(s, &p, NULL) == WNPU_E_STATE &&
            wnpu_transcribe(s, &p, &a) == WNPU_E_STATE && wnpu_resume(s, &p, &a) == WNPU_E_STATE &&
            wnpu_detect_speech(s, &p, &a) == WNPU_E_STATE &&
            wnpu_detect_language(s, &a, NULL, 0) == WNPU_E_STATE &&
            wnpu_choose(s, &p, &a, &phrase, 1, &choice) == WNPU_E_STATE &&
            wnpu_stream_resume(s, &p) == WNPU_E_STATE, "a stream is open");
    T_CHECK(strstr(wnpu_session_error(s), "wnpu_stream_finish") != NULL, "says %s",
            wnpu_session_error(s));
    T_CHECK(wnpu_stream_push(s, x, SIZE_MAX) == 0 && wnpu_stream_push(s, x, SIZE_MAX / 2) == 0 &&
            wnpu_stream_push(s, x, (size_t)-1 / 4 + 1) == 0 && wnpu_stream_room(s) == 32000 &&
            wnpu_get_live(s, &live) == WNPU_OK && live.overrun_ms == 0 && live.lag_ms == 0,
            "more than there can be");
    T_CHECK(wnpu_stream_room(NULL) == 0 && wnpu_stream_finish(NULL) == WNPU_E_ARGUMENT &&
            wnpu_stream_begin(NULL, &p, NULL) == WNPU_E_ARGUMENT &&
            wnpu_stream_resume(NULL, &p) == WNPU_E_ARGUMENT && wnpu_get_live(NULL, &live) ==
            WNPU_E_ARGUMENT, "no session");
    T_CHECK(wnpu_stream_push(s, NULL, SIZE_MAX) == 0 && wnpu_stream_push(NULL, x, 16) == 0 &&
            wnpu_stream_push(s, NULL, (size_t)UINT32_MAX + 1) == 0 &&
            wnpu_stream_push(s, x, 0) == 0 && wnpu_stream_step(NULL, NULL) == WNPU_E_ARGUMENT &&
            wnpu_get_live(s, NULL) == WNPU_E_ARGUMENT, "NULL");
    for (at = 0; at < n; at += 16000) {
        T_CHECK(wnpu_stream_push(s, x + at, 16000) == 16000 &&
                wnpu_stream_step(s, NULL) == WNPU_OK, "%s", wnpu_session_error(s));
    }
    T_CHECK(wnpu_segment_count(s) > 0, "no segment");
    T_CHECK(wnpu_reset(s) == WNPU_OK && wnpu_segment_count(s) == 0 && wnpu_stream_room(s) == 0 &&
            wnpu_stream_step(s, NULL) == WNPU_E_STATE, "reset ends it");
    T_CHECK(wnpu_transcribe(s, NULL, &a) >= WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(wnpu_stream_begin(s, NULL, NULL) == WNPU_OK && wnpu_stream_push(s, x, 16000) == 16000 &&
            wnpu_stream_finish(s) >= WNPU_OK && wnpu_stream_finish(s) == WNPU_E_STATE &&
            wnpu_stream_push(s, x, 16) == 0 && wnpu_stream_room(s) == 0 &&
            wnpu_stream_step(s, NULL) == WNPU_E_STATE && wnpu_get_live(s, &live) == WNPU_E_STATE,
            "after the end: %s", wnpu_session_error(s));
    free(x);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* An empty stream, and one that is ended by a callback or by a full store. */
static int stop_at_once(void *user, const wnpu_segment *segment)
{
    (void)user;
    (void)segment;
    return 1;
}

static void ends(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = open_session(m, 0);
    wnpu_params p = life_params();
    size_t n = 16000 * 40, at;
    int16_t *x = make_samples(0, n);
    wnpu_stats stats;
    int status = WNPU_OK;
    stats.struct_size = sizeof stats;
    T_CHECK(wnpu_stream_begin(s, NULL, NULL) == WNPU_OK && wnpu_stream_step(s, NULL) == WNPU_OK &&
            wnpu_stream_finish(s) == WNPU_OK && wnpu_segment_count(s) == 0 &&
            wnpu_ledger_count(s) == 0, "no audio: %s", wnpu_session_error(s));
    T_CHECK(wnpu_stream_begin(s, NULL, NULL) == WNPU_OK && wnpu_stream_push(s, x, 1) == 1 &&
            wnpu_stream_finish(s) == WNPU_OK, "one frame: %s", wnpu_session_error(s));
    p.on_segment = stop_at_once;
    T_CHECK(wnpu_stream_begin(s, &p, NULL) == WNPU_OK, "%s", wnpu_session_error(s));
    for (at = 0; at < n && status == WNPU_OK; at += 16000) {
        T_CHECK(wnpu_stream_push(s, x + at, 16000) == 16000, "push");
        status = wnpu_stream_step(s, NULL);
    }
    T_CHECK(status == WNPU_E_CANCELLED && wnpu_segment_count(s) == 1 &&
            wnpu_stream_step(s, NULL) == WNPU_E_CANCELLED &&
            wnpu_stream_finish(s) == WNPU_E_CANCELLED && wnpu_segment_count(s) == 1,
            "stopped: %d, %lu segments", status, (unsigned long)wnpu_segment_count(s));
    T_CHECK(wnpu_get_stats(s, &stats) == WNPU_OK && stats.audio_ms > 29000, "%ld ms",
            (long)stats.audio_ms);
    free(x);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- two threads ---- */

typedef struct feeder {
    pusher push;
    double seconds;             /* at most */
    int over;                   /* atomic */
} feeder;

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Pushes about twice as fast as the other thread can read, or as fast as that has room. */
static void *feed(void *user)
{
    feeder *f = user;
    struct timespec pause = {0, 200000};
    size_t k;
    for (k = 0; f->push.at < f->push.n; k++) {
        int patient = k / 400 % 2;
        if (!patient || wnpu_stream_room(f->push.session) >= 320) {
            push(&f->push, 1 + k * 7919 % 640);
        }
        if (patient || k % 4 == 0) {
            (void)nanosleep(&pause, NULL);
        }
    }
    __atomic_store_n(&f->over, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* One recording from a thread to another. Returns the frames lost. */
static size_t two_threads(wnpu_session *s, wnpu_session *other, int kind)
{
    wnpu_params p = life_params();
    pthread_t thread;
    feeder f;
    wnpu_live live;
    size_t lost;
    int status = WNPU_OK;
    memset(&f, 0, sizeof f);
    open_pusher(&f.push, s, kind, 16000 * TOY_SECONDS);
    p.vad = 1;
    live.struct_size = sizeof live;
    T_CHECK(wnpu_stream_begin(s, &p, NULL) == WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(pthread_create(&thread, NULL, feed, &f) == 0, "no thread");
    while (!__atomic_load_n(&f.over, __ATOMIC_ACQUIRE) && status == WNPU_OK) {
        struct timespec pause = {0, 1000000};
        status = wnpu_stream_step(s, NULL);
        T_CHECK(wnpu_get_live(s, &live) == WNPU_OK && live.lag_ms >= 0 && live.overrun_ms >= 0 &&
                live.committed_ms <= live.audio_ms, "live");
        (void)nanosleep(&pause, NULL);
    }
    (void)pthread_join(thread, NULL);
    T_CHECK(status == WNPU_OK, "%s", wnpu_session_error(s));
    status = wnpu_stream_finish(s);
    T_CHECK(status >= WNPU_OK && (f.push.lost == 0 || status == WNPU_INCOMPLETE), "status %d",
            status);
    heard_the_same(&f.push, &p, other);
    lost = f.push.lost;
    close_pusher(&f.push);
    return lost;
}

static void threads(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_config c = life_config(1);
    wnpu_session *s, *other;
    double end = now_s() + number_of("TEST_STREAM_SECONDS", 3);
    size_t lost = 0;
    int round = 0;
    c.stream_bytes = 16000;
    s = life_open(m, &c);
    other = life_open(m, &c);
    do {
        lost += two_threads(s, other, round % 4);
    } while (++round < 2 || now_s() < end);
    printf("  %d recordings, %.1f s lost\n", round, (double)lost / 16000);
    wnpu_session_close(s);
    wnpu_session_close(other);
    wnpu_model_close(m);
}

/* ---- cancelled steps, snapshots ---- */

/* Steps until one is not cancelled; the host's parallel-for cancels, later each time. */
static int step_through(wnpu_session *s, life_watch *w, int finish, int *cancelled)
{
    shown final = {NULL, 0, 0};
    uint32_t range = 40;
    int status;
    (void)is_final(s, &final);
    do {
        w->step = 1 + (int)(random32() % range);
        range += range / 2;
        status = finish ? wnpu_stream_finish(s) : wnpu_stream_step(s, NULL);
        *cancelled += status == WNPU_E_CANCELLED;
        T_CHECK(is_final(s, &final), "final text is gone with status %d", status);
    } while (status == WNPU_E_CANCELLED);
    free(final.text);
    return status;
}

static void cancelled_steps(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_config c = life_config(2);
    wnpu_session *s;
    wnpu_stream_options o;
    life_watch w;
    recording r;
    int kind, status, cancelled = 0;
    c.stream_bytes = 1 << 20;
    c.parallel_for = life_stop_there;
    c.parallel_user = &w;
    for (kind = 1; kind < 4; kind++) {
        uint64_t at;
        c.batch = kind == 2 ? 2 : 0;
        s = life_open(m, &c);
        w.session = s;
        w.step = 0;
        make_toy_recording(&r, kind);
        r.params.temperature_step = 0.5f; /* each window is decoded three times, */
        r.params.compression_threshold = 0.1f;
        r.params.language = 0; /* and the first time together with others if there is a batch */
        if (kind == 1) {
            confirm_words(&r, 12);
        }
        transcribe_whole(s, &r);
        o = life_stream(&r.audio, 500);
        status = wnpu_stream_begin(s, &r.params, &o);
        for (at = 0; at < r.audio.frames && status == WNPU_OK; ) {
            size_t n = wnpu_stream_room(s);
            life_push(s, &r.audio, &at, n < 30000 ? n : 30000);
            status = step_through(s, &w, 0, &cancelled);
        }
        T_CHECK(status == WNPU_OK, "step: %d, %s", status, wnpu_session_error(s));
        is_whole(s, &r, step_through(s, &w, 1, &cancelled));
        free_recording(&r);
        wnpu_session_close(s);
    }
    T_CHECK(cancelled > 20, "cancelled %d times", cancelled);
    printf("  cancelled %d times\n", cancelled);
    wnpu_model_close(m);
}

/* wnpu_cancel() between two calls stops the next step, or the end, once; calls that are refused do
 * not use it up. */
static void cancelled_between(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = open_session(m, 0);
    wnpu_stream_options o;
    recording r;
    uint64_t at;
    size_t before;
    make_toy_recording(&r, 2);
    transcribe_whole(s, &r);
    o = life_stream(&r.audio, 500);
    T_CHECK(wnpu_stream_begin(s, &r.params, &o) == WNPU_OK, "%s", wnpu_session_error(s));
    for (at = 0; at < r.audio.frames; ) {
        life_push(s, &r.audio, &at, 80000);
        before = wnpu_segment_count(s);
        wnpu_cancel(s);
        T_CHECK(wnpu_transcribe(s, &r.params, &r.audio) == WNPU_E_STATE &&
                wnpu_stream_resume(s, &r.params) == WNPU_E_STATE, "a stream is open");
        T_CHECK(wnpu_stream_step(s, NULL) == WNPU_E_CANCELLED && wnpu_segment_count(s) == before,
                "not cancelled");
        T_CHECK(wnpu_stream_step(s, NULL) == WNPU_OK, "%s", wnpu_session_error(s));
    }
    wnpu_cancel(s);
    T_CHECK(wnpu_stream_finish(s) == WNPU_E_CANCELLED, "not cancelled");
    is_whole(s, &r, wnpu_stream_finish(s));
    wnpu_cancel(s); /* nothing is in progress: the next run begins as usual */
    is_whole(s, &r, wnpu_transcribe(s, &r.params, &r.audio));
    wnpu_cancel(s);
    T_CHECK(wnpu_stream_begin(s, &r.params, &o) == WNPU_OK && wnpu_stream_step(s, NULL) == WNPU_OK,
            "an earlier call stops a stream");
    wnpu_cancel(s);
    T_CHECK(wnpu_reset(s) == WNPU_OK, "reset");
    is_whole(s, &r, wnpu_transcribe(s, &r.params, &r.audio));
    free_recording(&r);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

static int stop_at_token(void *user, const wnpu_token_event *event)
{
    (void)event;
    return --*(int *)user == 0;
}

/* A session that has had a live run continues the run of a file. */
static void file_after_stream(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s[2];
    wnpu_stream_options o;
    recording r;
    unsigned char *block;
    size_t size;
    int left = 3;
    s[0] = open_session(m, 0);
    s[1] = open_session(m, 0);
    make_toy_recording(&r, 1);
    transcribe_whole(s[0], &r);
    r.params.on_token = stop_at_token;
    r.params.user = &left;
    T_CHECK(wnpu_transcribe(s[0], &r.params, &r.audio) == WNPU_E_CANCELLED, "not stopped");
    size = wnpu_snapshot_size(s[0]);
    block = malloc(size);
    T_CHECK(wnpu_snapshot(s[0], block, size) == WNPU_OK, "%s", wnpu_session_error(s[0]));
    o = life_stream(&r.audio, 500);
    T_CHECK(wnpu_stream_begin(s[1], NULL, &o) == WNPU_OK && wnpu_stream_finish(s[1]) == WNPU_OK &&
            wnpu_restore(s[1], block, size) == WNPU_OK, "%s", wnpu_session_error(s[1]));
    is_whole(s[1], &r, wnpu_resume(s[1], &r.params, &r.audio));
    free(block);
    free_recording(&r);
    wnpu_session_close(s[0]);
    wnpu_session_close(s[1]);
    wnpu_model_close(m);
}

/* Two sessions that a run moves between, with other instruction sets and numbers of threads. */
typedef struct pair {
    wnpu_session *s[2];
    life_watch watch; /* cancels steps */
    unsigned char *block;
    int here, moves, cancelled;
} pair;

static void open_pair(pair *p, const wnpu_model *m, int kind)
{
    wnpu_config c = life_config(1);
    memset(p, 0, sizeof *p);
    c.stream_bytes = 1 << 18;
    c.batch = kind == 2 ? 2 : 0;
    c.parallel_for = life_stop_there;
    c.parallel_user = &p->watch;
    c.isa = choose_isa(kind);
    p->s[0] = life_open(m, &c);
    c.threads = 2;
    c.isa = kind == 1 ? WNPU_ISA_SCALAR : choose_isa(kind + 1);
    p->s[1] = life_open(m, &c);
    p->block = malloc(wnpu_snapshot_most(p->s[0]));
}

static int move(pair *p, const recording *r)
{
    wnpu_session *s = p->s[p->here];
    size_t size = wnpu_snapshot_size(s);
    shown final = {NULL, 0, 0};
    int status;
    (void)is_final(s, &final);
    T_CHECK(size > 0 && size <= wnpu_snapshot_most(s) &&
            wnpu_snapshot(s, p->block, size) == WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(wnpu_reset(s) == WNPU_OK, "reset");
    p->here = random32() % 2 == 0 ? p->here : !p->here;
    p->moves++;
    s = p->s[p->here];
    T_CHECK(wnpu_restore(s, p->block, size) == WNPU_OK &&
            wnpu_stream_push(s, p->block, 1) == 0 &&
            wnpu_stream_step(s, NULL) == WNPU_E_STATE &&
            wnpu_resume(s, &r->params, &r->audio) == WNPU_E_STATE &&
            wnpu_stream_resume(s, NULL) == WNPU_E_ARGUMENT, "restored");
    status = wnpu_stream_resume(s, &r->params);
    T_CHECK(is_final(s, &final), "final text is gone after a move");
    free(final.text);
    return status;
}

/* One live run in random pieces. At random times it moves to the other session, with what waits in
 * the ring, and steps are cancelled. */
static void moving_run(pair *p, const recording *r)
{
    wnpu_stream_options o = life_stream(&r->audio, 500);
    unsigned usual = 1000 + random32() % 40000;
    uint64_t at;
    int status = wnpu_stream_begin(p->s[p->here], &r->params, &o);
    for (at = 0; at < r->audio.frames && status == WNPU_OK; ) {
        size_t n = random32() % usual, room = wnpu_stream_room(p->s[p->here]);
        life_push(p->s[p->here], &r->audio, &at, n < room ? n : room);
        p->watch.session = p->s[p->here];
        if (random32() % 3 == 0) {
            status = step_through(p->s[p->here], &p->watch, 0, &p->cancelled);
        } else if (random32() % 2 == 0 || n >= room) {
            status = wnpu_stream_step(p->s[p->here], NULL);
        }
        p->watch.step = 0;
        if (random32() % 3 == 0 && status == WNPU_OK) {
            status = move(p, r);
        }
    }
    T_CHECK(status == WNPU_OK, "step: %d, %s", status, wnpu_session_error(p->s[p->here]));
    is_whole(p->s[p->here], r, wnpu_stream_finish(p->s[p->here]));
}

/* TEST_MOVES: how many runs with confirmed words. */
static void snapshots(void)
{
    wnpu_model *m = life_toy(7, NULL);
    recording r;
    int kind, turn, moves = 0, cancelled = 0;
    for (kind = 1; kind < 4; kind++) {
        pair p;
        open_pair(&p, m, kind);
        make_toy_recording(&r, kind);
        if (kind == 1) {
            confirm_words(&r, 8);
        }
        transcribe_whole(p.s[0], &r);
        for (turn = kind == 1 ? number_of("TEST_MOVES", 1) : 1; turn > 0; turn--) {
            moving_run(&p, &r);
        }
        moves += p.moves;
        cancelled += p.cancelled;
        free_recording(&r);
        free(p.block);
        wnpu_session_close(p.s[0]);
        wnpu_session_close(p.s[1]);
    }
    T_CHECK(moves > 20 && cancelled > 0, "moved %d, cancelled %d times", moves, cancelled);
    printf("  moved %d times, cancelled %d times\n", moves, cancelled);
    wnpu_model_close(m);
}

/* A run of the detector alone stays one when it moves. */
static void detector_moves(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s[2], *narrow;
    wnpu_config c = life_config(1);
    wnpu_params p = life_params();
    wnpu_stream_options o;
    recording r;
    unsigned char *block;
    uint64_t at = 0;
    size_t size;
    make_toy_recording(&r, 2);
    s[0] = open_session(m, 0);
    s[1] = open_session(m, 0);
    c.stream_bytes = 1 << 19;
    narrow = life_open(m, &c);
    block = malloc(wnpu_snapshot_most(s[0]));
    r.status = wnpu_detect_speech(s[1], &p, &r.audio);
    r.want = life_written(s[1], WNPU_FORMAT_JSON);
    r.counts = life_counts(s[1]);
    T_CHECK(wnpu_speech_span_count(s[1]) > 1, "no speech");
    p.language = 2; /* not used */
    o = life_stream(&r.audio, 500);
    o.detect_only = 1;
    T_CHECK(wnpu_stream_begin(s[0], &p, &o) == WNPU_OK, "%s", wnpu_session_error(s[0]));
    while (at < r.audio.frames / 2) {
        life_push(s[0], &r.audio, &at, 16000);
        T_CHECK(wnpu_stream_step(s[0], NULL) == WNPU_OK, "%s", wnpu_session_error(s[0]));
    }
    size = wnpu_snapshot_size(s[0]);
    T_CHECK(wnpu_detect_speech(narrow, &p, &r.audio) == WNPU_OK &&
            wnpu_snapshot(s[0], block, size) == WNPU_OK &&
            wnpu_restore(narrow, block, size) == WNPU_E_ARGUMENT &&
            strstr(wnpu_session_error(narrow), "stream_bytes") != NULL, "another size: %s",
            wnpu_session_error(narrow));
    is_whole(narrow, &r, r.status); /* its results are as before */
    wnpu_session_close(narrow);
    p.append = 1;
    T_CHECK(wnpu_restore(s[1], block, size) == WNPU_OK &&
            wnpu_stream_resume(s[1], &p) == WNPU_E_ARGUMENT, "append: %s",
            wnpu_session_error(s[1]));
    p.append = 0;
    T_CHECK(wnpu_restore(s[1], block, size) == WNPU_OK &&
            wnpu_stream_resume(s[1], &p) == WNPU_OK, "%s", wnpu_session_error(s[1]));
    while (at < r.audio.frames) {
        life_push(s[1], &r.audio, &at, 16000);
        T_CHECK(wnpu_stream_step(s[1], NULL) == WNPU_OK, "%s", wnpu_session_error(s[1]));
    }
    is_whole(s[1], &r, wnpu_stream_finish(s[1]));
    free_recording(&r);
    free(block);
    wnpu_session_close(s[0]);
    wnpu_session_close(s[1]);
    wnpu_model_close(m);
}

int main(int argc, char **argv)
{
    t_chosen = argc > 1 ? argv + 1 : NULL;
    t_run("pieces of any size give what the whole gives", toy_chunks);
    t_run("every format, rate and number of channels", formats);
    t_run("pieces of speech, on several instruction sets", speech_chunks);
    t_run("a cancelled step is continued", cancelled_steps);
    t_run("a call between two steps cancels the next one", cancelled_between);
    t_run("a run of a file goes on where a stream was", file_after_stream);
    t_run("a live run moves to another session, between cancelled steps", snapshots);
    t_run("a run of the detector alone moves to another session", detector_moves);
    t_run("what is lost is in the ledger, and the rest is heard", overrun);
    t_run("many losses in one window", losses);
    t_run("one thread pushes, another steps", threads);
    t_run("misuse", misuse);
    t_run("how streams end", ends);
    return t_end();
}
