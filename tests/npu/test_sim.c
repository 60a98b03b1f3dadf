/* test_sim.c - tests of the simulated NPU itself: raw ioctls against each rule of the driver that
 * it keeps, the array against three loops, the cache model, faults, and real libdrm.
 *
 * Started without arguments it runs itself once for each case and profile, with the simulator
 * preloaded; `test_sim CASE` is such a run. WNPU_BUILD says where libsim_amdxdna.so is, else it is
 * looked for one directory above the program.
 */
#define _GNU_SOURCE
#include "../lib/t.h"
#include "overlay.h"
#include "pack_gen.h"
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NONE UINT64_MAX
#define CHUNK (64u << 20)

enum { SHMEM = 1, HEAP = 2, DEV = 3, CMD = 4 };

static int kernel;              /* 616 ... 703, 618 for legacy */
static int legacy, npu4, iova;

/* ---------------------------------------------------------------- the ABI, from its tables */

struct create_hwctx { uint64_t ext, ext_flags, qos; uint32_t umq_bo, log_bo, max_opc, num_tiles,
                      mem_size, doorbell, handle, syncobj; };
struct config_hwctx { uint32_t handle, type; uint64_t val; uint32_t size, pad; };
struct create_bo { uint64_t flags, vaddr, size; uint32_t type, handle; };
struct bo_info { uint64_t ext, ext_flags; uint32_t handle, pad; uint64_t offset, va, addr; };
struct sync_bo { uint32_t handle, direction; uint64_t offset, size; };
struct exec_cmd { uint64_t ext, ext_flags; uint32_t hwctx, type; uint64_t cmds, args;
                  uint32_t n_cmds, n_args; uint64_t seq; };
struct get_info { uint32_t param, size; uint64_t buffer; };
struct get_array { uint32_t param, element, count, pad; uint64_t buffer; };
struct tl_wait { uint64_t handles, points; int64_t timeout; uint32_t n, flags, first, pad;
                 uint64_t deadline; };
struct cu_config { uint16_t n, pad[3]; struct { uint32_t bo; uint8_t func, pad[3]; } cu[40]; };

static const unsigned long CREATE_HWCTX = 0xc0386440, DESTROY_HWCTX = 0xc0086441,
    CONFIG_HWCTX = 0xc0186442, CREATE_BO = 0xc0206443, GET_BO_INFO = 0xc0306444,
    SYNC_BO = 0xc0186445, EXEC_CMD = 0xc0386446, GET_INFO = 0xc0106447, SET_STATE = 0xc0106448,
    WAIT_CMD = 0x40106449, GET_ARRAY = 0xc018644a, GEM_CLOSE = 0x40086409,
    TIMELINE_WAIT = 0xc03064ca, SYNCOBJ_DESTROY = 0xc00864c0;

static int call(int fd, unsigned long code, void *argument)
{
    return ioctl(fd, code, argument) == 0 ? 0 : -errno;
}

static int open_npu(void)
{
    int fd = open("/dev/accel/accel0", O_RDWR | O_CLOEXEC);
    T_CHECK(fd >= 0, "open: %s", strerror(errno));
    return fd;
}

static int make_bo(int fd, uint32_t type, uint64_t size, uint32_t *handle)
{
    struct create_bo bo = { 0, 0, size, type, 0 };
    int error = call(fd, CREATE_BO, &bo);
    *handle = bo.handle;
    return error;
}

static struct bo_info info(int fd, uint32_t handle)
{
    struct bo_info i = { .handle = handle };
    int error = call(fd, GET_BO_INFO, &i);
    T_CHECK(error == 0, "GET_BO_INFO: %d", error);
    return i;
}

static void *map(int fd, uint32_t handle, size_t size, void *at)
{
    void *p = mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | (at != NULL ? MAP_FIXED : 0), fd,
                   (off_t)info(fd, handle).offset);
    return p == MAP_FAILED ? NULL : p;
}

static int close_bo(int fd, uint32_t handle)
{
    uint32_t argument[2] = { handle, 0 };
    return call(fd, GEM_CLOSE, argument);
}

static int make_context(int fd, uint32_t tiles, uint32_t *handle, uint32_t *syncobj)
{
    uint32_t qos[8] = { 0, 0, 0, 0, 0, 0, 0xFF, 0 };
    struct create_hwctx c = { .qos = (uint64_t)(uintptr_t)qos, .max_opc = 2048,
                              .num_tiles = tiles };
    int error = call(fd, CREATE_HWCTX, &c);
    *handle = c.handle;
    *syncobj = c.syncobj;
    if (error == 0 && kernel >= 702) {
        T_CHECK(c.doorbell == UINT32_MAX, "umq_doorbell %x", c.doorbell);
    }
    return error;
}

static int destroy(int fd, unsigned long code, uint32_t handle)
{
    uint32_t argument[2] = { handle, 0 };
    return call(fd, code, argument);
}

static int64_t soon(double seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + (int64_t)(seconds * 1e9);
}

/* For cases in which the driver's times pass while the case runs, and the machine may be busy: what
 * was just done had to be over by `limit`. When it was not, what comes proves nothing, and the run is
 * repeated. */
#define LATE 75
static void over_by(int64_t limit)
{
    if (soon(0) > limit) {
        _exit(LATE);
    }
}

static int64_t after(int64_t time, double seconds)
{
    return time + (int64_t)(seconds * 1e9);
}

static int wait_point(int fd, uint32_t syncobj, uint64_t point, double seconds, uint32_t flags)
{
    struct tl_wait w = { (uint64_t)(uintptr_t)&syncobj, (uint64_t)(uintptr_t)&point, soon(seconds),
                         1, flags, 0, 0, 0 };
    return call(fd, TIMELINE_WAIT, &w);
}

static int exec_raw(int fd, uint32_t ctx, uint64_t cmd, const uint32_t *args, uint32_t n,
                    uint64_t *seq)
{
    struct exec_cmd e = { .hwctx = ctx, .cmds = cmd, .args = (uint64_t)(uintptr_t)args,
                          .n_cmds = 1, .n_args = n };
    int error = call(fd, EXEC_CMD, &e);
    if (error == 0 && seq != NULL) {
        *seq = e.seq;
    }
    return error;
}

static void flush_by_call(const void *address, size_t size)
{
    void (*function)(const void *, size_t) = NULL;
    void *found = dlsym(RTLD_DEFAULT, "sim_amdxdna_flush");
    memcpy(&function, &found, sizeof found);
    function(address, size);
}

/* With SIM_AMDXDNA_CACHE=trap: as a program does it. */
static void flush_line(const uint8_t *line)
{
#if defined(__x86_64__)
    __asm__ __volatile__("clflush %0" : : "m"(*line) : "memory");
#else
    (void)line;
#endif
}

static void flush_loop(const uint8_t *address, size_t size)
{
    for (size_t i = 0; i < size + 63; i += 64) {
        flush_line(address + (i < size ? i : size - 1));
    }
}

static void flush(const void *address, size_t size)
{
    const char *cache = getenv("SIM_AMDXDNA_CACHE");
    if (cache != NULL && strcmp(cache, "trap") == 0) {
        flush_loop(address, size);
        return;
    }
    flush_by_call(address, size);
}

static uint64_t violations(void)
{
    uint64_t (*function)(void) = NULL;
    void *found = dlsym(RTLD_DEFAULT, "sim_amdxdna_violations");
    memcpy(&function, &found, sizeof found);
    return function();
}

/* ---------------------------------------------------------------- a device made ready */

typedef struct npu {
    int fd;
    uint32_t heap, ctx, syncobj, pdi;
    uint8_t *heap_va;
    pg_spec spec;
} npu;

typedef struct buffer {
    uint32_t handle;
    size_t size;
    uint8_t *va;
    uint64_t addr;
} buffer;

static uint8_t *map_heap(int fd, uint32_t handle)
{
    uint8_t *room = mmap(NULL, 2 * CHUNK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *at;
    at = (uint8_t *)(((uintptr_t)room + CHUNK - 1) / CHUNK * CHUNK);
    if (map(fd, handle, CHUNK, at) == NULL) {
        return NULL;
    }
    if (at > room) {
        munmap(room, (size_t)(at - room));
    }
    munmap(at + CHUNK, (size_t)(room + CHUNK - at));
    return at;
}

static void open_heap(npu *n)
{
    memset(n, 0, sizeof *n);
    n->fd = open_npu();
    T_CHECK(make_bo(n->fd, HEAP, CHUNK, &n->heap) == 0, "heap");
    n->heap_va = map_heap(n->fd, n->heap);
    T_CHECK(n->heap_va != NULL, "heap mapping");
}

static uint32_t put_dev(npu *n, const pg_buf *data, int do_flush, uint64_t *addr)
{
    uint32_t handle;
    int error = make_bo(n->fd, DEV, data->size, &handle);
    uint8_t *at;
    T_CHECK(error == 0, "DEV BO: %d", error);
    *addr = info(n->fd, handle).addr;
    at = n->heap_va + (*addr - 0x4000000);
    memcpy(at, data->data, data->size);
    if (do_flush) {
        flush(at, data->size);
    }
    return handle;
}

static int configure(npu *n, uint32_t ctx, uint32_t bo)
{
    struct cu_config cu = { .n = 1 };
    struct config_hwctx c = { ctx, 0, (uint64_t)(uintptr_t)&cu, 16, 0 };
    cu.cu[0].bo = bo;
    return call(n->fd, CONFIG_HWCTX, &c);
}

static pg_spec default_spec(uint32_t bits)
{
    pg_spec spec = { .npu2 = (uint32_t)npu4, .bits = bits, .tm = 16, .tk = 32, .tn = 16, .b_nk = 1,
                     .m = 256, .n = npu4 ? 256 : 128, .k = 96 };
    return spec;
}

static void open_context(npu *n, pg_spec spec, int flush_pdi)
{
    pg_buf pdi = { NULL, 0, 0 };
    uint64_t addr;
    int error;
    open_heap(n);
    n->spec = spec;
    error = make_context(n->fd, 4 * pg_columns(&spec), &n->ctx, &n->syncobj);
    T_CHECK(error == 0, "context: %d", error);
    pg_pdi_write(&spec, &pdi);
    n->pdi = put_dev(n, &pdi, flush_pdi, &addr);
    pg_free(&pdi);
    error = configure(n, n->ctx, n->pdi);
    T_CHECK(error == 0, "CONFIG_CU: %d", error);
}

static buffer make_buffer(npu *n, uint32_t type, size_t size)
{
    buffer b = { .size = (size + 4095) / 4096 * 4096 };
    int error = make_bo(n->fd, type, b.size, &b.handle);
    T_CHECK(error == 0, "BO: %d", error);
    b.va = map(n->fd, b.handle, b.size, NULL);
    T_CHECK(b.va != NULL, "mmap");
    b.addr = info(n->fd, b.handle).addr;
    if (b.addr == NONE) {
        b.addr = (uint64_t)(uintptr_t)b.va;
    }
    return b;
}

static void free_buffer(npu *n, buffer *b)
{
    munmap(b->va, b->size);
    close_bo(n->fd, b->handle);
}

static void close_context(npu *n)
{
    destroy(n->fd, SYNCOBJ_DESTROY, n->syncobj);
    T_CHECK(destroy(n->fd, DESTROY_HWCTX, n->ctx) == 0, "destroy");
    close_bo(n->fd, n->pdi);
}

static void close_npu(npu *n)
{
    munmap(n->heap_va, CHUNK);
    close_bo(n->fd, n->heap);
    close(n->fd);
}

/* One product: stream, operands, command. */
typedef struct product {
    pg_spec spec;
    uint32_t stream, args[4];
    uint64_t stream_addr;
    size_t stream_bytes;
    buffer a, b, c, cmd;
} product;

static int32_t element(const uint8_t *data, size_t i, uint32_t bits)
{
    int16_t wide;
    if (bits == 8) {
        return (int8_t)data[i];
    }
    memcpy(&wide, data + 2 * i, 2);
    return wide;
}

static void fill(buffer *b, size_t count, uint32_t bits, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        int32_t value;
        seed = seed * 1664525u + 1013904223u;
        value = (int32_t)(seed >> 16) % 255 - 127;
        if (bits == 8) {
            b->va[i] = (uint8_t)value;
        } else {
            int16_t wide = (int16_t)(value * 9);
            memcpy(b->va + 2 * i, &wide, 2);
        }
    }
}

static void put_word(buffer *b, size_t at, uint32_t value)
{
    memcpy(b->va + at, &value, 4);
}

static uint32_t get_word(const buffer *b, size_t at)
{
    uint32_t value;
    memcpy(&value, b->va + at, 4);
    return value;
}

static void put_address(buffer *b, size_t at, uint64_t value)
{
    memcpy(b->va + at, &value, 8);
}

static void fill_command(product *p)
{
    put_word(&p->cmd, 0, 0x30010001);
    put_word(&p->cmd, 4, 1);
    put_address(&p->cmd, 8, 3);
    put_address(&p->cmd, 16, p->stream_addr);
    put_word(&p->cmd, 24, (uint32_t)(p->stream_bytes / 4));
    put_address(&p->cmd, 28, p->a.addr);
    put_address(&p->cmd, 36, p->b.addr);
    put_address(&p->cmd, 44, p->c.addr);
    put_address(&p->cmd, 52, 0);
    put_address(&p->cmd, 60, 0);
}

