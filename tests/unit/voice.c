/* Voice activity detection against slow definitions of its parts, and the ledger of runs. */
#include "../lib/life.h"
#include "../lib/voicelike.h"

#define PI VOICE_PI

/* ---- a detector of its own ---- */

typedef struct rig {
    va_detector v;
    ft_tables fft;
    void *memory;
} rig;

static void rig_open(rig *d, const op_kernels *op)
{
    ar_arena arena;
    memset(&arena, 0, sizeof arena);
    va_carve(&arena, &d->v, VA_HISTORY);
    arena.size = arena.used;
    d->memory = arena.base = aligned_alloc(64, arena.size);
    memset(arena.base, 0xa5, arena.size);
    arena.used = 0;
    va_carve(&arena, &d->v, VA_HISTORY);
    T_CHECK(arena.used == arena.size, "measured %lu, took %lu", (unsigned long)arena.size,
            (unsigned long)arena.used);
    ft_init(&d->fft);
    va_prepare(&d->v, op, &d->fft);
}

static const va_rules usual = {0.5f, 0.35f, 5, 35, 15};

/* ---- features ---- */

/* Power of the bin of the 400-sample Hann frame centred on sample c; x is 0 outside 0..n-1. */
static double bin_power(const float *x, long n, long c, int bin)
{
    double re = 0, im = 0;
    long i;
    for (i = 0; i < 400; i++) {
        long at = c - 200 + i;
        double v = at >= 0 && at < n ? x[at] : 0;
        v *= 0.5 - 0.5 * cos(2 * PI * (double)i / 400);
        re += v * cos(2 * PI * (double)(bin * i % 400) / 400);
        im += v * sin(2 * PI * (double)(bin * i % 400) / 400);
    }
    return re * re + im * im;
}

/* log10 of the mean power of a band in the step's two frames. */
static double band_power(const float *x, long n, long step, int b)
{
    double sum = 0;
    int frame, bin;
    for (frame = 0; frame < 2; frame++) {
        double power = 0;
        for (bin = va_edges[b] + 1; bin < va_edges[b + 2]; bin++) {
            double up = (double)(bin - va_edges[b]) / (va_edges[b + 1] - va_edges[b]);
            double down = (double)(va_edges[b + 2] - bin) / (va_edges[b + 2] - va_edges[b + 1]);
            power += bin_power(x, n, step * 320 + frame * 160, bin) * fmin(up, down);
        }
        sum += 0.5 * fmax(power, 1e-10);
    }
    return log10(sum);
}

/* What the features of a step remember, and are, by their definition. */
typedef struct slow_shape {
    double floor[VA_BANDS], loud[VA_BANDS], steady[VA_BANDS];
    int rumble;
} slow_shape;

static void slow_features(slow_shape *s, const double *p, int first, double *f, double *filled)
{
    double above[VA_BANDS], top = -1e9, highest = -1e9, mean = 0, whole = 0;
    int from[VA_BANDS], b, k;
    for (b = 0; b < (int)VA_BANDS; b++) {
        s->floor[b] = first ? p[b] : s->floor[b];
        s->loud[b] = first ? p[b] : fmax(p[b], s->loud[b] - 0.1);
        s->steady[b] = first ? p[b] : fmax(p[b], s->steady[b] - 0.004);
        above[b] = p[b] - s->floor[b];
        s->floor[b] += above[b] < 0 ? 0.25 * above[b] : fmin(above[b], 0.004);
        highest = b >= 10 ? fmax(highest, s->floor[b]) : highest;
    }
    for (s->rumble = 0; s->rumble < 10; s->rumble++) {
        b = s->rumble;
        if (s->floor[b] <= highest + 0.7 || s->steady[b] >= s->floor[b] + 1.2) {
            break;
        }
    }
    s->rumble = s->rumble < 3 ? 0 : s->rumble;
    for (b = s->rumble; b < (int)VA_BANDS; b++) {
        top = fmax(top, s->loud[b]);
    }
    for (b = 0; b < (int)VA_BANDS; b++) {
        int near = -1;
        /* of two at the same distance, the higher one */
        for (k = s->rumble; k < (int)VA_BANDS; k++) {
            if (s->loud[k] >= top - 3 && (near < 0 || abs(k - b) <= abs(near - b))) {
                near = k;
            }
        }
        from[b] = near;
        mean += p[b] / VA_BANDS;
        whole += p[near] / VA_BANDS;
    }
    for (b = 0; b < (int)VA_BANDS; b++) {
        f[b] = 0.5 * (p[b] - mean);
        f[VA_BANDS + (unsigned)b] = 0.5 * fmin(4, fmax(-1, above[b]));
        filled[b] = 0.5 * (p[from[b]] - whole);
        filled[VA_BANDS + (unsigned)b] = 0.5 * fmin(4, fmax(-1, above[from[b]]));
    }
}

/* Sines from low to high Hz, with a little noise where they are and next to nothing elsewhere. */
static float *narrow_sound(size_t n, double low, double high)
{
    float *x = calloc(n, sizeof *x);
    double f;
    size_t i;
    for (f = low; f <= high; f += 61) {
        for (i = 0; i < n; i++) {
            x[i] += (float)(0.02 * sin(2 * PI * f * (double)i / 16000) *
                            (1.2 + sin((double)i / (700 + f))));
        }
    }
    return x;
}

/* A voice in steady noise below 400 Hz. */
static float *rumbling_sound(size_t n)
{
    float *x = voicelike(n, 1);
    double f;
    size_t i;
    for (i = 0; i < n; i++) {
        x[i] *= 0.1f;
    }
    for (f = 60; f <= 400; f += 45) {
        for (i = 0; i < n; i++) {
            x[i] += (float)(0.1 * sin(2 * PI * f * (double)i / 16000 + f * f));
        }
    }
    return x;
}

