/* sim_amdxdna.c - a simulated AMD XDNA NPU behind the system calls, for any program:
 *
 *     LD_PRELOAD=build/libsim_amdxdna.so program
 *
 * shows a machine with /dev/accel/accel0, keeps every rule of the amdxdna driver that was read or
 * seen (each check and errno in its order), runs the submitted instruction streams on a functional
 * array, and counts. It says at exit, on stderr or in the log: what was done, a modelled time, what
 * was left behind, and "sim: N violations" of rules that neither driver nor device report.
 *
 *   SIM_AMDXDNA_KERNEL    6.16 6.17 6.18 6.19 7.0 7.1 7.2 (default) 7.3 legacy (out of tree, 1.0)
 *   SIM_AMDXDNA_DEVICE    npu1 (default) npu4
 *   SIM_AMDXDNA_PROTOCOL  firmware protocol; default 5.8 on npu1, 6.18 on npu4
 *   SIM_AMDXDNA_ADDRESS   pasid (default) or iova (7.1 and later)
 *   SIM_AMDXDNA_CACHE     strict (default): lines move only by sim_amdxdna_flush() and SYNC_BO;
 *                         syncbo: the same; trap: the program's CLFLUSH too, at some
 *                         microseconds a line (sim_clflush.c); off: coherent
 *   SIM_AMDXDNA_STRICT    1: abort at the first violation
 *   SIM_AMDXDNA_LENIENT   1: a fifth command in flight is accepted, as 7.2.13 sometimes does
 *   SIM_AMDXDNA_TIMESCALE multiplies the driver's times (watchdog, autosuspend); default 1
 *   SIM_AMDXDNA_CLOCK     real (default); model: from the submission of a command to its end
 *                         CLOCK_MONOTONIC stands still for the whole program, and then it moves on
 *                         by what the device would have taken. So deadlines hold however slow or
 *                         busy this machine is, and kernels are measured as the model has them.
 *                         cycles: the same, and "built-in" kernels take the cycles that their
 *                         machine code takes on the simulated array, counted once for each stream
 *   SIM_AMDXDNA_LATENCY   microseconds that each command takes at least; default 0
 *   SIM_AMDXDNA_REBUILD   milliseconds after a timeout in which commands come back untouched;
 *                         default 15 (10 to 20 were seen)
 *   SIM_AMDXDNA_UNREADY   milliseconds behind those in which commands end in state 5, because the
 *                         scheduler runs before the context is configured again; default 5
 *   SIM_AMDXDNA_WATCHDOG  seconds until the driver aborts a hung command, 0: never; default 2 from
 *                         7.2 on, 60 before
 *   SIM_AMDXDNA_MEMLOCK   RLIMIT_MEMLOCK in bytes; default the real one
 *   SIM_AMDXDNA_ADMIN     1: the program has CAP_SYS_ADMIN
 *   SIM_AMDXDNA_LAYOUT    "odd": the driver states a size of columns that their status does not have
 *   SIM_AMDXDNA_COLUMNS   the module option aie2_max_col; default 128
 *   SIM_AMDXDNA_CORES     the cores that a PDI of unknown content makes, see sim_cores_text();
 *                         "built-in" for those of the library's own kernels; without it the PDI's
 *                         machine code is executed, see sim_machine.c
 *   SIM_AMDXDNA_LOG       a file for the log and the report
 *   SIM_AMDXDNA_QUIET     1: no report on stderr
 *   SIM_AMDXDNA_FAULT     faults, separated by ';'. N is "3" (the third), "3+" (from it on) or "*"
 *       ioctl=NAME:N:ERRNO    NAME as in CREATE_BO, SYNCOBJ_TIMELINE_WAIT, or ANY
 *       wait=N:ERRNO          the same for SYNCOBJ_TIMELINE_WAIT
 *       open=ERRNO open=N:ERRNO mmap=N:ERRNO
 *       exec=N:WHAT           EXEC_CMD number N: timeout, stateS (5, 6, 8, ...), fw=STATUS,
 *                             lost (its fence signals, the context is dead), slow=MILLISECONDS,
 *                             dead (the firmware stops: CREATE_HWCTX blocks for 5 s and fails with
 *                             ETIME, then ENODEV), broken (its channel breaks: EPIPE). From 6.19 on
 *                             5 s without use heal both
 *       result=N:WHAT         its result: flipbit, zero, skip (nothing is written); stall: where
 *                             machine code is executed, the locks of column 0 row 2 are taken, so
 *                             that the array comes to a standstill
 *       gone=N                unplugged at ioctl number N
 *       suspend=N             the system suspends and resumes at EXEC_CMD number N
 *       random:SEED:PROB      any of these at any point with this probability
 *
 * Not modelled: other processes (each has an NPU of its own), dma-bufs, debug BOs, opcodes 20 to 22
 * beyond the driver's checks, time slicing, posix_spawn() and glob().
 *
 * Exported for tests: sim_amdxdna_flush(address, size), sim_amdxdna_flush_user(user, address,
 * size), sim_amdxdna_stats(to, size), sim_amdxdna_violations().
 */
#include "sim_amdxdna.h"
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <linux/futex.h>

#define MAX_FAULTS 16u

typedef struct fault {
    char kind[16], name[32], what[32];
    uint64_t n, seen;
    int onwards;
} fault;

sim_state sim = { .lock = PTHREAD_MUTEX_INITIALIZER, .log_fd = -1 };
static fault faults[MAX_FAULTS];
static unsigned n_faults;
static double random_probability;
static uint64_t random_state = 88172645463325252u, random_commands = 88172645463325252u;
static uint64_t ioctls_seen;
static pthread_once_t settings_once = PTHREAD_ONCE_INIT;

/* What the program's clock is behind the real one, in nanoseconds. */
static struct {
    pthread_mutex_t lock;
    int64_t behind, since;      /* since: it stands still; 0: it runs */
} model_clock = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---------------------------------------------------------------- log, time, memory */

