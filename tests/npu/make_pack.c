/* make_pack.c - writes a kernel pack that the simulated NPU can run.
 *
 *     make_pack DIR --device npu1|npu2 --dtype i8|i16 --shape MxNxK ...
 *         [--tile MxKxN]      tile of one core, default 64x64x32
 *         [--b-layout nk|kn]  default nk: weights row-major [N,K]
 *         [--baked]           one overlay for each K, loop bounds in the PDI
 *         [--pdi]             bare PDIs instead of xclbins
 *         [--name NAME]
 *
 * DIR is created. The pack is for tests alone: its PDIs describe cores to the simulator and are no
 * programs (pack_gen.h). The manifest below is the real thing.
 *
 * THE MANIFEST, format 1
 *
 * A pack is a directory (or callbacks) with a file named "manifest" and the files that it names.
 * ASCII text, lines end in LF (a CR before it is tolerated), at most 1,024 bytes a line. '#' as the
 * first non-blank character makes a comment; empty lines are skipped. Every other line is one
 * record: a record name, then fields key=value, separated by blanks. Values are made of
 * [A-Za-z0-9._:+-], never empty, never quoted. Files are plain names in the pack: no '/', no
 * leading dot, at most 63 bytes. Numbers are unsigned, decimal or 0x hex. SHA-256 is 64 lower-case
 * hex digits over the whole file. The first record is `pack`. An overlay stands before the kernels
 * that use it. A key twice in a record is an error. Unknown keys are ignored, records of an unknown
 * name and kernels with an unknown op are skipped (room to grow); a missing required key is an
 * error. Every key below is required.
 *
 *     pack    format=1           the grammar of this file; others are refused
 *             name=test-npu1-i8  for messages
 *             device=npu1        npu1 (NPU1) or npu2 (NPU4, NPU5, NPU6: AIE2P)
 *             columns=4          columns of the partition that every overlay of the pack needs
 *             licence=MIT
 *     overlay id=gemm            a token, unique in the pack
 *             file=gemm.xclbin
 *             kind=xclbin        xclbin (AXLF; the PDI is in its AIE_PARTITION) or pdi (bare image)
 *             sha256=...
 *             kernel=MLIR_AIE    kernel name in IP_LAYOUT and XML
 *             dpu_kernel_id=0x901
 *             ops_per_cycle=2048 max_opc of the context
 *     kernel  id=g1536x512x512   a token, unique in the pack
 *             overlay=gemm
 *             op=gemm            C[M,N] = A[M,K] B, int32 exact
 *             stream=g1536x512x512.bin   instruction stream (TXN)
 *             sha256=...         of the stream
 *             m=1536 n=512 k=512 the problem
 *             tile_m=64 tile_n=32 tile_k=64      what one core multiplies at a time
 *             a=i8 b=i8 c=i32    element types: i8 or i16 for a and b (equal), i32 for c
 *             acc=i32
 *             a_layout=mk        row-major [M,K]
 *             b_layout=nk        nk: row-major [N,K] (b_col_maj=1); kn: row-major [K,N]
 *             c_layout=mn        row-major [M,N]
 *             a_arg=0 b_arg=1 c_arg=2            argument indices of the stream's DDR patches
 *             a_bytes=786432 b_bytes=262144 c_bytes=3145728
 *             a_dir=in b_dir=in c_dir=out
 *             verified=none      hardware, emulator or none
 */
#define _POSIX_C_SOURCE 200809L
#include "pack_gen.h"
#include <errno.h>
#include <sys/stat.h>

#define MAX_SHAPES 64u

typedef struct options {
    const char *dir, *name;
    pg_spec spec;
    uint32_t shapes[MAX_SHAPES][3];
    unsigned n_shapes;
    int bare;
} options;

/* SHA-256, FIPS 180-4. */
static const uint32_t sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2 };

