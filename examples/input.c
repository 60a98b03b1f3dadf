/* input.c - see input.h */
#define _XOPEN_SOURCE 700

#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NO_PROGRAM 127 /* the exit status by which shells, and our child, say "cannot be run" */

__attribute__((format(printf, 2, 3)))
static int fail(input *in, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(in->why, sizeof in->why, format, args);
    va_end(args);
    return -1;
}

static void drop(input *in)
{
    if (in->mapped) {
        munmap(in->bytes, in->size);
    } else {
        free(in->bytes);
    }
    in->bytes = NULL;
    in->size = 0;
    in->mapped = 0;
}

/* Reads fd to its end into a buffer that doubles. */
static int read_all(input *in, int fd, const volatile sig_atomic_t *stop)
{
    size_t room = 0;
    for (;;) {
        ssize_t n;
        if (in->size == room) {
            size_t larger = room == 0 ? (size_t)1 << 20 : room * 2;
            void *bytes = larger > room ? realloc(in->bytes, larger) : NULL;
            if (bytes == NULL) {
                return fail(in, "too long for the memory of this machine");
            }
            in->bytes = bytes;
            room = larger;
        }
        n = read(fd, (char *)in->bytes + in->size, room - in->size);
        if (n > 0) {
            in->size += (size_t)n;
        } else if (n == 0) {
            return 0;
        } else if (errno != EINTR) {
            return fail(in, "%s", strerror(errno));
        }
        if (*stop) {
            return fail(in, "cancelled");
        }
    }
}

/* The bytes of a file: mapped when it is a regular one. */
static int load(input *in, int fd, const volatile sig_atomic_t *stop)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return fail(in, "%s", strerror(errno));
    }
    if (S_ISDIR(info.st_mode)) {
        return fail(in, "is a directory");
    }
    if (S_ISREG(info.st_mode) && info.st_size > 0 && (uintmax_t)info.st_size <= SIZE_MAX &&
        lseek(fd, 0, SEEK_CUR) == 0) {
        void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes != MAP_FAILED) {
            in->bytes = bytes;
            in->size = (size_t)info.st_size;
            in->mapped = 1;
            return 0;
        }
    }
    return read_all(in, fd, stop);
}

/* In the child: becomes ffmpeg. 16 kHz, 16 bit and, unless one channel is wanted, mono, which is
 * how OpenAI's own loader asks for it. A WAV header says how many channels there are. */
static void become_ffmpeg(const char *name, int in_fd, int out_fd, int err_fd, int mix)
{
    const char *argv[24];
    size_t n = 0;
    if (dup2(in_fd, 0) < 0 || dup2(out_fd, 1) < 0 || dup2(err_fd, 2) < 0) {
        _exit(NO_PROGRAM);
    }
    argv[n++] = "ffmpeg";
    argv[n++] = "-nostdin";
    argv[n++] = "-v";
    argv[n++] = "error";
    argv[n++] = "-i";
    argv[n++] = name;
    argv[n++] = "-vn";
    argv[n++] = "-ar";
    argv[n++] = "16000";
    if (mix) {
        argv[n++] = "-ac";
        argv[n++] = "1";
    }
    argv[n++] = "-c:a";
    argv[n++] = "pcm_s16le";
    argv[n++] = "-f";
    argv[n++] = "wav";
    argv[n++] = "-";
    argv[n] = NULL;
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(NO_PROGRAM);
}

/* The last line that ffmpeg wrote, without the file name it repeats. */
static const char *last_words(FILE *log, const char *name, char *line, size_t size)
{
    char text[256];
    size_t length = strlen(name);
    snprintf(line, size, "no reason given");
    rewind(log);
    while (fgets(text, sizeof text, log) != NULL) {
        size_t i, skip = strncmp(text, name, length) == 0 && text[length] == ':' ? length + 1 : 0;
        text[strcspn(text, "\r\n")] = '\0';
        for (i = 0; text[i] != '\0'; i++) {
            if ((unsigned char)text[i] < ' ') {
                text[i] = ' ';
            }
        }
        skip += strspn(text + skip, " ");
        if (text[skip] != '\0') {
            snprintf(line, size, "%s", text + skip);
        }
    }
    return line;
}

