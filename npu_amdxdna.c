/*
 * npu_amdxdna.c - the AMD XDNA accelerator of whisper_npu.
 *
 * Finds the NPU, loads kernels of its own or a pack of others, keeps weights in device memory,
 * submits matrix products through the amdxdna driver's ioctls, recovers from failures and
 * diagnoses them. It needs whisper_npu.h, libc and libdrm (cc -c npu_amdxdna.c, link -ldrm) and
 * nothing from whisper_npu.c, which uses it only through the wnpu_accel that it fills in.
 *
 * Written from the driver's published interface (Linux 6.16 to 7.3 and the out-of-tree driver; the
 * numbers are those of the kernel's amdxdna_accel.h). Not yet run on hardware.
 *
 *   1. xa_  the driver's interface
 *   2. xu_  errors, time, memory
 *   3. xh_  SHA-256
 *   4. xt_  instruction streams
 *   5. xc_  containers
 *   6. xp_  kernel packs
 *   7. xo_  the built-in kernels
 *   8. xd_  the device
 *   9. xb_  buffers
 *  10. xq_  contexts and commands
 *  11. xk_  kernels, weights, operands
 *  12. xj_  jobs
 *  13. xv_  self-test
 *  14. xm_  reopening contexts
 *  15. xs_  device states and the wnpu_accel interface
 *  16. xr_  diagnosis
 */
/* ======================================================================
 *  1. xa_  the driver's interface
 *
 *  Owns      the structures, numbers and limits of the kernel's interface.
 *  Assumes   natural alignment of 32 and 64-bit members; the checks below
 *            prove sizes and offsets at compile time.
 *  Ensures   independence of the installed kernel headers, which may be
 *            older than the running kernel.
 * ====================================================================== */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* madvise, MAP_ANONYMOUS, O_CLOEXEC under -std=c99 */
#endif
#if !defined(_FILE_OFFSET_BITS)
#define _FILE_OFFSET_BITS 64 /* mmap offsets of DRM pass 4 GiB on 32-bit machines too */
#endif

#include "whisper_npu.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifndef WNPU_NO_THREADS
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#endif
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic" /* drm_mode.h has anonymous unions */
#include <drm.h>
#include <xf86drm.h>
#pragma GCC diagnostic pop

#define XA_CHECK(name, condition) typedef char xa_check_##name[(condition) ? 1 : -1]
#define XA_SIZE(type, bytes) XA_CHECK(type, sizeof(struct type) == (bytes))
#define XA_AT(type, field, offset) \
    XA_CHECK(type##_##field, offsetof(struct type, field) == (offset))

struct xa_create_hwctx {
    uint64_t ext, ext_flags, qos_p;
    uint32_t umq_bo, log_buf_bo, max_opc, num_tiles, mem_size, umq_doorbell, handle, syncobj;
};
XA_SIZE(xa_create_hwctx, 56);
XA_AT(xa_create_hwctx, ext, 0);
XA_AT(xa_create_hwctx, ext_flags, 8);
XA_AT(xa_create_hwctx, qos_p, 16);
XA_AT(xa_create_hwctx, umq_bo, 24);
XA_AT(xa_create_hwctx, log_buf_bo, 28);
XA_AT(xa_create_hwctx, max_opc, 32);
XA_AT(xa_create_hwctx, num_tiles, 36);
XA_AT(xa_create_hwctx, mem_size, 40);
XA_AT(xa_create_hwctx, umq_doorbell, 44);
XA_AT(xa_create_hwctx, handle, 48);
XA_AT(xa_create_hwctx, syncobj, 52);

/* 24 bytes on mainline; the out-of-tree driver reads 32, and start_col 0xff means "any column". */
struct xa_qos {
    uint32_t gops, fps, dma_bandwidth, latency, frame_exec_time, priority, start_col, reserved;
};
XA_SIZE(xa_qos, 32);
XA_AT(xa_qos, gops, 0);
XA_AT(xa_qos, fps, 4);
XA_AT(xa_qos, dma_bandwidth, 8);
XA_AT(xa_qos, latency, 12);
XA_AT(xa_qos, frame_exec_time, 16);
XA_AT(xa_qos, priority, 20);
XA_AT(xa_qos, start_col, 24);
XA_AT(xa_qos, reserved, 28);

struct xa_destroy_hwctx { uint32_t handle, pad; };
XA_SIZE(xa_destroy_hwctx, 8);
XA_AT(xa_destroy_hwctx, handle, 0);
XA_AT(xa_destroy_hwctx, pad, 4);

struct xa_config_hwctx {
    uint32_t handle, param_type;
    uint64_t param_val;
    uint32_t param_val_size, pad;
};
XA_SIZE(xa_config_hwctx, 24);
XA_AT(xa_config_hwctx, handle, 0);
XA_AT(xa_config_hwctx, param_type, 4);
XA_AT(xa_config_hwctx, param_val, 8);
XA_AT(xa_config_hwctx, param_val_size, 16);
XA_AT(xa_config_hwctx, pad, 20);

/* ---- contexts and commands ---- */

/* CONFIG_CU with exactly one compute unit, which is all that our contexts use. */
struct xa_config_cu {
    uint16_t num_cus, pad[3];
    uint32_t cu_bo;
    uint8_t cu_func, cu_pad[3];
};
XA_SIZE(xa_config_cu, 16);
XA_AT(xa_config_cu, num_cus, 0);
XA_AT(xa_config_cu, pad, 2);
XA_AT(xa_config_cu, cu_bo, 8);
XA_AT(xa_config_cu, cu_func, 12);
XA_AT(xa_config_cu, cu_pad, 13);

struct xa_create_bo {
    uint64_t flags, vaddr, size;
    uint32_t type, handle;
};
XA_SIZE(xa_create_bo, 32);
XA_AT(xa_create_bo, flags, 0);
XA_AT(xa_create_bo, vaddr, 8);
XA_AT(xa_create_bo, size, 16);
XA_AT(xa_create_bo, type, 24);
XA_AT(xa_create_bo, handle, 28);

struct xa_get_bo_info {
    uint64_t ext, ext_flags;
    uint32_t handle, pad;
    uint64_t map_offset, vaddr, xdna_addr;
};
XA_SIZE(xa_get_bo_info, 48);
XA_AT(xa_get_bo_info, ext, 0);
XA_AT(xa_get_bo_info, ext_flags, 8);
XA_AT(xa_get_bo_info, handle, 16);
XA_AT(xa_get_bo_info, pad, 20);
XA_AT(xa_get_bo_info, map_offset, 24);
XA_AT(xa_get_bo_info, vaddr, 32);
XA_AT(xa_get_bo_info, xdna_addr, 40);

struct xa_sync_bo {
    uint32_t handle, direction;
    uint64_t offset, size;
};
XA_SIZE(xa_sync_bo, 24);
XA_AT(xa_sync_bo, handle, 0);
XA_AT(xa_sync_bo, direction, 4);
XA_AT(xa_sync_bo, offset, 8);
XA_AT(xa_sync_bo, size, 16);

struct xa_exec_cmd {
    uint64_t ext, ext_flags;
    uint32_t hwctx, type;
    uint64_t cmd_handles, args;
    uint32_t cmd_count, arg_count;
    uint64_t seq;
};
XA_SIZE(xa_exec_cmd, 56);
XA_AT(xa_exec_cmd, ext, 0);
XA_AT(xa_exec_cmd, ext_flags, 8);
XA_AT(xa_exec_cmd, hwctx, 16);
XA_AT(xa_exec_cmd, type, 20);
XA_AT(xa_exec_cmd, cmd_handles, 24);
XA_AT(xa_exec_cmd, args, 32);
XA_AT(xa_exec_cmd, cmd_count, 40);
XA_AT(xa_exec_cmd, arg_count, 44);
XA_AT(xa_exec_cmd, seq, 48);

struct xa_get_info {
    uint32_t param, buffer_size;
    uint64_t buffer;
};
XA_SIZE(xa_get_info, 16);
XA_AT(xa_get_info, param, 0);
XA_AT(xa_get_info, buffer_size, 4);
XA_AT(xa_get_info, buffer, 8);

struct xa_aie_status {
    uint64_t buffer;
    uint32_t buffer_size, cols_filled;
};
XA_SIZE(xa_aie_status, 16);
XA_AT(xa_aie_status, buffer, 0);
XA_AT(xa_aie_status, buffer_size, 8);
XA_AT(xa_aie_status, cols_filled, 12);

struct xa_clock {
    char name[16];
    uint32_t mhz, pad;
};
struct xa_clocks { struct xa_clock mp_npu, h; };
XA_SIZE(xa_clocks, 48);
XA_AT(xa_clocks, h, 24);

struct xa_wait_cmd {
    uint32_t hwctx, timeout_ms;
    uint64_t seq;
};
XA_SIZE(xa_wait_cmd, 16);
XA_AT(xa_wait_cmd, hwctx, 0);
XA_AT(xa_wait_cmd, timeout_ms, 4);
XA_AT(xa_wait_cmd, seq, 8);

struct xa_tile_metadata {
    uint16_t row_count, row_start, dma_channels, locks, event_regs, pad[3];
};
struct xa_metadata {
    uint32_t col_size;
    uint16_t cols, rows;
    uint32_t version_major, version_minor;
    struct xa_tile_metadata core, mem, shim;
};
XA_SIZE(xa_tile_metadata, 16);
XA_AT(xa_tile_metadata, row_count, 0);
XA_AT(xa_tile_metadata, row_start, 2);
XA_AT(xa_tile_metadata, dma_channels, 4);
XA_AT(xa_tile_metadata, locks, 6);
XA_AT(xa_tile_metadata, event_regs, 8);
XA_AT(xa_tile_metadata, pad, 10);
XA_SIZE(xa_metadata, 64);
XA_AT(xa_metadata, col_size, 0);
XA_AT(xa_metadata, cols, 4);
XA_AT(xa_metadata, rows, 6);
XA_AT(xa_metadata, version_major, 8);
XA_AT(xa_metadata, version_minor, 12);
XA_AT(xa_metadata, core, 16);
XA_AT(xa_metadata, mem, 32);
XA_AT(xa_metadata, shim, 48);

struct xa_firmware { uint32_t major, minor, patch, build; };
XA_SIZE(xa_firmware, 16);
XA_AT(xa_firmware, major, 0);
XA_AT(xa_firmware, minor, 4);
XA_AT(xa_firmware, patch, 8);
XA_AT(xa_firmware, build, 12);

/* drm.h's own structure, whose layout is stable kernel ABI. */
XA_CHECK(timeline_wait, sizeof(struct drm_syncobj_timeline_wait) >= 40);
XA_CHECK(gem_close, sizeof(struct drm_gem_close) == 8);
XA_CHECK(syncobj_destroy, sizeof(struct drm_syncobj_destroy) == 8);

#define XA_CREATE_HWCTX 0xc0386440ul
#define XA_DESTROY_HWCTX 0xc0086441ul
#define XA_CONFIG_HWCTX 0xc0186442ul
#define XA_CREATE_BO 0xc0206443ul
#define XA_GET_BO_INFO 0xc0306444ul
#define XA_SYNC_BO 0xc0186445ul
#define XA_EXEC_CMD 0xc0386446ul
#define XA_GET_INFO 0xc0106447ul
#define XA_WAIT_CMD 0x40106449ul
XA_CHECK(nr_hwctx, XA_CREATE_HWCTX == DRM_IOWR(0x40, struct xa_create_hwctx));
XA_CHECK(nr_destroy, XA_DESTROY_HWCTX == DRM_IOWR(0x41, struct xa_destroy_hwctx));
XA_CHECK(nr_config, XA_CONFIG_HWCTX == DRM_IOWR(0x42, struct xa_config_hwctx));
XA_CHECK(nr_create_bo, XA_CREATE_BO == DRM_IOWR(0x43, struct xa_create_bo));
XA_CHECK(nr_bo_info, XA_GET_BO_INFO == DRM_IOWR(0x44, struct xa_get_bo_info));
XA_CHECK(nr_sync, XA_SYNC_BO == DRM_IOWR(0x45, struct xa_sync_bo));
XA_CHECK(nr_exec, XA_EXEC_CMD == DRM_IOWR(0x46, struct xa_exec_cmd));
XA_CHECK(nr_info, XA_GET_INFO == DRM_IOWR(0x47, struct xa_get_info));
XA_CHECK(nr_wait, XA_WAIT_CMD == DRM_IOW(0x49, struct xa_wait_cmd));

enum { XA_BO_SHMEM = 1, XA_BO_HEAP = 2, XA_BO_DEV = 3, XA_BO_CMD = 4 };
enum { XA_INFO_AIE_STATUS = 0, XA_INFO_METADATA = 1, XA_INFO_CLOCKS = 3,
       XA_INFO_FIRMWARE = 8 };
enum { XA_OP_START_CU = 0, XA_OP_CHAIN = 19 };
enum { XA_STATE_NEW = 1, XA_STATE_COMPLETED = 4, XA_STATE_ERROR = 5, XA_STATE_TIMEOUT = 8 };

#define XA_NONE UINT64_MAX                 /* "no address" in GET_BO_INFO */
#define XA_HEAP_BASE UINT64_C(0x04000000)  /* device address of the heap, always */
#define XA_HEAP_BYTES ((size_t)64 << 20)   /* the one size that every driver accepts */
#define XA_DEV_ALIGN ((size_t)32 << 10)    /* DEV buffers start on 32 KiB */
#define XA_CMD_BYTES ((size_t)4096)        /* Linux 6.18 and older read past shorter buffers */
#define XA_IN_FLIGHT 4u                    /* commands of a context; a fifth submission blocks */
#define XA_CHAIN_MAX 24u                   /* the limit of AMD's own runtime (XRT) */
#define XA_LIST_BYTES 4096u                /* all slots of a chain together */
#define XA_NODES 256                       /* minors of the accel class */
#define XA_DRIVER "amdxdna_accel_driver"

/* CLFLUSH needs x86 intrinsics; other targets flush through the driver. */
#if defined(__x86_64__) || defined(__i386__)
#define XA_X86 1
#include <cpuid.h>
#include <immintrin.h>
#endif

/* ======================================================================
 *  2. xu_  errors, time, memory
 *
 *  Owns      small helpers that every section uses.
 *  Assumes   nothing.
 *  Ensures   unaligned little-endian reads, overflow-free range checks.
 *  Costs     nothing measurable.
 * ====================================================================== */
__attribute__((format(printf, 3, 4)))
static int xu_fail(wnpu_error *error, int code, const char *format, ...)
{
    if (error != NULL) {
        va_list args;
        va_start(args, format);
        error->code = code;
        (void)vsnprintf(error->message, sizeof error->message, format, args);
        va_end(args);
    }
    return code;
}

__attribute__((format(printf, 3, 4)))
static void xu_log(const wnpu_amdxdna_config *config, wnpu_log_level level,
                   const char *format, ...)
{
    if (config->log != NULL) {
        char text[512];
        va_list args;
        va_start(args, format);
        (void)vsnprintf(text, sizeof text, format, args);
        va_end(args);
        config->log(config->log_user, level, text);
    }
}

/* snprintf into a field, truncating what does not fit. */
__attribute__((format(printf, 3, 4)))
static void xu_print(char *field, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(field, size, format, args);
    va_end(args);
}

static int64_t xu_now_ns(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0) {
        return 0;
    }
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t xu_add_ns(int64_t a, int64_t b)
{
    return b > 0 && a > INT64_MAX - b ? INT64_MAX : a + b;
}

/* Sleeps until a time of CLOCK_MONOTONIC; signals do not shorten it. */
static void xu_sleep_until(int64_t ns)
{
    struct timespec t;
    t.tv_sec = (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

static void *xu_malloc(void *user, size_t size, size_t alignment)
{
    void *memory = NULL;
    (void)user;
    return posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment,
                          size) == 0 ? memory : NULL;
}

static void xu_release(void *user, void *memory, size_t size)
{
    (void)user;
    (void)size;
    free(memory);
}

/* Cleared memory, or NULL. */
static void *xu_alloc(const wnpu_allocator *allocator, size_t size)
{
    void *memory = size == 0 ? NULL : allocator->alloc(allocator->user, size, 64);
    return memory == NULL ? NULL : memset(memory, 0, size);
}

static void xu_free(const wnpu_allocator *allocator, void *memory, size_t size)
{
    if (memory != NULL) {
        allocator->release(allocator->user, memory, size);
    }
}

static uint16_t xu_le16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (unsigned)p[1] << 8);
}

static uint32_t xu_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t xu_le64(const uint8_t *p)
{
    return (uint64_t)xu_le32(p) | (uint64_t)xu_le32(p + 4) << 32;
}

/* 1 when [offset, offset + bytes) lies inside [0, size). */
static int xu_inside(uint64_t offset, uint64_t bytes, uint64_t size)
{
    return offset <= size && bytes <= size - offset;
}

static uint64_t xu_round_up(uint64_t bytes, uint64_t step)
{
    return (bytes + step - 1) / step * step;
}

/* With a job deadline of 1 s this delays the first probe past the driver's watchdog, which aborts
 * a hung command after 2.03 s (Linux 7.2 and later). */
#define XU_COOLDOWN_MS 1250u

/* Accepted values of struct_size, as in whisper_npu.c: up to our size plus this many bytes. Other
 * sizes are errors of the caller, and the structure is neither read nor written. */
#define XU_NEWER 256u

static int xu_is_size(uint32_t theirs, size_t ours)
{
    return theirs >= sizeof(uint32_t) && theirs % sizeof(uint32_t) == 0 &&
           theirs <= ours + XU_NEWER;
}

/* Fills a structure of the caller's size; bytes beyond ours become 0. */
static int xu_export(void *theirs, uint32_t size, const void *ours, size_t our_size)
{
    if (!xu_is_size(size, our_size)) {
        return WNPU_E_ARGUMENT;
    }
    memset(theirs, 0, size);
    memcpy(theirs, ours, size < our_size ? size : our_size);
    memcpy(theirs, &size, sizeof size);
    return WNPU_OK;
}

/* Merges the caller's configuration with the defaults. Fields beyond our version must be zero. */
static int xu_merge_config(wnpu_amdxdna_config *ours, const wnpu_amdxdna_config *theirs,
                           wnpu_allocator *allocator, wnpu_error *error)
{
    uint32_t i, size = theirs == NULL ? 0 : theirs->struct_size;
    memset(ours, 0, sizeof *ours);
    ours->struct_size = (uint32_t)sizeof *ours;
    if (theirs != NULL) {
        if (!xu_is_size(size, sizeof *ours)) {
            return xu_fail(error, WNPU_E_VERSION, "wnpu_amdxdna_config has no struct_size; fill it "
                           "with wnpu_amdxdna_config_init()");
        }
        for (i = (uint32_t)sizeof *ours; i < size; i++) {
            if (((const unsigned char *)theirs)[i] != 0) {
                return xu_fail(error, WNPU_E_VERSION, "wnpu_amdxdna_config sets a field that is "
                               "newer than this library");
            }
        }
        memcpy(ours, theirs, size < sizeof *ours ? size : sizeof *ours);
    }
    if (ours->flush_mode < 0 || ours->flush_mode > WNPU_AMDXDNA_FLUSH_DRIVER ||
        ours->max_chain > XA_CHAIN_MAX || ours->test_ms > 1500 || ours->reserved != 0 ||
        ours->reserved2 != 0 || ours->cooldown_ms > 3600000u) {
        return xu_fail(error, WNPU_E_ARGUMENT, "a field of wnpu_amdxdna_config is out of range");
    }
    ours->test_ms = ours->test_ms == 0 ? 1000 : ours->test_ms;
    ours->cooldown_ms = ours->cooldown_ms == 0 ? XU_COOLDOWN_MS : ours->cooldown_ms;
    ours->root = ours->root == NULL ? "" : ours->root;
    allocator->alloc = xu_malloc;
    allocator->release = xu_release;
    allocator->user = NULL;
    if (ours->allocator != NULL) {
        *allocator = *ours->allocator;
    }
    return WNPU_OK;
}

WNPU_API void wnpu_amdxdna_config_init(wnpu_amdxdna_config *config, size_t struct_size)
{
    wnpu_amdxdna_config c;
    uint32_t none = 0;
    memset(&c, 0, sizeof c); /* every default is 0 or NULL */
    if (config != NULL && struct_size >= sizeof none &&
        xu_export(config, struct_size <= UINT32_MAX ? (uint32_t)struct_size : 0, &c, sizeof c) !=
        WNPU_OK) {
        memcpy(config, &none, sizeof none);
    }
}
/* ======================================================================
 *  3. xh_  SHA-256
 *
 *  Owns      the digest that a manifest states for each file (FIPS 180-4).
 *  Assumes   the whole message in memory.
 *  Ensures   messages of any length, one call.
 *  Costs     about 5 ns a byte; packs are read once.
 * ====================================================================== */
/* First 32 bits of the fractional products of the cube roots of the first 64 primes. */
static const uint32_t xh_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2
};

