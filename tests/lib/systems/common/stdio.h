#include <stdarg.h>
#include <stddef.h>
int snprintf(char *restrict text, size_t size, const char *restrict format, ...);
int vsnprintf(char *restrict text, size_t size, const char *restrict format, va_list args);
