/* server_pool.h - the sessions of a server, the queue of those that wait for one, and what is
 * counted. Part of server. All functions may be called in any thread. */
#ifndef SERVER_POOL_H
#define SERVER_POOL_H

#include "server_models.h"
#include "server_watch.h"
#include "whisper_npu.h"

#include <stddef.h>
#include <stdint.h>

typedef struct pool_options {
    int sessions;             /* in use at a time, 1..64 */
    int queue;                /* requests that may wait, 0..10000 */
} pool_options;

typedef enum pool_result {
    POOL_TAKEN,
    POOL_FULL,                /* the queue is full */
    POOL_STOPPED,             /* the client is gone or its time is up: see watch */
    POOL_SHUT,                /* the server is being shut down */
    POOL_FAILED               /* there is no memory for a session of the model */
} pool_result;

/* Receives the number of those that wait in front, and user. */
typedef struct pool_listener {
    void (*tell)(void *user, int before);
    void *user;
} pool_listener;

/* Who waits. While live audio and others wait, they get sessions in turn; jobs wait until no
 * request does. Within a rank, who came first is first. */
typedef enum pool_rank { POOL_LIVE, POOL_REQUEST, POOL_JOB } pool_rank;

/* What is counted for each kind of refusal. */
typedef enum pool_refusal {
    POOL_REFUSED_FULL, POOL_REFUSED_CLOSING, POOL_REFUSED_SIZE, POOL_REFUSED_KEY,
    POOL_REFUSED_REQUEST, POOL_REFUSED_AUDIO, POOL_REFUSED_TIME, POOL_REFUSALS
} pool_refusal;

/* What clients are told that POOL_FULL and POOL_SHUT refuse. */
#define POOL_FULL_MESSAGE "all sessions are in use and the queue is full"
#define POOL_CLOSING_MESSAGE "the server is shutting down"
#define POOL_FAILED_MESSAGE "no memory for a session of the model"

/* Opens all sessions of the first model; those of others are opened when they are needed. Returns
 * WNPU_OK or an error. */
int pool_open(const pool_options *options, served *first, wnpu_error *error);
/* Closes the sessions of a model; none may be in use. */
void pool_drop(const served *m);
/* Memory of the sessions of a model. */
uint64_t pool_session_bytes(const served *m);

/* Waits for a session of a model that the caller holds, with those that wait for other models. w
 * ends the wait as it ends a run. */
pool_result pool_take(watch *w, served *m, wnpu_session **session);
/* The same, and tells how many wait in front whenever that changes, and every POOL_TELL_MS. */
#define POOL_TELL_MS 1000
pool_result pool_take_told(watch *w, served *m, wnpu_session **session, const pool_listener *told);
/* The same for work that was accepted before: it is not refused, and the queue has room for it. */
pool_result pool_take_again(watch *w, served *m, pool_rank rank, wnpu_session **session);
/* The same for a run that goes on: only a client that is gone or has no time left ends the wait. */
pool_result pool_take_back(watch *w, served *m, pool_rank rank, wnpu_session **session);
/* What is counted of a run. */
typedef struct pool_run {
    double audio_s, computing_s;
    uint64_t macs, accel_macs; /* multiply-accumulates, and those of the accelerator */
} pool_run;

/* That of a session's last run. */
pool_run pool_measure(wnpu_session *session);
void pool_count_run(const pool_run *run);
/* Returns a session after it was used, and counts its last run. Erases audio and text. */
void pool_give(watch *w, wnpu_session *session);
/* The same for a run that goes on later or was not made. */
void pool_give_back(watch *w, wnpu_session *session);

/* Whether a run that has had its session for a time, and can go on later, is to give it back: at
 * once for a higher rank, after POOL_SLICE_MS for its own. */
#define POOL_SLICE_MS 10000
int pool_wants_back(pool_rank rank, int64_t ms);
/* Whether somebody waits for a session. */
int pool_is_awaited(void);
/* Whether another request would be refused now. */
int pool_is_full(void);
/* How the server ends, in this order. */
typedef enum pool_phase {
    POOL_OPEN,
    POOL_DRAINING,            /* requests are served; balancers are told not to send more */
    POOL_CLOSING,             /* new requests are refused, those that have begun are served */
    POOL_ENDED                /* nobody gets a session */
} pool_phase;
void pool_enter(pool_phase phase);
pool_phase pool_phase_now(void);
/* Whether new requests are refused. */
int pool_is_closing(void);
/* Seconds after which a refused client should try again. */
int pool_retry_after(void);

void pool_count_request(int http_status);
/* Counts how long a request that computes has taken. */
void pool_count_time(double seconds);
void pool_count_realtime(int more); /* connections: 1 or -1 */
void pool_count_refusal(pool_refusal why);
void pool_count_cancelled(void);
void pool_count_yield(void);
/* Ends of items that were decoded in a pause (used 0), and those of them that were right (1). */
void pool_count_draft(int used);
/* The state as members of a JSON object, and all counters in the text format of Prometheus. They
 * return the length, less than size. */
size_t pool_health(char *text, size_t size);
size_t pool_metrics(char *text, size_t size);

#endif
