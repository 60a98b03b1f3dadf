/* npu_doctor.c - checks whether the NPU can be used and tells how to fix what prevents it. Prints
 * one page that can be sent as a report: the machine, the driver, the cause and its remedy, and the
 * time of each kernel. It names no user, host or file.
 *
 *     npu_doctor                     the machine and the built-in kernels
 *     npu_doctor --pack DIR          the machine and the kernels of a pack
 *     npu_doctor --node /dev/accel/accel1
 *     npu_doctor --root DIR          a recorded machine: its /sys, /proc, /dev under DIR
 *     npu_doctor --sync              flush caches through the driver instead of by CLFLUSH
 *
 * Exit status: 0 if the NPU works, 1 if something prevents it, 2 for wrong usage.
 *
 *     cc npu_doctor.c npu_amdxdna.c whisper_npu.c -I. $(pkg-config --cflags --libs libdrm) \
 *        -lm -lpthread */
#include "whisper_npu.h"

#include <stdio.h>
#include <string.h>

/* What the library logs while the page is being written, for its end. */
static char notes[16][256];
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
        printf("  note: %s\n", notes[i]);
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

static void report(const wnpu_amdxdna_config *config, const wnpu_amdxdna_diagnosis *d)
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
    printf("  memory    %.1f MiB of buffers without weights\n", mib(d->memlock_needed));
    line("kernels", config->pack == NULL ? "built-in" : "from a pack");
    printf("\n%s: %s\n", wnpu_amdxdna_cause_name(d->cause), d->message);
    if (d->cause != WNPU_AMDXDNA_FINE) {
        printf("cure: %s\n", d->cure);
    }
}

/* Opens the NPU with the pack and prints the time of each kernel. */
static int kernels(const wnpu_amdxdna_config *config)
{
    wnpu_accel *accel;
    wnpu_accel_info info;
    wnpu_error error;
    uint32_t i;
    if (wnpu_amdxdna_open(config, &accel, &error) != WNPU_OK) {
        printf("opening: %s\n", error.message);
        return 1;
    }
    memset(&info, 0, sizeof info);
    info.struct_size = (uint32_t)sizeof info;
    if (accel->describe(accel->self, &info) == WNPU_OK) {
        printf("\n%s\n%u products a job, %u jobs in flight, %.1f MiB locked\n", info.name,
               info.max_chain, info.max_in_flight, mib(info.memory_fixed));
        for (i = 0; i < info.n_shapes; i++) {
            const wnpu_accel_shape *s = &info.shapes[i];
            double operations = 2.0 * s->m * s->n * s->k;
            printf("  %5u x %5u x %5u  %9.1f us alone, %9.1f us in a chain (%.2f TOPS), weight "
                   "%.2f MiB\n", s->m, s->n, s->k, s->cost_us, s->chained_us,
                   s->chained_us > 0.0 ? operations / s->chained_us * 1e-6 : 0.0,
                   mib(s->resident_bytes));
        }
    }
    wnpu_amdxdna_close(accel);
    return 0;
}

int main(int argc, char **argv)
{
    wnpu_amdxdna_config config;
    wnpu_amdxdna_diagnosis diagnosis;
    int i, code = 0;
    wnpu_amdxdna_config_init(&config, sizeof config);
    config.log = on_log;
    for (i = 1; i < argc; i++) {
        int more = i + 1 < argc;
        if (strcmp(argv[i], "--pack") == 0 && more) {
            config.pack = argv[++i];
        } else if (strcmp(argv[i], "--node") == 0 && more) {
            config.node = argv[++i];
        } else if (strcmp(argv[i], "--root") == 0 && more) {
            config.root = argv[++i];
        } else if (strcmp(argv[i], "--sync") == 0) {
            config.flush_mode = WNPU_AMDXDNA_FLUSH_DRIVER;
        } else {
            fprintf(stderr, "usage: %s [--pack DIR] [--node NODE] [--root DIR] [--sync]\n",
                    argv[0]);
            return 2;
        }
    }
    memset(&diagnosis, 0, sizeof diagnosis);
    diagnosis.struct_size = (uint32_t)sizeof diagnosis;
    if (wnpu_amdxdna_diagnose(&config, &diagnosis) != WNPU_OK) {
        fprintf(stderr, "npu_doctor: no diagnosis possible\n");
        return 2;
    }
    report(&config, &diagnosis);
    if (diagnosis.cause == WNPU_AMDXDNA_FINE && config.root == NULL) {
        n_notes = 0; /* opening repeats them */
        code = kernels(&config);
    }
    print_notes();
    return diagnosis.cause == WNPU_AMDXDNA_FINE ? code : 1;
}
