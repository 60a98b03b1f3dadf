/* test_kernels.c - sections of numbers, from the matrix product to attention, and the self test.
 *
 *     build/tests/test_kernels [NAME...]     these files (gm, core, ...), or tests called like that
 *     build/tests/test_kernels --answers     see self.c */
#define _GNU_SOURCE
#include "../../whisper_npu.c"
#include "../lib/life.h"
#include "gm.c"
#include "core.c"
#include "mel.c"
#include "attention.c"
#include "self.c"

int main(int argc, char **argv)
{
    static const t_file files[] = {
        {"gm", gm_tests},
        {"core", core_tests},
        {"mel", mel_tests},
        {"attention", attention_tests},
        {"self", self_tests},
        {NULL, NULL}
    };
    if (argc == 2 && strcmp(argv[1], "--answers") == 0) {
        return print_answers();
    }
    return t_files(files, argv + 1);
}