static void shapes_of_spectra(void)
{
    static const double narrow[][2] = {{0, 0}, {400, 2600}, {1000, 1500}, {60, 900}, {3000, 7000},
                                       {0, 0}};
    long n = 16000, step;
    size_t k;
    for (k = 0; k < sizeof narrow / sizeof narrow[0]; k++) {
        float *x = k == 0 ? voicelike((size_t)n, 1)
                 : k == 5 ? rumbling_sound((size_t)n)
                          : narrow_sound((size_t)n, narrow[k][0], narrow[k][1]);
        double worst = 0;
        slow_shape slow;
        int filled = 0, rumble = 0;
        rig d;
        rig_open(&d, op_select(WNPU_ISA_SCALAR));
        va_begin(&d.v, &usual);
        for (step = 0; step < n / 320 - 2; step++) {
            float f[VA_INPUTS];
            double p[VA_BANDS], want[2 * VA_BANDS], whole[2 * VA_BANDS];
            int b;
            if (step % 2 == 0) {
                long i, first = step * 320 - (long)VA_CONTEXT;
                for (i = 0; i < (long)VA_BUFFER; i++) {
                    d.v.x[i] = first + i >= 0 && first + i < n ? x[first + i] : 0;
                }
                va_analyse(&d.v);
            }
            va_features(&d.v, (size_t)step % 2, f);
            d.v.seen++;
            for (b = 0; b < (int)VA_BANDS; b++) {
                p[b] = band_power(x, n, step, b);
            }
            slow_features(&slow, p, step == 0, want, whole);
            for (b = 0; b < 2 * (int)VA_BANDS; b++) {
                worst = fmax(worst, fabs(f[b] - want[b]));
            }
            va_fill_bands(&d.v, f);
            for (b = 0; b < 2 * (int)VA_BANDS; b++) {
                worst = fmax(worst, fabs(f[b] - whole[b]));
            }
            rumble |= slow.rumble > 0;
            filled |= whole[0] == whole[1] || whole[VA_BANDS - 1] == whole[VA_BANDS - 2];
        }
        T_CHECK(worst < 1e-3, "sound %u: off by %g", (unsigned)k, worst);
        T_CHECK(k == 0 || filled, "sound %u: nothing was missing", (unsigned)k);
        T_CHECK(rumble == (k == 3 || k == 5), "sound %u: rumble: %d", (unsigned)k, rumble);
        free(d.memory);
        free(x);
    }
}

/* A train of pulses has its period found, noise has none. */
static void pitches(void)
{
    static const int periods[] = {40, 64, 100, 160, 200};
    float x[VA_BUFFER], f[VA_INPUTS];
    rig d;
    size_t i, k;
    rig_open(&d, op_select(WNPU_ISA_SCALAR));
    for (k = 0; k < sizeof periods / sizeof periods[0]; k++) {
        double lag;
        va_begin(&d.v, &usual);
        for (i = 0; i < VA_BUFFER; i++) {
            x[i] = (int)i % periods[k] < 8 ? 0.3f : 0.0f;
        }
        memcpy(d.v.x, x, sizeof x);
        va_analyse(&d.v);
        va_features(&d.v, 0, f);
        lag = 22 * exp((double)(f[2 * VA_BANDS + 2] / f[2 * VA_BANDS + 1]));
        T_CHECK(f[2 * VA_BANDS + 1] > 0.95f, "period %d: %g", periods[k],
                (double)f[2 * VA_BANDS + 1]);
        T_CHECK(fabs(4 * lag - periods[k]) <= 4, "period %d: found %g", periods[k], 4 * lag);
    }
    for (i = 0; i < VA_BUFFER; i++) {
        d.v.x[i] = (float)(voice_chance() - 0.5);
    }
    va_analyse(&d.v);
    va_features(&d.v, 0, f);
    T_CHECK(f[2 * VA_BANDS + 1] < 0.6f, "noise: %g", (double)f[2 * VA_BANDS + 1]);
    memset(d.v.x, 0, sizeof x);
    va_analyse(&d.v);
    va_features(&d.v, 0, f);
    T_CHECK(f[2 * VA_BANDS + 1] == 0.0f, "silence: %g", (double)f[2 * VA_BANDS + 1]);
    free(d.memory);
}

/* ---- the network ---- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void network(void)
{
    const unsigned S = VA_STATE;
    double h[VA_STATE] = {0}, worst = 0;
    rig d;
    size_t t, i, j;
    rig_open(&d, op_select(WNPU_ISA_SCALAR));
    va_begin(&d.v, &usual);
    for (t = 0; t < 200; t++) {
        const va_weights *w = d.v.weights;
        float f[VA_INPUTS];
        double dense[VA_DENSE], in[3 * VA_STATE], back[3 * VA_STATE], next[VA_STATE], sum;
        for (i = 0; i < VA_INPUTS; i++) {
            f[i] = (float)(voice_chance() * 2 - 1);
        }
        for (j = 0; j < VA_DENSE; j++) {
            dense[j] = w->dense[VA_INPUTS][j];
            for (i = 0; i < VA_INPUTS; i++) {
                dense[j] += (double)f[i] * w->dense[i][j];
            }
            dense[j] = fmax(dense[j], 0);
        }
        for (j = 0; j < 3 * S; j++) {
            in[j] = w->input[VA_DENSE][j];
            back[j] = w->state[S][j];
            for (i = 0; i < VA_DENSE; i++) {
                in[j] += dense[i] * w->input[i][j];
            }
            for (i = 0; i < S; i++) {
                back[j] += h[i] * w->state[i][j];
            }
        }
        sum = w->out[S];
        for (i = 0; i < S; i++) {
            double r = sigmoid(in[i] + back[i]), z = sigmoid(in[S + i] + back[S + i]);
            next[i] = (1 - z) * tanh(in[2 * S + i] + r * back[2 * S + i]) + z * h[i];
            sum += next[i] * w->out[i];
        }
        memcpy(h, next, sizeof h);
        worst = fmax(worst, fabs(sigmoid(sum) - (double)va_network(w, d.v.state[0], f)));
    }
    T_CHECK(worst < 1e-4, "off by %g", worst);
    free(d.memory);
}

/* ---- probabilities to spans ---- */

/* '#' is speech, '+' enough to go on, '.' neither; a step each. Spans as "first-end ". */
static void spans_of(const va_rules *rules, const char *steps, char *out)
{
    rig d;
    va_span span;
    rig_open(&d, op_select(WNPU_ISA_SCALAR));
    va_begin(&d.v, rules);
    *out = '\0';
    for (; *steps != '\0'; steps++) {
        va_decide(&d.v, *steps == '#' ? 0.9f : *steps == '+' ? 0.4f : 0.1f);
        d.v.n_pushed += VA_STEP;
        if (va_pop_span(&d.v, &span)) {
            out += sprintf(out, "%d-%d ", (int)span.first, (int)span.end);
        }
    }
    while (va_finish(&d.v, &span)) {
        out += sprintf(out, "%d-%d ", (int)span.first, (int)span.end);
    }
    free(d.memory);
}

