/* overlay.c - see overlay.h. Register offsets and fields: Xilinx/aie-rt (xaiemlgbl_params.h); the
 * container of a PDI: Xilinx/bootgen. */
#include "overlay.h"

#include "cdo.h"
#include "matmul.h"

#include <string.h>

/* ---------------------------------------------------------------- words */

typedef struct {
    uint8_t *out;
    size_t room, size; /* bytes; size goes on past room */
} writer;

static void put(writer *w, uint32_t v)
{
    for (int i = 0; i < 4; i++, w->size++) {
        if (w->size < w->room) {
            w->out[w->size] = (uint8_t)(v >> 8 * i);
        }
    }
}

static uint32_t get(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void set(writer *w, size_t at, uint32_t v)
{
    for (size_t i = 0; i < 4 && at + i < w->room; i++) {
        w->out[at + i] = (uint8_t)(v >> 8 * i);
    }
}

/* The complement of a sum, as bootgen's headers end with it. */
static void checksum(writer *w, size_t from, size_t at)
{
    uint32_t sum = 0;
    for (size_t i = from; i < at && i + 4 <= w->room; i += 4) {
        sum += get(w->out + i);
    }
    set(w, at, ~sum);
}

/* ---------------------------------------------------------------- configuration commands */

static uint32_t address_of(int column, int row, uint32_t offset)
{
    return (uint32_t)column << 25 | (uint32_t)row << 20 | offset;
}

static void write_word(writer *w, int column, int row, uint32_t offset, uint32_t value)
{
    put(w, 2u << 16 | CDO_WRITE);
    put(w, address_of(column, row, offset));
    put(w, value);
}

static void mask_write(writer *w, int column, int row, uint32_t offset, uint32_t mask,
                       uint32_t value)
{
    put(w, 3u << 16 | CDO_MASK_WRITE);
    put(w, address_of(column, row, offset));
    put(w, mask);
    put(w, value);
}

/* The loader copies the data of a block by DMA: it begins at a multiple of 16 bytes. */
static void write_block(writer *w, int column, int row, uint32_t offset, const uint8_t *data,
                        uint32_t words)
{
    uint32_t payload = words + 2;
    size_t head = payload < 255 ? 12 : 16;
    while ((w->size + head) % 16 != 0) {
        put(w, CDO_NOP);
    }
    put(w, (payload < 255 ? payload : 255u) << 16 | CDO_BLOCK);
    if (payload >= 255) {
        put(w, payload);
    }
    put(w, 0);
    put(w, address_of(column, row, offset));
    for (uint32_t i = 0; i < words; i++) {
        put(w, get(data + i * 4));
    }
}

static void write_words(writer *w, int column, int row, uint32_t offset, const uint32_t *words,
                        uint32_t count)
{
    uint8_t bytes[64];
    writer b = {bytes, sizeof bytes, 0};
    for (uint32_t i = 0; i < count; i++) {
        put(&b, words[i]);
    }
    write_block(w, column, row, offset, bytes, count);
}

/* ---------------------------------------------------------------- descriptors */

typedef struct {
    int bd, next;            /* of a ring */
    uint32_t base, length;   /* words */
    int acquire, release;    /* locks, by one */
    int reorder;             /* see orders; 0: as it lies */
} ring_part;

/* Orders in which a memory tile sends what it holds: words that follow each other (step 1), then the
 * next dimensions, each with its step in words; the last one goes on to the end. */
static const struct {
    uint8_t wrap[3];
    uint16_t step[4];
} orders[] = {
    {{0, 0, 0}, {1, 1, 1, 1}},
    {{2, 4, 8}, {1, 16, 2, 64}},   /* A for AIE2: of rows of 64 bytes, 4 rows x 8 bytes */
    {{2, 16, 8}, {1, 16, 2, 256}}, /* A for AIE2P: 16 rows x 8 bytes */
    {{8, 8, 8}, {1, 64, 8, 512}},  /* C of AIE2P: rows of 64 results from parts of 8 x 8 */
};

static void core_descriptor(writer *w, int column, int row, const ring_part *p)
{
    const uint32_t words[6] = {
        p->base << 14 | p->length, 0, 0, 0, 0,
        1u << 25 | 1u << 26 | (uint32_t)p->next << 27 | (uint32_t)p->acquire | 0x7fu << 5 |
            1u << 12 | (uint32_t)p->release << 13 | 1u << 18,
    };
    write_words(w, column, row, 0x1d000 + 0x20 * (uint32_t)p->bd, words, 6);
}

/* Its own memory begins at word 0x20000 and its own locks at 64: before them are the west tile's. */
static void memory_descriptor(writer *w, int column, const ring_part *p)
{
    uint32_t words[8] = {
        p->length, (0x20000 + p->base) | 1u << 19 | (uint32_t)p->next << 20, 0, 0, 0, 0, 0,
        1u << 31 | (uint32_t)(64 + p->acquire) | 0x7fu << 8 | 1u << 15 |
            (uint32_t)(64 + p->release) << 16 | 1u << 24,
    };
    if (p->reorder != 0) {
        for (int i = 0; i < 4; i++) {
            words[2 + i] = (orders[p->reorder].step[i] - 1u) |
                           (i < 3 ? (uint32_t)orders[p->reorder].wrap[i] << 17 : 0);
        }
    }
    write_words(w, column, 1, 0xa0000 + 0x20 * (uint32_t)p->bd, words, 8);
}

/* ---------------------------------------------------------------- tiles */

/* Ports of stream switches, by their registers. */
enum {
    CORE_M_DMA0 = 1, CORE_M_SOUTH0 = 5, CORE_M_WEST0 = 9, CORE_M_NORTH0 = 13, CORE_M_EAST0 = 19,
    CORE_S_DMA0 = 1, CORE_S_SOUTH0 = 5, CORE_S_WEST0 = 11, CORE_S_NORTH0 = 15, CORE_S_EAST0 = 19,
    MEM_M_DMA0 = 0, MEM_M_SOUTH0 = 7, MEM_M_NORTH0 = 11,
    MEM_S_DMA0 = 0, MEM_S_SOUTH0 = 7, MEM_S_NORTH0 = 13,
    SHIM_M_SOUTH0 = 2, SHIM_M_NORTH0 = 12, SHIM_S_CTRL = 0, SHIM_S_SOUTH0 = 2, SHIM_S_NORTH0 = 14
};

static void connect(writer *w, int column, int row, int master, int slave)
{
    uint32_t base = row == 1 ? 0xb0000 : 0x3f000;
    write_word(w, column, row, base + 4 * (uint32_t)master, 1u << 31 | (uint32_t)slave);
    write_word(w, column, row, base + 0x100 + 4 * (uint32_t)slave, 1u << 31);
}

static void lock_value(writer *w, int column, int row, int lock, uint32_t value)
{
    write_word(w, column, row, (row == 1 ? 0xc0000u : 0x1f000u) + 0x10 * (uint32_t)lock, value);
}

static void core_streams(writer *w, const overlay *o, int column, int r)
{
    int row = r + 2, from = column > r ? CORE_S_WEST0 : column < r ? CORE_S_EAST0 : CORE_S_SOUTH0;
    connect(w, column, row, CORE_M_DMA0, from); /* A comes up in column r and goes both ways */
    if (column >= r && column + 1 < o->columns) {
        connect(w, column, row, CORE_M_EAST0, from);
    }
    if (column <= r && column > 0) {
        connect(w, column, row, CORE_M_WEST0, from);
    }
    if (r < column) { /* A of a row above passes */
        connect(w, column, row, CORE_M_NORTH0, CORE_S_SOUTH0);
    }
    connect(w, column, row, CORE_M_DMA0 + 1, CORE_S_SOUTH0 + 1);
    if (r + 1 < o->columns) {
        connect(w, column, row, CORE_M_NORTH0 + 1, CORE_S_SOUTH0 + 1);
    }
    connect(w, column, row, CORE_M_SOUTH0 + r, CORE_S_DMA0);
    for (int above = r + 1; above < o->columns; above++) {
        connect(w, column, row, CORE_M_SOUTH0 + above, CORE_S_NORTH0 + above);
    }
}

static void core_tile(writer *w, const overlay *o, int column, int r)
{
    static const uint8_t counts[6] = {2, 0, 2, 0, 2, 0};
    const uint32_t a = MATMUL_A / 4, b = MATMUL_B / 4, c = MATMUL_C / 4, step = MATMUL_A_SIZE / 4;
    const ring_part parts[6] = {
        {0, 1, a, step, MATMUL_A_FREE, MATMUL_A_FULL, 0},
        {1, 0, a + step, step, MATMUL_A_FREE, MATMUL_A_FULL, 0},
        {2, 3, b, step, MATMUL_B_FREE, MATMUL_B_FULL, 0},
        {3, 2, b + step, step, MATMUL_B_FREE, MATMUL_B_FULL, 0},
        {4, 5, c, MATMUL_C_SIZE / 4, MATMUL_C_FULL, MATMUL_C_FREE, 0},
        {5, 4, c + MATMUL_C_SIZE / 4, MATMUL_C_SIZE / 4, MATMUL_C_FULL, MATMUL_C_FREE, 0},
    };
    int row = r + 2;
    mask_write(w, column, row, 0x32000, 1, 0);
    mask_write(w, column, row, 0x32000, 2, 2);
    mask_write(w, column, row, 0x32000, 2, 0);
    write_block(w, column, row, 0x20000, o->program, (uint32_t)(o->program_size / 4));
    for (int i = 0; i < 6; i++) {
        lock_value(w, column, row, i, counts[i]);
        core_descriptor(w, column, row, &parts[i]);
    }
    core_streams(w, o, column, r);
    write_word(w, column, row, 0x1de04, 0);
    write_word(w, column, row, 0x1de0c, 2);
    write_word(w, column, row, 0x1de14, 4);
}

enum {
    DEPTH = 4,                                           /* buffers of A and B in a memory tile */
    MEMORY_B = DEPTH * MATMUL_A_SIZE / 4, MEMORY_C = 2 * MEMORY_B, /* words */
    LOCK_A = 0, LOCK_B = 2, LOCK_C = 4
};

/* A ring of `DEPTH` buffers that one channel fills and another one sends. Channels with even numbers
 * may use descriptors 0 to 23, those with odd numbers 24 to 47. */
static void memory_ring(writer *w, int column, int first, uint32_t base, int lock, int reorder)
{
    for (int i = 0; i < DEPTH; i++) {
        ring_part in = {first + i, first + (i + 1) % DEPTH, base + (uint32_t)i * 1024, 1024, lock,
                        lock + 1, 0};
        ring_part sent = {first + DEPTH + i, first + DEPTH + (i + 1) % DEPTH,
                          base + (uint32_t)i * 1024, 1024, lock + 1, lock, reorder};
        memory_descriptor(w, column, &in);
        memory_descriptor(w, column, &sent);
    }
}

/* Rows of cores whose results the shim's S2MM 0 takes; the others go to S2MM 1. */
static int lower_rows(const overlay *o)
{
    return (o->columns + 1) / 2;
}

static void memory_c(writer *w, const overlay *o, int column)
{
    const uint32_t size = MATMUL_C_SIZE / 4;
    for (int r = 0; r < o->columns; r++) {
        int channel = 2 + r, first = channel % 2 == 0 ? 8 + r : 32 + r;
        for (int i = 0; i < 2; i++) { /* in: two buffers of this row */
            ring_part in = {first + i, first + 1 - i, MEMORY_C + (uint32_t)(2 * r + i) * size, size,
                            LOCK_C + 2 * r, LOCK_C + 2 * r + 1, 0};
            memory_descriptor(w, column, &in);
        }
        write_word(w, column, 1, 0xa0604 + 8 * (uint32_t)channel, (uint32_t)first);
    }
    for (int half = 0; half < 2; half++) { /* out: first buffers of its rows, then second ones */
        int from = half == 0 ? 0 : lower_rows(o), to = half == 0 ? lower_rows(o) : o->columns;
        int first = half == 0 ? 16 : 40, count = 2 * (to - from);
        for (int i = 0; i < count; i++) {
            int r = from + i % (to - from), second = i / (to - from);
            ring_part sent = {first + i, first + (i + 1) % count,
                              MEMORY_C + (uint32_t)(2 * r + second) * size, size,
                              LOCK_C + 2 * r + 1, LOCK_C + 2 * r, o->generation == 4 ? 3 : 0};
            memory_descriptor(w, column, &sent);
        }
        if (count > 0) {
            write_word(w, column, 1, 0xa0634 + 8 * (2 + (uint32_t)half), (uint32_t)first);
        }
    }
}

static void memory_tile(writer *w, const overlay *o, int column)
{
    lock_value(w, column, 1, LOCK_A, DEPTH);
    lock_value(w, column, 1, LOCK_A + 1, 0);
    lock_value(w, column, 1, LOCK_B, DEPTH);
    lock_value(w, column, 1, LOCK_B + 1, 0);
    for (int r = 0; r < o->columns; r++) {
        lock_value(w, column, 1, LOCK_C + 2 * r, 2);
        lock_value(w, column, 1, LOCK_C + 2 * r + 1, 0);
        connect(w, column, 1, MEM_M_DMA0 + 2 + r, MEM_S_NORTH0 + r);
    }
    memory_ring(w, column, 0, 0, LOCK_A, o->generation == 4 ? 2 : 1);
    memory_ring(w, column, 24, MEMORY_B, LOCK_B, 0);
    memory_c(w, o, column);
    connect(w, column, 1, MEM_M_DMA0, MEM_S_SOUTH0);
    connect(w, column, 1, MEM_M_DMA0 + 1, MEM_S_SOUTH0 + 1);
    connect(w, column, 1, MEM_M_NORTH0, MEM_S_DMA0);
    connect(w, column, 1, MEM_M_NORTH0 + 1, MEM_S_DMA0 + 1);
    connect(w, column, 1, MEM_M_SOUTH0 + 2, MEM_S_DMA0 + 2);
    connect(w, column, 1, MEM_M_SOUTH0 + 3, MEM_S_DMA0 + 3);
    write_word(w, column, 1, 0xa0604, 0);
    write_word(w, column, 1, 0xa060c, 24);
    write_word(w, column, 1, 0xa0634, DEPTH);
    write_word(w, column, 1, 0xa063c, 24 + DEPTH);
}

static void shim_tile(writer *w, int column)
{
    connect(w, column, 0, SHIM_M_NORTH0, SHIM_S_SOUTH0 + 3);     /* MM2S 0: A */
    connect(w, column, 0, SHIM_M_NORTH0 + 1, SHIM_S_SOUTH0 + 7); /* MM2S 1: B */
    connect(w, column, 0, SHIM_M_SOUTH0 + 2, SHIM_S_NORTH0 + 2); /* S2MM 0: C */
    connect(w, column, 0, SHIM_M_SOUTH0 + 3, SHIM_S_NORTH0 + 3); /* S2MM 1: C */
    /* completion tokens: packets of the control port, to SOUTH 0 */
    write_word(w, column, 0, 0x3f000 + 4 * SHIM_M_SOUTH0, 0xc0000045);
    write_word(w, column, 0, 0x3f100 + 4 * SHIM_S_CTRL, 0xc0000000);
    write_word(w, column, 0, 0x3f200, 0x0f1f0135);
    mask_write(w, column, 0, 0x1f000, 0x00000c00, 0x00000400);   /* SOUTH 3 and 7 are the DMA's */
    mask_write(w, column, 0, 0x1f000, 0x0000c000, 0x00004000);
    mask_write(w, column, 0, 0x1f004, 0x000000f0, 0x00000050);   /* so are SOUTH 2 and 3 back */
}

/* ---------------------------------------------------------------- the PDI */

enum { IMAGE_TABLE = 0x10, IMAGE = 0x90, PARTITION = 0xd0, CDO = 0x150 };

static void headers(writer *w, uint32_t cdo_words)
{
    uint32_t padded = (cdo_words + 3) / 4 * 4;
    static const struct { uint16_t at; uint32_t value; } fixed[] = {
        {0x00, 0xdd}, {0x04, 0x11223344}, {0x08, 0x55667788}, {0x0c, 0x99aabbcc},
        {IMAGE_TABLE, 0x40000}, {0x14, 1}, {0x18, IMAGE / 4}, {0x1c, 1}, {0x20, PARTITION / 4},
        {0x28, 0x14ca8093}, {0x38, 0x50504449}, {0x3c, 0x201020}, {0x40, 0x30}, {0x54, 1},
        {IMAGE, PARTITION / 4}, {0x94, 1}, {0xa0, 0x5f656961}, {0xa4, 0x67616d69}, {0xa8, 0x65},
        {0xb0, 0x1c000000}, {0xe8, 0xffffffff}, {0xec, 0xffffffff}, {0xf0, CDO / 4},
        {0xf4, 0x02000006}, {0xf8, 1},
    };
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        set(w, fixed[i].at, fixed[i].value);
    }
    set(w, PARTITION, padded);
    set(w, PARTITION + 4, cdo_words);
    set(w, PARTITION + 8, padded);
    checksum(w, IMAGE_TABLE, IMAGE - 4);
    checksum(w, IMAGE, PARTITION - 4);
    checksum(w, PARTITION, CDO - 4);
}

