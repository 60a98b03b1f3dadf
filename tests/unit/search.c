/* Search, rules, gates and prompts, against slow references written from their definitions. */
#include "../lib/life.h"
#include <ctype.h>

static uint32_t dice_state = 1;

static uint32_t dice(uint32_t sides)
{
    dice_state = dice_state * 1664525u + 1013904223u;
    return (dice_state >> 8) % sides;
}

/* The prompt of the window that stands there. */
static void make_prompt(ru_run *r, int context, se_prompt *p)
{
    const ru_view view = wd_view(r, 0, ML_FRAMES);
    wd_make_prompt(r, &view, context, p);
}

static wnpu_session *search_open_session(const wnpu_model *m, unsigned threads, unsigned beams,
                                         int compute)
{
    wnpu_config c;
    wnpu_config_init(&c, sizeof c);
    c.threads = threads;
    c.max_beams = beams;
    c.compute = compute;
    c.result_bytes = 1 << 20;
    return life_open(m, &c);
}

/* A session whose first window is encoded, with rules that allow all but special tokens. */
static wnpu_session *encoded(const wnpu_model *m, unsigned threads, unsigned beams, int compute)
{
    wnpu_session *s = search_open_session(m, threads, beams, compute);
    float *x = life_burst(ML_SPAN, 99);
    wnpu_params_init(&s->run.call.params, sizeof s->run.call.params);
    s->run.call.params.vad = 0; /* toys' sounds are no speech */
    s->run.call.params.suppress_non_speech = 0;
    T_CHECK(wi_set_rules(&s->run.rules, &s->run.text.search.filter, &s->run.engine, &s->run.call) ==
                WNPU_OK,
            "rules");
    memcpy(s->run.audio.samples, x, ML_SPAN * sizeof *x);
    encode_window(&s->run, ML_FRAMES);
    free(x);
    return s;
}

static se_options options_of(size_t width, size_t max_tokens)
{
    se_options o;
    memset(&o, 0, sizeof o);
    o.width = width;
    o.patience = 1.0f;
    o.length_penalty = 1.0f;
    o.max_tokens = max_tokens;
    return o;
}

static int32_t prompt_tokens[64];

static se_prompt prompt_of(const wnpu_model *m)
{
    se_prompt p;
    const tk_vocab *v = &m->vocab;
    memset(&p, 0, sizeof p);
    prompt_tokens[p.n++] = v->sot_prev;
    for (; p.n < 6; p.n++) {
        prompt_tokens[p.n] = (int32_t)(40 + 3 * p.n);
    }
    p.sot = p.n;
    prompt_tokens[p.n++] = v->sot;
    prompt_tokens[p.n++] = v->language0;
    prompt_tokens[p.n++] = v->transcribe;
    p.tokens = prompt_tokens;
    return p;
}

/* ---- compressed size ---- */

typedef struct sample {
    char *text;
    size_t n;
} sample;

/* Texts of all kinds: prose of few and of many words, loops, other scripts, noise, one letter. */
static sample make_text(int kind)
{
    static const char *const words[] = {
        "the", "and", "of", "to", "printing", "in", "is", "sense", "which", "exhibition", "he",
        "\xd1\x81\xd0\xbb\xd0\xbe\xd0\xb2\xd0\xbe", "\xe4\xb8\x96\xe7\x95\x8c", "modern", "a",
        "Chinese", "impressions", "relief", "centuries", "before", "wood", "cutters", "I", "was"
    };
    static const size_t sizes[] = {1, 2, 3, 10, 30, 100, 250, 600, 1500, 4000, 16384};
    sample s;
    size_t limit = sizes[(size_t)kind % 11], period = 1 + dice(60);
    int how = kind / 11 % 6;
    s.text = malloc(limit + 64);
    s.n = 0;
    while (s.n < limit) {
        if (how == 0 || how == 1) { /* words of 5 or 24 kinds */
            const char *w = words[dice(how == 0 ? 24 : 5)];
            s.n += (size_t)sprintf(s.text + s.n, " %s", w);
        } else if (how == 2) { /* a loop after a start of its own */
            s.text[s.n] = s.n < period ? (char)('a' + dice(26)) : s.text[s.n - period];
            s.n++;
        } else if (how == 3) { /* noise */
            s.text[s.n++] = (char)dice(256);
        } else if (how == 4) { /* few letters */
            s.text[s.n++] = (char)('a' + dice(3));
        } else { /* letters as unequal as they get: long codes */
            uint32_t r = dice(1u << 20), letter = 0;
            while (r & 1) {
                r >>= 1;
                letter++;
            }
            s.text[s.n++] = (char)('a' + letter);
        }
    }
    s.n = limit;
    return s;
}

static void compressed_size(void)
{
    enum { COUNT = 330 };
    static zl_work work;
    static sample samples[COUNT];
    char name[] = "/tmp/test_search_XXXXXX", command[256];
    int fd = mkstemp(name), i, exact = 0;
    FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL, *answers;
    if (file == NULL || system("command -v python3 >/dev/null 2>&1") != 0) {
        t_skip("no python3 with zlib to compare with");
        return;
    }
    dice_state = 5;
    for (i = 0; i < COUNT; i++) {
        samples[i] = make_text(i);
        fprintf(file, "%lu\n", (unsigned long)samples[i].n);
        fwrite(samples[i].text, 1, samples[i].n, file);
    }
    fclose(file);
    (void)snprintf(command, sizeof command, "python3 -c \"import zlib,sys\n"
                   "f=open('%s','rb')\n"
                   "for l in iter(f.readline,b''): print(len(zlib.compress(f.read(int(l)))))\"",
                   name);
    answers = popen(command, "r");
    for (i = 0; i < COUNT; i++) {
        unsigned long theirs = 0, ours = (unsigned long)zl_size(&work, samples[i].text,
                                                                samples[i].n);
        T_CHECK(fscanf(answers, "%lu", &theirs) == 1, "python3 has no answer");
        T_CHECK(labs((long)ours - (long)theirs) <= (long)(theirs / 50),
                "text %d of %lu bytes: %lu, zlib says %lu", i, (unsigned long)samples[i].n, ours,
                theirs);
        exact += ours == theirs;
        free(samples[i].text);
    }
    pclose(answers);
    remove(name);
    printf("  %d of %d sizes are zlib's to the byte\n", exact, COUNT);
    T_CHECK(zl_size(&work, "", 0) == 8, "of nothing");
}

/* ---- loops ---- */

static size_t slow_period(const int32_t *latest, size_t n)
{
    size_t p, length, i;
    for (p = 1; p <= JU_MAX_PERIOD; p++) {
        for (length = p < 6 ? 4 * p : 3 * p; length <= n; length++) {
            int same = length >= 16;
            for (i = 0; i + p < length; i++) {
                same = same && latest[i] == latest[i + p];
            }
            if (same) {
                return p;
            }
        }
    }
    return 0;
}

static void search_periods(void)
{
    int32_t x[128];
    size_t n, i, p;
    int round, found = 0;
    dice_state = 11;
    for (round = 0; round < 20000; round++) {
        n = 1 + dice(128);
        p = 1 + dice(40);
        for (i = 0; i < n; i++) {
            x[i] = i < p ? (int32_t)dice(3) : x[i - p];
        }
        x[dice((uint32_t)n)] += (int32_t)dice(2); /* half of them are broken somewhere */
        found += slow_period(x, n) > 0;
        T_CHECK(ju_period(&ju_loop, x, n) == slow_period(x, n), "round %d: %lu, not %lu", round,
                (unsigned long)ju_period(&ju_loop, x, n), (unsigned long)slow_period(x, n));
    }
    T_CHECK(found > 2000 && found < 18000, "%d loops", found);
}

/* Without a judge all repetition is a loop. */
static void loop_cuts(void)
{
    wnpu_model *m = life_float_toy(7);
    const tk_vocab *v = &m->vocab;
    static se_hypothesis h;
    static se_search search;
    lr_rules rules;
    int32_t before[40];
    size_t i;
    rules.vocab = v;
    search.rules = &rules;
    /* <0> a b <1> <1> c d e f <2> <2> c d e f <3> ... */
    for (i = 0, h.n = 0; i < 6; i++) {
        int32_t k, first = i == 0 ? 10 : 20;
        h.tokens[h.n++] = v->timestamp0 + (int32_t)i;
        for (k = 0; k < (i == 0 ? 2 : 4); k++) {
            h.tokens[h.n++] = first + k;
        }
        h.loop = 0;
        T_CHECK(se_ends_in_loop(&search, &h, NULL, 0, SE_ALONE) == (i > 3), "%lu repetitions",
                (unsigned long)i);
        T_CHECK(i <= 3 || h.loop == 9, "cut after the first c d e f: %lu", (unsigned long)h.loop);
        h.tokens[h.n++] = v->timestamp0 + (int32_t)i + 1;
    }
    T_CHECK(!se_ends_in_loop(&search, &h, NULL, 0, SE_ALONE), "no new text, nothing new");
    for (i = 0; i < 40; i++) {
        before[i] = 20 + (int32_t)(i % 4);
    }
    h.n = 5;
    h.tokens[0] = v->timestamp0;
    for (i = 1; i < 5; i++) {
        h.tokens[i] = 20 + (int32_t)((i - 1) % 4);
    }
    T_CHECK(!se_ends_in_loop(&search, &h, NULL, 0, SE_ALONE), "no loop in the window itself");
    T_CHECK(se_ends_in_loop(&search, &h, before, 40, SE_ALONE) && h.loop == 1,
            "one that goes on: %lu",
            (unsigned long)h.loop);
    h.n = 4;
    T_CHECK(!se_ends_in_loop(&search, &h, before, 40, SE_ALONE), "not complete yet");
    wnpu_model_close(m);
}

/* Copied text has no probability of its own, to its end; what comes before and behind it has. */
static void copied_text(void)
{
    wnpu_model *m = life_float_toy(7);
    const tk_vocab *v = &m->vocab;
    static se_hypothesis h;
    static se_parts parts;
    size_t i, p;
    int begun;
    memset(&h, 0, sizeof h);
    for (i = 0; i < 32; i++) { /* <0> 0..5 five times, then 6 */
        h.tokens[h.n] = i == 0 ? v->timestamp0 : i < 31 ? (int32_t)((i - 1) % 6) : 6;
        h.probability[h.n++] = i < 7 || i == 31 ? 0.1f : 0.8f;
        h.sum_logprob += mt_log1(h.probability[i]);
        se_follow_copy(&h, v->eot);
        if (i == 24) {
            p = se_find_repetition(&h, v, NULL, 0, &parts, &begun);
            T_CHECK(p == 6 && parts.n == 4, "%lu parts", (unsigned long)parts.n);
            parts.copied = 0;
            se_mark_confirmed(&h, &parts, 4, p);
            T_CHECK(h.copied == 0 && h.again[24] == SE_AGAIN, "repeated in the audio");
            T_CHECK(fabsf(se_mean_logprob(&h) - h.sum_logprob / 26.0f) < 1e-5f, "and counted");
            parts.copied = 1;
            se_mark_confirmed(&h, &parts, 4, p);
        }
    }
    T_CHECK(h.copied == 2, "the first token that is copied: %lu", (unsigned long)h.copied);
    for (i = 0; i < h.n; i++) {
        T_CHECK(h.again[i] == (i < 7 || i > 30 ? 0 : i < 25 ? SE_COPIED : SE_TAIL),
                "token %lu: %d", (unsigned long)i, h.again[i]);
    }
    T_CHECK(fabsf(se_mean_logprob(&h) - 8.0f * mt_log1(0.1f) / 9.0f) < 1e-5f, "mean %g",
            (double)se_mean_logprob(&h));
    parts.copied = 0;
    se_mark_confirmed(&h, &parts, 4, 6);
    T_CHECK(h.copied == 0 && h.again[10] == SE_AGAIN, "a later judgement counts");
    wnpu_model_close(m);
}

