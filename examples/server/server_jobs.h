/* server_jobs.h - requests whose clients do not wait for the answer: they run when a session is
 * free, and the answers are kept for a time. Part of server. All functions may be called in any
 * thread. */
#ifndef SERVER_JOBS_H
#define SERVER_JOBS_H

#include "server_models.h"
#include "server_reply.h"
#include "server_request.h"
#include "server_upload.h"

#include <stdint.h>

#define JOBS_NODE_MOST 16 /* bytes of the name in an id */
#define JOBS_ID_SIZE 64
#define JOBS_BYTES_MOST ((size_t)64 << 20) /* all answers together */

/* What a client has sent, and the model that it is for. */
typedef struct submission {
    request request;
    upload upload;
    served *model;            /* held, or NULL */
} submission;

typedef struct jobs_options {
    int most;                 /* jobs at a time, with those whose answer is kept */
    int64_t keep_ms;          /* for an answer */
    int64_t work_ms, stall_ms, most_ms; /* as in http_options */
    const char *node;         /* name of this server in the ids, or NULL */
} jobs_options;

void submission_free(submission *s);

void jobs_start(const jobs_options *options);
/* Of the jobs that were not complete at a time, by platform_now_ms(): those whose answer was not
 * asked for since. */
int jobs_active(int64_t since_ms);
/* Whether an id is that of a job on a server with another name, which node then receives. */
int jobs_is_elsewhere(const char *id, char node[JOBS_NODE_MOST + 1]);
/* Ends all jobs, and waits for that. */
void jobs_stop(void);
/* Begins a job, which then owns the submission. Answers that have been kept longest make room for
 * it. Returns 0 and its id, or -1 if there is no room. */
int jobs_submit(submission *s, char id[JOBS_ID_SIZE]);
/* Writes the state of a job, and its answer, as JSON; of one whose segments are kept, because its
 * request has `progress`, instead of the answer those from a place on, which is 0 or what was
 * written as "next" before. Returns 0, or -1 if there is no such job. */
#define JOBS_ANSWER SIZE_MAX /* the answer */
int jobs_describe(const char *id, size_t from, buffer *b);
/* Ends and forgets a job. Returns 0, or -1 if there is no such job. */
int jobs_cancel(const char *id);
/* Forgets answers that were kept for their time. */
void jobs_expire(void);

#endif
