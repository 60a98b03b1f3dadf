/* sim_array.c - the array of the simulated NPU: walks an instruction stream, follows the shim's
 * buffer descriptors to device memory and multiplies what they bring, tile by tile, as the cores
 * would. Register offsets and bits are those of the public AIE2 register database in mlir-aie
 * (aie_registers_aie2.json): addresses are column << 25 | row << 20 | offset, row 0 is the shim,
 * whose 16 descriptors of 8 words stand from 0x1D000 on and whose queues from 0x1D200 on.
 *
 * Progress is lazy: the array moves only when the stream waits for a token, and only as far as that
 * token needs. So a stream works here exactly if it is right however slow the array is: a
 * descriptor rewritten, or a queue pushed, before a token proved the old task done, goes wrong.
 * All columns move in step, a tile at a time, because A is broadcast along rows of cores.
 */
#include "sim_amdxdna.h"
#include "kit/cdo.h"
#include "kit/txn.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define ROW_SHIFT 20
#define COLUMN_SHIFT 25
#define BD_BASE 0x1D000u
#define QUEUE_BASE 0x1D200u
#define QUEUE_DEPTH 4u           /* beside the task at work */
#define ON_CHIP_WORDS 65536u     /* that a channel's data may wait for in memory tiles: 256 KiB */
#define CONTROLLER 0xFu         /* the id of the controller that runs streams */
#define MAX_TILE (128u * 128u)

enum { S2MM0, S2MM1, MM2S0, MM2S1, CHANNELS };

/* One pass through a descriptor. */
typedef struct dma_run {
    const sim_window *window;
    txn_descriptor d;           /* its base is a byte offset in the window's BO */
    uint32_t index[4];
    uint64_t left;              /* words */
} dma_run;

typedef struct channel {
    uint32_t task[QUEUE_DEPTH + 1]; /* [0] is the one at work */
    unsigned n_tasks, runs_left, tokens;
    int started;
    dma_run run;
    uint32_t *ahead;            /* words that were read before the cores wanted them */
    size_t ahead_from, ahead_to;
} channel;

/* What streams write and the hardware keeps. Only the engine's thread comes here. */
static struct {
    uint32_t bd[SIM_MAX_COLS][16][8];
    uint32_t control[SIM_MAX_COLS][2];
    uint32_t rtp[SIM_MAX_COLS][SIM_MAX_ROWS];
    channel channels[SIM_MAX_COLS][CHANNELS];
} hw;

static struct {
    int16_t a[SIM_MAX_COLS / SIM_MAX_ROWS][SIM_MAX_ROWS][MAX_TILE]; /* by group of columns */
    int16_t b[SIM_MAX_COLS][MAX_TILE];
    int32_t pairs[MAX_TILE / 2]; /* of one b, see pair() */
    int32_t c[SIM_MAX_COLS][SIM_MAX_ROWS][MAX_TILE];
    uint32_t raw[MAX_TILE];
} tile;

void sim_array_reset(void)
{
    memset(&hw, 0, sizeof hw);
    memset(sim.status, 0, sizeof sim.status);
    sim_machine_reset();
}

__attribute__((format(printf, 2, 3)))
static int trouble(sim_array *array, const char *format, ...)
{
    if (array->trouble[0] == '\0') {
        va_list args;
        va_start(args, format);
        vsnprintf(array->trouble, sizeof array->trouble, format, args);
        va_end(args);
    }
    return -1;
}

/* ---------------------------------------------------------------- what a PDI says */

static uint32_t word_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static int cores_sane(const sim_cores *cores)
{
    if ((cores->bits != 8 && cores->bits != 16) || cores->m == 0 || cores->k == 0 ||
        cores->n == 0 || cores->columns == 0 || cores->columns > SIM_MAX_COLS ||
        cores->rows == 0 || cores->rows > SIM_MAX_ROWS || cores->rtp >= 0x10000 ||
        cores->m > 128 || cores->k > 128 || cores->n > 128 || cores->k * cores->bits % 32 != 0 ||
        cores->n * cores->bits % 32 != 0 || cores->n % 4 != 0) {
        return -1;
    }
    for (uint32_t i = 0; i < cores->columns; i++) {
        if ((i < cores->rows && (cores->a[i] & 0xFF) >= cores->columns) ||
            (cores->b[i] & 0xFF) >= cores->columns || (cores->c[i] & 0xFF) >= cores->columns ||
            cores->b[i] >> 8 > 1 || cores->c[i] >> 8 > 1) {
            return -1;
        }
    }
    return 0;
}

