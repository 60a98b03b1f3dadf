/* assemble.c - text to bundles, and the rules that a program has to keep.
 *
 * One bundle to a line, its instructions separated by `;` in any order, written as in
 * Xilinx/llvm-aie: `vlda wl0, [p0], #32; vmac cm0, cm0, x0, x1, r0`. The shortest format that has
 * the slots is taken; slots that are not given hold their NOP. `label:` stands on its own line and is
 * used as `#label` in branches and `movxm`. `.align 16` begins a new 16-byte line: it makes the
 * bundles before it longer, back to the last label, before it adds NOPs. `.define NAME VALUE`
 * replaces a word by one or more others. Comments begin with `//`. */
#include "isa.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BUNDLES = 4096, MAX_LABELS = 256, MAX_DEFINES = 64, LINE = 640 };

typedef struct {
    aie_inst inst[AIE_SLOTS]; /* by slot */
    int bytes;                /* what it has been given, at least what it needs */
    int line;
    int label_before;         /* may not grow beyond here */
    int target[AIE_SLOTS];    /* label used by the instruction + 1, operand in target_operand */
    int target_operand[AIE_SLOTS];
} entry;

typedef struct {
    const aie_isa *isa;
    entry *entries;
    int count;
    struct { char name[48]; int entry; } labels[MAX_LABELS];
    int label_count;
    struct { char name[32], text[160]; } defines[MAX_DEFINES];
    int define_count;
    int line;
    char *error;
    size_t error_size;
    int failed;
    int wanted; /* label that the operand just parsed refers to, + 1 */
} assembler;

static void fail(assembler *a, const char *format, ...)
{
    if (!a->failed && a->error_size > 0) {
        va_list args;
        int n = snprintf(a->error, a->error_size, "line %d: ", a->line);
        va_start(args, format);
        if (n >= 0 && (size_t)n < a->error_size) {
            vsnprintf(a->error + n, a->error_size - (size_t)n, format, args);
        }
        va_end(args);
    }
    a->failed = 1;
}

static int is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static int label(assembler *a, const char *name, size_t length)
{
    for (int i = 0; i < a->label_count; i++) {
        if (strlen(a->labels[i].name) == length && memcmp(a->labels[i].name, name, length) == 0) {
            return i;
        }
    }
    if (a->label_count == MAX_LABELS || length >= sizeof a->labels->name) {
        fail(a, "too many labels, or one too long");
        return 0;
    }
    memcpy(a->labels[a->label_count].name, name, length);
    a->labels[a->label_count].name[length] = '\0';
    a->labels[a->label_count].entry = -1;
    return a->label_count++;
}

/* ---------------------------------------------------------------- instructions */

/* Matches one operand at `text`; returns the characters used, or 0. */
static size_t match_operand(assembler *a, const aie_op *op, int n, const char *text,
                            aie_inst *inst)
{
    size_t length = 0;
    if (op->operand[n].kind == 'r') {
        while (is_word(text[length])) {
            length++;
        }
        int reg = aie_register(text, length);
        inst->value[n] = reg;
        return reg >= 0 ? length : 0;
    }
    if (*text != '#') {
        return 0;
    }
    char *end = NULL;
    long long v = strtoll(text + 1, &end, 0);
    if (end != text + 1) {
        inst->value[n] = (int32_t)(uint32_t)v;
        return (size_t)(end - text);
    }
    for (length = 1; is_word(text[length]); length++) {
    }
    if (length == 1 || op->operand[n].bits < 20) {
        return 0;
    }
    a->wanted = label(a, text + 1, length - 1) + 1;
    inst->value[n] = 0;
    return length;
}

