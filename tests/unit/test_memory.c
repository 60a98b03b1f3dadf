/* test_memory.c - the memory contract: everything is known before it is taken, and once a session
 * is open nothing is allocated, mapped or started, whatever it does.
 *
 * malloc and its kin are ours here and abort while the heap is sealed. So do the library's calls of
 * mmap and pthread_create. Where the system can, the kernel is told to refuse those calls too,
 * which covers what libc does by itself. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SEAL 1
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#undef SEAL
#endif
#endif
#define _GNU_SOURCE 1
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

static int sealed; /* atomic */

/* Says so and ends the program: nothing that could allocate. */
static void not_sealed(const char *what)
{
    if (__atomic_load_n(&sealed, __ATOMIC_SEQ_CST)) {
        static const char text[] = " was called after opening\n";
        ssize_t n = write(2, what, strlen(what));
        n += write(2, text, sizeof text - 1);
        (void)n;
        abort();
    }
}

#ifdef SEAL
/* A heap that only grows, apart from its last block: enough for a test, and nobody else's. */
#define HEAP_BYTES ((size_t)1 << 30)
static unsigned char heap[HEAP_BYTES] __attribute__((aligned(4096)));
static size_t heap_used;
static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;

/* The size of a block stands in the 16 bytes before it. */
static void *take(const char *what, size_t size, size_t alignment)
{
    size_t at;
    unsigned char *p = NULL;
    not_sealed(what);
    alignment = alignment < 16 ? 16 : alignment;
    pthread_mutex_lock(&heap_lock);
    at = (heap_used + 16 + alignment - 1) & ~(alignment - 1);
    if (size < HEAP_BYTES && at < HEAP_BYTES - size) {
        p = heap + at;
        memcpy(p - 16, &size, sizeof size);
        heap_used = at + size;
    }
    pthread_mutex_unlock(&heap_lock);
    return p;
}

void *malloc(size_t size) { return take("malloc", size, 16); }

void free(void *p)
{
    size_t size;
    not_sealed("free");
    if (p != NULL) {
        memcpy(&size, (unsigned char *)p - 16, sizeof size);
        pthread_mutex_lock(&heap_lock);
        if ((unsigned char *)p + size == heap + heap_used) {
            heap_used = (size_t)((unsigned char *)p - heap) - 16;
        }
        pthread_mutex_unlock(&heap_lock);
    }
}

/* Not memset(): gcc would make a call of calloc() of the two. */
void *calloc(size_t n, size_t size)
{
    unsigned char *p;
    size_t i, bytes = n * size;
    if (size > 0 && bytes / size != n) {
        return NULL;
    }
    p = take("calloc", bytes, 16);
    for (i = 0; p != NULL && i < bytes; i++) {
        ((volatile unsigned char *)p)[i] = 0;
    }
    return p;
}

void *realloc(void *old, size_t size)
{
    size_t had = 0;
    void *p = take("realloc", size, 16);
    if (old != NULL && p != NULL) {
        memcpy(&had, (unsigned char *)old - 16, sizeof had);
        memcpy(p, old, had < size ? had : size);
    }
    return p;
}

void *memalign(size_t alignment, size_t size) { return take("memalign", size, alignment); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
void *valloc(size_t size) { return take("valloc", size, 4096); }
void *pvalloc(size_t size) { return take("pvalloc", (size + 4095) & ~(size_t)4095, 4096); }

int posix_memalign(void **p, size_t alignment, size_t size)
{
    *p = take("posix_memalign", size, alignment);
    return *p != NULL ? 0 : ENOMEM;
}
#endif

static void *our_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    not_sealed("mmap");
    return mmap(at, size, protection, flags, file, offset);
}

static int our_thread(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                      void *user)
{
    not_sealed("pthread_create");
    return pthread_create(thread, attr, start, user);
}

#define mmap our_mmap
#define pthread_create our_thread
#include "../../whisper_npu.c"
#undef mmap
#undef pthread_create
#include "../lib/life.h"

