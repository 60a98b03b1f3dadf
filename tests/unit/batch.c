/* Several windows at once: each has the text that it has alone, on any path to it. */
#include "../lib/life.h"
#include "../lib/voicelike.h"

#define RATE 16000u
#define SECONDS 330u /* more than is heard ahead */
#define FEWER 130u   /* enough for three windows together */
#define BEAMS 4u

static const float *sound; /* see spoken() */

static wnpu_session *open_batch(const wnpu_model *m, unsigned threads, unsigned batch, int compute)
{
    wnpu_config c = life_config(threads);
    c.compute = compute;
    c.batch = batch;
    c.max_beams = BEAMS;
    return life_open(m, &c);
}

/* ---- the search ---- */

/* Caches 0..n-1 of bursts, each with another seed. */
static void encode_windows(wnpu_session *s, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        float *x = life_burst(ML_SPAN, (uint32_t)(31 + 7 * i));
        ru_view view = wd_view(&s->run, 0, ML_FRAMES);
        ru_cost cost = {0};
        view.span = x;
        view.window = i;
        wd_encode(&s->run, &view, &cost);
        free(x);
    }
}

/* A session whose windows are encoded, with rules that allow all but special tokens. */
static wnpu_session *open_encoded(const wnpu_model *m, unsigned threads, int compute)
{
    wnpu_session *s = open_batch(m, threads, RU_MAX_BATCH, compute);
    wnpu_params_init(&s->run.call.params, sizeof s->run.call.params);
    s->run.call.params.suppress_non_speech = 0;
    T_CHECK(wi_set_rules(&s->run.rules, &s->run.text.search.filter, &s->run.engine, &s->run.call) ==
                WNPU_OK,
            "rules");
    encode_windows(s, RU_MAX_BATCH);
    return s;
}

static int same_hypothesis(const se_hypothesis *a, const se_hypothesis *b)
{
    return a->n == b->n && memcmp(a->tokens, b->tokens, a->n * sizeof *a->tokens) == 0 &&
           memcmp(a->probability, b->probability, a->n * sizeof *a->probability) == 0 &&
           memcmp(&a->sum_logprob, &b->sum_logprob, sizeof a->sum_logprob) == 0 &&
           memcmp(&a->first_logprob, &b->first_logprob, sizeof a->first_logprob) == 0 &&
           memcmp(&a->no_speech, &b->no_speech, sizeof a->no_speech) == 0 &&
           a->ended == b->ended && a->loop == b->loop;
}

/* Compares n windows at once with one after the other; returns how many texts ended by themselves. */
static size_t compare_windows(wnpu_session *s, size_t n, size_t width, float limit,
                              size_t max_tokens, size_t *loops)
{
    static se_hypothesis found[RU_MAX_BATCH];
    const tk_vocab *v = &s->run.engine.model->vocab;
    size_t window[RU_MAX_BATCH], i, ended = 0;
    uint32_t steps[RU_MAX_BATCH];
    int32_t prompt[3], least_end[RU_MAX_BATCH];
    se_options o;
    se_prompt p;
    memset(&p, 0, sizeof p);
    p.tokens = prompt;
    p.n = tk_start_tokens(v, 0, WNPU_TRANSCRIBE, prompt);
    memset(&o, 0, sizeof o);
    o.width = width;
    o.limit = limit;
    o.patience = o.length_penalty = 1.0f;
    o.max_tokens = max_tokens;
    o.stop_loops = 1;
    for (i = 0; i < n; i++) {
        window[i] = (i + 1) % n;
        least_end[i] = v->timestamp0 + 100 * (int32_t)(i % 3);
        s->run.audio.ahead.view[i].content = ML_FRAMES; /* for who judges repetition */
        s->run.audio.ahead.view[i].frame = 0;
    }
    T_CHECK(se_is_plain(&s->run.text.search, &p, &o), "nothing stands in the way");
    se_run_windows(&s->run.text.search, &p, &o, n, window, least_end, found, steps);
    for (i = 0; i < n; i++) {
        const se_hypothesis *h;
        se_invalidate(&s->run.text.search);
        s->run.decoder.window = window[i];
        s->run.text.search.least_end = least_end[i];
        s->run.text.search.steps = 0;
        h = se_run(&s->run.text.search, &p, &o);
        T_CHECK(same_hypothesis(&found[i], h), "beam of %zu, window %zu of %zu: %zu tokens, alone "
                "%zu", width, i, n, found[i].n, h->n);
        T_CHECK(steps[i] == s->run.text.search.steps, "beam of %zu, window %zu: %u steps, alone %u",
                width, i, steps[i], s->run.text.search.steps);
        ended += (size_t)h->ended;
        *loops += h->loop > 0;
    }
    return ended;
}

