/* test_live.c - what a live run shows before it is final: tentative text, events of speech, and that
 * neither changes any result. */
#define _GNU_SOURCE 1
#include "../lib/life.h"
#include "../lib/voicelike.h"

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

static int run_live(wnpu_session *s, const wnpu_params *p, const wnpu_stream_options *o,
                    const float *x, size_t n, size_t chunk, seen *w)
{
    size_t at, k;
    uint32_t events, revision = 0;
    int status = WNPU_OK;
    memset(w, 0, sizeof *w);
    T_CHECK(wnpu_stream_begin(s, p, o) == WNPU_OK, "%s", wnpu_session_error(s));
    for (at = 0; at < n && status == WNPU_OK; at += k) {
        wnpu_live live;
        k = n - at < chunk ? n - at : chunk;
        T_CHECK(wnpu_stream_push(s, x + at, k) == k, "room");
        status = wnpu_stream_step(s, &events);
        live.struct_size = sizeof live;
        T_CHECK(wnpu_get_live(s, &live) == WNPU_OK, "live");
        check_live(&live);
        T_CHECK((live.revision != revision) == ((events & WNPU_EVENT_TENTATIVE) != 0),
                "revision %u after %u, events %x", live.revision, revision, events);
        revision = live.revision;
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

static wnpu_stream_options float_options(int step_ms)
{
    wnpu_stream_options o;
    wnpu_stream_options_init(&o, sizeof o);
    o.format = WNPU_SAMPLE_F32;
    o.step_ms = step_ms;
    return o;
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
        int status = wnpu_transcribe(s, &p, &a);
        T_CHECK(status >= 0, "%s", wnpu_session_error(s));
        whole = life_written(s, WNPU_FORMAT_JSON);
        for (i = 0; i < sizeof steps / sizeof steps[0]; i++) {
            wnpu_stream_options o = float_options(steps[i]);
            seen w;
            T_CHECK(run_live(s, &p, &o, x, n, CHUNK, &w) == status, "%s", wnpu_session_error(s));
            live = life_written(s, WNPU_FORMAT_JSON);
            T_CHECK(life_alike(whole, live), "batch %u, step %d: other results", batch, steps[i]);
            T_CHECK((w.updates > 6) == (steps[i] > 0 && batch < 2), "batch %u, step %d: %d updates",
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

/* The detector alone finds what it finds in the whole recording, and decodes nothing. */
static void detector_alone(void)
{
    static const size_t chunks[] = {160, 1000, 16000};
    size_t n, i, k;
    float *x = make_sound(&n);
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = open_session(m, 0);
    wnpu_params p = phrase_params();
    wnpu_audio a = life_audio(x, n);
    life_bytes whole, live;
    p.vad = 0;
    T_CHECK(wnpu_detect_speech(s, &p, &a) == WNPU_OK && wnpu_speech_span_count(s) > 0, "%s",
            wnpu_session_error(s));
    whole = life_written(s, WNPU_FORMAT_JSON);
    for (i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        wnpu_stream_options o = float_options(500);
        wnpu_stats stats;
        seen w;
        o.detect_only = 1;
        T_CHECK(run_live(s, &p, &o, x, n, chunks[i], &w) == WNPU_OK, "%s", wnpu_session_error(s));
        live = life_written(s, WNPU_FORMAT_JSON);
        T_CHECK(life_alike(whole, live), "pieces of %d: other spans", (int)chunks[i]);
        stats.struct_size = sizeof stats;
        T_CHECK(wnpu_get_stats(s, &stats) == WNPU_OK && stats.windows == 0, "decoded");
        T_CHECK(w.starts >= 3 && w.updates == 0 && w.commits == 0, "%d begin", w.starts);
        free(live.bytes);
    }
    for (k = 0; k < 2; k++) { /* options are checked */
        wnpu_stream_options o = float_options(k ? 99 : 500);
        o.hangover_ms = k ? 500 : 99;
        T_CHECK(wnpu_stream_begin(s, &p, &o) == WNPU_E_ARGUMENT, "refused");
    }
    free(whole.bytes);
    wnpu_session_close(s);
    wnpu_model_close(m);
    free(x);
}

int main(int argc, char **argv)
{
    t_chosen = argc > 1 ? argv + 1 : NULL;
    t_run("tentative text changes no results", tentative);
    t_run("utterances", utterances);
    t_run("the detector alone", detector_alone);
    return t_end();
}
