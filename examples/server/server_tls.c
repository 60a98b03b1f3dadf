/* server_tls.c - see server_tls.h
 *
 * civetweb's own TLS is not used: that of Debian 12 calls a function that OpenSSL 3 does not have,
 * and none can change its certificate while it runs.
 */
#define _XOPEN_SOURCE 700

#include "server_tls.h"

#include "../kit/platform.h"
#include "server_address.h"
#include "server_thread.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS 500
#define CROWDED_MS 1000       /* for a handshake while connections are scarce */
#define DRAIN_S 5             /* for a client to receive what is left at the end */
#define RECORD 16384          /* most bytes of a TLS record */

/* ---- OpenSSL ---- */

enum { SSL_ERROR_WANT_READ = 2, SSL_ERROR_WANT_WRITE = 3, SSL_ERROR_ZERO_RETURN = 6,
       SSL_FILETYPE_PEM = 1 };

/* The functions that are used; their types are OpenSSL's, whose structures are opaque. */
static struct {
    const void *(*TLS_server_method)(void);
    void *(*SSL_CTX_new)(const void *method);
    void (*SSL_CTX_free)(void *context);
    int (*SSL_CTX_use_certificate_chain_file)(void *context, const char *path);
    int (*SSL_CTX_use_PrivateKey_file)(void *context, const char *path, int type);
    int (*SSL_CTX_check_private_key)(const void *context);
    void *(*SSL_new)(void *context);
    void (*SSL_free)(void *ssl);
    int (*SSL_set_fd)(void *ssl, int fd);
    int (*SSL_accept)(void *ssl);
    int (*SSL_read)(void *ssl, void *to, int n);
    int (*SSL_write)(void *ssl, const void *from, int n);
    int (*SSL_shutdown)(void *ssl);
    int (*SSL_get_error)(const void *ssl, int result);
    unsigned long (*ERR_get_error)(void);
    void (*ERR_clear_error)(void);
    void (*ERR_error_string_n)(unsigned long code, char *to, size_t size);
} ssl;

static int find_function(void *library, const char *name, void *to)
{
    void *found = dlsym(library, name);
    memcpy(to, &found, sizeof found); /* ISO C does not convert it to a function */
    return found != NULL;
}

#define FIND(name) find_function(library, #name, &ssl.name)

static int load_library(char why[256])
{
    static const char *const names[] = {"libssl.so.3", "libssl.so.1.1", "libssl.so",
                                        "libssl.3.dylib", "libssl.dylib"};
    void *library = NULL;
    size_t i;
    for (i = 0; library == NULL && i < sizeof names / sizeof names[0]; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL) {
        (void)snprintf(why, 256, "OpenSSL (libssl) cannot be loaded; install it");
        return -1;
    }
    if (FIND(TLS_server_method) && FIND(SSL_CTX_new) && FIND(SSL_CTX_free) &&
        FIND(SSL_CTX_use_certificate_chain_file) && FIND(SSL_CTX_use_PrivateKey_file) &&
        FIND(SSL_CTX_check_private_key) && FIND(SSL_new) && FIND(SSL_free) && FIND(SSL_set_fd) &&
        FIND(SSL_accept) && FIND(SSL_read) && FIND(SSL_write) && FIND(SSL_shutdown) &&
        FIND(SSL_get_error) && FIND(ERR_get_error) && FIND(ERR_clear_error) &&
        FIND(ERR_error_string_n)) {
        return 0;
    }
    (void)snprintf(why, 256, "this OpenSSL is too old; 1.1 or newer is needed");
    return -1;
}

/* ---- state ---- */

/* A connection. */
typedef struct tunnel {
    struct tunnel *next, **link;
    int client, inner;        /* sockets */
    int inner_port;           /* our end's, by which the HTTP server knows it; 0: none yet */
    char address[ADDRESS_SIZE]; /* the client's */
    void *ssl;
    int accepted;             /* the handshake is over */
    int client_ended, inner_ended, broken;
    int want_write;           /* OpenSSL waits until the client receives */
    size_t up_n, up_at, down_n;
    char up[RECORD], down[RECORD]; /* to the HTTP server, and to the client */
} tunnel;

typedef enum tls_state {
    RUNNING,
    STOPPING,                 /* no new connections; what was sent still arrives */
    ABORTING                  /* all connections end at once */
} tls_state;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    tls_options options;
    int inner_port, fd;       /* of the HTTP server; 0: TLS is off */
    struct stat seen[2];      /* the files when they were last read */
    void *context;            /* SSL_CTX in use */
    tunnel *first;
    int n;
    tls_state state;
    pthread_t thread;
} tls = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .fd = -1};

