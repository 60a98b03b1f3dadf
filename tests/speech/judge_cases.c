/* judge_cases.c - 200 cases in which the voice activity detector may fail: recordings of
 * DIRECTORY's short/ behind narrow channels, after louder voices, between bursts of noise, in
 * rumble, hum and music, as telephone speech at 8 kHz, and the same sounds without a voice.
 *
 * usage: judge_cases MODEL DIRECTORY [choose|judge|all] [FOLDER]
 *
 * DIRECTORY has a manifest.tsv, see accuracy.sh. MODEL is any, as only the detector runs. Cases
 * of one half are for choosing rules, those of the other (judge) for judging them; they have
 * different recordings. With FOLDER each case is written there as NNN.wav and its words into
 * reference.tsv.
 *
 * Voice is told from the clean recordings: 20 ms steps at most 30 dB below the loud ones, pauses
 * below 300 ms included. Covered: share of the voice's steps in spans. Lost: recordings of which
 * less than a half is covered. False: seconds in spans that are more than 500 ms from any voice
 * (pauses of up to 700 ms, which spans bridge, count as voice). Late: how long the last span
 * goes on after the last voice, without the padding of 300 ms; median. */
#include "../../whisper_npu.h"
#define main make_sounds_main
#include "make_sounds.c"
#undef main

#define CASES 200
#define STEP (RATE / 50)
#define MOST (60 * RATE)
#define PAD 15                  /* steps */
#define CLIPS 400
#define VOICE 1                 /* is to be found */
#define OTHER 2                 /* may be found */

typedef struct clip {
    char path[512], text[1024];
} clip;

typedef struct judged {
    float x[MOST];
    unsigned char voice[MOST / STEP], whose[MOST / STEP]; /* whose: number of the recording */
    char text[4096];
    size_t n, clips;
    uint32_t rate;              /* 16000, or 8000: every second sample counts */
    int late, half;
} judged;

typedef struct sums {
    size_t cases, steps, covered, clips, lost, n_late;
    double silent, wrong, late[CASES];
} sums;

static clip judge_clips[CLIPS];
static size_t judge_n_clips;

/* ---- recordings ---- */

static void judge_manifest(const char *directory)
{
    char line[8192];
    FILE *file;
    snprintf(line, sizeof line, "%s/manifest.tsv", directory);
    file = fopen(line, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL && judge_n_clips < CLIPS) {
        char *field[8], *at = line;
        int i;
        line[strcspn(line, "\r\n")] = 0;
        for (i = 0; i < 8 && at != NULL; i++) {
            field[i] = at;
            at = strchr(at, '\t');
            if (at != NULL) {
                *at++ = 0;
            }
        }
        if (i == 8 && strcmp(field[1], "short") == 0 && atof(field[3]) > 2 &&
            atof(field[3]) < 9) {
            clip *c = &judge_clips[judge_n_clips++];
            snprintf(c->path, sizeof c->path, "%s/%s", directory, field[0]);
            snprintf(c->text, sizeof c->text, "%s", field[7]);
        }
    }
    if (file == NULL || judge_n_clips < 4) {
        fprintf(stderr, "judge_cases: no recordings of 2 to 9 s of the set short in %s\n",
                directory);
        exit(1);
    }
    fclose(file);
}

/* A 16-bit mono WAV file at 16 kHz with a header of 44 bytes. */
static size_t judge_read(const char *path, float *x)
{
    static int16_t in[10 * RATE];
    FILE *file = fopen(path, "rb");
    size_t n, i;
    if (file == NULL || fseek(file, 44, SEEK_SET) != 0 ||
        (n = fread(in, 2, 10 * RATE, file)) == 0) {
        fprintf(stderr, "judge_cases: cannot read %s\n", path);
        exit(1);
    }
    fclose(file);
    for (i = 0; i < n; i++) {
        x[i] = (float)in[i] / 32768.0f;
    }
    return n;
}

