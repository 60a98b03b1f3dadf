/* Tests of section gm_, the INT8 matmul, against triple loops written from its definition. The
 * instruction sets are those that the machine has; test_kernels_avx512.c includes this file to run the
 * kernels of AVX-512, AVX-VNNI and AMX on an emulation. */
#include "../lib/t.h"
#include <float.h>
#include <sys/mman.h>
#include <unistd.h>

/* Kernels that gm_select() need not offer on this machine; NULL is the end. */
static const gm_kernels *const emulated[] = {
#ifdef TEST_EMULATED
    &gm_avx512,
    &gm_avx512_forward,
#ifdef WNPU_VNNI
    &gm_vnni,
#endif
#ifdef WNPU_AMX
    &gm_amx,
#endif
#endif
    NULL
};

#define MAX_ROWS 70u
#define MAX_PANELS 5u
#define MAX_COLUMNS (MAX_PANELS * 16u)
#define CANARY 0x5a5a5a5a

static uint32_t state = 1;

static uint32_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static size_t kernel_list(const gm_kernels **list)
{
    size_t n = 0;
    int isa;
    for (; emulated[n] != NULL; n++) {
        list[n] = emulated[n];
    }
    for (isa = WNPU_ISA_SCALAR; isa < CP_ISAS && emulated[0] == NULL; isa++) {
        const gm_kernels *kernels = gm_select((wnpu_isa)isa);
        if (kernels != NULL && cp_request((wnpu_isa)isa) == 0) {
            list[n++] = kernels;
        }
#ifdef WNPU_X86
        if (kernels != NULL && isa == WNPU_ISA_AVX512) { /* and those that it does not take here */
            list[n++] = kernels == &gm_avx512 ? &gm_avx512_forward : &gm_avx512;
        }
#endif
    }
    return n;
}

typedef enum fill { FILL_RANDOM, FILL_MAX, FILL_MIN, FILL_SIGNS, FILL_SPARSE, FILL_GROUPS,
    FILLS } fill;

static int8_t fill_value(fill how, size_t i)
{
    switch (how) {
    case FILL_MAX: return 127;
    case FILL_MIN: return -127;
    case FILL_SIGNS: return next_random() & 8 ? 127 : -127;
    case FILL_SPARSE: return i % 7 == 0 ? (int8_t)((int)(next_random() % 255) - 127) : 0;
    default: return (int8_t)((int)(next_random() % 255) - 127);
    }
}

/* Memory that ends where no page can be touched; one block for each place. */
static void *at_the_edge(unsigned place, size_t bytes)
{
    enum { LARGEST = 1 << 20 };
    static char *end[3];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *memory = NULL;
    if (end[place] == NULL) {
        if (posix_memalign(&memory, page, LARGEST + page) != 0 ||
            mprotect((char *)memory + LARGEST, page, PROT_NONE) != 0) {
            abort();
        }
        end[place] = (char *)memory + LARGEST;
    }
    if (bytes > LARGEST) {
        abort();
    }
    return end[place] - bytes;
}

typedef struct problem {
    size_t k, k4, lda;
    int8_t *a;      /* [MAX_ROWS][lda], zero behind k up to k4 * 4 */
    int8_t *b;      /* [MAX_COLUMNS][k] */
    int8_t *packed; /* b, packed */
    int32_t *c;     /* [MAX_ROWS][MAX_COLUMNS], by the definition */
    int32_t correction[MAX_COLUMNS];
} problem;

/* Whether a group of A is left empty for a tile of 6 rows: two of five, or all of a row of them. */
static int is_empty(size_t row, size_t group)
{
    return (group + row / 6) % 5 < 2 || row / 6 % 4 == 3;
}

static void problem_open(problem *p, size_t k, fill fill_a, fill fill_b)
{
    size_t m, n, i;
    p->k = k;
    p->k4 = (k + 3) / 4;
    p->lda = p->k4 * 4 + next_random() % 3;
    p->a = calloc(MAX_ROWS * p->lda, 1);
    p->b = calloc(MAX_COLUMNS * k, 1);
    p->packed = memset(at_the_edge(0, MAX_PANELS * p->k4 * 64), 0, MAX_PANELS * p->k4 * 64);
    p->c = calloc(MAX_ROWS * MAX_COLUMNS, sizeof *p->c);
    for (m = 0; m < MAX_ROWS; m++) {
        for (i = 0; i < k; i++) {
            if (fill_a != FILL_GROUPS || !is_empty(m, i / 4)) {
                p->a[m * p->lda + i] = fill_value(fill_a, i + m);
            }
        }
    }
    for (n = 0; n < MAX_COLUMNS; n++) {
        int32_t sum = 0;
        for (i = 0; i < k; i++) {
            int8_t v = fill_value(fill_b, i + n);
            p->b[n * k + i] = v;
            p->packed[((n / 16 * p->k4 + i / 4) * 16 + n % 16) * 4 + i % 4] = v;
            sum += v;
        }
        p->correction[n] = -128 * sum;
    }
    for (m = 0; m < MAX_ROWS; m++) {
        for (n = 0; n < MAX_COLUMNS; n++) {
            int32_t sum = 0;
            for (i = 0; i < k; i++) {
                sum += p->a[m * p->lda + i] * p->b[n * k + i];
            }
            p->c[m * MAX_COLUMNS + n] = sum;
        }
    }
}

static void problem_close(problem *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
}

static const char *name_of(const gm_kernels *kernels)
{
    const char *name = wnpu_isa_name(kernels->isa);
    return name != NULL ? name : "unknown";
}

