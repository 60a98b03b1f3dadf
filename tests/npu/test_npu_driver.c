/* test_npu_driver.c - a driver that lies. npu_amdxdna.c runs on a driver of some hundred lines that
 * answers each call honestly or, where its input says so, with any error, with an answer that it
 * never carried out, with garbage or a wrong bit in what it returns, with commands in any state, or
 * with wrong products. Whatever it says, nothing may crash, hang or leak, no wait may be longer
 * than promised, and a driver that did not lie must be believed.
 *
 *     test_npu_driver [ROUNDS [SEED]]
 *
 * tests/fuzz/fuzz_driver.c makes a libFuzzer target of it. */
#define _GNU_SOURCE 1
#define _FILE_OFFSET_BITS 64
#include "pack_gen.h"
#include "../lib/t.h"
#include <dirent.h>
#include <drm.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xf86drm.h>

/* What the source under test calls instead. */
static int lie_open(const char *path, int flags, ...);
static int lie_close(int fd);
static int lie_ioctl(int fd, unsigned long request, ...);
static void *lie_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
static int lie_munmap(void *at, size_t size);
static int lie_clock_gettime(clockid_t id, struct timespec *to);
static int lie_clock_nanosleep(clockid_t id, int flags, const struct timespec *until,
                               struct timespec *left);
static drmVersionPtr lie_version(int fd);
static void lie_free_version(drmVersionPtr version);

static int really_close(int fd)
{
    return close(fd);
}

#define open lie_open
#define close lie_close
#define ioctl lie_ioctl
#define mmap lie_mmap
#define munmap lie_munmap
#define clock_gettime lie_clock_gettime
#define clock_nanosleep lie_clock_nanosleep
#define drmGetVersion lie_version
#define drmFreeVersion lie_free_version
#include "../../npu_amdxdna.c"
#undef mmap
#undef munmap

#define FD 1000
#define MOST 256u               /* objects of a kind */
#define PATIENCE_NS INT64_C(1500000000)
enum { AGES = 6, OLD = 5 };     /* kinds of honest drivers; the out-of-tree one, without timeline */

typedef struct thing {
    int live, excused;          /* excused: the program was not told, or could not give it back */
    uint32_t type, map;
    uint64_t bytes, address;
    uint8_t *va;
} thing;

/* The driver. Handles are indices plus 1. */
static struct {
    const uint8_t *input;
    size_t left;
    unsigned lies, calls, bad, age;
    unsigned broken;            /* commands that end in state 5 from now on */
    unsigned refusals, asked;   /* of CREATE_HWCTX still to come; calls of it */
    int refusal;                /* an errno */
    int block_ms;               /* atomic: real time that the next CREATE_HWCTX takes */
    int unbound;                /* every call answers ENODEV */
    const char *sysfs[4];       /* vendor, device, revision, device_type; NULL: no such file */
    int fds;
    int64_t now_ns;
    uint64_t seq, heap_used;
    thing bo[MOST], context[MOST], syncobj[MOST];
    long long blocks;
} d;

/* The accelerator renews contexts in a thread of its own while a probe looks at the clock. */
static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;

static int64_t pass_time(int64_t ns)
{
    int64_t now;
    (void)pthread_mutex_lock(&driver_lock);
    now = d.now_ns += ns;
    (void)pthread_mutex_unlock(&driver_lock);
    return now;
}

static pg_buf pack_file[3];
static const char *const pack_names[3] = {"manifest", "xclbin", "stream"};
enum { ROWS = 128, COLUMNS = 64, INNER = 8 };

static void wrong(const char *what)
{
    d.bad++;
    printf("  %s (after %u calls, %u lies)\n", what, d.calls, d.lies);
}

static uint8_t next(void)
{
    if (d.left == 0) {
        return 0;
    }
    d.left--;
    return *d.input++;
}

/* The next byte of input; anything but 0 is a lie. Something that never ends is found here. */
static uint8_t mood(void)
{
    uint8_t byte = next();
    d.lies += byte != 0;
    d.now_ns += 1000;
    if (++d.calls > 200000) {
        printf("  a call is repeated without end\n");
        abort();
    }
    return byte;
}

static int some_errno(uint8_t byte)
{
    static const int errors[] = {EINVAL, ENOMEM, EIO, ENODEV, EAGAIN, EBUSY, EINTR, ENOENT, ETIME,
                                 EFAULT, ENOSPC, EPERM, EALREADY, EOPNOTSUPP, 4095, 0};
    return errors[byte % (sizeof errors / sizeof errors[0])];
}

static thing *find(thing *table, uint32_t handle)
{
    return handle >= 1 && handle <= MOST && table[handle - 1].live ? &table[handle - 1] : NULL;
}

static uint32_t make(thing *table)
{
    uint32_t i;
    for (i = 0; i < MOST; i++) {
        if (!table[i].live) {
            memset(&table[i], 0, sizeof table[i]);
            table[i].live = 1;
            table[i].address = UINT64_MAX;
            return i + 1;
        }
    }
    return 0;
}

/* A pipe that holds the text. */
static int text_file(const char *text)
{
    int ends[2];
    if (text == NULL || pipe(ends) != 0 || write(ends[1], text, strlen(text)) < 0 ||
        really_close(ends[1]) != 0) {
        errno = ENOENT;
        return -1;
    }
    return ends[0];
}