static int64_t real_ns(void)
{
    struct timespec now = { 0, 0 };
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t model_ns(void)
{
    int64_t now;
    pthread_mutex_lock(&model_clock.lock);
    now = (model_clock.since != 0 ? model_clock.since : real_ns()) - model_clock.behind;
    pthread_mutex_unlock(&model_clock.lock);
    return now;
}

void sim_clock_stop(void)
{
    if (sim.model_clock) {
        pthread_mutex_lock(&model_clock.lock);
        model_clock.since = model_clock.since != 0 ? model_clock.since : real_ns();
        pthread_mutex_unlock(&model_clock.lock);
    }
}

void sim_clock_go_on(double us)
{
    if (sim.model_clock) {
        pthread_mutex_lock(&model_clock.lock);
        model_clock.behind += model_clock.since != 0 ? real_ns() - model_clock.since : 0;
        model_clock.behind -= (int64_t)(us * 1e3);
        model_clock.since = 0;
        pthread_mutex_unlock(&model_clock.lock);
    }
}

double sim_now(void)
{
    return 1e-9 * (double)model_ns();
}

SIM_API int clock_gettime(clockid_t id, struct timespec *to);
SIM_API int clock_nanosleep(clockid_t id, int flags, const struct timespec *request,
                            struct timespec *left);

int clock_gettime(clockid_t id, struct timespec *to)
{
    int64_t now;
    if (id != CLOCK_MONOTONIC || !sim.model_clock) {
        return (int)syscall(SYS_clock_gettime, id, to);
    }
    now = model_ns();
    to->tv_sec = (time_t)(now / 1000000000);
    to->tv_nsec = (long)(now % 1000000000);
    return 0;
}

int clock_nanosleep(clockid_t id, int flags, const struct timespec *request,
                    struct timespec *left)
{
    if (id != CLOCK_MONOTONIC || !sim.model_clock || (flags & TIMER_ABSTIME) == 0) {
        return syscall(SYS_clock_nanosleep, id, flags, request, left) == 0 ? 0 : errno;
    }
    for (;;) {
        int64_t ns = (int64_t)request->tv_sec * 1000000000 + request->tv_nsec - model_ns();
        struct timespec nap = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };
        if (ns <= 0) {
            return 0;
        }
        if (nanosleep(&nap, NULL) != 0 && errno == EINTR) {
            return EINTR;
        }
    }
}

static void put(int fd, const char *text, size_t size)
{
    long ignored = syscall(SYS_write, fd, text, size);
    (void)ignored;
}

static void log_line(int fd, const char *prefix, const char *format, va_list args)
{
    char line[600];
    int n = snprintf(line, sizeof line, "%s", prefix);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    size_t size = (size_t)n + (m > 0 ? (size_t)m : 0);
    size = size < sizeof line - 1 ? size : sizeof line - 2;
    line[size] = '\n';
    put(fd, line, size + 1);
}

void sim_log(const char *format, ...)
{
    va_list args;
    if (sim.log_fd >= 0) {
        va_start(args, format);
        log_line(sim.log_fd, "sim: ", format, args);
        va_end(args);
    }
}

void sim_violation(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (__atomic_fetch_add(&sim.stats.violations, 1, __ATOMIC_RELAXED) < 100) {
        log_line(sim.log_fd >= 0 ? sim.log_fd : 2, "sim: violation: ", format, args);
    }
    va_end(args);
    if (sim.strict) {
        static const char words[] = "sim: aborting at the first violation\n";
        put(2, words, sizeof words - 1);
        abort();
    }
}

/* Copies through the kernel, so that a bad pointer is EFAULT and not a crash. */
static int copy(void *local, uint64_t remote, size_t size, int out)
{
    struct iovec here = { local, size }, there = { (void *)(uintptr_t)remote, size };
    ssize_t n;
    if (size == 0) {
        return 0;
    }
    n = out ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
            : process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    return n == (ssize_t)size ? 0 : -EFAULT;
}

int sim_copy_in(void *to, uint64_t from, size_t size)
{
    return copy(to, from, size, 0);
}

int sim_copy_out(uint64_t to, const void *from, size_t size)
{
    char buffer[4096];
    memcpy(buffer, from, size < sizeof buffer ? size : sizeof buffer);
    return size <= sizeof buffer ? copy(buffer, to, size, 1) : -EINVAL;
}

void sim_wake(void)
{
    __atomic_fetch_add(&sim.events, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &sim.events, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

int sim_sleep(uint32_t seen, double until)
{
    double left = until - sim_now();
    struct timespec wait;
    if (left <= 0) {
        return -ETIME;
    }
    left = left < 1000.0 ? left : 1000.0;
    wait.tv_sec = (time_t)left;
    wait.tv_nsec = (long)((left - (double)wait.tv_sec) * 1e9);
    if (syscall(SYS_futex, &sim.events, FUTEX_WAIT_PRIVATE, seen, &wait, NULL, 0) != 0 &&
        errno == EINTR) {
        return -EINTR;
    }
    return 0;
}

/* ---------------------------------------------------------------- faults */

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13; /* xorshift64, Marsaglia 2003 */
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

uint32_t sim_random_bits(void)
{
    return (uint32_t)(draw(&random_commands) >> 16);
}

static int unlucky(uint64_t *state)
{
    return random_probability > 0 &&
           (double)(draw(state) >> 11) / 9007199254740992.0 < random_probability;
}

static int errno_of(const char *name)
{
    static const struct { const char *name; int value; } names[] = {
        { "EPERM", EPERM }, { "ENOENT", ENOENT }, { "EINTR", EINTR }, { "EIO", EIO },
        { "ENXIO", ENXIO }, { "EAGAIN", EAGAIN }, { "ENOMEM", ENOMEM }, { "EACCES", EACCES },
        { "EFAULT", EFAULT }, { "EBUSY", EBUSY }, { "ENODEV", ENODEV }, { "EINVAL", EINVAL },
        { "EMFILE", EMFILE }, { "ENOTTY", ENOTTY }, { "ENOSPC", ENOSPC }, { "EPIPE", EPIPE },
        { "ETIME", ETIME }, { "EALREADY", EALREADY }, { "EOPNOTSUPP", EOPNOTSUPP },
        { "ETIMEDOUT", ETIMEDOUT }, { "ECANCELED", ECANCELED }, { "ENOSYS", ENOSYS } };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i].name) == 0) {
            return names[i].value;
        }
    }
    return atoi(name) > 0 ? atoi(name) : EIO;
}