/* Parts are complete periods from where the repetition begins, in the window. */
static void loop_parts(void)
{
    wnpu_model *m = life_float_toy(7);
    const tk_vocab *v = &m->vocab;
    static se_hypothesis h;
    static se_parts parts;
    int32_t before[50];
    size_t i;
    int begun = 0;
    for (i = 0; i < 60; i++) { /* 0..6 with a timestamp before each 0 */
        h.tokens[h.n] = v->timestamp0 + (int32_t)i;
        h.n += i % 7 == 0;
        h.tokens[h.n++] = (int32_t)(i % 7);
    }
    T_CHECK(se_find_repetition(&h, v, NULL, 0, &parts, &begun) == 7 && parts.n == 8 && !begun,
            "%lu parts",
            (unsigned long)parts.n);
    for (i = 0; i <= 8; i++) {
        T_CHECK(parts.begin[i] == 1 + 8 * i, "part %lu begins at %lu", (unsigned long)i,
                (unsigned long)parts.begin[i]);
    }
    T_CHECK(se_cut_length(&h, v, &parts, 3) == 24 && h.tokens[24] >= v->timestamp0, "after three");
    for (i = 0; i < 50; i++) { /* ends with 2: the window's 0 is no continuation of it */
        before[i] = (int32_t)(i % 7) + (i < 45 ? 0 : 70);
    }
    T_CHECK(se_find_repetition(&h, v, before, 50, &parts, &begun) == 7 && !begun,
            "another text before");
    for (i = 0; i < 50; i++) {
        before[i] = (int32_t)((i + 3) % 7); /* 3 .. 3 */
    }
    for (i = 0, h.n = 0; i < 30; i++) {
        h.tokens[h.n++] = (int32_t)((i + 4) % 7);
    }
    T_CHECK(se_find_repetition(&h, v, before, 50, &parts, &begun) == 7 && begun, "it began before");
    T_CHECK(parts.n == 3 && parts.begin[0] == 6 && parts.begin[3] == 27, "%lu parts from %lu on",
            (unsigned long)parts.n, (unsigned long)parts.begin[0]);
    wnpu_model_close(m);
}

/* ---- chance ---- */

static void draws(void)
{
    enum { N = 700 };
    static float logits[N];
    static int count[N];
    const op_kernels *op = op_select(WNPU_ISA_SCALAR);
    double total = 0, chi = 0;
    int i, rounds = 40000, bins = 0;
    for (i = 0; i < N; i++) {
        logits[i] = i % 7 == 3 ? LR_FORBIDDEN : (float)(i % 50) * 0.1f;
        total += exp((double)logits[i]);
    }
    for (i = 0; i < rounds; i++) {
        float u = se_uniform(77, (uint32_t)(i % 5), (size_t)(i / 5));
        T_CHECK(u >= 0.0f && u < 1.0f, "u = %g", (double)u);
        count[se_draw(op, logits, N, u)]++;
    }
    for (i = 0; i < N; i++) {
        double expected = rounds * exp((double)logits[i]) / total;
        T_CHECK(logits[i] > LR_FORBIDDEN || count[i] == 0, "a forbidden token was drawn");
        if (logits[i] > LR_FORBIDDEN) {
            chi += (count[i] - expected) * (count[i] - expected) / expected;
            bins++;
        }
    }
    /* Chi square: mean bins - 1, standard deviation sqrt(2 bins). */
    T_CHECK(fabs(chi - bins) < 5 * sqrt(2.0 * bins), "chi square %.0f of %d", chi, bins);
    T_CHECK(se_draw(op, logits, N, 0.0f) == 0, "the first");
    i = (int)se_draw(op, logits, N, 0.99999994f);
    T_CHECK(i >= N - 3 && logits[i] > LR_FORBIDDEN, "the last: %d", i);
    for (i = 0; i < N; i++) {
        logits[i] = i == 300 ? 5.0f : LR_FORBIDDEN;
    }
    T_CHECK(se_draw(op, logits, N, 0.0f) == 300 && se_draw(op, logits, N, 0.9999f) == 300, "one");
    T_CHECK(se_uniform(1, 2, 3) == se_uniform(1, 2, 3) && se_uniform(1, 2, 3) != se_uniform(1, 3, 2)
            && se_uniform(1, 2, 3) != se_uniform(2, 2, 3), "a function of all three");
}

/* ---- beam search ---- */

/* A hypothesis as OpenAI's decoding.py has it: its tokens, and the sum of their logarithms; what
 * its hotwords are worth, and its timestamps more if any other might stand there. */
typedef struct slow_hyp {
    int32_t tokens[32];
    float logprob[32]; /* of each token */
    size_t n;
    float sum, bonus, times;
} slow_hyp;

/* Worth of all hotwords in a sequence, those under way included unless it has ended. */
static float slow_bonus(const lr_rules *r, const slow_hyp *h, int ended)
{
    lr_paths paths;
    float bonus = 0;
    size_t i;
    for (i = 0; i < h->n; i++) {
        lr_find_paths(r, h->tokens, i, &paths);
        bonus += lr_bonus(&r->trie, &paths, h->tokens[i]) - paths.provisional;
    }
    lr_find_paths(r, h->tokens, h->n, &paths);
    return ended ? bonus - paths.provisional : bonus;
}

/* The toy model hardly ever ends by itself: raise the end of text, as a filter may. */
static void eager_end(void *user, const int32_t *tokens, size_t n, float *logits, size_t n_vocab)
{
    (void)n_vocab;
    if (n > 0 && tokens[n - 1] < 300) {
        logits[300] += *(float *)user;
    }
}

static float eagerness;

/* Log-probabilities of what may follow: the whole sequence is fed anew. */
static void slow_logprobs(wnpu_session *s, const se_prompt *p, const slow_hyp *h, float *logprob)
{
    size_t vocab = (size_t)s->run.engine.model->vocab.n_vocab, best;
    int32_t all[128];
    float *row, total;
    memcpy(all, p->tokens, p->n * sizeof *all);
    memcpy(all + p->n, h->tokens, h->n * sizeof *all);
    row = se_feed(&s->run.decoder, all, p->n + h->n, 0, NULL);
    memcpy(logprob, row, vocab * sizeof *row);
    lr_apply(&s->run.rules, logprob, h->tokens, h->n);
    eager_end(&eagerness, h->tokens, h->n, logprob, vocab);
    total = se_log_sum(s->run.engine.op, logprob, vocab, &best);
    for (best = 0; best < vocab; best++) {
        logprob[best] -= total;
    }
}

/* The most probable timestamp, the first of equals, or 0 if none may follow; *all is the logarithm
 * of the probability that one follows. */
static size_t slow_time(const tk_vocab *v, const float *logprob, float *all)
{
    size_t t, best = (size_t)v->timestamp0;
    double sum = 0;
    for (t = best; t < (size_t)v->n_vocab; t++) {
        sum += logprob[t] > LR_FORBIDDEN ? exp((double)logprob[t]) : 0;
        best = logprob[t] > logprob[best] ? t : best;
    }
    *all = sum > 0 ? (float)log(sum) : LR_FORBIDDEN;
    return logprob[best] > LR_FORBIDDEN ? best : 0;
}

typedef struct slow_entry {
    float score, sum, bonus, times;
    size_t from;
    int32_t token;
} slow_entry;

static int by_score(const void *a, const void *b)
{
    const slow_entry *x = a, *y = b;
    if (x->score != y->score) {
        return x->score > y->score ? -1 : 1;
    }
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from)
                              : (x->token > y->token) - (x->token < y->token);
}

/* MaximumLikelihoodRanker, but of the text alone. */
static float slow_rank(const se_options *o, const slow_hyp *h)
{
    double length = 0, base;
    size_t i;
    for (i = 0; i < h->n; i++) {
        length += h->tokens[i] < 300; /* the toy's end of text */
    }
    length = length < 1 ? 1 : length;
    base = o->length_rule == WNPU_LENGTH_RATIO ? (5 + length) / 6 : length;
    return (float)((double)(h->sum + h->bonus + h->times) / pow(base, (double)o->length_penalty));
}

/* Whether the last three tokens of x are those of y before its last `ahead` ones. */
static int slow_meets(const slow_hyp *x, const slow_hyp *y, size_t ahead)
{
    size_t i;
    for (i = 1; i <= 3; i++) {
        if (x->n < i || y->n < i + ahead || x->tokens[x->n - i] != y->tokens[y->n - ahead - i]) {
            return 0;
        }
    }
    return 1;
}

/* The rank before the last `ahead` tokens. */
static float slow_rank_before(const se_options *o, const slow_hyp *h, size_t ahead)
{
    slow_hyp less = *h;
    for (; ahead > 0; ahead--) {
        less.sum -= less.logprob[--less.n];
    }
    return slow_rank(o, &less);
}

static size_t slow_met;

/* Appends h, unless it goes on like one of the n others: then the better one is kept. */
static size_t slow_append(const se_options *o, slow_hyp *all, size_t n, const slow_hyp *h)
{
    size_t i, ahead;
    for (i = 0; i < n && o->limit > 0; i++) {
        for (ahead = 0; ahead < 3; ahead++) {
            int behind = slow_meets(&all[i], h, ahead);
            if (behind || slow_meets(h, &all[i], ahead)) {
                if (slow_rank_before(o, h, behind ? ahead : 0) >
                    slow_rank_before(o, &all[i], behind ? 0 : ahead)) {
                    all[i] = *h;
                }
                slow_met++;
                return n;
            }
        }
    }
    all[n] = *h;
    return n + 1;
}

/* BeamSearchDecoder.update() and finalize(), but with one timestamp a hypothesis, which counts as
 * much as all of them, and without those that the limit drops. */
