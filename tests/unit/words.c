/* Tests of section al_: the path through the attention, the filter, grouping, pauses, segments, and
 * words through the public API on toy models. No data is needed. */
#include "../lib/life.h"

static uint32_t words_seed = 1;

static uint32_t random32(void)
{
    words_seed = words_seed * 1664525u + 1013904223u;
    return words_seed >> 8;
}

static float uniform(void)
{
    return (float)(random32() % 65536) / 65536.0f;
}

/* ---- dynamic time warping ---- */

/* The most that any path from cell i, j to the last one gains: every path is tried. */
static double best_path(const float *gain, size_t n, size_t m, size_t i, size_t j)
{
    double best = -1e30, rest;
    if (i == n - 1 && j == m - 1) {
        return gain[i * m + j];
    }
    if (i + 1 < n && (rest = best_path(gain, n, m, i + 1, j)) > best) {
        best = rest;
    }
    if (j + 1 < m && (rest = best_path(gain, n, m, i, j + 1)) > best) {
        best = rest;
    }
    if (i + 1 < n && j + 1 < m && (rest = best_path(gain, n, m, i + 1, j + 1)) > best) {
        best = rest;
    }
    return gain[i * m + j] + best;
}

/* The most that a path gains which enters each row where first says: it leaves row i in the column
 * where it enters the next one, or in the one before. -1e30 if there is no such path. */
static double path_through(const float *gain, size_t n, size_t m, const uint32_t *first, size_t i)
{
    double sum = 0, best = -1e30, rest;
    size_t j, last = i + 1 < n ? first[i + 1] : m - 1;
    for (j = first[i]; j <= last; j++) {
        sum += gain[i * m + j];
        if (i + 1 == n) {
            best = sum; /* after the loop: to the last column */
        } else if (j + 1 >= last && (rest = path_through(gain, n, m, first, i + 1)) + sum > best) {
            best = rest + sum;
        }
    }
    return best;
}

static void warping(void)
{
    int trial;
    for (trial = 0; trial < 4000; trial++) {
        size_t n = 1 + random32() % 5, m = 1 + random32() % 6, i;
        float gain[30], cost[2 * 7];
        uint8_t trace[30];
        uint32_t first[5];
        double want, is;
        for (i = 0; i < n * m; i++) { /* whole numbers: sums are exact, and equals are frequent */
            gain[i] = (float)(int)(random32() % (trial % 2 ? 1000 : 4)) - (trial % 3 ? 0 : 2);
        }
        al_warp(gain, n, m, m, cost, trace, first);
        want = best_path(gain, n, m, 0, 0);
        is = path_through(gain, n, m, first, 0);
        T_CHECK(first[0] == 0, "the path begins in column %u", first[0]);
        T_CHECK(is == want, "%zu x %zu: gains %g, %g is possible", n, m, is, want);
    }
}

/* Among equals the path comes from the left: in a matrix of zeros it goes down the first column
 * and then along the last row. */
static void ties(void)
{
    static const float gain[12] = {0};
    float cost[10];
    uint8_t trace[12];
    uint32_t first[4];
    al_warp(gain, 3, 4, 4, cost, trace, first);
    T_CHECK(first[0] == 0 && first[1] == 0 && first[2] == 0, "%u %u %u", first[0], first[1],
            first[2]);
}

/* ---- does the sound recur? ---- */

#define SOUNDS 40u /* of 80 to 120 ms each in a part */

/* Adds a part of a window's log-mel from frame t on: sounds of 80 bands, `slow` times as long, each
 * other than the last one's by noise. Returns where it ends. */
static size_t add_part(float *mel, size_t t, const float *sound, float slow, float noise)
{
    size_t i, k, m;
    for (i = 0; i < SOUNDS; i++) {
        size_t length = (size_t)((8.0f + (float)(i % 3) * 2.0f) * slow);
        for (k = 0; k < length; k++, t++) {
            for (m = 0; m < 80; m++) {
                mel[(t + 1) * 80 + m] = sound[i * 80 + m] + noise * (uniform() - 0.5f);
            }
        }
    }
    return t;
}

/* The same part said four times, at other speeds and in noise, and four parts that differ. */
static void recurring_sound(void)
{
    static float mel[(ML_FRAMES + 2) * 80], attended[1500 * 64], sound[SOUNDS * 80];
    static const float slow[4] = {1.0f, 0.8f, 1.2f, 0.9f};
    static wnpu_model model;
    static en_engine engine;
    static de_decoder decoder;
    static al_aligner a;
    uint32_t begin[4], early[4] = {3, 33, 63, 93};
    int trial;
    model.n_mels = 80;
    model.n_audio_state = 64;
    engine.model = &model;
    engine.mel = mel;
    engine.attended = attended;
    decoder.e = &engine;
    a.decoder = &decoder;
    for (trial = 0; trial < 4; trial++) {
        int again = trial % 2;
        size_t t = 0, i, k;
        for (k = 0; k < 4; k++) {
            for (i = 0; i < SOUNDS * 80 && (k == 0 || !again); i++) {
                sound[i] = uniform();
            }
            begin[k] = (uint32_t)(t / 2) + random32() % 10; /* alignment is not exact */
            t = add_part(mel, t, sound, slow[k], 0.5f);
        }
        a.frames = t / 2;
        T_CHECK(al_sound_recurs(&a, begin, 4) == again, "trial %d: %s", trial,
                again ? "said again, and not found" : "another sound, and found");
        T_CHECK(al_sound_recurs(&a, begin, 1), "one part says nothing");
        T_CHECK(al_sound_recurs(&a, early, 4), "nor do parts of 600 ms");
        a.frames = 20;
        T_CHECK(al_sound_recurs(&a, begin, 4), "nor does a short window");
    }
}

/* ---- the median filter ---- */

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void median_filter(void)
{
    size_t n, i, k;
    unsigned bits;
    for (bits = 0; bits < 128; bits++) { /* a network that sorts zeros and ones sorts everything */
        mt_f4 v[7];
        int ones = 0;
        for (i = 0; i < 7; i++) {
            v[i] = (mt_f4){0} + (float)(bits >> i & 1);
            ones += (int)(bits >> i & 1);
        }
        al_median7(v);
        T_CHECK(v[3][0] == (ones > 3 ? 1.0f : 0.0f), "median of %02x", bits);
    }
    for (n = 1; n < 200; n += n < 40 ? 1 : 23) {
        float x[200], wide[232], sum[208];
        for (i = 0; i < n; i++) {
            x[i] = n % 2 ? uniform() - 0.5f : (float)(random32() % 3);
        }
        for (i = 0; i < 208; i++) {
            sum[i] = 10.0f;
        }
        al_smooth(sum, x, n, wide);
        for (i = 0; i < n; i++) {
            float seven[7], want = x[i];
            for (k = 0; k < 7 && n > 3; k++) {
                ptrdiff_t at = (ptrdiff_t)(i + k) - 3, last = (ptrdiff_t)n - 1;
                at = at < 0 ? -at : at > last ? 2 * last - at : at;
                seven[k] = x[at];
            }
            if (n > 3) {
                qsort(seven, 7, sizeof seven[0], by_size);
                want = seven[3];
            }
            T_CHECK(sum[i] == 10.0f + want, "%zu values: %g at %zu, not %g", n,
                    (double)(sum[i] - 10.0f), i, (double)want);
        }
    }
}

/* A text of 7 s in a window of 24.7 s, with one timestamp at its end: OpenAI's rule uses the window,
 * and its words are aligned with what they are from. */
static void said_frames(void)
{
    static se_hypothesis h;
    const int32_t t0 = 1000;
    static const int32_t single[] = {1000, 5, 6, 1350}, pair[] = {1000, 5, 1350, 1350},
                         open[] = {1000, 5, 6, 7};
    h.n = 4;
    memcpy(h.tokens, single, sizeof single);
    T_CHECK(lg_used_frames(&h, t0, 2470) == 2470, "a single end uses the window");
    T_CHECK(lg_said_frames(&h, t0, 2470) == 750, "%zu frames", lg_said_frames(&h, t0, 2470));
    T_CHECK(lg_said_frames(&h, t0, 720) == 720, "more than the window");
    memcpy(h.tokens, pair, sizeof pair);
    T_CHECK(lg_said_frames(&h, t0, 700) == 700, "a pair");
    memcpy(h.tokens, open, sizeof open);
    T_CHECK(lg_said_frames(&h, t0, 2470) == 2470, "no end");
}

/* ---- the matrix, against its definition in double precision ---- */

static float *speechlike(size_t n)
{
    float *x = malloc((n > 0 ? n : 1) * sizeof *x);
    size_t i;
    for (i = 0; i < n; i++) {
        double t = (double)i / 16000;
        x[i] = (float)(0.3 * sin(t * 900 * (1 + 0.2 * sin(t * 3))) * (sin(t * 5) > 0) +
                       0.01 * ((double)uniform() - 0.5));
    }
    return x;
}

/* Key vector t of a head on the float path. */
static float key(const en_heads *h, size_t head, size_t t, size_t c)
{
    return h->kf[head * h->keys * h->hd + (t / 16) * 16 * h->hd + c * 16 + t % 16];
}

/* One head's attention of all rows to the frames, normalised over the rows. */
static void attention(const al_aligner *a, size_t i, double *w)
{
    const en_heads *h = &a->decoder->cross[a->heads[i].layer];
    size_t rows = al_rows(a), r, f, c;
    for (r = 0; r < rows; r++) {
        double sum = 0;
        for (f = 0; f < a->frames; f++) {
            double score = 0;
            for (c = 0; c < h->hd; c++) {
                score += (double)a->query[(i * AL_ROWS + r) * h->hd + c] *
                         (double)key(h, a->heads[i].head, f, c);
            }
            w[r * a->frames + f] = exp(score);
            sum += exp(score);
        }
        for (f = 0; f < a->frames; f++) {
            w[r * a->frames + f] /= sum;
        }
    }
    for (f = 0; f < a->frames; f++) {
        double mean = 0, square = 0;
        for (r = 0; r < rows; r++) {
            mean += w[r * a->frames + f] / (double)rows;
        }
        for (r = 0; r < rows; r++) {
            square += (w[r * a->frames + f] - mean) * (w[r * a->frames + f] - mean) / (double)rows;
        }
        for (r = 0; r < rows; r++) {
            w[r * a->frames + f] = (w[r * a->frames + f] - mean) / sqrt(square);
        }
    }
}

static double filtered(const double *x, size_t n, size_t i)
{
    float seven[7];
    size_t k;
    for (k = 0; k < 7; k++) {
        ptrdiff_t at = (ptrdiff_t)(i + k) - 3, last = (ptrdiff_t)n - 1;
        seven[k] = (float)x[at < 0 ? -at : at > last ? 2 * last - at : at];
    }
    qsort(seven, 7, sizeof seven[0], by_size);
    return (double)seven[3];
}

