/* ffmpeg.c - see ffmpeg.h */
#define _GNU_SOURCE /* pipe2() */

#include "ffmpeg.h"

#include <errno.h>
#include <string.h>

#ifdef _WIN32
int ffmpeg_open(ffmpeg *f, const ffmpeg_input *from)
{
    (void)from;
    memset(f, 0, sizeof *f);
    errno = ENOSYS;
    return -1;
}

int64_t ffmpeg_read(void *f, void *buffer, size_t size)
{
    (void)f;
    (void)buffer;
    (void)size;
    return 0;
}

const char *ffmpeg_finish(ffmpeg *f)
{
    (void)f;
    return "ffmpeg is not run on Windows";
}

void ffmpeg_close(ffmpeg *f) { (void)f; }

#else
#include <sys/socket.h>
#include <sys/wait.h>

#define NO_PROGRAM 127 /* exit status of a shell, and of the child, when the program cannot be
                        * run */
#define FEED_SIZE 65536u
#define TICK_MS 50     /* interval at which *end is checked */

/* Demuxers that read only their input. Excluded are all that open other files named in it, such as
 * concat, dash, hls, image2, imf, sdp and scripts. */
static const char formats[] =
    "aac,ac3,adx,aea,aiff,amr,amrnb,amrwb,ape,aptx,aptx_hd,asf,asf_o,ast,au,avi,caf,dff,dsf,dts,"
    "dtshd,dv,eac3,flac,flv,g722,gsm,gxf,ircam,iff,latm,loas,matroska,mlp,mov,mp3,mpc,mpc8,mpeg,"
    "mpegts,mxf,nistsphere,nut,ogg,oma,paf,pvf,rm,rso,sds,sox,tak,truehd,tta,vqf,voc,w64,wav,wsaud,"
    "wtv,wv,xa,xwma";

static void close_end(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

/* Runs in the child, whose descriptors 0 to 2 are set. -v level+verbose marks errors and reports
 * the input's duration and the actions of aresample. aresample fills time before the first sample
 * and gaps in the time stamps with silence. In MPEG and Ogg streams, ffmpeg starts the clock at the
 * first packet that it decodes, unless there is an input offset, and removes gaps of more than
 * 10 s. A file is searched for audio for one minute rather than 5 s. */
static void become_ffmpeg(const char *name, const ffmpeg_input *from)
{
    const int seekable = from->seekable_fd >= 0;
    const char *argv[48];
    char map[32], channels[32];
    size_t n = 0;
    argv[n++] = "ffmpeg";
    argv[n++] = "-nostdin";
    argv[n++] = "-hide_banner";
    argv[n++] = "-nostats";
    argv[n++] = "-v";
    argv[n++] = "level+verbose";
    argv[n++] = "-protocol_whitelist";
    argv[n++] = seekable ? "file" : "pipe";
    argv[n++] = "-format_whitelist";
    argv[n++] = formats;
    argv[n++] = "-itsoffset";
    argv[n++] = "0.000001";
    argv[n++] = "-dts_delta_threshold";
    argv[n++] = "3600";
    if (seekable) {
        argv[n++] = "-analyzeduration";
        argv[n++] = "60000000";
        argv[n++] = "-probesize";
        argv[n++] = "64000000";
    }
    argv[n++] = "-i";
    argv[n++] = name;
    if (from->track >= 0) {
        (void)snprintf(map, sizeof map, "0:a:%d", from->track);
        argv[n++] = "-map";
        argv[n++] = map;
    }
    argv[n++] = "-vn";
    argv[n++] = "-sn";
    argv[n++] = "-dn";
    argv[n++] = "-af";
    argv[n++] = "aresample=async=1:first_pts=0";
    argv[n++] = "-ar";
    argv[n++] = "16000";
    argv[n++] = "-c:a";
    argv[n++] = "pcm_s16le";
    if (from->raw_channels > 0) {
        (void)snprintf(channels, sizeof channels, "%u", (unsigned)from->raw_channels);
        argv[n++] = "-ac";
        argv[n++] = channels;
    }
    argv[n++] = "-f";
    argv[n++] = from->raw_channels > 0 ? "s16le" : "wav";
    argv[n++] = "pipe:1";
    argv[n] = NULL;
    (void)setpgid(0, 0); /* Ctrl-C is for us: what we feed to it is still to be decoded */
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(NO_PROGRAM);
}

/* A pipe or a pair of sockets which children do not inherit. Another thread may start a child at
 * any time, and while that holds an end, the end of file does not arrive here. */
static int make_ends(int ends[2], int feeding)
{
#ifdef __linux__
    return feeding ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)
                   : pipe2(ends, O_CLOEXEC);
#else
    return feeding ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends);
