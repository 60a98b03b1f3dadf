/*
 * commands.c - see commands.h. The deadline is an alarm that cancels the run.
 */
#define _XOPEN_SOURCE 700
#include "commands.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { KEPT = 1 << 25, PHRASES = 1000, PHRASE_SIZE = 256, AROUND_MS = 300, LONGEST_MS = 30000 };

static wnpu_session *session;
static wnpu_audio audio;
static char phrases[PHRASES][PHRASE_SIZE];
static const char *list[PHRASES];
static size_t n_phrases, width;        /* width: bytes of a frame */
static unsigned char *kept, *part;     /* [KEPT]: byte i is kept[i % KEPT]; the utterance */
static uint64_t n_kept;
static struct itimerval deadline;

static void too_late(int number)
{
    (void)number;
    wnpu_cancel(session);
}

const char *commands_open(const wnpu_model *model, const char *path, int deadline_ms)
{
    static wnpu_error error;
    struct sigaction alarm;
    FILE *f = fopen(path, "r");
    if (f == NULL) {
        return "the list of commands cannot be read";
    }
    while (n_phrases < PHRASES && fgets(phrases[n_phrases], PHRASE_SIZE, f) != NULL) {
        phrases[n_phrases][strcspn(phrases[n_phrases], "\r\n")] = '\0';
        list[n_phrases] = phrases[n_phrases];
        n_phrases += phrases[n_phrases][0] != '\0';
    }
    (void)fclose(f);
    kept = malloc(KEPT);
    part = malloc(KEPT);
    if (n_phrases == 0 || kept == NULL || part == NULL) {
        return n_phrases == 0 ? "the list of commands is empty" : "out of memory";
    }
    memset(&alarm, 0, sizeof alarm);
    alarm.sa_handler = too_late;
    alarm.sa_flags = SA_RESTART;
    (void)sigaction(SIGALRM, &alarm, NULL);
    deadline.it_value.tv_sec = deadline_ms / 1000;
    deadline.it_value.tv_usec = deadline_ms % 1000 * 1000;
    return wnpu_session_open(&session, model, NULL, NULL, 0, &error) == WNPU_OK ? NULL
                                                                                : error.message;
}

void commands_keep(const wnpu_audio *format, const void *samples, size_t frames)
{
    static const size_t bytes[] = {4, 2, 1, 2, 3, 4, 4, 8, 1, 1};
    size_t i, n;
    audio = *format;
    width = bytes[audio.format] * audio.channels;
    n = frames * width;
    for (i = 0; i < n; i++) {
        kept[n_kept++ % KEPT] = ((const unsigned char *)samples)[i];
    }
}

/* Position of a time in what was kept. */
static uint64_t position_of(int64_t ms)
{
    uint64_t at = ms > 0 ? (uint64_t)ms * audio.rate / 1000 * width : 0;
    return at < n_kept ? at : n_kept;
}

const char *commands_choose(int64_t t0_ms, int64_t t1_ms, wnpu_choice *choice)
{
    static const struct itimerval off;
    uint64_t i, end = position_of(t1_ms + AROUND_MS), oldest = n_kept > KEPT ? n_kept - KEPT : 0;
    uint64_t from = position_of(t0_ms > t1_ms - LONGEST_MS ? t0_ms - AROUND_MS
                                                           : t1_ms - LONGEST_MS);
    int status;
    from = from > oldest ? from : (oldest + width - 1) / width * width;
    for (i = from; i < end; i++) {
        part[i - from] = kept[i % KEPT];
    }
    audio.data = part;
    audio.read = NULL;
    audio.frames = end > from ? (end - from) / width : 0;
    (void)setitimer(ITIMER_REAL, &deadline, NULL);
    status = wnpu_choose(session, NULL, &audio, list, n_phrases, choice);
    (void)setitimer(ITIMER_REAL, &off, NULL);
    return status == WNPU_OK ? list[choice->best] : NULL;
}

void commands_close(void)
{
    wnpu_session_close(session);
    free(kept);
    free(part);
}
