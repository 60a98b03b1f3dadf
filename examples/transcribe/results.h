/* results.h - writes the results of each recording in one or several formats to standard output,
 * files or a directory. Part of transcribe. */
#ifndef RESULTS_H
#define RESULTS_H

#include "options.h"
#include "../kit/output.h"
#include "whisper_npu.h"

/* The outputs of one recording. */
typedef struct outputs {
    output of[MAX_OUTPUTS];
    wnpu_write_cursor cursors[MAX_OUTPUTS]; /* what was written during the run; struct_size 0:
                                 nothing */
    int n;
    int written;              /* results written to standard output so far, for all recordings */
} outputs;

/* Call after the options were read: determines format and layout of each output, creates the output
 * directory and checks that everything can be written. Returns 0 or an exit status. */
int results_settle(options *o);
/* Whether standard output receives one JSON array with an element per recording. */
int results_are_array(const options *o);

/* Opens the outputs of the recording o->files[index]. Returns 0 or an exit status. Call
 * results_close() afterwards in both cases. */
int results_open(const options *o, int index, outputs *out);
/* During a run: writes final segments to standard output, FIFOs and devices. Returns 0, or -1 if
 * that failed; do not call it again during this run then. */
int results_stream(const options *o, const wnpu_session *session, int index, outputs *out);
/* After a run: writes what was not written yet to all outputs. choice is the result of
 * wnpu_choose(), or NULL. Returns 0 or an exit status. */
int results_write(const options *o, const wnpu_session *session, int index,
                  const wnpu_choice *choice, outputs *out);
void results_close(outputs *out);

#endif
