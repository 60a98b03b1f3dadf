/* forged.c - snapshots with wrong values under a right checksum: each word of a good one is
 * replaced by values that tempt. What is refused leaves the session as it was; what is taken has to
 * survive all writers and another snapshot, and, where the words of the state are replaced, the run
 * to its end. tests/fuzz/fuzz_snapshot.c looks for more. */
#include "../lib/life.h"
#include "../lib/voicelike.h"

static life_sounds sounds;
static wnpu_session *session;
static int taken, forged_refused, gone_on;

#define CALLS 400 /* of the progress function by a run of 31 s, far more than there are */
static int forged_calls;

static int enough(void *user, int64_t done_ms, int64_t total_ms)
{
    (void)total_ms;
    return (done_ms > *(int64_t *)user && wnpu_segment_count(session) > 0) ||
           ++forged_calls > CALLS;
}

/* Parameters of a run that ends after *stop_ms; counts its calls from 0. */
static wnpu_params prepare(int64_t *stop_ms)
{
    wnpu_params p;
    life_mode_params(&sounds, LIFE_WORDS, 1, &p);
    p.vad = 1;
    p.max_tokens = 8;
    p.on_progress = enough;
    p.user = stop_ms;
    forged_calls = 0;
    return p;
}

/* Until after stop_ms, from the beginning or onwards. */
static int run(int onwards, int64_t stop_ms)
{
    int status;
    wnpu_params p = prepare(&stop_ms);
    status = onwards ? wnpu_resume(session, &p, &sounds.plain)
                     : wnpu_transcribe(session, &p, &sounds.plain);
    T_CHECK(forged_calls <= CALLS, "the run does not end");
    return status;
}

static int forged_live; /* the snapshots are of a live run */

/* The rest of a live run, without more audio. Days of lost audio are possible, and left out. */
static int finish_live(void)
{
    uint32_t events = WNPU_EVENT_MORE;
    int64_t stop_ms = INT64_MAX;
    int status, steps;
    wnpu_params p = prepare(&stop_ms);
    status = wnpu_stream_resume(session, &p);
    for (steps = 0; status == WNPU_OK && (events & WNPU_EVENT_MORE); steps++) {
        status = wnpu_stream_step(session, &events);
        T_CHECK(steps <= (int)RU_UTTERANCES, "the events do not end");
    }
    status = status == WNPU_OK ? wnpu_stream_finish(session) : status;
    if (status == WNPU_E_CANCELLED) {
        T_CHECK(forged_calls > CALLS && wnpu_reset(session) == WNPU_OK, "cancelled");
        return WNPU_INCOMPLETE;
    }
    return status;
}

static int64_t nowhere(void *user, const void *data, size_t size)
{
    (void)user;
    (void)data;
    return (int64_t)size;
}

static void forged_sign(unsigned char *block, size_t size)
{
    uint64_t sum = mf_checksum(block + offsetof(sn_head, model), size - offsetof(sn_head, model));
    memcpy(block + offsetof(sn_head, checksum), &sum, sizeof sum);
}

/* Restores the block with size bytes at where replaced. */
static void forge(const unsigned char *good, unsigned char *block, size_t n, size_t where,
                  const void *value, size_t size)
{
    static unsigned char again[8 << 20];
    static life_text before, after;
    int status, every;
    memcpy(block + where, value, size);
    forged_sign(block, n);
    life_json(session, &before);
    status = wnpu_restore(session, block, n);
    memcpy(block + where, good + where, size);
    life_json(session, &after);
    if (status != WNPU_OK) {
        forged_refused++;
        T_CHECK(status == WNPU_E_ARGUMENT, "at %lu: status %d", (unsigned long)where, status);
        T_CHECK(life_same(&before, &after), "at %lu: refused, but results changed",
                (unsigned long)where);
        return;
    }
    taken++;
    T_CHECK(wnpu_write(session, WNPU_FORMAT_VTT, nowhere, NULL) == WNPU_OK, "writes");
    n = wnpu_snapshot_size(session);
    T_CHECK(n > 0 && n <= sizeof again && wnpu_snapshot(session, again, n) == WNPU_OK &&
            wnpu_restore(session, again, n) == WNPU_OK, "at %lu: %s", (unsigned long)where,
            wnpu_session_error(session));
    every = forged_live ? 8 : where >= sizeof(sn_head) + sizeof(ru_counts) ? 5 : 400;
    if (taken % every == 1) {
        gone_on++;
        status = forged_live ? finish_live() : run(1, INT64_MAX);
        T_CHECK(status == WNPU_OK || status == WNPU_INCOMPLETE || status == WNPU_E_ARGUMENT ||
                status == WNPU_E_FULL, "at %lu: goes on to status %d, %s", (unsigned long)where,
                status, wnpu_session_error(session));
        life_json(session, &after);
    }
}

