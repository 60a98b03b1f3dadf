/* test_npu.c - the accelerator through its seam on the simulated NPU.
 *
 *     test_npu [LIBSIM MAKE_PACK PACKS]
 *
 * (by default libsim_amdxdna.so, make_pack and packs in WNPU_BUILD, itself build by default; with
 * TEST_NPU_RUNS=N in the environment N runs with random faults) makes kernel packs, then starts
 * itself under the simulated device once for each machine (kernel version, device, pack, address
 * mode) and each accident, because the device reads its settings when a process starts. A child
 * checks results against three nested loops, that nothing is left on the device, that no rule of
 * the driver was broken and that no wait outlived its deadline. */
#include "npu_child.h"
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- the child's side ---- */

#define MAX_CHAIN 24
#define SENTINEL INT32_C(0x13579bdf)

static uint64_t random_state = 7;

static uint32_t next_random(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* One product with its data. */
typedef struct product {
    uint32_t shape, m, n, k;
    size_t lda, ldb, ldc;
    int8_t *a, *b;
    int own_a;
    int32_t *c;
    uint64_t weight;
    unsigned taken;
} product;

static void values(int8_t *to, size_t count)
{
    size_t i;
    for (i = 0; i < count; i++) {
        to[i] = (int8_t)((int)(next_random() % 255) - 127);
    }
}

static void make(product *p, const wnpu_accel_info *info, uint32_t shape, int whole,
                 const product *same_a)
{
    const wnpu_accel_shape *s = &info->shapes[shape];
    memset(p, 0, sizeof *p);
    p->shape = shape;
    p->m = whole ? s->m : 1 + next_random() % s->m;
    p->n = whole ? s->n : 1 + next_random() % s->n;
    p->k = whole ? s->k : 1 + next_random() % s->k;
    p->lda = whole ? p->k : p->k + next_random() % 5;
    if (same_a != NULL) {
        p->m = same_a->m;
        p->k = same_a->k;
        p->lda = same_a->lda;
        p->a = same_a->a;
    } else {
        p->a = malloc(p->m * p->lda);
        p->own_a = 1;
        values(p->a, p->m * p->lda);
    }
    p->ldb = p->k + (whole ? 0 : 3);
    p->b = malloc(p->n * p->ldb);
    values(p->b, p->n * p->ldb);
    p->ldc = p->n + (whole ? 0 : 2);
    p->c = malloc(p->m * p->ldc * sizeof *p->c);
}

static void unmake(product *p)
{
    if (p->own_a) {
        free(p->a);
    }
    free(p->b);
    free(p->c);
}

static void blank(product *p)
{
    size_t i;
    for (i = 0; i < p->m * p->ldc; i++) {
        p->c[i] = SENTINEL;
    }
    p->taken = 0;
}

static int untouched(const product *p)
{
    size_t i;
    for (i = 0; i < p->m * p->ldc; i++) {
        if (p->c[i] != SENTINEL) {
            return 0;
        }
    }
    return p->taken == 0;
}

/* The definition, on every row of small products and on some of large ones. -1: all right. */
static long wrong_row(const product *p)
{
    size_t step = (size_t)p->m * p->n * p->k > (size_t)16 << 20 ? 1 + p->m / 24 : 1, i, j, l;
    for (i = next_random() % step; i < p->m; i += step) {
        for (j = 0; j < p->n; j++) {
            int32_t sum = 0;
            for (l = 0; l < p->k; l++) {
                sum += p->a[i * p->lda + l] * p->b[j * p->ldb + l];
            }
            if (p->c[i * p->ldc + j] != sum) {
                return (long)i;
            }
        }
        for (j = p->n; j < p->ldc; j++) {
            if (p->c[i * p->ldc + j] != SENTINEL) {
                return (long)i;
            }
        }
    }
    return -1;
}

static void on_take(void *user, size_t index, const int32_t *c, size_t ldc)
{
    product *p = user;
    size_t i;
    (void)index;
    for (i = 0; i < p->m; i++) {
        memcpy(p->c + i * p->ldc, c + i * ldc, p->n * sizeof *c);
    }
    p->taken++;
}

static void fill(wnpu_accel_product *to, product *p, int take)
{
    memset(to, 0, sizeof *to);
    to->shape = p->shape;
    to->m = p->m;
    to->b = p->weight;
    to->a = p->a;
    to->lda = p->lda;
    to->c = take ? NULL : p->c;
    to->ldc = p->ldc;
    to->take = take ? on_take : NULL;
    to->user = p;
}

static int resident(wnpu_accel *accel, product *p, wnpu_error *error)
{
    return accel->resident(accel->self, p->shape, p->n, p->k, p->b, p->ldb, &p->weight, error);
}

static int timed_wait(wnpu_accel *accel, uint64_t job, int64_t ms, wnpu_error *error)
{
    return accel->wait(accel->self, job, now_ns() + ms * 1000000, error);
}

static wnpu_accel *open_or_die(const wnpu_amdxdna_config *config, wnpu_accel_info *info)
{
    wnpu_accel *accel = NULL;
    wnpu_error error = {0, ""};
    int code = wnpu_amdxdna_open(config, &accel, &error);
    check(code == WNPU_OK && accel != NULL, "opening: %d %s", code, error.message);
    if (code != WNPU_OK) {
        exit(1);
    }
    memset(info, 0, sizeof *info);
    info->struct_size = (uint32_t)sizeof *info;
    check(accel->describe(accel->self, info) == WNPU_OK, "describe");
    return accel;
}

/* Every shape: alone, in parts, in a full chain, two jobs at once. */
static void child_basic(const char *pack)
{
    wnpu_amdxdna_config config;
    wnpu_accel_info info;
    wnpu_accel_account account;
    wnpu_accel *accel;
    uint64_t fixed = 0, locked, expected;
    wnpu_accel_shape shapes[64];
    int n_shapes;
    uint32_t shape;
    configure(&config, pack);
    n_shapes = wnpu_amdxdna_memory(&config, shapes, 64, &fixed, NULL);
    accel = open_or_die(&config, &info);
    memset(&account, 0, sizeof account);
    account.struct_size = (uint32_t)sizeof account;
    check(n_shapes == (int)info.n_shapes, "%d shapes in the pack, %u offered", n_shapes,
          info.n_shapes);
    check(accel->account(accel->self, &account) == WNPU_OK && account.bytes_locked <= fixed &&
          account.bytes_locked == info.memory_fixed && account.jobs == 0, "locked %llu, said %llu",
          (unsigned long long)account.bytes_locked, (unsigned long long)fixed);
    locked = account.bytes_locked;
    expected = 0;
    for (shape = 0; shape < info.n_shapes; shape++) {
        product p[2 * MAX_CHAIN];
        wnpu_accel_product job[2][MAX_CHAIN];
        uint64_t id[2] = {0, 0};
        wnpu_error error = {0, ""};
        size_t count = info.max_chain, i, j;
        int code;
        for (i = 0; i < 2 * count; i++) {
            make(&p[i], &info, shape, i == 0, i > count && i % 2 == 0 ? &p[i - 1] : NULL);
            blank(&p[i]);
            code = resident(accel, &p[i], &error);
            check(code == WNPU_OK, "resident: %s", error.message);
            fill(&job[i / count][i % count], &p[i], i % 3 == 1);
            expected += info.shapes[shape].resident_bytes;
        }
        for (j = 0; j < 2; j++) {
            code = accel->submit(accel->self, job[j], j == 0 ? 1 : count, &id[j], &error);
            check(code == WNPU_OK, "submit: %s", error.message);
        }
        check(accel->submit(accel->self, job[0], 1, &id[0], &error) == WNPU_E_STATE,
              "a third job");
        check(accel->release(accel->self, p[0].weight) == WNPU_E_STATE, "released in flight");
        for (j = 2; j-- > 0;) { /* the later one first */
            code = timed_wait(accel, id[j], 5000, &error);
            check(code == WNPU_OK, "wait: %s", error.message);
        }
        check(timed_wait(accel, id[0], 10, &error) == WNPU_E_ARGUMENT, "waited twice");
        check(wrong_row(&p[0]) < 0, "shape %u: row %ld alone", shape, wrong_row(&p[0]));
        for (i = count; i < 2 * count; i++) {
            check(wrong_row(&p[i]) < 0, "shape %u, product %zu, %u x %u x %u: row %ld", shape, i,
                  p[i].m, p[i].n, p[i].k, wrong_row(&p[i]));
            check(p[i].taken == (i % 3 == 1), "taken %u times", p[i].taken);
        }
        check(accel->account(accel->self, &account) == WNPU_OK &&
              account.bytes_locked == locked + expected, "locked %llu, expected %llu more",
              (unsigned long long)(account.bytes_locked - locked), (unsigned long long)expected);
        for (i = 0; i < 2 * count; i++) {
            check(accel->release(accel->self, p[i].weight) == WNPU_OK, "release");
            check(accel->release(accel->self, p[i].weight) == WNPU_E_ARGUMENT, "released twice");
            unmake(&p[i]);
            expected -= info.shapes[shape].resident_bytes;
        }
        check(account.jobs == 2 * (shape + 1u) && account.failures == 0 &&
              account.products == (shape + 1u) * (1 + count), "account");
    }
    check(accel->health(accel->self) == WNPU_ACCEL_OK, "health");
    wnpu_amdxdna_close(accel);
    check_clean("closed");
}

/* Whatever happens at any call, products come out right or not at all, and the device is left
 * clean. rounds jobs; an accelerator that is off is opened anew. */
static void child_faults(const char *pack, int rounds, int64_t deadline_ms)
{
    wnpu_amdxdna_config config;
    wnpu_accel_info info;
    wnpu_accel *accel = NULL;
    wnpu_error error = {0, ""};
    int round, good = 0, failed = 0, wrong = 0, opens = 0, probes = 0;
    char first[300] = "";
    configure(&config, pack);
    config.test_ms = 300;
    for (round = 0; round < rounds; round++) {
        product p[2];
        wnpu_accel_product job[2];
        uint64_t id = 0;
        int i, code = WNPU_OK;
        if (accel == NULL) {
            opens++;
            code = wnpu_amdxdna_open(&config, &accel, &error);
            check((code == WNPU_OK) == (accel != NULL), "open answers %d", code);
            if (code != WNPU_OK) {
                check(error.message[0] != '\0', "no reason for %d", code);
                failed++;
                continue;
            }
            memset(&info, 0, sizeof info);
            info.struct_size = (uint32_t)sizeof info;
            (void)accel->describe(accel->self, &info);
        }
        if (accel->health(accel->self) == WNPU_ACCEL_SUSPECT) {
            struct timespec pause = {0, 6000000};
            (void)nanosleep(&pause, NULL);
        }
        if (accel->health(accel->self) == WNPU_ACCEL_PROBE) {
            probes++;
            (void)accel->probe(accel->self, now_ns() + deadline_ms * 1000000, &error);
        }
        if (accel->health(accel->self) == WNPU_ACCEL_OFF) {
            wnpu_amdxdna_close(accel);
            accel = NULL;
            continue;
        }
        make(&p[0], &info, next_random() % info.n_shapes, 0, NULL);
        make(&p[1], &info, p[0].shape, 0, &p[0]);
        for (i = 0; i < 2; i++) {
            blank(&p[i]);
            code = code == WNPU_OK ? resident(accel, &p[i], &error) : code;
            fill(&job[i], &p[i], i);
        }
        code = code == WNPU_OK ? accel->submit(accel->self, job, info.max_chain < 2 ? 1 : 2, &id,
                                               &error) : code;
        code = code == WNPU_OK ? timed_wait(accel, id, deadline_ms, &error) : code;
        if (code != WNPU_OK) {
            failed++;
            check(error.message[0] != '\0', "no reason for %d", code);
            check(untouched(&p[0]) && untouched(&p[1]), "a failed job wrote its results");
        } else if (wrong_row(&p[0]) >= 0 || (info.max_chain >= 2 && wrong_row(&p[1]) >= 0)) {
            wrong++;
            accel->distrust(accel->self, "checksum");
        } else {
            good++;
        }
        for (i = 0; i < 2; i++) {
            if (p[i].weight != 0) {
                (void)accel->release(accel->self, p[i].weight);
            }
            unmake(&p[i]);
        }
    }
    if (accel != NULL) {
        wnpu_accel_account account;
        memset(&account, 0, sizeof account);
        account.struct_size = (uint32_t)sizeof account;
        (void)accel->account(accel->self, &account);
        snprintf(first, sizeof first, "%s", account.first_failure);
        check(account.failures == 0 || first[0] != '\0', "failures without a first reason");
        wnpu_amdxdna_close(accel);
    }
    check_clean("after faults");
    check_patience((double)deadline_ms);
    check_fired();
    printf("    %d good, %d failed, %d wrong, %d opened, %d probes; first: %s\n", good, failed,
           wrong, opens, probes, first);
}

/* A forked child may not use what its parent opened, and does no harm when it closes it. */
static void child_fork(const char *pack)
{
    wnpu_amdxdna_config config;
    wnpu_accel_info info;
    wnpu_error error = {0, ""};
    wnpu_accel *accel;
    wnpu_accel_product job;
    uint64_t id = 0;
    product p;
    int status = 0;
    pid_t pid;
    configure(&config, pack);
    accel = open_or_die(&config, &info);
    make(&p, &info, 0, 0, NULL);
    blank(&p);
    check(resident(accel, &p, &error) == WNPU_OK, "resident: %s", error.message);
    fill(&job, &p, 0);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        int ok = accel->submit(accel->self, &job, 1, &id, &error) == WNPU_E_STATE &&
                 accel->health(accel->self) == WNPU_ACCEL_OFF &&
                 accel->wait(accel->self, 0, 0, &error) == WNPU_E_STATE &&
                 accel->release(accel->self, p.weight) == WNPU_E_STATE;
        wnpu_amdxdna_close(accel);
        _exit(ok ? 0 : 1);
    }
    check(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0,
          "the child was not refused (%d)", status);
    /* Up to 6.19 the child's exit ends our contexts: a failure is legal there, a hang is not. */
    if (accel->submit(accel->self, &job, 1, &id, &error) == WNPU_OK) {
        int code = timed_wait(accel, id, 500, &error);
        const char *kernel = getenv("SIM_AMDXDNA_KERNEL");
        check(code == WNPU_OK || (kernel != NULL && kernel[0] == '6'), "after fork: %s",
              error.message);
        check(code != WNPU_OK || wrong_row(&p) < 0, "after fork: row %ld", wrong_row(&p));
    }
    unmake(&p);
    wnpu_amdxdna_close(accel);
    check_clean("after fork");
}

