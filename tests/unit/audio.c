/* audio.c - section au_: sample formats, channels, resampling, streams, WAV files.
 * References are written from definitions: a sine stays a sine at any rate, G.711's tables of
 * decision values, the layout of RIFF. Recordings are looked for in the directory that the
 * environment variable WNPU_SPEECH names, else in ../shared/speech. */
#include "../lib/t.h"

#define PI 3.14159265358979323846

static uint32_t rnd_state = 1;

static uint32_t rnd(void)
{
    rnd_state = rnd_state * 1664525u + 1013904223u;
    return rnd_state >> 8;
}

static void *audio_need(size_t size)
{
    void *memory = malloc(size > 0 ? size : 1);
    if (memory == NULL) {
        printf("out of memory\n");
        exit(2);
    }
    return memory;
}

/* A stream in a block of exactly the measured size. */
static au_stream *stream_new(void **memory)
{
    ar_arena arena;
    au_stream *s;
    memset(&arena, 0, sizeof arena);
    au_stream_carve(&arena, &s);
    T_CHECK(s == NULL && arena.used > 0, "measuring takes nothing");
    arena.size = arena.used;
    arena.used = 0;
    arena.base = *memory = ar_malloc(NULL, arena.size, 64);
    if (*memory == NULL) {
        exit(2);
    }
    memset(*memory, 0xa5, arena.size);
    au_stream_carve(&arena, &s);
    T_CHECK(s != NULL && arena.used == arena.size, "size %zu used %zu", arena.size, arena.used);
    return s;
}

static wnpu_audio audio_of(int format, uint32_t rate, uint32_t channels, const void *data,
                           uint64_t frames)
{
    wnpu_audio a;
    wnpu_audio_init(&a, sizeof a);
    a.format = format;
    a.rate = rate;
    a.channels = channels;
    a.data = data;
    a.frames = frames;
    return a;
}

/* All of a recording, to be freed; pieces of random length when chop is set. */
static float *audio_read_all(const wnpu_audio *audio, size_t *count, int chop)
{
    void *memory;
    au_stream *s = stream_new(&memory);
    wnpu_error error;
    size_t room = 1 << 16, n = 0;
    float *out = audio_need(room * sizeof *out);
    int status = au_open(s, audio, &error);
    T_CHECK(status == WNPU_OK, "open: %s", error.message);
    while (status == WNPU_OK) {
        size_t ask = chop ? 1 + rnd() % (rnd() % 8 == 0 ? 9000 : 50) : 8192;
        int64_t got;
        if (room - n < ask) {
            room *= 2;
            out = realloc(out, room * sizeof *out);
            if (out == NULL) {
                exit(2);
            }
        }
        got = au_read(s, out + n, ask, &error);
        T_CHECK(got >= 0 && got <= (int64_t)ask, "read: %lld", (long long)got);
        if (got <= 0) {
            break;
        }
        n += (size_t)got;
        if ((size_t)got < ask) {
            T_CHECK(au_read(s, out, 1, &error) == 0, "a short read is the last");
            break;
        }
    }
    T_CHECK(au_total_ms(s) == (int64_t)(s->consumed * 1000 / audio->rate), "total after end");
    free(memory);
    *count = n;
    return out;
}

/* ---- sample formats ---- */

static void check_one(int format, const void *audio_bytes, double expected, const char *what)
{
    wnpu_audio a = audio_of(format, 16000, 1, audio_bytes, 1);
    size_t n;
    float *out = audio_read_all(&a, &n, 0);
    float want = (float)expected;
    T_CHECK(n == 1 && memcmp(out, &want, sizeof want) == 0, "%s: %.9g instead of %.9g", what,
            (double)out[0], expected);
    free(out);
}

static void test_integers(void)
{
    static const int16_t native[] = {0, 1, -1, 32767, -32768, 12345};
    static const double value16[] = {0, 1, -1, 32767, -32768, 12345};
    static const unsigned char le16[][2] = {
        {0, 0}, {1, 0}, {255, 255}, {255, 127}, {0, 128}, {0x39, 0x30}
    };
    static const unsigned char le24[][3] = {
        {0, 0, 0}, {1, 0, 0}, {255, 255, 255}, {255, 255, 127}, {0, 0, 128}, {0x56, 0x34, 0x12}
    };
    static const double value24[] = {0, 1, -1, 8388607, -8388608, 0x123456};
    static const unsigned char le32[][4] = {
        {0, 0, 0, 0}, {1, 0, 0, 0}, {255, 255, 255, 255}, {255, 255, 255, 127}, {0, 0, 0, 128},
        {0x78, 0x56, 0x34, 0x12}
    };
    static const double value32[] = {0, 1, -1, 2147483647.0, -2147483648.0, 0x12345678};
    int i;
    for (i = 0; i < 6; i++) {
        check_one(WNPU_SAMPLE_S16, &native[i], value16[i] / 32768, "s16");
        check_one(WNPU_SAMPLE_S16LE, le16[i], value16[i] / 32768, "s16le");
        check_one(WNPU_SAMPLE_S24LE, le24[i], value24[i] / 8388608, "s24le");
        check_one(WNPU_SAMPLE_S32LE, le32[i], value32[i] / 2147483648.0, "s32le");
    }
    for (i = 0; i < 256; i++) {
        unsigned char u8 = (unsigned char)i;
        check_one(WNPU_SAMPLE_U8, &u8, (i - 128) / 128.0, "u8");
    }
}

static void put_le(unsigned char *p, uint64_t bits, int audio_bytes)
{
    int i;
    for (i = 0; i < audio_bytes; i++) {
        p[i] = (unsigned char)(bits >> (8 * i));
    }
}

static void test_floats(void)
{
    static const struct {
        double in, out;
    } cases[] = {
        {0.0, 0.0}, {-0.0, -0.0}, {0.1f, 0.1f}, {-1.0, -1.0}, {4.0, 4.0}, {-4.0, -4.0},
        {4.0000005, 4.0}, {-5.0, -4.0}, {3e38, 4.0}, {-3e38, -4.0}, {1e-41, 1e-41},
        {INFINITY, 0.0}, {-INFINITY, 0.0}, {NAN, 0.0}, {-NAN, 0.0}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float f = (float)cases[i].in;
        double d = cases[i].in;
        unsigned char audio_bytes[8];
        uint32_t b32;
        uint64_t b64;
        memcpy(&b32, &f, 4);
        memcpy(&b64, &d, 8);
        check_one(WNPU_SAMPLE_F32, &f, cases[i].out, "f32");
        put_le(audio_bytes, b32, 4);
        check_one(WNPU_SAMPLE_F32LE, audio_bytes, cases[i].out, "f32le");
        put_le(audio_bytes, b64, 8);
        check_one(WNPU_SAMPLE_F64LE, audio_bytes, cases[i].out, "f64le");
    }
    {
        /* Finite, though not as a float: limited, not taken for an infinity. */
        double d = -1e300;
        unsigned char audio_bytes[8];
        uint64_t b64;
        memcpy(&b64, &d, 8);
        put_le(audio_bytes, b64, 8);
        check_one(WNPU_SAMPLE_F64LE, audio_bytes, -4.0, "f64le -1e300");
    }
}

/* G.711 table 1a: decision values of A-law; each of 7 segments has 16 steps, but the first 32. A
 * code's value is the middle of its step; full scale is 4096. */
static void test_alaw(void)
{
    double low = 0.0;
    int code;
    for (code = 0; code < 128; code++) {
        int segment = code < 32 ? 1 : code / 16;
        double step = (double)(1 << segment), value = low + step / 2.0;
        unsigned char positive = (unsigned char)((code | 128) ^ 0x55);
        unsigned char negative = (unsigned char)(code ^ 0x55);
        check_one(WNPU_SAMPLE_ALAW, &positive, value / 4096, "A-law");
        check_one(WNPU_SAMPLE_ALAW, &negative, -value / 4096, "A-law");
        low += step;
    }
    T_CHECK(fabs(low - 4096.0) < 1e-9, "the segments end at %f", low);
}

/* G.711 table 2a: decision values of mu-law are 0, 1, 3, 5 .. 31, 35, 39 .. 95, .. 8159. Code n's
 * value is the middle of its step, and 0 for n = 0; the scale is 8192. */
static void test_ulaw(void)
{
    double low = 0.0;
    int code;
    for (code = 0; code < 128; code++) {
        double step = code == 0 ? 1.0 : (double)(2 << (code / 16));
        double value = code == 0 ? 0.0 : low + step / 2.0;
        unsigned char positive = (unsigned char)~code, negative = (unsigned char)(~code ^ 0x80);
        check_one(WNPU_SAMPLE_ULAW, &positive, value / 8192, "mu-law");
        check_one(WNPU_SAMPLE_ULAW, &negative, code == 0 ? 0.0 : -value / 8192, "mu-law");
        low += step;
    }
    T_CHECK(fabs(low - 8159.0) < 1e-9, "the segments end at %f", low);
}

static void test_channels(void)
{
    static const uint32_t counts[] = {2, 3, 7, 256};
    size_t i;
    for (i = 0; i < 4; i++) {
        uint32_t channels = counts[i], c;
        size_t frames = 700, f, n;
        unsigned char *raw = audio_need(frames * channels * 2 + 1), *odd = raw + 1;
        int16_t *v = audio_need(frames * channels * 2);
        wnpu_audio a;
        float *out;
        for (f = 0; f < frames * channels; f++) {
            v[f] = (int16_t)(rnd() & 0xffff);
        }
        memcpy(odd, v, frames * channels * 2); /* any alignment is legal */
        a = audio_of(WNPU_SAMPLE_S16, 16000, channels, odd, frames);
        out = audio_read_all(&a, &n, 1);
        T_CHECK(n == frames, "%zu", n);
        for (f = 0; f < frames; f++) {
            float sum = 0.0f;
            for (c = 0; c < channels; c++) {
                sum += (float)v[f * channels + c] / 32768.0f;
            }
            sum /= (float)channels;
            T_CHECK(memcmp(&out[f], &sum, 4) == 0, "mix of %u, frame %zu", channels, f);
        }
        free(out);
        for (c = 0; c < channels; c += channels > 7 ? 51 : 1) {
            a.channel = (int32_t)c;
            out = audio_read_all(&a, &n, 0);
            for (f = 0; f < frames; f++) {
                float want = (float)v[f * channels + c] / 32768.0f;
                T_CHECK(memcmp(&out[f], &want, 4) == 0, "channel %u, frame %zu", c, f);
            }
            free(out);
        }
        free(raw);
        free(v);
    }
}

/* With a known layout the mean has the weights of ITU-R BS.775: to a stereo pair, left + 0.707 centre +
 * 0.707 surround, and from that (left + right) / 2; all divided by the sum of the weights. */