/* `inst` if the text is this instruction: its operands parse and can be encoded. */
static int match(assembler *a, const aie_op *op, const char *text, aie_inst *inst)
{
    const char *spec = op->row->text;
    int n = 0;
    memset(inst, 0, sizeof *inst);
    inst->op = op;
    a->wanted = 0;
    for (; *spec != '\0'; spec++) {
        if (*spec == ' ') {
            while (*text == ' ' || *text == '\t') {
                text++;
            }
        } else if (*spec == '{') {
            size_t used = match_operand(a, op, n, text, inst);
            if (used == 0) {
                return 0;
            }
            text += used;
            spec += strcspn(spec, "}");
            n++;
        } else if (*spec == *text) {
            text++;
        } else {
            return 0;
        }
    }
    while (*text == ' ' || *text == '\t') {
        text++;
    }
    if (text[0] == '!') {
        char *end = NULL;
        inst->rest = strtoull(text + 1, &end, 16);
        text = end;
    }
    return *text == '\0';
}

/* Whether the operands fit the fields of this row. */
static int encodable(assembler *a, const aie_inst *inst)
{
    const aie_tables *t = aie_isa_tables(a->isa);
    for (size_t f = 0; f < t->format_count; f++) {
        aie_bundle b;
        uint8_t code[16];
        memset(&b, 0, sizeof b);
        b.format = (int)f;
        b.slot[inst->op->row->slot] = *inst;
        if (aie_encode(a->isa, &b, code) > 0) {
            return 1; /* a format of this slot alone: every slot has one */
        }
    }
    return 0;
}

/* The no-operation of each slot. */
static const aie_op *nop_of(const aie_isa *isa, int slot)
{
    static const char *const names[AIE_SLOTS] = {"nopx", "nopa", "nopb", "nopxm", "nopm", "nops",
                                                 "nopv", "nop"};
    for (size_t i = 0; i < aie_op_count(isa); i++) {
        const aie_op *op = aie_op_at(isa, i);
        if (op->row->slot == slot && strcmp(op->mnemonic, names[slot]) == 0) {
            return op;
        }
    }
    return NULL;
}

static unsigned format_slots(const aie_isa *isa, int format)
{
    static const char *const names[AIE_SLOTS] = {"alu@", "lda@", "ldb@", "lng@", "mv@", "st@",
                                                 "vec@", "nop16@"};
    const char *text = aie_isa_tables(isa)->formats[format].slots;
    unsigned slots = 0;
    for (int s = 0; s < AIE_SLOTS; s++) {
        const char *at = strstr(text, names[s]);
        slots |= at != NULL ? 1u << s : 0u;
    }
    return slots;
}

/* A format of exactly `bytes` that has the slots (fewest more), or of the least bytes if 0. */
static int choose_format(const aie_isa *isa, unsigned slots, int bytes)
{
    const aie_tables *t = aie_isa_tables(isa);
    int best = -1, best_cost = 1 << 30;
    for (size_t f = 0; f < t->format_count; f++) {
        unsigned has = format_slots(isa, (int)f);
        int more = 0;
        for (unsigned rest = has & ~slots; rest != 0; rest &= rest - 1) {
            more++;
        }
        int cost = t->formats[f].bytes * 16 + more;
        if ((slots & ~has) == 0 && (bytes == 0 || bytes == t->formats[f].bytes) &&
            cost < best_cost) {
            best = (int)f;
            best_cost = cost;
        }
    }
    return best;
}

static unsigned entry_slots(const entry *e)
{
    unsigned slots = 0;
    for (int s = 0; s < AIE_SLOTS; s++) {
        slots |= e->inst[s].op != NULL ? 1u << s : 0u;
    }
    return slots;
}

typedef struct {
    char *text[AIE_SLOTS];
    int count;
} line_parts;

