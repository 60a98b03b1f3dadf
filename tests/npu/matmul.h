/* matmul.h - our int8 matrix product for one AIE2 or AIE2P core, written as assembly.
 *
 * The core computes C = A*B for tiles of 64 x 64 results, K in steps of 64, in exact 32-bit integers.
 * Memory of the core (offsets; each area of 16 KiB has banks of its own):
 *
 *   0x0000  C, first buffer     64 x 64 int32, row-major; AIE2P: in parts of 8 x 8
 *   0x4000  C, second buffer
 *   0x8000  A, two buffers      64 x 64 int8: [16 groups of 4 rows][8 groups of 8 k][4][8];
 *                               AIE2P: [4 groups of 16 rows][8 groups of 8 k][16][8]
 *   0xA000  zeros               what the first step of a tile adds to
 *   0xA400  scratch             AIE2P: stores that belong to nothing
 *   0xB000  steps               one word: K / 64, written before the first A arrives
 *   0xC000  B, two buffers      64 x 64 int8: [4 groups of 16 columns][8 groups of 8 k][2][8 k][8]
 *
 * Locks: 0 and 1 free and filled buffers of A, 2 and 3 of B, 4 and 5 of C. */
#ifndef NPU_MATMUL_H
#define NPU_MATMUL_H
#include <stddef.h>

enum {
    MATMUL_TILE = 64, MATMUL_K = 64,
    MATMUL_C = 0x0000, MATMUL_C_SIZE = 0x4000, MATMUL_A = 0x8000, MATMUL_A_SIZE = 0x1000,
    MATMUL_ZEROS = 0xa000, MATMUL_SCRATCH = 0xa400, MATMUL_STEPS = 0xb000, MATMUL_B = 0xc000, MATMUL_B_SIZE = 0x1000,
    MATMUL_A_FREE = 0, MATMUL_A_FULL = 1, MATMUL_B_FREE = 2, MATMUL_B_FULL = 3, MATMUL_C_FREE = 4,
    MATMUL_C_FULL = 5
};

/* The assembly text of the whole program; returns its length as snprintf does. */
size_t matmul_source_aie2(char *text, size_t size);
size_t matmul_source_aie2p(char *text, size_t size);
#endif
