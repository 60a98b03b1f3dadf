/*
 * pipe.h - audio that arrives on standard input.
 */
#ifndef PIPE_H
#define PIPE_H

#include "whisper_npu.h"

/* Reads the first bytes, and sets *audio to read WAV, or raw samples of 16 bits at 16 kHz. A read
 * returns what has arrived, 0 after Ctrl-C, and a negative number if the input cannot be read.
 * Returns WNPU_OK, WNPU_E_IO, WNPU_E_AUDIO for compressed audio, or an error of the WAV reader. */
int pipe_open(wnpu_audio *audio, wnpu_error *error);

#endif