static product make_product_of(npu *n, pg_spec spec, const pg_buf *stream)
{
    product p = { .spec = spec };
    size_t m = spec.m, k = spec.k, w = spec.n;
    p.stream_bytes = stream->size;
    p.stream = put_dev(n, stream, 1, &p.stream_addr);
    p.a = make_buffer(n, SHMEM, m * k * spec.bits / 8);
    p.b = make_buffer(n, SHMEM, w * k * spec.bits / 8);
    p.c = make_buffer(n, SHMEM, m * w * 4);
    p.cmd = make_buffer(n, CMD, 4096);
    fill(&p.a, m * k, spec.bits, 1);
    fill(&p.b, w * k, spec.bits, 2);
    memset(p.c.va, 0x77, p.c.size);
    flush(p.a.va, p.a.size);
    flush(p.b.va, p.b.size);
    flush(p.c.va, p.c.size);
    p.args[0] = p.stream;
    p.args[1] = p.a.handle;
    p.args[2] = p.b.handle;
    p.args[3] = p.c.handle;
    fill_command(&p);
    return p;
}

static product make_product(npu *n, pg_spec spec)
{
    pg_buf stream = { NULL, 0, 0 };
    pg_stream_write(&spec, &stream);
    product p = make_product_of(n, spec, &stream);
    pg_free(&stream);
    return p;
}

static void free_product(npu *n, product *p)
{
    free_buffer(n, &p->cmd);
    free_buffer(n, &p->c);
    free_buffer(n, &p->b);
    free_buffer(n, &p->a);
    close_bo(n->fd, p->stream);
}

/* A device with a context, and a product of int8 in it. */
static void open_with_product(npu *n, product *p)
{
    open_context(n, default_spec(8), 1);
    *p = make_product(n, n->spec);
}

static void close_with_product(npu *n, product *p)
{
    free_product(n, p);
    close_context(n);
    close_npu(n);
}

/* Submits and waits; the state. */
static uint32_t run_product(npu *n, product *p)
{
    uint64_t seq = 0;
    int error = exec_raw(n->fd, n->ctx, p->cmd.handle, p->args, 4, &seq);
    T_CHECK(error == 0, "EXEC_CMD: %d", error);
    error = wait_point(n->fd, n->syncobj, seq, 30, 2);
    T_CHECK(error == 0, "wait: %d", error);
    return get_word(&p->cmd, 0) & 0xF;
}

/* Elements of C that differ from the definition. */
static size_t wrong(const product *p)
{
    size_t bad = 0, m = p->spec.m, n = p->spec.n, k = p->spec.k;
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            int32_t sum = 0, got;
            for (size_t x = 0; x < k; x++) {
                size_t at = p->spec.b_nk ? j * k + x : x * n + j;
                sum += element(p->a.va, i * k + x, p->spec.bits) *
                       element(p->b.va, at, p->spec.bits);
            }
            memcpy(&got, p->c.va + 4 * (i * n + j), 4);
            bad += got != sum;
        }
    }
    return bad;
}

/* ---------------------------------------------------------------- heap and order */

static void case_order(void)
{
    int fd = open_npu(), no_heap = kernel >= 702 ? -EAGAIN : -EINVAL;
    uint32_t heap, handle, syncobj, second;
    struct create_hwctx c = { .qos = 8, .num_tiles = 16 };
    T_CHECK(make_context(fd, 16, &handle, &syncobj) == -ENOENT, "context without a heap");
    T_CHECK(call(fd, CREATE_HWCTX, &c) == -EFAULT, "unreadable QoS comes before the heap");
    c.ext = 1;
    T_CHECK(call(fd, CREATE_HWCTX, &c) == -EINVAL, "ext");
    T_CHECK(make_bo(fd, DEV, 4096, &handle) == no_heap, "DEV without a heap");
    T_CHECK(make_bo(fd, HEAP, 0, &heap) == -EINVAL, "heap of nothing");
    T_CHECK(make_bo(fd, HEAP, 1 << 20, &heap) == (kernel >= 701 ? -EINVAL : 0), "1-MiB heap");
    if (kernel < 701) {
        T_CHECK(make_bo(fd, HEAP, CHUNK, &second) == -EBUSY, "second heap");
        close(fd);
        fd = open_npu();
        T_CHECK(make_bo(fd, HEAP, 2 * CHUNK, &heap) == -EINVAL, "large heap");
    }
    T_CHECK(make_bo(fd, HEAP, CHUNK, &heap) == 0, "heap");
    T_CHECK(info(fd, heap).addr == 0x4000000 && info(fd, heap).va == NONE, "heap addresses");
    T_CHECK(make_bo(fd, DEV, 4096, &handle) == no_heap, "DEV, heap not mapped");
    T_CHECK(make_context(fd, 16, &handle, &syncobj) == no_heap, "context, heap not mapped");
    close_bo(fd, heap);
    close(fd);
}

static void case_second_heap(void)
{
    npu n;
    uint32_t heap, ctx, syncobj;
    int error, expected = kernel < 702 ? -EBUSY : npu4 ? 0 : -ENOSPC;
    open_heap(&n);
    error = make_bo(n.fd, HEAP, CHUNK, &heap);
    T_CHECK(error == expected, "second heap: %d", error);
    if (error == 0) {
        uint8_t *va = map_heap(n.fd, heap);
        const char *protocol = getenv("SIM_AMDXDNA_PROTOCOL");
        int old = protocol != NULL && strcmp(protocol, "6.12") == 0;
        T_CHECK(info(n.fd, heap).addr == 0x8000000, "second chunk");
        error = make_context(n.fd, 16, &ctx, &syncobj);
        T_CHECK(error == (old ? -EOPNOTSUPP : 0), "context with two heaps: %d", error);
        if (error == 0) {
            destroy(n.fd, SYNCOBJ_DESTROY, syncobj);
            destroy(n.fd, DESTROY_HWCTX, ctx);
        }
        munmap(va, CHUNK);
        close_bo(n.fd, heap);
    }
    close_npu(&n);
}

static void case_heap_space(void)
{
    npu n;
    uint32_t big, handle, last = 0, ctx, syncobj;
    int error, grow = kernel >= 702 && npu4;
    open_context(&n, default_spec(8), 1);
    T_CHECK(info(n.fd, n.pdi).addr == 0x4020000, "four slots come first: %llx",
            (unsigned long long)info(n.fd, n.pdi).addr);
    T_CHECK(info(n.fd, n.pdi).offset == NONE, "DEV BOs cannot be mapped");
    T_CHECK(info(n.fd, n.pdi).va == (uint64_t)(uintptr_t)n.heap_va + 0x20000, "DEV va");
    T_CHECK(make_bo(n.fd, DEV, 40000, &handle) == 0 && info(n.fd, handle).addr == 0x4028000,
            "32-KiB steps");
    T_CHECK(make_bo(n.fd, DEV, 4096, &last) == 0 && info(n.fd, last).addr == 0x4038000, "rounded");
    close_bo(n.fd, handle);
    T_CHECK(make_bo(n.fd, DEV, 4096, &handle) == 0 && info(n.fd, handle).addr == 0x4028000,
            "a freed place comes back at once");
    T_CHECK(make_bo(n.fd, DEV, 0, &big) == -EINVAL, "DEV of nothing");
    error = make_bo(n.fd, DEV, 2 * CHUNK, &big);
    T_CHECK(error == (grow ? -EAGAIN : -EINVAL), "DEV larger than the heap: %d", error);
    error = make_bo(n.fd, DEV, CHUNK, &big);
    T_CHECK(error == (grow ? -EAGAIN : -ENOSPC), "DEV that does not fit: %d", error);
    T_CHECK(make_bo(n.fd, DEV, CHUNK - 8 * 32768, &big) == 0, "the rest of the heap");
    error = make_context(n.fd, 16, &ctx, &syncobj);
    T_CHECK(error == (grow ? -EAGAIN : -ENOSPC), "no room for a context: %d", error);
    close_bo(n.fd, big);
    close_bo(n.fd, handle);
    close_bo(n.fd, last);
    close_context(&n);
    close_npu(&n);
}

/* ---------------------------------------------------------------- configuration */

static int config_bytes(npu *n, uint32_t ctx, uint32_t type, const void *bytes, uint32_t size,
                        uint32_t pad)
{
    struct config_hwctx c = { ctx, type, (uint64_t)(uintptr_t)bytes, size, pad };
    return call(n->fd, CONFIG_HWCTX, &c);
}

static void case_config(void)
{
    npu n;
    uint32_t shmem;
    struct cu_config cu = { .n = 1 };
    open_context(&n, default_spec(8), 1);
    T_CHECK(configure(&n, n.ctx, n.pdi) == -EINVAL, "a second CONFIG_CU");
    destroy(n.fd, SYNCOBJ_DESTROY, n.syncobj);
    destroy(n.fd, DESTROY_HWCTX, n.ctx);
    T_CHECK(make_context(n.fd, 16, &n.ctx, &n.syncobj) == 0, "context");
    T_CHECK(make_bo(n.fd, SHMEM, 4096, &shmem) == 0, "BO");
    cu.cu[0].bo = n.pdi;
    T_CHECK(config_bytes(&n, n.ctx, 0, &cu, 16, 1) == -EINVAL, "outer pad");
    T_CHECK(config_bytes(&n, n.ctx, 0, &cu, 4097, 0) == -E2BIG, "4097 bytes");
    T_CHECK(config_bytes(&n, n.ctx, 0, (void *)8, 16, 0) == -EFAULT, "unreadable");
    T_CHECK(config_bytes(&n, n.ctx, 7, &cu, 16, 0) == -EINVAL, "parameter type");
    T_CHECK(config_bytes(&n, n.ctx + 9, 0, &cu, 16, 0) == -EINVAL, "context");
    T_CHECK(config_bytes(&n, n.ctx, 0, &cu, 12, 0) == -EINVAL, "too short");
    if (kernel <= 618) {
        T_CHECK(config_bytes(&n, n.ctx, 1, NULL, 0, 0) == -EOPNOTSUPP, "debug BO");
    }
    cu.pad[1] = 1;
    T_CHECK(config_bytes(&n, n.ctx, 0, &cu, 16, 0) == -EINVAL, "inner pad");
    cu.pad[1] = 0;
    cu.cu[0].pad[2] = 1;
    T_CHECK(config_bytes(&n, n.ctx, 0, &cu, 16, 0) == -EINVAL, "entry pad");
    cu.cu[0].pad[2] = 0;
    cu.n = 0;
    T_CHECK(config_bytes(&n, n.ctx, 0, &cu, 16, 0) == -EINVAL, "no CU");
    cu.n = 33;
    T_CHECK(config_bytes(&n, n.ctx, 0, &cu, sizeof cu, 0) == -EINVAL, "33 CUs");
    T_CHECK(configure(&n, n.ctx, shmem) == -EINVAL, "a SHMEM BO as PDI");
    T_CHECK(configure(&n, n.ctx, 999) == -EINVAL, "no BO as PDI");
    cu.n = 2;
    cu.cu[1].bo = n.pdi;
    T_CHECK(config_bytes(&n, n.ctx, 0, &cu, 24, 0) == 0, "a failed one may be retried");
    close_bo(n.fd, shmem);
    close_context(&n);
    close_npu(&n);
}

/* ---------------------------------------------------------------- buffer objects */

static void case_bo_info(void)
{
    npu n;
    buffer b;
    uint32_t handle;
    struct bo_info i;
    open_heap(&n);
    T_CHECK(make_bo(n.fd, SHMEM, 5000, &handle) == 0, "BO");
    i = info(n.fd, handle);
    T_CHECK(i.va == NONE, "not mapped");
    T_CHECK(iova ? i.addr != NONE && i.addr % 8192 == 0 : i.addr == NONE, "address %llx",
            (unsigned long long)i.addr);
    b.size = 8192;
    b.va = map(n.fd, handle, b.size, NULL);
    i = info(n.fd, handle);
    T_CHECK(i.va == (uint64_t)(uintptr_t)b.va, "vaddr");
    if (!iova) {
        T_CHECK(i.addr == (kernel >= 701 ? i.va : NONE), "xdna_addr");
    }
    munmap(b.va, b.size);
    i = info(n.fd, handle);
    if (!iova && kernel >= 701) {
        T_CHECK(i.va == NONE, "the last unmapping is forgotten");
    }
    i.ext = 1;
    i.handle = handle;
    i.pad = 0;
    T_CHECK(call(n.fd, GET_BO_INFO, &i) == -EINVAL, "ext");
    i = (struct bo_info){ .handle = 777 };
    T_CHECK(call(n.fd, GET_BO_INFO, &i) == -ENOENT, "no such handle");
    T_CHECK(close_bo(n.fd, handle) == 0 && close_bo(n.fd, handle) == -EINVAL, "closing twice");
    close_npu(&n);
}

