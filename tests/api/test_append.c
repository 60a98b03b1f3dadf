/* test_append.c - results of several runs in one session (wnpu_params.append): in order, complete,
 * and kept whatever happens to the last run. */
#define _GNU_SOURCE 1
#include "../lib/life.h"
#include "../lib/voicelike.h"

#define RATE 16000
#define SECONDS 70

static wnpu_model *model;
static float *sound[2]; /* two people; who begins with silence, and is shorter, is the second */
static size_t length[2];

static wnpu_params params_of(int speaker)
{
    wnpu_params p = life_params();
    p.vad = 1;
    p.speaker = speaker;
    p.append = speaker > 1;
    return p;
}

static int run(wnpu_session *s, int speaker)
{
    wnpu_params p = params_of(speaker);
    wnpu_audio a = life_audio(sound[speaker - 1], length[speaker - 1]);
    return wnpu_transcribe(s, &p, &a);
}

static wnpu_stats stats_of(const wnpu_session *s)
{
    wnpu_stats t;
    t.struct_size = sizeof t;
    T_CHECK(wnpu_get_stats(s, &t) == WNPU_OK, "stats");
    return t;
}

/* What a ledger says of each 10 ms: its kind, or -1 after its end. Checks that it has no gaps. */
static signed char *kinds_of(const wnpu_session *s)
{
    signed char *kind = malloc(SECONDS * 100);
    wnpu_ledger_span span;
    int64_t end = 0, t, unresolved = 0;
    size_t i;
    memset(kind, -1, SECONDS * 100);
    for (i = 0; wnpu_get_ledger_span(s, i, &span) == WNPU_OK; i++) {
        T_CHECK(span.t0_ms == end && span.t1_ms > end, "a gap at %ld ms", (long)end);
        end = span.t1_ms;
        unresolved += span.kind == WNPU_LEDGER_UNRESOLVED ? span.t1_ms - span.t0_ms : 0;
        for (t = (span.t0_ms + 9) / 10; 10 * t < span.t1_ms; t++) {
            kind[t] = (signed char)span.kind;
        }
    }
    T_CHECK(end == stats_of(s).audio_ms && unresolved == stats_of(s).unresolved_ms,
            "ledger to %ld of %ld ms, unresolved %ld of %ld", (long)end,
            (long)stats_of(s).audio_ms, (long)unresolved, (long)stats_of(s).unresolved_ms);
    return kind;
}

/* Unresolved before text before silence. */
static int weight(int kind)
{
    return kind == WNPU_LEDGER_UNRESOLVED ? 3 : kind == WNPU_LEDGER_TEXT ? 2 : kind >= 0;
}

/* Whether session s has segment i of another session, at any place. */
static int has(const wnpu_session *s, const wnpu_session *other, size_t i)
{
    wnpu_segment a, b;
    size_t k;
    T_CHECK(wnpu_get_segment(other, i, &b) == WNPU_OK, "segment");
    for (k = 0; wnpu_get_segment(s, k, &a) == WNPU_OK; k++) {
        if (a.t0_ms == b.t0_ms && a.t1_ms == b.t1_ms && a.speaker == b.speaker &&
            a.window == b.window && a.n_tokens == b.n_tokens && strcmp(a.text, b.text) == 0 &&
            memcmp(a.tokens, b.tokens, a.n_tokens * sizeof a.tokens[0]) == 0) {
            return 1;
        }
    }
    return 0;
}

/* All segments of the others, in order of time, and the ledger of both. */
static void check_merged(const wnpu_session *s, wnpu_session *const one[2])
{
    signed char *is = kinds_of(s), *a = kinds_of(one[0]), *b = kinds_of(one[1]);
    size_t n[2], i, wrong = 0;
    wnpu_segment g;
    int64_t before = 0;
    int k;
    for (k = 0; k < 2; k++) {
        n[k] = wnpu_segment_count(one[k]);
        for (i = 0; i < n[k]; i++) {
            T_CHECK(has(s, one[k], i), "segment %lu of %d is missing", (unsigned long)i, k + 1);
        }
    }
    T_CHECK(n[0] > 0 && n[1] > 0 && wnpu_segment_count(s) == n[0] + n[1], "%lu of %lu + %lu",
            (unsigned long)wnpu_segment_count(s), (unsigned long)n[0], (unsigned long)n[1]);
    for (i = 0; wnpu_get_segment(s, i, &g) == WNPU_OK; i++) {
        T_CHECK(g.t0_ms >= before, "segment %lu is too late", (unsigned long)i);
        before = g.t0_ms;
    }
    for (i = 0; i < SECONDS * 100; i++) {
        wrong += weight(is[i]) != (weight(a[i]) > weight(b[i]) ? weight(a[i]) : weight(b[i]));
    }
    T_CHECK(wrong == 0, "%lu ms of the ledger are wrong", (unsigned long)wrong * 10);
    T_CHECK(stats_of(s).speech_ms >= stats_of(one[0]).speech_ms &&
            stats_of(s).speech_ms <= stats_of(one[0]).speech_ms + stats_of(one[1]).speech_ms,
            "%ld ms of speech", (long)stats_of(s).speech_ms);
    free(is);
    free(a);
    free(b);
}

