/* model.c - model files: what is loaded, what is refused and how, and that nothing leaks. */
#include "../lib/t.h"
#include "../lib/toy_model.h"
#include <pthread.h>

static const int all_types[] = {
    TOY_F32, TOY_F16, TOY_Q4_0, TOY_Q4_1, TOY_Q5_0, TOY_Q5_1, TOY_Q8_0, TOY_Q4_K, TOY_Q5_K, TOY_Q6_K
};
#define ALL_TYPES (sizeof all_types / sizeof all_types[0])

/* ---- an allocator that counts, checks and fails on demand ---- */

typedef struct counter {
    wnpu_allocator allocator;
    long live, calls, fail_at, wrong; /* fail_at: number of the call that fails, from 1; 0 never */
    size_t largest;
} counter;

typedef struct counted {
    void *memory;
    size_t size;
} counted;

static void *counter_alloc(void *user, size_t size, size_t alignment)
{
    counter *c = user;
    void *memory = NULL;
    counted *head;
    if (++c->calls == c->fail_at) {
        return NULL;
    }
    c->largest = size > c->largest ? size : c->largest;
    if (alignment < 16 || posix_memalign(&memory, alignment, size + alignment) != 0) {
        c->wrong++;
        return NULL;
    }
    head = (counted *)(void *)((unsigned char *)memory + alignment) - 1;
    head->memory = memory;
    head->size = size;
    c->live++;
    return (unsigned char *)memory + alignment;
}

static void counter_release(void *user, void *memory, size_t size)
{
    counter *c = user;
    const counted *head = (const counted *)memory - 1;
    c->live--;
    c->wrong += head->size != size;
    free(head->memory);
}

static void counter_init(counter *c)
{
    memset(c, 0, sizeof *c);
    c->allocator.alloc = counter_alloc;
    c->allocator.release = counter_release;
    c->allocator.user = c;
}

/* Opens bytes with a counting allocator; closes and checks that all came back. */
static int try_open(const unsigned char *file, size_t size, counter *c, wnpu_error *error)
{
    wnpu_model_config config;
    wnpu_model *model = (wnpu_model *)(void *)c; /* any value that must be replaced */
    int status;
    counter_init(c);
    wnpu_model_config_init(&config, sizeof config);
    config.allocator = &c->allocator;
    status = wnpu_model_open_memory(&model, file, size, &config, error);
    T_CHECK((status == WNPU_OK) == (model != NULL), "status %d and model %p", status,
            (void *)model);
    T_CHECK(status == WNPU_OK || c->live == 0, "%ld blocks leak: %s", c->live, error->message);
    T_CHECK(status != WNPU_OK || c->live == 1, "an open model has %ld blocks", c->live);
    T_CHECK(error->code == status, "code %d, status %d", error->code, status);
    T_CHECK((status == WNPU_OK) == (error->message[0] == '\0'), "message '%s'", error->message);
    wnpu_model_close(model);
    T_CHECK(c->live == 0 && c->wrong == 0, "%ld blocks left, %ld wrong", c->live, c->wrong);
    return status;
}

/* ---- what is loaded ---- */

static const unsigned char *the_file;
static size_t the_size;

static void find(const char *name, toy_tensor *t)
{
    int there = toy_find(the_file, the_size, name, 0, t);
    T_CHECK(there, "the toy lacks %s", name);
}

static int model_same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (a == 0 && b == 0);
}

/* taps 3: the file's column is channel * 3 + tap, ours tap * channels + channel */
static void check_rows(const gm_weight *w, size_t first, const char *name, size_t taps)
{
    toy_tensor t;
    size_t row, i, k, bad = 0;
    float values[1024];
    find(name, &t);
    k = taps == 3 ? 3 * (size_t)t.ne[1] : (size_t)t.ne[0];
    T_CHECK(w->k == k && k <= 1024, "%s: k is %u", name, (unsigned)w->k);
    for (row = 0; w->k == k && k <= 1024 && row < t.rows * t.columns / k; row++) {
        float largest = 0;
        gm_get_row(w, (uint32_t)(first + row), values, 1);
        for (i = 0; i < k; i++) {
            float want = toy_value(the_file, &t, row * k + i);
            size_t column = taps == 3 ? i % 3 * (k / 3) + i / 3 : i;
            largest = fabsf(want) > largest ? fabsf(want) : largest;
            bad += !model_same(values[column], want);
        }
        bad += w->bits == 8 && fabsf(w->scale[first + row] * 127 - largest) > largest * 1e-6f;
    }
    T_CHECK(bad == 0, "%s: %u values differ", name, (unsigned)bad);
}

/* Both digits of each token, the mean and the columns apart are the token to half a step. */
static void model_check_tokens(const wnpu_model *m)
{
    const gm_weight *w = &m->embedding;
    size_t row, i, bad = 0, rows = w->n16 * 16u;
    float values[512];
    int8_t high[512];
    for (row = 0; w->k <= 512 && row < w->n; row++) {
        const float step = w->scale[row] * (16.0f / 254.0f);
        gm_get_row(w, (uint32_t)row, values, 1);
        gm_get_bytes(w, (uint32_t)row, high);
        for (i = 0; i < w->k; i++) {
            values[i] -= m->embedding_mean[i] + w->scale[row] * (float)high[i] +
                         step * (float)m->embedding_low[row * w->k + i];
        }
        for (i = 0; i < OP_WIDE_MAX && m->wide_columns[i] < w->k; i++) {
            values[m->wide_columns[i]] -= m->wide_values[i * rows + row];
        }
        for (i = 0; i < w->k; i++) {
            bad += !(fabsf(values[i]) <= step * 0.51f + 1e-5f);
        }
    }
    T_CHECK(bad == 0, "%u values of tokens are not what their parts add up to", (unsigned)bad);
}

/* expected NULL: zeros. padded floats are there, those behind n are 0. */
static void check_floats(const float *is, size_t n, size_t padded, const char *name)
{
    toy_tensor t;
    size_t i, bad = 0;
    if (name != NULL) {
        find(name, &t);
        T_CHECK(t.rows * t.columns == n, "%s: size", name);
    }
    for (i = 0; i < padded; i++) {
        bad += !model_same(is[i], name != NULL && i < n ? toy_value(the_file, &t, i) : 0.0f);
    }
    T_CHECK(bad == 0, "%s: %u values differ", name != NULL ? name : "zeros", (unsigned)bad);
}

static const char *in_block(const char *part, unsigned layer, const char *name)
{
    static char text[64];
    (void)snprintf(text, sizeof text, "%.7s.blocks.%u.%.30s", part, layer, name);
    return text;
}

static void check_norm(const mf_norm *norm, size_t d, const char *part, unsigned layer,
                       const char *name)
{
    char text[40];
    size_t padded = (d + 15) / 16 * 16;
    (void)snprintf(text, sizeof text, "%.20s.weight", name);
    check_floats(norm->weight, d, padded, in_block(part, layer, text));
    (void)snprintf(text, sizeof text, "%.20s.bias", name);
    check_floats(norm->bias, d, padded, in_block(part, layer, text));
}

static void check_layer(const mf_layer *layer, const char *part, unsigned i, size_t d, int cross)
{
    size_t d16 = (d + 15) / 16 * 16;
    check_norm(&layer->attn_norm, d, part, i, "attn_ln");
    check_rows(&layer->qkv, 0, in_block(part, i, "attn.query.weight"), 1);
    check_rows(&layer->qkv, d, in_block(part, i, "attn.key.weight"), 1);
    check_rows(&layer->qkv, 2 * d, in_block(part, i, "attn.value.weight"), 1);
    check_floats(layer->qkv.bias, d, d, in_block(part, i, "attn.query.bias"));
    check_floats(layer->qkv.bias + d, d, d, NULL);
    check_floats(layer->qkv.bias + 2 * d, d, layer->qkv.n16 * 16u - 2 * d,
                 in_block(part, i, "attn.value.bias"));
    check_rows(&layer->attn_out, 0, in_block(part, i, "attn.out.weight"), 1);
    check_floats(layer->attn_out.bias, d, d16, in_block(part, i, "attn.out.bias"));
    check_norm(&layer->mlp_norm, d, part, i, "mlp_ln");
    check_rows(&layer->fc1, 0, in_block(part, i, "mlp.0.weight"), 1);
    check_floats(layer->fc1.bias, 4 * d, 4 * d, in_block(part, i, "mlp.0.bias"));
    check_rows(&layer->fc2, 0, in_block(part, i, "mlp.2.weight"), 1);
    check_floats(layer->fc2.bias, d, d16, in_block(part, i, "mlp.2.bias"));
    if (!cross) {
        T_CHECK(layer->cross_q.packed == NULL && layer->cross_norm.weight == NULL, "cross");
        return;
    }
    check_norm(&layer->cross_norm, d, part, i, "cross_attn_ln");
    check_rows(&layer->cross_q, 0, in_block(part, i, "cross_attn.query.weight"), 1);
    check_floats(layer->cross_q.bias, d, d16, in_block(part, i, "cross_attn.query.bias"));
    check_rows(&layer->cross_kv, 0, in_block(part, i, "cross_attn.key.weight"), 1);
    check_rows(&layer->cross_kv, d, in_block(part, i, "cross_attn.value.weight"), 1);
    check_floats(layer->cross_kv.bias, d, d, NULL);
    check_floats(layer->cross_kv.bias + d, d, layer->cross_kv.n16 * 16u - d,
                 in_block(part, i, "cross_attn.value.bias"));
    check_rows(&layer->cross_out, 0, in_block(part, i, "cross_attn.out.weight"), 1);
    check_floats(layer->cross_out.bias, d, d16, in_block(part, i, "cross_attn.out.bias"));
}

