/* pack_gen.h - writes kernel packs for the simulated NPU: instruction streams and containers in the
 * public formats, and a PDI that is no program but a description of one. Used by make_pack.c, which
 * documents the manifest, and by test_sim.c. Streams are laid out like those of mlir-aie's whole-
 * array matrix multiplication: two row blocks a transfer, two transfers in flight.
 *
 * The dummy PDI: the 16 bytes every PDI begins with, then little-endian words:
 *   0 'SIMC'  1 version 1  2 generation (3, 4)  3 bits of A and B  4 m  5 k  6 n of a core's tile
 *   7 columns  8 rows of cores  9 K steps, 0 if the stream writes them to each core at word 10's
 *   offset  11 B arrives as n rows of k  12..15 shim of A for each row of cores, 16..23 of B and
 *   24..31 of C for each column: column | channel << 8  32 FNV-1a of the image with this word zero
 *   33 bytes of the image
 * and filler up to the size of a small real one.
 */
#ifndef PACK_GEN_H
#define PACK_GEN_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PG_PDI_BYTES 24576u
#define PG_RTP 0x400u

typedef struct pg_buf {
    uint8_t *data;
    size_t size, room;
} pg_buf;

typedef struct pg_spec {
    uint32_t npu2;              /* 0: NPU1, 1: NPU4 and its kin */
    uint32_t bits;              /* 8 or 16 */
    uint32_t tm, tk, tn;        /* tile of one core */
    uint32_t b_nk;              /* B lies [N, K] */
    uint32_t baked;             /* K steps in the PDI */
    uint32_t m, n, k;           /* the problem */
} pg_spec;

static void pg_put(pg_buf *buf, const void *data, size_t size)
{
    if (buf->size + size > buf->room) {
        buf->room = 2 * (buf->size + size) + 4096;
        buf->data = realloc(buf->data, buf->room);
        if (buf->data == NULL) {
            fprintf(stderr, "no memory\n");
            exit(1);
        }
    }
    if (data != NULL) {
        memcpy(buf->data + buf->size, data, size);
    } else {
        memset(buf->data + buf->size, 0, size);
    }
    buf->size += size;
}

static void pg_word(pg_buf *buf, uint32_t value)
{
    uint8_t bytes[4] = { (uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16),
                         (uint8_t)(value >> 24) };
    pg_put(buf, bytes, 4);
}

static void pg_set(pg_buf *buf, size_t at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        buf->data[at + i] = (uint8_t)(value >> 8 * i);
    }
}

static void pg_free(pg_buf *buf)
{
    free(buf->data);
    memset(buf, 0, sizeof *buf);
}

static uint32_t pg_columns(const pg_spec *spec)
{
    return spec->npu2 ? 8 : 4;
}

/* Why the shape cannot be built, or NULL. Limits are those of the descriptors' fields. */
static const char *pg_check(const pg_spec *spec)
{
    uint32_t columns = pg_columns(spec), groups;
    uint32_t core = 2 * (spec->tm * spec->tk * spec->bits / 8 + spec->tk * spec->tn *
                         spec->bits / 8 + 4 * spec->tm * spec->tn) + 3328;
    if (spec->tm == 0 || spec->tm % (spec->npu2 ? 8 : 16) != 0 || spec->tk == 0 ||
        spec->tk % 8 != 0 || spec->tn == 0 || spec->tn % (spec->npu2 ? 8 : 16) != 0) {
        return "tile: m and n are multiples of 16 (8 on npu2), k of 8";
    }
    if (core > 65536 || spec->tm > 128 || spec->tk > 128 || spec->tn > 128) {
        return "the tile does not fit a core";
    }
    if (spec->m == 0 || spec->m % (8 * spec->tm) != 0) {
        return "M is a multiple of 8 tiles";
    }
    if (spec->k == 0 || spec->k % spec->tk != 0) {
        return "K is a multiple of a tile";
    }
    if (spec->n == 0 || spec->n % (spec->tn * columns) != 0) {
        return "N is a multiple of a tile for each column";
    }
    groups = spec->n / (spec->tn * columns);
    if (groups > 64 || (uint64_t)4 * spec->tm * spec->n > 1u << 20 || spec->tm * 4 > 1023 ||
        (uint64_t)spec->tn * columns * spec->k * spec->bits / 32 > 1u << 20) {
        return "too large for the fields of a buffer descriptor";
    }
    return NULL;
}