static int judge_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Scales a clean recording to an RMS of 1 in its voice, and says where that is. */
static void judge_voice(float *x, size_t n, unsigned char *voice)
{
    static double level[MOST / STEP], sorted[MOST / STEP];
    double sum = 0, power, limit;
    size_t steps = n / STEP, i, k, last = 0, count = 0;
    for (i = 0; i < steps; i++) {
        for (level[i] = 0, k = 0; k < STEP; k++) {
            level[i] += (double)x[i * STEP + k] * (double)x[i * STEP + k] / STEP;
        }
        sorted[i] = level[i];
    }
    qsort(sorted, steps, sizeof *sorted, judge_order);
    limit = fmax(sorted[steps * 95 / 100] * 1e-3, sorted[steps / 20] * 3);
    for (i = 0; i < steps; i++) {
        voice[i] = level[i] > limit;
        if (voice[i]) {
            for (k = last; count > 0 && i - last < 15 && k < i; k++) {
                voice[k] = 1;
            }
            sum += level[i];
            last = i;
            count++;
        }
    }
    power = sqrt(sum / (double)count);
    for (i = 0; i < n; i++) {
        x[i] = (float)((double)x[i] / power);
    }
}

/* ---- filters ---- */

#define MOST_POINTS (1u << 20)

static void judge_fft(double *re, double *im, size_t n, int sign)
{
    static double c[MOST_POINTS / 2], s[MOST_POINTS / 2];
    size_t i, j, k, size;
    for (i = 1, j = 0; i < n; i++) {
        for (k = n >> 1; j & k; k >>= 1) {
            j ^= k;
        }
        j |= k;
        if (i < j) {
            double a = re[i], b = im[i];
            re[i] = re[j];
            im[i] = im[j];
            re[j] = a;
            im[j] = b;
        }
    }
    for (size = 2; size <= n; size *= 2) {
        for (k = 0; k < size / 2; k++) {
            c[k] = cos(2 * PI * (double)k / (double)size);
            s[k] = sign * sin(2 * PI * (double)k / (double)size);
        }
        for (i = 0; i < n; i += size) {
            for (k = i, j = i + size / 2; k < i + size / 2; k++, j++) {
                double a = re[j] * c[k - i] - im[j] * s[k - i];
                double b = re[j] * s[k - i] + im[j] * c[k - i];
                re[j] = re[k] - a;
                im[j] = im[k] - b;
                re[k] += a;
                im[k] += b;
            }
        }
    }
}

/* Keeps low..high Hz; edges are 40 Hz wide. */
static void judge_band(float *x, size_t n, double low, double high)
{
    static double re[MOST_POINTS], im[MOST_POINTS];
    size_t size = 1, i;
    while (size < n) {
        size *= 2;
    }
    for (i = 0; i < size; i++) {
        re[i] = i < n ? (double)x[i] : 0;
        im[i] = 0;
    }
    judge_fft(re, im, size, -1);
    for (i = 0; i < size; i++) {
        double f = (double)(i < size - i ? i : size - i) * RATE / (double)size;
        double gain = fmin(1, fmax(0, (f - low) / 40 + 0.5)) *
                      fmin(1, fmax(0, (high - f) / 40 + 0.5));
        re[i] *= gain;
        im[i] *= gain;
    }
    judge_fft(re, im, size, 1);
    for (i = 0; i < n; i++) {
        x[i] = (float)(re[i] / (double)size);
    }
}

