/* test_cancel.c - cancelling at random instants, from another thread and from a signal handler.
 * What was transcribed so far is kept, and the next run gives what a new session gives. Tells how
 * long the run went on after each request, but no outcome depends on that.
 *
 * TEST_CANCELS=N cancels N times instead of 60. With 1000 or more on base.en, if it is there.
 * TEST_CANCEL_MODE=NAME: only that mode. */
#define _GNU_SOURCE 1
#include "../lib/life.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

static wnpu_model *model;
static life_sounds sounds;
static int toy;
/* ---- requests ---- */

static double now_ms(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* One at a time; written by the thread or the handler that makes it, read when the run is over. */
static struct {
    wnpu_session *session;
    clockid_t run_clock;          /* CPU time of the thread that runs */
    double delay_ms, wall_ms, cpu_ms;
    volatile int made;
} request;

static void make_request(void)
{
    request.cpu_ms = now_ms(request.run_clock);
    request.wall_ms = now_ms(CLOCK_MONOTONIC);
    wnpu_cancel(request.session);
    request.made = 1;
}

static void on_alarm(int signal_number)
{
    (void)signal_number;
    make_request();
}

static void *requester(void *user)
{
    struct timespec t;
    (void)user;
    t.tv_sec = (time_t)(request.delay_ms / 1e3);
    t.tv_nsec = (long)((request.delay_ms - (double)t.tv_sec * 1e3) * 1e6);
    (void)nanosleep(&t, NULL);
    make_request();
    return NULL;
}

/* A negative delay takes the alarm back. */
static void start_alarm(double ms)
{
    struct itimerval t;
    memset(&t, 0, sizeof t);
    if (ms >= 0.0) {
        t.it_value.tv_sec = (time_t)(ms / 1e3);
        t.it_value.tv_usec = (suseconds_t)((ms - (double)t.it_value.tv_sec * 1e3) * 1e3) + 1;
    }
    (void)setitimer(ITIMER_REAL, &t, NULL);
}

/* ---- the test ---- */

typedef struct latency {
    double wall, cpu;
    int mode;
} latency;

static int by_cpu(const void *a, const void *b)
{
    double x = ((const latency *)a)->cpu, y = ((const latency *)b)->cpu;
    return (x > y) - (x < y);
}

static int by_wall(const void *a, const void *b)
{
    double x = ((const latency *)a)->wall, y = ((const latency *)b)->wall;
    return (x > y) - (x < y);
}

static uint32_t random_state = 12345;

static double uniform(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (double)(random_state >> 8) / 16777216.0;
}

/* Cancels a run once. 1 if it was stopped, and then *l is filled. */
static int cancel_once(int mode, wnpu_session *s, double delay_ms, int by_signal, latency *l)
{
    pthread_t thread;
    sigset_t alarm_only;
    double wall, cpu;
    int status;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    request.session = s;
    request.delay_ms = delay_ms;
    request.made = 0;
    if (by_signal) {
        start_alarm(delay_ms);
    } else {
        (void)pthread_sigmask(SIG_BLOCK, &alarm_only, NULL);
        T_CHECK(pthread_create(&thread, NULL, requester, NULL) == 0, "no thread");
        (void)pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    }
    status = life_run(&sounds, mode, toy, s);
    cpu = now_ms(request.run_clock);
    wall = now_ms(CLOCK_MONOTONIC);
    if (by_signal) {
        start_alarm(-1.0); /* the run may have been over before */
    } else {
        pthread_join(thread, NULL);
    }
    T_CHECK(status == WNPU_OK || status == WNPU_E_CANCELLED, "%s: status %d: %s", life_modes[mode],
            status, wnpu_session_error(s));
    if (status == WNPU_E_CANCELLED) {
        T_CHECK(request.made, "cancelled without a request");
    }
    l->cpu = cpu - request.cpu_ms;
    l->wall = wall - request.wall_ms;
    l->mode = mode;
    return status == WNPU_E_CANCELLED;
}

/* n cancels of one mode in sessions with so many threads. */
static int cancel_mode(int mode, unsigned threads, int n, latency *list)
{
    static life_text want, is;
    wnpu_session *whole = life_session(model, threads), *s = life_session(model, threads);
    double begin, length;
    int i, stopped = 0;
    begin = now_ms(CLOCK_MONOTONIC);
    T_CHECK(life_run(&sounds, mode, toy, whole) == WNPU_OK, "%s: %s", life_modes[mode],
            wnpu_session_error(whole));
    length = now_ms(CLOCK_MONOTONIC) - begin;
    length = length < 20000.0 ? length : 20000.0;
    life_json(whole, &want);
    for (i = 0; i < n; i++) {
        stopped += cancel_once(mode, s, uniform() * length, i & 1, &list[stopped]);
        T_CHECK(life_begins(s, whole), "%s: the results kept are not those of the whole run",
                life_modes[mode]);
        if (i % 50 == 49 || i + 1 == n) {
            T_CHECK(life_run(&sounds, mode, toy, s) == WNPU_OK, "%s: %s", life_modes[mode],
                    wnpu_session_error(s));
            life_json(s, &is);
            T_CHECK(life_same(&is, &want), "%s: another answer after being cancelled",
                    life_modes[mode]);
        }
    }
    wnpu_session_close(s);
    wnpu_session_close(whole);
    return stopped;
}

static void report(latency *list, int n, unsigned threads)
{
    latency slow_cpu, slow_wall;
    double median_cpu;
    if (n == 0) {
        return;
    }
    qsort(list, (size_t)n, sizeof *list, by_cpu);
    slow_cpu = list[n - 1];
    median_cpu = list[n / 2].cpu;
    printf("  %u thread%s, %d cancels: CPU time median %.3f ms, 99.9 %% %.3f ms, slowest %.3f ms "
           "(%s)", threads, threads > 1 ? "s" : "", n, median_cpu, list[(int)(n * 0.999)].cpu,
           slow_cpu.cpu, life_modes[slow_cpu.mode]);
    qsort(list, (size_t)n, sizeof *list, by_wall);
    slow_wall = list[n - 1];
    printf("; wall median %.3f ms, 99 %% %.3f ms, slowest %.1f ms\n", list[n / 2].wall,
           list[(int)(n * 0.99)].wall, slow_wall.wall);
}

static int cancels(void)
{
    const char *text = getenv("TEST_CANCELS");
    int n = text != NULL ? atoi(text) : 0;
    return n > 0 ? n : 60;
}

static void any_instant(void)
{
    const char *only = getenv("TEST_CANCEL_MODE");
    int n = cancels(), mode, stopped = 0, total = 0;
    latency *list = malloc(((size_t)n + 2 * LIFE_MODES) * sizeof *list);
    unsigned threads;
    for (threads = 1; threads <= 2; threads++) {
        int here = 0;
        for (mode = 0; mode < LIFE_MODES; mode++) {
            int most = n / 2 / LIFE_MODES + 1;
            if (only == NULL || strcmp(only, life_modes[mode]) == 0) {
                int before = here;
                here += cancel_mode(mode, threads, only == NULL ? most : n / 2, list + here);
                if (n >= 1000) {
                    report(list + before, here - before, threads);
                }
                total += most;
            }
        }
        report(list, here, threads);
        stopped += here;
    }
    T_CHECK(stopped > total / 4, "only %d of %d runs were stopped", stopped, total);
    free(list);
}

/* Called from callbacks, in the thread of the run itself. On a slow machine the first calls come
 * inside the first window, before there is text. */
static int stop_after_text(void *user, int64_t done_ms, int64_t total_ms)
{
    (void)done_ms;
    (void)total_ms;
    if (wnpu_segment_count(user) > 0) {
        wnpu_cancel(user);
    }
    return 0;
}

static void from_callback(void)
{
    wnpu_session *s = life_session(model, 1);
    wnpu_params p;
    life_mode_params(&sounds, LIFE_GREEDY, toy, &p);
    p.on_progress = stop_after_text;
    p.user = s;
    T_CHECK(wnpu_transcribe(s, &p, &sounds.plain) == WNPU_E_CANCELLED, "a callback cancels");
    T_CHECK(wnpu_segment_count(s) > 0, "and the first window's text is there");
    T_CHECK(strcmp(wnpu_session_error(s), "cancelled") == 0, "says %s", wnpu_session_error(s));
    wnpu_session_close(s);
}

static int asked; /* atomic: the endless reader was asked for samples */

/* What is read with a reader that never ends can be stopped. */
static int64_t endless(void *user, void *buffer, size_t frames)
{
    (void)user;
    __atomic_store_n(&asked, 1, __ATOMIC_RELAXED);
    memset(buffer, 0, frames * sizeof(float));
    return (int64_t)frames;
}

/* Before the run has begun there would be nothing to cancel. */
static void *request_when_asked(void *user)
{
    struct timespec t = {0, 100000};
    while (!__atomic_load_n(&asked, __ATOMIC_RELAXED)) {
        (void)nanosleep(&t, NULL);
    }
    return requester(user);
}

static void endless_reader(void)
{
    wnpu_session *s = life_session(model, 2);
    wnpu_audio a;
    wnpu_params p;
    pthread_t thread;
    int i;
    life_mode_params(&sounds, LIFE_GREEDY, toy, &p);
    wnpu_audio_init(&a, sizeof a);
    a.read = endless;
    for (i = 0; i < 3; i++) {
        request.session = s;
        request.delay_ms = 20.0 * i;
        __atomic_store_n(&asked, 0, __ATOMIC_RELAXED);
        T_CHECK(pthread_create(&thread, NULL, request_when_asked, NULL) == 0, "no thread");
        T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_E_CANCELLED, "%s", wnpu_session_error(s));
        pthread_join(thread, NULL);
    }
    wnpu_session_close(s);
}

int main(void)
{
    struct sigaction action;
    char path[512];
    wnpu_error error;
    setvbuf(stdout, NULL, _IOLBF, 0);
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGALRM, &action, NULL);
    (void)pthread_getcpuclockid(pthread_self(), &request.run_clock);
    if (cancels() >= 1000 && life_cached(path, sizeof path, "ggml-base.en.bin")[0] != '\0') {
        T_CHECK(wnpu_model_open(&model, path, NULL, &error) == WNPU_OK, "%s", error.message);
        printf("  %s\n", path);
        life_make_sounds(&sounds, 4, 1); /* short, so that 10,000 take hours and not days */
    } else {
        model = life_toy(7, NULL);
        life_make_sounds(&sounds, 40, 0);
    }
    toy = life_is_toy(model);
    t_run("cancelled at any instant, from a thread and a signal handler", any_instant);
    t_run("cancelled from a callback", from_callback);
    t_run("a reader without end", endless_reader);
    wnpu_model_close(model);
    life_free_sounds(&sounds);
    return t_end();
}
