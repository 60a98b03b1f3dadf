/* isa.c - parses the instruction tables, decodes, encodes and prints bundles. See isa.h. */
#include "isa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- registers */

static const struct {
    const char *prefix;
    int first, count; /* numbers of the registers */
} files[AIE_FILES] = {
    [AIE_R] = {"r", 0, 32}, [AIE_P] = {"p", 0, 8}, [AIE_M] = {"m", 0, 8}, [AIE_DN] = {"dn", 0, 8},
    [AIE_DJ] = {"dj", 0, 8}, [AIE_DC] = {"dc", 0, 8}, [AIE_S] = {"s", 0, 4},
    [AIE_L] = {"l", 0, 16}, [AIE_D] = {"d", 0, 8}, [AIE_D3] = {"3d", 0, 4},
    [AIE_X] = {"x", 0, 16}, [AIE_Y] = {"y", 0, 8}, [AIE_CM] = {"cm", 0, 9}, [AIE_DM] = {"dm", 0, 5},
    [AIE_Q] = {"q", 0, 4}, [AIE_QX] = {"qx", 0, 4},
};

static const char *const specials[AIE_SPECIALS] = {
    "lr", "sp", "lc", "le", "ls", "dp", "core_id", "crvaddsign", "crf2fmask", "crf2imask",
    "crfpmask", "crmcden", "crpacksign", "crrnd", "crscden", "crsrssign", "crsat", "crupssign",
    "crunpacksign", "srcarry", "srcompr_uf", "srf2fflags", "srf2iflags", "srfpflags", "srms0",
    "srsrs_of", "srss0", "srsparse_of", "srups_of", "crsrsmode", "crupsmode", "crunpacksize",
    "crpacksize", "crf2bmask", "crfpcnvfl2fxmask", "crfpcnvfx2flmask", "crfpnlfmask", "packsign0",
    "packsign1", "srssign0", "srssign1", "unpacksign0", "unpacksign1", "upssign0", "upssign1",
    "vaddsign0", "vaddsign1", "srf2bflags", "srfpcnvfl2fx", "srfpcnvfx2fl", "srfpnlf", "srfifo_of",
    "srfifo_uf",
};

/* Parts of a wider register, in the order of their index: wl0 wh0 wl1, amll0 amlh0 amhl0, and so on. */
static const struct {
    aie_file file;
    int parts, count;
    const char *part[4];
} parts[] = {
    {AIE_W, 2, 12, {"wl", "wh", NULL, NULL}},
    {AIE_AM, 4, 9, {"amll", "amlh", "amhl", "amhh"}},
    {AIE_BM, 2, 9, {"bml", "bmh", NULL, NULL}},
    {AIE_QW, 2, 4, {"qwh", "qwl", NULL, NULL}},
};
/* On AIE2P a bm is a quarter of a dm, a cm half of one. Their index is beyond those of AIE2. */
static const struct {
    aie_file file;
    int parts, first, count;
    const char *part[4];
} parts_p[] = {
    {AIE_BM, 4, 64, 5, {"bmll", "bmlh", "bmhl", "bmhh"}},
    {AIE_CM, 2, 64, 5, {"cml", "cmh", NULL, NULL}},
};

size_t aie_register_name(int reg, char *text, size_t size)
{
    int file = reg >> 8, index = reg & 255;
    if (file == AIE_SPECIAL && index < AIE_SPECIALS) {
        return (size_t)snprintf(text, size, "%s", specials[index]);
    }
    for (size_t i = 0; i < sizeof parts_p / sizeof *parts_p; i++) {
        if (file == (int)parts_p[i].file && index >= parts_p[i].first) {
            index -= parts_p[i].first;
            return (size_t)snprintf(text, size, "%s%d", parts_p[i].part[index % parts_p[i].parts],
                                    index / parts_p[i].parts);
        }
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (file == (int)parts[i].file) {
            return (size_t)snprintf(text, size, "%s%d", parts[i].part[index % parts[i].parts],
                                    index / parts[i].parts);
        }
    }
    if (file == AIE_D3) {
        return (size_t)snprintf(text, size, "d%d_3d", index);
    }
    return (size_t)snprintf(text, size, "%s%d", file < AIE_FILES ? files[file].prefix : "?", index);
}

