/* test_npu_kernel.c - our int8 matrix product: the program, the configuration and the instruction
 * streams, executed by the simulated array. */
#include "kit/isa.h"
#include "matmul.h"
#include "overlay.h"
#include "kit/product.h"
#include "rungs.h"
#include "../lib/t.h"

static char source[1 << 17];
static _Alignas(4) uint8_t code[CORE_PROGRAM];
static _Alignas(4) uint8_t pdi[1 << 18];
static uint32_t stream[1 << 16];

/* The device under test: 3 is AIE2 (NPU1), 4 AIE2P (NPU4), as streams name them. */
static int generation = 3;

static const aie_isa *isa(void)
{
    return generation == 3 ? aie2() : aie2p();
}

/* Multiply-accumulates of one VMAC. */
static unsigned per_cycle(void)
{
    return generation == 3 ? 256 : 512;
}

/* Assembles the source; its bytes, padded to words. */
static size_t assemble(const char *text)
{
    char error[200] = "";
    memset(code, 0, sizeof code);
    long n = aie_assemble(isa(), text, code, sizeof code, error, sizeof error);
    T_CHECK(n > 0, "%s", error);
    return n > 0 ? (size_t)(n + 3) / 4 * 4 : 0;
}

static size_t assemble_ours(void)
{
    size_t length = generation == 3 ? matmul_source_aie2(source, sizeof source)
                                    : matmul_source_aie2p(source, sizeof source);
    T_CHECK(length < sizeof source, "the source has %zu bytes", length);
    return assemble(source);
}

/* What differs from the tables and from an array that nobody has used. */
static struct {
    int hung, firmware;       /* array_hang, array_let_firmware_write */
    int load, mac;            /* cycles that loads and multiply-accumulates take longer */
} device;

static void set_timings(array *a, int columns)
{
    for (int column = 0; column < columns; column++) {
        for (int row = 2; row < ARRAY_ROWS; row++) {
            core *c = array_core(a, column, row);
            if (c != NULL) {
                core_timing *timing = core_timing_of(c);
                timing[CORE_LOAD].result = (uint8_t)(timing[CORE_LOAD].result + device.load);
                timing[CORE_MAC].result = (uint8_t)(timing[CORE_MAC].result + device.mac);
            }
        }
    }
}

typedef struct {
    long wrong;               /* -1: did not finish */
    unsigned burst;           /* code in the descriptor of B */
    array_counts counts;
    char why[240];
} outcome;

/* Runs one product with the program in `code`. kind: 0 random, 1 only -127 and 127, 2 all 127. */
static outcome multiply(size_t program, int columns, uint32_t m, uint32_t k, uint32_t n, int kind)
{
    outcome o = {-1, 0, {0}, ""};
    overlay design = {columns, generation, code, program};
    overlay_shape shape = {m, k, n};
    product p;
    size_t image = overlay_pdi(&design, pdi, sizeof pdi);
    size_t words = overlay_stream(&design, &shape, stream, sizeof stream / sizeof *stream);
    int8_t *b = malloc((size_t)k * n);
    T_CHECK(image > 0 && words > 0, "no overlay or stream for %ux%ux%u", (unsigned)m, (unsigned)k,
            (unsigned)n);
    if (image == 0 || words == 0 || b == NULL || !product_new(&p, 8, m, k, n)) {
        free(b);
        return o;
    }
    product_fill(&p, p.memory + p.args[0], (size_t)m * k, 127, kind > 0, 5);
    product_fill(&p, b, (size_t)k * n, 127, kind > 0, 6);
    if (kind == 2) {
        memset(p.memory + p.args[0], 127, (size_t)m * k);
        memset(b, 127, (size_t)k * n);
    }
    overlay_tile_b(&shape, b, (int8_t *)(p.memory + p.args[1]));
    array *a = array_new(isa(), columns, product_host, &p);
    if (device.hung) {
        array_hang(a);
    }
    if (device.firmware) {
        array_let_firmware_write(a);
    }
    array_check_reads(a); /* always: memory with error correction reports such reads */
    int configured = array_configure(a, pdi, image) == 0;
    set_timings(a, columns);
    if (configured && array_run(a, stream, words, p.args, 3) == 0) {
        o.wrong = product_wrong(&p, b);
    }
    o.burst = array_read(a, 0x1d000 + 8 * 0x20 + 16) >> 30;
    o.counts = *array_count(a);
    snprintf(o.why, sizeof o.why, "%s", array_message(a));
    array_free(a);
    free(p.memory);
    free(b);
    return o;
}

