/*
 * whisper_npu.c - the whole pipeline of whisper_npu: a recording in, its text out.
 * One translation unit, in dependency order: a reader may stop at any section and has understood
 * everything above it. whisper_npu.h is the contract.
 *
 *    1. er_  build switches, types, errors
 *    2. ar_  arena and checked sizes
 *    3. tp_  thread pool and parallel-for
 *    4. cp_  CPU features
 *    5. mt_  maths in 16 lanes
 *    6. au_  audio: sample formats, channel mixing, resampling, WAV
 *    7. ft_  FFT and ml_ log-mel
 */

/* ======================================================================
 *  1. er_  build switches, types, errors
 *
 *  Owns      feature macros, compiler pragmas, error formatting, shared
 *            small helpers.
 *  Assumes   gcc >= 7 or clang >= 7, IEEE 754 floats, 8-bit bytes.
 *  Ensures   nothing below this section needs compiler flags.
 *  Costs     nothing.
 *
 *  Build switches, all off by default:
 *    WNPU_NO_THREADS  no pthreads: every session runs in its caller's thread
 *    WNPU_NO_SIMD     no instruction set above the baseline of the compiler
 *    WNPU_NO_STDIO    no FILE: wnpu_model_open() answers E_UNSUPPORTED
 * ====================================================================== */
#if defined(__FAST_MATH__)
#error "whisper_npu.c must not be compiled with -ffast-math: results would differ between machines"
#endif

#if !defined(_POSIX_C_SOURCE) && !defined(_GNU_SOURCE)
#define _POSIX_C_SOURCE 200809L /* clock_gettime and sysconf under -std=c99 */
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64 /* models above 2 GB on 32-bit machines */
#endif

/* Contraction of a*b+c into a fused operation changes results with the instruction set. gcc knows
 * only its own pragma (and contracts even intrinsics without it), clang only the standard one. gcc
 * can also be told to optimise when the user gave no flag. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#ifndef __OPTIMIZE__
#pragma GCC optimize("O3")
#endif
#endif

#include "whisper_npu.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifndef WNPU_NO_THREADS
#include <pthread.h>
#endif

#if !defined(WNPU_NO_SIMD) && (defined(__x86_64__) || defined(__i386__))
#define WNPU_X86 1
#include <immintrin.h>
#elif !defined(WNPU_NO_SIMD) && defined(__aarch64__)
#define WNPU_ARM 1
#include <arm_neon.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

#define WNPU_INLINE static inline __attribute__((always_inline, unused))

/* A configuration structure as its user knows it may be shorter or longer than ours. The known
 * part is copied over defaults; a longer one must hold zeros where we know nothing. */
static int er_import(void *ours, size_t our_size, const void *theirs, uint32_t their_size)
{
    size_t i;
    if (their_size < sizeof(uint32_t) || their_size > 65536u) {
        return WNPU_E_VERSION;
    }
    for (i = our_size; i < their_size; i++) {
        if (((const unsigned char *)theirs)[i] != 0) {
            return WNPU_E_VERSION;
        }
    }
    memcpy(ours, theirs, their_size < our_size ? their_size : our_size);
    return WNPU_OK;
}

/* Fills *error, if there is one, and returns code: `return er_set(error, WNPU_E_IO, "...")`. */
__attribute__((format(printf, 3, 4)))
static int er_set(wnpu_error *error, int code, const char *format, ...)
{
    if (error != NULL) {
        va_list args;
        va_start(args, format);
        error->code = code;
        (void)vsnprintf(error->message, sizeof error->message, format, args);
        va_end(args);
    }
    return code;
}

static void er_clear(wnpu_error *error)
{
    if (error != NULL) {
        error->code = WNPU_OK;
        error->message[0] = '\0';
    }
}

__attribute__((format(printf, 4, 5)))
static void er_log(wnpu_log_fn log, void *user, wnpu_log_level level, const char *format, ...)
{
    if (log != NULL) {
        char text[512];
        va_list args;
        va_start(args, format);
        (void)vsnprintf(text, sizeof text, format, args);
        va_end(args);
        log(user, level, text);
    }
}

static double er_now_ms(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0) {
        return 0.0;
    }
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

WNPU_API uint32_t wnpu_version(void)
{
    return WNPU_VERSION_MAJOR * 10000u + WNPU_VERSION_MINOR * 100u + WNPU_VERSION_PATCH;
}

WNPU_API const char *wnpu_strerror(int code)
{
    switch (code) {
    case WNPU_OK: return "ok";
    case WNPU_INCOMPLETE: return "incomplete";
    case WNPU_E_ARGUMENT: return "bad argument";
    case WNPU_E_MEMORY: return "out of memory";
    case WNPU_E_IO: return "input or output failed";
    case WNPU_E_MODEL: return "bad model file";
    case WNPU_E_AUDIO: return "bad audio";
    case WNPU_E_CANCELLED: return "cancelled";
    case WNPU_E_UNSUPPORTED: return "unsupported";
    case WNPU_E_STATE: return "wrong state";
    case WNPU_E_FULL: return "result store full";
    case WNPU_E_ACCEL: return "accelerator failed";
    case WNPU_E_VERSION: return "version mismatch";
    case WNPU_E_INTERNAL: return "internal error";
    default: return "unknown error";
    }
}

/* ======================================================================
 *  2. ar_  arena and checked sizes
 *
 *  Owns      the layout of every block of memory the library holds.
 *  Assumes   the block, when there is one, is aligned to 64 bytes.
 *  Ensures   measuring (base NULL) and taking walk the same code, so the
 *            measured size is exact; sizes that overflow are caught.
 *  Costs     at most 63 bytes of padding for each piece.
 * ====================================================================== */
#define AR_ALIGN 64u

typedef struct ar_arena {
    unsigned char *base; /* NULL while measuring */
    size_t size;         /* bytes at base */
    size_t used;         /* bytes taken so far */
    int overflow;        /* a size did not fit into size_t */
} ar_arena;

static int ar_mul(size_t a, size_t b, size_t *product)
{
    return __builtin_mul_overflow(a, b, product) ? -1 : 0;
}

static int ar_add(size_t a, size_t b, size_t *sum)
{
    return __builtin_add_overflow(a, b, sum) ? -1 : 0;
}

/* count elements of elem bytes, aligned to 64 and not cleared; NULL while measuring, or when the
 * block is too small (then used passes size, which the caller checks once at the end). */
static void *ar_take(ar_arena *arena, size_t count, size_t elem)
{
    size_t bytes, end, start = arena->used;
    if (ar_mul(count, elem, &bytes) != 0 || ar_add(bytes, AR_ALIGN - 1, &bytes) != 0 ||
        ar_add(start, bytes & ~(size_t)(AR_ALIGN - 1), &end) != 0) {
        arena->overflow = 1;
        return NULL;
    }
    arena->used = end;
    if (arena->base == NULL || end > arena->size) {
        return NULL;
    }
    return arena->base + start;
}

static void *ar_malloc(void *user, size_t size, size_t alignment)
{
    void *memory = NULL;
    (void)user;
    return posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment,
                          size) == 0 ? memory : NULL;
}

static void ar_free(void *user, void *memory, size_t size)
{
    (void)user;
    (void)size;
    free(memory);
}

static wnpu_allocator ar_allocator(const wnpu_allocator *given)
{
    wnpu_allocator standard;
    standard.alloc = ar_malloc;
    standard.release = ar_free;
    standard.user = NULL;
    return given != NULL ? *given : standard;
}

/* memset that a compiler may not drop because the memory is released next. */
static void ar_wipe(void *memory, size_t size)
{
    memset(memory, 0, size);
    __asm__ __volatile__("" : : "r"(memory) : "memory");
}

/* ======================================================================
 *  3. tp_  thread pool and parallel-for
 *
 *  Owns      the worker threads of one session.
 *  Assumes   one caller at a time; tasks do not call tp_run().
 *  Ensures   each index runs exactly once; tp_run() returns when all are
 *            done, and does not wait for workers that never woke up.
 *  Costs     about a microsecond while workers still spin, a futex wake
 *            after that. An idle pool uses no CPU.
 *
 *  A job is published in one 64-bit word: generation << 32 | items left.
 *  A worker claims an item by counting the word down with compare-and-
 *  swap, so a claim can never touch a job that is over, and the job's
 *  fields stay put until all claimed items are done.
 * ====================================================================== */
typedef void (*tp_task)(void *context, size_t index, unsigned worker);

#define TP_MAX_THREADS 64u
#define TP_SPINS 2000u /* about 20 to 60 microseconds of pause instructions */

typedef struct tp_pool {
    unsigned threads;       /* workers that may run at once, the caller (worker 0) included */
    uint64_t ticket;        /* atomic: generation << 32 | items not yet claimed */
    uint64_t pending;       /* atomic: items not yet finished */
    tp_task task;
    void *context;
    size_t count;
    wnpu_parallel_for_fn host; /* NULL: own threads */
    void *host_user;
    const int *cancel;      /* atomic: when non-zero, remaining items are skipped */
#ifndef WNPU_NO_THREADS
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    unsigned started, sleepers; /* sleepers: atomic, changed under lock */
    int caller_sleeps;          /* atomic, changed under lock */
    int quit;                   /* atomic */
    struct tp_worker {
        struct tp_pool *pool;
        pthread_t thread;
        unsigned index;
    } workers[TP_MAX_THREADS];
#endif
} tp_pool;

