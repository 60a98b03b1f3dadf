/* array.c - see array.h. */
#include "array.h"

#include "cdo.h"
#include "txn.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHIM, MEMORY_TILE, CORE_TILE,
    PORTS = 32, BDS = 48, CHANNELS = 6, QUEUE = 4, TILE_LOCKS = 64, FIFO = 64, SINKS = 12,
    STUCK = 20000, /* cycles without anything moving */
};

/* Directions of switch ports. */
typedef enum { P_NONE, P_CORE, P_DMA, P_CTRL, P_FIFO, P_SOUTH, P_WEST, P_NORTH, P_EAST,
               P_TRACE } port_kind;

typedef struct {
    uint8_t kind, count;
} ports;

/* Ports of master and slave sides in register order, by kind of tile. */
static const ports master_ports[3][10] = {
    {{P_CTRL, 1}, {P_FIFO, 1}, {P_SOUTH, 6}, {P_WEST, 4}, {P_NORTH, 6}, {P_EAST, 4}, {0, 0}},
    {{P_DMA, 6}, {P_CTRL, 1}, {P_SOUTH, 4}, {P_NORTH, 6}, {0, 0}},
    {{P_CORE, 1}, {P_DMA, 2}, {P_CTRL, 1}, {P_FIFO, 1}, {P_SOUTH, 4}, {P_WEST, 4}, {P_NORTH, 6},
     {P_EAST, 4}, {0, 0}},
};
static const ports slave_ports[3][11] = {
    {{P_CTRL, 1}, {P_FIFO, 1}, {P_SOUTH, 8}, {P_WEST, 4}, {P_NORTH, 4}, {P_EAST, 4}, {P_TRACE, 1},
     {0, 0}},
    {{P_DMA, 6}, {P_CTRL, 1}, {P_SOUTH, 6}, {P_NORTH, 4}, {P_TRACE, 1}, {0, 0}},
    {{P_CORE, 1}, {P_DMA, 2}, {P_CTRL, 1}, {P_FIFO, 1}, {P_SOUTH, 6}, {P_WEST, 4}, {P_NORTH, 4},
     {P_EAST, 4}, {P_TRACE, 2}, {0, 0}},
};

typedef struct {
    uint8_t bd, repeat, token;
} dma_task;

/* A DMA channel, or the head or tail of a stream. */
typedef struct {
    dma_task queue[QUEUE];
    int queued;
    int active;                 /* a task runs */
    dma_task task;
    int bd;                     /* of the running descriptor */
    int known;                  /* the descriptor was read */
    int holding;                /* its lock is taken */
    txn_descriptor d;
    uint32_t moved, index[4];
    int in_reset;
    int tokens;
    uint8_t group[16];          /* the 16 bytes last read or being written */
    /* streams */
    uint32_t fifo[FIFO];        /* words for this S2MM channel */
    int head, filled;
    int depth;
    struct { uint8_t column, row, channel; } sink[SINKS]; /* of an MM2S channel */
    int sinks;
} channel;

typedef struct {
    uint8_t kind, column, row;
    uint8_t *memory;            /* behind it, as many bytes: whether each was written */
    int locks[TILE_LOCKS];
    uint32_t bd[BDS][8];
    uint8_t iteration[BDS];
    channel in[CHANNELS], out[CHANNELS]; /* S2MM (into memory) and MM2S */
    int channels;
    uint32_t master[PORTS], slave[PORTS];
    uint32_t mux, demux;
    core *core;
    int loaded;
    unsigned banks;             /* used by DMAs in this cycle */
} tile;

struct array {
    const aie_isa *isa;
    int columns;
    array_host *host;
    void *host_self;
    tile tiles[ARRAY_COLUMNS][ARRAY_ROWS];
    int routed;
    int firmware_writes;        /* to word 0 of memory tiles */
    int check_reads;            /* of bytes that nothing has written */
    array_counts counts;
    char message[240];
};

__attribute__((format(printf, 2, 3)))
static int trouble(array *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(a->message, sizeof a->message, format, args);
    va_end(args);
    return -1;
}

/* ---------------------------------------------------------------- routes */

static int port_index(const ports *list, int kind, int number)
{
    int at = 0;
    for (; list->kind != 0; at += list->count, list++) {
        if (list->kind == kind) {
            return number < list->count ? at + number : -1;
        }
    }
    return -1;
}

static int port_at(const ports *list, int index, int *number)
{
    for (; list->kind != 0; index -= list->count, list++) {
        if (index < list->count) {
            *number = index;
            return list->kind;
        }
    }
    return P_NONE;
}

static int add_sink(array *a, channel *from, int column, int row, int number, int hops)
{
    if (from->sinks == SINKS) {
        return trouble(a, "a stream has more than %d ends", (int)SINKS);
    }
    from->sink[from->sinks].column = (uint8_t)column;
    from->sink[from->sinks].row = (uint8_t)row;
    from->sink[from->sinks].channel = (uint8_t)number;
    from->sinks++;
    channel *to = &a->tiles[column][row].in[number];
    to->depth = 8 + 4 * hops < FIFO ? 8 + 4 * hops : FIFO;
    return 0;
}

