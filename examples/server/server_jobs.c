/* server_jobs.c - see server_jobs.h */
#define _XOPEN_SOURCE 700

#include "server_jobs.h"

#include "server_run.h"
#include "server_thread.h"
#include "server_watch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TOLD_MOST ((size_t)512 << 10) /* bytes of segments in an answer, to the end of a segment */

typedef struct background {
    struct background *next;
    char id[JOBS_ID_SIZE];
    time_t created;
    submission *s;            /* NULL when the run is over */
    watch watch;
    job job;
    int is_json;              /* the answer */
    int tells;                /* segments are kept */
    char warning[JOB_WARNINGS_SIZE];
    /* Under the lock. */
    int done, forgotten;
    buffer text;              /* segments so far, a line each */
    int32_t language;         /* of the last one */
    int fetched;              /* a client has asked for the answer */
    int64_t done_ms;          /* by platform_now_ms() */
} background;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    jobs_options options;
    background *first, **last; /* in the order of their submission */
    int n;
    size_t bytes;             /* of all answers */
} jobs = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER,
          .last = &jobs.first};

void submission_free(submission *s)
{
    if (s->model != NULL) {
        models_release(s->model);
    }
    upload_free(&s->upload);
    request_free(&s->request);
    free(s);
}

/* ---- the list; call these with the lock ---- */

static background **find(const char *id)
{
    background **at = &jobs.first;
    while (*at != NULL && (strcmp((*at)->id, id) != 0 || (*at)->forgotten)) {
        at = &(*at)->next;
    }
    return at;
}

/* Forgets a job that is done. */
static void drop(background **at)
{
    background *b = *at;
    *at = b->next;
    if (jobs.last == &b->next) {
        jobs.last = at;
    }
    jobs.n--;
    jobs.bytes -= b->job.body.n + b->text.n;
    job_free(&b->job);
    buffer_free(&b->text);
    free(b);
    pthread_cond_broadcast(&jobs.changed);
}

static void remove_job(const background *b)
{
    background **at = &jobs.first;
    while (*at != b) {
        at = &(*at)->next;
    }
    drop(at);
}

/* Forgets the answer that was kept longest. Returns whether there was one. */
static int drop_oldest(void)
{
    background **at, **oldest = NULL;
    for (at = &jobs.first; *at != NULL; at = &(*at)->next) {
        if ((*at)->done && (oldest == NULL || (*at)->done_ms < (*oldest)->done_ms)) {
            oldest = at;
        }
    }
    if (oldest != NULL) {
        drop(oldest);
    }
    return oldest != NULL;
}

static void expire(void)
{
    background **at = &jobs.first;
    while (*at != NULL) {
        if ((*at)->done && platform_now_ms() - (*at)->done_ms >= jobs.options.keep_ms) {
            drop(at);
        } else {
            at = &(*at)->next;
        }
    }
}

void jobs_expire(void)
{
    pthread_mutex_lock(&jobs.lock);
    expire();
    pthread_mutex_unlock(&jobs.lock);
}

/* ---- a job ---- */

/* Ends a job that has run. */
static void finish(background *b)
{
    submission *s = b->s;
    const request *r = &s->request;
    job_warnings(&b->job, b->warning);
    b->is_json = strcmp(reply_type(r), "application/json") == 0;
    pthread_mutex_lock(&jobs.lock);
    b->s = NULL;
    b->job.request = NULL;
    if (b->job.http_status == 200 && b->job.body.n > JOBS_BYTES_MOST) {
        b->job.http_status = 500;
        strcpy(b->job.message, "the answer is too long to be kept");
    }
    if (b->job.http_status != 200) {
        buffer_free(&b->job.body);
    }
    while (b->job.body.n + jobs.bytes > JOBS_BYTES_MOST && drop_oldest()) {
    }
    jobs.bytes += b->job.body.n;
    b->done = 1;
    b->done_ms = platform_now_ms();
    if (b->forgotten) {
        remove_job(b);
    }
    pthread_cond_broadcast(&jobs.changed);
    pthread_mutex_unlock(&jobs.lock);
    submission_free(s);
}