int aie_register(const char *name, size_t length)
{
    static int count;
    static struct { int reg; char name[20]; } known[512];
    if (count == 0) {
        for (int file = 0; file < AIE_FILES; file++) {
            for (int index = 0; index < 84; index++) {
                int ok = index < files[file].count || (file == AIE_SPECIAL && index < AIE_SPECIALS);
                for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
                    ok |= file == (int)parts[i].file && index < parts[i].parts * parts[i].count;
                }
                for (size_t i = 0; i < sizeof parts_p / sizeof *parts_p; i++) {
                    ok |= file == (int)parts_p[i].file && index >= parts_p[i].first &&
                          index < parts_p[i].first + parts_p[i].parts * parts_p[i].count;
                }
                if (ok) {
                    known[count].reg = AIE_REG(file, index);
                    aie_register_name(known[count].reg, known[count].name, sizeof known->name);
                    count++;
                }
            }
        }
    }
    for (int i = 0; i < count; i++) {
        if (strlen(known[i].name) == length && memcmp(known[i].name, name, length) == 0) {
            return known[i].reg;
        }
    }
    return -1;
}

/* ---------------------------------------------------------------- parsing the tables */

enum { MAX_OPS = 1024, MAX_CLASSES = 96, MAX_FORMATS = 96, CLASS_SIZE = 512 };

struct aie_isa {
    const aie_tables *tables;
    size_t op_count;
    aie_op ops[MAX_OPS];
    struct { size_t first, count; } of_slot[AIE_SLOTS];
    int16_t registers[MAX_CLASSES][CLASS_SIZE]; /* encoding to register, -1: none */
    int class_bits[MAX_CLASSES];
    struct {
        int start[AIE_SLOTS]; /* -1: not in this format */
    } formats[MAX_FORMATS];
};

static void table_error(const char *what, const char *where)
{
    fprintf(stderr, "instruction tables: %s: %s\n", what, where);
    abort();
}