static void case_create_bo(void)
{
    npu n;
    uint32_t handle;
    struct create_bo bo = { 1, 0, 4096, SHMEM, 0 };
    struct { int32_t fd; uint32_t count; uint64_t entry[2]; } table = { -1, 1, { 0, 0 } };
    void *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int error;
    open_heap(&n);
    T_CHECK(call(n.fd, CREATE_BO, &bo) == -EINVAL, "flags");
    T_CHECK(make_bo(n.fd, 0, 4096, &handle) == -EINVAL, "type 0");
    T_CHECK(make_bo(n.fd, 9, 4096, &handle) == -EINVAL, "type 9");
    error = make_bo(n.fd, SHMEM, 0, &handle);
    T_CHECK(error == (iova && kernel >= 702 ? -ENOSPC : -EINVAL), "nothing: %d", error);
    error = make_bo(n.fd, CMD, 2, &handle);
    T_CHECK(error == (kernel >= 701 ? 0 : -EINVAL), "a CMD BO of 2 bytes: %d", error);
    close_bo(n.fd, handle);
    error = make_bo(n.fd, CMD, 65536, &handle);
    T_CHECK(error == (kernel >= 619 ? 0 : -EINVAL), "a CMD BO of 64 KiB: %d", error);
    close_bo(n.fd, handle);
    bo = (struct create_bo){ 0, (uint64_t)(uintptr_t)&table, 8192, SHMEM, 0 };
    table.entry[0] = (uint64_t)(uintptr_t)pages;
    table.entry[1] = 8192;
    error = call(n.fd, CREATE_BO, &bo);
    T_CHECK(error == (kernel >= 618 ? 0 : -EINVAL), "user pointer: %d", error);
    if (error == 0) {
        close_bo(n.fd, bo.handle);
        table.entry[1] = 100;
        T_CHECK(call(n.fd, CREATE_BO, &bo) == -EINVAL, "unaligned length");
        bo.vaddr = 8;
        T_CHECK(call(n.fd, CREATE_BO, &bo) == -EINVAL, "bad table");
    }
    munmap(pages, 8192);
    close_npu(&n);
}

static int sync_call(npu *n, uint32_t handle, uint32_t direction, uint64_t offset, uint64_t size)
{
    struct sync_bo s = { handle, direction, offset, size };
    return call(n->fd, SYNC_BO, &s);
}

static void case_sync_bo(void)
{
    npu n;
    buffer b, cmd;
    int error;
    open_heap(&n);
    b = make_buffer(&n, SHMEM, 4096);
    cmd = make_buffer(&n, CMD, 4096);
    T_CHECK(sync_call(&n, b.handle, 0, 0, 4096) == 0, "to device");
    error = sync_call(&n, b.handle, 1, 0, 4096);
    T_CHECK(error == (kernel >= 619 ? -EINVAL : 0), "from device: %d", error);
    T_CHECK(sync_call(&n, b.handle, 7, 0, 4096) == 0, "any other direction");
    T_CHECK(sync_call(&n, 777, 0, 0, 4096) == -ENOENT, "handle");
    T_CHECK(sync_call(&n, b.handle, 0, 0, 1 << 20) == 0, "size beyond the end");
    error = sync_call(&n, cmd.handle, 0, 0, 4096);
    T_CHECK(error == (kernel == 616 && !legacy ? -EOPNOTSUPP : 0), "CMD BO: %d", error);
    error = sync_call(&n, b.handle, 0, 1 << 20, 64);
    T_CHECK(error == (kernel >= 702 ? -EINVAL : 0) && violations() == 1, "offset outside");
    free_buffer(&n, &b);
    free_buffer(&n, &cmd);
    close_npu(&n);
}

static void case_mmap(void)
{
    npu n;
    uint32_t handle;
    off_t offset;
    void *p;
    open_heap(&n);
    T_CHECK(make_bo(n.fd, SHMEM, 8192, &handle) == 0, "BO");
    offset = (off_t)info(n.fd, handle).offset;
    p = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_SHARED, n.fd, offset);
    T_CHECK(p == MAP_FAILED && errno == EINVAL, "longer than the BO");
    p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, n.fd, offset + 4096);
    T_CHECK(p == MAP_FAILED && errno == EINVAL, "offset inside the BO");
    p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, n.fd, offset);
    T_CHECK(p == MAP_FAILED && errno == EINVAL, "private");
    p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, n.fd, offset);
    T_CHECK(p != MAP_FAILED && violations() == 0, "shorter is fine");
    munmap(p, 4096);
    p = mmap(NULL, 8192, PROT_READ, MAP_SHARED, n.fd, offset);
    T_CHECK(p != MAP_FAILED && violations() == 1, "read-only warns");
    munmap(p, 8192);
    close_bo(n.fd, handle);
    close_npu(&n);
}

/* ---------------------------------------------------------------- commands */

static void case_exec_errors(void)
{
    npu n;
    product p;
    uint32_t args[4], dummy;
    struct exec_cmd e;
    int error;
    open_with_product(&n, &p);
    memcpy(args, p.args, sizeof args);
    e = (struct exec_cmd){ .ext = 1, .hwctx = n.ctx, .cmds = p.cmd.handle, .n_cmds = 1 };
    T_CHECK(call(n.fd, EXEC_CMD, &e) == -EINVAL, "ext");
    e.ext = 0;
    e.type = 1;
    T_CHECK(call(n.fd, EXEC_CMD, &e) == -EINVAL, "type");
    e.type = 0;
    e.n_cmds = 2;
    T_CHECK(call(n.fd, EXEC_CMD, &e) == -EINVAL, "two commands");
    T_CHECK(exec_raw(n.fd, n.ctx, p.cmd.handle, args, 4096, NULL) == -EINVAL, "4096 args");
    T_CHECK(exec_raw(n.fd, n.ctx, p.cmd.handle, (uint32_t *)8, 2, NULL) == -EFAULT, "args");
    T_CHECK(exec_raw(n.fd, n.ctx, 777, args, 4, NULL) == -EINVAL, "command handle");
    T_CHECK(exec_raw(n.fd, n.ctx, p.stream, args, 4, NULL) == -EINVAL, "DEV BO as command");
    error = exec_raw(n.fd, n.ctx, p.a.handle, NULL, 0, NULL);
    T_CHECK(kernel >= 701 ? error == 0 : error == -EINVAL, "SHMEM BO as command: %d", error);
    args[3] = 777;
    T_CHECK(exec_raw(n.fd, n.ctx, p.cmd.handle, args, 4, NULL) == -ENOENT, "arg");
    args[3] = args[2];
    T_CHECK(exec_raw(n.fd, n.ctx, p.cmd.handle, args, 4, NULL) == -EALREADY, "arg twice");
    T_CHECK(exec_raw(n.fd, n.ctx + 5, p.cmd.handle, p.args, 4, NULL) == -EINVAL, "context");
    args[3] = p.cmd.handle;
    error = exec_raw(n.fd, n.ctx, p.cmd.handle, args, 4, NULL);
    T_CHECK(error == (kernel == 616 ? -EOPNOTSUPP : 0), "command BO in args: %d", error);
    if (kernel <= 618) {
        uint32_t ctx;
        T_CHECK(make_context(n.fd, 4 * pg_columns(&n.spec), &ctx, &dummy) == 0, "context");
        error = exec_raw(n.fd, ctx, p.cmd.handle, p.args, 4, NULL);
        T_CHECK(error == -EINVAL, "a context without CUs: %d", error);
        destroy(n.fd, SYNCOBJ_DESTROY, dummy);
        destroy(n.fd, DESTROY_HWCTX, ctx);
    }
    wait_point(n.fd, n.syncobj, 0, 10, 2);
    free_product(&n, &p);
    close_context(&n);
    T_CHECK(destroy(n.fd, DESTROY_HWCTX, n.ctx) == -EINVAL, "destroying twice");
    close_npu(&n);
}

static void case_handle_zero(void)
{
    npu n;
    open_context(&n, default_spec(8), 1);
    T_CHECK(exec_raw(n.fd, n.ctx, 0, NULL, 0, NULL) == -EINVAL, "command handle 0");
    T_CHECK(violations() == (kernel < 701), "which old kernels misread");
    close_context(&n);
    close_npu(&n);
}

static void expect_malformed(npu *n, product *p, const char *what)
{
    uint32_t state = run_product(n, p);
    T_CHECK(state == 1, "%s: state %u", what, state);
    fill_command(p);
}

static void case_malformed(void)
{
    npu n;
    product p;
    open_with_product(&n, &p);
    put_word(&p.cmd, 0, 0x30010001 | 7u << 23);
    expect_malformed(&n, &p, "opcode 7");
    put_word(&p.cmd, 0, 0x30010001 | 18u << 23);
    expect_malformed(&n, &p, "opcode 18");
    put_word(&p.cmd, 4, 0);
    expect_malformed(&n, &p, "no CU");
    if (!npu4 || kernel <= 618) {
        put_word(&p.cmd, 0, 0x30010001 | 21u << 23);
        expect_malformed(&n, &p, "opcode 21");
    }
    T_CHECK(run_product(&n, &p) == 4 && violations() == 0, "a good one after them");
    put_word(&p.cmd, 0, 0x30000001);
    T_CHECK(run_product(&n, &p) == 4 && violations() == 1, "count 0 is forwarded");
    fill_command(&p);
    put_word(&p.cmd, 0, 0x30000001 | 1500u << 12);
    T_CHECK(run_product(&n, &p) == 4 && violations() == 2, "count beyond the BO is forwarded");
    fill_command(&p);
    put_word(&p.cmd, 4, 8);
    T_CHECK(run_product(&n, &p) == 5 && violations() == 3, "CU 3 of 1 is forwarded");
    fill_command(&p);
    put_word(&p.cmd, 0, 0x30010004);
    T_CHECK(run_product(&n, &p) == 4 && violations() == 4, "stale state in the header");
    close_with_product(&n, &p);
}

static void case_timeline(void)
{
    npu n;
    product p;
    uint64_t seq = 9;
    int64_t begin;
    int error;
    open_with_product(&n, &p);
    T_CHECK(wait_point(n.fd, n.syncobj, 0, 0.01, 0) == -EINVAL, "nothing submitted");
    T_CHECK(wait_point(n.fd, n.syncobj, 0, 0.01, 2) == -ETIME, "wait for submission");
    T_CHECK(wait_point(n.fd, 999, 0, 0.01, 2) == -ENOENT, "handle");
    T_CHECK(wait_point(n.fd, n.syncobj, 0, 0.01, 64) == -EINVAL, "flags");
    for (uint64_t i = 0; i < 3; i++) {
        fill_command(&p);
        error = exec_raw(n.fd, n.ctx, p.cmd.handle, p.args, 4, &seq);
        T_CHECK(error == 0 && seq == i, "seq %llu", (unsigned long long)seq);
        T_CHECK(wait_point(n.fd, n.syncobj, seq, 10, 0) == 0, "wait %llu",
                (unsigned long long)i);
        T_CHECK((get_word(&p.cmd, 0) & 0xF) == 4, "state");
    }
    T_CHECK(wait_point(n.fd, n.syncobj, 3, 0.01, 0) == -EINVAL, "a point to come");
    T_CHECK(wait_point(n.fd, n.syncobj, 3, 0.01, 2) == -ETIME, "a point to come, waited for");
    T_CHECK(wait_point(n.fd, n.syncobj, 1, -1, 0) == 0, "an old point, no time left");
    fill_command(&p);
    begin = soon(0);
    exec_raw(n.fd, n.ctx, p.cmd.handle, p.args, 4, &seq); /* this one hangs: exec=4:timeout */
    T_CHECK(wait_point(n.fd, n.syncobj, 2, 0.1, 0) == 0, "the one before is done");
    error = wait_point(n.fd, n.syncobj, 0, 0.1, 0);
    over_by(after(begin, 1.0)); /* time scale 0.5: until the watchdog */
    T_CHECK(error == -ETIME, "point 0 is the newest: %d", error);
    T_CHECK(wait_point(n.fd, n.syncobj, 0, 10, 0) == 0, "until the watchdog");
    T_CHECK((get_word(&p.cmd, 0) & 0xF) == 8, "timed out");
    close_with_product(&n, &p);
}

static void on_alarm(int number)
{
    (void)number;
}

static void case_fifth(void)
{
    npu n;
    product p[5];
    struct sigaction action = { .sa_handler = on_alarm };
    struct itimerval often = { { 0, 200000 }, { 0, 200000 } }, never = { { 0, 0 }, { 0, 0 } };
    const char *lenient = getenv("SIM_AMDXDNA_LENIENT");
    int64_t begin;
    uint32_t state;
    uint64_t seq;
    int error;
    open_context(&n, default_spec(8), 1);
    for (unsigned i = 0; i < 5; i++) {
        p[i] = make_product(&n, n.spec);
    }
    begin = soon(0);
    for (unsigned i = 0; i < 4; i++) {
        T_CHECK(exec_raw(n.fd, n.ctx, p[i].cmd.handle, p[i].args, 4, &seq) == 0, "submit %u", i);
    }
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    error = exec_raw(n.fd, n.ctx, p[4].cmd.handle, p[4].args, 4, &seq);
    setitimer(ITIMER_REAL, &never, NULL);
    over_by(after(begin, 2.0)); /* until the watchdog */
    T_CHECK(error == (lenient != NULL ? 0 : -EINTR), "the fifth: %d", error);
    T_CHECK(wait_point(n.fd, n.syncobj, 0, 20, 2) == 0, "watchdog");
    T_CHECK((get_word(&p[0].cmd, 0) & 0xF) == 8, "the hung one");
    for (unsigned i = 1; i < 4; i++) {
        T_CHECK((get_word(&p[i].cmd, 0) & 0xF) == 6, "behind it");
    }
    T_CHECK((get_word(&p[4].cmd, 0) & 0xF) == 1, "the queued one never ran");
    fill_command(&p[0]);
    state = run_product(&n, &p[0]);
    over_by(after(begin, 3.0));
    T_CHECK(state == 1, "while the context is rebuilt: %u", state);
    usleep(1500000); /* REBUILD=1000 */
    T_CHECK(run_product(&n, &p[0]) == 4, "after that");
    flush(p[0].c.va, p[0].c.size);
    T_CHECK(wrong(&p[0]) == 0, "and right");
    for (unsigned i = 0; i < 5; i++) {
        free_product(&n, &p[i]);
    }
    close_context(&n);
    close_npu(&n);
}

