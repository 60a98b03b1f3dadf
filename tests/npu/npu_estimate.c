/* npu_estimate.c - how long would a recording take with an NPU? A model, not a measurement: the
 * CPU's part is measured on this machine, the NPU's is what the simulated device's clock says (for the
 * built-in kernels, --pack auto, the cycles that their machine code takes, else public figures; the
 * time of submissions and the bandwidth of host memory are public figures, sim_engine.c), and both are laid beside each other in the order in which the
 * library submits and waits.
 *
 *     SIM_AMDXDNA_CACHE=off SIM_AMDXDNA_CLOCK=cycles SIM_AMDXDNA_CORES=built-in \
 *         LD_PRELOAD=build/libsim_amdxdna.so build/npu_estimate --pack auto|DIR --model FILE [--threads N] [--isa NAME] [--all]
 *         [--runs N] WAV
 *
 * (make npu-estimate does that for both devices.) The encoder's part of one window is run again and
 * again, and so is the recording on the CPU. The NPU's time is a range, see devices[] below. Each
 * stretch of the CPU's work between two calls of the accelerator, and each stage of the CPU's, counts with its shortest time: that is what the
 * machine can do when nobody else wants it. What medians give is told beside it; where the two are
 * far apart, the machine was busy. A job is computed by the simulator at once when it is submitted,
 * outside of these stretches, so that it does not take CPU time from them. Its results are then
 * evicted from the caches: the library finds them in memory, as it would behind a device. What that
 * does not show is added by the byte: copying rows to the device's buffers and flushing caches,
 * measure_copies(). Decoder and log-mel are measured in whole runs on the CPU.
 */
#include "../../whisper_npu.c"
#include "../lib/machine.h"
#include "sim_amdxdna.h"
#include <dlfcn.h>
#include <fcntl.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <sys/mman.h>
#include <sys/stat.h>

#define MAX_JOBS 16u
#define MAX_EVENTS 8192u
#define MAX_RUNS 32u            /* of the recording; of the encoder four times as many */
#define MAX_TIMES (4 * MAX_RUNS)

typedef struct job {
    int used;
    size_t count, event;        /* event: of its submission */
    wnpu_accel_product product[NP_CHAIN];
    int32_t *c[NP_CHAIN];       /* results */
    size_t ldc[NP_CHAIN];
} job;

/* A call of the accelerator and the CPU's work before it. */
typedef struct event {
    double cpu_us[MAX_TIMES];   /* in each run */
    int is_wait;
    unsigned stage;
    size_t of;                  /* of a wait: the event of the submission */
    double compute_us, memory_us, switch_us; /* of a submission, by the simulated device's figures */
    unsigned products;
    uint64_t in, out;           /* bytes copied there; bytes of results */
    double end_us;
} event;

/* An accelerator in front of the real one, and what it saw. */
static struct {
    wnpu_accel seam;
    wnpu_accel *real;
    wnpu_accel_info info;
    wnpu_accel_shape shapes[64];
    job jobs[MAX_JOBS];
    job *capturing;
    const np_bridge *bridge;
    event events[MAX_EVENTS + 1];
    size_t n, most;             /* events of this run so far, of the first run */
    size_t runs;
    int clflushopt;
    double last_us;             /* end of the last thing that does not count */
    double in_us_byte, out_us_byte; /* measured */
    size_t (*sim_stats)(void *to, size_t size);
} e;

static double real_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static sim_amdxdna_stats_v1 device_stats(void)
{
    sim_amdxdna_stats_v1 s;
    memset(&s, 0, sizeof s);
    e.sim_stats(&s, sizeof s);
    return s;
}

/* What is not known until hardware has run it, as ranges: best and worst case of the clock, a
 * submission, each further product of a chain, the execution of a product's instruction stream, and the
 * share by which stalls (host memory's latency, DMA queues) exceed what is counted. Hawk Point's NPU1
 * is clocked at 1.6 GHz by the driver's highest level, Phoenix's makes its published 10 TOPS at 1.0; an
 * empty job takes 100 to 150 us through the ioctl on NPU1 (275 through XRT), each further one 48
 * (tibrezus/xdna-npu-toolkit).
 * 1.8 GHz, 59 us, 20 to 25 us, stalls of 25 to 40 % and streams (50 us for 11 to 14 KB, 150 for 51;
 * ours have 4 to 5) were measured on an NPU5 by hipfire's pm-npu; stalls and streams are taken to be
 * the same on NPU1. */
