/* server_pool.c - see server_pool.h */
#define _XOPEN_SOURCE 700

#include "server_pool.h"

#include <dirent.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MOST_SESSIONS 64
#define STATUSES 600

/* A session, with its memory. */
typedef struct slot {
    wnpu_session *session;
    const served *of;
    uint64_t bytes;
    int busy;
} slot;

/* One that waits for a session. */
typedef struct waiter {
    struct waiter *next;
    pool_rank rank;
    int64_t told_ms;          /* when it was told its place, by platform_now_ms() */
} waiter;

/* Upper limits in seconds. */
static const double limits[] = {0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 300, 1800};

#define LIMITS (sizeof limits / sizeof limits[0])

typedef struct histogram {
    uint64_t n[LIMITS + 1];   /* the last: longer than all limits */
    double sum;
} histogram;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    slot slots[MOST_SESSIONS * MODELS_MOST]; /* of each model at most n */
    size_t n_slots;
    int n, n_idle;            /* sessions that may be in use, and that many more now */
    int queue;
    pool_phase phase;
    int waiting, patient;     /* patient: those of them that the queue's limit does not count */
    int live_last;            /* who got the last session */
    waiter *first, **last;
    uint64_t requests[STATUSES], refusals[POOL_REFUSALS];
    uint64_t cancelled, yields, runs, drafts, drafts_used;
    histogram times, waits;   /* of requests, and for a session */
    int realtime;
    const char *model_name;
    time_t begun;
    double audio_s, computing_s;
    uint64_t macs, accel_macs;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* AMX has to be requested from the system, which the library does only if told to; this process is
 * our own. */
static int open_session(const served *m, wnpu_session **session, wnpu_error *error)
{
    wnpu_config config = m->config;
    int status = WNPU_E_UNSUPPORTED;
    if (config.isa == WNPU_ISA_AUTO && wnpu_isa_available(WNPU_ISA_AMX)) {
        config.isa = WNPU_ISA_AMX;
        status = wnpu_session_open(session, m->model, &config, NULL, 0, error);
    }
    return status != WNPU_E_UNSUPPORTED ? status :
           wnpu_session_open(session, m->model, &m->config, NULL, 0, error);
}

/* Opens one more session of a model. Call without the lock. */
static int add_session(const served *m, wnpu_session **session, int busy, wnpu_error *error)
{
    slot s = {NULL, m, 0, busy};
    int status = open_session(m, &s.session, error);
    if (status == WNPU_OK) {
        s.bytes = wnpu_session_size(m->model, &m->config, error);
        pthread_mutex_lock(&pool.lock);
        pool.slots[pool.n_slots++] = s;
        pthread_mutex_unlock(&pool.lock);
    }
    *session = s.session;
    return status;
}

int pool_open(const pool_options *o, served *first, wnpu_error *error)
{
    wnpu_session *unused;
    int status = WNPU_OK;
    pool.queue = o->queue;
    pool.model_name = first->name;
    pool.begun = time(NULL);
    pool.last = &pool.first;
    while (status == WNPU_OK && pool.n < o->sessions && pool.n < MOST_SESSIONS) {
        status = add_session(first, &unused, 0, error);
        pool.n += status == WNPU_OK;
    }
    pool.n_idle = pool.n;
    return status;
}

void pool_drop(const served *m)
{
    size_t i = 0;
    pthread_mutex_lock(&pool.lock);
    while (i < pool.n_slots) {
        if (pool.slots[i].of == m) {
            wnpu_session_close(pool.slots[i].session);
            pool.slots[i] = pool.slots[--pool.n_slots];
        } else {
            i++;
        }
    }
    pthread_mutex_unlock(&pool.lock);
}

uint64_t pool_session_bytes(const served *m)
{
    uint64_t bytes = 0;
    size_t i;
    pthread_mutex_lock(&pool.lock);
    for (i = 0; i < pool.n_slots; i++) {
        bytes += pool.slots[i].of == m ? pool.slots[i].bytes : 0;
    }
    pthread_mutex_unlock(&pool.lock);
    return bytes;
}

/* Waits for a change, but not longer than a tick: the client may go away meanwhile. */
static void wait_tick(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WATCH_TICK_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    (void)pthread_cond_timedwait(&pool.changed, &pool.lock, &until);
}

/* Tells one that waits how many do in front of it, if these are not *before any more, and now and
 * then. Call with the lock, which is released meanwhile. */
