/* output.c - see output.h */
#define _XOPEN_SOURCE 700

#include "output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(output *out, int error)
{
    if (out->why[0] == '\0') { /* the first reason is the cause */
        snprintf(out->why, sizeof out->why, "%s", strerror(error != 0 ? error : EIO));
    }
    return -1;
}

/* A new file beside the one to be, with the mode that fopen() would have given it. */
static FILE *open_temporary(output *out)
{
    static const char ending[] = ".XXXXXX";
    size_t length = strlen(out->path);
    mode_t mask = umask(0);
    FILE *file = NULL;
    char *name = malloc(length + sizeof ending);
    int fd;
    umask(mask);
    if (name == NULL) {
        return NULL;
    }
    memcpy(name, out->path, length);
    memcpy(name + length, ending, sizeof ending);
    fd = mkstemp(name);
    if (fd < 0) {
        int error = errno;
        free(name);
        errno = error;
        return NULL;
    }
    out->temporary = name;
    if (fchmod(fd, 0666 & ~mask) == 0) {
        file = fdopen(fd, "w");
    }
    if (file == NULL) {
        close(fd);
    }
    return file;
}

int output_open(output *out, const char *path)
{
    struct stat info;
    memset(out, 0, sizeof *out);
    if (path == NULL) {
        out->file = stdout;
        return 0;
    }
    out->path = realpath(path, NULL); /* a symbolic link stays one */
    if (out->path == NULL) {
        out->path = strdup(path);
    }
    if (out->path == NULL) {
        return fail(out, ENOMEM);
    }
    errno = 0;
    if (stat(out->path, &info) == 0 && !S_ISREG(info.st_mode)) {
        out->file = fopen(out->path, "w");
    } else {
        out->file = open_temporary(out);
    }
    if (out->file == NULL) {
        fail(out, errno);
        output_drop(out);
        return -1;
    }
    return 0;
}

int64_t output_write(void *user, const void *data, size_t size)
{
    output *out = user;
    errno = 0;
    if (fwrite(data, 1, size, out->file) != size) {
        return fail(out, errno);
    }
    return (int64_t)size;
}

int output_finish(output *out)
{
    FILE *file = out->file;
    int failed;
    errno = 0;
    failed = fflush(file) != 0 || ferror(file);
    if (file != stdout) {
        failed = failed || (out->temporary != NULL && fsync(fileno(file)) != 0);
        out->file = NULL;
        failed = fclose(file) != 0 || failed;
    }
    if (!failed && out->temporary != NULL) {
        failed = rename(out->temporary, out->path) != 0;
        if (!failed) {
            free(out->temporary);
            out->temporary = NULL;
        }
    }
    if (failed) {
        fail(out, errno);
    }
    output_drop(out);
    return failed ? -1 : 0;
}

void output_drop(output *out)
{
    if (out->file != NULL && out->file != stdout) {
        fclose(out->file);
    }
    if (out->temporary != NULL) {
        unlink(out->temporary);
    }
    free(out->temporary);
    free(out->path);
    out->file = NULL;
    out->path = out->temporary = NULL;
}