/* The library's formula is within 3 % of the count. */
static void check_stated(int columns, uint32_t m, uint32_t k, uint32_t n, const outcome *o)
{
    overlay design = {columns, generation, NULL, 0};
    overlay_shape shape = {m, k, n};
    double stated = (double)overlay_cycles(&design, &shape), counted = (double)o->counts.cycles;
    T_CHECK(stated > 0.97 * counted && stated < 1.03 * counted, "%d columns, %ux%ux%u: %.0f cycles "
            "stated, %.0f counted", columns, (unsigned)m, (unsigned)k, (unsigned)n, stated, counted);
}

static void check_product(size_t program, int columns, uint32_t m, uint32_t k, uint32_t n, int kind)
{
    outcome o = multiply(program, columns, m, k, n, kind);
    T_CHECK(o.wrong == 0, "%ux%ux%u on %d columns: %ld wrong %s", (unsigned)m, (unsigned)k,
            (unsigned)n, columns, o.wrong, o.why);
}

static void test_program(void)
{
    char error[200] = "";
    size_t n = assemble_ours();
    T_CHECK(n > 0 && n <= 4096, "%zu bytes", n);
    T_CHECK(aie_check_rules(isa(), code, n, error, sizeof error) == 0, "%s", error);
}

/* What the library has is what its assembly gives. */
static void test_embedded(void)
{
    size_t words, n = assemble_ours();
    const uint32_t *embedded = overlay_code(generation, &words);
    T_CHECK(n == words * 4 && memcmp(embedded, code, n) == 0,
            "%zu bytes in npu_amdxdna.c, %zu assembled: run make npu-code", words * 4, n);
}

static uint32_t word_of(const product *p, int argument, size_t i)
{
    uint32_t word;
    memcpy(&word, p->memory + p->args[argument] + 4 * i, 4);
    return word;
}

/* The ladder of the doctor: the library has what rungs.c gives; on an array that a hung job has left
 * behind each rung hands over A (with B added, rung 2) in some order, the number of steps, and zeros,
 * and nothing is read that nobody wrote. */
static void test_rungs(void)
{
    for (int rung = 1; rung <= 2; rung++) {
        char error[200] = "";
        size_t words, n;
        const uint32_t *embedded = overlay_rung_code(generation, rung, &words);
        overlay design = {1, generation, NULL, 0};
        overlay_shape shape = {64, 64, 64};
        product p;
        rung_source(rung, source, sizeof source);
        n = assemble(source);
        T_CHECK(n == words * 4 && memcmp(embedded, code, n) == 0 &&
                aie_check_rules(isa(), code, n, error, sizeof error) == 0,
                "rung %d: run make npu-code; %s", rung, error);
        size_t image = overlay_rung_pdi(generation, rung, pdi, sizeof pdi);
        words = overlay_stream(&design, &shape, stream, sizeof stream / sizeof *stream);
        if (image == 0 || words == 0 || !product_new(&p, 8, 64, 64, 64)) {
            T_CHECK(0, "rung %d: no PDI or stream", rung);
            return;
        }
        uint32_t sum = 1, squares = 1; /* of one step */
        product_fill(&p, p.memory + p.args[0], 4096, 127, 0, 5);
        for (size_t i = 0; i < 1024; i++) { /* all of B alike, so that the order of A's words is free */
            uint32_t b = 0x01020304, v = word_of(&p, 0, i) + (rung == 2 ? b : 0);
            memcpy(p.memory + p.args[1] + 4 * i, &b, 4);
            sum += v;
            squares += v * v;
        }
        array *a = array_new(isa(), 1, product_host, &p);
        array_hang(a);
        array_check_reads(a);
        T_CHECK(array_configure(a, pdi, image) == 0 && array_run(a, stream, words, p.args, 3) == 0 &&
                !array_shim_busy(a), "rung %d: %s", rung, array_message(a));
        for (size_t i = 0; i < 4096; i++) {
            uint32_t v = word_of(&p, 2, i);
            sum -= v;
            squares -= v * v;
        }
        T_CHECK(sum == 0 && squares == 0, "rung %d hands over other words", rung);
        T_CHECK(array_count(a)->cycles == overlay_rung_cycles(generation, rung), "rung %d: %lu cycles",
                rung, (unsigned long)array_count(a)->cycles);
        array_free(a);
        free(p.memory);
    }
}