static void tell_place(waiter *self, const pool_listener *told, int *before)
{
    const waiter *at = pool.first;
    int n = 0;
    for (; at != self; at = at->next) {
        n++;
    }
    if (told != NULL && (n != *before || platform_now_ms() >= self->told_ms + POOL_TELL_MS)) {
        *before = n;
        self->told_ms = platform_now_ms();
        pthread_mutex_unlock(&pool.lock);
        told->tell(told->user, n);
        pthread_mutex_lock(&pool.lock);
    }
}

static void leave_queue(waiter *self)
{
    waiter **at = &pool.first;
    while (*at != self) {
        at = &(*at)->next;
    }
    *at = self->next;
    if (pool.last == &self->next) {
        pool.last = at;
    }
    pool.waiting--;
}

/* Whether a request is refused because of the queue. Call with the lock. */
static int has_no_room(void)
{
    return pool.n_idle == 0 && pool.waiting - pool.patient >= pool.queue;
}

/* Call with the lock. */
static void count(histogram *h, double seconds)
{
    size_t i = 0;
    while (i < LIMITS && seconds > limits[i]) {
        i++;
    }
    h->n[i]++;
    h->sum += seconds;
}

/* A session of a model that is not in use, or NULL. Call with the lock. */
static wnpu_session *find_idle(const served *m)
{
    size_t i;
    for (i = 0; i < pool.n_slots; i++) {
        if (pool.slots[i].of == m && !pool.slots[i].busy) {
            pool.slots[i].busy = 1;
            return pool.slots[i].session;
        }
    }
    return NULL;
}

/* Another session may be used. Call with the lock. */
static void add_idle(void)
{
    pool.n_idle++;
    pthread_cond_broadcast(&pool.changed);
}

/* The first that waits and has this rank, or NULL. Call with the lock. */
static const waiter *first_of(pool_rank rank)
{
    const waiter *w = pool.first;
    while (w != NULL && w->rank != rank) {
        w = w->next;
    }
    return w;
}

/* Who gets the next session. Call with the lock. */
static const waiter *next_one(void)
{
    const waiter *live = first_of(POOL_LIVE), *other = first_of(POOL_REQUEST);
    other = other != NULL ? other : first_of(POOL_JOB);
    return live != NULL && (other == NULL || !pool.live_last) ? live : other;
}

/* How a caller waits. */
typedef enum patience {
    NOT_PATIENT,
    PATIENT,                  /* neither the queue's limit nor the shutdown matters */
    GOING_ON                  /* nor that runs are to end: this one's results are wanted */
} patience;

static int is_given_up(const watch *w, patience patient)
{
    return patient == GOING_ON ? w->gone || w->expired : w->stop;
}

/* Waits until a session may be used. Call with the lock. */
static pool_result await(watch *w, pool_rank rank, patience patient,
                         const pool_listener *told)
{
    int before = -1;
    pool_result result;
    waiter self = {NULL, rank, 0};
    int64_t begin = platform_now_ms();
    if (pool.phase == POOL_ENDED && !patient) {
        result = POOL_SHUT;
    } else if (has_no_room() && !patient) {
        result = POOL_FULL;
    } else {
        *pool.last = &self;
        pool.last = &self.next;
        pool.waiting++;
        pool.patient += patient != NOT_PATIENT;
        while (!(pool.n_idle > 0 && next_one() == &self) && !is_given_up(w, patient) &&
               (patient || pool.phase != POOL_ENDED)) {
            wait_tick();
            tell_place(&self, told, &before);
        }
        leave_queue(&self);
        pool.patient -= patient != NOT_PATIENT;
        result = pool.phase == POOL_ENDED && !patient ? POOL_SHUT
               : is_given_up(w, patient) ? POOL_STOPPED : POOL_TAKEN;
        if (result == POOL_TAKEN) {
            pool.n_idle--;
            pool.live_last = rank == POOL_LIVE;
            count(&pool.waits, (double)(platform_now_ms() - begin) / 1e3);
        }
        pthread_cond_broadcast(&pool.changed);
    }
    return result;
}

