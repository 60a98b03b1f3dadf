/* test_npu_core.c - the simulated core: each latency, bypass and rule of its pipeline by itself, and
 * public kernels that were proven on silicon.
 *
 * WNPU_KERNELS=DIR adds the long check: the int16 products DIR/npu1/gemm-256-1col.xclbin and
 * gemm-512-4col.xclbin with their .insts.txt (tibrezus/xdna-npu-toolkit, iron/builds), and the int8
 * products DIR/npu4/final_i8_*_K*_N*.xclbin with their insts_i8_*.txt (1bit-MONSTER/1bit-MONSTER,
 * engine/npu/xclbins). */
#include "kit/product.h"
#include "kit/isa.h"
#include "../lib/t.h"

#include <dirent.h>

/* ---------------------------------------------------------------- small programs */

enum { PROGRAM = 16384 };

typedef struct {
    core *c;
    uint8_t memory[CORE_MEMORY];
    int locks[CORE_LOCKS];
} machine;

static machine *machine_new(const char *text)
{
    machine *m = calloc(1, sizeof *m);
    char error[200] = "";
    m->c = core_new(aie2());
    core_view v = {{NULL, NULL, NULL, m->memory}, {NULL, NULL, NULL, m->locks}, 0};
    core_connect(m->c, &v);
    core_reset(m->c);
    long n = aie_assemble(aie2(), text, core_program(m->c), PROGRAM, error, sizeof error);
    T_CHECK(n > 0, "`%.60s`: %s", text, error);
    core_enable(m->c, 1);
    for (int i = 0; i < 256; i++) { /* word i of memory is 1000 + i */
        uint32_t v32 = 1000u + (uint32_t)i;
        memcpy(m->memory + i * 4, &v32, 4);
    }
    return m;
}

static void machine_free(machine *m)
{
    core_free(m->c);
    free(m);
}

static void run(machine *m, int cycles)
{
    while (cycles-- > 0 && core_step(m->c, 0) == CORE_RUNNING) {
    }
    T_CHECK(core_state_of(m->c) != CORE_FAILED, "%s", core_message(m->c));
}

static uint32_t word_of(const machine *m, int at)
{
    uint32_t v;
    memcpy(&v, m->memory + at, 4);
    return v;
}

/* `text` with N replaced by n NOPs: what it leaves in the word at 0x800, with these timings. */
static uint32_t after(const char *text, int n, const core_timing *changed, core_kind kind)
{
    char full[4096] = "movxm p0, #0x70000\nmovxm p1, #0x70800\nmov r10, #77\nmov r11, #5\n"
                      "vbcst.32 x1, r10\nvbcst.32 x2, r11\nmov s0, #0\nmovxm r9, #776\n";
    size_t at = strlen(full);
    for (; *text != '\0'; text++) {
        if (*text == 'N') {
            for (int i = 0; i < n; i++) {
                at += (size_t)snprintf(full + at, sizeof full - at, "nop\n");
            }
        } else {
            full[at++] = *text;
        }
    }
    snprintf(full + at, sizeof full - at, "\nnop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\ndone\n");
    machine *m = machine_new(full);
    if (changed != NULL) {
        core_timing_of(m->c)[kind] = *changed;
    }
    run(m, 500);
    uint32_t v = word_of(m, 0x800);
    machine_free(m);
    return v;
}

/* A reader `early` cycles behind the writer gets the old value, one more and it gets the new one. */
typedef struct {
    const char *name;
    core_kind kind;
    const char *text;   /* stores what the reader saw */
    int distance;       /* first that sees the new value; the documents' number */
    uint32_t old_value, new_value;
    int by_memory;      /* the memory cycle decides, not the result */
} latency;

#define SAVE "nop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\nst r2, [p1, #0]"
#define VSAVE "nop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\nvst wl3, [p1, #0]"