static int hits(fault *f, uint64_t n)
{
    int hit = f->n == 0 || n == f->n || (f->onwards && n > f->n);
    if (hit) {
        sim.stats.faults++;
        sim_log("fault: %s %s %llu: %s", f->kind, f->name, (unsigned long long)n, f->what);
    }
    return hit;
}

/* A random error at a call, one that the call could return; never where it would make the program
 * leak what it tries to free. */
static int random_error(const char *point)
{
    static const int any[] = { ENOMEM, EINVAL, EIO, EINTR, ENODEV, EBUSY, EFAULT, EAGAIN };
    int error;
    if (strcmp(point, "GEM_CLOSE") == 0 || strcmp(point, "DESTROY_HWCTX") == 0 ||
        strcmp(point, "SYNCOBJ_DESTROY") == 0 || !unlucky(&random_state)) {
        return 0;
    }
    error = any[draw(&random_state) % (sizeof any / sizeof *any)];
    sim.stats.faults++;
    sim_log("fault: random: %s fails with %d", point, error);
    return error;
}

int sim_fault_call(const char *point)
{
    int is_ioctl = strcmp(point, "open") != 0 && strcmp(point, "mmap") != 0;
    if (is_ioctl) {
        ioctls_seen++;
    }
    for (unsigned i = 0; i < n_faults; i++) {
        fault *f = &faults[i];
        if (is_ioctl && strcmp(f->kind, "gone") == 0 && ioctls_seen == f->n && hits(f, f->n)) {
            sim_engine_unplug();
        } else if (strcmp(f->kind, "call") == 0 &&
                   (strcmp(f->name, point) == 0 || (is_ioctl && strcmp(f->name, "ANY") == 0)) &&
                   hits(f, ++f->seen)) {
            return errno_of(f->what);
        }
    }
    return random_error(point);
}

void sim_fault_command(const char *kind, uint64_t n, char *what, size_t size)
{
    static const char *const bad[] = { "timeout", "state5", "state6", "lost" };
    static const char *const wrong[] = { "flipbit", "zero", "skip" };
    what[0] = '\0';
    for (unsigned i = 0; i < n_faults; i++) {
        if (strcmp(faults[i].kind, kind) == 0 && hits(&faults[i], n)) {
            snprintf(what, size, "%s", faults[i].what);
            return;
        }
    }
    if (strcmp(kind, "suspend") != 0 && unlucky(&random_commands)) {
        int result = strcmp(kind, "result") == 0;
        snprintf(what, size, "%s", result ? wrong[draw(&random_commands) % 3]
                                          : bad[draw(&random_commands) % 4]);
        sim.stats.faults++;
        sim_log("fault: random: %s %llu: %s", kind, (unsigned long long)n, what);
    }
}

/* One entry of SIM_AMDXDNA_FAULT. */
static void add_fault(char *text)
{
    char *at = strchr(text, '='), *colon;
    fault *f = &faults[n_faults];
    if (strncmp(text, "random:", 7) == 0) {
        unsigned long long seed;
        if (sscanf(text + 7, "%llu:%lf", &seed, &random_probability) == 2) {
            random_state = seed * 2654435761u + 88172645463325252u;
            random_commands = seed * 40503u + 362436069u;
        }
        return;
    }
    if (at == NULL || n_faults == MAX_FAULTS) {
        return;
    }
    *at++ = '\0';
    memset(f, 0, sizeof *f);
    snprintf(f->kind, sizeof f->kind, "%s", text);
    if (strcmp(text, "ioctl") == 0 && (colon = strchr(at, ':')) != NULL) {
        snprintf(f->name, sizeof f->name, "%.*s", (int)(colon - at), at);
        at = colon + 1;
    } else if (strcmp(text, "wait") == 0) {
        snprintf(f->name, sizeof f->name, "SYNCOBJ_TIMELINE_WAIT");
    } else if (strcmp(text, "open") == 0 || strcmp(text, "mmap") == 0) {
        snprintf(f->name, sizeof f->name, "%s", text);
    }
    if (f->name[0] != '\0') {
        snprintf(f->kind, sizeof f->kind, "call");
    }
    if (*at == '*' || (*at >= '0' && *at <= '9')) {
        char *end = at + 1;
        f->n = *at == '*' ? 0 : strtoull(at, &end, 10);
        f->onwards = *end == '+';
        at = strchr(at, ':');
        at = at != NULL ? at + 1 : end + strlen(end);
    }
    snprintf(f->what, sizeof f->what, "%s", *at != '\0' ? at : "once");
    n_faults++;
}

/* ---------------------------------------------------------------- settings and report */

static int setting_is(const char *name, const char *value)
{
    const char *text = getenv(name);
    return text != NULL && strcmp(text, value) == 0;
}

static double setting_number(const char *name, double otherwise)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtod(text, NULL) : otherwise;
}

static void read_faults(void)
{
    char text[512], *save = NULL;
    const char *list = getenv("SIM_AMDXDNA_FAULT");
    snprintf(text, sizeof text, "%s", list != NULL ? list : "");
    for (char *item = strtok_r(text, ";", &save); item != NULL;
         item = strtok_r(NULL, ";", &save)) {
        add_fault(item);
    }
}

