/* accel.c - the bridge (section np_ of whisper_npu.c) with an accelerator of the test's own: it
 * multiplies by three nested loops, keeps a strict eye on the seam's rules, and fails on demand. */
#include "../lib/life.h"

/* ---- an accelerator that obeys the header to the letter ---- */

#define MAX_WEIGHTS 4096u
#define MAX_FLIGHT 8u

#define MAX_N 4096u

/* Floats, which every CPU multiplies fast, are exact below 2^24: 1,040 products of int8. */
#define MAX_K 1040u
typedef float accel_wide __attribute__((vector_size(64), aligned(4)));

typedef struct fake_weight {
    uint32_t shape, n, k;
    size_t n16;                 /* vectors in a row */
    accel_wide *data;                 /* [k, n16] of B's columns */
} fake_weight;

typedef struct fake_job {
    int used;
    size_t count;
    wnpu_accel_product product[NP_CHAIN];
    int8_t *a[NP_CHAIN];        /* copied at submission, as the header promises */
    int32_t *c[NP_CHAIN];
} fake_job;

enum { FAIL_SUBMIT = 1, FAIL_WAIT, FLIP, ZERO, STALE, NO_TAKE, HALF_TAKE, FAULTS };

typedef struct fake {
    wnpu_accel seam;
    wnpu_accel_shape shapes[16];
    uint32_t n_shapes, flight, chain;
    uint64_t limit, locked;
    fake_weight weight[MAX_WEIGHTS];
    size_t n_weights;
    fake_job job[MAX_FLIGHT];
    int health, rests;          /* asked so often before it may be probed */
    int probe_fails;
    /* the accident: at the n-th submission or wait (from 1) */
    int fault;
    uint64_t at, submits, waits;
    uint32_t seed;
    int fired;
    uint32_t bit;               /* that FLIP turns; 32: any */
    uint64_t products, macs;
    int inside;                 /* atomic: callers now */
    int broken;                 /* rules that the library broke */
    wnpu_session *cancel_at;    /* cancelled at wait number `at` */
    wnpu_accel_account account;
} fake;

static void accel_rule(fake *f, int ok, const char *what)
{
    if (!ok) {
        f->broken++;
        printf("  the library broke a rule: %s\n", what);
    }
}

static fake *enter(void *self)
{
    fake *f = self;
    accel_rule(f, __atomic_add_fetch(&f->inside, 1, __ATOMIC_SEQ_CST) == 1, "one caller at a time");
    accel_rule(f, f->seam.in_use == 1, "a caller has its turn");
    return f;
}

static int leave(fake *f, int code)
{
    __atomic_sub_fetch(&f->inside, 1, __ATOMIC_SEQ_CST);
    return code;
}

static uint32_t draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static int fake_describe(void *self, wnpu_accel_info *info)
{
    fake *f = self;
    info->n_shapes = f->n_shapes;
    info->shapes = f->shapes;
    info->max_in_flight = f->flight;
    info->max_chain = f->chain;
    info->memory_limit = f->limit;
    info->name = "fake";
    return WNPU_OK;
}

static int fake_resident(void *self, uint32_t shape, uint32_t n, uint32_t k, const int8_t *data,
                         size_t ldb, uint64_t *b, wnpu_error *error)
{
    fake *f = enter(self);
    fake_weight *w = &f->weight[f->n_weights];
    uint32_t i, j;
    accel_rule(f, shape < f->n_shapes && n >= 1 && k >= 1 && ldb >= k && n <= f->shapes[shape].n &&
               k <= f->shapes[shape].k && n <= MAX_N && k <= MAX_K, "a weight fits its shape");
    if (f->limit != 0 && f->locked + f->shapes[shape].resident_bytes > f->limit) {
        return leave(f, er_set(error, WNPU_E_MEMORY, "the fake is full"));
    }
    f->locked += f->shapes[shape].resident_bytes;
    w->shape = shape;
    w->n = n;
    w->k = k;
    w->n16 = (n + 15) / 16;
    w->data = calloc(w->n16 * k, sizeof *w->data);
    for (i = 0; i < n; i++) {
        for (j = 0; j < k; j++) {
            accel_rule(f, data[i * ldb + j] > -128, "weights are above -128");
            w->data[j * w->n16 + i / 16][i % 16] = data[i * ldb + j];
        }
    }
    *b = 1000 + f->n_weights++;
    return leave(f, WNPU_OK);
}

static fake_weight *weight_of(fake *f, uint64_t b)
{
    fake_weight *w = b >= 1000 && b - 1000 < f->n_weights ? &f->weight[b - 1000] : NULL;
    return w != NULL && w->data != NULL ? w : NULL;
}

static int fake_release(void *self, uint64_t b)
{
    fake *f = enter(self);
    fake_weight *w = weight_of(f, b);
    size_t i;
    for (i = 0; i < MAX_FLIGHT; i++) {
        accel_rule(f, !f->job[i].used, "no release in flight");
    }
    accel_rule(f, w != NULL, "a weight is released once");
    if (w != NULL) {
        f->locked -= f->shapes[w->shape].resident_bytes;
        free(w->data);
        w->data = NULL;
    }
    return leave(f, WNPU_OK);
}

/* C = A B^T, int32. Weights are kept as [k, n padded to 16], so that a compiler finds vectors in
 * the innermost loop; sanitizers would make it take most of the time of this test. */
__attribute__((no_sanitize("address", "undefined")))
static int32_t *multiply(const wnpu_accel_product *p, const int8_t *a, const fake_weight *w,
                         size_t ldc)
{
    int32_t *c = malloc((size_t)p->m * ldc * sizeof *c);
    size_t i, j, l;
    for (i = 0; i < p->m; i++) {
        accel_wide sum[MAX_N / 16];
        memset(sum, 0, w->n16 * sizeof *sum);
        for (l = 0; l < w->k; l++) {
            for (j = 0; j < w->n16; j++) {
                sum[j] += w->data[l * w->n16 + j] * (float)a[i * w->k + l];
            }
        }
        for (j = 0; j < w->n; j++) {
            c[i * ldc + j] = (int32_t)sum[j / 16][j % 16];
        }
        for (j = w->n; j < ldc; j++) {
            c[i * ldc + j] = 0x5a5a5a5a;
        }
    }
    return c;
}

