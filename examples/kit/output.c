/* output.c - see output.h */
#define _GNU_SOURCE /* statx(), if available */

#include "output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char temporary[] = ".transcribe-XXXXXX"; /* short, because the output's name may
                                                       * have 255 bytes */

/* ---- files that are in use ---- */

typedef struct claim {
    dev_t dev;
    ino_t ino;                /* 0: the file does not exist yet */
    char *path;               /* of an output; NULL: an input */
    const char *label;
} claim;

static claim *claims;
static size_t n_claims, max_claims;

static int add_claim(const struct stat *info, char *path, const char *label)
{
    if (n_claims == max_claims) {
        size_t more = 2 * max_claims + 16;
        claim *grown = realloc(claims, more * sizeof *claims);
        if (grown == NULL) {
            free(path);
            return -1;
        }
        claims = grown;
        max_claims = more;
    }
    memset(&claims[n_claims], 0, sizeof *claims);
    if (info != NULL) {
        claims[n_claims].dev = info->st_dev;
        claims[n_claims].ino = info->st_ino;
    }
    claims[n_claims].path = path;
    claims[n_claims++].label = label;
    return 0;
}

void output_protect(const char *path, const char *label)
{
    struct stat info;
    int failed = path == NULL || strcmp(path, "-") == 0 ? fstat(STDIN_FILENO, &info)
                                                        : stat(path, &info);
    if (failed == 0 && S_ISREG(info.st_mode)) {
        (void)add_claim(&info, NULL, label);
    }
}

void output_forget(void)
{
    while (n_claims > 0) {
        free(claims[--n_claims].path);
    }
    free(claims);
    claims = NULL;
    max_claims = 0;
}

/* The claim that conflicts with the file info or, if that does not exist yet, its path; or NULL. */
static const claim *find_claim(const struct stat *info, const char *path)
{
    size_t i;
    for (i = 0; i < n_claims; i++) {
        if (info != NULL ? claims[i].ino != 0 && claims[i].dev == info->st_dev &&
                               claims[i].ino == info->st_ino
                         : claims[i].path != NULL && strcmp(claims[i].path, path) == 0) {
            return &claims[i];
        }
    }
    return NULL;
}

/* ---- names ---- */

/* Joins path's directory and name. Returns NULL with errno set on failure. */
static char *beside(const char *path, const char *name)
{
    size_t length = (size_t)(platform_name(path) - path);
    char *joined = malloc(length + strlen(name) + 1);
    if (joined != NULL) {
        memcpy(joined, path, length);
        strcpy(joined + length, name);
    }
    return joined;
}

/* The directory of path; NULL with errno set on failure. */
static char *directory_of(const char *path)
{
    char *dot = beside(path, "."), *directory = dot != NULL ? realpath(dot, NULL) : NULL;
    free(dot);
    return directory;
}

/* Where opening path creates a file: a symbolic link to a file that does not exist yet is kept, and
 * the file is created at its target. NULL with errno set on failure. */
static char *resolve_new(const char *path)
{
    char *at = strdup(path), link[PATH_MAX];
    int depth;
    for (depth = 0; at != NULL; depth++) {
        struct stat info;
        ssize_t n;
        char *next;
        if (lstat(at, &info) != 0 || !S_ISLNK(info.st_mode)) {
            break;
        }
        n = readlink(at, link, sizeof link - 1);
        if (n < 0 || depth == 40) {
            free(at);
            errno = depth == 40 ? ELOOP : errno;
            return NULL;
        }
        link[n] = '\0';
        next = platform_is_absolute(link) ? strdup(link) : beside(at, link);
        free(at);
        at = next;
    }
    if (at != NULL) { /* the same file has one path, whatever name was given */
        const char *name = platform_name(at);
        char *directory = directory_of(at), *whole = NULL;
        if (directory != NULL && name[0] != '\0') {
            whole = malloc(strlen(directory) + strlen(name) + 2);
        }
        if (whole != NULL) {
            (void)sprintf(whole, "%s/%s", directory, name);
        } else if (directory != NULL) {
            errno = name[0] == '\0' ? EISDIR : ENOMEM;
        }
        free(directory);
        free(at);
        at = whole;
    }
    return at;
}

/* ---- checks before the run ---- */

