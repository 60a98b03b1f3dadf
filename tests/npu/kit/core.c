/* core.c - see core.h.
 *
 * Results wait in `wheel`, by the cycle in which they become visible; what reads operands or memory
 * in a later cycle waits in `later`. Both hold at most twelve cycles. */
#include "core.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What differs on AIE2P, by AIE2PSchedule.td. */
static const struct { core_kind kind; core_timing timing; } aie2p_timings[] = {
    {CORE_MAC, {6, 4, 0, 'v'}}, {CORE_MAC2, {6, 4, 0, 'v'}}, {CORE_CLEAR, {6, 1, 0, 'v'}},
};

const core_timing core_timings[CORE_KINDS] = {
    [CORE_SCALAR] = {1, 1, 0, 0},    [CORE_MUL] = {2, 1, 0, 0},       [CORE_POINTER] = {1, 1, 0, 0},
    [CORE_LOAD] = {7, 1, 5, 0},      [CORE_LOAD_UPS] = {9, 7, 5, 0},  [CORE_UPS] = {3, 1, 0, 0},
    [CORE_SRS] = {4, 1, 0, 0},       [CORE_MOVE] = {2, 1, 0, 'm'},    [CORE_MOVE_ACC] = {2, 1, 0, 0},
    [CORE_BROADCAST] = {2, 1, 0, 'm'}, [CORE_SHUFFLE] = {2, 1, 0, 'm'}, [CORE_MAC] = {5, 3, 0, 'v'},
    [CORE_MAC2] = {5, 3, 0, 'v'},    [CORE_CLEAR] = {5, 1, 0, 'v'},   [CORE_STORE] = {1, 1, 5, 0},
    [CORE_STORE_SRS] = {1, 1, 7, 0}, [CORE_BRANCH] = {1, 1, 0, 0},    [CORE_LOCK] = {1, 1, 2, 0},
};

enum { WHEEL = 16, ENTRIES = 12, SCALARS = 4 * 256, VECTORS = 16 * 64, ACCUMULATORS = 1280,
       STATE = SCALARS + VECTORS + ACCUMULATORS, WIDEST = 256 };

/* A part of the register state. */
typedef struct {
    uint16_t at, bytes;
} place;

typedef struct {
    place where;
    char bypass;
    uint8_t data[WIDEST];
} pending;

struct uop;
typedef void execute(core *c, const struct uop *u);

typedef struct uop {
    const aie_op *op;
    execute *run;
    core_kind kind;
    int n;
    int32_t v[AIE_OPERANDS];
    place reg[AIE_OPERANDS];
    /* memory operations */
    char mode;             /* i index, d index register, p post, m post register, 2 2D, 0 none */
    int ptr, mod, data, shift;
    int bytes;             /* moved */
    int variant;           /* of the operation, see table */
} uop;

/* Something that happens in a later cycle of an instruction. */
typedef struct {
    const uop *u;
    uint32_t address;
    uint32_t word;
    uint8_t data[128 + WIDEST];
} task;

typedef struct {
    int bytes;             /* 0: not decoded yet, -1: no bundle */
    int count;
    uop u[6];
} bundle;

struct core {
    const aie_isa *isa;
    core_timing timing[CORE_KINDS];
    core_view view;
    uint8_t program[CORE_PROGRAM];
    bundle *cache;         /* by address / 2 */
    uint8_t state[STATE];
    pending wheel[WHEEL][ENTRIES];
    int due[WHEEL];
    task later[WHEEL][ENTRIES];
    int waiting[WHEEL];
    uint64_t now;
    uint32_t pc;
    int delay;             /* bundles left until the branch is taken; 0: none */
    uint32_t target;
    int link;              /* it sets lr */
    int stall;
    unsigned banks;        /* used in this cycle */
    int check_loads;
    core_state status;
    char message[160];
    core_counts counts;
};

/* ---------------------------------------------------------------- registers */

static place place_of(int reg)
{
    int file = reg >> 8, i = reg & 255;
    static const uint8_t scalar[AIE_FILES] = {
        [AIE_R] = 0, [AIE_P] = 32, [AIE_M] = 40, [AIE_DN] = 48, [AIE_DJ] = 56, [AIE_DC] = 64,
        [AIE_S] = 72, [AIE_SPECIAL] = 80,
    };
    place p = {0, 4};
    switch (file) {
    case AIE_W: p = (place){(uint16_t)(SCALARS + i * 32), 32}; break;
    case AIE_X: p = (place){(uint16_t)(SCALARS + i * 64), 64}; break;
    case AIE_Y: p = (place){(uint16_t)(SCALARS + i * 128), 128}; break;
    case AIE_AM: p = (place){(uint16_t)(SCALARS + VECTORS + i * 32), 32}; break;
    case AIE_BM:
        p = (place){(uint16_t)(SCALARS + VECTORS + (i >= 64 ? i - 64 : i) * 64), 64};
        break;
    case AIE_CM:
        p = (place){(uint16_t)(SCALARS + VECTORS + (i >= 64 ? i - 64 : i) * 128), 128};
        break;
    case AIE_DM: p = (place){(uint16_t)(SCALARS + VECTORS + i * 256), 256}; break;
    case AIE_L: p = (place){(uint16_t)((16 + 2 * i) * 4), 8}; break;
    default: p.at = (uint16_t)((scalar[file] + i) * 4); break;
    }
    return p;
}

static place special(int which)
{
    return place_of(AIE_REG(AIE_SPECIAL, which));
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void put32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
}

static int overlap(place a, place b)
{
    return a.at < b.at + b.bytes && b.at < a.at + a.bytes;
}