static void test_exact(void)
{
    static const struct { int columns; uint32_t m, k, n; } shapes[] = {
        {1, 64, 64, 64}, {1, 64, 320, 64}, {1, 192, 128, 256}, {2, 128, 64, 128}, {2, 384, 192, 256},
        {1, 512, 64, 5120}, {8, 512, 64, 256}, {8, 1536, 192, 512}, {4, 256, 64, 256}, {4, 256, 384, 512}, {4, 1280, 64, 256},
    };
    size_t n = assemble_ours();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_product(n, shapes[i].columns, shapes[i].m, shapes[i].k, shapes[i].n, 0);
    }
    check_product(n, 4, 256, 512, 256, 1);
    check_product(n, 1, 64, 5120, 64, 2); /* 5120 * 127^2 fits 32 bits */
}

/* One array, several shapes one after the other: only streams change. */
static void test_one_overlay(void)
{
    static const overlay_shape shapes[] = {{128, 64, 128}, {128, 512, 256}, {256, 128, 128},
                                           {128, 64, 128}};
    size_t n = assemble_ours();
    overlay design = {2, generation, code, n};
    product p;
    int8_t *b = malloc(512 * 256);
    size_t image = overlay_pdi(&design, pdi, sizeof pdi);
    product now = {NULL, 0, {0}, 0, 0, 0, 0};
    T_CHECK(product_new(&p, 8, 256, 512, 256), "memory");
    array *a = array_new(isa(), 2, product_host, &p);
    T_CHECK(array_configure(a, pdi, image) == 0, "%s", array_message(a));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const overlay_shape *s = &shapes[i];
        now = p;
        now.m = s->m;
        now.k = s->k;
        now.n = s->n;
        size_t words = overlay_stream(&design, s, stream, sizeof stream / sizeof *stream);
        product_fill(&p, p.memory + p.args[0], (size_t)s->m * s->k, 127, 0, 7 + (uint32_t)i);
        product_fill(&p, b, (size_t)s->k * s->n, 127, 0, 17 + (uint32_t)i);
        overlay_tile_b(s, b, (int8_t *)(p.memory + p.args[1]));
        int ok = array_run(a, stream, words, p.args, 3) == 0;
        T_CHECK(ok && product_wrong(&now, b) == 0 && !array_shim_busy(a), "shape %zu: %s", i,
                array_message(a));
    }
    array_free(a);
    free(p.memory);
    free(b);
}

/* A configuration ends what an earlier job has left, in all rows and channels, and keeps clear of the
 * word of memory tiles that belongs to firmware. */
static void test_used_array(void)
{
    size_t n = assemble_ours();
    for (int columns = 1; columns <= 4; columns *= 2) {
        uint32_t side = (uint32_t)columns * 64;
        device.hung = 1;
        check_product(n, columns, side, 256, columns == 1 ? 256 : side, 0);
        device.hung = 0;
        device.firmware = 1;
        check_product(n, columns, side, 512, columns == 1 ? 256 : side, 0);
        device.firmware = 0;
    }
}

/* A table may be one cycle off: results are right when those of loads or products come one cycle
 * earlier or later, by themselves or together. */
