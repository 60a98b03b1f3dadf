/* server_watch.c - see server_watch.h */
#define _GNU_SOURCE /* POLLRDHUP */

#include "server_watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#ifdef __GLIBC__
#include <linux/tcp.h> /* its own tcp_info is older than tcpi_bytes_received */
#elif defined __linux__
#include <netinet/tcp.h>
#endif

#ifndef POLLRDHUP
#define POLLRDHUP 0
#endif

#define DESCRIPTORS 4096
#define REFUSE_MS 1000        /* for a reader to notice that it is to stop */
#define GUARD_MS 200          /* interval of looking for connections without a request */
#define IDLE_GUARD_MS 1000    /* while there are none */

/* A connection that has no watch. */
typedef struct silent {
    int peer_port;            /* 0: none with this descriptor */
    int kept;                 /* it has had a request */
    int64_t since_ms;
} silent;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    watch *first;
    int ending, refusing;
    int port;                 /* that is guarded, or 0 */
    int crowd;                /* connections above which patience is short */
    int crowded, silent_ones; /* as the guard saw it last */
    int64_t patience_ms, guarded_ms;
    silent silent[DESCRIPTORS];
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* The port of a socket's address, and the address as text. */
static int describe(const struct sockaddr_storage *s, char *text, size_t size)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)s;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)s;
    text[0] = '\0';
    if (s->ss_family == AF_INET) {
        (void)inet_ntop(AF_INET, &v4->sin_addr, text, (socklen_t)size);
        return ntohs(v4->sin_port);
    }
    if (s->ss_family == AF_INET6) {
        (void)inet_ntop(AF_INET6, &v6->sin6_addr, text, (socklen_t)size);
        return ntohs(v6->sin6_port);
    }
    return -1;
}

/* The ports of both ends of a connection. Returns 0, or -1 if fd is none. */
static int ends_of(int fd, int *own, int *peer, char address[64])
{
    struct sockaddr_storage near, far;
    socklen_t near_size = sizeof near, far_size = sizeof far;
    memset(&near, 0, sizeof near);
    memset(&far, 0, sizeof far);
    if (getpeername(fd, (struct sockaddr *)&far, &far_size) != 0 ||
        getsockname(fd, (struct sockaddr *)&near, &near_size) != 0) {
        return -1;
    }
    *own = describe(&near, address, 64);
    *peer = describe(&far, address, 64);
    return 0;
}

/* What has happened to a connection: POLLHUP and the like if both sides are closed, POLLRDHUP if
 * the client's is. */
static int state_of(int fd)
{
    struct pollfd p;
    memset(&p, 0, sizeof p);
    p.fd = fd;
    p.events = POLLRDHUP;
    return poll(&p, 1, 0) > 0 ? p.revents : 0;
}