static int lie_open(const char *path, int flags, ...)
{
    static const char *const names[4] = {"vendor", "device", "revision", "device_type"};
    uint8_t byte;
    int i;
    (void)flags;
    for (i = 0; i < 4; i++) {
        if (strncmp(path, "/sys/dev/char/261:0/device/", 27) == 0 &&
            strcmp(path + 27, names[i]) == 0) {
            return text_file(d.sysfs[i]);
        }
    }
    if (strcmp(path, "/dev/accel/accel0") != 0) {
        errno = ENOENT; /* and no proc */
        return -1;
    }
    byte = mood();
    if (byte != 0) {
        errno = some_errno(byte);
        return -1;
    }
    d.fds++;
    return FD;
}

static int lie_close(int fd)
{
    if (fd != FD) {
        return really_close(fd);
    }
    if (d.fds != 1) {
        wrong("a descriptor is closed that is not open");
    }
    d.fds--;
    return 0;
}

static int lie_clock_gettime(clockid_t id, struct timespec *to)
{
    int64_t now = pass_time(1000);
    (void)id;
    to->tv_sec = (time_t)(now / 1000000000);
    to->tv_nsec = (long)(now % 1000000000);
    return 0;
}

static int lie_clock_nanosleep(clockid_t id, int flags, const struct timespec *until,
                               struct timespec *left)
{
    int64_t ns = (int64_t)until->tv_sec * 1000000000 + until->tv_nsec;
    (void)id;
    (void)flags;
    (void)left;
    if (ns > d.now_ns + PATIENCE_NS) {
        wrong("a sleep is longer than promised");
    }
    d.now_ns = ns > d.now_ns ? ns : d.now_ns;
    return 0;
}

static drmVersionPtr lie_version(int fd)
{
    static const int minors[AGES] = {0, 1, 6, 8, 10, 0};
    drmVersionPtr version;
    uint8_t byte;
    (void)pthread_mutex_lock(&driver_lock);
    byte = mood();
    (void)pthread_mutex_unlock(&driver_lock);
    if (fd != FD || byte % 8 == 1 || d.unbound) {
        errno = d.unbound ? ENODEV : EIO;
        return NULL;
    }
    version = calloc(1, sizeof *version);
    version->version_major = byte % 8 == 2 ? byte : d.age == OLD;
    version->version_minor = byte % 8 == 3 ? byte : minors[d.age];
    version->name = byte % 8 == 4 ? NULL : strdup(byte % 8 == 5 ? "intel_vpu" : XA_DRIVER);
    return version;
}

static void lie_free_version(drmVersionPtr version)
{
    free(version->name);
    free(version);
}

static void *lie_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    uint8_t byte;
    thing *bo;
    uint8_t *va;
    if (fd == -1) {
        return mmap(at, size, protection, flags, -1, 0);
    }
    byte = mood();
    bo = find(d.bo, (uint32_t)((uint64_t)offset >> 20));
    if (byte != 0 || bo == NULL || bo->va != NULL || size > bo->bytes ||
        (flags & MAP_SHARED) == 0 || (protection & PROT_WRITE) == 0) {
        errno = byte != 0 ? some_errno(byte) : EINVAL;
        return MAP_FAILED;
    }
    va = mmap(at, size, protection, (flags & MAP_FIXED) | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (va != MAP_FAILED) {
        bo->va = va;
    }
    return va;
}

static int lie_munmap(void *at, size_t size)
{
    uint32_t i;
    for (i = 0; i < MOST; i++) {
        if (d.bo[i].va == at && at != NULL) {
            d.bo[i].va = NULL;
        }
    }
    return munmap(at, size);
}

/* ---- what an honest driver does ---- */

static int create_bo(struct xa_create_bo *c)
{
    uint32_t handle = c->size == 0 || c->size > XA_HEAP_BYTES ? 0 : make(d.bo);
    thing *bo = find(d.bo, handle);
    if (bo == NULL) {
        return EINVAL;
    }
    bo->type = c->type;
    bo->bytes = c->size;
    if (c->type == XA_BO_DEV) {
        bo->address = XA_HEAP_BASE + d.heap_used;
        d.heap_used += xu_round_up(c->size, XA_DEV_ALIGN);
    }
    if (c->type == XA_BO_HEAP) {
        bo->address = XA_HEAP_BASE;
    }
    c->handle = handle;
    return 0;
}

static int bo_info(struct xa_get_bo_info *g)
{
    thing *bo = find(d.bo, g->handle);
    if (bo == NULL) {
        return ENOENT;
    }
    g->map_offset = bo->type == XA_BO_DEV ? UINT64_MAX : (uint64_t)g->handle << 20;
    g->vaddr = bo->va == NULL ? UINT64_MAX : (uint64_t)(uintptr_t)bo->va;
    g->xdna_addr = bo->address;
    return 0;
}

static int create_context(struct xa_create_hwctx *c)
{
    d.asked++;
    if (d.refusals > 0) {
        d.refusals--;
        return d.refusal;
    }
    c->handle = make(d.context);
    c->syncobj = d.age == OLD ? 0 : make(d.syncobj);
    return c->handle == 0 ? EBUSY : 0;
}

/* 1 when all of it lies in a mapped buffer. */
static int mapped(uint64_t address, uint64_t bytes)
{
    uint32_t i;
    for (i = 0; i < MOST; i++) {
        const thing *bo = &d.bo[i];
        uint64_t va = (uint64_t)(uintptr_t)bo->va;
        if (bo->live && bo->va != NULL && address >= va && xu_inside(address - va, bytes,
                                                                      bo->bytes)) {
            return 1;
        }
    }
    return 0;
}

