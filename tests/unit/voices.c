/* Tests of speakers by voice: clusters against a slow definition, the division of segments, and
 * runs of a toy model with vectors of a program's own. Uses words of words.c. */
#include "../lib/life.h"

#define VOICES_MOST 48
#define VOICES_DIMENSION 6

typedef struct voices_rig {
    vc_turn turn[VC_MAX_TURNS];
    int16_t vector[VC_MAX_TURNS * VOICES_DIMENSION];
    int32_t sum[VC_MAX_TURNS * VOICES_DIMENSION];
    float given[VOICES_DIMENSION];
    vc_voices v;
} voices_rig;

static voices_rig voices_of;

static vc_voices *voices_open(uint32_t capacity)
{
    voices_rig *r = &voices_of;
    memset(r, 0xa5, sizeof *r);
    memset(&r->v, 0, sizeof r->v);
    r->v.dimension = VOICES_DIMENSION;
    r->v.capacity = capacity;
    r->v.turn = r->turn;
    r->v.vector = r->vector;
    r->v.sum = r->sum;
    r->v.given = r->given;
    return &r->v;
}

/* A vector near one of the axes, longer or shorter. */
static void voices_add(vc_voices *v, int axis, float spread, float length)
{
    int k;
    for (k = 0; k < VOICES_DIMENSION; k++) {
        v->given[k] = length * ((k == axis ? 1.0f : 0.0f) + spread * (2 * uniform() - 1));
    }
    vc_add(v, 0, 0, 1);
}

static int voices_run(vc_voices *v, uint32_t speakers, float threshold, float margin)
{
    int cancel = 0;
    return vc_cluster(v, speakers, threshold, margin, &cancel);
}

/* The labels as letters: A is 1, - unknown. */
static const char *voices_labels(const vc_voices *v)
{
    static char text[VC_MAX_TURNS + 1];
    uint32_t i;
    for (i = 0; i < v->n; i++) {
        text[i] = (char)(v->turn[i].speaker > 0 ? 'A' + v->turn[i].speaker - 1 : '-');
    }
    text[i] = '\0';
    return text;
}

/* Average linkage from its definition: the mean over all pairs, computed anew before each step.
 * Fills of[n] with clusters. Returns the least difference between the best and the second best. */
static double voices_slow(const vc_voices *v, uint32_t speakers, double least, int *of)
{
    double closest = 1e30;
    uint32_t n = v->n, i, k, left = n;
    for (i = 0; i < n; i++) {
        of[i] = (int)i;
    }
    while (left > (speakers > 0 ? speakers : 1)) {
        double best = -1e30, second = -1e30;
        int from = 0, to = 0, a, b;
        for (a = 0; a < (int)n; a++) {
            for (b = a + 1; b < (int)n; b++) {
                double sum = 0;
                int pairs = 0;
                for (i = 0; i < n; i++) {
                    for (k = 0; k < n && of[i] == a; k++) {
                        int d;
                        for (d = 0; d < VOICES_DIMENSION && of[k] == b; d++) {
                            sum += (double)v->vector[i * VOICES_DIMENSION + (uint32_t)d] *
                                   v->vector[k * VOICES_DIMENSION + (uint32_t)d];
                        }
                        pairs += of[k] == b;
                    }
                }
                if (pairs > 0 && sum / pairs > best) {
                    second = best;
                    best = sum / pairs;
                    to = a;
                    from = b;
                } else if (pairs > 0 && sum / pairs > second) {
                    second = sum / pairs;
                }
            }
        }
        closest = best - second < closest ? best - second : closest;
        if (speakers == 0 && best < least) {
            break;
        }
        for (i = 0; i < n; i++) {
            of[i] = of[i] == from ? to : of[i];
        }
        left--;
    }
    return closest;
}

