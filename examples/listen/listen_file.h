/*
 * listen_file.h - a file that gets final text, line by line. Of a line that is not complete it has
 * the words that are final already, so that a crash loses none of them.
 */
#ifndef LISTEN_FILE_H
#define LISTEN_FILE_H

#include "listen_source.h"

#define FILE_SPEAKERS (SOURCE_SESSIONS + 1) /* 0: there is one voice only */
#define FILE_LINE 4096          /* lines that are begun have less text, as have windows */

/* Opens a file and appends to it. Returns 0, or -1 with errno. Without it the others do nothing. */
int file_open(const char *path);
/* Adds a line. Returns 0, or -1 with errno. file_begin_line() follows. */
int file_add(const char *line);
/* What is final of the next line of a speaker, 0.. below FILE_SPEAKERS; "": nothing. It replaces
 * what was given before. Other files than regular ones do not get it. Returns 0, or -1 with
 * errno. */
int file_begin_line(int speaker, const char *text);
/* What has been written is on the disk. */
void file_sync(void);
void file_close(void);

#endif
