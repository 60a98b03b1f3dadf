/* npu_doctor.c - checks whether the NPU can be used and tells how to fix what prevents it.
 *
 *     npu_doctor                     the machine
 *     npu_doctor --pack DIR          also the kernel pack; tests and measures every kernel
 *     npu_doctor --node /dev/accel/accel1
 *     npu_doctor --root DIR          a recorded machine: its /sys, /proc, /dev under DIR
 *     npu_doctor --sync              flush caches through the driver instead of by CLFLUSH
 *
 * Exit status: 0 if the NPU works, 1 if something prevents it, 2 for wrong usage.
 *
 *     cc npu_doctor.c npu_amdxdna.c -I. $(pkg-config --cflags --libs libdrm) */
#include "whisper_npu.h"

#include <stdio.h>
#include <string.h>

static void on_log(void *user, wnpu_log_level level, const char *text)
{
    (void)user;
    (void)level;
    printf("  log       %s\n", text);
}

static double mib(uint64_t bytes)
{
    return (double)bytes / 1048576.0;
}

static void line(const char *name, const char *value)
{
    printf("  %-9s %s\n", name, value[0] != '\0' ? value : "-");
}

static void report(const wnpu_amdxdna_diagnosis *d)
{
    line("kernel", d->kernel);
    line("device", d->device);
    line("node", d->node);
    line("driver", d->driver);
    line("firmware", d->firmware);
    printf("  memory    %.1f MiB of buffers without weights\n", mib(d->memlock_needed));
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
    int i;
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
    report(&diagnosis);
    if (diagnosis.cause != WNPU_AMDXDNA_FINE) {
        return 1;
    }
    return config.pack != NULL && config.root == NULL ? kernels(&config) : 0;
}
