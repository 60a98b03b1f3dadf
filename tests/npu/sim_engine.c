/* sim_engine.c - from a queued command to its state: the driver's scheduler thread, the firmware,
 * the watchdog, suspend and resume, and the clock that estimates what it all would cost.
 */
#include "sim_amdxdna.h"

#define START_CU 0u
#define CMD_CHAIN 19u
#define START_NPU 20u
#define UNTOUCHED 0             /* the fence signals, the header stays as it is */
#define HUNG (-1)
#define MAX_CHAIN 60u           /* the most that 4096 bytes of slots can hold */

typedef struct command {
    sim_bo *bo;
    uint32_t opcode, cu, n;
    const uint32_t *payload;    /* after the CU masks; n words */
    int unchecked;              /* nothing there: the driver forwards it all the same */
} command;

/* Public figures: an empty submission and one more in a chain (NPU1: 100 to 150 us through the ioctl,
 * 275 through XRT, and 48 of tibrezus/xdna-npu-toolkit; NPU4: 59 and 20 to 25 us of hipfire's pm-npu on
 * an NPU5; 55 GB/s is AMD's validation threshold), a pair of context switches of
 * 2.8 ms and 1.9 TOPS sustained in int8 on NPU1 (drakosha/whisper-xdna), peaks of 6.76 and 38 TOPS
 * (arXiv 2512.13282). NPU4's share of its published peak is taken to be what NPU1 was measured to
 * sustain; NPU1's bandwidth, which nobody published, to be NPU4's by the number of columns; int16
 * runs at a quarter of int8 (64, not 256 MACs a cycle and core); a switch is half of the pair. Where
 * cycles were counted they take the place of the peaks: at 1.0 GHz on NPU1, whose 20 cores make 10
 * TOPS, and 1.8 GHz on NPU4 (measured by hipfire's pm-npu on an NPU5). */
static const struct figures {
    double first_us, chained_us, switch_us, macs_per_us, bytes_per_us, cycles_per_us;
} figures[2] = { { 125, 48, 1400, 1.9e6 / 2, 55e3 / 2, 1000 },
                 { 59, 22, 1400, 38e6 * (1.9 / 6.76) / 2, 55e3, 1800 } };

/* The out-of-tree driver is taken to follow 6.18 where nothing else is known of it. */
int sim_kernel(int at_least)
{
    return sim.kernel == SIM_LEGACY ? at_least <= 618 : sim.kernel >= at_least;
}

/* ---------------------------------------------------------------- results */

static uint32_t word(const sim_bo *bo, uint64_t at)
{
    uint32_t value;
    memcpy(&value, bo->cpu + at, sizeof value);
    return value;
}

static void set_word(sim_bo *bo, uint64_t at, uint32_t value)
{
    memcpy(bo->cpu + at, &value, sizeof value);
}

static void set_state(sim_bo *bo, uint32_t state)
{
    uint32_t header = (word(bo, 0) & ~0xFu) | (state & 0xF);
    __atomic_store_n((uint32_t *)(void *)bo->cpu, header, __ATOMIC_RELEASE);
}

static uint32_t opcode_of(const sim_bo *bo)
{
    return word(bo, 0) >> 23 & 0x1F;
}

static int is_list(const sim_job *job)
{
    return sim_kernel(619) || opcode_of(job->cmd) == CMD_CHAIN;
}

/* From 6.19 on a failure fills the command with ones, a chain's first sub-command in its stead;
 * newer firmware leaves health data there after a timeout. */
static void wipe(sim_job *job, int state)
{
    sim_bo *bo = job->cmd;
    if (!sim_kernel(619)) {
        return;
    }
    if (opcode_of(bo) == CMD_CHAIN) {
        bo = sim_bo_get(job->ctx->file, word(bo, 28));
        if (bo == NULL) {
            return;
        }
    }
    memset(bo->cpu + 4, 0xFF, bo->size - 4);
    if (state == SIM_TIMEOUT && sim_kernel(701) && sim.device == SIM_NPU4 &&
        sim.protocol_minor >= 18) {
        memset(bo->cpu + 4, 0, 32);
        set_word(bo, 4, 1);
    }
}

