/* input.c - see input.h */
#define _DEFAULT_SOURCE /* ioctl() */
#define _XOPEN_SOURCE 700

#include "input.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define TICK_MS 250                    /* interval at which *end is checked */
#define WAITING_MOST (1 << 20)         /* most bytes read from a stream after *end is set */
#define HEAD_LEAST 64                  /* least number of bytes to detect the format */
#define HEAD_MOST ((size_t)64 << 20)   /* longest header of a WAV stream that is passed to ffmpeg */
#define TAIL_SIZE ((size_t)128 << 10)  /* for the last page of an Ogg file, twice */
#define PAGE_MOST ((size_t)65307)      /* longest Ogg page */

__attribute__((format(printf, 2, 3)))
static int fail(input *in, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(in->why, sizeof in->why, format, args);
    va_end(args);
    return -1;
}

/* ---- bytes ---- */

/* Appends to head. Returns 0, or -1 if there is no memory. */
static int keep(input *in, const unsigned char *bytes, size_t n)
{
    if (in->head_size + n > in->head_room) {
        size_t room = 2 * (in->head_size + n);
        unsigned char *head = room <= 2 * HEAD_MOST ? realloc(in->head, room) : NULL;
        if (head == NULL) {
            return -1;
        }
        in->head = head;
        in->head_room = room;
    }
    memcpy(in->head + in->head_size, bytes, n);
    in->head_size += n;
    return 0;
}

static void keep_tail(input *in, const unsigned char *bytes, size_t n)
{
    if (in->tail == NULL) {
        return;
    }
    if (n > PAGE_MOST) {
        bytes += n - PAGE_MOST;
        n = PAGE_MOST;
    }
    if (in->tail_size + n > TAIL_SIZE) {
        size_t drop = in->tail_size + n - PAGE_MOST;
        drop = drop < in->tail_size ? drop : in->tail_size;
        memmove(in->tail, in->tail + drop, in->tail_size - drop);
        in->tail_size -= drop;
    }
    memcpy(in->tail + in->tail_size, bytes, n);
    in->tail_size += n;
}

/* The flag that stops processing. It never stops for a stream: only its bytes end. */
static const atomic_int *end_of_work(const input *in)
{
    static const atomic_int never = 0;
    return in->stream ? &never : in->from.end;
}

/* How many of up to size bytes to read after *end was set: those of a stream that have arrived. */
static size_t last_bytes(input *in, size_t size)
{
    if (in->waiting < 0) {
        int n = 0;
        in->waiting = in->stream && ioctl(in->fd, FIONREAD, &n) == 0 && n > 0 ? n : 0;
        in->waiting = in->waiting < WAITING_MOST ? in->waiting : WAITING_MOST;
    }
    return size < (size_t)in->waiting ? size : (size_t)in->waiting;
}

/* Reads 1..size bytes. Returns 0 at the end or after *end was set, -1 on failure. Signals interrupt
 * the wait; the tick covers those that arrive just before it. */
static int64_t read_fd(input *in, void *buffer, size_t size)
{
    for (;;) {
        struct pollfd p;
        ssize_t n;
        int ended = *in->from.end != 0;
        size = ended ? last_bytes(in, size) : size;
        if (size == 0) {
            return 0;
        }
        memset(&p, 0, sizeof p);
        p.fd = in->fd;
        p.events = POLLIN;
        switch (poll(&p, 1, TICK_MS)) {
        case -1: /* a signal */
            continue;
        case 0:
            in->waiting = ended ? 0 : -1; /* somebody else has read them */
            continue;
        default:
            break;
        }
        n = read(in->fd, buffer, (platform_size)size);
        if (n >= 0) {
            in->waiting -= ended ? n : 0;
            return n;
        }
        if (errno != EINTR && errno != EAGAIN) {
            in->read_error = errno;
            return -1;
        }
    }
}

/* Reads from head first, then from the descriptor. */
static int64_t read_bytes(void *user, void *buffer, size_t size)
{
    input *in = user;
    size_t n = in->head_size - in->head_at;
    int64_t got;
    if (n > 0) {
        n = n < size ? n : size;
        memcpy(buffer, in->head + in->head_at, n);
        in->head_at += n;
        return (int64_t)n;
    }
    got = read_fd(in, buffer, size);
    if (got > 0 && in->keeping) {
        if (keep(in, buffer, (size_t)got) != 0) {
            in->read_error = EFBIG;
            return -1;
        }
        in->head_at = in->head_size;
    }
    if (got > 0) {
        keep_tail(in, buffer, (size_t)got);
        frames_follow(&in->frames, buffer, (size_t)got);
    }
    return got;
}