/* ---- the certificate ---- */

/* Whether the files are others than those that were last read. Notes them. */
static int has_changed(void)
{
    struct stat now[2];
    int i, changed = 0;
    memset(now, 0, sizeof now);
    (void)stat(tls.options.certificate, &now[0]);
    (void)stat(tls.options.key, &now[1]);
    for (i = 0; i < 2; i++) {
        changed |= now[i].st_ino != tls.seen[i].st_ino || now[i].st_size != tls.seen[i].st_size ||
                   now[i].st_mtime != tls.seen[i].st_mtime;
        tls.seen[i] = now[i];
    }
    return changed;
}

/* Reads the certificate and its key. Call with the lock. Returns 0, or -1 with the reason. */
static int read_certificate(char why[256])
{
    const tls_options *o = &tls.options;
    char text[160] = "the key is not that of the certificate";
    const char *what = o->certificate;
    unsigned long code;
    void *context = ssl.SSL_CTX_new(ssl.TLS_server_method());
    int done = 0;
    if (context != NULL) {
        done = ssl.SSL_CTX_use_certificate_chain_file(context, o->certificate) == 1;
        what = done ? o->key : what;
        done = done && ssl.SSL_CTX_use_PrivateKey_file(context, o->key, SSL_FILETYPE_PEM) == 1 &&
               ssl.SSL_CTX_check_private_key(context) == 1;
    }
    if (!done) {
        code = ssl.ERR_get_error();
        if (code != 0) {
            ssl.ERR_error_string_n(code, text, sizeof text);
        }
        (void)snprintf(why, 256, "%.80s: %s", what, text);
        ssl.ERR_clear_error();
        if (context != NULL) {
            ssl.SSL_CTX_free(context);
        }
        return -1;
    }
    if (tls.context != NULL) {
        ssl.SSL_CTX_free(tls.context); /* connections keep theirs */
    }
    tls.context = context;
    return 0;
}

void tls_reload(int always)
{
    char why[256], text[320];
    if (tls.inner_port <= 0) {
        return;
    }
    pthread_mutex_lock(&tls.lock);
    if (has_changed() || always) {
        if (read_certificate(why) == 0) {
            tls.options.log("the new certificate is in use");
        } else {
            (void)snprintf(text, sizeof text, "going on with the certificate before: %s", why);
            tls.options.log(text);
        }
    }
    pthread_mutex_unlock(&tls.lock);
}

/* ---- a connection ---- */

/* Judges the result of an OpenSSL function that did not succeed. Returns 0 if it is to be called
 * again later. */
static int judge(tunnel *t, int result)
{
    int error = ssl.SSL_get_error(t->ssl, result);
    t->want_write |= error == SSL_ERROR_WANT_WRITE;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
        return 0;
    }
    t->client_ended = 1;
    t->broken |= error != SSL_ERROR_ZERO_RETURN;
    return -1;
}

/* Moves bytes from the client to the HTTP server. Returns whether some were moved. */
static int move_up(tunnel *t)
{
    int moved = 0, n;
    ssize_t sent;
    if (t->up_n == 0 && !t->client_ended) {
        n = ssl.SSL_read(t->ssl, t->up, RECORD);
        t->up_at = 0;
        t->up_n = n > 0 ? (size_t)n : 0;
        moved = n > 0 || judge(t, n) != 0;
        if (t->client_ended) {
            (void)shutdown(t->inner, SHUT_WR);
        }
    }
    if (t->up_n > 0) {
        sent = send(t->inner, t->up + t->up_at, t->up_n, MSG_NOSIGNAL);
        if (sent > 0) {
            t->up_at += (size_t)sent;
            t->up_n -= (size_t)sent;
            moved = 1;
        } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
            t->up_n = 0; /* it does not read any more, but may have answered */
            moved = 1;
        }
    }
    return moved;
}

/* Moves bytes from the HTTP server to the client. Returns whether some were moved. */
static int move_down(tunnel *t)
{
    int moved = 0, n;
    ssize_t got;
    if (t->down_n == 0 && !t->inner_ended) {
        got = recv(t->inner, t->down, RECORD, 0);
        t->down_n = got > 0 ? (size_t)got : 0;
        t->inner_ended = got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK &&
                                      errno != EINTR);
        moved = got > 0 || t->inner_ended;
    }
    if (t->down_n > 0) {
        n = ssl.SSL_write(t->ssl, t->down, (int)t->down_n); /* all or nothing */
        if (n > 0) {
            t->down_n = 0;
        } else if (judge(t, n) != 0) {
            t->broken = 1;
        }
        moved |= n > 0;
    }
    return moved;
}