WNPU_INLINE void tp_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Claims and runs items until none is left. */
static void tp_drain(tp_pool *pool, unsigned worker)
{
    uint64_t ticket = __atomic_load_n(&pool->ticket, __ATOMIC_ACQUIRE);
    while ((uint32_t)ticket != 0) {
        size_t index;
        if (!__atomic_compare_exchange_n(&pool->ticket, &ticket, ticket - 1, 0,
                                         __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            continue;
        }
        index = pool->count - (size_t)(uint32_t)ticket;
        if (pool->cancel == NULL || !__atomic_load_n(pool->cancel, __ATOMIC_RELAXED)) {
            pool->task(pool->context, index, worker);
        }
        if (__atomic_sub_fetch(&pool->pending, 1, __ATOMIC_ACQ_REL) == 0) {
#ifndef WNPU_NO_THREADS
            if (worker != 0 && __atomic_load_n(&pool->caller_sleeps, __ATOMIC_SEQ_CST)) {
                pthread_mutex_lock(&pool->lock);
                pthread_cond_signal(&pool->finished);
                pthread_mutex_unlock(&pool->lock);
            }
#endif
        }
        ticket = __atomic_load_n(&pool->ticket, __ATOMIC_ACQUIRE);
    }
}

static void tp_host_lane(void *context, size_t lane)
{
    tp_drain(context, (unsigned)lane);
}

#ifndef WNPU_NO_THREADS
static int tp_has_work(tp_pool *pool)
{
    return (uint32_t)__atomic_load_n(&pool->ticket, __ATOMIC_SEQ_CST) != 0 ||
           __atomic_load_n(&pool->quit, __ATOMIC_SEQ_CST);
}

static void *tp_main(void *argument)
{
    struct tp_worker *self = argument;
    tp_pool *pool = self->pool;
    for (;;) {
        unsigned spins = 0;
        while (!tp_has_work(pool) && spins++ < TP_SPINS) {
            tp_pause();
        }
        if (!tp_has_work(pool)) {
            pthread_mutex_lock(&pool->lock);
            __atomic_add_fetch(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
            while (!tp_has_work(pool)) {
                pthread_cond_wait(&pool->work, &pool->lock);
            }
            __atomic_sub_fetch(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
            pthread_mutex_unlock(&pool->lock);
        }
        if (__atomic_load_n(&pool->quit, __ATOMIC_SEQ_CST)) {
            return NULL;
        }
        tp_drain(pool, self->index);
    }
}

/* The caller has no item left and waits for those that workers hold. */
static void tp_wait(tp_pool *pool)
{
    unsigned spins = 0;
    while (__atomic_load_n(&pool->pending, __ATOMIC_ACQUIRE) != 0 && spins++ < TP_SPINS) {
        tp_pause();
    }
    if (__atomic_load_n(&pool->pending, __ATOMIC_ACQUIRE) == 0) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    __atomic_store_n(&pool->caller_sleeps, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&pool->pending, __ATOMIC_SEQ_CST) != 0) {
        pthread_cond_wait(&pool->finished, &pool->lock);
    }
    __atomic_store_n(&pool->caller_sleeps, 0, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&pool->lock);
}
#endif

/* Runs task(context, i, worker) for i in 0..count-1; worker is below pool->threads and no two
 * tasks run at once with the same one. */
static void tp_run(tp_pool *pool, size_t count, tp_task task, void *context)
{
    uint64_t generation;
    if (count == 0) {
        return;
    }
    generation = (__atomic_load_n(&pool->ticket, __ATOMIC_RELAXED) >> 32) + 1;
    pool->task = task;
    pool->context = context;
    pool->count = count;
    __atomic_store_n(&pool->pending, (uint64_t)count, __ATOMIC_RELAXED);
    __atomic_store_n(&pool->ticket, generation << 32 | (uint32_t)count, __ATOMIC_SEQ_CST);
    if (pool->host != NULL && pool->threads > 1 && count > 1) {
        pool->host(pool->host_user, pool->threads, tp_host_lane, pool);
        return;
    }
#ifndef WNPU_NO_THREADS
    if (pool->started > 0 && count > 1) {
        if (__atomic_load_n(&pool->sleepers, __ATOMIC_SEQ_CST) != 0) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_broadcast(&pool->work);
            pthread_mutex_unlock(&pool->lock);
        }
        tp_drain(pool, 0);
        tp_wait(pool);
        return;
    }
#endif
    tp_drain(pool, 0);
#ifndef WNPU_NO_THREADS
    if (pool->started > 0) {
        tp_wait(pool); /* a spinning worker may have taken the only item */
    }
#endif
}

static void tp_close(tp_pool *pool)
{
#ifndef WNPU_NO_THREADS
    unsigned i;
    if (pool->host != NULL || pool->threads <= 1) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    __atomic_store_n(&pool->quit, 1, __ATOMIC_SEQ_CST);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (i = 0; i < pool->started; i++) {
        pthread_join(pool->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
#else
    (void)pool;
#endif
}

/* Starts threads - 1 workers unless the host brings its own parallel-for. */
static int tp_open(tp_pool *pool, unsigned threads, wnpu_parallel_for_fn host, void *host_user,
                   const int *cancel, wnpu_error *error)
{
    memset(pool, 0, sizeof *pool);
    pool->threads = threads;
    pool->host = host;
    pool->host_user = host_user;
    pool->cancel = cancel;
#ifdef WNPU_NO_THREADS
    (void)error;
    if (host == NULL) {
        pool->threads = 1;
    }
#else
    if (host != NULL || threads <= 1) {
        return WNPU_OK;
    }
    if (pthread_mutex_init(&pool->lock, NULL) != 0) {
        return er_set(error, WNPU_E_MEMORY, "cannot create a mutex");
    }
    if (pthread_cond_init(&pool->work, NULL) != 0) {
        pthread_mutex_destroy(&pool->lock);
        return er_set(error, WNPU_E_MEMORY, "cannot create a condition variable");
    }
    if (pthread_cond_init(&pool->finished, NULL) != 0) {
        pthread_cond_destroy(&pool->work);
        pthread_mutex_destroy(&pool->lock);
        return er_set(error, WNPU_E_MEMORY, "cannot create a condition variable");
    }
    while (pool->started < threads - 1) {
        struct tp_worker *worker = &pool->workers[pool->started];
        worker->pool = pool;
        worker->index = pool->started + 1;
        if (pthread_create(&worker->thread, NULL, tp_main, worker) != 0) {
            unsigned had = pool->started;
            tp_close(pool);
            return er_set(error, WNPU_E_MEMORY, "cannot create thread %u of %u; ask for fewer",
                          had + 2, threads);
        }
        pool->started++;
    }
#endif
    return WNPU_OK;
}

static unsigned tp_cpus(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1u : n > 64 ? 64u : (unsigned)n;
}

/* ======================================================================
 *  4. cp_  CPU features
 *
 *  Owns      the choice of instruction set.
 *  Assumes   nothing.
 *  Ensures   a set is named available only if the CPU has all of its
 *            instructions and the operating system saves its registers.
 *  Costs     a few CPUID instructions at session opening.
 * ====================================================================== */
#ifdef WNPU_X86
static int cp_x86(wnpu_isa isa)
{
    __builtin_cpu_init();
    switch (isa) {
    case WNPU_ISA_SSE41: return __builtin_cpu_supports("sse4.1") != 0;
    case WNPU_ISA_AVX2: return __builtin_cpu_supports("avx2") != 0;
    case WNPU_ISA_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
    default: return 0;
    }
}
#endif

#ifdef WNPU_ARM
static int cp_arm(wnpu_isa isa)
{
#if defined(__linux__)
    unsigned long caps = getauxval(AT_HWCAP), caps2 = getauxval(AT_HWCAP2);
#else
    unsigned long caps = 0, caps2 = 0;
#endif
    switch (isa) {
    case WNPU_ISA_NEON: return 1; /* part of the AArch64 baseline */
    case WNPU_ISA_NEON_DOT: return (caps & (1ul << 20)) != 0;  /* HWCAP_ASIMDDP */
    case WNPU_ISA_NEON_I8MM: /* HWCAP2_I8MM; implies the dot product in practice, check both */
        return (caps & (1ul << 20)) != 0 && (caps2 & (1ul << 13)) != 0;
    default: return 0;
    }
}
#endif

WNPU_API int wnpu_isa_available(wnpu_isa isa)
{
    if (isa == WNPU_ISA_AUTO || isa == WNPU_ISA_SCALAR) {
        return 1;
    }
#if defined(WNPU_X86)
    return cp_x86(isa);
#elif defined(WNPU_ARM)
    return cp_arm(isa);
#else
    return 0;
#endif
}

static const char *const cp_names[] = {
    "auto", "scalar", "sse4.1", "avx2", "avx512", "neon", "neon-dot", "neon-i8mm"
};
#define CP_ISAS ((int)(sizeof cp_names / sizeof cp_names[0]))

WNPU_API const char *wnpu_isa_name(wnpu_isa isa)
{
    return (int)isa >= 0 && (int)isa < CP_ISAS ? cp_names[isa] : NULL;
}

WNPU_API int wnpu_isa_from_name(const char *name)
{
    int i;
    for (i = 0; name != NULL && i < CP_ISAS; i++) {
        if (strcmp(name, cp_names[i]) == 0) {
            return i;
        }
    }
    return -1;
}

/* The highest available set; sets are numbered from slow to fast on each architecture. */
static wnpu_isa cp_best(void)
{
    int i;
    for (i = CP_ISAS - 1; i > WNPU_ISA_SCALAR; i--) {
        if (wnpu_isa_available((wnpu_isa)i)) {
            return (wnpu_isa)i;
        }
    }
    return WNPU_ISA_SCALAR;
}

/* ======================================================================
 *  5. mt_  maths in 16 lanes
 *
 *  Owns      exp, log, erf and reductions.
 *  Assumes   round to nearest even, no contraction (section 1).
 *  Ensures   the same bits on every instruction set: all float work is
 *            written once over 16 lanes with the compilers' vector
 *            extension, which lowers to whatever width a function's
 *            target has. Reductions add lane i to lane i+8, then i+4,
 *            i+2, i+1.
 *  Costs     exp about 14 operations, log about 16, GELU about 30.
 *
 *  Functions here are always inlined into callers that carry a target
 *  attribute; that is what gives them AVX2 or AVX-512 code.
 * ====================================================================== */
#ifdef WNPU_X86
#define MT_LANES 8u  /* gcc keeps vectors wider than the target's registers in memory */
#else
#define MT_LANES 4u
#endif
#define MT_PARTS (16u / MT_LANES)

typedef float mt_fv __attribute__((vector_size(MT_LANES * 4)));
typedef int32_t mt_iv __attribute__((vector_size(MT_LANES * 4)));
typedef int8_t mt_bv __attribute__((vector_size(MT_LANES)));
typedef uint16_t mt_sv __attribute__((vector_size(MT_LANES * 2)));
typedef float mt_fvu __attribute__((vector_size(MT_LANES * 4), aligned(4), may_alias));
typedef int32_t mt_ivu __attribute__((vector_size(MT_LANES * 4), aligned(4), may_alias));
typedef int8_t mt_bvu __attribute__((vector_size(MT_LANES), aligned(1), may_alias));
typedef uint16_t mt_svu __attribute__((vector_size(MT_LANES * 2), aligned(2), may_alias));

typedef struct mt_vec { mt_fv v; } mt_vec;
typedef struct mt_acc { mt_fv part[MT_PARTS]; } mt_acc; /* the 16 lanes of a reduction */

WNPU_INLINE void mt_vload(mt_vec *r, const float *p) { r->v = *(const mt_fvu *)p; }
WNPU_INLINE void mt_vstore(float *p, const mt_vec *a) { *(mt_fvu *)p = a->v; }
WNPU_INLINE void mt_vset(mt_vec *r, float x) { r->v = (mt_fv){0} + x; }

/* Nearest integer, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no fraction bits. */
#define MT_ROUND 12582912.0f

/* int32 to float, exact below 2^24. */
WNPU_INLINE void mt_vload_int(mt_vec *r, const int32_t *p)
{
    r->v = __builtin_convertvector(*(const mt_ivu *)p, mt_fv);
}

/* Rounds to the nearest integer, ties to even, and stores as int8; |a| <= 127. */
WNPU_INLINE void mt_vstore_int8(int8_t *p, const mt_vec *a)
{
    mt_iv i = (mt_iv)(a->v + MT_ROUND) - 0x4b400000;
    *(mt_bvu *)p = __builtin_convertvector(i, mt_bv);
}

/* The same as uint16; 0 <= a <= 65535. */
WNPU_INLINE void mt_vstore_uint16(uint16_t *p, const mt_vec *a)
{
    mt_iv i = (mt_iv)(a->v + MT_ROUND) - 0x4b400000;
    *(mt_svu *)p = __builtin_convertvector(i, mt_sv);
}

WNPU_INLINE void mt_vmax(mt_vec *r, const mt_vec *a)
{
    mt_iv gt = a->v > r->v;
    r->v = (mt_fv)((gt & (mt_iv)a->v) | (~gt & (mt_iv)r->v));
}

WNPU_INLINE void mt_vabs(mt_vec *r) { r->v = (mt_fv)((mt_iv)r->v & 0x7fffffff); }

/* Sum of x[0..15] in the one order; x is used up. */
WNPU_INLINE float mt_sum16(float *x)
{
    unsigned i, step;
    for (step = 8; step > 0; step >>= 1) {
        for (i = 0; i < step; i++) {
            x[i] += x[i + step];
        }
    }
    return x[0];
}

WNPU_INLINE float mt_acc_sum(const mt_acc *a)
{
    float x[16];
    unsigned i;
    for (i = 0; i < MT_PARTS; i++) {
        *(mt_fvu *)(x + i * MT_LANES) = a->part[i];
    }
    return mt_sum16(x);
}

WNPU_INLINE float mt_vmaximum(const mt_vec *a)
{
    float best = a->v[0];
    unsigned i;
    for (i = 1; i < MT_LANES; i++) {
        best = a->v[i] > best ? a->v[i] : best;
    }
    return best;
}

/* e^x for any x; below -87.3 the result is 0. Cody-Waite reduction, then the minimax polynomial
 * of Cephes expf (S. Moshier, 1989): largest error 2 units in the last place. */
WNPU_INLINE void mt_vexp(mt_vec *r)
{
    mt_fv x = r->v, k, t, p;
    mt_iv small = x < -87.3f, large = x > 88.0f;
    x = (mt_fv)((large & (mt_iv)((mt_fv){0} + 88.0f)) | (~large & (mt_iv)x));
    x = (mt_fv)(~small & (mt_iv)x);
    t = x * 1.44269504088896341f + MT_ROUND;
    k = t - MT_ROUND;
    x = x - k * 0.693359375f;
    x = x - k * -2.12194440e-4f;
    p = x * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * x + 8.3334519073e-3f;
    p = p * x + 4.1665795894e-2f;
    p = p * x + 1.6666665459e-1f;
    p = p * x + 5.0000001201e-1f;
    p = p * (x * x) + x + 1.0f;
    /* The integer k sits in the low bits of t; shifted into the exponent it scales by 2^k. */
    p = (mt_fv)((mt_iv)p + ((mt_iv)t << 23));
    r->v = (mt_fv)(~small & (mt_iv)p);
}

/* Natural logarithm of normal positive x. Reduction to sqrt(1/2)..sqrt(2), then the polynomial of
 * Cephes logf (S. Moshier, 1989): largest error 1 unit in the last place or so. */
WNPU_INLINE void mt_vlog(mt_vec *r)
{
    mt_iv bits = (mt_iv)r->v;
    mt_iv exponent = (bits >> 23) - 126;
    mt_fv m = (mt_fv)((bits & 0x007fffff) | 0x3f000000); /* 0.5..1 */
    mt_iv low = m < 0.707106781186547524f;
    mt_fv x, z, y, e;
    exponent += low; /* low is -1 where the mantissa is doubled */
    x = m + (mt_fv)(low & (mt_iv)m) - 1.0f;
    /* Small integers to float without a conversion instruction: put them into the mantissa. */
    e = (mt_fv)(exponent + 0x4b400000) - MT_ROUND;
    z = x * x;
    y = x * 7.0376836292e-2f - 1.1514610310e-1f;
    y = y * x + 1.1676998740e-1f;
    y = y * x - 1.2420140846e-1f;
    y = y * x + 1.4249322787e-1f;
    y = y * x - 1.6668057665e-1f;
    y = y * x + 2.0000714765e-1f;
    y = y * x - 2.4999993993e-1f;
    y = y * x + 3.3333331174e-1f;
    y = y * x * z;
    y = y + e * -2.12194440e-4f;
    y = y - z * 0.5f;
    r->v = x + y + e * 0.693359375f;
}

/* 0.5 x (1 + erf(x / sqrt 2)), the exact GELU that OpenAI's models were trained with. erf after
 * Abramowitz and Stegun 7.1.26, absolute error below 2e-7. */
WNPU_INLINE void mt_vgelu(mt_vec *r)
{
    mt_fv x = r->v, a, t, p;
    mt_vec e;
    mt_iv negative = x < 0.0f;
    a = (mt_fv)((mt_iv)x & 0x7fffffff) * 0.70710678118654752f;
    t = 1.0f / (1.0f + 0.3275911f * a);
    e.v = -(a * a);
    mt_vexp(&e);
    p = t * 1.061405429f - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    p = p * t * e.v; /* erfc(a), a >= 0 */
    /* x >= 0: x (2 - erfc) / 2; x < 0: x erfc / 2, which keeps precision in the tail. */
    t = 2.0f - p;
    p = (mt_fv)((negative & (mt_iv)p) | (~negative & (mt_iv)t));
    r->v = x * 0.5f * p;
}

/* Single values by the same code, so that scalar and vector users agree. */
static float mt_exp1(float x)
{
    mt_vec v;
    mt_vset(&v, x);
    mt_vexp(&v);
    return v.v[0];
}

static float mt_log1(float x)
{
    mt_vec v;
    mt_vset(&v, x);
    mt_vlog(&v);
    return v.v[0];
}

/* ======================================================================
 *  6. au_  audio: sample formats, channel mixing, resampling, WAV
 *
 *  Owns      everything between a caller's recording and 16 kHz mono.
 *  Assumes   a reader callback keeps to the buffer that it is given.
 *  Ensures   constant memory for any length and rate; output bits depend
 *            on the recording alone, not on how it is cut into blocks;
 *            output sample m belongs to the instant m / 16000 s of the
 *            recording, which is silent outside its frames; there are
 *            ceil(frames * 16000 / rate) of them. A rate of 16000 passes
 *            through untouched. Pass band flat within 0.1 dB to 7 kHz, or
 *            to 0.45 rate if that is lower; aliases and images of more
 *            than 80 dB below the signal.
 *  Costs     215 KiB; 16000 dot products of 48 to 560 taps a second of
 *            recording, twice that for rates with more phases than fit;
 *            up to a few ms when a stream opens with a new rate.
 * ====================================================================== */
#define AU_RATE 16000u      /* what Whisper's models hear */
#define AU_RATE_MIN 8000u
#define AU_RATE_MAX 192000u
#define AU_CHANNELS_MAX 256u
#define AU_LIMIT 4.0f       /* 12 dB above full scale, see the header */

#define AU_BANK 32768u      /* floats of filter coefficients, 128 KiB */
#define AU_HALF_MAX 280u    /* half the taps at AU_RATE_MAX */
#define AU_WINDOW 5120u     /* floats between source and filter */
#define AU_PROBE 1000000u   /* frames looked at for cancelling channels */
#define AU_RAW 65536u       /* bytes between a reader and the conversion */

typedef struct au_stream {
    wnpu_audio audio;       /* what was opened, with defaults beyond the caller's structure */
    size_t width, frame;    /* bytes of a sample and of a frame */
    uint64_t consumed;      /* frames taken from the source */
    int ended;              /* the source has no more, or failed */
    wnpu_error fault;       /* why it failed, if it did; reported after the last sample */

    unsigned char *raw;     /* [AU_RAW] what a reader delivered last */
    size_t raw_at, raw_have; /* frames in raw: given on, present */

    /* The filter bank, kept while streams of one rate follow each other. */
    uint32_t bank_rate;     /* the rate it is for, 0 if none */
    uint32_t phases;        /* an output lies at one of so many points between two inputs */
    uint32_t step, step_phase; /* from one output to the next: inputs and phases */
    uint32_t rows;          /* intervals that the bank divides one input sample into */
    size_t half, taps;      /* taps = 2 half, a multiple of 16 */
    float *bank;            /* [rows or rows + 1, taps] */

    float *window;          /* [AU_WINDOW] mono at the source's rate */
    size_t at;              /* first tap of the next output in window */
    size_t have, real;      /* floats in window; without the silence after the end */
    uint32_t phase;         /* of the next output */
} au_stream;

/* ---- samples ---- */

static const unsigned char au_widths[] = {4, 2, 1, 2, 3, 4, 4, 8, 1, 1}; /* wnpu_sample_format */

static uint32_t au_le16(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t au_le32(const unsigned char *p)
{
    return au_le16(p) | au_le16(p + 2) << 16;
}

static uint64_t au_le64(const unsigned char *p)
{
    return (uint64_t)au_le32(p) | (uint64_t)au_le32(p + 4) << 32;
}

/* All integer formats come here with their sign in bit 31. */
static float au_from_int(uint32_t bits)
{
    int32_t value;
    memcpy(&value, &bits, sizeof value);
    return (float)value * (1.0f / 2147483648.0f);
}

static float au_from_float(float x)
{
    if (!(x >= -AU_LIMIT && x <= AU_LIMIT)) { /* rare: too large, infinite or NaN */
        return !isfinite(x) ? 0.0f : x > 0.0f ? AU_LIMIT : -AU_LIMIT;
    }
    return x;
}

/* Limited before it becomes a float, where a large value would turn infinite. */
static float au_from_double(double x)
{
    if (!(x >= -AU_LIMIT && x <= AU_LIMIT)) {
        return !isfinite(x) ? 0.0f : x > 0.0 ? AU_LIMIT : -AU_LIMIT;
    }
    return (float)x;
}

/* ITU-T G.711: even bits are inverted; sign (1 is positive), 3 bits of segment, 4 of step. The
 * result is the middle of the step, in 16 bits. */
static uint32_t au_alaw(unsigned code)
{
    unsigned c = code ^ 0x55u, segment = c >> 4 & 7u;
    uint32_t value = (c & 15u) * 16u + 8u;
    if (segment > 0) {
        value = (value + 256u) << (segment - 1);
    }
    return c & 0x80u ? value : 0u - value;
}

/* ITU-T G.711: all bits are inverted; sign (1 is negative), segment, step; biased by 33 steps of
 * 4 so that each segment is twice as long as the one before. */
static uint32_t au_ulaw(unsigned code)
{
    unsigned c = ~code;
    uint32_t value = (((c & 15u) * 8u + 132u) << (c >> 4 & 7u)) - 132u;
    return c & 0x80u ? 0u - value : value;
}

WNPU_INLINE float au_sample(const unsigned char *p, int32_t format)
{
    uint64_t bits64;
    uint32_t bits;
    uint16_t bits16;
    double d;
    float f;
    switch (format) {
    case WNPU_SAMPLE_S16:
        memcpy(&bits16, p, sizeof bits16);
        return au_from_int((uint32_t)bits16 << 16);
    case WNPU_SAMPLE_U8: return au_from_int((uint32_t)(p[0] ^ 0x80u) << 24);
    case WNPU_SAMPLE_S16LE: return au_from_int(au_le16(p) << 16);
    case WNPU_SAMPLE_S24LE: return au_from_int(au_le16(p) << 8 | (uint32_t)p[2] << 24);
    case WNPU_SAMPLE_S32LE: return au_from_int(au_le32(p));
    case WNPU_SAMPLE_F32LE:
        bits = au_le32(p);
        memcpy(&f, &bits, sizeof f);
        return au_from_float(f);
    case WNPU_SAMPLE_F64LE:
        bits64 = au_le64(p);
        memcpy(&d, &bits64, sizeof d);
        return au_from_double(d);
    case WNPU_SAMPLE_ALAW: return au_from_int(au_alaw(p[0]) << 16);
    case WNPU_SAMPLE_ULAW: return au_from_int(au_ulaw(p[0]) << 16);
    default: /* WNPU_SAMPLE_F32; au_open() lets nothing else in */
        memcpy(&f, p, sizeof f);
        return au_from_float(f);
    }
}

/* out[i]: the chosen channel of frame i, or the mean of all, added up from channel 0. */
static void au_convert(const au_stream *s, const unsigned char *frames, float *out, size_t n)
{
    const int32_t format = s->audio.format;
    const size_t width = s->width, frame = s->frame, channels = s->audio.channels;
    size_t i, c;
    if (s->audio.channel >= 0 || channels == 1) {
        frames += s->audio.channel > 0 ? (size_t)s->audio.channel * width : 0;
        for (i = 0; i < n; i++) {
            out[i] = au_sample(frames + i * frame, format);
        }
        return;
    }
    for (i = 0; i < n; i++) {
        const unsigned char *p = frames + i * frame;
        float sum = au_sample(p, format);
        for (c = 1; c < channels; c++) {
            p += width;
            sum += au_sample(p, format);
        }
        out[i] = sum / (float)channels;
    }
}

/* Channels of opposite sign, as a balanced line recorded on two of them, have no mean. When the
 * mean of a recording in memory is 30 dB or more below its loudest channel, that channel is heard
 * instead. Looks at up to AU_PROBE frames spread over the whole. */
static void au_uncancel(au_stream *s)
{
    const size_t channels = s->audio.channels;
    const uint64_t step = s->audio.frames / AU_PROBE + 1;
    double mean_power = 0.0, power[AU_CHANNELS_MAX] = {0.0};
    size_t c, loudest = 0;
    uint64_t i;
    if (s->audio.read != NULL || s->audio.channel >= 0 || channels == 1) {
        return;
    }
    for (i = 0; i < s->audio.frames; i += step) {
        const unsigned char *p = (const unsigned char *)s->audio.data + (size_t)i * s->frame;
        double mean = 0.0;
        for (c = 0; c < channels; c++) {
            double x = (double)au_sample(p + c * s->width, s->audio.format);
            power[c] += x * x;
            mean += x / (double)channels;
        }
        mean_power += mean * mean;
    }
    for (c = 1; c < channels; c++) {
        loudest = power[c] > power[loudest] ? c : loudest;
    }
    if (mean_power < power[loudest] * 1e-3) {
        s->audio.channel = (int32_t)loudest;
    }
}

/* ---- source ---- */

/* Asks the reader for more. 0 when there is none; a failure ends the stream like an end, so that
 * what came before is still heard. */
static int au_fill_raw(au_stream *s)
{
    size_t room = AU_RAW / s->frame;
    int64_t got = s->audio.read(s->audio.user, s->raw, room);
    s->raw_at = 0;
    s->raw_have = 0;
    if (got < 0) {
        (void)er_set(&s->fault, WNPU_E_IO, "the audio reader failed with %lld after %llu frames",
                     (long long)got, (unsigned long long)s->consumed);
        return 0;
    }
    if ((uint64_t)got > room) {
        (void)er_set(&s->fault, WNPU_E_IO, "the audio reader returned %lld frames where at most "
                     "%llu were asked for; correct its return value", (long long)got,
                     (unsigned long long)room);
        return 0;
    }
    s->raw_have = (size_t)got;
    return got > 0;
}

/* 1..n samples of mono at the source's rate; 0 at the end or after a failure. */
static size_t au_pull(au_stream *s, float *out, size_t n)
{
    const unsigned char *from;
    if (s->ended || n == 0) {
        return 0;
    }
    if (s->audio.read != NULL) {
        if (s->raw_at == s->raw_have && !au_fill_raw(s)) {
            s->ended = 1;
            return 0;
        }
        n = s->raw_have - s->raw_at < n ? s->raw_have - s->raw_at : n;
        from = s->raw + s->raw_at * s->frame;
        s->raw_at += n;
    } else {
        uint64_t left = s->audio.frames - s->consumed;
        if (left == 0) {
            s->ended = 1;
            return 0;
        }
        n = left < n ? (size_t)left : n;
        from = (const unsigned char *)s->audio.data + (size_t)s->consumed * s->frame;
    }
    au_convert(s, from, out, n);
    s->consumed += n;
    return n;
}

/* ---- resampler ----
 *
 * Output m lies at m * rate / 16000 input samples, a multiple of 1 / phases. Its value is the
 * band-limited signal there: the sum over inputs k of x[k] h(m * rate / 16000 - k), h being a
 * Kaiser-windowed sinc (J. Kaiser 1974; A. Oppenheim, R. Schafer, "Discrete-Time Signal
 * Processing", 7.5.3, for its two formulas). The bank holds h at the points that occur, or where
 * these are too many at evenly spaced ones, with a straight line between neighbours: that is
 * wrong by (pi cutoff / rows)^2 / 2 at most, cutoff in cycles per input sample, which is 94 dB
 * below the signal at 255 rows and the highest cutoff, 0.5. */

#define AU_STOP_DB 90.0

/* The library's own, as libm's last bits vary between machines. Taylor series, |error| < 1e-15. */
static double au_sin_pi(double x)
{
    int64_t k = (int64_t)(x + (x < 0.0 ? -0.5 : 0.5));
    double r = (x - (double)k) * 3.14159265358979323846, square = r * r, term = r, sum = r;
    int i;
    for (i = 2; i <= 22; i += 2) {
        term *= -square / (double)(i * (i + 1));
        sum += term;
    }
    return k & 1 ? -sum : sum;
}

/* Modified Bessel function of the first kind and order 0; its power series (9.6.12 in Abramowitz
 * and Stegun), which for our arguments below 9 ends after about 30 terms. */
static double au_bessel(double x)
{
    double quarter = x * x / 4.0, term = 1.0, sum = 1.0;
    int k;
    for (k = 1; k < 64 && term > sum * 1e-17; k++) {
        term *= quarter / (double)(k * k);
        sum += term;
    }
    return sum;
}

/* h at t input samples from its centre, apart from a constant factor. */
static double au_kernel(double t, double cutoff, double half)
{
    const double beta = 0.1102 * (AU_STOP_DB - 8.7);
    double u = t / half, x = 2.0 * cutoff * t;
    double sinc = x == 0.0 ? 1.0 : au_sin_pi(x) / (3.14159265358979323846 * x);
    return u * u >= 1.0 ? 0.0 : sinc * au_bessel(beta * sqrt(1.0 - u * u));
}

static uint32_t au_gcd(uint32_t a, uint32_t b)
{
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Row r holds h(r / rows - k) for k = 1 - half .. half. Its sum is made 1, so that a constant
 * offset in a recording stays constant. h is even: row rows - r is row r backwards. */
static void au_design_rows(au_stream *s, double cutoff)
{
    double row[2 * AU_HALF_MAX], sum;
    uint32_t r, last = s->rows == s->phases ? s->rows - 1 : s->rows;
    size_t i;
    for (r = 0; r <= last; r++) {
        float *to = s->bank + r * s->taps;
        if (2 * r > s->rows && r < s->rows) {
            const float *twin = s->bank + (s->rows - r) * s->taps;
            for (i = 0; i < s->taps; i++) {
                to[i] = twin[s->taps - 1 - i];
            }
            continue;
        }
        sum = 0.0;
        for (i = 0; i < s->taps; i++) {
            double k = (double)i + 1.0 - (double)s->half;
            row[i] = au_kernel((double)r / (double)s->rows - k, cutoff, (double)s->half);
            sum += row[i];
        }
        for (i = 0; i < s->taps; i++) {
            to[i] = (float)(row[i] / sum);
        }
    }
}

/* Down: what lies above 16000 - 7000 Hz would fold below 7 kHz, so the stop band begins there.
 * Up: the images of all that a source can hold begin at half its rate. */
static void au_design(au_stream *s, uint32_t rate)
{
    double pass = 7000.0, stop = 9000.0, r = (double)rate, taps;
    uint32_t common = au_gcd(rate, AU_RATE);
    if (rate == s->bank_rate) {
        return;
    }
    if (rate < AU_RATE) {
        pass = 0.45 * r < pass ? 0.45 * r : pass;
        stop = 0.5 * r;
    }
    taps = (AU_STOP_DB - 7.95) / (14.36 * (stop - pass) / r);
    s->half = ((size_t)(taps / 16.0) + 1) * 8;
    s->half = s->half > AU_HALF_MAX ? AU_HALF_MAX : s->half; /* exactly reached at AU_RATE_MAX */
    s->taps = 2 * s->half;
    s->phases = AU_RATE / common;
    s->step = rate / common / s->phases;
    s->step_phase = rate / common % s->phases;
    s->rows = (uint32_t)(AU_BANK / s->taps);
    s->rows = s->phases <= s->rows ? s->phases : s->rows - 1; /* one more ends the last interval */
    au_design_rows(s, 0.5 * (pass + stop) / r);
    s->bank_rate = rate;
}

/* Four lanes are what every baseline has registers for. */
typedef float au_f4 __attribute__((vector_size(16)));
typedef float au_f4u __attribute__((vector_size(16), aligned(4), may_alias));

/* taps is a multiple of 16; lane i adds up every 16th product from i on. */
WNPU_INLINE float au_dot(const float *x, const float *h, size_t taps)
{
    au_f4 a = {0}, b = {0}, c = {0}, d = {0};
    float lanes[16];
    size_t i;
    for (i = 0; i < taps; i += 16) {
        a += *(const au_f4u *)(x + i) * *(const au_f4u *)(h + i);
        b += *(const au_f4u *)(x + i + 4) * *(const au_f4u *)(h + i + 4);
        c += *(const au_f4u *)(x + i + 8) * *(const au_f4u *)(h + i + 8);
        d += *(const au_f4u *)(x + i + 12) * *(const au_f4u *)(h + i + 12);
    }
    *(au_f4u *)lanes = a;
    *(au_f4u *)(lanes + 4) = b;
    *(au_f4u *)(lanes + 8) = c;
    *(au_f4u *)(lanes + 12) = d;
    return mt_sum16(lanes);
}

/* Drops what no output needs any more and appends what the source gives; after its end, silence
 * for the second half of the last filters. */
static void au_slide(au_stream *s)
{
    size_t kept = s->have - s->at, got;
    memmove(s->window, s->window + s->at, kept * sizeof(float));
    s->at = 0;
    s->have = kept;
    got = au_pull(s, s->window + kept, AU_WINDOW - AU_HALF_MAX - kept);
    s->have += got;
    s->real = s->have;
    if (got == 0) {
        memset(s->window + s->have, 0, s->half * sizeof(float));
        s->have += s->half;
    }
}

static size_t au_resample(au_stream *s, float *out, size_t n)
{
    const size_t taps = s->taps, centre = s->half - 1;
    size_t made = 0;
    while (made < n) {
        const float *x, *h;
        uint32_t place;
        if (s->ended && s->at + centre >= s->real) {
            break;
        }
        if (s->at + taps > s->have) {
            au_slide(s);
            continue;
        }
        place = s->phase * s->rows; /* below 16000 * 32768 / 48, in units of 1 / (phases rows) */
        x = s->window + s->at;
        h = s->bank + place / s->phases * taps;
        out[made] = au_dot(x, h, taps);
        if (s->rows != s->phases) {
            float part = (float)(place % s->phases) / (float)s->phases;
            out[made] += (au_dot(x, h + taps, taps) - out[made]) * part;
        }
        made++;
        s->at += s->step;
        s->phase += s->step_phase;
        if (s->phase >= s->phases) {
            s->phase -= s->phases;
            s->at++;
        }
    }
    return made;
}

/* ---- stream ---- */

/* Takes a stream and all that it will ever need from arena. *stream is NULL while measuring. */
static void au_stream_take(ar_arena *arena, au_stream **stream)
{
    au_stream *s = ar_take(arena, 1, sizeof *s);
    float *bank = ar_take(arena, AU_BANK, sizeof(float));
    float *window = ar_take(arena, AU_WINDOW, sizeof(float));
    unsigned char *raw = ar_take(arena, AU_RAW, 1);
    *stream = NULL;
    if (s == NULL || bank == NULL || window == NULL || raw == NULL) {
        return;
    }
    memset(s, 0, sizeof *s);
    s->bank = bank;
    s->window = window;
    s->raw = raw;
    s->ended = 1;
    wnpu_audio_init(&s->audio, sizeof s->audio);
    *stream = s;
}

static int au_check(const wnpu_audio *a, wnpu_error *error)
{
    uint64_t bytes;
    if (a->format < 0 || (size_t)a->format >= sizeof au_widths) {
        return er_set(error, WNPU_E_ARGUMENT, "audio: format %d is no wnpu_sample_format",
                      (int)a->format);
    }
    if (a->rate < AU_RATE_MIN || a->rate > AU_RATE_MAX) {
        return er_set(error, WNPU_E_ARGUMENT, "audio: rate %lu is outside %lu..%lu",
                      (unsigned long)a->rate, (unsigned long)AU_RATE_MIN,
                      (unsigned long)AU_RATE_MAX);
    }
    if (a->channels < 1 || a->channels > AU_CHANNELS_MAX) {
        return er_set(error, WNPU_E_ARGUMENT, "audio: %lu channels is outside 1..%lu",
                      (unsigned long)a->channels, (unsigned long)AU_CHANNELS_MAX);
    }
    if (a->channel < WNPU_CHANNEL_MIX || (int64_t)a->channel >= (int64_t)a->channels) {
        return er_set(error, WNPU_E_ARGUMENT, "audio: there is no channel %ld among %lu; they "
                      "count from 0, and -1 mixes all", (long)a->channel,
                      (unsigned long)a->channels);
    }
    if (a->read != NULL) {
        return a->data == NULL ? WNPU_OK : er_set(error, WNPU_E_ARGUMENT,
               "audio: both data and read are set; leave one NULL");
    }
    if (a->data == NULL && a->frames > 0) {
        return er_set(error, WNPU_E_ARGUMENT, "audio: data is NULL but frames is %llu; set data "
                      "or read", (unsigned long long)a->frames);
    }
    if (__builtin_mul_overflow(a->frames, (uint64_t)a->channels * au_widths[a->format], &bytes) ||
        bytes > SIZE_MAX / 2) {
        return er_set(error, WNPU_E_ARGUMENT, "audio: %llu frames do not fit into memory; frames "
                      "counts samples of one channel", (unsigned long long)a->frames);
    }
    return WNPU_OK;
}

/* Begins a recording; the one before is forgotten. data or the reader must last as long. On
 * failure the stream is at its end. Errors: E_ARGUMENT, E_VERSION. */
static int au_open(au_stream *s, const wnpu_audio *audio, wnpu_error *error)
{
    int status;
    wnpu_audio_init(&s->audio, sizeof s->audio);
    s->consumed = 0;
    s->ended = 1;
    er_clear(&s->fault);
    s->raw_at = s->raw_have = 0;
    s->at = s->have = s->real = 0;
    if (audio == NULL) {
        return er_set(error, WNPU_E_ARGUMENT, "audio is NULL");
    }
    status = er_import(&s->audio, sizeof s->audio, audio, audio->struct_size);
    if (status == WNPU_OK) {
        status = au_check(&s->audio, error);
    } else {
        (void)er_set(error, status, "audio: struct_size %lu or a field beyond it is unknown to "
                     "this library; fill the structure with wnpu_audio_init() first",
                     (unsigned long)audio->struct_size);
    }
    if (status != WNPU_OK) {
        wnpu_audio_init(&s->audio, sizeof s->audio);
        return status;
    }
    s->width = au_widths[s->audio.format];
    s->frame = s->width * s->audio.channels;
    s->ended = 0;
    au_uncancel(s);
    if (s->audio.rate != AU_RATE) {
        au_design(s, s->audio.rate);
        s->have = s->real = s->half - 1; /* silence before the first frame */
        memset(s->window, 0, s->have * sizeof(float));
        s->phase = 0;
    }
    return WNPU_OK;
}

/* Up to n samples at 16 kHz into out[n]. Returns how many, fewer than n only where the recording
 * ends or fails; after that 0, or the negative error (E_IO), however often it is called. */
static int64_t au_read(au_stream *s, float *out, size_t n, wnpu_error *error)
{
    size_t made = 0, got;
    if (s->audio.rate == AU_RATE) {
        while (made < n && (got = au_pull(s, out + made, n - made)) > 0) {
            made += got;
        }
    } else {
        made = au_resample(s, out, n);
    }
    if (made == 0 && n > 0 && s->fault.code != WNPU_OK) {
        return er_set(error, s->fault.code, "%s", s->fault.message);
    }
    return (int64_t)made;
}

/* Whole milliseconds of frames, without overflow for any number of them. */
static int64_t au_ms(const au_stream *s, uint64_t frames)
{
    uint64_t rate = s->audio.rate;
    return (int64_t)(frames / rate * 1000u + frames % rate * 1000u / rate);
}

/* Length of the recording, or -1 while a reader has not told. */
static int64_t au_total_ms(const au_stream *s)
{
    if (s->ended) {
        return au_ms(s, s->consumed);
    }
    return s->audio.read != NULL && s->audio.frames == 0 ? -1 : au_ms(s, s->audio.frames);
}

/* Forgets the recording and wipes what was heard of it. The filter bank stays. */
static void au_wipe(au_stream *s)
{
    ar_wipe(s->window, AU_WINDOW * sizeof(float));
    ar_wipe(s->raw, AU_RAW);
    wnpu_audio_init(&s->audio, sizeof s->audio);
    s->consumed = 0;
    s->ended = 1;
    s->at = s->have = s->real = 0;
    s->raw_at = s->raw_have = 0;
    er_clear(&s->fault);
}

WNPU_API void wnpu_audio_init(wnpu_audio *audio, size_t struct_size)
{
    wnpu_audio standard;
    if (audio == NULL || struct_size < sizeof standard.struct_size || struct_size > UINT32_MAX) {
        return;
    }
    memset(&standard, 0, sizeof standard);
    standard.struct_size = (uint32_t)struct_size;
    standard.format = WNPU_SAMPLE_F32;
    standard.rate = AU_RATE;
    standard.channels = 1;
    standard.channel = WNPU_CHANNEL_MIX;
    memset(audio, 0, struct_size);
    memcpy(audio, &standard, struct_size < sizeof standard ? struct_size : sizeof standard);
}

/* ---- WAV ----
 *
 * After "Multimedia Programming Interface and Data Specifications 1.0" (IBM and Microsoft, 1991),
 * "Multiple channel audio data and WAVE files" (Microsoft, 2001) for EXTENSIBLE and ITU-R BS.2088
 * for RF64 and BW64. Sizes in headers are claims: recorders that stream or crash leave zeros,
 * ones or the size they hoped for. */
typedef struct au_wav {
    const unsigned char *data;
    uint64_t size;
    uint64_t long_size;       /* of the audio, from a ds64 chunk */
    int has_long_size, has_format, has_data;
    uint32_t tag, channels, rate, align, bits;
    uint64_t audio, audio_size; /* offset and bytes of the samples */
} au_wav;

/* 2: a chunk that WAV files are known to have begins at offset, 1: one may, 0: none can. */
static int au_chunk(const au_wav *w, uint64_t offset)
{
    static const char known[][5] = {
        "fmt ", "data", "LIST", "fact", "ds64", "bext", "JUNK", "junk", "PAD ", "FLLR", "cue ",
        "smpl", "inst", "PEAK", "id3 ", "ID3 ", "iXML", "_PMX", "axml", "chna", "cart", "plst",
        "DISP", "umid", "minf", "elm1", "regn", "acid", "strc", "levl", "afsp", "wavl", "slnt"
    };
    const unsigned char *p;
    size_t i;
    if (offset > w->size || w->size - offset < 8) {
        return 0;
    }
    p = w->data + offset;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (memcmp(p, known[i], 4) == 0) {
            return 2;
        }
    }
    for (i = 0; i < 4; i++) {
        if (p[i] < 0x20 || p[i] > 0x7e) {
            return 0;
        }
    }
    return au_le32(p + 4) <= w->size - offset - 8;
}

/* The chunk after one of size bytes at offset. Odd ones are padded, but not by every writer. */
static uint64_t au_chunk_next(const au_wav *w, uint64_t offset, uint64_t size)
{
    uint64_t next = offset + 8 + size;
    if (size & 1) {
        next += au_chunk(w, next) > au_chunk(w, next + 1) ? 0 : 1;
    }
    return next;
}

/* What follows a data chunk of size 0: another chunk, or samples that nobody counted? Unknown
 * names count as chunks when they lead to the end of the file, or to a known one. */
static int au_chunk_follows(const au_wav *w, uint64_t offset)
{
    int kind = au_chunk(w, offset);
    while (kind == 1) {
        offset = au_chunk_next(w, offset, au_le32(w->data + offset + 4));
        if (offset >= w->size) {
            return 1;
        }
        kind = au_chunk(w, offset);
    }
    return kind == 2;
}

/* Names what a file is that is not ours to read. */
static int au_wav_foreign(const au_wav *w, wnpu_error *error)
{
    static const struct {
        unsigned at;
        char magic[5];
        const char *name;
    } kinds[] = {
        {0, "RIFX", "a big-endian WAV file (RIFX)"}, {0, "riff", "a Sony Wave64 file (.w64)"},
        {0, "FORM", "an AIFF file"}, {0, ".snd", "a Sun .au file"}, {0, "caff", "a CAF file"},
        {0, "fLaC", "a FLAC file"}, {0, "OggS", "an Ogg file (Vorbis or Opus)"},
        {4, "ftyp", "an MP4 file (AAC)"}, {0, "ID3\3", "an MP3 file"}, {0, "ID3\4", "an MP3 file"},
        {0, "\x1a\x45\xdf\xa3", "a Matroska or WebM file"}, {0, "\x30\x26\xb2\x75", "a WMA file"}
    };
    size_t i;
    if (w->size == 0) {
        return er_set(error, WNPU_E_AUDIO, "WAV: the file is empty");
    }
    for (i = 0; i < sizeof kinds / sizeof kinds[0] && w->size >= 8; i++) {
        if (memcmp(w->data + kinds[i].at, kinds[i].magic, 4) == 0) {
            return er_set(error, WNPU_E_AUDIO, "this is %s; convert it to a RIFF WAV file",
                          kinds[i].name);
        }
    }
    return er_set(error, WNPU_E_AUDIO, "not a WAV file: it does not begin with RIFF and WAVE");
}

static int au_wav_format_chunk(au_wav *w, uint64_t offset, uint64_t size, wnpu_error *error)
{
    /* The rest of a GUID whose first two bytes are a classic format tag. */
    static const unsigned char guid[14] = {
        0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71
    };
    const unsigned char *p = w->data + offset + 8;
    if (size > w->size - offset - 8) {
        return er_set(error, WNPU_E_AUDIO, "WAV: the file ends inside its fmt chunk");
    }
    if (size < 16) {
        return er_set(error, WNPU_E_AUDIO, "WAV: the fmt chunk has %u bytes instead of 16 or more",
                      (unsigned)size);
    }
    w->tag = au_le16(p);
    w->channels = au_le16(p + 2);
    w->rate = au_le32(p + 4);
    w->align = au_le16(p + 12);
    w->bits = au_le16(p + 14);
    if (w->tag == 0xfffe) {
        if (size < 40) {
            return er_set(error, WNPU_E_AUDIO, "WAV: an EXTENSIBLE fmt chunk has %u bytes instead "
                          "of 40", (unsigned)size);
        }
        if (memcmp(p + 26, guid, sizeof guid) != 0) {
            return er_set(error, WNPU_E_AUDIO, "WAV: unknown EXTENSIBLE sub-format; convert it to "
                          "PCM");
        }
        w->tag = au_le16(p + 24);
    }
    w->has_format = 1;
    return WNPU_OK;
}

/* Returns the offset to look for more chunks at. */
static uint64_t au_wav_data_chunk(au_wav *w, uint64_t offset, uint64_t size)
{
    uint64_t rest = w->size - offset - 8;
    if (size == UINT32_MAX) {
        size = w->has_long_size ? w->long_size : UINT64_MAX;
    }
    if (size == 0 && !au_chunk_follows(w, offset + 8)) {
        size = UINT64_MAX; /* never filled in */
    }
    w->has_data = 1;
    if (w->audio_size == 0) {
        w->audio = offset + 8;
        w->audio_size = size < rest ? size : rest;
    }
    return size > rest ? w->size : au_chunk_next(w, offset, size);
}

static int au_wav_chunks(au_wav *w, wnpu_error *error)
{
    uint64_t offset = 12;
    while (offset <= w->size && w->size - offset >= 8) {
        const unsigned char *p = w->data + offset;
        uint64_t size = au_le32(p + 4), rest = w->size - offset - 8;
        if (memcmp(p, "fmt ", 4) == 0 && !w->has_format) {
            int status = au_wav_format_chunk(w, offset, size, error);
            if (status != WNPU_OK) {
                return status;
            }
        } else if (memcmp(p, "ds64", 4) == 0 && size >= 16 && rest >= 16) {
            w->long_size = au_le64(p + 16);
            w->has_long_size = 1;
        } else if (memcmp(p, "data", 4) == 0) {
            offset = au_wav_data_chunk(w, offset, size);
            if (w->has_format && w->audio_size > 0) {
                break;
            }
            continue;
        }
        if (size > rest) {
            break;
        }
        offset = au_chunk_next(w, offset, size);
    }
    if (!w->has_format) {
        return er_set(error, WNPU_E_AUDIO, "WAV: there is no fmt chunk; the file is cut short or "
                      "damaged");
    }
    return WNPU_OK;
}

static int au_wav_refuse(const au_wav *w, wnpu_error *error)
{
    static const struct {
        uint32_t tag;
        const char *name;
    } tags[] = { /* names of mmreg.h */
        {0x0002, "Microsoft ADPCM"}, {0x0010, "OKI ADPCM"}, {0x0011, "IMA ADPCM"},
        {0x0017, "Dialogic OKI ADPCM"}, {0x0020, "Yamaha ADPCM"}, {0x0022, "TrueSpeech"},
        {0x0031, "GSM 6.10"}, {0x0040, "G.721 ADPCM"}, {0x0042, "G.723.1"}, {0x0045, "G.726 ADPCM"},
        {0x0050, "MPEG"}, {0x0055, "MP3"}, {0x0064, "G.726 ADPCM"}, {0x0065, "G.722 ADPCM"},
        {0x0083, "G.729"}, {0x0092, "Dolby AC-3"}, {0x00ff, "AAC"}, {0x0160, "WMA 1"},
        {0x0161, "WMA 2"}, {0x0162, "WMA 3"}, {0x1610, "AAC"}, {0x2000, "Dolby AC-3"},
        {0x674f, "Vorbis"}, {0x704f, "Opus"}, {0xf1ac, "FLAC"}
    };
    size_t i;
    for (i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        if (w->tag == tags[i].tag) {
            return er_set(error, WNPU_E_AUDIO, "WAV: holds %s (format %lu); convert it to PCM",
                          tags[i].name, (unsigned long)w->tag);
        }
    }
    return er_set(error, WNPU_E_AUDIO, "WAV: unknown sample format %lu with %lu bits; convert it "
                  "to PCM", (unsigned long)w->tag, (unsigned long)w->bits);
}

/* The wnpu_sample_format, or -1. Samples are as wide as their bits need (fewer valid bits are the
 * upper ones); some writers hold 24 bits in four bytes. The block alignment decides only then,
 * and where bits is 0: it is wrong more often. */
static int au_wav_sample(const au_wav *w)
{
    static const int pcm[] = {
        WNPU_SAMPLE_U8, WNPU_SAMPLE_S16LE, WNPU_SAMPLE_S24LE, WNPU_SAMPLE_S32LE
    };
    uint32_t bytes = (w->bits + 7) / 8;
    if (bytes == 0 || (bytes == 3 && w->align == 4 * w->channels)) {
        bytes = w->align / w->channels;
    }
    switch (w->tag) {
    case 1: return bytes >= 1 && bytes <= 4 ? pcm[bytes - 1] : -1;
    case 3: return bytes == 4 ? WNPU_SAMPLE_F32LE : bytes == 8 ? WNPU_SAMPLE_F64LE : -1;
    /* These always have 8 bits; a header may tell the 16 that they stand for. */
    case 6: return bytes == 1 || w->align == w->channels ? WNPU_SAMPLE_ALAW : -1;
    case 7: return bytes == 1 || w->align == w->channels ? WNPU_SAMPLE_ULAW : -1;
    default: return -1;
    }
}

static int au_wav_describe(const au_wav *w, wnpu_audio *audio, wnpu_error *error)
{
    int format;
    if (w->channels < 1 || w->channels > AU_CHANNELS_MAX) {
        return er_set(error, WNPU_E_AUDIO, "WAV: %lu channels is outside 1..%lu",
                      (unsigned long)w->channels, (unsigned long)AU_CHANNELS_MAX);
    }
    format = au_wav_sample(w);
    if (format < 0) {
        return au_wav_refuse(w, error);
    }
    if (w->rate < AU_RATE_MIN || w->rate > AU_RATE_MAX) {
        return er_set(error, WNPU_E_AUDIO, "WAV: sample rate %lu is outside %lu..%lu; convert it",
                      (unsigned long)w->rate, (unsigned long)AU_RATE_MIN,
                      (unsigned long)AU_RATE_MAX);
    }
    audio->format = format;
    audio->rate = w->rate;
    audio->channels = w->channels;
    audio->frames = w->audio_size / (w->channels * (uint32_t)au_widths[format]);
    if (audio->frames == 0) {
        return er_set(error, WNPU_E_AUDIO, "WAV: no audio data; %s", w->has_data ?
                      "its data chunk is empty" : "the file has no data chunk");
    }
    audio->data = w->data + w->audio;
    return WNPU_OK;
}

/* *audio must come from wnpu_audio_init(): its size tells which fields its user knows. On failure
 * it describes an empty recording. */
WNPU_API int wnpu_wav_open(wnpu_audio *audio, const void *data, size_t size, wnpu_error *error)
{
    const size_t known = offsetof(wnpu_audio, user) + sizeof(void *);
    wnpu_audio found;
    au_wav w;
    int status;
    er_clear(error);
    if (audio == NULL || (data == NULL && size > 0)) {
        return er_set(error, WNPU_E_ARGUMENT, "wnpu_wav_open: audio or data is NULL");
    }
    if (audio->struct_size < known || audio->struct_size > 65536u) {
        return er_set(error, WNPU_E_ARGUMENT, "wnpu_wav_open: struct_size is %lu; call "
                      "wnpu_audio_init() first", (unsigned long)audio->struct_size);
    }
    wnpu_audio_init(audio, audio->struct_size);
    wnpu_audio_init(&found, sizeof found);
    found.struct_size = audio->struct_size;
    memset(&w, 0, sizeof w);
    w.data = data;
    w.size = size;
    if (size < 12 || (memcmp(w.data, "RIFF", 4) != 0 && memcmp(w.data, "RF64", 4) != 0 &&
                      memcmp(w.data, "BW64", 4) != 0)) {
        return au_wav_foreign(&w, error);
    }
    if (memcmp(w.data + 8, "WAVE", 4) != 0) {
        return er_set(error, WNPU_E_AUDIO, "not a WAV file: a RIFF file of another kind");
    }
    status = au_wav_chunks(&w, error);
    if (status == WNPU_OK) {
        status = au_wav_describe(&w, &found, error);
    }
    if (status == WNPU_OK) {
        memcpy(audio, &found, known);
    }
    return status;
}

/* ======================================================================
 *  7. ft_  FFT and ml_ log-mel
 *
 *  Owns      the 400-point real FFT, the Hann window and the mel sums.
 *  Assumes   16 kHz mono samples.
 *  Ensures   OpenAI's definition: 400-sample periodic Hann window, hop
 *            160, frame t centred on sample 160 t, power spectrum, the
 *            model's own filters, log10 with 1e-10 as least power, floor
 *            at the maximum of the 30 s window minus 8, (x + 4) / 4.
 *  Costs     about 2 ms for 30 s on one core.
 *
 *  Several frames are transformed at once, one in each lane of a vector
 *  of doubles, so the FFT needs no shuffles. Doubles because the floor lies
 *  80 dB below the loudest bin: single precision leaves errors of 2e-4
 *  down there, against a tolerance of 1e-4.
 * ====================================================================== */
#define ML_RATE 16000u
#define ML_HOP 160u
#define ML_FFT 400u
#define ML_HALF (ML_FFT / 2u)
#define ML_BINS (ML_HALF + 1u)
#define ML_FRAMES 3000u                        /* of a 30 s window */
#define ML_WINDOW (ML_FRAMES * ML_HOP)         /* 480000 samples */
#define ML_MARGIN (ML_FFT / 2u)                /* samples a frame reaches before and after */
#define ML_SPAN (ML_WINDOW + 2u * ML_MARGIN)   /* samples that all frames of a window touch */
#define ML_BATCH (MT_LANES / 2u) /* frames at once, one in each lane */

typedef double ft_vd __attribute__((vector_size(ML_BATCH * 8)));

typedef struct ft_tables {
    double window[ML_FFT];
    double cosine[ML_FFT], sine[ML_FFT]; /* of 2 pi i / 400 */
} ft_tables;

/* sin(2 pi i / 400) by Taylor's series around 0, with additions and multiplications only, so that
 * no platform's libm can change a table. */
static double ft_sine(unsigned i)
{
    double x, x2, term, sum;
    unsigned n, quarter = ML_FFT / 4u;
    i %= ML_FFT;
    if (i >= ML_HALF) {
        return -ft_sine(i - ML_HALF);
    }
    if (i > quarter) {
        i = ML_HALF - i;
    }
    x = 6.283185307179586476925 * (double)i / (double)ML_FFT;
    x2 = x * x;
    term = x;
    sum = x;
    for (n = 3; n < 30; n += 2) {
        term = -term * x2 / (double)(n * (n - 1));
        sum += term;
    }
    return sum;
}

static void ft_init(ft_tables *t)
{
    unsigned i;
    for (i = 0; i < ML_FFT; i++) {
        t->sine[i] = ft_sine(i);
        t->cosine[i] = ft_sine(i + ML_FFT / 4u);
        t->window[i] = 0.5 - 0.5 * t->cosine[i];
    }
}

/* A batch of 200 complex values, one frame in each lane. */
typedef struct ft_batch {
    ft_vd re[ML_HALF], im[ML_HALF];
} ft_batch;

/* Butterflies: v[0..r-1] becomes its r-point DFT. */
WNPU_INLINE void ft_butterfly2(ft_vd *re, ft_vd *im)
{
    ft_vd r = re[1], i = im[1];
    re[1] = re[0] - r;
    im[1] = im[0] - i;
    re[0] += r;
    im[0] += i;
}

WNPU_INLINE void ft_butterfly4(ft_vd *re, ft_vd *im)
{
    ft_vd ar = re[0] + re[2], ai = im[0] + im[2], br = re[0] - re[2], bi = im[0] - im[2];
    ft_vd cr = re[1] + re[3], ci = im[1] + im[3], dr = re[1] - re[3], di = im[1] - im[3];
    re[0] = ar + cr;
    im[0] = ai + ci;
    re[1] = br + di;
    im[1] = bi - dr;
    re[2] = ar - cr;
    im[2] = ai - ci;
    re[3] = br - di;
    im[3] = bi + dr;
}

WNPU_INLINE void ft_butterfly5(ft_vd *re, ft_vd *im)
{
    const double c1 = 0.30901699437494742410, c2 = -0.80901699437494742410; /* cos 2pi k/5 */
    const double s1 = 0.95105651629515357212, s2 = 0.58778525229247312917;  /* sin 2pi k/5 */
    ft_vd ar = re[1] + re[4], ai = im[1] + im[4], br = re[1] - re[4], bi = im[1] - im[4];
    ft_vd cr = re[2] + re[3], ci = im[2] + im[3], dr = re[2] - re[3], di = im[2] - im[3];
    ft_vd er = re[0] + ar * c1 + cr * c2, ei = im[0] + ai * c1 + ci * c2;
    ft_vd fr = re[0] + ar * c2 + cr * c1, fi = im[0] + ai * c2 + ci * c1;
    ft_vd gr = br * s1 + dr * s2, gi = bi * s1 + di * s2;
    ft_vd hr = br * s2 - dr * s1, hi = bi * s2 - di * s1;
    re[0] += ar + cr;
    im[0] += ai + ci;
    re[1] = er + gi;
    im[1] = ei - gr;
    re[4] = er - gi;
    im[4] = ei + gr;
    re[2] = fr + hi;
    im[2] = fi - hr;
    re[3] = fr - hi;
    im[3] = fi + hr;
}

/* One decimation-in-frequency step of Stockham's autosort FFT: length n, stride s, radix r. */
WNPU_INLINE void ft_step(const ft_tables *t, const ft_batch *x, ft_batch *y, unsigned n,
                         unsigned s, unsigned r)
{
    unsigned m = n / r, p, q, j;
    for (p = 0; p < m; p++) {
        for (q = 0; q < s; q++) {
            ft_vd re[5], im[5];
            for (j = 0; j < r; j++) {
                re[j] = x->re[q + s * (p + m * j)];
                im[j] = x->im[q + s * (p + m * j)];
            }
            if (r == 2) {
                ft_butterfly2(re, im);
            } else if (r == 4) {
                ft_butterfly4(re, im);
            } else {
                ft_butterfly5(re, im);
            }
            y->re[q + s * r * p] = re[0];
            y->im[q + s * r * p] = im[0];
            for (j = 1; j < r; j++) {
                unsigned k = p * j * (ML_FFT / n);
                double c = t->cosine[k], d = t->sine[k];
                y->re[q + s * (r * p + j)] = re[j] * c + im[j] * d;
                y->im[q + s * (r * p + j)] = im[j] * c - re[j] * d;
            }
        }
    }
}

/* Power spectra of the ML_BATCH frames that start at x, x + 160, ...: power[bin] has a lane for
 * each. The real input is packed as 200 complex values (even samples real, odd imaginary). */
WNPU_INLINE void ft_power(const ft_tables *t, const float *x, ft_vd *power /* [201] */,
                           ft_batch *a, ft_batch *b)
{
    unsigned i, lane;
    for (i = 0; i < ML_HALF; i++) {
        for (lane = 0; lane < ML_BATCH; lane++) {
            a->re[i][lane] = (double)x[lane * ML_HOP + 2 * i];
            a->im[i][lane] = (double)x[lane * ML_HOP + 2 * i + 1];
        }
        a->re[i] *= t->window[2 * i];
        a->im[i] *= t->window[2 * i + 1];
    }
    ft_step(t, a, b, 200, 1, 5);
    ft_step(t, b, a, 40, 5, 5);
    ft_step(t, a, b, 8, 25, 4);
    ft_step(t, b, a, 2, 100, 2);
    for (i = 0; i <= ML_HALF; i++) {
        unsigned f = i % ML_HALF, g = (ML_HALF - i) % ML_HALF;
        ft_vd er = (a->re[f] + a->re[g]) * 0.5, ei = (a->im[f] - a->im[g]) * 0.5;
        ft_vd or_ = (a->im[f] + a->im[g]) * 0.5, oi = (a->re[g] - a->re[f]) * 0.5;
        double c = t->cosine[i], s = t->sine[i];
        ft_vd re = er + or_ * c + oi * s, im = ei + oi * c - or_ * s;
        power[i] = re * re + im * im;
    }
}

typedef struct ml_filters {
    const float *weight;   /* [n_mels, 201] row-major, the model's own */
    uint32_t n_mels;
    uint16_t *first, *last; /* [n_mels]: bins first..last-1 are not zero */
} ml_filters;

static void ml_init(ml_filters *f, const float *weight, uint32_t n_mels)
{
    uint32_t m;
    f->weight = weight;
    f->n_mels = n_mels;
    for (m = 0; m < n_mels; m++) {
        const float *row = weight + (size_t)m * ML_BINS;
        uint16_t first = 0, last = ML_BINS;
        while (first < ML_BINS && row[first] == 0.0f) {
            first++;
        }
        while (last > first && row[last - 1] == 0.0f) {
            last--;
        }
        f->first[m] = first;
        f->last[m] = last;
    }
}

/* Scratch of one worker. */
typedef struct ml_scratch {
    ft_batch a, b;
    ft_vd power[ML_BINS];
} ml_scratch;

/* Mel powers of ML_BATCH frames: out[lane * ldo + m]. */
WNPU_INLINE void ml_powers_body(const ft_tables *t, const ml_filters *f, const float *x,
                                 float *out, size_t ldo, ml_scratch *s)
{
    uint32_t m, lane;
    unsigned bin;
    ft_power(t, x, s->power, &s->a, &s->b);
    for (m = 0; m < f->n_mels; m++) {
        const float *row = f->weight + (size_t)m * ML_BINS;
        ft_vd sum = {0};
        for (bin = f->first[m]; bin < f->last[m]; bin++) {
            sum += s->power[bin] * (double)row[bin];
        }
        for (lane = 0; lane < ML_BATCH; lane++) {
            double value = sum[lane];
            out[lane * ldo + m] = value > 1e-10 ? (float)value : 1e-10f;
        }
    }
}

/* In place: x becomes log10 x; returns the largest. n is a multiple of MT_LANES. */
WNPU_INLINE float ml_log_body(float *x, size_t n)
{
    mt_vec best, v;
    size_t i;
    mt_vset(&best, -10.0f);
    for (i = 0; i < n; i += MT_LANES) {
        mt_vload(&v, x + i);
        mt_vlog(&v);
        v.v *= 0.43429448190325182765f; /* 1 / ln 10 */
        mt_vmax(&best, &v);
        mt_vstore(x + i, &v);
    }
    return mt_vmaximum(&best);
}

WNPU_INLINE void ml_floor_body(float *x, size_t n, float least)
{
    mt_vec v, low;
    size_t i;
    mt_vset(&low, least);
    for (i = 0; i < n; i += MT_LANES) {
        mt_vload(&v, x + i);
        mt_vmax(&v, &low);
        v.v = (v.v + 4.0f) * 0.25f;
        mt_vstore(x + i, &v);
    }
}