/* ---- the kernel's part ---- */

#ifdef SECCOMP_MODE_FILTER
/* From now on these calls fail in this thread and in those that it starts, with a signal. Reading
 * and writing files would still work, and so does the end of the process. */
static int forbid_calls(void)
{
    static const unsigned forbidden[] = {
        __NR_mmap, __NR_mremap, __NR_brk, __NR_clone, __NR_openat, __NR_mprotect, __NR_madvise,
#ifdef __NR_clone3
        __NR_clone3,
#endif
#ifdef __NR_fork
        __NR_fork, __NR_open,
#endif
    };
    struct sock_filter code[2 * sizeof forbidden / sizeof forbidden[0] + 2];
    struct sock_fprog program;
    size_t i, n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                             offsetof(struct seccomp_data, nr));
    for (i = 0; i < sizeof forbidden / sizeof forbidden[0]; i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, forbidden[i], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    program.len = (unsigned short)n;
    program.filter = code;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void on_forbidden(int number, siginfo_t *info, void *context)
{
    static const char text[] = "a system call that takes memory or starts a thread was made after "
                               "opening\n";
    ssize_t n = write(2, text, sizeof text - 1);
    (void)n;
    (void)number;
    (void)info;
    (void)context;
    _exit(99);
}
#endif

/* ---- sealed runs ---- */

static life_sounds sounds;
static life_text answer[LIFE_MODES];

/* Every mode, and all sessions have to agree. */
static void all_modes(wnpu_session *s, const char *who, int toy)
{
    int mode;
    for (mode = 0; mode < LIFE_MODES; mode++) {
        static life_text text;
        int status = life_run(&sounds, mode, toy, s);
        T_CHECK(status == WNPU_OK || (!toy && status == WNPU_INCOMPLETE), "%s, %s: %s",
                who, life_modes[mode], wnpu_session_error(s));
        life_json(s, &text);
        if (answer[mode].n == 0) {
            memcpy(&answer[mode], &text, sizeof text);
        }
        T_CHECK(life_same(&text, &answer[mode]), "%s, %s: another answer", who, life_modes[mode]);
    }
}

/* From a progress callback of one session into another one, and on from there. */
static int snap(void *user, int64_t done_ms, int64_t total_ms)
{
    static unsigned char block[8 << 20];
    wnpu_session *const *s = user;
    size_t size = wnpu_snapshot_size(s[0]);
    (void)done_ms;
    (void)total_ms;
    T_CHECK(size > 0 && size <= wnpu_snapshot_most(s[0]) && size <= sizeof block &&
            wnpu_snapshot(s[0], block, size) == WNPU_OK &&
            wnpu_restore(s[1], block, size) == WNPU_OK, "%s", wnpu_session_error(s[1]));
    return 1;
}

static void snapshots(wnpu_session **s, int toy)
{
    wnpu_params p;
    life_mode_params(&sounds, LIFE_GREEDY, toy, &p);
    p.on_progress = snap;
    p.user = s;
    T_CHECK(wnpu_transcribe(s[0], &p, &sounds.plain) == WNPU_E_CANCELLED, "stops");
    p.on_progress = NULL;
    T_CHECK(wnpu_resume(s[1], &p, &sounds.plain) == WNPU_OK, "%s", wnpu_session_error(s[1]));
}

/* A live run, which moves to another session on the way. */
static void live(wnpu_session **s, int toy)
{
    static unsigned char block[8 << 20];
    static life_text text;
    const float *x = sounds.plain.data;
    wnpu_stream_options o;
    wnpu_params p;
    wnpu_session *now = s[0];
    uint64_t at = 0;
    int status;
    life_mode_params(&sounds, LIFE_WORDS, toy, &p);
    wnpu_stream_options_init(&o, sizeof o);
    o.format = WNPU_SAMPLE_F32;
    status = wnpu_stream_begin(now, &p, &o);
    while (at < sounds.plain.frames && status >= WNPU_OK) {
        size_t n = sounds.plain.frames - at < 5000 ? (size_t)(sounds.plain.frames - at) : 5000;
        at += wnpu_stream_push(now, x + at, n);
        if (now == s[0] && at > 200000) {
            size_t size = wnpu_snapshot_size(now);
            T_CHECK(size > 0 && size <= sizeof block && wnpu_snapshot(now, block, size) == WNPU_OK
                    && wnpu_restore(s[1], block, size) == WNPU_OK &&
                    wnpu_reset(now) == WNPU_OK, "snapshot");
            now = s[1];
            status = wnpu_stream_resume(now, &p);
        }
        status = status >= WNPU_OK ? wnpu_stream_step(now, NULL) : status;
    }
    T_CHECK(status >= WNPU_OK && wnpu_stream_finish(now) >= WNPU_OK, "live: %s",
            wnpu_session_error(now));
    life_json(now, &text);
    T_CHECK(life_same(&text, &answer[LIFE_WORDS]), "live: another answer");
}

/* Calls that fail must not allocate either. */
static void all_failures(wnpu_session *s, int toy)
{
    wnpu_model_info info;
    wnpu_params p;
    wnpu_audio a = sounds.plain;
    const char *phrase = "";
    wnpu_choice choice;
    life_mode_params(&sounds, LIFE_GREEDY, toy, &p);
    p.temperature = 3.0f;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_E_ARGUMENT, "temperature");
    p.temperature = 0.0f;
    p.initial_prompt = wnpu_version() > 0 ? "\xff\xfe broken \xc3" : NULL;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
    choice.struct_size = sizeof choice;
    T_CHECK(wnpu_choose(s, NULL, &a, &phrase, 1, &choice) == WNPU_E_ARGUMENT, "no phrase");
    a.rate = 1;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_E_ARGUMENT, "rate");
    T_CHECK(wnpu_reset(s) == WNPU_OK && wnpu_segment_count(s) == 0, "reset");
    info.struct_size = sizeof info;
    T_CHECK(wnpu_model_get_info(s->run.engine.model, &info) == WNPU_OK, "info");
}

