/* bench_live - how soon text of live audio appears, how often it changes, and what it costs.
 *
 *     bench_live --model MODEL [--threads N] [--step MS] [--least MS] [--pause MS] [--chunk MS]
 *                [--commit MS] [--hold MS] [--streams N] [--svg FILE] [--text FILE] [--log]
 *                [--errors] RECORDING.wav ...
 *
 * Recordings are pushed in pieces of --chunk (default 40 ms) by a virtual clock, which advances by
 * the CPU time that the stepping thread has used, and nothing sleeps: with as many threads as free
 * cores that is the time on a computer with nothing else to do. Ends of words are those that the
 * run itself measures (words = 1). A word is shown when it first stands at its place in the text,
 * final or tentative, and final when the text up to its end is: confirmed, or in a segment. Words
 * that are final only because the recording ended are counted apart. A change of final text is a
 * byte of it that differs in the text shown next. A phrase ends with a word that GAP_MS or more
 * separate from the next one, whether or not a segment ends there. The text lags by the audio that
 * was pushed after what the latest change of the text, final or tentative, covers. Normalised
 * erasure (Arivazhagan et al., 2020) is the number of words removed from the end of the text so
 * that the next text begins with the rest, over the number of words; case and punctuation do not
 * count. A revision is a change that removes words. --errors: the words (insertions, deletions,
 * substitutions) in which the text differs from that of a file run with default parameters.
 * --text: appends the text of each recording to a file, a line with its path and a tab before it,
 * as tests/speech/wer.c reads them. --streams: that many sessions take turns on one core; --threads
 * is 1 then. */
#define _POSIX_C_SOURCE 200809L
#include "../lib/distance.h"
#include "../lib/life.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_WORDS = 20000, MOST_STREAMS = 64, WORD_SIZE = 40, GAP_MS = 700 };

typedef struct word {
    char text[WORD_SIZE];
    size_t to; /* end in the text that it is from */
    double begin, end, shown, final; /* ms; negative: not yet */
} word;

typedef struct words {
    size_t n;
    word *of;
} words;

/* What is shown at a time. */
typedef struct shot {
    double at;
    size_t n_segment; /* words in segments; those behind them follow */
    size_t n_final, n_likely, n; /* words that are final, these and likely to stay, all */
    word *tail;
} shot;

/* What a run shows, from its begin to its end. */
typedef struct film {
    words said; /* words of segments */
    size_t n_segments;
    char *final; /* the latest final text */
    size_t n_final;
    int64_t covered; /* end of the audio that the text is from */
    size_t n;
    shot *of;
} film;

typedef struct numbers {
    size_t n;
    double *of;
} numbers;

typedef struct bench {
    const char *model_path, *svg, *text;
    unsigned threads;
    int step_ms, chunk_ms, streams, log, errors;
    wnpu_params params;
    wnpu_model *model;
    numbers shown, final, phrases, step, lag;
    double audio_s, cpu_s, erased, erased_final, n_words, changed, revisions, taken_back, at_end;
    double differ, n_file;
    double likely, seen, likely_erased; /* words, each as often as it was looked at */
} bench;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_live: %s: %s\n", what, why);
    exit(1);
}