/* Each recording in a session of its own. */
static void open_each(wnpu_session *one[2])
{
    wnpu_params p = params_of(2);
    wnpu_audio a = life_audio(sound[1], length[1]);
    one[0] = life_session(model, 1);
    one[1] = life_session(model, 1);
    p.append = 0;
    T_CHECK(run(one[0], 1) >= 0 && wnpu_transcribe(one[1], &p, &a) >= 0, "%s%s",
            wnpu_session_error(one[0]), wnpu_session_error(one[1]));
}

static void close_all(wnpu_session *s, wnpu_session *one[2])
{
    wnpu_session_close(s);
    wnpu_session_close(one[0]);
    wnpu_session_close(one[1]);
}

/* Either order of runs; and a first run that is appended to nothing is a run. */
static void both(void)
{
    wnpu_session *s = life_session(model, 2), *one[2];
    life_bytes x, y;
    wnpu_params p = params_of(1);
    wnpu_audio a = life_audio(sound[0], length[0]);
    int first, status, want;
    open_each(one);
    want = stats_of(one[0]).unresolved_ms + stats_of(one[1]).unresolved_ms > 0 ? WNPU_INCOMPLETE
                                                                               : WNPU_OK;
    T_CHECK(run(s, 1) >= 0, "%s", wnpu_session_error(s));
    status = run(s, 2);
    T_CHECK(status == want, "status %d, %s", status, wnpu_session_error(s));
    check_merged(s, one);
    for (first = 0; first < 2; first++) {
        T_CHECK(wnpu_reset(s) == WNPU_OK, "reset");
        p.append = 1;
        T_CHECK(run(s, 2) >= 0, "%s", wnpu_session_error(s));
        x = life_written(one[1], WNPU_FORMAT_JSON);
        y = life_written(s, WNPU_FORMAT_JSON);
        T_CHECK(life_alike(x, y), "appended to nothing:\n%s---\n%s", y.bytes, x.bytes);
        free(x.bytes);
        free(y.bytes);
        status = wnpu_transcribe(s, &p, &a);
        T_CHECK(status == want, "status %d, %s", status, wnpu_session_error(s));
        check_merged(s, one);
    }
    close_all(s, one);
}

/* A run that is refused, or that cannot read, loses nothing of the runs before. */
static int64_t fails(void *user, void *buffer, size_t frames)
{
    (void)user;
    (void)buffer;
    (void)frames;
    return -1;
}

static void failures(void)
{
    wnpu_session *s = life_session(model, 1), *one[2];
    wnpu_params p = params_of(2);
    wnpu_audio a = life_audio(sound[1], length[1]);
    life_bytes before, after;
    int kind, status;
    open_each(one);
    for (kind = 0; kind < 3; kind++) {
        T_CHECK(run(s, 1) >= 0, "%s", wnpu_session_error(s));
        before = life_written(s, WNPU_FORMAT_SRT);
        p.beam = kind == 0 ? 99 : 1;
        a.rate = kind == 1 ? 1 : RATE;
        a.data = kind == 2 ? NULL : sound[1];
        a.read = kind == 2 ? fails : NULL;
        status = wnpu_transcribe(s, &p, &a);
        T_CHECK(status < 0, "kind %d: status %d", kind, status);
        after = life_written(s, WNPU_FORMAT_SRT);
        T_CHECK(life_alike(before, after) && before.n > 0, "kind %d: other results", kind);
        T_CHECK(stats_of(s).audio_ms == stats_of(one[0]).audio_ms &&
                stats_of(s).speech_ms == stats_of(one[0]).speech_ms, "kind %d: statistics", kind);
        free(kinds_of(s));
        free(before.bytes);
        free(after.bytes);
    }
    close_all(s, one);
}

/* Whether a session has everything of the first run, and its ledger does not say less. */
static void keeps(const wnpu_session *s, const wnpu_session *first, int runs, int status)
{
    signed char *is = kinds_of(s), *was = kinds_of(first);
    size_t i, less = 0;
    for (i = 0; i < wnpu_segment_count(first); i++) {
        T_CHECK(has(s, first, i), "%d runs, status %d: segment %lu is lost", runs, status,
                (unsigned long)i);
    }
    for (i = 0; i < SECONDS * 100; i++) {
        less += weight(is[i]) < weight(was[i]);
    }
    T_CHECK(less == 0, "%d runs, status %d: %lu ms are forgotten", runs, status,
            (unsigned long)less * 10);
    free(is);
    free(was);
}