enum { BEST, WORST, CASES };
static const struct {
    const char *name;
    double counted_ghz;         /* at which the simulated device states its time */
    double ghz[CASES], first_us[CASES], chained_us[CASES], stream_us[CASES], stalls[CASES];
} devices[2] = {
    {"NPU1 (1.6 GHz Hawk Point, 1.0 Phoenix; 100 to 150 us a job)", 1.0, {1.6, 1.0}, {100, 150},
     {48, 48}, {13, 18}, {0.25, 0.40}},
    {"NPU4 (1.8 GHz; 59 us a job, 20 to 25 each further product)", 1.8, {1.8, 1.8}, {59, 59},
     {20, 25}, {15, 21}, {0.25, 0.40}}
};

static int is_npu4(void)
{
    return strstr(e.info.name, "NPU1") == NULL;
}

/* Microseconds of a submission. */
static double device_us(const event *v, int which)
{
    int d = is_npu4();
    double compute = v->compute_us * devices[d].counted_ghz / devices[d].ghz[which];
    double busy = compute > v->memory_us ? compute : v->memory_us;
    return devices[d].first_us[which] + (v->products - 1) * devices[d].chained_us[which] +
           v->products * devices[d].stream_us[which] +
           busy * (1.0 + devices[d].stalls[which]) + v->switch_us;
}

#if defined(__x86_64__)
/* CLFLUSH would do, but on some CPUs it takes longer than all the rest. */
__attribute__((target("clflushopt")))
static void evict(void *data, size_t size)
{
    size_t i;
    for (i = 0; i < size; i += 64) {
        if (e.clflushopt) {
            _mm_clflushopt((char *)data + i);
        } else {
            _mm_clflush((char *)data + i);
        }
    }
    _mm_mfence();
}

static int has_clflushopt(void)
{
    unsigned a, b = 0, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 23) != 0;
}
#else
static void evict(void *data, size_t size)
{
    (void)data;
    (void)size;
}

static int has_clflushopt(void)
{
    return 0;
}
#endif

/* The shortest of n times, or their median. */
static double time_of(const double *times, size_t n, int of_medians)
{
    double sorted[MAX_TIMES];
    memcpy(sorted, times, n * sizeof *times);
    qsort(sorted, n, sizeof *sorted, by_value);
    return of_medians ? median(sorted, n) : sorted[0];
}

/* The CPU has worked until now, and calls. */
static event *work(int is_wait, unsigned stage)
{
    double us = real_us() - e.last_us;
    event *v = &e.events[e.n < MAX_EVENTS ? e.n++ : MAX_EVENTS];
    v->cpu_us[e.runs] = us;
    if (e.runs > 0 && (v->is_wait != is_wait || v->stage != stage)) {
        fprintf(stderr, "npu_estimate: runs differ\n");
        exit(1);
    }
    v->is_wait = is_wait;
    v->stage = stage;
    return v;
}

static void capture(void *user, size_t index, const int32_t *c, size_t ldc)
{
    job *j = e.capturing;
    size_t bytes = (size_t)j->product[index].m * ldc * sizeof *c;
    (void)user;
    j->c[index] = realloc(j->c[index], bytes);
    memcpy(j->c[index], c, bytes);
    evict(j->c[index], bytes);
    j->ldc[index] = ldc;
    e.events[j->event].out += bytes;
}

static int on_submit(void *self, const wnpu_accel_product *products, size_t count, uint64_t *id,
                     wnpu_error *error)
{
    wnpu_accel_product copy[NP_CHAIN];
    wnpu_accel_account before, after;
    event *v = work(0, e.bridge->queue[0]->stage);
    sim_amdxdna_stats_v1 then = device_stats(), now;
    uint64_t inner = 0;
    size_t i, at = 0;
    job *j;
    int code;
    (void)self;
    while (e.jobs[at].used) {
        at++;
    }
    j = &e.jobs[at];
    j->used = 1;
    j->count = count;
    j->event = (size_t)(v - e.events);
    for (i = 0; i < count; i++) {
        j->product[i] = copy[i] = products[i];
        copy[i].take = capture;
    }
    memset(&before, 0, sizeof before);
    before.struct_size = (uint32_t)sizeof before;
    after = before;
    e.real->account(e.real->self, &before);
    e.capturing = j;
    v->out = 0;
    code = e.real->submit(e.real->self, copy, count, &inner, error);
    code = code == WNPU_OK ? e.real->wait(e.real->self, inner, np_deadline(60000.0), error) : code;
    e.real->account(e.real->self, &after);
    now = device_stats();
    v->compute_us = now.compute_us - then.compute_us;
    v->memory_us = now.memory_us - then.memory_us;
    v->switch_us = now.switch_us - then.switch_us;
    v->products = (unsigned)count;
    v->in = after.bytes_in - before.bytes_in;
    *id = at;
    e.last_us = real_us();
    return code;
}