static void the_matrix(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = open_on(m, 2, 0, WNPU_COMPUTE_FLOAT);
    wnpu_session *q = open_on(m, 2, 0, WNPU_COMPUTE_INT8);
    al_aligner *a = &s->run.text.aligner, *b = &q->run.text.aligner;
    float *x = speechlike(ML_SPAN), probability[40];
    int32_t tokens[40];
    size_t i, r, f, rows, heads;
    double *w, *want, worst = 0, xy = 0, xx = 0, yy = 0;
    memcpy(s->run.audio.samples, x, ML_SPAN * sizeof *x);
    memcpy(q->run.audio.samples, x, ML_SPAN * sizeof *x);
    encode_window(&s->run, ML_FRAMES);
    encode_window(&q->run, ML_FRAMES);
    for (i = 0; i < 40; i++) {
        tokens[i] = (int32_t)(i * 31 % 300);
        probability[i] = 1.0f;
    }
    heads = a->n_heads;
    T_CHECK(heads == 2 && a->heads[0].layer == 1 && a->heads[1].head == 1,
            "a model of one's own: all heads of the top half of the layers");
    s->run.audio.at.n_samples = q->run.audio.at.n_samples = ML_SPAN;
    al_window(a, 0, 0, tokens, probability, 40, s->run.audio.samples + ML_MARGIN, 1777, 0);
    al_window(b, 0, 0, tokens, probability, 40, q->run.audio.samples + ML_MARGIN, 1777, 0);
    rows = al_rows(a);
    T_CHECK(a->frames == 888 && rows == a->lead + 42, "%zu frames, %zu rows", a->frames, rows);
    T_CHECK(a->n_words > 1 && a->n_words <= 40, "%zu words", a->n_words);
    for (a->head = 0; a->head < heads; a->head++) { /* again: its memory has served otherwise */
        al_attend_task(a, 0, 0);
        al_attend_task(a, 1, 0);
        for (i = 0; i < en_blocks(a->stride, AL_TASK_FRAMES); i++) {
            al_normalise_task(a, i, 0);
        }
        for (i = 0; i <= a->n_text; i++) {
            al_smooth_task(a, i, 0);
        }
    }
    b->head = 0;
    w = malloc(rows * a->frames * sizeof *w);
    want = calloc((a->n_text + 1) * a->frames, sizeof *want);
    for (i = 0; i < heads; i++) {
        attention(a, i, w);
        for (r = 0; r <= a->n_text; r++) {
            for (f = 0; f < a->frames; f++) {
                want[r * a->frames + f] += filtered(w + (a->lead + r) * a->frames, a->frames, f);
            }
        }
    }
    for (r = 0; r <= a->n_text; r++) {
        for (f = 0; f < a->frames; f++) {
            double is = (double)a->matrix[r * a->stride + f], be = want[r * a->frames + f];
            worst = fabs(is - be) > worst ? fabs(is - be) : worst;
        }
    }
    T_CHECK(worst < 2e-3, "float path: off by %g of values around 1", worst);
    for (b->head = 0; b->head < heads; b->head++) {
        al_attend_task(b, 0, 0);
        al_attend_task(b, 1, 0);
        for (i = 0; i < en_blocks(b->stride, AL_TASK_FRAMES); i++) {
            al_normalise_task(b, i, 0);
        }
        for (i = 0; i <= b->n_text; i++) {
            al_smooth_task(b, i, 0);
        }
    }
    for (r = 0; r <= a->n_text; r++) {
        for (f = 0; f < a->frames; f++) {
            double is = (double)b->matrix[r * b->stride + f], be = want[r * a->frames + f];
            xy += is * be;
            xx += is * is;
            yy += be * be;
        }
    }
    T_CHECK(xy / sqrt(xx * yy) > 0.98, "INT8 path: correlation %g", xy / sqrt(xx * yy));
    free(w);
    free(want);
    free(x);
    wnpu_session_close(s);
    wnpu_session_close(q);
    wnpu_model_close(m);
}

static void known_heads(void)
{
    static const struct {
        const char *name;
        uint32_t layers, heads, n;
    } models[] = {
        {"tiny.en", 4, 6, 8}, {"tiny", 4, 6, 6}, {"base.en", 6, 8, 5}, {"base", 6, 8, 8},
        {"small.en", 12, 12, 19}, {"small", 12, 12, 10}, {"medium.en", 24, 16, 18},
        {"medium", 24, 16, 6}, {"large", 32, 20, 23}, {"large-v3", 32, 20, 10},
        {"turbo", 4, 20, 6}, {"custom", 5, 3, 9}
    };
    size_t i, k;
    for (i = 0; i < sizeof models / sizeof models[0]; i++) {
        mf_head given[MF_MAX_ALIGNED];
        de_head heads[32];
        wnpu_model m;
        int64_t lag, same = -1;
        size_t n;
        memset(&m, 0, sizeof m);
        memset(given, 0, sizeof given);
        m.name = models[i].name;
        m.alignment = given;
        m.n_text_layer = models[i].layers;
        m.n_text_head = models[i].heads;
        n = al_heads(&m, heads, &lag);
        T_CHECK(n == models[i].n && n == al_heads(&m, NULL, &lag), "%s: %zu heads", m.name, n);
        T_CHECK(lag >= -200 && lag <= 200 && lag % 10 == 0, "%s: lag %d", m.name, (int)lag);
        for (k = 0; k < n; k++) {
            T_CHECK(heads[k].layer >= m.n_text_layer / 5 && heads[k].layer < m.n_text_layer &&
                    heads[k].head < m.n_text_head, "%s: head %zu", m.name, k);
            T_CHECK(k == 0 || heads[k].layer * 64 + heads[k].head >
                    heads[k - 1].layer * 64 + heads[k - 1].head, "%s: order at %zu", m.name, k);
            given[k].layer = (uint16_t)(heads[k].layer + 1);
            given[k].head = heads[k].head;
        }
        T_CHECK(al_heads(&m, NULL, &same) == n && same == lag, "%s: given its heads", m.name);
        given[0].layer = 0;
        given[0].head = 0;
    }
}

/* ---- grouping ---- */

/* Tokens separated by |, and || where a pair of timestamps stands between them. Returns the words
 * separated by | in static storage. */
static const char *grouped(const char *tokens, int spaced)
{
    static char out[1024];
    static uint32_t offset[64];
    static char bytes[1024], text[1024];
    static float probability[128];
    static al_word words[SE_MAX_TOKENS];
    al_aligner a;
    tk_vocab v;
    size_t used = 0, i, n = 0, at = 0;
    uint32_t index = 0;
    memset(&a, 0, sizeof a);
    memset(&v, 0, sizeof v);
    a.text = text;
    a.words = words;
    for (i = 0;; i++) {
        if (tokens[i] != '|' && tokens[i] != '\0') {
            bytes[used++] = tokens[i];
            continue;
        }
        if (used == at) { /* a second bar */
            index += 2;
        } else {
            a.tokens[a.lead + 1 + n] = (int32_t)n;
            a.from[n] = index++;
            offset[n++] = (uint32_t)at;
            bytes[used++] = '\0';
            at = used;
        }
        if (tokens[i] == '\0') {
            break;
        }
    }
    offset[n] = (uint32_t)used;
    v.offset = offset;
    v.bytes = bytes;
    v.eot = (int32_t)n;
    a.n_text = n;
    a.frames = 1500;
    for (i = 0; i <= n; i++) {
        a.at_ms[i] = (int64_t)(100 * i);
    }
    al_make_words(&a, &v, probability, spaced);
    al_merge_punctuation(&a);
    for (i = 0, used = 0, at = 0; i < a.n_words; i++) {
        T_CHECK(words[i].text == at && words[i].n > 0, "%s: word %zu leaves a gap", tokens, i);
        T_CHECK(words[i].first == (i > 0 ? words[i - 1].first + words[i - 1].n : 0),
                "%s: word %zu has tokens from %zu", tokens, i, words[i].first);
        used += (size_t)sprintf(out + used, "%s%.*s", i > 0 ? "|" : "", (int)words[i].length,
                                text + words[i].text);
        at += words[i].length;
    }
    T_CHECK(n == 0 || at == a.stop[n - 1], "%s: words do not reach the end", tokens);
    return out;
}

/* What OpenAI's split_to_word_tokens() and merge_punctuations() make of these tokens, worked out
 * from their definition. */
static void grouping(void)
{
    static const struct {
        int spaced;
        const char *tokens, *words;
    } cases[] = {
        {1, " Hello|,| wor|ld|!", " Hello,| world!"},
        {1, "Hello| there", "Hello| there"},
        {1, " it|'s| mine", " it's| mine"},
        {1, " the| dogs|'| bones", " the| dogs'| bones"},
        {1, " (|yes|)| no", " (yes)| no"},
        {1, " \"|No|,\"| he| said|.", " \"No,\"| he| said."},
        {1, " wait|...| what|?", " wait...| what?"}, /* no punctuation there: it is joined */
        {1, " end|.|\"| Then", " end.\"| Then"},
        {1, " $|5|.|50", " $5|.50"},
        {1, " e|-|mail", " e|-mail"},
        {1, " -| five", " - five"},
        {1, " [| (|x|)|]", " [ (x)]"},
        {1, " |a| |b", " a| b"},
        {1, " a| ", " a| "},
        {1, " \xc2\xbf|Qu\xc3|\xa9|?", " \xc2\xbfQu\xc3\xa9?"},
        {1, " M|\xc3|\xbc|ller|,| der", " M\xc3\xbcller,| der"},
        {1, " \xe2\x80\x9c|Nein|\xe2\x80\x9d|.", " \xe2\x80\x9cNein\xe2\x80\x9d."},
        {1, " \xd0\x94|\xd0\xb0|.", " \xd0\x94\xd0\xb0."},
        {1, "\xff|a| b", "\xff" "a| b"},
        {1, " cut|\xc3", " cut\xc3"},
        {1, " one|.||\"| two", " one.|\"| two"}, /* nothing is joined across timestamps */
        {1, " half||way", " half|way"},
        {0, "\xe3\x81|\x93|\xe3\x82\x93|\xe3\x80\x82", "\xe3\x81\x93|\xe3\x82\x93\xe3\x80\x82"},
        {0, "\xe4\xbd\xa0\xe5\xa5\xbd|\xef\xbc\x8c|\xe4\xb8|\x96|\xe7\x95\x8c",
         "\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c|\xe4\xb8\x96|\xe7\x95\x8c"},
        {0, " \xe2\x80\x9c|\xe5\xa5\xbd", " \xe2\x80\x9c\xe5\xa5\xbd"},
        {0, "\xe0\xb8\xaa\xe0\xb8|\xa7|\xe0\xb8\xb1|?", "\xe0\xb8\xaa\xe0\xb8\xa7|\xe0\xb8\xb1?"},
        {0, "\xff|\xe3\x81|\x93", "\xff|\xe3\x81\x93"},
    };
    static const char *const spaced[] = {"en", "de", "ru", "ko", "vi", "ar", "km", "bo"};
    static const char *const unspaced[] = {"zh", "ja", "th", "lo", "my", "yue"};
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *is = grouped(cases[i].tokens, cases[i].spaced);
        T_CHECK(strcmp(is, cases[i].words) == 0, "%s: %s, not %s", cases[i].tokens, is,
                cases[i].words);
    }
    for (i = 0; i < sizeof spaced / sizeof spaced[0]; i++) {
        T_CHECK(al_uses_spaces(wnpu_language_id(spaced[i])), "%s has spaces", spaced[i]);
    }
    for (i = 0; i < sizeof unspaced / sizeof unspaced[0]; i++) {
        T_CHECK(!al_uses_spaces(wnpu_language_id(unspaced[i])), "%s has no spaces", unspaced[i]);
    }
}

/* ---- durations and segments ---- */

