/* server_options.h - what a server was started with, for all that serves a connection. Part of
 * server. */
#ifndef SERVER_OPTIONS_H
#define SERVER_OPTIONS_H

#include "server_client.h"
#include "server_keys.h"
#include "whisper_npu.h"

#include <stdint.h>

struct mg_connection;

/* How long a connection without a request is kept for another one; less than header_ms. Many
 * clients close theirs after 5 s, so that they never use one that is being closed. */
#define HTTP_KEEP_MS 8000

#define HTTP_HOSTS_MOST 16
/* What clients have in front of /v1, for it is so at other servers. */
#define HTTP_FRONTS {"/openai", "/api"}

typedef struct http_options {
    wnpu_params params;       /* that requests change */
    const char *listen;       /* from address_resolve() */
    keys keys;                /* of clients */
    int key_share;            /* requests of a key in progress at a time, where there are several */
    const char *cors;         /* origin that other sites' pages may have, "*": any; NULL: none */
    const char *hosts[HTTP_HOSTS_MOST]; /* names that clients may use, besides addresses and
                                           those of the local network */
    int n_hosts;
    client_network proxies[CLIENT_PROXIES_MOST]; /* that are trusted */
    int n_proxies;
    uint64_t max_bytes;       /* of an upload */
    int64_t header_ms, body_ms, work_ms, write_ms; /* limits for the phases of a request */
    int64_t idle_ms;          /* for a client that sends or receives nothing */
    int64_t stall_ms;         /* for ffmpeg without progress */
    int64_t most_ms;          /* longest recording */
    int max_beams;            /* of the sessions */
    int32_t commit_ms;        /* for realtime connections, see event_settings; -1: by the model */
    int connections;          /* served at a time: one thread each */
    int verbose;              /* print a line for each request to standard error */
} http_options;

/* The options of the server that has this connection: the data of its civetweb context begin with a
 * pointer to them. */
const http_options *http_options_of(const struct mg_connection *conn);

#endif
