/* test_npu_pack.c - everything of npu_amdxdna.c that needs no device: hash, instruction streams,
 * containers, manifest, operand layouts, command bytes. Streams, containers and manifests are
 * written here from the public formats. */
#include "../../npu_amdxdna.c"
#include "../lib/t.h"
#include <time.h>

/* ---- helpers ---- */

static uint64_t random_state = 1;

static uint32_t next_random(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33);
}

static void put16(uint8_t *p, uint32_t v) { p[0] = (uint8_t)v; p[1] = (uint8_t)(v >> 8); }
static void put32(uint8_t *p, uint32_t v) { put16(p, v & 0xffff); put16(p + 2, v >> 16); }
static void put64(uint8_t *p, uint64_t v)
{
    put32(p, (uint32_t)v);
    put32(p + 4, (uint32_t)(v >> 32));
}

static int ends_with_reason(const wnpu_error *error, const char *words)
{
    return strstr(error->message, words) != NULL;
}

/* ---- SHA-256 ---- */

static void hex(char *to, const uint8_t *digest)
{
    int i;
    for (i = 0; i < 32; i++) {
        snprintf(to + 2 * i, 3, "%02x", digest[i]);
    }
}

static void test_sha256(void)
{
    /* Of n bytes i * 7 + 3, as coreutils and hashlib compute them. */
    static const struct { size_t n; const char *digest; } known[] = {
        {0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {1, "084fed08b978af4d7d196a7446a86b58009e636b611db16211b65a9aadff29c5"},
        {55, "e7313d333c272e639f790978283f9eb392e843d0f29b7016828bb1daa4aac70b"},
        {56, "4324d65f3c103567f5589c710bc08f8523f929a9272e3af36fc968e52abc6c27"},
        {63, "81c80242132f230c3bd41b3e63bbcff16107339549214a99614ff26664625055"},
        {64, "39e3d7b6b5d075d37d053ad89b24b41bef4f3c29760c84447cab3f3be1882241"},
        {65, "aacca6ff74fdbb296d165a45cecfa04e5127bc008770fbbdd48006f2d2fae95e"},
        {119, "9ce7368e4daf32341631b492e80359dc9f594b48453cd0dd5bf0b19279cc177e"},
        {120, "7836b787757e95e58b3ca5aec90b1b004e8deba1e50e9675af9cabf1a13a04b5"},
        {127, "a8d23e75d936f303d248888d9b165ee543f4cbafcad3c9dd2a79bd84faa11d07"},
        {128, "d2742f1f4ac6bb7ca2b239ee18402ba8b3f9f8e652d2a72973c2b9ba11c08cf6"},
        {1000, "1e9bc38cbf860b9ec31918b065f9b52476c549a782e0e7990bed8ce3868d2371"}
    };
    uint8_t data[1000], digest[32];
    char text[65];
    size_t i;
    for (i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)(i * 7 + 3);
    }
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        xh_sha256(digest, data, known[i].n);
        hex(text, digest);
        T_CHECK(strcmp(text, known[i].digest) == 0, "%zu bytes: %s", known[i].n, text);
    }
    xh_sha256(digest, (const uint8_t *)"abc", 3); /* FIPS 180-4's own example */
    hex(text, digest);
    T_CHECK(strcmp(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") == 0,
            "abc: %s", text);
}

/* ---- streams ---- */

typedef struct stream {
    uint8_t bytes[8192];
    size_t size;
    uint32_t ops;
    int v1;
} stream;

static void s_words(stream *s, const uint32_t *words, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        put32(s->bytes + s->size, words[i]);
        s->size += 4;
    }
    s->ops++;
}

static void s_begin(stream *s, int v1)
{
    memset(s, 0, sizeof *s);
    s->v1 = v1;
    s->size = 16;
    put32(s->bytes, v1 ? 0x06030001u : 0x06030100u);
    put32(s->bytes + 4, 0x104);
}

static void s_end(stream *s)
{
    put32(s->bytes + 8, s->ops);
    put32(s->bytes + 12, (uint32_t)s->size);
}

static void s_write(stream *s, uint32_t address, uint32_t value)
{
    uint32_t old[6] = {0, 0, 0, 0, 0, 24}, new_[3] = {0, 0, 0};
    old[2] = new_[1] = address;
    old[4] = new_[2] = value;
    s_words(s, s->v1 ? new_ : old, s->v1 ? 3 : 6);
}

static void s_mask(stream *s, uint32_t address, uint32_t value, uint32_t mask)
{
    uint32_t old[7] = {3, 0, 0, 0, 0, 0, 28}, new_[4] = {3, 0, 0, 0};
    old[2] = new_[1] = address;
    old[4] = new_[2] = value;
    old[5] = new_[3] = mask;
    s_words(s, s->v1 ? new_ : old, s->v1 ? 4 : 7);
}

static void s_bd(stream *s, uint32_t column, uint32_t id, const uint32_t bd[8])
{
    uint32_t words[12] = {1};
    uint32_t head = s->v1 ? 3 : 4, address = column << 25 | (0x1d000 + 32 * id);
    words[s->v1 ? 1 : 2] = address;
    words[s->v1 ? 2 : 3] = (head + 8) * 4;
    memcpy(words + head, bd, 32);
    s_words(s, words, head + 8);
}

static void s_patch(stream *s, uint32_t reg, uint32_t arg, uint64_t offset)
{
    uint32_t old[12] = {0x81, 48}, new_[6] = {0x81, 24};
    old[6] = new_[2] = reg;
    old[8] = new_[3] = arg;
    old[10] = new_[4] = (uint32_t)offset;
    old[11] = new_[5] = (uint32_t)(offset >> 32);
    s_words(s, s->v1 ? new_ : old, s->v1 ? 6 : 12);
}

static void s_token(stream *s, uint32_t column, uint32_t direction, uint32_t channel)
{
    uint32_t words[4] = {0x80, 16, 0, 0};
    words[2] = direction | column << 16;
    words[3] = 0x10100 | channel << 24;
    s_words(s, words, 4);
}