/* A window of words with begin and end in ms, and texts of one byte each. */
static void window_of(al_aligner *a, al_word *words, char *text, const int (*times)[2],
                      const char *marks, size_t n)
{
    size_t i;
    memset(a, 0, sizeof *a);
    memset(words, 0, n * sizeof *words);
    a->words = words;
    a->text = text;
    a->n_words = a->n_text = n;
    a->frames = 1500;
    for (i = 0; i < n; i++) {
        text[i] = marks[i];
        words[i].first = words[i].text = i;
        words[i].n = words[i].length = 1;
        words[i].t0_ms = times[i][0];
        words[i].t1_ms = times[i][1];
        a->from[i] = (uint32_t)i;
    }
    a->median_ms = al_median_ms(a);
}

static void durations(void)
{
    static const int few[][2] = {{0, 100}, {100, 100}, {100, 400}}; /* nothing counts not */
    static const int even[][2] = {{0, 100}, {100, 300}, {300, 600}, {600, 1000}};
    static const int long_ones[][2] = {{0, 2000}, {2000, 5000}};
    static const int ends[][2] = {{0, 300}, {300, 3000}, {3000, 3200}, {3200, 6000}, {6000, 6300}};
    al_aligner a;
    al_word words[8];
    char text[8];
    window_of(&a, words, text, few, "abc", 3);
    T_CHECK(a.median_ms == 200, "median %d", (int)a.median_ms);
    window_of(&a, words, text, even, "abcd", 4);
    T_CHECK(a.median_ms == 250, "median %d", (int)a.median_ms);
    window_of(&a, words, text, long_ones, "ab", 2);
    T_CHECK(a.median_ms == 700, "median %d", (int)a.median_ms);
    window_of(&a, words, text, even, "", 0);
    T_CHECK(a.median_ms == 0, "median %d", (int)a.median_ms);
    window_of(&a, words, text, ends, "a.b.c", 5); /* median 300 */
    al_limit_words(&a);
    T_CHECK(words[1].t0_ms == 300 && words[1].t1_ms == 900, "a mark ends at %d",
            (int)words[1].t1_ms);
    T_CHECK(words[3].t0_ms == 3200 && words[3].t1_ms == 3800, "so does the other");
    window_of(&a, words, text, ends, "ab?cd", 5);
    al_limit_words(&a);
    T_CHECK(words[1].t1_ms == 3000, "a word inside a sentence stays");
    T_CHECK(words[3].t0_ms == 5400 && words[3].t1_ms == 6000,
            "the first of a sentence begins late");
}

static void words_segments(void)
{
    static const int first_long[][2] = {{0, 5000}, {5000, 5300}, {5300, 5600}, {5600, 5800}};
    static const int second_long[][2] = {{4000, 4300}, {4300, 8000}, {8000, 8300}, {8300, 8600}};
    static const int near[][2] = {{1000, 1300}, {1300, 1600}, {1600, 3000}};
    al_aligner a;
    al_word words[8];
    char text[8];
    const al_word *w;
    size_t n;
    int64_t t0, t1;
    window_of(&a, words, text, first_long, "abcd", 4); /* median 300 */
    t0 = 4500;
    t1 = 5700;
    w = al_segment(&a, 3, 30000, &t0, &t1, &n);
    T_CHECK(n == 3 && w == words && a.next == 3, "three words are taken, not %zu", n);
    T_CHECK(w[0].t0_ms == 4400 && t0 == 4400, "a long first word begins at %d, its segment at %d",
            (int)w[0].t0_ms, (int)t0);
    T_CHECK(t1 == 5600 && a.last_ms == 5600, "the segment ends with its last word: %d", (int)t1);
    t0 = 5500; /* before the end of the segment before */
    t1 = 5550;
    w = al_segment(&a, 9, 30000, &t0, &t1, &n);
    T_CHECK(n == 1 && t0 == 5600 && w->t0_ms == 5600 && t1 == 5800, "one word from %d to %d",
            (int)t0, (int)t1);
    w = al_segment(&a, 9, 30000, &t0, &t1, &n);
    T_CHECK(n == 0, "no word is left");
    window_of(&a, words, text, second_long, "abcd", 4);
    t0 = 4000;
    t1 = 8600;
    w = al_segment(&a, 9, 8500, &t0, &t1, &n);
    T_CHECK(w[0].t1_ms == 7400 && w[1].t0_ms == 7400 && w[0].t0_ms == 6800,
            "a long second word: %d..%d", (int)w[0].t0_ms, (int)w[0].t1_ms);
    T_CHECK(t0 == 6800 && t1 == 8500 && w[3].t1_ms == 8500, "nothing ends behind the audio");
    window_of(&a, words, text, near, "abc", 3);
    t0 = 1550;
    t1 = 2000;
    w = al_segment(&a, 9, 30000, &t0, &t1, &n);
    T_CHECK(w[0].t0_ms == 1000 && t0 == 1000,
            "the word decides: it ends before the segment begins");
    T_CHECK(w[2].t1_ms == 2000 && t1 == 2000, "the segment decides: the last word is too long");
    window_of(&a, words, text, near, "abc", 3);
    words[2].pause_end = 1;
    t0 = 1550;
    t1 = 2000;
    w = al_segment(&a, 9, 30000, &t0, &t1, &n);
    T_CHECK(w[2].t1_ms == 3000 && t1 == 3000, "a pause decides");
}

/* ---- pauses ---- */

/* The cost of a choice of boundaries for pauses from i on, each not before the last: all are
 * tried. */
static int64_t best_match(const al_aligner *a, size_t i, size_t least)
{
    int64_t best, length, cost;
    size_t k;
    if (i == a->n_pauses) {
        return 0;
    }
    length = a->pauses[i].t1_ms - a->pauses[i].t0_ms;
    best = 50 + (length < 500 ? length : 500) + best_match(a, i + 1, least);
    for (k = least; k <= a->n_words; k++) {
        cost = al_pause_distance(a, &a->pauses[i], k) + best_match(a, i + 1, k);
        best = cost < best ? cost : best;
    }
    return best;
}

static void matching(void)
{
    al_word words[5];
    al_pause pauses[5];
    uint8_t choice[5 * 6];
    int trial;
    for (trial = 0; trial < 3000; trial++) {
        al_aligner a;
        int64_t at = 0, cost = 0;
        size_t i, last = 0, to[5];
        memset(&a, 0, sizeof a);
        memset(words, 0, sizeof words);
        a.words = words;
        a.pauses = pauses;
        a.choice = choice;
        a.n_words = 1 + random32() % 4;
        a.n_pauses = random32() % 5;
        for (i = 0; i < a.n_words; i++) {
            at += (int64_t)(random32() % 3 * 100);
            words[i].t0_ms = at;
            at += (int64_t)(random32() % 60 * 10);
            words[i].t1_ms = at;
        }
        for (i = 0, at = 0; i < a.n_pauses; i++) {
            at += 10 + (int64_t)(random32() % 50 * 10);
            pauses[i].t0_ms = at;
            at += 60 + (int64_t)(random32() % 70 * 10);
            pauses[i].t1_ms = at;
        }
        al_match_pauses(&a, to);
        for (i = 0; i < a.n_pauses; i++) {
            int64_t length = pauses[i].t1_ms - pauses[i].t0_ms;
            T_CHECK(to[i] == a.n_words + 1 || (to[i] <= a.n_words && to[i] >= last),
                    "boundary %zu after %zu", to[i], last);
            last = to[i] <= a.n_words ? to[i] : last;
            cost += to[i] <= a.n_words ? al_pause_distance(&a, &pauses[i], to[i])
                                       : 50 + (length < 500 ? length : 500);
        }
        T_CHECK(cost == best_match(&a, 0, 0), "cost %d, %d is possible", (int)cost,
                (int)best_match(&a, 0, 0));
    }
}

/* Three words of tone in weak noise, with pauses of 200 ms, 80 ms and 500 ms before them, and
 * boundaries that are 100 ms off. Times are good to a frame. */
static void hearing(void)
{
    static const int spoken[3][2] = {{200, 500}, {580, 900}, {1400, 1700}};
    static const int wrong[3][2] = {{0, 620}, {620, 800}, {800, 1600}};
    static float x[32000];
    static al_pause pauses[AL_MAX_PAUSES];
    static uint8_t choice[AL_MAX_PAUSES * 4];
    al_aligner a;
    al_word words[3];
    char text[3];
    size_t i, k;
    for (i = 0; i < 32000; i++) {
        x[i] = 0.0005f * (uniform() - 0.5f) + 0.2f;
        for (k = 0; k < 3; k++) {
            if (i >= (size_t)spoken[k][0] * 16 && i < (size_t)spoken[k][1] * 16) {
                x[i] += 0.3f * (float)sin((double)i * 0.3);
            }
        }
    }
    window_of(&a, words, text, wrong, "abc", 3);
    a.pauses = pauses;
    a.choice = choice;
    a.frames = 100;
    al_snap_to_pauses(&a, x, 200);
    T_CHECK(a.n_pauses == 4, "%zu pauses", a.n_pauses);
    for (k = 0; k < 3; k++) {
        T_CHECK(labs((long)words[k].t0_ms - spoken[k][0]) <= 10 &&
                labs((long)words[k].t1_ms - spoken[k][1]) <= 10 &&
                words[k].pause_begin && words[k].pause_end, "word %zu at %d..%d", k,
                (int)words[k].t0_ms, (int)words[k].t1_ms);
    }
    for (i = 0; i < 32000; i++) {
        x[i] = 0.1f * (uniform() - 0.5f);
    }
    window_of(&a, words, text, wrong, "abc", 3);
    a.pauses = pauses;
    a.choice = choice;
    al_snap_to_pauses(&a, x, 200);
    T_CHECK(a.n_pauses == 0 && words[0].t1_ms == 620 && words[2].t1_ms == 1600,
            "noise has no pauses");
    memset(x, 0, sizeof x);
    window_of(&a, words, text, wrong, "abc", 3);
    a.pauses = pauses;
    a.choice = choice;
    al_snap_to_pauses(&a, x, 200);
    T_CHECK(a.n_pauses == 0, "nor has silence");
}

/* The path puts words into a long pause: two digits, the first of which belongs after it, or to the
 * word before it if the model's timestamps say so. */
static void leaving_pauses(void)
{
    static const int path[4][2] = {{0, 480}, {420, 1340}, {1340, 3780}, {3780, 4000}};
    static const al_pause pause = {500, 2900};
    al_aligner a;
    al_word words[4];
    char text[4];
    int i;
    for (i = 0; i < 3; i++) {
        window_of(&a, words, text, path, "abcd", 4);
        words[2].part = words[3].part = i > 0;
        words[1].part = i == 1;
        al_leave_pause(&a, &pause);
        T_CHECK(i == 2 ? words[0].t1_ms == 250 && words[1].t0_ms == 250 && words[1].t1_ms == 500 &&
                         words[2].t0_ms == 1340
                       : words[1].t0_ms == 2900 && words[1].t1_ms == 3340 &&
                         words[2].t0_ms == 3340 && words[2].t1_ms == 3780 && words[0].t1_ms == 480,
                "case %d: %d %d %d", i, (int)words[0].t1_ms, (int)words[1].t1_ms,
                (int)words[2].t0_ms);
    }
    window_of(&a, words, text, path, "abcd", 4);
    words[1].t1_ms = words[2].t0_ms = 3000;
    al_leave_pause(&a, &pause);
    T_CHECK(words[1].t0_ms == 420 && words[1].t1_ms == 3000, "a word that goes on after it stays");
}

