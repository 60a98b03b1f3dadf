/* test_npu_isa.c - the assembler and disassembler of tests/npu/kit.
 *
 * WNPU_KERNELS=DIR adds the long check: every core program in every file of DIR/npu1 (AIE2) and
 * DIR/npu4 (AIE2P), public xclbins or PDIs fetched by hand, is disassembled and assembled again to
 * the same bytes. */
#include "kit/cdo.h"
#include "kit/isa.h"
#include "../lib/t.h"

#include <dirent.h>

/* Words as they stand in programs that compilers made (facts, from public binaries). */
static void check_known(const aie_isa *isa, const char *const known[][2], int count)
{
    for (int i = 0; i < count; i++) {
        uint8_t code[16], expected[16];
        char error[160] = "", text[640];
        unsigned byte = 0;
        int n = 0, used = 0;
        aie_bundle b;
        for (const char *at = known[i][1]; sscanf(at, "%2x%n", &byte, &used) == 1; at += used) {
            expected[n++] = (uint8_t)byte;
        }
        long size = aie_assemble(isa, known[i][0], code, sizeof code, error, sizeof error);
        T_CHECK(size == n && memcmp(code, expected, (size_t)n) == 0, "`%s`: %ld bytes, %02x%02x %s",
                known[i][0], size, code[0], code[1], error);
        T_CHECK(aie_decode(isa, expected, (size_t)n, &b) == n, "`%s` is decoded", known[i][0]);
        aie_print(isa, &b, text, sizeof text);
        T_CHECK(strcmp(text, known[i][0]) == 0, "`%s` prints as `%s`", known[i][0], text);
    }
}

static void test_known_aie2(void)
{
    static const char *const known[][2] = {
        {"nop", "0100"},
        {"jl #2128", "150100280400"},
        {"movxm sp, #458752", "5500e00c0700"},
        {"acq #49, r17", "19122316"},
    };
    check_known(aie2(), known, (int)(sizeof known / sizeof *known));
}

/* The least, the greatest and a middle immediate of an operand. */
static int32_t immediate(const aie_op *op, int n, int which)
{
    int bits = 0;
    for (int i = 0; i < op->operand[n].pieces; i++) {
        bits += op->operand[n].length[i];
    }
    int64_t low = op->operand[n].is_signed ? -((int64_t)1 << (bits - 1)) : 0;
    if (op->operand[n].below_zero) {
        low = -((int64_t)1 << bits);
    }
    int64_t high = low + ((int64_t)1 << bits) - 1;
    return (int32_t)((which == 0 ? low : which == 1 ? high : (low + high) / 2) *
                     op->operand[n].step);
}

/* The text of an instruction; `turn` varies its operands. */
static void write_text(const aie_isa *isa, const aie_op *op, int turn, char *text, size_t size)
{
    size_t length = 0;
    int32_t value[AIE_OPERANDS];
    int n = 0;
    for (const char *at = op->row->text; *at != '\0' && length + 32 < size; at++) {
        if (*at != '{') {
            text[length++] = *at;
            continue;
        }
        if (op->operand[n].kind == 'i') {
            value[n] = immediate(op, n, turn % 3);
            length += (size_t)snprintf(text + length, 32, "#%ld", (long)value[n]);
        } else {
            int same = op->operand[n].same_as;
            value[n] = same >= 0 ? value[same]
                                 : aie_class_register(isa, op->operand[n].cls,
                                                      (turn * (n + 1) + n) % 128);
            length += aie_register_name(value[n], text + length, 32);
        }
        at += strcspn(at, "}");
        n++;
    }
    text[length] = '\0';
}

/* Every instruction, with many registers and extreme immediates: text, bytes, and the same text
 * again. A row that an earlier one hides shows here. */
static void check_rows(const aie_isa *isa)
{
    for (size_t i = 0; i < aie_op_count(isa); i++) {
        for (int turn = 0; turn < 40; turn++) {
            char text[256], printed[640] = "", error[160] = "";
            uint8_t code[16];
            aie_bundle b;
            write_text(isa, aie_op_at(isa, i), turn, text, sizeof text);
            long size = aie_assemble(isa, text, code, sizeof code, error, sizeof error);
            if (size > 0 && aie_decode(isa, code, (size_t)size, &b) == size) {
                aie_print(isa, &b, printed, sizeof printed);
            }
            T_CHECK(strcmp(printed, text) == 0, "`%s` becomes `%s` %s", text, printed, error);
        }
    }
}