static void check_model(const wnpu_model *m)
{
    size_t i, d = m->n_text_state, d16 = (d + 15) / 16 * 16;
    const unsigned char *filters = the_file + 12 * 4 + 8;
    for (i = 0; i < m->n_mels * 201u; i++) {
        uint32_t bits = toy_get_u32(filters + 4 * i);
        T_CHECK(memcmp(&bits, &m->filters[i], 4) == 0, "filter value %u", (unsigned)i);
    }
    check_rows(&m->conv1, 0, "encoder.conv1.weight", 3);
    check_floats(m->conv1.bias, d, d16, "encoder.conv1.bias");
    check_rows(&m->conv2, 0, "encoder.conv2.weight", 3);
    check_floats(m->conv2.bias, d, d16, "encoder.conv2.bias");
    i = m->n_audio_ctx * d;
    check_floats(m->audio_position, i, i, "encoder.positional_embedding");
    check_floats(m->encoder_norm.weight, d, d16, "encoder.ln_post.weight");
    check_floats(m->encoder_norm.bias, d, d16, "encoder.ln_post.bias");
    check_rows(&m->embedding, 0, "decoder.token_embedding.weight", 1);
    T_CHECK(m->embedding.bias == NULL, "the embedding has a bias");
    model_check_tokens(m);
    i = m->n_text_ctx * d;
    check_floats(m->text_position, i, i, "decoder.positional_embedding");
    check_floats(m->decoder_norm.weight, d, d16, "decoder.ln.weight");
    check_floats(m->decoder_norm.bias, d, d16, "decoder.ln.bias");
    for (i = 0; i < m->n_audio_layer; i++) {
        check_layer(&m->encoder[i], "encoder", (unsigned)i, d, 0);
    }
    for (i = 0; i < m->n_text_layer; i++) {
        check_layer(&m->decoder[i], "decoder", (unsigned)i, d, 1);
    }
}

static void load_and_check(const toy_options *o)
{
    wnpu_model_config config;
    wnpu_model *model;
    wnpu_error error;
    unsigned char *file = toy_model(o, &the_size);
    wnpu_model_config_init(&config, sizeof config);
    config.keep_float = 1;
    the_file = file;
    T_CHECK(file != NULL, "no memory");
    if (wnpu_model_open_memory(&model, file, the_size, &config, &error) == WNPU_OK) {
        check_model(model);
    } else {
        T_CHECK(0, "type %d: %s", o->type, error.message);
    }
    wnpu_model_close(model);
    free(file);
}

/* What all tokens share and columns far wider than others cost the rest of a token no precision. */
static void test_wide_columns(void)
{
    static const uint32_t wide[] = {5, 2}; /* the wider one first */
    toy_options o = toy_least(TOY_F32);
    unsigned char *file;
    wnpu_model_config config;
    wnpu_model *model;
    wnpu_error error;
    toy_tensor t;
    size_t i, k;
    o.state = 32;
    file = toy_model(&o, &the_size);
    the_file = file;
    find("decoder.token_embedding.weight", &t);
    k = t.columns;
    for (i = 0; i < t.rows * k; i++) {
        float value = 0.1f * toy_value(file, &t, i) + (i % k == 3 ? 40.0f : 0.0f);
        value *= i % k == wide[0] ? 900.0f : i % k == wide[1] ? 300.0f : 1.0f;
        memcpy(file + t.data + i * sizeof value, &value, sizeof value);
    }
    wnpu_model_config_init(&config, sizeof config);
    config.keep_float = 1;
    T_CHECK(wnpu_model_open_memory(&model, file, the_size, &config, &error) == WNPU_OK, "%s",
            error.message);
    if (model != NULL) {
        double scale = 0.0;
        T_CHECK(model->wide_columns[0] == wide[0] && model->wide_columns[1] == wide[1] &&
                model->wide_columns[2] == k, "columns %u, %u and %u",
                (unsigned)model->wide_columns[0], (unsigned)model->wide_columns[1],
                (unsigned)model->wide_columns[2]);
        model_check_tokens(model);
        for (i = 0; i < t.rows; i++) {
            scale = model->embedding.scale[i] > scale ? model->embedding.scale[i] : scale;
        }
        T_CHECK(scale * 16 * MF_INT4_PEAK < 0.5, "4 bits reach to %g", scale * 16 * MF_INT4_PEAK);
    }
    wnpu_model_close(model);
    free(file);
}

/* Embeddings of all sizes: their digits and the correction are one another's. */
static void test_token_sizes(void)
{
    static const float sizes[] = {1e-44f, 1e-37f, 1e-30f, 65504.0f};
    toy_options o = toy_least(TOY_F32);
    unsigned char *file = toy_model(&o, &the_size);
    toy_tensor t;
    size_t i, row, s;
    int8_t high[512];
    the_file = file;
    find("decoder.token_embedding.weight", &t);
    for (s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        wnpu_model *model;
        wnpu_error error;
        size_t wrong = 0, used = 0;
        for (i = 0; i < t.rows * t.columns; i++) {
            float value = (i * 7 % 5 < 2 ? -sizes[s] : sizes[s]) / (float)(1 + i % 3);
            memcpy(file + t.data + i * sizeof value, &value, sizeof value);
        }
        T_CHECK(wnpu_model_open_memory(&model, file, the_size, NULL, &error) == WNPU_OK, "%s",
                error.message);
        for (row = 0; model != NULL && row < t.rows; row++) {
            int32_t sum = 0;
            gm_get_bytes(&model->embedding, (uint32_t)row, high);
            for (i = 0; i < t.columns; i++) {
                sum += high[i];
            }
            wrong += sum * -128 != model->embedding.correction[row];
            used += model->embedding.scale[row] > 0.0f;
        }
        T_CHECK(wrong == 0 && used == (s < 2 ? 0 : t.rows), "%g: %zu tokens wrong, %zu used",
                (double)sizes[s], wrong, used);
        wnpu_model_close(model);
    }
    free(file);
}

static void test_values(void)
{
    size_t i;
    for (i = 0; i < ALL_TYPES; i++) {
        toy_options o = toy_least(all_types[i]);
        load_and_check(&o);
        o.seed = 77;
        o.reverse = 1;
        o.vector_type = TOY_F16;
        o.audio_layer = 2;
        o.text_layer = all_types[i] < TOY_Q4_K ? 12 : 1; /* layer numbers of two digits */
        o.audio_ctx = 5;
        o.mels = 7;
        load_and_check(&o);
    }
    {
        toy_options o = toy_least(TOY_F16);
        o.state = 20; /* no multiple of 16 */
        o.audio_head = 5;
        load_and_check(&o);
    }
}

/* ---- rotated heads ---- */

/* The sum of a row with x[k], and a value of the bias. */
static double row_product(const gm_weight *w, size_t row, const double *x, const float *bias)
{
    float values[512];
    double sum = bias != NULL ? bias[row] : 0;
    size_t i;
    gm_get_row(w, (uint32_t)row, values, 1);
    for (i = 0; i < w->k; i++) {
        sum += values[i] * x[i];
    }
    return sum;
}

static double file_product(const char *weight, const char *bias, size_t row, const double *x)
{
    toy_tensor t;
    double sum = 0;
    size_t i;
    if (bias != NULL) {
        find(bias, &t);
        sum = toy_value(the_file, &t, row);
    }
    find(weight, &t);
    for (i = 0; i < (size_t)t.ne[0]; i++) {
        sum += toy_value(the_file, &t, row * (size_t)t.ne[0] + i) * x[i];
    }
    return sum;
}

#define ROTATED_STATE 512u
#define ROTATED_HEAD 64u

/* One head of one attention for a query at x and a key and value at y: its score, and its part of
 * the output if all weight is on that value. q, kv: the model's weights, with rows of key and value
 * from key on. */
static void same_attention(const char *prefix, const gm_weight *q, const gm_weight *kv, size_t key,
                           const gm_weight *out, size_t head)
{
    char weight[4][64], bias[3][64];
    static const char *const part[] = {"query", "key", "value", "out"};
    double x[ROTATED_STATE], y[ROTATED_STATE];
    double ours[ROTATED_STATE] = {0}, value[ROTATED_STATE] = {0};
    double score = 0, want = 0, worst = 0, moved = 0;
    const size_t value_at = key + ROTATED_STATE;
    size_t i, row;
    for (i = 0; i < 4; i++) {
        (void)snprintf(weight[i], sizeof weight[i], "%s.%s.weight", prefix, part[i]);
    }
    (void)snprintf(bias[0], sizeof bias[0], "%s.query.bias", prefix);
    (void)snprintf(bias[2], sizeof bias[2], "%s.value.bias", prefix);
    for (i = 0; i < ROTATED_STATE; i++) {
        x[i] = toy_uniform(1, prefix, i);
        y[i] = toy_uniform(2, prefix, i);
    }
    for (row = head * ROTATED_HEAD; row < (head + 1) * ROTATED_HEAD; row++) {
        score += row_product(q, row, x, q->bias) * row_product(kv, key + row, y, kv->bias);
        want += file_product(weight[0], bias[0], row, x) * file_product(weight[1], NULL, row, y);
        ours[row] = row_product(kv, value_at + row, y, kv->bias);
        value[row] = file_product(weight[2], bias[2], row, y);
        moved += fabs(ours[row] - value[row]);
    }
    T_CHECK(fabs(score - want) < 1e-5 && fabs(want) > 1e-3, "%s: score %.7f, not %.7f", prefix,
            score, want);
    for (row = 0; row < ROTATED_STATE; row++) {
        double off = row_product(out, row, ours, NULL) - file_product(weight[3], NULL, row, value);
        worst = fabs(off) > worst ? fabs(off) : worst;
    }
    T_CHECK(worst < 1e-5 && moved > 1, "%s: outputs differ by %.7f, values by %.3f", prefix, worst,
            moved);
}

/* A toy model opened with this configuration, which has to give this status. */
static wnpu_model *open_toy_as(const wnpu_model_config *config, int status)
{
    toy_options o = toy_least(TOY_F32);
    size_t size = 0;
    unsigned char *file;
    wnpu_model *model = NULL;
    wnpu_error error = {0, ""};
    int is;
    o.state = 64;
    o.text_head = 2;
    file = toy_model(&o, &size);
    is = wnpu_model_open_memory(&model, file, size, config, &error);
    T_CHECK(is == status, "status %d, not %d: %s", is, status, error.message);
    free(file);
    return model;
}