/* One product; every element and everything around it is looked at. */
static void check_product(const problem *p, const gm_kernels *kernels, size_t rows, size_t panels,
                          int sparse)
{
    size_t ldc = panels * 16 + next_random() % 2, i, m, n, wrong = 0;
    /* The last row has no room behind its columns, and the pack no room behind its size. */
    size_t count = (rows - 1) * ldc + panels * 16;
    int32_t *c = at_the_edge(1, count * sizeof *c);
    void *packed_a = at_the_edge(2, kernels->a_bytes(rows, p->k4));
    gm_product product = {0};
    for (i = 0; i < count; i++) {
        c[i] = CANARY;
    }
    kernels->pack_a(packed_a, p->a, p->lda, rows, p->k4);
    product.c = c;
    product.ldc = ldc;
    product.a = packed_a;
    product.rows = rows;
    product.b = p->packed;
    product.k4 = product.pitch = p->k4;
    product.correction = kernels->correct != NULL ? p->correction : NULL;
    product.panels = panels;
    if (sparse) {
        gm_sparse found;
        found.group = malloc(MAX_ROWS / 6 * p->k4 * sizeof(uint16_t));
        found.n = malloc(MAX_ROWS / 6 * (p->k4 / GM_STRETCH + 1) * sizeof(uint16_t));
        kernels->survey(&found, packed_a, rows, p->k4);
        product.sparse = &found;
        kernels->sparse_tile(&product);
        free(found.group);
        free(found.n);
    } else {
        kernels->tile(&product);
    }
    for (m = 0; m < rows; m++) {
        for (n = 0; n < panels * 16; n++) {
            wrong += c[m * ldc + n] != p->c[m * MAX_COLUMNS + n];
        }
        for (n = panels * 16; n < ldc && m + 1 < rows; n++) {
            wrong += c[m * ldc + n] != CANARY;
        }
    }
    T_CHECK(wrong == 0, "%s%s: %zu rows, %zu panels, k %zu: %zu of %zu values are wrong",
            name_of(kernels), sparse ? " without zeros" : "", rows, panels, p->k, wrong,
            rows * panels * 16);
}

static void all_kernels(const problem *p, size_t row_step)
{
    const gm_kernels *list[8];
    size_t n = kernel_list(list), i, rows, panels;
    for (i = 0; i < n; i++) {
        for (rows = 1; rows <= MAX_ROWS; rows += rows < 17 ? 1 : row_step) {
            for (panels = 1; panels <= MAX_PANELS; panels++) {
                check_product(p, list[i], rows, panels, 0);
                if (list[i]->survey != NULL) {
                    check_product(p, list[i], rows, panels, 1);
                }
            }
        }
    }
}

static void test_every_row_count(void)
{
    static const size_t ks[] = {1, 3, 4, 6, 16, 37, 64};
    problem p;
    size_t i;
    for (i = 0; i < sizeof ks / sizeof ks[0]; i++) {
        problem_open(&p, ks[i], FILL_RANDOM, FILL_RANDOM);
        all_kernels(&p, 1);
        problem_close(&p);
    }
}

/* Around multiples of 4 (a group), 8, 16, 512 (a stretch) and the shapes of Whisper. */
static void test_every_depth(void)
{
    static const size_t large[] = {127, 128, 129, 255, 383, 384, 385, 509, 511, 512, 513, 515, 516,
                                   517, 769, 1023, 1024, 1025, 1500, 1537, 2045, 2047, 2048};
    problem p;
    size_t k, i;
    for (k = 1; k <= 70; k++) {
        problem_open(&p, k, FILL_RANDOM, FILL_SPARSE);
        all_kernels(&p, 28);
        problem_close(&p);
    }
    for (i = 0; i < sizeof large / sizeof large[0]; i++) {
        problem_open(&p, large[i], FILL_RANDOM, FILL_RANDOM);
        all_kernels(&p, 28);
        problem_close(&p);
    }
}

static void test_extremes(void)
{
    static const size_t ks[] = {1, 2, 5, 8, 64, 511, 2048, 5120};
    problem p;
    size_t i;
    int a, b;
    for (i = 0; i < sizeof ks / sizeof ks[0]; i++) {
        for (a = FILL_MAX; a <= FILL_SIGNS; a++) {
            for (b = FILL_MAX; b <= FILL_SIGNS; b++) {
                problem_open(&p, ks[i], (fill)a, (fill)b);
                all_kernels(&p, 56);
                problem_close(&p);
            }
        }
    }
}

/* Every group that is not empty is found, and no other. */
static void check_survey(const problem *p, const gm_kernels *kernels)
{
    static uint16_t group[MAX_ROWS / 6 * 1300], n[MAX_ROWS / 6 * 3];
    gm_sparse found = {group, n};
    void *packed_a = malloc(kernels->a_bytes(MAX_ROWS, p->k4));
    size_t tile, g, at = 0, stretches = (p->k4 + GM_STRETCH - 1) / GM_STRETCH, wrong = 0;
    kernels->pack_a(packed_a, p->a, p->lda, MAX_ROWS, p->k4);
    kernels->survey(&found, packed_a, MAX_ROWS, p->k4);
    for (tile = 0; tile < MAX_ROWS / 6; tile++) {
        for (g = 0; g < p->k4; g++) {
            at = g % GM_STRETCH == 0 ? 0 : at;
            if (!is_empty(tile * 6, g)) {
                wrong += group[tile * p->k4 + g / GM_STRETCH * GM_STRETCH + at++] !=
                         g % GM_STRETCH * 8;
            }
            if (g % GM_STRETCH == GM_STRETCH - 1 || g + 1 == p->k4) {
                wrong += n[tile * stretches + g / GM_STRETCH] != at;
            }
        }
    }
    T_CHECK(wrong == 0, "%s: k %zu: %zu groups are not as expected", name_of(kernels), p->k, wrong);
    free(packed_a);
}

