/* overlay.h - the built-in design of npu_amdxdna.c (section 7) for tests: its configuration (PDI) and
 * instruction streams, also with another program than its own, and B in its tiles. */
#ifndef NPU_OVERLAY_H
#define NPU_OVERLAY_H
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int columns;          /* 1, 2, 4 or 8 */
    int generation;       /* 3: NPU1, 4: NPU4; word 0 of streams */
    const uint8_t *program; /* aligned to words; NULL: the library's */
    size_t program_size;  /* bytes, a multiple of 4 */
} overlay;

typedef struct {
    uint32_t m, k, n;     /* multiples of 64 * columns, 64, 64 * columns (of 256 for 8 columns) */
} overlay_shape;

/* The library's program; its words. */
const uint32_t *overlay_code(int generation, size_t *words);
/* Writes the PDI; returns its size, or 0 if it does not fit into `room`. */
size_t overlay_pdi(const overlay *o, uint8_t *out, size_t room);
/* Writes the stream of a shape, which names A, B and C as arguments 0, 1 and 2; returns its words, or
 * 0 if `room` is too small. */
size_t overlay_stream(const overlay *o, const overlay_shape *shape, uint32_t *out, size_t room);
/* The library's program of a rung (1 or 2, see rungs.h) with its words, and the PDI that has it. Its
 * stream is that of a product of 64 x 64 x 64 on one column. */
const uint32_t *overlay_rung_code(int generation, int rung, size_t *words);
size_t overlay_rung_pdi(int generation, int rung, uint8_t *out, size_t room);
uint64_t overlay_rung_cycles(int generation, int rung);
/* Cycles that the library states for a shape. */
uint64_t overlay_cycles(const overlay *o, const overlay_shape *shape);
/* B from row-major K x N into tiles. */
void overlay_tile_b(const overlay_shape *shape, const int8_t *b, int8_t *out);
#endif