/* ---- through the public API ---- */

/* A toy talks nonsense for ever: few tokens a window keep the tests short. */
static wnpu_params word_params(void)
{
    wnpu_params p;
    wnpu_params_init(&p, sizeof p);
    p.beam = 1;
    p.vad = 0; /* toys' sounds are no speech */
    p.max_tokens = 24;
    p.no_speech_threshold = 2;
    p.words = 1;
    return p;
}

/* Every segment has words, and they are what the header says. */
static void check_words(const wnpu_session *s, const char *what)
{
    size_t i, k, token, at;
    int64_t before = 0;
    wnpu_segment g;
    wnpu_word w;
    wnpu_stats stats;
    memset(&w, 0, sizeof w);
    stats.struct_size = sizeof stats;
    wnpu_get_stats(s, &stats);
    for (i = 0; wnpu_get_segment(s, i, &g) == WNPU_OK; i++) {
        T_CHECK(g.t0_ms >= before && g.t1_ms >= g.t0_ms && g.t1_ms <= stats.audio_ms,
                "%s: segment %zu at %d..%d", what, i, (int)g.t0_ms, (int)g.t1_ms);
        T_CHECK(wnpu_word_count(s, i) > 0, "%s: segment %zu has no words", what, i);
        before = g.t0_ms;
        for (k = token = at = 0; k < wnpu_word_count(s, i); k++) {
            w.struct_size = sizeof w;
            T_CHECK(wnpu_get_word(s, i, k, &w) == WNPU_OK, "%s: word %zu", what, k);
            T_CHECK(w.t0_ms >= before && w.t1_ms >= w.t0_ms && w.t1_ms <= g.t1_ms,
                    "%s: word %zu of segment %zu at %d..%d", what, k, i, (int)w.t0_ms,
                    (int)w.t1_ms);
            T_CHECK(w.probability > 0 && w.probability <= 1, "%s: probability", what);
            T_CHECK(w.first_token == token && w.n_tokens > 0, "%s: tokens", what);
            T_CHECK(strlen(w.text) == w.text_length && at + w.text_length <= g.text_length &&
                    memcmp(g.text + at, w.text, w.text_length) == 0, "%s: text", what);
            before = w.t1_ms;
            at += w.text_length;
            token += w.n_tokens;
        }
        T_CHECK(at == g.text_length && token == g.n_tokens, "%s: words are not the text", what);
        for (k = 0; k < g.n_tokens; k++) {
            T_CHECK(g.tokens[k].t0_ms >= (k > 0 ? g.tokens[k - 1].t1_ms : g.t0_ms) &&
                    g.tokens[k].t1_ms >= g.tokens[k].t0_ms && g.tokens[k].t1_ms <= g.t1_ms,
                    "%s: token %zu", what, k);
        }
        before = g.t1_ms;
    }
}

/* One option, or a few that go together, away from the default. */
static void set_options(wnpu_params *p, int trial)
{
    static const int32_t banned[] = {5, 6, 7}, english[] = {0};
    static const char *const hot[] = {"tea", "the cat"};
    p->temperature_step = trial < 12 ? p->temperature_step : 0.0f; /* a toy fails every gate */
    switch (trial) {
    case 1: p->timestamps = 0; break;
    case 2: p->task = WNPU_TRANSLATE; break;
    case 3: p->language = 1; break;
    case 4: p->language = 0; break;
    case 5: p->suppress_blank = 0; break;
    case 6: p->suppress_non_speech = 0; break;
    case 7: p->suppress = banned; p->n_suppress = 3; break;
    case 8: p->max_initial_timestamp_ms = 30000; break;
    case 9: p->max_tokens = 2; break;
    case 10: p->condition_on_previous = 1; break;
    case 11: p->initial_prompt = "the tea"; break;
    case 12: p->beam = 5; p->patience = 2.0f; break;
    case 13: p->beam = 2; p->length_rule = WNPU_LENGTH_RATIO; p->length_penalty = -1.0f; break;
    case 14: p->temperature = 1.0f; p->best_of = 3; p->seed = 4; break;
    case 15: p->temperature_step = 0.5f; p->first_logprob_threshold = -0.001f; break;
    case 16: p->compression_threshold = 0.0f; p->logprob_threshold = -INFINITY; break;
    case 17: p->stop_loops = 0; p->max_tokens = 224; break;
    case 18: p->initial_prompt = "a bc"; p->carry_initial_prompt = 1; break;
    case 19: p->prefix = "the tea"; break;
    case 20: p->hotwords = hot; p->n_hotwords = 2; p->hotword_boost = 20.0f; p->beam = 3; break;
    case 21: p->repetition_penalty = 4.0f; p->no_repeat_ngram = 1; break;
    case 22: p->language_mode = WNPU_LANGUAGE_EACH; p->language_margin = 0.0f; break;
    case 23: p->language_windows = 2; break;
    case 24: p->languages = english; p->n_languages = 1; break;
    default: break;
    }
}

/* No other option switches words off, and words change no text. */
static void options(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = open_on(m, 2, 0, 0);
    size_t n = 16000 * 40;
    float *x = speechlike(n);
    wnpu_audio a = life_audio(x, n);
    int trial;
    for (trial = 0; trial < 25; trial++) {
        wnpu_params p = word_params();
        life_bytes with, without;
        char what[16];
        set_options(&p, trial);
        (void)snprintf(what, sizeof what, "trial %d", trial);
        T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
        T_CHECK(wnpu_segment_count(s) > 0, "%s: nothing is said", what);
        check_words(s, what);
        with = life_written(s, WNPU_FORMAT_TXT);
        p.words = 0;
        T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
        T_CHECK(wnpu_word_count(s, 0) == 0, "words without being asked");
        without = life_written(s, WNPU_FORMAT_TXT);
        T_CHECK(life_alike(with, without),
                "%s: words change the text", what);
        free(with.bytes);
        free(without.bytes);
    }
    wnpu_session_close(s);
    free(x);
    wnpu_model_close(m);
}

static void words_any_length(void)
{
    static const size_t lengths[] = {0, 1, 160, 161, 320, 480, 640, 800, 1600, 15999, 16000, 123456,
                                     479999, 480000, 480160, 700000};
    wnpu_model *m = life_float_toy(9);
    float *x = speechlike(700000);
    size_t k;
    int compute;
    for (compute = 0; compute < 2; compute++) {
        wnpu_session *s = open_on(m, 2, 0, compute);
        for (k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
            wnpu_audio a = life_audio(x, lengths[k]);
            wnpu_params p = word_params();
            char what[32];
            (void)snprintf(what, sizeof what, "%d samples", (int)lengths[k]);
            T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
            check_words(s, what);
        }
        wnpu_session_close(s);
    }
    free(x);
    wnpu_model_close(m);
}

/* The phrase that was chosen has words, too. Of a long recording only 30 s are heard. */
static void of_a_choice(void)
{
    static const size_t lengths[] = {0, 1, 159, 160, 16000, 479999, 480000, 480100, 480199, 480200,
                                     500000};
    static const char *const phrases[] = {"the tea", "a bc"};
    wnpu_model *m = life_float_toy(9);
    wnpu_session *s = open_on(m, 2, 0, 0);
    float *x = speechlike(500000);
    size_t k;
    for (k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
        size_t n = lengths[k] < 480000 ? lengths[k] : 480000;
        wnpu_audio a = life_audio(x, lengths[k]);
        wnpu_params p = word_params();
        wnpu_choice c;
        wnpu_segment g;
        memset(&g, 0, sizeof g);
        c.struct_size = sizeof c;
        T_CHECK(wnpu_choose(s, &p, &a, phrases, 2, &c) == WNPU_OK, "%s", wnpu_session_error(s));
        T_CHECK(wnpu_segment_count(s) == 1 && wnpu_get_segment(s, 0, &g) == WNPU_OK, "a segment");
        T_CHECK(g.t1_ms <= (int64_t)(n / 16), "%zu samples: it ends at %d ms", lengths[k],
                (int)g.t1_ms);
        check_words(s, "a choice");
        p.words = 0;
        T_CHECK(wnpu_choose(s, &p, &a, phrases, 2, &c) == WNPU_OK, "%s", wnpu_session_error(s));
        T_CHECK(wnpu_get_segment(s, 0, &g) == WNPU_OK && g.t0_ms == 0 &&
                g.t1_ms == (int64_t)(n / 16), "%zu samples: %d ms without words", lengths[k],
                (int)g.t1_ms);
    }
    wnpu_session_close(s);
    free(x);
    wnpu_model_close(m);
}

/* The same bytes for every instruction set and number of threads, and for A, B, A. */
static void words_one_answer(void)
{
    wnpu_model *m = life_float_toy(7);
    size_t n = 16000 * 35;
    float *x = speechlike(n);
    wnpu_audio a = life_audio(x, n), b = life_audio(x + 5000, n / 3);
    wnpu_params p = word_params();
    same_everywhere(m, WNPU_COMPUTE_INT8, &p, &a, &b);
    same_everywhere(m, WNPU_COMPUTE_FLOAT, &p, &a, &b);
    free(x);
    wnpu_model_close(m);
}

static int words_on_segment(void *user, const wnpu_segment *segment)
{
    const wnpu_session *s = *(wnpu_session **)user;
    wnpu_word w;
    w.struct_size = sizeof w;
    T_CHECK(wnpu_get_word(s, wnpu_segment_count(s) - 1, 0, &w) == WNPU_OK &&
            strncmp(w.text, segment->text, w.text_length) == 0, "a segment comes with its words");
    return 0;
}

static void accessors(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = open_on(m, 1, 0, 0);
    size_t n = 16000 * 10, words;
    float *x = speechlike(n);
    wnpu_audio a = life_audio(x, n);
    wnpu_params p = word_params();
    struct {
        wnpu_word word;
        char more[8];
    } longer;
    wnpu_word w;
    wnpu_segment g;
    p.on_segment = words_on_segment;
    p.user = &s;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
    words = wnpu_word_count(s, 0);
    T_CHECK(words > 0 && wnpu_get_segment(s, 0, &g) == WNPU_OK, "something is said");
    w.struct_size = sizeof w;
    T_CHECK(wnpu_get_word(s, 0, words, &w) == WNPU_E_ARGUMENT, "no such word");
    T_CHECK(wnpu_get_word(s, 999, 0, &w) == WNPU_E_ARGUMENT, "no such segment");
    T_CHECK(wnpu_get_word(NULL, 0, 0, &w) == WNPU_E_ARGUMENT, "no session");
    T_CHECK(wnpu_get_word(s, 0, 0, NULL) == WNPU_E_ARGUMENT, "nowhere to put it");
    T_CHECK(wnpu_word_count(NULL, 0) == 0 && wnpu_word_count(s, 999) == 0, "no words there");
    w.struct_size = 2;
    T_CHECK(wnpu_get_word(s, 0, 0, &w) == WNPU_E_ARGUMENT, "no structure is so short");
    memset(&w, 0x55, sizeof w);
    w.struct_size = offsetof(wnpu_word, t1_ms);
    T_CHECK(wnpu_get_word(s, 0, 0, &w) == WNPU_OK && w.t1_ms == 0x5555555555555555,
            "an older caller's structure is not overrun");
    memset(&longer, 0x55, sizeof longer);
    longer.word.struct_size = sizeof longer;
    T_CHECK(wnpu_get_word(s, 0, 0, &longer.word) == WNPU_OK && longer.more[0] == 0 &&
            longer.more[7] == 0 && longer.word.text != NULL, "a newer caller gets zeros");
    p.on_segment = NULL;
    p.struct_size = offsetof(wnpu_params, words); /* a caller that does not know words */
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK && wnpu_word_count(s, 0) == 0, "has none");
    T_CHECK(wnpu_reset(s) == WNPU_OK && wnpu_word_count(s, 0) == 0, "a reset forgets");
    for (n = 0; n < SE_MAX_TOKENS * sizeof(al_word); n++) {
        T_CHECK(((unsigned char *)s->run.text.aligner.words)[n] == 0, "words were not wiped");
    }
    wnpu_session_close(s);
    free(x);
    wnpu_model_close(m);
}

