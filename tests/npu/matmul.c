/* matmul.c - writes the assembly of the matrix product (see matmul.h).
 *
 * A block is 8 rows x 16 columns: 2 x 2 accumulators of 4 x 8, eight steps of 8 in k, one VMAC in each
 * of 32 cycles. Blocks use cm0 to cm3 and cm4 to cm7 in turn: while one set multiplies, the other is
 * stored and then loaded for the block after. Per step of k, four cycles:
 *
 *   VEC   A0*B0  A1*B0  A0*B1  A1*B1
 *   LDB   B, 32 bytes in every cycle; 9 to 6 cycles before the step
 *   LDA   in cycles 0 and 1 a row of C for the next block, in 2 and 3 A0 and A1 of the step that
 *         begins 10 cycles later
 *   ST    in cycles 0 and 1 pointers, in 2 and 3 a row of C of the block before: loads and stores of
 *         C never meet in a bank
 *
 * Operands alternate between two sets of registers. A load is visible 7 cycles after it issues, so
 * the set is still being read while its next contents are under way: the schedule is exact.
 * Four blocks are a row of blocks and one turn of the loop (128 bundles of 16 bytes); the loop's
 * branch has its delay slots at the end of the body. Between two steps of 64 in k the core gives
 * back A and B, takes the next ones and fills the pipeline: 29 cycles. */
#include "matmul.h"

#include <stdarg.h>
#include <stdio.h>

enum { BLOCK = 32, BLOCKS = 4, BODY = BLOCK * BLOCKS, LEAD = 10, WORDS = 160 };

typedef struct {
    char lda[WORDS], ldb[WORDS], st[WORDS], alu[WORDS], mv[WORDS], vec[WORDS];
} slots;

typedef struct {
    char *text;
    size_t size, length;
} writer;

__attribute__((format(printf, 2, 3)))
static void line(writer *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(w->length < w->size ? w->text + w->length : NULL,
                      w->length < w->size ? w->size - w->length : 0, format, args);
    va_end(args);
    w->length += n > 0 ? (size_t)n : 0;
}

static void bundle(writer *w, const slots *s)
{
    const char *const all[6] = {s->lda, s->ldb, s->st, s->alu, s->mv, s->vec};
    int n = 0;
    for (int i = 0; i < 6; i++) {
        if (all[i][0] != '\0') {
            line(w, "%s%s", n++ > 0 ? "; " : "    ", all[i]);
        }
    }
    line(w, n > 0 ? "\n" : "    nop\n");
}

static const char *const rows_of_cm[4] = {"amll", "amlh", "amhl", "amhh"};

/* Row r of accumulator q (A q%2, B q/2) relative to the block's pointer for that A. */
static int c_offset(int q, int r)
{
    return r * 256 + q / 2 * 32;
}

/* The loads of A and B that issue in cycle t of a block; g counts steps of k from the block's first. */
static void operand_loads(slots *s, int t, int last_in_row)
{
    int phase = t & 3;
    if (phase >= 2) {
        int g = (t + LEAD - (phase - 2)) / 4, a = phase - 2, k = g % 8;
        snprintf(s->lda, WORDS, "vlda wl%d, [p0, #%d]", k % 2 * 4 + a, a * 256 + k * 32);
    }
    int order = (t + 9) & 3, g = (t + 9 - order) / 4, k = g % 8; /* B0 low, B0 high, B1 low, B1 high */
    snprintf(s->ldb, WORDS, "vldb w%c%d, [p1], %s", order % 2 ? 'h' : 'l', k % 2 * 4 + 2 + order / 2,
             last_in_row && g == 7 && order == 3 ? "m2" : "#32");
}

/* The 16 rows of C of an accumulator set: the n-th row to move. */
static void c_row(int n, int *q, int *r)
{
    *q = n / 4;
    *r = n % 4;
}

