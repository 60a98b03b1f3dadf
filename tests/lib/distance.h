/* distance.h - the edit distance by which word errors are counted. */
#ifndef DISTANCE_H
#define DISTANCE_H
#include <stddef.h>

/* Levenshtein distance of a sequence of n words from one of m; differ() compares word i of the first
 * with word j of the second. row has room for m + 1 numbers. */
static size_t edit_distance(size_t n, size_t m, size_t *row,
                            int (*differ)(const void *user, size_t i, size_t j), const void *user)
{
    size_t i, j;
    for (j = 0; j <= m; j++) {
        row[j] = j;
    }
    for (i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (j = 1; j <= m; j++) {
            size_t best = diagonal + (differ(user, i - 1, j - 1) != 0);
            diagonal = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
        }
    }
    return row[m];
}

#endif
