/* server_answer.h - HTTP answers through civetweb: status line, headers, errors, and whether the
 * connection is kept for another request. Part of server. */
#ifndef SERVER_ANSWER_H
#define SERVER_ANSWER_H

#include "server_options.h"
#include "server_reply.h"
#include "server_request.h"

#include <civetweb.h>
#include <stddef.h>

typedef struct mg_connection connection;

/* A request while it is answered. Belongs to the thread of its connection. */
typedef struct exchange {
    long long unread;         /* bytes of the body that were not read yet */
    int keep;                 /* the connection may be used for another request */
    int64_t audio_ms, queued_ms; /* for the log, see server_log.h */
    client_info client;
    char reason[256];
    const char *key;          /* the name of the key that the request has; "" for none */
} exchange;

/* Begin and end of a request. crowded: close the connection behind the answer. Between the two,
 * read the body with answer_read() only, which returns what mg_read() does. */
void exchange_begin(connection *conn, exchange *x, int crowded);
void exchange_end(connection *conn);
int answer_read(connection *conn, void *bytes, size_t n);
/* The connection is closed behind this answer. Call before its head is made. */
void answer_close(connection *conn);

/* Why a request that a browser may have been made to send is not served, or NULL: a page of another
 * site sends it, or the server is called by a name that is not its own, as pages do whose name was
 * given our address. */
const char *answer_distrusts(const connection *conn);

/* The number of the key that a request has, in one of the headers that clients use; 0 if none is
 * asked for, -1 if it has none. */
int answer_find_key(const connection *conn);
int has_method(const connection *conn, const char *method);

/* Begins an answer: status line and the headers that all have. Before exchange_begin(), or without
 * it, the connection is closed behind the answer. type may be NULL. */
void answer_head(connection *conn, buffer *head, int status, const char *type);
/* Adds a header; characters that cannot be in one are replaced. */
void answer_header(buffer *head, const char *name, const char *value);
/* Sends and frees a head, which lacks its end, and a body; the answer to HEAD has no body. */
void answer_send(connection *conn, buffer *head, const void *body, size_t n);
/* The same with an error as the body. Returns the status, which must be that of the head. */
int answer_send_error(connection *conn, buffer *head, request_api api, int status,
                      const char *message, const char *param);

/* The head of an answer of server-sent events, in chunks or up to the connection's end. Returns 0,
 * or -1 if the client is gone. */
int answer_events(connection *conn, int chunked);

/* Whole answers. They return the status. param may be NULL. */
int answer(connection *conn, int status, const char *type, const void *body, size_t n);
int answer_error(connection *conn, request_api api, int status, const char *message,
                 const char *param);

#endif
