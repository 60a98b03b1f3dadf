/* test_live.c - what a live run shows before it is final: tentative text, events of speech, and that
 * neither changes any result. */
#define _GNU_SOURCE 1
#include "../lib/life.h"
#include "../lib/voicelike.h"

#include <pthread.h>
#include <stdatomic.h>

#define RATE 16000
#define SECONDS 24
#define CHUNK 640

/* Speech-like sound from 1 to 6, 7 to 12 and 15 to 21 s; else quiet noise. */
static float *make_sound(size_t *n)
{
    float *x, *voice = voicelike(RATE * SECONDS, 1);
    size_t i;
    *n = RATE * SECONDS;
    x = malloc(*n * sizeof *x);
    for (i = 0; i < *n; i++) {
        double s = (double)i / RATE;
        int spoken = (s >= 1 && s < 6) || (s >= 7 && s < 12) || (s >= 15 && s < 21);
        x[i] = (spoken ? voice[i] : 0) + (float)(voice_chance() - 0.5) * 1e-4f;
    }
    free(voice);
    return x;
}

static wnpu_session *open_session(const wnpu_model *m, uint32_t batch)
{
    wnpu_config c;
    wnpu_session *s = NULL;
    wnpu_config_init(&c, sizeof c);
    c.threads = 1;
    c.batch = batch;
    c.stream_bytes = 4 * RATE * 4;
    T_CHECK(wnpu_session_open(&s, m, &c, NULL, 0, NULL) == WNPU_OK, "session");
    return s;
}

static wnpu_params phrase_params(void)
{
    wnpu_params p;
    wnpu_params_init(&p, sizeof p);
    p.language = 0;
    p.max_tokens = 12;
    p.least_ms = 1000;
    p.pause_ms = 700;
    p.words = 1;
    p.temperature_step = 0;
    p.logprob_threshold = -INFINITY;
    p.no_speech_threshold = 1;
    return p;
}

/* What was seen during a run. */
typedef struct seen {
    int updates, starts, ends, commits;
    size_t longest;
    int64_t t0_ms[8], t1_ms[8];
    char text[4096];
} seen;

static void check_live(const wnpu_live *live)
{
    T_CHECK(live->text != NULL && strlen(live->text) == live->text_length, "text");
    T_CHECK(live->likely_length <= live->text_length, "likely %d of %d", (int)live->likely_length,
            (int)live->text_length);
    T_CHECK(live->text_length == 0 || (live->t0_ms >= live->committed_ms &&
            live->t1_ms > live->t0_ms && live->t1_ms <= live->audio_ms), "times of the text");
}

static wnpu_stream_options float_options(int step_ms)
{
    wnpu_audio a = life_audio(NULL, 0);
    return life_stream(&a, step_ms);
}

static int run_live(wnpu_session *s, const wnpu_params *p, const wnpu_stream_options *o,
                    const float *x, size_t n, size_t chunk, seen *w)
{
    wnpu_audio a = life_audio(x, n);
    uint64_t at = 0;
    uint32_t events, revision = 0;
    int status = WNPU_OK;
    memset(w, 0, sizeof *w);
    T_CHECK(wnpu_stream_begin(s, p, o) == WNPU_OK, "%s", wnpu_session_error(s));
    while (at < n && status == WNPU_OK) {
        wnpu_live live;
        life_push(s, &a, &at, chunk);
        status = wnpu_stream_step(s, &events);
        live.struct_size = sizeof live;
        T_CHECK(wnpu_get_live(s, &live) == WNPU_OK, "live");
        check_live(&live);
        T_CHECK((live.revision != revision) == ((events & WNPU_EVENT_TENTATIVE) != 0),
                "revision %u after %u, events %x", live.revision, revision, events);
        T_CHECK((strcmp(live.text, w->text) != 0) == ((events & WNPU_EVENT_TENTATIVE) != 0),
                "\"%s\" after \"%s\", events %x", live.text, w->text, events);
        revision = live.revision;
        snprintf(w->text, sizeof w->text, "%s", live.text);
        w->longest = live.text_length > w->longest ? live.text_length : w->longest;
        w->updates += (events & WNPU_EVENT_TENTATIVE) != 0;
        w->commits += (events & WNPU_EVENT_COMMITTED) != 0;
        if ((events & WNPU_EVENT_SPEECH_START) && w->starts < 8) {
            w->t0_ms[w->starts++] = live.utterance_t0_ms;
        }
        if ((events & WNPU_EVENT_UTTERANCE_END) && w->ends < 8) {
            w->t1_ms[w->ends++] = live.utterance_t1_ms;
        }
    }
    return status == WNPU_OK ? wnpu_stream_finish(s) : status;
}