static void judge_scale(float *x, size_t n, double rms)
{
    double sum = 1e-12;
    size_t i;
    for (i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    for (i = 0; i < n; i++) {
        x[i] = (float)((double)x[i] * rms / sqrt(sum / (double)n));
    }
}

static double decibels(double db) { return pow(10, db / 20); }

/* ---- parts of a case ---- */

#define SPOKEN 0.05             /* RMS of a voice at 0 dB */

/* Appends a recording between low and high Hz at a level in the band. */
static void say(judged *c, unsigned char what, double low, double high, double db)
{
    static float x[10 * RATE];
    static unsigned char voice[10 * 50 + 1];
    size_t k = (size_t)between(0, (double)(judge_n_clips / 2)) * 2 + (size_t)c->half, n, i;
    const clip *chosen = &judge_clips[k < judge_n_clips ? k : (size_t)c->half];
    n = judge_read(chosen->path, x) / STEP * STEP;
    judge_voice(x, n, voice);
    if (low > 0 || high < 8000) {
        judge_band(x, n, low, high);
        judge_scale(x, n, 0.8); /* the share of pauses */
    }
    for (i = 0; i < n && c->n + i < MOST; i++) {
        c->x[c->n + i] += (float)(SPOKEN * decibels(db) * (double)x[i]);
    }
    for (i = 0; i < n / STEP && c->n / STEP + i < MOST / STEP; i++) {
        c->voice[c->n / STEP + i] = voice[i] ? what : 0;
        c->whose[c->n / STEP + i] = (unsigned char)c->clips;
    }
    c->n += n;
    c->clips++;
    snprintf(c->text + strlen(c->text), sizeof c->text - strlen(c->text), " %s", chosen->text);
}

static void pause_for(judged *c, double low, double high)
{
    c->n += (size_t)(between(low, high) * 50) * STEP;
}

/* Adds a sound to all of the case; its RMS is db above a voice at 0 dB. */
static void add_sound(judged *c, maker *make, double low, double high, double db)
{
    static float y[MOST];
    size_t i;
    make(y, c->n);
    if (low > 0 || high < 8000) {
        judge_band(y, c->n, low, high);
    }
    judge_scale(y, c->n, SPOKEN * decibels(db));
    for (i = 0; i < c->n; i++) {
        c->x[i] += y[i];
    }
}

static void burst(judged *c, double low, double high, double db)
{
    static float y[RATE];
    size_t n = (size_t)between(2, 20.99) * STEP, i;
    white(y, RATE);
    judge_band(y, RATE, low, high);
    judge_scale(y, RATE, SPOKEN * decibels(db));
    for (i = 0; i < n; i++) {
        c->x[c->n + i] += y[i];
    }
    c->n += n;
}

static const double narrow[][2] = {{350, 2800}, {300, 3400}, {400, 2400}, {500, 3000}};

/* mu-law of G.711 (ITU-T), there and back. */
static void mu_law(float *x, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        int v = (int)lrint((double)x[i] * 8159), sign = v < 0 ? -1 : 1, e = 0;
        v = abs(v) > 8158 ? 8158 : abs(v);
        while (v + 33 >= 64 << e) {
            e++;
        }
        v = (((v + 33) >> (e + 1)) << (e + 1)) + (1 << e) - 33;
        x[i] = (float)(sign * v) / 8159.0f;
    }
}

/* Every second sample is what a recording at 8 kHz has. */
static void telephone_line(judged *c, double noise, int coded)
{
    add_sound(c, white, 0, 3700, noise - 20 * log10(SPOKEN));
    judge_band(c->x, c->n, 0, 3700);
    if (coded) {
        mu_law(c->x, c->n);
    }
    c->rate = 8000;
    c->late = 1;
}

/* ---- kinds; k: number of the case among those of its kind ---- */

static void caller(judged *c, int k)
{
    const double *b = narrow[k / 4 % 4];
    pause_for(c, 0.3, 1);
    say(c, OTHER, 0, 8000, 0);
    pause_for(c, 0.3, 2);
    say(c, VOICE, b[0], b[1], -6 * (k % 4));
    pause_for(c, 0.5, 2);
    if (k % 3 == 0) {
        say(c, OTHER, 0, 8000, 0);
        pause_for(c, 0.3, 1);
        say(c, VOICE, b[0], b[1], -6 * (k % 4));
        pause_for(c, 0.5, 1);
    }
    add_sound(c, white, 0, 8000, k % 2 ? -70 : -40);
}

