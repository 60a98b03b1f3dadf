/* bench_work - the stages of a run, to be counted under an emulator or timed; for cpu_estimate.py.
 *
 *     bench_work count MODEL ISA    each counted part once, between two calls of work_mark()
 *     bench_work time MODEL ISA     CPU time of each stage in ms, the least of several
 *     bench_work about MODEL ISA    sizes only
 *
 * One thread. Counted parts are small, because an emulator logs every block of instructions: the
 * encoder is run with 1 and 2 layers for 128 positions and with 1 layer for 256, the keys and values
 * of the cross-attention are computed for 128, and the detector hears 5 s. cpu_estimate.py derives
 * the whole stages. Open a pack: it is mapped, and opening other files takes longer than the parts.
 * Prints "NAME VALUE" on standard output. */
#include "../../whisper_npu.c"
#include "../lib/machine.h"
#include "peak.h"
#include "steps.h"

enum { PART = 128, POSITION = 100, ROUNDS = 7, ROUNDS_MS = 1000, DETECTOR_SECONDS = 5 };

typedef struct work {
    wnpu_model *model;
    wnpu_session *session;
    en_engine *e;
    uint32_t layers;
    float samples[ML_SPAN];
    de_decoder decoder;
    void *memory;
    int32_t token[1];
} work;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_work: %s: %s\n", what, why);
    exit(1);
}

/* What lies between the first call and the second, the third and the fourth, and so on is counted. */
void work_mark(void);
__attribute__((noinline)) void work_mark(void)
{
    __asm__ volatile("" ::: "memory");
}

/* The model's number of layers is changed: it was opened here, and nothing else uses it. */
static void set_encoder(work *w, size_t positions, uint32_t layers)
{
    w->e->positions = positions;
    w->model->n_audio_layer = layers;
}

static void open_all(work *w, const char *model, const char *isa)
{
    wnpu_error error;
    if (steps_session(model, isa, &w->model, &w->session, &error) != WNPU_OK) {
        die(model, error.message);
    }
    w->e = &w->session->run.engine;
    w->layers = w->model->n_audio_layer;
    steps_noise(w->samples);
    printf("encoder_macs %.0f\ntoken_bytes %.0f\nencoder_bytes %.0f\nsession_bytes %.0f\n"
           "layers %u\ndecoder_layers %u\npositions %u\n", encoder_macs(w->model),
           step_bytes(w->model, POSITION),
           12.0 * w->model->n_audio_state * w->model->n_audio_state * w->layers *
               (double)en_blocks(w->model->n_audio_ctx, w->e->rows),
           (double)w->session->size, w->layers,
           w->model->n_text_layer, w->model->n_audio_ctx);
}

/* Positions n and on of the caches are those before them again: only their number matters. */
static void repeat_heads(en_heads *h, size_t n, size_t end)
{
    size_t head, t, c;
    for (head = 0; head < h->heads; head++) {
        const size_t base = head * h->keys;
        for (t = n; t + 16 <= end; t += 16) {
            const size_t to = base + t, from = base + t % n;
            memcpy(h->k + to * h->hd, h->k + from * h->hd, 16 * h->hd);
            memcpy(h->k_correction + to, h->k_correction + from, 16 * sizeof(int32_t));
            memcpy(h->k_scale + to, h->k_scale + from, 16 * sizeof(float));
            memcpy(h->v_log2 + to, h->v_log2 + from, 16 * sizeof(float));
            memcpy(h->v_inverse + to, h->v_inverse + from, 16 * sizeof(float));
            for (c = 0; c < h->hd / 16; c++) {
                int8_t *v = h->v + base * h->hd + c * h->keys * 16;
                memcpy(v + t * 16, v + t % n * 16, 256);
            }
        }
    }
}

/* Leaves a decoder with caches for all positions, computed for PART of them. */
static void open_decoder(work *w)
{
    en_heads *cross;
    size_t l;
    set_encoder(w, PART, w->layers);
    w->memory = steps_open(&w->decoder, w->e, 1, 1);
    if (w->memory == NULL) {
        die("decoder", "out of memory");
    }
    cross = de_cross(&w->decoder);
    for (l = 0; l < w->model->n_text_layer; l++) {
        repeat_heads(&cross[l], PART, w->model->n_audio_ctx);
    }
    set_encoder(w, w->model->n_audio_ctx, w->layers);
    steps_start(w->token, 1);
}

/* ---- stages ---- */

static void run_mel(work *w) { en_log_mel(w->e, w->samples, ML_FRAMES); }

static void run_encoder(work *w) { en_run(w->e); }

static void run_cross(work *w) { en_cross(w->e, w->session->run.decoder.cross); }

static void run_detector(work *w)
{
    va_detector *v = &w->session->run.audio.voice;
    va_rules rules = {0.5f, 0.35f, 4, 10, 10};
    va_span span;
    size_t done = 0;
    int found;
    va_begin(v, &rules);
    while (done < DETECTOR_SECONDS * 16000u) {
        done += va_push(v, w->samples + done, DETECTOR_SECONDS * 16000u - done, &span, &found);
    }
}

static void run_token(work *w)
{
    de_row row[1];
    steps_rows(row, w->token, 1, 1, POSITION);
    de_step(&w->decoder, row, 1);
}

static void count(work *w, void (*stage)(work *))
{
    work_mark();
    stage(w);
    work_mark();
}

static void count_all(work *w)
{
    count(w, run_mel);
    set_encoder(w, PART, 1);
    count(w, run_encoder);
    set_encoder(w, PART, 2);
    count(w, run_encoder);
    set_encoder(w, 2 * PART, 1);
    count(w, run_encoder);
    set_encoder(w, PART, w->layers);
    count(w, run_cross);
    count(w, run_detector);
    open_decoder(w);
    count(w, run_token);
}

static void time_stage(work *w, const char *name, void (*stage)(work *))
{
    double least = 0.0, all = 0.0;
    int i;
    for (i = 0; i < ROUNDS || all < ROUNDS_MS; i++) {
        double since = cpu_ms(), ms;
        stage(w);
        ms = cpu_ms() - since;
        all += ms;
        least = i == 0 || ms < least ? ms : least;
    }
    printf("%s %.4f\n", name, least);
}

static void time_all(work *w)
{
    printf("clock %.3f\n", machine_ghz());
    time_stage(w, "mel", run_mel);
    time_stage(w, "encoder", run_encoder);
    time_stage(w, "cross", run_cross);
    time_stage(w, "detector", run_detector);
    open_decoder(w);
    time_stage(w, "token", run_token);
    printf("bandwidth %.2f\nclock %.3f\n",
           peak_all(w->session->isa, (size_t)step_bytes(w->model, POSITION), 1, 0.2).best / 1e9,
           machine_ghz());
}

int main(int argc, char **argv)
{
    static work w;
    if (argc != 4) {
        die("usage", "bench_work count|time|about MODEL ISA");
    }
    open_all(&w, argv[2], argv[3]);
    if (strcmp(argv[1], "count") == 0) {
        count_all(&w);
    } else if (strcmp(argv[1], "time") == 0) {
        time_all(&w);
    }
    free(w.memory);
    w.model->n_audio_layer = w.layers;
    wnpu_session_close(w.session);
    wnpu_model_close(w.model);
    return 0;
}