static int run_ffmpeg(input *in, const char *name, int in_fd, FILE *log, int mix,
                      const volatile sig_atomic_t *stop)
{
    char reason[256];
    int ends[2], status = 0, result;
    pid_t child;
    if (pipe(ends) != 0) {
        return fail(in, "cannot start ffmpeg: %s", strerror(errno));
    }
    child = fork();
    if (child == 0) {
        close(ends[0]);
        become_ffmpeg(name, in_fd, ends[1], fileno(log), mix);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return fail(in, "cannot start ffmpeg: %s", strerror(errno));
    }
    result = read_all(in, ends[0], stop);
    close(ends[0]);
    if (result != 0) {
        kill(child, SIGKILL); /* nothing that it could say matters any more */
    }
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            return fail(in, "lost track of ffmpeg: %s", strerror(errno));
        }
    }
    if (result != 0) {
        return result;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_PROGRAM) {
        return fail(in, "ffmpeg, which reads other formats, is not installed");
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return fail(in, "ffmpeg cannot read it: %s",
                    last_words(log, name, reason, sizeof reason));
    }
    return 0;
}

/* A temporary file with the bytes that came from a pipe: unlike a pipe ffmpeg can seek in it, which
 * some formats need. */
static FILE *spool(const input *in)
{
    FILE *file = tmpfile();
    if (file != NULL &&
        (fwrite(in->bytes, 1, in->size, file) != in->size || fflush(file) != 0)) {
        fclose(file);
        file = NULL;
    }
    return file;
}

/* Replaces the bytes by what ffmpeg makes of them. */
static int convert(input *in, const char *path, int mix, const volatile sig_atomic_t *stop)
{
    int from_stdin = strcmp(path, "-") == 0, result = -1, null = -1;
    /* "file:" keeps ffmpeg from taking a name for a protocol or an option. */
    size_t room = strlen(path) + sizeof "file:/dev/stdin";
    char *name = malloc(room);
    FILE *log = tmpfile(), *data = from_stdin ? spool(in) : NULL;
    drop(in);
    null = open("/dev/null", O_RDONLY);
    if (name == NULL || log == NULL || null < 0 || (from_stdin && data == NULL)) {
        fail(in, "cannot make a temporary file for ffmpeg: %s", strerror(errno));
    } else {
        snprintf(name, room, "file:%s", from_stdin ? "/dev/stdin" : path);
        if (data != NULL) {
            rewind(data);
        }
        result = run_ffmpeg(in, name, data != NULL ? fileno(data) : null, log, mix, stop);
    }
    if (data != NULL) {
        fclose(data);
    }
    if (log != NULL) {
        fclose(log);
    }
    if (null >= 0) {
        close(null);
    }
    free(name);
    return result;
}

static int looks_like_wav(const input *in)
{
    const char *bytes = in->bytes;
    return in->size >= 12 && memcmp(bytes + 8, "WAVE", 4) == 0 &&
           (memcmp(bytes, "RIFF", 4) == 0 || memcmp(bytes, "RF64", 4) == 0);
}

/* The bytes are there: WAV as they are, or else by way of ffmpeg. */
static int decode(input *in, const char *path, int channel, const volatile sig_atomic_t *stop)
{
    wnpu_error first = {0, ""}, second = {0, ""};
    char why[sizeof in->why];
    int wav = looks_like_wav(in);
    if (in->size == 0) {
        return fail(in, "is empty");
    }
    if (wnpu_wav_open(&in->audio, in->bytes, in->size, &first) == WNPU_OK) {
        return 0;
    }
    if (convert(in, path, channel < 0, stop) != 0) {
        memcpy(why, in->why, sizeof why);
        return *stop ? -1 : fail(in, "%s, and %s", wav ? first.message : "not a WAV file", why);
    }
    if (wnpu_wav_open(&in->audio, in->bytes, in->size, &second) != WNPU_OK) {
        return wav ? fail(in, "%s", first.message) /* a WAV file without sound, as a rule */
                   : fail(in, "cannot use what ffmpeg made of it: %s", second.message);
    }
    return in->audio.frames > 0 ? 0 : fail(in, "holds no sound");
}

int input_open(input *in, const char *path, int channel, const volatile sig_atomic_t *stop)
{
    int result, fd;
    memset(in, 0, sizeof *in);
    wnpu_audio_init(&in->audio, sizeof in->audio);
    fd = strcmp(path, "-") == 0 ? dup(0) : open(path, O_RDONLY);
    if (fd < 0) {
        return fail(in, "%s", strerror(errno));
    }
    result = load(in, fd, stop);
    close(fd);
    if (result == 0) {
        result = decode(in, path, channel, stop);
    }
    if (result == 0 && channel >= (int)in->audio.channels) {
        result = fail(in, "has no channel %d: it has %u, counted from 0", channel,
                      (unsigned)in->audio.channels);
    }
    in->audio.channel = channel;
    return result;
}

void input_close(input *in)
{
    drop(in);
}