static const latency latencies[] = {
    {"scalar", CORE_SCALAR, "mov r1, #1\nnop\nmov r1, #2\nNmov r2, r1\n" SAVE, 1, 1, 2, 0},
    {"multiply", CORE_MUL, "mov r1, #1\nnop\nmul r1, r11, r11\nNmov r2, r1\n" SAVE, 2, 1, 25, 0},
    {"pointer", CORE_POINTER,
     "paddb [p0], #64\nNlda r2, [p0, #0]\n" SAVE, 1, 1000, 1016, 0},
    {"load", CORE_LOAD, "mov r1, #1\nlda r1, [p0, #4]\nNmov r2, r1\n" SAVE, 7, 1, 1001, 0},
    {"vector load", CORE_LOAD, "vldb wl1, [p0, #0]\nNvst wl1, [p1, #0]", 7, 77, 1000, 0},
    {"broadcast", CORE_BROADCAST, "vbcst.32 x1, r11\nNvst wl1, [p1, #0]", 2, 77, 5, 0},
    {"broadcast to a move", CORE_BROADCAST,
     "vbcst.32 x3, r10\nnop\nnop\nvbcst.32 x1, r11\nNvmov x3, x1\n" VSAVE, 1, 77, 5, 0},
    {"move", CORE_MOVE, "vmov x1, x2\nNvst wl1, [p1, #0]", 2, 77, 5, 0},
    {"ups", CORE_UPS, "vups.s64.s32 cm0, x1, s0\nNvst amll0, [p1, #0]", 3, 0, 77, 0},
    {"load with ups", CORE_LOAD_UPS,
     "vlda.ups.s64.s32 bml0, s0, [p0, #0]\nNvst amll0, [p1, #0]", 9, 0, 1000, 0},
    {"srs", CORE_SRS, "vups.s64.s32 cm0, x2, s0\nnop\nnop\nnop\nvsrs.s32.s64 wl1, bml0, s0\n"
     "Nvst wl1, [p1, #0]", 4, 77, 5, 0},
    /* 8 products of the bytes 77 and 5 in the low byte of each word */
    {"multiply-accumulate", CORE_MAC, "vmul cm0, x1, x2, r9\nNvst amll0, [p1, #0]", 5, 0, 2 * 385, 0},
    {"accumulators bypass", CORE_MAC,
     "vmul cm0, x1, x2, r9\nNvmac cm1, cm0, x1, x2, r9\nnop\nnop\nnop\nnop\nnop\nvst amll1, [p1, #0]",
     2, 2 * 385, 4 * 385, 0},
    {"clear", CORE_CLEAR, "vmul cm0, x1, x2, r9\nnop\nnop\nnop\nnop\nnop\nvclr cm0\n"
     "Nvst amll0, [p1, #0]", 5, 2 * 385, 0, 0},
    {"store to load", CORE_STORE, "st r11, [p0, #0]\nNlda r2, [p0, #0]\n" SAVE, 1, 1000, 5, 1},
    {"srs store to load", CORE_STORE_SRS,
     "vups.s64.s32 cm0, x2, s0\nnop\nnop\nnop\nvst.srs.s32.s64 bml0, s0, [p0, #0]\nN"
     "lda r2, [p0, #0]\n" SAVE, 3, 1000, 5, 1},
};

/* N is one less than the distance: the writer's own bundle is the first cycle. */
static void test_latencies(void)
{
    for (size_t i = 0; i < sizeof latencies / sizeof *latencies; i++) {
        const latency *l = &latencies[i];
        uint32_t seen = after(l->text, l->distance - 1, NULL, 0);
        T_CHECK(seen == l->new_value, "%s: %u at %d, not %u", l->name, (unsigned)seen, l->distance,
                (unsigned)l->new_value);
        if (l->distance > 1) {
            seen = after(l->text, l->distance - 2, NULL, 0);
            T_CHECK(seen == l->old_value, "%s: %u before, not %u", l->name, (unsigned)seen,
                    (unsigned)l->old_value);
        }
    }
}