/* Follows a stream from a slave port to its ends, by circuit-switched masters. */
static int follow(array *a, channel *from, int column, int row, int slave, int hops)
{
    if (column < 0 || column >= a->columns || row < 0 || row >= ARRAY_ROWS || slave < 0 ||
        hops > 24) {
        return trouble(a, "a stream leaves the array at column %d row %d", column, row);
    }
    const tile *t = &a->tiles[column][row];
    if ((t->slave[slave] >> 31) == 0) {
        return trouble(a, "column %d row %d: slave port %d is off", column, row, slave);
    }
    for (int m = 0; m < PORTS; m++) {
        int number = 0, bad = 0;
        if (t->master[m] >> 31 == 0 || (t->master[m] & 0x7f) != (uint32_t)slave ||
            (t->master[m] & 0x40000000u) != 0) {
            continue;
        }
        switch (port_at(master_ports[t->kind], m, &number)) {
        case P_DMA:
            bad = add_sink(a, from, column, row, number, hops);
            break;
        case P_NORTH:
            bad = follow(a, from, column, row + 1,
                         row + 1 < ARRAY_ROWS
                             ? port_index(slave_ports[a->tiles[column][row + 1].kind], P_SOUTH, number)
                             : -1, hops + 1);
            break;
        case P_SOUTH:
            if (row == 0) { /* SOUTH 2 and 3 are the DMA's by the demultiplexer */
                bad = number == 2 || number == 3
                    ? add_sink(a, from, column, row, number - 2, hops)
                    : trouble(a, "column %d: a stream goes to port SOUTH %d", column, number);
            } else {
                bad = follow(a, from, column, row - 1,
                             port_index(slave_ports[a->tiles[column][row - 1].kind], P_NORTH, number),
                             hops + 1);
            }
            break;
        case P_WEST:
            bad = column == 0 ? trouble(a, "a stream leaves the array to the west")
                : follow(a, from, column - 1, row,
                         port_index(slave_ports[t->kind], P_EAST, number), hops + 1);
            break;
        case P_EAST:
            bad = column + 1 == a->columns ? trouble(a, "a stream leaves the array to the east")
                : follow(a, from, column + 1, row,
                         port_index(slave_ports[t->kind], P_WEST, number), hops + 1);
            break;
        default:
            break;
        }
        if (bad != 0) {
            return -1;
        }
    }
    return 0;
}

static int route(array *a)
{
    for (int col = 0; col < a->columns; col++) {
        for (int row = 0; row < ARRAY_ROWS; row++) {
            tile *t = &a->tiles[col][row];
            for (int i = 0; i < t->channels; i++) {
                /* the shim's MM2S 0 and 1 come in by the multiplexers of SOUTH 3 and 7 */
                int slave = t->kind == SHIM ? port_index(slave_ports[SHIM], P_SOUTH, i == 0 ? 3 : 7)
                                            : port_index(slave_ports[t->kind], P_DMA, i);
                t->out[i].sinks = 0;
                if (t->slave[slave] >> 31 != 0 && (t->slave[slave] & 0x40000000u) == 0 &&
                    follow(a, &t->out[i], col, row, slave, 0) != 0) {
                    return -1;
                }
            }
        }
    }
    a->routed = 1;
    return 0;
}

/* ---------------------------------------------------------------- registers */

static int signed7(uint32_t v)
{
    return (int)(v & 0x3f) - (int)(v & 0x40);
}

static uint32_t bits(uint32_t word, int low, int length)
{
    return word >> low & (length == 32 ? 0xffffffffu : (1u << length) - 1);
}

static void read_core_descriptor(const uint32_t *w, txn_descriptor *d)
{
    d->base = bits(w[0], 14, 14);
    d->length = bits(w[0], 0, 14);
    d->packet = (int)bits(w[1], 30, 1);
    d->step[0] = bits(w[2], 0, 13) + 1;
    d->step[1] = bits(w[2], 13, 13) + 1;
    d->step[2] = bits(w[3], 0, 13) + 1;
    d->wrap[0] = bits(w[3], 13, 8);
    d->wrap[1] = bits(w[3], 21, 8);
    d->iteration_step = bits(w[4], 0, 13) + 1;
    d->iteration_wrap = bits(w[4], 13, 6) + 1;
    d->use_next = (int)bits(w[5], 26, 1);
    d->next = (int)bits(w[5], 27, 4);
    d->valid = (int)bits(w[5], 25, 1);
    d->acquire = (int)bits(w[5], 12, 1);
    d->acquire_id = (int)bits(w[5], 0, 4);
    d->acquire_value = signed7(bits(w[5], 5, 7));
    d->release_id = (int)bits(w[5], 13, 4);
    d->release_value = signed7(bits(w[5], 18, 7));
}

