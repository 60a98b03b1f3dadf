/* peak.h - what this machine can do at best, measured in registers and from memory. */
#ifndef PEAK_H
#define PEAK_H
#include <pthread.h>
#include <sched.h>

/* peak_all(isa, n, threads, s)
 *     n is 0: int8 multiply-accumulates per second of so many threads together, in a loop that
 *     touches registers only and repeats the best exact sequence of the instruction set. 0 if this
 *     process cannot use it, and for the scalar set, whose speed is whatever the compiler makes of
 *     plain C. Otherwise: bytes per second that the threads read together from a working set of n
 *     bytes, each its part; 0 if there is no memory.
 *
 * All threads start a round at once, and it lasts until the last is done: the best that each gives
 * at a moment when the others rest is more than they give together. Rounds follow each other for s
 * seconds. The best of them is the peak: a shared machine is slower now and then, never faster.
 * Over longer times its speed drifts, so what is compared with a peak should be measured right
 * after it. What all rounds did is what was sustained beside everything else on the machine. */
typedef struct peak_rate {
    double best, sustained;
} peak_rate;

static double peak_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#if defined(__x86_64__)
#include <immintrin.h>

/* abs/sign: |b| * sign(a, b) in pairs to int16, pairs to int32, add: 4 instructions for 32. */
__attribute__((target("avx2"), noinline)) static double peak_avx2_sign(long n)
{
    __m256i s[8], a = _mm256_set1_epi8(-2), b = _mm256_set1_epi8(3), one = _mm256_set1_epi16(1);
    long i;
    memset(s, 0, sizeof s);
    for (i = 0; i < n; i++) {
#define PEAK_STEP(j) { __m256i t; __asm__ volatile( \
        "vpsignb %2, %3, %1\n\tvpmaddubsw %1, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0" \
        : "+x"(s[j]), "=&x"(t) : "x"(b), "x"(a), "x"(one)); }
        PEAK_STEP(0) PEAK_STEP(1) PEAK_STEP(2) PEAK_STEP(3)
        PEAK_STEP(4) PEAK_STEP(5) PEAK_STEP(6) PEAK_STEP(7)
#undef PEAK_STEP
    }
    return 8.0 * 32.0 * (double)n;
}

/* int16: 2 instructions for 16. */
__attribute__((target("avx2"), noinline)) static double peak_avx2_word(long n)
{
    __m256i s[8], a = _mm256_set1_epi16(-2), b = _mm256_set1_epi16(3);
    long i;
    memset(s, 0, sizeof s);
    for (i = 0; i < n; i++) {
#define PEAK_STEP(j) { __m256i t; __asm__ volatile("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0" \
        : "+x"(s[j]), "=&x"(t) : "x"(b), "x"(a)); }
        PEAK_STEP(0) PEAK_STEP(1) PEAK_STEP(2) PEAK_STEP(3)
        PEAK_STEP(4) PEAK_STEP(5) PEAK_STEP(6) PEAK_STEP(7)
#undef PEAK_STEP
    }
    return 8.0 * 16.0 * (double)n;
}

__attribute__((target("sse4.1"), noinline)) static double peak_sse41_sign(long n)
{
    __m128i s[8], a = _mm_set1_epi8(-2), b = _mm_set1_epi8(3), one = _mm_set1_epi16(1);
    long i;
    memset(s, 0, sizeof s);
    for (i = 0; i < n; i++) {
#define PEAK_STEP(j) { __m128i t, u; __asm__ volatile( \
        "movdqa %4, %1\n\tpsignb %3, %1\n\tmovdqa %3, %2\n\tpmaddubsw %1, %2\n\t" \
        "pmaddwd %5, %2\n\tpaddd %2, %0" \
        : "+x"(s[j]), "=&x"(t), "=&x"(u) : "x"(b), "x"(a), "x"(one)); }
        PEAK_STEP(0) PEAK_STEP(1) PEAK_STEP(2) PEAK_STEP(3)
        PEAK_STEP(4) PEAK_STEP(5) PEAK_STEP(6) PEAK_STEP(7)
#undef PEAK_STEP
    }
    return 8.0 * 16.0 * (double)n;
}