static int run_now(void *user, const wnpu_segment *segment)
{
    wnpu_memory memory;
    memory.struct_size = sizeof memory;
    T_CHECK(segment->text_length > 0 && wnpu_get_memory(user, &memory) == WNPU_OK &&
            memory.results_used > 0, "asked from a callback");
    return 0;
}

static void with_model(const wnpu_model *m, int toy)
{
    wnpu_config c;
    wnpu_session *s[3] = {NULL, NULL, NULL};
    wnpu_error error;
    wnpu_params p;
    unsigned i;
    memset(answer, 0, sizeof answer);
    wnpu_config_init(&c, sizeof c);
    c.max_phrase_tokens = 1 << 16;
    c.result_bytes = 1 << 20;
    c.stream_bytes = 1 << 16;
    for (i = 0; i < 3; i++) {
        c.threads = i + 1;
        T_CHECK(wnpu_session_open(&s[i], m, &c, NULL, 0, &error) == WNPU_OK, "%s", error.message);
    }
    __atomic_store_n(&sealed, 1, __ATOMIC_SEQ_CST);
    all_modes(s[1], "2 threads", toy);
    if (toy) {
        all_modes(s[0], "1 thread", toy);
        all_modes(s[2], "3 threads", toy);
    }
    all_failures(s[0], toy);
    snapshots(s, toy);
    live(s, toy);
    life_mode_params(&sounds, LIFE_GREEDY, toy, &p);
    p.on_segment = run_now;
    p.user = s[1];
    T_CHECK(wnpu_transcribe(s[1], &p, &sounds.plain) == WNPU_OK, "%s", wnpu_session_error(s[1]));
    __atomic_store_n(&sealed, 0, __ATOMIC_SEQ_CST);
    for (i = 0; i < 3; i++) {
        wnpu_session_close(s[i]);
    }
}

