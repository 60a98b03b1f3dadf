/* server_upload.c - see server_upload.h */
#define _GNU_SOURCE /* mkostemp() */

#include "server_upload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void upload_init(upload *u, uint64_t most)
{
    memset(u, 0, sizeof *u);
    u->fd = -1;
    u->most = most;
}

static int write_all(int fd, const unsigned char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t wrote = write(fd, bytes, n);
        if (wrote < 0 && errno != EINTR) {
            return -1;
        }
        bytes += wrote > 0 ? wrote : 0;
        n -= wrote > 0 ? (size_t)wrote : 0;
    }
    return 0;
}

/* Moves what is in memory to a file. */
static int spool(upload *u)
{
    const char *places[] = {NULL, "/var/tmp", "/tmp", "/dev/shm"};
    size_t i;
    places[0] = getenv("TMPDIR");
    for (i = 0; i < sizeof places / sizeof places[0] && u->fd < 0; i++) {
        char name[4096];
        int n = places[i] != NULL ? snprintf(name, sizeof name, "%s/wnpu-server.XXXXXX", places[i])
                                  : -1;
        u->fd = n > 0 && (size_t)n < sizeof name ? mkostemp(name, O_CLOEXEC) : -1;
        if (u->fd >= 0) {
            unlink(name);
        }
    }
    if (u->fd < 0 || write_all(u->fd, u->memory, u->used) != 0) {
        return -1;
    }
    free(u->memory);
    u->memory = NULL;
    u->used = u->room = 0;
    return 0;
}

int upload_add(upload *u, const void *bytes, size_t n)
{
    if (n > u->most - u->size) {
        errno = EFBIG;
        return -1;
    }
    if (u->fd < 0 && u->used + n > UPLOAD_MEMORY_MOST && spool(u) != 0) {
        return -1;
    }
    if (u->fd < 0 && u->used + n > u->room) {
        size_t room = 2 * (u->used + n);
        unsigned char *larger = realloc(u->memory, room);
        if (larger == NULL) {
            return -1;
        }
        u->memory = larger;
        u->room = room;
    }
    if (u->fd >= 0 && write_all(u->fd, bytes, n) != 0) {
        return -1;
    }
    if (u->fd < 0 && n > 0) {
        memcpy(u->memory + u->used, bytes, n);
        u->used += n;
    }
    u->size += n;
    return 0;
}

int upload_file(upload *u)
{
    if (u->fd < 0 && spool(u) != 0) {
        return -1;
    }
    return lseek(u->fd, 0, SEEK_SET) == 0 ? u->fd : -1;
}

size_t upload_head(const upload *u, void *bytes, size_t n)
{
    ssize_t got;
    if (u->fd >= 0) {
        got = pread(u->fd, bytes, n, 0);
        return got > 0 ? (size_t)got : 0;
    }
    n = n < u->used ? n : u->used;
    if (n > 0) {
        memcpy(bytes, u->memory, n);
    }
    return n;
}

void upload_free(upload *u)
{
    free(u->memory);
    u->memory = NULL;
    if (u->fd >= 0) {
        close(u->fd);
    }
    u->fd = -1;
}
