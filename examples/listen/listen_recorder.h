/*
 * listen_recorder.h - a program that records the default microphone: 16 kHz, mono, 16 bits.
 */
#ifndef LISTEN_RECORDER_H
#define LISTEN_RECORDER_H

#include "../kit/platform.h"

#include <stdatomic.h>

typedef struct recorder {
    pid_t child;              /* -1: none */
    int fd;                   /* its sound */
    FILE *errors;             /* what it says */
    char name[64];
    char why[1024];           /* one line: why none records */
} recorder;

/* Starts command with the shell, or, if it is NULL, the first recorder on PATH that delivers sound.
 * *end ends the wait for it. Returns 0, or -1 with the reason in r->why. */
int recorder_start(recorder *r, const char *command, const atomic_int *end);
/* Tells the recorder to end. */
void recorder_stop(const recorder *r);
/* Waits for its end. Returns -1, with the reason in r->why, if it has failed. */
int recorder_close(recorder *r);

#endif
