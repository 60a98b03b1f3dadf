/* simde_avx512.h - the AVX-512, AVX-VNNI and AMX intrinsics of whisper_npu.c on top of SIMDe, an
 * emulation in plain C, for tests on machines without them. To be included before whisper_npu.c.
 * HAVE_SIMDE tells whether there is an emulation here.
 *
 * The functions that use the intrinsics carry an attribute that would let the compiler put AVX-512
 * around the emulation. So all target attributes are taken away, and AVX2 is what the whole test is
 * compiled for. */
#ifndef SIMDE_AVX512_H
#define SIMDE_AVX512_H
#if defined(__x86_64__) && defined(__has_include)
#if __has_include(<simde/x86/avx512.h>)
#define HAVE_SIMDE 1
#endif
#endif

#ifdef HAVE_SIMDE
#include <immintrin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((constructor)) static void emulated_or_not(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2")) {
        puts("skipped: this CPU has no AVX2\nt: 0 passed, 0 failed, 1 skipped");
        exit(0);
    }
}

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* in the emulation as well, see section 1 of whisper_npu.c */
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function) /* popped last */
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#pragma GCC optimize("fp-contract=off")
#pragma GCC target("avx2")
#endif
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wpedantic"
#include <simde/x86/avx512.h>
#pragma GCC diagnostic pop

/* What SIMDe lacks, from the descriptions in Intel's manual. */

/* vpdpbusd: four products of an unsigned and a signed byte are added to an int32, modulo 2^32. */
__attribute__((unused))
static void emulated_products(void *sums, const void *left, const void *right, int n)
{
    uint32_t c[16];
    uint8_t a[64];
    int8_t b[64];
    int i, j;
    memcpy(c, sums, (size_t)n * 4);
    memcpy(a, left, (size_t)n * 4);
    memcpy(b, right, (size_t)n * 4);
    for (i = 0; i < n; i++) {
        for (j = 0; j < 4; j++) {
            c[i] += (uint32_t)(a[i * 4 + j] * b[i * 4 + j]);
        }
    }
    memcpy(sums, c, (size_t)n * 4);
}

__attribute__((always_inline, unused)) /* vectors that are passed would draw a warning */
static inline simde__m512i emulated_dpbusd(simde__m512i sum, simde__m512i u, simde__m512i s)
{
    emulated_products(&sum, &u, &s, 16);
    return sum;
}

__attribute__((unused)) static __m256i emulated_near_dpbusd(__m256i sum, __m256i u, __m256i s)
{
    emulated_products(&sum, &u, &s, 8);
    return sum;
}

/* vpmulhuw: the upper halves of products of 16 bits. */
__attribute__((unused)) static simde__m512i emulated_high(simde__m512i a, simde__m512i b)
{
    uint16_t x[32], y[32];
    int i;
    memcpy(x, &a, 64);
    memcpy(y, &b, 64);
    for (i = 0; i < 32; i++) {
        x[i] = (uint16_t)((uint32_t)x[i] * y[i] >> 16);
    }
    memcpy(&a, x, 64);
    return a;
}

/* vpmovdb: the low byte of each int32. */
__attribute__((unused)) static simde__m128i emulated_low_bytes(simde__m512i v)
{
    simde__m128i result;
    uint32_t x[16];
    uint8_t low[16];
    int i;
    memcpy(x, &v, 64);
    for (i = 0; i < 16; i++) {
        low[i] = (uint8_t)(x[i] & 255u);
    }
    memcpy(&result, low, 16);
    return result;
}

/* vcvtdq2ps: rounded to the nearest float, ties to even. */
__attribute__((unused)) static simde__m512 emulated_to_float(simde__m512i v)
{
    simde__m512 result;
    int32_t x[16];
    float f[16];
    int i;
    memcpy(x, &v, 64);
    for (i = 0; i < 16; i++) {
        f[i] = (float)x[i];
    }
    memcpy(&result, f, 64);
    return result;
}