__attribute__((target("sse4.1"), noinline)) static double peak_sse41_word(long n)
{
    __m128i s[8], a = _mm_set1_epi16(-2), b = _mm_set1_epi16(3);
    long i;
    memset(s, 0, sizeof s);
    for (i = 0; i < n; i++) {
#define PEAK_STEP(j) { __m128i t; __asm__ volatile( \
        "movdqa %3, %1\n\tpmaddwd %2, %1\n\tpaddd %1, %0" \
        : "+x"(s[j]), "=&x"(t) : "x"(b), "x"(a)); }
        PEAK_STEP(0) PEAK_STEP(1) PEAK_STEP(2) PEAK_STEP(3)
        PEAK_STEP(4) PEAK_STEP(5) PEAK_STEP(6) PEAK_STEP(7)
#undef PEAK_STEP
    }
    return 8.0 * 8.0 * (double)n;
}

#ifdef WNPU_VNNI
__attribute__((target("avx2"), noinline)) static double peak_vnni(long n)
{
    __m256i s[12], a = _mm256_set1_epi8(2), b = _mm256_set1_epi8(3);
    long i;
    memset(s, 0, sizeof s);
    for (i = 0; i < n; i++) {
#define PEAK_STEP(j) \
        __asm__ volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(s[j]) : "x"(a), "x"(b));
        PEAK_STEP(0) PEAK_STEP(1) PEAK_STEP(2) PEAK_STEP(3)
        PEAK_STEP(4) PEAK_STEP(5) PEAK_STEP(6) PEAK_STEP(7)
        PEAK_STEP(8) PEAK_STEP(9) PEAK_STEP(10) PEAK_STEP(11)
#undef PEAK_STEP
    }
    return 12.0 * 32.0 * (double)n;
}
#endif

__attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni"), noinline))
static double peak_avx512(long n)
{
    __m512i s[16], a = _mm512_set1_epi8(2), b = _mm512_set1_epi8(3);
    long i;
    memset(s, 0, sizeof s);
    for (i = 0; i < n; i++) {
#define PEAK_STEP(j) __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(s[j]) : "v"(a), "v"(b));
        PEAK_STEP(0) PEAK_STEP(1) PEAK_STEP(2) PEAK_STEP(3)
        PEAK_STEP(4) PEAK_STEP(5) PEAK_STEP(6) PEAK_STEP(7)
        PEAK_STEP(8) PEAK_STEP(9) PEAK_STEP(10) PEAK_STEP(11)
        PEAK_STEP(12) PEAK_STEP(13) PEAK_STEP(14) PEAK_STEP(15)
#undef PEAK_STEP
    }
    return 16.0 * 64.0 * (double)n;
}

#ifdef WNPU_AMX
/* Four tiles of sums, 16 x 16 x 64 products each. */
__attribute__((target("amx-tile,amx-int8"), noinline)) static double peak_amx(long n)
{
    uint8_t config[64] = {1};
    long i;
    for (i = 0; i < 8; i++) {
        config[16 + 2 * i] = 64;
        config[48 + i] = 16;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
    for (i = 0; i < n; i++) {
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
    }
    _tile_release();
    return 4.0 * 16384.0 * (double)n;
}
#endif
#elif defined(__aarch64__)
#include <arm_neon.h>

/* Two products in int16, pairs added to int32: 3 instructions for 16. */
__attribute__((noinline)) static double peak_neon(long n)
{
    int32x4_t s[8];
    int8x8_t a = vdup_n_s8(-2), b = vdup_n_s8(3);
    long i;
    memset(s, 0, sizeof s);
    for (i = 0; i < n; i++) {
#define PEAK_STEP(j) { int16x8_t t; __asm__ volatile( \
        "smull %1.8h, %2.8b, %3.8b\n\tsmlal %1.8h, %2.8b, %3.8b\n\tsadalp %0.4s, %1.8h" \
        : "+w"(s[j]), "=&w"(t) : "w"(a), "w"(b)); }
        PEAK_STEP(0) PEAK_STEP(1) PEAK_STEP(2) PEAK_STEP(3)
        PEAK_STEP(4) PEAK_STEP(5) PEAK_STEP(6) PEAK_STEP(7)
#undef PEAK_STEP
    }
    return 8.0 * 16.0 * (double)n;
}

