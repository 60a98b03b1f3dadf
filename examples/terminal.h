/*
 * terminal.h - lines of text, and text behind them that is replaced when it changes. On a terminal
 * rows end between words.
 */
#ifndef TERMINAL_H
#define TERMINAL_H

/* Prints a line. The dimmed text is removed before. */
void terminal_print(const char *text);
/* Replaces the dimmed text at the cursor: at most five rows, its end. Nothing happens if standard
 * output is not a terminal. */
void terminal_show(const char *text);

#endif