static void body(writer *w)
{
    for (int t = 0; t < BODY; t++) {
        slots s = {"", "", "", "", "", ""};
        int block = t / BLOCK, at = t % BLOCK, k = at / 4, q = at % 4, r = 0, n = 0;
        int set = block % 2 * 4, other = 4 - set;
        operand_loads(&s, at, block == BLOCKS - 1);
        c_row(at / 4 * 2 + at % 2, &n, &r);
        if (q < 2) { /* C of the next block */
            snprintf(s.lda, WORDS, "vlda %s%d, [p%d, #%d]", rows_of_cm[r], other + n, 2 + n % 2,
                     c_offset(n, r));
        } else {     /* C of the block before */
            snprintf(s.st, WORDS, "vst %s%d, [p%d, #%d]", rows_of_cm[r], other + n, 4 + n % 2,
                     c_offset(n, r));
        }
        if (at == 1) {
            snprintf(s.st, WORDS, "padds [p5], %s", block == 1 ? "m3" : "#64");
        } else if (at == 20 && block == BLOCKS - 1) {
            snprintf(s.st, WORDS, "padds [p0], #512");
        } else if (at == 24 || at == 29) {
            snprintf(s.st, WORDS, "padds [p%d], m%d", at == 24 ? 2 : 3, block == 2);
        } else if (at == 25) {
            snprintf(s.st, WORDS, "padds [p4], %s", block == 0 ? "m3" : "#64");
        }
        snprintf(s.vec, WORDS, "vmac cm%d, cm%d, x%d, x%d, r0", set + q, set + q,
                 k % 2 * 4 + q % 2, k % 2 * 4 + 2 + q / 2);
        if (t == 40) {
            snprintf(s.alu, WORDS, "add r3, r3, #-1");
        } else if (t == 70) {
            snprintf(s.mv, WORDS, "mov m3, r17");
        } else if (t == BODY - 6) {
            snprintf(s.alu, WORDS, "jnz r3, #row");
        }
        if (t == 0) {
            line(w, "row:\n");
        }
        if (s.alu[0] == '\0' && s.mv[0] == '\0') {
            snprintf(s.alu, WORDS, "nopx"); /* 16 bytes each, so that the loop stays aligned */
            snprintf(s.mv, WORDS, "nopm");
        }
        if (s.st[0] == '\0') {
            snprintf(s.st, WORDS, "nops");
        }
        bundle(w, &s);
    }
}

/* Cycles `from` to `to` before the loop, which load the first operands; `first` is beside the first. */
static void prologue(writer *w, int from, int to, const char *first)
{
    for (int t = from; t < to; t++) {
        slots s = {"", "", "", "", "", ""};
        operand_loads(&s, t + 2 * BLOCK, 0); /* a multiple of eight steps later: the same */
        if (t < 1 - LEAD) {
            s.ldb[0] = '\0';
        }
        if (t == from) {
            snprintf(s.alu, WORDS, "%s", first);
        } else if (t == -3) {
            snprintf(s.alu, WORDS, "add r5, r5, #-1"); /* steps left behind this one */
            snprintf(s.mv, WORDS, "mov r3, #8");       /* rows of blocks */
        }
        bundle(w, &s);
    }
}

/* The 16 rows of C of the first block, from p2 and p3; beside[i] goes with the i-th. */
static void first_c(writer *w, const char *const beside[16])
{
    static const int order[4] = {0, 2, 1, 3}; /* those of p2 first */
    for (int i = 0; i < 16; i++) {
        int q = order[i / 4], r = i % 4;
        line(w, "    vlda %s%d, [p%d, #%d]%s%s\n", rows_of_cm[r], q, 2 + q % 2, c_offset(q, r),
             beside[i][0] != '\0' ? "; " : "", beside[i]);
    }
}

static void start(writer *w)
{
    line(w, "// r0 mode of VMAC (int8 4x8 by 8x8, signed), r1 and r2 for locks, r3 rows of blocks,\n"
            "// r5 steps of k, r10 and r11 next A and B, r14 and r15 C and C + 4 rows\n"
            "start:\n"
            "    movxm r0, #776\n"
            "    mova r1, #-1; movx r2, #1; mov r16, #64\n"
            "    mova r18, #0; movxm r12, #%d\n"
            "    vbcst.32 x0, r18\n"
            "    movxm r13, #%d\n    movxm r17, #1856\n    movxm r19, #-14528\n"
            "    movxm r20, #%d\n    movxm r22, #14528\n    movxm r23, #1024\n"
            "    movxm r10, #%d\n    movxm r11, #%d\n    movxm r14, #%d\n    movxm p7, #%d\n"
            "    movxm m2, #-4064\n    movxm p4, #%d\n    movxm p5, #%d\n"
            "    add r15, r14, r23; mov p6, r20\n",
         MATMUL_A_SIZE, MATMUL_C_SIZE, 0x70000 + MATMUL_ZEROS, 0x70000 + MATMUL_A,
         0x70000 + MATMUL_B, 0x70000 + MATMUL_C, 0x70000 + MATMUL_STEPS,
         0x70000 + MATMUL_C + 14528, 0x70000 + MATMUL_C + 14528 + 960);
    for (int i = 0; i < 8; i++) {
        line(w, "    vst wl0, [p6, #%d]\n", i / 2 * 256 + i % 2 * 32);
    }
    line(w, "    vst wl0, [p6, #64]\n    vst wl0, [p6, #320]\n");
    for (int i = 0; i < 16; i++) { /* loads behind the first buffer of C come before its stores */
        if (i % 8 == 0) {
            line(w, "    movxm p6, #%d\n", 0x70000 + MATMUL_C + MATMUL_C_SIZE + i * 128);
        }
        line(w, "    vst wl0, [p6, #%d]\n", i % 8 / 2 * 256 + i % 2 * 32);
    }
    line(w, "    nop\n    nop\n    nop\n    nop\n");
}

