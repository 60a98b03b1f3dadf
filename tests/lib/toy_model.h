/* toy_model.h - writes small, random but valid Whisper models in ggml's file format into memory,
 * and reads them back slowly, from the definition of the format.
 *
 *     toy_options o = toy_small();       // or toy_least(type)
 *     size_t size;
 *     unsigned char *file = toy_model(&o, &size);
 *     ... wnpu_model_open_memory(&model, file, size, ...) ...
 *     free(file);
 *
 * Values depend on the seed, the tensor's name and the index only: toys that differ in type alone
 * are conversions of each other. */
#ifndef TOY_MODEL_H
#define TOY_MODEL_H
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__)
#define TOY_FN __attribute__((unused)) static
#else
#define TOY_FN static
#endif

enum {
    TOY_F32 = 0, TOY_F16 = 1, TOY_Q4_0 = 2, TOY_Q4_1 = 3, TOY_Q5_0 = 6, TOY_Q5_1 = 7, TOY_Q8_0 = 8,
    TOY_Q4_K = 12, TOY_Q5_K = 13, TOY_Q6_K = 14
};

typedef struct toy_options {
    uint32_t seed;
    int type;            /* of matrices; convolutions are f16 at least */
    int vector_type;     /* of biases, norms and positions: TOY_F32 or TOY_F16 */
    int reverse;         /* 1: tensors in reverse order */
    int32_t n_base;      /* tokens in the file, at least 256; 50256 or more for OpenAI's n_vocab */
    int32_t n_vocab;     /* n_base + 1509 special ones + languages, or 51864, 51865, 51866 */
    int32_t audio_ctx, audio_head, audio_layer;
    int32_t text_ctx, text_head, text_layer;
    int32_t state, mels;
} toy_options;

/* A model that can do whole 30 s windows: 2 layers of 2 heads of 32, 2 languages. */
TOY_FN toy_options toy_small(void)
{
    toy_options o;
    memset(&o, 0, sizeof o);
    o.seed = 1;
    o.type = TOY_F16;
    o.n_base = 300;
    o.n_vocab = 300 + 1509 + 2;
    o.audio_ctx = 1500;
    o.text_ctx = 448;
    o.audio_head = o.text_head = 2;
    o.audio_layer = o.text_layer = 2;
    o.state = 64;
    o.mels = 80;
    return o;
}

/* The smallest file that a model of this type can be: 20 to 110 KB, with blocks
 * of 256 up to 2 MB. */
TOY_FN toy_options toy_least(int type)
{
    toy_options o = toy_small();
    o.type = type;
    o.n_base = 256;
    o.n_vocab = 256 + 1509 + 1;
    o.audio_ctx = 1;
    o.text_ctx = 8;
    o.audio_head = o.text_head = 1;
    o.audio_layer = o.text_layer = 1;
    o.state = type <= TOY_F16 ? 4 : type < TOY_Q4_K ? 32 : 256;
    o.mels = 1;
    return o;
}

/* ---- numbers ---- */

