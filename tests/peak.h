/* peak.h - what this machine can do at best, measured in registers and from memory. */
#ifndef PEAK_H
#define PEAK_H
#include <pthread.h>

/* peak_int8(isa, s)     int8 multiply-accumulates per second of one core, in a loop that touches
 *                       registers only and repeats the best exact sequence of the instruction set.
 *                       0 if this process cannot use it, and for the scalar set, whose speed is
 *                       whatever the compiler makes of plain C.
 * read_bandwidth(n, s)  bytes per second that one core reads from a working set of n bytes.
 *
 * Both try again and again for s seconds and give the best: a shared machine is slower now and
 * then, never faster. Over longer times its speed drifts, so what is compared with a peak should be
 * measured right after it. */

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
        "movdqa %3, %1\n\tpmaddwd %2, %1\n\tpaddd %1, %0" : "+x"(s[j]), "=&x"(t) : "x"(b), "x"(a)); }
        PEAK_STEP(0) PEAK_STEP(1) PEAK_STEP(2) PEAK_STEP(3)
        PEAK_STEP(4) PEAK_STEP(5) PEAK_STEP(6) PEAK_STEP(7)
#undef PEAK_STEP
    }
    return 8.0 * 8.0 * (double)n;
}

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

static double peak_best(double (*loop)(long), double limit)
{
    double best = 0.0, begin = peak_now();
    while (peak_now() - begin < limit) {
        double start = peak_now(), products = loop(20000), seconds = peak_now() - start;
        if (seconds > 0.0 && products / seconds > best) {
            best = products / seconds;
        }
    }
    return best;
}

static double peak_int8(wnpu_isa isa, double seconds)
{
    double x = 0.0, y = 0.0;
    if (!cp_usable(isa)) {
        return 0.0;
    }
#if defined(__x86_64__)
    if (isa == WNPU_ISA_SSE41) {
        x = peak_best(peak_sse41_sign, seconds / 2);
        y = peak_best(peak_sse41_word, seconds / 2);
    } else if (isa == WNPU_ISA_AVX2) {
        x = peak_best(peak_avx2_sign, seconds / 2);
        y = peak_best(peak_avx2_word, seconds / 2);
    } else if (isa == WNPU_ISA_AVX512) {
        x = peak_best(peak_avx512, seconds);
#ifdef WNPU_AMX
    } else if (isa == WNPU_ISA_AMX) {
        x = peak_best(peak_amx, seconds);
#endif
    }
#elif defined(__aarch64__)
    if (isa == WNPU_ISA_NEON) {
        x = peak_best(peak_neon, seconds);
    } else if (isa == WNPU_ISA_NEON_DOT || isa == WNPU_ISA_NEON_I8MM) {
        x = peak_best(peak_dot, seconds); /* the kernels use sdot for both */
    }
#endif
    return x > y ? x : y;
}

typedef uint64_t peak_line __attribute__((vector_size(32), aligned(32)));

#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default"), noinline))
#else
__attribute__((noinline))
#endif
static uint64_t peak_read(const peak_line *p, size_t lines)
{
    peak_line a = {0}, b = {0}, c = {0}, d = {0};
    size_t i;
    for (i = 0; i + 4 <= lines; i += 4) {
        a |= p[i], b |= p[i + 1], c |= p[i + 2], d |= p[i + 3];
    }
    a = (a | b) | (c | d);
    return a[0] | a[1] | a[2] | a[3];
}

/* Four places at once; one after the other or four at once, whichever this machine likes more. */
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default"), noinline))
#else
__attribute__((noinline))
#endif
static uint64_t peak_read4(const peak_line *p, size_t lines)
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

/* 0 if there is no memory. */
static double read_bandwidth(size_t bytes, double limit)
{
    const size_t lines = bytes / 128 * 4;
    peak_line *memory = NULL;
    volatile uint64_t sink;
    double best = 0.0, begin;
    unsigned round;
    if (lines == 0 || posix_memalign((void **)&memory, 64, lines * 32) != 0) {
        return 0.0;
    }
    memset(memory, 1, lines * 32); /* untouched pages would all be the same page of zeros */
    sink = peak_read(memory, lines);
    begin = peak_now();
    for (round = 0; round < 2 || peak_now() - begin < limit; round++) {
        double start = peak_now(), seconds;
        size_t i, passes = 1 + ((size_t)1 << 20) / bytes;
        for (i = 0; i < passes; i++) {
            sink = round % 2 ? peak_read4(memory, lines) : peak_read(memory, lines);
        }
        seconds = peak_now() - start;
        if (seconds > 0.0 && (double)(passes * lines * 32) / seconds > best) {
            best = (double)(passes * lines * 32) / seconds;
        }
    }
    (void)sink;
    free(memory);
    return best;
}

/* ---- the same on several cores at once ---- */

typedef struct peak_job {
    wnpu_isa isa;
    size_t bytes;      /* 0: int8 peak, else bandwidth of a set of this size */
    double seconds;
    double result;
} peak_job;

static void *peak_thread(void *argument)
{
    peak_job *job = argument;
    job->result = job->bytes > 0 ? read_bandwidth(job->bytes, job->seconds)
                                 : peak_int8(job->isa, job->seconds);
    return NULL;
}

/* Sum over threads; bytes is the working set of all of them together. */
static double peak_all(wnpu_isa isa, size_t bytes, unsigned threads, double seconds)
{
    pthread_t thread[64];
    peak_job job[64];
    double sum = 0.0;
    unsigned i, started = 0;
    for (i = 0; i < threads && i < 64; i++) {
        job[i].isa = isa;
        job[i].bytes = bytes / threads;
        job[i].seconds = seconds;
        job[i].result = 0.0;
        if (pthread_create(&thread[i], NULL, peak_thread, &job[i]) != 0) {
            break;
        }
        started++;
    }
    for (i = 0; i < started; i++) {
        pthread_join(thread[i], NULL);
        sum += job[i].result;
    }
    return sum;
}
#endif