/* Any latency of the tables one cycle shorter or longer is seen by these programs. */
static void test_wrong_tables(void)
{
    for (size_t i = 0; i < sizeof latencies / sizeof *latencies; i++) {
        const latency *l = &latencies[i];
        for (int by = -1; by <= 1; by += 2) {
            core_timing t = core_timings[l->kind];
            uint8_t *cycle = l->by_memory ? &t.memory : &t.result;
            if (*cycle + by < 1 || (by < 0 && l->distance == 1)) {
                continue; /* nothing can issue in between */
            }
            *cycle = (uint8_t)(*cycle + by);
            uint32_t at = after(l->text, l->distance - 1, &t, l->kind);
            uint32_t before = l->distance > 1 ? after(l->text, l->distance - 2, &t, l->kind)
                                              : l->old_value;
            T_CHECK(at != l->new_value || before != l->old_value, "%s: %+d is not seen", l->name, by);
        }
        if (core_timings[l->kind].bypass != 0 && strstr(l->name, "bypass") != NULL) {
            core_timing t = core_timings[l->kind];
            t.bypass = 0;
            T_CHECK(after(l->text, l->distance - 1, &t, l->kind) != l->new_value,
                    "%s: without bypass the same", l->name);
        }
    }
    core_timing mac = core_timings[CORE_MAC];
    for (int cycle = 2; cycle <= 4; cycle += 2) { /* the accumulator is read in cycle 3 */
        const latency *l = NULL;
        for (size_t i = 0; i < sizeof latencies / sizeof *latencies; i++) {
            l = strcmp(latencies[i].name, "accumulators bypass") == 0 ? &latencies[i] : l;
        }
        mac.accumulator = (uint8_t)cycle;
        T_CHECK(after(l->text, l->distance - 1, &mac, CORE_MAC) != l->new_value ||
                after(l->text, l->distance - 2, &mac, CORE_MAC) != l->old_value,
                "accumulators read in cycle %d: the same", cycle);
    }
}

static void check_register(const char *what, const char *text, int reg, uint32_t expected)
{
    char full[2048];
    snprintf(full, sizeof full, "%s\nnop\nnop\ndone\n", text);
    machine *m = machine_new(full);
    run(m, 400);
    T_CHECK(core_state_of(m->c) == CORE_DONE && core_register(m->c, reg) == expected,
            "%s: %u, not %u", what, (unsigned)core_register(m->c, reg), (unsigned)expected);
    machine_free(m);
}

static void test_control(void)
{
    const int r1 = AIE_REG(AIE_R, 1), p0 = AIE_REG(AIE_P, 0);
    check_register("five delay slots",
                   "mov r1, #0\nj #x\nadd r1, r1, #1\nadd r1, r1, #1\nadd r1, r1, #1\n"
                   "add r1, r1, #1\nadd r1, r1, #1\nadd r1, r1, #10\n.align 16\nx:\nnop", r1, 5);
    check_register("call and return",
                   "mov r1, #0\njl #f\nnop\nnop\nnop\nnop\nnop\nadd r1, r1, #1\nj #end\nnop\nnop\n"
                   "nop\nnop\nnop\n.align 16\nf:\nret lr\nnop\nnop\nnop\nnop\nadd r1, r1, #8\n"
                   ".align 16\nend:\nnop", r1, 9);
    check_register("a loop of three",
                   "mov r1, #0\nmov r2, #3\nmovxm ls, #s\nmovxm le, #e\nadd.nc lc, r2, #0\nnop\nnop\n"
                   ".align 16\ns:\nadd r1, r1, #1\nnop\ne:\nadd r1, r1, #10\nnop", r1, 33);
    check_register("a branch by zero", "mov r1, #1\nmov r2, #0\njz r2, #x\nnop\nnop\nnop\nnop\nnop\n"
                   "mov r1, #9\n.align 16\nx:\nnop", r1, 1);
    check_register("select", "mov r27, #1\nmov r2, #5\nmov r3, #6\nsel.nez r1, r2, r3, r27", r1, 5);
    check_register("operands before results", "mov r1, #1\nmov r2, #2\nadd r1, r1, r2; mov r2, r1",
                   AIE_REG(AIE_R, 2), 1);
    check_register("a modifier of the same bundle is not seen",
                   "movxm p0, #0x70000\nmov m0, #32\npaddb [p0], m0; mov m0, #64", p0, 0x70020);
    check_register("shift right", "mov r2, #-8\nmov r3, #-1\nashl r1, r2, r3", r1, 0xfffffffcu);
    machine *m = machine_new("movxm p0, #0x60000\nlda r1, [p0, #0]\nnop\nnop\nnop\nnop\nnop\ndone\n");
    while (core_step(m->c, 0) == CORE_RUNNING) {
    }
    T_CHECK(core_state_of(m->c) == CORE_FAILED, "memory that is not there");
    machine_free(m);
}