/* -1 <= x < 1 from seed, name and index: SplitMix64 (Steele, Lea, Flood 2014) of a hash. */
TOY_FN double toy_uniform(uint32_t seed, const char *name, uint64_t index)
{
    uint64_t z = 14695981039346656037u ^ seed;
    while (*name != '\0') {
        z = (z ^ (unsigned char)*name++) * 1099511628211u;
    }
    z += (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (double)(z >> 11) / 4503599627370496.0 - 1.0;
}

TOY_FN uint16_t toy_to_half(double x)
{
    uint16_t sign = (uint16_t)(x < 0 ? 0x8000u : 0);
    int exponent;
    double mantissa = frexp(fabs(x), &exponent); /* 0.5..1 */
    unsigned bits;
    if (x == 0) {
        bits = 0;
    } else if (exponent < -13) {
        bits = (unsigned)nearbyint(ldexp(fabs(x), 24)); /* subnormal */
    } else {
        bits = (unsigned)(exponent + 14) * 1024 + (unsigned)nearbyint(ldexp(mantissa, 11)) - 1024;
        bits = bits > 0x7bff ? 0x7bff : bits;
    }
    return (uint16_t)(sign | bits);
}

/* Finite halves only. */
TOY_FN double toy_from_half(uint16_t half)
{
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    double x = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    return half & 0x8000 ? -x : x;
}

/* ---- bytes ---- */

typedef struct toy_bytes {
    unsigned char *data;
    size_t size, capacity;
    int failed;
} toy_bytes;

TOY_FN void toy_put(toy_bytes *out, const void *data, size_t size)
{
    if (out->size + size > out->capacity) {
        size_t capacity = 2 * (out->size + size) + 65536;
        unsigned char *grown = realloc(out->data, capacity);
        if (grown == NULL) {
            out->failed = 1;
            return;
        }
        out->data = grown;
        out->capacity = capacity;
    }
    if (size > 0) {
        memcpy(out->data + out->size, data, size);
        out->size += size;
    }
}

TOY_FN void toy_put_u16(toy_bytes *out, unsigned x)
{
    unsigned char b[2];
    b[0] = (unsigned char)(x & 255);
    b[1] = (unsigned char)(x >> 8 & 255);
    toy_put(out, b, 2);
}

TOY_FN void toy_put_i32(toy_bytes *out, int32_t x)
{
    toy_put_u16(out, (uint32_t)x & 0xffff);
    toy_put_u16(out, (uint32_t)x >> 16);
}

TOY_FN void toy_put_f32(toy_bytes *out, double x)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, 4);
    toy_put_i32(out, (int32_t)u);
}

TOY_FN uint32_t toy_get_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

TOY_FN uint16_t toy_get_u16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* ---- tensor data ---- */

/* Bits of the numbers q, whether a minimum is stored, and the number that stands for 0. */
TOY_FN int toy_block(int type, int *has_minimum, int *zero)
{
    *has_minimum = type == TOY_Q4_1 || type == TOY_Q5_1;
    *zero = type == TOY_Q4_0 ? 8 : type == TOY_Q5_0 ? 16 : 0;
    return type == TOY_Q8_0 ? 8 : type == TOY_Q4_0 || type == TOY_Q4_1 ? 4 : 5;
}

/* Values in a block. */
TOY_FN size_t toy_block_size(int type)
{
    return type >= TOY_Q4_K ? 256 : type > TOY_F16 ? 32 : 1;
}

TOY_FN size_t toy_row_bytes(int type, size_t n)
{
    int has_minimum, zero, bits;
    if (type >= TOY_Q4_K) {
        return n / 256 * (type == TOY_Q4_K ? 144 : type == TOY_Q5_K ? 176 : 210);
    }
    if (type == TOY_F32 || type == TOY_F16) {
        return type == TOY_F32 ? 4 * n : 2 * n;
    }
    bits = toy_block(type, &has_minimum, &zero);
    return n / 32 * (2 + 2 * (size_t)has_minimum + 4 * (size_t)bits);
}

TOY_FN void toy_put_block(toy_bytes *out, int type, const double *x)
{
    int has_minimum, zero, j, q[32], bits = toy_block(type, &has_minimum, &zero);
    int last = type == TOY_Q8_0 ? 127 : (1 << bits) - 1, first = type == TOY_Q8_0 ? -127 : 0;
    double least = x[0], most = x[0], extreme = x[0], d, m = 0;
    uint32_t high = 0;
    for (j = 1; j < 32; j++) {
        least = x[j] < least ? x[j] : least;
        most = x[j] > most ? x[j] : most;
        extreme = fabs(x[j]) > fabs(extreme) ? x[j] : extreme;
    }
    d = has_minimum ? (most - least) / last : type == TOY_Q8_0 ? fabs(extreme) / 127 :
        -extreme / zero; /* the largest value becomes q = 0 */
    d = toy_from_half(toy_to_half(d));
    if (has_minimum) {
        m = toy_from_half(toy_to_half(least));
    }
    for (j = 0; j < 32; j++) {
        double exact = d == 0 ? zero : nearbyint((x[j] - m) / d) + zero;
        q[j] = (int)(exact < first ? first : exact > last ? last : exact);
        high |= (uint32_t)(q[j] >> 4 & 1) << j;
    }
    toy_put_u16(out, toy_to_half(d));
    if (has_minimum) {
        toy_put_u16(out, toy_to_half(m));
    }
    if (bits == 5) {
        toy_put_i32(out, (int32_t)high);
    }
    for (j = 0; j < (bits == 8 ? 32 : 16); j++) {
        int both = bits == 8 ? q[j] : (q[j] & 15) | (q[j + 16] & 15) << 4;
        unsigned char byte = (unsigned char)both;
        toy_put(out, &byte, 1);
    }
}

