/* test_snapshot.c - runs that are stopped, put away and continued somewhere else give the output of
 * a run that was never interrupted, byte for byte.
 *
 * TEST_SNAPSHOTS=N takes N snapshots at random instants instead of 48; with 500 or more on tiny, if
 * it is there. */
#define _GNU_SOURCE 1
#include "../lib/life.h"
#include "../lib/voicelike.h"
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static wnpu_model *model;
static life_sounds sounds, voiced; /* bursts of tone; vowels and silences */
static int toy;
#define PLAIN_SECONDS 65
#define VAD 0x100 /* beside a mode: with voice activity detection */
static const int modes[] = {
    LIFE_GREEDY, LIFE_WORDS | VAD, LIFE_BEAM, LIFE_READER | VAD, LIFE_SAMPLES, LIFE_STEREO | VAD,
    LIFE_WORDS, LIFE_SAMPLES | VAD, LIFE_STEREO, LIFE_GREEDY | VAD, LIFE_HOTWORDS, LIFE_BEAM | VAD,
    LIFE_EACH, LIFE_AHEAD | VAD, LIFE_AHEAD, LIFE_EACH | VAD, LIFE_READER, LIFE_WIDE
};
#define N_MODES (sizeof modes / sizeof modes[0])

static uint32_t random_state = 4711;