static void test_layouts(void)
{
    static const struct {
        uint32_t mask, channels;
        double left[8], right[8]; /* shares of the channels in the pair */
    } layouts[] = {
        {0x3f, 6, {1, 0, 0.70710678, 0, 0.70710678, 0}, {0, 1, 0.70710678, 0, 0, 0.70710678}},
        {0x60f, 6, {1, 0, 0.70710678, 0, 0.70710678, 0}, {0, 1, 0.70710678, 0, 0, 0.70710678}},
        {0x63f, 8, {1, 0, 0.70710678, 0, 0.70710678, 0, 0.70710678, 0},
         {0, 1, 0.70710678, 0, 0, 0.70710678, 0, 0.70710678}},
        {0x33, 4, {1, 0, 0.70710678, 0}, {0, 1, 0, 0.70710678}},
        {0x7, 3, {1, 0, 0.70710678}, {0, 1, 0.70710678}},
        {0xb, 3, {1, 0, 0}, {0, 1, 0}},
        {0x3, 2, {1, 0}, {0, 1}},
        {0x3f, 7, {1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1}}, /* does not fit: unknown */
        {0x7, 2, {1, 1}, {1, 1}},
        {0x8, 1, {1}, {1}}
    };
    int16_t v[800 * 8];
    size_t i, k, f, n;
    for (k = 0; k < sizeof layouts / sizeof layouts[0]; k++) {
        const uint32_t channels = layouts[k].channels;
        wnpu_audio a = audio_of(WNPU_SAMPLE_S16, 16000, channels, v, 800);
        double total = 0.0;
        float *out;
        for (i = 0; i < 800 * channels; i++) {
            v[i] = (int16_t)(rnd() & 0xffff);
        }
        for (i = 0; i < channels; i++) {
            total += layouts[k].left[i] + layouts[k].right[i];
        }
        a.layout = layouts[k].mask;
        out = audio_read_all(&a, &n, 1);
        for (f = 0; f < n; f++) {
            double want = 0.0;
            for (i = 0; i < channels; i++) {
                want += (layouts[k].left[i] + layouts[k].right[i]) / total *
                        (double)v[f * channels + i] / 32768.0;
            }
            T_CHECK(fabs((double)out[f] - want) < 1e-6, "layout %x of %u, frame %zu: %f, not %f",
                    layouts[k].mask, channels, f, (double)out[f], want);
        }
        free(out);
    }
    /* Loud low frequencies are not what is heard instead of quiet speech in the centre. */
    for (f = 0; f < 800; f++) {
        memset(v + f * 6, 0, 6 * sizeof *v);
        v[f * 6 + 2] = (int16_t)(rnd() % 200);
        v[f * 6 + 3] = 30000;
    }
    {
        wnpu_audio a = audio_of(WNPU_SAMPLE_S16, 16000, 6, v, 800);
        float *out;
        a.layout = 0x3f;
        out = audio_read_all(&a, &n, 0);
        for (f = 0; f < n; f++) {
            T_CHECK(out[f] < 0.01f, "frame %zu: %f", f, (double)out[f]);
        }
        free(out);
    }
}

/* ---- resampling ---- */

static const uint32_t rates[] = {
    8000, 8001, 11025, 12000, 12345, 15555, 15999, 16001, 17777, 22050, 24000, 32000, 44100, 47999,
    48000, 88200, 96000, 176400, 191999, 192000
};
#define RATES (sizeof rates / sizeof rates[0])

static float *sine(double hz, uint32_t rate, size_t frames, double phase)
{
    float *x = audio_need(frames * sizeof *x);
    size_t i;
    for (i = 0; i < frames; i++) {
        x[i] = (float)sin(2.0 * PI * hz * (double)i / (double)rate + phase);
    }
    return x;
}

/* Least squares of a sin + b cos at hz in y[from..to): their sizes and what is left (RMS times
 * sqrt 2, so that a sine of amplitude 1 counts 1). */
static void fit(const float *y, size_t from, size_t to, double hz, double phase, double *a,
                double *b, double *rest)
{
    double ss = 0, sc = 0, cc = 0, sy = 0, cy = 0, det, r = 0;
    size_t i;
    for (i = from; i < to; i++) {
        double w = 2.0 * PI * hz * (double)i / 16000.0 + phase, s = sin(w), c = cos(w);
        ss += s * s;
        sc += s * c;
        cc += c * c;
        sy += s * (double)y[i];
        cy += c * (double)y[i];
    }
    det = ss * cc - sc * sc;
    *a = (sy * cc - cy * sc) / det;
    *b = (cy * ss - sy * sc) / det;
    for (i = from; i < to; i++) {
        double w = 2.0 * PI * hz * (double)i / 16000.0 + phase;
        double d = (double)y[i] - *a * sin(w) - *b * cos(w);
        r += d * d;
    }
    *rest = sqrt(2.0 * r / (double)(to - from));
}

static double worst_gain, worst_rest, worst_alias;

/* In the pass band: gain within 0.1 dB, no delay, and everything else together (images, aliases,
 * rounding) below -80 dB. */
static void pass_band(uint32_t rate)
{
    double limit = 0.45 * rate < 7000.0 ? 0.45 * rate : 7000.0;
    double hz[] = {100, 440, 1000, 2000, 3000, 3500, 0.7 * limit, 0.9 * limit, 0.97 * limit, limit};
    size_t i, n, frames = rate / 4;
    for (i = 0; i < 10; i++) {
        double phase = 0.3 + (double)i, a, b, rest, gain;
        float *x = sine(hz[i], rate, frames, phase);
        wnpu_audio audio = audio_of(WNPU_SAMPLE_F32, rate, 1, x, frames);
        float *y = audio_read_all(&audio, &n, 0);
        fit(y, 300, n - 300, hz[i], phase, &a, &b, &rest);
        gain = 20.0 * log10(sqrt(a * a + b * b));
        T_CHECK(fabs(gain) <= 0.1, "%u Hz: gain at %.0f Hz is %.3f dB", rate, hz[i], gain);
        T_CHECK(fabs(b) <= 1e-4, "%u Hz: %.0f Hz is shifted by %.6f rad", rate, hz[i], b / a);
        T_CHECK(rest <= 1e-4, "%u Hz: %.0f Hz leaves %.1f dB", rate, hz[i], 20 * log10(rest));
        worst_gain = fabs(gain) > worst_gain ? fabs(gain) : worst_gain;
        worst_rest = rest > worst_rest ? rest : worst_rest;
        free(x);
        free(y);
    }
}

/* Nothing that comes from above 9 kHz is heard; of sources below 16 kHz, nothing is heard at the
 * image of anything that they can hold, though that itself may fade between pass band and end. */
static void stop_band(uint32_t rate)
{
    double from = rate < 16000 ? 0.45 * rate : 9000.0, to = 0.5 * rate;
    size_t i, n, frames = rate / 4;
    for (i = 0; i < 12 && to > from; i++) {
        double hz = from + (to - from) * (double)i / 12.0, phase = 0.7, a, b, rest;
        float *x = sine(hz, rate, frames, phase);
        wnpu_audio audio = audio_of(WNPU_SAMPLE_F32, rate, 1, x, frames);
        float *y = audio_read_all(&audio, &n, 0);
        if (rate < 16000) {
            fit(y, 300, n - 300, hz, phase, &a, &b, &rest);
        } else { /* no sine is wanted: fit none */
            size_t k;
            rest = 0;
            for (k = 300; k < n - 300; k++) {
                rest += (double)y[k] * (double)y[k];
            }
            rest = sqrt(2.0 * rest / (double)(n - 600));
        }
        T_CHECK(rest <= 1e-4, "%u Hz: %.0f Hz is heard with %.1f dB", rate, hz, 20 * log10(rest));
        worst_alias = rest > worst_alias ? rest : worst_alias;
        free(x);
        free(y);
    }
}

/* Between 7 and 9 kHz aliases may be heard, but not below 7 kHz. Over one second, sines of whole
 * Hertz do not see each other, so that each can be measured and taken away alone. */
static void fold(uint32_t rate)
{
    double hz;
    size_t n, frames = (16600u * (size_t)rate + 15999u) / 16000u;
    for (hz = 7100; hz < 9000 && rate > 16000 && hz < rate / 2.0; hz += 237) {
        double at, a, b, rest;
        float *x = sine(hz, rate, frames, 0.0);
        wnpu_audio audio = audio_of(WNPU_SAMPLE_F32, rate, 1, x, frames);
        float *y = audio_read_all(&audio, &n, 0), *z = audio_need(n * sizeof *z);
        size_t k;
        memcpy(z, y, n * sizeof *z);
        /* Take away the sine and its two reflections, then look for what is left. */
        for (k = 0; k < 3; k++) {
            size_t j;
            at = k == 0 ? hz : k == 1 ? rate - hz : 2.0 * rate - hz;
            at = fmod(at, 16000.0);
            at = at > 8000 ? 16000 - at : at;
            if (at < 7000 - 1) {
                fit(z, 300, 16300, at, 0.0, &a, &b, &rest);
                T_CHECK(sqrt(a * a + b * b) <= 1e-4, "%u Hz: %.0f Hz is heard at %.0f Hz with "
                        "%.1f dB", rate, hz, at, 20 * log10(sqrt(a * a + b * b)));
                continue;
            }
            fit(z, 300, 16300, at, 0.0, &a, &b, &rest);
            for (j = 0; j < n; j++) {
                double w = 2.0 * PI * at * (double)j / 16000.0;
                z[j] -= (float)(a * sin(w) + b * cos(w));
            }
        }
        fit(z, 300, 16300, 1000.0, 0.0, &a, &b, &rest);
        T_CHECK(rest <= 1e-4, "%u Hz: %.0f Hz leaves %.1f dB", rate, hz, 20 * log10(rest));
        free(x);
        free(y);
        free(z);
    }
}

static void test_pass_band(void)
{
    size_t i;
    for (i = 0; i < RATES; i++) {
        pass_band(rates[i]);
    }
    printf("  worst gain error %.5f dB, residue %.1f dB\n", worst_gain, 20 * log10(worst_rest));
}

static void test_stop_band(void)
{
    size_t i;
    for (i = 0; i < RATES; i++) {
        stop_band(rates[i]);
        fold(rates[i]);
    }
    printf("  worst alias or image %.1f dB\n", 20 * log10(worst_alias));
}

static void test_constant(void)
{
    size_t i, k, n, frames = 20000;
    float *x = audio_need(frames * sizeof *x);
    for (k = 0; k < frames; k++) {
        x[k] = 0.5f;
    }
    for (i = 0; i < RATES; i++) {
        wnpu_audio a = audio_of(WNPU_SAMPLE_F32, rates[i], 1, x, frames);
        float *y = audio_read_all(&a, &n, 0);
        for (k = 300; k + 300 < n; k++) {
            T_CHECK(fabsf(y[k] - 0.5f) < 2e-7f, "%u Hz: y[%zu] = %.8f", rates[i], k, (double)y[k]);
        }
        free(y);
    }
    free(x);
}