size_t overlay_pdi(const overlay *o, uint8_t *out, size_t room)
{
    writer w = {out, room, CDO};
    if (room < CDO + 20 || o->columns < 1 || o->columns > 4 || o->program_size % 4 != 0) {
        return 0;
    }
    memset(out, 0, CDO);
    put(&w, 4);
    put(&w, 0x004f4443);
    put(&w, 0x200);
    put(&w, 0);
    put(&w, 0);
    for (int c = 0; c < o->columns; c++) {
        for (int r = 0; r < o->columns; r++) {
            core_tile(&w, o, c, r);
        }
        memory_tile(&w, o, c);
        shim_tile(&w, c);
    }
    for (int c = 0; c < o->columns; c++) {
        for (int r = 0; r < o->columns; r++) {
            mask_write(&w, c, r + 2, 0x32000, 1, 1);
        }
    }
    uint32_t words = (uint32_t)(w.size - CDO) / 4;
    set(&w, CDO + 12, words - 5);
    checksum(&w, CDO, CDO + 16);
    while ((w.size - CDO) % 16 != 0) {
        put(&w, 0);
    }
    headers(&w, words);
    return w.size <= room ? w.size : 0;
}

/* ---------------------------------------------------------------- instruction streams */

typedef struct {
    uint32_t *out;
    size_t room, count, ops; /* count goes on past room */
} stream;