static uint32_t random32(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static int snapshots(void)
{
    const char *text = getenv("TEST_SNAPSHOTS");
    return text != NULL && atoi(text) > 0 ? atoi(text) : 48;
}

/* ---- runs that stop ---- */

typedef struct stop {
    wnpu_session *session;
    int after;                  /* progress calls */
    int with_text;              /* 1: calls before there is text do not count */
    int64_t us;                 /* or microseconds, and then a thread cancels */
    unsigned char *block;       /* room for a snapshot that the callback takes */
    size_t most, size;
} stop;

static int on_progress(void *user, int64_t done_ms, int64_t total_ms)
{
    stop *p = user;
    (void)done_ms;
    (void)total_ms;
    if (p->with_text && wnpu_segment_count(p->session) == 0) {
        return 0; /* on a slow machine, inside the first window */
    }
    if (p->after > 0 && --p->after == 0) {
        p->size = wnpu_snapshot_size(p->session);
        T_CHECK(p->size > 0 && p->size <= p->most, "%lu bytes", (unsigned long)p->size);
        T_CHECK(wnpu_snapshot(p->session, p->block, p->size) == WNPU_OK, "from the callback: %s",
                wnpu_session_error(p->session));
        return 1;
    }
    return 0;
}

static void *cancel_later(void *user)
{
    stop *p = user;
    struct timespec t;
    t.tv_sec = (time_t)(p->us / 1000000);
    t.tv_nsec = (long)(p->us % 1000000) * 1000;
    nanosleep(&t, NULL);
    wnpu_cancel(p->session);
    return NULL;
}

static const life_sounds *sounds_of(int mode)
{
    return toy && (mode & VAD) ? &voiced : &sounds; /* a real model has real speech */
}

static const char *name_of(int mode)
{
    static char name[32];
    (void)snprintf(name, sizeof name, "%s%s", life_modes[mode & ~VAD], mode & VAD ? ", vad" : "");
    return name;
}

/* Three stretches of what is like a voice, and silence longer than a window's rest between. */
static float *spoken(size_t seconds)
{
    float *x = voicelike(16000 * seconds, 1);
    size_t i;
    for (i = 0; i < 16000 * seconds; i++) {
        size_t at = i / 16000;
        x[i] *= (at >= 22 && at < 49) || (at >= 60 && at < 64) || (at >= 80 && at < 108) ? 0.00001f
                                                                                          : 1.0f;
    }
    return x;
}

static void params_of(int mode, wnpu_params *p)
{
    life_mode_params(sounds_of(mode), mode & ~VAD, toy, p);
    p->vad = (mode & VAD) != 0;
    p->max_tokens = toy && p->vad ? 40 : p->max_tokens; /* so that windows are decoded again */
}

/* The audio of a mode from a frame on; reader is its reader's place. */
static wnpu_audio audio_of(int mode, life_reader *reader, uint64_t from)
{
    const life_sounds *l = sounds_of(mode);
    int kind = mode & ~VAD;
    wnpu_audio a = kind == LIFE_WIDE ? l->wide : kind == LIFE_STEREO ? l->stereo : l->plain;
    if (kind == LIFE_READER) {
        reader->from = &l->plain;
        reader->at = from;
        a.data = NULL;
        a.read = life_read;
        a.user = reader;
    }
    return a;
}

/* From the beginning, or onwards, until it ends or is stopped. */
static int run(int mode, wnpu_session *s, int onwards, stop *p)
{
    life_reader reader;
    uint64_t from = 0;
    wnpu_audio a;
    wnpu_params params;
    pthread_t thread;
    int status;
    params_of(mode, &params);
    params.on_progress = p != NULL ? on_progress : NULL;
    params.user = p;
    T_CHECK(wnpu_get_position(s, &from) == WNPU_OK, "position");
    a = audio_of(mode, &reader, onwards ? from : 0);
    if (p != NULL) {
        p->session = s;
        p->size = 0;
    }
    if (p != NULL && p->us > 0) {
        T_CHECK(pthread_create(&thread, NULL, cancel_later, p) == 0, "no thread");
    }
    status = onwards ? wnpu_resume(s, &params, &a) : wnpu_transcribe(s, &params, &a);
    if (p != NULL && p->us > 0) {
        pthread_join(thread, NULL);
    }
    return status;
}

static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Stops a run again and again, each time going on in the other of two sessions, or in the same one
 * without a snapshot. Returns how many snapshots were restored. */
static int journey(int mode, wnpu_session *s[2], int by_callback, double length_us,
                   const life_text *want, uint64_t counts)
{
    static life_text is;
    stop p;
    int status, here = 0, onwards = 0, restored = 0;
    memset(&p, 0, sizeof p);
    p.most = wnpu_snapshot_most(s[0]);
    p.block = malloc(p.most + 1);
    for (;;) {
        unsigned char *block = p.block + (random32() & 1); /* no alignment is needed */
        p.after = by_callback ? 1 + (int)(random32() % 2) : 0;
        p.us = by_callback || restored > 20 ? 0 : 1 + (int64_t)(length_us * (random32() % 1000) /
                                                               1000);
        status = run(mode, s[here], onwards, &p);
        if (status != WNPU_E_CANCELLED) {
            break;
        }
        if (p.size == 0) { /* not from the callback */
            p.size = wnpu_snapshot_size(s[here]);
            if (p.size == 0) { /* before the first window */
                onwards = 0;
                continue;
            }
            T_CHECK(p.size <= p.most, "%lu bytes, at most %lu", (unsigned long)p.size,
                    (unsigned long)p.most);
            T_CHECK(wnpu_snapshot(s[here], block, p.size - 1) == WNPU_E_MEMORY, "too small");
            T_CHECK(wnpu_snapshot(s[here], block, p.size) == WNPU_OK, "%s",
                    wnpu_session_error(s[here]));
        } else {
            block = p.block;
        }
        onwards = 1;
        if (random32() % 4 != 0) {
            here = !here;
            T_CHECK(wnpu_restore(s[here], block, p.size) == WNPU_OK, "%s: %s", name_of(mode),
                    wnpu_session_error(s[here]));
            restored++;
        }
    }
    T_CHECK(status == WNPU_OK || status == WNPU_INCOMPLETE, "%s: status %d, %s", name_of(mode),
            status, wnpu_session_error(s[here]));
    life_json(s[here], &is);
    T_CHECK(life_same(&is, want), "%s: another output after %d snapshots", name_of(mode), restored);
    T_CHECK(life_counts(s[here]) == counts, "%s: other counts after %d snapshots", name_of(mode),
            restored);
    free(p.block);
    return restored;
}

/* Two sessions with one and two threads, and results of whole runs. */
static void any_instant(void)
{
    static life_text want[N_MODES];
    wnpu_session *s[2];
    double length[N_MODES];
    uint64_t counts[N_MODES];
    size_t k;
    int done = 0, round = 0, wanted = snapshots();
    s[0] = life_session(model, 1);
    s[1] = life_session(model, 2);
    for (k = 0; k < N_MODES; k++) {
        double begin = now_us();
        T_CHECK(run(modes[k], s[0], 0, NULL) >= WNPU_OK, "%s: %s", name_of(modes[k]),
                wnpu_session_error(s[0]));
        length[k] = now_us() - begin;
        life_json(s[0], &want[k]);
        counts[k] = life_counts(s[0]);
    }
    for (k = 0; done < wanted && round < 20 * wanted; k = (k + 1) % N_MODES, round++) {
        done += journey(modes[k], s, random32() % 3 == 0, length[k], &want[k],
                        counts[k]);
    }
    printf("  %d snapshots restored\n", done);
    T_CHECK(done >= wanted, "only %d snapshots", done);
    wnpu_session_close(s[0]);
    wnpu_session_close(s[1]);
}

/* Stops a run before its step-th work, goes on in t and wants what the whole run gave. Returns the
 * status of the run that was stopped. */
static int stopped_at(int mode, int step, life_watch *w, wnpu_session *t, unsigned char *block,
                      const life_text *want, uint64_t counts)
{
    static life_text is;
    wnpu_session *s = w->session;
    wnpu_stats stats;
    size_t size;
    int status;
    w->step = step;
    status = run(mode, s, 0, NULL);
    stats.struct_size = sizeof stats;
    T_CHECK(wnpu_get_stats(s, &stats) == WNPU_OK && stats.language >= 0 &&
            stats.language_probability >= 0.0f && stats.language_probability < 1.001f,
            "%s, step %d: language %d, %g", name_of(mode), step, (int)stats.language,
            (double)stats.language_probability);
    size = wnpu_snapshot_size(s);
    if (status != WNPU_E_CANCELLED || size == 0) { /* size 0: before the first window */
        return status;
    }
    T_CHECK(wnpu_snapshot(s, block, size) == WNPU_OK && wnpu_restore(t, block, size) == WNPU_OK &&
            run(mode, t, 1, NULL) >= WNPU_OK, "%s, step %d: %s", name_of(mode), step,
            wnpu_session_error(t));
    life_json(t, &is);
    T_CHECK(life_same(&is, want) && life_counts(t) == counts, "%s, step %d: another output",
            name_of(mode), step);
    return status;
}

/* What a step that was cut short computes is nothing: it shows in no answer and in no snapshot.
 * Every seventh is tried; detecting a language takes nine. */
static void any_step(void)
{
    static const int tried[] = {LIFE_EACH, LIFE_AHEAD, LIFE_WORDS};
    static life_text want;
    wnpu_session *s, *t = life_session(model, 1);
    wnpu_config c = life_config(2);
    unsigned char *block;
    uint64_t counts;
    life_watch w;
    size_t k;
    int step;
    c.parallel_for = life_stop_there;
    c.parallel_user = &w;
    w.session = s = life_open(model, &c);
    block = malloc(wnpu_snapshot_most(s));
    sounds.plain.frames = 16000 * 32; /* two windows */
    for (k = 0; k < sizeof tried / sizeof tried[0]; k++) {
        T_CHECK(run(tried[k], t, 0, NULL) >= WNPU_OK, "%s", wnpu_session_error(t));
        life_json(t, &want);
        counts = life_counts(t);
        for (step = 1; stopped_at(tried[k], step, &w, t, block, &want, counts) ==
                       WNPU_E_CANCELLED; step += 7) {
        }
        printf("  %s: %d steps\n", name_of(tried[k]), step);
        T_CHECK(step > 100, "only %d steps", step);
    }
    sounds.plain.frames = 16000 * PLAIN_SECONDS;
    free(block);
    wnpu_session_close(s);
    wnpu_session_close(t);
}

/* What snapshots of voiced sounds are to go through: windows that are skipped, that end early, and
 * that are decoded again, and speech that stays without text. */
static void speech_and_silence(void)
{
    wnpu_session *s = life_session(model, 1);
    wnpu_stats t;
    t.struct_size = sizeof t;
    T_CHECK(run(LIFE_SAMPLES | VAD, s, 0, NULL) == WNPU_INCOMPLETE, "%s", wnpu_session_error(s));
    T_CHECK(wnpu_get_stats(s, &t) == WNPU_OK && t.skips >= 2 && t.returns > 0 && t.windows > 2 &&
            t.unresolved_ms > 0 && t.speech_ms > 0 && wnpu_ledger_count(s) > 32,
            "%u skips, %u returns", (unsigned)t.skips, (unsigned)t.returns);
    wnpu_session_close(s);
}

/* ---- other processes and machines ---- */

/* A snapshot of a run that was stopped after its first window, in malloc()ed memory. */
static unsigned char *first_window(int mode, wnpu_session *s, size_t *size)
{
    stop p;
    memset(&p, 0, sizeof p);
    p.after = 1;
    p.with_text = 1;
    p.most = wnpu_snapshot_most(s);
    p.block = malloc(p.most);
    T_CHECK(run(mode, s, 0, &p) == WNPU_E_CANCELLED && p.size > 0, "%s", wnpu_session_error(s));
    *size = p.size;
    return p.block;
}

static void another_process(void)
{
    static life_text want, is;
    static const int isas[] = {WNPU_ISA_SCALAR, WNPU_ISA_SSE41, WNPU_ISA_AVX2, WNPU_ISA_NEON};
    wnpu_session *s = life_session(model, 2);
    unsigned char *block;
    size_t size = 0, i;
    int whole = run(LIFE_WORDS | VAD, s, 0, NULL);
    T_CHECK(whole >= WNPU_OK, "%s", wnpu_session_error(s));
    life_json(s, &want);
    block = first_window(LIFE_WORDS | VAD, s, &size);
    wnpu_session_close(s);
    fflush(stdout);
    for (i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        pid_t child;
        int status = -1;
        if (!wnpu_isa_available((wnpu_isa)isas[i])) {
            continue;
        }
        child = fork();
        if (child == 0) { /* with a model and addresses of its own */
            wnpu_model *own = life_toy(7, NULL);
            wnpu_config c = life_config(3);
            c.isa = isas[i];
            s = life_open(own, &c);
            T_CHECK(wnpu_restore(s, block, size) == WNPU_OK, "%s", wnpu_session_error(s));
            T_CHECK(wnpu_segment_count(s) > 0, "results so far");
            T_CHECK(run(LIFE_WORDS | VAD, s, 1, NULL) == whole, "%s", wnpu_session_error(s));
            life_json(s, &is);
            T_CHECK(life_same(&is, &want), "%s: another output", wnpu_isa_name((wnpu_isa)isas[i]));
            fflush(stdout);
            _exit(t_bad > 0);
        }
        T_CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
                WEXITSTATUS(status) == 0, "status %d", status);
    }
    free(block);
}