static void on_a_toy(void)
{
    wnpu_model *m = life_toy(7, NULL);
    life_make_sounds(&sounds, 33, 0);
    with_model(m, 1);
    life_free_sounds(&sounds);
    wnpu_model_close(m);
}

static void on_a_real_model(void)
{
    char path[512];
    wnpu_model *m = NULL;
    wnpu_error error;
    if (life_cached(path, sizeof path, "ggml-tiny.bin")[0] == '\0') {
        t_skip("examples/fetch.sh tiny fetches the model");
        return;
    }
    T_CHECK(wnpu_model_open(&m, path, NULL, &error) == WNPU_OK, "%s", error.message);
    life_make_sounds(&sounds, 12, 1);
    with_model(m, 0);
    life_free_sounds(&sounds);
    wnpu_model_close(m);
}

/* The same in a child that may make no system call for memory or threads at all. */
static void by_the_kernel(void)
{
#ifdef SECCOMP_MODE_FILTER
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s;
    pid_t child;
    int status = -1;
    life_make_sounds(&sounds, 33, 0);
    memset(answer, 0, sizeof answer);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        struct sigaction action;
        int forbidden;
        memset(&action, 0, sizeof action);
        action.sa_sigaction = on_forbidden;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGSYS, &action, NULL);
        s = life_session(m, 1); /* the filter holds for this thread, so it does all the work */
        forbidden = forbid_calls();
        if (!forbidden) {
            _exit(77);
        }
        all_modes(s, "kernel", 1);
        all_failures(s, 1);
        fflush(stdout);
        _exit(t_bad > 0);
    }
    T_CHECK(child > 0 && waitpid(child, &status, 0) == child, "no child");
    life_free_sounds(&sounds);
    wnpu_model_close(m);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        printf("  the kernel has no filter for system calls here\n");
        return;
    }
    T_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
#endif
}

/* The seal itself: it must break. */
static void the_seal_holds(void)
{
#ifdef SEAL
    pid_t child;
    int status = 0;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        void *volatile memory; /* or the compiler drops the call */
        (void)close(2);
        __atomic_store_n(&sealed, 1, __ATOMIC_SEQ_CST);
        memory = malloc(1);
        free(memory);
        _exit(0);
    }
    T_CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
            WTERMSIG(status) == SIGABRT, "malloc went unnoticed");
#endif
}

/* ---- sizes ---- */

typedef struct bytes {
    unsigned char *data;
    size_t size;
} bytes;

static int64_t bytes_read(void *user, uint64_t offset, void *buffer, size_t size)
{
    const bytes *b = user;
    size_t n = offset < b->size ? b->size - (size_t)offset : 0;
    n = n < size ? n : size;
    memcpy(buffer, b->data + offset, n);
    return (int64_t)n;
}

static int64_t bytes_write(void *user, const void *data, size_t size)
{
    bytes *b = user;
    memcpy(b->data + b->size, data, size);
    b->size += size;
    return (int64_t)size;
}

static void same_as_promised(bytes *file, int in_place, const wnpu_model_config *config,
                             const char *what)
{
    life_counter *c = config->allocator->user;
    wnpu_model_memory memory;
    wnpu_source source;
    wnpu_model *m = NULL;
    wnpu_model_info info;
    wnpu_error error;
    int status;
    life_count(c);
    source.read = bytes_read;
    source.size = file->size;
    source.user = file;
    memory.struct_size = sizeof memory;
    T_CHECK(wnpu_model_measure_source(&source, config, &memory, &error) == WNPU_OK, "%s: %s", what,
            error.message);
    T_CHECK(c->bytes == 0 && c->most < 512 << 10, "%s: measuring took %lu bytes and kept %lu", what,
            (unsigned long)c->most, (unsigned long)c->bytes);
    c->most = 0;
    status = in_place ? wnpu_model_open_static(&m, file->data, file->size, config, &error)
                      : wnpu_model_open_source(&m, &source, config, &error);
    T_CHECK(status == WNPU_OK, "%s: %s", what, error.message);
    if (status != WNPU_OK) {
        return;
    }
    if (!in_place) {
        memory.held += memory.shared;
        memory.peak += memory.shared;
        memory.shared = 0;
    }
    info.struct_size = sizeof info;
    (void)wnpu_model_get_info(m, &info);
    T_CHECK(memory.held == c->bytes && memory.held == info.bytes, "%s: %llu bytes promised, %lu held",
            what, (unsigned long long)memory.held, (unsigned long)c->bytes);
    T_CHECK(memory.shared == info.shared_bytes, "%s: %llu bytes shared", what,
            (unsigned long long)memory.shared);
    T_CHECK(memory.peak == c->most, "%s: peak of %llu bytes promised, %lu taken", what,
            (unsigned long long)memory.peak, (unsigned long)c->most);
    wnpu_model_close(m);
    T_CHECK(c->bytes == 0, "%s: %lu bytes not given back", what, (unsigned long)c->bytes);
}