/* A new tile: its first step adds to zeros. */
static void tile(writer *w)
{
    char locks[2][64];
    const char *beside[16] = {
        locks[0], "mov m3, r19", "mov p0, r10", "xor r10, r10, r12; mov p1, r11", locks[1],
        "xor r11, r11, r12", "", "", "", "", "", "", "", "", "", "",
    };
    snprintf(locks[0], sizeof locks[0], "acq #%d, r1; mov m1, r18", 48 + MATMUL_A_FULL);
    snprintf(locks[1], sizeof locks[1], "acq #%d, r1", 48 + MATMUL_B_FULL);
    line(w, "    .align 16\ntile:\n    acq #%d, r1\n    mov p2, r20\n    mov p3, r20\n"
            "    mov m0, r18\n", 48 + MATMUL_C_FREE);
    first_c(w, beside);
    line(w, "    lda r5, [p7, #0]\n");
    prologue(w, -LEAD, -4, "nopx");
    line(w, "    .align 16\nenter:\n");
    prologue(w, -4, 0, "nopx");
    line(w, "    .align 16\n");
}

/* Between two steps of a tile: gives back A and B, takes the next, loads C of the first block. */
static void next(writer *w)
{
    char locks[3][64];
    const char *beside[16] = {
        "mov p3, r15", "mov m0, r16", "mov m1, r17", "mov m3, r19", locks[0], "mov p0, r10",
        "xor r10, r10, r12", "mov p1, r11", locks[1], "xor r11, r11, r12", "", "", locks[2], "", "",
        "",
    };
    snprintf(locks[0], sizeof locks[0], "rel #%d, r2", 48 + MATMUL_A_FREE);
    snprintf(locks[1], sizeof locks[1], "rel #%d, r2", 48 + MATMUL_B_FREE);
    snprintf(locks[2], sizeof locks[2], "acq #%d, r1", 48 + MATMUL_A_FULL);
    line(w, "    jz r5, #flush\n    mov p2, r14\n");
    first_c(w, beside);
    line(w, "    acq #%d, r1; padds [p2], m0\n    padds [p3], m0\n    nop\n",
         48 + MATMUL_B_FULL);
    prologue(w, -LEAD, -4, "j #enter");
}

/* The end of a tile: the last block is stored, C is handed over, the other buffer is next. */
static void flush(writer *w)
{
    static const int order[4] = {0, 2, 1, 3};
    line(w, "    .align 16\nflush:\n    rel #%d, r2; padds [p5], #64\n", 48 + MATMUL_A_FREE);
    for (int i = 0; i < 16; i++) {
        int q = order[i / 4], r = i % 4;
        char beside[64] = "";
        if (i == 4) {
            snprintf(beside, sizeof beside, "; rel #%d, r2", 48 + MATMUL_B_FREE);
        } else if (i == 6) {
            snprintf(beside, sizeof beside, "; xor r14, r14, r13");
        } else if (i == 7) {
            snprintf(beside, sizeof beside, "; add r15, r14, r23");
        } else if (i == 8) {
            snprintf(beside, sizeof beside, "; add r6, r14, r22");
        }
        line(w, "    vst %s%d, [p%d, #%d]%s\n", rows_of_cm[r], 4 + q, 4 + q % 2, c_offset(q, r),
             beside);
    }
    line(w, "    mov p4, r6\n    mov p5, r6\n    padds [p5], #960\n    nop\n    nop\n"
            "    rel #%d, r2\n    j #tile\n    nop\n    nop\n    nop\n    nop\n    nop\n",
         48 + MATMUL_C_FULL);
}

size_t matmul_source_aie2(char *text, size_t size)
{
    writer w = {text, size, 0};
    start(&w);
    tile(&w);
    body(&w);
    next(&w);
    flush(&w);
    return w.length;
}