#if defined(__clang__)
__attribute__((target("dotprod"), noinline))
#else
__attribute__((target("arch=armv8.2-a+dotprod"), noinline))
#endif
static double peak_dot(long n)
{
    int32x4_t s[16];
    int8x16_t a = vdupq_n_s8(-2), b = vdupq_n_s8(3);
    long i;
    memset(s, 0, sizeof s);
    for (i = 0; i < n; i++) {
#define PEAK_STEP(j) __asm__ volatile("sdot %0.4s, %1.16b, %2.16b" : "+w"(s[j]) : "w"(a), "w"(b));
        PEAK_STEP(0) PEAK_STEP(1) PEAK_STEP(2) PEAK_STEP(3)
        PEAK_STEP(4) PEAK_STEP(5) PEAK_STEP(6) PEAK_STEP(7)
        PEAK_STEP(8) PEAK_STEP(9) PEAK_STEP(10) PEAK_STEP(11)
        PEAK_STEP(12) PEAK_STEP(13) PEAK_STEP(14) PEAK_STEP(15)
#undef PEAK_STEP
    }
    return 16.0 * 16.0 * (double)n;
}
#endif

/* One round of products; where two sequences are about as fast they take turns. */
static double peak_products(wnpu_isa isa, unsigned round)
{
    const long n = 20000;
    (void)n;
    (void)isa;
    (void)round;
#if defined(__x86_64__)
    switch (isa) {
    case WNPU_ISA_SSE41: return round % 2 ? peak_sse41_sign(n) : peak_sse41_word(n);
    case WNPU_ISA_AVX2: return round % 2 ? peak_avx2_sign(n) : peak_avx2_word(n);
#ifdef WNPU_VNNI
    case WNPU_ISA_AVX_VNNI: return peak_vnni(n);
#endif
    case WNPU_ISA_AVX512: return peak_avx512(n);
#ifdef WNPU_AMX
    case WNPU_ISA_AMX: return peak_amx(n);
#endif
    default: return 0.0;
    }
#elif defined(__aarch64__)
    switch (isa) {
    case WNPU_ISA_NEON: return peak_neon(n);
    case WNPU_ISA_NEON_DOT:
    case WNPU_ISA_NEON_I8MM: return peak_dot(n); /* the kernels use sdot for both */
    default: return 0.0;
    }
#else
    return 0.0;
#endif
}

typedef uint64_t peak_line __attribute__((vector_size(32), aligned(32)));

/* gcc makes one for wide vectors as well; clang knows no such functions that are not inlined. */
#if defined(__x86_64__) && !defined(__clang__)
#define PEAK_WIDE __attribute__((target_clones("avx2", "default"), noinline))
#else
#define PEAK_WIDE __attribute__((noinline))
#endif

/* What lies ahead bytes behind is asked for; 0: the hardware's own reading ahead is all. */
WNPU_INLINE uint64_t peak_lines(const peak_line *p, size_t lines, size_t ahead)
{
    peak_line a = {0}, b = {0}, c = {0}, d = {0};
    size_t i;
    for (i = 0; i + 4 <= lines; i += 4) {
        if (ahead > 0) {
            __builtin_prefetch((const char *)(p + i) + ahead);
            __builtin_prefetch((const char *)(p + i + 2) + ahead);
        }
        a |= p[i], b |= p[i + 1], c |= p[i + 2], d |= p[i + 3];
    }
    a = (a | b) | (c | d);
    return a[0] | a[1] | a[2] | a[3];
}

PEAK_WIDE static uint64_t peak_read(const peak_line *p, size_t lines)
{
    return peak_lines(p, lines, 0);
}

/* Four places at once; one after the other or four at once, whichever this machine likes more. */
PEAK_WIDE static uint64_t peak_read4(const peak_line *p, size_t lines)
{
    const peak_line *q = p + lines / 4, *r = q + lines / 4, *s = r + lines / 4;
    peak_line a = {0}, b = {0}, c = {0}, d = {0};
    size_t i;
    for (i = 0; i + 2 <= lines / 4; i += 2) {
        a |= p[i], b |= q[i], c |= r[i], d |= s[i];
        a |= p[i + 1], b |= q[i + 1], c |= r[i + 1], d |= s[i + 1];
    }
    a = (a | b) | (c | d);
    return a[0] | a[1] | a[2] | a[3];
}

/* ---- rounds of several threads ---- */

enum { PEAK_THREADS = 64 };

typedef struct peak_job {
    struct peak_team *team;
    peak_line *memory; /* NULL: products */
    size_t lines;
    double start, end, work;
} peak_job;

typedef struct peak_team {
    wnpu_isa isa;
    unsigned threads;
    uint32_t arrived, meetings; /* atomic */
    double begin, seconds, best;
    double work[2], time[2]; /* of even and of odd rounds, which may be different sequences */
    int done;
    peak_job job[PEAK_THREADS];
} peak_team;