#endif
}

/* The parent uses ends[0]. All four descriptors are above 2, so that the child can move its own to
 * 0 to 2. */
static int make_pipe(int ends[2], int feeding)
{
    int i, failed = make_ends(ends, feeding);
    for (i = 0; i < 2 && failed == 0; i++) {
        int high = fcntl(ends[i], F_DUPFD_CLOEXEC, 3);
        close(ends[i]);
        ends[i] = high;
        failed = high < 0 ? -1 : 0;
    }
    return failed;
}

int ffmpeg_open(ffmpeg *f, const ffmpeg_input *from)
{
    const int feeding = from->seekable_fd < 0;
    int feed[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1}, input = -1, failure;
    size_t room = (from->name != NULL ? strlen(from->name) : 0) + sizeof "file:/dev/stdin";
    char *name = malloc(room);
    memset(f, 0, sizeof *f);
    f->from = *from;
    f->child = f->in = f->out = f->err = -1;
    f->duration_ms = -1;
    f->feed = malloc(FEED_SIZE);
    if (name == NULL || f->feed == NULL || (feeding && make_pipe(feed, 1) != 0) ||
        make_pipe(out, 0) != 0 || make_pipe(err, 0) != 0 ||
        (input = fcntl(feeding ? feed[1] : from->seekable_fd, F_DUPFD_CLOEXEC, 3)) < 0) {
        failure = errno;
    } else {
        /* "file:" prevents ffmpeg from interpreting a name as a protocol or an option. */
        (void)snprintf(name, room, "%s%s", feeding ? "pipe:0" : "file:",
                       feeding ? "" : from->name != NULL ? from->name : "/dev/stdin");
        (void)snprintf(f->name, sizeof f->name, "%s", name);
        f->child = fork();
        failure = errno;
        if (f->child == 0) {
            if (dup2(input, 0) < 0 || dup2(out[1], 1) < 0 || dup2(err[1], 2) < 0) {
                _exit(NO_PROGRAM);
            }
            become_ffmpeg(name, from);
        }
    }
    free(name);
    close_end(&input);
    close_end(&feed[1]);
    close_end(&out[1]);
    close_end(&err[1]);
    f->in = feed[0];
    f->out = out[0];
    f->err = err[0];
    errno = failure;
    return f->child > 0 ? 0 : -1;
}

/* ---- messages of ffmpeg ---- */

static void copy_message(char *to, size_t size, const char *text)
{
    size_t i;
    for (i = 0; i + 1 < size && text[i] != '\0'; i++) {
        to[i] = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? ' ' : text[i];
    }
    to[i] = '\0';
}

/* "HH:MM:SS.cc", or "N/A" */
static int64_t duration_from(const char *text)
{
    long hours, minutes;
    double seconds;
    return sscanf(text, "%ld:%ld:%lf", &hours, &minutes, &seconds) == 3
               ? ((int64_t)hours * 60 + minutes) * 60000 + (int64_t)(seconds * 1000.0) : -1;
}

