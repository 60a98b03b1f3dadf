#include <stddef.h>
#define CPU_LEVEL_WHICH 3
#define CPU_WHICH_TID 1
typedef struct {
    long bits[4];
} cpuset_t;
int cpuset_getaffinity(int level, int which, long long id, size_t size, cpuset_t *mask);
int CPU_COUNT(const cpuset_t *set);
