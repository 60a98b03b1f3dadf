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

/* Formats are those whose demuxers read only their input. Excluded are all that open other files
 * named in it, such as concat, dash, hls, image2, imf, sdp and scripts. These consist of frames
 * without times: ffmpeg counts frames, by the rate and size of the first ones. */
static const char counted_formats[] =
    "aac,ac3,adx,aea,amr,amrnb,amrwb,aptx,aptx_hd,bit,codec2,dff,dsf,dss,dts,dtshd,eac3,g722,"
    "g723_1,g729,gsm,ilbc,latm,loas,mlp,mp3,mpc,mpc8,qcp,sbc,spdif,tak,truehd,tta";
static const char timed_formats[] =
    "aiff,ape,asf,asf_o,ast,au,avi,caf,dhav,dv,flac,flv,gxf,ircam,iff,ivr,matroska,mov,mpeg,mpegts,"
    "mxf,nistsphere,nsv,nut,ogg,oma,paf,pva,pvf,rm,rso,sds,sox,ty,vqf,voc,w64,wav,wsaud,wtv,wv,xa,"
    "xwma";

static void close_end(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

/* Runs in the child, whose descriptors 0 to 2 are set. -v level+verbose marks errors and reports
 * the input's format and duration, ashowinfo the times and numbers of samples. In MPEG and Ogg
 * streams, ffmpeg starts the clock at the first packet that it decodes, unless there is an input
 * offset, and removes gaps of more than 10 s. A file is searched for audio for one minute rather
 * than 5 s. */
static void become_ffmpeg(const char *name, const ffmpeg_input *from)
{
    const int seekable = from->seekable_fd >= 0;
    const char *argv[48];
    char map[32], channels[32], formats[sizeof counted_formats + sizeof timed_formats];
    size_t n = 0;
    (void)snprintf(formats, sizeof formats, "%s,%s", counted_formats, timed_formats);
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
    argv[n++] = "-map_metadata";
    argv[n++] = "-1";
    argv[n++] = "-vn";
    argv[n++] = "-sn";
    argv[n++] = "-dn";
    argv[n++] = "-af";
    argv[n++] = "aformat=sample_fmts=s16:sample_rates=16000,asettb=1/16000,ashowinfo";
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
    f->clock.frame = 2 * (size_t)from->raw_channels;
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

/* ---- the clock ---- */

#define RATE 16000
#define TOLERANCE (RATE / 10) /* a difference up to this is jitter */
#define OVERLAP RATE          /* times that go back further begin anew */

/* Frame at belongs shift later than counted. */
static void add_jump(ffmpeg_clock *c, int64_t at, int64_t shift)
{
    const size_t room = sizeof c->jumps / sizeof c->jumps[0];
    if (c->n_jumps == room) { /* the last one takes it, and is where it was */
        c->jumps[(c->first_jump + room - 1) % room].shift += shift;
    } else {
        c->jumps[(c->first_jump + c->n_jumps) % room].at = at;
        c->jumps[(c->first_jump + c->n_jumps++) % room].shift = shift;
    }
    c->now += shift;
}

/* Takes the report that n frames follow, the first of which is at time. Returns 1 if time seems to
 * be missing before it. */
static int take_time(ffmpeg_clock *c, int64_t time, int64_t n)
{
    int64_t shift = time + c->offset - c->now, least = c->heard == 0 ? 0 : TOLERANCE;
    if (c->doubt != 0 && llabs(shift - c->doubt) <= TOLERANCE) {
        if (c->doubt < -OVERLAP) {
            c->offset -= c->doubt;
        } else {
            add_jump(c, c->doubtful, c->doubt);
        }
        shift = 0;
    }
    c->doubt = llabs(shift) <= least || (c->counted && c->heard > 0) ? 0 : shift;
    c->doubtful = c->heard;
    c->heard += n;
    c->now += n;
    return c->doubt > 0;
}

/* Whether the samples that come next wait. */
static int waits(const ffmpeg_clock *c)
{
    return c->doubt != 0 && c->taken >= c->doubtful * (int64_t)c->frame;
}

/* The number of bytes, up to size, until the next jump or piece that waits. Begins jumps that are
 * here. */
static size_t until_jump(ffmpeg_clock *c, size_t size)
{
    const int64_t frame = (int64_t)c->frame;
    int64_t left = (int64_t)size;
    while (c->n_jumps > 0 && c->silent == 0 && c->dropped == 0) {
        int64_t shift = c->jumps[c->first_jump].shift;
        left = c->jumps[c->first_jump].at * frame - c->taken;
        if (left > 0) {
            break;
        }
        c->silent += shift > 0 ? shift * frame : 0;
        c->dropped -= shift < 0 ? shift * frame : 0;
        c->first_jump = (c->first_jump + 1) % (sizeof c->jumps / sizeof c->jumps[0]);
        c->n_jumps--;
        left = (int64_t)size;
    }
    if (c->doubt != 0 && c->doubtful * frame - c->taken < left) {
        left = c->doubtful * frame - c->taken;
    }
    return left < (int64_t)size ? (size_t)left : size;
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

/* Whether the text begins with one of the names of a list, and a comma. */
static int begins_with_one(const char *text, const char *names)
{
    size_t n = strcspn(text, ",");
    while (*names != '\0') {
        size_t length = strcspn(names, ",");
        if (length == n && strncmp(names, text, n) == 0) {
            return text[n] == ',';
        }
        names += length + (names[length] == ',');
    }
    return 0;
}

/* Parses what ashowinfo says about a piece of sound. */
static void take_times(ffmpeg *f)
{
    const char *time = strstr(f->line, " pts:"), *samples = strstr(f->line, " nb_samples:");
    long long n = samples != NULL ? strtoll(samples + 12, NULL, 10) : 0, at;
    if (time != NULL && sscanf(time + 5, "%lld", &at) != 1) {
        at = f->clock.now - f->clock.offset; /* it has no time */
    }
    if (time != NULL && n > 0 && take_time(&f->clock, at, n) && f->gapless &&
        f->damage[0] == '\0') {
        copy_message(f->damage, sizeof f->damage, "frames are missing");
    }
}

/* Parses one line: "[where @ address] [level] message". */
static void take_line(ffmpeg *f)
{
    const char *text = f->line, *end;
    int error = 0, warning = 0, mpegts = has(text, "[mpegts @");
    size_t n = strlen(f->name);
    if (strncmp(text, "[Parsed_ashowinfo", 17) == 0) {
        take_times(f);
        return;
    }
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
    if (error && f->dss && strcmp(text, "Invalid data found when processing input") == 0) {
        f->dss_ended = 1; /* what fills the last block is no frame */
    } else if (error && (has(text, "Header missing") || has(text, "Error while decoding") ||
                  has(text, "Error submitting packet to decoder"))) {
        copy_message(f->skipped, sizeof f->skipped, f->skipped[0] == '\0' ? text : f->skipped);
    } else if (((error && !has(text, "invalid for wav")) ||
         (warning && !mpegts && (has(text, "acket corrupt") || has(text, "corrupt input") ||
                                 has(text, "duration do not match")))) && f->damage[0] == '\0') {
        copy_message(f->damage, sizeof f->damage, text);
    } else if (warning && has(text, "Estimating duration")) {
        f->estimated = 1;
    } else if (strncmp(text, "Duration: ", 10) == 0 && f->duration_ms == -1) {
        f->duration_ms = duration_from(text + 10);
    } else if (strncmp(text, "Input #0, ", 10) == 0) {
        f->gapless = begins_with_one(text + 10, "flac");
        f->mp3 = begins_with_one(text + 10, "mp3");
        f->dss = begins_with_one(text + 10, "dss");
        f->clock.counted = begins_with_one(text + 10, counted_formats);
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

/* The size of a WAV header of which n bytes are here, with *frame, the bytes of a frame; 0: it has
 * more bytes. What is none has no more. */
static size_t header_size(const unsigned char *p, size_t n, size_t *frame)
{
    size_t at = 12;
    while (n >= 12 && memcmp(p, "RIFF", 4) == 0 && at + 8 <= n) {
        uint32_t size = (uint32_t)p[at + 4] | (uint32_t)p[at + 5] << 8 |
                        (uint32_t)p[at + 6] << 16 | (uint32_t)p[at + 7] << 24;
        if (memcmp(p + at, "data", 4) == 0) {
            return at + 8;
        }
        if (memcmp(p + at, "fmt ", 4) == 0 && at + 12 <= n) {
            *frame = 2 * ((size_t)p[at + 10] | (size_t)p[at + 11] << 8);
        }
        at += 8 + (size_t)size + (size & 1);
    }
    return n >= 4 && memcmp(p, "RIFF", 4) != 0 ? n : 0;
}

/* Receives the WAV header. */
static void take_header(ffmpeg *f)
{
    size_t frame = 2, room = sizeof f->head - f->head_size, size;
    /* A byte each, lest samples are taken; of what is not even that, all. */
    ssize_t n = room > 0 ? read(f->out, f->head + f->head_size, 1) : 0;
    f->head_size += n > 0 ? (size_t)n : 0;
    size = header_size(f->head, f->head_size, &frame);
    if (size > 0 || f->head_size == sizeof f->head) {
        f->clock.frame = frame > 0 ? frame : 2;
    }
    if (n == 0 || (n < 0 && errno != EINTR)) {
        close_end(&f->out);
    }
}

/* Reads up to size bytes. Returns how many; 0: none now, or the end. */
static size_t read_out(ffmpeg *f, unsigned char *buffer, size_t size)
{
    ssize_t n = read(f->out, buffer, size);
    if (n == 0 || (n < 0 && errno != EINTR)) {
        close_end(&f->out);
        f->clock.doubt = 0; /* nothing confirms it any more */
    }
    return n > 0 ? (size_t)n : 0;
}

/* Reads of the piece that waits. More can only come with the report of the next one, which ends the
 * waiting. */
static void hold(ffmpeg *f)
{
    ffmpeg_clock *c = &f->clock;
    size_t whole = (size_t)(c->heard - c->doubtful) * c->frame;
    if (f->held_at == f->held_size) {
        f->held_at = f->held_size = 0;
    }
    if (f->held_room < whole) {
        unsigned char *held = realloc(f->held, whole);
        f->held = held == NULL ? f->held : held;
        f->held_room = held == NULL ? f->held_room : whole;
    }
    if (f->held_size < whole && whole <= f->held_room) {
        f->held_size += read_out(f, f->held + f->held_size, whole - f->held_size);
    } else {
        c->doubt = 0; /* a report or memory is missing */
    }
}

/* Takes what ffmpeg wrote, after all of its messages so far: it reports times before it writes the
 * samples. */
static void take_output(ffmpeg *f)
{
    struct pollfd p;
    memset(&p, 0, sizeof p);
    p.events = POLLIN;
    for (p.fd = f->err; f->err >= 0 && poll(&p, 1, 0) > 0;) {
        (void)take_messages(f);
    }
    if (f->clock.frame == 0) {
        take_header(f);
    } else if (waits(&f->clock)) {
        hold(f);
    }
}

/* Samples, at most size bytes, up to the next jump. written: ffmpeg has written some. */
static size_t samples(ffmpeg *f, unsigned char *buffer, size_t size, int written)
{
    ffmpeg_clock *c = &f->clock;
    size_t n = f->held_size - f->held_at;
    size = until_jump(c, size);
    if (c->silent > 0 || size == 0) {
        return 0;
    }
    size = c->dropped > 0 && c->dropped < (int64_t)size ? (size_t)c->dropped : size;
    if (n > 0) {
        n = n < size ? n : size;
        memcpy(buffer, f->held + f->held_at, n);
        f->held_at += n;
    } else if (written && f->out >= 0) {
        n = read_out(f, buffer, size);
    }
    c->taken += (int64_t)n;
    if (c->dropped > 0) {
        c->dropped -= (int64_t)n;
        n = 0;
    }
    return n;
}

/* What is to be given out: the header, silence, samples. */
static size_t at_hand(ffmpeg *f, void *buffer, size_t size, int written)
{
    ffmpeg_clock *c = &f->clock;
    size_t n = c->frame > 0 ? f->head_size - f->head_at : 0;
    if (n > 0) {
        n = n < size ? n : size;
        memcpy(buffer, f->head + f->head_at, n);
        f->head_at += n;
    } else if (c->frame > 0 && c->silent == 0) {
        n = samples(f, buffer, size, written);
    }
    if (n == 0 && c->silent > 0) {
        n = c->silent < (int64_t)size ? (size_t)c->silent : size;
        memset(buffer, 0, n);
        c->silent -= (int64_t)n;
    }
    return n;
}

int64_t ffmpeg_read(void *user, void *buffer, size_t size)
{
    ffmpeg *f = user;
    int64_t last = platform_now_ms();
    while (size > 0 && !*f->from.end) {
        size_t n = at_hand(f, buffer, size, 0);
        int done = n > 0 || f->out < 0 ? 0 : step(f);
        if (done == 2) {
            take_output(f);
            n = at_hand(f, buffer, size, f->held_at == f->held_size);
        }
        if (n > 0 || f->out < 0) {
            return (int64_t)n;
        }
        if (done != 0) {
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
        return f->damage[0] != '\0' ? f->damage : f->skipped[0] != '\0' ? f->skipped
             : f->last[0] != '\0' ? f->last : "no reason given";
    }
    f->skipped_mp3 = f->mp3 && f->damage[0] == '\0';
    return f->damage[0] != '\0' ? f->damage : f->skipped[0] != '\0' ? f->skipped : NULL;
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
    free(f->held);
    f->feed = f->held = NULL;
}
#endif
