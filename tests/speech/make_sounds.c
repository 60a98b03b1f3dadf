/* make_sounds.c - sounds in which nobody speaks, as WAV files at 16 kHz mono.
 *
 * usage: make_sounds KIND SECONDS SEED > FILE        make_sounds (lists the kinds)
 *
 * tests/speech/test_voice.sh transcribes them: every word that comes out is invented. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RATE 16000
#define PI 3.14159265358979323846

static uint32_t state;

/* 0..1 */
static double chance(void)
{
    state = state * 1664525u + 1013904223u;
    return (double)(state >> 8) / 16777216.0;
}

static double between(double low, double high)
{
    return low + (high - low) * chance();
}

static double normal(void)
{
    return sqrt(-2 * log(chance() + 1e-9)) * cos(2 * PI * chance());
}

static double hertz(int midi)
{
    return 440.0 * pow(2.0, (midi - 69) / 12.0);
}

typedef void maker(float *x, size_t n);

static void silence(float *x, size_t n) { memset(x, 0, n * sizeof *x); }

static void last_bit(float *x, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        x[i] = (float)(normal() * 0.7 / 32768);
    }
}

static void white(float *x, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        x[i] = (float)(0.1 * normal());
    }
}

/* Voss's sum of random values that change every 2^k samples. */
static void pink(float *x, size_t n)
{
    double held[12] = {0};
    size_t i, k;
    for (i = 0; i < n; i++) {
        double sum = 0;
        for (k = 0; k < 12; k++) {
            held[k] = i % ((size_t)1 << k) == 0 ? normal() : held[k];
            sum += held[k];
        }
        x[i] = (float)(0.04 * sum);
    }
}

static void brown(float *x, size_t n)
{
    double y = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        y = 0.998 * y + 0.02 * normal();
        x[i] = (float)y * 0.5f;
    }
}

/* Noise through a wandering resonance, with a wandering level. */
static void wind(float *x, size_t n)
{
    double a = 0, b = 0, f = 300, level = 0.5, f_to = 300, level_to = 0.5;
    size_t i;
    for (i = 0; i < n; i++) {
        double w, y;
        if (i % 4000 == 0) {
            f_to = between(150, 900);
            level_to = between(0.02, 1);
        }
        f += (f_to - f) * 2e-4;
        level += (level_to - level) * 2e-4;
        w = 2 * PI * f / RATE;
        y = 0.02 * normal() + 1.98 * cos(w) * a - 0.9801 * b;
        b = a;
        a = y;
        x[i] = (float)(y * level * 0.5);
    }
}

static void hum(float *x, size_t n)
{
    size_t i;
    int k;
    for (i = 0; i < n; i++) {
        double y = 0.002 * normal();
        for (k = 1; k < 14; k++) {
            y += 0.2 / k * sin(2 * PI * 50.0 * k * (double)i / RATE + k * k);
        }
        x[i] = (float)y;
    }
}

static void tone(float *x, size_t n)
{
    double f = between(150, 2000);
    size_t i;
    for (i = 0; i < n; i++) {
        x[i] = (float)(0.3 * sin(2 * PI * f * (double)i / RATE));
    }
}

static void sweep(float *x, size_t n)
{
    double phase = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        double at = fmod((double)i / RATE, 10.0) / 10.0;
        phase += 2 * PI * 60.0 * pow(120.0, at) / RATE;
        x[i] = (float)(0.3 * sin(phase));
    }
}

/* Ringing, engaged and dialling tones, keys, a fax. */
static void telephone(float *x, size_t n)
{
    static const int keys[16][2] = {
        {697, 1209}, {697, 1336}, {697, 1477}, {770, 1209}, {770, 1336}, {770, 1477}, {852, 1209},
        {852, 1336}, {852, 1477}, {941, 1336}, {440, 480}, {440, 480}, {480, 620}, {350, 440},
        {1100, 1100}, {425, 425}
    };
    size_t at = 0, i;
    while (at < n) {
        int kind = (int)between(0, 15.999);
        size_t on = (size_t)(RATE * (kind < 10 ? 0.1 : kind < 12 ? 2.0 : 0.5)), off = on;
        for (i = 0; i < on + off && at < n; i++, at++) {
            double t = (double)i / RATE;
            x[at] = (float)(i < on ? 0.15 * (sin(2 * PI * keys[kind][0] * t) +
                                             sin(2 * PI * keys[kind][1] * t)) : 0.0);
        }
    }
}

