/* Runs the tests of test_gm.c with section 8's AVX-512 kernels on top of SIMDe, an emulation of the
 * intrinsics in plain C, so that machines without AVX-512 test them too. */
#define _POSIX_C_SOURCE 200809L
#if defined(__x86_64__) && defined(__has_include)
#if __has_include(<simde/x86/avx512.h>)
#define HAVE_SIMDE 1
#endif
#endif

#ifdef HAVE_SIMDE
#include <immintrin.h>
#pragma GCC diagnostic ignored "-Wpsabi" /* vectors do not cross files here */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wpedantic"
#include <simde/x86/avx512.h>
#pragma GCC diagnostic pop
#include <string.h>

/* vpdpbusd from its description in Intel's manual: four products of an unsigned and a signed byte
 * are added to an int32, modulo 2^32. */
static simde__m512i emulated_dpbusd(simde__m512i sum, simde__m512i u, simde__m512i s)
{
    uint32_t c[16];
    uint8_t a[64];
    int8_t b[64];
    int i, j;
    memcpy(c, &sum, 64);
    memcpy(a, &u, 64);
    memcpy(b, &s, 64);
    for (i = 0; i < 16; i++) {
        for (j = 0; j < 4; j++) {
            c[i] += (uint32_t)(a[i * 4 + j] * b[i * 4 + j]);
        }
    }
    memcpy(&sum, c, 64);
    return sum;
}

/* The intrinsics that section 8 uses, now that the compiler's own headers have been read. */
#define GM_EMULATED
#define __m512i simde__m512i
#define _mm512_set1_epi8(a) simde_mm512_set1_epi8(a)
#define _mm512_set1_epi32(a) simde_mm512_set1_epi32(a)
#define _mm512_setzero_si512() simde_mm512_setzero_si512()
#define _mm512_xor_si512(a, b) simde_mm512_xor_si512(a, b)
#define _mm512_sub_epi32(a, b) simde_mm512_sub_epi32(a, b)
#define _mm512_loadu_si512(p) simde_mm512_loadu_si512(p)
#define _mm512_storeu_si512(p, a) simde_mm512_storeu_si512(p, a)
#define _mm512_dpbusd_epi32(c, a, b) emulated_dpbusd(c, a, b)
#define TEST_EMULATED (&gm_avx512)
#include "test_gm.c"
#else
#include "t.h"

static void test_missing(void)
{
    t_skip("needs x86-64 and the SIMDe headers (libsimde-dev)");
}

int main(void)
{
    t_run("AVX-512 kernels on an emulation", test_missing);
    return t_end();
}
#endif