/* ---------------------------------------------------------------- the array */

static void multiply_with(pg_spec spec)
{
    npu n;
    product p;
    const char *why = pg_check(&spec);
    uint32_t state;
    T_CHECK(why == NULL, "%s", why != NULL ? why : "");
    open_context(&n, spec, 1);
    p = make_product(&n, spec);
    for (unsigned round = 0; round < 2; round++) {
        size_t bad;
        fill(&p.a, (size_t)spec.m * spec.k, spec.bits, 77 + round);
        flush(p.a.va, p.a.size);
        put_word(&p.cmd, 0, 0x30010001);
        state = run_product(&n, &p);
        T_CHECK(state == 4, "state %u", state);
        flush(p.c.va, p.c.size);
        bad = wrong(&p);
        T_CHECK(bad == 0, "%zu of %u elements wrong", bad, spec.m * spec.n);
    }
    close_with_product(&n, &p);
}

static void case_gemm(void)
{
    for (uint32_t variant = 0; variant < 8; variant++) {
        pg_spec spec = default_spec(variant & 1 ? 16 : 8);
        spec.b_nk = variant >> 1 & 1;
        spec.baked = variant >> 2;
        spec.m *= 1 + variant % 3;
        multiply_with(spec);
    }
}

/* The machine code of our own overlay (overlay.h), through the driver: two shapes with one PDI. */
static void case_machine(void)
{
    static _Alignas(4) uint8_t image[1 << 18];
    static uint32_t words[1 << 15];
    static const overlay_shape shapes[2] = {{256, 192, 512}, {512, 64, 256}};
    npu n;
    overlay design = { 4, npu4 ? 4 : 3, NULL, 0 };
    pg_buf pdi = { image, overlay_pdi(&design, image, sizeof image), sizeof image };
    uint64_t addr;
    T_CHECK(pdi.size > 0, "no PDI");
    open_heap(&n);
    T_CHECK(make_context(n.fd, 16, &n.ctx, &n.syncobj) == 0, "context");
    n.pdi = put_dev(&n, &pdi, 1, &addr);
    T_CHECK(configure(&n, n.ctx, n.pdi) == 0, "CONFIG_CU");
    for (int i = 0; i < 2; i++) {
        const overlay_shape *s = &shapes[i];
        pg_spec spec = { .bits = 8, .m = s->m, .k = s->k, .n = s->n };
        size_t count = overlay_stream(&design, s, words, sizeof words / sizeof *words), bad;
        pg_buf stream = { (uint8_t *)words, count * 4, sizeof words };
        product p = make_product_of(&n, spec, &stream);
        int8_t *b = malloc((size_t)s->k * s->n);
        memcpy(b, p.b.va, (size_t)s->k * s->n);
        overlay_tile_b(s, b, (int8_t *)p.b.va);
        flush(p.b.va, p.b.size);
        T_CHECK(run_product(&n, &p) == 4, "state");
        flush(p.c.va, p.c.size);
        memcpy(p.b.va, b, (size_t)s->k * s->n);
        bad = wrong(&p);
        T_CHECK(bad == 0, "%zu of %u elements wrong", bad, s->m * s->n);
        free(b);
        free_product(&n, &p);
    }
    close_context(&n);
    close_npu(&n);
}

/* Operations of a stream in the order in which `order` names them; returns its words. Version 0.1. */
static size_t reorder(const uint32_t *from, const unsigned *order, unsigned count, uint32_t *to)
{
    size_t at[64], n = 0, words = 4;
    for (size_t i = 4; i < from[3] / 4 && n < 64; ) {
        uint32_t code = from[i] & 0xff;
        at[n++] = i;
        i += code == 0 ? 6 : code == 1 ? from[i + 3] / 4 : code == 3 ? 7 : code == 0x80 ? 4 : 12;
    }
    at[n] = from[3] / 4;
    for (unsigned i = 0; i < count; i++) {
        size_t size = at[order[i] + 1] - at[order[i]];
        memcpy(to + words, from + at[order[i]], size * 4);
        words += size;
    }
    memcpy(to, from, 16);
    to[2] = count;
    to[3] = (uint32_t)words * 4;
    return words;
}

/* A product of one column with a changed stream. */
static void multiply_stream(const overlay_shape *s, uint32_t *words, size_t count)
{
    static _Alignas(4) uint8_t image[1 << 16];
    overlay design = { 1, npu4 ? 4 : 3, NULL, 0 };
    pg_spec spec = { .bits = 8, .m = s->m, .k = s->k, .n = s->n };
    pg_buf pdi = { image, overlay_pdi(&design, image, sizeof image), sizeof image };
    pg_buf stream = { (uint8_t *)words, count * 4, count * 4 };
    uint64_t addr;
    npu n;
    open_heap(&n);
    T_CHECK(make_context(n.fd, 4, &n.ctx, &n.syncobj) == 0, "context");
    n.pdi = put_dev(&n, &pdi, 1, &addr);
    T_CHECK(pdi.size > 0 && configure(&n, n.ctx, n.pdi) == 0, "CONFIG_CU");
    product p = make_product_of(&n, spec, &stream);
    int8_t *b = malloc((size_t)s->k * s->n);
    memcpy(b, p.b.va, (size_t)s->k * s->n);
    overlay_tile_b(s, b, (int8_t *)p.b.va);
    flush(p.b.va, p.b.size);
    T_CHECK(run_product(&n, &p) == 4, "state");
    flush(p.c.va, p.c.size);
    memcpy(p.b.va, b, (size_t)s->k * s->n);
    T_CHECK(wrong(&p) == 0, "%zu elements wrong", wrong(&p));
    free(b);
    close_with_product(&n, &p);
}

/* A stream that waits until A and B were read before it queues C: they wait on the chip. */
static void case_input_first(void)
{
    static const overlay_shape shape = {64, 128, 64};
    /* K steps; B, A: descriptor, address, task; C: descriptor, address, controller, task; wait */
    static const unsigned order[] = {0, 1, 2, 3, 4, 5, 6, 11, 11, 7, 8, 9, 10, 11};
    static uint32_t words[512], changed[512];
    overlay design = { 1, npu4 ? 4 : 3, NULL, 0 };
    size_t count = overlay_stream(&design, &shape, words, 512), wait, tasks = 0;
    count = reorder(words, order, sizeof order / sizeof *order, changed);
    for (wait = 4; wait < count && tasks < 2; wait++) { /* tasks of A and B: with tokens */
        if (changed[wait] == 0 && (changed[wait + 2] == 0x1d214 || changed[wait + 2] == 0x1d21c)) {
            changed[wait + 4] |= 1u << 31;
            tasks++;
            wait += 5;
        }
    }
    T_CHECK(tasks == 2 && changed[wait] == 0x80 && changed[wait + 4] == 0x80, "the stream");
    changed[wait + 2] |= 1; /* from host memory: channels 0 and 1 */
    changed[wait + 6] |= 1;
    changed[wait + 7] |= 1u << 24;
    multiply_stream(&shape, changed, count);
}

/* Five tasks of A and of C at once: one at work, four in the queue. */
static void case_queue(void)
{
    static const overlay_shape shape = {320, 64, 64};
    static uint32_t words[1024], changed[1024];
    unsigned order[64], n = 0;
    overlay design = { 1, npu4 ? 4 : 3, NULL, 0 };
    size_t count = overlay_stream(&design, &shape, words, 1024), i;
    /* K steps; B: 3 operations; each group: A 3, C 4, from the third on behind a wait; 2 waits */
    for (unsigned op = 0; op < 4; op++) {
        order[n++] = op;
    }
    for (unsigned g = 0, op = 4; g < 5; g++) {
        op += g >= 2;
        for (unsigned k = 0; k < 7; k++) {
            order[n++] = op++;
        }
    }
    for (unsigned w = 0; w < 5; w++) {
        order[n++] = 18; /* the first wait */
    }
    T_CHECK(count > 0 && words[2] == 4 + 5 * 7 + 5, "%u operations", (unsigned)words[2]);
    count = reorder(words, order, n, changed);
    for (i = 4, n = 0; i < count && n < 10; i++) { /* descriptors of their own: A 0 to 4, C 9 to 13 */
        if (changed[i] == 1 && changed[i + 1] == 0 && changed[i + 3] == 48 &&
            changed[i + 2] != 0x1d000 + 0x20 * 8) {
            uint32_t bd = n / 2 + (n % 2 == 0 ? 0 : 9), at = 0x1d000 + 0x20 * bd;
            size_t task = i + 24 + (n % 2 == 0 ? 0 : 7);
            changed[i + 2] = at;
            changed[i + 18] = at + 4;
            changed[task + 4] = (changed[task + 4] & ~0xfu) | bd;
            i += 23;
            n++;
        }
    }
    T_CHECK(n == 10, "%u transfers", n);
    multiply_stream(&shape, changed, count);
}

/* The size that Whisper base needs, and that it is quick enough. */
static void case_gemm_large(void)
{
    npu n;
    product p;
    struct timespec a, b;
    double ms;
    pg_spec spec = { .npu2 = (uint32_t)npu4, .bits = 8, .tm = 64, .tk = 64, .tn = 32, .b_nk = 1,
                     .m = npu4 ? 2048 : 1536, .n = 512, .k = 512 };
    open_context(&n, spec, 1);
    p = make_product(&n, spec);
    clock_gettime(CLOCK_MONOTONIC, &a);
    T_CHECK(run_product(&n, &p) == 4, "state");
    clock_gettime(CLOCK_MONOTONIC, &b);
    ms = 1e3 * (double)(b.tv_sec - a.tv_sec) + 1e-6 * (double)(b.tv_nsec - a.tv_nsec);
    printf("  %ux%ux%u in %.1f ms\n", spec.m, spec.n, spec.k, ms);
    flush(p.c.va, p.c.size);
    T_CHECK(wrong(&p) == 0, "wrong numbers");
    close_with_product(&n, &p);
}

/* Changes one word of the stream; the number of wrong elements, or minus the state. */
static int damaged(npu *n, const pg_spec *spec, size_t word, uint32_t value)
{
    product p = make_product(n, *spec);
    uint8_t *at = n->heap_va + (p.stream_addr - 0x4000000) + 4 * word;
    uint32_t state;
    int result;
    memcpy(at, &value, 4);
    flush(at, 4);
    state = run_product(n, &p);
    flush(p.c.va, p.c.size);
    result = state == 4 ? (int)wrong(&p) : -(int)state;
    free_product(n, &p);
    if (state == 8) {
        usleep(40000);
    }
    return result;
}

/* Word numbers of a baked stream: C's descriptor at 4, its patch at 16, controller 28, queue 35;
 * A's descriptor at 41, patch 53, queue 65; B's descriptor at 71, patch 83. */
static void case_bad_stream(void)
{
    npu n;
    pg_spec spec = default_spec(8);
    int result;
    spec.baked = 1;
    spec.m = 128; /* one transfer */
    open_context(&n, spec, 1);
    T_CHECK(damaged(&n, &spec, 2, 0xFFFF) == -5, "operations that are not there");
    T_CHECK(damaged(&n, &spec, 0, 0x06020100) == -5, "another generation");
    T_CHECK(damaged(&n, &spec, 3, 16) == -5, "length");
    T_CHECK(damaged(&n, &spec, 4, 0x77) == -5, "unknown operation");
    result = damaged(&n, &spec, 41 + 4 + 4, (spec.k / 4) | 32u << 20 | 2u << 30);
    T_CHECK(result > 0, "wrong stride of A: %d", result);
    result = damaged(&n, &spec, 4 + 4 + 5, 15);
    T_CHECK(result > 0, "wrong step of C: %d", result);
    result = damaged(&n, &spec, 53 + 10, 4);
    T_CHECK(result > 0, "wrong offset of A: %d", result);
    result = damaged(&n, &spec, 53 + 8, 1);
    T_CHECK(result > 0, "B in the place of A: %d", result);
    T_CHECK(violations() == 0, "%d violations", (int)violations());
    T_CHECK(damaged(&n, &spec, 28 + 4, 0) == -8, "no controller, no token");
    T_CHECK(damaged(&n, &spec, 41 + 4, 8) == -8, "A runs dry");
    T_CHECK(damaged(&n, &spec, 41 + 4 + 7, 0) == -8, "descriptor not valid");
    T_CHECK(violations() == 0, "%d violations", (int)violations());
    T_CHECK(damaged(&n, &spec, 16 + 8, 7) == -8, "argument 7 is not there");
    T_CHECK(damaged(&n, &spec, 16 + 10, 1u << 30) == -8, "patch past the buffer");
    T_CHECK(damaged(&n, &spec, 16 + 6, 0x1201D004) == -8, "column 9");
    T_CHECK(violations() == 3, "%d violations", (int)violations());
    T_CHECK(damaged(&n, &spec, 0, 6u << 24 | (npu4 ? 4u : 3u) << 16 | 1u << 8) == 0, "unharmed");
    close_context(&n);
    close_npu(&n);
}