static void replace_words(const unsigned char *good, size_t n, size_t from, size_t to)
{
    static const uint32_t values[] = {0, 1, 0x7f, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff,
                                      0x7fc00000};
    unsigned char *block = malloc(n);
    uint64_t wide;
    size_t at, i;
    memcpy(block, good, n);
    for (at = from; at + 8 <= to; at += 4) {
        for (i = 0; i < sizeof values / sizeof values[0]; i++) {
            forge(good, block, n, at, &values[i], sizeof values[i]);
        }
        memcpy(&wide, good + at, sizeof wide);
        for (i = 0; i < 4 && at % 8 == 0; i++) {
            uint64_t change = i == 0 ? wide + 1 : i == 1 ? wide - 1 : i == 2 ? wide + 8 : ~wide;
            forge(good, block, n, at, &change, sizeof change);
        }
    }
    free(block);
}

/* The model's second window has begun; what is left of the audio is short. */
static void all_words(void)
{
    size_t n, results, state = sizeof(sn_head);
    unsigned char *good;
    sn_state s;
    T_CHECK(run(0, 0) == WNPU_E_CANCELLED && wnpu_segment_count(session) > 0, "%s",
            wnpu_session_error(session));
    n = wnpu_snapshot_size(session);
    good = malloc(n);
    T_CHECK(n > 0 && wnpu_snapshot(session, good, n) == WNPU_OK, "%s",
            wnpu_session_error(session));
    memcpy(&s, good + state, sizeof s);
    results = n - (size_t)s.used - (size_t)s.count * sizeof(uint32_t);
    T_CHECK(s.speech.count > 0 && s.ledger.count > 0 && s.voice.seen > 0, "has all parts");
    replace_words(good, n, state, state + offsetof(ru_counts, language.sums) + 16);
    replace_words(good, n, state + sizeof(ru_counts) - 16, state + sizeof(ru_counts));
    replace_words(good, n, state + offsetof(ru_state, fingerprint),
                  state + offsetof(ru_state, confirmed.tokens) + 16);
    replace_words(good, n, state + offsetof(sn_state, at), state + offsetof(sn_state, last_ms));
    replace_words(good, n, state + offsetof(ru_state, live),
                  state + offsetof(ru_state, live.utterance) + sizeof(ru_utterance));
    replace_words(good, n, state + offsetof(sn_state, last_ms), state + offsetof(sn_state, ring));
    replace_words(good, n, results, n - results > 1600 ? results + 1600 : n);
    replace_words(good, n, n - s.count * sizeof(uint32_t), n);
    printf("  %d refused, %d taken, %d continued\n", forged_refused, taken, gone_on);
    T_CHECK(forged_refused > 1000 && gone_on > 0, "too few");
    free(good);
}

/* The ring and the utterances of a live run that has lost samples. */
static void forged_ring(void)
{
    static const size_t parts[][2] = {
        {offsetof(sn_state, ring), offsetof(sn_state, ring.at) + 24},
        {offsetof(sn_state, ring.total), offsetof(sn_state, ring.total) + 24},
        {offsetof(sn_state, ring.span), offsetof(sn_state, ring.span) + 2 * sizeof(ri_span)},
        {offsetof(sn_state, run.live),
         offsetof(sn_state, run.live.utterance) + 5 * sizeof(ru_utterance)}
    };
    wnpu_session *own = session;
    wnpu_config c = life_config(1);
    wnpu_stream_options o;
    wnpu_params p;
    unsigned char *good;
    size_t n, i, at = 0, state = sizeof(sn_head);
    sn_state s;
    c.stream_bytes = 40 * 16000;
    session = life_open(own->run.engine.model, &c);
    life_mode_params(&sounds, LIFE_WORDS, 1, &p);
    p.vad = 1;
    p.max_tokens = 8;
    wnpu_stream_options_init(&o, sizeof o);
    o.format = WNPU_SAMPLE_F32;
    o.hangover_ms = 100;
    T_CHECK(wnpu_stream_begin(session, &p, &o) == WNPU_OK, "%s", wnpu_session_error(session));
    for (i = 0; i < 3; i++) { /* 11 s, of which 10 fit; steps leave two losses and utterances */
        at += 11 * 16000;
        (void)wnpu_stream_push(session, (const float *)sounds.plain.data + at - 11 * 16000,
                               at <= sounds.plain.frames ? 11 * 16000 : 9 * 16000);
        T_CHECK(i == 2 || wnpu_stream_step(session, NULL) == WNPU_OK, "%s",
                wnpu_session_error(session));
    }
    n = wnpu_snapshot_size(session);
    good = malloc(n);
    T_CHECK(wnpu_snapshot(session, good, n) == WNPU_OK, "%s", wnpu_session_error(session));
    memcpy(&s, good + sizeof(sn_head), sizeof s);
    T_CHECK(s.ring.n_losses > 0 && s.ring.n_spans > 0 && s.run.live.n_utterances > 1 &&
            s.ring.frames > 0, "%d losses, %d spans, %d utterances", (int)s.ring.n_losses,
            (int)s.ring.n_spans, (int)s.run.live.n_utterances);
    T_CHECK(wnpu_reset(session) == WNPU_OK, "%s", wnpu_session_error(session));
    forged_live = 1;
    forged_refused = taken = gone_on = 0;
    for (i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        replace_words(good, n, state + parts[i][0], state + parts[i][1]);
    }
    printf("  %d refused, %d taken, %d continued\n", forged_refused, taken, gone_on);
    T_CHECK(forged_refused > 200 && gone_on > 9, "too few");
    forged_live = 0;
    free(good);
    wnpu_session_close(session);
    session = own;
}