/* Weights in 6 bits differ from the file's by half a step, and take three quarters of the room. */
static void test_weight_bits(void)
{
    wnpu_model_config config;
    wnpu_model_info info;
    wnpu_model *six, *eight;
    const gm_weight *w;
    uint32_t row, k, bad = 0;
    float is[1024], want[1024];
    wnpu_model_config_init(&config, sizeof config);
    config.weight_bits = 7;
    (void)open_toy_as(&config, WNPU_E_ARGUMENT);
    config.weight_bits = 8;
    config.keep_float = 1;
    eight = open_toy_as(&config, WNPU_OK);
    config.weight_bits = 6;
    six = open_toy_as(&config, WNPU_OK);
    if (six == NULL || eight == NULL) {
        return;
    }
    w = &six->decoder[0].fc2;
    T_CHECK(w->bits == 6 && six->conv1.bits == 8 && eight->decoder[0].fc2.bits == 8 &&
            six->data_size < eight->data_size, "bits");
    for (row = 0; row < w->n; row++) {
        gm_get_row(w, row, is, 0);
        gm_get_row(w, row, want, 1);
        for (k = 0; k < w->k; k++) {
            bad += !(fabsf(is[k] - want[k]) <= 2.001f * w->scale[row]);
        }
    }
    T_CHECK(bad == 0, "%u values are off by more than half a step", (unsigned)bad);
    info.struct_size = sizeof info;
    T_CHECK(wnpu_model_get_info(six, &info) == WNPU_OK && info.weight_bits == 6, "information");
    wnpu_model_close(six);
    wnpu_model_close(eight);
}

/* Given heads are sorted, each once; they are the model's, or they are refused. */
static void test_alignment_heads(void)
{
    static const uint16_t given[][2] = {{0, 1}, {0, 0}, {0, 1}}, none[][2] = {{0, 0}, {9, 0}};
    wnpu_model_config config;
    wnpu_model *m;
    de_head heads[8];
    int64_t lag = 7;
    wnpu_model_config_init(&config, sizeof config);
    config.n_alignment_heads = 2;
    (void)open_toy_as(&config, WNPU_E_ARGUMENT);
    config.alignment_heads = none[0];
    (void)open_toy_as(&config, WNPU_E_ARGUMENT);
    config.n_alignment_heads = 65;
    (void)open_toy_as(&config, WNPU_E_ARGUMENT);
    config.alignment_heads = given[0];
    config.n_alignment_heads = 3;
    m = open_toy_as(&config, WNPU_OK);
    if (m != NULL) {
        T_CHECK(al_heads(m, NULL, &lag) == 2 && lag == 0 && al_heads(m, heads, &lag) == 2 &&
                heads[0].layer == 0 && heads[0].head == 0 && heads[1].head == 1, "heads");
        /* The lag of a known model is that of its heads, not of others. */
        m->name = "tiny";
        T_CHECK(al_heads(m, NULL, &lag) == 2 && lag == 0, "heads of another tiny");
        m->alignment[0].layer = 0;
        T_CHECK(al_heads(m, NULL, &lag) == 6 && lag == -50, "heads of tiny");
    }
    wnpu_model_close(m);
}

/* Scores and outputs of attention are those of the file's weights, although these are rotated. */
static void test_rotation(void)
{
    toy_options o = toy_least(TOY_F32);
    wnpu_model_config config;
    wnpu_model *m;
    wnpu_error error;
    unsigned char *file;
    size_t head;
    o.state = ROTATED_STATE;
    o.audio_head = o.text_head = ROTATED_STATE / ROTATED_HEAD;
    file = toy_model(&o, &the_size);
    the_file = file;
    wnpu_model_config_init(&config, sizeof config);
    config.keep_float = 1;
    T_CHECK(wnpu_model_open_memory(&m, file, the_size, &config, &error) == WNPU_OK, "%s",
            error.message);
    for (head = 0; m != NULL && head < (size_t)o.audio_head; head++) {
        const mf_layer *e = &m->encoder[0], *d = &m->decoder[0];
        const size_t key = ROTATED_STATE;
        same_attention("encoder.blocks.0.attn", &e->qkv, &e->qkv, key, &e->attn_out, head);
        same_attention("decoder.blocks.0.attn", &d->qkv, &d->qkv, key, &d->attn_out, head);
        same_attention("decoder.blocks.0.cross_attn", &d->cross_q, &d->cross_kv, 0, &d->cross_out,
                       head);
    }
    wnpu_model_close(m);
    free(file);
}

/* Quantised toys stay within a step of the unquantised ones. test_values() shows that the library
 * reads what toy_value() reads; this shows that toy_value() reads what was meant. */
static void test_conversion(void)
{
    toy_options o = toy_least(TOY_F32);
    size_t i, j, size, toy_size;
    unsigned char *exact, *file;
    toy_tensor a, b;
    for (i = 0; i < ALL_TYPES; i++) {
        int bits, minimum, zero;
        double worst = 0, step;
        wnpu_model *model;
        wnpu_error error;
        o.state = all_types[i] < TOY_Q4_K ? 32 : 256;
        o.type = TOY_F32;
        exact = toy_model(&o, &size);
        o.type = all_types[i];
        file = toy_model(&o, &toy_size);
        T_CHECK(wnpu_model_open_memory(&model, file, toy_size, NULL, &error) == WNPU_OK, "%s",
                error.message);
        (void)toy_find(exact, size, "encoder.blocks.0.mlp.2.weight", 0, &a);
        (void)toy_find(file, toy_size, "encoder.blocks.0.mlp.2.weight", 0, &b);
        for (j = 0; j < a.rows * a.columns; j++) {
            double error_of = fabs((double)toy_value(exact, &a, j) - toy_value(file, &b, j));
            worst = error_of > worst ? error_of : worst;
        }
        bits = o.type < TOY_Q4_K ? toy_block(o.type, &minimum, &zero) : toy_super_of(o.type).bits;
        step = sqrt(3.0 / (double)a.columns) * 2 / ((1 << bits) - 1); /* the width of all values */
        T_CHECK(o.type <= TOY_F16 || (worst < 1.1 * step && worst > 0.1 * step),
                "type %d: %.6f off, step %.6f", o.type, worst, step);
        T_CHECK(o.type != TOY_F32 || worst == 0, "f32 is not exact");
        T_CHECK(o.type != TOY_F16 || worst < 1.0 / 16384, "f16 is %.6f off", worst);
        T_CHECK(model == NULL || strcmp(model->weight_type, mf_types[o.type].name) == 0,
                "weight type %s", model->weight_type);
        wnpu_model_close(model);
        free(file);
        free(exact);
    }
}

/* All 65536 halves against their definition. */
static void test_half(void)
{
    const op_kernels *op = op_select(cp_best());
    unsigned char bytes[2 * 65536];
    float *values = malloc(65536 * sizeof *values);
    uint32_t h, bits, bad = 0;
    for (h = 0; h < 65536; h++) {
        bytes[2 * h] = (unsigned char)(h & 255);
        bytes[2 * h + 1] = (unsigned char)(h >> 8);
    }
    op->from_f16(values, bytes, 65536);
    for (h = 0; h < 65536; h++) {
        uint32_t sign = h >> 15 << 31;
        float one;
        memcpy(&bits, &values[h], 4);
        if ((h >> 10 & 31) < 31) {
            bad += (double)values[h] != toy_from_half((uint16_t)h) || bits >> 31 != sign >> 31;
        } else if ((h & 1023) == 0) {
            bad += bits != (sign | 0x7f800000u);
        } else {
            bad += values[h] == values[h];
        }
        op->from_f16(&one, bytes + 2 * h, 1); /* the way for rests of rows */
        bad += one != values[h] && (one == one || values[h] == values[h]);
        bad += mf_is_valid(op, &values[h], 1) != ((h & 0x7fff) <= 0x7bff);
    }
    T_CHECK(bad == 0, "%u halves are wrong", (unsigned)bad);
    free(values);
}

static void test_sane(void)
{
    static const uint32_t bad[] = {
        0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu, 0x7f800000u, 0xff800000u,
        0x477fe001u, 0xc77fe001u, 0x7f7fffffu
    };
    const op_kernels *op = op_select(cp_best());
    float x[37];
    size_t i, j;
    for (i = 0; i < 37; i++) {
        x[i] = i % 2 ? 65504.0f : -65504.0f;
    }
    T_CHECK(mf_is_valid(op, x, 37), "largest halves");
    for (i = 0; i < 37; i++) {
        for (j = 0; j < sizeof bad / sizeof bad[0]; j++) {
            float kept = x[i];
            memcpy(&x[i], &bad[j], 4);
            T_CHECK(!mf_is_valid(op, x, 37), "0x%08x at %u", (unsigned)bad[j], (unsigned)i);
            x[i] = kept;
        }
    }
}

/* ---- information ---- */