static int fail(output *out, int error)
{
    if (out->why[0] == '\0') { /* the first error is the cause */
        snprintf(out->why, sizeof out->why, "%s", strerror(error != 0 ? error : EIO));
    }
    return -1;
}

/* Whether path is a mount point: renaming a file to it fails with EBUSY. */
static int is_mount(const char *path)
{
#ifdef STATX_ATTR_MOUNT_ROOT
    struct statx info;
    return statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &info) == 0 &&
           (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
#else
    struct stat file, directory;
    char *parent = directory_of(path);
    int other = parent != NULL && stat(path, &file) == 0 && stat(parent, &directory) == 0 &&
                file.st_dev != directory.st_dev;
    free(parent);
    return other;
#endif
}

/* Creates a file in the output's directory with the mode and owner of the existing output, or those
 * of a new file. Returns the descriptor and *name, or -1 with errno set. EPERM: mode or owner
 * cannot be reproduced. */
static int open_beside(const output *out, char **name)
{
    mode_t mask = umask(0);
    int fd, error;
    umask(mask);
    *name = beside(out->path, temporary);
    fd = *name != NULL ? mkstemp(*name) : -1;
    if (fd >= 0) {
        struct stat made;
        int alike = fchmod(fd, 0666 & ~mask) == 0 || !out->exists; /* some file systems refuse */
        if (out->exists) {
            alike = fstat(fd, &made) == 0 &&
                    ((made.st_uid == out->uid && made.st_gid == out->gid) ||
                     fchown(fd, out->uid, out->gid) == 0);
            (void)!fchmod(fd, out->mode & 07777);
            alike = alike && fstat(fd, &made) == 0 && made.st_mode == out->mode;
        }
        if (alike) {
            return fd;
        }
        close(fd);
        unlink(*name);
        errno = EPERM;
    }
    error = errno;
    free(*name);
    *name = NULL;
    errno = error;
    return -1;
}

/* Checks that a file can be created and written in the output's directory. Returns 0 or errno. */
static int probe(const output *out)
{
    static const char zeros[16384];
    char *name;
    int error = 0, fd = open_beside(out, &name);
    if (fd < 0) {
        return errno;
    }
    errno = 0;
    if (write(fd, zeros, sizeof zeros) != (ssize_t)sizeof zeros) {
        error = errno != 0 ? errno : ENOSPC;
    }
    if (close(fd) != 0 && error == 0) {
        error = errno;
    }
    unlink(name);
    free(name);
    return error;
}

/* Plans an output that is or will be a regular file. */
static int plan_file(output *out, const char *path, const struct stat *info)
{
    platform_signals before;
    int fd, error;
    out->exists = info != NULL;
    out->path = info != NULL ? realpath(path, NULL) : resolve_new(path);
    if (out->path == NULL) {
        return fail(out, errno);
    }
    out->kind = OUTPUT_REPLACE;
    if (info != NULL) {
        out->mode = info->st_mode;
        out->uid = info->st_uid;
        out->gid = info->st_gid;
        fd = open(out->path, O_WRONLY | O_CLOEXEC);
        if (fd < 0) {
            return fail(out, errno);
        }
        close(fd);
        if (info->st_nlink > 1 || is_mount(out->path)) {
            out->kind = OUTPUT_IN_PLACE;
        }
    }
    platform_hold(&before);
    error = probe(out);
    platform_release(&before);
    if (error == 0) {
        return 0;
    }
    if (info == NULL || error == ENOSPC || error == EDQUOT || error == EFBIG) {
        return fail(out, error);
    }
    out->kind = OUTPUT_IN_PLACE; /* the file is writable, but its directory is not */
    return 0;
}