static void windows_at_once(void)
{
    size_t n, ended = 0, loops = 0, texts = 0;
    uint32_t seed;
    int compute;
    for (compute = WNPU_COMPUTE_INT8; compute <= WNPU_COMPUTE_FLOAT; compute++) {
        for (seed = 1; seed <= 3; seed++) {
            wnpu_model *m = life_float_toy(seed);
            wnpu_session *s = open_encoded(m, 1 + seed % 2, compute);
            for (n = 1; n <= RU_MAX_BATCH; n++) {
                ended += compare_windows(s, n, 1, 0.0f, n % 2 ? 20 : 60, &loops);
                texts += n;
            }
            /* Beams: more hypotheses than slots, so that windows wait for each other. */
            for (n = 2; n <= RU_MAX_BATCH; n += 3) {
                float limit = n > 2 ? 0.0f : 2.0f;
                ended += compare_windows(s, n, n > 5 ? BEAMS : 3, limit, 24, &loops);
                texts += n;
            }
            wnpu_session_close(s);
            wnpu_model_close(m);
        }
    }
    printf("  %zu texts: %zu ended, %zu in loops\n", texts, ended, loops);
    T_CHECK(ended + loops < texts, "all texts ended early");
    T_CHECK(loops > 0, "no text was a loop");
}

/* What is judged leaves no trace: a judge that says yes to everything after it has overwritten the
 * caches, and no judge at all, find the same text. */
static size_t judged;

static size_t agree(void *user, const int32_t *tokens, se_parts *parts, size_t slot, size_t window)
{
    size_t supported = wd_judge(user, tokens, parts, slot, window);
    judged++;
    T_CHECK(supported <= parts->n, "%zu of %zu parts", supported, parts->n);
    return parts->n;
}

static void compare_judges(wnpu_session *s, size_t width, float temperature)
{
    static se_hypothesis plain;
    se_search *search = &s->run.text.search;
    int32_t prompt[3];
    se_options o;
    se_prompt p;
    const se_hypothesis *h;
    memset(&p, 0, sizeof p);
    p.tokens = prompt;
    p.n = tk_start_tokens(&s->run.engine.model->vocab, 0, WNPU_TRANSCRIBE, prompt);
    memset(&o, 0, sizeof o);
    o.width = width;
    o.temperature = temperature;
    o.patience = o.length_penalty = 1.0f;
    o.max_tokens = 120;
    se_invalidate(search);
    plain = *se_run(search, &p, &o);
    o.stop_loops = 1;
    se_invalidate(search);
    h = se_run(search, &p, &o);
    T_CHECK(same_hypothesis(&plain, h), "%zu hypotheses at %g: %zu tokens, judged %zu", width,
            (double)temperature, plain.n, h->n);
}

static void judges_leave_no_trace(void)
{
    uint32_t seed;
    size_t i, width;
    judged = 0;
    for (seed = 1; seed <= 3; seed++) {
        wnpu_model *m = life_float_toy(seed);
        wnpu_session *s = open_encoded(m, 1 + seed % 2, WNPU_COMPUTE_INT8);
        s->run.text.search.judge.function = agree;
        for (i = 0; i < RU_MAX_BATCH; i += 3) {
            s->run.decoder.window = i;
            for (width = 1; width <= 2; width++) {
                compare_judges(s, width, 0.0f);
                compare_judges(s, width, 0.3f);
            }
        }
        wnpu_session_close(s);
        wnpu_model_close(m);
    }
    printf("  %zu judgements\n", judged);
    T_CHECK(judged > 100, "only %zu judgements", judged);
}

