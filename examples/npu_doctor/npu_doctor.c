/* npu_doctor.c - checks whether the NPU can be used and tells how to fix what prevents it. Prints
 * one page that can be sent as a report: the machine, the driver, the cause and its remedy, and the
 * time of each kernel. It names no user, host or file.
 *
 *     npu_doctor                     the machine and the built-in kernels
 *     npu_doctor --report --model FILE
 *                                    the same as one block for a report, with the kernels in the
 *                                    model's shapes, and whether the text of a clip is the CPU's
 *     npu_doctor --pack DIR          the machine and the kernels of a pack
 *     npu_doctor --node /dev/accel/accel1
 *     npu_doctor --root DIR          a recorded machine: its /sys, /proc, /dev under DIR
 *     npu_doctor --sync              flush caches through the driver instead of by CLFLUSH
 *
 * Exit status: 0 if the NPU works, 1 if something prevents it, 2 for wrong usage.
 *
 *     cc npu_doctor.c npu_amdxdna.c whisper_npu.c -I. $(pkg-config --cflags --libs libdrm) \
 *        -lm -lpthread */
#include "npu_clip.h"
#include "whisper_npu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    wnpu_amdxdna_config config;
    const char *model;
    int report, help;
} options;

/* What must not be in the page: paths that the user gave, and the home directory. */
static const char *secrets[4];

/* printf() without what is secret: <path> is printed instead. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
static void say(const char *format, ...)
{
    char text[1024], *at = text;
    va_list args;
    size_t i;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    while (*at != '\0') {
        for (i = 0; i < sizeof secrets / sizeof secrets[0]; i++) {
            size_t length = secrets[i] == NULL ? 0 : strlen(secrets[i]);
            if (length > 1 && strncmp(at, secrets[i], length) == 0) {
                fputs("<path>", stdout);
                at += length;
                break;
            }
        }
        if (i == sizeof secrets / sizeof secrets[0]) {
            (void)putchar(*at++);
        }
    }
}

/* What the library logs while the page is being written, for its end. */
static char notes[80][512];
static size_t n_notes;

static void on_log(void *user, wnpu_log_level level, const char *text)
{
    (void)user;
    (void)level;
    if (n_notes < sizeof notes / sizeof notes[0]) {
        (void)snprintf(notes[n_notes++], sizeof notes[0], "%s", text);
    }
}

static void print_notes(void)
{
    size_t i;
    for (i = 0; i < n_notes; i++) {
        say("  note: %s\n", notes[i]);
    }
    n_notes = 0;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / 1048576.0;
}

static void line(const char *name, const char *value)
{
    printf("  %-9s %s\n", name, value[0] != '\0' ? value : "-");
}

/* What follows a key and a separator in the first line of a file that begins with the key, without
 * quotes; the whole first line if the key is "". */
static const char *from_file(const char *root, const char *path, const char *key, char *value,
                             size_t size)
{
    char name[512], text[512];
    size_t length = strlen(key);
    FILE *f;
    value[0] = '\0';
    (void)snprintf(name, sizeof name, "%s%s", root, path);
    f = fopen(name, "r");
    while (f != NULL && value[0] == '\0' && fgets(text, sizeof text, f) != NULL) {
        if (strncmp(text, key, length) == 0) {
            const char *at = text + length;
            at += length > 0 ? strspn(at, " \t:=\"") : 0;
            (void)snprintf(value, size, "%.*s", (int)strcspn(at, "\"\n"), at);
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return value;
}

/* The driver's options that matter, as far as it has them. */
static void print_options(const char *root)
{
    static const char *const names[] = {"aie2_max_col", "tdr_timeout_ms", "force_iova",
                                        "force_cmdlist"};
    char path[96], value[32];
    size_t i;
    printf("  options  ");
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "/sys/module/amdxdna/parameters/%s", names[i]);
        if (from_file(root, path, "", value, sizeof value)[0] != '\0') {
            printf(" %s=%s", names[i], value);
        }
    }
    printf("\n");
}