/* ---------------------------------------------------------------- instruction stream */

typedef struct pg_stream {
    pg_buf *out;
    uint32_t ops;
} pg_stream;

static void pg_write32(pg_stream *s, uint32_t address, uint32_t value)
{
    uint32_t words[6] = { 0, 0, address, 0, value, 24 };
    for (unsigned i = 0; i < 6; i++) {
        pg_word(s->out, words[i]);
    }
    s->ops++;
}

static void pg_controller(pg_stream *s, uint32_t address)
{
    uint32_t words[7] = { 3, 0, address, 0, 0xF00, 0x1F00, 28 };
    for (unsigned i = 0; i < 7; i++) {
        pg_word(s->out, words[i]);
    }
    s->ops++;
}

static void pg_token(pg_stream *s, uint32_t column, uint32_t channel)
{
    uint32_t words[4] = { 0x80, 16, column << 16, channel << 24 | 0x10100 };
    for (unsigned i = 0; i < 4; i++) {
        pg_word(s->out, words[i]);
    }
    s->ops++;
}

typedef struct pg_bd {
    uint32_t column, id, length, wrap0, wrap1, step1, step2, runs, iteration_step;
    uint32_t argument;
    uint64_t offset;
} pg_bd;

/* The descriptor and its patch. Burst and cache bits are those of the public build. */
static void pg_descriptor(pg_stream *s, const pg_bd *bd)
{
    uint32_t address = bd->column << 25 | (0x1D000 + 0x20 * bd->id);
    uint32_t head[4] = { 1, 0, address, 48 };
    uint32_t words[8] = { bd->length, (uint32_t)bd->offset, 0, bd->wrap0 << 20,
                          (bd->step1 - 1) | bd->wrap1 << 20 | 2u << 30,
                          (bd->step2 - 1) | 2u << 24, 0, 1u << 25 };
    uint32_t patch[12] = { 0x81, 48, 0, 0, 0, 0, address + 4, 0, bd->argument, 0,
                           (uint32_t)bd->offset, (uint32_t)(bd->offset >> 32) };
    if (bd->runs > 1 && bd->iteration_step > 0) {
        words[6] = (bd->iteration_step - 1) | (bd->runs - 1) << 20;
    }
    for (unsigned i = 0; i < 4; i++) {
        pg_word(s->out, head[i]);
    }
    for (unsigned i = 0; i < 8; i++) {
        pg_word(s->out, words[i]);
    }
    for (unsigned i = 0; i < 12; i++) {
        pg_word(s->out, patch[i]);
    }
    s->ops += 2;
}

static void pg_push(pg_stream *s, const pg_bd *bd, uint32_t queue, uint32_t token)
{
    pg_write32(s, bd->column << 25 | queue, token << 31 | (bd->runs - 1) << 16 | bd->id);
}

static void pg_c(pg_stream *s, const pg_spec *spec, uint32_t column, uint32_t first_id,
                 uint32_t block)
{
    uint32_t columns = pg_columns(spec), rows = 4 * spec->tm;
    pg_bd bd = { .column = column, .id = first_id,
                 .length = rows * spec->tn * (spec->n / (spec->tn * columns)),
                 .wrap0 = spec->tn, .wrap1 = rows, .step1 = spec->n, .step2 = spec->tn * columns,
                 .runs = 2, .iteration_step = rows * spec->n, .argument = 2,
                 .offset = ((uint64_t)block * rows * spec->n + column * spec->tn) * 4 };
    pg_descriptor(s, &bd);
    pg_controller(s, column << 25 | 0x1D200);
    pg_push(s, &bd, 0x1D204, 1);
}