/* The largest program of a core that a PDI holds, in words. */
static int longest_program(void *self, const cdo_command *command)
{
    uint32_t *words = self;
    if (command->opcode == CDO_BLOCK && (command->address & 0xfffff) == 0x20000 &&
        command->words > *words) {
        *words = command->words;
    }
    return 0;
}

/* A core with less than 1 KiB of code runs a rung of the doctor's ladder, not the product. */
static int is_rung(const uint8_t *pdi, size_t size)
{
    size_t cdo_size = 0;
    const uint8_t *cdo = cdo_find(pdi, size, &cdo_size);
    uint32_t words = 0;
    return cdo != NULL && cdo_walk(cdo, cdo_size, longest_program, &words) == 0 && words < 256;
}

/* The design of npu_amdxdna.c, section 7: as many rows as columns, eight columns in two groups; row r's
 * A comes by column r of the group. */
static int built_in(const uint8_t *pdi, size_t size, sim_cores *cores)
{
    int bad = sim_machine_parse(pdi, size, cores);
    cores->m = cores->k = cores->n = 64;
    cores->rows = cores->columns < 4 ? cores->columns : 4;
    cores->groups = cores->columns / cores->rows;
    cores->rtp = 0xb000;
    cores->b_tiles = 1;
    cores->c_low = (cores->rows + 1) / 2;
    for (uint32_t i = 0; i < cores->columns; i++) {
        if (i < cores->rows) {
            cores->a[i] = i;
        }
        cores->b[i] = i | 1u << 8;
        cores->c[i] = i;
    }
    return bad != 0 ? bad : cores_sane(cores);
}

/* The dummy PDI of pack_gen.h: sync pattern, 'SIMC', then words, see there. Its checksum covers the
 * whole image, so a PDI that is not flushed to the last line does not load. */
int sim_cores_parse(const uint8_t *pdi, size_t size, sim_cores *cores)
{
    static const uint8_t sync[16] = { 0xdd, 0, 0, 0, 0x44, 0x33, 0x22, 0x11, 0x88, 0x77, 0x66,
                                      0x55, 0xcc, 0xbb, 0xaa, 0x99 };
    const uint8_t *words = pdi + 16;
    uint32_t total, sum = 2166136261u, field[12];
    if (size < 16 + 36 * 4 || memcmp(pdi, sync, 16) != 0) {
        return -1;
    }
    if (memcmp(words, "SIMC", 4) != 0) {
        return strcmp(sim.cores, "built-in") == 0 && !is_rung(pdi, size) ? built_in(pdi, size, cores)
               : sim.cores[0] != '\0' && strcmp(sim.cores, "built-in") != 0
                   ? sim_cores_text(sim.cores, cores)
                                      : sim_machine_parse(pdi, size, cores);
    }
    total = word_at(words + 33 * 4);
    if (word_at(words + 4) != 1 || total > size || total < 16 + 36 * 4) {
        return -1;
    }
    for (size_t i = 0; i < total; i++) {
        int in_sum = i >= 16 + 32 * 4 && i < 16 + 33 * 4;
        sum = (sum ^ (in_sum ? 0u : pdi[i])) * 16777619u;
    }
    if (sum != word_at(words + 32 * 4)) {
        return -1;
    }
    for (unsigned i = 0; i < 12; i++) {
        field[i] = word_at(words + 4 * i);
    }
    *cores = (sim_cores){ .generation = field[2], .bits = field[3], .m = field[4], .k = field[5],
                          .n = field[6], .columns = field[7], .rows = field[8],
                          .k_steps = field[9], .rtp = field[10], .b_nk = field[11] };
    for (unsigned i = 0; i < SIM_MAX_COLS; i++) {
        if (i < SIM_MAX_ROWS) {
            cores->a[i] = word_at(words + 4 * (12 + i));
        }
        cores->b[i] = word_at(words + 4 * (16 + i));
        cores->c[i] = word_at(words + 4 * (24 + i));
    }
    return cores_sane(cores);
}

static const char *port_list(const char *text, uint32_t *ports, unsigned count)
{
    for (unsigned i = 0; i < count && text != NULL; i++) {
        unsigned column, number;
        int used = 0;
        if (sscanf(text, " %u.%u%n", &column, &number, &used) != 2) {
            return NULL;
        }
        ports[i] = column | number << 8;
        text += used + (text[used] == ',');
    }
    return text;
}

