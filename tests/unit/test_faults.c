/* test_faults.c - every system call that the library makes fails, one after the other: opening and
 * reading files, mapping, memory, mutexes, threads; so does everything that writes for it. Whatever
 * happens, the cause is named, nothing is left behind, and what works gives the same text. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#define _DEFAULT_SOURCE 1
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the system ---- */

enum { OPEN, FSTAT, PREAD, MMAP, MEMORY, MUTEX, COND, THREAD, CALLS };

static struct {
    long calls[CALLS]; /* made so far */
    long fail_at;      /* this one of */
    int which;         /* these fails, with */
    int code;          /* this errno; 0 from pread is the end of the file, and */
    int brief;         /* 1: every pread gives a byte or so */
    long live[CALLS];  /* taken and not given back */
} sys;

static int fails(int which)
{
    if (++sys.calls[which] != sys.fail_at || which != sys.which) {
        return 0;
    }
    errno = sys.code;
    return 1;
}

/* Only the opening of the model counts as a call. Files of the system, which tell the CPU quota,
 * are missing in the tests in which an open fails: the library must do without. */
static int sys_open(const char *path, int flags, ...)
{
    int of_system = strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/sys/", 5) == 0;
    int fail = of_system ? sys.which == OPEN && sys.fail_at > 0 : fails(OPEN);
    int file = fail ? -1 : open(path, flags);
    if (fail && of_system) {
        errno = ENOENT;
    }
    sys.live[OPEN] += file >= 0;
    return file;
}

static int sys_close(int file)
{
    sys.live[OPEN]--;
    return close(file);
}

static int sys_fstat(int file, struct stat *info)
{
    return fails(FSTAT) ? -1 : fstat(file, info);
}

static ssize_t sys_pread(int file, void *buffer, size_t size, off_t offset)
{
    if (fails(PREAD)) {
        return sys.code == 0 ? 0 : -1;
    }
    return pread(file, buffer, sys.brief && size > 50000 ? 4099 : size, offset);
}

static void *sys_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    void *map = fails(MMAP) ? MAP_FAILED : mmap(at, size, protection, flags, file, offset);
    sys.live[MMAP] += map != MAP_FAILED;
    return map;
}

static int sys_munmap(void *map, size_t size)
{
    sys.live[MMAP]--;
    return munmap(map, size);
}

static int sys_memalign(void **memory, size_t alignment, size_t size)
{
    int code = fails(MEMORY) ? sys.code : posix_memalign(memory, alignment, size);
    sys.live[MEMORY] += code == 0;
    return code;
}

static void sys_free(void *memory)
{
    sys.live[MEMORY] -= memory != NULL;
    free(memory);
}

static int sys_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    int code = fails(MUTEX) ? sys.code : pthread_mutex_init(mutex, attributes);
    sys.live[MUTEX] += code == 0;
    return code;
}

static int sys_mutex_destroy(pthread_mutex_t *mutex)
{
    sys.live[MUTEX]--;
    return pthread_mutex_destroy(mutex);
}

static int sys_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attributes)
{
    int code = fails(COND) ? sys.code : pthread_cond_init(cond, attributes);
    sys.live[COND] += code == 0;
    return code;
}

static int sys_cond_destroy(pthread_cond_t *cond)
{
    sys.live[COND]--;
    return pthread_cond_destroy(cond);
}

static int sys_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                      void *argument)
{
    int code = fails(THREAD) ? sys.code : pthread_create(thread, attributes, start, argument);
    sys.live[THREAD] += code == 0;
    return code;
}

static int sys_join(pthread_t thread, void **result)
{
    sys.live[THREAD]--;
    return pthread_join(thread, result);
}

#define open sys_open
#define close sys_close
#define fstat sys_fstat
#define pread sys_pread
#define mmap sys_mmap
#define munmap sys_munmap
#define posix_memalign sys_memalign
#define free sys_free
#define pthread_mutex_init sys_mutex_init
#define pthread_mutex_destroy sys_mutex_destroy
#define pthread_cond_init sys_cond_init
#define pthread_cond_destroy sys_cond_destroy
#define pthread_create sys_create
#define pthread_join sys_join
#include "../../whisper_npu.c"
#undef open
#undef close
#undef fstat
#undef pread
#undef mmap
#undef munmap
#undef posix_memalign
#undef free
#undef pthread_mutex_init
#undef pthread_mutex_destroy
#undef pthread_cond_init
#undef pthread_cond_destroy
#undef pthread_create
#undef pthread_join

