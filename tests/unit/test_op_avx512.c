/* Section op_'s operators for AVX-512, AVX-VNNI and AMX on top of an emulation of the intrinsics, so
 * that machines without these test them too: they must give the bits of the definition. */
#define _POSIX_C_SOURCE 200809L
#include "simde_avx512.h"

#ifdef HAVE_SIMDE
#define main core_main
#include "test_core.c"
#undef main

static void emulated(void)
{
    same_answers(&op_512_kernels, "AVX-512 emulated");
    same_products(&op_512_kernels, &gm_avx512);
#ifdef WNPU_VNNI
    same_answers(&op_vnni_kernels, "AVX-VNNI emulated");
    same_products(&op_vnni_kernels, &gm_vnni);
#endif
#ifdef WNPU_AMX
    same_answers(&op_amx_kernels, "AMX emulated");
    same_products(&op_amx_kernels, &gm_amx);
#endif
}
#else
#include "../lib/t.h"

static void emulated(void)
{
    t_skip("needs x86-64 and the SIMDe headers (libsimde-dev)");
}
#endif

int main(void)
{
    t_run("AVX-512, AVX-VNNI and AMX operators on an emulation", emulated);
    return t_end();
}

#if defined(HAVE_SIMDE) && defined(__clang__)
#pragma clang attribute pop
#endif