static int on_wait(void *self, uint64_t id, int64_t deadline_ns, wnpu_error *error)
{
    job *j = &e.jobs[id];
    event *v = work(1, e.events[j->event].stage);
    size_t i;
    (void)self;
    (void)deadline_ns;
    (void)error;
    v->of = j->event;
    e.last_us = real_us();
    for (i = 0; i < j->count; i++) {
        j->product[i].take(j->product[i].user, i, j->c[i], j->ldc[i]);
    }
    j->used = 0;
    return WNPU_OK;
}

static int on_describe(void *self, wnpu_accel_info *info)
{
    uint32_t size = info->struct_size;
    (void)self;
    *info = e.info;
    info->struct_size = size;
    return WNPU_OK;
}

static int on_resident(void *self, uint32_t shape, uint32_t n, uint32_t k, const int8_t *data,
                       size_t ldb, uint64_t *b, wnpu_error *error)
{
    (void)self;
    return e.real->resident(e.real->self, shape, n, k, data, ldb, b, error);
}

static int on_release(void *self, uint64_t b)
{
    (void)self;
    return e.real->release(e.real->self, b);
}

static int on_health(void *self)
{
    (void)self;
    return e.real->health(e.real->self);
}

static int on_probe(void *self, int64_t deadline_ns, wnpu_error *error)
{
    (void)self;
    return e.real->probe(e.real->self, deadline_ns, error);
}

static void on_distrust(void *self, const char *reason)
{
    (void)self;
    e.real->distrust(e.real->self, reason);
}

static int on_account(void *self, wnpu_accel_account *account)
{
    (void)self;
    return e.real->account(e.real->self, account);
}

/* What the CPU pays for the way to and from the device's buffers, by the byte: a copy and a flush
 * of dirty lines there, a flush of absent lines back. The copy is measured. The flushes are CLFLUSH
 * as measured on an AMD EPYC (Zen 3), 0.15 and 0.06 ms for 3 MiB, because all hosts of these NPUs
 * are AMD's and other makers' CLFLUSH is something else (a Sapphire Rapids in a virtual machine
 * took 50 times as long). */
#define FLUSH_DIRTY_US (150.0 / (3 << 20))
#define FLUSH_ABSENT_US (60.0 / (3 << 20))

static void measure_copies(void)
{
    size_t bytes = (size_t)1 << 20, i;
    char *from = aligned_alloc(64, bytes), *to = aligned_alloc(64, bytes);
    double best = 1e9;
    memset(from, 1, bytes);
    memset(to, 2, bytes);
    for (i = 0; i < 100; i++) {
        double start = real_us(), us;
        memcpy(to, from, bytes);
        us = real_us() - start;
        best = us < best ? us : best;
        from[i] = to[bytes - 1 - i];
    }
    e.in_us_byte = best / (double)bytes + FLUSH_DIRTY_US;
    e.out_us_byte = FLUSH_ABSENT_US;
    free(from);
    free(to);
}

static void forget(void *user, size_t index, const int32_t *c, size_t ldc)
{
    (void)user;
    (void)index;
    (void)c;
    (void)ldc;
}

/* One job of count products of a shape on the device's clock. */
static double cost(uint32_t shape, uint64_t weight, const int8_t *a, size_t count)
{
    wnpu_accel_product p[NP_CHAIN];
    double before = device_stats().device_us;
    uint64_t id;
    size_t i;
    memset(p, 0, sizeof p);
    for (i = 0; i < count; i++) {
        p[i].shape = shape;
        p[i].m = e.info.shapes[shape].m;
        p[i].b = weight;
        p[i].a = a;
        p[i].lda = e.info.shapes[shape].k;
        p[i].take = forget;
    }
    if (e.real->submit(e.real->self, p, count, &id, NULL) != WNPU_OK ||
        e.real->wait(e.real->self, id, np_deadline(60000.0), NULL) != WNPU_OK) {
        fprintf(stderr, "npu_estimate: a job failed\n");
        exit(1);
    }
    return device_stats().device_us - before;
}