static int has(const char *text, const char *words)
{
    return strstr(text, words) != NULL;
}

/* Parses one line: "[where @ address] [level] message". */
static void take_line(ffmpeg *f)
{
    const char *text = f->line, *end;
    int error = 0, warning = 0, mpegts = has(text, "[mpegts @");
    size_t n = strlen(f->name);
    while (*text == '[' && (end = strchr(text, ']')) != NULL) {
        error |= strncmp(text, "[error]", 7) == 0 || strncmp(text, "[fatal]", 7) == 0 ||
                 strncmp(text, "[panic]", 7) == 0;
        warning |= strncmp(text, "[warning]", 9) == 0;
        text = end + 1 + strspn(end + 1, " ");
    }
    if (strncmp(text, f->name, n) == 0 && text[n] == ':') {
        text += n + 1 + strspn(text + n + 1, " ");
    }
    if (*text != '\0') {
        copy_message(f->last, sizeof f->last, text);
    }
    if (error && !has(text, "invalid for wav")) { /* above 4 GiB; the size in the header is not
                                                   * used */
        copy_message(f->error, sizeof f->error, text);
    }
    if (((error && !has(text, "invalid for wav")) ||
         (warning && !mpegts && (has(text, "acket corrupt") || has(text, "corrupt input") ||
                                 has(text, "duration do not match")))) && f->damage[0] == '\0') {
        copy_message(f->damage, sizeof f->damage, text);
    } else if (warning && has(text, "Estimating duration")) {
        f->duration_ms = -2; /* estimated, not from a header */
    } else if (strncmp(text, "Duration: ", 10) == 0 && f->duration_ms == -1) {
        f->duration_ms = duration_from(text + 10);
    } else if (strncmp(text, "Input #0, flac,", 15) == 0) {
        f->gapless = 1;
    } else if (f->gapless && has(text, "audio samples of silence") && f->damage[0] == '\0') {
        copy_message(f->damage, sizeof f->damage, "frames are missing");
    } else if (strncmp(text, "Stream #0:", 10) == 0 && has(text, ": Video:")) {
        f->video |= !has(text, "(attached pic)");
    }
}

/* Reads messages. Returns the number of bytes, 0 at the end. Text beyond the length of a line is
 * discarded. */
static ssize_t take_messages(ffmpeg *f)
{
    char text[1024];
    ssize_t i, n = read(f->err, text, sizeof text);
    for (i = 0; i < n; i++) {
        if (text[i] == '\n') {
            f->line[f->line_size] = '\0';
            take_line(f);
            f->line_size = 0;
        } else if (f->line_size + 1 < sizeof f->line && text[i] != '\0') {
            f->line[f->line_size++] = text[i];
        }
    }
    if (n == 0) {
        f->line[f->line_size] = '\0';
        take_line(f);
        f->line_size = 0;
    }
    if (n == 0 || (n < 0 && errno != EINTR)) {
        close_end(&f->err);
    }
    return n;
}

/* ---- output of ffmpeg ---- */

/* Moves bytes from the source to ffmpeg. Returns 1 if any were moved. */
static int feed(ffmpeg *f, int writable, int readable)
{
    int moved = 0;
    if (writable && f->feed_at < f->feed_have) {
        ssize_t n = send(f->in, f->feed + f->feed_at, f->feed_have - f->feed_at,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            f->feed_at += (size_t)n;
            moved = 1;
        } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
            close_end(&f->in); /* it needs no more input */
        }
    }
    if (readable && f->in >= 0 && f->feed_at == f->feed_have) {
        int64_t n = f->from.source(f->from.user, f->feed, FEED_SIZE);
        f->feed_at = 0;
        f->feed_have = n > 0 ? (size_t)n : 0;
        moved = 1;
        if (n <= 0) {
            close_end(&f->in);
        }
    }
    return moved;
}

/* Waits up to TICK_MS for an event and handles it, except for reading out. Returns 1 if there was
 * one or the source is slow; 2 when out can be read. */