/* Keeps a segment. Returns 0, or -1 to end the run. */
static int keep_segment(void *user, const wnpu_segment *segment, size_t index)
{
    background *b = user;
    buffer line = {NULL, 0, 0, 0};
    size_t before;
    int full;
    reply_segment(&line, b->job.session, segment, index);
    pthread_mutex_lock(&jobs.lock);
    before = b->text.n;
    full = line.failed || before + line.n > JOBS_BYTES_MOST ||
           buffer_write(&b->text, line.bytes, line.n) < 0;
    jobs.bytes += b->text.n - before;
    b->language = segment->language;
    while (jobs.bytes > JOBS_BYTES_MOST && drop_oldest()) {
    }
    pthread_mutex_unlock(&jobs.lock);
    buffer_free(&line);
    return full ? -1 : 0;
}

static void *run(void *user)
{
    background *b = user;
    job_run(&b->job);
    watch_remove(&b->watch);
    finish(b);
    return NULL;
}

/* An id that cannot be guessed: whoever has it gets the text. Returns 0, or -1. */
static int make_id(char id[JOBS_ID_SIZE])
{
    unsigned char bytes[16];
    FILE *file = fopen("/dev/urandom", "rb");
    size_t i, n = file != NULL ? fread(bytes, 1, sizeof bytes, file) : 0;
    int at;
    if (file != NULL) {
        (void)fclose(file);
    }
    at = jobs.options.node != NULL ? snprintf(id, JOBS_ID_SIZE, "job_%.*s_", JOBS_NODE_MOST,
                                              jobs.options.node)
                                   : snprintf(id, JOBS_ID_SIZE, "job_");
    for (i = 0; i < sizeof bytes; i++) {
        (void)snprintf(id + at + 2 * i, 3, "%02x", bytes[i]);
    }
    return n == sizeof bytes ? 0 : -1;
}

/* Adds a job to the list, if there is room. Returns 0, or -1. */
static int add(background *b)
{
    int full;
    pthread_mutex_lock(&jobs.lock);
    expire();
    while (jobs.n >= jobs.options.most && drop_oldest()) {
    }
    full = jobs.n >= jobs.options.most;
    if (!full) {
        *jobs.last = b;
        jobs.last = &b->next;
        jobs.n++;
    }
    pthread_mutex_unlock(&jobs.lock);
    return full ? -1 : 0;
}

int jobs_submit(submission *s, char id[JOBS_ID_SIZE])
{
    background *b = calloc(1, sizeof *b);
    if (b == NULL || make_id(b->id) != 0) {
        free(b);
        return -1;
    }
    strcpy(id, b->id);
    b->created = time(NULL);
    b->s = s;
    b->job.model = s->model;
    b->job.request = &s->request;
    b->job.upload = &s->upload;
    b->job.watch = &b->watch;
    b->job.stall_ms = jobs.options.stall_ms;
    b->job.most_ms = jobs.options.most_ms;
    b->job.patient = 1;
    b->tells = s->request.progress;
    b->language = -1;
    b->job.on_segment = b->tells ? keep_segment : NULL;
    b->job.user = b;
    watch_add(&b->watch, -1, WATCH_WORKING, jobs.options.work_ms);
    if (add(b) != 0) {
        watch_remove(&b->watch);
        free(b);
        return -1;
    }
    if (thread_start(NULL, run, b) != 0) {
        watch_remove(&b->watch);
        pthread_mutex_lock(&jobs.lock);
        b->done = 1;
        remove_job(b);
        pthread_mutex_unlock(&jobs.lock);
        return -1;
    }
    return 0;
}

int jobs_cancel(const char *id)
{
    background **at;
    int found;
    pthread_mutex_lock(&jobs.lock);
    at = find(id);
    found = *at != NULL;
    if (found && (*at)->done) {
        drop(at);
    } else if (found) {
        (*at)->forgotten = 1; /* its thread drops it */
        watch_stop_one(&(*at)->watch);
    }
    pthread_mutex_unlock(&jobs.lock);
    return found ? 0 : -1;
}

/* ---- what is told ---- */

/* The segments from a byte on, of which an answer has about TOLD_MOST bytes. */
static void add_segments(buffer *b, const background *j, size_t from)
{
    const char *all = j->text.bytes, *end;
    size_t at = from;
    if (wnpu_language_name(j->language) != NULL) {
        buffer_print(b, ", \"language\": \"%s\"", wnpu_language_name(j->language));
    }
    buffer_text(b, ", \"segments\": [");
    while (at < j->text.n && at - from < TOLD_MOST &&
           (end = memchr(all + at, '\n', j->text.n - at)) != NULL) {
        buffer_text(b, at > from ? ", " : "");
        (void)buffer_write(b, all + at, (size_t)(end - (all + at)));
        at = (size_t)(end - all) + 1;
    }
    buffer_print(b, "], \"next\": %zu", at);
}