static void test_info(void)
{
    toy_options o = toy_small();
    size_t size;
    unsigned char *file, room[sizeof(wnpu_model_info) + 8];
    wnpu_model *model = NULL;
    wnpu_model_info info, part;
    wnpu_error error;
    size_t length = 99;
    o.text_layer = 1;
    o.audio_head = 4;
    o.audio_ctx = 7;
    o.text_ctx = 9;
    o.mels = 3;
    file = toy_model(&o, &size);
    T_CHECK(wnpu_model_open_memory(&model, file, size, NULL, &error) == WNPU_OK, "%s",
            error.message);
    free(file);
    if (model == NULL) {
        return;
    }
    info.struct_size = sizeof info;
    T_CHECK(wnpu_model_get_info(model, &info) == WNPU_OK, "info");
    T_CHECK(info.struct_size == sizeof info, "struct_size %u", (unsigned)info.struct_size);
    T_CHECK(info.n_vocab == 1811 && info.n_audio_ctx == 7 && info.n_audio_state == 64 &&
            info.n_audio_head == 4 && info.n_audio_layer == 2 && info.n_text_ctx == 9 &&
            info.n_text_state == 64 && info.n_text_head == 2 && info.n_text_layer == 1 &&
            info.n_mels == 3, "sizes");
    T_CHECK(info.multilingual == 1 && info.n_languages == 2 && info.has_float == 0, "languages");
    T_CHECK(strcmp(info.name, "custom") == 0 && strcmp(info.weight_type, "f16") == 0, "%s, %s",
            info.name, info.weight_type);
    T_CHECK(info.bytes > 1811 * 64 && info.bytes < 2 * size, "%llu bytes",
            (unsigned long long)info.bytes);
    memset(&part, 0x55, sizeof part); /* an older caller */
    part.struct_size = 8;
    T_CHECK(wnpu_model_get_info(model, &part) == WNPU_OK && part.n_vocab == 1811 &&
            part.n_audio_ctx == 0x55555555 && part.struct_size == 8, "older info");
    memset(room, 0x55, sizeof room); /* a newer one */
    part.struct_size = sizeof room;
    memcpy(room, &part.struct_size, 4);
    T_CHECK(wnpu_model_get_info(model, (wnpu_model_info *)(void *)room) == WNPU_OK &&
            room[sizeof room - 1] == 0 && room[sizeof room - 8] == 0, "newer info");
    part.struct_size = 3;
    T_CHECK(wnpu_model_get_info(model, &part) == WNPU_E_ARGUMENT, "struct_size 3");
    T_CHECK(wnpu_model_get_info(model, NULL) == WNPU_E_ARGUMENT, "info NULL");
    T_CHECK(wnpu_model_get_info(NULL, &info) == WNPU_E_ARGUMENT, "model NULL");
    T_CHECK(strcmp(wnpu_token_text(model, 0, &length), "!") == 0 && length == 1, "token 0");
    T_CHECK(strcmp(wnpu_token_text(model, 302, NULL), "<|en|>") == 0, "token 302");
    T_CHECK(wnpu_token_text(model, 1811, &length) == NULL && wnpu_token_text(model, -1, NULL) ==
            NULL && wnpu_token_text(NULL, 0, &length) == NULL && length == 0, "no token");
    T_CHECK(wnpu_tokenize(model, "!!", 2, NULL, 0) == 2, "two tokens");
    T_CHECK(wnpu_tokenize(model, NULL, 0, NULL, 0) == 0, "no text");
    T_CHECK(wnpu_tokenize(model, NULL, 1, NULL, 0) == WNPU_E_ARGUMENT, "text NULL");
    T_CHECK(wnpu_tokenize(model, "!", 1, NULL, 1) == WNPU_E_ARGUMENT, "tokens NULL");
    T_CHECK(wnpu_tokenize(NULL, "!", 1, NULL, 0) == WNPU_E_ARGUMENT, "model NULL");
    wnpu_model_close(model);
    wnpu_model_close(NULL);
}

static void test_names(void)
{
    static const struct {
        const char *name;
        uint32_t vocab, state, head, audio_layer, text_layer, mels;
    } cases[] = {
        {"tiny", 51865, 384, 6, 4, 4, 80}, {"tiny.en", 51864, 384, 6, 4, 4, 80},
        {"base", 51865, 512, 8, 6, 6, 80}, {"base.en", 51864, 512, 8, 6, 6, 80},
        {"small", 51865, 768, 12, 12, 12, 80}, {"small.en", 51864, 768, 12, 12, 12, 80},
        {"medium", 51865, 1024, 16, 24, 24, 80}, {"medium.en", 51864, 1024, 16, 24, 24, 80},
        {"large", 51865, 1280, 20, 32, 32, 80}, {"large-v3", 51866, 1280, 20, 32, 32, 128},
        {"turbo", 51866, 1280, 20, 32, 4, 128}, {"distil-large-v3", 51866, 1280, 20, 32, 2, 128},
        {"distil-large-v2", 51865, 1280, 20, 32, 2, 80},
        {"distil-medium.en", 51864, 1024, 16, 24, 2, 80},
        {"distil-small.en", 51864, 768, 12, 12, 4, 80}, {"custom", 51865, 768, 12, 12, 4, 80},
        {"custom", 51864, 1280, 20, 32, 32, 80}, {"custom", 51865, 384, 6, 4, 4, 128},
        {"custom", 51866, 384, 6, 4, 4, 80}, {"custom", 51865, 384, 12, 4, 4, 80}
    };
    mf_loader *l = calloc(1, sizeof *l);
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        l->sizes[MF_VOCAB] = cases[i].vocab;
        l->sizes[MF_AUDIO_CTX] = 1500;
        l->sizes[MF_TEXT_CTX] = 448;
        l->sizes[MF_AUDIO_STATE] = l->sizes[MF_TEXT_STATE] = cases[i].state;
        l->sizes[MF_AUDIO_HEAD] = l->sizes[MF_TEXT_HEAD] = cases[i].head;
        l->sizes[MF_AUDIO_LAYER] = cases[i].audio_layer;
        l->sizes[MF_TEXT_LAYER] = cases[i].text_layer;
        l->sizes[MF_MELS] = cases[i].mels;
        T_CHECK(strcmp(mf_model_name(l), cases[i].name) == 0, "%s instead of %s",
                mf_model_name(l), cases[i].name);
    }
    free(l);
}

/* ---- what is refused, and with which words ---- */

typedef struct edit {
    unsigned char *file;
    size_t size;
} edit;

static void edit_begin(edit *e, int type)
{
    toy_options o = toy_least(type);
    e->file = toy_model(&o, &e->size);
}

static void put_i32(unsigned char *p, int32_t x)
{
    p[0] = (unsigned char)(x & 255);
    p[1] = (unsigned char)(x >> 8 & 255);
    p[2] = (unsigned char)(x >> 16 & 255);
    p[3] = (unsigned char)((uint32_t)x >> 24);
}

/* Opens the edited file and frees it. The message must hold both texts. */
static void model_refused(edit *e, int status, const char *text, const char *more)
{
    wnpu_error error;
    counter c;
    int is = try_open(e->file, e->size, &c, &error);
    T_CHECK(is == status, "status %d, not %d: %s", is, status, error.message);
    T_CHECK(strstr(error.message, text) != NULL && strstr(error.message, more) != NULL,
            "'%s' lacks '%s' or '%s'", error.message, text, more);
    T_CHECK(strlen(error.message) < sizeof error.message - 1 && strchr(error.message, '\n') == NULL,
            "message is cut: %s", error.message);
    free(e->file);
}

static void test_header_messages(void)
{
    static const struct {
        int index;
        int32_t value;
        const char *text;
    } cases[] = {
        {1, 0, "n_vocab at byte 4 is 0, expected 1510 to 1048576"}, {1, -5, "is -5, expected"},
        {1, 0x7fffffff, "n_vocab"}, {2, 0, "n_audio_ctx at byte 8 is 0"}, {2, 1501, "1501"},
        {3, 0, "n_audio_state at byte 12"}, {3, 4100, "n_audio_state"}, {3, 6, "multiple of 4"},
        {4, 0, "n_audio_head at byte 16"}, {4, 3, "n_audio_head 3"}, {4, 4, "n_audio_head 4"},
        {5, 0, "n_audio_layer at byte 20"}, {5, 65, "n_audio_layer at byte 20 is 65"},
        {5, -1, "is -1"}, {6, 7, "n_text_ctx at byte 24 is 7"}, {7, 8, "n_text_state 8"},
        {7, -4, "n_text_state"}, {8, 5, "n_text_head"}, {9, 0, "n_text_layer"},
        {9, 1 << 30, "n_text_layer"}, {10, 0, "n_mels at byte 40 is 0"}, {10, 257, "n_mels"},
        {10, 2, "mel filters at byte 48 are 1 x 201, expected 2 x 201"},
        {11, -1, "ftype at byte 44"}, {12, 5, "are 5 x 201"}, {13, 200, "are 1 x 200"},
        {13, 0x7fffffff, "x 2147483647"}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        edit e;
        edit_begin(&e, TOY_F16);
        put_i32(e.file + 4 * cases[i].index, cases[i].value);
        model_refused(&e, WNPU_E_MODEL, cases[i].text, "; the file is damaged");
    }
}

static void test_token_messages(void)
{
    edit e;
    size_t at = 14 * 4 + 201 * 4;
    edit_begin(&e, TOY_F16);
    put_i32(e.file + at, 0);
    model_refused(&e, WNPU_E_MODEL, "vocabulary at byte 860 has 0 tokens", "n_vocab = 1766");
    edit_begin(&e, TOY_F16);
    put_i32(e.file + at, 1767);
    model_refused(&e, WNPU_E_MODEL, "vocabulary at byte 860 has 1767 tokens", "expected 1 to");
    edit_begin(&e, TOY_F16);
    put_i32(e.file + at, -1);
    model_refused(&e, WNPU_E_MODEL, "has -1 tokens", "byte 860");
    edit_begin(&e, TOY_F16);
    put_i32(e.file + at + 4 + 5 * 3, 1025);
    model_refused(&e, WNPU_E_MODEL, "token 3 at byte 879 has length 1025", "at most 1024");
    edit_begin(&e, TOY_F16);
    put_i32(e.file + at + 4 + 5 * 3, -2);
    model_refused(&e, WNPU_E_MODEL, "token 3 at byte 879 has length -2", "damaged");
    edit_begin(&e, TOY_F16);
    e.size = at + 4 + 5 * 7 + 2;
    model_refused(&e, WNPU_E_MODEL, "ends at byte 901, inside the vocabulary at byte 899",
                  "4 bytes");
    edit_begin(&e, TOY_F16);
    e.size = toy_tensors_at(e.file);
    model_refused(&e, WNPU_E_MODEL, "no tensors", "for-tests-ggml");
}