/* Addresses and locks of the west, the own and the east memory tile follow each other. */
static void read_memory_descriptor(const uint32_t *w, txn_descriptor *d)
{
    d->length = bits(w[0], 0, 17);
    d->packet = (int)bits(w[0], 31, 1);
    d->base = bits(w[1], 0, 19);
    d->use_next = (int)bits(w[1], 19, 1);
    d->next = (int)bits(w[1], 20, 6);
    d->step[0] = bits(w[2], 0, 17) + 1;
    d->step[1] = bits(w[3], 0, 17) + 1;
    d->step[2] = bits(w[4], 0, 17) + 1;
    d->step[3] = bits(w[5], 0, 17) + 1;
    d->wrap[0] = bits(w[2], 17, 10);
    d->wrap[1] = bits(w[3], 17, 10);
    d->wrap[2] = bits(w[4], 17, 10);
    d->padded = bits(w[1], 26, 6) != 0 || bits(w[3], 27, 5) != 0 || bits(w[4], 27, 4) != 0 ||
                bits(w[5], 17, 15) != 0;
    d->iteration_step = bits(w[6], 0, 17) + 1;
    d->iteration_wrap = bits(w[6], 17, 6) + 1;
    d->valid = (int)bits(w[7], 31, 1);
    d->acquire = (int)bits(w[7], 15, 1);
    d->acquire_id = (int)bits(w[7], 0, 8);
    d->acquire_value = signed7(bits(w[7], 8, 7));
    d->release_id = (int)bits(w[7], 16, 8);
    d->release_value = signed7(bits(w[7], 24, 7));
}

static void read_descriptor(const tile *t, int bd, txn_descriptor *d)
{
    memset(d, 0, sizeof *d);
    if (t->kind == CORE_TILE) {
        read_core_descriptor(t->bd[bd], d);
    } else if (t->kind == MEMORY_TILE) {
        read_memory_descriptor(t->bd[bd], d);
    } else {
        txn_shim_descriptor(t->bd[bd], d);
    }
}

static int push(array *a, tile *t, channel *ch, uint32_t word)
{
    if (ch->queued == QUEUE) {
        return trouble(a, "column %d row %d: a task queue overflows", t->column, t->row);
    }
    if (ch->in_reset) {
        return trouble(a, "column %d row %d: a task for a channel in reset", t->column, t->row);
    }
    dma_task *task = &ch->queue[ch->queued++];
    task->bd = (uint8_t)(word & (t->kind == MEMORY_TILE ? 0x3f : 0xf));
    task->repeat = (uint8_t)(word >> 16 & 0xff);
    task->token = (uint8_t)(word >> 31);
    return 0;
}

typedef struct {
    uint32_t bd, bd_count, control, lock, lock_count, master, slave;
} layout;

static const layout layouts[3] = {
    {0x1d000, 16, 0x1d200, 0x14000, 16, 0x3f000, 0x3f100},
    {0xa0000, 48, 0xa0600, 0xc0000, 64, 0xb0000, 0xb0100},
    {0x1d000, 16, 0x1de00, 0x1f000, 16, 0x3f000, 0x3f100},
};

static void merge(uint32_t *word, uint32_t value, uint32_t mask)
{
    *word = (*word & ~mask) | (value & mask);
}

/* The word of memory or the register at an offset that is plain storage; NULL if it is not. */
static uint32_t *storage(tile *t, uint32_t offset)
{
    const layout *l = &layouts[t->kind];
    if (offset >= l->bd && offset < l->bd + l->bd_count * 0x20) {
        return &t->bd[(offset - l->bd) / 0x20][(offset - l->bd) / 4 % 8];
    }
    if (offset >= l->master && offset < l->master + PORTS * 4) {
        return &t->master[(offset - l->master) / 4];
    }
    if (offset >= l->slave && offset < l->slave + PORTS * 4) {
        return &t->slave[(offset - l->slave) / 4];
    }
    return t->kind != SHIM ? NULL : offset == 0x1f000 ? &t->mux : offset == 0x1f004 ? &t->demux : NULL;
}

static uint8_t *byte_storage(tile *t, uint32_t offset)
{
    if (t->kind == CORE_TILE && offset < CORE_MEMORY) {
        return t->memory + offset;
    }
    if (t->kind == CORE_TILE && offset >= 0x20000 && offset < 0x20000 + CORE_PROGRAM) {
        return core_program(t->core) + offset - 0x20000;
    }
    return t->kind == MEMORY_TILE && offset < ARRAY_MEMORY ? t->memory + offset : NULL;
}

static uint32_t memory_size(const tile *t)
{
    return t->kind == MEMORY_TILE ? ARRAY_MEMORY : CORE_MEMORY;
}

/* Notes a word of a tile's memory as written, or says whether it was. */
static int was_written(const tile *t, uint8_t *word, int write)
{
    uint8_t *marks = word + memory_size(t);
    if (write) {
        memset(marks, 1, 4);
    }
    return memchr(marks, 0, 4) == NULL;
}

/* The reset bit holds a channel: it forgets its tasks, the descriptor it works on and the words it
 * was given, but what it did to locks stays. The shim's channels have none. */