/* Clusters are those of the definition, and numbered in order of appearance. */
static void voices_linkage(void)
{
    int of[VOICES_MOST], trial, compared = 0;
    uint32_t i, k;
    words_seed = 11;
    for (trial = 0; trial < 120; trial++) {
        vc_voices *v = voices_open(VOICES_MOST);
        uint32_t n = 1 + random32() % 24, speakers = random32() % 6;
        float threshold = 0.1f * (float)(random32() % 15);
        int32_t known = 0;
        for (i = 0; i < n; i++) {
            voices_add(v, (int)(random32() % 4), 0.8f, 1.0f);
        }
        if (voices_slow(v, speakers, (1 - (double)threshold) * (double)VC_SAME, of) < 4) {
            continue; /* nearly a tie, which rounding decides */
        }
        compared++;
        T_CHECK(voices_run(v, speakers, threshold, 0.0f), "trial %d", trial);
        for (i = 0; i < n; i++) {
            for (k = 0; k < n; k++) {
                T_CHECK((v->turn[i].cluster == v->turn[k].cluster) == (of[i] == of[k]),
                        "trial %d, %u speakers: turns %u and %u", trial, (unsigned)speakers,
                        (unsigned)i, (unsigned)k);
                T_CHECK(v->turn[i].speaker == 0 || v->turn[k].speaker == 0 ||
                        (v->turn[i].speaker == v->turn[k].speaker) == (of[i] == of[k]),
                        "trial %d: labels of %u and %u", trial, (unsigned)i, (unsigned)k);
            }
            T_CHECK(v->turn[i].speaker <= known + 1, "trial %d: %s", trial, voices_labels(v));
            known = v->turn[i].speaker > known ? v->turn[i].speaker : known;
        }
    }
    T_CHECK(compared > 60, "%d trials", compared);
}

/* Three voices of any loudness, how many of them is given or found. */
static void voices_count(void)
{
    static const int axis[] = {2, 2, 0, 2, 4, 0, 4, 4, 2, 0};
    static const char want[] = "AABACBCCAB";
    float length;
    size_t i;
    for (length = 1e-30f; length < 1e30f; length *= 1e15f) {
        vc_voices *v = voices_open(VOICES_MOST);
        words_seed = 5;
        for (i = 0; i < sizeof axis / sizeof axis[0]; i++) {
            voices_add(v, axis[i], 0.15f, length);
        }
        T_CHECK(voices_run(v, 3, 0.5f, 0.05f) && strcmp(voices_labels(v), want) == 0, "%s",
                voices_labels(v));
        T_CHECK(voices_run(v, 0, 0.5f, 0.05f) && strcmp(voices_labels(v), want) == 0, "found: %s",
                voices_labels(v));
        T_CHECK(voices_run(v, 1, 0.5f, 0.05f) && strcmp(voices_labels(v), "AAAAAAAAAA") == 0,
                "one: %s", voices_labels(v));
        T_CHECK(voices_run(v, 0, 2.0f, 0.0f) && strcmp(voices_labels(v), "AAAAAAAAAA") == 0,
                "far: %s", voices_labels(v));
        T_CHECK(voices_run(v, 99, 0.5f, 0.0f) && strcmp(voices_labels(v), "ABCDEFGHIJ") == 0,
                "more than there are: %s", voices_labels(v));
    }
}