/* ---- what is refused ---- */

/* The session has results of its own, which must stay. */
static void refused(wnpu_session *s, const void *block, size_t size, int code, const char *word)
{
    static life_text before, after;
    int status;
    life_json(s, &before);
    status = wnpu_restore(s, block, size);
    T_CHECK(status == code && strstr(wnpu_session_error(s), word) != NULL, "status %d, '%s'",
            status, wnpu_session_error(s));
    life_json(s, &after);
    T_CHECK(life_same(&before, &after), "%s: results have changed", word);
}

static void others(void)
{
    wnpu_session *s = life_session(model, 1);
    wnpu_model *other = life_toy(8, NULL);
    size_t size = 0, i;
    unsigned char *block = first_window(LIFE_GREEDY, s, &size);
    wnpu_session *t = life_session(other, 1);
    refused(t, block, size, WNPU_E_ARGUMENT, "another model");
    wnpu_session_close(t);
    for (i = 0; i < 4; i++) {
        wnpu_config c = life_config(1);
        c.result_bytes *= i == 0 ? 2 : 1;
        c.max_phrase_tokens /= i == 1 ? 2 : 1;
        c.max_beams -= i == 2 ? 1 : 0;
        t = life_open(model, &c);
        if (i < 3) {
            refused(t, block, size, WNPU_E_ARGUMENT, i == 0 ? "result_bytes" : i == 1
                    ? "max_phrase_tokens" : "max_beams");
        } else {
            T_CHECK(wnpu_restore(t, block, size) == WNPU_OK, "%s", wnpu_session_error(t));
        }
        wnpu_session_close(t);
    }
    block[8] ^= 1;
    refused(s, block, size, WNPU_E_VERSION, "version");
    free(block);
    wnpu_session_close(s);
    wnpu_model_close(other);
}

