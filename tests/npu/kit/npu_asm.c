/* npu_asm.c - assembler and disassembler of AIE2 and AIE2P cores.
 *
 * usage: npu_asm [--aie2p] assemble FILE.s OUT.bin     program memory of one core
 *        npu_asm [--aie2p] disassemble FILE            a program, or each core of a PDI or xclbin
 *        npu_asm [--aie2p] check FILE...               disassemble and assemble again: same bytes?
 *        npu_asm [--aie2p] cdo FILE                    the commands of a PDI or xclbin */
#include "cdo.h"
#include "isa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const aie_isa *isa;
    const char *file;
    int print;                             /* show it */
    long bundles, unknown, differ, loose;  /* loose: bits set that mean nothing */
    int programs, rules;
} checker;

static uint8_t *read_file(const char *name, size_t *size)
{
    FILE *f = fopen(name, "rb");
    uint8_t *bytes = NULL;
    *size = 0;
    if (f != NULL && fseek(f, 0, SEEK_END) == 0) {
        long n = ftell(f);
        rewind(f);
        bytes = n >= 0 ? malloc((size_t)n + 1) : NULL;
        if (bytes != NULL) {
            *size = fread(bytes, 1, (size_t)n, f);
            bytes[*size] = 0;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    if (bytes == NULL) {
        fprintf(stderr, "npu_asm: cannot read %s\n", name);
    }
    return bytes;
}

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
static void check_program(checker *c, const uint8_t *code, size_t size)
{
    char error[160] = "";
    c->programs++;
    for (size_t at = 0; at + 4 <= size && !only_zeros(code + at, size - at); ) {
        aie_bundle b;
        char text[640];
        uint8_t again[16] = {0};
        int n = aie_decode(c->isa, code + at, size - at, &b);
        if (n == 0) {
            c->unknown++;
            if (c->print || c->unknown == 1) {
                printf("%s: 0x%zx: unknown bundle", c->file, at);
                for (size_t i = 0; i < 16 && at + i < size; i++) {
                    printf(" %02x", code[at + i]);
                }
                printf("\n");
            }
            return;
        }
        aie_print(c->isa, &b, text, sizeof text);
        if (c->print) {
            printf("%5zx: %s\n", at, text);
        }
        long m = aie_assemble(c->isa, text, again, sizeof again, error, sizeof error);
        if (m != n || memcmp(again, code + at, (size_t)n) != 0) {
            if (c->differ++ == 0) {
                printf("%s: 0x%zx: `%s` assembles to other bytes (%ld of %d) %s\n", c->file, at,
                       text, m, n, error);
            }
        }
        for (int s = 0; s < AIE_SLOTS; s++) {
            c->loose += b.slot[s].op != NULL && b.slot[s].rest != 0;
        }
        c->bundles++;
        at += (size_t)n;
    }
    c->rules |= aie_check_rules(c->isa, code, size, error, sizeof error);
}

static int check_command(void *self, const cdo_command *command)
{
    checker *c = self;
    uint64_t offset = command->address & 0xfffff, row = command->address >> 20 & 31;
    if (command->opcode == CDO_BLOCK && row >= 2 && offset == 0x20000) {
        if (c->print) {
            printf("column %d row %d:\n", (int)(command->address >> 25 & 127), (int)row);
        }
        check_program(c, command->data, (size_t)command->words * 4);
    }
    return 0;
}

static int print_command(void *self, const cdo_command *c)
{
    (void)self;
    printf("%03x c%d r%d %05x mask %08x value %08x words %u", (unsigned)c->opcode,
           (int)(c->address >> 25 & 127), (int)(c->address >> 20 & 31),
           (unsigned)(c->address & 0xfffff), (unsigned)c->mask, (unsigned)c->value,
           (unsigned)c->words);
    for (uint32_t i = 0; i < c->words * 4 && i < 32; i += 4) {
        printf("%s%02x%02x%02x%02x", i == 0 ? ": " : " ", c->data[i + 3], c->data[i + 2],
               c->data[i + 1], c->data[i]);
    }
    printf("\n");
    return 0;
}

static int on_file(checker *c, const char *name, cdo_visit visit)
{
    size_t size = 0, cdo_size = 0;
    uint8_t *bytes = read_file(name, &size);
    if (bytes == NULL) {
        return 1;
    }
    c->file = name;
    const uint8_t *cdo = cdo_find(bytes, size, &cdo_size);
    int bad = 0;
    if (cdo != NULL) {
        bad = cdo_walk(cdo, cdo_size, visit, c) != 0;
        if (bad) {
            printf("%s: malformed CDO\n", name);
        }
    } else {
        check_program(c, bytes, size);
    }
    free(bytes);
    return bad;
}

static int assemble(const aie_isa *isa, const char *from, const char *to)
{
    static uint8_t code[16384];
    char error[200];
    size_t size = 0;
    uint8_t *text = read_file(from, &size);
    long n = text != NULL ? aie_assemble(isa, (char *)text, code, sizeof code, error, sizeof error)
                          : -1;
    if (text != NULL && n < 0) {
        fprintf(stderr, "%s: %s\n", from, error);
    } else if (n >= 0 && aie_check_rules(isa, code, (size_t)n, error, sizeof error) != 0) {
        fprintf(stderr, "%s: %s\n", from, error);
        n = -1;
    }
    free(text);
    FILE *f = n >= 0 ? fopen(to, "wb") : NULL;
    int ok = f != NULL && fwrite(code, 1, (size_t)n, f) == (size_t)n;
    return (f != NULL && fclose(f) != 0) || !ok;
}

int main(int argc, char **argv)
{
    checker c = {aie2(), "", 0, 0, 0, 0, 0, 0, 0};
    int bad = 0;
    if (argc > 1 && strcmp(argv[1], "--aie2p") == 0) {
        c.isa = aie2p();
        argv++;
        argc--;
    }
    if (argc == 4 && strcmp(argv[1], "assemble") == 0) {
        return assemble(c.isa, argv[2], argv[3]);
    }
    if (argc < 3) {
        fprintf(stderr, "usage: npu_asm [--aie2p] assemble FILE.s OUT | disassemble FILE | "
                        "check FILE... | cdo FILE\n");
        return 2;
    }
    c.print = strcmp(argv[1], "disassemble") == 0;
    for (int i = 2; i < argc; i++) {
        bad |= on_file(&c, argv[i], strcmp(argv[1], "cdo") == 0 ? print_command : check_command);
    }
    if (strcmp(argv[1], "check") == 0) {
        printf("%d programs, %ld bundles, %ld unknown, %ld differ, %ld with bits that mean nothing,"
               " rules broken: %x\n", c.programs, c.bundles, c.unknown, c.differ, c.loose,
               (unsigned)c.rules);
    }
    return bad || c.unknown > 0 || c.differ > 0;
}
