/*
 * whisper_npu.c - the whole pipeline of whisper_npu: a recording in, its text out.
 * One translation unit, in dependency order: a section uses only sections before it, which
 * tests/api/test_build.sh checks. Each begins with a banner that says what it owns, assumes and
 * ensures; "make outline" lists them with lines and functions. whisper_npu.h is the contract.
 *
 *    1. er_  build switches, types, errors
 *    2. ar_  arena and checked sizes
 *    3. tp_  thread pool and parallel-for
 *    4. mt_  maths in 16 lanes
 *    5. au_  audio: sample formats, channel mixing, resampling, WAV
 *    6. ft_  FFT and ml_ log-mel
 *    7. gm_  INT8 matmul
 *    8. op_  float operators
 *    9. cp_  instruction sets
 *   10. tk_  tokenizer and languages
 *   11. mf_  model files
 *   12. en_  encoder
 *   13. de_  decoder step and KV caches
 *   14. lr_  logit rules
 *   15. se_  search and zl_ compressed size of text
 *   16. al_  alignment and words
 *   17. rs_  results and writers
 *   18. pm_  run parameters
 *   19. np_  encoder products on an accelerator
 *   20. va_  voice activity
 *   21. ru_  the state of a run
 *   22. aw_  the audio window and where it ends
 *   23. lg_  the ledger and the admission of segments
 *   24. wd_  decoding of one window
 *   25. wi_  windows: the long-form driver
 *   26. sn_  snapshots
 *   27. ap_  public API: sessions and runs
 *   28. sf_  self-test
 */

/* ======================================================================
 *  1. er_  build switches, types, errors
 *
 *  Owns      feature macros, compiler pragmas, error formatting, shared
 *            small helpers.
 *  Assumes   gcc >= 9 or clang >= 7, IEEE 754 floats, 8-bit bytes.
 *  Ensures   nothing below this section needs compiler flags.
 *  Costs     nothing.
 *
 *  Build switches, all off by default:
 *    WNPU_NO_THREADS  no pthreads: every session runs in its caller's thread
 *    WNPU_NO_SIMD     no instruction set above the baseline of the compiler
 *    WNPU_NO_STDIO    no FILE: wnpu_model_open() answers E_UNSUPPORTED
 *    WNPU_SELF        name of this file for #include, in quotes, if it was
 *                     renamed and the compiler is gcc before 12
 *
 *  Functions that differ only in the width of their vectors stand here
 *  once. The file includes itself for each width: WNPU_PART then names the
 *  part that is compiled again, WNPU_WIDTH the vectors' bits, and all else
 *  is skipped. Within a part MT(x), GM(x) and OP(x) are the names of x for
 *  that width: OP(quantise) is op_quantise_256() with AVX2.
 * ====================================================================== */
#ifndef WNPU_PART
#if defined(__FAST_MATH__)
#error "whisper_npu.c must not be compiled with -ffast-math: results would differ between machines"
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "whisper_npu.c is for little-endian machines: models are used as their files have them"
#endif

#if !defined(_POSIX_C_SOURCE) && !defined(_GNU_SOURCE)
#define _POSIX_C_SOURCE 200809L /* clock_gettime and sysconf under -std=c99 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1       /* madvise */
#endif
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
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#ifndef WNPU_NO_THREADS
#include <pthread.h>
#endif
#if defined(__linux__) && (defined(_DEFAULT_SOURCE) || defined(_GNU_SOURCE))
#define WNPU_LINUX 1 /* and syscall() is declared */
#include <sys/syscall.h>
#endif
#ifndef WNPU_NO_STDIO
#include <fcntl.h>
#include <sys/stat.h>
#endif

/* 32-bit x86 computes floats in 80 bits unless told otherwise. gcc can be told here, but then its
 * own headers for larger instruction sets fail: those want -msse2 -mfpmath=sse. */
#if defined(__i386__) && !defined(__SSE2_MATH__)
#if defined(__clang__) || !defined(__GNUC__)
#error "whisper_npu.c needs SSE2 on 32-bit x86: compile with -msse2 -mfpmath=sse"
#else
#pragma GCC target("sse2,fpmath=sse")
#endif
#elif !defined(WNPU_NO_SIMD) && (defined(__x86_64__) || defined(__i386__))
#define WNPU_X86 1
#include <cpuid.h>
#include <immintrin.h>
/* AVX-VNNI and AMX: compilers that know them; and for AMX the system whose way of asking for it
 * section 9 knows. */
#if (defined(__clang__) && __clang_major__ >= 12) || (!defined(__clang__) && __GNUC__ >= 11)
#define WNPU_VNNI 1
#if defined(__x86_64__) && defined(__linux__) && !defined(__ILP32__)
#define WNPU_AMX 1
#endif
#endif
#elif !defined(WNPU_NO_SIMD) && defined(__aarch64__)
#define WNPU_ARM 1
#include <arm_neon.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

#define WNPU_INLINE static inline __attribute__((always_inline, unused))

#ifndef WNPU_SELF
#ifdef __FILE_NAME__
#define WNPU_SELF __FILE_NAME__
#else
#define WNPU_SELF "whisper_npu.c"
#endif
#endif

/* Values of WNPU_PART. */
#define MT_PART_MATHS 1
#define GM_PART_FLOATS 2 /* float32 products */
#define GM_PART_INT16 3  /* products of int16 values */
#define OP_PART_FLOATS 4 /* operators of floats */
#define OP_PART_BYTES 5  /* operators with results of 8 and 16 bits, and searches */
#define OP_PART_PRODUCTS 6 /* exponents of attention straight from products */

/* Values of WNPU_WIDTH besides 128, 256 and 512: whatever the compiler makes of its own vectors for
 * the baseline of the machine. */
#define WNPU_BASE 0

/* Attributes of functions for these widths. */
#ifdef WNPU_X86
#define OP_128 __attribute__((target("sse4.1")))
#define OP_256 __attribute__((target("avx2")))
#define OP_512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#else
#define OP_128
#endif

#else /* WNPU_PART */
/* Names, attribute and lanes (floats in a vector) of a part; see the build switches above. */
#if WNPU_WIDTH == WNPU_BASE
#define MT(name) mt_##name
#define GM(name) gm_##name##_base
#define OP(name) op_##name##_base
#define WNPU_LANES MT_LANES
#define WNPU_TARGET
#elif WNPU_WIDTH == 128
#define GM(name) gm_##name##_128
#define OP(name) op_##name##_128
#define WNPU_LANES 4u
#define WNPU_TARGET OP_128
#elif WNPU_WIDTH == 256
#define MT(name) mt_##name
#define GM(name) gm_##name##_256
#define OP(name) op_##name##_256
#define WNPU_LANES 8u
#define WNPU_TARGET OP_256
#else
#define MT(name) mt_##name##_512
#define GM(name) gm_##name##_512
#define OP(name) op_##name##_512
#define WNPU_LANES 16u
#define WNPU_TARGET OP_512
#endif
#define MT_PARTS (16u / WNPU_LANES) /* vectors that a reduction's 16 lanes take */
#endif /* WNPU_PART */
#ifndef WNPU_PART
/* ---- sizes of structures ----
 * One rule for every public structure. Its user's may be shorter than ours, of an older header, or
 * longer, of a newer one, but by no more than ER_NEWER: any other size is a mistake, and nothing is
 * read or written. It has room for its first field, which says the size, and fields are 4 bytes or
 * multiples of that. */
#define ER_NEWER 256u

static int er_is_size(size_t theirs, size_t ours)
{
    return theirs >= sizeof(uint32_t) && theirs % sizeof(uint32_t) == 0 &&
           theirs <= ours + ER_NEWER;
}

/* Whether a structure of its user, which begins with its size, has zeros where we know nothing. */
static int er_is_known(const void *theirs, size_t our_size)
{
    uint32_t size;
    size_t i;
    memcpy(&size, theirs, sizeof size);
    if (!er_is_size(size, our_size)) {
        return 0;
    }
    for (i = our_size; i < size; i++) {
        if (((const unsigned char *)theirs)[i] != 0) {
            return 0;
        }
    }
    return 1;
}

/* A configuration structure: the known part is copied over defaults; a longer one must hold zeros
 * where we know nothing. */
static int er_import(void *ours, size_t our_size, const void *theirs, uint32_t their_size)
{
    if (!er_is_known(theirs, our_size)) {
        return WNPU_E_VERSION;
    }
    memcpy(ours, theirs, their_size < our_size ? their_size : our_size);
    return WNPU_OK;
}

/* The other way round, and for structures that do not tell their size: fills *theirs as far as it
 * goes; what is beyond ours becomes 0. */
static int er_fill(void *theirs, size_t their_size, const void *ours, size_t our_size)
{
    if (!er_is_size(their_size, our_size)) {
        return WNPU_E_ARGUMENT;
    }
    memset(theirs, 0, their_size);
    memcpy(theirs, ours, their_size < our_size ? their_size : our_size);
    return WNPU_OK;
}

/* Structures that tell their size, which stays. */
static int er_export(void *theirs, const void *ours, size_t our_size)
{
    uint32_t size;
    int status;
    memcpy(&size, theirs, sizeof size);
    status = er_fill(theirs, size, ours, our_size);
    if (status == WNPU_OK) {
        memcpy(theirs, &size, sizeof size);
    }
    return status;
}

/* Defaults for a structure of a size that its user passes. Of a size that cannot be right only the
 * first field is set, to 0, which every function refuses. */
static void er_init(void *theirs, size_t their_size, const void *ours, size_t our_size)
{
    uint32_t size = 0;
    if (theirs == NULL || their_size < sizeof size) {
        return;
    }
    if (er_fill(theirs, their_size, ours, our_size) == WNPU_OK) {
        size = (uint32_t)their_size;
    }
    memcpy(theirs, &size, sizeof size);
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

/* ---- the floating-point environment ----
 * Results are defined for round to nearest, subnormal numbers kept and no traps. A host may have
 * set something else in its thread: public functions that compute set the default and put back
 * what they found, status flags included; threads of our own set it when they begin. Written
 * without <fenv.h>, which does not know flushing to zero and whose pragma compilers ignore. */
#define ER_MXCSR 0x1f80u /* nearest, all exceptions masked, FTZ and DAZ off */
#define ER_X87 0x037fu

WNPU_INLINE uint64_t er_float_get(void)
{
    uint64_t state = 0;
#if defined(__SSE__)
    state = __builtin_ia32_stmxcsr();
#if defined(__i386__)
    {
        uint16_t control;
        __asm__ __volatile__("fnstcw %0" : "=m"(control));
        state |= (uint64_t)control << 32;
    }
#endif
#elif defined(__aarch64__)
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(state));
#elif defined(__arm__) && defined(__ARM_FP)
    uint32_t word;
    __asm__ __volatile__("vmrs %0, fpscr" : "=r"(word));
    state = word;
#elif defined(__riscv_flen)
    unsigned long word;
    __asm__ __volatile__("frcsr %0" : "=r"(word));
    state = word;
#endif
    return state;
}

WNPU_INLINE void er_float_put(uint64_t state)
{
    __asm__ __volatile__("" ::: "memory"); /* what was computed before is stored before */
#if defined(__SSE__)
    __builtin_ia32_ldmxcsr((uint32_t)state);
#if defined(__i386__)
    {
        uint16_t control = (uint16_t)(state >> 32);
        __asm__ __volatile__("fldcw %0" : : "m"(control));
    }
#endif
#elif defined(__aarch64__)
    __asm__ __volatile__("msr fpcr, %0" : : "r"(state));
#elif defined(__arm__) && defined(__ARM_FP)
    __asm__ __volatile__("vmsr fpscr, %0" : : "r"((uint32_t)state));
#elif defined(__riscv_flen)
    __asm__ __volatile__("fscsr %0" : : "r"((unsigned long)state));
#else
    (void)state;
#endif
    __asm__ __volatile__("" ::: "memory");
}

/* Sets the default and returns what er_float_put() puts back. */
static uint64_t er_float_default(void)
{
    uint64_t found = er_float_get();
#if defined(__i386__)
    er_float_put((uint64_t)ER_X87 << 32 | ER_MXCSR);
#elif defined(__SSE__)
    er_float_put(ER_MXCSR);
#else
    er_float_put(0); /* nearest, nothing flushed, no traps: Arm's FPCR and FPSCR, RISC-V's fcsr */
#endif
    return found;
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
 *  Assumes   the block, if there is one, is aligned to 64 bytes.
 *  Ensures   measuring (base NULL) and carving run the same code, so the
 *            measured size is exact; sizes that overflow are detected.
 *  Costs     at most 63 bytes of padding per allocation.
 * ====================================================================== */
#define AR_ALIGN 64u

typedef struct ar_arena {
    unsigned char *base; /* NULL while measuring */
    size_t size;         /* bytes at base */
    size_t used;         /* bytes carved so far */
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

/* Carves count elements of elem bytes, aligned to 64 and not cleared. Returns NULL while measuring
 * or when the block is too small (then used exceeds size, which the caller checks once at the
 * end). */
static void *ar_carve(ar_arena *arena, size_t count, size_t elem)
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

#define AR_PAGE ((size_t)4096) /* with larger pages the call fails or includes more */
#define AR_HUGE ((size_t)2 << 20) /* huge page on x86-64 and most of AArch64 */

static void *ar_malloc(void *user, size_t size, size_t alignment)
{
    void *memory = NULL;
    (void)user;
    alignment = alignment < sizeof(void *) ? sizeof(void *) : alignment;
    alignment = size >= 8 * AR_HUGE ? AR_HUGE : alignment;
    return posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
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

/* Requests huge pages. A decoder step reads all weights; huge pages reduce page table walks and
 * save 5 to 10 % of its time. Returns 0 if the system has none. */
static int ar_advise_huge(void *memory, size_t size)
{
#ifdef MADV_HUGEPAGE
    return size >= AR_HUGE && madvise(memory, size & ~(AR_HUGE - 1), MADV_HUGEPAGE) == 0;
#else
    (void)memory;
    (void)size;
    return 0;
#endif
}

/* Requests huge pages for memory of the default allocator; other allocators decide for themselves.
 * Returns whether the request succeeded. */
static int ar_use_huge(const wnpu_allocator *allocator, void *memory, size_t size)
{
    return allocator->alloc == ar_malloc && ar_advise_huge(memory, size);
}

/* Populates pages that are about to be written in one system call instead of one page fault each,
 * which halves the time. Where the system cannot (Linux before 5.14), page faults do it. */
static void ar_populate(void *memory, size_t size)
{
#ifdef MADV_POPULATE_WRITE
    size_t skip = (size_t)-(uintptr_t)memory % AR_PAGE;
    if (size > skip + AR_PAGE) {
        (void)madvise((unsigned char *)memory + skip, (size - skip) & ~(AR_PAGE - 1),
                      MADV_POPULATE_WRITE);
    }
#else
    (void)memory;
    (void)size;
#endif
}

/* memset that the compiler must not remove although the memory is released next. */
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
 *            done and does not wait for workers that are still asleep.
 *            The parts of a job run one after another: no items of two
 *            parts run at the same time.
 *  Costs     less than a microsecond while workers still spin, a futex
 *            wake after that. An idle pool uses no CPU.
 *
 *  Each worker has a queue of consecutive items, so it reads memory in
 *  order, and much of what it cached during the previous job. The state of
 *  a queue is one word: generation << 32 | items left. A worker claims an
 *  item by decrementing the word with compare-and-swap, from its own queue
 *  first, then from those of the others. A stale claim fails because the
 *  generation differs, so it cannot touch a later job, and the job's fields
 *  do not change before all claimed items are done. A worker reports
 *  finished items once per queue, when the queue is empty; the worker that
 *  reports the last one begins the next part. This keeps traffic between
 *  cores low: a round trip may take half a microsecond.
 * ====================================================================== */
typedef void (*tp_task)(void *context, size_t index, unsigned worker);

/* Parts of a job are numbered from 0; items of part p are numbered from p * TP_PART. */
#define TP_PART ((size_t)1 << 20)

/* Number of items of a part; 0 ends the job. Called on any thread, while no item of the previous
 * part is running. */
typedef size_t (*tp_items)(void *context, size_t part);

#define TP_MAX_THREADS 64u
#define TP_SPINS 2000u /* pause instructions, about 20 to 60 us */

/* The ABI of 32-bit x86 aligns uint64_t to 4 bytes, so it could cross a cache line. */
typedef uint64_t tp_atomic __attribute__((aligned(8)));

/* The items of a job assigned to one worker. Padded so that no two share a cache line. */
typedef struct tp_queue {
    tp_atomic left;         /* atomic: generation << 32 | items not yet claimed */
    size_t end;             /* one past its last item */
    unsigned char padding[128 - sizeof(tp_atomic) - sizeof(size_t)];
} tp_queue;

typedef struct tp_pool {
    unsigned threads;       /* workers that may run at once, including the caller (worker 0) */
    uint32_t generation;    /* number of the last part begun */
    /* Written once per queue; on cache lines of their own, because workers read the other fields
     * for each item. */
    unsigned char pad_before[64];
    tp_atomic pending;      /* atomic: unfinished items of the part */
    unsigned sleepers;      /* atomic, changed under lock: threads that wait */
    size_t part;
    unsigned char pad_after[64];
    tp_items items;         /* NULL: the job has one part */
    tp_task task;
    void *context;
    wnpu_parallel_for_fn host; /* NULL: the pool's own threads */
    void *host_user;
    const int *cancel;      /* atomic: when non-zero, remaining items are skipped */
#ifndef WNPU_NO_THREADS
    pthread_mutex_t lock;
    pthread_cond_t work;
    unsigned started;
    int caller_sleeps;          /* atomic, changed under lock */
    int quit;                   /* atomic */
    struct tp_worker {
        struct tp_pool *pool;
        pthread_t thread;
        unsigned index;
    } workers[TP_MAX_THREADS];
#endif
    int over;                   /* atomic: the last part is finished */
    tp_queue queue[TP_MAX_THREADS]; /* [threads] */
} tp_pool;

WNPU_INLINE void tp_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Also polled by long tasks, which may return early: after a cancel no result is used. */
WNPU_INLINE int tp_cancelled(const tp_pool *pool)
{
    return pool->cancel != NULL && __atomic_load_n(pool->cancel, __ATOMIC_RELAXED);
}

/* Number of items, out of count, that a worker's queue receives; *first is the first of them. */
static size_t tp_queue_share(const tp_pool *pool, size_t worker, size_t count, size_t *first)
{
    size_t each = count / pool->threads, rest = count % pool->threads;
    *first = worker * each + (worker < rest ? worker : rest);
    return each + (worker < rest);
}

/* Whether the queue has unclaimed items. */
WNPU_INLINE int tp_has_items(const tp_queue *queue)
{
    return (uint32_t)__atomic_load_n(&queue->left, __ATOMIC_ACQUIRE) != 0;
}

/* Claims the next item of a queue. Returns 0 if it is empty. */
WNPU_INLINE int tp_claim(tp_queue *queue, size_t *index)
{
    uint64_t left = __atomic_load_n(&queue->left, __ATOMIC_ACQUIRE);
    while ((uint32_t)left != 0) {
        if (__atomic_compare_exchange_n(&queue->left, &left, left - 1, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {
            *index = queue->end - (size_t)(uint32_t)left;
            return 1;
        }
    }
    return 0;
}

/* Wakes waiting threads because a part of count items began or, with 0, the job ended. */
static void tp_wake(tp_pool *pool, size_t count)
{
#ifndef WNPU_NO_THREADS
    /* A read-modify-write rather than a load: a thread that goes to sleep after it sees the queues
     * as written before. */
    if (pool->started > 0 && __atomic_fetch_add(&pool->sleepers, 0, __ATOMIC_ACQ_REL) != 0 &&
        (count > 1 || __atomic_load_n(&pool->caller_sleeps, __ATOMIC_ACQUIRE))) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->work);
        pthread_mutex_unlock(&pool->lock);
    }
#else
    (void)pool;
    (void)count;
#endif
}

/* Begins a part of count items. */
static void tp_publish(tp_pool *pool, size_t count)
{
    unsigned i = count < pool->threads ? (unsigned)count : pool->threads; /* queues with items */
    pool->generation++;
    __atomic_store_n(&pool->pending, (uint64_t)count, __ATOMIC_RELAXED);
    while (i-- > 0) {
        size_t first, n = tp_queue_share(pool, i, count, &first);
        pool->queue[i].end = pool->part * TP_PART + first + n;
        __atomic_store_n(&pool->queue[i].left, (uint64_t)pool->generation << 32 | n,
                         __ATOMIC_RELEASE);
    }
    tp_wake(pool, count);
}

/* Advances to the next part. Returns its number of items, 0 at the end of the job. */
static size_t tp_advance(tp_pool *pool)
{
    return pool->items != NULL ? pool->items(pool->context, ++pool->part) : 0;
}

/* Reports `done` claimed items as finished. Returns 1 if they ended a part and the next one began.
 * With a host's threads the caller begins the next part. */
static int tp_finish(tp_pool *pool, size_t done)
{
    size_t count;
    if (__atomic_sub_fetch(&pool->pending, done, __ATOMIC_ACQ_REL) != 0 || pool->host != NULL) {
        return 0;
    }
    count = tp_advance(pool);
    if (count > 0) {
        tp_publish(pool, count);
        return 1;
    }
    __atomic_store_n(&pool->over, 1, __ATOMIC_RELEASE);
    tp_wake(pool, 0);
    return 0;
}

/* Claims and runs items until all queues are empty. */
static void tp_drain(tp_pool *pool, unsigned worker)
{
    unsigned i = 0;
    while (i < pool->threads) {
        tp_queue *queue = &pool->queue[(worker + i) % pool->threads];
        size_t index, done = 0;
        for (; tp_claim(queue, &index); done++) {
            if (!tp_cancelled(pool)) {
                pool->task(pool->context, index, worker);
            }
        }
        i = done > 0 && tp_finish(pool, done) ? 0 : i + 1;
    }
}

static void tp_host_worker(void *context, size_t worker)
{
    uint64_t found = er_float_default();
    tp_drain(context, (unsigned)worker);
    er_float_put(found);
}

#ifndef WNPU_NO_THREADS
static int tp_ready(const tp_pool *pool, unsigned worker, const int *end)
{
    return tp_has_items(&pool->queue[worker]) || __atomic_load_n(end, __ATOMIC_ACQUIRE);
}

/* Waits until the worker's queue has items or *end is non-zero. */
static void tp_wait(tp_pool *pool, unsigned worker, const int *end)
{
    unsigned spins = 0;
    while (!tp_ready(pool, worker, end) && spins++ < TP_SPINS) {
        tp_pause();
    }
    if (tp_ready(pool, worker, end)) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    if (worker == 0) {
        __atomic_store_n(&pool->caller_sleeps, 1, __ATOMIC_RELEASE);
    }
    __atomic_add_fetch(&pool->sleepers, 1, __ATOMIC_ACQ_REL);
    while (!tp_ready(pool, worker, end)) {
        pthread_cond_wait(&pool->work, &pool->lock);
    }
    __atomic_sub_fetch(&pool->sleepers, 1, __ATOMIC_ACQ_REL);
    if (worker == 0) {
        __atomic_store_n(&pool->caller_sleeps, 0, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&pool->lock);
}

static void *tp_main(void *argument)
{
    struct tp_worker *self = argument;
    tp_pool *pool = self->pool;
    (void)er_float_default();
    for (;;) {
        tp_wait(pool, self->index, &pool->quit);
        if (__atomic_load_n(&pool->quit, __ATOMIC_ACQUIRE)) {
            return NULL;
        }
        tp_drain(pool, self->index);
    }
}
#endif

/* Runs all parts of a job; the first one has count items. */
static void tp_start(tp_pool *pool, size_t count, tp_items items, tp_task task, void *context)
{
    pool->part = 0;
    pool->items = items;
    pool->task = task;
    pool->context = context;
    __atomic_store_n(&pool->over, 0, __ATOMIC_RELAXED);
    while (pool->host != NULL && count > 0) {
        tp_publish(pool, count);
        if (pool->threads > 1 && count > 1) {
            pool->host(pool->host_user, pool->threads, tp_host_worker, pool);
            (void)er_float_default();
        } else {
            tp_drain(pool, 0);
        }
        count = tp_advance(pool);
    }
    if (count == 0) {
        return;
    }
    tp_publish(pool, count);
    tp_drain(pool, 0);
#ifndef WNPU_NO_THREADS
    while (pool->started > 0 && !__atomic_load_n(&pool->over, __ATOMIC_ACQUIRE)) {
        tp_wait(pool, 0, &pool->over);
        tp_drain(pool, 0);
    }
#endif
}

/* Runs task(context, i, worker) for i in 0..count-1. worker < pool->threads, and tasks that run at
 * the same time have different workers. */
static void tp_run(tp_pool *pool, size_t count, tp_task task, void *context)
{
    tp_start(pool, count, NULL, task, context);
}

/* Runs the parts of a job one after another. The worker that finishes a part begins the next one,
 * which saves a round trip to the caller. */
static void tp_run_parts(tp_pool *pool, tp_items items, tp_task task, void *context)
{
    tp_start(pool, items(context, 0), items, task, context);
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
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
#else
    (void)pool;
#endif
}

/* Starts threads - 1 workers, unless the host provides a parallel-for. */
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

/* ---- CPUs available to this process ---- */

/* CPUs in the affinity mask of the calling thread; 0 if unknown. */
static unsigned tp_affinity(void)
{
    unsigned n = 0;
#if defined(WNPU_LINUX) && defined(SYS_sched_getaffinity)
    unsigned long mask[1024 / sizeof(unsigned long)]; /* 8,192 CPUs */
    long i, bytes = syscall(SYS_sched_getaffinity, 0L, sizeof mask, mask);
    for (i = 0; i < bytes / (long)sizeof *mask; i++) {
        n += (unsigned)__builtin_popcountl(mask[i]);
    }
#endif
    return n;
}

#if defined(WNPU_LINUX) && !defined(WNPU_NO_STDIO)
#define TP_CGROUP 4096u /* size limit of /proc/self/cgroup and of a path */

/* Reads the beginning of a small file as a string. Returns 0 if there is no such file. */
static int tp_read_file(const char *root, const char *path, const char *name, char *text,
                        size_t size)
{
    char full[TP_CGROUP + 256];
    ssize_t n = -1;
    int file, length = snprintf(full, sizeof full, "%s%s%s", root, path, name);
    if (length < 0 || (size_t)length >= sizeof full) {
        return 0;
    }
    file = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file >= 0) {
        n = read(file, text, size - 1);
        (void)close(file);
    }
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* Parses a decimal number at *at and advances past it and the white space behind it. Returns -1 if
 * there is none ("max"). */
static int64_t tp_number(const char **at)
{
    int64_t n = **at >= '0' && **at <= '9' ? 0 : -1;
    for (; **at >= '0' && **at <= '9' && n < INT64_MAX / 20; ++*at) {
        n = n * 10 + (**at - '0');
    }
    for (; **at == ' ' || **at == '\n'; ++*at) {
    }
    return n;
}

/* CPU quota of a control group, rounded up; UINT_MAX if unlimited. Version 2 has one file, "QUOTA
 * PERIOD", version 1 has two. */
static unsigned tp_group_cpus(const char *root, const char *path, int version)
{
    char text[64], text2[64];
    const char *at = text, *at2 = text2;
    int64_t quota, period;
    if (version == 2 ? !tp_read_file(root, path, "/cpu.max", text, sizeof text)
                     : !tp_read_file(root, path, "/cpu.cfs_quota_us", text, sizeof text) ||
                       !tp_read_file(root, path, "/cpu.cfs_period_us", text2, sizeof text2)) {
        return UINT_MAX;
    }
    quota = tp_number(&at);
    period = tp_number(version == 2 ? &at : &at2);
    if (quota <= 0 || period <= 0 || quota / period >= (int64_t)TP_MAX_THREADS) {
        return UINT_MAX;
    }
    return (unsigned)((quota + period - 1) / period);
}

/* The smallest quota of a group and its ancestors. path is relative to the mount point of the
 * control group file system, as the kernel reports it; in a container it may not exist there
 * although its ancestors do. */
static unsigned tp_groups_cpus(const char *root, const char *mount, char *path, int version)
{
    unsigned least = UINT_MAX;
    char full[TP_CGROUP + 64];
    for (;;) {
        char *slash = strrchr(path, '/');
        int length = snprintf(full, sizeof full, "%s%s", mount, path);
        unsigned n = length > 0 && (size_t)length < sizeof full
                         ? tp_group_cpus(root, full, version) : UINT_MAX;
        least = n < least ? n : least;
        if (slash == NULL) {
            return least;
        }
        *slash = '\0';
    }
}

/* Whether the comma-separated list of length n contains "cpu". */
static int tp_has_cpu(const char *list, size_t n)
{
    size_t i, begin = 0;
    for (i = 0; i <= n; i++) {
        if (i == n || list[i] == ',') {
            if (i - begin == 3 && memcmp(list + begin, "cpu", 3) == 0) {
                return 1;
            }
            begin = i + 1;
        }
    }
    return 0;
}

/* The CPU quota of the process's control groups. root is prepended to every path. */
static unsigned tp_quota(const char *root)
{
    char groups[TP_CGROUP], *line, *next;
    unsigned least = UINT_MAX, n;
    if (!tp_read_file(root, "/proc/self", "/cgroup", groups, sizeof groups)) {
        return UINT_MAX;
    }
    for (line = groups; *line != '\0'; line = next) {
        char *list = strchr(line, ':'), *path = list != NULL ? strchr(list + 1, ':') : NULL;
        next = strchr(line, '\n');
        next = next != NULL ? next : line + strlen(line);
        if (*next != '\0') {
            *next++ = '\0';
        }
        if (path == NULL || path >= next) {
            continue;
        }
        n = UINT_MAX;
        if (path == list + 1) {
            n = tp_groups_cpus(root, "/sys/fs/cgroup", path + 1, 2);
        } else if (tp_has_cpu(list + 1, (size_t)(path - list) - 1)) {
            n = tp_groups_cpus(root, "/sys/fs/cgroup/cpu", path + 1, 1);
        }
        least = n < least ? n : least;
    }
    return least;
}
#else
static unsigned tp_quota(const char *root)
{
    (void)root;
    return UINT_MAX;
}
#endif

/* CPUs that this process may use, 1..64: the affinity mask or, if unknown, those online, limited by
 * the control groups' quota. */
static unsigned tp_cpus(void)
{
    unsigned n = tp_affinity(), quota = tp_quota("");
    if (n == 0) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        n = online < 1 ? 1u : online > 64 ? 64u : (unsigned)online;
    }
    n = n < quota ? n : quota;
    return n < TP_MAX_THREADS ? n : TP_MAX_THREADS;
}

/* ---- zeroing new memory ---- */
#define TP_SAMPLE ((size_t)256 << 10) /* bytes whose time in small pages is measured */

typedef struct tp_zeroing {
    const wnpu_allocator *allocator;
    unsigned char *memory;
    size_t done, size;
    int whole;     /* 0: parts outside huge pages are skipped */
    double limit_ms; /* limit for a huge page in milliseconds */
    int slow;      /* atomic: a huge page exceeded the limit */
} tp_zeroing;

static size_t tp_zeroing_pages(const tp_zeroing *b)
{
    return (b->size + AR_HUGE - 1) / AR_HUGE;
}

static void tp_zero_page(tp_zeroing *b, size_t index)
{
    const size_t at = index > 0 ? index * AR_HUGE : b->done, to = (index + 1) * AR_HUGE;
    const size_t n = (to < b->size ? to : b->size) - at; /* < AR_HUGE at the end: small pages */
    const double since = er_now_ms();
    const int large = !__atomic_load_n(&b->slow, __ATOMIC_RELAXED) &&
                      ar_use_huge(b->allocator, b->memory + at, n);
    if (!large && !b->whole) {
        return;
    }
    ar_populate(b->memory + at, n);
    memset(b->memory + at, 0, n);
    if (large && er_now_ms() - since > b->limit_ms) {
        __atomic_store_n(&b->slow, 1, __ATOMIC_RELAXED);
    }
}

static void tp_zero_task(void *context, size_t index, unsigned worker)
{
    (void)worker;
    tp_zero_page(context, index);
}

/* Prepares to zero new memory except its first `used` bytes (fewer than AR_HUGE - TP_SAMPLE). What
 * remains is split into pages of AR_HUGE bytes, which may be zeroed in any order and by any thread.
 * They become huge pages while these are fast, then small pages, or none unless `whole` is set.
 *
 * Zeroing a huge page takes at most a seventh of the time of the small pages it replaces, unless a
 * virtual machine has to obtain its memory from the host first: then it takes as long as the small
 * pages, or seven times as long. So huge pages are used while each takes no more than 1.25 times
 * the time of small pages, or 1 ms. The time is measured until the memory has been written, because
 * some virtual machines obtain memory only then. If all of the memory is needed, small pages are
 * populated in one call; otherwise by page faults on first use. */
static void tp_zeroing_start(tp_zeroing *b, const wnpu_allocator *allocator, void *memory,
                             size_t used, size_t size, int whole)
{
    const size_t sample = size - used < TP_SAMPLE ? size - used : TP_SAMPLE;
    const size_t at = used > 0 ? used : size - sample; /* next to bytes in small pages */
    const double since = er_now_ms();
    memset(b, 0, sizeof *b);
    b->allocator = allocator;
    b->memory = memory;
    b->done = used > 0 ? used + sample : 0;
    b->size = used > 0 ? size : at;
    b->whole = whole;
    if (whole) {
        ar_populate(b->memory + at, sample);
    }
    memset(b->memory + at, 0, sample);
    b->limit_ms = (er_now_ms() - since) * 1.25 * (AR_HUGE / TP_SAMPLE);
    b->limit_ms = b->limit_ms > 1 ? b->limit_ms : 1;
}

/* Zeroes new memory with all threads. Returns 1 if no huge page exceeded the limit. */
static int tp_zero(tp_pool *pool, const wnpu_allocator *allocator, void *memory, size_t used,
                   size_t size, int whole)
{
    tp_zeroing job;
    tp_zeroing_start(&job, allocator, memory, used, size, whole);
    tp_run(pool, tp_zeroing_pages(&job), tp_zero_task, &job);
    return !job.slow;
}

/* ======================================================================
 *  4. mt_  maths in 16 lanes
 *
 *  Owns      exp, log, erf and reductions.
 *  Assumes   round to nearest even, no contraction (section 1).
 *  Ensures   the same bits on every instruction set: float operators are
 *            written once, with the compilers' vector extension, and
 *            compiled for vectors of 4, 8 or 16 lanes. Reductions have 16
 *            lanes whatever the width, and add lane i to lane i+8, then
 *            i+4, i+2, i+1.
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

/* Compilers keep an array in registers where the loops over it are unrolled: gcc has to be told so,
 * and clang early enough. */
#ifdef __clang__
#define MT_UNROLL _Pragma("clang loop unroll(full)")
#define MT_UNROLL4
#else
#define MT_UNROLL _Pragma("GCC unroll 16")
#define MT_UNROLL4 _Pragma("GCC unroll 4")
#endif

WNPU_INLINE uint32_t mt_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

WNPU_INLINE float mt_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Nearest integer, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no fraction bits. */
#define MT_ROUND 12582912.0f

typedef float mt_f4 __attribute__((vector_size(16)));
typedef int32_t mt_i4 __attribute__((vector_size(16)));
typedef float mt_f4u __attribute__((vector_size(16), aligned(4), may_alias));

/* Sum of 16 lanes in the one order. */
WNPU_INLINE float mt_sum16(const mt_f4 *part /* [4] */)
{
    mt_f4 sum = (part[0] + part[2]) + (part[1] + part[3]);
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

WNPU_INLINE float mt_larger(float a, float b) { return b > a ? b : a; }

/* Coefficients of mt_vexp2() and mt_vgelu_short(). */
#define MT_EXP2_LEAST -125.0f
#define MT_EXP2_0 0.999927998f
#define MT_EXP2_1 0.693260968f
#define MT_EXP2_2 0.242611378f
#define MT_EXP2_3 0.0551717728f

#define MT_GELU_LIMIT 4.3f
#define MT_GELU_0 0.398801744f
#define MT_GELU_1 -0.0661551207f
#define MT_GELU_2 0.0096949013f
#define MT_GELU_3 -0.00107132096f
#define MT_GELU_4 8.71078664e-05f
#define MT_GELU_5 -5.00530086e-06f
#define MT_GELU_6 1.90178923e-07f
#define MT_GELU_7 -4.24773061e-09f
#define MT_GELU_8 4.19595608e-11f

#endif /* WNPU_PART */
#if defined(WNPU_PART) && WNPU_PART == MT_PART_MATHS
/* ---- part: vectors of WNPU_LANES lanes and their maths ---- */

typedef float MT(fv) __attribute__((vector_size(WNPU_LANES * 4)));
typedef int32_t MT(iv) __attribute__((vector_size(WNPU_LANES * 4)));
typedef int8_t MT(bv) __attribute__((vector_size(WNPU_LANES)));
typedef uint8_t MT(cv) __attribute__((vector_size(WNPU_LANES)));
typedef float MT(fvu) __attribute__((vector_size(WNPU_LANES * 4), aligned(4), may_alias));
typedef int32_t MT(ivu) __attribute__((vector_size(WNPU_LANES * 4), aligned(4), may_alias));
typedef int8_t MT(bvu) __attribute__((vector_size(WNPU_LANES), aligned(1), may_alias));
typedef uint8_t MT(cvu) __attribute__((vector_size(WNPU_LANES), aligned(1), may_alias));
typedef uint16_t MT(huv) __attribute__((vector_size(WNPU_LANES * 2), aligned(1), may_alias));
typedef int16_t MT(suv) __attribute__((vector_size(WNPU_LANES * 2), aligned(2), may_alias));
typedef uint32_t MT(uv) __attribute__((vector_size(WNPU_LANES * 4)));
typedef uint32_t MT(uvu) __attribute__((vector_size(WNPU_LANES * 4), aligned(4), may_alias));

typedef struct { MT(fv) v; } MT(vec);
typedef struct { MT(fv) part[MT_PARTS]; } MT(acc); /* the 16 lanes of a reduction */

WNPU_INLINE WNPU_TARGET void MT(vload)(MT(vec) *r, const float *p) { r->v = *(const MT(fvu) *)p; }
WNPU_INLINE WNPU_TARGET void MT(vstore)(float *p, const MT(vec) *a) { *(MT(fvu) *)p = a->v; }
WNPU_INLINE WNPU_TARGET void MT(vset)(MT(vec) *r, float x) { r->v = (MT(fv)){0} + x; }

/* int32 to float, exact below 2^24. */
WNPU_INLINE WNPU_TARGET void MT(vload_int)(MT(vec) *r, const int32_t *p)
{
    r->v = __builtin_convertvector(*(const MT(ivu) *)p, MT(fv));
}

/* Bytes as they are, with their signs. gcc 12 widens them one by one if nothing is done to them
 * between memory and that, and four of them always. */
WNPU_INLINE WNPU_TARGET void MT(load_int8)(MT(iv) *r, const void *p)
{
#ifdef WNPU_ARM
    uint32_t four;
    memcpy(&four, p, sizeof four);
    *r = (MT(iv))vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four))));
#elif WNPU_WIDTH == 512
    *r = (MT(iv))_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
#else
    MT(cv) turned = *(const MT(cvu) *)p ^ 128;
    *r = (MT(iv))__builtin_convertvector(turned, MT(uv)) - 128;
#endif
}

/* 16 bits each, without signs. */
WNPU_INLINE WNPU_TARGET void MT(load_uint16)(MT(iv) *r, const void *p)
{
#ifdef WNPU_ARM
    uint64_t four;
    memcpy(&four, p, sizeof four);
    *r = (MT(iv))vmovl_u16(vcreate_u16(four));
#else
    *r = __builtin_convertvector(*(const MT(huv) *)p, MT(iv));
#endif
}

WNPU_INLINE WNPU_TARGET void MT(vload_int8)(MT(vec) *r, const int8_t *p)
{
    MT(iv) i;
    MT(load_int8)(&i, p);
    r->v = __builtin_convertvector(i, MT(fv));
}

/* Their lowest bytes. By way of 16 bits, because gcc 12 would take them one by one. */
WNPU_INLINE WNPU_TARGET void MT(store_int8)(void *p, const MT(iv) *i)
{
    MT(suv) half = __builtin_convertvector(*i, MT(suv));
    *(MT(bvu) *)p = __builtin_convertvector(half, MT(bv));
}

/* Rounds to the nearest integer, ties to even, and stores as int8; |a| <= 127. */
WNPU_INLINE WNPU_TARGET void MT(vstore_int8)(int8_t *p, const MT(vec) *a)
{
    MT(iv) i = (MT(iv))(a->v + MT_ROUND) - 0x4b400000;
    MT(store_int8)(p, &i);
}

WNPU_INLINE WNPU_TARGET void MT(vmax)(MT(vec) *r, const MT(vec) *a)
{
    MT(iv) gt = a->v > r->v;
    r->v = (MT(fv))((gt & (MT(iv))a->v) | (~gt & (MT(iv))r->v));
}

/* Limits r to -most..most; NaN stays. */
WNPU_INLINE WNPU_TARGET void MT(vlimit)(MT(vec) *r, float most)
{
#if WNPU_WIDTH == 512
    r->v = (MT(fv))_mm512_min_ps(_mm512_set1_ps(most), (__m512)r->v);
    r->v = (MT(fv))_mm512_max_ps(_mm512_set1_ps(-most), (__m512)r->v);
#else
    MT(iv) high = r->v > most, low = r->v < -most;
    r->v = (MT(fv))((high & (MT(iv))((MT(fv)){0} + most)) | (~high & (MT(iv))r->v));
    r->v = (MT(fv))((low & (MT(iv))((MT(fv)){0} - most)) | (~low & (MT(iv))r->v));
#endif
}

WNPU_INLINE WNPU_TARGET void MT(vabs)(MT(vec) *r) { r->v = (MT(fv))((MT(iv))r->v & 0x7fffffff); }

WNPU_INLINE WNPU_TARGET float MT(acc_sum)(const MT(acc) *a)
{
    mt_f4 part[4];
    memcpy(part, a->part, sizeof part);
    return mt_sum16(part);
}

/* e^x for any x; below -87.3 the result is 0. Cody-Waite reduction, then the minimax polynomial
 * of Cephes expf (S. Moshier, 1989): largest error 2 units in the last place. */
WNPU_INLINE WNPU_TARGET void MT(vexp)(MT(vec) *r)
{
    MT(fv) x = r->v, k, t, p;
    MT(iv) small = x < -87.3f, large = x > 88.0f;
    x = (MT(fv))((large & (MT(iv))((MT(fv)){0} + 88.0f)) | (~large & (MT(iv))x));
    x = (MT(fv))(~small & (MT(iv))x);
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
    p = (MT(fv))((MT(iv))p + ((MT(iv))t << 23));
    r->v = (MT(fv))(~small & (MT(iv))p);
}

/* Natural logarithm of normal positive x. Reduction to sqrt(1/2)..sqrt(2), then the polynomial of
 * Cephes logf (S. Moshier, 1989): largest error 1 unit in the last place or so. */
WNPU_INLINE WNPU_TARGET void MT(vlog)(MT(vec) *r)
{
    MT(iv) bits = (MT(iv))r->v;
    MT(iv) exponent = (bits >> 23) - 126;
    MT(fv) m = (MT(fv))((bits & 0x007fffff) | 0x3f000000); /* 0.5..1 */
    MT(iv) low = m < 0.707106781186547524f;
    MT(fv) x, z, y, e;
    exponent += low; /* low is -1 where the mantissa is doubled */
    x = m + (MT(fv))(low & (MT(iv))m) - 1.0f;
    /* Small integers to float without a conversion instruction: put them into the mantissa. */
    e = (MT(fv))(exponent + 0x4b400000) - MT_ROUND;
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
WNPU_INLINE WNPU_TARGET void MT(vgelu)(MT(vec) *r)
{
    MT(fv) x = r->v, a, t, p;
    MT(vec) e;
    MT(iv) negative = x < 0.0f;
    a = (MT(fv))((MT(iv))x & 0x7fffffff) * 0.70710678118654752f;
    t = 1.0f / (1.0f + 0.3275911f * a);
    e.v = -(a * a);
    MT(vexp)(&e);
    p = t * 1.061405429f - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    p = p * t * e.v; /* erfc(a), a >= 0 */
    /* x >= 0: x (2 - erfc) / 2; x < 0: x erfc / 2, which keeps precision in the tail. */
    t = 2.0f - p;
    p = (MT(fv))((negative & (MT(iv))p) | (~negative & (MT(iv))t));
    r->v = x * 0.5f * p;
}

/* ---- shorter forms for results that become int8 ---- */

/* 2^x for x <= 126; below -125 the result is 2^-125. Relative error below 8e-5: minimax polynomial
 * of third degree on -0.5..0.5, fitted by linear programming. */
WNPU_INLINE WNPU_TARGET void MT(vexp2)(MT(vec) *r)
{
    MT(fv) x = r->v, t, p;
    MT(iv) low = x < MT_EXP2_LEAST;
    x = (MT(fv))((low & (MT(iv))((MT(fv)){0} + MT_EXP2_LEAST)) | (~low & (MT(iv))x));
    t = x + MT_ROUND;
    x = x - (t - MT_ROUND);
    p = x * MT_EXP2_3 + MT_EXP2_2;
    p = p * x + MT_EXP2_1;
    p = p * x + MT_EXP2_0;
    r->v = (MT(fv))((MT(iv))p + ((MT(iv))t << 23));
}

/* GELU as x (0.5 + y Q(y^2)) with y = x limited to -4.3..4.3: absolute error below 4e-5 for
 * |x| < 8. Q is a minimax polynomial fitted by linear programming. */
WNPU_INLINE WNPU_TARGET void MT(vgelu_short)(MT(vec) *r)
{
    MT(fv) x = r->v, y, t, p;
    MT(vec) within = *r;
    MT(vlimit)(&within, MT_GELU_LIMIT);
    y = within.v;
    t = y * y;
    p = t * MT_GELU_8 + MT_GELU_7;
    p = p * t + MT_GELU_6;
    p = p * t + MT_GELU_5;
    p = p * t + MT_GELU_4;
    p = p * t + MT_GELU_3;
    p = p * t + MT_GELU_2;
    p = p * t + MT_GELU_1;
    p = p * t + MT_GELU_0;
    r->v = x * (y * p + 0.5f);
}

#endif
#ifndef WNPU_PART

#define WNPU_PART MT_PART_MATHS
#define WNPU_WIDTH WNPU_BASE
#include WNPU_SELF
#ifdef WNPU_X86
#define WNPU_WIDTH 512
#include WNPU_SELF
#endif
#undef WNPU_PART

WNPU_INLINE float mt_vmaximum(const mt_vec *a)
{
    float best[4];
    unsigned i;
    for (i = 0; i < 4; i++) {
        best[i] = mt_larger(a->v[i], a->v[(i + 4) % MT_LANES]);
    }
    return mt_larger(mt_larger(best[0], best[2]), mt_larger(best[1], best[3]));
}

/* Single values by the same code, so that scalar and vector users agree. */
static float mt_exp1(float x)
{
    mt_vec v;
    mt_vset(&v, x);
    mt_vexp(&v);
    return v.v[0];
}

static float mt_exp2_1(float x)
{
    mt_vec v;
    mt_vset(&v, x);
    mt_vexp2(&v);
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
 *  5. au_  audio: sample formats, channel mixing, resampling, WAV
 *
 *  Owns      conversion of a caller's recording to 16 kHz mono.
 *  Assumes   a reader callback writes only to the buffer it is given.
 *  Ensures   constant memory for any length and rate; the output depends
 *            on the recording alone, not on how many frames a reader
 *            returns at a time; output sample m is the signal at
 *            m / 16000 s, with silence before and after the recording;
 *            there are ceil(frames * 16000 / rate) output samples. At a
 *            rate of 16000 samples are not changed. The pass band is flat
 *            within 0.1 dB to 7 kHz, or to 0.45 rate if that is lower;
 *            aliases and images are at least 80 dB below the signal.
 *  Costs     215 KiB; 16000 dot products of 48 to 560 taps per second of
 *            recording, twice that for rates with more phases than rows
 *            fit; up to a few ms when a stream opens with a new rate.
 * ====================================================================== */
#define AU_RATE 16000u      /* sample rate of Whisper's input, in Hz */
#define AU_RATE_MIN 8000u
#define AU_RATE_MAX 192000u
#define AU_CHANNELS_MAX 256u
#define AU_LIMIT 4.0f       /* 12 dB above full scale, see the header */

#define AU_BANK 32768u      /* floats of filter coefficients, 128 KiB */
#define AU_HALF_MAX 280u    /* half the filter taps at AU_RATE_MAX */
#define AU_WINDOW 5120u     /* floats between the source and the filter */
#define AU_INTERVALS_PER_SECOND 20u /* see "intervals" below */
#define AU_PROBES_PER_SECOND 8000u  /* frames examined in each interval, per second */
#define AU_RAW 65536u       /* bytes between a reader and the sample conversion */

typedef struct au_stream {
    wnpu_audio audio;       /* as opened, with defaults for fields the caller's lacks */
    size_t width, frame;    /* bytes per sample and per frame */
    int reader;             /* the source is a reader callback, not memory */
    uint64_t consumed;      /* frames converted so far */
    int ended;              /* the source is exhausted or failed */
    wnpu_error fault;       /* error of the reader, if any; reported after the last sample */

    unsigned char *raw;     /* [AU_RAW] what the reader returned last */
    size_t raw_at, raw_have; /* in frames: position in raw, frames in raw */
    int reader_ended;       /* the reader returned its last frames, or failed */

    size_t interval_left;   /* frames left in the current interval */
    int32_t used_channel;   /* channel in use there, or WNPU_CHANNEL_MIX */
    uint32_t scale;         /* full scale of float samples is 2^scale: 0, 15, 23 or 31 */
    uint64_t opposed;       /* frames in intervals whose channels cancel each other */

    /* The filter bank. It is reused while consecutive recordings have the same rate. */
    uint32_t bank_rate;     /* the rate it was designed for, 0 if none */
    uint32_t phases;        /* output positions between two input samples */
    uint32_t step, step_phase; /* distance of two outputs: whole inputs, and phases */
    uint32_t rows;          /* intervals into which the bank divides one input sample */
    size_t half, taps;      /* taps = 2 half, a multiple of 16 */
    float *bank;            /* [rows or rows + 1, taps] */

    float *window;          /* [AU_WINDOW] mono at the source's rate */
    size_t at;              /* first tap of the next output in window */
    size_t have, real;      /* floats in window; those of them before the trailing silence */
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

/* Every integer format is converted with its sign in bit 31. */
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

/* Clipped before the conversion to float, where a large value would become infinite. */
static float au_from_double(double x)
{
    if (!(x >= -AU_LIMIT && x <= AU_LIMIT)) {
        return !isfinite(x) ? 0.0f : x > 0.0 ? AU_LIMIT : -AU_LIMIT;
    }
    return (float)x;
}

/* A-law of ITU-T G.711: even bits are inverted; sign (1 is positive), 3 bits of segment, 4 of step.
 * Returns the middle of the step as a 16-bit value. */
static uint32_t au_alaw(unsigned code)
{
    unsigned c = code ^ 0x55u, segment = c >> 4 & 7u;
    uint32_t value = (c & 15u) * 16u + 8u;
    if (segment > 0) {
        value = (value + 256u) << (segment - 1);
    }
    return c & 0x80u ? value : 0u - value;
}

/* u-law of ITU-T G.711: all bits are inverted; sign (1 is negative), segment, step; biased by 33
 * steps of 4, so that each segment is twice as long as the one before. */
static uint32_t au_ulaw(unsigned code)
{
    unsigned c = ~code;
    uint32_t value = (((c & 15u) * 8u + 132u) << (c >> 4 & 7u)) - 132u;
    return c & 0x80u ? 0u - value : value;
}

/* gain applies to float formats only and is a power of two. */
WNPU_INLINE float au_sample(const unsigned char *p, int32_t format, float gain)
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
        return au_from_float(f * gain);
    case WNPU_SAMPLE_F64LE:
        bits64 = au_le64(p);
        memcpy(&d, &bits64, sizeof d);
        return au_from_double(d * (double)gain);
    case WNPU_SAMPLE_ALAW: return au_from_int(au_alaw(p[0]) << 16);
    case WNPU_SAMPLE_ULAW: return au_from_int(au_ulaw(p[0]) << 16);
    default: /* WNPU_SAMPLE_F32; au_open() refuses all other values */
        memcpy(&f, p, sizeof f);
        return au_from_float(f * gain);
    }
}

static float au_gain(const au_stream *s)
{
    return 1.0f / (float)((uint32_t)1 << s->scale);
}

/* out[i] is the selected channel of frame i, or the mean of all channels, summed from channel 0. */
static void au_convert(const au_stream *s, const unsigned char *frames, float *out, size_t n)
{
    const int32_t format = s->audio.format;
    const size_t width = s->width, frame = s->frame, channels = s->audio.channels;
    const float gain = au_gain(s);
    size_t i, c;
    if (s->used_channel >= 0 || channels == 1) {
        frames += s->used_channel > 0 ? (size_t)s->used_channel * width : 0;
        for (i = 0; i < n; i++) {
            out[i] = au_sample(frames + i * frame, format, gain);
        }
        return;
    }
    for (i = 0; i < n; i++) {
        const unsigned char *p = frames + i * frame;
        float sum = au_sample(p, format, gain);
        for (c = 1; c < channels; c++) {
            p += width;
            sum += au_sample(p, format, gain);
        }
        out[i] = sum / (float)channels;
    }
}

/* ---- intervals ----
 *
 * The channel and the scale of float samples are chosen for each interval of
 * 1 / AU_INTERVALS_PER_SECOND s. Intervals begin at multiples of their length, so the result
 * depends
 * neither on how many frames a reader returns at a time nor on whether the source is a reader. */

static int au_mixes_channels(const wnpu_audio *a)
{
    return a->channel == WNPU_CHANNEL_MIX && a->channels > 1;
}

static int au_is_float(const wnpu_audio *a)
{
    return a->format == WNPU_SAMPLE_F32 || a->format == WNPU_SAMPLE_F32LE ||
           a->format == WNPU_SAMPLE_F64LE;
}

static int au_is_analysed(const wnpu_audio *a)
{
    return au_mixes_channels(a) || au_is_float(a);
}

static size_t au_interval_frames(const wnpu_audio *a)
{
    size_t most = AU_RAW / (a->channels * (size_t)au_widths[a->format]);
    return a->rate / AU_INTERVALS_PER_SECOND < most ? a->rate / AU_INTERVALS_PER_SECOND : most;
}

/* The mean of channels with opposite polarity, such as a balanced line recorded as two channels, is
 * silence. If the power of the mean is 30 dB below that of the loudest channel, or 16 dB below that
 * of the mean of independent channels, the loudest channel is used instead, until the mean is
 * within 10 dB again. During silence nothing changes. */
static void au_choose_channel(au_stream *s, const unsigned char *frames, size_t n)
{
    const size_t channels = s->audio.channels, step = s->audio.rate / AU_PROBES_PER_SECOND;
    const float gain = au_gain(s);
    double mean_power = 0.0, sum = 0.0, apart, power[AU_CHANNELS_MAX] = {0.0};
    size_t i, c, loudest = 0, probes = 0;
    for (i = 0; i < n; i += step) {
        const unsigned char *p = frames + i * s->frame;
        double mean = 0.0;
        for (c = 0; c < channels; c++) {
            double x = (double)au_sample(p + c * s->width, s->audio.format, gain);
            power[c] += x * x;
            mean += x;
        }
        mean /= (double)channels;
        mean_power += mean * mean;
        probes++;
    }
    for (c = 0; c < channels; c++) {
        loudest = power[c] > power[loudest] ? c : loudest;
        sum += power[c];
    }
    if (power[loudest] > 1e-9 * (double)probes) { /* -90 dB */
        apart = sum / ((double)channels * (double)channels);
        if (mean_power >= power[loudest] * 1e-3 &&
            mean_power >= apart * (s->used_channel >= 0 ? 0.1 : 0.025)) {
            s->used_channel = WNPU_CHANNEL_MIX;
        } else if (s->used_channel < 0 || power[s->used_channel] < power[loudest] * 0.25) {
            s->used_channel = (int32_t)loudest;
        }
    }
    s->opposed += s->used_channel >= 0 ? n : 0;
}

/* The value of a sample of a float format, neither scaled nor clipped. */
static double au_raw_float(const unsigned char *p, int32_t format)
{
    uint64_t bits64;
    uint32_t bits;
    double d;
    float f;
    if (format == WNPU_SAMPLE_F64LE) {
        bits64 = au_le64(p);
        memcpy(&d, &bits64, sizeof d);
        return d;
    }
    if (format == WNPU_SAMPLE_F32LE) {
        bits = au_le32(p);
        memcpy(&f, &bits, sizeof f);
    } else {
        memcpy(&f, p, sizeof f);
    }
    return (double)f;
}

/* Detects float samples in the range of integers: if one in eight is 24 dB above full scale, or all
 * are integers and some are 18 dB above it, full scale is 2^15, 2^23 or 2^31 from here on. */
static void au_detect_scale(au_stream *s, const unsigned char *frames, size_t n)
{
    const size_t channels = s->audio.channels, step = s->audio.rate / AU_PROBES_PER_SECOND;
    const double full = (double)((uint32_t)1 << s->scale);
    size_t i, c, probes = 0, over = 0, whole = 0, silent = 0;
    double peak = 0.0;
    for (i = 0; i < n; i += step) {
        for (c = 0; c < channels; c++) {
            double x = fabs(au_raw_float(frames + i * s->frame + c * s->width, s->audio.format));
            if (x <= 1e15) { /* false for NaN too */
                peak = x > peak ? x : peak;
                over += x > 16.0 * full;
                whole += x == (double)(int64_t)x;
                silent += x == 0.0;
            }
            probes++;
        }
    }
    if (over * 8 > probes ||
        (s->scale == 0 && peak >= 8.0 && whole == probes && (probes - silent) * 8 > probes)) {
        s->scale = s->scale < 15 && peak <= 65536.0 ? 15
                 : s->scale < 23 && peak <= 16777216.0 ? 23 : 31;
    }
}

/* ---- source ---- */

/* Reads up to `want` frames, in one call or, if whole is set, until they are complete. A failure
 * ends the stream as its end would, so that the frames before it are still used. */
static void au_fill_raw(au_stream *s, size_t want, int whole)
{
    s->raw_at = 0;
    s->raw_have = 0;
    do {
        size_t room = want - s->raw_have;
        int64_t got = s->audio.read(s->audio.user, s->raw + s->raw_have * s->frame, room);
        (void)er_float_default();
        if (got < 0) {
            (void)er_set(&s->fault, WNPU_E_IO, "the audio reader failed with %lld after %llu "
                         "frames", (long long)got,
                         (unsigned long long)(s->consumed + s->raw_have));
        } else if ((uint64_t)got > room) {
            (void)er_set(&s->fault, WNPU_E_IO, "the audio reader returned %lld frames where at "
                         "most %llu were asked for; correct its return value", (long long)got,
                         (unsigned long long)room);
            got = -1;
        }
        s->reader_ended = got <= 0;
        s->raw_have += got > 0 ? (size_t)got : 0;
    } while (whole && !s->reader_ended && s->raw_have < want);
}

/* Address of the next frame. */
static const unsigned char *au_next(const au_stream *s)
{
    return s->audio.read != NULL
               ? s->raw + s->raw_at * s->frame
               : (const unsigned char *)s->audio.data + (size_t)s->consumed * s->frame;
}

/* Begins the next interval. Returns 0 at the end. */
static int au_next_interval(au_stream *s)
{
    const int judged = au_is_analysed(&s->audio);
    const size_t most = judged ? au_interval_frames(&s->audio) : AU_RAW / s->frame;
    if (s->audio.read != NULL) {
        if (s->reader_ended) {
            return 0;
        }
        au_fill_raw(s, most, judged);
        s->interval_left = s->raw_have;
    } else {
        uint64_t left = s->audio.frames - s->consumed;
        s->interval_left = left < most ? (size_t)left : most;
    }
    if (s->interval_left > 0 && au_is_float(&s->audio)) {
        au_detect_scale(s, au_next(s), s->interval_left);
    }
    if (s->interval_left > 0 && au_mixes_channels(&s->audio)) {
        au_choose_channel(s, au_next(s), s->interval_left);
    }
    return s->interval_left > 0;
}

/* Reads 1..n mono samples at the source's rate into out. Returns 0 at the end or after a
 * failure. */
static size_t au_read_mono(au_stream *s, float *out, size_t n)
{
    if (s->ended || n == 0) {
        return 0;
    }
    if (s->interval_left == 0 && !au_next_interval(s)) {
        s->ended = 1;
        return 0;
    }
    n = s->interval_left < n ? s->interval_left : n;
    au_convert(s, au_next(s), out, n);
    s->raw_at += s->audio.read != NULL ? n : 0;
    s->consumed += n;
    s->interval_left -= n;
    return n;
}

/* Frames left of the interval in which a restored stream continues; it was analysed before. */
static size_t au_rest_of_interval(const au_stream *s)
{
    const size_t most = au_interval_frames(&s->audio);
    const uint64_t left = s->audio.frames - s->consumed;
    size_t rest = (size_t)(s->consumed % most);
    if (s->reader) {
        return s->raw_have - s->raw_at;
    }
    rest = au_is_analysed(&s->audio) && rest > 0 ? most - rest : 0;
    return left < rest ? (size_t)left : rest;
}

/* ---- resampler ----
 *
 * Output m lies at m * rate / 16000 input samples, a multiple of 1 / phases. Its value is the
 * band-limited signal there: the sum over inputs k of x[k] h(m * rate / 16000 - k), where h is a
 * Kaiser-windowed sinc (J. Kaiser 1974; A. Oppenheim, R. Schafer, "Discrete-Time Signal
 * Processing", 7.5.3, for its two formulas). The bank holds h at every phase or, if there are too
 * many, at evenly spaced points with linear interpolation between them. The error of that is at
 * most
 * (pi cutoff / rows)^2 / 2 with cutoff in cycles per input sample: 94 dB below the signal at 255
 * rows
 * and the highest cutoff, 0.5. */

#define AU_STOP_DB 90.0

/* sin(pi x) without libm, whose last bits differ between platforms. Taylor series, |error| <
 * 1e-15. */
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

/* Modified Bessel function of the first kind, order 0: the power series 9.6.12 of Abramowitz and
 * Stegun, which converges after about 30 terms for the arguments used here (below 9). */
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

/* h at t input samples from its centre, up to a constant factor. */
static double au_windowed_sinc(double t, double cutoff, double half)
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

/* Row r holds h(r / rows - k) for k = 1 - half .. half, normalised to a sum of 1 so that a constant
 * input stays constant. h is even: row rows - r is row r reversed. */
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
            row[i] = au_windowed_sinc((double)r / (double)s->rows - k, cutoff, (double)s->half);
            sum += row[i];
        }
        for (i = 0; i < s->taps; i++) {
            to[i] = (float)(row[i] / sum);
        }
    }
}

/* When decimating, frequencies above 16000 - 7000 Hz would alias below 7 kHz, so the stop band
 * begins there. When interpolating, images begin at half the source's rate. */
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
    s->half = s->half > AU_HALF_MAX ? AU_HALF_MAX : s->half; /* reached at AU_RATE_MAX */
    s->taps = 2 * s->half;
    s->phases = AU_RATE / common;
    s->step = rate / common / s->phases;
    s->step_phase = rate / common % s->phases;
    s->rows = (uint32_t)(AU_BANK / s->taps);
    s->rows = s->phases <= s->rows ? s->phases : s->rows - 1; /* one more is stored */
    au_design_rows(s, 0.5 * (pass + stop) / r);
    s->bank_rate = rate;
}

/* Dot product; taps is a multiple of 16. Lane i sums every 16th product from i on. Vectors of four
 * lanes fit the registers of every baseline instruction set. */
WNPU_INLINE float au_dot(const float *x, const float *h, size_t taps)
{
    mt_f4 sum[4] = {{0}};
    size_t i;
    for (i = 0; i < taps; i += 16) {
        sum[0] += *(const mt_f4u *)(x + i) * *(const mt_f4u *)(h + i);
        sum[1] += *(const mt_f4u *)(x + i + 4) * *(const mt_f4u *)(h + i + 4);
        sum[2] += *(const mt_f4u *)(x + i + 8) * *(const mt_f4u *)(h + i + 8);
        sum[3] += *(const mt_f4u *)(x + i + 12) * *(const mt_f4u *)(h + i + 12);
    }
    return mt_sum16(sum);
}

/* Removes samples that no further output needs and appends samples of the source; after its end,
 * silence for the second half of the last filters. */
static void au_refill_window(au_stream *s)
{
    size_t kept = s->have - s->at, got;
    memmove(s->window, s->window + s->at, kept * sizeof(float));
    s->at = 0;
    s->have = kept;
    got = au_read_mono(s, s->window + kept, AU_WINDOW - AU_HALF_MAX - kept);
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
            au_refill_window(s);
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

/* Carves a stream with all memory it will ever use. *stream is NULL while measuring. */
static void au_stream_carve(ar_arena *arena, au_stream **stream)
{
    au_stream *s = ar_carve(arena, 1, sizeof *s);
    float *bank = ar_carve(arena, AU_BANK, sizeof(float));
    float *window = ar_carve(arena, AU_WINDOW, sizeof(float));
    unsigned char *raw = ar_carve(arena, AU_RAW, 1);
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
        return er_set(error, WNPU_E_ARGUMENT, "audio: format %d is not a wnpu_sample_format",
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

/* Copies the caller's structure, of whichever version, into *ours; other fields get defaults.
 * Errors: E_ARGUMENT, E_VERSION. */
static int au_import(wnpu_audio *ours, const wnpu_audio *audio, wnpu_error *error)
{
    int status;
    wnpu_audio_init(ours, sizeof *ours);
    if (audio == NULL) {
        return er_set(error, WNPU_E_ARGUMENT, "audio is NULL");
    }
    status = er_import(ours, sizeof *ours, audio, audio->struct_size);
    if (status != WNPU_OK) {
        return er_set(error, status, "audio: struct_size %lu or a field beyond it is unknown to "
                      "this library; fill the structure with wnpu_audio_init() first",
                      (unsigned long)audio->struct_size);
    }
    return au_check(ours, error);
}

/* Opens a recording in place of the current one. data or the reader must stay valid while the
 * stream is read. On failure the stream is at its end. Errors: E_ARGUMENT, E_VERSION. */
static int au_open(au_stream *s, const wnpu_audio *audio, wnpu_error *error)
{
    int status = au_import(&s->audio, audio, error);
    s->consumed = 0;
    s->ended = 1;
    er_clear(&s->fault);
    s->raw_at = s->raw_have = s->interval_left = 0;
    s->at = s->have = s->real = 0;
    s->scale = 0;
    s->opposed = 0;
    s->reader_ended = 0;
    if (status != WNPU_OK) {
        wnpu_audio_init(&s->audio, sizeof s->audio);
        return status;
    }
    s->width = au_widths[s->audio.format];
    s->frame = s->width * s->audio.channels;
    s->reader = s->audio.read != NULL;
    s->ended = 0;
    s->used_channel = s->audio.channel;
    if (s->audio.rate != AU_RATE) {
        au_design(s, s->audio.rate);
        s->have = s->real = s->half - 1; /* silence before the first frame */
        memset(s->window, 0, s->have * sizeof(float));
        s->phase = 0;
    }
    return WNPU_OK;
}

/* Continues the current recording with a new description of it: after wnpu_restore() the pointers
 * are those of another process. A reader continues where the stream stopped reading. On failure
 * nothing changes. Errors: E_ARGUMENT, E_VERSION. */
static int au_continue(au_stream *s, const wnpu_audio *audio, wnpu_error *error)
{
    wnpu_audio a;
    int status = au_import(&a, audio, error);
    if (status != WNPU_OK) {
        return status;
    }
    if (a.format != s->audio.format || a.rate != s->audio.rate ||
        a.channels != s->audio.channels || (a.read != NULL) != s->reader ||
        (a.channel != s->audio.channel && a.channel != WNPU_CHANNEL_MIX) ||
        (!s->reader && a.frames != s->audio.frames)) {
        return er_set(error, WNPU_E_ARGUMENT, "audio: not the recording of this run: format, "
                      "rate, channels, frames and use of data or read must be the same");
    }
    a.channel = s->audio.channel;
    s->audio = a;
    s->reader_ended = 0;
    if (a.rate != AU_RATE) {
        au_design(s, a.rate);
    }
    return WNPU_OK;
}

/* Frames obtained from the source, including those still in raw. */
static uint64_t au_frames_read(const au_stream *s)
{
    return s->consumed + (s->raw_have - s->raw_at);
}

/* Writes up to n samples at 16 kHz to out[n]. Returns how many: fewer than n only where the
 * recording ends or fails, and from then on 0 or the negative error (E_IO). */
static int64_t au_read(au_stream *s, float *out, size_t n, wnpu_error *error)
{
    size_t made = 0, got;
    if (s->audio.rate == AU_RATE) {
        while (made < n && (got = au_read_mono(s, out + made, n - made)) > 0) {
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

/* Frames in whole milliseconds, rounded down; does not overflow. */
static int64_t au_ms(const au_stream *s, uint64_t frames)
{
    uint64_t rate = s->audio.rate;
    return (int64_t)(frames / rate * 1000u + frames % rate * 1000u / rate);
}

/* Length of the recording in ms, or -1 while it is unknown because a reader has not ended. */
static int64_t au_total_ms(const au_stream *s)
{
    if (s->ended) {
        return au_ms(s, s->consumed);
    }
    return s->audio.read != NULL && s->audio.frames == 0 ? -1 : au_ms(s, s->audio.frames);
}

/* Clears the recording and all samples of it. The filter bank stays. */
static void au_wipe(au_stream *s)
{
    ar_wipe(s->window, AU_WINDOW * sizeof(float));
    ar_wipe(s->raw, AU_RAW);
    wnpu_audio_init(&s->audio, sizeof s->audio);
    s->consumed = 0;
    s->ended = 1;
    s->at = s->have = s->real = 0;
    s->raw_at = s->raw_have = s->interval_left = 0;
    er_clear(&s->fault);
}

WNPU_API void wnpu_audio_init(wnpu_audio *audio, size_t struct_size)
{
    wnpu_audio standard;
    memset(&standard, 0, sizeof standard);
    standard.format = WNPU_SAMPLE_F32;
    standard.rate = AU_RATE;
    standard.channels = 1;
    standard.channel = WNPU_CHANNEL_MIX;
    er_init(audio, struct_size, &standard, sizeof standard);
}

/* ---- WAV ----
 *
 * From "Multimedia Programming Interface and Data Specifications 1.0" (IBM and Microsoft, 1991),
 * "Multiple channel audio data and WAVE files" (Microsoft, 2001) for EXTENSIBLE, and ITU-R BS.2088
 * for RF64 and BW64. Sizes in headers are not reliable: recorders that stream or crash leave zeros,
 * all ones, or a size chosen in advance. */
#define AU_LOOKAHEAD 2048u      /* bytes after a chunk that are examined to tell what follows */
#define AU_SIZE_UNKNOWN UINT64_MAX
#define AU_SIZE_GUESS 0x7fff0000u /* larger sizes may be placeholders of recorders */

typedef struct au_wav {
    const unsigned char *data;
    uint64_t size;
    uint64_t riff_end;        /* where the file ends according to its header; 0: not known */
    uint64_t long_size;       /* bytes of audio according to a ds64 chunk */
    int has_long_size, has_format, has_data;
    uint32_t tag, channels, rate, align, bits;
    uint64_t audio, audio_size; /* offset and size of the samples in bytes */
} au_wav;

/* Whether p[0..n-1] begins with a chunk: 2: one with a name known from WAV files; 1: perhaps, the
 * name is printable; 0: no. */
static int au_is_chunk(const unsigned char *p, size_t n)
{
    static const char known[][5] = {
        "fmt ", "data", "LIST", "fact", "ds64", "bext", "JUNK", "junk", "PAD ", "FLLR", "cue ",
        "smpl", "inst", "PEAK", "id3 ", "ID3 ", "iXML", "_PMX", "axml", "chna", "cart", "plst",
        "DISP", "umid", "minf", "elm1", "regn", "acid", "strc", "levl", "afsp", "wavl", "slnt"
    };
    size_t i;
    if (n < 8) {
        return 0;
    }
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
    return 1;
}

/* Bytes of padding (0 or 1) between a chunk of the given size and the next one, which may begin in
 * p[0..n-1]. Chunks of odd size are padded, but not by every writer. */
static size_t au_padding(const unsigned char *p, size_t n, uint64_t size)
{
    return size % 2 == 0 || n == 0 || au_is_chunk(p, n) > au_is_chunk(p + 1, n - 1) ? 0 : 1;
}

/* Whether p[0..n-1] is a sequence of chunks with unknown names that leads to a known one or ends
 * exactly at the end of p, or begins with a known one. */
static int au_chunk_follows(const unsigned char *p, size_t n)
{
    size_t at = 0;
    int kind = au_is_chunk(p, n);
    while (kind == 1) {
        uint64_t size = au_le32(p + at + 4);
        if (size > n - at - 8) {
            return 0;
        }
        at += 8 + (size_t)size;
        at += au_padding(p + at, n - at, size);
        if (at >= n) {
            return 1;
        }
        kind = au_is_chunk(p + at, n - at);
    }
    return kind == 2;
}

/* Whether p[0..n-1], which follows a data chunk, are further samples that its size does not
 * include. At most AU_LOOKAHEAD bytes are examined; n is smaller only at the end of the file.
 * counted: bytes from there to the end of the file according to its header. A few zeros at the end
 * of the file are padding. */
static int au_samples_continue(const unsigned char *p, size_t n, uint64_t counted)
{
    size_t i = 0;
    n = n < AU_LOOKAHEAD ? n : AU_LOOKAHEAD;
    if (n < 8 || au_chunk_follows(p, n) ||
        (au_is_chunk(p, n) == 1 && counted >= 8 && au_le32(p + 4) <= counted - 8)) {
        return 0;
    }
    while (n < AU_LOOKAHEAD && i < n && p[i] == 0) {
        i++;
    }
    return i < n;
}

/* Reports the container format of a file that is not WAV. */
static int au_wav_refuse_container(const au_wav *w, wnpu_error *error)
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
    /* the rest of a GUID whose first two bytes are a classic format tag */
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

/* Size of the samples in bytes according to the header. p is the data chunk; n is the number of
 * bytes from there on, at least AU_LOOKAHEAD + 8 unless the file ends. */
static uint64_t au_wav_data_size(const au_wav *w, const unsigned char *p, size_t n)
{
    uint64_t size = au_le32(p + 4);
    n = n - 8 < AU_LOOKAHEAD ? n - 8 : AU_LOOKAHEAD;
    if (size == UINT32_MAX) {
        size = w->has_long_size && w->long_size > 0 ? w->long_size : AU_SIZE_UNKNOWN;
    }
    if (size == 0 && n > 0 && !au_chunk_follows(p + 8, n)) {
        size = AU_SIZE_UNKNOWN; /* never filled in */
    }
    return size;
}

/* Bytes from offset to the end of the file according to its header. */
static uint64_t au_wav_counted(const au_wav *w, uint64_t offset)
{
    return w->riff_end > offset ? w->riff_end - offset : 0;
}

/* Reads the file header: the form type and where the file should end. */
static void au_wav_begin(au_wav *w)
{
    uint32_t size = au_le32(w->data + 4);
    w->riff_end = memcmp(w->data, "RIFF", 4) == 0 && size < AU_SIZE_GUESS ? (uint64_t)size + 8 : 0;
}

/* Returns the offset of the next chunk. A size that is too small was not updated by the recorder,
 * or is the low 32 bits of the real one: multiples of 2^32 are added. */
static uint64_t au_wav_data_chunk(au_wav *w, uint64_t offset, unsigned *problems)
{
    const uint64_t begin = offset + 8, rest = w->size - begin;
    uint64_t size = au_wav_data_size(w, w->data + offset, (size_t)(w->size - offset)), next = 0;
    const int size_guessed = size >= AU_SIZE_GUESS && !w->has_long_size;
    while (size < rest) {
        const unsigned char *p = w->data + begin + size;
        size_t n = (size_t)(rest - size), padding = au_padding(p, n, size);
        next = begin + size + padding;
        if (size == 0 || !au_samples_continue(p + padding, n - padding, au_wav_counted(w, next))) {
            break;
        }
        *problems |= WNPU_WAV_LONGER;
        size += (uint64_t)1 << 32;
    }
    if (size > rest && !size_guessed && (*problems & WNPU_WAV_LONGER) == 0) {
        *problems |= WNPU_WAV_CUT;
    }
    w->has_data = 1;
    if (w->audio_size == 0) {
        w->audio = begin;
        w->audio_size = size < rest ? size : rest;
    } else if (size > 0) {
        *problems |= WNPU_WAV_PARTS;
    }
    return size < rest ? next : w->size;
}

static int au_wav_chunks(au_wav *w, unsigned *problems, wnpu_error *error)
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
            offset = au_wav_data_chunk(w, offset, problems);
            continue;
        }
        if (size > rest) {
            break;
        }
        offset += 8 + size;
        offset += au_padding(w->data + offset, (size_t)(w->size - offset), size);
    }
    if (!w->has_format) {
        return er_set(error, WNPU_E_AUDIO, "WAV: there is no fmt chunk; the file is cut short or "
                      "damaged");
    }
    return WNPU_OK;
}

static int au_wav_refuse_codec(const au_wav *w, wnpu_error *error)
{
    static const struct {
        uint32_t tag;
        const char *name;
    } tags[] = { /* names from mmreg.h */
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

/* The wnpu_sample_format, or -1. The width of a sample is its bits rounded up to bytes (fewer valid
 * bits are the upper ones), but some writers store 24 bits in four bytes. The block alignment is
 * used only in that case and where bits is 0, because it is wrong more often. */
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
    /* Always 8 bits; some headers state the 16 bits of the decoded samples. */
    case 6: return bytes == 1 || w->align == w->channels ? WNPU_SAMPLE_ALAW : -1;
    case 7: return bytes == 1 || w->align == w->channels ? WNPU_SAMPLE_ULAW : -1;
    default: return -1;
    }
}

/* Describes the samples from the fmt chunk. *frame receives the bytes per frame. */
static int au_wav_describe(const au_wav *w, wnpu_audio *audio, size_t *frame, wnpu_error *error)
{
    int format;
    if (w->channels < 1 || w->channels > AU_CHANNELS_MAX) {
        return er_set(error, WNPU_E_AUDIO, "WAV: %lu channels is outside 1..%lu",
                      (unsigned long)w->channels, (unsigned long)AU_CHANNELS_MAX);
    }
    format = au_wav_sample(w);
    if (format < 0) {
        return au_wav_refuse_codec(w, error);
    }
    if (w->rate < AU_RATE_MIN || w->rate > AU_RATE_MAX) {
        return er_set(error, WNPU_E_AUDIO, "WAV: sample rate %lu is outside %lu..%lu; convert it",
                      (unsigned long)w->rate, (unsigned long)AU_RATE_MIN,
                      (unsigned long)AU_RATE_MAX);
    }
    audio->format = format;
    audio->rate = w->rate;
    audio->channels = w->channels;
    *frame = (size_t)w->channels * au_widths[format];
    return WNPU_OK;
}

static int au_wav_no_samples(const au_wav *w, wnpu_error *error)
{
    return er_set(error, WNPU_E_AUDIO, "WAV: no audio data; %s",
                  w->has_data ? "its data chunk is empty" : "the file has no data chunk");
}

/* Checks for a WAV file. w holds at least the first 12 bytes, fewer only if the file is shorter. */
static int au_wav_check(const au_wav *w, wnpu_error *error)
{
    if (w->size < 12 || (memcmp(w->data, "RIFF", 4) != 0 && memcmp(w->data, "RF64", 4) != 0 &&
                         memcmp(w->data, "BW64", 4) != 0)) {
        return au_wav_refuse_container(w, error);
    }
    return memcmp(w->data + 8, "WAVE", 4) == 0 ? WNPU_OK : er_set(error, WNPU_E_AUDIO,
           "a RIFF file, but not a WAV file");
}

/* Sets a warning; the status stays WNPU_OK. */
static void au_wav_warn(unsigned problems, wnpu_error *error)
{
    if (problems != 0) {
        (void)er_set(error, WNPU_OK, "WAV: %s", problems & WNPU_WAV_CUT
                     ? "the file ends before its data chunk does"
                     : problems & WNPU_WAV_LONGER
                     ? "there are samples after the end of the data chunk; they were read too"
                     : "only the first of several data chunks was read");
    }
}

/* *audio must come from wnpu_audio_init(): its size tells which fields the caller knows. On failure
 * it describes an empty recording. */
WNPU_API int wnpu_wav_open(wnpu_audio *audio, const void *data, size_t size, wnpu_error *error)
{
    const size_t known = offsetof(wnpu_audio, user) + sizeof(void *);
    unsigned problems = 0;
    wnpu_audio found;
    size_t frame = 0;
    au_wav w;
    int status;
    er_clear(error);
    if (audio == NULL || (data == NULL && size > 0)) {
        return er_set(error, WNPU_E_ARGUMENT, "wnpu_wav_open: audio or data is NULL");
    }
    if (audio->struct_size < known || !er_is_size(audio->struct_size, sizeof *audio)) {
        return er_set(error, WNPU_E_ARGUMENT, "wnpu_wav_open: struct_size is %lu; call "
                      "wnpu_audio_init() first", (unsigned long)audio->struct_size);
    }
    wnpu_audio_init(audio, audio->struct_size);
    wnpu_audio_init(&found, sizeof found);
    found.struct_size = audio->struct_size;
    memset(&w, 0, sizeof w);
    w.data = data;
    w.size = size;
    status = au_wav_check(&w, error);
    if (status != WNPU_OK) {
        return status;
    }
    au_wav_begin(&w);
    status = au_wav_chunks(&w, &problems, error);
    status = status == WNPU_OK ? au_wav_describe(&w, &found, &frame, error) : status;
    if (status != WNPU_OK) {
        return status;
    }
    found.frames = w.audio_size / frame;
    found.data = w.data + w.audio;
    if (found.frames == 0) {
        return au_wav_no_samples(&w, error);
    }
    memcpy(audio, &found, known);
    au_wav_warn(problems, error);
    return WNPU_OK;
}

/* ---- WAV from a stream ----
 *
 * Follows the rules above with a window of AU_LOOKAHEAD bytes in place of the whole file. */
typedef struct au_wav_state {
    au_wav wav;               /* the header; w.data points to ahead while it is parsed */
    uint64_t offset;          /* position of ahead[at] in the file */
    uint64_t left;            /* bytes of the data chunk not yet read, or AU_SIZE_UNKNOWN */
    uint64_t size;            /* bytes of the data chunk as far as known */
    int64_t failure;          /* the negative value that read returned, or 0 */
    uint32_t frame;           /* bytes per frame */
    uint32_t size_guessed;           /* the file may end before the data chunk does */
    uint32_t at, have;        /* bytes in ahead: position, end */
    uint32_t ended;           /* read returned 0 or failed */
    uint32_t open;
    unsigned char ahead[AU_LOOKAHEAD + 16];
} au_wav_state;

typedef char au_wav_state_fits[sizeof(au_wav_state) <= sizeof((wnpu_wav_reader *)0)->work ? 1 : -1];

/* work has the alignment of uint64_t. */
static au_wav_state *au_wav_state_of(wnpu_wav_reader *reader)
{
    void *state = reader->work;
    return state;
}

/* Reads up to n bytes. Returns how many; 0 at the end. */
static size_t au_wav_get(wnpu_wav_reader *reader, unsigned char *out, size_t n)
{
    au_wav_state *s = au_wav_state_of(reader);
    int64_t got = 0;
    if (s->have > s->at) {
        got = s->have - s->at < n ? (int64_t)(s->have - s->at) : (int64_t)n;
        memcpy(out, s->ahead + s->at, (size_t)got);
        s->at += (uint32_t)got;
    } else if (!s->ended && n > 0) {
        got = reader->read(reader->user, out, n);
        if (got < 0 || (uint64_t)got > n) {
            s->failure = got < 0 ? got : WNPU_E_ARGUMENT;
            got = 0;
        }
        s->ended = got == 0;
    }
    s->offset += (uint64_t)got;
    return (size_t)got;
}

/* Refills ahead as far as possible. Returns the number of bytes from s->ahead on. */
static size_t au_wav_peek(wnpu_wav_reader *reader)
{
    au_wav_state *s = au_wav_state_of(reader);
    const size_t room = sizeof s->ahead;
    memmove(s->ahead, s->ahead + s->at, s->have - s->at);
    s->have -= s->at;
    s->at = 0;
    while (s->have < room && !s->ended) {
        int64_t got = reader->read(reader->user, s->ahead + s->have, room - s->have);
        if (got < 0 || (uint64_t)got > room - s->have) {
            s->failure = got < 0 ? got : WNPU_E_ARGUMENT;
            got = 0;
        }
        s->ended = got == 0;
        s->have += (uint32_t)got;
    }
    return s->have;
}

static void au_wav_skip(wnpu_wav_reader *reader, uint64_t n)
{
    au_wav_state *s = au_wav_state_of(reader);
    while (n > 0) {
        size_t there = au_wav_peek(reader);
        uint32_t step = n < there ? (uint32_t)n : (uint32_t)there;
        if (step == 0) {
            break;
        }
        s->at += step;
        s->offset += step;
        n -= step;
    }
}

/* Advances over chunks to the next data chunk. Returns 1 when its samples come next, 0 at the end
 * of the file, or a negative error. */
static int au_wav_seek_data(wnpu_wav_reader *reader, wnpu_error *error)
{
    au_wav_state *s = au_wav_state_of(reader);
    au_wav *w = &s->wav;
    size_t n;
    while ((n = au_wav_peek(reader)) >= 8) {
        const unsigned char *p = s->ahead;
        uint64_t size = au_le32(p + 4);
        w->data = p;
        w->size = n;
        if (memcmp(p, "fmt ", 4) == 0 && !w->has_format) {
            int status = au_wav_format_chunk(w, 0, size, error);
            if (status != WNPU_OK) {
                return status;
            }
        } else if (memcmp(p, "ds64", 4) == 0 && size >= 16 && n >= 24) {
            w->long_size = au_le64(p + 16);
            w->has_long_size = 1;
        } else if (memcmp(p, "data", 4) == 0) {
            w->has_data = 1;
            if (!w->has_format) {
                return er_set(error, WNPU_E_UNSUPPORTED, "WAV: the fmt chunk comes after the "
                              "samples; read the file whole, with wnpu_wav_open()");
            }
            s->left = s->size = au_wav_data_size(w, p, n);
            s->size_guessed = s->size >= AU_SIZE_GUESS && !w->has_long_size;
            if (s->size > 0) {
                au_wav_skip(reader, 8);
                return au_wav_peek(reader) > 0;
            }
        }
        au_wav_skip(reader, 8 + size);
        n = au_wav_peek(reader);
        au_wav_skip(reader, au_padding(s->ahead, n, size));
    }
    return 0;
}

enum { AU_END, AU_SAME_CHUNK, AU_NEW_CHUNK };

/* Decides what follows once the size of the data chunk is used up: AU_END, AU_SAME_CHUNK,
 * AU_NEW_CHUNK. */
static int au_wav_after_data(wnpu_wav_reader *reader)
{
    au_wav_state *s = au_wav_state_of(reader);
    size_t n = au_wav_peek(reader);
    size_t padding = au_padding(s->ahead, n, s->size);
    if (au_samples_continue(s->ahead + padding, n - padding,
                            au_wav_counted(&s->wav, s->offset + padding))) {
        reader->problems |= WNPU_WAV_LONGER;
        s->left = (uint64_t)1 << 32;
        s->size += s->left;
        s->size_guessed = 1;
        return AU_SAME_CHUNK;
    }
    au_wav_skip(reader, padding);
    return au_wav_seek_data(reader, NULL) > 0 ? AU_NEW_CHUNK : AU_END;
}

/* The read callback of the recording. */
static int64_t au_wav_read(void *user, void *buffer, size_t max_frames)
{
    wnpu_wav_reader *reader = user;
    au_wav_state *s = au_wav_state_of(reader);
    unsigned char *out = buffer;
    size_t frame = s->frame, want = max_frames * frame, got = 0, n = 1;
    while (want > 0 && n > 0 && (got == 0 || got % frame != 0)) {
        if (s->left == 0) {
            int more = au_wav_after_data(reader);
            got -= more != AU_SAME_CHUNK ? got % frame : 0; /* ended within a frame */
            if (more == AU_END || (got > 0 && got % frame == 0)) {
                break;
            }
        }
        n = au_wav_get(reader, out + got, want - got < s->left ? want - got : (size_t)s->left);
        got += n;
        s->left -= s->left != AU_SIZE_UNKNOWN ? n : 0;
    }
    if (n == 0 && s->left > 0 && s->left != AU_SIZE_UNKNOWN && !s->size_guessed) {
        reader->problems |= WNPU_WAV_CUT;
    }
    got /= frame;
    reader->frames += got;
    return got > 0 || s->failure == 0 ? (int64_t)got : s->failure;
}

WNPU_API void wnpu_wav_reader_init(wnpu_wav_reader *reader, size_t struct_size)
{
    wnpu_wav_reader r;
    memset(&r, 0, sizeof r);
    er_init(reader, struct_size, &r, sizeof r);
}

WNPU_API int wnpu_wav_reader_open(wnpu_wav_reader *reader, wnpu_audio *audio, wnpu_error *error)
{
    const size_t known = offsetof(wnpu_audio, user) + sizeof(void *);
    wnpu_audio found;
    au_wav_state *s;
    size_t frame = 0;
    int status;
    er_clear(error);
    if (reader == NULL || audio == NULL || audio->struct_size < known ||
        !er_is_size(audio->struct_size, sizeof *audio)) {
        return er_set(error, WNPU_E_ARGUMENT, "wnpu_wav_reader_open: reader or audio is NULL or "
                      "was not initialised; call wnpu_audio_init() first");
    }
    if (reader->struct_size < sizeof *reader || !er_is_known(reader, sizeof *reader)) {
        return er_set(error, WNPU_E_VERSION, "wnpu_wav_reader_open: struct_size %lu or a field "
                      "beyond it is unknown to this library; call wnpu_wav_reader_init() first",
                      (unsigned long)reader->struct_size);
    }
    if (reader->read == NULL) {
        return er_set(error, WNPU_E_ARGUMENT, "wnpu_wav_reader_open: read is NULL");
    }
    s = au_wav_state_of(reader);
    memset(s, 0, sizeof *s);
    reader->problems = 0;
    reader->frames = 0;
    wnpu_audio_init(audio, audio->struct_size);
    wnpu_audio_init(&found, sizeof found);
    found.struct_size = audio->struct_size;
    s->wav.size = au_wav_peek(reader);
    s->wav.data = s->ahead;
    status = au_wav_check(&s->wav, error);
    if (status != WNPU_OK) {
        return status;
    }
    au_wav_begin(&s->wav);
    au_wav_skip(reader, 12);
    status = au_wav_seek_data(reader, error);
    if (status < 0) {
        return status;
    }
    if (!s->wav.has_format) {
        return er_set(error, WNPU_E_AUDIO, "WAV: there is no fmt chunk; the file is cut short or "
                      "damaged");
    }
    if (au_wav_describe(&s->wav, &found, &frame, error) != WNPU_OK) {
        return WNPU_E_AUDIO;
    }
    if (status == 0 || s->have - s->at < frame) {
        return au_wav_no_samples(&s->wav, error);
    }
    s->frame = (uint32_t)frame;
    found.frames = s->left == AU_SIZE_UNKNOWN || s->size_guessed ? 0 : s->left / frame;
    found.read = au_wav_read;
    found.user = reader;
    memcpy(audio, &found, known);
    return WNPU_OK;
}

/* ======================================================================
 *  6. ft_  FFT and ml_ log-mel
 *
 *  Owns      the 400-point real FFT, the Hann window and the mel sums.
 *  Assumes   16 kHz mono samples.
 *  Ensures   OpenAI's definition: 400-sample periodic Hann window, hop
 *            160, frame t centred on sample 160 t, power spectrum, the
 *            model's own filters, log10 of powers of at least 1e-10, floor
 *            at the maximum of the 30 s window minus 8, (x + 4) / 4.
 *  Costs     about 2 ms for 30 s on one core.
 *
 *  Several frames are transformed at once, one in each lane of a vector of
 *  doubles, so the FFT needs no shuffles. Double precision is needed
 *  because the floor lies 80 dB below the loudest bin: floats have errors
 *  of 2e-4 there, and the tolerance is 1e-4.
 * ====================================================================== */
#define ML_RATE 16000u
#define ML_HOP 160u
#define ML_FFT 400u
#define ML_HALF (ML_FFT / 2u)
#define ML_BINS (ML_HALF + 1u)
#define ML_FRAMES 3000u                        /* of a 30 s window */
#define ML_WINDOW (ML_FRAMES * ML_HOP)         /* 480,000 samples */
#define ML_MARGIN (ML_FFT / 2u)                /* samples of a frame before and after its centre */
#define ML_SPAN (ML_WINDOW + 2u * ML_MARGIN)   /* samples that the frames of a window read */
#define ML_POWER_MIN 1e-10f                        /* lower limit of the power, that of silence */
#define ML_BATCH (MT_LANES / 2u) /* frames processed together, one per lane */

typedef double ft_vd __attribute__((vector_size(ML_BATCH * 8)));

typedef struct ft_tables {
    double window[ML_FFT];
    double cosine[ML_FFT], sine[ML_FFT]; /* of 2 pi i / 400 */
} ft_tables;

/* sin(2 pi i / 400) as a Taylor series around 0, with additions and multiplications only: tables
 * must not depend on the platform's libm. */
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

/* 200 complex values of each frame in a batch, one frame per lane. */
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
            MT_UNROLL
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
            MT_UNROLL
            for (j = 1; j < r; j++) {
                unsigned k = p * j * (ML_FFT / n);
                double c = t->cosine[k], d = t->sine[k];
                y->re[q + s * (r * p + j)] = re[j] * c + im[j] * d;
                y->im[q + s * (r * p + j)] = im[j] * c - re[j] * d;
            }
        }
    }
}

/* Power spectra of the ML_BATCH frames that start at x, x + 160, ...: power[bin] has one lane per
 * frame. The real input is packed as 200 complex values (even samples real, odd imaginary). */
WNPU_INLINE void ft_power(const ft_tables *t, const float *x, ft_vd *power /* [201] */,
                           ft_batch *a, ft_batch *b)
{
    unsigned i, lane;
    for (i = 0; i < ML_HALF; i++) {
        ft_vd re = {0}, im = {0};
        MT_UNROLL
        for (lane = 0; lane < ML_BATCH; lane++) {
            re[lane] = (double)x[lane * ML_HOP + 2 * i];
            im[lane] = (double)x[lane * ML_HOP + 2 * i + 1];
        }
        a->re[i] = re * t->window[2 * i];
        a->im[i] = im * t->window[2 * i + 1];
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
    const float *weight;   /* [n_mels, 201] row-major, from the model */
    uint32_t n_mels;
    uint16_t *first, *last; /* [n_mels]: only bins first..last-1 are non-zero */
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
            out[lane * ldo + m] = value > 1e-10 ? (float)value : ML_POWER_MIN;
        }
    }
}

/* Replaces x[i] by log10 x[i]. Returns the largest result. n is a multiple of MT_LANES. */
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

/* ======================================================================
 *  7. gm_  INT8 matmul
 *
 *  Owns      the packed form of weights and every product of int8
 *            matrices; also the float32 products of the reference path.
 *  Assumes   values in -127..127 and 1 <= k <= 131072, so that no sum of
 *            k products, and no correction, leaves an int32.
 *  Ensures   exact sums: the same integers from every instruction set.
 *            The float products have one order and never fuse, so they
 *            too have the same bits everywhere.
 *  Costs     with AVX2 about 25 products a cycle, with AVX-VNNI 64, with
 *            AVX-512 VNNI 128.
 *            Few rows cost one pass over the weights.
 *
 *  C[m,n] = sum over k of A[m,k] * B[n,k].  B is packed once, in one form
 *  for all instruction sets, [n16][k4][16][4], zero padded. A is packed
 *  block by block, in the form of each kernel (pack_a).
 *
 *  Terms
 *    row         of A and C, index m
 *    column      of C, a row n of B: an output channel of a weight
 *    group       4 values along k of a row, or of 16 columns: 64 bytes
 *    panel       16 columns of B with all their groups
 *    pitch       groups from a panel to the next
 *    block       rows of A that are packed and multiplied together
 *    tile        rows and panels whose sums stay in registers
 *    stretch     groups that a tile goes through before the next tile
 *    correction  -128 times the sum of a column, which makes products of
 *                A + 128 those of A
 *    outlier     a group of A with a value beyond 8 bits, as two digits
 *    int4        weights in 4 bits: multiples of 16 from -112 to 112
 *
 *  The driver (gm_walk) cuts a product into tiles for every instruction
 *  set; a gm_shape says how. An instruction set brings kernels of tiles.
 * ====================================================================== */
typedef struct gm_weight {
    uint32_t n, k;       /* B is [n, k] */
    uint32_t n16, k4;    /* panels of 16 columns; groups of 4 along k */
    int int4;            /* 1: values are multiples of 16 from -112 to 112, in 4 bits each */
    int8_t *packed;      /* [n16][k4][16][4]; if int4, [n16][k4 / 2][16][4], see gm_fold() */
    float *scale;        /* [n16*16], one per output channel, 0 in the padding */
    int32_t *correction; /* [n16*16]: -128 * sum over k of B[n,:], 0 in the padding */
    float *bias;         /* [n16*16], 0 in the padding; NULL if none */
    float *exact;        /* float32 weights for the reference path, [n16][k][16]; or NULL */
} gm_weight;

/* Where A is not zero. GELU and softmax leave groups that are zero in all rows of a register tile,
 * a fifth to a third of them, which products can skip. */
typedef struct gm_sparse {
    uint16_t *group; /* [tiles][k4] the others: bytes from the beginning of a stretch of a row */
    uint16_t *n;     /* [tiles][stretches] how many these are */
} gm_sparse;

/* One product: c[rows][panels * 16] = A * B over k4 groups. */
typedef struct gm_product {
    int32_t *c;                /* [rows][ldc]; ldc >= panels * 16 */
    size_t ldc;
    const void *a;             /* rows packed by the kernels */
    size_t rows;
    const int8_t *b;           /* panels, pitch groups apart */
    size_t pitch;
    const int32_t *correction; /* of the first panel of b; NULL for an A that pack_u() packed */
    size_t k4, panels;
    const gm_sparse *sparse;   /* sparse_tile() only: what survey() found */
} gm_product;

/* A product in float32: c[rows][panels * 16] = A * B. */
typedef struct gm_float_product {
    float *c;       /* [rows][ldc] */
    size_t ldc;
    const float *a; /* [rows][lda] */
    size_t lda, rows;
    const float *b; /* [panels][k][16] */
    size_t k, panels;
} gm_float_product;

/* The kernels of one instruction set. */
typedef struct gm_kernels {
    wnpu_isa isa;
    uint32_t rows; /* of a register tile; blocks are best a multiple of it */
    /* Bytes that a packed block needs. Any alignment will do. */
    size_t (*a_bytes)(size_t rows, size_t k4);
    /* Packs rows of k4 * 4 values, lda apart; padding in them is zero. */
    void (*pack_a)(void *packed_a, const int8_t *a, size_t lda, size_t rows, size_t k4);
    int unsigned_a; /* packed rows are unsigned bytes; without a correction, taken as they are */
    /* Packs unsigned values likewise, where they are widened. NULL: they are not. */
    void (*pack_u)(void *packed_a, const uint8_t *a, size_t lda, size_t rows, size_t k4);
    /* Packs rows of GM_DIGIT * high + low, k4 * 4 apart, which fit 16 bits. NULL: only bytes are
     * multiplied. */
    void (*pack_joined)(void *packed_a, const int8_t *high, const int8_t *low, size_t rows,
                        size_t k4);
    void (*tile)(const gm_product *p);
    /* tile() for at most GM_FEW rows and a B in 4 bits, whose panels follow each other: pitch does
     * not matter. NULL: B is widened to bytes for tile(). */
    void (*int4_tile)(const gm_product *p);
    /* Finds where a packed A is not zero, for sparse_tile(), which is tile() without the rest.
     * NULL: finding costs as much as it gains. */
    void (*survey)(gm_sparse *sparse, const void *packed_a, size_t rows, size_t k4);
    void (*sparse_tile)(const gm_product *p);
    /* Adds GM_DIGIT times the products of n groups of each panel of b to c; p->a is what
     * gm_pack_outliers() made of these, k4 does not matter. NULL: such groups are copied for
     * tile(). */
    void (*outliers)(const gm_product *p, const uint16_t *group, size_t n);
    /* Fills correction[panels * 16] for a B packed at run time; NULL: tile() ignores it. */
    void (*correct)(int32_t *correction, const int8_t *b, size_t k4, size_t panels);
    void (*ftile)(const gm_float_product *p);
} gm_kernels;

/* ---- the definition: plain C, also the kernel of the scalar instruction set ---- */

#define GM_GROUP 64u /* bytes of a group: 16 columns of 4 values */
#define GM_STRETCH 512u /* groups that kernels of 16-bit values take at a time */
#define GM_DIGIT 254 /* what a high digit counts, beside a low one of -127 to 127 */
#define GM_PAD 64u   /* bytes between packed rows of A: they fall into different cache sets */
#define GM_SIGNS 0x8080808080808080u /* turns signed bytes into unsigned ones, plus 128 */

typedef uint8_t gm_b16 __attribute__((vector_size(16), aligned(1), may_alias));

static size_t gm_bytes8(size_t rows, size_t k4)
{
    return rows * (k4 * 4 + GM_PAD);
}

static void gm_pack8(void *packed_a, const int8_t *a, size_t lda, size_t rows, size_t k4)
{
    size_t r;
    for (r = 0; r < rows; r++) {
        memcpy((int8_t *)packed_a + gm_bytes8(r, k4), a + r * lda, k4 * 4);
    }
}

static void gm_scalar_tile(const gm_product *product)
{
    size_t p, r, g, n;
    for (p = 0; p < product->panels; p++) {
        for (r = 0; r < product->rows; r++) {
            const int8_t *y = product->b + p * product->pitch * GM_GROUP;
            const int8_t *x = (const int8_t *)product->a + gm_bytes8(r, product->k4);
            int32_t sum[16] = {0};
            for (g = 0; g < product->k4; g++, x += 4, y += GM_GROUP) {
                for (n = 0; n < 16; n++) {
                    sum[n] += x[0] * y[n * 4] + x[1] * y[n * 4 + 1] +
                              x[2] * y[n * 4 + 2] + x[3] * y[n * 4 + 3];
                }
            }
            memcpy(product->c + r * product->ldc + p * 16, sum, sizeof sum);
        }
    }
}

/* ---- float32: sums along k ascending, each product rounded before it is added ---- */

#endif /* WNPU_PART */
#if defined(WNPU_PART) && WNPU_PART == GM_PART_FLOATS
/* ---- part: float32 products. Columns are independent, so that the width of the vectors does not
 * matter to the result ---- */

#if WNPU_WIDTH == WNPU_BASE
#define GM_BYTES 16
#else
#define GM_BYTES 32
#endif
#define GM_C (GM_BYTES / 2u) /* columns of two vectors */

typedef float GM(f) __attribute__((vector_size(GM_BYTES)));
typedef float GM(f_at) __attribute__((vector_size(GM_BYTES), aligned(4), may_alias));

/* GM_C columns of R rows, 1 or 4, from row r and column n on. */
WNPU_INLINE WNPU_TARGET void GM(float_rows)(const gm_float_product *p, size_t r, size_t n, int R)
{
    GM(f) s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, t0 = {0}, t1 = {0}, t2 = {0}, t3 = {0};
    const size_t lda = p->lda, ldc = p->ldc, k = p->k;
    const float *a = p->a + r * lda, *b = p->b + n / 16 * k * 16 + n % 16;
    float *c = p->c + r * ldc + n;
    size_t i;
    for (i = 0; i < k; i++, b += 16) {
        GM(f) y = *(const GM(f_at) *)b, z = *(const GM(f_at) *)(b + GM_C / 2);
        s0 = s0 + y * a[i], t0 = t0 + z * a[i];
        if (R > 1) {
            s1 = s1 + y * a[lda + i], t1 = t1 + z * a[lda + i];
            s2 = s2 + y * a[lda * 2 + i], t2 = t2 + z * a[lda * 2 + i];
            s3 = s3 + y * a[lda * 3 + i], t3 = t3 + z * a[lda * 3 + i];
        }
    }
    *(GM(f_at) *)c = s0, *(GM(f_at) *)(c + GM_C / 2) = t0;
    if (R > 1) {
        *(GM(f_at) *)(c + ldc) = s1, *(GM(f_at) *)(c + ldc + GM_C / 2) = t1;
        *(GM(f_at) *)(c + ldc * 2) = s2, *(GM(f_at) *)(c + ldc * 2 + GM_C / 2) = t2;
        *(GM(f_at) *)(c + ldc * 3) = s3, *(GM(f_at) *)(c + ldc * 3 + GM_C / 2) = t3;
    }
}

WNPU_TARGET static void GM(ftile)(const gm_float_product *p)
{
    size_t n, r;
    for (n = 0; n < p->panels * 16; n += GM_C) {
        for (r = 0; r + 4 <= p->rows; r += 4) {
            GM(float_rows)(p, r, n, 4);
        }
        for (; r < p->rows; r++) {
            GM(float_rows)(p, r, n, 1);
        }
    }
}

#undef GM_BYTES
#undef GM_C
#endif
#ifndef WNPU_PART

#define WNPU_PART GM_PART_FLOATS
#define WNPU_WIDTH WNPU_BASE
#include WNPU_SELF
#ifdef WNPU_X86
#define WNPU_WIDTH 256
#include WNPU_SELF
#endif
#undef WNPU_PART

static const gm_kernels gm_scalar = {
    .isa = WNPU_ISA_SCALAR,
    .rows = 4,
    .a_bytes = gm_bytes8,
    .pack_a = gm_pack8,
    .tile = gm_scalar_tile,
    .ftile = gm_ftile_base,
};

/* ---- the driver that all kernels below share ---- */

/* A part of a product that stays in registers and the nearest caches: at most a tile of rows and of
 * panels, over a stretch of groups. */
typedef struct gm_block {
    int32_t *c;          /* [rows][ldc] */
    size_t ldc;
    const int32_t *from; /* sums begin with these: corrections (ldfrom 0), the stretch before (c
                          * itself), or NULL for zeros */
    size_t ldfrom;
    const char *a;       /* packed rows, stride bytes apart */
    size_t stride;
    size_t rows;
    const int8_t *b;     /* panels, pitch groups apart */
    size_t pitch;
    size_t groups, panels;
    size_t next;         /* kernels of few rows prefetch so many bytes behind each group; 0: none */
} gm_block;

typedef void (*gm_micro)(const gm_block *t);

/* A whole tile of rows times n groups of one panel, at `group` bytes from a. */
typedef void (*gm_some)(const gm_block *t, const uint16_t *group, size_t n);

/* How the driver cuts a product for a kernel. */
typedef struct gm_shape {
    gm_micro micro;
    gm_some some;        /* for whole tiles of a sparse A; NULL: there is none */
    size_t rows, panels; /* of a tile */
    size_t group_bytes;  /* of a row of A in a group */
    size_t stretch;      /* groups; 0: all of k4 */
} gm_shape;

WNPU_INLINE const int32_t *gm_at(const int32_t *from, size_t offset)
{
    return from != NULL ? from + offset : NULL;
}

/* The block that begins with row r and column n of another; its number of rows and panels is the
 * caller's. */
WNPU_INLINE gm_block gm_block_at(const gm_block *t, size_t r, size_t n)
{
    gm_block part = *t;
    part.c += r * t->ldc + n;
    part.from = gm_at(t->from, r * t->ldfrom + n);
    part.a += r * t->stride;
    part.b += n / 16 * t->pitch * GM_GROUP + n % 16 * 4;
    return part;
}

/* What will be read next; past the end of B nothing happens. */
WNPU_INLINE void gm_prefetch(const int8_t *b, size_t ahead)
{
    __builtin_prefetch((const char *)((uintptr_t)b + ahead), 0, 3);
}

/* Into the second-level cache, which takes more requests at once; a Zen 5 prefers gm_prefetch()
 * where B is read from front to back (0.95 of the time for a token). */
WNPU_INLINE void gm_prefetch2(const int8_t *b, size_t ahead)
{
    __builtin_prefetch((const char *)((uintptr_t)b + ahead), 0, 2);
}

/* For what is read once: it displaces no other data. */
WNPU_INLINE void gm_prefetch_once(const int8_t *b, size_t ahead)
{
    __builtin_prefetch((const char *)((uintptr_t)b + ahead), 0, 0);
}

/* Prefetches n groups, from first on, of each panel that the driver reads next. */
WNPU_INLINE void gm_walk_ahead(const int8_t *b, size_t pitch, size_t panels, size_t first,
                               size_t n)
{
    size_t p, g;
    for (p = 0; p < panels; p++) {
        for (g = first; g < first + n; g++) {
            gm_prefetch2(b, (p * pitch + g) * GM_GROUP);
        }
    }
}

#define GM_AHEAD 16384u /* bytes that a kernel limited by memory prefetches ahead at least */

/* gm_block.next after ng of k4 groups: the next stretch of the same panels, or what comes behind np
 * panels. 0 for a small B: it is the beginning of a cache of keys, with unused room behind it. */
WNPU_INLINE size_t gm_next(size_t k4, size_t panels, size_t ng, size_t pitch, size_t np)
{
    size_t bytes = pitch * GM_GROUP * np;
    if (k4 * panels * GM_GROUP < GM_AHEAD) {
        return 0;
    }
    if (ng < pitch) {
        return ng * GM_GROUP;
    }
    return bytes > GM_AHEAD ? bytes : GM_AHEAD;
}

#define GM_NEAR 16384u /* bytes prefetched ahead in a B that is read from front to back */
#define GM_FEW 16u     /* up to so many rows, products are limited by memory bandwidth */
#define GM_MANY 24u    /* with more rows there is time to prefetch */

/* The panels' part of a stretch and a tile's rows should stay in the nearest caches. With many rows
 * the next panels are prefetched, a little with each tile, because the weights of a layer come from
 * memory again and again. Whole tiles of a sparse A go through shape->some. */
WNPU_INLINE void gm_walk(const gm_shape *shape, const gm_product *product)
{
    const gm_product m = *product;
    const gm_shape s = *shape;
    const size_t length = s.stretch > 0 ? s.stretch : m.k4;
    const size_t stretches = length > 0 ? (m.k4 + length - 1) / length : 0;
    size_t p, q, g, r;
    gm_block t;
    t.ldc = m.ldc;
    t.stride = m.k4 * s.group_bytes + GM_PAD;
    t.pitch = m.pitch;
    for (p = 0; p < m.panels; p += s.panels) {
        const size_t np = m.panels - p < s.panels ? m.panels - p : s.panels;
        for (g = 0; g < m.k4; g += length) {
            const size_t ng = m.k4 - g < length ? m.k4 - g : length;
            const size_t ahead = m.rows > GM_MANY ? (ng * s.rows + m.rows - 1) / m.rows : 0;
            const size_t after = g + ng < m.k4 ? p * m.pitch + g + ng : (p + np) * m.pitch;
            t.ldfrom = g > 0 ? m.ldc : 0;
            t.groups = ng;
            t.next = gm_next(m.k4, m.panels, ng, m.pitch, np);
            for (r = 0; r < m.rows; r += s.rows) {
                const size_t tile = r / s.rows;
                t.rows = m.rows - r < s.rows ? m.rows - r : s.rows;
                t.panels = np;
                t.a = (const char *)m.a + r * t.stride + g * s.group_bytes;
                t.b = m.b + (p * m.pitch + g) * GM_GROUP;
                t.c = m.c + r * m.ldc + p * 16;
                t.from = g > 0 ? t.c : gm_at(m.correction, p * 16);
                gm_walk_ahead(m.b, m.pitch, np, after + tile * ahead, ahead);
                if (s.some == NULL || t.rows < s.rows) {
                    s.micro(&t);
                    continue;
                }
                for (q = 0; q < np; q++) {
                    const gm_block one = gm_block_at(&t, 0, q * 16);
                    s.some(&one, m.sparse->group + tile * m.k4 + g,
                           m.sparse->n[tile * stretches + g / length]);
                }
            }
        }
    }
}

#ifdef WNPU_X86
/* ---- SSE4.1 and AVX2: int16 products ---- */

/* Both widen to int16 and use pmaddwd, which adds two products into an int32 exactly. On Zen 3 it
 * is as fast as pmaddubsw with abs and sign, and the sums need no further constants in registers.
 * A is widened when packed, B in the kernel, once for all rows of a tile. The accumulators hold
 * two partial sums for each column, added at the end. */
#define GM_SSE41 __attribute__((target("sse4.1")))
#define GM_AVX2 __attribute__((target("avx2")))

static size_t gm_bytes16(size_t rows, size_t k4)
{
    return rows * (k4 * 8 + GM_PAD);
}

/* What is not zero in n groups of 6 rows; returns how many they are. */
static size_t gm_survey_stretch(uint16_t *group, const char *a, size_t stride, size_t n)
{
    size_t found = 0, g, r;
    for (g = 0; g < n; g++, a += 8) {
        uint64_t any = 0, four;
        MT_UNROLL
        for (r = 0; r < 6; r++) {
            memcpy(&four, a + r * stride, 8);
            any |= four;
        }
        group[found] = (uint16_t)(g * 8);
        found += any != 0;
    }
    return found;
}

static void gm_survey16(gm_sparse *sparse, const void *packed_a, size_t rows, size_t k4)
{
    const size_t stride = gm_bytes16(1, k4);
    uint16_t *n = sparse->n;
    size_t t, g;
    for (t = 0; t < rows / 6; t++) {
        const char *a = (const char *)packed_a + t * 6 * stride;
        for (g = 0; g < k4; g += GM_STRETCH) {
            *n++ = (uint16_t)gm_survey_stretch(sparse->group + t * k4 + g, a + g * 8, stride,
                                               k4 - g < GM_STRETCH ? k4 - g : GM_STRETCH);
        }
    }
}

typedef int32_t gm_four __attribute__((aligned(1), may_alias));

/* Weights in 4 bits: with 8 added they are unsigned, and pmaddubsw multiplies them by the bytes of
 * A as they are. What that adds depends on the row alone and is subtracted. Bytes are stored
 * as [group][row][2 fours], for SSE4.1 each four times: AVX2 repeats what it loads. */
#define GM_QUADS 512u    /* vectors of two fours, or of one four repeated */
#define GM_QUAD_ROWS 4u  /* rows of them at most */
#define GM_QUAD_GROUPS 4 /* whose products fit 16 bits: 4 * 4 * 15 * 128 */

typedef struct gm_quads {
    __m128i v[GM_QUADS];
    int32_t more[GM_QUAD_ROWS]; /* what is to be taken off */
} gm_quads;

GM_SSE41 static void gm_make_quads(gm_quads *quads, const char *a, size_t stride, size_t rows,
                                   size_t groups, int repeat)
{
    const __m128i one = _mm_set1_epi16(1);
    size_t g, r;
    for (r = 0; r < rows; r++) {
        __m128i sum = _mm_setzero_si128();
        for (g = 0; g < groups; g++) {
            const char *at = a + r * stride + g * 16;
            const size_t to = g * rows + r;
            __m128i x = _mm_loadu_si128((const __m128i *)(const void *)at);
            sum = _mm_add_epi32(sum, _mm_madd_epi16(x, one));
            x = _mm_packs_epi16(x, x);
            if (repeat) {
                quads->v[2 * to] = _mm_shuffle_epi32(x, 0x00);
                quads->v[2 * to + 1] = _mm_shuffle_epi32(x, 0x55);
            } else {
                _mm_storel_epi64((__m128i *)(void *)((char *)quads->v + to * 8), x);
            }
        }
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
        quads->more[r] = 8 * _mm_cvtsi128_si32(sum);
    }
}

/* Rows of quads times one panel: c = or += 16 times the product. */
typedef void (*gm_int4)(int32_t *c, size_t ldc, const gm_quads *quads, size_t rows, const int8_t *b,
                        size_t groups, int first);

/* For an A of bytes, which pack_a() widened. */
GM_SSE41 static void gm_int4_rows(gm_int4 int4, int repeat, const gm_product *m)
{
    const size_t stride = gm_bytes16(1, m->k4), groups = m->k4 / 2;
    gm_quads quads;
    size_t r, g, p, nr, ng;
    for (r = 0; r < m->rows; r += nr) {
        const char *x = (const char *)m->a + r * stride;
        nr = m->rows - r >= GM_QUAD_ROWS ? GM_QUAD_ROWS : m->rows - r >= 2 ? 2 : 1;
        for (g = 0; g < groups; g += ng) {
            ng = GM_QUADS / (nr * (repeat ? 2 : 1));
            ng = groups - g < ng ? groups - g : ng;
            gm_make_quads(&quads, x + g * 16, stride, nr, ng, repeat);
            for (p = 0; p < m->panels; p++) {
                int4(m->c + r * m->ldc + p * 16, m->ldc, &quads, nr,
                     m->b + (p * groups + g) * GM_GROUP, ng, g == 0);
            }
        }
    }
}

/* Element i of a row of int16, which may lie at any address. */
WNPU_INLINE void gm_put16(char *to, size_t i, int v)
{
    const int16_t word = (int16_t)v;
    memcpy(to + 2 * i, &word, 2);
}

#endif /* WNPU_X86 */
#endif /* WNPU_PART */
#if defined(WNPU_PART) && WNPU_PART == GM_PART_INT16
/* ---- part: kernels of int16 products, 128 bits (SSE4.1) and 256 bits (AVX2) ---- */

#define GM_C (WNPU_WIDTH / 64u) /* columns in a vector of partial sums */

/* Primitives; v is a vector of int32 or int16 lanes.
 *   spread(a)      the 8 bytes at a, in all 64-bit lanes
 *   widen(b)       bytes at b as int16; widen_u(b): unsigned bytes
 *   pair(s, x, y)  s[j] += x[2 i] * y[j][2 i] + x[2 i + 1] * y[j][2 i + 1] for j = 0, 1
 *   columns(a, b)  sums of neighbours in a, then in b
 *   quad(x, i)     the i-th four bytes of gm_quads, in all 32-bit lanes */
#if WNPU_WIDTH == 128
typedef __m128i GM(v);
typedef __m128i GM(four); /* an element of gm_quads */

WNPU_INLINE WNPU_TARGET GM(v) GM(load)(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

WNPU_INLINE WNPU_TARGET void GM(store)(void *p, GM(v) a) { _mm_storeu_si128((__m128i *)p, a); }
WNPU_INLINE WNPU_TARGET GM(v) GM(zero)(void) { return _mm_setzero_si128(); }
WNPU_INLINE WNPU_TARGET GM(v) GM(bytes)(int x) { return _mm_set1_epi8((char)x); }
WNPU_INLINE WNPU_TARGET GM(v) GM(words)(int x) { return _mm_set1_epi16((short)x); }
WNPU_INLINE WNPU_TARGET GM(v) GM(ints)(int x) { return _mm_set1_epi32(x); }
WNPU_INLINE WNPU_TARGET GM(v) GM(and)(GM(v) a, GM(v) b) { return _mm_and_si128(a, b); }
WNPU_INLINE WNPU_TARGET GM(v) GM(xor)(GM(v) a, GM(v) b) { return _mm_xor_si128(a, b); }
WNPU_INLINE WNPU_TARGET GM(v) GM(add)(GM(v) a, GM(v) b) { return _mm_add_epi32(a, b); }
WNPU_INLINE WNPU_TARGET GM(v) GM(sub)(GM(v) a, GM(v) b) { return _mm_sub_epi32(a, b); }
WNPU_INLINE WNPU_TARGET GM(v) GM(times16)(GM(v) a) { return _mm_slli_epi32(a, 4); }
WNPU_INLINE WNPU_TARGET GM(v) GM(high4)(GM(v) a) { return _mm_srli_epi16(a, 4); }
WNPU_INLINE WNPU_TARGET GM(v) GM(add16)(GM(v) a, GM(v) b) { return _mm_add_epi16(a, b); }
WNPU_INLINE WNPU_TARGET GM(v) GM(mul16)(GM(v) a, GM(v) b) { return _mm_mullo_epi16(a, b); }
WNPU_INLINE WNPU_TARGET GM(v) GM(madd)(GM(v) a, GM(v) b) { return _mm_madd_epi16(a, b); }
WNPU_INLINE WNPU_TARGET GM(v) GM(maddubs)(GM(v) u, GM(v) s) { return _mm_maddubs_epi16(u, s); }
WNPU_INLINE WNPU_TARGET GM(v) GM(columns)(GM(v) a, GM(v) b) { return _mm_hadd_epi32(a, b); }
WNPU_INLINE WNPU_TARGET GM(v) GM(quad)(const GM(four) *x, int i) { return x[i]; }

WNPU_INLINE WNPU_TARGET GM(v) GM(spread)(const char *a)
{
    __m128i x = _mm_loadl_epi64((const __m128i *)(const void *)a);
    return _mm_castpd_si128(_mm_movedup_pd(_mm_castsi128_pd(x)));
}

WNPU_INLINE WNPU_TARGET GM(v) GM(widen)(const void *b)
{
    return _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)b));
}

WNPU_INLINE WNPU_TARGET GM(v) GM(widen_u)(const void *b)
{
    return _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)b));
}

/* In the register of the sum: left to itself clang rotates and spills the sums. */
WNPU_INLINE WNPU_TARGET void GM(pair)(GM(v) *sum, GM(v) x, const GM(v) *y)
{
    int j;
    MT_UNROLL
    for (j = 0; j < 2; j++) {
        __m128i product = _mm_madd_epi16(x, y[j]);
        __asm__("paddd %1, %0" : "+x"(sum[j]) : "x"(product));
    }
}
#else
typedef __m256i GM(v);
typedef gm_four GM(four);

WNPU_INLINE WNPU_TARGET GM(v) GM(load)(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

WNPU_INLINE WNPU_TARGET void GM(store)(void *p, GM(v) a) { _mm256_storeu_si256((__m256i *)p, a); }
WNPU_INLINE WNPU_TARGET GM(v) GM(zero)(void) { return _mm256_setzero_si256(); }
WNPU_INLINE WNPU_TARGET GM(v) GM(bytes)(int x) { return _mm256_set1_epi8((char)x); }
WNPU_INLINE WNPU_TARGET GM(v) GM(words)(int x) { return _mm256_set1_epi16((short)x); }
WNPU_INLINE WNPU_TARGET GM(v) GM(ints)(int x) { return _mm256_set1_epi32(x); }
WNPU_INLINE WNPU_TARGET GM(v) GM(and)(GM(v) a, GM(v) b) { return _mm256_and_si256(a, b); }
WNPU_INLINE WNPU_TARGET GM(v) GM(xor)(GM(v) a, GM(v) b) { return _mm256_xor_si256(a, b); }
WNPU_INLINE WNPU_TARGET GM(v) GM(add)(GM(v) a, GM(v) b) { return _mm256_add_epi32(a, b); }
WNPU_INLINE WNPU_TARGET GM(v) GM(sub)(GM(v) a, GM(v) b) { return _mm256_sub_epi32(a, b); }
WNPU_INLINE WNPU_TARGET GM(v) GM(times16)(GM(v) a) { return _mm256_slli_epi32(a, 4); }
WNPU_INLINE WNPU_TARGET GM(v) GM(high4)(GM(v) a) { return _mm256_srli_epi16(a, 4); }
WNPU_INLINE WNPU_TARGET GM(v) GM(add16)(GM(v) a, GM(v) b) { return _mm256_add_epi16(a, b); }
WNPU_INLINE WNPU_TARGET GM(v) GM(mul16)(GM(v) a, GM(v) b) { return _mm256_mullo_epi16(a, b); }
WNPU_INLINE WNPU_TARGET GM(v) GM(madd)(GM(v) a, GM(v) b) { return _mm256_madd_epi16(a, b); }
WNPU_INLINE WNPU_TARGET GM(v) GM(maddubs)(GM(v) u, GM(v) s) { return _mm256_maddubs_epi16(u, s); }
WNPU_INLINE WNPU_TARGET GM(v) GM(quad)(const GM(four) *x, int i) { return _mm256_set1_epi32(x[i]); }

/* hadd works within halves: columns 0 1 4 5 2 3 6 7 */
WNPU_INLINE WNPU_TARGET GM(v) GM(columns)(GM(v) a, GM(v) b)
{
    return _mm256_permute4x64_epi64(_mm256_hadd_epi32(a, b), 0xd8);
}

WNPU_INLINE WNPU_TARGET GM(v) GM(spread)(const char *a)
{
    return _mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(const void *)a));
}

WNPU_INLINE WNPU_TARGET GM(v) GM(widen)(const void *b)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)b));
}

WNPU_INLINE WNPU_TARGET GM(v) GM(widen_u)(const void *b)
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)b));
}

/* Zen 3 is 8 % faster when both products come before both sums than when they take turns. gcc does
 * that by itself, clang needs the asm. */
WNPU_INLINE WNPU_TARGET void GM(pair)(GM(v) *sum, GM(v) x, const GM(v) *y)
{
#if defined(__clang__)
    __m256i p = _mm256_madd_epi16(x, y[0]), q = _mm256_madd_epi16(x, y[1]);
    __asm__("" : "+x"(p), "+x"(q));
    sum[0] = _mm256_add_epi32(sum[0], p);
    sum[1] = _mm256_add_epi32(sum[1], q);
#else
    sum[0] = _mm256_add_epi32(sum[0], _mm256_madd_epi16(x, y[0]));
    sum[1] = _mm256_add_epi32(sum[1], _mm256_madd_epi16(x, y[1]));
#endif
}
#endif

/* ---- packing of A ---- */

/* Values of a row as int16. */
WNPU_TARGET static void GM(pack)(void *packed_a, const int8_t *a, size_t lda, size_t rows,
                                 size_t k4)
{
    size_t r, i, n = k4 * 4;
    for (r = 0; r < rows; r++, a += lda) {
        char *to = (char *)packed_a + gm_bytes16(r, k4);
        for (i = 0; i + 4 * GM_C <= n; i += 4 * GM_C) {
            GM(store)(to + 2 * i, GM(widen)(a + i));
        }
        for (; i < n; i++) {
            gm_put16(to, i, a[i]);
        }
    }
}

WNPU_TARGET static void GM(pack_u)(void *packed_a, const uint8_t *a, size_t lda, size_t rows,
                                   size_t k4)
{
    size_t r, i, n = k4 * 4;
    for (r = 0; r < rows; r++, a += lda) {
        char *to = (char *)packed_a + gm_bytes16(r, k4);
        for (i = 0; i + 4 * GM_C <= n; i += 4 * GM_C) {
            GM(store)(to + 2 * i, GM(widen_u)(a + i));
        }
        for (; i < n; i++) {
            gm_put16(to, i, a[i]);
        }
    }
}

WNPU_TARGET static void GM(pack_joined)(void *packed_a, const int8_t *high, const int8_t *low,
                                        size_t rows, size_t k4)
{
    size_t r, i, n = k4 * 4;
    for (r = 0; r < rows; r++, high += n, low += n) {
        char *to = (char *)packed_a + gm_bytes16(r, k4);
        for (i = 0; i + 4 * GM_C <= n; i += 4 * GM_C) {
            GM(v) h = GM(mul16)(GM(widen)(high + i), GM(words)(GM_DIGIT));
            GM(store)(to + 2 * i, GM(add16)(h, GM(widen)(low + i)));
        }
        for (; i < n; i++) {
            gm_put16(to, i, GM_DIGIT * high[i] + low[i]);
        }
    }
}

/* ---- weights in 4 bits ---- */

/* 2 GM_C N columns of R rows; R * N is at most 4. first: c is set, else added to. */
WNPU_INLINE WNPU_TARGET void GM(int4_columns)(int32_t *c, size_t ldc, const gm_quads *quads,
                                              const int8_t *b, size_t groups, int first, int R,
                                              int N)
{
    const GM(v) flip = GM(bytes)(0x88), low = GM(bytes)(0x0f);
    const GM(four) *x = (const GM(four) *)(const void *)quads->v;
    GM(v) s[4], t[4];
    size_t g, i;
    int r, n;
    MT_UNROLL
    for (r = 0; r < R * N; r++) {
        s[r] = GM(zero)();
    }
    for (g = 0; g < groups; g += GM_QUAD_GROUPS) {
        MT_UNROLL
        for (r = 0; r < R * N; r++) {
            t[r] = GM(zero)();
        }
        for (i = g; i < g + GM_QUAD_GROUPS && i < groups; i++, b += GM_GROUP, x += 2 * R) {
            gm_prefetch2(b, GM_NEAR);
            MT_UNROLL
            for (n = 0; n < N; n++) {
                const GM(v) v = GM(xor)(GM(load)(b + WNPU_WIDTH / 8 * n), flip);
                const GM(v) y0 = GM(and)(v, low), y1 = GM(and)(GM(high4)(v), low);
                MT_UNROLL
                for (r = 0; r < R; r++) {
                    const GM(v) x0 = GM(quad)(x, 2 * r), x1 = GM(quad)(x, 2 * r + 1);
                    GM(v) *sum = &t[r * N + n];
                    *sum = GM(add16)(*sum, GM(maddubs)(y0, x0));
                    *sum = GM(add16)(*sum, GM(maddubs)(y1, x1));
                }
            }
        }
        MT_UNROLL
        for (r = 0; r < R * N; r++) {
            s[r] = GM(add)(s[r], GM(madd)(t[r], GM(words)(1)));
        }
    }
    MT_UNROLL
    for (r = 0; r < R * N; r++) {
        int32_t *out = c + (size_t)(r / N) * ldc + (size_t)(r % N) * 2 * GM_C;
        const GM(v) old = first ? GM(zero)() : GM(load)(out);
        s[r] = GM(times16)(GM(sub)(s[r], GM(ints)(quads->more[r / N])));
        GM(store)(out, GM(add)(old, s[r]));
    }
}

#define GM_N(R) (8 / (int)GM_C < 4 / (R) ? 8 / (int)GM_C : 4 / (R))

/* A gm_int4. */
WNPU_TARGET static void GM(int4)(int32_t *c, size_t ldc, const gm_quads *quads, size_t rows,
                                 const int8_t *b, size_t groups, int first)
{
    size_t n;
    for (n = 0; n < 16 && rows == 1; n += 2 * GM_C * GM_N(1)) {
        GM(int4_columns)(c + n, ldc, quads, b + n * 4, groups, first, 1, GM_N(1));
    }
    for (n = 0; n < 16 && rows == 2; n += 2 * GM_C * GM_N(2)) {
        GM(int4_columns)(c + n, ldc, quads, b + n * 4, groups, first, 2, GM_N(2));
    }
    for (n = 0; n < 16 && rows == 4; n += 2 * GM_C * GM_N(4)) {
        GM(int4_columns)(c + n, ldc, quads, b + n * 4, groups, first, 4, GM_N(4));
    }
}

static void GM(int4_tile)(const gm_product *p)
{
    gm_int4_rows(GM(int4), WNPU_WIDTH == 128, p);
}

/* ---- tiles ---- */

typedef struct { GM(v) v[4]; } GM(row);

/* One row times one group of C vectors of columns. The empty asm makes the next row's load wait in
 * the instruction stream: compilers otherwise hoist the loads of all rows and spill the sums. */
WNPU_INLINE WNPU_TARGET void GM(step)(GM(row) *sum, const char *a, const char **lo,
                                      const char **hi, const GM(v) *y, int C)
{
    GM(v) x = GM(spread)(a);
    GM(pair)(sum->v, x, y);
    if (C > 2) {
        GM(pair)(sum->v + 2, x, y + 2);
    }
    if (C > 2 && WNPU_WIDTH > 128) {
        __asm__("" : "+r"(*lo), "+r"(*hi), "+x"(sum->v[0]), "+x"(sum->v[1]), "+x"(sum->v[2]),
                     "+x"(sum->v[3]));
    } else {
        __asm__("" : "+r"(*lo), "+r"(*hi), "+x"(sum->v[0]), "+x"(sum->v[1]));
    }
}

/* R rows (1, 2, 4 or 6) times one group of C vectors of columns; rows 0 to 2 stand from lo on, the
 * others from hi: few registers. */
WNPU_INLINE WNPU_TARGET void GM(group)(GM(row) *s, const char **lo, const char **hi, size_t stride,
                                       const int8_t *b, int R, int C)
{
    GM(v) y[4];
    int j;
    MT_UNROLL
    for (j = 0; j < C; j++) {
        y[j] = GM(widen)(b + j * (WNPU_WIDTH / 16));
    }
    GM(step)(&s[0], *lo, lo, hi, y, C);
    if (R > 1) {
        GM(step)(&s[1], *lo + stride, lo, hi, y, C);
    }
    if (R > 2) {
        GM(step)(&s[2], *lo + stride * 2, lo, hi, y, C);
        GM(step)(&s[3], *hi, lo, hi, y, C);
    }
    if (R > 4) {
        GM(step)(&s[4], *hi + stride, lo, hi, y, C);
        GM(step)(&s[5], *hi + stride * 2, lo, hi, y, C);
    }
}

WNPU_INLINE WNPU_TARGET void GM(finish)(const gm_block *t, const GM(row) *s, int R, int C)
{
    int r, j;
    MT_UNROLL
    for (r = 0; r < R; r++) {
        const int32_t *from = gm_at(t->from, t->ldfrom * (size_t)r);
        int32_t *c = t->c + t->ldc * (size_t)r;
        MT_UNROLL
        for (j = 0; j < C; j += 2) {
            GM(v) v = GM(columns)(s[r].v[j], s[r].v[j + 1]);
            if (from != NULL) {
                v = GM(add)(v, GM(load)(from + GM_C * (size_t)j));
            }
            GM(store)(c + GM_C * (size_t)j, v);
        }
    }
}

/* R rows times GM_C C columns. */
WNPU_INLINE WNPU_TARGET void GM(tile1)(const gm_block *t, int R, int C)
{
    GM(row) s[6] = {{{GM(zero)()}}};
    const char *lo = t->a, *hi = t->a + t->stride * 3;
    const int8_t *b = t->b;
    const size_t stride = t->stride, groups = t->groups, next = t->next;
    size_t g;
    for (g = 0; g < groups; g++, lo += 8, hi += 8, b += GM_GROUP) {
        if (R < 6) {
            gm_prefetch(b, next);
        }
        GM(group)(s, &lo, &hi, stride, b, R, C);
    }
    GM(finish)(t, s, R, C);
}

/* All rows of a tile times one panel: tiles of 6 or 4 rows, pairs and a last row. */
WNPU_INLINE WNPU_TARGET void GM(panel)(const gm_block *t)
{
    size_t r = t->rows == 6 ? 6 : t->rows >= 4 ? 4 : 0, n;
    for (n = 0; n < 16 && r > 0; n += 2 * GM_C) {
        const gm_block part = gm_block_at(t, 0, n);
        if (r == 6) {
            GM(tile1)(&part, 6, 2);
        } else {
            GM(tile1)(&part, 4, 2);
        }
    }
    for (; r < t->rows; r += 2) {
        for (n = 0; n < 16; n += 4 * GM_C) {
            const gm_block part = gm_block_at(t, r, n);
            if (r + 2 <= t->rows) {
                GM(tile1)(&part, 2, 4);
            } else {
                GM(tile1)(&part, 1, 4);
            }
        }
    }
}

WNPU_TARGET static void GM(micro)(const gm_block *t)
{
    size_t p;
    for (p = 0; p < t->panels; p++) {
        const gm_block one = gm_block_at(t, 0, p * 16);
        GM(panel)(&one);
    }
}

/* A gm_some. */
WNPU_TARGET static void GM(some)(const gm_block *t, const uint16_t *group, size_t n)
{
    size_t column, i;
    for (column = 0; column < 16; column += 2 * GM_C) {
        const gm_block part = gm_block_at(t, 0, column);
        GM(row) s[6] = {{{GM(zero)()}}};
        for (i = 0; i < n; i++) {
            const size_t at = group[i];
            const char *lo = part.a + at, *hi = lo + part.stride * 3;
            GM(group)(s, &lo, &hi, part.stride, part.b + at * (GM_GROUP / 8), 6, 2);
        }
        GM(finish)(&part, s, 6, 2);
    }
}

static void GM(tile)(const gm_product *p)
{
    /* Few rows are limited by memory: the kernels of up to 4 rows prefetch, the one of 6 does
     * not. */
    static const gm_shape few = {GM(micro), NULL, 4, 1, 8, GM_STRETCH};
    static const gm_shape many = {GM(micro), NULL, 6, 4, 8, GM_STRETCH};
    gm_product plain = *p;
    plain.correction = NULL;
    if (p->rows < 12) {
        gm_walk(&few, &plain);
    } else {
        gm_walk(&many, &plain);
    }
}

static void GM(sparse_tile)(const gm_product *p)
{
    static const gm_shape shape = {GM(micro), GM(some), 6, 4, 8, GM_STRETCH};
    gm_product plain = *p;
    plain.correction = NULL;
    gm_walk(&shape, &plain);
}

#undef GM_C
#undef GM_N
#endif
#ifndef WNPU_PART
#ifdef WNPU_X86

#define WNPU_PART GM_PART_INT16
#define WNPU_WIDTH 128
#include WNPU_SELF
#define WNPU_WIDTH 256
#include WNPU_SELF
#undef WNPU_PART

static const gm_kernels gm_sse41 = {
    .isa = WNPU_ISA_SSE41,
    .rows = 6,
    .a_bytes = gm_bytes16,
    .pack_a = gm_pack_128,
    .pack_u = gm_pack_u_128,
    .pack_joined = gm_pack_joined_128,
    .tile = gm_tile_128,
    .int4_tile = gm_int4_tile_128,
    .survey = gm_survey16,
    .sparse_tile = gm_sparse_tile_128,
    .ftile = gm_ftile_base,
};

static const gm_kernels gm_avx2 = {
    .isa = WNPU_ISA_AVX2,
    .rows = 6,
    .a_bytes = gm_bytes16,
    .pack_a = gm_pack_256,
    .pack_u = gm_pack_u_256,
    .pack_joined = gm_pack_joined_256,
    .tile = gm_tile_256,
    .int4_tile = gm_int4_tile_256,
    .survey = gm_survey16,
    .sparse_tile = gm_sparse_tile_256,
    .ftile = gm_ftile_256,
};

/* ---- what AVX-VNNI and AVX-512 VNNI share ---- */

/* vpdpbusd multiplies unsigned by signed bytes and does not saturate. A is packed as a + 128, and
 * the sums start from -128 times the sum of the weights, which is exact in int32 modulo 2^32. */
GM_AVX2 static void gm_plus_pack(void *packed_a, const int8_t *a, size_t lda, size_t rows,
                                 size_t k4)
{
    const __m256i flip = _mm256_set1_epi8(-128);
    size_t r, i, bytes = k4 * 4;
    for (r = 0; r < rows; r++) {
        uint8_t *to = (uint8_t *)packed_a + gm_bytes8(r, k4);
        const int8_t *x = a + r * lda;
        for (i = 0; i + 32 <= bytes; i += 32) {
            __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(x + i));
            _mm256_storeu_si256((__m256i *)(void *)(to + i), _mm256_xor_si256(v, flip));
        }
        for (; i < bytes; i++) {
            to[i] = (uint8_t)(x[i] + 128);
        }
    }
}

/* High digits as one block: a has rows of 1 + n words, see gm_list_outliers(). */
WNPU_INLINE gm_block gm_outlier_block(const gm_product *m, size_t n)
{
    gm_block t;
    t.c = m->c;
    t.ldc = m->ldc;
    t.from = NULL;
    t.ldfrom = 0;
    t.a = m->a;
    t.stride = (n + 1) * sizeof(int32_t);
    t.rows = m->rows;
    t.b = m->b;
    t.pitch = m->pitch;
    t.groups = n;
    t.panels = m->panels;
    t.next = 0;
    return t;
}

/* A B in 4 bits as one block: groups of 4 bits, and rows of bytes. */
WNPU_INLINE gm_block gm_int4_block(const gm_product *m)
{
    gm_block t;
    t.c = m->c;
    t.ldc = m->ldc;
    t.from = m->correction;
    t.ldfrom = 0;
    t.a = m->a;
    t.stride = gm_bytes8(1, m->k4);
    t.rows = m->rows;
    t.b = m->b;
    t.pitch = t.groups = m->k4 / 2;
    t.panels = m->panels;
    t.next = 0;
    return t;
}

/* ---- AVX-VNNI: vpdpbusd with AVX2's registers ---- */

#ifdef WNPU_VNNI
#define GM_VNNI __attribute__((target("avx2,avxvnni")))

#define GM_ROUNDS 8u /* 16 rows go through a kernel as 6, 6 and 4: 3, 3 and 2 of these */

/* A share of what few rows read ahead: in the rounds from first to last of each GM_ROUNDS, next
 * bytes behind at, line after line, as hardware prefetchers expect. */
typedef struct gm_share {
    const int8_t *at;
    size_t next;
    unsigned first, last;
} gm_share;

/* The next line of each of P panels (1 or 2) if group g is in the share. */
WNPU_INLINE void gm_share_ahead(gm_share *ahead, size_t g, size_t panel, int P)
{
    if (g % GM_ROUNDS < ahead->first || g % GM_ROUNDS >= ahead->last) {
        return;
    }
    gm_prefetch2(ahead->at, ahead->next);
    if (P > 1) {
        gm_prefetch2(ahead->at + panel, ahead->next);
    }
    ahead->at += GM_GROUP;
}

/* The share of take rows, of which done come before, where all of them read `groups` of B. */
WNPU_INLINE gm_share gm_share_of(size_t done, size_t take, size_t rows, const int8_t *b,
                                 size_t groups, size_t next)
{
    gm_share share;
    share.first = (unsigned)(done * GM_ROUNDS / rows);
    share.last = (unsigned)((done + take) * GM_ROUNDS / rows);
    share.at = b + groups / GM_ROUNDS * share.first * GM_GROUP;
    share.next = next;
    return share;
}

typedef struct gm_vnni_row { __m256i v[4]; } gm_vnni_row; /* 8 columns each */

WNPU_INLINE GM_VNNI void gm_vnni_start(gm_vnni_row *sum, const int32_t *from, int P)
{
    int j;
    MT_UNROLL
    for (j = 0; j < 2 * P; j++) {
        sum->v[j] = from == NULL ? _mm256_setzero_si256() :
                    _mm256_loadu_si256((const __m256i *)(const void *)(from + j * 8));
    }
}

/* sum += x * y in the register of the sum, see gm_sse41_add(). */
WNPU_INLINE GM_VNNI void gm_vnni_add(__m256i *sum, __m256i x, __m256i y)
{
#ifndef GM_EMULATED /* a test defines it to run these functions on an emulation */
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(*sum) : "x"(x), "x"(y));
#else
    *sum = _mm256_dpbusd_avx_epi32(*sum, x, y);
#endif
}

/* One row times one group of P panels; for the asm see gm_sse41_step(). */
WNPU_INLINE GM_VNNI void gm_vnni_step(gm_vnni_row *sum, const char *a, const char **lo,
                                      const char **hi, const __m256i *y, int P)
{
    __m256i x = _mm256_set1_epi32(*(const gm_four *)(const void *)a);
    int j;
    MT_UNROLL
    for (j = 0; j < 2 * P; j++) {
        gm_vnni_add(&sum->v[j], x, y[j]);
    }
    __asm__("" : "+r"(*lo), "+r"(*hi), "+x"(sum->v[0]), "+x"(sum->v[1]));
}

/* R rows (1, 2, 4 or 6) times one group of P panels; rows 0 to 2 stand from lo on, the others from
 * hi. */
WNPU_INLINE GM_VNNI void gm_vnni_group(gm_vnni_row *s, const char **lo, const char **hi,
                                       size_t stride, const int8_t *b, size_t panel, int R, int P)
{
    __m256i y[4];
    int j;
    MT_UNROLL
    for (j = 0; j < 2 * P; j++) {
        const int8_t *at = b + (j > 1 ? panel : 0) + j % 2 * 32;
        y[j] = _mm256_loadu_si256((const __m256i *)(const void *)at);
    }
    gm_vnni_step(&s[0], *lo, lo, hi, y, P);
    if (R > 1) {
        gm_vnni_step(&s[1], *lo + stride, lo, hi, y, P);
    }
    if (R > 2) {
        gm_vnni_step(&s[2], *lo + stride * 2, lo, hi, y, P);
        gm_vnni_step(&s[3], *hi, lo, hi, y, P);
    }
    if (R > 4) {
        gm_vnni_step(&s[4], *hi + stride, lo, hi, y, P);
        gm_vnni_step(&s[5], *hi + stride * 2, lo, hi, y, P);
    }
}

/* Sums of R rows times P panels (1, or 2 of up to 2 rows): 12 of them, 2 loads and 1 broadcast fit
 * 16 registers. ahead NULL: nothing is read ahead (unrolled, that would be a fifth slower). */
WNPU_INLINE GM_VNNI void gm_vnni_sums(gm_vnni_row *s, const gm_block *t, gm_share *ahead, int R,
                                      int P)
{
    const char *lo = t->a, *hi = t->a + t->stride * 3;
    const int8_t *b = t->b;
    const size_t panel = t->pitch * GM_GROUP, stride = t->stride, groups = t->groups;
    size_t g;
    int r;
    MT_UNROLL
    for (r = 0; r < R; r++) {
        gm_vnni_start(&s[r], gm_at(t->from, t->ldfrom * (size_t)r), P);
    }
    for (g = 0; g < groups && ahead == NULL; g++, lo += 4, hi += 4, b += GM_GROUP) {
        gm_vnni_group(s, &lo, &hi, stride, b, panel, R, P);
    }
    MT_UNROLL4
    for (g = 0; g < groups && ahead != NULL; g++, lo += 4, hi += 4, b += GM_GROUP) {
        gm_share_ahead(ahead, g, panel, P);
        gm_vnni_group(s, &lo, &hi, stride, b, panel, R, P);
    }
}

WNPU_INLINE GM_VNNI void gm_vnni_tile1(const gm_block *t, gm_share *ahead, int R, int P)
{
    gm_vnni_row s[6];
    int r, j;
    gm_vnni_sums(s, t, ahead, R, P);
    MT_UNROLL
    for (r = 0; r < R; r++) {
        MT_UNROLL
        for (j = 0; j < 2 * P; j++) {
            _mm256_storeu_si256((__m256i *)(void *)(t->c + (size_t)r * t->ldc + j * 8), s[r].v[j]);
        }
    }
}

/* R rows times all panels, P at a time where there are as many. few: what they read ahead in the
 * first panels; NULL: nothing. */
WNPU_INLINE GM_VNNI void gm_vnni_part(const gm_block *t, const gm_share *few, int R, int P)
{
    size_t p = 0;
    gm_share share;
    for (; p < t->panels; p += (size_t)P) {
        const gm_block part = gm_block_at(t, 0, p * 16);
        gm_share *ahead = NULL;
        if (few != NULL) {
            share = *few;
            share.at += p * t->pitch * GM_GROUP;
            ahead = &share;
        }
        if (t->panels - p < (size_t)P) {
            gm_vnni_tile1(&part, ahead, R, 1);
            return;
        }
        gm_vnni_tile1(&part, ahead, R, P);
    }
}

/* At most GM_FEW rows are limited by memory: what the first part of them has read is in the nearest
 * caches for the others, and each reads its share ahead, so that memory is always busy. */
WNPU_INLINE GM_VNNI void gm_vnni_few_ahead(const gm_block *t, size_t next)
{
    size_t done = 0;
    while (done < t->rows) {
        /* 8 rows are 6 and 2: four have 8 sums, too few to hide the latency of an addition. */
        const size_t left = t->rows - done;
        const size_t take = left >= 6 ? 6 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        const gm_share share = gm_share_of(done, take, t->rows, t->b, t->groups, next);
        const gm_block part = gm_block_at(t, done, 0);
        if (take == 6) {
            gm_vnni_part(&part, &share, 6, 1);
        } else if (take == 4) {
            gm_vnni_part(&part, &share, 4, 1);
        } else if (take == 2) {
            gm_vnni_part(&part, &share, 2, 2);
        } else {
            gm_vnni_part(&part, &share, 1, 2);
        }
        done += take;
    }
}

GM_VNNI static void gm_vnni_few(const gm_block *t) { gm_vnni_few_ahead(t, t->next); }

GM_VNNI static void gm_vnni_micro(const gm_block *t)
{
    if (t->rows == 6) {
        gm_vnni_part(t, NULL, 6, 1);
    } else {
        gm_block rest = *t;
        rest.next = 0;
        gm_vnni_few(&rest);
    }
}

static void gm_vnni_tile(const gm_product *p)
{
    static const gm_shape many = {gm_vnni_micro, NULL, 6, 4, 4, 128};
    static const gm_shape few = {gm_vnni_few, NULL, GM_FEW, 4, 4, 128};
    static const gm_shape two = {gm_vnni_few, NULL, GM_FEW, 4, 4, 0};
    if (p->rows > GM_FEW) {
        gm_walk(&many, p);
    } else if (p->rows > 2) {
        gm_walk(&few, p);
    } else {
        gm_walk(&two, p);
    }
}

/* R rows (1 or 2) times one panel in 4 bits: two groups of bytes from each of its own, with sums of
 * their own, to hide the latency of additions. */
WNPU_INLINE GM_VNNI void gm_vnni_int4(const gm_block *t, int R)
{
    const __m256i upper = _mm256_set1_epi8((char)0xf0);
    const char *a = t->a;
    const int8_t *b = t->b;
    const size_t groups = t->groups, stride = t->stride;
    __m256i s[8];
    size_t g;
    int r, n;
    MT_UNROLL
    for (r = 0; r < 4 * R; r++) {
        s[r] = r % 2 ? _mm256_setzero_si256() :
               _mm256_loadu_si256((const __m256i *)(const void *)(t->from + r % 4 / 2 * 8));
    }
    for (g = 0; g < groups; g++, a += 8, b += GM_GROUP) {
        gm_prefetch2(b, GM_NEAR);
        MT_UNROLL
        for (n = 0; n < 2; n++) {
            const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(b + 32 * n));
            const __m256i y0 = _mm256_and_si256(_mm256_slli_epi16(v, 4), upper);
            const __m256i y1 = _mm256_and_si256(v, upper);
            MT_UNROLL
            for (r = 0; r < R; r++) {
                const char *x = a + (size_t)r * stride;
                __m256i *sum = s + 4 * r + 2 * n;
                gm_vnni_add(sum, _mm256_set1_epi32(*(const gm_four *)(const void *)x), y0);
                x += 4;
                gm_vnni_add(sum + 1, _mm256_set1_epi32(*(const gm_four *)(const void *)x), y1);
            }
        }
    }
    MT_UNROLL
    for (r = 0; r < 2 * R; r++) {
        __m256i *out = (__m256i *)(void *)(t->c + (size_t)(r / 2) * t->ldc + r % 2 * 8);
        _mm256_storeu_si256(out, _mm256_add_epi32(s[2 * r], s[2 * r + 1]));
    }
}

GM_VNNI static void gm_vnni_int4_tile(const gm_product *m)
{
    const gm_block all = gm_int4_block(m);
    size_t p, r;
    for (p = 0; p < m->panels; p++) {
        for (r = 0; r < m->rows; r += 2) {
            const gm_block part = gm_block_at(&all, r, p * 16);
            if (r + 2 <= m->rows) {
                gm_vnni_int4(&part, 2);
            } else {
                gm_vnni_int4(&part, 1);
            }
        }
    }
}

/* See gm_avx512_outliers(). R rows times one panel. */
WNPU_INLINE GM_VNNI void gm_vnni_outlier(const gm_block *t, const uint16_t *group, int R)
{
    const int32_t *a = (const int32_t *)(const void *)t->a;
    const size_t stride = t->stride / sizeof *a, n = t->groups;
    const int8_t *b = t->b;
    const __m256i signs = _mm256_set1_epi8(-128), digit = _mm256_set1_epi32(GM_DIGIT);
    __m256i s[8], y[2], x;
    size_t g;
    int r, j;
    MT_UNROLL
    for (r = 0; r < 2 * R; r++) {
        s[r] = _mm256_set1_epi32(a[(size_t)(r / 2) * stride]);
    }
    for (g = 0; g < n; g++) {
        const __m256i *at = (const __m256i *)(const void *)(b + group[g] * (size_t)GM_GROUP);
        y[0] = _mm256_xor_si256(_mm256_loadu_si256(at), signs);
        y[1] = _mm256_xor_si256(_mm256_loadu_si256(at + 1), signs);
        MT_UNROLL
        for (r = 0; r < R; r++) {
            x = _mm256_set1_epi32(a[(size_t)r * stride + 1 + g]);
            gm_vnni_add(&s[2 * r], y[0], x);
            gm_vnni_add(&s[2 * r + 1], y[1], x);
        }
    }
    MT_UNROLL
    for (r = 0; r < R; r++) {
        MT_UNROLL
        for (j = 0; j < 2; j++) {
            __m256i *to = (__m256i *)(void *)(t->c + (size_t)r * t->ldc + j * 8);
            x = _mm256_mullo_epi32(s[2 * r + j], digit);
            _mm256_storeu_si256(to, _mm256_add_epi32(x, _mm256_loadu_si256(to)));
        }
    }
}

GM_VNNI static void gm_vnni_outliers(const gm_product *m, const uint16_t *group, size_t n)
{
    const gm_block all = gm_outlier_block(m, n);
    size_t p, r;
    for (p = 0; p < m->panels; p++) {
        for (r = 0; r + 4 <= m->rows; r += 4) {
            const gm_block part = gm_block_at(&all, r, p * 16);
            gm_vnni_outlier(&part, group, 4);
        }
        for (; r < m->rows; r++) {
            const gm_block part = gm_block_at(&all, r, p * 16);
            gm_vnni_outlier(&part, group, 1);
        }
    }
}

GM_VNNI static void gm_vnni_correct(int32_t *correction, const int8_t *b, size_t k4, size_t panels)
{
    const __m256i offset = _mm256_set1_epi8(-128); /* 128 as an unsigned byte */
    const __m256i zero = _mm256_setzero_si256();
    size_t p, g;
    for (p = 0; p < panels * 2; p++) {
        const int8_t *y = b + p / 2 * k4 * GM_GROUP + p % 2 * 32;
        __m256i sum = zero;
        for (g = 0; g < k4; g++, y += GM_GROUP) {
            gm_vnni_add(&sum, offset, _mm256_loadu_si256((const __m256i *)(const void *)y));
        }
        _mm256_storeu_si256((__m256i *)(void *)(correction + p * 8), _mm256_sub_epi32(zero, sum));
    }
}

static const gm_kernels gm_vnni = {
    .isa = WNPU_ISA_AVX_VNNI,
    .rows = 6,
    .a_bytes = gm_bytes8,
    .pack_a = gm_plus_pack,
    .unsigned_a = 1,
    .tile = gm_vnni_tile,
    .int4_tile = gm_vnni_int4_tile,
    .outliers = gm_vnni_outliers,
    .correct = gm_vnni_correct,
    .ftile = gm_ftile_256,
};
#endif /* WNPU_VNNI */

/* ---- AVX-512 VNNI ---- */

#ifndef GM_EMULATED /* a test defines it to run these functions on an emulation */
#define GM_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#else
#define GM_AVX512
#endif

typedef struct gm_avx512_row { __m512i v[4]; } gm_avx512_row;

/* sum += x * y in the register of the sum, see gm_sse41_add(). */
WNPU_INLINE GM_AVX512 void gm_avx512_add(__m512i *sum, __m512i x, __m512i y)
{
#ifndef GM_EMULATED
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(x), "v"(y));
#else
    *sum = _mm512_dpbusd_epi32(*sum, x, y);
#endif
}

/* from NULL: zeros. */
WNPU_INLINE GM_AVX512 void gm_avx512_start(gm_avx512_row *sum, const int32_t *from, int P)
{
    if (from == NULL) {
        sum->v[0] = sum->v[1] = sum->v[2] = sum->v[3] = _mm512_setzero_si512();
        return;
    }
    sum->v[0] = _mm512_loadu_si512(from);
    if (P > 1) {
        sum->v[1] = _mm512_loadu_si512(from + 16);
        sum->v[2] = _mm512_loadu_si512(from + 32);
        sum->v[3] = _mm512_loadu_si512(from + 48);
    }
}

/* One row times one group of P panels. In one piece, so that nothing comes between: compilers
 * hoist the loads of other rows, and move the sums about. 32-bit x86 has too few registers. */
WNPU_INLINE GM_AVX512 void gm_avx512_step(gm_avx512_row *sum, const char *a, const __m512i *y,
                                          int P)
{
    const gm_four *four = (const gm_four *)(const void *)a;
    int p;
#if defined(__x86_64__) && !defined(GM_EMULATED)
    if (P > 1) {
        __m512i x;
        __asm__("vpbroadcastd %5, %4\n\tvpdpbusd %6, %4, %0\n\tvpdpbusd %7, %4, %1\n\t"
                "vpdpbusd %8, %4, %2\n\tvpdpbusd %9, %4, %3"
                : "+v"(sum->v[0]), "+v"(sum->v[1]), "+v"(sum->v[2]), "+v"(sum->v[3]), "=&v"(x)
                : "m"(*four), "v"(y[0]), "v"(y[1]), "v"(y[2]), "v"(y[3]));
        return;
    }
#endif
    for (p = 0; p < P; p++) {
        gm_avx512_add(&sum->v[p], _mm512_set1_epi32(*four), y[p]);
    }
}

WNPU_INLINE GM_AVX512 void gm_avx512_store(int32_t *c, const gm_avx512_row *sum, int P)
{
    _mm512_storeu_si512(c, sum->v[0]);
    if (P > 1) {
        _mm512_storeu_si512(c + 16, sum->v[1]);
        _mm512_storeu_si512(c + 32, sum->v[2]);
        _mm512_storeu_si512(c + 48, sum->v[3]);
    }
}

/* Row r of 8, in a form that an address can have: odd[i] is 2 i + 1 times stride. */
WNPU_INLINE const char *gm_avx512_at(const char *a, const size_t *odd, int r)
{
    return a + (r % 2 == 1 ? odd[r / 2] : r == 6 ? odd[1] * 2 : odd[0] * (size_t)r);
}

/* Sums of R rows (1, 2 or 6) times P panels (1 or 4): 24 of them, 4 loads and 1 broadcast fit 32
 * registers. ahead is for four panels: the lines that many bytes behind are prefetched; NULL: none
 * are. The loop is not unrolled: gcc may keep sums on the stack then. */
WNPU_INLINE GM_AVX512 void gm_avx512_sums(gm_avx512_row *s, const gm_block *t, const size_t *ahead,
                                          int R, int P)
{
    const size_t odd[4] = {t->stride, t->stride * 3, t->stride * 5, 0};
    const size_t panel = t->pitch * GM_GROUP;
    const char *a = t->a, *end = a + t->groups * 4;
    const int8_t *b = t->b;
    int r, p;
    MT_UNROLL
    for (r = 0; r < R; r++) {
        gm_avx512_start(&s[r], gm_at(t->from, t->ldfrom * (size_t)r), P);
    }
    for (; a < end; a += 4, b += GM_GROUP) {
        __m512i y[4];
        MT_UNROLL
        for (p = 0; p < P; p++) {
            y[p] = _mm512_loadu_si512(b + panel * (size_t)p);
            if (ahead != NULL) {
                gm_prefetch2(b + panel * (size_t)p, *ahead);
            }
        }
        MT_UNROLL
        for (r = 0; r < R; r++) {
            gm_avx512_step(&s[r], gm_avx512_at(a, odd, r), y, P);
        }
    }
}

WNPU_INLINE GM_AVX512 void gm_avx512_tile1(const gm_block *t, const size_t *ahead, int R, int P)
{
    gm_avx512_row s[6];
    int r;
    gm_avx512_sums(s, t, ahead, R, P);
    MT_UNROLL
    for (r = 0; r < R; r++) {
        gm_avx512_store(t->c + (size_t)r * t->ldc, &s[r], P);
    }
}

/* All rows of a tile over P panels. */
WNPU_INLINE GM_AVX512 void gm_avx512_rows(const gm_block *t, int P)
{
    size_t r = 0;
    if (t->rows == 6) {
        gm_avx512_tile1(t, NULL, 6, P);
        return;
    }
    for (; r < t->rows; r += 2) {
        const gm_block part = gm_block_at(t, r, 0);
        if (r + 2 <= t->rows) {
            gm_avx512_tile1(&part, NULL, 2, P);
        } else {
            gm_avx512_tile1(&part, NULL, 1, P);
        }
    }
}

GM_AVX512 static void gm_avx512_micro(const gm_block *t)
{
    size_t p;
    if (t->panels == 4) {
        gm_avx512_rows(t, 4);
        return;
    }
    for (p = 0; p < t->panels; p++) {
        const gm_block one = gm_block_at(t, 0, p * 16);
        gm_avx512_rows(&one, 1);
    }
}

/* R rows times one group of P panels, `panel` bytes apart; hi is row 8. sum [P][R]. */
WNPU_INLINE GM_AVX512 void gm_avx512_group(__m512i *sum, const char *a, const char *hi,
                                           const size_t *odd, const int8_t *b, size_t panel,
                                           size_t ahead, int R, int P)
{
    __m512i y[2];
    int r, p;
    MT_UNROLL
    for (p = 0; p < P; p++, b += panel) {
        y[p] = _mm512_loadu_si512(b);
        gm_prefetch(b, ahead);
    }
    MT_UNROLL
    for (r = 0; r < R; r++) {
        const char *at = gm_avx512_at(r < 8 ? a : hi, odd, r % 8);
        const __m512i x = _mm512_set1_epi32(*(const gm_four *)(const void *)at);
        MT_UNROLL
        for (p = 0; p < P; p++) {
            gm_avx512_add(&sum[p * R + r], x, y[p]);
        }
    }
}

/* R rows times P panels (1 or 2), and the line `ahead` bytes behind each group is prefetched. S
 * groups in turn have sums of their own (16 at most in all), to hide the latency of additions. */
WNPU_INLINE GM_AVX512 void gm_avx512_panels(const gm_block *t, size_t ahead, int R, int P, int S)
{
    const size_t odd[4] = {t->stride, t->stride * 3, t->stride * 5, t->stride * 7};
    const size_t panel = P > 1 ? t->pitch * GM_GROUP : 0, groups = t->groups;
    const char *a = t->a, *hi = R > 8 ? a + t->stride * 8 : a;
    const int8_t *b = t->b;
    __m512i s[16];
    size_t g;
    int i, k;
    MT_UNROLL
    for (i = 0; i < R * P * S; i++) {
        s[i] = i < R * P && t->from != NULL ?
               _mm512_loadu_si512(t->from + (size_t)(i % R) * t->ldfrom + i / R * 16) :
               _mm512_setzero_si512();
    }
    for (g = 0; g + (size_t)S <= groups; g += (size_t)S) {
        MT_UNROLL
        for (k = 0; k < S; k++, a += 4, hi += 4, b += GM_GROUP) {
            gm_avx512_group(s + k * R * P, a, hi, odd, b, panel, ahead, R, P);
        }
    }
    for (; g < groups; g++, a += 4, hi += 4, b += GM_GROUP) {
        gm_avx512_group(s, a, hi, odd, b, panel, ahead, R, P);
    }
    MT_UNROLL
    for (i = R * P; i < R * P * S; i++) {
        s[i % (R * P)] = _mm512_add_epi32(s[i % (R * P)], s[i]);
    }
    MT_UNROLL
    for (i = 0; i < R * P; i++) {
        _mm512_storeu_si512(t->c + (size_t)(i % R) * t->ldc + i / R * 16, s[i]);
    }
}

/* At most GM_FEW rows times one panel: B is read once, in the order in which it lies in memory. An
 * odd row of more than 8 goes by itself. */
GM_AVX512 static void gm_avx512_few_micro(const gm_block *t)
{
    const size_t ahead = t->next > 0 ? GM_NEAR : 0, most = t->rows < 8 ? t->rows : t->rows / 2 * 2;
    switch (most) { /* rows, panels, sums in turn */
    case 16: gm_avx512_panels(t, ahead, 16, 1, 1); break;
    case 14: gm_avx512_panels(t, ahead, 14, 1, 1); break;
    case 12: gm_avx512_panels(t, ahead, 12, 1, 1); break;
    case 10: gm_avx512_panels(t, ahead, 10, 1, 1); break;
    case 8: gm_avx512_panels(t, ahead, 8, 1, 2); break;
    case 7: gm_avx512_panels(t, ahead, 7, 1, 2); break;
    case 6: gm_avx512_panels(t, ahead, 6, 1, 2); break;
    case 5: gm_avx512_panels(t, ahead, 5, 1, 3); break;
    case 4: gm_avx512_panels(t, ahead, 4, 1, 4); break;
    case 3: gm_avx512_panels(t, ahead, 3, 1, 4); break;
    case 2: gm_avx512_panels(t, ahead, 2, 1, 4); break;
    case 1: gm_avx512_panels(t, ahead, 1, 1, 4); break;
    default: break;
    }
    if (most < t->rows) {
        const gm_block last = gm_block_at(t, most, 0);
        gm_avx512_panels(&last, ahead, 1, 1, 4);
    }
}

/* 3 to 8 rows times two panels: a broadcast serves both, or loads take longer than products. */
GM_AVX512 static void gm_avx512_pair_micro(const gm_block *t)
{
    if (t->panels == 1) {
        gm_avx512_few_micro(t);
        return;
    }
    switch (t->rows) { /* rows, panels, sums in turn */
    case 8: gm_avx512_panels(t, t->next, 8, 2, 1); break;
    case 7: gm_avx512_panels(t, t->next, 7, 2, 1); break;
    case 6: gm_avx512_panels(t, t->next, 6, 2, 1); break;
    case 5: gm_avx512_panels(t, t->next, 5, 2, 1); break;
    case 4: gm_avx512_panels(t, t->next, 4, 2, 2); break;
    default: gm_avx512_panels(t, t->next, 3, 2, 2); break; /* 3 */
    }
}

/* One or two rows are limited by memory: four panels are four streams to read. */
GM_AVX512 static void gm_avx512_two_micro(const gm_block *t)
{
    const size_t ahead = t->next;
    if (t->panels < 4) {
        gm_avx512_micro(t);
    } else if (t->rows == 2) {
        gm_avx512_tile1(t, &ahead, 2, 4);
    } else {
        gm_avx512_tile1(t, &ahead, 1, 4);
    }
}

#define GM_SHORT 64u /* groups: four panels of so few lie in one page, where streams disturb each
                      * other (22 GB/s in place of 34 on Zen 4) */

/* Two panels at a time are two streams, which slows the reading of weights, though the products
 * take less. Attention's are in the caches: its keys have two panels in a page, and its values'
 * panels (a part of each is multiplied) lie apart anyway. */
static int gm_avx512_in_pairs(const gm_product *p)
{
    return p->rows >= 3 && p->rows <= 8 && (p->pitch <= GM_SHORT / 2 || p->pitch > p->k4);
}

/* Reads B from front to back, however few rows there are. */
static void gm_avx512_forward_tile(const gm_product *p)
{
    static const gm_shape many = {gm_avx512_micro, NULL, 6, 4, 4, 128};
    static const gm_shape pairs = {gm_avx512_pair_micro, NULL, 8, 2, 4, 0};
    static const gm_shape few = {gm_avx512_few_micro, NULL, GM_FEW, 1, 4, 0};
    if (p->rows > GM_FEW) {
        gm_walk(&many, p);
    } else if (gm_avx512_in_pairs(p)) {
        gm_walk(&pairs, p);
    } else {
        gm_walk(&few, p);
    }
}

static void gm_avx512_tile(const gm_product *p)
{
    static const gm_shape two = {gm_avx512_two_micro, NULL, 2, 4, 4, 0};
    if (p->rows > 2 || p->pitch < GM_SHORT) {
        gm_avx512_forward_tile(p);
    } else {
        gm_walk(&two, p);
    }
}

GM_AVX512 static void gm_avx512_correct(int32_t *correction, const int8_t *b, size_t k4,
                                        size_t panels)
{
    const __m512i offset = _mm512_set1_epi8(-128); /* 128 as an unsigned byte */
    size_t p, g;
    for (p = 0; p < panels; p++) {
        __m512i sum = _mm512_setzero_si512();
        for (g = 0; g < k4; g++, b += GM_GROUP) {
            sum = _mm512_dpbusd_epi32(sum, offset, _mm512_loadu_si512(b));
        }
        _mm512_storeu_si512(correction + p * 16, _mm512_sub_epi32(_mm512_setzero_si512(), sum));
    }
}

/* High digits of R rows times n groups of P panels (1 or 2), see gm_avx512_outliers(). */
WNPU_INLINE GM_AVX512 void gm_avx512_outlier(const gm_block *t, const uint16_t *group, int R, int P)
{
    const int32_t *a = (const int32_t *)(const void *)t->a;
    const size_t stride = t->stride / sizeof *a, n = t->groups, panel = t->pitch * GM_GROUP;
    const int8_t *b = t->b;
    const __m512i signs = _mm512_set1_epi8(-128), digit = _mm512_set1_epi32(GM_DIGIT);
    __m512i s[16], y[2], x;
    size_t g;
    int r, p;
    MT_UNROLL
    for (r = 0; r < R * P; r++) {
        s[r] = _mm512_set1_epi32(a[(size_t)(r / P) * stride]);
    }
    for (g = 0; g < n; g++) {
        const int8_t *at = b + group[g] * (size_t)GM_GROUP;
        MT_UNROLL
        for (p = 0; p < P; p++) {
            y[p] = _mm512_xor_si512(_mm512_loadu_si512(at + panel * (size_t)p), signs);
        }
        MT_UNROLL
        for (r = 0; r < R; r++) {
            x = _mm512_set1_epi32(a[(size_t)r * stride + 1 + g]);
            MT_UNROLL
            for (p = 0; p < P; p++) {
                gm_avx512_add(&s[r * P + p], y[p], x);
            }
        }
    }
    MT_UNROLL
    for (r = 0; r < R * P; r++) {
        int32_t *to = t->c + (size_t)(r / P) * t->ldc + r % P * 16;
        x = _mm512_mullo_epi32(s[r], digit);
        _mm512_storeu_si512(to, _mm512_add_epi32(x, _mm512_loadu_si512(to)));
    }
}

/* B takes the place of the unsigned bytes: what 128 more of each adds depends on the row alone, and
 * sums begin with it. */
GM_AVX512 static void gm_avx512_outliers(const gm_product *m, const uint16_t *group, size_t n)
{
    const gm_block all = gm_outlier_block(m, n);
    const size_t rows = m->rows;
    size_t p, r;
    for (p = 0; p < m->panels; p += 2) {
        gm_block part = gm_block_at(&all, 0, p * 16);
        for (r = 0; r < rows && p + 1 == m->panels; r++, part = gm_block_at(&all, r, p * 16)) {
            gm_avx512_outlier(&part, group, 1, 1);
        }
        for (; r + 8 <= rows; r += 8, part = gm_block_at(&all, r, p * 16)) {
            gm_avx512_outlier(&part, group, 8, 2);
        }
        for (; r + 4 <= rows; r += 4, part = gm_block_at(&all, r, p * 16)) {
            gm_avx512_outlier(&part, group, 4, 2);
        }
        for (; r < rows; r++, part = gm_block_at(&all, r, p * 16)) {
            gm_avx512_outlier(&part, group, 1, 2);
        }
    }
}

/* R rows times one group of P panels in 4 bits, which is two groups of bytes. sum [P][R], and from
 * `apart` on for the second of these. P lines are prefetched, from `ahead` bytes behind b on. */
WNPU_INLINE GM_AVX512 void gm_avx512_int4_group(__m512i *sum, const char *a, const size_t *odd,
                                                const int8_t *b, size_t panel, size_t ahead, int R,
                                                int P, int apart)
{
    const __m512i upper = _mm512_set1_epi8((char)0xf0);
    __m512i y[2][2], v;
    int r, p, i;
    MT_UNROLL
    for (p = 0; p < P; p++) {
        v = _mm512_loadu_si512(b + panel * (size_t)p);
        y[1][p] = _mm512_and_si512(v, upper);
        y[0][p] = _mm512_and_si512(_mm512_slli_epi16(v, 4), upper);
        gm_prefetch(b, ahead + (size_t)p * GM_GROUP);
    }
    MT_UNROLL
    for (r = 0; r < R; r++) {
        const char *x = gm_avx512_at(a, odd, r);
        MT_UNROLL
        for (i = 0; i < 2; i++, x += 4) {
            v = _mm512_set1_epi32(*(const gm_four *)(const void *)x);
            MT_UNROLL
            for (p = 0; p < P; p++) {
                gm_avx512_add(&sum[i * apart + p * R + r], v, y[i][p]);
            }
        }
    }
}

/* R rows times P panels (1 or 2) in 4 bits. S groups in turn have sums of their own, and so have
 * the two groups of bytes in a group if there are few, to hide the latency of additions. What comes
 * next is prefetched from front to back, whatever P is. */
WNPU_INLINE GM_AVX512 void gm_avx512_int4(const gm_block *t, int R, int P, int S)
{
    const size_t odd[4] = {t->stride, t->stride * 3, t->stride * 5, t->stride * 7};
    const size_t groups = t->groups, panel = groups * GM_GROUP, others = (size_t)(P - 1) * GM_GROUP;
    const int sums = R * P, apart = sums > 8 ? 0 : sums, each = sums + apart;
    const char *a = t->a;
    const int8_t *b = t->b;
    __m512i s[16];
    size_t g, ahead = GM_NEAR;
    int i, k;
    MT_UNROLL
    for (i = 0; i < each * S; i++) {
        s[i] = i < sums ? _mm512_loadu_si512(t->from + i / R * 16) : _mm512_setzero_si512();
    }
    for (g = 0; g + (size_t)S <= groups; g += (size_t)S) {
        MT_UNROLL
        for (k = 0; k < S; k++, a += 8, b += GM_GROUP, ahead += others) {
            gm_avx512_int4_group(s + k * each, a, odd, b, panel, ahead, R, P, apart);
        }
    }
    for (; g < groups; g++, a += 8, b += GM_GROUP, ahead += others) {
        gm_avx512_int4_group(s, a, odd, b, panel, ahead, R, P, apart);
    }
    MT_UNROLL
    for (i = sums; i < each * S; i++) {
        s[i % sums] = _mm512_add_epi32(s[i % sums], s[i]);
    }
    MT_UNROLL
    for (i = 0; i < sums; i++) {
        _mm512_storeu_si512(t->c + (size_t)(i % R) * t->ldc + i / R * 16, s[i]);
    }
}

/* 1 to 8 rows times one panel: rows, panels, sums in turn. */
GM_AVX512 static void gm_avx512_int4_one(const gm_block *t)
{
    switch (t->rows) {
    case 8: gm_avx512_int4(t, 8, 1, 1); break;
    case 7: gm_avx512_int4(t, 7, 1, 1); break;
    case 6: gm_avx512_int4(t, 6, 1, 1); break;
    case 5: gm_avx512_int4(t, 5, 1, 1); break;
    case 4: gm_avx512_int4(t, 4, 1, 2); break;
    case 3: gm_avx512_int4(t, 3, 1, 2); break;
    case 2: gm_avx512_int4(t, 2, 1, 2); break;
    default: gm_avx512_int4(t, 1, 1, 2); break;
    }
}

/* 1 to 8 rows times two panels: a broadcast serves both. */
GM_AVX512 static void gm_avx512_int4_two(const gm_block *t)
{
    switch (t->rows) {
    case 8: gm_avx512_int4(t, 8, 2, 1); break;
    case 7: gm_avx512_int4(t, 7, 2, 1); break;
    case 6: gm_avx512_int4(t, 6, 2, 1); break;
    case 5: gm_avx512_int4(t, 5, 2, 1); break;
    case 4: gm_avx512_int4(t, 4, 2, 1); break;
    case 3: gm_avx512_int4(t, 3, 2, 1); break;
    case 2: gm_avx512_int4(t, 2, 2, 2); break;
    default: gm_avx512_int4(t, 1, 2, 2); break;
    }
}

GM_AVX512 static void gm_avx512_int4_tile(const gm_product *m)
{
    const gm_block all = gm_int4_block(m);
    size_t p, r, np;
    for (p = 0; p < m->panels; p += np) {
        np = m->rows > 2 && m->panels - p >= 2 ? 2 : 1;
        for (r = 0; r < m->rows; r += 8) {
            gm_block part = gm_block_at(&all, r, p * 16);
            part.rows = m->rows - r < 8 ? m->rows - r : 8;
            if (np == 2) {
                gm_avx512_int4_two(&part);
            } else {
                gm_avx512_int4_one(&part);
            }
        }
    }
}

static const gm_kernels gm_avx512 = {
    .isa = WNPU_ISA_AVX512,
    .rows = 6,
    .a_bytes = gm_bytes8,
    .pack_a = gm_plus_pack,
    .unsigned_a = 1,
    .tile = gm_avx512_tile,
    .int4_tile = gm_avx512_int4_tile,
    .outliers = gm_avx512_outliers,
    .correct = gm_avx512_correct,
    .ftile = gm_ftile_256,
};

static const gm_kernels gm_avx512_forward = {
    .isa = WNPU_ISA_AVX512,
    .rows = 6,
    .a_bytes = gm_bytes8,
    .pack_a = gm_plus_pack,
    .unsigned_a = 1,
    .tile = gm_avx512_forward_tile,
    .int4_tile = gm_avx512_int4_tile,
    .outliers = gm_avx512_outliers,
    .correct = gm_avx512_correct,
    .ftile = gm_ftile_256,
};

#ifdef WNPU_AMX
/* ---- AMX: the packed forms of AVX-512 are tiles as they are ---- */

/* A tile has up to 16 rows of 64 bytes. B's are 16 groups of a panel; tdpbusd adds the products of
 * rows of A and 64 values along k to rows of 16 sums. Tiles 0 and 1 are sums, 2 has rows of A, 3 a
 * panel. With all eight the cache is read less, but a core has few tiles more than two threads
 * need, and without spare ones nothing overlaps: half as fast beside a busy neighbour. */
#ifndef GM_EMULATED
#define GM_AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,amx-tile,amx-int8")))
#else
#define GM_AMX
#endif
#define GM_TILE 16u
#define GM_TILES 32u /* rows of two */

/* Compilers do not know what the instructions for tiles read and write in memory. */
WNPU_INLINE void gm_amx_fence(void)
{
    __asm__ __volatile__("" : : : "memory");
}

/* Up to 16 rows take one tile, up to 32 two of equal size, which overlap if rows are odd. */
WNPU_INLINE size_t gm_amx_height(size_t rows)
{
    return rows > GM_TILE ? (rows + 1) / 2 : rows;
}

/* From here to gm_amx_close() tiles are for so many rows. */
GM_AMX static void gm_amx_open(size_t rows)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16]; /* of a row */
        uint8_t rows[16];
    } shape;
    size_t t;
    memset(&shape, 0, sizeof shape);
    shape.palette = 1;
    for (t = 0; t < 4; t++) {
        shape.bytes[t] = GM_GROUP;
        shape.rows[t] = (uint8_t)(t < 3 ? gm_amx_height(rows) : GM_TILE);
    }
    gm_amx_fence();
    _tile_loadconfig(&shape);
}

/* Threads of the host leave without tile state, so that the system need not save it. */
GM_AMX static void gm_amx_close(void)
{
    _tile_release();
}

/* R tiles, 1 or 2; the second begins with row `second`. */
WNPU_INLINE GM_AMX void gm_amx_start(const int32_t *from, size_t ldfrom, size_t second, int R)
{
    if (from == NULL) {
        _tile_zero(0);
        _tile_zero(1);
        return;
    }
    _tile_loadd(0, from, ldfrom * sizeof *from);
    if (R > 1) {
        _tile_loadd(1, from + second * ldfrom, ldfrom * sizeof *from);
    }
}

WNPU_INLINE GM_AMX void gm_amx_step(const char *a, size_t stride, const int8_t *b, size_t second,
                                    int R)
{
    _tile_loadd(3, b, GM_GROUP);
    _tile_loadd(2, a, stride);
    _tile_dpbusd(0, 2, 3);
    if (R > 1) {
        _tile_loadd(2, a + second * stride, stride);
        _tile_dpbusd(1, 2, 3);
    }
}

/* The last groups are fewer than a tile has: B's are followed by others, so zeros are put behind a
 * copy; what stands behind A's, at most GM_PAD bytes, then does not matter. One panel. */
WNPU_INLINE GM_AMX void gm_amx_sums(const gm_block *t, size_t second, int R)
{
    int8_t tail[GM_TILE * GM_GROUP] __attribute__((aligned(64)));
    const size_t groups = t->groups, stride = t->stride;
    const char *a = t->a;
    const int8_t *b = t->b;
    size_t g;
    gm_amx_start(t->from, t->ldfrom, second, R);
    for (g = 0; g + GM_TILE <= groups; g += GM_TILE) {
        gm_amx_step(a + g * 4, stride, b + g * GM_GROUP, second, R);
    }
    if (g < groups) {
        memset(tail, 0, sizeof tail);
        memcpy(tail, b + g * GM_GROUP, (groups - g) * GM_GROUP);
        gm_amx_fence();
        gm_amx_step(a + g * 4, stride, tail, second, R);
    }
    _tile_stored(0, t->c, t->ldc * sizeof *t->c);
    if (R > 1) {
        _tile_stored(1, t->c + second * t->ldc, t->ldc * sizeof *t->c);
    }
}

/* rows as in gm_amx_open(); the driver prefetches. */
GM_AMX static void gm_amx_micro(const gm_block *t)
{
    const size_t second = t->rows - gm_amx_height(t->rows);
    size_t p;
    gm_amx_fence();
    for (p = 0; p < t->panels; p++) {
        const gm_block one = gm_block_at(t, 0, p * 16);
        if (t->rows > GM_TILE) {
            gm_amx_sums(&one, second, 2);
        } else {
            gm_amx_sums(&one, second, 1);
        }
    }
    gm_amx_fence();
}

/* Rows that fill all tiles, then the rest. A few rows are limited by memory, and AVX-512 is enough
 * for them. */
GM_AMX static void gm_amx_tile(const gm_product *p)
{
    static const gm_shape shape = {gm_amx_micro, NULL, GM_TILES, 4, 4, 128};
    gm_product part = *p;
    size_t r;
    if (p->rows <= GM_FEW) {
        gm_avx512_tile(p);
        return;
    }
    for (r = 0; r < p->rows; r += part.rows) {
        const size_t left = p->rows - r;
        part.rows = left < GM_TILES ? left : left / GM_TILES * GM_TILES;
        part.c = p->c + r * p->ldc;
        part.a = (const char *)p->a + gm_bytes8(r, p->k4);
        gm_amx_open(part.rows < GM_TILES ? part.rows : GM_TILES);
        gm_walk(&shape, &part);
    }
    gm_amx_close();
}

static const gm_kernels gm_amx = {
    .isa = WNPU_ISA_AMX,
    .rows = 6,
    .a_bytes = gm_bytes8,
    .pack_a = gm_plus_pack,
    .unsigned_a = 1,
    .tile = gm_amx_tile,
    .int4_tile = gm_avx512_int4_tile,
    .outliers = gm_avx512_outliers,
    .correct = gm_avx512_correct,
    .ftile = gm_ftile_256,
};
#endif /* WNPU_AMX */
#endif /* WNPU_X86 */

#ifdef WNPU_ARM
/* ---- NEON: two int8 products fit an int16 sum ---- */

/* 2 * 127 * 127 = 32258: a product of one group and of the next are added in int16, then pairs of
 * those in int32. A sum holds two partial sums of two columns, as for SSE4.1. */
typedef struct gm_neon_row { int32x4_t v[4]; } gm_neon_row;

/* One group of 8 columns. The packed rows end in GM_PAD bytes, so 8 can be loaded where only 4 are
 * used. */
WNPU_INLINE void gm_neon_step(gm_neon_row *sum, const char *a, const int8x8_t *y)
{
    int8x8_t x = vreinterpret_s8_u8(vld1_u8((const uint8_t *)a));
    x = vreinterpret_s8_s32(vdup_lane_s32(vreinterpret_s32_s8(x), 0));
    sum->v[0] = vpadalq_s16(sum->v[0], vmull_s8(x, y[0]));
    sum->v[1] = vpadalq_s16(sum->v[1], vmull_s8(x, y[1]));
    sum->v[2] = vpadalq_s16(sum->v[2], vmull_s8(x, y[2]));
    sum->v[3] = vpadalq_s16(sum->v[3], vmull_s8(x, y[3]));
}

typedef struct gm_eight { char bytes[8]; } gm_eight;

/* Two groups; y: 4 vectors of the first, then 4 of the second; a: the row's 8 values, which become
 * those at next. In one piece, because compilers mix the rows until the sums no longer fit the
 * registers, and with the next row's values on their way, because small cores wait for them. */
WNPU_INLINE void gm_neon_pair(gm_neon_row *sum, int8x8_t *a, const char *next, const int8x8_t *y)
{
    int8x8_t x, z;
    int16x8_t p0, p1, p2, p3;
    __asm__("dup %8.2s, %10.s[0]\n\tdup %9.2s, %10.s[1]\n\tldr %d10, %11\n\t"
            "smull %4.8h, %8.8b, %12.8b\n\tsmull %5.8h, %8.8b, %13.8b\n\t"
            "smull %6.8h, %8.8b, %14.8b\n\tsmull %7.8h, %8.8b, %15.8b\n\t"
            "smlal %4.8h, %9.8b, %16.8b\n\tsmlal %5.8h, %9.8b, %17.8b\n\t"
            "smlal %6.8h, %9.8b, %18.8b\n\tsmlal %7.8h, %9.8b, %19.8b\n\t"
            "sadalp %0.4s, %4.8h\n\tsadalp %1.4s, %5.8h\n\t"
            "sadalp %2.4s, %6.8h\n\tsadalp %3.4s, %7.8h"
            : "+w"(sum->v[0]), "+w"(sum->v[1]), "+w"(sum->v[2]), "+w"(sum->v[3]), "=&w"(p0),
              "=&w"(p1), "=&w"(p2), "=&w"(p3), "=&w"(x), "=&w"(z), "+&w"(*a)
            : "m"(*(const gm_eight *)next), "w"(y[0]), "w"(y[1]), "w"(y[2]), "w"(y[3]), "w"(y[4]),
              "w"(y[5]), "w"(y[6]), "w"(y[7]));
}

WNPU_INLINE void gm_neon_store(int32_t *c, const int32_t *from, const gm_neon_row *sum)
{
    int32x4_t lo = vpaddq_s32(sum->v[0], sum->v[1]), hi = vpaddq_s32(sum->v[2], sum->v[3]);
    if (from != NULL) {
        lo = vaddq_s32(lo, vld1q_s32(from));
        hi = vaddq_s32(hi, vld1q_s32(from + 4));
    }
    vst1q_s32(c, lo);
    vst1q_s32(c + 4, hi);
}

WNPU_INLINE void gm_neon_load(int8x8_t *y, const int8_t *b)
{
    y[0] = vld1_s8(b);
    y[1] = vld1_s8(b + 8);
    y[2] = vld1_s8(b + 16);
    y[3] = vld1_s8(b + 24);
}

/* R rows, 1, 2 or 4, times 8 columns. */
WNPU_INLINE void gm_neon_tile1(const gm_block *t, int R)
{
    const int32x4_t zero = vdupq_n_s32(0);
    gm_neon_row s[4] = {{{zero, zero, zero, zero}}};
    const char *a = t->a;
    const int8_t *b = t->b;
    const size_t stride = t->stride, groups = t->groups;
    int8x8_t y[8], x = vreinterpret_s8_u8(vld1_u8((const uint8_t *)a));
    size_t g;
    int r;
    s[1] = s[2] = s[3] = s[0];
    for (g = 0; g + 2 <= groups; g += 2, a += 8, b += 2 * GM_GROUP) {
        gm_neon_load(y, b);
        gm_neon_load(y + 4, b + GM_GROUP);
        MT_UNROLL
        for (r = 0; r < R; r++) {
            gm_neon_pair(&s[r], &x, r + 1 < R ? a + stride * (size_t)(r + 1) : a + 8, y);
        }
    }
    if (g < groups) {
        gm_neon_load(y, b);
        MT_UNROLL
        for (r = 0; r < R; r++) {
            gm_neon_step(&s[r], a + stride * (size_t)r, y);
        }
    }
    MT_UNROLL
    for (r = 0; r < R; r++) {
        gm_neon_store(t->c + t->ldc * (size_t)r, gm_at(t->from, t->ldfrom * (size_t)r), &s[r]);
    }
}

/* Multiplies R rows, 1, 2 or 4. */
typedef void (*gm_arm_tile1)(const gm_block *t, int R);

/* Up to 4 rows; tile1 is inlined for each number of them. */
WNPU_INLINE void gm_arm_rows(gm_arm_tile1 tile1, const gm_block *t)
{
    gm_block part;
    if (t->rows == 4) {
        tile1(t, 4);
        return;
    }
    if (t->rows >= 2) {
        tile1(t, 2);
    }
    if (t->rows % 2 != 0) {
        part = gm_block_at(t, t->rows - 1, 0);
        tile1(&part, 1);
    }
}

/* Up to 4 rows times 8 columns. */
static void gm_neon_eight(const gm_block *t) { gm_arm_rows(gm_neon_tile1, t); }

/* One panel. */
static void gm_neon_micro(const gm_block *t)
{
    const gm_block right = gm_block_at(t, 0, 8);
    gm_neon_eight(t);
    gm_neon_eight(&right);
}

static void gm_neon_tile(const gm_product *p)
{
    static const gm_shape shape = {gm_neon_micro, NULL, 4, 1, 4, 256};
    gm_product plain = *p;
    plain.correction = NULL;
    gm_walk(&shape, &plain);
}

static const gm_kernels gm_neon = {
    .isa = WNPU_ISA_NEON,
    .rows = 4,
    .a_bytes = gm_bytes8,
    .pack_a = gm_pack8,
    .tile = gm_neon_tile,
    .ftile = gm_ftile_base,
};

/* ---- NEON with dot products: one instruction is 4 columns times 4 along k ---- */

/* gcc and clang name the feature differently, and clang before 16 hides vdotq_laneq_s32 unless the
 * whole file is compiled for it; the instruction itself is known to all. */
#if defined(__clang__)
#define GM_DOT __attribute__((target("dotprod")))
#else
#define GM_DOT __attribute__((target("arch=armv8.2-a+dotprod")))
#endif

typedef struct gm_dot_row { int32x4_t v[4]; } gm_dot_row;

/* lane: which 4 of the 16 values of x. Four spellings because it is part of the instruction. */
WNPU_INLINE GM_DOT void gm_dot_add(int32x4_t *sum, int8x16_t x, int8x16_t y, int lane)
{
    if (lane == 0) {
        __asm__("sdot %0.4s, %1.16b, %2.4b[0]" : "+w"(*sum) : "w"(y), "w"(x));
    } else if (lane == 1) {
        __asm__("sdot %0.4s, %1.16b, %2.4b[1]" : "+w"(*sum) : "w"(y), "w"(x));
    } else if (lane == 2) {
        __asm__("sdot %0.4s, %1.16b, %2.4b[2]" : "+w"(*sum) : "w"(y), "w"(x));
    } else {
        __asm__("sdot %0.4s, %1.16b, %2.4b[3]" : "+w"(*sum) : "w"(y), "w"(x));
    }
}

WNPU_INLINE GM_DOT void gm_dot_step(gm_dot_row *sum, int8x16_t x, const int8x16_t *y, int lane)
{
    gm_dot_add(&sum->v[0], x, y[0], lane);
    gm_dot_add(&sum->v[1], x, y[1], lane);
    gm_dot_add(&sum->v[2], x, y[2], lane);
    gm_dot_add(&sum->v[3], x, y[3], lane);
}

WNPU_INLINE GM_DOT void gm_dot_start(gm_dot_row *sum, const int32_t *from)
{
    const int32x4_t zero = vdupq_n_s32(0);
    sum->v[0] = from != NULL ? vld1q_s32(from) : zero;
    sum->v[1] = from != NULL ? vld1q_s32(from + 4) : zero;
    sum->v[2] = from != NULL ? vld1q_s32(from + 8) : zero;
    sum->v[3] = from != NULL ? vld1q_s32(from + 12) : zero;
}

WNPU_INLINE GM_DOT void gm_dot_store(int32_t *c, const gm_dot_row *sum)
{
    vst1q_s32(c, sum->v[0]);
    vst1q_s32(c + 4, sum->v[1]);
    vst1q_s32(c + 8, sum->v[2]);
    vst1q_s32(c + 12, sum->v[3]);
}

/* One group of one panel times lane `lane` of R rows. */
WNPU_INLINE GM_DOT void gm_dot_group(gm_dot_row *s, const int8x16_t *x, const int8_t *b, int lane,
                                     int R)
{
    int8x16_t y[4];
    int r;
    y[0] = vld1q_s8(b);
    y[1] = vld1q_s8(b + 16);
    y[2] = vld1q_s8(b + 32);
    y[3] = vld1q_s8(b + 48);
    MT_UNROLL
    for (r = 0; r < R; r++) {
        gm_dot_step(&s[r], x[r], y, lane);
    }
}

/* The packed rows end in GM_PAD bytes, so 16 can be loaded where only 4 are used. */
WNPU_INLINE GM_DOT void gm_dot_load(int8x16_t *x, const char *a, size_t stride, int R)
{
    int r;
    MT_UNROLL
    for (r = 0; r < R; r++) {
        x[r] = vreinterpretq_s8_u8(vld1q_u8((const uint8_t *)a + stride * (size_t)r));
    }
}

/* R rows, 1, 2 or 4, times one panel. */
WNPU_INLINE GM_DOT void gm_dot_tile1(const gm_block *t, int R)
{
    const char *a = t->a;
    const int8_t *b = t->b;
    const size_t stride = t->stride, groups = t->groups;
    gm_dot_row s[4];
    int8x16_t x[4];
    size_t g;
    int r;
    MT_UNROLL
    for (r = 0; r < R; r++) {
        gm_dot_start(&s[r], gm_at(t->from, t->ldfrom * (size_t)r));
    }
    for (g = 0; g + 4 <= groups; g += 4, a += 16, b += 4 * GM_GROUP) {
        gm_dot_load(x, a, stride, R);
        gm_dot_group(s, x, b, 0, R);
        gm_dot_group(s, x, b + GM_GROUP, 1, R);
        gm_dot_group(s, x, b + 2 * GM_GROUP, 2, R);
        gm_dot_group(s, x, b + 3 * GM_GROUP, 3, R);
    }
    for (; g < groups; g++, a += 4, b += GM_GROUP) {
        gm_dot_load(x, a, stride, R);
        gm_dot_group(s, x, b, 0, R);
    }
    MT_UNROLL
    for (r = 0; r < R; r++) {
        gm_dot_store(t->c + t->ldc * (size_t)r, &s[r]);
    }
}

/* One panel. */
GM_DOT static void gm_dot_micro(const gm_block *t) { gm_arm_rows(gm_dot_tile1, t); }

static void gm_dot_tile(const gm_product *p)
{
    static const gm_shape shape = {gm_dot_micro, NULL, 4, 1, 4, 256};
    gm_product plain = *p;
    plain.correction = NULL;
    gm_walk(&shape, &plain);
}

static const gm_kernels gm_dot = {
    .isa = WNPU_ISA_NEON_DOT,
    .rows = 4,
    .a_bytes = gm_bytes8,
    .pack_a = gm_pack8,
    .tile = gm_dot_tile,
    .ftile = gm_ftile_base,
};

/* ---- NEON with int8 matrices: one instruction is 2 rows times 2 columns times 8 along k ---- */

/* usmmla multiplies unsigned by signed bytes, so that it takes weights of attention as they are;
 * other values are packed as a + 128 and corrected as for AVX-512. Rows are packed in pairs, 8
 * bytes of one and 8 of the other; two groups of B become two columns each by a zip. */
#if defined(__clang__)
#define GM_I8MM __attribute__((target("i8mm")))
#else
#define GM_I8MM __attribute__((target("arch=armv8.2-a+i8mm")))
#endif

static size_t gm_i8mm_stride(size_t k4)
{
    return (k4 + 1) / 2 * 16 + GM_PAD;
}

static size_t gm_i8mm_bytes(size_t rows, size_t k4)
{
    return (rows + 1) / 2 * gm_i8mm_stride(k4);
}

/* The padding behind the last values of a row is 0. */
WNPU_INLINE void gm_i8mm_put(void *packed_a, const uint8_t *a, size_t lda, size_t rows, size_t k4,
                             uint64_t flip)
{
    size_t r, h;
    for (r = 0; r < (rows + 1) / 2 * 2; r++, a += lda) {
        uint8_t *to = (uint8_t *)packed_a + r / 2 * gm_i8mm_stride(k4) + r % 2 * 8;
        for (h = 0; h < (k4 + 1) / 2; h++, to += 16) {
            uint64_t eight = 0;
            if (r < rows && 2 * h + 2 <= k4) {
                memcpy(&eight, a + h * 8, 8);
                eight ^= flip;
            } else if (r < rows) {
                memcpy(&eight, a + h * 8, 4);
                eight ^= flip & 0xffffffffu;
            }
            memcpy(to, &eight, 8);
        }
    }
}

static void gm_i8mm_pack(void *packed_a, const int8_t *a, size_t lda, size_t rows, size_t k4)
{
    gm_i8mm_put(packed_a, (const uint8_t *)(const void *)a, lda, rows, k4, GM_SIGNS);
}

static void gm_i8mm_pack_u(void *packed_a, const uint8_t *a, size_t lda, size_t rows, size_t k4)
{
    gm_i8mm_put(packed_a, a, lda, rows, k4, 0);
}

typedef struct gm_i8mm_pair { int32x4_t v[4]; } gm_i8mm_pair; /* 2 rows times 8 columns */

WNPU_INLINE GM_I8MM void gm_i8mm_step(gm_i8mm_pair *sum, const uint8_t *a, const int8x16_t *y)
{
    uint8x16_t x = vld1q_u8(a);
    __asm__("usmmla %0.4s, %1.16b, %2.16b" : "+w"(sum->v[0]) : "w"(x), "w"(y[0]));
    __asm__("usmmla %0.4s, %1.16b, %2.16b" : "+w"(sum->v[1]) : "w"(x), "w"(y[1]));
    __asm__("usmmla %0.4s, %1.16b, %2.16b" : "+w"(sum->v[2]) : "w"(x), "w"(y[2]));
    __asm__("usmmla %0.4s, %1.16b, %2.16b" : "+w"(sum->v[3]) : "w"(x), "w"(y[3]));
}

/* Columns 0..7 of two groups, or of one and zeros, as four vectors of two columns. */
WNPU_INLINE void gm_i8mm_load(int8x16_t *y, const int8_t *b, int both)
{
    int32x4_t lo = vreinterpretq_s32_s8(vld1q_s8(b));
    int32x4_t hi = vreinterpretq_s32_s8(vld1q_s8(b + 16));
    int32x4_t lo2 = vdupq_n_s32(0), hi2 = lo2;
    if (both) {
        lo2 = vreinterpretq_s32_s8(vld1q_s8(b + GM_GROUP));
        hi2 = vreinterpretq_s32_s8(vld1q_s8(b + GM_GROUP + 16));
    }
    y[0] = vreinterpretq_s8_s32(vzip1q_s32(lo, lo2));
    y[1] = vreinterpretq_s8_s32(vzip2q_s32(lo, lo2));
    y[2] = vreinterpretq_s8_s32(vzip1q_s32(hi, hi2));
    y[3] = vreinterpretq_s8_s32(vzip2q_s32(hi, hi2));
}

WNPU_INLINE void gm_i8mm_start(gm_i8mm_pair *sum, const int32_t *from)
{
    int j;
    MT_UNROLL
    for (j = 0; j < 4; j++) {
        int32x2_t two = from != NULL ? vld1_s32(from + 2 * j) : vdup_n_s32(0);
        sum->v[j] = vcombine_s32(two, two);
    }
}

/* second: the pair has a second row. */
WNPU_INLINE void gm_i8mm_store(int32_t *c, size_t ldc, const gm_i8mm_pair *sum, int second)
{
    int j;
    MT_UNROLL
    for (j = 0; j < 4; j += 2) {
        vst1q_s32(c + 2 * j, vcombine_s32(vget_low_s32(sum->v[j]), vget_low_s32(sum->v[j + 1])));
        if (second) {
            vst1q_s32(c + ldc + 2 * j,
                      vcombine_s32(vget_high_s32(sum->v[j]), vget_high_s32(sum->v[j + 1])));
        }
    }
}

WNPU_INLINE GM_I8MM void gm_i8mm_pairs(gm_i8mm_pair *s, const uint8_t *a, size_t stride,
                                       const int8x16_t *y, int P)
{
    int p;
    MT_UNROLL
    for (p = 0; p < P; p++) {
        gm_i8mm_step(&s[p], a + stride * (size_t)p, y);
    }
}

/* P pairs of rows, 1, 4 or 6, times 8 columns; the last may have one row. 24 sums, 4 columns and a
 * pair of rows fit the registers. */
WNPU_INLINE GM_I8MM void gm_i8mm_tile1(const gm_block *t, int P)
{
    const uint8_t *a = (const uint8_t *)t->a;
    const int8_t *b = t->b;
    const size_t stride = t->stride, groups = t->groups, ldc = t->ldc;
    int32_t *c = t->c;
    gm_i8mm_pair s[6];
    int8x16_t y[4];
    size_t g;
    int p;
    MT_UNROLL
    for (p = 0; p < P; p++) {
        gm_i8mm_start(&s[p], t->from);
    }
    for (g = 0; g + 2 <= groups; g += 2, a += 16, b += 2 * GM_GROUP) {
        gm_i8mm_load(y, b, 1);
        gm_i8mm_pairs(s, a, stride, y, P);
    }
    if (g < groups) {
        gm_i8mm_load(y, b, 0);
        gm_i8mm_pairs(s, a, stride, y, P);
    }
    MT_UNROLL
    for (p = 0; p < P; p++, c += 2 * ldc) {
        gm_i8mm_store(c, ldc, &s[p], 2 * (size_t)p + 1 < t->rows);
    }
}

/* stride of a block is that of a pair of rows. */
GM_I8MM static void gm_i8mm_tile(const gm_product *m)
{
    size_t n, r, take;
    gm_block t;
    t.ldc = m->ldc;
    t.ldfrom = 0;
    t.stride = gm_i8mm_stride(m->k4);
    t.pitch = m->pitch;
    t.groups = m->k4;
    t.panels = 1;
    t.next = 0;
    for (n = 0; n < m->panels * 16; n += 8) {
        t.b = m->b + n / 16 * m->pitch * GM_GROUP + n % 16 * 4;
        t.from = gm_at(m->correction, n);
        for (r = 0; r < m->rows; r += take) {
            t.a = (const char *)m->a + r / 2 * t.stride;
            t.c = m->c + r * m->ldc + n;
            t.rows = m->rows - r;
            take = t.rows >= 11 ? 12 : t.rows >= 7 ? 8 : 2;
            if (take == 12) {
                gm_i8mm_tile1(&t, 6);
            } else if (take == 8) {
                gm_i8mm_tile1(&t, 4);
            } else {
                gm_i8mm_tile1(&t, 1);
            }
        }
    }
}

static void gm_i8mm_correct(int32_t *correction, const int8_t *b, size_t k4, size_t panels)
{
    size_t p, g, i;
    for (p = 0; p < panels; p++, correction += 16) {
        memset(correction, 0, 16 * sizeof *correction);
        for (g = 0; g < k4; g++, b += GM_GROUP) {
            for (i = 0; i < GM_GROUP; i++) {
                correction[i / 4] -= 128 * b[i];
            }
        }
    }
}

static const gm_kernels gm_i8mm = {
    .isa = WNPU_ISA_NEON_I8MM,
    .rows = 8,
    .a_bytes = gm_i8mm_bytes,
    .pack_a = gm_i8mm_pack,
    .unsigned_a = 1,
    .pack_u = gm_i8mm_pack_u,
    .tile = gm_i8mm_tile,
    .correct = gm_i8mm_correct,
    .ftile = gm_ftile_base,
};
#endif /* WNPU_ARM */

/* ---- weights ---- */

/* Sets the fields and takes the memory of a [n, k] weight, in 4 bits if int4; all pointers NULL
 * while measuring. Rows are set one by one, the rest has to be zero. */
static void gm_carve_as(ar_arena *arena, gm_weight *w, uint32_t n, uint32_t k, int int4, int bias,
                        int keep_float)
{
    size_t columns, groups, floats;
    memset(w, 0, sizeof *w);
    w->n = n;
    w->k = k;
    w->int4 = int4;
    w->n16 = n / 16 + (n % 16 != 0);
    w->k4 = int4 ? (k / 8 + (k % 8 != 0)) * 2 : k / 4 + (k % 4 != 0);
    columns = (size_t)w->n16 * 16;
    if (ar_mul(w->n16, int4 ? w->k4 / 2 : w->k4, &groups) != 0 ||
        ar_mul(columns, k, &floats) != 0 || columns / 16 != w->n16) {
        arena->overflow = 1;
        return;
    }
    w->packed = ar_carve(arena, groups, GM_GROUP);
    w->scale = ar_carve(arena, columns, sizeof(float));
    w->correction = ar_carve(arena, columns, sizeof(int32_t));
    w->bias = bias ? ar_carve(arena, columns, sizeof(float)) : NULL;
    w->exact = keep_float ? ar_carve(arena, floats, sizeof(float)) : NULL;
}

/* In bytes. */
static void gm_carve(ar_arena *arena, gm_weight *w, uint32_t n, uint32_t k, int bias,
                     int keep_float)
{
    gm_carve_as(arena, w, n, k, 0, bias, keep_float);
}

/* Groups that a panel is stored in. */
static size_t gm_groups(const gm_weight *w)
{
    return w->int4 ? w->k4 / 2 : w->k4;
}

/* One row's first byte; four of its bytes are adjacent in each group. */
static int8_t *gm_row(const gm_weight *w, uint32_t row)
{
    return w->packed + (size_t)(row / 16) * gm_groups(w) * GM_GROUP + row % 16 * 4;
}

/* n pairs of groups of values from -7 to 7 become n groups of 4 bits, in place: what is 4 places
 * further along k stands in the upper half of a byte. */
static void gm_fold(int8_t *values, size_t n)
{
    size_t g;
    for (g = 0; g < n; g++) {
        uint32_t pair[2];
        memcpy(pair, values + g * 8, sizeof pair);
        pair[0] = (pair[0] & 0x0f0f0f0f) | (pair[1] & 0x0f0f0f0f) << 4;
        memcpy(values + g * 4, pair, 4);
    }
}

/* Four words of x and y, x0 y0 x1 y1 for words 0 and 1. */
WNPU_INLINE mt_i4 gm_zip_low(mt_i4 x, mt_i4 y)
{
#ifdef __clang__
    return __builtin_shufflevector(x, y, 0, 4, 1, 5);
#else
    return __builtin_shuffle(x, y, (mt_i4){0, 4, 1, 5});
#endif
}

WNPU_INLINE mt_i4 gm_zip_high(mt_i4 x, mt_i4 y)
{
#ifdef __clang__
    return __builtin_shufflevector(x, y, 2, 6, 3, 7);
#else
    return __builtin_shuffle(x, y, (mt_i4){2, 6, 3, 7});
#endif
}

/* Four groups of four rows that follow each other: to[g][row] = rows[row][g], words all of them. */
WNPU_INLINE void gm_weave(int8_t *to, const int8_t *rows, size_t stride)
{
    mt_i4 x[4], even[2], odd[2];
    size_t i;
    MT_UNROLL
    for (i = 0; i < 4; i++) {
        memcpy(&x[i], rows + i * stride, sizeof x[i]);
    }
    even[0] = gm_zip_low(x[0], x[2]);
    even[1] = gm_zip_high(x[0], x[2]);
    odd[0] = gm_zip_low(x[1], x[3]);
    odd[1] = gm_zip_high(x[1], x[3]);
    MT_UNROLL
    for (i = 0; i < 4; i++) {
        x[i] = i % 2 == 0 ? gm_zip_low(even[i / 2], odd[i / 2])
                          : gm_zip_high(even[i / 2], odd[i / 2]);
        memcpy(to + i * GM_GROUP, &x[i], sizeof x[i]);
    }
}

/* Row `row` of B from its k4 * 4 values. */
static void gm_pack_panel_row(int8_t *packed, size_t k4, size_t row, const int8_t *values)
{
    int8_t *to = packed + row / 16 * k4 * GM_GROUP + row % 16 * 4;
    size_t g;
    for (g = 0; g < k4; g++) {
        memcpy(to + g * GM_GROUP, values + g * 4, 4);
    }
}

#define GM_WOVEN 4u /* rows that are put in their places faster together */

/* Rows row..row+n-1 from theirs, which are stride apart: four at a time where these begin with a
 * multiple of four, which is faster. */
static void gm_pack_panel_rows(int8_t *packed, size_t k4, size_t row, size_t n,
                               const int8_t *values, size_t stride)
{
    const size_t end = row + n;
    size_t g, rows;
    for (; row < end; row += rows, values += rows * stride) {
        int8_t *to = packed + row / 16 * k4 * GM_GROUP + row % 16 * 4;
        rows = row % GM_WOVEN == 0 && row + GM_WOVEN <= end && k4 % 4 == 0 ? GM_WOVEN : 1;
        if (rows == 1) {
            gm_pack_panel_row(packed, k4, row, values);
            continue;
        }
        for (g = 0; g < k4; g += 4) {
            gm_weave(to + g * GM_GROUP, values + g * 4, stride);
        }
    }
}

/* Puts n rows from `row` on in their places; rows of values are stride apart and have 4 k4 of them,
 * for a weight in 4 bits from -7 to 7, which are changed. */
static void gm_put_rows(const gm_weight *w, uint32_t row, uint32_t n, int8_t *values,
                        size_t stride)
{
    size_t groups = gm_groups(w);
    uint32_t i;
    for (i = 0; i < n && w->int4; i++) {
        gm_fold(values + i * stride, groups);
    }
    gm_pack_panel_rows(w->packed, groups, row, n, values, stride);
}

/* n groups of 4 bits as 2 n groups of bytes. */
static void gm_widen(int8_t *to, const int8_t *from, size_t n)
{
    size_t i;
    for (i = 0; i < n * GM_GROUP; i += 16) {
        gm_b16 v = *(const gm_b16 *)(const void *)(from + i);
        int8_t *out = to + i / GM_GROUP * 2 * GM_GROUP + i % GM_GROUP;
        *(gm_b16 *)(void *)out = v << 4;
        *(gm_b16 *)(void *)(out + GM_GROUP) = v & 0xf0;
    }
}

/* A product with n panels of a weight in 4 bits, from `panel` on; p says all but b, pitch,
 * correction, k4 and panels. wide has room for the panels in bytes. */
static void gm_tile_int4(const gm_kernels *gm, gm_product *p, int8_t *wide, const gm_weight *w,
                         size_t panel, size_t n)
{
    p->b = gm_row(w, (uint32_t)panel * 16);
    p->correction = w->correction + panel * 16;
    p->k4 = p->pitch = w->k4;
    p->panels = n;
    if (gm->int4_tile != NULL && p->rows <= GM_FEW) {
        gm->int4_tile(p);
        return;
    }
    gm_widen(wide, p->b, n * gm_groups(w));
    p->b = wide;
    gm->tile(p);
}

/* One row as int8, [4 k4]. */
static void gm_get_bytes(const gm_weight *w, uint32_t row, int8_t *bytes)
{
    const int8_t *from = gm_row(w, row);
    size_t g, n = gm_groups(w);
    for (g = 0; g < n && !w->int4; g++) {
        memcpy(bytes + g * 4, from + g * GM_GROUP, 4);
    }
    for (g = 0; g < n && w->int4; g++, bytes += 8) {
        uint32_t v, four[2];
        memcpy(&v, from + g * GM_GROUP, 4);
        four[0] = v << 4 & 0xf0f0f0f0u;
        four[1] = v & 0xf0f0f0f0u;
        memcpy(bytes, four, 8);
    }
}

/* One row as floats: the exact ones if asked for and kept, else the quantised ones times scale,
 * which must be bytes. */
static void gm_get_row(const gm_weight *w, uint32_t row, float *values, int exact)
{
    const size_t panel = row / 16, column = row % 16;
    size_t k;
    if (exact && w->exact != NULL) {
        for (k = 0; k < w->k; k++) {
            values[k] = w->exact[(panel * w->k + k) * 16 + column];
        }
        return;
    }
    for (k = 0; k < w->k; k++) {
        values[k] = (float)gm_row(w, row)[k / 4 * GM_GROUP + k % 4] * w->scale[row];
    }
}

/* ---- outliers: groups along k in which a row of A has a high digit ---- */

#define GM_OUTLIERS 32u /* groups that are gathered and multiplied at a time */

/* Groups of rows of k4 * 4 high digits, k4 a multiple of 4, that are not zero in all rows, in
 * rising order. Returns how many. */
static size_t gm_find_outliers(uint16_t *group, const int8_t *high, size_t rows, size_t k4)
{
    size_t found = 0, g, r, i;
    for (g = 0; g < k4; g += 4) {
        gm_b16 all = {0};
        uint32_t any[4];
        for (r = 0; r < rows; r++) {
            all |= *(const gm_b16 *)(const void *)(high + (r * k4 + g) * 4);
        }
        memcpy(any, &all, sizeof any);
        if ((any[0] | any[1] | any[2] | any[3]) == 0) {
            continue;
        }
        for (i = 0; i < 4; i++) {
            group[found] = (uint16_t)(g + i);
            found += any[i] != 0;
        }
    }
    return found;
}

/* How many of n groups are multiplied together from `first` on, rounded up to a multiple of 4. */
static size_t gm_outliers_at(size_t n, size_t first)
{
    size_t left = n - first;
    return left < GM_OUTLIERS ? (left + 3) / 4 * 4 : GM_OUTLIERS;
}

/* Bytes that gm_pack_outliers() needs at most. */
static size_t gm_outlier_bytes(const gm_kernels *gm, size_t rows, size_t k4)
{
    if (gm->outliers != NULL) {
        return rows * (k4 + 1) * sizeof(int32_t);
    }
    return (k4 + GM_OUTLIERS - 1) / GM_OUTLIERS * gm->a_bytes(rows, GM_OUTLIERS);
}

/* The n groups of rows for gm_kernels.outliers(), [rows][1 + n]: -128 times the sum of a row, and
 * its groups. */
static void gm_list_outliers(int32_t *to, const int8_t *high, size_t rows, size_t k4,
                             const uint16_t *group, size_t n)
{
    size_t r, g;
    for (r = 0; r < rows; r++, high += k4 * 4, to += n + 1) {
        int32_t sum = 0;
        for (g = 0; g < n; g++) {
            const int8_t *x = high + group[g] * 4u;
            sum += x[0] + x[1] + x[2] + x[3];
            memcpy(to + 1 + g, x, 4);
        }
        to[0] = -128 * sum;
    }
}

/* Packs n groups of high digits of at most GM_FEW rows: for gm_kernels.outliers(), or for tile(),
 * GM_OUTLIERS groups at a time with zeros for missing ones. */
static void gm_pack_outliers(const gm_kernels *gm, char *packed, const int8_t *high, size_t rows,
                             size_t k4, const uint16_t *group, size_t n)
{
    int8_t a[GM_FEW * GM_OUTLIERS * 4];
    size_t first, m, r, g;
    if (gm->outliers != NULL) {
        gm_list_outliers((int32_t *)(void *)packed, high, rows, k4, group, n);
        return;
    }
    for (first = 0; first < n; first += GM_OUTLIERS) {
        m = gm_outliers_at(n, first);
        memset(a, 0, rows * m * 4);
        for (r = 0; r < rows; r++) {
            for (g = 0; g < m && first + g < n; g++) {
                memcpy(a + (r * m + g) * 4, high + (r * k4 + group[first + g]) * 4, 4);
            }
        }
        gm->pack_a(packed, a, m * 4, rows, m);
        packed += gm->a_bytes(rows, GM_OUTLIERS);
    }
}

/* The columns of `panels` panels in m of the groups, one behind the other; what is missing comes
 * from the first group, to be multiplied with zeros. */
static void gm_gather(int8_t *to, const gm_weight *w, size_t panel, size_t panels,
                      const uint16_t *group, size_t n, size_t m)
{
    size_t p, g;
    for (p = panel; p < panel + panels; p++) {
        const int8_t *from = w->packed + p * w->k4 * GM_GROUP;
        for (g = 0; g < m; g++, to += GM_GROUP) {
            memcpy(to, from + (g < n ? group[g] : group[0]) * (size_t)GM_GROUP, GM_GROUP);
        }
    }
}

/* ---- packing at run time, for attention ---- */

/* One group: the values of 4 steps become neighbours. Whole words, because that is what compilers
 * turn into a few interleaving instructions. */
WNPU_INLINE void gm_interleave(int8_t *to, const int8_t *x0, const int8_t *x1, const int8_t *x2,
                               const int8_t *x3)
{
    uint8_t in[4][16];
    uint32_t words[16];
    int i;
    memcpy(in[0], x0, 16);
    memcpy(in[1], x1, 16);
    memcpy(in[2], x2, 16);
    memcpy(in[3], x3, 16);
    for (i = 0; i < 16; i++) {
        words[i] = (uint32_t)in[0][i] | (uint32_t)in[1][i] << 8 | (uint32_t)in[2][i] << 16 |
                   (uint32_t)in[3][i] << 24;
    }
    memcpy(to, words, sizeof words);
}

/* The transpose: group `group` of every panel from `steps` (1 to 4) rows of a matrix [k, n], stride
 * apart: B[c, 4 * group + j] = rows[j][c] for c < n. Missing steps and columns become 0. */
static void gm_pack_panel_steps(int8_t *packed, size_t k4, size_t group, const int8_t *rows,
                                size_t stride, size_t steps, size_t n)
{
    size_t c, j;
    for (c = 0; c < n; c += 16) {
        int8_t *to = packed + (c / 16 * k4 + group) * GM_GROUP;
        const int8_t *x = rows + c;
        if (n - c >= 16 && steps == 4) {
            gm_interleave(to, x, x + stride, x + stride * 2, x + stride * 3);
        } else {
            int8_t part[4][16] = {{0}};
            for (j = 0; j < steps; j++) {
                memcpy(part[j], x + j * stride, n - c < 16 ? n - c : 16);
            }
            gm_interleave(to, part[0], part[1], part[2], part[3]);
        }
    }
}

/* The sum of n values, a multiple of 8 and at most 256: by eight, as unsigned bytes. */
static int32_t gm_sum(const int8_t *values, size_t n)
{
    const uint64_t even = 0x00ff00ff00ff00ffu;
    uint64_t sums = 0, v;
    size_t i;
    for (i = 0; i < n; i += 8) {
        memcpy(&v, values + i, sizeof v);
        v ^= GM_SIGNS;
        sums += (v & even) + (v >> 8 & even);
    }
    return (int32_t)(sums * 0x0001000100010001u >> 48) - 128 * (int32_t)n;
}

/* ---- weights of attention: 0..255 ---- */

/* Rows of weights begin at w with a stride of gm_p_stride(). Kernels that multiply unsigned bytes
 * take them there; those that widen pack them; for the rest p - 128 takes their place, and a row of
 * ones is added below, which yields the sums of the columns that 128 has to be multiplied with. So
 * there has to be room for another row. */
static size_t gm_p_stride(size_t k4)
{
    return gm_bytes8(1, k4);
}

/* Returns what gm_tile_p() takes: w or packed, which has room for the rows if pack_u is there. */
static const void *gm_pack_p(const gm_kernels *gm, void *packed, uint8_t *w, size_t rows, size_t k4)
{
    size_t r, i, stride = gm_p_stride(k4);
    if (gm->pack_u != NULL) {
        gm->pack_u(packed, w, stride, rows, k4);
        return packed;
    }
    for (r = 0; r < rows && !gm->unsigned_a; r++) {
        for (i = 0; i < k4 * 4; i += 16) { /* the last may end in the padding */
            *(gm_b16 *)(w + r * stride + i) ^= 128u;
        }
    }
    memset(w + rows * stride, 1, k4 * 4);
    return w;
}

/* product, of an A from gm_pack_p(): c has room for another row. sparse: scratch for kernels that
 * leave zeros out. */
static void gm_tile_p(const gm_kernels *gm, const gm_product *product, gm_sparse *sparse)
{
    gm_product p = *product;
    const int32_t *sums = p.c + p.rows * p.ldc;
    size_t r, i;
    int is_signed = gm->pack_u == NULL && !gm->unsigned_a;
    p.correction = NULL;
    if (gm->survey != NULL && p.rows >= 2 * gm->rows) {
        gm->survey(sparse, p.a, p.rows, p.k4);
        p.sparse = sparse;
        gm->sparse_tile(&p);
        return;
    }
    p.rows += is_signed ? 1 : 0;
    gm->tile(&p);
    for (r = 0; r + 1 < p.rows && is_signed; r++) {
        for (i = 0; i < p.panels * 16; i++) {
            p.c[r * p.ldc + i] += 128 * sums[i];
        }
    }
}

/* ======================================================================
 *  8. op_  float operators
 *
 *  Owns      layer norm, softmax, GELU, quantise, dequantise, the mel
 *            chain of section 6 and sums over logits.
 *  Assumes   lengths that are multiples of 16 unless said otherwise.
 *  Ensures   the same bits from every instruction set. Operators are
 *            parts (section 1), compiled once per width of vectors from
 *            about fifteen primitives. Functions that end in _base define
 *            the results.
 *  Costs     about one nanosecond a value at most (softmax), on AVX2.
 * ====================================================================== */

/* What becomes of a product on its way out of the integer accumulators. */
typedef enum op_finish {
    OP_STORE,   /* out = x */
    OP_GELU,    /* out = gelu(x) */
    OP_ADD      /* out += x */
} op_finish;

/* Sum of squares of what n values are from a middle. */
WNPU_INLINE float op_square_body(const float *x, size_t n, float middle)
{
    mt_acc sum;
    mt_vec v;
    size_t i;
    unsigned p;
    memset(&sum, 0, sizeof sum);
    for (i = 0; i < n; i += 16) {
        MT_UNROLL
        for (p = 0; p < (16u / MT_LANES); p++) {
            mt_vload(&v, x + i + p * MT_LANES);
            v.v -= middle;
            sum.part[p] += v.v * v.v;
        }
    }
    return mt_acc_sum(&sum);
}

/* Largest |x|. */
WNPU_INLINE float op_peak_base(const float *x, size_t n)
{
    mt_vec best, v;
    size_t i;
    mt_vset(&best, 0.0f);
    for (i = 0; i < n; i += MT_LANES) {
        mt_vload(&v, x + i);
        mt_vabs(&v);
        mt_vmax(&best, &v);
    }
    return mt_vmaximum(&best);
}

/* Whether a row with this largest |x| can be quantised. */
WNPU_INLINE int op_usable(float peak) { return peak > 1e-30f && peak < 1e30f; }

/* Symmetric int8 of rows of n values, ldx apart: q [rows, n] = round(x / scale[row]), ties to even,
 * scale = max|x| / 127. A row of zeros, or one that is not finite (only a broken model makes one),
 * becomes zeros with scale 0. */
static void op_quantise_base(int8_t *q, const float *x, size_t ldx, size_t rows, size_t n,
                             float *scale)
{
    size_t r, i;
    for (r = 0; r < rows; r++, q += n, x += ldx) {
        float peak = op_peak_base(x, n), inverse = 127.0f / peak;
        mt_vec v;
        if (!op_usable(peak)) {
            memset(q, 0, n);
            scale[r] = 0.0f;
            continue;
        }
        for (i = 0; i < n; i += MT_LANES) {
            mt_vload(&v, x + i);
            v.v *= inverse;
            mt_vstore_int8(q + i, &v);
        }
        scale[r] = peak / 127.0f;
    }
}

/* ---- two digits: x = scale * (GM_DIGIT * high + low) ---- */

/* So many times the root of the mean square of a row is where low digits end. Few values are larger
 * than that: at most one in nine, and in speech one in a hundred. */
#define OP_USUAL 3.0f

/* Splits x * inverse, in units of GM_DIGIT. */
typedef void (*op_fine)(int8_t *high, int8_t *low, const float *x, size_t n, float inverse);

/* A row whose values have 8 bits where they are usual, and outliers, which would take the steps
 * from all others, a second digit (LLM.int8() computes outliers apart; Dettmers et al., 2022). No
 * value is larger than sqrt(n) times the root of the mean square, so for n <= 131072 high digits
 * are 60 at most, both together fit 16 bits, and an int32 holds the sums of their products with
 * bytes. Returns the scale; 0 for zeros, or a row that is not finite, which becomes zeros. */
WNPU_INLINE float op_quantise_fine_body(op_fine fine, int8_t *high, int8_t *low, const float *x,
                                        size_t n, float square)
{
    float usual = OP_USUAL * sqrtf(square / (float)n);
    if (!op_usable(square)) {
        memset(high, 0, n);
        memset(low, 0, n);
        return 0.0f;
    }
    fine(high, low, x, n, 127.0f / GM_DIGIT / usual);
    return usual / 127.0f;
}

static void op_fine_base(int8_t *high, int8_t *low, const float *x, size_t n, float inverse)
{
    mt_vec v;
    size_t i;
    for (i = 0; i < n; i += MT_LANES) {
        mt_vload(&v, x + i);
        v.v *= inverse;
        mt_vstore_int8(high + i, &v);
        v.v = (v.v - ((v.v + MT_ROUND) - MT_ROUND)) * (float)GM_DIGIT;
        mt_vstore_int8(low + i, &v);
    }
}

static float op_quantise_fine_base(int8_t *high, int8_t *low, const float *x, size_t n)
{
    return op_quantise_fine_body(op_fine_base, high, low, x, n, op_square_body(x, n, 0.0f));
}

/* Columns of a product that are finished at a time. Rows are long, so hardware prefetchers do not
 * foresee the lines of the next chunk. */
#define OP_CHUNK 64u

/* Prefetches where the row's next chunk will go: a whole product lies between the two. */
WNPU_INLINE void op_expect_next(const float *out)
{
    gm_prefetch2((const int8_t *)(const void *)out, OP_CHUNK * sizeof(float));
}

/* ---- softmax over blocks of keys ---- */

#define OP_KEYS 512u  /* keys of a block at most */
#define OP_PRODUCT 24u /* rows that op_kernels.product() takes at most */
#define OP_ATTEND 2u /* rows that op_kernels.attend() takes at most */
#define OP_HEAD 64u /* size of a head in all of OpenAI's models; op_kernels.attend() is for it */

/* Exponents are whole numbers of 16 bits that count steps of 1/256 octave: 2^(exponent / 256). */
#define OP_OCTAVE 256

/* A row's largest exponent lies within these: with room for an octave above it, and for 16 below
 * it, beyond which a key has no weight. */
#define OP_MOST 32511
#define OP_LEAST (-28672)

/* State of a row's softmax after the blocks so far (online softmax, Milakov and Gimelshein,
 * 2018). */
typedef struct op_online {
    float top;    /* largest exponent; -1e30 before the first block */
    float sum;    /* of 255 * 2^((exponent - top) / 256), without the values' scales */
    float peak;   /* largest exponent of the last block */
    int32_t most; /* peak as an element of the row of 16 bits */
    float keep;   /* what the output so far has to be multiplied with */
    float add;    /* and what the last block's has to be, before it is added */
} op_online;

/* A block's keys, packed by gm_pack_panel_row() in groups of k4. Attention's exponent is acc *
 * (query_scale * key[j]) + value_log2[j], so that its power includes the scale of the value vector;
 * its inverse takes it out of the sum. */
typedef struct op_keys {
    const int8_t *packed;
    const int32_t *correction; /* for gm_kernels.tile() */
    size_t k4;
    const float *key, *value_log2, *value_inverse;
} op_keys;

/* Packed queries times keys from at on, over all groups; c and panels are the caller's. */
WNPU_INLINE gm_block op_keys_block(const op_keys *keys, size_t at, const char *queries, size_t rows)
{
    gm_block t = {0};
    t.from = keys->correction + at;
    t.a = queries;
    t.stride = keys->k4 * 4 + GM_PAD;
    t.rows = rows;
    t.b = keys->packed + at * keys->k4 * 4;
    t.pitch = t.groups = keys->k4;
    return t;
}

/* The product of at most n keys from at on, c [rows, n]. */
WNPU_INLINE gm_product op_keys_product(const op_keys *keys, size_t at, size_t n, int32_t *c,
                                       const void *queries, size_t rows)
{
    gm_product p = {0};
    p.c = c;
    p.ldc = n;
    p.a = queries;
    p.rows = rows;
    p.b = keys->packed + at * keys->k4 * 4;
    p.k4 = p.pitch = keys->k4;
    p.correction = keys->correction + at;
    p.panels = n / 16;
    return p;
}

/* A row's exponents u of n keys, to the nearest, halves to even. Those from n to the next multiple
 * of 16 become the least there is; so do 2^31 and more, and NaN, because x86 has it
 * so. Returns the largest. The order in u is the instruction set's own. */
typedef int (*op_narrow)(int16_t *u, const int32_t *acc, size_t n, float query_scale,
                         const float *key, const float *value_log2);

static int op_narrow_base(int16_t *u, const int32_t *acc, size_t n, float query_scale,
                          const float *key, const float *value_log2)
{
    mt_iv best = (mt_iv){0} - 32768, k, over;
    size_t i, j;
    int most = -32768;
    for (i = 0; i < n; i += MT_LANES) {
        mt_vec v, s, end;
        mt_vload_int(&v, acc + i);
        mt_vload(&s, key + i);
        mt_vload(&end, value_log2 + i);
        v.v = v.v * (s.v * query_scale) + end.v;
        mt_vset(&end, -32768.0f);
        mt_vmax(&end, &v);
        over = end.v > 32767.0f;
        k = (over & 32767) | (~over & ((mt_iv)(end.v + MT_ROUND) - 0x4b400000));
        over = v.v < 2147483648.0f;
        k = (over & k) | (~over & -32768);
        for (j = 0; i + MT_LANES > n && j < MT_LANES; j++) {
            k[j] = i + j < n ? k[j] : -32768;
        }
        over = k > best;
        best = (over & k) | (~over & best);
        *(mt_suv *)(u + i) = __builtin_convertvector(k, mt_suv);
    }
    for (; i % 16 != 0; i++) {
        u[i] = -32768;
    }
    for (j = 0; j < MT_LANES; j++) {
        most = best[j] > most ? best[j] : most;
    }
    return most;
}

WNPU_INLINE int op_within(int most) { return most >= OP_LEAST && most <= OP_MOST; }

/* What op_kernels.product returns: whether all rows' exponents fit. */
WNPU_INLINE int op_product_within(op_online *row, size_t rows)
{
    int within = 1;
    size_t r;
    for (r = 0; r < rows && within; r++) {
        row[r].peak = (float)row[r].most;
        within = op_within(row[r].most);
    }
    return within;
}

/* A row whose largest exponent is out of reach of 16 bits has exponents relative to it. */
static void op_far_row(op_narrow narrow, op_online *row, int16_t *u, const int32_t *acc, size_t n,
                       float query_scale, const op_keys *keys)
{
    float shifted[OP_KEYS] = {0}, most = -1e30f;
    size_t j;
    for (j = 0; j < n; j++) {
        float x = (float)acc[j] * (keys->key[j] * query_scale) + keys->value_log2[j];
        most = x > most ? x : most;
    }
    for (j = 0; j < n; j++) {
        shifted[j] = keys->value_log2[j] - most;
    }
    row->most = narrow(u, acc, n, query_scale, keys->key, shifted);
    row->most = row->most < OP_MOST ? row->most : OP_MOST;
    row->peak = most + (float)row->most;
}

/* Exponents u [rows, OP_KEYS] of scores acc [rows, n], row stride lda, n <= OP_KEYS. */
WNPU_INLINE void op_exponents_body(op_narrow narrow, op_online *row, int16_t *u,
                                   const int32_t *acc, size_t lda, size_t rows, size_t n,
                                   const float *query_scale, const op_keys *keys)
{
    size_t r;
    for (r = 0; r < rows; r++, row++, u += OP_KEYS, acc += lda) {
        row->most = narrow(u, acc, n, query_scale[r], keys->key, keys->value_log2);
        row->peak = (float)row->most;
        if (!op_within(row->most)) {
            op_far_row(narrow, row, u, acc, n, query_scale[r], keys);
        }
    }
}

/* 2^(-f / 65536), f = 0..65535, is 65169 - f (C1 - f C2) of 65280 with each product shifted right
 * by 16: relative error below 1.72e-3, fitted by random search. Weights have 8 bits. */
#define OP_POWER_0 65169u
#define OP_POWER_1 43493u
#define OP_POWER_2 11025u

/* The inverses of a block's value scales for the weights, whole numbers up to 32767. Those of
 * over 1024 times the least count as that: their values are too small to matter, and the others
 * keep 5 bits at least. Values for keys beyond the last do not matter: their weights are 0. */
typedef struct op_inverse {
    int16_t part[OP_KEYS];
    float unit, limit, scale;
} op_inverse;

/* Widens least..most by n values. */
static void op_widen(float *least, float *most, const float *x, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        *least = x[i] < *least ? x[i] : *least;
        *most = x[i] > *most ? x[i] : *most;
    }
}

static void op_inverse_start(op_inverse *inverse, float least, float most)
{
    inverse->limit = least * 1024.0f < most ? least * 1024.0f : most;
    inverse->unit = inverse->limit / 32767.0f;
    inverse->scale = 32767.0f / inverse->limit;
}

typedef void (*op_fill_inverse)(op_inverse *inverse, const float *value_inverse, size_t n);

static void op_inverse_base(op_inverse *inverse, const float *value_inverse, size_t n)
{
    float least = value_inverse[0], most = least;
    size_t i;
    op_widen(&least, &most, value_inverse, n);
    op_inverse_start(inverse, least, most);
    for (i = 0; i < n; i++) {
        float x = value_inverse[i] < inverse->limit ? value_inverse[i] : inverse->limit;
        inverse->part[i] = (int16_t)(mt_bits(x * inverse->scale + MT_ROUND) & 0x7fffu);
    }
    for (; i % 16 != 0; i++) {
        inverse->part[i] = 0;
    }
}

/* Weights of 16 exponents u: p = round(255 * 2^((u - most) / 256)), halves upwards, in whole
 * numbers of 16 bits, so that as many fit into a vector as can; from is most + OP_OCTAVE, of which
 * the upper bits shift by 1. Returns their sum without the values' scales, by pairs of neighbours,
 * in steps of 8 * unit. */
WNPU_INLINE uint32_t op_weights16(uint8_t *p, const int16_t *u, int32_t from,
                                  const int16_t *inverse)
{
    uint32_t w[16], sum = 0;
    unsigned i, j;
    for (i = 0; i < 16; i += MT_LANES) {
        mt_iv k = from - __builtin_convertvector(*(const mt_suv *)(u + i), mt_iv);
        mt_iv far = k > 8191; /* weight 0, and shifts of 32 bits go no further */
        mt_uv y = (mt_uv)((far & 8191) | (~far & k)), f = (y << 8) & 0xffffu, m;
        mt_iv weight;
        m = OP_POWER_1 - (f * OP_POWER_2 >> 16);
        m = OP_POWER_0 - (f * m >> 16);
        m = m >> (y >> 8);
        *(mt_uvu *)(w + i) = m;
        weight = (mt_iv)((m + 64u) >> 7);
        mt_store_int8(p + i, &weight);
    }
    for (j = 0; j < 16; j += 2) {
        const uint32_t a = (uint32_t)inverse[j], b = (uint32_t)inverse[j + 1];
        sum += (w[j] * a + w[j + 1] * b) >> 10;
    }
    return sum;
}

/* Weights p of a row of n exponents u, up to the next multiple of 16; most is the row's largest.
 * Returns their sum, see op_weights16(). */
typedef uint32_t (*op_weigh)(uint8_t *p, const int16_t *u, size_t n, int32_t most,
                             const int16_t *inverse);

static uint32_t op_weigh_base(uint8_t *p, const int16_t *u, size_t n, int32_t most,
                              const int16_t *inverse)
{
    uint32_t sum = 0;
    size_t i;
    for (i = 0; i < n; i += 16) {
        sum += op_weights16(p + i, u + i, most + OP_OCTAVE, inverse + i);
    }
    return sum;
}

/* Blocks whose largest exponents are the rows' peaks come next. */
WNPU_INLINE void op_online_next(op_online *row, size_t rows)
{
    for (; rows > 0; rows--, row++) {
        float top = row->peak > row->top ? row->peak : row->top;
        float keep = mt_exp2_1((row->top - top) * (1.0f / OP_OCTAVE));
        float add = mt_exp2_1((row->peak - top) * (1.0f / OP_OCTAVE));
        row->keep = row->top < top ? keep : 1.0f; /* exactly 1, and branch-free */
        row->add = row->peak < top ? add : 1.0f;
        row->top = top;
    }
}

/* The block's sum; at most 2^31. */
WNPU_INLINE void op_online_add(op_online *row, uint32_t sum, float unit)
{
    row->sum = row->sum * row->keep + (float)(int32_t)sum * (8.0f * unit) * row->add;
}

/* Weights p [rows, n rounded up to 16], row stride ldp, of exponents u [rows, OP_KEYS]. */
WNPU_INLINE void op_weights_body(op_fill_inverse fill, op_weigh weigh, op_online *row, uint8_t *p,
                                 size_t ldp, const int16_t *u, size_t rows, size_t n,
                                 const op_keys *keys)
{
    op_inverse inverse;
    size_t r;
    op_online_next(row, rows);
    fill(&inverse, keys->value_inverse, n);
    for (r = 0; r < rows; r++) {
        uint32_t sum = weigh(p + r * ldp, u + r * OP_KEYS, n, row[r].most, inverse.part);
        op_online_add(&row[r], sum, inverse.unit);
    }
}

static void op_exponents_base(op_online *row, int16_t *u, const int32_t *acc, size_t lda,
                              size_t rows, size_t n, const float *query_scale,
                              const op_keys *keys)
{
    op_exponents_body(op_narrow_base, row, u, acc, lda, rows, n, query_scale, keys);
}

static void op_weights_base(op_online *row, uint8_t *p, size_t ldp, const int16_t *u, size_t rows,
                            size_t n, const op_keys *keys)
{
    op_weights_body(op_inverse_base, op_weigh_base, row, p, ldp, u, rows, n, keys);
}

/* Prefetch distance in bytes for n keys; 0 if there are fewer. */
WNPU_INLINE size_t op_keys_ahead(size_t n) { return n > GM_NEAR / OP_HEAD ? GM_NEAR : 0; }

/* The steps of attention of one row: its exponents of n keys; the inverses of the values' scales,
 * common to all rows; and its weights times values, whose panels are pitch groups apart. */
typedef struct op_one_row {
    void (*exponents)(op_online *row, int16_t *u, const char *query, size_t n, float query_scale,
                      const op_keys *keys);
    void (*inverse)(op_inverse *inverse, const float *value_inverse, size_t n);
    void (*values)(op_online *row, const int16_t *u, int32_t *acc, size_t n,
                   const op_inverse *inverse, const int8_t *values, size_t pitch);
} op_one_row;

/* op_kernels.attend(); queries are stride bytes apart. */
WNPU_INLINE int op_attend(const op_one_row *one, op_online *row, int16_t *u, int32_t *acc,
                          const char *queries, size_t stride, size_t rows, size_t n,
                          const float *query_scale, const op_keys *keys, const int8_t *values,
                          size_t pitch)
{
    op_inverse inverse;
    size_t r;
    for (r = 0; r < rows; r++) {
        one->exponents(row + r, u + r * OP_KEYS, queries + r * stride, n, query_scale[r], keys);
    }
    if (!op_product_within(row, rows)) {
        return 0;
    }
    op_online_next(row, rows);
    one->inverse(&inverse, keys->value_inverse, n);
    for (r = 0; r < rows; r++) {
        one->values(row + r, u + r * OP_KEYS, acc + r * OP_HEAD, n, &inverse, values, pitch);
    }
    return 1;
}

/* sum of x[i] y[i]. */
static float op_dot(const float *x, const float *y, size_t n)
{
    mt_acc sum;
    mt_vec v, u;
    size_t i;
    unsigned p;
    memset(&sum, 0, sizeof sum);
    for (i = 0; i < n; i += 16) {
        for (p = 0; p < 16u / MT_LANES; p++) {
            mt_vload(&v, x + i + p * MT_LANES);
            mt_vload(&u, y + i + p * MT_LANES);
            sum.part[p] += v.v * u.v;
        }
    }
    return mt_acc_sum(&sum);
}

#define OP_WIDE_MAX 4u /* columns of a matrix at most that are multiplied in float */

/* What has to be added to such a product: one number, and n columns times what they meet. */
typedef struct op_rest {
    float common, x[OP_WIDE_MAX];
    size_t n;
} op_rest;

WNPU_INLINE void op_raise(mt_f4 *best, const mt_f4u *v)
{
    mt_i4 above = *v > *best;
    *best = (mt_f4)((above & (mt_i4)*v) | (~above & (mt_i4)*best));
}

WNPU_INLINE float op_top(const mt_f4 *v)
{
    return mt_larger(mt_larger((*v)[0], (*v)[2]), mt_larger((*v)[1], (*v)[3]));
}

/* Largest of n values, in four independent chains; NaN does not count. -infinity for none. */
static float op_largest_base(const float *x, size_t n)
{
    mt_f4 a = (mt_f4){0} - INFINITY, b = a, c = a, d = a;
    float largest;
    size_t i;
    for (i = 0; i + 16 <= n; i += 16) {
        const mt_f4u *v = (const mt_f4u *)(const void *)(x + i);
        op_raise(&a, v);
        op_raise(&b, v + 1);
        op_raise(&c, v + 2);
        op_raise(&d, v + 3);
    }
    op_raise(&a, &b);
    op_raise(&c, &d);
    op_raise(&a, &c);
    largest = op_top(&a);
    for (; i < n; i++) {
        largest = mt_larger(largest, x[i]);
    }
    return largest;
}

#define OP_SCAN 256u /* values that are looked at together */

/* ---- rows of weights, when a model is opened ---- */

/* The bits of the largest magnitude among n values: without the sign, floats order as their bits
 * do, and whatever is not finite lies above all that is. */
static uint32_t op_size_base(const float *x, size_t n)
{
    mt_i4 best = {0};
    int32_t most = 0;
    size_t i, j;
    for (i = 0; i + 4 <= n; i += 4) {
        mt_i4 bits = (mt_i4)*(const mt_f4u *)(x + i) & 0x7fffffff, above = bits > best;
        best = (above & bits) | (~above & best);
    }
    for (j = 0; j < 4; j++) {
        most = best[j] > most ? best[j] : most;
    }
    for (; i < n; i++) {
        int32_t bits = (int32_t)(mt_bits(x[i]) & 0x7fffffffu);
        most = bits > most ? bits : most;
    }
    return (uint32_t)most;
}

/* Values in steps of scale, rounded half to even and added to sum, and what that leaves in steps of
 * scale / 254, if low is not NULL. A scale of few bits may give up to 190 steps. */
WNPU_INLINE void op_digits_vec(mt_iv *sum, int8_t *q, int8_t *low, const float *x, float scale)
{
    mt_vec t;
    mt_iv k, over;
    mt_vload(&t, x);
    t.v = t.v / scale;
    k = (mt_iv)(t.v + MT_ROUND) - 0x4b400000;
    over = k > 127;
    k = (over & 127) | (~over & k);
    over = k < -127;
    k = (over & -127) | (~over & k);
    mt_store_int8(q, &k);
    if (low != NULL) {
        t.v = (t.v - __builtin_convertvector(k, mt_fv)) * 254.0f;
        over = t.v > 127.0f;
        t.v = (mt_fv)((over & (mt_iv)((mt_fv){0} + 127.0f)) | (~over & (mt_iv)t.v));
        over = t.v < -127.0f;
        t.v = (mt_fv)((over & (mt_iv)((mt_fv){0} - 127.0f)) | (~over & (mt_iv)t.v));
        mt_vstore_int8(low, &t);
    }
    *sum += k;
}

/* A row of n values; returns the sum of q. */
static int32_t op_digits_base(int8_t *q, int8_t *low, const float *x, size_t n, float scale)
{
    mt_iv sum = {0};
    int32_t total = 0;
    size_t i;
    for (i = 0; i + MT_LANES <= n; i += MT_LANES) {
        op_digits_vec(&sum, q + i, low != NULL ? low + i : NULL, x + i, scale);
    }
    if (i < n) {
        float rest[MT_LANES] = {0.0f};
        int8_t digit[MT_LANES], lower[MT_LANES];
        memcpy(rest, x + i, (n - i) * sizeof *x);
        op_digits_vec(&sum, digit, low != NULL ? lower : NULL, rest, scale);
        memcpy(q + i, digit, n - i);
        if (low != NULL) {
            memcpy(low + i, lower, n - i);
        }
    }
    for (i = 0; i < MT_LANES; i++) {
        total += sum[i];
    }
    return total;
}

/* float16 to float32, exact, for infinities and NaN as well. Subnormals are made by subtracting
 * normal numbers: a host may have set the CPU to flush them. (AArch64 has another bit for float16,
 * which does not concern conversions.) */
WNPU_INLINE void op_f16_vec(mt_vec *out, const mt_iv *half)
{
#ifdef WNPU_ARM
    out->v = (mt_fv)vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32((uint32x4_t)*half)));
#else
    mt_iv sign = (*half & 0x8000) << 16, rest = *half & 0x7fff;
    mt_iv is_small = rest < 0x400, is_infinite = rest > 0x7bff; /* or NaN */
    mt_iv small = (mt_iv)((mt_fv)(rest + 0x3f000000) - 0.5f);
    mt_iv large = (rest << 13) + 0x38000000 + (is_infinite & 0x38000000);
    out->v = (mt_fv)(sign | (is_small & small) | (~is_small & large));
#endif
}

WNPU_INLINE float op_f16(const unsigned char *in)
{
    mt_iv half = (mt_iv){0} + (int32_t)((uint32_t)in[0] | (uint32_t)in[1] << 8);
    mt_vec out;
    op_f16_vec(&out, &half);
    return out.v[0];
}

static const uint32_t op_bit[32] = {
    1u, 1u << 1, 1u << 2, 1u << 3, 1u << 4, 1u << 5, 1u << 6, 1u << 7, 1u << 8, 1u << 9, 1u << 10,
    1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15, 1u << 16, 1u << 17, 1u << 18, 1u << 19,
    1u << 20, 1u << 21, 1u << 22, 1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28,
    1u << 29, 1u << 30, 1u << 31
};

/* What follows the float16 d in a block of 4 or 5 bits: float16 m if offset is 0, 32 high bits if
 * high, 16 bytes whose low nibbles are elements 0..15 and high nibbles 16..31. Values are
 * (q - offset) * d or q * d + m (dequantize_row_q4_0 and its like in ggml-quants.c). */
WNPU_INLINE void op_block45(const unsigned char *in, float *out, float d, int offset, int high)
{
    float m = 0.0f;
    uint32_t bits = 0, j;
    if (offset == 0) {
        m = op_f16(in);
        in += 2;
    }
    if (high) {
        bits = in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
        in += 4;
    }
    for (j = 0; j < 16; j += MT_LANES) {
        mt_iv byte, low, top;
        mt_load_int8(&byte, in + j);
        low = byte & 15;
        top = byte >> 4 & 15;
        if (high) {
            low |= (mt_iv)((bits & *(const mt_uvu *)(const void *)(op_bit + j)) != 0) & 16;
            top |= (mt_iv)((bits & *(const mt_uvu *)(const void *)(op_bit + 16 + j)) != 0) & 16;
        }
        *(mt_fvu *)(void *)(out + j) = __builtin_convertvector(low - offset, mt_fv) * d + m;
        *(mt_fvu *)(void *)(out + 16 + j) = __builtin_convertvector(top - offset, mt_fv) * d + m;
    }
}

#endif /* WNPU_PART */
#if defined(WNPU_PART) && WNPU_PART == OP_PART_BYTES
/* ---- part: operators with results of 8 and 16 bits, and searches ---- */

typedef float OP(f) __attribute__((vector_size(WNPU_WIDTH / 8)));
typedef int32_t OP(i) __attribute__((vector_size(WNPU_WIDTH / 8)));
typedef uint32_t OP(ui) __attribute__((vector_size(WNPU_WIDTH / 8)));
typedef int16_t OP(s) __attribute__((vector_size(WNPU_WIDTH / 8)));
typedef uint16_t OP(us) __attribute__((vector_size(WNPU_WIDTH / 8)));
typedef uint8_t OP(b) __attribute__((vector_size(WNPU_WIDTH / 8)));
/* The same types in memory, at any address. */
typedef float OP(f_at) __attribute__((vector_size(WNPU_WIDTH / 8), aligned(1), may_alias));
typedef int32_t OP(i_at) __attribute__((vector_size(WNPU_WIDTH / 8), aligned(1), may_alias));
typedef int16_t OP(s_at) __attribute__((vector_size(WNPU_WIDTH / 8), aligned(1), may_alias));
typedef uint8_t OP(b_at) __attribute__((vector_size(WNPU_WIDTH / 8), aligned(1), may_alias));

#define OP_S (2 * WNPU_LANES) /* values of 16 bits in a vector */
#define OP_B (4 * WNPU_LANES) /* bytes in a vector */

/* Primitives of the instruction sets, with a pseudo-code of each lane. packs() and bytes() belong
 * together: packs() may leave 16 bits in an order of its own (AVX2 and AVX-512 pack each quarter of
 * 128 bits by itself), and bytes() restores the order.
 *   max(a, b), min(a, b)    a > b ? a : b, a < b ? a : b; b if either is NaN
 *   top(a)                  largest lane, of which none is NaN
 *   max_s(a, b), top_s(a)   likewise of int16
 *   max_i(a, b)             likewise of int32; not with 128 bits
 *   round(a)                nearest int32, ties to even; INT32_MIN for NaN and what does not fit
 *   packs(a, b)             a's lanes, then b's, each limited to int16
 *   bytes(a, b)             a's lanes, then b's, as bytes; they are 0..255
 *   less(a, b)              a - b, limited to int16
 *   times(a, b)             a * b >> 16 of uint16; a is even
 *   shift(m, y)             m >> (y >> 8), 0 for 16 or more; y >= 256
 *   round7(m)               (m + 64) >> 7, m < 32768
 *   pairs(a, b)             a[2 i] * b[2 i] + a[2 i + 1] * b[2 i + 1]
 *   total(a)                sum of the lanes modulo 2^32 */
#if WNPU_WIDTH == 128 && defined(WNPU_X86)
WNPU_INLINE WNPU_TARGET OP(f) OP(max)(OP(f) a, OP(f) b)
{
    return (OP(f))_mm_max_ps((__m128)a, (__m128)b);
}

WNPU_INLINE WNPU_TARGET OP(f) OP(min)(OP(f) a, OP(f) b)
{
    return (OP(f))_mm_min_ps((__m128)a, (__m128)b);
}

WNPU_INLINE WNPU_TARGET OP(s) OP(max_s)(OP(s) a, OP(s) b)
{
    return (OP(s))_mm_max_epi16((__m128i)a, (__m128i)b);
}

WNPU_INLINE WNPU_TARGET int OP(top_s)(OP(s) v)
{
    const __m128i turn = _mm_set1_epi16(0x7fff); /* minpos orders unsigned numbers */
    __m128i least = _mm_minpos_epu16(_mm_xor_si128((__m128i)v, turn));
    return (int16_t)(_mm_extract_epi16(least, 0) ^ 0x7fff);
}

WNPU_INLINE WNPU_TARGET OP(i) OP(round)(OP(f) a) { return (OP(i))_mm_cvtps_epi32((__m128)a); }

WNPU_INLINE WNPU_TARGET OP(s) OP(packs)(OP(i) a, OP(i) b)
{
    return (OP(s))_mm_packs_epi32((__m128i)a, (__m128i)b);
}

WNPU_INLINE WNPU_TARGET OP(b) OP(bytes)(OP(us) a, OP(us) b)
{
    return (OP(b))_mm_packus_epi16((__m128i)a, (__m128i)b);
}

WNPU_INLINE WNPU_TARGET OP(s) OP(less)(OP(s) a, OP(s) b)
{
    return (OP(s))_mm_subs_epi16((__m128i)a, (__m128i)b);
}

WNPU_INLINE WNPU_TARGET OP(us) OP(times)(OP(us) a, OP(us) b)
{
    return (OP(us))_mm_mulhi_epu16((__m128i)a, (__m128i)b);
}

/* There is no shift by a count for each lane: m * 2^(16 - s) >> 16 with the powers from a table,
 * s = 1..16. Bytes of the index with their upper bit set give 0. */
WNPU_INLINE WNPU_TARGET OP(us) OP(shift)(OP(us) m, OP(s) y)
{
    const __m128i upper = _mm_setr_epi8(1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11, 13, 13, 15, 15);
    const __m128i table = _mm_setr_epi8(-128, 64, 32, 16, 8, 4, 2, 1, -128, 64, 32, 16, 8, 4, 2, 1);
    /* s - 9 in the lower byte; 0x77 + s in the upper, which has the power of s = 1..8 */
    const __m128i index = _mm_set1_epi16(0x77f7);
    __m128i most = _mm_min_epi16((__m128i)y, _mm_set1_epi16(16 * OP_OCTAVE));
    __m128i at = _mm_add_epi8(_mm_shuffle_epi8(most, upper), index);
    return (OP(us))_mm_mulhi_epu16((__m128i)m, _mm_shuffle_epi8(table, at));
}

WNPU_INLINE WNPU_TARGET OP(us) OP(round7)(OP(us) m)
{
    return (OP(us))_mm_mulhrs_epi16((__m128i)m, _mm_set1_epi16(256));
}

WNPU_INLINE WNPU_TARGET OP(i) OP(pairs)(OP(s) a, OP(s) b)
{
    return (OP(i))_mm_madd_epi16((__m128i)a, (__m128i)b);
}
#elif WNPU_WIDTH == 128
WNPU_INLINE OP(f) OP(max)(OP(f) a, OP(f) b)
{
    OP(i) above = a > b;
    return (OP(f))((above & (OP(i))a) | (~above & (OP(i))b));
}

WNPU_INLINE OP(f) OP(min)(OP(f) a, OP(f) b)
{
    OP(i) below = a < b;
    return (OP(f))((below & (OP(i))a) | (~below & (OP(i))b));
}

WNPU_INLINE OP(s) OP(max_s)(OP(s) a, OP(s) b)
{
    return (OP(s))vmaxq_s16((int16x8_t)a, (int16x8_t)b);
}

WNPU_INLINE int OP(top_s)(OP(s) v) { return vmaxvq_s16((int16x8_t)v); }

WNPU_INLINE OP(i) OP(round)(OP(f) a)
{
    OP(i) fits = a < 2147483648.0f;
    return (fits & (OP(i))vcvtnq_s32_f32((float32x4_t)a)) | (~fits & INT32_MIN);
}

WNPU_INLINE OP(s) OP(packs)(OP(i) a, OP(i) b)
{
    return (OP(s))vqmovn_high_s32(vqmovn_s32((int32x4_t)a), (int32x4_t)b);
}

WNPU_INLINE OP(b) OP(bytes)(OP(us) a, OP(us) b)
{
    return (OP(b))vmovn_high_u16(vmovn_u16((uint16x8_t)a), (uint16x8_t)b);
}

WNPU_INLINE OP(s) OP(less)(OP(s) a, OP(s) b)
{
    return (OP(s))vqsubq_s16((int16x8_t)a, (int16x8_t)b);
}

/* As a / 2 + (a / 2 * (b - 32768) >> 15), because NEON's upper halves of products are those of
 * signed numbers, doubled. */
WNPU_INLINE OP(us) OP(times)(OP(us) a, OP(us) b)
{
    int16x8_t half = (int16x8_t)(a >> 1), turned = (int16x8_t)(b ^ 0x8000u);
    return (OP(us))vaddq_s16(half, vqdmulhq_s16(half, turned));
}

WNPU_INLINE OP(us) OP(shift)(OP(us) m, OP(s) y)
{
    return (OP(us))vshlq_u16((uint16x8_t)m, vnegq_s16((int16x8_t)(y >> 8)));
}

WNPU_INLINE OP(us) OP(round7)(OP(us) m) { return (m + 64) >> 7; }

WNPU_INLINE OP(i) OP(pairs)(OP(s) a, OP(s) b)
{
    int16x8_t x = (int16x8_t)a, y = (int16x8_t)b;
    return (OP(i))vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
}
#elif WNPU_WIDTH == 256
WNPU_INLINE WNPU_TARGET OP(f) OP(max)(OP(f) a, OP(f) b)
{
    return (OP(f))_mm256_max_ps((__m256)a, (__m256)b);
}

WNPU_INLINE WNPU_TARGET OP(f) OP(min)(OP(f) a, OP(f) b)
{
    return (OP(f))_mm256_min_ps((__m256)a, (__m256)b);
}

WNPU_INLINE WNPU_TARGET float OP(top)(OP(f) a)
{
    __m128 best = _mm_max_ps(_mm256_castps256_ps128((__m256)a),
                             _mm256_extractf128_ps((__m256)a, 1));
    best = _mm_max_ps(best, _mm_movehl_ps(best, best));
    best = _mm_max_ss(best, _mm_movehdup_ps(best));
    return _mm_cvtss_f32(best);
}

WNPU_INLINE WNPU_TARGET OP(s) OP(max_s)(OP(s) a, OP(s) b)
{
    return (OP(s))_mm256_max_epi16((__m256i)a, (__m256i)b);
}

WNPU_INLINE WNPU_TARGET int OP(top_s)(OP(s) v)
{
    const __m128i turn = _mm_set1_epi16(0x7fff); /* minpos orders unsigned numbers */
    __m128i a = _mm_max_epi16(_mm256_castsi256_si128((__m256i)v),
                              _mm256_extracti128_si256((__m256i)v, 1));
    return (int16_t)(_mm_extract_epi16(_mm_minpos_epu16(_mm_xor_si128(a, turn)), 0) ^ 0x7fff);
}

WNPU_INLINE WNPU_TARGET OP(i) OP(max_i)(OP(i) a, OP(i) b)
{
    return (OP(i))_mm256_max_epi32((__m256i)a, (__m256i)b);
}

WNPU_INLINE WNPU_TARGET OP(i) OP(round)(OP(f) a) { return (OP(i))_mm256_cvtps_epi32((__m256)a); }

WNPU_INLINE WNPU_TARGET OP(s) OP(packs)(OP(i) a, OP(i) b)
{
    return (OP(s))_mm256_packs_epi32((__m256i)a, (__m256i)b);
}

WNPU_INLINE WNPU_TARGET OP(b) OP(bytes)(OP(us) a, OP(us) b)
{
    return (OP(b))_mm256_permutevar8x32_epi32(_mm256_packus_epi16((__m256i)a, (__m256i)b),
                                              _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

WNPU_INLINE WNPU_TARGET OP(s) OP(less)(OP(s) a, OP(s) b)
{
    return (OP(s))_mm256_subs_epi16((__m256i)a, (__m256i)b);
}

WNPU_INLINE WNPU_TARGET OP(us) OP(times)(OP(us) a, OP(us) b)
{
    return (OP(us))_mm256_mulhi_epu16((__m256i)a, (__m256i)b);
}

/* As with SSE4.1. */
WNPU_INLINE WNPU_TARGET OP(us) OP(shift)(OP(us) m, OP(s) y)
{
    const __m256i upper = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11, 13, 13, 15, 15));
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-128, 64, 32, 16, 8, 4, 2, 1, -128, 64, 32, 16, 8, 4, 2, 1));
    const __m256i index = _mm256_set1_epi16(0x77f7);
    __m256i most = _mm256_min_epi16((__m256i)y, _mm256_set1_epi16(16 * OP_OCTAVE));
    __m256i at = _mm256_add_epi8(_mm256_shuffle_epi8(most, upper), index);
    return (OP(us))_mm256_mulhi_epu16((__m256i)m, _mm256_shuffle_epi8(table, at));
}

WNPU_INLINE WNPU_TARGET OP(us) OP(round7)(OP(us) m)
{
    return (OP(us))_mm256_mulhrs_epi16((__m256i)m, _mm256_set1_epi16(256));
}

WNPU_INLINE WNPU_TARGET OP(i) OP(pairs)(OP(s) a, OP(s) b)
{
    return (OP(i))_mm256_madd_epi16((__m256i)a, (__m256i)b);
}
#else
WNPU_INLINE WNPU_TARGET OP(f) OP(max)(OP(f) a, OP(f) b)
{
    return (OP(f))_mm512_max_ps((__m512)a, (__m512)b);
}

WNPU_INLINE WNPU_TARGET OP(f) OP(min)(OP(f) a, OP(f) b)
{
    return (OP(f))_mm512_min_ps((__m512)a, (__m512)b);
}

WNPU_INLINE WNPU_TARGET float OP(top)(OP(f) a) { return _mm512_reduce_max_ps((__m512)a); }

WNPU_INLINE WNPU_TARGET OP(s) OP(max_s)(OP(s) a, OP(s) b)
{
    return (OP(s))_mm512_max_epi16((__m512i)a, (__m512i)b);
}

WNPU_INLINE WNPU_TARGET int OP(top_s)(OP(s) v)
{
    const __m128i turn = _mm_set1_epi16(0x7fff); /* minpos orders unsigned numbers */
    __m128i part[4];
    memcpy(part, &v, sizeof part);
    part[0] = _mm_max_epi16(_mm_max_epi16(part[0], part[1]), _mm_max_epi16(part[2], part[3]));
    part[0] = _mm_minpos_epu16(_mm_xor_si128(part[0], turn));
    return (int16_t)(_mm_extract_epi16(part[0], 0) ^ 0x7fff);
}

WNPU_INLINE WNPU_TARGET OP(i) OP(max_i)(OP(i) a, OP(i) b)
{
    return (OP(i))_mm512_max_epi32((__m512i)a, (__m512i)b);
}

WNPU_INLINE WNPU_TARGET OP(i) OP(round)(OP(f) a) { return (OP(i))_mm512_cvtps_epi32((__m512)a); }

WNPU_INLINE WNPU_TARGET OP(s) OP(packs)(OP(i) a, OP(i) b)
{
    return (OP(s))_mm512_packs_epi32((__m512i)a, (__m512i)b);
}

WNPU_INLINE WNPU_TARGET OP(b) OP(bytes)(OP(us) a, OP(us) b)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return (OP(b))_mm512_permutexvar_epi32(order, _mm512_packus_epi16((__m512i)a, (__m512i)b));
}

WNPU_INLINE WNPU_TARGET OP(s) OP(less)(OP(s) a, OP(s) b)
{
    return (OP(s))_mm512_subs_epi16((__m512i)a, (__m512i)b);
}

WNPU_INLINE WNPU_TARGET OP(us) OP(times)(OP(us) a, OP(us) b)
{
    return (OP(us))_mm512_mulhi_epu16((__m512i)a, (__m512i)b);
}

WNPU_INLINE WNPU_TARGET OP(us) OP(shift)(OP(us) m, OP(s) y)
{
    return (OP(us))_mm512_srlv_epi16((__m512i)m, _mm512_srli_epi16((__m512i)y, 8));
}

WNPU_INLINE WNPU_TARGET OP(us) OP(round7)(OP(us) m)
{
    return (OP(us))_mm512_mulhrs_epi16((__m512i)m, _mm512_set1_epi16(256));
}

WNPU_INLINE WNPU_TARGET OP(i) OP(pairs)(OP(s) a, OP(s) b)
{
    return (OP(i))_mm512_madd_epi16((__m512i)a, (__m512i)b);
}

WNPU_INLINE WNPU_TARGET uint32_t OP(total)(OP(ui) a)
{
    return (uint32_t)_mm512_reduce_add_epi32((__m512i)a);
}
#endif

#if WNPU_WIDTH == 128
WNPU_INLINE WNPU_TARGET float OP(top)(OP(f) a)
{
    return mt_larger(mt_larger(a[0], a[2]), mt_larger(a[1], a[3]));
}
#endif

#if WNPU_WIDTH != 512
WNPU_INLINE WNPU_TARGET uint32_t OP(total)(OP(ui) a)
{
    uint32_t sum = 0;
    unsigned i;
    MT_UNROLL
    for (i = 0; i < WNPU_LANES; i++) {
        sum += a[i];
    }
    return sum;
}
#endif

/* Primitives that are the same everywhere: vectors at any address, and copies of one value. */
WNPU_INLINE WNPU_TARGET OP(f) OP(load)(const float *p)
{
    return *(const OP(f_at) *)(const void *)p;
}

WNPU_INLINE WNPU_TARGET OP(i) OP(load_i)(const int32_t *p)
{
    return *(const OP(i_at) *)(const void *)p;
}

WNPU_INLINE WNPU_TARGET OP(s) OP(load_s)(const int16_t *p)
{
    return *(const OP(s_at) *)(const void *)p;
}

WNPU_INLINE WNPU_TARGET void OP(store_s)(int16_t *p, OP(s) a) { *(OP(s_at) *)(void *)p = a; }
WNPU_INLINE WNPU_TARGET OP(f) OP(all)(float x) { return (OP(f)){0} + x; }
WNPU_INLINE WNPU_TARGET OP(s) OP(all_s)(int x) { return (OP(s)){0} + (int16_t)x; }

/* |x| of WNPU_LANES values. */
WNPU_INLINE WNPU_TARGET OP(f) OP(size_of)(const float *x)
{
    return (OP(f))((OP(i))OP(load)(x) & 0x7fffffff);
}

/* ---- quantisation ---- */

#define OP_CHAINS 4u /* independent dependency chains that hide the latency of a reduction */

/* Largest |x|; NaN does not count. n is a multiple of 16. */
WNPU_INLINE WNPU_TARGET float OP(peak)(const float *x, size_t n)
{
    OP(f) best[OP_CHAINS] = {{0}};
    size_t i, k;
    for (i = 0; i + OP_CHAINS * WNPU_LANES <= n; i += OP_CHAINS * WNPU_LANES) {
        MT_UNROLL
        for (k = 0; k < OP_CHAINS; k++) {
            best[k] = OP(max)(OP(size_of)(x + i + k * WNPU_LANES), best[k]);
        }
    }
    for (; i < n; i += WNPU_LANES) {
        best[0] = OP(max)(OP(size_of)(x + i), best[0]);
    }
    return OP(top)(OP(max)(OP(max)(best[0], best[1]), OP(max)(best[2], best[3])));
}

/* Stores K rounded vectors as bytes: 4, or as many as 16 values take. What was NaN becomes 0. */
WNPU_INLINE WNPU_TARGET void OP(put)(int8_t *q, const OP(i) *v, unsigned K)
{
    OP(us) a = (OP(us))OP(packs)(v[0], v[1]), b = (OP(us))OP(packs)(v[2], v[3]);
    OP(b) bytes = OP(bytes)(a & 255, b & 255);
    if (K == 4) {
        *(OP(b_at) *)(void *)q = bytes;
    } else {
        memcpy(q, &bytes, 16);
    }
}

#define OP_16 (16u / WNPU_LANES) /* vectors that 16 floats take */

WNPU_INLINE WNPU_TARGET void OP(quantise_some)(int8_t *q, const float *x, float inverse, unsigned K)
{
    OP(i) v[4] = {{0}};
    unsigned k;
    MT_UNROLL
    for (k = 0; k < K; k++) {
        v[k] = OP(round)(OP(load)(x + k * WNPU_LANES) * inverse);
    }
    OP(put)(q, v, K);
}

/* See op_quantise_base(). */
WNPU_TARGET static void OP(quantise)(int8_t *q, const float *x, size_t ldx, size_t rows, size_t n,
                                     float *scale)
{
    size_t r, i;
    for (r = 0; r < rows; r++, q += n, x += ldx) {
        const float peak = OP(peak)(x, n), inverse = 127.0f / peak;
        scale[r] = op_usable(peak) ? peak / 127.0f : 0.0f;
        if (!op_usable(peak)) {
            memset(q, 0, n);
            continue;
        }
        for (i = 0; i + OP_B <= n; i += OP_B) {
            OP(quantise_some)(q + i, x + i, inverse, 4);
        }
        for (; OP_16 < 4 && i < n; i += 16) {
            OP(quantise_some)(q + i, x + i, inverse, OP_16);
        }
    }
}

WNPU_INLINE WNPU_TARGET void OP(fine_some)(int8_t *q, int8_t *low, const float *x, float inverse,
                                           unsigned K)
{
    OP(i) high[4] = {{0}}, rest[4] = {{0}};
    unsigned k;
    MT_UNROLL
    for (k = 0; k < K; k++) {
        OP(f) v = OP(load)(x + k * WNPU_LANES) * inverse;
        high[k] = OP(round)(v);
        rest[k] = OP(round)((v - __builtin_convertvector(high[k], OP(f))) * (float)GM_DIGIT);
    }
    OP(put)(q, high, K);
    OP(put)(low, rest, K);
}

/* See op_fine_base(). */
WNPU_TARGET static void OP(fine)(int8_t *high, int8_t *low, const float *x, size_t n, float inverse)
{
    size_t i;
    for (i = 0; i + OP_B <= n; i += OP_B) {
        OP(fine_some)(high + i, low + i, x + i, inverse, 4);
    }
    for (; OP_16 < 4 && i < n; i += 16) {
        OP(fine_some)(high + i, low + i, x + i, inverse, OP_16);
    }
}

WNPU_TARGET static float OP(quantise_fine)(int8_t *high, int8_t *low, const float *x, size_t n)
{
    return op_quantise_fine_body(OP(fine), high, low, x, n, op_square_body(x, n, 0.0f));
}

WNPU_INLINE WNPU_TARGET OP(f) OP(limit)(OP(f) a, float most)
{
    return OP(max)(OP(min)(a, OP(all)(most)), OP(all)(-most));
}

/* See op_digits_vec(). */
WNPU_INLINE WNPU_TARGET void OP(digits_some)(OP(i) *sum, int8_t *q, int8_t *low, const float *x,
                                             float scale, unsigned K)
{
    OP(i) high[4] = {{0}}, rest[4] = {{0}};
    unsigned k;
    MT_UNROLL
    for (k = 0; k < K; k++) {
        OP(f) t = OP(load)(x + k * WNPU_LANES) / scale;
        high[k] = OP(round)(OP(limit)(t, 127.0f));
        *sum += high[k];
        t = (t - __builtin_convertvector(high[k], OP(f))) * 254.0f;
        rest[k] = OP(round)(OP(limit)(t, 127.0f));
    }
    OP(put)(q, high, K);
    if (low != NULL) {
        OP(put)(low, rest, K);
    }
}

WNPU_TARGET static int32_t OP(digits)(int8_t *q, int8_t *low, const float *x, size_t n, float scale)
{
    OP(i) sum = {0};
    size_t i;
    for (i = 0; i + OP_B <= n; i += OP_B) {
        OP(digits_some)(&sum, q + i, low != NULL ? low + i : NULL, x + i, scale, 4);
    }
    for (; OP_16 < 4 && i + 16 <= n; i += 16) {
        OP(digits_some)(&sum, q + i, low != NULL ? low + i : NULL, x + i, scale, OP_16);
    }
    return (int32_t)OP(total)((OP(ui))sum) +
           op_digits_base(q + i, low != NULL ? low + i : NULL, x + i, n - i, scale);
}

/* ---- softmax ---- */

/* Exponents of 2 * WNPU_LANES keys from their sums, in the order of packs(). */
WNPU_INLINE WNPU_TARGET OP(i) OP(exponent)(OP(i) sum, const float *key, const float *value_log2,
                                           OP(f) query)
{
    OP(f) x = __builtin_convertvector(sum, OP(f));
    return OP(round)(x * (OP(load)(key) * query) + OP(load)(value_log2));
}

WNPU_INLINE WNPU_TARGET OP(s) OP(exponents_of)(OP(i) sum0, OP(i) sum1, const float *key,
                                               const float *value_log2, OP(f) query)
{
    OP(i) a = OP(exponent)(sum0, key, value_log2, query);
    return OP(packs)(a, OP(exponent)(sum1, key + WNPU_LANES, value_log2 + WNPU_LANES, query));
}

/* The exponents of n keys of at most WNPU_LANES; lanes without one get the least there is. */
WNPU_INLINE WNPU_TARGET OP(i) OP(exponent_rest)(const int32_t *acc, const float *key,
                                                const float *value_log2, OP(f) query, size_t n)
{
    static const int32_t lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    OP(i) v = OP(exponent)(OP(load_i)(acc), key, value_log2, query);
    OP(i) there = OP(load_i)(lane) < (int32_t)n;
    return (there & v) | (~there & -32768);
}

/* An op_narrow. */
WNPU_TARGET static int OP(narrow)(int16_t *u, const int32_t *acc, size_t n, float query_scale,
                                  const float *key, const float *value_log2)
{
    const OP(f) query = OP(all)(query_scale);
    OP(s) best = OP(all_s)(INT16_MIN), v;
    size_t i;
    for (i = 0; i + OP_S <= n; i += OP_S) {
        v = OP(exponents_of)(OP(load_i)(acc + i), OP(load_i)(acc + i + WNPU_LANES), key + i,
                             value_log2 + i, query);
        best = OP(max_s)(best, v);
        OP(store_s)(u + i, v);
    }
    for (; i < n || i % 16 != 0; i += OP_S) {
        OP(i) a = (OP(i)){0} - 32768, b = a;
        size_t j = i + WNPU_LANES;
        if (i < n) {
            a = OP(exponent_rest)(acc + i, key + i, value_log2 + i, query, n - i);
        }
        if (j < n) {
            b = OP(exponent_rest)(acc + j, key + j, value_log2 + j, query, n - j);
        }
        v = OP(packs)(a, b);
        best = OP(max_s)(best, v);
        OP(store_s)(u + i, v);
    }
    return OP(top_s)(best);
}

WNPU_TARGET static void OP(exponents)(op_online *row, int16_t *u, const int32_t *acc, size_t lda,
                                      size_t rows, size_t n, const float *query_scale,
                                      const op_keys *keys)
{
    op_exponents_body(OP(narrow), row, u, acc, lda, rows, n, query_scale, keys);
}

/* op_inverse_base(), in the order of packs(). */
WNPU_TARGET static void OP(inverse)(op_inverse *inverse, const float *value_inverse, size_t n)
{
    OP(f) least = OP(all)(value_inverse[0]), most = least;
    float low, high;
    size_t i;
    for (i = 0; i + WNPU_LANES <= n; i += WNPU_LANES) {
        OP(f) v = OP(load)(value_inverse + i);
        least = OP(min)(v, least);
        most = OP(max)(v, most);
    }
    low = -OP(top)(-least);
    high = OP(top)(most);
    op_widen(&low, &high, value_inverse + i, n - i);
    op_inverse_start(inverse, low, high);
    for (i = 0; i < n || i % 16 != 0; i += OP_S) {
        OP(f) a = OP(min)(OP(load)(value_inverse + i), OP(all)(inverse->limit)), b = a;
        if (OP_S <= 16 || i + 16 < n) { /* there are as many as fill 16 */
            b = OP(min)(OP(load)(value_inverse + i + WNPU_LANES), OP(all)(inverse->limit));
        }
        OP(store_s)(inverse->part + i, OP(packs)(OP(round)(a * inverse->scale),
                                                 OP(round)(b * inverse->scale)));
    }
}

/* op_weights16() for a vector of exponents, as 16 bits; adds to the sum. */
WNPU_INLINE WNPU_TARGET OP(us) OP(weights_of)(const int16_t *u, OP(s) from, const int16_t *inverse,
                                              OP(ui) *sum)
{
    OP(s) y = OP(less)(from, OP(load_s)(u));
    OP(us) f = (OP(us))y << 8, m = (OP(us)){0} + OP_POWER_2;
    m = (OP(us)){0} + OP_POWER_1 - OP(times)(f, m);
    m = (OP(us)){0} + OP_POWER_0 - OP(times)(f, m);
    m = OP(shift)(m, y);
    *sum += (OP(ui))OP(pairs)((OP(s))m, OP(load_s)(inverse)) >> 10;
    return OP(round7)(m);
}

/* An op_weigh. */
WNPU_TARGET static uint32_t OP(weigh)(uint8_t *p, const int16_t *u, size_t n, int32_t most,
                                      const int16_t *inverse)
{
    const OP(s) from = OP(all_s)(most + OP_OCTAVE);
    OP(ui) sum = {0};
    size_t i;
    for (i = 0; i + OP_B <= ((n + 15) & ~(size_t)15); i += OP_B) {
        OP(us) a = OP(weights_of)(u + i, from, inverse + i, &sum);
        OP(us) b = OP(weights_of)(u + i + OP_S, from, inverse + i + OP_S, &sum);
        *(OP(b_at) *)(void *)(p + i) = OP(bytes)(a, b);
    }
    for (; i < n; i += OP_S) {
        OP(us) a = OP(weights_of)(u + i, from, inverse + i, &sum);
        OP(b) bytes = OP(bytes)(a, a);
        memcpy(p + i, &bytes, OP_S <= 16 || i + 16 < n ? OP_S : 16);
    }
    return OP(total)(sum);
}

WNPU_TARGET static void OP(weights)(op_online *row, uint8_t *p, size_t ldp, const int16_t *u,
                                    size_t rows, size_t n, const op_keys *keys)
{
    op_weights_body(OP(inverse), OP(weigh), row, p, ldp, u, rows, n, keys);
}

/* ---- searches: with 128 bits, the compiler's vectors do as well ---- */

#if WNPU_WIDTH != 128

/* See op_largest_base(). */
WNPU_TARGET static float OP(largest)(const float *x, size_t n)
{
    OP(f) best[OP_CHAINS];
    float largest;
    size_t i, k;
    MT_UNROLL
    for (k = 0; k < OP_CHAINS; k++) {
        best[k] = OP(all)(-INFINITY);
    }
    for (i = 0; i + OP_CHAINS * WNPU_LANES <= n; i += OP_CHAINS * WNPU_LANES) {
        MT_UNROLL
        for (k = 0; k < OP_CHAINS; k++) {
            best[k] = OP(max)(OP(load)(x + i + k * WNPU_LANES), best[k]);
        }
    }
    for (; i + WNPU_LANES <= n; i += WNPU_LANES) {
        best[0] = OP(max)(OP(load)(x + i), best[0]);
    }
    largest = OP(top)(OP(max)(OP(max)(best[0], best[1]), OP(max)(best[2], best[3])));
    for (; i < n; i++) {
        largest = mt_larger(largest, x[i]);
    }
    return largest;
}

/* See op_size_base(). */
WNPU_TARGET static uint32_t OP(size)(const float *x, size_t n)
{
    OP(i) best[OP_CHAINS] = {{0}};
    uint32_t most;
    size_t i, k;
    for (i = 0; i + OP_CHAINS * WNPU_LANES <= n; i += OP_CHAINS * WNPU_LANES) {
        MT_UNROLL
        for (k = 0; k < OP_CHAINS; k++) {
            best[k] = OP(max_i)((OP(i))OP(size_of)(x + i + k * WNPU_LANES), best[k]);
        }
    }
    best[0] = OP(max_i)(OP(max_i)(best[0], best[1]), OP(max_i)(best[2], best[3]));
    most = op_size_base(x + i, n - i);
    for (k = 0; k < WNPU_LANES; k++) {
        most = (uint32_t)best[0][k] > most ? (uint32_t)best[0][k] : most;
    }
    return most;
}
#endif

#undef OP_S
#undef OP_B
#undef OP_16
#undef OP_CHAINS
#endif
#ifndef WNPU_PART

#define WNPU_PART OP_PART_BYTES
#if defined(WNPU_X86) || defined(WNPU_ARM)
#define WNPU_WIDTH 128
#include WNPU_SELF
#endif
#ifdef WNPU_X86
#define WNPU_WIDTH 256
#include WNPU_SELF
#define WNPU_WIDTH 512
#include WNPU_SELF
#endif
#undef WNPU_PART

#endif /* WNPU_PART */
#if defined(WNPU_PART) && WNPU_PART == OP_PART_FLOATS
/* ---- part: operators of floats ---- */

/* short_form: the result goes to int8, or belongs to the INT8 path at least. */
WNPU_INLINE WNPU_TARGET void OP(finish)(float *out, MT(vec) *v, op_finish finish, int short_form)
{
    MT(vec) old;
    if (finish == OP_GELU && short_form) {
        MT(vgelu_short)(v);
    } else if (finish == OP_GELU) {
        MT(vgelu)(v);
    } else if (finish == OP_ADD) {
        MT(vload)(&old, out);
        v->v = old.v + v->v;
    }
    MT(vstore)(out, v);
}

/* Rows of x = acc * (row_scale[r] * scale[j]) + bias[j]; bias may be NULL. */
WNPU_INLINE WNPU_TARGET void OP(dequantise_as)(float *out, size_t ldo, const int32_t *acc,
                                               size_t lda, size_t rows, size_t n,
                                               const float *row_scale, const float *scale,
                                               const float *bias, op_finish finish)
{
    MT(vec) v, s, b;
    size_t r, i;
    MT(vset)(&b, 0.0f);
    for (r = 0; r < rows; r++, out += ldo) {
        for (i = 0; i < n; i += WNPU_LANES) {
            MT(vload_int)(&v, acc + r * lda + i);
            MT(vload)(&s, scale + i);
            if (bias != NULL) {
                MT(vload)(&b, bias + i);
            }
            v.v = v.v * (s.v * row_scale[r]) + b.v;
            if (i % 16 == 0) {
                op_expect_next(out + i);
            }
            OP(finish)(out + i, &v, finish, 1);
        }
    }
}

WNPU_TARGET static void OP(dequantise)(float *out, size_t ldo, const int32_t *acc, size_t lda,
                                       size_t rows, size_t n, const float *row_scale,
                                       const float *scale, const float *bias, op_finish finish)
{
    if (finish == OP_GELU) {
        OP(dequantise_as)(out, ldo, acc, lda, rows, n, row_scale, scale, bias, OP_GELU);
    } else if (finish == OP_ADD) {
        OP(dequantise_as)(out, ldo, acc, lda, rows, n, row_scale, scale, bias, OP_ADD);
    } else {
        OP(dequantise_as)(out, ldo, acc, lda, rows, n, row_scale, scale, bias, OP_STORE);
    }
}

/* out = out * keep + acc * add for rows of n columns; the last block's is divided by the sum. */
WNPU_TARGET static void OP(blend)(float *out, size_t ldo, const int32_t *acc, size_t lda,
                                  size_t rows, size_t n, const op_online *row, int last)
{
    size_t r, i;
    MT(vec) v, old;
    for (r = 0; r < rows; r++) {
        const float unit = last ? 1.0f / row[r].sum : 1.0f;
        for (i = 0; i < n; i += WNPU_LANES) {
            MT(vload_int)(&v, acc + r * lda + i);
            MT(vload)(&old, out + r * ldo + i);
            v.v = (old.v * row[r].keep + v.v * row[r].add) * unit;
            MT(vstore)(out + r * ldo + i, &v);
        }
    }
}

/* sum of exp(x - maximum) over any n; x stays as it is. */
WNPU_TARGET static float OP(sum_exp)(const float *x, size_t n, float maximum)
{
    MT(acc) sum;
    MT(vec) v;
    size_t i;
    unsigned p, j;
    memset(&sum, 0, sizeof sum);
    for (i = 0; i + 16 <= n; i += 16) {
        MT_UNROLL
        for (p = 0; p < MT_PARTS; p++) {
            MT(vload)(&v, x + i + p * WNPU_LANES);
            v.v -= maximum;
            MT(vexp)(&v);
            sum.part[p] += v.v;
        }
    }
    for (j = 0; i + j < n; j++) {
        sum.part[j / WNPU_LANES][j % WNPU_LANES] += mt_exp1(x[i + j] - maximum);
    }
    return MT(acc_sum)(&sum);
}

/* sum of x[i] w[i]. */
WNPU_TARGET static float OP(dot_int8)(const float *x, const int8_t *w, size_t n)
{
    MT(acc) sum;
    MT(vec) v, u;
    size_t i;
    unsigned p;
    memset(&sum, 0, sizeof sum);
    for (i = 0; i < n; i += 16) {
        MT_UNROLL
        for (p = 0; p < MT_PARTS; p++) {
            MT(vload)(&v, x + i + p * WNPU_LANES);
            MT(vload_int8)(&u, w + i + p * WNPU_LANES);
            sum.part[p] += v.v * u.v;
        }
    }
    return MT(acc_sum)(&sum);
}

/* One row of op_kernels.complete() with K columns apart. */
WNPU_INLINE WNPU_TARGET void OP(complete_row)(float *out, const int32_t *acc, size_t n,
                                              float row_scale, const float *scale,
                                              const op_rest *rest, const float *columns, size_t ldc,
                                              size_t K)
{
    size_t i, k;
    MT(vec) v, u;
    for (i = 0; i < n; i += WNPU_LANES) {
        MT(vload_int)(&v, acc + i);
        MT(vload)(&u, scale + i);
        v.v = v.v * (u.v * row_scale) + rest->common;
        for (k = 0; k < K; k++) {
            MT(vload)(&u, columns + k * ldc + i);
            v.v += u.v * rest->x[k];
        }
        if (i % 16 == 0) {
            op_expect_next(out + i);
        }
        MT(vstore)(out + i, &v);
    }
}

/* Rows of out[i] = acc[i] * (row_scale * scale[i]) + common + x[0] columns[i] +
 * x[1] columns[ldc + i]..., in this order; acc is [rows, n]. A model has OP_WIDE_MAX columns. */
WNPU_TARGET static void OP(complete)(float *out, size_t ldo, const int32_t *acc, size_t rows,
                                     size_t n, const float *row_scale, const float *scale,
                                     const op_rest *rest, const float *columns, size_t ldc)
{
    size_t r;
    for (r = 0; r < rows; r++, out += ldo, acc += n, rest++) {
        if (rest->n == OP_WIDE_MAX) {
            OP(complete_row)(out, acc, n, row_scale[r], scale, rest, columns, ldc, OP_WIDE_MAX);
        } else {
            OP(complete_row)(out, acc, n, row_scale[r], scale, rest, columns, ldc, rest->n);
        }
    }
}

/* Index of the largest of any n >= 1 values, the first of equals; 0 if none is a number. */
WNPU_TARGET static size_t OP(argmax)(const float *x, size_t n)
{
    float best = -INFINITY;
    size_t at = 0, i;
    for (i = 0; i < n; i += OP_SCAN) {
        float largest = OP(largest)(x + i, n - i < OP_SCAN ? n - i : OP_SCAN);
        if (largest > best) {
            best = largest;
            at = i;
        }
    }
    for (i = at; i < n; i++) {
        if (x[i] == best) {
            return i;
        }
    }
    return 0;
}

#if WNPU_WIDTH == 512
WNPU_TARGET static void OP(from_f16)(float *out, const unsigned char *in, size_t n)
{
    size_t i;
    for (i = 0; i + 16 <= n; i += 16) {
        __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)(in + 2 * i));
        _mm512_storeu_ps(out + i, _mm512_cvtph_ps(half));
    }
    op_from_f16_256(out + i, in + 2 * i, n - i);
}

/* Like op_above_256(), in vectors as long as a whole one has room. */
WNPU_TARGET static size_t OP(above)(uint32_t *index, size_t capacity, const float *x, size_t first,
                                    size_t end, float least)
{
    const __m512 bound = _mm512_set1_ps(least);
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i at = _mm512_add_epi32(lane, _mm512_set1_epi32((int)first));
    size_t count = 0;
    for (; first + 16 <= end && count + 16 <= capacity; first += 16) {
        const __mmask16 is = _mm512_cmp_ps_mask(_mm512_loadu_ps(x + first), bound, _CMP_GE_OQ);
        _mm512_storeu_si512(index + count, _mm512_maskz_compress_epi32(is, at));
        count += (size_t)__builtin_popcount(is);
        at = _mm512_add_epi32(at, _mm512_set1_epi32(16));
    }
    return count + op_above_256(index + count, capacity - count, x, first, end, least);
}

#else /* what costs little is the code of AVX2 there */
WNPU_TARGET static void OP(from_f16)(float *out, const unsigned char *in, size_t n)
{
    size_t i;
    for (i = 0; i + WNPU_LANES <= n; i += WNPU_LANES) {
        mt_iv half;
        mt_vec v;
        mt_load_uint16(&half, in + 2 * i);
        op_f16_vec(&v, &half);
        mt_vstore(out + i, &v);
    }
    for (; i < n; i++) {
        out[i] = op_f16(in + 2 * i);
    }
}

/* Indices from first to end - 1 of the values that are at least `least`, in rising order. Returns
 * how many there are, or capacity + 1 if they are more than that. There is no branch per value:
 * where one is large, its neighbours often are. */
WNPU_TARGET static size_t OP(above)(uint32_t *index, size_t capacity, const float *x, size_t first,
                                    size_t end, float least)
{
    size_t count = 0, j, k;
    while (first < end && count <= capacity) {
        size_t next = end - first < OP_SCAN / 4 ? end : first + OP_SCAN / 4, found = 0;
        uint32_t here[OP_SCAN / 4];
        if (OP(largest)(x + first, next - first) >= least) {
            for (j = first; j < next; j++) {
                here[found] = (uint32_t)j;
                found += x[j] >= least;
            }
        }
        for (k = 0; k < found && count + k < capacity; k++) {
            index[count + k] = here[k];
        }
        count += found;
        first = next;
    }
    return count <= capacity ? count : capacity + 1;
}

/* y = (x - mean) / sqrt(variance + 1e-5) * weight + bias, over n values (PyTorch's LayerNorm). */
WNPU_TARGET static void OP(norm)(float *y, const float *x, const float *weight, const float *bias,
                                 size_t n)
{
    mt_acc sum;
    mt_vec v, w, b;
    float mean, scale;
    size_t i;
    unsigned p;
    memset(&sum, 0, sizeof sum);
    for (i = 0; i < n; i += 16) {
        MT_UNROLL
        for (p = 0; p < MT_PARTS; p++) {
            mt_vload(&v, x + i + p * WNPU_LANES);
            sum.part[p] += v.v;
        }
    }
    mean = mt_acc_sum(&sum) / (float)n;
    scale = 1.0f / sqrtf(op_square_body(x, n, mean) / (float)n + 1e-5f);
    for (i = 0; i < n; i += WNPU_LANES) {
        mt_vload(&v, x + i);
        mt_vload(&w, weight + i);
        mt_vload(&b, bias + i);
        v.v = (v.v - mean) * scale * w.v + b.v;
        mt_vstore(y + i, &v);
    }
}

/* Adds what n sums of products with high digits are worth to those with low ones. */
WNPU_TARGET static void OP(join)(int32_t *low, const int32_t *high, size_t n)
{
    size_t i;
    for (i = 0; i < n; i += WNPU_LANES) {
        mt_uv v = *(const mt_uvu *)(const void *)(high + i);
        *(mt_uvu *)(void *)(low + i) = v * GM_DIGIT + *(const mt_uvu *)(const void *)(low + i);
    }
}

/* The float path's op_kernels.dequantise(): x = in + bias. */
WNPU_TARGET static void OP(bias)(float *out, const float *in, size_t n, const float *bias,
                                 op_finish finish)
{
    mt_vec v, b;
    size_t i;
    mt_vset(&b, 0.0f);
    for (i = 0; i < n; i += WNPU_LANES) {
        mt_vload(&v, in + i);
        if (bias != NULL) {
            mt_vload(&b, bias + i);
            v.v += b.v;
        }
        OP(finish)(out + i, &v, finish, 0);
    }
}

WNPU_TARGET static void OP(scale)(float *x, size_t n, float scale)
{
    mt_vec v;
    size_t i;
    for (i = 0; i < n; i += WNPU_LANES) {
        mt_vload(&v, x + i);
        v.v *= scale;
        mt_vstore(x + i, &v);
    }
}

/* Logarithm to base 2, in steps of 1/256, and inverse of n scales of values, any n. A vector of
 * zeros has any scale: one that is usual for others keeps its key's weight. */
WNPU_TARGET static void OP(value_scales)(float *log2, float *inverse, const float *scale, size_t n)
{
    float part[WNPU_LANES];
    mt_vec v;
    size_t i, j;
    for (i = 0; i < n; i += WNPU_LANES) {
        for (j = 0; j < WNPU_LANES; j++) {
            part[j] = i + j < n && scale[i + j] > 0.0f ? scale[i + j] : 0.01f;
        }
        mt_vload(&v, part);
        mt_vlog(&v);
        v.v *= 1.44269504088896341f * OP_OCTAVE;
        for (j = 0; j < WNPU_LANES && i + j < n; j++) {
            log2[i + j] = v.v[j];
            inverse[i + j] = 1.0f / part[j];
        }
    }
}

/* x = exp(x - maximum); returns the sum. n is a multiple of 16. */
WNPU_INLINE WNPU_TARGET float OP(exp)(float *x, size_t n, float maximum)
{
    mt_acc sum;
    mt_vec v;
    size_t i;
    unsigned p;
    memset(&sum, 0, sizeof sum);
    for (i = 0; i < n; i += 16) {
        MT_UNROLL
        for (p = 0; p < MT_PARTS; p++) {
            mt_vload(&v, x + i + p * WNPU_LANES);
            v.v -= maximum;
            mt_vexp(&v);
            mt_vstore(x + i + p * WNPU_LANES, &v);
            sum.part[p] += v.v;
        }
    }
    return mt_acc_sum(&sum);
}

/* The float path: scores [n] (scaled already) become probabilities, zero up to padding. */
WNPU_TARGET static void OP(softmax_float)(float *scores, size_t n)
{
    size_t i, padded = (n + 15u) & ~(size_t)15u;
    float maximum = scores[0], sum;
    for (i = 1; i < n; i++) {
        maximum = scores[i] > maximum ? scores[i] : maximum;
    }
    for (i = n; i < padded; i++) {
        scores[i] = -1e30f;
    }
    sum = OP(exp)(scores, padded, maximum);
    OP(scale)(scores, padded, 1.0f / sum);
}

/* Sum of the lanes modulo 2^32. */
WNPU_INLINE WNPU_TARGET uint32_t OP(lanes)(const mt_uv *v)
{
    uint32_t sum = 0;
    unsigned i;
    for (i = 0; i < MT_LANES; i++) {
        sum += (*v)[i];
    }
    return sum;
}

/* Checksums, exact modulo 2^32: sum of c[i] r[i]; n is a multiple of 16. */
WNPU_TARGET static uint32_t OP(dot32)(const int32_t *c, const uint32_t *r, size_t n)
{
    mt_uv sum = {0};
    size_t i;
    for (i = 0; i < n; i += WNPU_LANES) {
        sum += *(const mt_uvu *)(const void *)(c + i) * *(const mt_uvu *)(r + i);
    }
    return OP(lanes)(&sum);
}

/* Sum of a[i] r[i] modulo 2^32; n is a multiple of 16. */
WNPU_TARGET static uint32_t OP(dot8)(const int8_t *a, const uint32_t *r, size_t n)
{
    mt_uv sum = {0};
    size_t i;
    for (i = 0; i < n; i += WNPU_LANES) {
        mt_iv wide;
        mt_load_int8(&wide, a + i);
        sum += (mt_uv)wide * *(const mt_uvu *)(r + i);
    }
    return OP(lanes)(&sum);
}

WNPU_TARGET static void OP(mel_powers)(const ft_tables *t, const ml_filters *f, const float *x,
                                       float *out, size_t ldo, ml_scratch *s)
{
    ml_powers_body(t, f, x, out, ldo, s);
}

WNPU_TARGET static float OP(mel_log)(float *x, size_t n) { return ml_log_body(x, n); }

WNPU_TARGET static void OP(mel_floor)(float *x, size_t n, float least)
{
    ml_floor_body(x, n, least);
}

/* Blocks of 32 values, `bytes` long, of ggml's type of that number. */
WNPU_TARGET static void OP(blocks)(float *out, uint32_t type, const unsigned char *in, size_t bytes,
                                   size_t n)
{
    int offset = type == 2 ? 8 : type == 6 ? 16 : 0, high = type >= 6;
    size_t i, j;
    for (i = 0; i < n; i += 32, in += bytes) {
        const float d = op_f16(in);
        for (j = 0; type == 8 && j < 32; j += WNPU_LANES) {
            mt_vec v;
            mt_vload_int8(&v, (const int8_t *)(in + 2 + j));
            v.v *= d;
            mt_vstore(out + i + j, &v);
        }
        if (type != 8) {
            op_block45(in + 2, out + i, d, offset, high);
        }
    }
}
#endif
#endif
#ifndef WNPU_PART

#define WNPU_PART OP_PART_FLOATS
#define WNPU_WIDTH WNPU_BASE
#include WNPU_SELF
#ifdef WNPU_X86
#define WNPU_WIDTH 256
#include WNPU_SELF
#define WNPU_WIDTH 512
#include WNPU_SELF
#endif
#undef WNPU_PART

/* ---- the table ---- */

typedef struct op_kernels {
    void (*norm)(float *y, const float *x, const float *weight, const float *bias, size_t n);
    void (*quantise)(int8_t *q, const float *x, size_t ldx, size_t rows, size_t n, float *scale);
    float (*quantise_fine)(int8_t *high, int8_t *low, const float *x, size_t n);
    void (*join)(int32_t *low, const int32_t *high, size_t n);
    void (*dequantise)(float *out, size_t ldo, const int32_t *acc, size_t lda, size_t rows,
                       size_t n, const float *row_scale, const float *scale, const float *bias,
                       op_finish finish);
    void (*bias)(float *out, const float *in, size_t n, const float *bias, op_finish finish);
    void (*scale)(float *x, size_t n, float scale);
    void (*exponents)(op_online *row, int16_t *u, const int32_t *acc, size_t lda, size_t rows,
                      size_t n, const float *query_scale, const op_keys *keys);
    void (*weights)(op_online *row, uint8_t *p, size_t ldp, const int16_t *u, size_t rows, size_t n,
                    const op_keys *keys);
    /* Exponents straight from queries that gm_kernels.pack_a() packed, a multiple of rows of
     * gm_kernels, without scores in between. Returns 0, and has done nothing of use, if a row needs
     * more than 16 bits. NULL: not faster here. */
    int (*product)(op_online *row, int16_t *u, const void *queries, size_t rows, size_t n,
                   const float *query_scale, const op_keys *keys);
    /* For one or two rows, packed likewise, all that attention does with a block of n keys and
     * values of a head of OP_HEAD; acc [rows, OP_HEAD] are the sums of values. Such rows are
     * limited by memory bandwidth, so memory is read throughout; the second row finds all in the
     * caches. Returns 0 like product. NULL: not faster here. */
    int (*attend)(op_online *row, int16_t *u, int32_t *acc, const void *queries, size_t rows,
                  size_t n, const float *query_scale, const op_keys *keys, const int8_t *values,
                  size_t pitch);
    void (*value_scales)(float *log2, float *inverse, const float *scale, size_t n);
    void (*blend)(float *out, size_t ldo, const int32_t *acc, size_t lda, size_t rows, size_t n,
                  const op_online *row, int last);
    void (*softmax_float)(float *scores, size_t n);
    float (*sum_exp)(const float *x, size_t n, float maximum);
    float (*largest)(const float *x, size_t n);
    size_t (*argmax)(const float *x, size_t n);
    size_t (*above)(uint32_t *index, size_t capacity, const float *x, size_t first, size_t end,
                    float least);
    float (*dot_int8)(const float *x, const int8_t *w, size_t n);
    uint32_t (*dot32)(const int32_t *c, const uint32_t *r, size_t n);
    uint32_t (*dot8)(const int8_t *a, const uint32_t *r, size_t n);
    void (*complete)(float *out, size_t ldo, const int32_t *acc, size_t rows, size_t n,
                     const float *row_scale, const float *scale, const op_rest *rest,
                     const float *columns, size_t ldc);
    void (*mel_powers)(const ft_tables *t, const ml_filters *f, const float *x, float *out,
                       size_t ldo, ml_scratch *s);
    float (*mel_log)(float *x, size_t n);
    void (*mel_floor)(float *x, size_t n, float least);
    uint32_t (*size)(const float *x, size_t n);
    int32_t (*digits)(int8_t *q, int8_t *low, const float *x, size_t n, float scale);
    void (*from_f16)(float *out, const unsigned char *in, size_t n);
    void (*blocks)(float *out, uint32_t type, const unsigned char *in, size_t bytes, size_t n);
} op_kernels;

/* The entries of a table that come from one instruction set; `set` ends the functions' names. */
#define OP_PLAIN(set)                                                                             \
    .norm = op_norm_##set, .join = op_join_##set, .bias = op_bias_##set, .scale = op_scale_##set, \
    .value_scales = op_value_scales_##set, .softmax_float = op_softmax_float_##set,               \
    .mel_powers = op_mel_powers_##set, .mel_log = op_mel_log_##set,                               \
    .mel_floor = op_mel_floor_##set, .blocks = op_blocks_##set, .dot32 = op_dot32_##set,          \
    .dot8 = op_dot8_##set
#define OP_FLOATS(set)                                                                            \
    .dequantise = op_dequantise_##set, .blend = op_blend_##set, .sum_exp = op_sum_exp_##set,      \
    .dot_int8 = op_dot_int8_##set, .complete = op_complete_##set, .from_f16 = op_from_f16_##set
#define OP_SEARCH(set)                                                                            \
    .size = op_size_##set, .largest = op_largest_##set, .argmax = op_argmax_##set,                \
    .above = op_above_##set
#define OP_BYTES(set)                                                                             \
    .quantise = op_quantise_##set, .quantise_fine = op_quantise_fine_##set,                       \
    .exponents = op_exponents_##set, .weights = op_weights_##set, .digits = op_digits_##set

static const op_kernels op_base_kernels = {
    OP_PLAIN(base),
    OP_FLOATS(base),
    OP_SEARCH(base),
    OP_BYTES(base),
};

#if defined(WNPU_X86) || defined(WNPU_ARM)
static const op_kernels op_128_kernels = {
    OP_PLAIN(base),
    OP_FLOATS(base),
    OP_SEARCH(base),
    OP_BYTES(128),
};
#endif

#ifdef WNPU_X86
/* ---- attention of one or two rows: exponents follow each 64 keys and products each 64 weights, so
 * that memory is read all along ---- */

#define OP_STRETCH 64u        /* keys at a time */
#define OP_VALUES_AHEAD 4096u /* bytes that each panel of values is read ahead */

WNPU_INLINE size_t op_stretch(size_t n, size_t at)
{
    return n - at < OP_STRETCH ? n - at : OP_STRETCH;
}

/* gm_micro_256() specialised for one row: 2 % of a token. */
WNPU_INLINE OP_256 void op_one_sums_256(const gm_block *t)
{
    size_t p;
    for (p = 0; p < t->panels; p++) {
        const gm_block one = gm_block_at(t, 0, p * 16);
        gm_tile1_256(&one, 1, 4);
    }
}

OP_256 static void op_one_exponents_256(op_online *row, int16_t *u, const char *query, size_t n,
                                        float query_scale, const op_keys *keys)
{
    int32_t sums[OP_STRETCH];
    gm_block t = {0};
    size_t at;
    t.c = sums;
    t.a = query;
    t.pitch = t.groups = OP_HEAD / 4;
    t.next = op_keys_ahead(n);
    row->most = -32768;
    for (at = 0; at < n; at += OP_STRETCH) {
        const size_t few = op_stretch(n, at);
        int most;
        t.b = keys->packed + at * OP_HEAD;
        t.panels = (few + 15) / 16;
        op_one_sums_256(&t);
        most = op_narrow_256(u + at, sums, few, query_scale, keys->key + at, keys->value_log2 + at);
        row->most = most > row->most ? most : row->most;
    }
}

OP_256 static void op_one_values_256(op_online *row, const int16_t *u, int32_t *acc, size_t n,
                                     const op_inverse *inverse, const int8_t *values, size_t pitch)
{
    gm_block t = {0};
    uint32_t sum = 0;
    size_t at;
    t.c = acc;
    t.pitch = pitch;
    t.panels = OP_HEAD / 16;
    t.next = OP_VALUES_AHEAD;
    for (at = 0; at < n; at += OP_STRETCH) {
        const size_t few = op_stretch(n, at);
        uint8_t weights[OP_STRETCH];
        char wide[2 * OP_STRETCH];
        t.groups = (few + 15) / 16 * 4;
        sum += op_weigh_256(weights, u + at, few, row->most, inverse->part + at);
        gm_pack_u_256(wide, weights, 0, 1, t.groups);
        t.from = at > 0 ? acc : NULL;
        t.a = wide;
        t.b = values + at / 4 * GM_GROUP;
        op_one_sums_256(&t);
    }
    op_online_add(row, sum, inverse->unit);
}

static int op_attend_256(op_online *row, int16_t *u, int32_t *acc, const void *queries,
                          size_t rows, size_t n, const float *query_scale, const op_keys *keys,
                          const int8_t *values, size_t pitch)
{
    static const op_one_row one = {op_one_exponents_256, op_inverse_256, op_one_values_256};
    return op_attend(&one, row, u, acc, queries, gm_bytes16(1, OP_HEAD / 4), rows, n, query_scale,
                     keys, values, pitch);
}

static const op_kernels op_256_kernels = {
    OP_PLAIN(256),
    OP_FLOATS(256),
    OP_SEARCH(256),
    OP_BYTES(256),
    .attend = op_attend_256,
};

#endif /* WNPU_X86 */
#endif /* WNPU_PART */
#if defined(WNPU_PART) && WNPU_PART == OP_PART_PRODUCTS
/* ---- part: exponents of attention without scores in between, for vpdpbusd: 256 bits are AVX-VNNI,
 * 512 bits AVX-512 ---- */

#if WNPU_WIDTH == 256
#define OP_AT 16u /* keys at a time */
#define OP_TILE GM_VNNI
typedef gm_vnni_row OP(sums);

/* Exponents of OP_AT keys from at on; best has the row's largest, by columns. */
WNPU_INLINE WNPU_TARGET void OP(product_row)(OP(s) *best, int16_t *u, const OP(sums) *s,
                                             float query_scale, const op_keys *keys, size_t at)
{
    OP(s) v = OP(exponents_of)((OP(i))s->v[0], (OP(i))s->v[1], keys->key + at,
                               keys->value_log2 + at, OP(all)(query_scale));
    OP(store_s)(u + at, v);
    *best = OP(max_s)(*best, v);
}
#else
#define OP_AT 64u
#define OP_TILE GM_AVX512
typedef gm_avx512_row OP(sums);

WNPU_INLINE WNPU_TARGET void OP(product_row)(OP(s) *best, int16_t *u, const OP(sums) *s,
                                             float query_scale, const op_keys *keys, size_t at)
{
    const float *key = keys->key + at, *log2 = keys->value_log2 + at;
    const OP(f) query = OP(all)(query_scale);
    const OP(i) x = OP(exponent)((OP(i))s->v[0], key, log2, query);
    const OP(i) y = OP(exponent)((OP(i))s->v[2], key + 32, log2 + 32, query);
    OP(s) a = OP(packs)(x, OP(exponent)((OP(i))s->v[1], key + 16, log2 + 16, query));
    OP(s) b = OP(packs)(y, OP(exponent)((OP(i))s->v[3], key + 48, log2 + 48, query));
    OP(store_s)(u + at, a);
    OP(store_s)(u + at + 32, b);
    *best = OP(max_s)(*best, OP(max_s)(a, b));
}
#endif

/* Exponents of OP_AT keys for a tile of 6 rows. */
WNPU_INLINE OP_TILE void OP(product_tile)(OP(s) *best, int16_t *u, const char *queries,
                                          const float *query_scale, const op_keys *keys, size_t at)
{
    const gm_block t = op_keys_block(keys, at, queries, 6);
    OP(sums) s[6];
    size_t r;
#if WNPU_WIDTH == 256
    gm_vnni_sums(s, &t, NULL, 6, 1);
#else
    gm_avx512_sums(s, &t, NULL, 6, 4);
#endif
    MT_UNROLL
    for (r = 0; r < 6; r++) {
        OP(product_row)(best + r, u + r * OP_KEYS, &s[r], query_scale[r], keys, at);
    }
}

/* Exponents of the keys that do not fill a tile; raises the rows' largest. */
WNPU_TARGET static void OP(product_rest)(op_online *row, int16_t *u, const void *queries,
                                         size_t rows, size_t at, size_t n,
                                         const float *query_scale, const op_keys *keys)
{
    int32_t acc[OP_PRODUCT * OP_AT];
    gm_product p = op_keys_product(keys, at, OP_AT, acc, queries, rows);
    size_t r;
    p.panels = (n - at + 15) / 16;
#if WNPU_WIDTH == 256
    gm_vnni_tile(&p);
#else
    gm_avx512_tile(&p);
#endif
    for (r = 0; r < rows; r++) {
        int most = OP(narrow)(u + r * OP_KEYS + at, acc + r * OP_AT, n - at, query_scale[r],
                              keys->key + at, keys->value_log2 + at);
        row[r].most = most > row[r].most ? most : row[r].most;
    }
}

WNPU_INLINE WNPU_TARGET void OP(product_start)(OP(s) *best)
{
    size_t r;
    for (r = 0; r < OP_PRODUCT; r++) {
        best[r] = OP(all_s)(INT16_MIN);
    }
}

/* What is left to do when the keys before at are done. */
WNPU_TARGET static int OP(product_end)(const OP(s) *best, op_online *row, int16_t *u,
                                       const void *queries, size_t rows, size_t at, size_t n,
                                       const float *query_scale, const op_keys *keys)
{
    size_t r;
    for (r = 0; r < rows; r++) {
        row[r].most = OP(top_s)(best[r]);
    }
    if (at < n) {
        OP(product_rest)(row, u, queries, rows, at, n, query_scale, keys);
    }
    return op_product_within(row, rows);
}

/* See op_kernels.product(). */
OP_TILE static int OP(product)(op_online *row, int16_t *u, const void *queries, size_t rows,
                               size_t n, const float *query_scale, const op_keys *keys)
{
    const size_t stride = keys->k4 * 4 + GM_PAD;
    OP(s) best[OP_PRODUCT];
    size_t i, r;
    if (rows > OP_PRODUCT) {
        return 0;
    }
    OP(product_start)(best);
    for (i = 0; i + OP_AT <= n; i += OP_AT) {
        for (r = 0; r < rows; r += 6) {
            OP(product_tile)(best + r, u + r * OP_KEYS, (const char *)queries + r * stride,
                             query_scale + r, keys, i);
        }
    }
    return OP(product_end)(best, row, u, queries, rows, i, n, query_scale, keys);
}

#undef OP_AT
#undef OP_TILE
#endif
#ifndef WNPU_PART
#ifdef WNPU_X86

#define WNPU_PART OP_PART_PRODUCTS
#ifdef WNPU_VNNI
#define WNPU_WIDTH 256
#include WNPU_SELF
#endif
#define WNPU_WIDTH 512
#include WNPU_SELF
#undef WNPU_PART

#ifdef WNPU_VNNI
static const op_kernels op_vnni_kernels = {
    OP_PLAIN(256),
    OP_FLOATS(256),
    OP_SEARCH(256),
    OP_BYTES(256),
    .product = op_product_256,
};
#endif

/* ---- AVX-512: attention of one or two rows ---- */

/* Sums of one query and so many panels of keys. The lines `ahead` bytes behind are prefetched. */
WNPU_INLINE GM_AVX512 void op_one_scores_512(gm_avx512_row *s, const char *query,
                                             const int8_t *keys, const int32_t *correction,
                                             size_t panels, size_t ahead)
{
    size_t p, g;
    for (p = 0; p < panels; p++) {
        __m512i sum = _mm512_loadu_si512(correction + p * 16);
        MT_UNROLL
        for (g = 0; g < OP_HEAD / 4; g++, keys += GM_GROUP) {
            const gm_four *four = (const gm_four *)(const void *)(query + g * 4);
            gm_prefetch(keys, ahead);
            gm_avx512_add(&sum, _mm512_set1_epi32(*four), _mm512_loadu_si512(keys));
        }
        s->v[p] = sum;
    }
}

/* Exponents of a row, 64 keys at a time. */
GM_AVX512 static void op_one_exponents_512(op_online *row, int16_t *u, const char *query, size_t n,
                                           float query_scale, const op_keys *keys)
{
    const size_t ahead = op_keys_ahead(n);
    op_s_512 best = op_all_s_512(INT16_MIN);
    gm_avx512_row s;
    size_t at;
    int most;
    for (at = 0; at + 64 <= n; at += 64) {
        op_one_scores_512(&s, query, keys->packed + at * OP_HEAD, keys->correction + at, 4, ahead);
        op_product_row_512(&best, u, &s, query_scale, keys, at);
    }
    row->most = op_top_s_512(best);
    if (at < n) {
        op_one_scores_512(&s, query, keys->packed + at * OP_HEAD, keys->correction + at,
                      (n - at + 15) / 16, 0);
        most = op_narrow_512(u + at, (const int32_t *)(const void *)s.v, n - at, query_scale,
                              keys->key + at, keys->value_log2 + at);
        row->most = most > row->most ? most : row->most;
    }
}

/* Adds weights of so many groups of four keys, an even number, times values to sums, whose panels
 * are pitch bytes apart. Odd groups have sums of their own, to hide the latency of additions. */
WNPU_INLINE GM_AVX512 void op_one_values_512(__m512i *sum, const uint8_t *weights,
                                             const int8_t *values, size_t pitch, size_t groups)
{
    size_t g;
    int p;
    for (g = 0; g < groups; g += 2, weights += 8, values += 2 * GM_GROUP) {
        const gm_four *four = (const gm_four *)(const void *)weights;
        const __m512i even = _mm512_set1_epi32(four[0]), odd = _mm512_set1_epi32(four[1]);
        MT_UNROLL
        for (p = 0; p < 4; p++) {
            const int8_t *y = values + (size_t)p * pitch;
            gm_avx512_add(&sum[p], even, _mm512_loadu_si512(y));
            gm_avx512_add(&sum[p + 4], odd, _mm512_loadu_si512(y + GM_GROUP));
        }
    }
}

/* A row's weights, 64 at a time, times values. */
GM_AVX512 static void op_one_weights_512(op_online *row, const int16_t *u, int32_t *acc, size_t n,
                                         const op_inverse *inverse, const int8_t *values,
                                         size_t pitch)
{
    const op_s_512 from = op_all_s_512(row->most + OP_OCTAVE);
    op_us_512 a, b;
    op_ui_512 total = {0};
    op_b_512 weights;
    __m512i sum[8];
    size_t at;
    int p;
    MT_UNROLL
    for (p = 0; p < 8; p++) {
        sum[p] = _mm512_setzero_si512();
    }
    for (at = 0; at < n; at += 64, values += 16 * GM_GROUP) {
        a = b = op_weights_of_512(u + at, from, inverse->part + at, &total);
        if (at + 32 < n) {
            b = op_weights_of_512(u + at + 32, from, inverse->part + at + 32, &total);
        }
        weights = op_bytes_512(a, b);
        op_one_values_512(sum, (const uint8_t *)&weights, values, pitch * GM_GROUP,
                      n - at < 64 ? (n - at + 15) / 16 * 4 : 16);
    }
    MT_UNROLL
    for (p = 0; p < 4; p++) {
        _mm512_storeu_si512(acc + p * 16, _mm512_add_epi32(sum[p], sum[p + 4]));
    }
    op_online_add(row, op_total_512(total), inverse->unit);
}

static int op_attend_512(op_online *row, int16_t *u, int32_t *acc, const void *queries, size_t rows,
                         size_t n, const float *query_scale, const op_keys *keys,
                         const int8_t *values, size_t pitch)
{
    static const op_one_row one = {op_one_exponents_512, op_inverse_512, op_one_weights_512};
    return op_attend(&one, row, u, acc, queries, gm_bytes8(1, OP_HEAD / 4), rows, n, query_scale,
                     keys, values, pitch);
}

static const op_kernels op_512_kernels = {
    OP_PLAIN(256), /* it costs little */
    OP_FLOATS(512),
    OP_SEARCH(512),
    OP_BYTES(512),
    .product = op_product_512,
    .attend = op_attend_512,
};
#endif

#ifdef WNPU_AMX
/* ---- AMX: AVX-512, but for products ---- */

/* Exponents of 64 keys from their sums [rows, 64]. */
WNPU_INLINE GM_AMX void op_product_sums_512(op_s_512 *best, int16_t *u, const int32_t *acc,
                                            size_t rows, const float *query_scale,
                                            const op_keys *keys, size_t at)
{
    size_t r, p;
    for (r = 0; r < rows; r++, acc += 64) {
        gm_avx512_row s;
        for (p = 0; p < 4; p++) {
            s.v[p] = _mm512_loadu_si512(acc + p * 16);
        }
        op_product_row_512(best + r, u + r * OP_KEYS, &s, query_scale[r], keys, at);
    }
}

GM_AMX static int op_product_amx(op_online *row, int16_t *u, const void *queries, size_t rows,
                                 size_t n, const float *query_scale, const op_keys *keys)
{
    int32_t acc[OP_PRODUCT * 64] __attribute__((aligned(64)));
    op_s_512 best[OP_PRODUCT];
    size_t i;
    if (rows > OP_PRODUCT) {
        return 0;
    }
    op_product_start_512(best);
    gm_amx_open(rows);
    for (i = 0; i + 64 <= n; i += 64) {
        gm_block t = op_keys_block(keys, i, queries, rows);
        t.c = acc;
        t.ldc = 64;
        t.panels = 4;
        gm_amx_micro(&t);
        op_product_sums_512(best, u, acc, rows, query_scale, keys, i);
    }
    gm_amx_close();
    return op_product_end_512(best, row, u, queries, rows, i, n, query_scale, keys);
}

static const op_kernels op_amx_kernels = {
    OP_PLAIN(256),
    OP_FLOATS(512),
    OP_SEARCH(512),
    OP_BYTES(512),
    .product = op_product_amx,
    .attend = op_attend_512,
};
#endif

/* ======================================================================
 *  9. cp_  instruction sets
 *
 *  Owns      the table of instruction sets, their detection and the choice
 *            among them.
 *  Assumes   nothing.
 *  Ensures   a set is available only if the CPU has all of its instructions
 *            and the operating system saves its registers.
 *  Costs     a few CPUID instructions when a session is opened.
 *
 *  To add an instruction set: its enumerator in whisper_npu.h, its kernels
 *  in section 7, its operators in section 8 where they gain, and here a
 *  function that detects it and a row of cp_sets[].
 * ====================================================================== */
static int cp_always(void) { return 1; }

#ifdef WNPU_X86
static int cp_sse41(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.1") != 0;
}

static int cp_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") != 0;
}

static int cp_avx512(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

#define CP_ZEN5 0x1au /* the family of AMD's Zen 5 */

/* Whether the CPU reads memory fastest from front to back. Measured on Zen 5, where four places at
 * once come at 0.7 of the speed; on Zen 4 it is the other way round. */
static int cp_reads_forward(void)
{
    unsigned a, b, c, d, family;
    if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx || c != signature_AMD_ecx ||
        d != signature_AMD_edx || !__get_cpuid(1, &a, &b, &c, &d)) {
        return 0;
    }
    family = a >> 8 & 15;
    return family == 15 && family + (a >> 20 & 255) >= CP_ZEN5;
}
#endif

#ifdef WNPU_VNNI
static int cp_avx_vnni(void)
{
    unsigned a, b, c, d;
    return cp_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1) != 0;
}
#endif

#ifdef WNPU_AMX
#define CP_TILE_DATA 18u      /* number of this state component, 8 KiB for each thread */
#define CP_SUPPORTED 0x1021   /* ARCH_GET_XCOMP_SUPP */
#define CP_PERMITTED 0x1022   /* ARCH_GET_XCOMP_PERM */
#define CP_REQUEST 0x1023     /* ARCH_REQ_XCOMP_PERM */

/* arch_prctl(), for which there is no header: 0 or a negative errno. */
static long cp_arch_prctl(int operation, uintptr_t argument)
{
    long result;
    __asm__ __volatile__("syscall" : "=a"(result) : "0"(158L), "D"((long)operation), "S"(argument)
                         : "rcx", "r11", "memory");
    return result;
}

/* Whether tile data is among the supported, or the permitted, state components. */
static int cp_tile_data(int operation)
{
    uint64_t components = 0;
    return cp_arch_prctl(operation, (uintptr_t)&components) == 0 &&
           (components >> CP_TILE_DATA & 1) != 0;
}

/* AMX-TILE and AMX-INT8, and an operating system that saves both state components of the tiles. */
static int cp_amx(void)
{
    unsigned a, b, c, d;
    if (!cp_avx512() || !__get_cpuid(1, &a, &b, &c, &d) || (c >> 27 & 1) == 0) { /* OSXSAVE */
        return 0;
    }
    __asm__ __volatile__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    if ((a >> 17 & 3) != 3 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        return 0;
    }
    return (d >> 24 & 3) == 3 && cp_tile_data(CP_SUPPORTED);
}

/* Linux lets a process use tiles after it has asked, because they enlarge its signal frames. */
static int cp_amx_permitted(void) { return cp_tile_data(CP_PERMITTED); }

/* Asks for the process with all its threads; 0 or the errno of a refusal. */
static int cp_amx_request(void) { return (int)-cp_arch_prctl(CP_REQUEST, CP_TILE_DATA); }
#endif

#ifdef WNPU_ARM
#if defined(__linux__)
static int cp_hwcap(unsigned bit) { return (getauxval(AT_HWCAP) >> bit & 1) != 0; }
static int cp_hwcap2(unsigned bit) { return (getauxval(AT_HWCAP2) >> bit & 1) != 0; }
#else
static int cp_hwcap(unsigned bit) { return bit > 64; }
static int cp_hwcap2(unsigned bit) { return bit > 64; }
#endif

static int cp_neon_dot(void) { return cp_hwcap(20); } /* HWCAP_ASIMDDP */

/* HWCAP2_I8MM; implies the dot product in practice, both are checked. */
static int cp_neon_i8mm(void) { return cp_neon_dot() && cp_hwcap2(13); }
#endif

typedef struct cp_set {
    const char *name;
    int (*probe)(void);     /* whether this CPU has the set; NULL: this build does not */
    int (*permitted)(void); /* whether this process may use it; NULL: always */
    int (*request)(void);   /* asks for permission: 0 or an errno; NULL: never needed */
    int rank;               /* AUTO takes the usable set of the highest rank */
    double rate;            /* int8 multiply-accumulates of a thread in a microsecond, roughly: what
                             * section 7 reaches a cycle, at 3 GHz, 55 % of the time (README). Only
                             * the choice between CPU and accelerator depends on it. */
    const gm_kernels *gm;
    const gm_kernels *gm_forward; /* for CPUs that read memory fastest from front to back */
    const op_kernels *op;
} cp_set;

/* The rest of a row, for builds that have the set. */
#ifdef WNPU_X86
#define CP_X86(...) __VA_ARGS__
#else
#define CP_X86(...)
#endif
#ifdef WNPU_VNNI
#define CP_VNNI(...) __VA_ARGS__
#else
#define CP_VNNI(...)
#endif
#ifdef WNPU_AMX
#define CP_AMX(...) __VA_ARGS__
#else
#define CP_AMX(...)
#endif
#ifdef WNPU_ARM
#define CP_ARM(...) __VA_ARGS__
#else
#define CP_ARM(...)
#endif

static const cp_set cp_sets[] = {
    [WNPU_ISA_AUTO] = {"auto", .probe = cp_always},
    [WNPU_ISA_SCALAR] = {"scalar", .probe = cp_always, .rank = 1, .rate = 2e3,
        .gm = &gm_scalar, .op = &op_base_kernels},
    [WNPU_ISA_SSE41] = {"sse4.1", .rank = 2, .rate = 20e3,
        CP_X86(.probe = cp_sse41, .gm = &gm_sse41, .op = &op_128_kernels)},
    [WNPU_ISA_AVX2] = {"avx2", .rank = 3, .rate = 40e3,
        CP_X86(.probe = cp_avx2, .gm = &gm_avx2, .op = &op_256_kernels)},
    [WNPU_ISA_AVX_VNNI] = {"avx-vnni", .rank = 4, .rate = 100e3,
        CP_VNNI(.probe = cp_avx_vnni, .gm = &gm_vnni, .op = &op_vnni_kernels)},
    [WNPU_ISA_AVX512] = {"avx512", .rank = 5, .rate = 200e3,
        CP_X86(.probe = cp_avx512, .gm = &gm_avx512, .gm_forward = &gm_avx512_forward,
               .op = &op_512_kernels)},
    /* The rest of the encoder's work takes most of the time there. */
    [WNPU_ISA_AMX] = {"amx", .rank = 6, .rate = 300e3,
        CP_AMX(.probe = cp_amx, .permitted = cp_amx_permitted, .request = cp_amx_request,
               .gm = &gm_amx, .op = &op_amx_kernels)},
    [WNPU_ISA_NEON] = {"neon", .rank = 2, .rate = 20e3, /* part of AArch64 */
        CP_ARM(.probe = cp_always, .gm = &gm_neon, .op = &op_128_kernels)},
    [WNPU_ISA_NEON_DOT] = {"neon-dot", .rank = 3, .rate = 80e3,
        CP_ARM(.probe = cp_neon_dot, .gm = &gm_dot, .op = &op_128_kernels)},
    [WNPU_ISA_NEON_I8MM] = {"neon-i8mm", .rank = 4, .rate = 120e3,
        CP_ARM(.probe = cp_neon_i8mm, .gm = &gm_i8mm, .op = &op_128_kernels)},
};
#define CP_ISAS ((int)(sizeof cp_sets / sizeof cp_sets[0]))

static int cp_known(wnpu_isa isa) { return (int)isa >= 0 && (int)isa < CP_ISAS; }

WNPU_API int wnpu_isa_available(wnpu_isa isa)
{
    return cp_known(isa) && cp_sets[isa].probe != NULL && cp_sets[isa].probe();
}

WNPU_API const char *wnpu_isa_name(wnpu_isa isa)
{
    return cp_known(isa) ? cp_sets[isa].name : NULL;
}

WNPU_API int wnpu_isa_from_name(const char *name)
{
    int i;
    for (i = 0; name != NULL && i < CP_ISAS; i++) {
        if (strcmp(name, cp_sets[i].name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Whether this process may use an available set. */
static int cp_permitted(wnpu_isa isa)
{
    return cp_sets[isa].permitted == NULL || cp_sets[isa].permitted();
}

/* Asks for permission on behalf of the process; 0 or the errno of a refusal. */
static int cp_request(wnpu_isa isa)
{
    return cp_sets[isa].request == NULL ? 0 : cp_sets[isa].request();
}

/* Whether the set can run here and now. */
static int cp_usable(wnpu_isa isa)
{
    return wnpu_isa_available(isa) && cp_permitted(isa);
}

/* The fastest usable set. */
static wnpu_isa cp_best(void)
{
    int i, best = WNPU_ISA_SCALAR;
    for (i = 0; i < CP_ISAS; i++) {
        if (cp_sets[i].rank > cp_sets[best].rank && cp_usable((wnpu_isa)i)) {
            best = i;
        }
    }
    return (wnpu_isa)best;
}

/* The matmul kernels of an instruction set, the best for AUTO; NULL if this machine cannot run
 * them. Those of AMX need permission besides, see cp_request(). */
static const gm_kernels *gm_select(wnpu_isa isa)
{
    const cp_set *set;
    if (isa == WNPU_ISA_AUTO) {
        isa = cp_best();
    }
    if (!wnpu_isa_available(isa)) {
        return NULL;
    }
    set = &cp_sets[isa];
#ifdef WNPU_X86
    if (set->gm_forward != NULL && cp_reads_forward()) {
        return set->gm_forward;
    }
#endif
    return set->gm;
}

/* The float operators of a set that is available, the best for AUTO. */
static const op_kernels *op_select(wnpu_isa isa)
{
    return cp_sets[isa == WNPU_ISA_AUTO ? cp_best() : isa].op;
}

/* ======================================================================
 * 10. tk_  tokenizer and languages
 *
 *  Owns      the vocabulary of a model and the ids of its special tokens,
 *            encoding and decoding, the languages, the tokens that are
 *            never speech, and UTF-8.
 *  Assumes   tokens are added in the order of their ids, which is that in
 *            which the merges of byte pair encoding were learned.
 *  Ensures   tokens equal those of OpenAI's tiktoken; encoding and then
 *            decoding returns any bytes unchanged; tk_sanitize_utf8()
 *            returns complete, valid UTF-8 without NUL.
 *  Costs     about 1.1 MB per vocabulary; encoding uses 7 KB of stack, no
 *            heap, and at most about 2 microseconds per byte.
 *
 *  Source of the tokens and languages: whisper/tokenizer.py in OpenAI's
 *  repository, commit c0d2f62.
 * ====================================================================== */

/* ---- UTF-8 (RFC 3629) ---- */

/* Decodes the character at text, which has left >= 1 bytes. Returns its code point, or -1 if it is
 * invalid. *used receives its bytes, or those of the maximal invalid subpart (Unicode standard,
 * chapter 3.9); *cut is set if the character is only incomplete because the text ends. */
static int32_t tk_decode_utf8(const char *text, size_t left, size_t *used, int *cut)
{
    const unsigned char *p = (const unsigned char *)text;
    uint32_t lead = p[0], code, low, high;
    size_t i, need;
    *used = 1;
    *cut = 0;
    if (lead < 0x80) {
        return (int32_t)lead;
    }
    if (lead < 0xc2 || lead > 0xf4) {
        return -1;
    }
    need = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    code = lead & (0x3fu >> need);
    /* Excludes overlong forms, surrogates, and code points above U+10FFFF. */
    low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (i = 1; i <= need; i++) {
        if (i >= left) {
            *cut = 1;
            return -1;
        }
        if (p[i] < low || p[i] > high) {
            return -1;
        }
        code = code << 6 | (p[i] & 0x3fu);
        low = 0x80;
        high = 0xbf;
        *used = i + 1;
    }
    return (int32_t)code;
}

/* Copies text with each NUL and each maximal invalid subpart replaced by U+FFFD. Like snprintf,
 * returns the length of the complete result without its terminating NUL; writes as many whole
 * characters as fit and a NUL, or nothing if capacity is 0. The result contains no other NUL, so
 * strlen() is the number of bytes written. out and in must not overlap. */
static size_t tk_sanitize_utf8(char *out, size_t capacity, const char *in, size_t length)
{
    size_t at = 0, need = 0, written = 0;
    while (at < length) {
        const char *from = in + at;
        size_t used, bytes;
        int cut;
        int32_t code = tk_decode_utf8(from, length - at, &used, &cut);
        at += used;
        bytes = used;
        if (code <= 0) {
            from = "\xef\xbf\xbd";
            bytes = 3;
        }
        /* After one character was omitted, need is ahead of written and no later one may be
         * written. */
        if (need == written && written < capacity && bytes < capacity - written) {
            memcpy(out + written, from, bytes);
            written += bytes;
        }
        need += bytes;
    }
    if (capacity > 0) {
        out[written] = '\0';
    }
    return need;
}

/* ---- character classes ----
 * Ranges of Unicode 14.0, general categories L and N, as Python's unicodedata gives them. */

static const uint32_t tk_letters[][2] = {
    {0x41, 0x5a}, {0x61, 0x7a}, {0xaa, 0xaa}, {0xb5, 0xb5}, {0xba, 0xba}, {0xc0, 0xd6},
    {0xd8, 0xf6}, {0xf8, 0x2c1}, {0x2c6, 0x2d1}, {0x2e0, 0x2e4}, {0x2ec, 0x2ec}, {0x2ee, 0x2ee},
    {0x370, 0x374}, {0x376, 0x377}, {0x37a, 0x37d}, {0x37f, 0x37f}, {0x386, 0x386}, {0x388, 0x38a},
    {0x38c, 0x38c}, {0x38e, 0x3a1}, {0x3a3, 0x3f5}, {0x3f7, 0x481}, {0x48a, 0x52f}, {0x531, 0x556},
    {0x559, 0x559}, {0x560, 0x588}, {0x5d0, 0x5ea}, {0x5ef, 0x5f2}, {0x620, 0x64a}, {0x66e, 0x66f},
    {0x671, 0x6d3}, {0x6d5, 0x6d5}, {0x6e5, 0x6e6}, {0x6ee, 0x6ef}, {0x6fa, 0x6fc}, {0x6ff, 0x6ff},
    {0x710, 0x710}, {0x712, 0x72f}, {0x74d, 0x7a5}, {0x7b1, 0x7b1}, {0x7ca, 0x7ea}, {0x7f4, 0x7f5},
    {0x7fa, 0x7fa}, {0x800, 0x815}, {0x81a, 0x81a}, {0x824, 0x824}, {0x828, 0x828}, {0x840, 0x858},
    {0x860, 0x86a}, {0x870, 0x887}, {0x889, 0x88e}, {0x8a0, 0x8c9}, {0x904, 0x939}, {0x93d, 0x93d},
    {0x950, 0x950}, {0x958, 0x961}, {0x971, 0x980}, {0x985, 0x98c}, {0x98f, 0x990}, {0x993, 0x9a8},
    {0x9aa, 0x9b0}, {0x9b2, 0x9b2}, {0x9b6, 0x9b9}, {0x9bd, 0x9bd}, {0x9ce, 0x9ce}, {0x9dc, 0x9dd},
    {0x9df, 0x9e1}, {0x9f0, 0x9f1}, {0x9fc, 0x9fc}, {0xa05, 0xa0a}, {0xa0f, 0xa10}, {0xa13, 0xa28},
    {0xa2a, 0xa30}, {0xa32, 0xa33}, {0xa35, 0xa36}, {0xa38, 0xa39}, {0xa59, 0xa5c}, {0xa5e, 0xa5e},
    {0xa72, 0xa74}, {0xa85, 0xa8d}, {0xa8f, 0xa91}, {0xa93, 0xaa8}, {0xaaa, 0xab0}, {0xab2, 0xab3},
    {0xab5, 0xab9}, {0xabd, 0xabd}, {0xad0, 0xad0}, {0xae0, 0xae1}, {0xaf9, 0xaf9}, {0xb05, 0xb0c},
    {0xb0f, 0xb10}, {0xb13, 0xb28}, {0xb2a, 0xb30}, {0xb32, 0xb33}, {0xb35, 0xb39}, {0xb3d, 0xb3d},
    {0xb5c, 0xb5d}, {0xb5f, 0xb61}, {0xb71, 0xb71}, {0xb83, 0xb83}, {0xb85, 0xb8a}, {0xb8e, 0xb90},
    {0xb92, 0xb95}, {0xb99, 0xb9a}, {0xb9c, 0xb9c}, {0xb9e, 0xb9f}, {0xba3, 0xba4}, {0xba8, 0xbaa},
    {0xbae, 0xbb9}, {0xbd0, 0xbd0}, {0xc05, 0xc0c}, {0xc0e, 0xc10}, {0xc12, 0xc28}, {0xc2a, 0xc39},
    {0xc3d, 0xc3d}, {0xc58, 0xc5a}, {0xc5d, 0xc5d}, {0xc60, 0xc61}, {0xc80, 0xc80}, {0xc85, 0xc8c},
    {0xc8e, 0xc90}, {0xc92, 0xca8}, {0xcaa, 0xcb3}, {0xcb5, 0xcb9}, {0xcbd, 0xcbd}, {0xcdd, 0xcde},
    {0xce0, 0xce1}, {0xcf1, 0xcf2}, {0xd04, 0xd0c}, {0xd0e, 0xd10}, {0xd12, 0xd3a}, {0xd3d, 0xd3d},
    {0xd4e, 0xd4e}, {0xd54, 0xd56}, {0xd5f, 0xd61}, {0xd7a, 0xd7f}, {0xd85, 0xd96}, {0xd9a, 0xdb1},
    {0xdb3, 0xdbb}, {0xdbd, 0xdbd}, {0xdc0, 0xdc6}, {0xe01, 0xe30}, {0xe32, 0xe33}, {0xe40, 0xe46},
    {0xe81, 0xe82}, {0xe84, 0xe84}, {0xe86, 0xe8a}, {0xe8c, 0xea3}, {0xea5, 0xea5}, {0xea7, 0xeb0},
    {0xeb2, 0xeb3}, {0xebd, 0xebd}, {0xec0, 0xec4}, {0xec6, 0xec6}, {0xedc, 0xedf}, {0xf00, 0xf00},
    {0xf40, 0xf47}, {0xf49, 0xf6c}, {0xf88, 0xf8c}, {0x1000, 0x102a}, {0x103f, 0x103f},
    {0x1050, 0x1055}, {0x105a, 0x105d}, {0x1061, 0x1061}, {0x1065, 0x1066}, {0x106e, 0x1070},
    {0x1075, 0x1081}, {0x108e, 0x108e}, {0x10a0, 0x10c5}, {0x10c7, 0x10c7}, {0x10cd, 0x10cd},
    {0x10d0, 0x10fa}, {0x10fc, 0x1248}, {0x124a, 0x124d}, {0x1250, 0x1256}, {0x1258, 0x1258},
    {0x125a, 0x125d}, {0x1260, 0x1288}, {0x128a, 0x128d}, {0x1290, 0x12b0}, {0x12b2, 0x12b5},
    {0x12b8, 0x12be}, {0x12c0, 0x12c0}, {0x12c2, 0x12c5}, {0x12c8, 0x12d6}, {0x12d8, 0x1310},
    {0x1312, 0x1315}, {0x1318, 0x135a}, {0x1380, 0x138f}, {0x13a0, 0x13f5}, {0x13f8, 0x13fd},
    {0x1401, 0x166c}, {0x166f, 0x167f}, {0x1681, 0x169a}, {0x16a0, 0x16ea}, {0x16f1, 0x16f8},
    {0x1700, 0x1711}, {0x171f, 0x1731}, {0x1740, 0x1751}, {0x1760, 0x176c}, {0x176e, 0x1770},
    {0x1780, 0x17b3}, {0x17d7, 0x17d7}, {0x17dc, 0x17dc}, {0x1820, 0x1878}, {0x1880, 0x1884},
    {0x1887, 0x18a8}, {0x18aa, 0x18aa}, {0x18b0, 0x18f5}, {0x1900, 0x191e}, {0x1950, 0x196d},
    {0x1970, 0x1974}, {0x1980, 0x19ab}, {0x19b0, 0x19c9}, {0x1a00, 0x1a16}, {0x1a20, 0x1a54},
    {0x1aa7, 0x1aa7}, {0x1b05, 0x1b33}, {0x1b45, 0x1b4c}, {0x1b83, 0x1ba0}, {0x1bae, 0x1baf},
    {0x1bba, 0x1be5}, {0x1c00, 0x1c23}, {0x1c4d, 0x1c4f}, {0x1c5a, 0x1c7d}, {0x1c80, 0x1c88},
    {0x1c90, 0x1cba}, {0x1cbd, 0x1cbf}, {0x1ce9, 0x1cec}, {0x1cee, 0x1cf3}, {0x1cf5, 0x1cf6},
    {0x1cfa, 0x1cfa}, {0x1d00, 0x1dbf}, {0x1e00, 0x1f15}, {0x1f18, 0x1f1d}, {0x1f20, 0x1f45},
    {0x1f48, 0x1f4d}, {0x1f50, 0x1f57}, {0x1f59, 0x1f59}, {0x1f5b, 0x1f5b}, {0x1f5d, 0x1f5d},
    {0x1f5f, 0x1f7d}, {0x1f80, 0x1fb4}, {0x1fb6, 0x1fbc}, {0x1fbe, 0x1fbe}, {0x1fc2, 0x1fc4},
    {0x1fc6, 0x1fcc}, {0x1fd0, 0x1fd3}, {0x1fd6, 0x1fdb}, {0x1fe0, 0x1fec}, {0x1ff2, 0x1ff4},
    {0x1ff6, 0x1ffc}, {0x2071, 0x2071}, {0x207f, 0x207f}, {0x2090, 0x209c}, {0x2102, 0x2102},
    {0x2107, 0x2107}, {0x210a, 0x2113}, {0x2115, 0x2115}, {0x2119, 0x211d}, {0x2124, 0x2124},
    {0x2126, 0x2126}, {0x2128, 0x2128}, {0x212a, 0x212d}, {0x212f, 0x2139}, {0x213c, 0x213f},
    {0x2145, 0x2149}, {0x214e, 0x214e}, {0x2183, 0x2184}, {0x2c00, 0x2ce4}, {0x2ceb, 0x2cee},
    {0x2cf2, 0x2cf3}, {0x2d00, 0x2d25}, {0x2d27, 0x2d27}, {0x2d2d, 0x2d2d}, {0x2d30, 0x2d67},
    {0x2d6f, 0x2d6f}, {0x2d80, 0x2d96}, {0x2da0, 0x2da6}, {0x2da8, 0x2dae}, {0x2db0, 0x2db6},
    {0x2db8, 0x2dbe}, {0x2dc0, 0x2dc6}, {0x2dc8, 0x2dce}, {0x2dd0, 0x2dd6}, {0x2dd8, 0x2dde},
    {0x2e2f, 0x2e2f}, {0x3005, 0x3006}, {0x3031, 0x3035}, {0x303b, 0x303c}, {0x3041, 0x3096},
    {0x309d, 0x309f}, {0x30a1, 0x30fa}, {0x30fc, 0x30ff}, {0x3105, 0x312f}, {0x3131, 0x318e},
    {0x31a0, 0x31bf}, {0x31f0, 0x31ff}, {0x3400, 0x4dbf}, {0x4e00, 0xa48c}, {0xa4d0, 0xa4fd},
    {0xa500, 0xa60c}, {0xa610, 0xa61f}, {0xa62a, 0xa62b}, {0xa640, 0xa66e}, {0xa67f, 0xa69d},
    {0xa6a0, 0xa6e5}, {0xa717, 0xa71f}, {0xa722, 0xa788}, {0xa78b, 0xa7ca}, {0xa7d0, 0xa7d1},
    {0xa7d3, 0xa7d3}, {0xa7d5, 0xa7d9}, {0xa7f2, 0xa801}, {0xa803, 0xa805}, {0xa807, 0xa80a},
    {0xa80c, 0xa822}, {0xa840, 0xa873}, {0xa882, 0xa8b3}, {0xa8f2, 0xa8f7}, {0xa8fb, 0xa8fb},
    {0xa8fd, 0xa8fe}, {0xa90a, 0xa925}, {0xa930, 0xa946}, {0xa960, 0xa97c}, {0xa984, 0xa9b2},
    {0xa9cf, 0xa9cf}, {0xa9e0, 0xa9e4}, {0xa9e6, 0xa9ef}, {0xa9fa, 0xa9fe}, {0xaa00, 0xaa28},
    {0xaa40, 0xaa42}, {0xaa44, 0xaa4b}, {0xaa60, 0xaa76}, {0xaa7a, 0xaa7a}, {0xaa7e, 0xaaaf},
    {0xaab1, 0xaab1}, {0xaab5, 0xaab6}, {0xaab9, 0xaabd}, {0xaac0, 0xaac0}, {0xaac2, 0xaac2},
    {0xaadb, 0xaadd}, {0xaae0, 0xaaea}, {0xaaf2, 0xaaf4}, {0xab01, 0xab06}, {0xab09, 0xab0e},
    {0xab11, 0xab16}, {0xab20, 0xab26}, {0xab28, 0xab2e}, {0xab30, 0xab5a}, {0xab5c, 0xab69},
    {0xab70, 0xabe2}, {0xac00, 0xd7a3}, {0xd7b0, 0xd7c6}, {0xd7cb, 0xd7fb}, {0xf900, 0xfa6d},
    {0xfa70, 0xfad9}, {0xfb00, 0xfb06}, {0xfb13, 0xfb17}, {0xfb1d, 0xfb1d}, {0xfb1f, 0xfb28},
    {0xfb2a, 0xfb36}, {0xfb38, 0xfb3c}, {0xfb3e, 0xfb3e}, {0xfb40, 0xfb41}, {0xfb43, 0xfb44},
    {0xfb46, 0xfbb1}, {0xfbd3, 0xfd3d}, {0xfd50, 0xfd8f}, {0xfd92, 0xfdc7}, {0xfdf0, 0xfdfb},
    {0xfe70, 0xfe74}, {0xfe76, 0xfefc}, {0xff21, 0xff3a}, {0xff41, 0xff5a}, {0xff66, 0xffbe},
    {0xffc2, 0xffc7}, {0xffca, 0xffcf}, {0xffd2, 0xffd7}, {0xffda, 0xffdc}, {0x10000, 0x1000b},
    {0x1000d, 0x10026}, {0x10028, 0x1003a}, {0x1003c, 0x1003d}, {0x1003f, 0x1004d},
    {0x10050, 0x1005d}, {0x10080, 0x100fa}, {0x10280, 0x1029c}, {0x102a0, 0x102d0},
    {0x10300, 0x1031f}, {0x1032d, 0x10340}, {0x10342, 0x10349}, {0x10350, 0x10375},
    {0x10380, 0x1039d}, {0x103a0, 0x103c3}, {0x103c8, 0x103cf}, {0x10400, 0x1049d},
    {0x104b0, 0x104d3}, {0x104d8, 0x104fb}, {0x10500, 0x10527}, {0x10530, 0x10563},
    {0x10570, 0x1057a}, {0x1057c, 0x1058a}, {0x1058c, 0x10592}, {0x10594, 0x10595},
    {0x10597, 0x105a1}, {0x105a3, 0x105b1}, {0x105b3, 0x105b9}, {0x105bb, 0x105bc},
    {0x10600, 0x10736}, {0x10740, 0x10755}, {0x10760, 0x10767}, {0x10780, 0x10785},
    {0x10787, 0x107b0}, {0x107b2, 0x107ba}, {0x10800, 0x10805}, {0x10808, 0x10808},
    {0x1080a, 0x10835}, {0x10837, 0x10838}, {0x1083c, 0x1083c}, {0x1083f, 0x10855},
    {0x10860, 0x10876}, {0x10880, 0x1089e}, {0x108e0, 0x108f2}, {0x108f4, 0x108f5},
    {0x10900, 0x10915}, {0x10920, 0x10939}, {0x10980, 0x109b7}, {0x109be, 0x109bf},
    {0x10a00, 0x10a00}, {0x10a10, 0x10a13}, {0x10a15, 0x10a17}, {0x10a19, 0x10a35},
    {0x10a60, 0x10a7c}, {0x10a80, 0x10a9c}, {0x10ac0, 0x10ac7}, {0x10ac9, 0x10ae4},
    {0x10b00, 0x10b35}, {0x10b40, 0x10b55}, {0x10b60, 0x10b72}, {0x10b80, 0x10b91},
    {0x10c00, 0x10c48}, {0x10c80, 0x10cb2}, {0x10cc0, 0x10cf2}, {0x10d00, 0x10d23},
    {0x10e80, 0x10ea9}, {0x10eb0, 0x10eb1}, {0x10f00, 0x10f1c}, {0x10f27, 0x10f27},
    {0x10f30, 0x10f45}, {0x10f70, 0x10f81}, {0x10fb0, 0x10fc4}, {0x10fe0, 0x10ff6},
    {0x11003, 0x11037}, {0x11071, 0x11072}, {0x11075, 0x11075}, {0x11083, 0x110af},
    {0x110d0, 0x110e8}, {0x11103, 0x11126}, {0x11144, 0x11144}, {0x11147, 0x11147},
    {0x11150, 0x11172}, {0x11176, 0x11176}, {0x11183, 0x111b2}, {0x111c1, 0x111c4},
    {0x111da, 0x111da}, {0x111dc, 0x111dc}, {0x11200, 0x11211}, {0x11213, 0x1122b},
    {0x11280, 0x11286}, {0x11288, 0x11288}, {0x1128a, 0x1128d}, {0x1128f, 0x1129d},
    {0x1129f, 0x112a8}, {0x112b0, 0x112de}, {0x11305, 0x1130c}, {0x1130f, 0x11310},
    {0x11313, 0x11328}, {0x1132a, 0x11330}, {0x11332, 0x11333}, {0x11335, 0x11339},
    {0x1133d, 0x1133d}, {0x11350, 0x11350}, {0x1135d, 0x11361}, {0x11400, 0x11434},
    {0x11447, 0x1144a}, {0x1145f, 0x11461}, {0x11480, 0x114af}, {0x114c4, 0x114c5},
    {0x114c7, 0x114c7}, {0x11580, 0x115ae}, {0x115d8, 0x115db}, {0x11600, 0x1162f},
    {0x11644, 0x11644}, {0x11680, 0x116aa}, {0x116b8, 0x116b8}, {0x11700, 0x1171a},
    {0x11740, 0x11746}, {0x11800, 0x1182b}, {0x118a0, 0x118df}, {0x118ff, 0x11906},
    {0x11909, 0x11909}, {0x1190c, 0x11913}, {0x11915, 0x11916}, {0x11918, 0x1192f},
    {0x1193f, 0x1193f}, {0x11941, 0x11941}, {0x119a0, 0x119a7}, {0x119aa, 0x119d0},
    {0x119e1, 0x119e1}, {0x119e3, 0x119e3}, {0x11a00, 0x11a00}, {0x11a0b, 0x11a32},
    {0x11a3a, 0x11a3a}, {0x11a50, 0x11a50}, {0x11a5c, 0x11a89}, {0x11a9d, 0x11a9d},
    {0x11ab0, 0x11af8}, {0x11c00, 0x11c08}, {0x11c0a, 0x11c2e}, {0x11c40, 0x11c40},
    {0x11c72, 0x11c8f}, {0x11d00, 0x11d06}, {0x11d08, 0x11d09}, {0x11d0b, 0x11d30},
    {0x11d46, 0x11d46}, {0x11d60, 0x11d65}, {0x11d67, 0x11d68}, {0x11d6a, 0x11d89},
    {0x11d98, 0x11d98}, {0x11ee0, 0x11ef2}, {0x11fb0, 0x11fb0}, {0x12000, 0x12399},
    {0x12480, 0x12543}, {0x12f90, 0x12ff0}, {0x13000, 0x1342e}, {0x14400, 0x14646},
    {0x16800, 0x16a38}, {0x16a40, 0x16a5e}, {0x16a70, 0x16abe}, {0x16ad0, 0x16aed},
    {0x16b00, 0x16b2f}, {0x16b40, 0x16b43}, {0x16b63, 0x16b77}, {0x16b7d, 0x16b8f},
    {0x16e40, 0x16e7f}, {0x16f00, 0x16f4a}, {0x16f50, 0x16f50}, {0x16f93, 0x16f9f},
    {0x16fe0, 0x16fe1}, {0x16fe3, 0x16fe3}, {0x17000, 0x187f7}, {0x18800, 0x18cd5},
    {0x18d00, 0x18d08}, {0x1aff0, 0x1aff3}, {0x1aff5, 0x1affb}, {0x1affd, 0x1affe},
    {0x1b000, 0x1b122}, {0x1b150, 0x1b152}, {0x1b164, 0x1b167}, {0x1b170, 0x1b2fb},
    {0x1bc00, 0x1bc6a}, {0x1bc70, 0x1bc7c}, {0x1bc80, 0x1bc88}, {0x1bc90, 0x1bc99},
    {0x1d400, 0x1d454}, {0x1d456, 0x1d49c}, {0x1d49e, 0x1d49f}, {0x1d4a2, 0x1d4a2},
    {0x1d4a5, 0x1d4a6}, {0x1d4a9, 0x1d4ac}, {0x1d4ae, 0x1d4b9}, {0x1d4bb, 0x1d4bb},
    {0x1d4bd, 0x1d4c3}, {0x1d4c5, 0x1d505}, {0x1d507, 0x1d50a}, {0x1d50d, 0x1d514},
    {0x1d516, 0x1d51c}, {0x1d51e, 0x1d539}, {0x1d53b, 0x1d53e}, {0x1d540, 0x1d544},
    {0x1d546, 0x1d546}, {0x1d54a, 0x1d550}, {0x1d552, 0x1d6a5}, {0x1d6a8, 0x1d6c0},
    {0x1d6c2, 0x1d6da}, {0x1d6dc, 0x1d6fa}, {0x1d6fc, 0x1d714}, {0x1d716, 0x1d734},
    {0x1d736, 0x1d74e}, {0x1d750, 0x1d76e}, {0x1d770, 0x1d788}, {0x1d78a, 0x1d7a8},
    {0x1d7aa, 0x1d7c2}, {0x1d7c4, 0x1d7cb}, {0x1df00, 0x1df1e}, {0x1e100, 0x1e12c},
    {0x1e137, 0x1e13d}, {0x1e14e, 0x1e14e}, {0x1e290, 0x1e2ad}, {0x1e2c0, 0x1e2eb},
    {0x1e7e0, 0x1e7e6}, {0x1e7e8, 0x1e7eb}, {0x1e7ed, 0x1e7ee}, {0x1e7f0, 0x1e7fe},
    {0x1e800, 0x1e8c4}, {0x1e900, 0x1e943}, {0x1e94b, 0x1e94b}, {0x1ee00, 0x1ee03},
    {0x1ee05, 0x1ee1f}, {0x1ee21, 0x1ee22}, {0x1ee24, 0x1ee24}, {0x1ee27, 0x1ee27},
    {0x1ee29, 0x1ee32}, {0x1ee34, 0x1ee37}, {0x1ee39, 0x1ee39}, {0x1ee3b, 0x1ee3b},
    {0x1ee42, 0x1ee42}, {0x1ee47, 0x1ee47}, {0x1ee49, 0x1ee49}, {0x1ee4b, 0x1ee4b},
    {0x1ee4d, 0x1ee4f}, {0x1ee51, 0x1ee52}, {0x1ee54, 0x1ee54}, {0x1ee57, 0x1ee57},
    {0x1ee59, 0x1ee59}, {0x1ee5b, 0x1ee5b}, {0x1ee5d, 0x1ee5d}, {0x1ee5f, 0x1ee5f},
    {0x1ee61, 0x1ee62}, {0x1ee64, 0x1ee64}, {0x1ee67, 0x1ee6a}, {0x1ee6c, 0x1ee72},
    {0x1ee74, 0x1ee77}, {0x1ee79, 0x1ee7c}, {0x1ee7e, 0x1ee7e}, {0x1ee80, 0x1ee89},
    {0x1ee8b, 0x1ee9b}, {0x1eea1, 0x1eea3}, {0x1eea5, 0x1eea9}, {0x1eeab, 0x1eebb},
    {0x20000, 0x2a6df}, {0x2a700, 0x2b738}, {0x2b740, 0x2b81d}, {0x2b820, 0x2cea1},
    {0x2ceb0, 0x2ebe0}, {0x2f800, 0x2fa1d}, {0x30000, 0x3134a}
};
static const uint32_t tk_numbers[][2] = {
    {0x30, 0x39}, {0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}, {0x660, 0x669}, {0x6f0, 0x6f9},
    {0x7c0, 0x7c9}, {0x966, 0x96f}, {0x9e6, 0x9ef}, {0x9f4, 0x9f9}, {0xa66, 0xa6f}, {0xae6, 0xaef},
    {0xb66, 0xb6f}, {0xb72, 0xb77}, {0xbe6, 0xbf2}, {0xc66, 0xc6f}, {0xc78, 0xc7e}, {0xce6, 0xcef},
    {0xd58, 0xd5e}, {0xd66, 0xd78}, {0xde6, 0xdef}, {0xe50, 0xe59}, {0xed0, 0xed9}, {0xf20, 0xf33},
    {0x1040, 0x1049}, {0x1090, 0x1099}, {0x1369, 0x137c}, {0x16ee, 0x16f0}, {0x17e0, 0x17e9},
    {0x17f0, 0x17f9}, {0x1810, 0x1819}, {0x1946, 0x194f}, {0x19d0, 0x19da}, {0x1a80, 0x1a89},
    {0x1a90, 0x1a99}, {0x1b50, 0x1b59}, {0x1bb0, 0x1bb9}, {0x1c40, 0x1c49}, {0x1c50, 0x1c59},
    {0x2070, 0x2070}, {0x2074, 0x2079}, {0x2080, 0x2089}, {0x2150, 0x2182}, {0x2185, 0x2189},
    {0x2460, 0x249b}, {0x24ea, 0x24ff}, {0x2776, 0x2793}, {0x2cfd, 0x2cfd}, {0x3007, 0x3007},
    {0x3021, 0x3029}, {0x3038, 0x303a}, {0x3192, 0x3195}, {0x3220, 0x3229}, {0x3248, 0x324f},
    {0x3251, 0x325f}, {0x3280, 0x3289}, {0x32b1, 0x32bf}, {0xa620, 0xa629}, {0xa6e6, 0xa6ef},
    {0xa830, 0xa835}, {0xa8d0, 0xa8d9}, {0xa900, 0xa909}, {0xa9d0, 0xa9d9}, {0xa9f0, 0xa9f9},
    {0xaa50, 0xaa59}, {0xabf0, 0xabf9}, {0xff10, 0xff19}, {0x10107, 0x10133}, {0x10140, 0x10178},
    {0x1018a, 0x1018b}, {0x102e1, 0x102fb}, {0x10320, 0x10323}, {0x10341, 0x10341},
    {0x1034a, 0x1034a}, {0x103d1, 0x103d5}, {0x104a0, 0x104a9}, {0x10858, 0x1085f},
    {0x10879, 0x1087f}, {0x108a7, 0x108af}, {0x108fb, 0x108ff}, {0x10916, 0x1091b},
    {0x109bc, 0x109bd}, {0x109c0, 0x109cf}, {0x109d2, 0x109ff}, {0x10a40, 0x10a48},
    {0x10a7d, 0x10a7e}, {0x10a9d, 0x10a9f}, {0x10aeb, 0x10aef}, {0x10b58, 0x10b5f},
    {0x10b78, 0x10b7f}, {0x10ba9, 0x10baf}, {0x10cfa, 0x10cff}, {0x10d30, 0x10d39},
    {0x10e60, 0x10e7e}, {0x10f1d, 0x10f26}, {0x10f51, 0x10f54}, {0x10fc5, 0x10fcb},
    {0x11052, 0x1106f}, {0x110f0, 0x110f9}, {0x11136, 0x1113f}, {0x111d0, 0x111d9},
    {0x111e1, 0x111f4}, {0x112f0, 0x112f9}, {0x11450, 0x11459}, {0x114d0, 0x114d9},
    {0x11650, 0x11659}, {0x116c0, 0x116c9}, {0x11730, 0x1173b}, {0x118e0, 0x118f2},
    {0x11950, 0x11959}, {0x11c50, 0x11c6c}, {0x11d50, 0x11d59}, {0x11da0, 0x11da9},
    {0x11fc0, 0x11fd4}, {0x12400, 0x1246e}, {0x16a60, 0x16a69}, {0x16ac0, 0x16ac9},
    {0x16b50, 0x16b59}, {0x16b5b, 0x16b61}, {0x16e80, 0x16e96}, {0x1d2e0, 0x1d2f3},
    {0x1d360, 0x1d378}, {0x1d7ce, 0x1d7ff}, {0x1e140, 0x1e149}, {0x1e2f0, 0x1e2f9},
    {0x1e8c7, 0x1e8cf}, {0x1e950, 0x1e959}, {0x1ec71, 0x1ecab}, {0x1ecad, 0x1ecaf},
    {0x1ecb1, 0x1ecb4}, {0x1ed01, 0x1ed2d}, {0x1ed2f, 0x1ed3d}, {0x1f100, 0x1f10c},
    {0x1fbf0, 0x1fbf9}
};
#define TK_RANGES(table) (sizeof(table) / sizeof((table)[0]))

typedef enum tk_class { TK_LETTER, TK_NUMBER, TK_SPACE, TK_OTHER } tk_class;

static int tk_in(const uint32_t (*ranges)[2], size_t n, uint32_t code)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (code > ranges[middle][1]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < n && code >= ranges[low][0];
}

/* -1 (an invalid byte) counts as a symbol. */
static tk_class tk_classify(int32_t code)
{
    uint32_t c = (uint32_t)code;
    if (code < 0) {
        return TK_OTHER;
    }
    if (c < 0x80) { /* most text; control characters count as spaces only here */
        return (c | 0x20) - 'a' < 26 ? TK_LETTER : c - '0' < 10 ? TK_NUMBER :
               c == ' ' || c - 9 < 5 ? TK_SPACE : TK_OTHER;
    }
    /* The property White_Space above ASCII (PropList.txt). */
    if (c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
        c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000) {
        return TK_SPACE;
    }
    return tk_in(tk_letters, TK_RANGES(tk_letters), c) ? TK_LETTER :
           tk_in(tk_numbers, TK_RANGES(tk_numbers), c) ? TK_NUMBER : TK_OTHER;
}

/* ---- languages ---- */

#define TK_LANGUAGES 100

/* Code and English name, in the order of the language tokens. */
static const char *const tk_languages[][2] = {
    {"en", "english"}, {"zh", "chinese"}, {"de", "german"}, {"es", "spanish"}, {"ru", "russian"},
    {"ko", "korean"}, {"fr", "french"}, {"ja", "japanese"}, {"pt", "portuguese"}, {"tr", "turkish"},
    {"pl", "polish"}, {"ca", "catalan"}, {"nl", "dutch"}, {"ar", "arabic"}, {"sv", "swedish"},
    {"it", "italian"}, {"id", "indonesian"}, {"hi", "hindi"}, {"fi", "finnish"},
    {"vi", "vietnamese"}, {"he", "hebrew"}, {"uk", "ukrainian"}, {"el", "greek"}, {"ms", "malay"},
    {"cs", "czech"}, {"ro", "romanian"}, {"da", "danish"}, {"hu", "hungarian"}, {"ta", "tamil"},
    {"no", "norwegian"}, {"th", "thai"}, {"ur", "urdu"}, {"hr", "croatian"}, {"bg", "bulgarian"},
    {"lt", "lithuanian"}, {"la", "latin"}, {"mi", "maori"}, {"ml", "malayalam"}, {"cy", "welsh"},
    {"sk", "slovak"}, {"te", "telugu"}, {"fa", "persian"}, {"lv", "latvian"}, {"bn", "bengali"},
    {"sr", "serbian"}, {"az", "azerbaijani"}, {"sl", "slovenian"}, {"kn", "kannada"},
    {"et", "estonian"}, {"mk", "macedonian"}, {"br", "breton"}, {"eu", "basque"},
    {"is", "icelandic"}, {"hy", "armenian"}, {"ne", "nepali"}, {"mn", "mongolian"},
    {"bs", "bosnian"}, {"kk", "kazakh"}, {"sq", "albanian"}, {"sw", "swahili"}, {"gl", "galician"},
    {"mr", "marathi"}, {"pa", "punjabi"}, {"si", "sinhala"}, {"km", "khmer"}, {"sn", "shona"},
    {"yo", "yoruba"}, {"so", "somali"}, {"af", "afrikaans"}, {"oc", "occitan"}, {"ka", "georgian"},
    {"be", "belarusian"}, {"tg", "tajik"}, {"sd", "sindhi"}, {"gu", "gujarati"}, {"am", "amharic"},
    {"yi", "yiddish"}, {"lo", "lao"}, {"uz", "uzbek"}, {"fo", "faroese"}, {"ht", "haitian creole"},
    {"ps", "pashto"}, {"tk", "turkmen"}, {"nn", "nynorsk"}, {"mt", "maltese"}, {"sa", "sanskrit"},
    {"lb", "luxembourgish"}, {"my", "myanmar"}, {"bo", "tibetan"}, {"tl", "tagalog"},
    {"mg", "malagasy"}, {"as", "assamese"}, {"tt", "tatar"}, {"haw", "hawaiian"}, {"ln", "lingala"},
    {"ha", "hausa"}, {"ba", "bashkir"}, {"jw", "javanese"}, {"su", "sundanese"},
    {"yue", "cantonese"}
};

/* Other English names and codes: ISO 639-2 and 639-3, deprecated codes, and codes of the same
 * language. */
static const char *const tk_aliases[][2] = {
    {"my", "burmese"}, {"ca", "valencian"}, {"nl", "flemish"}, {"ht", "haitian"},
    {"lb", "letzeburgesch"}, {"ps", "pushto"}, {"pa", "panjabi"}, {"ro", "moldavian"},
    {"ro", "moldovan"}, {"si", "sinhalese"}, {"es", "castilian"}, {"zh", "mandarin"},
    {"tl", "filipino"}, {"no", "bokmal"}, {"fa", "farsi"}, {"bn", "bangla"},
    {"en", "eng"}, {"zh", "zho"}, {"zh", "chi"}, {"zh", "cmn"}, {"de", "deu"}, {"de", "ger"},
    {"es", "spa"}, {"ru", "rus"}, {"ko", "kor"}, {"fr", "fra"}, {"fr", "fre"}, {"ja", "jpn"},
    {"pt", "por"}, {"tr", "tur"}, {"pl", "pol"}, {"ca", "cat"}, {"nl", "nld"}, {"nl", "dut"},
    {"ar", "ara"}, {"ar", "arb"}, {"sv", "swe"}, {"it", "ita"}, {"id", "ind"}, {"id", "in"},
    {"hi", "hin"}, {"fi", "fin"}, {"vi", "vie"}, {"he", "heb"}, {"he", "iw"}, {"uk", "ukr"},
    {"el", "ell"}, {"el", "gre"}, {"ms", "msa"}, {"ms", "may"}, {"ms", "zsm"}, {"cs", "ces"},
    {"cs", "cze"}, {"ro", "ron"}, {"ro", "rum"}, {"ro", "mo"}, {"da", "dan"}, {"hu", "hun"},
    {"ta", "tam"}, {"no", "nor"}, {"no", "nb"}, {"no", "nob"}, {"th", "tha"}, {"ur", "urd"},
    {"hr", "hrv"}, {"bg", "bul"}, {"lt", "lit"}, {"la", "lat"}, {"mi", "mri"}, {"mi", "mao"},
    {"ml", "mal"}, {"cy", "cym"}, {"cy", "wel"}, {"sk", "slk"}, {"sk", "slo"}, {"te", "tel"},
    {"fa", "fas"}, {"fa", "per"}, {"fa", "pes"}, {"fa", "prs"}, {"lv", "lav"}, {"lv", "lvs"},
    {"bn", "ben"}, {"sr", "srp"}, {"sr", "sh"}, {"az", "aze"}, {"az", "azj"}, {"sl", "slv"},
    {"kn", "kan"}, {"et", "est"}, {"et", "ekk"}, {"mk", "mkd"}, {"mk", "mac"}, {"br", "bre"},
    {"eu", "eus"}, {"eu", "baq"}, {"is", "isl"}, {"is", "ice"}, {"hy", "hye"}, {"hy", "arm"},
    {"ne", "nep"}, {"ne", "npi"}, {"mn", "mon"}, {"mn", "khk"}, {"bs", "bos"}, {"kk", "kaz"},
    {"sq", "sqi"}, {"sq", "alb"}, {"sq", "als"}, {"sw", "swa"}, {"sw", "swh"}, {"gl", "glg"},
    {"mr", "mar"}, {"pa", "pan"}, {"pa", "pnb"}, {"si", "sin"}, {"km", "khm"}, {"sn", "sna"},
    {"yo", "yor"}, {"so", "som"}, {"af", "afr"}, {"oc", "oci"}, {"ka", "kat"}, {"ka", "geo"},
    {"be", "bel"}, {"tg", "tgk"}, {"sd", "snd"}, {"gu", "guj"}, {"am", "amh"}, {"yi", "yid"},
    {"yi", "ji"}, {"uz", "uzb"}, {"uz", "uzn"}, {"fo", "fao"}, {"ht", "hat"}, {"ps", "pus"},
    {"ps", "pbu"}, {"tk", "tuk"}, {"nn", "nno"}, {"mt", "mlt"}, {"sa", "san"}, {"lb", "ltz"},
    {"my", "mya"}, {"my", "bur"}, {"bo", "bod"}, {"bo", "tib"}, {"tl", "tgl"}, {"tl", "fil"},
    {"mg", "mlg"}, {"mg", "plt"}, {"as", "asm"}, {"tt", "tat"}, {"ln", "lin"}, {"ha", "hau"},
    {"ba", "bak"}, {"jw", "jv"}, {"jw", "jav"}, {"su", "sun"}
};

WNPU_API int wnpu_language_count(void)
{
    return TK_LANGUAGES;
}

WNPU_API const char *wnpu_language_code(int language)
{
    return language >= 0 && language < TK_LANGUAGES ? tk_languages[language][0] : NULL;
}

WNPU_API const char *wnpu_language_name(int language)
{
    return language >= 0 && language < TK_LANGUAGES ? tk_languages[language][1] : NULL;
}

/* Whether given equals the lower-case name if the case of ASCII letters is ignored. tolower() would
 * depend on the locale. */
static int tk_equals_ascii_nocase(const char *name, const char *given)
{
    size_t i;
    for (i = 0; name[i] != '\0'; i++) {
        char c = given[i];
        if (c >= 'A' && c <= 'Z') {
            c = (char)(c - 'A' + 'a');
        }
        if (c != name[i]) {
            return 0;
        }
    }
    return given[i] == '\0';
}

/* Index of the language with this code or name, or -1. */
static int tk_find_language(const char *wanted)
{
    size_t i;
    int language;
    for (i = 0; i < sizeof tk_aliases / sizeof tk_aliases[0]; i++) {
        if (tk_equals_ascii_nocase(tk_aliases[i][1], wanted)) {
            wanted = tk_aliases[i][0];
            break;
        }
    }
    for (language = 0; language < TK_LANGUAGES; language++) {
        if (tk_equals_ascii_nocase(tk_languages[language][0], wanted) ||
            tk_equals_ascii_nocase(tk_languages[language][1], wanted)) {
            return language;
        }
    }
    return -1;
}

static int tk_is_alphanumeric(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Whether text is a sequence of BCP 47 subtags, each preceded by its separator, optionally followed
 * by the encoding or modifier of a POSIX locale name. */
static int tk_are_subtags(const char *text)
{
    while (*text == '-' || *text == '_') {
        size_t length = 0;
        for (text++; tk_is_alphanumeric(*text); text++) {
            length++;
        }
        if (length < 1 || length > 8) {
            return 0;
        }
    }
    return *text == '\0' || *text == '.' || *text == '@';
}

WNPU_API int wnpu_language_id(const char *code_or_name)
{
    char primary[4] = "";
    const char *tag = code_or_name;
    size_t length = 0;
    int language = tag != NULL ? tk_find_language(tag) : -1;
    if (tag == NULL || language >= 0) {
        return language;
    }
    while (tk_is_alphanumeric(tag[length])) {
        length++;
    }
    if (length < 2 || length > 3 || !tk_are_subtags(tag + length)) {
        return -1;
    }
    memcpy(primary, tag, length);
    language = tk_find_language(primary);
    /* An extended language subtag names the language itself: zh-yue is Cantonese. */
    if (language >= 0 && tag[length] != '\0') {
        size_t extended = 0;
        const char *next = tag + length + 1;
        while (tk_is_alphanumeric(next[extended])) {
            extended++;
        }
        if (extended == 3 && (next[0] < '0' || next[0] > '9')) {
            memcpy(primary, next, extended);
            primary[extended] = '\0';
            return tk_find_language(primary) >= 0 ? tk_find_language(primary) : language;
        }
    }
    return language;
}

/* ---- vocabulary ---- */

#define TK_TIMESTAMPS 1501     /* <|0.00|> to <|30.00|> */
#define TK_OTHER_SPECIALS 1509 /* timestamps and all others that are not languages */
#define TK_NAME 24             /* bytes for the name of a special token */
#define TK_GPT2_ORDINARY 50256 /* of the English-only models, whose vocabulary is GPT-2's */
#define TK_MAX_VOCAB (1 << 20)
#define TK_MAX_BYTES ((size_t)1 << 28)
#define TK_MAX_PROBES 256      /* runs of used slots stay far below 100 at half load */

typedef struct tk_vocab {
    int32_t n_vocab;         /* size of the logits */
    int32_t n_mels;          /* of the model; 0: unknown */
    int32_t n_base;          /* tokens in the file; those below eot are ordinary */
    int32_t n_added;         /* tokens added so far */
    uint32_t *offset;        /* [n_base + 1] into bytes */
    char *bytes;             /* token bytes, each followed by a NUL */
    size_t bytes_size;
    uint32_t *slots;         /* [slot_mask + 1] hash table: id + 1; 0: empty; linear probing */
    uint32_t slot_mask;
    uint32_t longest;        /* bytes of the longest ordinary token */
    int32_t byte_id[256];    /* token of each single byte */
    int32_t encodable;       /* every single byte has a token */
    char *special;           /* [n_special][TK_NAME] names from eot on */
    int32_t n_special;       /* up to the last timestamp; higher ids are unused */
    int32_t multilingual;
    int32_t n_languages;     /* 0 when not multilingual */
    int32_t eot, sot;
    int32_t language0;       /* <|en|>; language tokens end at translate - 1 */
    int32_t translate, transcribe, sot_lm, sot_prev, no_speech, no_timestamps;
    int32_t timestamp0;      /* <|0.00|>; one token per 20 ms */
} tk_vocab;

/* Checks sizes from a file before tk_carve() uses them. total_bytes is the sum of the tokens'
 * lengths. */
static int tk_check(int32_t n_vocab, int32_t n_base, size_t total_bytes, wnpu_error *error)
{
    if (n_vocab < 1 || n_vocab > TK_MAX_VOCAB || n_base < 1 || n_base > n_vocab ||
        total_bytes > TK_MAX_BYTES) {
        return er_set(error, WNPU_E_MODEL, "the file has %ld tokens for a vocabulary of %ld, "
                      "which is not possible; it is damaged or not a Whisper model",
                      (long)n_base, (long)n_vocab);
    }
    return WNPU_OK;
}

/* Carves a vocabulary of sizes that tk_check() accepts; others are treated as an overflow. */
static void tk_carve(ar_arena *arena, tk_vocab *v, int32_t n_vocab, int32_t n_base,
                     size_t total_bytes)
{
    uint32_t slots = 512;
    memset(v, 0, sizeof *v);
    if (tk_check(n_vocab, n_base, total_bytes, NULL) != WNPU_OK) {
        arena->overflow = 1;
        return;
    }
    while (slots < 2 * (uint32_t)n_base) {
        slots *= 2;
    }
    v->n_vocab = n_vocab;
    v->n_base = n_base;
    v->bytes_size = total_bytes + (size_t)n_base;
    v->slot_mask = slots - 1;
    v->offset = ar_carve(arena, (size_t)n_base + 1, sizeof *v->offset);
    v->bytes = ar_carve(arena, v->bytes_size, 1);
    v->slots = ar_carve(arena, slots, sizeof *v->slots);
    v->special = ar_carve(arena, TK_LANGUAGES + TK_OTHER_SPECIALS, TK_NAME);
}

/* Adds token id, which must be the next one. */
static int tk_add(tk_vocab *v, int32_t id, const char *bytes, size_t length)
{
    size_t at;
    if (id != v->n_added || id >= v->n_base) {
        return WNPU_E_INTERNAL;
    }
    if (id == 0) {
        v->offset[0] = 0;
    }
    at = v->offset[id];
    if (length >= v->bytes_size - at) { /* the sizes changed since they were summed */
        return WNPU_E_MODEL;
    }
    if (length > 0) {
        memcpy(v->bytes + at, bytes, length);
    }
    v->bytes[at + length] = '\0';
    v->offset[id + 1] = (uint32_t)(at + length + 1);
    v->n_added++;
    return WNPU_OK;
}

static size_t tk_length(const tk_vocab *v, int32_t id)
{
    return (size_t)v->offset[id + 1] - v->offset[id] - 1;
}

/* FNV-1a with the final mix of MurmurHash3, because the low bits select the slot. */
static uint32_t tk_hash(const char *bytes, size_t length)
{
    uint32_t h = 2166136261u;
    size_t i;
    for (i = 0; i < length; i++) {
        h = (h ^ (unsigned char)bytes[i]) * 16777619u;
    }
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    return h ^ h >> 16;
}

/* The slot that holds the bytes, or the empty one where they would be stored. NULL after too many
 * probes, which only a maliciously constructed file causes. */
static uint32_t *tk_slot(const tk_vocab *v, const char *bytes, size_t length)
{
    uint32_t at = tk_hash(bytes, length), probes;
    for (probes = 0; probes < TK_MAX_PROBES; probes++, at++) {
        uint32_t *slot = &v->slots[at & v->slot_mask];
        int32_t id = (int32_t)*slot - 1;
        if (id < 0 || (tk_length(v, id) == length &&
                       memcmp(v->bytes + v->offset[id], bytes, length) == 0)) {
            return slot;
        }
    }
    return NULL;
}

/* The lowest ordinary token with exactly these bytes, or -1. */
static int32_t tk_find(const tk_vocab *v, const char *bytes, size_t length)
{
    const uint32_t *slot;
    if (length == 0 || length > v->longest) {
        return -1;
    }
    slot = tk_slot(v, bytes, length);
    return slot == NULL ? -1 : (int32_t)*slot - 1;
}

/* Enters the ordinary tokens into the hash table. The multilingual vocabulary has one empty token,
 * 50256, which is never the result of encoding. */
static int tk_build_table(tk_vocab *v, int32_t n_ordinary, wnpu_error *error)
{
    int32_t id;
    memset(v->slots, 0, ((size_t)v->slot_mask + 1) * sizeof *v->slots);
    for (id = 0; id < n_ordinary; id++) {
        size_t length = tk_length(v, id);
        if (length > 0) {
            uint32_t *slot = tk_slot(v, v->bytes + v->offset[id], length);
            if (slot == NULL) {
                return er_set(error, WNPU_E_MODEL, "the hashes of the vocabulary's tokens collide: "
                              "the model file was tampered with");
            }
            if (*slot == 0) {
                *slot = (uint32_t)id + 1;
            }
            v->longest = length > v->longest ? (uint32_t)length : v->longest;
        }
    }
    return WNPU_OK;
}

/* The first token with this name, or -1. Files converted from other tools' vocabularies list
 * special tokens among the ordinary ones. */
static int32_t tk_find_special(const tk_vocab *v, const char *name)
{
    size_t length = strlen(name);
    int32_t id;
    for (id = 0; id < v->n_base; id++) {
        if (tk_length(v, id) == length && memcmp(v->bytes + v->offset[id], name, length) == 0) {
            return id;
        }
    }
    return -1;
}

/* Finds where the special tokens are: eot is the number of ordinary tokens, the others follow from
 * the number of languages. Both are taken from the names of tokens if the file has them; ggml files
 * rarely do. Otherwise OpenAI's three vocabularies are recognised by their sizes, and others by the
 * number of tokens. Sizes that two layouts share are refused. */
static int tk_layout(const tk_vocab *v, int32_t *eot, int32_t *languages, wnpu_error *error)
{
    int32_t named = tk_find_special(v, "<|endoftext|>");
    int32_t translate = tk_find_special(v, "<|translate|>");
    int known = v->n_vocab >= 51864 && v->n_vocab <= 51866;
    *eot = named >= 0 ? named : !known ? v->n_base
           : v->n_vocab == 51864 ? TK_GPT2_ORDINARY : TK_GPT2_ORDINARY + 1;
    *languages = translate >= 0 ? translate - *eot - 2
                 : !known ? v->n_vocab - *eot - TK_OTHER_SPECIALS
                 : v->n_vocab == 51866 && *eot > TK_GPT2_ORDINARY ? 100 : 99;
    if (v->n_base < *eot) {
        return er_set(error, WNPU_E_MODEL, "the file holds %ld of the %ld ordinary tokens that a "
                      "vocabulary of %ld has; it is damaged", (long)v->n_base, (long)*eot,
                      (long)v->n_vocab);
    }
    if (translate < 0 && v->n_vocab == 51866 && *languages == 100 && v->n_mels > 0 &&
        v->n_mels < 128) {
        return er_set(error, WNPU_E_UNSUPPORTED, "51866 tokens and %ld mel bins: with 100 "
                      "languages, or with 99 and an added token? The file does not name them; make "
                      "a pack of the Hugging Face files, which do", (long)v->n_mels);
    }
    if (*languages < 0 || *languages > TK_LANGUAGES ||
        v->n_vocab - *eot - TK_OTHER_SPECIALS < *languages) {
        return er_set(error, WNPU_E_MODEL, "cannot tell which of %ld tokens, with %ld ordinary "
                      "ones, are special; known sizes are 51864, 51865 and 51866",
                      (long)v->n_vocab, (long)*eot);
    }
    return WNPU_OK;
}

/* The name of special token id, eot..eot + n_special - 1. */
static void tk_special_name(const tk_vocab *v, int32_t id, char name[TK_NAME])
{
    const char *word = id == v->eot ? "endoftext" : id == v->sot ? "startoftranscript"
                       : id < v->translate ? tk_languages[id - v->language0][0]
                       : id == v->translate ? "translate" : id == v->transcribe ? "transcribe"
                       : id == v->sot_lm ? "startoflm" : id == v->sot_prev ? "startofprev"
                       : id == v->no_speech ? "nospeech" : "notimestamps";
    int32_t step = id - v->timestamp0;
    if (step >= 0) {
        (void)snprintf(name, TK_NAME, "<|%d.%02d|>", (int)(step / 50 % 100), (int)(step % 50 * 2));
    } else {
        (void)snprintf(name, TK_NAME, "<|%s|>", word);
    }
}

static void tk_name_all(tk_vocab *v)
{
    int32_t i;
    for (i = 0; i < v->n_special; i++) {
        tk_special_name(v, v->eot + i, v->special + (size_t)i * TK_NAME);
    }
}

/* Whether the file's text of token id is an accepted alternative of its name in the layout. */
static int tk_is_alias(const tk_vocab *v, int32_t id, const char *text, size_t length)
{
    static const char captions[] = "<|nocaptions|>"; /* nospeech in transformers until 2023 */
    char code[TK_NAME];
    if (id == v->no_speech) {
        return length == sizeof captions - 1 && memcmp(text, captions, length) == 0;
    }
    if (id < v->language0 || id >= v->translate || length < 5 || length >= sizeof code) {
        return 0;
    }
    memcpy(code, text + 2, length - 4);
    code[length - 4] = '\0';
    return memcmp(text, "<|", 2) == 0 && wnpu_language_id(code) == id - v->language0;
}

/* Checks that special tokens named in the file are where the layout has them; other texts in that
 * range are ignored. */
static int tk_check_names(const tk_vocab *v, wnpu_error *error)
{
    int32_t id;
    for (id = v->eot; id < v->n_base && id < v->eot + v->n_special; id++) {
        const char *text = v->bytes + v->offset[id];
        size_t length = tk_length(v, id);
        char name[TK_NAME];
        tk_special_name(v, id, name);
        if (length > 4 && memcmp(text, "<|", 2) == 0 && memcmp(text + length - 2, "|>", 2) == 0 &&
            (length != strlen(name) || memcmp(text, name, length) != 0) &&
            !tk_is_alias(v, id, text, length)) {
            return er_set(error, WNPU_E_UNSUPPORTED, "token %ld has another name in the file than "
                          "%s, which belongs there: its special tokens are not those of a Whisper "
                          "model, or tokens were added before them", (long)id, name);
        }
    }
    return WNPU_OK;
}

/* Assigns the ids of the special tokens. */
static int tk_assign_special_ids(tk_vocab *v, wnpu_error *error)
{
    int32_t eot = 0, languages = 0;
    int code = tk_layout(v, &eot, &languages, error);
    if (code != WNPU_OK) {
        return code;
    }
    v->multilingual = eot != TK_GPT2_ORDINARY && languages > 0;
    v->n_languages = v->multilingual ? languages : 0;
    v->eot = eot;
    v->sot = eot + 1;
    v->language0 = eot + 2;
    v->translate = v->language0 + languages;
    v->transcribe = v->translate + 1;
    v->sot_lm = v->translate + 2;
    v->sot_prev = v->translate + 3;
    v->no_speech = v->translate + 4;
    v->no_timestamps = v->translate + 5;
    v->timestamp0 = v->translate + 6;
    v->n_special = TK_OTHER_SPECIALS + languages;
    return tk_check_names(v, error);
}

static void tk_find_bytes(tk_vocab *v)
{
    int i;
    v->encodable = 1;
    for (i = 0; i < 256; i++) {
        char byte = (char)i;
        v->byte_id[i] = tk_find(v, &byte, 1);
        v->encodable &= v->byte_id[i] >= 0;
    }
}

/* Call after all tokens were added: finds the special tokens and builds the hash table. */
static int tk_finish(tk_vocab *v, wnpu_error *error)
{
    int code;
    if (v->n_added != v->n_base) {
        return er_set(error, WNPU_E_MODEL, "the vocabulary ends after %ld of %ld tokens; the file "
                      "is truncated", (long)v->n_added, (long)v->n_base);
    }
    code = tk_assign_special_ids(v, error);
    if (code != WNPU_OK) {
        return code;
    }
    tk_name_all(v);
    code = tk_build_table(v, v->eot, error);
    if (code == WNPU_OK) {
        tk_find_bytes(v);
    }
    return code;
}

/* Used in place of tk_add() and tk_finish() when tk_carve() placed the vocabulary over the data of
 * a finished one: checks everything that could cause accesses out of bounds, and writes nothing to
 * that data. */
static int tk_attach(tk_vocab *v, wnpu_error *error)
{
    int bad = v->offset[0] != 0 || v->offset[v->n_base] != v->bytes_size;
    int32_t id;
    uint32_t i;
    for (id = 0; id < v->n_base && !bad; id++) {
        uint32_t end = v->offset[id + 1];
        bad = end <= v->offset[id] || end > v->bytes_size || v->bytes[end - 1] != '\0';
    }
    v->n_added = v->n_base;
    if (!bad) {
        int code = tk_assign_special_ids(v, error);
        if (code != WNPU_OK) {
            return code;
        }
        for (i = 0; i <= v->slot_mask; i++) {
            bad |= v->slots[i] > (uint32_t)v->eot;
        }
        for (i = 0; i < (uint32_t)v->n_special; i++) {
            bad |= v->special[i * TK_NAME + TK_NAME - 1] != '\0';
        }
    }
    if (bad) {
        return er_set(error, WNPU_E_MODEL, "the tables of the vocabulary are inconsistent; "
                      "the file is damaged");
    }
    for (id = 0; id < v->eot; id++) {
        uint32_t length = (uint32_t)tk_length(v, id);
        v->longest = length > v->longest ? length : v->longest;
    }
    tk_find_bytes(v);
    return WNPU_OK;
}

/* The bytes of a token, or the name of a special one; NULL if out of range. */
static const char *tk_text(const tk_vocab *v, int32_t token, size_t *length)
{
    const char *text = NULL;
    size_t bytes = 0;
    if (token >= 0 && token < v->eot) {
        text = v->bytes + v->offset[token];
        bytes = tk_length(v, token);
    } else if (token >= v->eot && token < v->n_vocab) {
        text = token - v->eot < v->n_special ?
               v->special + (size_t)(token - v->eot) * TK_NAME : "<|extra|>";
        bytes = strlen(text);
    }
    if (length != NULL) {
        *length = bytes;
    }
    return text;
}

/* ---- encoding ----
 * Text is split into pieces. Within a piece, the adjacent pair of tokens whose concatenation has
 * the
 * lowest id is merged, the leftmost of equals first, until no concatenation is a token (byte pair
 * encoding). As in tiktoken, a piece that is itself a token is not split. */

#define TK_WINDOW 1024 /* bytes of a piece that are merged at once */

typedef struct tk_output {
    int32_t *tokens;
    size_t capacity;
    size_t count; /* may exceed capacity */
} tk_output;

static void tk_emit(tk_output *out, int32_t token)
{
    if (out->count < out->capacity) {
        out->tokens[out->count] = token;
    }
    out->count++;
}

static tk_class tk_class_at(const char *text, size_t left, size_t *used)
{
    int cut;
    return tk_classify(tk_decode_utf8(text, left, used, &cut));
}

/* Returns the bytes of the next piece of text, left >= 1, as GPT-2's pattern
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * matches them; its last but one alternative leaves the last of several spaces to the next word. */
static size_t tk_piece_length(const char *text, size_t left)
{
    size_t at = 0, last = 0, used;
    tk_class kind;
    if (text[0] == '\'' && left >= 2 && strchr("stmd", text[1]) != NULL && text[1] != '\0') {
        return 2;
    }
    if (left >= 3 && (memcmp(text, "'re", 3) == 0 || memcmp(text, "'ve", 3) == 0 ||
                      memcmp(text, "'ll", 3) == 0)) {
        return 3;
    }
    if (text[0] == ' ' && left >= 2 && tk_class_at(text + 1, left - 1, &used) != TK_SPACE) {
        at = 1;
    }
    kind = tk_class_at(text + at, left - at, &used);
    while (at < left && tk_class_at(text + at, left - at, &used) == kind) {
        last = at;
        at += used;
    }
    return kind == TK_SPACE && at < left && last > 0 ? last : at;
}

/* Merges text of at most TK_WINDOW bytes: its tokens begin at start[0..n-1], start[n] is length.
 * Returns n. */
static size_t tk_merge(const tk_vocab *v, const char *text, size_t length, uint16_t *start)
{
    int32_t rank[TK_WINDOW]; /* id of the concatenation of tokens i and i + 1, or -1 */
    size_t i, n = length;
    for (i = 0; i <= n; i++) {
        start[i] = (uint16_t)i;
    }
    for (i = 0; i + 1 < n; i++) {
        rank[i] = tk_find(v, text + i, 2);
    }
    for (;;) {
        size_t best = n;
        uint32_t lowest = UINT32_MAX; /* equals rank -1, so that is never lower */
        for (i = 0; i + 1 < n; i++) {
            if ((uint32_t)rank[i] < lowest) {
                lowest = (uint32_t)rank[i];
                best = i;
            }
        }
        if (best == n) {
            return n;
        }
        n--;
        memmove(start + best + 1, start + best + 2, (n - best) * sizeof *start);
        memmove(rank + best, rank + best + 1, (n - best) * sizeof *rank);
        if (best > 0) {
            rank[best - 1] = tk_find(v, text + start[best - 1],
                                     (size_t)start[best + 1] - start[best - 1]);
        }
        if (best + 1 < n) {
            rank[best] = tk_find(v, text + start[best], (size_t)start[best + 2] - start[best]);
        }
    }
}

/* Encodes one piece. A piece longer than TK_WINDOW is encoded in windows: each keeps the tokens
 * that begin in its first half, and the next window begins where they end. The result is that of
 * merging the whole piece, unless a chain of dependent merges spans half a window. */
static void tk_encode_piece(const tk_vocab *v, const char *text, size_t length, tk_output *out)
{
    uint16_t start[TK_WINDOW + 1];
    int32_t whole = tk_find(v, text, length);
    if (whole >= 0) {
        tk_emit(out, whole);
        return;
    }
    while (length > 0) {
        size_t window = length < TK_WINDOW ? length : TK_WINDOW;
        size_t n = tk_merge(v, text, window, start), i;
        for (i = 0; i < n && (window == length || start[i] < TK_WINDOW / 2); i++) {
            size_t bytes = (size_t)start[i + 1] - start[i];
            tk_emit(out, bytes == 1 ? v->byte_id[(unsigned char)text[start[i]]] :
                                      tk_find(v, text + start[i], bytes));
        }
        text += start[i];
        length -= start[i];
    }
}

/* Encodes any bytes: writes up to capacity tokens and returns how many there are, or E_UNSUPPORTED
 * if the vocabulary lacks single bytes. Bytes that are not UTF-8 are treated as symbols. */
static int64_t tk_encode(const tk_vocab *v, const char *text, size_t length, int32_t *tokens,
                         size_t capacity)
{
    tk_output out;
    size_t at = 0;
    if (!v->encodable) {
        return WNPU_E_UNSUPPORTED;
    }
    out.tokens = tokens;
    out.capacity = capacity;
    out.count = 0;
    while (at < length) {
        size_t piece = tk_piece_length(text + at, length - at);
        tk_encode_piece(v, text + at, piece, &out);
        at += piece;
    }
    return (int64_t)out.count;
}

/* The start of a transcript: <|startoftranscript|> and, for multilingual models, language and task.
 * Writes at most 3 tokens and returns their number. */
static size_t tk_start_tokens(const tk_vocab *v, int32_t language, int32_t task, int32_t *out)
{
    size_t n = 0;
    out[n++] = v->sot;
    if (v->multilingual) {
        out[n++] = v->language0 + language;
        out[n++] = task == WNPU_TRANSLATE ? v->translate : v->transcribe;
    }
    return n;
}

/* ---- tokens that are never speech ---- */

/* OpenAI's symbols for speakers, sounds and notes: suppressed if they are a single token, with or
 * without a leading space. */
static const char *const tk_symbols[] = {
    "\"", "#", "(", ")", "*", "+", "/", ":", ";", "<", "=", ">", "@", "[", "\\", "]", "^", "_",
    "`", "{", "|", "}", "~", "\xe3\x80\x8c", "\xe3\x80\x8d", "\xe3\x80\x8e", "\xe3\x80\x8f", "<<",
    ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", "(\"", "((", "))", "(((", ")))", "[[", "]]",
    "{{", "}}", "\xe2\x99\xaa\xe2\x99\xaa", "\xe2\x99\xaa\xe2\x99\xaa\xe2\x99\xaa"
};

/* U+2669 to U+266F: their first token is suppressed even if there are several, because it can only
 * begin one of U+2640 to U+267F. */
static const char *const tk_music[] = {
    "\xe2\x99\xa9", "\xe2\x99\xaa", "\xe2\x99\xab", "\xe2\x99\xac", "\xe2\x99\xad",
    "\xe2\x99\xae", "\xe2\x99\xaf"
};

/* Marks the first token of symbol if it is the only one, or in any case if `any` is set. */
static void tk_suppress(const tk_vocab *v, unsigned char *mask, const char *symbol, int any)
{
    int32_t first = -1;
    int64_t n = tk_encode(v, symbol, strlen(symbol), &first, 1);
    if (n == 1 || (n > 1 && any)) {
        mask[first] = 1;
    }
}

/* OpenAI's non_speech_tokens: sets mask[id] to 1, of mask[n_vocab]. Other entries are not
 * changed. */
static void tk_suppress_non_speech(const tk_vocab *v, unsigned char *mask)
{
    const size_t symbols = sizeof tk_symbols / sizeof tk_symbols[0];
    const size_t music = sizeof tk_music / sizeof tk_music[0];
    size_t i;
    /* Hyphens and quotes are allowed within and between words, but not at the start of one. */
    tk_suppress(v, mask, " -", 1);
    tk_suppress(v, mask, " '", 1);
    for (i = 0; i < symbols + music; i++) {
        const char *symbol = i < symbols ? tk_symbols[i] : tk_music[i - symbols];
        char spaced[16];
        (void)snprintf(spaced, sizeof spaced, " %s", symbol);
        tk_suppress(v, mask, symbol, i >= symbols);
        tk_suppress(v, mask, spaced, i >= symbols);
    }
}

/* Special tokens that are never part of a transcript: those of OpenAI's _get_suppress_tokens()
 * (whisper/decoding.py), all languages, and unused ids. eot, no_timestamps and the timestamps have
 * their own rules. */
static void tk_suppress_special(const tk_vocab *v, unsigned char *mask)
{
    int32_t id;
    for (id = v->sot; id <= v->no_speech; id++) {
        mask[id] = 1; /* sot, the languages, translate, transcribe, sot_lm, sot_prev, no_speech */
    }
    for (id = v->eot + v->n_special; id < v->n_vocab; id++) {
        mask[id] = 1;
    }
}

/* ======================================================================
 * 11. mf_  model files
 *
 *  Owns      wnpu_model: one block with sizes, vocabulary and weights, or
 *            one with sizes and pointers into a pack.
 *  Assumes   nothing about the bytes of a file, nor that reading the same
 *            part of a source twice returns the same bytes.
 *  Ensures   the block is allocated only after every tensor was found with
 *            all its data, so its size is in proportion to the file's;
 *            weights are finite and at most 65504 in magnitude. Messages
 *            about invalid files name the tensor, the byte offset, what was
 *            expected and what was found. A pack has the same contents as
 *            the library makes of the file it was written from.
 *  Costs     two passes: headers, then each byte once. About 400 KiB while
 *            opening. base.en in f16 opens in about a quarter of a second,
 *            its pack in one or two milliseconds.
 *
 *  One format is whisper.cpp's (models/convert-pt-to-ggml.py): magic, 11
 *  sizes, mel filters, tokens, tensors up to the end of the file, all
 *  little-endian. Tensors have the names of OpenAI's state dict. The other
 *  is this library's own, see "packs" below. A tensor type is a row of
 *  mf_types, a file format a row of mf_formats.
 * ====================================================================== */
typedef struct mf_norm {
    float *weight, *bias; /* [d], padded with zeros to a multiple of 16 */
} mf_norm;

typedef struct mf_layer { /* the cross_ fields are unused in the encoder */
    mf_norm attn_norm;
    gm_weight qkv;       /* [3d, d]: rows of query, key, value; key has bias 0 */
    gm_weight attn_out;  /* [d, d] */
    mf_norm cross_norm;
    gm_weight cross_q;   /* [d, d] */
    gm_weight cross_kv;  /* [2d, d]: rows of key, value; applied to the encoder's output */
    gm_weight cross_out; /* [d, d] */
    mf_norm mlp_norm;
    gm_weight fc1;       /* [4d, d] */
    gm_weight fc2;       /* [d, 4d] */
} mf_layer;

struct wnpu_model {
    uint32_t n_audio_ctx, n_audio_state, n_audio_head, n_audio_layer;
    uint32_t n_text_ctx, n_text_state, n_text_head, n_text_layer;
    uint32_t n_mels;
    int has_float;
    const char *weight_type;
    const char *name;
    float *filters;        /* [n_mels, 201] */
    tk_vocab vocab;
    gm_weight conv1;       /* [d, 3 * n_mels]: column = tap * n_mels + channel */
    gm_weight conv2;       /* [d, 3 * d]: column = tap * d + channel */
    float *audio_position; /* [n_audio_ctx, d] */
    mf_layer *encoder;     /* [n_audio_layer] */
    mf_norm encoder_norm;
    /* Token embedding; also the output projection. Its value is the sum of the following parts. */
    gm_weight embedding;   /* [n_vocab, d] int4 */
    int8_t *embedding_low; /* [n_vocab, d] remainders of int4, in steps of 16 scale / 254 */
    float *embedding_mean; /* [d] mean over many tokens; 0 in wide_columns */
    /* Columns far wider than the others, 0 in int4, and their values; d: unused. */
    uint32_t *wide_columns; /* [OP_WIDE_MAX] */
    float *wide_values;    /* [OP_WIDE_MAX][n_vocab rounded up to 16] */
    float *text_position;  /* [n_text_ctx, d] */
    mf_layer *decoder;     /* [n_text_layer] */
    mf_norm decoder_norm;
    unsigned char *data;   /* the weights and tables above, laid out as in a pack */
    size_t data_size;
    const unsigned char *image; /* the pack that contains data, or NULL */
    size_t image_size;
    size_t shared;         /* bytes of the pack that are not in this block */
    void *map;             /* image if it is a mapped file, else NULL */
    wnpu_allocator allocator; /* of this block */
    size_t size;
    tp_atomic fingerprint; /* atomic: see sn_model(); 0: not computed yet */
};

/* ---- the sizes in the header, in the file's order ---- */

enum {
    MF_VOCAB, MF_AUDIO_CTX, MF_AUDIO_STATE, MF_AUDIO_HEAD, MF_AUDIO_LAYER,
    MF_TEXT_CTX, MF_TEXT_STATE, MF_TEXT_HEAD, MF_TEXT_LAYER, MF_MELS, MF_FTYPE, MF_SIZES
};

#define MF_MAX_LAYERS 64u
#define MF_MAX_STATE 4096u /* 4 * 4096 products of 127 * 127 fit easily into int32 */

static const struct {
    const char *name;
    uint32_t least, most;
} mf_limits[MF_SIZES] = {
    {"n_vocab", TK_OTHER_SPECIALS + 1, TK_MAX_VOCAB}, /* OpenAI's: 51864, 51865 and 51866 */
    {"n_audio_ctx", 1, 1500}, {"n_audio_state", 4, MF_MAX_STATE}, {"n_audio_head", 1, 1024},
    {"n_audio_layer", 1, MF_MAX_LAYERS},
    {"n_text_ctx", 8, 4096}, {"n_text_state", 4, MF_MAX_STATE}, {"n_text_head", 1, 1024},
    {"n_text_layer", 1, MF_MAX_LAYERS},
    {"n_mels", 1, 256}, {"ftype", 0, 1000000}
};

/* ---- the tensors that a model must have ---- */

typedef enum mf_shape { /* dimensions, fastest first */
    MF_D,         /* {d} */
    MF_4D,        /* {4d} */
    MF_DD,        /* {d, d} */
    MF_FC1,       /* {d, 4d} */
    MF_FC2,       /* {4d, d} */
    MF_CONV1,     /* {3, n_mels, d} */
    MF_CONV2,     /* {3, d, d} */
    MF_AUDIO_POS, /* {d, n_audio_ctx} */
    MF_TEXT_POS,  /* {d, n_text_ctx} */
    MF_EMBED      /* {d, n_vocab} */
} mf_shape;

typedef enum mf_target { MF_FLOATS, MF_ROWS, MF_BIAS, MF_TOKENS } mf_target;

typedef struct mf_part {
    const char *name;
    size_t offset; /* of a float * (MF_FLOATS) or a gm_weight in wnpu_model or mf_layer */
    mf_shape shape;
    mf_target target;
    uint32_t first; /* the tensor begins at row first * d of the weight */
} mf_part;

#define MF_IN_MODEL(field) offsetof(struct wnpu_model, field)
#define MF_IN_LAYER(field) offsetof(mf_layer, field)

static const mf_part mf_single[] = {
    {"encoder.positional_embedding", MF_IN_MODEL(audio_position), MF_AUDIO_POS, MF_FLOATS, 0},
    {"encoder.conv1.weight", MF_IN_MODEL(conv1), MF_CONV1, MF_ROWS, 0},
    {"encoder.conv1.bias", MF_IN_MODEL(conv1), MF_D, MF_BIAS, 0},
    {"encoder.conv2.weight", MF_IN_MODEL(conv2), MF_CONV2, MF_ROWS, 0},
    {"encoder.conv2.bias", MF_IN_MODEL(conv2), MF_D, MF_BIAS, 0},
    {"encoder.ln_post.weight", MF_IN_MODEL(encoder_norm.weight), MF_D, MF_FLOATS, 0},
    {"encoder.ln_post.bias", MF_IN_MODEL(encoder_norm.bias), MF_D, MF_FLOATS, 0},
    {"decoder.positional_embedding", MF_IN_MODEL(text_position), MF_TEXT_POS, MF_FLOATS, 0},
    {"decoder.token_embedding.weight", MF_IN_MODEL(embedding), MF_EMBED, MF_TOKENS, 0},
    {"decoder.ln.weight", MF_IN_MODEL(decoder_norm.weight), MF_D, MF_FLOATS, 0},
    {"decoder.ln.bias", MF_IN_MODEL(decoder_norm.bias), MF_D, MF_FLOATS, 0}
};

static const mf_part mf_block[] = {
    {"attn_ln.weight", MF_IN_LAYER(attn_norm.weight), MF_D, MF_FLOATS, 0},
    {"attn_ln.bias", MF_IN_LAYER(attn_norm.bias), MF_D, MF_FLOATS, 0},
    {"attn.query.weight", MF_IN_LAYER(qkv), MF_DD, MF_ROWS, 0},
    {"attn.query.bias", MF_IN_LAYER(qkv), MF_D, MF_BIAS, 0},
    {"attn.key.weight", MF_IN_LAYER(qkv), MF_DD, MF_ROWS, 1},
    {"attn.value.weight", MF_IN_LAYER(qkv), MF_DD, MF_ROWS, 2},
    {"attn.value.bias", MF_IN_LAYER(qkv), MF_D, MF_BIAS, 2},
    {"attn.out.weight", MF_IN_LAYER(attn_out), MF_DD, MF_ROWS, 0},
    {"attn.out.bias", MF_IN_LAYER(attn_out), MF_D, MF_BIAS, 0},
    {"mlp_ln.weight", MF_IN_LAYER(mlp_norm.weight), MF_D, MF_FLOATS, 0},
    {"mlp_ln.bias", MF_IN_LAYER(mlp_norm.bias), MF_D, MF_FLOATS, 0},
    {"mlp.0.weight", MF_IN_LAYER(fc1), MF_FC1, MF_ROWS, 0},
    {"mlp.0.bias", MF_IN_LAYER(fc1), MF_4D, MF_BIAS, 0},
    {"mlp.2.weight", MF_IN_LAYER(fc2), MF_FC2, MF_ROWS, 0},
    {"mlp.2.bias", MF_IN_LAYER(fc2), MF_D, MF_BIAS, 0},
    /* decoder only */
    {"cross_attn_ln.weight", MF_IN_LAYER(cross_norm.weight), MF_D, MF_FLOATS, 0},
    {"cross_attn_ln.bias", MF_IN_LAYER(cross_norm.bias), MF_D, MF_FLOATS, 0},
    {"cross_attn.query.weight", MF_IN_LAYER(cross_q), MF_DD, MF_ROWS, 0},
    {"cross_attn.query.bias", MF_IN_LAYER(cross_q), MF_D, MF_BIAS, 0},
    {"cross_attn.key.weight", MF_IN_LAYER(cross_kv), MF_DD, MF_ROWS, 0},
    {"cross_attn.value.weight", MF_IN_LAYER(cross_kv), MF_DD, MF_ROWS, 1},
    {"cross_attn.value.bias", MF_IN_LAYER(cross_kv), MF_D, MF_BIAS, 1},
    {"cross_attn.out.weight", MF_IN_LAYER(cross_out), MF_DD, MF_ROWS, 0},
    {"cross_attn.out.bias", MF_IN_LAYER(cross_out), MF_D, MF_BIAS, 0}
};

#define MF_SINGLE ((uint32_t)(sizeof mf_single / sizeof mf_single[0]))
#define MF_DECODER_PARTS ((uint32_t)(sizeof mf_block / sizeof mf_block[0]))
#define MF_ENCODER_PARTS 15u
#define MF_MAX_TENSORS (MF_SINGLE + MF_MAX_LAYERS * (MF_ENCODER_PARTS + MF_DECODER_PARTS))

/* ---- the state of one opening ---- */

#define MF_BUFFER 262144u          /* bytes per read */
#define MF_READ 65536u             /* bytes per read of each worker; at least MF_ROW floats */
#define MF_ROW (4u * MF_MAX_STATE) /* floats of the longest row (fc2) */
#define MF_MAX_TOKEN 1024u         /* bytes of a token; the longest real one has 128 */
#define MF_MAX_NAME 63u            /* the longest real one has 41 */
#define MF_BINS 201u               /* of an FFT of 400 samples */

typedef struct mf_tensor {
    uint64_t offset; /* of its data; 0: not found yet */
    uint32_t type;
} mf_tensor;

/* A section of a model's data: the unit of a pack's checksums and of messages about damage. */
#define MF_MAX_SECTIONS (12u + MF_MAX_LAYERS * (6u + 10u))
#define MF_SECTION_NAME 40u

typedef struct mf_section {
    char name[MF_SECTION_NAME];
    size_t start; /* ends where the next section starts, or at the end of the data */
} mf_section;

typedef struct mf_loader {
    wnpu_source source;
    wnpu_error *error;
    uint64_t position;  /* file offset of buffer[start] */
    size_t start, have; /* buffer[start..have-1] is read but not consumed */
    size_t ahead;       /* bytes to read at once */
    uint32_t sizes[MF_SIZES];
    uint64_t filters_at, tokens_at, vocab_bytes;
    uint32_t n_base;    /* tokens in the file */
    uint32_t n_tensors; /* required tensors */
    uint32_t found;
    uint32_t weight_type;
    char name[MF_MAX_NAME + 1];
    ar_arena head, data; /* of the model: structures with pointers, and the data they point to */
    size_t texts_end;    /* end of filters and vocabulary in data */
    wnpu_model scratch; /* stands for the model while it is measured */
    mf_layer scratch_layer;
    uint32_t n_sections;
    mf_section sections[MF_MAX_SECTIONS];
    mf_tensor tensors[MF_MAX_TENSORS];
    const op_kernels *op;
    unsigned threads;   /* number of workers that convert rows */
    int parallel_reads; /* workers may read the source themselves */
    unsigned char buffer[MF_BUFFER];
} mf_loader;

typedef struct mf_worker {
    float row[MF_ROW];
    int8_t digits[GM_WOVEN][MF_ROW + 8]; /* quantised rows not yet stored in the weight */
    float transposed[3 * MF_MAX_STATE]; /* a transposed row of a convolution */
    unsigned char bytes[MF_READ]; /* of the file: one or more rows */
    uint32_t unread;  /* first row of the tensor that could not be read, or UINT32_MAX */
    wnpu_error error; /* of that row */
} mf_worker;

/* Threads and scratch for reading weights. */
typedef struct mf_team {
    tp_pool pool;
    mf_worker worker[]; /* [threads] */
} mf_team;

/* ---- bytes ---- */

WNPU_INLINE uint32_t mf_u16(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

WNPU_INLINE uint32_t mf_u32(const unsigned char *p)
{
    return mf_u16(p) | mf_u16(p + 2) << 16;
}

WNPU_INLINE uint64_t mf_u64(const unsigned char *p)
{
    return mf_u32(p) | (uint64_t)mf_u32(p + 4) << 32;
}

/* Makes untrusted text printable for a message: characters other than printable ASCII become '?'.
 * out has size bytes. */
static const char *mf_printable(char *out, size_t size, const void *bytes, size_t length)
{
    const unsigned char *in = bytes;
    size_t i, n = length < size - 1 ? length : size - 1;
    for (i = 0; i < n; i++) {
        out[i] = in[i] >= 0x20 && in[i] < 0x7f && in[i] != '\'' ? (char)in[i] : '?';
    }
    out[n] = '\0';
    return out;
}

/* Reads until *have is at least n, of `want` bytes that begin at file offset `from`. */
static int mf_read(const mf_loader *l, uint64_t from, unsigned char *to, size_t *have, size_t n,
                   size_t want, wnpu_error *error)
{
    while (*have < n) {
        size_t ask = want - *have;
        int64_t got = l->source.read(l->source.user, from + *have, to + *have, ask);
        (void)er_float_default();
        if (got <= 0 || (uint64_t)got > ask) {
            return er_set(error, WNPU_E_IO, "reading %llu bytes at byte %llu of %llu returned "
                          "%lld; the file is unreadable or was cut while it was read",
                          (unsigned long long)ask, (unsigned long long)(from + *have),
                          (unsigned long long)l->source.size, (long long)got);
        }
        *have += (size_t)got;
    }
    return WNPU_OK;
}

/* Makes n <= MF_BUFFER bytes available at *bytes. `what` names this part of the file in
 * messages. */
static int mf_need(mf_loader *l, size_t n, const char *what, const unsigned char **bytes)
{
    uint64_t left = l->source.size - l->position;
    size_t want = left < l->ahead ? (size_t)left : l->ahead;
    *bytes = l->buffer + l->start;
    if (l->have - l->start >= n) {
        return WNPU_OK;
    }
    if (n > left) {
        return er_set(l->error, WNPU_E_MODEL, "the file ends at byte %llu, inside %s at byte %llu "
                      "that needs %llu bytes; it is truncated or damaged, get it again",
                      (unsigned long long)l->source.size, what, (unsigned long long)l->position,
                      (unsigned long long)n);
    }
    memmove(l->buffer, *bytes, l->have - l->start);
    l->have -= l->start;
    l->start = 0;
    *bytes = l->buffer;
    return mf_read(l, l->position, l->buffer, &l->have, n, want > n ? want : n, l->error);
}

static void mf_used(mf_loader *l, size_t n)
{
    l->start += n;
    l->position += n;
}

/* position <= source.size */
static void mf_seek(mf_loader *l, uint64_t position)
{
    if (position >= l->position && position - l->position <= l->have - l->start) {
        l->start += (size_t)(position - l->position);
    } else {
        l->start = l->have = 0;
    }
    l->position = position;
}

static int mf_read_u32(mf_loader *l, const char *what, uint32_t *value)
{
    const unsigned char *bytes;
    int status = mf_need(l, 4, what, &bytes);
    if (status == WNPU_OK) {
        *value = mf_u32(bytes);
        mf_used(l, 4);
    }
    return status;
}

/* ---- numbers ---- */

static void mf_read_floats(const unsigned char *in, float *out, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        out[i] = mt_float(mf_u32(in + 4 * i));
    }
}

static void mf_decode_f32(const op_kernels *op, const unsigned char *in, float *out, size_t n)
{
    (void)op;
    mf_read_floats(in, out, n);
}

static void mf_decode_f16(const op_kernels *op, const unsigned char *in, float *out, size_t n)
{
    op->from_f16(out, in, n);
}

/* Tensor types of ggml (ggml-common.h), by their numbers. */
static const struct {
    const char *name;         /* NULL: not supported */
    uint32_t elements, bytes; /* of a block */
    void (*decode)(const op_kernels *op, const unsigned char *in, float *out, size_t n);
                              /* a row; NULL: op_kernels.blocks() */
} mf_types[] = {
    [0] = {"f32", 1, 4, mf_decode_f32},
    [1] = {"f16", 1, 2, mf_decode_f16},
    [2] = {"q4_0", 32, 18, NULL},
    [3] = {"q4_1", 32, 20, NULL},
    [6] = {"q5_0", 32, 22, NULL},
    [7] = {"q5_1", 32, 24, NULL},
    [8] = {"q8_0", 32, 34, NULL},
};

#define MF_TYPES ((uint32_t)(sizeof mf_types / sizeof mf_types[0]))

static int mf_is_type(uint32_t type)
{
    return type < MF_TYPES && mf_types[type].name != NULL;
}

/* Bytes of n values, which are whole blocks. */
static uint64_t mf_type_bytes(uint32_t type, uint64_t n)
{
    return n / mf_types[type].elements * mf_types[type].bytes;
}

static void mf_decode_row(const op_kernels *op, uint32_t type, const unsigned char *in, float *out,
                          size_t n)
{
    if (mf_types[type].decode != NULL) {
        mf_types[type].decode(op, in, out, n);
    } else {
        op->blocks(out, type, in, mf_types[type].bytes, n);
    }
}

/* Upper limit for op_kernels.size() of a weight: its magnitude is at most 65504, the largest f16
 * value, and it is not NaN. Within this limit no sum or product of the network overflows a
 * float. */
#define MF_SIZE_MAX 0x477fe000u

static int mf_is_valid(const op_kernels *op, const float *x, size_t n)
{
    return op->size(x, n) <= MF_SIZE_MAX;
}

/* ---- pass 1: header, filters, tokens ---- */

/* Files often mistaken for models. Others are reported with their first bytes. */
static const struct {
    size_t length;
    const char *start, *what;
} mf_foreign[] = {
    {4, "GGUF", "a GGUF file"},
    {4, "PK\003\004", "a PyTorch checkpoint or another zip archive"},
    {2, "\200\002", "a PyTorch checkpoint (pickle)"},
    {4, "tjgg", "a ggml language model ('ggjt')"},
    {4, "fmgg", "a ggml language model ('ggmf')"},
    {4, "algg", "a ggml adapter ('ggla')"},
    {4, "ggml", "a big-endian ggml file"},
    {8, "lmgg\012\0\0\0", "a ggml file of another network, such as a voice activity model"},
    {19, "version https://git", "a Git LFS pointer in place of the file"},
    {1, "<", "a web page"},
    {4, "RIFF", "a recording"},
    {2, "\037\213", "a gzip archive"},
    {5, "\211WNPU", "a pack whose first bytes are damaged"}
};

static int mf_magic(mf_loader *l)
{
    const unsigned char *bytes;
    const char *what = NULL;
    size_t i, n = l->source.size < 64 ? (size_t)l->source.size : 64;
    int status = mf_need(l, n < 4 ? 4 : n, "the magic number", &bytes);
    if (status != WNPU_OK) {
        return status;
    }
    for (i = 0; i < sizeof mf_foreign / sizeof mf_foreign[0]; i++) {
        if (mf_foreign[i].length <= n &&
            memcmp(bytes, mf_foreign[i].start, mf_foreign[i].length) == 0) {
            what = mf_foreign[i].what;
            break;
        }
    }
    /* safetensors: 8 bytes with the length of a JSON header, then the header */
    if (n > 8 && bytes[8] == '{' && mf_u32(bytes + 4) == 0 && mf_u32(bytes) < l->source.size) {
        what = "a safetensors file";
    }
    if (what != NULL) {
        return er_set(l->error, WNPU_E_MODEL, "this is %s, not a ggml Whisper model; use a "
                      "ggml-*.bin file of whisper.cpp, or examples/pack.c to convert one of "
                      "Hugging Face", what);
    }
    if (mf_u32(bytes) != 0x67676d6cu) {
        return er_set(l->error, WNPU_E_MODEL, "the file begins with 0x%08x, expected 0x67676d6c: "
                      "not a ggml Whisper model; use a ggml-*.bin file of whisper.cpp",
                      (unsigned)mf_u32(bytes));
    }
    mf_used(l, 4);
    return WNPU_OK;
}

static int mf_heads(mf_loader *l, uint32_t state, uint32_t heads, uint32_t at)
{
    uint32_t d = l->sizes[state], h = l->sizes[heads];
    if (d % h != 0 || d / h % 4 != 0 || d / h > 256) {
        return er_set(l->error, WNPU_E_MODEL, "%s is %u with %s %u at byte %u: a head's size must "
                      "be a whole multiple of 4 up to 256; the file is damaged or not Whisper's",
                      mf_limits[state].name, (unsigned)d, mf_limits[heads].name, (unsigned)h,
                      (unsigned)(at + 4 * state));
    }
    return WNPU_OK;
}

/* Reads the first n sizes, which begin at file offset `at`, and checks all of them. */
static int mf_read_sizes(mf_loader *l, uint32_t n, uint32_t at)
{
    unsigned i;
    int status = WNPU_OK;
    for (i = 0; status == WNPU_OK && i < n; i++) {
        status = mf_read_u32(l, "the header", &l->sizes[i]);
        if (status == WNPU_OK && (l->sizes[i] < mf_limits[i].least ||
                                  l->sizes[i] > mf_limits[i].most)) {
            return er_set(l->error, WNPU_E_MODEL, "%s at byte %u is %ld, expected %u to %u; the "
                          "file is damaged or not a Whisper model", mf_limits[i].name,
                          (unsigned)at + 4 * i, (long)(int32_t)l->sizes[i],
                          (unsigned)mf_limits[i].least, (unsigned)mf_limits[i].most);
        }
    }
    if (status == WNPU_OK) {
        status = mf_heads(l, MF_AUDIO_STATE, MF_AUDIO_HEAD, at);
    }
    if (status == WNPU_OK) {
        status = mf_heads(l, MF_TEXT_STATE, MF_TEXT_HEAD, at);
    }
    if (status == WNPU_OK && l->sizes[MF_AUDIO_STATE] != l->sizes[MF_TEXT_STATE]) {
        return er_set(l->error, WNPU_E_MODEL, "n_audio_state is %u and n_text_state %u, expected "
                      "the same; the file is damaged or not a Whisper model",
                      (unsigned)l->sizes[MF_AUDIO_STATE], (unsigned)l->sizes[MF_TEXT_STATE]);
    }
    return status;
}

static int mf_filters(mf_loader *l)
{
    uint32_t mels = 0, bins = 0;
    uint64_t at = l->position, bytes;
    int status = mf_read_u32(l, "the mel filters", &mels);
    if (status == WNPU_OK) {
        status = mf_read_u32(l, "the mel filters", &bins);
    }
    if (status != WNPU_OK) {
        return status;
    }
    if (mels != l->sizes[MF_MELS] || bins != MF_BINS) {
        return er_set(l->error, WNPU_E_MODEL, "the mel filters at byte %llu are %ld x %ld, "
                      "expected %u x %u; the file is damaged", (unsigned long long)at,
                      (long)(int32_t)mels, (long)(int32_t)bins, (unsigned)l->sizes[MF_MELS],
                      MF_BINS);
    }
    bytes = (uint64_t)mels * MF_BINS * 4;
    l->filters_at = l->position;
    if (bytes > l->source.size - l->position) {
        return er_set(l->error, WNPU_E_MODEL, "the file ends at byte %llu, inside the mel filters "
                      "at byte %llu that need %llu bytes; it is truncated, get it again",
                      (unsigned long long)l->source.size, (unsigned long long)l->position,
                      (unsigned long long)bytes);
    }
    mf_seek(l, l->position + bytes);
    return WNPU_OK;
}

/* Reads the length of the token at the current position. */
static int mf_read_token_length(mf_loader *l, uint32_t token, uint32_t *length)
{
    int status = mf_read_u32(l, "the vocabulary", length);
    if (status == WNPU_OK && *length > MF_MAX_TOKEN) {
        return er_set(l->error, WNPU_E_MODEL, "token %u at byte %llu has length %ld, expected at "
                      "most %u; the file is damaged", (unsigned)token,
                      (unsigned long long)(l->position - 4), (long)(int32_t)*length, MF_MAX_TOKEN);
    }
    return status;
}

static int mf_tokens(mf_loader *l)
{
    const unsigned char *bytes;
    uint32_t i, length = 0;
    uint64_t at = l->position;
    int status = mf_read_u32(l, "the vocabulary", &l->n_base);
    if (status == WNPU_OK && (l->n_base == 0 || l->n_base > l->sizes[MF_VOCAB])) {
        return er_set(l->error, WNPU_E_MODEL, "the vocabulary at byte %llu has %ld tokens, "
                      "expected 1 to n_vocab = %u; the file is damaged", (unsigned long long)at,
                      (long)(int32_t)l->n_base, (unsigned)l->sizes[MF_VOCAB]);
    }
    l->tokens_at = l->position;
    for (i = 0; status == WNPU_OK && i < l->n_base; i++) {
        status = mf_read_token_length(l, i, &length);
        if (status == WNPU_OK) {
            status = mf_need(l, length, "the vocabulary", &bytes);
        }
        if (status == WNPU_OK) {
            mf_used(l, length);
            l->vocab_bytes += length;
        }
    }
    if (status == WNPU_OK) {
        status = tk_check((int32_t)l->sizes[MF_VOCAB], (int32_t)l->n_base, (size_t)l->vocab_bytes,
                          l->error);
    }
    return status;
}

/* ---- pass 1: tensors ---- */

static void mf_ne(const mf_loader *l, mf_shape shape, uint32_t ne[3])
{
    uint32_t d = l->sizes[MF_TEXT_STATE];
    ne[0] = d;
    ne[1] = ne[2] = 1;
    switch (shape) {
    case MF_D: break;
    case MF_4D: ne[0] = 4 * d; break;
    case MF_DD: ne[1] = d; break;
    case MF_FC1: ne[1] = 4 * d; break;
    case MF_FC2: ne[0] = 4 * d; ne[1] = d; break;
    case MF_CONV1: ne[0] = 3; ne[1] = l->sizes[MF_MELS]; ne[2] = d; break;
    case MF_CONV2: ne[0] = 3; ne[1] = d; ne[2] = d; break;
    case MF_AUDIO_POS: ne[1] = l->sizes[MF_AUDIO_CTX]; break;
    case MF_TEXT_POS: ne[1] = l->sizes[MF_TEXT_CTX]; break;
    case MF_EMBED: ne[1] = l->sizes[MF_VOCAB]; break;
    }
}

/* Tensors are numbered: those outside layers, then the encoder's layers, then the decoder's. */
static const mf_part *mf_find(const mf_loader *l, uint32_t tensor, int *decoder, uint32_t *layer)
{
    uint32_t encoder_end = MF_SINGLE + l->sizes[MF_AUDIO_LAYER] * MF_ENCODER_PARTS;
    *decoder = -1; /* not in a layer */
    *layer = 0;
    if (tensor < MF_SINGLE) {
        return &mf_single[tensor];
    }
    *decoder = tensor >= encoder_end;
    if (*decoder) {
        *layer = (tensor - encoder_end) / MF_DECODER_PARTS;
        return &mf_block[(tensor - encoder_end) % MF_DECODER_PARTS];
    }
    *layer = (tensor - MF_SINGLE) / MF_ENCODER_PARTS;
    return &mf_block[(tensor - MF_SINGLE) % MF_ENCODER_PARTS];
}

static const char *mf_name(mf_loader *l, uint32_t tensor)
{
    int decoder;
    uint32_t layer;
    const mf_part *part = mf_find(l, tensor, &decoder, &layer);
    if (decoder < 0) {
        return part->name;
    }
    (void)snprintf(l->name, sizeof l->name, "%s.blocks.%u.%s", decoder ? "decoder" : "encoder",
                   (unsigned)layer, part->name);
    return l->name;
}

/* Number of the tensor with this name, or n_tensors if the model has none. */
static uint32_t mf_tensor_number(const mf_loader *l, const char *name)
{
    int decoder = strncmp(name, "decoder.blocks.", 15) == 0;
    uint32_t i, layer = 0, parts = decoder ? MF_DECODER_PARTS : MF_ENCODER_PARTS;
    const char *p = name + 15;
    if (!decoder && strncmp(name, "encoder.blocks.", 15) != 0) {
        for (i = 0; i < MF_SINGLE; i++) {
            if (strcmp(name, mf_single[i].name) == 0) {
                return i;
            }
        }
        return l->n_tensors;
    }
    if (*p == '0' && p[1] != '.') {
        return l->n_tensors; /* reject "00" and the like */
    }
    for (i = 0; i < 2 && *p >= '0' && *p <= '9'; i++, p++) {
        layer = layer * 10 + (uint32_t)(*p - '0');
    }
    if (i == 0 || *p != '.' || layer >= l->sizes[decoder ? MF_TEXT_LAYER : MF_AUDIO_LAYER]) {
        return l->n_tensors;
    }
    for (i = 0; i < parts; i++) {
        if (strcmp(p + 1, mf_block[i].name) == 0) {
            return MF_SINGLE + layer * parts + i +
                   (decoder ? l->sizes[MF_AUDIO_LAYER] * MF_ENCODER_PARTS : 0);
        }
    }
    return l->n_tensors;
}

/* formats dimensions as "{3, 80, 384}" */
static const char *mf_print_ne(char out[64], const uint32_t *ne, uint32_t n)
{
    size_t used = 0;
    uint32_t i;
    for (i = 0; i < n; i++) {
        used += (size_t)snprintf(out + used, 64 - used, "%s%ld", i == 0 ? "{" : ", ",
                                 (long)(int32_t)ne[i]);
    }
    (void)snprintf(out + used, 64 - used, "}");
    return out;
}

/* Dimensions of 1 are ignored: writers differ (a bias of d may be {d} or {1, d}). */
static int mf_same_shape(const uint32_t *a, uint32_t n, const uint32_t *b, uint32_t m)
{
    uint32_t i = 0, j = 0;
    for (;;) {
        while (i < n && a[i] == 1) {
            i++;
        }
        while (j < m && b[j] == 1) {
            j++;
        }
        if (i == n || j == m) {
            return i == n && j == m;
        }
        if (a[i++] != b[j++]) {
            return 0;
        }
    }
}

/* Checks and registers a tensor whose data begin at the current position, and skips them. */
static int mf_add_tensor(mf_loader *l, uint64_t at, uint32_t tensor, uint32_t type,
                         const uint32_t *ne, uint32_t n_dims)
{
    uint32_t want[3], layer;
    int decoder;
    char is[64], should[64];
    uint64_t bytes;
    const char *name = mf_name(l, tensor);
    mf_ne(l, mf_find(l, tensor, &decoder, &layer)->shape, want);
    if (l->tensors[tensor].offset != 0) {
        return er_set(l->error, WNPU_E_MODEL, "tensor '%s' at byte %llu is there twice, its first "
                      "data are at byte %llu; the file is damaged", name, (unsigned long long)at,
                      (unsigned long long)l->tensors[tensor].offset);
    }
    if (!mf_same_shape(ne, n_dims, want, 3)) {
        return er_set(l->error, WNPU_E_MODEL, "tensor '%s' at byte %llu has shape %s, expected %s; "
                      "the file is damaged or not a Whisper model", name, (unsigned long long)at,
                      mf_print_ne(is, ne, n_dims), mf_print_ne(should, want, want[2] > 1 ? 3 :
                      want[1] > 1 ? 2 : 1));
    }
    if (!mf_is_type(type)) {
        return er_set(l->error, WNPU_E_UNSUPPORTED, "tensor '%s' at byte %llu has type %ld, "
                      "expected f32, f16, q4_0, q4_1, q5_0, q5_1 or q8_0; convert the model", name,
                      (unsigned long long)at, (long)(int32_t)type);
    }
    if (ne[0] % mf_types[type].elements != 0) {
        return er_set(l->error, WNPU_E_MODEL, "tensor '%s' at byte %llu is %s with rows of %u, "
                      "expected a multiple of 32; the file is damaged", name,
                      (unsigned long long)at, mf_types[type].name, (unsigned)ne[0]);
    }
    bytes = mf_type_bytes(type, (uint64_t)want[0] * want[1] * want[2]);
    if (bytes > l->source.size - l->position) {
        return er_set(l->error, WNPU_E_MODEL, "the file ends at byte %llu, inside tensor '%s' at "
                      "byte %llu that needs %llu bytes; it is truncated, get it again",
                      (unsigned long long)l->source.size, name, (unsigned long long)l->position,
                      (unsigned long long)bytes);
    }
    l->tensors[tensor].offset = l->position;
    l->tensors[tensor].type = type;
    l->found++;
    mf_seek(l, l->position + bytes);
    return WNPU_OK;
}

static int mf_tensor_header(mf_loader *l)
{
    const unsigned char *bytes;
    uint64_t at = l->position;
    uint32_t n_dims, length, type, tensor, i, ne[4] = {0};
    char name[MF_MAX_NAME + 1], shown[MF_MAX_NAME + 1];
    int status = mf_need(l, 12, "a tensor's header", &bytes);
    if (status != WNPU_OK) {
        return status;
    }
    n_dims = mf_u32(bytes);
    length = mf_u32(bytes + 4);
    type = mf_u32(bytes + 8);
    if (n_dims < 1 || n_dims > 4 || length < 1 || length > MF_MAX_NAME) {
        return er_set(l->error, WNPU_E_MODEL, "the tensor at byte %llu has %ld dimensions and a "
                      "name of %ld bytes, expected 1 to 4 and 1 to %u; the file is damaged",
                      (unsigned long long)at, (long)(int32_t)n_dims, (long)(int32_t)length,
                      MF_MAX_NAME);
    }
    mf_used(l, 12);
    status = mf_need(l, 4 * n_dims + length, "a tensor's header", &bytes);
    if (status != WNPU_OK) {
        return status;
    }
    for (i = 0; i < n_dims; i++) {
        ne[i] = mf_u32(bytes + 4 * i);
    }
    memcpy(name, bytes + 4 * n_dims, length);
    name[length] = '\0';
    mf_used(l, 4 * n_dims + length);
    tensor = strlen(name) == length ? mf_tensor_number(l, name) : l->n_tensors;
    if (tensor == l->n_tensors) {
        return er_set(l->error, WNPU_E_MODEL, "tensor '%s' at byte %llu is unknown for a model of "
                      "%u encoder and %u decoder layers; the file is damaged or not Whisper's",
                      mf_printable(shown, sizeof shown, name, length), (unsigned long long)at,
                      (unsigned)l->sizes[MF_AUDIO_LAYER], (unsigned)l->sizes[MF_TEXT_LAYER]);
    }
    return mf_add_tensor(l, at, tensor, type, ne, n_dims);
}

/* The type of most parameters. */
static uint32_t mf_main_type(const mf_loader *l)
{
    uint64_t count[MF_TYPES] = {0};
    uint32_t i, best = 0, layer, ne[3];
    int decoder;
    for (i = 0; i < l->n_tensors; i++) {
        mf_ne(l, mf_find(l, i, &decoder, &layer)->shape, ne);
        count[l->tensors[i].type] += (uint64_t)ne[0] * ne[1] * ne[2];
    }
    for (i = 1; i < MF_TYPES; i++) {
        best = count[i] > count[best] ? i : best;
    }
    return best;
}

static uint32_t mf_count(const mf_loader *l)
{
    return MF_SINGLE + l->sizes[MF_AUDIO_LAYER] * MF_ENCODER_PARTS +
           l->sizes[MF_TEXT_LAYER] * MF_DECODER_PARTS;
}

static int mf_index(mf_loader *l)
{
    uint32_t i;
    int status = WNPU_OK;
    l->n_tensors = mf_count(l);
    memset(l->tensors, 0, l->n_tensors * sizeof l->tensors[0]);
    if (l->position == l->source.size) {
        return er_set(l->error, WNPU_E_MODEL, "the file ends at byte %llu after the vocabulary: it "
                      "has no tensors, like whisper.cpp's for-tests-ggml-*.bin; get a whole model",
                      (unsigned long long)l->position);
    }
    while (status == WNPU_OK && l->position < l->source.size) {
        if (l->found == l->n_tensors) {
            return er_set(l->error, WNPU_E_MODEL, "%llu bytes are left over at byte %llu after the "
                          "last tensor; the file is damaged",
                          (unsigned long long)(l->source.size - l->position),
                          (unsigned long long)l->position);
        }
        status = mf_tensor_header(l);
    }
    for (i = 0; status == WNPU_OK && i < l->n_tensors; i++) {
        if (l->tensors[i].offset == 0) {
            return er_set(l->error, WNPU_E_MODEL, "tensor '%s' is missing, %u of %u are there up "
                          "to the end at byte %llu; the file is truncated or damaged, get it again",
                          mf_name(l, i), (unsigned)l->found, (unsigned)l->n_tensors,
                          (unsigned long long)l->source.size);
        }
    }
    if (status == WNPU_OK) {
        l->weight_type = mf_main_type(l);
    }
    return status;
}

/* ---- the block ---- */

/* Begins a section; what is carved from data from here on belongs to it. part NULL: not in a
 * layer. */
static void mf_section_begin(mf_loader *l, const char *part, uint32_t layer, const char *name)
{
    mf_section *section = &l->sections[l->n_sections++];
    section->start = l->data.used;
    if (part == NULL) {
        (void)snprintf(section->name, sizeof section->name, "%s", name);
    } else {
        (void)snprintf(section->name, sizeof section->name, "%s.%u.%s", part, (unsigned)layer,
                       name);
    }
}

static size_t mf_section_end(const mf_loader *l, uint32_t section)
{
    return section + 1 < l->n_sections ? l->sections[section + 1].start : l->data.used;
}

static void mf_carve_norm(mf_loader *l, mf_norm *norm, uint32_t d)
{
    size_t padded = ((size_t)d + 15) / 16 * 16;
    norm->weight = ar_carve(&l->data, padded, sizeof(float));
    norm->bias = ar_carve(&l->data, padded, sizeof(float));
}

static void mf_carve_layer(mf_loader *l, mf_layer *layer, uint32_t number, int decoder, int keep)
{
    const char *part = decoder ? "decoder" : "encoder";
    const uint32_t d = l->sizes[MF_TEXT_STATE];
    memset(layer, 0, sizeof *layer);
    mf_section_begin(l, part, number, "attn_norm");
    mf_carve_norm(l, &layer->attn_norm, d);
    mf_section_begin(l, part, number, "qkv");
    gm_carve(&l->data, &layer->qkv, 3 * d, d, 1, keep);
    mf_section_begin(l, part, number, "attn_out");
    gm_carve(&l->data, &layer->attn_out, d, d, 1, keep);
    if (decoder) {
        mf_section_begin(l, part, number, "cross_norm");
        mf_carve_norm(l, &layer->cross_norm, d);
        mf_section_begin(l, part, number, "cross_q");
        gm_carve(&l->data, &layer->cross_q, d, d, 1, keep);
        mf_section_begin(l, part, number, "cross_kv");
        gm_carve(&l->data, &layer->cross_kv, 2 * d, d, 1, keep);
        mf_section_begin(l, part, number, "cross_out");
        gm_carve(&l->data, &layer->cross_out, d, d, 1, keep);
    }
    mf_section_begin(l, part, number, "mlp_norm");
    mf_carve_norm(l, &layer->mlp_norm, d);
    mf_section_begin(l, part, number, "fc1");
    gm_carve(&l->data, &layer->fc1, 4 * d, d, 1, keep);
    mf_section_begin(l, part, number, "fc2");
    gm_carve(&l->data, &layer->fc2, d, 4 * d, 1, keep);
}

static mf_layer *mf_carve_layers(mf_loader *l, uint32_t count, int decoder, int keep)
{
    uint32_t i;
    mf_layer *layers = ar_carve(&l->head, count, sizeof *layers);
    for (i = 0; i < count; i++) {
        mf_carve_layer(l, layers != NULL ? &layers[i] : &l->scratch_layer, i, decoder, keep);
    }
    return layers;
}

static float *mf_carve_floats(mf_loader *l, const char *section, size_t count)
{
    mf_section_begin(l, NULL, 0, section);
    return ar_carve(&l->data, count, sizeof(float));
}

/* Carves the data. Their layout depends on the sizes alone, and a pack is an image of them: any
 * change here, in tk_carve() or in gm_carve() must raise MF_PACK_VERSION. */
static void mf_carve_data(mf_loader *l, wnpu_model *m, int keep)
{
    const uint32_t *s = l->sizes;
    uint32_t d = s[MF_TEXT_STATE];
    m->filters = mf_carve_floats(l, "filters", (size_t)s[MF_MELS] * MF_BINS);
    mf_section_begin(l, NULL, 0, "vocabulary");
    tk_carve(&l->data, &m->vocab, (int32_t)s[MF_VOCAB], (int32_t)l->n_base,
             (size_t)l->vocab_bytes);
    m->vocab.n_mels = (int32_t)s[MF_MELS];
    l->texts_end = l->data.used;
    mf_section_begin(l, NULL, 0, "encoder.conv1");
    gm_carve(&l->data, &m->conv1, d, 3 * s[MF_MELS], 1, keep);
    mf_section_begin(l, NULL, 0, "encoder.conv2");
    gm_carve(&l->data, &m->conv2, d, 3 * d, 1, keep);
    m->audio_position = mf_carve_floats(l, "encoder.position", (size_t)s[MF_AUDIO_CTX] * d);
    m->encoder = mf_carve_layers(l, s[MF_AUDIO_LAYER], 0, keep);
    mf_section_begin(l, NULL, 0, "encoder.norm");
    mf_carve_norm(l, &m->encoder_norm, d);
    mf_section_begin(l, NULL, 0, "decoder.embedding");
    gm_carve_as(&l->data, &m->embedding, s[MF_VOCAB], d, 1, 0, keep);
    mf_section_begin(l, NULL, 0, "decoder.embedding_low");
    m->embedding_low = ar_carve(&l->data, (size_t)s[MF_VOCAB] * d, 1);
    m->embedding_mean = mf_carve_floats(l, "decoder.embedding_mean", d);
    mf_section_begin(l, NULL, 0, "decoder.embedding_apart");
    m->wide_columns = ar_carve(&l->data, OP_WIDE_MAX, sizeof *m->wide_columns);
    m->wide_values = ar_carve(&l->data, OP_WIDE_MAX * ((size_t)m->embedding.n16 * 16),
                              sizeof(float));
    m->text_position = mf_carve_floats(l, "decoder.position", (size_t)s[MF_TEXT_CTX] * d);
    m->decoder = mf_carve_layers(l, s[MF_TEXT_LAYER], 1, keep);
    mf_section_begin(l, NULL, 0, "decoder.norm");
    mf_carve_norm(l, &m->decoder_norm, d);
}

/* Measures or lays out the model in l->head and l->data. The first object in head is the
 * wnpu_model. */
static wnpu_model *mf_carve(mf_loader *l, int keep)
{
    const uint32_t *s = l->sizes;
    wnpu_model *m = ar_carve(&l->head, 1, sizeof *m);
    m = m != NULL ? m : &l->scratch;
    memset(m, 0, sizeof *m);
    m->n_audio_ctx = s[MF_AUDIO_CTX];
    m->n_audio_state = s[MF_AUDIO_STATE];
    m->n_audio_head = s[MF_AUDIO_HEAD];
    m->n_audio_layer = s[MF_AUDIO_LAYER];
    m->n_text_ctx = s[MF_TEXT_CTX];
    m->n_text_state = s[MF_TEXT_STATE];
    m->n_text_head = s[MF_TEXT_HEAD];
    m->n_text_layer = s[MF_TEXT_LAYER];
    m->n_mels = s[MF_MELS];
    m->has_float = keep;
    m->weight_type = mf_types[l->weight_type].name;
    l->n_sections = 0;
    mf_carve_data(l, m, keep);
    return m;
}

/* OpenAI's models, recognised by their sizes (whisper/__init__.py). large-v1 and -v2 have the same
 * sizes. */
static const char *mf_model_name(const mf_loader *l)
{
    static const struct {
        const char *name, *english;
        uint32_t vocab, state, head, audio_layer, text_layer, mels;
    } known[] = {
        {"tiny", "tiny.en", 51865, 384, 6, 4, 4, 80},
        {"base", "base.en", 51865, 512, 8, 6, 6, 80},
        {"small", "small.en", 51865, 768, 12, 12, 12, 80},
        {"medium", "medium.en", 51865, 1024, 16, 24, 24, 80},
        {"large", NULL, 51865, 1280, 20, 32, 32, 80},
        {"large-v3", NULL, 51866, 1280, 20, 32, 32, 128},
        {"turbo", NULL, 51866, 1280, 20, 32, 4, 128}
    };
    const uint32_t *s = l->sizes;
    size_t i;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        int english = known[i].english != NULL && s[MF_VOCAB] == 51864;
        if ((s[MF_VOCAB] == known[i].vocab || english) && s[MF_AUDIO_CTX] == 1500 &&
            s[MF_TEXT_CTX] == 448 && s[MF_TEXT_STATE] == known[i].state &&
            s[MF_AUDIO_HEAD] == known[i].head && s[MF_TEXT_HEAD] == known[i].head &&
            s[MF_AUDIO_LAYER] == known[i].audio_layer &&
            s[MF_TEXT_LAYER] == known[i].text_layer && s[MF_MELS] == known[i].mels) {
            return english ? known[i].english : known[i].name;
        }
    }
    return "custom";
}

/* ---- pass 2 ---- */

static int mf_load_filters(mf_loader *l, wnpu_model *m)
{
    const unsigned char *bytes;
    uint32_t i;
    mf_seek(l, l->filters_at);
    for (i = 0; i < m->n_mels; i++) {
        float *row = m->filters + (size_t)i * MF_BINS;
        int status = mf_need(l, MF_BINS * 4, "the mel filters", &bytes);
        if (status != WNPU_OK) {
            return status;
        }
        mf_read_floats(bytes, row, MF_BINS);
        mf_used(l, MF_BINS * 4);
        if (!mf_is_valid(l->op, row, MF_BINS)) {
            return er_set(l->error, WNPU_E_MODEL, "mel filter %u before byte %llu has a value that "
                          "is not finite or beyond 65504; the file is damaged", (unsigned)i,
                          (unsigned long long)l->position);
        }
    }
    return WNPU_OK;
}

static int mf_load_tokens(mf_loader *l, wnpu_model *m)
{
    const unsigned char *bytes;
    uint32_t i, length = 0;
    mf_seek(l, l->tokens_at);
    for (i = 0; i < l->n_base; i++) {
        int status = mf_read_token_length(l, i, &length);
        if (status == WNPU_OK) {
            status = mf_need(l, length, "the vocabulary", &bytes);
        }
        if (status != WNPU_OK) {
            return status;
        }
        if (tk_add(&m->vocab, (int32_t)i, (const char *)bytes, length) != WNPU_OK) {
            return er_set(l->error, WNPU_E_IO, "token %u does not fit where it did before; the "
                          "file changed while it was read, open it again", (unsigned)i);
        }
        mf_used(l, length);
    }
    return tk_finish(&m->vocab, l->error);
}

static int mf_load_texts(mf_loader *l, wnpu_model *m)
{
    int status = mf_load_filters(l, m);
    return status == WNPU_OK ? mf_load_tokens(l, m) : status;
}

/* Transposes a convolution's row from [channel, tap] to [tap, channel], so that three consecutive
 * frames of input form the row it is multiplied with. */
static const float *mf_transpose_conv(mf_worker *w, uint32_t channels)
{
    uint32_t tap, channel;
    for (tap = 0; tap < 3; tap++) {
        for (channel = 0; channel < channels; channel++) {
            w->transposed[tap * channels + channel] = w->row[channel * 3 + tap];
        }
    }
    return w->transposed;
}

static void mf_keep_exact(gm_weight *w, uint32_t row, const float *values)
{
    size_t i;
    for (i = 0; i < w->k && w->exact != NULL; i++) {
        w->exact[((size_t)(row / 16) * w->k + i) * 16 + row % 16] = values[i];
    }
}

/* Quantises row `row` of w: its scale and correction, and q [4 k4]. values are k finite values, the
 * largest of which in magnitude has the bits `peak`; scale = max|w| / 127, q = values / scale. A
 * row whose scale would be 0 (all below 127 * 2^-150) becomes 0. */
static void mf_set_row(const op_kernels *op, gm_weight *w, uint32_t row, const float *values,
                       uint32_t peak, int8_t *q)
{
    float scale;
    memcpy(&scale, &peak, sizeof scale);
    scale = scale / 127.0f;
    if (scale > 0.0f) {
        memset(q + w->k / 4 * 4, 0, ((size_t)w->k4 - w->k / 4) * 4);
        w->correction[row] = -128 * op->digits(q, NULL, values, w->k, scale);
    } else {
        memset(q, 0, (size_t)w->k4 * 4);
    }
    mf_keep_exact(w, row, values);
    w->scale[row] = scale;
}

#define MF_INT4_PEAK 7.49f /* the largest value of a row in int4 steps; it rounds to 7 */

#define MF_STEP_MIN 1e-36f /* smaller steps would have too few significant bits */

/* Quantises the embedding of token `row`; values is overwritten. The mean (minus_mean is its
 * negative) and wide_columns are removed first; the rest becomes an int4 value and a remainder. */
static void mf_set_token(const op_kernels *op, const wnpu_model *m, gm_weight *w, uint32_t row,
                         float *values, const float *less, int8_t *q)
{
    float scale;
    uint32_t peak;
    size_t i;
    mf_keep_exact(w, row, values);
    op->bias(values, values, w->k, less, OP_STORE);
    for (i = 0; i < OP_WIDE_MAX && m->wide_columns[i] < w->k; i++) {
        m->wide_values[i * w->n16 * 16 + row] = values[m->wide_columns[i]];
        values[m->wide_columns[i]] = 0.0f;
    }
    peak = op->size(values, w->k);
    memcpy(&scale, &peak, sizeof scale);
    scale = scale / MF_INT4_PEAK;
    if (scale < MF_STEP_MIN) {
        scale = 0.0f;
        memset(q, 0, (size_t)w->k4 * 4);
    } else {
        memset(q + w->k / 8 * 8, 0, ((size_t)w->k4 - w->k / 8 * 2) * 4);
        w->correction[row] = -128 * 16 *
            op->digits(q, m->embedding_low + (size_t)row * w->k, values, w->k, scale);
    }
    w->scale[row] = scale * (1.0f / 16.0f);
}

#define MF_CHUNK_ROWS 64u /* rows per work item: whole panels, and few reads */

/* State of loading a model, tensor by tensor. */
typedef struct mf_job {
    mf_loader *l;
    mf_team *team;
    wnpu_model *m;
    tp_zeroing zeroing;    /* of the model's memory; pages zeroed before the job */
    size_t cleared;
    int status;          /* if not WNPU_OK, why there is no next part */
    uint32_t tensor;     /* the current one */
    const mf_part *part; /* NULL: none yet */
    uint64_t position;   /* of its data in the file */
    void *at;            /* destination in the model */
    uint32_t type, rows, columns;
    uint32_t channels;   /* of a convolution, else 0 */
    size_t bytes;        /* of a row in the file */
    uint32_t done, n;    /* current rows: done..done+n-1 */
    uint32_t bad;        /* atomic: first row with a value that is not finite or too large */
} mf_job;

/* Converts one row. Rows of weights go to the worker's digits[held], others to their place in the
 * model. Returns 0 if a value is not finite or too large. */
static int mf_load_row(const mf_job *j, mf_worker *w, uint32_t row, const unsigned char *bytes,
                       uint32_t held)
{
    const op_kernels *op = j->l->op;
    const float *values = w->row;
    size_t first = (size_t)j->part->first * j->m->n_text_state;
    uint32_t peak;
    mf_decode_row(op, j->type, bytes, w->row, j->columns);
    peak = op->size(w->row, j->columns);
    if (peak > MF_SIZE_MAX) {
        return 0;
    }
    if (j->channels > 0) {
        values = mf_transpose_conv(w, j->channels);
    }
    if (j->part->target == MF_TOKENS) {
        mf_set_token(op, j->m, j->at, row, w->row, j->team->worker[0].transposed, w->digits[held]);
    } else if (j->part->target == MF_ROWS) {
        mf_set_row(op, j->at, (uint32_t)first + row, values, peak, w->digits[held]);
    } else if (j->part->target == MF_BIAS) {
        memcpy(((gm_weight *)j->at)->bias + first, values, j->columns * sizeof(float));
    } else {
        memcpy(*(float **)j->at + (size_t)row * j->columns, values, j->columns * sizeof(float));
    }
    return 1;
}

static void mf_put_rows(const mf_job *j, mf_worker *w, uint32_t row, uint32_t n)
{
    if (j->part->target == MF_TOKENS || j->part->target == MF_ROWS) {
        row += j->part->first * j->m->n_text_state;
        gm_put_rows(j->at, row, n, w->digits[0], sizeof w->digits[0]);
    }
}

static int mf_read_rows(const mf_job *j, uint32_t row, uint32_t n, unsigned char *to,
                        wnpu_error *error)
{
    size_t have = 0, bytes = n * j->bytes;
    return mf_read(j->l, j->position + (uint64_t)row * j->bytes, to, &have, bytes, bytes, error);
}

/* Loads rows row..end-1. Returns the first one with a bad value, or end. */
static uint32_t mf_load_chunk(const mf_job *j, mf_worker *w, uint32_t row, uint32_t end)
{
    const unsigned char *bytes =
        j->l->parallel_reads ? w->bytes : j->l->buffer + (size_t)(row - j->done) * j->bytes;
    uint32_t had = j->l->parallel_reads ? row : end, most = (uint32_t)(sizeof w->bytes / j->bytes);
    uint32_t held = 0;
    for (; row < end; row++, bytes += j->bytes) {
        if (row == had) {
            had = end - row < most ? end : row + most;
            bytes = w->bytes;
            if (mf_read_rows(j, row, had - row, w->bytes, &w->error) != WNPU_OK) {
                w->unread = row;
                return end;
            }
        }
        if (!mf_load_row(j, w, row, bytes, held)) {
            return row;
        }
        if (++held == GM_WOVEN || row + 1 == end) {
            mf_put_rows(j, w, row + 1 - held, held);
            held = 0;
        }
    }
    return end;
}

/* Chunks are claimed in order, so the first unreadable row of all is the first of some worker. */
static void mf_load_rows(mf_job *j, size_t piece, mf_worker *w)
{
    uint32_t row = j->done + (uint32_t)piece * MF_CHUNK_ROWS, bad;
    uint32_t end = j->done + j->n - row < MF_CHUNK_ROWS ? j->done + j->n : row + MF_CHUNK_ROWS;
    row = w->unread == UINT32_MAX ? mf_load_chunk(j, w, row, end) : end;
    bad = __atomic_load_n(&j->bad, __ATOMIC_RELAXED);
    while (row < end && row < bad && !__atomic_compare_exchange_n(
               &j->bad, &bad, row, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static int mf_bad_row(const mf_job *j)
{
    return er_set(j->l->error, WNPU_E_MODEL, "tensor '%s' has a value in row %u at byte %llu that "
                  "is not finite or beyond 65504; the file is damaged", mf_name(j->l, j->tensor),
                  (unsigned)j->bad,
                  (unsigned long long)(j->position + (uint64_t)j->bad * j->bytes));
}

#define MF_MEAN_TOKENS 1024u /* the mean is taken over the first so many tokens */
#define MF_WIDTH_RATIO 2.0f   /* minimum ratio of a float column's width to the mean width */

/* sum[columns] += the embeddings of the first n tokens, or their distances from the mean. */
static int mf_sum_embeddings(const mf_job *j, uint32_t n, float *sum, const float *mean)
{
    const uint32_t most = (uint32_t)(MF_BUFFER / j->bytes);
    uint32_t row, i;
    float *values = j->team->worker[0].row;
    for (row = 0; row < n; row++) {
        int status = row % most > 0 ? WNPU_OK :
                     mf_read_rows(j, row, n - row < most ? n - row : most, j->l->buffer,
                                  j->l->error);
        if (status != WNPU_OK) {
            return status;
        }
        mf_decode_row(j->l->op, j->type, j->l->buffer + row % most * j->bytes, values, j->columns);
        for (i = 0; i < j->columns; i++) {
            sum[i] += mean != NULL ? fabsf(values[i] - mean[i]) : values[i];
        }
    }
    return WNPU_OK;
}

/* Computes the mean of the embeddings and finds up to OP_WIDE_MAX columns that are far wider
 * than the others, widest first. In OpenAI's models the mean is nine tenths of a token's norm, and
 * one column holds 4 to 16 % of the remainder: without these, int4 is 3 to 16 times as precise. */
static int mf_find_mean(const mf_job *j)
{
    float *mean = j->m->embedding_mean, *width = j->team->worker[0].transposed, all = 0.0f;
    float *less = width; /* reuses width, which is no longer needed then */
    uint32_t n = j->rows < MF_MEAN_TOKENS ? j->rows : MF_MEAN_TOKENS, i, k, widest;
    int status = mf_sum_embeddings(j, n, mean, NULL);
    for (i = 0; i < j->columns; i++) {
        mean[i] = mean[i] / (float)n;
        width[i] = 0.0f;
    }
    if (status == WNPU_OK) {
        status = mf_sum_embeddings(j, n, width, mean);
    }
    for (i = 0; i < j->columns; i++) {
        all += width[i];
    }
    for (k = 0; k < OP_WIDE_MAX; k++) {
        for (i = 1, widest = 0; i < j->columns; i++) {
            widest = width[i] > width[widest] ? i : widest;
        }
        if (width[widest] * (float)j->columns <= MF_WIDTH_RATIO * all) {
            widest = j->columns; /* no further column */
        } else {
            width[widest] = mean[widest] = 0.0f;
        }
        j->m->wide_columns[k] = widest;
    }
    for (i = 0; i < MF_MAX_STATE; i++) { /* beyond columns for whole vectors */
        less[i] = i < j->columns ? -mean[i] : 0.0f;
    }
    return status;
}

/* Returns the status of the rows just processed. */
static int mf_check_rows(const mf_job *j)
{
    const mf_worker *first = &j->team->worker[0];
    unsigned i;
    for (i = 1; i < j->l->threads; i++) {
        first = j->team->worker[i].unread < first->unread ? &j->team->worker[i] : first;
    }
    if (first->unread != UINT32_MAX) {
        *j->l->error = first->error;
        return first->error.code;
    }
    return j->bad != UINT32_MAX ? mf_bad_row(j) : WNPU_OK;
}

static int mf_begin_tensor(mf_job *j, uint32_t tensor)
{
    const mf_loader *l = j->l;
    int decoder;
    uint32_t layer, ne[3];
    unsigned char *base;
    j->tensor = tensor;
    j->part = mf_find(l, tensor, &decoder, &layer);
    base = decoder < 0 ? (unsigned char *)j->m
                       : (unsigned char *)&(decoder ? j->m->decoder : j->m->encoder)[layer];
    j->at = base + j->part->offset;
    j->type = l->tensors[tensor].type;
    mf_ne(l, j->part->shape, ne);
    j->channels = j->part->shape == MF_CONV1 || j->part->shape == MF_CONV2 ? ne[1] : 0;
    j->columns = j->channels > 0 ? ne[0] * ne[1] : ne[0];
    j->rows = j->channels > 0 ? ne[2] : ne[1];
    j->bytes = (size_t)mf_type_bytes(j->type, j->columns);
    j->position = l->tensors[tensor].offset;
    j->done = j->n = 0;
    return j->part->target == MF_TOKENS ? mf_find_mean(j) : WNPU_OK;
}

/* Selects the next rows: the whole tensor if workers read it themselves, else one buffer of it. */
static int mf_begin_rows(mf_job *j)
{
    uint32_t most = j->l->parallel_reads ? j->rows : (uint32_t)(MF_BUFFER / j->bytes);
    unsigned i;
    j->done += j->n;
    j->n = j->rows - j->done < most ? j->rows - j->done : most;
    j->bad = UINT32_MAX;
    for (i = 0; i < j->l->threads; i++) {
        j->team->worker[i].unread = UINT32_MAX;
    }
    return j->l->parallel_reads ? WNPU_OK :
           mf_read_rows(j, j->done, j->n, j->l->buffer, j->l->error);
}

/* Number of items of the next part. The first part zeroes memory and, if any worker may read the
 * source, loads filters and vocabulary; all others convert rows. */
static size_t mf_next_part(void *context, size_t part)
{
    mf_job *j = context;
    if (part == 0) {
        return j->status == WNPU_OK ? 1 + tp_zeroing_pages(&j->zeroing) - j->cleared : 0;
    }
    if (j->status == WNPU_OK && j->part != NULL) {
        j->status = mf_check_rows(j);
    }
    if (j->status == WNPU_OK && (j->part == NULL || j->done + j->n == j->rows)) {
        uint32_t tensor = j->part == NULL ? 0 : j->tensor + 1;
        if (tensor == j->l->n_tensors) {
            return 0;
        }
        j->status = mf_begin_tensor(j, tensor);
    }
    if (j->status == WNPU_OK) {
        j->status = mf_begin_rows(j);
    }
    return j->status == WNPU_OK ? (j->n + MF_CHUNK_ROWS - 1) / MF_CHUNK_ROWS : 0;
}

static void mf_task(void *context, size_t index, unsigned worker)
{
    mf_job *j = context;
    const size_t item = index % TP_PART;
    if (j->part != NULL) {
        mf_load_rows(j, item, &j->team->worker[worker]);
    } else if (item > 0) {
        tp_zero_page(&j->zeroing, j->cleared + item - 1);
    } else if (j->l->parallel_reads) {
        j->status = mf_load_texts(j->l, j->m);
    }
}

/* Loads a model. The pages of filters and vocabulary were zeroed before. */
static int mf_load(mf_job *j)
{
    mf_loader *l = j->l;
    tp_pool *pool = &j->team->pool;
    size_t part = 0, items;
    l->ahead = MF_BUFFER;
    if (l->parallel_reads) {
        tp_run_parts(pool, mf_next_part, mf_task, j);
        return j->status;
    }
    j->status = mf_load_texts(l, j->m);
    while ((items = mf_next_part(j, part++)) > 0) { /* rows are read by this thread */
        tp_run(pool, items, mf_task, j);
    }
    return j->status;
}

/* ---- the model's memory ---- */

/* Allocates memory. The allocator may be the host's, so the alignment is checked. */
static void *mf_alloc(const wnpu_allocator *allocator, size_t size, const char *what,
                      wnpu_error *error)
{
    void *memory = allocator->alloc(allocator->user, size, AR_ALIGN);
    if (memory == NULL) {
        (void)er_set(error, WNPU_E_MEMORY, "no memory for %s of %llu bytes; free some or use a "
                     "smaller model", what, (unsigned long long)size);
    } else if ((uintptr_t)memory % AR_ALIGN != 0) {
        allocator->release(allocator->user, memory, size);
        memory = NULL;
        (void)er_set(error, WNPU_E_MEMORY, "the allocator's memory for %s is not aligned to %u "
                     "bytes as asked; correct the allocator", what, AR_ALIGN);
    }
    return memory;
}

/* Sizes of head and data. */
static int mf_measure(mf_loader *l, int keep, size_t *head, size_t *data)
{
    size_t both;
    memset(&l->head, 0, sizeof l->head);
    memset(&l->data, 0, sizeof l->data);
    (void)mf_carve(l, keep);
    *head = l->head.used;
    *data = l->data.used;
    if (l->head.overflow || l->data.overflow || ar_add(*head, *data, &both) != 0) {
        return er_set(l->error, WNPU_E_MEMORY, "the model does not fit into the address space; use "
                      "a smaller one");
    }
    return WNPU_OK;
}

/* Lays out the model in memory for the head and in data, which may be elsewhere. */
static int mf_lay_out(mf_loader *l, int keep, void *head, size_t head_size, unsigned char *data,
                      size_t data_size, wnpu_model **model)
{
    memset(&l->head, 0, sizeof l->head);
    memset(&l->data, 0, sizeof l->data);
    l->head.base = head;
    l->head.size = head_size;
    l->data.base = data;
    l->data.size = data_size;
    *model = mf_carve(l, keep);
    if (l->head.used != head_size || l->data.used != data_size) {
        return er_set(l->error, WNPU_E_INTERNAL, "a model was measured as %llu and %llu bytes and "
                      "takes %llu and %llu; please report it", (unsigned long long)head_size,
                      (unsigned long long)data_size, (unsigned long long)l->head.used,
                      (unsigned long long)l->data.used);
    }
    (*model)->name = mf_model_name(l);
    (*model)->data = data;
    (*model)->data_size = data_size;
    return WNPU_OK;
}

static size_t mf_team_size(const mf_loader *l)
{
    return sizeof(mf_team) + l->threads * sizeof(mf_worker);
}

/* Starts the threads. If the system has none, one is enough unless the caller set a number. */
static int mf_start_team(mf_loader *l, mf_team *team, const wnpu_model_config *config)
{
    int status = tp_open(&team->pool, l->threads, config->parallel_for, config->parallel_user, NULL,
                         config->threads > 0 ? l->error : NULL);
    return status == WNPU_OK || config->threads > 0 ? status :
           tp_open(&team->pool, 1, NULL, NULL, NULL, l->error);
}

/* Lays out the model in memory and loads it. */
static int mf_fill(mf_loader *l, const wnpu_allocator *allocator, mf_team *team, int keep,
                   unsigned char *memory, size_t head, size_t data, wnpu_model **model)
{
    mf_job j;
    int status;
    memset(&j, 0, sizeof j);
    j.l = l;
    j.team = team;
    /* padding is zero, as in a pack */
    tp_zeroing_start(&j.zeroing, allocator, memory, 0, head + data, 1);
    for (; j.cleared < tp_zeroing_pages(&j.zeroing) && j.cleared * AR_HUGE < head + l->texts_end;
         j.cleared++) {
        tp_zero_page(&j.zeroing, j.cleared);
    }
    status = mf_lay_out(l, keep, memory, head, memory + head, data, model);
    j.m = *model;
    return status == WNPU_OK ? mf_load(&j) : status;
}

static int mf_build(mf_loader *l, const wnpu_model_config *config, const wnpu_allocator *allocator,
                    wnpu_model **model)
{
    size_t head = 0, data = 0;
    unsigned char *memory;
    mf_team *team;
    int keep = config->keep_float != 0, status = mf_measure(l, keep, &head, &data);
    if (status != WNPU_OK) {
        return status;
    }
    memory = mf_alloc(allocator, head + data, "a model", l->error);
    if (memory == NULL) {
        return WNPU_E_MEMORY;
    }
    team = mf_alloc(allocator, mf_team_size(l), "opening a model", l->error);
    status = team != NULL ? mf_start_team(l, team, config) : WNPU_E_MEMORY;
    if (status == WNPU_OK) {
        status = mf_fill(l, allocator, team, keep, memory, head, data, model);
        tp_close(&team->pool);
    }
    if (team != NULL) {
        allocator->release(allocator->user, team, mf_team_size(l));
    }
    if (status != WNPU_OK) {
        allocator->release(allocator->user, memory, head + data);
        *model = NULL;
        return status;
    }
    (*model)->allocator = *allocator;
    (*model)->size = head + data;
    return WNPU_OK;
}

/* ---- packs: .wnpu files ----
 *
 * An image of a model's data in memory, preceded by a header with the position and checksum of each
 * section. Numbers are little-endian:
 *
 *      0   8  89 57 4e 50 55 0d 0a 1a: detects transfers in text mode, which change line ends
 *      8   4  MF_PACK_VERSION
 *     12   4  0x01020304
 *     16   8  size of the file
 *     24   8  checksum of bytes 32 to the start of the data
 *     32   8  start of the data: a multiple of 4096
 *     40   4  number of sections
 *     44  40  n_vocab to n_mels as in a ggml file
 *     84   4  number of tokens with a text
 *     88   8  bytes of these texts
 *     96   4  ggml's number of the type that most weights had; zeros from here to 128
 *    128  64  for each section: name[40], offset in the file, bytes, checksum; then zeros
 *
 * Sections are contiguous, so every byte of the file is covered by a checksum. */
#define MF_PACK_VERSION 2u
#define MF_PACK_HEADER 128u
#define MF_PACK_ENTRY 64u
#define MF_PACK_PAGE 4096u
#define MF_PACK_MARK 0x01020304u
#define MF_PACK_SIZES 10u /* all but ftype */

static const unsigned char mf_pack_magic[8] = {0x89, 'W', 'N', 'P', 'U', '\r', '\n', 0x1a};

static void mf_put32(unsigned char *p, uint32_t x)
{
    p[0] = (unsigned char)x;
    p[1] = (unsigned char)(x >> 8);
    p[2] = (unsigned char)(x >> 16);
    p[3] = (unsigned char)(x >> 24);
}

static void mf_put64(unsigned char *p, uint64_t x)
{
    mf_put32(p, (uint32_t)x);
    mf_put32(p + 4, (uint32_t)(x >> 32));
}

/* Checksums are XXH64 with seed 0 (Yann Collet, xxHash specification 0.1.1): fast without SIMD, and
 * available in other tools (xxhsum). */
#define MF_XX1 0x9e3779b185ebca87u
#define MF_XX2 0xc2b2ae3d27d4eb4fu
#define MF_XX3 0x165667b19e3779f9u
#define MF_XX4 0x85ebca77c2b2ae63u
#define MF_XX5 0x27d4eb2f165667c5u

WNPU_INLINE uint64_t mf_rotate(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

WNPU_INLINE uint64_t mf_round(uint64_t lane, uint64_t x)
{
    return mf_rotate(lane + x * MF_XX2, 31) * MF_XX1;
}

static uint64_t mf_checksum(const void *data, size_t size)
{
    const unsigned char *p = data, *end = p + size;
    uint64_t lane[4] = {MF_XX1 + MF_XX2, MF_XX2, 0, 0 - MF_XX1}, h = MF_XX5;
    unsigned i;
    if (size >= 32) {
        for (; end - p >= 32; p += 32) {
            for (i = 0; i < 4; i++) {
                lane[i] = mf_round(lane[i], mf_u64(p + 8 * i));
            }
        }
        h = mf_rotate(lane[0], 1) + mf_rotate(lane[1], 7) + mf_rotate(lane[2], 12) +
            mf_rotate(lane[3], 18);
        for (i = 0; i < 4; i++) {
            h = (h ^ mf_round(0, lane[i])) * MF_XX1 + MF_XX4;
        }
    }
    h += size;
    for (; end - p >= 8; p += 8) {
        h = mf_rotate(h ^ mf_round(0, mf_u64(p)), 27) * MF_XX1 + MF_XX4;
    }
    if (end - p >= 4) {
        h = mf_rotate(h ^ mf_u32(p) * MF_XX1, 23) * MF_XX2 + MF_XX3;
        p += 4;
    }
    for (; p < end; p++) {
        h = mf_rotate(h ^ *p * MF_XX5, 11) * MF_XX1;
    }
    h = (h ^ h >> 33) * MF_XX2;
    h = (h ^ h >> 29) * MF_XX3;
    return h ^ h >> 32;
}

static size_t mf_pack_data_at(uint32_t n_sections)
{
    size_t header = MF_PACK_HEADER + (size_t)n_sections * MF_PACK_ENTRY;
    return (header + MF_PACK_PAGE - 1) / MF_PACK_PAGE * MF_PACK_PAGE;
}

/* Checks the fixed part of the header at h. *data_at receives the start of the data. */
static int mf_pack_start(mf_loader *l, const unsigned char *h, size_t *data_at)
{
    uint32_t version = mf_u32(h + 8), n = mf_u32(h + 40);
    uint64_t size = mf_u64(h + 16);
    if (mf_u32(h + 12) != MF_PACK_MARK) {
        return er_set(l->error, WNPU_E_UNSUPPORTED, "the pack's byte order is 0x%08x, expected "
                      "0x%08x; pack the model again for this machine", (unsigned)mf_u32(h + 12),
                      MF_PACK_MARK);
    }
    if (version != MF_PACK_VERSION) {
        return er_set(l->error, WNPU_E_VERSION, "this pack has format %lu, this library reads "
                      "format %u; %s", (unsigned long)version, MF_PACK_VERSION,
                      version > MF_PACK_VERSION ? "update the library or pack the model again"
                                                : "pack the model again");
    }
    if (size != l->source.size) {
        return er_set(l->error, WNPU_E_MODEL, "the pack has %llu bytes and says that it has %llu; "
                      "it is truncated or damaged, get it again",
                      (unsigned long long)l->source.size, (unsigned long long)size);
    }
    *data_at = n <= MF_MAX_SECTIONS ? mf_pack_data_at(n) : 0;
    if (*data_at == 0 || mf_u64(h + 32) != *data_at || *data_at > size) {
        return er_set(l->error, WNPU_E_MODEL, "the pack's header claims %lu sections and data at "
                      "byte %llu of %llu; it is damaged", (unsigned long)n,
                      (unsigned long long)mf_u64(h + 32), (unsigned long long)size);
    }
    return WNPU_OK;
}

/* Reads the header, which then is at *h in the buffer up to the data, and takes from it what the
 * first pass over a ggml file determines. */
static int mf_pack_header(mf_loader *l, const unsigned char **h, size_t *data_at)
{
    uint64_t is, should;
    int status = mf_need(l, MF_PACK_HEADER, "the header", h);
    if (status == WNPU_OK) {
        status = mf_pack_start(l, *h, data_at);
    }
    if (status == WNPU_OK) {
        status = mf_need(l, *data_at, "the header", h);
    }
    if (status != WNPU_OK) {
        return status;
    }
    is = mf_checksum(*h + 32, *data_at - 32);
    should = mf_u64(*h + 24);
    if (is != should) {
        return er_set(l->error, WNPU_E_MODEL, "the pack's header has checksum %016llx, expected "
                      "%016llx; it is damaged, get it again", (unsigned long long)is,
                      (unsigned long long)should);
    }
    l->n_base = mf_u32(*h + 84);
    l->vocab_bytes = mf_u64(*h + 88);
    l->weight_type = mf_u32(*h + 96);
    if (l->n_base > TK_MAX_VOCAB || l->vocab_bytes > TK_MAX_BYTES ||
        !mf_is_type(l->weight_type)) {
        return er_set(l->error, WNPU_E_MODEL, "the pack claims %lu tokens of %llu bytes and "
                      "weights of type %lu; it is damaged", (unsigned long)l->n_base,
                      (unsigned long long)l->vocab_bytes, (unsigned long)l->weight_type);
    }
    mf_used(l, 44);
    status = mf_read_sizes(l, MF_PACK_SIZES, 44);
    l->n_tensors = mf_count(l);
    return status != WNPU_OK ? status :
           tk_check((int32_t)l->sizes[MF_VOCAB], (int32_t)l->n_base, (size_t)l->vocab_bytes,
                    l->error);
}

/* Formats one row of the table of sections. */
static void mf_pack_entry(const mf_loader *l, uint32_t section, size_t data_at,
                          unsigned char entry[MF_PACK_ENTRY])
{
    const mf_section *s = &l->sections[section];
    memset(entry, 0, MF_PACK_ENTRY);
    memcpy(entry, s->name, strlen(s->name));
    mf_put64(entry + 40, data_at + s->start);
    mf_put64(entry + 48, mf_section_end(l, section) - s->start);
}

/* Checks the table of sections in header h against the measured layout. */
static int mf_pack_table(const mf_loader *l, const unsigned char *h, size_t data_at)
{
    uint32_t i, n = mf_u32(h + 40);
    unsigned char entry[MF_PACK_ENTRY];
    char shown[MF_SECTION_NAME + 1];
    for (i = 0; i < l->n_sections && i < n; i++) {
        const unsigned char *row = h + MF_PACK_HEADER + (size_t)i * MF_PACK_ENTRY;
        mf_pack_entry(l, i, data_at, entry);
        if (memcmp(row, entry, MF_PACK_ENTRY - 8) != 0) {
            (void)mf_printable(shown, sizeof shown, row, strnlen((const char *)row,
                                                                 MF_SECTION_NAME));
            return er_set(l->error, WNPU_E_MODEL, "section %u of the pack is '%s', %llu bytes at "
                          "%llu, expected '%s', %llu at %llu; pack the model again", (unsigned)i,
                          shown, (unsigned long long)mf_u64(row + 48),
                          (unsigned long long)mf_u64(row + 40), l->sections[i].name,
                          (unsigned long long)mf_u64(entry + 48),
                          (unsigned long long)mf_u64(entry + 40));
        }
    }
    if (n != l->n_sections || l->source.size - data_at != l->data.used ||
        l->data.used > SIZE_MAX / 2) {
        return er_set(l->error, WNPU_E_MODEL, "the pack has %lu sections and %llu bytes of data, "
                      "expected %lu and %llu; pack the model again", (unsigned long)n,
                      (unsigned long long)(l->source.size - data_at), (unsigned long)l->n_sections,
                      (unsigned long long)l->data.used);
    }
    return WNPU_OK;
}

static int mf_sane_rows(const op_kernels *op, const gm_weight *w, float largest_scale)
{
    size_t n = (size_t)w->n16 * 16, i;
    int sane = w->bias == NULL || mf_is_valid(op, w->bias, n);
    for (i = 0; i < n; i++) {
        sane &= mt_bits(w->scale[i]) <= mt_bits(largest_scale); /* also refuses negative values */
    }
    return sane;
}

/* Checks float values for the limits that mf_load_row() enforces. */
static int mf_pack_values(mf_loader *l, wnpu_model *m)
{
    uint32_t tensor, layer, ne[3];
    int bad = !mf_is_valid(l->op, m->filters, (size_t)m->n_mels * MF_BINS), decoder;
    if (bad) {
        return er_set(l->error, WNPU_E_MODEL, "a mel filter has a value that is not finite or "
                      "beyond 65504; the pack is damaged");
    }
    for (tensor = 0; tensor < l->n_tensors && !bad; tensor++) {
        const mf_part *part = mf_find(l, tensor, &decoder, &layer);
        unsigned char *base = decoder < 0 ? (unsigned char *)m :
                              (unsigned char *)&(decoder ? m->decoder : m->encoder)[layer];
        const void *at = base + part->offset;
        if (part->target == MF_FLOATS) {
            mf_ne(l, part->shape, ne);
            bad = !mf_is_valid(l->op, *(float *const *)at, (size_t)ne[0] * ne[1]);
        } else if (part->target == MF_ROWS && part->first == 0) {
            bad = !mf_sane_rows(l->op, at, 65504.0f / 127.0f);
        } else if (part->target == MF_TOKENS) {
            size_t n = (size_t)m->embedding.n16 * 16;
            bad = !mf_sane_rows(l->op, at, 2.0f * 65504.0f / (16.0f * MF_INT4_PEAK)) ||
                  !mf_is_valid(l->op, m->embedding_mean, m->n_text_state) ||
                  !mf_is_valid(l->op, m->wide_values, OP_WIDE_MAX * n);
        }
        if (bad) {
            return er_set(l->error, WNPU_E_MODEL, "tensor '%s' or its bias has a value that is "
                          "not finite or beyond 65504; the pack is damaged", mf_name(l, tensor));
        }
    }
    return WNPU_OK;
}

/* Copies the pack into memory; its header comes from the buffer, where it was checked. */
static int mf_pack_read(mf_loader *l, unsigned char *image, const unsigned char *h, size_t data_at)
{
    uint64_t done = data_at, size = l->source.size;
    memcpy(image, h, data_at);
    while (done < size) {
        size_t ask = size - done < (1u << 30) ? (size_t)(size - done) : 1u << 30;
        int64_t got = l->source.read(l->source.user, done, image + done, ask);
        if (got <= 0 || (uint64_t)got > ask) {
            return er_set(l->error, WNPU_E_IO, "reading %llu bytes at byte %llu of %llu returned "
                          "%lld; the file is unreadable or was cut while it was read",
                          (unsigned long long)ask, (unsigned long long)done,
                          (unsigned long long)size, (long long)got);
        }
        done += (uint64_t)got;
    }
    return WNPU_OK;
}

static int mf_verify(const wnpu_model *m, wnpu_error *error)
{
    const unsigned char *h = m->image;
    size_t data_at = m->image_size - m->data_size;
    uint32_t i, n = mf_u32(h + 40);
    char shown[MF_SECTION_NAME + 1];
    if (mf_checksum(h + 32, data_at - 32) != mf_u64(h + 24) || mf_pack_data_at(n) != data_at) {
        return er_set(error, WNPU_E_MODEL, "the header of the pack is damaged; get it again");
    }
    for (i = 0; i < n; i++) {
        const unsigned char *row = h + MF_PACK_HEADER + (size_t)i * MF_PACK_ENTRY;
        uint64_t at = mf_u64(row + 40), bytes = mf_u64(row + 48), is;
        if (at > m->image_size || bytes > m->image_size - at) {
            return er_set(error, WNPU_E_MODEL, "the header of the pack changed; get it again");
        }
        is = mf_checksum(h + at, (size_t)bytes);
        if (is != mf_u64(row + 56)) {
            (void)mf_printable(shown, sizeof shown, row, strnlen((const char *)row,
                                                                 MF_SECTION_NAME));
            return er_set(error, WNPU_E_MODEL, "section '%s' of the pack, %llu bytes at byte %llu, "
                          "has checksum %016llx, expected %016llx; it is damaged, get it again",
                          shown, (unsigned long long)bytes, (unsigned long long)at,
                          (unsigned long long)is, (unsigned long long)mf_u64(row + 56));
        }
    }
    return WNPU_OK;
}

/* Checks the pack's data once the model is laid out over its image. */
static int mf_pack_check(mf_loader *l, const wnpu_model_config *config, wnpu_model *m)
{
    int status = config->full_check ? mf_verify(m, l->error) : WNPU_OK;
    if (status == WNPU_OK) {
        status = tk_attach(&m->vocab, l->error);
    }
    return status == WNPU_OK ? mf_pack_values(l, m) : status;
}

/* Reads the header and determines the bytes of structures, the bytes of the data, and their start
 * in the file. */
static int mf_pack_sizes(mf_loader *l, const wnpu_model_config *config, const unsigned char **h,
                         size_t *data_at, size_t *head, size_t *data)
{
    int status = WNPU_OK;
    if (config->keep_float) {
        status = er_set(l->error, WNPU_E_UNSUPPORTED, "a pack holds no float weights, which "
                        "keep_float asks for; open the file that the pack was made from");
    }
    if (status == WNPU_OK) {
        status = mf_pack_header(l, h, data_at);
    }
    if (status == WNPU_OK) {
        status = mf_measure(l, 0, head, data);
    }
    return status == WNPU_OK ? mf_pack_table(l, *h, *data_at) : status;
}

/* image: the source's bytes, valid as long as the model, or NULL to copy them. */
static int mf_open_pack(mf_loader *l, const wnpu_model_config *config,
                        const wnpu_allocator *allocator, unsigned char *image, wnpu_model **model)
{
    const unsigned char *h = NULL;
    unsigned char *memory;
    size_t data_at = 0, head = 0, data = 0, own;
    int status = mf_pack_sizes(l, config, &h, &data_at, &head, &data);
    if (status != WNPU_OK) {
        return status;
    }
    own = image != NULL ? head : head + data_at + data; /* data_at + data: the file */
    memory = mf_alloc(allocator, own, "a model", l->error);
    if (memory == NULL) {
        return WNPU_E_MEMORY;
    }
    if (image == NULL) {
        image = memory + head;
        status = mf_pack_read(l, image, h, data_at);
    }
    if (status == WNPU_OK) {
        status = mf_lay_out(l, 0, memory, head, image + data_at, data, model);
    }
    if (status == WNPU_OK) {
        (*model)->image = image;
        (*model)->image_size = data_at + data;
        (*model)->shared = own == head ? data_at + data : 0;
        (*model)->allocator = *allocator;
        (*model)->size = own;
        status = mf_pack_check(l, config, *model);
    }
    if (status != WNPU_OK) {
        allocator->release(allocator->user, memory, own);
        *model = NULL;
    }
    return status;
}

static int mf_is_pack(const unsigned char *bytes, size_t n)
{
    return n >= sizeof mf_pack_magic && memcmp(bytes, mf_pack_magic, sizeof mf_pack_magic) == 0;
}

static int mf_measure_pack(mf_loader *l, const wnpu_model_config *config, wnpu_model_memory *memory)
{
    const unsigned char *h = NULL;
    size_t data_at = 0, head = 0, data = 0;
    int status = mf_pack_sizes(l, config, &h, &data_at, &head, &data);
    memory->held = head + (config->copy ? data_at + data : 0);
    memory->shared = config->copy ? 0 : data_at + data;
    memory->peak = memory->held + sizeof *l;
    return status;
}

/* ---- opening ---- */

/* Pass 1: all but the data of tensors. */
static int mf_read_ggml(mf_loader *l)
{
    int status = mf_magic(l);
    if (status == WNPU_OK) {
        status = mf_read_sizes(l, MF_SIZES, 4);
    }
    if (status == WNPU_OK) {
        status = mf_filters(l);
    }
    if (status == WNPU_OK) {
        l->ahead = 65536;
        status = mf_tokens(l);
        l->ahead = 512;
    }
    return status == WNPU_OK ? mf_index(l) : status;
}

static int mf_measure_ggml(mf_loader *l, const wnpu_model_config *config, wnpu_model_memory *memory)
{
    size_t head = 0, data = 0;
    int status = mf_read_ggml(l);
    status = status == WNPU_OK ? mf_measure(l, config->keep_float != 0, &head, &data) : status;
    memory->held = head + data;
    memory->peak = memory->held + sizeof *l + mf_team_size(l);
    return status;
}

static int mf_open_ggml(mf_loader *l, const wnpu_model_config *config,
                        const wnpu_allocator *allocator, unsigned char *image, wnpu_model **model)
{
    int status = mf_read_ggml(l);
    (void)image;
    return status == WNPU_OK ? mf_build(l, config, allocator, model) : status;
}

/* File formats. The last one refuses everything that is not a model. */
static const struct mf_format {
    int (*recognise)(const unsigned char *bytes, size_t n); /* the first 8 bytes; NULL: any */
    int (*measure)(mf_loader *l, const wnpu_model_config *config, wnpu_model_memory *memory);
    int (*open)(mf_loader *l, const wnpu_model_config *config, const wnpu_allocator *allocator,
                unsigned char *image, wnpu_model **model);
} mf_formats[] = {
    {mf_is_pack, mf_measure_pack, mf_open_pack},
    {NULL, mf_measure_ggml, mf_open_ggml},
};

static int mf_detect_format(mf_loader *l, const struct mf_format **format)
{
    const unsigned char *bytes = NULL;
    size_t n = l->source.size < 8 ? (size_t)l->source.size : 8;
    int status;
    l->ahead = 4096; /* headers are short and far apart */
    status = mf_need(l, n, "the magic number", &bytes);
    *format = mf_formats;
    while (status == WNPU_OK && (*format)->recognise != NULL && !(*format)->recognise(bytes, n)) {
        ++*format;
    }
    return status;
}

static int mf_open(mf_loader *l, const wnpu_model_config *config, const wnpu_allocator *allocator,
                   unsigned char *image, wnpu_model **model)
{
    double begin = er_now_ms();
    const struct mf_format *format;
    int status = mf_detect_format(l, &format);
    status = status == WNPU_OK ? format->open(l, config, allocator, image, model) : status;
    if (status == WNPU_OK) {
        /* Pages that are still small become huge in the background. */
        (void)ar_use_huge(allocator, *model, (*model)->size);
        er_log(config->log, config->log_user, WNPU_LOG_INFO,
               "model %s, %s, %u tensors: %llu bytes of file became %llu bytes of memory and %llu "
               "used in place, in %d ms", (*model)->name, (*model)->weight_type,
               (unsigned)l->n_tensors, (unsigned long long)l->source.size,
               (unsigned long long)(*model)->size, (unsigned long long)(*model)->shared,
               (int)(er_now_ms() - begin));
    }
    return status;
}

WNPU_API void wnpu_model_config_init(wnpu_model_config *config, size_t struct_size)
{
    wnpu_model_config c;
    memset(&c, 0, sizeof c); /* every default is 0 or NULL */
    er_init(config, struct_size, &c, sizeof c);
}

/* Checks the arguments common to all ways of opening. *model becomes NULL. */
static int mf_check_args(wnpu_model **model, const wnpu_model_config *config,
                         wnpu_model_config *ours, wnpu_error *error)
{
    er_clear(error);
    if (model == NULL) {
        return er_set(error, WNPU_E_ARGUMENT, "model is NULL; pass where to put it");
    }
    *model = NULL;
    wnpu_model_config_init(ours, sizeof *ours);
    if (config != NULL && er_import(ours, sizeof *ours, config, config->struct_size) != WNPU_OK) {
        return er_set(error, WNPU_E_VERSION, "struct_size %u of the model configuration is wrong "
                      "or sets fields unknown to this library; use wnpu_model_config_init()",
                      (unsigned)config->struct_size);
    }
    if (config != NULL &&
        config->struct_size < offsetof(wnpu_model_config, threads) + sizeof config->threads) {
        ours->threads = 1; /* older programs do not expect threads */
    }
    if (ours->keep_float > 1 || ours->copy > 1 || ours->full_check > 1) {
        return er_set(error, WNPU_E_ARGUMENT, "keep_float is %u, copy %u, full_check %u, expected "
                      "0 or 1", (unsigned)ours->keep_float, (unsigned)ours->copy,
                      (unsigned)ours->full_check);
    }
    if (ours->threads > TP_MAX_THREADS) {
        return er_set(error, WNPU_E_ARGUMENT, "threads %u is outside 1..%u",
                      (unsigned)ours->threads, TP_MAX_THREADS);
    }
    if (ours->allocator != NULL && (ours->allocator->alloc == NULL ||
                                    ours->allocator->release == NULL)) {
        return er_set(error, WNPU_E_ARGUMENT, "the allocator lacks alloc or release; fill both in");
    }
    return WNPU_OK;
}

#define MF_THREADS 4u /* default; more threads are limited by memory bandwidth */
#define MF_THREAD_BYTES ((uint64_t)8 << 20) /* bytes of file per thread */

static unsigned mf_threads(const wnpu_model_config *config, uint64_t size)
{
    unsigned cpus = tp_cpus(), most = cpus < MF_THREADS ? cpus : MF_THREADS;
#ifdef WNPU_NO_THREADS
    if (config->parallel_for == NULL) {
        return 1;
    }
#endif
    return config->threads > 0 ? config->threads
           : size / MF_THREAD_BYTES + 1 < most ? (unsigned)(size / MF_THREAD_BYTES) + 1 : most;
}

/* Returns NULL if there is no memory. */
static mf_loader *mf_make_loader(const wnpu_allocator *allocator, const wnpu_source *source,
                                 const wnpu_model_config *config, wnpu_error *error)
{
    mf_loader *l = mf_alloc(allocator, sizeof *l, "opening a model", error);
    if (l != NULL) {
        memset(l, 0, offsetof(mf_loader, sections)); /* the rest is set on use */
        l->source = *source;
        l->error = error;
        l->op = op_select(cp_best());
        l->threads = mf_threads(config, source->size);
    }
    return l;
}

/* image: the source's bytes if they stay valid while the model is open, else NULL.
 * parallel_reads: any thread may read the source. */
static int mf_start(wnpu_model **model, const wnpu_source *source, unsigned char *image,
                    int parallel_reads, const wnpu_model_config *config, wnpu_error *error)
{
    wnpu_allocator allocator = ar_allocator(config->allocator);
    uint64_t environment = er_float_default();
    wnpu_error local;
    mf_loader *l;
    int status;
    error = error != NULL ? error : &local; /* the log needs the message in any case */
    l = mf_make_loader(&allocator, source, config, error);
    status = l != NULL ? WNPU_OK : WNPU_E_MEMORY;
    if (l != NULL) {
        l->parallel_reads = parallel_reads;
        status = mf_open(l, config, &allocator, image, model);
        if (status != WNPU_OK) {
            er_log(config->log, config->log_user, WNPU_LOG_ERROR, "%s", error->message);
        }
        allocator.release(allocator.user, l, sizeof *l);
    }
    er_float_put(environment);
    return status;
}

/* Determines the memory that opening the source needs, in the same way as opening does. */
static int mf_measure_source(mf_loader *l, const wnpu_model_config *config,
                             wnpu_model_memory *memory)
{
    const struct mf_format *format;
    int status = mf_detect_format(l, &format);
    return status == WNPU_OK ? format->measure(l, config, memory) : status;
}

static int mf_check_source(const wnpu_source *source, wnpu_error *error)
{
    return source != NULL && source->read != NULL ? WNPU_OK : er_set(error, WNPU_E_ARGUMENT,
           "the source has no read function; fill it in");
}

WNPU_API int wnpu_model_measure_source(const wnpu_source *source, const wnpu_model_config *config,
                                       wnpu_model_memory *memory, wnpu_error *error)
{
    wnpu_model *none;
    wnpu_model_memory ours;
    wnpu_model_config settings;
    wnpu_allocator allocator;
    wnpu_error local;
    mf_loader *l;
    int status = mf_check_args(&none, config, &settings, error);
    status = status == WNPU_OK ? mf_check_source(source, error) : status;
    if (status == WNPU_OK && (memory == NULL ||
                              !er_is_size(memory->struct_size, sizeof *memory))) {
        status = er_set(error, WNPU_E_ARGUMENT, "memory is NULL or its struct_size is not set");
    }
    if (status != WNPU_OK) {
        return status;
    }
    allocator = ar_allocator(settings.allocator);
    l = mf_make_loader(&allocator, source, &settings, error != NULL ? error : &local);
    if (l == NULL) {
        return WNPU_E_MEMORY;
    }
    memset(&ours, 0, sizeof ours);
    status = mf_measure_source(l, &settings, &ours);
    allocator.release(allocator.user, l, sizeof *l);
    return status == WNPU_OK ? er_export(memory, &ours, sizeof ours) : status;
}

WNPU_API int wnpu_model_open_source(wnpu_model **model, const wnpu_source *source,
                                    const wnpu_model_config *config, wnpu_error *error)
{
    wnpu_model_config ours;
    int status = mf_check_args(model, config, &ours, error);
    status = status == WNPU_OK ? mf_check_source(source, error) : status;
    return status != WNPU_OK ? status : mf_start(model, source, NULL, 0, &ours, error);
}

typedef struct mf_memory {
    const unsigned char *data;
    uint64_t size;
} mf_memory;

static int64_t mf_read_memory(void *user, uint64_t offset, void *buffer, size_t size)
{
    const mf_memory *memory = user;
    uint64_t left = offset < memory->size ? memory->size - offset : 0;
    size_t n = size < left ? size : (size_t)left;
    if (n > 0) {
        memcpy(buffer, memory->data + offset, n);
    }
    return (int64_t)n;
}

/* stays: data remain valid and may be used in place. */
static int mf_start_memory(wnpu_model **model, const void *data, size_t size, int stays,
                           const wnpu_model_config *config, wnpu_error *error)
{
    mf_memory memory;
    wnpu_source source;
    memory.data = data;
    memory.size = size;
    source.read = mf_read_memory;
    source.size = size;
    source.user = &memory;
    return mf_start(model, &source, stays ? (unsigned char *)(uintptr_t)data : NULL, 1, config,
                    error);
}

WNPU_API int wnpu_model_open_memory(wnpu_model **model, const void *data, size_t size,
                                    const wnpu_model_config *config, wnpu_error *error)
{
    wnpu_model_config ours;
    int status = mf_check_args(model, config, &ours, error);
    if (status == WNPU_OK && data == NULL) {
        status = er_set(error, WNPU_E_ARGUMENT, "data is NULL; pass the bytes of a model");
    }
    return status != WNPU_OK ? status : mf_start_memory(model, data, size, 0, &ours, error);
}

WNPU_API int wnpu_model_open_static(wnpu_model **model, const void *data, size_t size,
                                    const wnpu_model_config *config, wnpu_error *error)
{
    wnpu_model_config ours;
    int status = mf_check_args(model, config, &ours, error);
    if (status == WNPU_OK && (data == NULL || (uintptr_t)data % AR_ALIGN != 0)) {
        status = er_set(error, WNPU_E_ARGUMENT, "data is %s; pass the bytes of a model, aligned to "
                        "%u", data == NULL ? "NULL" : "not aligned", AR_ALIGN);
    }
    return status != WNPU_OK ? status :
           mf_start_memory(model, data, size, !ours.copy, &ours, error);
}

#ifndef WNPU_NO_STDIO
static int64_t mf_read_file(void *user, uint64_t offset, void *buffer, size_t size)
{
    ssize_t got;
    do {
        got = pread(*(const int *)user, buffer, size, (off_t)offset);
    } while (got < 0 && errno == EINTR);
    return got < 0 ? -(int64_t)errno : (int64_t)got;
}

/* strerror() depends on the locale and need not be thread-safe. */
static const char *mf_errno_text(int code)
{
    switch (code) {
    case ENOENT: return "there is no such file";
    case ENOTDIR: return "a part of the path is not a directory";
    case EACCES: return "permission denied";
    case EMFILE:
    case ENFILE: return "too many open files";
    case ENAMETOOLONG: return "the path is too long";
    case EOVERFLOW: return "too large for this build, compile with -D_FILE_OFFSET_BITS=64";
    default: return "the system refused";
    }
}

/* Opens path and determines its size. Never blocks: a FIFO without a writer is refused. */
static int mf_open_path(const char *path, int *file, uint64_t *size, wnpu_error *error)
{
    struct stat info;
    char shown[100];
    size_t length = strlen(path);
    size_t skip = length > sizeof shown - 1 ? length - (sizeof shown - 1) : 0;
    (void)mf_printable(shown, sizeof shown, path + skip, length - skip);
    do {
        *file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    } while (*file < 0 && errno == EINTR);
    if (*file < 0 || fstat(*file, &info) != 0) {
        int code = errno;
        if (*file >= 0) {
            (void)close(*file);
        }
        return er_set(error, WNPU_E_IO, "cannot open '%s%s': %s (errno %d)", skip ? "..." : "",
                      shown, mf_errno_text(code), code);
    }
    if (!S_ISREG(info.st_mode)) {
        (void)close(*file);
        return er_set(error, WNPU_E_IO, "'%s%s' is %s", skip ? "..." : "", shown,
                      S_ISDIR(info.st_mode) ? "a directory; of a Hugging Face model make a pack "
                      "with build/pack DIRECTORY MODEL.wnpu, and open that"
                      : "not a regular file; give the path of a model file");
    }
    *size = (uint64_t)info.st_size;
    return WNPU_OK;
}
#endif

#ifndef WNPU_NO_STDIO
/* Maps the file if it is a pack, so that all processes share it. Returns NULL if it is not or
 * cannot be mapped; it is read then. */
static void *mf_map(int file, uint64_t size)
{
    unsigned char magic[sizeof mf_pack_magic];
    void *map;
    if (mf_read_file(&file, 0, magic, sizeof magic) != (int64_t)sizeof magic ||
        !mf_is_pack(magic, sizeof magic) || size > SIZE_MAX / 2) {
        return NULL;
    }
    map = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, file, 0);
    if (map == MAP_FAILED) {
        return NULL;
    }
    (void)ar_advise_huge(map, (size_t)size); /* pages not in memory yet become huge pages */
    return map;
}

static int mf_start_file(wnpu_model **model, int file, uint64_t size,
                         const wnpu_model_config *config, wnpu_error *error)
{
    void *map = config->copy ? NULL : mf_map(file, size);
    wnpu_source source;
    int status;
    if (map == NULL) {
        source.read = mf_read_file;
        source.size = size;
        source.user = &file;
        return mf_start(model, &source, NULL, 1, config, error);
    }
    status = mf_start_memory(model, map, (size_t)size, 1, config, error);
    if (status == WNPU_OK) {
        (*model)->map = map;
    } else {
        (void)munmap(map, (size_t)size);
    }
    return status;
}
#endif

WNPU_API int wnpu_model_open(wnpu_model **model, const char *path, const wnpu_model_config *config,
                             wnpu_error *error)
{
    wnpu_model_config ours;
    int status = mf_check_args(model, config, &ours, error);
    if (status != WNPU_OK || path == NULL) {
        return status != WNPU_OK ? status :
               er_set(error, WNPU_E_ARGUMENT, "path is NULL; pass the name of a file");
    }
#ifdef WNPU_NO_STDIO
    return er_set(error, WNPU_E_UNSUPPORTED, "this build has no files (WNPU_NO_STDIO); use "
                  "wnpu_model_open_memory() or wnpu_model_open_source()");
#else
    {
        uint64_t size = 0;
        int file = -1;
        status = mf_open_path(path, &file, &size, error);
        if (status != WNPU_OK) {
            return status;
        }
        status = mf_start_file(model, file, size, &ours, error);
        (void)close(file);
        return status;
    }
#endif
}

WNPU_API int wnpu_model_measure(const char *path, const wnpu_model_config *config,
                                wnpu_model_memory *memory, wnpu_error *error)
{
    er_clear(error);
    if (path == NULL) {
        return er_set(error, WNPU_E_ARGUMENT, "path is NULL; pass the name of a file");
    }
#ifdef WNPU_NO_STDIO
    (void)config;
    (void)memory;
    return er_set(error, WNPU_E_UNSUPPORTED, "this build has no files (WNPU_NO_STDIO); use "
                  "wnpu_model_measure_source()");
#else
    {
        wnpu_source source;
        int file = -1, status = mf_open_path(path, &file, &source.size, error);
        if (status != WNPU_OK) {
            return status;
        }
        source.read = mf_read_file;
        source.user = &file;
        status = wnpu_model_measure_source(&source, config, memory, error);
        (void)close(file);
        return status;
    }
#endif
}

WNPU_API void wnpu_model_close(wnpu_model *model)
{
    if (model != NULL) {
        wnpu_allocator allocator = model->allocator;
#ifndef WNPU_NO_STDIO
        if (model->map != NULL) {
            (void)munmap(model->map, model->image_size);
        }
#endif
        allocator.release(allocator.user, model, model->size);
    }
}

WNPU_API int wnpu_model_verify(const wnpu_model *model, wnpu_error *error)
{
    er_clear(error);
    if (model == NULL) {
        return er_set(error, WNPU_E_ARGUMENT, "model is NULL");
    }
    if (model->image == NULL) {
        return er_set(error, WNPU_E_UNSUPPORTED, "the model does not come from a pack, and only "
                      "packs have checksums");
    }
    return mf_verify(model, error);
}

static int mf_write(wnpu_write_fn write, void *user, const unsigned char *data, size_t size,
                    wnpu_error *error)
{
    size_t done = 0;
    while (done < size) {
        int64_t took = write(user, data + done, size - done);
        if (took <= 0 || (uint64_t)took > size - done) {
            return er_set(error, WNPU_E_IO, "writing %llu bytes of a pack returned %lld",
                          (unsigned long long)(size - done), (long long)took);
        }
        done += (size_t)took;
    }
    return WNPU_OK;
}

/* Fills in what the first pass over a ggml file determines, and the layout. */
static int mf_pack_plan(mf_loader *l, const wnpu_model *m)
{
    const uint32_t sizes[MF_PACK_SIZES] = {
        m->embedding.n, m->n_audio_ctx, m->n_audio_state, m->n_audio_head, m->n_audio_layer,
        m->n_text_ctx, m->n_text_state, m->n_text_head, m->n_text_layer, m->n_mels
    };
    size_t head = 0, data = 0;
    int status;
    memcpy(l->sizes, sizes, sizeof sizes);
    l->n_base = (uint32_t)m->vocab.n_base;
    l->vocab_bytes = m->vocab.bytes_size - l->n_base;
    while (l->weight_type + 1 < MF_TYPES && mf_types[l->weight_type].name != m->weight_type) {
        l->weight_type++;
    }
    status = mf_measure(l, 0, &head, &data);
    if (status == WNPU_OK && data != m->data_size) {
        return er_set(l->error, WNPU_E_INTERNAL, "the model has %llu bytes of data and is measured "
                      "as %llu; please report it", (unsigned long long)m->data_size,
                      (unsigned long long)data);
    }
    return status;
}

/* Writes the header to the buffer, which is large enough for any. Returns its size. */
static size_t mf_pack_fill(mf_loader *l, const wnpu_model *m)
{
    size_t data_at = mf_pack_data_at(l->n_sections);
    unsigned char *h = l->buffer;
    uint32_t i;
    memset(h, 0, data_at);
    memcpy(h, mf_pack_magic, sizeof mf_pack_magic);
    mf_put32(h + 8, MF_PACK_VERSION);
    mf_put32(h + 12, MF_PACK_MARK);
    mf_put64(h + 16, data_at + m->data_size);
    mf_put64(h + 32, data_at);
    mf_put32(h + 40, l->n_sections);
    for (i = 0; i < MF_PACK_SIZES; i++) {
        mf_put32(h + 44 + 4 * i, l->sizes[i]);
    }
    mf_put32(h + 84, l->n_base);
    mf_put64(h + 88, l->vocab_bytes);
    mf_put32(h + 96, l->weight_type);
    for (i = 0; i < l->n_sections; i++) {
        unsigned char *row = h + MF_PACK_HEADER + (size_t)i * MF_PACK_ENTRY;
        size_t start = l->sections[i].start;
        mf_pack_entry(l, i, data_at, row);
        mf_put64(row + 56, mf_checksum(m->data + start, mf_section_end(l, i) - start));
    }
    mf_put64(h + 24, mf_checksum(h + 32, data_at - 32));
    return data_at;
}

WNPU_API int wnpu_model_save(const wnpu_model *model, wnpu_write_fn write, void *user,
                             wnpu_error *error)
{
    mf_loader *l;
    int status;
    er_clear(error);
    if (model == NULL || write == NULL) {
        return er_set(error, WNPU_E_ARGUMENT, "model or write is NULL; pass both");
    }
    if (model->has_float) {
        return er_set(error, WNPU_E_UNSUPPORTED, "packs hold no float weights; open the model "
                      "without keep_float");
    }
    l = mf_alloc(&model->allocator, sizeof *l, "saving a model", error);
    if (l == NULL) {
        return WNPU_E_MEMORY;
    }
    memset(l, 0, offsetof(mf_loader, sections));
    l->error = error;
    status = mf_pack_plan(l, model);
    if (status == WNPU_OK) {
        size_t header = mf_pack_fill(l, model);
        status = mf_write(write, user, l->buffer, header, error);
    }
    if (status == WNPU_OK) {
        status = mf_write(write, user, model->data, model->data_size, error);
    }
    model->allocator.release(model->allocator.user, l, sizeof *l);
    return status;
}

WNPU_API int wnpu_model_get_info(const wnpu_model *model, wnpu_model_info *info)
{
    wnpu_model_info ours;
    if (model == NULL || info == NULL) {
        return WNPU_E_ARGUMENT;
    }
    memset(&ours, 0, sizeof ours);
    ours.n_vocab = (int32_t)model->embedding.n;
    ours.n_audio_ctx = (int32_t)model->n_audio_ctx;
    ours.n_audio_state = (int32_t)model->n_audio_state;
    ours.n_audio_head = (int32_t)model->n_audio_head;
    ours.n_audio_layer = (int32_t)model->n_audio_layer;
    ours.n_text_ctx = (int32_t)model->n_text_ctx;
    ours.n_text_state = (int32_t)model->n_text_state;
    ours.n_text_head = (int32_t)model->n_text_head;
    ours.n_text_layer = (int32_t)model->n_text_layer;
    ours.n_mels = (int32_t)model->n_mels;
    ours.multilingual = model->vocab.multilingual != 0;
    ours.n_languages = (int32_t)model->vocab.n_languages;
    ours.has_float = model->has_float;
    ours.bytes = model->size;
    ours.shared_bytes = model->shared;
    ours.name = model->name;
    ours.weight_type = model->weight_type;
    return er_export(info, &ours, sizeof ours);
}

WNPU_API const char *wnpu_token_text(const wnpu_model *model, int32_t token, size_t *length)
{
    if (model == NULL) {
        if (length != NULL) {
            *length = 0;
        }
        return NULL;
    }
    return tk_text(&model->vocab, token, length);
}

WNPU_API int64_t wnpu_tokenize(const wnpu_model *model, const char *text, size_t length,
                               int32_t *tokens, size_t capacity)
{
    if (model == NULL || (text == NULL && length > 0) || (tokens == NULL && capacity > 0)) {
        return WNPU_E_ARGUMENT;
    }
    return tk_encode(&model->vocab, text, length, tokens, capacity);
}

/* ======================================================================
 * 12. en_  encoder
 *
 *  Owns      the engine shared by encoder and decoder (kernels, pool,
 *            scratch of each worker), convolutions, self-attention and
 *            feed-forward layers of the encoder, cross-attention caches.
 *  Assumes   n_audio_state and the head size are multiples of 16.
 *  Ensures   rows are computed independently of each other, so the result
 *            does not depend on the number of threads.
 *  Costs     43.6 G multiply-accumulates for base, 18.5 G for tiny.
 *
 *  Work is divided into blocks of rows. A block passes through a chain of
 *  operators while it is in the L2 cache:
 *    front   conv1, GELU, conv2, GELU, position, QKV of layer 0
 *    attend  one head and one block of queries, from scores to output
 *    rear    attention output, feed-forward layers, QKV of the next layer
 *  So a layer takes two runs of the pool, and the intermediate tensors of
 *  4 d columns stay in the cache. A cancelled pool ends a product within a
 *  few million multiply-accumulates, and then the rest of its chain.
 * ====================================================================== */
#define EN_BLOCK_ROWS_MAX 192u   /* most rows of a block; the weights are read once per block */
#define EN_BLOCK_ROWS_MIN 96u  /* fewest rows of a block, for any number of workers */
#define EN_QUERIES OP_PRODUCT /* rows of a block of queries */
#define EN_KEYS OP_KEYS /* keys of a block; scores take 48 KiB */
#define EN_MAX_HEAD 256u
#define EN_TWO_DIGIT_ROWS 2u /* up to so many rows, both digits are multiplied with all weights */
#define EN_LOG2E 1.44269504088896341f
#define EN_QUANTISE_ROWS 8u    /* rows quantised and packed at a time */
#define EN_PANELS (OP_CHUNK / 16u) /* panels multiplied before each epilogue */

/* Scratch of one worker; sizes in en_carve_worker(). */
typedef struct en_worker {
    int8_t *q;          /* [rows, 4 d] quantised input; rows as in en_engine */
    int16_t *u;         /* [EN_QUERIES, EN_KEYS] exponents of attention */
    uint8_t *p;         /* attention weights, see gm_p_stride() */
    float *scale;       /* [rows] scales of q */
    op_online *online;  /* [EN_QUERIES] */
    void *packed;       /* q packed for the kernels */
    void *queries;      /* a block of queries, packed likewise */
    int32_t *acc;       /* [EN_QUERIES, EN_KEYS], [EN_QUERIES + 1, hd], [rows, en_columns()] */
    float *scores;      /* float path [EN_QUERIES, keys], else NULL */
    float *hidden;      /* [rows, 4 d] hidden activations */
    float *rows;        /* [rows, d] */
    const float *input; /* float path: the rows given to en_prepare() */
    size_t input_stride;
    int fine;           /* input has two digits, see op_quantise_fine_body() */
    int both;           /* 1: packed holds the rows of low digits, then those of high digits */
    uint16_t *outlier;  /* [k / 4] groups with high digits, if these are multiplied separately */
    size_t n_outliers;
    char *packed_high;  /* packed high digits of those groups, see gm_pack_outliers() */
    gm_sparse sparse;   /* of the input, or of attention weights, for kernels that use it */
    int has_zeros;      /* sparse describes the input */
    ml_scratch *mel;
} en_worker;

/* Keys and values of one head, ready for products: keys as B [keys, hd], values as B [hd, keys].
 * Each key and value vector has its own scale. The float path stores float panels instead. */
typedef struct en_heads {
    size_t keys;        /* capacity, a multiple of 16 */
    size_t heads, hd;
    int8_t *k, *v;      /* [heads][keys * hd], packed panels */
    int32_t *k_correction;     /* [heads][keys] gm_weight.correction of the keys */
    float *k_scale;     /* [heads][keys] */
    float *v_log2, *v_inverse; /* [heads][keys] logarithm and inverse of the values' scales */
    float *kf, *vf;     /* float path, else NULL: [heads][keys * hd] */
} en_heads;

typedef struct en_engine {
    const wnpu_model *model;
    const gm_kernels *gm;
    const op_kernels *op;
    tp_pool *pool;
    int exact;          /* float path */
    size_t rows;        /* of a block */
    size_t n_workers;   /* threads of the pool */
    en_worker *worker;  /* [n_workers] */
    ft_tables *fft;
    ml_filters filters;
    float *mel;         /* [1 + 3000 + 1, n_mels], first and last row zero */
    float *x;           /* [n_audio_ctx, d] residual stream, then the encoder's output */
    float *attended;    /* [n_audio_ctx, d] */
    int8_t *query;      /* [heads][ctx, hd] */
    float *query_scale; /* [heads][ctx] */
    float *query_exact; /* float path: [heads][ctx, hd] */
    en_heads self;
    void (*beat)(void *user, float share); /* reports progress; may be NULL. See en_report() */
    void *beat_user;
} en_engine;

#define EN_ENCODER_SHARE 0.5f /* the encoder's share of a window's work */

/* Reports which share of a window's work is done, 0..1. Called in the thread of the run after each
 * layer or token. */
static void en_report(const en_engine *e, float share)
{
    if (e->beat != NULL) {
        e->beat(e->beat_user, share);
    }
}

/* Reports progress after `done` layers of the encoder. */
static void en_report_layer(const en_engine *e, size_t done)
{
    en_report(e, EN_ENCODER_SHARE * (float)done / (float)e->model->n_audio_layer);
}

static size_t en_blocks(size_t rows, size_t block)
{
    return (rows + block - 1) / block;
}

/* Rows of a block such that all workers have the same number of blocks; a multiple of all tile
 * heights. */
static size_t en_block_rows(size_t ctx, size_t n_workers)
{
    size_t blocks = n_workers * en_blocks(ctx, n_workers * EN_BLOCK_ROWS_MAX);
    size_t rows = en_blocks(en_blocks(ctx, blocks), 24) * 24;
    return rows > EN_BLOCK_ROWS_MIN ? rows : EN_BLOCK_ROWS_MIN;
}

static size_t en_round16(size_t n)
{
    return (n + 15u) & ~(size_t)15u;
}

static void en_carve_heads(ar_arena *arena, en_heads *h, size_t heads, size_t hd, size_t keys,
                           int exact)
{
    memset(h, 0, sizeof *h);
    h->keys = en_round16(keys);
    h->heads = heads;
    h->hd = hd;
    if (exact) {
        h->kf = ar_carve(arena, heads * h->keys * hd, sizeof(float));
        h->vf = ar_carve(arena, heads * h->keys * hd, sizeof(float));
    } else {
        h->k = ar_carve(arena, heads * h->keys * hd, 1);
        h->v = ar_carve(arena, heads * h->keys * hd, 1);
        h->k_correction = ar_carve(arena, heads * h->keys, sizeof(int32_t));
        h->k_scale = ar_carve(arena, heads * h->keys, sizeof(float));
        h->v_log2 = ar_carve(arena, heads * h->keys, sizeof(float));
        h->v_inverse = ar_carve(arena, heads * h->keys, sizeof(float));
    }
}

static unsigned char *en_heads_begin(const en_heads *h)
{
    return h->kf != NULL ? (unsigned char *)h->kf : (unsigned char *)h->k;
}

/* Zeroes positions first..end-1, both multiples of 16, of one head. */
static void en_clear_head(en_heads *h, size_t head, size_t first, size_t end)
{
    size_t at = head * h->keys + first, n = end - first, panel;
    for (panel = 0; panel < h->hd / 16; panel++) {
        size_t v = head * h->keys * h->hd + (panel * h->keys + first) * 16;
        if (h->vf != NULL) {
            memset(h->vf + v, 0, n * 16 * sizeof(float));
        } else {
            memset(h->v + v, 0, n * 16);
        }
    }
    if (h->kf != NULL) {
        memset(h->kf + at * h->hd, 0, n * h->hd * sizeof(float));
        return;
    }
    memset(h->k + at * h->hd, 0, n * h->hd);
    memset(h->k_correction + at, 0, n * sizeof(int32_t));
    memset(h->k_scale + at, 0, n * sizeof(float));
    memset(h->v_log2 + at, 0, n * sizeof(float));
    memset(h->v_inverse + at, 0, n * sizeof(float));
}

/* Zeroes the first n positions, a multiple of 16, of all heads. */
static void en_clear_heads(en_heads *h, size_t n)
{
    size_t head;
    for (head = 0; head < h->heads; head++) {
        en_clear_head(h, head, 0, n);
    }
}

/* Zeroes the last group of 16 positions, which n positions only partly fill: it is multiplied as a
 * whole. */
static void en_clear_tail(en_heads *h, size_t n)
{
    size_t head;
    for (head = 0; head < h->heads; head++) {
        en_clear_head(h, head, n / 16 * 16, h->keys);
    }
}

/* Packs n quantised key vectors q [n, hd] as positions t0... of one head. The caller stores their
 * scales. */
static void en_pack_keys(en_heads *h, size_t head, size_t t0, size_t n, const int8_t *q)
{
    size_t hd = h->hd, base = head * h->keys, i;
    gm_pack_panel_rows(h->k + base * hd, hd / 4, t0, n, q, hd);
    for (i = 0; i < n; i++) {
        h->k_correction[base + t0 + i] = -128 * gm_sum(q + i * hd, hd);
    }
}

/* Stores a quantised value vector [hd], a column of B, at position t: single bytes. */
static void en_store_value(en_heads *h, size_t head, size_t t, const int8_t *q)
{
    int8_t *v = h->v + head * h->keys * h->hd + t / 4 * GM_GROUP + t % 4;
    size_t c;
    for (c = 0; c < h->hd; c++) {
        v[c / 16 * h->keys * 16 + c % 16 * 4] = q[c];
    }
}

/* Quantises and stores the key vectors of positions t0..t0+n-1 of one head. x is [n, hd] with row
 * stride ldx; q is scratch for [n, hd]. */
static void en_store_keys(const en_engine *e, en_heads *h, size_t head, size_t t0, size_t n,
                          const float *x, size_t ldx, int8_t *q)
{
    size_t hd = h->hd, base = head * h->keys, t, c;
    for (t = t0; h->kf != NULL && t < t0 + n; t++, x += ldx) {
        float *panel = h->kf + base * hd + (t / 16) * 16 * hd + t % 16;
        for (c = 0; c < hd; c++) {
            panel[c * 16] = x[c];
        }
    }
    if (h->kf != NULL) {
        return;
    }
    e->op->quantise(q, x, ldx, n, hd, h->k_scale + base + t0);
    en_pack_keys(h, head, t0, n, q);
}

/* Quantises and stores the value vectors of positions t0..t0+n-1, at most EN_BLOCK_ROWS_MAX, as
 * columns of B [hd, keys]: four positions at a time where they fill groups of the packed form, else
 * single bytes. */
static void en_store_values(const en_engine *e, en_heads *h, size_t head, size_t t0, size_t n,
                            const float *x, size_t ldx, int8_t *q)
{
    size_t hd = h->hd, base = head * h->keys, t, c, steps;
    int8_t *v = h->v + base * hd;
    float scale[EN_BLOCK_ROWS_MAX];
    for (t = t0; h->vf != NULL && t < t0 + n; t++, x += ldx) {
        float *panel = h->vf + base * hd + t * 16;
        for (c = 0; c < hd; c++) {
            panel[(c / 16) * h->keys * 16 + c % 16] = x[c];
        }
    }
    if (h->vf != NULL) {
        return;
    }
    e->op->quantise(q, x, ldx, n, hd, scale);
    e->op->value_scales(h->v_log2 + base + t0, h->v_inverse + base + t0, scale, n);
    for (t = t0; t < t0 + n; t += steps, q += steps * hd) {
        steps = t % 4 == 0 && t + 4 <= t0 + n ? 4 : 1;
        if (steps == 4) {
            gm_pack_panel_steps(v, h->keys / 4, t / 4, q, hd, 4, hd);
        } else {
            en_store_value(h, head, t, q);
        }
    }
}

/* Stores the key and value vectors k and v [heads, hd] of position t, for `heads` heads from
 * `first` on. The first position of a group of 16 zeroes the group, whose memory may be
 * uninitialised. */
static void en_store_position(const en_engine *e, en_heads *h, size_t first, size_t heads, size_t t,
                              const float *k, const float *v)
{
    size_t hd = h->hd, at = first * h->keys + t, i;
    int8_t q[MF_MAX_STATE];
    float scale[MF_MAX_STATE / 16], log2[MF_MAX_STATE / 16], inverse[MF_MAX_STATE / 16];
    for (i = 0; i < heads && t % 16 == 0; i++) {
        en_clear_head(h, first + i, t, t + 16);
    }
    for (i = 0; i < heads && h->kf != NULL; i++) {
        en_store_keys(e, h, first + i, t, 1, k + i * hd, hd, q);
        en_store_values(e, h, first + i, t, 1, v + i * hd, hd, q);
    }
    if (h->kf != NULL) {
        return;
    }
    e->op->quantise(q, k, hd, heads, hd, scale);
    for (i = 0; i < heads; i++) {
        en_pack_keys(h, first + i, t, 1, q + i * hd);
        h->k_scale[at + i * h->keys] = scale[i];
    }
    e->op->quantise(q, v, hd, heads, hd, scale);
    e->op->value_scales(log2, inverse, scale, heads);
    for (i = 0; i < heads; i++) {
        en_store_value(h, first + i, t, q + i * hd);
        h->v_log2[at + i * h->keys] = log2[i];
        h->v_inverse[at + i * h->keys] = inverse[i];
    }
}

/* Copies the vectors of positions first..end-1 in whole groups of 16; positions before first in the
 * same group must be equal already. */
static void en_copy_heads(en_heads *to, const en_heads *from, size_t first, size_t end)
{
    size_t hd = to->hd, group = first / 16 * 16, n = en_round16(end) - group, head, panel;
    for (head = 0; head < to->heads; head++) {
        size_t base = head * to->keys, at = base + group;
        for (panel = 0; panel < hd / 16; panel++) {
            size_t v = base * hd + (panel * to->keys + group) * 16;
            if (to->kf != NULL) {
                memcpy(to->vf + v, from->vf + v, n * 16 * sizeof(float));
            } else {
                memcpy(to->v + v, from->v + v, n * 16);
            }
        }
        if (to->kf != NULL) {
            memcpy(to->kf + at * hd, from->kf + at * hd, n * hd * sizeof(float));
            continue;
        }
        memcpy(to->k + at * hd, from->k + at * hd, n * hd);
        memcpy(to->k_correction + at, from->k_correction + at, n * sizeof(int32_t));
        memcpy(to->k_scale + at, from->k_scale + at, n * sizeof(float));
        memcpy(to->v_log2 + at, from->v_log2 + at, n * sizeof(float));
        memcpy(to->v_inverse + at, from->v_inverse + at, n * sizeof(float));
    }
}

/* Layer norm of the rows of x [rows, d] into y, which may be x. */
static void en_norm(const en_engine *e, const mf_norm *norm, float *y, const float *x, size_t rows,
                    size_t d)
{
    size_t r;
    for (r = 0; r < rows; r++) {
        e->op->norm(y + r * d, x + r * d, norm->weight, norm->bias, d);
    }
}

/* Packs rows with two digits in the form the kernels use: 16-bit values; or rows of bytes and,
 * separately, the few groups with high digits; or, where the product is limited by memory
 * bandwidth, all rows of low digits followed by all rows of high digits. */
static void en_prepare_fine(const en_engine *e, en_worker *w, const float *x, size_t ldx,
                            size_t rows, size_t k)
{
    int8_t *low = w->q, *high = w->q + rows * k;
    size_t r;
    for (r = 0; r < rows; r++) {
        w->scale[r] = e->op->quantise_fine(high + r * k, low + r * k, x + r * ldx, k);
    }
    if (e->gm->pack_joined != NULL) {
        e->gm->pack_joined(w->packed, high, low, rows, k / 4);
        return;
    }
    w->both = rows <= EN_TWO_DIGIT_ROWS;
    e->gm->pack_a(w->packed, low, k, w->both ? 2 * rows : rows, k / 4);
    if (w->both) {
        return;
    }
    w->n_outliers = gm_find_outliers(w->outlier, high, rows, k / 4);
    gm_pack_outliers(e->gm, w->packed_high, high, rows, k / 4, w->outlier, w->n_outliers);
}

/* Quantises and packs float input [rows, k] (row stride ldx), or its layer norm (ldx is k) if norm
 * is not NULL, for en_multiply(). A few rows at a time, so that they stay in the L1 cache. With
 * w->fine, outliers have a second digit, which adds little arithmetic and no reads of weights; then
 * rows <= GM_FEW and norm is NULL. */
static void en_prepare(const en_engine *e, en_worker *w, const mf_norm *norm, const float *x,
                       size_t ldx, size_t rows, size_t k)
{
    size_t r;
    if (norm != NULL && e->exact) {
        en_norm(e, norm, w->rows, x, rows, k);
        x = w->rows;
    }
    w->input = x;
    w->input_stride = ldx;
    w->has_zeros = 0;
    if (e->exact) {
        return;
    }
    w->both = 0;
    w->n_outliers = 0;
    if (w->fine) {
        en_prepare_fine(e, w, x, ldx, rows, k);
        return;
    }
    for (r = 0; r < rows; r += EN_QUANTISE_ROWS) {
        size_t n = rows - r < EN_QUANTISE_ROWS ? rows - r : EN_QUANTISE_ROWS;
        const float *from = x + r * ldx;
        if (norm != NULL) {
            en_norm(e, norm, w->rows, from, n, k);
            from = w->rows;
        }
        e->op->quantise(w->q, from, ldx, n, k, w->scale + r);
        e->gm->pack_a((char *)w->packed + e->gm->a_bytes(r, k / 4), w->q, k, n, k / 4);
    }
}

static void en_multiply_float(const en_engine *e, const en_worker *in, en_worker *w,
                              const gm_weight *weight, size_t panel, size_t n, size_t rows,
                              float *out, size_t ldo, op_finish finish)
{
    size_t column = panel * 16, width = n * 16, r;
    float *product = (float *)(void *)w->acc;
    gm_float_product p;
    p.c = product;
    p.ldc = width;
    p.a = in->input;
    p.lda = in->input_stride;
    p.rows = rows;
    p.b = weight->exact + column * weight->k;
    p.k = weight->k;
    p.panels = n;
    e->gm->ftile(&p);
    for (r = 0; r < rows; r++) {
        e->op->bias(out + r * ldo, product + r * width, width,
                    weight->bias != NULL ? weight->bias + column : NULL, finish);
    }
}

/* Quantises and packs the output of GELU, many of whose groups are zero. */
static void en_prepare_sparse(const en_engine *e, en_worker *w, const float *x, size_t ldx,
                              size_t rows, size_t k)
{
    en_prepare(e, w, NULL, x, ldx, rows, k);
    if (!e->exact && e->gm->survey != NULL) {
        e->gm->survey(&w->sparse, w->packed, rows, k / 4);
        w->has_zeros = 1;
    }
}

/* Adds the products of the input's high digits to w->acc. */
static void en_add_outliers(const en_engine *e, const en_worker *in, en_worker *w,
                            const gm_weight *weight, size_t panel, size_t n, size_t rows)
{
    int8_t *columns = (int8_t *)(void *)w->hidden;
    const char *packed = in->packed_high;
    int32_t correction[EN_PANELS * 16];
    gm_product p = {0};
    size_t first, m;
    p.ldc = n * 16;
    p.rows = rows;
    p.panels = n;
    if (e->gm->outliers != NULL) {
        p.c = w->acc;
        p.a = packed;
        p.b = weight->packed + panel * weight->k4 * GM_GROUP;
        p.pitch = weight->k4;
        e->gm->outliers(&p, in->outlier, in->n_outliers);
        return;
    }
    p.c = w->acc + rows * n * 16;
    p.b = columns;
    p.correction = e->gm->correct != NULL ? correction : NULL;
    for (first = 0; first < in->n_outliers; first += GM_OUTLIERS) {
        m = gm_outliers_at(in->n_outliers, first);
        gm_gather(columns, weight, panel, n, in->outlier + first, in->n_outliers - first, m);
        if (e->gm->correct != NULL) {
            e->gm->correct(correction, columns, m, n);
        }
        p.a = packed;
        p.k4 = p.pitch = m;
        e->gm->tile(&p);
        e->op->join(w->acc, p.c, rows * n * 16);
        packed += e->gm->a_bytes(rows, GM_OUTLIERS);
    }
}

/* Integer products: w->acc [rows, 16 n] = input * columns of n panels. */
static void en_products(const en_engine *e, const en_worker *in, en_worker *w,
                        const gm_weight *weight, size_t panel, size_t n, size_t rows)
{
    gm_product p = {0};
    p.c = w->acc;
    p.ldc = n * 16;
    p.a = in->packed;
    p.rows = rows;
    if (weight->int4) {
        gm_tile_int4(e->gm, &p, (int8_t *)(void *)w->hidden, weight, panel, n);
        return;
    }
    p.b = weight->packed + panel * 16 * 4 * weight->k4;
    p.k4 = p.pitch = weight->k4;
    p.panels = n;
    if (in->has_zeros) {
        p.sparse = &in->sparse;
        e->gm->sparse_tile(&p);
        return;
    }
    p.rows = in->both ? 2 * rows : rows;
    p.correction = weight->correction + panel * 16;
    e->gm->tile(&p);
    if (in->both) {
        e->op->join(w->acc, w->acc + rows * n * 16, rows * n * 16);
    }
    if (in->n_outliers > 0) {
        en_add_outliers(e, in, w, weight, panel, n, rows);
    }
}

/* Dequantises w->acc for rows from `first` on and applies bias and activation; out is the first of
 * these rows. */
static void en_epilogue(const en_engine *e, const en_worker *in, const en_worker *w,
                        const gm_weight *weight, size_t panel, size_t n, size_t first, size_t rows,
                        float *out, size_t ldo, op_finish finish)
{
    size_t column = panel * 16, width = n * 16;
    e->op->dequantise(out, ldo, w->acc + first * width, width, rows, width, in->scale + first,
                      weight->scale + column,
                      weight->bias != NULL ? weight->bias + column : NULL, finish);
}

/* Prefetches n bytes. Always inlined, because gcc removes calls of functions that only prefetch. */
WNPU_INLINE void en_prefetch(const void *from, size_t n)
{
    gm_walk_ahead(from, 0, 1, 0, (n + GM_GROUP - 1) / GM_GROUP);
}

/* Prefetches scales, corrections and biases of n panels: a few cache lines each, far from the
 * weights. */
WNPU_INLINE void en_prefetch_columns(const gm_weight *weight, size_t panel, size_t n)
{
    size_t left = panel < weight->n16 ? weight->n16 - panel : 0, column = panel * 16;
    size_t bytes = (n < left ? n : left) * 16 * sizeof(float);
    en_prefetch(weight->correction + column, bytes);
    en_prefetch(weight->scale + column, bytes);
    if (weight->bias != NULL) {
        en_prefetch(weight->bias + column, bytes);
    }
}

/* out[:, 16 panel .. 16 (panel + panels)) = finish(input * weight^T + bias) for prepared rows. out
 * is the first of these columns. */
static void en_multiply(const en_engine *e, const en_worker *in, en_worker *w,
                        const gm_weight *weight, size_t panel, size_t panels, size_t rows,
                        float *out, size_t ldo, op_finish finish)
{
    size_t p;
    for (p = panel; p < panel + panels && !tp_cancelled(e->pool); p += EN_PANELS) {
        size_t n = panel + panels - p < EN_PANELS ? panel + panels - p : EN_PANELS;
        float *to = out + (p - panel) * 16;
        if (rows <= GM_FEW) { /* limited by memory bandwidth */
            en_prefetch_columns(weight, p + n, EN_PANELS);
        }
        if (e->exact) {
            en_multiply_float(e, in, w, weight, p, n, rows, to, ldo, finish);
        } else {
            en_products(e, in, w, weight, p, n, rows);
            en_epilogue(e, in, w, weight, p, n, 0, rows, to, ldo, finish);
        }
    }
}

/* Attention in float: `rows` queries [rows, hd] of one head over the first n keys of h. The queries
 * include the factor 1/sqrt(hd). out is [rows, hd] with row stride ldo. */
static void en_attend_float(const en_engine *e, en_worker *w, const en_heads *h, size_t head,
                            size_t n, const float *q, size_t rows, float *out, size_t ldo)
{
    size_t hd = h->hd, base = head * h->keys * hd, panels = (n + 15) / 16, width = panels * 16, r;
    gm_float_product scores = {0}, p = {0};
    scores.c = w->scores;
    scores.ldc = width;
    scores.a = q;
    scores.lda = scores.k = hd;
    scores.rows = p.rows = rows;
    scores.b = h->kf + base;
    scores.panels = panels;
    e->gm->ftile(&scores);
    for (r = 0; r < rows; r++) {
        e->op->softmax_float(w->scores + r * width, n);
    }
    p.ldc = ldo;
    p.a = w->scores;
    p.lda = p.k = width;
    p.panels = 1;
    for (r = 0; r < hd / 16; r++) {
        p.c = out + r * 16;
        p.b = h->vf + base + r * h->keys * 16;
        e->gm->ftile(&p);
    }
}

/* Adds one block of keys, first..first+n-1, to the attention of w->queries. */
static void en_attend_block(const en_engine *e, en_worker *w, const en_heads *h, size_t head,
                            size_t first, size_t n, int last, const float *q_scale, size_t rows,
                            float *out, size_t ldo)
{
    size_t hd = h->hd, at = head * h->keys + first, padded = en_round16(n);
    const int8_t *values = h->v + head * h->keys * hd + first * 16;
    gm_product p = {0};
    op_keys keys;
    keys.packed = h->k + at * hd;
    keys.correction = h->k_correction + at;
    keys.k4 = hd / 4;
    keys.key = h->k_scale + at;
    keys.value_log2 = h->v_log2 + at;
    keys.value_inverse = h->v_inverse + at;
    /* Limited by memory bandwidth: prefetch values now, the next block's keys later. */
    if (rows <= GM_FEW) {
        en_prefetch(keys.value_log2, n * sizeof(float));
        en_prefetch(keys.value_inverse, n * sizeof(float));
        en_prefetch(keys.key + n, n * sizeof(float));
        en_prefetch(keys.correction + n, n * sizeof(int32_t));
    }
    if (e->op->attend != NULL && rows <= OP_ATTEND && hd == OP_HEAD &&
        e->op->attend(w->online, w->u, w->acc, w->queries, rows, n, q_scale, &keys, values,
                      h->keys / 4)) {
        e->op->blend(out, ldo, w->acc, hd, rows, hd, w->online, last);
        return;
    }
    if (e->op->product == NULL || rows % e->gm->rows != 0 ||
        !e->op->product(w->online, w->u, w->queries, rows, n, q_scale, &keys)) {
        p = op_keys_product(&keys, 0, EN_KEYS, w->acc, w->queries, rows);
        p.panels = padded / 16;
        e->gm->tile(&p);
        e->op->exponents(w->online, w->u, w->acc, EN_KEYS, rows, n, q_scale, &keys);
    }
    e->op->weights(w->online, w->p, gm_p_stride(padded / 4), w->u, rows, n, &keys);
    p.c = w->acc;
    p.ldc = hd;
    p.a = gm_pack_p(e->gm, w->packed, w->p, rows, padded / 4);
    p.rows = rows;
    p.b = values;
    p.pitch = h->keys / 4;
    p.k4 = padded / 4;
    p.panels = hd / 16;
    gm_tile_p(e->gm, &p, &w->sparse);
    e->op->blend(out, ldo, w->acc, hd, rows, hd, w->online, last);
}

/* Attention in int8 for queries q [rows, hd], whose scales include 1/sqrt(hd). Weights have 8 bits
 * relative to the largest of their row and block, so a block of small weights keeps its
 * precision. */
static void en_attend_int8(const en_engine *e, en_worker *w, const en_heads *h, size_t head,
                           size_t n, const int8_t *q, const float *q_scale, size_t rows, float *out,
                           size_t ldo)
{
    size_t hd = h->hd, r, first;
    for (r = 0; r < rows; r++) {
        w->scale[r] = q_scale[r] * (EN_LOG2E * OP_OCTAVE);
        w->online[r].top = -1e30f;
        w->online[r].sum = 0.0f;
        memset(out + r * ldo, 0, hd * sizeof(float));
    }
    e->gm->pack_a(w->queries, q, hd, rows, hd / 4);
    for (first = 0; first < n; first += EN_KEYS) {
        int last = n - first <= EN_KEYS;
        en_attend_block(e, w, h, head, first, last ? n - first : EN_KEYS, last, w->scale, rows, out,
                        ldo);
    }
}

typedef enum en_part { EN_QUERY, EN_KEY, EN_VALUE } en_part;

/* Stores the queries of rows t0..t0+n-1 of one head, or their keys or values in h. x is [n, hd]
 * with row stride ldx. */
static void en_store(en_engine *e, en_worker *w, en_heads *h, en_part part, size_t head, size_t t0,
                     size_t n, const float *x, size_t ldx)
{
    const float scale = 1.0f / sqrtf((float)h->hd);
    size_t at = head * e->model->n_audio_ctx + t0, hd = h->hd, r;
    if (part == EN_KEY) {
        en_store_keys(e, h, head, t0, n, x, ldx, w->q);
        return;
    }
    if (part == EN_VALUE) {
        en_store_values(e, h, head, t0, n, x, ldx, w->q);
        return;
    }
    if (!e->exact) {
        e->op->quantise(e->query + at * hd, x, ldx, n, hd, e->query_scale + at);
    }
    for (r = 0; r < n; r++) {
        if (e->exact) {
            memcpy(e->query_exact + (at + r) * hd, x + r * ldx, hd * sizeof(float));
            e->op->scale(e->query_exact + (at + r) * hd, hd, scale);
        } else {
            e->query_scale[at + r] *= scale;
        }
    }
}

/* Multiplies prepared rows by the columns of one head's queries, keys or values, from panel on,
 * then dequantises and stores them, a few rows at a time, so that they stay in the L1 cache. */
static void en_store_product(en_engine *e, en_worker *w, const gm_weight *weight, size_t panel,
                             en_heads *h, en_part part, size_t head, size_t t0, size_t n)
{
    size_t hd = h->hd, r;
    if (tp_cancelled(e->pool)) {
        return;
    }
    if (e->exact) {
        en_multiply(e, w, w, weight, panel, hd / 16, n, w->hidden, hd, OP_STORE);
        en_store(e, w, h, part, head, t0, n, w->hidden, hd);
        return;
    }
    en_products(e, w, w, weight, panel, hd / 16, n);
    for (r = 0; r < n; r += EN_QUERIES) {
        size_t rows = n - r < EN_QUERIES ? n - r : EN_QUERIES;
        en_epilogue(e, w, w, weight, panel, hd / 16, r, rows, w->hidden, hd, OP_STORE);
        en_store(e, w, h, part, head, t0 + r, rows, w->hidden, hd);
    }
}

/* Queries, keys and values of one layer for rows t0..t0+n-1 of x. */
static void en_qkv(en_engine *e, en_worker *w, const mf_layer *layer, size_t t0, size_t n)
{
    size_t d = e->model->n_audio_state, heads = e->self.heads, panels = e->self.hd / 16, i;
    en_prepare(e, w, &layer->attn_norm, e->x + t0 * d, d, n, d);
    for (i = 0; i < heads; i++) {
        en_store_product(e, w, &layer->qkv, i * panels, &e->self, EN_QUERY, i, t0, n);
        en_store_product(e, w, &layer->qkv, (heads + i) * panels, &e->self, EN_KEY, i, t0, n);
        en_store_product(e, w, &layer->qkv, (2 * heads + i) * panels, &e->self, EN_VALUE, i, t0, n);
    }
}

/* First convolution and GELU for rows first..first+n-1 (row -1 is the zero padding of the second
 * one), into out [n, d]. Frames are rows of e->mel, so the input of a row is 3 n_mels consecutive
 * floats. */
static void en_conv1(en_engine *e, en_worker *w, ptrdiff_t first, size_t n, float *out)
{
    size_t d = e->model->n_audio_state, mels = e->model->n_mels, done = 0;
    if (first < 0) {
        memset(out, 0, d * sizeof(float));
        done = 1;
    }
    while (done < n && !tp_cancelled(e->pool)) {
        size_t rows = n - done < e->rows ? n - done : e->rows;
        size_t frame = (size_t)(first + (ptrdiff_t)done);
        en_prepare(e, w, NULL, e->mel + frame * mels, mels, rows, 3 * mels);
        en_multiply(e, w, w, &e->model->conv1, 0, d / 16, rows, out + done * d, d, OP_GELU);
        done += rows;
    }
}

static void en_front_task(void *context, size_t index, unsigned worker)
{
    en_engine *e = context;
    en_worker *w = &e->worker[worker];
    size_t d = e->model->n_audio_state, ctx = e->model->n_audio_ctx, t0 = index * e->rows, i;
    size_t n = ctx - t0 < e->rows ? ctx - t0 : e->rows;
    en_conv1(e, w, (ptrdiff_t)(2 * t0) - 1, 2 * n + 1, w->hidden);
    if (tp_cancelled(e->pool)) {
        return;
    }
    en_prepare_sparse(e, w, w->hidden, 2 * d, n, 3 * d);
    en_multiply(e, w, w, &e->model->conv2, 0, d / 16, n, e->x + t0 * d, d, OP_GELU);
    for (i = 0; i < n * d; i++) {
        e->x[t0 * d + i] += e->model->audio_position[t0 * d + i];
    }
    if (tp_cancelled(e->pool)) {
        return;
    }
    en_qkv(e, w, &e->model->encoder[0], t0, n);
}

/* index = head * blocks of queries + block */
static void en_attend_task(void *context, size_t index, unsigned worker)
{
    en_engine *e = context;
    size_t ctx = e->model->n_audio_ctx, blocks = en_blocks(ctx, EN_QUERIES), hd = e->self.hd;
    size_t head = index / blocks, t0 = index % blocks * EN_QUERIES, at = head * ctx + t0;
    size_t n = ctx - t0 < EN_QUERIES ? ctx - t0 : EN_QUERIES;
    size_t d = e->model->n_audio_state;
    float *out = e->attended + t0 * d + head * hd;
    if (e->exact) {
        en_attend_float(e, &e->worker[worker], &e->self, head, ctx, e->query_exact + at * hd, n,
                        out, d);
        return;
    }
    en_attend_int8(e, &e->worker[worker], &e->self, head, ctx, e->query + at * hd,
                   e->query_scale + at, n, out, d);
}

typedef struct en_layer_job {
    en_engine *e;
    size_t layer;
} en_layer_job;

/* The feed-forward layers on rows of the residual stream x [n, d]. */
static void en_mlp(en_engine *e, en_worker *w, const mf_layer *layer, float *x, size_t n, size_t d)
{
    en_prepare(e, w, &layer->mlp_norm, x, d, n, d);
    en_multiply(e, w, w, &layer->fc1, 0, d / 4, n, w->hidden, 4 * d, OP_GELU);
    if (tp_cancelled(e->pool)) {
        return;
    }
    en_prepare_sparse(e, w, w->hidden, 4 * d, n, 4 * d);
    en_multiply(e, w, w, &layer->fc2, 0, d / 16, n, x, d, OP_ADD);
}

static void en_rear_task(void *context, size_t index, unsigned worker)
{
    en_layer_job *job = context;
    en_engine *e = job->e;
    en_worker *w = &e->worker[worker];
    const mf_layer *layer = &e->model->encoder[job->layer];
    size_t d = e->model->n_audio_state, ctx = e->model->n_audio_ctx, t0 = index * e->rows;
    size_t n = ctx - t0 < e->rows ? ctx - t0 : e->rows;
    float *x = e->x + t0 * d;
    en_prepare(e, w, NULL, e->attended + t0 * d, d, n, d);
    en_multiply(e, w, w, &layer->attn_out, 0, d / 16, n, x, d, OP_ADD);
    if (!tp_cancelled(e->pool)) {
        en_mlp(e, w, layer, x, n, d);
    }
    if (tp_cancelled(e->pool)) {
        return;
    }
    if (job->layer + 1 < e->model->n_audio_layer) {
        en_qkv(e, w, layer + 1, t0, n);
        return;
    }
    en_norm(e, &e->model->encoder_norm, x, x, n, d);
}

/* Runs the encoder from e->mel to e->x [n_audio_ctx, d]. Returns early if the pool was cancelled;
 * the caller checks that. */
static void en_run(en_engine *e)
{
    size_t ctx = e->model->n_audio_ctx, blocks = en_blocks(ctx, e->rows);
    en_layer_job job;
    job.e = e;
    tp_run(e->pool, blocks, en_front_task, e);
    for (job.layer = 0; job.layer < e->model->n_audio_layer; job.layer++) {
        tp_run(e->pool, e->self.heads * en_blocks(ctx, EN_QUERIES), en_attend_task, e);
        tp_run(e->pool, blocks, en_rear_task, &job);
        en_report_layer(e, job.layer + 1);
    }
}

typedef struct en_cross_job {
    en_engine *e;
    en_heads *cross; /* [n_text_layer] */
} en_cross_job;

/* Cross-attention keys and values of all decoder layers for one block of encoder rows. */
static void en_cross_task(void *context, size_t index, unsigned worker)
{
    en_cross_job *job = context;
    en_engine *e = job->e;
    en_worker *w = &e->worker[worker];
    size_t d = e->model->n_audio_state, ctx = e->model->n_audio_ctx, t0 = index * e->rows, l, head;
    size_t n = ctx - t0 < e->rows ? ctx - t0 : e->rows;
    en_prepare(e, w, NULL, e->x + t0 * d, d, n, d);
    for (l = 0; l < e->model->n_text_layer; l++) {
        const gm_weight *kv = &e->model->decoder[l].cross_kv;
        en_heads *h = &job->cross[l];
        size_t panels = h->hd / 16;
        for (head = 0; head < h->heads; head++) {
            en_store_product(e, w, kv, head * panels, h, EN_KEY, head, t0, n);
            en_store_product(e, w, kv, (h->heads + head) * panels, h, EN_VALUE, head, t0, n);
        }
    }
}

static void en_cross(en_engine *e, en_heads *cross)
{
    en_cross_job job;
    job.e = e;
    job.cross = cross;
    tp_run(e->pool, en_blocks(e->model->n_audio_ctx, e->rows), en_cross_task, &job);
}

/* Log-mel of a window: span holds ML_SPAN samples, which begin ML_MARGIN before the centre of the
 * first frame. Frames from `frames` on are silence. */
typedef struct en_mel_job {
    en_engine *e;
    const float *span;
    size_t frames;
} en_mel_job;

#define EN_MEL_FRAMES 120u /* frames per task, a multiple of every ML_BATCH */

static void en_mel_task(void *context, size_t index, unsigned worker)
{
    en_mel_job *job = context;
    en_engine *e = job->e;
    size_t mels = e->model->n_mels, first = index * EN_MEL_FRAMES, t;
    for (t = first; t < first + EN_MEL_FRAMES && t < job->frames; t += ML_BATCH) {
        e->op->mel_powers(e->fft, &e->filters, job->span + t * ML_HOP, e->mel + (t + 1) * mels,
                          mels, e->worker[worker].mel);
    }
    for (t = (first > job->frames ? first : job->frames) * mels; t < (first + EN_MEL_FRAMES) * mels;
         t++) {
        e->mel[mels + t] = ML_POWER_MIN;
    }
}

static void en_log_mel(en_engine *e, const float *span, size_t frames)
{
    size_t mels = e->model->n_mels, n = ML_FRAMES * mels;
    float largest;
    en_mel_job job;
    job.e = e;
    job.span = span;
    job.frames = frames;
    tp_run(e->pool, ML_FRAMES / EN_MEL_FRAMES, en_mel_task, &job);
    largest = e->op->mel_log(e->mel + mels, n);
    e->op->mel_floor(e->mel + mels, n, largest - 8.0f);
}

/* Most columns multiplied at a time: a chunk or a head. */
static size_t en_columns(const wnpu_model *m)
{
    size_t audio = m->n_audio_state / m->n_audio_head, text = m->n_text_state / m->n_text_head;
    size_t head = audio > text ? audio : text;
    return head > EN_PANELS * 16 ? head : EN_PANELS * 16;
}

static void en_carve_worker(ar_arena *arena, const en_engine *e, en_worker *w)
{
    size_t d = e->model->n_audio_state > e->model->n_text_state ? e->model->n_audio_state
                                                                 : e->model->n_text_state;
    size_t keys = en_round16(e->model->n_audio_ctx > e->model->n_text_ctx ? e->model->n_audio_ctx
                                                                         : e->model->n_text_ctx);
    size_t k = 4 * d > 3 * (size_t)e->model->n_mels ? 4 * d : 3 * (size_t)e->model->n_mels;
    size_t packed = e->gm->a_bytes(e->rows, k / 4);
    size_t strip = EN_QUANTISE_ROWS * k, heads = e->rows * EN_MAX_HEAD;
    size_t acc = (EN_QUERIES + 1) * EN_KEYS, product = e->rows * en_columns(e->model);
    if (e->gm->a_bytes(EN_QUERIES, EN_KEYS / 4) > packed) {
        packed = e->gm->a_bytes(EN_QUERIES, EN_KEYS / 4);
    }
    memset(w, 0, sizeof *w);
    w->scale = ar_carve(arena, e->rows, sizeof(float));
    w->acc = ar_carve(arena, acc > product ? acc : product, sizeof(int32_t));
    w->hidden = ar_carve(arena, e->rows * 4 * d, sizeof(float));
    w->rows = ar_carve(arena, e->rows * d, sizeof(float));
    w->mel = ar_carve(arena, 1, sizeof(ml_scratch));
    if (e->exact) {
        w->scores = ar_carve(arena, EN_QUERIES * keys, sizeof(float));
        return;
    }
    w->q = ar_carve(arena, strip > heads ? strip : heads, 1);
    w->u = ar_carve(arena, EN_QUERIES * EN_KEYS, sizeof(int16_t));
    w->p = ar_carve(arena, (EN_QUERIES + 1) * gm_p_stride(EN_KEYS / 4), 1);
    w->online = ar_carve(arena, EN_QUERIES, sizeof(op_online));
    w->packed = ar_carve(arena, packed, 1);
    w->queries = ar_carve(arena, e->gm->a_bytes(EN_QUERIES, EN_MAX_HEAD / 4), 1);
    if (e->gm->survey != NULL) {
        size_t tiles = e->rows / e->gm->rows, groups = tiles * (k / 4);
        size_t weights = EN_QUERIES / e->gm->rows * (EN_KEYS / 4);
        w->sparse.group = ar_carve(arena, groups > weights ? groups : weights, sizeof(uint16_t));
        w->sparse.n = ar_carve(arena, tiles * (k / 4 / GM_STRETCH + 1), sizeof(uint16_t));
    }
}

/* Carves the engine. The caller has set model, kernels, pool and exact. */
static void en_carve(ar_arena *arena, en_engine *e, size_t n_workers)
{
    const wnpu_model *m = e->model;
    size_t d = m->n_audio_state, ctx = m->n_audio_ctx, hd = d / m->n_audio_head, i;
    en_worker nothing;
    e->rows = en_block_rows(ctx, n_workers);
    e->n_workers = n_workers;
    e->worker = ar_carve(arena, n_workers, sizeof(en_worker));
    for (i = 0; i < n_workers; i++) {
        en_carve_worker(arena, e, e->worker != NULL ? &e->worker[i] : &nothing);
    }
    e->fft = ar_carve(arena, 1, sizeof(ft_tables));
    e->filters.first = ar_carve(arena, m->n_mels, sizeof(uint16_t));
    e->filters.last = ar_carve(arena, m->n_mels, sizeof(uint16_t));
    e->mel = ar_carve(arena, (ML_FRAMES + 2) * (size_t)m->n_mels, sizeof(float));
    e->x = ar_carve(arena, ctx * d, sizeof(float));
    e->attended = ar_carve(arena, ctx * d, sizeof(float));
    e->query = NULL;
    e->query_scale = NULL;
    e->query_exact = NULL;
    if (e->exact) {
        e->query_exact = ar_carve(arena, ctx * d, sizeof(float));
    } else {
        e->query = ar_carve(arena, ctx * d, 1);
        e->query_scale = ar_carve(arena, ctx * m->n_audio_head, sizeof(float));
    }
    en_carve_heads(arena, &e->self, m->n_audio_head, hd, ctx, e->exact);
}

/* Computes tables and zero padding. Called once, when memory is present. */
static void en_start(en_engine *e)
{
    size_t mels = e->model->n_mels;
    ft_init(e->fft);
    ml_init(&e->filters, e->model->filters, e->model->n_mels);
    memset(e->mel, 0, mels * sizeof(float));
    memset(e->mel + (ML_FRAMES + 1) * mels, 0, mels * sizeof(float));
    en_clear_tail(&e->self, e->model->n_audio_ctx);
}

/* ======================================================================
 * 13. de_  decoder step and KV caches
 *
 *  Owns      self-attention KV caches of each slot (hypothesis), the cross-
 *            attention KV caches of each window, the logits.
 *  Assumes   en_cross() has filled the window's caches.
 *  Ensures   a step appends keys and values in place, up to n_text_ctx
 *            positions; a row's logits do not depend on the other rows of
 *            the step, nor on the number of threads.
 *  Costs     one pass over the decoder's weights per step, for any number
 *            of rows: the step is limited by memory bandwidth.
 * ====================================================================== */
#define DE_ROWS 16u      /* most rows of a step; longer prompts take several steps */
#define DE_LOW_MARGIN 12.0f /* logits further below the best stay 4-bit products */
#define DE_LOW_MAX 4096u /* most tokens of a row whose low digits are added */
#define DE_FULL_MARGIN 8.0f /* logits further below the best keep the int8 row */
#define DE_FULL_MAX 64u  /* most tokens of a row that are computed with the float row */
#define DE_LOW_ITEMS 16u /* items that the vocabulary is divided into to add low digits */
#define DE_FULL_ITEMS 4u /* items that a row's fully computed tokens are divided into */
#define DE_PREFETCH 8u   /* prefetch distance in tokens for low digits */
#define DE_BLOCK 128u    /* logits of a block whose largest is kept, a multiple of 16 EN_PANELS */
#define DE_LOGITS 16u    /* most rows of a step with logits */

typedef struct de_row {
    int32_t token;
    uint32_t position;
    uint32_t slot;      /* index of its self-attention KV cache */
    uint32_t window;    /* index of its cross-attention KV cache */
    int want;           /* 1: compute logits */
} de_row;

/* Consecutive rows that share a cache. */
typedef struct de_run {
    size_t first, n;
} de_run;

/* Callback that receives the queries [n_rows, d] of a layer's cross-attention. */
typedef void (*de_tap)(void *user, size_t layer, const de_row *rows, size_t n_rows,
                       const float *query);

/* Stages of a step: each is complete for all rows before the next begins. */
typedef enum de_kind {
    DE_QKV, DE_SELF, DE_ATTN_OUT, DE_CROSS_Q, DE_CROSS, DE_CROSS_OUT, DE_FC1, DE_FC2, DE_OF_LAYER,
    /* after the last layer; the last three only with 4-bit weights: */
    DE_VOCAB = DE_OF_LAYER, DE_SELECT, DE_ADD_LOW, DE_ADD_FULL, DE_KINDS
} de_kind;

/* A stage of a step. */
typedef struct de_stage {
    de_kind kind;
    size_t layer;
    size_t items;
    size_t chunk;       /* of an item: panels of a product, heads of self-attention */
    /* products only: out = finish(norm(in) * weight^T + bias) */
    const gm_weight *weight;
    const mf_norm *norm; /* NULL: none */
    const float *in;    /* [rows, weight->k] */
    float *out;         /* [rows, ldo] */
    size_t rows, ldo;
    op_finish finish;
    const gm_weight *next_weight; /* weight of the next product, to prefetch; or NULL */
} de_stage;

/* A worker's copy of the current stage and of its input rows. Every worker prepares the rows
 * itself, since norm and quantisation cost less than fetching them from another core. The padding
 * keeps neighbours from sharing a cache line. */
typedef struct de_worker {
    uint64_t number;    /* stage number, counted over all steps */
    de_stage stage;
    int ready;          /* rows are valid */
    en_worker rows;
    float *normed;      /* [DE_ROWS, d] */
    unsigned char pad_before[64];
} de_worker;

typedef struct de_decoder {
    en_engine *e;
    size_t slots, windows;
    size_t window;      /* current window, where rows do not name theirs */
    en_heads *self;     /* [slots][n_text_layer] */
    en_heads *cross;    /* [windows][n_text_layer] */
    de_worker *worker;  /* [n_workers] */
    float *x;           /* [DE_ROWS, d] residual stream */
    float *normed;      /* [DE_ROWS, d] input of the logits */
    float *qkv;         /* [DE_ROWS, 3 d] */
    float *attended;    /* [DE_ROWS, d] */
    float *hidden;      /* [DE_ROWS, 4 d] */
    size_t used_slots, used_windows; /* slots and windows 0..used-1 have been written to */
    size_t longest;     /* most positions written in a slot */
    size_t always_used; /* leading bytes of the arena that every run writes to */
    size_t logit_rows;  /* DE_LOGITS, or as many as there are slots (three at least: se_prefill) */
    float *logits;      /* [logit_rows, n_vocab rounded up to 16] */
    float *largest;     /* [logit_rows, de_blocks()] largest logit of each block */
    op_rest *rest;      /* [logit_rows] terms of the logits that the 4-bit weights lack */
    uint32_t *candidates; /* [logit_rows, DE_LOW_MAX] tokens whose low digits are added */
    size_t *n_candidates; /* [logit_rows] number of candidates */
    float *refined;     /* [logit_rows, DE_LOW_MAX] logits of the candidates with low digits */
    /* the current step */
    uint64_t number;    /* number of its first stage */
    const de_row *rows;
    size_t n_rows, n_wanted;
    de_run slot_run[DE_ROWS], window_run[DE_ROWS];
    size_t slot_runs, window_runs;
    de_tap tap;         /* NULL: none */
    void *tap_user;
} de_decoder;

/* Blocks of DE_BLOCK logits in a row. */
static size_t de_blocks(const wnpu_model *m)
{
    return en_blocks((size_t)m->vocab.n_vocab, DE_BLOCK);
}

/* Logits of n panels from `panel` on, at most a block, and their maximum while still in cache. */
static void de_logits(const de_decoder *d, const de_stage *stage, const en_worker *in, en_worker *w,
                      size_t panel, size_t n)
{
    const wnpu_model *m = d->e->model;
    const op_kernels *op = d->e->op;
    const size_t first = panel * 16, blocks = de_blocks(m);
    size_t last = (size_t)m->vocab.n_vocab, p, each, row;
    for (p = panel; p < panel + n && !tp_cancelled(d->e->pool); p += each) {
        size_t column = p * 16;
        each = panel + n - p < EN_PANELS ? panel + n - p : EN_PANELS;
        en_prefetch_columns(stage->weight, p + each, EN_PANELS);
        en_products(d->e, in, w, stage->weight, p, each, stage->rows);
        op->complete(stage->out + column, stage->ldo, w->acc, stage->rows, each * 16, in->scale,
                     stage->weight->scale + column, d->rest, m->wide_values + column, stage->ldo);
    }
    last = first + n * 16 < last ? first + n * 16 : last;
    for (row = 0; row < stage->rows; row++) {
        d->largest[row * blocks + first / DE_BLOCK] =
            op->largest(stage->out + row * stage->ldo + first, last - first);
    }
}

/* Panels of an item: about `each` items per thread, so that delayed threads can do fewer. Every
 * thread gets the same number of items; a chunk is a multiple of unit and at least 8 panels, below
 * which the overhead of an item dominates. */
static size_t de_chunk(size_t panels, size_t threads, size_t each, size_t unit)
{
    size_t chunk = panels;
    for (; each > 0 && threads > 1; each--) {
        chunk = en_blocks(panels, threads * each * unit) * unit;
        if (chunk >= 8 && en_blocks(panels, chunk) % threads == 0) {
            break;
        }
    }
    return chunk;
}

/* Panels of an item of a product with a weight. */
static size_t de_item(const de_decoder *d, const gm_weight *weight)
{
    const int logits = weight == &d->e->model->embedding;
    return de_chunk(weight->n16, d->e->pool->threads, logits ? 16 : 2,
                    logits ? DE_BLOCK / 16 : EN_PANELS);
}

/* A worker without further items of the stage prefetches the beginning of its share of the next
 * weight, so that the memory bus is not idle meanwhile. */
static void de_prefetch_next(const de_decoder *d, const gm_weight *w, unsigned worker)
{
    size_t first, item, i;
    if (w == NULL || tp_has_items(&d->e->pool->queue[worker])) {
        return;
    }
    item = de_item(d, w);
    (void)tp_queue_share(d->e->pool, worker, en_blocks(w->n16, item), &first);
    en_prefetch_columns(w, first * item, EN_PANELS);
    first *= item * w->k4 * GM_GROUP / (w->int4 ? 2 : 1);
    for (i = 0; i < GM_NEAR; i += GM_GROUP) {
        gm_prefetch(w->packed, first + i);
    }
}

/* The input rows of a worker's stage, normalised and quantised on first use. */
static const en_worker *de_prepare(const de_decoder *d, de_worker *own)
{
    const de_stage *stage = &own->stage;
    const float *x = stage->in;
    if (own->ready) {
        return &own->rows;
    }
    if (stage->norm != NULL) {
        en_norm(d->e, stage->norm, own->normed, x, stage->rows, stage->weight->k);
        x = own->normed;
    }
    own->rows.fine = stage->kind != DE_VOCAB; /* DE_ADD_FULL recomputes the largest */
    en_prepare(d->e, &own->rows, NULL, x, stage->weight->k, stage->rows, stage->weight->k);
    own->ready = 1;
    return &own->rows;
}

static void de_multiply(de_decoder *d, size_t item, unsigned worker)
{
    en_worker *w = &d->e->worker[worker];
    const de_stage *stage = &d->worker[worker].stage;
    const en_worker *in = de_prepare(d, &d->worker[worker]);
    size_t panel = item * stage->chunk, left = stage->weight->n16 - panel, n;
    size_t end = left < stage->chunk ? stage->weight->n16 : panel + stage->chunk;
    if (stage->kind != DE_VOCAB || d->e->exact) {
        en_multiply(d->e, in, w, stage->weight, panel, end - panel, stage->rows,
                    stage->out + panel * 16, stage->ldo, stage->finish);
        panel = end;
    }
    for (; panel < end; panel += n) {
        n = end - panel > DE_BLOCK / 16 ? DE_BLOCK / 16 : end - panel;
        de_logits(d, stage, in, w, panel, n);
    }
}

/* Attention of rows of one head's queries, stride ldx, over the first n keys of h. */
static void de_attend(const en_engine *e, en_worker *w, const en_heads *h, size_t head, size_t n,
                      const float *x, size_t ldx, size_t rows, float *out, size_t ldo)
{
    size_t hd = h->hd, r;
    float unit = 1.0f / sqrtf((float)hd), scale[DE_ROWS], q[DE_ROWS * EN_MAX_HEAD];
    int8_t q8[DE_ROWS * EN_MAX_HEAD];
    for (r = 0; r < rows && e->exact; r++) {
        memcpy(q + r * hd, x + r * ldx, hd * sizeof(float));
        e->op->scale(q + r * hd, hd, unit);
    }
    if (e->exact) {
        en_attend_float(e, w, h, head, n, q, rows, out, ldo);
        return;
    }
    e->op->quantise(q8, x, ldx, rows, hd, scale);
    for (r = 0; r < rows; r++) {
        scale[r] *= unit;
    }
    en_attend_int8(e, w, h, head, n, q8, scale, rows, out, ldo);
}

/* Prefetches a head's keys and values: many short pieces, so hardware prefetchers do not help. */
WNPU_INLINE void de_prefetch_head(const en_heads *h, size_t head, size_t n)
{
    size_t at = head * h->keys;
    if (h->kf != NULL) {
        return;
    }
    en_prefetch(h->k + at * h->hd, n * h->hd);
    en_prefetch(h->k_scale + at, n * sizeof(float));
    en_prefetch(h->k_correction + at, n * sizeof(int32_t));
    en_prefetch(h->v_log2 + at, n * sizeof(float));
    en_prefetch(h->v_inverse + at, n * sizeof(float));
    gm_walk_ahead(h->v + at * h->hd, h->keys / 4, h->hd / 16, 0, (n + 3) / 4);
}

/* Self-attention of some heads, from `first` on, for consecutive rows of one slot: appends their
 * keys and values, then attends over the slot's positions, each row up to its own. */
static void de_self_heads(de_decoder *d, const de_run *run, size_t first, size_t heads,
                          unsigned worker)
{
    const en_engine *e = d->e;
    size_t n = e->model->n_text_state, hd = n / e->model->n_text_head, head, i;
    const de_row *rows = d->rows + run->first;
    const float *x = d->qkv + run->first * 3 * n;
    en_heads *h = &d->self[rows->slot * e->model->n_text_layer + d->worker[worker].stage.layer];
    float *out = d->attended + run->first * n;
    de_prefetch_head(h, first, rows->position);
    for (i = 0; i < run->n; i++) {
        const float *k = x + i * 3 * n + n + first * hd;
        en_store_position(e, h, first, heads, rows[i].position, k, k + n);
    }
    for (head = first; head < first + heads; head++) {
        if (head + 1 < first + heads) {
            de_prefetch_head(h, head + 1, rows->position);
        }
        for (i = 0; i < run->n; i++) {
            de_attend(e, &e->worker[worker], h, head, rows[i].position + 1,
                      x + i * 3 * n + head * hd, 3 * n, 1, out + i * n + head * hd, n);
        }
    }
}

/* Item: run * groups of heads + group. */
static void de_self(de_decoder *d, size_t item, unsigned worker)
{
    const de_stage *stage = &d->worker[worker].stage;
    size_t each = d->e->model->n_text_head / stage->chunk;
    de_self_heads(d, &d->slot_run[item / each], item % each * stage->chunk, stage->chunk, worker);
}

/* Heads of an item: several, as claiming an item costs about as much as one head. */
static size_t de_self_chunk(const de_decoder *d)
{
    size_t heads = d->e->model->n_text_head, chunk;
    for (chunk = heads; chunk > 1; chunk--) {
        if (heads % chunk == 0 && d->slot_runs * heads / chunk >= 2 * d->e->pool->threads) {
            break;
        }
    }
    return chunk;
}

/* Cross-attention of one head for consecutive rows of one window. Item: run * heads + head. */
static void de_cross_head(de_decoder *d, size_t item, unsigned worker)
{
    const en_engine *e = d->e;
    size_t heads = e->model->n_text_head, head = item % heads, n = e->model->n_text_state;
    size_t hd = n / heads;
    const de_run *run = &d->window_run[item / heads];
    const en_heads *h = &d->cross[d->rows[run->first].window * e->model->n_text_layer +
                                  d->worker[worker].stage.layer];
    de_attend(e, &e->worker[worker], h, head, e->model->n_audio_ctx,
              d->qkv + run->first * n + head * hd, n, run->n,
              d->attended + run->first * n + head * hd, n);
}

/* Finds the runs of consecutive rows that share a slot or a window. */
static void de_find_runs(de_decoder *d, const de_row *rows, size_t n_rows)
{
    size_t i;
    d->rows = rows;
    d->slot_runs = d->window_runs = 0;
    for (i = 0; i < n_rows; i++) {
        if (i == 0 || rows[i].slot != rows[i - 1].slot) {
            d->slot_run[d->slot_runs].first = i;
            d->slot_run[d->slot_runs++].n = 0;
        }
        if (i == 0 || rows[i].window != rows[i - 1].window) {
            d->window_run[d->window_runs].first = i;
            d->window_run[d->window_runs++].n = 0;
        }
        d->slot_run[d->slot_runs - 1].n++;
        d->window_run[d->window_runs - 1].n++;
    }
}

static size_t de_logits_stride(const wnpu_model *m)
{
    return en_round16((size_t)m->vocab.n_vocab);
}

/* Logits are computed in three passes. First all of them as products of 4-bit weights and int8
 * rows. Those near the best (exp(-12) of its probability or more; fewer if there are too many) then
 * get the products of their low digits, and the largest of these (exp(-8)) are computed in full.
 * The error of the first passes is small against these margins (measured in
 * tests/unit/attention.c), so the best logit is always computed in full. */

/* Lists the tokens of a row whose logits are at least `least`, in ascending order. Returns their
 * number, or a value above DE_LOW_MAX if there are more than that. */
static size_t de_find_candidates(const de_decoder *d, size_t row, float least)
{
    const wnpu_model *m = d->e->model;
    size_t vocab = (size_t)m->vocab.n_vocab, blocks = de_blocks(m), count = 0, p;
    const float *logits = d->logits + row * de_logits_stride(m);
    uint32_t *candidates = d->candidates + row * DE_LOW_MAX;
    for (p = 0; p < blocks && count <= DE_LOW_MAX; p++) {
        size_t at = p * DE_BLOCK, end = vocab - at < DE_BLOCK ? vocab : at + DE_BLOCK;
        if (d->largest[row * blocks + p] >= least) {
            count += d->e->op->above(candidates + count, DE_LOW_MAX - count, logits, at, end,
                                     least);
        }
    }
    return count;
}

/* Terms of the logits of x [n_text_state] that the 4-bit weights lack: mean, separate columns. */
static void de_find_rest(const de_decoder *d, const float *x, op_rest *rest)
{
    const wnpu_model *m = d->e->model;
    size_t i;
    rest->common = op_dot(x, m->embedding_mean, m->n_text_state);
    for (i = 0; i < OP_WIDE_MAX && m->wide_columns[i] < m->n_text_state; i++) {
        rest->x[i] = x[m->wide_columns[i]];
    }
    rest->n = i;
}

/* Contribution of a token's low digits to its logit. */
static float de_low(const en_engine *e, const float *x, uint32_t token)
{
    const wnpu_model *m = e->model;
    return e->op->dot_int8(x, m->embedding_low + (size_t)token * m->n_text_state,
                           m->n_text_state) * (m->embedding.scale[token] * (16.0f / 254.0f));
}

/* A token's logit in full precision: x [n_text_state] times all digits of its weights. */
static float de_logit(const en_engine *e, const float *x, const op_rest *rest, uint32_t token)
{
    const wnpu_model *m = e->model;
    size_t n = m->n_text_state, i;
    int8_t high[MF_MAX_STATE];
    float sum;
    gm_get_bytes(&m->embedding, token, high);
    sum = e->op->dot_int8(x, high, n) * m->embedding.scale[token] + de_low(e, x, token) +
          rest->common;
    for (i = 0; i < rest->n; i++) {
        sum += rest->x[i] * m->wide_values[i * de_logits_stride(m) + token];
    }
    return sum;
}

/* Selects the candidates of a row: logits near the best, with a smaller margin if too many. */
static void de_select_candidates(const de_decoder *d, size_t row)
{
    size_t count, blocks = de_blocks(d->e->model);
    float margin = DE_LOW_MARGIN, best = d->e->op->largest(d->largest + row * blocks, blocks);
    count = de_find_candidates(d, row, best - margin);
    while (count > DE_LOW_MAX && margin > 0.1f) {
        margin *= 0.75f;
        count = de_find_candidates(d, row, best - margin);
    }
    d->n_candidates[row] = count < DE_LOW_MAX ? count : DE_LOW_MAX;
}

/* Index of the first of n ascending tokens that is at least `token` (n if none is). */
static size_t de_lower_bound(const uint32_t *tokens, size_t n, size_t token)
{
    size_t first = 0, last = n;
    while (first < last) {
        size_t middle = (first + last) / 2;
        if (tokens[middle] < token) {
            first = middle + 1;
        } else {
            last = middle;
        }
    }
    return first;
}

/* Prefetches a token's low digits: one row in sixty to two hundred is read, each on another page,
 * so hardware prefetchers do not help. */
WNPU_INLINE void de_prefetch_low(const wnpu_model *m, uint32_t token)
{
    const size_t n = m->n_text_state;
    const int8_t *low = m->embedding_low + token * n;
    size_t i;
    for (i = 0; i < n; i += GM_GROUP) {
        gm_prefetch_once(low, i);
    }
}

/* Adds low digits for the candidates of all rows in one part of the vocabulary. Items divide the
 * vocabulary rather than the rows because beams share many candidates. */
static void de_add_low(const de_decoder *d, size_t item)
{
    const wnpu_model *m = d->e->model;
    const size_t vocab = (size_t)m->vocab.n_vocab, n = m->n_text_state;
    size_t row;
    for (row = 0; row < d->n_wanted; row++) {
        const uint32_t *candidates = d->candidates + row * DE_LOW_MAX;
        const size_t end = de_lower_bound(candidates, d->n_candidates[row],
                                          vocab * (item + 1) / DE_LOW_ITEMS);
        float *logits = d->logits + row * de_logits_stride(m);
        float *refined = d->refined + row * DE_LOW_MAX;
        size_t i = de_lower_bound(candidates, end, vocab * item / DE_LOW_ITEMS), ahead;
        for (ahead = i; ahead < end && ahead < i + DE_PREFETCH; ahead++) {
            de_prefetch_low(m, candidates[ahead]);
        }
        for (; i < end; i++) {
            if (i + DE_PREFETCH < end) {
                de_prefetch_low(m, candidates[i + DE_PREFETCH]);
            }
            refined[i] = logits[candidates[i]] + de_low(d->e, d->normed + row * n, candidates[i]);
            logits[candidates[i]] = refined[i];
        }
    }
}

/* Computes a share of a row's largest logits in full. Item: row * DE_FULL_ITEMS + share. */
static void de_compute_full(const de_decoder *d, size_t item)
{
    const op_kernels *op = d->e->op;
    const size_t row = item / DE_FULL_ITEMS, share = item % DE_FULL_ITEMS, n = d->n_candidates[row];
    const uint32_t *candidates = d->candidates + row * DE_LOW_MAX;
    const float *refined = d->refined + row * DE_LOW_MAX, best = op->largest(refined, n);
    const size_t stride = de_logits_stride(d->e->model);
    uint32_t found[DE_FULL_MAX];
    float margin = DE_FULL_MARGIN;
    size_t count = op->above(found, DE_FULL_MAX, refined, 0, n, best - margin), i;
    while (count > DE_FULL_MAX && margin > 0.1f) {
        margin *= 0.75f;
        count = op->above(found, DE_FULL_MAX, refined, 0, n, best - margin);
    }
    count = count < DE_FULL_MAX ? count : DE_FULL_MAX;
    for (i = count * share / DE_FULL_ITEMS; i < count * (share + 1) / DE_FULL_ITEMS; i++) {
        uint32_t token = candidates[found[i]];
        d->logits[row * stride + token] =
            de_logit(d->e, d->normed + row * d->e->model->n_text_state, &d->rest[row], token);
    }
}

/* x = embedding of the row's token + embedding of its position. */
static void de_embed(const de_decoder *d, const de_row *row, float *x)
{
    const wnpu_model *m = d->e->model;
    size_t n = m->n_text_state, i, token = (size_t)row->token;
    const float *position = m->text_position + row->position * n;
    const int8_t *low = m->embedding_low + token * n;
    const float scale = m->embedding.scale[token], step = scale * (16.0f / 254.0f);
    int8_t high[MF_MAX_STATE];
    if (d->e->exact) {
        gm_get_row(&m->embedding, (uint32_t)token, x, 1);
        for (i = 0; i < n; i++) {
            x[i] += position[i];
        }
        return;
    }
    gm_get_bytes(&m->embedding, (uint32_t)token, high);
    for (i = 0; i < n; i++) {
        x[i] = scale * (float)high[i] + step * (float)low[i] + m->embedding_mean[i] + position[i];
    }
    for (i = 0; i < OP_WIDE_MAX && m->wide_columns[i] < n; i++) {
        x[m->wide_columns[i]] += m->wide_values[i * de_logits_stride(m) + token];
    }
}

/* Records that a slot's positions before end are written. */
static void de_mark_used(de_decoder *d, size_t slot, size_t end)
{
    d->used_slots = d->used_slots > slot ? d->used_slots : slot + 1;
    d->longest = d->longest > end ? d->longest : end;
}

/* The cross-attention caches of d->window, [n_text_layer]; en_cross() fills all but the padding. */
static en_heads *de_cross(de_decoder *d)
{
    const wnpu_model *m = d->e->model;
    size_t l;
    for (; d->used_windows <= d->window; d->used_windows++) {
        for (l = 0; l < m->n_text_layer; l++) {
            en_clear_tail(&d->cross[d->used_windows * m->n_text_layer + l], m->n_audio_ctx);
        }
    }
    return d->cross + d->window * m->n_text_layer;
}

/* Moves the rows whose logits are wanted to the front and normalises them. */
static void de_select_rows(de_decoder *d)
{
    const wnpu_model *m = d->e->model;
    size_t n = m->n_text_state, r;
    d->n_wanted = 0;
    for (r = 0; r < d->n_rows; r++) {
        if (d->rows[r].want && d->n_wanted < d->logit_rows) {
            memmove(d->x + d->n_wanted++ * n, d->x + r * n, n * sizeof(float));
        }
    }
    en_norm(d->e, &m->decoder_norm, d->normed, d->x, d->n_wanted, n);
    for (r = 0; r < d->n_wanted && !d->e->exact; r++) {
        de_find_rest(d, d->normed + r * n, &d->rest[r]);
    }
}

static void de_set_product(const de_decoder *d, de_stage *stage, const gm_weight *weight,
                           const mf_norm *norm, const float *in, float *out, op_finish finish,
                           const gm_weight *next_weight)
{
    stage->weight = weight;
    stage->norm = norm;
    stage->in = in;
    stage->out = out;
    stage->ldo = (size_t)weight->n16 * 16;
    stage->finish = finish;
    stage->next_weight = next_weight;
    stage->chunk = de_item(d, weight);
    stage->items = stage->rows > 0 ? en_blocks(weight->n16, stage->chunk) : 0;
}

/* Fills in a stage that is a product. */
static void de_get_product(const de_decoder *d, de_stage *stage)
{
    const wnpu_model *m = d->e->model;
    const mf_layer *l = &m->decoder[stage->layer];
    switch (stage->kind) {
    case DE_QKV:
        de_set_product(d, stage, &l->qkv, &l->attn_norm, d->x, d->qkv, OP_STORE, &l->attn_out);
        break;
    case DE_ATTN_OUT:
        de_set_product(d, stage, &l->attn_out, NULL, d->attended, d->x, OP_ADD, &l->cross_q);
        break;
    case DE_CROSS_Q:
        de_set_product(d, stage, &l->cross_q, &l->cross_norm, d->x, d->qkv, OP_STORE, NULL);
        break;
    case DE_CROSS_OUT:
        de_set_product(d, stage, &l->cross_out, NULL, d->attended, d->x, OP_ADD, &l->fc1);
        break;
    case DE_FC1:
        de_set_product(d, stage, &l->fc1, &l->mlp_norm, d->x, d->hidden, OP_GELU, &l->fc2);
        break;
    case DE_FC2:
        de_set_product(d, stage, &l->fc2, NULL, d->hidden, d->x, OP_ADD,
                       stage->layer + 1 < m->n_text_layer ? &l[1].qkv : &m->embedding);
        break;
    default:
        de_set_product(d, stage, &m->embedding, NULL, d->normed, d->logits, OP_STORE, NULL);
        break;
    }
}

/* Stage `at` of a step; beyond the last one it has no items. */
static void de_get_stage(const de_decoder *d, size_t at, de_stage *stage)
{
    const wnpu_model *m = d->e->model;
    const size_t layers = m->n_text_layer, heads = m->n_text_head;
    memset(stage, 0, sizeof *stage);
    stage->layer = at / DE_OF_LAYER;
    stage->kind = (de_kind)(at % DE_OF_LAYER);
    if (stage->layer >= layers) {
        at -= layers * DE_OF_LAYER;
        stage->kind = at < (d->e->exact ? 1u : (size_t)(DE_KINDS - DE_VOCAB))
                         ? (de_kind)(DE_VOCAB + at) : DE_KINDS;
    }
    stage->rows = stage->kind < DE_VOCAB ? d->n_rows : d->n_wanted;
    switch (stage->kind) {
    case DE_SELF:
        stage->chunk = de_self_chunk(d);
        stage->items = d->slot_runs * heads / stage->chunk;
        break;
    case DE_CROSS:
        stage->items = d->window_runs * heads;
        stage->next_weight = &m->decoder[stage->layer].cross_out;
        break;
    case DE_SELECT: stage->items = d->n_wanted; break;
    case DE_ADD_LOW: stage->items = DE_LOW_ITEMS; break;
    case DE_ADD_FULL: stage->items = d->n_wanted * DE_FULL_ITEMS; break;
    case DE_KINDS: break;
    default: de_get_product(d, stage); break;
    }
}

/* Number of items of a stage, after the serial work that precedes it. */
static size_t de_stage_items(void *context, size_t at)
{
    de_decoder *d = context;
    de_stage stage;
    if (tp_cancelled(d->e->pool)) {
        return 0;
    }
    if (at == d->e->model->n_text_layer * DE_OF_LAYER) {
        de_select_rows(d);
    }
    de_get_stage(d, at, &stage);
    if (stage.kind == DE_CROSS && d->tap != NULL) {
        d->tap(d->tap_user, stage.layer, d->rows, d->n_rows, d->qkv);
    }
    return stage.items;
}

static void de_task(void *context, size_t index, unsigned worker)
{
    de_decoder *d = context;
    de_worker *own = &d->worker[worker];
    const size_t at = index / TP_PART, item = index % TP_PART;
    if (own->number != d->number + at) {
        own->number = d->number + at;
        own->ready = 0;
        de_get_stage(d, at, &own->stage);
    }
    switch (own->stage.kind) {
    case DE_SELF: de_self(d, item, worker); break;
    case DE_CROSS: de_cross_head(d, item, worker); break;
    case DE_SELECT: de_select_candidates(d, item); break;
    case DE_ADD_LOW: de_add_low(d, item); break;
    case DE_ADD_FULL: de_compute_full(d, item); break;
    default: de_multiply(d, item, worker); break;
    }
    de_prefetch_next(d, own->stage.next_weight, worker);
}

/* One step of n_rows <= DE_ROWS rows. Rows of one slot must be adjacent, with consecutive ascending
 * positions; rows of one window should be adjacent. d->logits gets one row [n_vocab] for each row
 * with `want`, in order. */
static void de_step(de_decoder *d, const de_row *rows, size_t n_rows)
{
    size_t r;
    for (r = 0; r < n_rows; r++) {
        de_mark_used(d, rows[r].slot, rows[r].position + 1);
        de_embed(d, &rows[r], d->x + r * d->e->model->n_text_state);
    }
    de_find_runs(d, rows, n_rows);
    d->n_rows = n_rows;
    d->number += d->e->model->n_text_layer * DE_OF_LAYER + DE_KINDS; /* more than a step has */
    tp_run_parts(d->e->pool, de_stage_items, de_task, d);
}

/* Copies positions first..end-1 of the self-attention caches from one slot to another whose earlier
 * positions are equal already. */
static void de_copy(de_decoder *d, size_t to, size_t from, size_t first, size_t end)
{
    size_t layers = d->e->model->n_text_layer, i;
    de_mark_used(d, to, end);
    for (i = 0; i < layers && first < end; i++) {
        en_copy_heads(&d->self[to * layers + i], &d->self[from * layers + i], first, end);
    }
}

static void de_carve_worker(ar_arena *arena, const en_engine *e, de_worker *own)
{
    const size_t n = e->model->n_text_state;
    memset(own, 0, sizeof *own);
    own->normed = ar_carve(arena, DE_ROWS * n, sizeof(float));
    if (!e->exact) {
        own->rows.q = ar_carve(arena, 2 * DE_ROWS * 4 * n, 1);
        own->rows.scale = ar_carve(arena, DE_ROWS, sizeof(float));
        own->rows.packed = ar_carve(arena, e->gm->a_bytes(DE_ROWS, n), 1);
        own->rows.outlier = ar_carve(arena, n, sizeof(uint16_t));
        own->rows.packed_high = ar_carve(arena, gm_outlier_bytes(e->gm, DE_ROWS, n), 1);
    }
}

static void de_carve(ar_arena *arena, de_decoder *d, en_engine *e, size_t slots, size_t windows)
{
    const wnpu_model *m = e->model;
    size_t n = m->n_text_state, hd = n / m->n_text_head, i;
    en_heads nothing;
    de_worker nobody;
    memset(d, 0, sizeof *d);
    d->e = e;
    d->slots = slots;
    d->windows = windows;
    d->self = ar_carve(arena, slots * m->n_text_layer, sizeof(en_heads));
    d->cross = ar_carve(arena, windows * m->n_text_layer, sizeof(en_heads));
    for (i = 0; i < windows * m->n_text_layer; i++) {
        en_carve_heads(arena, d->cross != NULL ? &d->cross[i] : &nothing, m->n_text_head, hd,
                       m->n_audio_ctx, e->exact);
        d->always_used = i + 1 == m->n_text_layer ? arena->used : d->always_used;
    }
    for (i = 0; i < slots * m->n_text_layer; i++) {
        en_carve_heads(arena, d->self != NULL ? &d->self[i] : &nothing, m->n_text_head, hd,
                       m->n_text_ctx, e->exact);
    }
    d->x = ar_carve(arena, DE_ROWS * n, sizeof(float));
    d->normed = ar_carve(arena, DE_ROWS * n, sizeof(float));
    d->qkv = ar_carve(arena, DE_ROWS * 3 * n, sizeof(float));
    d->attended = ar_carve(arena, DE_ROWS * n, sizeof(float));
    d->hidden = ar_carve(arena, DE_ROWS * 4 * n, sizeof(float));
    d->logit_rows = slots < 3 ? 3 : slots < DE_LOGITS ? slots : DE_LOGITS;
    d->logits = ar_carve(arena, d->logit_rows * de_logits_stride(m), sizeof(float));
    d->largest = ar_carve(arena, d->logit_rows * de_blocks(m), sizeof(float));
    d->rest = ar_carve(arena, d->logit_rows, sizeof(op_rest));
    d->candidates = ar_carve(arena, d->logit_rows * DE_LOW_MAX, sizeof(uint32_t));
    d->n_candidates = ar_carve(arena, d->logit_rows, sizeof(size_t));
    d->refined = ar_carve(arena, d->logit_rows * DE_LOW_MAX, sizeof(float));
    d->worker = ar_carve(arena, e->n_workers, sizeof *d->worker);
    for (i = 0; i < e->n_workers; i++) {
        de_carve_worker(arena, e, d->worker != NULL ? &d->worker[i] : &nobody);
    }
}

/* Clears the written part of the self-attention caches. */
static void de_wipe_slots(de_decoder *d)
{
    size_t i;
    for (i = 0; i < d->used_slots * d->e->model->n_text_layer; i++) {
        en_clear_heads(&d->self[i], en_round16(d->longest));
    }
}

/* Clears the written part of all caches. */
static void de_wipe(de_decoder *d)
{
    size_t i;
    de_wipe_slots(d);
    for (i = 0; i < d->used_windows * d->e->model->n_text_layer; i++) {
        en_clear_heads(&d->cross[i], d->cross[i].keys);
    }
}

/* ======================================================================
 * 14. lr_  logit rules
 *
 *  Owns      which tokens are allowed next, the penalties and bonuses of
 *            their logits, the trie of hotwords and commands.
 *  Assumes   logits of one row, and the tokens chosen so far in this
 *            window (without the prompt).
 *  Ensures   OpenAI's decoding rules in OpenAI's order (SuppressBlank,
 *            SuppressTokens, ApplyTimestampRules), after the penalties;
 *            logits of forbidden tokens are minus infinity.
 *  Costs     a pass over the vocabulary and one sum of exponentials over
 *            the timestamps; hotwords: proportional to the number of their
 *            first tokens.
 * ====================================================================== */
#define LR_FORBIDDEN (-INFINITY)

/* ---- phrases ----
 * Hotwords and commands are paths in a trie of tokens. It has two roots: paths from LR_ANYWHERE may
 * begin at any token, paths from LR_BOUNDARY only at a word boundary, because they lack the leading
 * space of a word ("cat" must not be boosted inside "con" + "cat"). */
#define LR_ANYWHERE 0u
#define LR_BOUNDARY 1u
#define LR_ROOTS 2u
#define LR_MAX_TOKENS 32u     /* most tokens of a phrase */
#define LR_PHRASE_BYTES 256u  /* including a leading space and the NUL */
#define LR_MAX_PATHS (2u * (LR_MAX_TOKENS + 1u))

typedef struct lr_node {
    int32_t token;
    uint32_t parent, child, sibling; /* 0: none (a root is never a child) */
    int32_t phrase;         /* index of the phrase that ends here, or -1 */
    uint32_t depth;
    float bonus;            /* summed since the root, or since a phrase that ends on the path */
} lr_node;

typedef struct lr_trie {
    lr_node *nodes;         /* [capacity], the roots first, parents before children */
    uint32_t *table;        /* [mask + 1] node by parent and token, 0: free */
    uint32_t capacity, used, mask, depth;
} lr_trie;

static void lr_trie_carve(ar_arena *arena, lr_trie *t, uint32_t capacity)
{
    t->capacity = capacity + LR_ROOTS;
    t->mask = 1;
    while (t->mask < 2 * t->capacity) {
        t->mask *= 2;
    }
    t->nodes = ar_carve(arena, t->capacity, sizeof(lr_node));
    t->table = ar_carve(arena, t->mask, sizeof(uint32_t));
    t->mask--;
}

static void lr_trie_clear(lr_trie *t)
{
    uint32_t i;
    memset(t->table, 0, ((size_t)t->mask + 1) * sizeof(uint32_t));
    memset(t->nodes, 0, LR_ROOTS * sizeof(lr_node));
    for (i = 0; i < LR_ROOTS; i++) {
        t->nodes[i].token = -1;
        t->nodes[i].phrase = -1;
    }
    t->used = LR_ROOTS;
    t->depth = 0;
}

/* The hash slot of a child, or the free one where it belongs. The table is at most half full. */
static uint32_t *lr_slot(const lr_trie *t, uint32_t parent, int32_t token)
{
    uint32_t h = parent * 0x9e3779b1u ^ (uint32_t)token * 0x85ebca6bu;
    h ^= h >> 15;
    for (;; h++) {
        uint32_t *slot = &t->table[h & t->mask];
        if (*slot == 0 || (t->nodes[*slot].parent == parent && t->nodes[*slot].token == token)) {
            return slot;
        }
    }
}

/* The child of a node by token, 0 if there is none. */
static uint32_t lr_child(const lr_trie *t, uint32_t node, int32_t token)
{
    return *lr_slot(t, node, token);
}

/* Adds a path. E_MEMORY: the trie is full, and no further path may be added. */
static int lr_trie_add(lr_trie *t, uint32_t root, const int32_t *tokens, size_t n, int32_t phrase)
{
    uint32_t at = root;
    size_t i;
    for (i = 0; i < n; i++) {
        uint32_t *slot = lr_slot(t, at, tokens[i]);
        if (*slot == 0) {
            lr_node *node = &t->nodes[t->used];
            if (t->used == t->capacity) {
                return WNPU_E_MEMORY;
            }
            memset(node, 0, sizeof *node);
            node->token = tokens[i];
            node->parent = at;
            node->sibling = t->nodes[at].child;
            node->phrase = -1;
            node->depth = t->nodes[at].depth + 1;
            t->nodes[at].child = t->used;
            *slot = t->used++;
        }
        at = *slot;
    }
    if (n > 0 && t->nodes[at].phrase < 0) {
        t->nodes[at].phrase = phrase;
    }
    t->depth = n > t->depth ? (uint32_t)n : t->depth;
    return WNPU_OK;
}

/* Lower-case letters of Latin, Greek and Cyrillic: every step-th from first to last, and the
 * distance to their capitals. Both have the same length in UTF-8. */
static const struct {
    uint16_t first, last;
    uint8_t step, shift;
} lr_lower[] = {
    {0x61, 0x7a, 1, 32}, {0xe0, 0xf6, 1, 32}, {0xf8, 0xfe, 1, 32}, {0x101, 0x12f, 2, 1},
    {0x133, 0x137, 2, 1}, {0x13a, 0x148, 2, 1}, {0x14b, 0x177, 2, 1}, {0x17a, 0x17e, 2, 1},
    {0x3b1, 0x3c1, 1, 32}, {0x3c3, 0x3c9, 1, 32}, {0x430, 0x44f, 1, 32}, {0x450, 0x45f, 1, 80}
};

static int32_t lr_change_case(int32_t code, int upper)
{
    size_t i;
    for (i = 0; i < sizeof lr_lower / sizeof lr_lower[0]; i++) {
        int32_t small = upper ? code : code + lr_lower[i].shift;
        if (small >= lr_lower[i].first && small <= lr_lower[i].last &&
            (small - lr_lower[i].first) % lr_lower[i].step == 0) {
            return upper ? code - lr_lower[i].shift : small;
        }
    }
    return code;
}

/* Changes the case of the first character, or of all, in place. */
static void lr_recase(char *text, size_t length, int upper, int all)
{
    size_t at = 0, used;
    int cut;
    for (at = 0; at < length && (all || at == 0); at += used) {
        int32_t code = lr_change_case(tk_decode_utf8(text + at, length - at, &used, &cut), upper);
        if (code > 0 && used == 1) {
            text[at] = (char)code;
        } else if (code > 0 && used == 2) {
            text[at] = (char)(0xc0 | code >> 6);
            text[at + 1] = (char)(0x80 | (code & 0x3f));
        }
    }
}

/* 1 for scripts that write no spaces between words: kana, Han, Thai, Lao, Khmer, Burmese. */
static int lr_is_unspaced_script(int32_t c)
{
    return (c >= 0xe00 && c <= 0x109f) || (c >= 0x1780 && c <= 0x17ff) ||
           (c >= 0x3040 && c <= 0x30ff) || (c >= 0x3400 && c <= 0x9fff) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x20000 && c <= 0x3ffff);
}

static int lr_begins_unspaced(const char *text, size_t length)
{
    size_t used;
    int cut;
    return length > 0 && lr_is_unspaced_script(tk_decode_utf8(text, length, &used, &cut));
}

/* Adds the variants of a phrase: as given, capitalised, lower case, upper case, each with and
 * without a leading space. E_ARGUMENT: empty or too long; E_MEMORY: the trie is full; or
 * E_UNSUPPORTED. */
static int lr_add_phrase(lr_trie *t, const tk_vocab *v, const char *text, int32_t phrase)
{
    char spaced[LR_PHRASE_BYTES];
    int32_t tokens[LR_MAX_TOKENS];
    size_t length = strlen(text);
    int how, space, status = WNPU_OK;
    for (; *text == ' '; text++, length--) {
    }
    for (; length > 0 && text[length - 1] == ' '; length--) {
    }
    if (length == 0 || length > sizeof spaced - 2) {
        return WNPU_E_ARGUMENT;
    }
    for (how = 0; how < 4 && status == WNPU_OK; how++) {
        spaced[0] = ' ';
        memcpy(spaced + 1, text, length);
        if (how > 0) {
            lr_recase(spaced + 1, length, how != 2, how != 1);
        }
        for (space = 1; space >= 0 && status == WNPU_OK; space--) {
            uint32_t root = space || lr_begins_unspaced(text, length) ? LR_ANYWHERE : LR_BOUNDARY;
            int64_t n = tk_encode(v, spaced + !space, length + (size_t)space, tokens,
                                  LR_MAX_TOKENS);
            status = n < 0 ? (int)n : n > LR_MAX_TOKENS ? WNPU_E_ARGUMENT
                                    : lr_trie_add(t, root, tokens, (size_t)n, phrase);
        }
    }
    return status;
}

/* Sets the bonus of each node, after the last phrase was added. Most occurrences of a phrase's
 * first token are not the phrase. Beam search keeps hypotheses with and without it, so half a bonus
 * for the first token helps; greedy search cannot undo a first token, which gets no bonus there. */
static void lr_trie_set_bonus(lr_trie *t, float boost, int beam)
{
    uint32_t i;
    for (i = LR_ROOTS; i < t->used; i++) {
        lr_node *node = &t->nodes[i];
        const lr_node *parent = &t->nodes[node->parent];
        int whole = node->depth > 1 || node->phrase >= 0;
        node->bonus = (parent->phrase < 0 ? parent->bonus : 0.0f) +
                      (whole ? boost : beam ? 0.5f * boost : 0.0f);
    }
}

/* ---- rules ---- */

typedef struct lr_rules {
    const tk_vocab *vocab;
    const op_kernels *op;
    unsigned char *never;   /* [n_vocab] 1: suppressed at every position */
    int timestamps;         /* apply the timestamp rules */
    int suppress_blank;
    int32_t blank;          /* token of " ", or -1 */
    int32_t max_initial;    /* highest first timestamp, in steps of 20 ms */
    float repetition;       /* penalty factor for tokens already in the text; 1: none */
    size_t no_repeat;       /* n-gram length that may not repeat, in text tokens; 0: off */
    lr_trie trie;           /* hotwords */
} lr_rules;

static void lr_forbid(float *logits, int32_t first, int32_t last)
{
    int32_t i;
    for (i = first; i < last; i++) {
        logits[i] = LR_FORBIDDEN;
    }
}

/* Penalises tokens that the text already contains, as in CTRL (Keskar et al., 2019) and
 * CTranslate2; timestamps are exempt, having rules of their own. */
static void lr_penalise_repetition(const lr_rules *r, float *logits, const int32_t *tokens,
                                   size_t n)
{
    size_t i, j;
    for (i = 0; i < n; i++) {
        float *x = &logits[tokens[i]];
        for (j = 0; j < i && tokens[j] != tokens[i]; j++) {
        }
        if (j == i && tokens[i] < r->vocab->eot) {
            *x = *x > 0.0f ? *x / r->repetition : *x * r->repetition;
        }
    }
}

/* Forbids tokens that would complete a repeated n-gram of no_repeat text tokens. Timestamps between
 * them are ignored. */
static void lr_forbid_repeats(const lr_rules *r, float *logits, const int32_t *tokens, size_t n)
{
    size_t i, back, length = r->no_repeat;
    for (i = n; i > 0; i--) {
        size_t at = i - 1, end = n;
        if (tokens[at] >= r->vocab->eot) {
            continue;
        }
        /* compare the length - 1 text tokens before tokens[at] with the last ones */
        for (back = 1; back < length; back++) {
            while (at > 0 && tokens[at - 1] >= r->vocab->eot) {
                at--;
            }
            while (end > 0 && tokens[end - 1] >= r->vocab->eot) {
                end--;
            }
            if (at == 0 || tokens[at - 1] != tokens[end - 1]) {
                break;
            }
            at--;
            end--;
        }
        if (back == length) {
            logits[tokens[i - 1]] = LR_FORBIDDEN;
        }
    }
}

/* Timestamp rules: timestamps come in pairs (end, begin) except before the end of text, never
 * decrease, and a window begins with one. */
static void lr_timestamp_pairs(const lr_rules *r, float *logits, const int32_t *tokens, size_t n)
{
    const tk_vocab *v = r->vocab;
    int32_t t0 = v->timestamp0, last = -1;
    int last_is = n >= 1 && tokens[n - 1] >= t0;
    int before_is = n < 2 || tokens[n - 2] >= t0;
    size_t i;
    logits[v->no_timestamps] = LR_FORBIDDEN;
    if (last_is && before_is) {
        lr_forbid(logits, t0, v->n_vocab);
    } else if (last_is) {
        lr_forbid(logits, 0, v->eot);
    }
    for (i = n; i > 0 && last < 0; i--) {
        if (tokens[i - 1] >= t0) {
            last = tokens[i - 1];
        }
    }
    if (last >= 0) {
        /* The first of a pair may be repeated as the second; otherwise timestamps increase. */
        lr_forbid(logits, t0, last_is && !before_is ? last : last + 1);
    }
    if (n == 0) {
        lr_forbid(logits, 0, t0);
        if (t0 + r->max_initial + 1 < v->n_vocab) {
            lr_forbid(logits, t0 + r->max_initial + 1, v->n_vocab);
        }
    }
}

/* Forbids text if the timestamps together are more probable than the best text token. */
static void lr_prefer_timestamp(const lr_rules *r, float *logits)
{
    int32_t t0 = r->vocab->timestamp0, n = r->vocab->n_vocab;
    float best_text = logits[r->op->argmax(logits, (size_t)t0)];
    float best_time = logits[t0 + (int32_t)r->op->argmax(logits + t0, (size_t)(n - t0))];
    float sum;
    if (best_time == LR_FORBIDDEN) {
        return;
    }
    sum = r->op->sum_exp(logits + t0, (size_t)(n - t0), best_time);
    if (mt_log1(sum) + best_time > best_text) {
        lr_forbid(logits, 0, t0);
    }
}

/* Forbids the tokens suppressed at every position. They are sparse, so 64 flags are tested at a
 * time. */
static void lr_suppress(const lr_rules *r, float *logits)
{
    const int32_t n = r->vocab->n_vocab;
    int32_t i, k;
    for (i = 0; i < n; i += 64) {
        const int32_t end = n - i < 64 ? n : i + 64;
        uint64_t w[8] = {1};
        if (end == i + 64) {
            memcpy(w, r->never + i, sizeof w);
        }
        if ((w[0] | w[1] | w[2] | w[3] | w[4] | w[5] | w[6] | w[7]) == 0) {
            continue;
        }
        for (k = i; k < end; k++) {
            logits[k] = r->never[k] ? LR_FORBIDDEN : logits[k];
        }
    }
}

static void lr_apply(const lr_rules *r, float *logits, const int32_t *tokens, size_t n)
{
    const tk_vocab *v = r->vocab;
    if (r->repetition != 1.0f) {
        lr_penalise_repetition(r, logits, tokens, n);
    }
    if (r->no_repeat > 0) {
        lr_forbid_repeats(r, logits, tokens, n);
    }
    if (n == 0 && r->suppress_blank) {
        logits[v->eot] = LR_FORBIDDEN;
        if (r->blank >= 0) {
            logits[r->blank] = LR_FORBIDDEN;
        }
    }
    lr_suppress(r, logits);
    if (r->timestamps) {
        lr_timestamp_pairs(r, logits, tokens, n);
        lr_prefer_timestamp(r, logits);
    } else {
        lr_forbid(logits, v->timestamp0, v->n_vocab);
    }
}

/* ---- hotwords ----
 * A token on a path earns the bonus of the path up to it; leaving the path before its end takes all
 * of it back, completing it keeps it. This needs no state: the current paths follow from the latest
 * tokens. */

static int lr_at_boundary(const tk_vocab *v, const int32_t *tokens, size_t at)
{
    size_t length = 0;
    const char *text = at > 0 ? tk_text(v, tokens[at - 1], &length) : NULL;
    unsigned char last = length > 0 ? (unsigned char)text[length - 1] : ' ';
    return at == 0 || tokens[at - 1] >= v->eot ||
           !(last >= 0x80 || (last >= '0' && last <= '9') || (last >= 'a' && last <= 'z') ||
             (last >= 'A' && last <= 'Z'));
}

/* Current paths of a hypothesis in the trie. */
typedef struct lr_paths {
    uint32_t node[LR_MAX_PATHS]; /* last node of each path, longest first, and the roots allowed */
    size_t n;                /* 0 without hotwords */
    float provisional;       /* provisional bonus of the incomplete paths */
} lr_paths;

/* The node reached from a root by the tokens, or UINT32_MAX. */
static uint32_t lr_walk(const lr_trie *t, uint32_t root, const int32_t *tokens, size_t n)
{
    uint32_t at = root;
    size_t i;
    for (i = 0; i < n; i++) {
        at = lr_child(t, at, tokens[i]);
        if (at == 0) {
            return UINT32_MAX;
        }
    }
    return at;
}

static void lr_find_paths(const lr_rules *r, const int32_t *tokens, size_t n, lr_paths *p)
{
    const lr_trie *t = &r->trie;
    size_t start = n > t->depth ? n - t->depth : 0, i;
    p->n = 0;
    p->provisional = 0.0f;
    if (t->used <= LR_ROOTS) {
        return;
    }
    for (i = n; i > start; i--) {
        if (tokens[i - 1] >= r->vocab->eot) {
            start = i; /* paths do not contain timestamps */
        }
    }
    for (; start <= n; start++) {
        uint32_t root, last = lr_at_boundary(r->vocab, tokens, start) ? LR_BOUNDARY : LR_ANYWHERE;
        for (root = LR_ANYWHERE; root <= last; root++) {
            uint32_t at = lr_walk(t, root, tokens + start, n - start);
            if (at != UINT32_MAX) {
                const lr_node *node = &t->nodes[at];
                p->node[p->n++] = at;
                if (node->phrase < 0 && node->bonus > p->provisional) {
                    p->provisional = node->bonus;
                }
            }
        }
    }
}

/* Total bonus of a hypothesis after `token`: of completed paths plus the provisional one. */
static float lr_bonus(const lr_trie *t, const lr_paths *p, int32_t token)
{
    float provisional = 0.0f, earned = 0.0f;
    size_t i;
    for (i = 0; i < p->n; i++) {
        uint32_t child = lr_child(t, p->node[i], token);
        float bonus = t->nodes[child].bonus; /* 0 for node 0 (no child) */
        if (t->nodes[child].phrase >= 0) {
            earned = bonus > earned ? bonus : earned;
        } else {
            provisional = bonus > provisional ? bonus : provisional;
        }
    }
    return earned + provisional;
}

/* Adds to the logits of tokens that continue paths the bonus they would have. The provisional bonus
 * that every token would lose is left to the hypothesis's score instead. Call it after the sum over
 * the logits was computed, so that reported probabilities are those of the model. */
static void lr_boost(const lr_trie *t, const lr_paths *p, float *logits)
{
    size_t i, j;
    uint32_t child;
    for (i = 0; i < p->n; i++) {
        for (child = t->nodes[p->node[i]].child; child != 0; child = t->nodes[child].sibling) {
            int32_t token = t->nodes[child].token;
            for (j = 0; j < i && lr_child(t, p->node[j], token) == 0; j++) {
            }
            if (j == i) { /* else already raised */
                logits[token] += lr_bonus(t, p, token);
            }
        }
    }
}

/* ======================================================================
 * 15. se_  search and zl_ compressed size of text
 *
 *  Owns      the hypotheses of a window: their tokens, probabilities and
 *            cache slots; loop detection; the choice among phrases; the
 *            size of a text after zlib compression.
 *  Assumes   the window's cross-attention caches are filled.
 *  Ensures   OpenAI's beam search and sampling (whisper/decoding.py), except
 *            that hypotheses are ranked by their text alone: timestamps are
 *            marginalised. A beam of one is greedy search. Ties go to the
 *            better parent, then to the lower token. A sample depends only
 *            on seed, hypothesis and position.
 *  Costs     one decoder step per token for all hypotheses together; a fork
 *            copies only the positions that two slots do not share.
 * ====================================================================== */
#define SE_MAX_TOKENS 224u /* half of the text context, OpenAI's sample_len */
#define SE_MAX_WIDTH DE_LOGITS
#define SE_MAX_LOGIT 1e3f /* ten times a model's largest logit; floats up to here resolve 1e-4 */

typedef struct se_hypothesis {
    int32_t tokens[SE_MAX_TOKENS];      /* timestamps included, no end of text */
    float probability[SE_MAX_TOKENS];   /* after the rules; 1 for tokens of the prefix */
    size_t n, n_given;                  /* all tokens; those of the prefix, which were not chosen */
    float sum_logprob;                  /* of the chosen tokens, including end of text */
    float first_logprob;                /* of the first chosen token that is no timestamp */
    int begun;                          /* first_logprob is set */
    float bonus;                        /* for ranking only: of hotwords, and of all timestamps that
                                           could replace the chosen ones */
    float no_speech;                    /* probability at the start-of-transcript position */
    int32_t least_end;                  /* after a timestamp below this one the text may not end */
    int ended;                          /* with end of text */
    size_t loop;                        /* number of tokens before a loop, 0: no loop */
    int confirmed;                      /* 1: the audio confirms repetition before the loop */
    uint32_t loop_at;                   /* encoder position where the loop begins, 0: unknown */
    size_t judge_at;                    /* text tokens at which repetition is judged again */
    unsigned char again[SE_MAX_TOKENS]; /* 1: a repetition that the audio confirms */
    uint32_t slot;                      /* of its KV caches */
    uint32_t id;                        /* index among the samples */
} se_hypothesis;

static float se_mean_logprob(const se_hypothesis *h)
{
    return h->sum_logprob / (float)(h->n - h->n_given + 1); /* end of text counts, as in OpenAI's */
}

/* Log of the sum of exp over all logits; *best gets the index of their maximum. */
static float se_log_sum(const op_kernels *op, const float *logits, size_t n, size_t *best)
{
    *best = op->argmax(logits, n);
    return logits[*best] + mt_log1(op->sum_exp(logits, n, logits[*best]));
}

/* Feeds prompt tokens from..n-1 into a slot and returns the logits of the last one, a row of
 * d->logits. If from <= first < n - 1, *no_speech gets the probability of no_speech at position
 * first. With ahead = 1, a draft token stands at tokens[n] and is fed as well; its logits are in
 * the next row, so it must fall into the last step. */
static float *se_feed_from(de_decoder *d, size_t slot, const int32_t *tokens, size_t from, size_t n,
                           size_t ahead, size_t first, float *no_speech)
{
    const wnpu_model *m = d->e->model;
    size_t done, end = n + ahead, stride = de_logits_stride(m), wanted = 0, best;
    for (done = from; done < end; done += DE_ROWS) {
        de_row row[DE_ROWS];
        size_t i, rows = end - done < DE_ROWS ? end - done : DE_ROWS;
        wanted = 0;
        for (i = 0; i < rows; i++) {
            size_t at = done + i;
            row[i].token = tokens[at];
            row[i].position = (uint32_t)at;
            row[i].slot = (uint32_t)slot;
            row[i].window = (uint32_t)d->window;
            row[i].want = (at == first && no_speech != NULL) || at + 1 >= n;
            wanted += (size_t)row[i].want;
        }
        de_step(d, row, rows);
        if (no_speech != NULL && first >= done && first < done + rows) {
            float total = se_log_sum(d->e->op, d->logits, (size_t)m->vocab.n_vocab, &best);
            *no_speech = mt_exp1(d->logits[m->vocab.no_speech] - total);
        }
    }
    return d->logits + (wanted - 1 - ahead) * stride;
}

static float *se_feed(de_decoder *d, const int32_t *tokens, size_t n, size_t first,
                      float *no_speech)
{
    return se_feed_from(d, 0, tokens, 0, n, 0, first, no_speech);
}

/* Probabilities of the model's languages and of <|nospeech|>, from the window's caches. */
static void se_languages(de_decoder *d, float *probability /* [n_languages] */, float *no_speech)
{
    const tk_vocab *v = &d->e->model->vocab;
    size_t n = (size_t)v->n_languages, best, i;
    float *logits = se_feed(d, &v->sot, 1, 0, no_speech) + v->language0, total;
    total = se_log_sum(d->e->op, logits, n, &best);
    for (i = 0; i < n; i++) {
        probability[i] = mt_exp1(logits[i] - total);
    }
}

/* ---- random numbers ----
 * SplitMix64 (Steele, Lea and Flood, 2014) as a counter-based generator: a draw does not depend on
 * the number of draws before it. */
static uint64_t se_mix(uint64_t seed, uint64_t counter)
{
    uint64_t z = seed + (counter + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 0 <= u < 1 in steps of 2^-24. */
static float se_uniform(uint64_t seed, uint32_t id, size_t position)
{
    return (float)(se_mix(se_mix(seed, id), position) >> 40) * (1.0f / 16777216.0f);
}

/* Samples a token: inverse of the cumulative sum of exp(logits) at u, skipping whole blocks by
 * their sums. The logits are already divided by the temperature. */
#define SE_BLOCK 256u

static size_t se_draw(const op_kernels *op, const float *logits, size_t n, float u)
{
    float maximum = logits[op->argmax(logits, n)], total = 0.0f, sum = 0.0f;
    size_t at, i, last = 0;
    for (at = 0; at < n; at += SE_BLOCK) {
        total += op->sum_exp(logits + at, n - at < SE_BLOCK ? n - at : SE_BLOCK, maximum);
    }
    for (at = 0; at < n; at += SE_BLOCK) {
        size_t size = n - at < SE_BLOCK ? n - at : SE_BLOCK;
        float block = op->sum_exp(logits + at, size, maximum), inside = 0.0f;
        if (sum + block <= u * total) {
            sum += block;
            continue;
        }
        for (i = at; i < at + size; i++) {
            float share = mt_exp1(logits[i] - maximum);
            last = share > 0.0f ? i : last;
            inside += share;
            if (share > 0.0f && sum + inside > u * total) {
                return i;
            }
        }
        sum += block; /* block sum and element sums are rounded differently */
    }
    return mt_exp1(logits[last] - maximum) > 0.0f ? last : op->argmax(logits, n);
}

/* ---- loops ----
 * A typical failure of Whisper is endless repetition of the same words. A period of p text tokens
 * (timestamps are ignored) is a suspected loop at its fourth occurrence, or at the third if it is
 * long, if all together have at least 16 tokens. Speech can repeat itself too, so the text alone
 * does not decide: se_judge compares each occurrence with the audio. */
#define SE_MAX_PERIOD 32u /* longest period that is detected */
#define SE_LONG_PERIOD 8u
#define SE_LOOP_TOKENS 16u
#define SE_MIN_CONFIRMED 3u /* fewer occurrences than this may be confirmed by chance */
#define SE_HISTORY (SE_MAX_TOKENS + 4u * SE_MAX_PERIOD) /* text tokens searched for a period */

/* Consecutive ranges of a hypothesis: part i has the tokens begin[i]..begin[i + 1] - 1. */
typedef struct se_parts {
    uint32_t begin[SE_MAX_TOKENS + 1];
    size_t n;
    uint32_t at;            /* set by the judge: encoder position of the first part that the audio
                               does not confirm, 0: unknown */
} se_parts;

/* Callback: returns how many of the parts, from the first on, the audio confirms. May overwrite the
 * slot's caches and the decoder's logits. window: index of se_run_windows(), or SE_ALONE. */
#define SE_ALONE SIZE_MAX

typedef struct se_judge {
    size_t (*function)(void *user, const int32_t *tokens, se_parts *parts, size_t slot,
                       size_t window);
    void *user;
} se_judge;

/* Period of a repetition at the end of a text, or 0. latest[0] is its last token. */
static size_t se_period(const int32_t *latest, size_t n)
{
    size_t p, same;
    for (p = 1; p <= SE_MAX_PERIOD && 3 * p <= n; p++) {
        size_t need = p >= SE_LONG_PERIOD ? 2 * p : 3 * p;
        need = need + p < SE_LOOP_TOKENS ? SE_LOOP_TOKENS - p : need;
        for (same = 0; same + p < n && latest[same] == latest[same + p]; same++) {
        }
        if (same >= need) {
            return p;
        }
    }
    return 0;
}

/* Number of text tokens of a hypothesis. */
static size_t se_length(const se_hypothesis *h, const tk_vocab *v)
{
    size_t i, n = 0;
    for (i = 0; i < h->n; i++) {
        n += h->tokens[i] < v->eot;
    }
    return n;
}

/* Finds a repetition at the end of the hypothesis, continued into the text before it. Returns its
 * period, or 0. parts: the complete occurrences in the hypothesis; *begun: the first occurrence is
 * in the text before. */
static size_t se_find_repetition(const se_hypothesis *h, const tk_vocab *v, const int32_t *before,
                                 size_t n_before, se_parts *parts, int *begun)
{
    int32_t latest[SE_HISTORY];
    uint32_t where[SE_MAX_TOKENS];
    size_t n = 0, inside, i, p, same, run;
    for (i = h->n; i > 0; i--) {
        if (h->tokens[i - 1] < v->eot) {
            where[n] = (uint32_t)i - 1;
            latest[n++] = h->tokens[i - 1];
        }
    }
    inside = n;
    for (i = n_before; i > 0 && n < SE_HISTORY; i--) {
        if (before[i - 1] < v->eot) {
            latest[n++] = before[i - 1];
        }
    }
    p = se_period(latest, n);
    parts->n = 0;
    if (p == 0) {
        return 0;
    }
    for (same = 0; same + p < n && latest[same] == latest[same + p]; same++) {
    }
    run = same + p;
    *begun = run > inside;
    for (i = *begun ? (run - inside + p - 1) / p * p : 0; i + p <= run; i += p) {
        parts->begin[parts->n++] = where[run - 1 - i];
    }
    parts->begin[parts->n] = (uint32_t)(i < run ? where[run - 1 - i] : h->n);
    return p;
}

/* Length to which a hypothesis is cut to keep its first `keep` parts: to their last text token. */
static size_t se_cut_length(const se_hypothesis *h, const tk_vocab *v, const se_parts *parts,
                            size_t keep)
{
    size_t n = keep > 0 ? parts->begin[keep] : 0;
    while (n > 0 && h->tokens[n - 1] >= v->eot) {
        n--;
    }
    return n > 1 ? n : 1;
}

/* ---- search ---- */

typedef struct se_options {
    float temperature;      /* 0: beam search; above: sampling */
    size_t width;           /* number of hypotheses, 1..SE_MAX_WIDTH */
    float patience, length_penalty;
    int length_rule;        /* wnpu_length_rule */
    size_t max_tokens;      /* in the window, 1..SE_MAX_TOKENS */
    int stop_loops;
    uint64_t seed;          /* of this decoding */
} se_options;

typedef struct se_prompt {
    const int32_t *tokens;  /* [n] */
    size_t n, sot;          /* length, and index of <|startoftranscript|> */
    size_t n_given;         /* number of last tokens that begin every hypothesis */
    const int32_t *before;  /* [n_before] text before the window, for loop detection */
    size_t n_before;
} se_prompt;

/* A hypothesis extended by one token. */
typedef struct se_candidate {
    float score, bonus;     /* of the extended hypothesis */
    float logprob;          /* of the token */
    int32_t token;
} se_candidate;

/* See wnpu_params.on_logits. */
typedef struct se_filter {
    void (*function)(void *user, const int32_t *tokens, size_t n_tokens, float *logits,
                     size_t n_vocab);
    void *user;
} se_filter;

typedef struct se_search {
    de_decoder *decoder;
    const lr_rules *rules;
    const int *cancel;
    se_filter filter;
    se_judge judge;               /* function NULL: every repetition is a loop */
    size_t slots;
    se_hypothesis *live, *next;   /* [slots] */
    se_hypothesis *best;          /* best that ended */
    se_candidate *candidate;      /* [slots][slots + 1] best first */
    size_t *n_candidates;         /* [slots] */
    uint32_t *shared;             /* [slots][slots] leading positions that two slots share */
    int32_t *fed;                 /* [n_text_ctx] tokens in slot 0 */
    size_t n_fed, fed_sot;
    float fed_no_speech;
    uint32_t steps;               /* steps of the run, including skipped ones, without prompts */
    uint32_t prompt_tokens;       /* positions fed as prompts */
    int32_t least_end;            /* se_hypothesis.least_end in se_run() */
    /* the current decoding */
    const se_options *o;
    const se_prompt *p;
    size_t n_live, n_ended;
    size_t needed;                /* number of endings that complete a beam search */
    int has_best;
    float best_score;
    float *logits;                /* a row for each live hypothesis */
    int32_t draft;                /* fed after the latest token; its logits are the next row */
} se_search;

/* Invalidates what is known about the slots; used when the window changes. */
static void se_invalidate(se_search *s)
{
    memset(s->shared, 0, s->slots * s->slots * sizeof *s->shared);
    s->n_fed = 0;
}

/* x^p for x > 0. */
static float se_power(float x, float p)
{
    return p == 0.0f ? 1.0f : p == 1.0f ? x : mt_exp1(p * mt_log1(x));
}

/* Score of a hypothesis that ended. WNPU_LENGTH_POWER: as CTranslate2; with exponent 1 OpenAI's
 * default. WNPU_LENGTH_RATIO: OpenAI's rule with a length penalty (Wu et al., 2016). The length is
 * that of the text: end of text and timestamps count neither here nor in the log-probability. */
static float se_score(const se_options *o, const se_hypothesis *h, int32_t eot)
{
    size_t i, n = 0;
    float length, base;
    for (i = h->n_given; i < h->n; i++) {
        n += h->tokens[i] < eot;
    }
    length = n > 0 ? (float)n : 1.0f;
    base = o->length_rule == WNPU_LENGTH_RATIO ? (5.0f + length) / 6.0f : length;
    return (h->sum_logprob + h->bonus) / se_power(base, o->length_penalty);
}

/* Makes h the result if it is better than the current one; a loop is worse than anything else. */
static void se_consider(se_search *s, const se_hypothesis *h)
{
    float score = se_score(s->o, h, s->rules->vocab->eot);
    int loop = h->loop > 0, best_loop = s->has_best && s->best->loop > 0;
    if (!s->has_best || loop < best_loop || (loop == best_loop && score > s->best_score)) {
        *s->best = *h;
        s->best_score = score;
        s->has_best = 1;
    }
}

/* Number of positions of slot 0 that can be reused for tokens. The last token is always fed again,
 * for its logits. */
static size_t se_reusable(const se_search *s, const int32_t *tokens, size_t n)
{
    size_t kept = 0;
    while (kept < s->n_fed && kept + 1 < n && s->fed[kept] == tokens[kept]) {
        kept++;
    }
    return kept;
}

/* Draft token: what nearly always follows if timestamps are on. A window begins at 0.00, and a
 * segment where the previous one ended. A step with the draft takes 1.06 times as long and saves
 * the next one; a wrong draft has no effect. Only for a single hypothesis; -1: no draft. */
static int32_t se_draft(const se_search *s, const int32_t *tokens, size_t n)
{
    int32_t first = s->rules->vocab->timestamp0;
    if (!s->rules->timestamps || s->o->width > 1) {
        return -1;
    }
    return n == 0 ? first
         : n > 1 && tokens[n - 1] >= first && tokens[n - 2] < first ? tokens[n - 1] : -1;
}

/* Brings tokens into slot 0 from position 0 on, followed by a draft token if it is not -1 and fits;
 * returns the logits of the last token. The probability of no speech is read at index sot. */
static float *se_prefill(se_search *s, const int32_t *tokens, size_t n, size_t sot, int32_t draft)
{
    size_t kept = se_reusable(s, tokens, n), ahead, i;
    float *logits;
    if (kept > sot && s->fed_sot != sot) {
        kept = sot;
    }
    ahead = draft >= 0 && (n - kept) % DE_ROWS != 0 && n < s->decoder->e->model->n_text_ctx;
    memcpy(s->fed, tokens, n * sizeof(int32_t));
    if (ahead) {
        s->fed[n] = draft;
    }
    s->draft = ahead ? draft : -1;
    logits = se_feed_from(s->decoder, 0, s->fed, kept, n, ahead, sot,
                          kept <= sot ? &s->fed_no_speech : NULL);
    s->prompt_tokens += (uint32_t)(n - kept);
    for (i = 1; i < s->slots; i++) {
        if (s->shared[i] > kept) {
            s->shared[i] = s->shared[i * s->slots] = (uint32_t)kept;
        }
    }
    s->n_fed = n;
    s->fed_sot = sot;
    return logits;
}

/* Endings that complete a beam search: OpenAI's round(beam_size * patience). */
static size_t se_needed_endings(const se_options *o)
{
    float most = (float)o->width * o->patience + 0.5f;
    return most < 1.0f ? 1 : (size_t)most;
}

static void se_begin(se_search *s, const se_prompt *p, const se_options *o)
{
    se_hypothesis *h = &s->live[0];
    size_t i;
    s->needed = se_needed_endings(o);
    s->o = o;
    s->p = p;
    s->n_ended = 0;
    s->has_best = 0;
    s->logits = se_prefill(s, p->tokens, p->n, p->sot,
                           se_draft(s, p->tokens + p->n - p->n_given, p->n_given));
    memset(h, 0, sizeof *h);
    h->no_speech = s->fed_no_speech;
    h->least_end = s->least_end;
    h->n = h->n_given = p->n_given;
    memcpy(h->tokens, p->tokens + p->n - p->n_given, p->n_given * sizeof(int32_t));
    for (i = 0; i < p->n_given; i++) {
        h->probability[i] = 1.0f;
    }
    s->n_live = 1;
}

static float *se_row(const se_search *s, size_t index)
{
    return s->logits + index * de_logits_stride(s->decoder->e->model);
}

static se_candidate *se_candidates(const se_search *s, size_t index)
{
    return &s->candidate[index * (s->slots + 1)];
}

/* Log of the sum of exp over all timestamps. With only_best all but the most probable one are then
 * forbidden: otherwise hypotheses that differ only in their timestamps would fill the beam. */
static float se_sum_timestamps(const lr_rules *r, float *logits, int only_best)
{
    size_t t0 = (size_t)r->vocab->timestamp0, n = (size_t)r->vocab->n_vocab - t0, best;
    float sum = se_log_sum(r->op, logits + t0, n, &best), highest = logits[t0 + best];
    if (only_best) {
        lr_forbid(logits, (int32_t)t0, (int32_t)(t0 + n));
        logits[t0 + best] = highest;
    }
    return sum;
}

/* The `want` best tokens of a row whose best is known, in descending order, equal ones by ascending
 * token; logprob gets the logit. near: scratch for DE_LOW_MAX tokens. */
static size_t se_best_tokens(const op_kernels *op, const float *logits, size_t vocab, size_t best,
                             size_t want, uint32_t *near, se_candidate *c)
{
    size_t n = 0, i, at, count = 0;
    float margin, least = LR_FORBIDDEN;
    if (want == 1) {
        c->logprob = logits[best];
        c->token = (int32_t)best;
        return 1;
    }
    for (margin = 4.0f; margin < 1e4f && count < want; margin *= 4.0f) {
        count = op->above(near, DE_LOW_MAX, logits, 0, vocab, logits[best] - margin);
    }
    for (i = 0; i < (count <= DE_LOW_MAX ? count : vocab); i++) {
        size_t token = count <= DE_LOW_MAX ? near[i] : i;
        if (logits[token] > least) {
            n += n < want;
            for (at = n - 1; at > 0 && c[at - 1].logprob < logits[token]; at--) {
                c[at] = c[at - 1];
            }
            c[at].logprob = logits[token];
            c[at].token = (int32_t)token;
            least = n == want ? c[want - 1].logprob : LR_FORBIDDEN;
        }
    }
    return n;
}

/* Samples from a row, which is scaled in place. The first step draws once per hypothesis. */
static size_t se_sample(const se_search *s, const se_hypothesis *h, float *logits, size_t vocab,
                        se_candidate *c)
{
    const op_kernels *op = s->decoder->e->op;
    size_t first = h->n == h->n_given, n = first ? s->o->width : 1, i;
    op->scale(logits, en_round16(vocab), 1.0f / s->o->temperature);
    for (i = 0; i < n; i++) {
        float u = se_uniform(s->o->seed, first ? (uint32_t)i : h->id, h->n);
        size_t token = se_draw(op, logits, vocab, u);
        c[i].token = (int32_t)token;
        c[i].logprob = logits[token] * s->o->temperature;
    }
    return n;
}

/* Applies the rules, and forbids end of text before h->least_end. */
static void se_apply(const se_search *s, const se_hypothesis *h, float *logits)
{
    const tk_vocab *v = s->rules->vocab;
    lr_apply(s->rules, logits, h->tokens, h->n);
    if (h->n > 1 && h->tokens[h->n - 1] >= v->timestamp0 && h->tokens[h->n - 1] < h->least_end) {
        logits[v->eot] = LR_FORBIDDEN;
    }
}

/* Applies the rules to the logits of a live hypothesis and ranks its candidates. */
static void se_rank(se_search *s, size_t index, float *logits)
{
    const lr_rules *r = s->rules;
    const se_hypothesis *h = &s->live[index];
    se_candidate *c = se_candidates(s, index);
    size_t vocab = (size_t)r->vocab->n_vocab, best, i, n, want;
    float total, times = 0.0f;
    int rivals = s->o->width > 1 || s->needed > 1; /* else its score is never compared */
    lr_paths paths;
    if (s->filter.function == NULL) { /* else se_filter_rows() has applied them */
        se_apply(s, h, logits);
    }
    total = se_log_sum(r->op, logits, vocab, &best);
    if (!(logits[best] > LR_FORBIDDEN)) {
        return; /* nothing is allowed */
    }
    /* Greedy search needs one candidate: if that is end of text, it ends. */
    want = rivals ? s->o->width + 1 : 1;
    if (rivals) {
        times = se_sum_timestamps(r, logits, s->o->temperature <= 0.0f);
    }
    lr_find_paths(r, h->tokens, h->n, &paths);
    lr_boost(&r->trie, &paths, logits);
    if (paths.n > 0) { /* else unchanged: the best timestamp was not forbidden */
        best = r->op->argmax(logits, vocab);
    }
    n = s->o->temperature > 0.0f ? se_sample(s, h, logits, vocab, c)
        : se_best_tokens(r->op, logits, vocab, best, want,
                         s->decoder->candidates + index * DE_LOW_MAX, c);
    for (i = 0; i < n; i++) {
        float bonus = lr_bonus(&r->trie, &paths, c[i].token);
        int timed = rivals && c[i].token >= r->vocab->timestamp0;
        float other = timed ? times - c[i].logprob : 0.0f;
        c[i].logprob -= bonus + total;
        c[i].bonus = h->bonus + bonus - paths.provisional + other;
        c[i].score = h->sum_logprob + c[i].logprob + c[i].bonus;
    }
    s->n_candidates[index] = n;
}

static void se_rank_task(void *context, size_t index, unsigned worker)
{
    (void)worker;
    se_rank(context, index, se_row(context, index));
}

/* Makes the logits of a user's callback safe for the search: NaN, +infinity and tokens without
 * meaning become forbidden; if the maximum is too large, all are shifted, which leaves the
 * probabilities unchanged. */
static void se_sanitise(const se_search *s, float *logits, size_t vocab)
{
    const tk_vocab *v = s->rules->vocab;
    float maximum = LR_FORBIDDEN;
    size_t j;
    lr_forbid(logits, v->eot + v->n_special, v->n_vocab);
    for (j = 0; j < vocab; j++) {
        logits[j] = logits[j] < INFINITY ? logits[j] : LR_FORBIDDEN; /* false for NaN, too */
        maximum = logits[j] > maximum ? logits[j] : maximum;
    }
    if (maximum > LR_FORBIDDEN && fabsf(maximum) > SE_MAX_LOGIT) {
        for (j = 0; j < vocab; j++) {
            logits[j] -= maximum;
        }
    }
}

/* Calls the user's callback for each row, in the thread of the run. */
static void se_filter_rows(se_search *s)
{
    size_t i, vocab = (size_t)s->rules->vocab->n_vocab;
    for (i = 0; i < s->n_live; i++) {
        const se_hypothesis *h = &s->live[i];
        float *logits = se_row(s, i);
        se_apply(s, h, logits);
        s->filter.function(s->filter.user, h->tokens, h->n, logits, vocab);
        (void)er_float_default();
        se_sanitise(s, logits, vocab);
    }
}

static void se_extend(se_hypothesis *to, const se_hypothesis *from, const se_candidate *c,
                      int32_t eot)
{
    *to = *from;
    to->sum_logprob += c->logprob;
    to->bonus = c->bonus;
    if (!to->begun && c->token <= eot) {
        to->first_logprob = c->logprob;
        to->begun = 1;
    }
    if (c->token == eot) {
        to->ended = 1;
        return;
    }
    to->tokens[to->n] = c->token;
    to->probability[to->n] = c->logprob < 0.0f ? mt_exp1(c->logprob) : 1.0f; /* rounding */
    to->n++;
}

/* Feeds the prompt and all but the latest token of a hypothesis into its slot again. */
static void se_restore(se_search *s, const se_hypothesis *h)
{
    size_t n = h->n - h->n_given - 1;
    memcpy(s->fed, s->p->tokens, s->p->n * sizeof(int32_t));
    memcpy(s->fed + s->p->n, h->tokens + h->n_given, n * sizeof(int32_t));
    (void)se_feed_from(s->decoder, h->slot, s->fed, 0, s->p->n + n, 0, 0, NULL);
}

/* Marks the tokens of the second to the last part that the audio confirms. */
static void se_mark_confirmed(se_hypothesis *h, const se_parts *parts, size_t supported)
{
    size_t i;
    for (i = parts->begin[1]; supported > 1 && i < parts->begin[supported]; i++) {
        h->again[i] = 1;
    }
}

/* 1 if the hypothesis, whose caches hold all but its latest token, ends in a loop: a repetition
 * that the audio does not confirm. h->loop is then the length to cut it to, which keeps the
 * confirmed occurrences, and at least one unless the repetition began before the window. */
static int se_ends_in_loop(se_search *s, se_hypothesis *h, const int32_t *before, size_t n_before,
                           size_t window)
{
    const tk_vocab *v = s->rules->vocab;
    size_t length, period, keep = 0;
    se_parts parts;
    int begun = 0;
    if (h->tokens[h->n - 1] >= v->eot || h->n <= h->n_given) {
        return 0;
    }
    length = se_length(h, v);
    period = length < h->judge_at ? 0 : se_find_repetition(h, v, before, n_before, &parts, &begun);
    if (period == 0 || parts.n == 0) {
        return 0; /* or no occurrence in the window is complete */
    }
    parts.at = 0;
    if (s->judge.function != NULL) {
        keep = s->judge.function(s->judge.user, h->tokens, &parts, h->slot, window);
        se_restore(s, h);
    }
    if (keep == parts.n) {
        se_mark_confirmed(h, &parts, keep);
        h->judge_at = length + (period > SE_LONG_PERIOD ? period : SE_LONG_PERIOD);
        return 0;
    }
    while (keep < parts.n && h->again[parts.begin[keep]]) { /* confirmed earlier */
        keep++;
    }
    h->confirmed = keep >= SE_MIN_CONFIRMED;
    if (h->confirmed) {
        se_mark_confirmed(h, &parts, keep);
    } else {
        keep = !begun;
    }
    h->loop = se_cut_length(h, v, &parts, keep);
    h->loop_at = parts.at;
    return 1;
}

/* Handles an extended hypothesis that ends or loops; 1 if it stays alive in *to. */
static int se_keep_alive(se_search *s, se_hypothesis *to)
{
    if (to->ended) {
        if (s->n_ended < s->needed || s->o->temperature > 0.0f) {
            se_consider(s, to);
            s->n_ended++;
        }
        return 0;
    }
    if (s->o->stop_loops && se_ends_in_loop(s, to, s->p->before, s->p->n_before, SE_ALONE)) {
        se_consider(s, to); /* used if nothing else is found */
        return 0;
    }
    return 1;
}

/* Beam search step: the best candidates of all hypotheses, in descending order, until `width` of
 * them stay alive. Those that end before that count as ended. */
static size_t se_expand_beam(se_search *s)
{
    size_t head[SE_MAX_WIDTH] = {0}, n = 0, i;
    while (n < s->o->width) {
        const se_candidate *best = NULL, *c;
        size_t from = 0;
        for (i = 0; i < s->n_live; i++) {
            c = &se_candidates(s, i)[head[i]];
            if (head[i] < s->n_candidates[i] && (best == NULL || c->score > best->score)) {
                best = c;
                from = i;
            }
        }
        if (best == NULL) {
            break;
        }
        head[from]++;
        se_extend(&s->next[n], &s->live[from], best, s->rules->vocab->eot);
        n += (size_t)se_keep_alive(s, &s->next[n]);
    }
    return n;
}

/* Sampling step: every hypothesis is extended by its own sample. */
static size_t se_expand_samples(se_search *s)
{
    size_t n = 0, i, k;
    for (i = 0; i < s->n_live; i++) {
        for (k = 0; k < s->n_candidates[i]; k++) {
            se_extend(&s->next[n], &s->live[i], &se_candidates(s, i)[k], s->rules->vocab->eot);
            s->next[n].id = s->n_candidates[i] > 1 ? (uint32_t)k : s->live[i].id;
            n += (size_t)se_keep_alive(s, &s->next[n]);
        }
    }
    return n;
}

/* Number of positions in the caches of the live hypotheses: all but their latest token. */
static size_t se_cached(const se_search *s)
{
    return s->p->n + s->live[0].n - s->live[0].n_given - 1;
}

static void se_copy(se_search *s, size_t to, size_t from, size_t end)
{
    uint32_t *shared = s->shared;
    size_t n = s->slots, i;
    de_copy(s->decoder, to, from, shared[to * n + from], end);
    for (i = 0; i < n; i++) {
        shared[to * n + i] = shared[i * n + to] = shared[from * n + i];
    }
    shared[to * n + from] = shared[from * n + to] = (uint32_t)end;
}

/* Gives every live hypothesis a slot with its own history: the first child keeps its parent's slot,
 * others get free slots, preferring those that share the most positions. */
static void se_fork(se_search *s)
{
    unsigned char in_use[SE_MAX_WIDTH] = {0}, settled[SE_MAX_WIDTH] = {0};
    size_t i, j, end = se_cached(s);
    for (i = 0; i < s->n_live; i++) {
        settled[i] = !in_use[s->live[i].slot];
        in_use[s->live[i].slot] = 1;
    }
    for (i = 0; i < s->n_live; i++) {
        size_t from = s->live[i].slot, to = s->slots;
        for (j = 0; j < s->slots && !settled[i]; j++) {
            if (!in_use[j] && (to == s->slots || s->shared[j * s->slots + from] >
                                                     s->shared[to * s->slots + from])) {
                to = j;
            }
        }
        if (!settled[i]) {
            se_copy(s, to, from, end);
            s->live[i].slot = (uint32_t)to;
            in_use[to] = 1;
        }
    }
}

/* The decoder row of a live hypothesis whose latest token has not been fed yet. */
static de_row se_next_row(const se_search *s, const se_hypothesis *h, size_t window)
{
    de_row row;
    row.token = h->tokens[h->n - 1];
    row.position = (uint32_t)se_cached(s);
    row.slot = h->slot;
    row.window = (uint32_t)window;
    row.want = 1;
    return row;
}

/* Reports progress; the final number of tokens is unknown. */
static void se_report_progress(const se_search *s, size_t tokens)
{
    en_report(s->decoder->e, EN_ENCODER_SHARE +
              (1.0f - EN_ENCODER_SHARE) * (float)tokens / (float)(tokens + 50));
}

static void se_step(se_search *s)
{
    de_row row[SE_MAX_WIDTH + 1];
    const se_hypothesis *h = &s->live[0];
    const wnpu_model *m = s->decoder->e->model;
    size_t i, position = se_cached(s), n = s->n_live;
    s->steps++;
    if (h->tokens[h->n - 1] == s->draft) {
        s->draft = -1;
        s->logits += de_logits_stride(m);
        return;
    }
    for (i = 0; i < n; i++, h++) {
        row[i] = se_next_row(s, h, s->decoder->window);
    }
    s->draft = position + 1 < m->n_text_ctx ? se_draft(s, s->live->tokens, s->live->n) : -1;
    if (s->draft >= 0) {
        row[n] = row[n - 1];
        row[n].token = s->draft;
        row[n++].position++;
    }
    de_step(s->decoder, row, n);
    s->logits = s->decoder->logits;
}

/* 1 if the search is complete or out of space. All live hypotheses have the same length. */
static int se_done(const se_search *s)
{
    const se_hypothesis *h = &s->live[0];
    return s->n_live == 0 || (s->o->temperature <= 0.0f && s->n_ended >= s->needed) ||
           h->n - h->n_given >= s->o->max_tokens || h->n >= SE_MAX_TOKENS ||
           se_cached(s) + 1 >= s->decoder->e->model->n_text_ctx ||
           __atomic_load_n(s->cancel, __ATOMIC_RELAXED);
}

/* Decodes the window after a prompt and returns the best hypothesis, valid until the next call.
 * Stops between tokens when *cancel is set. */
static const se_hypothesis *se_run(se_search *s, const se_prompt *p, const se_options *o)
{
    size_t i;
    se_begin(s, p, o);
    do {
        se_hypothesis *before = s->live;
        size_t n_before = s->n_live, n;
        if (s->n_live == 0) {
            break;
        }
        if (before[0].n > before[0].n_given) {
            se_fork(s);
            se_step(s);
        }
        if (s->filter.function != NULL) {
            se_filter_rows(s);
        }
        memset(s->n_candidates, 0, n_before * sizeof *s->n_candidates); /* a cancelled pool skips */
        tp_run(s->decoder->e->pool, n_before, se_rank_task, s);
        n = o->temperature > 0.0f ? se_expand_samples(s) : se_expand_beam(s);
        if (n == 0 && !s->has_best) {
            se_consider(s, &before[0]); /* all tokens are forbidden */
        }
        s->live = s->next;
        s->next = before;
        s->n_live = n;
        se_report_progress(s, before[0].n);
    } while (!se_done(s));
    /* Unfinished hypotheses fill the beam, as in OpenAI's finalize(). */
    for (i = 0; i < s->n_live && s->n_ended < o->width; i++) {
        se_consider(s, &s->live[i]);
        s->n_ended++;
    }
    return s->best;
}

/* ---- several windows at once ---- */

/* 1 if se_run_windows() can do it: a single hypothesis, no callback, no prefix. */
static int se_is_greedy(const se_search *s, const se_prompt *p, const se_options *o)
{
    return o->temperature <= 0.0f && o->width == 1 && se_needed_endings(o) == 1 &&
           p->n_given == 0 && p->sot == 0 && s->filter.function == NULL;
}

/* Feeds the prompt into a slot for a window and ranks the candidates. */
static void se_begin_window(se_search *s, size_t slot, size_t window, int32_t least_end)
{
    de_decoder *d = s->decoder;
    se_hypothesis *h = &s->live[slot];
    size_t before = d->window;
    float *logits;
    memset(h, 0, sizeof *h);
    h->slot = (uint32_t)slot;
    h->least_end = least_end;
    d->window = window;
    logits = se_feed_from(d, slot, s->p->tokens, 0, s->p->n, 0, s->p->sot, &h->no_speech);
    d->window = before;
    s->n_candidates[slot] = 0;
    se_rank(s, slot, logits);
}

/* Calls se_ends_in_loop() with the window of a hypothesis. */
static int se_ends_in_loop_in(se_search *s, se_hypothesis *h, size_t window)
{
    size_t before = s->decoder->window;
    int loops;
    s->decoder->window = window;
    loops = se_ends_in_loop(s, h, NULL, 0, h->slot);
    s->decoder->window = before;
    return loops;
}

/* Extends each live hypothesis by its candidate. Those that end or have no candidate are written to
 * found; the others stay live, in order. */
static void se_extend_windows(se_search *s, const size_t *window, se_hypothesis *found)
{
    se_hypothesis *before = s->live, *to;
    size_t n = 0, i;
    for (i = 0; i < s->n_live; i++) {
        to = &s->next[n];
        *to = before[i];
        if (s->n_candidates[i] > 0) {
            se_extend(to, &before[i], se_candidates(s, i), s->rules->vocab->eot);
        }
        if (s->n_candidates[i] == 0 || to->ended ||
            (s->o->stop_loops && se_ends_in_loop_in(s, to, window[to->slot]))) {
            found[to->slot] = *to;
        } else {
            n++;
        }
    }
    s->live = s->next;
    s->next = before;
    s->n_live = n;
}

/* One decoder step for all live hypotheses, and their candidates. */
static void se_step_windows(se_search *s, const size_t *window, uint32_t *steps)
{
    de_row row[SE_MAX_WIDTH];
    size_t i, n = s->n_live;
    memset(row, 0, sizeof row); /* silences gcc, which cannot know that n > 0 */
    for (i = 0; i < n; i++) {
        const se_hypothesis *h = &s->live[i];
        row[i] = se_next_row(s, h, window[h->slot]);
        steps[h->slot]++;
    }
    de_step(s->decoder, row, n);
    s->logits = s->decoder->logits;
    memset(s->n_candidates, 0, n * sizeof *s->n_candidates); /* a cancelled pool skips */
    tp_run(s->decoder->e->pool, n, se_rank_task, s);
}

/* Greedy search in n windows at once: found[i] is what se_run() would find after the same prompt
 * with the caches window[i], steps[i] its number of steps. Stops between tokens when *cancel is
 * set; found is then invalid. */
static void se_run_windows(se_search *s, const se_prompt *p, const se_options *o, size_t n,
                           const size_t *window, const int32_t *least_end, se_hypothesis *found,
                           uint32_t *steps)
{
    size_t i;
    s->o = o;
    s->p = p;
    s->needed = 1;
    s->n_ended = 0;
    s->n_live = n;
    for (i = 0; i < n; i++) {
        steps[i] = 0;
        se_begin_window(s, i, window[i], least_end[i]);
    }
    for (se_extend_windows(s, window, found); !se_done(s);
         se_extend_windows(s, window, found)) {
        se_step_windows(s, window, steps);
        se_report_progress(s, s->live[0].n);
    }
    for (i = 0; i < s->n_live; i++) {
        found[s->live[i].slot] = s->live[i];
    }
    se_invalidate(s); /* s->fed and s->shared do not describe the slots */
}

/* ---- the choice among phrases ---- */

/* The two best phrases of a list; -1 if there are fewer. */
typedef struct se_choice {
    int32_t phrase[2];
    float logprob[2];       /* log-probability of exactly this phrase and its end */
    uint32_t node;          /* last node of the best one */
} se_choice;

typedef struct se_choosing {
    se_search *search;
    const lr_trie *trie;
    const unsigned char *ends;  /* [n_vocab] 1: tokens that may follow a complete phrase */
    float *score;               /* [capacity] log-probability of the path to a node */
    unsigned char *state;       /* [capacity] */
    int32_t *path;              /* [n_text_ctx] the prompt, then a path */
    size_t n_prompt, sot;
} se_choosing;

enum { SE_UNSEEN, SE_OPEN, SE_DONE };

/* Records a complete phrase with its log-probability. Of several spellings the best one counts. */
static void se_add_complete(se_choice *c, int32_t phrase, float logprob, uint32_t node)
{
    int k = phrase == c->phrase[0] ? 0 : phrase == c->phrase[1] ? 1 : 2;
    if (k < 2 && logprob <= c->logprob[k]) {
        return;
    }
    if (c->phrase[0] < 0 || logprob > c->logprob[0]) {
        if (k != 0) {
            c->phrase[1] = c->phrase[0];
            c->logprob[1] = c->logprob[0];
        }
        k = 0;
        c->node = node;
    } else if (c->phrase[1] < 0 || logprob > c->logprob[1]) {
        k = 1;
    } else {
        return;
    }
    c->phrase[k] = phrase;
    c->logprob[k] = logprob;
}

/* Opens the children of a node, given the logits after it. */
static void se_open_children(const se_choosing *c, uint32_t node, const float *logits, float total)
{
    uint32_t child;
    float score = node < LR_ROOTS ? 0.0f : c->score[node];
    for (child = c->trie->nodes[node].child; child != 0; child = c->trie->nodes[child].sibling) {
        c->score[child] = score + (logits[c->trie->nodes[child].token] - total);
        c->state[child] = SE_OPEN;
    }
}

/* Feeds the path to a node; returns the logits after it and the log of their sum of exp. */
static const float *se_feed_path(se_choosing *c, uint32_t node, float *total)
{
    size_t n = c->n_prompt + c->trie->nodes[node].depth, i = n, best;
    const float *logits;
    uint32_t at;
    for (at = node; at >= LR_ROOTS; at = c->trie->nodes[at].parent) {
        c->path[--i] = c->trie->nodes[at].token;
    }
    logits = se_prefill(c->search, c->path, n, c->sot, -1);
    *total = se_log_sum(c->search->rules->op, logits, (size_t)c->search->rules->vocab->n_vocab,
                        &best);
    return logits;
}

static float se_end_logprob(const se_choosing *c, const float *logits, float total)
{
    float sum = 0.0f;
    int32_t i;
    for (i = 0; i < c->search->rules->vocab->n_vocab; i++) {
        sum += c->ends[i] ? mt_exp1(logits[i] - total) : 0.0f;
    }
    return sum > 1e-30f ? mt_log1(sum) : -69.0f;
}

/* Finds the two most probable phrases by uniform-cost search: nodes are expanded in the order of
 * their probability, which can only decrease along a path, until no open node can beat the second.
 * The result is exact, and most of a long list is never visited. */
static void se_choose(se_choosing *c, se_choice *choice)
{
    uint32_t node;
    float total;
    const float *logits = se_feed_path(c, LR_ANYWHERE, &total);
    choice->phrase[0] = choice->phrase[1] = -1;
    choice->logprob[0] = choice->logprob[1] = LR_FORBIDDEN;
    choice->node = 0;
    memset(c->state, SE_UNSEEN, c->trie->used);
    for (node = 0; node < LR_ROOTS; node++) {
        se_open_children(c, node, logits, total);
    }
    while (!__atomic_load_n(c->search->cancel, __ATOMIC_RELAXED)) {
        uint32_t best = 0;
        for (node = LR_ROOTS; node < c->trie->used; node++) {
            if (c->state[node] == SE_OPEN && (best == 0 || c->score[node] > c->score[best])) {
                best = node;
            }
        }
        if (best == 0 || choice->logprob[1] >= c->score[best]) {
            return;
        }
        logits = se_feed_path(c, best, &total);
        c->search->steps++;
        c->state[best] = SE_DONE;
        if (c->trie->nodes[best].phrase >= 0) {
            se_add_complete(choice, c->trie->nodes[best].phrase,
                            c->score[best] + se_end_logprob(c, logits, total), best);
        }
        se_open_children(c, best, logits, total);
    }
}

static void se_carve(ar_arena *arena, se_search *s, size_t slots, const wnpu_model *m)
{
    s->slots = slots;
    s->live = ar_carve(arena, slots, sizeof(se_hypothesis));
    s->next = ar_carve(arena, slots, sizeof(se_hypothesis));
    s->best = ar_carve(arena, 1, sizeof(se_hypothesis));
    s->candidate = ar_carve(arena, slots * (slots + 1), sizeof(se_candidate));
    s->n_candidates = ar_carve(arena, slots, sizeof(size_t));
    s->shared = ar_carve(arena, slots * slots, sizeof(uint32_t));
    s->fed = ar_carve(arena, m->n_text_ctx, sizeof(int32_t));
}

static void se_wipe(se_search *s, size_t n_text_ctx)
{
    ar_wipe(s->live, s->slots * sizeof *s->live);
    ar_wipe(s->next, s->slots * sizeof *s->next);
    ar_wipe(s->best, sizeof *s->best);
    ar_wipe(s->candidate, s->slots * (s->slots + 1) * sizeof *s->candidate);
    ar_wipe(s->fed, n_text_ctx * sizeof *s->fed);
    se_invalidate(s);
}

/* ---- compressed size of text ----
 * The size of a text after zlib's compress() at the default level 6, as used for OpenAI's
 * compression ratio. Only the size is computed: matches are found by deflate's lazy matching (RFC
 * 1951, and the published limits of zlib's level 6), their symbols are counted, and the smallest of
 * a stored, a fixed and a dynamic block is used. */
#define ZL_MAX 16384u        /* most bytes of text */
#define ZL_HASH 4096u
#define ZL_LITERALS 286u
#define ZL_DISTANCES 30u
#define ZL_MAX_LAZY 16u      /* from this match length on no lazy search */
#define ZL_GOOD_LENGTH 8u    /* from this length on the next search uses a quarter of the chain */
#define ZL_NICE_LENGTH 128u  /* a match of this length ends the search */
#define ZL_MAX_CHAIN 128u    /* most positions that a search visits */
#define ZL_MAX_FAR 4096u     /* largest distance of matches of 3 bytes */

typedef struct zl_work {
    uint16_t head[ZL_HASH];  /* latest position with a hash, 0: none (position 0 is never found, as
                                in zlib) */
    uint16_t before[ZL_MAX]; /* previous position with the same hash */
    uint32_t literal[ZL_LITERALS], distance[ZL_DISTANCES]; /* symbol counts */
    size_t extra;            /* extra bits of lengths and distances */
    const unsigned char *text;
    size_t n;
} zl_work;

static uint32_t zl_hash(const unsigned char *p)
{
    return ((uint32_t)p[0] * 506832829u ^ (uint32_t)p[1] * 2654435761u ^
            (uint32_t)p[2] * 2246822519u) >> 20;
}

/* Inserts position `at` into the hash chains and returns the previous one with its hash. */
static size_t zl_insert(zl_work *w, size_t at)
{
    uint32_t h;
    if (at + 3 > w->n) {
        return 0;
    }
    h = zl_hash(w->text + at);
    w->before[at] = w->head[h];
    w->head[h] = (uint16_t)at;
    return w->before[at];
}

/* Longest match of the text at `at`, if longer than best: its length and *where; else best. */
static size_t zl_match(const zl_work *w, size_t at, size_t from, size_t best, size_t *where)
{
    size_t chain = best >= ZL_GOOD_LENGTH ? ZL_MAX_CHAIN / 4 : ZL_MAX_CHAIN, left = w->n - at;
    size_t nice = left < ZL_NICE_LENGTH ? left : ZL_NICE_LENGTH, longest = left < 258 ? left : 258;
    const unsigned char *p = w->text;
    for (; from > 0 && chain > 0; from = w->before[from]) {
        size_t same = 0;
        while (same < longest && p[from + same] == p[at + same]) {
            same++;
        }
        chain -= same >= 3; /* shorter ones are collisions that zlib's hash does not have */
        if (same > best) {
            best = same;
            *where = from;
            if (same >= nice) {
                break;
            }
        }
    }
    return best;
}

/* Code of a length or distance (RFC 1951, 3.2.5): codes come in groups of `each` with the same
 * number of extra bits. */
static uint32_t zl_code(size_t value, uint32_t each, uint32_t *extra)
{
    uint32_t code = 0;
    size_t first = 0;
    for (;;) {
        *extra = code < 2 * each ? 0 : code / each - 1;
        if (value < first + ((size_t)1 << *extra)) {
            return code;
        }
        first += (size_t)1 << *extra;
        code++;
    }
}

static void zl_count_match(zl_work *w, size_t length, size_t distance)
{
    uint32_t extra;
    if (length == 258) {
        w->literal[285]++;
    } else {
        w->literal[257 + zl_code(length - 3, 4, &extra)]++;
        w->extra += extra;
    }
    w->distance[zl_code(distance - 1, 2, &extra)]++;
    w->extra += extra;
}

/* Deflate's lazy matching: a match is emitted only if the next byte does not begin a longer one. */
static void zl_parse(zl_work *w)
{
    size_t at = 0, length = 2, where = 0, pending = 0;
    while (at < w->n) {
        size_t from = zl_insert(w, at), before = length, old = where;
        length = 2;
        if (from > 0 && before < ZL_MAX_LAZY) {
            length = zl_match(w, at, from, before, &where);
            length = length == 3 && at - where > ZL_MAX_FAR ? 2 : length;
        }
        if (before >= 3 && length <= before) {
            size_t end = at - 1 + before;
            zl_count_match(w, before, at - 1 - old);
            while (++at < end) {
                zl_insert(w, at);
            }
            pending = 0;
            length = 2;
            continue;
        }
        if (pending) {
            w->literal[w->text[at - 1]]++;
        }
        pending = 1;
        at++;
    }
    if (pending) {
        w->literal[w->text[w->n - 1]]++;
    }
    w->literal[256]++;
}

/* Removes and returns the smallest non-zero weight, the first of equal ones. */
static uint32_t zl_remove_smallest(uint32_t *weight, size_t n, size_t *where)
{
    uint32_t least = UINT32_MAX;
    size_t i;
    for (i = 0; i < n; i++) {
        if (weight[i] > 0 && weight[i] < least) {
            least = weight[i];
            *where = i;
        }
    }
    weight[*where] = 0;
    return least;
}

/* Limits code lengths and lengthens other codes until the code is valid again (Kraft sum <= 1). */
static void zl_limit(uint8_t *bits, size_t n, unsigned limit)
{
    uint32_t room = 0, full = (uint32_t)1 << limit;
    size_t i;
    for (i = 0; i < n; i++) {
        bits[i] = bits[i] > limit ? (uint8_t)limit : bits[i];
        room += bits[i] > 0 ? full >> bits[i] : 0;
    }
    while (room > full) {
        size_t longest = n;
        for (i = 0; i < n; i++) {
            if (bits[i] > 0 && bits[i] < limit && (longest == n || bits[i] > bits[longest])) {
                longest = i;
            }
        }
        bits[longest]++;
        room -= full >> bits[longest];
    }
}

/* Lengths of a Huffman code of at most limit bits, 0 for unused symbols. There are at least two
 * codes, as in zlib. Returns the number of symbols up to the last used one. */
static size_t zl_huffman(const uint32_t *count, size_t n, unsigned limit, uint8_t *bits)
{
    uint32_t weight[2 * ZL_LITERALS];
    uint16_t parent[2 * ZL_LITERALS], depth[2 * ZL_LITERALS];
    size_t i, used = 0, nodes = n, end = 0;
    for (i = 0; i < n; i++) {
        weight[i] = count[i];
        used += count[i] > 0;
        end = count[i] > 0 ? i + 1 : end;
    }
    for (; used < 2; used++) {
        weight[end < 3 ? end++ : 0] = 1;
    }
    memset(parent, 0, sizeof parent);
    for (; used > 1; used--, nodes++) {
        size_t a = 0, b = 0;
        uint32_t sum = zl_remove_smallest(weight, nodes, &a) +
                       zl_remove_smallest(weight, nodes, &b);
        weight[nodes] = sum;
        parent[a] = parent[b] = (uint16_t)nodes;
    }
    depth[nodes - 1] = 0;
    for (i = nodes - 1; i-- > 0;) {
        depth[i] = parent[i] > 0 ? (uint16_t)(depth[parent[i]] + 1) : 0;
    }
    for (i = 0; i < n; i++) {
        bits[i] = (uint8_t)(depth[i] < 255 ? depth[i] : 255);
    }
    zl_limit(bits, n, limit);
    return end;
}

/* Counts the run-length symbols that encode the code lengths; returns their extra bits. */
static size_t zl_count_runs(const uint8_t *bits, size_t n, uint32_t *count)
{
    size_t i, run, extra = 0;
    for (i = 0; i < n; i += run) {
        size_t left;
        for (run = 1; i + run < n && bits[i + run] == bits[i]; run++) {
        }
        left = run;
        if (bits[i] > 0) {
            count[bits[i]]++;
            left--;
        }
        while (left >= 3) {
            size_t most = bits[i] > 0 ? 6 : 138, part = left < most ? left : most;
            count[bits[i] > 0 ? 16 : part <= 10 ? 17 : 18]++;
            extra += bits[i] > 0 ? 2u : part <= 10 ? 3u : 7u;
            left -= part;
        }
        count[bits[i]] += (uint32_t)left;
    }
    return extra;
}

/* Bits of a dynamic block without the extra bits of its matches. */
static size_t zl_dynamic(const zl_work *w)
{
    static const uint8_t order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1,
                                      15};
    uint8_t literal[ZL_LITERALS], distance[ZL_DISTANCES], code[19];
    uint32_t count[19] = {0};
    size_t literals = zl_huffman(w->literal, ZL_LITERALS, 15, literal), i, sent = 4;
    size_t distances = zl_huffman(w->distance, ZL_DISTANCES, 15, distance);
    size_t total = 14 + zl_count_runs(literal, literals, count) +
                   zl_count_runs(distance, distances, count);
    zl_huffman(count, 19, 7, code);
    for (i = 0; i < 19; i++) {
        total += (size_t)count[i] * code[i];
        sent = code[order[i]] > 0 && i >= sent ? i + 1 : sent;
    }
    for (i = 0; i < ZL_LITERALS; i++) {
        total += (size_t)w->literal[i] * literal[i];
    }
    for (i = 0; i < ZL_DISTANCES; i++) {
        total += (size_t)w->distance[i] * distance[i];
    }
    return total + 3 * sent;
}

/* Bits of a fixed block without the extra bits of its matches. */
static size_t zl_fixed(const zl_work *w)
{
    size_t total = 0, i;
    for (i = 0; i < ZL_LITERALS; i++) {
        total += w->literal[i] * (i < 144 ? 8u : i < 256 ? 9u : i < 280 ? 7u : 8u);
    }
    for (i = 0; i < ZL_DISTANCES; i++) {
        total += w->distance[i] * 5u;
    }
    return total;
}

/* Size of n <= ZL_MAX bytes of text after compression by zlib. */
static size_t zl_size(zl_work *w, const char *text, size_t n)
{
    size_t bits, fixed, packed;
    memset(w, 0, sizeof *w);
    w->text = (const unsigned char *)text;
    w->n = n;
    zl_parse(w);
    bits = zl_dynamic(w);
    fixed = zl_fixed(w);
    packed = ((bits < fixed ? bits : fixed) + w->extra + 3 + 7) / 8;
    return 6 + (n + 4 <= packed ? n + 5 : packed); /* 2 bytes of header, 4 of checksum */
}

/* ======================================================================
 * 16. al_  alignment and words
 *
 *  Owns      times of tokens and words inside a window.
 *  Assumes   the window's cross-attention caches are filled; slot 0 of the
 *            decoder may be overwritten.
 *  Ensures   words are in order and inside segment and recording; their
 *            texts concatenated are the segment's text; the times do not
 *            depend on the number of threads. The text is not changed.
 *  Costs     one more pass of the decoder over the window's text, many
 *            positions at a time, and 3 to 4 MB in every session.
 *
 *  The method is that of OpenAI's timing.py (whisper, commit c0d2f62): the
 *  text is fed to the decoder once more, the attention of a few alignment
 *  heads is normalised, smoothed and summed, and dynamic time warping finds
 *  the path through it. Queries are kept instead of attention weights, so
 *  memory for the matrix of one head is enough. Two steps are added,
 *  because heads are early or late and pauses are included in words: the
 *  measured lag of the heads is added, and words begin and end at pauses
 *  detected in the audio.
 * ====================================================================== */
#define AL_STEP_MS 20 /* length of an encoder position */
#define AL_ROWS (SE_MAX_TOKENS + 5u) /* start, language, task, no timestamps, text, end of text */
#define AL_MEDIAN_RADIUS 3u   /* half width of the median filter, whose width is 7 */
#define AL_TASK_FRAMES 128u   /* frames per normalisation task */
#define AL_MEDIAN_MAX_MS 700  /* limit of the median word duration, see al_median_ms() */
#define AL_TOLERANCE_MS 500   /* most by which words may exceed their segment's times */
#define AL_FRAME_MS 10        /* frame of the level analysis */
#define AL_PAUSE_FRAMES 6u    /* shortest pause */
#define AL_MAX_PAUSES (ML_FRAMES / (AL_PAUSE_FRAMES + 1u) + 1u) /* in a window */
#define AL_QUIET_DB 40        /* below the loudest frames: silence whatever the noise level */
#define AL_RANGE_DB 20        /* least range of levels in which pauses are detected */
/* Attention is near the path from 15 positions before it to 36 after it. */
#define AL_NEAR_BEFORE 15u
#define AL_NEAR_AFTER 36u

typedef struct al_head { uint16_t layer, head; } al_head;

typedef struct al_word {
    size_t first, n;        /* indices into the window's text tokens */
    size_t text, length;    /* in the window's text, in bytes */
    int64_t t0_ms, t1_ms;   /* in the recording */
    float probability;      /* mean over its tokens, without merged punctuation */
    uint32_t part;          /* number of the pair of timestamps around it */
    int pause_begin, pause_end; /* begin or end was set by a pause */
} al_word;

typedef struct al_pause {
    int64_t t0_ms, t1_ms;
} al_pause;

/* Measurements of one part of repetitive text, or sums over several. */
typedef struct al_part {
    int64_t ms;         /* from its start to the start of the next part */
    int64_t inner_ms;   /* from its start to the start of its last token */
    int64_t voice_ms;   /* detected speech within ms; -1: unknown */
    size_t letters;
    float near;         /* mean share of attention near the path */
} al_part;

typedef struct al_aligner {
    de_decoder *decoder;
    al_head *heads;         /* [n_heads], ordered by layer */
    size_t n_heads;
    int used;               /* query to cost hold data */
    int64_t lag_ms;         /* delay by which the speaker starts a word after the path does */
    float *query;           /* [n_heads, AL_ROWS, hd] times 1/sqrt(hd) */
    float *weights;         /* [AL_ROWS, stride] attention of one head; also used as */
    uint8_t *trace;         /* steps of the path [n_text + 1, frames], and */
    char *text;             /* the bytes of the text */
    float *matrix;          /* [n_text + 1, stride] sum over the heads; also used as */
    uint8_t *choice;        /* table for matching pauses [pauses, words + 1] */
    float *cost;            /* [2, 1 + n_audio_ctx] */
    /* The current window. */
    int32_t tokens[AL_ROWS];      /* as fed to the decoder */
    size_t lead;                  /* tokens before <|notimestamps|> */
    size_t n_text;
    size_t frames, stride;        /* encoder positions of audio; rounded up to 16 */
    size_t head;                  /* index into heads */
    uint32_t from[SE_MAX_TOKENS]; /* index of each text token in the window's tokens */
    uint32_t stop[SE_MAX_TOKENS]; /* end of its bytes in text */
    int64_t at_ms[SE_MAX_TOKENS + 1]; /* start of each text token, and end of the last one */
    uint32_t path[SE_MAX_TOKENS]; /* see al_align_partial() */
    float near[SE_MAX_TOKENS];    /* see al_align_partial() */
    al_part part[SE_MAX_TOKENS];
    al_word *words;               /* [SE_MAX_TOKENS] */
    size_t n_words, next;         /* next: first word not yet assigned to a segment */
    al_pause *pauses;             /* [AL_MAX_PAUSES] */
    size_t n_pauses;
    int64_t median_ms;            /* of word durations */
    int64_t last_ms;              /* end of the run's latest segment */
} al_aligner;

/* ---- heads ---- */

/* Alignment heads as {layer, head}: _ALIGNMENT_HEADS in OpenAI's whisper/__init__.py. large-v1 and
 * large-v2 have the same sizes; the heads of large-v2 are used for both. The lag was measured for
 * this library, see tests/NOTES.md; 0 where it was not. */
static const struct {
    const char *model;
    int lag_ms;
    unsigned char n, heads[23][2];
} al_known[] = {
    {"tiny.en", 0, 8, {{1, 0}, {2, 0}, {2, 5}, {3, 0}, {3, 1}, {3, 2}, {3, 3}, {3, 4}}},
    {"tiny", -50, 6, {{2, 2}, {3, 0}, {3, 2}, {3, 3}, {3, 4}, {3, 5}}},
    {"base.en", 160, 5, {{3, 3}, {4, 7}, {5, 1}, {5, 5}, {5, 7}}},
    {"base", 0, 8, {{3, 1}, {4, 2}, {4, 3}, {4, 7}, {5, 1}, {5, 2}, {5, 4}, {5, 6}}},
    {"small.en", 0, 19, {{6, 6}, {7, 0}, {7, 3}, {7, 8}, {8, 2}, {8, 5}, {8, 7}, {9, 0}, {9, 4},
                      {9, 8}, {9, 10}, {10, 0}, {10, 1}, {10, 2}, {10, 3}, {10, 6}, {10, 11},
                      {11, 2}, {11, 4}}},
    {"small", 0, 10, {{5, 3}, {5, 9}, {8, 0}, {8, 4}, {8, 7}, {8, 8}, {9, 0}, {9, 7}, {9, 9},
                   {10, 5}}},
    {"medium.en", 0, 18, {{11, 4}, {14, 1}, {14, 12}, {14, 14}, {15, 4}, {16, 0}, {16, 4}, {16, 9},
                       {17, 12}, {17, 14}, {18, 7}, {18, 10}, {18, 15}, {20, 0}, {20, 3},
                       {20, 9}, {20, 14}, {21, 12}}},
    {"medium", 0, 6, {{13, 15}, {15, 4}, {15, 15}, {16, 1}, {20, 0}, {23, 4}}},
    {"large", 0, 23, {{10, 12}, {13, 17}, {16, 11}, {16, 12}, {16, 13}, {17, 15}, {17, 16}, {18, 4},
                   {18, 11}, {18, 19}, {19, 11}, {21, 2}, {21, 3}, {22, 3}, {22, 9}, {22, 12},
                   {23, 5}, {23, 7}, {23, 13}, {25, 5}, {26, 1}, {26, 12}, {27, 15}}},
    {"large-v3", 0, 10, {{7, 0}, {10, 17}, {12, 18}, {13, 12}, {16, 1}, {17, 14}, {19, 11}, {21, 4},
                      {24, 1}, {25, 6}}},
    {"turbo", 0, 6, {{2, 4}, {2, 11}, {3, 3}, {3, 6}, {3, 11}, {3, 14}}}
};

/* Number of the model's alignment heads, which are written to out unless that is NULL. For models
 * that are not OpenAI's, all heads of the upper half of the layers, as in whisper. */
static size_t al_heads(const wnpu_model *m, al_head *out, int64_t *lag_ms)
{
    size_t i, k, n = 0;
    *lag_ms = 0;
    for (i = 0; i < sizeof al_known / sizeof al_known[0]; i++) {
        if (strcmp(al_known[i].model, m->name) != 0) {
            continue;
        }
        for (k = 0; out != NULL && k < al_known[i].n; k++) {
            out[k].layer = al_known[i].heads[k][0];
            out[k].head = al_known[i].heads[k][1];
        }
        *lag_ms = al_known[i].lag_ms;
        return al_known[i].n;
    }
    for (i = m->n_text_layer / 2; i < m->n_text_layer; i++) {
        for (k = 0; k < m->n_text_head; k++, n++) {
            if (out != NULL) {
                out[n].layer = (uint16_t)i;
                out[n].head = (uint16_t)k;
            }
        }
    }
    return n;
}

/* ---- the matrix ---- */

/* A de_tap that copies the queries of the alignment heads. */
static void al_capture_queries(void *context, size_t layer, const de_row *rows, size_t n_rows,
                               const float *query)
{
    al_aligner *a = context;
    const wnpu_model *m = a->decoder->e->model;
    size_t d = m->n_text_state, hd = d / m->n_text_head, i, r;
    for (i = 0; i < a->n_heads; i++) {
        for (r = 0; a->heads[i].layer == layer && r < n_rows; r++) {
            float *to = a->query + (i * AL_ROWS + rows[r].position) * hd;
            memcpy(to, query + r * d + a->heads[i].head * hd, hd * sizeof *to);
            a->decoder->e->op->scale(to, hd, 1.0f / sqrtf((float)hd));
        }
    }
}

static size_t al_rows(const al_aligner *a)
{
    return a->lead + 1 + a->n_text + 1;
}

/* Attention weights of one block of tokens over the frames of audio. */
static void al_attend_task(void *context, size_t index, unsigned worker)
{
    al_aligner *a = context;
    const en_engine *e = a->decoder->e;
    en_worker *w = &e->worker[worker];
    const en_heads *h = &de_cross(a->decoder)[a->heads[a->head].layer];
    size_t hd = h->hd, base = a->heads[a->head].head * h->keys, first = index * EN_QUERIES, r, from;
    size_t n = al_rows(a) - first < EN_QUERIES ? al_rows(a) - first : EN_QUERIES;
    const float *query = a->query + (a->head * AL_ROWS + first) * hd;
    float *out = a->weights + first * a->stride;
    int8_t q[EN_QUERIES * EN_MAX_HEAD];
    if (e->exact) {
        gm_float_product p;
        p.c = out;
        p.ldc = a->stride;
        p.a = query;
        p.lda = p.k = hd;
        p.rows = n;
        p.b = h->kf + base * hd;
        p.panels = a->stride / 16;
        e->gm->ftile(&p);
    } else {
        e->op->quantise(q, query, hd, n, hd, w->scale);
        e->gm->pack_a(w->queries, q, hd, n, hd / 4);
    }
    for (from = 0; !e->exact && from < a->stride; from += EN_KEYS) {
        size_t keys = a->stride - from < EN_KEYS ? a->stride - from : EN_KEYS, at = base + from;
        gm_product p = {0};
        p.c = w->acc;
        p.ldc = EN_KEYS;
        p.a = w->queries;
        p.rows = n;
        p.b = h->k + at * hd;
        p.k4 = p.pitch = hd / 4;
        p.correction = h->k_correction + at;
        p.panels = keys / 16;
        e->gm->tile(&p);
        e->op->dequantise(out + from, a->stride, w->acc, EN_KEYS, n, keys, w->scale,
                          h->k_scale + at, NULL, OP_STORE);
    }
    for (r = 0; r < n; r++) {
        e->op->softmax_float(out + r * a->stride, a->frames);
    }
}

/* Normalises a block of frames to mean 0 and variance 1 over all tokens. A frame to which all
 * tokens attend equally (because exp() underflowed for all) becomes 0. */
static void al_normalise_task(void *context, size_t index, unsigned worker)
{
    al_aligner *a = context;
    size_t first = index * AL_TASK_FRAMES, rows = al_rows(a), r, f;
    size_t n = a->stride - first < AL_TASK_FRAMES ? a->stride - first : AL_TASK_FRAMES;
    float mean[AL_TASK_FRAMES], deviation[AL_TASK_FRAMES];
    (void)worker;
    for (f = 0; f < n; f++) {
        mean[f] = 0.0f;
        deviation[f] = 0.0f;
    }
    for (r = 0; r < rows; r++) {
        for (f = 0; f < n; f++) {
            mean[f] += a->weights[r * a->stride + first + f];
        }
    }
    for (f = 0; f < n; f++) {
        mean[f] /= (float)rows;
    }
    for (r = 0; r < rows; r++) {
        for (f = 0; f < n; f++) {
            float x = a->weights[r * a->stride + first + f] - mean[f];
            deviation[f] += x * x;
        }
    }
    for (f = 0; f < n; f++) {
        deviation[f] = sqrtf(deviation[f] / (float)rows);
    }
    for (r = 0; r < rows; r++) {
        float *x = a->weights + r * a->stride + first;
        for (f = 0; f < n; f++) {
            x[f] = deviation[f] > 0.0f ? (x[f] - mean[f]) / deviation[f] : 0.0f;
        }
    }
}

/* Puts the smaller values into a, the larger ones into b. */
WNPU_INLINE void al_sort_pair(mt_vec *a, mt_vec *b)
{
    mt_iv gt = a->v > b->v, x = (mt_iv)a->v, y = (mt_iv)b->v;
    a->v = (mt_fv)((gt & y) | (~gt & x));
    b->v = (mt_fv)((gt & x) | (~gt & y));
}

/* Median of seven values per lane: a sorting network without the exchanges that cannot affect the
 * median. The result is in v[3]. */
WNPU_INLINE void al_median7(mt_vec v[7])
{
    static const unsigned char pairs[][2] = {
        {0, 5}, {0, 3}, {1, 6}, {2, 4}, {0, 1}, {3, 5}, {2, 6}, {2, 3}, {3, 6}, {4, 5}, {1, 4},
        {1, 3}, {3, 4}
    };
    size_t i;
    for (i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        al_sort_pair(&v[pairs[i][0]], &v[pairs[i][1]]);
    }
}

/* sum [n rounded up to 16] += median filter of x [n] with mirrored ends. Rows too short to be
 * mirrored are added unfiltered. wide is scratch for n + 32 floats. */
static void al_smooth(float *sum, const float *x, size_t n, float *wide)
{
    size_t i, k, reach = n > AL_MEDIAN_RADIUS ? AL_MEDIAN_RADIUS : 0;
    mt_vec v[2 * AL_MEDIAN_RADIUS + 1], total;
    memset(wide, 0, (n + 32) * sizeof *wide);
    memcpy(wide + reach, x, n * sizeof *x);
    for (i = 1; i <= reach; i++) {
        wide[reach - i] = x[i];
        wide[reach + n - 1 + i] = x[n - 1 - i];
    }
    for (i = 0; i < n; i += MT_LANES) {
        for (k = 0; k < 2 * AL_MEDIAN_RADIUS + 1; k++) {
            mt_vload(&v[k], wide + i + (reach > 0 ? k : 0));
        }
        al_median7(v);
        mt_vload(&total, sum + i);
        total.v += v[AL_MEDIAN_RADIUS].v;
        mt_vstore(sum + i, &total);
    }
}

/* Rows from that of <|notimestamps|>, which predicts the first text token, to that of the last text
 * token, which predicts the end of text. */
static void al_smooth_task(void *context, size_t row, unsigned worker)
{
    al_aligner *a = context;
    float *sum = a->matrix + row * a->stride;
    if (a->head == 0) {
        memset(sum, 0, a->stride * sizeof *sum);
    }
    al_smooth(sum, a->weights + (a->lead + row) * a->stride, a->frames,
              a->decoder->e->worker[worker].hidden);
}

/* ---- the path ---- */

/* Dynamic time warping (H. Sakoe and S. Chiba, 1978): the path with the largest sum through gain
 * [n, m] (row stride ld), from the first cell to the last, in steps of one row, one column, or
 * both. When predecessors are equal, the one to the left is chosen, as in timing.py (which does so
 * whenever the other two are equal, even if they are better). first[i] receives the column in which
 * the path enters row i. cost is scratch for 2 (m + 1) floats, trace for n m bytes. */
static void al_warp(const float *gain, size_t n, size_t m, size_t ld, float *cost, uint8_t *trace,
                    uint32_t *first)
{
    float *above = cost, *here = cost + m + 1;
    size_t i, j;
    for (j = 0; j <= m; j++) {
        above[j] = j == 0 ? 0.0f : INFINITY;
    }
    for (i = 0; i < n; i++) {
        float *swap = above;
        here[0] = INFINITY;
        for (j = 0; j < m; j++) {
            float both = above[j], down = above[j + 1], right = here[j];
            unsigned step = right <= both && right <= down ? 2 : both <= down ? 0 : 1;
            here[j + 1] = (step == 0 ? both : step == 1 ? down : right) - gain[i * ld + j];
            trace[i * m + j] = (uint8_t)step;
        }
        above = here;
        here = swap;
    }
    for (i = n, j = m; i > 0 && j > 0;) {
        unsigned step = trace[(i - 1) * m + j - 1];
        first[i - 1] = (uint32_t)(j - 1);
        i -= step != 2;
        j -= step != 1;
    }
}

/* Feeds a->tokens into a slot and aligns them: first [n_text + 1] receives the path through the
 * summed attention, which stays in a->matrix [n_text + 1, frames]. */
static void al_align(al_aligner *a, size_t slot, uint32_t *first)
{
    en_engine *e = a->decoder->e;
    size_t rows = al_rows(a);
    a->decoder->tap = al_capture_queries;
    a->decoder->tap_user = a;
    (void)se_feed_from(a->decoder, slot, a->tokens, 0, rows, 0, rows, NULL);
    a->decoder->tap = NULL;
    for (a->head = 0; a->head < a->n_heads; a->head++) {
        tp_run(e->pool, en_blocks(rows, EN_QUERIES), al_attend_task, a);
        tp_run(e->pool, en_blocks(a->stride, AL_TASK_FRAMES), al_normalise_task, a);
        tp_run(e->pool, a->n_text + 1, al_smooth_task, a);
    }
    al_warp(a->matrix, a->n_text + 1, a->frames, a->stride, a->cost, a->trace, first);
}

/* Determines the start of each text token in ms. The window begins at base_ms in the recording. */
static void al_token_times(al_aligner *a, int64_t base_ms)
{
    uint32_t first[SE_MAX_TOKENS + 1];
    size_t i;
    al_align(a, 0, first);
    for (i = 0; i <= a->n_text; i++) {
        a->at_ms[i] = base_ms + (int64_t)first[i] * AL_STEP_MS;
    }
}

/* Sets the audio length in frames of 10 ms. */
static void al_set_frames(al_aligner *a, size_t frames)
{
    size_t most = a->decoder->e->model->n_audio_ctx;
    a->used = 1;
    a->frames = frames / 2 < 1 ? 1 : frames / 2 < most ? frames / 2 : most;
    a->stride = en_round16(a->frames);
}

/* Adds the share of each row's attention, over all heads, that is near the path. */
static void al_sum_near(al_aligner *a)
{
    size_t i, f;
    for (i = 0; i <= a->n_text; i++) {
        size_t from = a->path[i] > AL_NEAR_BEFORE ? a->path[i] - AL_NEAR_BEFORE : 0;
        size_t after = a->path[i] + AL_NEAR_AFTER, end = after < a->frames ? after : a->frames;
        const float *row = a->weights + (a->lead + i) * a->stride;
        float sum = 0.0f;
        for (f = from; f < end; f++) {
            sum += row[f];
        }
        a->near[i] += sum / (float)a->n_heads;
    }
}

/* Aligns text that is still being decoded, including its timestamps, with the window's first frames
 * (10 ms each). The caches of the slot are overwritten. The text is the n >= 1 tokens after the
 * first `start` of a->tokens. path[i] receives the encoder position at which token i begins,
 * near[i] the share of its attention near the path. */
static void al_align_partial(al_aligner *a, size_t start, size_t n, size_t slot, size_t frames)
{
    al_set_frames(a, frames);
    a->lead = start - 1; /* its row predicts the first text token */
    a->n_text = n - 1;
    al_align(a, slot, a->path);
    memset(a->near, 0, n * sizeof *a->near);
    for (a->head = 0; a->head < a->n_heads; a->head++) {
        tp_run(a->decoder->e->pool, en_blocks(al_rows(a), EN_QUERIES), al_attend_task, a);
        al_sum_near(a);
    }
}

/* ---- repetition ----
 * Repeated text is real if the audio contains it: then the path advances at a speaking rate from
 * part
 * to part, and attention is near the path. In a decoding loop the path stalls, or attention is
 * elsewhere. The limits are measured, see tests/NOTES.md. */
#define AL_NEAR_MIN 0.14f         /* mean share of attention near the path; noise has 0.11 */
#define AL_MS_PER_LETTER 30       /* shortest mean duration of a letter */
#define AL_VOICE_MS_PER_LETTER 15 /* least detected speech per letter */
#define AL_LETTER 1u              /* letters; 3 for a Chinese character or a Korean syllable */
#define AL_CHARACTER 3u

/* Length of a text in letters, weighted by the time to speak them; symbols and spaces count as
 * letters. */
static size_t al_letters(const char *text, size_t length)
{
    size_t i, n = 0;
    for (i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        n += (c & 0xc0u) == 0x80 ? 0 : c >= 0xe3 && c <= 0xed ? AL_CHARACTER : AL_LETTER;
    }
    return n;
}

/* Number of leading parts that the audio supports. The duration of the last part is only known so
 * far. The path may skip a single part. */
static size_t al_supported(const al_part *part, size_t n)
{
    al_part sum = {0, 0, 0, 0, 0.0f};
    int64_t ms = 0, inner_ms = 0; /* of all parts but the last two */
    size_t k;
    for (k = 0; k < n; k++) {
        sum.ms += part[k].ms;
        sum.voice_ms += part[k].voice_ms;
        sum.letters += part[k].letters;
        sum.near += part[k].near;
        if (sum.near < AL_NEAR_MIN * (float)(k + 1) ||
            sum.ms < AL_MS_PER_LETTER * (int64_t)sum.letters ||
            (sum.voice_ms >= 0 && sum.voice_ms < AL_VOICE_MS_PER_LETTER * (int64_t)sum.letters)) {
            return k;
        }
        if (k < 2) {
            continue;
        }
        ms += part[k - 2].ms;
        inner_ms += part[k - 2].inner_ms;
        if (2 * (int64_t)(k - 1) * (part[k - 1].inner_ms + part[k].inner_ms) < inner_ms ||
            (k + 1 < n && 2 * (int64_t)(k - 1) * (part[k - 1].ms + part[k].ms) < ms)) {
            return k - 1; /* the path stalls */
        }
    }
    return n;
}

/* ---- words ---- */

/* Whether text occurs in set, like Python's `text in set`; the empty text occurs in every set. */
static int al_contains(const char *set, const char *text, size_t length)
{
    size_t n = strlen(set), i;
    for (i = 0; i + length <= n; i++) {
        if (memcmp(set + i, text, length) == 0) {
            return 1;
        }
    }
    return 0;
}

static int al_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Whether text without surrounding spaces occurs in set. */
static int al_contains_stripped(const char *set, const char *text, size_t length)
{
    while (length > 0 && al_blank(text[0])) {
        text++;
        length--;
    }
    while (length > 0 && al_blank(text[length - 1])) {
        length--;
    }
    return al_contains(set, text, length);
}

/* Whether the language separates words by spaces; otherwise characters are timed. */
static int al_uses_spaces(int32_t language)
{
    static const char *const unspaced[] = {"zh", "ja", "th", "lo", "my", "yue"};
    size_t i;
    for (i = 0; i < sizeof unspaced / sizeof unspaced[0]; i++) {
        if (strcmp(tk_languages[language][0], unspaced[i]) == 0) {
            return 0;
        }
    }
    return 1;
}

/* Appends complete characters (tokens first..end-1, bytes from text on) to the last word, or begins
 * a new word with them: Python's string.punctuation and leading spaces begin words. */
static void al_append(al_aligner *a, size_t first, size_t end, size_t text, uint32_t part,
                      int spaced)
{
    static const char punctuation[] = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    const char *bytes = a->text + text;
    size_t length = a->stop[end - 1] - text;
    al_word *w = a->n_words > 0 ? &a->words[a->n_words - 1] : NULL;
    if (w == NULL || w->part != part || !spaced ||
        (length > 0 && (bytes[0] == ' ' || al_contains_stripped(punctuation, bytes, length)))) {
        w = &a->words[a->n_words++];
        memset(w, 0, sizeof *w);
        w->first = first;
        w->text = text;
        w->part = part;
    }
    w->n += end - first;
    w->length += length;
}

/* Splits text tokens first..end-1, between two timestamps, into words. Tokens may end within a
 * character; words end where both a token and a character end. */
static void al_split(al_aligner *a, size_t first, size_t end, uint32_t part, int spaced)
{
    size_t begin = first > 0 ? a->stop[first - 1] : 0, at = begin, token = first, used, i;
    int cut;
    for (i = first; i < end; i++) {
        while (at < a->stop[i]) {
            (void)tk_decode_utf8(a->text + at, a->stop[end - 1] - at, &used, &cut);
            at += used;
        }
        if (at == a->stop[i]) {
            al_append(a, token, i + 1, begin, part, spaced);
            token = i + 1;
            begin = at;
        }
    }
}

static void al_join(al_word *left, const al_word *right)
{
    left->n += right->n;
    left->length += right->length;
}

/* Removes words without tokens. */
static void al_remove_empty(al_aligner *a)
{
    size_t i, n = 0;
    for (i = 0; i < a->n_words; i++) {
        if (a->words[i].n > 0) {
            a->words[n++] = a->words[i];
        }
    }
    a->n_words = n;
}

/* Merges punctuation into the adjacent word without changing that word's times: opening marks into
 * the following word, others into the preceding one. */
static void al_merge_punctuation(al_aligner *a)
{
    static const char openers[] = "\"'\xe2\x80\x9c\xc2\xbf([{-";
    static const char closers[] = "\"'.\xe3\x80\x82,\xef\xbc\x8c!\xef\xbc\x81?\xef\xbc\x9f:"
                                  "\xef\xbc\x9a\xe2\x80\x9d)]}\xe3\x80\x81";
    size_t i, k;
    for (i = a->n_words; i > 1; i--) {
        al_word *w = &a->words[i - 2], *next = &a->words[i - 1];
        al_word joined = *next;
        const char *text = a->text + w->text;
        if (w->part != next->part || w->length == 0 || text[0] != ' ' ||
            !al_contains_stripped(openers, text, w->length)) {
            continue;
        }
        joined.first = w->first;
        joined.text = w->text;
        al_join(&joined, w);
        *w = joined; /* another opening mark before it may be merged next */
        next->n = 0;
    }
    al_remove_empty(a);
    for (i = 0, k = 1; k < a->n_words; k++) {
        al_word *w = &a->words[i], *next = &a->words[k];
        const char *text = a->text + w->text;
        if (w->part == next->part && w->length > 0 && text[w->length - 1] != ' ' &&
            al_contains(closers, a->text + next->text, next->length)) {
            al_join(w, next);
            next->n = 0;
        } else {
            i = k;
        }
    }
    al_remove_empty(a);
}

/* Median of the positive word durations, limited to AL_MEDIAN_MAX_MS. */
static int64_t al_median_ms(const al_aligner *a)
{
    int64_t sorted[SE_MAX_TOKENS], median;
    size_t i, k, n = 0;
    for (i = 0; i < a->n_words; i++) {
        int64_t ms = a->words[i].t1_ms - a->words[i].t0_ms;
        if (ms > 0) {
            for (k = n++; k > 0 && sorted[k - 1] > ms; k--) {
                sorted[k] = sorted[k - 1];
            }
            sorted[k] = ms;
        }
    }
    median = n > 0 ? (sorted[(n - 1) / 2] + sorted[n / 2]) / 2 : 0;
    return median < AL_MEDIAN_MAX_MS ? median : AL_MEDIAN_MAX_MS;
}

/* Dynamic time warping includes pauses in adjacent words. At sentence boundaries, where pauses are
 * long, words are limited to twice the median duration. */
static void al_limit_words(al_aligner *a)
{
    static const char ends[] = ".\xe3\x80\x82!\xef\xbc\x81?\xef\xbc\x9f";
    int64_t most = 2 * a->median_ms;
    size_t i;
    for (i = 1; i < a->n_words && most > 0; i++) {
        al_word *w = &a->words[i], *before = w - 1;
        if (w->t1_ms - w->t0_ms <= most) {
            continue;
        }
        if (al_contains(ends, a->text + w->text, w->length)) {
            w->t1_ms = w->t0_ms + most;
        } else if (al_contains(ends, a->text + before->text, before->length)) {
            w->t0_ms = w->t1_ms - most;
        }
    }
}

static int64_t al_clamp(int64_t ms, int64_t least, int64_t most)
{
    return ms < least ? least : ms > most ? most : ms;
}

/* Start of text token i. The path of the first one begins with the window. */
static int64_t al_token_time(const al_aligner *a, size_t i)
{
    return i == 0 ? a->at_ms[0] : al_clamp(a->at_ms[i] + a->lag_ms, a->at_ms[0],
                                           a->at_ms[0] + (int64_t)a->frames * AL_STEP_MS);
}

/* Builds the words of the text once the times of its tokens are known. probability is indexed by
 * the window's tokens. */
static void al_make_words(al_aligner *a, const tk_vocab *v, const float *probability, int spaced)
{
    size_t i, k, length, used = 0, first = 0;
    uint32_t part = 0;
    for (i = 0; i < a->n_text; i++) {
        const char *bytes = tk_text(v, a->tokens[a->lead + 1 + i], &length);
        memcpy(a->text + used, bytes, length);
        used += length;
        a->stop[i] = (uint32_t)used;
    }
    for (i = 1; i <= a->n_text; i++) {
        if (i == a->n_text || a->from[i] != a->from[i - 1] + 1) {
            al_split(a, first, i, part++, spaced);
            first = i;
        }
    }
    for (i = 0; i < a->n_words; i++) {
        al_word *w = &a->words[i];
        float sum = 0.0f;
        for (k = 0; k < w->n; k++) {
            sum += probability[a->from[w->first + k]];
        }
        w->probability = sum / (float)w->n;
        w->t0_ms = al_token_time(a, w->first);
        w->t1_ms = al_token_time(a, w->first + w->n);
    }
}

/* ---- pauses ---- */

/* Level of each frame in whole decibels: the power of differences between adjacent samples, which
 * suppresses hum and offsets. */
static void al_levels(const float *samples, size_t frames, uint8_t *level)
{
    size_t hop = ML_RATE / 1000u * AL_FRAME_MS, f, i;
    float before = samples[0];
    for (f = 0; f < frames; f++) {
        float sum = 0.0f, db;
        for (i = 0; i < hop; i++) {
            float step = samples[f * hop + i] - before;
            before = samples[f * hop + i];
            sum += step * step;
        }
        db = sum > 0.0f ? 120.0f + 4.3429448f * mt_log1(sum / (float)hop) : 0.0f;
        level[f] = (uint8_t)(db < 0.0f ? 0.0f : db > 255.0f ? 255.0f : db);
    }
}

/* The given percentile of the frames' levels. */
static int al_level_of(const uint8_t *level, size_t frames, size_t percent)
{
    size_t count[256], f, sum = 0;
    int i;
    memset(count, 0, sizeof count);
    for (f = 0; f < frames; f++) {
        count[level[f]]++;
    }
    for (i = 0; i < 255; i++) {
        sum += count[i];
        if (sum * 100 > frames * percent) {
            break;
        }
    }
    return i;
}

/* Finds pauses in the window's samples: at least AL_PAUSE_FRAMES frames below a threshold between
 * the quiet and the loud levels. Noise and music have none. */
static void al_find_pauses(al_aligner *a, const float *samples, size_t frames)
{
    uint8_t level[ML_FRAMES] = {0};
    size_t f, begin;
    int low, high, limit;
    al_levels(samples, frames, level);
    low = al_level_of(level, frames, 5);
    high = al_level_of(level, frames, 95);
    limit = low + (high - low) / 4;
    limit = limit > high - AL_QUIET_DB ? limit : high - AL_QUIET_DB;
    a->n_pauses = 0;
    for (f = 0; high - low >= AL_RANGE_DB && f < frames; f++) {
        for (begin = f; f < frames && level[f] < limit; f++) {
        }
        if (f - begin >= AL_PAUSE_FRAMES) {
            a->pauses[a->n_pauses].t0_ms = a->at_ms[0] + (int64_t)begin * AL_FRAME_MS;
            a->pauses[a->n_pauses++].t1_ms = a->at_ms[0] + (int64_t)f * AL_FRAME_MS;
        }
    }
}

/* Distance of a pause from the path's boundary k, before word k or after the last one. The path
 * does not tell when the first word begins; the median duration is assumed. Punctuation may be
 * between two words. */
static int64_t al_pause_distance(const al_aligner *a, const al_pause *p, size_t k)
{
    int64_t low = k > 0 ? a->words[k - 1].t1_ms : a->words[0].t0_ms;
    int64_t high = k == 0 ? a->words[0].t1_ms - a->median_ms
                   : k < a->n_words ? a->words[k].t0_ms : low;
    high = high > low ? high : low;
    return p->t0_ms > high ? p->t0_ms - high : low > p->t1_ms ? low - p->t1_ms : 0;
}

/* Assigns pauses in order to word boundaries, at most one boundary each, so that the sum of
 * distances and of costs for pauses within words is smallest. The cost grows with the pause,
 * because many consonants begin with 50 to 100 ms of silence. to[i] receives the boundary, or
 * n_words + 1 for none. */
static void al_match_pauses(al_aligner *a, size_t *to)
{
    int64_t cost[2][SE_MAX_TOKENS + 1], *old = cost[0], *now = cost[1], *swap;
    size_t n = a->n_words, none = n + 1, i, k;
    memset(cost, 0, sizeof cost);
    for (i = 0; i < a->n_pauses; i++) {
        const al_pause *p = &a->pauses[i];
        int64_t length = p->t1_ms - p->t0_ms, skip = 50 + (length < 500 ? length : 500);
        uint8_t *choice = a->choice + i * (n + 1);
        for (k = 0; k <= n; k++) { /* least cost with boundaries up to k */
            int64_t distance = al_pause_distance(a, p, k);
            now[k] = old[k] + (distance <= skip ? distance : skip);
            choice[k] = (uint8_t)(distance <= skip ? k : none);
            if (k > 0 && now[k - 1] < now[k]) {
                now[k] = now[k - 1];
                choice[k] = choice[k - 1];
            }
        }
        swap = old;
        old = now;
        now = swap;
    }
    for (i = a->n_pauses, k = n; i > 0; i--) {
        to[i - 1] = a->choice[(i - 1) * (n + 1) + k];
        k = to[i - 1] <= n ? to[i - 1] : k;
    }
}

/* Fits words first..end-1, between two pauses or the window's limits, into t0_ms..t1_ms; each gets
 * at least one step if the time suffices. */
static void al_fit_words(al_aligner *a, size_t first, size_t end, int64_t t0_ms, int64_t t1_ms)
{
    int64_t left = (int64_t)(end - first) * AL_STEP_MS, step = AL_STEP_MS;
    if (t1_ms - t0_ms < left) {
        left = step = 0;
        t1_ms = t1_ms > t0_ms ? t1_ms : t0_ms;
    }
    for (; first < end; first++, t0_ms = a->words[first - 1].t1_ms) {
        al_word *w = &a->words[first];
        w->t0_ms = al_clamp(w->t0_ms, t0_ms, t1_ms - left);
        left -= step;
        w->t1_ms = al_clamp(w->t1_ms, w->t0_ms + step, t1_ms - left);
    }
}

/* Moves the begin and end of words next to detected pauses to these pauses. */
static void al_snap_to_pauses(al_aligner *a, const float *samples, size_t frames)
{
    size_t to[AL_MAX_PAUSES], i, first = 0;
    int64_t begin = a->at_ms[0];
    al_find_pauses(a, samples, frames);
    al_match_pauses(a, to);
    for (i = 0; i < a->n_pauses; i++) {
        if (to[i] > 0 && to[i] <= a->n_words && !a->words[to[i] - 1].pause_end) {
            a->words[to[i] - 1].pause_end = 1;
            a->words[to[i] - 1].t1_ms = a->pauses[i].t0_ms;
        }
        if (to[i] < a->n_words) { /* the last of several pauses at one boundary */
            a->words[to[i]].pause_begin = 1;
            a->words[to[i]].t0_ms = a->pauses[i].t1_ms;
        }
    }
    for (i = 0; i < a->n_words; i++) {
        begin = a->words[i].pause_begin ? a->words[i].t0_ms : begin;
        if (a->words[i].pause_end || i + 1 == a->n_words) {
            al_fit_words(a, first, i + 1, begin, a->words[i].pause_end ? a->words[i].t1_ms
                         : a->at_ms[0] + (int64_t)frames * AL_FRAME_MS);
            begin = a->words[i].t1_ms;
            first = i + 1;
        }
    }
}

/* Finds the words of a window: n <= SE_MAX_TOKENS tokens, including timestamps, decoded from its
 * first frames (10 ms each), and the samples of these frames. The window begins at base_ms. */
static void al_window(al_aligner *a, int32_t language, int32_t task, const int32_t *tokens,
                      const float *probability, size_t n, const float *samples, size_t frames,
                      int64_t base_ms)
{
    const wnpu_model *m = a->decoder->e->model;
    int spaced = task == WNPU_TRANSLATE || al_uses_spaces(language);
    size_t i;
    al_set_frames(a, frames);
    a->lead = tk_start_tokens(&m->vocab, language, task, a->tokens);
    a->n_text = a->n_words = a->next = 0;
    for (i = 0; i < n; i++) {
        if (tokens[i] < m->vocab.eot) {
            a->from[a->n_text] = (uint32_t)i;
            a->tokens[a->lead + 1 + a->n_text++] = tokens[i];
        }
    }
    if (a->n_text == 0) {
        return;
    }
    a->tokens[a->lead] = m->vocab.no_timestamps;
    a->tokens[a->lead + 1 + a->n_text] = m->vocab.eot;
    al_token_times(a, base_ms);
    al_make_words(a, &m->vocab, probability, spaced);
    a->median_ms = al_median_ms(a);
    al_limit_words(a);
    al_merge_punctuation(a);
    al_snap_to_pauses(a, samples, frames);
}

/* ---- segments ---- */

/* Limits the first or second word of a segment, which may include an undetected pause before it. */
static void al_limit_first_words(const al_aligner *a, al_word *w, size_t n)
{
    int64_t most = 2 * a->median_ms;
    if (w[0].pause_begin || w[0].t1_ms - a->last_ms <= 2 * most ||
        (w[0].t1_ms - w[0].t0_ms <= most && (n < 2 || w[1].t1_ms - w[0].t0_ms <= 2 * most))) {
        return;
    }
    if (n > 1 && w[1].t1_ms - w[1].t0_ms > most && !w[0].pause_end) {
        w[0].t1_ms = w[1].t1_ms / 2 > w[1].t1_ms - most ? w[1].t1_ms / 2 : w[1].t1_ms - most;
        w[1].t0_ms = w[0].t1_ms;
    }
    w[0].t0_ms = w[0].t1_ms > most ? w[0].t1_ms - most : 0;
}

/* Reconciles a segment's times, from timestamp tokens, with those of its words. The words decide
 * unless they exceed the segment by AL_TOLERANCE_MS or more without a pause that confirms it. */
static void al_reconcile(const al_aligner *a, al_word *w, size_t n, int64_t *t0_ms, int64_t *t1_ms)
{
    al_word *last = &w[n - 1];
    if (!w->pause_begin && *t0_ms < w->t1_ms && *t0_ms - AL_TOLERANCE_MS > w->t0_ms) {
        int64_t shortest = w->t1_ms - a->median_ms;
        w->t0_ms = al_clamp(*t0_ms < shortest ? *t0_ms : shortest, 0, INT64_MAX);
    } else {
        *t0_ms = w->t0_ms;
    }
    if (!last->pause_end && *t1_ms > last->t0_ms && *t1_ms + AL_TOLERANCE_MS < last->t1_ms) {
        int64_t longest = last->t0_ms + a->median_ms;
        last->t1_ms = longest > *t1_ms ? longest : *t1_ms;
    } else {
        *t1_ms = last->t1_ms;
    }
}

/* Returns the words of the next segment, those that begin before index end of the window's tokens,
 * and adjusts the segment's times, which are before end_ms. *n receives the number of words. */
static const al_word *al_segment(al_aligner *a, size_t end, int64_t end_ms, int64_t *t0_ms,
                                 int64_t *t1_ms, size_t *n)
{
    al_word *w = &a->words[a->next];
    int64_t at = a->last_ms;
    size_t i;
    for (*n = 0; a->next < a->n_words && a->from[a->words[a->next].first] < end; a->next++) {
        (*n)++;
    }
    if (*n == 0) {
        return w;
    }
    al_limit_first_words(a, w, *n);
    al_reconcile(a, w, *n, t0_ms, t1_ms);
    for (i = 0; i < *n; i++) {
        w[i].t0_ms = al_clamp(w[i].t0_ms, at, end_ms);
        w[i].t1_ms = al_clamp(w[i].t1_ms, w[i].t0_ms, end_ms);
        at = w[i].t1_ms;
    }
    *t0_ms = al_clamp(*t0_ms, a->last_ms, w->t0_ms);
    *t1_ms = al_clamp(*t1_ms, at, end_ms);
    a->last_ms = *t1_ms;
    return w;
}

/* ---- memory ---- */

/* Carves an aligner. */
static void al_carve(ar_arena *arena, al_aligner *a, de_decoder *decoder)
{
    const wnpu_model *m = decoder->e->model;
    size_t ctx = en_round16(m->n_audio_ctx), hd = m->n_text_state / m->n_text_head;
    a->decoder = decoder;
    a->n_heads = al_heads(m, NULL, &a->lag_ms);
    a->heads = ar_carve(arena, a->n_heads, sizeof(al_head));
    a->query = ar_carve(arena, a->n_heads * AL_ROWS * hd, sizeof(float));
    a->weights = ar_carve(arena, AL_ROWS * ctx, sizeof(float));
    a->matrix = ar_carve(arena, AL_ROWS * ctx, sizeof(float));
    a->cost = ar_carve(arena, 2 * (ctx + 1), sizeof(float));
    a->words = ar_carve(arena, SE_MAX_TOKENS, sizeof(al_word));
    a->pauses = ar_carve(arena, AL_MAX_PAUSES, sizeof(al_pause));
    a->trace = (uint8_t *)a->weights;
    a->text = (char *)a->weights;
    a->choice = (uint8_t *)a->matrix;
}

/* Clears everything derived from the text. */
static void al_clear(al_aligner *a)
{
    const wnpu_model *m = a->decoder->e->model;
    size_t rows = AL_ROWS * en_round16(m->n_audio_ctx), hd = m->n_text_state / m->n_text_head;
    if (!a->used) {
        return;
    }
    ar_wipe(a->query, a->n_heads * AL_ROWS * hd * sizeof(float));
    ar_wipe(a->weights, rows * sizeof(float));
    ar_wipe(a->matrix, rows * sizeof(float));
    ar_wipe(a->tokens, sizeof a->tokens);
    ar_wipe(a->path, sizeof a->path);
    ar_wipe(a->near, sizeof a->near);
    ar_wipe(a->words, SE_MAX_TOKENS * sizeof *a->words);
}

/* Resets the state of the previous run. */
static void al_reset(al_aligner *a)
{
    a->n_words = a->next = a->n_text = 0;
    a->last_ms = 0;
}

/* ======================================================================
 * 17. rs_  results and writers
 *
 *  Owns      the store of one run's segments, the layout of subtitles, and
 *            one writer per format, a row of rs_writers.
 *  Assumes   a block of fixed size.
 *  Ensures   a segment is stored completely or not at all; text is valid
 *            UTF-8; numbers are formatted here, so the output does not
 *            depend on locale or libc.
 *  Costs     about 30 bytes per token, 170 per segment, 80 per word.
 * ====================================================================== */

/* A list of elements of one size, in chunks of RS_CHUNK placed in the block wherever there was
 * room. A chunk is the offset of the next one followed by its elements; all but the last are
 * full. */
#define RS_CHUNK 32u
typedef struct rs_list {
    size_t elem, count;     /* bytes of an element; number of elements */
    size_t first, last;     /* offsets of chunks */
    size_t spare;           /* an empty chunk after the last one */
    int has_spare;
} rs_list;

/* Records grow from the front of the block, their offsets from its end. */
typedef struct rs_store {
    unsigned char *base;
    size_t size, used, count;
    size_t peak;            /* most bytes used by previous runs */
    rs_list speech;         /* wnpu_speech_span */
    rs_list ledger;         /* wnpu_ledger_span */
    wnpu_ledger_span rest;  /* the ledger's last span, which always fits; empty if t0 = t1 */
} rs_store;

typedef struct rs_record {
    wnpu_segment segment;   /* pointers are set when it is read */
    size_t text, tokens;    /* offsets into the block */
    size_t words, n_words;  /* words: offset of an array of rs_word */
} rs_record;

typedef struct rs_word {
    wnpu_word word;
    size_t text;            /* offset into the block */
} rs_word;

/* How a window's text was decoded; see wnpu_segment. */
typedef struct rs_origin {
    float mean_logprob, no_speech, temperature, compression_ratio, first_logprob;
    int32_t retries;
    uint32_t reasons;
    int32_t accepted, prompted, device;
} rs_origin;

/* One segment to be stored. */
typedef struct rs_draft {
    int64_t t0_ms, t1_ms;
    const int32_t *tokens;
    const float *probability;
    size_t n;
    int32_t language, window;
    rs_origin origin;
    float voice;
    const al_word *words;   /* its words if requested, else NULL */
    size_t n_words;
    const char *word_text;  /* bytes of the words */
    const int64_t *at_ms;   /* start of each of the window's text tokens, and end of the last one */
} rs_draft;

/* Properties of the run as a whole. */
typedef struct rs_summary {
    int32_t language;
    int64_t duration_ms;
    const float *languages;     /* [n_languages] probabilities; NULL if the language was given */
    int32_t n_languages;
    const wnpu_choice *choice;  /* NULL: there is no list of phrases */
} rs_summary;

static size_t rs_used(const rs_store *s)
{
    return s->used + s->count * sizeof(uint32_t);
}

static size_t rs_peak(const rs_store *s)
{
    return rs_used(s) > s->peak ? rs_used(s) : s->peak;
}

static void rs_reset(rs_store *s)
{
    s->peak = rs_peak(s);
    ar_wipe(s->base, s->used);
    ar_wipe(s->base + s->size - s->count * sizeof(uint32_t), s->count * sizeof(uint32_t));
    s->used = 0;
    s->count = 0;
    memset(&s->speech, 0, sizeof s->speech);
    memset(&s->ledger, 0, sizeof s->ledger);
    memset(&s->rest, 0, sizeof s->rest);
    s->speech.elem = sizeof(wnpu_speech_span);
    s->ledger.elem = sizeof(wnpu_ledger_span);
}

/* Offset at the front, aligned to 8, with room for bytes; s->size if there is none. */
static size_t rs_find_room(const rs_store *s, size_t used, size_t bytes)
{
    size_t start = (used + 7u) & ~(size_t)7u, back = (s->count + 1) * sizeof(uint32_t);
    return back <= s->size && start <= s->size - back && bytes <= s->size - back - start
               ? start : s->size;
}

/* Concatenates the bytes of the draft's text tokens at out. Returns their number. */
static size_t rs_join_tokens(const tk_vocab *v, const rs_draft *d, char *out)
{
    size_t i, length, total = 0;
    for (i = 0; i < d->n; i++) {
        const char *bytes = d->tokens[i] < v->eot ? tk_text(v, d->tokens[i], &length) : NULL;
        if (bytes != NULL) {
            if (out != NULL) {
                memcpy(out + total, bytes, length);
            }
            total += length;
        }
    }
    return total;
}

static int rs_blank(const char *text, size_t length)
{
    size_t i;
    for (i = 0; i < length; i++) {
        if (text[i] != ' ' && text[i] != '\n' && text[i] != '\t' && text[i] != '\r') {
            return 0;
        }
    }
    return 1;
}

/* Unless token times were measured, the segment's duration is divided among the tokens in
 * proportion to their bytes. */
static size_t rs_store_tokens(const tk_vocab *v, const rs_draft *d, size_t bytes, wnpu_token *out)
{
    size_t i, n = 0, length, before = 0;
    int64_t span = d->t1_ms - d->t0_ms;
    for (i = 0; i < d->n; i++) {
        if (d->tokens[i] >= v->eot || tk_text(v, d->tokens[i], &length) == NULL) {
            continue;
        }
        out[n].id = d->tokens[i];
        out[n].probability = d->probability[i];
        out[n].t0_ms = d->t0_ms + span * (int64_t)before / (int64_t)(bytes > 0 ? bytes : 1);
        before += length;
        out[n].t1_ms = d->t0_ms + span * (int64_t)before / (int64_t)(bytes > 0 ? bytes : 1);
        n++;
    }
    return n;
}

/* Writes words to out, their texts from offset text of the store on, and measured times to the
 * tokens. Words are contiguous from the segment's first token on. Returns the offset after the last
 * text. */
static size_t rs_store_words(rs_store *s, const rs_draft *d, rs_word *out, size_t text,
                             wnpu_token *tokens)
{
    size_t i, k, first = d->n_words > 0 ? d->words[0].first : 0;
    for (i = 0; i < d->n_words; i++) {
        const al_word *w = &d->words[i];
        memset(&out[i], 0, sizeof out[i]);
        out[i].word.t0_ms = w->t0_ms;
        out[i].word.t1_ms = w->t1_ms;
        out[i].word.probability = w->probability;
        out[i].word.first_token = w->first - first;
        out[i].word.n_tokens = w->n;
        out[i].word.text_length = tk_sanitize_utf8((char *)s->base + text, 3 * w->length + 1,
                                                   d->word_text + w->text, w->length);
        out[i].text = text;
        text += out[i].word.text_length + 1;
        for (k = w->first; k < w->first + w->n; k++) {
            tokens[k - first].t0_ms = al_clamp(d->at_ms[k], d->t0_ms, d->t1_ms);
            tokens[k - first].t1_ms = al_clamp(d->at_ms[k + 1], d->t0_ms, d->t1_ms);
        }
    }
    return text;
}

static void rs_put_origin(const rs_origin *o, wnpu_segment *s)
{
    s->mean_logprob = o->mean_logprob;
    s->no_speech = o->no_speech;
    s->temperature = o->temperature;
    s->compression_ratio = o->compression_ratio;
    s->first_logprob = o->first_logprob;
    s->retries = o->retries;
    s->reasons = o->reasons;
    s->accepted = o->accepted;
    s->prompted = o->prompted;
    s->device = o->device;
}

/* Stores a segment. *stored is 0 if it has no text. E_FULL leaves the store unchanged. */
static int rs_add(rs_store *s, const tk_vocab *v, const rs_draft *d, int *stored)
{
    size_t bytes = rs_join_tokens(v, d, NULL), at, tokens, words, text, raw, length;
    size_t spelled = d->n_words > 0 ? 3 * bytes + d->n_words : 0; /* bound of words' texts */
    rs_record record;
    uint32_t offset;
    *stored = 0;
    at = rs_find_room(s, s->used, sizeof record);
    tokens = rs_find_room(s, at + sizeof record, d->n * sizeof(wnpu_token));
    words = rs_find_room(s, tokens + d->n * sizeof(wnpu_token), d->n_words * sizeof(rs_word));
    text = rs_find_room(s, words + d->n_words * sizeof(rs_word), 3 * bytes + 1 + spelled);
    raw = rs_find_room(s, text + 3 * bytes + 1 + spelled, bytes); /* scratch */
    if (at == s->size || tokens == s->size || words == s->size || text == s->size ||
        raw == s->size) {
        return WNPU_E_FULL;
    }
    rs_join_tokens(v, d, (char *)s->base + raw);
    if (rs_blank((char *)s->base + raw, bytes)) {
        ar_wipe(s->base + raw, bytes);
        return WNPU_OK;
    }
    length = tk_sanitize_utf8((char *)s->base + text, 3 * bytes + 1, (char *)s->base + raw, bytes);
    s->base[text + length] = '\0';
    memset(s->base + s->used, 0, text - s->used); /* padding is part of snapshots */
    memset(&record, 0, sizeof record);
    record.segment.t0_ms = d->t0_ms;
    record.segment.t1_ms = d->t1_ms;
    record.segment.text_length = length;
    record.segment.n_tokens = rs_store_tokens(v, d, bytes,
                                              (wnpu_token *)(void *)(s->base + tokens));
    record.segment.language = d->language;
    record.segment.window = d->window;
    rs_put_origin(&d->origin, &record.segment);
    record.segment.voice = d->voice;
    record.text = text;
    record.tokens = tokens;
    record.words = words;
    record.n_words = d->n_words;
    memcpy(s->base + at, &record, sizeof record);
    offset = (uint32_t)at;
    s->count++;
    memcpy(s->base + s->size - s->count * sizeof offset, &offset, sizeof offset);
    s->used = rs_store_words(s, d, (rs_word *)(void *)(s->base + words), text + length + 1,
                             (wnpu_token *)(void *)(s->base + tokens));
    ar_wipe(s->base + s->used, raw + bytes - s->used); /* leave no text beyond the used bytes */
    *stored = 1;
    return WNPU_OK;
}

/* Ensures that RS_CHUNK more elements fit. */
static int rs_list_reserve(rs_store *s, rs_list *l)
{
    size_t bytes = sizeof(size_t) + RS_CHUNK * l->elem, at = rs_find_room(s, s->used, bytes);
    if (l->has_spare) {
        return WNPU_OK;
    }
    if (at == s->size) {
        return WNPU_E_FULL;
    }
    memset(s->base + s->used, 0, at + bytes - s->used);
    l->spare = at;
    l->has_spare = 1;
    s->used = at + bytes;
    return WNPU_OK;
}

static int rs_list_add(rs_store *s, rs_list *l, const void *thing)
{
    if (l->count % RS_CHUNK == 0) {
        if (rs_list_reserve(s, l) != WNPU_OK) {
            return WNPU_E_FULL;
        }
        if (l->count == 0) {
            l->first = l->spare;
        } else {
            memcpy(s->base + l->last, &l->spare, sizeof l->spare);
        }
        l->last = l->spare;
        l->has_spare = 0;
    }
    memcpy(s->base + l->last + sizeof(size_t) + l->count++ % RS_CHUNK * l->elem, thing, l->elem);
    return WNPU_OK;
}

/* NULL if index is out of range. */
static unsigned char *rs_list_get(const rs_store *s, const rs_list *l, size_t index)
{
    size_t at = l->first, i;
    if (index >= l->count) {
        return NULL;
    }
    for (i = RS_CHUNK; i <= index; i += RS_CHUNK) {
        memcpy(&at, s->base + at, sizeof at);
    }
    return s->base + at + sizeof at + index % RS_CHUNK * l->elem;
}

/* Span number index of the ledger; `rest` follows those in the list. */
static int rs_get_ledger(const rs_store *s, size_t index, wnpu_ledger_span *span)
{
    const unsigned char *found = rs_list_get(s, &s->ledger, index);
    if (found != NULL) {
        memcpy(span, found, sizeof *span);
    } else if (index == s->ledger.count && s->rest.t0_ms < s->rest.t1_ms) {
        *span = s->rest;
    } else {
        return WNPU_E_ARGUMENT;
    }
    return WNPU_OK;
}

/* Contiguous spans of the same kind are merged. */
static int rs_add_ledger(rs_store *s, const wnpu_ledger_span *span)
{
    wnpu_ledger_span last;
    size_t n = s->ledger.count;
    if (n > 0) {
        unsigned char *at = s->base + s->ledger.last + sizeof(size_t) +
                            (n - 1) % RS_CHUNK * sizeof last;
        memcpy(&last, at, sizeof last);
        if (last.kind == span->kind && last.reason == span->reason) {
            last.t1_ms = span->t1_ms;
            memcpy(at, &last, sizeof last);
            return WNPU_OK;
        }
    }
    return rs_list_add(s, &s->ledger, span);
}

/* ---- validation of a store from a snapshot ---- */

/* Bytes of a store that no part has claimed yet. Parts are claimed in the order in which they were
 * stored, so that every byte is checked once and no two parts overlap. */
typedef struct rs_claims {
    const unsigned char *front; /* start of the store; need not be aligned */
    size_t at, end;
    int64_t begin_ms, end_ms;   /* of the latest segment */
} rs_claims;

static int rs_claim(rs_claims *p, size_t at, size_t n, size_t elem)
{
    size_t bytes;
    if (ar_mul(n, elem, &bytes) != 0 || at < p->at || at > p->end || bytes > p->end - at ||
        (elem > 1 && at % 8 != 0)) {
        return 0;
    }
    p->at = at + bytes;
    return 1;
}

/* Claims a complete string of length bytes of valid UTF-8 without NUL. */
static int rs_claim_text(rs_claims *p, size_t at, size_t length)
{
    const char *text;
    size_t i, n;
    int cut;
    if (length >= p->end || !rs_claim(p, at, length + 1, 1)) {
        return 0;
    }
    text = (const char *)p->front + at;
    for (i = 0; i < length; i += n) {
        if (tk_decode_utf8(text + i, length - i, &n, &cut) <= 0) {
            return 0;
        }
    }
    return text[length] == '\0';
}

static int rs_is_time(int64_t t0_ms, int64_t t1_ms)
{
    return t0_ms >= 0 && t0_ms <= t1_ms && t1_ms <= (int64_t)1 << 50;
}

static int rs_is_within(float x, float low, float high)
{
    return x >= low && x <= high; /* false for NaN */
}

static int rs_claim_tokens(rs_claims *p, const rs_record *r, const tk_vocab *v)
{
    wnpu_token t;
    size_t i;
    if (!rs_claim(p, r->tokens, r->segment.n_tokens, sizeof t)) {
        return 0;
    }
    for (i = 0; i < r->segment.n_tokens; i++) {
        memcpy(&t, p->front + r->tokens + i * sizeof t, sizeof t);
        if (t.id < 0 || t.id >= v->eot || !rs_is_time(t.t0_ms, t.t1_ms) ||
            !rs_is_within(t.probability, 0.0f, 1.0f)) {
            return 0;
        }
    }
    return 1;
}

static int rs_claim_words(rs_claims *p, const rs_record *r)
{
    size_t i, tokens = r->segment.n_tokens;
    rs_word w;
    for (i = 0; i < r->n_words; i++) {
        memcpy(&w, p->front + r->words + i * sizeof w, sizeof w);
        if (!rs_claim_text(p, w.text, w.word.text_length) || w.word.first_token > tokens ||
            w.word.n_tokens > tokens - w.word.first_token ||
            !rs_is_time(w.word.t0_ms, w.word.t1_ms) ||
            !rs_is_within(w.word.probability, 0.0f, 1.001f)) {
            return 0;
        }
    }
    return 1;
}

/* Whether the fields of rs_origin are valid. */
static int rs_is_origin(const wnpu_segment *s)
{
    return rs_is_within(s->mean_logprob, -1e6f, 0.0f) && rs_is_within(s->no_speech, 0.0f, 1.001f) &&
           rs_is_within(s->temperature, 0.0f, 4.0f) &&
           rs_is_within(s->compression_ratio, 0.0f, 1e6f) &&
           rs_is_within(s->first_logprob, -1e6f, 1e-3f) && rs_is_within(s->voice, 0.0f, 1.0f) &&
           s->window >= 0 && s->retries >= 0 && s->reasons < 2u * WNPU_REFUSED_FIRST_TOKEN &&
           s->accepted >> 1 == 0 && s->prompted >> 1 == 0 && s->device >> 1 == 0;
}

static int rs_is_record(rs_claims *p, size_t at, const tk_vocab *v)
{
    const wnpu_segment *s;
    rs_record r;
    if (!rs_claim(p, at, 1, sizeof r)) {
        return 0;
    }
    memcpy(&r, p->front + at, sizeof r);
    s = &r.segment;
    if (s->t0_ms < p->begin_ms || !rs_is_origin(s)) {
        return 0;
    }
    p->begin_ms = s->t0_ms;
    p->end_ms = s->t1_ms > p->end_ms ? s->t1_ms : p->end_ms;
    return rs_is_time(s->t0_ms, s->t1_ms) && s->language >= 0 && s->language < TK_LANGUAGES &&
           rs_claim_tokens(p, &r, v) && rs_claim(p, r.words, r.n_words, sizeof(rs_word)) &&
           rs_claim_text(p, r.text, s->text_length) && rs_claim_words(p, &r);
}

/* The chunks of a list, from the first on. */
typedef struct rs_chain {
    const rs_list *list;
    size_t at, left;        /* next chunk; number of chunks left, including the spare one */
    size_t seen;            /* elements in previous chunks */
    int64_t end_ms;         /* end of the last element */
    int64_t step_ms;        /* speech only: all ends but the last are multiples of this */
} rs_chain;

static void rs_begin_chain(rs_chain *c, const rs_list *l)
{
    memset(c, 0, sizeof *c);
    c->list = l;
    c->left = (l->count / RS_CHUNK) + (l->count % RS_CHUNK > 0) + (l->has_spare != 0);
    c->at = l->count > 0 ? l->first : l->spare;
}

/* Whether lg_append() or aw_add_speech() can have added the span. Speech has neither kind nor
 * reason. */
static int rs_is_span(const rs_chain *c, const wnpu_ledger_span *span)
{
    int kind = span->reason >= WNPU_REASON_NO_TEXT ? WNPU_LEDGER_UNRESOLVED
               : span->reason > WNPU_REASON_NONE ? WNPU_LEDGER_SILENCE : WNPU_LEDGER_TEXT;
    if (!rs_is_time(span->t0_ms, span->t1_ms) || span->t0_ms == span->t1_ms ||
        span->t0_ms < c->end_ms) {
        return 0;
    }
    if (c->list->elem != sizeof *span) {
        return span->t0_ms % c->step_ms == 0 && c->end_ms % c->step_ms == 0;
    }
    return (span->t0_ms == c->end_ms && span->reason >= 0 &&
            span->reason <= WNPU_REASON_FAILED && span->kind == kind);
}

static int rs_claim_chunk(rs_claims *p, rs_chain *c)
{
    const rs_list *l = c->list;
    size_t at = c->at, spare = l->has_spare != 0;
    size_t end = l->count - c->seen < RS_CHUNK ? l->count : c->seen + RS_CHUNK;
    const unsigned char *thing;
    wnpu_ledger_span span;
    if (!rs_claim(p, at, 1, sizeof at + RS_CHUNK * l->elem)) {
        return 0;
    }
    memcpy(&c->at, p->front + at, sizeof c->at);
    for (thing = p->front + at + sizeof at; c->seen < end; c->seen++, thing += l->elem) {
        memset(&span, 0, sizeof span);
        memcpy(&span, thing, l->elem);
        if (!rs_is_span(c, &span)) {
            return 0;
        }
        c->end_ms = span.t1_ms;
    }
    if (--c->left == spare) { /* the last non-empty chunk has no successor */
        c->at = l->spare;
        return at == l->last;
    }
    return 1;
}

/* Whether s can have been written by rs_add() and rs_list_add(): reading from it then stays within
 * it, and adding to it overwrites nothing. front and offsets (the record of the last segment comes
 * first) replace its memory and need not be aligned. Also determines the end of each list. */
typedef struct rs_ends {
    int64_t speech_ms, ledger_ms, text_ms;
    int64_t step_ms;        /* input: step of the detector */
} rs_ends;

static int rs_is_store(const rs_store *s, const unsigned char *front, const unsigned char *offsets,
                       const tk_vocab *v, rs_ends *ends)
{
    size_t records = s->count;
    rs_chain speech, ledger;
    rs_claims p;
    int good = 1;
    memset(&p, 0, sizeof p);
    p.front = front;
    p.end = s->used;
    rs_begin_chain(&speech, &s->speech);
    speech.step_ms = ends->step_ms;
    rs_begin_chain(&ledger, &s->ledger);
    while (good && (records > 0 || speech.left > 0 || ledger.left > 0)) {
        size_t a = speech.left > 0 ? speech.at : SIZE_MAX;
        size_t b = ledger.left > 0 ? ledger.at : SIZE_MAX, c = SIZE_MAX;
        uint32_t offset;
        if (records > 0) {
            memcpy(&offset, offsets + (records - 1) * sizeof offset, sizeof offset);
            c = offset;
        }
        if (c < a && c < b) { /* in the order of their addresses */
            good = rs_is_record(&p, c, v);
            records--;
        } else {
            good = rs_claim_chunk(&p, a < b ? &speech : &ledger);
        }
    }
    ends->speech_ms = speech.end_ms;
    ends->ledger_ms = ledger.end_ms;
    ends->text_ms = p.end_ms;
    return good;
}

/* The record of an existing segment. */
static rs_record rs_get_record(const rs_store *s, size_t index)
{
    rs_record record;
    uint32_t offset;
    memcpy(&offset, s->base + s->size - (index + 1) * sizeof offset, sizeof offset);
    memcpy(&record, s->base + offset, sizeof record);
    return record;
}

static int rs_get(const rs_store *s, size_t index, wnpu_segment *segment)
{
    rs_record record;
    if (index >= s->count) {
        return WNPU_E_ARGUMENT;
    }
    record = rs_get_record(s, index);
    *segment = record.segment;
    segment->text = (const char *)s->base + record.text;
    segment->tokens = (const wnpu_token *)(const void *)(s->base + record.tokens);
    return WNPU_OK;
}

static size_t rs_word_count(const rs_store *s, size_t segment)
{
    return segment < s->count ? rs_get_record(s, segment).n_words : 0;
}

static int rs_get_word(const rs_store *s, size_t segment, size_t index, wnpu_word *word)
{
    rs_word w;
    if (index >= rs_word_count(s, segment)) {
        return WNPU_E_ARGUMENT;
    }
    memcpy(&w, s->base + rs_get_record(s, segment).words + index * sizeof w, sizeof w);
    *word = w.word;
    word->text = (const char *)s->base + w.text;
    return WNPU_OK;
}

/* Buffered output to the host's function; after a failure the rest is discarded. */
typedef struct rs_out {
    wnpu_write_fn write;
    void *user;
    size_t used;
    int failed;
    char buffer[1024];
} rs_out;

static void rs_flush(rs_out *o)
{
    size_t done = 0;
    while (!o->failed && done < o->used) {
        int64_t n = o->write(o->user, o->buffer + done, o->used - done);
        (void)er_float_default();
        if (n <= 0 || (uint64_t)n > o->used - done) {
            o->failed = 1;
        } else {
            done += (size_t)n;
        }
    }
    o->used = 0;
}

static void rs_bytes(rs_out *o, const char *bytes, size_t n)
{
    while (n > 0) {
        size_t part = sizeof o->buffer - o->used;
        part = part < n ? part : n;
        memcpy(o->buffer + o->used, bytes, part);
        o->used += part;
        bytes += part;
        n -= part;
        if (o->used == sizeof o->buffer) {
            rs_flush(o);
        }
    }
}

static void rs_text(rs_out *o, const char *text)
{
    rs_bytes(o, text, strlen(text));
}

/* Decimal number with at least width digits. */
static void rs_number(rs_out *o, int64_t value, int width)
{
    char digits[24];
    size_t at = sizeof digits;
    uint64_t left = value < 0 ? 0u - (uint64_t)value : (uint64_t)value;
    do {
        digits[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0 || (int)(sizeof digits - at) < width);
    if (value < 0) {
        digits[--at] = '-';
    }
    rs_bytes(o, digits + at, sizeof digits - at);
}

/* Writes value with six decimals; null if it is not finite. */
static void rs_fraction(rs_out *o, float value)
{
    double scaled = (double)value * 1e6;
    int64_t whole;
    if (!(scaled > -1e15 && scaled < 1e15)) {
        rs_text(o, "null");
        return;
    }
    whole = (int64_t)(scaled < 0.0 ? scaled - 0.5 : scaled + 0.5);
    if (whole < 0) {
        rs_text(o, "-");
        whole = -whole;
    }
    rs_number(o, whole / 1000000, 1);
    rs_text(o, ".");
    rs_number(o, whole % 1000000, 6);
}

/* Milliseconds as seconds with three decimals. */
static void rs_seconds(rs_out *o, int64_t ms)
{
    rs_number(o, ms / 1000, 1);
    rs_text(o, ".");
    rs_number(o, ms % 1000, 3);
}

static void rs_clock(rs_out *o, int64_t ms, const char *mark)
{
    rs_number(o, ms / 3600000, 2);
    rs_text(o, ":");
    rs_number(o, ms / 60000 % 60, 2);
    rs_text(o, ":");
    rs_number(o, ms / 1000 % 60, 2);
    rs_text(o, mark);
    rs_number(o, ms % 1000, 3);
}

/* The contents of a JSON string. */
static void rs_json_escaped(rs_out *o, const char *text, size_t length)
{
    static const char hex[] = "0123456789abcdef";
    size_t i;
    for (i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\') {
            rs_text(o, "\\");
            rs_bytes(o, &text[i], 1);
        } else if (c < 32) {
            rs_text(o, "\\u00");
            rs_bytes(o, &hex[c >> 4], 1);
            rs_bytes(o, &hex[c & 15], 1);
        } else {
            rs_bytes(o, &text[i], 1);
        }
    }
}

static void rs_json_string(rs_out *o, const char *text, size_t length)
{
    rs_text(o, "\"");
    rs_json_escaped(o, text, length);
    rs_text(o, "\"");
}

static void rs_json_tokens(rs_out *o, const tk_vocab *v, const wnpu_segment *s)
{
    size_t i, length, n;
    char text[1024];
    rs_text(o, ",\n   \"tokens\": [");
    for (i = 0; i < s->n_tokens; i++) {
        const char *bytes = tk_text(v, s->tokens[i].id, &length);
        n = bytes != NULL ? tk_sanitize_utf8(text, sizeof text, bytes, length) : 0;
        n = n < sizeof text ? n : 0;
        rs_text(o, i > 0 ? ",\n    {\"id\": " : "\n    {\"id\": ");
        rs_number(o, s->tokens[i].id, 1);
        rs_text(o, ", \"text\": ");
        rs_json_string(o, text, n);
        rs_text(o, ", \"start\": ");
        rs_seconds(o, s->tokens[i].t0_ms);
        rs_text(o, ", \"end\": ");
        rs_seconds(o, s->tokens[i].t1_ms);
        rs_text(o, ", \"probability\": ");
        rs_fraction(o, s->tokens[i].probability);
        rs_text(o, "}");
    }
    rs_text(o, "]");
}

/* Member names are those of OpenAI's JSON. */
static void rs_json_words(rs_out *o, const rs_store *store, size_t segment)
{
    size_t i;
    wnpu_word w;
    if (rs_word_count(store, segment) == 0) {
        return;
    }
    rs_text(o, ",\n   \"words\": [");
    for (i = 0; rs_get_word(store, segment, i, &w) == WNPU_OK; i++) {
        rs_text(o, i > 0 ? ",\n    {\"word\": " : "\n    {\"word\": ");
        rs_json_string(o, w.text, w.text_length);
        rs_text(o, ", \"start\": ");
        rs_seconds(o, w.t0_ms);
        rs_text(o, ", \"end\": ");
        rs_seconds(o, w.t1_ms);
        rs_text(o, ", \"probability\": ");
        rs_fraction(o, w.probability);
        rs_text(o, "}");
    }
    rs_text(o, "]");
}

static void rs_json_language(rs_out *o, int32_t language)
{
    const char *code = wnpu_language_code(language);
    rs_json_string(o, code, strlen(code));
}

/* A member of an object, preceded by a comma. */
static void rs_json_member(rs_out *o, const char *name, float value)
{
    rs_text(o, ", \"");
    rs_text(o, name);
    rs_text(o, "\": ");
    rs_fraction(o, value);
}

static void rs_json_count(rs_out *o, const char *name, int64_t value)
{
    rs_text(o, ", \"");
    rs_text(o, name);
    rs_text(o, "\": ");
    rs_number(o, value, 1);
}

/* How the text was decoded. */
static void rs_json_origin(rs_out *o, const wnpu_segment *s)
{
    static const char *const reasons[] = {"loop", "compression_ratio", "avg_logprob",
                                          "first_token"}; /* bits of wnpu_refusal */
    size_t i, n = 0;
    rs_json_member(o, "avg_logprob", s->mean_logprob);
    rs_json_member(o, "no_speech_prob", s->no_speech);
    rs_text(o, ",\n   \"temperature\": ");
    rs_fraction(o, s->temperature);
    rs_json_member(o, "compression_ratio", s->compression_ratio);
    rs_json_member(o, "first_logprob", s->first_logprob);
    rs_json_count(o, "retries", s->retries);
    rs_text(o, ", \"reasons\": [");
    for (i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (s->reasons >> i & 1u) {
            rs_text(o, n++ > 0 ? ", \"" : "\"");
            rs_text(o, reasons[i]);
            rs_text(o, "\"");
        }
    }
    rs_text(o, s->accepted ? "], \"accepted\": true" : "], \"accepted\": false");
    rs_text(o, s->prompted ? ", \"prompted\": true" : ", \"prompted\": false");
}

/* Languages with a probability of at least 0.001; wnpu_get_languages() returns all. */
static void rs_json_languages(rs_out *o, const rs_summary *m)
{
    int32_t i;
    int n = 0;
    rs_text(o, ",\n \"languages\": {");
    for (i = 0; i < m->n_languages; i++) {
        if (m->languages[i] >= 0.001f) {
            rs_text(o, n++ > 0 ? ", " : "");
            rs_json_language(o, i);
            rs_text(o, ": ");
            rs_fraction(o, m->languages[i]);
        }
    }
    rs_text(o, "}");
}

static void rs_json_choice(rs_out *o, const wnpu_choice *c)
{
    rs_text(o, ",\n \"choice\": {\"best\": ");
    rs_number(o, c->best, 1);
    rs_json_member(o, "logprob", c->best_logprob);
    rs_json_count(o, "second", c->second);
    rs_json_member(o, "second_logprob", c->second_logprob);
    rs_json_member(o, "margin", c->margin);
    rs_text(o, "}");
}

WNPU_API const char *wnpu_ledger_reason_name(int reason)
{
    static const char *const names[] = {
        "none", "no-voice", "no-speech", "pause", "no-text", "cancelled", "full", "input", "failed"
    };
    return reason >= 0 && reason < (int)(sizeof names / sizeof names[0]) ? names[reason] : NULL;
}

static void rs_json_times(rs_out *o, size_t index, int64_t t0_ms, int64_t t1_ms)
{
    rs_text(o, index > 0 ? ",\n  {\"start\": " : "\n  {\"start\": ");
    rs_seconds(o, t0_ms);
    rs_text(o, ", \"end\": ");
    rs_seconds(o, t1_ms);
}

static void rs_json_ledger(rs_out *o, const rs_store *store)
{
    static const char *const kinds[] = {"text", "silence", "unresolved"};
    const unsigned char *at;
    wnpu_speech_span speech;
    wnpu_ledger_span span;
    size_t i;
    rs_text(o, ",\n \"speech\": [");
    for (i = 0; (at = rs_list_get(store, &store->speech, i)) != NULL; i++) {
        memcpy(&speech, at, sizeof speech);
        rs_json_times(o, i, speech.t0_ms, speech.t1_ms);
        rs_text(o, "}");
    }
    rs_text(o, "],\n \"ledger\": [");
    for (i = 0; rs_get_ledger(store, i, &span) == WNPU_OK; i++) {
        rs_json_times(o, i, span.t0_ms, span.t1_ms);
        rs_text(o, ", \"kind\": \"");
        rs_text(o, kinds[span.kind]);
        rs_text(o, "\", \"reason\": \"");
        rs_text(o, wnpu_ledger_reason_name(span.reason));
        rs_text(o, "\"}");
    }
    rs_text(o, "]");
}

/* Devices are included only on request: without them the output is the same on all machines. */
static void rs_json(rs_out *o, const rs_store *store, const tk_vocab *v, const rs_summary *m,
                    int devices)
{
    size_t i;
    wnpu_segment s;
    rs_text(o, "{\"language\": ");
    rs_json_language(o, m->language);
    rs_text(o, ",\n \"duration\": ");
    rs_seconds(o, m->duration_ms);
    if (m->languages != NULL) {
        rs_json_languages(o, m);
    }
    if (m->choice != NULL) {
        rs_json_choice(o, m->choice);
    }
    rs_text(o, ",\n \"text\": \"");
    for (i = 0; rs_get(store, i, &s) == WNPU_OK; i++) {
        rs_json_escaped(o, s.text, s.text_length);
    }
    rs_text(o, "\",\n \"segments\": [");
    for (i = 0; rs_get(store, i, &s) == WNPU_OK; i++) {
        rs_text(o, i > 0 ? ",\n  {\"id\": " : "\n  {\"id\": ");
        rs_number(o, (int64_t)i, 1);
        rs_text(o, ", \"start\": ");
        rs_seconds(o, s.t0_ms);
        rs_text(o, ", \"end\": ");
        rs_seconds(o, s.t1_ms);
        rs_text(o, ",\n   \"text\": ");
        rs_json_string(o, s.text, s.text_length);
        rs_text(o, ",\n   \"language\": ");
        rs_json_language(o, s.language);
        rs_json_count(o, "window", s.window);
        rs_json_origin(o, &s);
        rs_json_member(o, "voice", s.voice);
        if (devices) {
            rs_text(o, s.device == WNPU_DEVICE_ACCEL ? ", \"device\": \"accelerator\""
                                                     : ", \"device\": \"cpu\"");
        }
        rs_json_words(o, store, i);
        rs_json_tokens(o, v, &s);
        rs_text(o, "}");
    }
    rs_text(o, "]");
    rs_json_ledger(o, store);
    rs_text(o, "}\n");
}

/* ---- text in columns ----
 * Ranges of Unicode 14.0: categories M and Cf and the vowels and finals of Hangul have no width,
 * East Asian wide characters and emoji have two columns. */

static const uint32_t rs_marks[][2] = {
    {0x300, 0x36f}, {0x483, 0x489}, {0x591, 0x5bd}, {0x5bf, 0x5bf}, {0x5c1, 0x5c2}, {0x5c4, 0x5c5},
    {0x5c7, 0x5c7}, {0x600, 0x605}, {0x610, 0x61a}, {0x61c, 0x61c}, {0x64b, 0x65f}, {0x670, 0x670},
    {0x6d6, 0x6dd}, {0x6df, 0x6e4}, {0x6e7, 0x6e8}, {0x6ea, 0x6ed}, {0x70f, 0x70f}, {0x711, 0x711},
    {0x730, 0x74a}, {0x7a6, 0x7b0}, {0x7eb, 0x7f3}, {0x7fd, 0x7fd}, {0x816, 0x819}, {0x81b, 0x823},
    {0x825, 0x827}, {0x829, 0x82d}, {0x859, 0x85b}, {0x890, 0x89f}, {0x8ca, 0x903}, {0x93a, 0x93c},
    {0x93e, 0x94f}, {0x951, 0x957}, {0x962, 0x963}, {0x981, 0x983}, {0x9bc, 0x9bc}, {0x9be, 0x9cd},
    {0x9d7, 0x9d7}, {0x9e2, 0x9e3}, {0x9fe, 0xa03}, {0xa3c, 0xa51}, {0xa70, 0xa71}, {0xa75, 0xa75},
    {0xa81, 0xa83}, {0xabc, 0xabc}, {0xabe, 0xacd}, {0xae2, 0xae3}, {0xafa, 0xb03}, {0xb3c, 0xb3c},
    {0xb3e, 0xb57}, {0xb62, 0xb63}, {0xb82, 0xb82}, {0xbbe, 0xbcd}, {0xbd7, 0xbd7}, {0xc00, 0xc04},
    {0xc3c, 0xc3c}, {0xc3e, 0xc56}, {0xc62, 0xc63}, {0xc81, 0xc83}, {0xcbc, 0xcbc}, {0xcbe, 0xcd6},
    {0xce2, 0xce3}, {0xd00, 0xd03}, {0xd3b, 0xd3c}, {0xd3e, 0xd4d}, {0xd57, 0xd57}, {0xd62, 0xd63},
    {0xd81, 0xd83}, {0xdca, 0xddf}, {0xdf2, 0xdf3}, {0xe31, 0xe31}, {0xe34, 0xe3a}, {0xe47, 0xe4e},
    {0xeb1, 0xeb1}, {0xeb4, 0xebc}, {0xec8, 0xecd}, {0xf18, 0xf19}, {0xf35, 0xf35}, {0xf37, 0xf37},
    {0xf39, 0xf39}, {0xf3e, 0xf3f}, {0xf71, 0xf84}, {0xf86, 0xf87}, {0xf8d, 0xfbc}, {0xfc6, 0xfc6},
    {0x102b, 0x103e}, {0x1056, 0x1059}, {0x105e, 0x1060}, {0x1062, 0x1064}, {0x1067, 0x106d},
    {0x1071, 0x1074}, {0x1082, 0x108d}, {0x108f, 0x108f}, {0x109a, 0x109d}, {0x1160, 0x11ff},
    {0x135d, 0x135f}, {0x1712, 0x1715}, {0x1732, 0x1734}, {0x1752, 0x1753}, {0x1772, 0x1773},
    {0x17b4, 0x17d3}, {0x17dd, 0x17dd}, {0x180b, 0x180f}, {0x1885, 0x1886}, {0x18a9, 0x18a9},
    {0x1920, 0x193b}, {0x1a17, 0x1a1b}, {0x1a55, 0x1a7f}, {0x1ab0, 0x1b04}, {0x1b34, 0x1b44},
    {0x1b6b, 0x1b73}, {0x1b80, 0x1b82}, {0x1ba1, 0x1bad}, {0x1be6, 0x1bf3}, {0x1c24, 0x1c37},
    {0x1cd0, 0x1cd2}, {0x1cd4, 0x1ce8}, {0x1ced, 0x1ced}, {0x1cf4, 0x1cf4}, {0x1cf7, 0x1cf9},
    {0x1dc0, 0x1dff}, {0x200b, 0x200f}, {0x202a, 0x202e}, {0x2060, 0x206f}, {0x20d0, 0x20f0},
    {0x2cef, 0x2cf1}, {0x2d7f, 0x2d7f}, {0x2de0, 0x2dff}, {0x302a, 0x302f}, {0x3099, 0x309a},
    {0xa66f, 0xa672}, {0xa674, 0xa67d}, {0xa69e, 0xa69f}, {0xa6f0, 0xa6f1}, {0xa802, 0xa802},
    {0xa806, 0xa806}, {0xa80b, 0xa80b}, {0xa823, 0xa827}, {0xa82c, 0xa82c}, {0xa880, 0xa881},
    {0xa8b4, 0xa8c5}, {0xa8e0, 0xa8f1}, {0xa8ff, 0xa8ff}, {0xa926, 0xa92d}, {0xa947, 0xa953},
    {0xa980, 0xa983}, {0xa9b3, 0xa9c0}, {0xa9e5, 0xa9e5}, {0xaa29, 0xaa36}, {0xaa43, 0xaa43},
    {0xaa4c, 0xaa4d}, {0xaa7b, 0xaa7d}, {0xaab0, 0xaab0}, {0xaab2, 0xaab4}, {0xaab7, 0xaab8},
    {0xaabe, 0xaabf}, {0xaac1, 0xaac1}, {0xaaeb, 0xaaef}, {0xaaf5, 0xaaf6}, {0xabe3, 0xabea},
    {0xabec, 0xabed}, {0xfb1e, 0xfb1e}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xfeff, 0xfeff},
    {0xfff9, 0xfffb}, {0x101fd, 0x101fd}, {0x102e0, 0x102e0}, {0x10376, 0x1037a},
    {0x10a01, 0x10a0f}, {0x10a38, 0x10a3f}, {0x10ae5, 0x10ae6}, {0x10d24, 0x10d27},
    {0x10eab, 0x10eac}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11000, 0x11002},
    {0x11038, 0x11046}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x1107f, 0x11082},
    {0x110b0, 0x110ba}, {0x110bd, 0x110bd}, {0x110c2, 0x110cd}, {0x11100, 0x11102},
    {0x11127, 0x11134}, {0x11145, 0x11146}, {0x11173, 0x11173}, {0x11180, 0x11182},
    {0x111b3, 0x111c0}, {0x111c9, 0x111cc}, {0x111ce, 0x111cf}, {0x1122c, 0x11237},
    {0x1123e, 0x1123e}, {0x112df, 0x112ea}, {0x11300, 0x11303}, {0x1133b, 0x1133c},
    {0x1133e, 0x1134d}, {0x11357, 0x11357}, {0x11362, 0x11374}, {0x11435, 0x11446},
    {0x1145e, 0x1145e}, {0x114b0, 0x114c3}, {0x115af, 0x115c0}, {0x115dc, 0x115dd},
    {0x11630, 0x11640}, {0x116ab, 0x116b7}, {0x1171d, 0x1172b}, {0x1182c, 0x1183a},
    {0x11930, 0x1193e}, {0x11940, 0x11940}, {0x11942, 0x11943}, {0x119d1, 0x119e0},
    {0x119e4, 0x119e4}, {0x11a01, 0x11a0a}, {0x11a33, 0x11a39}, {0x11a3b, 0x11a3e},
    {0x11a47, 0x11a47}, {0x11a51, 0x11a5b}, {0x11a8a, 0x11a99}, {0x11c2f, 0x11c3f},
    {0x11c92, 0x11cb6}, {0x11d31, 0x11d45}, {0x11d47, 0x11d47}, {0x11d8a, 0x11d97},
    {0x11ef3, 0x11ef6}, {0x13430, 0x13438}, {0x16af0, 0x16af4}, {0x16b30, 0x16b36},
    {0x16f4f, 0x16f4f}, {0x16f51, 0x16f92}, {0x16fe4, 0x16ff1}, {0x1bc9d, 0x1bc9e},
    {0x1bca0, 0x1cf46}, {0x1d165, 0x1d169}, {0x1d16d, 0x1d182}, {0x1d185, 0x1d18b},
    {0x1d1aa, 0x1d1ad}, {0x1d242, 0x1d244}, {0x1da00, 0x1da36}, {0x1da3b, 0x1da6c},
    {0x1da75, 0x1da75}, {0x1da84, 0x1da84}, {0x1da9b, 0x1daaf}, {0x1e000, 0x1e02a},
    {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e8d0, 0x1e8d6},
    {0x1e944, 0x1e94a}, {0xe0001, 0xe01ef}
};

static const uint32_t rs_wide[][2] = {
    {0x1100, 0x115f}, {0x231a, 0x231b}, {0x2329, 0x232a}, {0x23e9, 0x23ec}, {0x23f0, 0x23f0},
    {0x23f3, 0x23f3}, {0x25fd, 0x25fe}, {0x2614, 0x2615}, {0x2648, 0x2653}, {0x267f, 0x267f},
    {0x2693, 0x2693}, {0x26a1, 0x26a1}, {0x26aa, 0x26ab}, {0x26bd, 0x26be}, {0x26c4, 0x26c5},
    {0x26ce, 0x26ce}, {0x26d4, 0x26d4}, {0x26ea, 0x26ea}, {0x26f2, 0x26f3}, {0x26f5, 0x26f5},
    {0x26fa, 0x26fa}, {0x26fd, 0x26fd}, {0x2705, 0x2705}, {0x270a, 0x270b}, {0x2728, 0x2728},
    {0x274c, 0x274c}, {0x274e, 0x274e}, {0x2753, 0x2755}, {0x2757, 0x2757}, {0x2795, 0x2797},
    {0x27b0, 0x27b0}, {0x27bf, 0x27bf}, {0x2b1b, 0x2b1c}, {0x2b50, 0x2b50}, {0x2b55, 0x2b55},
    {0x2e80, 0x303e}, {0x3041, 0xa4cf}, {0xa960, 0xa97f}, {0xac00, 0xd7a3}, {0xf900, 0xfaff},
    {0xfe30, 0xfe6f}, {0xff01, 0xff60}, {0xffe0, 0xffe6}, {0x1f1e6, 0x1f1ff}, {0x1f300, 0x1f64f},
    {0x1f680, 0x1f6ff}, {0x1f7e0, 0x1f7eb}, {0x1f900, 0x1f9ff}, {0x1fa70, 0x1faff},
    {0x20000, 0x3fffd}
};

/* Closing punctuation and small kana must not begin a line, opening punctuation must not end
 * one. */
static const uint32_t rs_closing[][2] = {
    {0x21, 0x21}, {0x25, 0x25}, {0x29, 0x29}, {0x2c, 0x2c}, {0x2e, 0x2e}, {0x3a, 0x3b},
    {0x3f, 0x3f}, {0x5d, 0x5d}, {0x7d, 0x7d}, {0xbb, 0xbb}, {0x2019, 0x2019}, {0x201d, 0x201d},
    {0x2026, 0x2026}, {0x203c, 0x203c}, {0x3001, 0x3002}, {0x3005, 0x3005}, {0x3009, 0x3009},
    {0x300b, 0x300b}, {0x300d, 0x300d}, {0x300f, 0x300f}, {0x3011, 0x3011}, {0x3015, 0x3015},
    {0x3017, 0x3017}, {0x301c, 0x301c}, {0x3041, 0x3041}, {0x3043, 0x3043}, {0x3045, 0x3045},
    {0x3047, 0x3047}, {0x3049, 0x3049}, {0x3063, 0x3063}, {0x3083, 0x3083}, {0x3085, 0x3085},
    {0x3087, 0x3087}, {0x308e, 0x308e}, {0x309d, 0x309e}, {0x30a1, 0x30a1}, {0x30a3, 0x30a3},
    {0x30a5, 0x30a5}, {0x30a7, 0x30a7}, {0x30a9, 0x30a9}, {0x30c3, 0x30c3}, {0x30e3, 0x30e3},
    {0x30e5, 0x30e5}, {0x30e7, 0x30e7}, {0x30ee, 0x30ee}, {0x30f5, 0x30f6}, {0x30fb, 0x30fe},
    {0xff01, 0xff01}, {0xff05, 0xff05}, {0xff09, 0xff09}, {0xff0c, 0xff0c}, {0xff0e, 0xff0e},
    {0xff1a, 0xff1b}, {0xff1f, 0xff1f}, {0xff3d, 0xff3d}, {0xff5d, 0xff5d}
};
static const uint32_t rs_opening[][2] = {
    {0x28, 0x28}, {0x5b, 0x5b}, {0x7b, 0x7b}, {0xab, 0xab}, {0x2018, 0x2018}, {0x201c, 0x201c},
    {0x3008, 0x3008}, {0x300a, 0x300a}, {0x300c, 0x300c}, {0x300e, 0x300e}, {0x3010, 0x3010},
    {0x3014, 0x3014}, {0x3016, 0x3016}, {0xff08, 0xff08}, {0xff3b, 0xff3b}, {0xff5b, 0xff5b}
};
#define RS_IN(ranges, code) tk_in((ranges), sizeof (ranges) / sizeof (ranges)[0], (code))

/* Control characters and other line separators count as spaces in line-based formats. */
static int rs_is_blank(int32_t c)
{
    return (c >= 0 && c <= 32) || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029;
}

/* Scripts that do not separate words by spaces, and their punctuation. */
static int rs_is_unspaced(int32_t c)
{
    return lr_is_unspaced_script(c) || (c >= 0x3001 && c <= 0x303f) || (c >= 0xff01 && c <= 0xff60);
}

/* A character with its combining marks. */
typedef struct rs_glyph {
    int32_t code;           /* first code point; -1: invalid UTF-8 */
    size_t length, width;   /* bytes, columns */
} rs_glyph;

static rs_glyph rs_next_glyph(const char *text, size_t length)
{
    rs_glyph g;
    size_t used;
    int cut, joined = 0;
    g.code = tk_decode_utf8(text, length, &g.length, &cut);
    g.width = RS_IN(rs_marks, (uint32_t)g.code) ? 0 : RS_IN(rs_wide, (uint32_t)g.code) ? 2 : 1;
    while (g.length < length && !rs_is_blank(g.code)) {
        int32_t c = tk_decode_utf8(text + g.length, length - g.length, &used, &cut);
        /* U+200D joins emoji; U+1F3FB to U+1F3FF are skin tones of the previous one. */
        if (!joined && !RS_IN(rs_marks, (uint32_t)c) && !(c >= 0x1f3fb && c <= 0x1f3ff)) {
            break;
        }
        joined = c == 0x200d;
        g.length += used;
    }
    return g;
}

/* ---- atoms: the indivisible parts of lines and cues ---- */

enum {
    RS_ATOMS = 128,         /* most atoms of a cue */
    RS_PAUSE_MS = 300,      /* between words: nearly as good for a break as a comma */
    RS_LONG_PAUSE_MS = 1500 /* cues avoid to span it */
};

/* Places for breaks, best first. */
typedef enum rs_place {
    RS_AT_SEGMENT, RS_AT_SENTENCE, RS_AT_CLAUSE, RS_AT_PAUSE, RS_AT_SPACE, RS_AT_CHARACTER,
    RS_AFTER_SHORT_WORD, /* after a short word, which usually belongs to the next one */
    RS_IN_WORD, RS_PLACES
} rs_place;

/* A word; or a character of a script without spaces, with its punctuation; or part of a word longer
 * than a line. At most one line long. */
typedef struct rs_atom {
    const char *text;       /* points into the segment's text, without surrounding spaces */
    size_t length, width;   /* bytes, columns */
    int64_t t0_ms, t1_ms;
    size_t segment, end;    /* segment, and byte after the atom */
    unsigned char place;    /* rs_place before the atom */
    unsigned char spaced;   /* preceded by a space, unless it begins a line */
    unsigned char line;     /* begins a line */
} rs_atom;

/* Iterates over the atoms of all segments. */
typedef struct rs_reader {
    const rs_store *store;
    size_t line_width;      /* 0: no limit */
    size_t segment, at;     /* of the next atom: segment, byte in its text */
    wnpu_segment s;         /* the current segment, if any */
    int open, timed;        /* s is loaded; its words make up its text */
    size_t word, word_at;   /* current word, and the byte where it begins */
    wnpu_word w;
} rs_reader;

/* Whether the words of a segment make up its text, so that each part of it has a time. */
static int rs_is_timed(const rs_store *store, size_t segment, const wnpu_segment *s)
{
    size_t i, at = 0;
    wnpu_word w;
    for (i = 0; rs_get_word(store, segment, i, &w) == WNPU_OK; i++) {
        if (w.text_length > s->text_length - at ||
            memcmp(w.text, s->text + at, w.text_length) != 0) {
            return 0;
        }
        at += w.text_length;
    }
    return i > 0 && at == s->text_length;
}

/* Loads the segment if necessary. Returns 0 if there is none. */
static int rs_read_segment(rs_reader *r)
{
    if (!r->open && rs_get(r->store, r->segment, &r->s) == WNPU_OK) {
        r->open = 1;
        r->timed = rs_is_timed(r->store, r->segment, &r->s);
        r->word = r->word_at = 0;
        if (r->timed) {
            (void)rs_get_word(r->store, r->segment, 0, &r->w);
        }
    }
    return r->open;
}

/* Time at which byte `at` of the segment's text is spoken or, if `end` is set, at which the text
 * before it ends: from the words or, without them, in proportion to the bytes. Calls must have
 * ascending bytes. */
static int64_t rs_time_at(rs_reader *r, size_t at, int end)
{
    int64_t t0 = r->s.t0_ms, t1 = r->s.t1_ms;
    size_t first = 0, last = r->s.text_length;
    if (r->timed) {
        while (r->word_at + r->w.text_length < at + !end &&
               rs_get_word(r->store, r->segment, r->word + 1, &r->w) == WNPU_OK) {
            wnpu_word before;
            (void)rs_get_word(r->store, r->segment, r->word++, &before);
            r->word_at += before.text_length;
        }
        t0 = r->w.t0_ms;
        t1 = r->w.t1_ms;
        first = r->word_at;
        last = r->word_at + r->w.text_length;
    }
    while (first < last && r->s.text[first] == ' ') {
        first++;
    }
    while (last > first && r->s.text[last - 1] == ' ') {
        last--;
    }
    return at <= first ? t0 : at >= last ? t1
         : t0 + (t1 - t0) * (int64_t)(at - first) / (int64_t)(last - first);
}

/* Skips spaces. Returns their number in bytes. */
static size_t rs_skip_blanks(rs_reader *r)
{
    size_t used, from = r->at;
    int cut;
    while (r->at < r->s.text_length &&
           rs_is_blank(tk_decode_utf8(r->s.text + r->at, r->s.text_length - r->at, &used, &cut))) {
        r->at += used;
    }
    return r->at - from;
}

/* Whether a line may be broken between the two characters. */
static int rs_may_break(int32_t before, int32_t after)
{
    return (rs_is_unspaced(before) || rs_is_unspaced(after)) &&
           !RS_IN(rs_closing, (uint32_t)after) && !RS_IN(rs_opening, (uint32_t)before);
}

/* Place after text according to its punctuation, which quotes and brackets may follow. A short word
 * with a full stop is regarded as an abbreviation. */
static rs_place rs_place_after(const char *text, size_t length)
{
    static const char *const sentences[] = {".", "?", "!", "\xe2\x80\xa6", "\xe3\x80\x82",
                                            "\xef\xbc\x9f", "\xef\xbc\x81", "\xd8\x9f",
                                            "\xe0\xa5\xa4"};
    static const char *const clauses[] = {",", ";", ":", "\xe2\x80\x94", "\xe2\x80\x93",
                                          "\xe3\x80\x81", "\xef\xbc\x8c", "\xef\xbc\x9a",
                                          "\xef\xbc\x9b", "\xd8\x8c"};
    size_t i, n;
    while (length > 1 && strchr("\"')]}", text[length - 1]) != NULL) {
        length--;
    }
    if (length > 3 && (memcmp(text + length - 3, "\xe2\x80\x9d", 3) == 0 ||
                       memcmp(text + length - 3, "\xe3\x80\x8d", 3) == 0)) {
        length -= 3;
    }
    for (i = 0; i < sizeof sentences / sizeof sentences[0]; i++) {
        n = strlen(sentences[i]);
        if (length >= n && memcmp(text + length - n, sentences[i], n) == 0) {
            return i == 0 && length <= 3 ? RS_AT_CLAUSE : RS_AT_SENTENCE;
        }
    }
    for (i = 0; i < sizeof clauses / sizeof clauses[0]; i++) {
        n = strlen(clauses[i]);
        if (length >= n && memcmp(text + length - n, clauses[i], n) == 0) {
            return RS_AT_CLAUSE;
        }
    }
    return RS_AT_SPACE;
}

/* Place between two atoms of a segment. blanks: they are separated by spaces. */
static rs_place rs_place_between(const rs_atom *before, const rs_atom *after, int blanks)
{
    size_t used;
    int cut, pause = after->t0_ms - before->t1_ms >= RS_PAUSE_MS;
    int32_t first = tk_decode_utf8(after->text, after->length, &used, &cut);
    rs_place place = rs_place_after(before->text, before->length);
    if (!blanks && !rs_is_unspaced(first) && place == RS_AT_SPACE && before->width > 0) {
        size_t at = before->length - 1;
        while (at > 0 && ((unsigned char)before->text[at] & 0xc0) == 0x80) {
            at--;
        }
        if (!rs_is_unspaced(tk_decode_utf8(before->text + at, before->length - at, &used, &cut))) {
            return RS_IN_WORD;
        }
    }
    if (place == RS_AT_SPACE) {
        place = !blanks ? RS_AT_CHARACTER : before->width <= 3 ? RS_AFTER_SHORT_WORD : place;
    }
    return place > RS_AT_PAUSE && pause ? RS_AT_PAUSE : place;
}

/* Length and width of the atom at r->at. */
static size_t rs_measure_atom(const rs_reader *r, size_t *width)
{
    const char *text = r->s.text + r->at;
    size_t left = r->s.text_length - r->at, length = 0;
    int32_t before = -1;
    *width = 0;
    while (length < left) {
        rs_glyph g = rs_next_glyph(text + length, left - length);
        int parts = length > 0 && rs_may_break(before, g.code);
        int full = r->line_width > 0 && *width > 0 && *width + g.width > r->line_width;
        if (rs_is_blank(g.code) || parts || full) {
            break;
        }
        length += g.length;
        *width += g.width;
        before = g.code;
    }
    return length;
}

/* Reads the next atom of the segment. Returns 0 at its end; the next call then continues with the
 * next segment. last is the previous atom of the segment, or NULL. */
static int rs_read_atom(rs_reader *r, const rs_atom *last, rs_atom *a)
{
    size_t blanks = rs_skip_blanks(r);
    memset(a, 0, sizeof *a);
    if (r->at >= r->s.text_length) {
        r->segment++;
        r->at = 0;
        r->open = 0;
        return 0;
    }
    a->text = r->s.text + r->at;
    a->length = rs_measure_atom(r, &a->width);
    a->t0_ms = rs_time_at(r, r->at, 0);
    r->at += a->length;
    a->t1_ms = rs_time_at(r, r->at, 1);
    a->segment = r->segment;
    a->end = r->at;
    a->spaced = last == NULL || blanks > 0;
    a->place = (unsigned char)(last == NULL ? RS_AT_SEGMENT
                                            : rs_place_between(last, a, blanks > 0));
    return 1;
}

static int64_t rs_later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- blocks: text that is divided into cues together ---- */

/* One segment, or several if those before the last are too short for cues of their own. A block is
 * read only when the text after it cannot change it. */
typedef struct rs_block {
    rs_atom atoms[RS_ATOMS];
    size_t n;
    int whole;              /* the block is complete in atoms */
    int64_t next_ms;        /* start of what follows the atoms */
    uint32_t best[RS_ATOMS + 1];      /* least cost of the cues from this atom on */
    unsigned char to[RS_ATOMS];       /* end of the cue that begins with this atom */
} rs_block;

/* Whether segment `next` is in the same block as the one before. */
static int rs_shares_block(const rs_store *store, const wnpu_write_options *o, size_t next)
{
    wnpu_segment a, b;
    return rs_get(store, next - 1, &a) == WNPU_OK && rs_get(store, next, &b) == WNPU_OK &&
           a.language == b.language && b.t0_ms - a.t0_ms < o->min_cue_ms + o->min_gap_ms;
}

/* Reads the block at r. Returns 0 if there is none that is final. */
static int rs_read_block(rs_reader *r, const wnpu_write_options *o, int last, int64_t end_ms,
                         rs_block *b)
{
    rs_atom next;
    wnpu_segment after;
    size_t begin = 0;       /* first atom of this segment */
    b->n = 0;
    b->whole = 0;
    b->next_ms = end_ms + o->min_gap_ms; /* nothing follows */
    while (rs_read_segment(r)) {
        const rs_atom *before = b->n > begin ? &b->atoms[b->n - 1] : NULL;
        if (rs_read_atom(r, before, &next)) {
            if (b->n == RS_ATOMS) {
                b->next_ms = next.t0_ms;
                return 1;
            }
            b->atoms[b->n++] = next;
        } else {
            begin = b->n;
            b->whole = rs_get(r->store, r->segment, &after) != WNPU_OK ? last
                     : b->n > 0 && !rs_shares_block(r->store, o, r->segment);
            if (b->whole && rs_get(r->store, r->segment, &after) == WNPU_OK) {
                b->next_ms = after.t0_ms;
            }
            if (b->whole) {
                return b->n > 0;
            }
        }
    }
    return 0;
}

/* Number of lines for atoms i to before j if each line is filled. */
static size_t rs_count_lines(const rs_atom *a, size_t i, size_t j, size_t line_width)
{
    size_t k, lines = 1, width = a[i].width;
    for (k = i + 1; k < j; k++) {
        width += a[k].width + a[k].spaced;
        if (line_width > 0 && width > line_width) {
            lines++;
            width = a[k].width;
        }
    }
    return lines;
}

/* Cost of a cue of atoms i to before j that ends at next_ms at the latest: for the break after it,
 * long pauses in it, and text shown too briefly to read. In arbitrary units. */
static uint32_t rs_cue_cost(const rs_block *b, const wnpu_write_options *o, size_t i, size_t j,
                            size_t width)
{
    static const uint32_t place[RS_PLACES] = {0, 10, 40, 50, 120, 130, 160, 600};
    const rs_atom *a = b->atoms;
    int64_t t0 = a[i].t0_ms, room = (j < b->n ? a[j].t0_ms : b->next_ms) - o->min_gap_ms - t0;
    int64_t spoken = a[j - 1].t1_ms - t0, need = o->min_cue_ms;
    int64_t most = (int64_t)o->max_line_width * (o->max_lines > 0 ? o->max_lines : 1);
    int64_t cost = 60 + (j < b->n ? place[a[j].place] : 0);
    size_t k;
    for (k = i + 1; k < j; k++) {
        cost += a[k].t0_ms - a[k - 1].t1_ms >= RS_LONG_PAUSE_MS ? 100 : 0;
        cost += a[k].place == RS_AT_SEGMENT ? 40 : 0;
    }
    room = room > 0 ? room : 0;
    if (room < need) {
        cost += 2000 + 1000 * (need - room) / need; /* worse than any other place */
    }
    if (o->reading_speed > 0) {
        need = (int64_t)width * 1000 / o->reading_speed;
        room = o->max_cue_ms > 0 && room > o->max_cue_ms ? o->max_cue_ms : room;
        cost += need > room ? 60 * (need - room) / need : 0;
    }
    if (o->max_lines > 0) {
        cost += 40 * (int64_t)(width * width) / (most * most);
    }
    if (o->max_cue_ms > 0) {
        cost += spoken < o->max_cue_ms ? 40 * spoken * spoken / o->max_cue_ms / o->max_cue_ms : 40;
    }
    return (uint32_t)cost;
}

/* Finds the cues of a block with the least cost within the limits. A single atom is always
 * allowed. */
static void rs_plan_cues(rs_block *b, const wnpu_write_options *o)
{
    const rs_atom *a = b->atoms;
    size_t i, j, line_width = (size_t)o->max_line_width;
    b->best[b->n] = 0;
    for (i = b->n; i-- > 0;) {
        size_t lines = 1, line = 0, width = 0;
        b->best[i] = UINT32_MAX;
        for (j = i; j < b->n; j++) {
            size_t more = a[j].width + (j > i && a[j].spaced);
            uint32_t cost;
            line += more;
            width += more;
            if (line_width > 0 && line > line_width) {
                lines++;
                line = a[j].width;
            }
            if (j > i && ((o->max_lines > 0 && lines > (size_t)o->max_lines) ||
                          (o->max_cue_ms > 0 && a[j].t1_ms - a[i].t0_ms > o->max_cue_ms))) {
                break;
            }
            cost = rs_cue_cost(b, o, i, j + 1, width) + b->best[j + 1];
            if (cost < b->best[i]) {
                b->best[i] = cost;
                b->to[i] = (unsigned char)(j + 1);
            }
        }
    }
}

/* Marks the atoms from i to before j that begin a line: as few lines as possible and, among these
 * solutions, lines of similar width that begin at good places. */
static void rs_break_lines(rs_atom *a, size_t i, size_t j, size_t line_width)
{
    static const size_t place[RS_PLACES] = {0, 0, 2, 4, 8, 9, 10, 40};
    size_t lines = rs_count_lines(a, i, j, line_width), k;
    a[i].line = 0;
    for (k = i + 1; k < j; k++) {
        a[k].line = 0;
    }
    for (; lines > 1; lines--) {
        size_t width = 0, total = 0, best = SIZE_MAX, at = i + 1;
        for (k = i; k < j; k++) {
            total += a[k].width + (k > i && a[k].spaced);
        }
        for (k = i; k + 1 < j; k++) {
            size_t cost, aim = total / lines;
            width += a[k].width + (k > i && a[k].spaced);
            if (width > line_width) {
                break;
            }
            cost = (width > aim ? width - aim : aim - width) + place[a[k + 1].place];
            if (cost < best && rs_count_lines(a, k + 1, j, line_width) < lines) {
                best = cost;
                at = k + 1;
            }
        }
        a[at].line = 1;
        i = at;
    }
}

/* ---- writers ---- */

/* A unit of output: a segment, or a cue of the layout. */
typedef struct rs_cue {
    int64_t t0_ms, t1_ms;
    uint64_t number;        /* from 1 */
    const rs_atom *atoms;
    size_t n;
} rs_cue;

/* Writes one character of a text, which is not a space, with the escapes of a format. before holds
 * the three bytes before it in the line. */
typedef void (*rs_escape_fn)(rs_out *o, const char *text, size_t length, const char before[3]);

static void rs_spell_plain(rs_out *o, const char *text, size_t length, const char before[3])
{
    (void)before;
    rs_bytes(o, text, length);
}

/* Word joiner (U+2060), invisible. Inserted where a format without escapes would misinterpret
 * text. */
#define RS_JOINER "\xe2\x81\xa0"

/* Players interpret "{\" as the start of a command in all subtitle formats, and hide it. */
static void rs_break_command(rs_out *o, char c, const char before[3])
{
    rs_text(o, c == '\\' && before[2] == '{' ? RS_JOINER : "");
}

/* "-->" separates the times of a cue; SubRip has no escape for it. */
static void rs_escape_srt(rs_out *o, const char *text, size_t length, const char before[3])
{
    rs_break_command(o, text[0], before);
    if (text[0] == '>' && before[1] == '-' && before[2] == '-') {
        rs_text(o, " ");
    }
    rs_bytes(o, text, length);
}

static void rs_spell_vtt(rs_out *o, const char *text, size_t length, const char before[3])
{
    rs_break_command(o, text[0], before);
    if (text[0] == '&' || text[0] == '<' || text[0] == '>') {
        rs_text(o, text[0] == '&' ? "&amp;" : text[0] == '<' ? "&lt;" : "&gt;");
    } else {
        rs_bytes(o, text, length);
    }
}

static void rs_spell_csv(rs_out *o, const char *text, size_t length, const char before[3])
{
    (void)before;
    rs_text(o, text[0] == '"' ? "\"" : "");
    rs_bytes(o, text, length);
}

/* "[12:34.56]" and "<12:34.56>" are times; LRC has no escape for them. */
static void rs_escape_lrc(rs_out *o, const char *text, size_t length, const char before[3])
{
    rs_break_command(o, text[0], before);
    if (text[0] >= '0' && text[0] <= '9' && (before[2] == '[' || before[2] == '<')) {
        rs_text(o, RS_JOINER);
    }
    rs_bytes(o, text, length);
}

/* Braces are escaped by a backslash. A backslash in the text is followed by a word joiner so that
 * it does not start an escape. */
static void rs_escape_ass(rs_out *o, const char *text, size_t length, const char before[3])
{
    rs_break_command(o, text[0], before); /* some players do not know the escapes */
    rs_text(o, text[0] == '{' || text[0] == '}' ? "\\" : "");
    rs_bytes(o, text, length);
    rs_text(o, text[0] == '\\' ? RS_JOINER : "");
}

/* The text of a cue with newline between its lines. All kinds of space are written as spaces. */
static void rs_write_escaped(rs_out *o, const rs_cue *c, rs_escape_fn spell, const char *newline)
{
    char before[3] = {0, 0, 0};
    size_t i, at, used;
    int cut;
    for (i = 0; i < c->n; i++) {
        const rs_atom *a = &c->atoms[i];
        if (i > 0 && (a->line || a->spaced)) {
            rs_text(o, a->line ? newline : " ");
            memset(before, 0, sizeof before);
        }
        for (at = 0; at < a->length; at += used) {
            const char *text = a->text + at;
            if (rs_is_blank(tk_decode_utf8(text, a->length - at, &used, &cut))) {
                rs_text(o, " ");
            } else {
                spell(o, text, used, before);
            }
            before[0] = before[1];
            before[1] = before[2];
            before[2] = text[used - 1];
        }
    }
}

/* The text on one line. */
static void rs_txt_cue(rs_out *o, const rs_cue *c)
{
    rs_write_escaped(o, c, rs_spell_plain, " ");
    rs_text(o, "\n");
}

static void rs_srt_cue(rs_out *o, const rs_cue *c)
{
    rs_number(o, (int64_t)c->number, 1);
    rs_text(o, "\n");
    rs_clock(o, c->t0_ms, ",");
    rs_text(o, " --> ");
    rs_clock(o, c->t1_ms, ",");
    rs_text(o, "\n");
    rs_write_escaped(o, c, rs_escape_srt, "\n");
    rs_text(o, "\n\n");
}

static void rs_vtt_cue(rs_out *o, const rs_cue *c)
{
    rs_clock(o, c->t0_ms, ".");
    rs_text(o, " --> ");
    rs_clock(o, c->t1_ms, ".");
    rs_text(o, "\n");
    rs_write_escaped(o, c, rs_spell_vtt, "\n");
    rs_text(o, "\n\n");
}

static void rs_tsv_cue(rs_out *o, const rs_cue *c)
{
    rs_number(o, c->t0_ms, 1);
    rs_text(o, "\t");
    rs_number(o, c->t1_ms, 1);
    rs_text(o, "\t");
    rs_txt_cue(o, c);
}

static void rs_csv_cue(rs_out *o, const rs_cue *c)
{
    rs_number(o, c->t0_ms, 1);
    rs_text(o, ",");
    rs_number(o, c->t1_ms, 1);
    rs_text(o, ",\"");
    rs_write_escaped(o, c, rs_spell_csv, " ");
    rs_text(o, "\"\r\n");
}

/* "mm:ss.cc", or "h:mm:ss.cc" if hours is set. */
static void rs_centiseconds(rs_out *o, int64_t ms, int hours)
{
    if (hours) {
        rs_number(o, ms / 3600000, 1);
        rs_text(o, ":");
    }
    rs_number(o, hours ? ms / 60000 % 60 : ms / 60000, 2);
    rs_text(o, ":");
    rs_number(o, ms / 1000 % 60, 2);
    rs_text(o, ".");
    rs_number(o, ms / 10 % 100, 2);
}

static void rs_lrc_cue(rs_out *o, const rs_cue *c)
{
    rs_text(o, "[");
    rs_centiseconds(o, c->t0_ms, 0);
    rs_text(o, "]");
    rs_write_escaped(o, c, rs_escape_lrc, " ");
    rs_text(o, "\n");
}

static void rs_ass_cue(rs_out *o, const rs_cue *c)
{
    rs_text(o, "Dialogue: 0,");
    rs_centiseconds(o, c->t0_ms, 1);
    rs_text(o, ",");
    rs_centiseconds(o, c->t1_ms, 1);
    rs_text(o, ",Default,,0,0,0,,");
    rs_write_escaped(o, c, rs_escape_ass, "\\N");
    rs_text(o, "\n");
}

static const char rs_ass_head[] =
    "[Script Info]\nScriptType: v4.00+\nWrapStyle: 0\nScaledBorderAndShadow: yes\n"
    "PlayResX: 1280\nPlayResY: 720\n\n"
    "[V4+ Styles]\n"
    "Format: Name, Fontname, Fontsize, PrimaryColour, SecondaryColour, OutlineColour, BackColour, "
    "Bold, Italic, Underline, StrikeOut, ScaleX, ScaleY, Spacing, Angle, BorderStyle, Outline, "
    "Shadow, Alignment, MarginL, MarginR, MarginV, Encoding\n"
    "Style: Default,Arial,44,&H00FFFFFF,&H000000FF,&H00000000,&H80000000,0,0,0,0,100,100,0,0,1,2,"
    "1,2,40,40,40,1\n\n"
    "[Events]\n"
    "Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n";

/* One row per wnpu_format. */
typedef struct rs_writer {
    const char *name;       /* also the extension of files */
    const char *head;       /* start of the file */
    void (*cue)(rs_out *o, const rs_cue *c); /* NULL: JSON, which needs all results at once */
    int tick_ms;            /* resolution of cue times; 0: segment times are not changed */
    int one_line;           /* cues have a single line */
} rs_writer;

static const rs_writer rs_writers[] = {
    [WNPU_FORMAT_TXT] = {"txt", "", rs_txt_cue, 0, 1},
    [WNPU_FORMAT_SRT] = {"srt", "", rs_srt_cue, 1, 0},
    [WNPU_FORMAT_VTT] = {"vtt", "WEBVTT\n\n", rs_vtt_cue, 1, 0},
    [WNPU_FORMAT_TSV] = {"tsv", "start\tend\ttext\n", rs_tsv_cue, 0, 1},
    [WNPU_FORMAT_JSON] = {"json", "", NULL, 0, 0},
    [WNPU_FORMAT_JSON_DEVICE] = {"json", "", NULL, 0, 0},
    [WNPU_FORMAT_CSV] = {"csv", "start,end,text\r\n", rs_csv_cue, 0, 1},
    [WNPU_FORMAT_LRC] = {"lrc", "", rs_lrc_cue, 10, 1},
    [WNPU_FORMAT_ASS] = {"ass", rs_ass_head, rs_ass_cue, 10, 0}
};
#define RS_WRITERS ((int)(sizeof rs_writers / sizeof rs_writers[0]))

/* State of writing one output. */
typedef struct rs_job {
    rs_out out;
    const rs_store *store;
    const rs_writer *writer;
    wnpu_write_options options;
    wnpu_write_cursor *at;
    int64_t end_ms;         /* of the recording */
} rs_job;

/* Display times of a cue whose words are spoken from t0 to t1; the next cue's words begin at
 * next_ms. Priorities: no overlap and the longest duration, then the gap, then the shortest
 * duration. */
static void rs_time_cue(rs_job *job, rs_cue *c, int64_t next_ms, size_t width)
{
    const wnpu_write_options *o = &job->options;
    int64_t tick = job->writer->tick_ms, free_ms, want = o->min_cue_ms;
    if (o->reading_speed > 0) {
        want = rs_later(want, (int64_t)width * 1000 / o->reading_speed);
    }
    if (o->max_cue_ms > 0 && want > o->max_cue_ms) {
        want = o->max_cue_ms;
    }
    free_ms = job->at->cues > 0 ? job->at->end_ms + o->min_gap_ms : 0;
    c->t0_ms = rs_later(c->t0_ms, free_ms);
    c->t1_ms = rs_later(c->t1_ms, c->t0_ms + want);
    if (c->t1_ms > next_ms - o->min_gap_ms) {
        c->t1_ms = next_ms - o->min_gap_ms;
    }
    if (c->t1_ms - c->t0_ms < o->min_cue_ms) { /* not enough time after the words: start earlier */
        c->t0_ms = rs_later(free_ms, rs_later(c->t1_ms, c->t0_ms) - o->min_cue_ms);
    }
    c->t0_ms = rs_later(rs_later(c->t0_ms, 0) / tick, (free_ms + tick - 1) / tick) * tick;
    if (o->max_cue_ms > 0 && c->t1_ms - c->t0_ms > o->max_cue_ms) {
        c->t1_ms = c->t0_ms + o->max_cue_ms;
    }
    c->t1_ms = rs_later(c->t1_ms / tick * tick, c->t0_ms + tick);
}

static void rs_put_cue(rs_job *job, rs_cue *c)
{
    c->number = ++job->at->cues;
    job->at->end_ms = c->t1_ms;
    job->writer->cue(&job->out, c);
}

/* Writes a segment as a cue. */
static void rs_write_segment(rs_job *job, const wnpu_segment *s)
{
    rs_reader r;
    rs_atom text;
    rs_cue c;
    memset(&r, 0, sizeof r);
    memset(&text, 0, sizeof text);
    r.s = *s;
    text.length = s->text_length;
    while (text.length > 0 && s->text[text.length - 1] == ' ') {
        text.length--;
    }
    while (r.at < text.length && s->text[r.at] == ' ') {
        r.at++;
    }
    text.text = s->text + r.at;
    text.length -= r.at;
    memset(&c, 0, sizeof c);
    c.t0_ms = s->t0_ms;
    c.t1_ms = s->t1_ms;
    c.atoms = &text;
    c.n = 1;
    if (job->writer->tick_ms > 0) {
        (void)rs_skip_blanks(&r);
        if (r.at == s->text_length) {
            return; /* an empty line would end the cue */
        }
        rs_time_cue(job, &c, INT64_MAX, 0);
    }
    rs_put_cue(job, &c);
}

/* Writes the cues of a block. If it is incomplete, the last cue is kept for the next call. */
static void rs_write_block(rs_job *job, rs_block *b)
{
    const wnpu_write_options *o = &job->options;
    size_t i, k, j;
    rs_plan_cues(b, o);
    for (i = 0; i < b->n; i = j) {
        rs_cue c;
        size_t width = 0;
        j = b->to[i];
        if (j == b->n && !b->whole && i > 0) {
            break;
        }
        memset(&c, 0, sizeof c);
        rs_break_lines(b->atoms, i, j, (size_t)o->max_line_width);
        for (k = i; k < j; k++) {
            width += b->atoms[k].width + (k > i && b->atoms[k].spaced);
        }
        c.t0_ms = b->atoms[i].t0_ms;
        c.t1_ms = b->atoms[j - 1].t1_ms;
        c.atoms = &b->atoms[i];
        c.n = j - i;
        rs_time_cue(job, &c, j < b->n ? b->atoms[j].t0_ms : b->next_ms, width);
        rs_put_cue(job, &c);
        job->at->segment = b->atoms[j - 1].segment;
        job->at->offset = b->atoms[j - 1].end;
    }
}

/* Writes all cues that are final in the requested layout. */
static void rs_write_layout(rs_job *job)
{
    rs_reader r;
    rs_block block;
    for (;;) {
        memset(&r, 0, sizeof r);
        r.store = job->store;
        r.line_width = (size_t)job->options.max_line_width;
        r.segment = (size_t)job->at->segment;
        r.at = (size_t)job->at->offset;
        if (!rs_read_block(&r, &job->options, job->at->last, job->end_ms, &block)) {
            return;
        }
        rs_write_block(job, &block);
    }
}

static int rs_has_layout(const wnpu_write_options *o)
{
    return o->max_line_width > 0 || o->max_lines > 0 || o->max_cue_ms > 0 || o->min_cue_ms > 0 ||
           o->min_gap_ms > 0 || o->reading_speed > 0;
}

/* Writes the results after the cursor and advances it. */
static int rs_write(const rs_store *store, const tk_vocab *v, const rs_summary *summary,
                    const wnpu_write_options *options, wnpu_write_cursor *at, wnpu_write_fn write,
                    void *user)
{
    rs_job job;
    wnpu_segment s;
    int laid_out;
    job.out.write = write;
    job.out.user = user;
    job.out.used = 0;
    job.out.failed = 0;
    job.store = store;
    job.writer = &rs_writers[options->format];
    job.options = *options;
    job.options.max_lines = options->max_line_width > 0 && job.writer->one_line
                                ? 1 : options->max_lines;
    job.at = at;
    job.end_ms = summary != NULL && at->last ? summary->duration_ms : INT64_MAX / 2;
    laid_out = job.writer->tick_ms > 0 && rs_has_layout(options);
    if (!laid_out) { /* the gap is part of a layout too */
        wnpu_write_options none = {0};
        job.options = none;
    }
    if (at->segment > store->count ||
        (rs_get(store, (size_t)at->segment, &s) == WNPU_OK && at->offset > s.text_length)) {
        return WNPU_E_ARGUMENT;
    }
    if (job.writer->cue == NULL && at->last && !at->begun) {
        rs_json(&job.out, store, v, summary, options->format == WNPU_FORMAT_JSON_DEVICE);
        at->begun = 1;
    } else if (job.writer->cue != NULL && !at->begun) {
        rs_text(&job.out, job.writer->head);
        at->begun = 1;
    }
    if (laid_out) {
        rs_write_layout(&job);
    } else if (job.writer->cue != NULL) {
        for (; rs_get(store, (size_t)at->segment, &s) == WNPU_OK; at->segment++) {
            rs_write_segment(&job, &s);
        }
    }
    rs_flush(&job.out);
    return job.out.failed ? WNPU_E_IO : WNPU_OK;
}

/* ======================================================================
 * 18. pm_  run parameters
 *
 *  Owns      the table of all run parameters: name, type, place, default,
 *            range, command-line option and meaning of each.
 *  Assumes   nothing.
 *  Ensures   defaults, range checks, the fingerprint of a run, parameters
 *            by name and the command line's options all come from this
 *            table: a new parameter is a field in the header and one row.
 *  Costs     nothing at run time beyond the checks.
 * ====================================================================== */
#define PM_NONE (-1e30)          /* no value switches the parameter off */
#define PM_AT(field) offsetof(wnpu_params, field)

/* Columns: field; command-line option ("--no-..." sets a BOOL to 0); choices; group; meaning;
 * offset and type; default; lowest and highest value; the value that switches it off ("off" on the
 * command line), which may be outside the range. */
typedef struct pm_row {
    const char *name, *option, *choices, *group, *meaning;
    uint16_t offset;
    uint8_t type;                /* wnpu_param_type */
    double fallback, low, high, off;
} pm_row;

static const pm_row pm_table[] = {
    {"task", "--translate", "transcribe|translate", "basic",
     "write the language spoken, or translate it into English (multilingual models)",
     PM_AT(task), WNPU_PARAM_CHOICE, WNPU_TRANSCRIBE, 0, 1, PM_NONE},
    {"language", "--language", NULL, "basic",
     "the language spoken, a code or a name; auto detects it",
     PM_AT(language), WNPU_PARAM_LANGUAGE, WNPU_LANGUAGE_AUTO, -1, TK_LANGUAGES - 1, PM_NONE},
    {"timestamps", "--no-timestamps", NULL, "basic",
     "divide windows into segments at the model's timestamps",
     PM_AT(timestamps), WNPU_PARAM_BOOL, 1, 0, 1, PM_NONE},
    {"max_initial_timestamp_ms", NULL, NULL, "basic",
     "latest beginning of a window's first segment",
     PM_AT(max_initial_timestamp_ms), WNPU_PARAM_INT, 1000, 0, 30000, PM_NONE},
    {"words", "--words", NULL, "basic",
     "measure when each word is said; segments begin and end with their words",
     PM_AT(words), WNPU_PARAM_BOOL, 0, 0, 1, PM_NONE},
    {"max_tokens", "--max-tokens", NULL, "basic",
     "most tokens in a window; 0: half of the text context",
     PM_AT(max_tokens), WNPU_PARAM_INT, 0, 0, SE_MAX_TOKENS, PM_NONE},

    {"beam", "--beam", NULL, "search",
     "hypotheses of the beam search; 1 is greedy search",
     PM_AT(beam), WNPU_PARAM_INT, 1, 1, SE_MAX_WIDTH, PM_NONE},
    {"patience", "--patience", NULL, "search",
     "a beam ends when this many times its hypotheses have ended",
     PM_AT(patience), WNPU_PARAM_FLOAT, 1, 0.1, 16, PM_NONE},
    {"length_penalty", "--length-penalty", NULL, "search",
     "exponent of the length rule, which compares texts of different lengths",
     PM_AT(length_penalty), WNPU_PARAM_FLOAT, 1, -4, 4, PM_NONE},
    {"length_rule", "--length-rule", "power|ratio", "search",
     "log-probability of n tokens over n^X, or over ((5 + n) / 6)^X",
     PM_AT(length_rule), WNPU_PARAM_CHOICE, WNPU_LENGTH_POWER, 0, 1, PM_NONE},
    {"temperature", "--temperature", NULL, "search",
     "temperature of a window's first decoding; above 0 it samples",
     PM_AT(temperature), WNPU_PARAM_FLOAT, 0, 0, 2, PM_NONE},
    {"best_of", "--best-of", NULL, "search",
     "samples drawn at a temperature above 0; 0: 5, or as many as the session has room for",
     PM_AT(best_of), WNPU_PARAM_INT, 0, 0, SE_MAX_WIDTH, PM_NONE},
    {"seed", "--seed", NULL, "search",
     "seed of the random numbers; the same seed draws the same samples",
     PM_AT(seed), WNPU_PARAM_SEED, 0, 0, 0, PM_NONE},
    {"repetition_penalty", "--repetition-penalty", NULL, "search",
     "divides the logits of tokens that the window has already",
     PM_AT(repetition_penalty), WNPU_PARAM_FLOAT, 1, 0.5, 4, PM_NONE},
    {"no_repeat_ngram", "--no-repeat-ngram", NULL, "search",
     "no sequence of this many tokens occurs twice in a window; 0: off",
     PM_AT(no_repeat_ngram), WNPU_PARAM_INT, 0, 0, 64, PM_NONE},
    {"suppress_blank", NULL, NULL, "search",
     "no blank and no end of text as a window's first token",
     PM_AT(suppress_blank), WNPU_PARAM_BOOL, 1, 0, 1, PM_NONE},
    {"suppress_non_speech", "--no-suppress-nonspeech", NULL, "search",
     "suppress symbols that are not spoken, such as brackets and notes",
     PM_AT(suppress_non_speech), WNPU_PARAM_BOOL, 1, 0, 1, PM_NONE},
    {"suppress", NULL, NULL, "search",
     "further tokens that are never chosen",
     PM_AT(suppress), WNPU_PARAM_LIST, 0, 0, 0, PM_NONE},

    {"temperature_step", "--temperature-step", NULL, "gates",
     "a window that fails a gate is decoded again at a temperature higher by this, up to 1",
     PM_AT(temperature_step), WNPU_PARAM_FLOAT, 0.2, 0.05, 1, 0},
    {"compression_threshold", "--compression-threshold", NULL, "gates",
     "text that zlib shrinks by more than this factor fails",
     PM_AT(compression_threshold), WNPU_PARAM_FLOAT, 2.4, 0, INFINITY, 0},
    {"logprob_threshold", "--logprob-threshold", NULL, "gates",
     "lowest mean log-probability of a window's tokens",
     PM_AT(logprob_threshold), WNPU_PARAM_FLOAT, -1, -INFINITY, INFINITY, -INFINITY},
    {"first_logprob_threshold", "--first-token-threshold", NULL, "gates",
     "lowest log-probability of a window's first text token",
     PM_AT(first_logprob_threshold), WNPU_PARAM_FLOAT, 0, -INFINITY, 0, 0},
    {"no_speech_threshold", "--no-speech-threshold", NULL, "gates",
     "an improbable window is silent above this no-speech probability",
     PM_AT(no_speech_threshold), WNPU_PARAM_FLOAT, 0.6, -INFINITY, INFINITY, 1},
    {"stop_loops", "--no-loop-check", NULL, "gates",
     "stop a decoding that repeats itself where the audio does not",
     PM_AT(stop_loops), WNPU_PARAM_BOOL, 1, 0, 1, PM_NONE},

    {"initial_prompt", "--prompt", NULL, "prompts",
     "text that might have been said before: names, spelling, style",
     PM_AT(initial_prompt), WNPU_PARAM_TEXT, 0, 0, 0, PM_NONE},
    {"carry_initial_prompt", "--carry-prompt", NULL, "prompts",
     "put the prompt before every window, not only before the first",
     PM_AT(carry_initial_prompt), WNPU_PARAM_BOOL, 0, 0, 1, PM_NONE},
    {"condition_on_previous", "--condition", NULL, "prompts",
     "continue each window from the text of the one before it",
     PM_AT(condition_on_previous), WNPU_PARAM_BOOL, 0, 0, 1, PM_NONE},
    {"prefix", "--prefix", NULL, "prompts",
     "text that the transcript begins with",
     PM_AT(prefix), WNPU_PARAM_TEXT, 0, 0, 0, PM_NONE},
    {"hotwords", "--hotwords", NULL, "prompts",
     "words that are likely to occur",
     PM_AT(hotwords), WNPU_PARAM_LIST, 0, 0, 0, PM_NONE},
    {"hotword_boost", "--hotword-boost", NULL, "prompts",
     "how much hotwords are favoured, in natural logarithms per token",
     PM_AT(hotword_boost), WNPU_PARAM_FLOAT, 2, 0, 20, PM_NONE},

    {"language_mode", "--language-mode", "once|each", "language",
     "detect the language once, or for every window",
     PM_AT(language_mode), WNPU_PARAM_CHOICE, WNPU_LANGUAGE_ONCE, 0, 1, PM_NONE},
    {"language_windows", NULL, NULL, "language",
     "once: from so many windows of 30 s",
     PM_AT(language_windows), WNPU_PARAM_INT, 1, 1, 20, PM_NONE},
    {"language_margin", NULL, NULL, "language",
     "each: the lead in probability with which another language takes over",
     PM_AT(language_margin), WNPU_PARAM_FLOAT, 0.3, 0, 1, PM_NONE},
    {"languages", "--languages", NULL, "language",
     "only these languages are considered",
     PM_AT(languages), WNPU_PARAM_LIST, 0, 0, 0, PM_NONE},

    {"vad", "--vad", NULL, "voice",
     "decode only where there is speech",
     PM_AT(vad), WNPU_PARAM_BOOL, 1, 0, 1, PM_NONE},
    {"vad_threshold", "--vad-threshold", NULL, "voice",
     "probability of speech that begins a span; lower finds more",
     PM_AT(vad_threshold), WNPU_PARAM_FLOAT, 0.5, 0.05, 0.95, PM_NONE},
    {"vad_min_speech_ms", "--vad-min-speech", NULL, "voice",
     "drop spans with less speech than this, in ms",
     PM_AT(vad_min_speech_ms), WNPU_PARAM_INT, 100, 0, 5000, PM_NONE},
    {"vad_min_silence_ms", "--vad-min-silence", NULL, "voice",
     "pauses shorter than this do not end a span, in ms",
     PM_AT(vad_min_silence_ms), WNPU_PARAM_INT, 700, 0, 10000, PM_NONE},
    {"vad_pad_ms", "--vad-pad", NULL, "voice",
     "time added before and after a span, in ms",
     PM_AT(vad_pad_ms), WNPU_PARAM_INT, 300, 0, 2000, PM_NONE}
};
#define PM_ROWS (sizeof pm_table / sizeof pm_table[0])

/* Bytes of a parameter's field; a LIST is a pointer followed by a size_t. */
static size_t pm_size(const pm_row *row)
{
    switch (row->type) {
    case WNPU_PARAM_FLOAT: return sizeof(float);
    case WNPU_PARAM_SEED: return sizeof(uint64_t);
    case WNPU_PARAM_TEXT: return sizeof(char *);
    case WNPU_PARAM_LIST: return sizeof(void *);
    default: return sizeof(int32_t);
    }
}

static int pm_is_int(const pm_row *row)
{
    return pm_size(row) == sizeof(int32_t) && row->type != WNPU_PARAM_FLOAT;
}

/* Stores a number in the row's field, an int32_t or a float. */
static void pm_store(wnpu_params *p, const pm_row *row, double value)
{
    float real = (float)value;
    if (row->type == WNPU_PARAM_FLOAT) {
        memcpy((char *)p + row->offset, &real, sizeof real);
    } else if (pm_is_int(row)) {
        int32_t number = (int32_t)value;
        memcpy((char *)p + row->offset, &number, sizeof number);
    }
}

/* Loads the number from the row's field. */
static double pm_load(const wnpu_params *p, const pm_row *row)
{
    int32_t number;
    float real;
    if (row->type == WNPU_PARAM_FLOAT) {
        memcpy(&real, (const char *)p + row->offset, sizeof real);
        return (double)real;
    }
    memcpy(&number, (const char *)p + row->offset, sizeof number);
    return (double)number;
}

static void pm_defaults(wnpu_params *p)
{
    size_t i;
    memset(p, 0, sizeof *p);
    for (i = 0; i < PM_ROWS; i++) {
        pm_store(p, &pm_table[i], pm_table[i].fallback);
    }
}

/* Bounds of a float parameter are rounded to float. NaN is outside every range. */
static int pm_within(const pm_row *row, double value)
{
    int real = row->type == WNPU_PARAM_FLOAT;
    double low = real ? (double)(float)row->low : row->low;
    double high = real ? (double)(float)row->high : row->high;
    value = real ? (double)(float)value : value;
    return (value >= low && value <= high) || value == row->off;
}

/* Returns E_ARGUMENT with name, value and range if a number is outside its range. A BOOL may have
 * any value. */
static int pm_check(const wnpu_params *p, wnpu_error *error)
{
    size_t i;
    for (i = 0; i < PM_ROWS; i++) {
        const pm_row *row = &pm_table[i];
        double value;
        if ((row->type != WNPU_PARAM_FLOAT && !pm_is_int(row)) || row->type == WNPU_PARAM_BOOL) {
            continue;
        }
        value = pm_load(p, row);
        if (!pm_within(row, value)) {
            return er_set(error, WNPU_E_ARGUMENT, "%s %g is outside %g..%g", row->name,
                          value, row->low, row->high);
        }
    }
    return WNPU_OK;
}

static uint64_t pm_mix(uint64_t sum, const void *data, size_t size)
{
    uint64_t both[2];
    both[0] = sum;
    both[1] = size > 0 ? mf_checksum(data, size) : 0;
    return mf_checksum(both, sizeof both);
}

static uint64_t pm_mix_text(uint64_t sum, const char *text)
{
    return text != NULL ? pm_mix(sum, text, strlen(text) + 1) : pm_mix(sum, "", 0);
}

/* Hash of all checked parameters that affect the output. on_logits is included only as set or not
 * set. */
static uint64_t pm_fingerprint(const wnpu_params *p)
{
    uint64_t sum = p->on_logits != NULL;
    size_t i;
    for (i = 0; i < PM_ROWS; i++) {
        const pm_row *row = &pm_table[i];
        if (row->type != WNPU_PARAM_TEXT && row->type != WNPU_PARAM_LIST) {
            sum = pm_mix(sum, (const char *)p + row->offset, pm_size(row));
        }
    }
    sum = pm_mix_text(sum, p->initial_prompt);
    sum = pm_mix_text(sum, p->prefix);
    sum = pm_mix(sum, p->suppress, p->n_suppress * sizeof(int32_t));
    sum = pm_mix(sum, p->languages, p->n_languages * sizeof(int32_t));
    for (i = 0; i < p->n_hotwords; i++) {
        sum = pm_mix_text(sum, p->hotwords[i]);
    }
    return sum;
}

/* ---- by name ---- */

WNPU_API int wnpu_param_info(size_t index, wnpu_param *info)
{
    wnpu_param ours;
    const pm_row *row = index < PM_ROWS ? &pm_table[index] : NULL;
    if (row == NULL || info == NULL) {
        return WNPU_E_ARGUMENT;
    }
    memset(&ours, 0, sizeof ours);
    ours.type = row->type;
    ours.name = row->name;
    ours.option = row->option;
    ours.choices = row->choices;
    ours.group = row->group;
    ours.meaning = row->meaning;
    ours.fallback = row->fallback;
    ours.low = row->low;
    ours.high = row->high;
    ours.has_off = row->off != PM_NONE;
    ours.off = ours.has_off ? row->off : 0.0;
    return er_export(info, &ours, sizeof ours);
}

/* Index of word among the choices "a|b|c", or -1. */
static int pm_choice(const char *choices, const char *word)
{
    size_t length = strlen(word);
    int n = 0;
    for (;; n++) {
        size_t span = strcspn(choices, "|");
        if (span == length && memcmp(choices, word, span) == 0) {
            return n;
        }
        if (choices[span] == '\0') {
            return -1;
        }
        choices += span + 1;
    }
}

/* Parses a decimal number independently of the locale: sign, digits, point, digits. Returns 1 if
 * all of text is one. */
static int pm_number(const char *text, double *value)
{
    double whole = 0.0, scale = 1.0;
    int digits = 0, negative = *text == '-';
    text += *text == '-' || *text == '+';
    for (; *text >= '0' && *text <= '9'; text++, digits++) {
        whole = whole * 10.0 + (*text - '0');
    }
    if (*text == '.') {
        for (text++; *text >= '0' && *text <= '9'; text++, digits++) {
            whole = whole * 10.0 + (*text - '0');
            scale *= 10.0;
        }
    }
    *value = (negative ? -whole : whole) / scale;
    return digits > 0 && digits < 300 && *text == '\0';
}

/* Parses a number from 0 to 2^64 - 1. Returns 1 if all of text is one. */
static int pm_seed(const char *text, uint64_t *seed)
{
    const char *from = text;
    *seed = 0;
    for (; *text >= '0' && *text <= '9'; text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        if (*seed > (UINT64_MAX - digit) / 10) {
            return 0;
        }
        *seed = *seed * 10 + digit;
    }
    return text != from && *text == '\0';
}

/* Converts text to the number that the row's field holds. Returns 0 if it is invalid. */
static int pm_parse(const pm_row *row, const char *text, double *value)
{
    int n;
    switch (row->type) {
    case WNPU_PARAM_BOOL:
        n = pm_choice("0|1|off|on|false|true|no|yes", text);
        *value = (double)(n & 1);
        return n >= 0;
    case WNPU_PARAM_CHOICE:
        n = pm_choice(row->choices, text);
        *value = (double)n;
        return n >= 0;
    case WNPU_PARAM_LANGUAGE:
        n = strcmp(text, "auto") == 0 ? WNPU_LANGUAGE_AUTO : wnpu_language_id(text);
        *value = (double)n;
        return n >= 0 || strcmp(text, "auto") == 0;
    default:
        if (row->off != PM_NONE && strcmp(text, "off") == 0) {
            *value = row->off;
            return 1;
        }
        n = pm_number(text, value);
        return n && (row->type == WNPU_PARAM_FLOAT || *value == floor(*value));
    }
}

/* Sets an error that states the allowed values. */
static int pm_refuse(const pm_row *row, const char *value, wnpu_error *error)
{
    switch (row->type) {
    case WNPU_PARAM_BOOL:
        return er_set(error, WNPU_E_ARGUMENT, "%s: \"%.60s\" is neither 0 nor 1", row->name, value);
    case WNPU_PARAM_CHOICE:
        return er_set(error, WNPU_E_ARGUMENT, "%s: \"%.60s\" is none of %s", row->name, value,
                      row->choices);
    case WNPU_PARAM_LANGUAGE:
        return er_set(error, WNPU_E_ARGUMENT, "%s: \"%.60s\" is not a language that Whisper knows",
                      row->name, value);
    case WNPU_PARAM_SEED:
        return er_set(error, WNPU_E_ARGUMENT, "%s: \"%.60s\" is not a number from 0 to 2^64 - 1",
                      row->name, value);
    default:
        return er_set(error, WNPU_E_ARGUMENT, "%s: \"%.60s\" is not a number from %g to %g%s",
                      row->name, value, row->low, row->high,
                      row->off != PM_NONE ? ", or off" : "");
    }
}

static const pm_row *pm_find(const char *name)
{
    size_t i;
    for (i = 0; i < PM_ROWS; i++) {
        if (strcmp(pm_table[i].name, name) == 0) {
            return &pm_table[i];
        }
    }
    return NULL;
}

WNPU_API int wnpu_params_set(wnpu_params *params, const char *name, const char *value,
                             wnpu_error *error)
{
    const pm_row *row = name != NULL ? pm_find(name) : NULL;
    double number = 0.0;
    uint64_t seed = 0;
    er_clear(error);
    if (params == NULL || name == NULL || value == NULL) {
        return er_set(error, WNPU_E_ARGUMENT, "parameters, name or value are NULL");
    }
    if (row == NULL) {
        return er_set(error, WNPU_E_ARGUMENT, "there is no parameter \"%.60s\"", name);
    }
    if (row->type == WNPU_PARAM_LIST) {
        return er_set(error, WNPU_E_UNSUPPORTED, "%s is a list: set the field", row->name);
    }
    if (params->struct_size < row->offset + pm_size(row)) {
        return er_set(error, WNPU_E_VERSION, "the program's wnpu_params has no %s; compile it with "
                      "this library's header", row->name);
    }
    if (row->type == WNPU_PARAM_TEXT) {
        memcpy((char *)params + row->offset, &value, sizeof value);
    } else if (row->type == WNPU_PARAM_SEED) {
        if (!pm_seed(value, &seed)) {
            return pm_refuse(row, value, error);
        }
        memcpy((char *)params + row->offset, &seed, sizeof seed);
    } else {
        uint64_t environment = er_float_default();
        int good = pm_parse(row, value, &number) && pm_within(row, number);
        if (good) {
            pm_store(params, row, number);
        }
        er_float_put(environment);
        return good ? WNPU_OK : pm_refuse(row, value, error);
    }
    return WNPU_OK;
}

/* ======================================================================
 * 19. np_  encoder products on an accelerator
 *
 *  Owns      the plan that assigns products to the accelerator's shapes,
 *            the resident weights, the staging of rows and results, the
 *            statistics.
 *  Assumes   an accelerator that keeps the contract of the public header;
 *            its results are untrusted.
 *  Ensures   the same bytes as en_run() and en_cross(). The accelerator
 *            gets the int8 rows that the CPU would multiply, and its int32
 *            sums are used where they match the checksum of their row; the
 *            CPU computes the other rows from the same operands.
 *  Costs     a checksum: one multiplication per value of an input row and
 *            of an output row. Per encoder position 4 d bytes of operand
 *            rows, and d for the operand of the next product.
 *
 *  The encoder positions are divided into chunks. Each chunk goes through
 *  the stages on its own:
 *
 *    conv1, conv2, QKV | attention, attn_out, fc1, fc2, QKV | ... | norm
 *
 *  and waits for the others only before attention, which needs all keys.
 *  While the accelerator multiplies for one chunk, the CPU does another
 *  chunk's epilogue (check, dequantise, norm, GELU, quantise) or attention.
 *
 *  Terms: a stage's product is cut into tiles of [m_step, n_step, k_step],
 *  each one product of the accelerator; a job is a chain of tiles. A unit
 *  is one weight of a stage: cross_kv has a unit per decoder layer, other
 *  stages have one.
 *
 *  Behaviour in the accelerator's states (diagram in section 14 of
 *  npu_amdxdna.c):
 *    OK       windows use it; after a failure the remaining products of
 *             the window run on the CPU
 *    SUSPECT  windows run in en_run(), as without an accelerator
 *    PROBE    probe() before the next window decides
 *    OFF      as SUSPECT, until the accelerator is opened again
 * ====================================================================== */
#define NP_CHUNKS 4u          /* at most 16 waits per encoder layer */
#define NP_ROWS 48u           /* rows of a block of epilogue work, at most EN_BLOCK_ROWS_MAX */
#define NP_CHAIN 32u          /* most tiles of a job */
#define NP_JOBS 4u            /* most jobs in flight */
#define NP_HEAD_GROUPS 4u     /* of a chunk's attention; jobs are polled in between */
#define NP_WAIT_MIN_MS 250.0  /* bounds of the time limit of a wait */
#define NP_WAIT_MAX_MS 1000.0 /* amdxdna's watchdog fires after 2 s, later in older kernels */
#define NP_WAIT_FACTOR 8.0    /* limit = this times the expected duration */
#define NP_PROBE_MS 500.0

enum { NP_CONV1, NP_CONV2, NP_QKV, NP_ATTEND, NP_OUT, NP_FC1, NP_FC2, NP_CROSS, NP_STAGES };

static const char *const np_names[NP_STAGES] = {
    "conv1", "conv2", "qkv", "attention", "attn_out", "fc1", "fc2", "cross_kv"
};

/* How one stage's product is cut into tiles of one of the accelerator's shapes. */
typedef struct np_tiling {
    int planned;            /* 0: runs on the CPU */
    uint32_t rows, n, k;    /* product of a whole chunk: A is [rows, k], C [rows, n] */
    uint32_t units;         /* weights that the same rows are multiplied with in turn */
    uint32_t shape;
    uint32_t m_step, n_step, k_step; /* of a tile; the last one may be smaller */
    uint32_t n_tiles, k_tiles;
    double first_us, next_us; /* estimated time of a job's first tile, of each further one */
    double us;              /* estimated time of a chunk */
    uint64_t jobs;          /* jobs of a chunk */
} np_tiling;

typedef struct np_plan {
    np_tiling tiling[NP_STAGES];
    uint32_t chunk, chunks; /* positions of a chunk (the last may have fewer); their number */
    uint32_t chain, jobs;   /* most tiles of a job, most jobs in flight */
    int any;                /* some stage is planned */
    double us;              /* estimated time of a window */
} np_plan;

typedef struct np_weight {
    const gm_weight *weight;
    int resident;
    uint64_t *handles;      /* [k_tiles][n_tiles] handles of the tiles */
    uint32_t *sums;         /* [k]: B r of the checksum */
} np_weight;

typedef struct np_chunk {
    size_t t0, n;           /* encoder positions t0..t0+n-1 */
    unsigned stage;         /* current stage */
    size_t layer;
    int8_t *a[2];           /* quantised operand rows: [0] conv2, attn_out, fc2; [1] the others */
    float *scale[2];        /* their scales */
    int32_t *partial;       /* [rows, n] partial sums if a unit takes several jobs; or NULL */
    size_t next, in_flight; /* tiles submitted; jobs in flight */
    size_t unit;            /* units completed */
    int failed;             /* a job failed: the CPU completes the stage */
    int parked;             /* QKV waits until attention no longer reads the previous keys */
    int wrong;              /* atomic: a checksum of the unit did not match */
    size_t cpu_rows;        /* atomic: rows that the CPU multiplied */
} np_chunk;

typedef struct np_job {
    uint64_t id;
    np_chunk *chunk;
    size_t first, count;    /* tiles of the chunk's stage */
    double us;              /* estimated time */
} np_job;

typedef struct np_bridge {
    en_engine *e;
    en_heads *cross;        /* [n_text_layer] keys and values of the current window */
    wnpu_accel *accel;      /* NULL: none */
    wnpu_accel_info info;
    int required;
    np_plan plan;
    np_weight *weights;     /* conv1, conv2, 4 per encoder layer, cross_kv of each decoder layer */
    uint32_t *random;       /* [4 d] r of the checksums; odd, see np_randomise() */
    int32_t *sum;           /* [threads, largest n_step] scratch */
    int8_t *tile;           /* [n_step, k_step] of the largest tile, while opening */
    np_chunk chunk[NP_CHUNKS];
    np_job job[NP_JOBS];    /* jobs in flight, oldest first */
    size_t n_jobs;
    np_chunk *queue[NP_CHUNKS]; /* chunks with tiles to submit */
    size_t n_queue;
    const np_job *delivered; /* the job whose results are being delivered, or NULL */
    struct {
        const int32_t *c;
        size_t ldc;
    } view[NP_CHAIN];       /* results of its tiles */
    size_t n_delivered;
    double delivery_ms;     /* time of the CPU passes within wait() */
    int attending;          /* attention reads the keys and queries of the layer */
    int stopped;            /* not used for the rest of the window */
    int wrong;              /* a checksum of the delivered job did not match */
    int fell_back;          /* the CPU computed a planned product in this run */
    uint64_t resident_bytes;
    char missing[192];      /* why a planned weight is not resident */
    void *scratch;          /* operand rows and partial sums: derived from the audio */
    size_t scratch_bytes;
    wnpu_accel_stats stats;
    wnpu_accel_stage stage[NP_STAGES];
} np_bridge;

/* ---- checksums: modulo 2^32, so independent of the order of summation ---- */

/* The r of all checksums: splitmix64 (S. Vigna), made odd. An odd r[i] has an inverse modulo 2^32,
 * so a single wrong sum always changes the checksum; several are missed with probability 2^-32. */
static void np_randomise(uint32_t *r, size_t n)
{
    uint64_t state = UINT64_C(0x77687370);
    size_t i;
    for (i = 0; i < n; i++) {
        uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        r[i] = (uint32_t)(z ^ z >> 31) | 1u;
    }
}

/* ---- the plan ---- */

/* Estimates used when the accelerator reports no costs, from public figures for NPU1 (275 us per
 * empty submission, 48 us more per product of a chain: tibrezus/xdna-npu-toolkit; 1.9 TOPS
 * sustained in int8, 1.4 ms per change of context: drakosha/whisper-xdna). */
#define NP_FIRST_US 275.0
#define NP_NEXT_US 48.0
#define NP_MACS_US 0.95e6
#define NP_SWITCH_US 1400.0
#define NP_CALLS_US 50.0      /* CPU time of a job: system calls and a wake-up (assumed) */

/* How often a stage runs in a window. */
static uint32_t np_runs(const wnpu_model *m, unsigned stage)
{
    return stage == NP_CONV1 || stage == NP_CONV2 || stage == NP_CROSS ? 1u : m->n_audio_layer;
}

/* Multiply-accumulates of a stage for `rows` encoder positions. */
static uint64_t np_macs(const wnpu_model *m, unsigned stage, size_t rows)
{
    uint64_t d = m->n_audio_state, n = rows;
    switch (stage) {
    case NP_CONV1: return 2 * n * 3 * m->n_mels * d;
    case NP_CONV2: case NP_QKV: return 3 * n * d * d;
    case NP_ATTEND: return 2 * n * m->n_audio_ctx * d;
    case NP_OUT: return n * d * d;
    case NP_CROSS: return 2 * n * d * d * m->n_text_layer;
    default: return 4 * n * d * d;
    }
}

static void np_set_operands(const wnpu_model *m, unsigned stage, uint32_t chunk, np_tiling *tiling)
{
    uint32_t d = m->n_audio_state;
    memset(tiling, 0, sizeof *tiling);
    tiling->rows = stage == NP_CONV1 ? 2 * chunk : chunk;
    tiling->n = stage == NP_QKV ? 3 * d : stage == NP_FC1 ? 4 * d : stage == NP_CROSS ? 2 * d : d;
    tiling->k = stage == NP_CONV1 ? 3 * m->n_mels : stage == NP_CONV2 ? 3 * d
             : stage == NP_FC2 ? 4 * d : d;
    tiling->units = stage == NP_CROSS ? m->n_text_layer : 1;
}

/* Tiles of a unit with `rows` rows. */
static size_t np_tiles(const np_tiling *tiling, size_t rows)
{
    return en_blocks(rows, tiling->m_step) * tiling->n_tiles * tiling->k_tiles;
}

/* Sets the tiles of a product for a shape; 0 if the shape cannot be used. */
static int np_set_tiling(np_tiling *tiling, const wnpu_accel_shape *s, uint32_t index,
                         uint32_t chain)
{
    double work = (double)s->m * s->n * s->k / NP_MACS_US;
    size_t tiles, products;
    tiling->shape = index;
    tiling->m_step = s->m < tiling->rows ? s->m : tiling->rows;
    tiling->n_step = s->n < tiling->n ? s->n & ~15u : tiling->n;
    tiling->k_step = s->k < tiling->k ? s->k : tiling->k;
    if (tiling->m_step == 0 || tiling->n_step == 0 || tiling->k_step == 0) {
        return 0;
    }
    tiling->n_tiles = (uint32_t)en_blocks(tiling->n, tiling->n_step);
    tiling->k_tiles = (uint32_t)en_blocks(tiling->k, tiling->k_step);
    tiling->first_us = s->cost_us > 0.0 ? s->cost_us : NP_FIRST_US + work;
    tiling->next_us = s->chained_us > 0.0 ? s->chained_us : NP_NEXT_US + work;
    tiles = np_tiles(tiling, tiling->rows);
    products = tiles * tiling->units;
    tiling->jobs = tiles > chain ? tiling->units * en_blocks(tiles, chain)
                              : en_blocks(tiling->units, chain / tiles);
    tiling->us = (double)tiling->jobs * tiling->first_us +
                 (double)(products - tiling->jobs) * tiling->next_us;
    return 1;
}

/* Plans all stages for p->chunks chunks with the shapes of one group, or of all groups if group is
 * NULL. Returns the estimated time of a window: the longer of CPU and accelerator time, plus the
 * part of the shorter one that does not overlap (the first chunk). */
static double np_estimate(np_plan *p, const wnpu_model *m, const wnpu_accel_info *info,
                          const uint32_t *group, double cpu_rate, int all)
{
    double npu = 0.0, cpu = (double)np_macs(m, NP_ATTEND, m->n_audio_ctx) * m->n_audio_layer /
                            cpu_rate * 2.0; /* attention with softmax runs at about half the rate */
    uint64_t jobs = 0;
    uint32_t first = 0, i;
    int mixed = 0;
    unsigned stage;
    p->any = 0;
    for (stage = 0; stage < NP_STAGES; stage++) {
        np_tiling *best = &p->tiling[stage], tiling;
        uint32_t times = np_runs(m, stage);
        double alone = (double)np_macs(m, stage, m->n_audio_ctx) * times / cpu_rate, there;
        np_set_operands(m, stage, p->chunk, best);
        for (i = 0; stage != NP_ATTEND && i < info->n_shapes; i++) {
            np_set_operands(m, stage, p->chunk, &tiling);
            if ((group == NULL || info->shapes[i].group == *group) &&
                np_set_tiling(&tiling, &info->shapes[i], i, p->chain) &&
                (!best->planned || tiling.us < best->us)) {
                *best = tiling;
                best->planned = 1;
            }
        }
        there = best->us * p->chunks * times;
        best->planned = best->planned && (all || there < alone);
        if (stage == NP_ATTEND || !best->planned) {
            cpu += stage == NP_ATTEND ? 0.0 : alone;
            continue;
        }
        npu += there;
        jobs += best->jobs * p->chunks * times;
        mixed |= p->any && info->shapes[best->shape].group != first;
        first = info->shapes[best->shape].group;
        p->any = 1;
    }
    npu += mixed ? (double)jobs * NP_SWITCH_US : 0.0;
    cpu += (double)jobs * NP_CALLS_US;
    return (npu > cpu ? npu : cpu) + (npu < cpu ? npu : cpu) / p->chunks;
}

/* Chooses the plan with the shortest estimate. It depends only on model, shapes, instruction set,
 * threads and `all`. Unless all stages have to be planned, an empty plan may be the shortest. */
static void np_make_plan(np_plan *plan, const wnpu_model *m, const wnpu_accel_info *info,
                         wnpu_isa isa, unsigned threads, int all)
{
    double cpu_rate = cp_sets[isa].rate * threads;
    wnpu_accel_info nothing;
    uint32_t chunks, i, j;
    memset(plan, 0, sizeof *plan);
    memset(&nothing, 0, sizeof nothing);
    plan->chunk = m->n_audio_ctx;
    plan->chunks = 1;
    plan->us = np_estimate(plan, m, &nothing, NULL, cpu_rate, 0);
    for (chunks = 1; chunks <= NP_CHUNKS; chunks++) {
        for (i = 0; i <= info->n_shapes; i++) { /* i == n_shapes: shapes of all groups */
            np_plan p;
            for (j = 0; j < i && i < info->n_shapes &&
                 info->shapes[j].group != info->shapes[i].group; j++) {
            }
            if (j < i && i < info->n_shapes) {
                continue; /* this group was tried before */
            }
            memset(&p, 0, sizeof p);
            p.chain = info->max_chain < 1 ? 1 : info->max_chain < NP_CHAIN ? info->max_chain
                                                                           : NP_CHAIN;
            p.jobs = info->max_in_flight < 1 ? 1 : info->max_in_flight < NP_JOBS
                                                       ? info->max_in_flight : NP_JOBS;
            p.chunk = (uint32_t)(en_blocks(en_blocks(m->n_audio_ctx, chunks), EN_QUERIES) *
                                 EN_QUERIES);
            p.chunks = (uint32_t)en_blocks(m->n_audio_ctx, p.chunk);
            p.us = np_estimate(&p, m, info, i < info->n_shapes ? &info->shapes[i].group : NULL,
                               cpu_rate, all);
            if (p.us < plan->us || (all && p.any && !plan->any)) {
                *plan = p;
            }
        }
    }
}

static size_t np_n_weights(const wnpu_model *m)
{
    return 2 + 4 * (size_t)m->n_audio_layer + m->n_text_layer;
}

/* Weight i, with its stage. */
static const gm_weight *np_source(const wnpu_model *m, size_t i, unsigned *stage)
{
    static const unsigned stages[4] = {NP_QKV, NP_OUT, NP_FC1, NP_FC2};
    const mf_layer *layer;
    if (i < 2) {
        *stage = i == 0 ? NP_CONV1 : NP_CONV2;
        return i == 0 ? &m->conv1 : &m->conv2;
    }
    i -= 2;
    if (i >= 4 * (size_t)m->n_audio_layer) {
        *stage = NP_CROSS;
        return &m->decoder[i - 4 * (size_t)m->n_audio_layer].cross_kv;
    }
    layer = &m->encoder[i / 4];
    *stage = stages[i % 4];
    return i % 4 == 0 ? &layer->qkv : i % 4 == 1 ? &layer->attn_out : i % 4 == 2 ? &layer->fc1
                                                                                 : &layer->fc2;
}

static np_weight *np_weight_of(const np_bridge *b, unsigned stage, size_t layer)
{
    static const unsigned char place[NP_STAGES] = {0, 1, 2, 0, 3, 4, 5, 2};
    size_t i = stage == NP_CROSS ? 2 + 4 * (size_t)b->e->model->n_audio_layer + layer
               : stage <= NP_CONV2 ? place[stage] : place[stage] + 4 * layer;
    return &b->weights[i];
}

/* Bytes of accelerator memory that the weights of a plan occupy. */
static uint64_t np_bytes(const np_plan *p, const wnpu_model *m, const wnpu_accel_info *info)
{
    uint64_t bytes = 0;
    unsigned stage;
    size_t i;
    for (i = 0; i < np_n_weights(m); i++) {
        const np_tiling *tiling;
        (void)np_source(m, i, &stage);
        tiling = &p->tiling[stage];
        if (tiling->planned) {
            bytes += (uint64_t)tiling->n_tiles * tiling->k_tiles *
                     info->shapes[tiling->shape].resident_bytes;
        }
    }
    return bytes;
}

/* ---- results of a job, row by row ---- */

static unsigned np_operand_set(unsigned stage)
{
    return stage != NP_CONV2 && stage != NP_OUT && stage != NP_FC2;
}

static size_t np_rows(const np_chunk *c)
{
    return c->stage == NP_CONV1 ? 2 * c->n : c->n;
}

/* One parallel pass over the rows of a chunk. */
typedef struct np_pass {
    np_bridge *b;
    np_chunk *c;
    size_t unit;
    int delivered;          /* the unit's remaining results are in b->view */
} np_pass;

/* Columns of tile column ni of one row of the product, summed over the tiles along k. */
static const int32_t *np_row_tile(const np_pass *p, size_t row, size_t ni, size_t n, int32_t *sum)
{
    const np_bridge *b = p->b;
    const np_tiling *tiling = &b->plan.tiling[p->c->stage];
    size_t tiles = np_tiles(tiling, np_rows(p->c)), mi = row / tiling->m_step, ki, i, terms = 0;
    const int32_t *term = NULL;
    if (tiles > b->plan.chain) {
        term = p->c->partial + row * tiling->n + ni * tiling->n_step;
        terms = 1;
    }
    for (ki = 0; ki < tiling->k_tiles; ki++) {
        size_t index = p->unit * tiles + (mi * tiling->k_tiles + ki) * tiling->n_tiles + ni;
        const int32_t *from;
        if (index < b->delivered->first || index - b->delivered->first >= b->delivered->count) {
            continue; /* already in the partial sums */
        }
        index -= b->delivered->first;
        from = b->view[index].c + (row - mi * tiling->m_step) * b->view[index].ldc;
        if (terms++ == 0) {
            term = from;
            continue;
        }
        if (terms == 2) {
            memcpy(sum, term, n * sizeof *sum);
            term = sum;
        }
        for (i = 0; i < n; i++) {
            sum[i] = (int32_t)((uint32_t)sum[i] + (uint32_t)from[i]);
        }
    }
    return term;
}

static size_t np_tile_columns(const np_tiling *tiling, size_t ni)
{
    size_t left = tiling->n - ni * tiling->n_step;
    return left < tiling->n_step ? left : tiling->n_step;
}

/* Verifies the checksums C r = A (B r) of n rows: 1 if all match. */
static int np_verify(const np_pass *p, size_t row, size_t n, int32_t *scratch)
{
    const np_bridge *b = p->b;
    const np_tiling *tiling = &b->plan.tiling[p->c->stage];
    const np_weight *w = np_weight_of(b, p->c->stage, p->c->layer + p->unit);
    const int8_t *a = p->c->a[np_operand_set(p->c->stage)] + row * tiling->k;
    size_t r, ni;
    for (r = 0; r < n; r++) {
        uint32_t sum = 0;
        for (ni = 0; ni < tiling->n_tiles; ni++) {
            size_t width = np_tile_columns(tiling, ni);
            sum += b->e->op->dot32(np_row_tile(p, row + r, ni, width, scratch),
                            b->random + ni * tiling->n_step, width);
        }
        if (sum != b->e->op->dot8(a + r * tiling->k, w->sums, tiling->k)) {
            return 0;
        }
    }
    return 1;
}

/* out = finish(rows of the stage's product): from the accelerator's sums if they are present and
 * verified, else computed on the CPU. n is at most NP_ROWS. */
static void np_product(const np_pass *p, en_worker *w, size_t row, size_t n, float *out, size_t ldo,
                       op_finish finish)
{
    np_bridge *b = p->b;
    const en_engine *e = b->e;
    const np_tiling *tiling = &b->plan.tiling[p->c->stage];
    const gm_weight *weight = np_weight_of(b, p->c->stage, p->c->layer + p->unit)->weight;
    const float *scale = p->c->scale[np_operand_set(p->c->stage)] + row;
    int32_t *sum = b->sum + (size_t)(w - e->worker) * tiling->n_step;
    size_t r, ni;
    if (p->delivered && np_verify(p, row, n, sum)) {
        for (r = 0; r < n; r++) {
            for (ni = 0; ni < tiling->n_tiles; ni++) {
                size_t at = ni * tiling->n_step, width = np_tile_columns(tiling, ni);
                e->op->dequantise(out + r * ldo + at, ldo,
                                  np_row_tile(p, row + r, ni, width, sum), width, 1, width,
                                  scale + r, weight->scale + at,
                                  weight->bias != NULL ? weight->bias + at : NULL, finish);
            }
        }
        return;
    }
    if (p->delivered) {
        __atomic_store_n(&p->c->wrong, 1, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&p->c->cpu_rows, n, __ATOMIC_RELAXED);
    memcpy(w->scale, scale, n * sizeof *scale);
    e->gm->pack_a(w->packed, p->c->a[np_operand_set(p->c->stage)] + row * tiling->k, tiling->k, n,
                  tiling->k / 4);
    en_multiply(e, w, w, weight, 0, weight->n16, n, out, ldo, finish);
}

/* ---- the CPU's work on a block of rows before and after a product ---- */

/* Quantises x [n, k], stride ldx, as operand rows of a stage. */
static void np_quantise(const np_pass *p, unsigned stage, size_t row, size_t n, const float *x,
                        size_t ldx)
{
    size_t k = p->b->plan.tiling[stage].k;
    p->b->e->op->quantise(p->c->a[np_operand_set(stage)] + row * k, x, ldx, n, k,
                          p->c->scale[np_operand_set(stage)] + row);
}

/* Layer norm of the residual stream, quantised as operand rows of a stage. */
static void np_quantise_norm(const np_pass *p, en_worker *w, const mf_norm *norm, unsigned stage,
                             size_t row, size_t n)
{
    size_t d = p->b->e->model->n_audio_state;
    en_norm(p->b->e, norm, w->rows, p->b->e->x + (p->c->t0 + row) * d, n, d);
    np_quantise(p, stage, row, n, w->rows, d);
}

/* Operand rows of conv1, attn_out and cross_kv, which are not the output of another product. */
static void np_input_task(void *context, size_t index, unsigned worker)
{
    const np_pass *p = context;
    const en_engine *e = p->b->e;
    size_t d = e->model->n_audio_state, mels = e->model->n_mels, row = index * NP_ROWS;
    size_t n = np_rows(p->c) - row < NP_ROWS ? np_rows(p->c) - row : NP_ROWS;
    (void)worker;
    if (p->c->stage == NP_CONV1) {
        np_quantise(p, NP_CONV1, row, n, e->mel + (2 * p->c->t0 + row) * mels, mels);
    } else {
        np_quantise(p, p->c->stage, row, n, (p->c->stage == NP_OUT ? e->attended : e->x) +
                    (p->c->t0 + row) * d, d);
    }
}

/* A row of conv2 reads three rows of conv1: 2 t - 1 to 2 t + 1. The one before the chunk is
 * computed on the CPU (or is zero padding). */
static void np_after_conv1(const np_pass *p, en_worker *w, size_t row, size_t n)
{
    size_t d = p->b->e->model->n_audio_state, rows = 2 * n + 1, done = 0;
    if (row == 0) {
        en_conv1(p->b->e, w, (ptrdiff_t)(2 * p->c->t0) - 1, 1, w->hidden);
        done = 1;
    }
    while (done < rows) {
        size_t some = rows - done < NP_ROWS ? rows - done : NP_ROWS;
        np_product(p, w, 2 * row + done - 1, some, w->hidden + done * d, d, OP_GELU);
        done += some;
    }
    np_quantise(p, NP_CONV2, row, n, w->hidden, 2 * d);
}

static void np_after_conv2(const np_pass *p, en_worker *w, size_t row, size_t n)
{
    const en_engine *e = p->b->e;
    size_t d = e->model->n_audio_state, at = (p->c->t0 + row) * d, i;
    np_product(p, w, row, n, e->x + at, d, OP_GELU);
    for (i = 0; i < n * d; i++) {
        e->x[at + i] += e->model->audio_position[at + i];
    }
    np_quantise_norm(p, w, &e->model->encoder[0].attn_norm, NP_QKV, row, n);
}

static void np_after_qkv(const np_pass *p, en_worker *w, size_t row, size_t n)
{
    en_engine *e = p->b->e;
    size_t d = e->model->n_audio_state, t = p->c->t0 + row, head;
    np_product(p, w, row, n, w->hidden, 3 * d, OP_STORE);
    for (head = 0; head < e->self.heads; head++) {
        const float *x = w->hidden + head * e->self.hd;
        en_store(e, w, &e->self, EN_QUERY, head, t, n, x, 3 * d);
        en_store(e, w, &e->self, EN_KEY, head, t, n, x + d, 3 * d);
        en_store(e, w, &e->self, EN_VALUE, head, t, n, x + 2 * d, 3 * d);
    }
}

static void np_after_fc2(const np_pass *p, en_worker *w, size_t row, size_t n)
{
    const wnpu_model *m = p->b->e->model;
    size_t d = m->n_audio_state;
    float *x = p->b->e->x + (p->c->t0 + row) * d;
    np_product(p, w, row, n, x, d, OP_ADD);
    if (p->c->layer + 1 < m->n_audio_layer) {
        np_quantise_norm(p, w, &m->encoder[p->c->layer + 1].attn_norm, NP_QKV, row, n);
    } else {
        en_norm(p->b->e, &m->encoder_norm, x, x, n, d);
    }
}

static void np_after_cross(const np_pass *p, en_worker *w, size_t row, size_t n)
{
    en_heads *h = &p->b->cross[p->unit];
    size_t d = p->b->e->model->n_audio_state, t = p->c->t0 + row, head;
    np_product(p, w, row, n, w->hidden, 2 * d, OP_STORE);
    for (head = 0; head < h->heads; head++) {
        en_store_keys(p->b->e, h, head, t, n, w->hidden + head * h->hd, 2 * d, w->q);
        en_store_values(p->b->e, h, head, t, n, w->hidden + d + head * h->hd, 2 * d, w->q);
    }
}

/* Epilogue of the current stage: turns its product's rows into operand rows of the next stage. */
static void np_after_task(void *context, size_t index, unsigned worker)
{
    const np_pass *p = context;
    const en_engine *e = p->b->e;
    en_worker *w = &e->worker[worker];
    size_t d = e->model->n_audio_state, row = index * NP_ROWS;
    size_t n = p->c->n - row < NP_ROWS ? p->c->n - row : NP_ROWS;
    switch (p->c->stage) {
    case NP_CONV1: np_after_conv1(p, w, row, n); break;
    case NP_CONV2: np_after_conv2(p, w, row, n); break;
    case NP_QKV: np_after_qkv(p, w, row, n); break;
    case NP_OUT:
        np_product(p, w, row, n, e->x + (p->c->t0 + row) * d, d, OP_ADD);
        np_quantise_norm(p, w, &e->model->encoder[p->c->layer].mlp_norm, NP_FC1, row, n);
        break;
    case NP_FC1:
        np_product(p, w, row, n, w->hidden, 4 * d, OP_GELU);
        np_quantise(p, NP_FC2, row, n, w->hidden, 4 * d);
        break;
    case NP_FC2: np_after_fc2(p, w, row, n); break;
    default: np_after_cross(p, w, row, n); break;
    }
}

/* Adds the results of the delivered job to the partial sums of its unit. */
static void np_add_partial_task(void *context, size_t index, unsigned worker)
{
    const np_pass *p = context;
    const np_bridge *b = p->b;
    const np_tiling *tiling = &b->plan.tiling[p->c->stage];
    size_t tiles = np_tiles(tiling, np_rows(p->c)), row, i, j;
    size_t end = np_rows(p->c) - index * NP_ROWS < NP_ROWS ? np_rows(p->c) : (index + 1) * NP_ROWS;
    (void)worker;
    for (row = index * NP_ROWS; row < end; row++) {
        int32_t *partial = p->c->partial + row * tiling->n;
        if (b->delivered->first % tiles == 0) {
            memset(partial, 0, tiling->n * sizeof *partial);
        }
        for (i = 0; i < b->delivered->count; i++) {
            size_t tile = (b->delivered->first + i) % tiles, ni = tile % tiling->n_tiles;
            size_t first = tile / tiling->n_tiles / tiling->k_tiles * tiling->m_step;
            const int32_t *from = b->view[i].c + (row - first) * b->view[i].ldc;
            int32_t *to = partial + ni * tiling->n_step;
            if (row < first || row - first >= tiling->m_step) {
                continue;
            }
            for (j = 0; j < np_tile_columns(tiling, ni); j++) {
                to[j] = (int32_t)((uint32_t)to[j] + (uint32_t)from[j]);
            }
        }
    }
}

/* ---- progress of a chunk ---- */

static int np_cancelled(const np_bridge *b)
{
    return tp_cancelled(b->e->pool);
}

static int64_t np_deadline(double ms)
{
    return (int64_t)((er_now_ms() + ms) * 1e6);
}

static void np_set_reason(np_bridge *b, const char *reason)
{
    if (b->stats.first_reason[0] == '\0') {
        (void)snprintf(b->stats.first_reason, sizeof b->stats.first_reason, "%.190s", reason);
    }
}

/* Stops using the accelerator for the rest of the window. */
static void np_stop_using(np_bridge *b, const char *reason)
{
    b->stopped = 1;
    np_set_reason(b, reason);
}

static wnpu_accel_account np_account(const np_bridge *b)
{
    wnpu_accel_account account;
    memset(&account, 0, sizeof account);
    account.struct_size = (uint32_t)sizeof account;
    (void)b->accel->account(b->accel->self, &account);
    return account;
}

/* Adds the accelerator's counters since `before` to a stage. */
static void np_add_account(const np_bridge *b, wnpu_accel_stage *s,
                           const wnpu_accel_account *before)
{
    wnpu_accel_account now = np_account(b);
    s->padded_macs += now.padded_macs - before->padded_macs;
    s->submissions += now.submissions - before->submissions;
    s->waits += now.waits - before->waits;
    s->bytes_in += now.bytes_in - before->bytes_in;
    s->bytes_out += now.bytes_out - before->bytes_out;
    s->busy_ms += now.busy_ms - before->busy_ms;
}

/* Runs a pass over blocks of NP_ROWS rows. */
static void np_run_pass(np_pass *p, size_t rows, tp_task task)
{
    double begin = er_now_ms(), took;
    tp_run(p->b->e->pool, en_blocks(rows, NP_ROWS), task, p);
    took = er_now_ms() - begin;
    p->b->stage[p->c->stage].cpu_ms += took;
    p->b->delivery_ms += took;
}

/* Completes one unit of the chunk's stage, with results of the accelerator or without. */
static void np_finish(np_bridge *b, np_chunk *c, int delivered)
{
    wnpu_accel_stage *s = &b->stage[c->stage];
    const np_tiling *tiling = &b->plan.tiling[c->stage];
    uint64_t row_macs = (uint64_t)tiling->n * tiling->k, cpu;
    np_pass pass;
    pass.b = b;
    pass.c = c;
    pass.unit = c->unit;
    pass.delivered = delivered;
    c->wrong = 0;
    c->cpu_rows = 0;
    np_run_pass(&pass, c->n, np_after_task);
    c->unit++;
    if (np_cancelled(b)) {
        return;
    }
    /* adjacent blocks of conv2 both read a row of conv1: count it once */
    cpu = c->cpu_rows < np_rows(c) ? c->cpu_rows : np_rows(c);
    s->macs += row_macs * np_rows(c);
    s->accel_macs += row_macs * (np_rows(c) - cpu);
    if (tiling->planned && cpu > 0) {
        if (!np_weight_of(b, c->stage, c->layer + c->unit - 1)->resident) {
            np_set_reason(b, b->missing);
        }
        s->fallback_macs += row_macs * cpu;
        b->stats.fallbacks++;
        b->stats.wrong += (uint32_t)c->wrong;
        b->wrong |= c->wrong;
        b->fell_back = 1;
    }
}

/* The stage after the chunk's current one, or NP_STAGES where the chunk waits for the others. */
static unsigned np_next_stage(const np_bridge *b, const np_chunk *c)
{
    switch (c->stage) {
    case NP_CONV1: return NP_CONV2;
    case NP_CONV2: return NP_QKV;
    case NP_OUT: return NP_FC1;
    case NP_FC1: return NP_FC2;
    case NP_FC2: return c->layer + 1 < b->e->model->n_audio_layer ? NP_QKV : NP_STAGES;
    default: return NP_STAGES;
    }
}

/* Sets the chunk's next stage; its operand rows are ready. 1 if it has to be submitted. */
static int np_enter(np_bridge *b, np_chunk *c, unsigned stage, size_t layer)
{
    c->stage = stage;
    c->layer = layer;
    c->next = 0;
    c->unit = 0;
    c->failed = 0;
    c->parked = 0;
    return !b->stopped && b->plan.tiling[stage].planned && np_weight_of(b, stage, layer)->resident;
}

/* Completes the chunk's stage and following ones on the CPU until there is something to submit or
 * the chunk has to wait. While attention reads keys and queries, QKV must not overwrite them: the
 * chunk is then parked. */
static void np_advance(np_bridge *b, np_chunk *c)
{
    const np_tiling *tiling;
    for (;;) {
        unsigned next;
        tiling = &b->plan.tiling[c->stage];
        if (c->unit < tiling->units && c->stage == NP_QKV && b->attending) {
            c->parked = 1;
            return;
        }
        while (c->unit < tiling->units && !np_cancelled(b)) {
            np_finish(b, c, 0);
        }
        next = np_next_stage(b, c);
        if (next == NP_STAGES || np_cancelled(b)) {
            return;
        }
        if (np_enter(b, c, next, next == NP_QKV && c->stage == NP_FC2 ? c->layer + 1 : c->layer)) {
            b->queue[b->n_queue++] = c;
            return;
        }
    }
}

/* Fills the accelerator's description of tile `index` of the chunk's stage. */
static void np_describe(np_bridge *b, const np_chunk *c, size_t index, wnpu_accel_product *to)
{
    const np_tiling *tiling = &b->plan.tiling[c->stage];
    size_t tiles = np_tiles(tiling, np_rows(c)), unit = index / tiles, tile = index % tiles;
    size_t ni = tile % tiling->n_tiles, ki = tile / tiling->n_tiles % tiling->k_tiles;
    size_t first = tile / tiling->n_tiles / tiling->k_tiles * tiling->m_step;
    const np_weight *w = np_weight_of(b, c->stage, c->layer + unit);
    size_t left = np_rows(c) - first;
    memset(to, 0, sizeof *to);
    to->shape = tiling->shape;
    to->m = (uint32_t)(left < tiling->m_step ? left : tiling->m_step);
    to->b = w->handles[ki * tiling->n_tiles + ni];
    to->a = c->a[np_operand_set(c->stage)] + first * tiling->k + ki * tiling->k_step;
    to->lda = tiling->k;
    to->user = b;
}

/* Callback of wait(): receives the results of a tile. When the job is complete, complete units are
 * passed to the next stage and the rest is added to the partial sums. */
static void np_receive(void *user, size_t index, const int32_t *c, size_t ldc)
{
    np_bridge *b = user;
    np_chunk *chunk = b->delivered->chunk;
    const np_tiling *tiling = &b->plan.tiling[chunk->stage];
    size_t tiles = np_tiles(tiling, np_rows(chunk));
    size_t end = b->delivered->first + b->delivered->count;
    np_pass pass;
    if (index >= b->delivered->count || index != b->n_delivered) {
        return; /* violates the contract: the job counts as failed */
    }
    b->view[index].c = c;
    b->view[index].ldc = ldc;
    b->n_delivered++;
    if (b->n_delivered < b->delivered->count || chunk->failed || np_cancelled(b)) {
        return;
    }
    if (end % tiles != 0) {
        pass.b = b;
        pass.c = chunk;
        pass.unit = chunk->unit;
        pass.delivered = 1;
        np_run_pass(&pass, np_rows(chunk), np_add_partial_task);
    }
    while (chunk->unit < end / tiles && !np_cancelled(b)) {
        np_finish(b, chunk, 1);
    }
}

/* Submits the next job of a chunk. */
static int np_submit(np_bridge *b, np_chunk *c)
{
    const np_tiling *tiling = &b->plan.tiling[c->stage];
    size_t tiles = np_tiles(tiling, np_rows(c)), total = tiles * tiling->units, count, i;
    wnpu_accel_product product[NP_CHAIN];
    wnpu_accel_account before = np_account(b);
    double begin = er_now_ms();
    wnpu_error error;
    np_job *job = &b->job[b->n_jobs];
    int code;
    if (tiles > b->plan.chain) {
        count = tiles - c->next % tiles < b->plan.chain ? tiles - c->next % tiles : b->plan.chain;
    } else {
        count = b->plan.chain / tiles * tiles;
        count = total - c->next < count ? total - c->next : count;
    }
    for (i = 0; i < count; i++) {
        np_describe(b, c, c->next + i, &product[i]);
        product[i].take = np_receive;
    }
    er_clear(&error);
    code = b->accel->submit(b->accel->self, product, count, &job->id, &error);
    np_add_account(b, &b->stage[c->stage], &before);
    b->stage[c->stage].cpu_ms += er_now_ms() - begin;
    if (code != WNPU_OK) {
        np_stop_using(b, error.message[0] != '\0' ? error.message
                                                 : "the accelerator refused a job");
        return code;
    }
    job->chunk = c;
    job->first = c->next;
    job->count = count;
    job->us = tiling->first_us + (double)(count - 1) * tiling->next_us;
    b->n_jobs++;
    b->stage[c->stage].jobs++;
    c->next += count;
    c->in_flight++;
    return WNPU_OK;
}

static void np_dequeue(np_bridge *b, const np_chunk *c)
{
    size_t i, n = 0;
    for (i = 0; i < b->n_queue; i++) {
        if (b->queue[i] != c) {
            b->queue[n++] = b->queue[i];
        }
    }
    b->n_queue = n;
}

/* Submits queued chunks up to the limit of jobs. After a failure they continue on the CPU. */
static void np_submit_queued(np_bridge *b)
{
    while (b->n_queue > 0 && (b->n_jobs < b->plan.jobs || b->stopped || np_cancelled(b))) {
        np_chunk *c = b->queue[0];
        const np_tiling *tiling = &b->plan.tiling[c->stage];
        int code = b->stopped || np_cancelled(b) ? WNPU_E_ACCEL : np_submit(b, c);
        c->failed |= code != WNPU_OK;
        if (c->failed || c->next == np_tiles(tiling, np_rows(c)) * tiling->units) {
            np_dequeue(b, c);
        }
        if (c->failed && c->in_flight == 0) {
            np_advance(b, c);
        }
    }
}

static void np_start(np_bridge *b, np_chunk *c, unsigned stage, size_t layer)
{
    if (np_enter(b, c, stage, layer)) {
        b->queue[b->n_queue++] = c;
    } else {
        np_advance(b, c);
    }
    np_submit_queued(b);
}

/* Reports a wrong result to the accelerator. */
static void np_distrust(np_bridge *b, const np_chunk *c)
{
    char reason[96];
    (void)snprintf(reason, sizeof reason, "a result does not match its checksum (%s of layer %lu, "
                   "positions from %lu on)", np_names[c->stage], (unsigned long)c->layer,
                   (unsigned long)c->t0);
    np_stop_using(b, reason);
    b->accel->distrust(b->accel->self, reason);
}

/* Waits for a job in flight and continues with its chunk. */
static void np_complete_job(np_bridge *b, size_t index)
{
    np_job job = b->job[index];
    np_chunk *c = job.chunk;
    wnpu_accel_stage *s = &b->stage[c->stage];
    wnpu_accel_account before = np_account(b);
    double begin = er_now_ms(), expected = 0.0, limit;
    wnpu_error error;
    size_t i;
    int code;
    for (i = 0; i <= index; i++) {
        expected += b->job[i].us;
    }
    limit = NP_WAIT_FACTOR * expected * 1e-3;
    limit = limit < NP_WAIT_MIN_MS ? NP_WAIT_MIN_MS
            : limit < NP_WAIT_MAX_MS ? limit : NP_WAIT_MAX_MS;
    b->n_jobs--;
    memmove(b->job + index, b->job + index + 1, (b->n_jobs - index) * sizeof b->job[0]);
    b->delivered = &job;
    b->n_delivered = 0;
    b->wrong = 0;
    b->delivery_ms = 0.0;
    er_clear(&error);
    code = b->accel->wait(b->accel->self, job.id, np_deadline(limit), &error);
    s->waited_ms += er_now_ms() - begin - b->delivery_ms;
    b->delivered = NULL;
    np_add_account(b, s, &before);
    c->in_flight--;
    if (code != WNPU_OK || b->n_delivered != job.count) {
        np_stop_using(b, error.message[0] != '\0' ? error.message
                                                 : "a job's results were not delivered");
        c->failed = 1;
        np_dequeue(b, c);
    } else if (b->wrong) {
        np_distrust(b, c);
    }
    if (c->in_flight == 0 && (c->failed || c->unit == b->plan.tiling[c->stage].units)) {
        np_advance(b, c);
    }
    np_submit_queued(b);
}

/* ---- a window ---- */

typedef struct np_attention {
    en_engine *e;
    size_t head, block, blocks; /* first head; first block of queries; blocks of the chunk */
} np_attention;

static void np_attend_task(void *context, size_t index, unsigned worker)
{
    const np_attention *a = context;
    size_t all = en_blocks(a->e->model->n_audio_ctx, EN_QUERIES);
    en_attend_task(a->e, (a->head + index / a->blocks) * all + a->block + index % a->blocks,
                   worker);
}

/* Attention of a chunk for one group of heads. */
static void np_attend(np_bridge *b, const np_chunk *c, size_t group)
{
    wnpu_accel_stage *s = &b->stage[NP_ATTEND];
    size_t heads = b->e->self.heads, end = heads * (group + 1) / NP_HEAD_GROUPS;
    double begin = er_now_ms();
    np_attention a;
    a.e = b->e;
    a.head = heads * group / NP_HEAD_GROUPS;
    a.block = c->t0 / EN_QUERIES;
    a.blocks = en_blocks(c->n, EN_QUERIES);
    tp_run(b->e->pool, (end - a.head) * a.blocks, np_attend_task, &a);
    s->cpu_ms += er_now_ms() - begin;
    s->macs += 2 * (uint64_t)c->n * b->e->model->n_audio_ctx * (end - a.head) * b->e->self.hd;
}

static void np_input(np_bridge *b, np_chunk *c, unsigned stage)
{
    np_pass pass;
    memset(&pass, 0, sizeof pass);
    pass.b = b;
    pass.c = c;
    c->stage = stage;
    np_run_pass(&pass, np_rows(c), np_input_task);
}

/* Completes all jobs and everything that follows from them. */
static void np_drain(np_bridge *b)
{
    while (b->n_jobs > 0) {
        np_complete_job(b, 0);
    }
}

/* Attention and the following stages of a layer, up to the keys of the next layer. */
static void np_layer(np_bridge *b, size_t layer)
{
    size_t i, j, group;
    b->attending = 1;
    for (i = 0; i < b->plan.chunks; i++) {
        for (group = 0; group < NP_HEAD_GROUPS; group++) {
            np_attend(b, &b->chunk[i], group);
            for (j = 0; j < b->n_jobs && b->job[j].chunk->stage == NP_QKV; j++) {
            }
            if (j < b->n_jobs) {
                np_complete_job(b, j);
            }
        }
        np_input(b, &b->chunk[i], NP_OUT);
        np_start(b, &b->chunk[i], NP_OUT, layer);
    }
    b->attending = 0;
    for (i = 0; i < b->plan.chunks; i++) {
        if (b->chunk[i].parked) {
            b->chunk[i].parked = 0;
            np_advance(b, &b->chunk[i]);
        }
    }
    np_drain(b);
}

/* The encoder: same result as en_run(). */
static void np_run(np_bridge *b)
{
    size_t i;
    for (i = 0; i < b->plan.chunks; i++) {
        np_input(b, &b->chunk[i], NP_CONV1);
        np_start(b, &b->chunk[i], NP_CONV1, 0);
    }
    np_drain(b);
    for (i = 0; i < b->e->model->n_audio_layer && !np_cancelled(b); i++) {
        np_layer(b, i);
        en_report_layer(b->e, i + 1);
    }
}

/* Keys and values of cross-attention: same result as en_cross(). */
static void np_cross(np_bridge *b, en_heads *cross)
{
    size_t i;
    b->cross = cross;
    for (i = 0; i < b->plan.chunks; i++) {
        np_input(b, &b->chunk[i], NP_CROSS);
        np_start(b, &b->chunk[i], NP_CROSS, 0);
    }
    np_drain(b);
}

/* ---- exclusive use, windows, runs ---- */

/* Acquires exclusive use of the accelerator. 0 if another session has it and wait is 0. */
static int np_lock(np_bridge *b, int wait)
{
    for (;;) {
        struct timespec pause = {0, 1000000};
        uint32_t idle = 0;
        if (__atomic_compare_exchange_n(&b->accel->in_use, &idle, 1u, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
            return 1;
        }
        if (!wait) {
            return 0;
        }
        (void)nanosleep(&pause, NULL);
    }
}

static void np_unlock(np_bridge *b)
{
    __atomic_store_n(&b->accel->in_use, 0, __ATOMIC_RELEASE);
}

/* Accounts for a window that runs in en_run() and en_cross(). */
static void np_count_cpu_window(np_bridge *b, const char *reason)
{
    const wnpu_model *m = b->e->model;
    unsigned i;
    for (i = 0; i < NP_STAGES; i++) {
        uint64_t macs = np_macs(m, i, m->n_audio_ctx) * np_runs(m, i);
        b->stage[i].macs += macs;
        if (b->plan.tiling[i].planned) {
            b->stage[i].fallback_macs += macs;
            b->stats.fallbacks += b->plan.chunks * np_runs(m, i) * b->plan.tiling[i].units;
        }
    }
    b->stats.windows_without++;
    b->fell_back |= b->stats.fallbacks > 0;
    if (b->stats.fallbacks > 0) {
        np_set_reason(b, reason);
    }
}

/* Before a window: 1 if np_run(), np_cross() and then np_end() have to be called. */
static int np_begin(np_bridge *b)
{
    wnpu_error error;
    int health;
    if (b->accel == NULL) {
        return 0;
    }
    b->stats.windows++;
    if (!b->plan.any) {
        np_count_cpu_window(b, b->missing);
        return 0;
    }
    if (!np_lock(b, b->required)) {
        np_count_cpu_window(b, "another session is using the accelerator");
        return 0;
    }
    er_clear(&error);
    health = b->accel->health(b->accel->self);
    if (health == WNPU_ACCEL_PROBE) {
        b->stats.probes++;
        (void)b->accel->probe(b->accel->self, np_deadline(NP_PROBE_MS), &error);
        health = b->accel->health(b->accel->self);
    }
    b->stats.health = health;
    if (health != WNPU_ACCEL_OK) {
        wnpu_accel_account account = np_account(b);
        np_unlock(b);
        np_count_cpu_window(b, error.message[0] != '\0' ? error.message
                               : account.first_failure[0] != '\0' ? account.first_failure
                               : "the accelerator is not available");
        return 0;
    }
    b->stopped = 0;
    return 1;
}

static void np_end(np_bridge *b)
{
    b->stats.health = b->accel->health(b->accel->self);
    np_unlock(b);
}

/* E_ACCEL if the accelerator was required and the CPU computed a planned product. */
static int np_check_required(const np_bridge *b, wnpu_error *error)
{
    if (b->accel == NULL || !b->required || !b->fell_back) {
        return WNPU_OK;
    }
    return er_set(error, WNPU_E_ACCEL, "the accelerator was required, but part ran on the CPU: %s",
                  b->stats.first_reason);
}

/* Clears the statistics of the previous run. */
static void np_reset(np_bridge *b)
{
    unsigned i;
    memset(&b->stats, 0, sizeof b->stats);
    memset(b->stage, 0, sizeof b->stage);
    b->fell_back = 0;
    for (i = 0; i < NP_STAGES && b->accel != NULL; i++) {
        b->stage[i].name = np_names[i];
        b->stage[i].planned = b->plan.tiling[i].planned;
    }
}

/* Statistics of the last run. */
static void np_get_stats(const np_bridge *b, wnpu_accel_stats *to)
{
    unsigned i;
    *to = b->stats;
    to->name = "";
    if (b->accel == NULL) {
        return;
    }
    to->name = b->info.name != NULL ? b->info.name : "";
    to->chunk_rows = b->plan.any ? b->plan.chunk : 0;
    to->resident_bytes = b->resident_bytes;
    for (i = 0; i < NP_STAGES; i++) {
        to->macs += b->stage[i].macs;
        to->accel_macs += b->stage[i].accel_macs;
    }
}

/* ---- opening and closing ---- */

/* Queries the accelerator's properties; it may have been compiled with a different header. */
static int np_query(const wnpu_accel *accel, wnpu_accel_info *info, wnpu_error *error)
{
    if (accel->struct_size < sizeof *accel) {
        return er_set(error, WNPU_E_VERSION, "the accelerator was compiled with an older header "
                      "(struct_size %u, this library needs %u): recompile it",
                      (unsigned)accel->struct_size, (unsigned)sizeof *accel);
    }
    if (accel->describe == NULL || accel->resident == NULL || accel->release == NULL ||
        accel->submit == NULL || accel->wait == NULL || accel->health == NULL ||
        accel->probe == NULL || accel->distrust == NULL || accel->account == NULL) {
        return er_set(error, WNPU_E_ARGUMENT, "the accelerator lacks one of its functions");
    }
    memset(info, 0, sizeof *info);
    info->struct_size = (uint32_t)sizeof *info;
    if (accel->describe(accel->self, info) != WNPU_OK ||
        (info->n_shapes > 0 && info->shapes == NULL)) {
        return er_set(error, WNPU_E_ACCEL, "the accelerator does not report its shapes");
    }
    return WNPU_OK;
}

/* Extracts a tile of a weight: packed panels to rows [n, k]. */
static void np_unpack_tile(int8_t *to, const gm_weight *w, size_t n0, size_t n, size_t k0, size_t k)
{
    size_t i, j;
    for (i = 0; i < n; i++) {
        const int8_t *from = w->packed + (n0 + i) / 16 * w->k4 * GM_GROUP + (n0 + i) % 16 * 4;
        for (j = 0; j < k; j++) {
            to[i * k + j] = from[(k0 + j) / 4 * GM_GROUP + (k0 + j) % 4];
        }
    }
}

/* sums = B r modulo 2^32. */
static void np_sum_weight(const np_bridge *b, np_weight *w)
{
    const gm_weight *g = w->weight;
    size_t n, k;
    memset(w->sums, 0, g->k * sizeof *w->sums);
    for (n = 0; n < g->n; n++) {
        const int8_t *from = g->packed + n / 16 * g->k4 * GM_GROUP + n % 16 * 4;
        for (k = 0; k < g->k; k++) {
            int32_t value = from[k / 4 * GM_GROUP + k % 4];
            w->sums[k] += b->random[n] * (uint32_t)value;
        }
    }
}

static void np_release(np_bridge *b, np_weight *w, size_t count)
{
    while (count-- > 0) {
        (void)b->accel->release(b->accel->self, w->handles[count]);
    }
    w->resident = 0;
}

static void np_evict(np_bridge *b, np_weight *w, const np_tiling *tiling)
{
    size_t tiles = (size_t)tiling->n_tiles * tiling->k_tiles;
    np_release(b, w, tiles);
    b->resident_bytes -= tiles * b->info.shapes[tiling->shape].resident_bytes;
}

/* Makes all tiles of a weight resident, or none. */
static int np_make_resident(np_bridge *b, np_weight *w, const np_tiling *tiling, wnpu_error *error)
{
    size_t ki, ni, count = 0;
    for (ki = 0; ki < tiling->k_tiles; ki++) {
        for (ni = 0; ni < tiling->n_tiles; ni++) {
            size_t n0 = ni * tiling->n_step, n = np_tile_columns(tiling, ni);
            size_t k0 = ki * tiling->k_step;
            size_t k = tiling->k - k0 < tiling->k_step ? tiling->k - k0 : tiling->k_step;
            int code;
            np_unpack_tile(b->tile, w->weight, n0, n, k0, k);
            er_clear(error);
            code = b->accel->resident(b->accel->self, tiling->shape, (uint32_t)n, (uint32_t)k,
                                      b->tile, k, &w->handles[count], error);
            if (code != WNPU_OK) {
                np_release(b, w, count);
                return code;
            }
            count++;
        }
    }
    w->resident = 1;
    b->resident_bytes += count * b->info.shapes[tiling->shape].resident_bytes;
    return WNPU_OK;
}

/* Releases the resident weights of a session; no job is in flight. */
static void np_close(np_bridge *b)
{
    size_t i;
    unsigned stage;
    if (b->accel == NULL || b->resident_bytes == 0) {
        return;
    }
    (void)np_lock(b, 1);
    for (i = np_n_weights(b->e->model); i-- > 0;) {
        (void)np_source(b->e->model, i, &stage);
        if (b->weights[i].resident) {
            np_evict(b, &b->weights[i], &b->plan.tiling[stage]);
        }
    }
    np_unlock(b);
}

/* The units of cross_kv share jobs: if one weight is not resident, the others are evicted too. */
static void np_require_all_cross(np_bridge *b)
{
    const np_tiling *tiling = &b->plan.tiling[NP_CROSS];
    size_t l, layers = b->e->model->n_text_layer, there = 0;
    for (l = 0; l < layers; l++) {
        there += (size_t)np_weight_of(b, NP_CROSS, l)->resident;
    }
    for (l = 0; l < layers && there < layers; l++) {
        if (np_weight_of(b, NP_CROSS, l)->resident) {
            np_evict(b, np_weight_of(b, NP_CROSS, l), tiling);
        }
    }
}

/* Makes the planned weights resident. Those that do not fit stay on the CPU, which is an error only
 * if the accelerator is required. */
static int np_open(np_bridge *b, const wnpu_config *config, wnpu_error *error)
{
    wnpu_error why, first;
    size_t i, missing = 0, planned = 0, n = np_n_weights(b->e->model);
    unsigned stage;
    if (b->accel == NULL || !b->plan.any) {
        return b->accel != NULL && b->required
                   ? er_set(error, WNPU_E_ACCEL, "the accelerator is required, but nothing would "
                            "run on it; see accel_use") : WNPU_OK;
    }
    er_clear(&first);
    np_randomise(b->random, 4 * (size_t)b->e->model->n_audio_state);
    (void)np_lock(b, 1);
    for (i = 0; i < n; i++) {
        np_weight *w = &b->weights[i];
        (void)np_source(b->e->model, i, &stage);
        if (b->plan.tiling[stage].planned) {
            planned++;
            if (np_make_resident(b, w, &b->plan.tiling[stage], &why) == WNPU_OK) {
                np_sum_weight(b, w);
            } else {
                first = missing++ == 0 ? why : first;
            }
        }
    }
    np_require_all_cross(b);
    np_unlock(b);
    if (missing > 0 && b->required) {
        np_close(b);
        return er_set(error, WNPU_E_ACCEL, "%lu of %lu weights are not in the accelerator's "
                      "memory: %.150s", (unsigned long)missing, (unsigned long)planned,
                      first.message);
    }
    if (missing > 0) {
        (void)snprintf(b->missing, sizeof b->missing, "%.190s", first.message);
        b->plan.any = b->resident_bytes > 0;
        er_log(config->log, config->log_user, WNPU_LOG_WARNING, "%lu of %lu weights are not in the "
               "accelerator's memory, their products run on the CPU: %s", (unsigned long)missing,
               (unsigned long)planned, first.message);
    }
    return WNPU_OK;
}

/* ---- memory ---- */

/* Carves the bridge's memory; accel, info and plan are set. An empty plan needs no memory. */
static void np_carve(ar_arena *arena, np_bridge *b, en_engine *e, size_t workers)
{
    const wnpu_model *m = e->model;
    size_t d = m->n_audio_state, tile = 0, partial = 0, width = 0, before, i;
    const np_plan *p = &b->plan;
    unsigned stage;
    b->e = e;
    for (i = 0; i < NP_STAGES && p->any; i++) {
        const np_tiling *tiling = &p->tiling[i];
        size_t bytes = (size_t)tiling->n_step * tiling->k_step;
        size_t sums = (size_t)tiling->rows * tiling->n;
        int several_jobs = tiling->planned && np_tiles(tiling, tiling->rows) > p->chain;
        tile = tiling->planned && bytes > tile ? bytes : tile;
        width = tiling->n_step > width ? tiling->n_step : width;
        partial = several_jobs && sums > partial ? sums : partial;
    }
    if (!p->any) {
        return;
    }
    b->weights = ar_carve(arena, np_n_weights(m), sizeof *b->weights);
    for (i = 0; i < np_n_weights(m); i++) {
        np_weight w;
        memset(&w, 0, sizeof w);
        w.weight = np_source(m, i, &stage);
        w.handles = ar_carve(arena, (size_t)p->tiling[stage].n_tiles * p->tiling[stage].k_tiles,
                             sizeof *w.handles);
        w.sums = ar_carve(arena, w.weight->k, sizeof *w.sums);
        if (b->weights != NULL) {
            b->weights[i] = w;
        }
    }
    b->random = ar_carve(arena, 4 * d, sizeof *b->random);
    b->tile = ar_carve(arena, tile, 1);
    before = arena->used;
    b->scratch = ar_carve(arena, 0, 1);
    b->sum = ar_carve(arena, workers * width, sizeof *b->sum);
    for (i = 0; i < p->chunks; i++) {
        np_chunk *c = &b->chunk[i];
        size_t conv = 2 * (size_t)p->chunk * 3 * m->n_mels, rows = (size_t)p->chunk * d;
        c->t0 = i * p->chunk;
        c->n = m->n_audio_ctx - c->t0 < p->chunk ? m->n_audio_ctx - c->t0 : p->chunk;
        c->a[0] = ar_carve(arena, 4 * rows, 1);
        c->a[1] = ar_carve(arena, conv > rows ? conv : rows, 1);
        c->scale[0] = ar_carve(arena, p->chunk, sizeof(float));
        c->scale[1] = ar_carve(arena, 2 * (size_t)p->chunk, sizeof(float));
        c->partial = partial > 0 ? ar_carve(arena, partial, sizeof *c->partial) : NULL;
    }
    b->scratch_bytes = arena->used - before;
}

static void np_wipe(np_bridge *b)
{
    if (b->scratch != NULL) {
        ar_wipe(b->scratch, b->scratch_bytes);
    }
}

/* ======================================================================
 * 20. va_  voice activity
 *
 *  Owns      the detector: samples to features, features to a probability
 *            of speech every 20 ms, probabilities to spans of speech.
 *  Assumes   16 kHz mono samples, in order; the caller takes a span after
 *            each push.
 *  Ensures   constant memory for any length; the same spans for any
 *            division of the samples into pushes and every instruction set.
 *  Costs     40 KiB; 4 to 7 ms for 30 s on one core.
 *
 *  Features are the log powers of 24 mel-like bands, relative to their mean
 *  and relative to a noise floor that tracks each band's minimum (after
 *  R. Martin, "Noise power spectral density estimation based on optimal
 *  smoothing and minimum statistics", 2001); the level relative to the
 *  recent maximum; and strength, lag and movement of the pitch, from the
 *  normalised cross-correlation of the low-passed signal (after D. Talkin,
 *  "A robust algorithm for pitch tracking", 1995). A small recurrent
 *  network (GRU; Cho et al., 2014) turns them into a probability, with a
 *  look-ahead of 200 ms. tests/speech/train_vad.py trained its weights. The
 *  network runs twice, on the spectrum as it is and with the bands filled
 *  in that a band-limited channel lacks; the larger probability counts.
 * ====================================================================== */
#define VA_STEP 320u             /* samples of one decision, 20 ms */
#define VA_STEP_MS 20
#define VA_BLOCK (2u * VA_STEP)  /* four mel frames: a multiple of every possible ML_BATCH */
#define VA_CONTEXT 224u          /* context samples before and after a block */
#define VA_BUFFER (VA_BLOCK + 2u * VA_CONTEXT)
#define VA_BANDS 24u
#define VA_LAG0 8u               /* pitch lags at 4 kHz: 500 Hz .. */
#define VA_LAGS 56u              /* .. 63.5 Hz */
#define VA_CORRELATION 120u      /* length of the correlation in samples at 4 kHz, 30 ms */
#define VA_PITCH_SPAN (VA_CORRELATION + VA_LAG0 + VA_LAGS) /* samples at 4 kHz around a step */
#define VA_LOW (VA_PITCH_SPAN + VA_STEP / 4u)       /* the same span for both steps of a block */
#define VA_INPUTS (2u * VA_BANDS + 4u)
#define VA_DENSE 16u             /* width of the first layer */
#define VA_STATE 24u             /* width of the recurrent layer */
#define VA_ABSENT 3.0f           /* bands this far (30 dB) below the loudest are absent */
#define VA_AHEAD 10u             /* steps that the network looks ahead */
#define VA_HISTORY 2048u         /* steps of history, 41 s .. */
#define VA_LONG_HISTORY 16384u   /* .. or 328 s, if windows are cut far ahead */

typedef struct va_weights {      /* the last row of each is the bias */
    float dense[VA_INPUTS + 1][VA_DENSE];
    float input[VA_DENSE + 1][3 * VA_STATE];  /* reset, update and candidate gates */
    float state[VA_STATE + 1][3 * VA_STATE];
    float out[VA_STATE + 1];
} va_weights;

/* Rules for spans, in steps; defined at wnpu_params. */
typedef struct va_rules {
    float on, off;               /* probabilities needed to begin and to continue a span */
    uint64_t least, gap, pad;
} va_rules;

typedef struct va_span {
    uint64_t first, end;         /* steps, padded */
} va_span;

typedef struct va_detector {
    const op_kernels *op;
    const ft_tables *fft;
    ml_scratch *scratch;
    ml_filters filters;          /* [VA_BANDS, ML_BINS] */
    float *filter_weight;
    va_weights *weights;
    float *x;                    /* [VA_BUFFER] samples from VA_CONTEXT before the next block on */
    float *power;                /* [4, VA_BANDS] powers of a block's frames */
    float *low;                  /* [VA_LOW] the block at 4 kHz, from VA_PITCH_SPAN / 2 before
                                    the centre of its first step on */
    unsigned char *history;      /* [kept] probability * 255 of step i at i % kept */
    size_t kept;                 /* VA_HISTORY or VA_LONG_HISTORY */
    size_t have;                 /* samples in x */
    uint64_t n_pushed;           /* samples pushed */
    uint64_t seen;               /* steps that the network has seen */
    uint64_t step;               /* steps decided */
    float floor[VA_BANDS], top, voiced, lag; /* state of the features: noise floors, recent maximum
                                    level, strength and log lag of the last pitch */
    float loud[VA_BANDS];        /* recent maximum of each band, falling by 1 dB per second */
    float state[2][VA_STATE];    /* of the network: [0] spectrum as it is, [1] bands filled in */
    va_rules rules;
    int open, complete;          /* a span has begun; `span` is complete and not yet taken */
    uint64_t first, end, count;  /* open span without padding; its number of speech steps */
    va_span span;
} va_detector;

/* va-table-begin: written by tests/speech/train_vad.py */
static const float va_scales[4][2] = {
    {0.00922470487f, 0.00164828174f},
    {0.0123713157f, 0.0181575178f},
    {0.0135214723f, 0.0044224985f},
    {0.00751181756f, 0.000360736667f}
};
static const int8_t va_table[3897] = {
    58, 27, -41, -8, 7, -8, -53, 59, -29, 44, -55, -11, -24, 29, -56, 38, 1, 17, -14, 13, -7, -16,
    36, 12, -116, -55, -26, -33, 25, 32, 46, -41, 3, 64, 11, 2, -7, -32, 37, 3, -56, -13, 22, -20,
    3, -3, 11, -18, 9, 30, -2, -19, 16, -7, 55, -46, 45, -15, -3, -16, 23, 4, -5, -45, -19, -4, -25,
    23, -58, 25, 68, -40, 30, -22, 50, 1, 25, -26, 7, -55, 1, 5, -56, -24, -12, 21, -6, -6, 56, -20,
    35, 1, 15, -9, 17, -84, -6, -3, -75, 13, 2, 21, -2, 11, 43, -12, -9, -45, 50, 11, -13, -35, 23,
    21, -19, -9, 12, -4, -53, 28, 38, -25, -77, 11, 43, -5, -1, -1, 2, -32, -20, -21, 5, 35, -51,
    -26, -2, -14, -22, -1, -40, 17, 25, -25, 39, -7, -35, -27, 21, -2, -23, -17, -61, -36, -33, 80,
    -43, -6, -31, -17, 18, -9, -56, -26, 29, 8, -1, -34, -45, 13, -42, 40, -14, -2, -31, 11, -42,
    -13, 2, -22, 24, -3, -46, 38, -28, -31, -60, 20, -43, 31, 4, 11, 21, -59, 33, -33, 7, 39, -6,
    -31, 10, 13, -36, 30, -21, -13, -22, 5, -7, -12, 61, -8, -71, 43, -23, -15, -23, -37, -12, 33,
    -34, 9, -29, -56, -3, -54, -5, 7, -56, 5, 14, 15, -23, -48, 66, 40, -45, 9, -30, -18, -8, -44,
    23, -27, 33, -16, 11, 10, 12, 8, -16, 19, 8, -8, 7, -26, -41, -2, 35, 10, 10, -14, 7, 8, -7,
    -37, -12, 27, 24, -14, -9, -32, -87, 54, -14, 29, 26, -16, -22, 11, -4, -11, 18, -14, 9, 27, 7,
    -19, -60, -19, 48, 32, 12, -17, -1, 1, -22, 46, 79, -6, -9, -9, 2, -4, -26, -12, 108, 16, 23, 3,
    -9, 18, -51, -6, 52, -9, -19, 7, -18, 47, -14, -21, 24, -11, 4, -42, -21, 0, -34, 37, 64, 5, 5,
    -26, 21, 37, 15, 27, -17, 1, -17, 5, -29, -5, -2, 38, -8, -9, -24, 8, -6, 8, 25, 4, 8, -5, 15,
    -18, 6, -5, 31, 45, -25, 5, -14, 0, 6, 12, 10, 10, 41, -28, -10, 35, -23, -27, 46, 38, -22, 11,
    -6, 1, -19, 50, -3, 9, -15, 21, 4, -20, -2, 29, -24, 11, -16, -38, -3, 12, 4, 26, -30, -14, -15,
    43, -33, 10, 27, 6, 9, -18, -51, 12, -23, 0, -33, 28, 12, -22, 12, 4, 0, 4, 12, 10, 1, -5, 27,
    -17, 8, 13, 4, -5, 28, -8, -11, -13, 15, 0, -5, -27, -9, -7, 23, 26, 22, 11, -26, 11, 4, 21, 6,
    2, -11, -4, 2, -12, 3, 39, 5, 19, 45, 9, 20, 26, -15, -4, -12, -2, -13, 6, 21, -14, 0, -28, 5,
    6, 4, 15, 4, -2, -9, 14, 9, 7, 55, -6, 33, 33, -1, -20, -25, -4, 21, 17, -7, -3, 13, -30, -5,
    -4, -24, 37, -22, -14, -22, 20, -19, 7, 7, 18, -33, -10, 35, -16, -31, -8, 20, 6, 19, -18, 17,
    9, -32, 25, 44, -4, -5, 32, -25, -17, -30, -23, -5, 10, 8, -12, 6, 42, 15, 18, -6, 24, -33, 29,
    0, 30, 3, -24, 5, 21, -31, -8, -20, -30, 12, 21, 13, 13, -29, 6, -13, 28, 14, 16, -8, 3, -6, 35,
    -7, -40, 3, 33, 11, 28, -52, -41, -27, -10, -6, 4, 14, -5, 16, -1, -6, 18, -24, -59, -28, -6,
    -86, -9, 7, -9, -35, -14, -13, 32, 3, -26, -5, 15, 36, 10, 0, 32, -43, -10, -15, -11, 32, -32,
    2, -23, 4, 20, 16, 14, 15, 10, 32, 14, -17, -12, -6, -2, -11, 52, 41, -8, -1, 36, -3, -8, 18,
    -17, -15, -8, -36, 3, 17, 14, -6, 20, -10, -36, -26, -27, 20, 26, 0, -9, -26, -16, -47, -12,
    -22, -4, 12, -47, 4, -50, 17, -8, -15, 9, 35, 4, 22, -6, -62, 14, -7, -17, 21, 9, -8, 14, -9,
    11, 4, 18, -15, 28, 4, 28, -39, -10, 15, -43, -14, 30, 10, 11, 4, 4, -16, -25, -23, -19, -8, -9,
    -110, -40, -14, 10, -5, -10, -50, 27, -13, 28, 21, 9, 0, -3, -20, 14, -32, 16, 24, 43, 0, 27,
    -14, -36, -5, -19, 4, 23, 26, 0, 5, -6, -69, 11, 9, -22, 9, -24, -5, -27, -11, -22, -1, 21, 22,
    5, -26, -6, -68, 9, 22, 8, -18, 14, 4, -40, 6, 1, -28, 0, -2, -19, -10, 17, -51, 28, -69, -101,
    7, 66, -28, -3, 39, -102, -13, -61, -26, -98, 44, 127, -76, 32, -40, -49, -56, 42, 6, 55, 23,
    -35, 0, -13, 46, -30, 10, -33, 15, -46, -4, -87, -52, -41, 75, -23, 28, -17, 41, 93, -22, 43,
    -29, 20, -32, -89, -79, -66, -49, 19, -84, -9, -4, -8, -25, -17, -7, 15, 29, 33, 2, -21, -16,
    -2, 13, -39, 36, -8, -18, 127, -10, 79, 127, 85, -39, 91, 65, 75, 48, 32, 34, -8, 2, -12, 46,
    20, -43, 46, 72, 5, 16, -1, 42, -39, -11, -50, 5, 22, 42, 34, -1, 21, 20, 1, 38, -3, 18, 28,
    -31, 4, 35, 32, -35, 12, 28, 41, -5, -17, -40, 31, 18, 4, -41, -72, 10, 4, -26, -16, 14, 0, -11,
    31, 14, 4, 9, 46, -12, -10, -1, -28, 25, 13, 6, -43, 37, -22, -18, 37, 7, 39, 58, -17, 49, 16,
    21, 20, 13, 75, -39, -23, 84, 51, -37, -22, -20, 25, 3, 13, 20, -49, 26, 51, 8, 30, 13, -17, -4,
    9, -51, 14, -4, -47, 7, 5, -14, -35, 28, 65, -16, 6, 9, 39, 32, 45, -7, -35, -15, -3, 2, -20,
    35, 17, 26, 37, -33, 10, 15, 2, -30, 11, 37, -48, -16, 11, 8, -26, 3, 16, -15, 4, 28, 40, -10,
    31, 9, 17, -14, 5, 46, -4, 62, 92, 24, -22, -14, 47, 33, -24, -57, 56, 12, 0, -3, 15, -23, 98,
    37, 15, 40, -20, -49, 24, 33, -37, -11, -33, 16, 0, -52, -22, -45, -27, -21, 12, -13, -42, 1,
    -70, 8, -13, -35, -30, 32, 14, 13, 28, -4, -5, 32, 15, 8, 12, 27, -53, -26, 22, 59, -68, -1,
    -63, 6, 32, 35, 43, 26, -18, -29, -21, 21, 10, 11, -46, -6, 58, 29, -13, -29, 15, -29, -6, 28,
    30, -8, 47, -5, -22, 55, 2, -25, 3, 37, 18, -7, -37, 22, -6, 3, -23, 4, 29, 19, 1, 32, 21, 9,
    -35, -15, -12, 5, 39, -56, 14, 0, -11, 4, -12, 6, -11, 13, -6, 23, -20, 26, -17, -6, 10, 43, 10,
    -9, 28, -21, -14, 4, -7, 18, -28, 12, 34, 11, -23, -21, 42, 33, 23, -15, -29, 13, 13, 13, -27,
    39, -27, 27, -5, -10, 9, 16, -22, -1, 21, -17, -6, -34, 14, 43, -10, -20, 51, -22, -57, 5, -57,
    26, 13, -43, -70, -58, 6, -21, 3, 1, 41, -3, 47, 8, -22, -12, 32, 31, -11, 10, 25, -12, 11, -9,
    43, 51, -40, -11, -49, 5, -27, 41, -9, -13, -10, 14, 0, 26, 7, 56, -6, 1, 7, -5, 36, 8, 2, -2,
    -10, -24, 2, 19, -23, 3, -18, -40, 9, 18, 10, -8, 2, -34, -3, -48, 7, -25, 1, -4, 41, -35, -47,
    -41, -13, 19, 65, -14, -45, 11, -19, -40, -19, -14, -14, -11, -14, -25, 1, 10, 5, 27, -6, -3, 1,
    -41, -17, -29, -10, 7, 12, -18, 6, 35, 19, 12, 20, 15, -1, -8, -19, 26, 2, 12, 32, 1, 38, 27, 3,
    -5, -15, 97, -48, 14, 11, 41, 21, 43, -34, 0, 6, 10, -49, 36, 44, -39, -19, -39, 11, 9, -21, -2,
    -6, 11, 40, -4, 20, -9, 12, -20, -16, 8, -51, -10, -22, -10, 16, -42, 4, 26, -10, -22, 36, 23,
    -10, -10, -4, 12, 17, 12, -69, 2, 8, 5, -5, 16, 19, -7, 24, -26, -31, -13, -44, -13, 20, 31, 49,
    33, -11, 35, 41, -14, 44, 20, 37, -26, 15, -15, -36, 11, 13, -19, 26, 28, -6, 24, -29, 45, 5,
    17, -15, -7, 13, 36, -93, -32, 5, -6, -66, 43, -11, 10, 8, 15, 2, 35, -27, 8, -38, 8, -23, -45,
    -4, 44, 28, -7, 40, -23, -40, -18, -7, -18, -7, -17, -15, 22, -4, 11, -6, 48, -47, 27, 3, 0, 11,
    127, 21, 39, 78, 63, 18, -4, 33, -19, 28, 2, 83, 10, -83, -9, 3, -45, 1, 31, 49, 11, -12, 33,
    18, -9, -14, -10, -19, -49, 16, 5, 12, -4, 22, -50, -20, 25, -22, 35, -14, -6, 34, -51, 0, -8,
    -83, -12, 23, 23, -5, 41, 18, 25, 9, -30, 8, 14, 24, -37, 32, 19, -18, -10, 52, 28, -36, 33,
    -24, 1, 5, 8, -4, -7, 26, 22, 47, 37, 19, 33, 12, -27, 7, -2, 5, 33, -23, -76, -30, -24, 5, -14,
    25, 25, 21, 75, 18, 41, -28, 17, -33, 18, 21, 48, -81, 12, 7, 1, 4, 32, -41, 35, 31, -21, 14,
    35, 2, -11, -25, 16, -4, -42, -21, 12, -17, -10, 30, 24, -15, 24, -9, 28, 4, 8, 16, -33, 34, -9,
    1, 7, -9, 11, 19, -8, 22, 20, 31, 46, 4, 56, 45, -3, 19, 31, 15, -22, -4, 41, -2, -26, 8, -41,
    17, 15, -46, 15, 32, 18, -6, 40, -12, -8, -64, -10, 25, 15, -61, 16, -23, -20, -7, -5, -12, 17,
    5, -10, -67, 14, 60, 7, -26, 19, 19, -22, 16, -6, -21, -7, -5, -53, -10, 7, 13, -7, 13, 7, -39,
    -44, 17, -29, 31, 40, -30, 4, 5, 20, -25, 47, 21, 31, -9, 25, 54, 3, 57, -4, -14, 3, 29, 39, 4,
    -22, 3, -7, -1, 17, -18, 29, -18, 8, 12, 32, 0, 1, 35, -42, -24, -16, -54, -23, -30, -23, -2,
    27, 6, -29, -2, 8, 49, 1, -7, -33, -70, -3, -13, -16, 19, 31, 6, 1, -1, -17, -2, 19, 16, 1, 1,
    36, -23, -3, 7, 20, -54, -2, -12, -21, 36, 0, -2, -11, -30, 0, -2, -9, -27, -17, -16, 33, 53,
    35, -7, 33, 34, 6, -22, 0, -43, 7, 17, -34, -16, 29, 43, -20, 36, -44, 14, 23, -48, -12, 48,
    -21, -17, -15, 21, -2, 29, 26, -11, -13, -38, -52, 0, 8, 36, -49, -14, 36, -23, -12, -13, 7,
    -28, -6, -10, -7, 11, 10, 5, -14, 17, 9, -6, -36, 13, -10, 22, 9, -35, -33, 4, -18, 8, 0, 34,
    16, 33, 26, -14, -7, 38, 17, -39, 27, 76, 1, 29, 13, 15, 1, 41, 17, -23, 18, -1, -57, 6, 3, 0,
    16, -30, 12, 5, -8, 16, 34, 14, 20, -8, -2, -5, 7, 15, -31, 8, 48, 43, -76, 18, 12, 11, -37, 18,
    -25, 15, 25, 52, -6, -33, 34, 2, -7, 31, 27, -31, -10, -9, -17, -3, -18, 2, 8, -13, -10, 19, 7,
    -28, 16, -39, 36, -11, -9, -29, -11, 33, -19, 1, 3, -59, 1, -6, 91, 1, 54, -38, 9, 34, 11, -7,
    -23, -1, -56, 27, 24, 48, -2, -22, -96, -82, -31, 114, -9, 24, 41, 5, 39, 26, -14, 11, 18, 21,
    6, -5, 6, 3, 36, -23, -1, 31, 67, 12, -56, 55, -6, -32, -14, 49, 80, -45, 5, 25, -7, 2, 7, -18,
    -17, 23, -47, 64, 3, -25, 21, -29, 3, 20, -2, 44, 28, 13, -20, -25, -20, 21, 12, -12, 29, 6,
    -34, 0, 37, 19, 20, -58, 55, -1, 18, -64, 24, -29, 13, 90, 25, -7, 4, 11, -20, 32, 6, 8, 23,
    -10, 37, -28, -20, 34, 20, -7, -2, -6, -2, -16, 52, -13, 13, 9, 24, -23, 6, 22, 11, -38, 27, -6,
    20, 19, 22, -3, 15, -5, 12, 10, 19, 15, 9, -4, 5, 3, 15, -3, -3, -6, 7, 5, 1, -2, 5, 7, 5, -6,
    4, -2, 109, 117, 108, 121, 96, 111, 122, 109, 122, 124, 99, 121, 127, 108, 104, 127, 106, 119,
    79, 126, 104, 100, 123, 108, -4, -2, 3, 0, 9, -3, -1, 1, -2, 2, -1, -6, 0, -4, 1, -4, 4, -3, 3,
    -1, -2, 2, -2, -1, -1, 38, 5, 21, 20, -7, 34, 17, -14, -18, -20, -5, 40, -9, -9, -7, 3, 30, -31,
    -4, 3, -7, -18, -28, -3, 12, -10, -18, 22, 7, 4, -45, 6, 23, 15, 23, -13, -5, 7, 23, -8, 12, 44,
    -16, -2, -2, -56, -38, 33, 21, -14, -3, -20, -37, 36, -13, -9, -14, 6, -9, -47, 14, 43, -12, -4,
    9, 40, 49, -9, 18, 8, -9, -1, -23, -18, -2, -3, -34, -19, -5, -21, -7, -23, -22, -3, -14, 2,
    -16, 10, -23, 46, -3, 25, -12, -12, 3, 5, 7, -13, 9, -13, 7, -16, 67, -2, -6, -16, 12, -17, -1,
    13, 12, 4, -18, 8, 5, 14, 27, 25, 7, -21, -15, 11, -19, 31, 29, 20, -16, 52, -22, -33, -4, -16,
    -15, -22, 49, 14, 22, -37, -9, -6, -25, -5, 2, 12, -65, -32, -11, -47, 6, 12, -4, -24, -6, -19,
    -13, -38, 16, 18, -14, -28, -3, 36, 6, 3, 2, -25, 25, -34, 16, -8, -25, 38, -27, 46, -13, -3,
    19, -27, -18, 25, 4, 20, -21, -32, -58, -11, -2, 21, 22, -9, 12, -45, -15, 34, -1, 19, 27, -6,
    -54, 14, 25, 5, -10, 3, -18, -76, 7, 13, 4, -19, -51, 47, 6, 28, 11, -32, 24, -3, 12, 6, 0, -8,
    26, -70, 21, -6, -17, -7, -21, -21, -11, 31, 9, -2, 22, 8, 12, 9, -4, 37, -4, 47, -31, -37, -8,
    51, -23, 3, -3, -31, 19, 42, 6, 39, 8, -30, 2, 12, -7, 35, -42, 1, 1, 3, -5, 7, 9, -20, 0, -34,
    11, 2, -5, 26, 14, 29, 12, -10, 5, 22, -34, 42, 19, 39, 9, 17, -2, -24, -5, -46, -21, -23, -18,
    16, -53, -22, 5, 2, 25, 28, -5, 41, 5, -20, 30, 26, -3, -16, 31, 22, 25, -14, 38, 50, 38, -2,
    -37, 44, 9, -23, 71, 17, 39, 31, -8, 21, -10, 20, -2, -80, 40, 27, 20, 5, 51, -1, -20, -24, 45,
    37, -2, 27, 39, -24, 15, 29, -4, -5, 31, 10, 8, 26, -30, -7, 3, 19, -16, -5, 29, 13, -42, 1, 18,
    -1, -15, 1, 25, -14, 21, 22, 6, -26, 31, -15, 11, 2, -22, -11, -6, 32, -22, 27, 18, 6, 3, -29,
    11, -13, -13, 27, 19, -2, -18, -5, 2, 10, 10, 8, -46, -4, -30, -36, -15, 0, 12, 29, 9, 0, -3,
    -7, 14, 16, -32, -49, -14, -2, 25, 2, 5, -2, -7, -42, -9, 6, 28, -3, -23, 20, -10, -13, 19, -11,
    12, 5, -23, -28, 4, -11, -29, 8, -26, -31, -28, 19, 16, -24, 12, 28, 14, 7, -17, 7, -13, -7, -2,
    -17, -4, -10, 19, 0, -4, -23, 27, -14, -6, -39, -10, -46, 23, 0, -23, 16, -12, 55, -55, -41, 5,
    -16, 12, 31, 17, -5, -16, -2, -9, 7, -15, -21, 6, 26, -14, -32, -33, 11, -17, 8, -10, -28, 13,
    -17, -9, -47, 19, 5, -1, 37, -1, 42, -24, -36, -28, -34, 2, 28, -14, 7, 23, 8, 38, 27, -24, 12,
    -7, -26, 31, 9, 14, 14, 24, -9, -3, -28, 9, 20, -14, 6, 18, -29, 5, 8, 0, -20, -4, -29, 26, 3,
    -1, -11, -48, 12, -28, 6, 3, 37, 33, -41, 24, -25, 7, 1, 33, 12, 4, 37, 2, 2, 22, 23, -32, 28,
    8, -12, -17, 26, 8, -8, 6, -22, 0, 27, -25, -2, 20, -52, -10, -12, 17, 2, 40, -37, -5, 39, -25,
    28, -5, -5, -21, 11, -2, -22, 13, -20, 38, -54, -30, -23, 25, -65, -16, 22, -49, -1, 12, -25,
    -87, 5, -6, -65, -3, -3, -35, -38, -29, 9, -50, 11, 26, 22, 30, -25, 0, 12, 26, 15, 37, 18, -16,
    15, 3, 33, -6, 1, 9, 15, -11, 26, -6, 3, -4, 0, -27, 20, 4, -2, -4, 1, -4, -9, 3, 16, -13, 22,
    72, -13, 8, -51, -12, -19, 21, -4, -12, 0, -8, -6, -6, -40, -22, 15, -1, 26, -5, 21, 15, 3, -9,
    4, -15, -1, -29, -16, 2, 47, 5, -4, 8, -27, -37, 29, 14, -42, 39, -21, 14, 13, 3, 45, -40, 11,
    0, -20, 8, 0, -3, 25, -27, 23, 7, 12, 34, 31, -4, 8, 49, 25, 14, -10, 24, -8, 20, 41, -19, -3,
    -6, -32, 15, 14, -19, -8, 33, 20, -34, 32, 8, -24, -18, -8, 19, -50, 18, -22, 2, -7, -5, -32,
    23, 12, 29, -9, -21, 20, -16, -43, -15, -4, 3, -29, 27, 0, 16, 11, -11, -13, 7, -2, 1, -49, -29,
    23, 24, -9, -20, -15, -4, 6, -1, -15, 19, -1, 1, -33, -4, -30, -3, -5, 21, 13, -20, -16, -4, -8,
    -2, -15, -24, 20, 28, -21, -25, -34, 13, -6, 17, -31, -3, -6, 12, -7, 15, 13, -21, -9, -9, -7,
    -33, -9, 28, -1, 0, -2, -26, -22, -15, 12, -20, 22, -27, -5, 6, 0, -3, 22, -48, -2, 13, 27, 1,
    10, 26, 22, 5, -17, 2, 9, 9, 47, -11, -14, -16, 0, -5, -26, -10, 21, 12, 19, 9, 30, -2, 56, 24,
    -17, -15, 1, 15, -20, -3, 2, -27, 12, 9, 16, 9, 12, 1, -11, 8, 7, 52, 11, 13, 26, -3, 8, -8, 16,
    -13, 16, 22, 43, 61, 46, -34, 33, -15, -24, 4, -12, 7, 23, -7, 56, -14, 14, -17, -1, 15, 18, 15,
    -15, -8, 15, 18, 4, 18, 34, 17, 6, 9, 29, 14, 26, -5, 29, 15, -5, 6, 7, -9, 5, 7, -41, -13, -38,
    22, -55, -7, 46, -50, -11, 10, -45, -25, -12, -45, 71, 39, 2, -19, -6, -25, 30, -27, 32, -5,
    -11, 22, -31, 42, 11, 6, 14, 0, 8, 16, -19, -18, -11, -36, 31, -23, -18, -40, 26, -29, -51, 15,
    22, 23, -7, 14, -12, 39, 63, 8, -2, 24, 29, -6, -18, -6, 28, 1, 46, -10, 5, -3, 31, -18, 14,
    -27, 25, 11, 3, -2, 66, -11, -5, 27, 27, -33, -15, -8, 6, -15, 8, -37, 22, 21, 21, -45, -12, 15,
    2, -34, -3, -32, -2, 26, -22, 40, 1, -48, -41, 13, 41, 4, 2, 3, -1, 12, 60, 18, -14, -6, 26,
    -21, 2, 0, 21, -6, 9, -8, 16, -34, -14, 14, -40, 18, -7, 31, 4, -2, 5, -7, 10, -27, -3, 42, -26,
    -23, 31, -7, 7, -40, 44, 9, -11, 12, -29, 10, 1, 19, 2, 41, -3, 22, 13, -24, -8, 45, -7, 2, 3,
    6, -31, -11, 15, 1, -1, 16, 13, 33, 7, 20, 1, -26, 3, -7, 6, -42, 13, 26, -49, -9, -24, 2, 9,
    -19, 12, -28, -4, 13, 31, 25, 42, 23, -15, 14, 2, -20, 20, -17, 7, -26, 23, 11, 0, -7, 42, -46,
    25, 26, -1, 16, 0, 33, -5, 6, -14, 13, 48, 46, -6, 26, -26, 31, 49, 7, -30, 1, 21, 1, 15, -15,
    -21, -4, 30, 5, 5, -12, 19, -4, 72, -15, 76, 69, -4, -18, 44, -22, 69, 8, -1, -24, -18, 71, 65,
    22, 14, 13, 6, -17, -13, 13, -25, 34, -16, 17, -4, 2, 45, -43, -14, -17, -50, 0, 5, 10, -3, -4,
    13, 10, 25, 41, -4, 28, -16, -7, -26, -5, -9, 31, -17, -22, 27, 11, 21, -38, -36, -7, -23, -28,
    -15, -7, -12, 29, -59, -28, -42, 15, -52, -20, 0, -6, -14, 0, -9, -27, 5, -5, -24, 27, 24, -23,
    -31, 47, -11, -19, 4, 19, -7, -3, 22, 9, -30, -47, -25, -22, 45, -1, 33, -27, -21, 37, -22, -15,
    -3, -8, -34, 23, -6, 18, -7, -14, -11, -23, 55, -1, 50, 29, 63, 44, 10, 7, -1, 35, 30, 0, -9,
    -24, 36, 20, -51, 6, -15, 17, 30, -16, -3, 23, 12, 0, 26, 23, 46, 39, 18, 4, 7, 37, -15, 25, 26,
    -12, -14, 40, -13, 127, -52, 26, -4, -19, 16, -1, -22, -4, 11, -18, 36, 15, -2, -13, -15, 13,
    -9, 20, -1, -11, 21, 24, 1, 24, 11, -5, 13, 36, 26, 16, 9, 9, 33, 8, 14, 24, 26, 5, 23, 13, 2,
    54, 19, -13, -42, -34, -1, 5, 59, 7, -22, 16, 17, 44, 9, -39, -2, -34, 2, 10, 29, -28, -26, -7,
    -2, -5, 5, -27, -29, -4, 18, 38, 35, 5, -40, -32, 1, -5, -25, 3, 10, -24, -15, 2, 14, -42, -23,
    -49, 3, 2, 13, -4, -3, 13, -25, -1, 6, 32, 4, 18, -16, -14, -25, 24, -6, 26, 58, -5, -14, 11,
    17, 12, -16, 54, -6, -10, -32, 4, -1, 21, -58, -11, -39, -38, 57, -13, -20, -10, -17, 26, 1,
    -42, 14, -11, -4, 5, 3, 20, -2, -28, -19, -22, -24, -9, -35, -1, 6, 5, -21, 1, 15, -18, -33, -4,
    -38, -12, 9, 24, 18, -1, 4, -13, -6, 15, 23, -32, -37, 4, -10, -22, -2, -7, 3, -24, 24, 22, -9,
    64, -6, -2, 3, 0, 13, 31, -34, 33, 12, -11, 11, -31, -21, 42, -25, -49, -7, -27, -2, -4, -78, 9,
    -44, 10, -19, -93, -27, -43, -28, 15, 23, 0, -2, -26, 11, 7, 18, -37, -43, -6, -1, 33, -33, 0,
    54, 4, -54, -39, 10, -42, 43, -38, -18, -40, -26, 35, -7, -18, 46, -66, -35, -10, -80, -11, -9,
    -10, -57, 1, -8, 7, -32, -42, -9, -23, -33, 8, 1, 4, 1, -24, -8, 11, -22, -2, -35, -33, 4, -11,
    3, 19, 4, 54, 0, -5, -22, -5, 17, -10, -22, -4, -32, -20, 9, -30, -7, -10, 25, -30, -27, -4,
    -32, -6, -30, 32, -27, -24, -20, -15, 0, -13, 10, 3, 0, 3, 25, -4, 14, 10, 12, -21, 10, -3, -8,
    5, -42, -8, 10, 15, 17, 20, -9, 28, -3, 26, 5, -19, 0, -11, 24, 60, 17, 9, 5, 14, -12, 39, -10,
    40, -4, -24, 6, -32, 6, -19, -52, 33, -16, -20, -5, -15, 3, -59, -45, -24, 25, 30, 1, -57, -24,
    -17, 41, -46, 3, 25, 8, 13, -33, 2, 1, -16, -39, 20, -10, -9, -3, 13, -14, -6, 20, -7, -6, -6,
    -14, -11, -14, 46, 4, 3, 14, 3, -13, -7, 60, -20, 48, 40, 78, 63, 38, -16, 22, 14, 60, -11, -11,
    -24, 27, 19, 6, -6, 22, 29, 20, -25, 18, -9, -4, 28, -9, 43, -57, 5, 49, -3, 51, 58, -48, 46,
    68, -8, -24, 69, -18, 34, -127, 65, -26, -42, 51, -10, -10, 13, 15, -4, 36, -8, 2, -14, -19, 0,
    -12, -11, -6, -1, 7, 2, 22, -17, 33, -8, 0, 35, -22, -7, 32, 91, -12, -96, 13, -18, 93, -100,
    -19, -67, -85, -11, -63, 11, 47, -47, -78, 55, -39, 73, -127, 48, -46, -71, -127
};
/* va-table-end */

/* Edges of the bands in FFT bins of 40 Hz: band b is a triangle from edge b over b + 1 to b + 2.
 * Evenly spaced in mel, but at least two bins apart. */
static const unsigned char va_edges[VA_BANDS + 2] = {
    1, 3, 5, 7, 9, 11, 13, 15, 18, 21, 24, 28, 32, 37, 43, 49, 56, 64, 73, 84, 96, 110, 127, 147,
    170, 196
};

static void va_make_filters(va_detector *v)
{
    unsigned b, i;
    memset(v->filter_weight, 0, (size_t)VA_BANDS * ML_BINS * sizeof(float));
    for (b = 0; b < VA_BANDS; b++) {
        unsigned low = va_edges[b], middle = va_edges[b + 1], high = va_edges[b + 2];
        for (i = low + 1; i < high; i++) {
            v->filter_weight[b * ML_BINS + i] = i <= middle
                ? (float)(i - low) / (float)(middle - low)
                : (float)(high - i) / (float)(high - middle);
        }
    }
    ml_init(&v->filters, v->filter_weight, VA_BANDS);
}

/* The table has four arrays: int8 weights times a scale, then int8 biases times another scale. */
static void va_unpack(va_weights *w)
{
    float *part[4];
    size_t n[4], last[4], k, i;
    const int8_t *q = va_table;
    part[0] = w->dense[0];
    part[1] = w->input[0];
    part[2] = w->state[0];
    part[3] = w->out;
    n[0] = VA_INPUTS * VA_DENSE;
    n[1] = VA_DENSE * 3 * VA_STATE;
    n[2] = VA_STATE * 3 * VA_STATE;
    n[3] = VA_STATE;
    last[0] = VA_DENSE;
    last[1] = last[2] = 3 * VA_STATE;
    last[3] = 1;
    for (k = 0; k < 4; k++) {
        for (i = 0; i < n[k] + last[k]; i++) {
            part[k][i] = (float)*q++ * va_scales[k][i >= n[k]];
        }
    }
}

/* Decimates to 4 kHz through three cascaded moving averages of 8 samples (pass band to about
 * 700 Hz). */
static void va_decimate(va_detector *v)
{
    static const float taps[24] = { /* zero-padded from 22 */
        1, 3, 6, 10, 15, 21, 28, 36, 42, 46, 48, 48, 46, 42, 36, 28, 21, 15, 10, 6, 3, 1
    };
    const float *x = v->x + VA_CONTEXT + VA_STEP / 2u - VA_PITCH_SPAN / 2u * 4u - 11u;
    float phase[4][VA_LOW + 6]; /* polyphase: [k] is every fourth sample from k on */
    size_t j, i, k;
    for (j = 0; j < VA_LOW + 5; j++) {
        MT_UNROLL
        for (k = 0; k < 4; k++) {
            phase[k][j] = x[4 * j + k];
        }
    }
    for (j = 0; j < VA_LOW; j += 8) {
        mt_f4 a = {0.0f}, b = {0.0f};
        for (i = 0; i < 6; i++) {
            MT_UNROLL
            for (k = 0; k < 4; k++) {
                const float *at = phase[k] + j + i;
                a += *(const mt_f4u *)(const void *)at * taps[4 * i + k];
                b += *(const mt_f4u *)(const void *)(at + 4) * taps[4 * i + k];
            }
        }
        *(mt_f4u *)(void *)(v->low + j) = a * (1.0f / 512.0f);
        *(mt_f4u *)(void *)(v->low + j + 4) = b * (1.0f / 512.0f);
    }
}

/* Normalised cross-correlation of y with itself, delayed by VA_LAG0 samples and more. */
static void va_correlate(const float *y, float *correlation /* [VA_LAGS] */)
{
    float x[VA_PITCH_SPAN], before[VA_PITCH_SPAN + 1], mean = 0.0f;
    size_t i, lag, k;
    for (i = 0; i < VA_PITCH_SPAN; i++) {
        mean += y[i];
    }
    mean *= 1.0f / (float)VA_PITCH_SPAN;
    before[0] = 0.0f; /* before[i]: energy of the samples before i */
    for (i = 0; i < VA_PITCH_SPAN; i++) {
        x[i] = y[i] - mean;
        before[i + 1] = before[i] + x[i] * x[i];
    }
    for (lag = 0; lag < VA_LAGS; lag += VA_LAGS / 2u) {
        mt_f4 sum[VA_LAGS / 8u] = {{0.0f}};
        for (i = 0; i < VA_CORRELATION; i++) {
            const float *later = x + VA_LAG0 + lag + i;
            MT_UNROLL
            for (k = 0; k < VA_LAGS / 8u; k++) {
                sum[k] += *(const mt_f4u *)(const void *)(later + 4 * k) * x[i];
            }
        }
        memcpy(correlation + lag, sum, sizeof sum);
    }
    for (lag = 0; lag < VA_LAGS; lag++) {
        size_t at = VA_LAG0 + lag;
        float energy = before[at + VA_CORRELATION] - before[at];
        /* The constant is at -120 dB, so that silence has no pitch. */
        energy = energy > 0.0f ? energy : 0.0f;
        correlation[lag] /= sqrtf(before[VA_CORRELATION] * energy + 1e-16f);
    }
}

/* Pitch features: strength, log lag and movement. */
static void va_pitch(va_detector *v, const float *y, float *out /* [3] */)
{
    float correlation[VA_LAGS], best = -1.0f, voiced, lag, moved;
    size_t i, at = 0;
    va_correlate(y, correlation);
    for (i = 0; i < VA_LAGS; i++) {
        float value = correlation[i] * (1.0f - 0.0015f * (float)i); /* not a multiple of the lag */
        if (value > best) {
            best = value;
            at = i;
        }
    }
    voiced = correlation[at] > 0.0f ? correlation[at] : 0.0f;
    lag = mt_log1((float)(VA_LAG0 + at)) - 3.09f; /* ln 22: 182 Hz */
    moved = lag > v->lag ? lag - v->lag : v->lag - lag;
    out[0] = voiced;
    out[1] = voiced * lag;
    out[2] = voiced * v->voiced * (moved < 0.5f ? moved : 0.5f) * 4.0f;
    v->voiced = voiced;
    v->lag = lag;
}

/* Features of step 0 or 1 of the block; v->power and v->low are filled. */
static void va_features(va_detector *v, size_t step, float *f /* [VA_INPUTS] */)
{
    const float *p = v->power + 2 * step * VA_BANDS;
    float level = 0.0f, mean = 0.0f, x[VA_BANDS];
    mt_vec part;
    size_t b;
    for (b = 0; b < VA_BANDS; b++) {
        x[b] = 0.5f * (p[b] + p[b + VA_BANDS]); /* at least 1e-10 */
        level += x[b];
    }
    for (b = 0; b < VA_BANDS; b += MT_LANES) {
        mt_vload(&part, x + b);
        mt_vlog(&part);
        part.v *= 0.43429448190325182765f;
        mt_vstore(x + b, &part);
    }
    for (b = 0; b < VA_BANDS; b++) {
        mean += x[b];
    }
    level = mt_log1(level) * 0.43429448190325182765f;
    mean *= 1.0f / (float)VA_BANDS;
    if (v->seen == 0) {
        memcpy(v->floor, x, sizeof v->floor);
        memcpy(v->loud, x, sizeof v->loud);
        v->top = level;
    }
    for (b = 0; b < VA_BANDS; b++) {
        float above = x[b] - v->floor[b];
        /* Falls fast, rises by 2 dB per second: every band shows its floor between syllables. */
        v->floor[b] += above < 0.0f ? 0.25f * above : above < 0.004f ? above : 0.004f;
        v->loud[b] = x[b] > v->loud[b] ? x[b] : v->loud[b] - 0.002f;
        f[b] = 0.5f * (x[b] - mean);
        f[VA_BANDS + b] = 0.5f * (above < -1.0f ? -1.0f : above < 4.0f ? above : 4.0f);
    }
    /* Recent maximum, falling by 1 dB per second, at least the level of white noise at -90 dB. */
    v->top = level > v->top ? v->top + 0.3f * (level - v->top) : v->top - 0.002f;
    v->top = v->top > -4.5f ? v->top : -4.5f;
    level -= v->top;
    f[2 * VA_BANDS] = 0.5f * (level > -4.0f ? level : -4.0f);
    va_pitch(v, v->low + step * (VA_STEP / 4u), f + 2 * VA_BANDS + 1);
}

/* Fills in the bands that a band-limited channel (telephone, radio, codec) lacks. The network was
 * trained on full spectra and may miss speech otherwise: steep edges at 350 and 2800 Hz hid all of
 * it. Bands without recent energy get the features of the nearest band that has some. */
static void va_fill_bands(const va_detector *v, float *f /* [VA_INPUTS] */)
{
    float least = v->loud[0], mean = 0.0f, whole[2 * VA_BANDS];
    size_t b, i, near;
    for (b = 1; b < VA_BANDS; b++) {
        least = v->loud[b] > least ? v->loud[b] : least;
    }
    least -= VA_ABSENT;
    for (b = 0; b < VA_BANDS; b++) {
        near = b;
        for (i = 1; v->loud[near] < least; i++) { /* terminates: the loudest band is present */
            near = b + i < VA_BANDS && v->loud[b + i] >= least ? b + i : b >= i ? b - i : near;
        }
        whole[b] = f[near];
        whole[VA_BANDS + b] = f[VA_BANDS + near];
        mean += f[near];
    }
    mean *= 1.0f / (float)VA_BANDS;
    for (b = 0; b < VA_BANDS; b++) {
        f[b] = whole[b] - mean;
        f[VA_BANDS + b] = whole[VA_BANDS + b];
    }
}

/* The first 4 C columns of out[n] = in[m] * w[m][n] + the bias in row m. Vectors of four fit into
 * registers on every processor, those of MT_LANES do not. */
WNPU_INLINE void va_columns(float *out, const float *in, const float *w, size_t m, size_t n, int C)
{
    mt_f4 sum[6];
    size_t i;
    int c;
    MT_UNROLL
    for (c = 0; c < C; c++) {
        sum[c] = *(const mt_f4u *)(const void *)(w + m * n + 4 * c);
    }
    for (i = 0; i < m; i++, w += n) {
        MT_UNROLL
        for (c = 0; c < C; c++) {
            sum[c] += *(const mt_f4u *)(const void *)(w + 4 * c) * in[i];
        }
    }
    MT_UNROLL
    for (c = 0; c < C; c++) {
        *(mt_f4u *)(void *)(out + 4 * c) = sum[c];
    }
}

/* out[n] = in[m] * w[m][n] + bias; n is VA_DENSE or 3 VA_STATE. */
static void va_multiply(float *out, const float *in, const float *w, size_t m, size_t n)
{
    size_t j;
    if (n == VA_DENSE) {
        va_columns(out, in, w, m, n, VA_DENSE / 4);
        return;
    }
    for (j = 0; j < n; j += VA_STATE) {
        va_columns(out + j, in, w + j, m, n, VA_STATE / 4);
    }
}

static void va_sigmoid(mt_vec *x)
{
    x->v = -x->v;
    mt_vexp(x);
    x->v = 1.0f / (1.0f + x->v);
}

/* One step of the network: returns the probability of speech VA_AHEAD steps earlier. */
static float va_network(const va_weights *w, float *state /* [VA_STATE] */, const float *f)
{
    float dense[VA_DENSE], in[3 * VA_STATE], back[3 * VA_STATE], sum = w->out[VA_STATE];
    mt_vec reset, update, next, old;
    size_t i;
    va_multiply(dense, f, w->dense[0], VA_INPUTS, VA_DENSE);
    for (i = 0; i < VA_DENSE; i++) {
        dense[i] = dense[i] > 0.0f ? dense[i] : 0.0f;
    }
    va_multiply(in, dense, w->input[0], VA_DENSE, 3 * VA_STATE);
    va_multiply(back, state, w->state[0], VA_STATE, 3 * VA_STATE);
    for (i = 0; i < VA_STATE; i += MT_LANES) {
        mt_vload(&reset, in + i);
        mt_vload(&old, back + i);
        reset.v += old.v;
        va_sigmoid(&reset);
        mt_vload(&update, in + VA_STATE + i);
        mt_vload(&old, back + VA_STATE + i);
        update.v += old.v;
        va_sigmoid(&update);
        mt_vload(&next, in + 2 * VA_STATE + i);
        mt_vload(&old, back + 2 * VA_STATE + i);
        next.v = (next.v + reset.v * old.v) * 2.0f;
        va_sigmoid(&next);
        next.v = next.v * 2.0f - 1.0f; /* tanh */
        mt_vload(&old, state + i);
        next.v = next.v + update.v * (old.v - next.v);
        mt_vstore(state + i, &next);
    }
    for (i = 0; i < VA_STATE; i++) {
        sum += state[i] * w->out[i];
    }
    return 1.0f / (1.0f + mt_exp1(-sum));
}

static void va_end_span(va_detector *v)
{
    v->open = 0;
    if (v->count >= v->rules.least) {
        v->span.first = v->first > v->rules.pad ? v->first - v->rules.pad : 0;
        v->span.end = v->end + v->rules.pad;
        v->complete = 1;
    }
}

/* Takes the completed span, if any. A block completes at most one, as gaps are longer than it. */
static int va_pop_span(va_detector *v, va_span *span)
{
    int complete = v->complete;
    *span = v->span;
    v->complete = 0;
    return complete;
}

static void va_decide(va_detector *v, float p)
{
    v->history[v->step % v->kept] = (unsigned char)(p * 255.0f);
    if (p >= (v->open ? v->rules.off : v->rules.on)) {
        if (!v->open) {
            v->open = 1;
            v->first = v->step;
            v->count = 0;
        }
        v->end = v->step + 1;
        v->count++;
    }
    v->step++;
    if (v->open && v->step - v->end >= v->rules.gap) {
        va_end_span(v);
    }
}

/* Spectra of the block in v->x, and the block at 4 kHz. */
static void va_analyse(va_detector *v)
{
    size_t t;
    for (t = 0; t < 4; t += ML_BATCH) {
        v->op->mel_powers(v->fft, &v->filters, v->x + VA_CONTEXT - ML_MARGIN + t * ML_HOP,
                          v->power + t * VA_BANDS, VA_BANDS, v->scratch);
    }
    va_decimate(v);
}

/* Processes a block. The larger of both probabilities counts: of voices behind a narrow channel
 * some are detected in the original spectrum only and some in the filled one only, and missed
 * speech is lost. */
static void va_block(va_detector *v)
{
    float f[VA_INPUTS], p, q;
    size_t step;
    va_analyse(v);
    for (step = 0; step < 2; step++) {
        va_features(v, step, f);
        p = va_network(v->weights, v->state[0], f);
        va_fill_bands(v, f);
        q = va_network(v->weights, v->state[1], f);
        if (v->seen++ >= VA_AHEAD) {
            va_decide(v, p > q ? p : q);
        }
    }
    v->have -= VA_BLOCK;
    memmove(v->x, v->x + VA_BLOCK, v->have * sizeof(float));
}

/* Consumes up to n samples, stopping where a span is complete; returns how many. *found: *span was
 * set. */
static size_t va_push(va_detector *v, const float *samples, size_t n, va_span *span, int *found)
{
    size_t done = 0;
    *found = 0;
    while (done < n && !*found) {
        size_t part = n - done < VA_BLOCK ? n - done : VA_BLOCK;
        memcpy(v->x + v->have, samples + done, part * sizeof(float));
        v->have += part;
        done += part;
        if (v->have >= VA_BUFFER) {
            va_block(v);
        }
        *found = va_pop_span(v, span);
    }
    v->n_pushed += done;
    return done;
}

/* After the last sample: decides the remaining steps. Call until it returns 0. */
static int va_finish(va_detector *v, va_span *span)
{
    static const float silence[VA_BLOCK];
    uint64_t n_pushed = v->n_pushed, steps = (n_pushed + VA_STEP - 1) / VA_STEP;
    int found = 0;
    while (v->step < steps && !found) {
        (void)va_push(v, silence, VA_BLOCK, span, &found);
    }
    v->n_pushed = n_pushed;
    if (!found && v->open) {
        va_end_span(v);
        found = va_pop_span(v, span);
    }
    if (found && span->end > steps) {
        span->end = steps;
    }
    return found && span->first < span->end;
}

/* The step before which no further span can begin, except those already taken. */
static uint64_t va_settled(const va_detector *v)
{
    uint64_t step = v->open ? v->first : v->step;
    return step > v->rules.pad ? step - v->rules.pad : 0;
}

/* Steps of speech in first..end-1, which must be among the last v->kept decided steps. */
static uint64_t va_speech_steps(const va_detector *v, uint64_t first, uint64_t end)
{
    unsigned char least = (unsigned char)(v->rules.off * 255.0f);
    uint64_t n = 0;
    for (end = end < v->step ? end : v->step; first < end; first++) {
        n += v->history[first % v->kept] >= least;
    }
    return n;
}

/* Resets the detector for a new recording. */
static void va_begin(va_detector *v, const va_rules *rules)
{
    v->rules = *rules;
    memset(v->x, 0, VA_CONTEXT * sizeof(float));
    memset(v->history, 0, v->kept);
    memset(v->state, 0, sizeof v->state);
    v->have = VA_CONTEXT;
    v->n_pushed = v->seen = v->step = 0;
    v->voiced = v->lag = 0.0f;
    v->open = v->complete = 0;
}

/* The detector's state between two pushes, without v->x[have] and v->history. */
typedef struct va_image {
    uint64_t have, n_pushed, seen, first, end, count;
    float floor[VA_BANDS], loud[VA_BANDS], state[2 * VA_STATE], top, voiced, lag;
    int32_t open;
} va_image;

static void va_get_image(const va_detector *v, va_image *i)
{
    memset(i, 0, sizeof *i);
    i->have = v->have;
    i->n_pushed = v->n_pushed;
    i->seen = v->seen;
    i->open = v->open;
    memcpy(i->state, v->state, sizeof i->state);
    i->voiced = v->voiced;
    i->lag = v->lag;
    if (v->seen > 0) { /* before the first step these are stale */
        memcpy(i->floor, v->floor, sizeof i->floor);
        memcpy(i->loud, v->loud, sizeof i->loud);
        i->top = v->top;
    }
    if (v->open) {
        i->first = v->first;
        i->end = v->end;
        i->count = v->count;
    }
}

static uint64_t va_decided(uint64_t seen)
{
    return seen > VA_AHEAD ? seen - VA_AHEAD : 0;
}

static int va_are_within(const float *x, size_t n, float limit)
{
    size_t i;
    for (i = 0; i < n && x[i] >= -limit && x[i] <= limit; i++) {
    }
    return i == n;
}

/* Whether an image from untrusted input can be the state after total samples. The detector may have
 * processed more, because va_finish() pushes silence. */
static int va_is_valid_image(const va_image *i, uint64_t total)
{
    uint64_t step = va_decided(i->seen), pushed = i->have + i->seen * VA_STEP - VA_CONTEXT;
    return i->n_pushed == total && i->have >= VA_CONTEXT && i->have < VA_BUFFER &&
           i->seen % 2 == 0 &&
           i->seen <= total / VA_STEP + 4 * VA_AHEAD && pushed >= total &&
           pushed <= total + 4 * VA_AHEAD * VA_STEP && va_are_within(i->floor, VA_BANDS, 100.0f) &&
           va_are_within(i->loud, VA_BANDS, 100.0f) &&
           va_are_within(i->state, 2 * VA_STATE, 1.001f) && va_are_within(&i->top, 1, 100.0f) &&
           va_are_within(&i->voiced, 1, 2.0f) && va_are_within(&i->lag, 1, 10.0f) &&
           (i->open ? i->open == 1 && i->first < i->end && i->end <= step &&
                      i->count >= 1 && i->count <= i->end - i->first
                    : i->first == 0 && i->end == 0 && i->count == 0);
}

/* Used instead of va_begin(); v->x and v->history follow. Set v->rules before the next push. */
static void va_restore(va_detector *v, const va_image *i)
{
    v->have = (size_t)i->have;
    v->n_pushed = i->n_pushed;
    v->seen = i->seen;
    v->step = va_decided(i->seen);
    memcpy(v->floor, i->floor, sizeof v->floor);
    memcpy(v->loud, i->loud, sizeof v->loud);
    memcpy(v->state, i->state, sizeof v->state);
    v->top = i->top;
    v->voiced = i->voiced;
    v->lag = i->lag;
    v->open = i->open;
    v->complete = 0;
    v->first = i->first;
    v->end = i->end;
    v->count = i->count;
}

static void va_wipe(va_detector *v)
{
    ar_wipe(v->x, (VA_BUFFER + VA_BLOCK) * sizeof(float));
    ar_wipe(v->power, 4 * VA_BANDS * sizeof(float));
    ar_wipe(v->low, VA_LOW * sizeof(float));
    ar_wipe(v->history, v->kept);
    ar_wipe(v->state, sizeof v->state);
    ar_wipe(v->floor, sizeof v->floor);
    ar_wipe(v->loud, sizeof v->loud);
    ar_wipe(v->scratch, sizeof *v->scratch);
}

static void va_carve(ar_arena *arena, va_detector *v, size_t kept)
{
    v->filter_weight = ar_carve(arena, (size_t)VA_BANDS * ML_BINS, sizeof(float));
    v->filters.first = ar_carve(arena, VA_BANDS, sizeof(uint16_t));
    v->filters.last = ar_carve(arena, VA_BANDS, sizeof(uint16_t));
    v->scratch = ar_carve(arena, 1, sizeof(ml_scratch));
    v->weights = ar_carve(arena, 1, sizeof(va_weights));
    v->x = ar_carve(arena, VA_BUFFER + VA_BLOCK, sizeof(float));
    v->power = ar_carve(arena, 4 * VA_BANDS, sizeof(float));
    v->low = ar_carve(arena, VA_LOW, sizeof(float));
    v->history = ar_carve(arena, kept, 1);
    v->kept = kept;
}

/* Computes the tables; called once when the memory exists. */
static void va_prepare(va_detector *v, const op_kernels *op, const ft_tables *fft)
{
    v->op = op;
    v->fft = fft;
    va_make_filters(v);
    va_unpack(v->weights);
}

/* ======================================================================
 * 21. ru_  the state of a run
 *
 *  Owns      the data shared by the next four sections: audio window,
 *            ledger, context of a window, language, decoding.
 *  Assumes   engine, decoder and result store are initialised.
 *  Ensures   all state of a run is in one structure of fixed size.
 *  Costs     nothing.
 * ====================================================================== */
#define RU_MAX_PREFIX 112u     /* most tokens of a prefix, half of those of a window */
#define RU_LANGUAGES 128u      /* more than there are */
#define RU_MAX_BATCH 8u        /* most windows decoded together */
/* Samples after the end of a window that the detector needs to decide where its speech ends. */
#define RU_DETECTOR_DELAY (ML_RATE / 2u)
/* Samples read beyond the current window when windows are decoded together. */
#define RU_LOOKAHEAD ((RU_MAX_BATCH - 1u) * ML_FRAMES * ML_HOP + RU_DETECTOR_DELAY)

/* Windows decoded together, before the run reaches them. A window that is not among them when the
 * run reaches it is decoded then, with the same result. */
typedef struct ru_lookahead {
    size_t n;
    uint64_t frame[RU_MAX_BATCH];      /* where they begin, as in ru_audio */
    size_t content[RU_MAX_BATCH];      /* frames, as in ru_audio */
    size_t window[RU_MAX_BATCH];       /* indices of their cross-attention caches */
    int32_t device[RU_MAX_BATCH];      /* wnpu_device that encoded them */
    int32_t least_end[RU_MAX_BATCH];   /* see se_hypothesis */
    uint32_t steps[RU_MAX_BATCH];      /* decoder steps that each would need by itself */
    se_hypothesis *hypothesis;         /* [RU_MAX_BATCH] */
} ru_lookahead;

/* Which window the run is working on. */
typedef struct ru_position {
    uint64_t frame;
    size_t n_samples;       /* including those after the window */
    size_t content;
    size_t window;          /* index of its cross-attention cache */
    int64_t cut_ms, limit_ms;
    int32_t device;
} ru_position;

/* State that a window changes before it is known to be completed, as it was before the window. */
typedef struct ru_checkpoint {
    wnpu_stats stats;
    int32_t language, rival;
    float language_probability, language_weight;
    float language_sums[RU_LANGUAGES];
} ru_checkpoint;

/* The audio window: up to ML_SPAN samples of the recording, the speech found in them, and where the
 * window ends. */
typedef struct ru_audio {
    au_stream *stream;
    float *samples;         /* [capacity], from ML_MARGIN before the window's first frame */
    size_t capacity;        /* ML_SPAN, and RU_LOOKAHEAD more if windows are decoded together */
    size_t n_samples;       /* of the window; fewer than ML_SPAN only at the recording's end */
    size_t n_ahead;         /* samples after those of the window */
    size_t written;         /* samples ever written; memory after them may be untouched */
    uint64_t frame;         /* the window's first frame, in frames of 10 ms from the recording's
                               beginning */
    va_detector voice;
    int detector_done;      /* the detector has processed the recording's end */
    size_t spans_passed;    /* speech spans that end before the window */
    size_t content;         /* frames of the window that are decoded; silence replaces the rest */
    int64_t limit_ms;       /* latest end of this window, or -1 */
    size_t batch;           /* windows that may be decoded together; 0: windows need not end in
                               pauses */
    int64_t cut_ms;         /* end of all windows that begin before it */
} ru_audio;

/* What the ledger covers. Times are those of the recording. */
typedef struct ru_ledger {
    int64_t covered_ms;     /* end of the ledger */
    int64_t covered_text_ms; /* the same by the model's timestamps instead of times of words, which
                                must not change the text */
    int64_t gap_ms;         /* beginning of speech in the window without text, or -1 */
    int64_t last_return_ms; /* beginning of the last speech that was decoded again, or -1 */
} ru_ledger;

/* Tokens before a window's text. */
typedef struct ru_context {
    int32_t *previous;      /* [n_text_ctx / 2 - 1] text of earlier windows, oldest first */
    size_t n_previous;
    int32_t *initial;       /* [n_text_ctx / 2 - 1] initial prompt, with carry_initial_prompt */
    size_t n_initial;
    int32_t *prefix;        /* [RU_MAX_PREFIX] beginning of the first window's text */
    size_t n_prefix;
    int32_t *prompt;        /* [n_text_ctx] */
} ru_context;

/* The language spoken, and its detection. */
typedef struct ru_language {
    int32_t id;             /* -1: not known yet */
    int32_t rival;          /* most probable language of the previous window if not id, else -1 */
    float probability;      /* of id */
    float *sums;            /* [RU_LANGUAGES] weighted sums of probabilities of all windows */
    float weight;           /* sum of the weights, seconds of speech */
} ru_language;

/* Decoding of a window. */
typedef struct ru_text {
    se_search search;
    se_hypothesis *hypothesis; /* the window's text */
    rs_origin origin;       /* how it was decoded */
    int32_t device;         /* wnpu_device that encoded the window */
    al_aligner aligner;
    zl_work *compress;
    char *buffer;           /* [2][ZL_MAX] text of a decoding that is to be compressed */
    uint32_t window;        /* number of the window, from 0 */
    size_t n_final;         /* tokens of the window before those that will be decoded again */
    unsigned loop_cuts;     /* consecutive windows whose text was cut before a loop */
    size_t max_beams;       /* most hypotheses of a window; the search may have room for more */
} ru_text;

/* Choice among phrases. */
typedef struct ru_phrase {
    float *score;           /* [max_phrase_tokens + LR_ROOTS], see se_choosing */
    unsigned char *state;   /* [max_phrase_tokens + LR_ROOTS], see se_choosing */
    wnpu_choice choice;     /* struct_size 0: no result */
} ru_phrase;

/* All state of a run. */
typedef struct ru_run {
    en_engine engine;
    de_decoder decoder;
    np_bridge bridge;
    lr_rules rules;
    rs_store store;
    ru_lookahead lookahead;
    wnpu_params params;
    int *cancel;            /* atomic */
    int stop_requested;     /* by the progress callback, at once or after the window */
    int resumed;            /* no window has been completed since wnpu_resume() */
    int64_t reported_ms;    /* last value passed to the progress callback */
    double reported_at;     /* when, see er_now_ms() */
    const ru_position *current; /* the run's window while later ones are encoded; else NULL */
    wnpu_stats stats;
    wnpu_error error;
    ru_checkpoint checkpoint;
    int resumable;          /* only what the checkpoint restores has changed since it was saved */
    int in_progress_call;   /* the progress callback is running */
    uint64_t fingerprint;   /* of the run's parameters */
    ru_audio audio;
    ru_ledger ledger;
    ru_context context;
    ru_language language;
    ru_text text;
    ru_phrase phrase;
} ru_run;

static int ru_cancelled(const ru_run *r)
{
    return __atomic_load_n(r->cancel, __ATOMIC_RELAXED);
}

/* Milliseconds since *since, which is set to now. */
static double ru_elapsed_ms(double *since)
{
    double now = er_now_ms(), lap = now - *since;
    *since = now;
    return lap;
}

/* Converts a time in the window to one in the recording. No other function does. */
static int64_t ru_recording_ms(const ru_run *r, int64_t ms_in_window)
{
    return (int64_t)(r->audio.frame * ML_HOP / (ML_RATE / 1000u)) + ms_in_window;
}

/* End of the audio read so far, at most that of the window. No segment ends later. */
static int64_t ru_end_ms(const ru_run *r)
{
    return ru_recording_ms(r, (int64_t)((r->audio.n_samples - ML_MARGIN) / (ML_RATE / 1000u)));
}

/* ======================================================================
 * 22. aw_  the audio window and where it ends
 *
 *  Owns      the samples of the window, the speech found in them, and the
 *            rule for the end of a window.
 *  Assumes   a stream of mono samples at 16 kHz.
 *  Ensures   the end of a window depends on the audio up to 200 ms after
 *            it, and not on the sizes of reads. After the end of the
 *            recording there is digital silence.
 *  Costs     a copy of the samples, and the voice activity detector.
 *
 *  The log-mel spectrogram is clamped from below at the maximum of each
 *  30 s window minus 8, as in training. (OpenAI's transcribe() uses the
 *  maximum of the whole file, which is not known while streaming.)
 * ====================================================================== */
#define AW_BLOCK 8000u         /* samples read between two tests of the cancel flag */
#define AW_LONG_PAUSE_MS 3000  /* a pause of this length ends a window */
#define AW_CUT_RANGE_MS 10000  /* windows that end in pauses end in their last 10 s */
#define AW_SHORT_PAUSE_MS 200  /* pauses of this length are preferred to shorter ones */

/* ---- voice activity ---- */

static int aw_add_speech(ru_run *r, const va_span *span)
{
    wnpu_speech_span found;
    int64_t end = (int64_t)(r->audio.voice.n_pushed / (ML_RATE / 1000u));
    found.t0_ms = (int64_t)span->first * VA_STEP_MS;
    found.t1_ms = (int64_t)span->end * VA_STEP_MS;
    found.t1_ms = found.t1_ms < end ? found.t1_ms : end;
    if (found.t0_ms >= found.t1_ms) {
        return WNPU_OK;
    }
    r->stats.speech_ms += found.t1_ms - found.t0_ms;
    if (rs_list_add(&r->store, &r->store.speech, &found) != WNPU_OK) {
        return er_set(&r->error, WNPU_E_FULL, "the result store is full after %lu stretches of "
                      "speech; raise result_bytes", (unsigned long)r->store.speech.count);
    }
    return WNPU_OK;
}

/* Passes n new samples to the detector; n = 0: the recording has ended. */
static int aw_detect(ru_run *r, const float *samples, size_t n)
{
    double since = er_now_ms();
    va_span span;
    int status = WNPU_OK, found;
    size_t done = 0;
    while (done < n && status == WNPU_OK) {
        done += va_push(&r->audio.voice, samples + done, n - done, &span, &found);
        status = found ? aw_add_speech(r, &span) : WNPU_OK;
    }
    if (n == 0 && !r->audio.detector_done) {
        while (status == WNPU_OK && va_finish(&r->audio.voice, &span)) {
            status = aw_add_speech(r, &span);
        }
        r->audio.detector_done = 1;
    }
    r->stats.voice_ms += ru_elapsed_ms(&since);
    return status;
}

/* Gets speech span number index; returns 0 if there is none. Searches begin at spans_passed. */
static int aw_get_span(const ru_run *r, size_t index, wnpu_speech_span *span)
{
    const unsigned char *at = rs_list_get(&r->store, &r->store.speech, index);
    if (at == NULL) {
        return 0;
    }
    memcpy(span, at, sizeof *span);
    return 1;
}

/* Up to this time, everything outside speech spans is known to be no speech. */
static int64_t aw_decided_ms(const ru_run *r)
{
    return r->audio.detector_done ? INT64_MAX : (int64_t)va_settled(&r->audio.voice) * VA_STEP_MS;
}

/* The first time from ms on at which there is speech, or the detector is undecided. */
static int64_t aw_next_speech_ms(const ru_run *r, int64_t ms)
{
    wnpu_speech_span span;
    size_t i;
    int64_t known = aw_decided_ms(r);
    for (i = r->audio.spans_passed; aw_get_span(r, i, &span); i++) {
        if (span.t1_ms > ms) {
            return span.t0_ms > ms ? span.t0_ms : ms;
        }
    }
    return known > ms ? known : ms;
}

/* End of the last speech that begins before ms, at most ms. Undecided audio counts as speech. */
static int64_t aw_last_speech_ms(const ru_run *r, int64_t ms)
{
    wnpu_speech_span span;
    size_t i;
    int64_t end = 0;
    if (!r->audio.detector_done && r->audio.voice.open) {
        return ms;
    }
    for (i = r->audio.spans_passed; aw_get_span(r, i, &span) && span.t0_ms < ms; i++) {
        end = span.t1_ms < ms ? span.t1_ms : ms;
    }
    return end;
}

/* End of the speech before the first pause of at least pause_ms that begins after from_ms, or -1 if
 * there is none. Only the part of a pause before to_ms counts, so that the result does not depend
 * on how much more has been read. */
static int64_t aw_find_pause(const ru_run *r, int64_t from_ms, int64_t to_ms, int64_t pause_ms)
{
    wnpu_speech_span span;
    size_t i;
    for (i = r->audio.spans_passed;
         aw_get_span(r, i, &span) && span.t1_ms + pause_ms <= to_ms; i++) {
        int64_t next = aw_next_speech_ms(r, span.t1_ms);
        if (span.t1_ms > from_ms && (next < to_ms ? next : to_ms) - span.t1_ms >= pause_ms) {
            return span.t1_ms;
        }
    }
    return -1;
}

/* Number of detector steps with speech in both t0_ms..t1_ms and the steps first..end-1. */
static uint64_t aw_speech_steps_in(const ru_run *r, int64_t t0_ms, int64_t t1_ms, uint64_t first,
                             uint64_t end)
{
    uint64_t a = t0_ms > 0 ? (uint64_t)t0_ms / VA_STEP_MS : 0;
    uint64_t b = t1_ms > 0 ? (uint64_t)t1_ms / VA_STEP_MS : 0;
    return va_speech_steps(&r->audio.voice, a > first ? a : first, b < end ? b : end);
}

/* Milliseconds of speech in t0_ms..t1_ms, not counting the padding of spans. */
static int64_t aw_speech_ms(const ru_run *r, int64_t t0_ms, int64_t t1_ms)
{
    wnpu_speech_span span;
    uint64_t steps = 0;
    size_t i;
    for (i = r->audio.spans_passed; aw_get_span(r, i, &span) && span.t0_ms < t1_ms; i++) {
        steps += aw_speech_steps_in(r, t0_ms, t1_ms, (uint64_t)span.t0_ms / VA_STEP_MS,
                              (uint64_t)span.t1_ms / VA_STEP_MS);
    }
    if (!r->audio.detector_done && r->audio.voice.open) { /* a span that is not in the list yet */
        steps += aw_speech_steps_in(r, t0_ms, t1_ms, r->audio.voice.first, r->audio.voice.step);
    }
    return (int64_t)steps * VA_STEP_MS;
}

/* Share of t0_ms..t1_ms that is speech, 0..1. */
static float aw_speech_share(const ru_run *r, int64_t t0_ms, int64_t t1_ms)
{
    return t1_ms > t0_ms ? (float)aw_speech_ms(r, t0_ms, t1_ms) / (float)(t1_ms - t0_ms) : 0.0f;
}

/* Sets the number of samples, counted from ML_MARGIN before the window's first frame. */
static void aw_set_samples(ru_run *r, size_t have)
{
    r->audio.n_samples = have < ML_SPAN ? have : ML_SPAN;
    r->audio.n_ahead = have - r->audio.n_samples;
}

/* How many of `most` samples fit after the first `have`. They count as written. */
static size_t aw_reserve(ru_run *r, size_t have, size_t most)
{
    size_t n = r->audio.capacity - have < most ? r->audio.capacity - have : most;
    r->audio.written = have + n > r->audio.written ? have + n : r->audio.written;
    return n;
}

/* Writes silence after the samples, as far as a window that begins among them reaches. */
static void aw_pad_silence(ru_run *r, size_t have)
{
    memset(r->audio.samples + have, 0, aw_reserve(r, have, ML_SPAN) * sizeof(float));
}

/* Reads until the buffer is full, the recording ends or the run is cancelled. */
static int aw_fill(ru_run *r)
{
    int status = WNPU_OK;
    size_t have = r->audio.n_samples + r->audio.n_ahead;
    while (have < r->audio.capacity && status == WNPU_OK && !ru_cancelled(r)) {
        size_t room = aw_reserve(r, have, AW_BLOCK);
        int64_t n = au_read(r->audio.stream, r->audio.samples + have, room, &r->error);
        if (n < 0) {
            return (int)n;
        }
        if (r->params.vad) {
            status = aw_detect(r, r->audio.samples + have, (size_t)n);
        }
        if (n == 0) {
            break;
        }
        have += (size_t)n;
        aw_set_samples(r, have);
    }
    aw_pad_silence(r, have);
    return status;
}

static uint64_t aw_steps(int32_t ms)
{
    return ((uint64_t)ms + VA_STEP_MS / 2) / VA_STEP_MS;
}

/* A pause that ends a span must be at least as long as the padding on both of its sides. */
static va_rules aw_voice_rules(const wnpu_params *p)
{
    va_rules rules;
    rules.on = p->vad_threshold;
    rules.off = p->vad_threshold > 0.2f ? p->vad_threshold - 0.15f : 0.05f;
    rules.least = aw_steps(p->vad_min_speech_ms);
    rules.pad = aw_steps(p->vad_pad_ms);
    rules.gap = aw_steps(p->vad_min_silence_ms);
    rules.gap = rules.gap > 2 * rules.pad ? rules.gap : 2 * rules.pad;
    rules.gap = rules.gap > 2 ? rules.gap : 2; /* at most one span ends in a block */
    return rules;
}

static void aw_begin_detector(ru_run *r)
{
    va_rules rules = aw_voice_rules(&r->params);
    va_begin(&r->audio.voice, &rules);
    r->audio.detector_done = 0;
    r->audio.spans_passed = 0;
    r->store.speech.count = 0; /* spans found while detecting the language */
    r->stats.speech_ms = 0;
}

/* Fills the first window. The margin before the recording is its reflected beginning. */
static int aw_begin_audio(ru_run *r)
{
    size_t i;
    int status;
    r->audio.frame = 0;
    aw_set_samples(r, ML_MARGIN);
    aw_begin_detector(r);
    status = aw_fill(r);
    for (i = 1; i <= ML_MARGIN; i++) {
        r->audio.samples[ML_MARGIN - i] = r->audio.samples[ML_MARGIN + i];
    }
    return status;
}

/* Mel frames of real audio in the window, 0..3000. */
static size_t aw_frames(const ru_run *r)
{
    size_t n = (r->audio.n_samples - ML_MARGIN) / ML_HOP;
    return n < ML_FRAMES ? n : ML_FRAMES;
}

/* Moves the window forward by frames, and reads more. */
static int aw_advance(ru_run *r, size_t frames)
{
    size_t shift = frames * ML_HOP, have = r->audio.n_samples + r->audio.n_ahead;
    wnpu_speech_span span;
    r->audio.frame += frames;
    while (aw_get_span(r, r->audio.spans_passed, &span) && span.t1_ms <= ru_recording_ms(r, 0)) {
        r->audio.spans_passed++;
    }
    if (shift + ML_MARGIN >= have) {
        aw_set_samples(r, ML_MARGIN); /* nothing is left */
        return WNPU_OK;
    }
    aw_set_samples(r, have - shift);
    memmove(r->audio.samples, r->audio.samples + shift, (have - shift) * sizeof(float));
    return aw_fill(r);
}

/* Whether all windows end in pauses, so that they can be decoded together. */
static int aw_cuts_windows(const ru_run *r)
{
    return r->audio.batch > 0 && r->params.vad;
}

/* Time at which a long pause ends the window, or -1. */
static int64_t aw_long_pause_ms(const ru_run *r)
{
    int64_t end = ru_recording_ms(r, (int64_t)aw_frames(r) * 10);
    return r->params.vad ? aw_find_pause(r, ru_recording_ms(r, 0), end, AW_LONG_PAUSE_MS) : -1;
}

/* Whether this window ends in a pause. */
static int aw_ends_in_pause(const ru_run *r)
{
    return aw_cuts_windows(r) ||
           aw_long_pause_ms(r) == ru_recording_ms(r, (int64_t)r->audio.content * 10);
}

/* The step in first..end-1 at which to end a window: the middle of the last pause of at least
 * AW_SHORT_PAUSE_MS, otherwise of the longest pause. */
static uint64_t aw_find_cut(const ru_run *r, uint64_t first, uint64_t end)
{
    uint64_t at = end, longest = 0, begin, i;
    for (i = begin = first; i < end; i++) {
        if (va_speech_steps(&r->audio.voice, i, i + 1) > 0) {
            begin = i + 1;
        } else if (i + 1 - begin >= longest || i + 1 - begin >= AW_SHORT_PAUSE_MS / VA_STEP_MS) {
            longest = i + 1 - begin;
            at = begin + longest / 2;
        }
    }
    return at;
}

/* How many of the frames belong to the window. A long pause ends it: speech after it is unrelated
 * to speech before it and may be in another language. If windows are decoded together, no window
 * depends on the text of the previous one, so each ends in a pause, cut_ms; speech that its text
 * leaves out is decoded separately, up to that pause. */
static size_t aw_window_frames(ru_run *r, size_t frames)
{
    int64_t base = ru_recording_ms(r, 0), end = base + (int64_t)frames * 10;
    int64_t pause = aw_long_pause_ms(r);
    if (aw_cuts_windows(r)) {
        if (r->audio.cut_ms <= base) {
            uint64_t last = (uint64_t)(base + ML_FRAMES * 10) / VA_STEP_MS;
            uint64_t at = aw_find_cut(r, last - AW_CUT_RANGE_MS / VA_STEP_MS, last);
            r->audio.cut_ms = r->audio.n_ahead > 0 ? (int64_t)at * VA_STEP_MS : INT64_MAX;
        }
        r->audio.cut_ms = pause >= 0 && pause < r->audio.cut_ms ? pause : r->audio.cut_ms;
        end = r->audio.cut_ms < end ? r->audio.cut_ms : end;
    } else if (pause >= 0) {
        end = pause;
    }
    return (size_t)(end - base) / 10u;
}

/* ======================================================================
 * 23. lg_  the ledger and the admission of segments
 *
 *  Owns      what became of each millisecond of the recording, and which
 *            text of a window becomes a segment.
 *  Assumes   a decoded window.
 *  Ensures   the spans of the ledger cover the audio from 0 to the end of
 *            what was read; unreliable text is discarded, and the ledger
 *            says so.
 *  Costs     negligible.
 * ====================================================================== */
#define LG_STEP_MS 20          /* between two timestamps */
#define LG_FRAMES_PER_STEP 2u  /* mel frames in it */
#define LG_CONTEXT_TEMPERATURE 0.5f /* text decoded at this or more is no context for later text */
#define LG_LEADING_SILENCE_MS 2000 /* skip this much silence at the beginning of a window; less is
                                      decoded, since the detector may have missed the first words */
#define LG_TRAILING_SILENCE_MS 1000 /* omit this much silence after the last speech of a window */
#define LG_GAP_MS 1000         /* decode this much speech without text again */
#define LG_TOLERANCE_MS 500    /* error of the model's timestamps */
#define LG_SHORT_SEGMENT_MS 1000 /* the share of voice in shorter segments says nothing */

/* ---- the ledger ---- */

/* Extends the ledger to end_ms. */
static int lg_append(ru_run *r, int64_t end_ms, int kind, int reason)
{
    wnpu_ledger_span span;
    span.t0_ms = r->ledger.covered_ms;
    span.t1_ms = end_ms;
    span.kind = kind;
    span.reason = reason;
    if (end_ms <= r->ledger.covered_ms) {
        return WNPU_OK;
    }
    if (rs_add_ledger(&r->store, &span) != WNPU_OK) {
        return er_set(&r->error, WNPU_E_FULL, "the result store is full after %lu spans of the "
                      "ledger; raise result_bytes", (unsigned long)r->store.ledger.count);
    }
    r->ledger.covered_ms = end_ms;
    return WNPU_OK;
}

/* Extends the ledger to end_ms with audio that has no text: silence where there is no voice, and
 * elsewhere a span with the given reason. Undecided audio counts as voice. */
static int lg_cover(ru_run *r, int64_t end_ms, int reason)
{
    int kind = reason >= WNPU_REASON_NO_TEXT ? WNPU_LEDGER_UNRESOLVED : WNPU_LEDGER_SILENCE;
    int64_t known = aw_decided_ms(r);
    int status = WNPU_OK;
    size_t i = r->audio.spans_passed;
    while (status == WNPU_OK && r->ledger.covered_ms < end_ms) {
        int64_t at = r->ledger.covered_ms, end = end_ms;
        wnpu_speech_span span;
        int found, silent;
        while ((found = aw_get_span(r, i, &span)) != 0 && span.t1_ms <= at) {
            i++;
        }
        silent = r->params.vad && (found ? span.t0_ms > at : known > at);
        if (found) {
            int64_t edge = silent ? span.t0_ms : span.t1_ms;
            end = edge < end ? edge : end;
        } else if (silent) {
            end = known < end ? known : end;
        }
        status = silent ? lg_append(r, end, WNPU_LEDGER_SILENCE, WNPU_REASON_NO_VOICE)
                        : lg_append(r, end, kind, reason);
    }
    if (end_ms > r->ledger.covered_text_ms) {
        r->ledger.covered_text_ms = end_ms;
    }
    return status;
}

/* Whether there is at least LG_GAP_MS of speech without text before end_ms. Then *begin is where to
 * decode again, or -1 if that was tried already. Each return begins at least LG_GAP_MS after the
 * previous one, so a recording of n ms has at most n / LG_GAP_MS + 1 of them. Only a window with a
 * return may end where it began, so every run ends. */
static int lg_find_gap(const ru_run *r, int64_t end_ms, int64_t *begin)
{
    int64_t from = aw_next_speech_ms(r, r->ledger.covered_text_ms);
    int tried = r->audio.limit_ms >= 0 ||
                (r->ledger.last_return_ms >= 0 && from < r->ledger.last_return_ms + LG_GAP_MS);
    *begin = -1;
    if (!r->params.vad || aw_speech_ms(r, r->ledger.covered_text_ms, end_ms) < LG_GAP_MS) {
        return 0;
    }
    if (!tried) {
        *begin = from;
    }
    return 1;
}

/* End of the audio that the window's text was decoded from. No segment ends later. */
static int64_t lg_content_end_ms(const ru_run *r)
{
    int64_t end = ru_end_ms(r), content = ru_recording_ms(r, (int64_t)r->audio.content * 10);
    return r->audio.content < aw_frames(r) && content < end ? content : end;
}

/* Whether a segment begins after the decoded audio, allowing for errors of timestamps. */
static int lg_is_past_content(const ru_run *r, int64_t t0_ms)
{
    return r->params.vad && t0_ms >= lg_content_end_ms(r) + LG_TOLERANCE_MS;
}

/* Whether a segment has symbols, but neither a letter nor a digit of any script. */
static int lg_has_no_letters(const ru_run *r, const rs_draft *d)
{
    const tk_vocab *v = &r->engine.model->vocab;
    size_t i, k, length;
    int symbols = 0;
    for (i = 0; i < d->n; i++) {
        const char *text = d->tokens[i] < v->eot ? tk_text(v, d->tokens[i], &length) : NULL;
        for (k = 0; text != NULL && k < length; k++) {
            unsigned char c = (unsigned char)text[k], lower = c | 0x20u;
            if (c >= 0x80 || (c >= '0' && c <= '9') || (lower >= 'a' && lower <= 'z')) {
                return 0;
            }
            symbols |= c > ' ';
        }
    }
    return symbols;
}

/* Whether all decodings were rejected and the text is from one at a temperature too high to be
 * context for the next window. */
static int lg_is_last_resort(const rs_origin *o)
{
    return !o->accepted && o->temperature >= LG_CONTEXT_TEMPERATURE;
}

/* Whether the text of a segment is unreliable. OpenAI's rule for silence requires two conditions, a
 * high no-speech probability and a low mean log-probability, because nothing else is known of a
 * window. Here the detector has found something, mostly speech but sometimes music, and three terms
 * are added: these two, and the share of the segment without voice. The share counts half, because
 * much of faint speech is found to be without voice, and it is that of the window if that is less,
 * because only parts of speech over a noisy line are found. The limit is that of OpenAI's rule.
 * Speech at an SNR of 0 dB stays below it: its words are improbable or without voice, but its
 * no-speech probability is low. For segments shorter than a second the share is not used. */
static int lg_is_unreliable(const ru_run *r, const rs_draft *d)
{
    const wnpu_params *p = &r->params;
    float around = aw_speech_share(r, ru_recording_ms(r, 0), lg_content_end_ms(r));
    float voice = d->voice > around ? d->voice : around;
    float voiceless = d->t1_ms - d->t0_ms < LG_SHORT_SEGMENT_MS ? 0.0f : 1.0f - voice;
    float doubt = d->origin.no_speech - d->origin.mean_logprob + 0.5f * voiceless;
    return p->vad && (lg_has_no_letters(r, d) || lg_is_last_resort(&d->origin) ||
                      doubt > p->no_speech_threshold - p->logprob_threshold);
}

/* Decides whether a segment is stored: *refused is 1 if not. Extends the ledger to the earlier of
 * its own time and that of its first word, begins_ms. */
static int lg_admit(ru_run *r, size_t from, const rs_draft *d, int64_t begins_ms, int *refused)
{
    int64_t begin;
    int reason = WNPU_REASON_PAUSE, status;
    *refused = 0;
    if (lg_find_gap(r, d->t0_ms, &begin)) {
        reason = WNPU_REASON_NO_TEXT;
        if (begin >= 0) {
            r->ledger.gap_ms = begin; /* later segments wait for the gap, too */
            r->audio.limit_ms = d->t0_ms;
            r->text.n_final = from;
            *refused = 1;
            return WNPU_OK;
        }
    }
    status = lg_cover(r, begins_ms < d->t0_ms ? begins_ms : d->t0_ms, reason);
    if (status == WNPU_OK && lg_is_unreliable(r, d)) {
        /* Voice with a low no-speech probability but unreliable text is not silence. */
        status = lg_cover(r, d->t1_ms, d->voice >= 0.5f &&
                           d->origin.no_speech <= r->params.no_speech_threshold
                           ? WNPU_REASON_NO_TEXT : WNPU_REASON_NO_SPEECH);
        *refused = 1;
    }
    return status;
}

/* Ends a window after its segments: sets how many frames it has used and extends the ledger. */
static int lg_finish_window(ru_run *r, int silent, size_t *used)
{
    int64_t base = ru_recording_ms(r, 0), begin, end = ru_recording_ms(r, (int64_t)*used * 10);
    int reason = silent ? WNPU_REASON_NO_SPEECH : WNPU_REASON_PAUSE;
    int limited = r->audio.limit_ms >= 0 && r->ledger.gap_ms < 0;
    if (!silent && r->ledger.gap_ms < 0 && lg_find_gap(r, end, &begin)) {
        reason = WNPU_REASON_NO_TEXT;
        if (begin >= base + LG_GAP_MS) {
            r->ledger.gap_ms = begin;
        }
    }
    if (r->ledger.gap_ms >= 0) {
        *used = (size_t)(r->ledger.gap_ms - base) / 10u;
        end = ru_recording_ms(r, (int64_t)*used * 10);
        reason = WNPU_REASON_PAUSE;
        r->ledger.last_return_ms = r->ledger.gap_ms;
        r->ledger.gap_ms = -1;
        r->stats.returns++;
    }
    if (limited) {
        r->audio.limit_ms = -1;
    }
    return lg_cover(r, end, reason);
}

/* Beginning of the window's first segment, from t0_ms to t1_ms by timestamps. The first timestamp
 * is limited to max_initial_timestamp_ms, so silence before the first words is removed here. */
static int64_t lg_first_begin_ms(const ru_run *r, int64_t t0_ms, int64_t t1_ms)
{
    int64_t speech = r->params.vad ? aw_next_speech_ms(r, ru_recording_ms(r, 0)) : t0_ms;
    return speech > t0_ms && speech < t1_ms ? speech : t0_ms;
}

/* Adds a segment of the tokens from..to-1, which lasts from t0_ms to t1_ms by its timestamps. The
 * next window begins at next_ms. */
static int lg_add_segment(ru_run *r, size_t from, size_t to, int64_t t0_ms, int64_t t1_ms,
                          int64_t next_ms)
{
    const se_hypothesis *h = r->text.hypothesis;
    int64_t end = lg_content_end_ms(r);
    rs_draft d;
    wnpu_segment segment;
    int stored, status, refused;
    int64_t model_end, begin, stop; /* begin and stop: times of words, if they are requested */
    d.t0_ms = begin = t0_ms < end ? t0_ms : end;
    d.t1_ms = model_end = stop = t1_ms < d.t0_ms ? d.t0_ms : t1_ms < end ? t1_ms : end;
    d.tokens = h->tokens + from;
    d.probability = h->probability + from;
    d.n = to - from;
    d.language = r->language.id;
    d.window = (int32_t)r->text.window;
    d.origin = r->text.origin;
    d.origin.device = r->text.device;
    d.words = NULL;
    d.n_words = 0;
    begin = from == 0 ? lg_first_begin_ms(r, begin, stop) : begin;
    d.word_text = r->text.aligner.text;
    d.at_ms = r->text.aligner.at_ms;
    if (r->params.words) {
        d.words = al_segment(&r->text.aligner, to, next_ms < end ? next_ms : end, &begin, &stop,
                             &d.n_words);
    }
    if (r->ledger.gap_ms >= 0 || lg_is_past_content(r, t0_ms)) {
        return WNPU_OK;
    }
    d.voice = aw_speech_share(r, d.t0_ms, d.t1_ms);
    status = lg_admit(r, from, &d, begin, &refused);
    if (status != WNPU_OK || refused) {
        return status;
    }
    d.t0_ms = begin;
    d.t1_ms = stop > begin ? stop : begin;
    status = rs_list_reserve(&r->store, &r->store.ledger);
    status = status == WNPU_OK ? rs_add(&r->store, &r->engine.model->vocab, &d, &stored) : status;
    if (status != WNPU_OK) {
        return er_set(&r->error, status, "the result store is full after %lu segments; raise "
                      "result_bytes", (unsigned long)r->store.count);
    }
    if (!stored) {
        return WNPU_OK;
    }
    status = lg_append(r, stop > model_end ? stop : model_end, WNPU_LEDGER_TEXT, WNPU_REASON_NONE);
    if (model_end > r->ledger.covered_text_ms) {
        r->ledger.covered_text_ms = model_end;
    }
    if (status == WNPU_OK && r->params.on_segment != NULL &&
        rs_get(&r->store, r->store.count - 1, &segment) == WNPU_OK) {
        int stop_run = r->params.on_segment(r->params.user, &segment);
        (void)er_float_default();
        status = stop_run ? er_set(&r->error, WNPU_E_CANCELLED,
                                  "the segment callback requested a stop") : WNPU_OK;
    }
    return status;
}

/* Whether the last token is a single timestamp, which means that no speech follows it. */
static int lg_single_end(const se_hypothesis *h, int32_t t0)
{
    return h->n >= 2 ? h->tokens[h->n - 1] >= t0 && h->tokens[h->n - 2] < t0
                     : h->n == 1 && h->tokens[0] >= t0;
}

/* The latest timestamp among the first n tokens, in steps; 0 if there is none. The logit rules keep
 * timestamps in order, but on_logits can change what is chosen. */
static size_t lg_latest_step(const se_hypothesis *h, int32_t t0, size_t n)
{
    size_t i, latest = 0;
    for (i = 0; i < n; i++) {
        size_t step = h->tokens[i] > t0 ? (size_t)(h->tokens[i] - t0) : 0;
        latest = step > latest ? step : latest;
    }
    return latest < TK_TIMESTAMPS ? latest : TK_TIMESTAMPS - 1;
}

/* Frames that the window uses: up to its last pair of timestamps, if it ends in speech. */
static size_t lg_used_frames(const se_hypothesis *h, int32_t t0, size_t frames)
{
    size_t i, used = frames;
    for (i = lg_single_end(h, t0) ? 0 : h->n; i > 1; i--) {
        if (h->tokens[i - 1] >= t0 && h->tokens[i - 2] >= t0) {
            used = lg_latest_step(h, t0, i - 1) * LG_FRAMES_PER_STEP;
            break;
        }
    }
    return used > 0 && used < frames ? used : frames;
}

/* Divides the window's tokens into segments at pairs of timestamps, as OpenAI's transcribe(). Sets
 * how many frames were used and how many tokens are in segments. A segment begins at its first
 * token if that is a timestamp, otherwise at the end of the previous segment. */
static int lg_add_segments(ru_run *r, size_t frames, size_t *used, size_t *taken)
{
    const se_hypothesis *h = r->text.hypothesis;
    int32_t t0 = r->engine.model->vocab.timestamp0;
    int64_t base = ru_recording_ms(r, 0), begin, length = (int64_t)frames * 10, next;
    size_t i, last = 0, pairs = 0;
    int status = WNPU_OK, single_end = lg_single_end(h, t0);
    *used = lg_used_frames(h, t0, frames);
    next = base + (int64_t)*used * 10;
    for (i = 1; i <= h->n && status == WNPU_OK; i++) {
        int pair = i < h->n && h->tokens[i] >= t0 && h->tokens[i - 1] >= t0;
        if (!pair && !(i == h->n && single_end && pairs > 0)) {
            continue;
        }
        begin = (int64_t)lg_latest_step(h, t0, h->tokens[last] >= t0 ? last + 1 : last) *
                LG_STEP_MS;
        status = lg_add_segment(r, last, i, base + begin,
                         base + (int64_t)lg_latest_step(h, t0, i) * LG_STEP_MS, next);
        pairs += (size_t)pair;
        last = i;
    }
    *taken = last;
    if (pairs > 0 || status != WNPU_OK) {
        return status;
    }
    *used = frames;
    *taken = h->n;
    begin = 0;
    if (lg_latest_step(h, t0, h->n) > 0) {
        length = (int64_t)lg_latest_step(h, t0, h->n) * LG_STEP_MS;
    }
    if (h->n > 1 && h->tokens[0] >= t0 && (int64_t)lg_latest_step(h, t0, 1) * LG_STEP_MS < length) {
        begin = (int64_t)lg_latest_step(h, t0, 1) * LG_STEP_MS;
    }
    return lg_add_segment(r, 0, h->n, base + begin, base + length, next);
}

/* Returns how many frames without speech to skip at the beginning of the window. If 0, sets how
 * many frames to decode: up to the end of speech if silence follows it. */
static size_t lg_skip_silence(ru_run *r, size_t frames)
{
    int64_t base = ru_recording_ms(r, 0), end, begin, last, known;
    r->audio.content = frames;
    if (!r->params.vad) {
        return 0;
    }
    frames = r->audio.content = aw_window_frames(r, frames);
    end = ru_recording_ms(r, (int64_t)frames * 10);
    begin = aw_next_speech_ms(r, base);
    if (begin >= end) {
        return frames;
    }
    if (begin - base >= LG_LEADING_SILENCE_MS) {
        return (size_t)(begin - base) / 10u;
    }
    last = aw_last_speech_ms(r, end);
    known = aw_decided_ms(r) < end ? aw_decided_ms(r) : end;
    if (r->audio.limit_ms >= 0 && r->audio.limit_ms < last) {
        last = r->audio.limit_ms;
    }
    if (last > base && (known - last >= LG_TRAILING_SILENCE_MS || last == r->audio.limit_ms)) {
        r->audio.content = (size_t)(last - base + 9) / 10u;
    }
    return 0;
}

/* The last span of the ledger: audio that was read but not covered, with a reason. */
static void lg_set_rest(ru_run *r, int reason)
{
    wnpu_ledger_span span;
    size_t i;
    /* Includes samples after the window, in which speech spans may have been found. */
    size_t n_read = r->audio.n_samples + r->audio.n_ahead - ML_MARGIN;
    r->stats.audio_ms = ru_recording_ms(r, (int64_t)(n_read / (ML_RATE / 1000u)));
    r->store.rest.t0_ms = r->ledger.covered_ms;
    r->store.rest.t1_ms = r->stats.audio_ms;
    r->store.rest.kind = WNPU_LEDGER_UNRESOLVED;
    r->store.rest.reason = reason;
    r->stats.unresolved_ms = 0;
    for (i = 0; rs_get_ledger(&r->store, i, &span) == WNPU_OK; i++) {
        r->stats.unresolved_ms += span.kind == WNPU_LEDGER_UNRESOLVED ? span.t1_ms - span.t0_ms : 0;
    }
}

/* Ends the ledger at the end of what was read, however the run ended. */
static int lg_finish(ru_run *r, int status)
{
    if (status == WNPU_OK) {
        status = lg_cover(r, ru_end_ms(r), WNPU_REASON_PAUSE);
    }
    lg_set_rest(r, status == WNPU_E_CANCELLED ? WNPU_REASON_CANCELLED
                : status == WNPU_E_FULL ? WNPU_REASON_FULL
                : status == WNPU_E_IO || status == WNPU_E_AUDIO ? WNPU_REASON_INPUT
                : WNPU_REASON_FAILED);
    if (status != WNPU_OK || r->stats.unresolved_ms == 0) {
        return status;
    }
    return er_set(&r->error, WNPU_INCOMPLETE, "%ld ms of speech have no text; the ledger says "
                  "where", (long)r->stats.unresolved_ms);
}

/* ======================================================================
 * 24. wd_  decoding of one window
 *
 *  Owns      prompt, language, search, repetition check, gates and
 *            temperature fallback of one window.
 *  Assumes   a filled audio window.
 *  Ensures   the result depends only on the window's audio, the parameters
 *            and the context left by earlier windows.
 *  Costs     an encoder run and the decoding.
 * ====================================================================== */
#define WD_MIN_REST_MS 200     /* decode the rest of a window only if it has this much speech */
/* The language is certain after this much speech, in seconds, with this mean probability, */
#define WD_LANGUAGE_MIN_S 3.0f
#define WD_LANGUAGE_SURE 0.8f
#define WD_LANGUAGE_MAX_S 15.0f /* or after this much in any case */

static size_t wd_previous_capacity(const wnpu_model *m)
{
    return m->n_text_ctx / 2 - 1;
}

/* Appends tokens to the context of the next window, and drops the oldest ones. */
static void wd_append_context(ru_run *r, const int32_t *tokens, size_t n)
{
    size_t capacity = wd_previous_capacity(r->engine.model), keep;
    if (n > capacity) {
        tokens += n - capacity;
        n = capacity;
    }
    keep = r->context.n_previous < capacity - n ? r->context.n_previous : capacity - n;
    memmove(r->context.previous, r->context.previous + (r->context.n_previous - keep),
            keep * sizeof(int32_t));
    memcpy(r->context.previous + keep, tokens, n * sizeof(int32_t));
    r->context.n_previous = keep + n;
}

/* Composes [<|startofprev|> text] <|startoftranscript|> [language task] [<|notimestamps|>]
 * [prefix]. Earlier text is included only if context is 1. */
static void wd_make_prompt(ru_run *r, int context, se_prompt *p)
{
    const tk_vocab *v = &r->engine.model->vocab;
    size_t n = 0, room = wd_previous_capacity(r->engine.model) - r->context.n_initial, latest;
    latest = r->context.n_previous < room ? r->context.n_previous : room;
    p->n_before = 0;
    p->before = r->context.previous + (r->context.n_previous - latest);
    if (context && r->context.n_initial + latest > 0) {
        r->context.prompt[n++] = v->sot_prev;
        memcpy(r->context.prompt + n, r->context.initial, r->context.n_initial * sizeof(int32_t));
        n += r->context.n_initial;
        memcpy(r->context.prompt + n, p->before, latest * sizeof(int32_t));
        n += latest;
        p->n_before = latest;
    }
    p->sot = n;
    n += tk_start_tokens(v, r->language.id, r->params.task, r->context.prompt + n);
    if (!r->params.timestamps) {
        r->context.prompt[n++] = v->no_timestamps;
    }
    p->n_given = r->audio.frame == 0 ? r->context.n_prefix : 0;
    memcpy(r->context.prompt + n, r->context.prefix, p->n_given * sizeof(int32_t));
    p->tokens = r->context.prompt;
    p->n = n + p->n_given;
}

/* Encodes samples, of which the first `content` frames count, into the caches of decoder.window. */
static void wd_encode_samples(ru_run *r, const float *span, size_t content)
{
    double since = er_now_ms();
    int bridged;
    en_log_mel(&r->engine, span, content);
    r->stats.log_mel_ms += ru_elapsed_ms(&since);
    bridged = np_begin(&r->bridge);
    r->text.device = bridged ? WNPU_DEVICE_ACCEL : WNPU_DEVICE_CPU;
    if (bridged) {
        np_run(&r->bridge);
    } else {
        en_run(&r->engine);
    }
    r->stats.encoder_ms += ru_elapsed_ms(&since);
    if (bridged) {
        np_cross(&r->bridge, de_cross(&r->decoder));
        np_end(&r->bridge);
    } else {
        en_cross(&r->engine, de_cross(&r->decoder));
    }
    r->stats.cross_ms += ru_elapsed_ms(&since);
}

static void wd_encode(ru_run *r)
{
    se_invalidate(&r->text.search);
    wd_encode_samples(r, r->audio.samples, r->audio.content);
    r->stats.windows++;
}

/* ---- languages ---- */

static int wd_is_allowed_language(const ru_run *r, int32_t language)
{
    size_t i, n = r->params.n_languages;
    for (i = 0; i < n && r->params.languages[i] != language; i++) {
    }
    return n == 0 || i < n;
}

/* The most probable one of the allowed languages. */
static int32_t wd_best_language(const ru_run *r, const float *probability)
{
    int32_t i, best = -1;
    for (i = 0; i < r->engine.model->vocab.n_languages; i++) {
        if (wd_is_allowed_language(r, i) && (best < 0 || probability[i] > probability[best])) {
            best = i;
        }
    }
    return best;
}

/* Seconds of speech in the window; without the detector, seconds of audio. */
static float wd_speech_s(const ru_run *r)
{
    int64_t ms = r->params.vad ? aw_speech_ms(r, ru_recording_ms(r, 0), lg_content_end_ms(r))
                               : (int64_t)r->audio.content * 10;
    return (float)ms / 1000.0f;
}

/* Detects the language of the encoded window and adds the probabilities to the sums, weighted by
 * its seconds of speech times the probability that it is speech. Returns 0 if the run was
 * cancelled: the result may be incomplete, and is not added. */
static int wd_add_detection(ru_run *r, float *probability /* [RU_LANGUAGES] */)
{
    float no_speech = 0.0f, weight;
    int32_t i;
    se_languages(&r->decoder, probability, &no_speech);
    se_invalidate(&r->text.search); /* the detection used the decoder */
    if (ru_cancelled(r)) {
        return 0;
    }
    r->stats.prompt_tokens++;
    weight = no_speech < 1.0f ? (1.0f - no_speech) * wd_speech_s(r) : 0.0f;
    weight = weight > 1e-6f ? weight : 1e-6f; /* so that a recording of silence has a result, too */
    for (i = 0; i < r->engine.model->vocab.n_languages; i++) {
        r->language.sums[i] += weight * probability[i];
    }
    r->language.weight += weight;
    return 1;
}

/* Mean probability of a language over all windows. */
static float wd_mean_probability(const ru_run *r, int32_t language)
{
    return r->language.weight > 0.0f ? r->language.sums[language] / r->language.weight : 0.0f;
}

static void wd_decide_language(ru_run *r)
{
    r->language.id = wd_best_language(r, r->language.sums);
    r->language.probability = wd_mean_probability(r, r->language.id);
}

/* Whether the language of the recording is certain. A word before a long pause may not be enough;
 * then the following windows are included. */
static int wd_is_language_certain(const ru_run *r)
{
    return r->language.id >= 0 && (r->language.weight >= WD_LANGUAGE_MAX_S ||
           (r->language.weight >= WD_LANGUAGE_MIN_S &&
            wd_mean_probability(r, r->language.id) >= WD_LANGUAGE_SURE));
}

/* Whether the language has to be detected before the window is decoded. */
static int wd_needs_language(const ru_run *r)
{
    const wnpu_params *p = &r->params;
    if (p->language != WNPU_LANGUAGE_AUTO || !r->engine.model->vocab.multilingual) {
        return 0;
    }
    return r->language.id < 0 || p->language_mode == WNPU_LANGUAGE_EACH ||
           (p->language_windows < 2 && !wd_is_language_certain(r));
}

/* WNPU_LANGUAGE_EACH: the language changes when another leads clearly, or twice in a row. */
static void wd_follow_language(ru_run *r, const float *probability)
{
    int32_t best = wd_best_language(r, probability);
    if (r->language.id < 0 || best == r->language.rival ||
        probability[best] - probability[r->language.id] >= r->params.language_margin) {
        r->language.id = best;
    }
    r->language.rival = best != r->language.id ? best : -1;
}

/* Detects the language of the window if necessary; to be called before it is decoded. */
static void wd_update_language(ru_run *r)
{
    float probability[RU_LANGUAGES];
    if (!wd_needs_language(r) || !wd_add_detection(r, probability)) {
        return;
    }
    if (r->params.language_mode == WNPU_LANGUAGE_EACH) {
        wd_follow_language(r, probability);
    } else {
        wd_decide_language(r);
    }
}

/* Index of the current window in the lookahead, or lookahead.n. */
static size_t wd_lookahead_index(const ru_run *r)
{
    const ru_lookahead *f = &r->lookahead;
    size_t i;
    for (i = 0; i < f->n && (f->frame[i] != r->audio.frame ||
                             f->content[i] != r->audio.content); i++) {
    }
    return i;
}

/* ---- repetition ---- */

/* Milliseconds of speech between two encoder positions of the window that begins at step `base`; -1
 * without the detector. */
static int64_t wd_voice_between(const ru_run *r, uint64_t base, uint32_t from, uint32_t to)
{
    if (!r->params.vad) {
        return -1;
    }
    return (int64_t)va_speech_steps(&r->audio.voice, base + from, base + to) * VA_STEP_MS;
}

/* Describes part k of a repetition by the path of the aligner: letters, durations and voice. */
static al_part wd_part(const ru_run *r, const int32_t *tokens, const se_parts *parts, size_t k,
                       uint64_t base)
{
    const al_aligner *a = &r->text.aligner;
    const tk_vocab *v = &r->engine.model->vocab;
    size_t i, length, n = 0, last = parts->begin[k], end = parts->begin[k + 1];
    uint32_t from = a->path[last], to;
    al_part part = {0, 0, 0, 0, 0.0f};
    for (i = parts->begin[k]; i < end; i++) {
        if (tokens[i] < v->eot) {
            const char *text = tk_text(v, tokens[i], &length);
            part.letters += al_letters(text, length);
            part.near += a->near[i];
            last = i;
            n++;
        }
    }
    to = k + 1 < parts->n ? a->path[end] : a->path[last];
    part.ms = (int64_t)(to - from) * AL_STEP_MS;
    part.inner_ms = (int64_t)(a->path[last] - from) * AL_STEP_MS;
    part.voice_ms = wd_voice_between(r, base, from, to);
    part.near /= (float)n;
    if (k + 1 == parts->n && last > parts->begin[k]) { /* not counting its last token */
        tk_text(v, tokens[last], &length);
        part.letters -= al_letters(tk_text(v, tokens[last], &length), length);
    }
    return part;
}

/* Implements se_judge: whether repetition is in the audio. */
static size_t wd_judge(void *user, const int32_t *tokens, se_parts *parts, size_t slot,
                       size_t window)
{
    ru_run *r = user;
    const ru_lookahead *f = &r->lookahead;
    al_aligner *a = &r->text.aligner;
    const tk_vocab *v = &r->engine.model->vocab;
    size_t frames = window == SE_ALONE ? r->audio.content : f->content[window], start, n, k;
    uint64_t base = (window == SE_ALONE ? r->audio.frame : f->frame[window]) / LG_FRAMES_PER_STEP;
    n = parts->begin[parts->n];
    start = tk_start_tokens(v, r->language.id, r->params.task, a->tokens);
    if (!r->params.timestamps) {
        a->tokens[start++] = v->no_timestamps;
    }
    memcpy(a->tokens + start, tokens, n * sizeof(int32_t));
    al_align_partial(a, start, n, slot, frames);
    for (k = 0; k < parts->n; k++) {
        a->part[k] = wd_part(r, tokens, parts, k, base);
    }
    k = al_supported(a->part, parts->n);
    parts->at = k < parts->n ? a->path[parts->begin[k]] : 0;
    return k;
}

/* ---- gates ---- */

/* Size of a decoding's text divided by that of its zlib form, as OpenAI's compression_ratio(), but
 * without repetition that is in the audio. */
static float wd_compression(ru_run *r, const se_hypothesis *h)
{
    const tk_vocab *v = &r->engine.model->vocab;
    char *raw = r->text.buffer, *text = r->text.buffer + ZL_MAX;
    size_t i, length, n = 0, begin = 0;
    for (i = 0; i < h->n; i++) {
        const char *bytes = h->tokens[i] < v->eot && !h->again[i]
                                ? tk_text(v, h->tokens[i], &length) : NULL;
        if (bytes != NULL) {
            length = length < ZL_MAX - n ? length : ZL_MAX - n;
            memcpy(raw + n, bytes, length);
            n += length;
        }
    }
    n = tk_sanitize_utf8(text, ZL_MAX, raw, n);
    n = n < ZL_MAX ? n : strlen(text);
    while (n > 0 && rs_blank(text + n - 1, 1)) {
        n--;
    }
    while (begin < n && rs_blank(text + begin, 1)) {
        begin++;
    }
    return n > begin ? (float)(n - begin) /
                       (float)zl_size(r->text.compress, text + begin, n - begin)
                     : 0.0f;
}

static int wd_has_logprob_gate(const ru_run *r)
{
    return r->params.logprob_threshold > -INFINITY;
}

/* OpenAI's rule for silence, applied to the decoding that was kept. */
static int wd_is_silence(const ru_run *r)
{
    return r->text.origin.no_speech > r->params.no_speech_threshold &&
           !(wd_has_logprob_gate(r) && r->text.origin.mean_logprob > r->params.logprob_threshold);
}

/* Which gates a decoding fails, wnpu_refusal values. Silence fails none, since decoding it again
 * would not be better. */
static uint32_t wd_refusals(const ru_run *r, const rs_origin *o, int loop)
{
    const wnpu_params *p = &r->params;
    uint32_t reasons = loop ? WNPU_REFUSED_LOOP : 0;
    if (p->compression_threshold > 0.0f && o->compression_ratio > p->compression_threshold) {
        reasons |= WNPU_REFUSED_COMPRESSION;
    }
    if (o->mean_logprob < p->logprob_threshold) {
        reasons |= WNPU_REFUSED_LOGPROB;
    }
    if (p->first_logprob_threshold < 0.0f && o->first_logprob < p->first_logprob_threshold) {
        reasons |= WNPU_REFUSED_FIRST_TOKEN;
    }
    return wd_has_logprob_gate(r) && o->no_speech > p->no_speech_threshold &&
           o->mean_logprob < p->logprob_threshold ? 0 : reasons;
}

/* Whether a rejected decoding is better than the one kept before: no loop before loop, text that
 * does not repeat itself before text that does, then the higher mean log-probability. */
static int wd_is_better(const ru_run *r, const rs_origin *o, int loop, int old_loop)
{
    float limit = r->params.compression_threshold;
    int repeats = limit > 0.0f && o->compression_ratio > limit;
    int old_repeats = limit > 0.0f && r->text.origin.compression_ratio > limit;
    if (loop != old_loop) {
        return loop < old_loop;
    }
    if (repeats != old_repeats) {
        return repeats < old_repeats;
    }
    return o->mean_logprob > r->text.origin.mean_logprob;
}

/* The last timestamp among the first n tokens, or t0. */
static int32_t wd_last_timestamp(const se_hypothesis *h, size_t n, int32_t t0)
{
    while (n > 0 && h->tokens[n - 1] < t0) {
        n--;
    }
    return n > 0 ? h->tokens[n - 1] : t0;
}

/* Cuts the text before its loop and keeps a timestamp that follows. If there is none, it is set to
 * the beginning of the loop, if that is known. */
static void wd_cut_loop(const ru_run *r, se_hypothesis *h)
{
    int32_t t0 = r->engine.model->vocab.timestamp0, at = t0 + (int32_t)h->loop_at;
    size_t n = h->loop;
    if (n < h->n && h->tokens[n] >= t0) {
        n++;
    } else if (n < h->n && h->loop_at > 0 && r->params.timestamps &&
               at > wd_last_timestamp(h, n, t0)) {
        h->tokens[n] = at;
        h->probability[n++] = 1.0f;
    }
    h->n = n;
    h->n_given = h->n_given < n ? h->n_given : n;
}

static void wd_options(const ru_run *r, float temperature, uint64_t attempt, se_options *o)
{
    const wnpu_params *p = &r->params;
    size_t samples = p->best_of > 0 ? (size_t)p->best_of : 5;
    /* smaller ones would make logits infinite; this one is greedy in effect */
    o->temperature = temperature > 0.0f && temperature < 1e-6f ? 1e-6f : temperature;
    o->width = temperature > 0.0f ? (samples < r->text.max_beams ? samples : r->text.max_beams)
                                  : (size_t)p->beam;
    o->patience = p->patience;
    o->length_penalty = p->length_penalty;
    o->length_rule = p->length_rule;
    o->max_tokens = r->engine.model->n_text_ctx / 2;
    if (p->max_tokens > 0 && (size_t)p->max_tokens < o->max_tokens) {
        o->max_tokens = (size_t)p->max_tokens;
    }
    o->stop_loops = p->stop_loops != 0;
    o->seed = se_mix(se_mix(p->seed, r->text.window), attempt);
}

/* Decodes the window, or returns its text from the lookahead. */
static const se_hypothesis *wd_search(ru_run *r, const se_prompt *p, const se_options *o)
{
    size_t i = wd_lookahead_index(r);
    if (i == r->lookahead.n || !se_is_greedy(&r->text.search, p, o)) {
        return se_run(&r->text.search, p, o);
    }
    r->text.search.steps += r->lookahead.steps[i];
    r->text.search.prompt_tokens += (uint32_t)p->n;
    return &r->lookahead.hypothesis[i];
}

/* Whether a decoding passes the gates. A loop after repetition that is in the audio passes: the
 * loop is cut off, and the audio after it is decoded with the next window. */
static int wd_passes(const se_hypothesis *h, uint32_t reasons)
{
    return reasons == 0 || (reasons == WNPU_REFUSED_LOOP && h->confirmed);
}

/* Decodes the window once and keeps the result if it is the best so far. Returns the gates that it
 * fails, and whether it is accepted. */
static uint32_t wd_attempt(ru_run *r, float temperature, int context, uint32_t attempt, int *passes)
{
    se_options options;
    se_prompt prompt;
    const se_hypothesis *h;
    rs_origin o = r->text.origin;
    uint32_t reasons;
    wd_make_prompt(r, context, &prompt);
    wd_options(r, temperature, attempt, &options);
    h = wd_search(r, &prompt, &options);
    o.mean_logprob = se_mean_logprob(h);
    o.mean_logprob = o.mean_logprob < 0.0f ? o.mean_logprob : 0.0f; /* rounding errors */
    o.no_speech = h->no_speech;
    o.temperature = temperature;
    o.compression_ratio = wd_compression(r, h);
    o.first_logprob = h->first_logprob;
    o.prompted = prompt.sot > 0;
    reasons = wd_refusals(r, &o, h->loop > 0);
    *passes = wd_passes(h, reasons);
    if (attempt == 0 || *passes || wd_is_better(r, &o, h->loop > 0, r->text.hypothesis->loop > 0)) {
        *r->text.hypothesis = *h;
        r->text.origin = o;
    }
    return reasons;
}

/* Decodes the window until a decoding is accepted: text that repeats itself once more without
 * context, then at increasing temperatures. */
static void wd_attempts(ru_run *r)
{
    const uint32_t repeats = WNPU_REFUSED_LOOP | WNPU_REFUSED_COMPRESSION;
    const wnpu_params *p = &r->params;
    int context = r->context.n_previous + r->context.n_initial > 0;
    uint32_t attempt, reasons, all = 0, steps = 0;
    float temperature = p->temperature;
    int passes = 0;
    memset(&r->text.origin, 0, sizeof r->text.origin);
    for (attempt = 0; ; attempt++) {
        reasons = wd_attempt(r, temperature, context, attempt, &passes);
        r->stats.loops += (reasons & WNPU_REFUSED_LOOP) != 0 && !ru_cancelled(r);
        if (passes || ru_cancelled(r)) {
            break;
        }
        all |= reasons;
        if (context && (reasons & repeats) != 0) {
            context = 0;
            continue;
        }
        temperature = p->temperature + (float)++steps * p->temperature_step;
        if (!(p->temperature_step > 0.0f) || temperature > 1.0f + 1e-6f) {
            break;
        }
    }
    r->text.origin.retries = (int32_t)attempt;
    r->text.origin.reasons = all;
    r->text.origin.accepted = passes;
    r->stats.retries += attempt;
    r->stats.unaccepted += !passes;
}

/* Updates the context for the next window. */
static void wd_update_context(ru_run *r, size_t taken)
{
    if (!r->params.condition_on_previous || !r->text.origin.accepted ||
        r->text.origin.temperature >= LG_CONTEXT_TEMPERATURE) {
        r->context.n_previous = 0;
        return;
    }
    wd_append_context(r, r->text.hypothesis->tokens, taken);
}

/* Frames used by a window whose text was cut before a loop: up to its last timestamp, so that the
 * rest is decoded again. If that happens repeatedly and the repetition is not in the audio, all
 * frames are used. */
static size_t wd_used_before_loop(ru_run *r, size_t frames)
{
    const se_hypothesis *h = r->text.hypothesis;
    int32_t t0 = r->engine.model->vocab.timestamp0, last = h->n > 0 ? h->tokens[h->n - 1] : 0;
    size_t used = last > t0 ? lg_latest_step(h, t0, h->n) * LG_FRAMES_PER_STEP : frames;
    r->text.loop_cuts += !h->confirmed;
    return r->text.loop_cuts <= 2 && used >= 100 ? used : frames;
}

/* Measures times of words in the window's first frames, if they are requested. */
static void wd_align(ru_run *r, size_t frames)
{
    const se_hypothesis *h = r->text.hypothesis;
    if (r->params.words) {
        al_window(&r->text.aligner, r->language.id, r->params.task, h->tokens, h->probability, h->n,
                  r->audio.samples + ML_MARGIN, frames, ru_recording_ms(r, 0));
    }
}

/* Whether nothing remains in a window that ends in a pause: no speech after the used frames, and no
 * text after the taken tokens. */
static int wd_is_finished(const ru_run *r, size_t used, size_t taken)
{
    const se_hypothesis *h = r->text.hypothesis;
    while (taken < h->n && h->tokens[taken] >= r->engine.model->vocab.timestamp0) {
        taken++;
    }
    return aw_ends_in_pause(r) && r->ledger.gap_ms < 0 && taken == h->n &&
           aw_speech_ms(r, ru_recording_ms(r, (int64_t)used * 10), lg_content_end_ms(r)) <
               WD_MIN_REST_MS;
}

/* Decodes the window, stores its segments, and sets how many frames it has used. */
static int wd_decode(ru_run *r, size_t frames, size_t *used)
{
    size_t taken = 0;
    int status, cut;
    *used = frames;
    wd_attempts(r);
    r->text.n_final = r->text.hypothesis->n;
    r->stats.tokens += r->text.search.steps;
    r->stats.prompt_tokens += r->text.search.prompt_tokens;
    r->text.search.steps = r->text.search.prompt_tokens = 0;
    if (ru_cancelled(r)) {
        return WNPU_OK; /* the tokens may be from an incomplete step */
    }
    if (wd_is_silence(r)) {
        r->resumable = 0;
        r->stats.silent++;
        return lg_finish_window(r, 1, used);
    }
    cut = r->text.hypothesis->loop > 0;
    if (cut) {
        wd_cut_loop(r, r->text.hypothesis);
    }
    wd_align(r, lg_used_frames(r->text.hypothesis, r->engine.model->vocab.timestamp0, frames));
    if (ru_cancelled(r)) {
        return WNPU_OK;
    }
    r->resumable = 0;
    status = lg_add_segments(r, frames, used, &taken);
    if (cut) {
        *used = wd_used_before_loop(r, frames);
    } else {
        r->text.loop_cuts = 0;
    }
    if (wd_is_finished(r, *used, taken)) {
        *used = frames;
    }
    if (*used == 0 || *used > frames) {
        *used = frames;
    }
    status = status == WNPU_OK ? lg_finish_window(r, 0, used) : status;
    wd_update_context(r, taken < r->text.n_final ? taken : r->text.n_final);
    return status;
}

/* ======================================================================
 * 25. wi_  windows: the long-form driver
 *
 *  Owns      runs from parameters to status: the sequence of windows,
 *            windows decoded together, cancelling, resuming, detection of
 *            language or speech alone, choice among phrases.
 *  Assumes   nothing about the parameters: they are checked here.
 *  Ensures   OpenAI's seek rule: a window begins where the last complete
 *            segment of the previous one ended. Memory does not depend on
 *            the length of the recording. Every run ends: each window
 *            advances by at least a frame, except those that are decoded
 *            again, at most one per second of speech (lg_find_gap).
 *  Costs     the sum of its windows.
 * ====================================================================== */
#define WI_PROMPT_BYTES 4096u  /* much more than fits into the decoder's context */

static ru_position wi_get_position(const ru_run *r)
{
    ru_position p;
    p.frame = r->audio.frame;
    p.n_samples = r->audio.n_samples + r->audio.n_ahead;
    p.content = r->audio.content;
    p.window = r->decoder.window;
    p.cut_ms = r->audio.cut_ms;
    p.limit_ms = r->audio.limit_ms;
    p.device = r->text.device;
    return p;
}

static void wi_set_position(ru_run *r, const ru_position *p)
{
    r->audio.frame = p->frame;
    aw_set_samples(r, p->n_samples);
    r->audio.content = p->content;
    r->decoder.window = p->window;
    r->audio.cut_ms = p->cut_ms;
    r->audio.limit_ms = p->limit_ms;
    r->text.device = p->device;
}

/* Calls on_progress, which may take a snapshot. The reported time never decreases. */
static int wi_report_progress(ru_run *r, int64_t done_ms)
{
    int stop;
    r->reported_ms = done_ms > r->reported_ms ? done_ms : r->reported_ms;
    r->reported_at = er_now_ms();
    r->in_progress_call = 1;
    stop = r->params.on_progress(r->params.user, r->reported_ms, au_total_ms(r->audio.stream));
    (void)er_float_default();
    r->in_progress_call = 0;
    return stop;
}

/* Reports progress after a window. */
static int wi_progress_after_window(ru_run *r, int64_t done_ms)
{
    r->resumed = 0;
    if (r->params.on_progress != NULL) {
        r->stop_requested |= wi_report_progress(r, done_ms) != 0;
    }
    if (r->stop_requested) {
        return er_set(&r->error, WNPU_E_CANCELLED, "the progress callback requested a stop");
    }
    return WNPU_OK;
}

#ifndef WI_PROGRESS_MS
#define WI_PROGRESS_MS 1000.0 /* minimum time between calls inside a window; less in tests */
#endif

/* Reports progress inside a window, see en_report(). The callback may take a snapshot, which holds
 * the state before the window, and may stop the run at once. In the first window after
 * wnpu_resume() it stops the run only after the window: a host that stops at every call would
 * otherwise never make progress. */
static void wi_progress_in_window(void *user, float share)
{
    ru_run *r = user;
    ru_position here;
    int64_t done_ms = r->reported_ms;
    if (r->params.on_progress == NULL || !r->resumable || ru_cancelled(r) ||
        er_now_ms() - r->reported_at < WI_PROGRESS_MS) {
        return;
    }
    if (r->current == NULL) {
        done_ms = ru_recording_ms(r, (int64_t)(share * (float)r->audio.content * 10.0f));
    }
    here = wi_get_position(r);
    if (r->current != NULL) {
        wi_set_position(r, r->current);
    }
    r->stop_requested |= wi_report_progress(r, done_ms) != 0;
    wi_set_position(r, &here);
    if (r->stop_requested && !r->resumed) {
        __atomic_store_n(r->cancel, 1, __ATOMIC_RELAXED);
    }
}

/* Detects the language in the first language_windows times 30 s, before anything is decoded. The
 * caller reopens the audio. */
static int wi_detect_in_windows(ru_run *r)
{
    const uint64_t end = (uint64_t)r->params.language_windows * ML_FRAMES;
    float probability[RU_LANGUAGES];
    size_t frames;
    int status = WNPU_OK;
    while (status == WNPU_OK && r->audio.frame < end && (frames = aw_frames(r)) > 0) {
        size_t used = lg_skip_silence(r, frames);
        if (used == 0) {
            used = r->audio.content;
            wd_encode(r);
            if (ru_cancelled(r) || !wd_add_detection(r, probability)) {
                return er_set(&r->error, WNPU_E_CANCELLED, "cancelled");
            }
        }
        status = aw_advance(r, used);
    }
    if (status == WNPU_OK && r->language.weight > 0.0f) {
        wd_decide_language(r);
    }
    r->audio.cut_ms = 0;
    return status;
}

/* The earliest timestamp that may end the window: less than LG_GAP_MS of speech follows it. Used
 * where windows end in pauses, so that the model, which tends to stop early, leaves no speech to
 * the next window. */
static int32_t wi_least_end(const ru_run *r)
{
    int32_t t0 = r->engine.model->vocab.timestamp0;
    uint64_t base = (uint64_t)ru_recording_ms(r, 0) / VA_STEP_MS, at = base + r->audio.content / 2;
    uint64_t speech = 0;
    while (at > base && speech < LG_GAP_MS / VA_STEP_MS) {
        at--;
        speech += va_speech_steps(&r->audio.voice, at, at + 1);
    }
    return aw_cuts_windows(r) ? t0 + (int32_t)(at - base) : t0;
}

/* Appends the window that was just encoded. */
static void wi_add_lookahead(ru_run *r)
{
    ru_lookahead *f = &r->lookahead;
    f->frame[f->n] = r->audio.frame;
    f->content[f->n] = r->audio.content;
    f->window[f->n] = r->decoder.window;
    f->least_end[f->n] = wi_least_end(r);
    f->device[f->n++] = r->text.device;
}

/* Appends the current window, and encodes those that follow it if its text leaves no gap. */
static void wi_encode_ahead(ru_run *r)
{
    const ru_position current = wi_get_position(r);
    size_t used = r->audio.content, at = 0;
    r->lookahead.n = 0;
    wi_add_lookahead(r);
    r->current = &current;
    r->audio.limit_ms = -1;
    while (r->lookahead.n < r->audio.batch && !ru_cancelled(r)) {
        at += used * ML_HOP;
        r->audio.frame += used;
        aw_set_samples(r, at + ML_MARGIN < current.n_samples ? current.n_samples - at : ML_MARGIN);
        if (aw_frames(r) == 0 ||
            (r->audio.n_ahead < RU_DETECTOR_DELAY && !r->audio.detector_done)) {
            break;
        }
        used = lg_skip_silence(r, aw_frames(r));
        if (used == 0) {
            used = r->audio.content;
            r->decoder.window = (current.window + r->lookahead.n) % r->audio.batch;
            wd_encode_samples(r, r->audio.samples + at, r->audio.content);
            wi_add_lookahead(r);
        }
    }
    wi_set_position(r, &current);
    r->current = NULL;
}

/* Decodes the current window and the next ones together, if that is possible and none of the
 * following ones is decoded already. */
static void wi_decode_ahead(ru_run *r)
{
    ru_lookahead *f = &r->lookahead;
    se_prompt prompt;
    se_options options;
    size_t i;
    for (i = 0; i < f->n; i++) {
        if (f->frame[i] > r->audio.frame) {
            return;
        }
    }
    f->n = 0;
    wd_make_prompt(r, r->context.n_previous + r->context.n_initial > 0, &prompt);
    wd_options(r, r->params.temperature, 0, &options);
    if (r->audio.batch < 2 || !aw_cuts_windows(r) || r->params.condition_on_previous ||
        wd_needs_language(r) || !se_is_greedy(&r->text.search, &prompt, &options)) {
        return;
    }
    wi_encode_ahead(r);
    if (!ru_cancelled(r) && f->n > 1) {
        double since = er_now_ms();
        se_run_windows(&r->text.search, &prompt, &options, f->n, f->window, f->least_end,
                       f->hypothesis, f->steps);
        r->stats.decoder_ms += ru_elapsed_ms(&since);
    }
    if (ru_cancelled(r) || f->n < 2) {
        f->n = 0;
    }
}

/* Encodes the window, detects its language and decodes ahead, or selects its lookahead caches. */
static void wi_prepare(ru_run *r)
{
    size_t i = wd_lookahead_index(r);
    double since;
    if (i < r->lookahead.n) {
        se_invalidate(&r->text.search);
        r->decoder.window = r->lookahead.window[i];
        r->text.device = r->lookahead.device[i];
        r->stats.windows++;
        return;
    }
    wd_encode(r);
    since = er_now_ms();
    if (!ru_cancelled(r)) {
        wd_update_language(r);
    }
    r->stats.decoder_ms += ru_elapsed_ms(&since);
    if (!ru_cancelled(r)) {
        wi_decode_ahead(r);
    }
}

/* Encodes and decodes a window and stores its segments. */
static int wi_run_window(ru_run *r, size_t *used)
{
    double since;
    int status;
    wi_prepare(r);
    r->text.search.least_end = wi_least_end(r);
    since = er_now_ms();
    status = ru_cancelled(r) ? WNPU_OK : wd_decode(r, r->audio.content, used);
    r->stats.decoder_ms += ru_elapsed_ms(&since);
    if (!r->resumable) { /* completed */
        r->text.window++;
    }
    return status;
}

/* Saves the state between two windows. A run that ends inside the next window continues from it. */
static void wi_save_checkpoint(ru_run *r)
{
    r->checkpoint.stats = r->stats;
    r->checkpoint.language = r->language.id;
    r->checkpoint.rival = r->language.rival;
    r->checkpoint.language_probability = r->language.probability;
    r->checkpoint.language_weight = r->language.weight;
    memcpy(r->checkpoint.language_sums, r->language.sums, sizeof r->checkpoint.language_sums);
    r->resumable = 1;
}

static void wi_load_checkpoint(ru_run *r)
{
    r->stats = r->checkpoint.stats;
    r->language.id = r->checkpoint.language;
    r->language.rival = r->checkpoint.rival;
    r->language.probability = r->checkpoint.language_probability;
    r->language.weight = r->checkpoint.language_weight;
    memcpy(r->language.sums, r->checkpoint.language_sums, sizeof r->checkpoint.language_sums);
}

static int wi_run_windows(ru_run *r)
{
    int status = WNPU_OK;
    size_t frames;
    while (status == WNPU_OK && !ru_cancelled(r) && (frames = aw_frames(r)) > 0) {
        size_t used = lg_skip_silence(r, frames);
        double since;
        if (used > 0) {
            r->resumable = 0;
            r->stats.skips++;
            status = lg_cover(r, ru_recording_ms(r, (int64_t)used * 10), WNPU_REASON_PAUSE);
        } else {
            status = wi_run_window(r, &used);
        }
        if (status == WNPU_OK && r->resumable) {
            break; /* cancelled */
        }
        since = er_now_ms();
        if (status == WNPU_OK) {
            status = aw_advance(r, used);
            r->stats.audio_in_ms += ru_elapsed_ms(&since);
        }
        if (status == WNPU_OK) {
            wi_save_checkpoint(r);
        }
        if (status == WNPU_OK) {
            status = np_check_required(&r->bridge, &r->error);
        }
        if (status == WNPU_OK) {
            int64_t done_ms = ru_recording_ms(r, 0);
            status = wi_progress_after_window(r, ru_end_ms(r) < done_ms ? ru_end_ms(r) : done_ms);
        }
    }
    return status == WNPU_OK && ru_cancelled(r)
               ? er_set(&r->error, WNPU_E_CANCELLED, r->stop_requested
                        ? "the progress callback requested a stop" : "cancelled") : status;
}

/* Checks parameters against the model, and configures the logit rules. */
static int wi_set_rules(ru_run *r)
{
    const tk_vocab *v = &r->engine.model->vocab;
    const wnpu_params *p = &r->params;
    size_t i;
    r->rules.vocab = v;
    r->rules.op = r->engine.op;
    r->rules.timestamps = p->timestamps != 0;
    r->rules.suppress_blank = p->suppress_blank != 0;
    r->rules.max_initial = p->max_initial_timestamp_ms / LG_STEP_MS;
    r->rules.repetition = p->repetition_penalty;
    r->rules.no_repeat = (size_t)p->no_repeat_ngram;
    r->text.search.filter.function = p->on_logits;
    r->text.search.filter.user = p->user;
    if (tk_encode(v, " ", 1, &r->rules.blank, 1) != 1) {
        r->rules.blank = -1;
    }
    memset(r->rules.never, 0, (size_t)v->n_vocab);
    tk_suppress_special(v, r->rules.never);
    r->rules.never[v->no_timestamps] = 1;
    if (p->suppress_non_speech) {
        tk_suppress_non_speech(v, r->rules.never);
    }
    for (i = 0; i < p->n_suppress; i++) {
        if (p->suppress[i] < 0 || p->suppress[i] >= v->n_vocab) {
            return er_set(&r->error, WNPU_E_ARGUMENT, "suppress[%lu] is %d, but tokens are 0..%d",
                          (unsigned long)i, (int)p->suppress[i], (int)v->n_vocab - 1);
        }
        r->rules.never[p->suppress[i]] = 1;
    }
    return WNPU_OK;
}

static int wi_check_languages(ru_run *r)
{
    const wnpu_params *p = &r->params;
    int32_t n = r->engine.model->vocab.n_languages;
    size_t i;
    for (i = 0; i < p->n_languages; i++) {
        if (p->languages[i] < 0 || p->languages[i] >= (n > 0 ? n : 1)) {
            return er_set(&r->error, WNPU_E_ARGUMENT, "languages[%lu] is %d, which this model does "
                          "not have", (unsigned long)i, (int)p->languages[i]);
        }
    }
    if (!wd_is_allowed_language(r, p->language) && p->language >= 0) {
        return er_set(&r->error, WNPU_E_ARGUMENT, "language %d is given but is not among the "
                      "languages allowed", (int)p->language);
    }
    return WNPU_OK;
}

static int wi_set_language(ru_run *r)
{
    const tk_vocab *v = &r->engine.model->vocab;
    const wnpu_params *p = &r->params;
    r->language.id = p->language;
    r->language.probability = p->language < 0 ? 0.0f : 1.0f;
    if (!v->multilingual) {
        if (p->language > 0 || p->task == WNPU_TRANSLATE) {
            return er_set(&r->error, WNPU_E_UNSUPPORTED, "this is an English-only model; use a "
                          "multilingual one to %s", p->task == WNPU_TRANSLATE ? "translate"
                          : "transcribe another language");
        }
        r->language.id = 0;
        r->language.probability = 1.0f;
    } else if (p->language >= v->n_languages) {
        return er_set(&r->error, WNPU_E_ARGUMENT, "language %d is unknown to this model, which "
                      "has %d", (int)p->language, (int)v->n_languages);
    }
    return wi_check_languages(r);
}

/* Checks limits from the session's configuration. */
static int wi_check_beams(ru_run *r)
{
    const wnpu_params *p = &r->params;
    int slots = (int)r->text.max_beams;
    if (p->beam > slots || p->best_of > slots) {
        return er_set(&r->error, WNPU_E_ARGUMENT, "%s %d is outside %d..%d; max_beams of the "
                      "session's configuration is the limit", p->beam > slots ? "beam" : "best_of",
                      (int)(p->beam > slots ? p->beam : p->best_of), p->beam > slots, slots);
    }
    return WNPU_OK;
}

static int wi_check(ru_run *r)
{
    const wnpu_params *p = &r->params;
    int status = pm_check(p, &r->error);
    status = status == WNPU_OK ? wi_check_beams(r) : status;
    if (status != WNPU_OK) {
        return status;
    }
    if ((p->n_suppress > 0 && p->suppress == NULL) || (p->n_hotwords > 0 && p->hotwords == NULL) ||
        (p->n_languages > 0 && p->languages == NULL)) {
        return er_set(&r->error, WNPU_E_ARGUMENT, "%s is set but %s is NULL",
                      p->suppress == NULL && p->n_suppress > 0 ? "n_suppress" :
                      p->hotwords == NULL && p->n_hotwords > 0 ? "n_hotwords" : "n_languages",
                      p->suppress == NULL && p->n_suppress > 0 ? "suppress" :
                      p->hotwords == NULL && p->n_hotwords > 0 ? "hotwords" : "languages");
    }
    return WNPU_OK;
}

/* Encodes " " followed by the text without surrounding blanks, as OpenAI encodes prompts. */
static int wi_encode_text(ru_run *r, const char *name, const char *text, int32_t *tokens,
                     size_t capacity, size_t *n)
{
    char spaced[WI_PROMPT_BYTES];
    size_t length = text != NULL ? strlen(text) : 0;
    int64_t count;
    *n = 0;
    for (; length > 0 && *text == ' '; text++, length--) {
    }
    for (; length > 0 && text[length - 1] == ' '; length--) {
    }
    if (length == 0) {
        return WNPU_OK;
    }
    if (length >= sizeof spaced) {
        return er_set(&r->error, WNPU_E_ARGUMENT, "%s has more than %u bytes", name,
                      WI_PROMPT_BYTES - 1);
    }
    spaced[0] = ' ';
    memcpy(spaced + 1, text, length);
    count = tk_encode(&r->engine.model->vocab, spaced, length + 1, tokens, capacity);
    if (count < 0) {
        return er_set(&r->error, (int)count, "this model's vocabulary cannot encode %s", name);
    }
    if ((uint64_t)count > capacity) {
        return er_set(&r->error, WNPU_E_ARGUMENT, "%s has %ld tokens; at most %lu fit into the "
                      "decoder's context", name, (long)count, (unsigned long)capacity);
    }
    *n = (size_t)count;
    return WNPU_OK;
}

static size_t wi_prefix_capacity(const wnpu_model *m)
{
    return m->n_text_ctx / 4 < RU_MAX_PREFIX ? m->n_text_ctx / 4 : RU_MAX_PREFIX;
}

/* Encodes the initial prompt and the prefix. A resumed run has its context already. */
static int wi_set_prompts(ru_run *r, int resumed)
{
    const wnpu_model *m = r->engine.model;
    const wnpu_params *p = &r->params;
    int status = WNPU_OK, timed = p->timestamps != 0;
    if (p->carry_initial_prompt) {
        status = wi_encode_text(r, "initial_prompt", p->initial_prompt, r->context.initial,
                           wd_previous_capacity(m), &r->context.n_initial);
    } else if (!resumed) {
        status = wi_encode_text(r, "initial_prompt", p->initial_prompt, r->context.previous,
                           wd_previous_capacity(m), &r->context.n_previous);
    }
    if (status != WNPU_OK) {
        return status;
    }
    status = wi_encode_text(r, "prefix", p->prefix, r->context.prefix + timed,
                       wi_prefix_capacity(m) - (size_t)timed, &r->context.n_prefix);
    if (timed && r->context.n_prefix > 0) {
        r->context.prefix[0] = m->vocab.timestamp0;
        r->context.n_prefix++;
    }
    return status;
}

/* Fills the trie with n phrases; name is used in messages. */
static int wi_add_phrases(ru_run *r, const char *name, const char *const *phrases, size_t n)
{
    size_t i;
    lr_trie_clear(&r->rules.trie);
    for (i = 0; i < n && !ru_cancelled(r); i++) {
        int status = phrases[i] != NULL ? lr_add_phrase(&r->rules.trie, &r->engine.model->vocab,
                                                        phrases[i], (int32_t)i)
                                        : WNPU_E_ARGUMENT;
        if (status == WNPU_E_MEMORY) {
            return er_set(&r->error, WNPU_E_ARGUMENT, "%s[%lu] does not fit any more; raise "
                          "max_phrase_tokens of the session's configuration above %u", name,
                          (unsigned long)i, (unsigned)(r->rules.trie.capacity - LR_ROOTS));
        }
        if (status != WNPU_OK) {
            return er_set(&r->error, status, status == WNPU_E_UNSUPPORTED
                          ? "this model's vocabulary cannot encode %s[%lu]"
                          : "%s[%lu] is NULL, empty, or longer than %u bytes or %u tokens", name,
                          (unsigned long)i, LR_PHRASE_BYTES - 2, LR_MAX_TOKENS);
        }
    }
    return WNPU_OK;
}

/* Discards results and state of the previous run. */
static void wi_reset(ru_run *r)
{
    rs_reset(&r->store);
    memset(&r->stats, 0, sizeof r->stats);
    np_reset(&r->bridge);
    memset(&r->phrase.choice, 0, sizeof r->phrase.choice);
    memset(r->language.sums, 0, RU_LANGUAGES * sizeof *r->language.sums);
    r->language.weight = 0.0f;
    r->language.id = 0;
    r->language.rival = -1;
    r->language.probability = 0.0f;
    r->decoder.window = 0;
    r->lookahead.n = 0;
    aw_set_samples(r, ML_MARGIN);
    r->audio.frame = 0;
    r->text.window = 0;
    r->text.loop_cuts = 0;
    r->stop_requested = r->resumed = 0;
    r->reported_ms = 0;
    r->reported_at = er_now_ms();
    r->resumable = 0;
    r->audio.content = ML_FRAMES;
    r->ledger.covered_ms = 0;
    r->ledger.covered_text_ms = 0;
    r->ledger.gap_ms = r->ledger.last_return_ms = r->audio.limit_ms = -1;
    r->audio.cut_ms = 0;
    r->context.n_previous = r->context.n_initial = r->context.n_prefix = 0;
    r->text.search.steps = r->text.search.prompt_tokens = 0;
    lr_trie_clear(&r->rules.trie);
    al_reset(&r->text.aligner);
    er_clear(&r->error);
}

/* Whether the language is detected in several windows before anything is decoded. */
static int wi_is_language_first(const ru_run *r)
{
    return r->params.language == WNPU_LANGUAGE_AUTO && r->engine.model->vocab.multilingual &&
           r->params.language_mode == WNPU_LANGUAGE_ONCE && r->params.language_windows > 1;
}

/* Detects the language and returns to the beginning of the audio. */
static int wi_detect_language_first(ru_run *r, const wnpu_audio *audio)
{
    int status = wi_detect_in_windows(r);
    status = status == WNPU_OK ? au_open(r->audio.stream, audio, &r->error) : status;
    return status == WNPU_OK ? aw_begin_audio(r) : status;
}

/* Prepares a run and fills its first window. */
static int wi_open(ru_run *r, const wnpu_audio *audio)
{
    int status = wi_check(r);
    status = status == WNPU_OK ? wi_set_language(r) : status;
    status = status == WNPU_OK ? wi_set_rules(r) : status;
    status = status == WNPU_OK ? wi_set_prompts(r, 0) : status;
    status = status == WNPU_OK ? au_open(r->audio.stream, audio, &r->error) : status;
    return status == WNPU_OK ? aw_begin_audio(r) : status;
}

/* The language of the run is that of most of the recording. */
static void wi_finish_language(ru_run *r)
{
    if (r->language.weight > 0.0f) {
        wd_decide_language(r);
    }
    if (r->language.id < 0) {
        r->language.id = 0; /* no audio, nothing to detect */
    }
}

/* Runs the remaining windows and ends the run. */
static int wi_finish(ru_run *r, int status)
{
    if (status == WNPU_OK) {
        status = wi_run_windows(r);
    }
    wi_finish_language(r);
    return lg_finish(r, status);
}

static int wi_set_hotwords(ru_run *r)
{
    int status = wi_add_phrases(r, "hotwords", r->params.hotwords, r->params.n_hotwords);
    lr_trie_set_bonus(&r->rules.trie, r->params.hotword_boost, r->params.beam > 1);
    return status;
}

/* Continues a run that stopped between two windows, or inside one, which is decoded again. On
 * E_ARGUMENT nothing changes. */
static int wi_resume(ru_run *r, const wnpu_audio *audio)
{
    double since = er_now_ms();
    int status = wi_check(r);
    if (status == WNPU_OK && pm_fingerprint(&r->params) != r->fingerprint) {
        status = er_set(&r->error, WNPU_E_ARGUMENT, "the parameters differ from those that the "
                        "run was started with; only callbacks may differ");
    }
    status = status == WNPU_OK ? au_continue(r->audio.stream, audio, &r->error) : status;
    if (status != WNPU_OK) {
        return status;
    }
    r->resumable = 0;
    r->stop_requested = 0;
    r->resumed = 1;
    r->reported_ms = 0;
    r->reported_at = er_now_ms();
    status = wi_set_language(r);
    status = status == WNPU_OK ? wi_set_rules(r) : status;
    status = status == WNPU_OK ? wi_set_prompts(r, 1) : status;
    status = status == WNPU_OK ? wi_set_hotwords(r) : status;
    wi_load_checkpoint(r);
    memset(&r->store.rest, 0, sizeof r->store.rest);
    r->audio.voice.rules = aw_voice_rules(&r->params);
    r->bridge.fell_back = 0; /* try a required accelerator again */
    status = status == WNPU_OK ? aw_fill(r) : status; /* it may have been cancelled while reading */
    r->stats.audio_in_ms += ru_elapsed_ms(&since);
    if (status == WNPU_OK) {
        wi_save_checkpoint(r); /* even if cancelled: all of the above is repeated */
    }
    return wi_finish(r, status);
}

static int wi_transcribe(ru_run *r, const wnpu_audio *audio)
{
    double since = er_now_ms();
    int status;
    if (wi_is_language_first(r) && audio != NULL && audio->read != NULL) {
        return er_set(&r->error, WNPU_E_ARGUMENT, "language_windows %d needs audio in memory: a "
                      "reader cannot go back to the start", (int)r->params.language_windows);
    }
    status = wi_open(r, audio);
    r->stats.audio_in_ms += ru_elapsed_ms(&since);
    status = status == WNPU_OK ? wi_set_hotwords(r) : status;
    if (status == WNPU_OK && wi_is_language_first(r)) {
        status = wi_detect_language_first(r, audio);
    }
    if (status == WNPU_OK && !ru_cancelled(r)) { /* otherwise the above may be incomplete */
        r->fingerprint = pm_fingerprint(&r->params);
        wi_save_checkpoint(r);
    }
    return wi_finish(r, status);
}

/* Runs the voice activity detector only. */
static int wi_detect_speech(ru_run *r, const wnpu_audio *audio)
{
    int status = wi_check(r);
    size_t frames;
    status = status == WNPU_OK ? au_open(r->audio.stream, audio, &r->error) : status;
    if (status != WNPU_OK) {
        return status;
    }
    r->params.vad = 1;
    status = aw_begin_audio(r);
    while (status == WNPU_OK && !ru_cancelled(r) && (frames = aw_frames(r)) > 0) {
        status = aw_advance(r, frames);
        status = status == WNPU_OK ? wi_progress_after_window(r, ru_recording_ms(r, 0)) : status;
    }
    if (status == WNPU_OK && ru_cancelled(r)) {
        status = er_set(&r->error, WNPU_E_CANCELLED, "cancelled");
    }
    r->audio.spans_passed = 0;
    if (status == WNPU_OK) {
        status = lg_cover(r, ru_end_ms(r), WNPU_REASON_NO_TEXT);
    }
    status = lg_finish(r, status);
    if (status == WNPU_INCOMPLETE) { /* text was not requested */
        er_clear(&r->error);
        status = WNPU_OK;
    }
    return status;
}

/* Detects the language in windows with speech until it is certain. The first window is always
 * included, so that singing that the detector does not find has a result. */
static int wi_detect_in_speech(ru_run *r)
{
    float probability[RU_LANGUAGES];
    size_t frames;
    int status = WNPU_OK;
    while (status == WNPU_OK && !ru_cancelled(r) && !wd_is_language_certain(r) &&
           (frames = aw_frames(r)) > 0) {
        size_t used = lg_skip_silence(r, frames);
        if (used == 0 || (r->audio.frame == 0 && used == r->audio.content)) {
            used = r->audio.content;
            wd_encode(r);
            if (!ru_cancelled(r) && wd_add_detection(r, probability)) {
                wd_decide_language(r);
            }
        }
        status = aw_advance(r, used);
    }
    return status;
}

static int wi_detect_language(ru_run *r, const wnpu_audio *audio, float *probability)
{
    int32_t i;
    int status;
    if (!r->engine.model->vocab.multilingual) {
        return er_set(&r->error, WNPU_E_UNSUPPORTED, "this is an English-only model; use a "
                      "multilingual one to detect languages");
    }
    r->language.id = -1;
    status = au_open(r->audio.stream, audio, &r->error);
    status = status == WNPU_OK ? aw_begin_audio(r) : status;
    status = status == WNPU_OK ? wi_detect_in_speech(r) : status;
    if (status != WNPU_OK) {
        return status;
    }
    wi_finish_language(r);
    for (i = 0; i < r->engine.model->vocab.n_languages; i++) {
        probability[i] = wd_mean_probability(r, i);
    }
    r->stats.audio_ms = ru_end_ms(r);
    return ru_cancelled(r) ? er_set(&r->error, WNPU_E_CANCELLED, "cancelled")
                           : np_check_required(&r->bridge, &r->error);
}

/* ---- the choice among phrases ---- */

/* Marks the tokens that may follow a complete phrase: end of text and punctuation. */
static void wi_phrase_ends(ru_run *r, unsigned char *ends)
{
    static const char *const marks[] = {".", ",", "!", "?", ";", ":", "...", "\xe3\x80\x82",
                                        "\xe3\x80\x81", "\xef\xbc\x81", "\xef\xbc\x9f"};
    const tk_vocab *v = &r->engine.model->vocab;
    size_t i;
    memset(ends, 0, (size_t)v->n_vocab);
    ends[v->eot] = 1;
    for (i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        int32_t token = tk_find(v, marks[i], strlen(marks[i]));
        if (token >= 0) {
            ends[token] = 1;
        }
    }
}

/* Converts the phrase to a hypothesis, from which a segment is made. */
static void wi_set_choice_text(ru_run *r, const se_choice *c)
{
    const lr_trie *t = &r->rules.trie;
    se_hypothesis *h = r->text.hypothesis;
    uint32_t at;
    memset(h, 0, sizeof *h);
    h->n = c->phrase[0] >= 0 ? t->nodes[c->node].depth : 0;
    for (at = c->node; h->n > 0 && at >= LR_ROOTS; at = t->nodes[at].parent) {
        uint32_t parent = t->nodes[at].parent;
        float before = parent >= LR_ROOTS ? r->phrase.score[parent] : 0.0f;
        h->tokens[t->nodes[at].depth - 1] = t->nodes[at].token;
        before = r->phrase.score[at] - before;
        h->probability[t->nodes[at].depth - 1] = before < 0.0f ? mt_exp1(before) : 1.0f;
    }
    h->sum_logprob = c->logprob[0];
    h->first_logprob = h->n > 0 ? mt_log1(h->probability[0] > 1e-30f ? h->probability[0] : 1e-30f)
                                : 0.0f;
    memset(&r->text.origin, 0, sizeof r->text.origin);
    r->text.origin.mean_logprob = h->n > 0 ? se_mean_logprob(h) : 0.0f;
    r->text.origin.no_speech = r->text.search.fed_no_speech;
    r->text.origin.compression_ratio = wd_compression(r, h);
    r->text.origin.first_logprob = h->first_logprob;
    r->text.origin.accepted = 1;
}

static int wi_choose_phrase(ru_run *r)
{
    se_choosing c;
    se_choice found;
    se_prompt prompt;
    int64_t end = ru_end_ms(r);
    wd_make_prompt(r, r->context.n_previous + r->context.n_initial > 0, &prompt);
    if (prompt.n + r->rules.trie.depth > r->engine.model->n_text_ctx) {
        return er_set(&r->error, WNPU_E_ARGUMENT, "the prompt's %lu and a phrase's %u tokens do "
                      "not fit into the decoder's context of %u", (unsigned long)prompt.n,
                      (unsigned)r->rules.trie.depth, (unsigned)r->engine.model->n_text_ctx);
    }
    memset(&c, 0, sizeof c);
    c.search = &r->text.search;
    c.trie = &r->rules.trie;
    c.ends = r->rules.never; /* the suppression list is not used here */
    c.score = r->phrase.score;
    c.state = r->phrase.state;
    c.path = r->context.prompt;
    c.n_prompt = prompt.n;
    c.sot = prompt.sot;
    se_choose(&c, &found);
    r->stats.tokens += r->text.search.steps;
    r->stats.prompt_tokens += r->text.search.prompt_tokens;
    if (ru_cancelled(r)) {
        return er_set(&r->error, WNPU_E_CANCELLED, "cancelled");
    }
    r->phrase.choice.struct_size = sizeof r->phrase.choice;
    r->phrase.choice.best = found.phrase[0];
    r->phrase.choice.second = found.phrase[1];
    r->phrase.choice.best_logprob = found.logprob[0];
    r->phrase.choice.second_logprob = found.logprob[1];
    r->phrase.choice.margin = found.logprob[0] - found.logprob[1];
    r->phrase.choice.no_speech = r->text.search.fed_no_speech;
    wi_set_choice_text(r, &found);
    r->text.origin.prompted = prompt.sot > 0;
    wd_align(r, aw_frames(r)); /* samples after the window's last frame are not read */
    if (ru_cancelled(r)) {
        return er_set(&r->error, WNPU_E_CANCELLED, "cancelled");
    }
    end = end < (int64_t)ML_FRAMES * 10 ? end : (int64_t)ML_FRAMES * 10;
    return lg_add_segment(r, 0, r->text.hypothesis->n, 0, end, end);
}

static int wi_choose(ru_run *r, const wnpu_audio *audio, const char *const *phrases, size_t n)
{
    double since = er_now_ms();
    int status;
    r->params.timestamps = 0;
    r->params.prefix = NULL;
    r->params.vad = 0; /* it chooses in any case */
    status = wi_open(r, audio);
    r->stats.audio_in_ms += ru_elapsed_ms(&since);
    status = status == WNPU_OK ? wi_add_phrases(r, "phrases", phrases, n) : status;
    if (status != WNPU_OK) {
        wi_finish_language(r);
        return status;
    }
    wi_phrase_ends(r, r->rules.never);
    wd_encode(r);
    since = er_now_ms();
    if (!ru_cancelled(r)) {
        wd_update_language(r);
    }
    status = ru_cancelled(r) ? er_set(&r->error, WNPU_E_CANCELLED, "cancelled")
                             : wi_choose_phrase(r);
    r->stats.decoder_ms += ru_elapsed_ms(&since);
    wi_finish_language(r);
    return lg_finish(r, status);
}

/* Allocates a run in the arena; all pointers remain NULL if the arena only measures. Before, the
 * caller sets model, kernels, pool and float switch of the engine, and the bridge's plan. */
static void wi_carve(ar_arena *arena, ru_run *r, size_t n_workers, const wnpu_config *c)
{
    const wnpu_model *m = r->engine.model;
    size_t phrase_nodes = (size_t)c->max_phrase_tokens + LR_ROOTS;
    en_carve(arena, &r->engine, n_workers);
    size_t slots = c->max_beams > c->batch ? c->max_beams : c->batch;
    r->text.max_beams = c->max_beams;
    r->audio.batch = c->batch;
    de_carve(arena, &r->decoder, &r->engine, slots, c->batch > 1 ? c->batch : 1);
    np_carve(arena, &r->bridge, &r->engine, n_workers);
    r->rules.never = ar_carve(arena, (size_t)m->vocab.n_vocab, 1);
    lr_trie_carve(arena, &r->rules.trie, c->max_phrase_tokens);
    r->phrase.score = ar_carve(arena, phrase_nodes, sizeof(float));
    r->phrase.state = ar_carve(arena, phrase_nodes, 1);
    r->store.base = ar_carve(arena, (size_t)c->result_bytes, 1);
    r->store.size = (size_t)c->result_bytes;
    au_stream_carve(arena, &r->audio.stream);
    r->audio.capacity = c->batch > 0 ? ML_SPAN + RU_LOOKAHEAD : ML_SPAN;
    r->audio.samples = ar_carve(arena, r->audio.capacity, sizeof(float));
    r->lookahead.hypothesis = c->batch > 1
                                  ? ar_carve(arena, RU_MAX_BATCH, sizeof(se_hypothesis)) : NULL;
    se_carve(arena, &r->text.search, slots, m);
    r->text.hypothesis = ar_carve(arena, 1, sizeof(se_hypothesis));
    al_carve(arena, &r->text.aligner, &r->decoder);
    r->context.previous = ar_carve(arena, wd_previous_capacity(m), sizeof(int32_t));
    r->context.initial = ar_carve(arena, wd_previous_capacity(m), sizeof(int32_t));
    r->context.prefix = ar_carve(arena, wi_prefix_capacity(m), sizeof(int32_t));
    r->context.prompt = ar_carve(arena, m->n_text_ctx, sizeof(int32_t));
    r->text.compress = ar_carve(arena, 1, sizeof(zl_work));
    r->text.buffer = ar_carve(arena, 2 * ZL_MAX, 1);
    r->language.sums = ar_carve(arena, RU_LANGUAGES, sizeof(float));
    va_carve(arena, &r->audio.voice, c->batch > 0 ? VA_LONG_HISTORY : VA_HISTORY);
}

/* Initialises the allocated memory. */
static void wi_start(ru_run *r)
{
    en_start(&r->engine);
    r->engine.beat = wi_progress_in_window;
    r->engine.beat_user = r;
    va_prepare(&r->audio.voice, r->engine.op, r->engine.fft);
    (void)al_heads(r->engine.model, r->text.aligner.heads, &r->text.aligner.lag_ms);
    r->text.search.decoder = &r->decoder;
    r->text.search.rules = &r->rules;
    r->text.search.cancel = r->cancel;
    r->text.search.judge.function = wd_judge;
    r->text.search.judge.user = r;
    se_wipe(&r->text.search, r->engine.model->n_text_ctx);
    wi_reset(r);
}

/* Erases everything that is derived from audio or text. */
static void wi_wipe(ru_run *r)
{
    const wnpu_model *m = r->engine.model;
    size_t previous = wd_previous_capacity(m) * sizeof(int32_t);
    en_clear_heads(&r->engine.self, r->engine.self.keys);
    de_wipe(&r->decoder);
    au_wipe(r->audio.stream);
    ar_wipe(r->audio.samples, r->audio.written * sizeof(float));
    if (r->lookahead.hypothesis != NULL) {
        ar_wipe(r->lookahead.hypothesis, RU_MAX_BATCH * sizeof(se_hypothesis));
    }
    va_wipe(&r->audio.voice);
    ar_wipe(r->text.hypothesis, sizeof *r->text.hypothesis);
    al_clear(&r->text.aligner);
    ar_wipe(r->context.previous, previous);
    ar_wipe(r->context.initial, previous);
    ar_wipe(r->context.prefix, wi_prefix_capacity(m) * sizeof(int32_t));
    ar_wipe(r->context.prompt, m->n_text_ctx * sizeof(int32_t));
    ar_wipe(r->text.compress, sizeof *r->text.compress);
    ar_wipe(r->text.buffer, 2 * ZL_MAX);
    ar_wipe(r->rules.trie.nodes, r->rules.trie.capacity * sizeof(lr_node));
    ar_wipe(r->phrase.score, r->rules.trie.capacity * sizeof(float));
    np_wipe(&r->bridge);
    ar_wipe(r->engine.mel, (ML_FRAMES + 2) * (size_t)m->n_mels * sizeof(float));
}

/* ======================================================================
 * 26. sn_  snapshots
 *
 *  Owns      the format of a run between two windows as a block of bytes.
 *  Assumes   the run is resumable, see ru_run.
 *  Ensures   untrusted blocks are validated completely, to the last index,
 *            before the session changes.
 *  Costs     2 MB, or 15 MB with lookahead, and the results; a few ms.
 *
 *  A header with a checksum, a structure of fixed size (sn_state), then
 *  arrays whose sizes it contains: context, samples of the window, of the
 *  resampler and of the detector, bytes of the reader, results and their
 *  offsets. Not included are values that a window computes from these, and
 *  what is passed to wnpu_resume() again: the parameters, of which there
 *  is a fingerprint, and the recording.
 * ====================================================================== */
#define SN_VERSION 3u
#define SN_MAX_SAMPLE 64.0f /* much more than a clamped sample can become by resampling */

static const unsigned char sn_magic[8] = {0x89, 'W', 'N', 'P', 'U', 'S', '\n', 0x1a};

typedef struct sn_head {
    unsigned char magic[8];
    uint32_t version;
    uint32_t layout;        /* fingerprint of the sizes of structures: library and word size */
    uint64_t size;          /* of the block */
    uint64_t checksum;      /* of everything after it */
    uint64_t model;         /* fingerprint */
    uint64_t result_bytes, max_phrase_tokens;
    uint32_t compute, max_beams, batch, reserved;
} sn_head;

typedef struct sn_list {
    uint64_t count, first, last, spare, has_spare;
} sn_list;

typedef struct sn_state {
    uint64_t fingerprint, frame, n_samples, n_ahead, n_previous, window, loop_cuts;
    int64_t last_ms, covered_ms, covered_text_ms, last_return_ms, limit_ms, cut_ms;
    uint64_t spans_passed;
    uint64_t consumed, frames, n_raw; /* of the source; n_raw: frames in raw */
    uint64_t n_resampler, real; /* floats in the resampler's window */
    uint64_t used, count;   /* of the store */
    sn_list speech, ledger;
    uint32_t format, rate, channels, phase;
    int32_t channel, reader, ended, detector_done;
    uint64_t opposed;
    int32_t used_channel;
    uint32_t scale;
    int32_t language;       /* of the run so far */
    float language_probability;
    va_image voice;
    ru_checkpoint checkpoint;
} sn_state;

/* Position in a block that is measured, written or read by the same code. */
typedef struct sn_cursor {
    unsigned char *out;         /* destination, or NULL */
    const unsigned char *in;    /* source if out is NULL; both NULL: only measure */
    size_t at;
} sn_cursor;

/* Copies size bytes between data and the block. */
static void sn_transfer(sn_cursor *w, void *data, size_t size)
{
    if (w->out != NULL) {
        memcpy(w->out + w->at, data, size);
    } else if (w->in != NULL) {
        memcpy(data, w->in + w->at, size);
    }
    w->at += size;
}

/* Transfers everything after the header. s contains the sizes; it is filled by the caller when
 * writing, and also when reading. */
static void sn_transfer_all(sn_cursor *w, ru_run *r, sn_state *s)
{
    au_stream *a = r->audio.stream;
    unsigned char *back = r->store.base + r->store.size;
    sn_transfer(w, s, sizeof *s);
    sn_transfer(w, r->context.previous, (size_t)s->n_previous * sizeof(int32_t));
    sn_transfer(w, r->audio.samples, (size_t)(s->n_samples + s->n_ahead) * sizeof(float));
    sn_transfer(w, a->window + a->at, (size_t)s->n_resampler * sizeof(float));
    sn_transfer(w, r->audio.voice.x, (size_t)s->voice.have * sizeof(float));
    sn_transfer(w, r->audio.voice.history, r->audio.voice.kept);
    sn_transfer(w, a->raw + a->raw_at * a->frame, (size_t)s->n_raw * a->frame);
    sn_transfer(w, r->store.base, (size_t)s->used);
    sn_transfer(w, back - s->count * sizeof(uint32_t), (size_t)s->count * sizeof(uint32_t));
}

/* Fingerprint of the sizes of this build's structures and integers. */
static uint32_t sn_layout(void)
{
    uint64_t sizes[10];
    sizes[0] = sizeof(rs_record);
    sizes[1] = sizeof(rs_word);
    sizes[2] = sizeof(wnpu_token);
    sizes[3] = sizeof(wnpu_stats);
    sizes[4] = sizeof(sn_state);
    sizes[5] = sizeof(size_t);
    sizes[6] = ML_SPAN;
    sizes[7] = RU_LANGUAGES;
    sizes[8] = RS_CHUNK;
    sizes[9] = VA_BUFFER;
    return (uint32_t)mf_checksum(sizes, sizeof sizes);
}

/* Fingerprint of the model: its dimensions and its converted weights, which are the same for a pack
 * and the file that it was made from. Computed at first use and stored in the model (about 10 ms
 * for base), because it would make opening a tenth slower. */
static uint64_t sn_model(const wnpu_model *model)
{
    wnpu_model *m = (wnpu_model *)(uintptr_t)model; /* only this field of an open model changes */
    uint64_t sum = __atomic_load_n(&m->fingerprint, __ATOMIC_RELAXED);
    if (sum == 0) {
        const uint32_t sizes[] = {
            m->n_audio_ctx, m->n_audio_state, m->n_audio_head, m->n_audio_layer, m->n_text_ctx,
            m->n_text_state, m->n_text_head, m->n_text_layer, m->n_mels, (uint32_t)m->has_float,
            (uint32_t)m->vocab.n_vocab, (uint32_t)m->vocab.n_base
        };
        sum = pm_mix(pm_mix(0, sizes, sizeof sizes), m->data, m->data_size);
        sum = sum != 0 ? sum : 1;
        __atomic_store_n(&m->fingerprint, sum, __ATOMIC_RELAXED);
    }
    return sum;
}

static void sn_fill_head(const ru_run *r, const wnpu_config *c, sn_head *h)
{
    memset(h, 0, sizeof *h);
    memcpy(h->magic, sn_magic, sizeof h->magic);
    h->version = SN_VERSION;
    h->layout = sn_layout();
    h->model = sn_model(r->engine.model);
    h->result_bytes = c->result_bytes;
    h->max_phrase_tokens = c->max_phrase_tokens;
    h->compute = (uint32_t)c->compute;
    h->max_beams = c->max_beams;
    h->batch = c->batch;
}

static void sn_get_list(const rs_list *l, sn_list *out)
{
    out->count = l->count;
    out->first = l->first;
    out->last = l->last;
    out->spare = l->spare;
    out->has_spare = l->has_spare != 0;
}

static void sn_get_stream(const au_stream *a, sn_state *s)
{
    s->consumed = a->consumed;
    s->frames = a->audio.frames;
    s->n_raw = a->raw_have - a->raw_at;
    s->n_resampler = a->have - a->at;
    s->real = a->real > a->at ? a->real - a->at : 0;
    s->format = (uint32_t)a->audio.format;
    s->rate = a->audio.rate;
    s->channels = a->audio.channels;
    s->phase = a->audio.rate != AU_RATE ? a->phase : 0;
    s->channel = a->audio.channel;
    s->reader = a->reader;
    s->ended = a->ended;
    s->opposed = a->opposed;
    s->used_channel = a->used_channel;
    s->scale = a->scale;
}

static void sn_get_state(const ru_run *r, sn_state *s)
{
    memset(s, 0, sizeof *s);
    s->fingerprint = r->fingerprint;
    s->frame = r->audio.frame;
    s->n_samples = r->audio.n_samples;
    s->n_ahead = r->audio.n_ahead;
    s->n_previous = r->context.n_previous;
    s->window = r->text.window;
    s->loop_cuts = r->text.loop_cuts;
    s->last_ms = r->text.aligner.last_ms;
    s->covered_ms = r->ledger.covered_ms;
    s->covered_text_ms = r->ledger.covered_text_ms;
    s->last_return_ms = r->ledger.last_return_ms;
    s->limit_ms = r->audio.limit_ms;
    s->cut_ms = r->audio.cut_ms;
    s->spans_passed = r->audio.spans_passed;
    s->used = r->store.used;
    s->count = r->store.count;
    sn_get_list(&r->store.speech, &s->speech);
    sn_get_list(&r->store.ledger, &s->ledger);
    sn_get_stream(r->audio.stream, s);
    s->detector_done = r->audio.detector_done;
    s->language = r->language.id;
    s->language_probability = r->language.probability;
    if (r->in_progress_call && r->checkpoint.language_weight > 0.0f) { /* wi_finish_language() */
        s->language = wd_best_language(r, r->checkpoint.language_sums);
        s->language_probability = r->checkpoint.language_sums[s->language] /
                                  r->checkpoint.language_weight;
    }
    s->language = s->language < 0 ? 0 : s->language;
    va_get_image(&r->audio.voice, &s->voice);
    s->checkpoint = r->checkpoint;
}

/* Bytes of a snapshot now. */
static size_t sn_size(ru_run *r)
{
    sn_cursor w = {NULL, NULL, sizeof(sn_head)};
    sn_state s;
    sn_get_state(r, &s);
    sn_transfer_all(&w, r, &s);
    return w.at;
}

/* Upper limit of sn_size() for this session. */
static size_t sn_max_size(const ru_run *r)
{
    return sizeof(sn_head) + sizeof(sn_state) + r->store.size + AU_RAW + r->audio.voice.kept +
           (wd_previous_capacity(r->engine.model) + r->audio.capacity + AU_WINDOW + VA_BUFFER) *
           sizeof(float);
}

static void sn_write(ru_run *r, const wnpu_config *c, unsigned char *block, size_t size)
{
    sn_cursor w = {NULL, NULL, sizeof(sn_head)};
    sn_head h;
    sn_state s;
    w.out = block;
    sn_get_state(r, &s);
    sn_transfer_all(&w, r, &s);
    sn_fill_head(r, c, &h);
    h.size = size;
    memcpy(block, &h, sizeof h);
    h.checksum = mf_checksum(block + offsetof(sn_head, model), size - offsetof(sn_head, model));
    memcpy(block, &h, sizeof h);
}

/* ---- validation of untrusted blocks ---- */

static int sn_check_head(ru_run *r, const wnpu_config *c, const unsigned char *block, size_t size)
{
    sn_head h, ours;
    if (size < sizeof h + sizeof(sn_state) || memcmp(block, sn_magic, sizeof sn_magic) != 0) {
        return er_set(&r->error, WNPU_E_ARGUMENT, "these %lu bytes are not a snapshot",
                      (unsigned long)size);
    }
    memcpy(&h, block, sizeof h);
    sn_fill_head(r, c, &ours);
    if (h.version != ours.version || h.layout != ours.layout) {
        return er_set(&r->error, WNPU_E_VERSION, "the snapshot is of another version or build of "
                      "this library (%u, layout %08x; this is %u, %08x)", (unsigned)h.version,
                      (unsigned)h.layout, (unsigned)ours.version, (unsigned)ours.layout);
    }
    if (h.size != size) {
        return er_set(&r->error, WNPU_E_ARGUMENT, "the snapshot has %llu bytes, but %lu were given",
                      (unsigned long long)h.size, (unsigned long)size);
    }
    if (h.checksum != mf_checksum(block + offsetof(sn_head, model),
                                  size - offsetof(sn_head, model))) {
        return er_set(&r->error, WNPU_E_ARGUMENT, "the snapshot is damaged: its checksum does not "
                      "match");
    }
    if (h.model != ours.model) {
        return er_set(&r->error, WNPU_E_ARGUMENT, "the snapshot is of a session with another "
                      "model, or one opened with another keep_float");
    }
    if (h.compute != ours.compute || h.max_beams != ours.max_beams ||
        h.batch != ours.batch || h.result_bytes != ours.result_bytes ||
        h.max_phrase_tokens != ours.max_phrase_tokens) {
        return er_set(&r->error, WNPU_E_ARGUMENT, "the snapshot is of a session with another %s",
                      h.compute != ours.compute ? "compute"
                      : h.max_beams != ours.max_beams ? "max_beams"
                      : h.batch != ours.batch ? "batch"
                      : h.result_bytes != ours.result_bytes ? "result_bytes" : "max_phrase_tokens");
    }
    return WNPU_OK;
}

/* Languages and their probabilities. An English-only model has no sums. */
static int sn_are_languages(const ru_run *r, const sn_state *s)
{
    const ru_checkpoint *m = &s->checkpoint;
    const tk_vocab *v = &r->engine.model->vocab;
    int32_t n = v->multilingual ? v->n_languages : 1, least = v->multilingual ? -1 : 0, i;
    if (m->language < least || m->language >= n || m->rival < -1 || m->rival >= n ||
        s->language < 0 || s->language >= n ||
        !(s->language_probability >= 0.0f && s->language_probability <= 1.001f) ||
        !(m->language_weight >= 0.0f && m->language_weight < 1e12f) ||
        (!v->multilingual && m->language_weight > 0.0f)) {
        return 0;
    }
    for (i = 0; i < (int32_t)RU_LANGUAGES; i++) {
        if (!(m->language_sums[i] >= 0.0f && m->language_sums[i] < 1e12f)) {
            return 0;
        }
    }
    return 1;
}

/* Number of samples from the recording's first to the last one read. */
static uint64_t sn_samples(const sn_state *s)
{
    return s->frame * ML_HOP + (s->n_samples - ML_MARGIN) + s->n_ahead;
}

/* Whether the position of the source matches the samples: exactly, or within the length of the
 * resampler's window. */
static int sn_is_position(const sn_state *s)
{
    uint64_t samples = sn_samples(s);
    double ahead = (double)s->consumed - (double)samples * (double)s->rate / (double)AU_RATE;
    return s->rate == AU_RATE ? s->consumed == samples
                              : ahead > -(double)AU_WINDOW && ahead < (double)AU_WINDOW;
}

static int sn_is_stream(const sn_state *s)
{
    wnpu_audio a;
    wnpu_audio_init(&a, sizeof a);
    a.format = (int32_t)s->format;
    a.rate = s->rate;
    a.channels = s->channels;
    a.channel = s->channel;
    if (s->format > INT32_MAX || au_check(&a, NULL) != WNPU_OK || s->reader >> 1 != 0 ||
        s->ended >> 1 != 0 || s->consumed > (uint64_t)1 << 56 || s->n_resampler > AU_WINDOW ||
        s->real > s->n_resampler || s->n_raw > AU_RAW / (au_widths[s->format] * s->channels) ||
        (!s->reader && (s->n_raw > 0 || s->consumed > s->frames)) || !sn_is_position(s) ||
        (s->reader && au_is_analysed(&a) && s->n_raw > au_interval_frames(&a)) ||
        s->used_channel < WNPU_CHANNEL_MIX || s->used_channel >= (int64_t)s->channels ||
        (!au_mixes_channels(&a) && s->used_channel != s->channel) ||
        s->opposed > s->consumed + AU_RAW ||
        (s->scale != 0 && (!au_is_float(&a) ||
                           (s->scale != 15 && s->scale != 23 && s->scale != 31)))) {
        return 0;
    }
    return s->rate == AU_RATE ? s->n_resampler == 0 && s->phase == 0
                              : s->phase < AU_RATE / au_gcd(s->rate, AU_RATE);
}

static int sn_are_samples(const unsigned char *block, size_t n)
{
    float x;
    size_t i;
    for (i = 0; i < n; i++) {
        memcpy(&x, block + i * sizeof x, sizeof x);
        if (!(x >= -SN_MAX_SAMPLE && x <= SN_MAX_SAMPLE)) {
            return 0;
        }
    }
    return 1;
}

static int sn_are_tokens(const unsigned char *block, size_t n, const tk_vocab *v)
{
    int32_t token;
    size_t i;
    for (i = 0; i < n; i++) {
        memcpy(&token, block + i * sizeof token, sizeof token);
        if (token < 0 || token >= v->n_vocab) {
            return 0;
        }
    }
    return 1;
}

/* cut_ms: a step of the detector inside the window, or no cut. */
static int sn_is_cut(const ru_run *r, const sn_state *s)
{
    int64_t end = (int64_t)s->frame * 10 + ML_FRAMES * 10;
    return s->cut_ms == 0 || (r->audio.batch > 0 && (s->cut_ms == INT64_MAX ||
           (s->cut_ms > 0 && s->cut_ms <= end && s->cut_ms % VA_STEP_MS == 0)));
}

/* Counts and times of the run so far, which are only reported. */
static int sn_are_stats(const wnpu_stats *t)
{
    const double times[] = {t->total_ms, t->audio_in_ms, t->log_mel_ms, t->encoder_ms, t->cross_ms,
                            t->decoder_ms, t->voice_ms};
    size_t i;
    for (i = 0; i < sizeof times / sizeof times[0]; i++) {
        if (!(times[i] >= 0.0 && times[i] < 1e15)) {
            return 0;
        }
    }
    return t->speech_ms >= 0 && t->audio_ms >= 0 && t->unresolved_ms >= 0;
}

/* Times: the covered part ends between the beginning of the window and the end of the samples, as
 * do text, spans and the detector's state. */
static int sn_are_times(const ru_run *r, const sn_state *s, const rs_ends *ends)
{
    uint64_t samples = sn_samples(s);
    int64_t base = (int64_t)s->frame * 10, end = (int64_t)(samples / (ML_RATE / 1000u));
    return s->covered_ms == ends->ledger_ms && s->covered_ms >= base && s->covered_ms <= end &&
           s->covered_text_ms >= base && s->covered_text_ms <= end &&
           s->last_return_ms >= -1 && s->last_return_ms <= end &&
           s->limit_ms >= -1 && s->limit_ms <= end && s->last_ms >= 0 && s->last_ms <= end &&
           (ends->speech_ms % VA_STEP_MS == 0 || (s->ended && ends->speech_ms == end)) &&
           ends->speech_ms <= end && ends->text_ms <= end && s->spans_passed <= s->speech.count &&
           sn_is_cut(r, s) && sn_are_stats(&s->checkpoint.stats) &&
           s->checkpoint.stats.speech_ms <= end &&
           va_is_valid_image(&s->voice, s->voice.n_pushed > 0 ? samples : 0);
}

static int sn_is_list(const sn_list *in, size_t elem, size_t size, rs_list *l)
{
    memset(l, 0, sizeof *l);
    if (in->count > size || in->first > size || in->last > size || in->spare > size ||
        in->has_spare > 1) {
        return 0;
    }
    l->elem = elem;
    l->count = (size_t)in->count;
    l->first = (size_t)in->first;
    l->last = (size_t)in->last;
    l->spare = (size_t)in->spare;
    l->has_spare = (int)in->has_spare;
    return 1;
}

/* Makes a store from the sizes in s, with the base of ours. Returns 0 if they are not valid. */
static int sn_is_store(const sn_state *s, const rs_store *ours, rs_store *store)
{
    *store = *ours;
    if (s->used > ours->size || s->count > (ours->size - s->used) / sizeof(uint32_t)) {
        return 0;
    }
    store->used = (size_t)s->used;
    store->count = (size_t)s->count;
    memset(&store->rest, 0, sizeof store->rest);
    return sn_is_list(&s->speech, sizeof(wnpu_speech_span), ours->size, &store->speech) &&
           sn_is_list(&s->ledger, sizeof(wnpu_ledger_span), ours->size, &store->ledger);
}

/* Checks that a session could have written the block, since anybody can compute a checksum. */
static int sn_is_valid(const ru_run *r, const unsigned char *block, size_t size)
{
    const tk_vocab *v = &r->engine.model->vocab;
    const unsigned char *p = block + sizeof(sn_head);
    size_t left = size - sizeof(sn_head) - sizeof(sn_state), floats;
    rs_ends ends;
    rs_store store;
    uint64_t bytes;
    sn_state s;
    memcpy(&s, p, sizeof s);
    p += sizeof s;
    if (s.frame > (uint64_t)1 << 40 || s.n_samples < ML_MARGIN || s.n_samples > ML_SPAN ||
        s.n_ahead > (s.n_samples < ML_SPAN ? 0 : r->audio.capacity - ML_SPAN) || s.cut_ms < 0 ||
        s.n_previous > wd_previous_capacity(r->engine.model) || s.window > INT32_MAX / 2 ||
        s.loop_cuts > INT32_MAX || s.detector_done >> 1 != 0 || s.voice.have > VA_BUFFER ||
        (s.detector_done && (!s.ended || s.voice.open)) ||
        !sn_is_stream(&s) || !sn_are_languages(r, &s) || !sn_is_store(&s, &r->store, &store)) {
        return 0;
    }
    floats = (size_t)(s.n_samples + s.n_ahead + s.n_resampler + s.voice.have);
    bytes = s.n_previous * sizeof(int32_t) + floats * sizeof(float) + r->audio.voice.kept +
            s.n_raw * au_widths[s.format] * s.channels + s.used + s.count * sizeof(uint32_t);
    if (bytes != left || !sn_are_tokens(p, (size_t)s.n_previous, v)) {
        return 0;
    }
    p += s.n_previous * sizeof(int32_t);
    if (!sn_are_samples(p, floats)) {
        return 0;
    }
    p += left - (size_t)(s.n_previous * sizeof(int32_t) + s.used + s.count * sizeof(uint32_t));
    ends.step_ms = VA_STEP_MS;
    return rs_is_store(&store, p, p + s.used, v, &ends) && sn_are_times(r, &s, &ends);
}

static void sn_read_stream(au_stream *a, const sn_state *s)
{
    wnpu_audio_init(&a->audio, sizeof a->audio);
    a->audio.format = (int32_t)s->format;
    a->audio.rate = s->rate;
    a->audio.channels = s->channels;
    a->audio.channel = s->channel;
    a->audio.frames = s->frames;
    a->reader = s->reader;
    a->ended = s->ended;
    a->consumed = s->consumed;
    a->phase = s->phase;
    a->width = au_widths[s->format];
    a->frame = a->width * s->channels;
    a->at = a->raw_at = 0;
    a->have = (size_t)s->n_resampler;
    a->real = (size_t)s->real;
    a->raw_have = (size_t)s->n_raw;
    a->used_channel = s->used_channel;
    a->scale = s->scale;
    a->opposed = s->opposed;
    a->reader_ended = 0;
    a->interval_left = au_rest_of_interval(a);
    er_clear(&a->fault);
}

/* Loads a block that has passed all checks, after wi_reset(). */
static void sn_read(ru_run *r, const unsigned char *block)
{
    sn_cursor w = {NULL, NULL, sizeof(sn_head)};
    rs_store store;
    sn_state s;
    memcpy(&s, block + sizeof(sn_head), sizeof s);
    sn_read_stream(r->audio.stream, &s);
    w.in = block;
    (void)aw_reserve(r, 0, (size_t)(s.n_samples + s.n_ahead));
    sn_transfer_all(&w, r, &s);
    (void)sn_is_store(&s, &r->store, &store);
    r->store = store;
    r->fingerprint = s.fingerprint;
    r->audio.frame = s.frame;
    aw_set_samples(r, (size_t)(s.n_samples + s.n_ahead));
    r->context.n_previous = (size_t)s.n_previous;
    r->text.window = (uint32_t)s.window;
    r->text.loop_cuts = (unsigned)s.loop_cuts;
    r->text.aligner.last_ms = s.last_ms;
    r->ledger.covered_ms = s.covered_ms;
    r->ledger.covered_text_ms = s.covered_text_ms;
    r->ledger.last_return_ms = s.last_return_ms;
    r->audio.limit_ms = s.limit_ms;
    r->audio.cut_ms = s.cut_ms;
    r->audio.spans_passed = (size_t)s.spans_passed;
    r->audio.detector_done = s.detector_done;
    va_restore(&r->audio.voice, &s.voice);
    r->checkpoint = s.checkpoint;
    aw_pad_silence(r, r->audio.n_samples + r->audio.n_ahead);
    wi_load_checkpoint(r);
    r->language.id = s.language;
    r->language.probability = s.language_probability;
    lg_set_rest(r, WNPU_REASON_CANCELLED);
    r->resumable = 1;
}

/* ======================================================================
 * 27. ap_  public API: sessions and runs
 *
 *  Owns      wnpu_session.
 *  Assumes   nothing: every argument is checked here.
 *  Ensures   the contract in whisper_npu.h.
 *  Costs     nothing beyond the work itself.
 * ====================================================================== */
#define AP_MIN_RESULTS (64u << 10)
#define AP_MAX_RESULTS (1u << 30)
#define AP_MAX_PHRASE_TOKENS (1u << 20)

struct wnpu_session {
    ru_run run;
    tp_pool pool;
    wnpu_config config;
    wnpu_allocator allocator;
    size_t size;         /* of this block */
    int owned;           /* the block came from the allocator */
    int cancel;          /* atomic */
    int busy;            /* atomic */
    wnpu_isa isa;
    uint64_t environment; /* of the calling thread during a call, to be restored */
    pid_t process;       /* process that opened the session */
};

WNPU_API void wnpu_config_init(wnpu_config *config, size_t struct_size)
{
    wnpu_config c;
    memset(&c, 0, sizeof c);
    c.result_bytes = 8u << 20;
    c.max_beams = 5;
    c.max_phrase_tokens = 4096;
    er_init(config, struct_size, &c, sizeof c);
}

WNPU_API void wnpu_params_init(wnpu_params *params, size_t struct_size)
{
    wnpu_params p;
    pm_defaults(&p);
    er_init(params, struct_size, &p, sizeof p);
}

/* Checks what the kernels assume about a model. All of OpenAI's models satisfy it. */
static int ap_check_model(const wnpu_model *m, wnpu_error *error)
{
    uint32_t audio_head = m->n_audio_state / m->n_audio_head;
    uint32_t text_head = m->n_text_state / m->n_text_head;
    if (audio_head % 16 != 0 || text_head % 16 != 0 || audio_head > EN_MAX_HEAD ||
        text_head > EN_MAX_HEAD || m->n_mels % 16 != 0) {
        return er_set(error, WNPU_E_UNSUPPORTED, "head sizes %u and %u and %u mel bins must be "
                      "multiples of 16, heads at most %u", (unsigned)audio_head,
                      (unsigned)text_head, (unsigned)m->n_mels, EN_MAX_HEAD);
    }
    if (m->n_audio_ctx * 2 != ML_FRAMES || m->n_text_ctx < 16 ||
        m->n_text_state != m->n_audio_state) {
        return er_set(error, WNPU_E_UNSUPPORTED, "the model has %u audio and %u text positions "
                      "and states of %u and %u; this needs %u, at least 16, and equal states",
                      (unsigned)m->n_audio_ctx, (unsigned)m->n_text_ctx,
                      (unsigned)m->n_audio_state, (unsigned)m->n_text_state, ML_FRAMES / 2u);
    }
    return WNPU_OK;
}

static int ap_check_accel(const wnpu_config *c, wnpu_error *error)
{
    wnpu_accel_info info;
    if (c->accel_use > WNPU_ACCEL_ALL) {
        return er_set(error, WNPU_E_ARGUMENT, "accel_use %u is no wnpu_accel_use",
                      (unsigned)c->accel_use);
    }
    if (c->accel == NULL) {
        return c->require_accel ? er_set(error, WNPU_E_ACCEL, "require_accel is set but there is "
                                         "no accelerator") : WNPU_OK;
    }
    if (c->compute != WNPU_COMPUTE_INT8) {
        return er_set(error, WNPU_E_UNSUPPORTED, "accelerators multiply integers; leave accel NULL "
                      "for WNPU_COMPUTE_FLOAT");
    }
    return np_query(c->accel, &info, error);
}

static int ap_check_config(wnpu_config *c, const wnpu_model *model, wnpu_error *error)
{
    unsigned cpus = tp_cpus();
    if (c->threads > TP_MAX_THREADS) {
        return er_set(error, WNPU_E_ARGUMENT, "threads %u is outside 1..%u", (unsigned)c->threads,
                      TP_MAX_THREADS);
    }
    if (c->threads == 0) {
        c->threads = cpus < 8 ? cpus : 8;
    }
    if (c->compute != WNPU_COMPUTE_INT8 && c->compute != WNPU_COMPUTE_FLOAT) {
        return er_set(error, WNPU_E_ARGUMENT, "compute %d is no wnpu_compute", (int)c->compute);
    }
    if (c->compute == WNPU_COMPUTE_FLOAT && !model->has_float) {
        return er_set(error, WNPU_E_UNSUPPORTED, "the model was opened without float weights; "
                      "set keep_float in wnpu_model_config");
    }
    if (c->isa < 0 || wnpu_isa_name((wnpu_isa)c->isa) == NULL) {
        return er_set(error, WNPU_E_ARGUMENT, "isa %d is no wnpu_isa", (int)c->isa);
    }
    if (gm_select((wnpu_isa)c->isa) == NULL) {
        return er_set(error, WNPU_E_UNSUPPORTED, "this CPU or build has no %s",
                      wnpu_isa_name((wnpu_isa)c->isa));
    }
    if (c->result_bytes < AP_MIN_RESULTS || c->result_bytes > AP_MAX_RESULTS) {
        return er_set(error, WNPU_E_ARGUMENT, "result_bytes is outside %u..%u", AP_MIN_RESULTS,
                      AP_MAX_RESULTS);
    }
    if (c->max_beams < 1 || c->max_beams > SE_MAX_WIDTH) {
        return er_set(error, WNPU_E_ARGUMENT, "max_beams %u is outside 1..%u",
                      (unsigned)c->max_beams, SE_MAX_WIDTH);
    }
    if (c->batch > RU_MAX_BATCH) {
        return er_set(error, WNPU_E_ARGUMENT, "batch %u is outside 0..%u", (unsigned)c->batch,
                      RU_MAX_BATCH);
    }
    if (c->max_phrase_tokens < 1 || c->max_phrase_tokens > AP_MAX_PHRASE_TOKENS) {
        return er_set(error, WNPU_E_ARGUMENT, "max_phrase_tokens %u is outside 1..%u",
                      (unsigned)c->max_phrase_tokens, AP_MAX_PHRASE_TOKENS);
    }
    return ap_check_accel(c, error);
}

static int ap_config(wnpu_config *c, const wnpu_model *model, const wnpu_config *given,
                     wnpu_error *error)
{
    er_clear(error);
    if (model == NULL) {
        return er_set(error, WNPU_E_ARGUMENT, "model is NULL");
    }
    wnpu_config_init(c, sizeof *c);
    if (given != NULL) {
        int status = er_import(c, sizeof *c, given, given->struct_size);
        if (status != WNPU_OK) {
            return er_set(error, status, "configuration: struct_size %u or a field beyond it is "
                          "unknown to this library; fill it with wnpu_config_init() first",
                          (unsigned)given->struct_size);
        }
    }
    if (ap_check_model(model, error) != WNPU_OK) {
        return WNPU_E_UNSUPPORTED;
    }
    return ap_check_config(c, model, error);
}

/* Allocates the session in one block. s is the block itself, or a temporary session if the arena
 * only measures. */
static void ap_layout(ar_arena *arena, wnpu_session *s, const wnpu_model *model,
                      const wnpu_config *c)
{
    ar_carve(arena, 1, sizeof *s);
    s->isa = c->isa == WNPU_ISA_AUTO ? cp_best() : (wnpu_isa)c->isa;
    s->run.engine.model = model;
    s->run.engine.gm = gm_select(s->isa);
    s->run.engine.op = op_select(s->isa);
    s->run.engine.pool = &s->pool;
    s->run.engine.exact = c->compute == WNPU_COMPUTE_FLOAT;
    if (c->accel != NULL && np_query(c->accel, &s->run.bridge.info, NULL) == WNPU_OK) {
        s->run.bridge.accel = c->accel;
        s->run.bridge.required = c->require_accel != 0;
        np_make_plan(&s->run.bridge.plan, model, &s->run.bridge.info, s->isa, c->threads,
                     c->accel_use == WNPU_ACCEL_ALL);
    }
    wi_carve(arena, &s->run, c->threads, c);
}

/* Returns the size of a session; *written receives how many bytes from its beginning every run
 * writes to. */
static size_t ap_measure(const wnpu_model *model, const wnpu_config *c, size_t *written,
                         wnpu_error *error)
{
    wnpu_session scratch;
    ar_arena arena;
    memset(&arena, 0, sizeof arena);
    memset(&scratch, 0, sizeof scratch);
    ap_layout(&arena, &scratch, model, c);
    if (arena.overflow) {
        (void)er_set(error, WNPU_E_MEMORY, "the session does not fit into the address space");
        return 0;
    }
    *written = scratch.run.decoder.always_used;
    return arena.used;
}

WNPU_API size_t wnpu_session_size(const wnpu_model *model, const wnpu_config *config,
                                  wnpu_error *error)
{
    wnpu_config c;
    size_t written;
    return ap_config(&c, model, config, error) == WNPU_OK ? ap_measure(model, &c, &written, error)
                                                          : 0;
}

WNPU_API uint64_t wnpu_session_accel_bytes(const wnpu_model *model, const wnpu_config *config,
                                           const wnpu_accel_info *info, wnpu_error *error)
{
    wnpu_accel_info target;
    wnpu_config c;
    np_plan plan;
    if (ap_config(&c, model, config, error) != WNPU_OK) {
        return 0;
    }
    memset(&target, 0, sizeof target);
    if (info != NULL && er_import(&target, sizeof target, info, info->struct_size) != WNPU_OK) {
        (void)er_set(error, WNPU_E_VERSION, "info: struct_size %u or a field beyond it is unknown",
                     (unsigned)info->struct_size);
        return 0;
    }
    if (info == NULL && (c.accel == NULL || np_query(c.accel, &target, error) != WNPU_OK)) {
        return 0; /* nothing without an accelerator */
    }
    np_make_plan(&plan, model, &target, c.isa == WNPU_ISA_AUTO ? cp_best() : (wnpu_isa)c.isa,
                 c.threads, c.accel_use == WNPU_ACCEL_ALL);
    return np_bytes(&plan, model, &target);
}

/* Requests permission for AMX, which changes the process, so only if it was selected by name. */
static int ap_request_isa(wnpu_isa isa, wnpu_error *error)
{
    int refused = cp_request(isa);
    return refused == 0 ? WNPU_OK :
           er_set(error, WNPU_E_UNSUPPORTED, "the system refuses the use of %s (arch_prctl, errno "
                  "%d): a thread's alternate signal stack may be too small, or a filter of system "
                  "calls too strict", wnpu_isa_name(isa), refused);
}

/* Allocates the pages that every run writes to, the first `written` bytes, as large pages if
 * possible; the remaining memory then uses large pages, too. Otherwise pages are allocated when
 * threads first write to them. Clears the memory, which must contain nothing but the session
 * structure. */
static void ap_get_pages(wnpu_session *s, size_t written)
{
    const wnpu_parallel_for_fn host = s->pool.host;
    unsigned char *memory = (unsigned char *)s;
    size_t large = written / AR_HUGE * AR_HUGE;
    if (!s->owned || s->allocator.alloc != ar_malloc || large == 0) {
        return;
    }
    s->pool.host = NULL; /* the host's threads are for runs only */
    if (tp_zero(&s->pool, &s->allocator, memory, sizeof *s, large, 0)) {
        (void)ar_use_huge(&s->allocator, memory + large, s->size - large);
    }
    s->pool.host = host;
}

WNPU_API int wnpu_session_open(wnpu_session **session, const wnpu_model *model,
                               const wnpu_config *config, void *memory, size_t size,
                               wnpu_error *error)
{
    wnpu_config c;
    wnpu_session *s;
    wnpu_allocator allocator;
    ar_arena arena;
    int status = ap_config(&c, model, config, error);
    size_t need, written = 0;
    if (session == NULL) {
        return er_set(error, WNPU_E_ARGUMENT, "session is NULL");
    }
    *session = NULL;
    need = status == WNPU_OK ? ap_measure(model, &c, &written, error) : 0;
    if (need == 0) {
        return status != WNPU_OK ? status : WNPU_E_MEMORY;
    }
    allocator = ar_allocator(c.allocator);
    memset(&arena, 0, sizeof arena);
    arena.base = memory;
    arena.size = need;
    if (memory == NULL) {
        arena.base = allocator.alloc(allocator.user, need, AR_ALIGN);
    } else if (size < need || (uintptr_t)memory % AR_ALIGN != 0) {
        return er_set(error, WNPU_E_MEMORY, "the session needs %lu bytes aligned to %u; %lu were "
                      "given", (unsigned long)need, AR_ALIGN, (unsigned long)size);
    }
    if (arena.base == NULL) {
        return er_set(error, WNPU_E_MEMORY, "cannot allocate %lu bytes for the session",
                      (unsigned long)need);
    }
    s = (wnpu_session *)(void *)arena.base;
    memset(s, 0, sizeof *s);
    s->config = c;
    s->allocator = allocator;
    s->size = need;
    s->owned = memory == NULL;
    s->process = getpid();
    s->run.cancel = &s->cancel;
    s->environment = er_float_default();
    status = ap_request_isa((wnpu_isa)c.isa, error);
    if (status == WNPU_OK) {
        status = tp_open(&s->pool, c.threads, c.parallel_for, c.parallel_user, &s->cancel, error);
    }
    if (status == WNPU_OK) {
        ap_get_pages(s, written);
        ap_layout(&arena, s, model, &c);
        wi_start(&s->run);
        status = np_open(&s->run.bridge, &c, error);
        if (status != WNPU_OK) {
            tp_close(&s->pool);
        }
    }
    er_float_put(s->environment);
    if (status != WNPU_OK) {
        if (s->owned) {
            allocator.release(allocator.user, s, need);
        }
        return status;
    }
    *session = s;
    return WNPU_OK;
}

typedef struct ap_area {
    unsigned char *at, *end;
} ap_area;

#define AP_UNWRITTEN 4u
#define AP_WIPE_BYTES ((size_t)1 << 20)

/* Parts of a session that were not written to, in order of address, and the caches of slots. */
static void ap_unwritten(const wnpu_session *s, ap_area *part)
{
    const de_decoder *d = &s->run.decoder;
    const rs_store *store = &s->run.store;
    const al_aligner *a = &s->run.text.aligner;
    part[0].at = d->used_windows == d->windows ? en_heads_begin(&d->self[0]) :
                 en_heads_begin(&d->cross[d->used_windows * d->e->model->n_text_layer]);
    part[0].end = (unsigned char *)d->x;
    part[1].at = store->base + store->used;
    part[1].end = store->base + store->size - store->count * sizeof(uint32_t);
    part[2].at = (unsigned char *)(s->run.audio.samples + s->run.audio.written);
    part[2].end = (unsigned char *)(s->run.audio.samples + s->run.audio.capacity);
    part[3].at = (unsigned char *)a->query;
    part[3].end = a->used ? part[3].at : (unsigned char *)a->words;
}

static void ap_wipe_task(void *context, size_t index, unsigned worker)
{
    const ap_area *area = context;
    size_t at = index * AP_WIPE_BYTES, left = (size_t)(area->end - area->at) - at;
    (void)worker;
    ar_wipe(area->at + at, left < AP_WIPE_BYTES ? left : AP_WIPE_BYTES);
}

/* Erases everything but the session structure, with the session's own threads. In memory that the
 * session allocated only parts that were written to are erased: the system may not have provided
 * the others yet. */
static void ap_wipe(wnpu_session *s)
{
    const wnpu_parallel_for_fn host = s->pool.host;
    unsigned char *end = (unsigned char *)s + s->size;
    ap_area part[AP_UNWRITTEN], area;
    size_t n = s->owned ? AP_UNWRITTEN : 0, i;
    if (s->owned) {
        ap_unwritten(s, part);
        de_wipe_slots(&s->run.decoder);
    }
    __atomic_store_n(&s->cancel, 0, __ATOMIC_RELAXED); /* otherwise workers skip tasks */
    s->pool.host = NULL; /* the host's threads may have ended: use the calling thread */
    for (i = 0, area.at = (unsigned char *)(s + 1); i <= n; i++) {
        area.end = i < n ? part[i].at : end;
        tp_run(&s->pool, ((size_t)(area.end - area.at) + AP_WIPE_BYTES - 1) / AP_WIPE_BYTES,
               ap_wipe_task, &area);
        area.at = i < n ? part[i].end : end;
    }
    s->pool.host = host;
}

/* Whether the calling process is a forked child of the one that opened the session. */
static int ap_forked(const wnpu_session *s)
{
    return s->process != getpid();
}

WNPU_API void wnpu_session_close(wnpu_session *session)
{
    wnpu_allocator allocator;
    size_t size;
    int owned;
    if (session == NULL || ap_forked(session)) {
        return; /* threads and accelerator belong to the parent, and the allocator may be locked */
    }
    np_close(&session->run.bridge);
    ap_wipe(session);
    tp_close(&session->pool);
    allocator = session->allocator;
    size = session->size;
    owned = session->owned;
    ar_wipe(session, sizeof *session);
    if (owned) {
        allocator.release(allocator.user, session, size);
    }
}

/* Begins a call. A session executes one call at a time. */
static int ap_enter(wnpu_session *s)
{
    int idle = 0;
    if (ap_forked(s)) {
        return er_set(&s->run.error, WNPU_E_STATE, "the session was opened by the parent of this "
                      "forked process; open one here");
    }
    if (!__atomic_compare_exchange_n(&s->busy, &idle, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        return WNPU_E_STATE;
    }
    __atomic_store_n(&s->cancel, 0, __ATOMIC_RELAXED);
    s->environment = er_float_default();
    return WNPU_OK;
}

/* Ends a call; logs its error. */
static int ap_leave(wnpu_session *s, int status)
{
    if (status < 0) {
        er_log(s->config.log, s->config.log_user, WNPU_LOG_ERROR, "%s", s->run.error.message);
    }
    er_float_put(s->environment);
    __atomic_store_n(&s->busy, 0, __ATOMIC_RELEASE);
    return status;
}

WNPU_API int wnpu_reset(wnpu_session *session)
{
    ru_run *r;
    if (session == NULL) {
        return WNPU_E_ARGUMENT;
    }
    if (ap_enter(session) != WNPU_OK) {
        return WNPU_E_STATE;
    }
    r = &session->run;
    wi_reset(r);
    wi_wipe(r);
    wi_start(r);
    return ap_leave(session, WNPU_OK);
}

WNPU_API void wnpu_cancel(wnpu_session *session)
{
    if (session != NULL) {
        __atomic_store_n(&session->cancel, 1, __ATOMIC_RELAXED);
    }
}

WNPU_API const char *wnpu_session_error(const wnpu_session *session)
{
    return session != NULL ? session->run.error.message : "";
}

static int ap_params(wnpu_session *s, const wnpu_params *given)
{
    wnpu_params_init(&s->run.params, sizeof s->run.params);
    if (given != NULL) {
        int status = er_import(&s->run.params, sizeof s->run.params, given, given->struct_size);
        if (status != WNPU_OK) {
            return er_set(&s->run.error, status, "parameters: struct_size %u or a field beyond it "
                          "is unknown to this library; fill them with wnpu_params_init() first",
                          (unsigned)given->struct_size);
        }
        if (given->struct_size < offsetof(wnpu_params, vad) + sizeof given->vad) {
            s->run.params.vad = 0; /* programs compiled before vad existed get the results and
                                      statuses that they expect */
        }
    }
    return WNPU_OK;
}

/* Logs corrections that the audio stream made. */
static void ap_warn_audio(const wnpu_session *s)
{
    const au_stream *a = s->run.audio.stream;
    if (s->run.stats.opposed_ms >= 500) {
        er_log(s->config.log, s->config.log_user, WNPU_LOG_WARNING, "the channels cancel each "
               "other in %.1f s of the recording; the loudest one was used there",
               (double)s->run.stats.opposed_ms / 1e3);
    }
    if (a->scale > 0) {
        er_log(s->config.log, s->config.log_user, WNPU_LOG_WARNING, "the float samples have the "
               "full scale of integers instead of 1; they were divided by 2^%u",
               (unsigned)a->scale);
    }
}

static void ap_finish_stats(wnpu_session *s, double begin)
{
    wnpu_stats *t = &s->run.stats;
    t->opposed_ms = (uint32_t)au_ms(s->run.audio.stream, s->run.audio.stream->opposed);
    ap_warn_audio(s);
    t->isa = (int32_t)s->isa;
    t->threads = (int32_t)s->pool.threads;
    t->language = s->run.language.id < 0 ? 0 : s->run.language.id; /* not detected before an error
                                                                      */
    t->language_probability = s->run.language.probability;
    t->total_ms = er_now_ms() - begin;
}

/* Common part of wnpu_transcribe() and wnpu_detect_speech(). */
static int ap_run(wnpu_session *session, const wnpu_params *params, const wnpu_audio *audio,
                  int (*run)(ru_run *r, const wnpu_audio *audio))
{
    double begin;
    int status;
    if (session == NULL) {
        return WNPU_E_ARGUMENT;
    }
    if (ap_enter(session) != WNPU_OK) {
        return WNPU_E_STATE;
    }
    begin = er_now_ms();
    wi_reset(&session->run);
    status = ap_params(session, params);
    if (status == WNPU_OK) {
        status = run(&session->run, audio);
    }
    ap_finish_stats(session, begin);
    return ap_leave(session, status);
}

WNPU_API int wnpu_transcribe(wnpu_session *session, const wnpu_params *params,
                             const wnpu_audio *audio)
{
    return ap_run(session, params, audio, wi_transcribe);
}

/* ---- snapshots ---- */

/* Whether there is a run that can be resumed and no call is working on it. */
static int ap_is_resumable(const wnpu_session *s)
{
    return s->run.resumable && !ap_forked(s) &&
           (!__atomic_load_n(&s->busy, __ATOMIC_ACQUIRE) || s->run.in_progress_call);
}

WNPU_API size_t wnpu_snapshot_size(wnpu_session *session)
{
    return session != NULL && ap_is_resumable(session) ? sn_size(&session->run) : 0;
}

WNPU_API size_t wnpu_snapshot_most(const wnpu_session *session)
{
    return session != NULL ? sn_max_size(&session->run) : 0;
}

WNPU_API int wnpu_snapshot(wnpu_session *session, void *memory, size_t size)
{
    uint64_t environment;
    size_t need;
    if (session == NULL || memory == NULL) {
        return WNPU_E_ARGUMENT;
    }
    if (!ap_is_resumable(session)) {
        return WNPU_E_STATE;
    }
    need = sn_size(&session->run);
    if (size < need) {
        return er_set(&session->run.error, WNPU_E_MEMORY, "a snapshot needs %lu bytes now, but "
                      "there is room for %lu", (unsigned long)need, (unsigned long)size);
    }
    environment = er_float_default();
    sn_write(&session->run, &session->config, memory, need);
    er_float_put(environment);
    return WNPU_OK;
}

WNPU_API int wnpu_restore(wnpu_session *session, const void *snapshot, size_t size)
{
    ru_run *r;
    int status;
    if (session == NULL || snapshot == NULL) {
        return WNPU_E_ARGUMENT;
    }
    if (ap_enter(session) != WNPU_OK) {
        return WNPU_E_STATE;
    }
    r = &session->run;
    status = sn_check_head(r, &session->config, snapshot, size);
    if (status == WNPU_OK && !sn_is_valid(r, snapshot, size)) {
        status = er_set(&r->error, WNPU_E_ARGUMENT, "the snapshot is damaged although its checksum "
                        "matches: it was not written by a session");
    }
    if (status == WNPU_OK) {
        wi_reset(r);
        sn_read(r, snapshot);
        ap_finish_stats(session, er_now_ms());
    }
    return ap_leave(session, status);
}

WNPU_API int wnpu_resume(wnpu_session *session, const wnpu_params *params, const wnpu_audio *audio)
{
    double begin, before;
    int status;
    if (session == NULL) {
        return WNPU_E_ARGUMENT;
    }
    if (ap_enter(session) != WNPU_OK) {
        return WNPU_E_STATE;
    }
    begin = er_now_ms();
    er_clear(&session->run.error);
    if (!session->run.resumable) {
        return ap_leave(session, er_set(&session->run.error, WNPU_E_STATE, "there is no run that "
                                        "can continue; wnpu_transcribe() starts one"));
    }
    before = session->run.stats.total_ms;
    status = ap_params(session, params);
    if (status == WNPU_OK) {
        status = wi_resume(&session->run, audio);
    }
    ap_finish_stats(session, begin);
    session->run.stats.total_ms += before;
    return ap_leave(session, status);
}

WNPU_API int wnpu_get_position(const wnpu_session *session, uint64_t *frames)
{
    if (session == NULL || frames == NULL) {
        return WNPU_E_ARGUMENT;
    }
    *frames = au_frames_read(session->run.audio.stream);
    return WNPU_OK;
}

WNPU_API int wnpu_choose(wnpu_session *session, const wnpu_params *params, const wnpu_audio *audio,
                         const char *const *phrases, size_t n_phrases, wnpu_choice *choice)
{
    double begin;
    wnpu_choice none;
    int status;
    memset(&none, 0, sizeof none);
    if (session == NULL || choice == NULL || er_export(choice, &none, sizeof none) != WNPU_OK) {
        return WNPU_E_ARGUMENT;
    }
    if (ap_enter(session) != WNPU_OK) {
        return WNPU_E_STATE;
    }
    begin = er_now_ms();
    wi_reset(&session->run);
    status = ap_params(session, params);
    if (status == WNPU_OK && (phrases == NULL || n_phrases < 1 || n_phrases > 65535)) {
        status = er_set(&session->run.error, WNPU_E_ARGUMENT, "%lu phrases; give 1 to 65535",
                        (unsigned long)n_phrases);
    }
    status = status == WNPU_OK ? wi_choose(&session->run, audio, phrases, n_phrases) : status;
    if (status == WNPU_OK) {
        (void)er_export(choice, &session->run.phrase.choice, sizeof *choice);
    }
    ap_finish_stats(session, begin);
    return ap_leave(session, status);
}

WNPU_API int wnpu_detect_language(wnpu_session *session, const wnpu_audio *audio,
                                  float *probabilities, size_t count)
{
    float all[RU_LANGUAGES];
    double begin;
    int status;
    if (session == NULL || (probabilities == NULL && count > 0)) {
        return WNPU_E_ARGUMENT;
    }
    if (ap_enter(session) != WNPU_OK) {
        return WNPU_E_STATE;
    }
    begin = er_now_ms();
    memset(all, 0, sizeof all);
    wi_reset(&session->run);
    (void)ap_params(session, NULL);
    status = wi_detect_language(&session->run, audio, all);
    if (status == WNPU_OK) {
        size_t i;
        for (i = 0; i < count; i++) {
            probabilities[i] = i < sizeof all / sizeof all[0] ? all[i] : 0.0f;
        }
        status = session->run.language.id;
    }
    ap_finish_stats(session, begin);
    return ap_leave(session, status);
}

WNPU_API int wnpu_detect_speech(wnpu_session *session, const wnpu_params *params,
                                const wnpu_audio *audio)
{
    return ap_run(session, params, audio, wi_detect_speech);
}

WNPU_API size_t wnpu_segment_count(const wnpu_session *session)
{
    return session != NULL ? session->run.store.count : 0;
}

WNPU_API int wnpu_get_segment_sized(const wnpu_session *session, size_t index,
                                    wnpu_segment *segment, size_t size)
{
    wnpu_segment ours;
    int status;
    if (session == NULL || segment == NULL) {
        return WNPU_E_ARGUMENT;
    }
    status = rs_get(&session->run.store, index, &ours);
    return status == WNPU_OK ? er_fill(segment, size, &ours, sizeof ours) : status;
}

#ifndef WNPU_PREFIX
/* in parentheses, because the header also has a macro of this name */
WNPU_API int (wnpu_get_segment)(const wnpu_session *session, size_t index, wnpu_segment *segment)
{
    return wnpu_get_segment_sized(session, index, segment, offsetof(wnpu_segment, temperature));
}
#endif

WNPU_API int wnpu_get_languages(const wnpu_session *session, float *probabilities, size_t count)
{
    const ru_run *r;
    uint64_t environment;
    int32_t n;
    size_t i;
    if (session == NULL || (probabilities == NULL && count > 0)) {
        return WNPU_E_ARGUMENT;
    }
    environment = er_float_default();
    r = &session->run;
    n = r->engine.model->vocab.n_languages;
    for (i = 0; i < count; i++) {
        probabilities[i] = i < (size_t)n && r->language.weight > 0.0f
                               ? wd_mean_probability(r, (int32_t)i)
                               : (int32_t)i == r->stats.language && n > 0 ? 1.0f : 0.0f;
    }
    er_float_put(environment);
    return n;
}

WNPU_API size_t wnpu_word_count(const wnpu_session *session, size_t segment)
{
    return session != NULL ? rs_word_count(&session->run.store, segment) : 0;
}

WNPU_API int wnpu_get_word(const wnpu_session *session, size_t segment, size_t index,
                           wnpu_word *word)
{
    wnpu_word ours;
    int status;
    if (session == NULL || word == NULL) {
        return WNPU_E_ARGUMENT;
    }
    status = rs_get_word(&session->run.store, segment, index, &ours);
    return status == WNPU_OK ? er_export(word, &ours, sizeof ours) : status;
}

WNPU_API size_t wnpu_speech_span_count(const wnpu_session *session)
{
    return session != NULL ? session->run.store.speech.count : 0;
}

WNPU_API int wnpu_get_speech_span(const wnpu_session *session, size_t index, wnpu_speech_span *span)
{
    const rs_store *s = session != NULL ? &session->run.store : NULL;
    const unsigned char *found = s != NULL ? rs_list_get(s, &s->speech, index) : NULL;
    if (found == NULL || span == NULL) {
        return WNPU_E_ARGUMENT;
    }
    memcpy(span, found, sizeof *span);
    return WNPU_OK;
}

WNPU_API size_t wnpu_ledger_count(const wnpu_session *session)
{
    const rs_store *s = session != NULL ? &session->run.store : NULL;
    return s != NULL ? s->ledger.count + (s->rest.t0_ms < s->rest.t1_ms) : 0;
}

WNPU_API int wnpu_get_ledger_span(const wnpu_session *session, size_t index, wnpu_ledger_span *span)
{
    return session != NULL && span != NULL ? rs_get_ledger(&session->run.store, index, span)
                                           : WNPU_E_ARGUMENT;
}

WNPU_API int wnpu_get_stats(const wnpu_session *session, wnpu_stats *stats)
{
    if (session == NULL || stats == NULL) {
        return WNPU_E_ARGUMENT;
    }
    return er_export(stats, &session->run.stats, sizeof *stats);
}

WNPU_API int wnpu_get_memory(const wnpu_session *session, wnpu_memory *memory)
{
    wnpu_memory ours;
    const ru_run *r;
    if (session == NULL || memory == NULL) {
        return WNPU_E_ARGUMENT;
    }
    r = &session->run;
    memset(&ours, 0, sizeof ours);
    ours.session = session->size;
    ours.results = r->store.size;
    ours.results_used = rs_used(&r->store);
    ours.results_peak = rs_peak(&r->store);
    ours.phrase_tokens = r->rules.trie.used > LR_ROOTS ? r->rules.trie.used - LR_ROOTS : 0;
    ours.accel = r->bridge.resident_bytes;
    ours.model = r->engine.model->size;
    ours.model_shared = r->engine.model->shared;
    return er_export(memory, &ours, sizeof ours);
}

WNPU_API int wnpu_get_accel_stats(const wnpu_session *session, wnpu_accel_stats *stats)
{
    wnpu_accel_stats ours;
    if (session == NULL || stats == NULL) {
        return WNPU_E_ARGUMENT;
    }
    np_get_stats(&session->run.bridge, &ours);
    return er_export(stats, &ours, sizeof ours);
}

WNPU_API int wnpu_get_accel_stage(const wnpu_session *session, size_t index,
                                  wnpu_accel_stage *stage)
{
    if (session == NULL || stage == NULL || session->run.bridge.accel == NULL ||
        index >= NP_STAGES) {
        return WNPU_E_ARGUMENT;
    }
    return er_export(stage, &session->run.bridge.stage[index], sizeof *stage);
}

WNPU_API const char *wnpu_format_name(int format)
{
    return format >= 0 && format < RS_WRITERS ? rs_writers[format].name : NULL;
}

WNPU_API int wnpu_format_from_name(const char *name)
{
    size_t i;
    int format;
    for (format = 0; name != NULL && format < RS_WRITERS; format++) {
        const char *ours = rs_writers[format].name;
        for (i = 0; ours[i] != '\0' && (name[i] | 32) == ours[i]; i++) {
        }
        if (ours[i] == '\0' && name[i] == '\0') {
            return format;
        }
    }
    return -1;
}

WNPU_API void wnpu_write_options_init(wnpu_write_options *options, size_t struct_size)
{
    wnpu_write_options o;
    memset(&o, 0, sizeof o); /* every default is 0 */
    er_init(options, struct_size, &o, sizeof o);
}

WNPU_API void wnpu_write_options_subtitles(wnpu_write_options *options)
{
    wnpu_write_options ours;
    if (options == NULL ||
        er_import(&ours, sizeof ours, options, options->struct_size) != WNPU_OK) {
        return;
    }
    ours.max_line_width = 42;
    ours.max_lines = 2;
    ours.max_cue_ms = 7000;
    ours.min_cue_ms = 1000;
    ours.min_gap_ms = 80;
    ours.reading_speed = 20;
    memcpy(options, &ours, options->struct_size < sizeof ours ? options->struct_size : sizeof ours);
}

static int ap_check_write_options(const wnpu_write_options *o)
{
    return o->format >= 0 && o->format < RS_WRITERS &&
           (o->max_line_width == 0 || (o->max_line_width >= 8 && o->max_line_width <= 1000)) &&
           o->max_lines >= 0 && o->max_lines <= 16 &&
           (o->max_lines == 0 || o->max_line_width > 0) &&
           (o->max_cue_ms == 0 || (o->max_cue_ms >= 500 && o->max_cue_ms <= 60000)) &&
           o->min_cue_ms >= 0 && o->min_cue_ms <= 10000 &&
           (o->max_cue_ms == 0 || o->min_cue_ms <= o->max_cue_ms) &&
           o->min_gap_ms >= 0 && o->min_gap_ms <= 1000 &&
           (o->reading_speed == 0 || (o->reading_speed >= 5 && o->reading_speed <= 100));
}

WNPU_API int wnpu_write_with(const wnpu_session *session, const wnpu_write_options *options,
                             wnpu_write_cursor *cursor, wnpu_write_fn write, void *user)
{
    float languages[RU_LANGUAGES];
    wnpu_write_options ours;
    wnpu_write_cursor at;
    rs_summary summary;
    uint64_t environment;
    int status;
    if (session == NULL || options == NULL || write == NULL) {
        return WNPU_E_ARGUMENT;
    }
    wnpu_write_options_init(&ours, sizeof ours);
    memset(&at, 0, sizeof at);
    at.last = 1;
    if (er_import(&ours, sizeof ours, options, options->struct_size) != WNPU_OK ||
        (cursor != NULL && (cursor->struct_size < offsetof(wnpu_write_cursor, begun) + 8 ||
                            er_import(&at, sizeof at, cursor, cursor->struct_size) != WNPU_OK))) {
        return WNPU_E_VERSION;
    }
    if (!ap_check_write_options(&ours)) {
        return WNPU_E_ARGUMENT;
    }
    summary.language = session->run.stats.language;
    summary.duration_ms = session->run.stats.audio_ms;
    summary.n_languages = wnpu_get_languages(session, languages, RU_LANGUAGES);
    summary.languages = session->run.language.weight > 0.0f ? languages : NULL;
    summary.choice = session->run.phrase.choice.struct_size > 0 ? &session->run.phrase.choice
                                                                 : NULL;
    environment = er_float_default();
    status = rs_write(&session->run.store, &session->run.engine.model->vocab, &summary, &ours, &at,
                      write, user);
    er_float_put(environment);
    if (status == WNPU_OK && cursor != NULL) {
        uint32_t size = cursor->struct_size;
        at.struct_size = size;
        memcpy(cursor, &at, size < sizeof at ? size : sizeof at);
    }
    return status;
}

WNPU_API int wnpu_write(const wnpu_session *session, wnpu_format format, wnpu_write_fn write,
                        void *user)
{
    wnpu_write_options options;
    wnpu_write_options_init(&options, sizeof options);
    options.format = (int32_t)format;
    return wnpu_write_with(session, &options, NULL, write, user);
}

/* ======================================================================
 * 28. sf_  self-test
 *
 *  Owns      known results for tables, FFT, log-mel, matrix product and
 *            tokenizer, and for one window of a small model.
 *  Assumes   nothing: it is for machines and builds that may be faulty.
 *  Ensures   every available instruction set gives the known results; an
 *            error says what differs and where.
 *  Costs     about 20 ms, and 1.5 MiB while it runs.
 *
 *  A change of the library's results must also change sf_answers:
 *  tests/unit/self.c prints the new values.
 * ====================================================================== */

/* ---- tables ---- */

typedef struct sf_table {
    const char *name;
    const void *at;
    size_t size;         /* bytes; for strings the number of pointers */
    int strings;
    uint64_t checksum;
} sf_table;

#define SF_BYTES(name, table, checksum) {name, table, sizeof table, 0, checksum}
#define SF_STRINGS(name, table, checksum) \
    {name, table, sizeof table / sizeof(const char *), 1, checksum}

static const sf_table sf_tables[] = {
    SF_BYTES("letters", tk_letters, 0x8040c7e9a5561909u),
    SF_BYTES("numbers", tk_numbers, 0x1cad54cf32f078deu),
    SF_STRINGS("languages", tk_languages, 0xd8a354f9b2e34f14u),
    SF_STRINGS("other names of languages", tk_aliases, 0x6223014104b04613u),
    SF_STRINGS("symbols that are not spoken", tk_symbols, 0xbf6eb5c8d035a597u),
    SF_STRINGS("musical symbols", tk_music, 0xe552d9eb9aa4e4cbu),
    SF_BYTES("sample widths", au_widths, 0x6d66d7ae8bb59068u)
};
#define SF_TABLES (sizeof sf_tables / sizeof sf_tables[0])

static uint64_t sf_table_checksum(const sf_table *t)
{
    const void *at = t->at;
    uint64_t sum = 0;
    size_t i;
    __asm__ __volatile__("" : "+r"(at)); /* read the memory instead of constants known to the
                                            compiler */
    if (!t->strings) {
        return mf_checksum(at, t->size);
    }
    for (i = 0; i < t->size; i++) {
        const char *text = ((const char *const *)at)[i];
        sum = (sum ^ mf_checksum(text, strlen(text))) * MF_XX1;
    }
    return sum;
}

static int sf_check_tables(wnpu_error *error)
{
    size_t i;
    for (i = 0; i < SF_TABLES; i++) {
        uint64_t found = sf_table_checksum(&sf_tables[i]);
        if (found != sf_tables[i].checksum) {
            return er_set(error, WNPU_E_INTERNAL, "self-test: the table of %s is damaged, its "
                          "checksum is 0x%016llx; load the program again, check its file and the "
                          "memory", sf_tables[i].name, (unsigned long long)found);
        }
    }
    return WNPU_OK;
}

/* ---- the model of the test ---- */

#define SF_STATE 32u
#define SF_MELS 16u
#define SF_AUDIO_CTX 40u
#define SF_TOKENS 263u /* tokens with text */
#define SF_SAMPLES (2u * SF_AUDIO_CTX * ML_HOP + ML_FFT)

static const uint32_t sf_sizes[MF_SIZES] = {
    SF_TOKENS + TK_OTHER_SPECIALS + 2u, SF_AUDIO_CTX, SF_STATE, 2, 1, 16, SF_STATE, 2, 1, SF_MELS, 0
};

/* Tokens after those of single bytes, in order of their merges. */
static const char *const sf_words[SF_TOKENS - 256u] = {
    " t", "he", " the", "er", "in", "ing", "\xc3\xa9"
};

/* A ggml file that is written to base; base NULL: only its size is computed. */
typedef struct sf_file {
    unsigned char *base;
    size_t size;
    uint32_t random;
} sf_file;

static void sf_put(sf_file *f, const void *bytes, size_t n)
{
    if (f->base != NULL) {
        memcpy(f->base + f->size, bytes, n);
    }
    f->size += n;
}

static void sf_put32(sf_file *f, uint32_t x)
{
    unsigned char bytes[4];
    mf_put32(bytes, x);
    sf_put(f, bytes, sizeof bytes);
}

/* xorshift32 (Marsaglia 2003). */
static uint32_t sf_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Uniform in -1..1, exact. */
static float sf_uniform(uint32_t *state)
{
    return (float)((int32_t)(sf_random(state) >> 16) - 32768) * (1.0f / 32768.0f);
}

static void sf_put_float(sf_file *f, float x)
{
    sf_put32(f, mt_bits(x));
}

static void sf_put_tensor(sf_file *f, mf_loader *l, uint32_t tensor)
{
    uint32_t ne[3], layer, i, n, dims;
    int decoder;
    const mf_part *part = mf_find(l, tensor, &decoder, &layer);
    const char *name = mf_name(l, tensor);
    float scale, mean = 0.0f;
    mf_ne(l, part->shape, ne);
    n = ne[0] * ne[1] * ne[2];
    dims = ne[2] > 1 ? 3 : ne[1] > 1 ? 2 : 1;
    sf_put32(f, dims);
    sf_put32(f, (uint32_t)strlen(name));
    sf_put32(f, 0); /* f32 */
    for (i = 0; i < dims; i++) {
        sf_put32(f, ne[i]);
    }
    sf_put(f, name, strlen(name));
    /* scales that keep signals at about constant size; weights of norms are about 1 */
    scale = part->target == MF_ROWS && part->shape != MF_EMBED ? 0.25f : 0.5f;
    if (part->shape == MF_D && part->target == MF_FLOATS) {
        scale = 0.125f;
        mean = strstr(name, "weight") != NULL ? 1.0f : 0.0f;
    }
    for (i = 0; i < n; i++) {
        sf_put_float(f, mean + scale * sf_uniform(&f->random));
    }
}

static void sf_put_model(sf_file *f, mf_loader *l)
{
    uint32_t i, m;
    f->size = 0;
    f->random = 20260101u;
    sf_put32(f, 0x67676d6cu);
    for (i = 0; i < MF_SIZES; i++) {
        l->sizes[i] = sf_sizes[i];
        sf_put32(f, sf_sizes[i]);
    }
    sf_put32(f, SF_MELS);
    sf_put32(f, MF_BINS);
    for (m = 0; m < SF_MELS; m++) { /* triangular filters of 24 bins, 12 apart */
        for (i = 0; i < MF_BINS; i++) {
            uint32_t x = i > 12 * m ? i - 12 * m : 24;
            sf_put_float(f, x < 24 ? (float)(x < 12 ? x : 24 - x) * 0.0625f : 0.0f);
        }
    }
    sf_put32(f, SF_TOKENS);
    for (i = 0; i < SF_TOKENS; i++) {
        char byte = (char)i;
        const char *text = i < 256 ? &byte : sf_words[i - 256];
        size_t length = i < 256 ? 1 : strlen(text);
        sf_put32(f, (uint32_t)length);
        sf_put(f, text, length);
    }
    for (i = 0; i < mf_count(l); i++) {
        sf_put_tensor(f, l, i);
    }
}

/* ---- known results ---- */

typedef enum sf_step {
    SF_MEL, SF_ENCODER, SF_LOGITS, SF_NEXT, SF_FLOAT_ENCODER, SF_FLOAT_LOGITS, SF_FLOAT_NEXT,
    SF_STEPS
} sf_step;

static const struct {
    const char *what;
    uint64_t checksum;
} sf_answers[SF_STEPS] = {
    {"log-mel", 0x9ab9ce6b385e18a2u},
    {"the INT8 encoder", 0x5fb774c383c9fa34u},
    {"the INT8 decoder's first step", 0x2d817308a34e77a4u},
    {"the INT8 decoder's second step", 0xd1a04431dca4fd9eu},
    {"the float encoder", 0xdc58bea71689a237u},
    {"the float decoder's first step", 0x14df36368020df8eu},
    {"the float decoder's second step", 0xf9d4e1cbd1d271f2u}
};

/* All memory of a test, in one block. */
typedef struct sf_run {
    mf_loader *loader;   /* names and shapes of tensors */
    sf_file file;
    wnpu_model *model;
    float *samples;      /* [SF_SAMPLES] */
    tp_pool pool;
    int cancel;
    en_engine engine;
    de_decoder decoder;
} sf_run;

#define SF_K 68u     /* size of the products; not multiples of what the kernels compute at once */
#define SF_ROWS 35u
#define SF_COLUMNS 48u

/* Compares a matrix product with its definition. */
static int sf_check_matmul(sf_run *r, const gm_kernels *gm, wnpu_error *error)
{
    int8_t a[SF_ROWS * SF_K], b[SF_COLUMNS * SF_K], packed[SF_COLUMNS * SF_K];
    int32_t c[SF_ROWS * SF_COLUMNS], correction[SF_COLUMNS], sum;
    uint32_t random = 1, i, m, n;
    gm_product p = {0};
    for (i = 0; i < SF_ROWS * SF_K; i++) { /* the last row has extreme values only */
        uint32_t x = sf_random(&random);
        a[i] = (int8_t)(i / SF_K == SF_ROWS - 1 ? (x & 64 ? 127 : -127) : (int)(x % 255) - 127);
    }
    for (n = 0; n < SF_COLUMNS; n++) {
        for (i = 0; i < SF_K; i++) {
            uint32_t x = sf_random(&random);
            b[n * SF_K + i] = (int8_t)(n % 5 == 0 ? (x & 64 ? 127 : -127) : (int)(x % 255) - 127);
        }
        gm_pack_panel_row(packed, SF_K / 4, n, b + n * SF_K);
    }
    if (gm->correct != NULL) {
        gm->correct(correction, packed, SF_K / 4, SF_COLUMNS / 16);
    }
    gm->pack_a(r->engine.worker[0].packed, a, SF_K, SF_ROWS, SF_K / 4);
    p.c = c;
    p.ldc = SF_COLUMNS;
    p.a = r->engine.worker[0].packed;
    p.rows = SF_ROWS;
    p.b = packed;
    p.k4 = p.pitch = SF_K / 4;
    p.correction = gm->correct != NULL ? correction : NULL;
    p.panels = SF_COLUMNS / 16;
    gm->tile(&p);
    for (m = 0; m < SF_ROWS; m++) {
        for (n = 0; n < SF_COLUMNS; n++) {
            for (i = 0, sum = 0; i < SF_K; i++) {
                sum += a[m * SF_K + i] * b[n * SF_K + i];
            }
            if (c[m * SF_COLUMNS + n] != sum) {
                return er_set(error, WNPU_E_INTERNAL, "self-test: a matrix product on %s gives %ld "
                              "for %ld; choose another instruction set", wnpu_isa_name(gm->isa),
                              (long)c[m * SF_COLUMNS + n], (long)sum);
            }
        }
    }
    return WNPU_OK;
}

/* Compares the spectrum of a sine of 1000 Hz and amplitude 1 with its theoretical values: the
 * window sums to 200, so bin 25 is (200 / 2)^2, its neighbours a quarter of that, all others 0. */
static int sf_check_fft(sf_run *r, const op_kernels *op, wnpu_isa isa, wnpu_error *error)
{
    static const unsigned bins[4] = {24, 25, 26, 100};
    static const float want[4] = {2500.0f, 10000.0f, 2500.0f, 0.0f};
    en_engine *e = &r->engine;
    float *pick = e->mel, *out = e->attended; /* not in use here, and large enough */
    uint16_t first[4], last[4];
    ml_filters filters;
    unsigned i, lane;
    memset(pick, 0, 4 * ML_BINS * sizeof *pick);
    for (i = 0; i < 4; i++) {
        pick[i * ML_BINS + bins[i]] = 1.0f;
    }
    filters.first = first;
    filters.last = last;
    ml_init(&filters, pick, 4);
    for (i = 0; i < SF_SAMPLES; i++) {
        r->samples[i] = (float)e->fft->cosine[25u * i % ML_FFT];
    }
    op->mel_powers(e->fft, &filters, r->samples, out, 4, e->worker[0].mel);
    for (lane = 0; lane < ML_BATCH; lane++) {
        for (i = 0; i < 4; i++) {
            if (!(fabsf(out[lane * 4 + i] - want[i]) <= want[i] * 1e-6f + 1e-6f)) {
                return er_set(error, WNPU_E_INTERNAL, "self-test: bin %u of a tone's spectrum on "
                              "%s is %.9g for %g; choose another instruction set", bins[i],
                              wnpu_isa_name(isa), (double)out[lane * 4 + i], (double)want[i]);
            }
        }
    }
    return WNPU_OK;
}

static int sf_check_tokens(const tk_vocab *v, wnpu_error *error)
{
    static const char text[] = " there, singing\xc3\xa9 12";
    static const int32_t want[] = {
        258, 'r', 'e', ',', ' ', 's', 261, 261, 262, ' ', '1', '2'
    };
    const int32_t count = (int32_t)(sizeof want / sizeof want[0]);
    int32_t found[32];
    int64_t n = tk_encode(v, text, sizeof text - 1, found, 32);
    char repaired[8];
    size_t length = tk_sanitize_utf8(repaired, sizeof repaired, "\xe2\x82" "A\xff", 4);
    if (n != count || memcmp(found, want, sizeof want) != 0) {
        return er_set(error, WNPU_E_INTERNAL, "self-test: the tokenizer gives %ld other tokens for "
                      "a known text", (long)n);
    }
    if (length != 7 || memcmp(repaired, "\xef\xbf\xbd" "A\xef\xbf\xbd", 8) != 0) {
        return er_set(error, WNPU_E_INTERNAL, "self-test: invalid UTF-8 is not repaired");
    }
    if (strcmp(tk_text(v, v->timestamp0 + 77, NULL), "<|1.54|>") != 0) {
        return er_set(error, WNPU_E_INTERNAL, "self-test: a timestamp token has another name");
    }
    return WNPU_OK;
}

static void sf_step_decoder(de_decoder *d, const int32_t *tokens, uint32_t first, uint32_t n)
{
    de_row rows[4];
    uint32_t i;
    memset(rows, 0, sizeof rows);
    for (i = 0; i < n; i++) {
        rows[i].token = tokens[i];
        rows[i].position = first + i;
        rows[i].want = i + 1 == n;
    }
    de_step(d, rows, n);
}

/* Processes one window and stores the checksum of each step in found[SF_STEPS]. Those of float
 * computation come last, and are the only ones that differ with e->exact. */
static void sf_window(sf_run *r, uint64_t *found)
{
    en_engine *e = &r->engine;
    size_t frames = 2 * SF_AUDIO_CTX, t, vocab = (size_t)r->model->vocab.n_vocab;
    uint64_t *step = found + (e->exact ? SF_FLOAT_ENCODER : SF_ENCODER);
    int32_t tokens[4];
    uint32_t random = 7, i;
    float largest;
    memset(e->mel, 0, (ML_FRAMES + 2) * SF_MELS * sizeof(float));
    for (i = 0; i < SF_SAMPLES; i++) { /* increasing noise, and a sine */
        r->samples[i] = sf_uniform(&random) * (float)i * 0x1p-16f +
                        0.5f * (float)e->fft->sine[31u * i % ML_FFT];
    }
    for (t = 0; t < frames; t += ML_BATCH) {
        e->op->mel_powers(e->fft, &e->filters, r->samples + t * ML_HOP,
                          e->mel + (t + 1) * SF_MELS, SF_MELS, e->worker[0].mel);
    }
    largest = e->op->mel_log(e->mel + SF_MELS, frames * SF_MELS);
    e->op->mel_floor(e->mel + SF_MELS, frames * SF_MELS, largest - 8.0f);
    found[SF_MEL] = mf_checksum(e->mel, (frames + 2) * SF_MELS * sizeof(float));
    en_run(e);
    step[0] = mf_checksum(e->x, SF_AUDIO_CTX * SF_STATE * sizeof(float));
    en_cross(e, r->decoder.cross);
    tokens[0] = r->model->vocab.sot;
    tokens[1] = r->model->vocab.language0;
    tokens[2] = r->model->vocab.transcribe;
    sf_step_decoder(&r->decoder, tokens, 0, 3);
    step[1] = mf_checksum(r->decoder.logits, vocab * sizeof(float));
    tokens[3] = (int32_t)e->op->argmax(r->decoder.logits, vocab);
    sf_step_decoder(&r->decoder, tokens + 3, 3, 1);
    largest = e->op->sum_exp(r->decoder.logits, vocab, r->decoder.logits[0]);
    step[2] = mf_checksum(r->decoder.logits, vocab * sizeof(float)) ^ mt_bits(largest);
}

/* ---- the self-test ---- */

/* Allocates engine and decoder for an instruction set. */
static void sf_carve(sf_run *r, ar_arena *arena, wnpu_isa isa, int exact)
{
    r->engine.model = r->model;
    r->engine.gm = gm_select(isa);
    r->engine.op = op_select(isa);
    r->engine.pool = &r->pool;
    r->engine.exact = exact;
    r->samples = ar_carve(arena, SF_SAMPLES, sizeof(float));
    en_carve(arena, &r->engine, 1);
    de_carve(arena, &r->decoder, &r->engine, 1, 1);
}

/* Tests what depends on the instruction set; found receives the checksums. */
static int sf_check_isa(sf_run *r, const wnpu_allocator *allocator, wnpu_isa isa, uint64_t *found,
                        wnpu_error *error)
{
    int exact, status = WNPU_OK;
    for (exact = 0; exact < 2 && status == WNPU_OK; exact++) {
        ar_arena arena;
        size_t size;
        memset(&arena, 0, sizeof arena);
        memset(&r->engine, 0, sizeof r->engine);
        sf_carve(r, &arena, isa, exact);
        size = arena.used;
        arena.base = mf_alloc(allocator, size, "the self-test", error);
        if (arena.base == NULL) {
            return WNPU_E_MEMORY;
        }
        arena.size = size;
        arena.used = 0;
        memset(arena.base, 0, size);
        sf_carve(r, &arena, isa, exact);
        en_start(&r->engine);
        if (!exact) {
            status = sf_check_matmul(r, r->engine.gm, error);
            status = status != WNPU_OK ? status : sf_check_fft(r, r->engine.op, isa, error);
        }
        if (status == WNPU_OK) {
            sf_window(r, found);
        }
        allocator->release(allocator->user, arena.base, size);
    }
    return status;
}

static int sf_check_answers(wnpu_isa isa, const uint64_t *found, wnpu_error *error)
{
    int i;
    for (i = 0; i < SF_STEPS; i++) {
        if (found[i] != sf_answers[i].checksum) {
            return er_set(error, WNPU_E_INTERNAL, "self-test: %s on %s gives 0x%016llx for "
                          "0x%016llx; choose another instruction set, check the compiler",
                          sf_answers[i].what, wnpu_isa_name(isa), (unsigned long long)found[i],
                          (unsigned long long)sf_answers[i].checksum);
        }
    }
    return WNPU_OK;
}

/* Writes and opens the model of the test. */
static int sf_open(sf_run *r, const wnpu_allocator *allocator, wnpu_error *error)
{
    wnpu_model_config config;
    int status = WNPU_E_MEMORY;
    r->loader = mf_alloc(allocator, sizeof *r->loader, "the self-test", error);
    if (r->loader == NULL) {
        return status;
    }
    sf_put_model(&r->file, r->loader);
    r->file.base = mf_alloc(allocator, r->file.size, "the self-test", error);
    if (r->file.base != NULL) {
        sf_put_model(&r->file, r->loader);
        wnpu_model_config_init(&config, sizeof config);
        config.keep_float = 1;
        config.allocator = allocator;
        status = wnpu_model_open_memory(&r->model, r->file.base, r->file.size, &config, error);
        allocator->release(allocator->user, r->file.base, r->file.size);
    }
    allocator->release(allocator->user, r->loader, sizeof *r->loader);
    return status;
}

/* Runs all tests; found receives the checksums of the last instruction set. */
static int sf_check_all(sf_run *r, const wnpu_allocator *allocator, uint64_t *found,
                        wnpu_error *error)
{
    int isa, status = sf_open(r, allocator, error);
    if (status == WNPU_OK) {
        status = sf_check_tokens(&r->model->vocab, error);
    }
    if (status == WNPU_OK) {
        status = tp_open(&r->pool, 1, NULL, NULL, &r->cancel, error);
    }
    for (isa = WNPU_ISA_SCALAR; isa < CP_ISAS && status == WNPU_OK; isa++) {
        if (cp_usable((wnpu_isa)isa)) {
            status = sf_check_isa(r, allocator, (wnpu_isa)isa, found, error);
            status = status != WNPU_OK ? status : sf_check_answers((wnpu_isa)isa, found, error);
        }
    }
    tp_close(&r->pool);
    wnpu_model_close(r->model);
    return status;
}

WNPU_API int wnpu_self_test(const wnpu_allocator *allocator, wnpu_error *error)
{
    wnpu_allocator ours = ar_allocator(allocator);
    uint64_t found[SF_STEPS], environment;
    sf_run *r;
    int status;
    er_clear(error);
    if (ours.alloc == NULL || ours.release == NULL) {
        return er_set(error, WNPU_E_ARGUMENT, "the allocator lacks alloc or release; fill both in");
    }
    environment = er_float_default();
    status = sf_check_tables(error);
    r = status == WNPU_OK ? mf_alloc(&ours, sizeof *r, "the self-test", error) : NULL;
    if (r != NULL) {
        memset(r, 0, sizeof *r);
        status = sf_check_all(r, &ours, found, error);
        ours.release(ours.user, r, sizeof *r);
    }
    er_float_put(environment);
    return status == WNPU_OK && r == NULL ? WNPU_E_MEMORY : status;
}

#else /* WNPU_PART */
#undef MT
#undef GM
#undef OP
#undef MT_PARTS
#undef WNPU_LANES
#undef WNPU_TARGET
#undef WNPU_WIDTH
#endif /* WNPU_PART */
