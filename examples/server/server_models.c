/* server_models.c - see server_models.h */
#define _XOPEN_SOURCE 700

#include "server_models.h"

#include "../kit/npu.h"
#include "../kit/platform.h"
#include "server_pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    served list[MODELS_MOST];
    size_t n;
    models_options options;
    pthread_t closer;
    int closing, has_closer;
} models = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- the list ---- */

static int set_name(served *m, const char *name, size_t length, char why[256])
{
    char *copy = malloc(length + 1);
    size_t i;
    if (length == 0 || copy == NULL) {
        (void)snprintf(why, 256, "the name of a model is empty");
        free(copy);
        return -1;
    }
    for (i = 0; i < models.n; i++) {
        if (&models.list[i] != m && strlen(models.list[i].name) == length &&
            memcmp(models.list[i].name, name, length) == 0) {
            (void)snprintf(why, 256, "two models have the name %.100s; use NAME=FILE",
                           models.list[i].name);
            free(copy);
            return -1;
        }
    }
    memcpy(copy, name, length);
    copy[length] = '\0';
    free(m->name);
    m->name = copy;
    return 0;
}

/* The name of a model is its file's without directory and extension, unless one is given. */
int models_add(const char *text, char why[256])
{
    served *m = &models.list[models.n];
    size_t named = strcspn(text, "=/");
    const char *slash, *base, *dot;
    int failed;
    if (models.n == MODELS_MOST) {
        (void)snprintf(why, 256, "there may be %d models", MODELS_MOST);
        return -1;
    }
    memset(m, 0, sizeof *m);
    if (text[named] == '=' && access(text, F_OK) != 0) {
        m->path = text + named + 1;
        failed = set_name(m, text, named, why);
    } else {
        slash = strrchr(text, '/');
        base = slash != NULL ? slash + 1 : text;
        dot = strrchr(base, '.');
        m->path = text;
        failed = set_name(m, base, dot != NULL && dot > base ? (size_t)(dot - base) : strlen(base),
                          why);
    }
    models.n += !failed;
    return failed;
}

int models_rename_first(const char *name, char why[256])
{
    return set_name(&models.list[0], name, strlen(name), why);
}

served *models_at(size_t index)
{
    return index < models.n ? &models.list[index] : NULL;
}

served *models_find(const char *name)
{
    size_t i;
    for (i = 1; i < models.n && name != NULL; i++) {
        if (strcmp(models.list[i].name, name) == 0) {
            return &models.list[i];
        }
    }
    return &models.list[0];
}

/* ---- opening and closing ---- */

/* An NPU that cannot be opened is an error only with --require-npu. */
static int open_npu(served *m)
{
    const models_options *o = &models.options;
    int status = o->npu != NULL ? npu_open(&m->config.accel, o->npu, m->model, o->log, o->log_user)
                                : WNPU_OK;
    if (status != WNPU_OK && !o->config.require_accel) {
        o->log(o->log_user, WNPU_LOG_WARNING, "going on without the NPU");
        return WNPU_OK;
    }
    return status;
}

static void close_model(served *m)
{
    npu_close(m->config.accel);
    m->config.accel = NULL;
    wnpu_model_close(m->model);
    m->model = NULL;
}

/* Call without the lock, in MODEL_CHANGING. */
static int open_model(served *m, char why[512])
{
    wnpu_model_config config;
    wnpu_error error = {0, ""};
    int status;
    wnpu_model_config_init(&config, sizeof config);
    config.log = models.options.log;
    config.log_user = models.options.log_user;
    m->config = models.options.config;
    status = wnpu_model_open(&m->model, m->path, &config, &error);
    if (status == WNPU_OK) {
        (void)snprintf(error.message, sizeof error.message, "the NPU cannot be opened");
        status = open_npu(m);
    }
    if (status != WNPU_OK) {
        close_model(m);
        (void)snprintf(why, 512, "the model %.100s cannot be loaded: %.300s", m->name,
                       error.message);
        return status;
    }
    return WNPU_OK;
}

/* As models_hold(), but returns a status. */
static int hold(served *m, char why[512])
{
    int status = WNPU_OK;
    pthread_mutex_lock(&models.lock);
    while (m->state == MODEL_CHANGING) {
        pthread_cond_wait(&models.changed, &models.lock);
    }
    if (m->state == MODEL_CLOSED) {
        m->state = MODEL_CHANGING;
        pthread_mutex_unlock(&models.lock);
        status = open_model(m, why);
        pthread_mutex_lock(&models.lock);
        m->state = status == WNPU_OK ? MODEL_OPEN : MODEL_CLOSED;
        m->loads += status == WNPU_OK;
        m->failures += status != WNPU_OK;
        m->info.struct_size = sizeof m->info;
        if (status == WNPU_OK) {
            (void)wnpu_model_get_info(m->model, &m->info);
        }
        pthread_cond_broadcast(&models.changed);
    }
    m->holders += status == WNPU_OK;
    pthread_mutex_unlock(&models.lock);
    return status;
}

int models_hold(served *m, char why[512])
{
    return hold(m, why) == WNPU_OK ? 0 : -1;
}

int models_info(served *m, wnpu_model_info *info)
{
    pthread_mutex_lock(&models.lock);
    *info = m->info;
    pthread_mutex_unlock(&models.lock);
    return info->n_vocab > 0 ? 0 : -1;
}