/* The plan goes by these; what opening measured has this machine's noise in it. */
static void model_costs(void)
{
    uint32_t i;
    for (i = 0; i < e.info.n_shapes && i < 64; i++) {
        wnpu_accel_shape *s = &e.shapes[i];
        int8_t *zeros;
        uint64_t weight = 0;
        *s = e.info.shapes[i];
        zeros = calloc((size_t)(s->m > s->n ? s->m : s->n), s->k);
        e.real->resident(e.real->self, i, s->n, s->k, zeros, s->k, &weight, NULL);
        (void)cost(i, weight, zeros, 1); /* any switch of contexts is behind us */
        s->cost_us = cost(i, weight, zeros, 1);
        s->chained_us = e.info.max_chain > 1 ? cost(i, weight, zeros, 2) - s->cost_us : s->cost_us;
        e.real->release(e.real->self, weight);
        free(zeros);
    }
    e.info.shapes = e.shapes;
}

static int open_npu(const char *pack, const wnpu_model *model)
{
    wnpu_accel_shape products[16];
    wnpu_amdxdna_config config;
    wnpu_error error;
    int n = wnpu_model_products(model, products, 16);
    void *symbol = dlsym(RTLD_DEFAULT, "sim_amdxdna_stats");
    memcpy(&e.sim_stats, &symbol, sizeof symbol);
    if (symbol == NULL) {
        fprintf(stderr, "npu_estimate: to be run under libsim_amdxdna.so, see the source\n");
        return -1;
    }
    wnpu_amdxdna_config_init(&config, sizeof config);
    config.pack = strcmp(pack, "auto") != 0 ? pack : NULL;
    config.products = products;
    config.n_products = n < 0 ? 0 : n < 16 ? (uint32_t)n : 16;
    if (wnpu_amdxdna_open(&config, &e.real, &error) != WNPU_OK) {
        fprintf(stderr, "npu_estimate: %s\n", error.message);
        return -1;
    }
    e.seam = *e.real;
    e.seam.self = &e;
    e.seam.describe = on_describe;
    e.seam.resident = on_resident;
    e.seam.release = on_release;
    e.seam.submit = on_submit;
    e.seam.wait = on_wait;
    e.seam.health = on_health;
    e.seam.probe = on_probe;
    e.seam.distrust = on_distrust;
    e.seam.account = on_account;
    memset(&e.info, 0, sizeof e.info);
    e.info.struct_size = (uint32_t)sizeof e.info;
    if (e.real->describe(e.real->self, &e.info) != WNPU_OK) {
        return -1;
    }
    model_costs();
    return 0;
}

typedef struct options {
    const char *pack, *model, *wav;
    int runs;
    wnpu_config config;
} options;

/* What was measured, in milliseconds. */
static struct {
    double alone[MAX_TIMES];    /* encoder and cross-attention of a window on the CPU */
    double mel[MAX_RUNS], decoder[MAX_RUNS], input[MAX_RUNS]; /* of the recording, on the CPU */
} measured;

/* What was found out: milliseconds. */
typedef struct findings {
    int of_medians;             /* or of the shortest times */
    int which;                  /* BEST or WORST */
    double alone;               /* encoder and cross-attention of a window on the CPU */
    double cpu, waits, npu, copies, whole; /* the same with the NPU: parts, and on the clock */
    double stage_npu[NP_STAGES], stage_copies[NP_STAGES];
    double mel, decoder, input; /* of the whole recording, on the CPU */
    uint32_t windows, tokens;
    int64_t audio_ms;
} findings;

/* One window's encoder, with or without the accelerator; the milliseconds that it took. */
static double encode(wnpu_session *s)
{
    ru_run *r = &s->run;
    double start = real_us();
    if (r->bridge.accel == NULL) {
        en_run(&r->engine);
        en_cross(&r->engine, r->decoder.cross);
        return (real_us() - start) * 1e-3;
    }
    np_reset(&r->bridge);
    e.n = 0;
    e.last_us = start;
    if (!np_begin(&r->bridge)) {
        return 0.0; /* nothing is planned */
    }
    np_run(&r->bridge);
    np_cross(&r->bridge, r->decoder.cross);
    (void)work(0, NP_STAGES);
    np_end(&r->bridge);
    e.most = e.n;
    e.runs++;
    return 0.0;
}