/* Equal vectors, turns without one, a turn between two voices, no turns, no room, cancelling. */
static void voices_edges(void)
{
    static const float odd[] = {0.0f, NAN, INFINITY, -INFINITY};
    vc_voices *v = voices_open(8);
    int cancel = 1, k;
    words_seed = 3;
    T_CHECK(voices_run(v, 2, 0.5f, 0.0f) && voices_run(v, 0, 0.5f, 0.0f), "no turns");
    for (k = 0; k < 4; k++) { /* none of these has a direction */
        memset(v->given, 0, sizeof voices_of.given);
        v->given[1] = odd[k];
        vc_add(v, 0, 0, 1);
    }
    vc_add(v, 0, 0, 0);
    T_CHECK(voices_run(v, 2, 0.5f, 0.0f) && strcmp(voices_labels(v), "-----") == 0, "%s",
            voices_labels(v));
    for (k = 0; k < 4; k++) {
        voices_add(v, 3, 0.0f, 1.0f);
    }
    T_CHECK(v->n == 8 && v->left_out == 1, "%u turns", (unsigned)v->n);
    T_CHECK(voices_run(v, 0, 0.0f, 0.0f) && strcmp(voices_labels(v), "-----AAA") == 0, "equal: %s",
            voices_labels(v));
    T_CHECK(voices_run(v, 2, 0.0f, 0.05f) && strcmp(voices_labels(v), "--------") == 0,
            "two equal voices: %s", voices_labels(v));

    v = voices_open(8);
    for (k = 0; k < 6; k++) {
        voices_add(v, k < 3 ? 0 : 1, 0.0f, 1.0f);
    }
    memset(v->given, 0, sizeof voices_of.given);
    v->given[0] = 0.51f;
    v->given[1] = 0.5f;
    vc_add(v, 0, 0, 1);
    T_CHECK(voices_run(v, 2, 0.5f, 0.05f) && strcmp(voices_labels(v), "AAABBB-") == 0,
            "between two: %s", voices_labels(v));
    T_CHECK(voices_run(v, 2, 0.5f, 0.0f) && strcmp(voices_labels(v), "AAABBBA") == 0,
            "no margin: %s", voices_labels(v));
    T_CHECK(!vc_cluster(v, 2, 0.5f, 0.0f, &cancel) && strcmp(voices_labels(v), "-------") == 0,
            "cancelled: %s", voices_labels(v));
    T_CHECK(voices_run(v, 2, 0.5f, 0.0f) && strcmp(voices_labels(v), "AAABBBA") == 0, "again: %s",
            voices_labels(v));
}

/* As many turns as there can be: sums do not overflow. Opposite voices are as far as possible. */
static void voices_bounds(void)
{
    vc_voices *v = voices_open(VC_MAX_TURNS);
    uint32_t i;
    for (i = 0; i < VC_MAX_TURNS; i++) {
        voices_add(v, 0, 0.0f, i % 3 == 1 ? -1.0f : 1.0f);
    }
    T_CHECK(voices_run(v, 0, 1.9f, 1.5f), "cancelled");
    for (i = 0; i < VC_MAX_TURNS; i++) {
        T_CHECK(v->turn[i].speaker == (i % 3 == 1 ? 2 : 1), "turn %u: %d", (unsigned)i,
                (int)v->turn[i].speaker);
    }
    T_CHECK(vc_similarity(v, 0, 1) == -VC_SAME && v->turn[0].count + v->turn[1].count ==
            VC_MAX_TURNS, "similarity %ld", (long)vc_similarity(v, 0, 1));
}

/* ---- segments that are divided ---- */

/* All words of a store with their times and tokens, as text. */
static char *voices_words(const rs_store *s)
{
    static char text[2][1 << 17];
    static int turn;
    char *out = text[turn ^= 1];
    size_t i, k, n = 0, tokens, bytes;
    wnpu_segment g;
    wnpu_word w;
    for (i = 0; rs_get(s, i, &g) == WNPU_OK; i++) {
        tokens = bytes = 0;
        for (k = 0; rs_get_word(s, i, k, &w) == WNPU_OK; k++) {
            T_CHECK(w.speaker == g.speaker && w.first_token == tokens && w.t0_ms >= g.t0_ms &&
                    w.t1_ms <= g.t1_ms && memcmp(g.text + bytes, w.text, w.text_length) == 0,
                    "segment %lu, word %lu", (unsigned long)i, (unsigned long)k);
            tokens += w.n_tokens;
            bytes += w.text_length;
            n += (size_t)snprintf(out + n, sizeof text[0] - n, "%ld-%ld%s(%d", (long)w.t0_ms,
                                  (long)w.t1_ms, w.text, (int)w.n_tokens);
            n += (size_t)snprintf(out + n, sizeof text[0] - n, ",%d)\n",
                                  (int)(w.n_tokens > 0 ? g.tokens[w.first_token].id : -1));
        }
        T_CHECK(tokens == g.n_tokens && bytes == g.text_length && strlen(g.text) == bytes,
                "segment %lu: %lu of %lu tokens", (unsigned long)i, (unsigned long)tokens,
                (unsigned long)g.n_tokens);
    }
    return out;
}