/* A full store keeps whole segments with whole words. */
static void words_full_store(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_config c;
    wnpu_session *s;
    wnpu_params p = word_params();
    size_t n = 16000 * 900;
    float *x = speechlike(n);
    wnpu_audio a = life_audio(x, n);
    wnpu_config_init(&c, sizeof c);
    c.result_bytes = 64 << 10;
    s = life_open(m, &c);
    p.max_tokens = 224;
    p.timestamps = 0; /* text to the last token */
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_E_FULL, "it is full");
    T_CHECK(wnpu_segment_count(s) > 0, "and keeps what fits");
    check_words(s, "full");
    wnpu_session_close(s);
    free(x);
    wnpu_model_close(m);
}

/* ---- subtitles ---- */

#define SUB_BYTES (1u << 20)

/* Segments with words, as a run would store them, and what subtitles must hold: all characters but
 * blanks in their order, and the words' times. */
typedef struct sub_speech {
    unsigned char block[SUB_BYTES];
    rs_store store;
    char text[SUB_BYTES / 8];      /* without blanks */
    size_t n;
    int64_t end_ms;
    uint32_t seed;
    int kind;                      /* 0 English, 1 Chinese, 2 long and accented words */
    int wild;                      /* times without any sense */
    int timed;                     /* the store has words */
    int32_t speaker;
    rs_store *also;                /* another store for the same segments, or NULL */
} sub_speech;

static uint32_t sub_random(sub_speech *s, uint32_t below)
{
    s->seed = s->seed * 1664525u + 1013904223u;
    return (s->seed >> 8) % below;
}

/* One random word with a space before it where the script has spaces; returns its bytes. */
static size_t sub_word(sub_speech *s, char *out)
{
    static const char *const ends[] = {"", "", "", "", "", ",", ".", "?"};
    static const char *const wide[] = {"我", "们", "今", "天", "ガ", "ー", "、", "。", "「", "」",
                                       "A1", "👍🏽"};
    size_t i, n = 0, length = 1 + sub_random(s, s->kind == 2 ? 60 : 11);
    if (s->kind == 1) {
        return (size_t)sprintf(out, "%s", wide[sub_random(s, 12)]);
    }
    n = (size_t)sprintf(out, " ");
    for (i = 0; i < length; i++) {
        n += (size_t)sprintf(out + n, "%c%s", (char)('a' + sub_random(s, 26)),
                             s->kind == 2 && sub_random(s, 4) == 0 ? "\xcc\x81" : "");
    }
    return n + (size_t)sprintf(out + n, "%s", ends[sub_random(s, 8)]);
}

/* Adds a segment of some words. */
static void sub_segment(sub_speech *s, const wnpu_model *m)
{
    static char said[1 << 14];
    static int32_t tokens[1 << 14];
    static float probability[1 << 14];
    static int64_t at_ms[(1 << 14) + 1];
    static al_word words[64];
    size_t i, k, n_words = 1 + sub_random(s, s->wild || sub_random(s, 4) > 0 ? 50 : 3);
    size_t bytes = 0, n = 0;
    rs_draft d;
    int stored = 0;
    memset(&d, 0, sizeof d);
    memset(words, 0, sizeof words);
    s->end_ms += s->wild ? 0 : (int64_t)sub_random(s, 3) * 600;
    d.t0_ms = s->end_ms;
    for (i = 0; i < n_words; i++) {
        al_word *w = &words[i];
        w->text = bytes;
        w->length = sub_word(s, said + bytes);
        w->first = n;
        w->n = (size_t)wnpu_tokenize(m, said + bytes, w->length, tokens + n, 256);
        for (k = 0; k < w->length; k++) {
            s->text[s->n] = said[bytes + k];
            s->n += said[bytes + k] != ' ';
        }
        n += w->n;
        bytes += w->length;
        w->t0_ms = s->end_ms;
        s->end_ms += s->wild ? (int64_t)(sub_random(s, 4) == 0 ? sub_random(s, 20000) : 0)
                             : 60 * (int64_t)w->length;
        w->t1_ms = s->end_ms;
        s->end_ms += !s->wild && sub_random(s, 12) == 0 ? sub_random(s, 900) : 0;
        w->probability = 0.5f;
    }
    d.t1_ms = s->end_ms;
    for (i = 0; i <= n; i++) {
        at_ms[i] = d.t0_ms;
    }
    d.tokens = tokens;
    d.probability = probability;
    d.n = n;
    d.words = words;
    d.n_words = s->timed ? n_words : 0;
    d.word_text = said;
    d.at_ms = at_ms;
    d.speaker = s->speaker;
    T_CHECK(rs_add(&s->store, &m->vocab, &d, &stored) == WNPU_OK && stored, "a segment");
    T_CHECK(s->also == NULL || rs_add(s->also, &m->vocab, &d, &stored) == WNPU_OK, "in both");
}

static void sub_begin(sub_speech *s, uint32_t which)
{
    memset(&s->store, 0, sizeof s->store);
    s->store.base = s->block;
    s->store.size = sizeof s->block;
    rs_reset(&s->store);
    s->n = 0;
    s->end_ms = 0;
    s->seed = which;
    s->kind = (int)(which % 3);
    s->wild = which / 3 % 4 == 3;
    s->timed = which / 12 % 4 != 3;
    s->speaker = 0;
    s->also = NULL;
}

/* Columns of a line by a rule of its own. */
static size_t sub_width(const char *line, size_t length)
{
    size_t i, used, width = 0;
    int cut;
    for (i = 0; i < length; i += used) {
        int32_t c = tk_decode_utf8(line + i, length - i, &used, &cut);
        width += c == 0x301 || c == 0x1f3fd ? 0 : c < 0x1000 ? 1 : 2;
    }
    return width;
}

static int64_t sub_clock(const char *at)
{
    long h = 0, m = 0, s = 0, ms = 0;
    T_CHECK(sscanf(at, "%ld:%ld:%ld%*1[,.]%ld", &h, &m, &s, &ms) == 4, "times: %.20s", at);
    return ((h * 60 + m) * 60 + s) * 1000 + ms;
}

/* Reads SubRip and compares it with what was said, and with the limits. */
static void sub_check(const sub_speech *s, const wnpu_write_options *o, char *srt, uint32_t which)
{
    char *at = srt, *line;
    size_t said = 0;
    int number = 0;
    int64_t end = -o->min_gap_ms;
    while (*at != '\0') {
        int64_t t0, t1;
        int lines = 0, words = 0;
        number++;
        T_CHECK(atoi(at) == number, "seed %u: number %d", which, number);
        at = strchr(at, '\n') + 1;
        t0 = sub_clock(at);
        t1 = sub_clock(strstr(at, " --> ") + 5);
        T_CHECK(t0 - end >= o->min_gap_ms, "seed %u, cue %d: gap of %d ms", which, number,
                (int)(t0 - end));
        T_CHECK(t1 > t0 && (o->max_cue_ms == 0 || t1 - t0 <= o->max_cue_ms),
                "seed %u, cue %d takes %d ms", which, number, (int)(t1 - t0));
        T_CHECK(s->wild || t1 == s->end_ms || (t1 - t0 >= o->min_cue_ms && t1 < s->end_ms),
                "seed %u, cue %d takes only %d ms", which, number, (int)(t1 - t0));
        end = t1;
        for (line = strchr(at, '\n') + 1; *line != '\n' && *line != '\0'; line = at + 1) {
            at = strchr(line, '\n');
            lines++;
            T_CHECK(o->max_line_width == 0 ||
                    sub_width(line, (size_t)(at - line)) <= (size_t)o->max_line_width,
                    "seed %u, cue %d: %.*s", which, number, (int)(at - line), line);
            T_CHECK(line[0] != ' ' && at[-1] != ' ', "seed %u: blanks around a line", which);
            words++;
            for (; line < at; line++) {
                words += *line == ' ';
                if (*line != ' ') {
                    T_CHECK(said < s->n && *line == s->text[said], "seed %u, cue %d: byte %d",
                            which, number, (int)said);
                    said++;
                }
            }
        }
        T_CHECK(lines > 0 && (o->max_lines == 0 || lines <= o->max_lines), "seed %u: %d lines",
                which, lines);
        T_CHECK(o->max_words == 0 || words <= o->max_words || s->kind == 2,
                "seed %u, cue %d: %d words", which, number, words);
        at = line + 1;
    }
    T_CHECK(said == s->n, "seed %u: %d bytes of %d", which, (int)said, (int)s->n);
}

/* Random speech in random layouts keeps every limit and every word, and parts that are written as
 * segments become final make the same file. */
static void subtitles(void)
{
    static const int32_t widths[] = {42, 42, 0, 8, 20, 100}, lines[] = {2, 2, 1, 0, 3};
    static sub_speech s;
    wnpu_model *m = life_float_toy(7);
    uint32_t which;
    for (which = 0; which < 240; which++) {
        life_bytes whole = {NULL, 0}, parts = {NULL, 0};
        wnpu_write_options o;
        wnpu_write_cursor c, once;
        rs_summary summary;
        int i, n = 1 + (int)(which % 7);
        wnpu_write_options_init(&o, sizeof o);
        wnpu_write_options_subtitles(&o);
        o.format = WNPU_FORMAT_SRT;
        if (which % 2 == 0) {
            o.max_line_width = widths[which / 2 % 6];
            o.max_lines = o.max_line_width > 0 ? lines[which / 2 % 5] : 0;
            o.max_cue_ms = which % 8 == 0 ? 0 : 3000;
            o.min_cue_ms = 0;
            o.reading_speed = which % 3 == 0 ? 0 : 15;
            o.max_words = which % 10 == 4 ? 1 + (int32_t)(which % 3) : 0;
        }
        sub_begin(&s, which);
        memset(&c, 0, sizeof c);
        c.struct_size = sizeof c;
        once = c;
        for (i = 0; i <= n; i++) {
            c.last = i == n;
            if (i < n) {
                sub_segment(&s, m);
            }
            memset(&summary, 0, sizeof summary);
            summary.duration_ms = s.end_ms;
            T_CHECK(wr_write(&s.store, &m->vocab, &summary, &o, &c, life_grow, &parts) == WNPU_OK,
                    "seed %u, part %d", which, i);
        }
        once.last = 1;
        T_CHECK(wr_write(&s.store, &m->vocab, &summary, &o, &once, life_grow, &whole) == WNPU_OK,
                "seed %u", which);
        T_CHECK(life_alike(whole, parts), "seed %u: parts are not the whole", which);
        T_CHECK(once.cues == c.cues && once.end_ms == c.end_ms, "seed %u: cursors", which);
        sub_check(&s, &o, whole.bytes, which);
        free(whole.bytes);
        free(parts.bytes);
    }
    wnpu_model_close(m);
}

