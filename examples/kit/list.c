/*
 * list.c - see list.h.
 */
#define _XOPEN_SOURCE 700
#include "list.h"
#include "platform.h"

#include <string.h>

/* Reads a whole file as a string and sets its size; NULL with errno set. */
static char *slurp(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t n = 0, capacity = 0, took = 1;
    while (file != NULL && took > 0) {
        if (n + 1 >= capacity) {
            char *grown = realloc(text, capacity = 2 * capacity + 4096);
            if (grown == NULL) {
                break;
            }
            text = grown;
        }
        took = fread(text + n, 1, capacity - n - 1, file);
        n += took;
    }
    if (file == NULL || took > 0 || ferror(file)) {
        free(text);
        text = NULL;
    } else {
        text[n] = '\0';
        *size = n;
    }
    if (file != NULL) {
        fclose(file);
    }
    return text;
}

/* The list takes ownership of text, which is NULL with errno set if there is none. A byte order
 * mark at its beginning is left out. */
static const char *split(list *l, char *text, const char *separators)
{
    static const char mark[] = "\xef\xbb\xbf";
    char *at, *item;
    list_free(l);
    l->text = text;
    l->bytes = text != NULL ? strlen(text) : 0;
    l->items = text != NULL ? malloc((l->bytes / 2 + 1) * sizeof *l->items) : NULL;
    if (l->items == NULL) {
        return strerror(errno);
    }
    text += strncmp(text, mark, 3) == 0 ? 3 : 0;
    for (item = strtok_r(text, separators, &at); item != NULL;
         item = strtok_r(NULL, separators, &at)) {
        char *end = item + strlen(item);
        while (*item == ' ' || *item == '\t') {
            item++;
        }
        while (end > item && (end[-1] == ' ' || end[-1] == '\t')) {
            *--end = '\0';
        }
        if (*item != '\0') {
            l->items[l->n++] = item;
        }
    }
    return NULL;
}

const char *list_read(list *l, const char *path)
{
    size_t size = 0;
    char *text = slurp(path, &size);
    const char *wrong = text == NULL ? strerror(errno)
        : strncmp(text, "\xff\xfe", 2) == 0 || strncmp(text, "\xfe\xff", 2) == 0
            ? "is UTF-16; save it as UTF-8"
        : strlen(text) != size ? "is not text: it contains NUL bytes" : NULL;
    if (wrong != NULL) {
        free(text);
        return wrong;
    }
    wrong = split(l, text, "\r\n");
    l->path = path;
    return wrong == NULL && l->n == 0 ? "has no lines with text" : wrong;
}

const char *list_split(list *l, const char *text, const char *separators)
{
    return split(l, strdup(text), separators);
}

void list_free(list *l)
{
    free(l->text);
    free(l->items);
    memset(l, 0, sizeof *l);
}

void list_make_room(wnpu_config *config, size_t bytes)
{
    const size_t most = 1048576, tokens = bytes < most / 8 ? 8 * bytes : most;
    if (tokens > config->max_phrase_tokens) { /* eight spellings of each phrase */
        config->max_phrase_tokens = (uint32_t)tokens;
    }
}