/* Any segment is divided before any word, and again, until there is no room. */
static void voices_split(void)
{
    wnpu_model *m = life_toy(1, NULL);
    sub_speech *s = malloc(sizeof *s);
    char *before = malloc(1 << 17);
    uint32_t which;
    for (which = 0; which < 3 && m != NULL; which++) { /* three kinds of text */
        size_t i, splits = 0, failed = 0, count;
        sub_begin(s, which);
        for (i = 0; i < 12; i++) {
            sub_segment(s, m);
        }
        strcpy(before, voices_words(&s->store));
        for (i = 0; i < 60; i++) {
            size_t index = sub_random(s, (uint32_t)s->store.count);
            size_t n = rs_word_count(&s->store, index);
            count = s->store.count;
            if (i == 40) { /* no room any more */
                s->store.size = (rs_used(&s->store) + 100) & ~(size_t)7;
                memmove(s->store.base + s->store.size - count * 4,
                        s->store.base + sizeof s->block - count * 4, count * 4);
            }
            if (n < 2) {
                continue;
            }
            if (sp_split(&s->store, index, 1 + sub_random(s, (uint32_t)n - 1), 7)) {
                splits++;
                T_CHECK(s->store.count == count + 1, "%lu segments", (unsigned long)count);
            } else {
                failed++;
                T_CHECK(s->store.count == count && i >= 40, "refused at %lu", (unsigned long)i);
            }
            sp_order(&s->store);
            T_CHECK(strcmp(before, voices_words(&s->store)) == 0, "kind %u: other words",
                    (unsigned)which);
        }
        T_CHECK(splits > 20 && failed > 5, "%lu divided, %lu not", (unsigned long)splits,
                (unsigned long)failed);
    }
    free(before);
    free(s);
    wnpu_model_close(m);
}

/* ---- whole runs ---- */

#define VOICES_SECONDS 65
#define VOICES_CALLS 64

/* What the hook was called with, and how it answers. */
typedef struct voices_hook {
    wnpu_session *session;
    const float *sound;
    int calls, cancel_at, none_at;
    int axis[VOICES_CALLS];
    int64_t t0_ms[VOICES_CALLS], t1_ms[VOICES_CALLS];
    int segments;                  /* that on_segment has seen with a speaker */
} voices_hook;

/* Finds where in the sound the stretch is. The voice changes with each call; each fourth one has
 * none. */
static int voices_vector(void *user, const float *x, size_t n, float *vector)
{
    voices_hook *h = user;
    size_t i, at = 0;
    int call = h->calls < VOICES_CALLS ? h->calls : VOICES_CALLS - 1;
    h->calls++;
    for (at = 0; at + n <= VOICES_SECONDS * 16000; at += 16) { /* stretches begin at a ms */
        if (memcmp(x, h->sound + at, n * sizeof *x) == 0) {
            break;
        }
    }
    T_CHECK(at + n <= VOICES_SECONDS * 16000 && n >= 32000 && n <= 480000,
            "call %d: %lu samples that are not the recording's", h->calls, (unsigned long)n);
    for (i = 0; i < VOICES_DIMENSION; i++) {
        T_CHECK(vector[i] == 0.0f, "not cleared");
    }
    h->t0_ms[call] = (int64_t)at / 16;
    h->t1_ms[call] = (int64_t)(at + n) / 16;
    h->axis[call] = call % 4 == 3 ? -1 : call % 2;
    vector[call % 2] = 3.0f;
    if (h->calls == h->cancel_at) {
        wnpu_cancel(h->session);
    }
    return h->axis[call] < 0 || h->calls == h->none_at;
}

static int voices_segment(void *user, const wnpu_segment *s)
{
    voices_hook *h = user;
    h->segments += s->speaker != 0;
    return 0;
}

static wnpu_params voices_params(voices_hook *h)
{
    wnpu_params p = life_params();
    p.voices = 2;
    p.on_voice = voices_vector;
    p.on_segment = voices_segment;
    p.user = h;
    return p;
}