static void model_sizes(void)
{
    static const int types[] = {TOY_F32, TOY_F16, TOY_Q4_0, TOY_Q5_1, TOY_Q8_0};
    wnpu_model_config config;
    life_counter c;
    size_t i;
    life_count(&c);
    for (i = 0; i < sizeof types / sizeof types[0]; i++) {
        toy_options o = toy_small();
        bytes file, pack;
        wnpu_model *m;
        o.type = types[i];
        file.data = toy_model(&o, &file.size);
        pack.data = aligned_alloc(64, (size_t)8 << 20);
        pack.size = 0;
        wnpu_model_config_init(&config, sizeof config);
        T_CHECK(wnpu_model_open_memory(&m, file.data, file.size, NULL, NULL) == WNPU_OK &&
                wnpu_model_save(m, bytes_write, &pack, NULL) == WNPU_OK, "pack");
        wnpu_model_close(m);
        config.allocator = &c.allocator;
        same_as_promised(&file, 0, &config, "ggml");
        same_as_promised(&pack, 0, &config, "pack through callbacks");
        same_as_promised(&pack, 1, &config, "pack in place");
        config.copy = 1;
        same_as_promised(&pack, 1, &config, "pack copied");
        config.copy = 0;
        config.keep_float = 1;
        same_as_promised(&file, 0, &config, "ggml with float weights");
        free(file.data);
        free(pack.data);
    }
}

static void model_size_refusals(void)
{
    wnpu_model_memory memory;
    wnpu_source source;
    wnpu_error error;
    bytes none = {(unsigned char *)"no model at all", 15};
    source.read = bytes_read;
    source.size = none.size;
    source.user = &none;
    memory.struct_size = sizeof memory;
    T_CHECK(wnpu_model_measure_source(&source, NULL, &memory, &error) == WNPU_E_MODEL &&
            error.message[0], "%s", error.message);
    T_CHECK(wnpu_model_measure_source(NULL, NULL, &memory, &error) == WNPU_E_ARGUMENT, "no source");
    T_CHECK(wnpu_model_measure_source(&source, NULL, NULL, &error) == WNPU_E_ARGUMENT, "no room");
    T_CHECK(wnpu_model_measure(NULL, NULL, &memory, &error) == WNPU_E_ARGUMENT, "no path");
    T_CHECK(wnpu_model_measure("/nowhere/at all", NULL, &memory, &error) == WNPU_E_IO &&
            strstr(error.message, "/nowhere") != NULL, "%s", error.message);
}

/* A block with pages on both sides that nobody may touch; the session's end is the block's end. */
static unsigned char *fenced(size_t size, unsigned char **map, size_t *map_size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (size + page - 1) / page * page;
    *map_size = body + 2 * page;
    *map = mmap(NULL, *map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*map == MAP_FAILED || mprotect(*map, page, PROT_NONE) != 0 ||
        mprotect(*map + page + body, page, PROT_NONE) != 0) {
        return NULL;
    }
    memset(*map + page, 0xa5, body);
    return *map + page + body - size;
}

