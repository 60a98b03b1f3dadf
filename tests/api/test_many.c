/* test_many.c - sixteen sessions on one model in sixteen threads, cancelled by others, with
 * callbacks: each gives the text that it gives alone. `make test-tsan` runs it under
 * ThreadSanitizer. Public header only, so that the library is instrumented as users build it. */
#define _POSIX_C_SOURCE 200809L
#include "../lib/life.h"
#include <pthread.h>
#include <time.h>

#define SESSIONS 16

static wnpu_model *model;
static life_sounds sounds;
static life_text alone[LIFE_MODES];

typedef struct worker {
    pthread_t thread;
    wnpu_session *session;
    unsigned number;
    int mode;
    int segments;               /* told by callbacks */
    int failed;
    char why[200];
    life_text text;
} worker;

static worker workers[SESSIONS];
static int over;                /* atomic: stop cancelling */
static int cancelled;           /* atomic */

static int on_segment(void *user, const wnpu_segment *segment)
{
    worker *w = user;
    w->segments += segment->text_length > 0;
    return 0;
}

static int on_progress(void *user, int64_t done_ms, int64_t total_ms)
{
    worker *w = user;
    wnpu_memory memory;
    memory.struct_size = sizeof memory;
    return wnpu_get_memory(w->session, &memory) != WNPU_OK || (total_ms >= 0 && done_ms > total_ms);
}

/* A run with callbacks; CHOOSE and DETECT take none. */
static int run(worker *w)
{
    wnpu_params p;
    if (w->mode >= LIFE_WIDE) {
        return life_run(&sounds, w->mode, 1, w->session);
    }
    life_mode_params(&sounds, w->mode, 1, &p);
    p.on_segment = on_segment;
    p.on_progress = on_progress;
    p.user = w;
    w->segments = 0;
    return wnpu_transcribe(w->session, &p, &sounds.plain);
}

static void fail(worker *w, const char *why)
{
    w->failed = 1;
    (void)snprintf(w->why, sizeof w->why, "session %u, %s: %s: %.120s", w->number,
                   life_modes[w->mode], why, wnpu_session_error(w->session));
}

static void *open_session(void *user)
{
    worker *w = user;
    wnpu_config c = life_config(1 + w->number % 3);
    if (wnpu_session_open(&w->session, model, &c, NULL, 0, NULL) != WNPU_OK) {
        fail(w, "does not open");
    }
    return NULL;
}

static void *cancel_all(void *user)
{
    unsigned i, round;
    (void)user;
    for (round = 0; round < 60; round++) {
        struct timespec pause = {0, 3000000};
        (void)nanosleep(&pause, NULL);
        for (i = round % 4; i < SESSIONS; i += 4) {
            wnpu_cancel(workers[i].session);
        }
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void *work_in_peace(void *user)
{
    worker *w = user;
    if (run(w) != WNPU_OK) {
        fail(w, "status");
    } else {
        w->text.n = 0;
        if (wnpu_write(w->session, WNPU_FORMAT_JSON, life_collect, &w->text) != WNPU_OK) {
            fail(w, "not written");
        }
    }
    return NULL;
}

/* Until it is left alone. */
static void *work_disturbed(void *user)
{
    worker *w = user;
    int status;
    while ((status = run(w)) == WNPU_E_CANCELLED) {
        __atomic_add_fetch(&cancelled, 1, __ATOMIC_RELAXED);
        if (__atomic_load_n(&over, __ATOMIC_RELAXED)) {
            break;
        }
    }
    if (status != WNPU_OK && status != WNPU_E_CANCELLED) {
        fail(w, "status");
    }
    return NULL;
}

static void all(void *(*what)(void *))
{
    unsigned i;
    for (i = 0; i < SESSIONS; i++) {
        T_CHECK(pthread_create(&workers[i].thread, NULL, what, &workers[i]) == 0, "no thread");
    }
    for (i = 0; i < SESSIONS; i++) {
        pthread_join(workers[i].thread, NULL);
        T_CHECK(!workers[i].failed, "%s", workers[i].why);
    }
}

static void sixteen(void)
{
    wnpu_session *s = life_session(model, 1);
    pthread_t canceller;
    unsigned i;
    for (i = 0; i < LIFE_MODES; i++) {
        T_CHECK(life_run(&sounds, (int)i, 1, s) == WNPU_OK, "%s: %s", life_modes[i],
                wnpu_session_error(s));
        life_json(s, &alone[i]);
    }
    wnpu_session_close(s);
    for (i = 0; i < SESSIONS; i++) {
        workers[i].number = i;
        workers[i].mode = (int)(i % LIFE_MODES);
    }
    all(open_session);
    T_CHECK(pthread_create(&canceller, NULL, cancel_all, NULL) == 0, "no thread");
    all(work_disturbed);
    pthread_join(canceller, NULL);
    all(work_in_peace);
    for (i = 0; i < SESSIONS; i++) {
        T_CHECK(life_same(&workers[i].text, &alone[workers[i].mode]),
                "session %u, %s: not the output that it has alone", i,
                life_modes[workers[i].mode]);
        T_CHECK(workers[i].mode >= LIFE_WIDE || workers[i].segments > 0, "no callbacks");
        wnpu_session_close(workers[i].session);
    }
    printf("  %d runs were cancelled\n", cancelled);
    T_CHECK(cancelled > 0, "none was cancelled");
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    model = life_toy(7, NULL);
    life_make_sounds(&sounds, 31, 0);
    t_run("sixteen sessions on one model", sixteen);
    wnpu_model_close(model);
    life_free_sounds(&sounds);
    return t_end();
}