/* Bytes of any bundle that is one: the same bytes again. Half of the bits are random. */
static void check_random(const aie_isa *isa)
{
    const aie_tables *t = aie_isa_tables(isa);
    uint64_t random = 88172645463325252u;
    long good = 0;
    for (int i = 0; i < 400000; i++) {
        const aie_format_row *f = &t->formats[i % (int)t->format_count];
        uint8_t code[16], again[16];
        aie_bundle b;
        for (int k = 0; k < 16; k++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            uint8_t mask = (uint8_t)(f->mask[k / 8] >> k % 8 * 8);
            uint8_t value = (uint8_t)(f->value[k / 8] >> k % 8 * 8);
            code[k] = (uint8_t)(((random & random >> 8) & (uint8_t)~mask) | value);
        }
        if (aie_decode(isa, code, f->bytes, &b) == f->bytes) {
            int n = aie_encode(isa, &b, again);
            good++;
            char text[640];
            aie_print(isa, &b, text, sizeof text);
            T_CHECK(n == f->bytes && memcmp(code, again, (size_t)n) == 0, "other bytes: %s", text);
        }
    }
    T_CHECK(good > 4000, "only %ld bundles", good);
}

static void test_known_aie2p(void)
{
    static const char *const known[][2] = {
        {"nop", "0000"},
        {"acq #49, r1", "18182216"},
        {"rel #51, r2", "18286016"},
        {"movxm sp, #458752", "4400e0090700"},
        {"jl #688", "040100580100"},
        {"jnz r19, #128", "840140400098"},
        {"lda r18, [p0, #4]", "98561600"},
        {"add r18, r18, #-1", "18ffa514"},
        {"vlda x0, [p0, #0]; vldb x2, [p1, #0]", "3c6809728300"},
        {"ret lr", "18002810"},
        {"vadd.32 x0, x2, x0", "782d1018"},
    };
    check_known(aie2p(), known, (int)(sizeof known / sizeof *known));
}

static void test_aie2p_rows(void)
{
    check_rows(aie2p());
}

static void test_aie2p_random(void)
{
    check_random(aie2p());
}

static void test_aie2_rows(void)
{
    check_rows(aie2());
}

static void test_aie2_random(void)
{
    check_random(aie2());
}

static const char delay_ok[] =
    "start:\n nop\n jnz r0, #start\n nop\n nop\n nop\n nop\n nop\n done\n";

static void check_rule(const char *what, const char *text, int expected)
{
    uint8_t code[1024];
    char error[200] = "";
    long n = aie_assemble(aie2(), text, code, sizeof code, error, sizeof error);
    T_CHECK(n > 0, "%s: %s", what, error);
    int rules = n > 0 ? aie_check_rules(aie2(), code, (size_t)n, error, sizeof error) : -1;
    T_CHECK(rules == expected, "%s: rules %x, not %x; %s", what, (unsigned)rules,
            (unsigned)expected, error);
}

static void test_rules(void)
{
    check_rule("a loop", delay_ok, 0);
    check_rule("NOPs before a target", "nop\nx:\nj #x\nnop\nnop\nnop\nnop\nnop\n", 0);
    check_rule("a target in a line", "mov r1, #1\nx:\nj #x\nnop\nnop\nnop\nnop\nnop\n",
               AIE_RULE_TARGET);
    check_rule("a bundle reaches into the line",
               "nopa; nopb; nopx; nopm\nnop\nmovxm r1, #1\nx:\nj #x\nnop\nnop\nnop\nnop\nnop\n",
               AIE_RULE_TARGET);
    check_rule(".align", "mov r1, #1\n.align 16\nx:\nj #x\nnop\nnop\nnop\nnop\nnop\n", 0);
    check_rule("locks", "acq #48, r0\nnop\nnop\nnop\nrel #49, r1\n", 0);
    check_rule("locks too close", "acq #48, r0\nnop\nnop\nrel #49, r1\n", AIE_RULE_LOCKS);
    check_rule("a lock behind a branch", "j #0\nnop\nnop\nnop\nnop\nrel #49, r1\n",
               AIE_RULE_DELAY);
    check_rule("behind the delay slots", "j #0\nnop\nnop\nnop\nnop\nnop\nrel #49, r1\n", 0);
    check_rule("a branch behind a branch", "j #0\nnop\nret lr\nnop\nnop\nnop\nnop\nnop\n",
               AIE_RULE_DELAY);
    check_rule("DONE behind a branch", "j #0\ndone\nnop\nnop\nnop\nnop\n", AIE_RULE_DELAY);
}

static void check_refused(const char *text, const char *reason)
{
    uint8_t code[64];
    char error[200] = "";
    T_CHECK(aie_assemble(aie2(), text, code, sizeof code, error, sizeof error) < 0 &&
            strstr(error, reason) != NULL, "`%s` is refused as %s: %s", text, reason, error);
}

static void test_refused(void)
{
    check_refused("mov r0, #512", "no bundle");          /* ten bits, signed */
    check_refused("vlda wl0, [p0], #33", "no bundle");   /* not a multiple of 32 */
    check_refused("vmac cm9, cm0, x0, x1, r0", "no bundle");
    check_refused("abs r0, r1; eq r2, r3, r4", "no bundle"); /* one slot, two instructions */
    check_refused("j #nowhere", "nowhere");
    check_refused("x:\nx:\nnop", "twice");
    check_refused("frobnicate r0", "no bundle");
    check_refused("nop\n.frob", "line 2: unknown directive");
}

