/*
 * args.c - see args.h.
 */
#define _XOPEN_SOURCE 700

#include "args.h"
#include "output.h"
#include "platform.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMN 28 /* of the meanings */
#define WIDTH 90
#define FIRST 256 /* what getopt_long() returns for the first row; the letters are before */

__attribute__((format(printf, 2, 3)))
static int complain(const args_table *table, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)output_complain(table->program, 1, format, args);
    va_end(args);
    return 1;
}

static void store(const args_row *row, void *to, long number)
{
    int small = (int)number;
    memcpy((char *)to + row->at, row->size == sizeof small ? (void *)&small : (void *)&number,
           row->size);
}

void args_init(const args_table *table, void *to)
{
    size_t i;
    for (i = 0; i < table->n_rows; i++) {
        const args_row *row = &table->rows[i];
        if (row->type == ARGS_NUMBER && row->start >= row->low) {
            store(row, to, row->start);
        }
    }
}

/* ---- the command line ---- */

static int take(const args_table *table, const args_row *row, void *to, char *value)
{
    static const int on = 1;
    char *end, *field = (char *)to + row->at;
    long n;
    switch (row->type) {
    case ARGS_FLAG: memcpy(field, &on, sizeof on); return 0;
    case ARGS_TEXT: memcpy(field, &value, sizeof value); return 0;
    case ARGS_NUMBER:
        errno = 0;
        n = strtol(value, &end, 10);
        if (end == value || *end != '\0' || errno != 0 || n < row->low || n > row->high) {
            return complain(table, "--%s: must be %ld to %ld, not \"%s\"; see --help", row->name,
                            row->low, row->high, value);
        }
        store(row, to, n);
        return 0;
    default: return row->take != NULL ? row->take(to, value) : table->take(to, row, value);
    }
}

/* The row that getopt_long() found, by letter or number; NULL if none. */
static const args_row *find(const args_table *table, int found)
{
    size_t i = found >= FIRST ? (size_t)(found - FIRST) : 0;
    while (found < FIRST && i < table->n_rows && table->rows[i].letter != found) {
        i++;
    }
    return i < table->n_rows ? &table->rows[i] : NULL;
}

int args_parse(const args_table *table, void *to, int argc, char **argv)
{
    struct option known[ARGS_MOST + 1];
    char letters[2 * ARGS_MOST + 2] = ":"; /* a missing value is reported as such */
    size_t i, used = 1;
    int found, status = table->n_rows <= ARGS_MOST ? 0 : complain(table, "too many rows");
    memset(known, 0, sizeof known);
    for (i = 0; i < table->n_rows && status == 0; i++) {
        const args_row *row = &table->rows[i];
        known[i].name = row->name;
        known[i].has_arg = row->value != NULL ? required_argument : no_argument;
        known[i].val = FIRST + (int)i;
        if (row->letter != 0) {
            letters[used++] = row->letter;
            letters[used] = ':';
            used += row->value != NULL;
        }
    }
    letters[used] = '\0';
    opterr = 0; /* its messages would contain options as they are */
    while (status == 0 && (found = getopt_long(argc, argv, letters, known, NULL)) != -1) {
        const args_row *row = find(table, found);
        status = row != NULL ? take(table, row, to, optarg)
                             : complain(table, "%s: %s; see --help", argv[optind - 1], found == ':'
                                        ? "the value is missing" : "no such option");
    }
    return status;
}

/* ---- help ---- */

void args_wrap(const char *text, size_t at)
{
    size_t used;
    if (at + 1 > COLUMN) {
        putchar('\n');
        at = 0;
    }
    printf("%*s", (int)(COLUMN - at), "");
    for (used = COLUMN; *text != '\0';) {
        size_t word = strcspn(text, " ");
        if (used > COLUMN && used + 1 + word > WIDTH) {
            printf("\n%*s", COLUMN, "");
            used = COLUMN;
        } else if (used > COLUMN) {
            putchar(' ');
            used++;
        }
        printf("%.*s", (int)word, text);
        used += word;
        text += word + (text[word] == ' ');
    }
    putchar('\n');
}

void args_help(const args_table *table)
{
    size_t i;
    for (i = 0; i < table->n_rows; i++) {
        const args_row *row = &table->rows[i];
        char text[1024], range[64] = "", start[32];
        int used = printf("  %c%c%c --%s%s%s", row->letter != 0 ? '-' : ' ',
                          row->letter != 0 ? row->letter : ' ', row->letter != 0 ? ',' : ' ',
                          row->name, row->value != NULL ? " " : "",
                          row->value != NULL ? row->value : "");
        const char *otherwise = row->otherwise;
        if (row->type == ARGS_NUMBER) {
            (void)snprintf(range, sizeof range, ", %ld to %ld", row->low, row->high);
            (void)snprintf(start, sizeof start, "%ld", row->start);
            otherwise = row->start >= row->low ? start : otherwise;
        }
        (void)snprintf(text, sizeof text, "%s%s%s%s%s", row->meaning, range,
                       otherwise != NULL ? " [" : "", otherwise != NULL ? otherwise : "",
                       otherwise != NULL ? "]" : "");
        args_wrap(text, used > 0 ? (size_t)used : 0);
    }
}
