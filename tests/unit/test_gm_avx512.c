/* Runs the tests of test_gm.c with section gm_'s kernels for AVX-512, AVX-VNNI and AMX on top of an
 * emulation of the intrinsics, so that machines without these test them too. */
#define _POSIX_C_SOURCE 200809L
#include "simde_avx512.h"

#ifdef HAVE_SIMDE
#define TEST_EMULATED
#include "test_gm.c"
#else
#include "../lib/t.h"

static void test_missing(void)
{
    t_skip("needs x86-64 and the SIMDe headers (libsimde-dev)");
}

int main(void)
{
    t_run("AVX-512, AVX-VNNI and AMX kernels on an emulation", test_missing);
    return t_end();
}
#endif

#if defined(HAVE_SIMDE) && defined(__clang__)
#pragma clang attribute pop
#endif