/* Who speaks is what the hook said; all else is that of a run without voices. */
static void voices_check(const wnpu_session *s, const wnpu_session *plain, const voices_hook *h)
{
    size_t i, k, named = 0;
    wnpu_segment g;
    T_CHECK(wnpu_segment_count(s) == wnpu_segment_count(plain) && life_begins(s, plain),
            "the option changes segments");
    for (i = 0; wnpu_get_segment(s, i, &g) == WNPU_OK; i++) {
        int32_t expected = 0;
        for (k = 0; k < (size_t)h->calls; k++) {
            if (h->t0_ms[k] == g.t0_ms && h->t1_ms[k] == g.t1_ms) {
                expected = h->axis[k] + 1;
            }
        }
        named += g.speaker > 0;
        T_CHECK(g.speaker == expected, "%ld-%ld ms: speaker %d, not %d", (long)g.t0_ms,
                (long)g.t1_ms, (int)g.speaker, (int)expected);
    }
    T_CHECK(h->calls > 6 && named == (size_t)(h->calls - h->calls / 4) && h->segments == 0,
            "%d calls, %lu named, %d before the end", h->calls, (unsigned long)named, h->segments);
}

static const float *voices_sound(void)
{
    static float *x;
    size_t i;
    if (x == NULL) {
        x = life_sound(VOICES_SECONDS * 16000);
        for (i = 0; i < VOICES_SECONDS * 16000; i++) { /* pauses */
            x[i] *= i / 16000 % 5 == 4 ? 0.01f : 1.0f;
        }
    }
    return x;
}

static wnpu_config voices_config(void)
{
    wnpu_config c = life_config(1);
    c.voice_dimension = VOICES_DIMENSION;
    c.max_turns = VOICES_CALLS;
    return c;
}

/* Turns begin and end in pauses between words, and a segment of several speakers is divided there. A
 * window as long as its samples is given segments that a toy would never say. */
static void voices_turns(void)
{
    wnpu_model *m = life_toy(1, NULL);
    wnpu_config c = voices_config();
    wnpu_session *session = life_open(m, &c);
    sub_speech *s = malloc(sizeof *s);
    voices_hook h = {session, voices_sound(), 0, 0, 0, {0}, {0}, {0}, 0};
    ru_run *r = &session->run;
    char *before = malloc(1 << 17);
    size_t i, k, n, segments;
    int call, none = 0;
    wnpu_word w;
    sub_begin(s, 0);
    s->also = &r->out.store; /* adds each segment to the session, too */
    r->call.params = voices_params(&h);
    r->voices.on = 1;
    memcpy(r->audio.samples + ML_MARGIN, h.sound, ML_FRAMES * ML_HOP * sizeof(float));
    aw_set_samples(&r->audio.at, ML_MARGIN + ML_FRAMES * ML_HOP);
    while (s->end_ms < 20000) {
        sub_segment(s, m);
        if (s->end_ms < 30000) {
            lg_take_turns(&r->voices, &r->out.store, &r->audio, &r->call.params);
        }
    }
    segments = r->out.store.count;
    strcpy(before, voices_words(&r->out.store));
    T_CHECK(wi_name_voices(&r->voices, &r->out.store, &r->work, &r->call, WNPU_OK) == WNPU_OK,
            "named");
    T_CHECK(strcmp(before, voices_words(&r->out.store)) == 0, "other words");
    T_CHECK(r->out.store.count > segments && (size_t)h.calls > segments / 2,
            "%lu of %lu segments, %d", (unsigned long)r->out.store.count, (unsigned long)segments,
            h.calls);
    for (i = n = 0; i < r->out.store.count; i++) {
        for (k = 0; rs_get_word(&r->out.store, i, k, &w) == WNPU_OK; k++, n++) {
            int32_t expected = 0;
            for (call = 0; call < h.calls; call++) {
                if (h.t0_ms[call] <= w.t0_ms && w.t1_ms <= h.t1_ms[call]) {
                    expected = h.axis[call] + 1;
                }
            }
            none += expected == 0;
            T_CHECK(w.speaker == expected, "word at %ld ms: %d, not %d", (long)w.t0_ms,
                    (int)w.speaker, (int)expected);
        }
    }
    T_CHECK(none > 0 && n > 30, "%d of %lu words have no speaker", none, (unsigned long)n);
    for (call = 0; call < h.calls; call++) { /* neither end is within a word */
        for (i = 0; i < r->out.store.count; i++) {
            for (k = 0; rs_get_word(&r->out.store, i, k, &w) == WNPU_OK; k++) {
                T_CHECK(h.t0_ms[call] <= w.t0_ms || h.t0_ms[call] >= w.t1_ms, "begin of %d", call);
                T_CHECK(h.t1_ms[call] <= w.t0_ms || h.t1_ms[call] >= w.t1_ms, "end of %d", call);
            }
        }
    }
    free(before);
    free(s);
    wnpu_session_close(session);
    wnpu_model_close(m);
}