/* The value of a register now, with results of `bypass` that are due in the next cycle. */
static void read_place(core *c, place p, char bypass, uint8_t *out)
{
    memcpy(out, c->state + p.at, p.bytes);
    const int next = (int)((c->now + 1) % WHEEL);
    for (int i = 0; i < c->due[next]; i++) {
        const pending *w = &c->wheel[next][i];
        if (bypass == 0 || w->bypass != bypass || !overlap(w->where, p)) {
            continue;
        }
        int from = w->where.at > p.at ? w->where.at : p.at;
        int to = w->where.at + w->where.bytes < p.at + p.bytes ? w->where.at + w->where.bytes
                                                              : p.at + p.bytes;
        memcpy(out + from - p.at, w->data + from - w->where.at, (size_t)(to - from));
    }
}

static uint32_t read_scalar(const core *c, place p)
{
    return get32(c->state + p.at);
}

/* Counts reads of vector registers that a write under way will change. */
static void note_old(core *c, place p)
{
    for (int t = 1; t < 9; t++) {
        const int slot = (int)((c->now + (unsigned)t) % WHEEL);
        for (int i = 0; i < c->due[slot]; i++) {
            if (overlap(c->wheel[slot][i].where, p)) {
                c->counts.old_reads++;
                return;
            }
        }
    }
}

__attribute__((format(printf, 2, 3)))
static void stop(core *c, const char *format, ...)
{
    if (c->status != CORE_FAILED) {
        va_list args;
        va_start(args, format);
        vsnprintf(c->message, sizeof c->message, format, args);
        va_end(args);
        c->status = CORE_FAILED;
    }
}

/* A result that becomes visible `cycles` after this one; its bytes are to be filled in. */
static uint8_t *result(core *c, place where, int cycles, char bypass)
{
    static uint8_t nowhere[WIDEST];
    const int slot = (int)((c->now + (unsigned)cycles) % WHEEL);
    if (cycles < 1 || cycles >= WHEEL || c->due[slot] == ENTRIES) {
        stop(c, "too many results under way");
        return nowhere;
    }
    pending *w = &c->wheel[slot][c->due[slot]++];
    w->where = where;
    w->bypass = bypass;
    return w->data;
}

static void set_scalar(core *c, place where, int cycles, uint32_t v)
{
    put32(result(c, where, cycles, 0), v);
}

static task *defer(core *c, const uop *u, int cycles)
{
    static task nowhere;
    const int slot = (int)((c->now + (unsigned)cycles) % WHEEL);
    if (cycles >= WHEEL || c->waiting[slot] == ENTRIES) {
        stop(c, "too many instructions under way");
        return &nowhere;
    }
    task *t = &c->later[slot][c->waiting[slot]++];
    t->u = u;
    return t;
}

/* ---------------------------------------------------------------- memory */

unsigned core_banks(uint32_t offset, uint32_t bytes)
{
    unsigned banks = 0;
    for (uint32_t at = offset / 16; at <= (offset + bytes - 1) / 16; at++) {
        banks |= 1u << ((at * 16 / 16384) * 2 + at % 2);
    }
    return banks;
}

static uint8_t *memory_at(core *c, uint32_t address, int bytes)
{
    int window = (int)(address / CORE_WINDOW) - CORE_SOUTH / CORE_WINDOW;
    uint32_t offset = address % CORE_WINDOW;
    if (window < 0 || window > 3 || c->view.memory[window] == NULL ||
        offset + (uint32_t)bytes > CORE_MEMORY) {
        stop(c, "0x%x: no memory at 0x%x", c->pc, (unsigned)address);
        return NULL;
    }
    if (window == 3) {
        unsigned banks = core_banks(offset, (uint32_t)bytes);
        if ((c->banks & banks) != 0) {
            c->counts.bank_stalls++;
            c->stall++;
        }
        c->banks |= banks;
    }
    return c->view.memory[window] + offset;
}

/* Address of a memory operation; a post increment is visible in the next cycle. */
static uint32_t address_of(core *c, const uop *u)
{
    if (u->ptr < 0) {
        return read_scalar(c, special(AIE_SP)) + (uint32_t)u->v[u->mod];
    }
    uint32_t p = read_scalar(c, u->reg[u->ptr]);
    int cycles = c->timing[CORE_POINTER].result;
    uint8_t step[4];
    switch (u->mode) {
    case 'i': return p + (uint32_t)u->v[u->mod];
    case 'd': return p + read_scalar(c, u->reg[u->mod]);
    case 'p': set_scalar(c, u->reg[u->ptr], cycles, p + (uint32_t)u->v[u->mod]); break;
    case 'm':
        put32(step, read_scalar(c, u->reg[u->mod]));
        set_scalar(c, u->reg[u->ptr], cycles, p + get32(step));
        break;
    case '2': {
        int d = u->v[u->mod] & 255;
        place dn = place_of(AIE_REG(AIE_DN, d)), dc = place_of(AIE_REG(AIE_DC, d));
        uint32_t count = read_scalar(c, dc);
        int last = count >= read_scalar(c, dn);
        uint32_t by = read_scalar(c, place_of(AIE_REG(last ? AIE_M : AIE_DJ, d)));
        set_scalar(c, u->reg[u->ptr], cycles, p + by);
        set_scalar(c, dc, cycles, last ? 0 : count + 1);
        break;
    }
    default: break;
    }
    return p;
}

static void run_pad(core *c, const uop *u)
{
    if (u->ptr < 0) {
        place sp = special(AIE_SP);
        set_scalar(c, sp, c->timing[u->kind].result,
                   read_scalar(c, sp) + (uint32_t)u->v[u->mod]);
    } else {
        (void)address_of(c, u);
    }
}