/* memory_limit is kept to the byte, and the accelerator goes on. */
static void child_limit(const char *pack)
{
    wnpu_amdxdna_config config;
    wnpu_accel_info info;
    wnpu_error error = {0, ""};
    wnpu_accel *accel = NULL;
    wnpu_accel_shape shapes[64];
    uint64_t fixed = 0, one;
    product p;
    int i;
    configure(&config, pack);
    check(wnpu_amdxdna_memory(&config, shapes, 64, &fixed, &error) > 0, "%s", error.message);
    config.memory_limit = 1 << 20;
    check(wnpu_amdxdna_open(&config, &accel, &error) == WNPU_E_MEMORY && accel == NULL, "1 MiB: %s",
          error.message);
    one = shapes[0].resident_bytes;
    config.memory_limit = 0;
    accel = open_or_die(&config, &info);
    fixed = info.memory_fixed;
    wnpu_amdxdna_close(accel);
    config.memory_limit = fixed + 3 * one - 1;
    accel = open_or_die(&config, &info);
    make(&p, &info, 0, 0, NULL);
    for (i = 0; i < 4; i++) {
        int code = resident(accel, &p, &error);
        check(code == (i < 2 ? WNPU_OK : WNPU_E_MEMORY), "weight %d: %d", i, code);
    }
    unmake(&p);
    wnpu_amdxdna_close(accel);
    check_clean("limits");
}

