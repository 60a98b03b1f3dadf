/* live.c - transcribes sound while it is recorded: 16-bit samples, 16 kHz, mono, on standard input.
 *     cc -I. examples/live.c whisper_npu.c -o live -lm -lpthread
 *     arecord -q -f S16_LE -r 16000 -t raw | ./live MODEL.bin
 *     ffmpeg -v error -i FILE -f s16le -ar 16000 -ac 1 - | ./live MODEL.bin
 * While a window is decoded, samples wait in the pipe, which holds 2 s. Where that takes longer, a
 * thread of its own should push them, as in examples/listen. Exit status: 0, 1 after an error, or 2
 * if some speech has no text. */
#include <stdio.h>
#include "whisper_npu.h"

/* Prints the segments that are final since the last call, from number *n on. */
static void print_new(const wnpu_session *session, size_t *n)
{
    wnpu_segment segment;
    for (; wnpu_get_segment(session, *n, &segment) == WNPU_OK; ++*n)
        printf("%.2f s:%s\n", (double)segment.t0_ms / 1000, segment.text);
    fflush(stdout);
}

/* Reads, pushes, decodes and prints until the end of the sound. Returns a status. */
static int transcribe(wnpu_session *session)
{
    int16_t samples[1600]; /* 100 ms */
    size_t n, printed = 0;
    uint32_t events;
    int status = wnpu_stream_begin(session, NULL, NULL); /* the defaults for live sound */

    while (status == WNPU_OK && (n = fread(samples, sizeof samples[0], 1600, stdin)) > 0) {
        wnpu_stream_push(session, samples, n); /* there is room for it after each step */
        do {
            status = wnpu_stream_step(session, &events);
            print_new(session, &printed);
        } while (status == WNPU_OK && (events & WNPU_EVENT_MORE));
    }
    if (status == WNPU_OK)
        status = wnpu_stream_finish(session); /* decodes the rest */
    print_new(session, &printed);
    return status;
}

int main(int argc, char **argv)
{
    wnpu_model *model = NULL;
    wnpu_session *session = NULL;
    wnpu_config config;
    wnpu_error error = {0, ""};
    int status = -1;

    if (argc != 2) {
        fprintf(stderr, "usage: live MODEL.bin <SAMPLES\n");
        return 1;
    }
    wnpu_config_init(&config, sizeof config);
    config.stream_bytes = 320000; /* 10 s that were pushed and not decoded yet */
    if (wnpu_model_open(&model, argv[1], NULL, &error) == WNPU_OK &&
        wnpu_session_open(&session, model, &config, NULL, 0, &error) == WNPU_OK)
        status = transcribe(session);
    if (status != WNPU_OK)
        fprintf(stderr, "%s\n", error.code ? error.message : wnpu_session_error(session));
    if (ferror(stdin) || ferror(stdout)) {
        fprintf(stderr, "standard %s\n", ferror(stdin) ? "input cannot be read" : "output failed");
        status = -1;
    }
    wnpu_session_close(session);
    wnpu_model_close(model);
    return status < 0 ? 1 : status == WNPU_INCOMPLETE ? 2 : 0;
}
