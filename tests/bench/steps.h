/* steps.h - the decoder's steps for benchmarks: greedy continuations of one prompt, as beams are. In
 * a decoder of its own, in a session's engine. After whisper_npu.c. */
#ifndef STEPS_H
#define STEPS_H

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
static void steps_next(const de_decoder *d, int32_t *token, size_t rows)
{
    const wnpu_model *m = d->e->model;
    size_t k;
    for (k = 0; k < rows; k++) {
        token[k] = (int32_t)d->e->op->argmax(d->logits + k * de_logits_stride(m),
                                             (size_t)m->vocab.eot);
    }
}
#endif
