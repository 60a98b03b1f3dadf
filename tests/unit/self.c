/* self.c - the self test: that it passes, that it finds damage, that it leaves nothing behind.
 *
 *     build/tests/test_kernels --answers
 *
 * prints what this machine computes, for sf_tables and sf_answers, after a change on purpose. */
#include "../lib/life.h"

static void test_passes(void)
{
    wnpu_error error = {-1, "x"};
    life_counter c;
    life_count(&c);
    T_CHECK(wnpu_self_test(NULL, &error) == WNPU_OK && error.code == 0, "%s", error.message);
    T_CHECK(wnpu_self_test(NULL, NULL) == WNPU_OK, "without an error");
    T_CHECK(wnpu_self_test(&c.allocator, &error) == WNPU_OK, "%s", error.message);
    T_CHECK(c.live == 0 && c.bytes == 0, "%ld blocks are left", c.live);
    T_CHECK(c.most < 2u << 20, "%lu bytes", (unsigned long)c.most);
}

static void test_no_memory(void)
{
    life_counter c;
    wnpu_error error = {0, ""};
    long fail, calls;
    life_count(&c);
    (void)wnpu_self_test(&c.allocator, &error);
    calls = c.calls;
    for (fail = 1; fail <= calls; fail++) {
        life_count(&c);
        c.fail_at = fail;
        T_CHECK(wnpu_self_test(&c.allocator, &error) == WNPU_E_MEMORY && c.live == 0,
                "call %ld: %s", fail, error.message);
    }
    life_count(&c);
    c.allocator.release = NULL;
    T_CHECK(wnpu_self_test(&c.allocator, &error) == WNPU_E_ARGUMENT, "half an allocator");
}

/* ---- damage ---- */

/* Changes a byte of memory that is read-only, and back when called again. */
static int flip(const void *at)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *byte = (unsigned char *)(uintptr_t)at;
    unsigned char *start = byte - (uintptr_t)byte % page;
    if (mprotect(start, page, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
        return -1;
    }
    *(volatile unsigned char *)byte ^= 1;
    return mprotect(start, page, PROT_READ | PROT_EXEC);
}

static void damaged(const void *at, const char *words)
{
    wnpu_error error = {0, ""};
    if (flip(at) != 0) {
        t_skip("memory cannot be made writable here");
        return;
    }
    T_CHECK(wnpu_self_test(NULL, &error) == WNPU_E_INTERNAL && strstr(error.message, words) != NULL,
            "no '%s' in '%s'", words, error.message);
    (void)flip(at);
}

static void test_tables(void)
{
    wnpu_error error = {0, ""};
    size_t i;
    for (i = 0; i < SF_TABLES; i++) {
        const sf_table *t = &sf_tables[i];
        const void *first = t->at;
        char words[80];
        (void)snprintf(words, sizeof words, "table of %s is damaged", t->name);
        if (t->strings) { /* the first ones may be shared with another table */
            damaged(((const char *const *)first)[t->size - 1], words);
        } else {
            damaged((const char *)first + t->size / 2, words);
        }
    }
    T_CHECK(wnpu_self_test(NULL, &error) == WNPU_OK, "%s", error.message);
}

/* Kernels that are wrong in one value. */
static gm_kernels bad_gm;
static op_kernels bad_op;
static const gm_kernels *good_gm;
static const op_kernels *good_op;

static void bad_tile(const gm_product *p)
{
    good_gm->tile(p);
    p->c[(p->rows - 1) * p->ldc] ^= 1;
}

static void bad_powers(const ft_tables *t, const ml_filters *f, const float *x, float *out,
                       size_t ldo, ml_scratch *s)
{
    good_op->mel_powers(t, f, x, out, ldo, s);
    out[ldo + 1] *= 1.00001f;
}

static float bad_fine(int8_t *high, int8_t *low, const float *x, size_t n)
{
    float scale = good_op->quantise_fine(high, low, x, n);
    low[n - 1] = (int8_t)(low[n - 1] ^ 1);
    return scale;
}