static void pg_a(pg_stream *s, const pg_spec *spec, uint32_t row, uint32_t id, uint32_t block)
{
    uint32_t columns = pg_columns(spec), line = spec->k * spec->bits / 32;
    uint32_t part = spec->tk * spec->bits / 32;
    pg_bd bd = { .column = columns == 8 ? 2 * row : row, .id = id, .length = spec->tm * line,
                 .wrap0 = part, .wrap1 = spec->tm, .step1 = line, .step2 = part,
                 .runs = spec->n / (spec->tn * columns), .argument = 0,
                 .offset = ((uint64_t)block * 4 + row) * spec->tm * line * 4 };
    pg_descriptor(s, &bd);
    pg_push(s, &bd, 0x1D214, 0);
}

static void pg_b(pg_stream *s, const pg_spec *spec, uint32_t column, uint32_t id)
{
    uint32_t columns = pg_columns(spec), part = spec->tk * spec->bits / 32;
    uint32_t line = (spec->b_nk ? spec->k : spec->n) * spec->bits / 32;
    uint32_t width = spec->tn * spec->bits / 32;
    pg_bd bd = { .column = column, .id = id, .length = spec->tn * spec->k * spec->bits / 32,
                 .wrap0 = spec->b_nk ? part : width, .wrap1 = spec->b_nk ? spec->tn : spec->tk,
                 .step1 = line, .step2 = spec->b_nk ? part : spec->tk * line,
                 .runs = spec->n / (spec->tn * columns),
                 .iteration_step = columns * (spec->b_nk ? spec->tn * line : width),
                 .argument = 1,
                 .offset = (uint64_t)column * (spec->b_nk ? spec->tn * line : width) * 4 };
    pg_descriptor(s, &bd);
    pg_push(s, &bd, 0x1D21C, 0);
}

/* Two row blocks: C once, A and B for each block. Descriptors 0.. and 8.. take turns. */
static void pg_transfer(pg_stream *s, const pg_spec *spec, uint32_t transfer)
{
    uint32_t columns = pg_columns(spec), stride = columns / 4;
    for (uint32_t column = 0; column < columns; column++) {
        uint32_t id = transfer % 2 * 8;
        pg_c(s, spec, column, id, 2 * transfer);
        for (uint32_t half = 0; half < 2; half++) {
            if (column % stride == 0) {
                pg_a(s, spec, column / stride, id + 1 + 2 * half, 2 * transfer + half);
            }
            pg_b(s, spec, column, id + 2 + 2 * half);
        }
    }
}

static void pg_wait_all(pg_stream *s, uint32_t columns)
{
    for (uint32_t column = 0; column < columns; column++) {
        pg_token(s, column, 0);
    }
}

/* A transaction stream, version 0.1. */
static void pg_stream_write(const pg_spec *spec, pg_buf *out)
{
    uint32_t columns = pg_columns(spec), transfers = spec->m / (8 * spec->tm);
    pg_stream s = { out, 0 };
    pg_put(out, NULL, 16);
    for (uint32_t column = 0; column < columns && !spec->baked; column++) {
        for (uint32_t row = 2; row < 6; row++) {
            pg_write32(&s, column << 25 | row << 20 | PG_RTP, spec->k / spec->tk);
        }
    }
    for (uint32_t i = 0; i < transfers; i++) {
        pg_transfer(&s, spec, i);
        if (i > 0) {
            pg_wait_all(&s, columns);
        }
    }
    pg_wait_all(&s, columns);
    pg_set(out, 0, 6u << 24 | (spec->npu2 ? 4u : 3u) << 16 | 1u << 8, 4);
    pg_set(out, 4, 1u << 8 | columns, 4);
    pg_set(out, 8, s.ops, 4);
    pg_set(out, 12, out->size, 4);
}

