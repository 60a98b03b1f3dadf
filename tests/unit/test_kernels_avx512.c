/* test_kernels_avx512.c - the matrix products and operators for AVX-512, AVX-VNNI and AMX on an
 * emulation of the intrinsics, so that machines without these instruction sets test them too: they
 * must give the bits of the definition. */
#define _GNU_SOURCE
#include "simde_avx512.h"

#ifdef HAVE_SIMDE
#define TEST_EMULATED
#include "../../whisper_npu.c"
#include "gm.c"
#include "core.c"

static void operators(void)
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

static void operators(void)
{
    t_skip("needs x86-64 and the SIMDe headers (libsimde-dev)");
}

static void gm_tests(void)
{
    t_run("AVX-512, AVX-VNNI and AMX kernels on an emulation", operators);
}
#endif

static void op_tests(void)
{
    t_run("AVX-512, AVX-VNNI and AMX operators on an emulation", operators);
}

int main(int argc, char **argv)
{
    static const t_file files[] = {{"gm", gm_tests}, {"op", op_tests}, {NULL, NULL}};
    (void)argc;
    return t_files(files, argv + 1);
}

#if defined(HAVE_SIMDE) && defined(__clang__)
#pragma clang attribute pop
#endif
