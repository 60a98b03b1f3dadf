/* server_tls.h - TLS in front of the HTTP server: decrypts what clients send and passes it on over
 * loopback. OpenSSL is loaded when it is asked for. Part of server. POSIX. */
#ifndef SERVER_TLS_H
#define SERVER_TLS_H

#include "server_address.h"

#include <stdint.h>

typedef struct tls_options {
    const char *listen;       /* from address_resolve() */
    const char *certificate, *key; /* files in PEM format, the first with the chain */
    int connections;          /* at a time */
    int64_t handshake_ms;     /* limit */
    void (*log)(const char *text); /* that another certificate is used, or cannot be */
} tls_options;

/* Loads OpenSSL and the certificate. Returns 0, or -1 with the reason in why. */
int tls_load(const tls_options *options, char why[256]);
/* Listens, and passes on to the HTTP server on this port of 127.0.0.1. Returns the port, or -1 with
 * the reason in why. */
int tls_start(int inner_port, char why[256]);
/* Reads the certificate again, always or if its files have changed, as each new connection does. */
void tls_reload(int always);
/* Ends all connections, and waits for that. Call when the HTTP server has ended its own, whose last
 * bytes still arrive. */
void tls_stop(void);

/* The address of the client whose connection the HTTP server knows as one from address and port;
 * NULL if it did not come over TLS but had to. */
const char *tls_client(const char *address, int port, char client[ADDRESS_SIZE]);

#endif
