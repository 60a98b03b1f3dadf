/* core.h - one simulated core: it executes machine code with the pipeline as it is exposed.
 *
 * Nothing interlocks. A result is visible `result` cycles after its bundle issued, and until then a
 * reader gets the old value; operands are read in the cycle that the table names; a reader of the
 * same bypass class sees a result one cycle earlier; five bundles behind a branch are executed.
 * A lock that cannot be had, and a conflict of memory banks, freeze the whole core. */
#ifndef NPU_CORE_H
#define NPU_CORE_H
#include "isa.h"

enum {
    CORE_PROGRAM = 16384, CORE_MEMORY = 65536, CORE_LOCKS = 16,
    CORE_WINDOW = 0x10000, CORE_SOUTH = 0x40000 /* then west, north and its own */
};

/* Cycles of the kinds of instructions, 1 being the cycle in which the bundle issues. Source:
 * AIE2Schedule.td of Xilinx/llvm-aie (operand cycles, memory cycles, bypasses). */
typedef enum {
    CORE_SCALAR, CORE_MUL, CORE_POINTER, CORE_LOAD, CORE_LOAD_UPS, CORE_UPS, CORE_SRS, CORE_MOVE,
    CORE_MOVE_ACC, CORE_BROADCAST, CORE_SHUFFLE, CORE_MAC, CORE_MAC2, CORE_CLEAR, CORE_STORE,
    CORE_STORE_SRS, CORE_BRANCH, CORE_LOCK, CORE_KINDS
} core_kind;

typedef struct {
    uint8_t result;      /* first cycle in which a later bundle sees it */
    uint8_t accumulator; /* cycle in which accumulators are read */
    uint8_t memory;      /* cycle of the memory access */
    char bypass;         /* class of bypass of its results and operands: 'm' (moves), 'v' (vector) */
} core_timing;

extern const core_timing core_timings[CORE_KINDS];

typedef struct core core;

typedef struct {
    uint64_t cycles;         /* running, stalls included */
    uint64_t lock_stalls, bank_stalls;
    uint64_t bundles, macs;  /* multiply-accumulates */
    uint64_t old_reads;      /* reads of a register with a write under way: the pipeline shows */
} core_counts;

/* The memories and locks that a core reaches: south, west, north, its own; NULL: none there. */
typedef struct {
    uint8_t *memory[4];
    int *locks[4];
    int written;         /* CORE_MEMORY bytes behind each memory say which of its bytes were written */
} core_view;

core *core_new(const aie_isa *isa);
void core_free(core *c);
void core_connect(core *c, const core_view *view);
/* Program memory, 16 KiB. Call core_changed when bytes of it have changed. */
uint8_t *core_program(core *c);
void core_changed(core *c);
/* From now on a load of bytes that nothing has written stops the core. */
void core_check_loads(core *c);
void core_reset(core *c);
void core_enable(core *c, int on);
core_timing *core_timing_of(core *c); /* to be changed by tests */

typedef enum { CORE_OFF, CORE_RUNNING, CORE_WAITING, CORE_DONE, CORE_FAILED } core_state;
/* One cycle. `taken` has a bit for each bank of 16 bytes that a DMA used in this cycle. */
core_state core_step(core *c, unsigned taken);
core_state core_state_of(const core *c);
const char *core_message(const core *c); /* why it failed */
const core_counts *core_counts_of(const core *c);
uint32_t core_pc(const core *c);
/* A scalar register, for tests. */
uint32_t core_register(const core *c, int reg);
void core_set_register(core *c, int reg, uint32_t value);
void core_set_pc(core *c, uint32_t pc);
/* Banks that an access touches: 8 of 8 KiB, the even and odd 16 bytes of four areas of 16 KiB. */
unsigned core_banks(uint32_t offset, uint32_t bytes);
#endif
