/* frames.h - the frames of compressed audio without a container: AAC (ADTS) and MP3. */
#ifndef FRAMES_H
#define FRAMES_H

#include <stddef.h>
#include <stdint.h>

/* The length of the frame of AAC in ADTS or of MP3 whose header begins at b[6], or 0. */
size_t frame_length(const unsigned char b[]);

/* Follows a file from frame to frame. Between them may be what a decoder skips without losing any:
 * tags (ID3, APE, Lyrics3) and padding with zeros; also the end of a frame before the first one. */
typedef struct frame_walk {
    unsigned char bytes[32];  /* those that the next decision is made from */
    size_t have;
    uint64_t skip;            /* bytes that follow and belong to what was decided */
    int in_frame;             /* those of a frame */
    unsigned zeros;           /* at the end of the bytes of a frame so far */
    uint64_t n_frames;
    unsigned lead;            /* bytes before the first frame */
    size_t padding;           /* zeros in a row */
    int in_lyrics;
    int lost;                 /* there is something else */
} frame_walk;

/* Appends n bytes. f is all zeros at first. */
void frames_follow(frame_walk *f, const unsigned char *bytes, size_t n);
/* At the end. Returns 1 if the file consists of whole frames and what may be between them. */
int frames_whole(frame_walk *f);

#endif