static void test_zeros(void)
{
    static const size_t ks[] = {4, 12, 64, 240, 1536, 2044, 2048, 2052, 5120};
    const gm_kernels *list[8];
    size_t n = kernel_list(list), i, j;
    problem p;
    for (i = 0; i < sizeof ks / sizeof ks[0]; i++) {
        problem_open(&p, ks[i], FILL_GROUPS, FILL_RANDOM);
        all_kernels(&p, 14);
        for (j = 0; j < n; j++) {
            if (list[j]->survey != NULL) {
                check_survey(&p, list[j]);
            }
        }
        problem_close(&p);
    }
}

/* The deepest product that the section allows: 131072 * 127 * 127 is just below 2^31. */
static void test_deepest(void)
{
    gm_product product = {0};
    const gm_kernels *list[8];
    const size_t k4 = 131072 / 4;
    size_t n = kernel_list(list), i, m, j;
    int8_t *a = malloc(3 * k4 * 4), *b = malloc(k4 * 64);
    memset(a, 127, k4 * 4);
    memset(a + k4 * 4, -127, k4 * 4);
    memset(a + k4 * 8, 1, k4 * 4);
    memset(b, 127, k4 * 64);
    for (i = 0; i < n; i++) {
        const int32_t expected[3] = {131072 * 16129, -131072 * 16129, 131072 * 127};
        int32_t c[3 * 16], correction[16];
        void *packed_a = malloc(list[i]->a_bytes(3, k4));
        for (j = 0; j < 16; j++) {
            correction[j] = -128 * 127 * 131072;
        }
        list[i]->pack_a(packed_a, a, k4 * 4, 3, k4);
        product.c = c;
        product.ldc = 16;
        product.a = packed_a;
        product.rows = 3;
        product.b = b;
        product.k4 = product.pitch = k4;
        product.correction = correction;
        product.panels = 1;
        list[i]->tile(&product);
        for (m = 0; m < 3; m++) {
            for (j = 0; j < 16; j++) {
                T_CHECK(c[m * 16 + j] == expected[m], "%s: row %zu is %d, not %d",
                        name_of(list[i]), m, (int)c[m * 16 + j], (int)expected[m]);
            }
        }
        free(packed_a);
    }
    free(a);
    free(b);
}

/* Rows of 16 bits from two digits, as large as sums allow. */
static void check_joined(const gm_kernels *kernels, size_t rows, size_t k4, int most)
{
    enum { ROWS = 40, DEEPEST = 520, PANELS = 3 };
    static int8_t high[ROWS * DEEPEST], low[ROWS * DEEPEST], b[PANELS * DEEPEST * 16];
    static int32_t c[ROWS * PANELS * 16];
    void *packed = at_the_edge(2, kernels->a_bytes(rows, k4));
    gm_product product = {0};
    size_t wrong = 0, i, r, n, k;
    for (i = 0; i < rows * k4 * 4; i++) {
        high[i] = fill_value(most ? FILL_MAX : FILL_RANDOM, i);
        low[i] = fill_value(most ? FILL_MAX : FILL_RANDOM, i);
    }
    for (i = 0; i < PANELS * k4 * GM_GROUP; i++) {
        b[i] = fill_value(most ? FILL_MIN : FILL_RANDOM, i);
    }
    kernels->pack_joined(packed, high, low, rows, k4);
    product.c = c;
    product.ldc = PANELS * 16;
    product.a = packed;
    product.rows = rows;
    product.b = b;
    product.k4 = product.pitch = k4;
    product.panels = PANELS;
    kernels->tile(&product);
    for (r = 0; r < rows; r++) {
        for (n = 0; n < PANELS * 16; n++) {
            int64_t sum = 0;
            for (k = 0; k < k4 * 4; k++) {
                sum += (GM_DIGIT * high[r * k4 * 4 + k] + low[r * k4 * 4 + k]) *
                       b[(n / 16 * k4 + k / 4) * GM_GROUP + n % 16 * 4 + k % 4];
            }
            wrong += sum != c[r * PANELS * 16 + n];
        }
    }
    T_CHECK(wrong == 0, "%s: %zu rows of %zu groups: %zu sums are wrong", name_of(kernels), rows,
            k4, wrong);
}

static void test_joined(void)
{
    const gm_kernels *list[8];
    size_t n = kernel_list(list), i, rows, k4;
    for (i = 0; i < n; i++) {
        for (rows = 1; list[i]->pack_joined != NULL && rows <= 40; rows += rows < 14 ? 1 : 13) {
            for (k4 = 1; k4 <= 130; k4 += k4 < 9 ? 1 : 11) {
                check_joined(list[i], rows, k4, k4 % 2 == 0);
            }
        }
    }
}

/* Rows of two digits through the engine, in the form that it chooses for kernels and rows: every
 * one in `rare` groups of a row has an outlier; 0: none has. */