/* ---- subtitles of several speakers ---- */

#define SUB_SPEAKERS 20

/* Random limits for a layout; every third has none. */
static wnpu_write_options sub_options(uint32_t which, int format)
{
    static const int32_t widths[] = {42, 20, 0, 9, 30};
    wnpu_write_options o;
    wnpu_write_options_init(&o, sizeof o);
    if (which % 3 > 0) {
        wnpu_write_options_subtitles(&o);
        o.max_line_width = widths[which % 5];
        o.max_lines = o.max_line_width > 0 ? 2 : 0;
        o.reading_speed = which % 2 == 0 ? 0 : 15;
    }
    o.format = format;
    return o;
}

static life_bytes sub_write(const wnpu_model *m, const rs_store *store, const wnpu_write_options *o,
                            int64_t end_ms)
{
    life_bytes t = {NULL, 0};
    wnpu_write_cursor c;
    rs_summary summary;
    memset(&c, 0, sizeof c);
    memset(&summary, 0, sizeof summary);
    summary.duration_ms = end_ms;
    c.struct_size = sizeof c;
    T_CHECK(wr_write(store, &m->vocab, &summary, o, &c, life_grow, &t) == WNPU_OK, "a part");
    T_CHECK(rs_get_record(store, 0).segment.speaker ==
                rs_get_record(store, store->count - 1).segment.speaker ||
            t.bytes == NULL || strstr(t.bytes, " --> ") == NULL, "several speakers early");
    free(t.bytes);
    memset(&t, 0, sizeof t);
    memset(&c, 0, sizeof c);
    c.last = 1;
    T_CHECK(wr_write(store, &m->vocab, &summary, o, &c, life_grow, &t) == WNPU_OK, "the whole");
    T_CHECK(c.segment <= store->count && t.bytes != NULL, "cursor");
    return t;
}

/* Copies the cues of a speaker in WebVTT; checks that all are in order. */
static char *sub_cues_of(const char *vtt, int32_t speaker)
{
    char *out = malloc(strlen(vtt) + 1), tag[40];
    const char *at = strstr(vtt, "\n\n") + 2, *end;
    size_t n = 0;
    int64_t before = 0;
    (void)snprintf(tag, sizeof tag, "<v Speaker %d>", (int)speaker);
    for (; *at != '\0'; at = end + 2) {
        const char *text = strchr(at, '\n') + 1;
        int64_t t0 = sub_clock(at);
        end = strstr(at, "\n\n");
        T_CHECK(t0 >= before, "a cue at %d ms after one at %d ms", (int)t0, (int)before);
        before = t0;
        if (strncmp(text, tag, strlen(tag)) == 0) {
            memcpy(out + n, at, (size_t)(end + 2 - at));
            n += (size_t)(end + 2 - at);
        }
    }
    out[n] = '\0';
    return out;
}

/* Removes times, names and blanks from cues. */
static void sub_keep_letters(char *vtt)
{
    char *out = vtt, *at = vtt;
    while (*at != '\0') {
        if (strncmp(at, "<v ", 3) == 0) {
            at = strchr(at, '>') + 1;
        } else if (at[0] >= '0' && at[0] <= '9' && at[2] == ':') {
            at = strchr(at, '\n');
        } else {
            *out = *at++;
            out += *out != ' ' && *out != '\n';
        }
    }
    *out = '\0';
}

/* Lines of SubRip are as wide as the layout permits, names included. */
static void sub_check_widths(const char *srt, const wnpu_write_options *o, uint32_t which)
{
    const char *line, *end;
    for (line = srt; *line != '\0'; line = end + 1) {
        size_t width;
        end = strchr(line, '\n');
        width = sub_width(line, (size_t)(end - line));
        T_CHECK(o->max_line_width < 20 || strstr(line, " --> ") == line + 12 ||
                width <= (size_t)o->max_line_width, "seed %u: %.*s", which, (int)(end - line),
                line);
    }
}

/* Segments of several runs, each in order, and removed ones, are in order afterwards: of two that
 * begin at the same time, that of the earlier run is first. */
static void segments_in_order(void)
{
    static const size_t counts[] = {0, 1, 2, 3, 10, 1000, 30000};
    size_t size = 30000 * (sizeof(rs_record) + sizeof(uint32_t)), i, k, n, kept, runs = 5;
    rs_store s;
    memset(&s, 0, sizeof s);
    s.size = size;
    s.base = calloc(1, size);
    T_CHECK(s.base != NULL, "memory");
    for (k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        rs_record before, r;
        n = counts[k];
        for (i = kept = 0; i < n; i++) {
            uint32_t at = (uint32_t)(i * sizeof r);
            memset(&r, 0, sizeof r);
            r.segment.t0_ms = i % 7 == 6 ? -1 : (int64_t)(i % (n / runs + 1)) / 2 * 100;
            r.segment.t1_ms = (int64_t)i;
            kept += r.segment.t0_ms >= 0;
            memcpy(s.base + size - (i + 1) * sizeof at, &at, sizeof at);
            rs_put_record(&s, i, &r);
        }
        s.count = n;
        sp_order(&s);
        T_CHECK(s.count == kept, "%d of %d segments", (int)s.count, (int)kept);
        for (i = 1; i < s.count; i++) {
            before = rs_get_record(&s, i - 1);
            r = rs_get_record(&s, i);
            T_CHECK(before.segment.t0_ms >= 0 && (before.segment.t0_ms < r.segment.t0_ms ||
                    (before.segment.t0_ms == r.segment.t0_ms &&
                     before.segment.t1_ms < r.segment.t1_ms)), "%d segments: number %d", (int)n,
                    (int)i);
        }
    }
    free(s.base);
}

/* People who speak at the same time: each has the cues that he would have alone, and all are in
 * order. Beyond the limit of 16, cues may be shortened, but nothing is lost. */
static void sub_together(const wnpu_model *m, uint32_t which, int32_t speakers)
{
    static sub_speech one, all;
    char *want[SUB_SPEAKERS], *is;
    wnpu_write_options o = sub_options(which, WNPU_FORMAT_VTT);
    int64_t end_ms = 100000000;
    int32_t k;
    life_bytes t;
    sub_begin(&all, which);
    for (k = 0; k < speakers; k++) {
        uint32_t i;
        sub_begin(&one, 12 * which + which % 9 + (uint32_t)k * 7 % 3);
        one.seed = which + 1000 * (uint32_t)k;
        one.speaker = 8 + k;
        one.also = &all.store;
        for (i = 0; i <= (speakers > 16 ? 1 : which % 5); i++) {
            sub_segment(&one, m);
        }
        t = sub_write(m, &one.store, &o, end_ms);
        want[k] = sub_cues_of(t.bytes, one.speaker);
        free(t.bytes);
    }
    sp_order(&all.store);
    t = sub_write(m, &all.store, &o, end_ms);
    for (k = 0; k < speakers; k++) {
        is = sub_cues_of(t.bytes, 8 + k);
        T_CHECK(speakers > 16 || strcmp(is, want[k]) == 0, "seed %u, %d:\n%s--- alone\n%s", which,
                8 + (int)k, is, want[k]);
        sub_keep_letters(is);
        sub_keep_letters(want[k]);
        T_CHECK(is[0] != '\0' && strcmp(is, want[k]) == 0, "seed %u, %d:\n%s--- alone\n%s", which,
                8 + (int)k, is, want[k]);
        free(is);
        free(want[k]);
    }
    free(t.bytes);
    o.format = WNPU_FORMAT_SRT;
    t = sub_write(m, &all.store, &o, end_ms);
    sub_check_widths(t.bytes, &o, which);
    free(t.bytes);
}

static void subtitles_of_speakers(void)
{
    wnpu_model *m = life_float_toy(7);
    uint32_t which;
    for (which = 0; which < 60; which++) {
        sub_together(m, which, which % 10 == 9 ? SUB_SPEAKERS : 2 + (int32_t)(which % 3));
    }
    wnpu_model_close(m);
}

/* ---- times of words within cues ---- */

/* Removes the marks of word times. Those of a file must ascend within a cue, and in WebVTT be followed
 * by an element with one word; their times, or in ASS their durations, are put to times. Returns
 * their number. */
static size_t sub_remove_marks(char *text, int format, int64_t *times, size_t most)
{
    const char *at = text;
    char *out = text;
    size_t n = 0;
    int inside = 0;
    while (*at != '\0') {
        int ass = format == WNPU_FORMAT_ASS && strncmp(at, "{\\k", 3) == 0;
        long h = 0, m = 0, s = 0, part = 0;
        T_CHECK(n < most, "too many marks");
        if (ass) {
            times[n++] = atol(at + 3) * 10;
        } else if (*at == '<' && at[1] >= '0' && at[1] <= '9') {
            if (format == WNPU_FORMAT_LRC) {
                T_CHECK(sscanf(at, "<%ld:%ld.%ld>", &m, &s, &part) == 3, "mark %.20s", at);
                part *= 10;
            } else {
                T_CHECK(sscanf(at, "<%ld:%ld:%ld.%ld>", &h, &m, &s, &part) == 4, "mark %.20s", at);
                T_CHECK(!inside && strncmp(at + 13, "><c>", 4) == 0, "mark %.20s", at);
                at += 14;
                inside = 1;
            }
            times[n++] = ((h * 60 + m) * 60 + s) * 1000 + part;
        } else if (format == WNPU_FORMAT_VTT && strncmp(at, "</c>", 4) == 0) {
            T_CHECK(inside, "no element at %.20s", at);
            inside = 0;
        } else {
            T_CHECK(!inside || strncmp(at, "\n\n", 2) != 0, "no end of an element");
            *out++ = *at++;
            continue;
        }
        at = strchr(at, ass ? '}' : '>') + 1;
    }
    *out = '\0';
    return n;
}

/* The marks of each cue of a WebVTT file lie within it and ascend; the durations of each line of
 * ASS add up to it. */
static void sub_check_marks(const char *text, int format, uint32_t which)
{
    static char copy[1 << 16];
    static int64_t times[1 << 12];
    const char *at = text, *end;
    while ((at = strstr(at, format == WNPU_FORMAT_ASS ? "Dialogue: 0," : " --> ")) != NULL) {
        const char *from = format == WNPU_FORMAT_ASS ? at + 12 : at - 12;
        int64_t t0 = sub_clock(from), t1, sum = 0, last;
        size_t i, n;
        t1 = sub_clock(format == WNPU_FORMAT_ASS ? strchr(from, ',') + 1 : at + 5);
        end = strstr(at, format == WNPU_FORMAT_ASS ? "\n" : "\n\n");
        T_CHECK((size_t)(end - at) < sizeof copy, "seed %u: a long cue", which);
        memcpy(copy, at, (size_t)(end - at));
        copy[end - at] = '\0';
        n = sub_remove_marks(copy, format, times, sizeof times / sizeof times[0]);
        for (i = 0, last = t0; i < n; i++) {
            T_CHECK(format == WNPU_FORMAT_ASS || (times[i] > last && times[i] < t1),
                    "seed %u: a mark at %d ms in %.30s", which, (int)times[i], from);
            last = times[i];
            sum += times[i];
        }
        if (format == WNPU_FORMAT_ASS) { /* sub_clock() takes its hundredths for milliseconds */
            t0 += t0 % 1000 * 9;
            t1 += t1 % 1000 * 9;
            T_CHECK(n > 0 && sum == t1 - t0, "seed %u: %d ms of %d in %.30s", which, (int)sum,
                    (int)(t1 - t0), from);
        }
        at = end;
    }
}

