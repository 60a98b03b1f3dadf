/*
 * results.c - see results.h.
 */
#define _XOPEN_SOURCE 700

#include "results.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNSURE "\033[33m"     /* yellow */
#define DOUBTFUL "\033[31m"   /* red */
#define CERTAIN "\033[39m"
#define NEARBY 64             /* bytes before a word that may be no words: a speaker's name */

/* ---- destinations ---- */

static int is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The extension of a file name without the dot, or NULL. */
static const char *extension_of(const char *path)
{
    const char *name = platform_name(path), *dot = strrchr(name, '.');
    return dot != NULL && dot != name ? dot + 1 : NULL;
}

static int is_standard(const options *o, int target)
{
    return strcmp(o->outputs[o->n_outputs > 1 ? target : 0], "-") == 0;
}

/* The path of output number target of one input. Returns 0, or -1 if it is too long. In an output
 * directory, files are named after the input with the extension of the format. */
static int target_path(const options *o, const char *from, int target, char path[PATH_SIZE])
{
    const char *to = o->outputs[o->n_outputs > 1 ? target : 0], *extension = extension_of(from);
    const char *format = wnpu_format_name(o->formats[target]);
    size_t length = strlen(to);
    int took;
    if (o->output_is_dir) {
        const char *base = strcmp(from, "-") == 0 ? "stdin" : platform_name(from);
        int n = (int)(extension != NULL ? (size_t)(extension - 1 - base) : strlen(base));
        took = snprintf(path, PATH_SIZE, "%s%s%.*s.%s", to,
                        *platform_name(to) == '\0' ? "" : "/", n, base, format);
    } else if (o->n_outputs == 1 && o->n_formats > 1) {
        extension = extension_of(to);
        if (extension != NULL && wnpu_format_from_name(extension) >= 0) {
            length = (size_t)(extension - 1 - to);
        }
        took = snprintf(path, PATH_SIZE, "%.*s.%s", (int)length, to, format);
    } else {
        took = snprintf(path, PATH_SIZE, "%s", to);
    }
    return took > 0 && (size_t)took < PATH_SIZE ? 0 : -1;
}

/* Whether several inputs share standard output: as text under their names, or one JSON array. */
static int is_shared(const options *o)
{
    return o->n_files > 1 && is_standard(o, 0);
}

/* Whether a format is one object with all results, which comes at the end. */
static int is_at_end(int format)
{
    wnpu_format_info info = {.struct_size = sizeof info};
    return wnpu_get_format(format, &info) == WNPU_OK && info.at_end;
}

int results_are_array(const options *o)
{
    return is_shared(o) && is_at_end(o->formats[0]) && !o->spans;
}

/* The format according to a file's extension. Prints an error and returns -1 if there is none. */
static int format_of(const char *path)
{
    const char *extension = extension_of(path);
    int format = extension != NULL && strcmp(path, "-") != 0 ? wnpu_format_from_name(extension)
                                                          : WNPU_FORMAT_TXT;
    if (format < 0) {
        (void)complain(EXIT_USAGE, "%s: no format has the extension .%s; give --format, see --help",
                       path, extension);
    }
    return format;
}

/* Determines the format of each output. */
static int settle_formats(options *o)
{
    int i, given = o->n_formats;
    if (o->n_outputs == 0) {
        o->outputs[o->n_outputs++] = "-";
    }
    if (o->n_outputs == 1) {
        const char *to = o->outputs[0];
        o->output_is_dir = strcmp(to, "-") != 0 &&
                           (o->n_files > 1 || *platform_name(to) == '\0' || is_dir(to));
        if (given == 0) {
            o->n_formats = 1;
            o->formats[0] = o->output_is_dir ? WNPU_FORMAT_TXT : format_of(to);
        }
        if (o->n_formats > 1 && is_standard(o, 0)) {
            return complain(EXIT_USAGE, "several formats cannot share standard output; add "
                            "--output NAME or DIRECTORY, see --help");
        }
        return o->formats[0] < 0 ? EXIT_USAGE : 0;
    }
    if (o->n_files > 1 || given > 0) {
        return complain(EXIT_USAGE, "several --output options are for one FILE, and their "
                        "extensions give the formats; see --help");
    }
    for (i = 0; i < o->n_outputs; i++) {
        o->formats[i] = format_of(o->outputs[i]);
        if (o->formats[i] < 0) {
            return EXIT_USAGE;
        }
    }
    o->n_formats = o->n_outputs;
    return 0;
}

