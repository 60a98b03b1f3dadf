/* frames.c - see frames.h */
#include "frames.h"

#include <string.h>

#define LEAD_MOST 1500u     /* bytes; longer than a frame */
#define PADDING_MOST 65536u /* zeros; more are what was not downloaded yet */
#define ZEROS_MOST 8u       /* at the end of a frame; after more, zeros may have replaced frames */

size_t frame_length(const unsigned char b[])
{
    static const int rates[] = {44100, 48000, 32000, 1}; /* of MPEG 1 */
    static const int kbits[2][16] = {
        {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0},
        {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0}};
    int version = b[1] >> 3 & 3;       /* 3: MPEG 1, 2: MPEG 2, 0: MPEG 2.5 */
    int low = version != 3, slower = version == 0 ? 4 : 1 + low, bytes;
    if (b[0] == 0xff && (b[1] & 0xf6) == 0xf0 && (b[2] >> 2 & 15) < 13) {
        return (size_t)(b[3] & 3) << 11 | (size_t)b[4] << 3 | b[5] >> 5;
    }
    if (b[0] != 0xff || (b[1] & 0xe6) != 0xe2 || version == 1 || (b[2] >> 2 & 3) == 3) {
        return 0;
    }
    bytes = (low ? 72000 : 144000) * kbits[low][b[2] >> 4] * slower / rates[b[2] >> 2 & 3];
    return (size_t)(bytes + (b[2] >> 1 & 1));
}

static int begins(const frame_walk *f, const char *with)
{
    return memcmp(f->bytes, with, strlen(with)) == 0;
}

/* The length of the tag that begins at the bytes at hand, or 0. */
static uint64_t tag_length(const frame_walk *f)
{
    const unsigned char *b = f->bytes;
    if (begins(f, "ID3") && (b[6] | b[7] | b[8] | b[9]) < 0x80) {
        return (uint64_t)((b[5] & 0x10) != 0 ? 20 : 10) + ((uint64_t)b[6] << 21 |
               (uint64_t)b[7] << 14 | (uint64_t)b[8] << 7 | (uint64_t)b[9]);
    }
    if (begins(f, "APETAGEX")) {
        uint64_t size = (uint64_t)b[12] | (uint64_t)b[13] << 8 | (uint64_t)b[14] << 16 |
                        (uint64_t)b[15] << 24;
        return (b[23] & 0x20) != 0 ? 32 + size : 32; /* a header, or the footer */
    }
    return begins(f, "TAG+") ? 227 : begins(f, "TAG") ? 128 : 0;
}

/* The length of what begins at the bytes at hand, 0 if it is none of what may be there. */
static uint64_t next_length(frame_walk *f)
{
    size_t n = 0, frame = frame_length(f->bytes);
    if (f->in_lyrics) {
        f->in_lyrics = !begins(f, "LYRICS200") && !begins(f, "LYRICSEND");
        return f->in_lyrics ? 1 : 9;
    }
    if (frame >= 7) {
        f->in_frame = 1;
        f->zeros = 0;
        f->n_frames++;
        return frame;
    }
    while (n < f->have && f->bytes[n] == 0) {
        n++;
    }
    f->padding = n > 0 ? f->padding + n : 0;
    if (n > 0 && f->n_frames > 0) {
        return f->zeros > ZEROS_MOST || f->padding > PADDING_MOST ? 0 : n;
    }
    f->in_lyrics = begins(f, "LYRICSBEGIN");
    n = (size_t)tag_length(f);
    return n > 0 ? n : f->in_lyrics ? 11 : f->n_frames == 0 && f->lead++ < LEAD_MOST ? 1 : 0;
}

static void pass(frame_walk *f, const unsigned char *bytes, size_t n)
{
    size_t i;
    for (i = 0; f->in_frame && i < n; i++) {
        f->zeros = bytes[i] == 0 ? f->zeros + 1 : 0;
    }
    f->skip -= n;
    f->in_frame = f->in_frame && f->skip > 0;
}

static void decide(frame_walk *f)
{
    size_t n;
    f->skip = next_length(f);
    f->lost |= f->skip == 0;
    n = f->skip < f->have ? (size_t)f->skip : f->have;
    pass(f, f->bytes, n);
    f->have -= n;
    memmove(f->bytes, f->bytes + n, f->have);
}

void frames_follow(frame_walk *f, const unsigned char *bytes, size_t n)
{
    while (n > 0 && !f->lost) {
        size_t step = f->skip > 0 ? (f->skip < n ? (size_t)f->skip : n)
                                  : sizeof f->bytes - f->have;
        step = step < n ? step : n;
        if (f->skip > 0) {
            pass(f, bytes, step);
        } else {
            memcpy(f->bytes + f->have, bytes, step);
            f->have += step;
        }
        if (f->have == sizeof f->bytes) {
            decide(f);
        }
        bytes += step;
        n -= step;
    }
}

int frames_whole(frame_walk *f)
{
    while (f->have > 0 && f->skip == 0 && !f->lost) {
        memset(f->bytes + f->have, 0, sizeof f->bytes - f->have);
        decide(f);
    }
    return f->n_frames > 0 && !f->lost && !f->in_lyrics && !f->in_frame;
}