static double clock_ms(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void *resize(void *memory, size_t size)
{
    memory = realloc(memory, size > 0 ? size : 1);
    if (memory == NULL) {
        die("memory", "none left");
    }
    return memory;
}

/* Room for one thing more than n. */
static void *grow(void *memory, size_t n, size_t size)
{
    return (n & (n - 1)) == 0 ? resize(memory, (n ? 2 * n : 1) * size) : memory;
}

static void add(numbers *x, double value)
{
    x->of = grow(x->of, x->n, sizeof *x->of);
    x->of[x->n++] = value;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_numbers(const char *name, numbers *x)
{
    double sum = 0;
    size_t i;
    if (x->n == 0) {
        printf("%-44s none\n", name);
        return;
    }
    qsort(x->of, x->n, sizeof *x->of, compare);
    for (i = 0; i < x->n; i++) {
        sum += x->of[i];
    }
    printf("%-44s mean %5.0f, median %5.0f, 95th percentile %5.0f, most %5.0f ms, of %lu\n", name,
           sum / (double)x->n, x->of[x->n / 2], x->of[x->n * 95 / 100], x->of[x->n - 1],
           (unsigned long)x->n);
}

/* Letters and digits in lower case. */
static void normalise(char *out, const char *from, size_t n)
{
    size_t i, k = 0;
    for (i = 0; i < n && k + 1 < WORD_SIZE; i++) {
        unsigned char c = (unsigned char)from[i];
        if (c >= 0x80 || isalnum(c)) {
            out[k++] = (char)tolower(c);
        }
    }
    out[k] = '\0';
}

/* Appends the words of a text, divided at spaces. Those without letter or digit do not count. */
static void split(words *w, const char *text, size_t n)
{
    size_t i = 0, from;
    while (i < n) {
        for (; i < n && text[i] == ' '; i++) {
        }
        for (from = i; i < n && text[i] != ' '; i++) {
        }
        if (i > from && w->n < MOST_WORDS) {
            word *d = &w->of[w->n];
            normalise(d->text, text + from, i - from);
            d->to = i;
            d->shown = d->final = -1;
            w->n += d->text[0] != '\0';
        }
    }
}

static words new_words(void)
{
    words w = {0, resize(NULL, MOST_WORDS * sizeof(word))};
    return w;
}

static wnpu_audio read_wav(const char *path, unsigned char **data)
{
    wnpu_audio a;
    wnpu_error error;
    size_t size = 0, n, room = 1u << 20;
    FILE *f = fopen(path, "rb");
    *data = malloc(room);
    while (f != NULL && *data != NULL && (n = fread(*data + size, 1, room - size, f)) > 0) {
        size += n;
        if (size == room) {
            *data = realloc(*data, room *= 2);
        }
    }
    if (f == NULL || *data == NULL) {
        die(path, "cannot be read");
    }
    fclose(f);
    wnpu_audio_init(&a, sizeof a);
    if (wnpu_wav_open(&a, *data, size, &error) != WNPU_OK) {
        die(path, error.message);
    }
    return a;
}

static wnpu_session *open_session(const bench *b, const wnpu_audio *a)
{
    wnpu_config c;
    wnpu_error error;
    wnpu_session *s;
    wnpu_config_init(&c, sizeof c);
    c.threads = b->threads;
    c.stream_bytes = (uint64_t)a->rate * a->channels * 8 * 60;
    if (wnpu_session_open(&s, b->model, &c, NULL, 0, &error) != WNPU_OK) {
        die("session", error.message);
    }
    return s;
}

/* Appends the words of a segment with their times. */
static void add_segment(words *w, const wnpu_session *s, size_t segment)
{
    wnpu_segment g;
    wnpu_word spoken = {.struct_size = sizeof spoken};
    size_t i = w->n, k = 0, to = 0;
    if (wnpu_get_segment(s, segment, &g) != WNPU_OK) {
        return;
    }
    split(w, g.text, g.text_length);
    spoken.t0_ms = spoken.t1_ms = g.t0_ms;
    for (; i < w->n; i++) { /* a word may consist of several */
        word *d = &w->of[i];
        d->begin = -1;
        for (; to < d->to && wnpu_get_word(s, segment, k, &spoken) == WNPU_OK; k++) {
            d->begin = d->begin < 0 ? (double)spoken.t0_ms : d->begin;
            to += spoken.text_length;
        }
        d->begin = d->begin < 0 ? (double)spoken.t0_ms : d->begin;
        d->end = (double)spoken.t1_ms;
    }
}

/* Two texts that are compared. */
typedef struct texts {
    const words *a, *b;
} texts;

static int differ(const void *user, size_t i, size_t j)
{
    const texts *t = user;
    return strcmp(t->a->of[i].text, t->b->of[j].text) != 0;
}

/* Counts the words that differ from those of a file run with default parameters. */
static void compare_with_file(bench *b, wnpu_session *s, const wnpu_audio *a, const words *final)
{
    wnpu_params p;
    words file = new_words();
    const texts both = {&file, final};
    size_t *row = resize(NULL, (final->n + 1) * sizeof *row), i;
    wnpu_params_init(&p, sizeof p);
    p.language = b->params.language;
    if (wnpu_transcribe(s, &p, a) < 0) {
        die("run", wnpu_session_error(s));
    }
    for (i = 0; i < wnpu_segment_count(s); i++) {
        add_segment(&file, s, i);
    }
    b->differ += (double)edit_distance(file.n, final->n, row, differ, &both);
    free(row);
    b->n_file += (double)file.n;
    free(file.of);
}

static void begin(const bench *b, wnpu_session *s, const wnpu_audio *a, int words_too)
{
    wnpu_stream_options o = life_stream(a, b->step_ms);
    wnpu_params p = b->params;
    p.words = words_too;
    if (wnpu_stream_begin(s, &p, &o) != WNPU_OK) {
        die("stream", wnpu_session_error(s));
    }
}

/* Keeps all text that is final, of segments and confirmed behind them. Counts a change of what was
 * final before. */
static void keep_final(bench *b, film *m, const wnpu_session *s, const wnpu_live *live)
{
    wnpu_segment g;
    size_t i, n = 0;
    char *text = NULL;
    for (i = 0; wnpu_get_segment(s, i, &g) == WNPU_OK; i++) {
        text = resize(text, n + g.text_length);
        memcpy(text + n, g.text, g.text_length);
        n += g.text_length;
    }
    text = resize(text, n + live->confirmed_length);
    memcpy(text + n, live->text, live->confirmed_length);
    n += live->confirmed_length;
    b->changed += n < m->n_final || (m->n_final > 0 && memcmp(text, m->final, m->n_final) != 0);
    free(m->final);
    m->final = text;
    m->n_final = n;
}

/* Keeps what is shown now. */
static void look(bench *b, wnpu_session *s, film *m, double at, int finished)
{
    wnpu_live live = {.struct_size = sizeof live, .text = ""};
    words tail = new_words();
    shot *now;
    size_t i;
    for (; m->n_segments < wnpu_segment_count(s); m->n_segments++) {
        add_segment(&m->said, s, m->n_segments);
    }
    if (!finished && wnpu_get_live(s, &live) == WNPU_OK) {
        int64_t covered = live.text_length > 0 ? live.t1_ms : live.committed_ms;
        if (m->said.n + live.text_length > 0 && covered > m->covered) {
            m->covered = covered;
            add(&b->lag, at - (double)covered);
        }
        split(&tail, live.text, live.text_length);
    }
    keep_final(b, m, s, &live);
    m->of = grow(m->of, m->n, sizeof *m->of);
    now = &m->of[m->n++];
    now->at = at;
    now->n_segment = now->n_final = now->n_likely = m->said.n;
    now->n = m->said.n + tail.n;
    for (i = 0; i < tail.n; i++) {
        now->n_final += tail.of[i].to <= live.confirmed_length;
        now->n_likely += tail.of[i].to <= live.likely_length;
    }
    now->tail = resize(tail.of, tail.n * sizeof *tail.of);
    if (b->log) {
        printf("%7.0f %5ld |%.*s|%s\n", at, (long)live.committed_ms, (int)live.confirmed_length,
               live.text, live.text + live.confirmed_length);
    }
}

static const char *word_of(const film *m, const shot *at, size_t i)
{
    return i < at->n_segment ? m->said.of[i].text : at->tail[i - at->n_segment].text;
}

/* Compares what is shown with what was shown before. */
static void compare_shots(bench *b, const film *m, const shot *before, const shot *now)
{
    size_t i, same = 0;
    double removed;
    while (same < now->n && same < before->n &&
           strcmp(word_of(m, now, same), word_of(m, before, same)) == 0) {
        same++;
    }
    removed = (double)(before->n - same);
    b->erased += removed;
    b->revisions += removed > 0;
    for (i = same; i < before->n; i++) {
        b->taken_back += (double)strlen(word_of(m, before, i));
    }
    b->erased_final += now->n_final > before->n_final ? removed : 0;
    b->likely_erased += before->n_likely > same ? (double)(before->n_likely - same) : 0;
    if (b->log && removed > 0) {
        printf("%7.0f %.0f words withdrawn from \"%s\"%s\n", now->at, removed,
               word_of(m, before, same), now->n_final > before->n_final ? ", final" : "");
    }
}

/* Goes through the film: changes, and when each word was first shown and final. */
static void watch(bench *b, film *m)
{
    size_t i, k;
    for (i = 0; i < m->n; i++) {
        const shot *now = &m->of[i];
        if (i > 0) {
            compare_shots(b, m, now - 1, now);
        }
        b->likely += (double)(now->n_likely - now->n_final);
        b->seen += (double)(now->n - now->n_final);
        for (k = 0; k < now->n && k < m->said.n; k++) {
            word *d = &m->said.of[k];
            if (d->shown < 0 && strcmp(d->text, word_of(m, now, k)) == 0) {
                d->shown = now->at;
            }
            d->final = d->final < 0 && k < now->n_final ? now->at : d->final;
        }
    }
}

static void free_film(film *m)
{
    size_t i;
    for (i = 0; i < m->n; i++) {
        free(m->of[i].tail);
    }
    free(m->of);
    free(m->final);
    free(m->said.of);
}

static void draw_dot(FILE *f, double x, double y, const char *color)
{
    fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x, y, color);
}

static void draw_line(FILE *f, double from, double to, double y, const char *color)
{
    fprintf(f, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", from,
            to, y, y, color);
}

/* A picture: time to the right; for each word its end, its first display, and when it was final.
 * Words have neither < nor &, see normalise(). */
static void draw(const bench *b, const words *w, double ms)
{
    static const char *const color[] = {"#000", "#e70", "#080"};
    FILE *f = fopen(b->svg, "w");
    size_t i, n = w->n < 60 ? w->n : 60;
    double last = n > 0 && w->of[n - 1].final > 0 ? w->of[n - 1].final : ms, scale;
    if (f == NULL) {
        die(b->svg, "cannot be written");
    }
    scale = 760 / (last + 500);
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"960\" height=\"%lu\" "
            "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" "
            "fill=\"white\"/>\n", (unsigned long)(56 + 14 * n));
    for (i = 0; i < 3; i++) {
        static const char *const name[] = {"end of the word", "first shown", "final"};
        int x = 184 + 120 * (int)i;
        draw_dot(f, x, 14, color[i]);
        fprintf(f, "<text x=\"%d\" y=\"18\">%s</text>\n", x + 8, name[i]);
    }
    fprintf(f, "<text x=\"940\" y=\"18\" text-anchor=\"end\">seconds</text>\n");
    for (i = 0; (double)i * 1000 < last + 500; i++) {
        double x = 180 + (double)i * 1000 * scale;
        fprintf(f, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"40\" y2=\"%lu\" stroke=\"#ddd\"/>"
                "<text x=\"%.1f\" y=\"36\" text-anchor=\"middle\">%lu</text>\n", x, x,
                (unsigned long)(48 + 14 * n), x, (unsigned long)i);
    }
    for (i = 0; i < n; i++) {
        const word *d = &w->of[i];
        double y = 52 + 14 * (double)i, x0 = 180 + d->end * scale;
        double x1 = 180 + (d->shown < 0 ? d->end : d->shown) * scale;
        double x2 = 180 + (d->final < 0 ? d->end : d->final) * scale;
        fprintf(f, "<text x=\"170\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", y + 4, d->text);
        draw_line(f, x0, x1, y, color[1]);
        draw_line(f, x1, x2, y, color[2]);
        draw_dot(f, x0, y, color[0]);
        draw_dot(f, x1, y, color[1]);
        draw_dot(f, x2, y, color[2]);
    }
    fprintf(f, "</svg>\n");
    fclose(f);
}

