/* server_run.h - runs a session on what a client uploaded. Part of server. */
#ifndef SERVER_RUN_H
#define SERVER_RUN_H

#include "server_reply.h"
#include "server_request.h"
#include "server_upload.h"
#include "server_watch.h"

typedef enum job_kind { JOB_TRANSCRIBE, JOB_DETECT_LANGUAGE } job_kind;

typedef struct job {
    job_kind kind;
    const wnpu_model *model;
    request *request;
    upload *upload;
    watch *watch;
    int64_t stall_ms;         /* limit for ffmpeg without progress */
    /* Sends server-sent events while the run goes on. NULL: none. Returns 0, or -1 if the client is
     * gone. */
    int (*send)(void *user, const buffer *event);
    void *user;

    int http_status;          /* 200; 0: the client is gone, no answer */
    buffer body;              /* the answer, or the last events */
    char message[512];        /* of an error */
    const char *param;        /* the field that it is about, or NULL */
    char warning[512];        /* what is missing in an answer; "" if nothing is */
    int sent;                 /* events were sent */
} job;

/* Waits for a session, runs it in a thread of its own, and returns the session. */
void job_run(job *j);
void job_free(job *j);

#endif