static void say(stream *s, uint32_t v)
{
    if (s->count < s->room) {
        s->out[s->count] = v;
    }
    s->count++;
}

static void stream_write(stream *s, uint32_t address, uint32_t value)
{
    const uint32_t words[6] = {0, 0, address, 0, value, 24};
    for (int i = 0; i < 6; i++) {
        say(s, words[i]);
    }
    s->ops++;
}

static void stream_mask(stream *s, uint32_t address, uint32_t value, uint32_t mask)
{
    const uint32_t words[7] = {3, 0, address, 0, value, mask, 28};
    for (int i = 0; i < 7; i++) {
        say(s, words[i]);
    }
    s->ops++;
}

/* A transfer between host memory and a shim channel: its descriptor, address and task. */
typedef struct {
    int column, bd, argument, repeat, token;
    uint32_t queue;                     /* register of the channel's task queue */
    uint64_t offset;                    /* bytes */
    uint32_t length, step[3], wrap[2];  /* words; steps of 0: not used */
    uint32_t iteration_step, iteration_wrap;
} transfer;

static uint32_t less_one(uint32_t v)
{
    return v > 0 ? v - 1 : 0;
}

static void stream_transfer(stream *s, const transfer *t)
{
    uint32_t at = address_of(t->column, 0, 0x1d000 + 0x20 * (uint32_t)t->bd);
    const uint32_t words[8] = {
        t->length, 0, 0, less_one(t->step[0]) | t->wrap[0] << 20,
        less_one(t->step[1]) | t->wrap[1] << 20 | 2u << 30, less_one(t->step[2]) | 2u << 24,
        less_one(t->iteration_step) | less_one(t->iteration_wrap) << 20, 1u << 25,
    };
    say(s, 1);
    say(s, 0);
    say(s, at);
    say(s, 48);
    for (int i = 0; i < 8; i++) {
        say(s, words[i]);
    }
    const uint32_t patch[12] = {0x81, 48, 0, 0, 0, 0, at + 4, 0, (uint32_t)t->argument, 0,
                                (uint32_t)t->offset, (uint32_t)(t->offset >> 32)};
    for (int i = 0; i < 12; i++) {
        say(s, patch[i]);
    }
    s->ops += 2;
    if (t->token) {
        stream_mask(s, address_of(t->column, 0, t->queue - 4), 0xf00, 0x1f00);
    }
    stream_write(s, address_of(t->column, 0, t->queue),
                 (uint32_t)t->bd | (uint32_t)t->repeat << 16 | (uint32_t)t->token << 31);
}