static uint32_t rotate(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static void sha_block(uint32_t h[8], const uint8_t *p)
{
    uint32_t w[64], v[8];
    for (unsigned i = 0; i < 16; i++) {
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    }
    for (unsigned i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(v, h, sizeof v);
    for (unsigned i = 0; i < 64; i++) {
        uint32_t t1 = v[7] + (rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25)) +
                      ((v[4] & v[5]) ^ (~v[4] & v[6])) + sha_k[i] + w[i];
        uint32_t t2 = (rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22)) +
                      ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (unsigned i = 0; i < 8; i++) {
        h[i] += v[i];
    }
}

static void sha256_hex(const pg_buf *data, char hex[65])
{
    uint32_t h[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                      0x1f83d9ab, 0x5be0cd19 };
    uint8_t tail[128] = { 0 };
    size_t left = data->size % 64, blocks = data->size / 64, ends = left < 56 ? 64 : 128;
    for (size_t i = 0; i < blocks; i++) {
        sha_block(h, data->data + 64 * i);
    }
    memcpy(tail, data->data + 64 * blocks, left);
    tail[left] = 0x80;
    for (unsigned i = 0; i < 8; i++) {
        tail[ends - 1 - i] = (uint8_t)((uint64_t)data->size * 8 >> 8 * i);
    }
    for (size_t i = 0; i < ends; i += 64) {
        sha_block(h, tail + i);
    }
    for (unsigned i = 0; i < 8; i++) {
        snprintf(hex + 8 * i, 9, "%08x", h[i]);
    }
}

static int write_file(const char *dir, const char *name, const pg_buf *data)
{
    char path[1024];
    FILE *file;
    int bad;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    file = fopen(path, "wb");
    bad = file == NULL || fwrite(data->data, 1, data->size, file) != data->size;
    bad |= file != NULL && fclose(file) != 0;
    if (bad) {
        fprintf(stderr, "make_pack: %s: %s\n", path, strerror(errno));
    }
    return bad ? -1 : 0;
}

static int write_overlay(const options *o, const pg_spec *spec, const char *id, pg_buf *manifest)
{
    pg_buf pdi = { NULL, 0, 0 }, xclbin = { NULL, 0, 0 };
    const pg_buf *data = o->bare ? &pdi : &xclbin;
    char hex[65], name[64], line[512];
    int result;
    pg_pdi_write(spec, &pdi);
    pg_xclbin_write(spec, &pdi, &xclbin);
    sha256_hex(data, hex);
    snprintf(name, sizeof name, "%s.%s", id, o->bare ? "pdi" : "xclbin");
    snprintf(line, sizeof line, "overlay id=%s file=%s kind=%s sha256=%s kernel=MLIR_AIE "
             "dpu_kernel_id=0x901 ops_per_cycle=2048\n", id, name, o->bare ? "pdi" : "xclbin", hex);
    pg_put(manifest, line, strlen(line));
    result = write_file(o->dir, name, data);
    pg_free(&pdi);
    pg_free(&xclbin);
    return result;
}

static int write_kernel(const options *o, const pg_spec *spec, const char *overlay,
                        pg_buf *manifest)
{
    pg_buf stream = { NULL, 0, 0 };
    char hex[65], id[48], name[64], line[1024];
    const char *type = spec->bits == 8 ? "i8" : "i16";
    uint64_t bytes = spec->bits / 8;
    int result;
    pg_stream_write(spec, &stream);
    sha256_hex(&stream, hex);
    snprintf(id, sizeof id, "g%ux%ux%u", spec->m, spec->n, spec->k);
    snprintf(name, sizeof name, "%s.bin", id);
    snprintf(line, sizeof line, "kernel id=%s overlay=%s op=gemm stream=%s sha256=%s m=%u n=%u "
             "k=%u tile_m=%u tile_n=%u tile_k=%u a=%s b=%s c=i32 acc=i32 a_layout=mk b_layout=%s "
             "c_layout=mn a_arg=0 b_arg=1 c_arg=2 a_bytes=%llu b_bytes=%llu c_bytes=%llu a_dir=in "
             "b_dir=in c_dir=out verified=none\n", id, overlay, name, hex, spec->m, spec->n,
             spec->k, spec->tm, spec->tn, spec->tk, type, type, spec->b_nk ? "nk" : "kn",
             (unsigned long long)(bytes * spec->m * spec->k),
             (unsigned long long)(bytes * spec->n * spec->k),
             (unsigned long long)4 * spec->m * spec->n);
    pg_put(manifest, line, strlen(line));
    result = write_file(o->dir, name, &stream);
    pg_free(&stream);
    return result;
}

static int write_pack(const options *o)
{
    pg_buf manifest = { NULL, 0, 0 };
    char line[256];
    uint32_t done[MAX_SHAPES];
    unsigned n_done = 0;
    int result = 0;
    snprintf(line, sizeof line, "# written by make_pack for the simulated NPU\npack format=1 "
             "name=%s device=%s columns=%u licence=MIT\n", o->name,
             o->spec.npu2 ? "npu2" : "npu1", pg_columns(&o->spec));
    pg_put(&manifest, line, strlen(line));
    for (unsigned i = 0; i < o->n_shapes && result == 0; i++) {
        pg_spec spec = o->spec;
        char overlay[32] = "gemm";
        unsigned seen = 0;
        spec.m = o->shapes[i][0];
        spec.n = o->shapes[i][1];
        spec.k = o->shapes[i][2];
        if (pg_check(&spec) != NULL) {
            fprintf(stderr, "make_pack: %ux%ux%u: %s\n", spec.m, spec.n, spec.k, pg_check(&spec));
            result = -1;
            break;
        }
        if (spec.baked) {
            snprintf(overlay, sizeof overlay, "gemm_k%u", spec.k);
        }
        while (seen < n_done && done[seen] != (spec.baked ? spec.k : 0)) {
            seen++;
        }
        if (seen == n_done) {
            done[n_done++] = spec.baked ? spec.k : 0;
            result = write_overlay(o, &spec, overlay, &manifest);
        }
        if (result == 0) {
            result = write_kernel(o, &spec, overlay, &manifest);
        }
    }
    if (result == 0) {
        result = write_file(o->dir, "manifest", &manifest);
    }
    pg_free(&manifest);
    return result;
}

static int three(const char *text, uint32_t *a, uint32_t *b, uint32_t *c)
{
    return text != NULL && sscanf(text, "%ux%ux%u", a, b, c) == 3 ? 0 : -1;
}

/* One option at argv[*i]; -1 if it is none. */
static int option(options *o, char **argv, int *i)
{
    const char *arg = argv[*i], *value = argv[*i + 1];
    if (strcmp(arg, "--baked") == 0) {
        o->spec.baked = 1;
        return 0;
    }
    if (strcmp(arg, "--pdi") == 0) {
        o->bare = 1;
        return 0;
    }
    if (value == NULL) {
        return -1;
    }
    *i += 1;
    if (strcmp(arg, "--device") == 0) {
        o->spec.npu2 = strcmp(value, "npu2") == 0;
        return o->spec.npu2 || strcmp(value, "npu1") == 0 ? 0 : -1;
    }
    if (strcmp(arg, "--dtype") == 0) {
        o->spec.bits = strcmp(value, "i16") == 0 ? 16 : 8;
        return o->spec.bits == 16 || strcmp(value, "i8") == 0 ? 0 : -1;
    }
    if (strcmp(arg, "--b-layout") == 0) {
        o->spec.b_nk = strcmp(value, "nk") == 0;
        return o->spec.b_nk || strcmp(value, "kn") == 0 ? 0 : -1;
    }
    if (strcmp(arg, "--name") == 0) {
        o->name = value;
        return 0;
    }
    if (strcmp(arg, "--tile") == 0) {
        return three(value, &o->spec.tm, &o->spec.tk, &o->spec.tn);
    }
    if (strcmp(arg, "--shape") != 0) {
        return -1;
    }
    for (*i -= 1; argv[*i + 1] != NULL && argv[*i + 1][0] != '-' && o->n_shapes < MAX_SHAPES;
         *i += 1) {
        uint32_t *shape = o->shapes[o->n_shapes++];
        if (three(argv[*i + 1], &shape[0], &shape[1], &shape[2]) != 0) {
            return -1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    options o = { .name = "test", .spec = { .bits = 8, .tm = 64, .tk = 64, .tn = 32, .b_nk = 1 } };
    int bad = argc < 4;
    for (int i = 2; i < argc && !bad; i++) {
        bad = option(&o, argv, &i) != 0;
    }
    if (bad || o.n_shapes == 0) {
        fprintf(stderr, "usage: make_pack DIR --device npu1|npu2 --dtype i8|i16 --shape MxNxK ...\n"
                "       [--tile MxKxN] [--b-layout nk|kn] [--baked] [--pdi] [--name NAME]\n");
        return 2;
    }
    o.dir = argv[1];
    if (mkdir(o.dir, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "make_pack: %s: %s\n", o.dir, strerror(errno));
        return 1;
    }
    return write_pack(&o) == 0 ? 0 : 1;
}
