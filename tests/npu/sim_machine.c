/* sim_machine.c - PDIs of real designs: their configuration and machine code are executed by the
 * simulated array of array.h, word by word.
 *
 * The array lives from one context switch to the next, as on the device: what a stream has written
 * stays.
 */
#include "sim_amdxdna.h"

#include "kit/array.h"
#include "kit/cdo.h"

_Static_assert(ARRAY_STATUS == SIM_STATUS && ARRAY_EVENTS == SIM_EVENTS, "as array.c fills it");

/* Only the engine's thread comes here. */
static struct {
    array *array;
    const uint8_t *image;
    size_t size;
    int columns;
    uint64_t macs, cycles; /* counted so far */
    sim_array *job;
} machine;

static int last_column(void *self, const cdo_command *command)
{
    uint32_t *columns = self, column = (uint32_t)(command->address >> 25) & 127;
    if (command->opcode != CDO_NOP && command->opcode != CDO_END && column >= *columns) {
        *columns = column + 1;
    }
    return 0;
}

int sim_machine_parse(const uint8_t *pdi, size_t size, sim_cores *cores)
{
    size_t cdo_size = 0;
    const uint8_t *cdo = cdo_find(pdi, size, &cdo_size);
    memset(cores, 0, sizeof *cores);
    if (cdo == NULL || cdo_walk(cdo, cdo_size, last_column, &cores->columns) != 0 ||
        cores->columns == 0 || cores->columns > SIM_MAX_COLS) {
        return -1;
    }
    cores->generation = sim.device == SIM_NPU1 ? 3 : 4;
    cores->bits = 8;
    cores->image = pdi;
    cores->image_size = size;
    return 0;
}

void sim_machine_reset(void)
{
    array_free(machine.array);
    memset(&machine, 0, sizeof machine);
}

__attribute__((format(printf, 2, 3)))
static void trouble(sim_array *job, const char *format, ...)
{
    if (job->trouble[0] == '\0') {
        va_list args;
        va_start(args, format);
        vsnprintf(job->trouble, sizeof job->trouble, format, args);
        va_end(args);
    }
}

/* Memory of the command's buffers at a device address. */
static uint8_t *host(void *self, uint64_t address, uint32_t bytes, int write)
{
    static uint8_t nowhere[64];
    sim_array *job = machine.job;
    (void)self;
    for (size_t i = 0; i < job->n_windows; i++) {
        const sim_window *w = &job->windows[i];
        if (address < w->from || address - w->from > w->size - bytes || bytes > w->size) {
            continue;
        }
        uint64_t at = w->offset + (address - w->from);
        sim_extents_add(job->used, w->bo, at, at + bytes);
        if (!w->listed) {
            job->violations++;
            trouble(job, "a BO that the array uses is not in the command's list");
        }
        if (!write) {
            job->bytes_in += bytes;
            return w->bo->mem + at;
        }
        if (strcmp(job->result_fault, "skip") == 0) {
            return nowhere;
        }
        job->dirty |= (unsigned)sim_bo_dirty(w->bo, at, bytes);
        job->bytes_out += bytes;
        return w->bo->mem + at;
    }
    job->violations++;
    trouble(job, "0x%llx is in no buffer", (unsigned long long)address);
    return NULL;
}

/* The array with this PDI loaded; NULL with the reason in the job. */
static array *load(sim_array *job)
{
    const sim_cores *cores = job->cores;
    if (machine.array != NULL && machine.image == cores->image &&
        machine.size == cores->image_size && machine.columns == (int)job->columns) {
        return machine.array;
    }
    sim_machine_reset();
    array *a = array_new(cores->generation == 3 ? aie2() : aie2p(), (int)job->columns, host, NULL);
    if (a == NULL || array_configure(a, cores->image, cores->image_size) != 0) {
        trouble(job, "the PDI: %s", a != NULL ? array_message(a) : "no memory");
        array_free(a);
        return NULL;
    }
    machine.array = a;
    machine.image = cores->image;
    machine.size = cores->image_size;
    machine.columns = (int)job->columns;
    return a;
}

/* Any memory will do where only time counts. */
static uint8_t *no_host(void *self, uint64_t address, uint32_t bytes, int write)
{
    static uint8_t nowhere[64];
    (void)self;
    (void)address;
    (void)write;
    return bytes <= sizeof nowhere ? nowhere : NULL;
}

uint64_t sim_machine_cycles(const sim_array *job)
{
    static struct { uint64_t key, cycles; } known[64];
    static size_t n_known;
    const sim_cores *cores = job->cores;
    uint64_t key = 14695981039346656037ull ^ job->columns;
    for (uint32_t i = 0; i < job->n_words; i++) {
        key = (key ^ job->words[i]) * 1099511628211ull;
    }
    for (size_t i = 0; i < n_known; i++) {
        if (known[i].key == key) {
            return known[i].cycles;
        }
    }
    array *a = array_new(cores->generation == 3 ? aie2() : aie2p(), (int)job->columns, no_host,
                         NULL);
    uint64_t cycles = 0;
    if (a != NULL && array_configure(a, cores->image, cores->image_size) == 0 &&
        array_run(a, job->words, job->n_words, job->args, (int)job->n_args) == 0) {
        cycles = array_count(a)->cycles;
    }
    array_free(a);
    if (n_known < sizeof known / sizeof *known) {
        known[n_known].key = key;
        known[n_known++].cycles = cycles;
    }
    return cycles;
}

uint32_t sim_machine_run(sim_array *job)
{
    array *a = load(job);
    if (a == NULL) {
        return SIM_FW_BAD_PDI;
    }
    if (job->n_words < 4 || (job->words[0] >> 16 & 0xff) != job->cores->generation) {
        trouble(job, "the stream is for another device generation");
        return SIM_FW_BAD_STREAM;
    }
    for (uint32_t i = 0; i < 16 && strcmp(job->result_fault, "stall") == 0; i++) {
        (void)array_write(a, 2u << 20 | (0x1f000 + 16 * i), 0, 0xffffffff);
    }
    machine.job = job;
    int bad = array_run(a, job->words, job->n_words, job->args, (int)job->n_args);
    machine.job = NULL;
    const array_counts *counts = array_count(a);
    job->macs += counts->macs - machine.macs;
    job->cycles += counts->cycles - machine.cycles;
    machine.macs = counts->macs;
    machine.cycles = counts->cycles;
    if (bad) {
        trouble(job, "%s", array_message(a));
        for (uint32_t column = 0; column < job->columns; column++) {
            array_status(a, (int)column, job->status[column]);
        }
        sim_machine_reset();
        return SIM_FW_HUNG;
    }
    if (array_shim_busy(a)) {
        job->violations++;
        trouble(job, "the stream ends with transfers unfinished");
        sim_machine_reset();
    }
    return SIM_FW_OK;
}
