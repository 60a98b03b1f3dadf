/* machine.h - the machine's name, and medians of what is measured on it. After whisper_npu.c. */
#ifndef MACHINE_H
#define MACHINE_H
#include <sys/utsname.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, size_t n)
{
    qsort(x, n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static void machine_name(char *out, size_t size)
{
    struct utsname u;
    char line[256], cpu[200] = "unknown CPU";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            colon[strcspn(colon, "\n")] = '\0';
            snprintf(cpu, sizeof cpu, "%.190s", colon + 2);
            break;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    uname(&u);
    snprintf(out, size, "%s, %u CPUs, %s", cpu, os_cpus(), u.machine);
}
#endif