/* The only job so far hangs, or the firmware stops with it. Every call returns in its time, and within
 * TEST_NPU_SECONDS the NPU works again. */
static void child_hang(const char *pack)
{
    const char *seconds = getenv("TEST_NPU_SECONDS");
    wnpu_amdxdna_config config;
    wnpu_accel_info info;
    wnpu_error error = {0, ""};
    wnpu_accel *accel;
    wnpu_accel_product job;
    int64_t begin;
    uint64_t id = 0;
    int code, probes = 0;
    product p;
    configure(&config, pack);
    config.cooldown_ms = 50;
    accel = open_or_die(&config, &info);
    make(&p, &info, 0, 1, NULL);
    blank(&p);
    code = resident(accel, &p, &error);
    fill(&job, &p, 0);
    begin = now_ns();
    code = code == WNPU_OK ? accel->submit(accel->self, &job, 1, &id, &error) : code;
    check(code == WNPU_OK && timed_wait(accel, id, 200, &error) != WNPU_OK && untouched(&p),
          "the fault is not seen: %s", error.message);
    check_fired();
    while (accel->health(accel->self) != WNPU_ACCEL_OK &&
           now_ns() - begin < (int64_t)(atof(seconds) * 1e9)) {
        struct timespec nap = {0, 5000000};
        if (accel->health(accel->self) != WNPU_ACCEL_PROBE) {
            (void)nanosleep(&nap, NULL);
            continue;
        }
        probes++;
        (void)accel->probe(accel->self, now_ns() + 500000000, &error);
    }
    check(accel->health(accel->self) == WNPU_ACCEL_OK, "after %.1f s and %d probes: %s",
          (double)(now_ns() - begin) * 1e-9, probes, error.message);
    printf("    works again after %.2f s, %d probes\n", (double)(now_ns() - begin) * 1e-9, probes);
    check(accel->submit(accel->self, &job, 1, &id, &error) == WNPU_OK &&
          timed_wait(accel, id, 1000, &error) == WNPU_OK && wrong_row(&p) < 0, "the next job: %s",
          error.message);
    unmake(&p);
    wnpu_amdxdna_close(accel);
    check_patience(1000.0); /* the self-tests at opening */
    check_clean("after a hang");
}