/* The layout of subtitles: the preset with the changes of other options. */
static int settle_layout(options *o)
{
    wnpu_write_options given = o->layout, *l = &o->layout;
    int i;
    wnpu_write_options_init(l, sizeof *l);
    if (o->subtitles) {
        wnpu_write_options_subtitles(l);
    }
    l->max_line_width = given.max_line_width >= 0 ? given.max_line_width : l->max_line_width;
    l->max_lines = given.max_lines >= 0 ? given.max_lines : l->max_lines;
    l->max_cue_ms = given.max_cue_ms >= 0 ? given.max_cue_ms : l->max_cue_ms;
    l->min_gap_ms = given.min_gap_ms >= 0 ? given.min_gap_ms : l->min_gap_ms;
    l->reading_speed = given.reading_speed >= 0 ? given.reading_speed : l->reading_speed;
    l->max_words = given.max_words >= 0 ? given.max_words : l->max_words;
    l->word_times = given.word_times > 0;
    l->device = o->device;
    l->paragraph_ms = given.paragraph_ms > 0 ? given.paragraph_ms : 0;
    l->doubt = given.doubt > 0;
    o->params.words |= l->doubt;
    if (l->max_cue_ms > 0 && l->max_cue_ms < l->min_cue_ms) {
        l->min_cue_ms = l->max_cue_ms; /* those of the preset */
    }
    l->min_cue_ms = given.min_cue_ms >= 0 ? given.min_cue_ms : l->min_cue_ms;
    if (l->max_lines > 0 && l->max_line_width == 0) {
        return complain(EXIT_USAGE, "--max-lines needs --max-line-width; see --help");
    }
    if (l->max_cue_ms > 0 && l->min_cue_ms > l->max_cue_ms) {
        return complain(EXIT_USAGE, "--min-cue-ms is more than --max-cue-ms; see --help");
    }
    for (i = 0; i < o->n_formats; i++) {
        l->format = o->formats[i];
        o->params.words |= wnpu_write_wants_words(l);
    }
    return 0;
}

/* Checks before the run that every output can be written. */
static int check_outputs(const options *o)
{
    char path[PATH_SIZE], why[256];
    const char *read[] = {o->model, o->hotwords.path, o->commands.path, o->align.path};
    int i, target, code = 0;
    for (i = 0; i < 4; i++) {
        if (read[i] != NULL) {
            output_protect(read[i], read[i]);
        }
    }
    for (i = 0; i < o->n_files; i++) {
        output_protect(o->files[i], o->files[i]);
    }
    for (i = 0; i < o->n_files && code == 0; i++) {
        for (target = 0; target < o->n_formats && code == 0; target++) {
            int standard = is_standard(o, target);
            if (!standard && target_path(o, o->files[i], target, path) != 0) {
                code = complain(EXIT_OUTPUT, "%s: %s", o->outputs[0], strerror(ENAMETOOLONG));
            } else {
                int failed = output_check(standard ? NULL : path, o->files[i], why);
                code = failed == 0 ? 0 : complain(failed == -2 ? EXIT_USAGE : EXIT_OUTPUT, "%s: %s",
                                                  standard ? "standard output" : path, why);
            }
        }
    }
    output_forget();
    return code;
}

int results_settle(options *o)
{
    int code = settle_formats(o);
    if (code == 0) {
        code = settle_layout(o);
    }
    if (code != 0) {
        return code;
    }
    if (is_shared(o) && o->formats[0] != WNPU_FORMAT_TXT && !results_are_array(o)) {
        return complain(EXIT_USAGE, "several %s files cannot share standard output; "
                        "add --output DIRECTORY", wnpu_format_name(o->formats[0]));
    }
    if (o->output_is_dir && mkdir(o->outputs[0], 0777) != 0 && !is_dir(o->outputs[0])) {
        return complain(EXIT_OUTPUT, "%s: %s", o->outputs[0],
                        strerror(errno == EEXIST ? ENOTDIR : errno));
    }
    return check_outputs(o);
}

/* ---- contents ---- */

/* The contents of one output. */
typedef struct content {
    const options *o;
    const wnpu_session *session;
    const wnpu_choice *choice; /* NULL: no list of phrases was given */
    int index, format;        /* index of the input; wnpu_format */
    int shared;               /* several inputs share standard output */
    int first;                /* this is the first of them */
    int coloured;             /* see is_coloured() */
    const wnpu_write_cursor *written; /* what was written during the run, or NULL; the first time
                                 that the output is filled, only the rest is written */
} content;

static int put(wnpu_write_fn write, void *sink, const char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        int64_t n = write(sink, text, left);
        if (n <= 0) {
            return WNPU_E_IO;
        }
        text += n;
        left -= (size_t)n;
    }
    return WNPU_OK;
}

/* Text on one line: control characters become spaces. */
static int put_line(wnpu_write_fn write, void *sink, const char *text)
{
    int status = WNPU_OK;
    for (; *text != '\0' && status == WNPU_OK; text++) {
        char one[2] = {*text, '\0'};
        one[0] = (unsigned char)one[0] < 32 || one[0] == 127 ? ' ' : one[0];
        status = put(write, sink, one);
    }
    return status;
}