/* Blocks of 256: where the bytes are that belong to a value, see block_q4_K, block_q5_K and
 * block_q6_K in ggml-common.h. */
typedef struct toy_super {
    int bits, groups;         /* of a value; groups of equal numbers of values */
    size_t low, high, scales; /* offsets in the block */
    size_t unit, bytes;       /* offset of the float16 that scales are multiples of; all bytes */
} toy_super;

TOY_FN toy_super toy_super_of(int type)
{
    toy_super s4 = {4, 8, 16, 0, 4, 0, 144}, s5 = {5, 8, 48, 16, 4, 0, 176};
    toy_super s6 = {6, 16, 0, 128, 192, 208, 210};
    return type == TOY_Q4_K ? s4 : type == TOY_Q5_K ? s5 : s6;
}

/* Where the lower four bits and the upper ones of value j are: byte in the block and shift. */
TOY_FN void toy_super_place(const toy_super *s, size_t j, size_t *low, int *low_shift, size_t *high,
                            int *high_shift)
{
    size_t run = j / 32, in_run = j % 32;
    if (s->bits < 6) {
        *low = s->low + j / 64 * 32 + in_run;
        *low_shift = run % 2 == 0 ? 0 : 4;
        *high = s->high + in_run;
        *high_shift = (int)run;
    } else {
        *low = s->low + j / 128 * 64 + j % 64;
        *low_shift = j % 128 < 64 ? 0 : 4;
        *high = s->high + j / 128 * 32 + in_run;
        *high_shift = (int)(run % 4) * 2;
    }
}

/* A block whose scales and minima are multiples of two numbers; as small errors as possible are not
 * the aim. */
TOY_FN void toy_put_super(toy_bytes *out, int type, const double *x)
{
    toy_super s = toy_super_of(type);
    unsigned char block[210] = {0};
    double scale[16], least[16], most_scale = 0, most_least = 0, d, m;
    int g, per = 256 / s.groups, last = (1 << s.bits) - 1, zero = s.bits == 6 ? 32 : 0;
    size_t j;
    for (g = 0; g < s.groups; g++) {
        double low = 0, high = 0;
        for (j = (size_t)(g * per); j < (size_t)((g + 1) * per); j++) {
            low = x[j] < low ? x[j] : low;
            high = x[j] > high ? x[j] : high;
        }
        /* Six bits have no minimum: the largest value, of either sign, becomes q = 0. */
        scale[g] = zero > 0 ? (-low > high ? -low : -high) / zero : (high - low) / last;
        least[g] = zero > 0 ? 0 : -low;
        most_scale = fabs(scale[g]) > most_scale ? fabs(scale[g]) : most_scale;
        most_least = least[g] > most_least ? least[g] : most_least;
    }
    d = toy_from_half(toy_to_half(most_scale / (zero > 0 ? 127 : 63)));
    m = toy_from_half(toy_to_half(most_least / 63));
    for (g = 0; g < s.groups; g++) {
        int a = d == 0 ? 0 : (int)nearbyint(scale[g] / d);
        int b = m == 0 ? 0 : (int)nearbyint(least[g] / m);
        unsigned char *to = block + s.scales;
        if (zero == 0) {
            a = a > 63 ? 63 : a;
            b = b > 63 ? 63 : b;
            if (g < 4) {
                to[g] = (unsigned char)(to[g] | a);
                to[g + 4] = (unsigned char)(to[g + 4] | b);
            } else {
                to[g + 4] = (unsigned char)((a & 15) | (b & 15) << 4);
                to[g - 4] = (unsigned char)(to[g - 4] | a >> 4 << 6);
                to[g] = (unsigned char)(to[g] | b >> 4 << 6);
            }
        } else {
            a = a > 127 ? 127 : a < -127 ? -127 : a;
            to[g] = (unsigned char)a;
        }
        for (j = (size_t)(g * per); j < (size_t)((g + 1) * per); j++) {
            double exact = a == 0 ? 0 : nearbyint((x[j] + b * m) / (a * d)) + zero;
            int q = (int)(exact < 0 ? 0 : exact > last ? last : exact), low_shift, high_shift;
            size_t low, high;
            toy_super_place(&s, j, &low, &low_shift, &high, &high_shift);
            block[low] = (unsigned char)(block[low] | (q & 15) << low_shift);
            if (s.bits > 4) {
                block[high] = (unsigned char)(block[high] | q >> 4 << high_shift);
            }
        }
    }
    block[s.unit] = (unsigned char)(toy_to_half(d) & 255);
    block[s.unit + 1] = (unsigned char)(toy_to_half(d) >> 8);
    if (zero == 0) {
        block[2] = (unsigned char)(toy_to_half(m) & 255);
        block[3] = (unsigned char)(toy_to_half(m) >> 8);
    }
    toy_put(out, block, s.bytes);
}