static void run_load(core *c, const uop *u)
{
    defer(c, u, c->timing[u->kind].memory - 1)->address = address_of(c, u);
}

static int64_t sign_extend(uint64_t v, int bits)
{
    uint64_t sign = (uint64_t)1 << (bits - 1);
    v &= sign * 2 - 1;
    return (int64_t)((v ^ sign) - sign);
}

/* Lanes of `from` bits become lanes of `to` bits, shifted left. */
static void ups(uint8_t *out, const uint8_t *in, int lanes, int from, int to, int is_signed,
                uint32_t shift)
{
    for (int i = 0; i < lanes; i++) {
        uint64_t raw = 0;
        memcpy(&raw, in + i * from / 8, (size_t)from / 8);
        int64_t v = is_signed ? sign_extend(raw, from) : (int64_t)raw;
        v = (int64_t)((uint64_t)v << (shift & 63));
        memcpy(out + i * to / 8, &v, (size_t)to / 8);
    }
}

/* The reverse. Rounding 0 is floor; saturation 0 wraps around, 1 saturates, 3 symmetrically. */
static int64_t srs_lane(core *c, int64_t v, uint32_t shift, int bits, int is_signed)
{
    uint32_t saturate = read_scalar(c, special(AIE_CR_SAT)) & 3;
    uint32_t rounding = read_scalar(c, special(AIE_CR_RND)) & 15;
    shift &= 63;
    int64_t low = shift == 0 ? 0 : (int64_t)((uint64_t)v & (((uint64_t)1 << shift) - 1));
    int64_t half = shift == 0 ? 0 : (int64_t)1 << (shift - 1);
    int64_t r = v >> shift;
    switch (rounding) {
    case 0: break;
    case 1: r += low != 0; break;
    case 9: r += shift > 0 && low >= half; break;
    case 12: r += shift > 0 && (low > half || (low == half && (r & 1) != 0)); break;
    default: stop(c, "rounding %u is not simulated", (unsigned)rounding); break;
    }
    if (saturate != 0) {
        int64_t high = is_signed ? ((int64_t)1 << (bits - 1)) - 1 : ((int64_t)1 << bits) - 1;
        int64_t least = is_signed ? -high - (saturate == 1) : 0;
        r = r > high ? high : r < least ? least : r;
    }
    return r;
}

static void srs(core *c, uint8_t *out, const uint8_t *in, int lanes, int from, int to,
                int is_signed, uint32_t shift)
{
    for (int i = 0; i < lanes; i++) {
        uint64_t raw = 0;
        memcpy(&raw, in + i * from / 8, (size_t)from / 8);
        int64_t v = srs_lane(c, sign_extend(raw, from), shift, to, is_signed);
        memcpy(out + i * to / 8, &v, (size_t)to / 8);
    }
}

/* Conversions by variant: bits of the accumulator << 8 | bits of the value, | 1 if signed. */
static int acc_bits(int variant)
{
    return variant >> 8;
}

static int value_bits(int variant)
{
    return variant & 0xfe;
}

/* A load reads memory, and one with conversion its shift, in cycles of their own. */
static void load_now(core *c, const task *t)
{
    const uop *u = t->u;
    const core_timing *time = &c->timing[u->kind];
    const uint8_t *from = memory_at(c, t->address, u->bytes);
    if (from == NULL) {
        return;
    }
    if (c->check_loads && memchr(from + CORE_MEMORY, 0, (size_t)u->bytes) != NULL) {
        stop(c, "0x%x: loads from 0x%x, which nothing has written", c->pc, (unsigned)t->address);
        return;
    }
    int left = time->result - (time->memory - 1);
    place where = u->reg[u->data];
    if (u->kind == CORE_LOAD_UPS) {
        place shift = u->reg[u->shift];
        int from_bits = value_bits(u->variant), to = acc_bits(u->variant);
        ups(result(c, where, left, 0), from, where.bytes * 8 / to, from_bits, to, u->variant & 1,
            read_scalar(c, shift));
        return;
    }
    uint8_t *out = result(c, where, left, 0);
    if (where.bytes == 4 && u->bytes < 4) {
        uint32_t v = 0;
        memcpy(&v, from, (size_t)u->bytes);
        put32(out, u->variant & 1 ? (uint32_t)sign_extend(v, u->bytes * 8) : v);
    } else {
        memcpy(out, from, where.bytes);
    }
}

static void run_store(core *c, const uop *u)
{
    uint32_t address = address_of(c, u);
    task *t = defer(c, u, c->timing[u->kind].memory - 1);
    place p = u->reg[u->data];
    t->address = address;
    if (u->kind == CORE_STORE_SRS) {
        uint8_t acc[WIDEST];
        int from = acc_bits(u->variant);
        read_place(c, p, 0, acc);
        note_old(c, p);
        srs(c, t->data, acc, p.bytes * 8 / from, from, value_bits(u->variant), u->variant & 1,
            read_scalar(c, u->reg[u->shift]));
    } else {
        read_place(c, p, 0, t->data);
        if (p.bytes > 4) {
            note_old(c, p);
        }
    }
}

static void store_now(core *c, const task *t)
{
    uint8_t *to = memory_at(c, t->address, t->u->bytes);
    if (to != NULL) {
        memcpy(to, t->data, (size_t)t->u->bytes);
        if (c->view.written) {
            memset(to + CORE_MEMORY, 1, (size_t)t->u->bytes);
        }
    }
}

/* ---------------------------------------------------------------- scalar instructions */

enum { ADD, SUB, AND, OR, XOR, LSHL, ASHL, MUL, EQ, NE, LT, LTU, GE, GEU, EQZ, NEZ, ABS, SEL_NEZ,
       SEL_EQZ, EXT_S8, EXT_U8, EXT_S16, EXT_U16, MOVE, MAC };