/* Tentative text is shown, and the results are those of the whole recording. */
static void tentative(void)
{
    static const int steps[] = {0, 100, 500};
    size_t n, i;
    float *x = make_sound(&n);
    wnpu_model *m = life_toy(7, NULL);
    wnpu_audio a = life_audio(x, n);
    size_t longest = 0; /* when texts are decoded depends on the time, so in all runs together */
    uint32_t batch;
    for (batch = 0; batch < 3; batch++) {
        wnpu_session *s = open_session(m, batch);
        wnpu_params p = phrase_params();
        life_bytes whole, live;
        p.encode_margin_ms = batch == 0 ? 4000 : 0;
        int status = wnpu_transcribe(s, &p, &a);
        T_CHECK(status >= 0, "%s", wnpu_session_error(s));
        whole = life_written(s, WNPU_FORMAT_JSON);
        for (i = 0; i < sizeof steps / sizeof steps[0]; i++) {
            wnpu_stream_options o = float_options(steps[i]);
            seen w;
            T_CHECK(run_live(s, &p, &o, x, n, CHUNK, &w) == status, "%s", wnpu_session_error(s));
            live = life_written(s, WNPU_FORMAT_JSON);
            T_CHECK(life_alike(whole, live), "batch %u, step %d: other results", batch, steps[i]);
            T_CHECK(w.updates == 0 || (steps[i] > 0 && batch < 2), "batch %u, step %d: %d updates",
                    batch, steps[i], w.updates);
            T_CHECK(w.longest == 0 || (steps[i] > 0 && batch < 2), "batch %u, step %d: %d bytes",
                    batch, steps[i], (int)w.longest);
            longest = w.longest > longest ? w.longest : longest;
            free(live.bytes);
        }
        free(whole.bytes);
        wnpu_session_close(s);
    }
    T_CHECK(longest > 0, "no text was shown");
    wnpu_model_close(m);
    free(x);
}

/* Utterances are where the sound is. (It has pauses of its own.) */
static void utterances(void)
{
    static const int64_t begins[] = {1000, 7000, 15000}, ends[] = {6000, 12000, 21000};
    size_t n, i, k;
    float *x = make_sound(&n);
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = open_session(m, 0);
    wnpu_params p = phrase_params();
    wnpu_stream_options o = float_options(0);
    seen w;
    o.hangover_ms = 600;
    T_CHECK(run_live(s, &p, &o, x, n, CHUNK, &w) >= 0, "%s", wnpu_session_error(s));
    T_CHECK(w.starts >= 3 && w.ends == w.starts, "%d begin, %d end", w.starts, w.ends);
    for (i = 0; i < 3; i++) {
        int begun = 0, ended = 0;
        for (k = 0; k < (size_t)w.starts; k++) {
            begun += llabs(w.t0_ms[k] - begins[i]) <= 250;
            ended += llabs(w.t1_ms[k] - ends[i]) <= 250;
            T_CHECK(w.t1_ms[k] > w.t0_ms[k] && (k == 0 || w.t0_ms[k] >= w.t1_ms[k - 1] + 600),
                    "utterance %d: %ld..%ld", (int)k, (long)w.t0_ms[k], (long)w.t1_ms[k]);
        }
        T_CHECK(begun == 1 && ended == 1, "speech %d: begins %d, ends %d", (int)i, begun, ended);
    }
    wnpu_session_close(s);
    wnpu_model_close(m);
    free(x);
}

#define LONG_SECONDS 168
#define MOST_UTTERANCES 400

/* Utterances in the order in which steps report them. */
typedef struct heard {
    int n, open;                /* open: the last one has no end */
    int more;                   /* the last step had WNPU_EVENT_MORE */
    life_bytes json;
    int64_t t0_ms[MOST_UTTERANCES], t1_ms[MOST_UTTERANCES];
} heard;

