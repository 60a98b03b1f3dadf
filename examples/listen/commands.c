/*
 * commands.c - see commands.h. The deadline is an alarm that cancels the run.
 */
#define _XOPEN_SOURCE 700
#include "commands.h"
#include "../kit/list.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { KEPT = 1 << 25, AROUND_MS = 300, LONGEST_MS = 30000 };

struct commands {
    wnpu_session *session;
    wnpu_params params;
    list phrases;
    struct itimerval deadline;
    unsigned char *part;               /* [KEPT] the utterance */
    pthread_mutex_t keeping;           /* of what follows */
    wnpu_audio audio;                  /* what kept is */
    unsigned char *kept;               /* [KEPT]: byte i is kept[i % KEPT] */
    uint64_t n_kept;
};

static _Atomic(wnpu_session *) running; /* what the alarm cancels */

static void too_late(int number)
{
    (void)number;
    wnpu_cancel(running);
}

/* Opens the session with room for the phrases, and tries them on an empty recording. */
static int open_session(commands *c, const wnpu_model *model, char why[512])
{
    wnpu_error error = {0, ""};
    wnpu_config config;
    wnpu_choice choice = {.struct_size = sizeof choice};
    int status;
    wnpu_config_init(&config, sizeof config);
    list_make_room(&config, c->phrases.bytes);
    status = wnpu_session_open(&c->session, model, &config, NULL, 0, &error);
    if (status == WNPU_OK) {
        status = wnpu_choose(c->session, &c->params, &c->audio, c->phrases.items, c->phrases.n,
                             &choice);
        running = c->session;
    }
    (void)snprintf(why, 512, "%s", c->session == NULL ? error.message
                                                      : wnpu_session_error(c->session));
    return status;
}

commands *commands_open(const wnpu_model *model, const char *path, long deadline_ms, int language,
                        char why[512])
{
    struct sigaction alarm;
    commands *c = calloc(1, sizeof *c);
    const char *wrong;
    if (c == NULL) {
        (void)snprintf(why, 512, "out of memory");
        return NULL;
    }
    (void)pthread_mutex_init(&c->keeping, NULL);
    wnpu_audio_init(&c->audio, sizeof c->audio);
    wnpu_params_init(&c->params, sizeof c->params);
    c->params.language = language;
    c->deadline.it_value.tv_sec = deadline_ms / 1000;
    c->deadline.it_value.tv_usec = deadline_ms % 1000 * 1000;
    c->kept = malloc(KEPT);
    c->part = malloc(KEPT);
    wrong = list_read(&c->phrases, path);
    if (wrong == NULL && (c->kept == NULL || c->part == NULL)) {
        wrong = "out of memory";
    }
    (void)snprintf(why, 512, "%s: %s", path, wrong != NULL ? wrong : "");
    if (wrong != NULL || open_session(c, model, why) != WNPU_OK) {
        commands_close(c);
        return NULL;
    }
    memset(&alarm, 0, sizeof alarm);
    alarm.sa_handler = too_late;
    alarm.sa_flags = SA_RESTART;
    (void)sigaction(SIGALRM, &alarm, NULL);
    return c;
}

void commands_keep(commands *c, const wnpu_audio *format, const void *samples, size_t frames)
{
    size_t i, n = frames * wnpu_frame_bytes(format);
    (void)pthread_mutex_lock(&c->keeping);
    c->audio.format = format->format;
    c->audio.rate = format->rate;
    c->audio.channels = format->channels;
    for (i = 0; i < n; i++) {
        c->kept[c->n_kept++ % KEPT] = ((const unsigned char *)samples)[i];
    }
    (void)pthread_mutex_unlock(&c->keeping);
}

/* Position of a time in what was kept, of whole frames. */
static uint64_t position_of(const commands *c, int64_t ms)
{
    uint64_t at = ms > 0 ? (uint64_t)ms * c->audio.rate / 1000 * wnpu_frame_bytes(&c->audio) : 0;
    return at < c->n_kept ? at : c->n_kept;
}

const char *commands_choose(commands *c, int64_t t0_ms, int64_t t1_ms, wnpu_choice *choice)
{
    static const struct itimerval off;
    wnpu_audio part;
    uint64_t i, end, oldest, from;
    size_t width;
    int status;
    (void)pthread_mutex_lock(&c->keeping);
    width = wnpu_frame_bytes(&c->audio);
    oldest = c->n_kept > KEPT ? c->n_kept - KEPT : 0;
    end = position_of(c, t1_ms + AROUND_MS);
    from = position_of(c, t0_ms > t1_ms - LONGEST_MS ? t0_ms - AROUND_MS : t1_ms - LONGEST_MS);
    from = from > oldest ? from : (oldest + width - 1) / width * width;
    for (i = from; i < end; i++) {
        c->part[i - from] = c->kept[i % KEPT];
    }
    part = c->audio;
    (void)pthread_mutex_unlock(&c->keeping);
    part.data = c->part;
    part.frames = end > from ? (end - from) / width : 0;
    (void)setitimer(ITIMER_REAL, &c->deadline, NULL);
    status = wnpu_choose(c->session, &c->params, &part, c->phrases.items, c->phrases.n, choice);
    (void)setitimer(ITIMER_REAL, &off, NULL);
    return status == WNPU_OK ? c->phrases.items[choice->best] : NULL;
}

void commands_close(commands *c)
{
    if (c == NULL) {
        return;
    }
    running = NULL;
    wnpu_session_close(c->session);
    list_free(&c->phrases);
    free(c->kept);
    free(c->part);
    (void)pthread_mutex_destroy(&c->keeping);
    free(c);
}
