/* test_token.c - on_token: the text of each window, piece by piece, is in the end that of its
 * segments, in files and live runs, with restarts where a decoding is rejected; no result depends
 * on it, and what it may call does no harm. tests/fuzz/fuzz_run.c tries other combinations. */
#define _GNU_SOURCE 1
#include "../lib/life.h"
#include "../lib/voicelike.h"
#include <math.h>

#define RATE 16000
#define SECONDS 43

/* A run's observer. */
typedef struct observer {
    wnpu_session *session;
    life_heard heard;
    size_t stop_at;         /* number of the event that stops the run, 0: none */
    int cancel;             /* with wnpu_cancel() instead of the returned value */
    int late;               /* a segment was passed to on_segment after its window was complete */
    size_t segments, early; /* early: events with text before the first segment */
    size_t empty;           /* restarts without text, before the window was complete */
} observer;

static int on_token(void *user, const wnpu_token_event *event)
{
    observer *o = user;
    const char *wrong = life_hear(&o->heard, event);
    T_CHECK(wrong == NULL, "event %d: %s", (int)o->heard.events, wrong);
    o->early += o->segments == 0 && event->text_length > 0;
    o->empty += event->restart && !event->complete && event->text_length == 0;
    if (o->heard.events == o->stop_at) {
        if (!o->cancel) {
            return 1;
        }
        wnpu_cancel(o->session);
    }
    return 0;
}

static int on_segment(void *user, const wnpu_segment *segment)
{
    observer *o = user;
    o->late |= segment->window < o->heard.windows;
    o->segments++;
    return 0;
}

static void observe(observer *o, wnpu_session *s, wnpu_params *p)
{
    memset(o, 0, sizeof *o);
    life_listen(&o->heard);
    o->session = s;
    p->on_token = on_token;
    p->on_segment = on_segment;
    p->user = o;
}

static wnpu_session *open_session(const wnpu_model *m, uint32_t batch)
{
    wnpu_config c = life_config(1);
    c.batch = batch;
    c.stream_bytes = 4 * RATE * SECONDS;
    return life_open(m, &c);
}

/* ---- no result depends on it, and its text is that of the segments ---- */

enum { WITH_NOTHING, WITH_WORDS, WITH_BEAM, WITH_SAMPLE, WITH_SAMPLES, WITH_PATIENCE, WITH_PROMPTS,
       WITHOUT_TIMES, WITH_VOICE, WITH_GATES, KINDS };

static wnpu_params kind_params(int kind)
{
    wnpu_params p = life_params();
    p.max_tokens = 40;
    p.words = kind == WITH_WORDS;
    p.beam = kind == WITH_BEAM ? 3 : 1;
    p.patience = kind == WITH_PATIENCE ? 2.0f : 1.0f;
    p.temperature = kind == WITH_SAMPLE || kind == WITH_SAMPLES ? 0.7f : 0.0f;
    p.best_of = kind == WITH_SAMPLE ? 1 : kind == WITH_SAMPLES ? 3 : 0;
    p.prefix = kind == WITH_PROMPTS ? "And" : NULL;
    p.initial_prompt = kind == WITH_PROMPTS ? "before" : NULL;
    p.condition_on_previous = kind == WITH_PROMPTS;
    p.timestamps = kind != WITHOUT_TIMES;
    p.vad = kind == WITH_VOICE;
    p.temperature_step = kind == WITH_GATES ? 0.5f : 0.0f;
    p.compression_threshold = kind == WITH_GATES ? 1.1f : 2.4f;
    return p;
}