/* CPU and NPU on one clock: a job starts when it is submitted and the NPU has nothing older to do;
 * a wait lasts until its job is done. */
static void replay(findings *f)
{
    double cpu = 0.0, npu_free = 0.0;
    size_t i;
    for (i = 0; i < e.most; i++) {
        event *v = &e.events[i];
        double copies, us = time_of(v->cpu_us, e.runs, f->of_medians);
        cpu += us;
        f->cpu += us * 1e-3;
        if (v->stage == NP_STAGES) {
            break;
        }
        if (v->is_wait) {
            double end = e.events[v->of].end_us;
            f->waits += end > cpu ? (end - cpu) * 1e-3 : 0.0;
            cpu = end > cpu ? end : cpu;
            copies = (double)e.events[v->of].out * e.out_us_byte;
        } else {
            copies = (double)v->in * e.in_us_byte;
        }
        cpu += copies;
        f->copies += copies * 1e-3;
        f->stage_copies[v->stage] += copies * 1e-3;
        if (!v->is_wait) {
            us = device_us(v, f->which);
            npu_free = (npu_free > cpu ? npu_free : cpu) + us;
            v->end_us = npu_free;
            f->npu += us * 1e-3;
            f->stage_npu[v->stage] += us * 1e-3;
        }
    }
    f->whole = cpu * 1e-3;
}

static void report_shapes(void)
{
    uint32_t i;
    printf("%s\nassumed: %s,\n  %.0f to %.0f us a stream, stalls of %.0f to %.0f %%\n"
           "kernels: M x N x K, microseconds alone and for each more in a chain, as the plan has "
           "them\n", e.info.name, devices[is_npu4()].name, devices[is_npu4()].stream_us[BEST],
           devices[is_npu4()].stream_us[WORST], 100 * devices[is_npu4()].stalls[BEST], 100 * devices[is_npu4()].stalls[WORST]);
    for (i = 0; i < e.info.n_shapes; i++) {
        const wnpu_accel_shape *s = &e.shapes[i];
        printf("  %5u x %5u x %5u %8.0f %8.0f\n", s->m, s->n, s->k, s->cost_us, s->chained_us);
    }
}

/* f: the best and the worst case. */
static void report_stages(const wnpu_session *s, const findings f[CASES])
{
    uint64_t jobs = 0, submissions = 0, waits = 0, in = 0, out = 0, macs = 0;
    wnpu_accel_stage g;
    size_t i;
    printf("a window of 30 s in %u chunks of %u positions, %.1f MB of weights on the NPU\n",
           s->run.bridge.plan.chunks, s->run.bridge.plan.chunk,
           (double)s->run.bridge.resident_bytes / 1e6);
    printf("  stage        GMAC  by   jobs  submissions  waits   MB in  MB out      NPU ms  copies "
           "and flushes, CPU ms\n");
    memset(&g, 0, sizeof g);
    g.struct_size = (uint32_t)sizeof g;
    for (i = 0; wnpu_get_accel_stage(s, i, &g) == WNPU_OK; i++) {
        printf("  %-9s %7.2f  %s %6llu %12llu %6llu %7.1f %7.1f %5.2f-%5.2f %7.2f\n", g.name,
               (double)g.macs / 1e9, g.planned ? "NPU" : "CPU", (unsigned long long)g.jobs,
               (unsigned long long)g.submissions, (unsigned long long)g.waits,
               (double)g.bytes_in / 1e6, (double)g.bytes_out / 1e6, f[BEST].stage_npu[i],
               f[WORST].stage_npu[i], f->stage_copies[i]);
        macs += g.macs;
        jobs += g.jobs;
        submissions += g.submissions;
        waits += g.waits;
        in += g.bytes_in;
        out += g.bytes_out;
    }
    printf("  %-9s %7.2f      %6llu %12llu %6llu %7.1f %7.1f %5.1f-%5.1f %7.2f\n", "all",
           (double)macs / 1e9, (unsigned long long)jobs, (unsigned long long)submissions,
           (unsigned long long)waits, (double)in / 1e6, (double)out / 1e6, f[BEST].npu,
           f[WORST].npu, f->copies);
}

/* Of the recording: on the CPU alone, with the NPU, with one that takes no time. */
typedef struct sums {
    double rest, alone, with, no_npu;
} sums;

