/* Log-mel against a float64 DFT written from OpenAI's definition. */
#include "../lib/t.h"

#define PI 3.14159265358979323846
#define MELS 80

/* Slaney's mel scale, as librosa's filters in OpenAI's mel_filters.npz. */
static double mel_to_hz(double m)
{
    return m < 15.0 ? m * 200.0 / 3.0 : 1000.0 * exp((m - 15.0) * log(6.4) / 27.0);
}

static double hz_to_mel(double f)
{
    return f < 1000.0 ? f * 3.0 / 200.0 : 15.0 + log(f / 1000.0) * 27.0 / log(6.4);
}

static float *make_filters(void)
{
    float *w = calloc(MELS * 201, sizeof *w);
    double top = hz_to_mel(8000.0);
    int m, b;
    for (m = 0; m < MELS; m++) {
        double lo = mel_to_hz(top * m / (MELS + 1)), mid = mel_to_hz(top * (m + 1) / (MELS + 1));
        double hi = mel_to_hz(top * (m + 2) / (MELS + 1));
        for (b = 0; b < 201; b++) {
            double f = b * 40.0, up = (f - lo) / (mid - lo), down = (hi - f) / (hi - mid);
            double y = up < down ? up : down;
            w[m * 201 + b] = (float)(y > 0 ? y * 2.0 / (hi - lo) : 0);
        }
    }
    return w;
}

/* x[n] at 16 kHz, zeros behind it, reflected before it; out[3000][MELS]. */
static void reference(const float *x, long n, const float *filters, double *out)
{
    static double cosine[400], sine[400];
    double largest = -1e9;
    long t, m, b, i;
    for (i = 0; i < 400; i++) {
        cosine[i] = cos(2 * PI * (double)i / 400);
        sine[i] = sin(2 * PI * (double)i / 400);
    }
    for (t = 0; t < 3000; t++) {
        double frame[400], power[201];
        for (i = 0; i < 400; i++) {
            long at = t * 160 - 200 + i;
            double v;
            at = at < 0 ? -at : at;
            v = at < n ? x[at] : 0.0;
            frame[i] = v * (0.5 - 0.5 * cos(2 * PI * (double)i / 400));
        }
        for (b = 0; b < 201; b++) {
            double re = 0, im = 0;
            for (i = 0; i < 400; i++) {
                re += frame[i] * cosine[b * i % 400];
                im -= frame[i] * sine[b * i % 400];
            }
            power[b] = re * re + im * im;
        }
        for (m = 0; m < MELS; m++) {
            double sum = 0;
            for (b = 0; b < 201; b++) {
                sum += power[b] * (double)filters[m * 201 + b];
            }
            out[t * MELS + m] = log10(sum > 1e-10 ? sum : 1e-10);
            largest = out[t * MELS + m] > largest ? out[t * MELS + m] : largest;
        }
    }
    for (i = 0; i < 3000 * MELS; i++) {
        double v = out[i] > largest - 8 ? out[i] : largest - 8;
        out[i] = (v + 4) / 4;
    }
}

typedef struct lab {
    en_engine e;
    tp_pool pool;
    wnpu_model model;
    float *filters, *span;
    void *memory;
} lab;

/* Just the parts of an engine that log-mel needs. */
static void lab_open(lab *l, wnpu_isa isa, unsigned threads)
{
    int round;
    ar_arena arena;
    wnpu_error error;
    memset(l, 0, sizeof *l);
    memset(&arena, 0, sizeof arena);
    l->filters = make_filters();
    l->model.n_mels = MELS;
    l->model.filters = l->filters;
    l->e.model = &l->model;
    l->e.op = op_select(isa);
    l->e.pool = &l->pool;
    tp_open(&l->pool, threads, NULL, NULL, NULL, &error);
    for (round = 0; round < 2; round++) {
        size_t i;
        arena.used = 0;
        l->e.worker = ar_carve(&arena, threads, sizeof(en_worker));
        for (i = 0; i < threads; i++) {
            ml_scratch *s = ar_carve(&arena, 1, sizeof *s);
            if (l->e.worker != NULL) {
                l->e.worker[i].mel = s;
            }
        }
        l->e.fft = ar_carve(&arena, 1, sizeof(ft_tables));
        l->e.filters.first = ar_carve(&arena, MELS, sizeof(uint16_t));
        l->e.filters.last = ar_carve(&arena, MELS, sizeof(uint16_t));
        l->e.mel = ar_carve(&arena, 3002 * MELS, sizeof(float));
        l->span = ar_carve(&arena, ML_SPAN, sizeof(float));
        if (round == 0) {
            arena.size = arena.used;
            l->memory = ar_malloc(NULL, arena.size, 64);
            arena.base = l->memory;
        }
    }
    ft_init(l->e.fft);
    ml_init(&l->e.filters, l->filters, MELS);
}

static void lab_close(lab *l)
{
    tp_close(&l->pool);
    free(l->memory);
    free(l->filters);
}

static int lab_run(lab *l, const float *x, long n)
{
    long i;
    for (i = 0; i < (long)ML_SPAN; i++) {
        long at = i - (long)ML_MARGIN;
        at = at < 0 ? -at : at;
        l->span[i] = at < n ? x[at] : 0.0f;
    }
    return en_log_mel(&l->e, l->span, ML_FRAMES);
}

