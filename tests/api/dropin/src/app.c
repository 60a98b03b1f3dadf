/* app.c - a program that vendors whisper_npu: app MODEL RECORDING.wav prints JSON. With OTHER_COPY
 * it is a module of such a program instead, and brings a renamed copy of the library: see two.c. */
#include <stdio.h>
#include <stdlib.h>

#include "whisper_npu.h"

static int64_t print(void *user, const void *data, size_t size)
{
    return (int64_t)fwrite(data, 1, size, (FILE *)user);
}

/* NULL when it cannot be read; free() it. */
static void *load(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    void *bytes = malloc(4 << 20);
    *size = file == NULL || bytes == NULL ? 0 : fread(bytes, 1, 4 << 20, file);
    if (file != NULL) {
        fclose(file);
    }
    return bytes;
}

static int hear(const char *model_path, const char *wav_path)
{
    wnpu_model *model = NULL;
    wnpu_session *session = NULL;
    wnpu_config config;
    wnpu_params params;
    wnpu_audio audio;
    wnpu_error error = {0, ""};
    size_t wav_size, model_size;
    void *wav = load(wav_path, &wav_size), *file = load(model_path, &model_size);
    int status;
    wnpu_config_init(&config, sizeof config);
    config.threads = 2;
    wnpu_params_init(&params, sizeof params);
    params.vad = 0; /* noise is no speech */
    params.max_tokens = 8;
    params.temperature_step = 0.0f; /* a toy passes no gate, and need not try */
    wnpu_audio_init(&audio, sizeof audio);
    status = wnpu_self_test(NULL, &error);
    status = status != WNPU_OK ? status :
             wnpu_model_open_memory(&model, file, model_size, NULL, &error);
    status = status != WNPU_OK ? status :
             wnpu_session_open(&session, model, &config, NULL, 0, &error);
    status = status != WNPU_OK ? status : wnpu_wav_open(&audio, wav, wav_size, &error);
    status = status != WNPU_OK ? status : wnpu_transcribe(session, &params, &audio);
    status = status != WNPU_OK ? status :
             wnpu_write(session, WNPU_FORMAT_JSON, print, stdout);
    if (status != WNPU_OK) {
        fprintf(stderr, "%s: %s %s\n", wnpu_strerror(status), error.message,
                wnpu_session_error(session));
    }
    wnpu_session_close(session);
    wnpu_model_close(model);
    free(file);
    free(wav);
    return status != WNPU_OK;
}

#ifdef OTHER_COPY
int OTHER_COPY(const char *model_path, const char *wav_path);

int OTHER_COPY(const char *model_path, const char *wav_path)
{
    return hear(model_path, wav_path);
}
#else
int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: app MODEL RECORDING.wav\n");
        return 1;
    }
    return hear(argv[1], argv[2]);
}
#endif
