/* ffmpeg.h - decodes compressed audio to a stream of WAV bytes with the program ffmpeg.
 *
 * ffmpeg runs as a child process. It may open only the given input, and only formats from a list:
 * no playlists, scripts or network addresses. Not on Windows, where ffmpeg_open() fails. */
#ifndef FFMPEG_H
#define FFMPEG_H

#include "platform.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ffmpeg_input {
    int seekable_fd;          /* a regular file, read from its start; -1: source is used */
    const char *name;         /* of that file, or NULL */
    /* Bytes fed to ffmpeg as they arrive. source returns up to size of them, 0 at the end, or a
     * negative number on failure. source_fd is the descriptor to poll for more, or -1 if source
     * does not block. */
    int64_t (*source)(void *user, void *buffer, size_t size);
    int (*source_fd)(void *user);
    void *user;
    int track;                /* audio track, from 0; -1: chosen by ffmpeg */
    uint32_t raw_channels;    /* samples of so many channels without a header; 0: WAV */
    int64_t stall_ms;         /* limit for the time without progress; 0: none */
    const atomic_int *end;    /* when non-zero, the output ends */
} ffmpeg_input;

/* Where the samples that ffmpeg writes belong in the recording, by the times that it reports for
 * each piece of them: silence is put in where time is missing, and samples that are twice in it are
 * left out. ffmpeg's own filter for this starts again from 0 whenever the input's rate or channels
 * change, and believes times of a single piece that are wrong. Frames have 16 kHz. */
typedef struct ffmpeg_clock {
    int counted;              /* the input has no times: ffmpeg counts its frames */
    int64_t heard;            /* frames that were reported */
    int64_t now;              /* where the next of them belongs */
    int64_t offset;           /* added to times that are reported */
    int64_t doubt, doubtful;  /* how much later than expected the last piece is, and its
                               * first frame: it waits until the next piece agrees; 0: no */
    struct {
        int64_t at, shift;    /* before frame at, so many of silence; negative: to leave out */
    } jumps[32];              /* of frames not taken yet, in a ring */
    size_t first_jump, n_jumps;
    size_t frame;             /* bytes; 0: what comes is still the header */
    int64_t taken;            /* bytes of samples given out or left out */
    int64_t silent, dropped;  /* bytes of silence still to give, of samples still to leave out */
} ffmpeg_clock;

typedef struct ffmpeg {
    ffmpeg_input from;
    char name[64];            /* name of the input in ffmpeg's messages, if it fits */
    pid_t child;              /* -1: none */
    int in, out, err;         /* the parent's ends of the pipes; -1: closed */
    unsigned char *feed;      /* bytes read from source but not yet written to in */
    size_t feed_at, feed_have;
    char line[512];           /* the message being received */
    size_t line_size;
    char last[256], error[256], damage[256]; /* the last message, the last error, the first sign
                                              * of damage */
    char skipped[256];        /* the first message that tells only that something was not decoded */
    int64_t duration_ms;      /* of the input, or -1 */
    int estimated;            /* that is not from a header, but from the bit rate */
    int video;                /* the input also has video */
    int dss, dss_ended;       /* a DSS file, whose end ffmpeg may take for an error */
    int mp3, skipped_mp3;     /* an MP3 file; and all that is wrong with it is what was skipped */
    int gapless;              /* a format without time stamps, where a gap means damage */
    int stalled, status;      /* status: from waitpid() */
    unsigned char head[1024]; /* the WAV header, as far as it was received */
    size_t head_size, head_at;
    unsigned char *held;      /* the piece that waits */
    size_t held_size, held_at, held_room;
    ffmpeg_clock clock;
} ffmpeg;

/* Returns 0, or -1 with errno set. Call ffmpeg_close() in both cases. */
int ffmpeg_open(ffmpeg *f, const ffmpeg_input *from);
/* Reads bytes of a WAV file with 16-bit samples at 16 kHz and the input's channels, or with
 * raw_channels the samples alone; the first sample is at time 0 of the input. Returns 1..size, or 0
 * at the end or when *end is set. */
int64_t ffmpeg_read(void *f, void *buffer, size_t size);
/* Waits for the child. Returns NULL on success, else the error as text. */
const char *ffmpeg_finish(ffmpeg *f);
/* Terminates a child that is still running. */
void ffmpeg_close(ffmpeg *f);

#endif