/* Returns when all threads have come. */
static void peak_meet(peak_team *team)
{
    uint32_t meetings = __atomic_load_n(&team->meetings, __ATOMIC_ACQUIRE);
    unsigned tries = 0;
    if (__atomic_add_fetch(&team->arrived, 1, __ATOMIC_ACQ_REL) == team->threads) {
        __atomic_store_n(&team->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&team->meetings, meetings + 1, __ATOMIC_RELEASE);
        return;
    }
    while (__atomic_load_n(&team->meetings, __ATOMIC_ACQUIRE) == meetings) {
        if (++tries % 1000 == 0) {
            sched_yield(); /* there may be more threads than processors */
        }
    }
}

static double peak_pass(const peak_job *job, unsigned round)
{
    const size_t bytes = job->lines * sizeof *job->memory;
    size_t i, passes = 1 + ((size_t)1 << 20) / (bytes + 1);
    volatile uint64_t sink;
    if (job->memory == NULL) {
        return peak_products(job->team->isa, round);
    }
    for (i = 0; i < passes; i++) {
        sink = round % 2 ? peak_read4(job->memory, job->lines) : peak_read(job->memory, job->lines);
    }
    (void)sink;
    return (double)(passes * bytes);
}

/* What all have done from the first start to the last end. */
static void peak_count(peak_team *team, unsigned round)
{
    const peak_job *job = team->job;
    double start = job->start, end = job->end, work = 0.0;
    unsigned i;
    for (i = 0; i < team->threads; i++) {
        start = job[i].start < start ? job[i].start : start;
        end = job[i].end > end ? job[i].end : end;
        work += job[i].work;
    }
    team->work[round % 2] += work;
    team->time[round % 2] += end - start;
    if (end > start && work / (end - start) > team->best) {
        team->best = work / (end - start);
    }
    team->done = round > 1 && end - team->begin > team->seconds;
}

static void *peak_rounds(void *argument)
{
    peak_job *job = argument;
    peak_team *team = job->team;
    unsigned round;
    for (round = 0; !team->done; round++) {
        peak_meet(team);
        job->start = peak_now();
        job->work = peak_pass(job, round);
        job->end = peak_now();
        peak_meet(team);
        if (job == team->job) {
            peak_count(team, round);
        }
        peak_meet(team);
    }
    return NULL;
}

/* Gives each thread its part of the working set; 0 if there is no memory for it. */
static int peak_share(peak_team *team, size_t bytes)
{
    unsigned i;
    for (i = 0; i < team->threads; i++) {
        peak_job *job = &team->job[i];
        job->team = team;
        job->lines = bytes / team->threads / 128 * 4;
        if (job->lines > 0 &&
            posix_memalign((void **)&job->memory, AR_HUGE, job->lines * 32) == 0) {
            (void)os_advise_huge(job->memory, job->lines * 32); /* as weights and caches lie */
            memset(job->memory, 1, job->lines * 32); /* untouched pages are all the same zeros */
        }
        if (bytes > 0 && job->memory == NULL) {
            return 0;
        }
    }
    return 1;
}

static void peak_run(peak_team *team)
{
    pthread_t thread[PEAK_THREADS];
    unsigned i;
    team->begin = peak_now();
    for (i = 1; i < team->threads; i++) {
        if (pthread_create(&thread[i], NULL, peak_rounds, &team->job[i]) != 0) {
            perror("thread");
            exit(1);
        }
    }
    peak_rounds(&team->job[0]);
    for (i = 1; i < team->threads; i++) {
        pthread_join(thread[i], NULL);
    }
}

static peak_rate peak_all(wnpu_isa isa, size_t bytes, unsigned threads, double seconds)
{
    peak_team team;
    peak_rate rate;
    unsigned i;
    memset(&team, 0, sizeof team);
    team.isa = isa;
    team.threads = threads < PEAK_THREADS ? threads : PEAK_THREADS;
    team.seconds = seconds;
    if (cp_usable(isa) && peak_share(&team, bytes)) {
        peak_run(&team);
    }
    for (i = 0; i < team.threads; i++) {
        free(team.job[i].memory);
    }
    rate.best = team.best;
    rate.sustained = 0.0;
    for (i = 0; i < 2; i++) {
        double mean = team.time[i] > 0.0 ? team.work[i] / team.time[i] : 0.0;
        rate.sustained = mean > rate.sustained ? mean : rate.sustained;
    }
    return rate;
}
#endif
