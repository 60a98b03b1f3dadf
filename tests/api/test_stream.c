/* test_stream.c - audio that is pushed in pieces gives, after each step, the beginning of what the
 * whole recording gives, and in the end the same bytes. */
#define _GNU_SOURCE 1
#include "../lib/life.h"
#include "../lib/voicelike.h"

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

#define PARTS 3
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

static size_t bytes_of(const wnpu_audio *a)
{
    static const size_t widths[] = {4, 2, 1, 2, 3, 4, 4, 8, 1, 1};
    return widths[a->format] * a->channels;
}

static wnpu_stream_options options_of(const wnpu_audio *a)
{
    wnpu_stream_options o;
    wnpu_stream_options_init(&o, sizeof o);
    o.format = a->format;
    o.rate = a->rate;
    o.channels = a->channels;
    o.channel = a->channel;
    return o;
}

/* Pushes the recording in random pieces, of which most are about `usual` frames, with steps at
 * random times, and checks what each step leaves against the one before and `whole`. */
static int live_run(wnpu_session *s, const wnpu_params *p, const wnpu_audio *a, const view *whole)
{
    wnpu_stream_options o = options_of(a);
    const unsigned char *data = a->data;
    size_t usual = a->rate / (1 + random32() % 50), frame = bytes_of(a);
    uint64_t at = 0;
    view now, before;
    int status = wnpu_stream_begin(s, p, &o);
    memset(&now, 0, sizeof now);
    memset(&before, 0, sizeof before);
    T_CHECK(status == WNPU_OK, "begin: %s", wnpu_session_error(s));
    look(s, &before);
    while (at < a->frames && status == WNPU_OK) {
        size_t n = random32() % 8 == 0 ? random32() % (10 * usual) : random32() % (2 * usual);
        n = n < a->frames - at ? n : (size_t)(a->frames - at);
        n = n < wnpu_stream_room(s) ? n : wnpu_stream_room(s);
        T_CHECK(wnpu_stream_push(s, data + at * frame, n) == n, "%lu frames", (unsigned long)n);
        at += n;
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

/* One chunking of a recording, against the whole. */
static void same(wnpu_session *s, const wnpu_params *p, const wnpu_audio *a, const char *name)
{
    life_bytes want, is;
    view whole;
    int status = wnpu_transcribe(s, p, a), live;
    memset(&whole, 0, sizeof whole);
    T_CHECK(status >= WNPU_OK, "%s: %s", name, wnpu_session_error(s));
    want = life_written(s, WNPU_FORMAT_JSON);
    look(s, &whole);
    live = live_run(s, p, a, &whole);
    T_CHECK(live == status, "%s: status %d, whole %d", name, live, status);
    is = life_written(s, WNPU_FORMAT_JSON);
    T_CHECK(life_alike(want, is), "%s: other results", name);
    if (getenv("TEST_SHOW") != NULL && !life_alike(want, is)) {
        printf("--- whole\n%s--- live\n%s", want.bytes, is.bytes);
    }
    free(want.bytes);
    free(is.bytes);
    free_view(&whole);
}

static wnpu_session *open_session(const wnpu_model *m, unsigned batch)
{
    wnpu_config c = life_config(2);
    c.stream_bytes = 1 << 20;
    c.batch = batch;
    return life_open(m, &c);
}

static void toy_chunks(void)
{
    wnpu_model *m = life_toy(7, NULL);
    unsigned batch;
    int kind;
    for (batch = 0; batch <= 2; batch++) {
        wnpu_session *s = open_session(m, batch);
        for (kind = 0; kind < 6; kind++) {
            size_t n = 16000 * TOY_SECONDS + 77;
            float *x = make_sound(kind, n);
            wnpu_audio a = life_audio(x, n);
            wnpu_params p = life_params();
            char name[64];
            p.vad = kind != 4;
            p.words = kind % 2;
            p.max_tokens = 40;
            (void)snprintf(name, sizeof name, "toy, sound %d, batch %u", kind, batch);
            same(s, &p, &a, name);
            free(x);
        }
        wnpu_session_close(s);
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

static void push(pusher *p, size_t n)
{
    size_t accepted;
    n = n < p->n - p->at ? n : p->n - p->at;
    accepted = wnpu_stream_push(p->session, p->from + p->at, n);
    memcpy(p->heard + p->at, p->from + p->at, accepted * sizeof *p->heard);
    if (accepted < n) {
        memset(p->gone + (p->at + accepted) / 16, 1, (p->at + n - 1) / 16 + 1 -
                                                     (p->at + accepted) / 16);
    }
    p->at += n;
    p->lost += n - accepted;
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
        push(&w, 320);
        if (busy ? second < 20 ? 0 : random32() % 60 == 0 : random32() % 3 == 0) {
            T_CHECK(wnpu_stream_step(s, &events) == WNPU_OK, "%s", wnpu_session_error(s));
            seen |= events;
        }
    }
    live.struct_size = sizeof live;
    T_CHECK(wnpu_get_live(s, &live) == WNPU_OK && live.overrun_ms == (int64_t)w.lost / 16,
            "%ld ms lost", (long)live.overrun_ms);
    T_CHECK(w.lost > 16000 * 6 && w.lost < 16000 * 30, "%lu frames lost", (unsigned long)w.lost);
    status = wnpu_stream_finish(s);
    T_CHECK(status == WNPU_INCOMPLETE && (seen & WNPU_EVENT_COMMITTED), "status %d, events %x",
            status, (unsigned)seen);
    heard_the_same(&w, &p, other);
    wnpu_session_close(s);
    wnpu_session_close(other);
    close_pusher(&w);
    wnpu_model_close(m);
}

int main(void)
{
    t_run("pieces of any size give what the whole gives", toy_chunks);
    t_run("what is lost is in the ledger, and the rest is heard", overrun);
    return t_end();
}