static uint32_t shift_left(uint32_t v, int32_t by, int arithmetic)
{
    if (by >= 0) {
        return by < 32 ? v << by : 0;
    }
    by = -by;
    if (arithmetic) {
        return (uint32_t)((int32_t)v >> (by < 32 ? by : 31));
    }
    return by < 32 ? v >> by : 0;
}

static uint32_t compute(core *c, int variant, uint32_t a, uint32_t b)
{
    int32_t sa = (int32_t)a, sb = (int32_t)b;
    switch (variant) {
    case ADD: return a + b;
    case SUB: return a - b;
    case AND: return a & b;
    case OR: return a | b;
    case XOR: return a ^ b;
    case LSHL: return shift_left(a, sb, 0);
    case ASHL: return shift_left(a, sb, 1);
    case MUL: return a * b;
    case EQ: return a == b;
    case NE: return a != b;
    case LT: return sa < sb;
    case LTU: return a < b;
    case GE: return sa >= sb;
    case GEU: return a >= b;
    case EQZ: return a == 0;
    case NEZ: return a != 0;
    case ABS: return sa < 0 ? 0u - a : a;
    case SEL_NEZ: return read_scalar(c, place_of(AIE_REG(AIE_R, 27))) != 0 ? a : b;
    case SEL_EQZ: return read_scalar(c, place_of(AIE_REG(AIE_R, 27))) == 0 ? a : b;
    case EXT_S8: return (uint32_t)sign_extend(a, 8);
    case EXT_U8: return a & 0xff;
    case EXT_S16: return (uint32_t)sign_extend(a, 16);
    case EXT_U16: return a & 0xffff;
    default: return a;
    }
}

static uint32_t operand(const core *c, const uop *u, int n)
{
    return u->op->operand[n].kind == 'r' ? read_scalar(c, u->reg[n]) : (uint32_t)u->v[n];
}

/* Result first, then one or two operands. */
static void run_scalar(core *c, const uop *u)
{
    uint32_t a = operand(c, u, 1), b = u->n > 2 ? operand(c, u, 2) : 0;
    uint32_t v = u->variant == MAC ? read_scalar(c, u->reg[0]) + a * b
                                   : compute(c, u->variant, a, b);
    set_scalar(c, u->reg[0], c->timing[u->kind].result, v);
}

static void run_nothing(core *c, const uop *u)
{
    (void)c;
    (void)u;
}

static void run_done(core *c, const uop *u)
{
    (void)u;
    c->status = CORE_DONE;
}

static void run_branch(core *c, const uop *u)
{
    uint32_t target = 0;
    int taken = 1;
    if (u->variant == 'n' || u->variant == 'z') {
        uint32_t v = read_scalar(c, u->reg[0]);
        taken = (u->variant == 'n') == (v != 0);
        target = operand(c, u, 1);
    } else if (u->variant == 'd') { /* jnzd: decrement and jump by pointer */
        uint32_t v = read_scalar(c, u->reg[1]) - 1;
        set_scalar(c, u->reg[0], c->timing[u->kind].result, v);
        taken = v != 0;
        target = read_scalar(c, u->reg[2]);
    } else {
        target = u->variant == 'r' ? read_scalar(c, special(AIE_LR)) : operand(c, u, 0);
    }
    if (c->delay > 0) {
        stop(c, "0x%x: a branch in a delay slot", (unsigned)c->pc);
    } else if (taken) {
        c->delay = AIE_DELAY_SLOTS + 1;
        c->target = target;
        c->link = u->variant == 'l';
    }
}

/* ---------------------------------------------------------------- locks */

static int *lock_of(core *c, const uop *u)
{
    uint32_t id = operand(c, u, 0);
    if (id > 63 || c->view.locks[id / 16] == NULL) {
        stop(c, "0x%x: no lock %u", (unsigned)c->pc, (unsigned)id);
        return NULL;
    }
    return &c->view.locks[id / 16][id % 16];
}

/* Whether the acquire succeeds; it then has happened. */
static int acquire(core *c, const uop *u)
{
    int *lock = lock_of(c, u);
    int32_t v = (int32_t)read_scalar(c, u->reg[1]);
    if (lock == NULL || (v < 0 ? *lock < -v : *lock != v)) {
        return 0;
    }
    *lock += v < 0 ? v : -v;
    return 1;
}

static void run_release(core *c, const uop *u)
{
    task *t = defer(c, u, c->timing[u->kind].memory - 1);
    t->word = read_scalar(c, u->reg[1]);
}

static void release_now(core *c, const task *t)
{
    int *lock = lock_of(c, t->u);
    if (lock != NULL) {
        *lock += (int32_t)t->word;
    }
}

/* ---------------------------------------------------------------- vector instructions */

static void run_vector_move(core *c, const uop *u)
{
    uint8_t v[WIDEST];
    read_place(c, u->reg[1], c->timing[u->kind].bypass, v);
    note_old(c, u->reg[1]);
    memcpy(result(c, u->reg[0], c->timing[u->kind].result, c->timing[u->kind].bypass), v,
           u->reg[0].bytes);
}

static void run_clear(core *c, const uop *u)
{
    memset(result(c, u->reg[0], c->timing[u->kind].result, c->timing[u->kind].bypass), 0,
           u->reg[0].bytes);
}

static void run_broadcast(core *c, const uop *u)
{
    uint8_t *out = result(c, u->reg[0], c->timing[u->kind].result, c->timing[u->kind].bypass);
    uint8_t word[4];
    put32(word, read_scalar(c, u->reg[1]));
    for (int i = 0; i < u->reg[0].bytes; i++) {
        out[i] = word[i % u->variant];
    }
}

