/*
 * output.h - a file that appears whole or not at all. POSIX.
 */
#ifndef OUTPUT_H
#define OUTPUT_H

#include <stdint.h>
#include <stdio.h>

/* One output, under a temporary name until it is finished. */
typedef struct output {
    FILE *file;
    char *path;               /* where it is going; NULL: standard output */
    char *temporary;          /* NULL: path is written directly, being a device or a pipe */
    char why[128];            /* one line: what failed */
} output;

/* Opens path (NULL: standard output). Returns 0, or -1 with the reason in out->why. */
int output_open(output *out, const char *path);
/* A wnpu_write_fn; user is the output. */
int64_t output_write(void *user, const void *data, size_t size);
/* Closes, and gives the file its name. -1, and what was there before stays, if not every byte is
 * safely with the system. */
int output_finish(output *out);
/* Gives up: what was there before stays. Allowed after any of the others. */
void output_drop(output *out);

#endif