/* The marks of LRC, one before each word, are the times of the words. */
static void sub_check_words(const sub_speech *s, const int64_t *times, size_t n, uint32_t which)
{
    wnpu_word w;
    size_t i, k, said = 0;
    for (i = 0; i < s->store.count; i++) {
        for (k = 0; rs_get_word(&s->store, i, k, &w) == WNPU_OK; k++) {
            T_CHECK(said < n && times[said] == w.t0_ms / 10 * 10, "seed %u: word %d", which,
                    (int)said);
            said++;
        }
    }
    T_CHECK(said == n, "seed %u: %d marks for %d words", which, (int)n, (int)said);
}

/* Word times add marks to VTT, ASS and LRC and change nothing else; files written in parts have
 * them as well. */
static void word_times(void)
{
    static const int formats[] = {WNPU_FORMAT_VTT, WNPU_FORMAT_ASS, WNPU_FORMAT_LRC,
                                  WNPU_FORMAT_SRT};
    static int64_t times[1 << 14];
    static sub_speech s;
    wnpu_model *m = life_float_toy(7);
    uint32_t which, k;
    for (which = 0; which < 96; which++) {
        sub_begin(&s, which);
        for (k = 0; k <= which % 5; k++) {
            sub_segment(&s, m);
        }
        for (k = 0; k < 4; k++) {
            wnpu_write_options o = sub_options(which, formats[k]);
            life_bytes plain, marked;
            size_t n;
            o.max_words = which % 3 > 0 ? (int32_t)(which % 4) : 0;
            plain = sub_write(m, &s.store, &o, s.end_ms);
            o.word_times = 1;
            marked = sub_write(m, &s.store, &o, s.end_ms);
            sub_check_marks(marked.bytes, formats[k], which);
            n = sub_remove_marks(marked.bytes, formats[k], times, sizeof times / sizeof times[0]);
            T_CHECK((n > 0) == (formats[k] != WNPU_FORMAT_SRT) || formats[k] == WNPU_FORMAT_VTT,
                    "seed %u, format %d: %d marks", which, formats[k], (int)n);
            T_CHECK(which % 3 == 0 || strcmp(plain.bytes, marked.bytes) == 0,
                    "seed %u, format %d: other text", which, formats[k]);
            if (formats[k] == WNPU_FORMAT_LRC && which % 3 == 0 && s.timed && !s.wild) {
                sub_check_words(&s, times, n, which);
            }
            free(plain.bytes);
            free(marked.bytes);
        }
    }
    wnpu_model_close(m);
}

/* ---- a given text ---- */

/* A text made from what was said by edits, and for each of its words where that is, or -1. */
typedef struct given_text {
    char lines[64][4096];
    const char *line[64];
    size_t n_lines;
    int64_t t0_ms[4096];        /* of each word; -1: it was not said */
    size_t n_words, n_said, extra;
} given_text;

static void given_add(given_text *g, const char *word, size_t length, int64_t t0_ms)
{
    char *line = g->lines[g->n_lines];
    size_t n = strlen(line);
    memcpy(line + n, word, length);
    line[n + length] = '\0';
    g->t0_ms[g->n_words++] = t0_ms;
    g->n_said += t0_ms >= 0;
}

/* One word in `every` is left out, replaced, or gets another before it. A line is a segment. */
static void given_make(given_text *g, sub_speech *s, uint32_t every)
{
    wnpu_word w;
    size_t i, k;
    memset(g, 0, sizeof *g);
    for (i = 0; i < s->store.count; i++) {
        for (k = 0; rs_get_word(&s->store, i, k, &w) == WNPU_OK; k++) {
            uint32_t edit = sub_random(s, every);
            if (edit == 0 || edit == 1) {
                given_add(g, " øåðþø", 11, -1);
            }
            if (edit == 1 || edit == 2) {
                g->extra++;
            } else {
                given_add(g, w.text, w.text_length, w.t0_ms);
            }
        }
        g->line[g->n_lines] = g->lines[g->n_lines];
        g->n_lines++;
    }
}

static int given_align(sub_speech *s, const wnpu_model *m, const given_text *g, int extra,
                       wnpu_align_stats *stats, wnpu_error *error)
{
    static const int go_on = 0;
    wnpu_allocator standard = ar_allocator(NULL);
    fa_work w;
    memset(&w, 0, sizeof w);
    memset(stats, 0, sizeof *stats);
    w.vocab = &m->vocab;
    w.store = &s->store;
    w.cancel = &go_on;
    return fa_run(&w, g->line, g->n_lines, extra, &standard, stats, error);
}

/* The store has the lines with all their words in order; returns how many have the right mark and
 * time. */
static size_t given_check(const sub_speech *s, const given_text *g, uint32_t which)
{
    static char text[1 << 16];
    wnpu_segment segment;
    wnpu_word w;
    size_t i, k, at = 0, right = 0, line = 0;
    int64_t before = 0;
    for (i = 0; rs_get(&s->store, i, &segment) == WNPU_OK; i++) {
        size_t n = 0;
        while (line < g->n_lines && g->lines[line][0] == '\0') {
            line++;
        }
        T_CHECK(line < g->n_lines && strcmp(segment.text, g->lines[line]) == 0,
                "seed %u, segment %d: %s", which, (int)i, segment.text);
        for (k = 0; rs_get_word(&s->store, i, k, &w) == WNPU_OK; k++, at++) {
            memcpy(text + n, w.text, w.text_length);
            n += w.text_length;
            T_CHECK(w.t0_ms >= before && w.t1_ms >= w.t0_ms && w.t0_ms >= segment.t0_ms &&
                    w.t1_ms <= segment.t1_ms, "seed %u, word %d: times", which, (int)at);
            T_CHECK((w.probability > 0.0f) || w.t0_ms == w.t1_ms, "seed %u: not said", which);
            before = w.t1_ms;
            right += g->t0_ms[at] < 0 ? w.probability == 0.0f
                                      : w.probability > 0.0f && w.t0_ms == g->t0_ms[at];
        }
        T_CHECK(n == segment.text_length && memcmp(text, segment.text, n) == 0,
                "seed %u, segment %d: words", which, (int)i);
        line++;
    }
    T_CHECK(at == g->n_words, "seed %u: %d words of %d", which, (int)at, (int)g->n_words);
    return right;
}

/* Random speech and a text that differs from it: the results are the text, nearly all words have the
 * right mark and time, and without room the results stay. */
static void given_texts(void)
{
    static sub_speech s, kept;
    static given_text g;
    wnpu_model *m = life_float_toy(7);
    size_t right = 0, all = 0;
    uint32_t which, k;
    for (which = 0; which < 60; which++) {
        wnpu_align_stats stats;
        wnpu_error error;
        sub_begin(&s, which * 3); /* words with spaces */
        s.timed = 1;
        s.wild = 0;
        for (k = 0; k <= which % 12; k++) {
            sub_segment(&s, m);
        }
        given_make(&g, &s, which % 4 == 0 ? 1u << 20 : 20);
        kept = s;
        kept.store.base = kept.block;
        kept.store.size = s.store.size;
        T_CHECK(given_align(&s, m, &g, 0, &stats, &error) == WNPU_OK, "%s", error.message);
        right += given_check(&s, &g, which);
        all += g.n_words;
        T_CHECK(stats.words == g.n_words && stats.said <= stats.words, "seed %u: counts", which);
        T_CHECK(which % 4 > 0 || (stats.said == g.n_words && stats.alike == 0 && stats.extra == 0),
                "seed %u: the same text", which);
        k = (uint32_t)(s.store.used - kept.store.used);
        memcpy(s.block, kept.block, sizeof s.block);
        s.store = kept.store;
        s.store.base = s.block;
        s.store.size = s.store.used + s.store.count * 4 + k / 2;
        memmove(s.block + s.store.size - s.store.count * 4,
                kept.block + sizeof kept.block - s.store.count * 4, s.store.count * 4);
        memcpy(kept.block, s.block, sizeof s.block);
        T_CHECK(given_align(&s, m, &g, 1, &stats, &error) == WNPU_E_FULL, "half of the room");
        T_CHECK(s.store.count == kept.store.count && s.store.used == kept.store.used &&
                memcmp(s.block, kept.block, s.store.used) == 0 &&
                memcmp(s.block + s.store.size - s.store.count * 4,
                       kept.block + s.store.size - s.store.count * 4, s.store.count * 4) == 0,
                "seed %u: other results", which);
    }
    T_CHECK(right * 100 >= all * 97, "%d right of %d", (int)right, (int)all);
    wnpu_model_close(m);
}

/* Spellings that are one word, and words that are not. */
static void spellings(void)
{
    static const char *const heard = " Colour twenty-one icecream can't wait naive Zurich";
    static const struct {
        const char *text;
        int said;
    } cases[] = {{"color", 1}, {"21", 1}, {"ice", 1}, {"cream", 1}, {"CAN\xe2\x80\x99T", 1},
                 {"elephant", 0}, {"wait!", 1}, {"na\xc3\xafve", 1}, {"Z\xc3\xbcrich", 1}};
    static sub_speech s;
    static given_text g;
    wnpu_model *m = life_float_toy(7);
    al_word words[8];
    int32_t tokens[256];
    float probability[256];
    int64_t at_ms[257] = {0};
    rs_draft d;
    wnpu_align_stats stats;
    wnpu_error error;
    wnpu_word w;
    const char *at = heard;
    size_t i, n = 0;
    int stored;
    memset(&d, 0, sizeof d);
    memset(words, 0, sizeof words);
    sub_begin(&s, 0);
    for (i = 0; *at != '\0'; i++, at += words[i - 1].length) {
        words[i].text = (size_t)(at - heard);
        words[i].length = 1 + strcspn(at + 1, " ");
        words[i].first = n;
        words[i].n = (size_t)wnpu_tokenize(m, at, words[i].length, tokens + n, 256 - n);
        words[i].t0_ms = 1000 * (int64_t)i;
        words[i].t1_ms = 1000 * (int64_t)i + 800;
        words[i].probability = 0.5f;
        n += words[i].n;
    }
    for (d.n_words = i, i = 0; i < n; i++) {
        probability[i] = 0.5f;
    }
    d.words = words;
    d.word_text = heard;
    d.tokens = tokens;
    d.probability = probability;
    d.n = n;
    d.at_ms = at_ms;
    d.t1_ms = 7000;
    T_CHECK(rs_add(&s.store, &m->vocab, &d, &stored) == WNPU_OK && stored, "what was heard");
    memset(&g, 0, sizeof g);
    for (g.n_lines = 0; g.n_lines < sizeof cases / sizeof cases[0]; g.n_lines++) {
        g.line[g.n_lines] = cases[g.n_lines].text;
    }
    T_CHECK(given_align(&s, m, &g, 0, &stats, &error) == WNPU_OK, "%s", error.message);
    for (i = 0; i < g.n_lines; i++) {
        T_CHECK(rs_get_word(&s.store, i, 0, &w) == WNPU_OK &&
                (w.probability > 0.0f) == cases[i].said, "%s: %f at %d ms", cases[i].text,
                (double)w.probability, (int)w.t0_ms);
    }
    wnpu_model_close(m);
}