static void machine(const wnpu_amdxdna_config *config, const wnpu_amdxdna_diagnosis *d)
{
    const char *root = config->root == NULL ? "" : config->root;
    char text[256];
    uint32_t version = wnpu_version();
    printf("npu_doctor, whisper_npu %lu.%lu.%lu\n", (unsigned long)(version / 10000),
           (unsigned long)(version / 100 % 100), (unsigned long)(version % 100));
    line("processor", from_file(root, "/proc/cpuinfo", "model name", text, sizeof text));
    line("system", from_file(root, "/etc/os-release", "PRETTY_NAME", text, sizeof text));
    line("kernel", d->kernel);
    line("device", d->device);
    line("node", d->node);
    line("driver", d->driver);
    print_options(root);
    line("firmware", d->firmware);
    (void)snprintf(text, sizeof text, "%lu", (unsigned long)d->columns);
    line("columns", d->columns > 0 ? text : "");
    (void)snprintf(text, sizeof text, "%lu MHz", (unsigned long)d->clock_mhz);
    line("clock", d->clock_mhz > 0 ? text : "");
    printf("  memory    %.1f MiB of buffers without weights\n", mib(d->memlock_needed));
    (void)snprintf(text, sizeof text, "%lu of 3 (locks and DMA, scalar code, kernels)",
                   (unsigned long)d->rungs);
    line("rungs", config->pack == NULL && config->root == NULL ? text : "");
    line("kernels", config->pack == NULL ? "built-in" : "from a pack");
    say("\n%s: %s\n", wnpu_amdxdna_cause_name(d->cause), d->message);
    if (d->cause != WNPU_AMDXDNA_FINE) {
        printf("cure: %s\n", d->cure);
    }
}

/* The time of each kernel beside what a simulator counted. */
static void kernels(const wnpu_accel *accel, const wnpu_amdxdna_diagnosis *d)
{
    wnpu_accel_info info;
    uint32_t i;
    memset(&info, 0, sizeof info);
    info.struct_size = (uint32_t)sizeof info;
    if (accel->describe(accel->self, &info) != WNPU_OK) {
        return;
    }
    printf("\n%s\n%u products a job, %u jobs in flight, %.1f MiB locked\n", info.name,
           info.max_chain, info.max_in_flight, mib(info.memory_fixed));
    for (i = 0; i < info.n_shapes; i++) {
        const wnpu_accel_shape *s = &info.shapes[i];
        double operations = 2.0 * s->m * s->n * s->k;
        double cycles = (double)wnpu_amdxdna_cycles(accel, i);
        printf("  %5u x %5u x %5u  %9.1f us alone, %9.1f us in a chain (%.2f TOPS), weight "
               "%.2f MiB", s->m, s->n, s->k, s->cost_us, s->chained_us,
               s->chained_us > 0.0 ? operations / s->chained_us * 1e-6 : 0.0,
               mib(s->resident_bytes));
        if (cycles > 0.0) {
            printf("; counted %.0f cycles", cycles);
        }
        if (cycles > 0.0 && d->clock_mhz > 0) {
            printf(", %.1f us", cycles / d->clock_mhz);
        }
        printf("\n");
    }
}

/* The clip, from 3 bits a sample: a step up or down by 1, 3, 5 or 7 half steps, whose size
 * follows. */
static void clip_decode(int16_t *to)
{
    static const int factors[4] = {58, 58, 77, 112};
    int value = 0, step = 16;
    size_t i, n = 0;
    for (i = 0; i < sizeof clip / sizeof clip[0]; i++) {
        const char *c;
        for (c = clip[i]; *c != '\0' && n + 2 <= CLIP_FRAMES; c++) {
            int pair = *c - 35 - (*c > '?') - (*c > '\\'), half;
            for (half = 0; half < 2; half++, pair >>= 3) {
                int code = 2 * (pair & 7) - 7, size = code < 0 ? -code : code;
                int change = size * step / 2;
                /* rounds towards minus infinity, as the encoder did */
                value += code < 0 ? -change - (size * step & 1) : change;
                value = value > 32767 ? 32767 : value < -32768 ? -32768 : value;
                step = step * factors[size / 2] / 64;
                step = step < 4 ? 4 : step > 16384 ? 16384 : step;
                to[n++] = (int16_t)value;
            }
        }
    }
}

/* What one run gave. */
typedef struct outcome {
    char text[512], numbers[512]; /* numbers: times and probabilities of the segments */
    double encoder_ms;
    wnpu_accel_stats stats;
} outcome;

