#define SYS_sched_getaffinity 123