static void siren(float *x, size_t n)
{
    double phase = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        phase += 2 * PI * (900 + 500 * sin(2 * PI * 0.3 * (double)i / RATE)) / RATE;
        x[i] = (float)(0.2 * sin(phase) + 0.06 * sin(2 * phase));
    }
}

/* Bursts of noise: keys, knocks, steps. */
static void clicks(float *x, size_t n)
{
    size_t i;
    double level = 0, f = 1000, at = 0;
    for (i = 0; i < n; i++) {
        if (chance() < 5.0 / RATE) {
            level = between(0.1, 0.8);
            f = between(200, 5000);
            at = between(0.0005, 0.006);
        }
        level *= 1 - at;
        x[i] = (float)(level * (0.5 * sin(2 * PI * f * (double)i / RATE) + 0.3 * normal()) +
                       0.001 * normal());
    }
}

static void engine(float *x, size_t n)
{
    double phase = 0, f = 40, f_to = 60, low = 0;
    size_t i;
    int k;
    for (i = 0; i < n; i++) {
        double y = 0;
        if (i % 16000 == 0) {
            f_to = between(25, 120);
        }
        f += (f_to - f) * 1e-4;
        phase += 2 * PI * f / RATE;
        for (k = 1; k < 16; k++) {
            y += sin(k * phase + k) / (1 + fabs(k - 4.0));
        }
        low = 0.9 * low + 0.1 * normal();
        x[i] = (float)(0.1 * y + 0.2 * low);
    }
}

static void birds(float *x, size_t n)
{
    double left = 0, f = 3000, slope = 0, phase = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        if (left <= 0 && chance() < 4.0 / RATE) {
            left = between(0.05, 0.3) * RATE;
            f = between(2000, 6000);
            slope = between(-1, 1) * 2000 / RATE;
        }
        left -= 1;
        f += slope;
        phase += 2 * PI * f / RATE;
        x[i] = (float)((left > 0 ? 0.2 * sin(phase) : 0.0) + 0.002 * normal());
    }
}

/* Adds one note: harmonics that fall by rolloff, a vibrato in parts of the pitch, a decay. */
static void note(float *x, size_t n, size_t at, double seconds, double f, double rolloff,
                 double vibrato, double decay, double level)
{
    size_t i, length = (size_t)(seconds * RATE);
    double phase = between(0, 6);
    for (i = 0; i < length && at + i < n; i++) {
        double t = (double)i / RATE, rest = seconds - t, y = 0;
        int k;
        phase += 2 * PI * f * (1 + vibrato * sin(2 * PI * 5.5 * t)) / RATE;
        for (k = 1; k < 20 && k * f < 7000; k++) {
            y += sin(k * phase) * pow(k, -rolloff) * exp(-decay * t * k);
        }
        x[at + i] += (float)(level * y * fmin(1, t * 60) * fmin(1, rest * 40));
    }
}

static const int scale[] = {0, 2, 4, 5, 7, 9, 11, 12, 14, 16};

static void chords(float *x, size_t n)
{
    size_t at;
    silence(x, n);
    for (at = 0; at < n; at += RATE * 2) {
        int root = (int)between(0, 5.999), k;
        for (k = 0; k < 6; k += 2) {
            note(x, n, at, 2.1, hertz(48 + scale[root + k / 2]), 1.2, 0.003, 0, 0.08);
            note(x, n, at, 2.1, hertz(60 + scale[root + k / 2]), 1.5, 0.005, 0, 0.05);
        }
    }
}

/* A voice-like melody: legato, with vibrato, around the pitch of speech. */
static void violin(float *x, size_t n)
{
    size_t at = 0;
    silence(x, n);
    while (at < n) {
        double seconds = 0.2 * (1 + floor(between(0, 4.999)));
        note(x, n, at, seconds * 1.1, hertz(57 + scale[(int)between(0, 9.999)]), 1.0, 0.012, 0,
             0.12);
        at += (size_t)(seconds * RATE);
    }
}

