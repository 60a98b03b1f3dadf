struct timespec {
    long long tv_sec;
    long tv_nsec;
};
typedef int clockid_t;
#define CLOCK_MONOTONIC 4
int clock_gettime(clockid_t clock, struct timespec *time);
int nanosleep(const struct timespec *wanted, struct timespec *left);