#include "../lib/life.h"

/* ---- a program ---- */

static char ggml_path[64], pack_path[64], json[20000];
static size_t json_size;
static float noise[16000];

typedef struct sink {
    size_t writes, fail_at; /* 0: none fails */
    int64_t answer;         /* of the one that does */
    size_t most;            /* short writes; 0: none */
    char text[20000];
    size_t size;
} sink;

static int64_t sink_write(void *user, const void *data, size_t size)
{
    sink *s = user;
    size_t n = s->most > 0 && s->most < size ? s->most : size;
    if (++s->writes == s->fail_at) {
        return s->answer;
    }
    n = n < sizeof s->text - s->size ? n : sizeof s->text - s->size;
    memcpy(s->text + s->size, data, n);
    s->size += n;
    return (int64_t)n;
}

static int64_t to_file(void *user, const void *data, size_t size)
{
    return (int64_t)fwrite(data, 1, size, user);
}

static void make_files(void)
{
    toy_options o = toy_small();
    size_t size = 0, i;
    unsigned char *file = toy_model(&o, &size);
    wnpu_model *m = NULL;
    FILE *out;
    uint32_t s = 5;
    (void)snprintf(ggml_path, sizeof ggml_path, "/tmp/wnpu_faults_%ld.bin", (long)getpid());
    (void)snprintf(pack_path, sizeof pack_path, "/tmp/wnpu_faults_%ld.wnpu", (long)getpid());
    out = fopen(ggml_path, "wb");
    T_CHECK(out != NULL && fwrite(file, 1, size, out) == size && fclose(out) == 0, "%s", ggml_path);
    T_CHECK(wnpu_model_open_memory(&m, file, size, NULL, NULL) == WNPU_OK, "toy");
    out = fopen(pack_path, "wb");
    T_CHECK(out != NULL && wnpu_model_save(m, to_file, out, NULL) == WNPU_OK && fclose(out) == 0,
            "%s", pack_path);
    wnpu_model_close(m);
    free(file);
    for (i = 0; i < sizeof noise / sizeof noise[0]; i++) {
        s = s * 1664525u + 1013904223u;
        noise[i] = (float)(s >> 8) / 16777216.0f - 0.5f;
    }
}

static wnpu_params few_tokens(void)
{
    wnpu_params p = life_params();
    p.max_tokens = 4;
    return p;
}

/* Opens, transcribes, writes, closes. With say 0 only up to the opening of the session. */
static int program(const char *path, int copy, int say, sink *out, wnpu_error *error)
{
    wnpu_model_config model_config;
    wnpu_config config;
    wnpu_params params = few_tokens();
    wnpu_audio audio = life_audio(noise, sizeof noise / sizeof noise[0]);
    wnpu_model *model = NULL;
    wnpu_session *session = NULL;
    int status;
    wnpu_model_config_init(&model_config, sizeof model_config);
    model_config.copy = (uint32_t)copy;
    wnpu_config_init(&config, sizeof config);
    config.threads = 3;
    memset(out, 0, sizeof *out);
    status = wnpu_model_open(&model, path, &model_config, error);
    T_CHECK((status == WNPU_OK) == (model != NULL), "the model after status %d", status);
    if (status == WNPU_OK) {
        status = wnpu_session_open(&session, model, &config, NULL, 0, error);
        T_CHECK((status == WNPU_OK) == (session != NULL), "the session after status %d", status);
    }
    if (status == WNPU_OK && say) {
        long before = sys.calls[MEMORY] + sys.calls[THREAD] + sys.calls[MMAP];
        status = wnpu_transcribe(session, &params, &audio);
        T_CHECK(before == sys.calls[MEMORY] + sys.calls[THREAD] + sys.calls[MMAP],
                "a run takes memory or threads");
        status = status != WNPU_OK ? status :
                 wnpu_write(session, WNPU_FORMAT_JSON, sink_write, out);
    }
    wnpu_session_close(session);
    wnpu_model_close(model);
    return status;
}

static void nothing_left(const char *what, long n)
{
    int i;
    for (i = 0; i < CALLS; i++) {
        T_CHECK(sys.live[i] == 0, "%s %ld fails: %ld of kind %d are left", what, n, sys.live[i], i);
    }
}

/* ---- tests ---- */

