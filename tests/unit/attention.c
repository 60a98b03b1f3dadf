/* INT8 attention against float on what real models compute on a real recording. The float path
 * runs as it always does. After each pass of attention its queries, keys and values are brought
 * into the INT8 path's forms, and the outputs of both are compared: self-attention of the encoder,
 * self- and cross-attention of the decoder with the recording's own tokens, in every layer of tiny
 * and base.en.
 *
 * The int8 scale: each row of outputs (one token, one head) is quantised symmetrically; its scale
 * is the largest magnitude of the float path's row over 127, and the INT8 path's row gets the same
 * one. An error is the difference of two such integers. Correlation is Pearson's, of the outputs
 * as they are. Both are over all rows of a layer.
 *
 * Then the INT8 path's logits for the same tokens: most are int8 times int8, and those that matter
 * are computed in full. All of them in full must have the same winner at every position. */
#include "../lib/life.h"

typedef struct figures {
    double n, x, y, xx, yy, xy; /* sums over outputs: float path x, INT8 path y */
    double error, within;       /* sum of errors; how many are at most 5 */
} figures;

/* Two sessions of one model. */
typedef struct pair {
    wnpu_model *model;
    wnpu_session *exact, *int8;
    int32_t tokens[448];
    size_t n;
    float *got;                 /* [DE_ROWS, n_text_state] of the INT8 path */
    figures cross[64], self[64]; /* of each decoder layer */
    size_t layers;              /* encoder layers seen */
} pair;

/* Rows of n values of one head. */
static void compare(figures *f, const float *want, const float *got, size_t n)
{
    float peak = 0.0f;
    size_t i;
    for (i = 0; i < n; i++) {
        peak = fabsf(want[i]) > peak ? fabsf(want[i]) : peak;
    }
    T_CHECK(peak > 0.0f, "a row of zeros");
    for (i = 0; i < n; i++) {
        double x = (double)want[i], y = (double)got[i], scale = 127.0 / (double)peak;
        double error = fabs(rint(x * scale) - rint(y * scale));
        f->n += 1;
        f->x += x;
        f->y += y;
        f->xx += x * x;
        f->yy += y * y;
        f->xy += x * y;
        f->error += error;
        f->within += error <= 5.0;
    }
}

static void check(const char *what, size_t layer, const figures *f)
{
    double xx = f->xx - f->x * f->x / f->n, yy = f->yy - f->y * f->y / f->n;
    double r = (f->xy - f->x * f->y / f->n) / sqrt(xx * yy);
    printf("  %s, layer %d: correlation %.6f, mean error %.3f, %.2f %% within 5\n", what,
           (int)layer, r, f->error / f->n, 100.0 * f->within / f->n);
    T_CHECK(r >= 0.999, "correlation"); /* without rows it is no number */
    T_CHECK(f->error / f->n < 2.0, "mean error");
    T_CHECK(f->within >= 0.95 * f->n, "errors above 5");
}

/* ---- the float path's forms ---- */

static void get_key(const en_heads *h, size_t head, size_t t, float *x)
{
    const float *panel = h->kf + (head * h->keys + t / 16 * 16) * h->hd;
    size_t c;
    for (c = 0; c < h->hd; c++) {
        x[c] = panel[c * 16 + t % 16];
    }
}

static void get_value(const en_heads *h, size_t head, size_t t, float *x)
{
    const float *panels = h->vf + head * h->keys * h->hd;
    size_t c;
    for (c = 0; c < h->hd; c++) {
        x[c] = panels[(c / 16 * h->keys + t) * 16 + c % 16];
    }
}

/* The float path itself against the definition, for one query. */
static void attention_check_float(const en_heads *h, size_t head, size_t n, const float *query,
                                  float unit, const float *out)
{
    static double weight[1500];
    double sum[EN_MAX_HEAD] = {0}, top = -1e30, total = 0.0, peak = 0.0, worst = 0.0;
    float x[EN_MAX_HEAD];
    size_t t, c;
    for (t = 0; t < n; t++) {
        get_key(h, head, t, x);
        for (c = 0, weight[t] = 0.0; c < h->hd; c++) {
            weight[t] += (double)query[c] * (double)x[c] * (double)unit;
        }
        top = weight[t] > top ? weight[t] : top;
    }
    for (t = 0; t < n; t++) {
        double w = exp(weight[t] - top);
        get_value(h, head, t, x);
        total += w;
        for (c = 0; c < h->hd; c++) {
            sum[c] += w * (double)x[c];
        }
    }
    for (c = 0; c < h->hd; c++) {
        double difference = fabs(sum[c] / total - (double)out[c]);
        peak = fabs(sum[c] / total) > peak ? fabs(sum[c] / total) : peak;
        worst = difference > worst ? difference : worst;
    }
    T_CHECK(worst < 1e-4 * peak, "the float path is off by %g of %g", worst, peak);
}

