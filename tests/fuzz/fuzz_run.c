/* fuzz_run.c - libFuzzer target for whole runs: parameters, callbacks, cancellations, snapshots and
 * restores are drawn from the input, and what comes out at the end has to be what one uninterrupted
 * run gives, byte for byte. So it is for a live run, with pieces, steps and moves from the input.
 * Whenever a run ends, its results have to keep the invariants that the header promises; on_token
 * has to have the text of the segments. tests/api/test_run.c does this with a few fixed inputs.
 *
 *     make fuzz         # arithmetic, which other fuzzers check, is not instrumented here
 *     build/fuzz/fuzz_run -max_len=256 corpus
 *
 * Bytes of the input are used up one by one; behind the end they are 0. */
#define _GNU_SOURCE 1
#include "../lib/life.h"
#include "../lib/voicelike.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define SECONDS 33      /* more than a window, */
#define SHORT 8         /* and what most inputs transcribe: three phrases, to be fast */
#define SESSIONS 3

typedef struct fuzz_input {
    const uint8_t *bytes;
    size_t size, at;
} fuzz_input;

static unsigned take(fuzz_input *in, unsigned below)
{
    unsigned byte = in->at < in->size ? in->bytes[in->at] : 0;
    in->at++;
    return byte % below;
}

enum { LOGITS_NONE, LOGITS_FORCE, LOGITS_NAN, LOGITS_HUGE, LOGITS_TIMES, LOGITS_ANY, LOGITS_API,
       LOGITS_KINDS };

/* What one run is to be. */
typedef struct plan {
    wnpu_params params;
    int logits, batch, reader, seconds;
    uint32_t salt;
    /* What interrupts it: calls until then, 0: never. */
    unsigned progress, segments, tokens, logit_calls;
    int at_once;            /* by wnpu_cancel() in the callback, not by its answer */
    wnpu_session *session;
    unsigned char *block;   /* of a snapshot taken in the progress callback, if size > 0 */
    size_t room, size;
    life_heard heard;
} plan;

static wnpu_model *model;
static wnpu_session *sessions[2][SESSIONS]; /* without and with batch */
static unsigned char *block;
static size_t room;
static float *sound;
static wnpu_audio audio;
static life_text want, is;
static const char *fault; /* the first thing that is wrong */

#define CHECK(condition) do { \
        if (!(condition) && fault == NULL) { \
            fault = #condition; \
        } \
    } while (0)

/* ---- invariants of results ---- */

static int is_share(float x)
{
    return x >= 0.0f && x <= 1.0f;
}

static void check_segment(const wnpu_session *s, size_t index, int64_t duration, int64_t *at)
{
    wnpu_segment g;
    wnpu_word w;
    int64_t word_at;
    size_t i;
    CHECK(wnpu_get_segment(s, index, &g) == WNPU_OK);
    CHECK(g.t0_ms >= 0 && g.t0_ms <= g.t1_ms && g.t1_ms <= duration);
    CHECK(g.t0_ms >= *at);
    *at = g.t0_ms;
    CHECK(strlen(g.text) == g.text_length && life_is_utf8(g.text, g.text_length));
    CHECK(g.mean_logprob <= 0.0f && g.mean_logprob > -1e6f && g.no_speech >= 0.0f &&
          g.no_speech <= 1.0001f && is_share(g.voice) && g.compression_ratio >= 0.0f);
    for (i = 0; i < g.n_tokens; i++) {
        const wnpu_token *t = &g.tokens[i];
        CHECK(is_share(t->probability));
        CHECK(t->t0_ms >= g.t0_ms && t->t0_ms <= t->t1_ms && t->t1_ms <= g.t1_ms);
    }
    memset(&w, 0, sizeof w);
    w.struct_size = sizeof w;
    word_at = g.t0_ms;
    for (i = 0; wnpu_get_word(s, index, i, &w) == WNPU_OK; i++) {
        CHECK(w.t0_ms >= word_at && w.t0_ms <= w.t1_ms && w.t1_ms <= g.t1_ms);
        CHECK(w.probability >= 0.0f && w.probability <= 1.0001f);
        CHECK(life_is_utf8(w.text, w.text_length) && w.first_token + w.n_tokens <= g.n_tokens);
        word_at = w.t1_ms;
    }
}