/* The parts of the test, with these kernels. */
static int with(const gm_kernels *gm, const op_kernels *op, wnpu_error *error)
{
    wnpu_allocator allocator = ar_allocator(NULL);
    sf_run *r = calloc(1, sizeof *r);
    uint64_t found[SF_STEPS] = {0};
    ar_arena arena;
    int status = sf_open(r, &allocator, error), exact;
    (void)tp_open(&r->pool, 1, NULL, NULL, &r->cancel, error);
    for (exact = 0; exact < 2 && status == WNPU_OK; exact++) {
        void *memory = NULL;
        memset(&arena, 0, sizeof arena);
        memset(&r->engine, 0, sizeof r->engine);
        sf_carve(r, &arena, WNPU_ISA_SCALAR, exact);
        arena.size = arena.used;
        arena.used = 0;
        T_CHECK(posix_memalign(&memory, 64, arena.size) == 0, "no memory");
        memset(memory, 0, arena.size);
        arena.base = memory;
        sf_carve(r, &arena, WNPU_ISA_SCALAR, exact);
        en_start(&r->engine);
        r->engine.gm = gm;
        r->engine.op = op;
        if (!exact) {
            status = sf_check_matmul(r, gm, error);
            status = status != WNPU_OK ? status :
                     sf_check_fft(r, op, WNPU_ISA_SCALAR, error);
        }
        sf_window(r, found);
        free(memory);
    }
    status = status != WNPU_OK ? status : sf_check_answers(WNPU_ISA_SCALAR, found, error);
    tp_close(&r->pool);
    wnpu_model_close(r->model);
    free(r);
    return status;
}

static void test_kernels(void)
{
    wnpu_error error = {0, ""};
    good_gm = gm_select(WNPU_ISA_SCALAR);
    good_op = op_select(WNPU_ISA_SCALAR);
    T_CHECK(with(good_gm, good_op, &error) == WNPU_OK, "%s", error.message);
    bad_gm = *good_gm;
    bad_gm.tile = bad_tile;
    T_CHECK(with(&bad_gm, good_op, &error) == WNPU_E_INTERNAL &&
            strstr(error.message, "a matrix product on scalar") != NULL, "%s", error.message);
    bad_op = *good_op;
    bad_op.mel_powers = bad_powers;
    T_CHECK(with(good_gm, &bad_op, &error) == WNPU_E_INTERNAL &&
            strstr(error.message, "spectrum on scalar") != NULL, "%s", error.message);
    bad_op = *good_op;
    bad_op.quantise_fine = bad_fine;
    T_CHECK(with(good_gm, &bad_op, &error) == WNPU_E_INTERNAL &&
            strstr(error.message, "INT8 decoder's first step on scalar") != NULL, "%s",
            error.message);
}

static int print_answers(void)
{
    wnpu_allocator allocator = ar_allocator(NULL);
    sf_run *r = calloc(1, sizeof *r);
    uint64_t found[SF_STEPS] = {0};
    wnpu_error error = {0, ""};
    size_t i;
    int status = sf_open(r, &allocator, &error);
    if (status == WNPU_OK) {
        status = tp_open(&r->pool, 1, NULL, NULL, &r->cancel, &error);
        status = status != WNPU_OK ? status :
                 sf_check_isa(r, &allocator, WNPU_ISA_SCALAR, found, &error);
        tp_close(&r->pool);
    }
    if (status != WNPU_OK) {
        printf("%s\n", error.message);
    }
    for (i = 0; i < SF_TABLES; i++) {
        printf("%-32s 0x%016llxu\n", sf_tables[i].name,
               (unsigned long long)sf_table_checksum(&sf_tables[i]));
    }
    for (i = 0; i < SF_STEPS; i++) {
        printf("%-32s 0x%016llxu\n", sf_answers[i].what, (unsigned long long)found[i]);
    }
    wnpu_model_close(r->model);
    free(r);
    return status != WNPU_OK;
}

static void self_tests(void)
{
    (void)cp_request(WNPU_ISA_AMX); /* where refused, or not there, the test goes without */
    t_run("passes, and leaves nothing behind", test_passes);
    t_run("without memory", test_no_memory);
    t_run("damaged tables are named", test_tables);
    t_run("wrong kernels are found", test_kernels);
}
