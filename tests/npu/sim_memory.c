/* sim_memory.c - memory of the simulated NPU: buffer objects, their mappings and the cache between
 * CPU and device.
 *
 * All buffer objects lie in one sparse file, which the program maps piecewise (that is the CPU's
 * view, cache included) and this library maps whole. Beside it lie two equally large private areas:
 * memory as the device sees it, and for each line the value at which both last agreed. A line that
 * differs from that value in the CPU's view is dirty, and nobody writes it back but a flush; what
 * the device writes stays invisible to the CPU until a flush. That is the worst cache there can be:
 * silicon may be kinder on some days.
 */
#include "sim_amdxdna.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define ARENA_BYTES (8ull << 30)
#define ARENA_UNIT 65536u
#define ARENA_UNITS (ARENA_BYTES / ARENA_UNIT)
#define IOVA_BASE 0x100000000ull
#define FRESH 0xCD                      /* memory before anything was written back to it */

static struct {
    int fd;
    uint8_t *cpu, *mem, *clean;
    uint8_t used[ARENA_UNITS];
    uint64_t next_iova;
} arena = { .fd = -1 };

/* Once in a process; a forked child starts anew. */
int sim_memory_start(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (arena.fd >= 0) {
        return 0;
    }
    arena.fd = (int)syscall(SYS_memfd_create, "sim_amdxdna", 1u);
    if (arena.fd < 0 || ftruncate(arena.fd, (off_t)ARENA_BYTES) != 0) {
        return -ENOMEM;
    }
    arena.cpu = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                     arena.fd, 0);
    arena.mem = sim.coherent ? arena.cpu :
                mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    arena.clean = sim.coherent ? arena.cpu :
                  mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    arena.next_iova = IOVA_BASE;
    return arena.cpu == MAP_FAILED || arena.mem == MAP_FAILED || arena.clean == MAP_FAILED ?
           -ENOMEM : 0;
}

/* First fit, so that closed objects' addresses come back at once, as with the real driver. */
static int arena_take(uint64_t size, uint64_t *offset)
{
    uint64_t units = (size + ARENA_UNIT - 1) / ARENA_UNIT, run = 0;
    for (uint64_t i = 0; i < ARENA_UNITS; i++) {
        run = arena.used[i] ? 0 : run + 1;
        if (run == units) {
            memset(arena.used + (i + 1 - units), 1, units);
            *offset = (i + 1 - units) * ARENA_UNIT;
            return 0;
        }
    }
    return -ENOMEM;
}

static void arena_give(uint64_t offset, uint64_t size)
{
    uint64_t units = (size + ARENA_UNIT - 1) / ARENA_UNIT;
    memset(arena.used + offset / ARENA_UNIT, 0, units);
    madvise(arena.cpu + offset, units * ARENA_UNIT, MADV_REMOVE);
    if (arena.mem != arena.cpu) {
        madvise(arena.mem + offset, units * ARENA_UNIT, MADV_DONTNEED);
        madvise(arena.clean + offset, units * ARENA_UNIT, MADV_DONTNEED);
    }
}

/* ---------------------------------------------------------------- buffer objects */

static int heap_place(sim_file *file, sim_bo *bo)
{
    uint64_t need = (bo->size + SIM_SLOT - 1) / SIM_SLOT, run = 0;
    for (uint64_t i = 0; i < file->n_heaps * (uint64_t)SIM_CHUNK_SLOTS; i++) {
        uint64_t in_chunk = i % SIM_CHUNK_SLOTS;
        const sim_bo *heap = file->heaps[i / SIM_CHUNK_SLOTS];
        run = in_chunk == 0 ? 0 : run;
        run = file->slots[i] || (in_chunk + 1) * SIM_SLOT > heap->size ? 0 : run + 1;
        if (run == need) {
            uint64_t first = i + 1 - need;
            memset(file->slots + first, 1, need);
            bo->heap = file->heaps[i / SIM_CHUNK_SLOTS];
            bo->dev = SIM_HEAP_BASE + first * SIM_SLOT;
            bo->offset = bo->heap->offset + first % SIM_CHUNK_SLOTS * SIM_SLOT;
            bo->heap->refs++;
            return 0;
        }
    }
    return -ENOSPC;
}