static void one_kind(wnpu_session *s, const wnpu_audio *a, int kind, int batch)
{
    wnpu_params p = kind_params(kind);
    life_bytes without, with;
    observer o;
    int status = wnpu_transcribe(s, &p, a);
    T_CHECK(status >= WNPU_OK, "%s", wnpu_session_error(s));
    without = life_written(s, WNPU_FORMAT_JSON);
    observe(&o, s, &p);
    T_CHECK(wnpu_transcribe(s, &p, a) == status, "kind %d: other status", kind);
    with = life_written(s, WNPU_FORMAT_JSON);
    T_CHECK(life_alike(with, without), "kind %d: other results", kind);
    T_CHECK(life_heard_all(&o.heard, s) && !o.heard.open && !o.late, "kind %d: other text", kind);
    T_CHECK(o.segments == wnpu_segment_count(s) && o.heard.windows > 0 && o.heard.placed > 0,
            "kind %d", kind);
    if (batch == 0 && (kind == WITH_NOTHING || kind == WITH_SAMPLE || kind == WITHOUT_TIMES)) {
        T_CHECK(o.early > 5, "kind %d: %d events before the first segment", kind, (int)o.early);
    }
    free(without.bytes);
    free(with.bytes);
}

static void same_results(void)
{
    wnpu_model *m = life_toy(7, NULL);
    float *x = voicelike(RATE * SECONDS, 1);
    wnpu_audio a = life_audio(x, RATE * SECONDS);
    int batch, kind;
    for (batch = 0; batch <= 4; batch += 4) {
        wnpu_session *s = open_session(m, (uint32_t)batch);
        for (kind = 0; kind < KINDS; kind++) {
            one_kind(s, &a, kind, batch);
        }
        wnpu_session_close(s);
    }
    free(x);
    wnpu_model_close(m);
}

/* ---- decodings that are rejected, and text that is discarded ---- */