/* Output 0 lies at input 0: an impulse there peaks there, one at input k at k * 16000 / rate. */
static void test_delay(void)
{
    size_t i, k, n, frames = 4000;
    float *x = audio_need(frames * sizeof *x);
    for (i = 0; i < RATES; i++) {
        size_t at[] = {0, rates[i] / 100, frames - 1}, j;
        for (j = 0; j < 3; j++) {
            wnpu_audio a = audio_of(WNPU_SAMPLE_F32, rates[i], 1, x, frames);
            double moment = (double)at[j] * 16000.0 / rates[i], peak = 0, where = 0;
            float *y;
            memset(x, 0, frames * sizeof *x);
            x[at[j]] = 1.0f;
            y = audio_read_all(&a, &n, 0);
            for (k = 0; k < n; k++) {
                if (fabs((double)y[k]) > peak) {
                    peak = fabs((double)y[k]);
                    where = (double)k;
                }
            }
            T_CHECK(fabs(where - moment) <= 1.0, "%u Hz: impulse at %f peaks at %f", rates[i],
                    moment, where);
            free(y);
        }
    }
    free(x);
}

static void test_lengths(void)
{
    static const size_t frames[] = {0, 1, 2, 3, 5, 11, 12, 13, 24, 47, 48, 160, 441, 1000, 4095,
                                    4096, 4097, 12289};
    float *x = audio_need(12289 * sizeof *x);
    size_t i, k, n;
    memset(x, 0, 12289 * sizeof *x);
    for (i = 0; i <= RATES; i++) {
        uint32_t rate = i < RATES ? rates[i] : 16000;
        for (k = 0; k < sizeof frames / sizeof frames[0]; k++) {
            wnpu_audio a = audio_of(WNPU_SAMPLE_F32, rate, 1, frames[k] > 0 ? x : NULL, frames[k]);
            size_t want = (frames[k] * 16000 + rate - 1) / rate;
            free(audio_read_all(&a, &n, 1));
            T_CHECK(n == want, "%zu frames at %u Hz give %zu, not %zu", frames[k], rate, n, want);
        }
    }
    free(x);
}

/* A second definition of the resampler, in double and with no bank: the sum over all inputs. */
static void test_definition(void)
{
    static const uint32_t some[] = {8000, 11025, 44100, 47999, 96000};
    size_t i, m, n, k, frames = 3000;
    float *x = audio_need(frames * sizeof *x);
    for (k = 0; k < frames; k++) {
        x[k] = (float)(rnd() & 0xffff) / 32768.0f - 1.0f;
    }
    for (i = 0; i < 5; i++) {
        double rate = some[i], pass = rate < 16000 ? 0.45 * rate : 7000;
        double stop = rate < 16000 ? 0.5 * rate : 9000, cutoff = (pass + stop) / 2 / rate;
        double half = 8.0 * (floor(82.05 / 14.36 / ((stop - pass) / rate) / 16.0) + 1.0);
        wnpu_audio a = audio_of(WNPU_SAMPLE_F32, some[i], 1, x, frames);
        float *y = audio_read_all(&a, &n, 0);
        double power = 0, error = 0;
        for (m = 0; m < n; m += 7) {
            double sum = 0, weight = 0, at = (double)m * rate / 16000.0;
            for (k = 0; k < 2 * (size_t)half + 2; k++) {
                double j = floor(at) - half + (double)k, t = at - j, u = t / half, beta = 8.959;
                double h, bessel = 1, term = 1, z = 2 * cutoff * t * PI;
                int p;
                if (fabs(u) >= 1) {
                    continue;
                }
                for (p = 1; p < 60; p++) {
                    term *= beta * beta * (1 - u * u) / 4 / (p * (double)p);
                    bessel += term;
                }
                h = bessel * (fabs(z) < 1e-12 ? 1 : sin(z) / z);
                weight += h;
                sum += j >= 0 && j < (double)frames ? h * (double)x[(size_t)j] : 0;
            }
            sum /= weight;
            power += sum * sum;
            error += (sum - (double)y[m]) * (sum - (double)y[m]);
        }
        T_CHECK(error <= power * 1e-9, "%u Hz: differs by %.1f dB", some[i],
                10 * log10(error / power));
        free(y);
    }
    free(x);
}

/* ---- streams ---- */

struct audio_reader {
    const unsigned char *data;
    size_t frame, frames, at;
    int mode; /* 0: random pieces, 1: one frame each, 2: all that fits */
    size_t fail_at; /* frames after which answer is given */
    int64_t answer;
    size_t calls, calls_after_end;
    int ended;
};

static int64_t reader_read(void *user, void *buffer, size_t max_frames)
{
    struct audio_reader *r = user;
    size_t n = r->frames - r->at;
    r->calls++;
    r->calls_after_end += r->ended != 0;
    if (r->answer != 0 && r->at >= r->fail_at) {
        r->ended = 1;
        return r->answer == INT64_MAX ? (int64_t)max_frames + 1 : r->answer;
    }
    if (r->answer != 0 && n > r->fail_at - r->at) {
        n = r->fail_at - r->at;
    }
    n = n > max_frames ? max_frames : n;
    if (n > 0 && r->mode < 2) {
        size_t piece = r->mode == 1 ? 1 : 1 + rnd() % (rnd() % 4 == 0 ? 20000 : 30);
        n = piece < n ? piece : n;
    }
    memcpy(buffer, r->data + r->at * r->frame, n * r->frame);
    r->at += n;
    r->ended = n == 0;
    return (int64_t)n;
}

/* Up to most frames a call; 0 only once, at the end. */
struct audio_pieces {
    const void *data;
    size_t frame, left, most;
};

static int64_t pieces_read(void *user, void *buffer, size_t max_frames)
{
    struct audio_pieces *p = user;
    size_t n = p->left < p->most ? p->left : p->most;
    n = n < max_frames ? n : max_frames;
    memcpy(buffer, p->data, n * p->frame);
    p->data = (const unsigned char *)p->data + n * p->frame;
    p->left -= n;
    return (int64_t)n;
}

static void test_chunks(void)
{
    size_t i, k, n1, n2, frames = 30011;
    int16_t *x = audio_need(frames * 4);
    for (k = 0; k < frames * 2; k++) {
        x[k] = (int16_t)(rnd() & 0xffff);
    }
    for (i = 0; i <= RATES; i++) {
        uint32_t rate = i < RATES ? rates[i] : 16000;
        wnpu_audio a = audio_of(WNPU_SAMPLE_S16, rate, 2, x, frames);
        float *whole = audio_read_all(&a, &n1, 0), *part;
        int mode;
        part = audio_read_all(&a, &n2, 1);
        T_CHECK(n1 == n2 && memcmp(whole, part, n1 * 4) == 0, "%u Hz: pieces differ", rate);
        free(part);
        for (mode = 0; mode < 3; mode++) {
            struct audio_reader r;
            memset(&r, 0, sizeof r);
            r.data = (const unsigned char *)x;
            r.frame = 4;
            r.frames = frames;
            r.mode = mode;
            a.data = NULL;
            a.frames = 0;
            a.read = reader_read;
            a.user = &r;
            part = audio_read_all(&a, &n2, mode != 2);
            T_CHECK(n1 == n2 && memcmp(whole, part, n1 * 4) == 0, "%u Hz, mode %d differs", rate,
                    mode);
            T_CHECK(r.calls_after_end == 0, "the reader is not asked again after its end");
            free(part);
        }
        free(whole);
    }
    free(x);
}

/* 16 kHz float passes bit for bit. */
static void test_untouched(void)
{
    size_t k, n, frames = 100000;
    float *x = audio_need(frames * sizeof *x), *y;
    wnpu_audio a = audio_of(WNPU_SAMPLE_F32, 16000, 1, x, frames);
    for (k = 0; k < frames; k++) {
        uint32_t bits = rnd() << 8 ^ rnd();
        memcpy(&x[k], &bits, 4);
        if (!(fabsf(x[k]) <= 4.0f)) {
            x[k] = -0.0f;
        }
    }
    y = audio_read_all(&a, &n, 1);
    T_CHECK(n == frames && memcmp(x, y, n * 4) == 0, "bits differ");
    free(x);
    free(y);
}

/* Samples before a failure are delivered, then the failure, again and again. */
static void test_faults(void)
{
    static const uint32_t some[] = {16000, 8000, 44100};
    static const int64_t answers[] = {-1, -77, INT64_MIN, INT64_MAX, INT64_MAX - 1};
    static const size_t points[] = {0, 1, 500, 9000};
    float *x = audio_need(10000 * sizeof *x), *out = audio_need(40000 * sizeof *out);
    void *memory;
    au_stream *s = stream_new(&memory);
    size_t i, j, k;
    for (k = 0; k < 10000; k++) {
        x[k] = (float)(rnd() & 0xffff) / 65536.0f;
    }
    for (i = 0; i < 3; i++) {
        for (j = 0; j < 5; j++) {
            for (k = 0; k < 4; k++) {
                wnpu_audio a = audio_of(WNPU_SAMPLE_F32, some[i], 1, NULL, 0), cut;
                size_t want = (points[k] * 16000 + some[i] - 1) / some[i], n;
                struct audio_reader r;
                wnpu_error e;
                int64_t got;
                float *expect;
                memset(&r, 0, sizeof r);
                r.data = (const unsigned char *)x;
                r.frame = 4;
                r.frames = 10000;
                r.fail_at = points[k];
                r.answer = answers[j];
                a.read = reader_read;
                a.user = &r;
                T_CHECK(au_open(s, &a, &e) == WNPU_OK, "open");
                T_CHECK(au_total_ms(s) == -1, "length not told");
                got = want == 0 ? 0 : au_read(s, out, 40000, &e);
                T_CHECK(got == (int64_t)want, "%lld instead of %zu", (long long)got, want);
                cut = audio_of(WNPU_SAMPLE_F32, some[i], 1, x, points[k]);
                expect = audio_read_all(&cut, &n, 0);
                T_CHECK(n == want && memcmp(expect, out, n * 4) == 0, "samples before a failure");
                free(expect);
                for (n = 0; n < 2; n++) {
                    e.code = 0;
                    e.message[0] = '\0';
                    T_CHECK(au_read(s, out, 10, &e) == WNPU_E_IO && e.code == WNPU_E_IO &&
                            strstr(e.message, "reader") != NULL, "failure %zu: %s", n, e.message);
                }
                T_CHECK(au_read(s, out, 10, NULL) == WNPU_E_IO, "without wnpu_error");
                T_CHECK(r.calls_after_end == 0, "the reader is left alone after its failure");
                T_CHECK(s->consumed == points[k], "position");
            }
        }
    }
    free(memory);
    free(x);
    free(out);
}