static void piano(float *x, size_t n)
{
    size_t at;
    silence(x, n);
    for (at = 0; at < n; at += RATE / 4) {
        if (chance() < 0.7) {
            note(x, n, at, 1.5, hertz(60 + scale[(int)between(0, 9.999)]), 1.3, 0, 1.5, 0.12);
        }
        if (at % RATE == 0) {
            note(x, n, at, 2, hertz(36 + scale[(int)between(0, 4.999)]), 1.1, 0, 0.8, 0.15);
        }
    }
}

static void add_drums(float *x, size_t n)
{
    size_t at, i;
    for (at = 0; at < n; at += RATE / 4) {
        int hit = (int)(at / (RATE / 4)) % 4;
        for (i = 0; i < RATE / 4 && at + i < n; i++) {
            double t = (double)i / RATE;
            double kick = hit == 0 ? 0.5 * sin(2 * PI * (50 + 80 * exp(-t * 30)) * t) *
                                     exp(-t * 12) : 0;
            double snare = hit == 2 ? 0.2 * normal() * exp(-t * 18) : 0;
            x[at + i] += (float)(kick + snare + 0.05 * normal() * exp(-t * 80));
        }
    }
}

static void drums(float *x, size_t n)
{
    silence(x, n);
    add_drums(x, n);
}

static void band(float *x, size_t n)
{
    size_t i;
    piano(x, n);
    add_drums(x, n);
    for (i = 0; i + 8000 < n; i += 8000) {
        note(x, n, i, 0.5, hertz(36 + scale[(int)between(0, 4.999)]), 0.8, 0, 1, 0.15);
        if (chance() < 0.6) {
            note(x, n, i, between(0.3, 1), hertz(67 + scale[(int)between(0, 7.999)]), 0.8, 0.01, 0,
                 0.06);
        }
    }
}

static void bells(float *x, size_t n)
{
    static const double partials[] = {0.5, 1, 1.19, 1.5, 2, 2.74, 3.76};
    size_t at = 0, k;
    silence(x, n);
    while (at < n) {
        double f = hertz(60 + scale[(int)between(0, 9.999)]);
        for (k = 0; k < 7; k++) {
            note(x, n, at, 3, f * partials[k], 20, 0, 1 + 0.4 * (double)k, 0.1);
        }
        at += (size_t)(between(0.5, 2) * RATE);
    }
}

static const struct {
    const char *name;
    maker *make;
} kinds[] = {
    {"silence", silence}, {"last_bit", last_bit}, {"white", white}, {"pink", pink},
    {"brown", brown}, {"wind", wind}, {"hum", hum}, {"tone", tone}, {"sweep", sweep},
    {"telephone", telephone}, {"siren", siren}, {"clicks", clicks}, {"engine", engine},
    {"birds", birds}, {"chords", chords}, {"violin", violin}, {"piano", piano}, {"drums", drums},
    {"band", band}, {"bells", bells}
};
#define KINDS (sizeof kinds / sizeof kinds[0])

static void put(uint32_t value, int bytes)
{
    for (; bytes > 0; bytes--, value >>= 8) {
        putchar((int)(value & 255));
    }
}

int main(int argc, char **argv)
{
    size_t n = argc == 4 ? (size_t)(atof(argv[2]) * RATE) : 0, i, k;
    float *x = calloc(n + 1, sizeof *x);
    for (k = 0; argc == 4 && k < KINDS && strcmp(kinds[k].name, argv[1]) != 0; k++) {
    }
    if (argc != 4 || k == KINDS || n == 0 || x == NULL) {
        for (k = 0; k < KINDS; k++) {
            puts(kinds[k].name);
        }
        return argc == 1 ? 0 : 1;
    }
    state = (uint32_t)atoi(argv[3]) * 2654435761u + 1u;
    kinds[k].make(x, n);
    fputs("RIFF", stdout);
    put((uint32_t)n * 2 + 36, 4);
    fputs("WAVEfmt ", stdout);
    put(16, 4);
    put(1 | 1 << 16, 4);
    put(RATE, 4);
    put(RATE * 2, 4);
    put(2 | 16 << 16, 4);
    fputs("data", stdout);
    put((uint32_t)n * 2, 4);
    for (i = 0; i < n; i++) {
        double y = x[i] > 1 ? 1 : x[i] < -1 ? -1 : x[i];
        put((uint32_t)(int32_t)lrint(y * 32767), 2);
    }
    free(x);
    return fflush(stdout) != 0;
}
