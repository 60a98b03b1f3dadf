/* Arena, thread pool, maths, float operators, logit rules, results: against slow references. */
#include "../whisper_npu.c"
#include "t.h"

/* ---- arena ---- */

static void arena(void)
{
    unsigned char block[1024] __attribute__((aligned(64)));
    ar_arena measure, real;
    void *a, *b;
    memset(&measure, 0, sizeof measure);
    memset(&real, 0, sizeof real);
    T_CHECK(ar_take(&measure, 3, 5) == NULL && measure.used == 64, "measures in steps of 64");
    ar_take(&measure, 65, 1);
    T_CHECK(measure.used == 192, "used %lu", (unsigned long)measure.used);
    real.base = block;
    real.size = measure.used;
    a = ar_take(&real, 3, 5);
    b = ar_take(&real, 65, 1);
    T_CHECK(a == block && b == block + 64 && real.used == measure.used, "same walk");
    T_CHECK(ar_take(&real, 1, 1) == NULL, "no byte beyond the block");
    T_CHECK(ar_take(&measure, SIZE_MAX / 2, 3) == NULL && measure.overflow, "overflow is seen");
    memset(&measure, 0, sizeof measure);
    ar_take(&measure, SIZE_MAX - 5, 1);
    T_CHECK(measure.overflow, "rounding up overflows");
}

/* ---- pool ---- */

typedef struct count_job {
    unsigned char *seen;
    unsigned threads;
    int *bad;
    int *in_use; /* [threads] */
} count_job;

static void count_task(void *context, size_t index, unsigned worker)
{
    count_job *job = context;
    if (worker >= job->threads || __atomic_exchange_n(&job->in_use[worker], 1, __ATOMIC_ACQ_REL)) {
        __atomic_store_n(job->bad, 1, __ATOMIC_RELAXED);
    }
    __atomic_add_fetch(&job->seen[index], 1, __ATOMIC_RELAXED);
    __atomic_store_n(&job->in_use[worker % 64], 0, __ATOMIC_RELEASE);
}

static void host_for(void *user, size_t count, void (*task)(void *, size_t), void *context)
{
    size_t i;
    ++*(int *)user;
    for (i = count; i > 0; i--) {
        task(context, i - 1);
    }
}

static void pool(void)
{
    unsigned threads;
    int host, calls = 0;
    for (host = 0; host < 2; host++) {
        for (threads = 1; threads <= 8; threads++) {
            static tp_pool p;
            int cancel = 0, bad = 0, in_use[64] = {0};
            size_t round;
            wnpu_error error;
            T_CHECK(tp_open(&p, threads, host ? host_for : NULL, &calls, &cancel, &error) == 0,
                    "opens");
            for (round = 0; round < 600; round++) {
                unsigned char seen[97] = {0};
                size_t i, n = round % 97;
                count_job job;
                job.seen = seen;
                job.threads = threads;
                job.bad = &bad;
                job.in_use = in_use;
                tp_run(&p, n, count_task, &job);
                for (i = 0; i < 97; i++) {
                    T_CHECK(seen[i] == (i < n), "item %d of %d ran %d times", (int)i, (int)n,
                            seen[i]);
                }
                if (round % 100 == 99) {
                    struct timespec pause = {0, 2000000};
                    nanosleep(&pause, NULL); /* let the workers fall asleep */
                }
            }
            T_CHECK(!bad, "two tasks shared a worker number, or one was out of range");
            cancel = 1;
            {
                unsigned char seen[10] = {0};
                count_job job;
                job.seen = seen;
                job.threads = threads;
                job.bad = &bad;
                job.in_use = in_use;
                tp_run(&p, 10, count_task, &job);
                T_CHECK(seen[0] + seen[9] == 0, "a cancelled job does nothing");
            }
            tp_close(&p);
        }
    }
    T_CHECK(calls > 0, "the host's parallel-for was used");
}

/* ---- maths ---- */