/* "3 i16 64 64 32 4 4 8 kn A=0.0,1.0,2.0,3.0 B=1.1,0.1,2.1,3.1 C=1.0,1.1,0.0,2.0": generation,
 * type, m, k, n, columns, rows, K steps, layout of B, then shim column.channel of each stream.
 * (That is the public 512x512x512 build in iron/builds of tibrezus/xdna-npu-toolkit.) */
int sim_cores_text(const char *text, sim_cores *cores)
{
    char type[4], layout[3];
    int used = 0;
    memset(cores, 0, sizeof *cores);
    if (sscanf(text, "%u %3s %u %u %u %u %u %u %2s A=%n", &cores->generation, type, &cores->m,
               &cores->k, &cores->n, &cores->columns, &cores->rows, &cores->k_steps, layout,
               &used) != 9 || used == 0 || cores->columns > SIM_MAX_COLS ||
        cores->rows > SIM_MAX_ROWS) {
        return -1;
    }
    cores->bits = strcmp(type, "i16") == 0 ? 16 : 8;
    cores->b_nk = strcmp(layout, "nk") == 0;
    text = port_list(text + used, cores->a, cores->rows);
    text = text != NULL && strncmp(text, " B=", 3) == 0 ?
           port_list(text + 3, cores->b, cores->columns) : NULL;
    text = text != NULL && strncmp(text, " C=", 3) == 0 ?
           port_list(text + 3, cores->c, cores->columns) : NULL;
    return text != NULL ? cores_sane(cores) : -1;
}

/* ---------------------------------------------------------------- descriptors and queues */

/* Words from the first to the last that the pass touches, both included. */
static uint64_t run_span(const dma_run *run)
{
    uint64_t w0 = run->d.wrap[0] != 0 ? run->d.wrap[0] : run->left, n1, w1, n2;
    w0 = w0 < run->left ? w0 : run->left;
    n1 = (run->left + w0 - 1) / w0;
    w1 = run->d.wrap[1] != 0 && run->d.wrap[1] < n1 ? run->d.wrap[1] : n1;
    n2 = (n1 + w1 - 1) / w1;
    return (w0 - 1) * run->d.step[0] + (w1 - 1) * run->d.step[1] + (n2 - 1) * run->d.step[2] + 1;
}

static int run_start(sim_array *array, uint32_t column, unsigned number)
{
    channel *ch = &hw.channels[column][number];
    uint32_t id = ch->task[0] & 0xF, *bd = hw.bd[column][id];
    uint32_t current = bd[6] >> 26, wraps = (bd[6] >> 20 & 0x3F) + 1;
    uint64_t address = (uint64_t)(bd[2] & 0xFFFF) << 32 | (bd[1] & ~3u), span;
    dma_run *run = &ch->run;
    if ((bd[7] >> 25 & 1) == 0 || bd[0] == 0 || (bd[7] & 0x04001000u) != 0) {
        return trouble(array, "column %u descriptor %u: not valid, empty, chained or locked",
                       column, id);
    }
    address += (uint64_t)current * ((bd[6] & 0xFFFFF) + 1) * 4;
    bd[6] = (bd[6] & 0x03FFFFFFu) | (current + 1) % wraps << 26;
    *run = (dma_run){ .left = bd[0] };
    txn_shim_descriptor(bd, &run->d);
    span = run_span(run) * 4;
    for (size_t i = 0; i < array->n_windows; i++) {
        const sim_window *window = &array->windows[i];
        if (address >= window->from && span <= window->size &&
            address - window->from <= window->size - span) {
            sim_extents_add(array->used, window->bo, window->offset + (address - window->from),
                            window->offset + (address - window->from) + span);
            run->window = window;
            run->d.base = window->offset + (address - window->from);
            if (!window->listed) {
                array->violations++;
                trouble(array, "a BO that the array uses is not in the command's list");
            }
            ch->started = 1;
            return 0;
        }
    }
    array->violations++;
    return trouble(array, "column %u descriptor %u: %llu bytes at 0x%llx are not in one BO", column,
                   id, (unsigned long long)span, (unsigned long long)address);
}

/* Makes a run current if there is a task; -1 when the queue is empty or the descriptor is bad. */
static int channel_ready(sim_array *array, uint32_t column, unsigned number)
{
    channel *ch = &hw.channels[column][number];
    if (ch->started) {
        return 0;
    }
    if (ch->n_tasks == 0) {
        return trouble(array, "column %u %s %u has no task left", column,
                       number < MM2S0 ? "S2MM" : "MM2S", number & 1);
    }
    return run_start(array, column, number);
}