/* Value j of a block, in float arithmetic as the format defines it. */
TOY_FN float toy_super_value(int type, const unsigned char *p, size_t j)
{
    toy_super s = toy_super_of(type);
    const unsigned char *scales = p + s.scales;
    float d = (float)toy_from_half(toy_get_u16(p + s.unit)), m = 0;
    int q, low_shift, high_shift, g = (int)j * s.groups / 256;
    size_t low, high;
    toy_super_place(&s, j, &low, &low_shift, &high, &high_shift);
    q = p[low] >> low_shift & 15;
    if (s.bits > 4) {
        q |= (p[high] >> high_shift & (s.bits == 6 ? 3 : 1)) << 4;
    }
    if (s.bits == 6) {
        d *= (float)(scales[g] < 128 ? scales[g] : scales[g] - 256);
        return d * (float)(q - 32);
    }
    m = (float)toy_from_half(toy_get_u16(p + 2));
    d *= (float)(g < 4 ? scales[g] & 63 : (scales[g + 4] & 15) + scales[g - 4] / 64 * 16);
    m *= (float)(g < 4 ? scales[g + 4] & 63 : scales[g + 4] / 16 + scales[g] / 64 * 16);
    d *= (float)q;
    return d - m;
}

typedef struct toy_tensor {
    char name[64];
    int type, n_dims;
    int32_t ne[4];        /* fastest first, 1 beyond n_dims */
    size_t header, data;  /* offsets in the file */
    size_t rows, columns; /* of the data: ne[0] columns */
    size_t bytes;         /* of the data */
} toy_tensor;

/* The value that a toy's tensor has before it is stored in its type. */
TOY_FN double toy_original(const toy_options *o, const toy_tensor *t, uint64_t index)
{
    double u = toy_uniform(o->seed, t->name, index);
    if (strstr(t->name, "ln") != NULL) {
        return strstr(t->name, "weight") != NULL ? 1 + 0.1 * u : 0.1 * u;
    }
    if (strstr(t->name, "bias") != NULL) {
        return 0.1 * u;
    }
    if (strstr(t->name, "embedding") != NULL) {
        return 0.5 * u;
    }
    /* variance 1 / inputs, so that signals neither grow nor fade */
    return u * sqrt(3.0 / (strstr(t->name, "conv") != NULL ? 3.0 * t->ne[1] : t->ne[0]));
}