/* ---------------------------------------------------------------- the cache */

static void case_cache(void)
{
    npu n;
    product p;
    size_t stale;
    open_with_product(&n, &p);
    T_CHECK(run_product(&n, &p) == 4, "state");
    stale = wrong(&p);
    T_CHECK(stale == (size_t)n.spec.m * n.spec.n, "unflushed C: %zu wrong", stale);
    flush(p.c.va, 64);
    T_CHECK(wrong(&p) == stale - 16, "one line flushed");
    flush(p.c.va, p.c.size);
    T_CHECK(wrong(&p) == 0, "all flushed");
    p.a.va[5] ^= 1;
    put_word(&p.cmd, 0, 0x30010001);
    T_CHECK(run_product(&n, &p) == 4, "state");
    flush(p.c.va, p.c.size);
    T_CHECK(wrong(&p) > 0, "A changed and not flushed");
    T_CHECK(sync_call(&n, p.a.handle, 0, 0, p.a.size) == 0, "SYNC_BO flushes");
    put_word(&p.cmd, 0, 0x30010001);
    T_CHECK(run_product(&n, &p) == 4, "state");
    T_CHECK(sync_call(&n, p.c.handle, 0, 0, p.c.size) == 0, "SYNC_BO flushes");
    T_CHECK(wrong(&p) == 0 && violations() == 0, "A changed and flushed");
    p.c.va[300] = 1;
    put_word(&p.cmd, 0, 0x30010001);
    T_CHECK(run_product(&n, &p) == 4 && violations() == 1, "a dirty line under the device's pen");
    flush(p.c.va, p.c.size);
    T_CHECK(wrong(&p) == 1 || wrong(&p) == 2, "is written back over it");
    close_with_product(&n, &p);
}

static void case_cache_code(void)
{
    npu n;
    product p;
    uint32_t word = 0;
    open_context(&n, default_spec(8), 0);
    p = make_product(&n, n.spec);
    T_CHECK(run_product(&n, &p) == 5, "a PDI that was not flushed");
    close_with_product(&n, &p);
    open_with_product(&n, &p);
    memcpy(n.heap_va + (p.stream_addr - 0x4000000), &word, 4);
    T_CHECK(run_product(&n, &p) == 4, "the device still sees the old stream");
    fill_command(&p);
    flush(n.heap_va + (p.stream_addr - 0x4000000), 4);
    T_CHECK(run_product(&n, &p) == 5, "and now the new one");
    close_with_product(&n, &p);
}

/* LATENCY=30000: commands stay in flight for 30 ms. */
static void case_overlap(void)
{
    npu n;
    product p;
    buffer big;
    int64_t begin;
    open_with_product(&n, &p);
    big = make_buffer(&n, SHMEM, 65536);
    flush(big.va, big.size);
    p.args[0] = big.handle; /* listed, and not used by the stream */
    begin = soon(0);
    T_CHECK(exec_raw(n.fd, n.ctx, p.cmd.handle, p.args, 4, NULL) == 0, "exec");
    big.va[0] = 1;
    flush(big.va, 64);
    over_by(after(begin, 0.1)); /* LATENCY=100000 */
    T_CHECK(wait_point(n.fd, n.syncobj, 0, 10, 2) == 0, "wait");
    T_CHECK(violations() == 0, "a part that the command does not use");
    fill_command(&p);
    begin = soon(0);
    T_CHECK(exec_raw(n.fd, n.ctx, p.cmd.handle, p.args, 4, NULL) == 0, "exec");
    p.a.va[100] ^= 1;
    flush(p.a.va + 64, 64);
    over_by(after(begin, 0.1));
    T_CHECK(wait_point(n.fd, n.syncobj, 1, 10, 2) == 0, "wait");
    T_CHECK(violations() == 1, "A is written in flight");
    free_buffer(&n, &big);
    close_with_product(&n, &p);
}

/* A BO that the driver does not know to be used. */
static void case_unlisted(void)
{
    npu n;
    product p;
    open_with_product(&n, &p);
    T_CHECK(exec_raw(n.fd, n.ctx, p.cmd.handle, p.args, 3, NULL) == 0, "exec");
    T_CHECK(wait_point(n.fd, n.syncobj, 0, 10, 2) == 0, "wait");
    T_CHECK(violations() == (iova ? 0 : 1), "C is not listed");
    close_with_product(&n, &p);
}

/* ---------------------------------------------------------------- chains */

static uint32_t run_chain(npu *n, product *p, buffer *chain, const uint32_t *subs, uint32_t count,
                          uint32_t words)
{
    uint64_t seq;
    memset(chain->va, 0, chain->size);
    put_word(chain, 0, 0x30000001 | 19u << 23 | words << 12);
    put_word(chain, 4, count);
    for (uint32_t i = 0; i < count && i < 64; i++) { /* as many as subs has */
        put_address(chain, 28 + 8 * i, subs[i]);
    }
    T_CHECK(exec_raw(n->fd, n->ctx, chain->handle, p->args, 4, &seq) == 0, "exec");
    T_CHECK(wait_point(n->fd, n->syncobj, seq, 30, 2) == 0, "wait");
    return get_word(chain, 0) & 0xF;
}

static void case_chain(void)
{
    npu n;
    product p, q;
    buffer chain;
    const char *protocol = getenv("SIM_AMDXDNA_PROTOCOL");
    int npu_path = kernel >= 619 && protocol == NULL;
    uint32_t subs[64], most = npu_path ? 36 : 60, state;
    open_with_product(&n, &p);
    q = make_product(&n, n.spec);
    chain = make_buffer(&n, CMD, 4096);
    for (unsigned i = 0; i < 64; i++) {
        subs[i] = p.cmd.handle;
    }
    state = run_chain(&n, &p, &chain, subs, most, 6 + 2 * most);
    T_CHECK(state == 4, "%u entries: state %u", most, state);
    flush(p.c.va, p.c.size);
    T_CHECK(wrong(&p) == 0, "numbers");
    T_CHECK((get_word(&p.cmd, 0) & 0xF) == 1, "headers of entries are not touched");
    T_CHECK(get_word(&chain, 8) == 0 && get_word(&chain, 12) == 0, "indices are not touched");
    state = run_chain(&n, &p, &chain, subs, most + 1, 8 + 2 * most);
    T_CHECK(state == 1, "%u entries: state %u", most + 1, state);
    T_CHECK(run_chain(&n, &p, &chain, subs, 0, 6) == 1, "none");
    T_CHECK(run_chain(&n, &p, &chain, subs, 2, 9) == 1, "count a word short");
    T_CHECK(run_chain(&n, &p, &chain, subs, 3000, 1500) == 1, "3000");
    subs[1] = 777;
    T_CHECK(run_chain(&n, &p, &chain, subs, 2, 10) == 1, "unknown handle");
    subs[1] = p.stream;
    T_CHECK(run_chain(&n, &p, &chain, subs, 2, 10) == 1, "DEV BO");
    subs[1] = chain.handle;
    T_CHECK(run_chain(&n, &p, &chain, subs, 2, 10) == 1, "itself");
    subs[1] = q.cmd.handle;
    put_word(&q.cmd, 4, 0);
    T_CHECK(run_chain(&n, &p, &chain, subs, 2, 10) == 1, "an entry without CU");
    fill_command(&q);
    put_word(&q.cmd, 24, 5); /* not the stream's length */
    state = run_chain(&n, &p, &chain, subs, 2, 10);
    T_CHECK(state == (kernel <= 617 ? 2 : 5), "an entry fails: state %u", state);
    T_CHECK(get_word(&chain, 12) == 1, "error index %u", get_word(&chain, 12));
    T_CHECK(get_word(&p.cmd, 8) == (kernel >= 619 ? UINT32_MAX : 3), "first entry wiped");
    T_CHECK(get_word(&q.cmd, 8) == 3, "the failing one is not");
    free_buffer(&n, &chain);
    free_product(&n, &q);
    close_with_product(&n, &p);
}

/* What the clock says of one submission and of a chain of four, and that a wait can be slow. */
static void case_clock(void)
{
    npu n;
    product p;
    buffer chain;
    double s[64]; /* sim_amdxdna_stats_v1: the last six are device, overhead, ... microseconds */
    size_t (*stats)(void *, size_t) = NULL, size;
    void *found = dlsym(RTLD_DEFAULT, "sim_amdxdna_stats");
    int64_t start;
    uint32_t subs[4];
    double overhead;
    memcpy(&stats, &found, sizeof found);
    open_with_product(&n, &p);
    chain = make_buffer(&n, CMD, 4096);
    start = soon(0);
    T_CHECK(run_product(&n, &p) == 4, "state");
    T_CHECK(soon(0) - start >= 30000000, "latency");
    for (unsigned i = 0; i < 4; i++) {
        subs[i] = p.cmd.handle;
    }
    T_CHECK(run_chain(&n, &p, &chain, subs, 4, 14) == 4, "chain");
    size = stats(s, sizeof s);
    overhead = s[size / 8 - 5];
    T_CHECK(fabs(overhead - (npu4 ? 59 + 59 + 3 * 22 : 125 + 125 + 3 * 48)) < 1e-6,
            "submitting %f us", overhead);
    T_CHECK(s[size / 8 - 6] > overhead, "and computing");
    free_buffer(&n, &chain);
    close_with_product(&n, &p);
}

/* ---------------------------------------------------------------- failures */

static void case_wipe(void)
{
    npu n;
    product p;
    uint32_t state;
    open_with_product(&n, &p);
    put_word(&p.cmd, 24, 5);
    state = run_product(&n, &p);
    T_CHECK(state == 5, "state %u", state);
    T_CHECK(get_word(&p.cmd, 8) == (kernel >= 619 ? UINT32_MAX : 3), "payload");
    T_CHECK(get_word(&p.cmd, 4092) == (kernel >= 619 ? UINT32_MAX : 0), "to the end");
    fill_command(&p);
    T_CHECK(run_product(&n, &p) == 4, "rebuilt");
    close_with_product(&n, &p);
}

/* Set up by SIM_AMDXDNA_FAULT=exec=1:timeout. */
static void case_watchdog(void)
{
    npu n;
    product p;
    uint32_t state;
    open_with_product(&n, &p);
    state = run_product(&n, &p);
    T_CHECK(state == (kernel == 616 ? 1 : 8), "state %u", state);
    if (kernel >= 619) {
        uint32_t health = kernel >= 701 && npu4;
        T_CHECK(get_word(&p.cmd, 4) == (health ? 1 : UINT32_MAX), "health or ones: %x",
                get_word(&p.cmd, 4));
        T_CHECK(get_word(&p.cmd, 100) == UINT32_MAX, "ones");
    }
    usleep(40000);
    fill_command(&p);
    T_CHECK(run_product(&n, &p) == 4, "the context lives on");
    flush(p.c.va, p.c.size);
    T_CHECK(wrong(&p) == 0, "numbers");
    close_with_product(&n, &p);
}

/* A hung context is not detected while another one works, from 7.2 on. */
static void case_watchdog_busy(void)
{
    npu n, other;
    product p, q;
    int64_t begin, end;
    uint32_t state;
    open_with_product(&n, &p);
    other = n;
    T_CHECK(make_context(n.fd, 4 * pg_columns(&n.spec), &other.ctx, &other.syncobj) == 0, "second");
    T_CHECK(configure(&n, other.ctx, n.pdi) == 0, "configure");
    q = make_product(&n, n.spec);
    exec_raw(n.fd, n.ctx, p.cmd.handle, p.args, 4, NULL);
    end = soon(1.0); /* time scale 0.25: the limit is 0.5 s */
    for (begin = soon(0); begin < end; begin = soon(0)) {
        put_word(&q.cmd, 0, 0x30010001);
        T_CHECK(run_product(&other, &q) == 4, "the busy one");
        usleep(1000);
        over_by(after(begin, 0.25)); /* two of these in a row are no pause of 0.5 s */
    }
    state = get_word(&p.cmd, 0) & 0xF;
    over_by(after(begin, 0.25));
    T_CHECK(state == 1, "the hung one is not seen: %u", state);
    T_CHECK(wait_point(n.fd, n.syncobj, 0, 5, 2) == 0, "until it is quiet");
    T_CHECK((get_word(&p.cmd, 0) & 0xF) == 8, "then it is");
    free_product(&n, &q);
    free_product(&n, &p);
    destroy(n.fd, SYNCOBJ_DESTROY, other.syncobj);
    destroy(n.fd, DESTROY_HWCTX, other.ctx);
    close_context(&n);
    close_npu(&n);
}

static void case_destroy_hung(void)
{
    npu n;
    product p;
    open_with_product(&n, &p);
    exec_raw(n.fd, n.ctx, p.cmd.handle, p.args, 4, NULL);
    close_context(&n);
    T_CHECK((get_word(&p.cmd, 0) & 0xF) == (kernel == 616 ? 1 : 6), "state %x",
            get_word(&p.cmd, 0));
    free_product(&n, &p);
    close_npu(&n);
}

/* exec=1:timeout: as long as the context is rebuilt commands come back untouched, then they meet no
 * kernel, then all is well. REBUILD=700, UNREADY=1500. */