static void fork_prepare(void);
static void fork_parent(void);
static void fork_child(void);

static void read_settings(void)
{
    const char *kernel = getenv("SIM_AMDXDNA_KERNEL"), *log = getenv("SIM_AMDXDNA_LOG");
    const char *protocol = getenv("SIM_AMDXDNA_PROTOCOL"), *cores = getenv("SIM_AMDXDNA_CORES");
    unsigned major = 7, minor = 2;
    if (kernel != NULL) {
        sscanf(kernel, "%u.%u", &major, &minor);
    }
    sim.kernel = setting_is("SIM_AMDXDNA_KERNEL", "legacy") ? SIM_LEGACY
                                                             : (int)(major * 100 + minor);
    sim.device = setting_is("SIM_AMDXDNA_DEVICE", "npu4") ? SIM_NPU4 : SIM_NPU1;
    sim.protocol_major = sim.device == SIM_NPU1 ? 5 : 6;
    sim.protocol_minor = sim.device == SIM_NPU1 ? 8 : 18;
    if (protocol != NULL) {
        sscanf(protocol, "%u.%u", &sim.protocol_major, &sim.protocol_minor);
    }
    sim.iova = setting_is("SIM_AMDXDNA_ADDRESS", "iova") && sim_kernel(701);
    sim.coherent = setting_is("SIM_AMDXDNA_CACHE", "off");
    sim.trap = setting_is("SIM_AMDXDNA_CACHE", "trap");
    sim.strict = setting_is("SIM_AMDXDNA_STRICT", "1");
    sim.lenient = setting_is("SIM_AMDXDNA_LENIENT", "1");
    sim.admin = setting_is("SIM_AMDXDNA_ADMIN", "1");
    sim.odd_layout = setting_is("SIM_AMDXDNA_LAYOUT", "odd");
    sim.count_cycles = setting_is("SIM_AMDXDNA_CLOCK", "cycles");
    sim.model_clock = sim.count_cycles || setting_is("SIM_AMDXDNA_CLOCK", "model");
    sim.time_scale = setting_number("SIM_AMDXDNA_TIMESCALE", 1.0);
    sim.latency = setting_number("SIM_AMDXDNA_LATENCY", 0.0) * 1e-6;
    sim.rebuild = setting_number("SIM_AMDXDNA_REBUILD", 15.0) * 1e-3;
    sim.unready = setting_number("SIM_AMDXDNA_UNREADY", 5.0) * 1e-3;
    sim.watchdog = setting_number("SIM_AMDXDNA_WATCHDOG", sim_kernel(702) ? 2.0 : 60.0);
    sim.memlock = getenv("SIM_AMDXDNA_MEMLOCK") != NULL ?
                  (uint64_t)setting_number("SIM_AMDXDNA_MEMLOCK", 0) : SIM_NONE;
    sim.max_col = (uint32_t)setting_number("SIM_AMDXDNA_COLUMNS", 128);
    snprintf(sim.cores, sizeof sim.cores, "%s", cores != NULL ? cores : "");
    if (log != NULL && *log != '\0') {
        sim.log_fd = (int)syscall(SYS_openat, AT_FDCWD, log,
                                  O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    }
    read_faults();
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* Sanitizers call libc before the environment is there. */
static void settle(void)
{
    if (environ != NULL) {
        pthread_once(&settings_once, read_settings);
    }
}

void sim_enter(void)
{
    settle();
    pthread_mutex_lock(&sim.lock);
}

void sim_leave(void)
{
    pthread_mutex_unlock(&sim.lock);
}

__attribute__((format(printf, 1, 2))) static void report(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (sim.log_fd >= 0 || !setting_is("SIM_AMDXDNA_QUIET", "1")) {
        log_line(sim.log_fd >= 0 ? sim.log_fd : 2, "sim: ", format, args);
    }
    va_end(args);
}

/* What the process leaves to the kernel to free. */
static void count_leaks(void)
{
    sim_amdxdna_stats_v1 *s = &sim.stats;
    for (sim_file *file = sim.files; file != NULL; file = file->next) {
        if (!file->inherited) {
            sim_log("a descriptor is left open");
        }
    }
    s->leaked_bos += s->bos;
    s->leaked_mappings += s->mappings;
    s->leaked_contexts += s->contexts;
    s->leaked_syncobjs += s->syncobjs;
}

__attribute__((destructor)) static void at_exit(void)
{
    const sim_amdxdna_stats_v1 *s = &sim.stats;
    if (!sim.opened) {
        return;
    }
    sim_enter();
    count_leaks();
    report("%s on %s, protocol %u.%u, %s, cache %s", sim_files_release(),
           sim.device == SIM_NPU1 ? "NPU1" : "NPU4", sim.protocol_major, sim.protocol_minor,
           sim.iova ? "iova" : "pasid", sim.coherent ? "off" : "strict");
    report("%llu ioctls, %llu submissions of %llu commands, %llu waits (%llu slept), "
           "%llu failed, %llu timed out", (unsigned long long)s->ioctls,
           (unsigned long long)s->submissions, (unsigned long long)s->commands,
           (unsigned long long)s->waits, (unsigned long long)s->sleeps,
           (unsigned long long)s->failed, (unsigned long long)s->timeouts);
    report("%llu MACs, DMA %llu bytes in and %llu out, %llu bytes flushed, %llu bytes of BOs "
           "at most, %llu faults injected", (unsigned long long)s->macs,
           (unsigned long long)s->bytes_in, (unsigned long long)s->bytes_out,
           (unsigned long long)s->bytes_flushed, (unsigned long long)s->peak_bytes,
           (unsigned long long)s->faults);
    report("modelled (public figures, not measured): %.0f us on the device = %.0f submitting + "
           "%.0f computing or moving data (alone: %.0f, %.0f) + %.0f switching contexts %llu times",
           s->device_us, s->overhead_us, s->device_us - s->overhead_us - s->switch_us,
           s->compute_us, s->memory_us, s->switch_us, (unsigned long long)s->switches);
    report("leaks: bos=%llu mappings=%llu contexts=%llu syncobjs=%llu",
           (unsigned long long)s->leaked_bos, (unsigned long long)s->leaked_mappings,
           (unsigned long long)s->leaked_contexts, (unsigned long long)s->leaked_syncobjs);
    report("%llu violations", (unsigned long long)s->violations);
    sim_leave();
}

SIM_API void sim_amdxdna_flush(const void *address, size_t size);
SIM_API void sim_amdxdna_flush_user(void *user, const void *address, size_t size);
SIM_API size_t sim_amdxdna_stats(void *to, size_t size);
SIM_API uint64_t sim_amdxdna_violations(void);

/* Stands for CLFLUSH of each line of the range, with its fences. */
void sim_amdxdna_flush(const void *address, size_t size)
{
    sim_enter();
    sim_flush_va(address, size);
    sim_leave();
}

void sim_amdxdna_flush_user(void *user, const void *address, size_t size)
{
    (void)user;
    sim_amdxdna_flush(address, size);
}

/* Copies at most size bytes of sim_amdxdna_stats_v1; returns how many there are. */
size_t sim_amdxdna_stats(void *to, size_t size)
{
    sim_enter();
    memcpy(to, &sim.stats, size < sizeof sim.stats ? size : sizeof sim.stats);
    sim_leave();
    return sizeof sim.stats;
}

uint64_t sim_amdxdna_violations(void)
{
    return __atomic_load_n(&sim.stats.violations, __ATOMIC_RELAXED);
}

/* ---------------------------------------------------------------- fork */

/* Up to 6.19 (and in the legacy driver) any close of a copy of the descriptor destroys the file's
 * contexts. A forked child's copies close when it closes, execs or ends, which the parent learns
 * from the end of a pipe that the child holds. posix_spawn() and system() are not seen. */
static int fork_pipe[8][2];

static int has_flush_hook(void)
{
    return !sim_kernel(700);
}

static void fork_prepare(void)
{
    unsigned n = 0;
    pthread_mutex_lock(&sim.lock);
    for (sim_file *file = sim.files; file != NULL && n < 8; file = file->next, n++) {
        fork_pipe[n][0] = fork_pipe[n][1] = -1;
        if (has_flush_hook() && !file->inherited && file->fds > 0) {
            syscall(SYS_pipe2, fork_pipe[n], O_NONBLOCK | (file->keep_on_exec ? 0 : O_CLOEXEC));
        }
    }
}

static void fork_parent(void)
{
    unsigned n = 0;
    for (sim_file *file = sim.files; file != NULL && n < 8; file = file->next, n++) {
        if (fork_pipe[n][0] >= 0) {
            syscall(SYS_close, fork_pipe[n][1]);
            if (file->n_flush < 16) {
                file->flush_fd[file->n_flush++] = fork_pipe[n][0];
            }
        }
    }
    pthread_mutex_unlock(&sim.lock);
}

static void fork_child(void)
{
    unsigned n = 0;
    for (sim_file *file = sim.files; file != NULL && n < 8; file = file->next, n++) {
        file->inherited = 1;
        file->n_flush = 0;
        if (fork_pipe[n][0] >= 0) {
            syscall(SYS_close, fork_pipe[n][0]);
            file->flush_fd[file->n_flush++] = fork_pipe[n][1];
        }
    }
    sim.opened = sim.engine_runs = 0;
    sim.maps = NULL;
    sim.current = NULL;
    sim.fw_contexts = 0;
    memset(&sim.stats, 0, sizeof sim.stats);
    sim_memory_forget();
    pthread_mutex_init(&sim.lock, NULL);
    pthread_mutex_init(&model_clock.lock, NULL);
    model_clock.since = 0;
}

/* In the parent: has a child let go of its copy? */
static void check_children(sim_file *file)
{
    for (unsigned i = 0; i < file->n_flush;) {
        char byte;
        if (syscall(SYS_read, file->flush_fd[i], &byte, 1) == 0) {
            syscall(SYS_close, file->flush_fd[i]);
            file->flush_fd[i] = file->flush_fd[--file->n_flush];
            sim_log("a forked child let go of the descriptor");
            sim_driver_flush(file);
        } else {
            i++;
        }
    }
}

/* ---------------------------------------------------------------- descriptors */

static sim_file *file_of(int fd)
{
    return fd >= 0 && fd < SIM_MAX_FDS ? __atomic_load_n(&sim.fd[fd], __ATOMIC_ACQUIRE) : NULL;
}

static void bind_fd(int fd, sim_file *file)
{
    if (fd >= 0 && fd < SIM_MAX_FDS) {
        __atomic_store_n(&sim.fd[fd], file, __ATOMIC_RELEASE);
        file->fds++;
    }
}

static void drop_file(sim_file *file)
{
    for (sim_file **link = &sim.files; *link != NULL; link = &(*link)->next) {
        if (*link == file) {
            *link = file->next;
            break;
        }
    }
    for (unsigned i = 0; i < file->n_flush; i++) {
        syscall(SYS_close, file->flush_fd[i]);
    }
    free(file);
}

/* The program's descriptor goes away: the flush hook of old drivers, then maybe the file. */
static void unbind_fd(int fd)
{
    sim_file *file;
    sim_enter();
    file = file_of(fd);
    if (file != NULL) {
        sim.fd[fd] = NULL;
        file->fds--;
        if (!file->inherited && has_flush_hook()) {
            sim_driver_flush(file);
        }
        if (file->fds == 0) {
            if (!file->inherited) {
                sim_driver_release(file);
            }
            drop_file(file);
        }
    }
    sim_leave();
}

static int open_device(int flags)
{
    sim_file *file = NULL;
    int fd, error;
    sim_enter();
    error = sim_fault_call("open");
    error = error != 0 ? -error : sim_driver_open(&file);
    if (error == 0) {
        fd = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | (flags & O_CLOEXEC));
        error = fd < 0 ? -errno : fd >= SIM_MAX_FDS ? -EMFILE : 0;
    }
    if (error != 0) {
        free(file);
        sim_leave();
        errno = -error;
        return -1;
    }
    if ((flags & O_CLOEXEC) == 0) {
        sim_violation("the node is opened without O_CLOEXEC");
    }
    file->keep_on_exec = (flags & O_CLOEXEC) == 0;
    file->next = sim.files;
    sim.files = file;
    bind_fd(fd, file);
    sim_log("open -> %d", fd);
    sim_leave();
    return fd;
}

static int open_text(const sim_node *node, int flags)
{
    int fd = (int)syscall(SYS_memfd_create, node->path, (flags & O_CLOEXEC) != 0 ? 1u : 0u);
    if (fd >= 0) {
        put(fd, node->text, strlen(node->text));
        lseek(fd, 0, SEEK_SET);
    }
    return fd;
}

/* One of ours if it returns 1, with the answer in *fd. */
static int open_owned(const char *path, int flags, int *fd)
{
    const sim_node *node;
    if (!sim_files_owns(path)) {
        return 0;
    }
    settle();
    node = sim_files_find(path, 1);
    *fd = -1;
    if (node == NULL) {
        errno = ENOENT;
    } else if (node->kind == 'c') {
        *fd = open_device(flags);
    } else if (node->kind == 'f') {
        *fd = open_text(node, flags);
    } else {
        errno = EISDIR;
    }
    return 1;
}

static int open_any(int directory, const char *path, int flags, unsigned mode)
{
    int fd;
    if (open_owned(path, flags, &fd)) {
        return fd;
    }
    return (int)syscall(SYS_openat, directory, path, flags, mode);
}

static unsigned mode_argument(int flags, va_list args)
{
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, unsigned) : 0;
}