/* Whether standard output can be written. One that was closed is not, see platform_start(). */
static int has_stdout(void)
{
    int flags = fcntl(STDOUT_FILENO, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

/* Decides how path will be written. *info describes the existing file; st_ino is 0 if there is
 * none. */
static int plan(output *out, const char *path, struct stat *info)
{
    struct stat standard;
    int there;
    memset(out, 0, sizeof *out);
    memset(info, 0, sizeof *info);
    out->fd = -1;
    errno = 0;
    there = path != NULL && stat(path, info) == 0;
    if (path != NULL && !there && errno != ENOENT) {
        return fail(out, errno);
    }
    if (path == NULL || (there && has_stdout() && fstat(STDOUT_FILENO, &standard) == 0 &&
                         standard.st_dev == info->st_dev && standard.st_ino == info->st_ino)) {
        out->kind = OUTPUT_STDOUT;
        if (!has_stdout() || fstat(STDOUT_FILENO, info) != 0) {
            return fail(out, EBADF);
        }
        return 0;
    }
    if (there && S_ISDIR(info->st_mode)) {
        return fail(out, EISDIR);
    }
    if (there && !S_ISREG(info->st_mode)) {
        out->kind = OUTPUT_STREAM;
        return access(path, W_OK) == 0 ? 0 : fail(out, errno);
    }
    if (!there) {
        memset(info, 0, sizeof *info);
    }
    return plan_file(out, path, there ? info : NULL);
}

int output_check(const char *path, const char *label, char why[256])
{
    output out;
    struct stat info;
    const claim *other = NULL;
    int failed = plan(&out, path, &info);
    (void)snprintf(why, 256, "%s", out.why);
    if (failed == 0 && (out.path != NULL || S_ISREG(info.st_mode))) {
        other = find_claim(info.st_ino != 0 ? &info : NULL, out.path != NULL ? out.path : "");
        if (other != NULL && (other->path == NULL || out.path != NULL)) {
            (void)snprintf(why, 256, other->path != NULL ? "%.120s is written to it as well"
                           : "is the same file as %.120s, which is read", other->label);
            failed = -2;
        } else if (out.path != NULL) {
            failed = add_claim(info.st_ino != 0 ? &info : NULL, out.path, label);
            out.path = NULL;
        }
    }
    output_close(&out);
    return failed;
}

int output_open(output *out, const char *path)
{
    struct stat info;
    if (plan(out, path, &info) != 0) {
        output_close(out);
        return -1;
    }
    if (out->kind == OUTPUT_STREAM) {
        out->path = strdup(path);
        out->fd = out->path != NULL ? open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC) : -1;
        if (out->fd < 0) {
            fail(out, errno);
            output_close(out);
            return -1;
        }
    }
    return 0;
}

void output_close(output *out)
{
    if (out->fd >= 0) {
        close(out->fd);
    }
    free(out->path);
    out->path = NULL;
    out->fd = -1;
}

/* ---- writing ---- */

/* A buffered descriptor. */
typedef struct sink {
    int fd, error;
    char *buffer;
    size_t used, size;
} sink;

static int sink_flush(sink *s)
{
    size_t done = 0;
    while (s->error == 0 && done < s->used) {
        ssize_t n = write(s->fd, s->buffer + done, (platform_size)(s->used - done));
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            s->error = n == 0 ? EIO : platform_write_error();
        }
    }
    s->used = 0;
    return s->error == 0 ? 0 : -1;
}

static int64_t sink_write(void *user, const void *data, size_t size)
{
    sink *s = user;
    size_t part = s->size - s->used;
    part = part < size ? part : size;
    memcpy(s->buffer + s->used, data, part);
    s->used += part;
    return s->used == s->size && sink_flush(s) != 0 ? -1 : (int64_t)part;
}

/* Writes the contents to fd and, except for streams, waits until they are on the storage device.
 * Returns 0 or errno. */
static int pour(const output *out, int fd, int stream, output_fill_fn fill, void *user)
{
    char buffer[16384];
    sink s;
    int status;
    s.fd = fd;
    s.error = 0;
    s.used = 0;
    s.buffer = out->buffer != NULL ? out->buffer : buffer;
    s.size = out->buffer != NULL ? out->buffer_size : sizeof buffer;
    status = fill(user, sink_write, &s);
    if (sink_flush(&s) == 0 && status == WNPU_OK && !stream && fsync(fd) != 0 && errno != EINVAL &&
        errno != ENOTSUP) {
        s.error = errno;
    }
    return s.error != 0 ? s.error : status == WNPU_OK ? 0 : EIO;
}

static int write_in_place(const output *out, output_fill_fn fill, void *user)
{
    int error, fd = open(out->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return errno;
    }
    error = pour(out, fd, 0, fill, user);
    return close(fd) != 0 && error == 0 ? errno : error;
}