/* After the last word of a run: the next run, or the token and the next task. */
static void channel_run_done(uint32_t column, unsigned number)
{
    channel *ch = &hw.channels[column][number];
    ch->started = 0;
    if (ch->runs_left > 0) {
        ch->runs_left--;
        return;
    }
    if (ch->task[0] >> 31 != 0 &&
        (number >= MM2S0 || (hw.control[column][number] >> 8 & 0x1F) == CONTROLLER)) {
        ch->tokens++;
    }
    ch->n_tasks--;
    memmove(ch->task, ch->task + 1, ch->n_tasks * sizeof ch->task[0]);
    ch->runs_left = ch->n_tasks > 0 ? ch->task[0] >> 16 & 0xFF : 0;
}

/* Takes what was read ahead; returns how many words. */
static size_t take_ahead(channel *ch, uint32_t *words, uint64_t count)
{
    size_t n = ch->ahead_to - ch->ahead_from;
    n = n < count ? n : (size_t)count;
    if (n > 0) {
        memcpy(words, ch->ahead + ch->ahead_from, n * sizeof *words);
        ch->ahead_from += n;
    }
    return n;
}

/* Moves words between a stream and memory; -1 when the stream runs dry. */
static int channel_move(sim_array *array, uint32_t column, unsigned number, uint32_t *words,
                        uint64_t count)
{
    size_t had = take_ahead(&hw.channels[column][number], words, count);
    words += had;
    count -= had;
    while (count > 0) {
        channel *ch = &hw.channels[column][number];
        dma_run *run = &ch->run;
        uint64_t n, at;
        if (channel_ready(array, column, number) != 0) {
            return -1;
        }
        n = run->d.step[0] != 1 ? 1 : run->d.wrap[0] != 0 ? run->d.wrap[0] - run->index[0] : run->left;
        n = n < run->left ? n : run->left;
        n = n < count ? n : count;
        at = run->d.base + 4 * txn_offset(&run->d, run->index);
        if (number >= MM2S0) {
            memcpy(words, run->window->bo->mem + at, n * 4);
            array->bytes_in += n * 4;
        } else if (strcmp(array->result_fault, "skip") != 0) {
            array->dirty |= (unsigned)sim_bo_dirty(run->window->bo, at, n * 4);
            memcpy(run->window->bo->mem + at, words, n * 4);
            array->bytes_out += n * 4;
        }
        words += n;
        count -= n;
        run->left -= n;
        txn_advance(&run->d, run->index, (uint32_t)n);
        if (run->left == 0) {
            channel_run_done(column, number);
        }
    }
    return 0;
}

/* ---------------------------------------------------------------- the cores */

static void widen(const uint32_t *raw, int16_t *to, uint32_t count, uint32_t bits)
{
    if (bits == 16) {
        memcpy(to, raw, count * 2);
    } else {
        const int8_t *from = (const int8_t *)raw;
        for (uint32_t i = 0; i < count; i++) {
            to[i] = from[i];
        }
    }
}

/* c [m, n] += a [m, k] * b [n, k]^T. Sums must fit int32, as the kernels' contract says. */
static void multiply_any(int32_t *c, const int16_t *a, const int16_t *b, uint32_t m, uint32_t n,
                         uint32_t k)
{
    for (uint32_t i = 0; i < m; i++) {
        for (uint32_t j = 0; j < n; j++) {
            const int16_t *x = a + (size_t)i * k, *y = b + (size_t)j * k;
            int32_t sum = 0;
            for (uint32_t p = 0; p < k; p++) {
                sum += x[p] * y[p];
            }
            c[(size_t)i * n + j] += sum;
        }
    }
}

/* Pairs along k of each column of b lie together, [k / 2][n]: one instruction of those below
 * multiplies a vector of them. */
static void pair(int32_t *pairs, const int16_t *b, uint32_t n, uint32_t k)
{
    for (uint32_t j = 0; j < n; j++) {
        for (uint32_t p = 0; p < k / 2; p++) {
            memcpy(&pairs[(size_t)p * n + j], b + (size_t)j * k + 2 * p, 4);
        }
    }
}

static int32_t pair_at(const int16_t *a)
{
    int32_t two;
    memcpy(&two, a, sizeof two);
    return two;
}