static int fake_submit(void *self, const wnpu_accel_product *products, size_t count,
                       uint64_t *job, wnpu_error *error)
{
    fake *f = enter(self);
    fake_job *to = NULL;
    uint32_t flying = 0;
    size_t i, r;
    f->submits++;
    if (f->health != WNPU_ACCEL_OK) {
        return leave(f, er_set(error, WNPU_E_STATE, "the fake rests"));
    }
    if (f->fault == FAIL_SUBMIT && f->submits == f->at) {
        f->fired = 1;
        f->health = WNPU_ACCEL_SUSPECT;
        return leave(f, er_set(error, WNPU_E_ACCEL, "the fake does not submit"));
    }
    for (i = 0; i < MAX_FLIGHT; i++) {
        flying += (uint32_t)f->job[i].used;
        to = f->job[i].used ? to : &f->job[i];
    }
    accel_rule(f, flying < f->flight && to != NULL, "jobs in flight are limited");
    accel_rule(f, count >= 1 && count <= f->chain && count <= NP_CHAIN,
               "a job's products are limited");
    to->used = 1;
    to->count = count;
    for (i = 0; i < count; i++) {
        const wnpu_accel_product *p = &products[i];
        const fake_weight *w = weight_of(f, p->b);
        accel_rule(f, w != NULL && p->shape == w->shape && p->m >= 1 &&
                   p->m <= f->shapes[p->shape].m &&
                   p->lda >= w->k && p->c == NULL && p->take != NULL, "a product fits");
        accel_rule(f, f->shapes[p->shape].group == f->shapes[products[0].shape].group,
                   "a job has one group");
        to->product[i] = *p;
        to->a[i] = malloc((size_t)p->m * w->k);
        for (r = 0; r < p->m; r++) {
            memcpy(to->a[i] + r * w->k, p->a + r * p->lda, w->k);
        }
        f->products++;
        f->macs += (uint64_t)p->m * w->n * w->k;
    }
    f->account.submissions++;
    *job = (uint64_t)(to - f->job);
    return leave(f, WNPU_OK);
}

/* Spoils the results of a job. */
static void accel_spoil(fake *f, fake_job *j, size_t ldc)
{
    size_t i = draw(&f->seed) % j->count, m = j->product[i].m;
    const fake_weight *w = weight_of(f, j->product[i].b);
    int32_t *at = j->c[i] + draw(&f->seed) % m * ldc + draw(&f->seed) % w->n;
    f->fired = 1;
    if (f->fault == FLIP) {
        *at = (int32_t)((uint32_t)*at ^ 1u << (f->bit < 32 ? f->bit : draw(&f->seed) % 32));
    } else if (f->fault == ZERO) {
        memset(j->c[i], 0, m * ldc * sizeof *at);
    } else if (f->fault == STALE) {
        memset(j->c[i] + (m - 1) * ldc, 0x5a, ldc * sizeof *at);
    }
}

static int fake_wait(void *self, uint64_t job, int64_t deadline_ns, wnpu_error *error)
{
    fake *f = enter(self);
    fake_job *j = &f->job[job % MAX_FLIGHT];
    int64_t left = deadline_ns - np_deadline(0.0);
    int now = ++f->waits == f->at, failed = 0;
    size_t i, ldc;
    accel_rule(f, job < MAX_FLIGHT && j->used, "a job is waited for once");
    accel_rule(f, left > 0 && left <= 1000000000, "a wait has a deadline within a second");
    ldc = f->shapes[j->product[0].shape].n + 3;
    for (i = 0; i < j->count; i++) {
        const fake_weight *w = weight_of(f, j->product[i].b);
        j->c[i] = multiply(&j->product[i], j->a[i], w, ldc);
        f->account.macs += (uint64_t)j->product[i].m * w->n * w->k;
    }
    if (now && f->fault >= FLIP && f->fault <= STALE) {
        accel_spoil(f, j, ldc);
    }
    if (now && f->cancel_at != NULL) {
        f->fired = 1;
        wnpu_cancel(f->cancel_at);
    }
    if (now && f->fault == FAIL_WAIT) {
        f->fired = failed = 1;
        f->health = WNPU_ACCEL_SUSPECT;
        (void)er_set(error, WNPU_E_ACCEL, "the fake does not finish");
    }
    for (i = 0; i < j->count && !failed; i++) {
        if (now && (f->fault == NO_TAKE || (f->fault == HALF_TAKE && i > 0))) {
            f->fired = 1;
            break;
        }
        j->product[i].take(j->product[i].user, i, j->c[i], ldc);
    }
    for (i = 0; i < j->count; i++) { /* nobody may look any more */
        memset(j->c[i], 0x7f, (size_t)j->product[i].m * ldc * sizeof *j->c[i]);
        free(j->c[i]);
        free(j->a[i]);
    }
    j->used = 0;
    f->account.waits++;
    return leave(f, failed ? WNPU_E_ACCEL : WNPU_OK);
}

static int fake_health(void *self)
{
    fake *f = enter(self);
    if (f->health == WNPU_ACCEL_SUSPECT && f->rests-- <= 0) {
        f->health = WNPU_ACCEL_PROBE;
    }
    return leave(f, f->health);
}