/* Segments, speech and ledger agree with the length of what was read. */
static void check_results(const wnpu_session *s)
{
    wnpu_stats stats;
    wnpu_ledger_span span;
    wnpu_speech_span speech;
    int64_t at = 0, unresolved = 0;
    size_t i;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK(wnpu_get_stats(s, &stats) == WNPU_OK);
    for (i = 0; i < wnpu_segment_count(s); i++) {
        check_segment(s, i, stats.audio_ms, &at);
    }
    for (i = 0, at = 0; wnpu_get_ledger_span(s, i, &span) == WNPU_OK; i++) {
        CHECK(span.t0_ms == at && span.t1_ms > at);
        unresolved += span.kind == WNPU_LEDGER_UNRESOLVED ? span.t1_ms - span.t0_ms : 0;
        at = span.t1_ms;
    }
    CHECK(at == stats.audio_ms && unresolved == stats.unresolved_ms);
    for (i = 0, at = 0; wnpu_get_speech_span(s, i, &speech) == WNPU_OK; i++) {
        CHECK(speech.t0_ms >= at && speech.t1_ms > speech.t0_ms);
        at = speech.t1_ms;
    }
    CHECK(at <= stats.audio_ms);
}

/* ---- callbacks ---- */

/* A busy session refuses everything, and nothing changes. */
static void call_back(wnpu_session *s)
{
    wnpu_params p = life_params();
    CHECK(wnpu_transcribe(s, &p, &audio) == WNPU_E_STATE);
    CHECK(wnpu_resume(s, &p, &audio) == WNPU_E_STATE);
    CHECK(wnpu_reset(s) == WNPU_E_STATE);
    CHECK(wnpu_restore(s, block, 64) == WNPU_E_STATE);
}

static uint32_t mix(uint32_t h, uint32_t x)
{
    h = (h ^ x) * 0x9e3779b1u;
    return h ^ h >> 15;
}

/* A function of the tokens alone, or runs would differ. */
static void on_logits(void *user, const int32_t *tokens, size_t n, float *logits, size_t vocab)
{
    plan *p = user;
    uint32_t h = mix(p->salt, (uint32_t)n);
    size_t i;
    if (n > 0) {
        h = mix(h, (uint32_t)tokens[n - 1]);
    }
    if (p->logits == LOGITS_FORCE && n == 0) { /* text where a timestamp is expected */
        logits[65 + h % 26] = 1e30f;
    } else if (p->logits == LOGITS_NAN) {
        for (i = h % 7; i < vocab; i += 7) {
            logits[i] = i % 2 ? nanf("") : INFINITY;
        }
    } else if (p->logits == LOGITS_HUGE) {
        logits[h % vocab] = h % 3 ? 3e38f : 1e9f;
        logits[(h >> 8) % vocab] = -3e38f;
    } else if (p->logits == LOGITS_TIMES && h % 3 == 0) { /* back and forth in time */
        logits[vocab - 1 - h / 3 % 1501] = 1e4f;
    } else if (p->logits == LOGITS_ANY) { /* special tokens, too */
        logits[h % vocab] = 500.0f;
    } else if (p->logits == LOGITS_API && h % 16 == 0) {
        call_back(p->session);
    }
    if (p->logit_calls > 0 && --p->logit_calls == 0) {
        wnpu_cancel(p->session);
    }
}

static int on_segment(void *user, const wnpu_segment *segment)
{
    plan *p = user;
    CHECK(segment->t0_ms >= 0 && segment->t0_ms <= segment->t1_ms);
    if (p->logits == LOGITS_API) {
        call_back(p->session);
    }
    if (p->segments > 0 && --p->segments == 0) {
        if (!p->at_once) {
            return 1;
        }
        wnpu_cancel(p->session);
    }
    return 0;
}

static int on_token(void *user, const wnpu_token_event *event)
{
    plan *p = user;
    CHECK(life_hear(&p->heard, event) == NULL);
    if (p->logits == LOGITS_API) {
        call_back(p->session);
    }
    if (p->tokens > 0 && --p->tokens == 0) {
        if (!p->at_once) {
            return 1;
        }
        wnpu_cancel(p->session);
    }
    return 0;
}

static int on_progress(void *user, int64_t done_ms, int64_t total_ms)
{
    plan *p = user;
    (void)total_ms;
    CHECK(done_ms >= 0);
    if (p->progress > 0 && --p->progress == 0) {
        p->size = wnpu_snapshot_size(p->session);
        CHECK(p->size > 0 && p->size <= p->room);
        CHECK(wnpu_snapshot(p->session, p->block, p->size) == WNPU_OK);
        if (!p->at_once) {
            return 1;
        }
        wnpu_cancel(p->session);
    }
    return 0;
}

/* ---- runs ---- */

