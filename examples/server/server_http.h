/* server_http.h - the HTTP side of server: OpenAI's speech API, whisper.cpp's server,
 * whisper-asr-webservice, health and metrics. Uses civetweb. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include "server_options.h"

#include <stdatomic.h>

struct mg_context;

/* A server; zeros are one that was not started. It must stay at its address. */
typedef struct http_server {
    const http_options *options; /* first, see http_options_of() */
    struct mg_context *context;
    atomic_int active;        /* requests in progress */
    atomic_int connections;
    atomic_int of_key[KEYS_MOST]; /* requests in progress that compute */
    atomic_int ready_asked;   /* somebody asks whether to send requests here */
} http_server;

/* Starts the threads; options must remain valid. Returns the port, or -1 with the reason in why. */
int http_start(http_server *server, const http_options *options, char why[256]);
/* Stops them; requests in progress must have ended. */
void http_stop(http_server *server);
#endif