static int write_control(array *a, tile *t, uint32_t offset, uint32_t value, uint32_t mask)
{
    uint32_t n = offset / 4;
    channel *ch = n / 2 < (uint32_t)t->channels ? &t->in[n / 2] : &t->out[n / 2 - (uint32_t)t->channels];
    if (n % 2 == 1) {
        return push(a, t, ch, value & mask);
    }
    if (t->kind != SHIM && (mask & 2) != 0) {
        ch->in_reset = (value & 2) != 0;
        if (ch->in_reset) {
            ch->queued = ch->active = ch->holding = ch->known = ch->filled = 0;
        }
    }
    return 0;
}

static int write_core_control(tile *t, uint32_t value, uint32_t mask)
{
    if ((mask & value & 2) != 0) {
        core_reset(t->core);
    }
    if ((mask & 1) != 0) {
        if ((value & 1) != 0 && core_state_of(t->core) == CORE_OFF) {
            core_changed(t->core);
            t->loaded = 1;
        }
        core_enable(t->core, (int)(value & 1));
    }
    return 0;
}

int array_write(array *a, uint32_t address, uint32_t value, uint32_t mask)
{
    uint32_t column = address >> 25, row = address >> 20 & 31, offset = address & 0xffffc;
    if (column >= (uint32_t)a->columns || row >= ARRAY_ROWS) {
        return trouble(a, "a write to column %u row %u", (unsigned)column, (unsigned)row);
    }
    tile *t = &a->tiles[column][row];
    const layout *l = &layouts[t->kind];
    uint8_t *bytes = byte_storage(t, offset);
    if (bytes != NULL) {
        uint32_t word;
        memcpy(&word, bytes, 4);
        merge(&word, value, mask);
        memcpy(bytes, &word, 4);
        if (t->kind == MEMORY_TILE || offset < CORE_MEMORY) {
            (void)was_written(t, bytes, 1);
        }
        if (t->kind == CORE_TILE && offset >= 0x20000 && core_state_of(t->core) != CORE_OFF) {
            core_changed(t->core);
        }
        return 0;
    }
    uint32_t *word = storage(t, offset);
    if (word != NULL) {
        merge(word, value, mask);
        if (offset >= l->bd && offset < l->bd + l->bd_count * 0x20) {
            t->iteration[(offset - l->bd) / 0x20] = 0;
        } else {
            a->routed = 0;
        }
        return 0;
    }
    if (offset >= l->control && offset < l->control + (uint32_t)t->channels * 16) {
        return write_control(a, t, offset - l->control, value, mask);
    }
    if (offset >= l->lock && offset < l->lock + l->lock_count * 0x10) {
        t->locks[(offset - l->lock) / 0x10] = (int)(value & 0x3f);
        return 0;
    }
    if (t->kind == CORE_TILE && offset == 0x32000) {
        return write_core_control(t, value, mask);
    }
    return 0; /* packet slots, events, clocks: nothing that data needs */
}

uint32_t array_read(array *a, uint32_t address)
{
    uint32_t column = address >> 25, row = address >> 20 & 31, offset = address & 0xffffc, v = 0;
    if (column < (uint32_t)a->columns && row < ARRAY_ROWS) {
        tile *t = &a->tiles[column][row];
        const layout *l = &layouts[t->kind];
        uint8_t *bytes = byte_storage(t, offset);
        uint32_t *word = storage(t, offset);
        if (bytes != NULL) {
            memcpy(&v, bytes, 4);
        } else if (word != NULL) {
            v = *word;
        } else if (offset >= l->lock && offset < l->lock + l->lock_count * 0x10) {
            v = (uint32_t)t->locks[(offset - l->lock) / 0x10];
        }
    }
    return v;
}

/* ---------------------------------------------------------------- DMA */

static int *dma_lock(array *a, tile *t, int id)
{
    if (t->kind != MEMORY_TILE) {
        return &t->locks[id % 16];
    }
    int column = t->column + id / 64 - 1; /* west, own, east */
    return id < 192 && column >= 0 && column < a->columns ? &a->tiles[column][1].locks[id % 64]
                                                          : NULL;
}

/* Where the next word lies; NULL: nowhere. */
static uint8_t *dma_word(array *a, tile *t, channel *ch, int write)
{
    const txn_descriptor *d = &ch->d;
    uint64_t at = txn_offset(d, ch->index) + (uint64_t)t->iteration[ch->bd] * d->iteration_step;
    if (t->kind == SHIM) {
        return a->host(a->host_self, d->base + at * 4, 4, write);
    }
    at += d->base;
    if (t->kind == CORE_TILE) {
        at %= CORE_MEMORY / 4;
        if (at % 4 == 0 || ch->moved == 0) { /* one access of 16 bytes for four words */
            t->banks |= core_banks((uint32_t)at * 4, 4);
        }
        return t->memory + at * 4;
    }
    int column = t->column + (int)(at / (ARRAY_MEMORY / 4)) - 1;
    return column >= 0 && column < a->columns && at < 3 * ARRAY_MEMORY / 4
        ? a->tiles[column][1].memory + at % (ARRAY_MEMORY / 4) * 4 : NULL;
}