/* vcvtps2dq: rounded to the nearest integer, ties to even; 0x80000000 for what does not fit. */
__attribute__((unused)) static simde__m512i emulated_to_int(simde__m512 v)
{
    simde__m512i result;
    float f[16];
    int32_t x[16];
    int i;
    memcpy(f, &v, 64);
    for (i = 0; i < 16; i++) {
        x[i] = _mm_cvtss_si32(_mm_set_ss(f[i]));
    }
    memcpy(&result, x, 64);
    return result;
}

/* vcvtph2ps: halves to floats, exact. */
__attribute__((unused)) static simde__m512 emulated_from_halves(simde__m256i v)
{
    simde__m512 result;
    uint16_t h[16];
    float f[16];
    int i;
    memcpy(h, &v, 32);
    for (i = 0; i < 16; i++) {
        int exponent = h[i] >> 10 & 31, fraction = h[i] & 1023;
        f[i] = exponent == 31 ? (fraction != 0 ? NAN : INFINITY) :
               ldexpf((float)(exponent > 0 ? fraction + 1024 : fraction),
                      (exponent > 0 ? exponent : 1) - 25);
        f[i] = h[i] >> 15 ? -f[i] : f[i];
    }
    memcpy(&result, f, 64);
    return result;
}

/* vpmovsxbd. */
__attribute__((unused)) static simde__m512i emulated_from_bytes(__m128i v)
{
    simde__m512i result;
    int8_t x[16];
    int32_t y[16];
    int i;
    memcpy(x, &v, 16);
    for (i = 0; i < 16; i++) {
        y[i] = x[i];
    }
    memcpy(&result, y, 64);
    return result;
}

/* The largest of 16 floats, none of which is a NaN. */
__attribute__((unused)) static float emulated_largest(simde__m512 v)
{
    float f[16];
    int i;
    memcpy(f, &v, 64);
    for (i = 1; i < 16; i++) {
        f[0] = f[i] > f[0] ? f[i] : f[0];
    }
    return f[0];
}

/* The sum of 16 integers, modulo 2^32. */
__attribute__((unused)) static int32_t emulated_sum(simde__m512i v)
{
    uint32_t part[16];
    int i;
    memcpy(part, &v, 64);
    for (i = 1; i < 16; i++) {
        part[0] += part[i];
    }
    return (int32_t)part[0];
}

/* ---- AMX, from the descriptions in Intel's manual ---- */

/* Eight tiles, and the shape of each: none without a configuration. */
static struct emulated_tile {
    unsigned rows, bytes; /* bytes of a row */
    uint8_t data[16][64];
} emulated_tiles[8];

__attribute__((unused)) static struct emulated_tile *emulated_tile(unsigned t)
{
    if (emulated_tiles[t].rows == 0) {
        printf("tile %u is used without a configuration\n", t);
        abort();
    }
    return &emulated_tiles[t];
}

/* ldtilecfg: clears all tiles. Byte 0 is the palette, 16 to 31 have the bytes of rows of 8 tiles,
 * 48 to 55 their rows. */
__attribute__((unused)) static void emulated_configure(const void *config)
{
    uint8_t byte[64];
    unsigned t;
    memcpy(byte, config, 64);
    memset(emulated_tiles, 0, sizeof emulated_tiles);
    for (t = 0; t < 8; t++) {
        struct emulated_tile *to = &emulated_tiles[t];
        to->bytes = (unsigned)(byte[16 + 2 * t] + 256 * byte[17 + 2 * t]);
        to->rows = byte[48 + t];
        if (byte[0] != 1 || byte[1] != 0 || to->rows > 16 || to->bytes > 64 ||
            (to->rows == 0) != (to->bytes == 0)) {
            puts("a configuration of tiles that a CPU would refuse");
            abort();
        }
    }
}

__attribute__((unused)) static void emulated_zero(unsigned t)
{
    memset(emulated_tile(t)->data, 0, sizeof emulated_tiles[t].data);
}