SIM_API int open(const char *path, int flags, ...)
{
    unsigned mode;
    va_list args;
    va_start(args, flags);
    mode = mode_argument(flags, args);
    va_end(args);
    return open_any(AT_FDCWD, path, flags, mode);
}

SIM_API int open64(const char *path, int flags, ...)
{
    unsigned mode;
    va_list args;
    va_start(args, flags);
    mode = mode_argument(flags, args);
    va_end(args);
    return open_any(AT_FDCWD, path, flags, mode);
}

SIM_API int openat(int directory, const char *path, int flags, ...)
{
    unsigned mode;
    va_list args;
    va_start(args, flags);
    mode = mode_argument(flags, args);
    va_end(args);
    return open_any(directory, path, flags, mode);
}

SIM_API int openat64(int directory, const char *path, int flags, ...)
{
    unsigned mode;
    va_list args;
    va_start(args, flags);
    mode = mode_argument(flags, args);
    va_end(args);
    return open_any(directory, path, flags, mode);
}

/* What fortified programs call. */
SIM_API int __open_2(const char *path, int flags);
SIM_API int __open64_2(const char *path, int flags);
int __open_2(const char *path, int flags)
{
    return open_any(AT_FDCWD, path, flags, 0);
}
int __open64_2(const char *path, int flags)
{
    return open_any(AT_FDCWD, path, flags, 0);
}