/* ---- colours of a terminal ---- */

/* Whether an output shows text on a terminal with colours, and doubtful words are to have some. */
static int is_coloured(const options *o, const output *one, int format)
{
    const char *terminal = getenv("TERM"), *none = getenv("NO_COLOR");
    return o->layout.doubt && format == WNPU_FORMAT_TXT && one->kind == OUTPUT_STDOUT &&
           isatty(STDOUT_FILENO) && terminal != NULL && strcmp(terminal, "dumb") != 0 &&
           (none == NULL || none[0] == '\0');
}

typedef struct gathered {
    char *text;
    size_t n, room;
} gathered;

/* A wnpu_write_fn: keeps what is written as a string. */
static int64_t gather(void *user, const void *data, size_t size)
{
    gathered *g = user;
    if (g->n + size >= g->room) {
        size_t room = 2 * (g->n + size) + 1;
        char *larger = realloc(g->text, room);
        if (larger == NULL) {
            return -1;
        }
        g->text = larger;
        g->room = room;
    }
    memcpy(g->text + g->n, data, size);
    g->n += size;
    g->text[g->n] = '\0';
    return (int64_t)size;
}

/* Writes a word of the text at *at in its colour, and what is before it. */
static int paint_word(const wnpu_word *w, char **at, wnpu_write_fn write, void *sink)
{
    const char *colour = w->probability < WNPU_PROBABILITY_DOUBTFUL ? DOUBTFUL : UNSURE;
    const char *word = w->text + strspn(w->text, " ");
    char *found = strstr(*at, word), *end = found != NULL ? found + strlen(word) : NULL, kept;
    int status;
    if (word[0] == '\0' || found == NULL || found - *at > NEARBY) {
        return WNPU_OK; /* a line break in it was dictated */
    }
    kept = *end;
    *end = '\0';
    if (w->probability < WNPU_PROBABILITY_UNSURE) {
        *found = '\0';
        status = put(write, sink, *at);
        *found = word[0];
        status = status == WNPU_OK ? put(write, sink, colour) : status;
        status = status == WNPU_OK ? put(write, sink, found) : status;
        status = status == WNPU_OK ? put(write, sink, CERTAIN) : status;
    } else {
        status = put(write, sink, *at);
    }
    *end = kept;
    *at = end;
    return status;
}

/* As wnpu_write_with(), for a terminal with colours. */
static int write_coloured(const wnpu_session *session, const wnpu_write_options *layout,
                          wnpu_write_cursor *cursor, wnpu_write_fn write, void *sink)
{
    gathered g = {NULL, 0, 0};
    wnpu_segment s;
    wnpu_word w = {.struct_size = sizeof w};
    size_t i = cursor != NULL ? (size_t)cursor->segment : 0, k;
    int status = wnpu_write_with(session, layout, cursor, gather, &g);
    char *at = g.text;
    for (; status == WNPU_OK && at != NULL && wnpu_get_segment(session, i, &s) == WNPU_OK; i++) {
        for (k = 0; status == WNPU_OK && wnpu_get_word(session, i, k, &w) == WNPU_OK; k++) {
            status = paint_word(&w, &at, write, sink);
        }
    }
    status = status == WNPU_OK && at != NULL ? put(write, sink, at) : status;
    free(g.text);
    return status;
}

static int write_results(const content *c, const wnpu_write_options *layout,
                         wnpu_write_cursor *cursor, wnpu_write_fn write, void *sink)
{
    return c->coloured ? write_coloured(c->session, layout, cursor, write, sink)
                       : wnpu_write_with(c->session, layout, cursor, write, sink);
}

/* The recognised phrase with its log-probability and margin, and the second best. */
static int put_choice(const content *c, wnpu_write_fn write, void *sink)
{
    const list *l = &c->o->commands;
    char numbers[64];
    int status = put_line(write, sink, l->items[c->choice->best]);
    (void)snprintf(numbers, sizeof numbers, "\t%.3f\t%.3f\t", (double)c->choice->best_logprob,
                   (double)c->choice->margin);
    status = status == WNPU_OK ? put(write, sink, numbers) : status;
    if (status == WNPU_OK && c->choice->second >= 0) {
        status = put_line(write, sink, l->items[c->choice->second]);
    }
    return status == WNPU_OK ? put(write, sink, "\n") : status;
}

static int put_spans(const wnpu_session *session, wnpu_write_fn write, void *sink)
{
    wnpu_speech_span span;
    size_t i;
    int status = WNPU_OK;
    for (i = 0; status == WNPU_OK && wnpu_get_speech_span(session, i, &span) == WNPU_OK; i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "%lld\t%lld\n", (long long)span.t0_ms,
                       (long long)span.t1_ms);
        status = put(write, sink, line);
    }
    return status;
}