#define ARRAY_TEXT 16384

/* Collects what a diagnosis says of the array. */
static void log_array(void *user, wnpu_log_level level, const char *text)
{
    static size_t used;
    char *to = user;
    (void)level;
    if (strncmp(text, "array: ", 7) == 0 && used + strlen(text) + 2 < ARRAY_TEXT) {
        used += (size_t)sprintf(to + used, "%s\n", text);
    }
}

/* The doctor on a live device. TEST_NPU_ARRAY: parts of what it tells of the array, separated by
 * "|"; without it nothing may be told. */
static void child_doctor(const char *pack)
{
    static char array[ARRAY_TEXT];
    char parts[400];
    wnpu_amdxdna_config config;
    wnpu_amdxdna_diagnosis d;
    const char *want = getenv("TEST_NPU_CAUSE"), *words = getenv("TEST_NPU_WORDS");
    const char *rungs = getenv("TEST_NPU_RUNGS");
    configure(&config, strcmp(pack, "-") == 0 ? NULL : pack);
    config.log = log_array;
    config.log_user = array;
    memset(&d, 0, sizeof d);
    d.struct_size = (uint32_t)sizeof d;
    snprintf(parts, sizeof parts, "%s", getenv("TEST_NPU_ARRAY") != NULL ? getenv("TEST_NPU_ARRAY") : "");
    check(wnpu_amdxdna_diagnose(&config, &d) == WNPU_OK, "diagnose");
    check(strcmp(wnpu_amdxdna_cause_name(d.cause), want) == 0, "%s instead of %s: %s | %s",
          wnpu_amdxdna_cause_name(d.cause), want, d.message, d.cure);
    check(words == NULL || strstr(d.message, words) != NULL, "no \"%s\" in: %s", words, d.message);
    check(rungs == NULL || (int)d.rungs == atoi(rungs), "%u rungs instead of %s", d.rungs, rungs);
    check(strstr(d.message, "npu_doctor") == NULL, "advice to run what runs: %s", d.message);
    check(parts[0] != '\0' || array[0] == '\0', "the array without a reason: %s", array);
    for (char *part = strtok(parts, "|"); part != NULL; part = strtok(NULL, "|")) {
        check(strstr(array, part) != NULL, "no \"%s\" in: %s", part, array);
    }
    check_clean("doctor");
}