static sums sum_up(const findings *f)
{
    sums t;
    t.rest = f->mel + f->input + f->decoder;
    t.alone = f->windows * f->alone + t.rest;
    t.with = f->windows * f->whole + t.rest;
    t.no_npu = f->windows * (f->cpu + f->copies) + t.rest;
    return t;
}

/* Milliseconds of the best and worst case, and their medians. */
static void report_line(const char *what, const double ms[CASES], const double medians[CASES],
                        double audio)
{
    printf("  %-29s %8.1f to %.1f ms, %.1f to %.1f x real time (medians: %.1f to %.1f ms)\n", what,
           ms[BEST], ms[WORST], audio / ms[WORST], audio / ms[BEST], medians[BEST], medians[WORST]);
}

static void report_one(const char *what, double ms, double medians, double audio)
{
    printf("  %-29s %8.1f ms, %.1f x real time (medians: %.1f ms)\n", what, ms, audio / ms, medians);
}

/* f: of the shortest times, m: of medians, both in the best and the worst case. */
static void report(const wnpu_session *s, const findings f[CASES], const findings m[CASES], int runs)
{
    double audio = (double)f->audio_ms;
    sums a[CASES] = {sum_up(&f[BEST]), sum_up(&f[WORST])};
    sums b[CASES] = {sum_up(&m[BEST]), sum_up(&m[WORST])};
    double with[2][CASES] = {{a[BEST].with, a[WORST].with}, {b[BEST].with, b[WORST].with}};
    double encoder[2][CASES] = {{f->windows * f[BEST].whole, f->windows * f[WORST].whole},
                                {m->windows * m[BEST].whole, m->windows * m[WORST].whole}};
    char name[400];
    machine_name(name, sizeof name);
    report_stages(s, f);
    printf("  encoder and cross-attention: %.1f to %.1f ms = %.1f CPU work (measured) + %.1f copies and "
           "flushes + %.1f to %.1f waiting for the NPU;\n  %.1f ms on the CPU alone (measured)\n",
           f[BEST].whole, f[WORST].whole, f->cpu, f->copies, f[BEST].waits, f[WORST].waits, f->alone);
    printf("the recording: %.1f s, %u windows, %u tokens; %u threads, %s, %s;\n"
           "shortest times of %d runs of it and %d of a window's encoder\n", audio * 1e-3,
           f->windows, f->tokens, s->pool.threads, wnpu_isa_name(s->isa), name, runs, 4 * runs);
    report_one("CPU alone (measured)", a->alone, b->alone, audio);
    report_line("with the NPU (modelled)", with[0], with[1], audio);
    report_line("  encoder, cross-attention", encoder[0], encoder[1], audio);
    report_one("  decoder, on the CPU", f->decoder, m->decoder, audio);
    report_one("  input, log-mel, on the CPU", f->input + f->mel, m->input + m->mel, audio);
    report_one("with an NPU that takes no time", a->no_npu, b->no_npu, audio);
    printf("  220 x real time is %.1f ms: %.1f to %.1f ms less. With the NPU: encoder's CPU part %.1f, "
           "copies and flushes %.1f,\n  waiting for the NPU %.1f to %.1f, decoder %.1f, input and log-mel "
           "%.1f ms\n", audio / 220, with[0][BEST] - audio / 220, with[0][WORST] - audio / 220,
           f->windows * f->cpu, f->windows * f->copies, f->windows * f[BEST].waits,
           f->windows * f[WORST].waits, f->decoder, f->input + f->mel);
}

static const void *map_file(const char *path, size_t *size)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *data;
    if (fd < 0 || fstat(fd, &info) != 0) {
        return NULL;
    }
    *size = (size_t)info.st_size;
    data = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    return data == MAP_FAILED ? NULL : data;
}

/* Decoder and the rest, from whole runs on the CPU; the first window stays in the session. */
static int measure_runs(wnpu_session *s, const options *o, const wnpu_audio *audio, findings *f)
{
    int i;
    for (i = 0; i < o->runs; i++) {
        wnpu_stats t;
        memset(&t, 0, sizeof t);
        t.struct_size = (uint32_t)sizeof t;
        if (wnpu_transcribe(s, NULL, audio) != WNPU_OK) {
            fprintf(stderr, "npu_estimate: %s\n", wnpu_session_error(s));
            return -1;
        }
        wnpu_get_stats(s, &t);
        measured.mel[i] = t.log_mel_ms;
        measured.decoder[i] = t.decoder_ms;
        measured.input[i] = t.audio_in_ms;
        f->windows = t.windows;
        f->tokens = t.tokens;
        f->audio_ms = t.audio_ms;
    }
    return 0;
}