/* What the CPU wrote and flushed under the command's hands. */
static void check_overlap(sim_job *job)
{
    for (size_t i = 0; i < job->written.n; i++) {
        const sim_extent *w = &job->written.list[i];
        for (size_t j = 0; j < job->used.n; j++) {
            const sim_extent *u = &job->used.list[j];
            if (u->bo == w->bo && w->from < u->to && u->from < w->to) {
                sim_violation("exec %llu: the CPU wrote %llu bytes at %llu of BO %u while it was "
                              "in flight", (unsigned long long)job->number,
                              (unsigned long long)(w->to - w->from), (unsigned long long)w->from,
                              w->bo->handle);
                return;
            }
        }
    }
}

/* Ends the oldest command of a context. */
void sim_engine_complete(sim_job *job, int state)
{
    sim_ctx *ctx = job->ctx;
    sim_log("exec %llu: context %u seq %llu ends in state %u%s", (unsigned long long)job->number,
            ctx->id, (unsigned long long)job->seq, state == UNTOUCHED ? word(job->cmd, 0) & 0xF
            : (unsigned)state, state == UNTOUCHED ? " (untouched)" : "");
    if (state == SIM_ERROR || state == SIM_ABORT || state == SIM_TIMEOUT) {
        wipe(job, state);
    }
    if (state != UNTOUCHED) {
        set_state(job->cmd, (uint32_t)state);
    }
    if (state == SIM_COMPLETED) {
        sim.stats.completed++;
    } else {
        sim.stats.failed++;
        ctx->errors++;
    }
    check_overlap(job);
    free(job->used.list);
    free(job->written.list);
    ctx->jobs = job->next;
    ctx->in_flight--;
    ctx->completions++;
    ctx->sync->signalled++;
    sim_bo_unref(job->cmd);
    for (uint32_t i = 0; i < job->n_args; i++) {
        sim_bo_unref(job->args[i]);
    }
    free(job->args);
    free(job);
    sim.last_activity = sim.last_use = sim_now();
    sim_wake();
}

static int torn_state(const sim_job *job)
{
    return sim_kernel(617) || is_list(job) ? SIM_ABORT : UNTOUCHED;
}

static int timeout_state(const sim_job *job)
{
    return sim_kernel(617) ? SIM_TIMEOUT : is_list(job) ? SIM_ABORT : UNTOUCHED;
}

/* Firmware's answer as the driver writes it into the header: before 6.18 the low bits of the status
 * of a list, which may read as "completed". */
static int error_state(const sim_job *job, uint32_t status)
{
    return is_list(job) && !sim_kernel(618) ? (int)(status & 0xF) : SIM_ERROR;
}

/* ---------------------------------------------------------------- firmware */

void sim_engine_configure(sim_ctx *ctx, uint32_t cu, sim_bo *pdi)
{
    sim_cores *cores = &ctx->cu[cu];
    ctx->cu_ok[cu] = pdi != NULL && sim_cores_parse(pdi->mem, pdi->size, cores) == 0 &&
                     cores->generation == (sim.device == SIM_NPU1 ? 3u : 4u) &&
                     cores->columns <= ctx->columns;
    if (!ctx->cu_ok[cu]) {
        sim_log("context %u: firmware does not load the PDI of CU %u", ctx->id, cu);
    }
}

/* The stream, as the device sees it, if it lies in one DEV object. */
static uint32_t *fetch_stream(const sim_ctx *ctx, uint64_t address, uint32_t words)
{
    uint32_t *copy;
    for (uint32_t i = 1; i < SIM_MAX_BOS; i++) {
        const sim_bo *bo = ctx->file->bos[i];
        if (bo != NULL && bo->type == SIM_DEV && address >= bo->dev &&
            address - bo->dev <= bo->size && words <= (bo->size - (address - bo->dev)) / 4) {
            copy = malloc(words * 4u + 16);
            if (copy != NULL) {
                memcpy(copy, bo->mem + (address - bo->dev), words * 4u);
            }
            return copy;
        }
    }
    sim_violation("%u words of instructions at 0x%llx are not in one DEV object", words,
                  (unsigned long long)address);
    return NULL;
}