static void squelch(judged *c, int k)
{
    const double *b = narrow[k % 4];
    double level = (k % 4) * 4.0;
    int i;
    pause_for(c, 0.5, 2);
    for (i = 0; i < 2; i++) {
        burst(c, k % 3 ? b[0] : 100, k % 3 ? b[1] : 6000, level);
        pause_for(c, 0.1, 0.4);
        say(c, VOICE, b[0], b[1], -3 * (k / 4 % 3));
        pause_for(c, 0.05, 0.3);
        burst(c, k % 3 ? b[0] : 100, k % 3 ? b[1] : 6000, level);
        pause_for(c, 0.5, 3);
    }
    add_sound(c, white, b[0], b[1], k % 2 ? -60 : -25);
}

/* Air and machines: low-passed twice at 60 to 200 Hz, 12 dB per octave. */
static void low_noise(float *x, size_t n)
{
    double by = 2 * PI * between(60, 200) / RATE, a = 0, b = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        a += by * (normal() - a);
        b += by * (a - b);
        x[i] = (float)b;
    }
}

/* Level of the rumble, and of white noise beside it. */
static void rumble(judged *c, int k)
{
    static const double level[] = {5, 10, 15};
    pause_for(c, 0.5, 3);
    say(c, VOICE, 0, 8000, 0);
    pause_for(c, 0.5, 2);
    say(c, VOICE, 0, 8000, -3 * (k % 2));
    pause_for(c, 1, 3);
    add_sound(c, k % 4 == 3 ? white : low_noise, 20, k % 4 == 3 ? 300 : 8000, level[k % 3]);
    add_sound(c, white, 0, 8000, k % 5 < 3 ? -8 : -30);
}

static void humming(judged *c, int k)
{
    pause_for(c, 0.5, 3);
    say(c, VOICE, 0, 8000, 0);
    pause_for(c, 1, 2);
    say(c, VOICE, 0, 8000, -6);
    pause_for(c, 1, 3);
    add_sound(c, hum, 0, 8000, k % 3 * 5);
}

static maker *const music[] = {chords, violin, piano, band, bells, drums};

static void film(judged *c, int k)
{
    pause_for(c, 0.5, 3);
    say(c, VOICE, 0, 8000, 0);
    pause_for(c, 1, 4);
    say(c, VOICE, 0, 8000, 0);
    pause_for(c, 1, 3);
    add_sound(c, music[k % 6], 0, 8000, k / 6 % 3 * 5 - 5);
}

static void line(judged *c, int k)
{
    pause_for(c, 0.5, 2);
    say(c, VOICE, 200, 3700, 0);
    pause_for(c, 1, 3);
    say(c, VOICE, 200, 3700, -3 * (k % 3));
    pause_for(c, 3, 4);
    telephone_line(c, -70 + 5 * (k % 6), k / 6 % 2);
}

static void two_voices(judged *c, int k)
{
    pause_for(c, 0.5, 2);
    say(c, VOICE, 0, 8000, 0);
    pause_for(c, 0.5, 2);
    say(c, VOICE, 0, 8000, -6 * (k % 5));
    pause_for(c, 1, 3);
    add_sound(c, white, 0, 8000, k % 2 ? -70 : -45);
}

static void noisy(judged *c, int k)
{
    pause_for(c, 0.5, 3);
    say(c, VOICE, 0, 8000, 0);
    pause_for(c, 1, 4);
    say(c, VOICE, 0, 8000, 0);
    pause_for(c, 1, 3);
    add_sound(c, k % 2 ? pink : white, 0, 8000, -5 * (k % 4));
}

static void music_alone(judged *c, int k)
{
    c->n = 25 * RATE;
    add_sound(c, music[k % 6], 0, 8000, k % 2 ? 0 : -10);
}