/* Each new object begins dirty: the kernel cleared its pages through the cache. */
static int place(sim_file *file, sim_bo *bo)
{
    if (bo->type == SIM_DEV) {
        return heap_place(file, bo);
    }
    if (arena_take(bo->size, &bo->offset) != 0) {
        return -ENOMEM;
    }
    if (bo->type == SIM_HEAP) {
        bo->dev = SIM_HEAP_BASE + (uint64_t)file->n_heaps * SIM_CHUNK;
    } else {
        if (arena.mem != arena.cpu) {
            memset(arena.mem + bo->offset, FRESH, bo->size);
            memset(arena.clean + bo->offset, FRESH, bo->size);
        }
        if (sim.iova) {
            uint64_t align = 4096;
            while (align < bo->size) {
                align *= 2;
            }
            bo->dev = (arena.next_iova + align - 1) / align * align;
            arena.next_iova = bo->dev + bo->size;
        }
    }
    return 0;
}

sim_bo *sim_bo_new(sim_file *file, int type, uint64_t size, int *error)
{
    uint32_t handle = 1;
    sim_bo *bo = calloc(1, sizeof *bo);
    while (handle < SIM_MAX_BOS && file->bos[handle] != NULL) {
        handle++;
    }
    *error = bo == NULL || handle == SIM_MAX_BOS ? -ENOMEM : 0;
    if (*error == 0) {
        bo->type = type;
        bo->size = (size + 4095) / 4096 * 4096;
        bo->va = bo->dev = SIM_NONE;
        bo->file = file;
        *error = place(file, bo);
    }
    if (*error != 0) {
        free(bo);
        return NULL;
    }
    bo->cpu = arena.cpu + bo->offset;
    bo->mem = arena.mem + bo->offset;
    bo->clean = arena.clean + bo->offset;
    bo->handle = handle;
    bo->refs = 1;
    file->bos[handle] = bo;
    sim.stats.bos++;
    sim.bytes += type == SIM_DEV ? 0 : bo->size;
    if (sim.bytes > sim.stats.peak_bytes) {
        sim.stats.peak_bytes = sim.bytes;
    }
    return bo;
}

void sim_bo_ref(sim_bo *bo)
{
    bo->refs++;
}

void sim_bo_unref(sim_bo *bo)
{
    if (--bo->refs > 0) {
        return;
    }
    if (bo->type == SIM_DEV) {
        uint64_t first = (bo->dev - SIM_HEAP_BASE) / SIM_SLOT;
        memset(bo->file->slots + first, 0, (bo->size + SIM_SLOT - 1) / SIM_SLOT);
        sim_bo_unref(bo->heap);
    } else {
        arena_give(bo->offset, bo->size);
        sim.bytes -= bo->size;
    }
    free(bo);
}

sim_bo *sim_bo_get(sim_file *file, uint32_t handle)
{
    return handle < SIM_MAX_BOS ? file->bos[handle] : NULL;
}

void sim_bo_close(sim_file *file, uint32_t handle)
{
    sim_bo *bo = file->bos[handle];
    file->bos[handle] = NULL;
    bo->handle = 0;
    sim.stats.bos--;
    sim_bo_unref(bo);
}

/* What GET_BO_INFO tells: xdna_addr if there is one, else the address of the first mapping. */
uint64_t sim_bo_device_address(const sim_bo *bo)
{
    return bo->dev != SIM_NONE ? bo->dev : bo->va;
}

/* ---------------------------------------------------------------- mappings */

static sim_bo *bo_by_offset(sim_file *file, uint64_t offset, uint64_t *inside)
{
    for (uint32_t i = 1; i < SIM_MAX_BOS; i++) {
        sim_bo *bo = file->bos[i];
        if (bo != NULL && bo->type != SIM_DEV && offset >= SIM_FAKE_OFFSET + bo->offset &&
            offset - SIM_FAKE_OFFSET - bo->offset < bo->size) {
            *inside = offset - SIM_FAKE_OFFSET - bo->offset;
            return bo;
        }
    }
    return NULL;
}

