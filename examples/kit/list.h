/* list.h - lists of phrases: the lines of a file, or the items of an option's value. */
#ifndef LIST_H
#define LIST_H

#include "whisper_npu.h"

#include <stddef.h>

typedef struct list {
    char *text;               /* NULs between the items */
    const char **items;
    size_t n, bytes;
    const char *path;         /* of the file with the items, or NULL */
} list;

/* Both replace the list and return NULL, or what is wrong. Spaces around items are removed, and
 * empty items omitted. */

/* One item per line: UTF-8 with or without a byte order mark, any line endings. Keeps path. A file
 * without items is an error. */
const char *list_read(list *l, const char *path);
/* Splits text at any of the separators. */
const char *list_split(list *l, const char *text, const char *separators);
void list_free(list *l);

/* Makes room in a session for phrases of so many bytes in total. */
void list_make_room(wnpu_config *config, size_t bytes);

#endif