static void check_digits(const gm_kernels *kernels, size_t rows, size_t k4, size_t panels,
                         uint32_t rare)
{
    enum { gm_MOST = GM_FEW * 4 * 520 };
    static float x[gm_MOST], scale[GM_FEW];
    static int8_t q[2 * gm_MOST], b[4 * 520 * GM_GROUP], wide[4 * GM_OUTLIERS * GM_GROUP];
    static uint16_t group[520];
    static int32_t acc[2 * GM_FEW * 64], correction[64];
    const size_t k = k4 * 4, packed = kernels->a_bytes(rows > 4 ? rows : 4, k4);
    en_engine e;
    en_worker in, w;
    gm_weight weight;
    size_t wrong = 0, i, r, n;
    memset(&e, 0, sizeof e);
    memset(&in, 0, sizeof in);
    memset(&w, 0, sizeof w);
    memset(&weight, 0, sizeof weight);
    weight.bits = 8;
    e.gm = kernels;
    e.op = op_select(WNPU_ISA_SCALAR);
    in.fine = 1;
    in.q = q;
    in.scale = scale;
    in.outlier = group;
    in.packed = at_the_edge(1, packed);
    in.packed_high = at_the_edge(2, gm_outlier_bytes(kernels, rows, k4));
    w.acc = acc;
    w.hidden = (float *)(void *)wide;
    for (i = 0; i < rows * k; i++) {
        x[i] = (float)fill_value(FILL_RANDOM, i) *
               (rare > 0 && next_random() % (4 * rare) == 0 ? 30.0f : 1.0f);
    }
    x[0] = rare > 0 ? 4000.0f : x[0]; /* one at least */
    memset(correction, 0, sizeof correction);
    for (i = 0; i < panels * k4 * GM_GROUP; i++) {
        b[i] = fill_value(FILL_RANDOM, i);
        correction[i / (k4 * GM_GROUP) * 16 + i % GM_GROUP / 4] -= 128 * b[i];
    }
    weight.k4 = (uint32_t)k4;
    weight.packed = b;
    weight.correction = correction;
    en_prepare(&e, &in, &(en_input){x, k, NULL}, rows, k);
    en_products(&e, &in, &w, (gm_panels){&weight, 0, panels});
    for (r = 0; r < rows; r++) {
        for (n = 0; n < panels * 16; n++) {
            int64_t sum = 0;
            for (i = 0; i < k; i++) {
                sum += (GM_DIGIT * q[(rows + r) * k + i] + q[r * k + i]) *
                       b[(n / 16 * k4 + i / 4) * GM_GROUP + n % 16 * 4 + i % 4];
            }
            wrong += sum != acc[r * panels * 16 + n];
        }
    }
    for (i = r = 0; i < rows * k; i++) {
        r += q[rows * k + i] != 0;
    }
    T_CHECK((rare == 0) == (r == 0), "%zu high digits", r);
    T_CHECK(wrong == 0, "%s: %zu rows of %zu groups, %zu panels, one in %u: %zu sums are wrong",
            name_of(kernels), rows, k4, panels, (unsigned)rare, wrong);
}

static void test_digits(void)
{
    const gm_kernels *list[8];
    size_t n = kernel_list(list), i, rows, k4, panels;
    for (i = 0; i < n; i++) {
        for (rows = 1; rows <= GM_FEW; rows++) {
            for (k4 = 32, panels = 1; k4 <= 520; k4 += 96 + 4 * rows, panels = panels % 4 + 1) {
                check_digits(list[i], rows, k4, panels, 0);
                check_digits(list[i], rows, k4, panels, 4);
                check_digits(list[i], rows, k4, panels, 16);
            }
        }
    }
}

static void test_corrections(void)
{
    const gm_kernels *list[8];
    size_t n = kernel_list(list), i, k, j;
    for (i = 0; i < n; i++) {
        for (k = 1; list[i]->correct != NULL && k < 300; k += 13) {
            problem p;
            int32_t got[MAX_COLUMNS];
            problem_open(&p, k, FILL_RANDOM, k % 2 ? FILL_MIN : FILL_RANDOM);
            list[i]->correct(got, p.packed, p.k4, MAX_PANELS);
            for (j = 0; j < MAX_COLUMNS; j++) {
                T_CHECK(got[j] == p.correction[j], "column %zu: %d, not %d", j, (int)got[j],
                        (int)p.correction[j]);
            }
            problem_close(&p);
        }
    }
}

/* Weights of attention, 0..255, over a stretch of the groups of wider panels. */
static void check_weights(const gm_kernels *kernels, size_t rows, size_t k4)
{
    enum { ROWS = 40, PITCH = 61, PANELS = 4 };
    static int8_t b[PANELS * PITCH * GM_GROUP];
    static int32_t c[(ROWS + 1) * PANELS * 16];
    const size_t stride = gm_probs_stride(k4);
    static uint16_t group[ROWS / 6 * PITCH], n[ROWS / 6];
    gm_product product = {0};
    gm_sparse sparse = {group, n};
    uint8_t *w = malloc((rows + 1) * stride), *copy = malloc(rows * stride);
    void *packed = malloc(kernels->a_bytes(rows, k4));
    size_t wrong = 0, j, r, k;
    for (j = 0; j < sizeof b; j++) {
        b[j] = (int8_t)(next_random() % 255 - 127u);
    }
    for (j = 0; j < rows * stride; j++) {
        copy[j] = (uint8_t)(j % 5 == 0 ? 255u : next_random());
        if (is_empty(j / stride, j % stride / 4)) {
            copy[j] = 0;
        }
    }
    memcpy(w, copy, rows * stride);
    product.c = c;
    product.ldc = PANELS * 16;
    product.a = gm_pack_probs(kernels, packed, w, rows, k4);
    product.rows = rows;
    product.b = b;
    product.pitch = PITCH;
    product.k4 = k4;
    product.panels = PANELS;
    gm_tile_probs(kernels, &product, &sparse);
    for (r = 0; r < rows; r++) {
        for (j = 0; j < PANELS * 16; j++) {
            int32_t sum = 0;
            for (k = 0; k < k4 * 4; k++) {
                sum += copy[r * stride + k] *
                       b[(j / 16 * PITCH + k / 4) * GM_GROUP + j % 16 * 4 + k % 4];
            }
            wrong += sum != c[r * PANELS * 16 + j];
        }
    }
    T_CHECK(wrong == 0, "%s: %zu rows of %zu groups: %zu sums are wrong", name_of(kernels), rows,
            k4, wrong);
    free(packed);
    free(copy);
    free(w);
}

static void test_attention_weights(void)
{
    const gm_kernels *list[8];
    size_t n = kernel_list(list), i, rows, k4;
    for (i = 0; i < n; i++) {
        for (rows = 1; rows <= 40; rows += 3) {
            for (k4 = 4; k4 <= 61; k4 += 4 + k4 % 3) {
                check_weights(list[i], rows, k4);
            }
        }
    }
}

