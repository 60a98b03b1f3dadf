/*
 * commands.c - see commands.h. The deadline is an alarm that cancels the run.
 */
#define _XOPEN_SOURCE 700
#include "commands.h"
#include "../kit/list.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { KEPT = 1 << 25, AROUND_MS = 300, LONGEST_MS = 30000 };

static wnpu_session *session;
static wnpu_params params;
static wnpu_audio audio;
static list phrases;
static size_t width;                   /* bytes of a frame */
static unsigned char *kept, *part;     /* [KEPT]: byte i is kept[i % KEPT]; the utterance */
static uint64_t n_kept;
static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER; /* of kept and n_kept */
static struct itimerval deadline;

static void too_late(int number)
{
    (void)number;
    wnpu_cancel(session);
}

/* Opens the session with room for the phrases, and tries them on an empty recording. */
static const char *open_session(const wnpu_model *model)
{
    static wnpu_error error;
    wnpu_config config;
    wnpu_choice choice = {.struct_size = sizeof choice};
    wnpu_config_init(&config, sizeof config);
    list_make_room(&config, phrases.bytes);
    if (wnpu_session_open(&session, model, &config, NULL, 0, &error) != WNPU_OK) {
        return error.message;
    }
    wnpu_audio_init(&audio, sizeof audio);
    return wnpu_choose(session, &params, &audio, phrases.items, phrases.n, &choice) == WNPU_OK
               ? NULL : wnpu_session_error(session);
}

const char *commands_open(const wnpu_model *model, const char *path, int deadline_ms, int language)
{
    struct sigaction alarm;
    static char message[512];
    const char *wrong = list_read(&phrases, path);
    if (wrong != NULL) {
        (void)snprintf(message, sizeof message, "%s: %s", path, wrong);
        return message;
    }
    kept = malloc(KEPT);
    part = malloc(KEPT);
    if (kept == NULL || part == NULL) {
        return "out of memory";
    }
    memset(&alarm, 0, sizeof alarm);
    alarm.sa_handler = too_late;
    alarm.sa_flags = SA_RESTART;
    (void)sigaction(SIGALRM, &alarm, NULL);
    deadline.it_value.tv_sec = deadline_ms / 1000;
    deadline.it_value.tv_usec = deadline_ms % 1000 * 1000;
    wnpu_params_init(&params, sizeof params);
    params.language = language;
    return open_session(model);
}

void commands_keep(const wnpu_audio *format, const void *samples, size_t frames)
{
    size_t i, n;
    if (kept == NULL) {
        return;
    }
    n = frames * wnpu_frame_bytes(format);
    (void)pthread_mutex_lock(&keeping);
    audio.format = format->format;
    audio.rate = format->rate;
    audio.channels = format->channels;
    for (i = 0; i < n; i++) {
        kept[n_kept++ % KEPT] = ((const unsigned char *)samples)[i];
    }
    (void)pthread_mutex_unlock(&keeping);
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
    uint64_t i, end, oldest, from;
    int status;
    (void)pthread_mutex_lock(&keeping);
    width = wnpu_frame_bytes(&audio);
    oldest = n_kept > KEPT ? n_kept - KEPT : 0;
    end = position_of(t1_ms + AROUND_MS);
    from = position_of(t0_ms > t1_ms - LONGEST_MS ? t0_ms - AROUND_MS : t1_ms - LONGEST_MS);
    from = from > oldest ? from : (oldest + width - 1) / width * width;
    for (i = from; i < end; i++) {
        part[i - from] = kept[i % KEPT];
    }
    (void)pthread_mutex_unlock(&keeping);
    audio.data = part;
    audio.read = NULL;
    audio.frames = end > from ? (end - from) / width : 0;
    (void)setitimer(ITIMER_REAL, &deadline, NULL);
    status = wnpu_choose(session, &params, &audio, phrases.items, phrases.n, choice);
    (void)setitimer(ITIMER_REAL, &off, NULL);
    return status == WNPU_OK ? phrases.items[choice->best] : NULL;
}

void commands_close(void)
{
    wnpu_session_close(session);
    list_free(&phrases);
    free(kept);
    free(part);
}