static void test_tensor_messages(void)
{
    edit e;
    toy_tensor t;
    char text[128];
#define BEGIN(type, name) \
    edit_begin(&e, type); \
    T_CHECK(toy_find(e.file, e.size, name, 0, &t), "toy")
#define AT(format, where) (void)snprintf(text, sizeof text, format, (unsigned long)(where))
    BEGIN(TOY_F16, "decoder.blocks.0.mlp.0.weight");
    put_i32(e.file + t.header, 0);
    AT("at byte %lu has 0 dimensions", t.header);
    model_refused(&e, WNPU_E_MODEL, text, "expected 1 to 4");
    BEGIN(TOY_F16, "decoder.blocks.0.mlp.0.weight");
    put_i32(e.file + t.header, 5);
    model_refused(&e, WNPU_E_MODEL, "has 5 dimensions", "damaged");
    BEGIN(TOY_F16, "decoder.blocks.0.mlp.0.weight");
    put_i32(e.file + t.header + 4, -3);
    model_refused(&e, WNPU_E_MODEL, "a name of -3 bytes", "1 to 63");
    BEGIN(TOY_F16, "decoder.blocks.0.mlp.0.weight");
    put_i32(e.file + t.header + 8, 11);
    AT("tensor 'decoder.blocks.0.mlp.0.weight' at byte %lu is q3_K", t.header);
    model_refused(&e, WNPU_E_UNSUPPORTED, text, "q5_K or q6_K; take the model in one of these");
    BEGIN(TOY_F16, "decoder.blocks.0.mlp.0.weight");
    put_i32(e.file + t.header + 8, 39);
    model_refused(&e, WNPU_E_UNSUPPORTED, "is mxfp4, expected f32", "such as q5_0");
    BEGIN(TOY_F16, "decoder.blocks.0.mlp.0.weight");
    put_i32(e.file + t.header + 8, 5);
    model_refused(&e, WNPU_E_UNSUPPORTED, "is type 5", "expected f32");
    BEGIN(TOY_F16, "decoder.blocks.0.mlp.0.weight");
    put_i32(e.file + t.header + 8, 40);
    model_refused(&e, WNPU_E_UNSUPPORTED, "is type 40", "expected f32");
    BEGIN(TOY_F16, "decoder.blocks.0.mlp.0.weight");
    put_i32(e.file + t.header + 8, -1);
    model_refused(&e, WNPU_E_UNSUPPORTED, "is type -1", "expected f32");
    BEGIN(TOY_Q8_0, "decoder.blocks.0.mlp.0.weight");
    put_i32(e.file + t.header + 8, TOY_Q4_K);
    model_refused(&e, WNPU_E_MODEL, "is q4_K with rows of 32", "multiple of 256");
    BEGIN(TOY_F16, "decoder.blocks.0.mlp.0.weight");
    put_i32(e.file + t.header + 8, TOY_Q8_0);
    model_refused(&e, WNPU_E_MODEL, "is q8_0 with rows of 4", "multiple of 32");
    BEGIN(TOY_F16, "decoder.blocks.0.mlp.0.weight");
    put_i32(e.file + t.header + 16, 17);
    model_refused(&e, WNPU_E_MODEL, "has shape {4, 17}, expected {4, 16}", "mlp.0.weight");
    BEGIN(TOY_F16, "decoder.blocks.0.mlp.0.weight");
    put_i32(e.file + t.header + 12, -4);
    model_refused(&e, WNPU_E_MODEL, "has shape {-4, 16}, expected {4, 16}", "mlp.0.weight");
    BEGIN(TOY_F16, "decoder.ln.bias");
    put_i32(e.file + t.header + 12, 0);
    model_refused(&e, WNPU_E_MODEL, "has shape {0}, expected {4}", "'decoder.ln.bias'");
    BEGIN(TOY_F16, "encoder.conv2.weight");
    put_i32(e.file + t.header + 12, 4);
    model_refused(&e, WNPU_E_MODEL, "has shape {4, 4, 4}, expected {3, 4, 4}", "conv2");
    BEGIN(TOY_F16, "decoder.blocks.0.mlp.0.weight");
    e.file[t.data - 9] = '9'; /* mlp90.weight */
    AT("at byte %lu is unknown for a model of 1 encoder and 1 decoder layers", t.header);
    model_refused(&e, WNPU_E_MODEL, text, "'decoder.blocks.0.mlp90.weight'");
    BEGIN(TOY_F16, "decoder.blocks.0.mlp.0.weight");
    e.file[t.data - 14] = '1'; /* layer 1 of 1 */
    model_refused(&e, WNPU_E_MODEL, "'decoder.blocks.1.mlp.0.weight'", "unknown");
    BEGIN(TOY_F16, "decoder.blocks.0.mlp.0.weight");
    e.file[t.data - 1] = '\n';
    e.file[t.data - 2] = 0;
    model_refused(&e, WNPU_E_MODEL, "mlp.0.weig?" "?'", "unknown");
    BEGIN(TOY_F16, "encoder.blocks.0.attn.query.weight");
    memcpy(e.file + t.data - 12, "value.weight", 12);
    model_refused(&e, WNPU_E_MODEL, "'encoder.blocks.0.attn.value.weight'", "is there twice");
    BEGIN(TOY_F16, "encoder.ln_post.bias"); /* the last one of the file */
    e.size = t.header;
    AT("missing, 49 of 50 are there up to the end at byte %lu", t.header);
    model_refused(&e, WNPU_E_MODEL, text, "'encoder.ln_post.bias'");
    BEGIN(TOY_F16, "encoder.ln_post.bias");
    e.size = t.header + 11;
    model_refused(&e, WNPU_E_MODEL, "inside a tensor's header", "needs 12 bytes");
    BEGIN(TOY_F16, "encoder.ln_post.bias");
    e.size -= 3;
    AT("inside tensor 'encoder.ln_post.bias' at byte %lu that needs 16 bytes", t.data);
    model_refused(&e, WNPU_E_MODEL, text, "truncated");
    BEGIN(TOY_F32, "encoder.blocks.0.attn.query.weight");
    put_i32(e.file + t.data + 4 * 7, 0x7fc00000);
    AT("value in row 1 at byte %lu that is not finite", t.data + 16);
    model_refused(&e, WNPU_E_MODEL, text, "'encoder.blocks.0.attn.query.weight'");
    BEGIN(TOY_F16, "encoder.conv1.weight");
    e.file[t.data + 1] = 0x7c; /* infinity */
    model_refused(&e, WNPU_E_MODEL, "'encoder.conv1.weight'", "not finite");
    edit_begin(&e, TOY_F16);
    put_i32(e.file + 56, (int32_t)0xff800000u);
    model_refused(&e, WNPU_E_MODEL, "mel filter 0", "not finite");
#undef BEGIN
#undef AT
}

static void test_left_over(void)
{
    wnpu_error error;
    counter c;
    edit e;
    unsigned char *longer;
    edit_begin(&e, TOY_F16);
    longer = calloc(e.size + 9, 1);
    memcpy(longer, e.file, e.size);
    T_CHECK(try_open(longer, e.size + 9, &c, &error) == WNPU_E_MODEL &&
            strstr(error.message, "9 bytes are left over") != NULL, "%s", error.message);
    free(longer);
    free(e.file);
}

/* Makes the name of a tensor longer by one byte before its character number at. */
static void longer_name(edit *e, const char *name, size_t at, char byte)
{
    toy_tensor t;
    unsigned char *file = malloc(e->size + 1);
    (void)toy_find(e->file, e->size, name, 0, &t);
    at += t.data - strlen(name);
    memcpy(file, e->file, at);
    file[at] = (unsigned char)byte;
    memcpy(file + at + 1, e->file + at, e->size - at);
    file[t.header + 4]++;
    free(e->file);
    e->file = file;
    e->size++;
}

static void test_longer_names(void)
{
    edit e;
    edit_begin(&e, TOY_F16);
    longer_name(&e, "decoder.ln.bias", 15, '\0'); /* as a C string it would be right */
    model_refused(&e, WNPU_E_MODEL, "'decoder.ln.bias?'", "unknown");
    edit_begin(&e, TOY_F16);
    longer_name(&e, "decoder.blocks.0.mlp_ln.bias", 15, '0');
    model_refused(&e, WNPU_E_MODEL, "'decoder.blocks.00.mlp_ln.bias'", "unknown");
    edit_begin(&e, TOY_F16);
    longer_name(&e, "decoder.blocks.0.mlp_ln.bias", 15, '4');
    model_refused(&e, WNPU_E_MODEL, "'decoder.blocks.40.mlp_ln.bias'", "unknown");
}

static void test_foreign(void)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *text;
    } cases[] = {
        {"", 0, "ends at byte 0"}, {"lmg", 3, "ends at byte 3"}, {"GGUF\3\0\0\0", 8, "GGUF"},
        {"PK\3\4xxxxxxxxx", 13, "PyTorch"}, {"\200\2}q", 4, "PyTorch"}, {"tjgg\1", 5, "ggjt"},
        {"algg\1", 5, "ggla"}, {"fmgg\1", 5, "ggmf"}, {"ggml\0\0\312\0", 8, "big-endian"},
        {"lmgg\12\0\0\0silero-16k", 18, "voice activity"},
        {"version https://git-lfs.github.com/spec/v1\n", 43, "Git LFS"},
        {"<!DOCTYPE html>", 15, "web page"}, {"RIFF\44\0\0\0WAVE", 12, "recording"},
        {"\37\213\10\0", 4, "gzip"}, {"\11\0\0\0\0\0\0\0{\"a\":1}  ", 17, "safetensors"},
        {"hello", 5, "begins with 0x6c6c6568, expected 0x67676d6c"},
        {"\0\0\0\0", 4, "begins with 0x00000000"}, {"lmgg", 4, "inside the header at byte 4"}
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        edit e;
        e.size = cases[i].size;
        e.file = malloc(e.size + 1);
        memcpy(e.file, cases[i].bytes, e.size);
        model_refused(&e, WNPU_E_MODEL, cases[i].text, "");
    }
}

