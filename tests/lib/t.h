/* t.h - the test harness. A test program calls t_run() for each test and returns t_end().
 * Inside a test, T_CHECK(condition, format, ...) reports a failure and goes on. A test that lacks
 * data calls t_skip("why") and returns; with CI=true in the environment that is a failure. */
#ifndef T_H
#define T_H
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int t_passed, t_failed, t_skipped, t_bad, t_skip_now;

__attribute__((format(printf, 4, 5), unused))
static void t_check(int ok, const char *file, int line, const char *format, ...)
{
    if (!ok) {
        va_list args;
        printf("  %s:%d: ", file, line);
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        printf("\n");
        t_bad++;
    }
}
#define T_CHECK(condition, ...) t_check(!!(condition), __FILE__, __LINE__, __VA_ARGS__)

__attribute__((unused)) static void t_skip(const char *why)
{
    const char *ci = getenv("CI");
    if (ci != NULL && strcmp(ci, "true") == 0) {
        printf("  missing data is a failure in CI: %s\n", why);
        t_bad++;
    } else {
        printf("  skipped: %s\n", why);
        t_skip_now = 1;
    }
}

static void t_run(const char *name, void (*test)(void))
{
    t_bad = 0;
    t_skip_now = 0;
    test();
    if (t_bad > 0) {
        t_failed++;
        printf("FAIL %s\n", name);
    } else if (t_skip_now) {
        t_skipped++;
        printf("skip %s\n", name);
    } else {
        t_passed++;
        printf("ok   %s\n", name);
    }
    fflush(stdout);
}

/* The last line is read by tests/run. */
static int t_end(void)
{
    printf("t: %d passed, %d failed, %d skipped\n", t_passed, t_failed, t_skipped);
    return t_failed > 0;
}
#endif
