#include <stddef.h>
void *malloc(size_t size);
void free(void *memory);
int posix_memalign(void **memory, size_t alignment, size_t size);
