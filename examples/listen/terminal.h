/*
 * terminal.h - lines of text, and text behind them that is replaced when it changes. On a terminal
 * rows end between words.
 */
#ifndef TERMINAL_H
#define TERMINAL_H

#include <stddef.h>

enum { TERMINAL_ROWS = 64, TERMINAL_BYTES = 4096 };

/* What standard output shows; zeros are a terminal without dimmed text. */
typedef struct terminal {
    char shown[TERMINAL_BYTES];        /* the dimmed text */
    int row_columns[TERMINAL_ROWS];    /* columns that its rows occupy */
    int n_rows, width;
    size_t n_plain;                    /* bytes at its beginning that are not dimmed */
} terminal;

/* To be called before anything is printed. What is printed appears when standard output is flushed.
 * Until the program exits, a terminal in the foreground does not show what is typed: ^C and keys
 * would stand in the text. */
void terminal_open(void);
/* Prints a line. The dimmed text is removed before. */
void terminal_print(terminal *t, const char *text);
/* Replaces the dimmed text at the cursor; if it has more rows than the terminal, its end is shown.
 * Nothing happens if standard output is not a terminal. */
void terminal_show(terminal *t, const char *text);
/* The same, with the first bytes of the text not dimmed; they end with a word. */
void terminal_show_behind(terminal *t, size_t bytes, const char *text);
/* To be called now and then: shows the dimmed text again when the terminal's width has changed. */
void terminal_refresh(terminal *t);

#endif
