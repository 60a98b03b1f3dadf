/* voicelike.h - a sound that the voice activity detector takes for speech. */
#ifndef VOICELIKE_H
#define VOICELIKE_H
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define VOICE_PI 3.14159265358979323846

static uint32_t voice_seed = 5;

__attribute__((unused)) static double voice_chance(void)
{
    voice_seed = voice_seed * 1664525u + 1013904223u;
    return (double)(voice_seed >> 8) / 16777216.0;
}

/* Vowels of a changing pitch with pauses in between, over a little noise. */
__attribute__((unused)) static float *voicelike(size_t n, double level)
{
    float *x = malloc((n + 1) * sizeof *x);
    double phase = 0;
    size_t i;
    int k;
    for (i = 0; i < n; i++) {
        double t = (double)i / 16000, y = 0, f = 130 * (1 + 0.2 * sin(t * 3.1));
        double talk = sin(t * 2 * VOICE_PI * 0.2) > -0.3 ? fmax(0, sin(t * 2 * VOICE_PI * 3.7)) : 0;
        double formant = 600 + 350 * sin(t * 7);
        phase += 2 * VOICE_PI * f / 16000;
        for (k = 1; k < 24; k++) {
            double d = (k * f - formant) / 200, e = (k * f - 2.4 * formant) / 300;
            y += sin(k * phase) * (1 / (1 + d * d) + 0.5 / (1 + e * e));
        }
        x[i] = (float)(level * (0.1 * y * talk + 0.001 * (voice_chance() - 0.5)));
    }
    return x;
}
#endif
