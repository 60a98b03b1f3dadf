/* array.h - a simulated AIE array: shim, memory tiles and cores with their DMAs, locks and stream
 * switches, one word a cycle on each stream. It knows registers only: what a PDI and an instruction
 * stream write decides what it does. Register offsets: Xilinx/aie-rt (xaiemlgbl_params.h). */
#ifndef NPU_ARRAY_H
#define NPU_ARRAY_H
#include "core.h"

enum { ARRAY_COLUMNS = 8, ARRAY_ROWS = 6, ARRAY_MEMORY = 512 * 1024 };
enum { ARRAY_EVENTS = 4, ARRAY_STATUS = 4 * (48 + 8 * ARRAY_EVENTS) + 112 + 32 + 8 * ARRAY_EVENTS };

/* Host memory: `bytes` at a device address, or NULL if the array may not go there. */
typedef uint8_t *array_host(void *self, uint64_t address, uint32_t bytes, int write);

typedef struct array array;

typedef struct {
    uint64_t cycles;          /* since the last array_reset_counts */
    uint64_t words_in, words_out; /* between host memory and array */
    uint64_t macs, bundles, old_reads, bank_stalls, lock_stalls; /* of all cores */
    uint64_t core_cycles;     /* of all cores that ran */
    int cores;
} array_counts;

array *array_new(const aie_isa *isa, int columns, array_host *host, void *host_self);
void array_free(array *a);
/* Executes the CDO in a PDI or xclbin. 0, or -1 with a message. */
int array_configure(array *a, const uint8_t *image, size_t size);
/* Writes a register or memory word. Address: column << 25 | row << 20 | offset. */
int array_write(array *a, uint32_t address, uint32_t value, uint32_t mask);
uint32_t array_read(array *a, uint32_t address);
/* One cycle of everything. 1 if anything moved, 0 if not, -1 if it failed. */
int array_cycle(array *a);
/* Completion tokens that a shim channel has issued and nobody has taken. */
int *array_tokens(array *a, int column, int to_host, int channel);
/* Whether a DMA of the shim still has work. */
int array_shim_busy(const array *a);
/* Runs an instruction stream (TXN) whose patches name `args`, until its last wait. -1: message. */
int array_run(array *a, const uint32_t *words, size_t count, const uint64_t *args, int arg_count);
/* From now on a core's load or a DMA's read of bytes that nothing has written is a failure. */
void array_check_reads(array *a);
/* What may be there before a configuration arrives: firmware that uses word 0 of memory tiles in
 * every cycle; a job that was given up, which leaves locks, queued tasks and running cores. */
void array_let_firmware_write(array *a);
void array_hang(array *a);
const char *array_message(const array *a);
const array_counts *array_count(array *a);
void array_reset_counts(array *a);
core *array_core(array *a, int column, int row); /* NULL: no program there */
/* What keeps the array from moving: one line for each tile that waits. */
void array_explain(const array *a, char *text, size_t size);
/* A column's status as the firmware hands it out (Xilinx/XRT, info_aie2.cpp): cores, memory tile,
 * shim. ARRAY_EVENTS registers of events a tile, twice that for a core, all 0 here. */
void array_status(const array *a, int column, uint8_t *to);
#endif