static void wait_for_bytes(tunnel *t)
{
    struct pollfd p[2];
    memset(p, 0, sizeof p);
    p[0].fd = t->client;
    p[0].events = (short)((t->up_n == 0 && !t->client_ended ? POLLIN : 0) |
                          (t->want_write ? POLLOUT : 0));
    p[0].fd = p[0].events != 0 ? p[0].fd : -1;
    p[1].fd = t->accepted ? t->inner : -1;
    p[1].events = (short)((t->down_n == 0 && !t->inner_ended ? POLLIN : 0) |
                          (t->up_n > 0 ? POLLOUT : 0));
    p[1].fd = p[1].events != 0 ? p[1].fd : -1;
    (void)poll(p, 2, TICK_MS);
    t->want_write = 0;
}

/* How long a handshake may take: not long while more than half of the connections are in use. */
static int64_t handshake_limit_ms(void)
{
    int64_t ms = tls.options.handshake_ms;
    pthread_mutex_lock(&tls.lock);
    ms = tls.n > tls.options.connections / 2 && ms > CROWDED_MS ? CROWDED_MS : ms;
    pthread_mutex_unlock(&tls.lock);
    return ms;
}

static tls_state get_state(void)
{
    tls_state state;
    pthread_mutex_lock(&tls.lock);
    state = tls.state;
    pthread_mutex_unlock(&tls.lock);
    return state;
}

static int set_nonblocking(int fd)
{
    int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* Returns 0, or -1 if there is no connection. */
static int connect_inner(tunnel *t)
{
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    int failed;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)tls.inner_port);
    t->inner = socket(AF_INET, SOCK_STREAM, 0);
    pthread_mutex_lock(&tls.lock); /* the HTTP server may ask for it at once */
    failed = t->inner < 0 || connect(t->inner, (struct sockaddr *)&address, sizeof address) != 0 ||
             getsockname(t->inner, (struct sockaddr *)&address, &size) != 0;
    t->inner_port = failed ? 0 : ntohs(address.sin_port);
    pthread_mutex_unlock(&tls.lock);
    return failed ? -1 : set_nonblocking(t->inner);
}

static int shake_hands(tunnel *t)
{
    int64_t begin = platform_now_ms();
    int result = 0;
    pthread_mutex_lock(&tls.lock);
    t->ssl = ssl.SSL_new(tls.context);
    pthread_mutex_unlock(&tls.lock);
    if (t->ssl == NULL || set_nonblocking(t->client) != 0 ||
        ssl.SSL_set_fd(t->ssl, t->client) != 1) {
        return -1;
    }
    while ((result = ssl.SSL_accept(t->ssl)) != 1) {
        if (judge(t, result) != 0 || platform_now_ms() - begin >= handshake_limit_ms() ||
            get_state() != RUNNING) {
            return -1;
        }
        wait_for_bytes(t);
    }
    t->accepted = 1;
    return 0;
}

static void remove_tunnel(tunnel *t)
{
    pthread_mutex_lock(&tls.lock);
    *t->link = t->next;
    if (t->next != NULL) {
        t->next->link = t->link;
    }
    tls.n--;
    pthread_cond_broadcast(&tls.changed);
    pthread_mutex_unlock(&tls.lock);
}

static void *run_tunnel(void *user)
{
    tunnel *t = user;
    int moved;
    if (shake_hands(t) == 0 && connect_inner(t) == 0) {
        while (!t->broken && !(t->inner_ended && t->down_n == 0) && get_state() != ABORTING) {
            ssl.ERR_clear_error();
            moved = move_up(t);
            moved |= move_down(t);
            if (!moved && !t->broken) {
                wait_for_bytes(t);
            }
        }
        if (!t->broken) {
            (void)ssl.SSL_shutdown(t->ssl);
        }
    }
    ssl.ERR_clear_error();
    if (t->ssl != NULL) {
        ssl.SSL_free(t->ssl);
    }
    remove_tunnel(t); /* first: tls_stop() uses its sockets, whose numbers others get then */
    if (t->inner >= 0) {
        close(t->inner);
    }
    close(t->client);
    free(t);
    return NULL;
}

/* ---- all connections ---- */