static void audio_refused(au_stream *s, const wnpu_audio *a, int code, const char *word)
{
    wnpu_error e;
    float y;
    memset(&e, 0, sizeof e);
    T_CHECK(au_open(s, a, &e) == code && e.code == code && strstr(e.message, word) != NULL,
            "code %d (%s) instead of %d about %s", e.code, e.message, code, word);
    T_CHECK(au_open(s, a, NULL) == code, "without wnpu_error");
    T_CHECK(au_read(s, &y, 1, &e) == 0, "a refused stream is at its end");
}

static void audio_test_arguments(void)
{
    static float x[8];
    struct {
        wnpu_audio audio;
        unsigned char more[16];
    } longer;
    const wnpu_audio good = audio_of(WNPU_SAMPLE_F32, 16000, 1, x, 8);
    wnpu_audio a;
    struct audio_reader r;
    void *memory;
    au_stream *s = stream_new(&memory);
    wnpu_error e;
    audio_refused(s, NULL, WNPU_E_ARGUMENT, "NULL");
    a = good; a.struct_size = 0; audio_refused(s, &a, WNPU_E_VERSION, "struct_size");
    a = good; a.struct_size = 70000; audio_refused(s, &a, WNPU_E_VERSION, "struct_size");
    a = good; a.format = 10; audio_refused(s, &a, WNPU_E_ARGUMENT, "format 10");
    a = good; a.format = -1; audio_refused(s, &a, WNPU_E_ARGUMENT, "format -1");
    a = good; a.rate = 7999; audio_refused(s, &a, WNPU_E_ARGUMENT, "7999");
    a = good; a.rate = 192001; audio_refused(s, &a, WNPU_E_ARGUMENT, "192001");
    a = good; a.rate = 0; audio_refused(s, &a, WNPU_E_ARGUMENT, "rate 0");
    a = good; a.rate = UINT32_MAX; audio_refused(s, &a, WNPU_E_ARGUMENT, "4294967295");
    a = good; a.channels = 0; audio_refused(s, &a, WNPU_E_ARGUMENT, "0 channels");
    a = good; a.channels = 257; audio_refused(s, &a, WNPU_E_ARGUMENT, "257 channels");
    a = good; a.channel = 1; audio_refused(s, &a, WNPU_E_ARGUMENT, "channel 1");
    a = good; a.channel = -2; audio_refused(s, &a, WNPU_E_ARGUMENT, "channel -2");
    a = good; a.data = NULL; audio_refused(s, &a, WNPU_E_ARGUMENT, "data is NULL");
    a = good; a.frames = UINT64_MAX; audio_refused(s, &a, WNPU_E_ARGUMENT, "memory");
    a = good; a.frames = UINT64_MAX / 4 + 2; audio_refused(s, &a, WNPU_E_ARGUMENT, "memory");
    a = good; a.read = reader_read; a.user = &r; audio_refused(s, &a, WNPU_E_ARGUMENT, "both");
    /* A newer user's structure: what we do not know must be zero. */
    memset(&longer, 0, sizeof longer);
    longer.audio = good;
    longer.audio.struct_size = sizeof longer;
    T_CHECK(au_open(s, &longer.audio, &e) == WNPU_OK, "longer, zeros");
    T_CHECK(au_total_ms(s) == 0, "8 frames are no whole millisecond");
    longer.more[3] = 1;
    audio_refused(s, &longer.audio, WNPU_E_VERSION, "struct_size");
    /* An older user's: the rest keeps defaults, even if the memory behind says otherwise. */
    a = good;
    a.read = reader_read;
    a.struct_size = offsetof(wnpu_audio, read);
    T_CHECK(au_open(s, &a, &e) == WNPU_OK && s->audio.read == NULL, "shorter");
    a = audio_of(WNPU_SAMPLE_F32, 44100, 1, NULL, 0);
    T_CHECK(au_open(s, &a, &e) == WNPU_OK && au_total_ms(s) == 0, "empty audio is legal");
    T_CHECK(au_read(s, x, 8, &e) == 0, "and gives nothing");
    a.read = reader_read;
    a.frames = UINT64_MAX;
    T_CHECK(au_open(s, &a, &e) == WNPU_OK && au_total_ms(s) > 0, "a reader may hope for anything");
    free(memory);
}

static void test_init(void)
{
    union {
        wnpu_audio audio;
        unsigned char bytes[256];
    } u;
    size_t size, i;
    for (size = 4; size <= 200; size++) {
        memset(&u, 0xee, sizeof u);
        wnpu_audio_init(&u.audio, size);
        T_CHECK(u.audio.struct_size == (size % 4 == 0 ? size : 0), "size %zu", size);
        for (i = size; i < sizeof u; i++) {
            T_CHECK(u.bytes[i] == 0xee, "byte %zu behind %zu written", i, size);
        }
    }
    T_CHECK(u.audio.rate == 16000 && u.audio.channels == 1 && u.audio.channel == -1 &&
            u.audio.format == WNPU_SAMPLE_F32 && u.audio.data == NULL && u.audio.read == NULL,
            "defaults");
    wnpu_audio_init(NULL, sizeof u);
    memset(&u, 0xee, sizeof u);
    wnpu_audio_init(&u.audio, 3);
    T_CHECK(u.bytes[0] == 0xee, "nothing fits into 3 bytes");
}

/* Memory for the arena that is too small leaves no stream. */
static void test_arena(void)
{
    ar_arena arena;
    au_stream *s;
    size_t full, size;
    unsigned char *memory;
    memset(&arena, 0, sizeof arena);
    au_stream_carve(&arena, &s);
    full = arena.used;
    T_CHECK(full <= 256 * 1024, "%zu bytes", full);
    memory = ar_malloc(NULL, full, 64);
    if (memory == NULL) {
        exit(2);
    }
    for (size = 0; size < full; size += 64) {
        memset(&arena, 0, sizeof arena);
        arena.base = memory;
        arena.size = size;
        au_stream_carve(&arena, &s);
        T_CHECK(s == NULL && arena.used == full, "size %zu", size);
    }
    free(memory);
}

/* The same bits from every compiler, level of optimisation and instruction set: FNV-1a of some
 * output, written down once. */
static void test_bits(void)
{
    static const struct {
        uint32_t rate, hash;
    } known[] = {
        {8000, 0xf58c92d8}, {11025, 0x0b1daad7}, {44100, 0xecf8bc3d}, {48000, 0x7c0e1804},
        {191999, 0xbaeab684}
    };
    size_t i, k, n, frames = 8000;
    int16_t *x = audio_need(frames * 2);
    uint32_t state = 12345;
    for (k = 0; k < frames; k++) {
        state = state * 1664525u + 1013904223u;
        x[k] = (int16_t)(state >> 16 & 0x3fff);
    }
    for (i = 0; i < 5; i++) {
        wnpu_audio a = audio_of(WNPU_SAMPLE_S16, known[i].rate, 1, x, frames);
        float *y = audio_read_all(&a, &n, 0);
        uint32_t hash = 2166136261u;
        for (k = 0; k < n; k++) {
            uint32_t bits;
            int b;
            memcpy(&bits, &y[k], 4);
            for (b = 0; b < 4; b++) {
                hash = (hash ^ (bits >> (8 * b) & 255)) * 16777619u;
            }
        }
        T_CHECK(hash == known[i].hash, "%u Hz: %08lx", known[i].rate, (unsigned long)hash);
        free(y);
    }
    free(x);
}

/* ---- what is judged stretch by stretch ---- */

/* a in memory and by a reader of any habit gives the same; returned with *n samples. */
static float *either_way(const wnpu_audio *a, size_t *n, const char *what)
{
    static const size_t most[] = {1, 13, 799, 800, 801, 100000};
    float *want = audio_read_all(a, n, 0), *got;
    size_t i, m, frame = a->channels * (size_t)au_widths[a->format];
    got = audio_read_all(a, &m, 1);
    T_CHECK(m == *n && memcmp(got, want, m * sizeof *got) == 0, "%s: chopped", what);
    free(got);
    for (i = 0; i < sizeof most / sizeof most[0]; i++) {
        struct audio_pieces p = {a->data, frame, (size_t)a->frames, most[i]};
        wnpu_audio r = *a;
        r.data = NULL;
        r.read = pieces_read;
        r.user = &p;
        got = audio_read_all(&r, &m, 1);
        T_CHECK(m == *n && memcmp(got, want, m * sizeof *got) == 0, "%s: read by %zu", what,
                most[i]);
        free(got);
    }
    return want;
}

/* Channels that cancel in the second half only, or in the first, or nearly. The other half is their
 * mean, and silence changes nothing. */
static void test_cancelling(void)
{
    enum { HALF = 16000 };
    int16_t *v = audio_need(2 * HALF * 2 * sizeof *v);
    void *memory;
    au_stream *s = stream_new(&memory);
    int which;
    for (which = 0; which < 4; which++) {
        wnpu_audio a = audio_of(WNPU_SAMPLE_S16, 16000, 2, v, 2 * HALF);
        size_t n, i, wrong = 0;
        float *y;
        for (i = 0; i < 2 * HALF; i++) {
            int opposed = which == 3 ? 0 : (i < HALF) == (which == 1);
            int16_t x = i % 8000 < 2000 ? 0 : (int16_t)((int)(rnd() % 20001) - 10000);
            v[2 * i] = x;
            v[2 * i + 1] = (int16_t)(opposed ? -x + (which == 2 ? x / 50 : 0)
                                     : which == 3 ? (int)(rnd() % 20001) - 10000 : x);
        }
        y = either_way(&a, &n, "cancelling");
        for (i = 0; i < n; i++) {
            int opposed = which < 3 && (i < HALF) == (which == 1);
            float left = (float)v[2 * i] / 32768.0f, right = (float)v[2 * i + 1] / 32768.0f;
            float want = opposed ? left : (left + right) / 2.0f;
            wrong += fabsf(want - y[i]) > 1e-6f;
        }
        T_CHECK(n == 2 * HALF && wrong == 0, "case %d: %zu of %zu samples are wrong", which, wrong,
                n);
        free(y);
        T_CHECK(au_open(s, &a, NULL) == WNPU_OK, "opens");
        y = audio_need((2 * HALF) * sizeof *y);
        T_CHECK(au_read(s, y, 2 * HALF, NULL) == 2 * HALF, "reads");
        /* The silence at the begin counts with what was before it. */
        T_CHECK(which == 3 ? s->opposed == 0 : s->opposed > HALF / 2 && s->opposed <= HALF + 2000,
                "case %d: %llu frames", which, (unsigned long long)s->opposed);
        free(y);
    }
    free(memory);
    free(v);
}

