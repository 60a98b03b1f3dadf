/*
 * listen_show.h - what listen writes: text and events of its live runs.
 */
#ifndef LISTEN_SHOW_H
#define LISTEN_SHOW_H

#include "commands.h"
#include "listen_file.h"
#include "terminal.h"
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

/* Where text goes. */
typedef struct display {
    const show_options *options;
    terminal terminal;
    text_file file;
    int failed;               /* something could not be written */
    char line[1 << 16];       /* that is made; a segment's text is shorter */
} display;

/* To be called before the first text. The file may be open; the rest of *d is 0. options must
 * remain valid. */
void show_begin(display *d, const show_options *options);
/* Shows what is new after a step that reported these events. last: the sound has ended. Returns 0,
 * or -1 if it cannot be written. */
int show(display *d, voice *v, uint32_t events, int last);
/* The same at the end of the run: there is no tentative text any more. */
int show_end(display *d, voice *v);

#endif