static void next_symbol(void *function, size_t size, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, size < sizeof found ? size : sizeof found);
}

static FILE *open_stream(const char *path, const char *mode, const char *real_name)
{
    FILE *(*real)(const char *, const char *) = NULL;
    int fd;
    if (open_owned(path, strchr(mode, 'e') != NULL ? O_CLOEXEC : 0, &fd)) {
        return fd < 0 ? NULL : fdopen(fd, "r");
    }
    next_symbol(&real, sizeof real, real_name);
    return real(path, mode);
}

SIM_API FILE *fopen(const char *path, const char *mode)
{
    return open_stream(path, mode, "fopen");
}

SIM_API FILE *fopen64(const char *path, const char *mode)
{
    return open_stream(path, mode, "fopen64");
}

SIM_API int close(int fd)
{
    if (file_of(fd) != NULL) {
        unbind_fd(fd);
    }
    return (int)syscall(SYS_close, fd);
}

static int copied(int from, int to)
{
    sim_file *file = file_of(from);
    if (to >= 0 && file != NULL) {
        sim_enter();
        bind_fd(to, file);
        sim_log("descriptor %d is now also %d", from, to);
        sim_leave();
    }
    return to;
}

SIM_API int dup(int fd)
{
    return copied(fd, (int)syscall(SYS_dup, fd));
}

SIM_API int dup3(int from, int to, int flags)
{
    if (from != to && file_of(to) != NULL) {
        unbind_fd(to);
    }
    return copied(from, (int)syscall(SYS_dup3, from, to, flags));
}

SIM_API int dup2(int from, int to)
{
    if (from == to) {
        return syscall(SYS_fcntl, from, F_GETFD) < 0 ? -1 : to;
    }
    return dup3(from, to, 0);
}

static int control(int fd, int command, va_list args)
{
    void *argument = va_arg(args, void *);
    int result = (int)syscall(SYS_fcntl, fd, command, argument);
    return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? copied(fd, result) : result;
}

SIM_API int fcntl(int fd, int command, ...)
{
    int result;
    va_list args;
    va_start(args, command);
    result = control(fd, command, args);
    va_end(args);
    return result;
}

SIM_API int fcntl64(int fd, int command, ...)
{
    int result;
    va_list args;
    va_start(args, command);
    result = control(fd, command, args);
    va_end(args);
    return result;
}