static void run_ups(core *c, const uop *u)
{
    uint8_t v[WIDEST];
    int to = acc_bits(u->variant);
    read_place(c, u->reg[1], 0, v);
    note_old(c, u->reg[1]);
    ups(result(c, u->reg[0], c->timing[u->kind].result, 0), v, u->reg[0].bytes * 8 / to,
        value_bits(u->variant), to, u->variant & 1, read_scalar(c, u->reg[2]));
}

static void run_srs(core *c, const uop *u)
{
    uint8_t v[WIDEST];
    int from = acc_bits(u->variant);
    read_place(c, u->reg[1], 0, v);
    note_old(c, u->reg[1]);
    srs(c, result(c, u->reg[0], c->timing[u->kind].result, 0), v, u->reg[1].bytes * 8 / from, from,
        value_bits(u->variant), u->variant & 1, read_scalar(c, u->reg[2]));
}

/* The shape of a multiplication: rows x inner by inner x columns. */
typedef struct {
    int a_bits, b_bits, acc_bits, rows, inner, columns;
} shape;

/* By the configuration word: bits 2:1 accumulator, 4:3 operands, 7:5 variant. */
static int shape_of(const core *c, uint32_t conf, shape *s)
{
    static const struct { uint16_t conf; shape s; } known[] = {
        {0x08, {8, 8, 32, 4, 8, 8}},    /* amode 0, bmode 1, variant 0 */
        {0x3a, {16, 16, 64, 4, 4, 4}},  /* amode 1, bmode 3, variant 1 */
        {0x18, {16, 16, 32, 4, 2, 8}},  /* amode 0, bmode 3, variant 0 */
    };
    static const shape aie2p_int8 = {8, 8, 32, 8, 8, 8};
    if (c->isa != aie2()) {
        *s = aie2p_int8;
        return (conf & 0xfffffcfe) == 0x08;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if ((conf & 0xfe) == known[i].conf && (conf & 0xfffffc00) == 0) {
            *s = known[i].s;
            return 1;
        }
    }
    return 0;
}

static int64_t lane(const uint8_t *p, int i, int bits, int is_signed)
{
    uint64_t raw = 0;
    memcpy(&raw, p + i * bits / 8, (size_t)bits / 8);
    return is_signed ? sign_extend(raw, bits) : (int64_t)raw;
}

/* Fast ways for the two that matter: 4x4x4 int16 and 32-bit sums of int8. */
static void multiply_int16(int64_t *acc, const uint8_t *a_bytes, const uint8_t *b_bytes)
{
    int16_t a[16], b[16];
    memcpy(a, a_bytes, sizeof a);
    memcpy(b, b_bytes, sizeof b);
    for (int r = 0; r < 4; r++) {
        for (int n = 0; n < 4; n++) {
            int64_t sum = 0;
            for (int k = 0; k < 4; k++) {
                sum += (int64_t)a[r * 4 + k] * b[k * 4 + n];
            }
            acc[r * 4 + n] = (int64_t)((uint64_t)acc[r * 4 + n] + (uint64_t)sum);
        }
    }
}

static void multiply_int8(int32_t *acc, const int8_t *a, const int8_t *b, const shape *s)
{
    for (int r = 0; r < s->rows; r++) {
        int32_t sum[8] = {0};
        for (int k = 0; k < 8; k++) {
            for (int n = 0; n < 8; n++) {
                sum[n] += a[r * 8 + k] * b[k * 8 + n];
            }
        }
        for (int n = 0; n < 8; n++) {
            acc[r * 8 + n] = (int32_t)((uint32_t)acc[r * 8 + n] + (uint32_t)sum[n]);
        }
    }
}

static void multiply(uint8_t *acc, const uint8_t *a, const uint8_t *b, const shape *s,
                     uint32_t conf)
{
    int bytes = s->acc_bits / 8;
    if (s->a_bits == 8 && s->inner == 8 && (conf & 0x300) == 0x300) {
        int32_t sums[64];
        memcpy(sums, acc, (size_t)(s->rows * 8 * 4));
        multiply_int8(sums, (const int8_t *)a, (const int8_t *)b, s);
        memcpy(acc, sums, (size_t)(s->rows * 8 * 4));
        return;
    }
    if (s->a_bits == 16 && s->inner == 4 && (conf & 0x300) == 0x300) {
        int64_t sums[16];
        memcpy(sums, acc, sizeof sums);
        multiply_int16(sums, a, b);
        memcpy(acc, sums, sizeof sums);
        return;
    }
    for (int r = 0; r < s->rows; r++) {
        for (int n = 0; n < s->columns; n++) {
            uint64_t sum = 0;
            memcpy(&sum, acc + (r * s->columns + n) * bytes, (size_t)bytes);
            for (int k = 0; k < s->inner; k++) {
                sum += (uint64_t)(lane(a, r * s->inner + k, s->a_bits, (conf & 0x200) != 0) *
                                  lane(b, k * s->columns + n, s->b_bits, (conf & 0x100) != 0));
            }
            memcpy(acc + (r * s->columns + n) * bytes, &sum, (size_t)bytes);
        }
    }
}

/* vmac: dst, acc, a, b, conf. vmul has no acc. Operands are read now, accumulators later. */
static void run_mac(core *c, const uop *u)
{
    int a = u->variant == 'm' ? 1 : 2;
    task *t = defer(c, u, c->timing[u->kind].accumulator - 1);
    read_place(c, u->reg[a], 0, t->data);
    read_place(c, u->reg[a + 1], 0, t->data + 128);
    note_old(c, u->reg[a]);
    note_old(c, u->reg[a + 1]);
    t->word = read_scalar(c, u->reg[a + 2]);
}