static void damage(void)
{
    wnpu_session *s = life_session(model, 1), *t = life_session(model, 1);
    size_t size = 0, i, step;
    unsigned char *block = first_window(LIFE_WORDS | VAD, s, &size), *cut;
    static const unsigned char zeros[4096];
    T_CHECK(run(LIFE_GREEDY, t, 0, NULL) == WNPU_OK, "%s", wnpu_session_error(t));
    refused(t, zeros, sizeof zeros, WNPU_E_ARGUMENT, "not a snapshot");
    refused(t, block, 0, WNPU_E_ARGUMENT, "not a snapshot");
    for (i = 0; i < size; i += i < 600 ? 7 : 1 + size / 100) {
        int status;
        block[i] ^= 0x10;
        status = wnpu_restore(t, block, size);
        T_CHECK(status == WNPU_E_ARGUMENT || (status == WNPU_E_VERSION && i < 16),
                "byte %lu: status %d", (unsigned long)i, status);
        block[i] ^= 0x10;
    }
    for (i = 1; i < size; i += step) {
        step = i < 600 ? 29 : 1 + size / 50;
        cut = malloc(i); /* for AddressSanitizer */
        memcpy(cut, block, i);
        refused(t, cut, i, WNPU_E_ARGUMENT, "bytes");
        free(cut);
    }
    T_CHECK(wnpu_restore(t, block, size) == WNPU_OK, "%s", wnpu_session_error(t));
    T_CHECK(wnpu_restore(NULL, block, size) == WNPU_E_ARGUMENT &&
            wnpu_restore(t, NULL, size) == WNPU_E_ARGUMENT, "NULL");
    free(block);
    wnpu_session_close(s);
    wnpu_session_close(t);
}

