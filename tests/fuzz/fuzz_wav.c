/* fuzz_wav.c - libFuzzer target: any bytes as a WAV file, read to the end through the resampler.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined tests/fuzz/fuzz_wav.c \
 *         -o fuzz_wav -lm -lpthread
 *
 * The input is copied to a block of exactly its size, so that a byte read past it is seen. */
#include "../../whisper_npu.c"

#define FUZZ_SAMPLES 20000u /* of output; what follows is more of the same */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static au_stream *fuzz_stream(void)
{
    static au_stream *stream; /* taken once: its filter bank is what costs */
    if (stream == NULL) {
        ar_arena arena;
        memset(&arena, 0, sizeof arena);
        au_stream_carve(&arena, &stream);
        arena.size = arena.used;
        arena.base = ar_malloc(NULL, arena.size, AR_ALIGN);
        arena.used = 0;
        au_stream_carve(&arena, &stream);
    }
    return stream;
}

typedef struct fuzz_pipe {
    const uint8_t *bytes;
    size_t left;
} fuzz_pipe;

static int64_t fuzz_read(void *user, void *buffer, size_t size)
{
    fuzz_pipe *p = user;
    size_t n = size > 1 ? size / 2 : size;
    n = n < p->left ? n : p->left;
    if (n > 0) {
        memcpy(buffer, p->bytes, n);
    }
    p->bytes += n;
    p->left -= n;
    return (int64_t)n;
}

/* The same bytes as a stream: at least the frames of memory, and the same bits. */
static void fuzz_as_stream(const uint8_t *bytes, size_t size, const wnpu_audio *memory)
{
    static unsigned char block[4096];
    fuzz_pipe pipe = {bytes, size};
    wnpu_wav_reader reader;
    wnpu_audio audio;
    wnpu_error error;
    uint64_t at = 0;
    int64_t n;
    wnpu_audio_init(&audio, sizeof audio);
    wnpu_wav_reader_init(&reader, sizeof reader);
    reader.read = fuzz_read;
    reader.user = &pipe;
    if (wnpu_wav_reader_open(&reader, &audio, &error) == WNPU_OK) {
        size_t frame = audio.channels * (size_t)au_widths[audio.format];
        while ((n = audio.read(audio.user, block, sizeof block / frame)) > 0) {
            size_t i, same = at < memory->frames ? (size_t)(memory->frames - at) * frame : 0;
            const unsigned char *want = memory->data;
            for (i = 0; i < (size_t)n * frame && i < same; i++) {
                if (block[i] != want[(size_t)at * frame + i]) {
                    abort();
                }
            }
            at += (uint64_t)n;
        }
        if (n < 0 || at < memory->frames) {
            abort();
        }
    } else if (error.message[0] == '\0') {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static float out[1024];
    au_stream *stream = fuzz_stream();
    unsigned char *copy = malloc(size > 0 ? size : 1);
    size_t total = 0;
    wnpu_audio audio;
    wnpu_error error;
    if (copy == NULL || stream == NULL) {
        abort();
    }
    if (size > 0) {
        memcpy(copy, bytes, size);
    }
    wnpu_audio_init(&audio, sizeof audio);
    if (wnpu_wav_open(&audio, copy, size, &error) == WNPU_OK) {
        uint64_t expected = (audio.frames * 16000u + audio.rate - 1) / audio.rate;
        if (audio.frames == 0 || (const unsigned char *)audio.data < copy ||
            au_open(stream, &audio, &error) != WNPU_OK) {
            abort(); /* what wnpu_wav_open() accepts must be legal */
        }
        while (total < FUZZ_SAMPLES) {
            size_t i, ask = 1 + total % 1024;
            int64_t got = au_read(stream, out, ask, &error);
            if (got < 0 || (uint64_t)got > ask) {
                abort();
            }
            for (i = 0; i < (size_t)got; i++) {
                if (!(fabsf(out[i]) <= 64.0f)) {
                    abort(); /* NaN, infinite or beyond what the filter can make of -4..4 */
                }
            }
            total += (size_t)got;
            if ((size_t)got < ask) {
                if (total != expected) {
                    abort();
                }
                break;
            }
        }
    } else if (audio.frames != 0 || audio.data != NULL || error.message[0] == '\0') {
        abort();
    }
    fuzz_as_stream(copy, size, &audio);
    free(copy);
    return 0;
}
