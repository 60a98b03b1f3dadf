/* npu_child.h - for tests of the NPU part that start themselves under the simulated device, once
 * for each setting, because it reads its settings when a process starts. The child counts what is
 * left on the device and in host memory; the parent only looks at its exit status. */
#ifndef NPU_CHILD_H
#define NPU_CHILD_H
#include "sim_amdxdna.h"
#include "../../whisper_npu.h"
#include "../lib/t.h"
#include <dlfcn.h>
#include <unistd.h>

/* ---- the child's side ---- */

static int bad;

__attribute__((format(printf, 2, 3)))
static void check(int ok, const char *format, ...)
{
    if (!ok) {
        va_list args;
        bad++;
        printf("    ");
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        printf("\n");
        fflush(stdout);
    }
}

static void on_log(void *user, wnpu_log_level level, const char *text)
{
    (void)user;
    if (getenv("TEST_NPU_LOG") != NULL) {
        printf("    log %d: %s\n", (int)level, text);
    }
}

/* Host memory is counted too. */
static long long heap_blocks, heap_bytes;

static void *on_alloc(void *user, size_t size, size_t alignment)
{
    void *memory = NULL;
    (void)user;
    if (posix_memalign(&memory, alignment, size) != 0) {
        return NULL;
    }
    heap_blocks++;
    heap_bytes += (long long)size;
    return memory;
}

static void on_release(void *user, void *memory, size_t size)
{
    (void)user;
    heap_blocks--;
    heap_bytes -= (long long)size;
    free(memory);
}

static const wnpu_allocator counting = {on_alloc, on_release, NULL};

typedef size_t (*stats_fn)(void *to, size_t size);

static void configure(wnpu_amdxdna_config *config, const char *pack)
{
    void *symbol = dlsym(RTLD_DEFAULT, "sim_amdxdna_flush_user");
    const char *cache = getenv("SIM_AMDXDNA_CACHE");
    wnpu_amdxdna_config_init(config, sizeof *config);
    config->pack = pack != NULL && strcmp(pack, "auto") != 0 ? pack : NULL;
    config->log = on_log;
    config->cooldown_ms = 5;
    config->allocator = &counting;
    if (cache != NULL && strcmp(cache, "syncbo") == 0) {
        config->flush_mode = WNPU_AMDXDNA_FLUSH_DRIVER;
    } else if (cache == NULL) {
        memcpy(&config->flush, &symbol, sizeof symbol);
    }
}

static sim_amdxdna_stats_v1 stats(void)
{
    sim_amdxdna_stats_v1 s;
    stats_fn get;
    void *symbol = dlsym(RTLD_DEFAULT, "sim_amdxdna_stats");
    memset(&s, 0, sizeof s);
    memcpy(&get, &symbol, sizeof symbol);
    if (get != NULL) {
        (void)get(&s, sizeof s);
    }
    return s;
}

static void check_clean(const char *when)
{
    sim_amdxdna_stats_v1 s = stats();
    /* A device that is gone answers ENODEV to every call: only closing the file frees then. */
    int gone = getenv("TEST_NPU_GONE") != NULL;
    if (gone) {
        s.leaked_bos = s.leaked_contexts = s.leaked_syncobjs = 0;
    }
    check(s.bos == 0 && s.mappings == 0 && s.contexts == 0 && s.syncobjs == 0 &&
          s.leaked_bos == 0 && s.leaked_mappings == 0 && s.leaked_contexts == 0 &&
          s.leaked_syncobjs == 0, "%s: live %llu %llu %llu %llu, leaked %llu %llu %llu %llu "
          "(buffers, mappings, contexts, syncobjs)", when, (unsigned long long)s.bos,
          (unsigned long long)s.mappings, (unsigned long long)s.contexts,
          (unsigned long long)s.syncobjs, (unsigned long long)s.leaked_bos,
          (unsigned long long)s.leaked_mappings, (unsigned long long)s.leaked_contexts,
          (unsigned long long)s.leaked_syncobjs);
    check(heap_blocks == 0 && heap_bytes == 0, "%s: %lld blocks of %lld bytes are left", when,
          heap_blocks, heap_bytes);
    check(s.violations == 0, "%s: %llu rules broken", when, (unsigned long long)s.violations);
}

/* A fault that never happened tests nothing: TEST_NPU_FAULTS says how many were ordered. */
static void check_fired(void)
{
    const char *ordered = getenv("TEST_NPU_FAULTS");
    check(ordered == NULL || stats().faults >= (uint64_t)atoi(ordered), "only %llu faults happened",
          (unsigned long long)stats().faults);
}

/* What counts is how long each wait in the driver was willing to take, not how long this machine,
 * which may be busy, let it take. A microsecond is for rounding. */
static void check_patience(double ms)
{
    check(stats().longest_wait_us <= ms * 1e3 + 1.0, "a wait was to take %.0f ms at most, not %.0f",
          stats().longest_wait_us * 1e-3, ms);
}

/* ---- the parent's side ---- */

static const char *self_path, *sim_path, *make_path, *packs_path;

/* environment: "NAME=value ..." for the child. While the device computes its clock stands still, so
 * that deadlines hold on a slow or busy machine. Returns its exit status. */
static int run(const char *environment, const char *arguments)
{
    char command[1200];
    int status;
    fflush(stdout);
    /* The simulator stands in front of a sanitizer's own interceptors on purpose. */
    snprintf(command, sizeof command, "env SIM_AMDXDNA_QUIET=1 SIM_AMDXDNA_CLOCK=model "
             "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 %s LD_PRELOAD=%s %s --child %s",
             environment, sim_path, self_path, arguments);
    status = system(command);
    if (status != 0) {
        printf("  failed: %s\n", command);
    }
    return status;
}

static const char *in_build(char *to, size_t size, const char *name)
{
    const char *build = getenv("WNPU_BUILD");
    snprintf(to, size, "%s/%s", build != NULL ? build : "build", name);
    return to;
}

/* Finds what is needed, from the command line [LIBSIM MAKE_PACK PACKS] or in WNPU_BUILD. */
static int find_paths(int argc, char **argv)
{
    static char paths[3][256];
    self_path = argv[0];
    sim_path = argc > 1 ? argv[1]
               : in_build(paths[0], sizeof paths[0], "libsim_amdxdna.so");
    make_path = argc > 2 ? argv[2] : in_build(paths[1], sizeof paths[1], "make_pack");
    packs_path = argc > 3 ? argv[3] : in_build(paths[2], sizeof paths[2], "packs");
    if (access(sim_path, R_OK) == 0 && access(make_path, X_OK) == 0) {
        return 0;
    }
    printf("usage: %s LIBSIM MAKE_PACK PACKS\n", argv[0]);
    return -1;
}

static void make_pack(const char *name, const char *options)
{
    char command[600];
    snprintf(command, sizeof command, "mkdir -p %s && %s %s/%s %s > /dev/null", packs_path,
             make_path, packs_path, name, options);
    T_CHECK(system(command) == 0, "%s", command);
}
#endif
