/*
 * input.h - a recording from a file or standard input, as the wnpu_audio that the library wants.
 *
 * A WAV file is mapped into memory (standard input and other pipes are read whole). What the
 * library does not take as WAV goes through ffmpeg, if that is installed. POSIX.
 */
#ifndef INPUT_H
#define INPUT_H

#include <signal.h>
#include <stddef.h>
#include "whisper_npu.h"

typedef struct input {
    wnpu_audio audio;         /* its data points into bytes */
    void *bytes;              /* the whole file */
    size_t size;
    int mapped;               /* bytes came from mmap, not malloc */
    char why[384];            /* one line: why input_open() failed */
} input;

/* Opens path ("-": standard input). channel: which one to use, from 0, or WNPU_CHANNEL_MIX. stop:
 * a flag that a signal handler sets to end the wait for slow input. Returns 0, or -1 with the
 * reason in in->why. Call input_close() after success and after failure. */
int input_open(input *in, const char *path, int channel, const volatile sig_atomic_t *stop);
void input_close(input *in);

#endif