static void stream_wait(stream *s, int column, int channel)
{
    say(s, 0x80);
    say(s, 16);
    say(s, (uint32_t)column << 16); /* from the array to host memory */
    say(s, (uint32_t)channel << 24 | 1u << 16 | 1u << 8);
    s->ops++;
}

/* All of B, over and over: 64 columns after 64 columns, once for each group of rows of A. */
static void send_b(stream *s, const overlay *o, const overlay_shape *p, int column)
{
    uint32_t groups = p->n / (64 * (uint32_t)o->columns), rows = p->m / (64 * (uint32_t)o->columns);
    transfer t = {column, 8, 1, (int)(rows * groups) - 1, 0, 0x1d21c,
                  (uint64_t)column * p->k * 64, p->k * 16, {1, 0, 0}, {0, 0},
                  (uint32_t)o->columns * p->k * 16, groups};
    stream_transfer(s, &t);
}

/* 64 rows of A, in steps of 64 bytes, once for each group of columns of B. */
static void send_a(stream *s, const overlay *o, const overlay_shape *p, int column, uint32_t mt)
{
    uint32_t groups = p->n / (64 * (uint32_t)o->columns);
    transfer t = {column, (int)(mt % 4), 0, (int)groups - 1, 0, 0x1d214,
                  (uint64_t)(mt * (uint32_t)o->columns + (uint32_t)column) * 64 * p->k, p->k * 16,
                  {1, p->k / 4, 16}, {16, 64}, 0, 0};
    stream_transfer(s, &t);
}

