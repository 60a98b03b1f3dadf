/* cdo.h - reads and writes the configuration that firmware loads into an array (PDI and CDO).
 * Layout of the commands: Xilinx/bootgen (cdo-*.c) and Xilinx/aie-rt. */
#ifndef NPU_CDO_H
#define NPU_CDO_H
#include <stddef.h>
#include <stdint.h>

/* What one command does. Data of a block is in little-endian words. */
typedef struct {
    uint32_t opcode;       /* CDO_... */
    uint64_t address;
    uint32_t mask, value;
    const uint8_t *data;   /* CDO_BLOCK */
    uint32_t words;
} cdo_command;

enum {
    CDO_END = 0x100, CDO_MASK_POLL = 0x101, CDO_MASK_WRITE = 0x102, CDO_WRITE = 0x103,
    CDO_DELAY = 0x104, CDO_BLOCK = 0x105, CDO_MASK_POLL64 = 0x106, CDO_MASK_WRITE64 = 0x107,
    CDO_WRITE64 = 0x108, CDO_NOP = 0x111, CDO_MARKER = 0x119
};

typedef int (*cdo_visit)(void *self, const cdo_command *command);

/* The first CDO in a PDI, an xclbin or a bare CDO; NULL if there is none. *size gets its bytes. */
const uint8_t *cdo_find(const uint8_t *bytes, size_t length, size_t *size);
/* Calls visit for each command until it returns nonzero, which is returned; -1 if malformed. */
int cdo_walk(const uint8_t *cdo, size_t size, cdo_visit visit, void *self);
#endif