/* Introduces the results of one of several inputs. */
static int put_name(const content *c, wnpu_write_fn write, void *sink)
{
    const char *name = c->o->files[c->index];
    int status = WNPU_OK;
    if (results_are_array(c->o)) {
        status = put(write, sink, c->first ? "[{\"file\": " : ",\n{\"file\": ");
        status = status == WNPU_OK ? wnpu_write_json_string(name, strlen(name), write, sink)
                                   : status;
        status = status == WNPU_OK ? put(write, sink, ", \"result\":\n") : status;
    } else if (c->shared) {
        status = put(write, sink, c->first ? "==> " : "\n==> ");
        status = status == WNPU_OK ? put_line(write, sink, name) : status;
        status = status == WNPU_OK ? put(write, sink, " <==\n") : status;
    }
    return status;
}

/* An output_fill_fn: the results of one input in one format. */
static int fill(void *user, wnpu_write_fn write, void *sink)
{
    content *c = user;
    wnpu_write_options layout = c->o->layout;
    wnpu_write_cursor cursor;
    int status = WNPU_OK, rest = c->written != NULL;
    if (rest) {
        cursor = *c->written;
        cursor.last = 1;
        c->written = NULL;
    } else {
        status = put_name(c, write, sink);
    }
    layout.format = c->format;
    if (status == WNPU_OK) {
        status = c->o->spans ? put_spans(c->session, write, sink)
               : c->choice != NULL && c->format == WNPU_FORMAT_TXT ? put_choice(c, write, sink)
               : write_results(c, &layout, rest ? &cursor : NULL, write, sink);
    }
    return results_are_array(c->o) && status == WNPU_OK ? put(write, sink, "}") : status;
}

/* ---- outputs of one input ---- */

void results_close(outputs *out)
{
    while (out->n > 0) {
        output_close(&out->of[--out->n]);
    }
}

int results_open(const options *o, int index, outputs *out)
{
    const char *from = o->files[index];
    char path[PATH_SIZE];
    for (out->n = 0; out->n < o->n_formats; out->n++) {
        int standard = is_standard(o, out->n);
        if (!standard && target_path(o, from, out->n, path) != 0) {
            return EXIT_OUTPUT; /* not reached: check_outputs() passed */
        }
        if (output_open(&out->of[out->n], standard ? NULL : path) != 0) {
            return complain(EXIT_OUTPUT, "%s: %s", standard ? "standard output" : path,
                            out->of[out->n].why);
        }
    }
    return 0;
}

int results_write(const options *o, const wnpu_session *session, int index,
                  const wnpu_choice *choice, outputs *out)
{
    content c = {o, session, choice, index, 0, is_shared(o), out->written == 0, 0, NULL};
    int target, code = 0;
    for (target = 0; target < out->n; target++) {
        output *one = &out->of[target];
        int saved;
        c.format = o->formats[target];
        c.coloured = is_coloured(o, one, c.format);
        c.written = out->cursors[target].struct_size > 0 ? &out->cursors[target] : NULL;
        saved = output_save(one, fill, &c);
        out->written += one->kind == OUTPUT_STDOUT && saved == 0;
        if (saved != 0) {
            const char *name = one->kind == OUTPUT_STDOUT ? "standard output" : one->path;
            int failed = saved > 0 ? complain(EXIT_ELSEWHERE, "%s: %s; the text is in %s", name,
                                              one->why, one->where)
                                   : complain(EXIT_OUTPUT, "%s: %s", name, one->why);
            code = code == EXIT_OUTPUT ? code : failed;
        }
    }
    return code;
}

static int64_t write_fd(void *user, const void *data, size_t size)
{
    ssize_t n;
    do {
        n = write(*(const int *)user, data, (platform_size)size);
    } while (n < 0 && errno == EINTR);
    return n;
}

int results_stream(const options *o, const wnpu_session *session, int index, outputs *out)
{
    content c = {o, session, NULL, index, 0, is_shared(o), out->written == 0, 0, NULL};
    wnpu_write_options layout = o->layout;
    int target;
    for (target = 0; target < out->n; target++) {
        const output *one = &out->of[target];
        wnpu_write_cursor *cursor = &out->cursors[target];
        int fd = one->kind == OUTPUT_STDOUT ? STDOUT_FILENO
               : one->kind == OUTPUT_STREAM ? one->fd : -1;
        layout.format = o->formats[target];
        if (fd < 0 || is_at_end(layout.format)) {
            continue;
        }
        if (cursor->struct_size == 0) {
            if (put_name(&c, write_fd, &fd) != WNPU_OK) {
                return -1;
            }
            cursor->struct_size = sizeof *cursor;
        }
        c.coloured = is_coloured(o, one, layout.format);
        if (write_results(&c, &layout, cursor, write_fd, &fd) != WNPU_OK) {
            return -1;
        }
    }
    return 0;
}
