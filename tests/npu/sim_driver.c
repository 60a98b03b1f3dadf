/* sim_driver.c - the driver side of the simulated NPU: each ioctl with its checks in the order, and
 * with the errors, of drivers/accel/amdxdna in Linux 6.16 to 7.3 and of amd/xdna-driver; most were
 * also seen on the unmodified module of 7.2. Fields are read by their byte offsets in the
 * structures of amdxdna_accel.h, so that this side shares no definition with the library. What the
 * real driver lets pass, but breaks on later, is a violation.
 */
#include "sim_amdxdna.h"

#define CORE_ROWS 4u

/* The argument of one ioctl, in the kernel's copy. */
typedef struct request {
    sim_file *file;
    uint8_t bytes[64];
} request;

typedef struct partition {
    uint32_t start, width, users;
} partition;
static partition partitions[64];

static uint32_t get32(const request *r, unsigned at)
{
    uint32_t value;
    memcpy(&value, r->bytes + at, sizeof value);
    return value;
}

static uint64_t get64(const request *r, unsigned at)
{
    uint64_t value;
    memcpy(&value, r->bytes + at, sizeof value);
    return value;
}

static void put32(request *r, unsigned at, uint32_t value)
{
    memcpy(r->bytes + at, &value, sizeof value);
}

static void put64(request *r, unsigned at, uint64_t value)
{
    memcpy(r->bytes + at, &value, sizeof value);
}

static uint32_t array_columns(void)
{
    return sim.device == SIM_NPU1 ? 5 : 8;
}

/* Those that the driver uses. */
static uint32_t device_columns(void)
{
    return sim.max_col < array_columns() ? sim.max_col : array_columns();
}

static uint32_t context_limit(void)
{
    return sim.device == SIM_NPU1 ? 6 : 16;
}

static uint32_t chunk_limit(void)
{
    return sim.device == SIM_NPU1 || !sim_kernel(702) ? 1 : SIM_MAX_CHUNKS;
}

static sim_ctx *context(sim_file *file, uint32_t id)
{
    sim_ctx *ctx = file->ctxs;
    while (ctx != NULL && (ctx->id != id || ctx->closing)) {
        ctx = ctx->next;
    }
    return ctx;
}

/* ---------------------------------------------------------------- contexts */

/* Contexts of NPU4 on firmware of 6.12 and later share all columns from 6.19 on. */
static int temporal_only(void)
{
    return sim.device == SIM_NPU4 && sim_kernel(619) && sim.protocol_minor >= 12;
}

static int take_partition(sim_ctx *ctx)
{
    uint32_t cols = device_columns(), n = ctx->columns, step = sim.device == SIM_NPU1 ? 1 : n;
    uint32_t first = sim.device == SIM_NPU1 ? 1 : 0, end = cols - n;
    partition *shared = NULL, *empty = NULL;
    if (temporal_only()) {
        ctx->start = 0;
        ctx->width = cols;
        return 0;
    }
    first = first > 0 && end == 0 ? 0 : first;
    for (uint32_t start = (first + step - 1) / step * step; start <= end; start += step) {
        int free_columns = 1;
        for (size_t i = 0; i < sizeof partitions / sizeof *partitions; i++) {
            partition *p = &partitions[i];
            if (p->users == 0) {
                empty = empty != NULL ? empty : p;
            } else if (p->start < start + n && start < p->start + p->width) {
                free_columns = 0;
                if (p->width == n && p->start == start &&
                    (shared == NULL || p->users < shared->users)) {
                    shared = p;
                }
            }
        }
        if (free_columns && empty != NULL) {
            *empty = (partition){ start, n, 0 };
            shared = empty;
            break;
        }
    }
    if (shared == NULL) {
        return -ENODEV;
    }
    shared->users++;
    ctx->start = shared->start;
    ctx->width = n;
    return 0;
}

static void give_partition(const sim_ctx *ctx)
{
    for (size_t i = 0; i < sizeof partitions / sizeof *partitions && !temporal_only(); i++) {
        partition *p = &partitions[i];
        if (p->users > 0 && p->start == ctx->start && p->width == ctx->width) {
            p->users--;
            return;
        }
    }
}

static int qos_fits(const uint32_t *qos, uint32_t max_opc, uint32_t columns)
{
    uint64_t rate = qos[1], opc = max_opc;
    uint64_t h_clock = sim.device == SIM_NPU1 ? 1600 : 1800;
    if (sim.device == SIM_NPU4 && sim_kernel(619) && !sim_kernel(702)) {
        return 1;
    }
    if (qos[3] != 0) {
        uint64_t by_latency = 1000 / qos[3] > 0 ? 1000 / qos[3] : 1;
        rate = rate > by_latency ? rate : by_latency;
    }
    if (sim_kernel(702)) {
        opc = (sim.device == SIM_NPU1 ? 2048u : 4096u) * columns;
    }
    return 2 * rate * qos[0] <= opc * h_clock / 1000;
}

static void free_context(sim_ctx *ctx)
{
    for (unsigned i = 0; i < 4; i++) {
        if (ctx->cmd_slots[i] != NULL) {
            sim_bo_unref(ctx->cmd_slots[i]);
        }
    }
    if (ctx->width != 0) {
        give_partition(ctx);
    }
    free(ctx);
}

/* The four buffers that the driver takes from the client's heap for its command lists. */
static int context_slots(sim_file *file, sim_ctx *ctx)
{
    for (unsigned i = 0; i < 4; i++) {
        int error;
        sim_bo *bo = sim_bo_new(file, SIM_DEV, 4096, &error);
        if (bo == NULL) {
            return error == -ENOSPC && sim_kernel(702) && file->n_heaps < chunk_limit() ?
                   -EAGAIN : error;
        }
        file->bos[bo->handle] = NULL;
        bo->handle = 0;
        sim.stats.bos--;
        ctx->cmd_slots[i] = bo;
    }
    return 0;
}