static float *signal_of(int kind, long n)
{
    float *x = calloc((size_t)(n > 0 ? n : 1), sizeof *x);
    uint32_t seed = 12345;
    long i;
    for (i = 0; i < n; i++) {
        double t = (double)i / 16000, v = 0;
        seed = seed * 1664525u + 1013904223u;
        switch (kind) {
        case 0: v = ((double)(seed >> 8) / 16777216.0 - 0.5); break;            /* noise */
        case 1: v = 0.9 * sin(2 * PI * 440 * t); break;                          /* tone */
        case 2: v = sin(2 * PI * (100 + 120 * t) * t) * exp(-fmod(t, 1.0) * 9); break;
        case 3: v = i % 16000 == 0 ? 1.0 : 0.0; break;                           /* clicks */
        case 4: v = 1e-3 * sin(2 * PI * 3000 * t) + (t < 1 ? sin(2 * PI * 200 * t) : 0); break;
        default: v = 0; break;
        }
        x[i] = (float)v;
    }
    return x;
}

static void against_definition(void)
{
    static const long lengths[] = {480000, 480000, 200000, 48000, 480000, 480000, 1, 0};
    double *want = malloc(3000 * MELS * sizeof *want);
    size_t k;
    for (k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
        float *x = signal_of((int)k, lengths[k]);
        double worst = 0;
        lab l;
        size_t i;
        lab_open(&l, WNPU_ISA_AUTO, 1);
        reference(x, lengths[k], l.filters, want);
        (void)lab_run(&l, x, lengths[k]);
        for (i = 0; i < 3000 * MELS; i++) {
            double d = fabs(want[i] - (double)l.e.mel[MELS + i]);
            worst = d > worst ? d : worst;
        }
        T_CHECK(worst <= 1e-4, "signal %d: largest difference %g", (int)k, worst);
        printf("  signal %d: largest difference %.2g\n", (int)k, worst);
        lab_close(&l);
        free(x);
    }
    free(want);
}

/* Runs noise whose loudest value is to be `largest`; unit: the same with some other one. */
static int run_noise(lab *l, const float *unit, float *x, double largest)
{
    float most = -100.0f;
    long i;
    T_CHECK(!lab_run(l, unit, 480000), "loud noise is raised");
    for (i = 0; i < 3000 * MELS; i++) {
        most = l->e.mel[MELS + i] > most ? l->e.mel[MELS + i] : most;
    }
    for (i = 0; i < 480000; i++) { /* a value v has become (v + 4) / 4 */
        x[i] = (float)((double)unit[i] * pow(10, (largest - 4 * (double)most + 4) / 2));
    }
    return lab_run(l, x, 480000);
}

/* What is raised by 2 is as if it were 10^2 times as powerful; no usual window is raised. */
static void quiet_is_raised(void)
{
    float *x = signal_of(0, 480000), *scaled = malloc(480000 * sizeof *scaled), worst = 0.0f;
    double quiet = (double)ML_QUIET - 0.5;
    lab loud, l;
    long i;
    T_CHECK(ml_raise(ML_QUIET) == 0.0f && ml_raise(2.0f) == 0.0f, "a usual window is raised");
    T_CHECK(ml_raise(ML_QUIET - 0.5f) == 2.0f && ml_raise(-14.0f) == ML_RAISE, "%g and %g",
            (double)ml_raise(ML_QUIET - 0.5f), (double)ml_raise(-14.0f));
    lab_open(&l, WNPU_ISA_AUTO, 1);
    lab_open(&loud, WNPU_ISA_AUTO, 1);
    T_CHECK(run_noise(&l, x, scaled, quiet), "a quiet window is not raised");
    T_CHECK(!run_noise(&loud, x, scaled, quiet + 2), "a window as loud as that is raised");
    for (i = 0; i < 3000 * MELS; i++) {
        float d = fabsf(loud.e.mel[MELS + i] - l.e.mel[MELS + i]);
        worst = d > worst ? d : worst;
    }
    T_CHECK(worst <= 1e-4f, "largest difference %g", (double)worst);
    lab_close(&loud);
    lab_close(&l);
    free(scaled);
    free(x);
}

static void mel_one_answer(void)
{
    float *x = signal_of(0, 480000), *first = NULL;
    int isa;
    for (isa = WNPU_ISA_SCALAR; isa < CP_ISAS; isa++) {
        unsigned threads;
        for (threads = 1; threads <= 3 && wnpu_isa_available((wnpu_isa)isa); threads++) {
            lab l;
            lab_open(&l, (wnpu_isa)isa, threads);
            (void)lab_run(&l, x, 480000);
            if (first == NULL) {
                first = malloc(3000 * MELS * sizeof *first);
                memcpy(first, l.e.mel + MELS, 3000 * MELS * sizeof *first);
            }
            T_CHECK(memcmp(first, l.e.mel + MELS, 3000 * MELS * sizeof *first) == 0,
                    "%s with %u threads differs", wnpu_isa_name((wnpu_isa)isa), threads);
            lab_close(&l);
        }
    }
    free(first);
    free(x);
}

static void mel_tests(void)
{
    t_run("log-mel equals the float64 definition within 1e-4", against_definition);
    t_run("a very quiet window is as if it were louder", quiet_is_raised);
    t_run("log-mel has the same bits for every instruction set and thread count", mel_one_answer);
}