static void spans(void)
{
    static const va_rules plain = {0.5f, 0.35f, 2, 3, 0}, padded = {0.5f, 0.35f, 2, 4, 2};
    static const struct {
        const va_rules *rules;
        const char *steps, *spans;
    } cases[] = {
        {&plain, "..........", ""},
        {&plain, "...###....", "3-6 "},
        {&plain, "...#......", ""},           /* too short */
        {&plain, "...#+.....", "3-5 "},       /* goes on below the threshold */
        {&plain, "..+++.....", ""},           /* but does not begin there */
        {&plain, "##..##....", "0-6 "},       /* a short pause */
        {&plain, "##...##...", "0-2 5-7 "},   /* one that is long enough */
        {&plain, ".......###", "7-10 "},      /* open at the end */
        {&plain, ".........#", ""},
        {&padded, "...###......", "1-8 "},
        {&padded, "###........", "0-5 "},
        {&padded, ".......####", "5-11 "},    /* not beyond the end */
        {&padded, "###....###....", "0-5 5-12 "}, /* they may touch */
        {&padded, "###...###.....", "0-11 "}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char found[200];
        spans_of(cases[i].rules, cases[i].steps, found);
        T_CHECK(strcmp(found, cases[i].spans) == 0, "%s: %s, not %s", cases[i].steps, found,
                cases[i].spans);
    }
}

/* All probabilities, rounded, then the spans; the caller frees. */
static unsigned char *heard(const op_kernels *op, const float *x, size_t n, size_t piece,
                            size_t *size)
{
    unsigned char *out = malloc(n / 320 + 4096);
    rig d;
    va_span span;
    size_t done = 0, at = 0;
    int found;
    rig_open(&d, op);
    va_begin(&d.v, &usual);
    while (done < n) {
        size_t part = piece > 0 ? piece : 1 + (size_t)(voice_chance() * 3000);
        part = part < n - done ? part : n - done;
        done += va_push(&d.v, x + done, part, &span, &found);
        for (; at < d.v.step; at++) {
            out[at] = d.v.history[at % VA_HISTORY];
        }
        if (found) { /* spans come at the same step in every way of cutting */
            T_CHECK(span.first < span.end && span.end <= d.v.step, "span");
        }
    }
    while (va_finish(&d.v, &span)) {
    }
    for (; at < d.v.step; at++) {
        out[at] = d.v.history[at % VA_HISTORY];
    }
    *size = at;
    free(d.memory);
    return out;
}

static void voice_one_answer(void)
{
    static const size_t pieces[] = {1, 319, 640, 4001, 0};
    size_t n = 16000 * 20 + 77, size, other, i, isa;
    float *x = voicelike(n, 0.5);
    unsigned char *first = heard(op_select(WNPU_ISA_SCALAR), x, n, 640, &size), *next;
    T_CHECK(size >= (n + 319) / 320, "%lu steps", (unsigned long)size);
    for (i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        next = heard(op_select(WNPU_ISA_SCALAR), x, n, pieces[i], &other);
        T_CHECK(memcmp(first, next, (n + 319) / 320) == 0, "pieces of %lu differ",
                (unsigned long)pieces[i]);
        free(next);
    }
    for (isa = WNPU_ISA_SCALAR; isa < CP_ISAS; isa++) {
        if (wnpu_isa_available((wnpu_isa)isa)) {
            next = heard(op_select((wnpu_isa)isa), x, n, 640, &other);
            T_CHECK(memcmp(first, next, (n + 319) / 320) == 0, "%s differs",
                    wnpu_isa_name((wnpu_isa)isa));
            free(next);
        }
    }
    free(first);
    free(x);
}

/* ---- sounds that are no voice ---- */

/* Steps with a probability that continues a span, among those from first on. */
static size_t speech_steps(const float *x, size_t n, size_t first)
{
    size_t size, i, count = 0;
    unsigned char *p = heard(op_select(WNPU_ISA_SCALAR), x, n, 640, &size);
    for (i = first; i < size; i++) {
        count += p[i] >= 90; /* 0.35 */
    }
    free(p);
    return count;
}

/* Adds a sine from f0 to f1 Hz in samples first..end-1. */
static void add_glide(float *x, size_t first, size_t end, double f0, double f1)
{
    double phase = 0;
    size_t i;
    for (i = first; i < end; i++) {
        double at = (double)(i - first) / (double)(end - first);
        phase += 2 * PI * (f0 + (f1 - f0) * at) / 16000;
        x[i] += (float)(0.25 * sin(phase));
    }
}

/* Signals of one or two tones, in faint noise as a microphone has: glides up and down, beeps, keys
 * of a telephone. None of them is a voice; a vowel-like sound of the same length is. */
static void tones(void)
{
    static const double glides[][2] = {{300, 1300}, {1500, 400}, {1000, 1000}, {440, 440}};
    static const double keys[][2] = {{697, 1209}, {770, 1336}, {852, 1477}, {941, 1336}};
    size_t n = 16000 * 3, i, k, level, spoken = 0;
    for (k = 0; k < 6; k++) {
        for (level = 0; level < 3; level++) {
            float *x = k < 5 ? calloc(n, sizeof *x) : voicelike(n, 0.5);
            double noise = level == 0 ? 0 : level == 1 ? 0.002 : 0.008;
            for (i = 0; i < n; i++) {
                x[i] = (k == 5 && (i < 8000 || i > 16000) ? 0 : x[i]) +
                       (float)(noise * (voice_chance() - 0.5));
            }
            for (i = 0; k == 4 && i < 8; i++) {
                add_glide(x, 8000 + 3200 * i, 9900 + 3200 * i, keys[i % 4][0], keys[i % 4][0]);
                add_glide(x, 8000 + 3200 * i, 9900 + 3200 * i, keys[i % 4][1], keys[i % 4][1]);
            }
            if (k < 4) {
                add_glide(x, 8000, 8000 + (k == 0 ? 3200 : 6400), glides[k][0], glides[k][1]);
            }
            spoken = speech_steps(x, n, 0);
            T_CHECK(k == 5 ? spoken > 10 : spoken < usual.least, "sound %u, noise %u: %u steps",
                    (unsigned)k, (unsigned)level, (unsigned)spoken);
            free(x);
        }
    }
}