static int context_checks(request *r, sim_ctx *ctx, const uint32_t *qos)
{
    int error = context_slots(r->file, ctx);
    uint32_t tiles = get32(r, 36), live = 0;
    if (error == 0) {
        error = sim_engine_manage();
    }
    if (error != 0) {
        return error;
    }
    ctx->columns = tiles / CORE_ROWS;
    if (tiles == 0 || ctx->columns == 0 || ctx->columns > device_columns() ||
        !qos_fits(qos, get32(r, 32), ctx->columns)) {
        return -EINVAL;
    }
    error = take_partition(ctx);
    if (error != 0) {
        return error;
    }
    if (r->file->n_heaps > 1 && sim.protocol_minor < 18) {
        return -EOPNOTSUPP;
    }
    if (sim.fw_contexts + sim.fw_leaked >= context_limit()) {
        return -EINVAL;
    }
    for (const sim_ctx *other = r->file->ctxs; other != NULL; other = other->next) {
        live++;
    }
    return live >= 255 ? -EBUSY : 0;
}

static void context_enter(request *r, sim_ctx *ctx)
{
    sim_file *file = r->file;
    sim_sync *sync = calloc(1, sizeof *sync);
    if (sync == NULL) {
        abort();
    }
    do {
        file->next_ctx = file->next_ctx % 255 + 1;
    } while (context(file, file->next_ctx) != NULL);
    sync->handle = ++file->next_sync;
    sync->refs = 2;
    sync->next = file->syncs;
    file->syncs = sync;
    ctx->id = file->next_ctx;
    ctx->fw_id = ++sim.next_fw_id;
    ctx->file = file;
    ctx->sync = sync;
    ctx->next = file->ctxs;
    file->ctxs = ctx;
    sim.fw_contexts++;
    sim.stats.contexts++;
    sim.stats.syncobjs++;
}

static int create_hwctx(request *r)
{
    uint32_t qos[8] = { 0 };
    sim_file *file = r->file;
    sim_ctx *ctx;
    int error;
    if (get64(r, 0) != 0 || get64(r, 8) != 0) {
        return -EINVAL;
    }
    if (sim_copy_in(qos, get64(r, 16), sim.kernel == SIM_LEGACY ? 32 : 24) != 0) {
        return -EFAULT;
    }
    if (file->n_heaps == 0) {
        return -ENOENT;
    }
    if (file->heaps[0]->va == SIM_NONE) {
        return sim_kernel(702) ? -EAGAIN : -EINVAL;
    }
    ctx = calloc(1, sizeof *ctx);
    if (ctx == NULL) {
        return -ENOMEM;
    }
    error = context_checks(r, ctx, qos);
    if (error == 0) {
        error = sim_engine_start();
    }
    if (error != 0) {
        free_context(ctx);
        return error;
    }
    context_enter(r, ctx);
    if (sim_kernel(702)) {
        put32(r, 44, UINT32_MAX);
    }
    put32(r, 48, ctx->id);
    put32(r, 52, ctx->sync->handle);
    return 0;
}

static void sync_unref(sim_sync *sync)
{
    if (--sync->refs == 0) {
        free(sync);
    }
}

static void destroy_context(sim_ctx *ctx)
{
    sim_file *file = ctx->file;
    ctx->closing = 1;
    sim_engine_destroy(ctx);
    for (sim_ctx **link = &file->ctxs; *link != NULL; link = &(*link)->next) {
        if (*link == ctx) {
            *link = ctx->next;
            break;
        }
    }
    sim.fw_contexts--;
    sim.stats.contexts--;
    sync_unref(ctx->sync);
    free_context(ctx);
}

static int destroy_hwctx(request *r)
{
    sim_ctx *ctx = context(r->file, get32(r, 0));
    if (get32(r, 4) != 0 || ctx == NULL) {
        return -EINVAL;
    }
    destroy_context(ctx);
    return 0;
}

static int config_cu(sim_ctx *ctx, const uint8_t *bytes, uint32_t size)
{
    static const uint8_t zero[6];
    uint16_t n;
    sim_bo *pdis[SIM_MAX_CUS];
    memcpy(&n, bytes, sizeof n);
    if (size < 8 || memcmp(bytes + 2, zero, 6) != 0 || n == 0 || 8 + 8u * n > size ||
        ctx->configured || n > SIM_MAX_CUS) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t handle;
        memcpy(&handle, bytes + 8 + 8 * i, sizeof handle);
        pdis[i] = sim_bo_get(ctx->file, handle);
        if (memcmp(bytes + 8 + 8 * i + 5, zero, 3) != 0 || pdis[i] == NULL ||
            pdis[i]->type != SIM_DEV) {
            return -EINVAL;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        ctx->cu_handles[i] = pdis[i]->handle;
        sim_engine_configure(ctx, i, pdis[i]);
    }
    ctx->n_cus = n;
    ctx->configured = 1;
    return 0;
}

static int config_hwctx(request *r)
{
    uint8_t bytes[4096] = { 0 };
    uint32_t type = get32(r, 4), size = get32(r, 16);
    sim_ctx *ctx;
    if (get32(r, 20) != 0) {
        return -EINVAL;
    }
    if (type == 0 && size > 4096) {
        return -E2BIG;
    }
    if (type == 0 && sim_copy_in(bytes, get64(r, 8), size) != 0) {
        return -EFAULT;
    }
    if (type > 2) {
        return -EINVAL;
    }
    ctx = context(r->file, get32(r, 0));
    if (ctx == NULL) {
        return -EINVAL;
    }
    if (type != 0) {
        return sim_kernel(619) ? -EINVAL : -EOPNOTSUPP; /* debug buffers are not modelled */
    }
    return config_cu(ctx, bytes, size);
}