static int fake_probe(void *self, int64_t deadline_ns, wnpu_error *error)
{
    fake *f = enter(self);
    size_t i;
    (void)deadline_ns;
    accel_rule(f, f->health == WNPU_ACCEL_PROBE, "probe() is for PROBE");
    for (i = 0; i < MAX_FLIGHT; i++) {
        accel_rule(f, !f->job[i].used, "no probe in flight");
    }
    if (f->probe_fails-- > 0) {
        f->health = WNPU_ACCEL_SUSPECT;
        return leave(f, er_set(error, WNPU_E_ACCEL, "the fake still sleeps"));
    }
    f->health = WNPU_ACCEL_OK;
    return leave(f, WNPU_OK);
}

static void fake_distrust(void *self, const char *reason)
{
    fake *f = enter(self);
    accel_rule(f, reason != NULL && reason[0] != '\0', "distrust has a reason");
    accel_rule(f, f->fault >= FLIP && f->fault <= STALE && f->fired, "distrust without cause");
    f->health = WNPU_ACCEL_SUSPECT;
    leave(f, 0);
}

static int fake_account(void *self, wnpu_accel_account *account)
{
    fake *f = enter(self);
    uint32_t size = account->struct_size;
    *account = f->account;
    account->struct_size = size;
    return leave(f, WNPU_OK);
}

static fake *fake_new(void)
{
    fake *f = calloc(1, sizeof *f);
    f->seam.struct_size = (uint32_t)sizeof f->seam;
    f->seam.self = f;
    f->seam.describe = fake_describe;
    f->seam.resident = fake_resident;
    f->seam.release = fake_release;
    f->seam.submit = fake_submit;
    f->seam.wait = fake_wait;
    f->seam.health = fake_health;
    f->seam.probe = fake_probe;
    f->seam.distrust = fake_distrust;
    f->seam.account = fake_account;
    f->flight = 2;
    f->chain = 8;
    f->bit = 32;
    return f;
}

static void fake_shape(fake *f, uint32_t m, uint32_t n, uint32_t k, uint32_t group)
{
    wnpu_accel_shape *s = &f->shapes[f->n_shapes++];
    memset(s, 0, sizeof *s);
    s->m = m;
    s->n = n;
    s->k = k;
    s->group = group;
    s->resident_bytes = 64 * (((uint64_t)n * k + 63) / 64);
}

static void fake_end(fake *f)
{
    size_t i, left = 0;
    for (i = 0; i < f->n_weights; i++) {
        left += f->weight[i].data != NULL;
        free(f->weight[i].data);
    }
    T_CHECK(left == 0 && f->locked == 0, "%d weights are left", (int)left);
    T_CHECK(f->broken == 0, "%d rules were broken", f->broken);
    T_CHECK(f->seam.in_use == 0, "the turn was not given back");
    free(f);
}

/* ---- a window, with and without ---- */

static wnpu_model *model;
static float accel_window[ML_SPAN];

static void make_window(void)
{
    toy_options o = toy_small();
    wnpu_error error;
    size_t size = 0, i;
    uint32_t s = 5;
    unsigned char *file;
    o.seed = 11;
    o.state = 32;
    file = toy_model(&o, &size);
    if (wnpu_model_open_memory(&model, file, size, NULL, &error) != WNPU_OK) {
        printf("toy model: %s\n", error.message);
        exit(1);
    }
    free(file);
    for (i = 0; i < ML_SPAN; i++) {
        double t = (double)i / 16000;
        accel_window[i] = (float)(0.3 * sin(t * 1100 * (1 + 0.2 * sin(t * 3))) * (sin(t * 4) > 0) +
                                  0.01 * ((double)draw(&s) / 8388608.0 - 1));
    }
}

static int accel_isa = WNPU_ISA_AUTO;

static wnpu_session *session_on(fake *f, unsigned threads, int use, int required)
{
    wnpu_config c;
    wnpu_session *s = NULL;
    wnpu_error error;
    int code;
    wnpu_config_init(&c, sizeof c);
    c.threads = threads;
    c.isa = accel_isa;
    c.result_bytes = 1 << 16;
    c.accel = f != NULL ? &f->seam : NULL;
    c.accel_use = (uint32_t)use;
    c.require_accel = (uint32_t)required;
    code = wnpu_session_open(&s, model, &c, NULL, 0, &error);
    T_CHECK(code == WNPU_OK || required, "%s", error.message);
    T_CHECK(code == WNPU_OK || error.message[0] != '\0', "a refusal has a reason");
    return s;
}

/* All that one window leaves for the decoder. */
typedef struct state {
    uint64_t x, cross;
} state;

static uint64_t fnv(uint64_t h, const void *data, size_t size)
{
    const unsigned char *p = data;
    size_t i;
    for (i = 0; i < size; i++) {
        h = (h ^ p[i]) * 1099511628211u;
    }
    return h;
}

static state encode(wnpu_session *s)
{
    const wnpu_model *m = model;
    state to = {14695981039346656037u, 14695981039346656037u};
    size_t l, n;
    memcpy(s->run.audio.samples, accel_window, sizeof accel_window);
    s->run.audio.written = sizeof accel_window / sizeof *accel_window;
    encode_window(&s->run, ML_FRAMES);
    to.x = fnv(to.x, s->run.engine.x, (size_t)m->n_audio_ctx * m->n_audio_state * sizeof(float));
    for (l = 0; l < m->n_text_layer; l++) {
        const en_heads *h = &s->run.decoder.cross[l];
        n = h->heads * h->keys;
        to.cross = fnv(to.cross, h->k, n * h->hd);
        to.cross = fnv(to.cross, h->v, n * h->hd);
        to.cross = fnv(to.cross, h->k_correction, n * sizeof *h->k_correction);
        to.cross = fnv(to.cross, h->k_scale, n * sizeof(float));
        to.cross = fnv(to.cross, h->v_log2, n * sizeof(float));
    }
    return to;
}

static int accel_same(state a, state b)
{
    return a.x == b.x && a.cross == b.cross;
}

static state on_cpu(void)
{
    static state answer;
    static int known;
    if (!known) {
        wnpu_session *s = session_on(NULL, 2, 0, 0);
        answer = encode(s);
        wnpu_session_close(s);
        known = 1;
    }
    return answer;
}