static void case_unready(void)
{
    static const uint32_t states[3] = {1, 5, 4};
    static const double limits[3] = {0.1 + 0.7, 0.1 + 0.7 + 1.5, 60.0};
    npu n;
    product p;
    int64_t begin;
    open_with_product(&n, &p);
    begin = soon(0);
    T_CHECK(run_product(&n, &p) == 8, "the hung one"); /* time scale 0.05: after 0.1 s */
    for (unsigned i = 0; i < 3; i++) {
        uint32_t state;
        fill_command(&p);
        state = run_product(&n, &p);
        over_by(after(begin, limits[i]));
        T_CHECK(state == states[i], "%u: state %u", i, state);
        usleep(i == 0 ? 1000000 : 1600000);
    }
    close_with_product(&n, &p);
}

/* exec=1:dead or broken, times scaled by 0.1: the driver's calls, and that idling for 0.5 s heals. */
static void case_firmware(void)
{
    const char *fault = getenv("SIM_AMDXDNA_FAULT");
    int broken = strstr(fault, "broken") != NULL;
    int want = broken ? -EPIPE : -ETIME;
    uint32_t ctx, syncobj, state;
    int64_t begin;
    npu n;
    product p;
    open_with_product(&n, &p);
    begin = soon(0);
    T_CHECK(run_product(&n, &p) == 8, "no answer");
    fill_command(&p);
    usleep(50000); /* the context is rebuilt */
    state = run_product(&n, &p);
    over_by(after(begin, 0.5));
    T_CHECK(state == 8, "nor to the next: %u", state);
    begin = soon(0);
    int first = make_context(n.fd, 4, &ctx, &syncobj);
    if (first != want) {
        over_by(after(begin, 0.1)); /* and 0.4 s since the command before */
    }
    T_CHECK(first == want, "CREATE_HWCTX: %d", first);
    T_CHECK(broken || soon(0) - begin >= 500000000, "it blocks for five seconds");
    int next = make_context(n.fd, 4, &ctx, &syncobj);
    over_by(after(begin, broken ? 0.5 : 1.0));
    T_CHECK(next == (broken ? -EPIPE : -ENODEV), "and then: %d", next);
    free_product(&n, &p);
    close_context(&n);
    usleep(700000); /* more than five seconds */
    if (kernel < 619) {
        next = make_context(n.fd, 4, &ctx, &syncobj);
        T_CHECK(next == (broken ? -EPIPE : -ENODEV), "before 6.19 nothing heals: %d", next);
    }
    close_npu(&n);
    if (kernel >= 619) {
        open_context(&n, default_spec(8), 1); /* which checks every call */
        p = make_product(&n, n.spec);
        T_CHECK(run_product(&n, &p) == 4, "a product");
        free_product(&n, &p);
        close_context(&n);
        close_npu(&n);
    }
}

/* exec=1:timeout without a watchdog: only closing the context ends the command. */
static void case_no_watchdog(void)
{
    npu n;
    product p;
    open_with_product(&n, &p);
    exec_raw(n.fd, n.ctx, p.cmd.handle, p.args, 4, NULL);
    T_CHECK(wait_point(n.fd, n.syncobj, 0, 1.0, 2) == -ETIME, "it ended by itself");
    close_context(&n);
    T_CHECK((get_word(&p.cmd, 0) & 0xF) == 6, "state %x", get_word(&p.cmd, 0));
    free_product(&n, &p);
    close_npu(&n);
}

/* exec=1:lost, then =2:state6, =3:fw=0x1000004, result=4:flipbit, =5:skip, gone at the end */
static void case_faults(void)
{
    npu n;
    product p;
    uint32_t state, ctx, syncobj;
    open_with_product(&n, &p);
    T_CHECK(run_product(&n, &p) == 1 && run_product(&n, &p) == 1, "a dead context");
    close_context(&n);
    T_CHECK(make_context(n.fd, 4 * pg_columns(&n.spec), &n.ctx, &n.syncobj) == 0, "context");
    T_CHECK(configure(&n, n.ctx, n.pdi) == -EINVAL, "the PDI was closed with it");
    destroy(n.fd, SYNCOBJ_DESTROY, n.syncobj);
    destroy(n.fd, DESTROY_HWCTX, n.ctx);
    free_product(&n, &p);
    close_npu(&n);
    open_with_product(&n, &p);
    T_CHECK(run_product(&n, &p) == 6, "state 6");
    fill_command(&p);
    state = run_product(&n, &p);
    T_CHECK(state == 5, "firmware error: %u", state);
    fill_command(&p);
    T_CHECK(run_product(&n, &p) == 4, "state");
    flush(p.c.va, p.c.size);
    T_CHECK(wrong(&p) == 1, "one bit: %zu", wrong(&p));
    fill_command(&p);
    T_CHECK(run_product(&n, &p) == 4, "state");
    flush(p.c.va, p.c.size);
    T_CHECK(wrong(&p) == 1, "nothing written: the old result stays");
    free_product(&n, &p);
    T_CHECK(make_context(n.fd, 16, &ctx, &syncobj) == -ENOMEM, "an injected ENOMEM");
    T_CHECK(make_context(n.fd, 16, &ctx, &syncobj) == 0, "once");
    destroy(n.fd, SYNCOBJ_DESTROY, syncobj);
    destroy(n.fd, DESTROY_HWCTX, ctx);
    close_context(&n);
    close_npu(&n);
}

static void case_gone(void)
{
    npu n;
    product p;
    uint64_t seq;
    int error;
    open_with_product(&n, &p);
    do {
        fill_command(&p);
        error = exec_raw(n.fd, n.ctx, p.cmd.handle, p.args, 4, &seq);
        error = error == 0 ? wait_point(n.fd, n.syncobj, seq, 5, 2) : error;
    } while (error == 0);
    T_CHECK(error == -ENODEV, "gone: %d", error);
    T_CHECK(make_bo(n.fd, SHMEM, 4096, &p.stream) == -ENODEV, "for good");
    T_CHECK(open("/dev/accel/accel0", O_RDWR | O_CLOEXEC) < 0 && errno == ENODEV, "open");
    close(n.fd);
}

static void case_open_fault(void)
{
    int fd = open("/dev/accel/accel0", O_RDWR | O_CLOEXEC);
    T_CHECK(fd < 0 && errno == EACCES, "open must fail");
}

static void case_suspend(void)
{
    npu n;
    product p;
    open_with_product(&n, &p);
    T_CHECK(run_product(&n, &p) == 6, "aborted by a suspend");
    fill_command(&p);
    T_CHECK(run_product(&n, &p) == 4, "works again");
    usleep(80000); /* time scale 0.01: asleep after 50 ms */
    fill_command(&p);
    T_CHECK(run_product(&n, &p) == 4, "after idling");
    flush(p.c.va, p.c.size);
    T_CHECK(wrong(&p) == 0, "numbers");
    close_with_product(&n, &p);
}

/* mmap=2:ENOMEM, wait=1:EIO, exec=1:slow=50, ioctl=GET_BO_INFO:3+:EINVAL */
static void case_call_faults(void)
{
    npu n;
    buffer cmd = { .size = 4096 };
    struct bo_info i = { 0 };
    int64_t start;
    open_heap(&n); /* one mapping, one GET_BO_INFO */
    T_CHECK(make_context(n.fd, 16, &n.ctx, &n.syncobj) == 0, "context");
    T_CHECK(make_bo(n.fd, CMD, cmd.size, &cmd.handle) == 0, "BO");
    i = info(n.fd, cmd.handle);
    cmd.va = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, n.fd, (off_t)i.offset);
    T_CHECK(cmd.va == MAP_FAILED && errno == ENOMEM, "the second mapping fails");
    cmd.va = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, n.fd, (off_t)i.offset);
    T_CHECK(cmd.va != MAP_FAILED, "the third does not");
    for (unsigned round = 0; round < 2; round++) {
        i = (struct bo_info){ .handle = cmd.handle };
        T_CHECK(call(n.fd, GET_BO_INFO, &i) == -EINVAL, "from the third on");
    }
    put_word(&cmd, 0, 0x30010001); /* malformed: no CU */
    start = soon(0);
    T_CHECK(exec_raw(n.fd, n.ctx, cmd.handle, NULL, 0, NULL) == 0, "exec");
    T_CHECK(wait_point(n.fd, n.syncobj, 0, 5, 2) == -EIO, "the first wait fails");
    T_CHECK(wait_point(n.fd, n.syncobj, 0, 5, 2) == 0, "the second does not");
    T_CHECK(soon(0) - start >= 45000000, "slow");
    munmap(cmd.va, 4096);
    close_bo(n.fd, cmd.handle);
    destroy(n.fd, SYNCOBJ_DESTROY, n.syncobj);
    destroy(n.fd, DESTROY_HWCTX, n.ctx);
    close_npu(&n);
}

/* 14b */
static void case_pdi_closed(void)
{
    npu n;
    product p;
    uint32_t version[4];
    struct get_info g = { 8, 16, (uint64_t)(uintptr_t)version };
    int64_t begin = soon(0);
    uint32_t state;
    open_with_product(&n, &p);
    close_bo(n.fd, n.pdi);
    T_CHECK(violations() == 1, "seen at once");
    state = run_product(&n, &p);
    over_by(after(begin, 0.5)); /* time scale 0.1 */
    T_CHECK(state == 4, "works until the device sleeps: %u", state);
    usleep(800000); /* time scale 0.1: asleep after 500 ms */
    fill_command(&p);
    T_CHECK(exec_raw(n.fd, n.ctx, p.cmd.handle, p.args, 4, NULL) == -EINVAL, "then for nobody");
    T_CHECK(call(n.fd, GET_INFO, &g) == -EINVAL, "then for nobody");
    destroy(n.fd, SYNCOBJ_DESTROY, n.syncobj);
    destroy(n.fd, DESTROY_HWCTX, n.ctx);
    T_CHECK(call(n.fd, GET_INFO, &g) == 0, "healed");
    free_product(&n, &p);
    close_npu(&n);
}

/* ---------------------------------------------------------------- contexts */

static void case_contexts(void)
{
    npu n;
    uint32_t ctx[17], syncobj[17], limit = npu4 ? 16 : 6, qos[8] = { 100000, 100000 }, x;
    struct create_hwctx c = { .qos = (uint64_t)(uintptr_t)qos, .max_opc = 2048, .num_tiles = 16 };
    int skipped = npu4 && kernel >= 619 && kernel < 702;
    open_heap(&n);
    for (unsigned i = 0; i < limit; i++) {
        T_CHECK(make_context(n.fd, npu4 ? 32 : 16, &ctx[i], &syncobj[i]) == 0, "context %u", i);
        T_CHECK(ctx[i] == i + 1, "its number %u", ctx[i]);
    }
    T_CHECK(make_context(n.fd, npu4 ? 32 : 16, &x, &x) == -EINVAL, "one too many");
    for (unsigned i = 0; i < limit; i++) {
        destroy(n.fd, SYNCOBJ_DESTROY, syncobj[i]);
        T_CHECK(destroy(n.fd, DESTROY_HWCTX, ctx[i]) == 0, "destroy %u", i);
    }
    T_CHECK(make_context(n.fd, 0, &x, &x) == -EINVAL, "no tiles");
    T_CHECK(make_context(n.fd, 3, &x, &x) == -EINVAL, "no column");
    T_CHECK(make_context(n.fd, npu4 ? 36 : 24, &x, &x) == -EINVAL, "too many columns");
    x = 0;
    T_CHECK((call(n.fd, CREATE_HWCTX, &c) == 0) == skipped, "impossible QoS");
    if (skipped) {
        destroy(n.fd, SYNCOBJ_DESTROY, c.syncobj);
        destroy(n.fd, DESTROY_HWCTX, c.handle);
    }
    close_npu(&n);
}

/* Columns are divided in space (NPU1, and NPU4 up to 6.18) or only in time. */
static void case_partition(void)
{
    npu n;
    uint32_t ctx[4], syncobj[4], x;
    int error;
    uint8_t entries[4][64];
    struct get_info g = { 5, sizeof entries, (uint64_t)(uintptr_t)entries };
    open_heap(&n);
    T_CHECK(make_context(n.fd, 16, &ctx[0], &syncobj[0]) == 0, "4 columns");
    T_CHECK(call(n.fd, GET_INFO, &g) == 0, "contexts");
    T_CHECK(g.size == (kernel >= 618 ? sizeof entries - 64 : 64), "size %u", g.size);
    memcpy(&x, entries[0] + 4, 4);
    T_CHECK(x == (npu4 ? 0 : 1), "first column %u", x);
    memcpy(&x, entries[0] + 8, 4);
    T_CHECK(x == (npu4 && kernel >= 619 ? 8 : 4), "columns %u", x);
    T_CHECK(make_context(n.fd, 16, &ctx[1], &syncobj[1]) == 0, "4 columns more");
    error = make_context(n.fd, npu4 ? 32 : 20, &ctx[2], &syncobj[2]);
    T_CHECK(error == (npu4 && kernel >= 619 ? 0 : -ENODEV), "all columns: %d", error);
    for (unsigned i = 0; i < (error == 0 ? 3u : 2u); i++) {
        destroy(n.fd, SYNCOBJ_DESTROY, syncobj[i]);
        destroy(n.fd, DESTROY_HWCTX, ctx[i]);
    }
    close_npu(&n);
}

