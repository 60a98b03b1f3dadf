/*
 * results.h - where the results of each recording go, and what is written there: one or several
 * formats, to standard output, files or a directory. Part of transcribe.
 */
#ifndef RESULTS_H
#define RESULTS_H

#include "options.h"
#include "output.h"
#include "whisper_npu.h"

/* The outputs of one recording. */
typedef struct outputs {
    output of[MAX_OUTPUTS];
    wnpu_write_cursor cursors[MAX_OUTPUTS]; /* what was written during the run; struct_size 0:
                                 nothing */
    int n;
    int written;              /* results on standard output so far, over all recordings */
} outputs;

/* After the options were read: finds the format and layout of each output, makes the output
 * directory and checks that everything can be written. Returns 0 or an exit status. */
int results_settle(options *o);
/* Whether standard output gets one JSON array with an element for each recording. */
int results_are_array(const options *o);

/* Opens the outputs of the recording o->files[index]. Returns 0 or an exit status. Call
 * results_close() afterwards in both cases. */
int results_open(const options *o, int index, outputs *out);
/* During a run: writes the segments that are final to standard output, FIFOs and devices. Returns
 * 0, or -1 if that failed: do not call it again during this run. */
int results_stream(const options *o, const wnpu_session *session, int index, outputs *out);
/* After a run: writes what has not been written yet to all outputs. choice is the answer of
 * wnpu_choose(), or NULL. Returns 0 or an exit status. */
int results_write(const options *o, const wnpu_session *session, int index,
                  const wnpu_choice *choice, outputs *out);
void results_close(outputs *out);

#endif
