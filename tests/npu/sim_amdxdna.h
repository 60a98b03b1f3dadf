/* sim_amdxdna.h - the inside of the simulated NPU (see sim_amdxdna.c for what it is and its
 * environment variables).
 *
 *   sim_amdxdna.c  the libc functions in front of which it stands, settings, log, faults, report
 *   sim_files.c    the sysfs and procfs files that a machine with such a device shows
 *   sim_memory.c   buffer objects, mappings, device addresses, the cache model
 *   sim_clflush.c  the program's CLFLUSH instructions, made visible to the cache model
 *   sim_driver.c   the driver: every ioctl with its checks in the real order
 *   sim_engine.c   scheduler, firmware, watchdog: from a queued command to its state
 *   sim_array.c    the array: instruction stream, buffer descriptors, cores
 *   sim_machine.c  the same for PDIs with machine code, which is executed
 *
 * One lock (sim.lock) guards everything; functions whose comment does not say otherwise are called
 * with it held. Only the array computes without it. Errors are negative errno values.
 */
#ifndef SIM_AMDXDNA_H
#define SIM_AMDXDNA_H
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIM_API __attribute__((visibility("default")))
#define SIM_NONE UINT64_MAX             /* the driver's "invalid" address */
#define SIM_FAKE_OFFSET 0x100000000ull  /* mmap offset of the first object */
#define SIM_HEAP_BASE 0x04000000u
#define SIM_CHUNK (64u << 20)           /* one DEV_HEAP */
#define SIM_SLOT 32768u                 /* alignment of DEV BOs in the heap */
#define SIM_CHUNK_SLOTS (SIM_CHUNK / SIM_SLOT)
#define SIM_MAX_CHUNKS 8u               /* 512 MiB */
#define SIM_MAX_BOS 8192u
#define SIM_MAX_CUS 32u
#define SIM_MAX_FDS 1024
#define SIM_MAX_COLS 8u
#define SIM_MAX_ROWS 4u
#define SIM_LINE 64u                    /* cache line */
#define SIM_EVENTS 4u                   /* registers of events of a tile */
#define SIM_STATUS 496u                 /* bytes of a column's status, see array_status() */
#define SIM_IN_FLIGHT 4u                /* commands of one context */

enum { SIM_SHMEM = 1, SIM_HEAP = 2, SIM_DEV = 3, SIM_CMD = 4 };
enum { SIM_NEW = 1, SIM_COMPLETED = 4, SIM_ERROR = 5, SIM_ABORT = 6, SIM_TIMEOUT = 8 };
enum { SIM_NPU1 = 1, SIM_NPU4 = 4 };
/* The firmware: it has stopped, and the next management call will find out; it has, and the driver
 * has closed the channel; the channel is broken. */
enum { SIM_FW_RUNS, SIM_FW_STOPPED, SIM_FW_CLOSED, SIM_FW_BROKEN };
enum { SIM_LEGACY = 100 };              /* sim.kernel of the out-of-tree driver, major 1 */

/* Status words of the firmware, as amd/xdna-driver's headers name them. */
#define SIM_FW_OK 0u
#define SIM_FW_AIE 0x1000001u
#define SIM_FW_BAD_STREAM 0x3000002u
#define SIM_FW_BAD_PDI 0x3000003u
#define SIM_FW_BAD_COMMAND 0x4000002u
#define SIM_FW_HUNG UINT32_MAX          /* never answers */

typedef struct sim_bo {
    uint32_t handle;            /* 0 once closed */
    int type;
    int user_pages;             /* made from a VA table */
    uint64_t size;              /* page-rounded */
    uint64_t offset;            /* in the arena; also its fake mmap offset */
    uint8_t *cpu;               /* what the CPU sees */
    uint8_t *mem;               /* what the device sees; == cpu without cache model */
    uint8_t *clean;             /* the value of each line when CPU and memory last agreed */
    uint64_t va;                /* of the first mapping, or SIM_NONE */
    uint64_t dev;               /* heap address or IOVA, or SIM_NONE */
    unsigned maps, refs;        /* refs: handle, mappings, jobs, configured CUs */
    struct sim_bo *heap;        /* of a DEV BO */
    struct sim_file *file;
} sim_bo;