static void hear_step(wnpu_session *s, heard *h)
{
    uint32_t events;
    wnpu_live live;
    live.struct_size = sizeof live;
    T_CHECK(wnpu_stream_step(s, &events) == WNPU_OK && wnpu_get_live(s, &live) == WNPU_OK, "%s",
            wnpu_session_error(s));
    if (events & WNPU_EVENT_SPEECH_START) {
        T_CHECK(!h->open && h->n < MOST_UTTERANCES, "two begins");
        h->t0_ms[h->n++] = live.utterance_t0_ms;
        h->open = 1;
    }
    if (events & WNPU_EVENT_UTTERANCE_END) {
        T_CHECK(h->open && live.utterance_t0_ms == h->t0_ms[h->n - 1] &&
                live.utterance_t1_ms > live.utterance_t0_ms, "an end without a begin");
        h->t1_ms[h->n - 1] = live.utterance_t1_ms;
        h->open = 0;
    }
    h->more = (events & WNPU_EVENT_MORE) != 0;
}

/* Steps until there are no more events. */
static void hear(wnpu_session *s, heard *h)
{
    do {
        hear_step(s, h);
    } while (h->more);
}

/* Pushes a recording in pieces. At each `move`th one the run moves to another session, if move is
 * not 0. */
static void hear_all(wnpu_session *s[2], const wnpu_stream_options *o, const float *x, size_t n,
                     size_t chunk, int move, heard *h)
{
    wnpu_params p = phrase_params();
    unsigned char *block = malloc(wnpu_snapshot_most(s[0]));
    wnpu_audio a = life_audio(x, n);
    uint64_t at = 0;
    int here = 0, pieces = 0;
    memset(h, 0, sizeof *h);
    T_CHECK(wnpu_stream_begin(s[here], &p, o) == WNPU_OK, "%s", wnpu_session_error(s[here]));
    while (at < n) {
        life_push(s[here], &a, &at, chunk);
        if (move > 0 && ++pieces % move == 0) {
            wnpu_live live, there;
            size_t size = wnpu_snapshot_size(s[here]);
            live.struct_size = there.struct_size = sizeof live;
            T_CHECK(wnpu_get_live(s[here], &live) == WNPU_OK &&
                    wnpu_snapshot(s[here], block, size) == WNPU_OK &&
                    wnpu_restore(s[!here], block, size) == WNPU_OK &&
                    wnpu_get_live(s[!here], &there) == WNPU_OK &&
                    wnpu_stream_resume(s[!here], &p) == WNPU_OK &&
                    wnpu_reset(s[here]) == WNPU_OK, "%s%s", wnpu_session_error(s[here]),
                    wnpu_session_error(s[!here]));
            T_CHECK(live.utterance_t0_ms == there.utterance_t0_ms &&
                    live.utterance_t1_ms == there.utterance_t1_ms &&
                    live.speaking == there.speaking && live.lag_ms == there.lag_ms, "live");
            here = !here;
        }
        hear(s[here], h);
    }
    T_CHECK(wnpu_stream_finish(s[here]) >= 0, "%s", wnpu_session_error(s[here]));
    free(block);
}

static void same_heard(const heard *a, const heard *b, const char *what)
{
    T_CHECK(a->n == b->n && a->open == b->open &&
            memcmp(a->t0_ms, b->t0_ms, sizeof a->t0_ms) == 0 &&
            memcmp(a->t1_ms, b->t1_ms, sizeof a->t1_ms) == 0, "%s: %d utterances, not %d", what,
            a->n, b->n);
}

/* No utterance is missed if several end before a step, or the run moves to another session. What
 * is beyond the limit is dropped, but neither the first one nor the latest ones. */