/* Gives each instruction of the line a slot, so that the bundle is shortest. */
static void place(assembler *a, const line_parts *line, int n, entry *now, entry *best)
{
    if (n == line->count) {
        int f = choose_format(a->isa, entry_slots(now), 0);
        if (f >= 0 && (best->bytes == 0 || aie_isa_tables(a->isa)->formats[f].bytes < best->bytes)) {
            *best = *now;
            best->bytes = aie_isa_tables(a->isa)->formats[f].bytes;
        }
        return;
    }
    for (size_t i = 0; i < aie_op_count(a->isa); i++) {
        const aie_op *op = aie_op_at(a->isa, i);
        size_t length = strlen(op->mnemonic);
        aie_inst inst;
        int slot = op->row->slot;
        if (strncmp(op->mnemonic, line->text[n], length) != 0 || is_word(line->text[n][length]) ||
            line->text[n][length] == '.' || now->inst[slot].op != NULL ||
            !match(a, op, line->text[n], &inst)) {
            continue;
        }
        int wanted = a->wanted;
        if (encodable(a, &inst)) {
            now->inst[slot] = inst;
            now->target[slot] = wanted;
            for (int k = 0; wanted != 0 && k < op->operands; k++) {
                if (op->operand[k].kind == 'i') {
                    now->target_operand[slot] = k;
                }
            }
            place(a, line, n + 1, now, best);
            now->inst[slot].op = NULL;
            now->target[slot] = 0;
        }
    }
}

static void bundle_line(assembler *a, char *text)
{
    line_parts line = {{NULL}, 0};
    for (char *at = text; at != NULL; ) {
        char *next = strchr(at, ';');
        if (next != NULL) {
            *next++ = '\0';
        }
        at += strspn(at, " \t");
        size_t length = strlen(at);
        while (length > 0 && (at[length - 1] == ' ' || at[length - 1] == '\t')) {
            at[--length] = '\0';
        }
        if (length == 0 || line.count == AIE_SLOTS) {
            fail(a, "no instruction between two semicolons, or too many");
            return;
        }
        line.text[line.count++] = at;
        at = next;
    }
    entry now, best;
    memset(&now, 0, sizeof now);
    memset(&best, 0, sizeof best);
    place(a, &line, 0, &now, &best);
    if (best.bytes == 0) {
        fail(a, "no bundle holds `%s`%s", line.text[0], line.count > 1 ? " and what is beside it"
                                                                        : "");
        return;
    }
    if (a->count == MAX_BUNDLES) {
        fail(a, "program too long");
        return;
    }
    best.line = a->line;
    a->entries[a->count++] = best;
}

/* ---------------------------------------------------------------- layout */

static int address(const assembler *a, int entry_index)
{
    int at = 0;
    for (int i = 0; i < entry_index; i++) {
        at += a->entries[i].bytes;
    }
    return at;
}

/* Makes bundles longer from the end back to the last label, until the next address is a multiple. */
static void align(assembler *a, int multiple)
{
    int missing = (multiple - address(a, a->count) % multiple) % multiple;
    int first = 0;
    for (int i = 0; i < a->label_count; i++) {
        if (a->labels[i].entry > first) {
            first = a->labels[i].entry;
        }
    }
    for (int i = a->count - 1; missing > 0 && i >= first; i--) {
        entry *e = &a->entries[i];
        for (int grow = missing; grow > 0; grow -= 2) {
            if (choose_format(a->isa, entry_slots(e), e->bytes + grow) >= 0) {
                e->bytes += grow;
                missing -= grow;
                break;
            }
        }
    }
    for (; missing > 0; missing -= 2) {
        char nop[] = "nop";
        bundle_line(a, nop);
    }
}

/* ---------------------------------------------------------------- lines */

/* Replaces defined words. */
static void expand(assembler *a, const char *in, char *outp, size_t room)
{
    size_t n = 0;
    while (*in != '\0' && n + 1 < room) {
        size_t length = 0;
        while (is_word(in[length])) {
            length++;
        }
        const char *text = in;
        size_t take = length > 0 ? length : 1, size = take;
        for (int i = 0; length > 0 && i < a->define_count; i++) {
            if (strlen(a->defines[i].name) == length &&
                memcmp(a->defines[i].name, in, length) == 0) {
                text = a->defines[i].text;
                size = strlen(text);
            }
        }
        if (n + size + 1 > room) {
            fail(a, "line too long");
            break;
        }
        memcpy(outp + n, text, size);
        n += size;
        in += take;
    }
    outp[n] = '\0';
}

