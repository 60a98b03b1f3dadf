/*
 * terminal.h - text at the bottom of a terminal that is replaced when it changes.
 */
#ifndef TERMINAL_H
#define TERMINAL_H

/* Replaces the dimmed text at the cursor: at most five rows, its end. Nothing happens if standard
 * output is not a terminal. Call it with "" before other text is printed. */
void terminal_show(const char *text);

#endif
