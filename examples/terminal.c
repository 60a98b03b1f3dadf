/*
 * terminal.c - see terminal.h. Rows are divided here, so that their number is known, whatever the
 * terminal does with long lines; characters that may be wide count as two columns.
 */
#define _XOPEN_SOURCE 700
#include "terminal.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int columns_of(const char *text, size_t n)
{
    int columns = 0;
    for (; n > 0; text++, n--) {
        unsigned char c = (unsigned char)*text;
        columns += (c & 0xc0) == 0x80 ? 0 : c >= 0xe1 ? 2 : 1;
    }
    return columns;
}

static void clear_rows(int rows)
{
    printf("\r");
    for (; rows > 1; rows--) {
        printf("\033[A");
    }
    printf("\033[J");
}

static int width(void)
{
    struct winsize size;
    return ioctl(1, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
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

/* Prints text in rows with fewer than `columns` columns, if characters are narrower. Returns how
 * many. */
static int print_rows(const char *text, int columns)
{
    int rows = *text != '\0', at = 0;
    size_t n;
    for (; *text != '\0'; text += n) {
        n = word_of(text);
        n = columns_of(text, n) < columns ? n : step_of(text); /* too long: a character of it */
        if (at > 0 && at + columns_of(text, n) >= columns) {
            printf("\n");
            rows++;
            at = 0;
            n -= *text == ' ';
            text += *text == ' ';
        }
        at += columns_of(text, n);
        printf("%.*s", (int)n, text);
    }
    return rows;
}

void terminal_print(const char *text)
{
    terminal_show("");
    if (isatty(1)) {
        (void)print_rows(text, width());
        printf("\n");
    } else {
        printf("%s\n", text);
    }
}

void terminal_show(const char *text)
{
    static int rows;
    int columns = width();
    size_t length = strlen(text), most = (size_t)columns * 4;
    if (!isatty(1)) {
        return;
    }
    text += length > most ? length - most : 0;
    text += (*text & 0xc0) == 0x80 ? step_of(text) : 0;
    clear_rows(rows);
    printf("\033[2m");
    rows = print_rows(text, columns);
    printf("\033[0m");
}