/* Knobs of a small stream that reads A (argument 0) and B (1) and writes C (2). */
typedef struct knobs {
    int v1;
    uint32_t extra_column, c_arg, a_arg, push_c, tokens, tail, length, patch_reg, wrong_bd, next;
    uint32_t op;
    uint64_t a_offset;
    int no_patch, masked_queue, no_b, loop, high, row, late;
} knobs;

static knobs k_default(int v1)
{
    knobs k;
    memset(&k, 0, sizeof k);
    k.v1 = v1;
    k.c_arg = 2;
    k.push_c = 0x80000000u | 2;
    k.tokens = 1;
    k.length = 1024;
    k.patch_reg = 0x1d004;
    k.op = 5;
    return k;
}

static void s_make(stream *s, const knobs *k)
{
    uint32_t bd[8] = {0, 0, 0, 0, 0, 0, 0, 0x02000000};
    uint32_t i;
    s_begin(s, k->v1);
    bd[0] = k->length;
    s_write(s, 2u << 20 | 0x400, 8); /* a core's memory */
    if (k->extra_column != 0) {
        s_write(s, k->extra_column << 25, 1);
    }
    if (k->row != 0) {
        s_write(s, (uint32_t)k->row << 20, 1);
    }
    s_words(s, &k->op, 1);
    s_bd(s, 0, 0, bd);
    if (!k->no_patch) {
        s_patch(s, k->patch_reg, k->a_arg, k->a_offset);
    }
    if (k->late) { /* a write over the patched address */
        s_write(s, 0x1d004, 0x1000);
    }
    s_write(s, 0x1d214, k->wrong_bd);
    if (!k->no_b) {
        bd[0] = 512;
        bd[7] |= k->next;
        s_bd(s, 0, 1, bd);
        s_patch(s, 0x1d024, 1, 0);
        s_write(s, 0x1d21c, 1);
    }
    bd[7] = 0x02000000;
    bd[0] = 256; /* 2 runs of [2][4][32] words, in steps 128 and 512 */
    bd[3] = 32u << 20;
    bd[4] = 4u << 20 | 127;
    bd[5] = 511;
    bd[6] = 1u << 20 | 1023;
    s_bd(s, 0, 2, bd);
    s_patch(s, 0x1d044, k->c_arg, 0);
    s_mask(s, 0x1d200, 0xf00, 0x1f00);
    if (k->masked_queue) {
        s_mask(s, 0x1d204, 2, 0xf);
    }
    s_write(s, 0x1d204, k->push_c);
    for (i = 0; i < k->tokens; i++) {
        s_token(s, 0, 0, 0);
    }
    s_end(s);
    s->size += k->tail;
    if (k->tail != 0) {
        put32(s->bytes + 12, (uint32_t)s->size);
    }
    if (k->high) {
        put32(s->bytes + 16 + 12, 1); /* word 3 of the first operation */
    }
}

static xt_limits limits_default(void)
{
    xt_limits limits;
    memset(&limits, 0, sizeof limits);
    limits.generation = 3;
    limits.columns = 4;
    limits.n_args = 3;
    limits.bytes[0] = 4096;
    limits.bytes[1] = 2048;
    limits.bytes[2] = 8192; /* reach of C: 31 + 3*128 + 512 + 1024 + 1 = 1952 words */
    limits.direction[0] = limits.direction[1] = XT_IN;
    limits.direction[2] = XT_OUT;
    return limits;
}

static void refused(const char *what, const stream *s, const xt_limits *limits, const char *words)
{
    wnpu_error error = {0, ""};
    int code = xt_check(s->bytes, s->size, limits, &error);
    T_CHECK(code == WNPU_E_MODEL && ends_with_reason(&error, words),
            "%s (version %s): %d \"%s\", wanted \"%s\"", what, s->v1 ? "1.0" : "0.1", code,
            error.message, words);
}

#define REFUSED(words, change) do { \
        knobs k = k_default(v1); xt_limits l = limits_default(); stream s; \
        change; s_make(&s, &k); refused(#change, &s, &l, words); \
    } while (0)
/* A change of the finished bytes instead. */
#define REFUSED_BYTES(words, change) do { \
        knobs k = k_default(v1); xt_limits l = limits_default(); stream s; \
        s_make(&s, &k); change; refused(#change, &s, &l, words); \
    } while (0)

static void test_stream_refusals(void)
{
    int v1;
    for (v1 = 0; v1 < 2; v1++) {
        knobs good = k_default(v1);
        xt_limits limits = limits_default();
        stream stream_;
        wnpu_error error = {0, ""};
        s_make(&stream_, &good);
        T_CHECK(xt_check(stream_.bytes, stream_.size, &limits, &error) == WNPU_OK,
                "a good stream: %s", error.message);
        REFUSED("column 4, row 0", k.extra_column = 4);
        REFUSED("row 6", k.row = 6);
        REFUSED("argument 3", k.a_arg = 3);
        REFUSED("patches in argument 0 at byte 4096 of 4096", k.a_offset = 4096);
        REFUSED("patches in argument 0 at byte 2 ", k.a_offset = 2);
        REFUSED("patches in argument 0 at byte 1152921504606846976",
                k.a_offset = UINT64_C(1) << 60);
        REFUSED("leaves argument 0", k.a_offset = 4);
        REFUSED("leaves argument 0", k.length = 1025);
        REFUSED("leaves argument 0", k.length = UINT32_MAX);
        REFUSED("which is not set up", k.length = 0);
        REFUSED("leaves argument 2", l.bytes[2] = 1952 * 4 - 4);
        REFUSED("written against", k.c_arg = 0);
        REFUSED("written against", l.direction[2] = XT_IN);
        REFUSED("read against", l.direction[0] = XT_OUT);
        REFUSED("no argument", k.no_patch = 1);
        REFUSED("no argument", k.late = 1);
        REFUSED("no BD address word", k.patch_reg = 0x1d008);
        REFUSED("no BD address word", k.patch_reg = 0x1d204);
        REFUSED("no BD address word", k.patch_reg = 0x8001d004u);
        REFUSED("no BD address word", k.patch_reg = 0x11d004);
        REFUSED("descriptor 7, which is not set up", k.wrong_bd = 7);
        REFUSED("in a cycle", k.next = 1u << 26 | 1u << 27);
        REFUSED("descriptor 9, which is not set up", k.next = 1u << 26 | 9u << 27);
        REFUSED("under a mask", k.masked_queue = 1);
        REFUSED("does not end by waiting", k.tokens = 0);
        REFUSED("that no task issues", k.tokens = 2);
        REFUSED("does not end by waiting", k.push_c = 2; k.tokens = 0);
        REFUSED("never touches argument 1", k.no_b = 1);
        REFUSED("left after the last operation", k.tail = 4);
        REFUSED("unknown operation 0x42", k.op = 0x42);
        REFUSED("cannot be checked", k.op = 8);
        REFUSED("cannot be checked", k.op = 0x84);
        REFUSED("built for device generation 3", l.generation = 4);
        REFUSED("6 rows and 4 columns", l.columns = 3);
        REFUSED_BYTES("5 rows", s.bytes[3] = 5);
        REFUSED_BYTES("version", s.bytes[0] = 9);
        REFUSED_BYTES("length field", put32(s.bytes + 12, (uint32_t)s.size + 4));
        REFUSED_BYTES("before its", put32(s.bytes + 8, s.ops + 1));
        REFUSED_BYTES("left after", put32(s.bytes + 8, s.ops - 1));
        REFUSED_BYTES("no possible length", s.size = 15);
        REFUSED_BYTES("no possible length", s.size = 0);
        REFUSED_BYTES("no possible length", s.size -= 2);
    }
    v1 = 0;
    REFUSED("32-bit register space", k.high = 1);
    REFUSED_BYTES("says it has 20 bytes", put32(s.bytes + 16 + 20, 20));
}