static uint32_t xh_rotate(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static void xh_block(uint32_t h[8], const uint8_t *p)
{
    uint32_t w[64], s[8], t1, t2;
    int i;
    for (i = 0; i < 16; i++) {
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    }
    for (; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (xh_rotate(a, 7) ^ xh_rotate(a, 18) ^ a >> 3) + w[i - 7] +
               (xh_rotate(b, 17) ^ xh_rotate(b, 19) ^ b >> 10);
    }
    memcpy(s, h, sizeof s);
    for (i = 0; i < 64; i++) {
        t1 = s[7] + (xh_rotate(s[4], 6) ^ xh_rotate(s[4], 11) ^ xh_rotate(s[4], 25)) +
             ((s[4] & s[5]) ^ (~s[4] & s[6])) + xh_k[i] + w[i];
        t2 = (xh_rotate(s[0], 2) ^ xh_rotate(s[0], 13) ^ xh_rotate(s[0], 22)) +
             ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof s[0]);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (i = 0; i < 8; i++) {
        h[i] += s[i];
    }
}

static void xh_sha256(uint8_t digest[32], const uint8_t *data, size_t size)
{
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t tail[128] = {0};
    size_t i, whole = size / 64 * 64, rest = size - whole, last = rest < 56 ? 64 : 128;
    for (i = 0; i < whole; i += 64) {
        xh_block(h, data + i);
    }
    if (rest > 0) {
        memcpy(tail, data + whole, rest);
    }
    tail[rest] = 0x80;
    for (i = 0; i < 8; i++) {
        tail[last - 1 - i] = (uint8_t)((uint64_t)size * 8 >> (8 * i));
    }
    for (i = 0; i < last; i += 64) {
        xh_block(h, tail + i);
    }
    for (i = 0; i < 32; i++) {
        digest[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
    }
}
/* ======================================================================
 *  4. xt_  instruction streams
 *
 *  Owns      the validation of TXN binaries, versions 0.1 and 1.0 (formats:
 *            aie-rt xaie_txn.h, mlir-aie TxnEncoding.h; registers: the
 *            AIE2 register database of mlir-aie).
 *  Assumes   nothing: the bytes are untrusted input.
 *  Ensures   an accepted stream writes only inside its partition, moves
 *            host memory only inside the kernel's buffers and in their
 *            direction, and ends only when its last write to host memory
 *            has completed. With a shared address space (SVA) a stream
 *            could otherwise write anywhere in the process.
 *  Costs     one pass, 6 KiB of stack.
 *
 *  For the second guarantee the check simulates the shim DMAs: it keeps the
 *  buffer descriptors (BDs) as the stream writes them, records which
 *  argument an address patch refers to, and computes the address range of
 *  every BD that is pushed to a task queue. Operations whose effect cannot
 *  be followed that way (loading code, updating from scratch memory) are
 *  refused.
 * ====================================================================== */
#define XT_COLUMNS 8u
#define XT_BDS 16u
#define XT_ARGS 5u               /* buffer arguments in mlir-aie's usual register map */
#define XT_BYTES_MAX ((size_t)16 << 20)
#define XT_BD_BASE 0x1d000u
#define XT_BD_END 0x1d200u

enum { XT_IN = 1, XT_OUT = 2 };

/* What a stream is checked against. */
typedef struct xt_limits {
    unsigned generation;         /* 3: NPU1; 4: NPU4 to 6 */
    unsigned columns;            /* of the partition */
    unsigned n_args;
    uint64_t bytes[XT_ARGS];
    unsigned direction[XT_ARGS]; /* XT_IN, XT_OUT or both */
} xt_limits;

typedef struct xt_walk {
    const xt_limits *limits;
    const uint8_t *at;           /* the current operation */
    uint32_t left;               /* bytes from there to the end */
    uint32_t op;                 /* its index, for messages */
    int optimised;               /* version 1.0 */
    uint32_t bd[XT_COLUMNS][XT_BDS][8];
    uint8_t patched[XT_COLUMNS][XT_BDS]; /* argument + 1; 0: an address that was not patched in */
    uint64_t offset[XT_COLUMNS][XT_BDS];
    uint32_t issued[XT_COLUMNS][4];      /* completion tokens of S2MM 0, 1, MM2S 0, 1 */
    uint32_t awaited[XT_COLUMNS][4];
    uint8_t without_token[XT_COLUMNS][4]; /* the queue's last task issues no token */
    unsigned touched;            /* bit i: a task transfers argument i */
    wnpu_error *error;
} xt_walk;

__attribute__((format(printf, 2, 3)))
static int xt_refuse(xt_walk *walk, const char *format, ...)
{
    char what[160];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return xu_fail(walk->error, WNPU_E_MODEL, "instruction stream refused at operation %lu: %s",
                   (unsigned long)walk->op, what);
}

static uint32_t xt_word(const xt_walk *walk, unsigned index)
{
    return xu_le32(walk->at + 4 * (size_t)index);
}

/* Extent of a descriptor over all iterations: words from the lowest address to the highest. */
static uint64_t xt_extent(const uint32_t bd[8])
{
    uint64_t length = bd[0], n0, n1, n2, rest;
    uint64_t wrap0 = bd[3] >> 20 & 0x3ff, wrap1 = bd[4] >> 20 & 0x3ff;
    uint64_t step0 = (bd[3] & 0xfffff) + 1u, step1 = (bd[4] & 0xfffff) + 1u;
    uint64_t step2 = (bd[5] & 0xfffff) + 1u, step3 = (bd[6] & 0xfffff) + 1u;
    uint64_t n3 = (bd[6] >> 20 & 0x3f) + 1u;
    n0 = wrap0 == 0 || wrap0 > length ? length : wrap0;
    rest = (length + n0 - 1) / n0;
    n1 = wrap1 == 0 || wrap1 > rest ? rest : wrap1;
    n2 = (rest + n1 - 1) / n1;
    return (n0 - 1) * step0 + (n1 - 1) * step1 + (n2 - 1) * step2 + (n3 - 1) * step3 + 1;
}

/* Checks a descriptor that a queue of the given direction is about to run. */
static int xt_descriptor(xt_walk *walk, unsigned column, unsigned id, unsigned direction)
{
    const uint32_t *bd = walk->bd[column][id];
    unsigned arg = walk->patched[column][id];
    if ((bd[7] >> 25 & 1) == 0 || bd[0] == 0) {
        return xt_refuse(walk, "column %u starts descriptor %u, which is not set up", column, id);
    }
    if (arg == 0) {
        return xt_refuse(walk, "column %u starts descriptor %u, whose address is no argument",
                         column, id);
    }
    arg--;
    if ((walk->limits->direction[arg] & direction) == 0) {
        return xt_refuse(walk, "argument %u is %s against its declared direction", arg,
                         direction == XT_OUT ? "written" : "read");
    }
    if (!xu_inside(walk->offset[column][id], xt_extent(bd) * 4, walk->limits->bytes[arg])) {
        return xt_refuse(walk, "a transfer leaves argument %u: offset %llu, %llu bytes, of %llu",
                         arg, (unsigned long long)walk->offset[column][id],
                         (unsigned long long)(xt_extent(bd) * 4),
                         (unsigned long long)walk->limits->bytes[arg]);
    }
    walk->touched |= 1u << arg;
    return WNPU_OK;
}

/* A write to a task queue: checks the descriptor that it starts and those chained to it. */
static int xt_start_task(xt_walk *walk, unsigned column, unsigned queue, uint32_t value)
{
    unsigned id = value & 0xf, seen = 0, direction = queue < 2 ? XT_OUT : XT_IN;
    for (;;) {
        int code;
        if ((seen >> id & 1) != 0) {
            return xt_refuse(walk, "column %u runs descriptors in a cycle", column);
        }
        seen |= 1u << id;
        code = xt_descriptor(walk, column, id, direction);
        if (code != WNPU_OK) {
            return code;
        }
        if ((walk->bd[column][id][7] >> 26 & 1) == 0) {
            break;
        }
        id = walk->bd[column][id][7] >> 27 & 0xf;
    }
    walk->without_token[column][queue] = (uint8_t)((value >> 31) == 0);
    walk->issued[column][queue] += value >> 31;
    return WNPU_OK;
}

/* ---- operations ---- */

/* A register write; mask selects the bits. Registers that cannot move host memory are only checked
 * to lie inside the partition. */
static int xt_write(xt_walk *walk, uint32_t address, uint32_t value, uint32_t mask)
{
    static const uint32_t queues[4] = {0x1d204, 0x1d20c, 0x1d214, 0x1d21c};
    unsigned column = address >> 25, row = address >> 20 & 0x1f, queue;
    uint32_t reg = address & 0xfffff;
    if (column >= walk->limits->columns || row >= 6) {
        return xt_refuse(walk, "writes to column %u, row %u; the partition has %u columns, 6 rows",
                         column, row, walk->limits->columns);
    }
    if ((address & 3) != 0) {
        return xt_refuse(walk, "writes to the unaligned address 0x%lx", (unsigned long)address);
    }
    if (row != 0) {
        return WNPU_OK;
    }
    if (reg >= XT_BD_BASE && reg < XT_BD_END) {
        unsigned id = (reg - XT_BD_BASE) / 32, word = reg / 4 % 8;
        uint32_t *old = &walk->bd[column][id][word];
        *old = (*old & ~mask) | (value & mask);
        if (word == 1 || word == 2) {
            walk->patched[column][id] = 0;
        }
        return WNPU_OK;
    }
    for (queue = 0; queue < 4; queue++) {
        if (reg == queues[queue]) {
            return mask == UINT32_MAX ? xt_start_task(walk, column, queue, value)
                                      : xt_refuse(walk, "writes a task queue under a mask");
        }
    }
    return WNPU_OK;
}

static int xt_block_write(xt_walk *walk, uint32_t address, const uint8_t *data, uint32_t bytes)
{
    uint32_t i;
    if (!xu_inside(address & 0xfffff, bytes, 0x100000)) {
        return xt_refuse(walk, "a block write runs out of its tile");
    }
    for (i = 0; i < bytes; i += 4) {
        int code = xt_write(walk, address + i, xu_le32(data + i), UINT32_MAX);
        if (code != WNPU_OK) {
            return code;
        }
    }
    return WNPU_OK;
}

/* Address patch: the firmware stores address of argument + offset in words 1 and 2 of a BD. */
static int xt_patch(xt_walk *walk, uint32_t address, uint64_t arg, uint64_t offset)
{
    unsigned column = address >> 25, row = address >> 20 & 0x1f, id;
    uint32_t reg = address & 0xfffff;
    if (column >= walk->limits->columns || row != 0 || reg < XT_BD_BASE || reg >= XT_BD_END ||
        reg % 32 != 4) {
        return xt_refuse(walk, "patches 0x%lx, which is no BD address word of the partition",
                         (unsigned long)address);
    }
    if (arg >= walk->limits->n_args) {
        return xt_refuse(walk, "patches in argument %llu; the kernel has %u buffers",
                         (unsigned long long)arg, walk->limits->n_args);
    }
    if (offset >= walk->limits->bytes[arg] || offset % 4 != 0) {
        return xt_refuse(walk, "patches in argument %llu at byte %llu of %llu",
                         (unsigned long long)arg, (unsigned long long)offset,
                         (unsigned long long)walk->limits->bytes[arg]);
    }
    id = (reg - XT_BD_BASE) / 32;
    walk->patched[column][id] = (uint8_t)(arg + 1);
    walk->offset[column][id] = offset;
    return WNPU_OK;
}

/* Waits for one token of a channel in each of some columns. */
static int xt_wait_token(xt_walk *walk, uint32_t where, uint32_t what)
{
    unsigned direction = where & 0xff, row = where >> 8 & 0xff, column = where >> 16 & 0xff;
    unsigned rows = what >> 8 & 0xff, columns = what >> 16 & 0xff, channel = what >> 24;
    unsigned queue = direction * 2 + channel;
    if (direction > 1 || channel > 1 || row != 0 || rows != 1 || columns == 0 ||
        column + columns > walk->limits->columns) {
        return xt_refuse(walk, "waits for tokens of something other than shim queues of the "
                         "partition");
    }
    for (; columns > 0; columns--, column++) {
        if (++walk->awaited[column][queue] > walk->issued[column][queue]) {
            return xt_refuse(walk, "waits for a token of column %u that no task issues", column);
        }
    }
    return WNPU_OK;
}

/* ---- both versions of a stream ---- */

/* Bytes of the current operation, or 0 with the reason in *error. Where the format fixes a size it
 * is required, because the firmware advances by its own table of sizes. */
static uint32_t xt_op_size(xt_walk *walk)
{
    uint32_t op = xt_word(walk, 0) & 0xff, at = UINT32_MAX, least = 0, most = 0, size;
    switch (op) {
    case 0x00: least = most = walk->optimised ? 12 : 24; at = walk->optimised ? at : 5; break;
    case 0x01: least = walk->optimised ? 16 : 20; most = UINT32_MAX;
        at = walk->optimised ? 2 : 3; break;
    case 0x03: least = most = walk->optimised ? 16 : 28; at = walk->optimised ? at : 6; break;
    case 0x04: case 0x07: least = walk->optimised ? 16 : 28; most = walk->optimised ? 16 : 32;
        at = walk->optimised ? at : 6; break;
    case 0x05: case 0x06: least = most = 4; break;
    case 0x80: least = most = 16; at = 1; break;
    case 0x81: least = most = walk->optimised ? 24 : 48; at = 1; break;
    case 0x08: case 0x09: case 0x0a: case 0x0b: case 0x0c: case 0x0d: case 0x82: case 0x83:
    case 0x84:
        (void)xt_refuse(walk, "operation 0x%02lx has effects that cannot be checked beforehand",
                        (unsigned long)op);
        return 0;
    default:
        (void)xt_refuse(walk, "unknown operation 0x%02lx", (unsigned long)op);
        return 0;
    }
    if (walk->left < least) {
        (void)xt_refuse(walk, "cut off");
        return 0;
    }
    size = at == UINT32_MAX ? least : xt_word(walk, at);
    if (size < least || size > most || size % 4 != 0 || size > walk->left) {
        (void)xt_refuse(walk, "operation 0x%02lx says it has %lu bytes", (unsigned long)op,
                        (unsigned long)size);
        return 0;
    }
    return size;
}

static int xt_apply_v0(xt_walk *walk, uint32_t size)
{
    switch (xt_word(walk, 0) & 0xff) {
    case 0x00:
        if (xt_word(walk, 3) != 0) {
            return xt_refuse(walk, "writes beyond the 32-bit register space");
        }
        return xt_write(walk, xt_word(walk, 2), xt_word(walk, 4), UINT32_MAX);
    case 0x01: return xt_block_write(walk, xt_word(walk, 2), walk->at + 16, size - 16);
    case 0x03:
        if (xt_word(walk, 3) != 0) {
            return xt_refuse(walk, "writes beyond the 32-bit register space");
        }
        return xt_write(walk, xt_word(walk, 2), xt_word(walk, 4), xt_word(walk, 5));
    case 0x80: return xt_wait_token(walk, xt_word(walk, 2), xt_word(walk, 3));
    case 0x81:
        if (xt_word(walk, 5) != 0 || xt_word(walk, 7) != 0) {
            return xt_refuse(walk, "a patch of an unknown kind");
        }
        return xt_patch(walk, xt_word(walk, 6), xu_le64(walk->at + 32), xu_le64(walk->at + 40));
    default: return WNPU_OK;
    }
}

static int xt_apply_v1(xt_walk *walk, uint32_t size)
{
    switch (xt_word(walk, 0) & 0xff) {
    case 0x00: return xt_write(walk, xt_word(walk, 1), xt_word(walk, 2), UINT32_MAX);
    case 0x01: return xt_block_write(walk, xt_word(walk, 1), walk->at + 12, size - 12);
    case 0x03: return xt_write(walk, xt_word(walk, 1), xt_word(walk, 2), xt_word(walk, 3));
    case 0x80: return xt_wait_token(walk, xt_word(walk, 2), xt_word(walk, 3));
    case 0x81: return xt_patch(walk, xt_word(walk, 2), walk->at[12], xu_le64(walk->at + 16));
    default: return WNPU_OK;
    }
}

static int xt_header(xt_walk *walk, const uint8_t *data, size_t size)
{
    unsigned version, columns;
    if (size < 16 || size % 4 != 0 || size > XT_BYTES_MAX) {
        return xu_fail(walk->error, WNPU_E_MODEL, "instruction stream refused: %lu bytes is no "
                       "possible length", (unsigned long)size);
    }
    version = xu_le16(data);
    columns = data[4];
    if (version != 0x0100 && version != 0x0001) { /* minor, major */
        return xu_fail(walk->error, WNPU_E_MODEL, "instruction stream refused: format version "
                       "%u.%u is unknown (0.1 and 1.0 are known)", data[0], data[1]);
    }
    if (data[2] != walk->limits->generation) {
        return xu_fail(walk->error, WNPU_E_MODEL, "instruction stream refused: built for device "
                       "generation %u, the pack is for %u", data[2], walk->limits->generation);
    }
    if (data[3] != 6 || data[5] != 1 || columns == 0 || columns > walk->limits->columns) {
        return xu_fail(walk->error, WNPU_E_MODEL, "instruction stream refused: built for %u rows "
                       "and %u columns, the partition has 6 and %u", data[3], columns,
                       walk->limits->columns);
    }
    if (xu_le32(data + 12) != size) {
        return xu_fail(walk->error, WNPU_E_MODEL, "instruction stream refused: its length field "
                       "says %lu, the file has %lu bytes", (unsigned long)xu_le32(data + 12),
                       (unsigned long)size);
    }
    walk->optimised = version == 0x0001;
    return WNPU_OK;
}

/* After the last operation: every write to host memory was waited for, and no token is left over
 * that would satisfy a wait of the next run. */
static int xt_check_end(xt_walk *walk)
{
    unsigned column, queue, arg;
    for (column = 0; column < walk->limits->columns; column++) {
        for (queue = 0; queue < 4; queue++) {
            if (walk->awaited[column][queue] != walk->issued[column][queue] ||
                (queue < 2 && walk->without_token[column][queue])) {
                return xu_fail(walk->error, WNPU_E_MODEL, "instruction stream refused: it does not "
                               "end by waiting for the completion tokens of column %u", column);
            }
        }
    }
    for (arg = 0; arg < walk->limits->n_args; arg++) {
        if ((walk->touched >> arg & 1) == 0) {
            return xu_fail(walk->error, WNPU_E_MODEL, "instruction stream refused: it never "
                           "touches argument %u, so it is not this kernel's", arg);
        }
    }
    return WNPU_OK;
}

/* Validates a stream: WNPU_OK, or WNPU_E_MODEL with the reason. */
static int xt_check(const uint8_t *data, size_t size, const xt_limits *limits, wnpu_error *error)
{
    xt_walk walk;
    uint32_t ops;
    int code;
    memset(&walk, 0, sizeof walk);
    walk.limits = limits;
    walk.error = error;
    if (limits->columns > XT_COLUMNS || limits->n_args > XT_ARGS) {
        return xu_fail(error, WNPU_E_INTERNAL, "limits of a stream are out of range");
    }
    code = xt_header(&walk, data, size);
    if (code != WNPU_OK) {
        return code;
    }
    ops = xu_le32(data + 8);
    walk.at = data + 16;
    walk.left = (uint32_t)(size - 16);
    for (walk.op = 0; walk.op < ops; walk.op++) {
        uint32_t bytes;
        if (walk.left < 4) {
            return xt_refuse(&walk, "the file ends before its %lu operations do",
                             (unsigned long)ops);
        }
        bytes = xt_op_size(&walk);
        if (bytes == 0) {
            return WNPU_E_MODEL;
        }
        code = walk.optimised ? xt_apply_v1(&walk, bytes) : xt_apply_v0(&walk, bytes);
        if (code != WNPU_OK) {
            return code;
        }
        walk.at += bytes;
        walk.left -= bytes;
    }
    if (walk.left != 0) {
        return xt_refuse(&walk, "%lu bytes are left after the last operation",
                         (unsigned long)walk.left);
    }
    return xt_check_end(&walk);
}
/* ======================================================================
 *  5. xc_  containers
 *
 *  Owns      the parser of xclbin files (AXLF; layout: XRT xclbin.h) and
 *            of bare PDIs.
 *  Assumes   nothing: the bytes are untrusted input.
 *  Ensures   every offset and count is checked against its section before
 *            it is followed; the image found lies inside the file.
 *  Costs     a pass over a few headers.
 * ====================================================================== */
#define XC_SECTIONS 0x10000u
#define XC_BYTES_MAX ((size_t)48 << 20) /* must fit into the 64 MiB heap beside everything else */
#define XC_PARTITION 32u
#define XC_IP_LAYOUT 8u
#define XC_NAME_MAX 256u         /* bytes of a name, including its NUL */

/* What an overlay file holds for one kernel. */
typedef struct xc_image {
    const uint8_t *pdi;
    size_t bytes;
    unsigned columns;            /* 0: unknown (a bare PDI) */
    uint32_t ops_per_cycle;      /* 0: unknown */
    uint8_t function;            /* for CONFIG_CU */
} xc_image;

typedef struct xc_section {
    const uint8_t *data;
    uint64_t bytes;
    uint64_t unread;             /* bytes of tables still unread, see xc_charge() */
} xc_section;

/* The first 16 bytes of every PDI: the bus width detection pattern of four lanes. */
static const uint8_t xc_sync[16] = {
    0xdd, 0x00, 0x00, 0x00, 0x44, 0x33, 0x22, 0x11, 0x88, 0x77, 0x66, 0x55, 0xcc, 0xbb, 0xaa, 0x99
};

__attribute__((format(printf, 2, 3)))
static int xc_refuse(wnpu_error *error, const char *format, ...)
{
    char what[160];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return xu_fail(error, WNPU_E_MODEL, "overlay refused: %s", what);
}

static int xc_pdi(xc_image *image, const uint8_t *data, uint64_t bytes, wnpu_error *error)
{
    if (bytes < sizeof xc_sync || bytes > XC_BYTES_MAX || bytes % 4 != 0) {
        return xc_refuse(error, "a PDI of %llu bytes is not possible", (unsigned long long)bytes);
    }
    if (memcmp(data, xc_sync, sizeof xc_sync) != 0) {
        return xc_refuse(error, "the PDI does not begin with the synchronisation pattern");
    }
    image->pdi = data;
    image->bytes = (size_t)bytes;
    return WNPU_OK;
}

/* Charges a table to its section's budget before it is read. The tables of a genuine file do not
 * overlap, so together they fit into their section. Without this limit a small untrusted file whose
 * tables refer to the same bytes over and over would keep the parser busy for days. */
static int xc_charge(xc_section *s, uint64_t bytes)
{
    if (bytes > s->unread) {
        return -1;
    }
    s->unread -= bytes;
    return 0;
}

/* Reads a {count, offset} pair at byte `at` and checks that its elements lie in the section. */
static int xc_array(const xc_section *s, uint64_t at, uint64_t element, uint64_t most,
                    uint32_t *count, uint64_t *offset)
{
    if (!xu_inside(at, 8, s->bytes)) {
        return -1;
    }
    *count = xu_le32(s->data + at);
    *offset = xu_le32(s->data + at + 4);
    return *count <= most && xu_inside(*offset, (uint64_t)*count * element, s->bytes) ? 0 : -1;
}

static int xc_string(const xc_section *s, uint64_t at)
{
    uint64_t offset = xu_le32(s->data + at), left = offset < s->bytes ? s->bytes - offset : 0;
    left = left < XC_NAME_MAX ? left : XC_NAME_MAX;
    return left > 0 && memchr(s->data + offset, 0, (size_t)left) != NULL ? 0 : -1;
}

/* 1 when the PDI entry at offset lists kernel_id in one of its groups, 0 when not, -1 damaged. */
static int xc_lists_kernel(xc_section *s, uint64_t entry, uint64_t kernel_id)
{
    uint32_t groups, ids, pre, g, i;
    uint64_t group_at, id_at, pre_at;
    int found = 0;
    if (xc_array(s, entry + 24, 96, 4096, &groups, &group_at) != 0 ||
        xc_charge(s, (uint64_t)groups * 96) != 0) {
        return -1;
    }
    for (g = 0; g < groups; g++) {
        uint64_t group = group_at + (uint64_t)g * 96;
        if (xc_string(s, group) != 0 || xc_array(s, group + 16, 8, 4096, &ids, &id_at) != 0 ||
            xc_array(s, group + 24, 4, 4096, &pre, &pre_at) != 0 ||
            xc_charge(s, (uint64_t)ids * 8) != 0) {
            return -1;
        }
        for (i = 0; i < ids; i++) {
            found |= xu_le64(s->data + id_at + (uint64_t)i * 8) == kernel_id;
        }
    }
    return found;
}

/* The AIE_PARTITION section: its width and the PDI of a kernel (if the file names no kernel, its
 * only PDI). */
static int xc_partition(xc_image *image, xc_section *s, int has_id, uint64_t kernel_id,
                        wnpu_error *error)
{
    uint32_t pdis, starts, bytes, i;
    uint64_t pdi_at, start_at, at;
    if (s->bytes < 184 || xc_string(s, 4) != 0 ||
        xc_array(s, 40, 2, 256, &starts, &start_at) != 0 ||
        xc_array(s, 120, 96, 4096, &pdis, &pdi_at) != 0 ||
        xc_charge(s, (uint64_t)pdis * 96) != 0) {
        return xc_refuse(error, "its AIE_PARTITION section is damaged");
    }
    image->ops_per_cycle = xu_le32(s->data + 8);
    image->columns = xu_le16(s->data + 32);
    if (image->columns == 0 || image->columns > XT_COLUMNS) {
        return xc_refuse(error, "it needs %u columns; devices have 1 to %u", image->columns,
                         XT_COLUMNS);
    }
    if (pdis == 0) {
        return xc_refuse(error, "its AIE_PARTITION section holds no PDI");
    }
    for (i = 0; i < pdis; i++) {
        uint64_t entry = pdi_at + (uint64_t)i * 96;
        int lists = xc_lists_kernel(s, entry, kernel_id);
        if (lists < 0 || xc_array(s, entry + 16, 1, XC_BYTES_MAX, &bytes, &at) != 0) {
            return xc_refuse(error, "PDI %lu of its AIE_PARTITION section is damaged",
                             (unsigned long)i);
        }
        if (image->pdi == NULL && (lists == 1 || (!has_id && pdis == 1))) {
            int code = xc_pdi(image, s->data + at, bytes, error);
            if (code != WNPU_OK) {
                return code;
            }
        }
    }
    return image->pdi != NULL ? WNPU_OK
                              : xc_refuse(error, "no PDI belongs to kernel 0x%llx",
                                          (unsigned long long)kernel_id);
}

/* Searches the IP_LAYOUT section for the DPU kernel called name (the first one if name is "") and
 * its id. Returns 1 when found, 0 when not, or a negative error. */
static int xc_kernel(const xc_section *s, const char *name, uint64_t *id, uint8_t *function,
                     wnpu_error *error)
{
    uint32_t count, i;
    size_t length = strlen(name);
    if (s->bytes < 8) {
        return xc_refuse(error, "its IP_LAYOUT section is damaged");
    }
    count = xu_le32(s->data);
    if (count > 65536 || !xu_inside(8, (uint64_t)count * 80, s->bytes)) {
        return xc_refuse(error, "its IP_LAYOUT section is damaged");
    }
    for (i = 0; i < count; i++) {
        const uint8_t *entry = s->data + 8 + (size_t)i * 80;
        uint32_t properties = xu_le32(entry + 4);
        if (xu_le32(entry) != 7 || (properties & 3) != 1) {
            continue; /* not a kernel, or not a DPU kernel */
        }
        if (memchr(entry + 16, 0, 64) == NULL) {
            return xc_refuse(error, "a name in its IP_LAYOUT section is not terminated");
        }
        if (length == 0 || (strncmp((const char *)entry + 16, name, length) == 0 &&
                            (entry[16 + length] == ':' || entry[16 + length] == 0))) {
            *id = properties >> 16 & 0xfff;
            *function = (uint8_t)(properties >> 4 & 3);
            return 1;
        }
    }
    return 0;
}

/* The section table: every section must lie in the file, with at most one of each kind we read. */
static int xc_sections(const uint8_t *data, size_t size, xc_section *partition, xc_section *layout,
                       wnpu_error *error)
{
    uint32_t count = xu_le32(data + 0x1c0), i;
    if (count > XC_SECTIONS || !xu_inside(0x1c8, (uint64_t)count * 40, size)) {
        return xc_refuse(error, "%lu sections do not fit into the file", (unsigned long)count);
    }
    for (i = 0; i < count; i++) {
        const uint8_t *header = data + 0x1c8 + (size_t)i * 40;
        uint64_t offset = xu_le64(header + 24), bytes = xu_le64(header + 32);
        uint32_t kind = xu_le32(header);
        xc_section *s = kind == XC_PARTITION ? partition : kind == XC_IP_LAYOUT ? layout : NULL;
        if (!xu_inside(offset, bytes, size)) {
            return xc_refuse(error, "section %lu lies outside the file", (unsigned long)i);
        }
        if (s != NULL && s->data != NULL) {
            return xc_refuse(error, "two sections of kind %lu", (unsigned long)kind);
        }
        if (s != NULL) {
            s->data = data + offset;
            s->bytes = s->unread = bytes;
        }
    }
    return WNPU_OK;
}

/* Finds a kernel's image in an xclbin. kernel: its name, "" for the first; id: its DPU kernel id, 0
 * for any. The image points into data. */
static int xc_xclbin(xc_image *image, const uint8_t *data, size_t size, const char *kernel,
                     uint64_t id, wnpu_error *error)
{
    xc_section partition = {NULL, 0, 0}, layout = {NULL, 0, 0};
    uint64_t found_id = id;
    int code, found = 0;
    memset(image, 0, sizeof *image);
    if (size < 0x1c8 || memcmp(data, "xclbin2\0", 8) != 0) {
        return xc_refuse(error, "the file is not an xclbin (its first bytes are not \"xclbin2\")");
    }
    if (xu_le64(data + 0x130) != size) {
        return xc_refuse(error, "its header says %llu bytes, the file has %lu",
                         (unsigned long long)xu_le64(data + 0x130), (unsigned long)size);
    }
    code = xc_sections(data, size, &partition, &layout, error);
    if (code != WNPU_OK) {
        return code;
    }
    if (partition.data == NULL) {
        return xc_refuse(error, "it has no AIE_PARTITION section");
    }
    if (layout.data != NULL) {
        found = xc_kernel(&layout, kernel, &found_id, &image->function, error);
        if (found < 0) {
            return found;
        }
        if (found == 0 || (id != 0 && found_id != id)) {
            return xc_refuse(error, "it holds no kernel \"%s\" with id 0x%llx", kernel,
                             (unsigned long long)id);
        }
    }
    return xc_partition(image, &partition, found == 1 || id != 0, found_id, error);
}
/* ======================================================================
 *  6. xp_  kernel packs
 *
 *  Owns      the manifest and the contents of the files it names, from a
 *            directory or through callbacks.
 *  Assumes   nothing about either: both are untrusted input.
 *  Ensures   a pack that opens is complete: every hash, container, stream
 *            and shape was checked before anything is submitted.
 *  Costs     the files once in memory while opening; streams and images
 *            for the lifetime of the accelerator.
 *
 *  The manifest, format 1: ASCII lines of at most 1,024 bytes; # comments;
 *  a record name, then key=value fields separated by blanks; values of
 *  [A-Za-z0-9._:+-]. Records: pack (first), overlay, kernel. Unknown keys,
 *  unknown records and kernels with an unknown op are skipped.
 * ====================================================================== */
#define XP_OVERLAYS 16u
#define XP_KERNELS 256u
#define XP_FIELDS 48u
#define XP_LINE 1024u
#define XP_NAME 64u
#define XP_MANIFEST_MAX ((size_t)1 << 20)
#define XP_CORE_MEMORY 65536u
#define XP_CORE_STACK 3328u      /* reserved for stack and locks by mlir-aie's design */

typedef struct xp_field {
    const char *key, *value;
} xp_field;

typedef struct xp_record {
    char line[XP_LINE + 1];
    xp_field fields[XP_FIELDS];
    unsigned n_fields;
    unsigned number;             /* line number, from 1 */
    const char *name;
} xp_record;

typedef struct xp_overlay {
    char id[XP_NAME], file[XP_NAME], kernel[XP_NAME];
    int is_pdi, needed;
    uint8_t hash[32];
    uint32_t dpu_kernel_id;      /* 0: any */
    uint32_t ops_per_cycle;
    uint8_t *data;
    size_t size;
    xc_image image;
} xp_overlay;

enum { XP_NK, XP_KN, XP_TILES };  /* B is [N, K]; [K, N]; as xo_pack_b() has it */

typedef struct xp_kernel {
    char id[XP_NAME], file[XP_NAME], verified[16];
    unsigned overlay;
    uint8_t hash[32];
    uint32_t m, n, k, tile_m, tile_n, tile_k;
    unsigned a_bytes, b_bytes;   /* per element: 1 or 2 */
    unsigned b_layout;           /* XP_NK, ... */
    unsigned a_arg, b_arg, c_arg, c_direction;
    uint8_t *data;               /* the stream */
    size_t bytes;
    uint64_t cycles;             /* what a simulated array takes; 0: unknown */
} xp_kernel;

typedef struct xp_pack {
    wnpu_allocator allocator;
    char name[XP_NAME], licence[XP_NAME], device[XP_NAME];
    unsigned generation;         /* 3: NPU1; 4: NPU4 to 6 */
    unsigned columns;
    unsigned n_overlays, n_kernels;
    xp_overlay overlays[XP_OVERLAYS];
    xp_kernel kernels[XP_KERNELS];
} xp_pack;

__attribute__((format(printf, 3, 4)))
static int xp_refuse(wnpu_error *error, const xp_record *record, const char *format, ...)
{
    char what[180];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return xu_fail(error, WNPU_E_MODEL, "kernel pack refused: manifest line %u: %s",
                   record->number, what);
}

static int xp_value_char(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           c == '.' || c == '_' || c == ':' || c == '+' || c == '-';
}

static const char *xp_find(const xp_record *record, const char *key)
{
    unsigned i;
    for (i = 0; i < record->n_fields; i++) {
        if (strcmp(record->fields[i].key, key) == 0) {
            return record->fields[i].value;
        }
    }
    return NULL;
}

/* Splits record->line into name and fields. A line without any gives an empty name. */
static int xp_split(xp_record *record, wnpu_error *error)
{
    char *p = record->line;
    record->n_fields = 0;
    record->name = "";
    for (;;) {
        char *start, *equals = NULL;
        p += strspn(p, " \t");
        if (*p == '\0' || (*p == '#' && record->name[0] == '\0')) {
            return WNPU_OK;
        }
        for (start = p; *p != '\0' && *p != ' ' && *p != '\t'; p++) {
            if (*p == '=' && equals == NULL) {
                equals = p;
            } else if (!xp_value_char(*p)) {
                return xp_refuse(error, record, "an invalid character");
            }
        }
        if (*p != '\0') {
            *p++ = '\0';
        }
        if (record->name[0] == '\0') {
            if (equals != NULL) {
                return xp_refuse(error, record, "no record name");
            }
            record->name = start;
            continue;
        }
        if (equals == NULL || equals == start || equals[1] == '\0') {
            return xp_refuse(error, record, "\"%.40s\" is not key=value", start);
        }
        *equals = '\0';
        if (record->n_fields == XP_FIELDS || xp_find(record, start) != NULL) {
            return xp_refuse(error, record, "duplicate key %.40s, or too many keys", start);
        }
        record->fields[record->n_fields].key = start;
        record->fields[record->n_fields++].value = equals + 1;
    }
}

/* Copies a string value of at most size - 1 bytes. fallback NULL: the key is required. */
static int xp_string(const xp_record *record, const char *key, const char *fallback, char *to,
                     size_t size, wnpu_error *error)
{
    const char *value = xp_find(record, key);
    value = value == NULL ? fallback : value;
    if (value == NULL) {
        return xp_refuse(error, record, "%s is missing", key);
    }
    if (strlen(value) >= size) {
        return xp_refuse(error, record, "%s is longer than %lu bytes", key,
                         (unsigned long)(size - 1));
    }
    memcpy(to, value, strlen(value) + 1);
    return WNPU_OK;
}

/* A string that is also a plain file name inside the pack; the alphabet has no slash. */
static int xp_file(const xp_record *record, const char *key, char *to, wnpu_error *error)
{
    int code = xp_string(record, key, NULL, to, XP_NAME, error);
    if (code == WNPU_OK && to[0] == '.') {
        return xp_refuse(error, record, "%s may not begin with a dot", key);
    }
    return code;
}

/* A decimal or 0x number in low..high. An absent key gives fallback if that is in the range. */
static int xp_number(const xp_record *record, const char *key, uint32_t low, uint32_t high,
                     uint32_t fallback, uint32_t *to, wnpu_error *error)
{
    const char *value = xp_find(record, key), *p;
    uint64_t sum = 0;
    unsigned base = 10, digit;
    if (value == NULL) {
        *to = fallback;
        return fallback >= low && fallback <= high
                   ? WNPU_OK : xp_refuse(error, record, "%s is missing", key);
    }
    p = value;
    if (p[0] == '0' && (p[1] == 'x' || p[1] == 'X')) {
        base = 16;
        p += 2;
    }
    if (*p == '\0') {
        return xp_refuse(error, record, "%s is not a number", key);
    }
    for (; *p != '\0'; p++) {
        digit = *p >= '0' && *p <= '9' ? (unsigned)(*p - '0')
                : *p >= 'a' && *p <= 'f' ? (unsigned)(*p - 'a') + 10
                : *p >= 'A' && *p <= 'F' ? (unsigned)(*p - 'A') + 10 : 16;
        if (digit >= base) {
            return xp_refuse(error, record, "%s is not a number", key);
        }
        sum = sum * base + digit;
        if (sum > high) {
            break;
        }
    }
    if (sum < low || sum > high) {
        return xp_refuse(error, record, "%s is outside %lu..%lu", key, (unsigned long)low,
                         (unsigned long)high);
    }
    *to = (uint32_t)sum;
    return WNPU_OK;
}

/* Index of the value in a list of words, or a negative error. */
static int xp_choice(const xp_record *record, const char *key, const char *const *words,
                     wnpu_error *error)
{
    const char *value = xp_find(record, key);
    int i;
    if (value == NULL) {
        return xp_refuse(error, record, "%s is missing", key);
    }
    for (i = 0; words[i] != NULL; i++) {
        if (strcmp(value, words[i]) == 0) {
            return i;
        }
    }
    return xp_refuse(error, record, "%s=%.40s is not supported", key, value);
}

static int xp_hash(const xp_record *record, uint8_t hash[32], wnpu_error *error)
{
    const char *value = xp_find(record, "sha256");
    size_t i;
    if (value == NULL || strlen(value) != 64 || strspn(value, "0123456789abcdef") != 64) {
        return xp_refuse(error, record, "sha256 is missing or not 64 lower-case hex digits");
    }
    for (i = 0; i < 32; i++) {
        unsigned high = (unsigned char)value[2 * i], low = (unsigned char)value[2 * i + 1];
        high = high <= '9' ? high - '0' : high - 'a' + 10;
        low = low <= '9' ? low - '0' : low - 'a' + 10;
        hash[i] = (uint8_t)(high << 4 | low);
    }
    return WNPU_OK;
}

/* ---- records ---- */

static int xp_pack_record(xp_pack *pack, const xp_record *record, wnpu_error *error)
{
    static const char *const devices[] = {"npu1", "npu2", NULL};
    uint32_t number;
    int code, device;
    if (pack->generation != 0) {
        return xp_refuse(error, record, "a second pack record");
    }
    code = xp_number(record, "format", 1, 1, 0, &number, error);
    if (code != WNPU_OK) {
        return code;
    }
    code = xp_string(record, "name", "unnamed", pack->name, XP_NAME, error);
    if (code == WNPU_OK) {
        code = xp_string(record, "licence", "unknown", pack->licence, XP_NAME, error);
    }
    if (code == WNPU_OK) {
        code = xp_string(record, "device", NULL, pack->device, XP_NAME, error);
    }
    if (code == WNPU_OK) {
        code = xp_number(record, "columns", 1, XT_COLUMNS, 0, &number, error);
    }
    if (code != WNPU_OK) {
        return code;
    }
    device = xp_choice(record, "device", devices, error);
    if (device < 0) {
        return device;
    }
    pack->columns = number;
    pack->generation = device == 0 ? 3 : 4;
    return WNPU_OK;
}

static int xp_overlay_index(const xp_pack *pack, const char *id)
{
    unsigned i;
    for (i = 0; id != NULL && i < pack->n_overlays; i++) {
        if (strcmp(pack->overlays[i].id, id) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static int xp_overlay_record(xp_pack *pack, const xp_record *record, wnpu_error *error)
{
    static const char *const kinds[] = {"xclbin", "pdi", NULL};
    const char *word = xp_find(record, "kind");
    xp_overlay *o = &pack->overlays[pack->n_overlays];
    int code, kind;
    if (pack->n_overlays == XP_OVERLAYS) {
        return xp_refuse(error, record, "more than %u overlays", XP_OVERLAYS);
    }
    code = xp_string(record, "id", NULL, o->id, XP_NAME, error);
    if (code == WNPU_OK && xp_overlay_index(pack, o->id) >= 0) {
        return xp_refuse(error, record, "a second overlay %s", o->id);
    }
    if (code == WNPU_OK) {
        code = xp_file(record, "file", o->file, error);
    }
    if (code == WNPU_OK) {
        code = xp_string(record, "kernel", "", o->kernel, XP_NAME, error);
    }
    if (code == WNPU_OK) {
        code = xp_number(record, "dpu_kernel_id", 0, 0xfff, 0, &o->dpu_kernel_id, error);
    }
    if (code == WNPU_OK) {
        code = xp_number(record, "ops_per_cycle", 1, 1u << 24, 2048, &o->ops_per_cycle, error);
    }
    if (code == WNPU_OK) {
        code = xp_hash(record, o->hash, error);
    }
    if (code != WNPU_OK) {
        return code;
    }
    if (word != NULL && strcmp(word, "elf") == 0) {
        return xp_refuse(error, record, "kind=elf is not supported (one file with code "
                         "and control); build the kernel as xclbin and instructions");
    }
    kind = xp_choice(record, "kind", kinds, error);
    if (kind < 0) {
        return kind;
    }
    o->is_pdi = kind;
    pack->n_overlays++;
    return WNPU_OK;
}

/* Types, layouts and directions: anything outside the contract of section 11 is refused. */
static int xp_types(xp_kernel *p, const xp_record *record, wnpu_error *error)
{
    static const char *const small[] = {"i8", "i16", NULL}, *const wide[] = {"i32", NULL};
    static const char *const mk[] = {"mk", NULL}, *const mn[] = {"mn", NULL};
    static const char *const b_layouts[] = {"nk", "kn", NULL};
    static const char *const in[] = {"in", NULL}, *const out[] = {"out", "inout", NULL};
    struct { const char *key; const char *const *words; int answer; } c[] = {
        {"a", small, 0}, {"b", small, 0}, {"c", wide, 0}, {"acc", wide, 0}, {"a_layout", mk, 0},
        {"b_layout", b_layouts, 0}, {"c_layout", mn, 0}, {"a_dir", in, 0}, {"b_dir", in, 0},
        {"c_dir", out, 0}
    };
    size_t i;
    for (i = 0; i < sizeof c / sizeof c[0]; i++) {
        c[i].answer = xp_choice(record, c[i].key, c[i].words, error);
        if (c[i].answer < 0) {
            return c[i].answer;
        }
    }
    if (c[0].answer != c[1].answer) {
        return xp_refuse(error, record, "a and b are of different types");
    }
    p->a_bytes = p->b_bytes = (unsigned)c[0].answer + 1;
    p->b_layout = (unsigned)c[5].answer;
    p->c_direction = c[9].answer == 0 ? XT_OUT : XT_IN | XT_OUT;
    return WNPU_OK;
}

/* Shapes consist of whole tiles that fit into a core's memory. How many rows and columns of tiles a
 * design processes at a time is not restricted here: the columns of a pack are those of the
 * partition, and xt_check() follows the transfers that the stream really makes. */
static int xp_shape(const xp_kernel *p, const xp_record *record, wnpu_error *error)
{
    uint64_t core = 2 * ((uint64_t)p->tile_m * p->tile_k * p->a_bytes +
                         (uint64_t)p->tile_k * p->tile_n * p->b_bytes +
                         4 * (uint64_t)p->tile_m * p->tile_n) + XP_CORE_STACK;
    if (p->m % p->tile_m != 0 || p->k % p->tile_k != 0 || p->n % p->tile_n != 0) {
        return xp_refuse(error, record, "the shape is not made of whole tiles (m of tile_m, n of "
                         "tile_n, k of tile_k)");
    }
    if (p->a_bytes == 1 && (p->tile_m % 16 != 0 || p->tile_k % 8 != 0 || p->tile_n % 16 != 0)) {
        return xp_refuse(error, record, "int8 tiles must be multiples of 16 x 8 x 16 (m, k, n)");
    }
    if (core > XP_CORE_MEMORY) {
        return xp_refuse(error, record, "a tile needs %llu bytes of a core's 65536",
                         (unsigned long long)core);
    }
    return WNPU_OK;
}

static int xp_arguments(const xp_kernel *p, const xp_record *record, wnpu_error *error)
{
    static const char *const keys[3] = {"a_bytes", "b_bytes", "c_bytes"};
    uint64_t want[3];
    uint32_t got;
    int i;
    want[0] = (uint64_t)p->m * p->k * p->a_bytes;
    want[1] = (uint64_t)p->n * p->k * p->b_bytes;
    want[2] = (uint64_t)p->m * p->n * 4;
    for (i = 0; i < 3; i++) {
        int code = xp_number(record, keys[i], 1, 1u << 30, 0, &got, error);
        if (code != WNPU_OK) {
            return code;
        }
        if (got != want[i]) {
            return xp_refuse(error, record, "%s is %lu, the shape needs %llu", keys[i],
                             (unsigned long)got, (unsigned long long)want[i]);
        }
    }
    if (p->a_arg == p->b_arg || p->a_arg == p->c_arg || p->b_arg == p->c_arg) {
        return xp_refuse(error, record, "two buffers are the same argument");
    }
    return WNPU_OK;
}

static int xp_kernel_record(xp_pack *pack, const xp_record *record, wnpu_error *error)
{
    xp_kernel *p = &pack->kernels[pack->n_kernels];
    /* K is at most 65536, so that 127 * 127 * 65536 fits into int32. */
    struct { const char *key; uint32_t low, high, fallback, *to; } numbers[] = {
        {"m", 1, 65536, 0, NULL}, {"n", 1, 65536, 0, NULL}, {"k", 1, 65536, 0, NULL},
        {"tile_m", 1, 4096, 0, NULL}, {"tile_n", 1, 4096, 0, NULL}, {"tile_k", 1, 4096, 0, NULL},
        {"a_arg", 0, 2, 9, NULL}, {"b_arg", 0, 2, 9, NULL}, {"c_arg", 0, 2, 9, NULL}
    };
    const char *op = xp_find(record, "op");
    unsigned i;
    int code, overlay;
    if (op == NULL) {
        return xp_refuse(error, record, "op is missing");
    }
    if (strcmp(op, "gemm") != 0) {
        return WNPU_OK; /* skipped, for later formats */
    }
    if (pack->n_kernels == XP_KERNELS) {
        return xp_refuse(error, record, "more than %u kernels", XP_KERNELS);
    }
    memset(p, 0, sizeof *p);
    numbers[0].to = &p->m; numbers[1].to = &p->n; numbers[2].to = &p->k;
    numbers[3].to = &p->tile_m; numbers[4].to = &p->tile_n; numbers[5].to = &p->tile_k;
    numbers[6].to = &p->a_arg; numbers[7].to = &p->b_arg; numbers[8].to = &p->c_arg;
    code = xp_string(record, "id", NULL, p->id, XP_NAME, error);
    for (i = 0; code == WNPU_OK && i < pack->n_kernels; i++) {
        if (strcmp(pack->kernels[i].id, p->id) == 0) {
            code = xp_refuse(error, record, "a second kernel %s", p->id);
        }
    }
    overlay = xp_overlay_index(pack, xp_find(record, "overlay"));
    if (code == WNPU_OK && overlay < 0) {
        code = xp_refuse(error, record, "overlay is missing or not declared above");
    }
    p->overlay = overlay < 0 ? 0 : (unsigned)overlay;
    if (code == WNPU_OK) {
        code = xp_file(record, "stream", p->file, error);
    }
    if (code == WNPU_OK) {
        code = xp_hash(record, p->hash, error);
    }
    if (code == WNPU_OK) {
        code = xp_string(record, "verified", "none", p->verified, sizeof p->verified, error);
    }
    for (i = 0; code == WNPU_OK && i < sizeof numbers / sizeof numbers[0]; i++) {
        code = xp_number(record, numbers[i].key, numbers[i].low, numbers[i].high,
                         numbers[i].fallback, numbers[i].to, error);
    }
    code = code == WNPU_OK ? xp_types(p, record, error) : code;
    code = code == WNPU_OK ? xp_shape(p, record, error) : code;
    code = code == WNPU_OK ? xp_arguments(p, record, error) : code;
    if (code == WNPU_OK) {
        pack->overlays[p->overlay].needed = 1;
        pack->n_kernels++;
    }
    return code;
}

/* ---- the manifest ---- */

/* Parses the manifest text into *pack; opens no files. */
static int xp_parse(xp_pack *pack, const char *text, size_t size, wnpu_error *error)
{
    xp_record record;
    size_t at = 0;
    int code;
    record.number = 0;
    while (at < size) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end == NULL ? size - at : (size_t)(end - (text + at));
        record.number++;
        if (length > XP_LINE) {
            return xp_refuse(error, &record, "longer than %u bytes", XP_LINE);
        }
        memcpy(record.line, text + at, length);
        record.line[length] = '\0';
        at += length + 1;
        if (length > 0 && record.line[length - 1] == '\r') {
            record.line[--length] = '\0';
        }
        if (strlen(record.line) != length) {
            return xp_refuse(error, &record, "a NUL byte");
        }
        code = xp_split(&record, error);
        if (code != WNPU_OK) {
            return code;
        }
        if (record.name[0] == '\0') {
            continue;
        }
        if (strcmp(record.name, "pack") == 0) {
            code = xp_pack_record(pack, &record, error);
        } else if (pack->generation == 0) {
            code = xp_refuse(error, &record, "the first record must be pack");
        } else if (strcmp(record.name, "overlay") == 0) {
            code = xp_overlay_record(pack, &record, error);
        } else if (strcmp(record.name, "kernel") == 0) {
            code = xp_kernel_record(pack, &record, error);
        }
        if (code != WNPU_OK) {
            return code;
        }
    }
    return pack->n_kernels > 0 ? WNPU_OK
                               : xu_fail(error, WNPU_E_MODEL, "kernel pack refused: its manifest "
                                         "contains no kernel that this library can use");
}

/* ---- files of a pack ---- */

/* Reads a whole file of a directory into *data from the allocator. */
static int xp_read_path(const wnpu_allocator *allocator, const char *directory, const char *name,
                        size_t most, uint8_t **data, size_t *size, wnpu_error *error)
{
    char path[1024];
    struct stat status;
    size_t done = 0;
    int fd;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, name) >= sizeof path) {
        return xu_fail(error, WNPU_E_ARGUMENT, "the path of the kernel pack is too long");
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: a FIFO must not block */
    if (fd < 0 || fstat(fd, &status) != 0) {
        int err = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        return xu_fail(error, WNPU_E_IO, "cannot open %.160s: %s", path, strerror(err));
    }
    if (!S_ISREG(status.st_mode)) {
        (void)close(fd);
        return xu_fail(error, WNPU_E_IO, "cannot read %.160s: it is not a regular file", path);
    }
    *size = (size_t)status.st_size;
    if (status.st_size <= 0 || (uint64_t)status.st_size > most) {
        (void)close(fd);
        return xu_fail(error, WNPU_E_MODEL, "kernel pack refused: invalid size of %s", name);
    }
    *data = xu_alloc(allocator, *size);
    while (*data != NULL && done < *size) {
        ssize_t n = read(fd, *data + done, *size - done);
        if (n <= 0 && !(n < 0 && errno == EINTR)) {
            break;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    (void)close(fd);
    if (*data == NULL) {
        return xu_fail(error, WNPU_E_MEMORY, "out of memory reading %s", name);
    }
    if (done < *size) {
        xu_free(allocator, *data, *size);
        *data = NULL;
        return xu_fail(error, WNPU_E_IO, "cannot read %.160s", path);
    }
    return WNPU_OK;
}

/* Reads a whole file of the pack into *data, from the directory or through the callbacks. */
static int xp_read_file(const wnpu_allocator *allocator, const wnpu_amdxdna_config *config,
                        const char *name, size_t most, uint8_t **data, size_t *size,
                        wnpu_error *error)
{
    const wnpu_amdxdna_files *files = config->files;
    int64_t bytes;
    size_t done = 0;
    *data = NULL;
    *size = 0;
    if (files == NULL) {
        return xp_read_path(allocator, config->pack, name, most, data, size, error);
    }
    bytes = files->size(files->user, name);
    if (bytes < 0) {
        return xu_fail(error, WNPU_E_IO, "the kernel pack has no file %s", name);
    }
    if (bytes == 0 || (uint64_t)bytes > most) {
        return xu_fail(error, WNPU_E_MODEL, "kernel pack refused: invalid size of %s", name);
    }
    *data = xu_alloc(allocator, (size_t)bytes);
    if (*data == NULL) {
        return xu_fail(error, WNPU_E_MEMORY, "out of memory reading %s", name);
    }
    *size = (size_t)bytes;
    while (done < *size) {
        int64_t n = files->read(files->user, name, done, *data + done, *size - done);
        if (n <= 0 || (uint64_t)n > *size - done) {
            xu_free(allocator, *data, *size);
            *data = NULL;
            return xu_fail(error, WNPU_E_IO, "cannot read %s of the kernel pack", name);
        }
        done += (size_t)n;
    }
    return WNPU_OK;
}

static int xp_verify(const uint8_t hash[32], const uint8_t *data, size_t size, const char *name,
                     wnpu_error *error)
{
    uint8_t digest[32];
    xh_sha256(digest, data, size);
    return memcmp(digest, hash, 32) == 0
               ? WNPU_OK : xu_fail(error, WNPU_E_MODEL, "kernel pack refused: %s is not the file "
                                   "that the manifest describes (SHA-256 differs)", name);
}

/* Prefixes the file's name to the message of a check that does not know it. */
static int xp_add_name(wnpu_error *error, int code, const char *name)
{
    if (code != WNPU_OK && error != NULL) {
        char reason[sizeof error->message];
        memcpy(reason, error->message, sizeof reason);
        xu_print(error->message, sizeof error->message, "%.63s: %.180s", name, reason);
    }
    return code;
}

static int xp_load_overlay(xp_pack *pack, xp_overlay *o, const wnpu_amdxdna_config *config,
                           wnpu_error *error)
{
    int code = xp_read_file(&pack->allocator, config, o->file, XC_BYTES_MAX, &o->data, &o->size,
                            error);
    if (code == WNPU_OK) {
        code = xp_verify(o->hash, o->data, o->size, o->file, error);
    }
    if (code != WNPU_OK) {
        return code;
    }
    if (o->is_pdi) {
        memset(&o->image, 0, sizeof o->image);
        o->image.columns = pack->columns;
        code = xc_pdi(&o->image, o->data, o->size, error);
    } else {
        code = xc_xclbin(&o->image, o->data, o->size, o->kernel, o->dpu_kernel_id, error);
    }
    if (code == WNPU_OK && o->image.columns != pack->columns) {
        code = xu_fail(error, WNPU_E_MODEL, "overlay refused: it needs %u columns, the manifest "
                       "says %u", o->image.columns, pack->columns);
    }
    return xp_add_name(error, code, o->file);
}

/* Checks a kernel's stream against its sizes. */
static int xp_check_kernel(const xp_pack *pack, const xp_kernel *p, wnpu_error *error)
{
    xt_limits limits;
    memset(&limits, 0, sizeof limits);
    limits.generation = pack->generation;
    limits.columns = pack->columns;
    limits.n_args = 3;
    limits.bytes[p->a_arg] = (uint64_t)p->m * p->k * p->a_bytes;
    limits.bytes[p->b_arg] = (uint64_t)p->n * p->k * p->b_bytes;
    limits.bytes[p->c_arg] = (uint64_t)p->m * p->n * 4;
    limits.direction[p->a_arg] = XT_IN;
    limits.direction[p->b_arg] = XT_IN;
    limits.direction[p->c_arg] = p->c_direction;
    return xt_check(p->data, p->bytes, &limits, error);
}

static int xp_load_kernel(xp_pack *pack, xp_kernel *p, const wnpu_amdxdna_config *config,
                          wnpu_error *error)
{
    int code = xp_read_file(&pack->allocator, config, p->file, XT_BYTES_MAX, &p->data, &p->bytes,
                            error);
    if (code == WNPU_OK) {
        code = xp_verify(p->hash, p->data, p->bytes, p->file, error);
    }
    if (code != WNPU_OK) {
        return code;
    }
    return xp_add_name(error, xp_check_kernel(pack, p, error), p->file);
}

static void xp_close(xp_pack *pack)
{
    wnpu_allocator allocator;
    unsigned i;
    if (pack == NULL) {
        return;
    }
    allocator = pack->allocator;
    for (i = 0; i < pack->n_kernels; i++) {
        xu_free(&allocator, pack->kernels[i].data, pack->kernels[i].bytes);
    }
    for (i = 0; i < pack->n_overlays; i++) {
        xu_free(&allocator, pack->overlays[i].data, pack->overlays[i].size);
    }
    xu_free(&allocator, pack, sizeof *pack);
}

/* Opens and checks a whole pack. On failure *pack is NULL. */
static int xp_open(xp_pack **out, const wnpu_amdxdna_config *config,
                   const wnpu_allocator *allocator, wnpu_error *error)
{
    xp_pack *pack;
    uint8_t *text = NULL;
    size_t size = 0;
    unsigned i;
    int code;
    *out = NULL;
    if (config->files != NULL && (config->files->size == NULL || config->files->read == NULL)) {
        return xu_fail(error, WNPU_E_ARGUMENT, "the callbacks of the kernel pack are not set");
    }
    pack = xu_alloc(allocator, sizeof *pack);
    if (pack == NULL) {
        return xu_fail(error, WNPU_E_MEMORY, "out of memory opening the kernel pack");
    }
    pack->allocator = *allocator;
    code = xp_read_file(allocator, config, "manifest", XP_MANIFEST_MAX, &text, &size, error);
    if (code == WNPU_OK) {
        code = xp_parse(pack, (const char *)text, size, error);
    }
    for (i = 0; code == WNPU_OK && i < pack->n_overlays; i++) {
        if (pack->overlays[i].needed) {
            code = xp_load_overlay(pack, &pack->overlays[i], config, error);
        }
    }
    for (i = 0; code == WNPU_OK && i < pack->n_kernels; i++) {
        code = xp_load_kernel(pack, &pack->kernels[i], config, error);
    }
    xu_free(allocator, text, size);
    if (code != WNPU_OK) {
        xp_close(pack);
        return code;
    }
    *out = pack;
    return WNPU_OK;
}
/* ======================================================================
 *  7. xo_  the built-in kernels
 *
 *  Owns      the machine code of one matrix product for each generation of
 *            the array, and what surrounds it: the configuration (PDI) for
 *            1, 2, 4 or 8 columns and an instruction stream for each shape.
 *  Assumes   nothing of the device beyond its generation and columns.
 *  Ensures   one configuration serves every shape; shapes, layouts and
 *            memory do not depend on the device. Streams pass xt_check()
 *            like those of a pack.
 *  Costs     7 to 170 KB for the configuration and 5 KB for each stream.
 *
 *  R columns of the array, up to four, use R rows of cores. Column r's memory
 *  tile sends rows of A to row r of the cores in all R columns, and its own
 *  columns of B to all rows of its column. Eight columns are two such groups,
 *  which take turns with groups of rows of A. Each core computes tiles of 64 x 64 results
 *  with K in steps of 64; all sizes are in the stream. A [M, K] and
 *  C [M, N] are row-major. B lies in tiles of 64 n x 64 k (xo_pack_b), all k
 *  of 64 n one after the other.
 *
 *  tests/npu/matmul.c writes the assembly and describes its memory and
 *  locks; tests/npu/make_code.c assembles it into the arrays below. It was
 *  executed by a simulated core only (tests/npu/kit/README.md), never by
 *  hardware; like every kernel it has to pass the self-test of section 13.
 *
 *  Register offsets and fields: Xilinx/aie-rt, xaiemlgbl_params.h; the
 *  container of a PDI: Xilinx/bootgen.
 * ====================================================================== */
/* make npu-code writes the lines from here to the end mark. */
/* begin of code */
static const uint32_t xo_code_aie2[681] = {
    0x00061055, 0x48bb0000, 0x202a0083, 0xffe04800, 0x800010bb, 0x88000005, 0x07b90004, 0x00551849,
    0x00004680, 0x088e8055, 0x80550000, 0xffffc98e, 0xaa000055, 0x80550007, 0x00003b11, 0x0b880055,
    0x00550000, 0x00078500, 0xc5800055, 0x00550007, 0x00070700, 0xbe600055, 0x40550007, 0xfffff140,
    0x38718055, 0x00550007, 0x00073a79, 0x1d0b2843, 0x001cfb87, 0x0e0281d9, 0x0e0681d9, 0x0e2281d9,
    0x0e2681d9, 0x0e4281d9, 0x0e4681d9, 0x0e6281d9, 0x0e6681d9, 0x0e0a81d9, 0x0e2a81d9, 0x4c600055,
    0x81d90007, 0x81d90e02, 0x81d90e06, 0x81d90e22, 0x81d90e26, 0x81d90e42, 0x81d90e46, 0x81d90e62,
    0x00550e66, 0x00074c68, 0x0e0281d9, 0x0e0681d9, 0x0e2281d9, 0x0e2681d9, 0x0e4281d9, 0x0e4681d9,
    0x0e6281d9, 0x0e6681d9, 0x00010001, 0x00010001, 0x16821219, 0x1a3a1659, 0x1b3a1659, 0x18291659,
    0x348b28bb, 0x10311090, 0x964d4050, 0x445030e9, 0x5035164d, 0x28bb4850, 0xa6349acb, 0x4c507014,
    0x1662121d, 0xc69d40d1, 0x44d132d6, 0x02468a99, 0x02668b99, 0x03028499, 0x03228599, 0x03428699,
    0x03628799, 0x03068c99, 0x03268d99, 0x03468e99, 0x03668f99, 0x07028a59, 0x3800001d, 0x887d0050,
    0x0450b914, 0x3914a819, 0x3914c819, 0x3914e87d, 0x780f00d2, 0x00000000, 0x88000000, 0x04d2b915,
    0xa8000005, 0x483b1115, 0x5ff86013, 0x0115c80a, 0x3915e87d, 0x780b0150, 0x881d0000, 0x0550b914,
    0x88000400, 0x00000003, 0x10000000, 0x22954052, 0x88042420, 0x00000003, 0x35043340, 0x22994452,
    0x88080640, 0x00000003, 0x3c029040, 0x229d01d2, 0x880c2660, 0x00000003, 0xbc229140, 0x22b105d2,
    0x88008c00, 0x00000003, 0x50000000, 0x22b54852, 0x8804ac20, 0x00000003, 0x70000000, 0x22b94c52,
    0x88088e40, 0x00000003, 0x3c429240, 0x22bd0250, 0x880cae60, 0x00000003, 0xbc629340, 0x22910650,
    0x88000400, 0x00000003, 0x90000000, 0x22956052, 0x88042420, 0x00000003, 0xb0000000, 0x22996452,
    0x88080640, 0x00000003, 0x3d029440, 0x229d02d2, 0x880c2660, 0x00000003, 0xbd229540, 0x22b106d2,
    0x88008c00, 0x00000003, 0xd0000000, 0x22b56852, 0x8804ac20, 0x00000003, 0xf0000000, 0x22b96c52,
    0x88088e40, 0x00000003, 0x3d429640, 0x22bd0350, 0x880cae60, 0x00000003, 0xbd629740, 0x22910750,
    0x88000400, 0x00000003, 0x10000000, 0x229540d3, 0x88042420, 0x00000003, 0x30000000, 0x229944d3,
    0x88080640, 0x00000003, 0x3c069840, 0x229d03d2, 0x880c2660, 0x00000003, 0xbc269940, 0x22b107d2,
    0x88008c00, 0x00000003, 0x50000000, 0x22b548d3, 0x8804ac20, 0x00000003, 0x70000000, 0x22b94cd3,
    0x88088e40, 0x00000003, 0x3c469a40, 0x22bd0050, 0x880cae60, 0x00000003, 0xbc669b40, 0x22910450,
    0x88000400, 0x00000003, 0x92083140, 0x229560d3, 0x88042420, 0x00000003, 0xb4683140, 0x229964d3,
    0x88080640, 0x00000003, 0x3d069c40, 0x229d00d2, 0x880c2660, 0x00000003, 0xbd269d40, 0x22b104d2,
    0x88008c00, 0x00000003, 0xd0000000, 0x22b568d3, 0x8804ac20, 0x00000003, 0xf3083140, 0x22b96cd3,
    0x88088e40, 0x00000003, 0x3d469e40, 0x22bd0150, 0x880cae60, 0x00000003, 0xbd669f40, 0x22910550,
    0x88100480, 0x00000003, 0x10000000, 0x22954050, 0x881424a0, 0x00000003, 0x35683140, 0x22994450,
    0x881806c0, 0x00000003, 0x3c028040, 0x229d01d2, 0x881c26e0, 0x00000003, 0xbc228140, 0x22b105d2,
    0x88108c80, 0x00000003, 0x50000000, 0x22b54850, 0x8814aca0, 0x00000003, 0x70000000, 0x22b94c50,
    0x88188ec0, 0x00000003, 0x3c428240, 0x22bd0250, 0x881caee0, 0x00000003, 0xbc628340, 0x22910650,
    0x0200902f, 0xff000000, 0x9114a8c7, 0x24a06050, 0x00038814, 0x00000000, 0x6450b000, 0x06c02299,
    0x00038818, 0x84400000, 0x02d23d02, 0x26e0229d, 0x0003881c, 0x85400000, 0x06d2bd22, 0x8c8022b1,
    0x00038810, 0x00000000, 0x6850d000, 0xaca022b5, 0x00038814, 0x00000000, 0x6c50f000, 0x8ec022b9,
    0x00038818, 0x86400000, 0x03503d42, 0xaee022bd, 0x0003881c, 0x87400000, 0x0750bd62, 0x04802291,
    0x00038810, 0x00000000, 0x40d11000, 0x24a02295, 0x00038814, 0x00000000, 0x44d13000, 0x06c02299,
    0x00038818, 0x88400000, 0x03d23c06, 0x26e0229d, 0x0003881c, 0x89400000, 0x07d2bc26, 0x8c8022b1,
    0x00038810, 0x00000000, 0x48d15000, 0xaca022b5, 0x00038814, 0x00000000, 0x4cd17000, 0x8ec022b9,
    0x00038818, 0x8a400000, 0x00503c46, 0xaee022bd, 0x0003881c, 0x8b400000, 0x0450bc66, 0x04802291,
    0x00038810, 0x31400000, 0x60d19208, 0x24a02295, 0x00038814, 0x33400000, 0x64d1b404, 0x06c02299,
    0x00038818, 0x8c400000, 0x00d23d06, 0x26e0229d, 0x0003881c, 0x8d400000, 0x04d2bd26, 0x8c8022b1,
    0x00038810, 0x00000000, 0x68d1d000, 0xaca022b5, 0x00038814, 0x31400000, 0x6cd1f308, 0x8ec022b9,
    0x00038818, 0x8e400000, 0x01503d46, 0xaee022bd, 0x0003881c, 0x8f400000, 0x0550bd66, 0x04002291,
    0x00038800, 0x00000000, 0x40521000, 0x24202295, 0x00038804, 0x33400000, 0x44523504, 0x06402299,
    0x00038808, 0x90400000, 0x01d23c02, 0x2660229d, 0x0003880c, 0x91400000, 0x05d2bc22, 0x8c0022b1,
    0x00038800, 0x00000000, 0x48525000, 0xac2022b5, 0x00038804, 0x00000000, 0x4c527000, 0x8e4022b9,
    0x744b2808, 0x92400000, 0x02503c42, 0xae6022bd, 0x0003880c, 0x93400000, 0x0650bc62, 0x04002291,
    0x00038800, 0x00000000, 0x60529000, 0x24202295, 0x00038804, 0x00000000, 0x6452b000, 0x06402299,
    0x00038808, 0x94400000, 0x02d23d02, 0x2660229d, 0x0003880c, 0x95400000, 0x06d2bd22, 0x8c0022b1,
    0x00038800, 0x00000000, 0x6852d000, 0xac2022b5, 0x00038804, 0x00000000, 0x6c52f000, 0x8e4022b9,
    0x00038808, 0x96400000, 0x03503d42, 0xae6022bd, 0x0003880c, 0x97400000, 0x0750bd62, 0x04002291,
    0x00038800, 0x00000000, 0x40d31000, 0x24202295, 0x00038804, 0x00000000, 0x44d33000, 0x06402299,
    0x00038808, 0x98400000, 0x03d23c06, 0x2660229d, 0x0003880c, 0x99400000, 0x07d2bc26, 0x8c0022b1,
    0x00038800, 0x00000000, 0x48d35000, 0xac2022b5, 0x00038804, 0x00000000, 0x4cd37000, 0x8e4022b9,
    0x00038808, 0x9a400000, 0x00503c46, 0xae6022bd, 0x0003880c, 0x9b400000, 0x0450bc66, 0x04002291,
    0x00038800, 0x31400000, 0x60d39228, 0x24202295, 0x00038804, 0x33400000, 0x64d3b404, 0x06402299,
    0x00038808, 0x9c400000, 0x00d23d06, 0x2660229d, 0x0003880c, 0x9d400000, 0x04d2bd26, 0x8c0022b1,
    0x00038800, 0x00000000, 0x68d3d000, 0xac2022b5, 0x00038804, 0x31400000, 0x6cd3f328, 0x8e4022b9,
    0x00038808, 0x9e400000, 0x01503d46, 0xae6022bd, 0x0003880c, 0x9f400000, 0x0550bd66, 0x04802291,
    0x00038810, 0x00000000, 0x40501000, 0x24a02295, 0x00038814, 0x33400000, 0x44503504, 0x06c02299,
    0x00038818, 0x80400000, 0x01d23c02, 0x26e0229d, 0x0003881c, 0x81400000, 0x05d2bc22, 0x8c8022b1,
    0x00038810, 0x00000000, 0x48505000, 0xaca022b5, 0x00038814, 0x00000000, 0x4c507000, 0x8ec022b9,
    0x00038818, 0x82400000, 0x02503c42, 0xaee022bd, 0x0003881c, 0x83400000, 0x0650bc62, 0x04802291,
    0x00038810, 0x00000000, 0x60509000, 0x24a02295, 0x00038814, 0x00000000, 0x6450b000, 0x06c02299,
    0x00038818, 0x84400000, 0x02d23d02, 0x26e0229d, 0x0003881c, 0x85400000, 0x06d2bd22, 0x8c8022b1,
    0x00038810, 0x00000000, 0x6850d000, 0xaca022b5, 0x00038814, 0x00000000, 0x6c50f000, 0x8ec022b9,
    0x00038818, 0x86400000, 0x03503d42, 0xaee022bd, 0x0003881c, 0x87400000, 0x0750bd62, 0x04802291,
    0x00038810, 0x00000000, 0x40d11000, 0x24a02295, 0x00038814, 0x00000000, 0x44d13000, 0x06c02299,
    0x00038818, 0x88400000, 0x03d23c06, 0x26e0229d, 0x0003881c, 0x89400000, 0x07d2bc26, 0x8c8022b1,
    0x00038810, 0x33400000, 0x48d15020, 0xaca022b5, 0x00038814, 0x00000000, 0x4cd17000, 0x8ec022b9,
    0x00038818, 0x8a400000, 0x00503c46, 0xaee0293d, 0x0003881c, 0x8b400000, 0x0450bc66, 0x04802291,
    0x00038810, 0x31400000, 0x60d19208, 0x24a02295, 0x00038814, 0x33400000, 0x64d1b404, 0x06c02299,
    0x10006018, 0x8c460034, 0x00d23d06, 0x26e0229d, 0x0003881c, 0x8d400000, 0x04d2bd26, 0x8c8022b1,
    0x00038810, 0x00000000, 0x68d1d000, 0xaca022b5, 0x00038814, 0x31400000, 0x6cd1f308, 0x8ec022b9,
    0x00038818, 0x8e400000, 0x01503d46, 0xaee022bd, 0x0003881c, 0x8f400000, 0x0550bd66, 0x01952291,
    0x28051800, 0x1a371659, 0x1337964d, 0x164d4050, 0x44503028, 0x5068964d, 0x964d4850, 0x4c5070e9,
    0x1600221d, 0x164d40d1, 0x44d13035, 0x5294c69d, 0x964d48d1, 0x4cd17135, 0x9640221d, 0xc69d6050,
    0x6450b2d6, 0x03428699, 0x03628799, 0x9622121d, 0x8d9960d1, 0x8e990326, 0x8f990346, 0x123d0366,
    0x41062e62, 0x0b083159, 0x20bb0001, 0x00300000, 0x00503800, 0xb914887d, 0xa8190450, 0xc8193914,
    0xe87d3914, 0x00d23914, 0x88000013, 0x04d2b915, 0x6e00223d, 0x9059a086, 0x91590c02, 0x92590c22,
    0x93590c42, 0x223d0c62, 0x80d30e40, 0x0c269959, 0x4b9cd6bd, 0x70bd88d3, 0x8cd36b9f, 0x8b8d60bd,
    0x9559a052, 0x96590d22, 0x97590d42, 0x9c590d62, 0x9d590d06, 0x9e590d26, 0x9f590d46, 0x16590d66,
    0x16591c33, 0x33591d33, 0x00010d3c, 0x22190001, 0x009516a0, 0x00007800, 0x00010001, 0x00010001,
    0x00000001
};
static const uint32_t xo_code_aie2p[893] = {
    0x00261044, 0x0a2c0000, 0xffe10008, 0x16200044, 0x00440000, 0x000046a0, 0x00009018, 0x184a72f8,
    0x08b40044, 0x00440000, 0x00000824, 0xaa200044, 0x00440007, 0x0007aaa8, 0x0bb00044, 0x00440000,
    0x00078520, 0xc5a00044, 0x00440007, 0x00070720, 0xbec00044, 0x80440007, 0xfffff400, 0xf8188044,
    0x0044ffff, 0x00000a04, 0x1cd441e4, 0x519873ee, 0x709813a7, 0x1318156d, 0x13180e1c, 0x13180e1c,
    0x13180e1c, 0x13180e1c, 0x13180e1c, 0x13180e1c, 0x13180e1c, 0x00440e1c, 0x00074cc0, 0x0e1c1318,
    0x0e1c1318, 0x0e1c1318, 0x0e1c1318, 0x4cd00044, 0x13180007, 0x13180e1c, 0x13180e1c, 0x013a0e1c,
    0x00000000, 0xc3826000, 0x00000000, 0x00000000, 0x16821818, 0x1a6a20f8, 0x1b6a20f8, 0x180920f8,
    0x16221818, 0x190920f8, 0x186520f8, 0x1965a0f8, 0x16621818, 0x355078ba, 0xd014a636, 0x41e4e096,
    0x5ad8dad6, 0x1b09a0f8, 0x02041598, 0x02143598, 0x02245598, 0x02347598, 0x03049598, 0x0314b598,
    0xb1a01154, 0x78ba649a, 0x5ff801a5, 0x669eb00a, 0x780000e1, 0x000001a5, 0x6c346680, 0x48a2b038,
    0x780000e1, 0x000001a5, 0xed048680, 0x4aa6b038, 0x780000e1, 0x000001a5, 0x6d14a680, 0x4caab239,
    0x780000e1, 0x000001a5, 0xed24c680, 0x4eaeb239, 0x780000e1, 0x000001a5, 0x6d34e680, 0x68b2b03a,
    0x780000e1, 0x000001a5, 0xec450680, 0x6ab6b03a, 0x780000e1, 0x000001a5, 0x6c552680, 0x6cbab23b,
    0x780000e1, 0x000001a5, 0xec654680, 0x6ebeb23b, 0x780000e1, 0x000001a5, 0x6c756680, 0x002cf038,
    0x780000e1, 0x000001a5, 0xed458680, 0x002cf038, 0x78000209, 0x000001a5, 0x6d55a680, 0x410cf239,
    0x78091209, 0x000001a5, 0xed65c680, 0x610cf239, 0x78120309, 0x000001a5, 0x6d75e680, 0x002cf03a,
    0x781b1309, 0x000001a5, 0xec685b00, 0x002cf03a, 0x78004609, 0x000001a5, 0x6d685b00, 0x002cf23b,
    0x78095609, 0x000001a5, 0xe8015b00, 0x002cf23b, 0x78124709, 0x000001a5, 0x68015b00, 0x002cf038,
    0x781b5709, 0x000001a5, 0xe8015b00, 0x002cf038, 0x78000209, 0x000001a5, 0x68015b00, 0x002cf239,
    0x78091209, 0x000001a5, 0xe8015b00, 0x002cf239, 0x78120309, 0x000001a5, 0x68015b00, 0x002cf03a,
    0x781b1309, 0x000001a5, 0xe8015b00, 0x002cf03a, 0x78004609, 0x000001a5, 0x68015b00, 0x002cf23b,
    0x78095609, 0x000001a5, 0xe8015b00, 0x002cf23b, 0x78124709, 0x000001a5, 0x68015b00, 0x002cf038,
    0x781b5709, 0x000001a5, 0xe8015b00, 0x002cf038, 0x78000209, 0x000001a5, 0x68015b00, 0x002cf239,
    0x78091209, 0x000001a5, 0xe8015b00, 0x002cf239, 0x78120309, 0x000001a5, 0x68015b00, 0x002cf03a,
    0x781b1309, 0x000001a5, 0xe8015b00, 0x002cf112, 0x78004609, 0x000001a5, 0x68015b00, 0x002cf23b,
    0x78095609, 0x000001a5, 0xe8015b00, 0x002cf23b, 0x78124709, 0x000001a5, 0x20015b00, 0x002cf000,
    0x781b5709, 0x000001a5, 0x20015b00, 0x002cf000, 0x78000209, 0x000001a5, 0x20015b00, 0x002cf000,
    0x78091209, 0x000001a5, 0x20015b00, 0x002cf000, 0x78120309, 0x000001a5, 0x20015b00, 0x002cf000,
    0x781b1309, 0x000001a5, 0x20015b00, 0x002cf000, 0x78004609, 0x000001a5, 0x20015b00, 0x002cf000,
    0x78095609, 0x000001a5, 0x20015b00, 0x002cf000, 0x78124709, 0x000001a5, 0x20015b00, 0x4082b000,
    0x781b5709, 0x000001a5, 0x20015b00, 0x4286b000, 0x780000e1, 0x000001a5, 0x20015b00, 0x448ab000,
    0x780000e1, 0x000001a5, 0x20015b00, 0x468eb000, 0x780000e1, 0x000001a5, 0x20015b00, 0x6092b000,
    0x780000e1, 0x000001a5, 0x24040680, 0x6296b000, 0x780000e1, 0x000001a5, 0x24142680, 0x649ab000,
    0x780000e1, 0x000001a5, 0x24244680, 0x669eb000, 0x780000e1, 0x000001a5, 0x6c346680, 0x48a2b038,
    0x780000e1, 0x000001a5, 0xed048680, 0x4aa6b038, 0x780000e1, 0x000001a5, 0x6d14a680, 0x4caab239,
    0x780000e1, 0x000001a5, 0xed24c680, 0x4eaeb239, 0x780000e1, 0x000001a5, 0x6d34e680, 0x68b2b03a,
    0x780000e1, 0x000001a5, 0xec450680, 0x6ab6b03a, 0x780000e1, 0x000001a5, 0x6c552680, 0x6cbab23b,
    0x780000e1, 0x000001a5, 0xec654680, 0x6ebeb23b, 0x780000e1, 0x000001a5, 0x6c756680, 0x002cf038,
    0x780000e1, 0x000001a5, 0xed458680, 0x002cf038, 0x78000209, 0x000001a5, 0x6d55a680, 0x410cf239,
    0x78091209, 0x000001a5, 0xed65c680, 0x610cf239, 0x78120309, 0x000001a5, 0x6d75e680, 0x002cf03a,
    0x781b1309, 0x000001a5, 0xeca85b00, 0x002cf03a, 0x78004609, 0x000001a5, 0x6da85b00, 0x002cf23b,
    0x78095609, 0x000001a5, 0xe8015b00, 0x002cf23b, 0x78124709, 0x000001a5, 0x68015b00, 0x002cf038,
    0x781b5709, 0x000001a5, 0xe8015b00, 0x002cf038, 0x78000209, 0x000001a5, 0x68015b00, 0x002cf239,
    0x78091209, 0x000001a5, 0xe8015b00, 0x002cf239, 0x78120309, 0x000001a5, 0x68015b00, 0x002cf03a,
    0x781b1309, 0x000001a5, 0xe8015b00, 0x002cf03a, 0x78004609, 0x3ff801a5, 0x68015b06, 0x002cf23b,
    0x78095609, 0x000001a5, 0xe8015b00, 0x002cf23b, 0x78124709, 0x000001a5, 0x68015b00, 0x002cf038,
    0x781b5709, 0x000001a5, 0xe8015b00, 0x002cf038, 0x78000209, 0x000001a5, 0x68015b00, 0x002cf239,
    0x78091209, 0x000001a5, 0xe8015b00, 0x002cf239, 0x78120309, 0x000001a5, 0x68015b00, 0x002cf03a,
    0x781b1309, 0x000001a5, 0xe8015b00, 0x002cf112, 0x78004609, 0x000001a5, 0x68015b00, 0x002cf23b,
    0x78095609, 0x000001a5, 0xe8015b00, 0x002cf23b, 0x78124709, 0x00018450, 0x20015b00, 0x002cf000,
    0x781b5709, 0x000001a5, 0x20015b00, 0x002cf000, 0x78000209, 0x000001a5, 0x20015b00, 0x002cf000,
    0x78091209, 0x000001a5, 0x20015b00, 0x002cf000, 0x78120309, 0x000001a5, 0x20015b00, 0x002cf000,
    0x781b1309, 0x000001a5, 0x20015b00, 0x002cf000, 0x78004609, 0x000001a5, 0x20015b00, 0x002cf000,
    0x78095609, 0x000001a5, 0x20015b00, 0x002cf000, 0x78124709, 0x000001a5, 0x20015b00, 0x4082b000,
    0x781b5709, 0x000001a5, 0x20015b00, 0x4286b000, 0x780000e1, 0x000001a5, 0x20015b00, 0x448ab000,
    0x780000e1, 0x000001a5, 0x20015b00, 0x468eb000, 0x780000e1, 0x000001a5, 0x20015b00, 0x6092b000,
    0x780000e1, 0x000001a5, 0x24040680, 0x6296b000, 0x780000e1, 0x000001a5, 0x24142680, 0x649ab000,
    0x780000e1, 0x000001a5, 0x24244680, 0x669eb000, 0x780000e1, 0x000001a5, 0x6c346680, 0x48a2b038,
    0x780000e1, 0x000001a5, 0xed048680, 0x4aa6b038, 0x780000e1, 0x000001a5, 0x6d14a680, 0x4caab239,
    0x780000e1, 0x000001a5, 0xed24c680, 0x4eaeb239, 0x780000e1, 0x000001a5, 0x6d34e680, 0x68b2b03a,
    0x780000e1, 0x000001a5, 0xec450680, 0x6ab6b03a, 0x780000e1, 0x000001a5, 0x6c552680, 0x6cbab23b,
    0x780000e1, 0x000001a5, 0xec654680, 0x6ebeb23b, 0x780000e1, 0x000001a5, 0x6c756680, 0x002cf038,
    0x780000e1, 0x000001a5, 0xed458680, 0x002cf038, 0x78000209, 0x000001a5, 0x6d55a680, 0x410cf239,
    0x78091209, 0x000001a5, 0xed65c680, 0x610cf239, 0x78120309, 0x000001a5, 0x6d75e680, 0x002cf03a,
    0x781b1309, 0x000001a5, 0xeca85b00, 0x002cf03a, 0x78004609, 0x000001a5, 0x6da85b00, 0x002cf23b,
    0x78095609, 0x000001a5, 0xe8015b00, 0x002cf23b, 0x78124709, 0x000001a5, 0x68015b00, 0x002cf038,
    0x781b5709, 0x000001a5, 0xe8015b00, 0x002cf038, 0x78000209, 0x000001a5, 0x68015b00, 0x002cf239,
    0x78091209, 0x000001a5, 0xe8015b00, 0x002cf239, 0x78120309, 0x000001a5, 0x68015b00, 0x002cf03a,
    0x781b1309, 0x000001a5, 0xe8015b00, 0x002cf03a, 0x78004609, 0x000001a5, 0x68015b00, 0x002cf23b,
    0x78095609, 0x000001a5, 0xe8015b00, 0x002cf23b, 0x78124709, 0x000001a5, 0x68015b00, 0x002cf038,
    0x781b5709, 0x000001a5, 0xe8015b00, 0x002cf038, 0x78000209, 0x000001a5, 0x68015b00, 0x002cf239,
    0x78091209, 0x000001a5, 0xe8015b00, 0x002cf239, 0x78120309, 0x000001a5, 0x68015b00, 0x002cf03a,
    0x781b1309, 0x000001a5, 0xe8015b00, 0x002cf112, 0x78004609, 0x000001a5, 0x68015b00, 0x002cf23b,
    0x78095609, 0x000001a5, 0xe8015b00, 0x002cf23b, 0x78124709, 0x000001a5, 0x20015b00, 0x002cf000,
    0x781b5709, 0x000001a5, 0x20015b00, 0x002cf000, 0x78000209, 0x000001a5, 0x20015b00, 0x002cf000,
    0x78091209, 0x000001a5, 0x20015b00, 0x002cf000, 0x78120309, 0x000001a5, 0x20015b00, 0x002cf000,
    0x781b1309, 0x000001a5, 0x20015b00, 0x002cf000, 0x78004609, 0x000001a5, 0x20015b00, 0x002cf000,
    0x78095609, 0x000001a5, 0x20015b00, 0x002cf000, 0x78124709, 0x000001a5, 0x20015b00, 0x4082b000,
    0x781b5709, 0x000001a5, 0x20015b00, 0x4286b000, 0x780000e1, 0x000001a5, 0x20015b00, 0x448ab000,
    0x780000e1, 0x000001a5, 0x20015b00, 0x468eb000, 0x780000e1, 0x000001a5, 0x20015b00, 0x6092b000,
    0x780000e1, 0x000001a5, 0x24040680, 0x6296b000, 0x780000e1, 0x000001a5, 0x24142680, 0x649ab000,
    0x780000e1, 0x000001a5, 0x24244680, 0x669eb000, 0x780000e1, 0x000001a5, 0x6c346680, 0x48a2b038,
    0x780000e1, 0x000001a5, 0xed048680, 0x4aa6b038, 0x780000e1, 0x000001a5, 0x6d14a680, 0x4caab239,
    0x780000e1, 0x000001a5, 0xed24c680, 0x4eaeb239, 0x780000e1, 0x000001a5, 0x6d34e680, 0x68b2b03a,
    0x780000e1, 0x000001a5, 0xec450680, 0x6ab6b03a, 0x780000e1, 0x000001a5, 0x6c552680, 0x6cbab23b,
    0x780000e1, 0x000001a5, 0xec654680, 0x6ebeb23b, 0x780000e1, 0x000001a5, 0x6c756680, 0x002cf038,
    0x780000e1, 0x000001a5, 0xed458680, 0x002cf038, 0x78000209, 0x000001a5, 0x6d55a680, 0x450cf239,
    0x78091209, 0x000001a5, 0xed65c680, 0x650cf239, 0x78120309, 0x000001a5, 0x6d75e680, 0x002cf03a,
    0x781b1309, 0x000001a5, 0xeca85b00, 0x002cf03a, 0x78004609, 0x000001a5, 0x6da85b00, 0x002cf23b,
    0x78095609, 0x000001a5, 0xe8015b00, 0x002cf23b, 0x78124709, 0x000001a5, 0x68015b00, 0x002cf038,
    0x781b5709, 0x000001a5, 0xe8015b00, 0x002cf038, 0x78000209, 0x000001a5, 0x68015b00, 0x002cf239,
    0x78091209, 0x000001a5, 0xe8015b00, 0x002cf239, 0x78120309, 0x000001a5, 0x68015b00, 0x002cf03a,
    0x781b1309, 0x000001a5, 0xe8015b00, 0x002cf03a, 0x78004609, 0x000001a5, 0x68015b00, 0x002cf23b,
    0x78095609, 0x000001a5, 0xe8015b00, 0x002cf23b, 0x78124709, 0x000001a5, 0x68015b00, 0x002cf038,
    0x781b5709, 0x000001a5, 0xe8015b00, 0x002cf038, 0x78000209, 0x000001a5, 0x68015b00, 0x002cf239,
    0x78091209, 0x000001a5, 0xe8015b00, 0x002cf239, 0x78120309, 0x000001a5, 0x68015b00, 0x002cf03a,
    0x781b1309, 0x000001a5, 0xe8015b00, 0x002cf03a, 0x78004609, 0x000001a5, 0x68015b00, 0x002cf23b,
    0x78095609, 0x000001a5, 0xe8015b00, 0x002cf293, 0x78124709, 0x000001a5, 0x20015b00, 0x002cf000,
    0x781b5709, 0x000001a5, 0x20015b00, 0x002cf000, 0x78000209, 0x000001a5, 0x20015b00, 0x002cf000,
    0x78091209, 0x000001a5, 0x20015b00, 0x002cf000, 0x78120309, 0x000001a5, 0x20015b00, 0x002cf000,
    0x781b1309, 0x000001a5, 0x20015b00, 0x002cf000, 0x78004609, 0x000001a5, 0x20015b00, 0x002cf000,
    0x78095609, 0x000001a5, 0x20015b00, 0x002cf000, 0x78124709, 0x000001a5, 0x20015b00, 0x4082b000,
    0x781b5709, 0x000001a5, 0x20015b00, 0x4286b000, 0x600000e1, 0x00261000, 0x20015b06, 0x448ab000,
    0x780000e1, 0x000001a5, 0x20015b00, 0x468eb000, 0x780000e1, 0x000001a5, 0x20015b00, 0x6092b000,
    0x780000e1, 0x000001a5, 0x24040680, 0x6296b000, 0x780000e1, 0x000001a5, 0x24142680, 0x649ab000,
    0x780000e1, 0x000001a5, 0x24244680, 0x669eb000, 0xdc00505c, 0x7002868c, 0xd0013390, 0x7002a090,
    0xd001b3d0, 0x7002a294, 0xd0000410, 0x505ca498, 0xa69cdc80, 0x0c450698, 0x0c552698, 0x0000613a,
    0xd00a01ba, 0x70028ca8, 0xd0008450, 0x70028eac, 0xd00184d0, 0x7002a8b0, 0xd0003290, 0x7002aab4,
    0xd000b2d0, 0x7002acb8, 0xd0023550, 0x1818aebc, 0xc6981622, 0xc6981294, 0x000012d6, 0x16621818,
    0xb59078ba, 0xb00a5ffa, 0x11544082, 0x4286b1a0, 0x000020ba, 0xb0000026, 0x7598448a, 0x95980234,
    0xb5980304, 0xd5980314, 0x002c0324, 0x669eb000, 0x139cd698, 0x139f7098, 0x13a75198, 0x00000000,
    0x16a02818, 0x68000084, 0x00000000, 0x00000000, 0x00000000
};
static const uint32_t xo_locks_aie2[27] = {
    0x880003c0, 0x20280003, 0x48000000, 0x0000ffe0, 0x02880055, 0x00550000, 0x00078060, 0xc2600055,
    0x12190007, 0x00011682, 0x00010001, 0x12190001, 0x00011622, 0x00010001, 0x12190001, 0x00011662,
    0x00010001, 0x00010001, 0x00010001, 0x22190001, 0x000116a0, 0x00010001, 0x00950001, 0x00000800,
    0x00010001, 0x00010001, 0x00000001
};
static const uint32_t xo_locks_aie2p[27] = {
    0x780000e1, 0x202801a5, 0x20015b00, 0xffe10000, 0x02a80044, 0x00440000, 0x000780c0, 0xc2c00044,
    0x18180007, 0x00001682, 0x00000000, 0x18180000, 0x00001622, 0x00000000, 0x18180000, 0x00001662,
    0x00000000, 0x00000000, 0x00000000, 0x28180000, 0x000016a0, 0x00000000, 0x00840000, 0x00000800,
    0x00000000, 0x00000000, 0x00000000
};
static const uint32_t xo_scalar_aie2[42] = {
    0x880003c0, 0x20280003, 0x48000000, 0x0000ffe0, 0x02880055, 0x00550000, 0x00078060, 0xc2600055,
    0x12190007, 0x00011682, 0x00010001, 0x12190001, 0x00011622, 0x00010001, 0x88430001, 0x10900003,
    0x00010033, 0x00010001, 0x00000043, 0x00000000, 0x00028c59, 0x01038e59, 0x114bff19, 0x00010001,
    0x00010001, 0x00010001, 0x70990001, 0x8c19118c, 0x01950803, 0x28002840, 0x00010001, 0x00010001,
    0x00010001, 0x00010001, 0x22190001, 0x000116a0, 0x00010001, 0x00950001, 0x00000800, 0x00010001,
    0x00010001, 0x00000001
};
static const uint32_t xo_scalar_aie2p[42] = {
    0x780000e1, 0x202801a5, 0x20015b00, 0xffe10000, 0x02a80044, 0x00440000, 0x000780c0, 0xc2c00044,
    0x18180007, 0x00001682, 0x00000000, 0x18180000, 0x00001622, 0x00000000, 0x607e0000, 0x34af002b,
    0x26621800, 0x002cf000, 0x00000000, 0x00000000, 0x0004d698, 0x011cf698, 0x114bff18, 0x00000000,
    0x00000000, 0x00000000, 0x70980000, 0xd198118c, 0x0184081c, 0x28002840, 0x00000000, 0x00000000,
    0x00000000, 0x00000000, 0x28180000, 0x000016a0, 0x00000000, 0x00840000, 0x00000800, 0x00000000,
    0x00000000, 0x00000000
};
/* end of code */

#define XO_TILE 64u              /* rows, columns and k of a step of a core */
#define XO_STEP_BYTES 4096u      /* of A and of B */
#define XO_ROWS 512u             /* M of every shape */
#define XO_GROUP 256u            /* N is a multiple */
#define XO_LARGEST 8192u         /* K and N; the bridge splits larger products */
#define XO_PRODUCTS 64u          /* most shapes */
#define XO_DEPTH 4               /* buffers of A and of B in a memory tile */
#define XO_CORE_ROWS 4           /* rows of cores of an array, used or not */

/* Core memory, as in tests/npu/matmul.h. */
enum {
    XO_C = 0x0000, XO_C_SIZE = 0x4000, XO_A = 0x8000, XO_A_SIZE = 0x1000, XO_STEPS = 0xb000,
    XO_B = 0xc000,
    XO_A_FREE = 0, XO_A_FULL = 1, XO_B_FREE = 2, XO_B_FULL = 3, XO_C_FREE = 4, XO_C_FULL = 5
};

/* What a configuration and its streams depend on. */
typedef struct xo_design {
    unsigned generation;         /* 3: NPU1; 4: NPU4 to 6 */
    unsigned columns;            /* 1, 2, 4 or 8 */
    unsigned side;               /* of a group: columns, and as many rows; at most 4 */
    unsigned rung;               /* 0: the product; else a rung of the diagnosis, see xo_rung() */
    const uint32_t *code;        /* of the cores */
    uint32_t words;
} xo_design;

static void xo_design_init(xo_design *o, unsigned generation, unsigned columns)
{
    o->generation = generation;
    o->columns = columns;
    o->side = columns < 4 ? columns : 4;
    o->rung = 0;
    o->code = generation == 3 ? xo_code_aie2 : xo_code_aie2p;
    o->words = (uint32_t)((generation == 3 ? sizeof xo_code_aie2 : sizeof xo_code_aie2p) / 4);
}

/* A rung of the diagnosis' ladder: the same configuration for one column with a core that hands
 * over the step of A that it got, and the 12 KiB behind it, as C. Rung 1 does that with locks only,
 * rung 2 adds the words of B to those of A before, in scalar code. */
#define XO_RUNGS 2u

static void xo_rung(xo_design *o, unsigned generation, unsigned rung)
{
    xo_design_init(o, generation, 1);
    o->rung = rung;
    o->code = rung == 1 ? (generation == 3 ? xo_locks_aie2 : xo_locks_aie2p)
                        : (generation == 3 ? xo_scalar_aie2 : xo_scalar_aie2p);
    o->words = (uint32_t)((rung == 1 ? sizeof xo_locks_aie2 : sizeof xo_scalar_aie2) / 4);
}
XA_CHECK(rungs, sizeof xo_locks_aie2 == sizeof xo_locks_aie2p &&
                    sizeof xo_scalar_aie2 == sizeof xo_scalar_aie2p);

/* ---- words ---- */

/* Output of up to room words; count continues past it, so that a first pass measures. */
typedef struct xo_words {
    uint32_t *out;
    size_t room, count;
    uint32_t ops;                /* of a stream */
} xo_words;

static void xo_put(xo_words *w, uint32_t value)
{
    if (w->count < w->room) {
        w->out[w->count] = value;
    }
    w->count++;
}

static void xo_set(xo_words *w, size_t at, uint32_t value)
{
    if (at < w->room) {
        w->out[at] = value;
    }
}

/* The complement of a sum, as the headers of a PDI end with it. */
static void xo_checksum(xo_words *w, size_t from, size_t at)
{
    uint32_t sum = 0;
    size_t i;
    for (i = from; i < at && i < w->room; i++) {
        sum += w->out[i];
    }
    xo_set(w, at, ~sum);
}

/* ---- configuration commands (CDO) ---- */

static uint32_t xo_address(unsigned column, unsigned row, uint32_t offset)
{
    return (uint32_t)column << 25 | (uint32_t)row << 20 | offset;
}

static void xo_write(xo_words *w, uint32_t address, uint32_t value)
{
    xo_put(w, 2u << 16 | 0x103);
    xo_put(w, address);
    xo_put(w, value);
}

static void xo_mask_write(xo_words *w, uint32_t address, uint32_t mask, uint32_t value)
{
    xo_put(w, 3u << 16 | 0x102);
    xo_put(w, address);
    xo_put(w, mask);
    xo_put(w, value);
}

/* The loader copies the data of a block by DMA: it begins at a multiple of 16 bytes. */
static void xo_block(xo_words *w, uint32_t address, const uint32_t *data, uint32_t words)
{
    uint32_t payload = words + 2, i;
    size_t head = payload < 255 ? 3 : 4;
    while ((w->count + head) % 4 != 0) {
        xo_put(w, 0x111); /* no operation */
    }
    xo_put(w, (payload < 255 ? payload : 255u) << 16 | 0x105);
    if (payload >= 255) {
        xo_put(w, payload);
    }
    xo_put(w, 0);
    xo_put(w, address);
    for (i = 0; i < words; i++) {
        xo_put(w, data[i]);
    }
}

/* ---- descriptors ---- */

typedef struct xo_part {
    unsigned bd, next;           /* of a ring */
    uint32_t base, length;       /* words */
    unsigned acquire, release;   /* locks, by one */
    unsigned order;              /* index into xo_orders */
} xo_part;

/* Orders in which a memory tile sends what it holds: words that follow each other, then up to three
 * more dimensions with their steps in words; the last one continues to the end. */
static const struct {
    uint8_t wrap[3];
    uint16_t step[4];
} xo_orders[] = {
    {{0, 0, 0}, {1, 1, 1, 1}},     /* as it lies */
    {{2, 4, 8}, {1, 16, 2, 64}},   /* A for AIE2: 4 rows x 8 bytes of rows of 64 bytes */
    {{2, 16, 8}, {1, 16, 2, 256}}, /* A for AIE2P: 16 rows x 8 bytes */
    {{8, 8, 8}, {1, 64, 8, 512}}   /* C of AIE2P: rows of 64 results from parts of 8 x 8 */
};
enum { XO_AS_IT_LIES, XO_ORDER_A, XO_ORDER_A_AIE2P, XO_ORDER_C_AIE2P };

static void xo_core_descriptor(xo_words *w, unsigned column, unsigned row, const xo_part *p)
{
    uint32_t words[6] = {0, 0, 0, 0, 0, 0};
    words[0] = p->base << 14 | p->length;
    words[5] = 1u << 25 | 1u << 26 | (uint32_t)p->next << 27 | (uint32_t)p->acquire | 0x7fu << 5 |
               1u << 12 | (uint32_t)p->release << 13 | 1u << 18;
    xo_block(w, xo_address(column, row, 0x1d000 + 0x20 * (uint32_t)p->bd), words, 6);
}

/* A memory tile's own memory begins at word 0x20000 and its own locks at 64: before them are those
 * of the tile to the west. */
static void xo_memory_descriptor(xo_words *w, unsigned column, const xo_part *p)
{
    uint32_t words[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    unsigned i;
    words[0] = p->length;
    words[1] = (0x20000 + p->base) | 1u << 19 | (uint32_t)p->next << 20;
    words[7] = 1u << 31 | (uint32_t)(64 + p->acquire) | 0x7fu << 8 | 1u << 15 |
               (uint32_t)(64 + p->release) << 16 | 1u << 24;
    for (i = 0; p->order != XO_AS_IT_LIES && i < 4; i++) {
        words[2 + i] = (xo_orders[p->order].step[i] - 1u) |
                       (i < 3 ? (uint32_t)xo_orders[p->order].wrap[i] << 17 : 0);
    }
    xo_block(w, xo_address(column, 1, 0xa0000 + 0x20 * (uint32_t)p->bd), words, 8);
}

/* ---- tiles ---- */

/* Ports of stream switches, by their registers. M: master (out of the switch), S: slave. */
enum {
    XO_CORE_M_DMA0 = 1, XO_CORE_M_SOUTH0 = 5, XO_CORE_M_WEST0 = 9, XO_CORE_M_NORTH0 = 13,
    XO_CORE_M_EAST0 = 19,
    XO_CORE_S_DMA0 = 1, XO_CORE_S_SOUTH0 = 5, XO_CORE_S_WEST0 = 11, XO_CORE_S_NORTH0 = 15,
    XO_CORE_S_EAST0 = 19,
    XO_MEM_M_DMA0 = 0, XO_MEM_M_SOUTH0 = 7, XO_MEM_M_NORTH0 = 11,
    XO_MEM_S_DMA0 = 0, XO_MEM_S_SOUTH0 = 7, XO_MEM_S_NORTH0 = 13,
    XO_SHIM_M_SOUTH0 = 2, XO_SHIM_M_NORTH0 = 12, XO_SHIM_S_CTRL = 0, XO_SHIM_S_SOUTH0 = 2,
    XO_SHIM_S_NORTH0 = 14
};

static void xo_connect(xo_words *w, unsigned column, unsigned row, unsigned master, unsigned slave)
{
    uint32_t base = row == 1 ? 0xb0000 : 0x3f000;
    xo_write(w, xo_address(column, row, base + 4 * (uint32_t)master), 1u << 31 | (uint32_t)slave);
    xo_write(w, xo_address(column, row, base + 0x100 + 4 * (uint32_t)slave), 1u << 31);
}

static void xo_lock(xo_words *w, unsigned column, unsigned row, unsigned lock, uint32_t value)
{
    xo_write(w, xo_address(column, row, (row == 1 ? 0xc0000u : 0x1f000u) + 0x10 * (uint32_t)lock),
             value);
}

/* Bit 1 of a core's control register and of those of DMA channels is its reset, which ends what
 * an earlier job has left running or queued. value 2: into reset; 0: out of it. */
static void xo_reset_column(xo_words *w, unsigned column, uint32_t value)
{
    static const uint32_t of_core[5] = {0x32000, 0x1de00, 0x1de08, 0x1de10, 0x1de18};
    unsigned row, i;
    for (row = 2; row < 2 + XO_CORE_ROWS; row++) {
        if (value != 0) {
            xo_mask_write(w, xo_address(column, row, 0x32000), 1, 0); /* disable */
        }
        for (i = 0; i < 5; i++) {
            xo_mask_write(w, xo_address(column, row, of_core[i]), 2, value);
        }
    }
    for (i = 0; i < 12; i++) { /* six channels into the memory tile, six out of it */
        xo_mask_write(w, xo_address(column, 1, 0xa0600 + 8 * (uint32_t)i), 2, value);
    }
}

static void xo_core_streams(xo_words *w, const xo_design *o, unsigned column, unsigned r)
{
    unsigned row = r + 2, c = column % o->side, above;
    unsigned from = c > r   ? XO_CORE_S_WEST0
                    : c < r ? XO_CORE_S_EAST0 : XO_CORE_S_SOUTH0;
    xo_connect(w, column, row, XO_CORE_M_DMA0, from); /* A comes up in column r, goes both ways */
    if (c >= r && c + 1 < o->side) {
        xo_connect(w, column, row, XO_CORE_M_EAST0, from);
    }
    if (c <= r && c > 0) {
        xo_connect(w, column, row, XO_CORE_M_WEST0, from);
    }
    if (r < c) { /* A of a row above passes */
        xo_connect(w, column, row, XO_CORE_M_NORTH0, XO_CORE_S_SOUTH0);
    }
    xo_connect(w, column, row, XO_CORE_M_DMA0 + 1, XO_CORE_S_SOUTH0 + 1);
    if (r + 1 < o->side) {
        xo_connect(w, column, row, XO_CORE_M_NORTH0 + 1, XO_CORE_S_SOUTH0 + 1);
    }
    xo_connect(w, column, row, XO_CORE_M_SOUTH0 + r, XO_CORE_S_DMA0);
    for (above = r + 1; above < o->side; above++) {
        xo_connect(w, column, row, XO_CORE_M_SOUTH0 + above, XO_CORE_S_NORTH0 + above);
    }
}

static void xo_core_tile(xo_words *w, const xo_design *o, unsigned column, unsigned r)
{
    static const uint8_t counts[6] = {2, 0, 2, 0, 2, 0};
    static const uint32_t zeros[0x160 / 4];
    static const xo_part parts[6] = {
        {0, 1, XO_A / 4, XO_A_SIZE / 4, XO_A_FREE, XO_A_FULL, 0},
        {1, 0, (XO_A + XO_A_SIZE) / 4, XO_A_SIZE / 4, XO_A_FREE, XO_A_FULL, 0},
        {2, 3, XO_B / 4, XO_A_SIZE / 4, XO_B_FREE, XO_B_FULL, 0},
        {3, 2, (XO_B + XO_A_SIZE) / 4, XO_A_SIZE / 4, XO_B_FREE, XO_B_FULL, 0},
        {4, 5, XO_C / 4, XO_C_SIZE / 4, XO_C_FULL, XO_C_FREE, 0},
        {5, 4, (XO_C + XO_C_SIZE) / 4, XO_C_SIZE / 4, XO_C_FULL, XO_C_FREE, 0}
    };
    const uint32_t most = sizeof zeros / sizeof *zeros;
    unsigned row = r + 2, i;
    /* Loads behind the first buffer of A may come before the second one has arrived. */
    uint32_t left = o->rung == 0 ? most : (XO_C_SIZE - XO_A_SIZE) / 4, at = XO_A + XO_A_SIZE;
    xo_block(w, xo_address(column, row, 0x20000), o->code, o->words);
    while (left > 0) {
        uint32_t words = left < most ? left : most;
        xo_block(w, xo_address(column, row, at), zeros, words);
        at += 4 * words;
        left -= words;
    }
    for (i = 0; i < 16; i++) {
        xo_lock(w, column, row, i, i < 6 ? counts[i] : 0);
    }
    for (i = 0; i < 6; i++) {
        xo_part part = parts[i];
        part.base = o->rung > 0 && i >= 4 ? XO_A / 4 : part.base;
        xo_core_descriptor(w, column, row, &part);
    }
    xo_core_streams(w, o, column, r);
    xo_write(w, xo_address(column, row, 0x1de04), 0); /* start the rings */
    xo_write(w, xo_address(column, row, 0x1de0c), 2);
    xo_write(w, xo_address(column, row, 0x1de14), 4);
}

/* Memory tiles: 4 KiB that are not used, because firmware may write to the first word at any time,
 * then buffers of A, of B, and two of C for each row of cores; a pair of locks for each (free,
 * full). */
enum {
    XO_MEMORY_A = 0x1000 / 4, XO_MEMORY_B = XO_MEMORY_A + XO_DEPTH * XO_A_SIZE / 4, /* words */
    XO_MEMORY_C = XO_MEMORY_B + XO_DEPTH * XO_A_SIZE / 4,
    XO_MEMORY_LOCKS = 64, XO_LOCK_A = 0, XO_LOCK_B = 2, XO_LOCK_C = 4
};

/* A ring of buffers that one channel fills and another one sends. Channels with even numbers may
 * use descriptors 0 to 23, those with odd numbers 24 to 47. */
static void xo_memory_ring(xo_words *w, unsigned column, unsigned first, uint32_t base,
                           unsigned lock, unsigned order)
{
    const uint32_t size = XO_A_SIZE / 4;
    unsigned i;
    for (i = 0; i < XO_DEPTH; i++) {
        xo_part part;
        part.bd = first + i;
        part.next = first + (i + 1) % XO_DEPTH;
        part.base = base + (uint32_t)i * size;
        part.length = size;
        part.acquire = lock;
        part.release = lock + 1;
        part.order = XO_AS_IT_LIES;
        xo_memory_descriptor(w, column, &part);
        part.bd += XO_DEPTH;
        part.next += XO_DEPTH;
        part.acquire = lock + 1;
        part.release = lock;
        part.order = order;
        xo_memory_descriptor(w, column, &part);
    }
}

/* Rows of cores whose results the shim's channel 0 takes; channel 1 takes the others. */
static unsigned xo_lower_rows(const xo_design *o)
{
    return (o->side + 1) / 2;
}

/* Sends C of the rows [from, to): first buffers of all rows, then second ones. */
static void xo_memory_send_c(xo_words *w, const xo_design *o, unsigned column, unsigned from,
                             unsigned to)
{
    const uint32_t size = XO_C_SIZE / 4;
    unsigned first = from == 0 ? 16 : 40, rows = to - from, i;
    for (i = 0; i < 2 * rows; i++) {
        unsigned r = from + i % rows;
        xo_part part;
        part.bd = first + i;
        part.next = first + (i + 1) % (2 * rows);
        part.base = XO_MEMORY_C + (uint32_t)(2 * r + i / rows) * size;
        part.length = size;
        part.acquire = XO_LOCK_C + 2 * r + 1;
        part.release = XO_LOCK_C + 2 * r;
        part.order = o->generation == 3 ? XO_AS_IT_LIES : XO_ORDER_C_AIE2P;
        xo_memory_descriptor(w, column, &part);
    }
    if (rows > 0) {
        xo_write(w, xo_address(column, 1, 0xa0634 + 8 * (from == 0 ? 2u : 3u)), first);
    }
}

static void xo_memory_c(xo_words *w, const xo_design *o, unsigned column)
{
    const uint32_t size = XO_C_SIZE / 4;
    unsigned r, i;
    for (r = 0; r < o->side; r++) {
        unsigned channel = 2 + r, first = channel % 2 == 0 ? 8 + r : 32 + r;
        for (i = 0; i < 2; i++) {
            xo_part part;
            part.bd = first + i;
            part.next = first + 1 - i;
            part.base = XO_MEMORY_C + (uint32_t)(2 * r + i) * size;
            part.length = size;
            part.acquire = XO_LOCK_C + 2 * r;
            part.release = XO_LOCK_C + 2 * r + 1;
            part.order = XO_AS_IT_LIES;
            xo_memory_descriptor(w, column, &part);
        }
        xo_write(w, xo_address(column, 1, 0xa0604 + 8 * (uint32_t)channel), first);
    }
    xo_memory_send_c(w, o, column, 0, xo_lower_rows(o));
    xo_memory_send_c(w, o, column, xo_lower_rows(o), o->side);
}

static void xo_memory_tile(xo_words *w, const xo_design *o, unsigned column)
{
    unsigned r, i;
    for (i = 0; i < XO_MEMORY_LOCKS; i++) {
        uint32_t free_buffers = i < XO_LOCK_C ? XO_DEPTH : i < XO_LOCK_C + 2 * o->side ? 2 : 0;
        xo_lock(w, column, 1, i, i % 2 == 0 ? free_buffers : 0);
    }
    for (r = 0; r < o->side; r++) {
        xo_connect(w, column, 1, XO_MEM_M_DMA0 + 2 + r, XO_MEM_S_NORTH0 + r);
    }
    xo_memory_ring(w, column, 0, XO_MEMORY_A, XO_LOCK_A,
                   o->generation == 3 ? XO_ORDER_A : XO_ORDER_A_AIE2P);
    xo_memory_ring(w, column, 24, XO_MEMORY_B, XO_LOCK_B, XO_AS_IT_LIES);
    xo_memory_c(w, o, column);
    xo_connect(w, column, 1, XO_MEM_M_DMA0, XO_MEM_S_SOUTH0);
    xo_connect(w, column, 1, XO_MEM_M_DMA0 + 1, XO_MEM_S_SOUTH0 + 1);
    xo_connect(w, column, 1, XO_MEM_M_NORTH0, XO_MEM_S_DMA0);
    xo_connect(w, column, 1, XO_MEM_M_NORTH0 + 1, XO_MEM_S_DMA0 + 1);
    xo_connect(w, column, 1, XO_MEM_M_SOUTH0 + 2, XO_MEM_S_DMA0 + 2);
    xo_connect(w, column, 1, XO_MEM_M_SOUTH0 + 3, XO_MEM_S_DMA0 + 3);
    xo_write(w, xo_address(column, 1, 0xa0604), 0);
    xo_write(w, xo_address(column, 1, 0xa060c), 24);
    xo_write(w, xo_address(column, 1, 0xa0634), XO_DEPTH);
    xo_write(w, xo_address(column, 1, 0xa063c), 24 + XO_DEPTH);
}

static void xo_shim_tile(xo_words *w, unsigned column)
{
    xo_connect(w, column, 0, XO_SHIM_M_NORTH0, XO_SHIM_S_SOUTH0 + 3);     /* MM2S 0: A */
    xo_connect(w, column, 0, XO_SHIM_M_NORTH0 + 1, XO_SHIM_S_SOUTH0 + 7); /* MM2S 1: B */
    xo_connect(w, column, 0, XO_SHIM_M_SOUTH0 + 2, XO_SHIM_S_NORTH0 + 2); /* S2MM 0: C */
    xo_connect(w, column, 0, XO_SHIM_M_SOUTH0 + 3, XO_SHIM_S_NORTH0 + 3); /* S2MM 1: C */
    /* completion tokens: packets of the control port, to SOUTH 0 */
    xo_write(w, xo_address(column, 0, 0x3f000 + 4 * XO_SHIM_M_SOUTH0), 0xc0000045);
    xo_write(w, xo_address(column, 0, 0x3f100 + 4 * XO_SHIM_S_CTRL), 0xc0000000);
    xo_write(w, xo_address(column, 0, 0x3f200), 0x0f1f0135);
    /* SOUTH 3 and 7 are the DMA's, and so are SOUTH 2 and 3 back. */
    xo_mask_write(w, xo_address(column, 0, 0x1f000), 0x00000c00, 0x00000400);
    xo_mask_write(w, xo_address(column, 0, 0x1f000), 0x0000c000, 0x00004000);
    xo_mask_write(w, xo_address(column, 0, 0x1f004), 0x000000f0, 0x00000050);
}

/* ---- the PDI ---- */

/* Words at which its parts begin. */
enum { XO_IMAGE_TABLE = 0x04, XO_IMAGE = 0x24, XO_PARTITION = 0x34, XO_CDO = 0x54 };

static void xo_pdi_headers(xo_words *w, uint32_t cdo_words)
{
    static const struct { uint16_t at; uint32_t value; } fixed[] = {
        {0x00, 0xdd}, {0x01, 0x11223344}, {0x02, 0x55667788}, {0x03, 0x99aabbcc},
        {XO_IMAGE_TABLE, 0x40000}, {0x05, 1}, {0x06, XO_IMAGE}, {0x07, 1}, {0x08, XO_PARTITION},
        {0x0a, 0x14ca8093}, {0x0e, 0x50504449}, {0x0f, 0x201020}, {0x10, 0x30}, {0x15, 1},
        {XO_IMAGE, XO_PARTITION}, {0x25, 1}, {0x28, 0x5f656961}, {0x29, 0x67616d69}, {0x2a, 0x65},
        {0x2c, 0x1c000000}, {0x3a, 0xffffffff}, {0x3b, 0xffffffff}, {0x3c, XO_CDO},
        {0x3d, 0x02000006}, {0x3e, 1}
    };
    uint32_t padded = (cdo_words + 3) / 4 * 4;
    size_t i;
    for (i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        xo_set(w, fixed[i].at, fixed[i].value);
    }
    xo_set(w, XO_PARTITION, padded);
    xo_set(w, XO_PARTITION + 1, cdo_words);
    xo_set(w, XO_PARTITION + 2, padded);
    xo_checksum(w, XO_IMAGE_TABLE, XO_IMAGE - 1);
    xo_checksum(w, XO_IMAGE, XO_PARTITION - 1);
    xo_checksum(w, XO_PARTITION, XO_CDO - 1);
}

/* Writes the PDI; returns its words, which may be more than room. */
static size_t xo_pdi(const xo_design *o, uint32_t *out, size_t room)
{
    static const uint32_t head[5] = {4, 0x004f4443, 0x200, 0, 0}; /* "CDO", version 2.0 */
    xo_words w;
    unsigned c, r;
    uint32_t words;
    memset(&w, 0, sizeof w);
    w.out = out;
    w.room = room;
    while (w.count < XO_CDO) {
        xo_put(&w, 0);
    }
    for (c = 0; c < 5; c++) {
        xo_put(&w, head[c]);
    }
    for (r = 0; r < 2; r++) { /* all tiles, before any of them is free to send again */
        for (c = 0; c < o->columns; c++) {
            xo_reset_column(&w, c, r == 0 ? 2 : 0);
        }
    }
    for (c = 0; c < o->columns; c++) {
        for (r = 0; r < o->side; r++) {
            xo_core_tile(&w, o, c, r);
        }
        xo_memory_tile(&w, o, c);
        xo_shim_tile(&w, c);
    }
    for (c = 0; c < o->columns; c++) {
        for (r = 0; r < o->side; r++) {
            xo_mask_write(&w, xo_address(c, r + 2, 0x32000), 1, 1); /* enable */
        }
    }
    words = (uint32_t)(w.count - XO_CDO);
    xo_set(&w, XO_CDO + 3, words - 5);
    xo_checksum(&w, XO_CDO, XO_CDO + 4);
    while ((w.count - XO_CDO) % 4 != 0) {
        xo_put(&w, 0);
    }
    xo_pdi_headers(&w, words);
    return w.count;
}

/* ---- instruction streams ---- */

static void xo_stream_write(xo_words *w, uint32_t address, uint32_t value)
{
    xo_put(w, 0);
    xo_put(w, 0);
    xo_put(w, address);
    xo_put(w, 0);
    xo_put(w, value);
    xo_put(w, 24);
    w->ops++;
}

static void xo_stream_mask_write(xo_words *w, uint32_t address, uint32_t value, uint32_t mask)
{
    xo_put(w, 3);
    xo_put(w, 0);
    xo_put(w, address);
    xo_put(w, 0);
    xo_put(w, value);
    xo_put(w, mask);
    xo_put(w, 28);
    w->ops++;
}

/* A transfer between host memory and a shim channel: descriptor, address and task. */
typedef struct xo_transfer {
    unsigned column, bd, argument, token;
    uint32_t queue;              /* register of the channel's task queue */
    uint32_t runs;               /* of the descriptor, 1 to 256 */
    uint64_t offset;             /* bytes */
    uint32_t length, step[3], wrap[2]; /* words; wrap 0: goes on to the end */
} xo_transfer;

static void xo_stream_transfer(xo_words *w, const xo_design *o, const xo_transfer *t)
{
    uint32_t burst = o->generation == 3 ? 2 : 3; /* 256 bytes; 512, which AIE2 does not have */
    uint32_t at = xo_address(t->column, 0, 0x1d000 + 0x20 * (uint32_t)t->bd);
    uint32_t words[24];
    unsigned i;
    memset(words, 0, sizeof words);
    words[0] = 1; /* block write */
    words[2] = at;
    words[3] = 48;
    words[4] = t->length;
    words[7] = (t->step[0] - 1) | t->wrap[0] << 20;
    words[8] = (t->step[1] - 1) | t->wrap[1] << 20 | burst << 30;
    words[9] = (t->step[2] - 1) | 2u << 24;
    words[11] = 1u << 25;
    words[12] = 0x81; /* address patch */
    words[13] = 48;
    words[18] = at + 4;
    words[20] = (uint32_t)t->argument;
    words[22] = (uint32_t)t->offset;
    words[23] = (uint32_t)(t->offset >> 32);
    for (i = 0; i < 24; i++) {
        xo_put(w, words[i]);
    }
    w->ops += 2;
    if (t->token) {
        xo_stream_mask_write(w, xo_address(t->column, 0, t->queue - 4), 0xf00, 0x1f00);
    }
    xo_stream_write(w, xo_address(t->column, 0, t->queue),
                    (uint32_t)t->bd | (t->runs - 1) << 16 | (uint32_t)t->token << 31);
}

static void xo_stream_wait(xo_words *w, unsigned column, unsigned channel)
{
    xo_put(w, 0x80);
    xo_put(w, 16);
    xo_put(w, (uint32_t)column << 16); /* from the array to host memory */
    xo_put(w, (uint32_t)channel << 24 | 1u << 16 | 1u << 8);
    w->ops++;
}

/* All of B for this column, once for each group of rows of A: 64 n after 64 n. */
static void xo_send_b(xo_words *w, const xo_design *o, const xp_kernel *p, unsigned column)
{
    uint32_t step = XO_TILE * p->k / 4; /* words of 64 n */
    xo_transfer t;
    memset(&t, 0, sizeof t);
    t.column = column;
    t.bd = 8;
    t.argument = p->b_arg;
    t.queue = 0x1d21c;
    t.runs = p->m / (XO_TILE * o->columns);
    t.offset = (uint64_t)(column % o->side) * step * 4;
    t.length = p->n / (XO_TILE * o->side) * step;
    t.step[0] = 1;
    t.wrap[0] = 256;
    t.step[1] = 256;
    t.wrap[1] = step / 256;
    t.step[2] = o->side * step;
    xo_stream_transfer(w, o, &t);
}

/* The first of the rows that a column's group of columns computes in a turn. */
static uint32_t xo_first_row(const xo_design *o, unsigned column, uint32_t turn)
{
    return (turn * o->columns + column / o->side * o->side) * XO_TILE;
}

/* 64 rows of A in steps of 64 bytes, once for each group of columns of B. */
static void xo_send_a(xo_words *w, const xo_design *o, const xp_kernel *p, unsigned column,
                      uint32_t turn)
{
    xo_transfer t;
    memset(&t, 0, sizeof t);
    t.column = column;
    t.bd = turn % 4;
    t.argument = p->a_arg;
    t.queue = 0x1d214;
    t.runs = p->n / (XO_TILE * o->side);
    t.offset = (uint64_t)(xo_first_row(o, column, turn) + column % o->side * XO_TILE) * p->k;
    t.length = XO_TILE * p->k / 4;
    t.step[0] = 1;
    t.wrap[0] = XO_TILE / 4;
    t.step[1] = p->k / 4;
    t.wrap[1] = XO_TILE;
    t.step[2] = XO_TILE / 4;
    xo_stream_transfer(w, o, &t);
}

/* C of a turn: the rows of the lower cores by channel 0, the others by channel 1. */
static void xo_take_c(xo_words *w, const xo_design *o, const xp_kernel *p, unsigned column,
                      uint32_t turn)
{
    unsigned low = xo_lower_rows(o), half;
    for (half = 0; half < 2 && half * low < o->side; half++) {
        uint32_t rows = XO_TILE * (half == 0 ? low : o->side - low);
        uint64_t first = xo_first_row(o, column, turn) + half * low * XO_TILE;
        xo_transfer t;
        memset(&t, 0, sizeof t);
        t.column = column;
        t.bd = 4 + turn % 2 + 2 * half;
        t.argument = p->c_arg;
        t.token = 1;
        t.queue = half == 0 ? 0x1d204 : 0x1d20c;
        t.runs = 1;
        t.offset = (first * p->n + (uint64_t)(column % o->side) * XO_TILE) * 4;
        t.length = p->n / o->side * rows;
        t.step[0] = 1;
        t.wrap[0] = XO_TILE;
        t.step[1] = p->n;
        t.wrap[1] = rows;
        t.step[2] = XO_TILE * o->side;
        xo_stream_transfer(w, o, &t);
    }
}

static void xo_wait_c(xo_words *w, const xo_design *o)
{
    unsigned c;
    for (c = 0; c < o->columns; c++) {
        xo_stream_wait(w, c, 0);
        if (o->columns > 1) {
            xo_stream_wait(w, c, 1);
        }
    }
}

/* Writes the stream of a kernel whose sizes and arguments are set; returns its words, which may be
 * more than room. m is a multiple of 64 columns, n of 64 sides, k of 64. */
static size_t xo_stream(const xo_design *o, const xp_kernel *p, uint32_t *out, size_t room)
{
    uint32_t turns = p->m / (XO_TILE * o->columns), t;
    unsigned c, r;
    xo_words w;
    memset(&w, 0, sizeof w);
    w.out = out;
    w.room = room;
    w.count = 4;
    for (c = 0; c < o->columns; c++) {
        for (r = 0; r < o->side; r++) {
            xo_stream_write(&w, xo_address(c, r + 2, XO_STEPS), p->k / XO_TILE);
        }
    }
    for (c = 0; c < o->columns; c++) {
        xo_send_b(&w, o, p, c);
    }
    for (t = 0; t < turns; t++) {
        if (t >= 2) {
            xo_wait_c(&w, o); /* of t - 2: a queue holds four tasks */
        }
        for (c = 0; c < o->columns; c++) {
            xo_send_a(&w, o, p, c, t);
            xo_take_c(&w, o, p, c, t);
        }
    }
    for (t = turns < 2 ? turns : 2; t > 0; t--) {
        xo_wait_c(&w, o);
    }
    xo_set(&w, 0, 6u << 24 | (uint32_t)o->generation << 16 | 0x0100); /* 6 rows, version 0.1 */
    xo_set(&w, 1, 1u << 8 | o->columns);
    xo_set(&w, 2, w.ops);
    xo_set(&w, 3, (uint32_t)w.count * 4);
    return w.count;
}

/* What a product takes on a simulated array, within 3 % of the count: the array fills, computes its
 * first tiles, then results leave while the next tiles are computed, and the last results leave.
 * Host memory answers at once there. */
static uint64_t xo_cycles(const xo_design *o, const xp_kernel *p)
{
    uint64_t fill = o->generation == 3 ? 6050 : 6250, step = o->generation == 3 ? 1384 : 1066;
    uint64_t compute = p->k / XO_TILE * step;
    uint64_t leave = (uint64_t)xo_lower_rows(o) * XO_C_SIZE / 4;
    uint64_t tiles = (uint64_t)(p->m / (XO_TILE * o->columns)) * (p->n / (XO_TILE * o->side));
    if (o->rung > 0) {
        return o->rung == 1 ? 10255 : 28687; /* of both generations */
    }
    return fill + compute + leave + (tiles - 1) * (compute > leave ? compute : leave);
}

/* Copies B [n, k] into the tiles of a kernel's [N, K], which are
 * [N / 64][K / 64][4 n16][8 k8][2 n8][8 k][8 n]; the rest is not touched. */
static void xo_pack_b(const xp_kernel *p, uint8_t *to, uint32_t n, uint32_t k, const int8_t *b,
                      size_t ldb)
{
    uint32_t i, j;
    for (j = 0; j < n; j++) {
        uint8_t *column = to + (size_t)(j / XO_TILE) * p->k * XO_TILE + j % 64 / 16 * 1024 +
                          j % 16 / 8 * 64 + j % 8;
        const int8_t *from = b + j * ldb;
        for (i = 0; i < k; i++) {
            column[(size_t)(i / XO_TILE) * XO_STEP_BYTES + i % 64 / 8 * 128 + i % 8 * 8] =
                (uint8_t)from[i];
        }
    }
}

/* ---- the pack ---- */

static void xo_add_kernel(xp_pack *pack, uint32_t m, uint32_t n, uint32_t k)
{
    xp_kernel *p = &pack->kernels[pack->n_kernels];
    xu_print(p->id, sizeof p->id, "gemm-%lux%lux%lu", (unsigned long)m, (unsigned long)k,
             (unsigned long)n);
    xu_print(p->verified, sizeof p->verified, "emulator");
    p->m = m;
    p->n = n;
    p->k = k;
    p->tile_m = p->tile_n = p->tile_k = XO_TILE;
    p->a_bytes = p->b_bytes = 1;
    p->b_layout = XP_TILES;
    p->b_arg = 1;
    p->c_arg = 2;
    p->c_direction = XT_OUT;
    pack->n_kernels++;
}

/* Adds the shape that covers products [any m, n, k], unless it is there already. */
static void xo_add(xp_pack *pack, uint32_t n, uint32_t k)
{
    unsigned i;
    n = n > XO_LARGEST ? XO_LARGEST : (uint32_t)xu_round_up(n, XO_GROUP);
    k = k > XO_LARGEST ? XO_LARGEST : (uint32_t)xu_round_up(k, XO_TILE);
    for (i = 0; i < pack->n_kernels; i++) {
        if (pack->kernels[i].n == n && pack->kernels[i].k == k) {
            return;
        }
    }
    xo_add_kernel(pack, XO_ROWS, n, k);
}

/* Shapes for the configuration's products, or a choice that serves any. */
static int xo_shapes(xp_pack *pack, const wnpu_amdxdna_config *config, wnpu_error *error)
{
    uint32_t i;
    if (config->n_products > XO_PRODUCTS || (config->n_products > 0 && config->products == NULL)) {
        return xu_fail(error, WNPU_E_ARGUMENT, "products is NULL, or more than %u", XO_PRODUCTS);
    }
    for (i = 0; i < config->n_products; i++) {
        if (config->products[i].n == 0 || config->products[i].k == 0) {
            return xu_fail(error, WNPU_E_ARGUMENT, "product %lu is empty", (unsigned long)i);
        }
        xo_add(pack, config->products[i].n, config->products[i].k);
    }
    if (config->n_products == 0) { /* base's, of which any other can be put together */
        xo_add(pack, 512, 512);
        xo_add(pack, 2048, 512);
        xo_add(pack, 512, 2048);
    }
    return WNPU_OK;
}

/* Writes the configuration and the streams. */
static int xo_generate(xp_pack *pack, const xo_design *design, wnpu_error *error)
{
    xp_overlay *o = &pack->overlays[0];
    unsigned i;
    int code = WNPU_OK;
    o->size = xo_pdi(design, NULL, 0) * 4;
    o->data = xu_alloc(&pack->allocator, o->size);
    for (i = 0; i < pack->n_kernels && o->data != NULL; i++) {
        xp_kernel *p = &pack->kernels[i];
        p->bytes = xo_stream(design, p, NULL, 0) * 4;
        p->data = xu_alloc(&pack->allocator, p->bytes);
        if (p->data == NULL) {
            break;
        }
        (void)xo_stream(design, p, (uint32_t *)(void *)p->data, p->bytes / 4);
        p->cycles = xo_cycles(design, p);
    }
    if (o->data == NULL || i < pack->n_kernels) {
        return xu_fail(error, WNPU_E_MEMORY, "out of memory for the built-in kernels");
    }
    (void)xo_pdi(design, (uint32_t *)(void *)o->data, o->size / 4);
    code = xc_pdi(&o->image, o->data, o->size, error);
    for (i = 0; i < pack->n_kernels && code == WNPU_OK; i++) {
        code = xp_check_kernel(pack, &pack->kernels[i], error);
    }
    return code;
}

/* The built-in kernels as a pack. design NULL: shapes only, to compute memory. */
static int xo_open(xp_pack **out, const wnpu_amdxdna_config *config, const xo_design *design,
                   const wnpu_allocator *allocator, wnpu_error *error)
{
    xp_pack *pack = xu_alloc(allocator, sizeof *pack);
    int code;
    *out = NULL;
    if (pack == NULL) {
        return xu_fail(error, WNPU_E_MEMORY, "out of memory for the built-in kernels");
    }
    pack->allocator = *allocator;
    xu_print(pack->name, sizeof pack->name, "built-in");
    xu_print(pack->licence, sizeof pack->licence, "MIT");
    pack->n_overlays = 1;
    xu_print(pack->overlays[0].id, sizeof pack->overlays[0].id, "gemm");
    pack->overlays[0].is_pdi = 1;
    pack->overlays[0].needed = 1;
    pack->overlays[0].ops_per_cycle = 2048;
    if (design != NULL && design->rung > 0) {
        xo_add_kernel(pack, XO_TILE, XO_TILE, XO_TILE);
        code = WNPU_OK;
    } else {
        code = xo_shapes(pack, config, error);
    }
    if (code == WNPU_OK && design != NULL) {
        pack->generation = design->generation;
        pack->columns = design->columns;
        pack->overlays[0].image.columns = design->columns;
        xu_print(pack->device, sizeof pack->device, "%s", design->generation == 3 ? "npu1"
                                                                                  : "npu2");
        code = xo_generate(pack, design, error);
    }
    if (code != WNPU_OK) {
        xp_close(pack);
        return code;
    }
    *out = pack;
    return WNPU_OK;
}
/* ======================================================================
 *  8. xd_  the device
 *
 *  Owns      the node's file descriptor, the properties of device, driver
 *            and firmware, the calling of ioctls.
 *  Assumes   nothing: nodes of other vendors share the directory.
 *  Ensures   an error is returned with its typed cause; only EINTR is
 *            retried (libdrm's drmIoctl also loops on EAGAIN, which this
 *            driver returns as a real error). The descriptor is never
 *            duplicated and not inherited by exec: up to Linux 6.19
 *            closing any copy ends every context.
 *  Costs     opening tries up to 256 node names.
 * ====================================================================== */
enum { XD_NPU1 = 1, XD_NPU4 = 4, XD_NPU5 = 5, XD_NPU6 = 6 };

typedef struct xd_device {
    int fd;                      /* -1: closed */
    pid_t pid;                   /* the process that opened it */
    int kind;                    /* 1, 4, 5, 6 */
    unsigned pci_device, pci_revision; /* 0 without sysfs */
    unsigned columns;            /* most that a partition may have */
    unsigned core_rows;
    struct xa_metadata layout;   /* of the array, as the firmware tells it */
    int major, minor;            /* of the driver's interface */
    int chains;                  /* 1: command chains report errors correctly */
    int has_firmware;
    struct xa_firmware firmware;
    char node[64];
    char name[80];
} xd_device;

/* A failure: an error for the caller and a cause for the diagnosis. */
typedef struct xd_why {
    wnpu_error *error;
    int cause;                   /* wnpu_amdxdna_cause */
    int err;                     /* of a failed system call */
    int diagnosing;              /* by wnpu_amdxdna_diagnose: there is time to ask the device */
} xd_why;

/* Steps of opening, for the mapping from errno to cause; recorded machines use these names. */
static const char *const xd_steps[] = {
    "open", "version", "metadata", "heap", "map", "context", "config", "buffer", "submit"
};
enum {
    XD_OPEN, XD_VERSION, XD_METADATA, XD_HEAP, XD_MAP, XD_CONTEXT, XD_CONFIG, XD_BUFFER, XD_SUBMIT
};

/* Maps the errno of a step to a cause. */
static int xd_cause(int step, int err)
{
    /* The driver answers ENODEV once its channel to the firmware is closed or the device is
     * unbound, and EPIPE when the channel is broken. */
    if ((err == ENODEV && step != XD_OPEN) || err == EPIPE) {
        return WNPU_AMDXDNA_DEVICE_GONE;
    }
    switch (step) {
    case XD_OPEN:
        return err == EACCES || err == EPERM ? WNPU_AMDXDNA_PERMISSION
               : err == ENOENT || err == ENXIO ? WNPU_AMDXDNA_NO_NODE
               : err == ENODEV || err == EOPNOTSUPP || err == EINVAL ? WNPU_AMDXDNA_SVA
               : err == ENOMEM ? WNPU_AMDXDNA_MEMORY : WNPU_AMDXDNA_OTHER;
    case XD_HEAP: case XD_BUFFER:
        return err == EPERM ? WNPU_AMDXDNA_MEMLOCK
               : err == ENOMEM || err == ENOSPC || err == EAGAIN ? WNPU_AMDXDNA_MEMORY
               : WNPU_AMDXDNA_OTHER;
    case XD_MAP: /* EAGAIN: over the limit of locked memory */
        return err == EAGAIN || err == EPERM ? WNPU_AMDXDNA_MEMLOCK
               : err == ENOMEM ? WNPU_AMDXDNA_MEMORY : WNPU_AMDXDNA_OTHER;
    case XD_CONTEXT: /* EINVAL: columns that it cannot give, or whatever the firmware answered */
        return err == ETIME ? WNPU_AMDXDNA_DEVICE_GONE
               : err == EINVAL ? WNPU_AMDXDNA_CONTEXT_REFUSED
               : err == EBUSY ? WNPU_AMDXDNA_CONTEXTS
               : err == ENOSPC || err == EAGAIN || err == ENOMEM ? WNPU_AMDXDNA_MEMORY
               : WNPU_AMDXDNA_OTHER;
    case XD_CONFIG:
        return err == ETIME ? WNPU_AMDXDNA_DEVICE_GONE
               : err == ENOMEM ? WNPU_AMDXDNA_MEMORY : WNPU_AMDXDNA_CONFIG_REFUSED;
    default:
        return err == ETIME ? WNPU_AMDXDNA_DEVICE_GONE : WNPU_AMDXDNA_OTHER;
    }
}

__attribute__((format(printf, 4, 5)))
static int xd_fail(xd_why *why, int cause, int code, const char *format, ...)
{
    why->cause = cause;
    if (why->error != NULL) {
        va_list args;
        va_start(args, format);
        why->error->code = code;
        (void)vsnprintf(why->error->message, sizeof why->error->message, format, args);
        va_end(args);
    }
    return code;
}

/* Records the failure of a step's system call. */
static int xd_errno(xd_why *why, int step, int err, const char *what)
{
    int cause = xd_cause(step, err);
    int code = cause == WNPU_AMDXDNA_MEMORY || cause == WNPU_AMDXDNA_MEMLOCK ? WNPU_E_MEMORY
                                                                             : WNPU_E_ACCEL;
    why->err = err;
    return xd_fail(why, cause, code, "%s failed: %s (errno %d)%s", what, strerror(err), err,
                   why->diagnosing ? "" : "; run npu_doctor for advice");
}

/* ioctl() that restarts after signals, a bounded number of times. 0 or a positive errno. */
static int xd_ioctl(int fd, unsigned long request, void *argument)
{
    int tries;
    for (tries = 0; tries < 1000; tries++) {
        if (ioctl(fd, request, argument) == 0) {
            return 0;
        }
        if (errno != EINTR) {
            return errno == 0 ? EIO : errno;
        }
    }
    return EINTR;
}

/* An ioctl that frees something. Transient failures are retried: they would leak the object. */
static int xd_release(int fd, unsigned long request, void *argument)
{
    int tries, err = 0;
    for (tries = 0; tries < 4; tries++) {
        err = xd_ioctl(fd, request, argument);
        if (err == 0) {
            break;
        }
    }
    return err;
}

/* ---- what the system says ---- */

/* Reads a small text file under root without its line end. Returns 0 or a positive errno. */
static int xd_read(const char *root, const char *path, char *text, size_t size)
{
    char full[512];
    ssize_t n;
    int fd, err = 0;
    text[0] = '\0';
    if ((size_t)snprintf(full, sizeof full, "%s%s", root, path) >= sizeof full) {
        return ENAMETOOLONG;
    }
    fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return errno;
    }
    do {
        n = read(fd, text, size - 1);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        err = errno;
        n = 0;
    }
    (void)close(fd);
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return err;
}

/* Reads a hexadecimal or decimal number from a sysfs file; -1 if there is none. */
static long xd_number(const char *root, const char *directory, const char *file)
{
    char path[256], text[32], *end;
    long value;
    xu_print(path, sizeof path, "%s/%s", directory, file);
    if (xd_read(root, path, text, sizeof text) != 0 || text[0] == '\0') {
        return -1;
    }
    value = strtol(text, &end, 0);
    return *end != '\0' || value < 0 ? -1 : value;
}

/* The module option aie2_max_col if it allows fewer columns than a device may have, else 0. The
 * driver refuses a wider context with the same error as one too many. */
static long xd_column_limit(const char *root)
{
    long limit = xd_number(root, "/sys/module/amdxdna/parameters", "aie2_max_col");
    return limit >= 1 && limit < (long)XT_COLUMNS ? limit : 0;
}

/* NPU1, 4, 5 or 6 by PCI id; 0 for other devices. */
static int xd_kind(long vendor, long device, long revision)
{
    if (vendor != 0x1022) {
        return 0;
    }
    if (device == 0x1502 && revision == 0x00) {
        return XD_NPU1;
    }
    if (device == 0x17f0) {
        return revision == 0x10 ? XD_NPU4 : revision == 0x11 ? XD_NPU5
               : revision == 0x20 ? XD_NPU6 : 0;
    }
    return 0;
}

/* NPUs with user queues, which need a different protocol. */
static int xd_user_queues(long vendor, long device)
{
    return vendor == 0x1022 && (device == 0x17f1 || device == 0x17f2 || device == 0x17f3 ||
                                device == 0x1b0a || device == 0x1b0b || device == 0x1b0c);
}

/* Identifies the node's driver. Nodes of other vendors give E_UNSUPPORTED, cause OTHER_DRIVER. */
static int xd_version(xd_device *device, xd_why *why)
{
    drmVersionPtr version;
    int ours;
    errno = 0;
    version = drmGetVersion(device->fd);
    if (version == NULL) {
        return xd_fail(why, WNPU_AMDXDNA_OTHER_DRIVER, WNPU_E_UNSUPPORTED,
                       "%s: the driver does not report its version", device->node);
    }
    device->major = version->version_major;
    device->minor = version->version_minor;
    ours = version->name != NULL && strcmp(version->name, XA_DRIVER) == 0;
    drmFreeVersion(version);
    if (!ours) {
        return xd_fail(why, WNPU_AMDXDNA_OTHER_DRIVER, WNPU_E_UNSUPPORTED,
                       "%s belongs to an accelerator of another vendor", device->node);
    }
    if (device->major > 1 || device->major < 0) {
        return xd_fail(why, WNPU_AMDXDNA_OTHER, WNPU_E_UNSUPPORTED, "driver interface %d.%d is "
                       "newer than this library knows; update the library", device->major,
                       device->minor);
    }
    /* Linux 6.14 to 6.17 (0.0) store the low bits of a firmware status as the state of a failed
     * chain, which can read as "completed". 6.18 (0.1) and the out-of-tree driver are correct. */
    device->chains = device->major == 1 || device->minor >= 1;
    return WNPU_OK;
}

/* Queries the array's layout and the firmware version. */
static int xd_metadata(xd_device *device, xd_why *why)
{
    /* Up to 6.18 the driver copies its whole structure whatever size we state: leave space. */
    union { struct xa_metadata metadata; struct xa_firmware firmware; uint8_t room[512]; } u;
    struct xa_get_info info;
    int err;
    memset(&u, 0, sizeof u);
    memset(&info, 0, sizeof info);
    info.param = XA_INFO_METADATA;
    info.buffer_size = (uint32_t)sizeof u.metadata;
    info.buffer = (uint64_t)(uintptr_t)&u;
    err = xd_ioctl(device->fd, XA_GET_INFO, &info);
    if (err != 0) {
        return xd_errno(why, XD_METADATA, err, "querying the NPU's layout");
    }
    device->layout = u.metadata;
    if (device->kind == 0) { /* no sysfs: the two families differ in the number of columns */
        device->kind = u.metadata.cols == 5 ? XD_NPU1 : u.metadata.cols == 8 ? XD_NPU4 : 0;
    }
    /* Column 0 of NPU1 has no shim DMA to host memory. */
    device->columns = device->kind == XD_NPU1 ? u.metadata.cols - 1u : u.metadata.cols;
    device->core_rows = u.metadata.core.row_count;
    if (device->kind == 0 || u.metadata.rows != 6 || device->core_rows == 0 ||
        device->core_rows > 5 || u.metadata.cols < 2 || device->columns > XT_COLUMNS) {
        return xd_fail(why, WNPU_AMDXDNA_UNKNOWN_DEVICE, WNPU_E_UNSUPPORTED, "the NPU reports %u "
                       "columns, %u rows, %u of them cores: not a supported layout",
                       u.metadata.cols, u.metadata.rows, u.metadata.core.row_count);
    }
    memset(&u, 0, sizeof u);
    info.param = XA_INFO_FIRMWARE;
    info.buffer_size = (uint32_t)sizeof u.firmware;
    info.buffer = (uint64_t)(uintptr_t)&u;
    if (xd_ioctl(device->fd, XA_GET_INFO, &info) == 0) { /* informative only */
        device->firmware = u.firmware;
        device->has_firmware = 1;
    }
    return WNPU_OK;
}

#define XD_DUMP_BYTES 16384u /* a column takes some hundred bytes */

/* Asks the firmware for the status of the columns that contexts use. Returns 0 or a positive errno;
 * EINVAL is an answer, too: more bytes than the buffer has. A dead firmware takes 5 s. */
static int xd_array_status(const xd_device *device, uint8_t *dump, uint32_t *columns)
{
    struct xa_aie_status status;
    struct xa_get_info info;
    int err;
    memset(dump, 0, XD_DUMP_BYTES);
    memset(&status, 0, sizeof status);
    status.buffer = (uint64_t)(uintptr_t)dump;
    status.buffer_size = XD_DUMP_BYTES;
    memset(&info, 0, sizeof info);
    info.param = XA_INFO_AIE_STATUS;
    info.buffer_size = (uint32_t)sizeof status;
    info.buffer = (uint64_t)(uintptr_t)&status;
    err = xd_ioctl(device->fd, XA_GET_INFO, &info);
    *columns = err == 0 ? status.cols_filled : 0;
    return err;
}

/* Bits of a core's status and of a DMA channel's (Xilinx/aie-rt, xaiemlgbl_params.h); NULL: a part
 * of a number or reserved. */
static const char *const xd_core_bits[] = {
    "enabled", "reset", "memory-south", "memory-west", "memory-north", "memory-east", "lock-south",
    "lock-west", "lock-north", "lock-east", "stream-in", NULL, "stream-out", NULL, "cascade-in",
    "cascade-out", "debug-halt", "ecc", "scrubbing", "error-halt", "done", "bus", NULL
};
static const char *const xd_dma_bits[] = {
    "starting", NULL, "waits-lock", "waits-release", "waits-stream", "waits-token", NULL, NULL,
    "error8", "error9", "error10", "error11", "error12", "error13", NULL, NULL, "decode-error",
    "slave-error", "queue-overflow", "runs", NULL, NULL, NULL
};

/* ---- the state of the array, in words ---- */

/* What is said of a tile: the values that are not 0, by name. */
typedef struct xd_tile {
    char text[400];
    size_t length;
} xd_tile;

__attribute__((format(printf, 2, 3)))
static void xd_say(xd_tile *tile, const char *format, ...)
{
    va_list args;
    int n;
    va_start(args, format);
    n = vsnprintf(tile->text + tile->length, sizeof tile->text - tile->length, format, args);
    va_end(args);
    tile->length += n > 0 ? (size_t)n : 0;
    tile->length = tile->length < sizeof tile->text ? tile->length : sizeof tile->text - 1;
}

/* Values of `bytes` each; number < 0: a single one, which has no number. */
static void xd_say_values(xd_tile *tile, const char *name, int number, const uint8_t *at,
                          unsigned bytes, unsigned count)
{
    unsigned i;
    for (i = 0; i < count; i++, at += bytes) {
        uint32_t value = bytes == 1 ? *at : xu_le32(at);
        if (value != 0 && number < 0) {
            xd_say(tile, " %s %lx", name, (unsigned long)value);
        } else if (value != 0) {
            xd_say(tile, " %s%u %lx", name, (unsigned)number + i, (unsigned long)value);
        }
    }
}

static void xd_say_bits(xd_tile *tile, uint32_t value, const char *const *names, unsigned count)
{
    const char *before = " (";
    unsigned i;
    for (i = 0; i < count; i++) {
        if (value >> i & 1 && names[i] != NULL) {
            xd_say(tile, "%s%s", before, names[i]);
            before = " ";
        }
    }
    if (before[1] == '\0') {
        xd_say(tile, ")");
    }
}

/* A tile's part of the dump, as XRT reads it (info_aie2.cpp): DMA channels in and out, registers of
 * events (twice for a core and its memory), a core's registers, locks of one byte. */
static void xd_tell_tile(const struct xa_tile_metadata *m, int core, const uint8_t *at,
                         xd_tile *tile)
{
    static const char *const names[4] = {"core", "pc", "sp", "lr"};
    const unsigned n_events = m->event_regs * (core ? 2u : 1u);
    const uint8_t *events = at + 8 * (size_t)m->dma_channels, *state = events + 4 * n_events;
    unsigned i;
    memset(tile, 0, sizeof *tile);
    for (i = 0; core && i < 4; i++) {
        xd_say_values(tile, names[i], -1, state + 4 * i, 4, 1);
        if (i == 0) {
            xd_say_bits(tile, xu_le32(state), xd_core_bits,
                        sizeof xd_core_bits / sizeof xd_core_bits[0]);
        }
    }
    for (i = 0; i < 2u * m->dma_channels; i++) {
        xd_say_values(tile, i % 2 == 0 ? "in" : "out", (int)i / 2, at + 4 * i, 4, 1);
        xd_say_bits(tile, xu_le32(at + 4 * i), xd_dma_bits,
                    sizeof xd_dma_bits / sizeof xd_dma_bits[0]);
    }
    xd_say_values(tile, "lock", 0, state + (core ? 16 : 0), 1, m->locks);
    xd_say_values(tile, "event", 0, events, 4, n_events);
}

static size_t xd_tile_bytes(const struct xa_tile_metadata *m, int core)
{
    return 8 * (size_t)m->dma_channels + 4 * (size_t)m->event_regs * (core ? 2 : 1) + m->locks +
           (core ? 16 : 0);
}

/* A dump whose layout is not the known one: its words as they are, at most 512 of them. */
static void xd_log_raw(const wnpu_amdxdna_config *config, const uint8_t *dump)
{
    unsigned line, i, lines = 0;
    for (line = 0; line < XD_DUMP_BYTES / 32 && lines < 64; line++) {
        xd_tile tile;
        uint32_t any = 0;
        memset(&tile, 0, sizeof tile);
        for (i = 0; i < 8; i++) {
            uint32_t value = xu_le32(dump + 32 * line + 4 * i);
            any |= value;
            xd_say(&tile, " %08lx", (unsigned long)value);
        }
        if (any != 0) {
            xu_log(config, WNPU_LOG_WARNING, "array: byte %u:%s", 32 * line, tile.text);
            lines++;
        }
    }
}

/* Logs a dump: a line for each tile with its values that are not 0, in hexadecimal. The columns in
 * use follow one another in it: cores, memory tile, shim. */
static void xd_log_array(const xd_device *device, const wnpu_amdxdna_config *config,
                         const uint8_t *dump, uint32_t columns)
{
    const struct xa_metadata *l = &device->layout;
    const struct xa_tile_metadata *kinds[3];
    size_t size = 0, at = 0;
    unsigned column, kind, row;
    kinds[0] = &l->core;
    kinds[1] = &l->mem;
    kinds[2] = &l->shim;
    for (kind = 0; kind < 3; kind++) {
        size += xd_tile_bytes(kinds[kind], kind == 0) * kinds[kind]->row_count;
    }
    if (size != l->col_size || size > XD_DUMP_BYTES / 32) {
        xd_log_raw(config, dump);
        return;
    }
    for (column = 0; column < 32; column++) {
        for (kind = 0; kind < 3 && (columns >> column & 1); kind++) {
            for (row = 0; row < kinds[kind]->row_count; row++) {
                xd_tile tile;
                xd_tell_tile(kinds[kind], kind == 0, dump + at, &tile);
                at += xd_tile_bytes(kinds[kind], kind == 0);
                if (tile.length > 0) {
                    xu_log(config, WNPU_LOG_WARNING, "array: column %u row %u:%s", column,
                           row + kinds[kind]->row_start, tile.text);
                }
            }
        }
    }
}

/* ---- opening ---- */

/* The present clock of the array in MHz; 0: unknown. */
static uint32_t xd_clock(const xd_device *device)
{
    union { struct xa_clocks clocks; uint8_t room[512]; } u; /* as in xd_metadata() */
    struct xa_get_info info;
    memset(&u, 0, sizeof u);
    memset(&info, 0, sizeof info);
    info.param = XA_INFO_CLOCKS;
    info.buffer_size = (uint32_t)sizeof u.clocks;
    info.buffer = (uint64_t)(uintptr_t)&u;
    return xd_ioctl(device->fd, XA_GET_INFO, &info) == 0 ? u.clocks.h.mhz : 0;
}

/* The number at the end of a node's name, which is its device minor; -1 if there is none. */
static int xd_minor(const char *node)
{
    size_t length = strlen(node), digits = 0;
    while (digits < length && digits < 4 && node[length - 1 - digits] >= '0' &&
           node[length - 1 - digits] <= '9') {
        digits++;
    }
    return digits == 0 ? -1 : atoi(node + length - digits);
}

/* Fills in the properties known to sysfs. Refuses user-queue devices and unknown ids. */
static int xd_identity(xd_device *device, const char *root, xd_why *why)
{
    char directory[96];
    long vendor, id, revision, type;
    xu_print(directory, sizeof directory, "/sys/dev/char/261:%d/device", xd_minor(device->node));
    vendor = xd_number(root, directory, "vendor");
    id = xd_number(root, directory, "device");
    revision = xd_number(root, directory, "revision");
    type = xd_number(root, directory, "device_type");
    device->kind = 0;
    if (vendor < 0 || id < 0 || revision < 0) {
        return WNPU_OK; /* a container without sysfs: the metadata decides */
    }
    device->pci_device = (unsigned)id;
    device->pci_revision = (unsigned)revision;
    if (type > 0 || xd_user_queues(vendor, id)) {
        return xd_fail(why, WNPU_AMDXDNA_USER_QUEUES, WNPU_E_UNSUPPORTED, "%s is an NPU with user "
                       "queues (%04lx:%04lx), which this library does not drive", device->node,
                       (unsigned long)vendor, (unsigned long)id);
    }
    device->kind = xd_kind(vendor, id, revision);
    if (device->kind == 0) {
        return xd_fail(why, WNPU_AMDXDNA_UNKNOWN_DEVICE, WNPU_E_UNSUPPORTED, "%s is an NPU of an "
                       "unknown kind (%04lx:%04lx revision %02lx)", device->node,
                       (unsigned long)vendor, (unsigned long)id, (unsigned long)revision);
    }
    return WNPU_OK;
}

static void xd_close(xd_device *device)
{
    /* In a forked child the descriptor stays open: closing it there could end the parent's
     * contexts (Linux up to 6.19). */
    if (device->fd >= 0 && device->pid == getpid()) {
        (void)close(device->fd);
    }
    device->fd = -1;
}

static int xd_try(xd_device *device, const char *root, const char *node, xd_why *why)
{
    char path[512];
    int code;
    memset(device, 0, sizeof *device);
    xu_print(device->node, sizeof device->node, "%s", node);
    device->pid = getpid();
    xu_print(path, sizeof path, "%s%s", root, node);
    do {
        device->fd = open(path, O_RDWR | O_CLOEXEC);
    } while (device->fd < 0 && errno == EINTR);
    if (device->fd < 0) {
        int err = errno;
        device->fd = -1;
        code = xd_errno(why, XD_OPEN, err, node);
        return code;
    }
    code = xd_version(device, why);
    if (code == WNPU_OK) {
        code = xd_identity(device, root, why);
    }
    if (code == WNPU_OK) {
        code = xd_metadata(device, why);
    }
    if (code != WNPU_OK) {
        xd_close(device);
        return code;
    }
    xu_print(device->name, sizeof device->name, "AMD XDNA NPU%d, amdxdna %d.%d, firmware "
             "%lu.%lu.%lu.%lu", device->kind, device->major, device->minor,
             (unsigned long)device->firmware.major, (unsigned long)device->firmware.minor,
             (unsigned long)device->firmware.patch, (unsigned long)device->firmware.build);
    return WNPU_OK;
}

/* Opens the named node, or the first supported NPU. Failures of AMD nodes take precedence over
 * those of other nodes, and any failure over "there is no NPU". */
static int xd_open(xd_device *device, const wnpu_amdxdna_config *config, xd_why *why)
{
    wnpu_error error, kept;
    xd_why each;
    int i, code, kept_cause = WNPU_AMDXDNA_NO_NODE;
    if (config->node != NULL) {
        return xd_try(device, config->root, config->node, why);
    }
    each = *why;
    each.error = &error;
    kept.code = WNPU_E_UNSUPPORTED;
    xu_print(kept.message, sizeof kept.message, "there is no NPU: no /dev/accel/accel* node; run "
             "npu_doctor for the cause");
    for (i = 0; i < XA_NODES; i++) {
        char node[32];
        xu_print(node, sizeof node, "/dev/accel/accel%d", i);
        code = xd_try(device, config->root, node, &each);
        if (code == WNPU_OK) {
            return WNPU_OK;
        }
        if (each.cause != WNPU_AMDXDNA_NO_NODE && (kept_cause == WNPU_AMDXDNA_NO_NODE ||
                                                   kept_cause == WNPU_AMDXDNA_OTHER_DRIVER)) {
            kept = error;
            kept_cause = each.cause;
        }
    }
    return xd_fail(why, kept_cause, kept.code, "%s", kept.message);
}
/* ======================================================================
 *  9. xb_  buffers
 *
 *  Owns      buffer objects, their single mapping, the heap, cache flushes.
 *  Assumes   an open device; no buffer is freed while the device uses it.
 *  Ensures   one heap of exactly 64 MiB at a 64 MiB boundary (the firmware
 *            gets its address; every driver accepts that size), every
 *            other buffer mapped exactly once, readable and writable (the
 *            driver mishandles read-only mappings), not inherited by fork.
 *            The device address is the one that the driver reports, or,
 *            where it reports none, that of the mapping.
 *  Costs     one to three system calls per buffer; 64 MiB for the heap.
 *
 *  The NPU is not coherent with the CPU's caches: inputs are written back
 *  before the device reads them, outputs are invalidated before the CPU
 *  reads them, and an output buffer is flushed after every CPU write, so
 *  that no dirty line is evicted over the device's results.
 * ====================================================================== */
#define XB_LINE 64u              /* cache line of every CPU with such an NPU */

typedef struct xb_bo {
    uint32_t handle;             /* 0: none */
    uint32_t type;
    size_t bytes;                /* rounded to pages */
    uint8_t *va;                 /* the CPU's mapping */
    uint64_t address;            /* device address */
} xb_bo;

typedef struct xb_space {
    xd_device *device;
    const wnpu_amdxdna_config *config;
    size_t page;
    int clflushopt;              /* the CPU supports it */
    xb_bo heap;
    uint64_t locked;             /* bytes of all buffers except those inside the heap */
} xb_space;

/* Measured for 3 MiB: 0.15 ms dirty and 0.06 ms uncached on a Zen 3, with either instruction. On a
 * Sapphire Rapids CLFLUSH, which is serialised there, took 7 ms, CLFLUSHOPT 0.3 and 0.2 ms. Every
 * CPU with such an NPU has CLFLUSHOPT. */
#if defined(XA_X86)
static int xb_has_clflushopt(void)
{
    unsigned a, b = 0, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 23) != 0;
}

__attribute__((target("sse2,clflushopt")))
static void xb_clflush(const uint8_t *from, const uint8_t *to, int clflushopt)
{
    _mm_mfence(); /* orders both against later loads, and CLFLUSHOPT against stores */
    for (; clflushopt && from < to; from += XB_LINE) {
        _mm_clflushopt((void *)(uintptr_t)from);
    }
    for (; from < to; from += XB_LINE) {
        _mm_clflush(from);
    }
    _mm_mfence();
}
#else
static int xb_has_clflushopt(void)
{
    return 0;
}
#endif

/* Initialises a space without a heap. */
static void xb_begin(xb_space *space, xd_device *device, const wnpu_amdxdna_config *config,
                     size_t page)
{
    memset(space, 0, sizeof *space);
    space->device = device;
    space->config = config;
    space->page = page;
    space->clflushopt = xb_has_clflushopt();
}

/* Writes back and invalidates the cache lines of part of a buffer. 0 or a positive errno. */
static int xb_flush(const xb_space *space, const xb_bo *bo, size_t offset, size_t bytes)
{
    size_t from = offset / XB_LINE * XB_LINE;
    size_t to = (size_t)xu_round_up((uint64_t)offset + bytes, XB_LINE);
    struct xa_sync_bo sync;
    to = to > bo->bytes ? bo->bytes : to;
    if (from >= to) {
        return 0;
    }
    if (space->config->flush != NULL) {
        space->config->flush(space->config->flush_user, bo->va + from, to - from);
        return 0;
    }
#if defined(XA_X86)
    if (space->config->flush_mode == WNPU_AMDXDNA_FLUSH_AUTO) {
        xb_clflush(bo->va + from, bo->va + to, space->clflushopt);
        return 0;
    }
#endif
    /* Direction 0 has the same effect as 1, and every driver version accepts it. */
    memset(&sync, 0, sizeof sync);
    sync.handle = bo->handle;
    sync.offset = from;
    sync.size = to - from;
    return xd_ioctl(space->device->fd, XA_SYNC_BO, &sync);
}

static void xb_free(xb_space *space, xb_bo *bo)
{
    struct drm_gem_close gem;
    int own = space->device->pid == getpid(); /* a forked child does not own the mapping */
    if (bo->handle == 0) {
        return;
    }
    if (own && bo->va != NULL && bo->type != XA_BO_DEV) {
        (void)munmap(bo->va, bo->bytes);
    }
    if (own) {
        memset(&gem, 0, sizeof gem);
        gem.handle = bo->handle;
        (void)xd_release(space->device->fd, DRM_IOCTL_GEM_CLOSE, &gem);
    }
    if (bo->type != XA_BO_DEV) {
        space->locked -= bo->bytes;
    }
    memset(bo, 0, sizeof *bo);
}

/* ---- making buffers ---- */

/* Maps the heap at a multiple of 64 MiB: reserves twice as much and unmaps the rest. */
static void *xb_map_heap(int fd, uint64_t offset)
{
    uint8_t *reserve, *aligned;
    void *heap;
    size_t before;
    int err;
    reserve = mmap(NULL, 2 * XA_HEAP_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (reserve == MAP_FAILED) {
        return MAP_FAILED;
    }
    before = (size_t)(-(uintptr_t)reserve & (XA_HEAP_BYTES - 1));
    aligned = reserve + before;
    heap = mmap(aligned, XA_HEAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                (off_t)offset);
    if (heap == MAP_FAILED) {
        err = errno;
        (void)munmap(reserve, 2 * XA_HEAP_BYTES);
        errno = err;
        return MAP_FAILED;
    }
    if (before > 0) {
        (void)munmap(reserve, before);
    }
    if (before < XA_HEAP_BYTES) {
        (void)munmap(aligned + XA_HEAP_BYTES, XA_HEAP_BYTES - before);
    }
    return heap;
}

/* Maps a new buffer and finds its device address. 0 or a positive errno; *step for the message. */
static int xb_map(xb_space *space, xb_bo *bo, int *step)
{
    struct xa_get_bo_info info;
    void *va;
    int err;
    memset(&info, 0, sizeof info);
    info.handle = bo->handle;
    err = xd_ioctl(space->device->fd, XA_GET_BO_INFO, &info);
    if (err != 0) {
        return err;
    }
    if (bo->type == XA_BO_DEV) { /* part of the heap, has no mapping of its own */
        uint64_t at = info.xdna_addr - XA_HEAP_BASE;
        if (info.xdna_addr < XA_HEAP_BASE || !xu_inside(at, bo->bytes, XA_HEAP_BYTES) ||
            at % XA_DEV_ALIGN != 0) {
            return EPROTO;
        }
        bo->va = space->heap.va + at;
        bo->address = info.xdna_addr;
        return 0;
    }
    *step = XD_MAP;
    if (info.map_offset == XA_NONE || info.map_offset > (uint64_t)INT64_MAX) {
        return EPROTO;
    }
    va = bo->type == XA_BO_HEAP ? xb_map_heap(space->device->fd, info.map_offset)
                                : mmap(NULL, bo->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                       space->device->fd, (off_t)info.map_offset);
    if (va == MAP_FAILED) {
        return errno == 0 ? EIO : errno;
    }
    bo->va = va;
    (void)madvise(va, bo->bytes, MADV_DONTFORK);
    bo->address = info.xdna_addr != XA_NONE ? info.xdna_addr : (uint64_t)(uintptr_t)va;
    return bo->type == XA_BO_HEAP && bo->address != XA_HEAP_BASE ? EPROTO : 0;
}

/* Creates a buffer of at least the given size; releases everything when it fails. */
static int xb_new(xb_space *space, xb_bo *bo, uint32_t type, uint64_t bytes, xd_why *why)
{
    struct xa_create_bo create;
    int err, step = type == XA_BO_HEAP ? XD_HEAP : XD_BUFFER;
    memset(bo, 0, sizeof *bo);
    if (bytes == 0 || bytes > SIZE_MAX / 2) {
        return xd_fail(why, WNPU_AMDXDNA_OTHER, WNPU_E_ARGUMENT, "a buffer of %llu bytes",
                       (unsigned long long)bytes);
    }
    bytes = xu_round_up(bytes, space->page);
    if (type != XA_BO_DEV && space->config->memory_limit != 0 &&
        (bytes > space->config->memory_limit ||
         space->locked > space->config->memory_limit - bytes)) {
        return xd_fail(why, WNPU_AMDXDNA_MEMORY, WNPU_E_MEMORY, "the NPU would lock more than the "
                       "%llu bytes of memory_limit; raise it",
                       (unsigned long long)space->config->memory_limit);
    }
    memset(&create, 0, sizeof create);
    create.size = bytes;
    create.type = type;
    err = xd_ioctl(space->device->fd, XA_CREATE_BO, &create);
    if (err == 0 && create.handle == 0) {
        err = EPROTO;
    }
    if (err != 0) {
        return xd_errno(why, step, err, "creating a buffer on the NPU");
    }
    bo->handle = create.handle;
    bo->type = type;
    bo->bytes = (size_t)bytes;
    if (type != XA_BO_DEV) {
        space->locked += bytes;
    }
    err = xb_map(space, bo, &step);
    if (err != 0) {
        xb_free(space, bo);
        return xd_errno(why, step, err, "mapping a buffer of the NPU");
    }
    return WNPU_OK;
}

/* Creates a DEV buffer with the given content, for PDIs and instruction streams. */
static int xb_load(xb_space *space, xb_bo *bo, const uint8_t *data, size_t bytes, xd_why *why)
{
    int err, code = xb_new(space, bo, XA_BO_DEV, bytes, why);
    if (code != WNPU_OK) {
        return code;
    }
    memcpy(bo->va, data, bytes);
    err = xb_flush(space, bo, 0, bytes);
    if (err != 0) {
        xb_free(space, bo);
        return xd_errno(why, XD_BUFFER, err, "flushing a buffer of the NPU");
    }
    return WNPU_OK;
}
/* ======================================================================
 * 10. xq_  contexts and commands
 *
 *  Owns      hardware contexts, the contents of command buffers, submission
 *            and waiting.
 *  Assumes   the order that the driver requires: heap, its mapping, contexts.
 *  Ensures   one context for each overlay with exactly one compute unit,
 *            whose PDI handle stays open as long as the context (the driver
 *            looks the handle up again after a timeout or a suspend, and a
 *            closed one can disable the NPU for every process); at most
 *            four commands in flight; each submission rewrites the whole
 *            command, because failures clear it.
 *  Costs     a context takes 128 KiB of the heap and one of the machine's
 *            six (NPU1) or sixteen contexts.
 * ====================================================================== */
#define XQ_PRIORITY_NORMAL 0x200u
#define XQ_TXN UINT64_C(3)       /* opcode argument: a transaction stream follows */
#define XQ_WORDS 16u             /* CU mask, 3 words of opcode and address, ... see xq_start */
#define XQ_WAIT_FOR_SUBMIT 2u    /* DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT */

typedef struct xq_context {
    int open;
    int suspect;                 /* twice reported "not executed": reopen it */
    uint32_t handle, syncobj;
    unsigned columns;
    uint32_t ops_per_cycle;
    uint8_t function;
    unsigned in_flight;
    xb_bo pdi;
} xq_context;

static void xq_store32(uint8_t *p, size_t word, uint32_t value)
{
    memcpy(p + 4 * word, &value, sizeof value);
}

/* Bits 3:0 state, 22:12 payload words, 27:23 opcode, 31:28 type 3, as in AMD's runtime. */
static uint32_t xq_header(uint32_t opcode, uint32_t words)
{
    return (uint32_t)XA_STATE_NEW | words << 12 | opcode << 23 | UINT32_C(3) << 28;
}

/* The driver's state of a command. The kernel writes it, not the device, so no flush is needed. */
static unsigned xq_state(const xb_bo *command)
{
    return *(const volatile uint32_t *)(const volatile void *)command->va & 0xf;
}

/* START_CU: mask of compute unit 0, opcode 3, instruction address and words, five buffers. */
static void xq_start(const xb_bo *command, const xb_bo *stream, size_t stream_bytes,
                     const uint64_t address[3])
{
    uint64_t inst = stream->address, zero = 0, opcode = XQ_TXN;
    uint8_t *p = command->va;
    size_t i;
    memset(p, 0, XA_CMD_BYTES < command->bytes ? XA_CMD_BYTES : command->bytes);
    xq_store32(p, 1, 1);
    memcpy(p + 8, &opcode, 8);
    memcpy(p + 16, &inst, 8);
    xq_store32(p, 6, (uint32_t)(stream_bytes / 4));
    for (i = 0; i < XT_ARGS; i++) {
        memcpy(p + 28 + 8 * i, i < 3 ? &address[i] : &zero, 8);
    }
    xq_store32(p, 0, xq_header(XA_OP_START_CU, XQ_WORDS));
}

/* Writes a CMD_CHAIN over commands that are already filled in. */
static void xq_chain(const xb_bo *chain, const uint32_t *handles, size_t count)
{
    uint8_t *p = chain->va;
    size_t i;
    memset(p, 0, XA_CMD_BYTES < chain->bytes ? XA_CMD_BYTES : chain->bytes);
    xq_store32(p, 1, (uint32_t)count);
    for (i = 0; i < count; i++) {
        xq_store32(p, 7 + 2 * i, handles[i]);
    }
    xq_store32(p, 0, xq_header(XA_OP_CHAIN, (uint32_t)(6 + 2 * count)));
}

/* Most products of a job. The driver packs a chain into 4096 bytes: 52 + 60 each with the newer
 * firmware interface, 8 + 60 with the older. Clients cannot tell which, so the larger counts. */
static unsigned xq_chain_limit(const xd_device *device)
{
    unsigned slot = 52 + (XQ_WORDS - 1) * 4, most;
    if (!device->chains) { /* single commands: two jobs of two, so at most four in flight */
        return XA_IN_FLIGHT / 2;
    }
    most = XA_LIST_BYTES / slot;
    return most < XA_CHAIN_MAX ? most : XA_CHAIN_MAX;
}

static void xq_close(xb_space *space, xq_context *context)
{
    struct drm_syncobj_destroy sync;
    struct xa_destroy_hwctx destroy;
    if (context->open && space->device->pid == getpid()) {
        if (context->syncobj != 0) { /* the context does not release it */
            memset(&sync, 0, sizeof sync);
            sync.handle = context->syncobj;
            (void)xd_release(space->device->fd, DRM_IOCTL_SYNCOBJ_DESTROY, &sync);
        }
        memset(&destroy, 0, sizeof destroy);
        destroy.handle = context->handle;
        (void)xd_release(space->device->fd, XA_DESTROY_HWCTX, &destroy);
    }
    context->open = 0;
    context->handle = 0;
    context->syncobj = 0;
    context->in_flight = 0;
    context->suspect = 0;
}

/* Opens a context for a PDI that is already loaded and stays loaded. */
static int xq_open(xb_space *space, xq_context *context, xd_why *why)
{
    struct xa_qos qos;
    struct xa_create_hwctx create;
    struct xa_config_cu cu;
    struct xa_config_hwctx config;
    int err;
    memset(&qos, 0, sizeof qos); /* no requirements: full speed */
    qos.priority = XQ_PRIORITY_NORMAL;
    qos.start_col = 0xff;
    memset(&create, 0, sizeof create);
    create.qos_p = (uint64_t)(uintptr_t)&qos;
    create.max_opc = context->ops_per_cycle;
    create.num_tiles = context->columns * space->device->core_rows;
    err = xd_ioctl(space->device->fd, XA_CREATE_HWCTX, &create);
    if (err != 0) {
        return xd_errno(why, XD_CONTEXT, err, "creating a hardware context");
    }
    context->open = 1;
    context->handle = create.handle;
    context->syncobj = create.syncobj;
    context->in_flight = 0;
    context->suspect = 0;
    memset(&cu, 0, sizeof cu);
    cu.num_cus = 1;
    cu.cu_bo = context->pdi.handle;
    cu.cu_func = context->function;
    memset(&config, 0, sizeof config);
    config.handle = context->handle;
    config.param_val = (uint64_t)(uintptr_t)&cu;
    config.param_val_size = (uint32_t)sizeof cu;
    err = xd_ioctl(space->device->fd, XA_CONFIG_HWCTX, &config);
    if (err != 0) {
        xq_close(space, context);
        return xd_errno(why, XD_CONFIG, err, "configuring a hardware context");
    }
    return WNPU_OK;
}

/* Submits a command. args lists every buffer that the device will access, each once. 0 or a
 * positive errno. */
static int xq_submit(xb_space *space, xq_context *context, const xb_bo *command,
                     const uint32_t *args, size_t n_args, uint64_t *seq)
{
    struct xa_exec_cmd exec;
    int err;
    if (context->in_flight >= XA_IN_FLIGHT) {
        return EBUSY; /* the driver would block */
    }
    memset(&exec, 0, sizeof exec);
    exec.hwctx = context->handle;
    exec.cmd_handles = command->handle;
    exec.args = (uint64_t)(uintptr_t)args;
    exec.cmd_count = 1;
    exec.arg_count = (uint32_t)n_args;
    err = xd_ioctl(space->device->fd, XA_EXEC_CMD, &exec);
    if (err == 0) {
        context->in_flight++;
        *seq = exec.seq;
    }
    return err;
}

/* One wait in the driver: 0 signalled, ETIME not yet, or another errno. */
static int xq_wait_once(xb_space *space, const xq_context *context, uint64_t seq,
                        int64_t deadline_ns)
{
    struct drm_syncobj_timeline_wait wait;
    struct xa_wait_cmd command;
    uint32_t handle = context->syncobj;
    uint64_t point = seq;
    if (handle == 0) { /* out-of-tree driver without a timeline; 0 would wait without limit */
        int64_t left = (deadline_ns - xu_now_ns()) / 1000000;
        memset(&command, 0, sizeof command);
        command.hwctx = context->handle;
        command.timeout_ms = left < 1 ? 1u : left > 2000 ? 2000u : (uint32_t)left;
        command.seq = seq;
        return xd_ioctl(space->device->fd, XA_WAIT_CMD, &command);
    }
    memset(&wait, 0, sizeof wait);
    wait.handles = (uint64_t)(uintptr_t)&handle;
    wait.points = (uint64_t)(uintptr_t)&point;
    wait.timeout_nsec = deadline_ns;
    wait.count_handles = 1;
    wait.flags = XQ_WAIT_FOR_SUBMIT;
    return xd_ioctl(space->device->fd, DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT, &wait);
}

/* Waits until a command has left the driver, successful or not: 0, ETIME, or an errno. */
static int xq_wait(xb_space *space, const xq_context *context, const xb_bo *command, uint64_t seq,
                   int64_t deadline_ns)
{
    if (seq != 0) {
        return xq_wait_once(space, context, seq, deadline_ns);
    }
    /* Point 0 means "the newest submission so far", possibly a later command than this one.
     * So wait in slices and check the command's header too. */
    for (;;) {
        int64_t now = xu_now_ns(), slice = xu_add_ns(now, 1000000);
        int err;
        if (xq_state(command) >= XA_STATE_COMPLETED) {
            return 0;
        }
        err = xq_wait_once(space, context, 0, slice < deadline_ns ? slice : deadline_ns);
        if (err != ETIME) {
            return err;
        }
        if (xu_now_ns() >= deadline_ns) {
            return xq_state(command) >= XA_STATE_COMPLETED ? 0 : ETIME;
        }
    }
}
/* ======================================================================
 * 11. xk_  kernels, weights, operands
 *
 *  Owns      the state of each kernel on the device, resident weights, the
 *            operand layouts of the kernels.
 *  Assumes   a checked pack.
 *  Ensures   weights are padded with zeros in the kernel's layout, so the
 *            padding of A may hold anything. int8 values are widened where
 *            the kernel expects int16, which is exact.
 *  Costs     A is copied once per job (without its padding), B once when
 *            it becomes resident, C not at all if the caller reads it in
 *            place.
 * ====================================================================== */
typedef struct xk_kernel {
    const xp_kernel *p;
    unsigned context;            /* index of its overlay's context */
    xb_bo stream;
} xk_kernel;

typedef struct xk_weight {
    int used;
    int release_pending;         /* to be freed when no job in flight uses it */
    uint32_t generation;
    uint32_t kernel, n, k;
    xb_bo bo;
} xk_weight;

static uint64_t xk_bytes_a(const xp_kernel *p) { return (uint64_t)p->m * p->k * p->a_bytes; }
static uint64_t xk_bytes_b(const xp_kernel *p) { return (uint64_t)p->n * p->k * p->b_bytes; }
static uint64_t xk_bytes_c(const xp_kernel *p) { return (uint64_t)p->m * p->n * 4; }

static void xk_pack_row(uint8_t *to, const int8_t *from, size_t count, unsigned bytes)
{
    size_t i;
    if (bytes == 1) {
        memcpy(to, from, count);
        return;
    }
    for (i = 0; i < count; i++) {
        int16_t wide = from[i];
        memcpy(to + 2 * i, &wide, sizeof wide);
    }
}

/* Copies A [m, k] into the kernel's [M, K]; returns the bytes to flush from the start. */
static size_t xk_pack_a(const xp_kernel *p, uint8_t *to, uint32_t m, uint32_t k, const int8_t *a,
                        size_t lda)
{
    size_t stride = (size_t)p->k * p->a_bytes, i;
    if (p->a_bytes == 1 && k == p->k && lda == k) {
        memcpy(to, a, (size_t)m * k);
    } else {
        for (i = 0; i < m; i++) {
            xk_pack_row(to + i * stride, a + i * lda, k, p->a_bytes);
        }
    }
    return m * stride;
}

/* Copies B [n, k] into the kernel's layout of [N, K], zero elsewhere. */
static void xk_pack_b(const xp_kernel *p, uint8_t *to, uint32_t n, uint32_t k, const int8_t *b,
                      size_t ldb)
{
    size_t i, j;
    memset(to, 0, (size_t)xk_bytes_b(p));
    if (p->b_layout == XP_TILES) {
        xo_pack_b(p, to, n, k, b, ldb);
        return;
    }
    for (j = 0; j < n; j++) {
        if (p->b_layout == XP_NK) {
            xk_pack_row(to + j * p->k * p->b_bytes, b + j * ldb, k, p->b_bytes);
            continue;
        }
        for (i = 0; i < k; i++) {
            xk_pack_row(to + (i * p->n + j) * p->b_bytes, b + j * ldb + i, 1, p->b_bytes);
        }
    }
}
/* ======================================================================
 * 12. xj_  jobs
 *
 *  Owns      two sets of staging buffers and the commands in flight.
 *  Assumes   the functions of section 15 checked the interface's rules.
 *  Ensures   a job ends in one of three ways: delivered completely; failed
 *            with its buffers free again; or given up at its deadline. Its
 *            buffers then stay reserved (a zombie) until the driver reports
 *            the command's end, so the device never writes into reused
 *            memory. A command that the driver did not execute (state still
 *            "new" after its signal) or that ended in an error is submitted
 *            once more after a pause: both happen for some tens of
 *            milliseconds after a timeout. Only state 4 is success.
 *  Costs     one submission and one wait per job where the driver supports
 *            chains, else one per product.
 * ====================================================================== */
#define XJ_SLOTS 2u
/* After a timeout the driver rebuilds the context, within 10 to 20 ms on Linux 7.2. Commands that
 * arrive meanwhile end without being executed, or in an error if the context has no kernel yet. */
#define XJ_REBUILD_NS INT64_C(50000000)
#define XJ_CONTEXTS 16u

enum { XJ_FREE, XJ_IN_FLIGHT, XJ_ZOMBIE };

typedef struct xj_product {
    xb_bo command, a, c;
    unsigned a_from;             /* the part whose copy of A is used */
    uint32_t weight, kernel, m;
    const int8_t *source;        /* the caller's A, to detect equal ones; not read later */
    size_t lda;
    int32_t *out;
    size_t ldc;
    void (*take)(void *user, size_t index, const int32_t *c, size_t ldc);
    void *user;
} xj_product;

typedef struct xj_slot {
    int state;
    uint32_t generation;
    unsigned context;
    size_t count;                /* products */
    size_t commands, done;       /* submitted; known to have completed */
    uint64_t seq[XA_CHAIN_MAX];
    int64_t submitted_ns;
    xb_bo chain;
    xj_product products[XA_CHAIN_MAX];
} xj_slot;

typedef struct xj_engine {
    wnpu_allocator allocator;
    wnpu_amdxdna_config config;
    xd_device device;
    xb_space space;
    xp_pack *pack;
    xq_context contexts[XJ_CONTEXTS];
    xk_kernel *kernels;          /* one per kernel of the pack, working or not */
    unsigned chain;              /* most products of a job */
    unsigned rung;               /* 0, or the rung of the diagnosis that the pack is: xo_rung() */
    xj_slot slots[XJ_SLOTS];
    xk_weight *weights;
    size_t n_weights;
    int64_t rebuild_until_ns;    /* the driver may be rebuilding a context until then */
    wnpu_accel_account account;
} xj_engine;

/* The command buffer that was submitted for command i of a job. */
static const xb_bo *xj_command(const xj_engine *e, const xj_slot *slot, size_t i)
{
    return e->device.chains && slot->count > 1 ? &slot->chain : &slot->products[i].command;
}

/* Lists every buffer of products first..end-1 once: duplicates are an error (EALREADY), and buffers
 * that are not listed may be paged out. */
static size_t xj_buffers(const xj_engine *e, const xj_slot *slot, size_t first, size_t end,
                         uint32_t *args)
{
    size_t n = 0, i, j, k;
    for (i = first; i < end; i++) {
        const xj_product *product = &slot->products[i];
        uint32_t four[4];
        four[0] = e->kernels[product->kernel].stream.handle;
        four[1] = slot->products[product->a_from].a.handle;
        four[2] = e->weights[product->weight].bo.handle;
        four[3] = product->c.handle;
        for (j = 0; j < 4; j++) {
            for (k = 0; k < n && args[k] != four[j]; k++) {
            }
            if (k == n) {
                args[n++] = four[j];
            }
        }
    }
    return n;
}

/* Writes every command of the job: header, payload, chain. */
static void xj_write_commands(const xj_engine *e, const xj_slot *slot)
{
    uint32_t handles[XA_CHAIN_MAX];
    size_t i;
    for (i = 0; i < slot->count; i++) {
        const xj_product *product = &slot->products[i];
        const xk_kernel *kernel = &e->kernels[product->kernel];
        uint64_t address[3];
        address[kernel->p->a_arg] = slot->products[product->a_from].a.address;
        address[kernel->p->b_arg] = e->weights[product->weight].bo.address;
        address[kernel->p->c_arg] = product->c.address;
        xq_start(&product->command, &kernel->stream, kernel->p->bytes, address);
        handles[i] = product->command.handle;
    }
    if (e->device.chains && slot->count > 1) {
        xq_chain(&slot->chain, handles, slot->count);
    }
}

/* Submits the filled commands. 0 or an errno; commands submitted before a failure stay counted. */
static int xj_submit(xj_engine *e, xj_slot *slot)
{
    uint32_t args[4 * XA_CHAIN_MAX];
    int whole = e->device.chains || slot->count == 1, err = 0;
    size_t wanted = whole ? 1 : slot->count, n;
    xj_write_commands(e, slot);
    slot->commands = 0;
    slot->done = 0;
    slot->submitted_ns = xu_now_ns();
    while (slot->commands < wanted && err == 0) {
        size_t i = slot->commands;
        n = xj_buffers(e, slot, i, whole ? slot->count : i + 1, args);
        err = xq_submit(&e->space, &e->contexts[slot->context], xj_command(e, slot, i), args, n,
                        &slot->seq[i]);
        if (err == 0) {
            slot->commands++;
            e->account.submissions++;
        }
    }
    return err;
}

/* Copies each distinct A into its staging buffer and writes it back to memory. */
static int xj_upload(xj_engine *e, xj_slot *slot)
{
    size_t i, j;
    for (i = 0; i < slot->count; i++) {
        xj_product *product = &slot->products[i];
        const xk_weight *weight = &e->weights[product->weight];
        const xp_kernel *p = e->kernels[product->kernel].p;
        size_t bytes;
        int err;
        for (j = 0; j < i; j++) {
            const xj_product *other = &slot->products[j];
            const xp_kernel *q = e->kernels[other->kernel].p;
            if (other->source == product->source && other->lda == product->lda &&
                other->m == product->m && e->weights[other->weight].k == weight->k &&
                q->k == p->k && q->a_bytes == p->a_bytes && q->m == p->m) {
                break;
            }
        }
        product->a_from = j < i ? slot->products[j].a_from : (unsigned)i;
        if (j < i) {
            continue;
        }
        bytes = xk_pack_a(p, product->a.va, product->m, weight->k, product->source, product->lda);
        err = xb_flush(&e->space, &product->a, 0, bytes);
        if (err != 0) {
            return err;
        }
        e->account.bytes_in += bytes;
    }
    return 0;
}

/* Frees the slots of given-up jobs that have completed; waits for them until deadline_ns. */
static void xj_reap(xj_engine *e, int64_t deadline_ns)
{
    size_t i, s;
    for (s = 0; s < XJ_SLOTS; s++) {
        xj_slot *slot = &e->slots[s];
        xq_context *context = &e->contexts[slot->context];
        while (slot->state == XJ_ZOMBIE && slot->done < slot->commands &&
               xq_wait(&e->space, context, xj_command(e, slot, slot->done),
                       slot->seq[slot->done], deadline_ns) == 0) {
            slot->done++;
            context->in_flight--;
        }
        if (slot->state == XJ_ZOMBIE && slot->done == slot->commands) {
            slot->state = XJ_FREE;
        }
    }
    for (i = 0; i < e->n_weights; i++) {
        xk_weight *weight = &e->weights[i];
        int busy = 0;
        for (s = 0; s < XJ_SLOTS; s++) {
            busy |= e->slots[s].state == XJ_ZOMBIE;
        }
        if (weight->used && weight->release_pending && !busy) {
            xb_free(&e->space, &weight->bo);
            weight->used = 0;
            weight->release_pending = 0;
        }
    }
}

static int xj_zombies(const xj_engine *e)
{
    size_t s;
    int n = 0;
    for (s = 0; s < XJ_SLOTS; s++) {
        n += e->slots[s].state == XJ_ZOMBIE;
    }
    return n;
}

/* ---- waiting and delivering ---- */

/* Starts a job whose products [0, count) have weight, kernel, m, source and destination set. */
static int xj_start(xj_engine *e, xj_slot *slot, size_t count, xd_why *why)
{
    int err;
    slot->count = count;
    slot->context = e->kernels[slot->products[0].kernel].context;
    slot->generation++;
    err = xj_upload(e, slot);
    if (err == 0) {
        err = xj_submit(e, slot);
        slot->state = slot->commands == 0 ? XJ_FREE : err != 0 ? XJ_ZOMBIE : XJ_IN_FLIGHT;
    }
    return err == 0 ? WNPU_OK : xd_errno(why, XD_SUBMIT, err, "submitting to the NPU");
}

/* Waits until every command of the job has completed; 0 or an errno. */
static int xj_wait_all(xj_engine *e, xj_slot *slot, int64_t deadline_ns)
{
    xq_context *context = &e->contexts[slot->context];
    while (slot->done < slot->commands) {
        int err = xq_wait(&e->space, context, xj_command(e, slot, slot->done),
                          slot->seq[slot->done], deadline_ns);
        e->account.waits++;
        if (err != 0) {
            return err;
        }
        slot->done++;
        context->in_flight--;
    }
    return 0;
}

/* The first state other than "completed" among the job's commands, else "completed". */
static unsigned xj_end_state(const xj_engine *e, const xj_slot *slot)
{
    size_t i;
    for (i = 0; i < slot->commands; i++) {
        unsigned state = xq_state(xj_command(e, slot, i));
        if (state != XA_STATE_COMPLETED) {
            return state;
        }
    }
    return XA_STATE_COMPLETED;
}

static const char *xj_state_name(unsigned state)
{
    static const char *const names[] = {
        "invalid", "not executed", "queued", "running", "completed", "error", "aborted",
        "submitted", "timed out", "no response"
    };
    return state < sizeof names / sizeof names[0] ? names[state] : "unknown";
}

/* Copies or hands out the results of a completed job. */
static int xj_deliver(xj_engine *e, const xj_slot *slot)
{
    size_t i, row;
    for (i = 0; i < slot->count; i++) { /* all or nothing: fallible steps first */
        const xj_product *product = &slot->products[i];
        size_t bytes = (size_t)product->m * e->kernels[product->kernel].p->n * 4;
        int err = xb_flush(&e->space, &product->c, 0, bytes);
        if (err != 0) {
            return err;
        }
        e->account.bytes_out += bytes;
    }
    for (i = 0; i < slot->count; i++) {
        const xj_product *product = &slot->products[i];
        const xk_weight *weight = &e->weights[product->weight];
        const xp_kernel *p = e->kernels[product->kernel].p;
        const int32_t *c = (const int32_t *)(const void *)product->c.va;
        if (product->take != NULL) {
            product->take(product->user, i, c, p->n);
        }
        for (row = 0; product->out != NULL && row < product->m; row++) {
            memcpy(product->out + row * product->ldc, c + row * p->n, (size_t)weight->n * 4);
        }
        e->account.products++;
        e->account.macs += (uint64_t)product->m * weight->n * weight->k;
        e->account.padded_macs += (uint64_t)p->m * p->n * p->k;
    }
    e->account.jobs++;
    return 0;
}

/* Completes a job: waits, checks the state, resubmits once if that may help, delivers. */
static int xj_finish(xj_engine *e, xj_slot *slot, int64_t deadline_ns, xd_why *why)
{
    int err, again = 0;
    unsigned state;
    for (;; again = 1) {
        err = xj_wait_all(e, slot, deadline_ns);
        if (err != 0) {
            slot->state = XJ_ZOMBIE;
            return err == ETIME
                       ? xd_fail(why, WNPU_AMDXDNA_KERNEL_HANGS, WNPU_E_ACCEL, "the NPU did not "
                                 "finish a job before its deadline")
                       : xd_errno(why, XD_SUBMIT, err, "waiting for the NPU");
        }
        e->account.busy_ms += (double)(xu_now_ns() - slot->submitted_ns) * 1e-6;
        state = xj_end_state(e, slot);
        if ((state != XA_STATE_NEW && state != XA_STATE_ERROR) || again) {
            break;
        }
        if (xu_add_ns(xu_now_ns(), 2 * XJ_REBUILD_NS) >= deadline_ns) {
            break;
        }
        xu_sleep_until(xu_now_ns() + XJ_REBUILD_NS);
        e->account.retries++;
        err = xj_submit(e, slot);
        if (err != 0) {
            slot->state = slot->commands == 0 ? XJ_FREE : XJ_ZOMBIE;
            return xd_errno(why, XD_SUBMIT, err, "submitting to the NPU again");
        }
    }
    slot->state = XJ_FREE;
    if (state == XA_STATE_TIMEOUT) {
        e->rebuild_until_ns = xu_add_ns(xu_now_ns(), XJ_REBUILD_NS);
    }
    if (state != XA_STATE_COMPLETED) {
        e->contexts[slot->context].suspect |= state == XA_STATE_NEW;
        return xd_fail(why, state == XA_STATE_TIMEOUT ? WNPU_AMDXDNA_KERNEL_HANGS
                                                      : WNPU_AMDXDNA_OTHER, WNPU_E_ACCEL,
                       "the NPU ended a command in state %u (%s)", state, xj_state_name(state));
    }
    err = xj_deliver(e, slot);
    return err == 0 ? WNPU_OK : xd_errno(why, XD_BUFFER, err, "flushing a result");
}

/* Creates the staging buffers of a slot. They are flushed once, so that no cache line is dirty from
 * their creation. */
static int xj_alloc_staging(xj_engine *e, xj_slot *slot, uint64_t a_bytes, uint64_t c_bytes,
                            xd_why *why)
{
    unsigned i;
    int err = 0, code = xb_new(&e->space, &slot->chain, XA_BO_CMD, XA_CMD_BYTES, why);
    for (i = 0; i < e->chain && code == WNPU_OK && err == 0; i++) {
        xj_product *product = &slot->products[i];
        code = xb_new(&e->space, &product->command, XA_BO_CMD, XA_CMD_BYTES, why);
        if (code == WNPU_OK) {
            code = xb_new(&e->space, &product->a, XA_BO_SHMEM, a_bytes, why);
        }
        if (code == WNPU_OK) {
            code = xb_new(&e->space, &product->c, XA_BO_SHMEM, c_bytes, why);
        }
        if (code == WNPU_OK) {
            err = xb_flush(&e->space, &product->a, 0, product->a.bytes);
            err = err != 0 ? err : xb_flush(&e->space, &product->c, 0, product->c.bytes);
        }
    }
    return err != 0 ? xd_errno(why, XD_BUFFER, err, "flushing a buffer of the NPU") : code;
}

static void xj_free_staging(xj_engine *e, xj_slot *slot)
{
    size_t i = XA_CHAIN_MAX;
    while (i-- > 0) {
        xb_free(&e->space, &slot->products[i].c);
        xb_free(&e->space, &slot->products[i].a);
        xb_free(&e->space, &slot->products[i].command);
    }
    xb_free(&e->space, &slot->chain);
}
/* ======================================================================
 * 13. xv_  self-test
 *
 *  Owns      the test that a kernel multiplies correctly, before its first
 *            use and after every recovery.
 *  Assumes   weight 0 of the engine is reserved for it, no job in flight.
 *  Ensures   every element of every result is checked: each row through a
 *            random combination of its columns, C r = A (B r) modulo 2^32
 *            with r odd (detects every single wrong element and misses
 *            several with a probability below one in millions), and three
 *            rows element by element. The output buffer is filled with
 *            other values first, so that missing writes are detected.
 *  Costs     five submissions and some milliseconds of CPU.
 * ====================================================================== */
#define XV_RUNS 2u               /* the shortest counts */
#define XV_CHAIN 3u              /* products of the chain that measures the cost of one more */

typedef struct xv_scratch {
    int8_t *a, *b;               /* [M, K], [N, K] of the largest kernels */
    uint32_t *r, *br;            /* [N], [K] */
    size_t a_size, b_size, r_size, br_size; /* bytes */
} xv_scratch;

typedef struct xv_test {
    const xp_kernel *p;
    const xv_scratch *scratch;
    size_t products;
    long bad_row;                /* -1: none */
    unsigned rung;               /* of the engine */
    uint32_t sum;                /* of C's words, if this is a rung */
} xv_test;

/* splitmix64 (S. Vigna): the next pseudo-random number. */
static uint64_t xv_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Random values in -127..127, or only -127 and 127. */
static void xv_values(int8_t *to, size_t count, uint64_t *state, int extremes)
{
    size_t i;
    for (i = 0; i < count; i++) {
        uint64_t x = xv_random(state) >> 32;
        to[i] = extremes ? (int8_t)((x & 1) != 0 ? 127 : -127) : (int8_t)((int)(x % 255) - 127);
    }
}

/* Random odd r and the product B r, modulo 2^32. */
static void xv_project(const xv_test *test, uint64_t *state)
{
    const xp_kernel *p = test->p;
    const xv_scratch *s = test->scratch;
    size_t i, j;
    memset(s->br, 0, (size_t)p->k * sizeof *s->br);
    for (j = 0; j < p->n; j++) {
        s->r[j] = (uint32_t)xv_random(state) | 1u;
        for (i = 0; i < p->k; i++) {
            int32_t value = s->b[j * p->k + i];
            s->br[i] += s->r[j] * (uint32_t)value;
        }
    }
}

static int xv_check_row(const xv_test *test, size_t row, const int32_t *c, int whole)
{
    const xp_kernel *p = test->p;
    const xv_scratch *s = test->scratch;
    const int8_t *a = s->a + row * p->k;
    uint32_t left = 0, right = 0;
    size_t i, j;
    for (j = 0; j < p->n; j++) {
        left += (uint32_t)c[j] * s->r[j];
    }
    for (i = 0; i < p->k; i++) {
        right += (uint32_t)a[i] * s->br[i];
    }
    for (j = 0; whole && j < p->n; j++) {
        int32_t sum = 0;
        for (i = 0; i < p->k; i++) {
            sum += a[i] * s->b[j * p->k + i];
        }
        if (sum != c[j]) {
            return -1;
        }
    }
    return left == right ? 0 : -1;
}

static void xv_receive(void *user, size_t index, const int32_t *c, size_t ldc)
{
    xv_test *test = user;
    size_t row, m = test->p->m;
    (void)index;
    test->products++;
    for (row = 0; row < m && test->bad_row < 0; row++) {
        int whole = row == 0 || row == m / 2 || row == m - 1;
        if (xv_check_row(test, row, c + row * ldc, whole) != 0) {
            test->bad_row = (long)row;
        }
    }
}

static uint32_t xv_sum(const void *words, size_t bytes)
{
    const uint8_t *p = words;
    uint32_t sum = 0, word;
    for (; bytes >= 4; bytes -= 4, p += 4) {
        memcpy(&word, p, 4);
        sum += word;
    }
    return sum;
}

/* What a rung hands over: the words of A, with those of B added, the number of steps, and zeros. */
static void xv_receive_sum(void *user, size_t index, const int32_t *c, size_t ldc)
{
    xv_test *test = user;
    (void)index;
    test->products++;
    if (xv_sum(c, (size_t)test->p->m * ldc * sizeof *c) != test->sum) {
        test->bad_row = 0;
    }
}

/* Fills a job of count equal products with random operands and overwrites its result buffers. */
static int xv_fill(xj_engine *e, const xv_test *test, uint32_t kernel, size_t count, int extremes,
                   uint64_t seed)
{
    xj_slot *slot = &e->slots[0];
    xk_weight *weight = &e->weights[0];
    const xp_kernel *p = test->p;
    const xv_scratch *s = test->scratch;
    size_t i;
    int err;
    xv_values(s->a, (size_t)p->m * p->k, &seed, extremes);
    xv_values(s->b, (size_t)p->n * p->k, &seed, extremes);
    xv_project(test, &seed);
    weight->kernel = kernel;
    weight->n = p->n;
    weight->k = p->k;
    xk_pack_b(p, weight->bo.va, p->n, p->k, s->b, p->k);
    err = xb_flush(&e->space, &weight->bo, 0, (size_t)xk_bytes_b(p));
    for (i = 0; i < count && err == 0; i++) {
        xj_product *product = &slot->products[i];
        product->weight = 0;
        product->kernel = kernel;
        product->m = p->m;
        product->source = s->a;
        product->lda = p->k;
        product->out = NULL;
        product->take = test->rung > 0 ? xv_receive_sum : xv_receive;
        /* Invalidate before writing too: lines not read since the device wrote them are stale, and
         * a partial write to such a line would bring its stale rest back. */
        err = xb_flush(&e->space, &product->c, 0, (size_t)xk_bytes_c(p));
        memset(product->c.va, 0x5a, (size_t)xk_bytes_c(p));
        err = err != 0 ? err : xb_flush(&e->space, &product->c, 0, (size_t)xk_bytes_c(p));
    }
    return err;
}

/* Milliseconds that a job of the self-test may take: test_ms, or four times what was counted at a
 * clock of 400 MHz, which is half of the slowest one, if that is more; at most 1.5 s, before a
 * driver's watchdog of 2 s. */
static uint32_t xv_limit(const xj_engine *e, const xp_kernel *p, size_t count)
{
    uint64_t counted = p->cycles * count / 100000;
    counted = counted > 1500 ? 1500 : counted;
    return counted > e->config.test_ms ? (uint32_t)counted : e->config.test_ms;
}

/* Runs a job of count equal products `runs` times; *us gets the shortest time in the driver, not
 * counting the check of the results. Each run may take xv_limit() from its submission on, but not
 * beyond deadline_ns. */
static int xv_job(xj_engine *e, const xv_scratch *s, uint32_t kernel, size_t count, unsigned runs,
                  int extremes, uint64_t seed, int64_t deadline_ns, double *us, xd_why *why)
{
    xj_slot *slot = &e->slots[0];
    xv_test test;
    size_t i;
    int err, code = WNPU_OK;
    test.p = e->kernels[kernel].p;
    test.scratch = s;
    test.products = 0;
    test.bad_row = -1;
    test.rung = e->rung;
    err = xv_fill(e, &test, kernel, count, extremes, seed);
    if (err != 0) {
        return xd_errno(why, XD_BUFFER, err, "flushing a buffer of the NPU");
    }
    test.sum = e->rung < 1 ? 0 : 1 + xv_sum(s->a, (size_t)xk_bytes_a(test.p));
    test.sum += e->rung < 2 ? 0 : xv_sum(e->weights[0].bo.va, (size_t)xk_bytes_b(test.p));
    for (i = 0; i < count; i++) {
        slot->products[i].user = &test;
    }
    for (i = 0; i < runs && code == WNPU_OK && test.bad_row < 0; i++) {
        int64_t own = xu_add_ns(xu_now_ns(), (int64_t)xv_limit(e, test.p, count) * 1000000);
        double before = e->account.busy_ms, took;
        code = xj_start(e, slot, count, why);
        if (code == WNPU_OK) {
            code = xj_finish(e, slot, own < deadline_ns ? own : deadline_ns, why);
        }
        took = (e->account.busy_ms - before) * 1e3;
        *us = i == 0 || took < *us ? took : *us;
    }
    if (code == WNPU_OK && test.bad_row >= 0) {
        return xd_fail(why, WNPU_AMDXDNA_SELF_TEST, WNPU_E_ACCEL, "kernel %lux%lux%lu computes "
                       "a wrong product (row %ld)",
                       (unsigned long)test.p->m, (unsigned long)test.p->n,
                       (unsigned long)test.p->k, test.bad_row);
    }
    if (code == WNPU_OK && test.products != count * runs) {
        return xd_fail(why, WNPU_AMDXDNA_OTHER, WNPU_E_INTERNAL, "a self-test got too few results");
    }
    return code;
}

/* Tests one kernel and measures its costs. The first run may wake the device, and other programs
 * delay some runs, so each cost is the shortest of a few runs. */
static int xv_kernel(xj_engine *e, const xv_scratch *s, uint32_t kernel,
                     wnpu_accel_shape *shape, xd_why *why)
{
    size_t chain = e->chain < XV_CHAIN ? e->chain : XV_CHAIN;
    uint64_t seed = UINT64_C(0x5eed) + kernel + ((uint64_t)e->account.probes << 32);
    double one = 0.0, many = 0.0;
    int code = xv_job(e, s, kernel, 1, 1, 0, seed, INT64_MAX, &one, why);
    if (code == WNPU_OK) {
        code = xv_job(e, s, kernel, 1, XV_RUNS, 1, seed ^ 1, INT64_MAX, &one, why);
    }
    if (code == WNPU_OK && chain > 1) {
        code = xv_job(e, s, kernel, chain, XV_RUNS, 0, seed ^ 2, INT64_MAX, &many, why);
    }
    shape->cost_us = one;
    shape->chained_us = many > one ? (many - one) / (double)(chain - 1) : one;
    return code;
}

/* ======================================================================
 * 14. xm_  reopening contexts
 *
 *  Owns      the helper thread that closes contexts and opens them again.
 *  Assumes   while it works nobody else uses the contexts: the accelerator
 *            is SUSPECT and accepts no jobs.
 *  Ensures   a probe keeps its deadline although the driver may block for
 *            seconds: CREATE_HWCTX up to 5 s when the firmware is dead,
 *            DESTROY_HWCTX up to 2 s when a command hangs. Work that takes
 *            longer than its probe is collected by a later probe.
 *  Costs     one thread per accelerator, created at opening with all
 *            signals blocked, asleep otherwise; one descriptor. Without
 *            threads (WNPU_NO_THREADS) a probe may block that long.
 * ====================================================================== */
enum { XM_IDLE, XM_RUNNING, XM_DONE };

typedef struct xm_reopening {
    xb_space *space;
    xq_context *contexts;
    unsigned wanted;             /* bit c: context c is closed and opened again */
    int pending;                 /* started, not collected; used by the caller only */
    int state;                   /* XM_IDLE, XM_RUNNING, XM_DONE */
    int code;                    /* valid in XM_DONE, with its error and cause */
    wnpu_error error;
    xd_why why;
#ifndef WNPU_NO_THREADS
    pthread_t thread;
    pthread_mutex_t lock;        /* guards state and quit */
    pthread_cond_t changed;
    int started, quit;
    int done_fd;                 /* eventfd: readable when the thread has finished */
#endif
} xm_reopening;

/* Closes and opens every wanted context. A failure leaves the remaining ones as they are. */
static int xm_work(xm_reopening *r)
{
    unsigned c;
    int code = WNPU_OK;
    r->why.error = &r->error;
    r->why.cause = WNPU_AMDXDNA_OTHER;
    for (c = 0; c < XJ_CONTEXTS && code == WNPU_OK; c++) {
        if ((r->wanted >> c & 1) != 0) {
            xq_close(r->space, &r->contexts[c]);
            code = xq_open(r->space, &r->contexts[c], &r->why);
        }
    }
    return code;
}

#ifdef WNPU_NO_THREADS
static int xm_begin(xm_reopening *r)
{
    (void)r;
    return 0;
}

static void xm_end(xm_reopening *r)
{
    (void)r;
}

static void xm_start(xm_reopening *r, unsigned wanted)
{
    r->wanted = wanted;
    r->code = xm_work(r);
    r->state = XM_DONE;
}

static int xm_wait(xm_reopening *r, int64_t deadline_ns)
{
    (void)deadline_ns;
    return r->state == XM_DONE;
}
#else
static void *xm_main(void *opaque)
{
    xm_reopening *r = opaque;
    const uint64_t one = 1;
    ssize_t written;
    (void)pthread_mutex_lock(&r->lock);
    while (!r->quit) {
        if (r->state != XM_RUNNING) {
            (void)pthread_cond_wait(&r->changed, &r->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&r->lock);
        r->code = xm_work(r);
        (void)pthread_mutex_lock(&r->lock);
        r->state = XM_DONE;
        written = write(r->done_fd, &one, sizeof one); /* only an early wake-up */
        (void)written;
    }
    (void)pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* Creates the thread. 0 or a positive errno. */
static int xm_begin(xm_reopening *r)
{
    sigset_t all, old;
    int err;
    r->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->done_fd < 0) {
        return errno;
    }
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_cond_init(&r->changed, NULL);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old); /* inherited by the thread */
    err = pthread_create(&r->thread, NULL, xm_main, r);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err != 0) {
        (void)pthread_cond_destroy(&r->changed);
        (void)pthread_mutex_destroy(&r->lock);
        (void)close(r->done_fd);
        return err;
    }
    r->started = 1;
    return 0;
}

/* Waits for the thread, up to some seconds. A forked child has no thread, and the descriptor is the
 * parent's. */
static void xm_end(xm_reopening *r)
{
    if (!r->started || r->space->device->pid != getpid()) {
        return;
    }
    (void)pthread_mutex_lock(&r->lock);
    r->quit = 1;
    (void)pthread_cond_signal(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
    (void)pthread_join(r->thread, NULL);
    (void)pthread_cond_destroy(&r->changed);
    (void)pthread_mutex_destroy(&r->lock);
    (void)close(r->done_fd);
    r->started = 0;
}

static void xm_start(xm_reopening *r, unsigned wanted)
{
    r->wanted = wanted;
    (void)pthread_mutex_lock(&r->lock);
    r->state = XM_RUNNING;
    (void)pthread_cond_signal(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
}

/* Waits until the deadline: 1 when the thread has finished, 0 when it is still busy. */
static int xm_wait(xm_reopening *r, int64_t deadline_ns)
{
    struct pollfd done;
    uint64_t count;
    ssize_t n = -1;
    int state;
    done.fd = r->done_fd;
    done.events = POLLIN;
    do {
        int64_t left_ms = (deadline_ns - xu_now_ns()) / 1000000;
        errno = 0;
        if (poll(&done, 1, left_ms < 0 ? 0 : left_ms > 60000 ? 60000 : (int)left_ms) > 0) {
            n = read(r->done_fd, &count, sizeof count);
        }
    } while (n < 0 && errno == EINTR);
    (void)pthread_mutex_lock(&r->lock);
    state = r->state;
    (void)pthread_mutex_unlock(&r->lock);
    return state == XM_DONE;
}
#endif
/* ======================================================================
 * 15. xs_  device states and the wnpu_accel interface
 *
 *  Owns      opening and closing, health, the functions of wnpu_accel.
 *  Assumes   one thread at a time.
 *  Ensures   opening unwinds in reverse order through one exit; later
 *            failures leave an accelerator whose functions still return.
 *  Costs     opening: the check of the pack and the self-tests; nothing is
 *            allocated after the last resident().
 *
 *             +-----------------------------------------------+
 *             |                 probe() passes                |
 *             v                                               |
 *          +----+  a job fails, or   +---------+  pause    +-------+
 *   open ->| OK |------------------->| SUSPECT |---------->| PROBE |
 *          +----+  a result is       +---------+  is over  +-------+
 *             |    distrusted             ^                   |
 *             |                           +---- probe() fails-+
 *             |                                 (pause x 2)   |
 *             |          +-----+                              |
 *             +--------->| OFF |<-----------------------------+
 *              forked    +-----+    eighth failure in a row
 *
 *  Only OK accepts jobs. Jobs in flight when another fails may still be
 *  waited for. In every other state the caller computes on the CPU.
 * ====================================================================== */
#define XS_PROBES 8u             /* failed ones in a row before the accelerator is OFF */
#define XS_DOUBLINGS 6u
#define XS_CHAIN 8u              /* default of products in a job */
#define XS_STAGING ((uint64_t)96 << 20) /* upper bound of their buffers; else fewer products */
#define XS_LATE_JOB_NS INT64_C(20000000) /* a probe's wait for a job that is late */
#define XS_RESET_JOBS 64u        /* jobs without failure that reset the failure count */

typedef struct xs_accel {
    wnpu_accel api;
    xj_engine e;
    xv_scratch scratch;
    wnpu_accel_shape *shapes;    /* of the kernels that passed their test */
    uint32_t *shape_kernel;
    uint32_t n_shapes;
    int state;                   /* OK, SUSPECT, OFF; PROBE is SUSPECT after its pause */
    int64_t resume_ns;
    unsigned failures_in_row, failed_probes, good_jobs;
    uint64_t fixed;
    xm_reopening reopening;
} xs_accel;

static void xs_reset_why(xd_why *why, wnpu_error *error)
{
    why->error = error;
    why->cause = WNPU_AMDXDNA_OTHER;
    why->err = why->diagnosing = 0;
}

/* Largest operands of a pack, rounded to pages, and the bytes that opening locks with `chain`
 * products in a job. */
static uint64_t xs_fixed_bytes(const xp_pack *pack, unsigned chain, uint64_t page, uint64_t most[3])
{
    unsigned i;
    most[0] = most[1] = most[2] = 0;
    for (i = 0; i < pack->n_kernels; i++) {
        const xp_kernel *p = &pack->kernels[i];
        uint64_t bytes[3];
        unsigned j;
        bytes[0] = xk_bytes_a(p);
        bytes[1] = xk_bytes_b(p);
        bytes[2] = xk_bytes_c(p);
        for (j = 0; j < 3; j++) {
            bytes[j] = xu_round_up(bytes[j], page);
            most[j] = bytes[j] > most[j] ? bytes[j] : most[j];
        }
    }
    return XA_HEAP_BYTES + most[1] + XJ_SLOTS * (xu_round_up(XA_CMD_BYTES, page) * (chain + 1) +
                                                 chain * (most[0] + most[2]));
}

static uint64_t xs_page(void)
{
    long page = sysconf(_SC_PAGESIZE);
    return page < 4096 ? 4096u : (uint64_t)page;
}

/* Products in a job as far as they depend on pack and configuration. */
static unsigned xs_chain(const xp_pack *pack, const wnpu_amdxdna_config *config, uint64_t page)
{
    uint64_t most[3];
    unsigned chain = XS_CHAIN;
    if (config->max_chain != 0) {
        return config->max_chain;
    }
    while (chain > 2 && xs_fixed_bytes(pack, chain, page, most) - XA_HEAP_BYTES > XS_STAGING) {
        chain--;
    }
    return chain;
}

/* 1 when the kernels come from a pack and not from section 7. */
static int xs_has_pack(const wnpu_amdxdna_config *config)
{
    return config->pack != NULL || config->files != NULL;
}

WNPU_API int wnpu_amdxdna_memory(const wnpu_amdxdna_config *config, wnpu_accel_shape *shapes,
                                 size_t capacity, uint64_t *fixed, wnpu_error *error)
{
    wnpu_amdxdna_config ours;
    wnpu_allocator allocator;
    xp_pack *pack = NULL;
    uint64_t most[3], total;
    unsigned i, chain;
    int code = xu_merge_config(&ours, config, &allocator, error);
    if (code == WNPU_OK) {
        code = xs_has_pack(&ours) ? xp_open(&pack, &ours, &allocator, error)
                                  : xo_open(&pack, &ours, NULL, &allocator, error);
    }
    if (code != WNPU_OK) {
        return code;
    }
    chain = xs_chain(pack, &ours, xs_page());
    total = xs_fixed_bytes(pack, chain, xs_page(), most);
    for (i = 0; i < pack->n_kernels && i < capacity && shapes != NULL; i++) {
        const xp_kernel *p = &pack->kernels[i];
        memset(&shapes[i], 0, sizeof shapes[i]);
        shapes[i].m = p->m;
        shapes[i].n = p->n;
        shapes[i].k = p->k;
        shapes[i].group = p->overlay;
        shapes[i].resident_bytes = xu_round_up(xk_bytes_b(p), xs_page());
    }
    if (fixed != NULL) {
        *fixed = total;
    }
    code = (int)pack->n_kernels;
    xp_close(pack);
    return code;
}

/* ---- health and weights ---- */

/* A failure in use: SUSPECT, with a pause before the next probe. */
static void xs_suspect(xs_accel *self, const char *reason)
{
    wnpu_accel_account *account = &self->e.account;
    unsigned shift = self->failures_in_row < XS_DOUBLINGS ? self->failures_in_row : XS_DOUBLINGS;
    account->failures++;
    if (account->first_failure[0] == '\0') {
        xu_print(account->first_failure, sizeof account->first_failure, "%.190s", reason);
    }
    if (self->state != WNPU_ACCEL_OK) {
        return; /* another job of the same failure */
    }
    self->state = WNPU_ACCEL_SUSPECT;
    self->resume_ns = xu_add_ns(xu_now_ns(),
                                (int64_t)self->e.config.cooldown_ms * 1000000 << shift);
    self->failures_in_row++;
    self->good_jobs = 0;
    xu_log(&self->e.config, WNPU_LOG_WARNING, "NPU disabled until the next probe: %s", reason);
}

static int xs_check_process(const xs_accel *self, wnpu_error *error)
{
    return self->e.device.pid == getpid()
               ? WNPU_OK : xu_fail(error, WNPU_E_STATE, "the NPU was opened by another process; "
                                   "open it again after fork()");
}

static int xs_health(void *opaque)
{
    xs_accel *self = opaque;
    if (xs_check_process(self, NULL) != WNPU_OK) {
        return WNPU_ACCEL_OFF;
    }
    if (self->state == WNPU_ACCEL_SUSPECT && xu_now_ns() >= self->resume_ns) {
        return WNPU_ACCEL_PROBE;
    }
    return self->state;
}

static int xs_describe(void *opaque, wnpu_accel_info *info)
{
    xs_accel *self = opaque;
    wnpu_accel_info ours;
    uint32_t size = info == NULL ? 0 : info->struct_size;
    memset(&ours, 0, sizeof ours);
    ours.n_shapes = self->n_shapes;
    ours.shapes = self->shapes;
    ours.max_in_flight = XJ_SLOTS;
    ours.max_chain = self->e.chain;
    ours.memory_fixed = self->fixed;
    ours.memory_limit = self->e.config.memory_limit;
    ours.name = self->e.device.name;
    return xu_export(info, size, &ours, sizeof ours);
}

/* An unused entry for a weight; the table grows by doubling. */
static xk_weight *xs_weight_slot(xj_engine *e, size_t *index)
{
    size_t i, more = e->n_weights == 0 ? 64 : 2 * e->n_weights;
    xk_weight *grown;
    for (i = 0; i < e->n_weights; i++) {
        if (!e->weights[i].used) {
            *index = i;
            return &e->weights[i];
        }
    }
    if (more > (size_t)1 << 24) {
        return NULL;
    }
    grown = xu_alloc(&e->allocator, more * sizeof *grown);
    if (grown == NULL) {
        return NULL;
    }
    if (e->n_weights > 0) {
        memcpy(grown, e->weights, e->n_weights * sizeof *grown);
    }
    xu_free(&e->allocator, e->weights, e->n_weights * sizeof *grown);
    *index = e->n_weights;
    e->weights = grown;
    e->n_weights = more;
    return &grown[*index];
}

static int xs_resident(void *opaque, uint32_t shape, uint32_t n, uint32_t k, const int8_t *data,
                       size_t ldb, uint64_t *b, wnpu_error *error)
{
    xs_accel *self = opaque;
    xj_engine *e = &self->e;
    const xp_kernel *p;
    xk_weight *weight;
    wnpu_error local;
    xd_why why;
    size_t index;
    int err, code = xs_check_process(self, error);
    if (code != WNPU_OK) {
        return code;
    }
    if (shape >= self->n_shapes || data == NULL || b == NULL || n == 0 || k == 0 || ldb < k ||
        n > self->shapes[shape].n || k > self->shapes[shape].k) {
        return xu_fail(error, WNPU_E_ARGUMENT, "a weight does not fit its shape");
    }
    xj_reap(e, 0);
    weight = xs_weight_slot(e, &index);
    if (weight == NULL) {
        return xu_fail(error, WNPU_E_MEMORY, "out of memory for the table of weights");
    }
    xs_reset_why(&why, &local);
    p = e->kernels[self->shape_kernel[shape]].p;
    code = xb_new(&e->space, &weight->bo, XA_BO_SHMEM, xk_bytes_b(p), &why);
    if (code == WNPU_OK) {
        xk_pack_b(p, weight->bo.va, n, k, data, ldb);
        err = xb_flush(&e->space, &weight->bo, 0, weight->bo.bytes);
        if (err != 0) {
            xb_free(&e->space, &weight->bo);
            code = xd_errno(&why, XD_BUFFER, err, "flushing a weight");
        }
    }
    if (code != WNPU_OK) { /* out of memory is not a device failure */
        if (code != WNPU_E_MEMORY) {
            xs_suspect(self, local.message);
        }
        return xu_fail(error, code, "%s", local.message);
    }
    e->account.bytes_in += xk_bytes_b(p);
    weight->used = 1;
    weight->release_pending = 0;
    weight->generation++;
    weight->kernel = self->shape_kernel[shape];
    weight->n = n;
    weight->k = k;
    *b = (uint64_t)weight->generation << 32 | (uint64_t)index;
    return WNPU_OK;
}

/* Looks up a weight by handle. Weight 0 belongs to the self-test and has no handle. */
static xk_weight *xs_weight(xj_engine *e, uint64_t b)
{
    uint64_t index = b & UINT32_MAX;
    xk_weight *weight = index > 0 && index < e->n_weights ? &e->weights[index] : NULL;
    return weight != NULL && weight->used && !weight->release_pending &&
           weight->generation == (uint32_t)(b >> 32) ? weight : NULL;
}

static int xs_release(void *opaque, uint64_t b)
{
    xs_accel *self = opaque;
    xj_engine *e = &self->e;
    xk_weight *weight = xs_weight(e, b);
    size_t s, i;
    if (xs_check_process(self, NULL) != WNPU_OK) {
        return WNPU_E_STATE;
    }
    if (weight == NULL) {
        return WNPU_E_ARGUMENT;
    }
    for (s = 0; s < XJ_SLOTS; s++) {
        const xj_slot *slot = &e->slots[s];
        for (i = 0; slot->state == XJ_IN_FLIGHT && i < slot->count; i++) {
            if (&e->weights[slot->products[i].weight] == weight) {
                return WNPU_E_STATE;
            }
        }
    }
    weight->release_pending = 1; /* freed at once unless a given-up job may still read it */
    xj_reap(e, 0);
    return WNPU_OK;
}

/* ---- jobs ---- */

static int xs_check_product(xs_accel *self, const wnpu_accel_product *product, uint32_t group,
                            wnpu_error *error)
{
    const xk_weight *weight = xs_weight(&self->e, product->b);
    const wnpu_accel_shape *shape;
    if (product->shape >= self->n_shapes) {
        return xu_fail(error, WNPU_E_ARGUMENT, "a product refers to shape %lu of %lu",
                       (unsigned long)product->shape, (unsigned long)self->n_shapes);
    }
    shape = &self->shapes[product->shape];
    if (weight == NULL || weight->kernel != self->shape_kernel[product->shape]) {
        return xu_fail(error, WNPU_E_ARGUMENT, "a product uses a weight that is not resident for "
                       "its shape");
    }
    if (product->m == 0 || product->m > shape->m || product->a == NULL ||
        product->lda < weight->k || (product->c != NULL && product->ldc < weight->n) ||
        (product->c == NULL && product->take == NULL)) {
        return xu_fail(error, WNPU_E_ARGUMENT, "a product's operands do not fit its shape");
    }
    if (shape->group != group) {
        return xu_fail(error, WNPU_E_ARGUMENT, "the products of a job belong to different groups");
    }
    return WNPU_OK;
}

static int xs_submit(void *opaque, const wnpu_accel_product *products, size_t count,
                     uint64_t *job, wnpu_error *error)
{
    xs_accel *self = opaque;
    xj_engine *e = &self->e;
    xj_slot *slot = NULL;
    wnpu_error local;
    xd_why why;
    size_t i, s;
    int code = xs_check_process(self, error);
    if (code != WNPU_OK) {
        return code;
    }
    if (self->state != WNPU_ACCEL_OK) {
        return xu_fail(error, WNPU_E_STATE, "the NPU accepts no jobs at present; see health()");
    }
    if (products == NULL || job == NULL || count == 0 || count > e->chain) {
        return xu_fail(error, WNPU_E_ARGUMENT, "a job has 1 to %u products", e->chain);
    }
    for (s = 0; s < XJ_SLOTS && slot == NULL; s++) {
        slot = e->slots[s].state == XJ_FREE ? &e->slots[s] : NULL;
    }
    if (slot == NULL) {
        return xu_fail(error, WNPU_E_STATE, "%u jobs are in flight; wait for one", XJ_SLOTS);
    }
    for (i = 0; i < count; i++) {
        const wnpu_accel_product *from = &products[i];
        xj_product *product = &slot->products[i];
        uint32_t first = products[0].shape < self->n_shapes
                             ? self->shapes[products[0].shape].group : UINT32_MAX;
        code = xs_check_product(self, from, first, error);
        if (code != WNPU_OK) {
            return code;
        }
        product->weight = (uint32_t)(from->b & UINT32_MAX);
        product->kernel = self->shape_kernel[from->shape];
        product->m = from->m;
        product->source = from->a;
        product->lda = from->lda;
        product->out = from->c;
        product->ldc = from->ldc;
        product->take = from->c == NULL ? from->take : NULL;
        product->user = from->user;
    }
    xs_reset_why(&why, &local);
    code = xj_start(e, slot, count, &why);
    if (code != WNPU_OK) {
        xs_suspect(self, local.message);
        return xu_fail(error, code, "%s", local.message);
    }
    *job = (uint64_t)slot->generation << 8 | (uint64_t)(slot - e->slots);
    return WNPU_OK;
}

static int xs_wait(void *opaque, uint64_t job, int64_t deadline_ns, wnpu_error *error)
{
    xs_accel *self = opaque;
    xj_engine *e = &self->e;
    size_t index = (size_t)(job & 0xff);
    wnpu_error local;
    xd_why why;
    int64_t start = xu_now_ns();
    int code = xs_check_process(self, error);
    if (code != WNPU_OK) {
        return code;
    }
    if (index >= XJ_SLOTS || e->slots[index].state != XJ_IN_FLIGHT ||
        e->slots[index].generation != (uint32_t)(job >> 8)) {
        return xu_fail(error, WNPU_E_ARGUMENT, "no such job is in flight");
    }
    xs_reset_why(&why, &local);
    code = xj_finish(e, &e->slots[index], deadline_ns, &why);
    e->account.waited_ms += (double)(xu_now_ns() - start) * 1e-6;
    if (code != WNPU_OK) {
        xs_suspect(self, local.message);
        return xu_fail(error, code, "%s", local.message);
    }
    if (self->state == WNPU_ACCEL_OK && ++self->good_jobs >= XS_RESET_JOBS) {
        self->failures_in_row = 0;
    }
    return WNPU_OK;
}

static void xs_distrust(void *opaque, const char *reason)
{
    xs_accel *self = opaque;
    if (xs_check_process(self, NULL) == WNPU_OK) {
        xs_suspect(self, reason == NULL ? "a result was wrong" : reason);
    }
}

static int xs_account(void *opaque, wnpu_accel_account *account)
{
    xs_accel *self = opaque;
    wnpu_accel_account ours;
    uint32_t size = account == NULL ? 0 : account->struct_size;
    ours = self->e.account;
    ours.health = xs_health(self);
    ours.bytes_locked = self->e.space.locked;
    return xu_export(account, size, &ours, sizeof ours);
}

/* ---- recovery ---- */

/* Restores an image or stream that was overwritten: both are writable memory of this process. */
static int xs_restore(xj_engine *e, xb_bo *bo, const uint8_t *data, size_t bytes)
{
    if (bo->handle == 0 || memcmp(bo->va, data, bytes) == 0) {
        return 0;
    }
    memcpy(bo->va, data, bytes);
    return xb_flush(&e->space, bo, 0, bytes);
}

/* Bit set of the contexts that a probe has to reopen: suspect ones and those with a hung command,
 * or all of them after a failed probe. */
static unsigned xs_contexts_to_reopen(const xs_accel *self)
{
    const xj_engine *e = &self->e;
    unsigned c, s, wanted = 0;
    for (c = 0; c < e->pack->n_overlays; c++) {
        const xq_context *context = &e->contexts[c];
        int hangs = 0;
        for (s = 0; s < XJ_SLOTS; s++) {
            hangs |= e->slots[s].state == XJ_ZOMBIE && e->slots[s].context == c;
        }
        if (context->pdi.handle != 0 &&
            (context->suspect || hangs || self->failed_probes > 0 || !context->open)) {
            wanted |= 1u << c;
        }
    }
    return wanted;
}

/* Reopens the contexts that need it, or collects what an earlier probe started. Jobs of a closed
 * context have ended: the driver aborts them and the device no longer accesses their buffers. */
static int xs_reopen(xs_accel *self, int64_t deadline_ns, xd_why *why)
{
    xj_engine *e = &self->e;
    xm_reopening *r = &self->reopening;
    unsigned wanted, s;
    if (!r->pending) {
        wanted = xs_contexts_to_reopen(self);
        if (wanted == 0) {
            return WNPU_OK;
        }
        xm_start(r, wanted);
        r->pending = 1;
    }
    if (!xm_wait(r, deadline_ns)) {
        return xd_fail(why, WNPU_AMDXDNA_DEVICE_GONE, WNPU_E_ACCEL, "the driver is still reopening "
                       "a hardware context");
    }
    r->pending = 0;
    r->state = XM_IDLE;
    for (s = 0; s < XJ_SLOTS; s++) {
        if (e->slots[s].state == XJ_ZOMBIE && (r->wanted >> e->slots[s].context & 1) != 0) {
            e->slots[s].state = XJ_FREE;
        }
    }
    xj_reap(e, 0);
    return r->code == WNPU_OK ? WNPU_OK
                              : xd_fail(why, r->why.cause, r->code, "%s", r->error.message);
}

/* Recovery: restores images and streams, reopens contexts where necessary, tests one kernel of each
 * context. */
static int xs_recover(xs_accel *self, int64_t deadline_ns, xd_why *why)
{
    xj_engine *e = &self->e;
    int64_t now = xu_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    unsigned c, i;
    int code = WNPU_OK, err = 0;
    for (c = 0; c < e->pack->n_overlays && err == 0 && !self->reopening.pending; c++) {
        const xp_overlay *o = &e->pack->overlays[c];
        err = xs_restore(e, &e->contexts[c].pdi, o->image.pdi, o->image.bytes);
    }
    for (i = 0; i < e->pack->n_kernels && err == 0; i++) {
        err = xs_restore(e, &e->kernels[i].stream, e->kernels[i].p->data, e->kernels[i].p->bytes);
    }
    if (err != 0) {
        return xd_errno(why, XD_BUFFER, err, "restoring a kernel");
    }
    code = xs_reopen(self, deadline_ns - left / 4, why); /* the rest is for the tests */
    for (c = 0; c < e->pack->n_overlays && code == WNPU_OK; c++) {
        for (i = 0; i < self->n_shapes && self->shapes[i].group != c; i++) {
        }
        if (i < self->n_shapes) {
            double us = 0.0;
            code = xv_job(e, &self->scratch, self->shape_kernel[i], 1, 1, 0, e->account.probes,
                          deadline_ns, &us, why);
        }
    }
    return code;
}

/* After an unbind every call on the descriptor fails permanently. */
static int xs_removed(const xs_accel *self)
{
    drmVersionPtr version;
    errno = 0;
    version = drmGetVersion(self->e.device.fd);
    if (version != NULL) {
        drmFreeVersion(version);
        return 0;
    }
    return errno == ENODEV;
}

/* Starts the next, longer pause after a failed probe. */
static void xs_probe_failed(xs_accel *self, const char *reason)
{
    self->state = WNPU_ACCEL_OK; /* lets xs_suspect() set a longer pause */
    xs_suspect(self, reason);
    if (xs_removed(self)) {
        xu_log(&self->e.config, WNPU_LOG_WARNING, "the NPU was removed or unbound from its driver");
        self->state = WNPU_ACCEL_OFF;
    } else if (!self->reopening.pending && ++self->failed_probes >= XS_PROBES) {
        self->state = WNPU_ACCEL_OFF;
    }
}

static int xs_probe(void *opaque, int64_t deadline_ns, wnpu_error *error)
{
    xs_accel *self = opaque;
    xj_engine *e = &self->e;
    int64_t patience;
    wnpu_error local;
    xd_why why;
    size_t s;
    int code = xs_check_process(self, error);
    if (code != WNPU_OK) {
        return code;
    }
    for (s = 0; s < XJ_SLOTS; s++) {
        if (e->slots[s].state == XJ_IN_FLIGHT) {
            return xu_fail(error, WNPU_E_STATE, "wait for the jobs in flight before a probe");
        }
    }
    if (self->state != WNPU_ACCEL_SUSPECT) {
        return self->state == WNPU_ACCEL_OK ? WNPU_OK
               : xu_fail(error, WNPU_E_STATE, "the NPU failed too often; reopen the accelerator");
    }
    e->account.probes++;
    xs_reset_why(&why, &local);
    if (!self->reopening.pending) { /* else the helper thread owns the contexts */
        xu_sleep_until(e->rebuild_until_ns < deadline_ns ? e->rebuild_until_ns : deadline_ns);
        patience = xu_add_ns(xu_now_ns(), XS_LATE_JOB_NS);
        xj_reap(e, patience < deadline_ns ? patience : deadline_ns);
    }
    code = xs_recover(self, deadline_ns, &why);
    if (code == WNPU_OK) {
        self->state = WNPU_ACCEL_OK;
        self->failed_probes = 0;
        xu_log(&e->config, WNPU_LOG_INFO, "NPU usable again after probe %llu",
               (unsigned long long)e->account.probes);
        return WNPU_OK;
    }
    xs_probe_failed(self, local.message);
    return xu_fail(error, code, "%s", local.message);
}

/* ---- opening and closing ---- */

/* Releases everything in reverse order of opening. Contexts come first: without them the device
 * accesses no buffer. */
static void xs_teardown(xs_accel *self)
{
    xj_engine *e = &self->e;
    wnpu_allocator allocator = e->allocator;
    size_t i;
    xm_end(&self->reopening);
    for (i = 0; i < XJ_CONTEXTS; i++) {
        xq_close(&e->space, &e->contexts[i]);
    }
    for (i = e->n_weights; i-- > 0;) {
        xb_free(&e->space, &e->weights[i].bo);
    }
    for (i = e->kernels == NULL ? 0 : e->pack->n_kernels; i-- > 0;) {
        xb_free(&e->space, &e->kernels[i].stream);
    }
    for (i = XJ_CONTEXTS; i-- > 0;) {
        xb_free(&e->space, &e->contexts[i].pdi);
    }
    for (i = XJ_SLOTS; i-- > 0;) {
        xj_free_staging(e, &e->slots[i]);
    }
    xb_free(&e->space, &e->space.heap);
    xd_close(&e->device);
    if (e->pack != NULL) {
        size_t n = e->pack->n_kernels;
        xu_free(&allocator, e->kernels, n * sizeof *e->kernels);
        xu_free(&allocator, self->shapes, n * sizeof *self->shapes);
        xu_free(&allocator, self->shape_kernel, n * sizeof *self->shape_kernel);
    }
    xu_free(&allocator, e->weights, e->n_weights * sizeof *e->weights);
    xu_free(&allocator, self->scratch.a, self->scratch.a_size);
    xu_free(&allocator, self->scratch.b, self->scratch.b_size);
    xu_free(&allocator, self->scratch.r, self->scratch.r_size);
    xu_free(&allocator, self->scratch.br, self->scratch.br_size);
    xp_close(e->pack);
    xu_free(&allocator, self, sizeof *self);
}

static void xs_close(void *opaque)
{
    xs_teardown(opaque);
}

WNPU_API void wnpu_amdxdna_close(wnpu_accel *accel)
{
    if (accel != NULL) {
        accel->close(accel->self);
    }
}

/* Host memory: tables and the self-test's operands. */
static int xs_alloc_tables(xs_accel *self, xd_why *why)
{
    xj_engine *e = &self->e;
    xv_scratch *s = &self->scratch;
    size_t n = e->pack->n_kernels, i, index;
    for (i = 0; i < n; i++) {
        const xp_kernel *p = &e->pack->kernels[i];
        size_t a = (size_t)p->m * p->k, b = (size_t)p->n * p->k;
        s->a_size = a > s->a_size ? a : s->a_size;
        s->b_size = b > s->b_size ? b : s->b_size;
        s->r_size = p->n * sizeof *s->r > s->r_size ? p->n * sizeof *s->r : s->r_size;
        s->br_size = p->k * sizeof *s->br > s->br_size ? p->k * sizeof *s->br : s->br_size;
    }
    e->kernels = xu_alloc(&e->allocator, n * sizeof *e->kernels);
    self->shapes = xu_alloc(&e->allocator, n * sizeof *self->shapes);
    self->shape_kernel = xu_alloc(&e->allocator, n * sizeof *self->shape_kernel);
    s->a = xu_alloc(&e->allocator, s->a_size);
    s->b = xu_alloc(&e->allocator, s->b_size);
    s->r = xu_alloc(&e->allocator, s->r_size);
    s->br = xu_alloc(&e->allocator, s->br_size);
    if (e->kernels == NULL || self->shapes == NULL || self->shape_kernel == NULL ||
        s->a == NULL || s->b == NULL || s->r == NULL || s->br == NULL ||
        xs_weight_slot(e, &index) == NULL) {
        return xd_fail(why, WNPU_AMDXDNA_MEMORY, WNPU_E_MEMORY, "out of memory for the NPU's "
                       "tables");
    }
    for (i = 0; i < n; i++) {
        e->kernels[i].p = &e->pack->kernels[i];
        e->kernels[i].context = e->pack->kernels[i].overlay;
    }
    return WNPU_OK;
}

/* Creates heap, staging buffers, images, contexts and streams. If the machine has no context left
 * for an overlay, its kernels are skipped, unless it is the first. */
static int xs_open_device(xs_accel *self, xd_why *why)
{
    xj_engine *e = &self->e;
    uint64_t most[3];
    unsigned i, open_contexts = 0;
    int code;
    self->fixed = xs_fixed_bytes(e->pack, e->chain, e->space.page, most);
    code = xb_new(&e->space, &e->space.heap, XA_BO_HEAP, XA_HEAP_BYTES, why);
    for (i = 0; i < XJ_SLOTS && code == WNPU_OK; i++) {
        code = xj_alloc_staging(e, &e->slots[i], most[0], most[2], why);
    }
    if (code == WNPU_OK) {
        code = xb_new(&e->space, &e->weights[0].bo, XA_BO_SHMEM, most[1], why);
        e->weights[0].used = 1;
    }
    for (i = 0; i < e->pack->n_overlays && code == WNPU_OK; i++) {
        const xp_overlay *o = &e->pack->overlays[i];
        xq_context *context = &e->contexts[i];
        if (!o->needed) {
            continue;
        }
        context->columns = o->image.columns;
        context->ops_per_cycle = o->ops_per_cycle;
        context->function = o->image.function;
        code = xb_load(&e->space, &context->pdi, o->image.pdi, o->image.bytes, why);
        if (code != WNPU_OK) {
            break;
        }
        code = xq_open(&e->space, context, why);
        if (code == WNPU_OK) {
            open_contexts++;
        } else if (open_contexts > 0) {
            xu_log(&e->config, WNPU_LOG_WARNING, "overlay %s is skipped: no context is free",
                   o->id);
            xb_free(&e->space, &context->pdi);
            code = WNPU_OK;
        }
    }
    for (i = 0; i < e->pack->n_kernels && code == WNPU_OK; i++) {
        const xp_kernel *p = &e->pack->kernels[i];
        if (e->contexts[p->overlay].open) {
            code = xb_load(&e->space, &e->kernels[i].stream, p->data, p->bytes, why);
        }
    }
    return code;
}

#define XS_PATIENCE_NS INT64_C(2000000000) /* of the diagnosis, beyond a test's deadline */

/* A job that did not end in its time: tells, while its context is still there, firmware that no
 * longer responds from a kernel that hangs, and that from a slow one, which ends later. */
static void xs_examine_hang(xs_accel *self, const xp_kernel *p, xd_why *why)
{
    xj_engine *e = &self->e;
    xj_slot *slot = &e->slots[0];
    uint8_t dump[XD_DUMP_BYTES];
    uint32_t columns = 0;
    unsigned long limit = (unsigned long)xv_limit(e, p, slot->count), took;
    unsigned state;
    int err = xd_array_status(&e->device, dump, &columns);
    if (err != 0 && err != EINVAL && err != EOPNOTSUPP) {
        (void)xd_fail(why, WNPU_AMDXDNA_DEVICE_GONE, WNPU_E_ACCEL, "%s did not end, and the "
                      "firmware does not respond: %s (errno %d)", p->id, strerror(err), err);
        return;
    }
    xd_log_array(&e->device, &e->config, dump, columns);
    xj_reap(e, xu_add_ns(xu_now_ns(), XS_PATIENCE_NS));
    took = (unsigned long)((xu_now_ns() - slot->submitted_ns) / 1000000);
    state = slot->state == XJ_FREE ? xj_end_state(e, slot) : XA_STATE_NEW;
    if (state == XA_STATE_COMPLETED) {
        (void)xd_fail(why, WNPU_AMDXDNA_KERNEL_HANGS, WNPU_E_ACCEL, "%s is slow, it does not hang: "
                      "it ended after %lu ms; %lu were allowed, %lu cycles are counted (status of "
                      "columns: 0x%lx)", p->id, took, limit, (unsigned long)p->cycles,
                      (unsigned long)columns);
    } else {
        (void)xd_fail(why, WNPU_AMDXDNA_KERNEL_HANGS, WNPU_E_ACCEL, "%s hangs, it is not slow: %s "
                      "%lu ms; %lu cycles are counted. The firmware responds (status of columns: "
                      "0x%lx)", p->id, state == XA_STATE_TIMEOUT ? "the driver ended it after"
                                                                  : "it had not ended after",
                      took, (unsigned long)p->cycles, (unsigned long)columns);
    }
}

/* Tests every kernel; those that pass become shapes. */
static int xs_test_kernels(xs_accel *self, xd_why *why)
{
    xj_engine *e = &self->e;
    unsigned i;
    int code = WNPU_OK;
    for (i = 0; i < e->pack->n_kernels; i++) {
        const xp_kernel *p = &e->pack->kernels[i];
        wnpu_accel_shape *shape = &self->shapes[self->n_shapes];
        if (e->kernels[i].stream.handle == 0) {
            continue;
        }
        code = xv_kernel(e, &self->scratch, i, shape, why);
        if (code != WNPU_OK) {
            xu_log(&e->config, WNPU_LOG_WARNING, "kernel %s is skipped: %s", p->id,
                   why->error != NULL ? why->error->message : "self-test failed");
            if (why->diagnosing && why->cause == WNPU_AMDXDNA_KERNEL_HANGS) {
                xs_examine_hang(self, p, why);
                return WNPU_E_ACCEL;
            }
            if (xj_zombies(e) != 0) {
                break; /* the device hangs */
            }
            continue;
        }
        shape->m = p->m;
        shape->n = p->n;
        shape->k = p->k;
        shape->group = p->overlay;
        shape->resident_bytes = xu_round_up(xk_bytes_b(p), e->space.page);
        self->shape_kernel[self->n_shapes++] = i;
    }
    if (xj_zombies(e) != 0) {
        return code;
    }
    return self->n_shapes > 0 ? WNPU_OK : code; /* code: of the last kernel */
}

/* ---- opening with a pack or with built-in kernels ---- */

static void xs_set_functions(xs_accel *self)
{
    self->api.struct_size = (uint32_t)sizeof self->api;
    self->api.self = self;
    self->api.describe = xs_describe;
    self->api.resident = xs_resident;
    self->api.release = xs_release;
    self->api.submit = xs_submit;
    self->api.wait = xs_wait;
    self->api.health = xs_health;
    self->api.probe = xs_probe;
    self->api.distrust = xs_distrust;
    self->api.account = xs_account;
    self->api.close = xs_close;
}

/* 1 when a pack was built for this device. */
static int xs_pack_matches(const xp_pack *pack, const xd_device *device)
{
    return pack->generation == (device->kind == XD_NPU1 ? 3u : 4u) &&
           pack->columns <= device->columns;
}

/* Generates the built-in kernels for as many columns as the device and the driver's module option
 * allow: 1, 2, 4 or 8. */
static int xs_generate_kernels(xj_engine *e, xd_why *why)
{
    long limit = xd_column_limit(e->config.root);
    unsigned columns = e->device.columns;
    xo_design design;
    int code;
    if (limit != 0) { /* it counts column 0 of an NPU1, too */
        unsigned allowed = (unsigned)limit - (e->device.kind == XD_NPU1);
        columns = allowed < columns ? allowed : columns;
    }
    if (e->device.core_rows < 4 && columns > e->device.core_rows) {
        columns = e->device.core_rows;
    }
    if (columns == 0) {
        return xd_fail(why, WNPU_AMDXDNA_CONTEXT_REFUSED, WNPU_E_UNSUPPORTED, "the driver's option "
                       "aie2_max_col is %ld, which leaves no usable column of the NPU", limit);
    }
    xo_design_init(&design, e->device.kind == XD_NPU1 ? 3 : 4,
                   columns >= 8 ? 8 : columns >= 4 ? 4 : columns >= 2 ? 2 : 1);
    code = xo_open(&e->pack, &e->config, &design, &e->allocator, why->error);
    why->cause = code == WNPU_E_MEMORY ? WNPU_AMDXDNA_MEMORY : WNPU_AMDXDNA_OTHER;
    return code;
}

static int xs_bring_up(xs_accel *self, xd_why *why)
{
    xj_engine *e = &self->e;
    unsigned limit;
    int code = WNPU_OK;
    if (xs_has_pack(&e->config)) {
        code = xp_open(&e->pack, &e->config, &e->allocator, why->error);
        why->cause = code == WNPU_E_MODEL ? WNPU_AMDXDNA_PACK_DAMAGED
                     : code == WNPU_E_MEMORY ? WNPU_AMDXDNA_MEMORY : WNPU_AMDXDNA_PACK_MISSING;
    }
    code = code == WNPU_OK ? xd_open(&e->device, &e->config, why) : code;
    if (code == WNPU_OK && !xs_has_pack(&e->config)) {
        code = xs_generate_kernels(e, why);
    }
    if (code != WNPU_OK) {
        return code;
    }
    if (!xs_pack_matches(e->pack, &e->device)) {
        return xd_fail(why, WNPU_AMDXDNA_PACK_DEVICE, WNPU_E_UNSUPPORTED, "kernel pack %s is for "
                       "%s with %u columns, this is an NPU%d with %u; build or get a pack for it",
                       e->pack->name, e->pack->device, e->pack->columns, e->device.kind,
                       e->device.columns);
    }
    limit = xq_chain_limit(&e->device);
    e->chain = xs_chain(e->pack, &e->config, e->space.page);
    e->chain = e->chain < limit ? e->chain : limit;
    code = xs_alloc_tables(self, why);
    if (code == WNPU_OK) {
        code = xs_open_device(self, why);
    }
    return code == WNPU_OK ? xs_test_kernels(self, why) : code;
}

/* An accelerator that has opened nothing yet; xs_teardown() frees it. */
static int xs_new(const wnpu_amdxdna_config *config, xs_accel **out, xd_why *why)
{
    wnpu_amdxdna_config ours;
    wnpu_allocator allocator;
    xs_accel *self;
    int code;
    *out = NULL;
    why->cause = WNPU_AMDXDNA_OTHER;
    code = xu_merge_config(&ours, config, &allocator, why->error);
    if (code != WNPU_OK) {
        return code;
    }
    self = xu_alloc(&allocator, sizeof *self);
    if (self == NULL) {
        return xd_fail(why, WNPU_AMDXDNA_MEMORY, WNPU_E_MEMORY, "out of memory for the "
                       "accelerator");
    }
    self->e.allocator = allocator;
    self->e.config = ours;
    self->e.device.fd = -1;
    self->e.device.pid = getpid();
    xb_begin(&self->e.space, &self->e.device, &self->e.config, (size_t)xs_page());
    self->e.account.struct_size = (uint32_t)sizeof self->e.account;
    xs_set_functions(self);
    self->reopening.space = &self->e.space;
    self->reopening.contexts = self->e.contexts;
    *out = self;
    return WNPU_OK;
}

/* Runs one rung of the ladder, on a context of its own. */
static int xs_climb(const wnpu_amdxdna_config *config, unsigned rung, xd_why *why)
{
    static const char *const names[XO_RUNGS] = {"locks and DMA", "scalar code"};
    xs_accel *self;
    xj_engine *e;
    xo_design design;
    double us;
    int code = xs_new(config, &self, why);
    if (code != WNPU_OK) {
        return code;
    }
    e = &self->e;
    e->chain = 1;
    e->rung = rung;
    code = xd_open(&e->device, &e->config, why);
    if (code == WNPU_OK) {
        xo_rung(&design, e->device.kind == XD_NPU1 ? 3 : 4, rung);
        code = xo_open(&e->pack, &e->config, &design, &e->allocator, why->error);
    }
    if (code == WNPU_OK) {
        xu_print(e->pack->kernels[0].id, sizeof e->pack->kernels[0].id, "Rung %u of %u (%s)", rung,
                 XO_RUNGS + 1, names[rung - 1]);
        code = xs_alloc_tables(self, why);
    }
    code = code == WNPU_OK ? xs_open_device(self, why) : code;
    if (code == WNPU_OK) {
        code = xv_job(e, &self->scratch, 0, 1, 1, 0, UINT64_C(0x1adde) + rung, INT64_MAX, &us, why);
        if (code != WNPU_OK && why->cause == WNPU_AMDXDNA_KERNEL_HANGS) {
            xs_examine_hang(self, e->kernels[0].p, why);
        } else if (code != WNPU_OK && why->cause == WNPU_AMDXDNA_SELF_TEST) {
            (void)xd_fail(why, WNPU_AMDXDNA_SELF_TEST, WNPU_E_ACCEL, "%s hands over wrong data",
                          e->kernels[0].p->id);
        }
    }
    xs_teardown(self);
    return code;
}

/* wnpu_amdxdna_open() that also returns a cause. */
static int xs_open(const wnpu_amdxdna_config *config, xs_accel **out, xd_why *why)
{
    xs_accel *self;
    int code = xs_new(config, &self, why);
    *out = NULL;
    if (code != WNPU_OK) {
        return code;
    }
    code = xs_bring_up(self, why);
    if (code == WNPU_OK) {
        int err = xm_begin(&self->reopening);
        code = err == 0 ? WNPU_OK
               : xd_fail(why, WNPU_AMDXDNA_MEMORY, WNPU_E_MEMORY, "creating the accelerator's "
                         "thread failed: %s", strerror(err));
    }
    if (code != WNPU_OK) {
        xs_teardown(self);
        return code;
    }
    memset(&self->e.account, 0, sizeof self->e.account); /* without the self-tests */
    /* Pointers to the caller's memory that is not needed after opening. */
    self->e.config.pack = NULL;
    self->e.config.files = NULL;
    self->e.config.products = NULL;
    self->e.config.n_products = 0;
    self->e.config.node = NULL;
    self->e.config.root = "";
    xu_log(&self->e.config, WNPU_LOG_INFO, "%s, pack %s: %lu of %u kernels, %u products a job",
           self->e.device.name, self->e.pack->name, (unsigned long)self->n_shapes,
           self->e.pack->n_kernels, self->e.chain);
    *out = self;
    return WNPU_OK;
}

WNPU_API uint64_t wnpu_amdxdna_cycles(const wnpu_accel *accel, uint32_t shape)
{
    const xs_accel *self;
    if (accel == NULL || accel->close != xs_close) {
        return 0;
    }
    self = accel->self;
    return shape < self->n_shapes ? self->e.kernels[self->shape_kernel[shape]].p->cycles : 0;
}

WNPU_API int wnpu_amdxdna_open(const wnpu_amdxdna_config *config, wnpu_accel **accel,
                               wnpu_error *error)
{
    xs_accel *self;
    wnpu_error local;
    xd_why why;
    int code;
    if (accel == NULL) {
        return xu_fail(error, WNPU_E_ARGUMENT, "accel is NULL");
    }
    *accel = NULL;
    xs_reset_why(&why, error != NULL ? error : &local);
    code = xs_open(config, &self, &why);
    if (code == WNPU_OK) {
        *accel = &self->api;
        if (error != NULL) {
            error->code = WNPU_OK;
            error->message[0] = '\0';
        }
    }
    return code;
}
/* ======================================================================
 * 16. xr_  diagnosis
 *
 *  Owns      the search for the one cause why the NPU does not work, and
 *            its remedy.
 *  Assumes   nothing; every file may be missing.
 *  Ensures   the first obstacle is reported, in the order in which a
 *            machine starts: device, driver, firmware, node, permissions,
 *            memory, contexts, pack. With a root only recorded files are
 *            read; the device's answers are then in amdxdna-steps: a step
 *            (open, heap, map, context, ...) and its errno on each line,
 *            and "driver 0.10".
 *  Costs     some hundred small files, and the self-tests on a live NPU.
 * ====================================================================== */
typedef struct xr_exam {
    wnpu_amdxdna_config config;
    wnpu_allocator allocator;
    wnpu_amdxdna_diagnosis *out;
    const char *root;
    char pci[160];               /* directory of the NPU's PCI device, "" if not found */
    long vendor, device, revision;
    int minor_node;              /* N of /dev/accel/accelN, or -1 */
} xr_exam;

typedef struct xr_entry {
    const char *name, *message, *cure;
} xr_entry;

/* In the order of wnpu_amdxdna_cause. */
static const xr_entry xr_table[] = {
    {"fine", "The NPU works.", "Nothing to do."},
    {"no-npu", "There is no AMD NPU on the PCI bus.",
     "Check that the processor is a Ryzen AI model and that the NPU (IPU) is enabled in the "
     "firmware setup; otherwise run on the CPU."},
    {"unknown-device", "This library does not support this model of NPU.",
     "Update the library; supported are 1022:1502 rev 00 and 1022:17f0 rev 10, 11, 20."},
    {"kernel-old", "The running kernel is older than 6.14, the first with the amdxdna driver.",
     "Boot Linux 6.14 or later (6.18 or later is better: it chains commands), or install AMD's "
     "out-of-tree driver."},
    {"kernel-no-driver", "The kernel was built without the amdxdna driver.",
     "Install the package with the kernel's extra modules, or a kernel with "
     "CONFIG_DRM_ACCEL_AMDXDNA=m, or AMD's out-of-tree driver."},
    {"module-missing", "The amdxdna module is installed but not loaded.",
     "Run: sudo modprobe amdxdna; then look at: sudo dmesg | grep amdxdna"},
    {"module-blocked", "The amdxdna module is blacklisted.",
     "Remove the line that names amdxdna from /etc/modprobe.d or from the kernel command line, "
     "then: sudo modprobe amdxdna"},
    {"firmware-missing", "The NPU's firmware file is not installed.",
     "Install linux-firmware (Debian: firmware-amd-graphics), rebuild the initramfs if amdxdna is "
     "in it, then: sudo modprobe -r amdxdna; sudo modprobe amdxdna"},
    {"firmware-old", "The NPU's firmware is older than the driver requires.",
     "Update linux-firmware and reboot."},
    {"firmware-new", "The NPU's firmware uses a protocol that this driver does not support.",
     "Update the kernel, or go back to the firmware version that came with the distribution."},
    {"firmware-unknown", "The NPU runs but reports no firmware version.",
     "Reload the driver: sudo modprobe -r amdxdna; sudo modprobe amdxdna; then update "
     "linux-firmware."},
    {"iommu-missing", "The IOMMU is off; the driver needs it to share memory with the NPU.",
     "Enable IOMMU (AMD-Vi) in the firmware setup and remove amd_iommu=off or iommu=off from the "
     "kernel command line."},
    {"hypervisor", "This is a virtual machine; the amdxdna driver refuses to run in one.",
     "Run on the host, or on the CPU."},
    {"driver-failed", "The amdxdna driver is loaded but did not bind to the NPU.",
     "Look for its reason: sudo dmesg | grep amdxdna; then update kernel and linux-firmware "
     "together."},
    {"no-node", "The driver runs but there is no node under /dev/accel.",
     "In a container, pass it in: --device /dev/accel/accel0. Otherwise check udev and "
     "CONFIG_DRM_ACCEL."},
    {"permission", "This user may not open the NPU's node.",
     "Add a udev rule: SUBSYSTEM==\"accel\", KERNEL==\"accel*\", GROUP=\"render\", MODE=\"0660\"; "
     "then: sudo usermod -aG render $USER, and log in again."},
    {"other-driver", "The nodes under /dev/accel belong to accelerators of other vendors.",
     "Name the NPU's node in the configuration, or load amdxdna."},
    {"user-queues", "This NPU uses user queues, a different protocol.",
     "It is not supported yet; run on the CPU."},
    {"sva", "The driver could not share the address space of the process with the NPU.",
     "Enable IOMMU with PASID support in the firmware setup; remove iommu=off and amd_iommu=off; "
     "from Linux 7.1, amdxdna.force_iova=1 avoids it."},
    {"device-gone", "The NPU's firmware no longer responds.",
     "End every program that uses the NPU and wait 6 seconds: the driver reloads the firmware "
     "after 5 seconds without use. If that fails, reload the driver: sudo modprobe -r amdxdna; "
     "sudo modprobe amdxdna; or reboot."},
    {"memlock", "The limit on locked memory (RLIMIT_MEMLOCK) is too low.",
     "Raise it: ulimit -l unlimited, or \"* - memlock unlimited\" in "
     "/etc/security/limits.d/npu.conf, or LimitMEMLOCK=infinity in the unit; log in again."},
    {"memory", "There is not enough memory for the NPU's buffers.",
     "Free memory, lower max_chain, or raise memory_limit."},
    {"contexts", "Every hardware context of the NPU is in use (6 on NPU1, 16 on later ones).",
     "Close other programs that use the NPU; xrt-smi examine lists them."},
    {"pack-missing", "There is no kernel pack at that path.",
     "Pass the directory that contains the file named manifest; README says how to build a pack."},
    {"pack-damaged", "A file of the kernel pack is damaged or was refused.",
     "Copy or build the pack again."},
    {"pack-device", "The kernel pack was built for another device.",
     "Build or get a pack for this NPU: npu1 for Phoenix and Hawk Point, npu2 for Strix and "
     "later."},
    {"self-test", "The kernels run but compute wrong results.",
     "The text stays right: the CPU computes everything. Please send this report; if the kernels "
     "come from a pack, build it again with current tools."},
    {"other", "Something else is wrong.", "Look at: sudo dmesg | grep amdxdna"},
    {"kernel-hangs", "A kernel does not end, or takes far too long.",
     "The text stays right: the CPU computes everything. Please send this report; if the kernels "
     "come from a pack, build it again with current tools."},
    {"context-refused", "The driver or the firmware refused a hardware context.",
     "Close other programs that use the NPU (6 contexts are possible on NPU1, 16 on later ones; "
     "xrt-smi examine lists them); check the driver's option aie2_max_col; look for the reason: "
     "sudo dmesg | grep amdxdna"},
    {"config-refused", "The driver or the firmware refused the kernels' configuration (PDI).",
     "Look for the reason: sudo dmesg | grep amdxdna; then please send it with this report. If the "
     "kernels come from a pack, check that it was built for this NPU."}
};
#define XR_CAUSES ((int)(sizeof xr_table / sizeof xr_table[0]))
XA_CHECK(causes, sizeof xr_table / sizeof xr_table[0] == WNPU_AMDXDNA_CONFIG_REFUSED + 1);

WNPU_API const char *wnpu_amdxdna_cause_name(int cause)
{
    return cause >= 0 && cause < XR_CAUSES ? xr_table[cause].name : "unknown";
}

/* ---- reading the system ---- */

/* Reports a cause with its text from the table, and message if it is not NULL. */
static int xr_report(xr_exam *x, int cause, const char *message)
{
    x->out->cause = cause;
    xu_print(x->out->message, sizeof x->out->message, "%s%s%s", xr_table[cause].message,
             message != NULL ? " " : "", message != NULL ? message : "");
    xu_print(x->out->cure, sizeof x->out->cure, "%s", xr_table[cause].cure);
    return cause;
}

static int xr_exists(const xr_exam *x, const char *path)
{
    char full[512];
    struct stat status;
    xu_print(full, sizeof full, "%s%s", x->root, path);
    return lstat(full, &status) == 0;
}

/* Searches a file for a text: 1 when found; rest (may be NULL) then gets the remainder of its line.
 * Reads record by record, so that it also works for /dev/kmsg. */
static int xr_grep(const xr_exam *x, const char *path, const char *text, char *rest, size_t size)
{
    char full[512], buffer[8193] = "\n"; /* lets "\n..." match the first line */
    size_t kept = 1, length = strlen(text), rounds;
    int fd, found = 0;
    xu_print(full, sizeof full, "%s%s", x->root, path);
    fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return 0;
    }
    for (rounds = 0; !found && rounds < 100000; rounds++) {
        ssize_t n = read(fd, buffer + kept, sizeof buffer - 1 - kept);
        char *hit;
        size_t i, all;
        if (n < 0 && (errno == EINTR || errno == EPIPE)) {
            continue; /* EPIPE: records were overwritten, continue */
        }
        if (n <= 0) {
            break;
        }
        all = kept + (size_t)n;
        for (i = 0; i < all; i++) {
            buffer[i] = (char)(buffer[i] == '\0' ? ' ' : buffer[i]);
        }
        buffer[all] = '\0';
        hit = strstr(buffer, text);
        if (hit != NULL) {
            found = 1;
            hit[length + strcspn(hit + length, "\n")] = '\0';
            if (rest != NULL) {
                xu_print(rest, size, "%s", hit + length);
            }
        }
        /* Keep the current line and a possible beginning of the text for the next read. */
        kept = all < 512 ? all : 512;
        memmove(buffer, buffer + all - kept, kept);
    }
    (void)close(fd);
    return found;
}

/* Calls visit for each name in a directory until it returns non-zero; returns that value. */
static int xr_list(xr_exam *x, const char *path, int (*visit)(xr_exam *x, const char *path,
                                                             const char *name))
{
    char full[512];
    DIR *directory;
    struct dirent *entry;
    int answer = 0;
    xu_print(full, sizeof full, "%s%s", x->root, path);
    directory = opendir(full);
    if (directory == NULL) {
        return 0;
    }
    while (answer == 0 && (entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] != '.') {
            answer = visit(x, path, entry->d_name);
        }
    }
    (void)closedir(directory);
    return answer;
}

static int xr_any(xr_exam *x, const char *path, const char *name)
{
    (void)x;
    (void)path;
    (void)name;
    return 1;
}

/* Finds the NPU on the PCI bus. 1502 and 17f0 match in any revision, so that new ones are found. */
static int xr_pci(xr_exam *x, const char *path, const char *name)
{
    char directory[160];
    long vendor, device;
    xu_print(directory, sizeof directory, "%s/%s", path, name);
    vendor = xd_number(x->root, directory, "vendor");
    device = xd_number(x->root, directory, "device");
    if (vendor != 0x1022 ||
        (device != 0x1502 && device != 0x17f0 && !xd_user_queues(vendor, device))) {
        return 0;
    }
    xu_print(x->pci, sizeof x->pci, "%s", directory);
    x->vendor = vendor;
    x->device = device;
    x->revision = xd_number(x->root, directory, "revision");
    return 1;
}

static int xr_blacklist(xr_exam *x, const char *path, const char *name)
{
    char file[256];
    xu_print(file, sizeof file, "%s/%s", path, name);
    return xr_grep(x, file, "\nblacklist amdxdna", NULL, 0) ||
           xr_grep(x, file, "\ninstall amdxdna /bin/", NULL, 0);
}

static void xr_name(xr_exam *x)
{
    int kind = xd_kind(x->vendor, x->device, x->revision);
    char name[16];
    xu_print(name, sizeof name, kind != 0 ? "NPU%d" : "NPU", kind);
    xu_print(x->out->device, sizeof x->out->device, "%s (%04lx:%04lx rev %02lx)", name,
             (unsigned long)x->vendor, (unsigned long)x->device, (unsigned long)x->revision);
}

static int xr_find_device(xr_exam *x)
{
    if (!xr_exists(x, "/sys/bus/pci/devices")) {
        return WNPU_AMDXDNA_FINE; /* a container: unknown */
    }
    if (!xr_list(x, "/sys/bus/pci/devices", xr_pci)) {
        return xr_report(x, WNPU_AMDXDNA_NO_NPU, NULL);
    }
    xr_name(x);
    if (xd_user_queues(x->vendor, x->device) ||
        xd_number(x->root, x->pci, "device_type") > 0) {
        return xr_report(x, WNPU_AMDXDNA_USER_QUEUES, NULL);
    }
    return xd_kind(x->vendor, x->device, x->revision) != 0
               ? WNPU_AMDXDNA_FINE : xr_report(x, WNPU_AMDXDNA_UNKNOWN_DEVICE, x->out->device);
}

/* ---- steps before the device ---- */

/* Checks that the driver is installed and loaded. */
static int xr_module(xr_exam *x)
{
    char path[192], file[224];
    long major, minor = 0;
    char *end;
    if (xr_exists(x, "/sys/module/amdxdna")) {
        return WNPU_AMDXDNA_FINE;
    }
    xu_print(path, sizeof path, "/lib/modules/%s", x->out->kernel);
    xu_print(file, sizeof file, "%s/modules.dep", path);
    if (xr_grep(x, file, "/amdxdna.ko", NULL, 0)) {
        char line[64];
        if (xr_list(x, "/etc/modprobe.d", xr_blacklist) ||
            xr_grep(x, "/proc/cmdline", "blacklist=amdxdna", line, sizeof line)) {
            return xr_report(x, WNPU_AMDXDNA_MODULE_BLOCKED, NULL);
        }
        return xr_report(x, WNPU_AMDXDNA_MODULE_MISSING, NULL);
    }
    major = strtol(x->out->kernel, &end, 10);
    if (*end == '.') {
        minor = strtol(end + 1, &end, 10);
    }
    if (major > 0 && (major < 6 || (major == 6 && minor < 14))) {
        return xr_report(x, WNPU_AMDXDNA_KERNEL_OLD, x->out->kernel);
    }
    return xr_report(x, WNPU_AMDXDNA_KERNEL_NO_DRIVER, x->out->kernel);
}

static int xr_firmware_file(const xr_exam *x)
{
    static const char *const names[] = {"npu.sbin", "npu.sbin.xz", "npu.sbin.zst", "npu_7.sbin",
                                        "npu_7.sbin.xz", "npu_7.sbin.zst"};
    static const char *const roots[] = {"/lib/firmware", "/usr/lib/firmware",
                                        "/lib/firmware/updates"};
    char path[160];
    size_t i, j;
    for (i = 0; i < sizeof roots / sizeof roots[0]; i++) {
        for (j = 0; j < sizeof names / sizeof names[0]; j++) {
            xu_print(path, sizeof path, "%s/amdnpu/%04lx_%02lx/%s", roots[i],
                     (unsigned long)x->device, (unsigned long)x->revision, names[j]);
            if (xr_exists(x, path)) {
                return 1;
            }
        }
    }
    return 0;
}

/* The driver is loaded but not bound: finds out why. First from its messages in the kernel log (if
 * readable), then from known causes. */
static int xr_unbound(xr_exam *x)
{
    char path[192], rest[160], *digits;
    int older;
    xu_print(path, sizeof path, "%s/driver", x->pci);
    if (x->pci[0] == '\0' || xr_exists(x, path)) {
        return WNPU_AMDXDNA_FINE;
    }
    if (xr_grep(x, "/dev/kmsg", "Incompatible firmware protocol", rest, sizeof rest)) {
        /* "... major 7 minor 2": the drivers of Linux 6.14 to 6.19 support 5 (NPU1) and 6. */
        digits = strpbrk(rest, "0123456789");
        older = digits != NULL && strtol(digits, NULL, 10) < (x->device == 0x1502 ? 5 : 6);
        return xr_report(x, older ? WNPU_AMDXDNA_FIRMWARE_OLD : WNPU_AMDXDNA_FIRMWARE_NEW, NULL);
    }
    if (xr_grep(x, "/dev/kmsg", "Firmware minor version smaller", NULL, 0)) {
        return xr_report(x, WNPU_AMDXDNA_FIRMWARE_OLD, NULL);
    }
    if (!xr_firmware_file(x)) {
        return xr_report(x, WNPU_AMDXDNA_FIRMWARE_MISSING, NULL);
    }
    if (xr_grep(x, "/proc/cpuinfo", " hypervisor", NULL, 0)) {
        return xr_report(x, WNPU_AMDXDNA_HYPERVISOR, NULL);
    }
    if (!xr_list(x, "/sys/kernel/iommu_groups", xr_any)) {
        return xr_report(x, WNPU_AMDXDNA_IOMMU_MISSING, NULL);
    }
    return xr_report(x, WNPU_AMDXDNA_DRIVER_FAILED, NULL);
}

/* Finds the NPU's node. */
static int xr_node(xr_exam *x)
{
    int i, others = 0;
    x->minor_node = -1;
    for (i = 0; i < XA_NODES && x->minor_node < 0; i++) {
        char node[64], directory[64];
        long vendor, device;
        xu_print(node, sizeof node, "/dev/accel/accel%d", i);
        if (!xr_exists(x, node)) {
            continue;
        }
        xu_print(directory, sizeof directory, "/sys/dev/char/261:%d/device", i);
        vendor = xd_number(x->root, directory, "vendor");
        device = xd_number(x->root, directory, "device");
        if (vendor >= 0 && (vendor != x->vendor || device != x->device)) {
            others++;
            continue;
        }
        x->minor_node = i;
        xu_print(x->out->node, sizeof x->out->node, "%s", node);
        if (xd_number(x->root, directory, "device_type") > 0) {
            return xr_report(x, WNPU_AMDXDNA_USER_QUEUES, NULL);
        }
    }
    return x->minor_node >= 0 ? WNPU_AMDXDNA_FINE
           : xr_report(x, others > 0 ? WNPU_AMDXDNA_OTHER_DRIVER : WNPU_AMDXDNA_NO_NODE, NULL);
}

/* ---- steps with the device ---- */

/* 1 if a "\nGroups:" line contains the group. */
static int xr_in_groups(const char *text, unsigned long group)
{
    char *end;
    for (;;) {
        unsigned long value = strtoul(text, &end, 10);
        if (end == text) {
            return 0;
        }
        if (value == group) {
            return 1;
        }
        text = end;
    }
}

/* Permissions by mode bits and the recorded identity; on a live machine open() decides. */
static int xr_permissions(xr_exam *x)
{
    char full[512], uid[64] = "", gid[64] = "", groups[1024] = "", why[96];
    struct stat status;
    unsigned long user;
    unsigned need = 6, mode;
    xu_print(full, sizeof full, "%s%s", x->root, x->out->node);
    if (x->root[0] == '\0' || stat(full, &status) != 0 ||
        !xr_grep(x, "/proc/self/status", "\nUid:", uid, sizeof uid)) {
        return WNPU_AMDXDNA_FINE;
    }
    (void)xr_grep(x, "/proc/self/status", "\nGid:", gid, sizeof gid);
    (void)xr_grep(x, "/proc/self/status", "\nGroups:", groups, sizeof groups);
    user = strtoul(uid, NULL, 10);
    mode = (unsigned)status.st_mode & 0777;
    if (user == 0 || (user == status.st_uid && (mode >> 6 & need) == need) ||
        (user != status.st_uid && (xr_in_groups(gid, status.st_gid) ||
                                   xr_in_groups(groups, status.st_gid)) &&
         (mode >> 3 & need) == need) || (mode & need) == need) {
        return WNPU_AMDXDNA_FINE;
    }
    xu_print(why, sizeof why, "%.60s has mode %04o.", x->out->node, mode);
    return xr_report(x, WNPU_AMDXDNA_PERMISSION, why);
}

static int xr_firmware(xr_exam *x)
{
    char text[32] = "", path[192];
    xu_print(path, sizeof path, "%s/fw_version", x->pci);
    if (x->pci[0] == '\0' || xd_read(x->root, path, text, sizeof text) != 0) {
        return WNPU_AMDXDNA_FINE; /* older drivers have no such file */
    }
    xu_print(x->out->firmware, sizeof x->out->firmware, "%s", text);
    return strspn(text, "0.") == strlen(text) ? xr_report(x, WNPU_AMDXDNA_FIRMWARE_UNKNOWN, NULL)
                                              : WNPU_AMDXDNA_FINE;
}

/* The limit on locked memory, and the bytes that the NPU part would lock. */
static void xr_limits(xr_exam *x)
{
    char text[128] = "";
    uint64_t fixed = 0;
    x->out->memlock_limit = UINT64_MAX;
    if (xr_grep(x, "/proc/self/limits", "Max locked memory", text, sizeof text)) {
        const char *digits = text + strspn(text, " ");
        if (*digits >= '0' && *digits <= '9') {
            x->out->memlock_limit = strtoull(digits, NULL, 10);
        }
    }
    x->out->memlock_needed = XA_HEAP_BYTES;
    if (wnpu_amdxdna_memory(&x->config, NULL, 0, &fixed, NULL) > 0) {
        x->out->memlock_needed = fixed;
    }
}

/* Whether opening the node fails with ENODEV because the device is gone: from Linux 7.2 on, a
 * failure to share addresses is EINVAL; before, ENODEV may be either. */
static int xr_nodev_is_gone(const xr_exam *x)
{
    char *end;
    long major = strtol(x->out->kernel, &end, 10);
    return major > 7 || (major == 7 && *end == '.' && strtol(end + 1, NULL, 10) >= 2);
}

/* Reports a failed step. */
static int xr_step(xr_exam *x, int cause, const char *message)
{
    char text[192];
    if (cause == WNPU_AMDXDNA_MEMLOCK) {
        xu_print(text, sizeof text, "Needed: %llu bytes; limit: %llu bytes.",
                 (unsigned long long)x->out->memlock_needed,
                 (unsigned long long)x->out->memlock_limit);
        return xr_report(x, WNPU_AMDXDNA_MEMLOCK, text);
    }
    if (cause == WNPU_AMDXDNA_CONTEXT_REFUSED && xd_column_limit(x->root) != 0) {
        xu_print(text, sizeof text, "Or the kernel needs more columns than the driver allows: its "
                 "module option aie2_max_col is %ld.", xd_column_limit(x->root));
        return xr_report(x, cause, text);
    }
    if (cause == WNPU_AMDXDNA_SVA && xr_exists(x, "/sys/kernel") &&
        !xr_list(x, "/sys/kernel/iommu_groups", xr_any)) {
        return xr_report(x, WNPU_AMDXDNA_IOMMU_MISSING, message);
    }
    return xr_report(x, cause, message);
}

/* Diagnoses the recorded answers of a device. */
static int xr_recorded(xr_exam *x)
{
    size_t step;
    char rest[48];
    if (xr_grep(x, "/amdxdna-steps", "\ndriver ", rest, sizeof rest)) {
        xu_print(x->out->driver, sizeof x->out->driver, "amdxdna %s", rest);
    }
    for (step = 0; step < sizeof xd_steps / sizeof xd_steps[0]; step++) {
        char key[32], text[96];
        int err;
        xu_print(key, sizeof key, "\n%s ", xd_steps[step]);
        if (!xr_grep(x, "/amdxdna-steps", key, rest, sizeof rest)) {
            continue;
        }
        err = (int)strtol(rest, NULL, 10);
        if (err > 0) {
            xu_print(text, sizeof text, "(%s: %s)", xd_steps[step], strerror(err));
            return xr_step(x, step == XD_OPEN && err == ENODEV && xr_nodev_is_gone(x)
                                  ? WNPU_AMDXDNA_DEVICE_GONE : xd_cause((int)step, err), text);
        }
    }
    return WNPU_AMDXDNA_FINE;
}

/* Checks the pack alone, against the kind of device found (0: none). */
static int xr_pack(xr_exam *x, int kind)
{
    wnpu_error error;
    xp_pack *pack;
    int code, wrong;
    if (!xs_has_pack(&x->config)) {
        return WNPU_AMDXDNA_FINE;
    }
    code = xp_open(&pack, &x->config, &x->allocator, &error);
    if (code != WNPU_OK) {
        return xr_report(x, code == WNPU_E_MODEL    ? WNPU_AMDXDNA_PACK_DAMAGED
                            : code == WNPU_E_MEMORY ? WNPU_AMDXDNA_MEMORY
                                                    : WNPU_AMDXDNA_PACK_MISSING, error.message);
    }
    wrong = kind != 0 && pack->generation != (kind == XD_NPU1 ? 3u : 4u);
    xp_close(pack);
    return wrong ? xr_report(x, WNPU_AMDXDNA_PACK_DEVICE, NULL) : WNPU_AMDXDNA_FINE;
}

/* ---- what was found ---- */

static void xr_describe(xr_exam *x, const xd_device *device)
{
    wnpu_amdxdna_diagnosis *out = x->out;
    xu_print(out->node, sizeof out->node, "%s", device->node);
    xu_print(out->driver, sizeof out->driver, "amdxdna %d.%d", device->major, device->minor);
    xu_print(out->device, sizeof out->device, "NPU%d (1022:%04x rev %02x)", device->kind,
             device->pci_device, device->pci_revision);
    xu_print(out->firmware, sizeof out->firmware, "%lu.%lu.%lu.%lu",
             (unsigned long)device->firmware.major, (unsigned long)device->firmware.minor,
             (unsigned long)device->firmware.patch, (unsigned long)device->firmware.build);
    out->columns = device->columns;
    out->clock_mhz = xd_clock(device);
}

/* Diagnosis from the files of a machine. */
static int xr_files(xr_exam *x)
{
    int cause = xr_find_device(x);
    cause = cause == WNPU_AMDXDNA_FINE ? xr_module(x) : cause;
    cause = cause == WNPU_AMDXDNA_FINE ? xr_unbound(x) : cause;
    cause = cause == WNPU_AMDXDNA_FINE ? xr_node(x) : cause;
    cause = cause == WNPU_AMDXDNA_FINE ? xr_permissions(x) : cause;
    return cause == WNPU_AMDXDNA_FINE ? xr_firmware(x) : cause;
}

/* The rungs below the built-in kernels. Only what shows that the array itself does not work is a
 * failure: whatever else prevents a rung is the kernels' to meet, or they work without it. */
static int xr_climb(xr_exam *x, xd_why *why)
{
    unsigned rung;
    int code = WNPU_OK;
    for (rung = 1; rung <= XO_RUNGS && code == WNPU_OK && !xs_has_pack(&x->config); rung++) {
        code = xs_climb(&x->config, rung, why);
        x->out->rungs += code == WNPU_OK;
    }
    return why->cause == WNPU_AMDXDNA_KERNEL_HANGS || why->cause == WNPU_AMDXDNA_SELF_TEST ||
           why->cause == WNPU_AMDXDNA_DEVICE_GONE ? code : WNPU_OK;
}

/* On the running machine the device is tried first; files explain why it does not respond. */
static int xr_live(xr_exam *x)
{
    wnpu_error error;
    xd_why why;
    xd_device device;
    xs_accel *accel = NULL;
    int kind, cause, code;
    xs_reset_why(&why, &error);
    why.diagnosing = 1;
    code = xd_open(&device, &x->config, &why);
    if (code != WNPU_OK) {
        cause = why.cause == WNPU_AMDXDNA_SVA && why.err == ENODEV && xr_nodev_is_gone(x)
                    ? WNPU_AMDXDNA_DEVICE_GONE : why.cause;
        kind = cause == WNPU_AMDXDNA_NO_NODE || cause == WNPU_AMDXDNA_OTHER_DRIVER;
        if (kind && xr_files(x) != WNPU_AMDXDNA_FINE) {
            return x->out->cause;
        }
        return xr_step(x, cause, error.message);
    }
    xr_describe(x, &device);
    kind = device.kind;
    if (device.has_firmware && device.firmware.major == 0 && device.firmware.minor == 0 &&
        device.firmware.patch == 0) {
        xd_close(&device);
        return xr_report(x, WNPU_AMDXDNA_FIRMWARE_UNKNOWN, NULL);
    }
    cause = xr_pack(x, kind);
    xd_close(&device);
    if (cause != WNPU_AMDXDNA_FINE) {
        return cause;
    }
    if (xr_climb(x, &why) != WNPU_OK) {
        return xr_step(x, why.cause, error.message);
    }
    code = xs_open(&x->config, &accel, &why);
    if (code != WNPU_OK) {
        return xr_step(x, why.cause, error.message);
    }
    x->out->rungs += x->out->rungs == XO_RUNGS;
    x->out->columns = accel->e.pack->columns;
    x->out->clock_mhz = xd_clock(&accel->e.device); /* it may rise with the first context */
    wnpu_amdxdna_close(&accel->api);
    return WNPU_AMDXDNA_FINE;
}

WNPU_API int wnpu_amdxdna_diagnose(const wnpu_amdxdna_config *config,
                                   wnpu_amdxdna_diagnosis *diagnosis)
{
    wnpu_amdxdna_diagnosis ours;
    xr_exam x;
    uint32_t size = diagnosis == NULL ? 0 : diagnosis->struct_size;
    int cause, code;
    if (!xu_is_size(size, sizeof ours)) {
        return WNPU_E_ARGUMENT;
    }
    memset(&x, 0, sizeof x);
    memset(&ours, 0, sizeof ours);
    code = xu_merge_config(&x.config, config, &x.allocator, NULL);
    if (code != WNPU_OK) {
        return code;
    }
    x.out = &ours;
    x.root = x.config.root;
    (void)xd_read(x.root, "/proc/sys/kernel/osrelease", ours.kernel, sizeof ours.kernel);
    xr_limits(&x);
    if (x.root[0] == '\0') {
        cause = xr_live(&x);
    } else {
        cause = xr_files(&x);
        cause = cause == WNPU_AMDXDNA_FINE ? xr_recorded(&x) : cause;
        cause = cause == WNPU_AMDXDNA_FINE
                    ? xr_pack(&x, xd_kind(x.vendor, x.device, x.revision)) : cause;
    }
    if (cause == WNPU_AMDXDNA_FINE) {
        (void)xr_report(&x, WNPU_AMDXDNA_FINE, NULL);
    }
    return xu_export(diagnosis, size, &ours, sizeof ours);
}