/* ---------------------------------------------------------------- buffer objects */

static int create_heap(request *r, uint64_t size)
{
    sim_file *file = r->file;
    int error;
    if (!sim_kernel(701)) {
        if (size == 0 || size > SIM_CHUNK) {
            return -EINVAL;
        }
    } else if (size == 0 || size % SIM_CHUNK != 0) {
        return -EINVAL;
    }
    if (!sim_kernel(702) && file->n_heaps > 0) {
        return -EBUSY;
    }
    if (file->n_heaps + size / SIM_CHUNK > chunk_limit() && sim_kernel(702)) {
        return -ENOSPC;
    }
    if (size > SIM_CHUNK) {
        sim_log("a heap of more than 64 MiB at once is not modelled");
        return -ENOMEM;
    }
    file->heaps[file->n_heaps] = sim_bo_new(file, SIM_HEAP, size, &error);
    if (file->heaps[file->n_heaps] == NULL) {
        return error;
    }
    sim_bo_ref(file->heaps[file->n_heaps]); /* the client object's */
    put32(r, 28, file->heaps[file->n_heaps++]->handle);
    return 0;
}

static int create_dev(request *r, uint64_t size)
{
    sim_file *file = r->file;
    int error;
    sim_bo *bo;
    if (size == 0) {
        return -EINVAL;
    }
    if (file->n_heaps == 0 || file->heaps[0]->va == SIM_NONE) {
        return sim_kernel(702) ? -EAGAIN : -EINVAL;
    }
    if (size > (sim_kernel(702) ? (uint64_t)chunk_limit() * SIM_CHUNK : file->heaps[0]->size)) {
        return -EINVAL;
    }
    bo = sim_bo_new(file, SIM_DEV, size, &error);
    if (bo == NULL) {
        return error == -ENOSPC && file->n_heaps < chunk_limit() ? -EAGAIN : error;
    }
    put32(r, 28, bo->handle);
    return 0;
}

/* A BO over pages of the program: coherent here, and only if they are one piece. */
static int create_user(request *r, uint64_t table, int type)
{
    struct { int32_t fd; uint32_t n; } head;
    uint64_t total = 0, entry[2], first = 0;
    sim_bo *bo;
    int error;
    if (sim_copy_in(&head, table, sizeof head) != 0) {
        return -EINVAL;
    }
    if (head.n == 0) {
        return -EBADF; /* dma-bufs are not modelled */
    }
    for (uint32_t i = 0; i < head.n && i < 65536; i++) {
        if (sim_copy_in(entry, table + 8 + 16ull * i, sizeof entry) != 0 ||
            entry[0] % 4096 != 0 || entry[1] % 4096 != 0 || entry[1] == 0) {
            return -EINVAL;
        }
        first = i == 0 ? entry[0] : first;
        if (entry[0] != first + total) {
            sim_log("a user-pointer BO in several pieces is not modelled");
            return -ENOMEM;
        }
        total += entry[1];
    }
    if (sim.memlock != SIM_NONE && total > sim.memlock) {
        return -ENOMEM;
    }
    bo = sim_bo_new(r->file, type, total, &error);
    if (bo == NULL) {
        return error;
    }
    bo->user_pages = 1;
    bo->cpu = bo->mem = bo->clean = (uint8_t *)(uintptr_t)first;
    bo->va = first;
    put32(r, 28, bo->handle);
    return 0;
}

static int create_bo(request *r)
{
    uint64_t vaddr = get64(r, 8), size = get64(r, 16);
    uint32_t type = get32(r, 24);
    sim_bo *bo;
    int error;
    if (get64(r, 0) != 0 || type == 0 || type > SIM_CMD ||
        (vaddr != 0 && (type == SIM_DEV || !sim_kernel(618)))) {
        return -EINVAL;
    }
    if (vaddr != 0) {
        return create_user(r, vaddr, (int)type);
    }
    if (type == SIM_HEAP) {
        return create_heap(r, size);
    }
    if (type == SIM_DEV) {
        return create_dev(r, size);
    }
    if (type == SIM_CMD && ((!sim_kernel(701) && size < 4) ||
                            (!sim_kernel(619) && size > 32768))) {
        return -EINVAL;
    }
    if (size == 0) {
        return sim_kernel(702) && sim.iova ? -ENOSPC : -EINVAL;
    }
    if (size > 2ull << 30) {
        return -ENOMEM;
    }
    bo = sim_bo_new(r->file, (int)type, size, &error);
    if (bo == NULL) {
        return error;
    }
    put32(r, 28, bo->handle);
    return 0;
}

static int get_bo_info(request *r)
{
    sim_bo *bo = sim_bo_get(r->file, get32(r, 16));
    uint64_t va, address;
    if (get64(r, 0) != 0 || get64(r, 8) != 0 || get32(r, 20) != 0) {
        return -EINVAL;
    }
    if (bo == NULL) {
        return -ENOENT;
    }
    va = bo->type != SIM_DEV ? bo->va : bo->heap->va == SIM_NONE ? SIM_NONE :
         bo->heap->va + (bo->dev - bo->heap->dev);
    address = bo->dev != SIM_NONE ? bo->dev : sim_kernel(701) ? bo->va : SIM_NONE;
    put64(r, 24, bo->type == SIM_DEV || bo->user_pages ? SIM_NONE
                                                       : SIM_FAKE_OFFSET + bo->offset);
    put64(r, 32, va);
    put64(r, 40, address);
    return 0;
}

