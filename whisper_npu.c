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
