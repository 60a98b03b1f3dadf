/* bench_live - how soon text of live audio appears, how often it changes, and what it costs.
 *
 *     bench_live --model MODEL [--threads N] [--step MS] [--least MS] [--pause MS] [--chunk MS]
 *                [--commit MS] [--hold MS] [--streams N] [--svg FILE] [--log] [--errors]
 *                RECORDING.wav ...
 *
 * Recordings are pushed in pieces of --chunk (default 40 ms) by a virtual clock, which advances by
 * the CPU time that the stepping thread has used, and nothing sleeps: with as many threads as free
 * cores that is the time on a computer with nothing else to do. Ends of words are those of a run
 * over the whole recording with the same parameters. A word is shown when it first stands at its
 * place in the text, committed or tentative, and final when it is confirmed, or its segment
 * committed. All words
 * count, except that those which are final only because the recording ended do not count as final.
 * A phrase ends with a word that GAP_MS or more separate from the next one, whether or not a
 * segment ends there. The text lags by the audio that was pushed after what the latest change of
 * the text, committed or tentative, covers. Normalised erasure (Arivazhagan et al., 2020) is the
 * number of words removed from the end of the text so that the next text begins with the rest, over
 * the number of final words; case and punctuation do not count. A revision is a change that removes
 * words. --errors: the words (insertions, deletions, substitutions) in which the final text differs
 * from that of a file run with default parameters. --streams: that many sessions take turns on one
 * core; --threads is 1 then. */
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
    double begin, end, shown, committed; /* ms; negative: not yet */
} word;

typedef struct words {
    size_t n;
    word *of;
} words;

typedef struct numbers {
    size_t n;
    double *of;
} numbers;