typedef struct sim_map {
    uint64_t va, size;
    sim_bo *bo;
    struct sim_map *next;
} sim_map;

typedef struct sim_sync {
    uint32_t handle;
    uint64_t submitted, signalled; /* counts, so the newest point is submitted - 1 */
    unsigned refs;
    struct sim_sync *next;
} sim_sync;

/* What a PDI makes of the cores. */
typedef struct sim_cores {
    uint32_t generation, bits;  /* 3 or 4; 8 or 16 */
    uint32_t m, k, n;           /* tile of one core */
    uint32_t columns, rows;
    uint32_t groups;            /* of columns, each with an A of its own, that of group 0 shifted;
                                 * 0: one */
    uint32_t k_steps;           /* 0: read from the cores' memory at rtp */
    uint32_t rtp;
    uint32_t b_nk;              /* B arrives as n rows of k */
    uint32_t b_tiles;           /* B arrives as the library's built-in design has it */
    uint32_t c_low;             /* rows whose C the first channel takes, the second one the others;
                                 * 0: c has one for all */
    uint32_t a[SIM_MAX_ROWS], b[SIM_MAX_COLS], c[SIM_MAX_COLS]; /* column | channel << 8 */
    const uint8_t *image;       /* a PDI of machine code, see sim_machine.c; then only generation, */
    size_t image_size;          /* bits and columns are set, unless b_tiles is */
} sim_cores;

/* A part of a buffer object that a command uses, or that the CPU wrote meanwhile. */
typedef struct sim_extent {
    const sim_bo *bo;
    uint64_t from, to;
} sim_extent;

typedef struct sim_extents {
    sim_extent *list;
    size_t n, room;
} sim_extents;

typedef struct sim_job {
    struct sim_ctx *ctx;
    uint64_t seq;
    double submitted;           /* seconds */
    sim_bo *cmd;
    sim_bo **args;
    uint32_t n_args;
    int running, hung;
    sim_extents used, written;  /* by the device; by the CPU while it was in flight */
    uint64_t number;            /* EXEC_CMD calls of this process, from 1 */
    struct sim_job *next;
} sim_job;

typedef struct sim_ctx {
    uint32_t id, fw_id;
    uint32_t columns, start, width;
    struct sim_file *file;
    sim_sync *sync;
    sim_bo *cmd_slots[4];
    uint32_t n_cus, cu_handles[SIM_MAX_CUS];
    int cu_ok[SIM_MAX_CUS];
    sim_cores cu[SIM_MAX_CUS];
    int configured, dead, closing;
    unsigned waiting;           /* callers blocked for a slot */
    unsigned in_flight;
    double rebuilt, ready;      /* until then commands come back untouched; in an error */
    sim_job *jobs;              /* oldest first */
    uint64_t submissions, completions, errors;
    struct sim_ctx *next;
} sim_ctx;

typedef struct sim_file {
    unsigned fds;
    int inherited;              /* in a forked child: belongs to the parent */
    int keep_on_exec;
    int flush_fd[16];           /* ends of pipes that forked children hold open */
    unsigned n_flush;
    sim_bo *bos[SIM_MAX_BOS];   /* by handle */
    sim_bo *heaps[SIM_MAX_CHUNKS];
    unsigned n_heaps;
    uint8_t slots[SIM_MAX_CHUNKS * SIM_CHUNK_SLOTS];
    sim_ctx *ctxs;
    sim_sync *syncs;
    uint32_t next_ctx, next_sync;
    struct sim_file *next;
} sim_file;

