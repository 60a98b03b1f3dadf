/* count_blocks - a plug-in of qemu-user that counts how often each block of instructions is executed
 * between calls of a function, as cpu_estimate.py reads it: arguments mark=ADDRESS (of the function,
 * hexadecimal) and out=FILE.
 *
 *     n PART PC COUNT     between the calls 2 PART and 2 PART + 1 of the function
 *     end PC LAST         the last instruction of the block that begins at PC
 *
 * For programs of one thread. Debian's qemu-user has no header for plug-ins: what is used of it is
 * declared here and has not changed since version 1 of that interface. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef PLUGIN_VERSION
#define PLUGIN_VERSION 1
#endif

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*tb_translated)(uint64_t id, struct qemu_plugin_tb *tb);
typedef void (*tb_executed)(unsigned vcpu, void *user);
typedef void (*at_exit)(uint64_t id, void *user);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, tb_translated call);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, tb_executed call, int flags,
                                          void *user);
void qemu_plugin_register_atexit_cb(uint64_t id, at_exit call, void *user);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t i);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv);

extern int qemu_plugin_version;
int qemu_plugin_version = PLUGIN_VERSION;

enum { SLOTS = 1 << 18 };

typedef struct block {
    uint64_t pc, end, n;
} block;

static block blocks[SLOTS]; /* by their address; pc 0: free */
static uint64_t mark, marks;
static FILE *out;

static block *block_at(uint64_t pc)
{
    size_t i = (size_t)(pc * 0x9E3779B97F4A7C15u >> 40) % SLOTS, tried;
    for (tried = 0; blocks[i].pc != 0 && blocks[i].pc != pc; tried++) {
        if (tried == SLOTS) {
            fprintf(stderr, "count_blocks: too many blocks\n");
            exit(1);
        }
        i = (i + 1) % SLOTS;
    }
    blocks[i].pc = pc;
    return &blocks[i];
}

static void reached(unsigned vcpu, void *user)
{
    size_t i;
    (void)vcpu;
    (void)user;
    for (i = 0; i < SLOTS; i++) {
        if (marks % 2 == 1 && blocks[i].n > 0) {
            fprintf(out, "n %llu %llx %llu\n", (unsigned long long)marks / 2,
                    (unsigned long long)blocks[i].pc, (unsigned long long)blocks[i].n);
        }
        blocks[i].n = 0;
    }
    marks++;
}

static void executed(unsigned vcpu, void *user)
{
    (void)vcpu;
    ((block *)user)->n++;
}

static void translated(uint64_t id, struct qemu_plugin_tb *tb)
{
    block *b = block_at(qemu_plugin_tb_vaddr(tb));
    (void)id;
    b->end = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, qemu_plugin_tb_n_insns(tb) - 1));
    qemu_plugin_register_vcpu_tb_exec_cb(tb, b->pc == mark ? reached : executed, 0, b);
}

static void finish(uint64_t id, void *user)
{
    size_t i;
    (void)id;
    (void)user;
    for (i = 0; i < SLOTS; i++) {
        if (blocks[i].pc != 0) {
            fprintf(out, "end %llx %llx\n", (unsigned long long)blocks[i].pc,
                    (unsigned long long)blocks[i].end);
        }
    }
    (void)fclose(out);
}

int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
    int i;
    (void)info;
    for (i = 0; i < argc; i++) {
        if (strncmp(argv[i], "mark=", 5) == 0) {
            mark = strtoull(argv[i] + 5, NULL, 16);
        } else if (strncmp(argv[i], "out=", 4) == 0) {
            out = fopen(argv[i] + 4, "w");
        }
    }
    if (mark == 0 || out == NULL) {
        fprintf(stderr, "count_blocks: mark=ADDRESS,out=FILE\n");
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, finish, NULL);
    return 0;
}