static void draw_params(fuzz_input *in, plan *p)
{
    wnpu_params *q = &p->params;
    wnpu_params_init(q, sizeof *q);
    q->no_speech_threshold = 2.0f; /* a toy talks nonsense, and nothing would pass */
    q->logprob_threshold = take(in, 2) ? -INFINITY : -9.0f;
    p->seconds = take(in, 16) == 15 ? SECONDS : SHORT;
    if (take(in, 4) != 3) { /* windows end with phrases */
        q->least_ms = 1000;
        q->pause_ms = 700;
    }
    q->max_tokens = 4 + (int32_t)take(in, 12);
    q->best_of = 2;
    q->beam = take(in, 3) == 2 ? 3 : 1;
    q->temperature = take(in, 4) == 3 ? 0.7f : 0.0f;
    q->temperature_step = take(in, 2) ? 0.5f : 0.0f;
    q->compression_threshold = take(in, 4) == 3 ? 0.3f : 2.4f; /* texts are rejected */
    q->words = (int32_t)take(in, 2);
    q->vad = (int32_t)take(in, 2);
    q->timestamps = take(in, 4) != 3;
    q->condition_on_previous = (int32_t)take(in, 2);
    q->initial_prompt = take(in, 3) == 2 ? "before" : NULL;
    q->prefix = take(in, 4) == 3 ? "And" : NULL;
    q->language = take(in, 2) ? 0 : WNPU_LANGUAGE_AUTO;
    q->language_mode = take(in, 3) == 2 ? WNPU_LANGUAGE_EACH : WNPU_LANGUAGE_ONCE;
    q->repetition_penalty = take(in, 4) == 3 ? 1.5f : 1.0f;
    q->no_repeat_ngram = take(in, 4) == 3 ? 3 : 0;
    q->stop_loops = (int32_t)take(in, 2);
    q->seed = take(in, 200);
    p->logits = (int)take(in, LOGITS_KINDS);
    p->salt = take(in, 256);
    p->batch = (int)take(in, 2);
    p->reader = (int)take(in, 2);
    q->on_logits = p->logits != LOGITS_NONE ? on_logits : NULL;
    q->on_segment = on_segment;
    q->on_progress = on_progress;
    q->on_token = on_token;
    q->user = p;
}

/* From the beginning, or onwards. */
static int run(plan *p, int onwards)
{
    wnpu_audio a = audio;
    life_reader reader;
    reader.from = &audio;
    reader.at = 0;
    if (onwards) {
        CHECK(wnpu_get_position(p->session, &reader.at) == WNPU_OK && reader.at <= audio.frames);
    }
    if (p->reader) {
        a.data = NULL;
        a.read = life_read;
        a.user = &reader;
    }
    p->size = 0;
    return onwards ? wnpu_resume(p->session, &p->params, &a)
                   : wnpu_transcribe(p->session, &p->params, &a);
}

/* Lets the run be stopped up to three times, each time in another way, and goes on where it can. */
static int journey(fuzz_input *in, plan *p)
{
    int here = 0, onwards = 0, stops = 0, status;
    life_listen(&p->heard);
    for (;;) {
        unsigned how = take(in, 5);
        int last = stops == 3;
        p->session = sessions[p->batch][1 + here];
        p->at_once = (int)take(in, 2);
        p->progress = how == 1 && !last ? 1 + take(in, 3) : 0;
        p->segments = how == 2 && !last ? 1 + take(in, 4) : 0;
        p->logit_calls = how == 3 && !last ? 1 + take(in, 40) : 0;
        p->tokens = how == 4 && !last ? 1 + take(in, 40) : 0;
        status = run(p, onwards);
        check_results(p->session);
        if (status != WNPU_E_CANCELLED || fault != NULL || last) {
            return status;
        }
        stops++;
        p->progress = p->segments = p->logit_calls = p->tokens = 0;
        if (p->size == 0) {
            p->size = wnpu_snapshot_size(p->session);
            CHECK(p->size == 0 || wnpu_snapshot(p->session, p->block, p->size) == WNPU_OK);
        }
        onwards = p->size > 0; /* a segment callback stops inside a window */
        if (onwards && take(in, 2)) {
            here = !here;
            CHECK(wnpu_restore(sessions[p->batch][1 + here], p->block, p->size) == WNPU_OK);
            check_results(sessions[p->batch][1 + here]);
        }
    }
}

/* A step, or the end, which may be stopped once; then it is repeated. */
static int live_step(fuzz_input *in, plan *p, int finish)
{
    unsigned how = take(in, 8);
    int status;
    p->at_once = how >= 4;
    p->progress = how % 4 == 1 ? 1 + take(in, 2) : 0;
    p->logit_calls = how % 4 == 2 ? 1 + take(in, 40) : 0;
    p->tokens = how % 4 == 3 ? 1 + take(in, 40) : 0;
    status = finish ? wnpu_stream_finish(p->session) : wnpu_stream_step(p->session, NULL);
    p->progress = p->logit_calls = p->tokens = 0;
    if (status == WNPU_E_CANCELLED) {
        status = finish ? wnpu_stream_finish(p->session) : wnpu_stream_step(p->session, NULL);
    }
    return status;
}

