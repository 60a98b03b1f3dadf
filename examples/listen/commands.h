/*
 * commands.h - which phrase of a list an utterance of a live run was.
 */
#ifndef COMMANDS_H
#define COMMANDS_H

#include "whisper_npu.h"

typedef struct commands commands;

/* Reads the phrases, one per line, and opens a session for them. Every answer takes at most
 * deadline_ms. language is a number or WNPU_LANGUAGE_AUTO. Returns NULL with the reason in why. */
commands *commands_open(const wnpu_model *model, const char *path, long deadline_ms, int language,
                        char why[512]);
/* Keeps frames that were pushed to the live run; the latest 32 MB of them. May be called in another
 * thread than the others. */
void commands_keep(commands *c, const wnpu_audio *audio, const void *samples, size_t frames);
/* The phrase of the utterance from t0_ms to t1_ms, or NULL if there was no answer in time. */
const char *commands_choose(commands *c, int64_t t0_ms, int64_t t1_ms, wnpu_choice *choice);
void commands_close(commands *c); /* may be NULL */

#endif
