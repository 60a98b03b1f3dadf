/*
 * pipe.c - see pipe.h.
 */
#define _XOPEN_SOURCE 700
#include "pipe.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t stopped;
static unsigned char head[4];          /* the first bytes, read before the others */
static size_t n_head, head_at;

static void stop(int number)
{
    stopped = number;
}

/* As read() of standard input, but returns 0 soon after a signal, even if it came just before. */
static ssize_t read_input(void *buffer, size_t size)
{
    struct pollfd input = {0, POLLIN, 0};
    ssize_t n = -1;
    while (!stopped && n < 0) {
        if (poll(&input, 1, 100) > 0 && (n = read(0, buffer, size)) < 0 && errno != EINTR) {
            return n;
        }
    }
    return n < 0 ? 0 : n;
}

static int64_t read_bytes(void *user, void *buffer, size_t size)
{
    (void)user;
    if (head_at < n_head) {
        *(unsigned char *)buffer = head[head_at++];
        return 1;
    }
    return read_input(buffer, size);
}

/* Whole samples of two bytes. */
static int64_t read_samples(void *user, void *buffer, size_t frames)
{
    size_t n = 0;
    int64_t got = 1;
    for (; got > 0 && (n == 0 || n % 2 != 0); n += got > 0 ? (size_t)got : 0) {
        got = read_bytes(user, (char *)buffer + n, n % 2 != 0 ? 1 : 2 * frames);
    }
    return got < 0 ? got : (int64_t)(n / 2);
}

/* Whether the head is that of MP3 with a tag, FLAC, Ogg or Matroska. */
static int is_compressed(void)
{
    return n_head == 4 && (memcmp(head, "ID3", 3) == 0 || memcmp(head, "fLaC", 4) == 0 ||
                           memcmp(head, "OggS", 4) == 0 ||
                           memcmp(head, "\x1a\x45\xdf\xa3", 4) == 0);
}

int pipe_open(wnpu_audio *audio, wnpu_error *error)
{
    static wnpu_wav_reader reader;
    struct sigaction on_stop;
    ssize_t n = 0;
    memset(&on_stop, 0, sizeof on_stop);
    on_stop.sa_handler = stop;         /* a read that waits returns */
    (void)sigaction(SIGINT, &on_stop, NULL);
    (void)sigaction(SIGTERM, &on_stop, NULL);
    while (n_head < 4 && (n = read_input(head + n_head, 4 - n_head)) > 0) {
        n_head += (size_t)n;
    }
    if (n < 0) {
        error->code = WNPU_E_IO;
        (void)snprintf(error->message, sizeof error->message, "standard input cannot be read: %s",
                       strerror(errno));
        return WNPU_E_IO;
    }
    if (is_compressed()) {
        error->code = WNPU_E_AUDIO;
        (void)snprintf(error->message, sizeof error->message, "the input is compressed; convert it "
                       "first: ffmpeg -i FILE -f s16le -ar 16000 -ac 1 - | listen ...");
        return WNPU_E_AUDIO;
    }
    wnpu_audio_init(audio, sizeof *audio);
    audio->format = WNPU_SAMPLE_S16LE;
    audio->read = read_samples;
    if (n_head < 4 || (memcmp(head, "RIFF", 4) != 0 && memcmp(head, "RF64", 4) != 0 &&
                       memcmp(head, "BW64", 4) != 0)) {
        return WNPU_OK;
    }
    wnpu_wav_reader_init(&reader, sizeof reader);
    reader.read = read_bytes;
    return wnpu_wav_reader_open(&reader, audio, error);
}