/* A weight in 4 bits in memory of exactly the measured size, filled with zeros. */
static void *int4_open(gm_weight *w, uint32_t n, uint32_t k)
{
    ar_arena arena = {NULL, 0, 0, 0};
    void *memory = NULL;
    gm_carve(&arena, w, &(gm_layout){n, k, 4, 0, 0});
    arena.size = arena.used;
    arena.used = 0;
    if (posix_memalign(&memory, 64, arena.size) != 0) {
        abort();
    }
    arena.base = memset(memory, 0, arena.size);
    gm_carve(&arena, w, &(gm_layout){n, k, 4, 0, 0});
    T_CHECK(arena.used == arena.size && w->k4 == (k + 7) / 8 * 2, "sizes");
    return memory;
}

/* B in 4 bits, whose values stand for 16 times as much. */
static void check_int4(const gm_kernels *kernels, size_t rows, uint32_t k, size_t panels, fill how)
{
    gm_weight w;
    void *memory = int4_open(&w, (uint32_t)panels * 16, k);
    size_t k4 = w.k4, r, n, i, wrong = 0;
    int8_t *a = calloc(rows, k4 * 4), *b = calloc(panels * 16, k4 * 4), *bytes = malloc(k4 * 4);
    int8_t *wide = malloc(panels * k4 * GM_GROUP);
    int32_t *c = malloc(rows * panels * 16 * sizeof *c);
    void *packed = at_the_edge(2, kernels->a_bytes(rows, k4));
    gm_product product = {0};
    for (i = 0; i < panels * 16 * k4 * 4; i++) {
        b[i] = (int8_t)(fill_value(how, i) / 18); /* -7 to 7 */
        b[i] = i % (k4 * 4) < k ? b[i] : 0;
        w.correction[i / (k4 * 4)] -= 128 * 16 * b[i];
    }
    for (i = 0; i < rows * k4 * 4; i++) {
        a[i] = i % (k4 * 4) < k ? fill_value(how, i) : 0;
    }
    for (r = panels * 16; r > 0; r -= n) { /* alone and by four, which is another way */
        int8_t values[GM_WOVEN * 4096];
        n = r > 16 ? GM_WOVEN : 1;
        memcpy(values, b + (r - n) * k4 * 4, n * k4 * 4);
        gm_put_rows(&w, (uint32_t)(r - n), (uint32_t)n, values, k4 * 4);
    }
    for (r = 0; r < panels * 16; r++) {
        gm_get_bytes(&w, (uint32_t)r, bytes);
        for (i = 0; i < k4 * 4; i++) {
            wrong += bytes[i] != 16 * b[r * k4 * 4 + i];
        }
    }
    T_CHECK(wrong == 0, "%zu values were not kept", wrong);
    kernels->pack_a(packed, a, k4 * 4, rows, k4);
    product.c = c;
    product.ldc = panels * 16;
    product.a = packed;
    product.rows = rows;
    gm_tile_int4(kernels, &product, wide, (gm_panels){&w, 0, panels});
    for (r = 0; r < rows * panels * 16; r++) {
        int32_t sum = 0;
        for (i = 0; i < k4 * 4; i++) {
            sum += 16 * a[r / (panels * 16) * k4 * 4 + i] * b[r % (panels * 16) * k4 * 4 + i];
        }
        wrong += sum != c[r];
    }
    T_CHECK(wrong == 0, "%s: %zu rows, %zu panels, k %u: %zu sums are wrong", name_of(kernels),
            rows, panels, (unsigned)k, wrong);
    free(c);
    free(wide);
    free(bytes);
    free(b);
    free(a);
    free(memory);
}

static void test_int4(void)
{
    static const uint32_t ks[] = {1, 8, 12, 64, 384, 520, 1288};
    const gm_kernels *list[8];
    size_t n = kernel_list(list), i, j, rows;
    for (i = 0; i < n; i++) {
        for (j = 0; j < sizeof ks / sizeof ks[0]; j++) {
            for (rows = 1; rows <= GM_FEW + 1; rows++) {
                check_int4(list[i], rows, ks[j], 1 + rows % 4,
                           rows % 3 == 0 ? FILL_SIGNS : FILL_RANDOM);
            }
            check_int4(list[i], 3, ks[j], 2, FILL_MAX);
            check_int4(list[i], 3, ks[j], 2, FILL_MIN);
        }
    }
}

/* A weight in 6 bits holds what one in 8 bits holds, and every instruction set widens its panels to
 * the same bytes. */
static void check_int6(uint32_t n, uint32_t k)
{
    static unsigned char memory[2][1 << 18] __attribute__((aligned(64)));
    ar_arena arena[2] = {{memory[0], sizeof memory[0], 0, 0}, {memory[1], sizeof memory[1], 0, 0}};
    gm_weight six, eight;
    int8_t values[GM_WOVEN * 512], bytes[512], *wide;
    uint32_t row, each, i, wrong = 0;
    int isa;
    memset(memory, 0, sizeof memory);
    gm_carve(&arena[0], &six, &(gm_layout){n, k, 6, 0, 0});
    gm_carve(&arena[1], &eight, &(gm_layout){n, k, 8, 0, 0});
    T_CHECK(!arena[0].overflow && !arena[1].overflow && six.k4 == eight.k4 &&
            gm_groups(&six) * 4 == gm_groups(&eight) * 3, "sizes for k %u", (unsigned)k);
    for (row = 0; row < n; row += each) { /* by four and alone, which is another way */
        each = n - row >= 8 ? GM_WOVEN : 1;
        for (i = 0; i < each * k; i++) {
            values[i] = (int8_t)(fill_value(FILL_RANDOM, row * k + i) / 4);
            values[i] = (int8_t)(4 * (row % 5 == 1 ? (i % 2 == 0 ? 31 : -31) : values[i]));
        }
        gm_put_rows(&eight, row, each, values, k);
        for (i = 0; i < each * k; i++) {
            values[i] /= 4;
        }
        gm_put_rows(&six, row, each, values, k);
    }
    for (row = 0; row < n; row++) {
        gm_get_bytes(&six, row, bytes);
        for (i = 0; i < k; i++) {
            wrong += bytes[i] != gm_get(gm_row(&eight, row), 8, i) ||
                     bytes[i] != gm_get(gm_row(&six, row), 6, i);
        }
    }
    T_CHECK(wrong == 0, "%u by %u: %u values differ", (unsigned)n, (unsigned)k, (unsigned)wrong);
    wide = at_the_edge(2, six.n16 * six.k4 * GM_GROUP);
    for (isa = WNPU_ISA_SCALAR; isa < CP_ISAS; isa++) {
        if (!wnpu_isa_available((wnpu_isa)isa)) {
            continue;
        }
        memset(wide, 0x55, six.n16 * six.k4 * GM_GROUP);
        op_select((wnpu_isa)isa)->widen6(wide, six.packed, six.n16 * gm_groups(&six) / 3);
        T_CHECK(memcmp(wide, eight.packed, six.n16 * six.k4 * GM_GROUP) == 0, "isa %d", isa);
    }
}