/* What was done, and what it would have cost by the public figures: a model, not a measurement. */
typedef struct sim_amdxdna_stats_v1 {
    uint64_t ioctls, submissions, commands, waits, sleeps; /* commands: chain entries counted */
    uint64_t completed, failed, timeouts;
    uint64_t macs, bytes_in, bytes_out;  /* by the array's DMAs, repeats included */
    uint64_t bytes_flushed, lines_written_back, lines_invalidated;
    uint64_t switches, resumes;
    uint64_t faults, violations;
    uint64_t bos, mappings, contexts, syncobjs;             /* live now */
    uint64_t leaked_bos, leaked_mappings, leaked_contexts, leaked_syncobjs;
    uint64_t peak_bytes;        /* of buffer objects */
    double device_us, overhead_us, compute_us, memory_us, switch_us;
    double longest_wait_us;     /* that any wait was willing to take, when it was called */
} sim_amdxdna_stats_v1;

typedef struct sim_state {
    pthread_mutex_t lock;
    uint32_t events;            /* futex: goes up when anything completes */
    int opened;                 /* a device was opened: there is something to report */
    int gone;
    /* settings */
    int kernel;                 /* 616, 617, 618, 619, 700, 701, 702, 703 or SIM_LEGACY */
    int device;
    int iova, coherent, trap, strict, lenient, admin, odd_layout;
    uint32_t protocol_major, protocol_minor;
    int model_clock, count_cycles;
    double time_scale, latency; /* latency: least seconds that a command takes */
    double rebuild;             /* seconds after a timeout in which commands come back untouched */
    double unready;             /* and behind them those in which they meet no kernel: state 5 */
    double watchdog;            /* seconds until a hung command is aborted; 0: never */
    int firmware;               /* SIM_FW_RUNS, ... */
    uint32_t max_col;           /* the module option aie2_max_col */
    uint64_t memlock;           /* SIM_NONE: the real one */
    int log_fd;
    char cores[256];
    /* state */
    sim_file *files;
    sim_file *fd[SIM_MAX_FDS];
    sim_map *maps;
    unsigned fw_contexts, fw_leaked;
    uint32_t next_fw_id, last_fw_id;
    double last_activity;       /* submission or completion anywhere on the device */
    double last_use;
    uint64_t bytes;
    uint64_t commands_seen, exec_seen;
    int engine_runs;
    sim_job *current;
    uint8_t status[SIM_MAX_COLS][SIM_STATUS]; /* of the array at its last standstill */
    sim_amdxdna_stats_v1 stats;
} sim_state;

extern sim_state sim;

/* sim_amdxdna.c */
void sim_enter(void);           /* reads the settings once and takes the lock */
void sim_leave(void);
double sim_now(void);           /* seconds on the program's CLOCK_MONOTONIC */
void sim_clock_stop(void);      /* with SIM_AMDXDNA_CLOCK=model, else nothing */
void sim_clock_go_on(double us); /* after so many microseconds, whatever passed in truth */
__attribute__((format(printf, 1, 2))) void sim_log(const char *format, ...);
/* The program broke a rule that the real driver or device does not report. */
__attribute__((format(printf, 1, 2))) void sim_violation(const char *format, ...);
/* errno to fail with at this call of a point, or 0. point: "open", "mmap" or an ioctl's name. */
int sim_fault_call(const char *point);
/* What shall happen to firmware command number n: "" or the words after "exec=n:"/"result=n:". */
void sim_fault_command(const char *kind, uint64_t n, char *what, size_t size);
uint32_t sim_random_bits(void);
int sim_copy_in(void *to, uint64_t from, size_t size);
int sim_copy_out(uint64_t to, const void *from, size_t size);
/* Sleeps until sim.events changes from seen, a signal (-EINTR) or the time (CLOCK_MONOTONIC
 * seconds). Called without the lock. */
int sim_sleep(uint32_t seen, double until);
void sim_wake(void);