/* Speech 30 dB below a click before it, as at the start of a recording or where a WAV header is
 * read as samples, is heard as without the click. */
static void clicks(void)
{
    static const size_t lengths[] = {1, 17, 40, 300};
    static const size_t places[] = {0, 4800};
    size_t n = 16000 * 6, i, k, place;
    float *quiet, *x = malloc(n * sizeof *x);
    voice_seed = 5;
    quiet = voicelike(n, 0.02);
    for (place = 0; place < 2; place++) {
        size_t first = places[place] / 320 + 25, usually = speech_steps(quiet, n, first);
        T_CHECK(usually > 100, "%u steps", (unsigned)usually);
        for (k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
            size_t now;
            memcpy(x, quiet, n * sizeof *x);
            for (i = 0; i < lengths[k]; i++) {
                x[places[place] + i] = (float)(1.9 * voice_chance() - 0.95);
            }
            now = speech_steps(x, n, first);
            T_CHECK(now * 10 >= usually * 8, "click of %u at %u: %u of %u steps",
                    (unsigned)lengths[k], (unsigned)places[place], (unsigned)now,
                    (unsigned)usually);
        }
    }
    free(quiet);
    free(x);
}

/* ---- the ledger, on a toy model that talks nonsense ---- */

static wnpu_session *voice_open_session(const wnpu_model *m, uint64_t result_bytes)
{
    wnpu_config c;
    wnpu_config_init(&c, sizeof c);
    c.threads = 1;
    c.result_bytes = result_bytes;
    return life_open(m, &c);
}

static wnpu_params voice_params_of(int vad)
{
    wnpu_params p;
    wnpu_params_init(&p, sizeof p);
    p.beam = 1;
    p.max_tokens = 6;
    p.vad = vad;
    p.temperature_step = 0; /* a toy fails every gate */
    p.stop_loops = 0;
    p.least_ms = 0;
    p.pause_ms = 3000;
    p.word_gap_ms = 0; /* a toy looks anywhere */
    return p;
}

/* Milliseconds of the kinds; the ledger must be whole, and agree with segments and spans. */
static void check_ledger(const wnpu_session *s, const char *what, int status, int64_t sum[3])
{
    wnpu_ledger_span span;
    wnpu_speech_span speech;
    wnpu_segment segment;
    wnpu_stats stats;
    int64_t at = 0;
    size_t i;
    memset(sum, 0, 3 * sizeof *sum);
    stats.struct_size = sizeof stats;
    wnpu_get_stats(s, &stats);
    for (i = 0; wnpu_get_ledger_span(s, i, &span) == WNPU_OK; i++) {
        T_CHECK(span.t0_ms == at && span.t1_ms > at, "%s: span %lu is %ld..%ld after %ld", what,
                (unsigned long)i, (long)span.t0_ms, (long)span.t1_ms, (long)at);
        T_CHECK(span.kind >= 0 && span.kind <= 2, "%s: kind %d", what, (int)span.kind);
        T_CHECK((span.kind == WNPU_LEDGER_TEXT) == (span.reason == WNPU_REASON_NONE) &&
                (span.kind == WNPU_LEDGER_UNRESOLVED) == (span.reason >= WNPU_REASON_NO_TEXT) &&
                wnpu_ledger_reason_name(span.reason) != NULL,
                "%s: kind %d, reason %d", what, (int)span.kind, (int)span.reason);
        sum[span.kind % 3] += span.t1_ms - span.t0_ms;
        at = span.t1_ms;
    }
    T_CHECK(i == wnpu_ledger_count(s), "%s: %lu spans", what, (unsigned long)i);
    T_CHECK(at == stats.audio_ms, "%s: the ledger ends at %ld of %ld", what, (long)at,
            (long)stats.audio_ms);
    T_CHECK(stats.unresolved_ms == sum[2], "%s: unresolved", what);
    T_CHECK(status < 0 || (status == WNPU_INCOMPLETE) == (sum[2] > 0), "%s: status %d with %ld ms",
            what, status, (long)sum[2]);
    for (i = 0, at = 0; wnpu_get_speech_span(s, i, &speech) == WNPU_OK; i++) {
        T_CHECK(speech.t0_ms >= at && speech.t1_ms > speech.t0_ms &&
                speech.t1_ms <= stats.audio_ms, "%s: speech %ld..%ld", what, (long)speech.t0_ms,
                (long)speech.t1_ms);
        at = speech.t1_ms;
    }
    T_CHECK(i == wnpu_speech_span_count(s), "%s: speech spans", what);
    for (i = 0; wnpu_get_segment(s, i, &segment) == WNPU_OK; i++) {
        int64_t covered = 0;
        size_t k;
        for (k = 0; wnpu_get_ledger_span(s, k, &span) == WNPU_OK; k++) {
            int64_t a = span.t0_ms > segment.t0_ms ? span.t0_ms : segment.t0_ms;
            int64_t b = span.t1_ms < segment.t1_ms ? span.t1_ms : segment.t1_ms;
            covered += span.kind == WNPU_LEDGER_TEXT && a < b ? b - a : 0;
        }
        T_CHECK(covered == segment.t1_ms - segment.t0_ms, "%s: segment %lu is no text in the "
                "ledger", what, (unsigned long)i);
        T_CHECK(segment.voice >= 0 && segment.voice <= 1, "%s: voice", what);
    }
}