/* ---- whole runs ---- */

/* Like a voice, but silent for half a second in every nine, and for ten seconds twice. */
static float *batch_spoken(void)
{
    size_t n = (size_t)RATE * SECONDS, i;
    float *x = voicelike(n, 1);
    for (i = 0; i < n; i++) {
        size_t ms = i / (RATE / 1000);
        x[i] *= ms % 9000 < 500 || (ms > 95000 && ms < 105000) || (ms > 200000 && ms < 210000)
                    ? 0.001f : 1.0f;
    }
    return x;
}

typedef enum run_mode { PLAIN, WORDS, HOTTER, BEAM, LIMITED, PROMPT, LONG, N_RUN_MODES } run_mode;

static wnpu_params batch_params_of(run_mode mode)
{
    wnpu_params p = life_params();
    p.vad = 1;
    p.words = mode == WORDS;
    p.temperature_step = mode == HOTTER ? 0.5f : 0.0f;
    p.beam = mode == BEAM || mode == LIMITED ? BEAMS : 1;
    p.beam_limit = mode == LIMITED ? 1.0f : 0.0f;
    p.initial_prompt = mode == PROMPT ? "the sense of it" : NULL;
    p.max_tokens = mode == LONG ? 40 : 12;
    return p;
}

/* A run that is looked at between its windows. */
typedef struct witness {
    wnpu_session *session;
    const float *x;
    size_t together;    /* most windows that were foreseen */
} witness;

static int count_together(void *user, int64_t done_ms, int64_t total_ms)
{
    witness *w = user;
    size_t n = w->session->run.audio.ahead.n;
    (void)done_ms;
    (void)total_ms;
    w->together = n > w->together ? n : w->together;
    return 0;
}

/* Windows end where nothing is said, and none passes such a place. */
static int in_a_pause(void *user, int64_t done_ms, int64_t total_ms)
{
    const witness *w = user;
    const ru_run *r = &w->session->run;
    float loudest = 0.0f;
    size_t i;
    (void)done_ms;
    (void)total_ms;
    for (i = 0; r->audio.at.cut_ms < INT64_MAX && i < RATE / 20; i++) {
        float y = fabsf(w->x[(size_t)r->audio.at.cut_ms * (RATE / 1000) - RATE / 40 + i]);
        loudest = y > loudest ? y : loudest;
    }
    T_CHECK(loudest < 0.01f, "cut at %ld ms, where %g is heard", (long)r->audio.at.cut_ms,
            (double)loudest);
    T_CHECK(ru_recording_ms(&r->audio.at, 0) <= r->audio.at.cut_ms, "a window passes the pause");
    return 0;
}

/* Returns how many windows were foreseen at most. */
static size_t batch_transcribe(wnpu_session *s, run_mode mode, unsigned seconds, life_text *text)
{
    wnpu_params p = batch_params_of(mode);
    wnpu_audio a = life_audio(sound, (size_t)RATE * seconds);
    witness w = {s, sound, 0};
    int status;
    p.on_progress = count_together;
    p.user = &w;
    status = wnpu_transcribe(s, &p, &a);
    T_CHECK(status == WNPU_OK || status == WNPU_INCOMPLETE, "mode %d: status %d, %s", (int)mode,
            status, wnpu_session_error(s));
    life_json(s, text);
    return w.together;
}

static const op_kernels *plain_kernels;
static size_t spectra; /* computed by the detectors since it was set to 0 */

static void count_spectra(const ft_tables *t, const ml_filters *f, const float *x, float *out,
                          size_t n, ml_scratch *scratch)
{
    spectra++;
    plain_kernels->mel_powers(t, f, x, out, n, scratch);
}

/* As batch_transcribe(); *n: how often the voice activity detectors computed spectra. */
static size_t batch_count(wnpu_session *s, run_mode mode, unsigned seconds, life_text *text,
                          size_t *n)
{
    op_kernels counting = *s->run.engine.op;
    size_t together;
    plain_kernels = s->run.engine.op;
    counting.mel_powers = count_spectra;
    s->run.audio.voice.op = &counting;
    spectra = 0;
    together = batch_transcribe(s, mode, seconds, text);
    s->run.audio.voice.op = plain_kernels;
    *n = spectra;
    return together;
}

