/*
 * input.h - a recording from a file, pipe or any other descriptor, as the wnpu_audio that the
 * library wants. It is read as it comes: nothing is mapped, and a pipe is read once.
 *
 * WAV files and raw samples are read here; what the library does not take as WAV goes through
 * ffmpeg, if that is installed. POSIX.
 */
#ifndef INPUT_H
#define INPUT_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include "ffmpeg.h"
#include "whisper_npu.h"

/* A stretch of the recording that is heard, in milliseconds. */
typedef struct input_clip {
    int64_t t0_ms, t1_ms;
} input_clip;

typedef struct input_options {
    int channel;              /* which one to use, from 0, or WNPU_CHANNEL_MIX */
    int track;                /* which audio track of a container, from 0; -1: ffmpeg chooses */
    const wnpu_audio *raw;    /* format, rate and channels of samples without a header; or NULL */
    const input_clip *clips;  /* in order; the rest of the recording counts as silence, and it ends
                                 with the last one. NULL: all is heard */
    size_t n_clips;
    int whole;                /* 1: read all into memory first, so that it can be read twice */
    int64_t stall_ms;         /* ffmpeg is given up after so long without progress; 0: never */
    /* A signal handler ends the input by setting this: what was read so far is the recording, and
     * a wait for slow input is over within 250 ms. */
    const volatile sig_atomic_t *end;
} input_options;

typedef enum input_state {
    INPUT_WHOLE,
    INPUT_ODD,                /* something was wrong, but no sound is missing */
    INPUT_CUT                 /* sound is missing */
} input_state;

typedef struct input {
    wnpu_audio audio;         /* pulled through input functions, or in memory */
    char why[384];            /* one line: why input_open() failed, or what input_finish() found */
    /* The rest is for input.c. */
    const char *path;
    input_options from;
    int fd;                   /* what is read */
    int seekable;             /* it is a regular file, read from its start */
    unsigned char *head;      /* bytes that were read to see what it is, to be given once more */
    size_t head_at, head_size, head_room;
    int keeping;              /* bytes that are read are appended to head */
    unsigned char *tail;      /* the last bytes of an Ogg file that is a stream */
    size_t tail_size;
    int read_error;           /* errno of the read that failed */
    wnpu_wav_reader wav;
    ffmpeg child;
    int uses_wav, uses_ffmpeg;
    wnpu_audio inner;         /* before clips */
    uint64_t at;              /* frames that were delivered */
    int ended;                /* it was read to its end */
    void *memory;             /* with whole */
} input;

/* Opens path ("-": standard input). Returns 0, or -1 with the reason in in->why. Call input_close()
 * after success and after failure. in must stay where it is. */
int input_open(input *in, const char *path, const input_options *options);
/* Once the recording was read: what state it was in, with a message in in->why. */
input_state input_finish(input *in);
void input_close(input *in);

#endif
