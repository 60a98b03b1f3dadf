/* overlay.h - our design for an array: its configuration (PDI) and its instruction streams.
 *
 * R columns with R rows of cores compute C (M x N, int32) = A (M x K, int8) * B (K x N, int8). Row r of
 * cores gets the rows of A that column r's memory tile sends to all columns; column c of cores gets
 * the columns of B that its memory tile sends to all rows. All sizes are in the stream: one
 * configuration serves every shape. A and C are row-major. B lies in tiles of 64 k x 64 columns, 4,096
 * bytes each as matmul.h has them, all k of 64 columns one after the other, then the next 64. */
#ifndef NPU_OVERLAY_H
#define NPU_OVERLAY_H
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int columns;          /* 1 to 4 */
    int generation;       /* 3: NPU1, 4: NPU4; word 0 of streams */
    const uint8_t *program;
    size_t program_size;
} overlay;

typedef struct {
    uint32_t m, k, n;     /* multiples of 64 * columns, 64, 64 * columns */
} overlay_shape;

/* Writes the PDI; returns its size, or 0 if it does not fit into `room`. */
size_t overlay_pdi(const overlay *o, uint8_t *out, size_t room);
/* Writes the stream of a shape, which names A, B and C as arguments 0, 1 and 2; returns its words, or
 * 0 if the shape is refused or `room` too small. */
size_t overlay_stream(const overlay *o, const overlay_shape *shape, uint32_t *out, size_t room);
/* B from row-major K x N into tiles. */
void overlay_tile_b(const overlay_shape *shape, const int8_t *b, int8_t *out);
#endif