static void take_c(stream *s, const overlay *o, const overlay_shape *p, int column, uint32_t mt)
{
    uint32_t cols = (uint32_t)o->columns, low = (uint32_t)lower_rows(o);
    for (uint32_t half = 0; half < 2 && half * low < cols; half++) {
        uint32_t rows = (half == 0 ? low : cols - low) * 64;
        uint64_t first = (uint64_t)(mt * cols + half * low) * 64;
        transfer t = {column, 4 + (int)(mt % 2 + 2 * half), 2,
                      (int)(p->n / (64 * cols)) - 1, 1, half == 0 ? 0x1d204 : 0x1d20c,
                      (first * p->n + (uint64_t)column * 64) * 4, rows * 64, {1, p->n, 0},
                      {64, rows}, 64 * cols, p->n / (64 * cols)};
        stream_transfer(s, &t);
    }
}

static void wait_c(stream *s, const overlay *o)
{
    for (int c = 0; c < o->columns; c++) {
        stream_wait(s, c, 0);
        if (o->columns > 1) {
            stream_wait(s, c, 1);
        }
    }
}

size_t overlay_stream(const overlay *o, const overlay_shape *p, uint32_t *out, size_t room)
{
    stream s = {out, room, 4, 0};
    uint32_t group = 64 * (uint32_t)o->columns;
    if (p->m == 0 || p->n == 0 || p->k == 0 || p->m % group != 0 || p->n % group != 0 ||
        p->k % 64 != 0 || p->n / group > 64 || (p->m / group) * (p->n / group) > 256 ||
        p->n >= 1u << 20 || p->k >= 1u << 20) {
        return 0;
    }
    for (int c = 0; c < o->columns; c++) {
        for (int r = 0; r < o->columns; r++) {
            stream_write(&s, address_of(c, r + 2, MATMUL_STEPS), p->k / 64);
        }
    }
    for (int c = 0; c < o->columns; c++) {
        send_b(&s, o, p, c);
    }
    for (uint32_t mt = 0; mt < p->m / group; mt++) {
        if (mt >= 2) {
            wait_c(&s, o); /* of mt - 2: the queues hold four tasks */
        }
        for (int c = 0; c < o->columns; c++) {
            send_a(&s, o, p, c, mt);
            take_c(&s, o, p, c, mt);
        }
    }
    for (uint32_t i = p->m / group < 2 ? p->m / group : 2; i > 0; i--) {
        wait_c(&s, o);
    }
    if (s.count > room) {
        return 0;
    }
    out[0] = 6u << 24 | (uint32_t)o->generation << 16 | 0x0100;
    out[1] = 1u << 8 | (uint32_t)o->columns;
    out[2] = (uint32_t)s.ops;
    out[3] = (uint32_t)s.count * 4;
    return s.count;
}

void overlay_tile_b(const overlay_shape *p, const int8_t *b, int8_t *out)
{
    for (uint32_t n = 0; n < p->n; n++) {
        for (uint32_t k = 0; k < p->k; k++) {
            size_t at = ((size_t)(n / 64) * (p->k / 64) + k / 64) * 4096;
            at += (n % 64 / 16) * 1024 + (k % 64 / 8) * 128 + (n % 16 / 8) * 64 + k % 8 * 8 + n % 8;
            out[at] = b[(size_t)k * p->n + n];
        }
    }
}