/* .align makes the bundles before it longer, so that no cycle is lost. */
static void test_align(void)
{
    uint8_t code[64];
    char error[200] = "";
    aie_bundle b;
    int bundles = 0;
    long n = aie_assemble(aie2(), "mov r1, #1\nmov r2, #2\n.align 16\nx:\nnop\n", code, sizeof code,
                          error, sizeof error);
    T_CHECK(n == 18, "%ld bytes %s", n, error);
    for (long at = 0; at < n; bundles++) {
        at += aie_decode(aie2(), code + at, (size_t)(n - at), &b);
    }
    T_CHECK(bundles == 3, "%d bundles", bundles);
}

/* ---------------------------------------------------------------- public binaries */

typedef struct {
    const aie_isa *isa;
    const char *file;
    long bundles;
    int programs;
} public_check;

/* The rest of a program memory is zeros: padding, or on AIE2P NOPs. */
static int only_zeros(const uint8_t *code, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (code[i] != 0) {
            return 0;
        }
    }
    return 1;
}

/* Until the program ends; some blocks end with a fragment of two bytes. */
static void check_program(public_check *c, const uint8_t *code, size_t size)
{
    char text[640], error[160] = "";
    uint8_t again[16];
    aie_bundle b;
    c->programs++;
    for (size_t at = 0; at + 4 <= size && !only_zeros(code + at, size - at); c->bundles++) {
        int n = aie_decode(c->isa, code + at, size - at, &b);
        T_CHECK(n > 0, "%s: 0x%zx: unknown bundle", c->file, at);
        if (n == 0) {
            return;
        }
        aie_print(c->isa, &b, text, sizeof text);
        memset(again, 0, sizeof again);
        long m = aie_assemble(c->isa, text, again, sizeof again, error, sizeof error);
        T_CHECK(m == n && memcmp(again, code + at, (size_t)n) == 0, "%s: 0x%zx: `%s` %s", c->file,
                at, text, error);
        at += (size_t)n;
    }
    int rules = aie_check_rules(c->isa, code, size, error, sizeof error);
    if (c->isa != aie2()) {
        rules &= ~AIE_RULE_DELAY; /* compilers put acquires into the delay slots of calls there */
    }
    T_CHECK(rules == 0, "%s: %s", c->file, error);
}

static int check_command(void *self, const cdo_command *command)
{
    if (command->opcode == CDO_BLOCK && (command->address >> 20 & 31) >= 2 &&
        (command->address & 0xfffff) == 0x20000) {
        check_program(self, command->data, (size_t)command->words * 4);
    }
    return 0;
}

static void check_file(public_check *c, const char *path)
{
    static uint8_t bytes[1 << 22];
    size_t cdo_size = 0;
    FILE *f = fopen(path, "rb");
    size_t size = f != NULL ? fread(bytes, 1, sizeof bytes, f) : 0;
    const uint8_t *cdo = cdo_find(bytes, size, &cdo_size);
    c->file = path;
    if (cdo != NULL) {
        T_CHECK(cdo_walk(cdo, cdo_size, check_command, c) == 0, "%s: malformed CDO", path);
    }
    if (f != NULL) {
        fclose(f);
    }
}

static void check_directory(const aie_isa *isa, const char *name)
{
    const char *root = getenv("WNPU_KERNELS");
    public_check c = {isa, "", 0, 0};
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", root != NULL ? root : "", name);
    DIR *d = root != NULL ? opendir(path) : NULL;
    if (d == NULL) {
        printf("  no public binaries: WNPU_KERNELS names none in %s/\n", name);
        t_skip_now = 1;
        return;
    }
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        snprintf(path, sizeof path, "%s/%s/%s", root, name, e->d_name);
        check_file(&c, path);
    }
    closedir(d);
    printf("  %s: %d programs, %ld bundles\n", name, c.programs, c.bundles);
    T_CHECK(c.programs > 0, "no program in %s", name);
}

static void test_public_aie2(void)
{
    check_directory(aie2(), "npu1");
}

static void test_public_aie2p(void)
{
    check_directory(aie2p(), "npu4");
}

int main(void)
{
    t_run("known bytes of AIE2", test_known_aie2);
    t_run("every instruction of AIE2", test_aie2_rows);
    t_run("random bundles of AIE2", test_aie2_random);
    t_run("known bytes of AIE2P", test_known_aie2p);
    t_run("every instruction of AIE2P", test_aie2p_rows);
    t_run("random bundles of AIE2P", test_aie2p_random);
    t_run("rules found on silicon", test_rules);
    t_run("what is refused", test_refused);
    t_run("alignment without NOPs", test_align);
    t_run("public binaries of AIE2", test_public_aie2);
    t_run("public binaries of AIE2P", test_public_aie2p);
    return t_end();
}