static pool_result take(watch *w, served *m, pool_rank rank, patience patient,
                        const pool_listener *told, wnpu_session **session)
{
    wnpu_error error = {0, ""};
    pool_result result;
    pthread_mutex_lock(&pool.lock);
    result = await(w, rank, patient, told);
    *session = result == POOL_TAKEN ? find_idle(m) : NULL;
    pthread_mutex_unlock(&pool.lock);
    if (result == POOL_TAKEN && *session == NULL && add_session(m, session, 1, &error) != WNPU_OK) {
        pthread_mutex_lock(&pool.lock);
        add_idle();
        pthread_mutex_unlock(&pool.lock);
        result = POOL_FAILED;
    }
    if (result == POOL_TAKEN) {
        watch_session(w, *session);
    }
    return result;
}

pool_result pool_take(watch *w, served *m, wnpu_session **session)
{
    return take(w, m, POOL_REQUEST, NOT_PATIENT, NULL, session);
}

pool_result pool_take_told(watch *w, served *m, wnpu_session **session, const pool_listener *told)
{
    return take(w, m, POOL_REQUEST, NOT_PATIENT, told, session);
}

pool_result pool_take_again(watch *w, served *m, pool_rank rank, wnpu_session **session)
{
    return take(w, m, rank, PATIENT, NULL, session);
}

pool_result pool_take_back(watch *w, served *m, pool_rank rank, wnpu_session **session)
{
    return take(w, m, rank, GOING_ON, NULL, session);
}

int pool_wants_back(pool_rank rank, int64_t ms)
{
    int r, wanted = 0;
    pthread_mutex_lock(&pool.lock);
    for (r = POOL_LIVE; r <= (int)rank && pool.n_idle == 0; r++) {
        wanted |= first_of((pool_rank)r) != NULL && (r < (int)rank || ms >= POOL_SLICE_MS);
    }
    pthread_mutex_unlock(&pool.lock);
    return wanted;
}

pool_run pool_measure(wnpu_session *session)
{
    pool_run run;
    wnpu_stats s;
    wnpu_accel_stats a;
    memset(&s, 0, sizeof s);
    memset(&a, 0, sizeof a);
    s.struct_size = sizeof s;
    a.struct_size = sizeof a;
    (void)wnpu_get_stats(session, &s);
    (void)wnpu_get_accel_stats(session, &a);
    run.audio_s = (double)s.audio_ms / 1e3;
    run.computing_s = s.total_ms / 1e3;
    run.macs = a.macs;
    run.accel_macs = a.accel_macs;
    return run;
}

void pool_count_run(const pool_run *run)
{
    pthread_mutex_lock(&pool.lock);
    pool.runs++;
    pool.audio_s += run->audio_s;
    pool.computing_s += run->computing_s;
    pool.macs += run->macs;
    pool.accel_macs += run->accel_macs;
    pthread_mutex_unlock(&pool.lock);
}

void pool_give(watch *w, wnpu_session *session)
{
    pool_run run = pool_measure(session);
    pool_count_run(&run);
    pool_give_back(w, session);
}

void pool_give_back(watch *w, wnpu_session *session)
{
    size_t i = 0;
    watch_session(w, NULL);
    (void)wnpu_reset(session);
    pthread_mutex_lock(&pool.lock);
    while (pool.slots[i].session != session) {
        i++;
    }
    pool.slots[i].busy = 0;
    add_idle();
    pthread_mutex_unlock(&pool.lock);
}

int pool_is_awaited(void)
{
    int awaited;
    pthread_mutex_lock(&pool.lock);
    awaited = pool.waiting > 0;
    pthread_mutex_unlock(&pool.lock);
    return awaited;
}

int pool_is_full(void)
{
    int full;
    pthread_mutex_lock(&pool.lock);
    full = has_no_room();
    pthread_mutex_unlock(&pool.lock);
    return full;
}

void pool_enter(pool_phase phase)
{
    pthread_mutex_lock(&pool.lock);
    pool.phase = phase;
    pthread_cond_broadcast(&pool.changed);
    pthread_mutex_unlock(&pool.lock);
}

pool_phase pool_phase_now(void)
{
    pool_phase phase;
    pthread_mutex_lock(&pool.lock);
    phase = pool.phase;
    pthread_mutex_unlock(&pool.lock);
    return phase;
}

int pool_is_closing(void)
{
    return pool_phase_now() >= POOL_CLOSING;
}

