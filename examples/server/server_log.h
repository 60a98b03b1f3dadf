/* server_log.h - lines about requests on standard error. Part of server. All functions may be
 * called in any thread. */
#ifndef SERVER_LOG_H
#define SERVER_LOG_H

#include <stdint.h>

typedef struct log_entry {
    const char *client;       /* its address */
    const char *id;           /* of the request, in printable ASCII; NULL: none */
    const char *what;         /* method or protocol */
    const char *path;         /* or name; control characters in it are replaced */
    int status;               /* of HTTP; 0: none */
    int64_t audio_ms;         /* length of the audio, -1: unknown */
    int64_t queued_ms;        /* wait for a session, -1: none */
    int64_t ms;               /* the whole request */
    const char *reason;       /* of a refusal or an error; NULL or "": none */
    const char *key;          /* name of the client's key; NULL or "": none */
} log_entry;

/* verbose: a line for each request; otherwise only for those with a reason, and of many of them in
 * a short time only some, with the number of the others. */
void log_init(int verbose);
void log_request(const log_entry *e);

#endif