static void dma_advance(channel *ch)
{
    ch->moved++;
    txn_advance(&ch->d, ch->index, 1);
}

/* Begins a task or the next descriptor of its chain, when its lock can be had. 1: it can move. */
static int dma_begin(array *a, tile *t, channel *ch)
{
    if (!ch->active) {
        if (ch->queued == 0) {
            return 0;
        }
        ch->task = ch->queue[0];
        memmove(ch->queue, ch->queue + 1, sizeof ch->queue - sizeof *ch->queue);
        ch->queued--;
        ch->active = 1;
        ch->bd = ch->task.bd;
        ch->holding = ch->known = 0;
    }
    if (ch->holding) {
        return 1;
    }
    txn_descriptor *d = &ch->d;
    if (!ch->known) {
        read_descriptor(t, ch->bd, d);
        ch->known = 1;
    }
    if (t->kind == SHIM && t->bd[ch->bd][4] >> 30 == 3 && a->isa == aie2()) {
        return trouble(a, "column %d: descriptor %d has bursts that AIE2 does not have", t->column,
                       ch->bd);
    }
    if (!d->valid || d->padded || d->packet || d->length == 0) {
        return trouble(a, "column %d row %d: descriptor %d is %s", t->column, t->row, ch->bd,
                       !d->valid ? "not valid" : d->padded ? "padded, which is not simulated"
                       : d->packet ? "of packets, which are not simulated" : "empty");
    }
    if (d->acquire) {
        int *lock = dma_lock(a, t, d->acquire_id), v = d->acquire_value;
        if (lock == NULL) {
            return trouble(a, "column %d row %d: no lock %d", t->column, t->row, d->acquire_id);
        }
        if (v < 0 ? *lock < -v : *lock != v) {
            return 0;
        }
        *lock += v < 0 ? v : -v;
    }
    ch->holding = 1;
    ch->moved = 0;
    memset(ch->index, 0, sizeof ch->index);
    return 1;
}

static int dma_end(array *a, tile *t, channel *ch)
{
    const txn_descriptor *d = &ch->d;
    if (d->acquire && d->release_value != 0) {
        int *lock = dma_lock(a, t, d->release_id);
        if (lock == NULL) {
            return trouble(a, "column %d row %d: no lock %d", t->column, t->row, d->release_id);
        }
        *lock += d->release_value;
    }
    t->iteration[ch->bd] = (uint8_t)((t->iteration[ch->bd] + 1u) % d->iteration_wrap);
    ch->holding = ch->known = 0;
    if (d->use_next) {
        ch->bd = d->next;
    } else if (ch->task.repeat > 0) {
        ch->task.repeat--;
        ch->bd = ch->task.bd;
    } else {
        ch->active = 0;
        ch->tokens += ch->task.token;
    }
    return 0;
}

static int move_in(array *a, tile *t, channel *ch)
{
    if (ch->filled == 0 && !ch->queued) {
        return 0;
    }
    int can = dma_begin(a, t, ch);
    if (can <= 0 || ch->filled == 0) {
        return can < 0 ? -1 : 0;
    }
    uint8_t *to = dma_word(a, t, ch, 1);
    if (to == NULL) {
        return trouble(a, "column %d row %d: a DMA writes outside its memory", t->column, t->row);
    }
    memcpy(to, &ch->fifo[ch->head], 4);
    if (t->kind != SHIM) {
        (void)was_written(t, to, 1);
    }
    ch->head = (ch->head + 1) % FIFO;
    ch->filled--;
    a->counts.words_out += t->kind == SHIM;
    dma_advance(ch);
    return ch->moved == ch->d.length && dma_end(a, t, ch) != 0 ? -1 : 1;
}

static int move_out(array *a, tile *t, channel *ch)
{
    if (!ch->active && ch->queued == 0) {
        return 0;
    }
    int can = dma_begin(a, t, ch);
    if (can <= 0) {
        return can;
    }
    if (ch->sinks == 0) {
        return trouble(a, "column %d row %d: a DMA sends, but its stream ends nowhere", t->column,
                       t->row);
    }
    for (int i = 0; i < ch->sinks; i++) {
        const channel *to = &a->tiles[ch->sink[i].column][ch->sink[i].row].in[ch->sink[i].channel];
        if (to->filled >= to->depth) {
            return 0;
        }
    }
    uint8_t *from = dma_word(a, t, ch, 0);
    if (from == NULL) {
        return trouble(a, "column %d row %d: a DMA reads outside its memory", t->column, t->row);
    }
    if (a->check_reads && t->kind != SHIM && !was_written(t, from, 0)) {
        return trouble(a, "column %d row %d: a DMA reads what nothing has written", t->column,
                       t->row);
    }
    for (int i = 0; i < ch->sinks; i++) {
        channel *to = &a->tiles[ch->sink[i].column][ch->sink[i].row].in[ch->sink[i].channel];
        memcpy(&to->fifo[(to->head + to->filled) % FIFO], from, 4);
        to->filled++;
    }
    a->counts.words_in += t->kind == SHIM;
    dma_advance(ch);
    return ch->moved == ch->d.length && dma_end(a, t, ch) != 0 ? -1 : 1;
}