/* Floats with the full scale of integers. */
static void test_scale(void)
{
    static const double scales[] = {32768.0, 8388608.0, 2147483648.0, 1.0, 4.0};
    enum { FRAMES = 32000 };
    float *v = audio_need(FRAMES * sizeof *v);
    double *d = audio_need(FRAMES * sizeof *d);
    size_t i, k, n;
    for (k = 0; k < sizeof scales / sizeof scales[0]; k++) {
        int format;
        for (format = 0; format < 2; format++) {
            wnpu_audio a = audio_of(format == 0 ? WNPU_SAMPLE_F32 : WNPU_SAMPLE_F64LE, 16000, 1,
                                    format == 0 ? (const void *)v : d, FRAMES);
            size_t wrong = 0;
            uint64_t bits;
            float *y;
            for (i = 0; i < FRAMES; i++) { /* noise of -12 dB after a quarter of a second */
                double x = i < 4000 ? 0.0 : 0.25 * ((double)(rnd() % 20001) / 10000.0 - 1.0);
                v[i] = (float)(x * scales[k]);
                x *= scales[k];
                memcpy(&bits, &x, sizeof bits);
                put_le((unsigned char *)&d[i], bits, 8);
            }
            v[20000] = 3.0e38f; /* one that is damaged */
            y = either_way(&a, &n, "scale");
            for (i = 0; i < n; i++) {
                float want = (float)((format == 0 ? (double)v[i] : d[i]) /
                                     (scales[k] < 10.0 ? 1.0 : scales[k]));
                want = want > 4.0f ? 4.0f : want;
                wrong += fabsf(want - y[i]) > 1e-6f;
            }
            T_CHECK(n == FRAMES && wrong == 0, "scale %g: %zu wrong", scales[k], wrong);
            free(y);
        }
    }
    /* Whole numbers, soft ones: 16 bits that became floats. A few large floats are no integers. */
    for (i = 0; i < FRAMES; i++) {
        v[i] = (float)((int)(rnd() % 21) - 10);
    }
    {
        wnpu_audio a = audio_of(WNPU_SAMPLE_F32, 16000, 1, v, FRAMES);
        float *y = either_way(&a, &n, "soft integers");
        T_CHECK(y[0] == v[0] / 32768.0f && y[FRAMES - 1] == v[FRAMES - 1] / 32768.0f, "soft");
        free(y);
        for (i = 0; i < FRAMES; i++) {
            v[i] = i % 100 == 0 ? 1000.0f : 0.5f;
        }
        y = either_way(&a, &n, "glitches");
        T_CHECK(y[0] == 4.0f && y[1] == 0.5f && y[FRAMES - 1] == 0.5f, "glitches");
        free(y);
    }
    free(v);
    free(d);
}

/* ---- WAV files, built here ---- */

struct audio_bytes {
    unsigned char data[4096];
    size_t n;
};

static void put_chunk(struct audio_bytes *b, const char *name, uint32_t size)
{
    memcpy(b->data + b->n, name, 4);
    put_le(b->data + b->n + 4, size, 4);
    b->n += 8;
}

static void put_int(struct audio_bytes *b, uint64_t value, int audio_bytes)
{
    put_le(b->data + b->n, value, audio_bytes);
    b->n += (size_t)audio_bytes;
}

static void begin(struct audio_bytes *b, const char *riff)
{
    b->n = 0;
    put_chunk(b, riff, 0);
    memcpy(b->data + 8, "WAVE", 4);
    b->n = 12;
}

static void put_fmt(struct audio_bytes *b, uint32_t size, unsigned tag, unsigned channels,
                    uint32_t rate, unsigned bits)
{
    size_t start = b->n + 8;
    put_chunk(b, "fmt ", size);
    memset(b->data + start, 0, size);
    put_int(b, tag, 2);
    put_int(b, channels, 2);
    put_int(b, rate, 4);
    put_int(b, rate * channels * (bits / 8), 4);
    put_int(b, channels * (bits / 8), 2);
    put_int(b, bits, 2);
    b->n = start + size;
}

static void put_extensible(struct audio_bytes *b, unsigned tag, unsigned channels, unsigned bits)
{
    static const unsigned char tail[14] = {
        0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71
    };
    put_fmt(b, 40, 0xfffe, channels, 16000, bits);
    put_le(b->data + b->n - 24, 22, 2);
    put_le(b->data + b->n - 22, bits, 2);
    put_le(b->data + b->n - 16, tag, 2);
    memcpy(b->data + b->n - 14, tail, 14);
}

static void put_samples(struct audio_bytes *b, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        b->data[b->n++] = (unsigned char)(0x80 + i % 100); /* no letters: no chunk names */
    }
}

/* Opens a copy of exactly the file's size, so that tools see a byte read too far. */
static int wav(const struct audio_bytes *b, wnpu_audio *a, wnpu_error *e, unsigned char **copy)
{
    *copy = audio_need(b->n);
    memcpy(*copy, b->data, b->n);
    wnpu_audio_init(a, sizeof *a);
    return wnpu_wav_open(a, *copy, b->n, e);
}

/* ---- the same files as streams ---- */

struct pipe_end {
    const unsigned char *data;
    size_t left, chop;         /* at most chop bytes a read */
    int64_t failure;           /* returned at the end */
};

static int64_t pipe_read(void *user, void *buffer, size_t size)
{
    struct pipe_end *p = user;
    size_t n = size < p->chop ? size : p->chop;
    n = n < p->left ? n : p->left;
    memcpy(buffer, p->data, n);
    p->data += n;
    p->left -= n;
    return n > 0 || size == 0 ? (int64_t)n : p->failure;
}

/* What a reader makes of the file must be what wnpu_wav_open() made of it: a, of status. Returns the
 * reader's problems. */
static unsigned streamed(const struct audio_bytes *b, const wnpu_audio *a, int status)
{
    static const size_t chops[] = {1, 7, 64, 100000};
    unsigned char got[4096 + 64];
    wnpu_wav_reader audio_reader;
    unsigned problems = 0;
    size_t i;
    for (i = 0; i < sizeof chops / sizeof chops[0]; i++) {
        struct pipe_end pipe = {b->data, b->n, chops[i], 0};
        size_t frame, frames = 0;
        wnpu_audio s;
        wnpu_error e;
        int64_t n;
        int opened;
        wnpu_audio_init(&s, sizeof s);
        wnpu_wav_reader_init(&audio_reader, sizeof audio_reader);
        audio_reader.read = pipe_read;
        audio_reader.user = &pipe;
        opened = wnpu_wav_reader_open(&audio_reader, &s, &e);
        if (opened == WNPU_E_UNSUPPORTED && strstr(e.message, "fmt") != NULL) {
            return 0;
        }
        if (opened != WNPU_OK || (status != WNPU_OK && strstr(e.message, "no audio") != NULL)) {
            T_CHECK(status == opened && e.message[0] != '\0' && s.frames == 0 && s.read == NULL,
                    "in memory %d, streamed %d: %s", status, opened, e.message);
            return 0;
        }
        frame = s.channels * (size_t)au_widths[s.format];
        if (status != WNPU_OK) { /* no whole frame of samples: the reader ends at once */
            T_CHECK(s.read(s.user, got, 1) == 0, "in memory %d", status);
            return 0;
        }
        T_CHECK(s.format == a->format && s.channels == a->channels && s.rate == a->rate &&
                s.data == NULL && s.channel == WNPU_CHANNEL_MIX && s.layout == a->layout,
                "streamed: another description");
        while ((n = s.read(s.user, got + frames * frame, (sizeof got / frame) - frames)) > 0) {
            frames += (size_t)n;
        }
        problems = audio_reader.problems;
        T_CHECK(n == 0 && audio_reader.frames == frames && s.read(s.user, got, 1) == 0, "its end");
        T_CHECK(frames >= a->frames && memcmp(got, a->data, (size_t)a->frames * frame) == 0,
                "streamed by %zu: %zu frames, not %llu", chops[i], frames,
                (unsigned long long)a->frames);
    }
    return problems;
}

static void readable(const struct audio_bytes *b, int format, uint32_t channels, uint64_t frames,
                     size_t at, const char *what)
{
    unsigned char *copy;
    wnpu_audio a;
    wnpu_error e;
    int status = wav(b, &a, &e, &copy);
    (void)streamed(b, &a, status);
    T_CHECK(status == WNPU_OK && e.code == WNPU_OK, "%s: %s", what, e.message);
    if (status == WNPU_OK) {
        T_CHECK(a.format == format && a.channels == channels && a.frames == frames &&
                a.data == copy + at, "%s: format %d channels %u frames %llu offset %ld", what,
                (int)a.format, a.channels, (unsigned long long)a.frames,
                (long)((const unsigned char *)a.data - copy));
        T_CHECK(a.channel == WNPU_CHANNEL_MIX && a.read == NULL && a.layout ==
                (strcmp(what, "extensible") != 0 ? 0 : channels == 3 ? 0x7u : 0x3fu) &&
                a.struct_size == sizeof a, "%s: other fields", what);
    }
    free(copy);
}

static void unreadable(const struct audio_bytes *b, const char *word)
{
    unsigned char *copy;
    wnpu_audio a;
    wnpu_error e;
    T_CHECK(wav(b, &a, &e, &copy) == WNPU_E_AUDIO && e.code == WNPU_E_AUDIO, "%s accepted", word);
    (void)streamed(b, &a, WNPU_E_AUDIO);
    T_CHECK(strstr(e.message, word) != NULL, "\"%s\" does not tell of %s", e.message, word);
    T_CHECK(a.frames == 0 && a.data == NULL && a.struct_size == sizeof a, "left empty");
    free(copy);
}

static void test_wav_formats(void)
{
    static const struct {
        unsigned tag, bits;
        int format;
        unsigned width;
    } kinds[] = {
        {1, 8, WNPU_SAMPLE_U8, 1}, {1, 16, WNPU_SAMPLE_S16LE, 2}, {1, 24, WNPU_SAMPLE_S24LE, 3},
        {1, 32, WNPU_SAMPLE_S32LE, 4}, {3, 32, WNPU_SAMPLE_F32LE, 4}, {3, 64, WNPU_SAMPLE_F64LE, 8},
        {6, 8, WNPU_SAMPLE_ALAW, 1}, {7, 8, WNPU_SAMPLE_ULAW, 1}
    };
    static const uint32_t sizes[] = {16, 18, 40, 20};
    struct audio_bytes b;
    size_t i, k;
    unsigned channels;
    for (i = 0; i < 8; i++) {
        for (channels = 1; channels <= 5; channels++) {
            uint32_t audio_bytes = 24 * channels * kinds[i].width;
            for (k = 0; k < 4; k++) {
                begin(&b, "RIFF");
                put_fmt(&b, sizes[k], kinds[i].tag, channels, 16000, kinds[i].bits);
                put_chunk(&b, "data", audio_bytes);
                put_samples(&b, audio_bytes);
                readable(&b, kinds[i].format, channels, 24, 28 + sizes[k], "plain");
            }
            begin(&b, "RIFF");
            put_extensible(&b, kinds[i].tag, channels, kinds[i].bits);
            put_chunk(&b, "data", audio_bytes);
            put_samples(&b, audio_bytes);
            put_le(b.data + 40, channels == 3 ? 0x7 : 0x3f, 4); /* the channel mask */
            readable(&b, kinds[i].format, channels, 24, 68, "extensible");
        }
    }
}