__attribute__((unused)) static void emulated_load(unsigned t, const void *from, size_t stride)
{
    struct emulated_tile *to = emulated_tile(t);
    unsigned r;
    for (r = 0; r < to->rows; r++) {
        memset(to->data[r], 0, 64);
        memcpy(to->data[r], (const uint8_t *)from + r * stride, to->bytes);
    }
}

__attribute__((unused)) static void emulated_store(unsigned t, void *to, size_t stride)
{
    const struct emulated_tile *from = emulated_tile(t);
    unsigned r;
    for (r = 0; r < from->rows; r++) {
        memcpy((uint8_t *)to + r * stride, from->data[r], from->bytes);
    }
}

/* tdpbusd: rows of unsigned bytes by groups of 4 signed ones, modulo 2^32. */
__attribute__((unused)) static void emulated_dot(unsigned sums, unsigned left, unsigned right)
{
    struct emulated_tile *c = emulated_tile(sums);
    const struct emulated_tile *a = emulated_tile(left), *b = emulated_tile(right);
    unsigned m, k, n, i;
    if (a->rows != c->rows || b->rows * 4 != a->bytes || b->bytes != c->bytes) {
        puts("tiles of shapes that do not fit");
        abort();
    }
    for (m = 0; m < c->rows; m++) {
        uint32_t row[16];
        memcpy(row, c->data[m], 64);
        for (k = 0; k < b->rows; k++) {
            for (n = 0; n < 16; n++) {
                for (i = 0; i < 4; i++) {
                    row[n] += (uint32_t)(a->data[m][k * 4 + i] * (int8_t)b->data[k][n * 4 + i]);
                }
            }
        }
        memcpy(c->data[m], row, 64);
    }
}