static int sync_bo(request *r)
{
    sim_bo *bo = sim_bo_get(r->file, get32(r, 0));
    uint32_t direction = get32(r, 4);
    uint64_t offset = get64(r, 8), size = get64(r, 16);
    if (bo == NULL) {
        return -ENOENT;
    }
    if (bo->type == SIM_CMD && !sim_kernel(617)) {
        return -EOPNOTSUPP;
    }
    if (bo->user_pages && sim_kernel(702)) {
        sim_violation("SYNC_BO on a user-pointer BO, which makes the kernel warn");
        return -EOPNOTSUPP;
    }
    if (offset >= bo->size || offset + size < offset) {
        sim_violation("SYNC_BO outside BO %u", bo->handle);
        if (sim_kernel(702) && bo->type != SIM_DEV) {
            return -EINVAL;
        }
        offset = 0;
        size = bo->size;
    }
    size = size < bo->size - offset ? size : bo->size - offset;
    if (!sim_kernel(617)) {
        offset = 0;
        size = bo->size;
    }
    sim_flush_range(bo, offset, size);
    return direction == 1 && sim_kernel(619) ? -EINVAL : 0;
}

/* A PDI must keep its handle as long as a context is configured with it: the driver
 * loads it again after a recovery. */
static void check_pdi(sim_file *file, uint32_t handle)
{
    for (const sim_ctx *ctx = file->ctxs; ctx != NULL; ctx = ctx->next) {
        for (uint32_t i = 0; i < ctx->n_cus; i++) {
            if (ctx->cu_handles[i] == handle) {
                sim_violation("the PDI of live context %u is closed", ctx->id);
            }
        }
    }
}

static int gem_close(request *r)
{
    uint32_t handle = get32(r, 0);
    if (sim_bo_get(r->file, handle) == NULL) {
        return -EINVAL;
    }
    check_pdi(r->file, handle);
    sim_bo_close(r->file, handle);
    return 0;
}

/* ---------------------------------------------------------------- commands */

static int command_bo_ok(const sim_bo *bo)
{
    return bo != NULL && (bo->type == SIM_CMD || (sim_kernel(701) && bo->type == SIM_SHMEM));
}