static void voices_runs(void)
{
    wnpu_model *m = life_toy(4, NULL);
    wnpu_config c = voices_config();
    life_counter counter;
    wnpu_session *s, *plain = life_session(m, 1);
    voices_hook h = {NULL, voices_sound(), 0, 0, 0, {0}, {0}, {0}, 0}, resumed = h;
    wnpu_params p = voices_params(&h), none = voices_params(&h);
    wnpu_audio a = life_audio(h.sound, VOICES_SECONDS * 16000);
    life_bytes x, y;
    int status;
    long calls;
    life_count(&counter);
    c.allocator = &counter.allocator;
    s = life_open(m, &c);
    calls = counter.calls;
    none.voices = 0;
    none.on_voice = NULL;
    T_CHECK(wnpu_transcribe(plain, &none, &a) >= 0, "%s", wnpu_session_error(plain));
    T_CHECK(wnpu_transcribe(s, &p, &a) >= 0, "%s", wnpu_session_error(s));
    voices_check(s, plain, &h);
    x = life_written(s, WNPU_FORMAT_JSON);
    T_CHECK(strstr(x.bytes, "\"speaker\": 1") != NULL && strstr(x.bytes, "\"speaker\": 2") != NULL,
            "JSON");
    y = life_written(s, WNPU_FORMAT_SRT);
    T_CHECK(strstr(y.bytes, "Speaker 2: ") != NULL, "SRT: %s", y.bytes);
    free(y.bytes);
    T_CHECK(wnpu_resume(s, &p, &a) == WNPU_E_STATE && wnpu_snapshot_size(s) == 0, "at the end");

    /* Cancelled in the hook, and continued. */
    resumed.session = s;
    resumed.cancel_at = 2;
    p.user = &resumed;
    status = wnpu_transcribe(s, &p, &a);
    T_CHECK(status == WNPU_E_CANCELLED && resumed.calls < h.calls && wnpu_snapshot_size(s) == 0,
            "status %d after %d calls", status, resumed.calls);
    for (; status == WNPU_E_CANCELLED; status = wnpu_resume(s, &p, &a)) {
        resumed.cancel_at += 3;
        T_CHECK(resumed.segments == 0, "named too soon");
    }
    T_CHECK(status >= 0, "%s", wnpu_session_error(s));
    y = life_written(s, WNPU_FORMAT_JSON);
    T_CHECK(life_alike(x, y), "cancelled and continued:\n%s---\n%s", x.bytes, y.bytes);
    free(y.bytes);

    /* Without the option, a session with room for turns is any other. */
    T_CHECK(wnpu_transcribe(s, &none, &a) >= 0, "%s", wnpu_session_error(s));
    free(x.bytes);
    x = life_written(plain, WNPU_FORMAT_JSON);
    y = life_written(s, WNPU_FORMAT_JSON);
    T_CHECK(life_alike(x, y), "off:\n%s---\n%s", x.bytes, y.bytes);
    free(x.bytes);
    free(y.bytes);
    T_CHECK(counter.calls == calls, "%ld allocations", counter.calls - calls);
    wnpu_session_close(s);
    T_CHECK(counter.live == 0 && counter.left == 0, "%lu bytes left", (unsigned long)counter.left);
    wnpu_session_close(plain);
    wnpu_model_close(m);
}