/* ---- robustness ---- */

static void test_truncation(void)
{
    unsigned char *whole, *cut;
    size_t size, n;
    toy_options o = toy_least(TOY_F16);
    whole = toy_model(&o, &size);
    for (n = 0; n < size && t_bad < 5; n++) {
        wnpu_error error;
        counter c;
        int status;
        cut = malloc(n + 1); /* its own block, so that a sanitizer sees a byte too many */
        memcpy(cut, whole, n);
        status = try_open(cut, n, &c, &error);
        T_CHECK(status == WNPU_E_MODEL, "cut to %u bytes: status %d", (unsigned)n, status);
        T_CHECK(c.calls == 1 && c.largest == sizeof(mf_loader), "cut to %u: a model was built",
                (unsigned)n);
        free(cut);
    }
    free(whole);
}

static void test_allocation_failure(void)
{
    wnpu_model_config config;
    wnpu_model *model;
    wnpu_error error;
    edit e;
    counter c;
    long i, calls = 1;
    edit_begin(&e, TOY_F16);
    wnpu_model_config_init(&config, sizeof config);
    config.allocator = &c.allocator;
    for (i = 1; i <= calls; i++) {
        counter_init(&c);
        c.fail_at = i;
        model = (wnpu_model *)(void *)&c;
        T_CHECK(wnpu_model_open_memory(&model, e.file, e.size, &config, &error) == WNPU_E_MEMORY &&
                model == NULL && c.live == 0, "call %ld fails: %s", i, error.message);
        calls = c.calls + (i == c.calls && i < 3); /* there is at least one more */
    }
    counter_init(&c);
    T_CHECK(wnpu_model_open_memory(&model, e.file, e.size, &config, NULL) == WNPU_OK && c.calls ==
            i - 1, "%ld calls, %ld failures tried", c.calls, i - 1);
    wnpu_model_close(model);
    T_CHECK(c.live == 0, "leak");
    free(e.file);
}

static void *crooked_alloc(void *user, size_t size, size_t alignment)
{
    unsigned char *memory = counter_alloc(user, size + alignment, alignment);
    return memory != NULL ? memory + 8 : NULL;
}

static void crooked_release(void *user, void *memory, size_t size)
{
    counter_release(user, (unsigned char *)memory - 8, size + 64);
}

static void test_misaligned_allocator(void)
{
    wnpu_model_config config;
    wnpu_model *model;
    wnpu_error error;
    edit e;
    counter c;
    edit_begin(&e, TOY_F16);
    counter_init(&c);
    c.allocator.alloc = crooked_alloc;
    c.allocator.release = crooked_release;
    wnpu_model_config_init(&config, sizeof config);
    config.allocator = &c.allocator;
    T_CHECK(wnpu_model_open_memory(&model, e.file, e.size, &config, &error) == WNPU_E_MEMORY &&
            strstr(error.message, "not aligned") != NULL && c.live == 0 && c.wrong == 0, "%s",
            error.message);
    free(e.file);
}

/* A small file that claims to be huge must not make the library ask for much. */
static void test_hostile_sizes(void)
{
    unsigned char file[1024];
    wnpu_error error;
    counter c;
    static const int32_t header[] = {
        0x67676d6c, 1048576, 1500, 4096, 16, 64, 4096, 4096, 16, 64, 1, 1, 1, 201
    };
    size_t i;
    memset(file, 0, sizeof file);
    for (i = 0; i < sizeof header / sizeof header[0]; i++) {
        put_i32(file + 4 * i, header[i]);
    }
    put_i32(file + 56 + 804, 1); /* one token of no bytes, then zeros where tensors should be */
    T_CHECK(try_open(file, sizeof file, &c, &error) == WNPU_E_MODEL, "%s", error.message);
    T_CHECK(c.calls == 1 && c.largest < 512 * 1024, "took %u bytes", (unsigned)c.largest);
}

static uint32_t model_random_state = 12345;

static uint32_t random_u32(void)
{
    model_random_state ^= model_random_state << 13; /* xorshift32 (Marsaglia 2003) */
    model_random_state ^= model_random_state >> 17;
    model_random_state ^= model_random_state << 5;
    return model_random_state;
}

static void test_corruption(void)
{
    edit e;
    wnpu_error error;
    counter c;
    toy_tensor t;
    size_t at, i, opened = 0, header;
    edit_begin(&e, TOY_F16);
    header = toy_tensors_at(e.file);
    for (i = 0; i < 64 + 24 && t_bad < 5; i++) { /* the header, some of the first filter; tokens */
        unsigned value;
        at = i < 64 ? i : 860 + i - 64;
        for (value = 0; value < 256; value++) {
            unsigned char kept = e.file[at];
            e.file[at] = (unsigned char)value;
            opened += try_open(e.file, e.size, &c, &error) == WNPU_OK;
            e.file[at] = kept;
        }
    }
    for (i = 0; i < 4000 && t_bad < 5; i++) { /* anywhere in the headers of tensors too */
        int status;
        unsigned char kept;
        if (i % 2 == 0) {
            at = random_u32() % header;
        } else {
            (void)toy_find(e.file, e.size, NULL, (int)(random_u32() % 50), &t);
            at = t.header + random_u32() % (t.data - t.header);
        }
        kept = e.file[at];
        e.file[at] = (unsigned char)(random_u32() >> 16);
        status = try_open(e.file, e.size, &c, &error);
        opened += status == WNPU_OK;
        T_CHECK(i % 2 == 0 || status != WNPU_OK || e.file[at] == kept || at == t.header + 8,
                "byte %u of %s may be %u", (unsigned)(at - t.header), t.name, e.file[at]);
        e.file[at] = kept;
    }
    T_CHECK(opened > 88, "only %u opened", (unsigned)opened); /* the right value is among all */
    free(e.file);
}

/* ---- sources ---- */

typedef struct slow {
    const unsigned char *data;
    size_t size, calls;
    size_t most;     /* bytes a call gives at most */
    int64_t answer;  /* of call number fail_at */
    size_t fail_at;  /* 0: never */
    size_t change_at; /* from this call on the bytes at change differ */
    size_t change, outside;
    int noise;       /* 1: bytes change at random */
} slow;

static int64_t slow_read(void *user, uint64_t offset, void *buffer, size_t size)
{
    slow *s = user;
    size_t n = size < s->most ? size : s->most;
    s->calls++;
    if (offset > s->size || size > s->size - offset || size == 0) {
        s->outside++;
        return -1;
    }
    if (s->calls == s->fail_at) {
        return s->answer;
    }
    memcpy(buffer, s->data + offset, n);
    if (s->change_at != 0 && s->calls >= s->change_at && s->change >= offset &&
        s->change < offset + n) {
        ((unsigned char *)buffer)[s->change - offset] ^= 2;
    }
    if (s->noise) {
        ((unsigned char *)buffer)[random_u32() % n] ^= (unsigned char)(random_u32() >> 20);
    }
    return (int64_t)n;
}

static int slow_open(slow *s, const edit *e, wnpu_error *error, wnpu_model **model)
{
    wnpu_source source;
    s->data = e->file;
    s->size = e->size;
    s->calls = 0;
    source.read = slow_read;
    source.size = e->size;
    source.user = s;
    return wnpu_model_open_source(model, &source, NULL, error);
}

static void test_short_reads(void)
{
    static const size_t most[] = {1, 2, 3, 7, 63, 1000, 65537};
    edit e;
    wnpu_model *whole = NULL, *model;
    wnpu_error error;
    slow s;
    size_t i;
    edit_begin(&e, TOY_Q5_1);
    memset(&s, 0, sizeof s);
    s.most = (size_t)-1;
    T_CHECK(slow_open(&s, &e, &error, &whole) == WNPU_OK, "%s", error.message);
    for (i = 0; i < sizeof most / sizeof most[0] && whole != NULL; i++) {
        s.most = most[i];
        T_CHECK(slow_open(&s, &e, &error, &model) == WNPU_OK && s.outside == 0, "%s",
                error.message);
        if (model != NULL) {
            const gm_weight *a = &whole->embedding, *b = &model->embedding;
            T_CHECK(whole->size == model->size && memcmp(a->packed, b->packed, (size_t)a->n16 * 16 *
                    a->k4 * 4) == 0 && memcmp(a->scale, b->scale, a->n * sizeof(float)) == 0,
                    "reads of %u bytes give other weights", (unsigned)most[i]);
        }
        wnpu_model_close(model);
    }
    wnpu_model_close(whole);
    free(e.file);
}

static void test_bad_reads(void)
{
    static const int64_t answers[] = {0, -1, -5, INT64_MIN, INT64_MAX, 1 << 20};
    edit e;
    wnpu_model *model;
    wnpu_error error;
    slow s;
    size_t i, at, calls;
    edit_begin(&e, TOY_F16);
    memset(&s, 0, sizeof s);
    s.most = 997;
    T_CHECK(slow_open(&s, &e, &error, &model) == WNPU_OK, "%s", error.message);
    wnpu_model_close(model);
    calls = s.calls;
    for (i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        for (at = 1; at <= calls; at++) {
            s.fail_at = at;
            s.answer = answers[i];
            T_CHECK(slow_open(&s, &e, &error, &model) == WNPU_E_IO && model == NULL &&
                    strstr(error.message, "at byte") != NULL, "call %u: %s", (unsigned)at,
                    error.message);
        }
    }
    T_CHECK(s.outside == 0, "%u reads outside of the source", (unsigned)s.outside);
    free(e.file);
}

/* ---- threads ---- */

#define WIDE 256 /* values of a state: tensors of several buffers */