/* The value in the file; float arithmetic as the format defines it. */
TOY_FN float toy_value(const unsigned char *file, const toy_tensor *t, size_t index)
{
    const unsigned char *p = file + t->data;
    int has_minimum, zero, bits, q;
    size_t j = index % 32;
    float d, m = 0;
    if (t->type == TOY_F32) {
        uint32_t u = toy_get_u32(p + 4 * index);
        memcpy(&d, &u, 4);
        return d;
    }
    if (t->type == TOY_F16) {
        return (float)toy_from_half(toy_get_u16(p + 2 * index));
    }
    if (t->type >= TOY_Q4_K) {
        return toy_super_value(t->type, p + toy_row_bytes(t->type, index / 256 * 256), index % 256);
    }
    bits = toy_block(t->type, &has_minimum, &zero);
    p += toy_row_bytes(t->type, index / 32 * 32);
    d = (float)toy_from_half(toy_get_u16(p));
    p += 2;
    if (has_minimum) {
        m = (float)toy_from_half(toy_get_u16(p));
        p += 2;
    }
    if (bits == 8) {
        return (float)(p[j] < 128 ? p[j] : p[j] - 256) * d;
    }
    q = bits == 5 ? (int)(toy_get_u32(p) >> j & 1) * 16 : 0;
    p += bits == 5 ? 4 : 0;
    q += j < 16 ? p[j] & 15 : p[j - 16] >> 4;
    return has_minimum ? (float)q * d + m : (float)(q - zero) * d;
}

/* ---- the file ---- */

TOY_FN void toy_put_tensor(const toy_options *o, toy_bytes *out, toy_tensor *t)
{
    uint64_t i, n = t->rows * t->columns, whole = toy_block_size(t->type);
    double block[256];
    int k;
    toy_put_i32(out, t->n_dims);
    toy_put_i32(out, (int32_t)strlen(t->name));
    toy_put_i32(out, t->type);
    for (k = 0; k < t->n_dims; k++) {
        toy_put_i32(out, t->ne[k]);
    }
    toy_put(out, t->name, strlen(t->name));
    for (i = 0; i < n; i++) {
        double x = toy_original(o, t, i);
        if (t->type == TOY_F32) {
            toy_put_f32(out, x);
        } else if (t->type == TOY_F16) {
            toy_put_u16(out, toy_to_half(x));
        } else {
            block[i % whole] = x;
            if (i % whole == 31 && whole == 32) {
                toy_put_block(out, t->type, block);
            } else if (i % whole == 255) {
                toy_put_super(out, t->type, block);
            }
        }
    }
}

typedef struct toy_list {
    const toy_options *o;
    toy_tensor *tensors;
    size_t count;
} toy_list;

/* ne1 0: a vector; ne2 0: a matrix. ne0 1 is how converters write the biases of convolutions. */
TOY_FN void toy_list_add(toy_list *list, const char *prefix, const char *name, int32_t ne0,
                         int32_t ne1, int32_t ne2)
{
    toy_tensor *t = &list->tensors[list->count++];
    int vector = ne1 == 0 || ne0 == 1 || strstr(name, "positional") != NULL;
    memset(t, 0, sizeof *t);
    (void)snprintf(t->name, sizeof t->name, "%.31s%.31s", prefix, name);
    t->n_dims = ne1 == 0 ? 1 : ne2 == 0 ? 2 : 3;
    t->ne[0] = ne0;
    t->ne[1] = ne1 == 0 ? 1 : ne1;
    t->ne[2] = ne2 == 0 ? 1 : ne2;
    t->ne[3] = 1;
    t->columns = (size_t)ne0;
    t->rows = (size_t)t->ne[1] * (size_t)t->ne[2];
    t->type = vector ? list->o->vector_type :
              ne0 == 3 && list->o->type != TOY_F32 ? TOY_F16 : list->o->type;
}

TOY_FN void toy_list_attention(toy_list *list, const char *block, const char *name)
{
    int32_t d = list->o->state;
    char prefix[64];
    (void)snprintf(prefix, sizeof prefix, "%.40s%.12s", block, name);
    toy_list_add(list, prefix, "_ln.weight", d, 0, 0);
    toy_list_add(list, prefix, "_ln.bias", d, 0, 0);
    toy_list_add(list, prefix, ".query.weight", d, d, 0);
    toy_list_add(list, prefix, ".query.bias", d, 0, 0);
    toy_list_add(list, prefix, ".key.weight", d, d, 0);
    toy_list_add(list, prefix, ".value.weight", d, d, 0);
    toy_list_add(list, prefix, ".value.bias", d, 0, 0);
    toy_list_add(list, prefix, ".out.weight", d, d, 0);
    toy_list_add(list, prefix, ".out.bias", d, 0, 0);
}

