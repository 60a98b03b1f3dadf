/* vad_features.c - what the voice activity detector sees and says, for tests/speech/train_vad.py.
 *
 * usage: vad_features features|probabilities < samples > numbers
 *
 * In: native int16_t at 16 kHz mono, any number of recordings, each behind its length in samples
 * as int64_t. Out: native floats for each 20 ms of each recording: 52 features of the spectrum as
 * it is and 52 of the one with bands filled in, or one probability of speech. */
#include "../../whisper_npu.c"

typedef struct detector {
    va_detector v;
    ft_tables fft;
    void *memory;
} detector;

static int detector_open(detector *d)
{
    ar_arena arena;
    memset(&arena, 0, sizeof arena);
    va_carve(&arena, &d->v, VA_HISTORY);
    arena.size = arena.used;
    if (posix_memalign(&d->memory, AR_ALIGN, arena.size) != 0) {
        return -1;
    }
    arena.base = d->memory;
    arena.used = 0;
    va_carve(&arena, &d->v, VA_HISTORY);
    ft_init(&d->fft);
    va_prepare(&d->v, op_select(cp_best()), &d->fft);
    return 0;
}

/* Both steps of a block, without the network; at most `most` of them are written. */
static void features_of(va_detector *v, uint64_t most)
{
    float f[VA_INPUTS];
    size_t step;
    va_analyse(v);
    for (step = 0; step < 2; step++) {
        va_features(v, step, f);
        if (step < most) {
            fwrite(f, sizeof f, 1, stdout);
        }
        va_fill_bands(v, f);
        v->seen++;
        if (step < most) {
            fwrite(f, sizeof f, 1, stdout);
        }
    }
    v->have -= VA_BLOCK;
    memmove(v->x, v->x + VA_BLOCK, v->have * sizeof(float));
}

static void probabilities_of(va_detector *v, uint64_t said, uint64_t steps)
{
    va_block(v);
    for (; said < v->step && said < steps; said++) {
        float p = (float)v->history[said % VA_HISTORY] / 255.0f;
        fwrite(&p, sizeof p, 1, stdout);
    }
}

/* One recording of length samples. */
static int recording(va_detector *v, int64_t length, int features)
{
    static const va_rules rules = {2.0f, 2.0f, 1, 1, 0}; /* no spans are wanted */
    uint64_t steps = ((uint64_t)length + VA_STEP - 1) / VA_STEP, said = 0;
    va_begin(v, &rules);
    while (said < steps) {
        int16_t block[VA_BLOCK] = {0}; /* silence stands behind the end */
        size_t n = length < (int64_t)VA_BLOCK ? (size_t)length : VA_BLOCK, i;
        if (fread(block, sizeof *block, n, stdin) != n) {
            return -1;
        }
        length -= (int64_t)n;
        for (i = 0; i < VA_BLOCK; i++) {
            v->x[v->have + i] = (float)block[i] / 32768.0f;
        }
        v->have += VA_BLOCK;
        if (v->have >= VA_BUFFER && features) {
            features_of(v, steps - said);
            said += 2;
        } else if (v->have >= VA_BUFFER) {
            probabilities_of(v, said, steps);
            said = v->step;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    detector d;
    int features = argc == 2 && strcmp(argv[1], "features") == 0;
    int64_t length;
    if (!features && (argc != 2 || strcmp(argv[1], "probabilities") != 0)) {
        fprintf(stderr, "usage: vad_features features|probabilities < samples > numbers\n");
        return 1;
    }
    if (detector_open(&d) != 0) {
        fprintf(stderr, "vad_features: no memory\n");
        return 1;
    }
    while (fread(&length, sizeof length, 1, stdin) == 1) {
        if (recording(&d.v, length, features) != 0) {
            fprintf(stderr, "vad_features: the input ends early\n");
            return 1;
        }
    }
    free(d.memory);
    return 0;
}
