/* Arena, thread pool, maths, float operators, logit rules, results: against slow references. */
#include "../lib/t.h"

/* ---- arena ---- */

static void core_arena(void)
{
    unsigned char block[1024] __attribute__((aligned(64)));
    ar_arena measure, real;
    void *a, *b;
    memset(&measure, 0, sizeof measure);
    memset(&real, 0, sizeof real);
    T_CHECK(ar_carve(&measure, 3, 5) == NULL && measure.used == 64, "measures in steps of 64");
    ar_carve(&measure, 65, 1);
    T_CHECK(measure.used == 192, "used %lu", (unsigned long)measure.used);
    real.base = block;
    real.size = measure.used;
    a = ar_carve(&real, 3, 5);
    b = ar_carve(&real, 65, 1);
    T_CHECK(a == block && b == block + 64 && real.used == measure.used, "same walk");
    T_CHECK(ar_carve(&real, 1, 1) == NULL, "no byte beyond the block");
    T_CHECK(ar_carve(&measure, SIZE_MAX / 2, 3) == NULL && measure.overflow, "overflow is seen");
    memset(&measure, 0, sizeof measure);
    ar_carve(&measure, SIZE_MAX - 5, 1);
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

static void core_pool(void)
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

typedef struct order_job {
    size_t index[10], n;
} order_job;

static void order_task(void *context, size_t index, unsigned worker)
{
    order_job *job = context;
    (void)worker;
    job->index[job->n++] = index;
}

/* host_for() runs the last lane first, which then takes what the others have. */
static void pool_order(void)
{
    static const size_t want[10] = {7, 8, 9, 0, 1, 2, 3, 4, 5, 6};
    static tp_pool p;
    int calls = 0, cancel = 0;
    size_t round, i;
    T_CHECK(tp_open(&p, 3, host_for, &calls, &cancel, NULL) == 0, "opens");
    for (round = 0; round < 2; round++) {
        order_job job = {{0}, 0};
        tp_run(&p, 10, order_task, &job);
        for (i = 0; i < 10; i++) {
            T_CHECK(job.index[i] == want[i], "%d. item is %d", (int)i, (int)job.index[i]);
        }
    }
    tp_close(&p);
}

enum { PARTS = 120, PART_ITEMS = 23 };

typedef struct parts_job {
    int seen[PARTS][PART_ITEMS];
    size_t part; /* that is under way */
    int bad, sleepy;
} parts_job;

static size_t part_size(size_t part)
{
    return part < PARTS ? 1 + part * 7 % PART_ITEMS : 0;
}

static void parts_task(void *context, size_t index, unsigned worker)
{
    parts_job *job = context;
    size_t part = index / TP_PART, item = index % TP_PART;
    (void)worker;
    if (part != job->part || item >= part_size(part)) {
        __atomic_store_n(&job->bad, 1, __ATOMIC_RELAXED);
        return;
    }
    __atomic_add_fetch(&job->seen[part][item], 1, __ATOMIC_RELAXED);
}

/* Plain reads and writes: the pool must order them. */
static size_t parts_items(void *context, size_t part)
{
    parts_job *job = context;
    struct timespec pause = {0, 500000};
    size_t i;
    for (i = 0; part > 0 && i < part_size(part - 1); i++) {
        job->bad |= job->seen[part - 1][i] != 1;
    }
    job->bad |= part != (part > 0 ? job->part + 1 : 0);
    job->part = part;
    if (job->sleepy && part % 8 == 7) {
        nanosleep(&pause, NULL); /* the others fall asleep meanwhile */
    }
    return part_size(part);
}

/* Parts follow each other, each once, with no item of two under way. */
static void pool_parts(void)
{
    unsigned threads;
    int host, calls = 0;
    for (host = 0; host < 2; host++) {
        for (threads = 1; threads <= 8; threads++) {
            static tp_pool p;
            int cancel = 0, round;
            T_CHECK(tp_open(&p, threads, host ? host_for : NULL, &calls, &cancel, NULL) == 0,
                    "opens");
            for (round = 0; round < 20; round++) {
                static parts_job job;
                memset(&job, 0, sizeof job);
                job.sleepy = round % 4 == 3;
                tp_run_parts(&p, parts_items, parts_task, &job);
                T_CHECK(!job.bad && job.part == PARTS, "%u threads, round %d: part %d", threads,
                        round, (int)job.part);
            }
            tp_close(&p);
        }
    }
}

/* ---- pages ---- */

static void *foreign_alloc(void *user, size_t size, size_t alignment)
{
    return ar_malloc(user, size, alignment);
}

/* The first byte from `at` on that is not `want`; n if all are. */
static size_t unlike(const unsigned char *memory, size_t at, size_t n, unsigned char want)
{
    while (at < n && memory[at] == want) {
        at++;
    }
    return at;
}

/* Memory that other memory follows, which is not to be touched. */
static void clears(unsigned threads, size_t used, size_t size, int whole, int foreign)
{
    const size_t room = size + 4096, sample = used + TP_SAMPLE < size ? used + TP_SAMPLE : size;
    wnpu_allocator allocator = ar_allocator(NULL);
    unsigned char *memory;
    tp_pool p;
    size_t at;
    allocator.alloc = foreign ? foreign_alloc : allocator.alloc;
    memory = allocator.alloc(NULL, room, AR_ALIGN);
    T_CHECK(memory != NULL && tp_open(&p, threads, NULL, NULL, NULL, NULL) == 0, "opens");
    memset(memory, 0xa5, room);
    (void)tp_zero(&p, &(tp_memory){&allocator, memory, used, size, whole});
    tp_close(&p);
    T_CHECK(unlike(memory, 0, used, 0xa5) == used, "what is used stays");
    T_CHECK(unlike(memory, size, room, 0xa5) == room, "what follows stays");
    at = unlike(memory, used, size, 0);
    T_CHECK(whole ? at == size : at >= sample, "%u threads, %lu bytes, whole %d: clear to %lu",
            threads, (unsigned long)size, whole, (unsigned long)at);
    if (foreign && !whole) {
        T_CHECK(unlike(memory, sample, size, 0xa5) == size, "a host's memory is left alone");
    }
    allocator.release(NULL, memory, room);
}

static void pages(void)
{
    static const size_t sizes[] = {1, TP_SAMPLE, AR_HUGE, 3 * AR_HUGE + 77, 9 * AR_HUGE};
    size_t i;
    unsigned n;
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (n = 0; n < 8; n++) {
            clears(n & 1 ? 3 : 1, sizes[i] > 100 ? 100 : 0, sizes[i], (n & 2) != 0, (n & 4) != 0);
        }
    }
}

