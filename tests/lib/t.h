/* t.h - the test harness. A test program calls t_run() for each test and returns t_end().
 * Inside a test, T_CHECK(condition, format, ...) reports a failure and goes on. A test that lacks
 * data calls t_skip("why") and returns; with CI=true in the environment that is a failure. Programs
 * that consist of several files list them for t_files(), and run some when called with names. */
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

/* The arguments that choose among the current file's tests; NULL: all run. */
static char **t_chosen;

/* Whether one of these names, up to NULL, is part of a test's name. */
static int t_is_chosen(char **names, const char *name)
{
    for (; *names != NULL; names++) {
        if (strstr(name, *names) != NULL) {
            return 1;
        }
    }
    return 0;
}

__attribute__((unused)) static void t_run(const char *name, void (*test)(void))
{
    if (t_chosen != NULL && !t_is_chosen(t_chosen, name)) {
        return;
    }
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

/* A file of tests, and the function that runs them. */
typedef struct t_file {
    const char *name;
    void (*tests)(void);
} t_file;

/* Runs all tests of these files (up to the one without a name). With names of files only theirs,
 * with any other names those tests in whose names one is found. Returns the program's status. */
__attribute__((unused)) static int t_files(const t_file *files, char **names)
{
    const t_file *file;
    char **name, **others = names; /* names of files come first */
    for (name = names; *name != NULL; name++) {
        for (file = files; file->name != NULL && strcmp(file->name, *name) != 0; file++) {
        }
        if (file->name != NULL) {
            char *swap = *others;
            *others++ = *name;
            *name = swap;
        }
    }
    for (file = files; file->name != NULL; file++) {
        int whole = *names == NULL;
        for (name = names; name < others; name++) {
            whole |= strcmp(file->name, *name) == 0;
        }
        t_chosen = whole ? NULL : others;
        if (whole || *others != NULL) {
            file->tests();
        }
    }
    if (t_passed + t_failed + t_skipped == 0) {
        printf("FAIL no test has such a name\n");
        t_failed++;
    }
    return t_end();
}
#endif