static int child(int argc, char **argv)
{
    if (argc < 4) {
        return 2;
    }
    if (strcmp(argv[2], "basic") == 0) {
        child_basic(argv[3]);
    } else if (strcmp(argv[2], "fork") == 0) {
        child_fork(argv[3]);
    } else if (strcmp(argv[2], "limit") == 0) {
        child_limit(argv[3]);
    } else if (strcmp(argv[2], "hang") == 0) {
        child_hang(argv[3]);
    } else if (strcmp(argv[2], "doctor") == 0) {
        child_doctor(argv[3]);
    } else if (strcmp(argv[2], "faults") == 0 && argc == 6) {
        child_faults(argv[3], atoi(argv[4]), atoi(argv[5]));
    } else {
        return 2;
    }
    return bad > 0;
}

/* ---- the parent's side ---- */

#define NPU1_SHAPES "--shape 512x128x64 --shape 512x256x192 --shape 1024x128x128"
#define NPU4_SHAPES "--shape 512x256x64 --shape 512x512x192 --shape 1024x256x128"

static void make_packs(void)
{
    static const struct { const char *name, *options; } packs[] = {
        {"npu1-i8", "--device npu1 --dtype i8 " NPU1_SHAPES},
        {"npu1-i16", "--device npu1 --dtype i16 " NPU1_SHAPES},
        {"npu1-kn", "--device npu1 --dtype i16 --b-layout kn " NPU1_SHAPES},
        {"npu1-baked", "--device npu1 --dtype i8 --baked " NPU1_SHAPES},
        {"npu1-pdi", "--device npu1 --dtype i8 --pdi " NPU1_SHAPES},
        {"npu4-i8", "--device npu2 --dtype i8 " NPU4_SHAPES},
        {"npu4-i16", "--device npu2 --dtype i16 " NPU4_SHAPES}
    };
    size_t i;
    for (i = 0; i < sizeof packs / sizeof packs[0]; i++) {
        make_pack(packs[i].name, packs[i].options);
    }
}

static void test_machines(void)
{
    static const char *const kernels[] = {"6.16", "6.17", "6.18", "6.19", "7.0", "7.1", "7.2",
                                          "7.3", "legacy"};
    char environment[200], arguments[300];
    size_t i;
    for (i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        snprintf(environment, sizeof environment, "SIM_AMDXDNA_KERNEL=%s", kernels[i]);
        snprintf(arguments, sizeof arguments, "basic %s/npu1-i8", packs_path);
        T_CHECK(run(environment, arguments) == 0, "npu1 on %s", kernels[i]);
        snprintf(environment, sizeof environment,
                 "SIM_AMDXDNA_KERNEL=%s SIM_AMDXDNA_DEVICE=npu4", kernels[i]);
        snprintf(arguments, sizeof arguments, "basic %s/npu4-i8", packs_path);
        T_CHECK(run(environment, arguments) == 0, "npu4 on %s", kernels[i]);
    }
}