static void test_without_faults(void)
{
    sink *out = malloc(sizeof *out);
    wnpu_error error = {0, ""};
    int way;
    make_files();
    for (way = 0; way < 3; way++) {
        memset(&sys, 0, sizeof sys);
        T_CHECK(program(way == 0 ? ggml_path : pack_path, way == 2, 1, out, &error) == WNPU_OK,
                "%s", error.message);
        nothing_left("none", 0);
        T_CHECK(sys.calls[OPEN] == 1 && sys.calls[MEMORY] > 0 && sys.calls[THREAD] == 2 &&
                sys.calls[PREAD] > 0 && (sys.calls[MMAP] == 1) == (way == 1), "calls of way %d",
                way);
        if (way == 0) {
            json_size = out->size;
            memcpy(json, out->text, json_size);
            T_CHECK(json_size > 200, "the toy says nothing");
        }
        T_CHECK(out->size == json_size && memcmp(out->text, json, json_size) == 0, "way %d", way);
    }
    free(out);
}

typedef struct fault {
    const char *name;
    int which, code;
    int status;         /* WNPU_OK: the library does without */
    const char *cause;  /* part of the message */
} fault;

static const fault faults[] = {
    {"open", OPEN, ENOENT, WNPU_E_IO, "there is no such file"},
    {"open", OPEN, EACCES, WNPU_E_IO, "permission denied"},
    {"open", OPEN, EMFILE, WNPU_E_IO, "too many open files"},
    {"open", OPEN, EINTR, WNPU_OK, NULL},
    {"fstat", FSTAT, EIO, WNPU_E_IO, "cannot open"},
    {"pread", PREAD, EIO, WNPU_E_IO, "at byte"},
    {"pread", PREAD, EINTR, WNPU_OK, NULL},
    {"pread", PREAD, 0, WNPU_E_IO, "at byte"}, /* somebody cut the file */
    {"mmap", MMAP, ENOMEM, WNPU_OK, NULL},
    {"posix_memalign", MEMORY, ENOMEM, WNPU_E_MEMORY, "bytes"},
    {"pthread_mutex_init", MUTEX, EAGAIN, WNPU_E_MEMORY, "mutex"},
    {"pthread_cond_init", COND, ENOMEM, WNPU_E_MEMORY, "condition variable"},
    {"pthread_create", THREAD, EAGAIN, WNPU_E_MEMORY, "ask for fewer"}
};

/* Call n fails as f says; the first read of a file only looks whether it is a pack. */
static void one_fault(const fault *f, int way, long n, sink *out)
{
    wnpu_error error = {0, ""};
    int status, say = f->status == WNPU_OK;
    memset(&sys, 0, sizeof sys);
    sys.which = f->which;
    sys.code = f->code;
    sys.fail_at = n;
    status = program(way == 0 ? ggml_path : pack_path, way == 2, say, out, &error);
    if (f->which == PREAD && n == 1 && way < 2 && status == WNPU_OK) {
        nothing_left(f->name, n);
        return;
    }
    T_CHECK(status == f->status, "%s %ld fails with %d, way %d: status %d, %s", f->name, n, f->code,
            way, status, error.message);
    T_CHECK(f->cause == NULL || strstr(error.message, f->cause) != NULL, "%s %ld: %s", f->name, n,
            error.message);
    T_CHECK(!say || (out->size == json_size && memcmp(out->text, json, json_size) == 0),
            "%s %ld fails: another text", f->name, n);
    nothing_left(f->name, n);
}

static void test_system_calls(void)
{
    sink *out = malloc(sizeof *out);
    size_t i;
    int way;
    for (way = 0; way < 3; way++) {
        long calls[CALLS], tried = 0;
        wnpu_error error;
        memset(&sys, 0, sizeof sys);
        (void)program(way == 0 ? ggml_path : pack_path, way == 2, 1, out, &error);
        memcpy(calls, sys.calls, sizeof calls);
        for (i = 0; i < sizeof faults / sizeof faults[0]; i++) {
            const fault *f = &faults[i];
            long n, most = calls[f->which];
            /* Transcribing takes its time: where the library does without, not after each read. */
            long step = f->status == WNPU_OK && most > 8 ? most / 8 : 1;
            for (n = 1; n <= most; n += step) {
                one_fault(f, way, n, out);
                tried++;
            }
        }
        T_CHECK(tried > 15, "%ld faults were tried", tried);
    }
    free(out);
}