static int class_index(const aie_isa *isa, const char *name, size_t length)
{
    for (size_t i = 0; i < isa->tables->class_count; i++) {
        const char *other = isa->tables->classes[i].name;
        if (strlen(other) == length && memcmp(other, name, length) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* "r0-31 - lr": registers in order of encoding. */
static void list_class(int16_t *out, const char *text)
{
    int n = 0;
    while (*text != '\0') {
        size_t length = strcspn(text, " "), name = strcspn(text, "- ");
        if (length == 1 && *text == '-') {
            n++;
        } else {
            int reg = aie_register(text, name);
            int last = name < length ? atoi(text + name + 1) : -1;
            size_t digits = strcspn(text, "0123456789");
            if (reg < 0) {
                table_error("unknown register", text);
            }
            if (last < 0) {
                out[n++] = (int16_t)reg;
            }
            for (int i = last < 0 ? 1 : atoi(text + digits); i <= last; i++) {
                char each[16];
                snprintf(each, sizeof each, "%.*s%d", (int)digits, text, i);
                out[n++] = (int16_t)aie_register(each, strlen(each));
            }
        }
        text += length + (text[length] == ' ');
    }
}

/* "=am<<3|1 wm1|0x180": each alternative in turn, the first that has an encoding wins. */
static void union_class(const aie_isa *isa, int16_t *out, const char *text)
{
    for (text++; *text != '\0'; text += strcspn(text, " "), text += *text == ' ') {
        char name[16] = "";
        int shift = 0, bits = 0, used = 0;
        if (sscanf(text, "%15[a-z0-9]<<%d|%i%n", name, &shift, &bits, &used) != 3 || used == 0) {
            table_error("class", text);
        }
        int cls = class_index(isa, name, strlen(name));
        if (cls < 0) {
            table_error("class", name);
        }
        for (int i = 0; i < CLASS_SIZE; i++) {
            if (isa->registers[cls][i] >= 0 && (i << shift | bits) < CLASS_SIZE &&
                out[i << shift | bits] < 0) {
                out[i << shift | bits] = isa->registers[cls][i];
            }
        }
    }
}

static void parse_operand(aie_isa *isa, aie_op *op, const char *text)
{
    int n = op->operands++;
    size_t kind = strcspn(text, ":");
    const char *field = text + kind + 1;
    op->operand[n].cls = class_index(isa, text, kind);
    op->operand[n].kind = op->operand[n].cls >= 0 ? 'r' : 'i';
    op->operand[n].step = 1;
    op->operand[n].same_as = -1;
    if (op->operand[n].kind == 'i') {
        op->operand[n].is_signed = *text == 'i' || *text == 'n';
        op->operand[n].below_zero = *text == 'n';
        op->operand[n].bits = atoi(text + 1);
        const char *step = memchr(text, '*', kind);
        op->operand[n].step = step != NULL ? atoi(step + 1) : 1;
        if (strchr("iun", *text) == NULL || op->operand[n].bits == 0) {
            table_error("operand", text);
        }
    }
    for (int used = 0; *field != '}'; field += used) {
        int start = 0, length = 0, i = op->operand[n].pieces++;
        if (sscanf(field, "%d.%d%n", &start, &length, &used) != 2 || i == 3) {
            table_error("field", text);
        }
        op->operand[n].start[i] = (uint8_t)start;
        op->operand[n].length[i] = (uint8_t)length;
        used += field[used] == '+';
    }
    for (int i = 0; i < n; i++) {
        if (op->operand[i].start[0] == op->operand[n].start[0]) {
            op->operand[n].same_as = i;
        }
    }
}

static void parse_rows(aie_isa *isa)
{
    for (size_t i = 0; i < isa->tables->row_count; i++) {
        const aie_row *row = &isa->tables->rows[i];
        aie_op *op = &isa->ops[isa->op_count];
        size_t length = strcspn(row->text, " ");
        if (isa->op_count == MAX_OPS || length >= sizeof op->mnemonic) {
            table_error("too large", row->text);
        }
        op->row = row;
        memcpy(op->mnemonic, row->text, length);
        for (const char *at = strchr(row->text, '{'); at != NULL; at = strchr(at + 1, '{')) {
            parse_operand(isa, op, at + 1);
        }
        if (isa->of_slot[row->slot].count++ == 0) {
            isa->of_slot[row->slot].first = isa->op_count;
        }
        isa->op_count++;
    }
}

static void parse_formats(aie_isa *isa)
{
    static const char *const names[AIE_SLOTS] = {"alu", "lda", "ldb", "lng", "mv", "st", "vec",
                                                 "nop16"};
    for (size_t i = 0; i < isa->tables->format_count; i++) {
        const char *text = isa->tables->formats[i].slots;
        for (int s = 0; s < AIE_SLOTS; s++) {
            isa->formats[i].start[s] = -1;
        }
        while (*text != '\0') {
            size_t length = strcspn(text, "@");
            int found = 0;
            for (int s = 0; s < AIE_SLOTS; s++) {
                if (strlen(names[s]) == length && memcmp(names[s], text, length) == 0) {
                    isa->formats[i].start[s] = atoi(text + length + 1);
                    found = 1;
                }
            }
            if (!found) {
                table_error("format", text);
            }
            text += strcspn(text, " ");
            text += *text == ' ';
        }
    }
}

static const aie_isa *parse(const aie_tables *tables)
{
    aie_isa *isa = calloc(1, sizeof *isa);
    if (isa == NULL) {
        abort();
    }
    isa->tables = tables;
    memset(isa->registers, -1, sizeof isa->registers);
    for (size_t i = 0; i < tables->class_count; i++) {
        const char *text = tables->classes[i].registers;
        (*text == '=' ? (void)union_class(isa, isa->registers[i], text)
                      : list_class(isa->registers[i], text));
    }
    parse_rows(isa);
    parse_formats(isa);
    return isa;
}

const aie_isa *aie2(void)
{
    static const aie_isa *isa;
    return isa != NULL ? isa : (isa = parse(&aie2_tables));
}

const aie_isa *aie2p(void)
{
    static const aie_isa *isa;
    return isa != NULL ? isa : (isa = parse(&aie2p_tables));
}

const aie_tables *aie_isa_tables(const aie_isa *isa)
{
    return isa->tables;
}

size_t aie_op_count(const aie_isa *isa)
{
    return isa->op_count;
}

const aie_op *aie_op_at(const aie_isa *isa, size_t index)
{
    return &isa->ops[index];
}

int aie_class_register(const aie_isa *isa, int cls, int encoding)
{
    for (int i = 0; i < CLASS_SIZE; i++) {
        int reg = isa->registers[cls][(encoding + i) % CLASS_SIZE];
        if (reg >= 0) {
            return reg;
        }
    }
    return -1;
}

/* ---------------------------------------------------------------- decode */

static uint64_t low_bits(int n)
{
    return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
}

static uint64_t get_bits(const uint64_t *word, int start, int length)
{
    uint64_t v = word[start / 64] >> start % 64;
    if (start / 64 == 0 && start + length > 64) {
        v |= word[1] << (64 - start);
    }
    return v & low_bits(length);
}

static void put_bits(uint64_t *word, int start, int length, uint64_t v)
{
    v &= low_bits(length);
    word[start / 64] |= v << start % 64;
    if (start / 64 == 0 && start + length > 64) {
        word[1] |= v >> (64 - start);
    }
}

static uint64_t field_of(const aie_op *op, int n, uint64_t bits)
{
    uint64_t v = 0;
    int at = 0;
    for (int i = 0; i < op->operand[n].pieces; i++) {
        v |= (bits >> op->operand[n].start[i] & low_bits(op->operand[n].length[i])) << at;
        at += op->operand[n].length[i];
    }
    return v;
}

static int field_bits(const aie_op *op, int n)
{
    int bits = 0;
    for (int i = 0; i < op->operand[n].pieces; i++) {
        bits += op->operand[n].length[i];
    }
    return bits;
}

static uint64_t operand_mask(const aie_op *op)
{
    uint64_t mask = 0;
    for (int n = 0; n < op->operands; n++) {
        for (int i = 0; i < op->operand[n].pieces; i++) {
            mask |= low_bits(op->operand[n].length[i]) << op->operand[n].start[i];
        }
    }
    return mask;
}

static int decode_slot(const aie_isa *isa, int slot, uint64_t bits, aie_inst *inst)
{
    size_t first = isa->of_slot[slot].first;
    for (size_t i = first; i < first + isa->of_slot[slot].count; i++) {
        const aie_op *op = &isa->ops[i];
        int fits = (bits & op->row->mask) == op->row->value;
        for (int n = 0; fits && n < op->operands; n++) {
            uint64_t v = field_of(op, n, bits);
            int width = field_bits(op, n);
            if (op->operand[n].kind == 'r') {
                int reg = isa->registers[op->operand[n].cls][v];
                fits = reg >= 0;
                inst->value[n] = reg;
            } else {
                int64_t s = (int64_t)v;
                if (op->operand[n].below_zero) {
                    s -= (int64_t)1 << width;
                } else if (op->operand[n].is_signed && (v >> (width - 1) & 1) != 0) {
                    s -= (int64_t)1 << width;
                }
                inst->value[n] = (int32_t)(s * op->operand[n].step);
            }
        }
        if (fits) {
            inst->op = op;
            inst->rest = bits & ~op->row->mask & ~operand_mask(op);
            return 1;
        }
    }
    return 0;
}

int aie_decode(const aie_isa *isa, const uint8_t *code, size_t left, aie_bundle *bundle)
{
    uint64_t word[2] = {0, 0};
    for (size_t i = 0; i < 16 && i < left; i++) {
        word[i / 8] |= (uint64_t)code[i] << i % 8 * 8;
    }
    for (size_t i = 0; i < isa->tables->format_count; i++) {
        const aie_format_row *f = &isa->tables->formats[i];
        if ((word[0] & f->mask[0]) != f->value[0] || (word[1] & f->mask[1]) != f->value[1] ||
            f->bytes > left) {
            continue;
        }
        memset(bundle, 0, sizeof *bundle);
        bundle->bytes = f->bytes;
        bundle->format = (int)i;
        for (int s = 0; s < AIE_SLOTS; s++) {
            int start = isa->formats[i].start[s];
            if (start >= 0 && !decode_slot(isa, s, get_bits(word, start, isa->tables->bits[s]),
                                           &bundle->slot[s])) {
                return 0;
            }
        }
        return bundle->bytes;
    }
    return 0;
}

/* ---------------------------------------------------------------- encode */

static int encode_operand(const aie_isa *isa, const aie_op *op, int n, int32_t value,
                          uint64_t *bits)
{
    int width = field_bits(op, n);
    int64_t v = value;
    if (op->operand[n].kind == 'r') {
        for (v = 0; v < CLASS_SIZE && v < (int64_t)1 << width; v++) {
            if (isa->registers[op->operand[n].cls][v] == value) {
                break;
            }
        }
        if (v == CLASS_SIZE || v == (int64_t)1 << width) {
            return 0;
        }
    } else {
        int64_t low = op->operand[n].is_signed ? -((int64_t)1 << (width - 1)) : 0;
        int64_t high = low + ((int64_t)1 << width);
        if (op->operand[n].below_zero) {
            low = -((int64_t)1 << width);
            high = 0;
        }
        if (v % op->operand[n].step != 0) {
            return 0;
        }
        v /= op->operand[n].step;
        if (v < low || v >= high) {
            return 0;
        }
    }
    for (int i = 0; i < op->operand[n].pieces; i++) {
        *bits |= ((uint64_t)v & low_bits(op->operand[n].length[i])) << op->operand[n].start[i];
        v >>= op->operand[n].length[i];
    }
    return 1;
}

int aie_encode(const aie_isa *isa, const aie_bundle *bundle, uint8_t *code)
{
    const aie_format_row *f = &isa->tables->formats[bundle->format];
    uint64_t word[2] = {f->value[0], f->value[1]};
    for (int s = 0; s < AIE_SLOTS; s++) {
        int start = isa->formats[bundle->format].start[s];
        const aie_inst *inst = &bundle->slot[s];
        if ((start >= 0) != (inst->op != NULL)) {
            return 0;
        }
        if (start < 0) {
            continue;
        }
        uint64_t bits = inst->op->row->value | inst->rest;
        for (int n = 0; n < inst->op->operands; n++) {
            int same = inst->op->operand[n].same_as;
            if ((same >= 0 && inst->value[n] != inst->value[same]) ||
                !encode_operand(isa, inst->op, n, inst->value[n], &bits)) {
                return 0;
            }
        }
        put_bits(word, start, isa->tables->bits[s], bits);
    }
    for (int i = 0; i < f->bytes; i++) {
        code[i] = (uint8_t)(word[i / 8] >> i % 8 * 8);
    }
    return f->bytes;
}

/* ---------------------------------------------------------------- print */

typedef struct {
    char *text;
    size_t size, length;
} printer;

static void out(printer *p, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++, p->length++) {
        if (p->length + 1 < p->size) {
            p->text[p->length] = text[i];
        }
    }
}

static void print_inst(printer *p, const aie_inst *inst)
{
    const char *at = inst->op->row->text;
    for (int n = 0; *at != '\0'; at++) {
        if (*at != '{') {
            out(p, at, 1);
            continue;
        }
        char text[24];
        size_t length = inst->op->operand[n].kind == 'r'
            ? aie_register_name(inst->value[n], text, sizeof text)
            : (size_t)snprintf(text, sizeof text, "#%ld", (long)inst->value[n]);
        out(p, text, length);
        at += strcspn(at, "}");
        n++;
    }
    if (inst->rest != 0) {
        char text[32];
        out(p, text, (size_t)snprintf(text, sizeof text, " !0x%llx",
                                      (unsigned long long)inst->rest));
    }
}

size_t aie_print(const aie_isa *isa, const aie_bundle *bundle, char *text, size_t size)
{
    static const aie_slot order[AIE_SLOTS] = {AIE_LDA, AIE_LDB, AIE_ST, AIE_ALU, AIE_LNG, AIE_MV,
                                              AIE_VEC, AIE_NOP16};
    printer p = {text, size, 0};
    (void)isa;
    for (int i = 0, n = 0; i < AIE_SLOTS; i++) {
        if (bundle->slot[order[i]].op != NULL) {
            if (n++ > 0) {
                out(&p, "; ", 2);
            }
            print_inst(&p, &bundle->slot[order[i]]);
        }
    }
    if (size > 0) {
        text[p.length < size ? p.length : size - 1] = '\0';
    }
    return p.length;
}