/* ---------------------------------------------------------------- AIE2P
 *
 * VMAC is 8x8 by 8x8 there, and five accumulators hold 64 results each. A block is 16 x 16: dm0 to dm3.
 * Per step of k, four cycles: LDB loads A0, A1, B0, B1 of 64 bytes; the products follow 10 to 13
 * cycles behind. A block begins every 48 cycles, because C passes through the same accumulators: its
 * 16 rows of 64 bytes are stored from cycle 45 on, and loaded for the next block five cycles ahead of
 * that. Results of loads and products may come one cycle earlier or later than the tables say.
 * The streams of A and B take 1,024 cycles for what the products take 512 (768 with C), so nothing is
 * gained by a tighter schedule: larger tiles would be needed, and C would not fit. */

enum { BLOCK_P = 48, STORES_P = 45, LOADS_P = 40, LAG_P = 10 };

/* C's n-th 64 bytes of a block: accumulator n / 4, its part n % 4. */
static const char *const parts_of_dm[4] = {"bmll", "bmlh", "bmhl", "bmhh"};

static void c_part(char *to, const char *what, int n, int pointer)
{
    snprintf(to, WORDS, "%s %s%d, [p%d, #%d]", what, parts_of_dm[n % 4], n / 4,
             pointer + n / 4 % 2, n / 8 * 256 + n % 4 * 64);
}

static void operands_p(slots *s, int t, int last_in_row)
{
    int g = t / 4, order = t % 4, set = g % 2 * 4;
    if (g < 8) {
        const char *step = t == 29 && !last_in_row ? "m4" : t == 31 && last_in_row ? "m2" : "#64";
        snprintf(s->ldb, WORDS, "vldb x%d, [p%d], %s", set + order, order / 2, step);
    }
    int v = t - LAG_P;
    if (v >= 0 && v < 32) {
        int q = v % 4, from = v / 4 % 2 * 4;
        snprintf(s->vec, WORDS, "vmac dm%d, dm%d, x%d, x%d, r0", q, q, from + q % 2,
                 from + 2 + q / 2);
    }
}

static void pointers_p(slots *s, int t, int block)
{
    if (t == 10 || t == 11) { /* after the loads of this block */
        snprintf(s->lda, WORDS, "padda [p%d], m%d", t - 8, block == BLOCKS - 1);
    } else if (t == 13 || t == 14) { /* after the stores of the block before */
        snprintf(s->st, WORDS, "padds [p%d], %s", t - 9, block == 0 ? "m3" : "m5");
    }
}

static void body_p(writer *w)
{
    line(w, "row:\n");
    for (int t = 0; t < BLOCK_P * BLOCKS; t++) {
        slots s = {"nopa", "nopb", "nops", "nopx", "nopm", "nopv"};
        int block = t / BLOCK_P, at = t % BLOCK_P;
        operands_p(&s, at, block == BLOCKS - 1);
        pointers_p(&s, at, block);
        if (at >= LOADS_P || at < LOADS_P + 16 - BLOCK_P) {
            c_part(s.lda, "vlda", at < LOADS_P ? at + BLOCK_P - LOADS_P : at - LOADS_P, 2);
        }
        if (at >= STORES_P || at < STORES_P + 16 - BLOCK_P) {
            c_part(s.st, "vst", at < STORES_P ? at + BLOCK_P - STORES_P : at - STORES_P, 4);
        }
        if (t == 70) {
            snprintf(s.alu, WORDS, "add r3, r3, #-1");
        } else if (t == 80) {
            snprintf(s.mv, WORDS, "mov m3, r17");
        } else if (t == BLOCK_P * BLOCKS - 6) {
            snprintf(s.alu, WORDS, "jnz r3, #row");
            s.mv[0] = '\0';
        }
        bundle(w, &s);
    }
}

/* The stores of the last block that the loop leaves behind, with other work beside each. */
static void rest_of_c(writer *w, const char *const beside[13])
{
    for (int n = BLOCK_P - STORES_P; n < 16; n++) {
        char st[WORDS];
        const char *with = beside[n - (BLOCK_P - STORES_P)];
        c_part(st, "vst", n, 4);
        line(w, "    %s%s%s\n", st, with[0] != '\0' ? "; " : "", with);
    }
}

/* The first eight loads of C of a step's first block. */
static void first_c_p(writer *w, const char *const beside[8])
{
    for (int n = 0; n < BLOCK_P - LOADS_P; n++) {
        char lda[WORDS];
        c_part(lda, "vlda", n, 2);
        line(w, "    %s%s%s\n", lda, beside[n][0] != '\0' ? "; " : "", beside[n]);
    }
}