/* A host's parallel-for that has lanes one after the other, from the last to the first. */
static void backwards(void *user, size_t count, void (*task)(void *context, size_t index),
                      void *context)
{
    ++*(int *)user;
    while (count-- > 0) {
        task(context, count);
    }
}

typedef struct own_source {
    edit e;
    pthread_t reader;   /* the only thread that may read */
    int others;         /* reads by others */
} own_source;

static int64_t own_read(void *user, uint64_t offset, void *buffer, size_t size)
{
    own_source *own = user;
    own->others += !pthread_equal(own->reader, pthread_self());
    memcpy(buffer, own->e.file + offset, size);
    return (int64_t)size;
}

/* Opens with so many threads, of a host if calls is not NULL, from callbacks if read is set. */
static int open_with(unsigned threads, int *calls, int read, int keep_float, own_source *own,
                     wnpu_model **model, wnpu_error *error)
{
    wnpu_model_config config;
    wnpu_source source;
    wnpu_model_config_init(&config, sizeof config);
    config.threads = threads;
    config.keep_float = (uint32_t)keep_float;
    config.parallel_for = calls != NULL ? backwards : NULL;
    config.parallel_user = calls;
    source.read = own_read;
    source.size = own->e.size;
    source.user = own;
    return read ? wnpu_model_open_source(model, &source, &config, error)
                : wnpu_model_open_memory(model, own->e.file, own->e.size, &config, error);
}

/* Rows 77 and others, in other pieces and buffers, become bad for good; 77 is named. */
static void first_bad_row(own_source *own, const char *name, size_t last)
{
    static const unsigned threads[] = {1, 2, 3, 8, 64};
    const size_t rows[] = {77, 78, 97, last};
    wnpu_model *model;
    wnpu_error error, wanted;
    toy_tensor t;
    int calls = 0, way;
    size_t i;
    (void)toy_find(own->e.file, own->e.size, name, 0, &t);
    for (i = 0; i < 4; i++) {
        memset(own->e.file + t.data + t.bytes / t.rows * rows[i], 0xff, 4);
    }
    T_CHECK(open_with(1, NULL, 1, 0, own, &model, &wanted) == WNPU_E_MODEL &&
            strstr(wanted.message, name) != NULL &&
            strstr(wanted.message, "row 77 ") != NULL, "%s", wanted.message);
    for (way = 0; way < 20; way++) {
        T_CHECK(open_with(threads[way % 5], way / 5 % 2 ? &calls : NULL, way / 10, 0, own, &model,
                          &error) == WNPU_E_MODEL && model == NULL &&
                strcmp(error.message, wanted.message) == 0, "way %d: %s", way, error.message);
    }
}

/* One model from any number of threads, and the first bad row is named. */
static void same_from_all(own_source *own, int keep_float)
{
    static const unsigned threads[] = {1, 2, 3, 8, 64};
    wnpu_model *first = NULL, *model;
    wnpu_error error;
    int calls = 0, way;
    size_t i;
    T_CHECK(open_with(1, NULL, 0, keep_float, own, &first, &error) == WNPU_OK, "%s",
            error.message);
    for (way = 0; way < 20 && first != NULL; way++) {
        i = (size_t)way % 5;
        T_CHECK(open_with(threads[i], way / 5 % 2 ? &calls : NULL, way / 10, keep_float, own,
                          &model, &error) == WNPU_OK, "%s", error.message);
        T_CHECK(model != NULL && model->data_size == first->data_size &&
                memcmp(model->data, first->data, first->data_size) == 0,
                "%u threads, way %d: another model", threads[i], way);
        wnpu_model_close(model);
    }
    T_CHECK(calls > 0 && own->others == 0, "%d calls, %d reads by others", calls, own->others);
    wnpu_model_close(first);
    first_bad_row(own, "encoder.blocks.0.mlp.0.weight", 900);
    first_bad_row(own, "encoder.blocks.0.attn.key.weight", 200);
}

/* What opening takes at most with a configuration of that size, which tells how many threads. */
static uint64_t peak_with(own_source *own, unsigned threads, size_t struct_size)
{
    wnpu_source source;
    wnpu_model_config config;
    wnpu_model_memory memory;
    wnpu_error error;
    source.read = own_read;
    source.size = own->e.size;
    source.user = own;
    wnpu_model_config_init(&config, sizeof config);
    config.threads = threads;
    config.struct_size = (uint32_t)struct_size;
    memory.struct_size = sizeof memory;
    T_CHECK(wnpu_model_measure_source(&source, &config, &memory, &error) == WNPU_OK, "%s",
            error.message);
    return memory.peak;
}

/* More threads need more memory. */
static void threads_need_memory(own_source *own)
{
    const size_t now = sizeof(wnpu_model_config);
    uint64_t one = peak_with(own, 1, now), four = peak_with(own, 4, now);
    T_CHECK(four > one, "%llu, %llu", (unsigned long long)one, (unsigned long long)four);
}

static void test_threads(void)
{
    static const struct { int type, state; } files[] = {
        {TOY_F32, WIDE}, {TOY_F16, WIDE}, {TOY_Q5_1, WIDE}, {TOY_F16, ROTATED_STATE}
    };
    toy_options o = toy_small();
    wnpu_model_config config;
    wnpu_model *model;
    wnpu_error error;
    own_source own;
    size_t i;
    for (i = 0; i < sizeof files / sizeof files[0]; i++) {
        memset(&own, 0, sizeof own);
        own.reader = pthread_self();
        o.type = files[i].type;
        o.state = files[i].state;
        o.audio_head = o.text_head = o.state / (int)ROTATED_HEAD;
        own.e.file = toy_model(&o, &own.e.size);
        threads_need_memory(&own);
        same_from_all(&own, i == 0);
        free(own.e.file);
    }
    edit_begin(&own.e, TOY_F16);
    wnpu_model_config_init(&config, sizeof config);
    config.threads = 65;
    T_CHECK(wnpu_model_open_memory(&model, own.e.file, own.e.size, &config, &error) ==
            WNPU_E_ARGUMENT && strstr(error.message, "threads 65") != NULL, "%s", error.message);
    free(own.e.file);
}

typedef struct cut_source {
    const unsigned char *file;
    uint64_t end; /* of what can be read */
} cut_source;

static int64_t cut_read(void *user, uint64_t offset, void *buffer, size_t n)
{
    const cut_source *c = user;
    uint64_t left = offset < c->end ? c->end - offset : 0;
    n = n < left ? n : (size_t)left;
    memcpy(buffer, c->file + offset, n);
    return (int64_t)n;
}

/* A file that threads read, each its own rows: the first byte that is missing is named, whoever
 * finds out and whatever else they find on the way. */
static void test_cut_while_read(void)
{
    static const unsigned threads[] = {1, 2, 4, 8};
    toy_options o = toy_small();
    wnpu_model_config config;
    mf_input input;
    cut_source cut;
    edit e;
    size_t i, k;
    o.state = WIDE;
    o.type = TOY_F16;
    e.file = toy_model(&o, &e.size);
    cut.file = e.file;
    input.source.read = cut_read;
    input.source.size = e.size;
    input.source.user = &cut;
    input.image = NULL;
    input.parallel_reads = 1;
    wnpu_model_config_init(&config, sizeof config);
    for (i = 1; i <= 60; i++) {
        char first[sizeof ((wnpu_error *)0)->message] = "";
        cut.end = e.size - (i == 1 ? 1 : e.size / 64 * i);
        for (k = 0; k < sizeof threads / sizeof threads[0]; k++) {
            wnpu_model *model = NULL;
            wnpu_error error;
            int status;
            config.threads = threads[k];
            status = mf_start(&model, &input, &config, &error);
            T_CHECK(status == WNPU_E_IO && model == NULL && strstr(error.message, "returned 0") !=
                    NULL, "cut at %llu: %s", (unsigned long long)cut.end, error.message);
            T_CHECK(k == 0 || strcmp(first, error.message) == 0, "%u threads: %s, one: %s",
                    threads[k], error.message, first);
            memcpy(first, error.message, sizeof first);
        }
    }
    free(e.file);
}

/* The second pass must not believe what the first one saw. */
static void test_changing_source(void)
{
    edit e;
    wnpu_model *model;
    wnpu_error error;
    slow s;
    size_t i, calls;
    edit_begin(&e, TOY_F16);
    memset(&s, 0, sizeof s);
    s.most = (size_t)-1;
    (void)slow_open(&s, &e, &error, &model);
    wnpu_model_close(model);
    calls = s.calls;
    for (i = 1; i <= calls; i++) {
        s.change_at = i;
        s.change = 864 + 5 * 100; /* length of token 100 */
        if (slow_open(&s, &e, &error, &model) == WNPU_OK) {
            T_CHECK(i > 3, "change at call %u was not seen", (unsigned)i);
        }
        wnpu_model_close(model);
    }
    s.change = e.size; /* none */
    s.noise = 1;
    s.most = 300;
    for (i = 0; i < 300; i++) {
        (void)slow_open(&s, &e, &error, &model);
        wnpu_model_close(model);
    }
    T_CHECK(s.outside == 0, "%u reads outside of the source", (unsigned)s.outside);
    free(e.file);
}

/* ---- arguments, configuration, files ---- */

static char log_text[512];
static int log_lines;

static void log_line(void *user, wnpu_log_level level, const char *text)
{
    (void)level;
    T_CHECK(user == log_text, "log_user");
    log_lines++;
    (void)snprintf(log_text, sizeof log_text, "%.500s", text);
}