static void session_sizes(void)
{
    wnpu_model *m = life_toy(7, NULL);
    unsigned threads;
    life_make_sounds(&sounds, 10, 0);
    for (threads = 1; threads <= 3; threads++) {
        wnpu_config c;
        wnpu_session *s = NULL;
        wnpu_memory memory;
        wnpu_error error;
        unsigned char *map, *block;
        size_t size, map_size, left;
        int mode;
        wnpu_config_init(&c, sizeof c);
        c.threads = threads;
        c.result_bytes = threads << 20;
        c.max_beams = 3 + 2 * threads;
        c.max_phrase_tokens = 1 << 16;
        c.batch = 2 * (threads - 1);
        size = wnpu_session_size(m, &c, &error);
        T_CHECK(size > 0 && size % 64 == 0, "%s", error.message);
        block = fenced(size, &map, &map_size);
        T_CHECK(block != NULL, "no memory for the test");
        T_CHECK(wnpu_session_open(&s, m, &c, block, size - 1, &error) == WNPU_E_MEMORY &&
                s == NULL && strstr(error.message, "bytes") != NULL, "a byte too few: %s",
                error.message);
        T_CHECK(wnpu_session_open(&s, m, &c, block, size, &error) == WNPU_OK, "%s", error.message);
        for (mode = 0; mode < LIFE_MODES; mode++) {
            T_CHECK(life_run(&sounds, mode, 1, s) == WNPU_OK, "%s: %s", life_modes[mode],
                    wnpu_session_error(s));
        }
        memory.struct_size = sizeof memory;
        T_CHECK(wnpu_get_memory(s, &memory) == WNPU_OK && memory.session == size &&
                memory.results == c.result_bytes && memory.accel == 0, "told otherwise");
        T_CHECK(memory.results_used <= memory.results_peak && memory.results_peak > 0 &&
                memory.results_peak < memory.results, "%llu of at most %llu bytes of results",
                (unsigned long long)memory.results_used, (unsigned long long)memory.results_peak);
        /* All of the promise is used: the last piece ends where the block does. */
        for (left = size; left > 0 && block[left - 1] == 0xa5; left--) {
        }
        T_CHECK(size - left < 64 << 10, "%lu bytes at the end were never touched",
                (unsigned long)(size - left));
        wnpu_session_close(s);
        (void)munmap(map, map_size);
    }
    life_free_sounds(&sounds);
    wnpu_model_close(m);
}