int array_cycle(array *a)
{
    int moved = 0;
    if (!a->routed && route(a) != 0) {
        return -1;
    }
    for (int col = 0; col < a->columns; col++) {
        if (a->firmware_writes) {
            memset(a->tiles[col][1].memory, (int)(a->counts.cycles & 0xff), 4);
        }
        for (int row = 0; row < ARRAY_ROWS; row++) {
            tile *t = &a->tiles[col][row];
            t->banks = 0;
            for (int i = 0; i < t->channels; i++) {
                int in = move_in(a, t, &t->in[i]), out = move_out(a, t, &t->out[i]);
                if (in < 0 || out < 0) {
                    return -1;
                }
                moved |= in | out;
            }
        }
    }
    for (int col = 0; col < a->columns; col++) {
        for (int row = 2; row < ARRAY_ROWS; row++) {
            tile *t = &a->tiles[col][row];
            core_state s = t->loaded ? core_step(t->core, t->banks) : CORE_OFF;
            if (s == CORE_FAILED) {
                return trouble(a, "core of column %d row %d: %s", col, row, core_message(t->core));
            }
            moved |= s == CORE_RUNNING;
        }
    }
    a->counts.cycles++;
    return moved;
}

/* ---------------------------------------------------------------- configuration */

static int configure_command(void *self, const cdo_command *c)
{
    array *a = self;
    switch (c->opcode) {
    case CDO_WRITE: case CDO_WRITE64: case CDO_MASK_WRITE: case CDO_MASK_WRITE64:
        return array_write(a, (uint32_t)c->address, c->value,
                           c->opcode == CDO_WRITE || c->opcode == CDO_WRITE64 ? 0xffffffffu
                           : c->mask != 0 ? c->mask : 0);
    case CDO_BLOCK:
        for (uint32_t i = 0; i < c->words; i++) {
            uint32_t word;
            memcpy(&word, c->data + i * 4, 4);
            if (array_write(a, (uint32_t)c->address + i * 4, word, 0xffffffffu) != 0) {
                return -1;
            }
        }
        return 0;
    case CDO_NOP: case CDO_MARKER: case CDO_DELAY: case CDO_END: case CDO_MASK_POLL:
    case CDO_MASK_POLL64:
        return 0;
    default:
        return trouble(a, "configuration command 0x%x", (unsigned)c->opcode);
    }
}

int array_configure(array *a, const uint8_t *image, size_t size)
{
    size_t cdo_size = 0;
    const uint8_t *cdo = cdo_find(image, size, &cdo_size);
    if (cdo == NULL) {
        return trouble(a, "no configuration in this file");
    }
    a->message[0] = '\0';
    if (cdo_walk(cdo, cdo_size, configure_command, a) != 0) {
        return a->message[0] != '\0' ? -1 : trouble(a, "malformed configuration");
    }
    return route(a);
}

/* ---------------------------------------------------------------- instruction streams */

/* Cycles until `done` says so; a standstill is a failure. */
static int run_until(array *a, int (*done)(const void *), const void *what)
{
    for (int still = 0; !done(what); ) {
        int moved = array_cycle(a);
        if (moved < 0) {
            return -1;
        }
        still = moved ? 0 : still + 1;
        if (still > STUCK) {
            char text[160];
            array_explain(a, text, sizeof text);
            return trouble(a, "nothing moves: %s", text);
        }
    }
    return 0;
}

static int has_token(const void *tokens)
{
    return *(const int *)tokens > 0;
}

static int wait_token(array *a, const txn_op *op)
{
    int to_host = (op->data[0] & 0xff) == 0, first = (int)(op->data[0] >> 16 & 0xff);
    int columns = (int)(op->data[1] >> 16 & 0xff), number = (int)(op->data[1] >> 24);
    for (int col = first; col < first + columns; col++) {
        int *tokens = array_tokens(a, col, to_host, number);
        if (tokens == NULL) {
            return trouble(a, "a wait for a token that cannot come");
        }
        if (run_until(a, has_token, tokens) != 0) {
            return -1;
        }
        --*tokens;
    }
    return 0;
}

static int has_room(const void *ch)
{
    return ((const channel *)ch)->queued < QUEUE;
}

/* A write to a full task queue waits, as firmware does. */
static int stream_write(array *a, uint32_t address, uint32_t value, uint32_t mask)
{
    uint32_t column = address >> 25, row = address >> 20 & 31, offset = address & 0xfffff;
    if (column < (uint32_t)a->columns && row == 0 && offset >= 0x1d200 && offset < 0x1d220 &&
        offset % 8 == 4) {
        tile *t = &a->tiles[column][0];
        uint32_t n = (offset - 0x1d200) / 8;
        if (run_until(a, has_room, n < 2 ? &t->in[n] : &t->out[n - 2]) != 0) {
            return -1;
        }
    }
    return array_write(a, address, value, mask);
}

