/* replay.c - see replay.h */
#include "replay.h"

#include <stdlib.h>
#include <string.h>

/* Makes room for `more` frames. Returns 0 if there is no memory. */
static int make_room(replay *r, size_t more)
{
    size_t room = 2 * r->room + more;
    unsigned char *grown;
    if (r->room - r->frames >= more) {
        return 1;
    }
    grown = realloc(r->kept, room * r->width);
    if (grown == NULL) {
        return 0;
    }
    r->kept = grown;
    r->room = room;
    return 1;
}

static int64_t hear(void *user, void *buffer, size_t max_frames)
{
    replay *r = user;
    size_t left = r->frames - r->at;
    int64_t n;
    if (r->again && left > 0) {
        left = left < max_frames ? left : max_frames;
        memcpy(buffer, r->kept + r->at * r->width, left * r->width);
        r->at += left;
        return (int64_t)left;
    }
    if (r->again && r->ended) {
        return r->end;
    }
    if (r->again) {
        return r->inner.read(r->inner.user, buffer, max_frames);
    }
    if (r->frames >= REPLAY_MOST / r->width || !make_room(r, max_frames)) {
        return 0;
    }
    n = r->inner.read(r->inner.user, buffer, max_frames);
    if (n > 0 && (uint64_t)n <= max_frames) {
        memcpy(r->kept + r->frames * r->width, buffer, (size_t)n * r->width);
        r->frames += (size_t)n;
    } else {
        r->ended = 1;
        r->end = n;
    }
    return n;
}

void replay_begin(replay *r, wnpu_audio *audio)
{
    memset(r, 0, sizeof *r);
    r->inner = *audio;
    if (audio->read != NULL) {
        r->width = wnpu_frame_bytes(audio);
        audio->read = hear;
        audio->user = r;
    }
}

void replay_again(replay *r)
{
    r->again = 1;
    r->at = 0;
}

void replay_end(replay *r)
{
    free(r->kept);
    r->kept = NULL;
}