/* Runs are appended until the store is full, which happens at different places. */
static void full(void)
{
    wnpu_session *one[2], *s;
    wnpu_config c = life_config(1);
    int round, runs, status;
    open_each(one);
    for (round = 0; round < 8; round++) {
        size_t n = 0;
        c.result_bytes = 65536 + 388 * (uint64_t)round;
        s = life_open(model, &c);
        status = run(s, 1);
        for (runs = 2; status >= 0 && runs < 400; runs++) {
            n = wnpu_segment_count(s);
            status = run(s, 2);
            keeps(s, one[0], runs, status);
        }
        T_CHECK(status == WNPU_E_FULL && wnpu_segment_count(s) >= n && n > 0,
                "%d runs: status %d, %lu segments after %lu", runs, status,
                (unsigned long)wnpu_segment_count(s), (unsigned long)n);
        status = run(s, 2); /* once more, when there is no room at all */
        T_CHECK(status == WNPU_E_FULL, "%d runs: status %d", runs, status);
        keeps(s, one[0], runs, status);
        wnpu_session_close(s);
    }
    wnpu_session_close(one[0]);
    wnpu_session_close(one[1]);
}

static int stops(void *user, int64_t done_ms, int64_t total_ms)
{
    (void)total_ms;
    return done_ms > 0 && wnpu_segment_count(user) > 0;
}

/* Between the runs, a snapshot: the restored run can be continued, and can be appended to. An
 * appended run can be neither stored nor continued. */
static void snapshots(void)
{
    wnpu_session *s = life_session(model, 1), *t = life_session(model, 2), *one[2];
    wnpu_params p = params_of(1);
    wnpu_audio a = life_audio(sound[0], length[0]);
    unsigned char *block;
    life_bytes x, y;
    size_t size, n;
    open_each(one);
    p.on_progress = stops;
    p.user = s;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_E_CANCELLED, "%s", wnpu_session_error(s));
    size = wnpu_snapshot_size(s);
    block = malloc(size);
    T_CHECK(wnpu_snapshot(s, block, size) == WNPU_OK && wnpu_restore(t, block, size) == WNPU_OK,
            "%s%s", wnpu_session_error(s), wnpu_session_error(t));
    n = wnpu_segment_count(s);
    T_CHECK(run(s, 2) >= 0 && run(t, 2) >= 0 && n > 0 &&
            wnpu_segment_count(s) == n + wnpu_segment_count(one[1]), "%s%s", wnpu_session_error(s),
            wnpu_session_error(t));
    x = life_written(s, WNPU_FORMAT_JSON);
    y = life_written(t, WNPU_FORMAT_JSON);
    T_CHECK(life_alike(x, y), "appended to what was restored:\n%s---\n%s", y.bytes, x.bytes);
    free(x.bytes);
    free(y.bytes);
    p.on_progress = NULL;
    T_CHECK(wnpu_snapshot_size(s) == 0 && wnpu_snapshot(s, block, size) == WNPU_E_STATE &&
            wnpu_resume(s, &p, &a) == WNPU_E_STATE, "an appended run goes on");
    T_CHECK(wnpu_restore(s, block, size) == WNPU_OK && wnpu_segment_count(s) == n, "%s",
            wnpu_session_error(s));
    T_CHECK(wnpu_resume(s, &p, &a) >= 0, "%s", wnpu_session_error(s));
    x = life_written(s, WNPU_FORMAT_JSON);
    y = life_written(one[0], WNPU_FORMAT_JSON);
    T_CHECK(life_alike(x, y), "restored and continued");
    free(x.bytes);
    free(y.bytes);
    T_CHECK(run(s, 2) >= 0, "%s", wnpu_session_error(s));
    check_merged(s, one);
    free(block);
    wnpu_session_close(t);
    close_all(s, one);
}

int main(int argc, char **argv)
{
    size_t i;
    t_chosen = argc > 1 ? argv + 1 : NULL;
    model = life_toy(7, NULL);
    for (i = 0; i < 2; i++) {
        size_t k;
        length[i] = RATE * (i == 0 ? SECONDS : SECONDS - 17);
        sound[i] = voicelike(length[i], 1);
        for (k = 0; k < length[i]; k++) {
            size_t second = k / RATE;
            sound[i][k] *= (i == 0 ? second % 20 > 13 : second < 8 || second % 13 > 9) ? 0.001f : 1;
        }
    }
    t_run("two runs make one result", both);
    t_run("a run that fails loses nothing", failures);
    t_run("a full store keeps what it has", full);
    t_run("snapshots between runs", snapshots);
    for (i = 0; i < 2; i++) {
        free(sound[i]);
    }
    wnpu_model_close(model);
    return t_end();
}