static int stream_step(array *a, const txn_op *op, const uint64_t *args, int arg_count)
{
    switch (op->code) {
    case 0: case 3:
        return stream_write(a, op->address, op->value, op->mask);
    case 1:
        for (uint32_t i = 0; i < op->n_data; i++) {
            if (array_write(a, op->address + 4 * i, op->data[i], 0xffffffffu) != 0) {
                return -1;
            }
        }
        return 0;
    case 0x80:
        return wait_token(a, op);
    case 0x81:
        if (op->argument >= (uint32_t)arg_count) {
            return trouble(a, "the stream names argument %u", (unsigned)op->argument);
        }
        return array_write(a, op->address, (uint32_t)(args[op->argument] + op->plus), ~3u) != 0 ||
               array_write(a, op->address + 4,
                           (uint32_t)((args[op->argument] + op->plus) >> 32), 0xffff) != 0 ? -1 : 0;
    default:
        return 0;
    }
}

int array_run(array *a, const uint32_t *words, size_t count, const uint64_t *args, int arg_count)
{
    a->message[0] = '\0';
    if (count < 4 || words[3] != count * 4) {
        return trouble(a, "not an instruction stream of this length");
    }
    int old = (words[0] & 0xffff) == 0x0100;
    uint32_t at = 4;
    for (uint32_t i = 0; i < words[2]; i++) {
        txn_op op;
        uint32_t n = txn_read(words + at, (uint32_t)count - at, old, &op);
        if (n == 0) {
            return trouble(a, "operation %u of the stream is none", (unsigned)i);
        }
        if (stream_step(a, &op, args, arg_count) != 0) {
            return -1;
        }
        at += n;
    }
    return at == count ? 0 : trouble(a, "the operations do not end where the stream does");
}

/* ---------------------------------------------------------------- the object */

array *array_new(const aie_isa *isa, int columns, array_host *host, void *host_self)
{
    array *a = calloc(1, sizeof *a);
    if (a == NULL || columns < 1 || columns > ARRAY_COLUMNS) {
        free(a);
        return NULL;
    }
    a->isa = isa;
    a->columns = columns;
    a->host = host;
    a->host_self = host_self;
    for (int col = 0; col < columns; col++) {
        for (int row = 0; row < ARRAY_ROWS; row++) {
            tile *t = &a->tiles[col][row];
            t->column = (uint8_t)col;
            t->row = (uint8_t)row;
            t->kind = row == 0 ? SHIM : row == 1 ? MEMORY_TILE : CORE_TILE;
            t->channels = row == 1 ? 6 : 2;
            t->memory = row == 0 ? NULL : calloc(2, memory_size(t));
            t->core = row < 2 ? NULL : core_new(isa);
            if ((row > 0 && t->memory == NULL) || (row > 1 && t->core == NULL)) {
                array_free(a);
                return NULL;
            }
        }
    }
    for (int col = 0; col < columns; col++) {
        for (int row = 2; row < ARRAY_ROWS; row++) {
            tile *t = &a->tiles[col][row], *south = row > 2 ? &a->tiles[col][row - 1] : NULL;
            tile *west = col > 0 ? &a->tiles[col - 1][row] : NULL;
            tile *north = row + 1 < ARRAY_ROWS ? &a->tiles[col][row + 1] : NULL;
            core_view v = {
                {south ? south->memory : NULL, west ? west->memory : NULL,
                 north ? north->memory : NULL, t->memory},
                {south ? south->locks : NULL, west ? west->locks : NULL, north ? north->locks : NULL,
                 t->locks},
                1,
            };
            core_connect(t->core, &v);
        }
    }
    return a;
}

void array_free(array *a)
{
    if (a == NULL) {
        return;
    }
    for (int col = 0; col < ARRAY_COLUMNS; col++) {
        for (int row = 0; row < ARRAY_ROWS; row++) {
            free(a->tiles[col][row].memory);
            core_free(a->tiles[col][row].core);
        }
    }
    free(a);
}

void array_check_reads(array *a)
{
    a->check_reads = 1;
    for (int col = 0; col < a->columns; col++) {
        for (int row = 2; row < ARRAY_ROWS; row++) {
            core_check_loads(a->tiles[col][row].core);
        }
    }
}

void array_let_firmware_write(array *a)
{
    a->firmware_writes = 1;
}

void array_hang(array *a)
{
    for (int col = 0; col < a->columns; col++) {
        for (int row = 1; row < ARRAY_ROWS; row++) {
            tile *t = &a->tiles[col][row];
            for (int i = 0; i < TILE_LOCKS; i++) {
                t->locks[i] = 1;
            }
            for (int i = 0; i < t->channels; i++) {
                channel *both[2] = {&t->in[i], &t->out[i]};
                for (int k = 0; k < 2; k++) {
                    memset(both[k]->queue, 0, sizeof both[k]->queue);
                    both[k]->queue[0].bd = (uint8_t)(i % 2 == 0 ? 1 : t->kind == CORE_TILE ? 3 : 25);
                    both[k]->queued = 2;
                }
            }
            if (t->core != NULL) { /* done at once, if anything enables it */
                core_enable(t->core, 1);
                t->loaded = 1;
            }
        }
    }
}