static wnpu_accel_stats stats_of(wnpu_session *s)
{
    wnpu_accel_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    T_CHECK(wnpu_get_accel_stats(s, &stats) == WNPU_OK, "stats");
    return stats;
}

static wnpu_accel_stage stage_of(wnpu_session *s, size_t i)
{
    wnpu_accel_stage stage;
    memset(&stage, 0, sizeof stage);
    stage.struct_size = sizeof stage;
    T_CHECK(wnpu_get_accel_stage(s, i, &stage) == WNPU_OK, "stage %d", (int)i);
    return stage;
}

/* Multiply-accumulates of a window's products, from the shapes of the layers. */
static uint64_t products_macs(void)
{
    uint64_t d = model->n_audio_state, t = 1500, layers = model->n_audio_layer;
    return 3000 * 240 * d + t * 3 * d * d + layers * t * 12 * d * d +
           model->n_text_layer * t * 2 * d * d;
}

static uint64_t attention_macs(void)
{
    return (uint64_t)2 * 1500 * 1500 * model->n_audio_state * model->n_audio_layer;
}

/* ---- tests ---- */

static void unpacks(void)
{
    size_t i, checked = 0;
    unsigned stage;
    for (i = 0; i < np_n_weights(model); i++) {
        const gm_weight *w = np_source(model, i, &stage);
        int8_t *whole = malloc((size_t)w->n * w->k), *part = malloc((size_t)w->n * w->k);
        uint32_t n, k, seed = (uint32_t)i, n0 = draw(&seed) % w->n, k0 = draw(&seed) % w->k;
        for (n = 0; n < w->n; n++) { /* the packed form by its definition */
            for (k = 0; k < w->k; k++) {
                whole[n * w->k + k] =
                    w->packed[((n / 16 * (size_t)w->k4 + k / 4) * 16 + n % 16) * 4 + k % 4];
            }
        }
        np_unpack_tile(part, w, n0, w->n - n0, k0, w->k - k0);
        for (n = n0; n < w->n; n++) {
            T_CHECK(memcmp(part + (n - n0) * (w->k - k0), whole + n * w->k + k0, w->k - k0) == 0,
                    "weight %d, row %u", (int)i, n);
        }
        checked++;
        free(whole);
        free(part);
    }
    T_CHECK(checked == 2 + 4 * 2 + 2, "all weights");
}

static void sums(void)
{
    int32_t c[96];
    int8_t a[96];
    uint32_t r[96], seed = 3, sum32, sum8;
    size_t i, n;
    int set;
    np_randomise(r, 96);
    for (i = 0; i < 96; i++) {
        T_CHECK((r[i] & 1) == 1, "r is odd");
        c[i] = (int32_t)(draw(&seed) << 8 | (draw(&seed) & 255));
        a[i] = (int8_t)((int)(draw(&seed) % 255) - 127);
    }
    for (n = 16; n <= 96; n += 16) {
        sum32 = sum8 = 0;
        for (i = 0; i < n; i++) {
            sum32 += (uint32_t)c[i] * r[i];
            sum8 += (uint32_t)a[i] * r[i];
        }
        for (set = WNPU_ISA_SCALAR; set < CP_ISAS; set++) {
            if (wnpu_isa_available((wnpu_isa)set)) {
                const op_kernels *op = op_select((wnpu_isa)set);
                T_CHECK(op->dot32(c, r, n) == sum32, "int32, isa %d, %d", set, (int)n);
                T_CHECK(op->dot8(a, r, n) == sum8, "int8, isa %d, %d", set, (int)n);
            }
        }
    }
}

static uint32_t chunks_seen[NP_CHUNKS + 1];

/* Shapes of every kind: whole products, parts along each side, odd sizes, several groups, one job
 * or several, one product in a job or many, one chunk or many. */
static void random_shapes(fake *f, uint32_t seed)
{
    static const uint32_t ms[] = {96, 200, 333, 512, 768, 1536, 3000};
    static const uint32_t ns[] = {16, 40, 64, 128, 200, 256, 512};
    static const uint32_t ks[] = {30, 64, 100, 192, 240, 256, 512};
    uint32_t i, count = 1 + draw(&seed) % 4, groups = 1 + draw(&seed) % 2;
    for (i = 0; i < count; i++) {
        fake_shape(f, ms[draw(&seed) % 7], ns[draw(&seed) % 7], ks[draw(&seed) % 7],
                   draw(&seed) % groups);
        if (draw(&seed) % 4 > 0) { /* cheap submissions make for many chunks */
            f->shapes[i].cost_us = 1e-3 * (1 << draw(&seed) % 20);
            f->shapes[i].chained_us = 0.7 * f->shapes[i].cost_us;
        }
    }
    f->flight = 1 + draw(&seed) % 4;
    f->chain = 1 + draw(&seed) % 12;
    f->seed = seed;
}

static void same_bytes(void)
{
    uint32_t seed, counts = 0;
    for (seed = 1; seed <= 36; seed++) {
        fake *f = fake_new();
        wnpu_session *s;
        wnpu_accel_stats stats;
        random_shapes(f, seed);
        s = session_on(f, 1 + seed % 3, WNPU_ACCEL_ALL, 1);
        chunks_seen[s->run.bridge.plan.chunks]++;
        T_CHECK(accel_same(encode(s), on_cpu()), "shapes %u: another answer", seed);
        stats = stats_of(s);
        T_CHECK(stats.fallbacks == 0 && stats.windows == 1 && stats.windows_without == 0 &&
                stats.first_reason[0] == '\0', "shapes %u: %u fallbacks, %s", seed,
                stats.fallbacks, stats.first_reason);
        T_CHECK(stats.accel_macs == products_macs() && f->macs == products_macs() &&
                stats.macs == products_macs() + attention_macs(), "shapes %u: the account", seed);
        wnpu_session_close(s);
        fake_end(f);
    }
    for (seed = 1; seed <= NP_CHUNKS; seed++) {
        counts += chunks_seen[seed] > 0;
    }
    T_CHECK(counts >= 3 && chunks_seen[1] > 0, "only %u numbers of chunks", counts);
}