/* Widths and alignments that are not the usual ones. */
static void test_frame_bytes(void)
{
    static const size_t bytes[] = {4, 2, 1, 2, 3, 4, 4, 8, 1, 1};
    wnpu_audio a;
    wnpu_audio_init(&a, sizeof a);
    T_CHECK(wnpu_frame_bytes(&a) == 4 && wnpu_frame_bytes(NULL) == 0, "defaults");
    for (a.format = -1; a.format <= 10; a.format++) {
        for (a.channels = 0; a.channels <= 257; a.channels++) {
            size_t want = a.format < 0 || a.format > 9 || a.channels > 256
                              ? 0 : bytes[a.format] * a.channels;
            T_CHECK(wnpu_frame_bytes(&a) == want, "format %d, %u channels", (int)a.format,
                    (unsigned)a.channels);
        }
    }
}

static void test_wav_widths(void)
{
    struct audio_bytes b;
    begin(&b, "RIFF");
    put_fmt(&b, 16, 1, 1, 16000, 24);
    put_chunk(&b, "data", 9); /* frames of 3 bytes, 3 of them: an odd size, and no pad */
    put_samples(&b, 9);
    readable(&b, WNPU_SAMPLE_S24LE, 1, 3, 44, "odd frames");
    put_le(b.data + 34, 20, 2); /* 20 bits in 3 bytes */
    readable(&b, WNPU_SAMPLE_S24LE, 1, 3, 44, "20 bits");
    put_le(b.data + 34, 12, 2);
    put_le(b.data + 32, 2, 2); /* 12 bits in 2 bytes */
    readable(&b, WNPU_SAMPLE_S16LE, 1, 4, 44, "12 bits");
    put_le(b.data + 34, 24, 2);
    put_le(b.data + 32, 4, 2); /* 24 bits in 4 bytes */
    readable(&b, WNPU_SAMPLE_S32LE, 1, 2, 44, "24 bits in 32");
    put_le(b.data + 34, 16, 2);
    put_le(b.data + 32, 0, 2);
    readable(&b, WNPU_SAMPLE_S16LE, 1, 4, 44, "no alignment");
    put_le(b.data + 32, 7, 2);
    readable(&b, WNPU_SAMPLE_S16LE, 1, 4, 44, "a wrong alignment");
    put_le(b.data + 34, 0, 2);
    put_le(b.data + 32, 2, 2);
    readable(&b, WNPU_SAMPLE_S16LE, 1, 4, 44, "no bits");
    put_le(b.data + 32, 0, 2);
    unreadable(&b, "0 bits");
    put_le(b.data + 34, 64, 2);
    unreadable(&b, "64 bits");
    put_le(b.data + 20, 7, 2); /* mu-law that tells the width of what it stands for */
    put_le(b.data + 34, 16, 2);
    put_le(b.data + 32, 1, 2);
    readable(&b, WNPU_SAMPLE_ULAW, 1, 9, 44, "mu-law of 16 bits");
}

static void test_wav_chunks(void)
{
    static const char text[] = "some text";
    unsigned length, padded;
    struct audio_bytes b;
    for (length = 0; length <= 9; length++) {
        for (padded = 0; padded < 2; padded++) {
            size_t at;
            int where; /* 0: before fmt, 1: between, 2: after data */
            for (where = 0; where < 3; where++) {
                int step;
                begin(&b, "RIFF");
                at = 0;
                for (step = 0; step < 3; step++) {
                    if (step == where) {
                        put_chunk(&b, length % 2 ? "xYz " : "LIST", length);
                        memcpy(b.data + b.n, text, length);
                        b.n += length;
                        if (padded && length % 2) {
                            b.data[b.n++] = 0;
                        }
                    }
                    if (step == 0) {
                        put_fmt(&b, 16, 1, 1, 16000, 16);
                    } else if (step == 1) {
                        put_chunk(&b, "data", 20);
                        at = b.n;
                        put_samples(&b, 20);
                    }
                }
                readable(&b, WNPU_SAMPLE_S16LE, 1, 10, at, "other chunks");
            }
        }
    }
    for (padded = 0; padded < 2; padded++) { /* data before fmt, with an odd size */
        begin(&b, "RIFF");
        put_chunk(&b, "data", 21);
        put_samples(&b, 21 + padded);
        put_fmt(&b, 16, 1, 1, 16000, 8);
        readable(&b, WNPU_SAMPLE_U8, 1, 21, 20, "data first");
    }
    begin(&b, "RIFF"); /* the first fmt and the first data that holds anything count */
    put_fmt(&b, 16, 1, 1, 16000, 16);
    put_chunk(&b, "data", 0);
    put_fmt(&b, 16, 1, 2, 8000, 8);
    put_chunk(&b, "data", 8);
    put_samples(&b, 8);
    put_chunk(&b, "data", 4);
    put_samples(&b, 4);
    readable(&b, WNPU_SAMPLE_S16LE, 1, 4, 76, "two of each");
}

static void test_wav_sizes(void)
{
    static const uint32_t claims[] = {0, UINT32_MAX, 0x7fffffff, 0x7fffffff - 36, 41, 1000000};
    struct audio_bytes b;
    size_t i;
    for (i = 0; i < 6; i++) {
        begin(&b, "RIFF");
        put_le(b.data + 4, i % 2 ? 0xffffffff : 0, 4); /* the outer size says nothing */
        put_fmt(&b, 16, 1, 2, 16000, 16);
        put_chunk(&b, "data", claims[i]);
        put_samples(&b, 39); /* 9 frames and 3 bytes */
        readable(&b, WNPU_SAMPLE_S16LE, 2, 9, 44, "claimed size");
    }
    begin(&b, "RIFF");
    put_fmt(&b, 16, 1, 1, 16000, 16);
    put_chunk(&b, "data", 20);
    put_samples(&b, 25); /* bytes behind the last chunk */
    readable(&b, WNPU_SAMPLE_S16LE, 1, 10, 44, "tail");
    begin(&b, "RIFF");
    put_fmt(&b, 16, 1, 1, 16000, 16);
    put_chunk(&b, "data", 0);
    unreadable(&b, "no audio data");
    put_chunk(&b, "LIST", 4); /* the data chunk is truly empty */
    put_int(&b, 0x41414141, 4);
    unreadable(&b, "no audio data");
    begin(&b, "RIFF");
    put_fmt(&b, 16, 1, 1, 16000, 16);
    put_chunk(&b, "data", 0);
    put_chunk(&b, "abcd", 5); /* unknown, but it leads to the end of the file */
    put_samples(&b, 5);
    unreadable(&b, "no audio data");
    put_int(&b, 0, 1);
    unreadable(&b, "no audio data");
    for (i = 0; i < 4; i++) { /* too short for a chunk: samples that look like text */
        begin(&b, "RIFF");
        put_fmt(&b, 16, 1, 1, 16000, 16);
        put_chunk(&b, "data", 0);
        put_int(&b, UINT64_C(0x41414141414141), 4 + (int)i);
        readable(&b, WNPU_SAMPLE_S16LE, 1, 2 + i / 2, 44, "text at the end");
    }
    begin(&b, "RIFF");
    put_fmt(&b, 16, 1, 1, 16000, 16);
    put_chunk(&b, "data", 1);
    put_samples(&b, 1);
    unreadable(&b, "no audio data");
    begin(&b, "RIFF");
    put_fmt(&b, 16, 1, 1, 16000, 16);
    unreadable(&b, "no data chunk");
}

/* What is wrong with a file that is read: its problems as a stream, which wnpu_wav_open() must name
 * too. */
static void troubled(const struct audio_bytes *b, uint64_t frames, unsigned problems,
                     const char *word)
{
    unsigned char *copy;
    wnpu_audio a;
    wnpu_error e;
    unsigned found;
    T_CHECK(wav(b, &a, &e, &copy) == WNPU_OK && e.code == WNPU_OK, "%s", e.message);
    T_CHECK(word[0] == '\0' ? e.message[0] == '\0' : strstr(e.message, word) != NULL,
            "\"%s\" does not tell of \"%s\"", e.message, word);
    T_CHECK(a.frames == frames, "%llu frames", (unsigned long long)a.frames);
    found = streamed(b, &a, WNPU_OK);
    T_CHECK(found == problems, "problems %u, not %u", found, problems);
    free(copy);
}

/* A data size that is too small or too large. riff: what the outer size counts. */
static void test_wav_wrong_sizes(void)
{
    struct audio_bytes b;
    unsigned riff;
    for (riff = 0; riff < 3; riff++) {
        begin(&b, "RIFF");
        put_fmt(&b, 16, 1, 1, 16000, 16);
        put_chunk(&b, "data", 100);
        put_le(b.data + 4, riff == 0 ? 0 : riff == 1 ? (uint64_t)b.n + 100 - 8 : UINT32_MAX, 4);
        put_samples(&b, 1000);
        troubled(&b, 500, WNPU_WAV_LONGER, "after the end of the data chunk");
        b.n = 44 + 60;
        troubled(&b, 30, WNPU_WAV_CUT, "ends before");
        b.n = 44 + 100;
        troubled(&b, 50, 0, "");
        put_chunk(&b, "LIST", 6);
        put_samples(&b, 6);
        troubled(&b, 50, 0, "");
        b.n = 44 + 100;
        memset(b.data + b.n, 0, 600); /* padding */
        b.n += 600;
        troubled(&b, 50, 0, "");
        b.data[b.n++] = 1;
        troubled(&b, 350, WNPU_WAV_LONGER, "after the end of the data chunk");
    }
    /* Samples that look like a chunk's name, with a size that leads nowhere. */
    begin(&b, "RIFF");
    put_fmt(&b, 16, 1, 1, 16000, 16);
    put_chunk(&b, "data", 100);
    put_le(b.data + 4, b.n + 100 - 8, 4);
    put_samples(&b, 100);
    put_chunk(&b, "abcd", 999);
    put_samples(&b, 500);
    troubled(&b, 50 + 4 + 250, WNPU_WAV_LONGER, "after the end of the data chunk");
    /* A chunk of unknown name, larger than what is looked at, that the outer size counts. */
    put_le(b.data + 4, b.n - 8, 4);
    put_le(b.data + 148, 500, 4);
    troubled(&b, 50, 0, "");
    /* The size is odd. */
    begin(&b, "RIFF");
    put_fmt(&b, 16, 1, 1, 16000, 8);
    put_chunk(&b, "data", 101);
    put_samples(&b, 300);
    troubled(&b, 300, WNPU_WAV_LONGER, "after the end of the data chunk");
    /* What recorders hope for is no loss. */
    put_le(b.data + 40, 0x7ffff000, 4);
    troubled(&b, 300, 0, "");
}