static uint64_t word64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* C = A B^T. Nearly all the time of a run goes here, so a fuzzer does not look on. */
#if defined(__clang__)
__attribute__((no_sanitize("address", "undefined", "coverage")))
#endif
static void product(const int8_t *a, const int8_t *b, int32_t *c)
{
    int i, j, l;
    for (i = 0; i < ROWS; i++) {
        for (j = 0; j < COLUMNS; j++) {
            int32_t sum = 0;
            for (l = 0; l < INNER; l++) {
                sum += a[i * INNER + l] * b[j * INNER + l];
            }
            c[i * COLUMNS + j] = sum;
        }
    }
}

/* One START_CU: the product, if its buffers are there. */
static void multiply(const uint8_t *command, uint8_t byte)
{
    uint64_t at[3];
    int32_t *c;
    int i;
    for (i = 0; i < 3; i++) {
        at[i] = word64(command + 28 + 8 * i);
    }
    if (!mapped(at[0], ROWS * INNER) || !mapped(at[1], COLUMNS * INNER) ||
        !mapped(at[2], 4 * ROWS * COLUMNS)) {
        if (d.lies == 0) {
            wrong("a command's buffers are not mapped");
        }
        return;
    }
    c = (int32_t *)(uintptr_t)at[2];
    if (byte % 8 != 2) {
        product((const int8_t *)(uintptr_t)at[0], (const int8_t *)(uintptr_t)at[1], c);
    }
    if (byte % 8 == 3) {
        c[next() * 32u] ^= (int32_t)(1u << (byte >> 3));
    }
}

static int exec(struct xa_exec_cmd *e, uint8_t byte)
{
    thing *bo = find(d.bo, (uint32_t)e->cmd_handles);
    uint32_t header, i, count, state = byte % 8 == 4 ? byte >> 3 & 15 : XA_STATE_COMPLETED;
    if (d.broken > 0) {
        d.broken--;
        state = 5;
    }
    if (find(d.context, e->hwctx) == NULL || bo == NULL || bo->va == NULL ||
        bo->bytes < XA_CMD_BYTES || e->cmd_count != 1) {
        return EINVAL;
    }
    memcpy(&header, bo->va, 4);
    if ((header & 15) != XA_STATE_NEW && d.lies == 0) {
        wrong("a command is submitted that is not new");
    }
    if ((header >> 23 & 31) == XA_OP_CHAIN) {
        memcpy(&count, bo->va + 4, 4);
        for (i = 0; i < count && i < XA_CHAIN_MAX; i++) {
            thing *part = find(d.bo, (uint32_t)word64(bo->va + 28 + 8 * i));
            if (part != NULL && part->va != NULL) {
                multiply(part->va, byte);
            }
        }
    } else {
        multiply(bo->va, byte);
    }
    header = (header & ~15u) | state;
    memcpy(bo->va, &header, 4);
    if (state >= 5 && byte >> 7 != 0) { /* failures wipe the payload */
        memset(bo->va + 4, 0xff, XA_CMD_BYTES - 4);
    }
    e->seq = d.seq++;
    return 0;
}

static void await(int64_t deadline_ns)
{
    if (deadline_ns > d.now_ns + PATIENCE_NS) {
        wrong("a wait is longer than promised");
    }
}

static int info(struct xa_get_info *g)
{
    struct xa_metadata m;
    struct xa_firmware f = {1, 5, 5, 391};
    memset(&m, 0, sizeof m);
    m.cols = 5;
    m.rows = 6;
    m.core.row_count = 4;
    if (g->param == XA_INFO_METADATA && g->buffer_size >= sizeof m) {
        memcpy((void *)(uintptr_t)g->buffer, &m, sizeof m);
        return 0;
    }
    memcpy((void *)(uintptr_t)g->buffer, &f, sizeof f);
    return g->param == XA_INFO_FIRMWARE ? 0 : EOPNOTSUPP;
}

/* Gives an object back. One that could not be is excused. */
static int drop(thing *table, uint32_t handle)
{
    thing *t = find(table, handle);
    if (t == NULL) {
        if (d.lies == 0) {
            wrong("something is given back that is not there");
        }
        return EINVAL;
    }
    t->live = 0;
    return 0;
}

static int honest(unsigned long request, void *argument, uint8_t byte)
{
    switch (request) {
    case XA_CREATE_HWCTX: return create_context(argument);
    case XA_DESTROY_HWCTX: return drop(d.context, ((struct xa_destroy_hwctx *)argument)->handle);
    case XA_CONFIG_HWCTX: return 0;
    case XA_CREATE_BO: return create_bo(argument);
    case XA_GET_BO_INFO: return bo_info(argument);
    case XA_SYNC_BO: return 0;
    case XA_EXEC_CMD: return exec(argument, byte);
    case XA_GET_INFO: return info(argument);
    case XA_WAIT_CMD: return 0;
    case DRM_IOCTL_GEM_CLOSE: return drop(d.bo, ((struct drm_gem_close *)argument)->handle);
    case DRM_IOCTL_SYNCOBJ_DESTROY:
        return drop(d.syncobj, ((struct drm_syncobj_destroy *)argument)->handle);
    case DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT: return 0;
    default: wrong("an unknown ioctl"); return EINVAL;
    }
}

/* Garbage, or one wrong bit, in what a call returns. */
static void spoil(unsigned long request, void *argument, int all)
{
    uint8_t *to = argument;
    size_t size = request >> 16 & 0x3fff, i;
    if (request == XA_GET_INFO) {
        struct xa_get_info g;
        memcpy(&g, argument, sizeof g);
        to = (uint8_t *)(uintptr_t)g.buffer;
        size = g.buffer_size;
    }
    for (i = 0; all && i < size; i++) {
        to[i] = next();
    }
    if (!all && size > 0) {
        i = next() % size;
        to[i] = (uint8_t)(to[i] ^ 1 << next() % 8);
    }
}