static int fd_to_wait_for(void *user)
{
    const input *in = user;
    return in->head_at < in->head_size || *in->from.end ? -1 : in->fd;
}

/* Opens a file. Opening a FIFO would block until it has a writer, also when *end was set just
 * before: it is opened without that, and waited for here. */
static int open_path(const input *in)
{
#ifndef _WIN32
    struct stat info;
    if (stat(in->path, &info) == 0 && S_ISFIFO(info.st_mode)) {
        int fd = open(in->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        struct pollfd p = {fd, POLLIN, 0};
        while (fd >= 0 && !*in->from.end && poll(&p, 1, TICK_MS) <= 0) {
        }
        if (fd >= 0) {
            (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
        }
        return fd;
    }
#endif
    return open(in->path, O_RDONLY | O_CLOEXEC);
}

static int open_fd(input *in)
{
    struct stat info;
    do {
        in->fd = in->given >= 0 ? dup(in->given) : open_path(in);
    } while (in->fd < 0 && errno == EINTR && !*in->from.end);
    if (in->fd < 0 || fstat(in->fd, &info) != 0) {
        return fail(in, "%s", strerror(errno));
    }
    if (S_ISDIR(info.st_mode)) {
        return fail(in, "is a directory");
    }
    in->seekable = S_ISREG(info.st_mode) && lseek(in->fd, 0, SEEK_CUR) == 0;
    in->stream = !in->seekable;
    return 0;
}

/* Reads the first bytes and keeps them in head. */
static int look(input *in)
{
    unsigned char bytes[64];
    int64_t n = 1;
    in->keeping = 1;
    while (in->head_size < HEAD_LEAST && n > 0) {
        n = read_bytes(in, bytes, sizeof bytes);
    }
    in->keeping = 0;
    in->head_at = 0;
    if (n < 0) {
        return fail(in, "%s", strerror(in->read_error));
    }
    if (*end_of_work(in) || (*in->from.end && in->head_size == 0)) {
        return fail(in, "cancelled");
    }
    return in->head_size > 0 ? 0 : fail(in, "is empty");
}

/* ---- ffmpeg ---- */

/* Four bytes by which a format is known, and where they are. */
typedef struct magic {
    size_t at;
    char bytes[5];
} magic;

static int has_magic(const input *in, const magic *kinds, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        if (in->head_size >= kinds[i].at + 4 &&
            memcmp(in->head + kinds[i].at, kinds[i].bytes, 4) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Whether ffmpeg needs to seek for the same result: MP4 may have its index at the end, MP3 with a
 * header (which streams lack) is trimmed to its length, others are searched for tags at the end. */
static int wants_seeking(const input *in)
{
    static const magic kinds[] = {
        {4, "ftyp"}, {4, "moov"}, {4, "mdat"}, {4, "wide"}, {4, "free"}, {4, "skip"}, {4, "pnot"},
        {0, "ID3\3"}, {0, "ID3\4"}, {0, "ID3\2"}, {21, "Xing"}, {21, "Info"}, {23, "Xing"},
        {23, "Info"}, {36, "Xing"}, {36, "Info"}, {38, "Xing"}, {38, "Info"}, {13, "Xing"},
        {13, "Info"}, {0, "wvpk"}, {0, "MAC "}
    };
    return has_magic(in, kinds, sizeof kinds / sizeof kinds[0]);
}

/* Creates a file without a name, in $TMPDIR or another directory with enough space. */
static int temporary_file(void)
{
    const char *places[] = {NULL, "/tmp", "/var/tmp", "/dev/shm"};
    size_t i;
    places[0] = platform_temporary();
    for (i = 0; i < sizeof places / sizeof places[0]; i++) {
        char name[4096];
        int n = places[i] != NULL ? snprintf(name, sizeof name, "%s/transcribe.XXXXXX", places[i])
                                  : -1;
        int fd = n > 0 && (size_t)n < sizeof name ? mkstemp(name) : -1;
        if (fd >= 0) {
            unlink(name);
            return fd;
        }
    }
    return -1;
}

/* Copies a stream to a temporary file and reads that instead. */
static int spool(input *in)
{
    unsigned char *buffer = malloc(65536);
    int fd = temporary_file();
    int64_t n = 1;
    while (fd >= 0 && buffer != NULL && n > 0) {
        ssize_t done = 0;
        n = read_bytes(in, buffer, 65536);
        while (done < n) {
            ssize_t wrote = write(fd, buffer + done, (platform_size)(n - done));
            if (wrote < 0 && errno != EINTR) {
                n = -2;
            }
            done += wrote > 0 ? wrote : 0;
        }
    }
    free(buffer);
    if (fd < 0 || buffer == NULL || n == -2) {
        int failure = errno;
        if (fd >= 0) {
            close(fd);
        }
        return fail(in, "cannot write a temporary file, which this format needs when it comes "
                    "from a pipe (%s); set TMPDIR", strerror(failure));
    }
    close(in->fd);
    in->fd = fd;
    in->seekable = 1;
    return n < 0 ? fail(in, "%s", strerror(in->read_error))
         : lseek(fd, 0, SEEK_SET) == 0 ? 0 : fail(in, "%s", strerror(errno));
}

/* ---- chained Ogg streams ----
 *
 * Internet radio begins a new stream with each title, and files may be joined: a chain of links,
 * each with its own headers and times (RFC 3533, section 4). ffmpeg takes the headers for packets
 * of sound and the times for gaps, so every link has an ffmpeg of its own. */

#define PAGE_HEAD 27u

/* Whether a page, of which the first PAGE_HEAD bytes are given, begins a logical stream. */
static int begins_stream(const unsigned char *page)
{
    return (page[5] & 2) != 0;
}

/* Appends bytes to the page's header until it has n. Returns 0 if they end before. */
static int fill_page(input *in, size_t n)
{
    while (in->ogg.have < n) {
        int64_t got = read_bytes(in, in->ogg.page + in->ogg.have, n - in->ogg.have);
        if (got <= 0) {
            return 0;
        }
        in->ogg.have += (size_t)got;
    }
    return 1;
}

/* The rest of the header: the sizes of the segments. */
static void end_page_head(input *in)
{
    const size_t n = in->ogg.page[PAGE_HEAD - 1];
    size_t i;
    in->ogg.data |= !begins_stream(in->ogg.page);
    in->ogg.lost = !fill_page(in, PAGE_HEAD + n);
    for (i = 0; i < n && !in->ogg.lost; i++) {
        in->ogg.body += in->ogg.page[PAGE_HEAD + i];
    }
}

static void begin_page(input *in)
{
    in->ogg.at = in->ogg.have = 0;
    if (!fill_page(in, PAGE_HEAD) || memcmp(in->ogg.page, "OggS", 4) != 0) {
        in->ogg.lost = 1;
        return;
    }
    in->ogg.next = begins_stream(in->ogg.page) && in->ogg.data;
    if (!in->ogg.next) {
        end_page_head(in);
    }
}

/* The source of an ffmpeg: bytes of one link. */
static int64_t read_link(void *user, void *buffer, size_t size)
{
    input *in = user;
    size_t n;
    int64_t got;
    if (in->ogg.at == in->ogg.have && in->ogg.body == 0 && !in->ogg.lost) {
        begin_page(in);
    }
    if (in->ogg.next) {
        return 0;
    }
    n = in->ogg.have - in->ogg.at;
    if (n > 0) {
        n = n < size ? n : size;
        memcpy(buffer, in->ogg.page + in->ogg.at, n);
        in->ogg.at += n;
        return (int64_t)n;
    }
    got = read_bytes(in, buffer, in->ogg.lost || in->ogg.body > size ? size : in->ogg.body);
    in->ogg.body -= got > 0 && !in->ogg.lost ? (size_t)got : 0;
    return got;
}

/* Starts the ffmpeg of the next link. */
static int begin_link(input *in)
{
    ffmpeg_input from = in->child.from;
    const char *why = ffmpeg_finish(&in->child);
    if (why != NULL && in->ogg.why[0] == '\0') {
        (void)snprintf(in->ogg.why, sizeof in->ogg.why, "%s", why);
    }
    ffmpeg_close(&in->child);
    from.raw_channels = in->inner.channels;
    in->ogg.next = in->ogg.data = 0;
    end_page_head(in);
    return ffmpeg_open(&in->child, &from);
}

/* Reads what ffmpeg makes of the links, one after the other. */
static int64_t read_links(void *user, void *buffer, size_t size)
{
    input *in = user;
    int64_t n = ffmpeg_read(&in->child, buffer, size);
    while (n == 0 && in->ogg.next && !*end_of_work(in)) {
        n = begin_link(in) == 0 ? ffmpeg_read(&in->child, buffer, size) : -1;
    }
    return n;
}

/* Whether the input is an Ogg stream that may have links: a pipe, of which nobody knows, or a file
 * that has them. */
static int may_have_links(const input *in)
{
    unsigned char head[282];
    off_t at = 0;
    int data = 0;
    if (in->head_size < 4 || memcmp(in->head, "OggS", 4) != 0) {
        return 0;
    }
    while (in->seekable) {
        ssize_t i, n = pread(in->fd, head, sizeof head, at);
        if (n < (ssize_t)PAGE_HEAD || memcmp(head, "OggS", 4) != 0 ||
            n < (ssize_t)(PAGE_HEAD + head[PAGE_HEAD - 1])) {
            return 0;
        }
        if (begins_stream(head) && data) {
            return 1;
        }
        data |= !begins_stream(head);
        at += (off_t)(PAGE_HEAD + head[PAGE_HEAD - 1]);
        for (i = 0; i < head[PAGE_HEAD - 1]; i++) {
            at += head[(ssize_t)PAGE_HEAD + i];
        }
    }
    return 1;
}

/* Runs ffmpeg on the input and opens its WAV output. first: the library's error message. */
static int convert(input *in, const char *first)
{
    ffmpeg_input from;
    wnpu_error error = {0, ""};
    int spooled = !in->seekable && wants_seeking(in);
#ifdef _WIN32
    return fail(in, "%s; on Windows only WAV is read: convert with ffmpeg -i FILE OUT.wav, or pipe "
                "with ffmpeg -i FILE -f wav - | transcribe -", first);
#endif
    if (spooled && spool(in) != 0) {
        return -1;
    }
    in->ogg.used = may_have_links(in);
    memset(&from, 0, sizeof from);
    from.name = in->seekable && !spooled && in->given < 0 ? in->path : NULL;
    from.seekable_fd = in->seekable && !in->ogg.used ? in->fd : -1;
    from.source = in->ogg.used ? read_link : read_bytes;
    from.source_fd = fd_to_wait_for;
    from.user = in;
    from.track = in->from.track;
    from.stall_ms = in->from.stall_ms;
    from.end = end_of_work(in);
    if (!in->seekable && in->head_size >= 4 && memcmp(in->head, "OggS", 4) == 0) {
        in->tail = malloc(TAIL_SIZE);
    }
    in->uses_ffmpeg = 1;
    if (in->seekable && !in->ogg.used) {
        (void)lseek(in->fd, 0, SEEK_SET);
    }
    if (ffmpeg_open(&in->child, &from) != 0) {
        return fail(in, "cannot start ffmpeg: %s", strerror(errno));
    }
    wnpu_wav_reader_init(&in->wav, sizeof in->wav);
    in->wav.read = in->ogg.used ? read_links : ffmpeg_read;
    in->wav.user = in->ogg.used ? (void *)in : (void *)&in->child;
    if (wnpu_wav_reader_open(&in->wav, &in->inner, &error) != WNPU_OK) {
        const char *why = *end_of_work(in) ? "cancelled" : ffmpeg_finish(&in->child);
        return why == NULL ? fail(in, "contains no audio")
             : in->child.from.track >= 0 && strstr(why, "there is no") != NULL
                 ? fail(in, "%s", why)
                 : fail(in, "%s, and %s%s", first, strncmp(why, "ffmpeg", 6) == 0 ? "" :
                        "ffmpeg cannot read it: ", why);
    }
    return 0;
}

/* ---- samples ---- */

/* Reads raw samples as frames. */
static int64_t read_raw(void *user, void *buffer, size_t max_frames)
{
    input *in = user;
    size_t frame = wnpu_frame_bytes(&in->inner), got = 0;
    int64_t n = 1;
    while (n > 0 && max_frames > 0 && (got == 0 || got % frame != 0)) {
        n = read_bytes(in, (char *)buffer + got, max_frames * frame - got);
        got += n > 0 ? (size_t)n : 0;
    }
    return got >= frame ? (int64_t)(got / frame) : n;
}

/* Opens a WAV file whose fmt chunk follows the samples, which cannot be read as a stream. */
static int open_in_memory(input *in)
{
    wnpu_error error = {0, ""};
    unsigned char bytes[4096];
    int64_t n = 1;
    in->keeping = 1;
    in->head_at = in->head_size;
    while (n > 0) {
        n = read_bytes(in, bytes, sizeof bytes);
    }
    in->keeping = 0;
    if (n < 0) {
        return fail(in, "%s", strerror(in->read_error));
    }
    return wnpu_wav_open(&in->inner, in->head, in->head_size, &error) == WNPU_OK
               ? 0 : fail(in, "%s", error.message);
}

static int open_wav(input *in, wnpu_error *error)
{
    int status;
    wnpu_wav_reader_init(&in->wav, sizeof in->wav);
    in->wav.read = read_bytes;
    in->wav.user = in;
    in->keeping = 1;
    status = wnpu_wav_reader_open(&in->wav, &in->inner, error);
    in->keeping = 0;
    if (status == WNPU_OK) {
        free(in->head); /* it was read completely */
        in->head = NULL;
        in->head_at = in->head_size = in->head_room = 0;
        in->uses_wav = 1;
    } else if (status != WNPU_E_UNSUPPORTED) {
        in->head_at = 0;
    }
    return status;
}

/* ---- what the first bytes tell ---- */

/* Whether two frames of compressed audio follow each other from the start: what looks like one is
 * also found in samples. Reads up to the second. */
static int is_frames(input *in)
{
    size_t length = frame_length(in->head);
    unsigned char byte;
    if (length < 7) {
        return 0;
    }
    in->keeping = 1;
    in->head_at = in->head_size;
    while (in->head_size < length + 6 && read_bytes(in, &byte, 1) > 0) {
    }
    in->keeping = 0;
    in->head_at = 0;
    return in->head_size >= length + 6 && frame_length(in->head + length) >= 7;
}

/* Whether the first bytes are those of a format that ffmpeg reads. */
static int is_compressed(input *in)
{
    static const magic kinds[] = {
        {0, "ID3\2"}, {0, "ID3\3"}, {0, "ID3\4"}, {0, "fLaC"}, {0, "OggS"}, {0, "\x1a\x45\xdf\xa3"},
        {0, ".snd"}, {0, "FORM"}, {0, "caff"}, {0, "#!AM"}, {0, "wvpk"}, {0, "MAC "},
        {0, "\x30\x26\xb2\x75"}, {0, "RIFF"}, {0, "FLV\1"}, {4, "ftyp"}, {4, "moov"}, {4, "styp"}
    };
    return has_magic(in, kinds, sizeof kinds / sizeof kinds[0]) ||
           (in->head_size >= HEAD_LEAST && is_frames(in));
}

/* Whether all of the first bytes are printable: no sound is. */
static int is_text(const input *in)
{
    size_t i, from = in->head_size >= 3 && memcmp(in->head, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    for (i = from; i < in->head_size; i++) {
        unsigned char c = in->head[i];
        if ((c < 32 && (c < '\t' || c > '\r') && c != 27) || c == 127 ||
            (c >= 0x80 && (c < 0xc2 || c > 0xf4) &&
             (c > 0xbf || i == from || in->head[i - 1] < 0x80))) {
            return 0;
        }
    }
    return in->head_size >= 8;
}

static int open_samples(input *in)
{
    wnpu_error error = {0, "not a WAV file"};
    int wav = in->head_size >= 12 && memcmp(in->head + 8, "WAVE", 4) == 0 &&
              (memcmp(in->head, "RIFF", 4) == 0 || memcmp(in->head, "RF64", 4) == 0 ||
               memcmp(in->head, "BW64", 4) == 0);
    int status = WNPU_E_AUDIO;
    if (in->from.sniff && (wav || is_compressed(in))) {
        in->from.raw = NULL;
    } else if (in->from.sniff && is_text(in)) {
        return fail(in, "is text, not sound");
    }
    if (in->from.track > 0 && (wav || in->from.raw != NULL)) {
        return fail(in, "there is no such audio track");
    }
    if (in->from.raw != NULL) {
        in->inner.format = in->from.raw->format;
        in->inner.rate = in->from.raw->rate;
        in->inner.channels = in->from.raw->channels;
        in->inner.read = read_raw;
        in->inner.user = in;
        return 0;
    }
    if (wav) {
        status = open_wav(in, &error);
    }
    if (status == WNPU_E_UNSUPPORTED) {
        return open_in_memory(in);
    }
    if (status != WNPU_OK && *end_of_work(in)) {
        return fail(in, "cancelled");
    }
    if (status != WNPU_OK && in->read_error != 0) {
        return fail(in, "%s", strerror(in->read_error));
    }
    return status == WNPU_OK ? 0 : convert(in, error.message);
}

static void silence(const input *in, unsigned char *frames, size_t from, size_t to, size_t frame)
{
    const int32_t format = in->inner.format;
    int value = format == WNPU_SAMPLE_U8 ? 0x80 : format == WNPU_SAMPLE_ALAW ? 0xd5
              : format == WNPU_SAMPLE_ULAW ? 0xff : 0;
    memset(frames + from * frame, value, (to - from) * frame);
}

/* ---- the recording ---- */

static uint64_t frame_at(const input *in, int64_t ms)
{
    uint64_t rate = in->inner.rate, t = ms > 0 ? (uint64_t)ms : 0;
    return t / 1000 * rate + t % 1000 * rate / 1000;
}

/* Silences frames outside all clips among the n frames from in->at on. */
static void cut_out(const input *in, unsigned char *frames, size_t n)
{
    uint64_t done = 0; /* frames processed */
    size_t i, frame = wnpu_frame_bytes(&in->inner);
    for (i = 0; i < in->from.n_clips; i++) {
        uint64_t begin = frame_at(in, in->from.clips[i].t0_ms);
        uint64_t end = frame_at(in, in->from.clips[i].t1_ms);
        begin = begin > in->at ? begin - in->at : 0;
        end = end > in->at ? end - in->at : 0;
        begin = begin < n ? begin : n;
        end = end < n ? end : n;
        if (begin > done) {
            silence(in, frames, (size_t)done, (size_t)begin, frame);
        }
        done = end > done ? end : done;
    }
}

static int64_t next_frames(input *in, void *buffer, size_t max_frames)
{
    int64_t n;
    if (in->inner.read == NULL) { /* in memory */
        uint64_t left = in->inner.frames - in->at;
        size_t frame = wnpu_frame_bytes(&in->inner);
        n = left < max_frames ? (int64_t)left : (int64_t)max_frames;
        memcpy(buffer, (const unsigned char *)in->inner.data + (size_t)in->at * frame,
               (size_t)n * frame);
        return n;
    }
    return in->inner.read(in->inner.user, buffer, max_frames);
}

/* The read callback of the recording. */
static int64_t read_frames(void *user, void *buffer, size_t max_frames)
{
    input *in = user;
    int64_t n = 0;
    if (in->from.n_clips > 0) {
        uint64_t end = frame_at(in, in->from.clips[in->from.n_clips - 1].t1_ms);
        uint64_t left = end > in->at ? end - in->at : 0;
        max_frames = left < max_frames ? (size_t)left : max_frames;
    }
    if (max_frames > 0 && !*end_of_work(in)) {
        n = next_frames(in, buffer, max_frames);
        in->ended |= n == 0 && !*in->from.end;
    }
    if (n > 0 && in->from.n_clips > 0) {
        cut_out(in, buffer, (size_t)n);
    }
    in->at += n > 0 ? (uint64_t)n : 0;
    return n;
}

/* Reads all frames into memory. */
static int load(input *in)
{
    size_t frame = wnpu_frame_bytes(&in->inner), room = 0, have = 0;
    int64_t n = 1;
    while (n > 0) {
        if (have == room) {
            void *larger = room <= SIZE_MAX / 4 / frame
                               ? realloc(in->memory, (2 * room + 65536) * frame) : NULL;
            if (larger == NULL) {
                return fail(in, "too long for the memory of this machine");
            }
            in->memory = larger;
            room = 2 * room + 65536;
        }
        n = read_frames(in, (char *)in->memory + have * frame, room - have);
        have += n > 0 ? (size_t)n : 0;
    }
    in->audio.read = NULL;
    in->audio.user = NULL;
    in->audio.data = in->memory;
    in->audio.frames = have;
    return n == 0 || have > 0 ? 0 : fail(in, "%s", strerror(in->read_error));
}

/* The number of the centre channel in the layout, or INPUT_CENTRE. */
static int centre_of(const wnpu_audio *a)
{
    return (a->layout & 4) != 0 ? (int)((a->layout & 1) + (a->layout >> 1 & 1)) : INPUT_CENTRE;
}

static int open_input(input *in, const char *path, int given, const input_options *options)
{
    memset(in, 0, sizeof *in);
    wnpu_audio_init(&in->audio, sizeof in->audio);
    wnpu_audio_init(&in->inner, sizeof in->inner);
    in->path = path;
    in->given = given;
    in->from = *options;
    in->fd = -1;
    in->waiting = -1;
    in->child.child = in->child.in = in->child.out = in->child.err = -1;
    if (open_fd(in) != 0 || look(in) != 0 || open_samples(in) != 0) {
        return -1;
    }
    in->audio.channel = options->channel == INPUT_CENTRE ? centre_of(&in->inner)
                                                         : options->channel;
    if (in->audio.channel == INPUT_CENTRE) {
        return fail(in, "has no centre channel, or does not say which of its %u it is",
                    (unsigned)in->inner.channels);
    }
    if (options->channel >= (int)in->inner.channels) {
        return fail(in, "has no channel %d: it has %u, counted from 0", options->channel,
                    (unsigned)in->inner.channels);
    }
    in->audio.format = in->inner.format;
    in->audio.rate = in->inner.rate;
    in->audio.channels = in->inner.channels;
    in->audio.layout = in->inner.layout;
    in->audio.frames = in->inner.frames;
    if (in->uses_ffmpeg && in->child.duration_ms > 0 && !in->child.estimated) {
        in->audio.frames = frame_at(in, in->child.duration_ms);
    }
    if (options->n_clips > 0) {
        uint64_t end = frame_at(in, options->clips[options->n_clips - 1].t1_ms);
        in->audio.frames = in->audio.frames > end ? end : in->audio.frames;
    }
    in->audio.read = read_frames;
    in->audio.user = in;
    return options->whole ? load(in) : 0;
}

int input_parse_raw(wnpu_audio *raw, const char *value)
{
    static const struct {
        const char *name;
        int32_t format;
    } names[] = {
        {"u8", WNPU_SAMPLE_U8}, {"s16le", WNPU_SAMPLE_S16LE}, {"s24le", WNPU_SAMPLE_S24LE},
        {"s32le", WNPU_SAMPLE_S32LE}, {"f32le", WNPU_SAMPLE_F32LE}, {"f64le", WNPU_SAMPLE_F64LE},
        {"alaw", WNPU_SAMPLE_ALAW}, {"mulaw", WNPU_SAMPLE_ULAW}
    };
    size_t i, length = strcspn(value, ",");
    int rate = 16000, channels = 1, end = 0, known = 0;
    wnpu_audio_init(raw, sizeof *raw);
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i].name) == length && strncmp(value, names[i].name, length) == 0) {
            raw->format = names[i].format;
            known = 1;
        }
    }
    value += length;
    if (*value != '\0' && sscanf(value, ",%6d%n,%3d%n", &rate, &end, &channels, &end) >= 1) {
        value += end;
    }
    raw->rate = (uint32_t)rate;
    raw->channels = (uint32_t)channels;
    return known && *value == '\0' && rate >= 8000 && rate <= 192000 && channels >= 1 &&
           channels <= 256 ? 0 : -1;
}

int input_open(input *in, const char *path, const input_options *options)
{
    return open_input(in, path, strcmp(path, "-") == 0 ? 0 : -1, options);
}

int input_open_fd(input *in, int fd, const input_options *options)
{
    return open_input(in, "-", fd, options);
}

/* ---- damage ---- */

/* Whether an Ogg file, of which bytes are the end, is truncated: its last page is incomplete or not
 * marked as last. RFC 3533, section 6. */
static int ogg_is_cut(const unsigned char *bytes, size_t size)
{
    size_t at, i, length;
    for (at = size >= 27 ? size - 27 : 0; at > 0 && memcmp(bytes + at, "OggS", 4) != 0; at--) {
    }
    if (size < 27 || memcmp(bytes + at, "OggS", 4) != 0) {
        return 1;
    }
    length = 27 + (size_t)bytes[at + 26];
    for (i = 0; i < bytes[at + 26] && at + 27 + i < size; i++) {
        length += bytes[at + 27 + i];
    }
    return (bytes[at + 5] & 4) == 0 || length > size - at;
}

static int is_cut_ogg(input *in)
{
    unsigned char *tail = in->tail;
    size_t size = in->tail_size;
    int cut = 0;
    if (in->head_size < 4 || memcmp(in->head, "OggS", 4) != 0) {
        return 0;
    }
    if (in->seekable) {
        off_t end = lseek(in->fd, 0, SEEK_END);
        off_t from = end > (off_t)PAGE_MOST ? end - (off_t)PAGE_MOST : 0;
        ssize_t n;
        tail = malloc(PAGE_MOST);
        n = tail != NULL && end >= 0 ? pread(in->fd, tail, PAGE_MOST, from) : -1;
        size = n > 0 ? (size_t)n : 0;
        cut = n > 0 && ogg_is_cut(tail, size);
        free(tail);
        return cut;
    }
    return tail != NULL && ogg_is_cut(tail, size);
}

/* Whether an MP3 file consists of whole frames, and of what decoders complain about and skip. */
static int is_whole_mp3(input *in)
{
    unsigned char bytes[16384];
    off_t at = 0;
    ssize_t n = 1;
    if (in->seekable) {
        memset(&in->frames, 0, sizeof in->frames);
    }
    while (in->seekable && n > 0) {
        n = pread(in->fd, bytes, sizeof bytes, at);
        at += n > 0 ? n : 0;
        frames_follow(&in->frames, bytes, n > 0 ? (size_t)n : 0);
    }
    return frames_whole(&in->frames);
}

static input_state state_of_child(input *in)
{
    const char *why = ffmpeg_finish(&in->child);
    int64_t read_ms = (int64_t)(in->at / (in->inner.rate / 1000));
    int64_t duration = in->child.video || (in->child.estimated && !in->child.dss_ended)
                           ? -1 : in->child.duration_ms;
    why = in->ogg.why[0] != '\0' ? in->ogg.why : why;
    why = in->child.skipped_mp3 && is_whole_mp3(in) ? NULL : why;
    if (why != NULL) {
        (void)fail(in, "damaged or cut short: %s", why);
        return INPUT_CUT;
    }
    if (duration > 0 && read_ms + 500 + duration / 50 < duration) {
        (void)fail(in, "cut short: it holds %.1f s of sound, and %.1f s by its header",
                   (double)read_ms / 1e3, (double)duration / 1e3);
        return INPUT_CUT;
    }
    if (is_cut_ogg(in)) {
        (void)fail(in, "cut short: it has no last page");
        return INPUT_CUT;
    }
    return INPUT_WHOLE;
}

static input_state find_problems(input *in)
{
    if (in->read_error != 0) {
        (void)fail(in, "reading failed: %s", strerror(in->read_error));
        return INPUT_CUT;
    }
    if (!in->ended || *in->from.end) { /* ended by the run, the clips or the user */
        return INPUT_WHOLE;
    }
    if (in->uses_ffmpeg) {
        return state_of_child(in);
    }
    if (in->uses_wav && (in->wav.problems & WNPU_WAV_CUT) != 0) {
        (void)fail(in, "cut short: the file ends before its data chunk does");
        return INPUT_CUT;
    }
    if (in->uses_wav && (in->wav.problems & WNPU_WAV_LONGER) != 0) {
        (void)fail(in, "the data chunk's size is too small; the samples after it were read too");
        return INPUT_ODD;
    }
    return INPUT_WHOLE;
}

input_state input_finish(input *in)
{
    input_state state = find_problems(in);
    if (state == INPUT_WHOLE && in->ended && in->from.n_clips > 0 &&
        in->from.clips[0].t0_ms > 0 && in->at <= frame_at(in, in->from.clips[0].t0_ms)) {
        (void)fail(in, "ends at %.1f s, before the part to transcribe begins",
                   (double)in->at / in->inner.rate);
        return INPUT_ODD;
    }
    return state;
}

void input_close(input *in)
{
    if (in->uses_ffmpeg) {
        ffmpeg_close(&in->child);
    }
    if (in->fd >= 0) {
        close(in->fd);
    }
    free(in->head);
    free(in->tail);
    free(in->memory);
    memset(in, 0, sizeof *in);
    in->fd = -1;
}