static int replace(const output *out, output_fill_fn fill, void *user)
{
    char *name;
    int error, fd = open_beside(out, &name);
    if (fd < 0) {
        return errno == EPERM && out->exists && !out->strict ? write_in_place(out, fill, user)
                                                             : errno;
    }
    error = pour(out, fd, 0, fill, user);
    if (close(fd) != 0 && error == 0) {
        error = errno;
    }
    if (error == 0 && rename(name, out->path) != 0) {
        error = errno; /* some names can be written but not replaced */
        error = out->strict ? error : write_in_place(out, fill, user);
    } else if (error == 0) {
        free(name);
        return 0;
    }
    unlink(name);
    free(name);
    return error;
}

/* Writes a new file in directory, named like the output plus a number. Returns 0 on success. */
static int write_copy(output *out, const char *directory, output_fill_fn fill, void *user)
{
    const char *name = out->path != NULL ? platform_name(out->path) : "transcript", *dot;
    size_t stem;
    int i, fd = -1, failed = 1;
    dot = strrchr(name, '.');
    dot = dot != NULL && dot != name && strlen(dot) < 16 ? dot : name + strlen(name);
    stem = (size_t)(dot - name) < 200 ? (size_t)(dot - name) : 200;
    for (i = 1; i < 1000 && fd < 0; i++) {
        int n = snprintf(out->where, sizeof out->where, "%s/%.*s.%d%s", directory, (int)stem, name,
                         i, dot);
        fd = n > 0 && (size_t)n < sizeof out->where
                 ? open(out->where, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
        if (fd < 0 && errno != EEXIST) {
            break;
        }
    }
    if (fd >= 0) {
        failed = pour(out, fd, 0, fill, user) != 0;
        failed = close(fd) != 0 || failed;
        if (failed) {
            unlink(out->where);
        }
    }
    if (failed) {
        out->where[0] = '\0';
    }
    return failed;
}

/* Writes a new file in the output's directory or else in TMPDIR. */
static int write_other_file(output *out, output_fill_fn fill, void *user)
{
    char *directory = out->kind == OUTPUT_REPLACE || out->kind == OUTPUT_IN_PLACE
                          ? directory_of(out->path) : NULL;
    int failed = directory == NULL || write_copy(out, directory, fill, user) != 0;
    free(directory);
    return failed && write_copy(out, platform_temporary(), fill, user);
}

static int pour_to_stdout(output *out, output_fill_fn fill, void *user)
{
    return fflush(stdout) != 0 ? platform_write_error()
                               : pour(out, STDOUT_FILENO, 1, fill, user);
}

int output_save(output *out, output_fill_fn fill, void *user)
{
    platform_signals before;
    int error;
    if (out->kind == OUTPUT_STDOUT || out->kind == OUTPUT_STREAM) { /* may block until there is a
                                                                     * reader */
        error = out->kind == OUTPUT_STREAM ? pour(out, out->fd, 1, fill, user)
                                           : pour_to_stdout(out, fill, user);
    } else {
        platform_hold(&before);
        error = out->kind == OUTPUT_REPLACE ? replace(out, fill, user)
                                            : write_in_place(out, fill, user);
        platform_release(&before);
    }
    if (error == 0) {
        return 0;
    }
    fail(out, error);
    if (error == EPIPE || out->strict) { /* EPIPE: the reader has gone */
        return -1;
    }
    platform_hold(&before);
    error = write_other_file(out, fill, user);
    platform_release(&before);
    if (error != 0 && out->kind != OUTPUT_STDOUT) {
        error = pour_to_stdout(out, fill, user);
        (void)snprintf(out->where, sizeof out->where, "%s", error != 0 ? "" : "standard output");
    }
    return error != 0 ? -1 : 1;
}

void output_safely(FILE *file, const char *text)
{
    const unsigned char *t = (const unsigned char *)text;
    for (; *t != '\0'; t++) {
        if (*t == 0xc2 && t[1] >= 0x80 && t[1] < 0xa0) {
            fprintf(file, "\\u%04x", *++t); /* other control characters */
        } else if (*t < 32 || *t == 127) {
            fprintf(file, "\\x%02x", *t);
        } else {
            fputc(*t, file);
        }
    }
}

int output_complain(const char *program, int status, const char *format, va_list args)
{
    char line[8192];
    (void)vsnprintf(line, sizeof line, format, args);
    (void)fprintf(stderr, "%s: ", program);
    output_safely(stderr, line);
    (void)fputc('\n', stderr);
    return status;
}
