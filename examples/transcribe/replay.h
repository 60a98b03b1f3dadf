/* replay.h - lets the beginning of audio from a reader, such as a pipe, be read twice: first to
 * detect its language, then to transcribe it. */
#ifndef REPLAY_H
#define REPLAY_H

#include "whisper_npu.h"

#include <stddef.h>

typedef struct replay {
    wnpu_audio inner;         /* the original audio */
    unsigned char *kept;      /* its first frames */
    size_t frames, room;      /* frames kept, and capacity */
    size_t at;                /* next kept frame to deliver again */
    size_t width;             /* bytes per frame */
    int again;                /* replay_again() was called */
    int ended;                /* the audio ended or failed during the first pass */
    int64_t end;              /* its last return value */
} replay;

/* Replaces *audio by a reader that delivers the same frames and keeps them; it ends after
 * REPLAY_MOST bytes. Audio in memory is not changed. r must outlive the audio. */
#define REPLAY_MOST ((size_t)64 << 20)
void replay_begin(replay *r, wnpu_audio *audio);
/* Starts the audio over from its beginning; it no longer ends at REPLAY_MOST bytes. */
void replay_again(replay *r);
void replay_end(replay *r);

#endif
