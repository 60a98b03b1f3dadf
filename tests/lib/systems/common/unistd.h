#include <stddef.h>
typedef long ssize_t;
typedef long long off_t;
typedef int pid_t;
pid_t getpid(void);
int close(int file);
ssize_t read(int file, void *buffer, size_t size);
ssize_t pread(int file, void *buffer, size_t size, off_t offset);
long sysconf(int name);
/* Not in POSIX.1-2008: glibc and bionic always have it, others hide it from programs that ask for
 * POSIX only. */
#if defined(__linux__) || !defined(_POSIX_C_SOURCE) || defined(_DARWIN_C_SOURCE)
#define _SC_NPROCESSORS_ONLN 58
#else
#error "programs that define _POSIX_C_SOURCE do not see _SC_NPROCESSORS_ONLN here"
#endif
#if defined(__linux__) && (defined(_DEFAULT_SOURCE) || defined(_GNU_SOURCE))
long syscall(long number, ...);
#endif