/* Whatever happens, and whenever: the same bytes, a reason, and all is given back. */
static void accidents(void)
{
    uint32_t seed, fired = 0, seen[FAULTS] = {0};
    for (seed = 1; seed <= 60; seed++) {
        fake *f = fake_new();
        wnpu_session *s;
        wnpu_accel_stats stats;
        random_shapes(f, seed);
        f->fault = 1 + (int)(seed % (FAULTS - 1));
        f->at = 1 + draw(&f->seed) % 24;
        s = session_on(f, 1 + seed % 3, WNPU_ACCEL_ALL, 0);
        T_CHECK(accel_same(encode(s), on_cpu()), "seed %u, fault %d at %d: another answer", seed,
                f->fault, (int)f->at);
        stats = stats_of(s);
        /* Taking half a job is only possible where it has two. */
        T_CHECK(f->fired == (stats.fallbacks > 0) ||
                (f->fault == HALF_TAKE && stats.fallbacks == 0), "seed %u, fault %d: fired %d, "
                "%u fallbacks", seed, f->fault, f->fired, stats.fallbacks);
        T_CHECK((stats.fallbacks > 0) == (stats.first_reason[0] != '\0'), "seed %u: reason %s",
                seed, stats.first_reason);
        T_CHECK((f->fault >= FLIP && f->fault <= STALE && f->fired) == (stats.wrong > 0),
                "seed %u: %u wrong", seed, stats.wrong);
        T_CHECK(stats.macs == products_macs() + attention_macs() &&
                (f->fired ? stats.accel_macs <= products_macs()
                          : stats.accel_macs == products_macs()), "seed %u: account", seed);
        fired += (uint32_t)f->fired;
        seen[f->fault] += (uint32_t)f->fired;
        /* The next window finds it well again. */
        f->health = WNPU_ACCEL_OK;
        f->at = 0;
        T_CHECK(accel_same(encode(s), on_cpu()), "seed %u: another answer afterwards", seed);
        wnpu_session_close(s);
        fake_end(f);
    }
    T_CHECK(fired >= 30, "only %u accidents happened", fired);
    for (seed = 1; seed < FAULTS; seed++) {
        T_CHECK(seen[seed] >= 1, "fault %u happened %u times", seed, seen[seed]);
    }
}

/* One wrong bit, each of the 32, in every stage: found, and only its rows are computed anew. */
static void every_bit(void)
{
    uint32_t bit, chunks = 0;
    for (bit = 0; bit < 32; bit++) {
        fake *f = fake_new();
        wnpu_session *s;
        wnpu_accel_stats stats;
        uint64_t lost = 0;
        size_t i;
        fake_shape(f, 512, 256, 256, 0);
        f->shapes[0].cost_us = 1000.0;
        f->shapes[0].chained_us = bit % 2 == 0 ? 1.0 : 1000.0;
        f->fault = FLIP;
        f->bit = bit;
        f->at = 1 + bit % 10;
        f->seed = bit * 77777;
        s = session_on(f, 1, WNPU_ACCEL_ALL, 0);
        T_CHECK(accel_same(encode(s), on_cpu()), "bit %u", bit);
        stats = stats_of(s);
        T_CHECK(stats.wrong == 1 && f->fired, "bit %u: %u wrong", bit, stats.wrong);
        for (i = 0; i < NP_STAGES; i++) {
            lost += stage_of(s, i).fallback_macs;
        }
        T_CHECK(strstr(stats.first_reason, "checksum") != NULL && lost > 0 &&
                stats.accel_macs + lost == products_macs(), "bit %u: %s", bit, stats.first_reason);
        chunks |= 1u << s->run.bridge.plan.chunks;
        wnpu_session_close(s);
        fake_end(f);
    }
    T_CHECK(chunks == (1u << 1 | 1u << 3), "one chunk and three: %x", chunks);
}

/* The way back: rest, probe, use. */
static void probing(void)
{
    fake *f = fake_new();
    wnpu_session *s;
    wnpu_accel_stats stats;
    int i;
    fake_shape(f, 512, 128, 64, 0);
    f->fault = FAIL_WAIT;
    f->at = 3;
    f->rests = 3;   /* asked at the end of a window too */
    f->probe_fails = 1;
    s = session_on(f, 2, WNPU_ACCEL_ALL, 0);
    for (i = 0; i < 6; i++) {
        T_CHECK(accel_same(encode(s), on_cpu()), "window %d", i);
    }
    stats = stats_of(s);
    T_CHECK(stats.windows == 6 && stats.probes == 2 && stats.windows_without >= 2 &&
            stats.windows_without <= 4 && stats.health == WNPU_ACCEL_OK,
            "%u windows, %u without, %u probes, health %d", stats.windows, stats.windows_without,
            stats.probes, stats.health);
    T_CHECK(strcmp(stats.first_reason, "the fake does not finish") == 0, "%s",
            stats.first_reason);
    T_CHECK(stats.macs == 6 * (products_macs() + attention_macs()), "account");
    f->health = WNPU_ACCEL_OFF;
    f->submits = 0;
    T_CHECK(accel_same(encode(s), on_cpu()) && f->submits == 0, "off is left alone");
    wnpu_session_close(s);
    fake_end(f);
}

