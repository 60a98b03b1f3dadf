/* txn.c - see txn.h. Formats: aie-rt xaie_txn.h, mlir-aie TxnEncoding.h; registers: mlir-aie's register
 * database. */
#include "txn.h"

#include <stddef.h>
#include <string.h>

/* Fixed layouts, sizes in bytes in the operation. */
static uint32_t read_01(const uint32_t *w, uint32_t left, txn_op *op)
{
    static const struct { uint8_t code, size_word, words; } sizes[] = {
        {0, 5, 6}, {1, 3, 4}, {3, 6, 7}, {4, 6, 7}, {7, 6, 7}, {5, 0, 1}, {6, 0, 1},
        {0x80, 1, 4}, {0x81, 1, 12}, {0x82, 1, 2}, {0x83, 1, 2}, {0x84, 1, 2},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t words = sizes[i].words, at = sizes[i].size_word;
        if (sizes[i].code != op->code) {
            continue;
        }
        if (words > left || (at != 0 && (w[at] % 4 != 0 || w[at] / 4 < words))) {
            return 0;
        }
        words = at != 0 ? w[at] / 4 : words;
        if (words > left) {
            return 0;
        }
        op->address = op->code < 0x80 && words > 2 ? w[2] : 0;
        op->value = op->code < 0x80 && words > 4 ? w[4] : 0;
        op->mask = op->code == 3 ? w[5] : UINT32_MAX;
        op->data = op->code == 1 ? w + 4 : w + 2;
        op->n_data = op->code == 1 ? words - 4 : 0;
        if (op->code == 0x81) {
            op->address = w[6];
            op->argument = w[8];
            op->plus = w[10] | (uint64_t)w[11] << 32;
        }
        return words;
    }
    return 0;
}

/* The compact form. */
static uint32_t read_10(const uint32_t *w, uint32_t left, txn_op *op)
{
    uint32_t words = 0;
    switch (op->code) {
    case 0: words = 3; break;
    case 3: case 4: case 7: words = 4; break;
    case 5: case 6: words = 1; break;
    case 1: words = left > 2 ? w[2] / 4 : 0; break;
    case 0x80: case 0x81: case 0x82: case 0x83: case 0x84: words = left > 1 ? w[1] / 4 : 0; break;
    default: break;
    }
    if (words == 0 || words > left || (op->code == 1 && words < 3) ||
        (op->code == 0x80 && words < 4) || (op->code == 0x81 && words < 6)) {
        return 0;
    }
    op->mask = UINT32_MAX;
    if (op->code < 5) {
        op->address = w[1];
        op->value = w[2];
        op->mask = op->code == 3 ? w[3] : UINT32_MAX;
        op->data = w + 3;
        op->n_data = op->code == 1 ? words - 3 : 0;
    } else if (op->code == 0x81) {
        op->address = w[2];
        op->argument = w[3] & 0xff;
        op->plus = w[4] | (uint64_t)w[5] << 32;
    } else {
        op->data = w + 2;
    }
    return words;
}

uint32_t txn_read(const uint32_t *w, uint32_t left, int old, txn_op *op)
{
    memset(op, 0, sizeof *op);
    if (left == 0) {
        return 0;
    }
    op->code = w[0] & 0xff;
    return old ? read_01(w, left, op) : read_10(w, left, op);
}

static uint32_t bits(uint32_t word, int low, int length)
{
    return word >> low & ((1u << length) - 1);
}

static int signed7(uint32_t v)
{
    return (int)(v & 0x3f) - (int)(v & 0x40);
}

void txn_shim_descriptor(const uint32_t *w, txn_descriptor *d)
{
    memset(d, 0, sizeof *d);
    d->length = w[0];
    d->base = (w[1] & ~3u) | (uint64_t)bits(w[2], 0, 16) << 32;
    d->packet = (int)bits(w[2], 30, 1);
    d->step[0] = bits(w[3], 0, 20) + 1;
    d->step[1] = bits(w[4], 0, 20) + 1;
    d->step[2] = bits(w[5], 0, 20) + 1;
    d->wrap[0] = bits(w[3], 20, 10);
    d->wrap[1] = bits(w[4], 20, 10);
    d->iteration_step = bits(w[6], 0, 20) + 1;
    d->iteration_wrap = bits(w[6], 20, 6) + 1;
    d->use_next = (int)bits(w[7], 26, 1);
    d->next = (int)bits(w[7], 27, 4);
    d->valid = (int)bits(w[7], 25, 1);
    d->acquire = (int)bits(w[7], 12, 1);
    d->acquire_id = (int)bits(w[7], 0, 4);
    d->acquire_value = signed7(bits(w[7], 5, 7));
    d->release_id = (int)bits(w[7], 13, 4);
    d->release_value = signed7(bits(w[7], 18, 7));
}

uint64_t txn_offset(const txn_descriptor *d, const uint32_t index[4])
{
    uint64_t at = 0;
    for (int i = 0; i < 4; i++) {
        at += (uint64_t)index[i] * d->step[i];
    }
    return at;
}

void txn_advance(const txn_descriptor *d, uint32_t index[4], uint32_t words)
{
    for (int i = 0; i < 4; i++, words = 1) {
        index[i] += words;
        if (index[i] < d->wrap[i] || d->wrap[i] == 0) {
            return;
        }
        index[i] = 0;
    }
}