/* ---------------------------------------------------------------- PDI and xclbin */

static void pg_pdi_write(const pg_spec *spec, pg_buf *out)
{
    static const uint8_t sync[16] = { 0xdd, 0, 0, 0, 0x44, 0x33, 0x22, 0x11, 0x88, 0x77, 0x66,
                                      0x55, 0xcc, 0xbb, 0xaa, 0x99 };
    uint32_t columns = pg_columns(spec), sum = 2166136261u, filler = 1;
    uint32_t words[12] = { 0x434D4953, 1, spec->npu2 ? 4 : 3, spec->bits, spec->tm, spec->tk,
                           spec->tn, columns, 4, spec->baked ? spec->k / spec->tk : 0, PG_RTP,
                           spec->b_nk };
    pg_put(out, sync, sizeof sync);
    for (unsigned i = 0; i < 12; i++) {
        pg_word(out, words[i]);
    }
    for (uint32_t row = 0; row < 4; row++) {
        pg_word(out, columns == 8 ? 2 * row : row);
    }
    for (uint32_t column = 0; column < 8; column++) {
        pg_word(out, column < columns ? column | 1u << 8 : 0);
    }
    for (uint32_t column = 0; column < 8; column++) {
        pg_word(out, column < columns ? column : 0);
    }
    pg_word(out, 0);
    pg_word(out, PG_PDI_BYTES);
    while (out->size < PG_PDI_BYTES) {
        filler = filler * 1664525u + 1013904223u;
        pg_word(out, filler);
    }
    for (size_t i = 0; i < out->size; i++) {
        sum = (sum ^ out->data[i]) * 16777619u;
    }
    pg_set(out, 16 + 32 * 4, sum, 4);
}

static void pg_align(pg_buf *buf, size_t to)
{
    pg_put(buf, NULL, (to - buf->size % to) % to);
}

/* AIE_PARTITION as in XRT's xclbin.h; one PDI, one group named DPU. */
static void pg_partition(const pg_spec *spec, const pg_buf *pdi, pg_buf *out)
{
    size_t names, columns, pdis, groups, ids, before, image;
    static const uint8_t uuid[16] = { 's', 'i', 'm' };
    pg_put(out, NULL, 184);
    names = out->size;
    pg_put(out, "QoS\0DPU\0", 8);
    columns = out->size;
    pg_align(out, 8);
    pg_put(out, NULL, 8);
    pdis = out->size;
    pg_put(out, NULL, 96);
    groups = out->size;
    pg_put(out, NULL, 96);
    ids = out->size;
    pg_put(out, "\x01\x09\0\0\0\0\0\0", 8);
    before = out->size;
    pg_put(out, "\xC1\0\0\0\0\0\0\0", 8);
    image = out->size;
    pg_put(out, pdi->data, pdi->size);
    pg_set(out, 4, names, 4);
    pg_set(out, 8, 2048, 4);
    pg_set(out, 32, pg_columns(spec), 2);
    pg_set(out, 40, 1, 4);
    pg_set(out, 44, columns, 4);
    pg_set(out, 120, 1, 4);
    pg_set(out, 124, pdis, 4);
    memcpy(out->data + pdis, uuid, 16);
    pg_set(out, pdis + 16, pdi->size, 4);
    pg_set(out, pdis + 20, image, 4);
    pg_set(out, pdis + 24, 1, 4);
    pg_set(out, pdis + 28, groups, 4);
    pg_set(out, groups, names + 4, 4);
    pg_set(out, groups + 4, 1, 1);
    pg_set(out, groups + 8, 1, 8);
    pg_set(out, groups + 16, 1, 4);
    pg_set(out, groups + 20, ids, 4);
    pg_set(out, groups + 24, 1, 4);
    pg_set(out, groups + 28, before, 4);
}