static void each_utterance(void)
{
    static heard want, is;
    size_t n, i, k;
    float *x, *all = malloc(RATE * LONG_SECONDS * sizeof *all);
    wnpu_model *m = life_toy(7, NULL);
    wnpu_config c = life_config(1);
    wnpu_session *s[2];
    wnpu_stream_options o = float_options(0);
    voice_seed = 5; /* the same sound whatever ran before */
    x = make_sound(&n);
    for (i = 0; i < RATE * LONG_SECONDS; i++) {
        all[i] = x[i % n];
    }
    n = RATE * LONG_SECONDS;
    c.stream_bytes = sizeof *all * n;
    s[0] = life_open(m, &c);
    s[1] = life_open(m, &c);
    for (o.detect_only = 0; o.detect_only < 2; o.detect_only++) {
        hear_all(s, &o, all, n, CHUNK, 0, &want);
        T_CHECK(want.n >= 3 * LONG_SECONDS / SECONDS, "%d utterances", want.n);
        hear_all(s, &o, all, n, n, 0, &is);
        same_heard(&is, &want, "at once");
        hear_all(s, &o, all, n, 30 * RATE, 0, &is);
        same_heard(&is, &want, "pieces of 30 s");
        hear_all(s, &o, all, n, RATE / 5, 13, &is);
        same_heard(&is, &want, "in two sessions");
        hear_all(s, &o, all, n, 50 * RATE, 1, &is);
        same_heard(&is, &want, "in two sessions, 50 s late");
    }
    for (i = 0; i < n; i++) {
        all[i] = i / 4800 % 2 ? 0 : x[RATE + i % (7 * RATE / 4)];
    }
    o.hangover_ms = 100;
    o.detect_only = 1;
    hear_all(s, &o, all, n, CHUNK, 0, &want);
    hear_all(s, &o, all, n, n, 0, &is);
    T_CHECK(want.n > 135 && is.n == 128, "%d of %d utterances", is.n, want.n);
    for (k = 0; k < (size_t)is.n; k++) {
        i = k + (size_t)(want.n - is.n);
        T_CHECK(is.t0_ms[k] == want.t0_ms[k > 0 ? i : 0], "utterance %d", (int)k);
    }
    wnpu_session_close(s[0]);
    wnpu_session_close(s[1]);
    wnpu_model_close(m);
    free(x);
    free(all);
}

/* Moves a live run, and returns the other session. */
static wnpu_session *move_run(wnpu_session *from, wnpu_session *to, const wnpu_params *p)
{
    size_t size = wnpu_snapshot_size(from);
    void *block = malloc(size);
    T_CHECK(wnpu_snapshot(from, block, size) == WNPU_OK && wnpu_reset(from) == WNPU_OK &&
            wnpu_restore(to, block, size) == WNPU_OK && wnpu_stream_resume(to, p) == WNPU_OK,
            "%s%s", wnpu_session_error(from), wnpu_session_error(to));
    free(block);
    return to;
}

/* Steps after the end; move: with cancelled ones and moves. Each decodes a window at most. */
static void hear_rest(wnpu_session *s[2], const wnpu_params *p, float *x, int move, heard *h)
{
    int here = 0, i, status;
    wnpu_stats stats;
    wnpu_live live;
    stats.struct_size = sizeof stats;
    live.struct_size = sizeof live;
    T_CHECK(wnpu_stream_end(s[0]) == WNPU_OK && wnpu_stream_end(s[0]) == WNPU_OK, "%s",
            wnpu_session_error(s[0]));
    for (i = 0; i == 0 || h->more; i++) {
        uint32_t before;
        T_CHECK(wnpu_get_stats(s[here], &stats) == WNPU_OK, "statistics");
        before = stats.windows;
        hear_step(s[here], h);
        T_CHECK(wnpu_get_stats(s[here], &stats) == WNPU_OK && stats.windows <= before + 1,
                "%u windows in a step", stats.windows - before);
        if (move) {
            wnpu_cancel(s[here]);
            T_CHECK(wnpu_stream_step(s[here], NULL) == WNPU_E_CANCELLED, "not cancelled");
            here = move_run(s[here], s[!here], p) == s[!here] ? !here : here;
        }
        T_CHECK(wnpu_stream_push(s[here], x, 1) == 0 && wnpu_stream_room(s[here]) == 0,
                "a sample after the end");
    }
    T_CHECK(!h->open && wnpu_get_live(s[here], &live) == WNPU_OK && live.lag_ms == 0 &&
            live.overrun_ms == 0, "%d utterances, the last is open: %d", h->n, h->open);
    status = wnpu_stream_finish(s[here]);
    T_CHECK(status >= 0, "%d, %s", status, wnpu_session_error(s[here]));
    h->json = life_written(s[here], WNPU_FORMAT_JSON);
    T_CHECK(wnpu_stream_end(s[here]) == WNPU_E_STATE, "ended");
}

/* After wnpu_stream_end(), steps report what wnpu_stream_finish() alone would swallow: also the
 * utterance in which the recording ends. Results are those of the whole recording. */