/* Every prefix and every single changed word: no crash, and no stream that reaches further than
 * allowed is let through (checked by the sanitizers and by xt_check's own limits). */
static void test_stream_damage(void)
{
    int v1;
    for (v1 = 0; v1 < 2; v1++) {
        knobs k = k_default(v1);
        xt_limits limits = limits_default();
        stream s, damaged;
        size_t i;
        int round;
        s_make(&s, &k);
        for (i = 0; i < s.size; i++) {
            uint8_t *exact = malloc(i == 0 ? 1 : i);
            memcpy(exact, s.bytes, i);
            if (i >= 16) {
                put32(exact + 12, (uint32_t)i);
            }
            T_CHECK(xt_check(exact, i, &limits, NULL) != WNPU_OK, "prefix of %zu bytes", i);
            free(exact);
        }
        for (i = 0; i < s.size; i++) {
            for (round = 0; round < 16; round++) {
                damaged = s;
                damaged.bytes[i] = (uint8_t)next_random();
                (void)xt_check(damaged.bytes, damaged.size, &limits, NULL);
            }
        }
    }
}

/* The reach of descriptors, against the order of access written out as loops. */
static void test_stream_reach(void)
{
    int round;
    for (round = 0; round < 2000; round++) {
        uint32_t bd[8] = {0};
        uint64_t n0 = 1 + next_random() % 5, n1 = 1 + next_random() % 4, n2 = 1 + next_random() % 3;
        uint64_t n3 = 1 + next_random() % 3, s0 = 1 + next_random() % 9;
        uint64_t s1 = 1 + next_random() % 50;
        uint64_t s2 = 1 + next_random() % 99, s3 = 1 + next_random() % 999, most = 0, a, b, c, d;
        int linear = next_random() % 4 == 0;
        bd[0] = (uint32_t)(n0 * n1 * n2);
        bd[3] = (uint32_t)(linear ? 0 : n0) << 20 | (uint32_t)(s0 - 1);
        bd[4] = (uint32_t)(linear ? 0 : n1) << 20 | (uint32_t)(s1 - 1) | 0x80000000u;
        bd[5] = (uint32_t)(s2 - 1);
        bd[6] = (uint32_t)(n3 - 1) << 20 | (uint32_t)(s3 - 1);
        if (linear) {
            n0 = bd[0];
            n1 = n2 = 1;
        }
        for (d = 0; d < n3; d++) {
            for (c = 0; c < n2; c++) {
                for (b = 0; b < n1; b++) {
                    for (a = 0; a < n0; a++) {
                        uint64_t at = a * s0 + b * s1 + c * s2 + d * s3;
                        most = at > most ? at : most;
                    }
                }
            }
        }
        T_CHECK(xt_extent(bd) == most + 1, "round %d: %llu, wanted %llu", round,
                (unsigned long long)xt_extent(bd), (unsigned long long)most + 1);
    }
}

/* ---- containers ---- */

#define PDI_BYTES 64u

typedef struct container {
    uint8_t bytes[4096];
    size_t size;
    size_t partition, layout;    /* where the sections begin */
} container;

static void c_make(container *c)
{
    uint8_t *p = c->bytes, *h, *s;
    memset(c, 0, sizeof *c);
    c->partition = 0x280;
    c->layout = 0x600;
    c->size = 0x680;
    memcpy(p, "xclbin2", 8);
    put64(p + 0x130, c->size);
    put32(p + 0x1c0, 2);
    h = p + 0x1c8;
    put32(h, 32);
    put64(h + 24, c->partition);
    put64(h + 32, 0x300);
    h += 40;
    put32(h, 8);
    put64(h + 24, c->layout);
    put64(h + 32, 8 + 80);
    s = p + c->partition;
    put32(s + 4, 0x2f0);                     /* name */
    put32(s + 8, 2048);
    put16(s + 32, 4);
    put32(s + 40, 1);
    put32(s + 44, 184);                      /* start columns */
    put32(s + 120, 1);
    put32(s + 124, 192);                     /* one PDI entry at 192 */
    put32(s + 192 + 16, PDI_BYTES);
    put32(s + 192 + 20, 0x200);
    put32(s + 192 + 24, 1);
    put32(s + 192 + 28, 288);                /* one group at 288 */
    put32(s + 288, 0x2f0);
    s[288 + 4] = 1;
    put32(s + 288 + 16, 1);
    put32(s + 288 + 20, 384);                /* its kernel ids */
    put64(s + 384, 0x901);
    memcpy(s + 0x200, xc_sync, sizeof xc_sync);
    memcpy(s + 0x2f0, "DPU", 4);
    s = p + c->layout;
    put32(s, 1);
    put32(s + 8, 7);
    put32(s + 8 + 4, 0x09010001);
    memcpy(s + 8 + 16, "MLIR_AIE:MLIRAIE", 17);
}