/* All numbers of windows with the plain search, and three with any other. */
static void one_text(void)
{
    static const unsigned batches[] = {3, 2, 8};
    static life_text want, is;
    wnpu_model *m = life_toy(7, NULL);
    size_t i, heard, again;
    int mode;
    for (mode = 0; mode < N_RUN_MODES; mode++) {
        unsigned seconds = mode == PLAIN ? SECONDS : FEWER;
        wnpu_session *one = open_batch(m, 2, 1, WNPU_COMPUTE_INT8);
        size_t together = batch_count(one, (run_mode)mode, seconds, &want, &heard);
        T_CHECK(together == 0, "mode %d: one window is none together", mode);
        for (i = 0; i < (mode == PLAIN ? sizeof batches / sizeof batches[0] : 1); i++) {
            wnpu_session *s = open_batch(m, 1 + (unsigned)(i + (size_t)mode) % 2, batches[i],
                                         WNPU_COMPUTE_INT8);
            together = batch_count(s, (run_mode)mode, seconds, &is, &again);
            T_CHECK(life_same(&is, &want), "mode %d, batch %u: another text", mode, batches[i]);
            T_CHECK(again <= heard + heard / 10, "mode %d, batch %u: %zu spectra for voice, "
                    "%zu without", mode, batches[i], again, heard);
            T_CHECK(together == batches[i], "mode %d: %zu windows together", mode, together);
            T_CHECK(s->run.out.now.stats.tokens == one->run.out.now.stats.tokens &&
                        s->run.out.now.stats.windows == one->run.out.now.stats.windows,
                    "mode %d: other counts", mode);
            wnpu_session_close(s);
        }
        wnpu_session_close(one);
    }
    wnpu_model_close(m);
}