static void conclude(findings *f, int runs, int of_medians, int which)
{
    size_t n = (size_t)runs;
    f->of_medians = of_medians;
    f->which = which;
    f->alone = time_of(measured.alone, 4 * n, of_medians);
    f->mel = time_of(measured.mel, n, of_medians);
    f->decoder = time_of(measured.decoder, n, of_medians);
    f->input = time_of(measured.input, n, of_medians);
    replay(f);
}

static int estimate(options *o)
{
    wnpu_model *model = NULL;
    wnpu_session *s[2] = {NULL, NULL};
    wnpu_error error = {0, ""};
    wnpu_audio audio;
    findings f[CASES], m[CASES];
    size_t size = 0;
    const void *wav = map_file(o->wav, &size);
    int i;
    memset(f, 0, sizeof f);
    wnpu_audio_init(&audio, sizeof audio);
    if (wav == NULL || wnpu_wav_open(&audio, wav, size, &error) != WNPU_OK ||
        wnpu_model_open(&model, o->model, NULL, &error) != WNPU_OK) {
        fprintf(stderr, "npu_estimate: %s: %s\n", o->wav, error.message);
        return 1;
    }
    if (open_npu(o->pack, model) != 0) {
        wnpu_model_close(model);
        return 1;
    }
    measure_copies();
    for (i = 0; i < 2; i++) {
        o->config.accel = i == 0 ? NULL : &e.seam;
        if (wnpu_session_open(&s[i], model, &o->config, NULL, 0, &error) != WNPU_OK) {
            fprintf(stderr, "npu_estimate: %s\n", error.message);
            return 1;
        }
    }
    e.bridge = &s[1]->run.bridge;
    if (measure_runs(s[0], o, &audio, f) != 0) {
        return 1;
    }
    for (i = 0; i < 4 * o->runs; i++) {
        measured.alone[i] = encode(s[0]);
        memcpy(s[1]->run.engine.mel, s[0]->run.engine.mel,
               (ML_FRAMES + 2) * (size_t)model->n_mels * sizeof(float));
        (void)encode(s[1]);
    }
    f[WORST] = m[BEST] = m[WORST] = f[BEST];
    for (i = 0; i < CASES; i++) {
        conclude(&f[i], o->runs, 0, i);
        conclude(&m[i], o->runs, 1, i);
    }
    report_shapes();
    report(s[1], f, m, o->runs);
    wnpu_session_close(s[1]);
    wnpu_session_close(s[0]);
    wnpu_model_close(model);
    return 0;
}

int main(int argc, char **argv)
{
    options o;
    int i, code;
    memset(&o, 0, sizeof o);
    wnpu_config_init(&o.config, sizeof o.config);
    o.config.threads = 2;
    o.runs = 5;
    for (i = 1; i < argc; i++) {
        int more = i + 1 < argc;
        if (strcmp(argv[i], "--pack") == 0 && more) {
            o.pack = argv[++i];
        } else if (strcmp(argv[i], "--model") == 0 && more) {
            o.model = argv[++i];
        } else if (strcmp(argv[i], "--threads") == 0 && more) {
            o.config.threads = (uint32_t)atoi(argv[++i]);
        } else if (strcmp(argv[i], "--runs") == 0 && more) {
            o.runs = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--isa") == 0 && more) {
            o.config.isa = wnpu_isa_from_name(argv[++i]);
        } else if (strcmp(argv[i], "--all") == 0) {
            o.config.accel_use = WNPU_ACCEL_ALL;
        } else if (argv[i][0] != '-') {
            o.wav = argv[i];
        }
    }
    if (o.pack == NULL || o.model == NULL || o.wav == NULL || o.runs < 1 ||
        o.runs > (int)MAX_RUNS) {
        fprintf(stderr, "usage: %s --pack auto|DIR --model FILE [--threads N] [--isa NAME] [--all] "
                "[--runs N] WAV, with 1 to %u runs\n", argv[0], MAX_RUNS);
        return 2;
    }
    e.clflushopt = has_clflushopt();
    code = estimate(&o);
    wnpu_amdxdna_close(e.real);
    return code;
}
