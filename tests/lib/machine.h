/* machine.h - the machine's name and clock, and medians of what is measured on it. After
 * whisper_npu.c. */
#ifndef MACHINE_H
#define MACHINE_H
#include <sys/utsname.h>
#include <time.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double median(double *x, size_t n)
{
    qsort(x, n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* CPU time of the process. */
static inline double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* The clock in GHz, 0 if unknown: additions that wait for each other take a cycle each. */
static inline double machine_ghz(void)
{
    enum { TIMES = 200000, ADDITIONS = 16 };
    double best = 0.0;
#if defined(__x86_64__) || defined(__aarch64__)
    uint64_t x = 1, y = 3;
    int i, j;
    for (i = 0; i < 20; i++) {
        double since = cpu_ms(), ghz;
        for (j = 0; j < TIMES; j++) {
#if defined(__x86_64__)
#define MACHINE_ADD "add %1, %0\n\t"
#else
#define MACHINE_ADD "add %0, %0, %1\n\t"
#endif
#define MACHINE_ADD4 MACHINE_ADD MACHINE_ADD MACHINE_ADD MACHINE_ADD
            __asm__ volatile(MACHINE_ADD4 MACHINE_ADD4 MACHINE_ADD4 MACHINE_ADD4
                             : "+r"(x) : "r"(y));
#undef MACHINE_ADD4
#undef MACHINE_ADD
        }
        ghz = (double)TIMES * ADDITIONS / (cpu_ms() - since) / 1e6;
        best = ghz > best ? ghz : best;
    }
#endif
    return best;
}

/* The rest of a line of a file that begins with a word, or its first line if there is no word. */
static int machine_line(const char *path, const char *word, char *out, size_t size)
{
    char line[256];
    int found = 0;
    FILE *f = fopen(path, "r");
    while (f != NULL && !found && fgets(line, sizeof line, f) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, word, strlen(word)) == 0 && (word[0] == '\0' || colon != NULL)) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(out, size, "%.190s", word[0] != '\0' ? colon + 2 : line);
            found = 1;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return found;
}

/* The CPU of a PC; of other machines, the board and the number of the first core. */
static inline void machine_name(char *out, size_t size)
{
    struct utsname u;
    char cpu[200] = "unknown CPU", part[200] = "";
    if (!machine_line("/proc/cpuinfo", "model name", cpu, sizeof cpu)) {
        (void)machine_line("/proc/device-tree/model", "", cpu, sizeof cpu);
        (void)machine_line("/proc/cpuinfo", "CPU part", part, sizeof part);
    }
    uname(&u);
    snprintf(out, size, "%.150s%s%.20s, %u CPUs, %.65s", cpu, part[0] != '\0' ? ", core " : "", part,
             os_cpus(), u.machine);
}
#endif