#if defined(__x86_64__)
/* The same for n in steps of 16, k of 2 and m of 4. */
__attribute__((target("avx2")))
static void multiply_avx2(int32_t *c, const int16_t *a, const int32_t *pairs, uint32_t m,
                          uint32_t n, uint32_t k)
{
    for (uint32_t i = 0; i < m; i += 4) {
        for (uint32_t j = 0; j < n; j += 16) {
            int32_t *to = c + (size_t)i * n + j;
            __m256i sum[4][2];
#pragma GCC unroll 4
            for (uint32_t r = 0; r < 4; r++) {
                sum[r][0] = _mm256_loadu_si256((const __m256i *)(to + (size_t)r * n));
                sum[r][1] = _mm256_loadu_si256((const __m256i *)(to + (size_t)r * n + 8));
            }
            for (uint32_t p = 0; p < k / 2; p++) {
                const int32_t *y = pairs + (size_t)p * n + j;
                __m256i y0 = _mm256_loadu_si256((const __m256i *)y);
                __m256i y1 = _mm256_loadu_si256((const __m256i *)(y + 8));
#pragma GCC unroll 4
                for (uint32_t r = 0; r < 4; r++) {
                    __m256i x = _mm256_set1_epi32(pair_at(a + (size_t)(i + r) * k + 2 * p));
                    sum[r][0] = _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(x, y0));
                    sum[r][1] = _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(x, y1));
                }
            }
#pragma GCC unroll 4
            for (uint32_t r = 0; r < 4; r++) {
                _mm256_storeu_si256((__m256i *)(to + (size_t)r * n), sum[r][0]);
                _mm256_storeu_si256((__m256i *)(to + (size_t)r * n + 8), sum[r][1]);
            }
        }
    }
}

/* And for n in steps of 32 and m of 8. */
__attribute__((target("avx512f,avx512vnni")))
static void multiply_vnni(int32_t *c, const int16_t *a, const int32_t *pairs, uint32_t m,
                          uint32_t n, uint32_t k)
{
    for (uint32_t i = 0; i < m; i += 8) {
        for (uint32_t j = 0; j < n; j += 32) {
            int32_t *to = c + (size_t)i * n + j;
            __m512i sum[8][2];
#pragma GCC unroll 8
            for (uint32_t r = 0; r < 8; r++) {
                sum[r][0] = _mm512_loadu_si512(to + (size_t)r * n);
                sum[r][1] = _mm512_loadu_si512(to + (size_t)r * n + 16);
            }
            for (uint32_t p = 0; p < k / 2; p++) {
                const int32_t *y = pairs + (size_t)p * n + j;
                __m512i y0 = _mm512_loadu_si512(y), y1 = _mm512_loadu_si512(y + 16);
#pragma GCC unroll 8
                for (uint32_t r = 0; r < 8; r++) {
                    __m512i x = _mm512_set1_epi32(pair_at(a + (size_t)(i + r) * k + 2 * p));
                    sum[r][0] = _mm512_dpwssd_epi32(sum[r][0], x, y0);
                    sum[r][1] = _mm512_dpwssd_epi32(sum[r][1], x, y1);
                }
            }
#pragma GCC unroll 8
            for (uint32_t r = 0; r < 8; r++) {
                _mm512_storeu_si512(to + (size_t)r * n, sum[r][0]);
                _mm512_storeu_si512(to + (size_t)r * n + 16, sum[r][1]);
            }
        }
    }
}
#endif

typedef void multiply_function(int32_t *c, const int16_t *a, const int32_t *pairs, uint32_t m,
                               uint32_t n, uint32_t k);

/* One that takes pairs, or NULL. */
static multiply_function *multiply_fast(const sim_cores *cores)
{
#if defined(__x86_64__)
    if (cores->m % 8 == 0 && cores->n % 32 == 0 && cores->k % 2 == 0 &&
        __builtin_cpu_supports("avx512vnni")) {
        return multiply_vnni;
    }
    if (cores->m % 4 == 0 && cores->n % 16 == 0 && cores->k % 2 == 0 &&
        __builtin_cpu_supports("avx2")) {
        return multiply_avx2;
    }
#endif
    (void)cores;
    return NULL;
}

/* What one column of cores does in one step. */
static void multiply(const sim_cores *cores, uint32_t column)
{
    multiply_function *fast = multiply_fast(cores);
    uint32_t group = cores->groups > 1 ? column / (cores->columns / cores->groups) : 0;
    if (fast != NULL) {
        pair(tile.pairs, tile.b[column], cores->n, cores->k);
    }
    for (uint32_t row = 0; row < cores->rows; row++) {
        if (fast != NULL) {
            fast(tile.c[column][row], tile.a[group][row], tile.pairs, cores->m, cores->n,
                 cores->k);
        } else {
            multiply_any(tile.c[column][row], tile.a[group][row], tile.b[column], cores->m,
                         cores->n, cores->k);
        }
    }
}