/* Delays of words, and of those that end a phrase; over: when the recording had ended. */
static void count(bench *b, const words *w, double over)
{
    size_t i;
    for (i = 0; i < w->n; i++) {
        const word *d = &w->of[i];
        if (d->shown >= 0) {
            add(&b->shown, d->shown - d->end);
        }
        if (d->final < 0 || d->final >= over) {
            b->at_end++;
            continue;
        }
        add(&b->final, d->final - d->end);
        if (i + 1 < w->n && d[1].begin - d->end >= GAP_MS) {
            add(&b->phrases, d->final - d->end);
        }
    }
    b->n_words += (double)w->n;
}

/* Appends the text to a file. */
static void write_text(const char *to, const char *path, const film *m)
{
    FILE *f = fopen(to, "a");
    if (f == NULL || fprintf(f, "%s\t%.*s\n", path, (int)m->n_final, m->final) < 0 ||
        fclose(f) != 0) {
        die(to, "cannot be written");
    }
}

/* Pushes the recording by the virtual clock, whose time is *now in the end. Returns when the
 * recording had ended. */
static double play(bench *b, const char *path, wnpu_session *s, const wnpu_audio *a, film *m,
                   double *now)
{
    uint64_t at = 0, chunk = a->rate * (uint64_t)b->chunk_ms / 1000;
    double over = 0;
    int status = 0, done = 0;
    while (!done && status == 0) {
        uint64_t have = (uint64_t)(*now * a->rate / 1000);
        double since;
        uint32_t events;
        have = have / chunk * chunk;
        if (have <= at) { /* wait for the next piece */
            have = at + chunk;
            *now = (double)have * 1000 / a->rate;
        }
        have = have < a->frames ? have : a->frames;
        wnpu_stream_push(s, (const char *)a->data + at * wnpu_frame_bytes(a), (size_t)(have - at));
        at = have;
        since = clock_ms(CLOCK_THREAD_CPUTIME_ID);
        done = at == a->frames;
        over = *now;
        status = done ? wnpu_stream_finish(s) : wnpu_stream_step(s, &events);
        since = clock_ms(CLOCK_THREAD_CPUTIME_ID) - since;
        *now += since;
        if (!done) {
            add(&b->step, since);
        }
        if (done || events != 0) {
            look(b, s, m, *now, done);
        }
    }
    if (status < 0) {
        die(path, wnpu_session_error(s));
    }
    return over;
}

