/*
 * listen_recorder.c - see listen_recorder.h.
 */
#define _DEFAULT_SOURCE /* ioctl() */
#define _XOPEN_SOURCE 700
#include "listen_recorder.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define FIRST_MS 10000                 /* limit for the first sound, which may need a permission */
#define TICK_MS 100
#define ARGUMENTS 20

static const char *const recorders[][ARGUMENTS] = {
    {"parec", "--format=s16le", "--rate=16000", "--channels=1", "--latency-msec=100", NULL},
    {"pw-record", "--format=s16", "--rate=16000", "--channels=1", "-", NULL},
    {"arecord", "-q", "-t", "raw", "-f", "S16_LE", "-r", "16000", "-c", "1", NULL},
#ifdef __APPLE__
    {"ffmpeg", "-nostdin", "-v", "error", "-f", "avfoundation", "-i", ":default", "-f", "s16le",
     "-ar", "16000", "-ac", "1", "-", NULL},
#else
    {"ffmpeg", "-nostdin", "-v", "error", "-f", "pulse", "-i", "default", "-f", "s16le", "-ar",
     "16000", "-ac", "1", "-", NULL},
#endif
    {"rec", "-q", "-t", "raw", "-r", "16000", "-e", "signed", "-b", "16", "-c", "1", "-L", "-",
     NULL}
};

/* Whether a program is in a directory of PATH. */
static int is_on_path(const char *name)
{
    const char *at = getenv("PATH");
    char path[PATH_MAX];
    while (at != NULL && *at != '\0') {
        int length = (int)strcspn(at, ":");
        int n = snprintf(path, sizeof path, "%.*s/%s", length, at, name);
        if (n > 0 && (size_t)n < sizeof path && access(path, X_OK) == 0) {
            return 1;
        }
        at += length + (at[length] == ':');
    }
    return 0;
}

/* The last line that the recorder wrote to its standard error. */
static void last_message(recorder *r, char *text, size_t size)
{
    char line[256];
    text[0] = '\0';
    rewind(r->errors);
    while (fgets(line, sizeof line, r->errors) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] != '\0') {
            (void)snprintf(text, size, "%s", line);
        }
    }
}

static int start(recorder *r, const char *const argv[])
{
    int ends[2], null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    r->errors = tmpfile();
    if (r->errors == NULL || null < 0 || pipe(ends) != 0) {
        (void)snprintf(r->why, sizeof r->why, "%s", strerror(errno));
        return -1;
    }
    (void)fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    r->child = fork();
    if (r->child == 0) {
        (void)signal(SIGPIPE, SIG_DFL);
        if (dup2(null, 0) == 0 && dup2(ends[1], 1) == 1 && dup2(fileno(r->errors), 2) == 2) {
            if (ends[1] > 2) {
                close(ends[1]);
            }
            execvp(argv[0], (char *const *)(uintptr_t)argv);
        }
        _exit(127);
    }
    close(null);
    close(ends[1]);
    r->fd = ends[0];
    return r->child > 0 ? 0 : -1;
}

/* Waits for the first sound. Returns 0 if there is some. */
static int wait_for_sound(const recorder *r, const atomic_int *end)
{
    int n, waited = 0;
    for (; waited < FIRST_MS && !*end; waited += TICK_MS) {
        struct pollfd p = {r->fd, POLLIN, 0};
        if (poll(&p, 1, TICK_MS) > 0) {
            n = 0;
            (void)ioctl(r->fd, FIONREAD, &n);
            return n > 0 ? 0 : -1;
        }
    }
    return -1;
}

int recorder_start(recorder *r, const char *command, const atomic_int *end)
{
    const char *const shell[] = {"sh", "-c", command, NULL};
    char tried[sizeof r->why] = "";
    size_t i, n = command != NULL ? 1 : sizeof recorders / sizeof recorders[0], used = 0;
    for (i = 0; i < n && !*end; i++) {
        const char *const *argv = command != NULL ? shell : recorders[i];
        if (command == NULL && !is_on_path(argv[0])) {
            continue;
        }
        memset(r, 0, sizeof *r);
        r->child = r->fd = -1;
        (void)snprintf(r->name, sizeof r->name, "%s", command != NULL ? command : argv[0]);
        if (start(r, argv) == 0 && wait_for_sound(r, end) == 0) {
            return 0;
        }
        recorder_stop(r);
        (void)recorder_close(r);
        used += (size_t)snprintf(tried + used, sizeof tried - used, "%s%s", used > 0 ? "; " : "",
                                 r->why);
        used = used < sizeof tried ? used : sizeof tried - 1;
    }
    (void)snprintf(r->why, sizeof r->why, "%s", tried);
    return -1;
}

void recorder_stop(const recorder *r)
{
    if (r->child > 0) {
        (void)kill(r->child, SIGTERM);
    }
}

int recorder_close(recorder *r)
{
    char message[256];
    int status = 0;
    pid_t child = r->child;
    if (r->fd >= 0) {
        close(r->fd);                  /* one that ignores the signal ends when it writes */
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (r->errors != NULL) {
        last_message(r, message, sizeof message);
        (void)fclose(r->errors);
        (void)snprintf(r->why, sizeof r->why, "%s: %s", r->name,
                       message[0] != '\0' ? message : "it delivers no sound");
    }
    r->child = r->fd = -1;
    r->errors = NULL;
    return status != 0 ? -1 : 0;
}
