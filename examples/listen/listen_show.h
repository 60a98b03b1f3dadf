/*
 * listen_show.h - what listen writes: text and events of its live runs.
 */
#ifndef LISTEN_SHOW_H
#define LISTEN_SHOW_H

#include "commands.h"
#include "whisper_npu.h"

/* A live run. */
typedef struct voice {
    wnpu_session *session;
    int speaker;              /* its number, or 0 if there is one voice only */
    size_t n_segments, n_spans; /* of the run that were shown */
} voice;

typedef struct show_options {
    int json;                 /* a line of JSON for each event */
    int times;                /* before lines of text */
    commands *commands;       /* show which phrase each utterance was, in place of its text */
} show_options;

void show_begin(const show_options *options);
/* Shows what is new after a step that reported these events. last: the sound has ended. Returns 0,
 * or -1 if it cannot be written. */
int show(voice *v, uint32_t events, int last);
/* The same at the end of the run: there is no tentative text any more. */
int show_end(voice *v);

#endif