/* The intrinsics that are in use, now that the compiler's own headers have been read. */
#define GM_EMULATED
#define target(sets)
#undef _tile_dpbusd
#undef _tile_loadconfig
#undef _tile_loadd
#undef _tile_release
#undef _tile_stored
#undef _tile_zero
#undef _mm256_dpbusd_avx_epi32
#undef _mm512_cmp_ps_mask
#undef _mm512_setr_epi32
#undef _mm512_slli_epi16
#undef _mm512_slli_epi32
#undef _mm512_srli_epi16
#undef _mm512_srli_epi32
#define __m512 simde__m512
#define __m512i simde__m512i
#define __mmask16 simde__mmask16
#define _mm256_dpbusd_avx_epi32(c, a, b) emulated_near_dpbusd(c, a, b)
#define _mm512_abs_ps(a) simde_mm512_abs_ps(a)
#define _mm512_add_epi32(a, b) simde_mm512_add_epi32(a, b)
#define _mm512_add_ps(a, b) simde_mm512_add_ps(a, b)
#define _mm512_and_si512(a, b) simde_mm512_and_si512(a, b)
#define _mm512_castpd_ps(a) simde_mm512_castpd_ps(a)
#define _mm512_castps512_ps256(a) simde_mm512_castps512_ps256(a)
#define _mm512_castps_pd(a) simde_mm512_castps_pd(a)
#define _mm512_castps_si512(a) simde_mm512_castps_si512(a)
#define _mm512_castsi512_ps(a) simde_mm512_castsi512_ps(a)
#define _mm512_cmp_ps_mask(a, b, how) simde_mm512_cmp_ps_mask(a, b, how)
#define _mm512_cvtepi32_epi8(a) emulated_low_bytes(a)
#define _mm512_cvtepi32_ps(a) emulated_to_float(a)
#define _mm512_cvtepi8_epi32(a) emulated_from_bytes(a)
#define _mm512_cvtph_ps(a) emulated_from_halves(a)
#define _mm512_cvtps_epi32(a) emulated_to_int(a)
#define _mm512_div_ps(a, b) simde_mm512_div_ps(a, b)
#define _mm512_dpbusd_epi32(c, a, b) emulated_dpbusd(c, a, b)
#define _mm512_loadu_ps(p) simde_mm512_loadu_ps(p)
#define _mm512_loadu_si512(p) simde_mm512_loadu_si512(p)
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
#define _mm512_mask_mov_epi32(a, m, b) simde_mm512_mask_mov_epi32(a, m, b)
#define _mm512_maskz_compress_epi32(m, a) simde_mm512_maskz_compress_epi32(m, a)
#define _mm512_maskz_mov_ps(m, a) simde_mm512_maskz_mov_ps(m, a)
#define _mm512_max_epi16(a, b) simde_mm512_max_epi16(a, b)
#define _mm512_max_epi32(a, b) simde_mm512_max_epi32(a, b)
#define _mm512_max_ps(a, b) simde_mm512_max_ps(a, b)
#define _mm512_min_epi32(a, b) simde_mm512_min_epi32(a, b)
#define _mm512_min_ps(a, b) simde_mm512_min_ps(a, b)
#define _mm512_mul_ps(a, b) simde_mm512_mul_ps(a, b)
#define _mm512_mullo_epi32(a, b) simde_mm512_mullo_epi32(a, b)
#define _mm512_mulhi_epu16(a, b) emulated_high(a, b)
#define _mm512_mulhrs_epi16(a, b) simde_mm512_mulhrs_epi16(a, b)
#define _mm512_packs_epi32(a, b) simde_mm512_packs_epi32(a, b)
#define _mm512_packus_epi16(a, b) simde_mm512_packus_epi16(a, b)
#define _mm512_packus_epi32(a, b) simde_mm512_packus_epi32(a, b)
#define _mm512_permutexvar_epi32(i, a) simde_mm512_permutexvar_epi32(i, a)
#define _mm512_reduce_add_epi32(a) emulated_sum(a)
#define _mm512_reduce_max_ps(a) emulated_largest(a)
#define _mm512_set1_epi16(a) simde_mm512_set1_epi16(a)
#define _mm512_set1_epi32(a) simde_mm512_set1_epi32(a)
#define _mm512_set1_epi8(a) simde_mm512_set1_epi8(a)
#define _mm512_set1_ps(a) simde_mm512_set1_ps(a)
#define _mm512_setr_epi32(...) simde_mm512_setr_epi32(__VA_ARGS__)
#define _mm512_setzero_ps() simde_mm512_setzero_ps()
#define _mm512_setzero_si512() simde_mm512_setzero_si512()
#define _mm512_slli_epi16(a, n) simde_mm512_slli_epi16(a, n)
#define _mm512_slli_epi32(a, n) simde_mm512_slli_epi32(a, n)
#define _mm512_srli_epi16(a, n) simde_mm512_srli_epi16(a, n)
#define _mm512_srli_epi32(a, n) simde_mm512_srli_epi32(a, n)
#define _mm512_srlv_epi16(a, b) simde_mm512_srlv_epi16(a, b)
#define _mm512_storeu_ps(p, a) simde_mm512_storeu_ps(p, a)
#define _mm512_storeu_si512(p, a) simde_mm512_storeu_si512(p, a)
#define _mm512_sub_epi16(a, b) simde_mm512_sub_epi16(a, b)
#define _mm512_sub_epi32(a, b) simde_mm512_sub_epi32(a, b)
#define _mm512_sub_ps(a, b) simde_mm512_sub_ps(a, b)
#define _mm512_subs_epi16(a, b) simde_mm512_subs_epi16(a, b)
#define _mm512_xor_si512(a, b) simde_mm512_xor_si512(a, b)
#define _tile_dpbusd(c, a, b) emulated_dot(c, a, b)
#define _tile_loadconfig(p) emulated_configure(p)
#define _tile_loadd(t, p, stride) emulated_load(t, p, stride)
#define _tile_release() memset(emulated_tiles, 0, sizeof emulated_tiles)
#define _tile_stored(t, p, stride) emulated_store(t, p, stride)
#define _tile_zero(t) emulated_zero(t)
#endif
#endif
