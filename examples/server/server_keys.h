/* server_keys.h - the keys that clients may have, with their names. Part of server. */
#ifndef SERVER_KEYS_H
#define SERVER_KEYS_H

#define KEYS_MOST 64
#define KEYS_NAME_MOST 32
#define KEYS_SECRET_MOST 255

typedef struct keys_entry {
    char name[KEYS_NAME_MOST + 1]; /* "" for the key of --api-key */
    char secret[KEYS_SECRET_MOST + 1];
} keys_entry;

typedef struct keys {
    keys_entry entry[KEYS_MOST];
    int n;                    /* 0: no key is asked for */
} keys;

/* Adds a key, which must be printable ASCII without blanks. Returns 0, or -1 with the reason in
 * why. */
int keys_add(keys *k, const char *name, const char *secret, char why[128]);
/* Adds those in a file: lines "NAME KEY"; lines that are empty or begin with # are skipped. Returns
 * 0, or -1 with the reason in why. */
int keys_read(keys *k, const char *path, char why[128]);
/* The number of a key that a client has given, with blanks around it; -1: there is no such key. The
 * time does not tell how much of it is right. */
int keys_find(const keys *k, const char *given);

#endif