static int lookup_args(request *r, const uint32_t *handles, uint32_t n, sim_bo **args)
{
    for (uint32_t i = 0; i < n; i++) {
        args[i] = sim_bo_get(r->file, handles[i]);
        if (args[i] == NULL) {
            return -ENOENT;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        if (args[i]->type == SIM_CMD && !sim_kernel(617)) {
            return -EOPNOTSUPP;
        }
    }
    return 0;
}

static int check_args(sim_bo **args, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (args[i] == args[j]) {
                return -EALREADY;
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        if (args[i]->type == SIM_SHMEM && !sim.iova && !args[i]->user_pages &&
            args[i]->va != SIM_NONE && args[i]->maps == 0) {
            return -EFAULT;
        }
    }
    return 0;
}

/* Blocks, interruptibly, while four commands are in flight. */
static int wait_for_slot(sim_file *file, uint32_t id)
{
    for (;;) {
        sim_ctx *ctx = context(file, id);
        uint32_t seen = __atomic_load_n(&sim.events, __ATOMIC_SEQ_CST);
        int error;
        if (ctx == NULL) {
            return -EINVAL;
        }
        if (ctx->in_flight < SIM_IN_FLIGHT || (sim.lenient && ctx->in_flight == SIM_IN_FLIGHT)) {
            return 0;
        }
        sim_log("context %u: a fifth command blocks", id);
        sim_leave();
        error = sim_sleep(seen, sim_now() + 1000.0);
        sim_enter();
        if (error == -EINTR) {
            return -EINTR;
        }
    }
}

static int queue_job(request *r, sim_ctx *ctx, sim_bo *cmd, sim_bo **args, uint32_t n)
{
    sim_job *job = calloc(1, sizeof *job), **link = &ctx->jobs;
    if (job == NULL) {
        return -ENOMEM;
    }
    *job = (sim_job){ .ctx = ctx, .seq = ctx->sync->submitted++, .submitted = sim_now(),
                      .cmd = cmd, .args = args, .n_args = n, .number = ++sim.exec_seen };
    sim_bo_ref(cmd);
    for (uint32_t i = 0; i < n; i++) {
        sim_bo_ref(args[i]);
    }
    while (*link != NULL) {
        link = &(*link)->next;
    }
    *link = job;
    if ((*cmd->cpu & 0xF) != SIM_NEW) {
        sim_violation("a command is submitted in state %u, which a poller can take for the result",
                      *cmd->cpu & 0xFu);
    }
    ctx->in_flight++;
    ctx->submissions++;
    sim.stats.submissions++;
    sim.last_activity = job->submitted;
    put64(r, 48, job->seq);
    if (ctx->jobs == job) {
        sim_clock_stop(); /* nothing is between it and the device */
    }
    sim_engine_kick();
    return 0;
}

static int exec_locked(request *r, const uint32_t *handles, uint32_t n, sim_bo **args)
{
    uint64_t handle = get64(r, 24);
    sim_bo *cmd = handle < SIM_MAX_BOS ? sim_bo_get(r->file, (uint32_t)handle) : NULL;
    sim_ctx *ctx;
    int error;
    if (handle == 0 && !sim_kernel(701)) {
        sim_violation("EXEC_CMD with command handle 0");
    }
    if (!command_bo_ok(cmd) || (sim_kernel(619) && !sim_kernel(701) && cmd->size > 32768)) {
        return -EINVAL;
    }
    error = lookup_args(r, handles, n, args);
    if (error == 0 && sim_kernel(619)) {
        error = sim_engine_resume();
    }
    if (error != 0) {
        return error;
    }
    ctx = context(r->file, get32(r, 16));
    if (ctx == NULL || (!ctx->configured && !sim_kernel(619))) {
        return -EINVAL;
    }
    error = wait_for_slot(r->file, ctx->id);
    if (error == 0) { /* the lock was open: nothing found before is certain */
        ctx = context(r->file, get32(r, 16));
        cmd = sim_bo_get(r->file, (uint32_t)handle);
        error = ctx == NULL || cmd == NULL ? -EINVAL : lookup_args(r, handles, n, args);
    }
    if (error == 0) {
        error = check_args(args, n);
    }
    return error != 0 ? error : queue_job(r, ctx, cmd, args, n);
}

static int exec_cmd(request *r)
{
    uint32_t n = get32(r, 44), handles[4096];
    sim_bo **args;
    int error;
    if (get64(r, 0) != 0 || get64(r, 8) != 0 || get32(r, 20) != 0 || n > 4095 ||
        get32(r, 40) != 1) {
        return -EINVAL;
    }
    if (n > 0 && sim_copy_in(handles, get64(r, 32), n * 4u) != 0) {
        return -EFAULT;
    }
    args = calloc(n + 1u, sizeof *args);
    if (args == NULL) {
        return -ENOMEM;
    }
    error = exec_locked(r, handles, n, args);
    if (error != 0) {
        free(args);
    }
    return error;
}

/* ---------------------------------------------------------------- waiting */

static sim_sync *sync_of(sim_file *file, uint32_t handle)
{
    sim_sync *sync = file->syncs;
    while (sync != NULL && sync->handle != handle) {
        sync = sync->next;
    }
    return sync;
}

/* 1 signalled, 0 not yet, -EINVAL never submitted. target: points to be signalled, fixed when the
 * wait begins, because point 0 means the newest one at that time. */
static int point_state(const sim_sync *sync, uint64_t point, uint64_t *target, uint32_t flags)
{
    if (*target == 0 && sync->submitted > 0 && (point == 0 || point < sync->submitted)) {
        *target = point == 0 ? sync->submitted : point + 1;
    }
    if (*target == 0) {
        return (flags & (2 | 4)) != 0 ? 0 : -EINVAL;
    }
    return (flags & 4) != 0 || sync->signalled >= *target;
}

static int wait_points(sim_sync **syncs, const uint64_t *points, uint32_t n, uint32_t flags,
                       double until, uint32_t *first)
{
    uint64_t targets[64] = { 0 };
    double asked = (until - sim_now()) * 1e6;
    sim.stats.waits++;
    sim.stats.longest_wait_us = asked > sim.stats.longest_wait_us ? asked
                                                                  : sim.stats.longest_wait_us;
    for (unsigned rounds = 0;; rounds++) {
        uint32_t seen = __atomic_load_n(&sim.events, __ATOMIC_SEQ_CST), done = 0;
        int error;
        for (uint32_t i = n; i-- > 0;) {
            int state = point_state(syncs[i], points[i], &targets[i], flags);
            if (state < 0) {
                return state;
            }
            if (state > 0) {
                done++;
                *first = i;
            }
        }
        if (done == n || (done > 0 && (flags & 1) == 0)) {
            return 0;
        }
        sim.stats.sleeps += rounds == 0 && until > sim_now();
        sim_leave();
        error = sim_sleep(seen, until);
        sim_enter();
        if (error != 0 && __atomic_load_n(&sim.events, __ATOMIC_SEQ_CST) == seen) {
            return error;
        }
        if (sim.gone) {
            return -ENODEV;
        }
    }
}

/* SYNCOBJ_WAIT and SYNCOBJ_TIMELINE_WAIT differ in where the fields are. */
static int syncobj_wait(request *r, int timeline)
{
    unsigned at = timeline ? 16 : 8;
    int64_t timeout = (int64_t)get64(r, at);
    uint32_t n = get32(r, at + 8), flags = get32(r, at + 12), handles[64], first = 0;
    uint64_t points[64] = { 0 };
    sim_sync *syncs[64];
    int error = 0;
    if ((flags & ~(timeline ? 15u : 11u)) != 0) {
        return -EINVAL;
    }
    if (n == 0 || n > 64) {
        return n == 0 ? 0 : -ENOMEM;
    }
    if (sim_copy_in(handles, get64(r, 0), n * 4) != 0 ||
        (timeline && sim_copy_in(points, get64(r, 8), n * 8) != 0)) {
        return -EFAULT;
    }
    for (uint32_t i = 0; i < n; i++) {
        syncs[i] = sync_of(r->file, handles[i]);
        if (syncs[i] == NULL) {
            return -ENOENT;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        syncs[i]->refs++;
    }
    error = wait_points(syncs, points, n, flags, (double)timeout * 1e-9, &first);
    for (uint32_t i = 0; i < n; i++) {
        sync_unref(syncs[i]);
    }
    put32(r, at + 16, first);
    return error;
}

static int syncobj_destroy(request *r)
{
    sim_sync *sync = sync_of(r->file, get32(r, 0));
    if (get32(r, 4) != 0 || sync == NULL) {
        return -EINVAL;
    }
    for (sim_sync **link = &r->file->syncs; *link != NULL; link = &(*link)->next) {
        if (*link == sync) {
            *link = sync->next;
            break;
        }
    }
    sim.stats.syncobjs--;
    sync_unref(sync);
    return 0;
}

/* The last signalled point, or with flag 1 the last submitted one. */
static int syncobj_query(request *r)
{
    uint32_t n = get32(r, 16), flags = get32(r, 20);
    if ((flags & ~1u) != 0 || n == 0) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t handle;
        uint64_t count;
        const sim_sync *sync;
        if (sim_copy_in(&handle, get64(r, 0) + 4ull * i, 4) != 0) {
            return -EFAULT;
        }
        sync = sync_of(r->file, handle);
        if (sync == NULL) {
            return -ENOENT;
        }
        count = (flags & 1) != 0 ? sync->submitted : sync->signalled;
        count = count > 0 ? count - 1 : 0;
        if (sim_copy_out(get64(r, 8) + 8ull * i, &count, 8) != 0) {
            return -EFAULT;
        }
    }
    return 0;
}

/* The legacy driver alone has it for these devices. */
static int wait_cmd(request *r)
{
    sim_ctx *ctx;
    uint32_t ms = get32(r, 4), first;
    uint64_t seq = get64(r, 8);
    int error;
    if (sim.kernel != SIM_LEGACY) {
        return sim_kernel(702) ? -EOPNOTSUPP : -EINVAL;
    }
    ctx = context(r->file, get32(r, 0));
    if (ctx == NULL || seq >= ctx->sync->submitted) {
        return -EINVAL;
    }
    while (ctx->sync->signalled <= seq) {
        double until = ms == 0 ? 1e18 : sim_now() + ms * 1e-3;
        error = wait_points(&ctx->sync, &seq, 1, 2, until, &first);
        if (error != 0) {
            return error;
        }
    }
    return 0;
}

/* ---------------------------------------------------------------- queries */

static void metadata(uint8_t *to)
{
    /* 16 locks and 2 channels a core, 64 and 6 a memory tile: the architecture's */
    static const uint16_t tiles[3][5] = { { 4, 2, 2, 16, SIM_EVENTS },
                                          { 1, 1, 6, 64, SIM_EVENTS },
                                          { 1, 0, 2, 16, SIM_EVENTS } };
    uint32_t col_size = sim.odd_layout ? 0x02000000 : SIM_STATUS, version[2] = { 1, 1 };
    uint16_t cols = (uint16_t)array_columns(), rows = 6;
    memset(to, 0, 64);
    memcpy(to, &col_size, 4);
    memcpy(to + 4, &cols, 2);
    memcpy(to + 6, &rows, 2);
    memcpy(to + 8, version, 8);
    for (unsigned i = 0; i < 3; i++) {
        memcpy(to + 16 + 16 * i, tiles[i], sizeof tiles[i]);
    }
}

static void clocks(uint8_t *to)
{
    uint32_t mhz[2] = { sim.device == SIM_NPU1 ? 847u : 1267u,
                        sim.device == SIM_NPU1 ? 1600u : 1800u };
    memset(to, 0, 48);
    memcpy(to, "MP-NPU Clock", 12);
    memcpy(to + 16, &mhz[0], 4);
    memcpy(to + 24, "H Clock", 7);
    memcpy(to + 40, &mhz[1], 4);
}

/* One entry of QUERY_HW_CONTEXTS, which the newer array entry begins like. */
static size_t old_entry(uint8_t *to, const sim_ctx *ctx)
{
    int64_t pid = getpid();
    memset(to, 0, 64);
    memcpy(to, &ctx->id, 4);
    memcpy(to + 4, &ctx->start, 4);
    memcpy(to + 8, &ctx->width, 4);
    memcpy(to + 16, &pid, 8);
    memcpy(to + 24, &ctx->submissions, 8);
    memcpy(to + 32, &ctx->completions, 8);
    memcpy(to + 56, &ctx->errors, 8);
    return 64;
}

static size_t info_bytes(uint32_t param, uint8_t *to)
{
    uint32_t version[4] = { 1, 5, 5, 391 }, aie[2] = { 2, sim.device == SIM_NPU1 ? 0u : 1u };
    uint64_t resource[5] = { sim.device == SIM_NPU1 ? 1600 : 1800,
                             sim.device == SIM_NPU1 ? 10 : 50, context_limit(),
                             sim.device == SIM_NPU1 ? 10 : 50, sim.stats.contexts };
    if (sim.device != SIM_NPU1) {
        uint32_t npu4[4] = { 1, 1, 2, 65 };
        memcpy(version, npu4, sizeof version);
    }
    memset(to, 0, 64);
    switch (param) {
    case 1: metadata(to); return 64;
    case 2: memcpy(to, aie, 8); return 8;
    case 3: clocks(to); return 48;
    case 8: memcpy(to, version, 16); return 16;
    case 9: return 8;
    case 11: case 13: return sim_kernel(619) ? 8 : 0;
    case 12: memcpy(to, resource, 40); return sim_kernel(619) ? 40 : 0;
    default: return 0;
    }
}

/* ≤ 6.17 tells the bytes needed and fails if they are more than given; later versions write what
 * fits and tell what is left over. */
static int info_contexts(request *r)
{
    uint32_t given = get32(r, 4), need = 0, written = 0;
    uint8_t entry[64];
    for (const sim_ctx *ctx = r->file->ctxs; ctx != NULL; ctx = ctx->next) {
        need += 64;
    }
    if (!sim_kernel(618) && need > given) {
        put32(r, 4, need);
        return -EINVAL;
    }
    for (const sim_ctx *ctx = r->file->ctxs; ctx != NULL && written + 64 <= given;
         ctx = ctx->next) {
        old_entry(entry, ctx);
        if (sim_copy_out(get64(r, 8) + written, entry, 64) != 0) {
            return -EFAULT;
        }
        written += 64;
    }
    put32(r, 4, sim_kernel(618) ? given - written : need);
    return 0;
}

/* The status of the columns that this process's contexts use, one after the other, which the
 * firmware reads: that of the last standstill, otherwise zeros. */
static int info_status(const request *r)
{
    uint8_t status[16];
    uint32_t columns = 0, given, size = 0;
    uint64_t buffer;
    int error = sim_engine_manage();
    if (error != 0) {
        return error;
    }
    if (get32(r, 4) != sizeof status || sim_copy_in(status, get64(r, 8), sizeof status) != 0) {
        return get32(r, 4) != sizeof status ? -EINVAL : -EFAULT;
    }
    memcpy(&buffer, status, 8);
    memcpy(&given, status + 8, 4);
    for (const sim_ctx *ctx = r->file->ctxs; ctx != NULL; ctx = ctx->next) {
        columns |= ((1u << ctx->width) - 1) << ctx->start;
    }
    for (uint32_t column = 0; column < SIM_MAX_COLS; column++) {
        if ((columns >> column & 1) == 0) {
            continue;
        }
        if (given - size < SIM_STATUS) {
            return -EINVAL;
        }
        if (sim_copy_out(buffer + size, sim.status[column], SIM_STATUS) != 0) {
            return -EFAULT;
        }
        size += SIM_STATUS;
    }
    memcpy(status + 12, &columns, 4);
    return sim_copy_out(get64(r, 8), status, sizeof status);
}

static int get_info(request *r)
{
    uint32_t param = get32(r, 0), given = get32(r, 4);
    uint8_t bytes[64];
    size_t size;
    int error = sim_engine_resume();
    if (error != 0) {
        return error;
    }
    if (param == 0) {
        return info_status(r);
    }
    if (param == 5) {
        return info_contexts(r);
    }
    size = info_bytes(param, bytes);
    if (size == 0) {
        return -EOPNOTSUPP;
    }
    if (sim_kernel(701) && given < size) {
        size = given;
    } else if (given < size) {
        sim_violation("GET_INFO %u into %u bytes: this kernel writes %zu", param, given, size);
    }
    return sim_copy_out(get64(r, 8), bytes, size);
}

static size_t array_entry(uint8_t *to, const sim_ctx *ctx)
{
    uint64_t priority = 0x180, heap = 4 * SIM_SLOT;
    memset(to, 0, 144);
    old_entry(to, ctx);
    memcpy(to + 12, &ctx->fw_id, 4);
    memcpy(to + 64, &priority, 8);
    memcpy(to + 72, &heap, 8);
    return 144;
}

static int array_contexts(request *r, uint32_t element, uint32_t count)
{
    uint8_t entry[144];
    uint32_t written = 0;
    size_t size;
    if (element > 4096 || count > 1024) {
        return -EINVAL;
    }
    for (const sim_ctx *ctx = r->file->ctxs; ctx != NULL && written < count; ctx = ctx->next) {
        size = array_entry(entry, ctx);
        size = size < element ? size : element;
        if (sim_copy_out(get64(r, 16) + (uint64_t)written * element, entry, size) != 0) {
            return -EFAULT;
        }
        written++;
    }
    put32(r, 4, element < 144 ? element : 144);
    put32(r, 8, written);
    return 0;
}

static int get_array(request *r)
{
    uint32_t param = get32(r, 0), element = get32(r, 4), count = get32(r, 8);
    if (!sim_kernel(618)) {
        return -EINVAL;
    }
    if (get32(r, 12) != 0 || element == 0 || count == 0) {
        return -EINVAL;
    }
    if (param == 0) {
        return array_contexts(r, element, count);
    }
    if (param == 2 && sim_kernel(619)) {
        uint8_t none[24] = { 0 };
        return sim_copy_out(get64(r, 16), none, element < 24 ? element : 24);
    }
    if (param == 6 && sim_kernel(701)) {
        uint64_t usage[4];
        if (count != 1 || sim_copy_in(usage, get64(r, 16), 8) != 0 || usage[0] == 0) {
            return -EINVAL;
        }
        usage[1] = sim.bytes;
        usage[2] = 4 * SIM_SLOT * sim.stats.contexts;
        usage[3] = r->file->n_heaps * (uint64_t)SIM_CHUNK;
        return sim_copy_out(get64(r, 16), usage, element < 32 ? element : 32);
    }
    return -EOPNOTSUPP;
}

static int set_state(request *r)
{
    uint8_t mode[8] = { 0 };
    if (!sim.admin) {
        return -EACCES;
    }
    if (get32(r, 0) != 0) {
        return -EOPNOTSUPP;
    }
    if (sim_copy_in(mode, get64(r, 8), 8) != 0) {
        return -EFAULT;
    }
    for (unsigned i = 1; i < 8; i++) {
        if (mode[i] != 0) {
            return -EINVAL;
        }
    }
    return mode[0] > 4 || (mode[0] == 4 && sim.fw_contexts > 0) ? -EINVAL : 0;
}

/* ---------------------------------------------------------------- DRM core */

static int version_text(request *r, unsigned at, const char *text)
{
    uint64_t given = get64(r, at), size = strlen(text);
    put64(r, at, size);
    return given > 0 && get64(r, at + 8) != 0 ?
           sim_copy_out(get64(r, at + 8), text, given < size ? given : size) : 0;
}

static int version(request *r)
{
    uint32_t minor = sim_kernel(702) ? 10 : sim_kernel(701) ? 8 : sim_kernel(619) ? 6 :
                     sim_kernel(618) ? 1 : 0;
    put32(r, 0, sim.kernel == SIM_LEGACY);
    put32(r, 4, sim.kernel == SIM_LEGACY ? 0 : minor);
    put32(r, 8, 0);
    if (version_text(r, 16, "amdxdna_accel_driver") != 0 || version_text(r, 32, "0") != 0 ||
        version_text(r, 48, "AMD XDNA DRM implementation") != 0) {
        return -EFAULT;
    }
    return 0;
}

/* DRM_CAP_PRIME, TIMESTAMP_MONOTONIC, SYNCOBJ, SYNCOBJ_TIMELINE; the rest is for displays. */
static int get_cap(request *r)
{
    switch (get64(r, 0)) {
    case 5: put64(r, 8, 3); return 0;
    case 6: case 0x13: case 0x14: put64(r, 8, 1); return 0;
    default: return -EOPNOTSUPP;
    }
}

const char *sim_driver_name(unsigned nr)
{
    static const char *const names[] = {
        "CREATE_HWCTX", "DESTROY_HWCTX", "CONFIG_HWCTX", "CREATE_BO", "GET_BO_INFO", "SYNC_BO",
        "EXEC_CMD", "GET_INFO", "SET_STATE", "WAIT_CMD", "GET_ARRAY" };
    switch (nr) {
    case 0x00: return "VERSION";
    case 0x09: return "GEM_CLOSE";
    case 0x0c: return "GET_CAP";
    case 0xc0: return "SYNCOBJ_DESTROY";
    case 0xc3: return "SYNCOBJ_WAIT";
    case 0xca: return "SYNCOBJ_TIMELINE_WAIT";
    case 0xcb: return "SYNCOBJ_QUERY";
    default: return nr >= 0x40 && nr <= 0x4a ? names[nr - 0x40] : "UNKNOWN";
    }
}

static int dispatch(request *r, unsigned nr)
{
    switch (nr) {
    case 0x00: return version(r);
    case 0x09: return gem_close(r);
    case 0x0c: return get_cap(r);
    case 0x40: return create_hwctx(r);
    case 0x41: return destroy_hwctx(r);
    case 0x42: return config_hwctx(r);
    case 0x43: return create_bo(r);
    case 0x44: return get_bo_info(r);
    case 0x45: return sync_bo(r);
    case 0x46: return exec_cmd(r);
    case 0x47: return get_info(r);
    case 0x48: return set_state(r);
    case 0x49: return wait_cmd(r);
    case 0x4a: return get_array(r);
    case 0xc0: return syncobj_destroy(r);
    case 0xc3: return syncobj_wait(r, 0);
    case 0xca: return syncobj_wait(r, 1);
    case 0xcb: return syncobj_query(r);
    default: return -EINVAL;
    }
}

/* As drm_ioctl() does: any size is taken, what is missing is zero; results go back as far as the
 * program's structure reaches. */
int sim_driver_ioctl(sim_file *file, unsigned long code, void *argument)
{
    request r = { .file = file };
    size_t size = code >> 16 & 0x3FFF;
    int error;
    if ((code >> 8 & 0xFF) != 'd') {
        return -ENOTTY;
    }
    if (sim.gone) {
        return -ENODEV;
    }
    size = size < sizeof r.bytes ? size : sizeof r.bytes;
    if (sim_copy_in(r.bytes, (uint64_t)(uintptr_t)argument, size) != 0) {
        return -EFAULT;
    }
    error = dispatch(&r, (unsigned)(code & 0xFF));
    if ((code >> 31 & 1) != 0 &&
        sim_copy_out((uint64_t)(uintptr_t)argument, r.bytes, size) != 0) {
        return -EFAULT;
    }
    return error;
}

int sim_driver_open(sim_file **file)
{
    int error = sim_memory_start();
    if (sim.gone) {
        return -ENODEV;
    }
    *file = error == 0 ? calloc(1, sizeof **file) : NULL;
    if (*file == NULL) {
        return -ENOMEM;
    }
    if (sim.trap) {
        sim_clflush_trap();
    }
    sim.opened = 1;
    if (sim.firmware != SIM_FW_RUNS) {
        (void)sim_engine_resume();
    }
    sim.last_use = sim_now();
    return 0;
}

void sim_driver_flush(sim_file *file)
{
    while (file->ctxs != NULL) {
        sim_log("context %u dies with a descriptor", file->ctxs->id);
        sim.stats.leaked_contexts += file->fds == 0;
        destroy_context(file->ctxs);
    }
}

void sim_driver_release(sim_file *file)
{
    sim_driver_flush(file);
    while (file->syncs != NULL) {
        sim_sync *sync = file->syncs;
        file->syncs = sync->next;
        sim.stats.leaked_syncobjs++;
        sim.stats.syncobjs--;
        sync_unref(sync);
    }
    for (int pass = 0; pass < 2; pass++) { /* DEV objects first: they lie in the heap */
        for (uint32_t i = 1; i < SIM_MAX_BOS; i++) {
            sim_bo *bo = file->bos[i];
            if (bo != NULL && (pass == 1 || bo->type == SIM_DEV)) {
                bo->file = pass == 1 ? NULL : file;
                sim.stats.leaked_bos++;
                sim_bo_close(file, i);
            }
        }
    }
    for (unsigned i = 0; i < file->n_heaps; i++) {
        file->heaps[i]->file = NULL;
        sim_bo_unref(file->heaps[i]);
    }
    for (sim_map *map = sim.maps; map != NULL; map = map->next) {
        if (map->bo->file == file) {
            map->bo->file = NULL;
        }
    }
}
