/*
 * ffmpeg.h - compressed audio as a stream of WAV bytes, by way of the program ffmpeg. POSIX.
 *
 * ffmpeg runs as a child process. It may open nothing but the one input, and only the formats in a
 * list: no playlists, scripts or network addresses.
 */
#ifndef FFMPEG_H
#define FFMPEG_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct ffmpeg_input {
    const char *name;         /* a file's name; NULL: seekable_fd, or else source */
    int seekable_fd;          /* a regular file, read from its start; -1: none */
    /* Bytes that are fed to ffmpeg as they come. source returns up to size of them, 0 at the end or
     * a negative number on failure; source_fd the descriptor on which to wait for more, or -1 when
     * there are some already. */
    int64_t (*source)(void *user, void *buffer, size_t size);
    int (*source_fd)(void *user);
    void *user;
    int track;                /* which audio track, from 0; -1: ffmpeg chooses */
    int64_t stall_ms;         /* give up after so long without progress; 0: never */
    const volatile sig_atomic_t *end; /* nonzero: the output ends here */
} ffmpeg_input;

typedef struct ffmpeg {
    ffmpeg_input from;
    char name[64];            /* what messages of ffmpeg call the input, if that fits */
    pid_t child;              /* -1: none */
    int in, out, err;         /* our ends of its pipes; -1: closed */
    unsigned char *feed;      /* bytes on their way from source to in */
    size_t feed_at, feed_have;
    char line[512];           /* of its messages, so far */
    size_t line_size;
    char last[256], error[256], damage[256]; /* last message, last error, first sign of damage */
    int64_t duration_ms;      /* of the input by its header, or -1 */
    int video;                /* there is a moving picture, too */
    int gapless;              /* a format without time stamps, where a hole means damage */
    int stalled, status;      /* status: of waitpid() */
} ffmpeg;

/* 0, or -1 with errno set. Call ffmpeg_close() in any case. */
int ffmpeg_open(ffmpeg *f, const ffmpeg_input *from);
/* Bytes of a WAV file with 16-bit samples at 16 kHz and the input's channels, whose first sample
 * belongs to time 0 of the input: 1..size, or 0 at the end, or when *end is set. */
int64_t ffmpeg_read(void *f, void *buffer, size_t size);
/* Waits for the child. NULL when all went well, else what was wrong. */
const char *ffmpeg_finish(ffmpeg *f);
/* Ends a child that still runs. */
void ffmpeg_close(ffmpeg *f);

#endif
