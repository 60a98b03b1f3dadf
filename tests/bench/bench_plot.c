/* bench_plot - the roofline of the encoder's and decoder's operations, as an SVG.
 *
 *     bench_plot --model MODEL --output FILE.svg [--threads N] [--isa NAME] [--commit TEXT]
 *
 * Up: multiply-accumulates a second. To the right: arithmetic intensity, multiply-accumulates for
 * each byte of the operands: weights, keys and values in int8, activations as the engine holds
 * them, each counted once. What the machine can do at most (S. Williams, A. Waterman, D. Patterson,
 * "Roofline", 2009) are the peak of int8 products and, where that is less, the bandwidth of memory
 * times the intensity. Roofs are the best of three measurements, operations are medians.
 *
 * The encoder's operations run one by one over a whole window and all layers, with their layer
 * norm, quantisation and epilogue. The decoder's are watched in a whole step; an operation's time
 * there begins where the one before ends. The decoder multiplies outliers among its activations, or
 * with one or two rows all of them, twice, which counts once. */
#include "../../whisper_npu.c"
#include "../lib/machine.h"
#include "peak.h"
#include "steps.h"

enum { ROUNDS = 5, STEPS = 41, POSITION = 80, MOST = 32, BEAMS = 8 };

typedef enum plot_group { ENCODER, ONE_ROW, EIGHT_ROWS, GROUPS } plot_group;

typedef struct operation {
    const char *name;
    plot_group group;
    double macs, bytes, ms;
} operation;

/* Operations of a decoder step. */
typedef enum part { QKV, SELF, PROJECTIONS, CROSS, MLP, VOCABULARY, PARTS } part;

static const char *const part_names[PARTS] = {
    "qkv", "self-attention", "projections", "cross-attention", "mlp", "vocabulary"
};

typedef struct plot {
    const char *model_path, *commit, *output;
    unsigned threads;
    int isa;
    wnpu_model *model;
    wnpu_session *session;
    tp_pool pool;               /* does the work of both */
    de_decoder *decoder;        /* the step that is watched */
    double since, part_ms[PARTS];
    double peak, memory, step, step_bytes; /* roofs: MAC/s, byte/s */
    operation operations[MOST];
    size_t n;
} plot;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_plot: %s: %s\n", what, why);
    exit(1);
}

static void add(plot *p, const char *name, plot_group group, double macs, double bytes, double ms)
{
    operation *o = &p->operations[p->n++];
    o->name = name;
    o->group = group;
    o->macs = macs;
    o->bytes = bytes;
    o->ms = ms;
}

/* ---- roofs ---- */

static void raise_to(double *roof, double measured)
{
    *roof = measured > *roof ? measured : *roof;
}

static void measure_roofs(plot *p)
{
    wnpu_isa isa = p->session->isa;
    double d = p->model->n_text_state, layers = p->model->n_text_layer;
    p->step_bytes = layers * 14 * d * d + (double)p->model->vocab.n_vocab * d +
                    layers * 2 * d * ((double)p->model->n_audio_ctx + POSITION);
    raise_to(&p->peak, peak_all(isa, 0, p->threads, 0.3).best);
    raise_to(&p->memory, peak_all(isa, (size_t)512 << 20, p->threads, 0.5).best);
    raise_to(&p->step, peak_all(isa, (size_t)p->step_bytes, p->threads, 0.3).best);
}

static double roof_at(const plot *p, double bandwidth, double intensity)
{
    return p->peak > 0.0 && bandwidth * intensity > p->peak ? p->peak : bandwidth * intensity;
}

/* ---- encoder ---- */

typedef struct stage {
    en_engine *e;
    const mf_layer *layer;
} stage;

static void conv1_task(void *context, size_t index, unsigned worker)
{
    stage *s = context;
    en_worker *w = &s->e->worker[worker];
    size_t rows = 2 * s->e->model->n_audio_ctx, t0 = index * s->e->rows;
    en_conv1(s->e, w, (ptrdiff_t)t0, rows - t0 < s->e->rows ? rows - t0 : s->e->rows, w->hidden);
}

/* Rows t0..t0+n-1 of the residual stream. */
static size_t block(const stage *s, size_t index, size_t *t0)
{
    size_t ctx = s->e->model->n_audio_ctx;
    *t0 = index * s->e->rows;
    return ctx - *t0 < s->e->rows ? ctx - *t0 : s->e->rows;
}

