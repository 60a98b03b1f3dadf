/*
 * output.h - output files that cannot lose a finished run: what can fail is found out before the
 * run, and what still fails then is written somewhere else.
 */
#ifndef OUTPUT_H
#define OUTPUT_H

#include "whisper_npu.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Writes everything that belongs into one output. May be called several times, for another place
 * each time. Returns WNPU_OK or what write failed with. */
typedef int (*output_fill_fn)(void *user, wnpu_write_fn write, void *sink);

typedef enum output_kind {
    OUTPUT_STDOUT,            /* standard output */
    OUTPUT_STREAM,            /* a device, FIFO or terminal: opened beforehand, written as it is */
    OUTPUT_REPLACE,           /* a file of that name appears whole, or replaces the one before */
    OUTPUT_IN_PLACE           /* a file that has other names, another owner or is a mount point */
} output_kind;

typedef struct output {
    output_kind kind;
    char *path;               /* with symbolic links resolved; NULL: standard output */
    int strict;               /* may be set after output_open(): a whole file or none, no other
                                 place and not in place */
    char *buffer;             /* may be set after output_open(), with its size: used for writing */
    size_t buffer_size;
    int fd;                   /* of a stream, else -1 */
    int exists;               /* there was a file */
    mode_t mode;              /* of it */
    uid_t uid;
    gid_t gid;
    char why[128];            /* what failed, one line; "" if nothing did */
    char where[4352];         /* the other place that was written; "" if none was */
} output;

/* Notes a file that will be read: no output may be written over it. NULL and "-" are standard
 * input. label is kept by reference. */
void output_protect(const char *path, const char *label);
/* Forgets all files that were noted or claimed. */
void output_forget(void);

/* Finds out whether path (NULL: standard output) can be written, without changing it, and claims it
 * for label, which is kept by reference. 0; -1 if it cannot be written; -2 if it is a file that is
 * read, or was claimed before: with the reason in why. */
int output_check(const char *path, const char *label, char why[256]);

/* Before the run: decides how path will be written, and opens it if it is a stream. 0, or -1 with
 * the reason in out->why. */
int output_open(output *out, const char *path);

/* After the run. Returns 0; 1 if the output could not be written, for the reason out->why, but
 * out->where says where its contents are; or -1 if they are nowhere. Signals wait while it works on
 * files, so that no temporary one is left. */
int output_save(output *out, output_fill_fn fill, void *user);

/* Frees what output_open() took. */
void output_close(output *out);

/* Writes text with control characters as escapes: file names and the like must neither end a line
 * nor command a terminal. */
void output_safely(FILE *file, const char *text);

#endif