int pool_retry_after(void)
{
    double seconds = 1;
    pthread_mutex_lock(&pool.lock);
    if (pool.runs > 0 && pool.n > 0) { /* the time that those before it will take */
        seconds = pool.computing_s / (double)pool.runs * (pool.waiting + 1) / pool.n;
    }
    pthread_mutex_unlock(&pool.lock);
    return seconds < 1 ? 1 : seconds > 600 ? 600 : (int)seconds;
}

/* ---- what is counted ---- */

void pool_count_request(int http_status)
{
    pthread_mutex_lock(&pool.lock);
    pool.requests[http_status > 0 && http_status < STATUSES ? http_status : 0]++;
    pthread_mutex_unlock(&pool.lock);
}

void pool_count_time(double seconds)
{
    pthread_mutex_lock(&pool.lock);
    count(&pool.times, seconds);
    pthread_mutex_unlock(&pool.lock);
}

void pool_count_realtime(int more)
{
    pthread_mutex_lock(&pool.lock);
    pool.realtime += more;
    pthread_mutex_unlock(&pool.lock);
}

void pool_count_refusal(pool_refusal why)
{
    pthread_mutex_lock(&pool.lock);
    pool.refusals[why]++;
    pthread_mutex_unlock(&pool.lock);
}

void pool_count_cancelled(void)
{
    pthread_mutex_lock(&pool.lock);
    pool.cancelled++;
    pthread_mutex_unlock(&pool.lock);
}

void pool_count_yield(void)
{
    pthread_mutex_lock(&pool.lock);
    pool.yields++;
    pthread_mutex_unlock(&pool.lock);
}

void pool_count_draft(int used)
{
    pthread_mutex_lock(&pool.lock);
    pool.drafts += !used;
    pool.drafts_used += used != 0;
    pthread_mutex_unlock(&pool.lock);
}

/* A text of limited size. */
typedef struct text {
    char *at;
    size_t used, size;
} text;

__attribute__((format(printf, 2, 3)))
static void add(text *t, const char *format, ...)
{
    va_list args;
    int n;
    va_start(args, format);
    n = vsnprintf(t->at + t->used, t->size - t->used, format, args);
    va_end(args);
    if (n > 0 && (size_t)n < t->size - t->used) {
        t->used += (size_t)n;
    } else {
        t->at[t->used] = '\0'; /* no part of a line */
    }
}

size_t pool_health(char *to, size_t size)
{
    static const char *const phases[] = {"ok", "draining", "shutting down", "shutting down"};
    text t = {to, 0, size};
    pthread_mutex_lock(&pool.lock);
    add(&t, "\"status\": \"%s\", \"state\": \"%s\", \"sessions\": %d, \"idle\": %d, "
        "\"waiting\": %d", phases[pool.phase],
        pool.n_idle > 0 ? "ready" : "busy", pool.n, pool.n_idle, pool.waiting);
    pthread_mutex_unlock(&pool.lock);
    return t.used;
}

static void add_number(text *t, const char *name, const char *type, const char *help, double value)
{
    add(t, "# HELP wnpu_%s %s\n# TYPE wnpu_%s %s\nwnpu_%s %.15g\n", name, help, name, type, name,
        value);
}

static void add_histogram(text *t, const char *name, const char *help, const histogram *h)
{
    uint64_t n = 0;
    size_t i;
    add(t, "# HELP wnpu_%s %s\n# TYPE wnpu_%s histogram\n", name, help, name);
    for (i = 0; i < LIMITS; i++) {
        n += h->n[i];
        add(t, "wnpu_%s_bucket{le=\"%g\"} %llu\n", name, limits[i], (unsigned long long)n);
    }
    n += h->n[LIMITS];
    add(t, "wnpu_%s_bucket{le=\"+Inf\"} %llu\nwnpu_%s_sum %.3f\nwnpu_%s_count %llu\n", name,
        (unsigned long long)n, name, h->sum, name, (unsigned long long)n);
}

/* What this program is. Characters that a label cannot have are left out. */
static void add_build(text *t)
{
    char name[128];
    size_t n = 0;
    const char *at = pool.model_name != NULL ? pool.model_name : "";
    for (; *at != '\0' && n + 1 < sizeof name; at++) {
        if (*at >= ' ' && *at != '"' && *at != '\\') {
            name[n++] = *at;
        }
    }
    name[n] = '\0';
    add(t, "# HELP wnpu_build_info The version, and the model.\n# TYPE wnpu_build_info gauge\n"
        "wnpu_build_info{version=\"%d.%d.%d\",model=\"%s\"} 1\n", WNPU_VERSION_MAJOR,
        WNPU_VERSION_MINOR, WNPU_VERSION_PATCH, name);
}