/* ---------------------------------------------------------------- the device's calls */

SIM_API int ioctl(int fd, unsigned long request, ...)
{
    sim_file *file = file_of(fd);
    void *argument;
    int result;
    va_list args;
    va_start(args, request);
    argument = va_arg(args, void *);
    va_end(args);
    if (file == NULL) {
        return (int)syscall(SYS_ioctl, fd, request, argument);
    }
    sim_enter();
    if (file->inherited) {
        sim_violation("a forked child uses its parent's descriptor");
        result = -EINVAL;
    } else {
        check_children(file);
        sim.stats.ioctls++;
        result = sim_fault_call(sim_driver_name((unsigned)(request & 0xFF)));
        result = result != 0 ? -result : sim_driver_ioctl(file, request, argument);
        sim_log("%s -> %d", sim_driver_name((unsigned)(request & 0xFF)), result);
    }
    sim_leave();
    if (result < 0) {
        errno = -result;
        return -1;
    }
    return result;
}

static void *map_any(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
    sim_file *file = file_of(fd);
    void *result;
    int error;
    if (file == NULL || (flags & MAP_ANONYMOUS) != 0) {
        result = (void *)syscall(SYS_mmap, at, size, prot, flags, fd, offset);
        if ((flags & MAP_FIXED) != 0 && result != MAP_FAILED && sim.maps != NULL) {
            sim_enter();
            sim_unmap((uint64_t)(uintptr_t)result, size, 1);
            sim_leave();
        }
        return result;
    }
    sim_enter();
    error = file->inherited ? EINVAL : sim_fault_call("mmap");
    if (error != 0) {
        errno = error;
        result = MAP_FAILED;
    } else {
        result = sim_map_bo(file, at, size, prot, flags, (uint64_t)offset);
        error = errno;
    }
    sim_log("mmap of %zu bytes at offset 0x%llx -> %p", size, (unsigned long long)offset, result);
    sim_leave();
    errno = result == MAP_FAILED ? error : errno;
    return result;
}

SIM_API void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
    return map_any(at, size, prot, flags, fd, offset);
}

SIM_API void *mmap64(void *at, size_t size, int prot, int flags, int fd, off_t offset)
{
    return map_any(at, size, prot, flags, fd, offset);
}

SIM_API int munmap(void *at, size_t size)
{
    if (sim.maps != NULL) {
        sim_enter();
        sim_unmap((uint64_t)(uintptr_t)at, size, 0);
        sim_leave();
    }
    return (int)syscall(SYS_munmap, at, size);
}

/* The device never has an event to read. */
SIM_API int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    struct pollfd copies[64];
    struct timespec wait = { timeout / 1000, timeout % 1000 * 1000000L };
    int result;
    if (count > 64) {
        return (int)syscall(SYS_ppoll, fds, count, timeout < 0 ? NULL : &wait, NULL, 8);
    }
    memcpy(copies, fds, count * sizeof *fds);
    for (nfds_t i = 0; i < count; i++) {
        copies[i].fd = file_of(fds[i].fd) != NULL ? -1 : fds[i].fd;
    }
    result = (int)syscall(SYS_ppoll, copies, count, timeout < 0 ? NULL : &wait, NULL, 8);
    for (nfds_t i = 0; i < count && result >= 0; i++) {
        fds[i].revents = copies[i].revents;
    }
    return result;
}

/* ---------------------------------------------------------------- files by name */

static void fill_stat(struct stat *st, const sim_node *node)
{
    memset(st, 0, sizeof *st);
    st->st_nlink = 1;
    st->st_mode = node->kind == 'd' ? S_IFDIR | 0755u : node->kind == 'c' ? S_IFCHR | 0660u :
                  node->kind == 'l' ? S_IFLNK | 0777u : S_IFREG | 0444u;
    st->st_size = node->kind == 'f' ? 4096 : 0;
    st->st_ino = (ino_t)(uintptr_t)node & 0xFFFFFF;
    st->st_blksize = 4096;
    if (node->kind == 'c') {
        st->st_rdev = makedev(261, 0);
    }
}

static int stat_any(int directory, const char *path, struct stat *st, int flags)
{
    const sim_node *node;
    if (path != NULL && path[0] == '\0' && file_of(directory) != NULL) {
        fill_stat(st, sim_files_find("/dev/accel/accel0", 1));
        return 0;
    }
    if (!sim_files_owns(path)) {
        return (int)syscall(SYS_newfstatat, directory, path, st, flags);
    }
    settle();
    node = sim_files_find(path, (flags & AT_SYMLINK_NOFOLLOW) == 0);
    if (node == NULL) {
        errno = ENOENT;
        return -1;
    }
    fill_stat(st, node);
    return 0;
}

SIM_API int stat(const char *restrict path, struct stat *restrict st)
{
    return stat_any(AT_FDCWD, path, st, 0);
}