static void run(bench *b, const char *path)
{
    unsigned char *data;
    wnpu_audio a = read_wav(path, &data);
    wnpu_session *s = open_session(b, &a);
    film m = {.said = new_words()};
    double now = 0, over, cpu = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    begin(b, s, &a, 1);
    over = play(b, path, s, &a, &m, &now);
    b->cpu_s += (clock_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu) / 1000;
    b->audio_s += (double)a.frames / a.rate;
    watch(b, &m);
    count(b, &m.said, over);
    if (b->errors) {
        compare_with_file(b, s, &a, &m.said);
    }
    if (b->text != NULL) {
        write_text(b->text, path, &m);
    }
    if (b->svg != NULL) {
        draw(b, &m.said, now);
        b->svg = NULL;
    }
    wnpu_session_close(s);
    free_film(&m);
    free(data);
}

/* Several streams of one recording, begun at different times, on one core. */
static void run_streams(bench *b, const char *path)
{
    unsigned char *data;
    wnpu_audio a = read_wav(path, &data);
    wnpu_session *s[MOST_STREAMS];
    uint64_t at[MOST_STREAMS], chunk = a.rate * (uint64_t)b->chunk_ms / 1000;
    double now = 0;
    int i, status, waiting = 1;
    for (i = 0; i < b->streams; i++) {
        s[i] = open_session(b, &a);
        at[i] = (uint64_t)i * a.rate * 7 % a.frames / chunk * chunk;
        begin(b, s[i], &a, 0);
    }
    while (now < 60000 || waiting) {
        waiting = 0;
        for (i = 0; i < b->streams; i++) {
            uint64_t offset = (uint64_t)i * a.rate * 7 % a.frames / chunk * chunk;
            uint64_t have = (uint64_t)(now * a.rate / 1000) / chunk * chunk, n = at[i] - offset;
            double since;
            if (now >= 60000 || have <= n) {
                continue;
            }
            add(&b->lag, now - (double)n * 1000 / a.rate);
            for (; n < have; n += chunk, at[i] += chunk) {
                uint64_t from = at[i] % a.frames / chunk * chunk;
                from = from + chunk <= a.frames ? from : 0;
                wnpu_stream_push(s[i], (const char *)a.data + from * wnpu_frame_bytes(&a),
                                 (size_t)chunk);
            }
            since = clock_ms(CLOCK_THREAD_CPUTIME_ID);
            status = wnpu_stream_step(s[i], NULL);
            now += clock_ms(CLOCK_THREAD_CPUTIME_ID) - since;
            if (status < 0) {
                die(path, wnpu_session_error(s[i]));
            }
            waiting = now < 60000;
        }
        if (!waiting) {
            now += 1;
            waiting = now < 60000;
        }
    }
    for (i = 0; i < b->streams; i++) {
        wnpu_session_close(s[i]);
    }
    free(data);
}