/* "to" and what follows it at the end of a string. */
static void append(char *to, size_t size, const char *text)
{
    size_t length = strlen(to);
    (void)snprintf(to + length, size - length, "%s", text);
}

/* Text and numbers of the session's last run. */
static void collect(const wnpu_session *session, outcome *out)
{
    wnpu_segment segment;
    wnpu_stats stats;
    char numbers[128];
    size_t i;
    for (i = 0; wnpu_get_segment(session, i, &segment) == WNPU_OK; i++) {
        (void)snprintf(numbers, sizeof numbers, "%ld %ld %.9g %.9g;", (long)segment.t0_ms,
                       (long)segment.t1_ms, (double)segment.mean_logprob,
                       (double)segment.no_speech);
        append(out->numbers, sizeof out->numbers, numbers);
        append(out->text, sizeof out->text, segment.text);
    }
    memset(&stats, 0, sizeof stats);
    stats.struct_size = (uint32_t)sizeof stats;
    (void)wnpu_get_stats(session, &stats);
    out->encoder_ms = stats.encoder_ms + stats.cross_ms;
    out->stats.struct_size = (uint32_t)sizeof out->stats;
    (void)wnpu_get_accel_stats(session, &out->stats);
    out->stats.name = NULL;
}

/* Transcribes the clip with the NPU, or without it if accel is NULL. Whatever is decoded is
 * accepted, so that there is a text to compare. */
static int transcribe(const wnpu_model *model, wnpu_accel *accel, outcome *out)
{
    static int16_t samples[CLIP_FRAMES];
    wnpu_session *session = NULL;
    wnpu_config config;
    wnpu_params params;
    wnpu_audio audio;
    int code;
    memset(out, 0, sizeof *out);
    wnpu_config_init(&config, sizeof config);
    config.accel = accel;
    config.accel_use = WNPU_ACCEL_ALL;
    wnpu_params_init(&params, sizeof params);
    params.no_speech_threshold = 1.0f;
    params.logprob_threshold = params.first_logprob_threshold = -100.0f;
    params.compression_threshold = 100.0f;
    wnpu_audio_init(&audio, sizeof audio);
    clip_decode(samples);
    audio.format = WNPU_SAMPLE_S16;
    audio.rate = CLIP_RATE;
    audio.data = samples;
    audio.frames = CLIP_FRAMES;
    code = wnpu_session_open(&session, model, &config, NULL, 0, NULL);
    code = code == WNPU_OK ? wnpu_transcribe(session, &params, &audio) : code;
    if (code == WNPU_OK || code == WNPU_INCOMPLETE) {
        collect(session, out);
        code = WNPU_OK;
    }
    wnpu_session_close(session);
    return code;
}

/* Compares the clip's text with and without the NPU: 0 if they are equal and it did its part. */
static int compare_text(const wnpu_model *model, wnpu_accel *accel)
{
    outcome cpu, npu;
    wnpu_model_info info;
    int equal, code = transcribe(model, NULL, &cpu);
    code = code == WNPU_OK ? transcribe(model, accel, &npu) : code;
    if (code != WNPU_OK || cpu.numbers[0] == '\0') {
        printf("\ntext: not compared, %s\n",
               code != WNPU_OK ? wnpu_strerror(code) : "there is none");
        return 1;
    }
    memset(&info, 0, sizeof info);
    info.struct_size = (uint32_t)sizeof info;
    (void)wnpu_model_get_info(model, &info);
    equal = strcmp(cpu.text, npu.text) == 0 && strcmp(cpu.numbers, npu.numbers) == 0;
    printf("\ntext: %s with %s:%s\n", equal ? "equal" : "DIFFERENT", info.name, cpu.text);
    if (!equal) {
        printf("  CPU %s\n  NPU %s%s\n", cpu.numbers, npu.numbers, npu.text);
    }
    printf("encoder: %.1f ms on the CPU, %.1f ms with the NPU, which did %.1f %% of %.1f billion "
           "multiply-accumulates of matrices; %lu fallbacks, %lu wrong\n", cpu.encoder_ms,
           npu.encoder_ms,
           100.0 * (double)npu.stats.accel_macs / (double)(npu.stats.macs + !npu.stats.macs),
           (double)npu.stats.macs * 1e-9, (unsigned long)npu.stats.fallbacks,
           (unsigned long)npu.stats.wrong);
    if (npu.stats.first_reason[0] != '\0') {
        say("first reason: %s\n", npu.stats.first_reason);
    }
    return !equal || npu.stats.fallbacks > 0 || npu.stats.accel_macs == 0;
}