static void c_refused(const char *what, const container *c, const char *kernel, uint64_t id,
                      const char *words)
{
    xc_image image;
    wnpu_error error = {0, ""};
    int code = xc_xclbin(&image, c->bytes, c->size, kernel, id, &error);
    T_CHECK(code == WNPU_E_MODEL && ends_with_reason(&error, words), "%s: %d \"%s\"", what, code,
            error.message);
}

#define C_REFUSED(words, change) do { \
        container c; uint8_t *b = c.bytes, *s; c_make(&c); s = b + c.partition; (void)s; \
        change; c_refused(#change, &c, "MLIR_AIE", 0x901, words); \
    } while (0)

static void test_container(void)
{
    container good;
    xc_image image;
    wnpu_error error = {0, ""};
    size_t i;
    c_make(&good);
    T_CHECK(xc_xclbin(&image, good.bytes, good.size, "MLIR_AIE", 0x901, &error) == WNPU_OK,
            "a good container: %s", error.message);
    T_CHECK(image.pdi == good.bytes + good.partition + 0x200 && image.bytes == PDI_BYTES &&
            image.columns == 4 && image.ops_per_cycle == 2048 && image.function == 0, "its image");
    T_CHECK(xc_xclbin(&image, good.bytes, good.size, "", 0, &error) == WNPU_OK, "any kernel");
    C_REFUSED("not an xclbin", b[0] = 'y');
    C_REFUSED("header says", put64(b + 0x130, c.size + 1));
    C_REFUSED("header says", c.size -= 1);
    C_REFUSED("do not fit", put32(b + 0x1c0, 0x10001));
    C_REFUSED("do not fit", put32(b + 0x1c0, 31));
    C_REFUSED("outside the file", put64(b + 0x1c8 + 32, c.size));
    C_REFUSED("outside the file", put64(b + 0x1c8 + 24, UINT64_MAX));
    C_REFUSED("two sections", put32(b + 0x1c8 + 40, 32));
    C_REFUSED("no AIE_PARTITION", put32(b + 0x1c8, 6));
    C_REFUSED("is damaged", put64(b + 0x1c8 + 32, 183));
    C_REFUSED("is damaged", put32(s + 4, 0x300));
    C_REFUSED("is damaged", put32(s + 44, 0x2ff));
    C_REFUSED("is damaged", put32(s + 124, 0x300));
    C_REFUSED("is damaged", put32(s + 120, 9));
    C_REFUSED("holds no PDI", put32(s + 120, 0));
    C_REFUSED("PDI 0", put32(s + 192 + 16, 0x101));
    C_REFUSED("PDI 0", put32(s + 192 + 28, 0x2f1));
    C_REFUSED("PDI 0", put32(s + 288, 0x2ff); s[0x2ff] = 'x');
    C_REFUSED("PDI 0", put32(s + 288 + 20, 0x2f9));
    C_REFUSED("needs 0 columns", put16(s + 32, 0));
    C_REFUSED("needs 9 columns", put16(s + 32, 9));
    C_REFUSED("no PDI belongs", put64(s + 384, 0x902));
    C_REFUSED("synchronisation pattern", s[0x200] = 0);
    C_REFUSED("not possible", put32(s + 192 + 16, 62));
    C_REFUSED("IP_LAYOUT", put32(b + c.layout, 2));
    C_REFUSED("IP_LAYOUT", put32(b + c.layout, 0xffffffffu));
    C_REFUSED("no kernel", put32(b + c.layout + 8, 1));
    C_REFUSED("no kernel", b[c.layout + 8 + 16] = 'X');
    C_REFUSED("no kernel", put32(b + c.layout + 8 + 4, 0x09020001));
    C_REFUSED("not terminated", memset(b + c.layout + 8 + 16, 'x', 64));
    for (i = 0; i < good.size; i++) { /* exact copies: a read past the end is seen */
        uint8_t *exact = malloc(i == 0 ? 1 : i);
        memcpy(exact, good.bytes, i);
        if (i >= 0x138) {
            put64(exact + 0x130, i);
        }
        (void)xc_xclbin(&image, exact, i, "MLIR_AIE", 0, NULL);
        free(exact);
    }
    for (i = 0; i < 200000; i++) {
        container damaged = good;
        damaged.bytes[next_random() % good.size] = (uint8_t)next_random();
        damaged.bytes[next_random() % good.size] = (uint8_t)next_random();
        if (xc_xclbin(&image, damaged.bytes, damaged.size, "", 0, NULL) == WNPU_OK) {
            T_CHECK(image.pdi >= damaged.bytes && image.bytes <= damaged.size &&
                    image.pdi + image.bytes <= damaged.bytes + damaged.size, "image outside");
        }
    }
}

/* A file of 400 KB whose PDIs all name the same groups, and each group the same ids: 4,096 of each,
 * 69 thousand million ids to compare. It is refused once its tables are larger than its section. */
static void test_container_budget(void)
{
    enum { COUNT = 4096, TABLE = 96 * COUNT };
    size_t size = 0x200 + 0x100 + TABLE + 64, i;
    uint8_t *p = calloc(1, size), *s;
    wnpu_error error = {0, ""};
    xc_image image;
    clock_t start = clock();
    memcpy(p, "xclbin2", 8);
    put64(p + 0x130, size);
    put32(p + 0x1c0, 1);
    put32(p + 0x1c8, 32);
    put64(p + 0x1c8 + 24, 0x200);
    put64(p + 0x1c8 + 32, size - 0x200);
    s = p + 0x200;
    put32(s + 4, 0xf0);
    put16(s + 32, 4);
    put32(s + 40, 1);
    put32(s + 44, 184);
    put32(s + 120, COUNT);
    put32(s + 124, 0x100);
    for (i = 0; i < COUNT; i++) { /* each entry is a PDI and a group at the same time */
        uint8_t *e = s + 0x100 + i * 96;
        put32(e, 0xf0);
        put32(e + 16, 64);
        put32(e + 20, 0x100);
        put32(e + 24, COUNT);
        put32(e + 28, 0x100);
    }
    T_CHECK(xc_xclbin(&image, p, size, "MLIR_AIE", 0x901, &error) == WNPU_E_MODEL &&
            ends_with_reason(&error, "damaged"), "\"%s\"", error.message);
    T_CHECK(clock() - start < CLOCKS_PER_SEC, "it took %.1f s",
            (double)(clock() - start) / CLOCKS_PER_SEC);
    free(p);
}