static void directive(assembler *a, const char *text)
{
    int multiple = 0;
    if (sscanf(text, ".align %d", &multiple) == 1 && multiple > 0 && multiple % 2 == 0) {
        align(a, multiple);
    } else if (strncmp(text, ".define ", 8) == 0 && a->define_count < MAX_DEFINES) {
        const char *name = text + 8 + strspn(text + 8, " ");
        size_t length = strcspn(name, " ");
        if (length == 0 || length >= sizeof a->defines->name ||
            strlen(name + length) >= sizeof a->defines->text) {
            fail(a, "definition too long");
            return;
        }
        memcpy(a->defines[a->define_count].name, name, length);
        snprintf(a->defines[a->define_count].text, sizeof a->defines->text, "%s",
                 name + length + strspn(name + length, " "));
        a->define_count++;
    } else {
        fail(a, "unknown directive `%s`", text);
    }
}

static void one_line(assembler *a, const char *text, size_t length)
{
    char raw[LINE], line[LINE];
    if (length >= sizeof raw) {
        fail(a, "line too long");
        return;
    }
    memcpy(raw, text, length);
    raw[length] = '\0';
    char *comment = strstr(raw, "//");
    if (comment != NULL) {
        *comment = '\0';
    }
    length = strlen(raw);
    while (length > 0 && strchr(" \t\r", raw[length - 1]) != NULL) {
        raw[--length] = '\0';
    }
    const char *start = raw + strspn(raw, " \t");
    if (*start == '\0') {
        return;
    }
    if (*start == '.') {
        directive(a, start);
        return;
    }
    size_t n = strlen(start);
    if (start[n - 1] == ':') {
        int l = label(a, start, n - 1);
        if (a->labels[l].entry >= 0) {
            fail(a, "label `%s` is there twice", a->labels[l].name);
        }
        a->labels[l].entry = a->count;
        return;
    }
    expand(a, start, line, sizeof line);
    bundle_line(a, line);
}

static long emit(assembler *a, uint8_t *code, size_t room)
{
    size_t at = 0;
    for (int i = 0; i < a->count && !a->failed; i++) {
        entry *e = &a->entries[i];
        aie_bundle b;
        uint8_t bytes[16];
        memset(&b, 0, sizeof b);
        a->line = e->line;
        b.format = choose_format(a->isa, entry_slots(e), e->bytes);
        unsigned slots = format_slots(a->isa, b.format);
        for (int s = 0; s < AIE_SLOTS; s++) {
            b.slot[s] = e->inst[s];
            if (b.slot[s].op == NULL && (slots & 1u << s) != 0) {
                b.slot[s].op = nop_of(a->isa, s);
            } else if (e->target[s] != 0) {
                int l = e->target[s] - 1;
                if (a->labels[l].entry < 0) {
                    fail(a, "label `%s` is nowhere", a->labels[l].name);
                    return -1;
                }
                b.slot[s].value[e->target_operand[s]] = address(a, a->labels[l].entry);
            }
        }
        int n = aie_encode(a->isa, &b, bytes);
        if (n == 0 || at + (size_t)n > room) {
            fail(a, n == 0 ? "cannot be encoded" : "program longer than its memory");
            return -1;
        }
        memcpy(code + at, bytes, (size_t)n);
        at += (size_t)n;
    }
    return a->failed ? -1 : (long)at;
}