/* Positions t0..t0+n-1, as many at a time as steps, go to the INT8 path's cache. */
static void hand_over(const en_engine *e, en_heads *to, const en_heads *from, size_t t0, size_t n,
                      size_t steps)
{
    float x[EN_BLOCK_ROWS_MAX * EN_MAX_HEAD];
    int8_t q[EN_BLOCK_ROWS_MAX * EN_MAX_HEAD];
    size_t head, t, i, hd = from->hd;
    for (head = 0; head < from->heads; head++) {
        for (t = t0; t < t0 + n; t += steps) {
            size_t rows = t0 + n - t < steps ? t0 + n - t : steps;
            for (i = 0; i < rows; i++) {
                get_key(from, head, t + i, x + i * hd);
            }
            en_store_keys(e, &(en_span){to, head, t, rows}, x, hd, q);
            for (i = 0; i < rows; i++) {
                get_value(from, head, t + i, x + i * hd);
            }
            en_store_values(e, &(en_span){to, head, t, rows}, x, hd, q);
        }
    }
}

/* ---- looking on: the host's parallel-for of the float session ---- */

static void attend_encoder(pair *p)
{
    const en_engine *f = &p->exact->run.engine;
    en_engine *e = &p->int8->run.engine;
    size_t ctx = f->model->n_audio_ctx, d = f->model->n_audio_state, hd = f->self.hd, t, head;
    figures sum;
    memset(&sum, 0, sizeof sum);
    hand_over(e, &e->self, &f->self, 0, ctx, EN_BLOCK_ROWS_MAX);
    e->op->quantise(e->query, f->query_exact, hd, f->self.heads * ctx, hd, e->query_scale);
    tp_run(e->pool, f->self.heads * en_blocks(ctx, EN_QUERIES), en_attend_task, e);
    for (t = 0; t < ctx; t++) {
        for (head = 0; head < f->self.heads; head++) {
            size_t at = t * d + head * hd;
            compare(&sum, f->attended + at, e->attended + at, hd);
        }
    }
    for (t = p->layers; t < ctx; t += 61) {
        head = t % f->self.heads;
        attention_check_float(&f->self, head, ctx, f->query_exact + (head * ctx + t) * hd, 1.0f,
                              f->attended + t * d + head * hd);
    }
    check("encoder", p->layers++, &sum);
}

/* The INT8 path on the queries that stand in d->qkv, with this stride, and the comparison with
 * d->attended. Self-attention: row r sees the keys up to its own position. */