/* Where windows end in pauses, a place between two frames would let none of them move on. */
static void forged_pieces(void)
{
    static const int64_t off[] = {1, 5, 9, 10, 11, 19, 21, 30001, 30020, -1, -5};
    wnpu_session *own = session;
    wnpu_config c = life_config(1);
    unsigned char *good, *block;
    size_t n, i;
    sn_state s;
    int status;
    c.batch = 2;
    session = life_open(own->run.engine.model, &c);
    T_CHECK(run(0, 0) == WNPU_E_CANCELLED, "%s", wnpu_session_error(session));
    n = wnpu_snapshot_size(session);
    good = malloc(n);
    block = malloc(n);
    T_CHECK(n > 0 && wnpu_snapshot(session, good, n) == WNPU_OK, "%s", wnpu_session_error(session));
    for (i = 0; i < sizeof off / sizeof off[0]; i++) {
        memcpy(block, good, n);
        memcpy(&s, good + sizeof(sn_head), sizeof s);
        s.at.cut_ms = (int64_t)s.at.frame * 10 + off[i];
        memcpy(block + sizeof(sn_head), &s, sizeof s);
        forged_sign(block, n);
        status = wnpu_restore(session, block, n);
        T_CHECK(status == WNPU_E_ARGUMENT || s.at.cut_ms % VA_STEP_MS == 0, "%ld ms: %d",
                (long)s.at.cut_ms, status);
        T_CHECK(status != WNPU_OK || run(1, INT64_MAX) >= WNPU_OK, "%ld ms: %s", (long)s.at.cut_ms,
                wnpu_session_error(session));
    }
    T_CHECK(wnpu_restore(session, good, n) == WNPU_OK && run(1, INT64_MAX) >= WNPU_OK, "%s",
            wnpu_session_error(session));
    free(block);
    free(good);
    wnpu_session_close(session);
    session = own;
}

/* Models that differ in one byte of what they are made into do not take each other's snapshots; a
 * pack and its file do. */
static int64_t keep(void *user, const void *data, size_t size)
{
    return life_grow(user, data, size);
}

static void one_byte(void)
{
    wnpu_model *own = (wnpu_model *)(uintptr_t)session->run.engine.model, *other = NULL;
    wnpu_session *s;
    life_bytes pack = {NULL, 0};
    unsigned char *aligned, *block;
    size_t n, i, at, data_at;
    wnpu_error error;
    int refusals = 0;
    T_CHECK(run(0, 0) == WNPU_E_CANCELLED, "%s", wnpu_session_error(session));
    n = wnpu_snapshot_size(session);
    block = malloc(n);
    T_CHECK(wnpu_snapshot(session, block, n) == WNPU_OK, "%s", wnpu_session_error(session));
    T_CHECK(wnpu_model_save(own, keep, &pack, &error) == WNPU_OK, "%s", error.message);
    T_CHECK(posix_memalign((void **)&aligned, 64, pack.n) == 0, "no memory");
    data_at = pack.n - own->data_size;
    for (i = 0; i < 41; i++) {
        at = data_at + own->data_size / 40 * i;
        memcpy(aligned, pack.bytes, pack.n);
        if (i < 40) { /* the last one is the same model */
            at += 4096; /* behind the vocabulary's offsets, which are checked */
            aligned[at < pack.n ? at : pack.n - 1] ^= 1;
        }
        if (wnpu_model_open_static(&other, aligned, pack.n, NULL, &error) != WNPU_OK) {
            T_CHECK(i < 40 && error.code == WNPU_E_MODEL, "%s", error.message);
            continue;
        }
        s = life_session(other, 1);
        T_CHECK(wnpu_restore(s, block, n) == (i < 40 ? WNPU_E_ARGUMENT : WNPU_OK), "byte %lu: %s",
                (unsigned long)at, wnpu_session_error(s));
        refusals += i < 40;
        wnpu_session_close(s);
        wnpu_model_close(other);
    }
    T_CHECK(refusals > 20, "only %d models could be opened", refusals);
    free(aligned);
    free(pack.bytes);
    free(block);
}

static void forged_tests(void)
{
    wnpu_model *m = life_toy(7, NULL);
    session = life_session(m, 1);
    life_derive_sounds(&sounds, voicelike(16000 * 31, 1), 31);
    t_run("words of a snapshot replaced under a right checksum", all_words);
    t_run("the ring of a snapshot replaced under a right checksum", forged_ring);
    t_run("windows end at steps of the detector", forged_pieces);
    t_run("a snapshot belongs to one exact model", one_byte);
    wnpu_session_close(session);
    wnpu_model_close(m);
    life_free_sounds(&sounds);
}