/* 14 */
static void case_dup(void)
{
    npu n;
    product p;
    int copy, status, error;
    pid_t child;
    open_with_product(&n, &p);
    copy = dup(n.fd);
    T_CHECK(run_product(&n, &p) == 4, "before");
    close(copy);
    fill_command(&p);
    error = exec_raw(n.fd, n.ctx, p.cmd.handle, p.args, 4, NULL);
    T_CHECK(error == (kernel >= 700 ? 0 : -EINVAL), "after closing a copy: %d", error);
    if (kernel >= 700) {
        child = fork();
        if (child == 0) {
            _exit(0);
        }
        waitpid(child, &status, 0);
        wait_point(n.fd, n.syncobj, 0, 5, 2);
        fill_command(&p);
        T_CHECK(run_product(&n, &p) == 4, "after a child ended");
        close_context(&n);
    }
    free_product(&n, &p);
    close(n.fd);
    munmap(n.heap_va, CHUNK);
}

static void case_fork(void)
{
    npu n;
    product p;
    int status, error;
    pid_t child;
    open_with_product(&n, &p);
    child = fork();
    if (child == 0) {
        int fd;
        uint32_t handle;
        if (make_bo(n.fd, SHMEM, 4096, &handle) != -EINVAL || violations() != 1) {
            _exit(1);
        }
        fd = open("/dev/accel/accel0", O_RDWR | O_CLOEXEC);
        _exit(fd >= 0 && make_bo(fd, SHMEM, 4096, &handle) == 0 ? 0 : 2);
    }
    waitpid(child, &status, 0);
    T_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: %x", (unsigned)status);
    error = exec_raw(n.fd, n.ctx, p.cmd.handle, p.args, 4, NULL);
    T_CHECK(error == (kernel >= 700 ? 0 : -EINVAL), "after the child ended: %d", error);
    if (error == 0) {
        wait_point(n.fd, n.syncobj, 0, 5, 2);
    }
    free_product(&n, &p);
    close_npu(&n);
}

/* ---------------------------------------------------------------- queries, files, libdrm */

static void case_info(void)
{
    npu n;
    uint8_t m[64];
    uint16_t cols;
    uint64_t resource[5];
    uint32_t one = 1;
    struct get_info g = { 1, sizeof m, (uint64_t)(uintptr_t)m };
    struct get_array a = { 0, 144, 4, 0, 0 };
    uint8_t contexts[4][144];
    struct { uint32_t ctx, ms; uint64_t seq; } w = { 1, 10, 0 };
    int error;
    open_context(&n, default_spec(8), 1);
    T_CHECK(call(n.fd, GET_INFO, &g) == 0, "metadata");
    memcpy(&cols, m + 4, 2);
    T_CHECK(cols == (npu4 ? 8 : 5) && m[16] == 4, "columns, core rows");
    g.param = 99;
    T_CHECK(call(n.fd, GET_INFO, &g) == -EOPNOTSUPP, "unknown parameter");
    g = (struct get_info){ 12, sizeof resource, (uint64_t)(uintptr_t)resource };
    error = call(n.fd, GET_INFO, &g);
    T_CHECK(error == (kernel >= 619 ? 0 : -EOPNOTSUPP), "resources: %d", error);
    T_CHECK(error != 0 || (resource[2] == (npu4 ? 16 : 6) && resource[4] == 1), "contexts");
    g = (struct get_info){ 1, 64, 8 };
    T_CHECK(call(n.fd, GET_INFO, &g) == -EFAULT, "buffer");
    a.buffer = (uint64_t)(uintptr_t)contexts;
    if (kernel >= 618) {
        struct get_array bad = a;
        bad.pad = 1;
        T_CHECK(call(n.fd, GET_ARRAY, &bad) == -EINVAL, "pad");
        bad = a;
        bad.element = 0;
        T_CHECK(call(n.fd, GET_ARRAY, &bad) == -EINVAL, "element size");
        bad = a;
        bad.count = 1025;
        T_CHECK(call(n.fd, GET_ARRAY, &bad) == -EINVAL, "1025 elements");
        bad = a;
        bad.param = 1;
        T_CHECK(call(n.fd, GET_ARRAY, &bad) == -EOPNOTSUPP, "unknown array");
    }
    error = call(n.fd, GET_ARRAY, &a);
    T_CHECK(error == (kernel >= 618 ? 0 : -EINVAL), "GET_ARRAY: %d", error);
    T_CHECK(error != 0 || (a.count == 1 && memcmp(contexts[0], &one, 4) == 0), "one context");
    error = call(n.fd, WAIT_CMD, &w);
    T_CHECK(error == (legacy ? -EINVAL : kernel >= 702 ? -EOPNOTSUPP : -EINVAL), "WAIT_CMD %d",
            error);
    if (legacy) {
        product p = make_product(&n, n.spec);
        exec_raw(n.fd, n.ctx, p.cmd.handle, p.args, 4, NULL);
        w.ctx = n.ctx;
        w.ms = 0;
        T_CHECK(call(n.fd, WAIT_CMD, &w) == 0, "WAIT_CMD of the legacy driver");
        free_product(&n, &p);
    }
    g = (struct get_info){ 0, 8, (uint64_t)(uintptr_t)m };
    T_CHECK(call(n.fd, SET_STATE, &g) == -EACCES, "SET_STATE");
    T_CHECK(call(n.fd, 0xc0086440 | 0x3f, m) == -EINVAL, "unknown ioctl");
    close_context(&n);
    close_npu(&n);
}

static int file_is(const char *path, const char *text)
{
    char bytes[64] = "";
    FILE *file = fopen(path, "r");
    int same = file != NULL && fgets(bytes, sizeof bytes, file) != NULL &&
               strncmp(bytes, text, strlen(text)) == 0;
    if (file != NULL) {
        fclose(file);
    }
    return same;
}

static void case_files(void)
{
    struct stat st;
    struct utsname name;
    struct rlimit limit;
    struct pollfd fds;
    char text[256];
    int fd = open_npu(), found = 0;
    DIR *dir = opendir("/dev/accel");
    for (struct dirent *e = dir != NULL ? readdir(dir) : NULL; e != NULL; e = readdir(dir)) {
        found += strcmp(e->d_name, "accel0") == 0;
    }
    T_CHECK(dir != NULL && found == 1 && closedir(dir) == 0, "/dev/accel");
    T_CHECK(fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(261, 0), "fstat");
    T_CHECK(file_is("/sys/dev/char/261:0/device/device_type", "0"), "device_type");
    T_CHECK(file_is("/sys/dev/char/261:0/device/vendor", "0x1022"), "vendor");
    T_CHECK(file_is("/sys/class/accel/accel0/device/device", npu4 ? "0x17f0" : "0x1502"),
            "device");
    T_CHECK(file_is("/sys/bus/pci/devices/0000:c4:00.1/../0000:c4:00.1/revision",
                    npu4 ? "0x10" : "0x00"), "revision");
    T_CHECK(readlink("/sys/bus/pci/devices/0000:c4:00.1/driver", text, sizeof text) > 0 &&
            strncmp(text, "/sys/bus/pci/drivers/amdxdna", 28) == 0, "driver");
    T_CHECK(stat("/sys/module/amdxdna", &st) == 0 && S_ISDIR(st.st_mode), "module");
    T_CHECK(access("/sys/module/amdxdna/nothing", F_OK) != 0 && errno == ENOENT, "absence");
    T_CHECK(uname(&name) == 0 && (legacy || (name.release[0] - '0') * 100 +
            atoi(name.release + 2) == kernel), "release %s", name.release);
    T_CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur == 65536, "memlock");
    fds = (struct pollfd){ fd, POLLIN, 0 };
    T_CHECK(poll(&fds, 1, 10) == 0, "poll");
    T_CHECK(access("/etc/passwd", R_OK) == 0 && access("/no/such", R_OK) != 0, "other files");
    close(fd);
}

/* What a client takes from libdrm, through libdrm. */
static void case_libdrm(void)
{
    struct version { int major, minor, patch, n0; char *name; int n1; char *date; int n2;
                     char *d; };
    struct version *(*get)(int) = NULL, *v;
    void (*put)(struct version *) = NULL;
    int (*wait)(int, uint32_t *, uint64_t *, unsigned, int64_t, unsigned, uint32_t *) = NULL;
    int (*query)(int, uint32_t *, uint64_t *, uint32_t) = NULL, (*cap)(int, uint64_t, uint64_t *);
    int (*drop)(int, uint32_t) = NULL, (*close_handle)(int, uint32_t) = NULL;
    void *lib = dlopen("libdrm.so.2", RTLD_NOW), *symbols[7];
    static const char *const names[7] = { "drmGetVersion", "drmFreeVersion",
        "drmSyncobjTimelineWait", "drmSyncobjQuery", "drmGetCap", "drmSyncobjDestroy",
        "drmCloseBufferHandle" };
    npu n;
    product p;
    uint64_t point = 0, value = 0;
    uint32_t first;
    int minor = kernel >= 702 ? 10 : kernel >= 701 ? 8 : kernel >= 619 ? 6 : kernel >= 618;
    if (lib == NULL) {
        t_skip("no libdrm.so.2");
        return;
    }
    for (unsigned i = 0; i < 7; i++) {
        symbols[i] = dlsym(lib, names[i]);
        T_CHECK(symbols[i] != NULL, "%s", names[i]);
    }
    memcpy(&get, &symbols[0], sizeof get);
    memcpy(&put, &symbols[1], sizeof put);
    memcpy(&wait, &symbols[2], sizeof wait);
    memcpy(&query, &symbols[3], sizeof query);
    memcpy(&cap, &symbols[4], sizeof cap);
    memcpy(&drop, &symbols[5], sizeof drop);
    memcpy(&close_handle, &symbols[6], sizeof close_handle);
    open_context(&n, default_spec(8), 1);
    v = get(n.fd);
    T_CHECK(v != NULL && strcmp(v->name, "amdxdna_accel_driver") == 0, "name");
    T_CHECK(v->major == legacy && v->minor == (legacy ? 0 : minor), "%d.%d", v->major, v->minor);
    put(v);
    T_CHECK(cap(n.fd, 0x14, &value) == 0 && value == 1, "timeline capability");
    T_CHECK(wait(n.fd, &n.syncobj, &point, 1, soon(0.01), 2, &first) == -ETIME, "wait");
    p = make_product(&n, n.spec);
    T_CHECK(exec_raw(n.fd, n.ctx, p.cmd.handle, p.args, 4, &point) == 0, "exec");
    T_CHECK(wait(n.fd, &n.syncobj, &point, 1, INT64_MAX, 2, &first) == 0, "wait");
    fill_command(&p);
    T_CHECK(run_product(&n, &p) == 4, "another");
    T_CHECK(query(n.fd, &n.syncobj, &value, 1) == 0 && value == 1, "query");
    free_product(&n, &p);
    T_CHECK(drop(n.fd, n.syncobj) == 0 && drop(n.fd, n.syncobj) != 0, "syncobj");
    T_CHECK(destroy(n.fd, DESTROY_HWCTX, n.ctx) == 0, "context");
    if (close_handle != NULL) {
        T_CHECK(close_handle(n.fd, n.pdi) == 0, "handle");
    }
    close_npu(&n);
}

/* Leaves everything lying about: the report counts it. */
static void case_leaks(void)
{
    npu n;
    product p;
    open_with_product(&n, &p);
    (void)p;
}

static void case_nothing(void)
{
    T_CHECK(violations() == 0, "no device opened");
}

/* The container that packs come in: read back by the places that XRT's xclbin.h gives,
 * not by its writer. */
static void case_xclbin(void)
{
    pg_spec spec = { .bits = 8, .tm = 64, .tk = 64, .tn = 32, .b_nk = 1 };
    pg_buf pdi = { NULL, 0, 0 }, file = { NULL, 0, 0 };
    uint64_t total, at = 0;
    uint32_t kind, count, image[2], pdis[2], found = 0;
    uint16_t width;
    pg_pdi_write(&spec, &pdi);
    pg_xclbin_write(&spec, &pdi, &file);
    memcpy(&total, file.data + 0x130, 8);
    memcpy(&count, file.data + 0x1C0, 4);
    T_CHECK(memcmp(file.data, "xclbin2", 8) == 0 && total == file.size && count == 4, "header");
    for (uint32_t i = 0; i < count; i++) {
        memcpy(&kind, file.data + 0x1C8 + 40 * i, 4);
        if (kind == 32) {
            memcpy(&at, file.data + 0x1C8 + 40 * i + 24, 8);
        }
        found |= 1u << (kind & 31);
    }
    T_CHECK(found == (1u | 1u << 2 | 1u << 6 | 1u << 8) && at % 8 == 0 && at > 0, "sections");
    memcpy(&width, file.data + at + 32, 2);
    memcpy(pdis, file.data + at + 120, 8);
    memcpy(image, file.data + at + pdis[1] + 16, 8);
    T_CHECK(width == 4 && pdis[0] == 1 && image[0] == pdi.size, "partition");
    T_CHECK(memcmp(file.data + at + image[1], pdi.data, pdi.size) == 0, "PDI");
    pg_free(&pdi);
    pg_free(&file);
}

/* ---------------------------------------------------------------- the runs */

typedef struct test_case {
    const char *name;
    void (*run)(void);
    const char *profiles;       /* KERNEL/DEVICE, separated by blanks */
    const char *settings;       /* NAME=VALUE of the simulator, separated by '|' */
    const char *log;            /* a line that the report must have */
} test_case;