static void noise_alone(judged *c, int k)
{
    static maker *const make[] = {white, pink, brown, wind, engine, hum, clicks, birds, last_bit,
                                  telephone, siren, white};
    c->n = 25 * RATE;
    if (k % 12 == 11 || k % 12 == 0) {
        telephone_line(c, -65 + k, 1);
        c->late = 0;
    } else {
        add_sound(c, make[k % 12], 0, k % 3 ? 8000 : 3000, -20 + 5 * (k % 4));
    }
}

static const struct {
    const char *name;
    void (*make)(judged *c, int k);
    int cases;
} judge_kinds[] = {
    {"narrow caller after a host", caller, 40}, {"radio between squelch bursts", squelch, 28},
    {"voice in rumble, 5 to 15 dB louder", rumble, 28},
    {"voice over hum", humming, 10}, {"voice with music", film, 30},
    {"telephone, 8 kHz, with noise", line, 24}, {"second voice 0 to 24 dB quieter", two_voices, 10},
    {"voice in noise", noisy, 8}, {"music alone", music_alone, 10},
    {"noises alone", noise_alone, 12}
};

/* ---- judging ---- */

/* Pauses of up to 700 ms between voices count as voice, and so do 500 ms around. */
static void judge_allow(const judged *c, unsigned char *allowed)
{
    size_t steps = c->n / STEP, i, k, last = 0;
    int any = 0;
    memset(allowed, 0, steps);
    for (i = 0; i < steps; i++) {
        if (c->voice[i]) {
            for (k = any && i - last <= 35 ? last : i > PAD + 10 ? i - PAD - 10 : 0;
                 k <= i + PAD + 10 && k < steps; k++) {
                allowed[k] = 1;
            }
            last = i;
            any = 1;
        }
    }
}

static void judge_found(const judged *c, const unsigned char *found, sums *s)
{
    static unsigned char allowed[MOST / STEP];
    size_t steps = c->n / STEP, i, k, all, covered, last = 0, end = 0;
    judge_allow(c, allowed);
    for (k = 0; k < c->clips; k++) {
        for (i = all = covered = 0; i < steps; i++) {
            if (c->voice[i] == VOICE && c->whose[i] == k) {
                all++;
                covered += found[i];
            }
        }
        s->steps += all;
        s->covered += covered;
        s->clips += all > 0;
        s->lost += all > 0 && covered * 2 < all;
    }
    for (i = 0; i < steps; i++) {
        last = c->voice[i] ? i + 1 : last;
        end = found[i] ? i + 1 : end;
        s->silent += allowed[i] ? 0 : 0.02;
        s->wrong += !allowed[i] && found[i] ? 0.02 : 0;
    }
    if (c->late) {
        s->late[s->n_late++] = 20 * ((double)end - PAD - (double)last);
    }
    s->cases++;
}

static void judge_detect(wnpu_session *session, const judged *c, unsigned char *found)
{
    static int16_t pcm[MOST];
    wnpu_audio audio;
    size_t by = RATE / c->rate, n = c->n / by, i, k;
    for (i = 0; i < n; i++) {
        double y = (double)c->x[i * by];
        pcm[i] = (int16_t)lrint(32767 * fmax(-1, fmin(1, y)));
    }
    wnpu_audio_init(&audio, sizeof audio);
    audio.format = WNPU_SAMPLE_S16;
    audio.rate = c->rate;
    audio.data = pcm;
    audio.frames = n;
    memset(found, 0, MOST / STEP);
    if (wnpu_detect_speech(session, NULL, &audio) < WNPU_OK) {
        fprintf(stderr, "judge_cases: %s\n", wnpu_session_error(session));
        exit(1);
    }
    for (i = 0; i < wnpu_speech_span_count(session); i++) {
        wnpu_speech_span span;
        wnpu_get_speech_span(session, i, &span);
        for (k = (size_t)span.t0_ms / 20; k < (size_t)span.t1_ms / 20 && k < MOST / STEP; k++) {
            found[k] = 1;
        }
    }
}