static void ledgers(void)
{
    static const double seconds[] = {0, 0.0001, 0.009, 0.01, 0.0199, 0.02, 0.1, 0.5, 0.99, 1, 7.3,
                                     29.98, 30, 30.02, 65};
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = voice_open_session(m, 1 << 20);
    float *x = voicelike(16000 * 65, 0.5), *silence = calloc(16000 * 65, sizeof *silence);
    size_t k;
    int vad;
    for (k = 0; k < sizeof seconds / sizeof seconds[0]; k++) {
        for (vad = 0; vad < 2; vad++) {
            wnpu_params p = voice_params_of(vad);
            wnpu_audio a = life_audio(x, (size_t)(seconds[k] * 16000));
            char what[64];
            int64_t sum[3];
            int status;
            (void)snprintf(what, sizeof what, "%g s, vad %d", seconds[k], vad);
            status = wnpu_transcribe(s, &p, &a);
            T_CHECK(status >= 0, "%s: %s", what, wnpu_session_error(s));
            check_ledger(s, what, status, sum);
            a.data = silence;
            status = wnpu_transcribe(s, &p, &a);
            check_ledger(s, "silence", status, sum);
            T_CHECK(!vad || (wnpu_segment_count(s) == 0 && sum[0] == 0 && sum[2] == 0),
                    "%s: silence without text", what);
        }
    }
    free(silence);
    free(x);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

typedef struct voice_source {
    const float *x;
    size_t n, at, fail_at;
} voice_source;

static int64_t voice_pull(void *user, void *buffer, size_t max_frames)
{
    voice_source *s = user;
    size_t n = s->n - s->at < max_frames ? s->n - s->at : max_frames;
    n = n < 999 ? n : 999;
    if (s->fail_at > 0 && s->at >= s->fail_at) {
        return -5;
    }
    memcpy(buffer, s->x + s->at, n * sizeof(float));
    s->at += n;
    return (int64_t)n;
}

static int stop_at(void *user, int64_t done_ms, int64_t total_ms)
{
    (void)total_ms;
    return done_ms >= *(int64_t *)user;
}

/* Runs that end early keep a whole ledger: the rest is unresolved, and says why. */
static void early_ends(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = voice_open_session(m, 64 << 10);
    size_t n = 16000 * 95, i;
    float *x = voicelike(n, 0.5);
    int vad;
    for (vad = 0; vad < 2; vad++) {
        wnpu_params p = voice_params_of(vad);
        wnpu_audio a = life_audio(x, n);
        wnpu_ledger_span last = {0, 0, 0, 0};
        voice_source src = {x, n, 0, 16000 * 61};
        int64_t sum[3], when = 31000;
        int status, full = 0;
        p.user = &when;
        p.on_progress = stop_at;
        status = wnpu_transcribe(s, &p, &a);
        T_CHECK(status == WNPU_E_CANCELLED, "status %d", status);
        check_ledger(s, "cancelled", status, sum);
        wnpu_get_ledger_span(s, wnpu_ledger_count(s) - 1, &last);
        T_CHECK(last.reason == WNPU_REASON_CANCELLED && sum[2] > 0, "cancelled: %d", last.reason);

        p.on_progress = NULL;
        wnpu_audio_init(&a, sizeof a);
        a.read = voice_pull;
        a.user = &src;
        status = wnpu_transcribe(s, &p, &a);
        T_CHECK(status == WNPU_E_IO, "status %d", status);
        check_ledger(s, "input", status, sum);
        wnpu_get_ledger_span(s, wnpu_ledger_count(s) - 1, &last);
        T_CHECK(last.reason == WNPU_REASON_INPUT && sum[2] > 0, "input: %d", last.reason);

        src.at = src.fail_at = 0;
        p.max_tokens = 224; /* until the store is full */
        p.timestamps = 0;
        a = life_audio(x, n);
        /* Any size of the store: it may be full at a segment, at speech or at the ledger. */
        for (i = 0; i < 12; i++) {
            s->run.out.store.size = 1200 + 3600 * i;
            status = wnpu_transcribe(s, &p, &a);
            check_ledger(s, "full", status, sum);
            wnpu_get_ledger_span(s, wnpu_ledger_count(s) - 1, &last);
            T_CHECK(status != WNPU_E_FULL || last.reason == WNPU_REASON_FULL, "full: %d",
                    last.reason);
            full += status == WNPU_E_FULL;
        }
        T_CHECK(full > 3 && full < 12, "full %d times", full);
        s->run.out.store.size = 64 << 10;
    }
    free(x);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- a model that says what it is told to ---- */

enum { WORD = -1, END = -2 }; /* else timestamps in 20 ms */

typedef struct voice_script {
    const int *first, *later;  /* what the first window says, and all others */
    int32_t timestamp0, end;
    int started;               /* the first window has been decoded */
} voice_script;

static void recite(void *user, const int32_t *tokens, size_t n, float *logits, size_t n_vocab)
{
    voice_script *s = user;
    const int *say = s->started ? s->later : s->first;
    int next = say[n];
    size_t i;
    (void)tokens;
    for (i = 0; i < n_vocab; i++) {
        logits[i] = -INFINITY;
    }
    logits[next == END ? s->end : next == WORD ? 'a' : s->timestamp0 + next] = 0;
    s->started |= next == END;
}

static int64_t count_reason(const wnpu_session *s, int reason)
{
    wnpu_ledger_span span;
    int64_t ms = 0;
    size_t i;
    for (i = 0; wnpu_get_ledger_span(s, i, &span) == WNPU_OK; i++) {
        ms += span.reason == reason ? span.t1_ms - span.t0_ms : 0;
    }
    return ms;
}

/* Speech that has not ended yet is speech as well: with pauses of 10 seconds at least, nothing ends
 * before the recording does. */
static void without_pauses(void)
{
    static const int all[] = {0, WORD, 1500, END};
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = voice_open_session(m, 1 << 20);
    float *x = voicelike(16000 * 70, 0.5), voice[3] = {0};
    int pause;
    for (pause = 700; pause <= 10000; pause += 9300) {
        wnpu_params p = voice_params_of(1);
        wnpu_audio a = life_audio(x, 16000 * 70);
        const tk_vocab *v = &s->run.engine.model->vocab;
        voice_script told = {all, all, v->timestamp0, v->eot, 0};
        wnpu_segment segment;
        size_t i;
        p.on_logits = recite;
        p.user = &told;
        p.max_tokens = 0;
        p.vad_min_silence_ms = pause;
        T_CHECK(wnpu_transcribe(s, &p, &a) >= 0, "%s", wnpu_session_error(s));
        for (i = 0; i < 2 && wnpu_get_segment(s, i, &segment) == WNPU_OK; i++) {
            T_CHECK(segment.voice > 0.2f, "segment %d: voice %g", (int)i, (double)segment.voice);
            T_CHECK(pause == 700 || fabsf(segment.voice - voice[i]) < 0.1f,
                    "segment %d: %g, not %g", (int)i, (double)segment.voice, (double)voice[i]);
            voice[i] = segment.voice;
        }
        T_CHECK(i == 2, "%d segments", (int)i);
    }
    free(x);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* A session whose detector is about to begin. */
static wnpu_session *open_detecting(const wnpu_model *m)
{
    wnpu_session *s = voice_open_session(m, 1 << 20);
    wi_reset(&s->run);
    wnpu_params_init(&s->run.call.params, sizeof s->run.call.params);
    aw_begin_detector(&s->run.audio, &s->run.out.now.stats, &s->run.call.params);
    return s;
}

/* The first pause that is long enough, of spans of speech in milliseconds. */
static void voice_pauses(void)
{
    static const wnpu_speech_span spans[] = {
        {1000, 2000}, {4980, 6000}, {9000, 9500}, {20000, 21000}
    };
    static const struct {
        int64_t from, to, pause, answer;
    } cases[] = {
        {0, 30000, 3000, 6000},      /* 2980 ms are too short, 3000 are not */
        {0, 30000, 2980, 2000}, {0, 30000, 3020, 9500}, {2000, 30000, 2980, 6000},
        {6000, 30000, 3000, 9500}, {0, 8980, 3000, -1}, {0, 9000, 3000, 6000},
        {9500, 23980, 3000, -1}, {9500, 24000, 3000, 21000}, {0, 30000, 10500, 9500},
        {0, 30000, 10520, -1}
    };
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = open_detecting(m);
    ru_run *r = &s->run;
    size_t i;
    r->audio.at.detector_done = 1;
    for (i = 0; i < sizeof spans / sizeof spans[0]; i++) {
        T_CHECK(rs_list_add(&r->out.store, &r->out.store.speech, &spans[i]) == WNPU_OK, "stored");
    }
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t at = aw_find_pause(&r->audio, r->audio.at.spans_passed, cases[i].from, cases[i].to,
                                   cases[i].pause);
        T_CHECK(at == cases[i].answer, "case %d: %ld, not %ld", (int)i, (long)at,
                (long)cases[i].answer);
    }
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* Fills the window: each character is 100 ms. v: voice, q: voice 40 dB quieter, ".": silence, h: hiss
 * 10 dB below the voice, l: noise 3 dB below it. */
static int64_t lay_out(ru_run *r, const char *layout)
{
    size_t i, k, n = strlen(layout);
    for (i = 0; i < n; i++) {
        float level = layout[i] == 'v' ? 0.3f : layout[i] == 'h' ? 0.1f : layout[i] == 'l' ? 0.2f
                      : layout[i] == 'q' ? 0.003f : 0.0f;
        for (k = 0; k < 1600; k++) {
            r->audio.samples[ML_MARGIN + i * 1600 + k] = k % 2 ? level : -level;
        }
        memset(r->audio.voice.history + 5 * i, layout[i] == 'v' || layout[i] == 'q' ? 255 : 0, 5);
    }
    aw_set_samples(&r->audio.at, ML_MARGIN + n * 1600);
    return (int64_t)n * 100;
}

/* The end of the first phrase, and that it is found as soon as its pause is long enough, whatever
 * follows. */
static void phrase_ends(void)
{
    static const struct {
        const char *layout;
        int64_t from, pause, answer;
    } cases[] = {
        {"vvvvv.......vvv", 0, 700, 500}, {"vvvvv......vvv", 0, 700, -1},
        {"vvvvv.......vvv", 500, 700, 500}, {"vvvvv.......vvv", 501, 700, -1},
        {"vvvvv.......vvv.......v", 501, 700, 1500}, {"vvvvvhhhhhhhvvv", 0, 700, 500},
        {"vvvvvlllllllv", 0, 700, -1}, {"vvvvvlllllll.......v", 0, 700, 1200},
        {"vvvvv...l.......v", 0, 700, 900}, {".......v.......v", 0, 700, 800},
        {"..............", 0, 700, -1}, {"vvvvv...vvv", 0, 300, 500}, {"vvvvv..vvv", 0, 300, -1},
        {"vvvvv.....qqvv", 0, 700, 500}, {"vvvvv....qqqvv", 0, 700, -1},
        {"vvvvv....", 0, 500, -1}, {"vvvvv.....", 0, 500, 500}
    };
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = open_detecting(m);
    ru_run *r = &s->run;
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t end = lay_out(r, cases[i].layout), at, to, first = INT64_MAX;
        for (to = 0; to <= end; to += 20) {
            r->audio.voice.step = to < end ? (uint64_t)(to > 200 ? to - 200 : 0) / 20
                                           : (uint64_t)end / 20;
            at = aw_find_phrase_end(&r->audio, 0, cases[i].from, to, cases[i].pause);
            first = at >= 0 && to < first ? to : first;
            T_CHECK(at == (to < first ? -1 : cases[i].answer), "case %d of %ld ms: %ld, not %ld",
                    (int)i, (long)to, (long)at, (long)cases[i].answer);
        }
        T_CHECK(at == cases[i].answer, "case %d: %ld, not %ld", (int)i, (long)at,
                (long)cases[i].answer);
        T_CHECK(at < 0 || first == at + cases[i].pause, "case %d: found after %ld ms", (int)i,
                (long)first);
    }
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* Speech of 2.5 s at these times, silence in between. */
static float *islands(const double *seconds, size_t count, size_t n)
{
    float *x = calloc(n, sizeof *x), *voice = voicelike(40000, 0.5);
    size_t i;
    for (i = 0; i < count; i++) {
        memcpy(x + (size_t)(seconds[i] * 16000), voice, 40000 * sizeof *x);
    }
    free(voice);
    return x;
}

/* A window ends in a pause of three seconds, with and without batches. */
static void long_pauses(void)
{
    static const double seconds[] = {0, 10.5, 14.5, 23}; /* pauses of 8, 1.5 and 6 s */
    static const int64_t begins[] = {0, 10200, 22700}, ends[] = {2800, 17300, 25800};
    static const int all[] = {0, WORD, 1500, END};
    size_t n = 16000 * 40, i;
    float *x = islands(seconds, 4, n);
    wnpu_model *m = life_toy(7, NULL);
    uint32_t batch;
    for (batch = 0; batch < 3; batch++) {
        wnpu_session *s = NULL;
        wnpu_config c;
        wnpu_params p = voice_params_of(1);
        wnpu_audio a = life_audio(x, n);
        wnpu_segment segment;
        int64_t sum[3];
        voice_script told;
        int status;
        wnpu_config_init(&c, sizeof c);
        c.batch = batch;
        T_CHECK(wnpu_session_open(&s, m, &c, NULL, 0, NULL) == WNPU_OK, "session");
        told = (voice_script){all, all, s->run.engine.model->vocab.timestamp0,
                              s->run.engine.model->vocab.eot, 0};
        p.on_logits = recite;
        p.user = &told;
        p.max_tokens = 0;
        status = wnpu_transcribe(s, &p, &a);
        check_ledger(s, "long pauses", status, sum);
        T_CHECK(status == WNPU_OK && wnpu_segment_count(s) == 3, "batch %u: status %d, %d segments",
                batch, status, (int)wnpu_segment_count(s));
        for (i = 0; i < 3 && wnpu_get_segment(s, i, &segment) == WNPU_OK; i++) {
            T_CHECK(segment.window == (int32_t)i && llabs(segment.t0_ms - begins[i]) <= 150 &&
                    llabs(segment.t1_ms - ends[i]) <= 150, "batch %u: window %d, %ld..%ld", batch,
                    segment.window, (long)segment.t0_ms, (long)segment.t1_ms);
        }
        wnpu_session_close(s);
    }
    free(x);
    wnpu_model_close(m);
}

/* Windows end in short pauses after least_ms, alone and together, and so does the second window of
 * speech whose text was left out. */
static void short_pauses(void)
{
    static const double seconds[] = {0, 3.5, 7, 10.5};
    static const int all[] = {0, WORD, 1500, END}, half[] = {0, WORD, 50, END};
    static const struct {
        int least, pause;
        uint32_t batch;
        const int *first;
        int n;
        int64_t end[4];
    } cases[] = {
        {0, 800, 0, all, 4, {2800, 6300, 9800, 13300}}, {3000, 800, 0, all, 3, {6300, 9800, 13300}},
        {0, 1200, 0, all, 1, {14000}}, {9000, 800, 2, all, 2, {9800, 14000}},
        {0, 800, 2, all, 4, {2800, 6300, 9800, 13300}},
        {3000, 800, 0, half, 4, {1000, 6300, 9800, 13300}}
    };
    size_t n = 16000 * 14, i, k;
    float *x = islands(seconds, 4, n);
    wnpu_model *m = life_toy(7, NULL);
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        wnpu_session *s = NULL;
        wnpu_config c;
        wnpu_params p = voice_params_of(1);
        wnpu_audio a = life_audio(x, n);
        wnpu_segment segment = {0};
        int64_t sum[3];
        voice_script told;
        int status;
        wnpu_config_init(&c, sizeof c);
        c.batch = cases[i].batch;
        T_CHECK(wnpu_session_open(&s, m, &c, NULL, 0, NULL) == WNPU_OK, "session");
        told = (voice_script){cases[i].first, all, s->run.engine.model->vocab.timestamp0,
                              s->run.engine.model->vocab.eot, 0};
        p.on_logits = recite;
        p.user = &told;
        p.max_tokens = 0;
        p.least_ms = cases[i].least;
        p.pause_ms = cases[i].pause;
        status = wnpu_transcribe(s, &p, &a);
        check_ledger(s, "short pauses", status, sum);
        T_CHECK(status == WNPU_OK && wnpu_segment_count(s) == (size_t)cases[i].n,
                "case %d: status %d, %d segments", (int)i, status, (int)wnpu_segment_count(s));
        for (k = 0; wnpu_get_segment(s, k, &segment) == WNPU_OK && k < (size_t)cases[i].n; k++) {
            T_CHECK(segment.window == (int32_t)k && llabs(segment.t1_ms - cases[i].end[k]) <= 150,
                    "case %d: window %d ends at %ld", (int)i, segment.window, (long)segment.t1_ms);
        }
        wnpu_session_close(s);
    }
    free(x);
    wnpu_model_close(m);
}

/* However little a model says, and wherever, the run goes on to the end: each return begins a
 * second after the one before, and all other windows move on. */
static void voice_progress(void)
{
    static const int silent[] = {END}, brief[] = {0, WORD, 1, END}, early[] = {0, WORD, 50, END},
        late[] = {1400, WORD, 1500, END}, slow[] = {0, WORD, 1, 1, END},
        holes[] = {0, WORD, 50, 500, WORD, 550, 550, WORD, 600, END},
        tail[] = {0, WORD, 50, 50, END}, all[] = {0, WORD, 1500, END};
    static const struct {
        const char *name;
        const int *first, *later;
        int seconds;
        int whole;             /* all speech ends up in text */
    } cases[] = {
        {"nothing", silent, silent, 40, 0}, {"20 ms", brief, brief, 33, 0},
        {"one second", early, early, 40, -1}, {"the end", late, late, 40, 0},
        {"20 ms at a time", slow, slow, 5, -1}, {"with holes", holes, holes, 40, -1},
        {"one second at a time", tail, tail, 40, -1}, {"everything", all, all, 70, 1},
        {"the rest when asked again", early, all, 29, 1},
        {"the begin when asked again", late, all, 29, 1}
    };
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = voice_open_session(m, 1 << 20);
    float *x = voicelike(16000 * 70, 0.5);
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        wnpu_params p = voice_params_of(1);
        wnpu_audio a = life_audio(x, (size_t)cases[i].seconds * 16000);
        const tk_vocab *v = &s->run.engine.model->vocab;
        voice_script told = {cases[i].first, cases[i].later, v->timestamp0, v->eot, 0};
        wnpu_stats stats;
        int64_t sum[3];
        int status;
        p.on_logits = recite;
        p.user = &told;
        p.max_tokens = 0;
        status = wnpu_transcribe(s, &p, &a);
        T_CHECK(status >= 0, "%s: %s", cases[i].name, wnpu_session_error(s));
        check_ledger(s, cases[i].name, status, sum);
        stats.struct_size = sizeof stats;
        wnpu_get_stats(s, &stats);
        T_CHECK(stats.speech_ms > 1000 * cases[i].seconds / 3, "%s: no speech", cases[i].name);
        T_CHECK(stats.returns <= stats.audio_ms / 1000 + 1, "%s: %u returns", cases[i].name,
                stats.returns);
        T_CHECK(stats.windows <= stats.audio_ms / 10 + stats.returns, "%s: %u windows",
                cases[i].name, stats.windows);
        T_CHECK(cases[i].whole != 0 || count_reason(s, WNPU_REASON_NO_TEXT) > 0,
                "%s: no word of what is missing", cases[i].name);
        T_CHECK(cases[i].whole != 1 || (status == WNPU_OK && sum[0] > 0), "%s: status %d, %ld ms",
                cases[i].name, status, (long)sum[2]);
        T_CHECK(cases[i].first == cases[i].later || stats.returns == 1, "%s: %u returns",
                cases[i].name, stats.returns);
        T_CHECK(cases[i].first != all || stats.returns == 0, "%s: %u returns", cases[i].name,
                stats.returns);
    }
    free(x);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- runs are functions, with voice activity too ---- */

static life_bytes voice_json_of(wnpu_session *s, const wnpu_audio *a)
{
    wnpu_params p = voice_params_of(1);
    T_CHECK(wnpu_transcribe(s, &p, a) >= 0, "%s", wnpu_session_error(s));
    return life_written(s, WNPU_FORMAT_JSON);
}

static void functions(void)
{
    wnpu_model *m = life_toy(7, NULL);
    size_t n = 16000 * 50;
    float *x = voicelike(n, 0.5);
    wnpu_audio a = life_audio(x, n), b = life_audio(x + 70000, n / 3), pulled;
    voice_source src = {x, n, 0, 0};
    wnpu_session *s = voice_open_session(m, 1 << 20);
    life_bytes first = voice_json_of(s, &a), other = voice_json_of(s, &b);
    life_bytes again = voice_json_of(s, &a), third;
    int isa;
    T_CHECK(life_alike(first, again), "A after B is not A");
    T_CHECK(!life_alike(first, other), "B is A");
    wnpu_audio_init(&pulled, sizeof pulled);
    pulled.read = voice_pull;
    pulled.user = &src;
    third = voice_json_of(s, &pulled);
    T_CHECK(life_alike(first, third), "audio that is pulled differs");
    free(third.bytes);
    wnpu_session_close(s);
    for (isa = WNPU_ISA_SCALAR; isa < CP_ISAS; isa++) {
        if (wnpu_isa_available((wnpu_isa)isa)) {
            s = open_on(m, isa % 2 == 0 ? 3 : 2, isa, WNPU_COMPUTE_INT8);
            third = voice_json_of(s, &a);
            T_CHECK(life_alike(first, third), "%s differs", wnpu_isa_name((wnpu_isa)isa));
            free(third.bytes);
            wnpu_session_close(s);
        }
    }
    free(first.bytes);
    free(other.bytes);
    free(again.bytes);
    free(x);
    wnpu_model_close(m);
}

/* Speech found without transcribing is the speech found while transcribing. */
static void speech_alone(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = voice_open_session(m, 1 << 20);
    size_t n = 16000 * 75, i, count;
    float *x = voicelike(n, 0.5);
    wnpu_audio a = life_audio(x, n);
    wnpu_params p = voice_params_of(1);
    wnpu_speech_span found[64], span;
    int64_t sum[3];
    T_CHECK(wnpu_detect_speech(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
    check_ledger(s, "speech alone", -1, sum);
    count = wnpu_speech_span_count(s);
    T_CHECK(sum[0] == 0 && count < 64 && wnpu_segment_count(s) == 0, "no text");
    for (i = 0; i < count; i++) {
        wnpu_get_speech_span(s, i, &found[i]);
    }
    T_CHECK(wnpu_transcribe(s, &p, &a) >= 0, "%s", wnpu_session_error(s));
    T_CHECK(count == wnpu_speech_span_count(s), "another number of spans");
    for (i = 0; wnpu_get_speech_span(s, i, &span) == WNPU_OK && i < count; i++) {
        T_CHECK(span.t0_ms == found[i].t0_ms && span.t1_ms == found[i].t1_ms, "another span");
    }
    T_CHECK(wnpu_get_speech_span(s, count, &span) == WNPU_E_ARGUMENT, "beyond the last");
    T_CHECK(wnpu_reset(s) == WNPU_OK && wnpu_speech_span_count(s) == 0 &&
            wnpu_ledger_count(s) == 0, "reset forgets");
#define REFUSED(change)                                                                       \
    p = voice_params_of(1);                                                                   \
    change;                                                                                   \
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_E_ARGUMENT, #change);                          \
    T_CHECK(wnpu_detect_speech(s, &p, &a) == WNPU_E_ARGUMENT, #change)
    REFUSED(p.vad_threshold = 0.01f);
    REFUSED(p.vad_threshold = NAN);
    REFUSED(p.vad_min_speech_ms = -1);
    REFUSED(p.vad_min_silence_ms = 10001);
    REFUSED(p.vad_pad_ms = 2001);
#undef REFUSED
    free(x);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

static void voice_tests(void)
{
    voice_seed = 5; /* the same sounds whatever ran before */
    t_run("shapes of spectra", shapes_of_spectra);
    t_run("pitches", pitches);
    t_run("the network", network);
    t_run("spans", spans);
    t_run("one answer", voice_one_answer);
    t_run("tones", tones);
    t_run("clicks", clicks);
    t_run("ledgers", ledgers);
    t_run("early ends", early_ends);
    t_run("speech without pauses", without_pauses);
    t_run("pauses", voice_pauses);
    t_run("ends of phrases", phrase_ends);
    t_run("long pauses end windows", long_pauses);
    t_run("short pauses end windows", short_pauses);
    t_run("progress", voice_progress);
    t_run("functions", functions);
    t_run("speech alone", speech_alone);
}