/* ---- manifest ---- */

#define HASH0 "0000000000000000000000000000000000000000000000000000000000000000"
static const char good_manifest[] =
    "# a comment \xff\n\n"
    "pack format=1 name=t device=npu1 columns=4 licence=MIT\r\n"
    "overlay id=g file=g.xclbin kind=xclbin sha256=" HASH0
    " kernel=MLIR_AIE dpu_kernel_id=0x901 ops_per_cycle=2048\n"
    "future what=ever\n"
    "kernel id=x overlay=g op=attention\n"
    "\t kernel id=k1 overlay=g op=gemm stream=k1.bin sha256=" HASH0
    " m=512 n=128 k=64 tile_m=64 tile_n=32 tile_k=64 a=i8 b=i8 c=i32 acc=i32 a_layout=mk"
    " b_layout=nk c_layout=mn a_arg=0 b_arg=1 c_arg=2 a_bytes=32768 b_bytes=8192 c_bytes=262144"
    " a_dir=in b_dir=in c_dir=out verified=none new_key=1";

static int parse(const char *text, size_t size, xp_pack *pack, wnpu_error *error)
{
    memset(pack, 0, sizeof *pack);
    return xp_parse(pack, text, size, error);
}

/* The good manifest with one piece replaced. */
static void m_refused(const char *from, const char *to, const char *words)
{
    static xp_pack pack;
    char text[4096];
    const char *at = strstr(good_manifest, from);
    wnpu_error error = {0, ""};
    int code;
    if (at == NULL) {
        T_CHECK(0, "\"%s\" is not in the manifest", from);
        return;
    }
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good_manifest), good_manifest, to,
             at + strlen(from));
    code = parse(text, strlen(text), &pack, &error);
    T_CHECK(code == WNPU_E_MODEL && ends_with_reason(&error, words), "%s -> %s: %d \"%s\"", from,
            to, code, error.message);
}

/* Designs keep different numbers of tiles at work: public int8 kernels for NPU4 have M of 4 tiles
 * on 4 x 4 cores, and N of 4 tiles although the partition has 8 columns. */
static void parse_public_shape(void)
{
    static const char text[] =
        "pack format=1 name=t device=npu2 columns=8\n"
        "overlay id=g file=g.xclbin kind=xclbin sha256=" HASH0 "\n"
        "kernel id=k1 overlay=g op=gemm stream=k1.bin sha256=" HASH0
        " m=128 n=512 k=2048 tile_m=32 tile_n=128 tile_k=64 a=i8 b=i8 c=i32 acc=i32 a_layout=mk"
        " b_layout=nk c_layout=mn a_arg=0 b_arg=1 c_arg=2 a_bytes=262144 b_bytes=1048576"
        " c_bytes=262144 a_dir=in b_dir=in c_dir=out";
    static xp_pack pack;
    wnpu_error error = {0, ""};
    T_CHECK(parse(text, strlen(text), &pack, &error) == WNPU_OK && pack.n_kernels == 1 &&
            pack.kernels[0].m == 128, "a public shape: %s", error.message);
}

static void test_manifest(void)
{
    static xp_pack pack;
    wnpu_error error = {0, ""};
    char longline[2048];
    size_t i;
    T_CHECK(parse(good_manifest, strlen(good_manifest), &pack, &error) == WNPU_OK,
            "a good manifest: %s", error.message);
    T_CHECK(pack.n_overlays == 1 && pack.n_kernels == 1 && pack.columns == 4 &&
            pack.generation == 3 && strcmp(pack.name, "t") == 0 &&
            pack.overlays[0].dpu_kernel_id == 0x901 && pack.overlays[0].needed &&
            pack.kernels[0].m == 512 && pack.kernels[0].n == 128 && pack.kernels[0].k == 64 &&
            pack.kernels[0].a_bytes == 1 && pack.kernels[0].b_layout == XP_NK &&
            strcmp(pack.kernels[0].file, "k1.bin") == 0, "its content");
    parse_public_shape();
    m_refused("format=1", "format=2", "format is outside");
    m_refused("pack format=1", "packet format=1", "first record must be pack");
    m_refused("device=npu1", "device=npu3", "device=npu3 is not supported");
    m_refused("device=npu1", "nothing=1", "device is missing");
    m_refused("columns=4", "columns=9", "columns is outside");
    m_refused("columns=4", "columns=0x", "columns is not a number");
    m_refused("columns=4", "columns=4 columns=4", "duplicate key");
    m_refused("columns=4", "columns=", "not key=value");
    m_refused("columns=4", "columns", "not key=value");
    m_refused("name=t", "name=\"t\"", "invalid character");
    m_refused("file=g.xclbin", "file=../g.xclbin", "invalid character");
    m_refused("file=g.xclbin", "file=.g", "dot");
    m_refused("kind=xclbin", "kind=elf", "kind=elf is not supported (one file with code and control); "
              "build the kernel as xclbin and instructions");
    m_refused("sha256=00", "sha256=0G", "64 lower-case");
    m_refused("sha256=00", "sha256=0", "64 lower-case");
    m_refused("overlay=g op=gemm", "overlay=h op=gemm", "not declared above");
    m_refused("m=512", "m=500", "whole tiles");
    m_refused("k=64", "k=96", "whole tiles");
    m_refused("n=128", "n=120", "whole tiles");
    m_refused("m=512", "m=0", "m is outside");
    m_refused("m=512", "m=99999999999999999999", "m is outside");
    m_refused("tile_m=64", "tile_m=8", "16 x 8 x 16");
    m_refused("m=512 n=128 k=64 tile_m=64 tile_n=32", "m=2048 n=512 k=64 tile_m=256 tile_n=128",
              "bytes of a core");
    m_refused("a=i8", "a=bf16", "a=bf16 is not supported");
    m_refused("b=i8", "b=i16", "different types");
    m_refused("c=i32", "c=i16", "c=i16 is not supported");
    m_refused("acc=i32", "acc=i48", "acc=i48");
    m_refused("a_layout=mk", "a_layout=km", "a_layout=km");
    m_refused("b_arg=1", "b_arg=0", "same argument");
    m_refused("b_arg=1", "b_arg=3", "b_arg is outside");
    m_refused("a_bytes=32768", "a_bytes=32767", "a_bytes is 32767, the shape needs 32768");
    m_refused("c_dir=out", "c_dir=in", "c_dir=in");
    m_refused("op=gemm", "op=gelu", "no kernel that this library can use");
    m_refused("id=k1 ", "", "id is missing");
    for (i = 0; i < strlen(good_manifest); i++) { /* any cut, any byte */
        char copy[sizeof good_manifest];
        memcpy(copy, good_manifest, sizeof copy);
        (void)parse(copy, i, &pack, NULL);
        copy[i] = (char)next_random();
        (void)parse(copy, strlen(good_manifest), &pack, NULL);
        copy[i] = '\0';
        (void)parse(copy, strlen(good_manifest), &pack, NULL);
    }
    memset(longline, 'a', sizeof longline);
    T_CHECK(parse(longline, sizeof longline, &pack, &error) == WNPU_E_MODEL &&
            ends_with_reason(&error, "longer than 1024"), "%s", error.message);
    T_CHECK(parse("pack format=1\0x", 15, &pack, &error) == WNPU_E_MODEL, "NUL byte");
    T_CHECK(parse("", 0, &pack, &error) == WNPU_E_MODEL, "empty");
}