static void conv2_task(void *context, size_t index, unsigned worker)
{
    stage *s = context;
    en_worker *w = &s->e->worker[worker];
    size_t d = s->e->model->n_audio_state, t0, n = block(s, index, &t0);
    en_prepare_sparse(s->e, w, &(en_input){w->hidden, 2 * d, NULL}, n, 3 * d);
    en_multiply(s->e, w, w, gm_all_panels(&s->e->model->conv2),
                (en_output){s->e->x + t0 * d, d, OP_GELU});
}

static void qkv_task(void *context, size_t index, unsigned worker)
{
    stage *s = context;
    size_t t0, n = block(s, index, &t0);
    en_qkv(s->e, &s->e->worker[worker], s->layer, t0, n);
}

static void attention_task(void *context, size_t index, unsigned worker)
{
    stage *s = context;
    en_attend_task(s->e, index, worker);
}

static void attn_out_task(void *context, size_t index, unsigned worker)
{
    stage *s = context;
    en_worker *w = &s->e->worker[worker];
    size_t d = s->e->model->n_audio_state, t0, n = block(s, index, &t0);
    en_prepare(s->e, w, &(en_input){s->e->attended + t0 * d, d, NULL}, n, d);
    en_multiply(s->e, w, w, gm_all_panels(&s->layer->attn_out),
                (en_output){s->e->x + t0 * d, d, OP_ADD});
}

static void fc1_task(void *context, size_t index, unsigned worker)
{
    stage *s = context;
    en_worker *w = &s->e->worker[worker];
    size_t d = s->e->model->n_audio_state, t0, n = block(s, index, &t0);
    en_prepare(s->e, w, &(en_input){s->e->x + t0 * d, d, &s->layer->mlp_norm}, n, d);
    en_multiply(s->e, w, w, gm_all_panels(&s->layer->fc1),
                (en_output){w->hidden, 4 * d, OP_GELU});
}

static void fc2_task(void *context, size_t index, unsigned worker)
{
    stage *s = context;
    en_worker *w = &s->e->worker[worker];
    size_t d = s->e->model->n_audio_state, t0, n = block(s, index, &t0);
    en_prepare_sparse(s->e, w, &(en_input){w->hidden, 4 * d, NULL}, n, 4 * d);
    en_multiply(s->e, w, w, gm_all_panels(&s->layer->fc2),
                (en_output){s->e->x + t0 * d, d, OP_ADD});
}

/* Runs an operation over a window, in all layers if it is in each. */
static void time_encoder(plot *p, const char *name, tp_task task, size_t count, int layers,
                         double macs, double bytes)
{
    en_engine *e = &p->session->run.engine;
    double ms[ROUNDS];
    size_t i, l, n = layers ? e->model->n_audio_layer : 1;
    stage s;
    s.e = e;
    for (i = 0; i < ROUNDS; i++) {
        double since = os_now_ms();
        for (l = 0; l < n; l++) {
            s.layer = &e->model->encoder[l];
            tp_run(&p->pool, count, task, &s);
        }
        ms[i] = os_now_ms() - since;
    }
    add(p, name, ENCODER, macs * (double)n, bytes * (double)n, median(ms, ROUNDS));
}

