/* sim_clflush.c - SIM_AMDXDNA_CACHE=trap: the cache model sees the program's own CLFLUSH.
 *
 * CLFLUSH and CLFLUSHOPT cannot be intercepted as calls, so the program's text is searched for them
 * when it opens the device, and each is replaced by a breakpoint; the handler decodes the operand,
 * flushes that line in the model and steps over the instruction. x86-64 only, the main executable
 * only, and a search by bytes: data that looks like the instruction would break the program, so
 * this is for programs of ours, where the log tells how many were found.
 */
#include "sim_amdxdna.h"
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__x86_64__)
#define MAX_SITES 64u

static uint8_t *sites[MAX_SITES];       /* of the byte 0F that INT3 replaced */
static unsigned n_sites;

/* Bytes of ModRM, SIB and displacement. */
static unsigned operand_bytes(const uint8_t *modrm)
{
    unsigned mod = modrm[0] >> 6, rm = modrm[0] & 7, n = 1;
    if (rm == 4) {
        n++;
        if (mod == 0 && (modrm[1] & 7) == 5) {
            n += 4;
        }
    } else if (mod == 0 && rm == 5) {
        n += 4;
    }
    return n + (mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

static int64_t displacement(const uint8_t *at, unsigned mod)
{
    int32_t wide;
    if (mod == 1) {
        return (int8_t)at[0];
    }
    memcpy(&wide, at, sizeof wide);
    return wide;
}

/* The address that the instruction names, given its REX prefix (or 0). */
static uint64_t operand(const ucontext_t *context, const uint8_t *modrm, uint8_t rex)
{
    static const int registers[16] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                       REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11,
                                       REG_R12, REG_R13, REG_R14, REG_R15 };
    const greg_t *r = context->uc_mcontext.gregs;
    unsigned mod = modrm[0] >> 6, rm = modrm[0] & 7, high = (rex & 1u) << 3;
    const uint8_t *at = modrm + 1;
    uint64_t address = 0;
    if (rm == 4) {
        unsigned base = modrm[1] & 7, index = (modrm[1] >> 3 & 7) | (rex & 2u) << 2;
        at++;
        if (index != 4) {
            address += (uint64_t)r[registers[index]] << (modrm[1] >> 6);
        }
        if (base == 5 && mod == 0) {
            return address + (uint64_t)displacement(at, 2);
        }
        address += (uint64_t)r[registers[base | high]];
    } else if (mod == 0 && rm == 5) {
        return (uint64_t)(uintptr_t)(modrm + 5) + (uint64_t)displacement(at, 2);
    } else {
        address += (uint64_t)r[registers[rm | high]];
    }
    return mod == 0 ? address : address + (uint64_t)displacement(at, mod);
}

static int in_bo(uint64_t address)
{
    for (const sim_map *map = sim.maps; map != NULL; map = map->next) {
        if (address >= map->va && address - map->va < map->size) {
            return 1;
        }
    }
    return 0;
}

static void on_trap(int number, siginfo_t *details, void *data)
{
    ucontext_t *context = data;
    greg_t *rip = &context->uc_mcontext.gregs[REG_RIP];
    uint8_t *site = (uint8_t *)(uintptr_t)*rip - 1, rex = site[-1];
    (void)details;
    for (unsigned i = 0; i < n_sites; i++) {
        if (sites[i] == site) {
            uint64_t address = operand(context, site + 2, 0), other;
            /* a byte that looks like a prefix may be the end of the instruction before */
            if ((rex & 0xF0) == 0x40) {
                other = operand(context, site + 2, rex);
                address = in_bo(other) ? other : address;
            }
            sim_enter();
            sim_flush_va((const void *)(uintptr_t)(address / SIM_LINE * SIM_LINE), SIM_LINE);
            sim_leave();
            *rip += 1 + operand_bytes(site + 2);
            return;
        }
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void patch_segment(uint8_t *from, size_t size)
{
    long page = sysconf(_SC_PAGESIZE);
    uint8_t *start = from - (uintptr_t)from % (size_t)page;
    size_t whole = size + (size_t)(from - start);
    if (mprotect(start, whole, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
        sim_log("the program's text cannot be changed: CLFLUSH is not seen");
        return;
    }
    for (size_t i = 1; i + 3 < size && n_sites < MAX_SITES; i++) {
        if (from[i] == 0x0F && from[i + 1] == 0xAE && (from[i + 2] >> 3 & 7) == 7 &&
            from[i + 2] >> 6 != 3) {
            sites[n_sites++] = from + i;
            from[i] = 0xCC;
        }
    }
    mprotect(start, whole, PROT_READ | PROT_EXEC);
}

/* The first object listed is the main executable. */
static int on_object(struct dl_phdr_info *object, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    for (unsigned i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X) != 0) {
            patch_segment((uint8_t *)(uintptr_t)(object->dlpi_addr + segment->p_vaddr),
                          segment->p_memsz);
        }
    }
    return 1;
}

void sim_clflush_trap(void)
{
    struct sigaction action = { .sa_flags = SA_SIGINFO | SA_NODEFER };
    if (n_sites > 0) {
        return;
    }
    action.sa_sigaction = on_trap;
    sigaction(SIGTRAP, &action, NULL);
    dl_iterate_phdr(on_object, NULL);
    sim_log("%u CLFLUSH instructions are watched", n_sites);
}
#else
void sim_clflush_trap(void)
{
    sim_log("CLFLUSH exists on x86 only");
}
#endif