static void test_int6(void)
{
    check_int6(1, 16);
    check_int6(16, 64);
    check_int6(37, 144);
    check_int6(64, 512);
}

static void test_select(void)
{
    int isa;
    T_CHECK(gm_select(WNPU_ISA_AUTO) != NULL, "no kernels at all");
    T_CHECK(gm_select(WNPU_ISA_AUTO) == gm_select(cp_best()), "auto is not the best");
    T_CHECK(gm_select((wnpu_isa)99) == NULL, "an unknown instruction set has kernels");
    for (isa = WNPU_ISA_SCALAR; isa < CP_ISAS; isa++) {
        const gm_kernels *kernels = gm_select((wnpu_isa)isa);
        T_CHECK((kernels != NULL) == wnpu_isa_available((wnpu_isa)isa), "isa %d", isa);
        T_CHECK(kernels == NULL || (int)kernels->isa == isa, "isa %d has another's kernels", isa);
    }
}

/* ---- weights ---- */

/* Takes a weight in memory of exactly the measured size, filled with zeros. */
static void *weight_open(gm_weight *w, uint32_t n, uint32_t k, int bias, int keep_float)
{
    ar_arena arena = {NULL, 0, 0, 0};
    void *memory = NULL;
    gm_carve(&arena, w, &(gm_layout){n, k, 8, bias, keep_float});
    T_CHECK(!arena.overflow && w->packed == NULL && w->scale == NULL && w->correction == NULL &&
            w->bias == NULL && w->exact == NULL, "measuring gives pointers");
    arena.size = arena.used;
    arena.used = 0;
    if (posix_memalign(&memory, 64, arena.size) != 0) {
        abort();
    }
    memset(memory, 0, arena.size);
    arena.base = memory;
    gm_carve(&arena, w, &(gm_layout){n, k, 8, bias, keep_float});
    T_CHECK(arena.used == arena.size && w->packed != NULL && w->scale != NULL &&
            w->correction != NULL, "taking differs from measuring");
    T_CHECK((w->bias != NULL) == bias && (w->exact != NULL) == keep_float, "bias or exact");
    T_CHECK(w->n == n && w->k == k && w->n16 == (n + 15) / 16 && w->k4 == (k + 3) / 4, "sizes");
    return memory;
}

static int8_t weight_at(const gm_weight *w, size_t n, size_t k)
{
    return w->packed[((n / 16 * w->k4 + k / 4) * 16 + n % 16) * 4 + k % 4];
}

/* At most GM_WOVEN rows. */
static void set_rows(gm_weight *w, uint32_t row, uint32_t n, const float *values)
{
    const op_kernels *op = op_select(cp_best());
    int8_t digits[GM_WOVEN][256];
    uint32_t i;
    for (i = 0; i < n; i++, values += w->k) {
        mf_set_row(op, w, row + i, values, op->size(values, w->k), digits[i]);
    }
    gm_put_rows(w, row, n, digits[0], sizeof digits[0]);
}

/* Checks row n against the definition and returns how many values are wrong. */
static size_t row_errors(const gm_weight *w, uint32_t n, const float *values)
{
    float largest = 0.0f, scale, *got = malloc(w->k * sizeof *got);
    int8_t *bytes = malloc((size_t)w->k4 * 4);
    int32_t sum = 0;
    size_t k, wrong = 0;
    for (k = 0; k < w->k; k++) {
        largest = fabsf(values[k]) > largest ? fabsf(values[k]) : largest;
    }
    scale = largest / 127.0f;
    wrong += memcmp(&scale, &w->scale[n], sizeof scale) != 0;
    gm_get_row(w, n, got, 0);
    gm_get_bytes(w, n, bytes);
    for (k = 0; k < w->k; k++) {
        long q = 0;
        if (scale > 0.0f) {
            q = lrintf(values[k] / scale);
            q = q > 127 ? 127 : q < -127 ? -127 : q;
        }
        wrong += weight_at(w, n, k) != q || bytes[k] != q;
        wrong += got[k] != (float)q * scale;
        sum += (int32_t)q;
    }
    wrong += w->correction[n] != -128 * sum;
    gm_get_row(w, n, got, 1);
    for (k = 0; k < w->k && w->exact != NULL; k++) {
        wrong += w->exact[(n / 16 * w->k + k) * 16 + n % 16] != values[k];
        wrong += got[k] != values[k];
    }
    free(bytes);
    free(got);
    return wrong;
}

static float random_float(void)
{
    return (float)((int)(next_random() % 2000001) - 1000000) * 1e-6f;
}