/* sim_files.c: paths that belong to the simulated machine. All without the lock. */
typedef struct sim_node {
    char path[160];
    char kind;                  /* d, f, l or c */
    char text[416];             /* of a file, or target of a link */
} sim_node;
int sim_files_owns(const char *path);
const sim_node *sim_files_find(const char *path, int follow);
const sim_node *sim_files_child(const sim_node *directory, unsigned index);
const char *sim_files_release(void);

/* sim_memory.c */
int sim_memory_start(void);
sim_bo *sim_bo_new(sim_file *file, int type, uint64_t size, int *error);
void sim_bo_ref(sim_bo *bo);
void sim_bo_unref(sim_bo *bo);
sim_bo *sim_bo_get(sim_file *file, uint32_t handle);
void sim_bo_close(sim_file *file, uint32_t handle);
uint64_t sim_bo_device_address(const sim_bo *bo);
void *sim_map_bo(sim_file *file, void *at, size_t size, int prot, int flags, uint64_t offset);
void sim_unmap(uint64_t va, uint64_t size, int replaced);
void sim_flush_range(sim_bo *bo, uint64_t offset, uint64_t size);
void sim_flush_va(const void *address, size_t size);
void sim_extents_add(sim_extents *extents, const sim_bo *bo, uint64_t from, uint64_t to);
int sim_bo_dirty(const sim_bo *bo, uint64_t offset, uint64_t size);
void sim_memory_forget(void);

/* sim_clflush.c */
void sim_clflush_trap(void);

/* sim_driver.c */
int sim_driver_open(sim_file **file);
void sim_driver_flush(sim_file *file);      /* any close of a descriptor */
void sim_driver_release(sim_file *file);    /* the last one */
int sim_driver_ioctl(sim_file *file, unsigned long request, void *argument);
const char *sim_driver_name(unsigned nr);

/* sim_engine.c */
int sim_engine_start(void);
void sim_engine_kick(void);
int sim_engine_resume(void);                /* before what needs the device; an error if broken */
int sim_engine_manage(void);                /* the same before a message to the firmware */
void sim_engine_destroy(sim_ctx *ctx);
void sim_engine_unplug(void);
void sim_engine_configure(sim_ctx *ctx, uint32_t cu, sim_bo *pdi);
void sim_engine_complete(sim_job *job, int state);
int sim_kernel(int at_least);               /* mainline of at least this version */

/* sim_array.c */
typedef struct sim_window {     /* device addresses that the array may reach */
    uint64_t from, size;
    sim_bo *bo;
    uint64_t offset;            /* of from in bo */
    int listed;                 /* among the command's arguments */
} sim_window;

typedef struct sim_array {
    const sim_cores *cores;
    uint32_t columns;
    const uint32_t *words;      /* the instruction stream */
    uint32_t n_words;
    const uint64_t *args;
    uint32_t n_args;
    sim_window *windows;
    size_t n_windows;
    char result_fault[32];
    sim_extents *used;
    /* results */
    uint64_t macs, bytes_in, bytes_out;
    uint64_t cycles;            /* counted; 0: unknown */
    unsigned violations, dirty;
    uint8_t status[SIM_MAX_COLS][SIM_STATUS]; /* of an array that stands still */
    char trouble[200];
} sim_array;

int sim_cores_parse(const uint8_t *pdi, size_t size, sim_cores *cores);
int sim_cores_text(const char *text, sim_cores *cores);
void sim_array_reset(void);     /* power-up and context switches lose what streams have set */
/* Runs a stream without the lock; returns a firmware status. */
uint32_t sim_array_run(sim_array *array);

/* sim_machine.c, for sim_array.c */
int sim_machine_parse(const uint8_t *pdi, size_t size, sim_cores *cores);
void sim_machine_reset(void);
uint32_t sim_machine_run(sim_array *array);
/* Cycles that the machine code takes for this stream, whatever the numbers; 0: it fails. */
uint64_t sim_machine_cycles(const sim_array *array);
#endif
