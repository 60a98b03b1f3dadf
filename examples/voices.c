/* voices.c - who says what in a WAV file, told by voices (wnpu_params.voices). Experimental.
 *     cc -I. examples/voices.c whisper_npu.c -o voices -lm -lpthread
 *
 * The library compares vectors of voices and the program makes them. voice_vector() stands for a
 * network here: it returns statistics of the spectrum, which know voices and microphones badly, see
 * "Speakers by voice" in examples/README.md. Put a speaker embedding in its place. */
#include <math.h>
#include <stdio.h>
#include "whisper_npu.h"

#define FRAME 512          /* samples, of which LENGTH are not zero */
#define LENGTH 400
#define HOP 160
#define BANDS 24
#define COEFFICIENTS 16    /* of the cepstrum, without the first, which is loudness */
#define DIMENSION (2 * COEFFICIENTS)
#define PI 3.14159265358979323846

/* Means and deviations of the statistics over recordings of 48 speakers. */
static const float statistics[2][DIMENSION] = {
    {1.849f, -0.148f, 0.694f, -0.233f, 0.124f, -0.213f, -0.021f, -0.051f,
     0.058f, -0.022f, 0.053f, -0.023f, 0.060f, -0.016f, 0.010f, -0.008f,
     0.872f, 0.514f, 0.507f, 0.374f, 0.287f, 0.290f, 0.256f, 0.229f,
     0.217f, 0.193f, 0.177f, 0.169f, 0.155f, 0.144f, 0.133f, 0.123f},
    {0.686f, 0.444f, 0.365f, 0.327f, 0.264f, 0.257f, 0.204f, 0.156f,
     0.146f, 0.131f, 0.139f, 0.113f, 0.083f, 0.073f, 0.052f, 0.051f,
     0.297f, 0.091f, 0.081f, 0.064f, 0.048f, 0.050f, 0.059f, 0.050f,
     0.050f, 0.046f, 0.043f, 0.041f, 0.037f, 0.037f, 0.035f, 0.032f}
};

/* Fourier transform of FRAME complex numbers, in place. */
static void transform(double *re, double *im)
{
    size_t i, j = 0, k, n, bit;
    for (i = 1; i < FRAME; i++) {
        for (bit = FRAME / 2; j & bit; bit /= 2) {
            j ^= bit;
        }
        j ^= bit;
        if (i < j) {
            double x = re[i], y = im[i];
            re[i] = re[j], im[i] = im[j], re[j] = x, im[j] = y;
        }
    }
    for (n = 1; n < FRAME; n *= 2) {
        for (k = 0; k < n; k++) {
            double c = cos(PI * (double)k / (double)n), s = -sin(PI * (double)k / (double)n);
            for (i = k; i < FRAME; i += 2 * n) {
                double x = c * re[i + n] - s * im[i + n], y = c * im[i + n] + s * re[i + n];
                re[i + n] = re[i] - x, im[i + n] = im[i] - y, re[i] += x, im[i] += y;
            }
        }
    }
}

/* Bin at the edge of a mel band: 0 to BANDS + 1 are at 100 to 7600 Hz. */
static double edge(int band)
{
    double low = log(1 + 100 / 700.0), high = log(1 + 7600 / 700.0);
    return 700 * (exp(low + (high - low) * band / (BANDS + 1)) - 1) * FRAME / 16000;
}

/* The cepstrum of a frame. Returns its energy. */
static double cepstrum(const float *x, double *out)
{
    double re[FRAME] = {0}, im[FRAME] = {0}, power[BANDS], energy = 0;
    int i, b, k;
    for (i = 0; i < LENGTH; i++) {
        re[i] = (double)x[i] * (0.5 - 0.5 * cos(2 * PI * i / LENGTH));
        energy += (double)x[i] * (double)x[i];
    }
    transform(re, im);
    for (b = 0; b < BANDS; b++) {
        double from = edge(b), top = edge(b + 1), to = edge(b + 2), sum = 1e-9;
        for (i = (int)ceil(from); i < to; i++) {
            double weight = i < top ? (i - from) / (top - from) : (to - i) / (to - top);
            sum += weight * (re[i] * re[i] + im[i] * im[i]);
        }
        power[b] = log(sum);
    }
    for (k = 0; k < COEFFICIENTS; k++) {
        out[k] = 0;
        for (b = 0; b < BANDS; b++) {
            out[k] += power[b] * cos(PI * (k + 1) * (b + 0.5) / BANDS) / BANDS;
        }
    }
    return energy;
}