/* A window of noise: time does not depend on what is said. */
static void measure_encoder(plot *p)
{
    ru_run *r = &p->session->run;
    ru_view view = wd_view(r, 0, ML_FRAMES);
    const wnpu_model *m = p->model;
    double t = m->n_audio_ctx, d = m->n_audio_state, in = 3.0 * m->n_mels, ms[ROUNDS], kv;
    size_t blocks = en_blocks(m->n_audio_ctx, r->engine.rows), i;
    size_t heads = m->n_audio_head * en_blocks(m->n_audio_ctx, EN_QUERIES);
    uint32_t seed = 1;
    for (i = 0; i < ML_SPAN; i++) {
        seed = seed * 1664525u + 1013904223u;
        r->audio.samples[i] = ((float)(seed >> 8) / 8388608.0f - 1.0f) * 0.1f;
    }
    wd_encode_window(r, &view);
    time_encoder(p, "conv1", conv1_task, en_blocks(2 * m->n_audio_ctx, r->engine.rows), 0,
                 2 * t * in * d, in * d + 2 * t * (4.0 * m->n_mels + 4 * d));
    time_encoder(p, "conv2", conv2_task, blocks, 0, t * 3 * d * d,
                 3 * d * d + 2 * t * 4 * d + t * 4 * d);
    time_encoder(p, "qkv", qkv_task, blocks, 1, t * 3 * d * d, 3 * d * d + t * (4 * d + 3 * d));
    time_encoder(p, "attention", attention_task, heads, 1, 2 * t * t * d, t * (3 * d + 4 * d));
    time_encoder(p, "attn_out", attn_out_task, blocks, 1, t * d * d, d * d + t * (4 * d + 8 * d));
    time_encoder(p, "fc1", fc1_task, blocks, 1, t * 4 * d * d, 4 * d * d + t * (4 * d + 16 * d));
    time_encoder(p, "fc2", fc2_task, blocks, 1, t * 4 * d * d, 4 * d * d + t * (16 * d + 8 * d));
    kv = 2.0 * m->n_text_layer;
    for (i = 0; i < ROUNDS; i++) {
        double since = os_now_ms();
        en_cross(&r->engine, r->decoder.cross);
        ms[i] = os_now_ms() - since;
    }
    add(p, "cross_kv", ENCODER, t * kv * d * d, kv * d * d + t * (4 * d + kv * d),
        median(ms, ROUNDS));
}

/* ---- decoder, watched through the host's parallel-for ---- */

static part part_of(const plot *p)
{
    de_stage of;
    de_get_stage(p->decoder, p->session->pool.part, &of);
    switch (of.kind) {
    case DE_QKV: return QKV;
    case DE_SELF: return SELF;
    case DE_CROSS: return CROSS;
    case DE_FC1: case DE_FC2: return MLP;
    case DE_ATTN_OUT: case DE_CROSS_Q: case DE_CROSS_OUT: return PROJECTIONS;
    default: return VOCABULARY;
    }
}

typedef struct lanes {
    void (*task)(void *context, size_t index);
    void *context;
} lanes;

static void run_lane(void *context, size_t index, unsigned worker)
{
    const lanes *l = context;
    (void)worker;
    l->task(l->context, index);
}

static void watch(void *user, size_t count, void (*task)(void *, size_t), void *context)
{
    plot *p = user;
    lanes job;
    job.task = task;
    job.context = context;
    tp_run(&p->pool, count, run_lane, &job);
    if (p->decoder != NULL) {
        p->part_ms[part_of(p)] += ru_elapsed_ms(&p->since);
    }
}

/* Multiply-accumulates and bytes of a step's parts, for rows of one window. */
static void part_costs(const wnpu_model *m, double rows, double macs[PARTS], double bytes[PARTS])
{
    double d = m->n_text_state, l = m->n_text_layer, vocab = m->vocab.n_vocab;
    double own = POSITION + STEPS / 2.0, ctx = m->n_audio_ctx;
    macs[QKV] = l * rows * 3 * d * d;
    bytes[QKV] = l * (3 * d * d + rows * (4 * d + 12 * d));
    macs[SELF] = l * rows * 2 * own * d;
    bytes[SELF] = l * rows * (2 * own * d + 16 * d);
    macs[PROJECTIONS] = l * rows * 3 * d * d;
    bytes[PROJECTIONS] = l * (3 * d * d + rows * (12 * d + 12 * d));
    macs[CROSS] = l * rows * 2 * ctx * d;
    bytes[CROSS] = l * (2 * ctx * d + rows * 8 * d);
    macs[MLP] = l * rows * 8 * d * d;
    bytes[MLP] = l * (8 * d * d + rows * (20 * d + 20 * d));
    macs[VOCABULARY] = rows * vocab * d;
    bytes[VOCABULARY] = vocab * d / 2 + rows * (4 * d + 4 * vocab);
}