static void excuse_all(void)
{
    size_t i;
    for (i = 0; i < MOST; i++) {
        d.bo[i].excused = d.context[i].excused = d.syncobj[i].excused = 1;
    }
}

/* How a lie is told. Where the program cannot know any more what it holds, nothing that exists is
 * held against it. */
static int lie(unsigned long request, void *argument, uint8_t byte)
{
    int err, gives = request == XA_CREATE_BO || request == XA_CREATE_HWCTX;
    int takes = request == DRM_IOCTL_GEM_CLOSE || request == XA_DESTROY_HWCTX ||
                request == DRM_IOCTL_SYNCOBJ_DESTROY;
    switch (byte % 8) {
    case 1:
        if (takes) {
            excuse_all();
        }
        return some_errno(byte >> 3); /* and not done */
    case 5:
        err = honest(request, argument, byte);
        spoil(request, argument, 1);
        excuse_all();
        return err;
    case 6:
        err = honest(request, argument, byte);
        spoil(request, argument, 0);
        excuse_all();
        return err;
    case 7:
        if (takes) {
            excuse_all();
        }
        return 0; /* and not done */
    case 0:
        err = honest(request, argument, byte);
        if (gives) {
            excuse_all();
        }
        return err != 0 ? err : some_errno(byte >> 3); /* but done */
    default: return honest(request, argument, byte); /* 2 to 4: of commands, see exec() */
    }
}

static int answer(int fd, unsigned long request, void *argument)
{
    uint8_t byte = mood();
    int err;
    if (fd != FD || d.fds != 1) {
        wrong("an ioctl on a descriptor that is not open");
    }
    if (request == DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT) {
        await(((struct drm_syncobj_timeline_wait *)argument)->timeout_nsec);
    } else if (request == XA_WAIT_CMD) {
        await(d.now_ns + ((struct xa_wait_cmd *)argument)->timeout_ms * INT64_C(1000000));
    }
    err = d.unbound ? ENODEV
          : byte == 0 ? honest(request, argument, 0) : lie(request, argument, byte);
    if (err == ETIME && request == DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT) {
        int64_t until = ((struct drm_syncobj_timeline_wait *)argument)->timeout_nsec;
        d.now_ns = until > d.now_ns ? until : d.now_ns;
    }
    errno = err;
    return err == 0 ? 0 : -1;
}

static int lie_ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    void *argument;
    int code, err;
    va_start(args, request);
    argument = va_arg(args, void *);
    va_end(args);
    while (request == XA_CREATE_HWCTX && __atomic_load_n(&d.block_ms, __ATOMIC_RELAXED) > 0) {
        static const struct timespec ms = {0, 1000000};
        (void)nanosleep(&ms, NULL);
        __atomic_fetch_sub(&d.block_ms, 1, __ATOMIC_RELAXED);
    }
    (void)pthread_mutex_lock(&driver_lock);
    code = answer(fd, request, argument);
    err = errno;
    (void)pthread_mutex_unlock(&driver_lock);
    errno = err;
    return code;
}

/* ---- the program ---- */

static void *on_alloc(void *user, size_t size, size_t alignment)
{
    void *memory = NULL;
    (void)user;
    if (posix_memalign(&memory, alignment, size) != 0) {
        return NULL;
    }
    d.blocks++;
    return memory;
}

static void on_release(void *user, void *memory, size_t size)
{
    (void)user;
    (void)size;
    d.blocks--;
    free(memory);
}

static int64_t file_size(void *user, const char *name)
{
    int i;
    (void)user;
    for (i = 0; i < 3; i++) {
        if (strcmp(name, pack_names[i]) == 0) {
            return (int64_t)pack_file[i].size;
        }
    }
    return -1;
}

static int64_t file_read(void *user, const char *name, uint64_t offset, void *buffer, size_t size)
{
    int i;
    (void)user;
    for (i = 0; i < 3; i++) {
        if (strcmp(name, pack_names[i]) == 0) {
            memcpy(buffer, pack_file[i].data + offset, size);
            return (int64_t)size;
        }
    }
    return -1;
}

static void hash(char hex[65], const pg_buf *data)
{
    uint8_t digest[32];
    int i;
    xh_sha256(digest, data->data, data->size);
    for (i = 0; i < 32; i++) {
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    }
}

/* The smallest kernel that four columns have. */
static void make_pack(void)
{
    pg_spec spec;
    pg_buf pdi = {NULL, 0, 0};
    char hex[2][65], text[1024];
    int n;
    memset(&spec, 0, sizeof spec);
    spec.bits = 8;
    spec.tm = spec.tn = 16;
    spec.tk = INNER;
    spec.b_nk = spec.baked = 1;
    spec.m = ROWS;
    spec.n = COLUMNS;
    spec.k = INNER;
    if (pg_check(&spec) != NULL) {
        abort();
    }
    pg_pdi_write(&spec, &pdi);
    pg_xclbin_write(&spec, &pdi, &pack_file[1]);
    pg_free(&pdi);
    pg_stream_write(&spec, &pack_file[2]);
    hash(hex[0], &pack_file[1]);
    hash(hex[1], &pack_file[2]);
    n = snprintf(text, sizeof text, "pack format=1 device=npu1 columns=4\n"
                 "overlay id=o file=xclbin kind=xclbin sha256=%s\n"
                 "kernel id=k overlay=o op=gemm stream=stream sha256=%s m=%d n=%d k=%d tile_m=16 "
                 "tile_n=16 tile_k=8 a=i8 b=i8 c=i32 acc=i32 a_layout=mk b_layout=nk c_layout=mn "
                 "a_arg=0 b_arg=1 c_arg=2 a_bytes=%d b_bytes=%d c_bytes=%d a_dir=in b_dir=in "
                 "c_dir=out\n", hex[0], hex[1], ROWS, COLUMNS, INNER, ROWS * INNER,
                 COLUMNS * INNER, 4 * ROWS * COLUMNS);
    pg_put(&pack_file[0], text, (size_t)n);
}

