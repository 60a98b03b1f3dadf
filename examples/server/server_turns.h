/* server_turns.h - finds in live audio where somebody begins and ends to speak. Part of server. */
#ifndef SERVER_TURNS_H
#define SERVER_TURNS_H

#include "server_event.h"
#include "server_reply.h"
#include "whisper_npu.h"

#include <stddef.h>
#include <stdint.h>

/* What turns_hear() tells, in the order of time. Frames count from turns_begin(). */
typedef enum turn_change {
    TURN_BEGINS,              /* frame: where speech begins, less the padding */
    TURN_PAUSES,              /* frame: what is before it is all of the turn, if nothing follows */
    TURN_GOES_ON,             /* it was not; frame: as for TURN_PAUSES */
    TURN_ENDS                 /* frame: the end of speech; the silence that shows it follows. If the
                                 turn pauses, it ends where it does; else at turns_cut() */
} turn_change;

/* Whether somebody speaks by the power of blocks of 20 ms, which is known at once. */
typedef struct turns_level {
    int64_t end;              /* frame behind the last whole block */
    double sum;               /* of squares in the block after it */
    double least[8], now;     /* of the quietest block of each 240 ms, and 1; 0: none so far */
    unsigned n_now, at;       /* now: of those so far, which are n_now; at: where it goes */
    double most;              /* power of the loudest blocks, which fades */
    int64_t loud_end;         /* frame behind the last block that is no silence */
    int loud;                 /* such blocks in a row at the end */
} turns_level;

typedef struct turns {
    wnpu_session *session;    /* of the detector alone */
    event_settings settings;  /* in force: format, threshold, padding and silence count */
    void (*on_change)(void *user, turn_change change, int64_t frame);
    void *user;
    size_t width;             /* bytes of a frame */
    int64_t heard;            /* frames */
    int64_t kept_from;        /* frame that is the first at kept */
    buffer kept;              /* the latest audio */
    int speaking;             /* a turn has begun and not ended */
    int64_t end;              /* of speech, if that is not certain yet; else -1 */
    int64_t begin;            /* of the turn */
    int32_t silence_ms;       /* that ends it */
    int open;                 /* the turn before has ended by its level, and not for the detector */
    int64_t pause;            /* what TURN_PAUSES told last; -1: the turn goes on */
    turns_level level;
    int64_t least;            /* no turn begins before this frame */
} turns;

/* Opens the detector. Returns WNPU_OK or an error. */
int turns_open(turns *t, const wnpu_model *model, wnpu_error *error);
void turns_close(turns *t);
/* Begins anew with these settings; what was heard is forgotten. Returns WNPU_OK or an error. */
int turns_begin(turns *t, const event_settings *settings);
/* Hears frames, TURNS_STEP_MS at most, and keeps them. Returns WNPU_OK or an error; after
 * WNPU_E_FULL, which a day brings, begin anew. */
#define TURNS_STEP_MS 20
int turns_hear(turns *t, const unsigned char *samples, size_t frames);
/* The kept audio from a frame on, which is moved to the first that is kept. Returns its length in
 * frames. */
size_t turns_audio(const turns *t, int64_t *from, const unsigned char **samples);
/* The frame behind the silence that ends a turn whose speech ends at this one. */
int64_t turns_cut(const turns *t, int64_t end);
/* The text of a turn that pauses ends a sentence: less silence is needed. */
void turns_hurry(turns *t);
/* Frames before this one belong to the turn, whatever is heard next. */
int64_t turns_certain(const turns *t);
int64_t turns_ms(const turns *t, int64_t frame);

#endif