/* Opens the NPU: its kernels, and the text of the clip. */
static int try_npu(const options *o, const wnpu_model *model, const wnpu_amdxdna_diagnosis *d)
{
    wnpu_accel *accel;
    wnpu_error error;
    int code = 0;
    if (wnpu_amdxdna_open(&o->config, &accel, &error) != WNPU_OK) {
        say("opening: %s\n", error.message);
        return 1;
    }
    kernels(accel, d);
    if (model != NULL) {
        code = compare_text(model, accel);
    } else if (o->report) {
        printf("\ntext: not compared; --model FILE does that\n");
    }
    wnpu_amdxdna_close(accel);
    return code;
}

/* The page; returns the exit status. */
static int page(options *o, const wnpu_model *model)
{
    wnpu_accel_shape products[16];
    wnpu_amdxdna_diagnosis diagnosis;
    int code = 0, n = model == NULL ? 0 : wnpu_model_products(model, products, 16);
    o->config.products = products;
    o->config.n_products = n < 0 ? 0 : n < 16 ? (uint32_t)n : 16;
    memset(&diagnosis, 0, sizeof diagnosis);
    diagnosis.struct_size = (uint32_t)sizeof diagnosis;
    if (wnpu_amdxdna_diagnose(&o->config, &diagnosis) != WNPU_OK) {
        fprintf(stderr, "npu_doctor: no diagnosis possible\n");
        return 2;
    }
    if (o->report) {
        printf("```\n"); /* a block of code where reports are posted */
    }
    machine(&o->config, &diagnosis);
    if (diagnosis.cause == WNPU_AMDXDNA_FINE && o->config.root == NULL) {
        n_notes = 0; /* opening repeats them */
        code = try_npu(o, model, &diagnosis);
    }
    print_notes();
    if (o->report) {
        printf("```\n");
    }
    return diagnosis.cause == WNPU_AMDXDNA_FINE ? code : 1;
}

static int parse(options *o, int argc, char **argv)
{
    int i;
    for (i = 1; i < argc; i++) {
        const char **value = strcmp(argv[i], "--pack") == 0    ? &o->config.pack
                             : strcmp(argv[i], "--node") == 0  ? &o->config.node
                             : strcmp(argv[i], "--root") == 0  ? &o->config.root
                             : strcmp(argv[i], "--model") == 0 ? &o->model : NULL;
        if (value != NULL && i + 1 < argc) {
            *value = argv[++i];
        } else if (strcmp(argv[i], "--sync") == 0) {
            o->config.flush_mode = WNPU_AMDXDNA_FLUSH_DRIVER;
        } else if (strcmp(argv[i], "--report") == 0) {
            o->report = 1;
        } else if (strcmp(argv[i], "--help") == 0) {
            o->help = 1;
        } else {
            return -1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    options o;
    wnpu_model *model = NULL;
    int code;
    memset(&o, 0, sizeof o);
    wnpu_amdxdna_config_init(&o.config, sizeof o.config);
    o.config.log = on_log;
    code = parse(&o, argc, argv);
    if (code != 0 || o.help) {
        fprintf(code != 0 ? stderr : stdout, "Usage: npu_doctor [--report] [--model FILE] "
                "[--pack DIR] [--node NODE] [--root DIR] [--sync]\n");
        return code != 0 ? 2 : 0;
    }
    secrets[0] = o.config.pack;
    secrets[1] = o.config.root;
    secrets[2] = o.model;
    secrets[3] = getenv("HOME");
    if (o.model != NULL && wnpu_model_open(&model, o.model, NULL, NULL) != WNPU_OK) {
        fprintf(stderr, "npu_doctor: %s is no model that can be opened\n", o.model);
        return 2;
    }
    code = page(&o, model);
    wnpu_model_close(model);
    return code;
}