static slow_hyp slow_beam(wnpu_session *s, const se_prompt *p, const se_options *o)
{
    static slow_hyp live[16], next[16], finished[300], best;
    static slow_entry entries[16 * 2000];
    size_t vocab = (size_t)s->run.engine.model->vocab.n_vocab, n_live = 1, n_finished = 0, i, step;
    size_t most = (size_t)floor((double)((float)o->width * o->patience) + 0.5);
    float *logprob = malloc(vocab * sizeof *logprob), lead = LR_FORBIDDEN;
    memset(&live[0], 0, sizeof live[0]);
    for (step = 0; step < o->max_tokens; step++) {
        size_t n = 0, saved = 0;
        for (i = 0; i < n_live; i++) {
            size_t t, t0 = (size_t)s->run.engine.model->vocab.timestamp0, time;
            float all;
            slow_logprobs(s, p, &live[i], logprob);
            time = slow_time(&s->run.engine.model->vocab, logprob, &all);
            for (t = 0; t < vocab; t++) {
                if (logprob[t] > LR_FORBIDDEN && (t < t0 || t == time)) {
                    slow_hyp h = live[i];
                    h.tokens[h.n] = (int32_t)t;
                    h.n += (int32_t)t != s->run.engine.model->vocab.eot;
                    entries[n].bonus = slow_bonus(&s->run.rules, &h, h.n == live[i].n);
                    entries[n].sum = live[i].sum + logprob[t];
                    entries[n].times = live[i].times + (t < t0 ? 0 : all - logprob[t]);
                    entries[n].score = entries[n].sum + entries[n].bonus + entries[n].times;
                    entries[n].from = i;
                    entries[n++].token = (int32_t)t;
                }
            }
        }
        qsort(entries, n, sizeof *entries, by_score);
        for (i = 0; i < n && saved < o->width; i++) {
            slow_hyp h = live[entries[i].from];
            float best_score = entries[0].score > lead ? entries[0].score : lead;
            if (o->limit > 0 && entries[i].score < best_score - o->limit) {
                break;
            }
            h.logprob[h.n] = entries[i].sum - h.sum;
            h.sum = entries[i].sum;
            h.bonus = entries[i].bonus;
            h.times = entries[i].times;
            if (entries[i].token == s->run.engine.model->vocab.eot) {
                lead = entries[i].score > lead ? entries[i].score : lead;
                if (n_finished < most) {
                    finished[n_finished++] = h;
                }
            } else {
                h.tokens[h.n++] = entries[i].token;
                saved = slow_append(o, next, saved, &h);
            }
        }
        memcpy(live, next, sizeof live);
        n_live = saved;
        if (n_finished >= most || n_live == 0) {
            break;
        }
    }
    for (i = 0; i < n_live && n_finished < o->width; i++) {
        finished[n_finished++] = live[i];
    }
    best = finished[0];
    for (i = 1; i < n_finished; i++) {
        best = slow_rank(o, &finished[i]) > slow_rank(o, &best) ? finished[i] : best;
    }
    free(logprob);
    return best;
}

static int same_as_slow(wnpu_session *s, const se_options *o, const char *what)
{
    se_prompt p = prompt_of(s->run.engine.model);
    se_hypothesis h;
    slow_hyp slow;
    size_t i, same = 1;
    se_invalidate(&s->run.text.search);
    h = *se_run(&s->run.text.search, &p, o);
    slow = slow_beam(s, &p, o);
    for (i = 0; i < slow.n && i < h.n; i++) {
        same = same && h.tokens[i] == slow.tokens[i];
    }
    T_CHECK(same && h.n == slow.n, "%s: %lu tokens, not %lu, or others", what, (unsigned long)h.n,
            (unsigned long)slow.n);
    T_CHECK(fabs((double)(h.sum_logprob - slow.sum)) < 1e-3, "%s: sum %g, not %g", what,
            (double)h.sum_logprob, (double)slow.sum);
    return h.ended;
}

/* Two hundred phrases of three tokens, which the toy may well say. */
static void random_hotwords(wnpu_session *s)
{
    int i, k;
    dice_state = 77;
    for (i = 0; i < 200; i++) {
        int32_t tokens[3];
        for (k = 0; k < 3; k++) {
            tokens[k] = (int32_t)dice(300);
        }
        lr_trie_add(&s->run.rules.trie, LR_ANYWHERE, tokens, 3, i);
    }
    lr_trie_set_bonus(&s->run.rules.trie, 3.0f, 1);
}

static void beam_reference(void)
{
    wnpu_model *m = life_float_toy(7);
    static const struct {
        unsigned width, tokens;
        float patience, penalty;
        int rule;
        float limit;
    } cases[] = {
        {1, 24, 1, 1, 0, 0}, {1, 8, 3, 1, 0, 0}, {2, 12, 1, 1, 0, 0}, {5, 20, 1, 1, 0, 0},
        {5, 8, 2, 1, 0, 0}, {5, 8, 0.5f, 1, 0, 0}, {3, 8, 1, 0, 0, 0}, {3, 8, 1, 0.6f, 1, 0},
        {4, 8, 1, 2, 0, 0}, {16, 5, 1, 1, 0, 0}, {5, 24, 1, 1, 0, 1}, {16, 24, 1, 1, 0, 2},
        {16, 12, 1, 0.6f, 1, 0.5f}, {5, 20, 2, 0, 0, 20}
    };
    int compute, ended = 0, runs = 0;
    for (compute = 0; compute < 2; compute++) {
        wnpu_session *s = encoded(m, 2, 16, compute);
        size_t k;
        s->run.text.search.filter.function = eager_end;
        s->run.text.search.filter.user = &eagerness;
        for (k = 0; k < sizeof cases / sizeof cases[0]; k++) {
            se_options o = options_of(cases[k].width, cases[k].tokens);
            char what[64];
            o.patience = cases[k].patience;
            o.length_penalty = cases[k].penalty;
            o.length_rule = cases[k].rule;
            o.limit = cases[k].limit;
            (void)snprintf(what, sizeof what, "compute %d, case %d", compute, (int)k);
            s->run.rules.timestamps = k % 2 == 0;
            lr_trie_clear(&s->run.rules.trie);
            if (k % 3 == 2) {
                random_hotwords(s);
            }
            for (eagerness = 0; eagerness < 13 && !(compute == 1 && k > 4); eagerness += 4) {
                ended += same_as_slow(s, &o, what); /* the float path is slow */
                runs++;
            }
        }
        wnpu_session_close(s);
    }
    eagerness = 0;
    T_CHECK(ended > 5 && ended < runs - 5, "%d of %d ended by themselves", ended, runs);
    T_CHECK(slow_met > 0, "no hypotheses met");
    wnpu_model_close(m);
}