static void accel_memory(void)
{
    wnpu_config c;
    wnpu_error error;
    wnpu_accel_info info;
    uint64_t whole;
    uint32_t part;
    fake *f = fake_new();
    wnpu_session *s;
    fake_shape(f, 512, 128, 64, 0);
    fake_shape(f, 512, 128, 256, 0);
    wnpu_config_init(&c, sizeof c);
    c.threads = 2;
    c.accel_use = WNPU_ACCEL_ALL;
    T_CHECK(wnpu_session_accel_bytes(model, &c, NULL, &error) == 0 && error.code == WNPU_OK,
            "nothing without an accelerator");
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    info.n_shapes = f->n_shapes;
    info.shapes = f->shapes;
    info.max_chain = f->chain;
    whole = wnpu_session_accel_bytes(model, &c, &info, &error);
    c.accel = &f->seam;
    T_CHECK(whole > 0 && wnpu_session_accel_bytes(model, &c, NULL, &error) == whole,
            "told from the shapes alone");
    s = session_on(f, 2, WNPU_ACCEL_ALL, 1);
    T_CHECK(f->locked == whole && stats_of(s).resident_bytes == whole, "%llu promised, %llu taken",
            (unsigned long long)whole, (unsigned long long)f->locked);
    wnpu_session_close(s);
    for (part = 0; part < 8; part++) { /* too little: some weights stay the CPU's */
        wnpu_accel_stats stats;
        f->limit = 1 + whole * part / 8;
        s = session_on(f, 2, WNPU_ACCEL_ALL, 0);
        T_CHECK(f->locked <= f->limit && accel_same(encode(s), on_cpu()), "limit %u/8", part);
        stats = stats_of(s);
        T_CHECK(stats.fallbacks > 0 && strcmp(stats.first_reason, "the fake is full") == 0 &&
                stats.accel_macs < products_macs() && (part == 0) == (stats.accel_macs == 0),
                "limit %u/8: %u fallbacks, %s", part, stats.fallbacks, stats.first_reason);
        wnpu_session_close(s);
        T_CHECK(f->locked == 0, "all is given back");
        T_CHECK(session_on(f, 2, WNPU_ACCEL_ALL, 1) == NULL && f->locked == 0, "required");
    }
    fake_end(f);
}

/* A block of the size that was told, and not a byte beyond it. */
static void exact_size(void)
{
    uint32_t seed;
    for (seed = 100; seed < 106; seed++) {
        fake *f = fake_new();
        wnpu_config c;
        wnpu_error error;
        wnpu_session *s = NULL;
        size_t size, i, touched = 0;
        unsigned char *block, *opened;
        random_shapes(f, seed);
        wnpu_config_init(&c, sizeof c);
        c.threads = 2;
        c.accel = &f->seam;
        c.accel_use = WNPU_ACCEL_ALL;
        size = wnpu_session_size(model, &c, &error);
        block = aligned_alloc(64, size + 64);
        opened = malloc(size);
        memset(block, 0, size);
        memset(block + size, 0xee, 64);
        T_CHECK(wnpu_session_open(&s, model, &c, block, size, &error) == WNPU_OK, "%s",
                error.message);
        memcpy(opened, block, size);
        T_CHECK(accel_same(encode(s), on_cpu()), "seed %u", seed);
        T_CHECK(memcmp(block + s->kept, opened + s->kept, size - s->kept) != 0, "nothing ran");
        T_CHECK(wnpu_reset(s) == WNPU_OK, "reset");
        for (i = s->kept; i < size; i++) {
            touched += block[i] != opened[i];
        }
        T_CHECK(touched == 0, "wnpu_reset() leaves %d bytes", (int)touched);
        T_CHECK(accel_same(encode(s), on_cpu()), "seed %u, after a reset", seed);
        wnpu_session_close(s);
        for (i = 0; i < 64; i++) {
            touched += block[size + i] != 0xee;
        }
        T_CHECK(touched == 0, "seed %u: a byte past the end", seed);
        free(opened);
        free(block);
        fake_end(f);
    }
}

static void which_use(void)
{
    wnpu_config c;
    wnpu_error error;
    wnpu_session *s;
    fake *f = fake_new();
    fake_shape(f, 1536, 256, 256, 0);
    f->shapes[0].cost_us = f->shapes[0].chained_us = 1e9;
    accel_isa = WNPU_ISA_SCALAR; /* else a toy is not worth the calls */
    s = session_on(f, 2, WNPU_ACCEL_FASTER, 0);
    T_CHECK(accel_same(encode(s), on_cpu()) && f->n_weights == 0 && f->submits == 0 &&
            stats_of(s).fallbacks == 0, "a slow accelerator is left alone");
    wnpu_session_close(s);
    T_CHECK(session_on(f, 2, WNPU_ACCEL_FASTER, 1) == NULL, "required, but nothing would run");
    wnpu_config_init(&c, sizeof c);
    c.accel = &f->seam;
    c.isa = accel_isa;
    T_CHECK(wnpu_session_accel_bytes(model, &c, NULL, &error) == 0 && error.code == WNPU_OK,
            "nothing would run");
    f->shapes[0].cost_us = f->shapes[0].chained_us = 0.001;
    s = session_on(f, 2, WNPU_ACCEL_FASTER, 1);
    T_CHECK(accel_same(encode(s), on_cpu()) && stats_of(s).accel_macs == products_macs(),
            "a fast one does all");
    wnpu_session_close(s);
    /* One kernel is good at one thing only. */
    fake_shape(f, 1536, 192, 64, 1);
    f->shapes[0].cost_us = f->shapes[0].chained_us = 1e9;
    f->shapes[1].cost_us = f->shapes[1].chained_us = 0.001;
    s = session_on(f, 2, WNPU_ACCEL_FASTER, 0);
    T_CHECK(accel_same(encode(s), on_cpu()) && stats_of(s).accel_macs > 0, "the better of two");
    wnpu_session_close(s);
    accel_isa = WNPU_ISA_AUTO;
    fake_end(f);
}