/* Two data chunks: the reader gives both, whole frames of each. */
static void test_wav_parts(void)
{
    struct pipe_end pipe;
    wnpu_wav_reader audio_reader;
    unsigned char got[64];
    wnpu_audio a;
    wnpu_error e;
    struct audio_bytes b;
    size_t cut;
    begin(&b, "RIFF");
    put_fmt(&b, 16, 1, 1, 16000, 16);
    put_chunk(&b, "data", 21);
    put_samples(&b, 22);
    put_chunk(&b, "LIST", 4);
    put_samples(&b, 4);
    put_chunk(&b, "data", 8);
    put_samples(&b, 8);
    troubled(&b, 10, 0, "several data chunks");
    pipe.data = b.data;
    pipe.left = b.n;
    pipe.chop = 5;
    pipe.failure = -7;
    wnpu_audio_init(&a, sizeof a);
    wnpu_wav_reader_init(&audio_reader, sizeof audio_reader);
    T_CHECK(wnpu_wav_reader_open(&audio_reader, &a, &e) == WNPU_E_ARGUMENT, "no read");
    audio_reader.read = pipe_read;
    audio_reader.user = &pipe;
    T_CHECK(wnpu_wav_reader_open(&audio_reader, NULL, &e) == WNPU_E_ARGUMENT, "no audio");
    T_CHECK(wnpu_wav_reader_open(&audio_reader, &a, &e) == WNPU_OK && a.frames == 10, "%s",
            e.message);
    while (audio_reader.frames < 10) {
        int64_t n = a.read(a.user, got + 2 * audio_reader.frames, 10 - (size_t)audio_reader.frames);
        T_CHECK(n > 0, "%lld", (long long)n);
        if (n <= 0) {
            return;
        }
    }
    while (audio_reader.frames < 14) {
        int64_t n = a.read(a.user, got + 2 * audio_reader.frames, 14 - (size_t)audio_reader.frames);
        T_CHECK(n > 0, "%lld of the second chunk", (long long)n);
        if (n <= 0) {
            return;
        }
    }
    T_CHECK(got[0] == 0x80 && got[20] == 0x80 && got[27] == 0x87, "both parts");
    T_CHECK(a.read(a.user, got, 1) == -7 && a.read(a.user, got, 1) == -7, "the failure");
    for (cut = 0; cut < 44; cut += 11) {
        pipe.data = b.data;
        pipe.left = cut;
        T_CHECK(wnpu_wav_reader_open(&audio_reader, &a, &e) == WNPU_E_IO &&
                strstr(e.message, "failed with -7") != NULL, "%lu bytes: %s", (unsigned long)cut,
                e.message);
    }
    audio_reader.struct_size -= 8;
    T_CHECK(wnpu_wav_reader_open(&audio_reader, &a, &e) == WNPU_E_VERSION, "an older header");
}

static void put_ds64(struct audio_bytes *b, uint64_t size)
{
    put_chunk(b, "ds64", 28);
    put_int(b, 0, 8);
    put_int(b, size, 8);
    put_int(b, 0, 8);
    put_int(b, 0, 4);
}

static void test_wav_rf64(void)
{
    static const char *const names[] = {"RF64", "BW64"};
    static const uint64_t claims[] = {20, 0, UINT64_MAX, UINT64_C(1) << 40, 29};
    /* 20 is too small: what follows is neither a chunk nor the end. */
    static const uint64_t frames[] = {14, 14, 14, 14, 14};
    struct audio_bytes b;
    size_t i;
    for (i = 0; i < 10; i++) {
        begin(&b, names[i % 2]);
        put_le(b.data + 4, UINT32_MAX, 4);
        put_ds64(&b, claims[i / 2]);
        put_fmt(&b, 16, 1, 1, 16000, 16);
        put_chunk(&b, "data", UINT32_MAX);
        put_samples(&b, 29);
        readable(&b, WNPU_SAMPLE_S16LE, 1, frames[i / 2], 80, names[i % 2]);
        if (claims[i / 2] == 0) { /* a placeholder: nothing is missing */
            troubled(&b, frames[i / 2], 0, "");
        }
        put_le(b.data + 76, 24, 4); /* a size that fits into 32 bits is the one */
        readable(&b, WNPU_SAMPLE_S16LE, 1, 12, 80, names[i % 2]);
    }
    begin(&b, "RF64");
    put_fmt(&b, 16, 1, 1, 16000, 16);
    put_chunk(&b, "data", UINT32_MAX);
    put_samples(&b, 12);
    readable(&b, WNPU_SAMPLE_S16LE, 1, 6, 44, "RF64 without ds64");
}

static void test_wav_refused(void)
{
    static const struct {
        unsigned tag;
        const char *word;
    } tags[] = {
        {2, "Microsoft ADPCM (format 2)"}, {0x11, "IMA ADPCM (format 17)"}, {0x31, "GSM"},
        {0x55, "MP3"}, {0x161, "WMA"}, {0x1234, "unknown sample format 4660"}, {0, "format 0"}
    };
    static const struct {
        const char *magic, *word;
    } files[] = {
        {"RIFX....WAVEfmt ", "RIFX"}, {"riff\x2e\x91\xcf\x11........", "Wave64"},
        {"FORM....AIFFCOMM", "AIFF"}, {".snd............", "Sun"}, {"caff............", "CAF"},
        {"fLaC............", "FLAC"}, {"OggS............", "Ogg"}, {"....ftypM4A ....", "MP4"},
        {"ID3\x04............", "MP3"}, {"\x1a\x45\xdf\xa3............", "Matroska"},
        {"\x30\x26\xb2\x75............", "WMA"}, {"hello, I am text", "not a WAV"},
        {"RIFF....AVI LIST", "not a WAV file"}
    };
    struct audio_bytes b;
    size_t i;
    for (i = 0; i < 7; i++) {
        begin(&b, "RIFF");
        put_fmt(&b, 20, tags[i].tag, 1, 16000, 4);
        put_chunk(&b, "data", 20);
        put_samples(&b, 20);
        unreadable(&b, tags[i].word);
    }
    for (i = 0; i < 13; i++) {
        memcpy(b.data, files[i].magic, 16);
        b.n = 16;
        unreadable(&b, files[i].word);
    }
    b.n = 0;
    unreadable(&b, "empty");
    begin(&b, "RIFF");
    put_extensible(&b, 1, 1, 16);
    b.data[b.n - 1] ^= 1;
    unreadable(&b, "sub-format");
    begin(&b, "RIFF");
    put_fmt(&b, 18, 0xfffe, 1, 16000, 16);
    unreadable(&b, "18 bytes instead of 40");
    begin(&b, "RIFF");
    put_fmt(&b, 16, 1, 1, 16000, 16);
    put_le(b.data + 16, 14, 4);
    unreadable(&b, "14 bytes");
    put_le(b.data + 16, 17, 4);
    unreadable(&b, "ends inside");
    for (i = 0; i < 4; i++) {
        begin(&b, "RIFF");
        put_fmt(&b, 16, 1, i == 0 ? 0 : i == 1 ? 257 : 1, i == 2 ? 7999 : 192001, 8);
        put_chunk(&b, "data", 600);
        put_samples(&b, 600);
        unreadable(&b, i == 0 ? "0 channels" : i == 1 ? "257 channels" : i == 2 ? "7999" :
                   "192001");
    }
    begin(&b, "RIFF");
    put_chunk(&b, "data", 20);
    put_samples(&b, 20);
    unreadable(&b, "no fmt chunk");
}

static void test_wav_arguments(void)
{
    struct audio_bytes b;
    wnpu_error e;
    struct {
        wnpu_audio audio;
        unsigned char more[8];
    } longer;
    wnpu_audio a;
    begin(&b, "RIFF");
    put_fmt(&b, 16, 1, 1, 44100, 16);
    put_chunk(&b, "data", 20);
    put_samples(&b, 20);
    wnpu_audio_init(&a, sizeof a);
    T_CHECK(wnpu_wav_open(NULL, b.data, b.n, &e) == WNPU_E_ARGUMENT, "no audio");
    T_CHECK(wnpu_wav_open(&a, NULL, 1, &e) == WNPU_E_ARGUMENT, "no data");
    T_CHECK(wnpu_wav_open(&a, NULL, 0, &e) == WNPU_E_AUDIO, "nothing at all");
    T_CHECK(wnpu_wav_open(&a, b.data, b.n, NULL) == WNPU_OK && a.rate == 44100, "no error");
    a.struct_size = 8;
    T_CHECK(wnpu_wav_open(&a, b.data, b.n, &e) == WNPU_E_ARGUMENT &&
            strstr(e.message, "wnpu_audio_init") != NULL, "not initialised");
    wnpu_audio_init(&longer.audio, sizeof longer);
    T_CHECK(wnpu_wav_open(&longer.audio, b.data, b.n, &e) == WNPU_OK &&
            longer.audio.struct_size == sizeof longer, "a newer user's structure");
}

/* Whatever a file is cut down to or changed into: an answer, nothing read outside. */
static void any_bytes(const struct audio_bytes *b, au_stream *s)
{
    static float out[4096];
    unsigned char *copy;
    wnpu_audio a;
    wnpu_error e;
    memset(&e, 0, sizeof e);
    if (wav(b, &a, &e, &copy) == WNPU_OK) {
        const unsigned char *data = a.data;
        size_t frame = a.channels * (size_t)au_widths[a.format];
        int64_t got;
        T_CHECK(data >= copy && a.frames > 0 &&
                a.frames * frame <= b->n - (size_t)(data - copy), "inside the file");
        T_CHECK(au_open(s, &a, &e) == WNPU_OK, "%s", e.message);
        while ((got = au_read(s, out, 4096, &e)) > 0) {
        }
        T_CHECK(got == 0, "read to the end");
        (void)streamed(b, &a, WNPU_OK);
    } else {
        T_CHECK(e.code == WNPU_E_AUDIO && strlen(e.message) > 10, "a reason");
        (void)streamed(b, &a, e.code);
    }
    free(copy);
}