static void model_test_arguments(void)
{
    edit e;
    wnpu_source source;
    wnpu_model *model = NULL;
    wnpu_error error;
    wnpu_model_config config;
    wnpu_allocator half;
    struct { wnpu_model_config config; uint32_t more[4]; } newer;
    edit_begin(&e, TOY_F16);
    T_CHECK(wnpu_model_open_memory(NULL, e.file, e.size, NULL, &error) == WNPU_E_ARGUMENT, "model");
    T_CHECK(wnpu_model_open_memory(&model, NULL, 0, NULL, &error) == WNPU_E_ARGUMENT, "data");
    T_CHECK(wnpu_model_open_source(&model, NULL, NULL, &error) == WNPU_E_ARGUMENT, "source");
    memset(&source, 0, sizeof source);
    T_CHECK(wnpu_model_open_source(&model, &source, NULL, &error) == WNPU_E_ARGUMENT, "read");
    T_CHECK(wnpu_model_open(&model, NULL, NULL, &error) == WNPU_E_ARGUMENT, "path");
    T_CHECK(wnpu_model_open(NULL, "x", NULL, NULL) == WNPU_E_ARGUMENT, "model and error");
    wnpu_model_config_init(NULL, sizeof config);
    wnpu_model_config_init(&config, sizeof config);
    T_CHECK(config.struct_size == sizeof config && config.keep_float == 0 && config.log == NULL &&
            config.allocator == NULL, "defaults");
    config.keep_float = 2;
    T_CHECK(wnpu_model_open_memory(&model, e.file, e.size, &config, &error) == WNPU_E_ARGUMENT,
            "keep_float 2");
    wnpu_model_config_init(&config, sizeof config);
    half.alloc = counter_alloc;
    half.release = NULL;
    config.allocator = &half;
    T_CHECK(wnpu_model_open_memory(&model, e.file, e.size, &config, &error) == WNPU_E_ARGUMENT,
            "half an allocator");
    config.struct_size = 0;
    T_CHECK(wnpu_model_open_memory(&model, e.file, e.size, &config, &error) == WNPU_E_VERSION,
            "struct_size 0");
    wnpu_model_config_init(&newer.config, sizeof newer);
    newer.config.keep_float = 1;
    newer.config.log = log_line;
    newer.config.log_user = log_text;
    T_CHECK(wnpu_model_open_memory(&model, e.file, e.size, &newer.config, NULL) == WNPU_OK &&
            model->has_float, "newer structure");
    T_CHECK(log_lines == 1 && strstr(log_text, "custom, f16") != NULL, "log: %s", log_text);
    wnpu_model_close(model);
    newer.more[2] = 1;
    T_CHECK(wnpu_model_open_memory(&model, e.file, e.size, &newer.config, &error) == WNPU_E_VERSION
            && model == NULL, "an unknown wish");
    newer.more[2] = 0;
    T_CHECK(wnpu_model_open_memory(&model, e.file, 100, &newer.config, NULL) == WNPU_E_MODEL &&
            log_lines == 2 && strstr(log_text, "ends at byte 100") != NULL, "log: %s", log_text);
    wnpu_model_config_init(&config, 8); /* an older structure ends after keep_float */
    memset((unsigned char *)&config + 8, 0x55, sizeof config - 8);
    T_CHECK(wnpu_model_open_memory(&model, e.file, e.size, &config, &error) == WNPU_OK, "older: %s",
            error.message);
    wnpu_model_close(model);
    free(e.file);
}

#ifndef WNPU_NO_STDIO /* else files cannot be opened by name */
static void test_files(void)
{
    char path[] = "test_model_XXXXXX";
    char longer[400];
    edit e;
    wnpu_model *model = NULL;
    wnpu_error error;
    int file = mkstemp(path);
    edit_begin(&e, TOY_Q8_0);
    T_CHECK(file >= 0 && write(file, e.file, e.size) == (ssize_t)e.size, "cannot write %s", path);
    (void)close(file);
    T_CHECK(wnpu_model_open(&model, path, NULL, &error) == WNPU_OK, "%s", error.message);
    T_CHECK(model != NULL && strcmp(model->weight_type, "q8_0") == 0, "weight type");
    wnpu_model_close(model);
    (void)unlink(path);
    T_CHECK(wnpu_model_open(&model, path, NULL, &error) == WNPU_E_IO && model == NULL &&
            strstr(error.message, "no such file") != NULL && strstr(error.message, path) != NULL,
            "%s", error.message);
    T_CHECK(wnpu_model_open(&model, ".", NULL, &error) == WNPU_E_IO &&
            strstr(error.message, "a directory") != NULL &&
            strstr(error.message, "build/pack DIRECTORY") != NULL, "%s", error.message);
    T_CHECK(mkfifo(path, 0600) == 0 && wnpu_model_open(&model, path, NULL, &error) == WNPU_E_IO &&
            strstr(error.message, "not a regular file") != NULL, "%s", error.message);
    (void)unlink(path);
    memset(longer, 'x', sizeof longer);
    longer[10] = '\n';
    longer[399] = '\0';
    T_CHECK(wnpu_model_open(&model, longer, NULL, &error) == WNPU_E_IO &&
            strstr(error.message, "errno") != NULL, "%s", error.message);
    free(e.file);
}
#endif

/* ---- OpenAI's sizes ---- */

/* A toy of 51866 tokens in full: a large vocabulary in the file. */
static void test_real_vocabulary(void)
{
    static const int32_t vocab[] = {51864, 51865, 51866};
    size_t i;
    for (i = 0; i < 3; i++) {
        toy_options o = toy_least(TOY_F16);
        wnpu_model *model;
        wnpu_model_info info;
        size_t size;
        unsigned char *file;
        wnpu_error error;
        o.n_vocab = vocab[i];
        o.n_base = 50257;
        o.mels = i == 2 ? 128 : o.mels; /* 51866 tokens are ambiguous with fewer */
        file = toy_model(&o, &size);
        T_CHECK(wnpu_model_open_memory(&model, file, size, NULL, &error) == WNPU_OK, "%s",
                error.message);
        memset(&info, 0, sizeof info);
        info.struct_size = sizeof info;
        T_CHECK(wnpu_model_get_info(model, &info) == WNPU_OK && info.n_vocab == vocab[i] &&
                info.n_languages == (i == 0 ? 0 : i == 1 ? 99 : 100) &&
                info.multilingual == (i > 0), "%d: %d languages", (int)vocab[i],
                (int)info.n_languages);
        wnpu_model_close(model);
        free(file);
    }
}

#ifndef WNPU_NO_STDIO
static void check_real(const char *name, const wnpu_model_info *want)
{
    char path[512];
    wnpu_model *model = NULL;
    wnpu_model_info info;
    wnpu_error error;
    if (life_cached(path, sizeof path, name)[0] == '\0') {
        t_skip(name);
        return;
    }
    T_CHECK(wnpu_model_open(&model, path, NULL, &error) == WNPU_OK, "%s", error.message);
    info.struct_size = sizeof info;
    T_CHECK(wnpu_model_get_info(model, &info) == WNPU_OK, "info");
    if (model != NULL) {
        T_CHECK(strcmp(info.name, want->name) == 0 && strcmp(info.weight_type, "f16") == 0, "%s %s",
                info.name, info.weight_type);
        T_CHECK(info.n_vocab == want->n_vocab && info.n_audio_ctx == 1500 && info.n_text_ctx == 448
                && info.n_audio_state == want->n_audio_state && info.n_text_state ==
                want->n_audio_state && info.n_audio_layer == want->n_audio_layer &&
                info.n_text_layer == want->n_audio_layer && info.n_audio_head == info.n_text_head &&
                info.n_audio_head * 64 == info.n_audio_state && info.n_mels == 80, "sizes");
        T_CHECK(info.multilingual == want->multilingual && info.n_languages == want->n_languages,
                "%d languages", (int)info.n_languages);
        T_CHECK(strcmp(wnpu_token_text(model, 0, NULL), "!") == 0, "token 0");
        T_CHECK(model->vocab.encodable, "the vocabulary lacks bytes");
    }
    wnpu_model_close(model);
}

static void test_real_tiny(void)
{
    static const wnpu_model_info want = {
        .name = "tiny", .n_vocab = 51865, .n_audio_state = 384, .n_audio_layer = 4,
        .multilingual = 1, .n_languages = 99
    };
    check_real("ggml-tiny.bin", &want);
}

static void test_real_base_en(void)
{
    static const wnpu_model_info want = {
        .name = "base.en", .n_vocab = 51864, .n_audio_state = 512, .n_audio_layer = 6
    };
    check_real("ggml-base.en.bin", &want);
}
#endif

static void model_tests(void)
{
    t_run("halves become floats exactly", test_half);
    t_run("finite and bounded numbers are told from others", test_sane);
    t_run("every tensor type loads the values of the file", test_values);
    t_run("columns of tokens that stand apart", test_wide_columns);
    t_run("tokens of all sizes", test_token_sizes);
    t_run("weights in 6 bits", test_weight_bits);
    t_run("given alignment heads", test_alignment_heads);
    t_run("rotated heads have the scores and outputs of the file's", test_rotation);
    t_run("quantised conversions stay within their step", test_conversion);
    t_run("information, tokens", test_info);
    t_run("names of models", test_names);
    t_run("messages: header", test_header_messages);
    t_run("messages: vocabulary", test_token_messages);
    t_run("messages: tensors", test_tensor_messages);
    t_run("messages: bytes left over", test_left_over);
    t_run("messages: names that are almost right", test_longer_names);
    t_run("foreign files are recognised", test_foreign);
    t_run("a file cut at any byte is refused", test_truncation);
    t_run("allocations that fail", test_allocation_failure);
    t_run("an allocator that does not align", test_misaligned_allocator);
    t_run("hostile sizes take little memory", test_hostile_sizes);
    t_run("corrupted bytes", test_corruption);
    t_run("short reads", test_short_reads);
    t_run("reads that fail", test_bad_reads);
    t_run("one model from any number of threads", test_threads);
    t_run("the same first missing byte from any number of threads", test_cut_while_read);
    t_run("a source that changes", test_changing_source);
    t_run("arguments and configuration", model_test_arguments);
#ifndef WNPU_NO_STDIO
    t_run("files", test_files);
    t_run("ggml-tiny.bin", test_real_tiny);
    t_run("ggml-base.en.bin", test_real_base_en);
#endif
    t_run("OpenAI's vocabularies", test_real_vocabulary);
}
