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

enum { MOST_ROWS = 64, MOST_BYTES = 4096 };

/* The dimmed text as it is shown. */
static char shown[MOST_BYTES];
static int row_columns[MOST_ROWS];     /* columns that its rows occupy */
static int n_rows, shown_width;
static size_t n_plain;                 /* bytes at its beginning that are not dimmed */

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
static void clear_rows(int columns)
{
    int i, rows = 0;
    for (i = 0; i < n_rows; i++) {
        rows += row_columns[i] > columns ? (row_columns[i] + columns - 1) / columns : 1;
    }
    printf("\r\033[2K");
    for (; rows > 1; rows--) {
        printf("\033[A\033[2K");
    }
    n_rows = 0;
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
static int print_rows(const char *text, const char *dim, int columns, int first)
{
    int at = 0, dimmed = 0, row = *text != '\0';
    size_t n;
    for (n_rows = row > first; *text != '\0'; text += n) {
        n = word_of(text);
        n = columns_of(text, n) < columns ? n : step_of(text); /* too long: a character of it */
        if (at > 0 && at + columns_of(text, n) >= columns) {
            printf("%s", n_rows > 0 ? "\n" : "");
            row++;
            n_rows += row > first && n_rows < MOST_ROWS;
            at = 0;
            n -= *text == ' ';
            text += *text == ' ';
        }
        at += columns_of(text, n);
        if (n_rows > 0) {
            row_columns[n_rows - 1] = at;
            printf("%s%.*s", dim != NULL && text >= dim && !dimmed ? "\033[2m" : "", (int)n, text);
            dimmed |= dim != NULL && text >= dim;
        }
    }
    return row;
}

void terminal_print(const char *text)
{
    int rows;
    terminal_show("");
    if (isatty(1)) {
        (void)print_rows(text, NULL, size_of(&rows), 0);
        n_rows = 0;
        printf("\n");
    } else {
        printf("%s\n", text);
    }
}

void terminal_show(const char *text)
{
    terminal_show_behind(0, text);
}

void terminal_show_behind(size_t bytes, const char *text)
{
    int rows, columns = size_of(&rows), n;
    size_t cut;
    if (!isatty(1)) {
        return;
    }
    clear_rows(columns);
    if (text != shown) {
        cut = strlen(text) < sizeof shown ? 0 : strlen(text) - sizeof shown + 1;
        for (; (text[cut] & 0xc0) == 0x80; cut++) {
        }
        (void)snprintf(shown, sizeof shown, "%s", text + cut);
        n_plain = bytes > cut ? bytes - cut : 0;
    }
    shown_width = columns;
    rows = rows < MOST_ROWS ? rows : MOST_ROWS;
    n = print_rows(shown, shown + n_plain, columns, INT_MAX);
    (void)print_rows(shown, shown + n_plain, columns, n > rows ? n - rows : 0);
    printf("\033[0m");
}

void terminal_refresh(void)
{
    int rows;
    if (n_rows > 0 && size_of(&rows) != shown_width) {
        terminal_show_behind(n_plain, shown);
        (void)fflush(stdout);
    }
}

/* ---- what is typed ---- */

static struct termios before;

static void restore(void)
{
    if (tcgetpgrp(1) == getpgrp()) {
        (void)tcsetattr(1, TCSANOW, &before);
    }
}

void terminal_open(void)
{
    struct termios now;
    (void)setvbuf(stdout, NULL, _IOFBF, 4 * MOST_BYTES); /* text is replaced at once */
    if (!isatty(1) || tcgetpgrp(1) != getpgrp() || tcgetattr(1, &before) != 0) {
        return;
    }
    now = before;
    now.c_lflag &= (tcflag_t)~ECHO;
    if (atexit(restore) == 0) {
        (void)tcsetattr(1, TCSANOW, &now);
    }
}