/* told: the answer has been told as segments. */
static void add_answer(buffer *b, const background *j, int told)
{
    size_t i, from;
    buffer_print(b, ", \"expires_in\": %.0f",
                 (double)(jobs.options.keep_ms - (platform_now_ms() - j->done_ms)) / 1e3);
    if (j->job.http_status != 200) {
        buffer_text(b, ", ");
        from = b->n + 1;
        reply_error(b, API_OPENAI, j->job.http_status, j->job.message, j->job.param);
        if (!b->failed) { /* its member alone: without the braces and the line end */
            memmove(b->bytes + from - 1, b->bytes + from, b->n - from - 2);
            b->n -= 3;
        }
        return;
    }
    if (j->warning[0] != '\0') {
        buffer_text(b, ", \"warning\": ");
        buffer_string(b, j->warning, strlen(j->warning));
    }
    if (told) {
        buffer_print(b, ", \"duration\": %.3f", (double)j->job.audio_ms / 1e3);
        return;
    }
    buffer_text(b, ", \"result\": ");
    if (!j->is_json) {
        buffer_string(b, j->job.body.bytes, j->job.body.n);
        return;
    }
    for (i = b->n, (void)buffer_write(b, j->job.body.bytes, j->job.body.n); i < b->n; i++) {
        b->bytes[i] = b->bytes[i] == '\n' ? ' ' : b->bytes[i]; /* strings have none */
    }
}

/* Whether a place is one where a segment begins. */
static int is_place(const background *j, size_t from)
{
    return from == 0 || (from <= j->text.n && j->text.bytes[from - 1] == '\n');
}

int jobs_describe(const char *id, size_t from, buffer *b)
{
    background *j;
    int told;
    pthread_mutex_lock(&jobs.lock);
    expire();
    j = *find(id);
    if (j != NULL) {
        const char *state = j->done ? (j->job.http_status == 200 ? "completed" : "failed")
                          : atomic_load(&j->job.running) ? "running" : "queued";
        buffer_print(b, "{\"id\": \"%s\", \"object\": \"transcription.job\", \"created\": %lld, "
                     "\"status\": \"%s\", \"progress\": %.3f", j->id, (long long)j->created, state,
                     j->done ? 1 : (double)atomic_load(&j->job.permille) / 1e3);
        told = from != JOBS_ANSWER && j->tells;
        if (told) {
            add_segments(b, j, is_place(j, from) ? from : 0);
        }
        if (j->done) {
            j->fetched |= !told || from >= j->text.n; /* to the end */
            add_answer(b, j, told);
        }
        buffer_text(b, "}\n");
    }
    pthread_mutex_unlock(&jobs.lock);
    return j != NULL ? 0 : -1;
}

void jobs_start(const jobs_options *options)
{
    jobs.options = *options;
}

int jobs_active(int64_t since_ms)
{
    const background *b;
    int n = 0;
    pthread_mutex_lock(&jobs.lock);
    for (b = jobs.first; b != NULL; b = b->next) {
        n += !b->done || (b->done_ms >= since_ms && !b->fetched);
    }
    pthread_mutex_unlock(&jobs.lock);
    return n;
}

int jobs_is_elsewhere(const char *id, char node[JOBS_NODE_MOST + 1])
{
    const char *name = strncmp(id, "job_", 4) == 0 ? id + 4 : "", *end = strchr(name, '_');
    if (end == NULL || end == name || end - name > JOBS_NODE_MOST) {
        return 0;
    }
    (void)snprintf(node, JOBS_NODE_MOST + 1, "%.*s", (int)(end - name), name);
    return jobs.options.node == NULL || strcmp(jobs.options.node, node) != 0;
}

void jobs_stop(void)
{
    background *b;
    pthread_mutex_lock(&jobs.lock);
    for (b = jobs.first; b != NULL; b = b->next) {
        b->forgotten = 1;
        if (!b->done) {
            watch_stop_one(&b->watch);
        }
    }
    while (jobs.n > 0) {
        if (!drop_oldest()) {
            pthread_cond_wait(&jobs.changed, &jobs.lock);
        }
    }
    pthread_mutex_unlock(&jobs.lock);
}