void models_release(served *m)
{
    pthread_mutex_lock(&models.lock);
    m->holders--;
    m->free_ms = platform_now_ms();
    pthread_mutex_unlock(&models.lock);
}

/* Closes a model that nobody has, with its sessions. Call with the lock, which is free
 * meanwhile. */
static void drop(served *m)
{
    m->state = MODEL_CHANGING;
    pthread_mutex_unlock(&models.lock);
    pool_drop(m);
    close_model(m);
    pthread_mutex_lock(&models.lock);
    m->state = MODEL_CLOSED;
    pthread_cond_broadcast(&models.changed);
}

/* A thread that closes models which nobody has used for a time. */
static void *close_idle(void *unused)
{
    struct timespec until;
    size_t i;
    (void)unused;
    pthread_mutex_lock(&models.lock);
    while (!models.closing) {
        for (i = 0; i < models.n; i++) {
            served *m = &models.list[i];
            if (m->state == MODEL_OPEN && m->holders == 0 &&
                platform_now_ms() - m->free_ms >= models.options.idle_ms) {
                drop(m);
            }
        }
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        (void)pthread_cond_timedwait(&models.changed, &models.lock, &until);
    }
    pthread_mutex_unlock(&models.lock);
    return NULL;
}

int models_start(const models_options *o, served **first, char why[512])
{
    size_t i;
    int status;
    models.options = *o;
    for (i = 1; i < models.n; i++) {
        if (access(models.list[i].path, R_OK) != 0) {
            (void)snprintf(why, 512, "%.400s: %s", models.list[i].path, strerror(errno));
            return WNPU_E_IO;
        }
    }
    *first = &models.list[0];
    status = hold(*first, why);
    if (status != WNPU_OK) {
        return status;
    }
    models.has_closer = o->idle_ms > 0 &&
                        pthread_create(&models.closer, NULL, close_idle, NULL) == 0;
    return WNPU_OK;
}

int models_can_serve(void)
{
    size_t i;
    int open = 0;
    pthread_mutex_lock(&models.lock);
    for (i = 0; i < models.n; i++) {
        open |= models.list[i].state == MODEL_OPEN;
    }
    pthread_mutex_unlock(&models.lock);
    return open || access(models.list[0].path, R_OK) == 0;
}

void models_stop(void)
{
    size_t i;
    pthread_mutex_lock(&models.lock);
    models.closing = 1;
    pthread_cond_broadcast(&models.changed);
    pthread_mutex_unlock(&models.lock);
    if (models.has_closer) {
        pthread_join(models.closer, NULL);
    }
    pthread_mutex_lock(&models.lock);
    for (i = 0; i < models.n; i++) {
        if (models.list[i].state == MODEL_OPEN) {
            drop(&models.list[i]);
        }
    }
    pthread_mutex_unlock(&models.lock);
}

/* ---- what is told ---- */

static const char *state_name(const served *m)
{
    return m->state == MODEL_OPEN ? "loaded" : m->state == MODEL_CLOSED ? "unloaded" : "changing";
}

/* Bytes of an open model and its sessions. */
static double bytes_of(const served *m)
{
    return m->state == MODEL_OPEN ? (double)m->info.bytes + (double)m->info.shared_bytes +
                                    (double)pool_session_bytes(m) : 0;
}

void models_describe(buffer *b, served *m, const char *name)
{
    pthread_mutex_lock(&models.lock);
    buffer_text(b, "{\"id\": ");
    buffer_string(b, name, strlen(name));
    buffer_print(b, ", \"object\": \"model\", \"created\": 1663718400, "
                 "\"owned_by\": \"whisper_npu\", \"state\": \"%s\", \"bytes\": %.0f}",
                 state_name(m), bytes_of(m));
    pthread_mutex_unlock(&models.lock);
}

/* A name as the value of a label. */
static void add_label(buffer *b, const char *name)
{
    for (; *name != '\0'; name++) {
        if (*name == '"' || *name == '\\') {
            buffer_text(b, "\\");
        }
        (void)buffer_write(b, *name >= ' ' ? name : " ", 1);
    }
}

static double loaded(const served *m) { return m->state == MODEL_OPEN; }
static double holders(const served *m) { return m->holders; }
static double loads(const served *m) { return (double)m->loads; }
static double failures(const served *m) { return (double)m->failures; }

void models_metrics(buffer *b)
{
    static const struct {
        const char *name, *type, *help;
        double (*value)(const served *m);
    } rows[] = {
        {"loaded", "gauge", "Whether a model is in memory.", loaded},
        {"bytes", "gauge", "Memory of a model and its sessions, with what is shared.", bytes_of},
        {"users", "gauge", "Requests and connections that have a model.", holders},
        {"loads_total", "counter", "Times that a model was loaded.", loads},
        {"load_failures_total", "counter", "Times that it could not be.", failures}
    };
    size_t i, k;
    pthread_mutex_lock(&models.lock);
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        buffer_print(b, "# HELP wnpu_model_%s %s\n# TYPE wnpu_model_%s %s\n", rows[i].name,
                     rows[i].help, rows[i].name, rows[i].type);
        for (k = 0; k < models.n; k++) {
            buffer_print(b, "wnpu_model_%s{model=\"", rows[i].name);
            add_label(b, models.list[k].name);
            buffer_print(b, "\"} %.0f\n", rows[i].value(&models.list[k]));
        }
    }
    pthread_mutex_unlock(&models.lock);
}
