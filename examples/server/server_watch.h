/* server_watch.h - one thread that watches the sockets of all clients: it ends connections whose
 * deadline has passed, and cancels the runs of clients that went away. Part of server. POSIX. */
#ifndef SERVER_WATCH_H
#define SERVER_WATCH_H

#include "../kit/platform.h"
#include "whisper_npu.h"

#include <stdatomic.h>
#include <stdint.h>

#define WATCH_TICK_MS 20
#define WATCH_CROWDED_MS 1000
#define WATCH_LARGE 8
#define WATCH_PACE_MS 5000

typedef enum watch_phase {
    WATCH_READING,            /* the client sends: at the deadline reading ends */
    WATCH_WORKING,            /* the client waits: if it is gone, or at the deadline, work ends */
    WATCH_WRITING             /* the client receives: at the deadline its socket is shut down */
} watch_phase;

/* A connection. Fields are changed with the functions below only. */
typedef struct watch {
    int fd;                   /* -1: unknown, only the deadline of WATCH_WORKING acts */
    watch_phase phase;
    int64_t deadline_ms;      /* of the phase, by platform_now_ms(); 0: none */
    int late;                 /* it has passed, and what follows from that is done */
    uint64_t taken, most;     /* of a WebSocket: bytes taken from it, and limit for bytes that are
                                 received but not taken; most 0: no limit. Beyond it the work ends,
                                 and beyond WATCH_LARGE times as many the connection */
    uint64_t pace;            /* see watch_pace() */
    uint64_t paced;           /* bytes received at paced_ms */
    int64_t paced_ms;         /* 0: there is no crowd */
    const char *probe;        /* see watch_probe() */
    int probed;               /* it was sent */
    wnpu_session *session;    /* whose run is to be cancelled, or NULL */
    atomic_int stop;          /* the work is to end: the client is gone or its time is up */
    atomic_int gone, expired, large; /* why; large: a message is larger than the limit */
    struct watch *next, **link;
} watch;

int watch_start(void);
/* Ends the thread; no connections may be left. */
void watch_stop(void);

void watch_add(watch *w, int fd, watch_phase phase, int64_t timeout_ms);
void watch_remove(watch *w);
/* Begins a phase, with a deadline timeout_ms from now; 0: none. */
void watch_enter(watch *w, watch_phase phase, int64_t timeout_ms);
/* The run to cancel when the work is to end; NULL: none. */
void watch_session(watch *w, wnpu_session *session);
/* A client that closes its sending half cannot be told from one that closes the connection until it
 * receives something: the latter answers with a reset. In WATCH_WORKING it is sent text, once; "":
 * nothing for now, because another thread is writing. NULL (the default): both count as gone. */
void watch_probe(watch *w, const char *text);
/* In WATCH_READING, while there are more connections than watch_guard() has as a crowd, a client
 * that has sent fewer bytes per second than this during WATCH_PACE_MS counts as late. 0 (the
 * default): no client does. */
void watch_pace(watch *w, uint64_t bytes_per_second);
/* Counts bytes that were taken from a WebSocket, and sets the limit for a message. */
void watch_took(watch *w, uint64_t bytes, uint64_t most);
/* Ends the work of one connection. */
void watch_stop_one(watch *w);
/* Ends the work of all connections in WATCH_WORKING, and shuts down the sockets of those in
 * WATCH_WRITING. From now on what clients send is refused: stop is set in WATCH_READING, and
 * reading ends soon. */
void watch_stop_all(void);
/* Shuts down the sockets of all connections, also those without a watch to the guarded port, and
 * that port's own socket, whose reader wakes up. */
void watch_hang_up(void);
/* Ends connections to our port which no watch has for timeout_ms: those that never send a request.
 * With more than crowd connections, those without any request so far have WATCH_CROWDED_MS only.
 * port 0: no more. */
void watch_guard(int port, int64_t timeout_ms, int crowd);
/* The descriptor of the connection from this address and port to one of ours, or -1. */
int watch_find_socket(const char *address, int port, int own_port);

#endif