/* A segment in another script: text and words are, tokens are as decoded, and so JSON has both. */
static void script_of_segment(void)
{
    static const char raw[] = "\xe8\xb5\xb0\xe7\x9d\x80\xe8\xbf\x99";
    static const char full[] = "\xe8\xb5\xb0\xe8\x91\x97\xe9\x80\x99";
    static sub_speech s;
    wnpu_model *m = life_float_toy(7);
    float probability[9] = {0};
    int64_t at_ms[10] = {0};
    int32_t tokens[9], script;
    al_word words[2];
    wnpu_write_options o;
    rs_summary summary;
    rs_draft d;
    int stored;
    memset(&d, 0, sizeof d);
    memset(words, 0, sizeof words);
    memset(&summary, 0, sizeof summary);
    d.n = (size_t)wnpu_tokenize(m, raw, 9, tokens, 9);
    d.tokens = tokens;
    d.probability = probability;
    d.at_ms = at_ms;
    d.words = words;
    d.n_words = 2;
    d.word_text = raw;
    words[0].length = 6; /* the second character is in another word than what decides about it */
    words[0].n = d.n;
    words[1].text = 6;
    words[1].first = d.n;
    words[1].length = 3;
    T_CHECK(d.n >= 3 && d.n <= 9, "%d tokens", (int)d.n);
    for (script = WNPU_SCRIPT_ANY; script <= WNPU_SCRIPT_TRADITIONAL; script++) {
        const char *want = script == WNPU_SCRIPT_TRADITIONAL ? full : raw;
        wnpu_write_cursor c;
        life_bytes t = {NULL, 0};
        wnpu_segment segment;
        wnpu_word word;
        sub_begin(&s, 0);
        d.script = script;
        T_CHECK(rs_add(&s.store, &m->vocab, &d, &stored) == WNPU_OK && stored &&
                rs_get(&s.store, 0, &segment) == WNPU_OK && strcmp(segment.text, want) == 0 &&
                segment.n_tokens == d.n && segment.tokens[0].id == tokens[0],
                "script %d", (int)script);
        T_CHECK(rs_get_word(&s.store, 0, 0, &word) == WNPU_OK && word.text_length == 6 &&
                memcmp(word.text, want, 6) == 0, "script %d: a word", (int)script);
        wnpu_write_options_init(&o, sizeof o);
        o.format = WNPU_FORMAT_JSON;
        memset(&c, 0, sizeof c);
        c.last = 1;
        T_CHECK(wr_write(&s.store, &m->vocab, &summary, &o, &c, life_grow, &t) == WNPU_OK &&
                t.bytes != NULL, "JSON is written");
        if (t.bytes != NULL) {
            char decoded[64];
            (void)snprintf(decoded, sizeof decoded, "\"decoded\": \"%s\"", raw);
            T_CHECK((strstr((char *)t.bytes, decoded) != NULL) == (want == full) &&
                    (strstr((char *)t.bytes, "decoded") != NULL) == (want == full), "script %d",
                    (int)script);
        }
        free(t.bytes);
    }
    wnpu_model_close(m);
}

/* Stores a segment of words, each with the space before it, the k-th from k to k + 1 s. */
static void style_store(sub_speech *s, const wnpu_model *m, const char *text)
{
    static int32_t tokens[256];
    static float probability[256];
    static int64_t at_ms[257];
    static al_word words[32];
    rs_draft d;
    const char *at = text;
    int stored;
    memset(&d, 0, sizeof d);
    memset(words, 0, sizeof words);
    for (; *at != '\0'; at += words[d.n_words++].length) {
        al_word *w = &words[d.n_words];
        w->text = (size_t)(at - text);
        w->length = 1 + strcspn(at + 1, " ");
        w->first = d.n;
        w->n = (size_t)wnpu_tokenize(m, at, w->length, tokens + d.n, 256 - d.n);
        w->t0_ms = 1000 * (int64_t)d.n_words;
        w->t1_ms = w->t0_ms + 1000;
        w->probability = 0.5f;
        d.n += w->n;
    }
    d.tokens = tokens;
    d.probability = probability;
    d.at_ms = at_ms;
    d.words = words;
    d.word_text = text;
    d.t1_ms = 1000 * (int64_t)d.n_words;
    T_CHECK(rs_add(&s->store, &m->vocab, &d, &stored) == WNPU_OK && stored, "%s", text);
}

/* Fillers and replacements: the words after them with their seconds; the text is their sum. */
static void style_of_text(void)
{
    static const struct {
        const char *language, *replace, *said, *words, *hotwords;
    } cases[] = {
        {"en", NULL, " Um, so we, uh, went home.", " So 1-2| we, 2-3| went 4-5| home. 5-6", NULL},
        {"en", NULL, " I think, um. Uh. Yes.", " I 0-1| think. 1-2| Yes. 4-5", NULL},
        {"en", NULL, " Uh-huh, the umbrella.", " Uh-huh, 0-1| the 1-2| umbrella. 2-3", NULL},
        {"en", NULL, " Um, uh. Hmm!", "", NULL},
        {"de", NULL, " Um sechs, \xc3\x84hm, acht.", " Um 0-1| sechs, 1-2| acht. 3-4", NULL},
        {"fi", NULL, " Um uh.", " Um 0-1| uh. 1-2", NULL},
        {"en", "new york => NYC\r\nsersha=>Saoirse\n york=>Y", " New York, (Sersha) york yorks.",
         " NYC, 0-2| (Saoirse) 2-3| Y 3-4| yorks. 4-5", NULL},
        {"en", "colour tv=>color set\nhell=>h***", " Hell, a Colour TV hello.",
         " H***, 0-1| a 1-2| Color 2-3| set 3-4| hello. 4-5", NULL},
        {"en", "very good=>a b c d e f g h i j k l m n o p", " very very good",
         " very 0-1| a b c d e f g h i j k l m n o p 1-3", NULL},
        {"en", "very=>", " Not very good.", " Not 0-1| good. 2-3", NULL},
        {"zh", "\xe7\x9a\x87\xe5\x90\x8e=>X", " \xe7\x9a\x87 \xe5\x90\x8e\xe7\x9a\x87\xe5\x90\x8e",
         " \xe7\x9a\x87 0-1| \xe5\x90\x8eX 1-2", NULL},
        {"en", NULL, " Sersha, (sir shah's) SEERSHA and sershas, sir. Shah", " Saoirse, 0-1| "
         "(Saoirse 1-2|'s) 2-3| Saoirse 3-4| and 4-5| sershas, 5-6| sir. 6-7| Shah 7-8",
         "plain\n Saoirse = Sersha| sir shah ,,Seersha\n=x\nx=\n"},
        {"en", "cube control => B", " Cube control cube control room", " B 0-2| kubectl 2-5",
         "kubectl=cube control room"}
    };
    static sub_speech s;
    wnpu_model *m = life_float_toy(7);
    size_t i, k;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char got[256] = "", text[256] = "", raw[256] = "";
        wnpu_segment segment;
        wnpu_word w;
        sy_style style;
        int stored = 1;
        sub_begin(&s, 0);
        memset(&style, 0, sizeof style);
        style.replace = cases[i].replace;
        style.hotwords.lines = cases[i].hotwords;
        style.drop_fillers = 1;
        style.language = wnpu_language_id(cases[i].language);
        style_store(&s, m, " before");
        style_store(&s, m, cases[i].said);
        T_CHECK(sy_restyle(&s.store, &style, &stored) == WNPU_OK &&
                stored == (cases[i].words[0] != '\0') && s.store.count == 1 + (size_t)stored,
                "%s: stored is %d", cases[i].said, stored);
        for (k = 0; stored && rs_get_word(&s.store, 1, k, &w) == WNPU_OK; k++) {
            (void)snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s %d-%d",
                           k > 0 ? "|" : "", w.text, (int)(w.t0_ms / 1000), (int)(w.t1_ms / 1000));
            (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s", w.text);
        }
        T_CHECK(strcmp(got, cases[i].words) == 0, "%s gives %s", cases[i].said, got);
        if (stored && rs_get(&s.store, 1, &segment) == WNPU_OK) {
            T_CHECK(strcmp(segment.text, text) == 0 && strlen(text) == segment.text_length,
                    "the text is %s", segment.text);
            for (k = 0; k < segment.n_tokens; k++) {
                size_t length = 0;
                const char *bytes = tk_text(&m->vocab, segment.tokens[k].id, &length);
                (void)snprintf(raw + strlen(raw), sizeof raw - strlen(raw), "%.*s", (int)length,
                               bytes);
            }
            T_CHECK(strcmp(raw, cases[i].said) == 0, "the tokens are %s", raw);
        }
        style_store(&s, m, " behind");
        T_CHECK(rs_get(&s.store, s.store.count - 1, &segment) == WNPU_OK &&
                strcmp(segment.text, " behind") == 0 && rs_get(&s.store, 0, &segment) == WNPU_OK &&
                strcmp(segment.text, " before") == 0, "other segments");
    }
    /* Without room nothing changes. */
    sub_begin(&s, 0);
    style_store(&s, m, " a b");
    s.store.size = (s.store.used + 40) & ~(size_t)7;
    memcpy(s.store.base + s.store.size - 4, s.store.base + sizeof s.block - 4, 4);
    {
        sy_style style;
        wnpu_segment segment;
        int stored = 1;
        memset(&style, 0, sizeof style);
        style.replace = "a=>aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
        T_CHECK(sy_restyle(&s.store, &style, &stored) == WNPU_E_FULL &&
                rs_get(&s.store, 0, &segment) == WNPU_OK && strcmp(segment.text, " a b") == 0,
                "a full store");
    }
    wnpu_model_close(m);
}

static void words_tests(void)
{
    t_run("style", style_of_text);
    t_run("the script of a segment", script_of_segment);
    t_run("the best path, against all paths of small matrices", warping);
    t_run("equals in the path", ties);
    t_run("sound that recurs, and sound that does not", recurring_sound);
    t_run("the median filter, against sorting", median_filter);
    t_run("frames of a sparse text", said_frames);
    t_run("the matrix, against its definition", the_matrix);
    t_run("alignment heads of known and unknown models", known_heads);
    t_run("words and punctuation in several languages", grouping);
    t_run("median, and long words between sentences", durations);
    t_run("segments and their words agree", words_segments);
    t_run("pauses are matched best, against all matches", matching);
    t_run("words begin and end with pauses", hearing);
    t_run("nobody says a word in a pause", leaving_pauses);
    t_run("words with all other options, and the same text", options);
    t_run("words of any length of audio", words_any_length);
    t_run("words of a chosen phrase", of_a_choice);
    t_run("words are one answer", words_one_answer);
    t_run("asking for words", accessors);
    t_run("words in a full store", words_full_store);
    t_run("subtitles keep every word and limit", subtitles);
    t_run("segments of several runs are in order", segments_in_order);
    t_run("subtitles of people who speak at the same time", subtitles_of_speakers);
    t_run("times of words within cues", word_times);
    t_run("a given text takes the place of what was heard", given_texts);
    t_run("spellings of a word in a given text", spellings);
}