/* ---- a pack through callbacks ---- */

typedef struct memory_pack {
    char manifest[4096];
    container overlay;
    stream code;
    size_t short_reads;          /* bytes a read at most; 0: as asked */
    int wrong;                   /* 1: read fails; 2: claims too much; 3: no stream file */
} memory_pack;

static const void *m_file(const memory_pack *m, const char *name, size_t *size)
{
    if (strcmp(name, "manifest") == 0) {
        *size = strlen(m->manifest);
        return m->manifest;
    }
    if (strcmp(name, "g.xclbin") == 0) {
        *size = m->overlay.size;
        return m->overlay.bytes;
    }
    if (strcmp(name, "k1.bin") == 0 && m->wrong != 3) {
        *size = m->code.size;
        return m->code.bytes;
    }
    return NULL;
}

static int64_t m_size(void *user, const char *name)
{
    size_t size = 0;
    return m_file(user, name, &size) == NULL ? -1 : (int64_t)size;
}

static int64_t m_read(void *user, const char *name, uint64_t offset, void *buffer, size_t size)
{
    memory_pack *m = user;
    size_t all = 0;
    const char *data = m_file(m, name, &all);
    if (data == NULL || offset > all || m->wrong == 1) {
        return -1;
    }
    size = size > all - offset ? all - offset : size;
    size = m->short_reads != 0 && size > m->short_reads ? m->short_reads : size;
    memcpy(buffer, data + offset, size);
    return m->wrong == 2 ? (int64_t)size + 1 : (int64_t)size;
}

static void m_make(memory_pack *m)
{
    knobs k = k_default(0);
    char one[65], two[65];
    uint8_t digest[32];
    memset(m, 0, sizeof *m);
    c_make(&m->overlay);
    s_make(&m->code, &k);
    xh_sha256(digest, m->overlay.bytes, m->overlay.size);
    hex(one, digest);
    xh_sha256(digest, m->code.bytes, m->code.size);
    hex(two, digest);
    snprintf(m->manifest, sizeof m->manifest,
             "pack format=1 name=t device=npu1 columns=4\n"
             "overlay id=g file=g.xclbin kind=xclbin sha256=%s kernel=MLIR_AIE\n"
             "kernel id=k1 overlay=g op=gemm stream=k1.bin sha256=%s m=512 n=128 k=64 tile_m=64"
             " tile_n=32 tile_k=64 a=i8 b=i8 c=i32 acc=i32 a_layout=mk b_layout=nk c_layout=mn"
             " a_arg=0 b_arg=1 c_arg=2 a_bytes=32768 b_bytes=8192 c_bytes=262144 a_dir=in"
             " b_dir=in c_dir=out\n", one, two);
}