static void mac_now(core *c, const task *t)
{
    const uop *u = t->u;
    const core_timing *time = &c->timing[u->kind];
    shape s;
    uint8_t acc[WIDEST];
    if (!shape_of(c, t->word, &s)) {
        stop(c, "0x%x: %s with mode 0x%x is not simulated", (unsigned)c->pc, u->op->mnemonic,
             (unsigned)t->word);
        return;
    }
    memset(acc, 0, sizeof acc);
    if (u->variant != 'm' && (t->word & 1) == 0) {
        read_place(c, u->reg[1], time->bypass, acc);
    }
    multiply(acc, t->data, t->data + 128, &s, t->word);
    memcpy(result(c, u->reg[0], time->result - (time->accumulator - 1), time->bypass), acc,
           u->reg[0].bytes);
    c->counts.macs += (uint64_t)(s.rows * s.inner * s.columns);
}

/* ---------------------------------------------------------------- decoding */

typedef struct {
    const char *mnemonic;
    execute *run;
    core_kind kind;
    int variant;
} meaning;

static const meaning meanings[] = {
    {"nop", run_nothing, CORE_SCALAR, 0}, {"nopa", run_nothing, CORE_SCALAR, 0},
    {"nopb", run_nothing, CORE_SCALAR, 0}, {"nopm", run_nothing, CORE_SCALAR, 0},
    {"nops", run_nothing, CORE_SCALAR, 0}, {"nopv", run_nothing, CORE_SCALAR, 0},
    {"nopx", run_nothing, CORE_SCALAR, 0}, {"nopxm", run_nothing, CORE_SCALAR, 0},
    {"event", run_nothing, CORE_SCALAR, 0}, {"done", run_done, CORE_SCALAR, 0},
    {"mov", run_scalar, CORE_SCALAR, MOVE}, {"mova", run_scalar, CORE_SCALAR, MOVE},
    {"movx", run_scalar, CORE_SCALAR, MOVE}, {"movxm", run_scalar, CORE_SCALAR, MOVE},
    {"movs", run_scalar, CORE_SCALAR, MOVE},
    {"add", run_scalar, CORE_SCALAR, ADD}, {"add.nc", run_scalar, CORE_SCALAR, ADD},
    {"sub", run_scalar, CORE_SCALAR, SUB}, {"and", run_scalar, CORE_SCALAR, AND},
    {"or", run_scalar, CORE_SCALAR, OR}, {"xor", run_scalar, CORE_SCALAR, XOR},
    {"lshl", run_scalar, CORE_SCALAR, LSHL}, {"ashl", run_scalar, CORE_SCALAR, ASHL},
    {"mul", run_scalar, CORE_MUL, MUL}, {"mac", run_scalar, CORE_MUL, MAC}, {"eq", run_scalar, CORE_SCALAR, EQ},
    {"ne", run_scalar, CORE_SCALAR, NE}, {"lt", run_scalar, CORE_SCALAR, LT},
    {"ltu", run_scalar, CORE_SCALAR, LTU}, {"ge", run_scalar, CORE_SCALAR, GE},
    {"geu", run_scalar, CORE_SCALAR, GEU}, {"eqz", run_scalar, CORE_SCALAR, EQZ},
    {"nez", run_scalar, CORE_SCALAR, NEZ}, {"abs", run_scalar, CORE_SCALAR, ABS},
    {"sel.nez", run_scalar, CORE_SCALAR, SEL_NEZ}, {"sel.eqz", run_scalar, CORE_SCALAR, SEL_EQZ},
    {"extend.s8", run_scalar, CORE_SCALAR, EXT_S8}, {"extend.u8", run_scalar, CORE_SCALAR, EXT_U8},
    {"extend.s16", run_scalar, CORE_SCALAR, EXT_S16},
    {"extend.u16", run_scalar, CORE_SCALAR, EXT_U16},
    {"j", run_branch, CORE_BRANCH, 'j'}, {"jl", run_branch, CORE_BRANCH, 'l'},
    {"ret", run_branch, CORE_BRANCH, 'r'}, {"jnz", run_branch, CORE_BRANCH, 'n'},
    {"jz", run_branch, CORE_BRANCH, 'z'}, {"jnzd", run_branch, CORE_BRANCH, 'd'},
    {"acq", NULL, CORE_LOCK, 0}, {"rel", run_release, CORE_LOCK, 0},
    {"padda", run_pad, CORE_POINTER, 0}, {"paddb", run_pad, CORE_POINTER, 0},
    {"padds", run_pad, CORE_POINTER, 0}, {"paddxm", run_pad, CORE_POINTER, 0}, {"padda.2d", run_pad, CORE_POINTER, 0},
    {"paddb.2d", run_pad, CORE_POINTER, 0}, {"padds.2d", run_pad, CORE_POINTER, 0},
    {"lda", run_load, CORE_LOAD, 0}, {"vlda", run_load, CORE_LOAD, 0},
    {"vldb", run_load, CORE_LOAD, 0}, {"vlda.2d", run_load, CORE_LOAD, 0},
    {"vldb.2d", run_load, CORE_LOAD, 0}, {"lda.2d", run_load, CORE_LOAD, 0},
    {"lda.s8", run_load, CORE_LOAD, 0x101}, {"lda.u8", run_load, CORE_LOAD, 0x100},
    {"lda.s16", run_load, CORE_LOAD, 0x201}, {"lda.u16", run_load, CORE_LOAD, 0x200},
    {"vlda.ups.s64.s32", run_load, CORE_LOAD_UPS, 64 << 8 | 32 | 1},
    {"vlda.ups.s32.s16", run_load, CORE_LOAD_UPS, 32 << 8 | 16 | 1},
    {"vlda.ups.s32.s8", run_load, CORE_LOAD_UPS, 32 << 8 | 8 | 1},
    {"st", run_store, CORE_STORE, 0}, {"vst", run_store, CORE_STORE, 0},
    {"vst.2d", run_store, CORE_STORE, 0},
    {"vst.srs.s32.s64", run_store, CORE_STORE_SRS, 64 << 8 | 32 | 1},
    {"vst.srs.s16.s64", run_store, CORE_STORE_SRS, 64 << 8 | 16 | 1},
    {"vst.srs.s16.s32", run_store, CORE_STORE_SRS, 32 << 8 | 16 | 1},
    {"vst.srs.s8.s32", run_store, CORE_STORE_SRS, 32 << 8 | 8 | 1},
    {"vups.s64.s32", run_ups, CORE_UPS, 64 << 8 | 32 | 1},
    {"vups.s32.s16", run_ups, CORE_UPS, 32 << 8 | 16 | 1},
    {"vups.s32.s8", run_ups, CORE_UPS, 32 << 8 | 8 | 1},
    {"vsrs.s32.s64", run_srs, CORE_SRS, 64 << 8 | 32 | 1},
    {"vsrs.s16.s32", run_srs, CORE_SRS, 32 << 8 | 16 | 1},
    {"vsrs.s8.s32", run_srs, CORE_SRS, 32 << 8 | 8 | 1},
    {"vmov", run_vector_move, CORE_MOVE, 0}, {"vclr", run_clear, CORE_CLEAR, 0},
    {"vbcst.8", run_broadcast, CORE_BROADCAST, 1}, {"vbcst.16", run_broadcast, CORE_BROADCAST, 2},
    {"vbcst.32", run_broadcast, CORE_BROADCAST, 4},
    {"vmac", run_mac, CORE_MAC, 'a'}, {"vmul", run_mac, CORE_MAC, 'm'},
};

