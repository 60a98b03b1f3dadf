/* txn.h - what both simulated arrays (array.c and sim_array.c) read: operations of instruction streams,
 * versions 0.1 and 1.0, and the shim's buffer descriptors. */
#ifndef NPU_TXN_H
#define NPU_TXN_H
#include <stdint.h>

typedef struct {
    uint32_t code, address, value, mask, argument;
    uint64_t plus;
    const uint32_t *data;    /* of block writes; else what follows the first two words */
    uint32_t n_data;
} txn_op;

/* Reads the operation at w, of which `left` words are left, in version 0.1 (`old`) or 1.0. Returns its
 * words, or 0 if it is none. */
uint32_t txn_read(const uint32_t *w, uint32_t left, int old, txn_op *op);

/* A buffer descriptor of any tile. Dimension 0 moves fastest; a wrap of 0 goes on to the end. */
typedef struct {
    uint64_t base;              /* words, or bytes of host memory */
    uint32_t length;            /* words */
    uint32_t step[4], wrap[4];
    uint32_t iteration_step, iteration_wrap;
    int use_next, next, acquire, acquire_id, acquire_value, release_id, release_value;
    int valid, packet, padded;
} txn_descriptor;

/* A descriptor of the shim. */
void txn_shim_descriptor(const uint32_t *words, txn_descriptor *d);
/* Words from the base to where the indices of the dimensions point. */
uint64_t txn_offset(const txn_descriptor *d, const uint32_t index[4]);
/* Moves on by `words`, which may not pass the end of dimension 0. */
void txn_advance(const txn_descriptor *d, uint32_t index[4], uint32_t words);
#endif
