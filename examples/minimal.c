/* minimal.c - transcribes a WAV file with a model; the example in whisper_npu.h.
 *     cc -I. examples/minimal.c whisper_npu.c -o minimal -lm -lpthread */
#include <stdio.h>
#include "whisper_npu.h"

static int64_t read_file(void *file, void *buffer, size_t size)
{
    size_t n = fread(buffer, 1, size, (FILE *)file);
    return n > 0 || !ferror((FILE *)file) ? (int64_t)n : -1;
}

int main(int argc, char **argv)
{
    wnpu_model *model = NULL;
    wnpu_session *session = NULL;
    wnpu_wav_reader wav;
    wnpu_audio audio;
    wnpu_segment segment;
    wnpu_error error = {0, ""};
    size_t i;
    int status = -1;
    FILE *file = argc == 3 ? fopen(argv[2], "rb") : NULL;

    if (file == NULL) {
        fprintf(stderr, "usage: minimal MODEL.bin RECORDING.wav\n");
        return 1;
    }
    wnpu_audio_init(&audio, sizeof audio);
    wnpu_wav_reader_init(&wav, sizeof wav);
    wav.read = read_file;
    wav.user = file;
    if (wnpu_model_open(&model, argv[1], NULL, &error) == WNPU_OK &&
        wnpu_session_open(&session, model, NULL, NULL, 0, &error) == WNPU_OK &&
        wnpu_wav_reader_open(&wav, &audio, &error) == WNPU_OK) {
        status = wnpu_transcribe(session, NULL, &audio);
        for (i = 0; wnpu_get_segment(session, i, &segment) == WNPU_OK; i++)
            printf("%s\n", segment.text);
    }
    if (status != WNPU_OK)
        fprintf(stderr, "%s\n", error.code ? error.message : wnpu_session_error(session));
    wnpu_session_close(session);
    wnpu_model_close(model);
    fclose(file);
    return status != WNPU_OK;
}