static void test_locks(void)
{
    machine *m = machine_new("mov r1, #-1\nmov r2, #1\nacq #50, r1\nnop\nnop\nnop\nrel #51, r2\n"
                             "nop\nnop\nmov r3, #7\ndone\n");
    run(m, 50);
    T_CHECK(core_state_of(m->c) == CORE_WAITING && m->locks[3] == 0, "it waits for lock 2");
    m->locks[2] = 2;
    run(m, 50);
    T_CHECK(core_state_of(m->c) == CORE_DONE && m->locks[2] == 1 && m->locks[3] == 1,
            "locks %d and %d", m->locks[2], m->locks[3]);
    T_CHECK(core_counts_of(m->c)->lock_stalls > 0, "stalls are counted");
    machine_free(m);
}

/* Two loads of one bundle in one area of 16 KiB meet in a bank; in different areas they do not. */
static void test_banks(void)
{
    static const struct { const char *second; uint64_t stalls; } cases[] = {
        {"0x71000", 1}, {"0x74000", 0}, {"0x7c000", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        snprintf(text, sizeof text, "movxm p0, #0x70000\nmovxm p1, #%s\nvlda wl0, [p0, #0]; "
                 "vldb wl1, [p1, #0]\nnop\nnop\nnop\nnop\nnop\nnop\nnop\ndone\n", cases[i].second);
        machine *m = machine_new(text);
        run(m, 50);
        T_CHECK(core_counts_of(m->c)->bank_stalls == cases[i].stalls, "%s: %d stalls",
                cases[i].second, (int)core_counts_of(m->c)->bank_stalls);
        machine_free(m);
    }
    T_CHECK(core_banks(0, 16) == 1 && core_banks(16, 16) == 2 && core_banks(0, 32) == 3 &&
            core_banks(16384, 32) == 12, "banks of 16 bytes");
}

/* ---------------------------------------------------------------- public kernels */

typedef struct {
    uint8_t *bytes;
    size_t size;
} blob;

static blob read_blob(const char *directory, const char *name)
{
    char path[1200];
    blob b = {NULL, 0};
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *f = fopen(path, "rb");
    if (f != NULL) {
        b.bytes = malloc(1 << 22);
        b.size = b.bytes != NULL ? fread(b.bytes, 1, 1 << 22, f) : 0;
        fclose(f);
    }
    return b;
}

/* A public design: its files, and what it multiplies. */
typedef struct {
    const aie_isa *isa;
    blob image, stream;
    int columns, bits;
    uint32_t m, k, n;
    char why[240];
} design;

/* Another latency for one kind of instruction in every core; by 0: without its bypass. */
typedef struct {
    core_kind kind;
    int by;
} change;

static void change_cores(array *a, int columns, const change *c)
{
    for (int col = 0; col < columns; col++) {
        for (int row = 2; row < ARRAY_ROWS; row++) {
            core *at = array_core(a, col, row);
            if (at != NULL) {
                core_timing *t = &core_timing_of(at)[c->kind];
                t->result = (uint8_t)(t->result + c->by);
                t->bypass = c->by == 0 ? 0 : t->bypass;
            }
        }
    }
}

/* Wrong results, or -1 if it did not run to its end. */
static long run_design(design *d, const change *changed)
{
    product p;
    long wrong = -1;
    int limit = d->bits == 8 ? 127 : 1000;
    if (!product_new(&p, d->bits, d->m, d->k, d->n)) {
        return -1;
    }
    product_fill(&p, p.memory + p.args[0], (size_t)d->m * d->k, limit, 0, 1);
    product_fill(&p, p.memory + p.args[1], (size_t)d->k * d->n, limit, 0, 2);
    array *a = array_new(d->isa, d->columns, product_host, &p);
    if (array_configure(a, d->image.bytes, d->image.size) == 0) {
        if (changed != NULL) {
            change_cores(a, d->columns, changed);
        }
        if (array_run(a, (const uint32_t *)(const void *)d->stream.bytes, d->stream.size / 4, p.args,
                      3) == 0) {
            wrong = product_wrong(&p, p.memory + p.args[1]);
        }
    }
    if (changed == NULL && wrong == 0) {
        const array_counts *n = array_count(a);
        printf("  %ux%ux%u on %d cores: %lu cycles, %lu reads of old values, %lu bank conflicts\n",
               (unsigned)d->m, (unsigned)d->k, (unsigned)d->n, n->cores, (unsigned long)n->cycles,
               (unsigned long)n->old_reads, (unsigned long)n->bank_stalls);
    }
    snprintf(d->why, sizeof d->why, "%s", array_message(a));
    array_free(a);
    free(p.memory);
    return wrong;
}

/* Exact, and no longer when a latency is wrong. VMAC one cycle shorter makes no difference to
 * compiled code, nor do shorter loads to that for AIE2P. */
static void check_design(design *d, const char *name, int with_changes)
{
    static const change changes[] = {{CORE_LOAD, 1}, {CORE_MAC, 1}, {CORE_LOAD, -1}};
    const size_t count = d->isa == aie2() ? 3 : 2;
    long wrong = run_design(d, NULL);
    T_CHECK(wrong == 0, "%s: %ld wrong %s", name, wrong, d->why);
    for (size_t i = 0; with_changes && i < count; i++) {
        T_CHECK(run_design(d, &changes[i]) != 0, "%s: latency of kind %d by %+d: still right", name,
                (int)changes[i].kind, changes[i].by);
    }
}

static void none_found(const char *where)
{
    printf("  no public kernels: WNPU_KERNELS names none in %s/\n", where);
    t_skip_now = 1;
}

static void test_public_int16(void)
{
    static const struct { const char *name; uint32_t size; int columns; } kernels[] = {
        {"gemm-256-1col", 256, 1}, {"gemm-512-4col", 512, 4},
    };
    const char *root = getenv("WNPU_KERNELS");
    char directory[1000], name[64];
    int found = 0;
    snprintf(directory, sizeof directory, "%s/npu1", root != NULL ? root : "");
    for (size_t i = 0; root != NULL && i < sizeof kernels / sizeof *kernels; i++) {
        uint32_t size = kernels[i].size;
        design d = {aie2(), {NULL, 0}, {NULL, 0}, kernels[i].columns, 16, size, size, size, ""};
        snprintf(name, sizeof name, "%s.xclbin", kernels[i].name);
        d.image = read_blob(directory, name);
        snprintf(name, sizeof name, "%s.insts.txt", kernels[i].name);
        d.stream = read_blob(directory, name);
        if (d.image.size > 0 && d.stream.size > 0) {
            check_design(&d, kernels[i].name, size == 256);
            found++;
        }
        if (size == 256 && found > 0) {
            static const change no_bypass = {CORE_MAC, 0};
            T_CHECK(run_design(&d, &no_bypass) != 0, "without bypass: still right");
        }
        free(d.image.bytes);
        free(d.stream.bytes);
    }
    if (found == 0) {
        none_found("npu1");
    }
}

/* Every final_i8_NAME_K<k>_N<n>.xclbin with its insts_i8_NAME_K<k>_N<n>.txt: M = 128, row-major. */
static void test_public_int8(void)
{
    const char *root = getenv("WNPU_KERNELS");
    char directory[1000], name[400], rest[300];
    int found = 0;
    snprintf(directory, sizeof directory, "%s/npu4", root != NULL ? root : "");
    DIR *all = root != NULL ? opendir(directory) : NULL;
    for (struct dirent *e = all != NULL ? readdir(all) : NULL; e != NULL; e = readdir(all)) {
        unsigned k = 0, n = 0;
        const char *shape = strstr(e->d_name, "_K");
        if (sscanf(e->d_name, "final_i8_%299[^.].xclbin", rest) != 1 || shape == NULL ||
            sscanf(shape, "_K%u_N%u", &k, &n) != 2) {
            continue;
        }
        design d = {aie2p(), {NULL, 0}, {NULL, 0}, 8, 8, 128, k, n, ""};
        d.image = read_blob(directory, e->d_name);
        snprintf(name, sizeof name, "insts_i8_%s.txt", rest);
        d.stream = read_blob(directory, name);
        if (d.image.size > 0 && d.stream.size > 0) {
            check_design(&d, rest, n * k <= 1 << 20);
            found++;
        }
        free(d.image.bytes);
        free(d.stream.bytes);
    }
    if (all != NULL) {
        closedir(all);
    }
    printf("  %d int8 products\n", found);
    if (found == 0) {
        none_found("npu4");
    }
}

int main(void)
{
    t_run("latencies and bypasses", test_latencies);
    t_run("a wrong latency is seen", test_wrong_tables);
    t_run("branches, loops, operands", test_control);
    t_run("locks", test_locks);
    t_run("bank conflicts", test_banks);
    t_run("public int16 kernels of NPU1", test_public_int16);
    t_run("public int8 kernels of NPU4", test_public_int8);
    return t_end();
}