static void test_slack(void)
{
    size_t n = assemble_ours();
    for (int i = 0; i < 9; i++) {
        device.load = i % 3 - 1;
        device.mac = i / 3 - 1;
        outcome o = multiply(n, 1, 64, 192, 64, 0);
        T_CHECK(o.wrong == 0, "loads %+d, products %+d cycles: %ld wrong %s", device.load,
                device.mac, o.wrong, o.why);
    }
    device.load = device.mac = 0;
}

/* The longest bursts that the generation has: 256 bytes are code 2, 512 bytes code 3. */
static void test_bursts(void)
{
    outcome o = multiply(assemble_ours(), 1, 64, 64, 64, 0);
    T_CHECK(o.wrong == 0 && o.burst == (generation == 3 ? 2u : 3u), "burst code %u", o.burst);
}

/* base's feed-forward products, 1,500 rows padded to 1,536, host memory to host memory. */
static void test_speed(void)
{
    static const overlay_shape shapes[] = {{1536, 512, 2048}, {1536, 2048, 512}};
    size_t n = assemble_ours(), step = getenv("TEST_NPU_SHAPES") != NULL ? 1 : 2;
    for (size_t i = 0; i < (generation == 3 ? 2 : 4); i += step) {
        const overlay_shape *s = &shapes[i % 2];
        outcome o = multiply(n, i < 2 ? 4 : 8, s->m, s->k, s->n, 0);
        double share = (double)o.counts.macs / per_cycle() / o.counts.cores / (double)o.counts.cycles;
        /* AIE2P: the streams allow 0.5; filling and emptying eight columns weighs twice */
        double least = generation == 3 ? 0.6 : i < 2 ? 0.45 : 0.44;
        printf("  %ux%ux%u: %lu cycles, %.1f %% of %d cores' peak, %lu bank conflicts\n",
               (unsigned)s->m, (unsigned)s->k, (unsigned)s->n, (unsigned long)o.counts.cycles,
               100 * share, (int)o.counts.cores, (unsigned long)o.counts.bank_stalls);
        T_CHECK(o.wrong == 0, "%ld wrong %s", o.wrong, o.why);
        check_stated(i < 2 ? 4 : 8, s->m, s->k, s->n, &o);
        T_CHECK(o.counts.macs == (uint64_t)s->m * s->k * s->n && share >= least, "%.3f of the peak",
                share);
    }
}

/* The shapes that the library makes for tiny; with TEST_NPU_SHAPES those of all models to large-v3. */
static void test_shapes(void)
{
    static const uint32_t states[] = {384, 512, 768, 1024, 1280};
    size_t n = assemble_ours(), models = getenv("TEST_NPU_SHAPES") != NULL ? 5 : 1;
    for (size_t i = 0; i < models; i++) {
        uint32_t d = states[i], mels = d == 1280 ? 384 : 240;
        const uint32_t nk[7][2] = {{d, mels}, {d, 3 * d}, {3 * d, d}, {d, d}, {4 * d, d}, {d, 4 * d},
                                   {2 * d, d}};
        for (int j = 0; j < 7; j++) {
            uint32_t wide = (nk[j][0] + 255) / 256 * 256, deep = (nk[j][1] + 63) / 64 * 64;
            outcome o = multiply(n, 4, 512, deep, wide, j % 2);
            T_CHECK(o.wrong == 0, "512x%ux%u: %ld wrong %s", (unsigned)deep, (unsigned)wide, o.wrong,
                    o.why);
            check_stated(4, 512, deep, wide, &o);
            printf("  512x%ux%u: %lu cycles, %.1f %% of the peak\n", (unsigned)deep, (unsigned)wide,
                   (unsigned long)o.counts.cycles,
                   100 * (double)o.counts.macs / (16 * per_cycle()) / (double)o.counts.cycles);
        }
    }
}

/* ---------------------------------------------------------------- faults are seen */

