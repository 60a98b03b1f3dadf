/* server_client.c - see server_client.h */
#define _XOPEN_SOURCE 700

#include "server_client.h"

#include "server_options.h"
#include "server_tls.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define MAPPED_BITS 96        /* in front of an address of IPv4 */

/* ---- addresses ---- */

static int read_address(const char *text, unsigned char bytes[16], int *is_v4)
{
    static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255};
    memcpy(bytes, mapped, sizeof mapped);
    *is_v4 = inet_pton(AF_INET, text, bytes + sizeof mapped) == 1;
    return *is_v4 || inet_pton(AF_INET6, text, bytes) == 1 ? 0 : -1;
}

int client_read_network(const char *text, client_network *network)
{
    char address[ADDRESS_SIZE], *end;
    const char *slash = strchr(text, '/');
    size_t n = slash != NULL ? (size_t)(slash - text) : strlen(text);
    long bits;
    int is_v4, most;
    if (n >= sizeof address) {
        return -1;
    }
    (void)snprintf(address, sizeof address, "%.*s", (int)n, text);
    if (read_address(address, network->bytes, &is_v4) != 0) {
        return -1;
    }
    most = is_v4 ? 32 : 128;
    bits = slash != NULL ? strtol(slash + 1, &end, 10) : most;
    if (slash != NULL && (slash[1] < '0' || slash[1] > '9' || *end != '\0' || bits > most)) {
        return -1;
    }
    network->bits = (int)bits + (is_v4 ? MAPPED_BITS : 0);
    return 0;
}

static int contains(const client_network *network, const unsigned char bytes[16])
{
    int i;
    for (i = 0; i < network->bits; i++) {
        if (((network->bytes[i / 8] ^ bytes[i / 8]) >> (7 - i % 8) & 1) != 0) {
            return 0;
        }
    }
    return 1;
}

static int is_proxy(const http_options *o, const char *address)
{
    unsigned char bytes[16];
    int i, is_v4;
    if (read_address(address, bytes, &is_v4) != 0) {
        return 0;
    }
    for (i = 0; i < o->n_proxies && !contains(&o->proxies[i], bytes); i++) {
    }
    return i < o->n_proxies;
}

int client_is_private(const char *address)
{
    /* Loopback, RFC 1918, RFC 6598 (carriers, and networks such as Tailscale's), RFC 3927; RFC 4193
     * and link-local addresses of IPv6. */
    static const char *const networks[] = {
        "127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10",
        "169.254.0.0/16", "::1", "fc00::/7", "fe80::/10"
    };
    client_network network;
    unsigned char bytes[16];
    int is_v4, is_private = 0;
    size_t i;
    if (read_address(address, bytes, &is_v4) != 0) {
        return 0;
    }
    for (i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        is_private |= client_read_network(networks[i], &network) == 0 && contains(&network, bytes);
    }
    return is_private;
}

/* The address in an element of X-Forwarded-For, which may have a port. Returns 0, or -1 if there is
 * none. */
static int read_element(const char *at, size_t n, char address[ADDRESS_SIZE])
{
    unsigned char bytes[16];
    char text[ADDRESS_SIZE], *host = text, *end;
    int is_v4;
    while (n > 0 && (at[0] == ' ' || at[0] == '\t')) {
        at++, n--;
    }
    while (n > 0 && (at[n - 1] == ' ' || at[n - 1] == '\t')) {
        n--;
    }
    if (n == 0 || n >= sizeof text) {
        return -1;
    }
    (void)snprintf(text, sizeof text, "%.*s", (int)n, at);
    end = text[0] == '[' ? strchr(text, ']') : strchr(text, ':');
    if (text[0] == '[') {
        host++;
    } else if (end != NULL && strchr(end + 1, ':') != NULL) {
        end = NULL; /* an address of IPv6 */
    }
    if (end != NULL) {
        *end = '\0';
    }
    if (read_address(host, bytes, &is_v4) != 0) {
        return -1;
    }
    memmove(address, host, strlen(host) + 1);
    return 0;
}

/* Follows X-Forwarded-For from its end, where the nearest proxy has written, as long as those who
 * wrote are trusted. */
static void follow(const struct mg_connection *conn, char address[ADDRESS_SIZE])
{
    const struct mg_request_info *info = mg_get_request_info(conn);
    int i;
    for (i = info->num_headers - 1; i >= 0; i--) {
        const char *value = info->http_headers[i].value;
        size_t n = strlen(value);
        if (strcasecmp(info->http_headers[i].name, "X-Forwarded-For") != 0) {
            continue;
        }
        for (;;) {
            size_t at = n;
            while (at > 0 && value[at - 1] != ',') {
                at--;
            }
            if (!is_proxy(http_options_of(conn), address) ||
                read_element(value + at, n - at, address) != 0) {
                return;
            }
            if (at == 0) {
                break;
            }
            n = at - 1;
        }
    }
}

/* ---- ids ---- */

static struct {
    pthread_once_t once;
    unsigned long long start; /* another one in each process */
    atomic_ullong made;
} ids = {.once = PTHREAD_ONCE_INIT};

static void begin_ids(void)
{
    FILE *file = fopen("/dev/urandom", "rb");
    if (file == NULL || fread(&ids.start, sizeof ids.start, 1, file) != 1) {
        ids.start = (unsigned long long)time(NULL) ^ (unsigned long long)getpid() << 40;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

static void make_id(char id[CLIENT_ID_SIZE])
{
    (void)pthread_once(&ids.once, begin_ids);
    (void)snprintf(id, CLIENT_ID_SIZE, "req_%016llx", ids.start + atomic_fetch_add(&ids.made, 1));
}

static int is_id(const char *text)
{
    size_t i;
    for (i = 0; text[i] != '\0'; i++) {
        if (text[i] <= ' ' || text[i] > '~' || text[i] == '"' || text[i] == '\\') {
            return 0;
        }
    }
    return i > 0 && i < CLIENT_ID_SIZE;
}

int client_identify(const struct mg_connection *conn, client_info *client)
{
    const struct mg_request_info *info = mg_get_request_info(conn);
    const char *id = mg_get_header(conn, "X-Request-Id");
    char text[ADDRESS_SIZE];
    const char *address = tls_client(info->remote_addr, info->remote_port, text);
    (void)snprintf(client->address, sizeof client->address, "%s",
                   address != NULL ? address : info->remote_addr);
    if (id != NULL && is_id(id) && is_proxy(http_options_of(conn), client->address)) {
        (void)snprintf(client->id, sizeof client->id, "%s", id);
    } else {
        make_id(client->id);
    }
    follow(conn, client->address);
    return address != NULL ? 0 : -1;
}