/* Mean and deviation of the cepstrum over the frames that are not quiet. Returns how many there
 * are. */
static size_t describe(const float *samples, size_t n, float *vector)
{
    double sum[COEFFICIENTS] = {0}, squares[COEFFICIENTS] = {0}, c[COEFFICIENTS], loud = 0;
    size_t at, frames = 0;
    int k;
    for (at = 0; at < n; at++) {
        loud += (double)samples[at] * (double)samples[at] / (double)n * LENGTH;
    }
    for (at = 0; at + LENGTH <= n; at += HOP) {
        if (cepstrum(samples + at, c) > 0.3 * loud) {
            for (k = 0; k < COEFFICIENTS; k++) {
                sum[k] += c[k];
                squares[k] += c[k] * c[k];
            }
            frames++;
        }
    }
    for (k = 0; k < COEFFICIENTS && frames > 0; k++) {
        double mean = sum[k] / (double)frames, rest = squares[k] / (double)frames - mean * mean;
        vector[k] = (float)mean;
        vector[COEFFICIENTS + k] = (float)sqrt(rest > 0 ? rest : 0);
    }
    return frames;
}

/* The hook: n samples at 16 kHz, DIMENSION numbers. Returns 0, or -1 if there is no vector. */
static int voice_vector(void *user, const float *samples, size_t n, float *vector)
{
    size_t frames = describe(samples, n, vector), k;
    (void)user;
    for (k = 0; k < DIMENSION; k++) {
        vector[k] = (vector[k] - statistics[0][k]) / statistics[1][k];
    }
    return frames > 0 ? 0 : -1;
}

static void print(const wnpu_session *session)
{
    wnpu_segment segment;
    size_t i;
    for (i = 0; wnpu_get_segment(session, i, &segment) == WNPU_OK; i++) {
        if (segment.speaker > 0) {
            printf("Speaker %d:%s\n", (int)segment.speaker, segment.text);
        } else {
            printf("Unknown:%s\n", segment.text);
        }
    }
}

int main(int argc, char **argv)
{
    static unsigned char wav[64 << 20]; /* 35 minutes of 16 kHz mono */
    wnpu_model *model = NULL;
    wnpu_session *session = NULL;
    wnpu_config config;
    wnpu_params params;
    wnpu_audio audio;
    wnpu_error error = {0, ""};
    size_t size;
    int status = -1;
    FILE *file = argc == 3 || argc == 4 ? fopen(argv[2], "rb") : NULL;
    if (file == NULL) {
        fprintf(stderr, "usage: voices MODEL.bin RECORDING.wav [SPEAKERS]\n");
        return 1;
    }
    size = fread(wav, 1, sizeof wav, file);
    fclose(file);
    wnpu_config_init(&config, sizeof config);
    config.voice_dimension = DIMENSION;
    wnpu_params_init(&params, sizeof params);
    params.words = 1;            /* turns within segments */
    params.on_voice = voice_vector;
    wnpu_audio_init(&audio, sizeof audio);
    if (wnpu_params_set(&params, "voices", argc == 4 ? argv[3] : "-1", &error) == WNPU_OK &&
        wnpu_model_open(&model, argv[1], NULL, &error) == WNPU_OK &&
        wnpu_session_open(&session, model, &config, NULL, 0, &error) == WNPU_OK &&
        wnpu_wav_open(&audio, wav, size, &error) == WNPU_OK) {
        status = wnpu_transcribe(session, &params, &audio);
        print(session);
    }
    if (status != WNPU_OK) {
        fprintf(stderr, "%s\n", error.code ? error.message : wnpu_session_error(session));
    }
    wnpu_session_close(session);
    wnpu_model_close(model);
    return status != WNPU_OK;
}
