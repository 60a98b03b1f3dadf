/* server_client.h - who sent a request, and its id: behind proxies that are trusted, what they say
 * in X-Forwarded-For and X-Request-Id. Part of server. */
#ifndef SERVER_CLIENT_H
#define SERVER_CLIENT_H

#include "server_address.h"

#include <stddef.h>

#define CLIENT_PROXIES_MOST 32
#define CLIENT_ID_SIZE 65

struct mg_connection;

/* A network: the first bits of an address, of IPv4 as ::ffff:a.b.c.d. */
typedef struct client_network {
    unsigned char bytes[16];
    int bits;
} client_network;

typedef struct client_info {
    char address[ADDRESS_SIZE]; /* without a port; "?" if it is unknown */
    char id[CLIENT_ID_SIZE];  /* of the request: printable ASCII without spaces and quotes */
} client_info;

/* Reads ADDRESS or ADDRESS/BITS. Returns 0, or -1 if it is neither. */
int client_read_network(const char *text, client_network *network);
/* Whether an address is of this machine or of a private network. */
int client_is_private(const char *address);
/* Fills in who sent a request. A request that names no id gets one. Returns 0, or -1 if it did not
 * come over TLS but had to; address is then that of the connection. */
int client_identify(const struct mg_connection *conn, client_info *client);

#endif