/* mmap of the device: the checks that were seen. */
void *sim_map_bo(sim_file *file, void *at, size_t size, int prot, int flags, uint64_t offset)
{
    uint64_t inside = 0;
    sim_bo *bo = bo_by_offset(file, offset, &inside);
    sim_map *map;
    void *result;
    int shared = (flags & MAP_TYPE) == MAP_SHARED || (flags & MAP_TYPE) == MAP_SHARED_VALIDATE;
    if (bo == NULL || bo->user_pages || size == 0 || size > bo->size || inside != 0 || !shared) {
        errno = EINVAL;
        return MAP_FAILED;
    }
    if ((flags & MAP_LOCKED) != 0 && sim.memlock != SIM_NONE && size > sim.memlock) {
        errno = EAGAIN;
        return MAP_FAILED;
    }
    if ((prot & PROT_WRITE) == 0) {
        sim_violation("a mapping of BO %u without PROT_WRITE", bo->handle);
    }
    map = calloc(1, sizeof *map);
    result = (void *)syscall(SYS_mmap, at, size, prot, flags & ~MAP_LOCKED, arena.fd,
                             (long)bo->offset);
    if (map == NULL || result == MAP_FAILED) {
        free(map);
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if ((flags & MAP_FIXED) != 0) {
        sim_unmap((uint64_t)(uintptr_t)result, size, 1);
    }
    *map = (sim_map){ (uint64_t)(uintptr_t)result, size, bo, sim.maps };
    sim.maps = map;
    bo->maps++;
    bo->refs++;
    sim.stats.mappings++;
    if (bo->type == SIM_HEAP && map->va % SIM_CHUNK != 0) {
        sim_violation("the heap is mapped at 0x%llx, not aligned to 64 MiB",
                      (unsigned long long)map->va);
    }
    if (bo->maps > 1) {
        sim_violation("BO %u is mapped twice", bo->handle);
    }
    if (bo->va == SIM_NONE || sim.iova) {
        bo->va = map->va;
    }
    return result;
}

static int uses(const sim_job *job, const sim_bo *bo)
{
    for (uint32_t i = 0; i < job->n_args; i++) {
        if (job->args[i] == bo) {
            return 1;
        }
    }
    return 0;
}

static int in_flight(const sim_bo *bo)
{
    const sim_ctx *ctx = bo->file != NULL ? bo->file->ctxs : NULL;
    for (; ctx != NULL; ctx = ctx->next) {
        for (const sim_job *job = ctx->jobs; job != NULL; job = job->next) {
            if (uses(job, bo)) {
                return 1;
            }
        }
    }
    return 0;
}

/* Adds a part, to the last one if they touch. */
void sim_extents_add(sim_extents *extents, const sim_bo *bo, uint64_t from, uint64_t to)
{
    sim_extent *last = extents->n > 0 ? &extents->list[extents->n - 1] : NULL;
    if (last != NULL && last->bo == bo && from <= last->to && to >= last->from) {
        last->from = from < last->from ? from : last->from;
        last->to = to > last->to ? to : last->to;
        return;
    }
    if (extents->n == extents->room) {
        size_t room = 2 * extents->room + 16;
        sim_extent *list = realloc(extents->list, room * sizeof *list);
        if (list == NULL) {
            return;
        }
        extents->list = list;
        extents->room = room;
    }
    extents->list[extents->n++] = (sim_extent){ bo, from, to };
}

/* The CPU wrote a line of an object; which commands in flight use it shows when they end. */
static void note_write(const sim_bo *bo, uint64_t at)
{
    sim_ctx *ctx = bo->file != NULL ? bo->file->ctxs : NULL;
    for (; ctx != NULL; ctx = ctx->next) {
        for (sim_job *job = ctx->jobs; job != NULL; job = job->next) {
            if (uses(job, bo)) {
                sim_extents_add(&job->written, bo, at, at + SIM_LINE);
            }
        }
    }
}

/* The program unmapped (or mapped over) a range. Mappings inside it end, others shrink in the
 * books only if they are cut at an end. */
void sim_unmap(uint64_t va, uint64_t size, int replaced)
{
    for (sim_map **link = &sim.maps; *link != NULL;) {
        sim_map *map = *link;
        sim_bo *bo = map->bo;
        if (map->va + map->size <= va || map->va >= va + size) {
            link = &map->next;
            continue;
        }
        if (!sim.iova && in_flight(bo)) {
            sim_violation("BO %u is unmapped under a command in flight", bo->handle);
        }
        if (va > map->va || va + size < map->va + map->size) {
            sim_violation("BO %u is unmapped in part%s", bo->handle, replaced ? " by MAP_FIXED"
                                                                              : "");
        }
        *link = map->next;
        free(map);
        sim.stats.mappings--;
        if (--bo->maps == 0 && sim_kernel(701) && !sim.iova) {
            bo->va = SIM_NONE;
        }
        sim_bo_unref(bo);
    }
}

/* ---------------------------------------------------------------- the cache */

static void flush_line(sim_bo *bo, uint64_t at)
{
    uint8_t *cpu = bo->cpu + at, *mem = bo->mem + at, *clean = bo->clean + at;
    if (memcmp(cpu, clean, SIM_LINE) != 0) {
        if (memcmp(mem, clean, SIM_LINE) != 0) {
            sim_violation("a dirty line is written back over what the device wrote (BO %u + %llu)",
                          bo->handle, (unsigned long long)at);
        }
        note_write(bo, at);
        memcpy(mem, cpu, SIM_LINE);
        memcpy(clean, cpu, SIM_LINE);
        sim.stats.lines_written_back++;
    } else if (memcmp(mem, clean, SIM_LINE) != 0) {
        memcpy(cpu, mem, SIM_LINE);
        memcpy(clean, mem, SIM_LINE);
        sim.stats.lines_invalidated++;
    }
}

/* CLFLUSH: each line that the range touches is written back if dirty and dropped. */
void sim_flush_range(sim_bo *bo, uint64_t offset, uint64_t size)
{
    uint64_t end = offset + size, at = offset / SIM_LINE * SIM_LINE;
    sim.stats.bytes_flushed += size;
    if (bo->mem == bo->cpu || size == 0) {
        return;
    }
    end = end < bo->size ? end : bo->size;
    while (at < end) {
        uint64_t block = at % 4096 == 0 && end - at >= 4096 ? 4096 : SIM_LINE;
        if (block == SIM_LINE) {
            flush_line(bo, at);
        } else if (memcmp(bo->cpu + at, bo->clean + at, block) != 0 ||
                   memcmp(bo->mem + at, bo->clean + at, block) != 0) {
            for (uint64_t line = at; line < at + block; line += SIM_LINE) {
                flush_line(bo, line);
            }
        }
        at += block;
    }
}

/* Flushes by address, whatever objects are mapped there. */
void sim_flush_va(const void *address, size_t size)
{
    uint64_t from = (uint64_t)(uintptr_t)address, to = from + size;
    int found = 0;
    for (const sim_map *map = sim.maps; map != NULL; map = map->next) {
        uint64_t lo = from > map->va ? from : map->va;
        uint64_t hi = to < map->va + map->size ? to : map->va + map->size;
        if (lo < hi) {
            found = 1;
            sim_flush_range(map->bo, lo - map->va, hi - lo);
        }
    }
    if (!found && size > 0) {
        sim_log("flush of %zu bytes at %p: no buffer object there", size, address);
    }
}

/* The device is about to write: 1 if the CPU holds one of the lines dirty. Without the lock. */
int sim_bo_dirty(const sim_bo *bo, uint64_t offset, uint64_t size)
{
    uint64_t from = offset / SIM_LINE * SIM_LINE;
    uint64_t to = (offset + size + SIM_LINE - 1) / SIM_LINE * SIM_LINE;
    return bo->mem != bo->cpu && memcmp(bo->cpu + from, bo->clean + from, to - from) != 0;
}

/* A forked child has no device of its own yet. */
void sim_memory_forget(void)
{
    memset(&arena, 0, sizeof arena);
    arena.fd = -1;
}