static void rejected(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = open_session(m, 0);
    float *x = life_sound(RATE * 20);
    wnpu_audio a = life_audio(x, RATE * 20);
    wnpu_params p = life_params();
    wnpu_segment g;
    observer o;
    p.temperature_step = 0.5f; /* three decodings, none of which passes */
    p.logprob_threshold = 0.5f;
    p.best_of = 1;
    observe(&o, s, &p);
    T_CHECK(wnpu_transcribe(s, &p, &a) >= WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(wnpu_get_segment(s, 0, &g) == WNPU_OK && g.retries == 2 && !g.accepted, "no retries");
    T_CHECK(life_heard_all(&o.heard, s), "other text");
    T_CHECK(o.empty >= 2 * (size_t)o.heard.windows && o.heard.withdrawn >= o.empty,
            "%d restarts, %d of %d windows", (int)o.heard.withdrawn, (int)o.empty,
            (int)o.heard.windows);

    p = life_params();
    p.no_speech_threshold = 0; /* all is silence */
    p.logprob_threshold = -INFINITY;
    observe(&o, s, &p);
    T_CHECK(wnpu_transcribe(s, &p, &a) >= WNPU_OK && wnpu_segment_count(s) == 0, "segments");
    T_CHECK(life_heard_all(&o.heard, s) && o.heard.windows > 0 &&
            o.heard.at[o.heard.windows] == 0 &&
            o.heard.withdrawn == (size_t)o.heard.windows, "text that was not withdrawn");
    free(x);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- chosen tokens ---- */

/* Tokens that each window gets: bytes, END and times in steps of 20 ms. */
#define TIME 1000
#define END 999
typedef struct script {
    observer seen;          /* first: the callbacks share a pointer */
    const wnpu_model *model;
    const int *item;
    size_t n;
    int decodings;
    float first;            /* logit of the first item in the latest decoding */
} script;

static int32_t find_token(const wnpu_model *m, int item)
{
    wnpu_model_info info;
    int32_t i;
    size_t length;
    info.struct_size = sizeof info;
    T_CHECK(wnpu_model_get_info(m, &info) == WNPU_OK, "info");
    for (i = 0; i < info.n_vocab; i++) {
        const char *text = wnpu_token_text(m, i, &length);
        char name[32];
        (void)snprintf(name, sizeof name, item == END ? "<|endoftext|>" : "<|%d.%02d|>",
                       (item - TIME) / 50, (item - TIME) % 50 * 2);
        if (item < 256 ? length == 1 && (unsigned char)text[0] == item : strcmp(text, name) == 0) {
            return i;
        }
    }
    T_CHECK(0, "no token for %d", item);
    return 0;
}

static void recite(void *user, const int32_t *tokens, size_t n, float *logits, size_t vocab)
{
    script *w = user;
    int32_t token = find_token(w->model, n < w->n ? w->item[n] : END);
    (void)tokens;
    (void)vocab;
    if (n == 0) {
        w->decodings++;
        w->first = logits[token];
    }
    logits[token] = 1e30f;
}

/* Runs a script in each window; the text has to be `want` in each. withdrawn: whether it differs
 * from what was reported first. */
static void play(wnpu_session *s, const wnpu_model *m, const int *item, size_t n, const char *want,
                 int withdrawn)
{
    static script w;
    float *x = life_sound(RATE * 5);
    wnpu_audio a = life_audio(x, RATE * 5);
    wnpu_params p = life_params();
    size_t length = strlen(want);
    int32_t i;
    p.max_tokens = 0;
    p.timestamps = item[0] >= TIME;
    observe(&w.seen, s, &p);
    w.model = m;
    w.item = item;
    w.n = n;
    p.on_logits = recite;
    T_CHECK(wnpu_transcribe(s, &p, &a) >= WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(life_heard_all(&w.seen.heard, s) && w.seen.heard.windows > 0, "other text");
    T_CHECK(w.seen.heard.withdrawn == (size_t)(withdrawn ? w.seen.heard.windows : 0),
            "%s: withdrawn %d times", want, (int)w.seen.heard.withdrawn);
    for (i = 0; i < w.seen.heard.windows; i++) {
        size_t at = w.seen.heard.at[i];
        T_CHECK(w.seen.heard.at[i + 1] - at == length &&
                memcmp(w.seen.heard.all + at, want, length) == 0, "window %d: %.*s", (int)i,
                (int)(w.seen.heard.at[i + 1] - at), w.seen.heard.all + at);
    }
    free(x);
}

#define BAD "\xef\xbf\xbd"

static void characters(void)
{
    static const int whole[] = {' ', 0xe3, 0x81, 0x82, 0xc3, 0xa9, 'x', 0xf0, 0x9f, 0x98, 0x80};
    static const int broken[] = {' ', 0xff, 0xe3, 0x81, 'a', 0xed, 0xa0, 'b', 0x00, 0xf0, 0x9f};
    static const int divided[] = {TIME, ' ', 'a', 0xe3, 0x81, TIME + 50, TIME + 50, 0x82, 'b',
                                  TIME + 100};
    static const int trimmed[] = {TIME, ' ', 'a', 'b', TIME + 50, TIME + 50, 'c', 'd'};
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = open_session(m, 0);
    play(s, m, whole, sizeof whole / sizeof whole[0], " \xe3\x81\x82\xc3\xa9x\xf0\x9f\x98\x80", 0);
    play(s, m, broken, sizeof broken / sizeof broken[0],
         " " BAD BAD "a" BAD BAD "b" BAD BAD, 0);
    play(s, m, divided, sizeof divided / sizeof divided[0], " a" BAD BAD "b", 0);
    play(s, m, trimmed, sizeof trimmed / sizeof trimmed[0], " ab", 1);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- windows that are not encoded as a whole ---- */

typedef struct short_run {
    int decodings;          /* as many as encoder runs */
    float first;            /* logit of the script's first token in the last one */
} short_run;

/* Runs a script on 5 s of sound with this margin. */
static short_run run_short(wnpu_session *s, const wnpu_model *m, int margin_ms, const int *item,
                           size_t n)
{
    static script w;
    float *x = life_sound(RATE * 5);
    wnpu_audio a = life_audio(x, RATE * 5);
    wnpu_params p = life_params();
    wnpu_stats stats;
    short_run run;
    p.max_tokens = 0;
    p.language = 0;
    p.timestamps = item[0] >= TIME;
    p.encode_margin_ms = margin_ms;
    observe(&w.seen, s, &p);
    w.model = m;
    w.item = item;
    w.n = n;
    w.decodings = 0;
    p.on_logits = recite;
    stats.struct_size = sizeof stats;
    T_CHECK(wnpu_transcribe(s, &p, &a) >= WNPU_OK && wnpu_get_stats(s, &stats) == WNPU_OK, "%s",
            wnpu_session_error(s));
    T_CHECK(life_heard_all(&w.seen.heard, s) && w.decodings == (int)stats.windows,
            "%d decodings, %d encoder runs", w.decodings, (int)stats.windows);
    run.decodings = w.decodings;
    run.first = w.first;
    free(x);
    return run;
}

/* Text that says the same again or does not end with the sound is that of all positions. */
static void short_windows(void)
{
    static const int good[] = {'a', 'b', 'c'}, again[] = {'a', 'a', 'b', 'a', 'b'};
    static const int ends[][3] = {{TIME, 'a', TIME + 275}, {TIME, 'a', TIME + 225},
                                  {TIME, 'a', TIME + 276}, {TIME, 'a', TIME + 224}};
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = open_session(m, 0), *batch = open_session(m, 1);
    const short_run all = run_short(s, m, 0, good, 3), some = run_short(s, m, 4000, good, 3);
    short_run run;
    int i;
    T_CHECK(all.decodings == 1 && some.decodings == 1 && some.first != all.first,
            "%d and %d decodings, logits %g and %g", all.decodings, some.decodings,
            (double)all.first, (double)some.first);
    run = run_short(s, m, 4000, again, 5);
    T_CHECK(run.decodings == 2 && run.first == all.first, "%d decodings, logit %g",
            run.decodings, (double)run.first);
    run = run_short(s, m, 0, again, 5);
    T_CHECK(run.decodings == 1 && run.first == all.first, "%d decodings of all", run.decodings);
    run = run_short(s, m, 30000, again, 5);
    T_CHECK(run.decodings == 1 && run.first == all.first, "a margin of 30 s");
    run = run_short(batch, m, 4000, again, 5);
    T_CHECK(run.decodings == 1 && run.first == all.first, "a batch");
    for (i = 0; i < 4; i++) {
        run = run_short(s, m, 4000, ends[i], 3);
        T_CHECK(run.decodings == 1 + i / 2, "end %d: %d decodings", i, run.decodings);
    }
    wnpu_session_close(batch);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- stops ---- */

/* A run that is stopped at an event and goes on. Returns 0 if the event did not come. */
static int stop_at(wnpu_session *s, const wnpu_audio *a, const life_bytes *whole, size_t event)
{
    wnpu_params p = life_params();
    observer o;
    life_bytes text;
    int status, stopped;
    p.max_tokens = 30;
    observe(&o, s, &p);
    o.stop_at = event;
    o.cancel = event % 2 == 0;
    status = wnpu_transcribe(s, &p, a);
    stopped = status == WNPU_E_CANCELLED;
    T_CHECK(o.heard.events == event || !o.heard.open || !stopped, /* or at the end of a window */
            "%d events after the stop at %d", (int)(o.heard.events - event), (int)event);
    if (stopped) {
        status = wnpu_resume(s, &p, a);
    }
    T_CHECK(status >= WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(life_heard_all(&o.heard, s) && !o.heard.open, "stopped at %d: other text", (int)event);
    text = life_written(s, WNPU_FORMAT_JSON);
    T_CHECK(life_alike(text, *whole), "stopped at %d: other results", (int)event);
    free(text.bytes);
    return stopped;
}

static int always_stop(void *user, const wnpu_token_event *event)
{
    (void)on_token(user, event);
    return 1;
}

static void stops(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = open_session(m, 0);
    float *x = life_sound(RATE * SECONDS);
    wnpu_audio a = life_audio(x, RATE * SECONDS);
    wnpu_params p = life_params();
    life_bytes whole, text;
    observer o;
    size_t event = 1;
    int status, calls = 0;
    p.max_tokens = 30;
    T_CHECK(wnpu_transcribe(s, &p, &a) >= WNPU_OK, "%s", wnpu_session_error(s));
    whole = life_written(s, WNPU_FORMAT_JSON);
    while (stop_at(s, &a, &whole, event)) {
        event++;
    }
    T_CHECK(event > 20, "%d events", (int)event);
    observe(&o, s, &p); /* a host that stops at every call: each call completes a window */
    p.on_token = always_stop;
    for (status = wnpu_transcribe(s, &p, &a); status == WNPU_E_CANCELLED && calls < 100; calls++) {
        status = wnpu_resume(s, &p, &a);
    }
    T_CHECK(status >= WNPU_OK && calls > 1 && calls < 100, "%d calls", calls);
    text = life_written(s, WNPU_FORMAT_JSON);
    T_CHECK(life_alike(text, whole) && life_heard_all(&o.heard, s), "other results");
    free(text.bytes);
    free(whole.bytes);
    free(x);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- what it may call, and who has it ---- */

static wnpu_audio some_audio;

static int call_in(void *user, const wnpu_token_event *event)
{
    observer *o = user;
    wnpu_session *s = o->session;
    wnpu_params p = life_params();
    wnpu_live live;
    wnpu_memory memory;
    wnpu_segment g;
    size_t i;
    live.struct_size = sizeof live;
    memory.struct_size = sizeof memory;
    T_CHECK(wnpu_transcribe(s, &p, &some_audio) == WNPU_E_STATE && wnpu_reset(s) == WNPU_E_STATE &&
            wnpu_stream_step(s, NULL) == WNPU_E_STATE && wnpu_stream_finish(s) == WNPU_E_STATE &&
            wnpu_snapshot_size(s) == 0, "a busy session does something else");
    T_CHECK(wnpu_get_live(s, &live) == WNPU_OK && live.committed_ms <= live.audio_ms &&
            live.text[live.text_length] == '\0', "live");
    T_CHECK(wnpu_get_memory(s, &memory) == WNPU_OK, "memory");
    for (i = 0; i < wnpu_segment_count(s); i++) {
        T_CHECK(wnpu_get_segment(s, i, &g) == WNPU_OK && strlen(g.text) == g.text_length, "text");
    }
    return on_token(user, event);
}

/* A live run: pieces, events, and all of it once more after each E_CANCELLED, which stops counts.
 * Gives up after 200 of them. */
static int run_live(wnpu_session *s, const wnpu_params *p, const wnpu_audio *a, int *stops)
{
    wnpu_stream_options o = life_stream(a, 500);
    uint64_t at = 0;
    int status = wnpu_stream_begin(s, p, &o);
    T_CHECK(status == WNPU_OK, "%s", wnpu_session_error(s));
    *stops = 0;
    while (at < a->frames && *stops < 200) {
        life_push(s, a, &at, 3200);
        while ((status = wnpu_stream_step(s, NULL)) == WNPU_E_CANCELLED && ++*stops < 200) {
        }
        T_CHECK(status == WNPU_OK, "%d stops: %s", *stops, wnpu_session_error(s));
    }
    while ((status = wnpu_stream_finish(s)) == WNPU_E_CANCELLED && ++*stops < 200) {
    }
    return status;
}

static wnpu_params live_params(void)
{
    wnpu_params p = life_params();
    p.vad = 1;
    p.least_ms = 1000;
    p.pause_ms = 700;
    return p;
}

static void live(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = open_session(m, 0);
    float *x = voicelike(RATE * SECONDS, 1);
    wnpu_audio a = life_audio(x, RATE * SECONDS);
    wnpu_params p = live_params();
    life_bytes whole, text;
    observer o;
    size_t stop;
    int status, stops;
    status = wnpu_transcribe(s, &p, &a);
    T_CHECK(status >= WNPU_OK && wnpu_segment_count(s) > 1, "%s", wnpu_session_error(s));
    whole = life_written(s, WNPU_FORMAT_JSON);
    some_audio = a;
    for (stop = 0; stop < 40; stop += 1 + stop / 4) {
        observe(&o, s, &p);
        p.on_token = call_in;
        o.stop_at = stop;
        o.cancel = stop % 2;
        T_CHECK(run_live(s, &p, &a, &stops) == status, "%s", wnpu_session_error(s));
        text = life_written(s, WNPU_FORMAT_JSON);
        T_CHECK(life_alike(text, whole), "stopped at %d: other results", (int)stop);
        T_CHECK(life_heard_all(&o.heard, s) && !o.late, "stopped at %d: other text", (int)stop);
        free(text.bytes);
    }
    free(whole.bytes);
    free(x);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* A callback that stops at every call: after a stop the window is completed, so the run ends, with at
 * most two stops in each window. */
static void live_always_stopped(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = open_session(m, 0);
    float *x = voicelike(RATE * SECONDS, 1);
    wnpu_audio a = life_audio(x, RATE * SECONDS);
    wnpu_params p = live_params();
    life_bytes whole, text;
    observer o;
    int want, status, stops;
    want = wnpu_transcribe(s, &p, &a);
    whole = life_written(s, WNPU_FORMAT_JSON);
    observe(&o, s, &p);
    p.on_token = always_stop;
    status = run_live(s, &p, &a, &stops);
    T_CHECK(status == want && stops >= o.heard.windows && stops <= 2 * o.heard.windows,
            "%d stops in %d windows: %s", stops, (int)o.heard.windows, wnpu_session_error(s));
    text = life_written(s, WNPU_FORMAT_JSON);
    T_CHECK(life_alike(text, whole) && life_heard_all(&o.heard, s), "other results");
    free(text.bytes);
    free(whole.bytes);
    free(x);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* What is beyond the size that the program gives is not read; wnpu_choose() and wnpu_detect_speech()
 * report nothing. */
static void others(void)
{
    static const char *const phrase = "yes";
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = open_session(m, 0);
    float *x = life_sound(RATE * 5);
    wnpu_audio a = life_audio(x, RATE * 5);
    wnpu_params p = life_params();
    wnpu_choice choice;
    wnpu_segment g;
    observer o;
    choice.struct_size = sizeof choice;
    observe(&o, s, &p);
    p.struct_size = offsetof(wnpu_params, on_token);
    p.on_segment = NULL; /* its `user` is behind on_token */
    T_CHECK(wnpu_transcribe(s, &p, &a) >= WNPU_OK && wnpu_get_segment(s, 0, &g) == WNPU_OK, "%s",
            wnpu_session_error(s));
    p.struct_size = sizeof p;
    T_CHECK(wnpu_choose(s, &p, &a, &phrase, 1, &choice) >= WNPU_OK &&
            wnpu_detect_speech(s, &p, &a) >= WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(o.heard.events == 0, "%d events", (int)o.heard.events);
    free(x);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- a real model ---- */

/* The demo recording with the given parameters. Returns the number of retries. */
static int32_t hear_demo(wnpu_session *s, wnpu_params *p, const wnpu_audio *a, observer *o)
{
    wnpu_segment g;
    size_t i;
    int32_t retries = 0;
    observe(o, s, p);
    T_CHECK(wnpu_transcribe(s, p, a) >= WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(life_heard_all(&o->heard, s) && !o->heard.open && o->heard.windows > 0, "other text");
    for (i = 0; wnpu_get_segment(s, i, &g) == WNPU_OK; i++) {
        retries += g.retries;
    }
    T_CHECK(i > 0 && i == o->segments && !o->late, "%d segments", (int)i);
    return retries;
}

/* Whether a token of the segments ends within a character. */
static int is_divided(const wnpu_session *s, const wnpu_model *m)
{
    wnpu_segment g;
    size_t i, k, length;
    int divided = 0;
    for (i = 0; wnpu_get_segment(s, i, &g) == WNPU_OK; i++) {
        for (k = 0; k < g.n_tokens; k++) {
            const char *text = wnpu_token_text(m, g.tokens[k].id, &length);
            divided |= !life_is_utf8(text, length);
        }
    }
    return divided;
}

/* The longest token, again and again: more text than is kept for the comparison. */
static void shout(void *user, const int32_t *tokens, size_t n, float *logits, size_t vocab)
{
    const script *w = user;
    size_t i, length, longest = 0, best = 0;
    (void)tokens;
    for (i = 0; n < 200 && i < vocab - 2000; i++) {
        if (wnpu_token_text(w->model, (int32_t)i, &length) != NULL && length > longest) {
            longest = length;
            best = i;
        }
    }
    logits[n < 200 ? best : (size_t)find_token(w->model, END)] = 1e30f;
}

static void real_model(void)
{
    static script w;
    char path[512];
    wnpu_model *m = NULL;
    wnpu_session *s;
    wnpu_params p;
    float *x = calloc(RATE * 12, sizeof *x);
    wnpu_audio a = life_audio(x, RATE * 12);
    if (life_cached(path, sizeof path, "a13.wav")[0] == '\0' ||
        life_cached(path, sizeof path, "ggml-tiny.bin")[0] == '\0' ||
        wnpu_model_open(&m, path, NULL, NULL) != WNPU_OK) {
        t_skip("examples/fetch.sh tiny fetches the model and the demo recording");
        free(x);
        return;
    }
    life_demo(x, RATE * 12);
    s = open_session(m, 0);
    wnpu_params_init(&p, sizeof p);
    T_CHECK(hear_demo(s, &p, &a, &w.seen) == 0 && w.seen.early > 5 && w.seen.heard.withdrawn == 0,
            "%d pieces, %d restarts", (int)w.seen.early, (int)w.seen.heard.withdrawn);
    p.language = wnpu_language_id("ta");
    p.vad = 0;
    (void)hear_demo(s, &p, &a, &w.seen);
    T_CHECK(w.seen.early > 5 && is_divided(s, m), "%d pieces", (int)w.seen.early);
    p.language = 0;
    p.compression_threshold = 0.1f;
    p.best_of = 1;
    T_CHECK(hear_demo(s, &p, &a, &w.seen) > 0 && w.seen.heard.withdrawn > 1, "%d restarts",
            (int)w.seen.heard.withdrawn);
    wnpu_params_init(&p, sizeof p);
    p.vad = p.timestamps = p.stop_loops = 0;
    p.compression_threshold = 0;
    p.temperature_step = 0;
    p.logprob_threshold = -INFINITY;
    p.no_speech_threshold = 1;
    p.on_logits = shout;
    w.model = m;
    (void)hear_demo(s, &p, &a, &w.seen);
    T_CHECK(w.seen.heard.at[1] > 4096, "%d bytes", (int)w.seen.heard.at[1]);
    wnpu_session_close(s);
    wnpu_model_close(m);
    free(x);
}

int main(int argc, char **argv)
{
    t_chosen = argc > 1 ? argv + 1 : NULL;
    t_run("no result depends on it", same_results);
    t_run("rejected decodings are withdrawn", rejected);
    t_run("whole characters", characters);
    t_run("windows that are not encoded as a whole", short_windows);
    t_run("it stops runs, which go on", stops);
    t_run("live runs", live);
    t_run("live runs that are stopped at every call", live_always_stopped);
    t_run("shorter structures and other calls", others);
    t_run("a real model", real_model);
    return t_end();
}
