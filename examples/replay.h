/*
 * replay.h - audio that is pulled, such as a pipe, whose beginning can be heard twice: once to find
 * out its language, and once to transcribe it.
 */
#ifndef REPLAY_H
#define REPLAY_H

#include "whisper_npu.h"

#include <stddef.h>

typedef struct replay {
    wnpu_audio inner;         /* where the sound comes from */
    unsigned char *kept;      /* its first frames */
    size_t frames, room;      /* that are kept, and that have room, in frames */
    size_t at;                /* next of them to be heard again */
    size_t width;             /* bytes of a frame */
    int again;                /* heard for the second time */
    int ended;                /* it ended, or failed, the first time */
    int64_t end;              /* with that */
} replay;

/* From now on *audio delivers what it would have delivered, and keeps it. At REPLAY_MOST bytes it
 * says that it has ended. Audio in memory stays as it is. r must outlive the audio. */
#define REPLAY_MOST ((size_t)64 << 20)
void replay_begin(replay *r, wnpu_audio *audio);
/* The audio is at its beginning again, and has no other end than its own. */
void replay_again(replay *r);
void replay_end(replay *r);

#endif