typedef struct bench {
    const char *model_path, *svg;
    unsigned threads;
    int step_ms, chunk_ms, streams, log, errors;
    wnpu_params params;
    wnpu_model *model;
    numbers shown, final, phrases, step, lag;
    double audio_s, cpu_s, erased, erased_final, n_words, changed, revisions, taken_back;
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

static void add(numbers *x, double value)
{
    if ((x->n & (x->n - 1)) == 0) {
        x->of = realloc(x->of, (x->n ? 2 * x->n : 1) * sizeof *x->of);
        if (x->of == NULL) {
            die("memory", "none left");
        }
    }
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
    printf("%-44s mean %5.0f, median %5.0f, 95th percentile %5.0f ms, of %lu\n", name,
           sum / (double)x->n, x->of[x->n / 2], x->of[x->n * 95 / 100], (unsigned long)x->n);
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

/* Appends the words of a text, divided at spaces. */
static void split(words *w, const char *text, size_t n)
{
    size_t i = 0, from;
    while (i < n) {
        for (; i < n && text[i] == ' '; i++) {
        }
        for (from = i; i < n && text[i] != ' '; i++) {
        }
        if (i > from && w->n < MOST_WORDS) {
            normalise(w->of[w->n].text, text + from, i - from);
            w->n += w->of[w->n].text[0] != '\0';
        }
    }
}

static words new_words(void)
{
    words w = {0, calloc(MOST_WORDS, sizeof(word))};
    if (w.of == NULL) {
        die("memory", "none left");
    }
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

/* Completes a word whose end is set, unless it has neither letter nor digit. */
static void count_word(words *w, const char *text)
{
    word *d = &w->of[w->n];
    normalise(d->text, text, strlen(text));
    d->shown = d->committed = -1;
    w->n += d->text[0] != '\0';
}

/* The final words and their ends. */
static words transcribe(wnpu_session *s, const wnpu_params *params, const wnpu_audio *a)
{
    words w = new_words();
    wnpu_params p = *params;
    wnpu_word spoken;
    char text[256] = "";
    size_t i, k;
    p.words = 1;
    if (wnpu_transcribe(s, &p, a) < 0) {
        die("run", wnpu_session_error(s));
    }
    for (i = 0; i < wnpu_segment_count(s); i++) {
        for (k = 0; k < wnpu_word_count(s, i); k++) {
            spoken.struct_size = sizeof spoken;
            wnpu_get_word(s, i, k, &spoken);
            if (spoken.text_length == 0 || w.n + 1 >= MOST_WORDS) {
                continue;
            }
            if (k == 0 || spoken.text[0] == ' ') { /* else it continues the one before */
                count_word(&w, text);
                text[0] = '\0';
                w.of[w.n].begin = (double)spoken.t0_ms;
            }
            if (strlen(text) + spoken.text_length < sizeof text) {
                strncat(text, spoken.text, spoken.text_length);
            }
            w.of[w.n].end = (double)spoken.t1_ms;
        }
    }
    count_word(&w, text);
    return w;
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
    words file;
    const texts both = {&file, final};
    size_t *row;
    wnpu_params_init(&p, sizeof p);
    p.language = b->params.language;
    file = transcribe(s, &p, a);
    row = malloc((final->n + 1) * sizeof *row);
    if (row == NULL) {
        die("memory", "none left");
    }
    b->differ += (double)edit_distance(file.n, final->n, row, differ, &both);
    free(row);
    b->n_file += (double)file.n;
    free(file.of);
}

static void begin(bench *b, wnpu_session *s, const wnpu_audio *a)
{
    wnpu_stream_options o = life_stream(a, b->step_ms);
    if (wnpu_stream_begin(s, &b->params, &o) != WNPU_OK) {
        die("stream", wnpu_session_error(s));
    }
}

typedef struct view {
    words now, before;
    size_t committed, likely; /* words of now that are committed, and those or likely to stay */
    size_t committed_before, likely_before;
    int64_t covered; /* end of the audio that the text is from */
} view;

/* Compares what is shown now, at a time, with what was shown before and with the final words. */
static void look(bench *b, wnpu_session *s, view *v, words *final, double at, int finished)
{
    words swap = v->before;
    wnpu_segment g;
    wnpu_live live;
    size_t i, same = 0;
    v->before = v->now;
    v->committed_before = v->committed;
    v->likely_before = v->likely;
    v->now = swap;
    v->now.n = 0;
    for (i = 0; wnpu_get_segment(s, i, &g) == WNPU_OK; i++) {
        split(&v->now, g.text, g.text_length);
    }
    v->committed = v->likely = v->now.n;
    live.struct_size = sizeof live;
    if (!finished && wnpu_get_live(s, &live) == WNPU_OK) {
        int64_t covered = live.text_length > 0 ? live.t1_ms : live.committed_ms;
        if (v->now.n + live.text_length > 0 && covered > v->covered) {
            v->covered = covered;
            add(&b->lag, at - (double)covered);
        }
        split(&v->now, live.text, live.confirmed_length);
        v->committed = v->now.n;
        split(&v->now, live.text + live.confirmed_length,
              live.likely_length - live.confirmed_length);
        v->likely = v->now.n;
        split(&v->now, live.text + live.likely_length, live.text_length - live.likely_length);
        if (b->log) {
            printf("%7.0f %5ld |%s| %.*s\n", at, (long)live.committed_ms, live.text,
                   (int)live.likely_length, live.text);
        }
    }
    while (same < v->now.n && same < v->before.n &&
           strcmp(v->now.of[same].text, v->before.of[same].text) == 0) {
        same++;
    }
    b->erased += (double)(v->before.n - same);
    b->revisions += v->before.n > same;
    for (i = same; i < v->before.n; i++) {
        b->taken_back += (double)strlen(v->before.of[i].text);
    }
    b->erased_final += v->committed > v->committed_before ? (double)(v->before.n - same) : 0;
    if (b->log && v->before.n > same) {
        printf("%7.0f %lu words withdrawn from \"%s\"%s\n", at, (unsigned long)(v->before.n - same),
               v->before.of[same].text, v->committed > v->committed_before ? ", final" : "");
    }
    b->likely_erased += v->likely_before > same ? (double)(v->likely_before - same) : 0;
    b->likely += (double)(v->likely - v->committed);
    b->seen += (double)(v->now.n - v->committed);
    b->changed += same < v->committed_before;
    for (i = 0; i < v->now.n && i < final->n; i++) {
        word *f = &final->of[i];
        if (strcmp(f->text, v->now.of[i].text) == 0) {
            f->shown = f->shown < 0 ? at : f->shown;
            f->committed = f->committed < 0 && i < v->committed ? at : f->committed;
        }
    }
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

/* A picture: time to the right; for each word its end, its first display, and its commit. Words
 * have neither < nor &, see normalise(). */
static void draw(const bench *b, const words *w, double ms)
{
    static const char *const color[] = {"#000", "#e70", "#080"};
    FILE *f = fopen(b->svg, "w");
    size_t i, n = w->n < 60 ? w->n : 60;
    double last = n > 0 && w->of[n - 1].committed > 0 ? w->of[n - 1].committed : ms, scale;
    if (f == NULL) {
        die(b->svg, "cannot be written");
    }
    scale = 760 / (last + 500);
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"960\" height=\"%lu\" "
            "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" "
            "fill=\"white\"/>\n", (unsigned long)(56 + 14 * n));
    for (i = 0; i < 3; i++) {
        static const char *const name[] = {"end of the word", "first shown", "committed"};
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
        double x2 = 180 + (d->committed < 0 ? d->end : d->committed) * scale;
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
        if (d->committed >= 0 && d->committed < over) {
            add(&b->final, d->committed - d->end);
            if (i + 1 < w->n && d[1].begin - d->end >= GAP_MS) {
                add(&b->phrases, d->committed - d->end);
            }
        }
    }
    b->n_words += (double)w->n;
}

static void run(bench *b, const char *path)
{
    unsigned char *data;
    wnpu_audio a = read_wav(path, &data);
    wnpu_session *s = open_session(b, &a);
    words final = transcribe(s, &b->params, &a);
    view v = {new_words(), new_words(), 0, 0, 0, 0, 0};
    uint64_t at = 0, chunk = a.rate * (uint64_t)b->chunk_ms / 1000;
    double now = 0, over = 0, cpu;
    int status = 0, done = 0;
    if (b->errors) {
        compare_with_file(b, s, &a, &final);
    }
    cpu = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    begin(b, s, &a);
    while (!done && status == 0) {
        uint64_t have = (uint64_t)(now * a.rate / 1000);
        double since;
        uint32_t events;
        have = have / chunk * chunk;
        if (have <= at) { /* wait for the next piece */
            have = at + chunk;
            now = (double)have * 1000 / a.rate;
        }
        have = have < a.frames ? have : a.frames;
        wnpu_stream_push(s, (const char *)a.data + at * wnpu_frame_bytes(&a), (size_t)(have - at));
        at = have;
        since = clock_ms(CLOCK_THREAD_CPUTIME_ID);
        done = at == a.frames;
        over = now;
        status = done ? wnpu_stream_finish(s) : wnpu_stream_step(s, &events);
        since = clock_ms(CLOCK_THREAD_CPUTIME_ID) - since;
        now += since;
        if (!done) {
            add(&b->step, since);
        }
        if (done || events != 0) {
            look(b, s, &v, &final, now, done);
        }
    }
    if (status < 0) {
        die(path, wnpu_session_error(s));
    }
    b->cpu_s += (clock_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu) / 1000;
    b->audio_s += (double)a.frames / a.rate;
    count(b, &final, over);
    if (b->svg != NULL) {
        draw(b, &final, now);
        b->svg = NULL;
    }
    wnpu_session_close(s);
    free(final.of);
    free(v.now.of);
    free(v.before.of);
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
        begin(b, s[i], &a);
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
        printf("%-44s %.0f ms\n", "most behind", b->lag.n > 0 ? b->lag.of[b->lag.n - 1] : 0);
        return;
    }
    print_numbers("end of word to final text", &b->final);
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
    printf("%-44s %.0f\n", "changes of committed words", b->changed);
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