/* More in flight and longer chains mean fewer waits; a layer takes a handful. */
static void waits(void)
{
    fake *f = fake_new();
    wnpu_session *s;
    uint64_t submits;
    size_t i;
    fake_shape(f, 1536, 256, 256, 0);
    s = session_on(f, 2, WNPU_ACCEL_ALL, 1);
    (void)encode(s);
    submits = f->submits;
    for (i = NP_QKV; i <= NP_FC2; i++) {
        wnpu_accel_stage g = stage_of(s, i);
        T_CHECK(i == NP_ATTEND ? g.jobs == 0 && !g.planned && g.macs == attention_macs()
                               : g.jobs <= 2u * NP_CHUNKS && g.jobs == g.submissions &&
                                 g.jobs == g.waits && g.planned, "%s: %d jobs", g.name,
                (int)g.jobs);
    }
    T_CHECK(submits == f->waits && submits <= 2 * 4 * NP_CHUNKS + 3 * NP_CHUNKS, "%d jobs",
            (int)submits);
    wnpu_session_close(s);
    f->shapes[0].m = 100;
    f->chain = 1;
    s = session_on(f, 2, WNPU_ACCEL_ALL, 1);
    f->submits = 0;
    T_CHECK(accel_same(encode(s), on_cpu()) && f->submits > 8 * submits, "one product a job");
    wnpu_session_close(s);
    fake_end(f);
}

/* A run over two windows and a bit. */
static int accel_transcribe(wnpu_session *s, life_bytes *t)
{
    static float audio[16000 * 64];
    wnpu_params p;
    wnpu_audio a;
    int code;
    size_t i;
    for (i = 0; i < sizeof audio / sizeof audio[0]; i++) {
        audio[i] = accel_window[i % ML_SPAN];
    }
    wnpu_params_init(&p, sizeof p);
    p.beam = 1;
    p.max_tokens = 8;
    p.timestamps = 0;
    p.no_speech_threshold = 2;
    p.vad = 0; /* the toy's sound is no speech */
    wnpu_audio_init(&a, sizeof a);
    a.data = audio;
    a.frames = sizeof audio / sizeof audio[0];
    code = wnpu_transcribe(s, &p, &a);
    *t = life_written(s, WNPU_FORMAT_JSON);
    return code;
}

/* How often a run's results name a device. What is left without those members must be its JSON. */
static size_t devices_named(const wnpu_session *s, const char *member, const life_bytes *json)
{
    life_bytes all = {NULL, 0};
    wnpu_write_options o;
    size_t count = 0, length = strlen(member);
    char *at;
    wnpu_write_options_init(&o, sizeof o);
    o.format = WNPU_FORMAT_JSON;
    o.device = 1;
    T_CHECK(wnpu_write_with(s, &o, NULL, life_grow, &all) == WNPU_OK, "written");
    while ((at = strstr(all.bytes, member)) != NULL) {
        memmove(at, at + length, strlen(at + length) + 1);
        count++;
    }
    T_CHECK(strncmp(all.bytes, json->bytes, json->n) == 0, "nothing else differs");
    free(all.bytes);
    return count;
}

static void accel_runs(void)
{
    fake *f = fake_new();
    wnpu_session *s = session_on(NULL, 2, 0, 0);
    life_bytes cpu, npu, part;
    wnpu_accel_stats stats;
    wnpu_accel_stage stage;
    T_CHECK(accel_transcribe(s, &cpu) == WNPU_OK && wnpu_segment_count(s) >= 3, "on the CPU");
    stats = stats_of(s);
    stage.struct_size = sizeof stage;
    T_CHECK(stats.windows == 0 && stats.name[0] == '\0' &&
            wnpu_get_accel_stage(s, 0, &stage) == WNPU_E_ARGUMENT, "no account");
    T_CHECK(devices_named(s, ", \"device\": \"cpu\"", &cpu) == wnpu_segment_count(s), "the CPU");
    wnpu_session_close(s);
    fake_shape(f, 512, 256, 256, 0);
    s = session_on(f, 2, WNPU_ACCEL_ALL, 1);
    T_CHECK(accel_transcribe(s, &npu) == WNPU_OK && npu.n == cpu.n &&
            memcmp(npu.bytes, cpu.bytes, cpu.n) == 0, "the same JSON");
    stats = stats_of(s);
    T_CHECK(stats.windows == 3 && stats.accel_macs == 3 * products_macs() &&
            strcmp(stats.name, "fake") == 0 && stats.chunk_rows > 0, "account of three windows");
    T_CHECK(wnpu_get_accel_stage(s, NP_STAGES, &stage) == WNPU_E_ARGUMENT, "eight stages");
    T_CHECK(devices_named(s, ", \"device\": \"accelerator\"", &npu) == wnpu_segment_count(s),
            "the accelerator, for each segment");
    free(npu.bytes);
    /* Required, and it fails in the second window: that window's text is kept, then E_ACCEL. */
    f->fault = FAIL_WAIT;
    f->at = f->waits + f->waits / 2;
    T_CHECK(accel_transcribe(s, &part) == WNPU_E_ACCEL && f->fired, "required");
    T_CHECK(strstr(wnpu_session_error(s), "the fake does not finish") != NULL, "%s",
            wnpu_session_error(s));
    T_CHECK(wnpu_segment_count(s) == 2, "%d segments are kept", (int)wnpu_segment_count(s));
    free(part.bytes);
    f->health = WNPU_ACCEL_OK;
    f->at = 0;
    T_CHECK(accel_transcribe(s, &npu) == WNPU_OK && npu.n == cpu.n &&
            memcmp(npu.bytes, cpu.bytes, cpu.n) == 0, "usable afterwards");
    T_CHECK(stats_of(s).fallbacks == 0, "each run has its own account");
    free(npu.bytes);
    free(cpu.bytes);
    wnpu_session_close(s);
    fake_end(f);
}

