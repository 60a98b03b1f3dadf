/*
 * listen_file.h - a file that gets final text, line by line. Of a line that is not complete it has
 * the words that are final already, so that a crash loses none of them.
 */
#ifndef LISTEN_FILE_H
#define LISTEN_FILE_H

#include "listen_source.h"

#include <sys/types.h>

#define FILE_SPEAKERS (SOURCE_SESSIONS + 1) /* 0: there is one voice only */
#define FILE_LINE 4096          /* lines that are begun have less text, as have windows */

typedef struct text_file {
    int fd;                     /* -1: none; then file_open() is the only one to do anything */
    int rewrites;               /* it is regular: text at its end can be replaced */
    int changed;                /* since the last file_sync() */
    off_t at;                   /* end of the complete lines; those that are begun follow */
    size_t n_begun;             /* bytes of them in the file */
    char begun[FILE_SPEAKERS][FILE_LINE];
} text_file;

/* Opens a file, which is appended to; the rest of *f must be 0. Returns 0, or -1 with errno. */
int file_open(text_file *f, const char *path);
/* Adds a line. Returns 0, or -1 with errno. file_begin_line() follows. */
int file_add(text_file *f, const char *line);
/* What is final of the next line of a speaker, 0.. below FILE_SPEAKERS; "": nothing. It replaces
 * what was given before. Other files than regular ones do not get it. Returns 0, or -1 with
 * errno. */
int file_begin_line(text_file *f, int speaker, const char *text);
/* What has been written is on the disk. */
void file_sync(text_file *f);
void file_close(text_file *f);

#endif