static int listed(const sim_job *job, const sim_bo *bo)
{
    for (uint32_t i = 0; i < job->n_args; i++) {
        if (job->args[i] == bo) {
            return 1;
        }
    }
    return sim.iova;
}

/* What the device can reach: every object of the file, each held until windows_close(). */
static sim_window *windows_open(const sim_job *job, size_t *count)
{
    sim_file *file = job->ctx->file;
    sim_window *windows = calloc(SIM_MAX_BOS, sizeof *windows);
    *count = 0;
    for (uint32_t i = 1; i < SIM_MAX_BOS && windows != NULL; i++) {
        sim_bo *bo = file->bos[i];
        if (bo != NULL && bo->type != SIM_HEAP && sim_bo_device_address(bo) != SIM_NONE) {
            sim_bo_ref(bo);
            windows[(*count)++] = (sim_window){ sim_bo_device_address(bo), bo->size, bo, 0,
                                                listed(job, bo) };
        }
    }
    return windows;
}

static void windows_close(sim_window *windows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sim_bo_unref(windows[i].bo);
    }
    free(windows);
}

static void account(const sim_array *array, uint32_t bits)
{
    const struct figures *f = &figures[sim.device == SIM_NPU4];
    double compute = array->cycles > 0
                         ? (double)array->cycles / f->cycles_per_us
                         : (double)array->macs / f->macs_per_us * (bits == 16 ? 4 : 1);
    double memory = (double)(array->bytes_in + array->bytes_out) / f->bytes_per_us;
    sim.stats.macs += array->macs;
    sim.stats.bytes_in += array->bytes_in;
    sim.stats.bytes_out += array->bytes_out;
    sim.stats.compute_us += compute;
    sim.stats.memory_us += memory;
    sim.stats.device_us += compute > memory ? compute : memory;
}

static void switch_to(const sim_ctx *ctx)
{
    const struct figures *f = &figures[sim.device == SIM_NPU4];
    if (sim.last_fw_id != ctx->fw_id) {
        if (sim.last_fw_id != 0) {
            sim.stats.switches++;
            sim.stats.switch_us += f->switch_us;
            sim.stats.device_us += f->switch_us;
        }
        sim.last_fw_id = ctx->fw_id;
        sim_array_reset();
    }
}

/* Runs the stream on the array, without the lock. */
static uint32_t run_stream(sim_job *job, const sim_cores *cores, const uint32_t *words,
                           uint32_t n_words, const command *cmd, const char *result_fault)
{
    uint64_t args[16] = { 0 };
    sim_array array = { .cores = cores, .columns = job->ctx->columns, .words = words,
                        .n_words = n_words, .args = args, .used = &job->used };
    uint32_t status;
    for (uint32_t i = 5; i + 1 < cmd->n && array.n_args < 16; i += 2) {
        args[array.n_args++] = cmd->payload[i] | (uint64_t)cmd->payload[i + 1] << 32;
    }
    snprintf(array.result_fault, sizeof array.result_fault, "%s", result_fault);
    array.windows = windows_open(job, &array.n_windows);
    sim_leave();
    status = sim_array_run(&array);
    sim_enter();
    memcpy(sim.status[job->ctx->start], array.status, array.columns * sizeof array.status[0]);
    windows_close(array.windows, array.n_windows);
    if (array.trouble[0] != '\0') {
        sim_log("exec %llu: the array: %s", (unsigned long long)job->number, array.trouble);
    }
    if (array.violations > 0) {
        sim_violation("exec %llu: %s", (unsigned long long)job->number, array.trouble);
    }
    if (array.dirty) {
        sim_violation("exec %llu: the device writes lines that the CPU holds dirty",
                      (unsigned long long)job->number);
    }
    account(&array, cores->bits);
    return status;
}