TOY_FN void toy_list_blocks(toy_list *list, const char *part, int32_t layers, int cross)
{
    int32_t i, d = list->o->state;
    for (i = 0; i < layers; i++) {
        char block[32];
        (void)snprintf(block, sizeof block, "%.7s.blocks.%d.", part, (int)i);
        toy_list_add(list, block, "mlp_ln.weight", d, 0, 0);
        toy_list_add(list, block, "mlp_ln.bias", d, 0, 0);
        toy_list_add(list, block, "mlp.0.weight", d, 4 * d, 0);
        toy_list_add(list, block, "mlp.0.bias", 4 * d, 0, 0);
        toy_list_add(list, block, "mlp.2.weight", 4 * d, d, 0);
        toy_list_add(list, block, "mlp.2.bias", d, 0, 0);
        toy_list_attention(list, block, "attn");
        if (cross) {
            toy_list_attention(list, block, "cross_attn");
        }
    }
}

/* All tensors, in the order of OpenAI's files. */
TOY_FN void toy_list_all(toy_list *list)
{
    const toy_options *o = list->o;
    int32_t d = o->state;
    toy_list_add(list, "decoder.", "positional_embedding", d, o->text_ctx, 0);
    toy_list_add(list, "encoder.", "positional_embedding", d, o->audio_ctx, 0);
    toy_list_add(list, "decoder.", "token_embedding.weight", d, o->n_vocab, 0);
    toy_list_blocks(list, "decoder", o->text_layer, 1);
    toy_list_add(list, "decoder.", "ln.weight", d, 0, 0);
    toy_list_add(list, "decoder.", "ln.bias", d, 0, 0);
    toy_list_add(list, "encoder.", "conv1.weight", 3, o->mels, d);
    toy_list_add(list, "encoder.", "conv1.bias", 1, d, 0);
    toy_list_add(list, "encoder.", "conv2.weight", 3, d, d);
    toy_list_add(list, "encoder.", "conv2.bias", 1, d, 0);
    toy_list_blocks(list, "encoder", o->audio_layer, 0);
    toy_list_add(list, "encoder.", "ln_post.weight", d, 0, 0);
    toy_list_add(list, "encoder.", "ln_post.bias", d, 0, 0);
}

/* Tokens 0..255 are the single bytes in GPT-2's order, the rest strings of 2 letters and more. */
TOY_FN size_t toy_token(int32_t id, char text[8])
{
    static const char letters[] = " etaoinsrhdlucmfywgpbvkxqjzETAOINSRHDLUCMFYWGPBVKXQJZ'.,";
    size_t length = 0, n = sizeof letters - 1;
    int32_t rest = id - 256;
    if (id < 256) { /* first the 188 visible ones of Latin-1, then the others */
        int byte, pass, at = 0;
        for (pass = 0; pass < 2; pass++) {
            for (byte = 0; byte < 256; byte++) {
                int visible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
                if (visible == (pass == 0) && at++ == id) {
                    text[0] = (char)byte;
                    return 1;
                }
            }
        }
    }
    text[length++] = letters[(size_t)rest % n];
    rest /= (int32_t)n;
    do { /* bijective numeration makes every string once */
        text[length++] = letters[(size_t)rest % n];
        rest = rest / (int32_t)n - 1;
    } while (rest >= 0 && length < 8);
    return length;
}

