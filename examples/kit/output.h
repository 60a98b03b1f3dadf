/* output.h - output files that never lose the results of a run: writability is checked before the
 * run, and if writing fails nevertheless, the results are written elsewhere. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include "platform.h"
#include "whisper_npu.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Writes the complete contents of an output. May be called several times with different sinks.
 * Returns WNPU_OK or the error of write. */
typedef int (*output_fill_fn)(void *user, wnpu_write_fn write, void *sink);

typedef enum output_kind {
    OUTPUT_STDOUT,            /* standard output */
    OUTPUT_STREAM,            /* a device, FIFO or terminal: opened before the run, written
                               * directly */
    OUTPUT_REPLACE,           /* a regular file, created or replaced atomically */
    OUTPUT_IN_PLACE           /* a file with other hard links or another owner, or a mount point */
} output_kind;

typedef struct output {
    output_kind kind;
    char *path;               /* with symbolic links resolved; NULL: standard output */
    int strict;               /* may be set after output_open(): a whole file or none, no other
                                 place and not in place */
    char *buffer;             /* write buffer with its size; may be set after output_open() */
    size_t buffer_size;
    int fd;                   /* descriptor of a stream, else -1 */
    int exists;               /* the file existed before */
    mode_t mode;              /* mode of the existing file */
    uid_t uid;
    gid_t gid;
    char why[128];            /* the error, one line; "" if none */
    char where[4352];         /* the alternative file that was written; "" if none */
} output;

/* Registers a file that will be read, so that no output overwrites it. NULL and "-" are standard
 * input. label is kept by reference. */
void output_protect(const char *path, const char *label);
/* Removes all registered files and claims. */
void output_forget(void);

/* Checks without changing it that path (NULL: standard output) can be written, and claims it for
 * label, which is kept by reference. Returns 0; -1 if it cannot be written; -2 if it is an input or
 * was claimed before. The error is in why. */
int output_check(const char *path, const char *label, char why[256]);

/* Call before the run: decides how path will be written, and opens it if it is a stream. Returns 0,
 * or -1 with the error in out->why. */
int output_open(output *out, const char *path);

/* Call after the run. Returns 0; 1 if the output could not be written because of out->why but its
 * contents are in out->where; -1 if they are lost. Signals are blocked while files are written, so
 * no temporary file is left. */
int output_save(output *out, output_fill_fn fill, void *user);

/* Releases what output_open() allocated. */
void output_close(output *out);

/* Writes text with control characters escaped: file names and the like must not break lines or
 * control the terminal. */
void output_safely(FILE *file, const char *text);
/* Prints "PROGRAM: message" as a line to standard error, by output_safely(). Returns status. */
__attribute__((format(printf, 3, 0)))
int output_complain(const char *program, int status, const char *format, va_list args);

#endif
