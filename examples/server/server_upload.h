/* server_upload.h - bytes that a client sends: in memory, beyond UPLOAD_MEMORY_MOST in a file
 * without a name. Part of server. POSIX. */
#ifndef SERVER_UPLOAD_H
#define SERVER_UPLOAD_H

#include <stddef.h>
#include <stdint.h>

#define UPLOAD_MEMORY_MOST ((size_t)4 << 20)

typedef struct upload {
    unsigned char *memory;    /* what is not in the file */
    size_t used, room;
    int fd;                   /* the file with all bytes, or -1 */
    uint64_t size, most;      /* bytes so far, and limit */
} upload;

void upload_init(upload *u, uint64_t most);
/* Returns 0, or -1 with errno: EFBIG beyond the limit, ENOMEM, or that of the file. */
int upload_add(upload *u, const void *bytes, size_t n);
/* The file, created if needed, at its beginning. Returns -1 with errno on failure. */
int upload_file(upload *u);
/* Copies the first bytes, n at most. Returns how many. */
size_t upload_head(const upload *u, void *bytes, size_t n);
void upload_free(upload *u);

#endif
