/* server_keys.c - see server_keys.h */
#include "server_keys.h"

#include "server_request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int is_printable(const char *text)
{
    for (; *text > ' ' && *text < 127; text++) {
    }
    return *text == '\0';
}

int keys_add(keys *k, const char *name, const char *secret, char why[128])
{
    int i;
    for (i = 0; i < k->n && strcmp(k->entry[i].secret, secret) != 0 &&
                strcmp(k->entry[i].name, name) != 0; i++) {
    }
    if (secret[0] == '\0' || strlen(secret) > KEYS_SECRET_MOST || !is_printable(secret)) {
        (void)snprintf(why, 128, "a key has 1 to %d characters of ASCII without blanks",
                       KEYS_SECRET_MOST);
    } else if (strlen(name) > KEYS_NAME_MOST || !is_printable(name)) {
        (void)snprintf(why, 128, "a name has at most %d characters of ASCII", KEYS_NAME_MOST);
    } else if (i < k->n) {
        (void)snprintf(why, 128, "a name or a key occurs twice");
    } else if (k->n == KEYS_MOST) {
        (void)snprintf(why, 128, "there are more than %d keys", KEYS_MOST);
    } else {
        strcpy(k->entry[k->n].name, name);
        strcpy(k->entry[k->n++].secret, secret);
        return 0;
    }
    return -1;
}

int keys_read(keys *k, const char *path, char why[128])
{
    char line[512], *name, *secret, *rest;
    FILE *file = fopen(path, "r");
    int failed = 0, before = k->n;
    if (file == NULL) {
        (void)snprintf(why, 128, "%s", strerror(errno));
        return -1;
    }
    while (!failed && fgets(line, sizeof line, file) != NULL) {
        name = line + strspn(line, " \t\r\n");
        secret = name + strcspn(name, " \t\r\n");
        secret += *secret != '\0' ? (*secret = '\0', 1) : 0;
        secret += strspn(secret, " \t");
        rest = secret + strcspn(secret, " \t\r\n");
        if (name[0] == '\0' || name[0] == '#') {
            continue;
        }
        if (rest[strspn(rest, " \t\r\n")] != '\0' || secret == rest) {
            (void)snprintf(why, 128, "each line is a name and a key");
            failed = 1;
        } else {
            *rest = '\0';
            failed = keys_add(k, name, secret, why) != 0;
        }
    }
    memset(line, 0, sizeof line);
    if (!failed && (ferror(file) || k->n == before)) {
        (void)snprintf(why, 128, "there is no key in it");
        failed = 1;
    }
    (void)fclose(file);
    return failed ? -1 : 0;
}

int keys_find(const keys *k, const char *given)
{
    char key[KEYS_SECRET_MOST + 1];
    size_t n;
    int i, found = -1;
    given += strspn(given, " \t");
    n = strlen(given);
    while (n > 0 && (given[n - 1] == ' ' || given[n - 1] == '\t')) {
        n--;
    }
    (void)snprintf(key, sizeof key, "%.*s", n < sizeof key ? (int)n : 0, given);
    for (i = 0; i < k->n; i++) {
        found = request_same_secret(key, k->entry[i].secret) ? i : found;
    }
    return found;
}