/* Which operand is what, from the row's text. */
static void memory_operands(uop *u)
{
    const char *text = u->op->row->text, *inside = strchr(text, '[');
    int n = 0;
    u->ptr = u->mod = u->data = u->shift = -1;
    for (const char *at = strchr(text, '{'); at != NULL; at = strchr(at + 1, '{'), n++) {
        int file = u->op->operand[n].kind == 'r' ? u->v[n] >> 8 : -1;
        if (at < inside) {
            *(file == AIE_S ? &u->shift : &u->data) = n;
        } else if (file == AIE_P && u->ptr < 0) {
            u->ptr = n;
        } else {
            u->mod = n;
        }
    }
    const char *close = strchr(inside, ']');
    int index = memchr(inside, ',', (size_t)(close - inside)) != NULL;
    if (u->mod >= 0) {
        int file = u->op->operand[u->mod].kind == 'r' ? u->v[u->mod] >> 8 : -1;
        u->mode = file == AIE_D ? '2' : file < 0 ? (index ? 'i' : 'p') : (index ? 'd' : 'm');
        if (file >= 0 && file != AIE_D && file != AIE_M && file != AIE_DJ) {
            u->run = NULL;
        }
    }
    u->bytes = u->data >= 0 ? u->reg[u->data].bytes : 0;
    if (u->kind == CORE_LOAD_UPS || u->kind == CORE_STORE_SRS) {
        u->bytes = u->bytes * value_bits(u->variant) / acc_bits(u->variant);
    } else if (u->variant >> 8 != 0) {
        u->bytes = u->variant >> 8;
    }
}

/* What an instruction does; 0 if it is not simulated. */
static int understand(const aie_inst *inst, uop *u)
{
    memset(u, 0, sizeof *u);
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        const meaning *m = &meanings[i];
        if (strcmp(m->mnemonic, inst->op->mnemonic) != 0) {
            continue;
        }
        u->op = inst->op;
        u->run = m->run;
        u->kind = m->kind;
        u->variant = m->variant;
        u->n = inst->op->operands;
        for (int n = 0; n < u->n; n++) {
            u->v[n] = inst->value[n];
            if (inst->op->operand[n].kind == 'r') {
                u->reg[n] = place_of(inst->value[n]);
            }
        }
        if (strchr(inst->op->row->text, '[') != NULL) {
            memory_operands(u);
        }
        if (u->kind == CORE_MOVE && u->v[0] >> 8 != AIE_X && u->v[0] >> 8 != AIE_BM) {
            u->kind = CORE_MOVE_ACC; /* no bypass is known for the other widths */
        }
        if (u->run == run_scalar && (u->n < 2 || *(strchr(inst->op->row->text, ' ') + 1) != '{' ||
                                     strstr(inst->op->row->text, "SS") != NULL)) {
            return 0; /* mov to or from streams and counters */
        }
        return u->kind == CORE_LOCK || u->run != NULL;
    }
    return 0;
}

static bundle *bundle_at(core *c, uint32_t pc)
{
    static const aie_slot order[] = {AIE_LDA, AIE_LDB, AIE_ST, AIE_ALU, AIE_LNG, AIE_MV, AIE_VEC,
                                     AIE_NOP16};
    if (pc >= CORE_PROGRAM || pc % 2 != 0) {
        return NULL;
    }
    bundle *b = &c->cache[pc / 2];
    if (b->bytes == 0) {
        aie_bundle d;
        b->count = 0;
        b->bytes = aie_decode(c->isa, c->program + pc, CORE_PROGRAM - pc, &d);
        if (b->bytes == 0) {
            b->bytes = -1;
            return NULL;
        }
        for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
            const aie_inst *inst = &d.slot[order[i]];
            if (inst->op == NULL) {
                continue;
            }
            uop u;
            if (!understand(inst, &u)) {
                stop(c, "0x%x: `%s` is not simulated", (unsigned)pc, inst->op->row->text);
                b->bytes = -1;
                return NULL;
            }
            if (u.run != run_nothing) {
                b->u[b->count++] = u;
            }
        }
    }
    return b->bytes > 0 ? b : NULL;
}