static void pg_topology(pg_buf *out)
{
    static const struct { uint64_t kib; const char *tag; } banks[2] = { { 0x10000, "HOST" },
                                                                        { 0xC000, "SRAM" } };
    pg_put(out, NULL, 88);
    pg_set(out, 0, 2, 4);
    for (unsigned i = 0; i < 2; i++) {
        size_t at = 8 + 40u * i;
        pg_set(out, at, 1, 1);
        pg_set(out, at + 1, 1, 1);
        pg_set(out, at + 8, banks[i].kib, 8);
        pg_set(out, at + 16, 0x4000000, 8);
        memcpy(out->data + at + 24, banks[i].tag, 5);
    }
}

static void pg_metadata(pg_buf *out)
{
    static const char *const args[8] = { "opcode", "instr", "ninstr", "bo0", "bo1", "bo2", "bo3",
                                         "bo4" };
    static const unsigned offsets[8] = { 0, 8, 0x10, 0x14, 0x1C, 0x24, 0x2C, 0x34 };
    char text[2048];
    int n = snprintf(text, sizeof text, "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<project>"
                     "<platform><device><core><kernel name=\"MLIR_AIE\" language=\"c\" "
                     "type=\"dpu\"><extended-data dpu_kernel_id=\"0x901\" functional=\"0\" "
                     "subtype=\"1\"/>\n");
    for (unsigned i = 0; i < 8; i++) {
        n += snprintf(text + n, sizeof text - (size_t)n, "<arg name=\"%s\" addressQualifier=\"%d\" "
                      "id=\"%u\" size=\"0x%x\" offset=\"0x%02X\" type=\"%s\"/>\n", args[i],
                      i != 0 && i != 2, i, i == 2 ? 4u : 8u, offsets[i],
                      i == 0 ? "uint64_t" : i == 2 ? "uint32_t" : "void*");
    }
    n += snprintf(text + n, sizeof text - (size_t)n, "<instance name=\"MLIRAIE\"/></kernel></core>"
                  "</device></platform></project>\n");
    pg_put(out, text, (size_t)n);
}

static void pg_ip_layout(pg_buf *out)
{
    pg_put(out, NULL, 88);
    pg_set(out, 0, 1, 4);
    pg_set(out, 8, 7, 4);
    pg_set(out, 12, 0x09010001, 4);
    memcpy(out->data + 24, "MLIR_AIE:MLIRAIE", 16);
}

/* The AXLF container of XRT's xclbin.h, with the four sections that a loader may want. */
static void pg_xclbin_write(const pg_spec *spec, const pg_buf *pdi, pg_buf *out)
{
    static const uint32_t kinds[4] = { 6, 32, 2, 8 };
    static const char *const names[4] = { "main_mem_topolo", "main_aie_partit", "", "" };
    pg_buf section = { NULL, 0, 0 };
    pg_put(out, NULL, 0x1C8 + 4 * 40);
    memcpy(out->data, "xclbin2", 8);
    memset(out->data + 8, 0xFF, 4 + 28 + 256);
    pg_set(out, 0x14B, 2, 1);
    pg_set(out, 0x1C0, 4, 4);
    for (unsigned i = 0; i < 4; i++) {
        size_t header = 0x1C8 + 40u * i;
        section.size = 0;
        switch (kinds[i]) {
        case 6: pg_topology(&section); break;
        case 32: pg_partition(spec, pdi, &section); break;
        case 2: pg_metadata(&section); break;
        default: pg_ip_layout(&section); break;
        }
        pg_align(out, 8);
        pg_set(out, header, kinds[i], 4);
        memcpy(out->data + header + 4, names[i], strlen(names[i]));
        pg_set(out, header + 24, out->size, 8);
        pg_set(out, header + 32, section.size, 8);
        pg_put(out, section.data, section.size);
    }
    pg_set(out, 0x130, out->size, 8);
    pg_free(&section);
}
#endif