/* Reads that are cut short, as from a network's file system. */
static void test_short_reads(void)
{
    sink *out = malloc(sizeof *out);
    wnpu_error error = {0, ""};
    int way;
    for (way = 0; way < 3; way += 2) {
        memset(&sys, 0, sizeof sys);
        sys.brief = 1;
        T_CHECK(program(way == 0 ? ggml_path : pack_path, way == 2, 1, out, &error) == WNPU_OK,
                "%s", error.message);
        T_CHECK(out->size == json_size && memcmp(out->text, json, json_size) == 0, "another text");
        T_CHECK(sys.calls[PREAD] > 20, "%ld reads", sys.calls[PREAD]);
        nothing_left("no", 0);
    }
    free(out);
}

/* A pack that is copied may be cut while it is open. */
static void test_truncated_while_open(void)
{
    wnpu_model_config config;
    wnpu_params params = few_tokens();
    wnpu_audio audio = life_audio(noise, sizeof noise / sizeof noise[0]);
    wnpu_model *model = NULL;
    wnpu_session *session = NULL;
    wnpu_error error = {0, ""};
    sink *out = calloc(1, sizeof *out);
    memset(&sys, 0, sizeof sys);
    wnpu_model_config_init(&config, sizeof config);
    config.copy = 1;
    T_CHECK(wnpu_model_open(&model, pack_path, &config, &error) == WNPU_OK, "%s", error.message);
    T_CHECK(truncate(pack_path, 8192) == 0, "truncate");
    T_CHECK(wnpu_session_open(&session, model, NULL, NULL, 0, &error) == WNPU_OK, "%s",
            error.message);
    T_CHECK(wnpu_transcribe(session, &params, &audio) == WNPU_OK &&
            wnpu_write(session, WNPU_FORMAT_JSON, sink_write, out) == WNPU_OK, "%s",
            wnpu_session_error(session));
    T_CHECK(out->size == json_size && memcmp(out->text, json, json_size) == 0, "another text");
    wnpu_session_close(session);
    wnpu_model_close(model);
    model = NULL;
    T_CHECK(wnpu_model_open(&model, pack_path, NULL, &error) == WNPU_E_MODEL && model == NULL &&
            strstr(error.message, "truncated") != NULL, "cut before: %s", error.message);
    nothing_left("no", 0);
    free(out);
}

/* Every write of every format fails, or is cut short. */
static void test_writes(void)
{
    static const int64_t answers[] = {-1, 0, INT64_MIN, INT64_MAX};
    wnpu_params params = few_tokens();
    wnpu_audio audio = life_audio(noise, sizeof noise / sizeof noise[0]);
    wnpu_model *model = NULL;
    wnpu_session *session = NULL;
    wnpu_error error = {0, ""};
    sink *out = malloc(sizeof *out), *whole = malloc(sizeof *whole);
    int format;
    memset(&sys, 0, sizeof sys);
    T_CHECK(wnpu_model_open(&model, ggml_path, NULL, &error) == WNPU_OK &&
            wnpu_session_open(&session, model, NULL, NULL, 0, &error) == WNPU_OK &&
            wnpu_transcribe(session, &params, &audio) == WNPU_OK, "%s", error.message);
    for (format = WNPU_FORMAT_TXT; wnpu_format_name(format) != NULL; format++) {
        size_t n, i;
        memset(whole, 0, sizeof *whole);
        T_CHECK(wnpu_write(session, (wnpu_format)format, sink_write, whole) == WNPU_OK &&
                whole->size > 0, "format %d", format);
        memset(out, 0, sizeof *out);
        out->most = 1;
        T_CHECK(wnpu_write(session, (wnpu_format)format, sink_write, out) == WNPU_OK &&
                out->size == whole->size && memcmp(out->text, whole->text, out->size) == 0,
                "format %d byte by byte", format);
        for (n = 1; n <= whole->writes; n++) {
            for (i = 0; i < sizeof answers / sizeof answers[0]; i++) {
                memset(out, 0, sizeof *out);
                out->fail_at = n;
                out->answer = answers[i];
                T_CHECK(wnpu_write(session, (wnpu_format)format, sink_write, out) == WNPU_E_IO &&
                        out->writes == n, "format %d, write %u", format, (unsigned)n);
            }
        }
    }
    wnpu_session_close(session);
    wnpu_model_close(model);
    nothing_left("no", 0);
    free(out);
    free(whole);
}

int main(void)
{
    t_run("without faults", test_without_faults);
    t_run("every system call fails", test_system_calls);
    t_run("short reads of files", test_short_reads);
    t_run("a pack that is cut while it is open", test_truncated_while_open);
    t_run("writes that fail", test_writes);
    (void)unlink(ggml_path);
    (void)unlink(pack_path);
    return t_end();
}