/* Only what is asked for is counted. */
static void asking(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = life_session(m, 1);
    wnpu_memory memory;
    uint64_t used;
    wnpu_params p;
    life_make_sounds(&sounds, 31, 0);
    memory.struct_size = sizeof memory;
    T_CHECK(wnpu_get_memory(s, &memory) == WNPU_OK && memory.results_used == 0 &&
            memory.results_peak == 0, "a new session");
    life_mode_params(&sounds, LIFE_HOTWORDS, 1, &p);
    T_CHECK(wnpu_transcribe(s, &p, &sounds.plain) == WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(wnpu_get_memory(s, &memory) == WNPU_OK && memory.results_used > 0 &&
            memory.results_used == memory.results_peak && memory.phrase_tokens > LIFE_PHRASES,
            "after a run");
    used = memory.results_used;
    T_CHECK(wnpu_reset(s) == WNPU_OK && wnpu_get_memory(s, &memory) == WNPU_OK &&
            memory.results_used == 0 && memory.results_peak == used && memory.phrase_tokens == 0,
            "after a reset");
    memory.struct_size = offsetof(wnpu_memory, results);
    memory.results = 77;
    T_CHECK(wnpu_get_memory(s, &memory) == WNPU_OK && memory.results == 77, "an older caller");
    T_CHECK(wnpu_get_memory(NULL, &memory) == WNPU_E_ARGUMENT, "no session");
    wnpu_session_close(s);
    life_free_sounds(&sounds);
    wnpu_model_close(m);
}

/* Live runs, one to the end and one that is left open. */
static void run_live(wnpu_session *s)
{
    wnpu_stream_options o = life_stream(&sounds.plain, 0);
    wnpu_params p;
    uint64_t at = 0;
    life_mode_params(&sounds, LIFE_WORDS, 1, &p);
    T_CHECK(wnpu_stream_begin(s, &p, &o) == WNPU_OK, "%s", wnpu_session_error(s));
    while (at < sounds.plain.frames) {
        life_push(s, &sounds.plain, &at, 8000);
        T_CHECK(wnpu_stream_step(s, NULL) >= 0, "%s", wnpu_session_error(s));
    }
    T_CHECK(wnpu_stream_finish(s) >= 0, "%s", wnpu_session_error(s));
    T_CHECK(wnpu_stream_begin(s, &p, &o) == WNPU_OK, "%s", wnpu_session_error(s));
    for (at = 0; at < 8 * 16000;) {
        life_push(s, &sounds.plain, &at, 8000);
        T_CHECK(wnpu_stream_step(s, NULL) >= 0, "%s", wnpu_session_error(s));
    }
}

/* Every byte that a run writes to is again what it was when the session was opened. */
static void reset_is_complete(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = NULL;
    wnpu_error error;
    wnpu_config c;
    unsigned char *block, *opened;
    size_t size, state = offsetof(wnpu_session, run) + offsetof(ru_run, decoder), end, i;
    int mode;
    life_make_sounds(&sounds, 31, 0);
    c = life_config(2);
    c.stream_bytes = 1 << 18;
    c.voice_dimension = 4;
    c.batch = 2;
    size = wnpu_session_size(m, &c, &error);
    block = aligned_alloc(64, size);
    opened = malloc(size);
    memset(block, 0, size);
    T_CHECK(wnpu_session_open(&s, m, &c, block, size, &error) == WNPU_OK, "%s", error.message);
    end = offsetof(wnpu_session, run) + sizeof s->run;
    memcpy(opened, block, size);
    for (mode = 0; mode <= LIFE_MODES; mode++) {
        size_t differ = 0, at = 0, peak = s->run.out.store.peak;
        if (mode < LIFE_MODES) {
            T_CHECK(life_run(&sounds, mode, 1, s) == WNPU_OK, "%s", wnpu_session_error(s));
        } else {
            run_live(s);
        }
        T_CHECK(memcmp(block + s->kept, opened + s->kept, size - s->kept) != 0, "nothing ran");
        T_CHECK(wnpu_reset(s) == WNPU_OK && s->run.out.store.peak >= peak, "reset");
        s->run.out.store.peak = ((wnpu_session *)(void *)opened)->run.out.store.peak;
        s->run.work.reported_at = ((wnpu_session *)(void *)opened)->run.work.reported_at;
        for (i = state; i < size; i++) {
            if (i == end) {
                i = s->kept;
            }
            at = block[i] != opened[i] && differ++ == 0 ? i : at;
        }
        T_CHECK(differ == 0, "%s: %lu bytes differ, the first is %lu of %lu",
                mode < LIFE_MODES ? life_modes[mode] : "live", (unsigned long)differ,
                (unsigned long)at, (unsigned long)size);
    }
    wnpu_session_close(s);
    free(block);
    free(opened);
    life_free_sounds(&sounds);
    wnpu_model_close(m);
}

int main(void)
{
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    t_run("what a model takes is told before", model_sizes);
    t_run("measuring what is no model", model_size_refusals);
    t_run("what a session takes is told before, to the byte", session_sizes);
    t_run("memory in use can be asked for", asking);
    t_run("a reset session is a new one, to the byte", reset_is_complete);
    t_run("the seal breaks when something is allocated", the_seal_holds);
    t_run("nothing is allocated, mapped or started after opening", on_a_toy);
    t_run("nor with a real model", on_a_real_model);
    t_run("nor by libc, as the kernel sees it", by_the_kernel);
    return t_end();
}