SIM_API int lstat(const char *restrict path, struct stat *restrict st)
{
    return stat_any(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

SIM_API int fstat(int fd, struct stat *st)
{
    return stat_any(fd, "", st, AT_EMPTY_PATH);
}

SIM_API int fstatat(int fd, const char *restrict path, struct stat *restrict st, int flags)
{
    return stat_any(fd, path, st, flags);
}

/* On 64-bit Linux both kinds of struct stat are one. */
SIM_API int stat64(const char *restrict path, struct stat64 *restrict st)
{
    return stat_any(AT_FDCWD, path, (struct stat *)st, 0);
}

SIM_API int lstat64(const char *restrict path, struct stat64 *restrict st)
{
    return stat_any(AT_FDCWD, path, (struct stat *)st, AT_SYMLINK_NOFOLLOW);
}

SIM_API int fstat64(int fd, struct stat64 *st)
{
    return stat_any(fd, "", (struct stat *)st, AT_EMPTY_PATH);
}

SIM_API int faccessat(int directory, const char *path, int mode, int flags)
{
    const sim_node *node;
    if (!sim_files_owns(path)) {
        return (int)syscall(SYS_faccessat, directory, path, mode, flags);
    }
    settle();
    node = sim_files_find(path, 1);
    if (node == NULL || ((mode & W_OK) != 0 && node->kind == 'f')) {
        errno = node == NULL ? ENOENT : EACCES;
        return -1;
    }
    return 0;
}

SIM_API int access(const char *path, int mode)
{
    return faccessat(AT_FDCWD, path, mode, 0);
}

SIM_API ssize_t readlinkat(int directory, const char *restrict path, char *restrict to,
                           size_t size)
{
    const sim_node *node;
    size_t n;
    if (!sim_files_owns(path)) {
        return syscall(SYS_readlinkat, directory, path, to, size);
    }
    settle();
    node = sim_files_find(path, 0);
    if (node == NULL || node->kind != 'l') {
        errno = node == NULL ? ENOENT : EINVAL;
        return -1;
    }
    n = strlen(node->text) < size ? strlen(node->text) : size;
    memcpy(to, node->text, n);
    return (ssize_t)n;
}

SIM_API ssize_t readlink(const char *restrict path, char *restrict to, size_t size)
{
    return readlinkat(AT_FDCWD, path, to, size);
}

SIM_API char *realpath(const char *restrict path, char *restrict to)
{
    char *(*real)(const char *, char *) = NULL;
    const sim_node *node;
    if (!sim_files_owns(path)) {
        next_symbol(&real, sizeof real, "realpath");
        return real(path, to);
    }
    settle();
    node = sim_files_find(path, 1);
    if (node == NULL) {
        errno = ENOENT;
        return NULL;
    }
    if (to == NULL) {
        return strdup(node->path);
    }
    return strcpy(to, node->path);
}

/* A directory of the table; told from libc's by its place in this list. */
typedef struct directory {
    const sim_node *node;
    unsigned next_child;
    struct dirent entry;
    struct directory *next;
} directory;
static directory *directories;

static directory *directory_of(const DIR *dir)
{
    directory *d = __atomic_load_n(&directories, __ATOMIC_ACQUIRE);
    while (d != NULL && (const void *)d != (const void *)dir) {
        d = d->next;
    }
    return d;
}

SIM_API DIR *opendir(const char *path)
{
    DIR *(*real)(const char *) = NULL;
    const sim_node *node;
    directory *d;
    if (!sim_files_owns(path)) {
        next_symbol(&real, sizeof real, "opendir");
        return real(path);
    }
    settle();
    node = sim_files_find(path, 1);
    d = node != NULL && node->kind == 'd' ? calloc(1, sizeof *d) : NULL;
    if (d == NULL) {
        errno = node == NULL ? ENOENT : node->kind != 'd' ? ENOTDIR : ENOMEM;
        return NULL;
    }
    d->node = node;
    sim_enter();
    d->next = directories;
    __atomic_store_n(&directories, d, __ATOMIC_RELEASE);
    sim_leave();
    return (DIR *)(void *)d;
}

SIM_API struct dirent *readdir(DIR *dir)
{
    struct dirent *(*real)(DIR *) = NULL;
    directory *d = directory_of(dir);
    const sim_node *child;
    if (d == NULL) {
        next_symbol(&real, sizeof real, "readdir");
        return real(dir);
    }
    d->entry.d_type = DT_DIR;
    if (d->next_child < 2) {
        strcpy(d->entry.d_name, d->next_child == 0 ? "." : "..");
    } else {
        child = sim_files_child(d->node, d->next_child - 2);
        if (child == NULL) {
            return NULL;
        }
        d->entry.d_type = child->kind == 'd' ? DT_DIR : child->kind == 'l' ? DT_LNK :
                          child->kind == 'c' ? DT_CHR : DT_REG;
        snprintf(d->entry.d_name, sizeof d->entry.d_name, "%s", strrchr(child->path, '/') + 1);
    }
    d->entry.d_ino = ++d->next_child;
    return &d->entry;
}

SIM_API struct dirent64 *readdir64(DIR *dir)
{
    struct dirent64 *(*real)(DIR *) = NULL;
    if (directory_of(dir) == NULL) {
        next_symbol(&real, sizeof real, "readdir64");
        return real(dir);
    }
    return (struct dirent64 *)(void *)readdir(dir);
}

SIM_API int closedir(DIR *dir)
{
    int (*real)(DIR *) = NULL;
    directory *d = directory_of(dir);
    if (d == NULL) {
        next_symbol(&real, sizeof real, "closedir");
        return real(dir);
    }
    sim_enter();
    for (directory **link = &directories; *link != NULL; link = &(*link)->next) {
        if (*link == d) {
            *link = d->next;
            break;
        }
    }
    sim_leave();
    free(d);
    return 0;
}

SIM_API int uname(struct utsname *name)
{
    int result = (int)syscall(SYS_uname, name);
    settle();
    if (result == 0) {
        snprintf(name->release, sizeof name->release, "%s", sim_files_release());
    }
    return result;
}

static int limit_any(int resource, struct rlimit *limit)
{
    int result = (int)syscall(SYS_prlimit64, 0, resource, NULL, limit);
    settle();
    if (result == 0 && resource == RLIMIT_MEMLOCK && sim.memlock != SIM_NONE) {
        limit->rlim_cur = limit->rlim_max = (rlim_t)sim.memlock;
    }
    return result;
}

SIM_API int getrlimit(__rlimit_resource_t resource, struct rlimit *limit)
{
    return limit_any((int)resource, limit);
}

SIM_API int getrlimit64(__rlimit_resource_t resource, struct rlimit64 *limit)
{
    return limit_any((int)resource, (struct rlimit *)limit);
}