static void maths(void)
{
    double exp_error = 0, log_error = 0, gelu_error = 0, x;
    for (x = -87; x < 88; x += 0.00173) {
        double e = fabs((double)mt_exp1((float)x) / exp((double)(float)x) - 1);
        exp_error = e > exp_error ? e : exp_error;
    }
    for (x = 1e-12; x < 1e12; x *= 1.00173) {
        double want = log((double)(float)x), e = fabs((double)mt_log1((float)x) - want);
        e /= fabs(want) > 1 ? fabs(want) : 1;
        log_error = e > log_error ? e : log_error;
    }
    for (x = -12; x < 12; x += 0.00173) {
        mt_vec v;
        double f = (double)(float)x, want = 0.5 * f * erfc(-f / sqrt(2.0)), e;
        mt_vset(&v, (float)x);
        mt_vgelu(&v);
        e = fabs((double)v.v[0] - want);
        gelu_error = e > gelu_error ? e : gelu_error;
    }
    printf("  largest errors: exp %.2g relative, log %.2g, GELU %.2g absolute\n", exp_error,
           log_error, gelu_error);
    T_CHECK(exp_error < 3e-7, "exp %g", exp_error);
    T_CHECK(log_error < 3e-7, "log %g", log_error);
    T_CHECK(gelu_error < 1e-6, "gelu %g", gelu_error);
    T_CHECK(mt_exp1(-1e30f) == 0.0f && mt_exp1(-INFINITY) == 0.0f, "exp of nothing is 0");
    T_CHECK(mt_exp1(0.0f) == 1.0f, "exp(0)");
    T_CHECK(mt_exp1(1e30f) < INFINITY, "exp saturates");
}

/* ---- operators ---- */

static uint32_t seed = 1;

static float noise(float scale)
{
    seed = seed * 1664525u + 1013904223u;
    return ((float)(seed >> 8) / 8388608.0f - 1.0f) * scale;
}

static void operators_one_answer(void)
{
    enum { N = 1504 };
    static float x[N], w[N], b[N], ks[N], vs[N], y[2][N], s[2][N], z[2][N];
    static int32_t acc[N];
    static int8_t q[2][N];
    static uint16_t pr[2][N];
    int isa, round, i;
    for (round = 0; round < 20; round++) {
        float scale[2], sum[2], soft[2];
        size_t n = round % 2 ? N : 1500 - (size_t)round * 7;
        for (i = 0; i < N; i++) {
            x[i] = noise(3);
            w[i] = noise(1);
            b[i] = noise(1);
            ks[i] = noise(1) * 0.01f + 0.02f;
            vs[i] = noise(1) * 0.01f + 0.02f;
            acc[i] = (int32_t)noise(100000);
        }
        for (isa = WNPU_ISA_SCALAR; isa < CP_ISAS; isa++) {
            const op_kernels *op = op_select((wnpu_isa)isa);
            int k = isa != WNPU_ISA_SCALAR;
            if (!wnpu_isa_available((wnpu_isa)isa)) {
                continue;
            }
            op->norm(y[k], x, w, b, N);
            scale[k] = op->quantise(q[k], y[k], N);
            memcpy(z[k], x, sizeof x);
            op->dequantise(z[k], acc, N, 0.01f, ks, b, (op_finish)(round % 3));
            soft[k] = op->softmax(pr[k], s[k], acc, n, 0.01f, ks, vs);
            sum[k] = op->sum_exp(x, n, 3.0f);
            T_CHECK(memcmp(q[k], q[0], N) == 0, "quantise %d", isa);
            T_CHECK(scale[k] == scale[0] && memcmp(y[k], y[0], sizeof y[0]) == 0, "norm %d", isa);
            T_CHECK(memcmp(z[k], z[0], sizeof z[0]) == 0, "dequantise %d", isa);
            T_CHECK(soft[k] == soft[0] && memcmp(pr[k], pr[0], (n + 15) / 16 * 32) == 0,
                    "softmax %d", isa);
            T_CHECK(sum[k] == sum[0], "sum_exp %d", isa);
            T_CHECK(op->argmax(x, n) == op_select(WNPU_ISA_SCALAR)->argmax(x, n), "argmax");
        }
    }
}