static void report(bench *b)
{
    if (b->streams > 0) {
        print_numbers("behind, at each step", &b->lag);
        printf("%-44s %.0f ms\n", "99th percentile",
               b->lag.n > 0 ? b->lag.of[b->lag.n * 99 / 100] : 0);
        return;
    }
    print_numbers("end of word to final text", &b->final);
    printf("%-44s %.0f of %.0f\n", "words final only at the end of the recording", b->at_end,
           b->n_words);
    print_numbers("end of phrase to final text", &b->phrases);
    print_numbers("end of word to first display", &b->shown);
    print_numbers("lag of the text at each change", &b->lag);
    printf("%-44s %.3f, of that by final text %.3f\n", "normalised erasure",
           b->n_words > 0 ? b->erased / b->n_words : 0,
           b->n_words > 0 ? b->erased_final / b->n_words : 0);
    printf("%-44s %.3f; %.0f %% of the tentative words\n", "the same of words likely to stay",
           b->n_words > 0 ? b->likely_erased / b->n_words : 0,
           b->seen > 0 ? 100 * b->likely / b->seen : 0);
    printf("%-44s %.1f a minute, %.0f characters in all\n", "revisions",
           b->revisions * 60 / b->audio_s, b->taken_back);
    printf("%-44s %.0f\n", "changes of final text", b->changed);
    if (b->errors) {
        printf("%-44s %.0f of %.0f\n", "words that differ from a file's", b->differ, b->n_file);
    }
    print_numbers("time of a step", &b->step);
    printf("%-44s %.0f ms\n", "longest step", b->step.n > 0 ? b->step.of[b->step.n - 1] : 0);
    printf("%-44s %.3f cores, %.0f s of audio, %.0f words\n", "computing", b->cpu_s / b->audio_s,
           b->audio_s, b->n_words);
}