static void test_weights(void)
{
    static const uint32_t shapes[][2] = {{1, 1}, {3, 5}, {16, 4}, {17, 31}, {48, 64}, {33, 130}};
    size_t s, i;
    for (s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const uint32_t n = shapes[s][0], k = shapes[s][1];
        float *values = malloc((size_t)n * k * sizeof *values);
        size_t r, c, stray = 0;
        gm_weight w;
        void *memory = weight_open(&w, n, k, 1, s % 2 == 0);
        for (i = 0; i < (size_t)n * k; i++) {
            values[i] = random_float() * (float)(1 + i % 5);
        }
        for (r = n; r > 0; r -= i) { /* backwards, so that a row that spills is noticed */
            i = r % GM_WOVEN != 0 ? r % GM_WOVEN : GM_WOVEN;
            set_rows(&w, (uint32_t)(r - i), (uint32_t)i, values + (r - i) * k);
        }
        for (r = 0; r < n; r++) {
            T_CHECK(row_errors(&w, (uint32_t)r, values + r * k) == 0, "row %zu of %ux%u", r, n, k);
        }
        for (r = 0; r < (size_t)w.n16 * 16; r++) {
            for (c = 0; c < (size_t)w.k4 * 4; c++) {
                stray += (r >= n || c >= k) && weight_at(&w, r, c) != 0;
            }
            stray += r >= n && (w.scale[r] != 0.0f || w.correction[r] != 0);
            stray += w.bias[r] != 0.0f;
            for (c = 0; c < k && w.exact != NULL; c++) {
                stray += r >= n && w.exact[(r / 16 * k + c) * 16 + r % 16] != 0.0f;
            }
        }
        T_CHECK(stray == 0, "%zu values in the padding of %ux%u", stray, n, k);
        free(memory);
        free(values);
    }
}

static void test_rounding(void)
{
    /* The largest is 127, so the scale is 1 and halves are ties. */
    static const float values[] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, 125.5f,
                                   -126.5f, 0.49999997f, 0.50000006f, -63.5f, -64.5f, 3.0f, -127.0f,
                                   -0.0f, 1e-30f};
    static const int expected[] = {127, 0, 2, 2, 0, -2, -2, 126, 126, -126, 0, 1, -64, -64, 3, -127,
                                   0, 0};
    enum { COUNT = sizeof values / sizeof values[0] };
    gm_weight w;
    void *memory = weight_open(&w, 2, COUNT, 0, 0);
    float got[COUNT];
    size_t i;
    set_rows(&w, 1, 1, values);
    T_CHECK(w.scale[1] == 1.0f && w.scale[0] == 0.0f, "scales");
    gm_get_row(&w, 1, got, 1); /* nothing exact was kept: the quantised ones */
    for (i = 0; i < COUNT; i++) {
        T_CHECK(weight_at(&w, 1, i) == expected[i], "%g became %d, not %d", (double)values[i],
                weight_at(&w, 1, i), expected[i]);
        T_CHECK(got[i] == (float)expected[i], "%g is read as %g", (double)values[i],
                (double)got[i]);
    }
    free(memory);
}

static void test_odd_floats(void)
{
    const float tiny = 1.40129846e-45f; /* 2^-149, the smallest of all */
    float rows[7][20];
    gm_weight w;
    void *memory = weight_open(&w, 7, 20, 0, 1);
    uint32_t r, i;
    for (i = 0; i < 20; i++) {
        rows[0][i] = 0.0f;
        rows[1][i] = tiny;                             /* the scale would be 0 */
        rows[2][i] = (float)(127 - (int)i) * tiny;     /* the scale is 2^-149 */
        rows[3][i] = (float)(190 - 19 * (int)i) * tiny; /* and here quotients pass 127 */
        rows[4][i] = i % 2 ? FLT_MAX : -FLT_MAX;
        rows[5][i] = i % 3 ? FLT_MIN : -FLT_MIN / 2;
        rows[6][i] = i == 0 ? 1e30f : 1e-30f;
    }
    for (r = 0; r < 7; r++) {
        set_rows(&w, r, 1, rows[r]);
    }
    for (r = 0; r < 7; r++) {
        T_CHECK(row_errors(&w, r, rows[r]) == 0, "row %u", r);
    }
    T_CHECK(w.scale[0] == 0.0f && w.scale[1] == 0.0f, "zero rows");
    T_CHECK(w.scale[2] == tiny && weight_at(&w, 2, 0) == 127 && weight_at(&w, 2, 1) == 126, "tiny");
    T_CHECK(weight_at(&w, 3, 0) == 127 && weight_at(&w, 3, 19) == -127, "not clamped");
    free(memory);
}

static void test_carve_overflow(void)
{
    ar_arena arena = {NULL, 0, 0, 0};
    gm_weight w;
    gm_carve(&arena, &w, &(gm_layout){0xffffffffu, 0xffffffffu, 8, 1, 1});
    T_CHECK(arena.overflow && w.packed == NULL, "2^64 weights were accepted");
    T_CHECK(w.n16 == 0x10000000u && w.k4 == 0x40000000u, "sizes wrapped");
}

/* ---- packing at run time ---- */

static void test_pack_rows(void)
{
    size_t k4, row, i, wrong = 0;
    for (k4 = 1; k4 < 20; k4 += 3) {
        const size_t bytes = 3 * k4 * 64;
        int8_t *packed = malloc(bytes), *values = malloc(48 * k4 * 4);
        memset(packed, 0x55, bytes);
        for (i = 0; i < 48 * k4 * 4; i++) {
            values[i] = fill_value(FILL_RANDOM, i);
        }
        for (row = 0; row < 47; row++) {
            gm_pack_panel_row(packed, k4, row, values + row * k4 * 4);
        }
        for (row = 0; row < 48; row++) {
            for (i = 0; i < k4 * 4; i++) {
                int8_t got = packed[((row / 16 * k4 + i / 4) * 16 + row % 16) * 4 + i % 4];
                wrong += got != (row < 47 ? values[row * k4 * 4 + i] : 0x55);
            }
        }
        free(packed);
        free(values);
    }
    T_CHECK(wrong == 0, "%zu values are wrong", wrong);
}