static void test_pack_callbacks(void)
{
    static memory_pack m;
    wnpu_amdxdna_files files;
    wnpu_amdxdna_config config;
    wnpu_accel_shape shape;
    wnpu_error error = {0, ""};
    uint64_t fixed = 0;
    int n;
    m_make(&m);
    files.size = m_size;
    files.read = m_read;
    files.user = &m;
    wnpu_amdxdna_config_init(&config, sizeof config);
    config.files = &files;
    n = wnpu_amdxdna_memory(&config, &shape, 1, &fixed, &error);
    T_CHECK(n == 1 && shape.m == 512 && shape.n == 128 && shape.k == 64 &&
            shape.resident_bytes == 8192, "%d %s", n, error.message);
    /* heap, test weight, 2 x (9 commands and 8 x (A and C)) */
    T_CHECK(fixed == (64u << 20) + 8192 + 2 * (9 * 4096 + 8 * (32768 + 262144)), "fixed %llu",
            (unsigned long long)fixed);
    config.max_chain = 1;
    T_CHECK(wnpu_amdxdna_memory(&config, NULL, 0, &fixed, &error) == 1 &&
            fixed == (64u << 20) + 8192 + 2 * (2 * 4096 + 32768 + 262144), "fixed %llu",
            (unsigned long long)fixed);
    config.max_chain = 0;
    m.short_reads = 7;
    T_CHECK(wnpu_amdxdna_memory(&config, NULL, 0, NULL, &error) == 1, "short: %s", error.message);
    m.short_reads = 0;
    m.wrong = 1;
    T_CHECK(wnpu_amdxdna_memory(&config, NULL, 0, NULL, &error) == WNPU_E_IO, "failing read");
    m.wrong = 2;
    T_CHECK(wnpu_amdxdna_memory(&config, NULL, 0, NULL, &error) == WNPU_E_IO, "lying read");
    m.wrong = 3;
    T_CHECK(wnpu_amdxdna_memory(&config, NULL, 0, NULL, &error) == WNPU_E_IO &&
            ends_with_reason(&error, "k1.bin"), "no file: %s", error.message);
    m.wrong = 0;
    m.code.bytes[40] ^= 1;
    T_CHECK(wnpu_amdxdna_memory(&config, NULL, 0, NULL, &error) == WNPU_E_MODEL &&
            ends_with_reason(&error, "SHA-256"), "hash: %s", error.message);
    m_make(&m);
    put16(m.overlay.bytes + m.overlay.partition + 32, 2);
    {
        uint8_t digest[32];
        char one[65];
        xh_sha256(digest, m.overlay.bytes, m.overlay.size);
        hex(one, digest);
        memcpy(strstr(m.manifest, "sha256=") + 7, one, 64);
    }
    T_CHECK(wnpu_amdxdna_memory(&config, NULL, 0, NULL, &error) == WNPU_E_MODEL &&
            ends_with_reason(&error, "it needs 2 columns"), "columns: %s", error.message);
    config.files = NULL;
    config.pack = "/nonexistent";
    T_CHECK(wnpu_amdxdna_memory(&config, NULL, 0, NULL, &error) == WNPU_E_IO, "no directory");
    config.max_chain = 25;
    T_CHECK(wnpu_amdxdna_memory(&config, NULL, 0, NULL, &error) == WNPU_E_ARGUMENT, "range");
    config.struct_size = 1;
    T_CHECK(wnpu_amdxdna_memory(&config, NULL, 0, NULL, &error) == WNPU_E_VERSION, "version");
}

/* Every allocation of opening a pack fails once: no leak (sanitizer), no crash. */
typedef struct failing { long left; } failing;

static void *f_alloc(void *user, size_t size, size_t alignment)
{
    failing *f = user;
    (void)alignment;
    return f->left-- == 0 ? NULL : malloc(size);
}

static void f_release(void *user, void *memory, size_t size)
{
    (void)user;
    (void)size;
    free(memory);
}

static void test_pack_memory(void)
{
    static memory_pack m;
    wnpu_amdxdna_files files;
    wnpu_amdxdna_config config;
    wnpu_allocator allocator;
    failing f;
    long i;
    int n = WNPU_E_MEMORY;
    m_make(&m);
    files.size = m_size;
    files.read = m_read;
    files.user = &m;
    allocator.alloc = f_alloc;
    allocator.release = f_release;
    allocator.user = &f;
    wnpu_amdxdna_config_init(&config, sizeof config);
    config.files = &files;
    config.allocator = &allocator;
    for (i = 0; n == WNPU_E_MEMORY && i < 100; i++) {
        f.left = i;
        n = wnpu_amdxdna_memory(&config, NULL, 0, NULL, NULL);
    }
    T_CHECK(n == 1 && i == 5, "%d after %ld allocations", n, i); /* pack, three files, then all */
}

/* ---- operands and commands ---- */

static void test_layouts(void)
{
    int wide, kn;
    for (wide = 0; wide < 2; wide++) {
        for (kn = 0; kn < 2; kn++) {
            xp_kernel p;
            int8_t source[5 * 9];
            uint8_t a[4 * 8 * 2], b[6 * 8 * 2];
            size_t i, j;
            memset(&p, 0, sizeof p);
            p.m = 4;
            p.n = 6;
            p.k = 8;
            p.a_bytes = p.b_bytes = wide ? 2 : 1;
            p.b_layout = kn ? XP_KN : XP_NK;
            for (i = 0; i < sizeof source; i++) {
                source[i] = (int8_t)((int)(i * 37 % 255) - 127);
            }
            memset(a, 0x77, sizeof a);
            memset(b, 0x77, sizeof b);
            T_CHECK(xk_pack_a(&p, a, 3, 7, source, 9) == 3u * 8 * p.a_bytes, "bytes of A");
            xk_pack_b(&p, b, 5, 7, source, 9);
            for (i = 0; i < 3; i++) {
                for (j = 0; j < 7; j++) {
                    int16_t got = 0;
                    if (wide) {
                        memcpy(&got, a + (i * 8 + j) * 2, 2);
                    } else {
                        got = (int8_t)a[i * 8 + j];
                    }
                    T_CHECK(got == source[i * 9 + j], "A %zu %zu", i, j);
                }
            }
            for (i = 0; i < 6; i++) {
                for (j = 0; j < 8; j++) {
                    size_t at = kn ? j * 6 + i : i * 8 + j;
                    int16_t got = 0, want = i < 5 && j < 7 ? source[i * 9 + j] : 0;
                    if (wide) {
                        memcpy(&got, b + at * 2, 2);
                    } else {
                        got = (int8_t)b[at];
                    }
                    T_CHECK(got == want, "B %zu %zu: %d, wanted %d", i, j, got, want);
                }
            }
        }
    }
}

/* The worked example of the driver's interface: bytes of one command and of a chain. */
static void test_commands(void)
{
    static uint32_t words[1024];
    static const uint32_t want[18] = {0x30010001, 1, 3, 0, 0x04028000, 0, 648, 0x1000, 0x7fff,
                                      0x2000, 0x7fff, 0x3000, 0x7fff, 0, 0, 0, 0, 0};
    xb_bo command, code;
    uint64_t address[3] = {UINT64_C(0x7fff00001000), UINT64_C(0x7fff00002000),
                           UINT64_C(0x7fff00003000)};
    uint32_t handles[3] = {11, 12, 13};
    int i;
    xd_device device;
    memset(&command, 0, sizeof command);
    memset(&code, 0, sizeof code);
    memset(words, 0xff, sizeof words);
    command.va = (uint8_t *)words;
    command.bytes = sizeof words;
    code.address = 0x04028000;
    xq_start(&command, &code, 2592, address);
    for (i = 0; i < 7; i++) {
        T_CHECK(words[i] == want[i], "word %d: %08x", i, words[i]);
    }
    for (i = 7; i < 18; i++) {
        uint32_t value = i == 8 || i == 10 || i == 12 ? 0x7fff : want[i];
        T_CHECK(words[i] == value, "word %d: %08x, wanted %08x", i, words[i], value);
    }
    T_CHECK(xq_state(&command) == 1, "state");
    xq_chain(&command, handles, 3);
    T_CHECK(words[0] == (1u | 12u << 12 | 19u << 23 | 3u << 28) && words[1] == 3 && words[2] == 0 &&
            words[6] == 0 && words[7] == 11 && words[8] == 0 && words[9] == 12 && words[11] == 13 &&
            words[13] == 0, "chain");
    memset(&device, 0, sizeof device);
    T_CHECK(xq_chain_limit(&device) == 2, "no chains: two jobs of two");
    device.chains = 1;
    T_CHECK(xq_chain_limit(&device) == 24, "24 of 36 that fit");
}