/* With two words and room for all their sequences, a beam finds the best of all that there are. */
static void beam_exhaustive(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = encoded(m, 1, 16, 0);
    const tk_vocab *v = &m->vocab;
    se_prompt p = prompt_of(m);
    se_options o = options_of(16, 4);
    float *logprob = malloc((size_t)v->n_vocab * sizeof *logprob);
    int round;
    s->run.rules.timestamps = 0;
    s->run.rules.suppress_blank = 0;
    o.patience = 16.0f;
    for (round = 0; round < 12; round++) {
        int32_t words[2];
        slow_hyp best, h;
        float best_score = -1e30f;
        size_t length, number, i;
        se_hypothesis found;
        o.length_penalty = (float)(round % 3) * 0.5f;
        words[0] = 20 + 17 * round;
        words[1] = 45 + 19 * round;
        memset(s->run.rules.never, 1, (size_t)v->n_vocab);
        s->run.rules.never[words[0]] = s->run.rules.never[words[1]] = 0;
        s->run.rules.never[v->eot] = 0;
        memset(&best, 0, sizeof best);
        for (length = 1; length <= 4; length++) {
            for (number = 0; number < (size_t)1 << length; number++) {
                memset(&h, 0, sizeof h);
                for (i = 0; i <= length; i++) {
                    int32_t token = i < length ? words[number >> i & 1] : v->eot;
                    if (length == 4 && i == length) {
                        break; /* no room for the end */
                    }
                    slow_logprobs(s, &p, &h, logprob);
                    h.sum += logprob[token];
                    h.tokens[h.n] = token;
                    h.n += token != v->eot;
                }
                if (slow_rank(&o, &h) > best_score) {
                    best_score = slow_rank(&o, &h);
                    best = h;
                }
            }
        }
        se_invalidate(&s->run.text.search);
        found = *se_run(&s->run.text.search, &p, &o);
        T_CHECK(found.n == best.n && memcmp(found.tokens, best.tokens, best.n * 4) == 0 &&
                fabs((double)(found.sum_logprob - best.sum)) < 1e-4,
                "round %d: %lu tokens with %g, not %lu with %g", round, (unsigned long)found.n,
                (double)found.sum_logprob, (unsigned long)best.n, (double)best.sum);
    }
    free(logprob);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* Sample number id, token by token with everything fed anew. */
static slow_hyp slow_sample(wnpu_session *s, const se_prompt *p, const se_options *o, uint32_t id)
{
    size_t vocab = (size_t)s->run.engine.model->vocab.n_vocab, t;
    float *logprob = malloc(vocab * sizeof *logprob);
    slow_hyp h;
    memset(&h, 0, sizeof h);
    while (h.n < o->max_tokens) {
        double total = 0, sum = 0, u = (double)se_uniform(o->seed, id, h.n);
        float all;
        slow_logprobs(s, p, &h, logprob);
        (void)slow_time(&s->run.engine.model->vocab, logprob, &all);
        for (t = 0; t < vocab; t++) {
            total += exp((double)(logprob[t] / o->temperature));
        }
        for (t = 0; t < vocab; t++) {
            sum += exp((double)(logprob[t] / o->temperature)) / total;
            if (sum > u) {
                break;
            }
        }
        h.sum += logprob[t];
        h.times += (int32_t)t < s->run.engine.model->vocab.timestamp0 ? 0 : all - logprob[t];
        if ((int32_t)t == s->run.engine.model->vocab.eot) {
            break;
        }
        h.tokens[h.n++] = (int32_t)t;
    }
    free(logprob);
    return h;
}

static void sampling(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = encoded(m, 2, 16, 0);
    se_prompt p = prompt_of(m);
    se_options o = options_of(1, 10);
    size_t width;
    uint64_t seed;
    for (seed = 0; seed < 4; seed++) {
        o.seed = seed;
        o.temperature = 0.4f + 0.3f * (float)(seed % 2);
        for (width = 1; width <= 8; width += 7) {
            se_hypothesis h;
            slow_hyp best = slow_sample(s, &p, &o, 0), other;
            uint32_t id;
            for (id = 1; id < width; id++) {
                other = slow_sample(s, &p, &o, id);
                best = slow_rank(&o, &other) > slow_rank(&o, &best) ? other : best;
            }
            o.width = width;
            se_invalidate(&s->run.text.search);
            h = *se_run(&s->run.text.search, &p, &o);
            T_CHECK(h.n == best.n && memcmp(h.tokens, best.tokens, h.n * sizeof(int32_t)) == 0,
                    "seed %d, %lu samples: others", (int)seed, (unsigned long)width);
            T_CHECK(fabs((double)(h.sum_logprob - best.sum)) < 1e-3, "sum %g, not %g",
                    (double)h.sum_logprob, (double)best.sum);
        }
    }
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* The same prompt again, a longer one, a shorter one: what is kept of it must not show. */
static void prompts_are_kept(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = encoded(m, 1, 5, 0);
    se_options o = options_of(5, 9);
    se_prompt p = prompt_of(m), q;
    int32_t other[32];
    se_hypothesis fresh[3], kept;
    int i, round;
    for (round = 0; round < 3; round++) {
        for (i = 0; i < 3; i++) {
            q = p;
            if (i > 0) { /* the same beginning, then another text; then no text at all */
                memcpy(other, p.tokens, sizeof other);
                other[4] = 77;
                q.tokens = i == 1 ? other : p.tokens + p.sot;
                q.n = i == 1 ? p.n : p.n - p.sot;
                q.sot = i == 1 ? p.sot : 0;
            }
            if (round == 0) {
                se_invalidate(&s->run.text.search);
            }
            kept = *se_run(&s->run.text.search, &q, &o);
            if (round == 0) {
                fresh[i] = kept;
            }
            T_CHECK(kept.n == fresh[i].n && kept.sum_logprob == fresh[i].sum_logprob &&
                    kept.no_speech == fresh[i].no_speech &&
                    memcmp(kept.tokens, fresh[i].tokens, kept.n * sizeof(int32_t)) == 0,
                    "round %d, prompt %d: another answer", round, i);
        }
    }
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* A script that a filter makes the search follow, and the logits that the filter saw. */
#define SCRIPT 12
#define SCRIPT_VOCAB 2048

typedef struct search_script {
    int32_t token[SCRIPT];
    size_t n, seen, fed;   /* seen: tokens asked for or given; fed: steps of the decoder */
    float logits[SCRIPT][SCRIPT_VOCAB];
} search_script;

static void follow_script(void *user, const int32_t *tokens, size_t n, float *logits, size_t vocab)
{
    search_script *p = user;
    size_t i;
    T_CHECK(n == p->seen && n < p->n && memcmp(tokens, p->token, n * sizeof *tokens) == 0, "order");
    memcpy(p->logits[n], logits, vocab * sizeof *logits);
    p->seen = n + 1;
    for (i = 0; i < vocab; i++) {
        logits[i] = i == (size_t)p->token[n] ? 1.0f : LR_FORBIDDEN;
    }
}

static void count_steps(void *user, size_t layer, const de_row *rows, size_t n, const float *query)
{
    (void)rows;
    (void)n;
    (void)query;
    ((search_script *)user)->fed += layer == 0;
}

/* Follows the script after a prompt; each row of logits is what feeding all anew gives, guessed or
 * not. Returns the steps that guesses spared. */
static size_t follow(wnpu_session *s, search_script *played, const se_prompt *p, float temperature)
{
    static int32_t all[512];
    static float want[SCRIPT_VOCAB];
    se_search *search = &s->run.text.search;
    size_t vocab = (size_t)s->run.engine.model->vocab.n_vocab, i, spared;
    se_options o = options_of(1, SE_MAX_TOKENS);
    o.temperature = temperature;
    played->seen = p->n_given;
    played->fed = 0;
    search->filter.function = follow_script;
    search->filter.user = played;
    s->run.decoder.tap = count_steps;
    s->run.decoder.tap_user = played;
    search->steps = 0;
    se_invalidate(search);
    (void)se_run(search, p, &o);
    s->run.decoder.tap = NULL;
    spared = search->steps + (p->n + DE_ROWS - 1) / DE_ROWS - played->fed;
    T_CHECK(search->steps + 1 == played->seen - p->n_given, "%u steps, %u tokens",
            (unsigned)search->steps, (unsigned)played->seen);
    memcpy(all, p->tokens, p->n * sizeof *all);
    memcpy(all + p->n - p->n_given, played->token, played->n * sizeof *all);
    for (i = p->n_given; i < played->seen; i++) {
        memcpy(want, se_feed(&s->run.decoder, all, p->n - p->n_given + i, 0, NULL),
               vocab * sizeof *want);
        lr_apply(&s->run.rules, want, played->token, i);
        T_CHECK(memcmp(want, played->logits[i], vocab * sizeof *want) == 0,
                "prompt of %u, token %u: other logits", (unsigned)p->n, (unsigned)i);
    }
    return spared;
}

/* Timestamps that are guessed, rightly and wrongly. */
static void guesses(void)
{
    wnpu_model *m = life_float_toy(7);
    static int32_t tokens[512];
    static search_script played;
    const int32_t t = m->vocab.timestamp0, eot = m->vocab.eot;
    const struct { int32_t token[SCRIPT]; size_t n, first, pairs; } scripts[] = {
        {{t, 5, 6, t + 50, t + 50, 7, t + 90, t + 90, 8, 9, t + 99, eot}, 12, 1, 2},
        {{t, 5, 6, t + 50, t + 50, eot}, 6, 1, 1},
        {{t + 2, 5, t + 50, t + 55, 6, t + 60, t + 60, 7, eot}, 9, 0, 1},
        {{5, 6, t + 50, 7, t + 51, eot}, 6, 0, 0} /* what rules forbid */
    };
    const size_t lengths[] = {9, 15, 16, 17, 32, m->n_text_ctx - 6, m->n_text_ctx - 2};
    size_t i, k;
    int how;
    T_CHECK(m->vocab.n_vocab <= SCRIPT_VOCAB && m->n_text_ctx <= 500, "a larger toy");
    for (i = 0; i < 500; i++) {
        tokens[i] = (int32_t)(40 + 3 * i % 200);
    }
    for (how = 0; how < 8; how++) {
        wnpu_session *s = encoded(m, 2, 1, how & 1);
        s->run.rules.timestamps = (how & 2) == 0;
        for (i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            for (k = 0; k < sizeof scripts / sizeof scripts[0]; k++) {
                se_prompt p = prompt_of(m);
                size_t spared, want;
                memcpy(tokens + lengths[i] - 4, p.tokens + p.n - 4, 4 * sizeof *tokens);
                p.n = lengths[i];
                p.sot = p.n - 3;
                p.tokens = tokens;
                memcpy(played.token, scripts[k].token, sizeof played.token);
                played.n = scripts[k].n;
                spared = follow(s, &played, &p, how & 4 ? 0.7f : 0.0f);
                want = (lengths[i] % DE_ROWS != 0 ? scripts[k].first : 0) + scripts[k].pairs;
                T_CHECK(played.seen < played.n || spared == (s->run.rules.timestamps ? want : 0),
                        "prompt of %u, script %u: %u steps spared", (unsigned)p.n, (unsigned)k,
                        (unsigned)spared);
            }
        }
        wnpu_session_close(s);
    }
    wnpu_model_close(m);
}

/* What an earlier decoding said: all of what follows, wrong from some token on, too short or too
 * long, behind a prompt that ends anywhere in a step, with some of it given. Returns the steps that
 * are spared when all of it is right, of 9. */
static size_t follow_said(wnpu_session *s, search_script *played, size_t length, size_t given)
{
    static int32_t tokens[64];
    int32_t said[SCRIPT];
    se_prompt p = prompt_of(s->run.engine.model);
    size_t wrong, i, n = played->n - 1, spared = 0, least = 0;
    for (i = 0; i < length - given; i++) {
        tokens[i] = (int32_t)(40 + 3 * i);
    }
    memcpy(tokens + i - 4, p.tokens + p.n - 4, 4 * sizeof *tokens);
    memcpy(tokens + i, played->token, given * sizeof *tokens);
    p.sot = i - 3;
    p.n = length;
    p.n_given = given;
    p.tokens = tokens;
    p.said = said;
    for (wrong = given; wrong <= n; wrong += 3) {
        memcpy(said, played->token + given, (n - given) * sizeof *said);
        said[n - given] = 9;
        said[wrong - given] += wrong < n;
        p.n_said = wrong % 2 == 1 ? n - given : n - given + 1;
        spared = follow(s, played, &p, 0.0f);
        least = wrong == given ? spared : least;
    }
    T_CHECK(spared > least, "%u steps spared, and %u if all is wrong", (unsigned)spared,
            (unsigned)least);
    return spared;
}

static void said_before(void)
{
    wnpu_model *m = life_float_toy(7);
    static search_script played;
    const int32_t t = m->vocab.timestamp0;
    const int32_t script[SCRIPT] = {t, 5, 6, t + 50, t + 50, 7, 8, 9, 10, m->vocab.eot};
    static const size_t lengths[] = {9, 16, 33};
    size_t i, given;
    unsigned beams;
    memcpy(played.token, script, sizeof script);
    played.n = 10;
    for (beams = 1; beams <= 16; beams += 15) {
        wnpu_session *s = encoded(m, 1, beams, 0);
        for (i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            for (given = 0; given <= 3; given += 3) {
                size_t spared = follow_said(s, &played, lengths[i], given);
                T_CHECK(beams == 1 || spared >= 8 - given, "%u steps spared", (unsigned)spared);
            }
        }
        wnpu_session_close(s);
    }
    wnpu_model_close(m);
}

/* ---- rules ---- */

static void penalties(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = encoded(m, 1, 1, 0);
    lr_rules *r = &s->run.rules;
    const tk_vocab *v = &m->vocab;
    static float logits[4000], want[4000];
    int round;
    dice_state = 3;
    for (round = 0; round < 2000; round++) {
        int32_t tokens[40], text[40];
        size_t n = dice(40), i, k, n_text = 0, g = 1 + dice(4);
        for (i = 0; i < n; i++) {
            tokens[i] = dice(5) == 0 ? v->timestamp0 + (int32_t)dice(50) : (int32_t)dice(4);
            if (tokens[i] < v->eot) {
                text[n_text++] = tokens[i];
            }
        }
        for (i = 0; i < (size_t)v->n_vocab; i++) {
            logits[i] = want[i] = (float)dice(2000) / 100.0f - 10.0f;
        }
        r->repetition = 1.3f;
        lr_penalise_repetition(r, logits, tokens, n);
        for (i = 0; i < 4; i++) {
            for (k = 0; k < n_text && text[k] != (int32_t)i; k++) {
            }
            if (k < n_text) {
                want[i] = want[i] > 0 ? want[i] / 1.3f : want[i] * 1.3f;
            }
        }
        T_CHECK(memcmp(logits, want, (size_t)v->n_vocab * sizeof *want) == 0, "repetition");
        r->no_repeat = g;
        lr_forbid_repeats(r, logits, tokens, n);
        for (i = 0; i + g <= n_text; i++) { /* text[i..i+g-1] begins like the end of text */
            if (n_text >= g - 1 &&
                memcmp(text + i, text + n_text - (g - 1), (g - 1) * sizeof *text) == 0) {
                want[text[i + g - 1]] = LR_FORBIDDEN;
            }
        }
        T_CHECK(memcmp(logits, want, (size_t)v->n_vocab * sizeof *want) == 0,
                "no repeated %lu-grams, round %d", (unsigned long)g, round);
    }
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* What a sequence earns by the definition: at each token, the most that a phrase which ends there
 * is worth beyond the longest phrase that it begins with. Phrases begun and left earn nothing. */
static float slow_earned(const char *const *phrases, size_t n_phrases, const char *text,
                         float boost)
{
    float sum = 0.0f;
    size_t end, p, q;
    for (end = 1; end <= strlen(text); end++) {
        float most = 0.0f;
        for (p = 0; p < n_phrases; p++) {
            size_t length = strlen(phrases[p]), begun = 0;
            float worth;
            if (length > end || memcmp(text + end - length, phrases[p], length) != 0) {
                continue;
            }
            for (q = 0; q < n_phrases; q++) {
                size_t k = strlen(phrases[q]);
                if (k < length && k > begun && memcmp(phrases[q], phrases[p], k) == 0) {
                    begun = k;
                }
            }
            worth = boost * ((float)(length - begun) - (begun == 0 && length > 1 ? 0.5f : 0.0f));
            most = worth > most ? worth : most;
        }
        sum += most;
    }
    return sum;
}

static void hotwords(void)
{
    static const char *const phrases[] = {"abc", "abcab", "ca", "bbb", "cabbac", "a"};
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = encoded(m, 1, 1, 0);
    lr_rules *r = &s->run.rules;
    static float dense[4000], sparse[4000];
    const int32_t vocab = m->vocab.n_vocab;
    lr_paths paths;
    int round, n_phrases;
    size_t i;
    dice_state = 9;
    for (round = 0; round < 4000; round++) {
        char text[33] = "";
        int32_t tokens[32], t;
        float bonus = 0.0f, want;
        n_phrases = 1 + round % 6;
        lr_trie_clear(&r->trie);
        for (t = 0; t < n_phrases; t++) {
            for (i = 0; phrases[t][i] != '\0'; i++) {
                tokens[i] = phrases[t][i];
            }
            lr_trie_add(&r->trie, LR_ANYWHERE, tokens, i, t);
        }
        lr_trie_set_bonus(&r->trie, 2.0f, 1);
        for (i = 0; i < 32; i++) {
            text[i] = (char)('a' + dice(3));
            lr_find_paths(r, tokens, i, &paths);
            bonus += lr_bonus(&r->trie, &paths, text[i]) - paths.provisional;
            tokens[i] = text[i];
            if (round < 20) { /* the sparse way of raising logits equals the dense one */
                for (t = 0; t < vocab; t++) {
                    sparse[t] = (float)t;
                    dense[t] = sparse[t] + lr_bonus(&r->trie, &paths, t);
                }
                lr_boost(&r->trie, &paths, sparse);
                T_CHECK(memcmp(dense, sparse, (size_t)vocab * sizeof(float)) == 0, "boost");
            }
        }
        lr_find_paths(r, tokens, 32, &paths);
        bonus -= paths.provisional; /* the end of text pays back */
        want = slow_earned(phrases, (size_t)n_phrases, text, 2.0f);
        T_CHECK(fabs((double)(bonus - want)) < 1e-3, "%s with %d phrases: %g, not %g", text,
                n_phrases, (double)bonus, (double)want);
    }
    wnpu_session_close(s);
    wnpu_model_close(m);
}

static float bonus_of(wnpu_session *s, const char *text)
{
    const lr_rules *r = &s->run.rules;
    int32_t tokens[64];
    lr_paths paths;
    int64_t n = tk_encode(r->vocab, text, strlen(text), tokens, 64), i;
    float bonus = 0.0f;
    for (i = 0; i < n; i++) {
        lr_find_paths(r, tokens, (size_t)i, &paths);
        bonus += lr_bonus(&r->trie, &paths, tokens[i]) - paths.provisional;
    }
    lr_find_paths(r, tokens, (size_t)n, &paths);
    return bonus - paths.provisional;
}

static void hotword_spellings(void)
{
    static const char *const phrases[] = {"kubernetes", "\xc3\xa4pfel", "\xd0\xbc\xd0\xb8\xd1\x80",
                                          "\xe6\x9d\xb1\xe4\xba\xac"};
    static char heard[600] = "zofia = sofa, so fear|zo\n";
    static const char *const found[] = {
        "kubernetes", " kubernetes", "Kubernetes", " Kubernetes", "KUBERNETES", " KUBERNETES",
        " the Kubernetes", "(Kubernetes", " \xc3\xa4pfel", " \xc3\x84pfel", " \xc3\x84PFEL",
        "\xc3\x84pfel", " \xd0\x9c\xd0\xb8\xd1\x80", " \xd0\x9c\xd0\x98\xd0\xa0",
        "\xe6\x9d\xb1\xe4\xba\xac", "\xe3\x81\xaf\xe6\x9d\xb1\xe4\xba\xac", " kubernetesx",
        " Zofia", " SO FEAR", " sofa", "Zo", " beta"
    };
    static const char *const not_found[] = {
        "xkubernetes", "kubernete", " kuber", "kUbernetes", "\xe6\x9d\xb1", "x\xc3\xa4pfel", " ",
        "", " so fea", " fear", " =", ","
    };
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = encoded(m, 1, 1, 0);
    size_t i;
    wnpu_params_init(&s->run.call.params, sizeof s->run.call.params);
    s->run.call.params.hotwords = phrases;
    s->run.call.params.n_hotwords = 4;
    s->run.call.params.hotword_lines = strcat(heard, "beta=\n");
    T_CHECK(wi_set_hotwords(&s->run.rules, &s->run.engine, &s->run.call, 5) == WNPU_OK, "%s",
            s->run.call.error.message);
    for (i = 0; i < sizeof found / sizeof found[0]; i++) {
        T_CHECK(bonus_of(s, found[i]) > 1.0f, "'%s' is not favoured: %g", found[i],
                (double)bonus_of(s, found[i]));
    }
    for (i = 0; i < sizeof not_found / sizeof not_found[0]; i++) {
        T_CHECK(bonus_of(s, not_found[i]) == 0.0f, "'%s' is favoured: %g", not_found[i],
                (double)bonus_of(s, not_found[i]));
    }
    memset(heard + strlen(heard), 'a', LR_PHRASE_BYTES); /* one that is too long, by itself */
    T_CHECK(wi_set_hotwords(&s->run.rules, &s->run.engine, &s->run.call, 5) == WNPU_E_ARGUMENT,
            "a long hotword");
    *strchr(strstr(heard, "beta"), '\n') = 'a';
    T_CHECK(wi_set_hotwords(&s->run.rules, &s->run.engine, &s->run.call, 5) == WNPU_E_ARGUMENT,
            "a long spelling");
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- the choice among phrases ---- */

/* log P of a phrase: its likeliest spelling, then end of text or punctuation. */
static float slow_phrase(wnpu_session *s, const char *phrase, const se_prompt *p)
{
    const tk_vocab *v = &s->run.engine.model->vocab;
    static const char *const ends[] = {".", ",", "!", "?", ";", ":"};
    char text[64];
    float best = -INFINITY;
    size_t vocab = (size_t)v->n_vocab, at, i;
    int how, space;
    for (how = 0; how < 4; how++) {
        for (space = 0; space < 2; space++) {
            int32_t all[64];
            int64_t n;
            float sum = 0.0f;
            double end = 0;
            (void)snprintf(text, sizeof text, "%s%s", space ? " " : "", phrase);
            for (at = (size_t)space; text[at] != '\0' && how > 0; at++) {
                int upper = how == 3 || (how == 1 && at == (size_t)space);
                if (how == 1 && !upper) {
                    break;
                }
                text[at] = (char)(upper ? toupper((unsigned char)text[at])
                                        : tolower((unsigned char)text[at]));
            }
            memcpy(all, p->tokens, p->n * sizeof *all);
            n = tk_encode(v, text, strlen(text), all + p->n, 32);
            for (at = 0; at <= (size_t)n; at++) {
                float *row = se_feed(&s->run.decoder, all, p->n + at, 0, NULL);
                float total = se_log_sum(s->run.engine.op, row, vocab, &i);
                if (at < (size_t)n) {
                    sum += row[all[p->n + at]] - total;
                    continue;
                }
                end = exp((double)(row[v->eot] - total));
                for (i = 0; i < 6; i++) {
                    end += exp((double)(row[tk_find(v, ends[i], 1)] - total));
                }
            }
            sum += (float)log(end);
            best = sum > best ? sum : best;
        }
    }
    return best;
}

static void choices(void)
{
    static const char *const all[] = {"on", "off", "open", "close", "on the", "the", "stop it",
                                      "Aha", "no", "go", "left", "right", "a"};
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = search_open_session(m, 2, 2, 0);
    float *x = life_burst(16000 * 7, 5);
    wnpu_audio a = life_audio(x, 16000 * 7);
    wnpu_params p;
    size_t count, i;
    wnpu_params_init(&p, sizeof p);
    p.vad = 0; /* toys' sounds are no speech */
    p.language = 1;
    for (count = 1; count <= 13; count += 3) {
        wnpu_choice c;
        wnpu_segment g;
        se_prompt prompt;
        float logprob[13], first = -INFINITY, second = -INFINITY;
        int32_t best = -1, next = -1;
        c.struct_size = sizeof c;
        T_CHECK(wnpu_choose(s, &p, &a, all, count, &c) == WNPU_OK, "%s", wnpu_session_error(s));
        T_CHECK(wnpu_segment_count(s) == 1 && wnpu_get_segment(s, 0, &g) == WNPU_OK &&
                g.t0_ms == 0 && g.t1_ms == 7000, "one segment");
        make_prompt(&s->run, 0, &prompt);
        for (i = 0; i < count; i++) {
            logprob[i] = slow_phrase(s, all[i], &prompt);
            if (logprob[i] > first) {
                second = first;
                next = best;
                first = logprob[i];
                best = (int32_t)i;
            } else if (logprob[i] > second) {
                second = logprob[i];
                next = (int32_t)i;
            }
        }
        T_CHECK(c.best == best && c.second == next, "%lu phrases: %d and %d, not %d and %d",
                (unsigned long)count, c.best, c.second, best, next);
        T_CHECK(fabs((double)(c.best_logprob - first)) < 1e-3, "%g, not %g",
                (double)c.best_logprob, (double)first);
        T_CHECK(count == 1 ? c.margin == INFINITY
                           : fabs((double)(c.margin - (first - second))) < 2e-3, "margin %g",
                (double)c.margin);
    }
    wnpu_session_close(s);
    free(x);
    wnpu_model_close(m);
}

static void choice_errors(void)
{
    static const char *const empty[] = {"on", "  "};
    const char *const null[] = {"on", NULL};
    wnpu_model *m = life_float_toy(7);
    wnpu_config config;
    wnpu_session *s;
    wnpu_error error;
    static char texts[200][16];
    const char *many[200];
    float x[1600] = {0};
    wnpu_audio a = life_audio(x, 1600);
    wnpu_params p;
    wnpu_choice c;
    int i;
    c.struct_size = sizeof c;
    wnpu_config_init(&config, sizeof config);
    config.max_phrase_tokens = 500;
    T_CHECK(wnpu_session_open(&s, m, &config, NULL, 0, &error) == WNPU_OK, "%s", error.message);
    for (i = 0; i < 200; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "word%dx", i);
        many[i] = texts[i];
    }
    T_CHECK(wnpu_choose(s, NULL, &a, empty, 2, &c) == WNPU_E_ARGUMENT, "an empty phrase");
    T_CHECK(wnpu_choose(s, NULL, &a, null, 2, &c) == WNPU_E_ARGUMENT, "no phrase");
    T_CHECK(wnpu_choose(s, NULL, &a, empty, 0, &c) == WNPU_E_ARGUMENT, "no list");
    T_CHECK(wnpu_choose(s, NULL, &a, NULL, 1, &c) == WNPU_E_ARGUMENT, "NULL");
    T_CHECK(wnpu_choose(s, NULL, &a, empty, 1, NULL) == WNPU_E_ARGUMENT, "nowhere to put it");
    T_CHECK(wnpu_choose(s, NULL, &a, many, 200, &c) == WNPU_E_ARGUMENT &&
            strstr(wnpu_session_error(s), "max_phrase_tokens") != NULL, "too many: %s",
            wnpu_session_error(s));
    T_CHECK(wnpu_choose(s, NULL, &a, many, 3, &c) == WNPU_OK && c.best >= 0, "few are fine: %s",
            wnpu_session_error(s));
    wnpu_stream_params_init(&p, sizeof p);
    p.commit_step_ms = 800;
    T_CHECK(wnpu_choose(s, &p, &a, many, 3, &c) == WNPU_OK, "parameters of a live run: %s",
            wnpu_session_error(s));
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- gates: a puppet instead of a model ----
 * The logits filter decides every token, so that decodings can be made to fail. */

typedef struct act {
    int period, length;   /* tokens 20, 21, ... that begin anew after period */
    int unsure_from, unsure_to; /* these have a probability of 1 % only */
} act;

typedef struct puppet {
    const act *acts;      /* one for each decoding, the last for all that follow */
    int n_acts, now, calls[32];
} puppet;

static void play(void *user, const int32_t *tokens, size_t n, float *logits, size_t n_vocab)
{
    puppet *p = user;
    const act *a;
    size_t i, next;
    (void)tokens;
    if (n == 0 || p->now < 0) { /* a prefix stands there from the start */
        p->now++;
    }
    a = &p->acts[p->now < p->n_acts ? p->now : p->n_acts - 1];
    p->calls[p->now < 31 ? p->now : 31]++;
    next = 20 + (size_t)(p->now % 8) * 14 + n % (size_t)a->period; /* another text each time */
    next = (int)n < a->length ? next : 300;                        /* 300: end of text */
    for (i = 0; i < n_vocab; i++) {
        int unsure = (int)n >= a->unsure_from && (int)n < a->unsure_to && i >= 200 && i < 300;
        logits[i] = i == next ? 0.0f : unsure ? -0.001f : LR_FORBIDDEN;
    }
}

typedef struct played {
    wnpu_segment g;
    wnpu_stats stats;
    size_t segments;
    char text[512];
    int calls[32];
} played;

static played perform_on(wnpu_session *s, wnpu_params p, const act *acts, int n, double seconds)
{
    size_t samples = (size_t)(seconds * 16000);
    float *x = life_burst(samples, 3);
    wnpu_audio a = life_audio(x, samples);
    puppet it;
    played r;
    memset(&r, 0, sizeof r);
    memset(&it, 0, sizeof it);
    it.acts = acts;
    it.n_acts = n;
    it.now = -1;
    p.on_logits = play;
    p.user = &it;
    p.timestamps = 0;
    p.best_of = 1;
    p.language = 0;
    p.suppress_blank = 0;
    p.suppress_non_speech = 0;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
    r.segments = wnpu_segment_count(s);
    if (r.segments > 0) {
        wnpu_get_segment(s, r.segments - 1, &r.g);
        (void)snprintf(r.text, sizeof r.text, "%s", r.g.text);
    }
    r.stats.struct_size = sizeof r.stats;
    wnpu_get_stats(s, &r.stats);
    memcpy(r.calls, it.calls, sizeof r.calls);
    free(x);
    return r;
}

static wnpu_params gates_of(void)
{
    wnpu_params p;
    wnpu_params_init(&p, sizeof p);
    p.beam = 1;
    p.vad = 0; /* toys' sounds are no speech */
    p.no_speech_threshold = 2;
    return p;
}

#define ORIGIN(r, t, n, why, ok, told)                                                            \
    T_CHECK(fabs((double)((r).g.temperature - (t))) < 1e-6 && (r).g.retries == (n) &&             \
            (r).g.reasons == (uint32_t)(why) && (r).g.accepted == (ok) && (r).g.prompted == (told) \
            && (r).g.device == WNPU_DEVICE_CPU, "temperature %g, %d retries for %u, accepted %d, " \
            "prompted %d", (double)(r).g.temperature, (r).g.retries, (r).g.reasons,               \
            (r).g.accepted, (r).g.prompted)

static void gates(void)
{
    static const act fine = {50, 12, 0, 0}, loop = {3, 200, 0, 0}, repeats = {40, 160, 0, 0},
                     unsure = {50, 12, 0, 6}, first = {50, 60, 0, 1};
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = search_open_session(m, 1, 5, 0);
    wnpu_params p = gates_of();
    act acts[3];
    played r;
    s->run.text.search.judge.function = NULL; /* a toy's attention would decide at random */
    r = perform_on(s, p, &fine, 1, 5);
    ORIGIN(r, 0.0f, 0, 0, 1, 0);
    T_CHECK(r.g.mean_logprob > -1e-5f && r.g.first_logprob > -1e-5f, "sure");
    acts[0] = loop;
    acts[1] = fine;
    r = perform_on(s, p, acts, 2, 5);
    ORIGIN(r, 0.2f, 1, WNPU_REFUSED_LOOP | WNPU_REFUSED_COMPRESSION * (r.g.reasons >> 1 & 1), 1, 0);
    T_CHECK(r.calls[0] <= 20 && r.stats.loops == 1, "stopped after %d tokens", r.calls[0]);
    p.initial_prompt = "told";
    r = perform_on(s, p, acts, 2, 5);
    T_CHECK(r.g.temperature == 0.0f && r.g.retries == 1 && !r.g.prompted && r.g.accepted,
            "once more without the text before");
    r = perform_on(s, p, &fine, 1, 5);
    ORIGIN(r, 0.0f, 0, 0, 1, 1);
    p.initial_prompt = NULL;
    p.stop_loops = 0;
    r = perform_on(s, p, acts, 2, 5);
    T_CHECK(r.calls[0] > 190 && r.g.reasons == WNPU_REFUSED_COMPRESSION, "not stopped: %d tokens",
            r.calls[0]);
    p.stop_loops = 1;
    acts[0] = repeats;
    r = perform_on(s, p, acts, 2, 5);
    ORIGIN(r, 0.2f, 1, WNPU_REFUSED_COMPRESSION, 1, 0);
    T_CHECK(r.g.compression_ratio < 2.4f && r.g.compression_ratio > 0.5f, "of what was taken");
    p.compression_threshold = 0;
    r = perform_on(s, p, acts, 2, 5);
    ORIGIN(r, 0.0f, 0, 0, 1, 0);
    T_CHECK(r.g.compression_ratio > 2.4f, "ratio %g", (double)r.g.compression_ratio);
    acts[0] = unsure;
    r = perform_on(s, p, acts, 2, 5);
    ORIGIN(r, 0.2f, 1, WNPU_REFUSED_LOGPROB, 1, 0);
    p.logprob_threshold = -INFINITY;
    r = perform_on(s, p, acts, 2, 5);
    ORIGIN(r, 0.0f, 0, 0, 1, 0);
    /* 6 of 12 tokens and the end with log(101) each */
    T_CHECK(fabs((double)r.g.mean_logprob + 6 * log(101) / 13) < 0.01, "mean %g",
            (double)r.g.mean_logprob);
    acts[0] = first;
    p.logprob_threshold = -1;
    p.first_logprob_threshold = -1.5f;
    r = perform_on(s, p, acts, 2, 5);
    ORIGIN(r, 0.2f, 1, WNPU_REFUSED_FIRST_TOKEN, 1, 0);
    p.temperature_step = 0;
    r = perform_on(s, p, acts, 2, 5);
    ORIGIN(r, 0.0f, 0, WNPU_REFUSED_FIRST_TOKEN, 0, 0);
    T_CHECK(r.stats.unaccepted == 1 && r.stats.retries == 0, "nothing else was tried");
    wnpu_session_close(s);
    wnpu_model_close(m);
}

static void gates_all_fail(void)
{
    static const act acts[] = {{3, 200, 0, 0}, {40, 160, 0, 0}, {50, 30, 0, 20}, {50, 12, 0, 6},
                               {50, 30, 0, 25}, {2, 90, 0, 0}};
    static const act loops = {3, 200, 0, 0}, fine = {50, 5, 0, 0};
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = search_open_session(m, 1, 5, 0);
    wnpu_params p = gates_of();
    act doubted[7] = {fine, fine, fine, fine, fine, fine, fine};
    played r;
    int i;
    s->run.text.search.judge.function = NULL; /* a toy's attention would decide at random */
    r = perform_on(s, p, acts, 6, 5);
    T_CHECK(r.stats.unaccepted == 1 && r.stats.retries == 5 && r.stats.loops == 2, "six tries");
    ORIGIN(r, 0.6f, 5, r.g.reasons, 0, 0); /* the most probable without a repetition */
    T_CHECK(r.g.n_tokens == 12 && (r.g.reasons & 7) == 7, "%d tokens, for %u",
            (int)r.g.n_tokens, r.g.reasons);
    r = perform_on(s, p, &loops, 1, 5);
    T_CHECK(r.g.n_tokens == 3 && r.g.accepted == 0 && r.stats.loops == 6,
            "nothing but loops: the period once, not %d tokens", (int)r.g.n_tokens);
    /* Refused at all temperatures: the text before may be the cause, whatever the reason. */
    for (i = 0; i < 6; i++) {
        doubted[i] = acts[3];
    }
    p.initial_prompt = "told";
    r = perform_on(s, p, doubted, 7, 5);
    ORIGIN(r, 0.0f, 6, WNPU_REFUSED_LOGPROB, 1, 0);
    r = perform_on(s, p, doubted, 6, 5);
    T_CHECK(r.g.retries == 6 && !r.g.accepted && r.stats.unaccepted == 1, "refused all the same");
    p.initial_prompt = NULL;
    r = perform_on(s, p, doubted, 7, 5);
    T_CHECK(r.g.retries == 5 && !r.g.accepted, "no text before, nothing more is tried");
    p.no_speech_threshold = -1; /* everything is taken for silence if it is improbable */
    r = perform_on(s, p, &acts[3], 1, 5);
    T_CHECK(r.segments == 0 && r.stats.silent == 1 && r.stats.retries == 0, "silence");
    r = perform_on(s, p, &acts[1], 1, 5);
    T_CHECK(r.segments == 1 && r.stats.silent == 0 && r.stats.retries == 5, "no silence: sure");
    p.logprob_threshold = -INFINITY;
    r = perform_on(s, p, &loops, 1, 5);
    T_CHECK(r.segments == 0 && r.stats.silent == 1 && r.stats.retries == 5, "silence all the same");
    wnpu_session_close(s);
    wnpu_model_close(m);
}

static void context(void)
{
    /* three windows; the first is accepted at once, or at 0.4, or at 0.6, or not at all */
    static const act fine = {50, 12, 0, 0}, unsure = {50, 12, 0, 6};
    static const struct { int refused, carried; } cases[] = {{0, 1}, {2, 1}, {3, 0}, {6, 0}};
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = search_open_session(m, 1, 5, 0);
    wnpu_params p = gates_of();
    act acts[9];
    wnpu_segment g;
    size_t k;
    int i;
    memset(&g, 0, sizeof g);
    p.condition_on_previous = 1;
    for (k = 0; k < 4; k++) {
        for (i = 0; i < 8; i++) {
            acts[i] = i < cases[k].refused ? unsure : fine;
        }
        perform_on(s, p, acts, 8, 65);
        T_CHECK(wnpu_segment_count(s) == 3, "three windows");
        wnpu_get_segment(s, 0, &g);
        T_CHECK(!g.prompted && g.retries == (cases[k].refused < 6 ? cases[k].refused : 5), "first");
        wnpu_get_segment(s, 1, &g);
        T_CHECK(g.prompted == cases[k].carried, "%d refused: prompted %d", cases[k].refused,
                g.prompted);
        wnpu_get_segment(s, 2, &g);
        T_CHECK(g.prompted == 1, "the third follows the second");
    }
    for (i = 0; i < 2; i++) {
        p.condition_on_previous = 0;
        p.initial_prompt = "  Names: Anna, Otto ";
        p.carry_initial_prompt = i;
        perform_on(s, p, &fine, 1, 65);
        for (k = 0; k < 3; k++) {
            wnpu_get_segment(s, k, &g);
            T_CHECK(g.prompted == (k == 0 || i), "window %d, carried %d: prompted %d", (int)k, i,
                    g.prompted);
        }
    }
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* What the decoder is fed: text before, carried and not, and the prefix. */
static void prompt_layout(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = search_open_session(m, 1, 5, 0);
    ru_run *r = &s->run;
    const tk_vocab *v = &m->vocab;
    wnpu_params *p = &r->call.params;
    int32_t told[300], said[300], given[100];
    size_t n_told, n_said, n_given;
    se_prompt q;
    wnpu_params_init(p, sizeof *p);
    p->vad = 0; /* toys' sounds are no speech */
    wi_reset(r);
    n_told = (size_t)tk_encode(v, " Otto", 5, told, 300);
    n_said = (size_t)tk_encode(v, " we said", 8, said, 300);
    n_given = (size_t)tk_encode(v, " Dear Sir", 9, given, 100);
    p->initial_prompt = " Otto ";
    p->carry_initial_prompt = 1;
    p->prefix = "Dear Sir";
    T_CHECK(wi_set_prompts(r, 0) == WNPU_OK, "%s", r->call.error.message);
    wd_append_context(&r->state, &r->context, &r->engine, said, n_said);
    make_prompt(r, 1, &q);
    T_CHECK(q.tokens[0] == v->sot_prev && memcmp(q.tokens + 1, told, n_told * 4) == 0 &&
            memcmp(q.tokens + 1 + n_told, said, n_said * 4) == 0 && q.sot == 1 + n_told + n_said,
            "told, then said");
    T_CHECK(q.n_before == n_said && memcmp(q.before, said, n_said * 4) == 0, "to tell loops by");
    T_CHECK(q.tokens[q.sot] == v->sot && q.tokens[q.sot + 1] == v->language0 &&
            q.tokens[q.sot + 2] == v->transcribe && q.tokens[q.sot + 3] == v->timestamp0 &&
            memcmp(q.tokens + q.sot + 4, given, n_given * 4) == 0 && q.n_given == n_given + 1 &&
            q.n == q.sot + 4 + n_given, "and what is given");
    make_prompt(r, 0, &q);
    T_CHECK(q.sot == 0 && q.tokens[0] == v->sot && q.n_before == 0, "without it");
    r->audio.at.frame = 1;
    make_prompt(r, 0, &q);
    T_CHECK(q.n_given == 0 && q.n == 3, "the prefix is for the first window");
    memset(said, 0, sizeof said);
    said[299] = 7;
    wd_append_context(&r->state, &r->context, &r->engine, said, 300);
    make_prompt(r, 1, &q);
    T_CHECK(q.sot == 224 && memcmp(q.tokens + 1, told, n_told * 4) == 0 && q.tokens[223] == 7,
            "the oldest is dropped, what is carried stays: %d", (int)q.sot);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

static void prefix(void)
{
    static const act fine = {50, 12, 0, 0};
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = search_open_session(m, 1, 5, 0);
    wnpu_params p = gates_of();
    played r;
    p.prefix = " Dear Sir";
    r = perform_on(s, p, &fine, 1, 5);
    T_CHECK(strncmp(r.text, " Dear Sir", 9) == 0, "the text begins '%s'", r.text);
    T_CHECK(r.g.n_tokens > 0 && r.g.tokens[0].probability == 1.0f, "given tokens are certain");
    T_CHECK(r.g.mean_logprob > -1e-5f, "and not part of the mean");
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- languages ---- */

static int64_t no_reader(void *user, void *buffer, size_t max_frames)
{
    (void)user;
    (void)buffer;
    (void)max_frames;
    T_CHECK(0, "a reader that cannot be used is called");
    return -1;
}

static void languages(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = search_open_session(m, 1, 1, 0);
    ru_run *r = &s->run;
    size_t n = 16000 * 70, i;
    float *x = life_burst(n, 3), first[2] = {0}, average[2] = {0}, one[2], sum[2] = {0}, weight = 0;
    wnpu_audio a = life_audio(x, n), pulled;
    wnpu_params p;
    int32_t only = 0;
    wnpu_stats stats;
    stats.struct_size = sizeof stats;
    wnpu_params_init(&p, sizeof p);
    p.vad = 0; /* toys' sounds are no speech */
    p.max_tokens = 4;
    p.temperature_step = 0;
    p.no_speech_threshold = 2;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK && wnpu_get_languages(s, first, 2) == 2, "runs");
    T_CHECK(fabsf(first[0] + first[1] - 1) < 1e-5f, "probabilities");
    only = first[0] < first[1] ? 0 : 1; /* the improbable one */
    p.languages = &only;
    p.n_languages = 1;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "runs");
    wnpu_get_stats(s, &stats);
    T_CHECK(stats.language == only && stats.language_probability == first[only], "allowed: %d",
            stats.language);
    p.language = 1 - only;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_E_ARGUMENT, "given but not allowed");
    p.language = WNPU_LANGUAGE_AUTO;
    p.n_languages = 0;
    p.language_windows = 3;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
    wnpu_get_languages(s, average, 2);
    wnpu_get_stats(s, &stats);
    for (i = 0; i < 3; i++) { /* the definition: windows of 30 s one by one */
        wnpu_audio part = life_audio(x + i * 480000, i < 2 ? 480000 : n - 960000);
        float w;
        wi_reset(r);
        T_CHECK(au_open(r->audio.stream, &part, NULL) == WNPU_OK &&
                    aw_begin_audio(&r->audio, &r->out.now.stats, &r->call) == WNPU_OK,
                "part");
        if (i > 0) { /* no reflection stands before it, but the end of the window before */
            memcpy(r->audio.samples, x + i * 480000 - ML_MARGIN, ML_MARGIN * sizeof *x);
        }
        if (i < 2) {
            memcpy(r->audio.samples + ML_SPAN - ML_MARGIN, x + (i + 1) * 480000, ML_MARGIN * sizeof *x);
        }
        encode_window(r, aw_frames(&r->audio.at));
        se_languages(&r->decoder, one, &w);
        w = (1 - w) * (i < 2 ? 30 : 10); /* seconds that are believed to be speech */
        sum[0] += w * one[0];
        sum[1] += w * one[1];
        weight += w;
    }
    T_CHECK(fabsf(average[0] - sum[0] / weight) < 1e-4f, "average %g, not %g", (double)average[0],
            (double)(sum[0] / weight));
    T_CHECK(stats.language == (average[0] >= average[1] ? 0 : 1), "the better one");
    pulled = a;
    pulled.data = NULL;
    pulled.read = no_reader;
    T_CHECK(wnpu_transcribe(s, &p, &pulled) == WNPU_E_ARGUMENT, "a reader cannot go back");
    p.language_windows = 1;
    p.language_mode = WNPU_LANGUAGE_EACH;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
    wnpu_session_close(s);
    free(x);
    wnpu_model_close(m);
}

/* A recording's language is settled after 3 s of speech if it is probable, else after 15 s. */
static void language_settles(void)
{
    static const struct { float seconds, p; int told; } cases[] = { /* p of language 1 */
        {0, 1, 0}, {2.9f, 1, 0}, {3, 0.81f, 1}, {3, 0.79f, 0}, {3, 0.1f, 1}, {14.9f, 0.7f, 0},
        {15, 0.7f, 1}
    };
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = search_open_session(m, 1, 1, 0);
    ru_run *r = &s->run;
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        wi_reset(r);
        wnpu_params_init(&r->call.params, sizeof r->call.params);
        r->out.now.language.id = -1;
        T_CHECK(wd_needs_language(&r->out.now.language, &r->engine, &r->call.params),
                "nothing is known");
        r->out.now.language.weight = cases[i].seconds;
        r->out.now.language.sums[1] = cases[i].seconds * cases[i].p;
        r->out.now.language.sums[0] = cases[i].seconds - r->out.now.language.sums[1];
        wd_decide_language(&r->out.now.language, &r->work, &r->engine);
        T_CHECK(wd_needs_language(&r->out.now.language, &r->engine, &r->call.params) ==
                    !cases[i].told,
                "case %d", (int)i);
        r->call.params.language_mode = WNPU_LANGUAGE_EACH;
        T_CHECK(wd_needs_language(&r->out.now.language, &r->engine, &r->call.params),
                "every window is asked");
        r->call.params.language = 0;
        T_CHECK(!wd_needs_language(&r->out.now.language, &r->engine, &r->call.params),
                "a given language is not asked for");
    }
    wnpu_session_close(s);
    wnpu_model_close(m);
}

static void language_changes(void)
{
    static const struct { float p; int32_t language; } windows[] = { /* of language 1 */
        {0.4f, 0}, {0.6f, 0}, {0.4f, 0}, {0.6f, 0}, {0.55f, 1}, {0.45f, 1}, {0.3f, 0}, {0.7f, 1},
        {0.36f, 1}, {0.36f, 0}
    };
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = search_open_session(m, 1, 1, 0);
    ru_run *r = &s->run;
    size_t i;
    wi_reset(r);
    wnpu_params_init(&r->call.params, sizeof r->call.params);
    r->call.params.vad = 0; /* toys' sounds are no speech */
    r->out.now.language.id = -1;
    for (i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        float p[RU_LANGUAGES] = {0};
        p[1] = windows[i].p;
        p[0] = 1 - p[1];
        wd_follow_language(&r->out.now.language, &r->work, &r->engine, &r->call.params, p);
        T_CHECK(r->out.now.language.id == windows[i].language, "window %d: language %d", (int)i,
                r->out.now.language.id);
    }
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- the whole ---- */

static char *search_json_of(wnpu_session *s)
{
    return life_written(s, WNPU_FORMAT_JSON).bytes;
}

/* Every kind of search and every state that a run may leave behind: A, B, A gives A twice, for any
 * number of threads. */
static void search_a_b_a(void)
{
    static const char *const words[] = {"Otto", "Anna", "the"};
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = search_open_session(m, 1, 8, 0), *t = search_open_session(m, 3, 8, 0);
    size_t n = 16000 * 40;
    float *x = life_burst(n, 3), *y = life_burst(n, 4);
    wnpu_audio a = life_audio(x, n), b = life_audio(y, n / 2);
    char *last = NULL;
    int k;
    for (k = 0; k < 6; k++) {
        wnpu_params p, q;
        char *one, *two, *three, *four;
        wnpu_params_init(&p, sizeof p);
        p.vad = 0; /* toys' sounds are no speech */
        p.max_tokens = 20;
        p.no_speech_threshold = 2;
        p.temperature_step = k == 5 ? 0.4f : 0;
        p.condition_on_previous = 1;
        p.beam = k == 1 ? 5 : k == 2 ? 8 : 1;
        p.temperature = k == 3 || k == 4 ? 0.7f : 0;
        p.best_of = 6;
        p.seed = k == 4 ? 1 : 0;
        p.hotwords = words;
        p.n_hotwords = k == 2 ? 3 : 0;
        p.hotword_boost = 8;
        p.repetition_penalty = 1.1f;
        p.no_repeat_ngram = 3;
        q = p;
        q.beam = 3;
        q.initial_prompt = "something else";
        q.carry_initial_prompt = 1;
        q.prefix = "And";
        q.hotwords = words;
        q.n_hotwords = 2;
        T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
        one = search_json_of(s);
        T_CHECK(wnpu_transcribe(s, &q, &b) == WNPU_OK, "%s", wnpu_session_error(s));
        two = search_json_of(s);
        T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
        three = search_json_of(s);
        p.n_hotwords = 0;
        p.hotword_lines = k == 2 ? "Otto\r\n\n  Anna \nthe" : NULL;
        T_CHECK(wnpu_transcribe(t, &p, &a) == WNPU_OK, "%s", wnpu_session_error(t));
        four = search_json_of(t);
        T_CHECK(strcmp(one, three) == 0, "case %d: the same run, another answer", k);
        T_CHECK(strcmp(one, four) == 0, "case %d: more threads or text for a list, another answer",
                k);
        T_CHECK(strcmp(one, two) != 0, "case %d: the other run is another", k);
        T_CHECK(last == NULL || strcmp(one, last) != 0, "case %d does what the one before did", k);
        free(last);
        last = one;
        free(two);
        free(three);
        free(four);
    }
    free(last);
    wnpu_session_close(s);
    wnpu_session_close(t);
    free(x);
    free(y);
    wnpu_model_close(m);
}

/* Sampling near temperature 0, down to the least number above it, is greedy search. */
static void coldest(void)
{
    static const float cold[] = {1e-4f, 1e-30f, 1e-38f, 1e-40f, 1e-45f};
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = search_open_session(m, 1, 5, 0);
    float *x = life_burst(16000 * 20, 3);
    wnpu_audio a = life_audio(x, 16000 * 20);
    wnpu_params p;
    wnpu_segment g = {0};
    char *greedy;
    size_t k;
    wnpu_params_init(&p, sizeof p);
    p.vad = 0; /* toys' sounds are no speech */
    p.max_tokens = 20;
    p.no_speech_threshold = 2;
    p.temperature_step = 0;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(wnpu_get_segment(s, 0, &g) == WNPU_OK, "nothing is said");
    greedy = strdup(g.text != NULL ? g.text : "");
    for (k = 0; k < sizeof cold / sizeof cold[0]; k++) {
        p.temperature = cold[k];
        T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
        T_CHECK(wnpu_get_segment(s, 0, &g) == WNPU_OK && strcmp(g.text, greedy) == 0,
                "temperature %g: %s, not %s", (double)cold[k], g.text, greedy);
        T_CHECK(g.temperature == cold[k], "temperature %g", (double)g.temperature);
    }
    free(greedy);
    wnpu_session_close(s);
    free(x);
    wnpu_model_close(m);
}

/* Samples and beams are the same bytes for every instruction set. */
static void instruction_sets(void)
{
    static const char *const words[] = {"the", "a"};
    wnpu_model *m = life_float_toy(7);
    float *x = life_burst(16000 * 4, 3);
    wnpu_audio a = life_audio(x, 16000 * 4);
    int isa, mode, compute;
    for (mode = 0; mode < 2; mode++) {
        for (compute = 0; compute < 2; compute++) {
            char *first = NULL;
            for (isa = WNPU_ISA_SCALAR; wnpu_isa_name((wnpu_isa)isa) != NULL; isa++) {
                wnpu_session *s;
                wnpu_params p = life_params();
                char *next;
                if (!wnpu_isa_available((wnpu_isa)isa)) {
                    continue;
                }
                s = open_on(m, 2, isa, compute);
                p.max_tokens = 16;
                p.beam = 5;
                p.temperature = mode ? 0.8f : 0;
                p.hotwords = words;
                p.n_hotwords = 2;
                T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
                next = search_json_of(s);
                T_CHECK(first == NULL || strcmp(first, next) == 0,
                        "mode %d, compute %d: %s differs", mode, compute,
                        wnpu_isa_name((wnpu_isa)isa));
                free(first);
                first = next;
                wnpu_session_close(s);
            }
            free(first);
        }
    }
    free(x);
    wnpu_model_close(m);
}

/* Programs may pass shorter structures. */
static void older_callers(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_config c;
    wnpu_session *s;
    wnpu_params p;
    wnpu_segment g, whole;
    unsigned char *bytes = (unsigned char *)&g;
    size_t n = 16000 * 3, old = offsetof(wnpu_segment, temperature), i;
    float *x = life_burst(n, 3);
    wnpu_audio a = life_audio(x, n);
    memset(&c, 0xee, sizeof c);
    wnpu_config_init(&c, offsetof(wnpu_config, max_beams));
    T_CHECK(c.max_beams == 0xeeeeeeeeu, "nothing beyond an older configuration is written");
    s = life_open(m, &c);
    T_CHECK(s->run.text.search.slots == 5, "it gets the defaults");
    memset(&p, 0xee, sizeof p);
    wnpu_params_init(&p, offsetof(wnpu_params, beam));
    T_CHECK(p.best_of == (int32_t)0xeeeeeeee, "nor beyond older parameters");
    p.no_speech_threshold = 2;
    p.max_tokens = 8;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(s->run.call.params.beam == 0 && s->run.call.params.temperature_step == 0.2f,
            "defaults");
    wnpu_params_init(&p, sizeof p);
    T_CHECK(ru_beam(&p, 16) == 5 && ru_beam(&p, 3) == 3, "a beam of 5, if there is room");
    p.commit_step_ms = 800;
    T_CHECK(ru_beam(&p, 16) == 5, "and to confirm words");
    p.commit_step_ms = 0;
    p.vad = 0; /* toys' sounds are no speech */
    p.no_speech_threshold = 2;
    p.max_tokens = 8;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
    memset(&g, 0xee, sizeof g);
    T_CHECK(wnpu_get_segment_sized(s, 0, &g, old) == WNPU_OK &&
            wnpu_get_segment(s, 0, &whole) == WNPU_OK, "a segment");
    T_CHECK(memcmp(&g, &whole, old) == 0, "its first part is the same");
    for (i = old; i < sizeof g && bytes[i] == 0xee; i++) {
    }
    T_CHECK(i == sizeof g, "and nothing else is written");
    {
        struct { wnpu_segment g; char more[16]; } newer;
        memset(&newer, 0xee, sizeof newer);
        T_CHECK(wnpu_get_segment_sized(s, 0, &newer.g, sizeof newer) == WNPU_OK &&
                memcmp(&newer.g, &whole, sizeof whole) == 0 && newer.more[0] == 0 &&
                newer.more[15] == 0, "a newer caller gets zeros where we know nothing");
    }
    wnpu_session_close(s);
    free(x);
    wnpu_model_close(m);
}

static void refused(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = search_open_session(m, 1, 5, 0);
    float x[160] = {0};
    wnpu_audio a = life_audio(x, 160);
    wnpu_params p;
    wnpu_config c;
    wnpu_error error;
    int32_t klingon = 2;
    char longest[400];
    const char *words[1];
    static const char *const none[] = {NULL};
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    words[0] = longest;
#define REFUSED(change)                                                       \
    wnpu_params_init(&p, sizeof p);                                           \
    change;                                                                   \
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_E_ARGUMENT && wnpu_session_error(s)[0], #change)
    REFUSED(p.beam = -1);
    REFUSED(p.beam = 6);
    T_CHECK(strstr(wnpu_session_error(s), "max_beams") != NULL, "names the cure");
    REFUSED(p.best_of = -1);
    REFUSED(p.best_of = 6);
    REFUSED(p.patience = 0);
    REFUSED(p.patience = NAN);
    REFUSED(p.length_penalty = 5);
    REFUSED(p.length_rule = 2);
    REFUSED(p.temperature = -0.1f);
    REFUSED(p.temperature = NAN);
    REFUSED(p.temperature_step = 0.01f);
    REFUSED(p.temperature_step = NAN);
    REFUSED(p.compression_threshold = -1);
    REFUSED(p.logprob_threshold = NAN);
    REFUSED(p.first_logprob_threshold = 1);
    REFUSED(p.hotwords = none; p.n_hotwords = 1);
    REFUSED(p.n_hotwords = 1);
    REFUSED(p.suppress_lines = "5\n99999999");
    REFUSED(p.suppress_lines = "5 6");
    REFUSED(p.language_lines = "klingon");
    REFUSED(p.hotwords = words; p.n_hotwords = 1);
    REFUSED(p.hotword_boost = -1);
    REFUSED(p.repetition_penalty = 0);
    REFUSED(p.no_repeat_ngram = 65);
    REFUSED(p.language_mode = 2);
    REFUSED(p.language_windows = 0);
    REFUSED(p.language_margin = 2);
    REFUSED(p.languages = &klingon; p.n_languages = 1);
    REFUSED(p.n_languages = 1);
    REFUSED(p.prefix = longest);
#define NO_SESSION(change)                                                    \
    wnpu_config_init(&c, sizeof c);                                           \
    change;                                                                   \
    T_CHECK(wnpu_session_size(m, &c, &error) == 0 && error.code == WNPU_E_ARGUMENT, #change)
    NO_SESSION(c.max_beams = 0);
    NO_SESSION(c.max_beams = 17);
    NO_SESSION(c.max_phrase_tokens = 0);
    NO_SESSION(c.max_phrase_tokens = 1048577);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* Filters that leave nothing, or nonsense, end the text and nothing else. */
static void search_spoil(void *user, const int32_t *tokens, size_t n, float *logits, size_t n_vocab)
{
    int how = *(int *)user;
    size_t i;
    (void)tokens;
    for (i = 0; i < n_vocab && n >= 3; i++) {
        logits[i] = how == 0 ? -INFINITY : how == 1 ? NAN : how == 2 ? INFINITY : -1e38f;
    }
}

static void spoilt_logits(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = search_open_session(m, 2, 5, 0);
    size_t n = 16000 * 3;
    float *x = life_burst(n, 3);
    wnpu_audio a = life_audio(x, n);
    int how, mode;
    for (how = 0; how < 4; how++) {
        for (mode = 0; mode < 3; mode++) {
            wnpu_params p;
            wnpu_params_init(&p, sizeof p);
            p.beam = 1;
            p.vad = 0; /* toys' sounds are no speech */
            p.no_speech_threshold = 2;
            p.temperature = mode == 2 ? 1.0f : 0.0f;
            p.beam = mode == 1 ? 5 : 1;
            p.temperature_step = 0;
            p.max_tokens = 10;
            p.timestamps = 0;
            p.on_logits = search_spoil;
            p.user = &how;
            T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
            T_CHECK(how == 3 || s->run.text.hypothesis->n <= 3, "filter %d, mode %d: %lu tokens", how,
                    mode, (unsigned long)s->run.text.hypothesis->n);
        }
    }
    wnpu_session_close(s);
    free(x);
    wnpu_model_close(m);
}

static void search_tests(void)
{
    t_run("compressed size is zlib's within 2 %", compressed_size);
    t_run("periods, against their definition", search_periods);
    t_run("loops are cut after their first period", loop_cuts);
    t_run("repetition has parts", loop_parts);
    t_run("repetition whose sound does not recur", copied_text);
    t_run("draws follow the probabilities", draws);
    t_run("beam search is OpenAI's with times summed out, token by token", beam_reference);
    t_run("a wide beam finds the best of all sequences", beam_exhaustive);
    t_run("samples are functions of seed, number and position", sampling);
    t_run("what is kept of a prompt does not show", prompts_are_kept);
    t_run("timestamps that are guessed spare steps and change nothing", guesses);
    t_run("what was said before is checked at once", said_before);
    t_run("repetition penalty and repeated n-grams", penalties);
    t_run("hotwords earn when they are whole", hotwords);
    t_run("spellings of hotwords", hotword_spellings);
    t_run("the choice among phrases is exact", choices);
    t_run("bad lists of phrases are refused", choice_errors);
    t_run("gates: each refuses, and the ladder goes on", gates);
    t_run("gates: the best of those refused, and silence", gates_all_fail);
    t_run("context comes from windows that can be trusted", context);
    t_run("layout of the prompt", prompt_layout);
    t_run("a prefix begins the text", prefix);
    t_run("languages: allowed ones, and averages", languages);
    t_run("a language settles", language_settles);
    t_run("languages change reluctantly", language_changes);
    t_run("a run is a function: A, B, A for every kind of search", search_a_b_a);
    t_run("the coldest samples are greedy search", coldest);
    t_run("every instruction set gives the same beams and samples", instruction_sets);
    t_run("older and newer callers", older_callers);
    t_run("bad parameters are refused with a reason", refused);
    t_run("logits that a filter has spoilt", spoilt_logits);
}

#undef NO_SESSION
#undef REFUSED