/* ---- when it can go on and when not ---- */

static int stop_segment(void *user, const wnpu_segment *segment)
{
    (void)user;
    (void)segment;
    return 1;
}

static int ask_segment(void *user, const wnpu_segment *segment)
{
    (void)segment;
    T_CHECK(wnpu_snapshot_size(user) == 0, "a snapshot inside a window");
    return 0;
}

static void states(void)
{
    wnpu_session *s = life_session(model, 1);
    wnpu_params p;
    char byte;
    wnpu_audio a = sounds.plain;
    life_mode_params(&sounds, LIFE_GREEDY, toy, &p);
    T_CHECK(wnpu_resume(s, &p, &a) == WNPU_E_STATE && wnpu_session_error(s)[0], "nothing");
    T_CHECK(wnpu_snapshot_size(s) == 0 && wnpu_snapshot(s, &byte, 1) == WNPU_E_STATE, "nothing");
    p.on_segment = stop_segment;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_E_CANCELLED, "stops");
    T_CHECK(wnpu_snapshot_size(s) == 0 && wnpu_resume(s, &p, &a) == WNPU_E_STATE,
            "inside a window");
    p.on_segment = ask_segment;
    p.user = s;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(wnpu_snapshot_size(s) > 0 && wnpu_resume(s, &p, &a) == WNPU_OK, "when all is done: %s",
            wnpu_session_error(s));
    T_CHECK(life_run(&sounds, LIFE_CHOOSE, toy, s) == WNPU_OK && wnpu_snapshot_size(s) == 0,
            "a choice");
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK && wnpu_reset(s) == WNPU_OK &&
            wnpu_snapshot_size(s) == 0, "after a reset");
    T_CHECK(wnpu_snapshot_size(NULL) == 0 && wnpu_snapshot_most(NULL) == 0 &&
            wnpu_resume(NULL, &p, &a) == WNPU_E_ARGUMENT, "no session");
    wnpu_session_close(s);
}