TOY_FN void toy_put_front(const toy_options *o, toy_bytes *out)
{
    int32_t i, m;
    toy_put_i32(out, 0x67676d6c);
    toy_put_i32(out, o->n_vocab);
    toy_put_i32(out, o->audio_ctx);
    toy_put_i32(out, o->state);
    toy_put_i32(out, o->audio_head);
    toy_put_i32(out, o->audio_layer);
    toy_put_i32(out, o->text_ctx);
    toy_put_i32(out, o->state);
    toy_put_i32(out, o->text_head);
    toy_put_i32(out, o->text_layer);
    toy_put_i32(out, o->mels);
    /* ggml numbers the types of files otherwise; quantised ones carry version 2 */
    toy_put_i32(out, o->type <= TOY_Q4_1 ? o->type + (o->type > TOY_F16 ? 2000 : 0) :
                     2000 + (o->type == TOY_Q8_0 ? 7 : o->type == TOY_Q5_0 ? 8 : 9));
    toy_put_i32(out, o->mels);
    toy_put_i32(out, 201);
    for (m = 0; m < o->mels; m++) { /* overlapping triangles, evenly spaced */
        double step = 200.0 / (o->mels + 1), centre = step * (m + 1);
        for (i = 0; i < 201; i++) {
            double height = 1 - fabs(i - centre) / (step > 1 ? step : 1);
            toy_put_f32(out, height > 0 ? 0.02 * height : 0);
        }
    }
    toy_put_i32(out, o->n_base);
    for (i = 0; i < o->n_base; i++) {
        char text[8];
        size_t length = toy_token(i, text);
        toy_put_i32(out, (int32_t)length);
        toy_put(out, text, length);
    }
}

/* The file, to be freed by the caller, or NULL without memory. */
TOY_FN unsigned char *toy_model(const toy_options *o, size_t *size)
{
    toy_bytes out;
    toy_list list;
    size_t i, most = 11 + 15 * (size_t)o->audio_layer + 24 * (size_t)o->text_layer;
    memset(&out, 0, sizeof out);
    memset(&list, 0, sizeof list);
    list.o = o;
    list.tensors = malloc(most * sizeof *list.tensors);
    if (list.tensors == NULL) {
        return NULL;
    }
    toy_list_all(&list);
    toy_put_front(o, &out);
    for (i = 0; i < list.count; i++) {
        toy_put_tensor(o, &out, &list.tensors[o->reverse ? list.count - 1 - i : i]);
    }
    free(list.tensors);
    if (out.failed) {
        free(out.data);
        return NULL;
    }
    *size = out.size;
    return out.data;
}

/* Where the first tensor of a whole and valid file begins. */
TOY_FN size_t toy_tensors_at(const unsigned char *file)
{
    size_t at = 12 * 4;
    uint32_t i, n = toy_get_u32(file + at);
    at += 8 + (size_t)n * 201 * 4;
    n = toy_get_u32(file + at);
    at += 4;
    for (i = 0; i < n; i++) {
        at += 4 + (size_t)toy_get_u32(file + at);
    }
    return at;
}

/* Finds a tensor in a whole and valid file by name, or by number if name is NULL. 1 if there. */
TOY_FN int toy_find(const unsigned char *file, size_t size, const char *name, int number,
                    toy_tensor *t)
{
    size_t at = toy_tensors_at(file);
    int i;
    while (at < size) {
        uint32_t length = toy_get_u32(file + at + 4);
        memset(t, 0, sizeof *t);
        t->header = at;
        t->n_dims = (int)toy_get_u32(file + at);
        t->type = (int)toy_get_u32(file + at + 8);
        at += 12;
        for (i = 0; i < 4; i++) {
            t->ne[i] = i < t->n_dims ? (int32_t)toy_get_u32(file + at + 4 * (size_t)i) : 1;
        }
        at += 4 * (size_t)t->n_dims;
        memcpy(t->name, file + at, length < 63 ? length : 63);
        t->data = at + length;
        t->columns = (size_t)t->ne[0];
        t->rows = (size_t)t->ne[1] * (size_t)t->ne[2] * (size_t)t->ne[3];
        t->bytes = t->rows * toy_row_bytes(t->type, t->columns);
        at = t->data + t->bytes;
        if (name != NULL ? strcmp(name, t->name) == 0 : number-- == 0) {
            return 1;
        }
    }
    return 0;
}
#endif
