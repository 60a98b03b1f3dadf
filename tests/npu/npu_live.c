/* npu_live.c - recordings live by way of the NPU: pushed in pieces, with steps between, they must give
 * the JSON of a whole run on the CPU, to the byte. tests/npu/npu_speech.sh runs it on the simulated
 * device.
 *
 *     npu_live MODEL PACK RECORDING.wav...      PACK: a directory, or "auto"
 *
 * Prints how many are the same. */
#define _GNU_SOURCE 1
#include "../../examples/kit/npu.h"
#include "../lib/life.h"

enum { PIECE_MS = 700 };

static int failed(const char *what, const char *why)
{
    fprintf(stderr, "npu_live: %s: %s\n", what, why);
    return 1;
}

static wnpu_session *open_session(const wnpu_model *model, wnpu_accel *accel)
{
    wnpu_config c;
    wnpu_config_init(&c, sizeof c);
    c.stream_bytes = 1 << 22;
    c.accel = accel;
    c.require_accel = accel != NULL;
    c.accel_use = WNPU_ACCEL_ALL;
    return life_open(model, &c);
}

/* The default parameters of a live run, which a whole run has to be given, but in English and with
 * words. */
static wnpu_params params_of_live(void)
{
    wnpu_params p;
    wnpu_params_init(&p, sizeof p);
    p.language = 0;
    p.words = 1;
    p.least_ms = 3000;
    p.pause_ms = 700;
    return p;
}

static int run_live(wnpu_session *s, const wnpu_params *p, const wnpu_audio *a)
{
    wnpu_stream_options o = life_stream(a, 500);
    uint64_t at = 0;
    int status = wnpu_stream_begin(s, p, &o);
    while (status == WNPU_OK && at < a->frames) {
        life_push(s, a, &at, a->rate / 1000 * PIECE_MS);
        status = wnpu_stream_step(s, NULL);
    }
    return status == WNPU_OK ? wnpu_stream_finish(s) : status;
}

/* Whether the NPU has done everything that was assigned to it, and that was something. */
static int did_all(const wnpu_session *s)
{
    wnpu_accel_stats t;
    t.struct_size = sizeof t;
    return wnpu_get_accel_stats(s, &t) == WNPU_OK && t.accel_macs > 0 && t.fallbacks == 0 &&
           t.windows_without == 0;
}

static int compare(wnpu_session *cpu, wnpu_session *npu, const char *path)
{
    wnpu_params p = params_of_live();
    wnpu_error error = {0, ""};
    wnpu_audio a;
    life_bytes want = {NULL, 0}, is = {NULL, 0};
    size_t size = 0;
    unsigned char *file = life_load(path, &size);
    int status, bad;
    wnpu_audio_init(&a, sizeof a);
    if (file == NULL || wnpu_wav_open(&a, file, size, &error) != WNPU_OK) {
        free(file);
        return failed(path, file == NULL ? "cannot be read" : error.message);
    }
    status = wnpu_transcribe(cpu, &p, &a);
    bad = status < 0 ? failed(path, wnpu_session_error(cpu)) : 0;
    if (!bad && run_live(npu, &p, &a) != status) {
        bad = failed(path, wnpu_session_error(npu));
    }
    if (!bad) {
        want = life_written(cpu, WNPU_FORMAT_JSON);
        is = life_written(npu, WNPU_FORMAT_JSON);
        bad = !life_alike(want, is) ? failed(path, "other results")
            : !did_all(npu) ? failed(path, "the CPU did some of it") : 0;
    }
    free(want.bytes);
    free(is.bytes);
    free(file);
    return bad;
}

int main(int argc, char **argv)
{
    wnpu_model *model = NULL;
    wnpu_accel *accel = NULL;
    wnpu_session *cpu, *npu;
    wnpu_error error = {0, ""};
    int i, bad = 0;
    if (argc < 4) {
        return failed("usage", "npu_live MODEL PACK RECORDING.wav...");
    }
    if (wnpu_model_open(&model, argv[1], NULL, &error) != WNPU_OK) {
        return failed(argv[1], error.message);
    }
    if (npu_open(&accel, argv[2], model, NULL, NULL) != WNPU_OK) {
        return 1;
    }
    cpu = open_session(model, NULL);
    npu = open_session(model, accel);
    for (i = 3; i < argc; i++) {
        bad += compare(cpu, npu, argv[i]);
    }
    printf("live: %d of %d files are the same\n", argc - 3 - bad, argc - 3);
    wnpu_session_close(cpu);
    wnpu_session_close(npu);
    npu_close(accel);
    wnpu_model_close(model);
    return bad != 0 || t_bad != 0;
}