/* The run goes on in the other session. */
static void live_move(plan *p, int *here)
{
    p->size = wnpu_snapshot_size(p->session);
    CHECK(p->size > 0 && p->size <= p->room &&
          wnpu_snapshot(p->session, p->block, p->size) == WNPU_OK &&
          wnpu_reset(p->session) == WNPU_OK);
    *here = !*here;
    p->session = sessions[p->batch][1 + *here];
    CHECK(wnpu_restore(p->session, p->block, p->size) == WNPU_OK &&
          wnpu_stream_resume(p->session, &p->params) == WNPU_OK);
}

/* The recording is pushed in pieces; room is asked for before, so nothing is lost. */
static int live_journey(fuzz_input *in, plan *p)
{
    wnpu_stream_options o = life_stream(&audio, take(in, 8) == 7 ? 1000 : 0);
    uint64_t at = 0;
    int here = 0, status;
    p->session = sessions[p->batch][1];
    p->progress = p->segments = p->logit_calls = p->tokens = 0;
    life_listen(&p->heard);
    status = wnpu_stream_begin(p->session, &p->params, &o);
    CHECK(status == WNPU_OK);
    while (at < audio.frames && status == WNPU_OK && fault == NULL) {
        size_t n = 1601 + 117 * take(in, 256), free = wnpu_stream_room(p->session);
        n = n < free ? n : free;
        life_push(p->session, &audio, &at, n);
        if (free == n || take(in, 4) != 3) {
            status = live_step(in, p, 0);
        }
        if (status == WNPU_OK && take(in, 16) == 15) {
            live_move(p, &here);
        }
    }
    CHECK(status == WNPU_OK);
    return live_step(in, p, 1);
}

static void open_all(void)
{
    static const unsigned threads[SESSIONS] = {1, 1, 2};
    int batch, i, k;
    toy_options o = toy_small();
    size_t size = 0;
    unsigned char *file;
    wnpu_error error;
    o.seed = 7;
    o.audio_layer = o.text_layer = o.audio_head = o.text_head = 1;
    o.state = 32;
    o.mels = 16;
    file = toy_model(&o, &size);
    if (wnpu_model_open_memory(&model, file, size, NULL, &error) != WNPU_OK) {
        fprintf(stderr, "toy model: %s\n", error.message);
        abort();
    }
    free(file);
    for (batch = 0; batch < 2; batch++) {
        for (i = 0; i < SESSIONS; i++) {
            wnpu_config c = life_config(threads[i]);
            c.batch = batch ? 2 : 0;
            c.stream_bytes = 1 << 17; /* 2 s */
            c.result_bytes = 1 << 18;
            c.max_phrase_tokens = 16; /* is wiped often */
            sessions[batch][i] = life_open(model, &c);
        }
    }
    room = wnpu_snapshot_most(sessions[1][0]);
    block = calloc(room, 1);
    sound = voicelike(16000 * SECONDS, 1);
    for (i = 0; i < SECONDS; i++) {
        int quiet = i == 2 || i == 5 || (i >= 12 && i < 17);
        for (k = 0; quiet && k < 16000; k++) {
            sound[16000 * i + k] *= 0.001f;
        }
    }
    audio = life_audio(sound, 16000 * SECONDS);
}

__attribute__((unused)) static void close_all(void)
{
    int batch, i;
    for (batch = 0; batch < 2; batch++) {
        for (i = 0; i < SESSIONS; i++) {
            wnpu_session_close(sessions[batch][i]);
        }
    }
    wnpu_model_close(model);
    free(block);
    free(sound);
}

/* NULL if all is well, else what is wrong. *stopped counts runs that were compared. */
static const char *one(const uint8_t *bytes, size_t size)
{
    static plan p;
    fuzz_input in;
    uint64_t counts;
    int status, again;
    fault = NULL;
    memset(&p, 0, sizeof p);
    in.bytes = bytes;
    in.size = size;
    in.at = 0;
    draw_params(&in, &p);
    audio.frames = 16000 * (uint64_t)p.seconds;
    p.block = block;
    p.room = room;
    p.session = sessions[p.batch][0];
    p.params.on_token = NULL;
    status = run(&p, 0);
    check_results(p.session);
    CHECK(status >= WNPU_OK);
    life_json(p.session, &want);
    counts = life_counts(p.session);
    p.params.on_token = on_token;
    again = journey(&in, &p);
    CHECK(again == status);
    life_json(p.session, &is);
    CHECK(life_same(&is, &want) && life_heard_all(&p.heard, p.session));
    CHECK(life_counts(p.session) == counts);
    again = fault == NULL ? live_journey(&in, &p) : status;
    check_results(p.session);
    CHECK(again == status);
    life_json(p.session, &is);
    CHECK(life_same(&is, &want) && (fault != NULL || life_heard_all(&p.heard, p.session)));
    CHECK(life_counts(p.session) == counts);
    return fault;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (model == NULL) {
        open_all();
    }
    if (one(bytes, size) != NULL) {
        fprintf(stderr, "%s\n", fault);
        abort();
    }
    return 0;
}