long aie_assemble(const aie_isa *isa, const char *text, uint8_t *code, size_t room, char *error,
                  size_t error_size)
{
    assembler *a = calloc(1, sizeof *a);
    long size = -1;
    if (a != NULL && (a->entries = calloc(MAX_BUNDLES, sizeof *a->entries)) != NULL) {
        a->isa = isa;
        a->error = error;
        a->error_size = error_size;
        while (*text != '\0' && !a->failed) {
            size_t length = strcspn(text, "\n");
            a->line++;
            one_line(a, text, length);
            text += length + (text[length] == '\n');
        }
        size = a->failed ? -1 : emit(a, code, room);
    }
    if (a != NULL) {
        free(a->entries);
    }
    free(a);
    return size;
}

/* ---------------------------------------------------------------- rules */

int aie_is_lock(const aie_op *op)
{
    return strncmp(op->mnemonic, "acq", 3) == 0 || strncmp(op->mnemonic, "rel", 3) == 0;
}

int aie_is_branch(const aie_op *op)
{
    static const char *const names[] = {"j", "jl", "jnz", "jz", "jnzd", "ret"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(op->mnemonic, names[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

static int is_nop(const aie_bundle *b)
{
    for (int s = 0; s < AIE_SLOTS; s++) {
        if (b->slot[s].op != NULL && strncmp(b->slot[s].op->mnemonic, "nop", 3) != 0) {
            return 0;
        }
    }
    return 1;
}

static void broken(char *error, size_t size, int *rules, int rule, size_t at, const char *why)
{
    if (*rules == 0 && size > 0) {
        snprintf(error, size, "0x%zx: %s", at, why);
    }
    *rules |= rule;
}

/* Nothing but NOPs from the beginning of its 16-byte line to `target`. A bundle that reaches into the
 * line from before counts as what it is. */
static int target_ok(const aie_isa *isa, const uint8_t *code, size_t size, size_t target)
{
    aie_bundle b;
    if (target >= size) {
        return 1; /* in another block */
    }
    for (size_t at = 0; at < target; ) {
        int n = aie_decode(isa, code + at, size - at, &b);
        if (n == 0) {
            return 0;
        }
        if (at + (size_t)n > target / 16 * 16 && !is_nop(&b)) {
            return 0;
        }
        at += (size_t)n;
    }
    return 1;
}

int aie_check_rules(const aie_isa *isa, const uint8_t *code, size_t size, char *error,
                    size_t error_size)
{
    int rules = 0, since_lock = AIE_LOCK_SPACING, delay = 0;
    for (size_t at = 0; at < size; ) {
        aie_bundle b;
        int n = aie_decode(isa, code + at, size - at, &b), lock = 0, branch = 0, done = 0;
        if (n == 0) {
            break;
        }
        for (int s = 0; s < AIE_SLOTS; s++) {
            const aie_op *op = b.slot[s].op;
            if (op == NULL) {
                continue;
            }
            lock |= aie_is_lock(op);
            done |= strcmp(op->mnemonic, "done") == 0;
            if (aie_is_branch(op)) {
                branch = 1;
                for (int k = 0; k < op->operands; k++) {
                    if (op->operand[k].kind == 'i' &&
                        !target_ok(isa, code, size, (size_t)b.slot[s].value[k])) {
                        broken(error, error_size, &rules, AIE_RULE_TARGET, at,
                               "the branch's target does not begin a line of 16 bytes");
                    }
                }
            }
        }
        if (delay > 0 && (lock || branch || done)) {
            broken(error, error_size, &rules, AIE_RULE_DELAY, at,
                   "lock request, branch or DONE in a delay slot");
        }
        if (lock && since_lock < AIE_LOCK_SPACING) {
            broken(error, error_size, &rules, AIE_RULE_LOCKS, at,
                   "fewer than four bundles since the last lock request");
        }
        since_lock = lock ? 1 : since_lock + 1;
        delay = branch ? AIE_DELAY_SLOTS : delay - (delay > 0);
        at += (size_t)n;
    }
    return rules;
}