static void after_the_end(void)
{
    static heard want, is;
    size_t n;
    float *x = make_sound(&n);
    wnpu_model *m = life_toy(7, NULL);
    wnpu_config c = life_config(1);
    wnpu_params p = phrase_params();
    wnpu_stream_options o = float_options(500);
    wnpu_session *s[2];
    wnpu_audio a;
    life_bytes whole;
    int move, status;
    memset(x + RATE * 37 / 2, 0, sizeof *x * (n - RATE * 37 / 2));
    c.stream_bytes = sizeof *x * n;
    s[0] = life_open(m, &c);
    s[1] = life_open(m, &c);
    T_CHECK(wnpu_stream_end(NULL) == WNPU_E_ARGUMENT && wnpu_stream_end(s[0]) == WNPU_E_STATE,
            "no stream");
    for (o.detect_only = 0; o.detect_only < 2; o.detect_only++) {
        hear_all(s, &o, x, n, CHUNK, 0, &want); /* the same with silence behind it */
        T_CHECK(want.n >= 3 && !want.open, "%d utterances", want.n);
        a = life_audio(x, RATE * 37 / 2); /* ends while somebody speaks */
        status = o.detect_only ? wnpu_detect_speech(s[0], &p, &a) : wnpu_transcribe(s[0], &p, &a);
        T_CHECK(status >= 0, "%s", wnpu_session_error(s[0]));
        whole = life_written(s[0], WNPU_FORMAT_JSON);
        for (move = 0; move < 2; move++) {
            memset(&is, 0, sizeof is);
            T_CHECK(wnpu_stream_begin(s[0], &p, &o) == WNPU_OK &&
                    wnpu_stream_push(s[0], x, (size_t)a.frames) == a.frames, "%s",
                    wnpu_session_error(s[0]));
            hear_rest(s, &p, x, move, &is);
            T_CHECK(llabs(want.t1_ms[want.n - 1] - is.t1_ms[want.n - 1]) < 150, "ends at %ld",
                    (long)is.t1_ms[want.n - 1]);
            is.t1_ms[want.n - 1] = want.t1_ms[want.n - 1];
            same_heard(&is, &want, move ? "moved" : "at once");
            T_CHECK(life_alike(whole, is.json), "other results");
            free(is.json.bytes);
        }
        free(whole.bytes);
    }
    wnpu_session_close(s[0]);
    wnpu_session_close(s[1]);
    wnpu_model_close(m);
    free(x);
}

/* A step decodes one window at most, and says whether the next one can be decoded at once. */
static void one_window(void)
{
    size_t n;
    float *x = make_sound(&n);
    wnpu_model *m = life_toy(7, NULL);
    wnpu_config c = life_config(1);
    wnpu_audio a = life_audio(x, n);
    wnpu_stream_options o = float_options(500);
    wnpu_params p = phrase_params();
    wnpu_session *s;
    life_bytes whole, live;
    wnpu_stats stats;
    uint32_t events, before = 0;
    int status, steps = 0;
    c.stream_bytes = sizeof *x * n;
    s = life_open(m, &c);
    status = wnpu_transcribe(s, &p, &a);
    whole = life_written(s, WNPU_FORMAT_JSON);
    T_CHECK(wnpu_stream_begin(s, &p, &o) == WNPU_OK && wnpu_stream_push(s, x, n) == n, "%s",
            wnpu_session_error(s));
    stats.struct_size = sizeof stats;
    do {
        T_CHECK(wnpu_stream_step(s, &events) == WNPU_OK &&
                wnpu_get_stats(s, &stats) == WNPU_OK, "%s", wnpu_session_error(s));
        T_CHECK(stats.windows <= before + 1, "%u windows in a step", stats.windows - before);
        steps += stats.windows > before;
        before = stats.windows;
    } while (events & WNPU_EVENT_MORE);
    T_CHECK(steps > 1, "%d windows", steps);
    T_CHECK(wnpu_stream_step(s, &events) == WNPU_OK && wnpu_get_stats(s, &stats) == WNPU_OK &&
            stats.windows == before, "a window was left");
    T_CHECK(wnpu_stream_finish(s) == status, "%s", wnpu_session_error(s));
    live = life_written(s, WNPU_FORMAT_JSON);
    T_CHECK(life_alike(whole, live), "other results");
    free(whole.bytes);
    free(live.bytes);
    wnpu_session_close(s);
    wnpu_model_close(m);
    free(x);
}