static int is_closed(int state)
{
    return (state & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

/* Whether a client that will send nothing more is gone: see watch_probe(). */
static int fails_probe(watch *w)
{
    size_t n = w->probe != NULL ? strlen(w->probe) : 0;
    ssize_t sent;
    if (w->probe == NULL || n == 0 || w->probed) {
        return w->probe == NULL;
    }
    sent = send(w->fd, w->probe, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return 0; /* it does not receive now; the next tick tries again */
    }
    w->probed = 1;
    return sent != (ssize_t)n || is_closed(state_of(w->fd)); /* at once on the same machine */
}

/* Whether the client has closed the connection. */
static int is_gone(watch *w)
{
    int state = state_of(w->fd);
    char byte;
    return is_closed(state) || (((state & POLLRDHUP) != 0 ||
                                 recv(w->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) &&
                                fails_probe(w));
}

/* Bytes that a socket has received, or 0 where that is not known. */
static uint64_t received(int fd)
{
#ifdef __linux__
    struct tcp_info info;
    socklen_t size = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
        return info.tcpi_bytes_received;
    }
#else
    (void)fd;
#endif
    return 0;
}

static void check_size(watch *w)
{
    uint64_t waiting = w->most > 0 && w->fd >= 0 && !w->gone ? received(w->fd) : 0;
    waiting -= waiting < w->taken ? waiting : w->taken;
    if (w->most > 0 && waiting > w->most) {
        w->large = 1;
        w->stop = 1;
    }
    if (w->large && waiting > WATCH_LARGE * w->most) {
        (void)shutdown(w->fd, SHUT_RDWR);
        w->gone = 1;
    }
}

/* Ends the reading of what arrives too slowly while others wait. */
static void check_pace(watch *w, int64_t now)
{
    uint64_t got;
    if (w->pace == 0 || w->phase != WATCH_READING || !all.crowded) {
        w->paced_ms = 0;
        return;
    }
    if (w->paced_ms != 0 && now - w->paced_ms < WATCH_PACE_MS) {
        return;
    }
    got = received(w->fd);
    if (w->paced_ms != 0 && got > 0 && got - w->paced < w->pace * WATCH_PACE_MS / 1000) {
        w->deadline_ms = now;
    }
    w->paced = got;
    w->paced_ms = now;
}

static void check(watch *w, int64_t now)
{
    int late, first;
    if (all.refusing && w->phase == WATCH_READING && !w->stop) {
        w->deadline_ms = now + REFUSE_MS;
        w->stop = 1;
    }
    check_pace(w, now);
    late = w->deadline_ms > 0 && now >= w->deadline_ms;
    first = late && !w->late;
    w->late |= late;
    w->expired |= late; /* before the reader is woken, who looks at it */
    check_size(w);
    if (w->phase != WATCH_WORKING) {
        if (first && w->fd >= 0) {
            /* a late upload is still answered */
            (void)shutdown(w->fd, w->phase == WATCH_READING ? SHUT_RD : SHUT_RDWR);
        }
        return;
    }
    w->gone = w->gone || (w->fd >= 0 && is_gone(w));
    if (w->gone || w->expired) {
        w->stop = 1;
    }
    if (w->stop && w->session != NULL) {
        wnpu_cancel(w->session); /* at each tick: before its run has begun it does nothing */
    }
}

static int descriptors(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < (rlim_t)DESCRIPTORS
               ? (int)limit.rlim_cur : DESCRIPTORS;
}

int watch_find_socket(const char *address, int port, int own_port)
{
    char text[64];
    int fd, own, peer, most = descriptors();
    for (fd = 3; fd < most; fd++) {
        if (ends_of(fd, &own, &peer, text) == 0 && peer == port && own == own_port &&
            strcmp(text, address) == 0) {
            return fd;
        }
    }
    return -1;
}

static int has_watch(int fd)
{
    const watch *w;
    for (w = all.first; w != NULL && w->fd != fd; w = w->next) {
    }
    return w != NULL;
}

/* Whether data waits in a socket: every thread is busy, and it is not the client that is late. */
static int has_unread(int fd)
{
    int n = 0;
    return ioctl(fd, FIONREAD, &n) == 0 && n > 0;
}

/* Ends a connection that has been without a request for too long. */
static void judge_silence(silent *s, int fd, int peer, int64_t now)
{
    int64_t patience = all.patience_ms;
    if (s->peer_port != peer) {
        memset(s, 0, sizeof *s);
        s->peer_port = peer;
        s->since_ms = now;
    }
    if (all.crowded && !s->kept && patience > WATCH_CROWDED_MS) {
        patience = WATCH_CROWDED_MS;
    }
    /* Looked at each time: a thread that has just read the request is about to add its watch. */
    if (has_unread(fd)) {
        s->since_ms = now;
    } else if (now - s->since_ms >= patience) {
        (void)shutdown(fd, SHUT_RDWR);
    }
}

static void guard(int64_t now)
{
    char text[64];
    int fd, own, peer, connections = 0, most = descriptors();
    all.silent_ones = 0;
    for (fd = 3; fd < most; fd++) {
        int ours = ends_of(fd, &own, &peer, text) == 0 && own == all.port;
        connections += ours;
        if (!ours || has_watch(fd)) {
            all.silent[fd].peer_port = 0;
        } else {
            all.silent_ones++;
            judge_silence(&all.silent[fd], fd, peer, now);
        }
    }
    all.crowded = connections > all.crowd;
}

/* While there is nothing to watch, only new connections have to be looked for. */
static void wait_for_watch(void)
{
    struct timespec until;
    if (all.port == 0) {
        pthread_cond_wait(&all.changed, &all.lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (all.silent_ones > 0 ? GUARD_MS : IDLE_GUARD_MS) * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    (void)pthread_cond_timedwait(&all.changed, &all.lock, &until);
}

static void *run(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&all.lock);
    while (!all.ending) {
        struct timespec tick = {0, WATCH_TICK_MS * 1000000L};
        int64_t now = platform_now_ms();
        watch *w;
        for (w = all.first; w != NULL; w = w->next) {
            check(w, now);
        }
        if (all.port != 0 && now - all.guarded_ms >= GUARD_MS) {
            all.guarded_ms = now;
            guard(now);
        }
        if (all.first == NULL) {
            wait_for_watch();
        }
        pthread_mutex_unlock(&all.lock);
        nanosleep(&tick, NULL);
        pthread_mutex_lock(&all.lock);
    }
    pthread_mutex_unlock(&all.lock);
    return NULL;
}

int watch_start(void)
{
    return pthread_create(&all.thread, NULL, run, NULL);
}

void watch_stop(void)
{
    pthread_mutex_lock(&all.lock);
    all.ending = 1;
    pthread_cond_signal(&all.changed);
    pthread_mutex_unlock(&all.lock);
    pthread_join(all.thread, NULL);
}

static void enter(watch *w, watch_phase phase, int64_t timeout_ms)
{
    w->phase = phase;
    w->late = 0;
    w->deadline_ms = timeout_ms > 0 ? platform_now_ms() + timeout_ms : 0;
}

/* The patience with a connection begins anew behind each request. */
static void begin_silence(int fd)
{
    char text[64];
    int own, peer;
    if (fd >= 0 && fd < DESCRIPTORS && ends_of(fd, &own, &peer, text) == 0) {
        all.silent[fd].peer_port = peer;
        all.silent[fd].kept = 1;
        all.silent[fd].since_ms = platform_now_ms();
    }
}

void watch_add(watch *w, int fd, watch_phase phase, int64_t timeout_ms)
{
    memset(w, 0, sizeof *w);
    w->fd = fd;
    pthread_mutex_lock(&all.lock);
    enter(w, phase, timeout_ms);
    w->next = all.first;
    w->link = &all.first;
    if (w->next != NULL) {
        w->next->link = &w->next;
    }
    all.first = w;
    pthread_cond_signal(&all.changed);
    pthread_mutex_unlock(&all.lock);
}

void watch_remove(watch *w)
{
    pthread_mutex_lock(&all.lock);
    begin_silence(w->fd);
    *w->link = w->next;
    if (w->next != NULL) {
        w->next->link = w->link;
    }
    pthread_mutex_unlock(&all.lock);
}

void watch_enter(watch *w, watch_phase phase, int64_t timeout_ms)
{
    pthread_mutex_lock(&all.lock);
    enter(w, phase, timeout_ms);
    pthread_mutex_unlock(&all.lock);
}

void watch_session(watch *w, wnpu_session *session)
{
    pthread_mutex_lock(&all.lock);
    w->session = session;
    pthread_mutex_unlock(&all.lock);
}

void watch_probe(watch *w, const char *text)
{
    pthread_mutex_lock(&all.lock);
    w->probe = text;
    pthread_mutex_unlock(&all.lock);
}

void watch_pace(watch *w, uint64_t bytes_per_second)
{
    pthread_mutex_lock(&all.lock);
    w->pace = bytes_per_second;
    pthread_mutex_unlock(&all.lock);
}

void watch_took(watch *w, uint64_t bytes, uint64_t most)
{
    pthread_mutex_lock(&all.lock);
    if (w->most == 0 && w->fd >= 0) {
        w->taken = received(w->fd); /* what came before, such as the request's header */
    }
    w->taken += bytes;
    w->most = most;
    pthread_mutex_unlock(&all.lock);
}

void watch_stop_one(watch *w)
{
    pthread_mutex_lock(&all.lock);
    w->stop = 1;
    pthread_mutex_unlock(&all.lock);
}

void watch_stop_all(void)
{
    watch *w;
    pthread_mutex_lock(&all.lock);
    all.refusing = 1;
    for (w = all.first; w != NULL; w = w->next) {
        if (w->phase == WATCH_WORKING) {
            w->stop = 1;
        } else if (w->phase == WATCH_WRITING && w->fd >= 0) {
            (void)shutdown(w->fd, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&all.lock);
}

/* Whether a socket waits for connections to a port. */
static int listens(int fd, int port)
{
    struct sockaddr_storage near;
    socklen_t size = sizeof near, flag_size = sizeof(int);
    char text[64];
    int on = 0;
    memset(&near, 0, sizeof near);
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &flag_size) == 0 && on &&
           getsockname(fd, (struct sockaddr *)&near, &size) == 0 &&
           describe(&near, text, sizeof text) == port;
}

void watch_hang_up(void)
{
    char text[64];
    const watch *w;
    int fd, own, peer, most = descriptors();
    pthread_mutex_lock(&all.lock);
    for (w = all.first; w != NULL; w = w->next) {
        if (w->fd >= 0) {
            (void)shutdown(w->fd, SHUT_RDWR);
        }
    }
    for (fd = 3; fd < most && all.port != 0; fd++) {
        if (listens(fd, all.port) ||
            (ends_of(fd, &own, &peer, text) == 0 && own == all.port)) {
            (void)shutdown(fd, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&all.lock);
}

void watch_guard(int port, int64_t timeout_ms, int crowd)
{
    pthread_mutex_lock(&all.lock);
    all.port = port;
    all.crowd = crowd;
    all.patience_ms = timeout_ms;
    pthread_cond_signal(&all.changed);
    pthread_mutex_unlock(&all.lock);
}
