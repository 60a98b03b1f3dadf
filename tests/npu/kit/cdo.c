/* cdo.c - see cdo.h. */
#include "cdo.h"

#include <string.h>

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The header: 4, a magic, a version, the words that follow, a checksum (complement of their sum). */
const uint8_t *cdo_find(const uint8_t *bytes, size_t length, size_t *size)
{
    for (size_t i = 0; i + 20 <= length; i++) {
        const uint8_t *p = bytes + i;
        if (get32(p) == 4 && (memcmp(p + 4, "CDO", 4) == 0 || memcmp(p + 4, "XLNX", 4) == 0) &&
            get32(p + 16) == (uint32_t)~(4 + get32(p + 4) + get32(p + 8) + get32(p + 12)) &&
            get32(p + 12) <= (length - i - 20) / 4) {
            *size = 20 + (size_t)get32(p + 12) * 4;
            return p;
        }
    }
    return NULL;
}

/* One command of `words` words of payload; 0 if its payload is too short for what it is. */
static int read_command(cdo_command *c, const uint8_t *p, uint32_t words)
{
    static const struct { uint16_t opcode, words; } least[] = {
        {CDO_MASK_POLL, 3}, {CDO_MASK_WRITE, 3}, {CDO_WRITE, 2}, {CDO_DELAY, 1}, {CDO_BLOCK, 2},
        {CDO_MASK_POLL64, 4}, {CDO_MASK_WRITE64, 4}, {CDO_WRITE64, 3},
    };
    for (size_t i = 0; i < sizeof least / sizeof *least; i++) {
        if (least[i].opcode == c->opcode && words < least[i].words) {
            return 0;
        }
    }
    int wide = c->opcode == CDO_MASK_POLL64 || c->opcode == CDO_MASK_WRITE64 ||
               c->opcode == CDO_WRITE64 || c->opcode == CDO_BLOCK;
    if (words >= (wide ? 2u : 1u)) {
        c->address = wide ? (uint64_t)get32(p) << 32 | get32(p + 4) : get32(p);
        p += wide ? 8 : 4;
        words -= wide ? 2 : 1;
    }
    switch (c->opcode) {
    case CDO_MASK_POLL: case CDO_MASK_WRITE: case CDO_MASK_POLL64: case CDO_MASK_WRITE64:
        c->mask = get32(p);
        c->value = get32(p + 4);
        break;
    case CDO_WRITE: case CDO_WRITE64:
        c->mask = 0xffffffffu;
        c->value = get32(p);
        break;
    case CDO_BLOCK:
        c->data = p;
        c->words = words;
        break;
    default:
        break;
    }
    return 1;
}

int cdo_walk(const uint8_t *cdo, size_t size, cdo_visit visit, void *self)
{
    for (size_t at = 20; at + 4 <= size; ) {
        cdo_command c = {0, 0, 0, 0, NULL, 0};
        uint32_t head = get32(cdo + at), words = head >> 16 & 0xff;
        c.opcode = head & 0xffff;
        at += 4;
        if (words == 255) { /* a long one: the next word has the length */
            if (size - at < 4) {
                return -1;
            }
            words = get32(cdo + at);
            at += 4;
        }
        if (words > (size - at) / 4 || !read_command(&c, cdo + at, words)) {
            return -1;
        }
        int stop = visit(self, &c);
        if (stop != 0) {
            return stop;
        }
        at += (size_t)words * 4;
    }
    return 0;
}
