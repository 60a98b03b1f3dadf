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

void terminal_show(const char *text)
{
    static int rows;
    struct winsize size;
    int columns = ioctl(1, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80, at = 0;
    size_t length = strlen(text), most = (size_t)columns * 4, n;
    if (!isatty(1)) {
        return;
    }
    text += length > most ? length - most : 0;
    while ((*text & 0xc0) == 0x80) {
        text++;
    }
    clear_rows(rows);
    printf("\033[2m");
    for (rows = *text != '\0'; *text != '\0'; text += n) {
        n = strcspn(text + 1, " ") + 1; /* a word with the space before it, or what fits of it */
        if (at > 0 && at + columns_of(text, n) >= columns && columns_of(text, n) < columns) {
            printf("\n");
            rows++;
            at = 0;
            text += *text == ' ';
            n = strcspn(text, " ");
        }
        for (; columns_of(text, n) + at >= columns && n > 1; n--) {
        }
        while (n > 1 && (text[n] & 0xc0) == 0x80) {
            n--;
        }
        at += columns_of(text, n);
        printf("%.*s", (int)n, text);
    }
    printf("\033[0m");
}