static void judge_write(const char *folder, int number, const judged *c)
{
    char path[1024];
    size_t by = RATE / c->rate, n = c->n / by, i;
    FILE *file;
    snprintf(path, sizeof path, "%s/%03d.wav", folder, number);
    if (freopen(path, "wb", stdout) == NULL) {
        fprintf(stderr, "judge_cases: cannot write %s\n", path);
        exit(1);
    }
    fputs("RIFF", stdout);
    put((uint32_t)n * 2 + 36, 4);
    fputs("WAVEfmt ", stdout);
    put(16, 4);
    put(1 | 1 << 16, 4);
    put(c->rate, 4);
    put(c->rate * 2, 4);
    put(2 | 16 << 16, 4);
    fputs("data", stdout);
    put((uint32_t)n * 2, 4);
    for (i = 0; i < n; i++) {
        put((uint32_t)(int32_t)lrint(32767 * fmax(-1, fmin(1, (double)c->x[i * by]))), 2);
    }
    snprintf(path, sizeof path, "%s/reference.tsv", folder);
    file = fopen(path, "a");
    if (file != NULL) {
        fprintf(file, "%03d.wav\t%s\n", number, c->text);
        fclose(file);
    }
}

static void judge_print(const char *name, sums *s)
{
    double late = 0;
    if (s->n_late > 0) {
        qsort(s->late, s->n_late, sizeof *s->late, judge_order);
        late = s->late[s->n_late / 2];
    }
    fprintf(stderr, "| %s | %lu | ", name, (unsigned long)s->cases);
    fprintf(stderr, s->steps > 0 ? "%.1f %% | %lu of %lu | " : "| | ",
            100 * (double)s->covered / (double)(s->steps + !s->steps), (unsigned long)s->lost,
            (unsigned long)s->clips);
    fprintf(stderr, "%.1f of %.0f s | ", s->wrong, s->silent);
    fprintf(stderr, s->n_late > 0 ? "%.0f ms |\n" : "|\n", late);
}

/* 0 or 1 so that neither half prefers a level or kind that returns every few cases. */
static int judge_half(int number)
{
    int half = 0;
    for (; number > 0; number /= 2) {
        half ^= number % 2;
    }
    return half;
}

int main(int argc, char **argv)
{
    static judged c;
    static unsigned char found[MOST / STEP];
    static sums kind;
    wnpu_model *model = NULL;
    wnpu_session *session = NULL;
    wnpu_error error = {0, ""};
    const char *half = argc > 3 ? argv[3] : "all";
    int number = 0, i, k;
    if (argc < 3) {
        fprintf(stderr, "usage: judge_cases MODEL DIRECTORY [choose|judge|all] [FOLDER]\n");
        return 1;
    }
    judge_manifest(argv[2]);
    if (wnpu_model_open(&model, argv[1], NULL, &error) != WNPU_OK ||
        wnpu_session_open(&session, model, NULL, NULL, 0, &error) != WNPU_OK) {
        fprintf(stderr, "judge_cases: %s\n", error.message);
        return 1;
    }
    fprintf(stderr, "| kind | cases | covered | lost | false | late |\n"
                    "| --- | --- | --- | --- | --- | --- |\n");
    for (i = 0; i < (int)(sizeof judge_kinds / sizeof *judge_kinds); i++) {
        memset(&kind, 0, sizeof kind);
        for (k = 0; k < judge_kinds[i].cases; k++, number++) {
            memset(&c, 0, sizeof c);
            c.half = judge_half(number);
            if (strcmp(half, c.half ? "choose" : "judge") == 0) {
                continue;
            }
            state = (uint32_t)number * 2654435761u + 1u;
            c.rate = RATE;
            judge_kinds[i].make(&c, k);
            judge_detect(session, &c, found);
            judge_found(&c, found, &kind);
            if (argc > 4) {
                judge_write(argv[4], number, &c);
            }
        }
        judge_print(judge_kinds[i].name, &kind);
    }
    wnpu_session_close(session);
    wnpu_model_close(model);
    return 0;
}
