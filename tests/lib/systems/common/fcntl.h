#define O_RDONLY 0
#define O_NONBLOCK 4
#define O_CLOEXEC 0x1000000
int open(const char *path, int flags, ...);