static void start_p(writer *w)
{
    line(w, "// r0 mode of VMAC (int8 8x8 by 8x8, signed), r1 and r2 for locks, r3 rows of blocks,\n"
            "// r5 steps of k, r10 and r11 next A and B, r14 and r15 C and C + 8 rows\n"
            "start:\n    movxm r0, #776\n    mova r1, #-1; movx r2, #1\n    movxm r12, #%d\n"
            "    movxm r13, #%d\n    mova r18, #0\n    vbcst.32 x0, r18\n    movxm r17, #2560\n"
            "    movxm r16, #512\n    movxm r20, #%d\n    movxm r21, #%d\n    movxm r23, #2048\n"
            "    movxm r10, #%d\n    movxm r11, #%d\n    movxm r14, #%d\n    movxm p7, #%d\n"
            "    movxm m2, #-4032\n    movxm m4, #-960\n    movxm m5, #512\n"
            "    add r15, r14, r23; mov p6, r20\n    sub r19, r14, r21\n    add r22, r21, r23\n",
         MATMUL_A_SIZE, MATMUL_C_SIZE, 0x70000 + MATMUL_ZEROS, 0x70000 + MATMUL_SCRATCH,
         0x70000 + MATMUL_A, 0x70000 + MATMUL_B, 0x70000 + MATMUL_C, 0x70000 + MATMUL_STEPS);
    for (int i = 0; i < 8; i++) {
        line(w, "    vst x0, [p6], #64\n");
    }
    for (int i = 0; i < 8; i++) { /* loads behind the first buffer of C come before its stores */
        if (i % 4 == 0) {
            line(w, "    movxm p6, #%d\n", 0x70000 + MATMUL_C + MATMUL_C_SIZE + i * 512);
        }
        line(w, "    vst x0, [p6], #64\n");
    }
    line(w, "    nop\n    nop\n    nop\n    nop\n");
}

static void tile_p(writer *w)
{
    static const char *const beside[8] = {"", "", "", "", "", "", "mov r3, #4",
                                          "add r5, r5, #-1"};
    line(w, "    .align 16\ntile:\n    acq #%d, r1\n    mov p2, r20\n    mov p3, r20\n"
            "    mov m0, r18\n    acq #%d, r1\n    mov m1, r18\n    mov p0, r10\n    mov p1, r11\n"
            "    acq #%d, r1\n    lda r5, [p7, #0]; xor r10, r10, r12; mov p4, r21\n"
            "    xor r11, r11, r12; mov p5, r22\n    mov m3, r19\n",
         48 + MATMUL_C_FREE, 48 + MATMUL_A_FULL, 48 + MATMUL_B_FULL);
    first_c_p(w, beside);
    line(w, "    .align 16\n");
}

static void next_p(writer *w)
{
    char locks[2][64];
    const char *rest[13] = {locks[0], "mov p2, r14", "mov p3, r15", "mov m0, r16", locks[1], "",
                            "", "jz r5, #flush", "mov m1, r17", "mov m3, r19", "mov p0, r10",
                            "mov p1, r11", "mov p4, r21"};
    static const char *const beside[8] = {"add r5, r5, #-1; mov p5, r22", "mov r3, #4", "j #row",
                                          "", "", "", "", ""};
    snprintf(locks[0], sizeof locks[0], "rel #%d, r2", 48 + MATMUL_A_FREE);
    snprintf(locks[1], sizeof locks[1], "rel #%d, r2", 48 + MATMUL_B_FREE);
    rest_of_c(w, rest);
    line(w, "    acq #%d, r1\n    xor r10, r10, r12\n    xor r11, r11, r12\n    nop\n"
            "    acq #%d, r1\n",
         48 + MATMUL_A_FULL, 48 + MATMUL_B_FULL);
    first_c_p(w, beside);
}

static void flush_p(writer *w)
{
    line(w, "    .align 16\nflush:\n    xor r14, r14, r13\n    add r15, r14, r23\n"
            "    sub r19, r14, r21\n    nop\n    nop\n    rel #%d, r2\n    j #tile\n"
            "    nop\n    nop\n    nop\n    nop\n    nop\n", 48 + MATMUL_C_FULL);
}

size_t matmul_source_aie2p(char *text, size_t size)
{
    writer w = {text, size, 0};
    start_p(&w);
    tile_p(&w);
    body_p(&w);
    next_p(&w);
    flush_p(&w);
    return w.length;
}