/* One START_CU with opcode argument 3: a transaction stream. */
static uint32_t firmware(sim_job *job, const command *cmd, const char *result_fault)
{
    sim_ctx *ctx = job->ctx;
    sim_cores cores;
    uint32_t *words, n, status;
    uint64_t opcode, address;
    sim.stats.commands++;
    if (cmd->unchecked) {
        return SIM_FW_OK;
    }
    if (cmd->cu >= ctx->n_cus) {
        sim_violation("a command for CU %u of a context with %u", cmd->cu, ctx->n_cus);
        return SIM_FW_BAD_COMMAND;
    }
    if (!ctx->cu_ok[cmd->cu]) {
        return SIM_FW_BAD_PDI;
    }
    if (cmd->n < 5 || cmd->opcode != START_CU) {
        return SIM_FW_BAD_COMMAND;
    }
    memcpy(&opcode, cmd->payload, 8);
    memcpy(&address, cmd->payload + 2, 8);
    n = cmd->payload[4];
    if (opcode != 3 || n < 4 || n > 1u << 22) {
        return SIM_FW_BAD_STREAM;
    }
    words = fetch_stream(ctx, address, n);
    if (words == NULL) {
        return SIM_FW_BAD_STREAM;
    }
    switch_to(ctx);
    cores = ctx->cu[cmd->cu];
    status = run_stream(job, &cores, words, n, cmd, result_fault);
    free(words);
    return status;
}

/* ---------------------------------------------------------------- what the driver checks */

/* Bytes of a command in a list: the path depends on the firmware protocol. */
static uint32_t slot_bytes(const command *cmd)
{
    int npu_path = sim_kernel(619) && sim.protocol_minor >= (sim.device == SIM_NPU1 ? 8u : 15u);
    return (npu_path ? 52 : cmd->opcode == START_NPU ? 24 : 8) + 4 * cmd->n;
}

/* A single command or a chain's entry; -1 if the driver finds it malformed. */
static int parse(sim_bo *bo, command *cmd)
{
    uint32_t header = word(bo, 0), count = header >> 12 & 0x7FF, masks = 1 + (header >> 10 & 3);
    uint32_t first = UINT32_MAX;
    *cmd = (command){ .bo = bo, .opcode = header >> 23 & 0x1F };
    if (cmd->opcode != START_CU && cmd->opcode != START_NPU &&
        !(sim_kernel(619) && sim.device == SIM_NPU4 && sim.protocol_minor >= 15 &&
          (cmd->opcode == 21 || cmd->opcode == 22))) {
        return -1;
    }
    for (uint32_t i = 0; i < masks && first == UINT32_MAX && 8 + 4ull * i <= bo->size; i++) {
        uint32_t mask = word(bo, 4 + 4 * i);
        first = mask != 0 ? 32 * i + (uint32_t)__builtin_ctz(mask) : first;
    }
    if (first == UINT32_MAX) {
        return -1;
    }
    cmd->cu = first;
    cmd->unchecked = count <= masks || 4 + 4ull * count > bo->size;
    if (cmd->unchecked) {
        sim_violation("a command whose count is %u in a BO of %llu bytes", count,
                      (unsigned long long)bo->size);
        return 0;
    }
    cmd->n = count - masks;
    cmd->payload = (const uint32_t *)(const void *)(bo->cpu + 4 + 4 * masks);
    return 0;
}

/* Up to 6.18 a single command travels in a message of 19 words. */
static int fit_single(command *cmd)
{
    uint64_t offset = (uint64_t)((const uint8_t *)cmd->payload - cmd->bo->cpu);
    if (!sim_kernel(619) && !cmd->unchecked && offset + 76 > cmd->bo->size) {
        sim_violation("the driver reads 76 bytes of arguments, past the end of the command BO");
    }
    if (!sim_kernel(619) && cmd->n > 19) {
        sim_log("a payload of %u words is cut to 19", cmd->n);
        cmd->n = 19;
    }
    return slot_bytes(cmd) > 4096 && sim_kernel(619) ? -1 : 0;
}