static void operators_definition(void)
{
    enum { N = 480 };
    const op_kernels *op = op_select(cp_best());
    static float x[N], w[N], b[N], y[N], scores[N];
    static int32_t acc[N];
    static int8_t q[N], low[N];
    static uint16_t p[N];
    double mean = 0, variance = 0, worst = 0, total = 0, weighted = 0, got = 0, top = -1e9, peak = 0, whole = 0;
    float scale, value_scale[N], key_scale[N];
    int i, n = 471;
    for (i = 0; i < N; i++) {
        x[i] = noise(2) + 1;
        w[i] = noise(1);
        b[i] = noise(1);
        acc[i] = (int32_t)noise(3000);
        key_scale[i] = 0.01f;
        value_scale[i] = 0.5f + (float)(i % 7) * 0.1f;
        mean += (double)x[i] / N;
    }
    for (i = 0; i < N; i++) {
        variance += ((double)x[i] - mean) * ((double)x[i] - mean) / N;
    }
    op->norm(y, x, w, b, N);
    for (i = 0; i < N; i++) {
        double want = ((double)x[i] - mean) / sqrt(variance + 1e-5) * (double)w[i] + (double)b[i];
        worst = fabs(want - (double)y[i]) > worst ? fabs(want - (double)y[i]) : worst;
    }
    T_CHECK(worst < 1e-5, "layer norm %g", worst);
    scale = op->quantise(q, x, N);
    for (i = 0; i < N; i++) {
        T_CHECK(fabs((double)x[i] / (double)scale - q[i]) <= 0.5001, "quantise %d", i);
    }
    scale = op->quantise_fine(q, low, x, N);
    for (i = 0; i < N; i++) {
        T_CHECK(fabs((double)x[i] / (double)scale - q[i] - low[i] / 254.0) <= 0.5001 / 254 + 1e-5,
                "15 bits %d", i);
    }
    /* Softmax and the values' scales: sum_j p_j vs_j u_j for u = 1 .. compare in double. */
    for (i = 0; i < n; i++) {
        double s = acc[i] * 0.01 * 0.2;
        top = s > top ? s : top;
    }
    scale = op->softmax(p, scores, acc, (size_t)n, 0.2f, key_scale, value_scale);
    for (i = 0; i < N; i++) {
        double e = i < n ? exp(acc[i] * 0.01 * 0.2 - top) : 0;
        int u = (i * 37 % 255) - 127;
        total += e;
        weighted += e * (double)value_scale[i] * u;
        got += p[i] * u;
        peak = p[i] > peak ? p[i] : peak;
        whole += p[i];
        T_CHECK(i < n || p[i] == 0, "padding %d is %d", i, p[i]);
    }
    T_CHECK(fabs(got * (double)scale - weighted / total) < 0.01, "attention %g against %g",
            got * (double)scale, weighted / total);
    T_CHECK(peak <= 16256 && whole <= 16000000 + N, "inside the bounds of the products");
    memset(x, 0, sizeof x);
    T_CHECK(op->quantise(q, x, N) == 0.0f && q[5] == 0, "a row of zeros");
    x[3] = NAN;
    x[4] = INFINITY;
    T_CHECK(op->quantise(q, x, N) == 0.0f && q[3] == 0 && q[4] == 0, "a row that is not finite");
}

/* ---- logit rules against a slow transcription of OpenAI's decoding.py ---- */

enum { VOCAB = 300 + 1509 + 2 };

static void slow_rules(const lr_rules *r, double *l, const int32_t *t, size_t n)
{
    const tk_vocab *v = r->vocab;
    int32_t begin = v->timestamp0, i;
    double total = 0, top = -INFINITY, text = -INFINITY;
    if (n == 0 && r->suppress_blank) {
        l[r->blank] = l[v->eot] = -INFINITY;
    }
    for (i = 0; i < v->n_vocab; i++) {
        l[i] = r->never[i] ? -INFINITY : l[i];
    }
    l[v->no_timestamps] = -INFINITY;
    {
        int last_was = n >= 1 && t[n - 1] >= begin, before_was = n < 2 || t[n - 2] >= begin;
        if (last_was && before_was) {
            for (i = begin; i < v->n_vocab; i++) l[i] = -INFINITY;
        } else if (last_was) {
            for (i = 0; i < v->eot; i++) l[i] = -INFINITY;
        }
        for (i = (int32_t)n - 1; i >= 0; i--) {
            if (t[i] >= begin) {
                int32_t end = last_was && !before_was ? t[i] : t[i] + 1, k;
                for (k = begin; k < end; k++) l[k] = -INFINITY;
                break;
            }
        }
    }
    if (n == 0) {
        for (i = 0; i < begin; i++) l[i] = -INFINITY;
        for (i = begin + r->max_initial + 1; i < v->n_vocab; i++) l[i] = -INFINITY;
    }
    for (i = begin; i < v->n_vocab; i++) top = l[i] > top ? l[i] : top;
    for (i = begin; i < v->n_vocab; i++) total += top > -INFINITY ? exp(l[i] - top) : 0;
    for (i = 0; i < begin; i++) text = l[i] > text ? l[i] : text;
    if (top > -INFINITY && log(total) + top > text) {
        for (i = 0; i < begin; i++) l[i] = -INFINITY;
    }
}

