/* server_wyoming.h - the Wyoming protocol over TCP, which Home Assistant speaks: a line of JSON for
 * each event, with data and audio behind it. Part of server. POSIX. */
#ifndef SERVER_WYOMING_H
#define SERVER_WYOMING_H

#include "server_options.h"

#include <pthread.h>
#include <stdatomic.h>

/* A server; zeros are one that was not started. It must stay at its address. */
typedef struct wyoming {
    const http_options *options;
    int listening, started;   /* a socket; it is open and there is a thread */
    pthread_t thread;
    atomic_int ending, clients;
    atomic_int active;        /* requests that have begun and are not answered yet */
} wyoming;

/* Serves address:port with the model, limits and parameters of the options, which must remain
 * valid. Returns the port, or -1 with the reason in why. */
int wyoming_start(wyoming *server, const http_options *options, const char *address,
                  char why[256]);
void wyoming_stop(wyoming *server);

#endif