/* Starts a connection's thread. Returns 0, or -1 if there is no room. */
static int add_tunnel(int fd)
{
    tunnel *t = calloc(1, sizeof *t);
    int failed;
    if (t == NULL) {
        return -1;
    }
    t->client = fd;
    t->inner = -1;
    address_of_client(fd, t->address);
    pthread_mutex_lock(&tls.lock);
    failed = tls.n >= tls.options.connections || tls.state != RUNNING;
    if (!failed) {
        t->next = tls.first;
        t->link = &tls.first;
        tls.first = t;
        if (t->next != NULL) {
            t->next->link = &t->next;
        }
        tls.n++;
    }
    pthread_mutex_unlock(&tls.lock);
    if (!failed && thread_start(NULL, run_tunnel, t) != 0) {
        remove_tunnel(t);
        failed = 1;
    }
    if (failed) {
        free(t);
    }
    return failed ? -1 : 0;
}

static void *accept_clients(void *unused)
{
    struct pollfd p;
    int fd;
    (void)unused;
    memset(&p, 0, sizeof p);
    p.fd = tls.fd;
    p.events = POLLIN;
    while (get_state() == RUNNING) {
        if (poll(&p, 1, TICK_MS) <= 0) {
            continue;
        }
        fd = accept(tls.fd, NULL, NULL);
        if (fd < 0) {
            continue;
        }
        tls_reload(0);
        if (add_tunnel(fd) != 0) {
            close(fd);
        }
    }
    return NULL;
}

int tls_load(const tls_options *options, char why[256])
{
    tls.options = *options;
    if (load_library(why) != 0) {
        return -1;
    }
    (void)has_changed();
    tls.inner_port = -1; /* it is not known yet, but nobody gets past TLS */
    return read_certificate(why);
}

int tls_start(int inner_port, char why[256])
{
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    memset(&own, 0, sizeof own);
    pthread_mutex_lock(&tls.lock);
    tls.inner_port = inner_port;
    pthread_mutex_unlock(&tls.lock);
    tls.fd = address_listen(tls.options.listen, why);
    if (tls.fd < 0) {
        return -1;
    }
    if (getsockname(tls.fd, (struct sockaddr *)&own, &size) != 0 ||
        fcntl(tls.fd, F_SETFL, fcntl(tls.fd, F_GETFL) | O_NONBLOCK) != 0 ||
        pthread_create(&tls.thread, NULL, accept_clients, NULL) != 0) {
        (void)snprintf(why, 256, "%s", strerror(errno));
        close(tls.fd);
        tls.fd = -1;
        return -1;
    }
    return ntohs(own.ss_family == AF_INET
                     ? ((const struct sockaddr_in *)(const void *)&own)->sin_port
                     : ((const struct sockaddr_in6 *)(const void *)&own)->sin6_port);
}

/* Ends all connections: when clients have received what the HTTP server, which has ended its own
 * connections, has sent, or after DRAIN_S. */
static void end_tunnels(void)
{
    struct timespec until;
    tunnel *t;
    int late = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += DRAIN_S;
    pthread_mutex_lock(&tls.lock);
    tls.state = STOPPING;
    while (tls.n > 0 && !late) {
        late = pthread_cond_timedwait(&tls.changed, &tls.lock, &until) == ETIMEDOUT;
    }
    tls.state = ABORTING;
    for (t = tls.first; t != NULL; t = t->next) {
        (void)shutdown(t->client, SHUT_RDWR);
    }
    while (tls.n > 0) {
        pthread_cond_wait(&tls.changed, &tls.lock);
    }
    pthread_mutex_unlock(&tls.lock);
}

void tls_stop(void)
{
    if (tls.fd >= 0) {
        end_tunnels();
        pthread_join(tls.thread, NULL);
        close(tls.fd);
        tls.fd = -1;
    }
    if (tls.context != NULL) {
        ssl.SSL_CTX_free(tls.context);
        tls.context = NULL;
    }
}

const char *tls_client(const char *address, int port, char client[ADDRESS_SIZE])
{
    const tunnel *t;
    int is_on;
    pthread_mutex_lock(&tls.lock);
    is_on = tls.inner_port != 0;
    for (t = tls.first; t != NULL && t->inner_port != port; t = t->next) {
    }
    if (t != NULL) {
        memcpy(client, t->address, sizeof t->address);
    }
    pthread_mutex_unlock(&tls.lock);
    return t != NULL ? client : is_on ? NULL : address;
}
