#include <stddef.h>
int sysctlbyname(const char *name, void *old, size_t *old_size, void *value, size_t value_size);