/* Entries of a chain; 0 if it is malformed. */
static uint32_t parse_chain(const sim_job *job, command *list)
{
    const sim_bo *bo = job->cmd;
    uint32_t count = word(bo, 0) >> 12 & 0x7FF, n, bytes = 0;
    if (bo->size < 28 || count < 6) {
        return 0;
    }
    n = word(bo, 4);
    if (n == 0 || n > MAX_CHAIN || count < 6 + 2 * n || 4 + 4ull * count > bo->size) {
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        sim_bo *sub = sim_bo_get(job->ctx->file, word(bo, 28 + 8 * i));
        if (sub == NULL || !(sub->type == SIM_CMD || (sim_kernel(701) && sub->type == SIM_SHMEM)) ||
            parse(sub, &list[i]) != 0 || list[i].opcode != list[0].opcode) {
            return 0;
        }
        bytes += slot_bytes(&list[i]);
    }
    return bytes <= 4096 ? n : 0;
}

static void charge_submission(uint32_t entries)
{
    const struct figures *f = &figures[sim.device == SIM_NPU4];
    double us = f->first_us + (entries - 1) * f->chained_us;
    sim.stats.overhead_us += us;
    sim.stats.device_us += us;
}

static int run_list(sim_job *job, const command *list, uint32_t n)
{
    char result[32];
    uint32_t wrong, status = SIM_FW_OK, i;
    int chain = opcode_of(job->cmd) == CMD_CHAIN;
    sim_fault_command("result", job->number, result, sizeof result);
    wrong = result[0] != '\0' && n > 1 ? sim_random_bits() % n : 0;
    charge_submission(n);
    for (i = 0; i < n; i++) {
        sim_bo_ref(list[i].bo);
    }
    for (i = 0; i < n && status == SIM_FW_OK; i++) {
        status = firmware(job, &list[i], i == wrong ? result : "");
    }
    for (uint32_t j = 0; j < n; j++) {
        sim_bo_unref(list[j].bo);
    }
    if (status == SIM_FW_OK) {
        return SIM_COMPLETED;
    }
    if (status == SIM_FW_HUNG) {
        return HUNG;
    }
    sim_log("exec %llu: firmware status 0x%x at entry %u", (unsigned long long)job->number, status,
            i - 1);
    if (chain) {
        set_word(job->cmd, 12, i - 1);
    }
    return error_state(job, status);
}

static int run_command(sim_job *job)
{
    command list[MAX_CHAIN];
    uint32_t n = 1;
    if (opcode_of(job->cmd) == CMD_CHAIN) {
        n = parse_chain(job, list);
    } else if (parse(job->cmd, &list[0]) != 0 || fit_single(&list[0]) != 0) {
        n = 0;
    }
    if (n == 0) {
        sim_log("exec %llu: malformed", (unsigned long long)job->number);
        return UNTOUCHED;
    }
    return run_list(job, list, n);
}

/* ---------------------------------------------------------------- faults, suspend, watchdog */

static void abort_jobs(sim_ctx *ctx, int first_state)
{
    unsigned behind = 0;
    while (ctx->jobs != NULL && !ctx->jobs->running) {
        int state = behind == 0 ? first_state : behind < SIM_IN_FLIGHT ? torn_state(ctx->jobs)
                                                                       : UNTOUCHED;
        sim_engine_complete(ctx->jobs, state);
        behind++;
    }
}

/* Rebuilds a context after a timeout or a suspend; 0 if every PDI is still there. */
static int rebuild(sim_ctx *ctx)
{
    int error = 0;
    for (uint32_t i = 0; i < ctx->n_cus; i++) {
        sim_bo *pdi = sim_bo_get(ctx->file, ctx->cu_handles[i]);
        if (pdi == NULL || pdi->type != SIM_DEV) {
            error = -EINVAL;
        }
        sim_engine_configure(ctx, i, error == 0 ? pdi : NULL);
    }
    return error;
}

static void system_suspend(void)
{
    for (sim_file *file = sim.files; file != NULL; file = file->next) {
        for (sim_ctx *ctx = file->ctxs; ctx != NULL && !file->inherited; ctx = ctx->next) {
            if (ctx->jobs != NULL) {
                ctx->jobs->running = 0;
                abort_jobs(ctx, torn_state(ctx->jobs));
            }
            rebuild(ctx);
        }
    }
    sim.stats.resumes++;
    sim.last_fw_id = 0;
    sim_array_reset();
}