static void test_packs(void)
{
    static const struct { const char *environment, *pack; } cases[] = {
        {"", "npu1-i16"}, {"", "npu1-kn"}, {"", "npu1-baked"}, {"", "npu1-pdi"},
        {"SIM_AMDXDNA_DEVICE=npu4", "npu4-i16"},
        {"SIM_AMDXDNA_ADDRESS=iova", "npu1-i8"},
        {"SIM_AMDXDNA_ADDRESS=iova SIM_AMDXDNA_DEVICE=npu4", "npu4-i8"},
        {"SIM_AMDXDNA_CACHE=syncbo", "npu1-i8"},
        {"SIM_AMDXDNA_CACHE=syncbo SIM_AMDXDNA_KERNEL=6.16", "npu1-i8"},
        {"SIM_AMDXDNA_CACHE=off", "npu1-i8"}, /* real CLFLUSH */
        {"SIM_AMDXDNA_PROTOCOL=5.7", "npu1-i8"},
        {"SIM_AMDXDNA_PROTOCOL=6.12 SIM_AMDXDNA_DEVICE=npu4", "npu4-i8"}
    };
    char arguments[300];
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(arguments, sizeof arguments, "basic %s/%s", packs_path, cases[i].pack);
        T_CHECK(run(cases[i].environment, arguments) == 0, "%s %s", cases[i].environment,
                cases[i].pack);
    }
}

static void test_fork(void)
{
    static const char *const kernels[] = {"6.18", "7.2"};
    char environment[100], arguments[300];
    size_t i;
    for (i = 0; i < 2; i++) {
        snprintf(environment, sizeof environment, "SIM_AMDXDNA_KERNEL=%s", kernels[i]);
        snprintf(arguments, sizeof arguments, "fork %s/npu1-i8", packs_path);
        T_CHECK(run(environment, arguments) == 0, "%s", kernels[i]);
    }
}

static void test_limit(void)
{
    char arguments[300];
    snprintf(arguments, sizeof arguments, "limit %s/npu1-i8", packs_path);
    T_CHECK(run("", arguments) == 0, "memory_limit");
}

static void test_accidents(void)
{
    /* Commands from 30 on come after the self-tests: 15 of them, 21 where none is chained. */
    static const char *const faults[] = {
        "exec=30:timeout", "exec=30:state5", "exec=31:state6", "exec=30:state8", "exec=30:lost",
        "exec=30:slow=100", "exec=30:slow=900", "exec=30:fw=0x1000004", "result=30:flipbit",
        "result=30:zero", "result=30:skip", "suspend=31", "gone=200", "wait=30:EINVAL",
        "wait=30+:ENODEV", "ioctl=EXEC_CMD:30:EINVAL", "ioctl=EXEC_CMD:30+:ENODEV",
        "ioctl=CREATE_BO:30:ENOMEM", "ioctl=GET_BO_INFO:30:ENOENT", "mmap=30:EAGAIN",
        "ioctl=CREATE_HWCTX:1:EINVAL", "ioctl=CREATE_HWCTX:1:EAGAIN", "ioctl=CONFIG_HWCTX:1:EINVAL",
        "open=1:EACCES", "ioctl=VERSION:1:EIO", "ioctl=GET_INFO:1:EINVAL", "exec=1:timeout",
        "result=1:flipbit", "result=2:skip", "exec=3:state5", "ioctl=EXEC_CMD:5:EINTR",
        "exec=30:state5;exec=31:state6;exec=32:lost"
    };
    static const char *const kernels[] = {"6.17", "6.18", "6.19", "7.2"};
    char environment[300], arguments[300];
    size_t i, j;
    for (i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        for (j = 0; j < sizeof kernels / sizeof kernels[0]; j++) {
            int ordered = 1;
            const char *at;
            for (at = faults[i]; *at != '\0'; at++) {
                ordered += *at == ';';
            }
            snprintf(environment, sizeof environment, "SIM_AMDXDNA_KERNEL=%s TEST_NPU_FAULTS=%d "
                     "SIM_AMDXDNA_TIMESCALE=0.05 SIM_AMDXDNA_FAULT='%s'%s", kernels[j], ordered,
                     faults[i], strncmp(faults[i], "gone", 4) == 0 ? " TEST_NPU_GONE=1" : "");
            snprintf(arguments, sizeof arguments, "faults %s/npu1-i8 24 300", packs_path);
            T_CHECK(run(environment, arguments) == 0, "%s on %s", faults[i], kernels[j]);
        }
    }
}

