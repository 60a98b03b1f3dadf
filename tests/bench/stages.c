/* stages.c - times one stage of the library each time that a line on standard input names it, and
 * prints the CPU time in milliseconds. tests/bench/compare.sh runs two of these in turn.
 *
 *     stages MODEL ISA RECORDING.wav
 *
 * Stages: encoder (a window of 30 s), token (the decoder's step), beams8 and windows8 (a step for
 * eight beams, or for eight windows) and clip (the recording, greedy). One thread, so that CPU time
 * is what the stage takes on an idle machine. LIBRARY is the whisper_npu.c to include, which may be
 * of another commit: what is used here should rarely change its name. */
#include LIBRARY
#include "../lib/machine.h"
#include "steps.h"

typedef struct stages {
    wnpu_model *model;
    wnpu_session *session;
    wnpu_audio audio;
    float samples[ML_SPAN];
    de_decoder decoder; /* of its own, with eight slots and windows */
} stages;

enum { STEPS = 21, FROM = 80, ROWS = 8 };

static void die(const char *what, const char *why)
{
    fprintf(stderr, "stages: %s: %s\n", what, why);
    exit(1);
}

static void open_audio(stages *s, const char *path)
{
    FILE *f = fopen(path, "rb");
    const size_t room = (size_t)64 << 20;
    char *data = malloc(room);
    wnpu_error error;
    size_t n = f != NULL && data != NULL ? fread(data, 1, room, f) : 0;
    wnpu_audio_init(&s->audio, sizeof s->audio);
    if (n == 0 || wnpu_wav_open(&s->audio, data, n, &error) != WNPU_OK) {
        die(path, n == 0 ? "cannot be read" : error.message);
    }
    fclose(f);
}

static void open_all(stages *s, const char *model, const char *isa, const char *recording)
{
    wnpu_error error;
    if (steps_session(model, isa, &s->model, &s->session, &error) != WNPU_OK) {
        die(model, error.message);
    }
    steps_noise(s->samples);
    en_log_mel(&s->session->run.engine, s->samples, ML_FRAMES);
    en_run(&s->session->run.engine);
    if (steps_open(&s->decoder, &s->session->run.engine, ROWS, ROWS) == NULL) {
        die("decoder", "out of memory");
    }
    open_audio(s, recording);
}

static double steps(stages *s, size_t rows, size_t windows)
{
    double time[STEPS], since;
    int32_t token[ROWS];
    de_row row[DE_ROWS];
    size_t i;
    steps_start(token, rows);
    for (i = 0; i < STEPS; i++) {
        steps_rows(row, token, rows, windows, FROM + i);
        since = cpu_ms();
        de_step(&s->decoder, row, rows);
        time[i] = cpu_ms() - since;
        steps_next(&s->decoder, token, rows);
    }
    return median(time, STEPS);
}

static double stage(stages *s, const char *name)
{
    double since;
    if (strcmp(name, "token") == 0) {
        return steps(s, 1, 1);
    }
    if (strcmp(name, "beams8") == 0) {
        return steps(s, ROWS, 1);
    }
    if (strcmp(name, "windows8") == 0) {
        return steps(s, ROWS, ROWS);
    }
    since = cpu_ms();
    if (strcmp(name, "encoder") == 0) {
        en_log_mel(&s->session->run.engine, s->samples, ML_FRAMES);
        en_run(&s->session->run.engine);
    } else if (strcmp(name, "clip") == 0) {
        if (wnpu_transcribe(s->session, NULL, &s->audio) != WNPU_OK) {
            die("clip", wnpu_session_error(s->session));
        }
    } else {
        die(name, "unknown stage");
    }
    return cpu_ms() - since;
}

int main(int argc, char **argv)
{
    static stages s;
    char name[40];
    if (argc != 4) {
        die("usage", "stages MODEL ISA RECORDING.wav");
    }
    open_all(&s, argv[1], argv[2], argv[3]);
    while (scanf("%39s", name) == 1) {
        printf("%.4f\n", stage(&s, name));
        fflush(stdout);
    }
    return 0;
}