static void add_plain(text *t, const char *name, const char *type, const char *help, double value)
{
    add(t, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", name, help, name, type, name, value);
}

/* Entries of a directory of /proc; 0 if it cannot be read. */
static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;
    while (dir != NULL && readdir(dir) != NULL) {
        n++;
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return n > 3 ? n - 3 : 0; /* ".", "..", and the directory itself */
}

/* The metrics that Prometheus has for each process. */
static void add_process(text *t)
{
    struct rusage usage;
    struct rlimit most;
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != NULL) {
        if (fscanf(file, "%*s %lld", &pages) != 1) {
            pages = 0;
        }
        (void)fclose(file);
    }
    add_plain(t, "process_resident_memory_bytes", "gauge", "Resident memory.",
              (double)pages * (double)sysconf(_SC_PAGESIZE));
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        add_plain(t, "process_cpu_seconds_total", "counter", "User and system time.",
                  (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
                  (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    }
    add_plain(t, "process_start_time_seconds", "gauge", "Start, since 1970.", (double)pool.begun);
    add_plain(t, "process_open_fds", "gauge", "Open descriptors.", count_entries("/proc/self/fd"));
    if (getrlimit(RLIMIT_NOFILE, &most) == 0) {
        add_plain(t, "process_max_fds", "gauge", "Most descriptors.", (double)most.rlim_cur);
    }
}

size_t pool_metrics(char *to, size_t size)
{
    static const char *const refusals[POOL_REFUSALS] = {
        "queue_full", "shutting_down", "too_large", "key", "bad_request", "bad_audio", "timeout"
    };
    text t = {to, 0, size};
    int i;
    pthread_mutex_lock(&pool.lock);
    add(&t, "# HELP wnpu_requests_total HTTP requests by status.\n"
        "# TYPE wnpu_requests_total counter\n");
    for (i = 0; i < STATUSES; i++) {
        if (pool.requests[i] > 0) {
            add(&t, "wnpu_requests_total{status=\"%d\"} %llu\n", i,
                (unsigned long long)pool.requests[i]);
        }
    }
    add(&t, "# HELP wnpu_refused_total Requests that were not served, by reason.\n"
        "# TYPE wnpu_refused_total counter\n");
    for (i = 0; i < POOL_REFUSALS; i++) {
        add(&t, "wnpu_refused_total{reason=\"%s\"} %llu\n", refusals[i],
            (unsigned long long)pool.refusals[i]);
    }
    add_number(&t, "runs_total", "counter", "Uses of a session.", (double)pool.runs);
    add_number(&t, "cancelled_total", "counter", "Runs whose client went away.",
               (double)pool.cancelled);
    add_number(&t, "yields_total", "counter", "Times that a run let others go first.",
               (double)pool.yields);
    add_number(&t, "drafts_total", "counter", "Turns decoded in a pause that could end them.",
               (double)pool.drafts);
    add_number(&t, "drafts_used_total", "counter", "Those of them that had ended there.",
               (double)pool.drafts_used);
    add_number(&t, "audio_seconds_total", "counter", "Audio read.", pool.audio_s);
    add_number(&t, "computing_seconds_total", "counter", "Time of runs.", pool.computing_s);
    add_number(&t, "real_time_factor", "gauge", "Computing time per time of audio.",
               pool.audio_s > 0 ? pool.computing_s / pool.audio_s : 0);
    add_number(&t, "sessions", "gauge", "Sessions.", pool.n);
    add_number(&t, "sessions_busy", "gauge", "Sessions in use.", pool.n - pool.n_idle);
    add_number(&t, "queue_length", "gauge", "Requests that wait for a session.", pool.waiting);
    add_number(&t, "npu_share", "gauge", "Share of the encoder's products computed by the NPU.",
               pool.macs > 0 ? (double)pool.accel_macs / (double)pool.macs : 0);
    add_number(&t, "realtime_connections", "gauge", "Realtime connections.", pool.realtime);
    add_histogram(&t, "request_seconds", "Time of requests that compute.", &pool.times);
    add_histogram(&t, "queue_seconds", "Waits for a session.", &pool.waits);
    add_build(&t);
    add_process(&t);
    pthread_mutex_unlock(&pool.lock);
    return t.used;
}
