/* make_code.c - assembles the matrix products of matmul.c and the programs of rungs.c and prints them
 * as the C arrays of section 7 of npu_amdxdna.c. With a file's name: replaces the lines between its
 * marks "begin of code" and "end of code" instead (make npu-code). test_npu_kernel compares the arrays with what is assembled. */
#include "kit/isa.h"
#include "matmul.h"
#include "rungs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char source[1 << 17];
static uint8_t code[16384];

static int print_array(FILE *out, const char *name, const aie_isa *isa, size_t length)
{
    char error[200] = "";
    memset(code, 0, sizeof code);
    long n = length < sizeof source ? aie_assemble(isa, source, code, sizeof code, error,
                                                   sizeof error) : 0;
    if (n <= 0 || aie_check_rules(isa, code, (size_t)n, error, sizeof error) != 0) {
        fprintf(stderr, "make_code: %s: %s\n", name, error);
        return -1;
    }
    size_t words = ((size_t)n + 3) / 4;
    fprintf(out, "static const uint32_t %s[%zu] = {", name, words);
    for (size_t i = 0; i < words; i++) {
        const uint8_t *p = code + 4 * i;
        fprintf(out, "%s0x%08lx%s", i % 8 == 0 ? "\n    " : " ",
                (unsigned long)p[0] | (unsigned long)p[1] << 8 | (unsigned long)p[2] << 16 |
                    (unsigned long)p[3] << 24, i + 1 < words ? "," : "");
    }
    fprintf(out, "\n};\n");
    return 0;
}

static int print_arrays(FILE *out)
{
    return print_array(out, "xo_code_aie2", aie2(), matmul_source_aie2(source, sizeof source)) != 0 ||
           print_array(out, "xo_code_aie2p", aie2p(),
                       matmul_source_aie2p(source, sizeof source)) != 0 ||
           print_array(out, "xo_locks_aie2", aie2(), rung_source(1, source, sizeof source)) != 0 ||
           print_array(out, "xo_locks_aie2p", aie2p(), rung_source(1, source, sizeof source)) != 0 ||
           print_array(out, "xo_scalar_aie2", aie2(), rung_source(2, source, sizeof source)) != 0 ||
           print_array(out, "xo_scalar_aie2p", aie2p(), rung_source(2, source, sizeof source)) != 0
               ? -1 : 0;
}

/* Copies a file to another one with the arrays between the marks. */
static int replace(FILE *in, FILE *out)
{
    char line[512];
    int inside = 0, found = 0, bad = 0;
    while (fgets(line, sizeof line, in) != NULL) {
        inside = inside && strstr(line, "end of code") == NULL;
        if (!inside) {
            bad |= fputs(line, out) == EOF;
        }
        if (strstr(line, "begin of code") != NULL) {
            inside = found = 1;
            bad |= print_arrays(out) != 0;
        }
    }
    return found && !inside && !bad ? 0 : -1;
}

int main(int argc, char **argv)
{
    char name[512];
    if (argc < 2) {
        return print_arrays(stdout) != 0;
    }
    if (snprintf(name, sizeof name, "%s.new", argv[1]) >= (int)sizeof name) {
        return 2;
    }
    FILE *in = fopen(argv[1], "r"), *out = in != NULL ? fopen(name, "w") : NULL;
    if (out == NULL) {
        fprintf(stderr, "make_code: cannot open %s\n", argv[1]);
        return 2;
    }
    int bad = replace(in, out);
    fclose(in);
    bad = fclose(out) != 0 || bad != 0;
    if (bad || rename(name, argv[1]) != 0) {
        fprintf(stderr, "make_code: %s is unchanged\n", argv[1]);
        remove(name);
        return 1;
    }
    return 0;
}