/* Likely tokens leave few logits to refine. */
static void measure_steps(plot *p, de_decoder *d, size_t rows, plot_group group)
{
    static double ms[PARTS][STEPS];
    double macs[PARTS], bytes[PARTS];
    int32_t token[DE_ROWS];
    de_row row[DE_ROWS];
    size_t i, j;
    part_costs(p->model, (double)rows, macs, bytes);
    steps_start(token, rows);
    for (i = 0; i < STEPS; i++) {
        steps_rows(row, token, rows, 1, POSITION + i);
        memset(p->part_ms, 0, sizeof p->part_ms);
        p->decoder = d;
        p->since = os_now_ms();
        de_step(d, row, rows);
        p->part_ms[VOCABULARY] += ru_elapsed_ms(&p->since);
        p->decoder = NULL;
        for (j = 0; j < PARTS; j++) {
            ms[j][i] = p->part_ms[j];
        }
        steps_next(d, token, rows);
    }
    for (j = 0; j < PARTS; j++) {
        add(p, part_names[j], group, macs[j], bytes[j], median(ms[j], STEPS));
    }
}

static void measure_decoder(plot *p)
{
    de_decoder d;
    void *memory = steps_open(&d, &p->session->run.engine, BEAMS, 1);
    if (memory == NULL) {
        die("decoder", "out of memory");
    }
    measure_steps(p, &d, 1, ONE_ROW);
    measure_steps(p, &d, BEAMS, EIGHT_ROWS);
    free(memory);
}

/* ---- the picture ---- */

enum { WIDTH = 1040, HEIGHT = 720, LEFT = 78, RIGHT = 24, TOP = 64, BOTTOM = 116, ROOFS = 3 };
enum { LEGEND_WIDTH = 330, LEGEND_ROW = 21, LEGEND_ROWS = (int)GROUPS + ROOFS };

static const char *const group_names[GROUPS] = {
    "encoder, a window of 30 s", "decoder, a step for 1 row", "decoder, a step for 8 beams"
};
static const char *const group_colours[GROUPS] = {"#1f5fa8", "#b8341f", "#1d7a3a"};
static const char *const roof_styles[ROOFS] = {
    "stroke=\"#222\" stroke-width=\"2\"",
    "stroke=\"#222\" stroke-width=\"2\" stroke-dasharray=\"9 4\"",
    "stroke=\"#222\" stroke-width=\"1.5\" stroke-dasharray=\"2 4\""
};

typedef struct box {
    double x0, y0, x1, y1;
} box;

typedef struct canvas {
    FILE *f;
    const plot *p;
    double x0, x1, y0, y1;      /* decimal logarithms at the edges */
    box taken[2 * MOST + 1];    /* where no further label may stand */
    size_t n;
} canvas;

static double x_of(const canvas *c, double intensity)
{
    return LEFT + (log10(intensity) - c->x0) / (c->x1 - c->x0) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const canvas *c, double rate)
{
    return HEIGHT - BOTTOM - (log10(rate) - c->y0) / (c->y1 - c->y0) * (HEIGHT - TOP - BOTTOM);
}

static double intensity_at(const canvas *c, double x)
{
    return pow(10.0, c->x0 + (x - LEFT) / (WIDTH - LEFT - RIGHT) * (c->x1 - c->x0));
}

__attribute__((format(printf, 5, 6)))
static void text(const canvas *c, double x, double y, const char *style, const char *format, ...)
{
    char string[400];
    const char *s;
    va_list args;
    va_start(args, format);
    vsnprintf(string, sizeof string, format, args);
    va_end(args);
    fprintf(c->f, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style);
    for (s = string; *s != '\0'; s++) {
        if (*s == '&' || *s == '<' || *s == '>') {
            fprintf(c->f, "&#%d;", *s);
        } else if (*s >= ' ' && *s <= '~') {
            fputc(*s, c->f);
        }
    }
    fputs("</text>\n", c->f);
}

static void line(const canvas *c, double x0, double y0, double x1, double y1, const char *style)
{
    fprintf(c->f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x0, y0, x1, y1,
            style);
}

static void find_edges(canvas *c)
{
    const plot *p = c->p;
    double low = 1e30, x0 = 1e30, x1 = 0.0, top = p->peak;
    size_t i;
    for (i = 0; i < p->n; i++) {
        double x = p->operations[i].macs / p->operations[i].bytes;
        double y = p->operations[i].macs / p->operations[i].ms * 1e3;
        x0 = x < x0 ? x : x0;
        x1 = x > x1 ? x : x1;
        low = y < low ? y : low;
        top = y > top ? y : top;
    }
    c->x0 = log10(x0 / 2);
    c->x1 = log10(x1 * 2.5);
    c->y0 = log10(low / 2);
    c->y1 = log10(top * 1.7);
}