static void delay(double until)
{
    sim_leave();
    while (sim_now() < until) {
        struct timespec nap = { 0, 50000 };
        nanosleep(&nap, NULL);
    }
    sim_enter();
}

/* From 6.19 on the device sleeps after five idle seconds although it is open; the next use pays a
 * reload, and fails if a configured PDI is gone. */
int sim_engine_resume(void)
{
    int error = 0;
    if (sim_now() - sim.last_use > 5.0 * sim.time_scale && sim_kernel(619)) {
        for (sim_file *file = sim.files; file != NULL; file = file->next) {
            for (sim_ctx *ctx = file->ctxs; ctx != NULL && !file->inherited; ctx = ctx->next) {
                if (ctx->jobs != NULL) {
                    return 0;
                }
                error = error != 0 ? error : rebuild(ctx);
            }
        }
        if (error != 0) {
            sim.fw_leaked++;
            sim_log("resume fails: a PDI is gone");
            return error;
        }
        sim.stats.resumes++;
        sim.fw_leaked = 0;
        sim.last_fw_id = 0;
        sim.firmware = SIM_FW_RUNS;
        sim_array_reset();
        sim_log("resumed after idling");
    }
    sim.last_use = sim_now();
    return 0;
}

int sim_engine_manage(void)
{
    int error = sim_engine_resume();
    if (error != 0 || sim.firmware == SIM_FW_RUNS) {
        return error;
    }
    if (sim.firmware == SIM_FW_STOPPED) {
        delay(sim_now() + 5.0 * sim.time_scale);
        sim.firmware = SIM_FW_CLOSED;
        sim.last_use = sim_now();
        return -ETIME;
    }
    return sim.firmware == SIM_FW_CLOSED ? -ENODEV : -EPIPE;
}

static void expire(sim_ctx *ctx, double now)
{
    sim_log("watchdog: context %u is torn down and rebuilt", ctx->id);
    sim.stats.timeouts++;
    abort_jobs(ctx, timeout_state(ctx->jobs));
    ctx->rebuilt = now + sim.rebuild;
    ctx->ready = ctx->rebuilt + sim.unready;
    rebuild(ctx); /* a failure is ignored here, but the CUs are gone */
    sim.last_fw_id = 0;
    sim_array_reset();
}

/* Returns when it wants to be called again. */
static double watchdog(double now)
{
    double limit = sim.watchdog * sim.time_scale, next = now + 1.0;
    if (sim.watchdog <= 0) {
        return next;
    }
    for (sim_file *file = sim.files; file != NULL; file = file->next) {
        for (sim_ctx *ctx = file->ctxs; ctx != NULL && !file->inherited; ctx = ctx->next) {
            double since;
            if (ctx->jobs == NULL || !ctx->jobs->hung || ctx->closing) {
                continue;
            }
            since = sim_kernel(702) ? sim.last_activity : ctx->jobs->submitted;
            if (now - since > limit) {
                expire(ctx, now);
            } else if (since + limit < next) {
                next = since + limit + 1e-4;
            }
        }
    }
    return next;
}

void sim_engine_unplug(void)
{
    sim.gone = 1;
    sim_log("the device is gone");
    for (sim_file *file = sim.files; file != NULL; file = file->next) {
        for (sim_ctx *ctx = file->ctxs; ctx != NULL; ctx = ctx->next) {
            ctx->dead = 1;
            if (ctx->jobs != NULL) {
                ctx->jobs->hung = 0;
            }
        }
    }
    sim_wake();
}

/* ---------------------------------------------------------------- the thread */

static sim_job *next_job(void)
{
    sim_job *best = NULL;
    for (sim_file *file = sim.files; file != NULL; file = file->next) {
        for (sim_ctx *ctx = file->ctxs; ctx != NULL && !file->inherited; ctx = ctx->next) {
            sim_job *job = ctx->jobs;
            if (job != NULL && !job->hung && (best == NULL || job->number < best->number)) {
                best = job;
            }
        }
    }
    return best;
}