static int8_t a_values[2][ROWS * INNER], b_values[2][COLUMNS * INNER];
static int32_t c_values[2][ROWS * COLUMNS];

static int product_is_right(int which)
{
    static int32_t right[ROWS * COLUMNS];
    product(a_values[which], b_values[which], right);
    return memcmp(c_values[which], right, sizeof right) == 0;
}

/* Two products in a job; an honest driver's are right. */
static void use(wnpu_accel *accel, size_t chain)
{
    wnpu_accel_product job[2];
    uint64_t id = 0, b[2] = {0, 0};
    unsigned lies = d.lies;
    wnpu_error error = {0, ""};
    size_t i, count = chain < 2 ? 1 : 2;
    int code = WNPU_OK;
    memset(job, 0, sizeof job);
    for (i = 0; i < count && code == WNPU_OK; i++) {
        code = accel->resident(accel->self, 0, COLUMNS, INNER, b_values[i], INNER, &b[i], &error);
        job[i].m = ROWS;
        job[i].b = b[i];
        job[i].a = a_values[i];
        job[i].lda = INNER;
        job[i].c = c_values[i];
        job[i].ldc = COLUMNS;
    }
    code = code == WNPU_OK ? accel->submit(accel->self, job, count, &id, &error) : code;
    code = code == WNPU_OK ? accel->wait(accel->self, id, d.now_ns + 500000000, &error) : code;
    if (code != WNPU_OK && error.message[0] == '\0') {
        wrong("no reason");
    }
    if (lies == 0 && d.lies == 0 && (code != WNPU_OK || !product_is_right(0) ||
                                     (count == 2 && !product_is_right(1)))) {
        wrong(error.message[0] != '\0' ? error.message : "a wrong product of an honest driver");
    }
    for (i = 0; i < count; i++) {
        if (b[i] != 0) {
            (void)accel->release(accel->self, b[i]);
        }
    }
}

static void session(const wnpu_amdxdna_config *config)
{
    wnpu_accel *accel = NULL;
    wnpu_accel_info shapes;
    wnpu_error error = {0, ""};
    int code = wnpu_amdxdna_open(config, &accel, &error), round;
    if (code != WNPU_OK) {
        if (d.lies == 0 || accel != NULL || error.message[0] == '\0') {
            wrong(error.message[0] != '\0' ? error.message : "no reason");
        }
        return;
    }
    memset(&shapes, 0, sizeof shapes);
    shapes.struct_size = (uint32_t)sizeof shapes;
    (void)accel->describe(accel->self, &shapes);
    for (round = 0; round < 6; round++) {
        int health = accel->health(accel->self);
        if (health == WNPU_ACCEL_OK) {
            use(accel, shapes.max_chain);
        } else if (health == WNPU_ACCEL_SUSPECT) {
            d.now_ns += INT64_C(1000000000);
        } else if (health == WNPU_ACCEL_PROBE) {
            (void)accel->probe(accel->self, d.now_ns + 500000000, &error);
        }
    }
    wnpu_amdxdna_close(accel);
}

static void left_over(const thing *table, const char *what)
{
    size_t i;
    for (i = 0; i < MOST; i++) {
        if (table[i].live && !table[i].excused) {
            wrong(what);
        }
    }
}

/* A fresh driver. The first byte of its input chooses its age and the cache flushing. */
static void begin(wnpu_amdxdna_config *config, const uint8_t *data, size_t size)
{
    static const wnpu_allocator counting = {on_alloc, on_release, NULL};
    static const wnpu_amdxdna_files files = {file_size, file_read, NULL};
    uint8_t first;
    memset(&d, 0, sizeof d);
    d.input = data;
    d.left = size;
    d.now_ns = 1000000000;
    first = next();
    d.age = first / 2 % AGES;
    wnpu_amdxdna_config_init(config, sizeof *config);
    config->flush_mode = first % 2 == 0 ? WNPU_AMDXDNA_FLUSH_AUTO : WNPU_AMDXDNA_FLUSH_DRIVER;
    config->files = &files;
    config->allocator = &counting;
    config->max_chain = 2;
    config->cooldown_ms = 5;
}

/* Nothing may be left. Returns 0 when all was well. */
static int end(void)
{
    size_t i;
    left_over(d.bo, "a buffer is left");
    left_over(d.context, "a context is left");
    left_over(d.syncobj, "a syncobj is left");
    if (d.blocks != 0 || d.fds != 0) {
        wrong("memory or a descriptor is left");
    }
    for (i = 0; i < MOST; i++) { /* mappings are the program's own: no lie excuses them */
        if (d.bo[i].va != NULL) {
            wrong("a mapping is left");
            (void)munmap(d.bo[i].va, d.bo[i].bytes);
        }
    }
    return d.bad != 0;
}