static void test_random(void)
{
    const char *rounds = getenv("TEST_NPU_RUNS");
    int n = rounds != NULL ? atoi(rounds) : 60, i;
    char environment[300], arguments[300];
    for (i = 0; i < n; i++) {
        snprintf(environment, sizeof environment, "SIM_AMDXDNA_KERNEL=%s "
                 "SIM_AMDXDNA_TIMESCALE=0.05 SIM_AMDXDNA_FAULT='random:%d:0.%03d'",
                 i % 3 == 0 ? "6.18" : i % 3 == 1 ? "7.1" : "7.2", i + 1, 1 + i % 20);
        snprintf(arguments, sizeof arguments, "faults %s/npu1-i8 16 300", packs_path);
        T_CHECK(run(environment, arguments) == 0, "seed %d", i + 1);
    }
}

#define BUILT_IN "SIM_AMDXDNA_CORES=built-in "
#define LADDER BUILT_IN "TEST_NPU_CAUSE=kernel-hangs SIM_AMDXDNA_TIMESCALE=0.1 "

#define STALL "TEST_NPU_CAUSE=kernel-hangs TEST_NPU_RUNGS=1 SIM_AMDXDNA_FAULT=result=2:stall "

static void test_live_doctor(void)
{
    static const struct { const char *environment, *pack; } cases[] = {
        {BUILT_IN "TEST_NPU_CAUSE=fine TEST_NPU_RUNGS=3", "-"},
        {BUILT_IN "TEST_NPU_CAUSE=fine TEST_NPU_RUNGS=3 SIM_AMDXDNA_DEVICE=npu4", "-"},
        {LADDER "TEST_NPU_RUNGS=0 TEST_NPU_WORDS='Rung 1 of 3 (locks and DMA) hangs, it is not slow' "
            "SIM_AMDXDNA_FAULT=exec=1:timeout", "-"},
        {LADDER "TEST_NPU_RUNGS=1 TEST_NPU_WORDS='Rung 2 of 3 (scalar code) hangs' "
            "SIM_AMDXDNA_FAULT=exec=2:timeout SIM_AMDXDNA_DEVICE=npu4", "-"},
        {LADDER "TEST_NPU_RUNGS=2 TEST_NPU_WORDS='gemm-512x512x512 hangs, it is not slow' "
            "SIM_AMDXDNA_FAULT=exec=3:timeout", "-"},
        {BUILT_IN "TEST_NPU_CAUSE=kernel-hangs TEST_NPU_RUNGS=1 TEST_NPU_WORDS='Rung 2 of 3 (scalar "
            "code) is slow, it does not hang' SIM_AMDXDNA_FAULT=exec=2:slow=1500", "-"},
        {BUILT_IN "TEST_NPU_CAUSE=self-test TEST_NPU_RUNGS=1 TEST_NPU_WORDS='Rung 2 of 3 (scalar code) "
            "hands over wrong data' SIM_AMDXDNA_FAULT=result=2:skip", "-"},
        {STALL "TEST_NPU_ARRAY='array: column 1 row 2: core 201 (enabled lock-east) pc |"
            "array: column 1 row 1: in0 1080006 (waits-lock runs) |(waits-stream runs)|lock0 3'", "-"},
        {STALL "SIM_AMDXDNA_DEVICE=npu4 TEST_NPU_ARRAY='array: column 0 row 2: core 201 (enabled |"
            "array: column 0 row 0: in0 4080012 (waits-stream runs)'", "-"},
        {STALL "SIM_AMDXDNA_LAYOUT=odd TEST_NPU_ARRAY='array: byte 0: 00080006 04080006 |"
            "array: byte 32: 00000000 00000000 00000000 00000000 00000201 '", "-"},
        {BUILT_IN "TEST_NPU_CAUSE=fine SIM_AMDXDNA_DEVICE=npu4 SIM_AMDXDNA_COLUMNS=1", "-"},
        {BUILT_IN "TEST_NPU_CAUSE=context-refused SIM_AMDXDNA_COLUMNS=1", "-"},
        {BUILT_IN "TEST_NPU_CAUSE=self-test SIM_AMDXDNA_FAULT='result=*:flipbit'", "-"},
        {"TEST_NPU_CAUSE=fine", "npu1-i8"},
        {"TEST_NPU_CAUSE=pack-device", "npu4-i8"},
        {"TEST_NPU_CAUSE=pack-device SIM_AMDXDNA_DEVICE=npu4", "npu1-i8"},
        {"TEST_NPU_CAUSE=permission SIM_AMDXDNA_FAULT=open=EACCES", "npu1-i8"},
        {"TEST_NPU_CAUSE=context-refused "
            "SIM_AMDXDNA_FAULT=ioctl=CREATE_HWCTX:1+:EINVAL", "npu1-i8"},
        {"TEST_NPU_CAUSE=context-refused SIM_AMDXDNA_FAULT=ioctl=CREATE_HWCTX:1+:EINVAL", "-"},
        {"TEST_NPU_CAUSE=contexts SIM_AMDXDNA_FAULT=ioctl=CREATE_HWCTX:1+:EBUSY", "-"},
        {"TEST_NPU_CAUSE=config-refused SIM_AMDXDNA_FAULT=ioctl=CONFIG_HWCTX:1+:EINVAL", "-"},
        {"TEST_NPU_CAUSE=kernel-hangs SIM_AMDXDNA_FAULT=exec=1:timeout", "npu1-i8"},
        {"TEST_NPU_CAUSE=kernel-hangs TEST_NPU_WORDS=' is slow, it does not hang' "
            "SIM_AMDXDNA_FAULT=exec=1:slow=1500", "npu1-i8"},
        {"TEST_NPU_CAUSE=device-gone SIM_AMDXDNA_TIMESCALE=0.1 "
            "SIM_AMDXDNA_FAULT=exec=1:dead", "npu1-i8"},
        {"TEST_NPU_CAUSE=memory SIM_AMDXDNA_FAULT=mmap=1+:ENOMEM", "npu1-i8"},
        {"TEST_NPU_CAUSE=memlock SIM_AMDXDNA_FAULT=mmap=1+:EAGAIN", "npu1-i8"},
        {"TEST_NPU_CAUSE=self-test SIM_AMDXDNA_FAULT='result=*:flipbit'", "npu1-i8"},
        {"TEST_NPU_CAUSE=device-gone SIM_AMDXDNA_FAULT='ioctl=GET_INFO:1+:ENODEV'", "npu1-i8"},
        {"TEST_NPU_CAUSE=pack-missing", "nowhere"}
    };
    char arguments[300];
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(arguments, sizeof arguments, "doctor %s%s%s",
                 cases[i].pack[0] == '-' ? "" : packs_path, cases[i].pack[0] == '-' ? "" : "/",
                 cases[i].pack);
        T_CHECK(run(cases[i].environment, arguments) == 0, "%s %s", cases[i].environment,
                cases[i].pack);
    }
}

