/* npu.h - opens the NPU for a command line program, with diagnostics, and prints its statistics. */
#ifndef NPU_H
#define NPU_H

#include "whisper_npu.h"

/* Opens the NPU and sets *accel. pack is the directory of a kernel pack, or "auto" for the built-in
 * kernels in the shapes of the model. On failure prints the cause and the remedy to standard error
 * and returns a negative wnpu_status. log may be NULL. */
int npu_open(wnpu_accel **accel, const char *pack, const wnpu_model *model, wnpu_log_fn log,
             void *log_user);
void npu_close(wnpu_accel *accel);
/* Prints to standard error which device executed what in the session's last run. */
void npu_tell(const wnpu_session *session);

#endif