/* The run's own parameters and recording are wanted, and a refusal changes nothing. */
static void other_parameters(void)
{
    static life_text want, is;
    static const int32_t tokens[2] = {5, 6};
    static const char *const words[2] = {"one", "two"}, *const none[1] = {NULL};
    wnpu_session *s = life_session(model, 1);
    wnpu_params p;
    wnpu_audio a;
    size_t size = 0;
    free(first_window(LIFE_BEAM, s, &size));
#define DIFFERENT(change)                                                              \
    a = sounds.plain;                                                                  \
    life_mode_params(&sounds, LIFE_BEAM, toy, &p);                                     \
    change;                                                                            \
    T_CHECK(wnpu_resume(s, &p, &a) == WNPU_E_ARGUMENT && wnpu_session_error(s)[0], #change)
    DIFFERENT(p.beam = 4);
    DIFFERENT(p.max_tokens = 13);
    DIFFERENT(p.seed = 1);
    DIFFERENT(p.temperature = 0.1f);
    DIFFERENT(p.words = 1);
    DIFFERENT(p.prefix = "x");
    DIFFERENT(p.initial_prompt = "x");
    DIFFERENT(p.suppress = tokens; p.n_suppress = 1);
    DIFFERENT(p.hotwords = none; p.n_hotwords = 1);
    DIFFERENT(p.hotwords = words; p.n_hotwords = 2);
    DIFFERENT(p.hotword_lines = "one\ntwo");
    DIFFERENT(p.suppress_lines = "5");
    DIFFERENT(p.language = 0);
    DIFFERENT(p.language_margin = 0.2f);
    DIFFERENT(p.no_repeat_ngram = 3);
    DIFFERENT(p.carry_initial_prompt = 1);
    DIFFERENT(p.vad = 1);
    DIFFERENT(p.vad_pad_ms++);
    DIFFERENT(a.rate = 8000);
    DIFFERENT(a.frames--);
    DIFFERENT(a.channels = 2);
    DIFFERENT(a.format = WNPU_SAMPLE_S32LE);
    DIFFERENT(a.data = NULL; a.read = life_read);
    T_CHECK(run(LIFE_BEAM, s, 1, NULL) == WNPU_OK, "%s", wnpu_session_error(s));
    life_json(s, &is);
    T_CHECK(run(LIFE_BEAM, s, 0, NULL) == WNPU_OK, "%s", wnpu_session_error(s));
    life_json(s, &want);
    T_CHECK(life_same(&is, &want), "another output after refusals");
    wnpu_session_close(s);
}

/* The same run always gives the same block, apart from the times it took. */
static void results_survive(void)
{
    static life_text want, is;
    wnpu_session *s = life_session(model, 1), *t = life_session(model, 2);
    wnpu_stats x, y;
    size_t size = 0;
    unsigned char *block = first_window(LIFE_WORDS | VAD, s, &size);
    T_CHECK(wnpu_restore(t, block, size) == WNPU_OK, "%s", wnpu_session_error(t));
    life_json(s, &want);
    life_json(t, &is);
    T_CHECK(life_same(&is, &want) && wnpu_segment_count(t) > 0, "results so far differ");
    x.struct_size = y.struct_size = sizeof x;
    (void)wnpu_get_stats(s, &x);
    (void)wnpu_get_stats(t, &y);
    T_CHECK(x.windows == y.windows && x.tokens == y.tokens && x.audio_ms == y.audio_ms,
            "stats differ");
    free(block);
    wnpu_session_close(s);
    wnpu_session_close(t);
}

/* Restored results are written as those of the original session, whatever the other one had run. */
static void written_alike(void)
{
    wnpu_session *s = life_session(model, 1), *t = life_session(model, 2);
    unsigned char *block;
    wnpu_params p;
    wnpu_audio a = sounds.plain;
    stop here = {0};
    size_t size;
    int format;
    life_mode_params(&sounds, LIFE_GREEDY, 1, &p);
    p.task = WNPU_TRANSLATE;
    p.on_progress = on_progress;
    p.user = &here;
    here.session = s;
    here.after = here.with_text = 1;
    here.most = wnpu_snapshot_most(s);
    here.block = malloc(here.most);
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_E_CANCELLED, "%s", wnpu_session_error(s));
    size = wnpu_snapshot_size(s);
    block = malloc(size);
    T_CHECK(wnpu_snapshot(s, block, size) == WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(run(LIFE_GREEDY, t, 0, NULL) >= 0 && wnpu_restore(t, block, size) == WNPU_OK, "%s",
            wnpu_session_error(t));
    for (format = 0; wnpu_format_name(format) != NULL; format++) {
        life_bytes x = life_written(s, (wnpu_format)format);
        life_bytes y = life_written(t, (wnpu_format)format);
        T_CHECK(x.n > 0 && life_alike(x, y), "format %s differs:\n%s---\n%s",
                wnpu_format_name(format), x.bytes, y.bytes);
        T_CHECK(format != WNPU_FORMAT_VERBOSE_JSON || strstr(y.bytes, "translate") != NULL, "task");
        free(x.bytes);
        free(y.bytes);
    }
    free(block);
    free(here.block);
    wnpu_session_close(s);
    wnpu_session_close(t);
}

int main(void)
{
    char path[512];
    wnpu_error error;
    setvbuf(stdout, NULL, _IOLBF, 0);
    model = life_toy(7, NULL);
    toy = 1;
    life_make_sounds(&sounds, PLAIN_SECONDS, 0);
    life_derive_sounds(&voiced, spoken(120), 120);
    t_run("a sound with speech and silence", speech_and_silence);
    t_run("stopped at any instant and continued elsewhere", any_instant);
    t_run("stopped before any step", any_step);
    t_run("continued by other processes on other instruction sets", another_process);
    t_run("results so far come along", results_survive);
    t_run("restored results are written as before", written_alike);
    t_run("snapshots of other models and configurations are refused", others);
    t_run("damaged and cut snapshots are refused", damage);
    t_run("when a run can go on", states);
    t_run("other parameters and recordings are refused", other_parameters);
    wnpu_model_close(model);
    life_free_sounds(&sounds);
    life_free_sounds(&voiced);
    if (snapshots() >= 500 && life_cached(path, sizeof path, "ggml-tiny.bin")[0] != '\0') {
        T_CHECK(wnpu_model_open(&model, path, NULL, &error) == WNPU_OK, "%s", error.message);
        toy = 0;
        life_make_sounds(&sounds, 75, 1);
        t_run("the same on a real model", any_instant);
        wnpu_model_close(model);
        life_free_sounds(&sounds);
    }
    return t_end();
}