static void cancelling(void)
{
    uint64_t at, all;
    fake *f = fake_new();
    wnpu_session *s;
    fake_shape(f, 512, 128, 64, 0);
    f->shapes[0].cost_us = f->shapes[0].chained_us = 0.001;
    s = session_on(f, 2, WNPU_ACCEL_ALL, 1);
    (void)encode(s);
    all = f->waits;
    T_CHECK(all > 8, "%d waits", (int)all);
    for (at = 1; at <= 2 * all; at += 1 + all / 6) {
        life_bytes t;
        size_t i, used = 0;
        f->fired = 0;
        f->waits = 0;
        f->at = at;
        f->cancel_at = s;
        T_CHECK(accel_transcribe(s, &t) == WNPU_E_CANCELLED && f->fired, "cancelled at wait %d",
                (int)at);
        for (i = 0; i < MAX_FLIGHT; i++) {
            used += (size_t)f->job[i].used;
        }
        T_CHECK(used == 0 && f->seam.in_use == 0, "a job was left in flight");
        free(t.bytes);
        f->cancel_at = NULL;
        f->at = 0;
    }
    __atomic_store_n(&s->cancel, 0, __ATOMIC_RELAXED);
    T_CHECK(accel_same(encode(s), on_cpu()), "usable afterwards");
    wnpu_session_close(s);
    fake_end(f);
}

#ifndef WNPU_NO_THREADS
static void *share(void *session)
{
    int i;
    long bad_ones = 0;
    for (i = 0; i < 4; i++) {
        bad_ones += !accel_same(encode(session), on_cpu());
    }
    return (void *)bad_ones;
}

static void sharing(void)
{
    fake *f = fake_new();
    wnpu_session *s[3];
    pthread_t thread[3];
    uint64_t with = 0;
    size_t i;
    (void)on_cpu();
    fake_shape(f, 512, 256, 256, 0);
    for (i = 0; i < 3; i++) {
        s[i] = session_on(f, 1, WNPU_ACCEL_ALL, i == 0);
    }
    for (i = 0; i < 3; i++) {
        pthread_create(&thread[i], NULL, share, s[i]);
    }
    for (i = 0; i < 3; i++) {
        void *bad_ones;
        wnpu_accel_stats stats;
        pthread_join(thread[i], &bad_ones);
        stats = stats_of(s[i]);
        T_CHECK(bad_ones == NULL, "session %d: another answer", (int)i);
        T_CHECK(stats.windows == 4 && (i > 0 || stats.windows_without == 0), "session %d: %u "
                "windows without", (int)i, stats.windows_without);
        with += stats.windows - stats.windows_without;
    }
    T_CHECK(with >= 4, "%d windows had the accelerator", (int)with);
    for (i = 0; i < 3; i++) {
        wnpu_session_close(s[i]);
    }
    fake_end(f);
}
#endif

static void strangers(void)
{
    wnpu_config c;
    wnpu_error error = {0, ""};
    wnpu_session *s = NULL;
    wnpu_accel_info info;
    fake *f = fake_new();
    wnpu_config_init(&c, sizeof c);
    c.accel = &f->seam;
#define REFUSED(status, change)                                                                   \
    change;                                                                                       \
    T_CHECK(wnpu_session_open(&s, model, &c, NULL, 0, &error) == (status) && s == NULL &&         \
            error.message[0] != '\0', #change ": %d %s", error.code, error.message)
    REFUSED(WNPU_E_VERSION, f->seam.struct_size = (uint32_t)sizeof f->seam - 8);
    f->seam.struct_size = (uint32_t)sizeof f->seam;
    REFUSED(WNPU_E_ARGUMENT, f->seam.distrust = NULL);
    f->seam.distrust = fake_distrust;
    REFUSED(WNPU_E_UNSUPPORTED, c.compute = WNPU_COMPUTE_FLOAT);
    c.compute = WNPU_COMPUTE_INT8;
    REFUSED(WNPU_E_ARGUMENT, c.accel_use = 2);
    c.accel_use = WNPU_ACCEL_ALL;
    REFUSED(WNPU_E_ACCEL, c.require_accel = 1); /* it has no shapes */
    c.require_accel = 0;
    T_CHECK(wnpu_session_open(&s, model, &c, NULL, 0, &error) == WNPU_OK, "no shapes: %s",
            error.message);
    T_CHECK(accel_same(encode(s), on_cpu()) && stats_of(s).fallbacks == 0, "no shapes");
    wnpu_session_close(s);
    memset(&info, 0, sizeof info);
    info.struct_size = 2;
    T_CHECK(wnpu_session_accel_bytes(model, &c, &info, &error) == 0 &&
            error.code == WNPU_E_VERSION, "a strange info");
    f->seam.struct_size += 64; /* a newer author */
    fake_shape(f, 600, 300, 300, 0);
    f->flight = f->chain = 0;  /* who says nothing about these does one at a time */
    f->shapes[0].resident_bytes = 90000;
    T_CHECK(wnpu_session_open(&s, model, &c, NULL, 0, &error) == WNPU_OK, "%s", error.message);
    f->flight = f->chain = 1;
    T_CHECK(accel_same(encode(s), on_cpu()) && stats_of(s).accel_macs == products_macs(), "newer");
    wnpu_session_close(s);
    fake_end(f);
}

static void accel_tests(void)
{
    make_window();
    t_run("weights come out of their packed form", unpacks);
    t_run("checksums equal their definition", sums);
    t_run("the same bytes, whatever the shapes", same_bytes);
    t_run("the same bytes, whatever goes wrong", accidents);
    t_run("each wrong bit is found", every_bit);
    t_run("an accelerator that failed is probed and comes back", probing);
    t_run("its memory is known beforehand and kept to", accel_memory);
    t_run("the session's memory is exact and wiped", exact_size);
    t_run("what is slower there stays on the CPU", which_use);
    t_run("a handful of waits a layer", waits);
    t_run("whole runs, and accelerators that are required", accel_runs);
    t_run("cancelling", cancelling);
#ifndef WNPU_NO_THREADS
    t_run("sessions take turns", sharing);
#endif
    t_run("accelerators of other headers", strangers);
    wnpu_model_close(model);
}

#undef REFUSED