static int one(const uint8_t *data, size_t size)
{
    wnpu_amdxdna_config config;
    wnpu_amdxdna_diagnosis diagnosis;
    begin(&config, data, size);
    session(&config);
    memset(&diagnosis, 0, sizeof diagnosis);
    diagnosis.struct_size = (uint32_t)sizeof diagnosis;
    if (wnpu_amdxdna_diagnose(&config, &diagnosis) != WNPU_OK ||
        (d.lies == 0 && diagnosis.cause != WNPU_AMDXDNA_FINE)) {
        wrong(diagnosis.message);
    }
    return end();
}

static void prepare(void)
{
    uint64_t state = 1;
    if (pack_file[0].size == 0) {
        make_pack();
        xv_values(a_values[0], sizeof a_values, &state, 0);
        xv_values(b_values[0], sizeof b_values, &state, 0);
    }
}

#ifdef FUZZ
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    prepare();
    if (one(data, size) != 0) {
        abort();
    }
    return 0;
}
#else
static unsigned rounds = 2000;
static uint64_t seed = 1;

static void test_honest(void)
{
    uint8_t age;
    for (age = 0; age < 2 * AGES; age++) {
        T_CHECK(one(&age, 1) == 0 && d.lies == 0 && d.calls > 80, "driver %d: %u lies in %u calls",
                age, d.lies, d.calls);
    }
}

/* A signal restarts a call; EAGAIN is an answer, which comes for ever where a heap is too small. */
static void test_restarts(void)
{
    static const struct { int refusal, code; unsigned refusals, asked; } cases[] = {
        {EINTR, WNPU_OK, 3, 4}, {EAGAIN, WNPU_E_MEMORY, 1, 1}, {ENODEV, WNPU_E_ACCEL, 1, 1},
        {EINTR, WNPU_E_ACCEL, UINT_MAX, 1000}
    };
    static const uint8_t newest = 2 * 4;
    wnpu_amdxdna_config config;
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        wnpu_accel *accel = NULL;
        wnpu_error error = {0, ""};
        int code;
        begin(&config, &newest, 1);
        d.refusal = cases[i].refusal;
        d.refusals = cases[i].refusals;
        code = wnpu_amdxdna_open(&config, &accel, &error);
        T_CHECK(code == cases[i].code && d.asked == cases[i].asked, "errno %d: %d after %u calls: "
                "%s", cases[i].refusal, code, d.asked, error.message);
        wnpu_amdxdna_close(accel);
        T_CHECK(end() == 0, "errno %d", cases[i].refusal);
    }
}

static wnpu_accel *open_honest(wnpu_amdxdna_config *config)
{
    static const uint8_t newest = 2 * 4;
    wnpu_accel *accel = NULL;
    wnpu_error error = {0, ""};
    begin(config, &newest, 1);
    T_CHECK(wnpu_amdxdna_open(config, &accel, &error) == WNPU_OK, "%s", error.message);
    if (accel == NULL) {
        exit(1);
    }
    return accel;
}

static int submit(wnpu_accel *accel, uint64_t b, uint32_t shape, uint32_t m, uint64_t *id)
{
    wnpu_accel_product p;
    wnpu_error error = {0, ""};
    memset(&p, 0, sizeof p);
    p.shape = shape;
    p.m = m;
    p.b = b;
    p.a = a_values[0];
    p.lda = INNER;
    p.c = c_values[0];
    p.ldc = COLUMNS;
    return accel->submit(accel->self, &p, 1, id, &error);
}

/* A device that never recovers: eight failed probes, each after a longer pause, and it is off. What
 * was overwritten in the meantime is put back. */
static void test_off(void)
{
    wnpu_amdxdna_config config;
    wnpu_accel *accel = open_honest(&config);
    xs_accel *self = accel->self;
    wnpu_error error = {0, ""};
    uint64_t b = 0, id = 0;
    int64_t pause = 0;
    int probes;
    T_CHECK(accel->resident(accel->self, 0, COLUMNS, INNER, b_values[0], INNER, &b, &error) ==
            WNPU_OK && submit(accel, b, 0, ROWS, &id) == WNPU_OK, "%s", error.message);
    T_CHECK(accel->probe(accel->self, d.now_ns, &error) == WNPU_E_STATE, "a probe amid a job");
    T_CHECK(accel->wait(accel->self, id, d.now_ns + 500000000, &error) == WNPU_OK &&
            product_is_right(0), "%s", error.message);
    self->e.contexts[0].pdi.va[100] ^= 1;
    self->e.kernels[0].stream.va[20] ^= 1;
    d.broken = 4; /* the job and the first probe's, each submitted twice */
    T_CHECK(submit(accel, b, 0, ROWS, &id) == WNPU_OK &&
            accel->wait(accel->self, id, d.now_ns + 500000000, &error) == WNPU_E_ACCEL &&
            accel->health(accel->self) == WNPU_ACCEL_SUSPECT &&
            submit(accel, b, 0, ROWS, &id) == WNPU_E_STATE, "not suspected");
    for (probes = 0; accel->health(accel->self) == WNPU_ACCEL_SUSPECT; probes++) {
        int64_t from = d.now_ns;
        while (accel->health(accel->self) == WNPU_ACCEL_SUSPECT) {
            d.now_ns += 1000000;
        }
        T_CHECK(d.now_ns - from > pause || probes > (int)XS_DOUBLINGS, "probe %d: a shorter pause",
                probes);
        pause = d.now_ns - from;
        if (accel->probe(accel->self, d.now_ns + 500000000, &error) == WNPU_OK) {
            T_CHECK(probes == 1 && self->e.contexts[0].pdi.va[100] ==
                    self->e.pack->overlays[0].image.pdi[100] && memcmp(
                    self->e.kernels[0].stream.va, self->e.pack->kernels[0].data,
                    self->e.pack->kernels[0].bytes) == 0, "back after probe %d", probes);
            d.broken = 1000;
            T_CHECK(submit(accel, b, 0, ROWS, &id) == WNPU_OK &&
                    accel->wait(accel->self, id, d.now_ns + 500000000, &error) == WNPU_E_ACCEL,
                    "not broken");
            pause = 0;
        }
    }
    T_CHECK(accel->health(accel->self) == WNPU_ACCEL_OFF && probes == 2 + (int)XS_PROBES,
            "off after %d probes", probes);
    T_CHECK(accel->probe(accel->self, d.now_ns, &error) == WNPU_E_STATE &&
            strstr(error.message, "reopen the accelerator") != NULL, "%s", error.message);
    wnpu_amdxdna_close(accel);
    T_CHECK(end() == 0, "off");
}

