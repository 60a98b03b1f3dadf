/* input.h - opens a recording from a file, pipe or other descriptor as a wnpu_audio. It is read
 * sequentially: nothing is mapped, and a pipe is read once.
 *
 * WAV files and raw samples are read directly; other formats through ffmpeg, if it is installed.
 * POSIX. */
#ifndef INPUT_H
#define INPUT_H

#include <stddef.h>
#include <stdint.h>
#include "ffmpeg.h"
#include "frames.h"
#include "whisper_npu.h"

/* A part of the recording to be transcribed, in milliseconds. */
typedef struct input_clip {
    int64_t t0_ms, t1_ms;
} input_clip;

#define INPUT_CENTRE (-2) /* as a channel: the one for the loudspeaker in the middle */

typedef struct input_options {
    int channel;              /* from 0, or WNPU_CHANNEL_MIX or INPUT_CENTRE */
    int track;                /* audio track of a container, from 0; -1: chosen by ffmpeg */
    const wnpu_audio *raw;    /* format, rate and channels of samples without a header, or NULL */
    int sniff;                /* 1: raw is for input whose first bytes are those of no known format.
                                 Text is refused */
    const input_clip *clips;  /* in order; the rest of the recording counts as silence, and it ends
                                 with the last one. NULL: all is heard */
    size_t n_clips;
    int whole;                /* 1: read all into memory first, so that it can be read twice */
    int64_t stall_ms;         /* limit for the time without progress of ffmpeg; 0: none */
    /* A signal handler may set this to end the input; waiting for slow input ends within 250 ms.
     * The recording then ends with what was delivered so far. Of a stream (anything but a regular
     * file), all bytes that have arrived are still delivered. */
    const atomic_int *end;
} input_options;

typedef enum input_state {
    INPUT_WHOLE,
    INPUT_ODD,                /* damaged, but no audio is missing */
    INPUT_CUT                 /* audio is missing */
} input_state;

typedef struct input {
    wnpu_audio audio;         /* with a read callback, or in memory */
    char why[384];            /* one line: why input_open() failed, or the finding of
                               * input_finish() */
    /* Private to input.c. */
    const char *path;
    int given;                /* the descriptor to read, or -1: path is opened */
    input_options from;
    int fd;                   /* the descriptor being read */
    int seekable;             /* a regular file, read from its start */
    int stream;               /* opened as a pipe or the like; a copy in a file may replace it */
    int64_t waiting;          /* bytes left to read after *end was set; -1: not set yet */
    unsigned char *head;      /* first bytes, read for format detection and still to be delivered */
    size_t head_at, head_size, head_room;
    int keeping;              /* bytes that are read are also appended to head */
    unsigned char *tail;      /* the last bytes of an Ogg stream */
    size_t tail_size;
    struct {                  /* an Ogg stream, each of whose links is decoded on its own */
        int used, next;       /* next: the page at hand begins another link */
        int data;             /* pages other than first ones have been seen in this link */
        int lost;             /* what follows is not a page, and is passed on as it is */
        unsigned char page[282]; /* the page's header, not passed on completely */
        size_t at, have;
        size_t body;          /* bytes of the page's body that follow */
        char why[256];        /* what ffmpeg said about links before the last */
    } ogg;
    frame_walk frames;        /* of what was read, if the input is not seekable */
    int read_error;           /* errno of a failed read */
    wnpu_wav_reader wav;
    ffmpeg child;
    int uses_wav, uses_ffmpeg;
    wnpu_audio inner;         /* before clips are applied */
    uint64_t at;              /* frames delivered */
    int ended;                /* the end was reached */
    void *memory;             /* if whole is set */
} input;

/* Reads FORMAT[,RATE[,CHANNELS]], such as s16le,16000,1, the description of samples without a
 * header. Returns 0, or -1 if it is none. */
int input_parse_raw(wnpu_audio *raw, const char *value);
/* Opens path ("-": standard input). Returns 0, or -1 with the error in in->why. Call input_close()
 * in both cases. in must not be moved. */
int input_open(input *in, const char *path, const input_options *options);
/* The same for an open descriptor, which remains the caller's; a regular file is read from its
 * current position. */
int input_open_fd(input *in, int fd, const input_options *options);
/* Call after the recording was read. Returns whether it was damaged, with a message in in->why. */
input_state input_finish(input *in);
void input_close(input *in);

#endif