/* ---------------------------------------------------------------- a cycle */

static void commit(core *c)
{
    const int slot = (int)(c->now % WHEEL);
    for (int i = 0; i < c->due[slot]; i++) {
        const pending *w = &c->wheel[slot][i];
        memcpy(c->state + w->where.at, w->data, w->where.bytes);
    }
    c->due[slot] = 0;
}

/* Loads before stores of the same cycle. */
static void run_later(core *c)
{
    const int slot = (int)(c->now % WHEEL);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < c->waiting[slot]; i++) {
            const task *t = &c->later[slot][i];
            if ((t->u->run == run_store) != (pass == 1)) {
                continue;
            }
            if (t->u->run == run_load) {
                load_now(c, t);
            } else if (t->u->run == run_mac) {
                mac_now(c, t);
            } else if (t->u->run == run_release) {
                release_now(c, t);
            } else {
                store_now(c, t);
            }
        }
    }
    c->waiting[slot] = 0;
}

static void next_pc(core *c, int bytes)
{
    uint32_t at = c->pc;
    c->pc += (uint32_t)bytes;
    place lc = special(AIE_LC);
    uint32_t count = read_scalar(c, lc);
    if (at == read_scalar(c, special(AIE_LE)) && count > 0) {
        put32(c->state + lc.at, count - 1);
        if (count > 1) {
            c->pc = read_scalar(c, special(AIE_LS));
        }
    }
    if (c->delay > 0 && --c->delay == 0) {
        if (c->link) {
            put32(c->state + special(AIE_LR).at, c->pc);
            c->link = 0;
        }
        c->pc = c->target;
    }
}

static core_state freeze(core *c)
{
    c->counts.cycles++;
    return CORE_RUNNING;
}

core_state core_step(core *c, unsigned taken)
{
    if (c->status != CORE_RUNNING && c->status != CORE_WAITING) {
        return c->status;
    }
    c->banks = taken;
    if (c->stall > 0) {
        c->stall--;
        return freeze(c);
    }
    bundle *b = bundle_at(c, c->pc);
    if (b == NULL) {
        stop(c, "0x%x: no bundle", (unsigned)c->pc);
        return c->status;
    }
    for (int i = 0; i < b->count; i++) {
        if (b->u[i].run == NULL && c->status != CORE_FAILED && !acquire(c, &b->u[i])) {
            if (c->status != CORE_FAILED) {
                c->status = CORE_WAITING;
                c->counts.lock_stalls++;
                freeze(c);
            }
            return c->status;
        }
    }
    c->status = CORE_RUNNING;
    run_later(c);
    for (int i = 0; i < b->count; i++) {
        if (b->u[i].run != NULL) {
            b->u[i].run(c, &b->u[i]);
        }
    }
    if (c->status == CORE_FAILED) {
        return c->status;
    }
    next_pc(c, b->bytes);
    c->now++;
    c->counts.cycles++;
    c->counts.bundles++;
    commit(c);
    return c->status;
}

/* ---------------------------------------------------------------- the object */

core *core_new(const aie_isa *isa)
{
    core *c = calloc(1, sizeof *c);
    if (c != NULL) {
        c->cache = calloc(CORE_PROGRAM / 2, sizeof *c->cache);
        if (c->cache == NULL) {
            free(c);
            return NULL;
        }
        c->isa = isa;
        memcpy(c->timing, core_timings, sizeof c->timing);
        for (size_t i = 0; isa != aie2() && i < sizeof aie2p_timings / sizeof *aie2p_timings; i++) {
            c->timing[aie2p_timings[i].kind] = aie2p_timings[i].timing;
        }
    }
    return c;
}

void core_free(core *c)
{
    if (c != NULL) {
        free(c->cache);
        free(c);
    }
}

void core_connect(core *c, const core_view *view)
{
    c->view = *view;
}

uint8_t *core_program(core *c)
{
    return c->program;
}

void core_changed(core *c)
{
    memset(c->cache, 0, CORE_PROGRAM / 2 * sizeof *c->cache);
}

void core_check_loads(core *c)
{
    c->check_loads = c->view.written;
}

void core_reset(core *c)
{
    memset(c->state, 0, sizeof c->state);
    memset(c->due, 0, sizeof c->due);
    memset(c->waiting, 0, sizeof c->waiting);
    memset(&c->counts, 0, sizeof c->counts);
    c->now = 0;
    c->pc = 0;
    c->delay = c->link = c->stall = 0;
    c->status = CORE_OFF;
    c->message[0] = '\0';
}

void core_enable(core *c, int on)
{
    if (!on) {
        c->status = CORE_OFF;
    } else if (c->status == CORE_OFF || c->status == CORE_DONE) {
        c->status = CORE_RUNNING;
    }
}

core_timing *core_timing_of(core *c)
{
    return c->timing;
}

core_state core_state_of(const core *c)
{
    return c->status;
}

const char *core_message(const core *c)
{
    return c->message;
}

const core_counts *core_counts_of(const core *c)
{
    return &c->counts;
}

uint32_t core_pc(const core *c)
{
    return c->pc;
}

uint32_t core_register(const core *c, int reg)
{
    return read_scalar(c, place_of(reg));
}

void core_set_register(core *c, int reg, uint32_t value)
{
    put32(c->state + place_of(reg).at, value);
}

void core_set_pc(core *c, uint32_t pc)
{
    c->pc = pc;
}
