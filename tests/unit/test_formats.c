/* test_formats.c - what is read: vocabularies, models, Hugging Face models, sound, snapshots.
 *
 *     build/tests/test_formats [NAME...]     these files (model, ...), or tests called like that */
#define _GNU_SOURCE
#include "../../whisper_npu.c"
#include "../lib/life.h"
#include "tokenizer.c"
#include "model.c"
#include "hf.c"
#include "audio.c"
#include "forged.c"

int main(int argc, char **argv)
{
    static const t_file files[] = {
        {"tokenizer", tokenizer_tests},
        {"model", model_tests},
        {"hf", hf_tests},
        {"audio", audio_tests},
        {"forged", forged_tests},
        {NULL, NULL}
    };
    (void)argc;
    return t_files(files, argv + 1);
}