static void test_pack_steps(void)
{
    static const size_t shapes[][2] = {{1, 1}, {7, 16}, {12, 64}, {13, 17}, {1500, 64}, {6, 33}};
    size_t s, t, c;
    for (s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const size_t steps = shapes[s][0], n = shapes[s][1], stride = n + s;
        const size_t k4 = (steps + 3) / 4, n16 = (n + 15) / 16;
        const size_t size = (steps - 1) * stride + n; /* nothing behind the last value */
        int8_t *x = malloc(size), *packed = malloc(n16 * k4 * 64);
        size_t wrong = 0;
        for (c = 0; c < size; c++) {
            x[c] = fill_value(FILL_RANDOM, c);
        }
        memset(packed, 0x55, n16 * k4 * 64);
        for (t = 0; t < steps; t += 4) {
            gm_pack_panel_steps(packed, k4, t / 4, x + t * stride, stride,
                                steps - t < 4 ? steps - t : 4, n);
        }
        for (t = 0; t < k4 * 4; t++) {
            for (c = 0; c < n16 * 16; c++) {
                int8_t got = packed[((c / 16 * k4 + t / 4) * 16 + c % 16) * 4 + t % 4];
                wrong += got != (t < steps && c < n ? x[t * stride + c] : 0);
            }
        }
        T_CHECK(wrong == 0, "%zux%zu: %zu values are wrong", steps, n, wrong);
        free(x);
        free(packed);
    }
}

static void test_sums(void)
{
    static const int8_t all[] = {-128, -127, -1, 0, 1, 127};
    int8_t values[256];
    size_t n, i, j;
    for (n = 0; n <= 256; n += 8) {
        for (j = 0; j < 8; j++) {
            int32_t sum = 0;
            for (i = 0; i < n; i++) {
                values[i] = j < sizeof all ? all[j] : fill_value(FILL_RANDOM, i + j * 256);
                sum += values[i];
            }
            T_CHECK(gm_sum(values, n) == sum, "%zu values: %d in place of %d", n,
                    (int)gm_sum(values, n), (int)sum);
        }
    }
}

/* ---- float ---- */

static void gm_check_float(const gm_kernels *kernels, size_t rows, size_t panels, size_t k)
{
    const size_t lda = k + next_random() % 3, ldc = panels * 16 + next_random() % 3;
    const size_t count = (rows - 1) * ldc + panels * 16;
    float *a = malloc((rows - 1) * lda * sizeof *a + k * sizeof *a);
    float *b = malloc(panels * k * 16 * sizeof *b), *c = malloc(count * sizeof *c);
    gm_float_product p;
    size_t m, n, i, wrong = 0;
    for (i = 0; i < (rows - 1) * lda + k; i++) {
        a[i] = random_float();
    }
    for (i = 0; i < panels * k * 16; i++) {
        b[i] = random_float();
    }
    for (i = 0; i < count; i++) {
        c[i] = 1234.0f;
    }
    p.c = c;
    p.ldc = ldc;
    p.a = a;
    p.lda = lda;
    p.rows = rows;
    p.b = b;
    p.k = k;
    p.panels = panels;
    kernels->ftile(&p);
    for (m = 0; m < rows; m++) {
        for (n = 0; n < panels * 16; n++) {
            volatile float sum = 0.0f, product; /* volatile: each step is rounded on its own */
            float result;
            for (i = 0; i < k; i++) {
                product = a[m * lda + i] * b[(n / 16 * k + i) * 16 + n % 16];
                sum = sum + product;
            }
            result = sum;
            wrong += memcmp(&result, &c[m * ldc + n], sizeof result) != 0;
        }
        for (n = panels * 16; n < ldc && m + 1 < rows; n++) {
            wrong += c[m * ldc + n] != 1234.0f;
        }
    }
    T_CHECK(wrong == 0, "%s: %zu rows, %zu panels, k %zu: %zu values differ",
            name_of(kernels), rows, panels, k, wrong);
    free(a);
    free(b);
    free(c);
}

static void test_float(void)
{
    static const size_t ks[] = {1, 2, 3, 5, 16, 63, 64, 100, 384, 1501};
    const gm_kernels *list[8];
    size_t n = kernel_list(list), i, j, rows, panels;
    for (i = 0; i < n; i++) {
        for (j = 0; j < sizeof ks / sizeof ks[0]; j++) {
            for (rows = 1; rows <= 9; rows++) {
                for (panels = 1; panels <= 3; panels++) {
                    gm_check_float(list[i], rows, panels, ks[j]);
                }
            }
        }
    }
}

static void gm_tests(void)
{
    t_run("products, every count of rows and panels", test_every_row_count);
    t_run("products, every depth", test_every_depth);
    t_run("products of extreme values", test_extremes);
    t_run("the deepest product", test_deepest);
    t_run("products that leave zeros out", test_zeros);
    t_run("corrections of run-time panels", test_corrections);
    t_run("rows of 16 bits", test_joined);
    t_run("rows of two digits: few groups apart, or both with all weights", test_digits);
    t_run("weights of attention, signed and unsigned", test_attention_weights);
    t_run("float products have one order", test_float);
    t_run("weights in 4 bits", test_int4);
    t_run("weights in 6 bits", test_int6);
    t_run("choice of kernels", test_select);
    t_run("weights and their padding", test_weights);
    t_run("rounding half to even", test_rounding);
    t_run("zeros, subnormals, NaN and infinities", test_odd_floats);
    t_run("sizes that overflow", test_carve_overflow);
    t_run("packing rows", test_pack_rows);
    t_run("packing the transpose", test_pack_steps);
    t_run("sums of bytes", test_sums);
}