#define EVERY "6.16/npu1 6.18/npu1 7.1/npu1 7.2/npu1 6.18/npu4 7.2/npu4 legacy/npu1"
#define CLEAN "sim: 0 violations"
#define NO_LEAKS "sim: leaks: bos=0 mappings=0 contexts=0 syncobjs=0"

static const test_case cases[] = {
    { "order", case_order, EVERY " 6.17/npu1 6.19/npu1 7.0/npu1 7.3/npu4", "", CLEAN },
    { "second_heap", case_second_heap, "6.16/npu1 7.1/npu1 7.1/npu4 7.2/npu1 7.2/npu4", "", CLEAN },
    { "second_heap_old", case_second_heap, "7.2/npu4", "PROTOCOL=6.12", NO_LEAKS },
    { "heap_space", case_heap_space, EVERY, "", NO_LEAKS },
    { "config", case_config, EVERY " 6.19/npu1", "", NO_LEAKS },
    { "bo_info", case_bo_info, EVERY " 7.0/npu1", "", NO_LEAKS },
    { "bo_info_iova", case_bo_info, "7.1/npu1 7.2/npu4", "ADDRESS=iova", CLEAN },
    { "create_bo", case_create_bo, EVERY " 6.17/npu1 6.19/npu1", "", NO_LEAKS },
    { "create_bo_iova", case_create_bo, "7.1/npu1 7.2/npu1", "ADDRESS=iova", NO_LEAKS },
    { "sync_bo", case_sync_bo, EVERY " 6.17/npu1 6.19/npu1", "", "sim: 1 violations" },
    { "mmap", case_mmap, "6.16/npu1 7.2/npu1", "", "sim: 1 violations" },
    { "exec_errors", case_exec_errors, EVERY " 6.17/npu1 7.0/npu1", "", NO_LEAKS },
    { "handle_zero", case_handle_zero, "6.18/npu1 7.1/npu1 7.2/npu1", "", NO_LEAKS },
    { "malformed", case_malformed, "6.18/npu1 7.2/npu1 7.2/npu4", "", "sim: 4 violations" },
    { "timeline", case_timeline, "7.2/npu1 7.2/npu4", "FAULT=exec=4:timeout|TIMESCALE=0.5",
      NO_LEAKS },
    { "fifth", case_fifth, "7.2/npu1", "FAULT=exec=1:timeout|REBUILD=1000", CLEAN },
    { "fifth_lenient", case_fifth, "7.2/npu1", "FAULT=exec=1:timeout|LENIENT=1|REBUILD=1000",
      CLEAN },
    { "gemm", case_gemm, EVERY, "", CLEAN },
    { "gemm_iova", case_gemm, "7.1/npu1 7.2/npu4", "ADDRESS=iova", NO_LEAKS },
    { "gemm_coherent", case_gemm, "7.2/npu1", "CACHE=off", CLEAN },
    { "gemm_clflush", case_gemm, "7.2/npu1 7.2/npu4", "CACHE=trap", CLEAN },
    { "cache_clflush", case_cache, "7.2/npu1", "CACHE=trap", NO_LEAKS },
    { "machine", case_machine, "7.2/npu1 7.2/npu4", "", CLEAN },
    { "input_first", case_input_first, "7.2/npu1 7.2/npu4", "", CLEAN },
    { "input_first_model", case_input_first, "7.2/npu1 7.2/npu4", "CORES=built-in", CLEAN },
    { "queue", case_queue, "7.2/npu1 7.2/npu4", "", CLEAN },
    { "queue_model", case_queue, "7.2/npu1 7.2/npu4", "CORES=built-in", CLEAN },
    { "gemm_large", case_gemm_large, "7.2/npu1 7.2/npu4", "", CLEAN },
    { "bad_stream", case_bad_stream, "6.18/npu1 7.2/npu1 7.2/npu4", "TIMESCALE=0.001", NO_LEAKS },
    { "cache", case_cache, "6.18/npu1 7.2/npu1 7.2/npu4", "", NO_LEAKS },
    { "cache_code", case_cache_code, "6.18/npu1 7.2/npu1", "", CLEAN },
    { "overlap", case_overlap, "7.2/npu1", "LATENCY=100000", NO_LEAKS },
    { "clock", case_clock, "7.2/npu1 7.2/npu4", "LATENCY=30000", CLEAN },
    { "unlisted", case_unlisted, "7.2/npu1", "", "sim: 1 violations" },
    { "unlisted_iova", case_unlisted, "7.2/npu1", "ADDRESS=iova", CLEAN },
    { "chain", case_chain, EVERY " 6.17/npu1", "", NO_LEAKS },
    { "chain_old_path", case_chain, "7.2/npu1", "PROTOCOL=5.7", CLEAN },
    { "chain_old_path4", case_chain, "7.2/npu4", "PROTOCOL=6.12", CLEAN },
    { "wipe", case_wipe, EVERY " 6.19/npu1", "", CLEAN },
    { "watchdog", case_watchdog, EVERY " 6.17/npu1", "FAULT=exec=1:timeout|TIMESCALE=0.01",
      NO_LEAKS },
    { "watchdog_real", case_watchdog, "7.2/npu1", "FAULT=exec=1:timeout", CLEAN },
    { "watchdog_busy", case_watchdog_busy, "7.2/npu1", "FAULT=exec=1:timeout|TIMESCALE=0.25",
      NO_LEAKS },
    { "unready", case_unready, "7.2/npu1",
      "FAULT=exec=1:timeout|TIMESCALE=0.05|REBUILD=700|UNREADY=1500", NO_LEAKS },
    { "firmware_dead", case_firmware, "7.1/npu1 7.2/npu1 7.2/npu4 6.18/npu4",
      "FAULT=exec=1:dead|TIMESCALE=0.1|WATCHDOG=1", NULL },
    { "firmware_broken", case_firmware, "7.2/npu1 6.18/npu1",
      "FAULT=exec=1:broken|TIMESCALE=0.1|WATCHDOG=1", NULL },
    { "no_watchdog", case_no_watchdog, "7.1/npu1 7.2/npu1",
      "FAULT=exec=1:timeout|TIMESCALE=0.05|WATCHDOG=0", NO_LEAKS },
    { "destroy_hung", case_destroy_hung, "6.16/npu1 7.2/npu1",
      "FAULT=exec=1:timeout|TIMESCALE=0.05", NO_LEAKS },
    { "faults", case_faults, "7.2/npu1 7.2/npu4",
      "FAULT=exec=1:lost;exec=3:state6;exec=4:fw=0x1000004;result=5:flipbit;result=6:skip;"
      "ioctl=CREATE_HWCTX:4:ENOMEM", NULL },
    { "call_faults", case_call_faults, "7.2/npu1",
      "FAULT=mmap=2:ENOMEM;wait=1:EIO;exec=1:slow=50;ioctl=GET_BO_INFO:3+:EINVAL", NO_LEAKS },
    { "gone", case_gone, "6.18/npu1 7.2/npu1", "FAULT=gone=40", NULL },
    { "open_fault", case_open_fault, "7.2/npu1", "FAULT=open=EACCES", NULL },
    { "suspend", case_suspend, "6.19/npu1 7.2/npu1", "FAULT=suspend=1|TIMESCALE=0.01", CLEAN },
    { "pdi_closed", case_pdi_closed, "7.2/npu1", "TIMESCALE=0.1", "sim: 1 violations" },
    { "contexts", case_contexts, EVERY " 7.1/npu4", "", NO_LEAKS },
    { "partition", case_partition, "6.18/npu1 6.17/npu1 7.2/npu1 6.18/npu4 7.2/npu4", "",
      NO_LEAKS },
    { "dup", case_dup, "6.18/npu1 6.19/npu1 7.0/npu1 7.2/npu1 legacy/npu1", "", CLEAN },
    { "fork", case_fork, "6.19/npu1 7.2/npu1", "", CLEAN },
    { "info", case_info, EVERY " 6.17/npu1 6.19/npu1", "", NO_LEAKS },
    { "files", case_files, EVERY, "MEMLOCK=65536", CLEAN },
    { "libdrm", case_libdrm, EVERY " 6.19/npu1", "", NO_LEAKS },
    { "leaks", case_leaks, "7.2/npu1", "",
      "sim: leaks: bos=7 mappings=5 contexts=1 syncobjs=1" },
    { "strict", case_unlisted, "7.2/npu1", "STRICT=1", "abort" },
    { "xclbin", case_xclbin, "7.2/npu1", "", NULL },
    { "nothing", case_nothing, "7.2/npu1", "", NULL },
};

static char program[1024], library[1100], profile[32], log_name[1100];
static const test_case *current;

/* In the child: the environment of one run. */
static void set_environment(void)
{
    char text[512], name[64], *save = NULL, *slash;
    snprintf(text, sizeof text, "%s", profile);
    slash = strchr(text, '/');
    *slash = '\0';
    setenv("SIM_AMDXDNA_KERNEL", text, 1);
    setenv("SIM_AMDXDNA_DEVICE", slash + 1, 1);
    setenv("SIM_AMDXDNA_LOG", log_name, 1);
    setenv("LD_PRELOAD", library, 1);
    /* the simulator stands in front of the sanitizer's own interceptors on purpose */
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0", 1);
    snprintf(text, sizeof text, "%s", current->settings);
    for (char *item = strtok_r(text, "|", &save); item != NULL; item = strtok_r(NULL, "|", &save)) {
        char *equals = strchr(item, '=');
        *equals = '\0';
        snprintf(name, sizeof name, "SIM_AMDXDNA_%s", item);
        setenv(name, equals + 1, 1);
    }
}

static int log_has(const char *line)
{
    char text[700];
    FILE *file = fopen(log_name, "r");
    int found = 0;
    while (file != NULL && !found && fgets(text, sizeof text, file) != NULL) {
        text[strcspn(text, "\n")] = '\0';
        found = strcmp(text, line) == 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

/* Runs the current case. Returns what waitpid() says. */
static int start(void)
{
    int status = 0;
    pid_t child;
    unlink(log_name);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        set_environment();
        execl(program, program, current->name, (char *)NULL);
        _exit(127);
    }
    waitpid(child, &status, 0);
    return status;
}

static void one_run(void)
{
    int status, aborts = current->log != NULL && strcmp(current->log, "abort") == 0, tries = 50;
    snprintf(log_name, sizeof log_name, "%s.%d.log", program, (int)getpid());
    do {
        status = start();
    } while (WIFEXITED(status) && WEXITSTATUS(status) == LATE && --tries > 0);
    if (aborts) {
        T_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "no abort");
    } else {
        T_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x%s", (unsigned)status,
                tries > 0 ? "" : ", never in time");
        T_CHECK(current->log == NULL || log_has(current->log), "the report lacks \"%s\"",
                current->log);
    }
    unlink(log_name);
}

/* Where the program is, and the simulator. */
static int find_library(void)
{
    const char *build = getenv("WNPU_BUILD");
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash;
    if (n <= 0) {
        return -1;
    }
    program[n] = '\0';
    if (build != NULL) {
        char path[1024], *real;
        snprintf(path, sizeof path, "%s/libsim_amdxdna.so", build);
        real = realpath(path, NULL);
        if (real != NULL) {
            snprintf(library, sizeof library, "%s", real);
            free(real);
            return 0;
        }
    }
    snprintf(library, sizeof library, "%s", program);
    slash = strrchr(library, '/');
    for (int up = 0; up < 2 && slash != NULL; up++) {
        snprintf(slash, sizeof library - (size_t)(slash - library), "/libsim_amdxdna.so");
        if (access(library, R_OK) == 0) {
            return 0;
        }
        *slash = '\0';
        slash = strrchr(library, '/');
    }
    return -1;
}

static void case_missing(void)
{
    t_skip("libsim_amdxdna.so is not built");
}

static int run_all(const char *only)
{
    char name[128], list[256], *save;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        current = &cases[i];
        if (only != NULL && strcmp(only, current->name) != 0) {
            continue;
        }
        snprintf(list, sizeof list, "%s", current->profiles);
        for (char *p = strtok_r(list, " ", &save); p != NULL; p = strtok_r(NULL, " ", &save)) {
            snprintf(profile, sizeof profile, "%s", p);
            snprintf(name, sizeof name, "%s on %s", current->name, profile);
            t_run(name, one_run);
        }
    }
    return t_end();
}

static int run_one(const char *name)
{
    const char *version = getenv("SIM_AMDXDNA_KERNEL"), *device = getenv("SIM_AMDXDNA_DEVICE");
    unsigned major = 6, minor = 18;
    legacy = strcmp(version, "legacy") == 0;
    sscanf(version, "%u.%u", &major, &minor);
    kernel = (int)(major * 100 + minor);
    npu4 = strcmp(device, "npu4") == 0;
    iova = getenv("SIM_AMDXDNA_ADDRESS") != NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, name) == 0) {
            cases[i].run();
            return t_bad > 0;
        }
    }
    return 2;
}

/* test_sim            all cases
 * test_sim --only C   one case, all its profiles
 * test_sim C          the case itself; needs the simulator preloaded */
int main(int argc, char **argv)
{
    if (argc == 2) {
        return run_one(argv[1]);
    }
    if (getenv("WNPU_EMULATOR") != NULL) { /* nothing can be preloaded there */
        t_run("xclbin", case_xclbin);
        return t_end();
    }
    if (find_library() != 0) {
        t_run("the simulated NPU", case_missing);
        return t_end();
    }
    return run_all(argc == 3 ? argv[2] : NULL);
}