int *array_tokens(array *a, int column, int to_host, int number)
{
    if (column < 0 || column >= a->columns || number < 0 || number > 1) {
        return NULL;
    }
    tile *t = &a->tiles[column][0];
    return to_host ? &t->in[number].tokens : &t->out[number].tokens;
}

int array_shim_busy(const array *a)
{
    for (int col = 0; col < a->columns; col++) {
        const tile *t = &a->tiles[col][0];
        for (int i = 0; i < 2; i++) {
            if (t->in[i].active || t->in[i].queued || t->out[i].active || t->out[i].queued) {
                return 1;
            }
        }
    }
    return 0;
}

const char *array_message(const array *a)
{
    return a->message;
}

core *array_core(array *a, int column, int row)
{
    return row >= 2 && a->tiles[column][row].loaded ? a->tiles[column][row].core : NULL;
}

const array_counts *array_count(array *a)
{
    array_counts *n = &a->counts;
    n->macs = n->bundles = n->old_reads = n->bank_stalls = n->lock_stalls = 0;
    n->core_cycles = 0;
    n->cores = 0;
    for (int col = 0; col < a->columns; col++) {
        for (int row = 2; row < ARRAY_ROWS; row++) {
            if (array_core(a, col, row) == NULL) {
                continue;
            }
            const core_counts *c = core_counts_of(a->tiles[col][row].core);
            n->cores++;
            n->macs += c->macs;
            n->bundles += c->bundles;
            n->old_reads += c->old_reads;
            n->bank_stalls += c->bank_stalls;
            n->lock_stalls += c->lock_stalls;
            n->core_cycles += c->cycles;
        }
    }
    return n;
}

void array_reset_counts(array *a)
{
    memset(&a->counts, 0, sizeof a->counts);
}

void array_explain(const array *a, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (int col = 0; col < a->columns; col++) {
        for (int row = 0; row < ARRAY_ROWS; row++) {
            const tile *t = &a->tiles[col][row];
            for (int i = 0; i < t->channels && n < size; i++) {
                const channel *both[2] = {&t->in[i], &t->out[i]};
                for (int k = 0; k < 2 && n < size; k++) {
                    if (both[k]->active || both[k]->queued || both[k]->filled) {
                        n += (size_t)snprintf(text + n, size - n, "[%d,%d %s%d bd %d %u/%u%s] ", col,
                                              row, k ? "out" : "in", i, both[k]->bd,
                                              (unsigned)both[k]->moved, (unsigned)both[k]->d.length,
                                              both[k]->holding ? "" : " waits for its lock");
                    }
                }
            }
            if (t->loaded && n < size) {
                n += (size_t)snprintf(text + n, size - n, "[%d,%d core %d at 0x%x] ", col, row,
                                      (int)core_state_of(t->core), (unsigned)core_pc(t->core));
            }
        }
    }
}

/* A DMA channel's status register: state, what it waits for, tasks in its queue, descriptor. */
static uint32_t channel_status(const channel *ch, int to_memory)
{
    uint32_t v = (uint32_t)ch->queued << 20 | (uint32_t)ch->bd << 24;
    if (!ch->active) {
        return v;
    }
    v |= 1u << 19 | 2;
    return v | (!ch->holding ? 1u << 2 : !to_memory || ch->filled == 0 ? 1u << 4 : 0);
}

static uint8_t *put_word(uint8_t *to, uint32_t value)
{
    memcpy(to, &value, 4);
    return to + 4;
}

static uint8_t *tile_status(const tile *t, uint8_t *to)
{
    static const uint32_t states[] = {
        [CORE_OFF] = 0, [CORE_RUNNING] = 1, [CORE_WAITING] = 1 | 1u << 9, [CORE_DONE] = 1u << 20,
        [CORE_FAILED] = 1u << 19
    };
    for (int i = 0; i < t->channels; i++) {
        to = put_word(to, channel_status(&t->in[i], 1));
        to = put_word(to, channel_status(&t->out[i], 0));
    }
    to += 4 * ARRAY_EVENTS * (t->kind == CORE_TILE ? 2 : 1);
    if (t->kind == CORE_TILE) {
        to = put_word(to, t->loaded ? states[core_state_of(t->core)] : 0);
        to = put_word(to, t->loaded ? core_pc(t->core) : 0);
        to += 8; /* stack pointer and link register */
    }
    for (uint32_t i = 0; i < layouts[t->kind].lock_count; i++) {
        *to++ = (uint8_t)t->locks[i];
    }
    return to;
}

void array_status(const array *a, int column, uint8_t *to)
{
    static const int rows[ARRAY_ROWS] = {2, 3, 4, 5, 1, 0};
    memset(to, 0, ARRAY_STATUS);
    for (int i = 0; i < ARRAY_ROWS; i++) {
        to = tile_status(&a->tiles[column][rows[i]], to);
    }
}
