/* steps.h - the decoder's steps for benchmarks: greedy continuations of one prompt, as beams are. In
 * a decoder of its own, in a session's engine. And the session that single stages are timed in, and
 * how much work stages are. After whisper_npu.c. */
#ifndef STEPS_H
#define STEPS_H

/* Multiply-accumulates of the encoder for one window, without the cross-attention's. */
static inline double encoder_macs(const wnpu_model *m)
{
    double d = m->n_audio_state, t = m->n_audio_ctx, mels = m->n_mels;
    double conv = 2 * t * 3 * mels * d + t * 3 * d * d;
    double layer = t * 12 * d * d + 2 * t * t * d;
    return conv + layer * m->n_audio_layer;
}

/* Bytes of the cross-attention caches of a window. */
static inline double cross_bytes(const wnpu_model *m)
{
    return 2.0 * m->n_text_layer * m->n_text_state * m->n_audio_ctx;
}

/* Bytes that one step must read at position n: weights, the vocabulary in 4 bits, both caches. */
static inline double step_bytes(const wnpu_model *m, double n)
{
    double d = m->n_text_state, layers = m->n_text_layer;
    return layers * 14 * d * d + (double)m->vocab.n_vocab * d / 2 + layers * 2 * d * n +
           cross_bytes(m);
}

/* Opens a model and a session of one thread for it. */
static inline int steps_session(const char *path, const char *isa, wnpu_model **model,
                                wnpu_session **session, wnpu_error *error)
{
    wnpu_config config;
    int status = wnpu_model_open(model, path, NULL, error);
    wnpu_config_init(&config, sizeof config);
    config.threads = 1;
    config.isa = wnpu_isa_from_name(isa);
    return status != WNPU_OK ? status
                             : wnpu_session_open(session, *model, &config, NULL, 0, error);
}

/* Fills a window with noise: the time of a stage does not depend on what is said. */
static inline void steps_noise(float samples[ML_SPAN])
{
    uint32_t seed = 1;
    size_t i;
    for (i = 0; i < ML_SPAN; i++) {
        seed = seed * 1664525u + 1013904223u;
        samples[i] = ((float)(seed >> 8) / 8388608.0f - 1.0f) * 0.1f;
    }
}

/* Opens a decoder; the caller frees what is returned, NULL without memory. */
static void *steps_open(de_decoder *d, en_engine *e, size_t slots, size_t windows)
{
    ar_arena arena;
    void *memory;
    size_t i;
    memset(&arena, 0, sizeof arena);
    de_carve(&arena, d, e, slots, windows);
    arena.size = arena.used;
    memory = ar_malloc(NULL, arena.size, 64);
    if (memory == NULL) {
        return NULL;
    }
    (void)os_advise_huge(memory, arena.size); /* as a session's */
    arena.base = memory;
    arena.used = 0;
    de_carve(&arena, d, e, slots, windows);
    for (i = 0; i < windows; i++) {
        d->window = i;
        en_cross(e, de_cross(d));
    }
    return memory;
}

static void steps_start(int32_t *token, size_t rows)
{
    size_t k;
    for (k = 0; k < rows; k++) {
        token[k] = (int32_t)(1000 + k);
    }
}

/* Rows of a step at a position, the windows' turn by turn. */
static void steps_rows(de_row *row, const int32_t *token, size_t rows, size_t windows,
                       size_t position)
{
    size_t k;
    memset(row, 0, rows * sizeof *row);
    for (k = 0; k < rows; k++) {
        row[k].token = token[k];
        row[k].position = (uint32_t)position;
        row[k].slot = (uint32_t)k;
        row[k].window = (uint32_t)(k * windows / rows);
        row[k].want = 1;
    }
}

/* The most likely tokens after a step. */
static inline void steps_next(const de_decoder *d, int32_t *token, size_t rows)
{
    const wnpu_model *m = d->e->model;
    size_t k;
    for (k = 0; k < rows; k++) {
        token[k] = (int32_t)d->e->op->argmax(d->logits + k * de_logits_stride(m),
                                             (size_t)m->vocab.eot);
    }
}
#endif
