/*
 * npu.h - the NPU of a command line program: opened with its reasons, and its account printed.
 */
#ifndef NPU_H
#define NPU_H

#include "whisper_npu.h"

/* Opens the NPU with the kernel pack in a directory and sets *accel, else says on standard error
 * what is in the way and how to cure it, and returns a negative wnpu_status. log may be NULL. */
int npu_open(wnpu_accel **accel, const char *pack, wnpu_log_fn log, void *log_user);
void npu_close(wnpu_accel *accel);
/* Prints on standard error what ran where in the session's last run. */
void npu_tell(const wnpu_session *session);

#endif
