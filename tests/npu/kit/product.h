/* product.h - a matrix product on a simulated array, with host memory and a check of the result. */
#ifndef NPU_PRODUCT_H
#define NPU_PRODUCT_H
#include "array.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    uint8_t *memory;
    size_t size;
    uint64_t args[3];      /* device addresses of A, B and C */
    int bits;              /* of A and B: 8 or 16 */
    uint32_t m, k, n;
} product;

static uint8_t *product_host(void *self, uint64_t address, uint32_t bytes, int write)
{
    product *p = self;
    (void)write;
    return address >= 4096 && address + bytes <= p->size ? p->memory + address : NULL;
}

/* Room for all, C filled with a pattern. Device addresses begin at 4,096. */
static int product_new(product *p, int bits, uint32_t m, uint32_t k, uint32_t n)
{
    size_t a = (size_t)m * k * (size_t)bits / 8, b = (size_t)k * n * (size_t)bits / 8;
    p->bits = bits;
    p->m = m;
    p->k = k;
    p->n = n;
    p->args[0] = 4096;
    p->args[1] = p->args[0] + a;
    p->args[2] = p->args[1] + b;
    p->size = p->args[2] + (size_t)m * n * 4;
    p->memory = malloc(p->size);
    if (p->memory != NULL) {
        memset(p->memory, 0x55, p->size);
    }
    return p->memory != NULL;
}

static uint32_t product_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Values from -limit to limit; extreme: only these two. */
static void product_fill(product *p, void *to, size_t count, int limit, int extreme, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t r = product_random(&seed);
        int v = extreme ? ((r >> 9 & 1) != 0 ? limit : -limit)
                        : (int)(r % (uint32_t)(2 * limit + 1)) - limit;
        if (p->bits == 8) {
            ((int8_t *)to)[i] = (int8_t)v;
        } else {
            ((int16_t *)to)[i] = (int16_t)v;
        }
    }
}

/* Results that are wrong; b is row-major K x N. */
static long product_wrong(const product *p, const void *b)
{
    const uint8_t *a = p->memory + p->args[0], *c = p->memory + p->args[2];
    int32_t *row = malloc((size_t)p->n * sizeof *row);
    long wrong = row == NULL;
    for (uint32_t i = 0; row != NULL && i < p->m; i++) {
        memset(row, 0, (size_t)p->n * sizeof *row);
        for (uint32_t k = 0; k < p->k; k++) {
            size_t at = (size_t)i * p->k + k, line = (size_t)k * p->n;
            int32_t v = p->bits == 8 ? ((const int8_t *)a)[at] : 0;
            if (p->bits == 8) {
                for (uint32_t j = 0; j < p->n; j++) {
                    row[j] += v * ((const int8_t *)b)[line + j];
                }
                continue;
            }
            int16_t wide;
            memcpy(&wide, a + at * 2, 2);
            for (uint32_t j = 0; j < p->n; j++) {
                row[j] += wide * ((const int16_t *)b)[line + j];
            }
        }
        for (uint32_t j = 0; j < p->n; j++) {
            int32_t got;
            memcpy(&got, c + ((size_t)i * p->n + j) * 4, 4);
            wrong += got != row[j];
        }
    }
    free(row);
    return wrong;
}
#endif
