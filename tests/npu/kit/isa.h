/* isa.h - machine code of AIE2 and AIE2P cores: decode, encode, print and assemble.
 *
 * A program is a sequence of bundles of 2 to 16 bytes. The lowest bits of a bundle give its format:
 * its size, and which slots (one instruction each) lie where in it. An instruction is a row of the
 * table of its slot: fixed bits, and operands in bit fields. The tables are in isa_aie2.c and
 * isa_aie2p.c, which state their source; everything else is in isa.c and assemble.c. */
#ifndef NPU_ISA_H
#define NPU_ISA_H
#include <stddef.h>
#include <stdint.h>

typedef enum {
    AIE_ALU, AIE_LDA, AIE_LDB, AIE_LNG, AIE_MV, AIE_ST, AIE_VEC, AIE_NOP16, AIE_SLOTS
} aie_slot;

/* Register files. A register is (file << 8 | index) and has one number in both instruction sets. */
typedef enum {
    AIE_R, AIE_P, AIE_M, AIE_DN, AIE_DJ, AIE_DC,  /* scalar, pointer, modifiers */
    AIE_S,                                        /* shift amounts */
    AIE_SPECIAL,                                  /* see aie_special */
    AIE_L,                                        /* pairs of r, from r16 on */
    AIE_D, AIE_D3,                                /* modifier sets for 2D and 3D addressing */
    AIE_W, AIE_X, AIE_Y,                          /* vectors of 256, 512 and 1,024 bits */
    AIE_AM, AIE_BM, AIE_CM, AIE_DM,               /* accumulators of 256 to 2,048 bits */
    AIE_Q, AIE_QX, AIE_QW,                        /* masks of sparse operands, with vector */
    AIE_FILES
} aie_file;

typedef enum {
    AIE_LR, AIE_SP, AIE_LC, AIE_LE, AIE_LS, AIE_DP, AIE_CORE_ID,
    AIE_CR_VADD_SIGN, AIE_CR_F2F_MASK, AIE_CR_F2I_MASK, AIE_CR_FP_MASK, AIE_CR_MCD_EN,
    AIE_CR_PACK_SIGN, AIE_CR_RND, AIE_CR_SCD_EN, AIE_CR_SRS_SIGN, AIE_CR_SAT, AIE_CR_UPS_SIGN,
    AIE_CR_UNPACK_SIGN,
    AIE_SR_CARRY, AIE_SR_COMPR_UF, AIE_SR_F2F_FLAGS, AIE_SR_F2I_FLAGS, AIE_SR_FP_FLAGS,
    AIE_SR_MS0, AIE_SR_SRS_OF, AIE_SR_SS0, AIE_SR_SPARSE_OF, AIE_SR_UPS_OF,
    AIE_CR_SRS_MODE, AIE_CR_UPS_MODE, AIE_CR_UNPACK_SIZE, AIE_CR_PACK_SIZE, AIE_CR_F2B_MASK,
    AIE_CR_FL2FX_MASK, AIE_CR_FX2FL_MASK, AIE_CR_NLF_MASK, AIE_PACK_SIGN0, AIE_PACK_SIGN1,
    AIE_SRS_SIGN0, AIE_SRS_SIGN1, AIE_UNPACK_SIGN0, AIE_UNPACK_SIGN1, AIE_UPS_SIGN0, AIE_UPS_SIGN1,
    AIE_VADD_SIGN0, AIE_VADD_SIGN1, AIE_SR_F2B_FLAGS, AIE_SR_FL2FX, AIE_SR_FX2FL, AIE_SR_NLF,
    AIE_SR_FIFO_OF, AIE_SR_FIFO_UF,
    AIE_SPECIALS
} aie_special;

#define AIE_REG(file, index) ((file) << 8 | (index))

/* One row of a slot's table. In the text `{kind:fields}` is an operand: kind is a class of registers
 * (see aie_class_row), iN or uN (signed or unsigned immediate of N bits), iN*S (in units of S), nN*S
 * (an N bit immediate below zero, in units of S); fields are start.length, lowest bits first. */