static void voices_refused(wnpu_session *s, const wnpu_params *p, const char *why)
{
    wnpu_audio a = life_audio(voices_sound(), 16000);
    int status = wnpu_transcribe(s, p, &a);
    T_CHECK(status == WNPU_E_ARGUMENT && strstr(wnpu_session_error(s), why) != NULL,
            "%d instead of %s: %s", status, why, wnpu_session_error(s));
}

/* What is refused, what a session needs, and turns beyond max_turns. */
static void voices_limits(void)
{
    wnpu_model *m = life_toy(4, NULL);
    wnpu_config c = voices_config();
    wnpu_session *s;
    wnpu_error error;
    voices_hook h = {NULL, voices_sound(), 0, 0, 0, {0}, {0}, {0}, 0};
    wnpu_params p = voices_params(&h);
    wnpu_audio a = life_audio(h.sound, VOICES_SECONDS * 16000);
    size_t without, with;
    c.voice_dimension = c.max_turns = 0;
    c.stream_bytes = 1 << 17;
    without = wnpu_session_size(m, &c, &error);
    s = life_open(m, &c);
    voices_refused(s, &p, "voice_dimension");
    wnpu_session_close(s);
    c.voice_dimension = 256; /* an hour */
    with = wnpu_session_size(m, &c, &error);
    T_CHECK(with - without >= 1024 * 256 * 6 && with - without < 2 << 20, "%lu bytes",
            (unsigned long)(with - without));
    c.voice_dimension = 2049;
    T_CHECK(wnpu_session_size(m, &c, &error) == 0 && error.code == WNPU_E_ARGUMENT, "dimension");
    c.voice_dimension = VOICES_DIMENSION;
    c.max_turns = 4097;
    T_CHECK(wnpu_session_size(m, &c, &error) == 0 && error.code == WNPU_E_ARGUMENT, "turns");
    c.max_turns = 2;
    s = life_open(m, &c);
    p.on_voice = NULL;
    voices_refused(s, &p, "on_voice");
    p.on_voice = voices_vector;
    p.append = 1;
    voices_refused(s, &p, "append");
    p.append = 0;
    p.speaker = 1;
    voices_refused(s, &p, "speaker");
    p.speaker = 0;
    p.voices = -2;
    voices_refused(s, &p, "voices");
    p.voices = 2;
    T_CHECK(wnpu_stream_begin(s, &p, NULL) == WNPU_E_ARGUMENT &&
            strstr(wnpu_session_error(s), "live") != NULL, "live: %s", wnpu_session_error(s));
    p.on_voice = NULL; /* which no function would help */
    T_CHECK(wnpu_stream_begin(s, &p, NULL) == WNPU_E_ARGUMENT &&
            strstr(wnpu_session_error(s), "live") != NULL, "live: %s", wnpu_session_error(s));
    p.on_voice = voices_vector;
    T_CHECK(h.calls == 0, "%d calls", h.calls);
    T_CHECK(wnpu_transcribe(s, &p, &a) >= 0 && h.calls == 2 && s->run.voices.left_out > 2,
            "%d calls, %u left out", h.calls, (unsigned)s->run.voices.left_out);
    T_CHECK(s->run.voices.turn[0].speaker == 1 && s->run.voices.turn[1].speaker == 2, "the others");
    wnpu_session_close(s);
    wnpu_model_close(m);
}

static void voices_tests(void)
{
    t_run("voices_linkage", voices_linkage);
    t_run("voices_count", voices_count);
    t_run("voices_edges", voices_edges);
    t_run("voices_bounds", voices_bounds);
    t_run("voices_split", voices_split);
    t_run("voices_turns", voices_turns);
    t_run("voices_runs", voices_runs);
    t_run("voices_limits", voices_limits);
}