/* The parameters that NULL stands for: a run that was begun with NULL continues with them only. */
static void default_params(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = open_session(m, 1);
    wnpu_params live, file;
    unsigned char *block;
    size_t size;
    wnpu_stream_params_init(&live, sizeof live);
    wnpu_params_init(&file, sizeof file);
    T_CHECK(wnpu_stream_begin(s, NULL, NULL) == WNPU_OK, "%s", wnpu_session_error(s));
    size = wnpu_snapshot_size(s);
    block = malloc(size);
    T_CHECK(wnpu_snapshot(s, block, size) == WNPU_OK && wnpu_reset(s) == WNPU_OK &&
            wnpu_restore(s, block, size) == WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(wnpu_stream_resume(s, &file) == WNPU_E_ARGUMENT, "those of a file");
    T_CHECK(wnpu_stream_resume(s, &live) == WNPU_OK, "%s", wnpu_session_error(s));
    free(block);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* The detector alone finds what it finds in the whole recording, and decodes nothing. */
static void use_detector(const wnpu_model *m)
{
    static const size_t chunks[] = {160, 1000, 16000};
    size_t n, i, k;
    float *x = make_sound(&n);
    wnpu_session *s = open_session(m, 0);
    wnpu_params p = phrase_params();
    wnpu_audio a = life_audio(x, n);
    life_bytes whole, live;
    wnpu_stats stats;
    float language_probability;
    p.vad = 0;
    p.commit_step_ms = 800; /* neither is used */
    T_CHECK(wnpu_detect_speech(s, &p, &a) == WNPU_OK && wnpu_speech_span_count(s) > 0, "%s",
            wnpu_session_error(s));
    whole = life_written(s, WNPU_FORMAT_JSON);
    stats.struct_size = sizeof stats;
    T_CHECK(wnpu_get_stats(s, &stats) == WNPU_OK, "statistics");
    language_probability = stats.language_probability;
    for (i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        wnpu_stream_options o = float_options(500);
        seen w;
        o.detect_only = 1;
        T_CHECK(run_live(s, &p, &o, x, n, chunks[i], &w) == WNPU_OK, "%s", wnpu_session_error(s));
        live = life_written(s, WNPU_FORMAT_JSON);
        T_CHECK(life_alike(whole, live), "pieces of %d: other spans", (int)chunks[i]);
        stats.struct_size = sizeof stats;
        T_CHECK(wnpu_get_stats(s, &stats) == WNPU_OK && stats.windows == 0, "decoded");
        T_CHECK(stats.language_probability == language_probability, "language %.3f, not %.3f",
                (double)stats.language_probability, (double)language_probability);
        T_CHECK(w.starts >= 3 && w.updates == 0 && w.commits == 0, "%d begin", w.starts);
        free(live.bytes);
    }
    p.commit_step_ms = 0;
    for (k = 0; k < 2; k++) { /* options are checked */
        wnpu_stream_options o = float_options(k ? 99 : 500);
        o.hangover_ms = k ? 500 : 99;
        T_CHECK(wnpu_stream_begin(s, &p, &o) == WNPU_E_ARGUMENT &&
                strcmp(wnpu_session_error(s), k ? "step_ms 99 is outside 100..10000 and not 0"
                       : "hangover_ms 99 is outside 100..10000") == 0, "%s",
                wnpu_session_error(s));
    }
    free(whole.bytes);
    wnpu_session_close(s);
    free(x);
}

static void detector_alone(void)
{
    toy_options o = toy_small();
    wnpu_model *m = life_toy(7, NULL);
    unsigned char *file;
    size_t size = 0;
    use_detector(m);
    wnpu_model_close(m);
    o.n_base = 50256;
    o.n_vocab = 51864; /* its language is known, but nothing is said about it */
    file = toy_model(&o, &size);
    T_CHECK(wnpu_model_open_memory(&m, file, size, NULL, NULL) == WNPU_OK, "English-only toy");
    use_detector(m);
    wnpu_model_close(m);
    free(file);
}

static int stops_left;

static int stop_progress(void *user, int64_t done_ms, int64_t total_ms)
{
    (void)user;
    (void)done_ms;
    (void)total_ms;
    return stops_left > 0 && stops_left-- > 0;
}

/* A step that is cancelled when a window has become final withdraws the window's tentative text. */
static void cancelled_after_windows(void)
{
    size_t n, longest = 0;
    float *x = make_sound(&n);
    wnpu_audio a = life_audio(x, n);
    uint64_t at = 0;
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = open_session(m, 0);
    wnpu_params p = phrase_params();
    wnpu_stream_options o = float_options(100);
    int status, cancelled = 0;
    stops_left = 20; /* a window that takes a second has more calls than one */
    p.on_progress = stop_progress;
    T_CHECK(wnpu_stream_begin(s, &p, &o) == WNPU_OK, "%s", wnpu_session_error(s));
    while (at < n) {
        wnpu_live live;
        life_push(s, &a, &at, CHUNK);
        status = wnpu_stream_step(s, NULL);
        live.struct_size = sizeof live;
        T_CHECK(wnpu_get_live(s, &live) == WNPU_OK, "live");
        check_live(&live);
        T_CHECK(status == WNPU_OK || status == WNPU_E_CANCELLED, "%s", wnpu_session_error(s));
        cancelled += status == WNPU_E_CANCELLED;
        longest = live.text_length > longest ? live.text_length : longest;
    }
    T_CHECK(cancelled > 2 && longest > 0, "%d cancelled, %d bytes", cancelled, (int)longest);
    wnpu_session_close(s);
    wnpu_model_close(m);
    free(x);
}

typedef struct canceller {
    wnpu_session *session;
    atomic_int ended;
} canceller;

static void *cancel_often(void *user)
{
    static const struct timespec pause = {0, 3000000};
    canceller *c = user;
    while (!atomic_load(&c->ended)) {
        (void)nanosleep(&pause, NULL);
        wnpu_cancel(c->session);
    }
    return NULL;
}

/* Statistics of the detector alone are those of its spans, however often it is cancelled. */
static void detector_cancelled(void)
{
    size_t n, i, k;
    float *x = make_sound(&n);
    wnpu_model *m = life_toy(7, NULL);
    wnpu_config c = life_config(1);
    wnpu_stream_options o = float_options(0);
    wnpu_params p = phrase_params();
    wnpu_speech_span span;
    wnpu_stats stats;
    canceller other;
    pthread_t thread;
    int64_t speech_ms = 0;
    int status, cancelled = 0;
    c.stream_bytes = 5 * n * sizeof *x;
    other.session = life_open(m, &c);
    atomic_init(&other.ended, 0);
    o.detect_only = 1;
    T_CHECK(wnpu_stream_begin(other.session, &p, &o) == WNPU_OK, "%s",
            wnpu_session_error(other.session));
    for (i = 0; i < 5; i++) {
        T_CHECK(wnpu_stream_push(other.session, x, n) == n, "room");
    }
    T_CHECK(pthread_create(&thread, NULL, cancel_often, &other) == 0, "no thread");
    while ((status = wnpu_stream_step(other.session, NULL)) == WNPU_E_CANCELLED &&
           cancelled < 1000) {
        cancelled++;
    }
    atomic_store(&other.ended, 1);
    pthread_join(thread, NULL);
    status = status == WNPU_E_CANCELLED ? wnpu_stream_step(other.session, NULL) : status;
    T_CHECK(status == WNPU_OK || status == WNPU_E_CANCELLED, "%s",
            wnpu_session_error(other.session));
    while ((status = wnpu_stream_finish(other.session)) == WNPU_E_CANCELLED) {
    }
    stats.struct_size = sizeof stats;
    T_CHECK(status == WNPU_OK && cancelled > 0 &&
            wnpu_get_stats(other.session, &stats) == WNPU_OK, "status %d, %d cancelled", status,
            cancelled);
    for (k = 0; wnpu_get_speech_span(other.session, k, &span) == WNPU_OK; k++) {
        speech_ms += span.t1_ms - span.t0_ms;
    }
    T_CHECK(k > 5 && stats.speech_ms == speech_ms, "%ld ms of speech in %d spans, not %ld",
            (long)stats.speech_ms, (int)k, (long)speech_ms);
    wnpu_session_close(other.session);
    wnpu_model_close(m);
    free(x);
}

int main(int argc, char **argv)
{
    t_chosen = argc > 1 ? argv + 1 : NULL;
    t_run("tentative text changes no results", tentative);
    t_run("utterances", utterances);
    t_run("each utterance, however late a step is", each_utterance);
    t_run("after the end", after_the_end);
    t_run("one window a step", one_window);
    t_run("default parameters", default_params);
    t_run("the detector alone", detector_alone);
    t_run("the detector alone, cancelled", detector_cancelled);
    t_run("cancelled when windows are final", cancelled_after_windows);
    return t_end();
}