/* Lines at 1, 2 and 5 of each decade. */
static void draw_axes(const canvas *c)
{
    static const int steps[] = {1, 2, 5};
    const char *grid = "stroke=\"#e4e4e4\"";
    int decade, i;
    for (decade = -3; decade < 18; decade++) {
        for (i = 0; i < 3; i++) {
            double v = steps[i] * pow(10.0, decade), at = log10(v);
            if (at > c->x0 && at < c->x1) {
                line(c, x_of(c, v), TOP, x_of(c, v), HEIGHT - BOTTOM, grid);
                text(c, x_of(c, v), HEIGHT - BOTTOM + 18, "text-anchor=\"middle\"", "%g", v);
            }
            if (at > c->y0 && at < c->y1) {
                line(c, LEFT, y_of(c, v), WIDTH - RIGHT, y_of(c, v), grid);
                text(c, LEFT - 8, y_of(c, v) + 4, "text-anchor=\"end\"", "%g", v / 1e9);
            }
        }
    }
    fprintf(c->f, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" "
            "stroke=\"#555\"/>\n", LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    text(c, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - BOTTOM + 42, "class=\"axis\"",
         "arithmetic intensity, MAC per byte of the operands");
    fprintf(c->f, "<g transform=\"translate(24 %.1f) rotate(-90)\">",
            (HEIGHT - BOTTOM + TOP) / 2.0);
    text(c, 0, 0, "class=\"axis\"", "int8 GMAC/s");
    fputs("</g>\n", c->f);
}

/* A bandwidth from the edge of the picture up to the peak. */
static void draw_bandwidth(const canvas *c, double bandwidth, const char *style)
{
    double x0 = pow(10.0, c->x0), x1 = pow(10.0, c->x1), low = pow(10.0, c->y0);
    double top = c->p->peak > 0.0 ? c->p->peak : pow(10.0, c->y1);
    x0 = bandwidth * x0 < low ? low / bandwidth : x0;
    x1 = bandwidth * x1 > top ? top / bandwidth : x1;
    line(c, x_of(c, x0), y_of(c, bandwidth * x0), x_of(c, x1), y_of(c, bandwidth * x1), style);
}

static void draw_roofs(const canvas *c)
{
    const plot *p = c->p;
    double fast = p->step > p->memory ? p->step : p->memory;
    if (p->peak > 0.0) {
        line(c, x_of(c, p->peak / fast), y_of(c, p->peak), WIDTH - RIGHT, y_of(c, p->peak),
             roof_styles[0]);
    }
    draw_bandwidth(c, p->memory, roof_styles[1]);
    draw_bandwidth(c, p->step, roof_styles[2]);
}

static void draw_marker(const canvas *c, double x, double y, plot_group group)
{
    fprintf(c->f, "<path d=\"");
    if (group == ENCODER) {
        fprintf(c->f, "M%.1f %.1fa5 5 0 1 0 10 0a5 5 0 1 0 -10 0", x - 5, y);
    } else if (group == ONE_ROW) {
        fprintf(c->f, "M%.1f %.1fh9v9h-9z", x - 4.5, y - 4.5);
    } else {
        fprintf(c->f, "M%.1f %.1fl6 6l-6 6l-6 -6z", x, y - 6);
    }
    fprintf(c->f, "\" fill=\"%s\" stroke=\"#fff\"/>\n", group_colours[group]);
}

static void draw_legend(canvas *c)
{
    const plot *p = c->p;
    double x = WIDTH - RIGHT - 12 - LEGEND_WIDTH;
    double y = HEIGHT - BOTTOM - 12 - LEGEND_ROWS * LEGEND_ROW;
    box *b = &c->taken[c->n++];
    int i;
    b->x0 = x;
    b->y0 = y - 10;
    b->x1 = x + LEGEND_WIDTH;
    b->y1 = HEIGHT - BOTTOM - 12;
    fprintf(c->f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" fill=\"#fff\" "
            "stroke=\"#999\"/>\n", b->x0, b->y0, LEGEND_WIDTH, b->y1 - b->y0);
    for (i = 0; i < LEGEND_ROWS; i++, y += LEGEND_ROW) {
        if (i < (int)GROUPS) {
            draw_marker(c, x + 27, y + 7, (plot_group)i);
            text(c, x + 52, y + 11, "", "%s", group_names[i]);
        } else {
            line(c, x + 10, y + 7, x + 44, y + 7, roof_styles[i - (int)GROUPS]);
        }
    }
    y -= ROOFS * LEGEND_ROW;
    if (p->peak > 0.0) {
        text(c, x + 52, y + 11, "", "peak of int8 products, %.1f GMAC/s", p->peak / 1e9);
    } else {
        text(c, x + 52, y + 11, "", "peak of int8 products: unknown");
    }
    text(c, x + 52, y + 11 + LEGEND_ROW, "", "memory, %.1f GB/s", p->memory / 1e9);
    text(c, x + 52, y + 11 + 2 * LEGEND_ROW, "", "a step's working set (%.0f MB), %.1f GB/s",
         p->step_bytes / 1e6, p->step / 1e9);
}

/* ---- labels ---- */

static int is_free(const canvas *c, const box *b)
{
    size_t i;
    double x;
    if (b->x0 < LEFT + 4 || b->x1 > WIDTH - RIGHT - 4 || b->y0 < TOP + 4 ||
        b->y1 > HEIGHT - BOTTOM - 4) {
        return 0;
    }
    for (i = 0; i < c->n; i++) {
        const box *o = &c->taken[i];
        if (b->x0 < o->x1 && o->x0 < b->x1 && b->y0 < o->y1 && o->y0 < b->y1) {
            return 0;
        }
    }
    for (x = b->x0; x <= b->x1; x += 3) { /* roofs */
        double y0 = y_of(c, roof_at(c->p, c->p->memory, intensity_at(c, x)));
        double y1 = y_of(c, roof_at(c->p, c->p->step, intensity_at(c, x)));
        if ((y0 > b->y0 - 2 && y0 < b->y1 + 2) || (y1 > b->y0 - 2 && y1 < b->y1 + 2)) {
            return 0;
        }
    }
    return 1;
}

/* The nearest free place around the marker, with a line to it if that is not beside it. */
static void draw_label(canvas *c, const operation *o)
{
    double x = x_of(c, o->macs / o->bytes), y = y_of(c, o->macs / o->ms * 1e3), distance, angle;
    double width = 7.4 * (double)strlen(o->name);
    for (distance = 9; distance < 240; distance += 6) {
        for (angle = 0; angle < 6.28; angle += 0.2618) {
            double at_x = x + distance * cos(angle), at_y = y + distance * sin(angle);
            box b;
            b.x0 = cos(angle) < -0.3 ? at_x - width : cos(angle) > 0.3 ? at_x : at_x - width / 2;
            b.x1 = b.x0 + width;
            b.y0 = at_y - 7;
            b.y1 = at_y + 7;
            if (!is_free(c, &b)) {
                continue;
            }
            if (distance > 14) {
                line(c, x, y, at_x, at_y, "stroke=\"#999\" stroke-width=\"0.8\"");
            }
            fprintf(c->f, "<g fill=\"%s\">", group_colours[o->group]);
            text(c, b.x0, b.y1 - 3, "", "%s", o->name);
            fputs("</g>\n", c->f);
            c->taken[c->n++] = b;
            return;
        }
    }
}

static void draw_operations(canvas *c)
{
    size_t i;
    for (i = 0; i < c->p->n; i++) {
        const operation *o = &c->p->operations[i];
        double x = x_of(c, o->macs / o->bytes), y = y_of(c, o->macs / o->ms * 1e3);
        box *b = &c->taken[c->n++];
        b->x0 = x - 6;
        b->y0 = y - 6;
        b->x1 = x + 6;
        b->y1 = y + 6;
    }
    for (i = 0; i < c->p->n; i++) {
        draw_label(c, &c->p->operations[i]);
    }
    for (i = 0; i < c->p->n; i++) {
        const operation *o = &c->p->operations[i];
        draw_marker(c, x_of(c, o->macs / o->bytes), y_of(c, o->macs / o->ms * 1e3), o->group);
    }
}

static void draw(const plot *p)
{
    static canvas c;
    char machine[300];
    c.p = p;
    c.f = fopen(p->output, "w");
    if (c.f == NULL) {
        die(p->output, strerror(errno));
    }
    machine_name(machine, sizeof machine);
    find_edges(&c);
    fprintf(c.f, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"Helvetica, Arial, sans-serif\" "
            "font-size=\"13\" fill=\"#222\">\n<style>.axis { font-size: 14px; "
            "text-anchor: middle } .title { font-size: 18px }</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    text(&c, LEFT, 28, "class=\"title\"", "Whisper %s: what each operation reaches of the machine",
         p->model->name);
    text(&c, LEFT, 50, "", "%s; %s, %u thread%s, commit %s", machine,
         wnpu_isa_name(p->session->isa), p->threads, p->threads == 1 ? "" : "s", p->commit);
    draw_axes(&c);
    draw_roofs(&c);
    draw_legend(&c);
    draw_operations(&c);
    text(&c, LEFT, HEIGHT - 48, "", "Bytes: weights, keys and values in int8, activations as the "
         "engine holds them, each counted once.");
    text(&c, LEFT, HEIGHT - 30, "", "Operations: medians, with their norms, quantisation and "
         "epilogues. Roofs: the best of three measurements.");
    text(&c, LEFT, HEIGHT - 12, "", "Projections: outputs of both attentions and queries of the "
         "cross-attention.");
    fputs("</svg>\n", c.f);
    if (ferror(c.f) || fclose(c.f) != 0) {
        die(p->output, "cannot write");
    }
}

static void print_table(const plot *p)
{
    size_t i;
    printf("%-28s %-16s %9s %9s %8s\n", "", "", "MAC/byte", "GMAC/s", "of roof");
    for (i = 0; i < p->n; i++) {
        const operation *o = &p->operations[i];
        double intensity = o->macs / o->bytes, rate = o->macs / o->ms * 1e3;
        double bandwidth = o->group == ENCODER ? p->memory : p->step;
        printf("%-28s %-16s %9.2f %9.1f %6.0f %%\n", group_names[o->group], o->name, intensity,
               rate / 1e9, 100 * rate / roof_at(p, bandwidth, intensity));
    }
}

static void open_all(plot *p)
{
    wnpu_config config;
    wnpu_error error;
    if (wnpu_model_open(&p->model, p->model_path, NULL, &error) != WNPU_OK) {
        die(p->model_path, error.message);
    }
    p->threads = p->threads == 0 ? os_cpus() : p->threads;
    if (tp_open(&p->pool, p->threads, NULL, NULL, NULL, &error) != WNPU_OK) {
        die("threads", error.message);
    }
    wnpu_config_init(&config, sizeof config);
    config.threads = p->threads < 2 ? 2 : p->threads; /* one thread would not ask the host */
    config.isa = p->isa;
    config.parallel_for = watch;
    config.parallel_user = p;
    if (wnpu_session_open(&p->session, p->model, &config, NULL, 0, &error) != WNPU_OK) {
        die("session", error.message);
    }
}

int main(int argc, char **argv)
{
    static plot p;
    int i;
    p.commit = "unknown";
    for (i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--model") == 0) {
            p.model_path = argv[i + 1];
        } else if (strcmp(argv[i], "--output") == 0) {
            p.output = argv[i + 1];
        } else if (strcmp(argv[i], "--threads") == 0) {
            p.threads = (unsigned)strtoul(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--isa") == 0) {
            p.isa = wnpu_isa_from_name(argv[i + 1]);
        } else if (strcmp(argv[i], "--commit") == 0) {
            p.commit = argv[i + 1];
        } else {
            break;
        }
    }
    if (i < argc || p.model_path == NULL || p.output == NULL || p.threads > 64) {
        die("options", "see the top of tests/bench/bench_plot.c");
    }
    open_all(&p);
    measure_roofs(&p);
    measure_encoder(&p);
    measure_roofs(&p);
    measure_decoder(&p);
    measure_roofs(&p);
    print_table(&p);
    draw(&p);
    wnpu_session_close(p.session);
    tp_close(&p.pool);
    wnpu_model_close(p.model);
    return 0;
}
