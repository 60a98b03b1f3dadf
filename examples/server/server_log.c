/* server_log.c - see server_log.h */
#define _XOPEN_SOURCE 700

#include "server_log.h"

#include "server_watch.h"

#include <pthread.h>
#include <stdio.h>

#define BURST 10              /* lines at once, without --verbose */
#define INTERVAL_MS 1000      /* between those that follow */

static struct {
    pthread_mutex_t lock;
    int verbose;
    int64_t next_ms;          /* when all of the burst is there again */
    unsigned left_out;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

void log_init(int verbose)
{
    state.verbose = verbose;
}

/* Whether a line may be written now. Call with the lock. */
static int has_turn(void)
{
    int64_t now = platform_now_ms();
    state.next_ms = state.next_ms > now - BURST * INTERVAL_MS ? state.next_ms
                                                              : now - BURST * INTERVAL_MS;
    if (state.verbose) {
        return 1;
    }
    if (state.next_ms > now) {
        state.left_out++;
        return 0;
    }
    state.next_ms += INTERVAL_MS;
    return 1;
}

static void copy_printable(char *to, size_t size, const char *from)
{
    size_t i;
    for (i = 0; i + 1 < size && from[i] != '\0'; i++) {
        to[i] = from[i] >= ' ' && from[i] < 127 ? from[i] : '?';
    }
    to[i] = '\0';
}

void log_request(const log_entry *e)
{
    char line[720], path[128], reason[256], part[48];
    int n, bad = e->reason != NULL && e->reason[0] != '\0';
    copy_printable(path, sizeof path, e->path != NULL ? e->path : "");
    copy_printable(reason, sizeof reason, bad ? e->reason : "");
    n = snprintf(line, sizeof line, "server: %s %s%s%s%s%s", e->client,
                 e->key != NULL ? e->key : "", e->key != NULL && e->key[0] != '\0' ? " " : "",
                 e->what, path[0] != '\0' ? " " : "", path);
    if (e->status > 0) {
        n += snprintf(line + n, sizeof line - (size_t)n, " %d", e->status);
    }
    if (e->audio_ms >= 0) {
        n += snprintf(line + n, sizeof line - (size_t)n, ", %.1f s of audio",
                      (double)e->audio_ms / 1e3);
    }
    part[0] = '\0';
    if (e->queued_ms >= 0) {
        (void)snprintf(part, sizeof part, ", %lld ms in the queue", (long long)e->queued_ms);
    }
    (void)snprintf(line + n, sizeof line - (size_t)n, "%s, %lld ms%s%s%s%s", part,
                   (long long)e->ms, e->id != NULL ? ", " : "", e->id != NULL ? e->id : "",
                   bad ? ": " : "", reason);
    pthread_mutex_lock(&state.lock);
    if ((bad || state.verbose) && has_turn()) {
        if (state.left_out > 0) {
            fprintf(stderr, "server: %u more were refused\n", state.left_out);
            state.left_out = 0;
        }
        fprintf(stderr, "%s\n", line);
    }
    pthread_mutex_unlock(&state.lock);
}
