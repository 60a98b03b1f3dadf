/* server_reply.h - what a server answers: results as text or JSON, events, errors. Part of
 * server. */
#ifndef SERVER_REPLY_H
#define SERVER_REPLY_H

#include "server_request.h"
#include "whisper_npu.h"

#include <stddef.h>
#include <stdint.h>

/* A text that grows. After a failed allocation it stays as it is, and failed is set. */
typedef struct buffer {
    char *bytes;              /* ends with NUL; NULL while empty */
    size_t n, room;
    int failed;
} buffer;

/* A wnpu_write_fn. */
int64_t buffer_write(void *b, const void *bytes, size_t n);
void buffer_text(buffer *b, const char *text);
__attribute__((format(printf, 2, 3)))
void buffer_print(buffer *b, const char *format, ...);
/* Text as a JSON string. */
void buffer_string(buffer *b, const char *text, size_t length);
void buffer_clear(buffer *b);
void buffer_free(buffer *b);

/* A member with the language of the session's last run, as OpenAI's API has it, behind another one;
 * nothing if no language is known. */
void reply_languages(buffer *b, const wnpu_session *session);

/* The tokens of a segment with their probabilities, as items of an array that has *n so far. */
void reply_logprobs(buffer *b, const wnpu_model *model, const wnpu_segment *segment, size_t *n);

/* The results of the session's last run in the requested format. */
void reply_results(buffer *b, const wnpu_session *session, const wnpu_model *model,
                   const request *r);
/* A segment as an object with its words and their probabilities, as a line. */
void reply_segment(buffer *b, const wnpu_session *session, const wnpu_segment *segment,
                   size_t index);
/* Content-Type of the answer. */
const char *reply_type(const request *r);

/* The statistics of the session's latest run; zeros if there is none. */
wnpu_stats reply_stats(const wnpu_session *session);

/* Server-sent events: text that became final; the end with the whole text. */
void reply_delta(buffer *b, const wnpu_model *model, const request *r, const wnpu_segment *segment,
                 size_t index);
/* An extension: text that may still change, in place of the tentative text before. */
void reply_tentative(buffer *b, const char *text, size_t length);
/* Extensions: requests that wait in front of this one; how much of the recording was read, in ms
 * (total_ms -1: unknown); and what is missing in the answer. */
void reply_waiting(buffer *b, int before);
void reply_progress(buffer *b, int64_t done_ms, int64_t total_ms);
void reply_warning(buffer *b, const char *message);
/* With its segments; with r->tentative also the results in the requested format, if that is
 * verbose_json. */
void reply_done(buffer *b, const wnpu_session *session, const wnpu_model *model, const request *r);

/* An error in the form of an API. param may be NULL. */
void reply_error(buffer *b, request_api api, int http_status, const char *message,
                 const char *param);

#endif
