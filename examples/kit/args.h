/*
 * args.h - the options of a program as a table: what reads the command line, sets defaults and
 * prints the help is one row for each option.
 */
#ifndef ARGS_H
#define ARGS_H

#include <stddef.h>

#define ARGS_MOST 160 /* rows of a table */
#define ARGS_END (-1) /* the program is to end with status 0, after --help */

typedef enum args_type {
    ARGS_TAKE,                /* take() of the row is told, or that of the table */
    ARGS_FLAG,                /* no value: the int at `at` becomes 1 */
    ARGS_NUMBER,              /* a whole number from low to high, for the long or int at `at` */
    ARGS_TEXT                 /* a string, for the const char * at `at` */
} args_type;

/* Members of a row for a field of a structure. */
#define ARGS_FLAG_AT(structure, field) .type = ARGS_FLAG, .at = offsetof(structure, field)
#define ARGS_TEXT_AT(structure, field) .type = ARGS_TEXT, .at = offsetof(structure, field)
#define ARGS_NUMBER_AT(structure, field, least, most) \
    .type = ARGS_NUMBER, .at = offsetof(structure, field), .low = least, .high = most, \
    .size = sizeof ((structure *)0)->field

typedef struct args_row {
    const char *name;         /* without "--" */
    char letter;              /* short form, or 0 */
    const char *value;        /* what the help calls its value; NULL: it has none */
    args_type type;
    size_t at;                /* of a field in the program's structure */
    size_t size;              /* of a number there */
    long low, high;
    long start;               /* number without the option; less than low: `otherwise` says */
    const char *otherwise;    /* what holds without the option, in words; NULL: not told */
    const char *meaning;
    /* Returns 0, ARGS_END or, after a message, an exit status. value is NULL if there is none. */
    int (*take)(void *to, char *value);
} args_row;

typedef struct args_table {
    const char *program;      /* begins its messages */
    const args_row *rows;
    size_t n_rows;
    /* Takes ARGS_TAKE options whose row has no take(); the same results. NULL: there are none. */
    int (*take)(void *to, const args_row *row, char *value);
} args_table;

/* Sets the numbers of *to that have a start. */
void args_init(const args_table *table, void *to);
/* Reads options into *to; argv[optind] is then the first argument that is none. Returns 0, ARGS_END
 * or, after a message, an exit status: 1, or that of take(). */
int args_parse(const args_table *table, void *to, int argc, char **argv);
/* Prints all options to standard output. */
void args_help(const args_table *table);
/* Prints text in lines of at most 90 columns that begin at column 28; `at` columns of the first one
 * are used. */
void args_wrap(const char *text, size_t at);

#endif