/* One bit of the vector instruction in each bundle of the loop, another one each time. */
static void test_flipped_bits(void)
{
    size_t n = assemble_ours(), loop = 0;
    uint8_t good[CORE_PROGRAM];
    for (size_t at = 0; at + 16 <= n && loop == 0; ) { /* the first bundle with a VMAC */
        aie_bundle b;
        int bytes = aie_decode(isa(), code + at, n - at, &b);
        loop = b.slot[AIE_VEC].op != NULL && strcmp(b.slot[AIE_VEC].op->mnemonic, "vmac") == 0 ? at
                                                                                              : 0;
        at += (size_t)bytes;
    }
    T_CHECK(loop > 0 && loop % 16 == 0, "the loop is at 0x%zx", loop);
    memcpy(good, code, sizeof good);
    for (int i = 0; i < 128; i++) {
        int bit = 1 + i * 5 % 26; /* of the 128-bit format: the slot is in bits 1 to 26 */
        code[loop + (size_t)i * 16 + (size_t)bit / 8] ^= (uint8_t)(1 << bit % 8);
        outcome o = multiply(n, 1, 64, 128, 64, 0);
        T_CHECK(o.wrong != 0, "bit %d of bundle %d: still right", bit, i);
        memcpy(code, good, sizeof good);
    }
}

static void replace(const char *old, const char *by)
{
    char *at = strstr(source, old);
    size_t was = strlen(old), is = strlen(by);
    T_CHECK(at != NULL && strlen(source) + is < sizeof source, "`%s` is not in the source", old);
    if (at != NULL) {
        memmove(at + is, at + was, strlen(at + was) + 1);
        memcpy(at, by, is);
    }
}

/* A or B is given back when it was just taken, so that it is overwritten while it is read; C is handed
 * over when the tile begins. */
static void test_early_release(void)
{
    static const struct { const char *name, *late, *left, *early; } cases[] = {
        {"A", "flush:\n    rel #48, r2; padds", "flush:\n    padds", "rel #48, r2"},
        {"B", "; rel #50, r2\n    vst amlh6", "\n    vst amlh6", "rel #50, r2"},
        {"C", "    rel #53, r2\n    j #tile", "    nop\n    j #tile", "rel #53, r2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char early[64];
        assemble_ours();
        if (strstr(source, cases[i].late) == NULL) {
            T_CHECK(0, "%s: `%s` is not in the source", cases[i].name, cases[i].late);
            continue;
        }
        snprintf(early, sizeof early, "    lda r5, [p7, #0]; %s\n", cases[i].early);
        replace(cases[i].late, cases[i].left);
        replace("    lda r5, [p7, #0]\n", early);
        outcome o = multiply(assemble(source), 1, 64, 1024, 64, 0);
        T_CHECK(o.wrong != 0, "%s released too early is not seen", cases[i].name);
    }
}

static void test_room(void)
{
    overlay design = {4, generation, NULL, 0};
    overlay_shape shape = {256, 64, 256};
    size_t words = overlay_stream(&design, &shape, stream, sizeof stream / 4);
    T_CHECK(words > 0 && overlay_stream(&design, &shape, stream, words - 1) == 0, "the stream");
    size_t size = overlay_pdi(&design, pdi, sizeof pdi);
    T_CHECK(size > 0 && overlay_pdi(&design, pdi, size - 4) == 0, "the PDI");
}

/* The same for AIE2P. */
static void test_aie2p(void)
{
    generation = 4;
    test_program();
    test_embedded();
    test_rungs();
    test_exact();
    test_one_overlay();
    test_used_array();
    test_slack();
    test_bursts();
    test_shapes();
    test_speed();
    generation = 3;
}

int main(void)
{
    t_run("the program and its rules", test_program);
    t_run("the library has this program", test_embedded);
    t_run("the rungs of the doctor's ladder", test_rungs);
    t_run("exact products", test_exact);
    t_run("one overlay, many shapes", test_one_overlay);
    t_run("an array that was used before", test_used_array);
    t_run("results one cycle earlier or later", test_slack);
    t_run("bursts", test_bursts);
    t_run("cycles of base's feed-forward", test_speed);
    t_run("flipped bits are seen", test_flipped_bits);
    t_run("locks released too early are seen", test_early_release);
    t_run("no room", test_room);
    t_run("the library's shapes", test_shapes);
    t_run("AIE2P: program, products, one overlay, cycles", test_aie2p);
    return t_end();
}