/* What an injected fault makes of a command; 1 if it never reaches the firmware. */
static int faulted(sim_job *job, int *state, double *until)
{
    char what[32];
    sim_fault_command("suspend", job->number, what, sizeof what);
    if (what[0] != '\0') {
        *state = torn_state(job);
        return 2;
    }
    sim_fault_command("exec", job->number, what, sizeof what);
    if (strcmp(what, "timeout") == 0) {
        *state = HUNG;
    } else if (strcmp(what, "dead") == 0 || strcmp(what, "broken") == 0) {
        sim.firmware = what[0] == 'd' ? SIM_FW_STOPPED : SIM_FW_BROKEN;
        *state = HUNG;
    } else if (strncmp(what, "state", 5) == 0) {
        *state = atoi(what + 5) & 0xF;
    } else if (strncmp(what, "fw=", 3) == 0) {
        *state = error_state(job, (uint32_t)strtoul(what + 3, NULL, 0));
    } else if (strcmp(what, "lost") == 0) {
        job->ctx->dead = 1;
        *state = UNTOUCHED;
    } else {
        if (strncmp(what, "slow=", 5) == 0) {
            *until = sim_now() + atof(what + 5) * 1e-3;
        }
        return 0;
    }
    return 1;
}

static void run_job(sim_job *job)
{
    sim_ctx *ctx = job->ctx;
    double until = job->submitted + sim.latency, before = sim.stats.device_us;
    int state = UNTOUCHED, fault = 0;
    job->running = 1;
    if (!ctx->dead && sim_now() >= ctx->rebuilt) {
        set_state(job->cmd, SIM_NEW);
        fault = faulted(job, &state, &until);
        if (fault == 0 && sim.firmware != SIM_FW_RUNS) {
            state = HUNG;
        } else if (fault == 0) {
            state = sim_now() < ctx->ready ? error_state(job, SIM_FW_BAD_PDI) : run_command(job);
        }
        sim_clock_go_on(sim.stats.device_us - before);
        if (sim_now() < until) {
            delay(until);
        }
        state = sim.gone ? UNTOUCHED : state;
    }
    sim_clock_stop(); /* until engine() sees that nothing follows: waking others may take long */
    job->running = 0;
    if (fault == 2) {
        system_suspend();
    } else if (state == HUNG) {
        job->hung = 1;
    } else {
        sim_engine_complete(job, state);
    }
}

static void *engine(void *unused)
{
    (void)unused;
    sim_enter();
    for (;;) {
        double until = watchdog(sim_now());
        uint32_t seen = __atomic_load_n(&sim.events, __ATOMIC_SEQ_CST);
        sim_job *job = next_job();
        if (job != NULL) {
            run_job(job);
            continue;
        }
        sim_clock_go_on(0.0);
        sim_leave();
        sim_sleep(seen, until);
        sim_enter();
    }
    return NULL;
}

int sim_engine_start(void)
{
    pthread_t thread;
    if (sim.engine_runs) {
        return 0;
    }
    if (pthread_create(&thread, NULL, engine, NULL) != 0) {
        return -ENOMEM;
    }
    pthread_detach(thread);
    sim.engine_runs = 1;
    return 0;
}

void sim_engine_kick(void)
{
    sim_wake();
}

/* Waits up to two seconds for what was submitted, then aborts the rest. */
void sim_engine_destroy(sim_ctx *ctx)
{
    double until = sim_now() + 2.0 * sim.time_scale;
    while (ctx->jobs != NULL && (sim_now() < until || ctx->jobs->running)) {
        uint32_t seen = __atomic_load_n(&sim.events, __ATOMIC_SEQ_CST);
        sim_leave();
        sim_sleep(seen, sim_now() + (sim_now() < until ? until - sim_now() : 0.005));
        sim_enter();
    }
    if (ctx->jobs != NULL) {
        abort_jobs(ctx, torn_state(ctx->jobs));
    }
    if (sim.last_fw_id == ctx->fw_id) {
        sim_array_reset();
    }
}