/* ---- maths ---- */

/* From -limit to limit, against its definition. */
static double largest_gelu_error(void (*gelu)(mt_vec *v), double limit, double step)
{
    double largest = 0, x;
    for (x = -limit; x < limit; x += step) {
        mt_vec v;
        double f = (double)(float)x, want = 0.5 * f * erfc(-f / sqrt(2.0)), e;
        mt_vset(&v, (float)x);
        gelu(&v);
        e = fabs((double)v.v[0] - want);
        largest = e > largest ? e : largest;
    }
    return largest;
}

static void maths(void)
{
    const double gelu_error = largest_gelu_error(mt_vgelu, 12.0, 0.00173);
    const double short_error = largest_gelu_error(mt_vgelu_short, 8.0, 0.00137);
    double exp_error = 0, log_error = 0, exp2_error = 0, x;
    for (x = -87; x < 88; x += 0.00173) {
        double e = fabs((double)mt_exp1((float)x) / exp((double)(float)x) - 1);
        exp_error = e > exp_error ? e : exp_error;
    }
    for (x = 1e-12; x < 1e12; x *= 1.00173) {
        double want = log((double)(float)x), e = fabs((double)mt_log1((float)x) - want);
        e /= fabs(want) > 1 ? fabs(want) : 1;
        log_error = e > log_error ? e : log_error;
    }
    for (x = -120.0; x < 20.0; x += 0.00317) {
        double want = exp2((double)(float)x), e = fabs((double)mt_exp2_1((float)x) / want - 1.0);
        exp2_error = e > exp2_error ? e : exp2_error;
    }
    T_CHECK(exp2_error < 8e-5, "exp2 %g", exp2_error);
    T_CHECK(short_error < 5e-5, "short gelu %g", short_error);
    T_CHECK(mt_exp2_1(-1e30f) < 3e-38f && mt_exp2_1(-1e30f) > 0.0f, "exp2 of nothing");
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

static uint32_t core_seed = 1;

static float noise(float scale)
{
    core_seed = core_seed * 1664525u + 1013904223u;
    return ((float)(core_seed >> 8) / 8388608.0f - 1.0f) * scale;
}

/* Everything that an operator wrote, for comparison between instruction sets. */
enum { ONE_N = 1504, ONE_ROWS = 3, ONE_HEAD = 64 };

typedef struct core_one_answer {
    float norm[ONE_N], out[ONE_ROWS][ONE_N], blended[ONE_ROWS][ONE_HEAD];
    int32_t joined[2 * ONE_N];
    float log2[ONE_N], inverse[ONE_N], scale[ONE_ROWS], fine_scale, sum;
    int8_t q[ONE_ROWS][ONE_N], high[ONE_N], low[ONE_N];
    uint8_t weights[ONE_ROWS][ONE_N];
    op_online online[ONE_ROWS];
    float bias[ONE_N], scaled[ONE_N], softmax[ONE_N], dot;
    uint32_t index[100], size;
    size_t best, above;
    int8_t digit[ONE_N], second[ONE_N], first[ONE_N];
    float halves[ONE_N], blocks[5][ONE_N], logits[ONE_ROWS][ONE_N];
    int32_t sums[2];
} core_one_answer;

typedef struct one_question {
    float x[ONE_ROWS][ONE_N], w[ONE_N], b[ONE_N], key[ONE_N], value[ONE_N];
    int32_t acc[ONE_ROWS][ONE_N];
    float far; /* scale of a row of scores: 16 bits may not be enough for its exponents */
    size_t n;
    op_finish finish;
} one_question;

/* A row of each of ggml's types in blocks, whose halves are finite. */
static void ask_blocks(const op_kernels *op, const unsigned char *bytes, size_t n,
                       core_one_answer *o)
{
    static const uint32_t types[5][2] = {{2, 18}, {3, 20}, {6, 22}, {7, 24}, {8, 34}};
    unsigned char row[ONE_N / 32 * 34];
    size_t i, k;
    for (k = 0; k < 5; k++) {
        memcpy(row, bytes, sizeof row);
        for (i = 0; i < n / 32; i++) {
            row[i * types[k][1] + 1] &= 0xbf;
            row[i * types[k][1] + 3] &= 0xbf;
        }
        op->blocks(o->blocks[k], types[k][0], row, types[k][1], n);
    }
}

/* A row of a weight; sizes are not multiples of 16, and 0.012 makes some pass 127. */
static void ask_row(const op_kernels *op, const one_question *a, core_one_answer *o)
{
    const size_t n = a->n - 5;
    o->size = op->size(a->x[0], n);
    o->sums[0] = op->digits(o->digit, o->second, a->x[0], n, 0.012f);
    o->sums[1] = op->digits(o->first, NULL, a->x[1], n, 0.024f);
    op->from_f16(o->halves, (const unsigned char *)a->acc[0], n);
    ask_blocks(op, (const unsigned char *)a->acc[0], n / 32 * 32, o);
}

/* Rows of logits with all columns apart, one and none. */
static void ask_logits(const op_kernels *op, const one_question *a, const float *row_scale,
                       core_one_answer *o)
{
    const size_t n = ONE_N / OP_WIDE_MAX / 16 * 16;
    op_rest rest[ONE_ROWS] = {{0.7f, {0.3f, -1.1f, 0.01f, 5.0f}, OP_WIDE_MAX}, {-2.0f, {0.9f}, 1}};
    rest[2].common = 0.1f;
    op->complete(o->logits[0], ONE_N, a->acc[0], ONE_ROWS, n, row_scale, a->key, rest, a->b, n);
}

static void ask(const op_kernels *op, const one_question *a, core_one_answer *o)
{
    const float row_scale[ONE_ROWS] = {0.01f, 0.02f, 0.0004f};
    const float octaves[ONE_ROWS] = {2.5f, a->far, 0.1f};
    op_block block;
    int16_t exponents[ONE_ROWS * OP_KEYS];
    op_keys keys = {0};
    size_t r;
    memset(o, 0, sizeof *o);
    op->norm(o->norm, a->x[0], a->w, a->b, ONE_N);
    op->quantise(o->q[0], a->x[0], ONE_N, ONE_ROWS, ONE_N, o->scale);
    o->fine_scale = op->quantise_fine(o->high, o->low, a->x[0], ONE_N);
    memcpy(o->out, a->x, sizeof o->out);
    op->dequantise(o->out[0], ONE_N, a->acc[0], ONE_N, ONE_ROWS, ONE_N, row_scale, a->key, a->b,
                   a->finish);
    ask_logits(op, a, row_scale, o);
    memcpy(o->joined, a->acc[0], sizeof o->joined);
    op->join(o->joined, o->joined + ONE_N, ONE_N);
    op->value_scales(o->log2, o->inverse, a->value, a->n);
    keys.key = a->key;
    keys.value_log2 = o->log2;
    keys.value_inverse = o->inverse;
    for (r = 0; r < ONE_ROWS; r++) {
        o->online[r].top = r == 1 ? 750.0f : -1e30f; /* one row has seen a block before */
        o->online[r].sum = r == 1 ? 0.5f : 0.0f;
    }
    block.row = o->online;
    block.u = exponents;
    block.queries = NULL;
    block.query_scale = octaves;
    block.rows = ONE_ROWS;
    block.keys = &keys;
    block.n = a->n % (OP_KEYS + 1);
    op->exponents(&block, a->acc[0], ONE_N);
    op->weights(&block, o->weights[0], ONE_N);
    memcpy(o->blended, a->x, sizeof o->blended);
    op->blend(o->blended[0], ONE_HEAD, a->acc[0], ONE_N, ONE_ROWS, ONE_HEAD, o->online,
              (int)(a->n & 1));
    o->sum = op->sum_exp(a->x[0], a->n, 3.0f);
    o->best = op->argmax(a->x[0], a->n);
    o->above = op->above(o->index, 100, a->x[0], a->n / 9, a->n, 2.6f); /* or more */
    o->dot = op->dot_int8(a->x[0], o->q[1], ONE_N);
    memcpy(o->bias, a->x[1], sizeof o->bias);
    op->bias(o->bias, a->x[2], ONE_N, a->finish == OP_ADD ? NULL : a->b, a->finish);
    memcpy(o->scaled, a->x[2], sizeof o->scaled);
    op->scale(o->scaled, ONE_N, 0.37f);
    memcpy(o->softmax, a->x[0], sizeof o->softmax);
    op->softmax_float(o->softmax, a->n);
    ask_row(op, a, o);
}

enum { BLOCK_ROWS = 12, BLOCK_HEAD = 128 };

/* A block of keys and values of a head, packed queries, and what attention makes of them one step
 * after the other: exponents, weights, sums of values. */
typedef struct one_block {
    size_t n, hd, padded;
    char queries[BLOCK_ROWS * 1024];
    int8_t k[OP_KEYS * BLOCK_HEAD], packed[OP_KEYS * BLOCK_HEAD], v[OP_KEYS * BLOCK_HEAD];
    int32_t correction[OP_KEYS], acc[BLOCK_ROWS * OP_KEYS];
    int32_t sums[(BLOCK_ROWS + 1) * BLOCK_HEAD];
    float key[OP_KEYS], value[OP_KEYS], log2s[OP_KEYS], inverse[OP_KEYS], query[BLOCK_ROWS];
    uint8_t p[(BLOCK_ROWS + 1) * (OP_KEYS + GM_PAD)];
    char packed_p[BLOCK_ROWS * 2 * (OP_KEYS + GM_PAD)];
    int16_t u[BLOCK_ROWS * OP_KEYS];
    op_online row[BLOCK_ROWS];
    op_keys keys;
} one_block;

static void start_rows(op_online *row)
{
    size_t i;
    memset(row, 0, BLOCK_ROWS * sizeof *row);
    for (i = 0; i < BLOCK_ROWS; i++) {
        row[i].top = i == 1 ? 750.0f : -1e30f; /* one has seen a block before */
        row[i].sum = i == 1 ? 0.5f : 0.0f;
    }
}

static void fill_block(one_block *b, const op_kernels *op, const gm_kernels *gm, size_t n,
                       size_t hd, float scale)
{
    static int8_t q[BLOCK_ROWS * BLOCK_HEAD];
    size_t i;
    memset(b, 0, sizeof *b);
    b->n = n, b->hd = hd, b->padded = (n + 15) / 16 * 16;
    for (i = 0; i < OP_KEYS; i++) {
        b->key[i] = 0.02f + noise(0.01f);
        b->value[i] = i % 50 == 7 ? 0.0f : 0.02f + noise(0.01f);
    }
    for (i = 0; i < b->padded * hd; i++) {
        b->k[i] = (int8_t)noise(127);
        b->v[i] = i / 4 % (b->padded / 4) * 4 + i % 4 < n ? (int8_t)noise(127) : 0;
        q[i % (BLOCK_ROWS * hd)] = (int8_t)noise(127);
    }
    for (i = 0; i < b->padded; i++) {
        gm_pack_panel_row(b->packed, hd / 4, i, b->k + i * hd);
    }
    if (gm->correct != NULL) {
        gm->correct(b->correction, b->packed, hd / 4, b->padded / 16);
    }
    op->value_scales(b->log2s, b->inverse, b->value, b->padded);
    for (i = 0; i < BLOCK_ROWS; i++) {
        b->query[i] = scale * (1.0f + noise(0.5f));
    }
    gm->pack_a(b->queries, q, hd, BLOCK_ROWS, hd / 4);
    b->keys.packed = b->packed, b->keys.correction = b->correction, b->keys.k4 = hd / 4;
    b->keys.key = b->key, b->keys.value_log2 = b->log2s, b->keys.value_inverse = b->inverse;
}

static op_block block_of(const one_block *b, op_online *row, int16_t *u, size_t rows)
{
    op_block block;
    block.row = row;
    block.u = u;
    block.queries = b->queries;
    block.query_scale = b->query;
    block.rows = rows;
    block.keys = &b->keys;
    block.n = b->n;
    return block;
}

static void step_by_step(one_block *b, const op_kernels *op, const gm_kernels *gm)
{
    static uint16_t group[BLOCK_ROWS * OP_KEYS / 4], count[BLOCK_ROWS];
    const op_block block = block_of(b, b->row, b->u, BLOCK_ROWS);
    gm_product p = {0};
    gm_sparse sparse;
    sparse.group = group;
    sparse.n = count;
    start_rows(b->row);
    p.c = b->acc;
    p.ldc = OP_KEYS;
    p.a = b->queries;
    p.rows = BLOCK_ROWS;
    p.b = b->packed;
    p.k4 = p.pitch = b->hd / 4;
    p.correction = b->correction;
    p.panels = b->padded / 16;
    gm->tile(&p);
    op->exponents(&block, b->acc, OP_KEYS);
    op->weights(&block, b->p, gm_probs_stride(b->padded / 4));
    p.c = b->sums;
    p.ldc = b->hd;
    p.a = gm_pack_probs(gm, b->packed_p, b->p, BLOCK_ROWS, b->padded / 4);
    p.b = b->v;
    p.k4 = p.pitch = b->padded / 4;
    p.panels = b->hd / 16;
    gm_tile_probs(gm, &p, &sparse);
}

/* op->product() against the product and op->exponents(). The scale of the queries decides whether
 * exponents fit 16 bits. */
static void same_product(const op_kernels *op, const gm_kernels *gm, size_t n, size_t hd,
                         float scale, int within)
{
    static one_block b;
    static uint8_t p[2][BLOCK_ROWS * OP_KEYS];
    op_online row[2][BLOCK_ROWS];
    op_block block[2];
    fill_block(&b, op, gm, n, hd, scale);
    block[0] = block_of(&b, row[0], b.u, BLOCK_ROWS);
    block[1] = block_of(&b, row[1], b.u, BLOCK_ROWS);
    step_by_step(&b, op, gm);
    memset(p, 0, sizeof p);
    start_rows(row[0]);
    start_rows(row[1]);
    op->exponents(&block[0], b.acc, OP_KEYS);
    op->weights(&block[0], p[0], OP_KEYS);
    T_CHECK(op->product(&block[1]) == within, "%zu keys of %zu: 16 bits are enough", n, hd);
    if (within) {
        op->weights(&block[1], p[1], OP_KEYS);
        T_CHECK(memcmp(row[0], row[1], sizeof row[0]) == 0, "%zu keys of %zu: rows", n, hd);
        T_CHECK(memcmp(p[0], p[1], sizeof p[0]) == 0, "%zu keys of %zu: weights", n, hd);
    }
}

/* op->attend() of so many rows against all of these steps. */
static void same_attention(const op_kernels *op, const gm_kernels *gm, size_t n, size_t rows,
                           float scale, int within)
{
    static one_block b;
    static int16_t u[BLOCK_ROWS * OP_KEYS];
    int32_t sums[OP_ATTEND * OP_HEAD];
    op_online row[BLOCK_ROWS];
    op_block block;
    fill_block(&b, op, gm, n, OP_HEAD, scale);
    block = block_of(&b, row, u, rows);
    step_by_step(&b, op, gm);
    start_rows(row);
    T_CHECK(op->attend(&block, sums, b.v, b.padded / 4) == within,
            "%zu rows, %zu keys: 16 bits are enough", rows, n);
    if (within) {
        T_CHECK(memcmp(row, b.row, rows * sizeof row[0]) == 0, "%zu rows, %zu keys: rows", rows, n);
        T_CHECK(memcmp(sums, b.sums, rows * OP_HEAD * sizeof sums[0]) == 0,
                "%zu rows, %zu keys: sums of values", rows, n);
    }
}

static void same_products(const op_kernels *op, const gm_kernels *gm)
{
    size_t n;
    for (n = 1; n <= OP_KEYS && op->product != NULL; n += n < 130 ? 1 : 19) {
        same_product(op, gm, n, 64, 0.3f, 1);
        same_product(op, gm, n, n % 2 ? 32 : 80, 0.3f, 1);
    }
    if (op->product != NULL) {
        same_product(op, gm, OP_KEYS, 64, 200.0f, 0);
        same_product(op, gm, OP_KEYS, 64, 1e9f, 0);
    }
    for (n = 1; n <= OP_KEYS && op->attend != NULL; n += n < 130 ? 1 : 19) {
        same_attention(op, gm, n, 1, 0.3f, 1);
        same_attention(op, gm, n, 2, 0.3f, 1);
    }
    if (op->attend != NULL) {
        same_attention(op, gm, OP_KEYS, 1, 0.3f, 1);
        same_attention(op, gm, OP_KEYS, 1, 200.0f, 0);
        same_attention(op, gm, OP_KEYS, 2, 1e9f, 0);
    }
}

static void fill_question(one_question *a, int round)
{
    size_t r, i;
    a->n = round % 2 ? ONE_N : 1500 - (size_t)round * 7;
    a->finish = (op_finish)(round % 3);
    a->far = round % 3 == 0 ? 5.0f : round % 3 == 1 ? 100.0f : 1e7f;
    for (i = 0; i < ONE_N; i++) {
        a->w[i] = noise(1);
        a->b[i] = noise(1);
        a->key[i] = noise(1) * 0.01f + 0.02f;
        a->value[i] = i % 50 == 7 ? 0.0f : noise(1) * 0.01f + 0.02f;
        for (r = 0; r < ONE_ROWS; r++) {
            a->x[r][i] = round == 4 && r == 1 ? 0.0f : noise(3);
            a->acc[r][i] = (int32_t)noise(round % 4 == 3 ? 3e6f : 1e5f);
        }
    }
}

/* Rows of all widths, also such as do not fill vectors, some with a NaN, all with outliers. */
static void same_bytes(const op_kernels *op, const char *name)
{
    enum { core_MOST = 2048 };
    const op_kernels *plain = op_select(WNPU_ISA_SCALAR);
    static float x[2 * core_MOST];
    static int8_t q[2][2 * core_MOST], low[2][core_MOST];
    float scale[2][2], fine[2];
    size_t n, i;
    for (n = 16; n <= core_MOST; n += n < 512 ? 16 : 496) {
        for (i = 0; i < 2 * n; i++) {
            x[i] = n % 48 == 0 && i % 7 == 3 ? NAN : noise(3) + (float)(n / 512);
            x[i] *= i % 61 == 5 ? 20.0f : 1.0f;
        }
        plain->quantise(q[0], x, n, 2, n, scale[0]);
        op->quantise(q[1], x, n, 2, n, scale[1]);
        T_CHECK(memcmp(q[0], q[1], 2 * n) == 0 && memcmp(scale[0], scale[1], 8) == 0,
                "%s: rows of %zu bytes differ", name, n);
        fine[0] = plain->quantise_fine(q[0], low[0], x, n);
        fine[1] = op->quantise_fine(q[1], low[1], x, n);
        T_CHECK(memcmp(q[0], q[1], n) == 0 && memcmp(low[0], low[1], n) == 0 &&
                    memcmp(fine, fine + 1, 4) == 0,
                "%s: two digits of %zu values differ", name, n);
    }
}

/* The largest at each place of rows of all lengths, among numbers and what is none. */
static void finds_largest(const op_kernels *op, const char *name)
{
    float x[300];
    size_t n, at, i;
    for (n = 1; n <= 300; n += n < 70 ? 1 : 23) {
        for (i = 0; i < n; i++) {
            x[i] = i % 5 == 2 ? NAN : i % 7 == 3 ? -INFINITY : -1.0f - (float)(i * 37 % 11);
        }
        for (at = 0; at < n; at++) {
            const float old = x[at];
            x[at] = 0.5f;
            T_CHECK(op->largest(x, n) == 0.5f && op->argmax(x, n) == at, "%s: %g at %zu of %zu, "
                    "not at %zu", name, (double)op->largest(x, n), op->argmax(x, n), n, at);
            x[at] = old;
        }
    }
    x[0] = NAN;
    T_CHECK(op->largest(x, 1) == -INFINITY && op->argmax(x, 1) == 0, "%s: no number", name);
}

static void same_answers(const op_kernels *op, const char *name)
{
    static core_one_answer want, got;
    static one_question a;
    int round, i;
    same_bytes(op, name);
    finds_largest(op, name);
    for (round = 0; round < 24; round++) {
        fill_question(&a, round);
        ask(op_select(WNPU_ISA_SCALAR), &a, &want);
        ask(op, &a, &got);
#define SAME(field) T_CHECK(memcmp(&got.field, &want.field, sizeof want.field) == 0, \
                            "%s, round %d: " #field " differs", name, round)
        SAME(norm);
        SAME(q);
        SAME(scale);
        SAME(high);
        SAME(low);
        SAME(fine_scale);
        SAME(out);
        SAME(joined);
        SAME(log2);
        SAME(inverse);
        SAME(weights);
        SAME(online);
        SAME(blended);
        SAME(sum);
        SAME(best);
        SAME(above);
        SAME(index);
        SAME(dot);
        SAME(logits);
        SAME(bias);
        SAME(scaled);
        SAME(softmax);
        SAME(size);
        SAME(digit);
        SAME(second);
        SAME(first);
        SAME(sums);
        for (i = 0; i < ONE_N; i++) { /* which of the many NaN it is does not matter */
            T_CHECK(got.halves[i] == want.halves[i] ||
                    (isnan(got.halves[i]) && isnan(want.halves[i])), "%s, half %d", name, i);
        }
#undef SAME
    }
}

static void operators_one_answer(void)
{
    int isa;
    for (isa = WNPU_ISA_SCALAR; isa < CP_ISAS; isa++) {
        if (wnpu_isa_available((wnpu_isa)isa) && cp_request((wnpu_isa)isa) == 0) {
            same_answers(op_select((wnpu_isa)isa), wnpu_isa_name((wnpu_isa)isa));
            same_products(op_select((wnpu_isa)isa), gm_select((wnpu_isa)isa));
        }
    }
}

/* Rows of which some, or one, or all values are large: usual ones keep their steps, and have one
 * digit; the sums fit. */
static void outliers(void)
{
    enum { N = 5120 };
    const op_kernels *op = op_select(cp_best());
    static float x[N];
    static int8_t high[N], low[N];
    int large, i;
    for (large = 0; large <= N; large += large < 4 ? 1 : 341) {
        double square = 0.0, usual, scale;
        int64_t sum = 0;
        for (i = 0; i < N; i++) {
            x[i] = i < large ? (i % 2 ? 900.0f : -800.0f) : noise(0.5f);
            square += (double)x[i] * (double)x[i] / N;
        }
        usual = (double)OP_USUAL * sqrt(square);
        scale = (double)op->quantise_fine(high, low, x, N);
        T_CHECK(fabs(scale * 127.0 / usual - 1.0) < 1e-5, "%d large: scale %g", large, scale);
        for (i = 0; i < N; i++) {
            T_CHECK(fabs((double)x[i] / scale - 254 * high[i] - low[i]) <= 0.51 &&
                        low[i] >= -127 && high[i] >= -60 && high[i] <= 60 &&
                        (high[i] == 0 || fabs((double)x[i]) > 0.99 * usual),
                    "%d large, value %d: %d and %d for %g", large, i, high[i], low[i],
                    (double)x[i]);
            sum += abs(254 * high[i] + low[i]);
        }
        T_CHECK(sum * 127 <= INT32_MAX, "%d large: sums up to %g", large, (double)sum * 127);
    }
}

static void operators_definition(void)
{
    enum { N = 480 };
    const op_kernels *op = op_select(cp_best());
    static float x[N], w[N], b[N], y[N];
    static int8_t q[N], low[N];
    double mean = 0, variance = 0, worst = 0;
    float scale;
    int i;
    for (i = 0; i < N; i++) {
        x[i] = noise(2) + 1;
        w[i] = noise(1);
        b[i] = noise(1);
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
    op->quantise(q, x, N, 1, N, &scale);
    for (i = 0; i < N; i++) {
        T_CHECK(fabs((double)x[i] / (double)scale - q[i]) <= 0.5001, "quantise %d", i);
    }
    memset(x, 0, sizeof x);
    op->quantise(q, x, N, 1, N, &scale);
    T_CHECK(scale == 0.0f && q[5] == 0, "a row of zeros");
    q[7] = low[7] = 1;
    T_CHECK(op->quantise_fine(q, low, x, N) == 0.0f && q[7] == 0 && low[7] == 0,
            "a row of zeros, two digits");
    x[3] = NAN;
    x[4] = INFINITY;
    op->quantise(q, x, N, 1, N, &scale);
    T_CHECK(scale == 0.0f && q[3] == 0 && q[4] == 0, "a row that is not finite");
    q[7] = low[7] = 1;
    T_CHECK(op->quantise_fine(q, low, x, N) == 0.0f && q[7] == 0 && low[7] == 0,
            "a row that is not finite, two digits");
}

/* Softmax over blocks of keys whose values have scales, against double: sum_j p_j vs_j u_j. */
static void attention_against(double scale)
{
    enum { N = 1000, BLOCK = 512, PADDED = 1008 };
    const op_kernels *op = op_select(cp_best());
    static float key[PADDED], value[PADDED], log2s[PADDED], inverse[PADDED];
    static int32_t acc[PADDED + 16];
    static uint8_t p[BLOCK];
    static int16_t u[BLOCK];
    double top = -1e9, total = 0, weighted = 0;
    float q_scale = (float)scale * 1.44269504f * OP_OCTAVE, out = 0.0f;
    op_online row;
    op_keys keys = {0};
    op_block block = {0};
    int i, first;
    block.row = &row;
    block.u = u;
    block.query_scale = &q_scale;
    block.rows = 1;
    block.keys = &keys;
    for (i = 0; i < N; i++) {
        acc[i] = (int32_t)noise(3000);
        key[i] = 0.01f + noise(0.002f);
        value[i] = i % 100 == 5 ? 0.0f : 0.5f + (float)(i % 7) * 0.1f;
        top = acc[i] * (double)key[i] * scale > top ? acc[i] * (double)key[i] * scale : top;
    }
    for (i = 0; i < N; i++) {
        double e = exp(acc[i] * (double)key[i] * scale - top);
        total += e;
        weighted += e * (double)value[i] * ((i * 37 % 255) - 127);
    }
    op->value_scales(log2s, inverse, value, N);
    memset(&row, 0, sizeof row);
    row.top = -1e30f;
    for (first = 0; first < N; first += BLOCK) {
        int n = N - first < BLOCK ? N - first : BLOCK;
        int32_t sum = 0, padding;
        keys.key = key + first;
        keys.value_log2 = log2s + first;
        keys.value_inverse = inverse + first;
        block.n = (size_t)n;
        op->exponents(&block, acc + first, BLOCK);
        op->weights(&block, p, BLOCK);
        padding = n < BLOCK ? p[n] : 0;
        for (i = 0; i < n; i++) {
            sum += value[first + i] > 0.0f ? p[i] * (((first + i) * 37 % 255) - 127) : 0;
        }
        T_CHECK(padding == 0, "padding is %d", padding);
        out = out * row.keep + (float)sum * row.add;
    }
    T_CHECK(fabs((double)(out / row.sum) - weighted / total) < 0.25, "attention %g against %g",
            (double)(out / row.sum), weighted / total);
}

static void attention_definition(void)
{
    attention_against(0.05);
    attention_against(0.5);
    attention_against(5.0); /* 128 octaves are not enough */
    attention_against(500.0);
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
    memset(&r, 0, sizeof r);
    r.repetition = 1.0f;
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
            core_seed = core_seed * 1664525u + 1013904223u;
            if (i == 0 || (core_seed >> 20) % 3 == 0) {
                at += (int32_t)((core_seed >> 10) % 20);
                tokens[i] = at;
            } else {
                tokens[i] = (int32_t)((core_seed >> 10) % 300);
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
    ou_out o;
    memset(&s, 0, sizeof s);
    memset(&o, 0, sizeof o);
    o.write = sink_write;
    o.user = &s;
    ou_fraction(&o, value);
    ou_text(&o, " ");
    ou_clock(&o, (int64_t)(value * 1000.0f), ",");
    ou_flush(&o);
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

__attribute__((unused)) static void core_tests(void)
{
    t_run("arena: measuring and taking agree, overflow is caught", core_arena);
    t_run("pool: each item once, own or the host's threads", core_pool);
    t_run("pool: a lane's items in order, the own lane first", pool_order);
    t_run("pool: parts one after the other", pool_parts);
    t_run("pages: memory is cleared, and nothing beside it", pages);
    t_run("exp, log and GELU against libm in double", maths);
    t_run("operators: same bits for every instruction set", operators_one_answer);
    t_run("operators against their definition", operators_definition);
    t_run("outliers have a second digit, and leave the others their steps", outliers);
    t_run("softmax over blocks of keys", attention_definition);
    t_run("logit rules against OpenAI's, written slowly", rules);
    t_run("numbers in writers", numbers);
}