static void attend_decoder(pair *p, figures *sum, en_heads *heads, const en_heads *exact,
                           size_t stride, int self)
{
    const de_decoder *d = &p->exact->run.decoder;
    en_engine *e = &p->int8->run.engine;
    size_t n = e->model->n_text_state, hd = heads->hd, head, r;
    if (self) {
        hand_over(e, heads, exact, d->rows[0].position, d->n_rows, 1);
    }
    for (head = 0; head < heads->heads; head++) {
        en_span keys = {heads, head, 0, e->model->n_audio_ctx};
        en_queries q = {0};
        q.n = self ? 1 : d->n_rows;
        q.ldx = stride;
        q.ldo = n;
        for (r = 0; r < d->n_rows; r += q.n) {
            q.x = d->qkv + head * hd + r * stride;
            q.out = p->got + r * n + head * hd;
            keys.n = self ? d->rows[r].position + 1 : keys.n;
            de_attend(e, &e->worker[0], &keys, &q);
        }
        for (r = 0; r < d->n_rows; r++) {
            compare(sum, d->attended + r * n + head * hd, p->got + r * n + head * hd, hd);
        }
    }
    r = d->rows[0].position % d->n_rows;
    head = d->rows[0].position % heads->heads;
    attention_check_float(exact, head, self ? d->rows[r].position + 1 : e->model->n_audio_ctx,
                          d->qkv + r * stride + head * hd, 1.0f / sqrtf((float)hd),
                          d->attended + r * n + head * hd);
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

/* Looks at a part of the decoder's step, if it was attention. */
static void look_at_part(pair *p, size_t at)
{
    const de_decoder *d = &p->exact->run.decoder;
    const de_decoder *i = &p->int8->run.decoder;
    size_t n = p->model->n_text_state, l;
    de_stage part;
    de_get_stage(d, at, &part);
    l = part.layer;
    if (part.kind == DE_SELF) {
        attend_decoder(p, &p->self[l], &i->self[l], &d->self[l], 3 * n, 1);
    } else if (part.kind == DE_CROSS) {
        attend_decoder(p, &p->cross[l], &i->cross[l], &d->cross[l], n, 0);
    }
}

/* Runs the job on the other session's threads, then looks at what it left. */
static void look_on(void *user, size_t count, void (*task)(void *, size_t), void *context)
{
    pair *p = user;
    const tp_pool *pool = &p->exact->pool;
    lanes job;
    job.task = task;
    job.context = context;
    tp_run(&p->int8->pool, count, run_lane, &job);
    if (pool->task == en_attend_task) {
        attend_encoder(p);
    } else if (pool->task == de_task) {
        look_at_part(p, pool->part);
    }
}

static void encode(pair *p)
{
    en_engine *f = &p->exact->run.engine;
    en_log_mel(f, p->exact->run.audio.samples, ML_FRAMES);
    en_run(f);
    T_CHECK(p->layers == f->model->n_audio_layer, "saw %d layers", (int)p->layers);
}

static void decode(pair *p)
{
    de_decoder *d = &p->exact->run.decoder, *i = &p->int8->run.decoder;
    size_t done, r;
    en_cross(d->e, d->cross);
    for (r = 0; r < p->model->n_text_layer; r++) {
        hand_over(i->e, &i->cross[r], &d->cross[r], 0, p->model->n_audio_ctx, EN_BLOCK_ROWS_MAX);
    }
    for (done = 0; done < p->n; done += DE_ROWS) {
        size_t rows = p->n - done < DE_ROWS ? p->n - done : DE_ROWS;
        de_row row[DE_ROWS];
        memset(row, 0, sizeof row);
        for (r = 0; r < rows; r++) {
            row[r].token = p->tokens[done + r];
            row[r].position = (uint32_t)(done + r);
        }
        de_step(d, row, rows);
    }
    for (r = 0; r < p->model->n_text_layer; r++) {
        check("decoder, self", r, &p->self[r]);
    }
    for (r = 0; r < p->model->n_text_layer; r++) {
        check("decoder, cross", r, &p->cross[r]);
    }
}

/* ---- logits ---- */

typedef struct gap {
    double off;     /* a logit from what it is in full */
    double behind;  /* the winner in full from the best of those that 4 bits and int8 gave */
} gap;

/* Logits of the rows of the last step, before any is computed again. */
static void first_look(de_decoder *d)
{
    de_worker *own = &d->worker[0];
    size_t item;
    de_get_stage(d, d->e->model->n_text_layer * DE_OF_LAYER, &own->stage);
    own->ready = 0;
    for (item = 0; item < own->stage.items; item++) {
        de_multiply(d, item, 0);
    }
}

/* The row of logits that a step left, beside the same in full and what a first look sees: 4 bits
 * times a row of int8. */
static void compare_logits(de_decoder *d, gap *worst)
{
    const wnpu_model *m = d->e->model;
    size_t vocab = (size_t)m->vocab.n_vocab, won = d->e->op->argmax(d->logits, vocab);
    size_t winner = 0, t;
    float most = -1e30f, won_with = d->logits[won];
    double behind;
    for (t = 0; t < vocab; t++) {
        float full = de_logit(d->e, d->normed, &d->rest[0], (uint32_t)t);
        double off = fabs((double)d->logits[t] - (double)full);
        if (full > most) {
            most = full;
            winner = t;
        }
        worst->off = off > worst->off ? off : worst->off;
    }
    T_CHECK(won == winner && won_with == most, "token %zu wins with %g, and in full %zu with %g",
            won, (double)won_with, winner, (double)most);
    first_look(d);
    behind = (double)d->e->op->largest(d->logits, vocab) - (double)d->logits[winner];
    worst->behind = behind > worst->behind ? behind : worst->behind;
}

/* The tokens' own window is in the INT8 path's cross-attention caches: decode() left it there. */
static void check_logits(pair *p)
{
    de_decoder *d = &p->int8->run.decoder;
    size_t i;
    gap worst = {0.0, 0.0};
    for (i = 0; i < p->n; i++) {
        de_row row;
        memset(&row, 0, sizeof row);
        row.token = p->tokens[i];
        row.position = (uint32_t)i;
        row.want = 1;
        de_step(d, &row, 1);
        compare_logits(d, &worst);
    }
    printf("  logits: off by %.2f at most; the winner %.2f behind at first\n", worst.off,
           worst.behind);
    T_CHECK(worst.off > 0.0 && worst.off < DE_LOW_MARGIN / 2.0 &&
            worst.behind < DE_LOW_MARGIN / 4.0,
            "logits are off by %g, a winner is %g behind", worst.off, worst.behind);
}

/* ---- model and recording ---- */

static wnpu_session *open_session(pair *p, wnpu_compute compute)
{
    wnpu_config config;
    wnpu_session *session = NULL;
    wnpu_error error;
    wnpu_config_init(&config, sizeof config);
    config.compute = (int32_t)compute;
    if (compute == WNPU_COMPUTE_FLOAT) {
        config.threads = 2;
        config.parallel_for = look_on;
        config.parallel_user = p;
    }
    T_CHECK(wnpu_session_open(&session, p->model, &config, NULL, 0, &error) == WNPU_OK, "%s",
            error.message);
    return session;
}

/* The prompt and the tokens of text that the INT8 path finds in the first window. */
static void find_tokens(pair *p, const wnpu_audio *audio)
{
    const tk_vocab *v = &p->model->vocab;
    wnpu_segment segment;
    size_t i, k;
    T_CHECK(wnpu_transcribe(p->int8, NULL, audio) == WNPU_OK, "%s", wnpu_session_error(p->int8));
    p->n = 0;
    p->tokens[p->n++] = v->sot;
    if (v->multilingual) {
        p->tokens[p->n++] = v->language0;
        p->tokens[p->n++] = v->transcribe;
    }
    p->tokens[p->n++] = v->no_timestamps;
    for (i = 0; wnpu_get_segment(p->int8, i, &segment) == WNPU_OK && segment.window == 0; i++) {
        for (k = 0; k < segment.n_tokens && p->n < 400; k++) {
            p->tokens[p->n++] = segment.tokens[k].id;
        }
    }
    printf("  %d tokens\n", (int)p->n);
    T_CHECK(p->n > 40, "too few tokens");
}

/* The first window of 16 kHz mono 16-bit audio; no samples before the recording matter here. */
static void fill_span(float *span, const wnpu_audio *audio)
{
    const unsigned char *bytes = audio->data;
    size_t i;
    memset(span, 0, ML_SPAN * sizeof *span);
    for (i = 0; i + ML_MARGIN < ML_SPAN && i < audio->frames; i++) {
        int sample = bytes[2 * i] | bytes[2 * i + 1] << 8;
        span[ML_MARGIN + i] = (float)(sample < 32768 ? sample : sample - 65536) / 32768.0f;
    }
}

static void layers(const char *name)
{
    static pair p;
    char path[512];
    wnpu_model_config config;
    wnpu_audio audio;
    wnpu_error error;
    unsigned char *wav;
    size_t size;
    wav = life_load(life_cached(path, sizeof path, "a13.wav"), &size);
    if (wav == NULL) {
        t_skip("no recording; examples/fetch.sh all gets it");
        return;
    }
    wnpu_audio_init(&audio, sizeof audio);
    T_CHECK(wnpu_wav_open(&audio, wav, size, &error) == WNPU_OK && audio.rate == 16000 &&
            audio.channels == 1 && audio.format == WNPU_SAMPLE_S16LE, "%s is of another kind",
            path);
    if (life_cached(path, sizeof path, name)[0] == '\0') {
        t_skip("no model; examples/fetch.sh all gets it");
        free(wav);
        return;
    }
    memset(&p, 0, sizeof p);
    wnpu_model_config_init(&config, sizeof config);
    config.keep_float = 1;
    T_CHECK(wnpu_model_open(&p.model, path, &config, &error) == WNPU_OK, "%s", error.message);
    p.exact = p.model != NULL ? open_session(&p, WNPU_COMPUTE_FLOAT) : NULL;
    p.int8 = p.model != NULL ? open_session(&p, WNPU_COMPUTE_INT8) : NULL;
    p.got = p.model != NULL ? calloc(DE_ROWS * p.model->n_text_state, sizeof(float)) : NULL;
    if (p.exact != NULL && p.int8 != NULL && p.got != NULL && t_bad == 0) {
        find_tokens(&p, &audio);
        fill_span(p.exact->run.audio.samples, &audio);
        encode(&p);
        decode(&p);
        check_logits(&p);
    }
    free(p.got);
    free(wav);
    wnpu_session_close(p.exact);
    wnpu_session_close(p.int8);
    wnpu_model_close(p.model);
}

static void attention_tiny(void) { layers("ggml-tiny.bin"); }

static void base_en(void)
{
    if (getenv("WNPU_EMULATOR") != NULL) {
        printf("  skipped: the float path of base.en takes too long in an emulator\n");
        t_skip_now = 1;
        return;
    }
    layers("ggml-base.en.bin");
}

static void attention_tests(void)
{
    t_run("attention in INT8 and in float, every layer of tiny", attention_tiny);
    t_run("attention in INT8 and in float, every layer of base.en", base_en);
}
