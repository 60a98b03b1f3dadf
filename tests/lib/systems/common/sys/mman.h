#include <stddef.h>
#include <unistd.h>
#define PROT_READ 1
#define MAP_PRIVATE 2
#define MAP_FAILED ((void *)-1)
void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
int munmap(void *at, size_t size);
int madvise(void *at, size_t size, int advice);