static void cut_in_pauses(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = open_batch(m, 2, 4, WNPU_COMPUTE_INT8);
    wnpu_params p = batch_params_of(PLAIN);
    wnpu_audio a = life_audio(sound, (size_t)RATE * SECONDS);
    witness w;
    int status;
    w.session = s;
    w.x = sound;
    p.on_progress = in_a_pause;
    p.user = &w;
    status = wnpu_transcribe(s, &p, &a);
    T_CHECK(status == WNPU_OK || status == WNPU_INCOMPLETE, "%s", wnpu_session_error(s));
    T_CHECK(s->run.out.now.stats.windows >= 11, "%u windows", s->run.out.now.stats.windows);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- runs that stop ---- */

static int stop_at_once(void *user, int64_t done_ms, int64_t total_ms)
{
    (void)user;
    (void)done_ms;
    (void)total_ms;
    return 1;
}

/* After every window, on in the same session or, from a snapshot, in another one. */
static void stopped_and_continued(void)
{
    static life_text want, is;
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s[2];
    wnpu_params p = batch_params_of(WORDS);
    wnpu_audio a = life_audio(sound, (size_t)RATE * SECONDS);
    unsigned char *block;
    int status, here = 0, stops = 0;
    s[0] = open_batch(m, 1, 3, WNPU_COMPUTE_INT8);
    s[1] = open_batch(m, 2, 3, WNPU_COMPUTE_INT8);
    block = malloc(wnpu_snapshot_most(s[0]));
    (void)batch_transcribe(s[0], WORDS, SECONDS, &want);
    p.on_progress = stop_at_once;
    status = wnpu_transcribe(s[0], &p, &a);
    for (; status == WNPU_E_CANCELLED; stops++) {
        size_t size = wnpu_snapshot_size(s[here]);
        uint64_t from = 0;
        T_CHECK(size > 0 && size <= wnpu_snapshot_most(s[here]), "%zu bytes", size);
        T_CHECK(wnpu_snapshot(s[here], block, size) == WNPU_OK, "%s", wnpu_session_error(s[here]));
        if (stops % 3 != 0) {
            here = !here;
            T_CHECK(wnpu_restore(s[here], block, size) == WNPU_OK, "%s",
                    wnpu_session_error(s[here]));
        }
        T_CHECK(wnpu_get_position(s[here], &from) == WNPU_OK && from <= a.frames, "position");
        status = wnpu_resume(s[here], &p, &a);
    }
    T_CHECK(stops > 10, "%d stops", stops);
    life_json(s[here], &is);
    T_CHECK(life_same(&is, &want), "another text after %d stops", stops);
    free(block);
    wnpu_session_close(s[0]);
    wnpu_session_close(s[1]);
    wnpu_model_close(m);
}

/* At every so many-th step of the windows' decoding, and on. */
static void cancelled_anywhere(void)
{
    static life_text want, is;
    wnpu_model *m = life_toy(7, NULL);
    wnpu_config c = life_config(2);
    wnpu_params p = batch_params_of(PLAIN);
    wnpu_audio a = life_audio(sound, (size_t)RATE * FEWER);
    wnpu_session *s;
    int step, status = WNPU_E_CANCELLED, stops = 0;
    life_watch w;
    c.batch = 4;
    c.parallel_for = life_stop_there;
    c.parallel_user = &w;
    w.session = s = life_open(m, &c);
    w.step = 0;
    (void)batch_transcribe(s, PLAIN, FEWER, &want);
    for (step = 3; status == WNPU_E_CANCELLED; step += 211) {
        w.step = step;
        status = wnpu_transcribe(s, &p, &a);
        if (status == WNPU_E_CANCELLED && wnpu_snapshot_size(s) > 0) {
            w.step = 0;
            T_CHECK(wnpu_resume(s, &p, &a) >= WNPU_OK, "%s", wnpu_session_error(s));
            life_json(s, &is);
            T_CHECK(life_same(&is, &want), "another text after step %d", step);
            stops++;
        }
    }
    printf("  stopped at %d steps of %d\n", stops, step);
    T_CHECK(stops > 5, "only %d stops", stops);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- room ---- */

static void room(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_config c = life_config(1);
    wnpu_session *s = NULL;
    wnpu_error error;
    size_t size[RU_MAX_BATCH + 1], i;
    for (i = 0; i <= RU_MAX_BATCH; i++) {
        c.batch = (uint32_t)i;
        size[i] = wnpu_session_size(m, &c, &error);
    }
    T_CHECK(size[1] - size[0] > RU_LOOKAHEAD * sizeof(float) &&
            size[1] - size[0] < RU_LOOKAHEAD * sizeof(float) + 65536, "%zu bytes to hear ahead",
            size[1] - size[0]);
    T_CHECK(size[5] - size[4] < size[4] - size[3] + 16 * AR_ALIGN && /* arrays are rounded up */
            size[4] - size[3] < size[5] - size[4] + 16 * AR_ALIGN,
            "each takes its caches: %zu %zu %zu", size[3], size[4], size[5]);
    c.batch = 1;
    c.max_beams++;
    T_CHECK(size[2] - size[1] > wnpu_session_size(m, &c, &error) - size[1] + 65536,
            "and those of a hypothesis");
    c.batch = RU_MAX_BATCH + 1;
    T_CHECK(wnpu_session_size(m, &c, &error) == 0 && error.code == WNPU_E_ARGUMENT, "too many");
    T_CHECK(wnpu_session_open(&s, m, &c, NULL, 0, &error) == WNPU_E_ARGUMENT && s == NULL &&
            strstr(error.message, "batch") != NULL, "%s", error.message);
    wnpu_model_close(m);
}

static void batch_tests(void)
{
    float *x;
    voice_seed = 5; /* the same sounds whatever ran before */
    x = batch_spoken();
    setvbuf(stdout, NULL, _IOLBF, 0);
    sound = x;
    t_run("judging repetition leaves no trace", judges_leave_no_trace);
    t_run("several windows at once, and one by one", windows_at_once);
    t_run("one text, however many together", one_text);
    t_run("windows end in pauses", cut_in_pauses);
    t_run("stopped after every window and continued", stopped_and_continued);
    t_run("cancelled anywhere and continued", cancelled_anywhere);
    t_run("room for windows", room);
    free(x);
}