int main(int argc, char **argv)
{
    bench b = {.threads = 2, .step_ms = 500, .chunk_ms = 40};
    wnpu_error error;
    int i, n_files = 0;
    wnpu_stream_params_init(&b.params, sizeof b.params);
    b.params.language = 0;
    for (i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (argv[i][0] != '-') {
            argv[n_files++] = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--log") == 0 || strcmp(argv[i], "--errors") == 0) {
            b.log |= argv[i][2] == 'l';
            b.errors |= argv[i][2] == 'e';
            continue;
        }
        if (strcmp(argv[i], "--model") == 0) {
            b.model_path = value;
        } else if (strcmp(argv[i], "--svg") == 0) {
            b.svg = value;
        } else if (strcmp(argv[i], "--text") == 0) {
            b.text = value;
        } else if (strcmp(argv[i], "--threads") == 0) {
            b.threads = (unsigned)atoi(value);
        } else if (strcmp(argv[i], "--step") == 0) {
            b.step_ms = atoi(value);
        } else if (strcmp(argv[i], "--chunk") == 0) {
            b.chunk_ms = atoi(value) > 0 ? atoi(value) : 40;
        } else if (strcmp(argv[i], "--streams") == 0) {
            b.streams = atoi(value) < MOST_STREAMS ? atoi(value) : MOST_STREAMS;
            b.threads = 1;
        } else if (strcmp(argv[i], "--least") == 0) {
            b.params.least_ms = atoi(value);
        } else if (strcmp(argv[i], "--pause") == 0) {
            b.params.pause_ms = atoi(value);
        } else if (strcmp(argv[i], "--commit") == 0) {
            b.params.commit_step_ms = atoi(value);
        } else if (strcmp(argv[i], "--hold") == 0) {
            b.params.hold_ms = atoi(value);
        } else {
            die(argv[i], "unknown option");
        }
        i++;
    }
    if (b.model_path == NULL || n_files == 0) {
        die("usage", "bench_live --model MODEL [options] RECORDING.wav ...");
    }
    if (wnpu_model_open(&b.model, b.model_path, NULL, &error) != WNPU_OK) {
        die(b.model_path, error.message);
    }
    for (i = 0; i < n_files; i++) {
        if (b.streams > 0) {
            run_streams(&b, argv[i]);
        } else {
            run(&b, argv[i]);
        }
    }
    report(&b);
    wnpu_model_close(b.model);
    return 0;
}