/* The products of a Whisper model of this width, as wnpu_model_products() tells them. */
static unsigned whisper_products(uint32_t d, wnpu_accel_shape products[7])
{
    const uint32_t mels = d == 1280 ? 128 : 80;
    const uint32_t nk[7][2] = {{d, 3 * mels}, {d, 3 * d}, {3 * d, d}, {d, d}, {4 * d, d}, {d, 4 * d},
                               {2 * d, d}};
    unsigned i;
    memset(products, 0, 7 * sizeof products[0]);
    for (i = 0; i < 7; i++) {
        products[i].m = 1500;
        products[i].n = nk[i][0];
        products[i].k = nk[i][1];
    }
    return 7;
}

/* The built-in kernels: for every model each product has a kernel that takes it whole; what the
 * library says of its memory before there is a device is right for each; streams pass the check. */
static void test_built_in(void)
{
    static const uint32_t states[] = {384, 512, 768, 1024, 1280, 8};
    wnpu_amdxdna_config config, ours;
    wnpu_allocator allocator;
    wnpu_accel_shape products[7], shapes[8];
    wnpu_error error = {0, ""};
    unsigned i, j, k, columns, generation;
    wnpu_amdxdna_config_init(&config, sizeof config);
    config.products = products;
    for (i = 0; i < sizeof states / sizeof states[0]; i++) {
        uint64_t fixed = 0, most[3];
        int n;
        config.n_products = whisper_products(states[i], products);
        n = wnpu_amdxdna_memory(&config, shapes, 8, &fixed, &error);
        T_CHECK(n > 0 && n <= 7, "state %u: %d %s", states[i], n, error.message);
        for (j = 0; j < 7; j++) {
            for (k = 0; k < (unsigned)n && (shapes[k].n < products[j].n ||
                 shapes[k].k < products[j].k || shapes[k].n - products[j].n >= 256 ||
                 shapes[k].k - products[j].k >= 64); k++) {
            }
            T_CHECK(k < (unsigned)n, "state %u: no kernel for product %u", states[i], j);
        }
        for (generation = 3; generation <= 4; generation++) {
            for (columns = 1; columns <= (generation == 3 ? 4u : 8u); columns *= 2) {
                xo_design design;
                xp_pack *pack = NULL;
                T_CHECK(xu_merge_config(&ours, &config, &allocator, &error) == WNPU_OK, "config");
                xo_design_init(&design, generation, columns);
                T_CHECK(xo_open(&pack, &ours, &design, &allocator, &error) == WNPU_OK &&
                        pack->n_kernels == (unsigned)n && pack->generation == generation &&
                        pack->columns == columns && pack->overlays[0].image.columns == columns &&
                        xs_fixed_bytes(pack, xs_chain(pack, &ours, xs_page()), xs_page(), most) ==
                            fixed, "state %u, %u columns: %s", states[i], columns, error.message);
                xp_close(pack);
            }
        }
    }
}

static void test_built_in_refusals(void)
{
    wnpu_amdxdna_config config;
    wnpu_accel_shape products[65], shapes[3];
    wnpu_error error = {0, ""};
    uint64_t fixed = 0;
    memset(products, 0, sizeof products);
    wnpu_amdxdna_config_init(&config, sizeof config);
    T_CHECK(wnpu_amdxdna_memory(&config, shapes, 3, &fixed, &error) == 3 && shapes[0].n == 512 &&
            shapes[0].k == 512 && shapes[0].m == 512 && shapes[0].resident_bytes == 512 * 512 &&
            shapes[0].group == 0, "without products: %s", error.message);
    config.n_products = 1;
    T_CHECK(wnpu_amdxdna_memory(&config, NULL, 0, NULL, &error) == WNPU_E_ARGUMENT, "NULL");
    config.products = products;
    T_CHECK(wnpu_amdxdna_memory(&config, NULL, 0, NULL, &error) == WNPU_E_ARGUMENT, "empty");
    products[0].n = products[0].k = 100000; /* the bridge splits it */
    T_CHECK(wnpu_amdxdna_memory(&config, shapes, 3, NULL, &error) == 1 && shapes[0].n == 8192 &&
            shapes[0].k == 8192, "a large one: %s", error.message);
    config.n_products = 65;
    T_CHECK(wnpu_amdxdna_memory(&config, NULL, 0, NULL, &error) == WNPU_E_ARGUMENT, "65");
    config.n_products = 0;
    config.reserved2 = 1;
    T_CHECK(wnpu_amdxdna_memory(&config, NULL, 0, NULL, &error) == WNPU_E_ARGUMENT, "reserved2");
}

int main(void)
{
    t_run("built-in kernels", test_built_in);
    t_run("built-in kernels: refusals", test_built_in_refusals);
    t_run("sha256", test_sha256);
    t_run("stream refusals", test_stream_refusals);
    t_run("stream damage", test_stream_damage);
    t_run("stream reach", test_stream_reach);
    t_run("container", test_container);
    t_run("container that repeats itself", test_container_budget);
    t_run("manifest", test_manifest);
    t_run("pack through callbacks", test_pack_callbacks);
    t_run("pack without memory", test_pack_memory);
    t_run("layouts", test_layouts);
    t_run("commands", test_commands);
    return t_end();
}
