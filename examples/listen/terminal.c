/*
 * terminal.c - see terminal.h. Rows are divided here, so that their number is known, whatever the
 * terminal does with long lines; characters that may be wide count as two columns.
 */
#define _DEFAULT_SOURCE /* TIOCGWINSZ */
#define _XOPEN_SOURCE 700
#include "terminal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static int columns_of(const char *text, size_t n)
{
    int columns = 0;
    for (; n > 0; text++, n--) {
        unsigned char c = (unsigned char)*text;
        columns += (c & 0xc0) == 0x80 ? 0 : c >= 0xe3 ? 2 : 1;
    }
    return columns;
}

/* Removes the dimmed text. A terminal that became narrower has divided its rows again. */
static void clear_rows(terminal *t, int columns)
{
    int i, rows = 0;
    for (i = 0; i < t->n_rows; i++) {
        rows += t->row_columns[i] > columns ? (t->row_columns[i] + columns - 1) / columns : 1;
    }
    printf("\r\033[2K");
    for (; rows > 1; rows--) {
        printf("\033[A\033[2K");
    }
    t->n_rows = 0;
}

/* Columns and rows of the terminal. */
static int size_of(int *rows)
{
    struct winsize size;
    int known = ioctl(1, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    *rows = known && size.ws_row > 2 ? size.ws_row : 24;
    return known ? size.ws_col : 80;
}

/* Bytes up to the next character. */
static size_t step_of(const char *text)
{
    size_t n = 1;
    while ((text[n] & 0xc0) == 0x80) {
        n++;
    }
    return n;
}

/* Bytes of a word with the space before it. Characters of East Asia are words. */
static size_t word_of(const char *text)
{
    size_t n = step_of(text);
    while ((unsigned char)text[0] < 0xe3 && text[n] != ' ' && text[n] != '\0' &&
           (unsigned char)text[n] < 0xe3) {
        n += step_of(text + n);
    }
    return n;
}

/* Divides text into rows with fewer than `columns` columns, if characters are narrower, and prints
 * those from number `first` on, dimmed from `dim` on. What they occupy is noted in row_columns.
 * Returns the number of all rows. */
static int print_rows(terminal *t, const char *text, const char *dim, int columns, int first)
{
    int at = 0, dimmed = 0, row = *text != '\0';
    size_t n;
    for (t->n_rows = row > first; *text != '\0'; text += n) {
        n = word_of(text);
        n = columns_of(text, n) < columns ? n : step_of(text); /* too long: a character of it */
        if (at > 0 && at + columns_of(text, n) >= columns) {
            printf("%s", t->n_rows > 0 ? "\n" : "");
            row++;
            t->n_rows += row > first && t->n_rows < TERMINAL_ROWS;
            at = 0;
            n -= *text == ' ';
            text += *text == ' ';
        }
        at += columns_of(text, n);
        if (t->n_rows > 0) {
            t->row_columns[t->n_rows - 1] = at;
            printf("%s%.*s", dim != NULL && text >= dim && !dimmed ? "\033[2m" : "", (int)n, text);
            dimmed |= dim != NULL && text >= dim;
        }
    }
    return row;
}

void terminal_print(terminal *t, const char *text)
{
    int rows;
    terminal_show(t, "");
    if (isatty(1)) {
        (void)print_rows(t, text, NULL, size_of(&rows), 0);
        t->n_rows = 0;
        printf("\n");
    } else {
        printf("%s\n", text);
    }
}

void terminal_show(terminal *t, const char *text)
{
    terminal_show_behind(t, 0, text);
}

void terminal_show_behind(terminal *t, size_t bytes, const char *text)
{
    int rows, columns = size_of(&rows), n;
    size_t cut;
    if (!isatty(1)) {
        return;
    }
    clear_rows(t, columns);
    if (text != t->shown) {
        cut = strlen(text) < sizeof t->shown ? 0 : strlen(text) - sizeof t->shown + 1;
        for (; (text[cut] & 0xc0) == 0x80; cut++) {
        }
        (void)snprintf(t->shown, sizeof t->shown, "%s", text + cut);
        t->n_plain = bytes > cut ? bytes - cut : 0;
    }
    t->width = columns;
    rows = rows < TERMINAL_ROWS ? rows : TERMINAL_ROWS;
    n = print_rows(t, t->shown, t->shown + t->n_plain, columns, INT_MAX);
    (void)print_rows(t, t->shown, t->shown + t->n_plain, columns, n > rows ? n - rows : 0);
    printf("\033[0m");
}

void terminal_refresh(terminal *t)
{
    int rows;
    if (t->n_rows > 0 && size_of(&rows) != t->width) {
        terminal_show_behind(t, t->n_plain, t->shown);
        (void)fflush(stdout);
    }
}

/* ---- what is typed ---- */

static struct termios before;      /* of the file, because exit() passes nothing to restore() */

static void restore(void)
{
    if (tcgetpgrp(1) == getpgrp()) {
        (void)tcsetattr(1, TCSANOW, &before);
    }
}

void terminal_open(void)
{
    struct termios now;
    (void)setvbuf(stdout, NULL, _IOFBF, 4 * TERMINAL_BYTES); /* text is replaced at once */
    if (!isatty(1) || tcgetpgrp(1) != getpgrp() || tcgetattr(1, &before) != 0) {
        return;
    }
    now = before;
    now.c_lflag &= (tcflag_t)~ECHO;
    if (atexit(restore) == 0) {
        (void)tcsetattr(1, TCSANOW, &now);
    }
}
