/*
 * listen_file.c - see listen_file.h.
 */
#define _XOPEN_SOURCE 700
#include "listen_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int file = -1;
static int rewrites;            /* it is regular: text at its end can be replaced */
static int changed;             /* since the last file_sync() */
static off_t at;                /* end of the complete lines; those that are begun follow */
static size_t n_begun;          /* bytes of them in the file */
static char begun[FILE_SPEAKERS][FILE_LINE];

static int put(const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t wrote = rewrites ? pwrite(file, bytes, n, at) : write(file, bytes, n);
        if (wrote < 0 && errno != EINTR) {
            return -1;
        }
        if (wrote > 0) {
            at += wrote;
            bytes += wrote;
            n -= (size_t)wrote;
        }
    }
    changed = 1;
    return 0;
}

/* Whether the last byte of a file of this size is not that of a complete line. */
static int ends_within_line(const char *path, off_t size)
{
    char last = '\n';
    int fd = size > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        if (pread(fd, &last, 1, size - 1) != 1) {
            last = '\n';
        }
        close(fd);
    }
    return last != '\n';
}

int file_open(const char *path)
{
    struct stat about;
    file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0 || fstat(file, &about) != 0) {
        return -1;
    }
    rewrites = S_ISREG(about.st_mode) && fcntl(file, F_SETFL, 0) == 0; /* without O_APPEND */
    at = about.st_size;
    return rewrites && ends_within_line(path, at) ? put("\n", 1) : 0;
}

/* Another program may have changed the file, too: then its end is where lines go on. */
static int find_end(void)
{
    struct stat about;
    if (fstat(file, &about) != 0) {
        return -1;
    }
    if (about.st_size != at + (off_t)n_begun) {
        int within = n_begun > 0 && about.st_size > at;
        at = about.st_size;
        n_begun = 0;
        return within ? put("\n", 1) : 0;
    }
    return 0;
}

/* Writes the lines that are begun, behind the complete ones. */
static int put_begun(void)
{
    char bytes[FILE_SPEAKERS * FILE_LINE];
    const off_t here = at;
    const size_t before = n_begun;
    size_t i, n = 0;
    int status;
    for (i = 0; i < FILE_SPEAKERS; i++) {
        size_t length = strlen(begun[i]);
        if (length > 0 && n > 0) {
            bytes[n++] = '\n';
        }
        memcpy(bytes + n, begun[i], length);
        n += length;
    }
    status = put(bytes, n);
    at = here;
    n_begun = n;
    return status == 0 && n < before ? ftruncate(file, at + (off_t)n) : status;
}

int file_add(const char *line)
{
    const size_t n = strlen(line) + 1;
    if (file < 0) {
        return 0;
    }
    if ((rewrites && find_end() != 0) || put(line, n - 1) != 0 || put("\n", 1) != 0) {
        return -1;
    }
    n_begun = n_begun > n ? n_begun - n : 0; /* what it has not overwritten */
    return 0;
}

int file_begin_line(int speaker, const char *text)
{
    const size_t n = strlen(text);
    if (file < 0 || !rewrites || n >= FILE_LINE ||
        (!changed && strcmp(begun[speaker], text) == 0)) {
        return 0;
    }
    memcpy(begun[speaker], text, n + 1);
    return find_end() == 0 ? put_begun() : -1;
}

void file_sync(void)
{
    if (changed) {
        changed = 0;
        (void)fsync(file);      /* not all files can */
    }
}

void file_close(void)
{
    if (file >= 0) {
        close(file);
        file = -1;
    }
}
