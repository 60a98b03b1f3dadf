/*
 * listen_source.h - sound for live runs: a thread reads it as it arrives and pushes it into
 * sessions, whatever these are doing, so that a recorder never waits for them.
 *
 * A source is live when its sound arrives at the pace of the clock. Other sources, such as files,
 * wait until there is room and lose nothing. A live source cannot wait: what does not fit is lost.
 * What its recorder lost is known by the clock: if the sound falls behind by half a second and does
 * not catch up, so much is missing. Both become silence in the run, and a span of its ledger.
 */
#ifndef LISTEN_SOURCE_H
#define LISTEN_SOURCE_H

#include "commands.h"
#include "../kit/input.h"
#include "whisper_npu.h"

#include <pthread.h>
#include <stdatomic.h>

#define SOURCE_SESSIONS 8

/* What the clock tells of a source. Times are in milliseconds. */
typedef struct source_clock {
    int live;                 /* 1: it is live, -1: it is not, 0: not known yet */
    int64_t begin;            /* time of the first sound, or of a new start of the measurement */
    uint64_t frames;          /* since then, lost ones included */
    double delay;             /* least time that the sound was behind the clock; may be negative */
    double least;             /* the same since `window` */
    int64_t window;
    int64_t arrived;          /* when sound arrived last */
    int64_t running;          /* when the thread ran last */
    uint64_t until;           /* frames after which what is missing is counted; 0: it is not */
    int settled;              /* what had been recorded before the start has arrived */
    int throttled;            /* the source had to wait for room */
} source_clock;

typedef struct source {
    input in;                 /* in.why: what is wrong, of source_open() */
    const atomic_int *end;    /* the user ends the sound; what has arrived is still delivered */
    atomic_int stop;          /* nothing more is delivered */
    atomic_int quiet;         /* of source_wait() */
    wnpu_session *session[SOURCE_SESSIONS];
    int n_sessions;
    commands *keep;           /* gets the frames, too; or NULL */
    int ended;                /* guarded by mutex, as is hint */
    int failed;               /* reading failed */
    char hint[256];           /* why the samples may not be what they are taken for */
    source_clock clock;
    double sums[6];           /* of samples for the hint, see look_at() */
    int last[2], odd;         /* the two samples before, and whether the next has an odd number */
    size_t n_seen;            /* samples in sums */
    int guessed;              /* the format is only assumed; 0 again once there was a hint */
    int looking;              /* sums are made */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
} source;

/* Opens standard input, or another descriptor. raw describes samples without a header; NULL: it is
 * found out, and samples of 16 bits at 16 kHz are assumed. live: whether the source is known to be.
 * Returns 0, or -1 with the reason in s->in.why. s must not be moved. Call source_close() in both
 * cases. */
int source_open(source *s, int fd, const wnpu_audio *raw, int live, const atomic_int *end);
/* Starts to push sound into s->session, whose streams are open. */
int source_start(source *s);
/* Waits for more, at most 50 ms. Returns 0 when all sound was pushed. quiet: nobody speaks, so that
 * sound of a live source may come in pieces of about 100 ms, and the wait may take 200. */
int source_wait(source *s, int quiet);
/* The hint, once; else "". */
const char *source_hint(source *s, char hint[256]);
/* Ends the thread. */
void source_stop(source *s);
void source_close(source *s);

#endif