/* Watchdogs of 60 s (up to Linux 7.1) and none; firmware that stops or whose channel breaks. The npu1-i8
 * pack has three kernels, tested by 15 commands. */
static void test_hangs(void)
{
    static const char *const cases[] = {
        "SIM_AMDXDNA_FAULT=exec=16:timeout SIM_AMDXDNA_KERNEL=6.18 TEST_NPU_SECONDS=50",
        "SIM_AMDXDNA_FAULT=exec=16:timeout SIM_AMDXDNA_KERNEL=7.1 SIM_AMDXDNA_WATCHDOG=0 "
            "TEST_NPU_SECONDS=300",
        "SIM_AMDXDNA_FAULT=exec=16:timeout SIM_AMDXDNA_KERNEL=7.2 SIM_AMDXDNA_TIMESCALE=0.2 "
            "SIM_AMDXDNA_REBUILD=30 SIM_AMDXDNA_UNREADY=20 TEST_NPU_SECONDS=300",
        "SIM_AMDXDNA_FAULT=exec=16:dead SIM_AMDXDNA_TIMESCALE=0.05 TEST_NPU_SECONDS=300",
        "SIM_AMDXDNA_FAULT=exec=16:broken SIM_AMDXDNA_TIMESCALE=0.05 TEST_NPU_SECONDS=300"
    };
    char environment[400], arguments[300];
    size_t i;
    snprintf(arguments, sizeof arguments, "hang %s/npu1-i8", packs_path);
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(environment, sizeof environment, "%s TEST_NPU_FAULTS=1", cases[i]);
        T_CHECK(run(environment, arguments) == 0, "%s", cases[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--child") == 0) {
        return child(argc, argv);
    }
    if (find_paths(argc, argv) != 0) {
        return 2;
    }
    t_run("make packs", make_packs);
    t_run("machines", test_machines);
    t_run("packs", test_packs);
    t_run("fork", test_fork);
    t_run("limit", test_limit);
    t_run("live doctor", test_live_doctor);
    t_run("hangs and dead firmware", test_hangs);
    t_run("accidents", test_accidents);
    t_run("random faults", test_random);
    return t_end();
}