static int pull_a(sim_array *array, uint32_t group, uint32_t row)
{
    const sim_cores *cores = array->cores;
    uint32_t count = cores->m * cores->k, port = cores->a[row];
    port += group > 0 ? group * (cores->columns / cores->groups) : 0;
    if (channel_move(array, port & 0xFF, MM2S0 + (port >> 8 & 1), tile.raw,
                     count * cores->bits / 32) != 0) {
        return -1;
    }
    widen(tile.raw, tile.a[group][row], count, cores->bits);
    return 0;
}

static int pull_b(sim_array *array, uint32_t column)
{
    static int16_t wide[MAX_TILE];
    const sim_cores *cores = array->cores;
    uint32_t count = cores->n * cores->k, port = cores->b[column];
    if (channel_move(array, port & 0xFF, MM2S0 + (port >> 8), tile.raw,
                     count * cores->bits / 32) != 0) {
        return -1;
    }
    if (cores->b_nk) {
        widen(tile.raw, tile.b[column], count, cores->bits);
        return 0;
    }
    widen(tile.raw, wide, count, cores->bits);
    if (cores->b_tiles) { /* [4 n16][8 k8][2 n8][8 k][8 n] */
        for (uint32_t i = 0; i < count; i++) {
            uint32_t n = (i >> 10 << 4) + (i >> 6 & 1) * 8 + (i & 7);
            tile.b[column][n * 64 + (i >> 7 & 7) * 8 + (i >> 3 & 7)] = wide[i];
        }
        return 0;
    }
    for (uint32_t p = 0; p < cores->k; p++) {
        for (uint32_t j = 0; j < cores->n; j++) {
            tile.b[column][j * cores->k + p] = wide[p * cores->n + j];
        }
    }
    return 0;
}

static int push_c(sim_array *array)
{
    const sim_cores *cores = array->cores;
    uint32_t words = cores->m * cores->n;
    if (strcmp(array->result_fault, "flipbit") == 0) {
        tile.c[sim_random_bits() % cores->columns][sim_random_bits() % cores->rows]
              [sim_random_bits() % words] ^= (int32_t)(1u << (sim_random_bits() & 31));
        array->result_fault[0] = '\0';
    } else if (strcmp(array->result_fault, "zero") == 0) {
        memset(tile.c, 0, sizeof tile.c);
    }
    for (uint32_t column = 0; column < cores->columns; column++) {
        uint32_t port = cores->c[column];
        for (uint32_t row = 0; row < cores->rows; row++) {
            uint32_t number = cores->c_low != 0 ? row >= cores->c_low : port >> 8;
            if (channel_move(array, port & 0xFF, number, (uint32_t *)tile.c[column][row],
                             words) != 0) {
                return -1;
            }
        }
    }
    return 0;
}

static int k_steps(sim_array *array, uint32_t *steps)
{
    const sim_cores *cores = array->cores;
    *steps = cores->k_steps;
    if (*steps != 0) {
        return 0;
    }
    *steps = hw.rtp[0][0];
    for (uint32_t column = 0; column < cores->columns; column++) {
        for (uint32_t row = 0; row < cores->rows; row++) {
            if (hw.rtp[column][row] != *steps || *steps == 0) {
                return trouble(array, "core %u,%u: K steps %u, others %u", column, row,
                               hw.rtp[column][row], *steps);
            }
        }
    }
    return 0;
}

/* Every core makes one tile of C. -1: a stream is dry, so nothing will ever move again. */
static int array_step(sim_array *array)
{
    const sim_cores *cores = array->cores;
    uint32_t steps, words = cores->m * cores->n;
    if (k_steps(array, &steps) != 0) {
        return -1;
    }
    for (uint32_t column = 0; column < cores->columns; column++) {
        uint32_t port = cores->c[column];
        if (channel_ready(array, port & 0xFF, port >> 8) != 0) {
            return -1;
        }
        for (uint32_t row = 0; row < cores->rows; row++) {
            memset(tile.c[column][row], 0, words * sizeof(int32_t));
        }
    }
    for (uint32_t step = 0; step < steps; step++) {
        for (uint32_t i = 0; i < cores->rows * (cores->groups > 1 ? cores->groups : 1); i++) {
            if (pull_a(array, i / cores->rows, i % cores->rows) != 0) {
                return -1;
            }
        }
        for (uint32_t column = 0; column < cores->columns; column++) {
            if (pull_b(array, column) != 0) {
                return -1;
            }
            multiply(cores, column);
        }
    }
    array->macs += (uint64_t)steps * cores->rows * cores->columns * cores->m * cores->n *
                   cores->k;
    return push_c(array);
}

