/* rungs.h - two small programs for a core of the product's configuration, which show how far an array
 * works that does not run the product: locks and DMA only, then scalar code, too.
 *
 * A core of one column takes a step of A and of B and hands over the memory from A on (16 KiB: A, the
 * second buffer of A, zeros, the word of steps) as C. The second program adds B to A before, word by
 * word. Text and locks are the same for AIE2 and AIE2P; see matmul.h for memory and locks. */
#ifndef NPU_RUNGS_H
#define NPU_RUNGS_H
#include <stddef.h>

/* The assembly text of rung 1 or 2; returns its length as snprintf does. */
size_t rung_source(int rung, char *text, size_t size);
#endif