static int step(ffmpeg *f)
{
    const int empty = f->feed_at == f->feed_have;
    const int wanted = f->in >= 0 && empty ? f->from.source_fd(f->from.user) : -1;
    const int at_hand = f->in >= 0 && empty && wanted < 0;
    struct pollfd p[4];
    int moved;
    memset(p, 0, sizeof p);
    p[0].fd = f->out;
    p[1].fd = f->err;
    p[2].fd = empty ? -1 : f->in;
    p[3].fd = wanted;
    p[0].events = p[1].events = p[3].events = POLLIN;
    p[2].events = POLLOUT;
    if (poll(p, 4, at_hand ? 0 : TICK_MS) < 0) {
        return 0;
    }
    moved = feed(f, p[2].revents != 0, at_hand || p[3].revents != 0);
    if (p[1].revents != 0 && take_messages(f) > 0) {
        moved = 1;
    }
    return p[0].revents != 0 ? 2 : moved || wanted >= 0;
}

int64_t ffmpeg_read(void *user, void *buffer, size_t size)
{
    ffmpeg *f = user;
    int64_t last = platform_now_ms();
    while (f->out >= 0 && size > 0 && !*f->from.end) {
        int done = step(f);
        if (done == 2) {
            ssize_t n = read(f->out, buffer, size);
            if (n > 0) {
                return n;
            }
            if (n == 0 || errno != EINTR) {
                close_end(&f->out);
            }
        } else if (done == 1) {
            last = platform_now_ms();
        } else if (f->from.stall_ms > 0 && platform_now_ms() - last > f->from.stall_ms) {
            f->stalled = 1;
            kill(f->child, SIGKILL);
            close_end(&f->out);
        }
    }
    return 0;
}

const char *ffmpeg_finish(ffmpeg *f)
{
    const int64_t begin = platform_now_ms();
    const int64_t patience = f->from.stall_ms > 0 ? f->from.stall_ms : 30000;
    close_end(&f->in);
    while (f->err >= 0 && f->child > 0 && !f->stalled) { /* closed when ffmpeg ends */
        struct pollfd p;
        memset(&p, 0, sizeof p);
        p.fd = f->err;
        p.events = POLLIN;
        if (poll(&p, 1, TICK_MS) > 0) {
            (void)take_messages(f);
        } else if (platform_now_ms() - begin > patience || *f->from.end) {
            f->stalled = !*f->from.end;
            kill(f->child, SIGKILL);
            break;
        }
    }
    while (f->child > 0 && waitpid(f->child, &f->status, 0) < 0 && errno == EINTR) {
    }
    f->child = -1;
    if (f->stalled) {
        return "ffmpeg made no progress";
    }
    if (WIFEXITED(f->status) && WEXITSTATUS(f->status) == NO_PROGRAM) {
        return "ffmpeg, which reads other formats, is not installed";
    }
    if (has(f->damage, "ormat not on whitelist")) {
        return "a playlist, a script or a rare format, which are not read";
    }
    if (has(f->damage, "matches no streams") || has(f->error, "does not contain any stream")) {
        return f->from.track > 0 ? "there is no such audio track" : "there is no audio in it";
    }
    if (f->status != 0) {
        return f->damage[0] != '\0' ? f->damage : f->last[0] != '\0' ? f->last : "no reason given";
    }
    return f->damage[0] != '\0' ? f->damage : NULL;
}

void ffmpeg_close(ffmpeg *f)
{
    if (f->child > 0) {
        kill(f->child, SIGKILL); /* its further messages are not needed */
        while (waitpid(f->child, &f->status, 0) < 0 && errno == EINTR) {
        }
        f->child = -1;
    }
    close_end(&f->in);
    close_end(&f->out);
    close_end(&f->err);
    free(f->feed);
    f->feed = NULL;
}
#endif