/* Makes a job end in an error, so that the next probe renews the context; lets the pause pass. */
static uint64_t fail_a_job(wnpu_accel *accel)
{
    wnpu_error error = {0, ""};
    uint64_t b = 0, id = 0;
    T_CHECK(accel->resident(accel->self, 0, COLUMNS, INNER, b_values[0], INNER, &b, &error) ==
            WNPU_OK, "%s", error.message);
    d.broken = 2;
    T_CHECK(submit(accel, b, 0, ROWS, &id) == WNPU_OK &&
            accel->wait(accel->self, id, d.now_ns + 500000000, &error) == WNPU_E_ACCEL,
            "not suspected");
    ((xs_accel *)accel->self)->e.contexts[0].suspect = 1;
    d.now_ns += 10000000;
    return b;
}

/* With dead firmware the driver blocks for seconds in CREATE_HWCTX. A probe returns by its deadline
 * all the same, and a later one collects the context. */
static void test_blocked(void)
{
    wnpu_amdxdna_config config;
    wnpu_accel *accel = open_honest(&config);
    wnpu_error error = {0, ""};
    uint64_t b = fail_a_job(accel), id = 0;
    int code, probes = 0;
    __atomic_store_n(&d.block_ms, 300000, __ATOMIC_RELAXED);
    code = accel->probe(accel->self, d.now_ns + 500000000, &error);
    T_CHECK(code == WNPU_E_ACCEL && strstr(error.message, "still reopening") != NULL &&
            __atomic_load_n(&d.block_ms, __ATOMIC_RELAXED) > 0, "%d: %s", code, error.message);
    T_CHECK(accel->health(accel->self) == WNPU_ACCEL_SUSPECT &&
            submit(accel, b, 0, ROWS, &id) == WNPU_E_STATE, "jobs are taken meanwhile");
    __atomic_store_n(&d.block_ms, 0, __ATOMIC_RELAXED);
    do {
        int64_t now = pass_time(1000000000); /* past any pause */
        code = accel->probe(accel->self, now + 500000000, &error);
    } while (code != WNPU_OK && ++probes < 20 && accel->health(accel->self) != WNPU_ACCEL_OFF);
    T_CHECK(code == WNPU_OK && submit(accel, b, 0, ROWS, &id) == WNPU_OK &&
            accel->wait(accel->self, id, d.now_ns + 500000000, &error) == WNPU_OK &&
            product_is_right(0), "not back: %s", error.message);
    wnpu_amdxdna_close(accel);
    T_CHECK(end() == 0, "blocked");
    accel = open_honest(&config);
    (void)fail_a_job(accel);
    __atomic_store_n(&d.block_ms, 800, __ATOMIC_RELAXED);
    (void)accel->probe(accel->self, d.now_ns, &error);
    wnpu_amdxdna_close(accel); /* waits for the driver */
    T_CHECK(end() == 0, "closed while the driver was busy");
}

/* After an unbind the descriptor is dead for ever: one probe, and the accelerator is off. */
static void test_unbound(void)
{
    wnpu_amdxdna_config config;
    wnpu_accel *accel = open_honest(&config);
    wnpu_error error = {0, ""};
    size_t i;
    (void)fail_a_job(accel);
    d.unbound = 1;
    T_CHECK(accel->probe(accel->self, d.now_ns + 500000000, &error) == WNPU_E_ACCEL &&
            accel->health(accel->self) == WNPU_ACCEL_OFF, "still probing: %s", error.message);
    wnpu_amdxdna_close(accel);
    for (i = 0; i < MOST; i++) { /* nothing can be given back */
        d.bo[i].excused = d.context[i].excused = d.syncobj[i].excused = 1;
    }
    T_CHECK(end() == 0, "unbound");
}

/* This driver's device executes no machine code: the built-in kernels must fail their test. */
static void test_built_in(void)
{
    static const uint8_t newest = 2 * 4;
    wnpu_amdxdna_config config;
    wnpu_accel *accel = NULL;
    wnpu_error error = {0, ""};
    begin(&config, &newest, 1);
    config.files = NULL;
    T_CHECK(wnpu_amdxdna_open(&config, &accel, &error) == WNPU_E_ACCEL && accel == NULL &&
            strstr(error.message, "computes a wrong product") != NULL, "%s", error.message);
    T_CHECK(end() == 0, "built-in");
}

