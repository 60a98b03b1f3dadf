/* test_decoding.c - whole runs and their parts: sessions, judgements, search, words, voice activity
 * detection, batches, accelerators, tentative text.
 *
 *     build/tests/test_decoding [NAME...]    these files (search, ...), or tests called like that */
#define _GNU_SOURCE
#include "../../whisper_npu.c"
#include "../lib/life.h"
#include "session.c"
#include "judge.c"
#include "search.c"
#include "words.c"
#include "voice.c"
#include "voices.c"
#include "batch.c"
#include "accel.c"
#include "live.c"

int main(int argc, char **argv)
{
    static const t_file files[] = {
        {"session", session_tests}, /* first: see permission() */
        {"judge", judge_tests},
        {"search", search_tests},
        {"words", words_tests},
        {"voice", voice_tests},
        {"voices", voices_tests},
        {"batch", batch_tests},
        {"accel", accel_tests},
        {"live", live_tests},
        {NULL, NULL}
    };
    (void)argc;
    return t_files(files, argv + 1);
}
