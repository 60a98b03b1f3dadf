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

static int put(text_file *f, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t wrote = f->rewrites ? pwrite(f->fd, bytes, n, f->at) : write(f->fd, bytes, n);
        if (wrote < 0 && errno != EINTR) {
            return -1;
        }
        if (wrote > 0) {
            f->at += wrote;
            bytes += wrote;
            n -= (size_t)wrote;
        }
    }
    f->changed = 1;
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

int file_open(text_file *f, const char *path)
{
    struct stat about;
    f->fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (f->fd < 0 || fstat(f->fd, &about) != 0) {
        return -1;
    }
    f->rewrites = S_ISREG(about.st_mode) && fcntl(f->fd, F_SETFL, 0) == 0; /* without O_APPEND */
    f->at = about.st_size;
    return f->rewrites && ends_within_line(path, f->at) ? put(f, "\n", 1) : 0;
}

/* Another program may have changed the file, too: then its end is where lines go on. */
static int find_end(text_file *f)
{
    struct stat about;
    if (fstat(f->fd, &about) != 0) {
        return -1;
    }
    if (about.st_size != f->at + (off_t)f->n_begun) {
        int within = f->n_begun > 0 && about.st_size > f->at;
        f->at = about.st_size;
        f->n_begun = 0;
        return within ? put(f, "\n", 1) : 0;
    }
    return 0;
}

/* Writes the lines that are begun, behind the complete ones. */
static int put_begun(text_file *f)
{
    char bytes[FILE_SPEAKERS * FILE_LINE];
    const off_t here = f->at;
    const size_t before = f->n_begun;
    size_t i, n = 0;
    int status;
    for (i = 0; i < FILE_SPEAKERS; i++) {
        size_t length = strlen(f->begun[i]);
        if (length > 0 && n > 0) {
            bytes[n++] = '\n';
        }
        memcpy(bytes + n, f->begun[i], length);
        n += length;
    }
    status = put(f, bytes, n);
    f->at = here;
    f->n_begun = n;
    return status == 0 && n < before ? ftruncate(f->fd, f->at + (off_t)n) : status;
}

int file_add(text_file *f, const char *line)
{
    const size_t n = strlen(line) + 1;
    if (f->fd < 0) {
        return 0;
    }
    if ((f->rewrites && find_end(f) != 0) || put(f, line, n - 1) != 0 || put(f, "\n", 1) != 0) {
        return -1;
    }
    f->n_begun = f->n_begun > n ? f->n_begun - n : 0; /* what it has not overwritten */
    return 0;
}

int file_begin_line(text_file *f, int speaker, const char *text)
{
    const size_t n = strlen(text);
    if (f->fd < 0 || !f->rewrites || n >= FILE_LINE ||
        (!f->changed && strcmp(f->begun[speaker], text) == 0)) {
        return 0;
    }
    memcpy(f->begun[speaker], text, n + 1);
    return find_end(f) == 0 ? put_begun(f) : -1;
}

void file_sync(text_file *f)
{
    if (f->changed) {
        f->changed = 0;
        (void)fsync(f->fd);      /* not all files can */
    }
}

void file_close(text_file *f)
{
    if (f->fd >= 0) {
        close(f->fd);
        f->fd = -1;
    }
}