static void test_wav_damaged(void)
{
    struct audio_bytes files[5], cut;
    void *memory;
    au_stream *s = stream_new(&memory);
    size_t i, n, k;
    for (i = 0; i < 5; i++) {
        struct audio_bytes *b = &files[i];
        begin(b, i == 2 ? "RF64" : "RIFF");
        if (i == 2) {
            put_ds64(b, 120);
        }
        if (i == 3) {
            put_chunk(b, "LIST", 5);
            put_samples(b, 5);
        }
        if (i == 1) {
            put_extensible(b, 3, 2, 64);
        } else {
            put_fmt(b, 18, i == 4 ? 7 : 1, 1 + (unsigned)i, 44100, i == 4 ? 8 : 24);
        }
        put_chunk(b, "fact", 4);
        put_int(b, 10, 4);
        put_chunk(b, "data", i == 2 ? UINT32_MAX : i == 3 ? 0 : 120);
        put_samples(b, 120);
        put_chunk(b, "LIST", 11);
        put_samples(b, 12);
        for (n = 0; n <= b->n; n++) {
            cut = *b;
            cut.n = n;
            any_bytes(&cut, s);
        }
        for (n = 0; n < 3000; n++) {
            static const unsigned char nasty[] = {0, 1, 2, 0x7f, 0x80, 0xfe, 0xff};
            cut = *b;
            for (k = rnd() % 4 + 1; k > 0; k--) {
                cut.data[rnd() % 96] = rnd() % 2 ? nasty[rnd() % 7] : (unsigned char)rnd();
            }
            any_bytes(&cut, s);
        }
    }
    free(memory);
}

/* ---- WAV files, recorded ---- */

static unsigned char *load(const char *name, size_t *size)
{
    static const char *const places[] = {NULL, "../shared/speech", "../../shared/speech"};
    size_t i;
    for (i = 0; i < 3; i++) {
        const char *dir = i == 0 ? getenv("WNPU_SPEECH") : places[i];
        char path[1024];
        unsigned char *data;
        snprintf(path, sizeof path, "%s/hard/%s", dir != NULL ? dir : "", name);
        data = life_load(path, size);
        if (data != NULL) {
            return data;
        }
    }
    return NULL;
}

/* Samples of a file at 16 kHz, to be freed; NULL with a complaint when it cannot be read. */
static float *recording(const char *name, size_t *n, int32_t channel)
{
    size_t size;
    unsigned char *data = load(name, &size);
    wnpu_audio a;
    wnpu_error e;
    float *out = NULL;
    wnpu_audio_init(&a, sizeof a);
    e.message[0] = '\0';
    if (data != NULL && wnpu_wav_open(&a, data, size, &e) == WNPU_OK) {
        a.channel = channel;
        out = audio_read_all(&a, n, 0);
    }
    T_CHECK(out != NULL, "%s: %s", name, data == NULL ? "missing" : e.message);
    free(data);
    return out;
}

/* Signal to error in dB, where the error is the difference to want. */
static double likeness(const float *want, const float *got, size_t n)
{
    double power = 0, error = 1e-30;
    size_t i;
    for (i = 0; i < n; i++) {
        double d = (double)want[i] - (double)got[i];
        power += (double)want[i] * (double)want[i];
        error += d * d;
    }
    return 10 * log10(power / error);
}

#define UTTERANCE 188240u /* samples of the one utterance, from the file's size */

static void test_recordings(void)
{
    static const struct {
        const char *name;
        int32_t channel;
        double decibels; /* at least so like the original */
    } same[] = {
        {"wavhdr_datasize0.wav", -1, 200}, {"wavhdr_datasize_ffffffff.wav", -1, 200},
        {"wavhdr_list_before_data.wav", -1, 200}, {"wavhdr_odd_byte_tail.wav", -1, 200},
        {"wavhdr_odd_chunk_padded.wav", -1, 200}, {"wavhdr_truncated.wav", -1, 200},
        {"wavhdr_extensible.wav", -1, 200},
        {"fmt_19-198-0001_rf64.wav", -1, 200}, {"fmt_19-198-0001_s24.wav", -1, 200},
        {"fmt_19-198-0001_s32.wav", -1, 200}, {"fmt_19-198-0001_f32.wav", -1, 200},
        {"fmt_19-198-0001_f64.wav", -1, 200}, {"fmt_19-198-0001_alaw.wav", -1, 30},
        {"fmt_19-198-0001_mulaw.wav", -1, 30}, {"fmt_19-198-0001_u8.wav", -1, 15},
        {"chan_leftonly.wav", 0, 200}, {"chan_rightonly.wav", 1, 200},
        {"chan_antiphase.wav", 0, 200},
        {"fmt_19-198-0001_24k.wav", -1, 30}, {"fmt_19-198-0001_32k.wav", -1, 30},
        {"fmt_19-198-0001_48k.wav", -1, 30}, {"fmt_19-198-0001_44k.wav", -1, 30},
        {"fmt_19-198-0001_22k.wav", -1, 30}, {"fmt_19-198-0001_11k.wav", -1, 10},
        {"fmt_19-198-0001_8k.wav", -1, 10}
    };
    size_t i, n, size;
    unsigned char *original = load("wavhdr_extensible.wav", &size);
    float *want, *got;
    if (original == NULL) {
        t_skip("no recordings; WNPU_SPEECH names their directory");
        return;
    }
    want = audio_need(UTTERANCE * sizeof *want);
    for (i = 0; i < UTTERANCE; i++) { /* 68 bytes of header */
        int v = original[68 + 2 * i] | original[69 + 2 * i] << 8;
        want[i] = (float)(v > 32767 ? v - 65536 : v) / 32768.0f;
    }
    for (i = 0; i < sizeof same / sizeof same[0]; i++) {
        double db;
        got = recording(same[i].name, &n, same[i].channel);
        if (got == NULL) {
            continue;
        }
        /* Files of other rates end up to one of their frames later: 2 samples at 8 kHz. */
        T_CHECK(n >= UTTERANCE && n <= UTTERANCE + (same[i].decibels < 100 ? 2 : 0),
                "%s: %zu samples", same[i].name, n);
        db = likeness(want, got, n < UTTERANCE ? n : UTTERANCE);
        T_CHECK(db >= same[i].decibels, "%s: %.1f dB", same[i].name, db);
        free(got);
    }
    free(original);
    free(want);
}

static void test_recordings_more(void)
{
    static const struct {
        const char *name;
        size_t samples;
    } lengths[] = {
        {"trim_0.02s.wav", 320}, {"trim_0.1s.wav", 1600}, {"trim_0.5s.wav", 8000},
        {"trim_0.99s.wav", 15840}, {"trim_1.00s.wav", 16000}, {"trim_29.98s.wav", 479680},
        {"trim_30.00s.wav", 480000}, {"trim_30.02s.wav", 480320},
        {"fmt_19-198-0001_stereo.wav", UTTERANCE},
        {"fmt_19-198-0001_amrlike8k_mulaw.wav", UTTERANCE},
        {"phone_19-198-0001.wav", UTTERANCE}, {"quiet50dB_19-198-0001.wav", UTTERANCE},
        {"clip24dB_19-198-0001.wav", UTTERANCE}, {"echo_19-198-0001.wav", 190160},
        {"white_snr5_19-198-0001.wav", UTTERANCE}, {"music_snr5_19-198-0001.wav", UTTERANCE},
        {"babble1_snr10_19-198-0001.wav", UTTERANCE}
    };
    static const struct {
        const char *name, *word;
    } bad[] = {
        {"bad_empty0bytes.wav", "empty"}, {"bad_headeronly.wav", "no audio data"},
        {"fmt_19-198-0001_adpcm_ms.wav", "Microsoft ADPCM (format 2)"},
        {"fmt_19-198-0001_adpcm_ima.wav", "IMA ADPCM (format 17)"},
        {"fmt_19-198-0001_w64.w64", "Wave64"}, {"fmt_19-198-0001_aiff.aiff", "AIFF"},
        {"fmt_19-198-0001_au.au", "Sun"}, {"fmt_19-198-0001_be16.caf", "CAF"},
        {"fmt_19-198-0001_flac16.flac", "FLAC"}, {"fmt_19-198-0001_vorbis.ogg", "Ogg"},
        {"fmt_19-198-0001_opus24k.opus", "Ogg"}, {"fmt_19-198-0001_opus.webm", "Matroska"},
        {"fmt_19-198-0001_aac.m4a", "MP4"}, {"fmt_19-198-0001_wma.wma", "WMA"},
        {"fmt_19-198-0001_mp3_16k.mp3", "MP3"}
    };
    size_t i, n, size;
    unsigned char *data = load("bad_headeronly.wav", &size);
    float *want, *got;
    if (data == NULL) {
        t_skip("no recordings; WNPU_SPEECH names their directory");
        return;
    }
    free(data);
    for (i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        got = recording(lengths[i].name, &n, WNPU_CHANNEL_MIX);
        T_CHECK(got == NULL || n == lengths[i].samples, "%s: %zu samples", lengths[i].name, n);
        free(got);
    }
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        wnpu_audio a;
        wnpu_error e;
        data = load(bad[i].name, &size);
        wnpu_audio_init(&a, sizeof a);
        T_CHECK(data != NULL && wnpu_wav_open(&a, data, size, &e) == WNPU_E_AUDIO &&
                strstr(e.message, bad[i].word) != NULL, "%s: %s", bad[i].name,
                data == NULL ? "missing" : e.message);
        free(data);
    }
    /* Opposite signals would cancel in the mean: one of them is heard instead. */
    got = recording("chan_antiphase.wav", &n, WNPU_CHANNEL_MIX);
    want = recording("chan_antiphase.wav", &size, 0);
    T_CHECK(got != NULL && want != NULL && n == size && n > 0 &&
            memcmp(got, want, n * sizeof *got) == 0, "antiphase mix");
    free(got);
    free(want);
}

static void audio_tests(void)
{
    t_run("integer samples", test_integers);
    t_run("float samples", test_floats);
    t_run("A-law", test_alaw);
    t_run("mu-law", test_ulaw);
    t_run("channels", test_channels);
    t_run("layouts of channels", test_layouts);
    t_run("resampler pass band", test_pass_band);
    t_run("resampler stop band", test_stop_band);
    t_run("resampler keeps a constant", test_constant);
    t_run("resampler delay", test_delay);
    t_run("resampler lengths", test_lengths);
    t_run("resampler against its definition", test_definition);
    t_run("resampler bits", test_bits);
    t_run("pieces do not matter", test_chunks);
    t_run("16 kHz is untouched", test_untouched);
    t_run("reader failures", test_faults);
    t_run("audio arguments", audio_test_arguments);
    t_run("audio init", test_init);
    t_run("stream arena", test_arena);
    t_run("channels that cancel", test_cancelling);
    t_run("floats of another scale", test_scale);
    t_run("WAV formats", test_wav_formats);
    t_run("bytes of a frame", test_frame_bytes);
    t_run("WAV widths", test_wav_widths);
    t_run("WAV chunks", test_wav_chunks);
    t_run("WAV sizes", test_wav_sizes);
    t_run("WAV wrong sizes", test_wav_wrong_sizes);
    t_run("WAV parts", test_wav_parts);
    t_run("WAV RF64", test_wav_rf64);
    t_run("WAV refusals", test_wav_refused);
    t_run("WAV arguments", test_wav_arguments);
    t_run("WAV damaged", test_wav_damaged);
    t_run("recordings against their original", test_recordings);
    t_run("recordings, lengths and refusals", test_recordings_more);
}