typedef struct {
    uint8_t slot;
    uint64_t mask, value;
    const char *text;
} aie_row;

/* One bundle format: `slots` is a list of slot@start. */
typedef struct {
    uint8_t bytes;
    uint64_t mask[2], value[2]; /* [0] is bits 63:0 */
    const char *slots;
} aie_format_row;

/* Registers in the order of their encoding, `-` where there is none; or, after '=', alternatives
 * class<<shift|bits, tried in turn. */
typedef struct {
    const char *name, *registers;
} aie_class_row;

typedef struct {
    const char *name;
    const aie_row *rows;
    size_t row_count;
    const aie_format_row *formats;
    size_t format_count;
    const aie_class_row *classes;
    size_t class_count;
    uint8_t bits[AIE_SLOTS];
} aie_tables;

extern const aie_tables aie2_tables, aie2p_tables;

#define AIE_OPERANDS 7

/* A parsed row. */
typedef struct {
    const aie_row *row;
    char mnemonic[32];
    int operands;
    struct {
        char kind;   /* 'r' register, 'i' immediate */
        int cls;     /* index of the class */
        int is_signed, bits, step, below_zero;
        uint8_t start[3], length[3], pieces;
        int same_as; /* -1, or an earlier operand in the same field */
    } operand[AIE_OPERANDS];
} aie_op;

typedef struct {
    const aie_op *op;            /* NULL: slot not in the bundle */
    int32_t value[AIE_OPERANDS]; /* register or immediate */
    uint64_t rest;               /* bits that no operand and no fixed bit covers */
} aie_inst;

typedef struct {
    int bytes, format;
    aie_inst slot[AIE_SLOTS];
} aie_bundle;

typedef struct aie_isa aie_isa;

/* The parsed tables; built on the first call, not thread-safe. */
const aie_isa *aie2(void);
const aie_isa *aie2p(void);
const aie_tables *aie_isa_tables(const aie_isa *isa);
size_t aie_op_count(const aie_isa *isa);
const aie_op *aie_op_at(const aie_isa *isa, size_t index);
/* The register of a class with that encoding, or the next one round that exists. */
int aie_class_register(const aie_isa *isa, int cls, int encoding);

/* Bytes of the bundle at `code` (even, 2 to 16), or 0 if it is no bundle. */
int aie_decode(const aie_isa *isa, const uint8_t *code, size_t left, aie_bundle *bundle);
/* The reverse; 0 if an operand does not fit. `code` has room for 16 bytes. */
int aie_encode(const aie_isa *isa, const aie_bundle *bundle, uint8_t *code);
/* One line of assembly; returns its length as snprintf does. */
size_t aie_print(const aie_isa *isa, const aie_bundle *bundle, char *text, size_t size);
size_t aie_register_name(int reg, char *text, size_t size);
/* The register of that name, or -1. */
int aie_register(const char *name, size_t length);

/* Assembles text (see assemble.c) into `code`; returns bytes, or -1 with a message in `error`. */
long aie_assemble(const aie_isa *isa, const char *text, uint8_t *code, size_t room, char *error,
                  size_t error_size);

/* Rules that were found on silicon (reported for AIE2P by the pm-npu project, October 2026), checked
 * for a whole program. */
typedef enum {
    AIE_RULE_TARGET = 1, /* a branch target begins a 16-byte line, but for NOPs before it */
    AIE_RULE_LOCKS = 2,  /* four bundles from one lock request to the next */
    AIE_RULE_DELAY = 4   /* no lock request, branch or DONE in delay slots */
} aie_rule;
enum { AIE_DELAY_SLOTS = 5, AIE_LOCK_SPACING = 4 };
/* Returns the rules that are broken, with the first place in `error`. */
int aie_check_rules(const aie_isa *isa, const uint8_t *code, size_t size, char *error,
                    size_t error_size);
/* What an instruction is to those rules. */
int aie_is_lock(const aie_op *op);
int aie_is_branch(const aie_op *op);
#endif