/* ---------------------------------------------------------------- the stream */

static int queue_push(sim_array *array, uint32_t column, unsigned number, uint32_t word)
{
    channel *ch = &hw.channels[column][number];
    if (ch->n_tasks == QUEUE_DEPTH + 1) {
        array->violations++;
        return trouble(array, "column %u: a fifth task waits in a queue of four", column);
    }
    if (ch->n_tasks == 0) {
        ch->runs_left = word >> 16 & 0xFF;
    }
    ch->task[ch->n_tasks++] = word;
    return 0;
}

/* Where a register lives that the model keeps, or NULL. */
static uint32_t *register_at(sim_array *array, uint32_t column, uint32_t row, uint32_t offset)
{
    if (row == 0 && offset >= BD_BASE && offset < BD_BASE + 0x200) {
        return &hw.bd[column][(offset - BD_BASE) / 0x20][offset / 4 % 8];
    }
    if (row == 0 && (offset == QUEUE_BASE || offset == QUEUE_BASE + 8)) {
        return &hw.control[column][(offset - QUEUE_BASE) / 8];
    }
    if (row >= 2 && row < 2 + SIM_MAX_ROWS && array->cores->k_steps == 0 &&
        offset == array->cores->rtp) {
        return &hw.rtp[column][row - 2];
    }
    return NULL;
}

static int register_write(sim_array *array, uint32_t address, uint32_t value, uint32_t mask)
{
    uint32_t column = address >> COLUMN_SHIFT, row = address >> ROW_SHIFT & 0x1F;
    uint32_t offset = address & 0xFFFFF, *at;
    if (column >= array->columns) {
        array->violations++;
        return trouble(array, "write to column %u outside the partition", column);
    }
    if (row == 0 && offset >= QUEUE_BASE + 4 && offset <= QUEUE_BASE + 0x1C && offset % 8 == 4) {
        return queue_push(array, column, (offset - QUEUE_BASE) / 8, value);
    }
    at = register_at(array, column, row, offset);
    if (at != NULL) {
        *at = (*at & ~mask) | (value & mask);
    }
    return 0;
}

static int ddr_patch(sim_array *array, const txn_op *op)
{
    uint64_t address;
    if (op->argument >= array->n_args || array->args[op->argument] == 0) {
        array->violations++;
        return trouble(array, "the stream wants argument %u, which is not given", op->argument);
    }
    address = array->args[op->argument] + op->plus;
    if (register_write(array, op->address, (uint32_t)address, ~3u) != 0) {
        return -1;
    }
    return register_write(array, op->address + 4, (uint32_t)(address >> 32), 0xFFFF);
}

/* Reads the current task of an input to its end, although nobody wants it yet: it waits in memory
 * tiles. -1: there is none, or it does not fit. */
static int read_ahead(sim_array *array, uint32_t column, unsigned number)
{
    channel *ch = &hw.channels[column][number];
    unsigned tokens = ch->tokens, tasks = ch->n_tasks;
    size_t from = ch->ahead_from, kept = ch->ahead_to - from;
    if (number < MM2S0 || tasks == 0) {
        return -1;
    }
    if (ch->ahead == NULL && (ch->ahead = malloc(ON_CHIP_WORDS * sizeof *ch->ahead)) == NULL) {
        return -1;
    }
    memmove(ch->ahead, ch->ahead + from, kept * sizeof *ch->ahead);
    ch->ahead_from = ch->ahead_to = 0; /* so that channel_move() reads memory */
    while (ch->n_tasks == tasks && ch->tokens == tokens && kept < ON_CHIP_WORDS) {
        if (channel_move(array, column, number, ch->ahead + kept, 1) != 0) {
            return -1;
        }
        kept++;
    }
    ch->ahead_to = kept;
    return ch->n_tasks < tasks ? 0
           : trouble(array, "column %u: an input that nobody takes does not fit on the chip", column);
}

/* 1 when every column's results have somewhere to go. */
static int results_queued(const sim_array *array)
{
    const sim_cores *cores = array->cores;
    for (uint32_t column = 0; column < cores->columns; column++) {
        const channel *ch = hw.channels[cores->c[column] & 0xFF];
        if (!ch[cores->c_low != 0 ? 0 : cores->c[column] >> 8].n_tasks) {
            return 0;
        }
    }
    return 1;
}

