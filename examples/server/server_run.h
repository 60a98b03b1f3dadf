/* server_run.h - runs a session on what a client uploaded. Part of server. */
#ifndef SERVER_RUN_H
#define SERVER_RUN_H

#include "server_models.h"
#include "server_reply.h"
#include "server_request.h"
#include "server_upload.h"
#include "server_watch.h"

typedef enum job_kind { JOB_TRANSCRIBE, JOB_DETECT_LANGUAGE, JOB_DETECT_SPEECH } job_kind;

typedef struct job {
    job_kind kind;
    served *model;            /* which the caller holds */
    request *request;
    upload *upload;
    watch *watch;
    int64_t stall_ms;         /* limit for ffmpeg without progress */
    int64_t most_ms;          /* longest recording */
    /* Receives segments while the run goes on, with their numbers. NULL: none. Returns 0, or -1 to
     * end the run. */
    int (*on_segment)(void *user, const wnpu_segment *segment, size_t index);
    /* Receives text that may still change, behind that of the segments so far, in place of what it
     * received before. NULL: none. Returns as on_segment does. */
    int (*on_tentative)(void *user, const char *text, size_t length);
    /* Receives how much was done, in ms, of how much, or of -1. NULL: none. Returns as above. */
    int (*on_progress)(void *user, int64_t done_ms, int64_t total_ms);
    /* Receives the number of those that wait in front, whenever it changes. NULL: none. */
    void (*on_wait)(void *user, int before);
    void *user;
    int patient;              /* of server_jobs.h: others that wait come first, and the queue has
                                 room for it */
    /* Writes the answer; NULL: reply_results(). */
    void (*answer)(buffer *b, const wnpu_session *session, const wnpu_model *model,
                   const request *r);

    atomic_int running;       /* it has a session */
    atomic_int permille;      /* of the recording that are done, if its length is known */
    int64_t audio_ms;         /* length of what was read */
    int64_t queued_ms;        /* wait for the session; -1: it got none */
    int http_status;          /* 200; 0: the client is gone, no answer */
    buffer body;              /* the answer */
    char message[512];        /* of an error */
    const char *param;        /* the field that it is about, or NULL */
    char warning[512];        /* what is missing in an answer; "" if nothing is */
    const wnpu_session *session; /* for on_segment */
} job;

/* Waits for a session, runs it in a thread of its own, and returns the session. */
void job_run(job *j);
void job_free(job *j);

/* What is missing in an answer, by the request and by the run; "" if nothing is. */
#define JOB_WARNINGS_SIZE (sizeof ((job *)0)->warning + sizeof ((request *)0)->warning + 2)
void job_warnings(const job *j, char both[JOB_WARNINGS_SIZE]);

#endif