/* What a caller may not do. */
static void test_misuse(void)
{
    wnpu_amdxdna_config config;
    wnpu_accel *accel = open_honest(&config);
    wnpu_error error = {0, ""};
    uint64_t b[200], id = 0;
    size_t i;
    T_CHECK(accel->resident(accel->self, 1, COLUMNS, INNER, b_values[0], INNER, b, &error) ==
            WNPU_E_ARGUMENT && accel->resident(accel->self, 0, COLUMNS + 1, INNER, b_values[0],
            INNER, b, &error) == WNPU_E_ARGUMENT, "a weight that does not fit");
    for (i = 0; i < 200; i++) { /* the table grows */
        T_CHECK(accel->resident(accel->self, 0, COLUMNS, INNER, b_values[0], INNER, &b[i],
                                &error) == WNPU_OK, "weight %zu: %s", i, error.message);
    }
    T_CHECK(submit(accel, b[0], 1, ROWS, &id) == WNPU_E_ARGUMENT, "an unknown shape");
    T_CHECK(submit(accel, b[0], 0, ROWS + 1, &id) == WNPU_E_ARGUMENT, "too many rows");
    T_CHECK(submit(accel, b[0] + 1000, 0, ROWS, &id) == WNPU_E_ARGUMENT, "an unknown weight");
    T_CHECK(submit(accel, 0, 0, ROWS, &id) == WNPU_E_ARGUMENT, "the self-test's weight");
    T_CHECK(accel->submit(accel->self, NULL, 1, &id, &error) == WNPU_E_ARGUMENT, "no products");
    T_CHECK(accel->wait(accel->self, 5, d.now_ns, &error) == WNPU_E_ARGUMENT, "an unknown job");
    T_CHECK(submit(accel, b[199], 0, ROWS, &id) == WNPU_OK &&
            accel->wait(accel->self, id, d.now_ns + 500000000, &error) == WNPU_OK &&
            product_is_right(0), "and then a right one");
    wnpu_amdxdna_close(accel); /* takes the weights with it */
    T_CHECK(end() == 0, "misuse");
}

/* Who the device is, by what sysfs says. */
static void test_identity(void)
{
    static const struct { const char *sysfs[4]; int code; const char *words; } cases[] = {
        {{"0x1022\n", "0x1502\n", "0x00\n", "0\n"}, WNPU_OK, "NPU1"},
        {{"0x1022\n", "0x1502\n", "0x00\n", NULL}, WNPU_OK, "NPU1"},
        {{"0x1022\n", "0x17f0\n", "0x10\n", "0\n"}, WNPU_E_UNSUPPORTED, "this is an NPU4"},
        {{"0x1022\n", "0x17f0\n", "0x11\n", "0\n"}, WNPU_E_UNSUPPORTED, "this is an NPU5"},
        {{"0x1022\n", "0x17f0\n", "0x20\n", "0\n"}, WNPU_E_UNSUPPORTED, "this is an NPU6"},
        {{"0x1022\n", "0x17f0\n", "0x00\n", "0\n"}, WNPU_E_UNSUPPORTED, "unknown kind"},
        {{"0x1022\n", "0x17f2\n", "0x10\n", "0\n"}, WNPU_E_UNSUPPORTED, "user queues"},
        {{"0x1022\n", "0x1502\n", "0x00\n", "1\n"}, WNPU_E_UNSUPPORTED, "user queues"},
        {{"0x8086\n", "0x1502\n", "0x00\n", "0\n"}, WNPU_E_UNSUPPORTED, "unknown kind"},
        {{"what\n", "0x17f0\n", "0x00\n", "0\n"}, WNPU_OK, "NPU1"}
    };
    static const uint8_t newest = 2 * 4;
    wnpu_amdxdna_config config;
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        wnpu_accel *accel = NULL;
        wnpu_error error = {0, ""};
        begin(&config, &newest, 1);
        memcpy(d.sysfs, cases[i].sysfs, sizeof d.sysfs);
        T_CHECK(wnpu_amdxdna_open(&config, &accel, &error) == cases[i].code, "case %zu: %s", i,
                error.message);
        T_CHECK(strstr(accel == NULL ? error.message
                       : ((xs_accel *)accel->self)->e.device.name, cases[i].words) != NULL,
                "case %zu: %s", i, error.message);
        wnpu_amdxdna_close(accel);
        T_CHECK(end() == 0, "case %zu", i);
    }
}

/* Few lies at first, so that the later calls are reached, then many. */
static void test_lies(void)
{
    static uint8_t input[600];
    static const unsigned rare[] = {256, 64, 16, 4};
    unsigned i, told = 0;
    size_t j;
    for (i = 0; i < rounds; i++) {
        uint64_t state = seed + i;
        for (j = 0; j < sizeof input; j++) {
            uint64_t x = xv_random(&state) >> 16;
            input[j] = (uint8_t)(j == 0 || x % rare[i % 4] == 0 ? x >> 20 : 0);
        }
        T_CHECK(one(input, sizeof input) == 0, "seed %llu", (unsigned long long)(seed + i));
        told += d.lies > 0;
    }
    T_CHECK(rounds < 100 || told > rounds / 2, "only %u of %u drivers lied", told, rounds);
}

int main(int argc, char **argv)
{
    rounds = argc > 1 ? (unsigned)atoi(argv[1]) : rounds;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : seed;
    prepare();
    t_run("an honest driver", test_honest);
    t_run("a device without the built-in kernels", test_built_in);
    t_run("who it is", test_identity);
    t_run("what is restarted", test_restarts);
    t_run("what callers may not do", test_misuse);
    t_run("a device that does not recover", test_off);
    t_run("a driver that blocks", test_blocked);
    t_run("a device that was unbound", test_unbound);
    t_run("drivers that lie", test_lies);
    return t_end();
}
#endif