static int token_wait(sim_array *array, const txn_op *op)
{
    uint32_t to_host = (op->data[0] & 0xFF) == 0, first = op->data[0] >> 16 & 0xFF;
    uint32_t columns = op->data[1] >> 16 & 0xFF, number = op->data[1] >> 24;
    number += to_host ? S2MM0 : MM2S0;
    if ((op->data[0] >> 8 & 0xFF) != 0 || number >= CHANNELS || (number < MM2S0) != to_host ||
        columns == 0 || first + columns > array->columns) {
        return trouble(array, "a wait for a token that cannot come");
    }
    for (uint32_t column = first; column < first + columns; column++) {
        while (hw.channels[column][number].tokens == 0) {
            int ahead = number >= MM2S0 && !results_queued(array);
            if ((ahead ? read_ahead(array, column, number) : array_step(array)) != 0) {
                return -1;
            }
        }
        hw.channels[column][number].tokens--;
    }
    return 0;
}

static int run_op(sim_array *array, const txn_op *op)
{
    switch (op->code) {
    case 0:
    case 3:
        return register_write(array, op->address, op->value, op->mask);
    case 1:
        for (uint32_t i = 0; i < op->n_data; i++) {
            if (register_write(array, op->address + 4 * i, op->data[i], UINT32_MAX) != 0) {
                return -1;
            }
        }
        return 0;
    case 0x80:
        return token_wait(array, op);
    case 0x81:
        return ddr_patch(array, op);
    default:
        return 0; /* polls succeed, NOOP, PREEMPT and the timers do nothing */
    }
}

static int header_ok(sim_array *array)
{
    const uint32_t *w = array->words;
    if (array->n_words < 4 || w[3] != array->n_words * 4 || w[0] >> 24 != 6 ||
        ((w[0] & 0xFFFF) != 0x0100 && (w[0] & 0xFFFF) != 0x0001)) {
        return trouble(array, "not a transaction stream of this length");
    }
    if ((w[0] >> 16 & 0xFF) != array->cores->generation) {
        return trouble(array, "the stream is for device generation %u", w[0] >> 16 & 0xFF);
    }
    if ((w[1] & 0xFF) > array->columns || array->cores->columns > array->columns) {
        return trouble(array, "more columns than the partition has");
    }
    return 0;
}

/* What is still under way when the stream ends is a race on silicon. */
static void check_idle(sim_array *array)
{
    for (uint32_t column = 0; column < array->columns; column++) {
        for (unsigned number = 0; number < CHANNELS; number++) {
            const channel *ch = &hw.channels[column][number];
            if (ch->n_tasks > 0 || ch->tokens > 0) {
                array->violations++;
                trouble(array, "the stream ends with column %u channel %u unfinished", column,
                        number);
                return;
            }
        }
    }
}

static uint32_t run_stream(sim_array *array)
{
    uint32_t position = 4;
    int old = array->n_words >= 4 && (array->words[0] & 0xFFFF) == 0x0100;
    if (header_ok(array) != 0) {
        return SIM_FW_BAD_STREAM;
    }
    for (uint32_t i = 0; i < array->words[2]; i++) {
        const uint32_t *at = array->words + position;
        txn_op op;
        uint32_t words = txn_read(at, array->n_words - position, old, &op);
        if (words == 0) {
            trouble(array, "operation %u is none", i);
            return SIM_FW_BAD_STREAM;
        }
        if (run_op(array, &op) != 0) {
            return SIM_FW_HUNG;
        }
        position += words;
    }
    if (position != array->n_words) {
        trouble(array, "the operations do not end where the stream does");
        return SIM_FW_BAD_STREAM;
    }
    check_idle(array);
    return SIM_FW_OK;
}

/* Work that a stream leaves behind is dropped: its descriptors' windows end with the command. */
uint32_t sim_array_run(sim_array *array)
{
    if (array->cores->image != NULL && !array->cores->b_tiles) {
        return sim_machine_run(array);
    }
    uint32_t status = run_stream(array);
    for (size_t i = 0; i < SIM_MAX_COLS * CHANNELS; i++) {
        free(hw.channels[i / CHANNELS][i % CHANNELS].ahead);
    }
    memset(hw.channels, 0, sizeof hw.channels);
    if (status == SIM_FW_OK && sim.count_cycles && array->cores->b_tiles) {
        array->cycles = sim_machine_cycles(array);
    }
    return status;
}