static void rules(void)
{
    static unsigned char never[VOCAB];
    static float logits[VOCAB];
    static double want[VOCAB];
    tk_vocab v;
    lr_rules r;
    int round;
    memset(&v, 0, sizeof v);
    v.n_vocab = VOCAB;
    v.eot = 300;
    v.no_timestamps = 309;
    v.timestamp0 = VOCAB - 1501;
    r.vocab = &v;
    r.op = op_select(cp_best());
    r.never = never;
    r.timestamps = 1;
    r.blank = 32;
    r.max_initial = 50;
    for (round = 0; round < 3000; round++) {
        int32_t tokens[12], at = v.timestamp0;
        size_t n = (size_t)round % 12, i;
        float bias = noise(12);
        r.suppress_blank = round % 2;
        for (i = 0; i < n; i++) { /* mostly what the rules would have allowed */
            seed = seed * 1664525u + 1013904223u;
            if (i == 0 || (seed >> 20) % 3 == 0) {
                at += (int32_t)((seed >> 10) % 20);
                tokens[i] = at;
            } else {
                tokens[i] = (int32_t)((seed >> 10) % 300);
            }
        }
        for (i = 0; i < VOCAB; i++) {
            never[i] = (unsigned char)((i * 7919 + (size_t)round) % 61 == 0 && i < 300);
            logits[i] = noise(6) + ((int32_t)i < v.timestamp0 ? bias : 0.0f);
            want[i] = (double)logits[i];
        }
        slow_rules(&r, want, tokens, n);
        lr_apply(&r, logits, tokens, n);
        for (i = 0; i < VOCAB; i++) {
            if ((want[i] == -INFINITY) != (logits[i] == -INFINITY)) {
                T_CHECK(0, "round %d, %d tokens: token %d", round, (int)n, (int)i);
                return;
            }
        }
    }
}

/* ---- numbers in writers ---- */

typedef struct text_sink {
    char text[256];
    size_t n;
} text_sink;

static int64_t sink_write(void *user, const void *data, size_t size)
{
    text_sink *s = user;
    size_t part = size > 3 ? 3 : size; /* short writes are legal */
    if (s->n + part >= sizeof s->text) {
        return -1;
    }
    memcpy(s->text + s->n, data, part);
    s->n += part;
    s->text[s->n] = '\0';
    return (int64_t)part;
}

static const char *fraction(float value)
{
    static text_sink s;
    rs_out o;
    memset(&s, 0, sizeof s);
    memset(&o, 0, sizeof o);
    o.write = sink_write;
    o.user = &s;
    rs_fraction(&o, value);
    rs_text(&o, " ");
    rs_clock(&o, (int64_t)(value * 1000.0f), ",");
    rs_flush(&o);
    return s.text;
}

static void numbers(void)
{
    T_CHECK(strcmp(fraction(0.5f), "0.500000 00:00:00,500") == 0, "%s", fraction(0.5f));
    T_CHECK(strcmp(fraction(3661.25f), "3661.250000 01:01:01,250") == 0, "%s", fraction(3661.25f));
    T_CHECK(strncmp(fraction(-0.25f), "-0.250000", 9) == 0, "%s", fraction(-0.25f));
    T_CHECK(strncmp(fraction(NAN), "null", 4) == 0, "%s", fraction(NAN));
    T_CHECK(strncmp(fraction(0.9999999f), "1.000000", 8) == 0, "%s", fraction(0.9999999f));
}

int main(void)
{
    t_run("arena: measuring and taking agree, overflow is caught", arena);
    t_run("pool: each item once, own or the host's threads", pool);
    t_run("exp, log and GELU against libm in double", maths);
    t_run("operators: same bits for every instruction set", operators_one_answer);
    t_run("operators against their definition", operators_definition);
    t_run("logit rules against OpenAI's, written slowly", rules);
    t_run("numbers in writers", numbers);
    return t_end();
}
