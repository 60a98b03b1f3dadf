/*
 * transcribe.c - transcribes recordings to text, subtitles or JSON. See --help.
 *
 *     cc -DNO_NPU -I. examples/transcribe/[a-z]*.c examples/kit/[a-z]*.c \
 *        whisper_npu.c -o transcribe -lm -lpthread
 *
 * or without -DNO_NPU, and with npu_amdxdna.c and $(pkg-config --cflags --libs libdrm).
 */
#define _XOPEN_SOURCE 700

#include "../kit/input.h"
#include "../kit/npu.h"
#include "options.h"
#include "../kit/output.h"
#include "replay.h"
#include "results.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

/* Everything that the signal handler uses. */
static atomic_int stop;
static volatile sig_atomic_t finishes; /* the input is a pipe: what was read of it is transcribed
                                          first, since it cannot be read again */
static _Atomic(wnpu_session *) running;

/* The first signal ends the recording, a second one the program. */
static void on_signal(int number)
{
    wnpu_session *session = atomic_load(&running);
    if (stop) {
        signal(number, SIG_DFL);
        raise(number); /* delivered when this returns */
        return;
    }
    stop = 1;
    if (session != NULL && !finishes) {
        wnpu_cancel(session);
    }
}

/* ---- the model ---- */

#define ENGLISH_ONLY "ggml-base.en.bin"
#define MULTILINGUAL "ggml-tiny.bin"

/* A model and its session. */
typedef struct engine {
    char path[PATH_SIZE];     /* "" if there is none */
    wnpu_model *model;
    wnpu_session *session;
} engine;

/* English recordings use the English-only model if both models are there and the language is to be
 * detected; all others use the first one. */
typedef struct engines {
    engine first, english;
} engines;

/* Whether a model of that name is in the cache; sets its path. */
static int in_cache(const char *name, char path[PATH_SIZE])
{
    const char *cache = getenv("WHISPER_NPU_CACHE"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = platform_home();
    int n = cache != NULL ? snprintf(path, PATH_SIZE, "%s/%s", cache, name)
          : xdg != NULL   ? snprintf(path, PATH_SIZE, "%s/whisper_npu/%s", xdg, name)
                          : snprintf(path, PATH_SIZE, "%s/.cache/whisper_npu/%s",
                                     home != NULL ? home : "", name);
    if (n > 0 && (size_t)n < PATH_SIZE && access(path, F_OK) == 0) {
        return 1;
    }
    path[0] = '\0';
    return 0;
}

/* Keeps outputs from replacing models of the cache, one of which may be used. */
static void protect_cache(void)
{
    char path[PATH_SIZE];
    if (in_cache(ENGLISH_ONLY, path)) {
        output_protect(path, "a model");
    }
    if (in_cache(MULTILINGUAL, path)) {
        output_protect(path, "a model");
    }
}

/* Whether English is among the languages that are considered. */
static int may_be_english(const options *o)
{
    size_t i, n = o->params.n_languages;
    for (i = 0; i < n && o->languages[i] != 0; i++) {
    }
    return o->params.language <= 0 && o->params.task == WNPU_TRANSCRIBE && (n == 0 || i < n);
}

/* Whether the language of the recording as a whole is to be detected before it is decoded. */
static int asks_language(const options *o)
{
    return o->params.language == WNPU_LANGUAGE_AUTO && o->params.n_languages != 1 && !o->spans;
}

/* Finds the models to use. */
static int find_models(const options *o, engines *e)
{
    char english[PATH_SIZE];
    int multilingual = in_cache(MULTILINGUAL, e->first.path);
    int follows = o->params.language_mode == WNPU_LANGUAGE_EACH || o->params.language_windows > 1;
    if (o->model != NULL) {
        (void)snprintf(e->first.path, PATH_SIZE, "%s", o->model);
        return 0;
    }
    if (may_be_english(o) && in_cache(ENGLISH_ONLY, english)) {
        if (!multilingual || !asks_language(o)) {
            strcpy(e->first.path, english);
        } else if (!follows) {
            strcpy(e->english.path, english);
        }
        if (!multilingual && asks_language(o) && !o->quiet) {
            (void)complain(0, "the language is not checked: " ENGLISH_ONLY " knows English only, "
                           "and there is no " MULTILINGUAL "; " FETCH " tiny fetches it");
        }
        return 0;
    }
    return multilingual ? 0 : complain(EXIT_MODEL, "no --model given and none in the cache that "
                                       "fits; " FETCH " tiny fetches one");
}

static void on_log(void *user, wnpu_log_level level, const char *text)
{
    const options *o = user;
    if (level == WNPU_LOG_ERROR) {
        return; /* the function that failed returns the same, and its caller says so */
    }
    if (level <= WNPU_LOG_WARNING ? !o->quiet : o->verbose && level <= WNPU_LOG_INFO) {
        (void)complain(0, "%s", text);
    }
}

static int open_model(const options *o, const char *path, wnpu_model **model)
{
    wnpu_model_config config;
    wnpu_model_info info;
    wnpu_error error = {0, ""};
    int status;
    wnpu_model_config_init(&config, sizeof config);
    config.keep_float = o->config.compute == WNPU_COMPUTE_FLOAT;
    config.threads = o->config.threads;
    config.log = on_log;
    config.log_user = (void *)(uintptr_t)o;
    status = wnpu_model_open(model, path, &config, &error);
    if (status != WNPU_OK) {
        status = complain(status == WNPU_E_MEMORY ? EXIT_OTHER : EXIT_MODEL, "%s: %s", path,
                          error.message);
    } else if (o->verbose) {
        memset(&info, 0, sizeof info);
        info.struct_size = sizeof info;
        wnpu_model_get_info(*model, &info);
        fputs("model ", stderr);
        output_safely(stderr, path);
        fprintf(stderr, ": %s, %s, %u bits, %.0f MB in memory, %.0f MB shared\n", info.name,
                info.weight_type, (unsigned)info.weight_bits, (double)info.bytes / 1e6,
                (double)info.shared_bytes / 1e6);
    }
    return status;
}

/* The library never requests AMX from the system unasked, because it enlarges the signal frames of
 * the host. This process is our own, so we request it; if it is refused or missing, the library
 * chooses another instruction set. */
static int open_fastest(const options *o, const wnpu_model *model, wnpu_session **session,
                        wnpu_error *error)
{
    wnpu_config config = o->config;
    int status = WNPU_E_UNSUPPORTED;
    if (config.isa == WNPU_ISA_AUTO && wnpu_isa_available(WNPU_ISA_AMX)) {
        config.isa = WNPU_ISA_AMX;
        status = wnpu_session_open(session, model, &config, NULL, 0, error);
    }
    return status != WNPU_E_UNSUPPORTED ? status :
           wnpu_session_open(session, model, &o->config, NULL, 0, error);
}

/* The threads of the pool are started with signals blocked, so that a signal always interrupts this
 * thread, and with it a read() that waits for input. */
static int open_session(const options *o, const wnpu_model *model, wnpu_session **session)
{
    wnpu_error error = {0, ""};
    platform_signals before;
    int status;
    platform_hold(&before);
    status = open_fastest(o, model, session, &error);
    platform_release(&before);
    if (status == WNPU_OK) {
        return 0;
    }
    return complain(status == WNPU_E_UNSUPPORTED || status == WNPU_E_ARGUMENT ? EXIT_USAGE
                    : status == WNPU_E_ACCEL ? EXIT_NPU : EXIT_OTHER, "%s", error.message);
}

static int open_engine(const options *o, engine *e)
{
    int code = open_model(o, e->path, &e->model);
    return code != 0 ? code : open_session(o, e->model, &e->session);
}

/* ---- languages ---- */

/* Lowest probability at which a language counts as certain. With tiny, 106 of 110 English clips
 * reach it, and none of 27 clips in other languages reaches it for English. Of these 27, 4 are
 * taken for a wrong language, 3 of them below it; of the other 23, 5 are below it. */
#define CERTAIN 0.8f

/* The most probable of the languages that are considered. */
static int most_probable(const options *o, const float *probabilities)
{
    int best = o->params.n_languages > 0 ? o->languages[0] : 0, i;
    int n = o->params.n_languages > 0 ? (int)o->params.n_languages : wnpu_language_count();
    for (i = 0; i < n; i++) {
        int language = o->params.n_languages > 0 ? o->languages[i] : i;
        best = probabilities[language] > probabilities[best] ? language : best;
    }
    return best;
}

/* Detects the language at the beginning of a recording, and chooses the engine for it. */
static engine *choose_engine(const options *o, engines *e, const char *name,
                             const wnpu_audio *audio)
{
    float p[100] = {0};
    engine *chosen = &e->first;
    int language;
    if (wnpu_detect_language(e->first.session, audio, p, sizeof p / sizeof p[0]) < 0) {
        return chosen; /* the run will fail in the same way, and say so */
    }
    language = most_probable(o, p);
    if (language == 0 && p[0] >= CERTAIN) {
        chosen = e->english.session != NULL || open_engine(o, &e->english) == 0 ? &e->english
                                                                                : chosen;
    }
    if (!o->quiet) {
        (void)complain(0, "%s: the language is %s (probability %.2f); model %s", name,
                       wnpu_language_name(language), (double)p[language],
                       platform_name(chosen->path));
    }
    return chosen;
}

/* After a run: prints a warning if the language is not certain. */
static void warn_language(const options *o, const char *name, const wnpu_session *session)
{
    wnpu_stats s;
    s.struct_size = sizeof s;
    if (!o->quiet && asks_language(o) && o->params.language_mode == WNPU_LANGUAGE_ONCE &&
        wnpu_segment_count(session) > 0 &&
        wnpu_get_stats(session, &s) == WNPU_OK && s.language_probability < CERTAIN) {
        (void)complain(0, "%s: the language is perhaps %s (probability %.2f); --language gives it, "
                       "--languages those that come into question", name,
                       wnpu_language_name(s.language), (double)s.language_probability);
    }
}

/* ---- the work ---- */

typedef struct progress {
    const char *name;
    int shown;                /* what was shown last, -1 nothing */
    int on, terminal;         /* terminal: one line, which is written over */
} progress;

static void clear_progress(progress *p)
{
    if (p->terminal && p->shown >= 0) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        p->shown = -1;
    }
}

static void show_progress(progress *p, int64_t done_ms, int64_t total_ms)
{
    /* Percent, or seconds when nobody knows how long it is. */
    int now = (int)(total_ms > 0 ? done_ms * 100 / total_ms : done_ms / 1000);
    if (!p->on || now == p->shown) {
        return;
    }
    p->shown = now;
    fputs(p->terminal ? "\r\033[K" : "transcribe: ", stderr);
    output_safely(stderr, p->name);
    if (total_ms > 0) {
        fprintf(stderr, ": %d %% (%lld of %lld s)", now, (long long)(done_ms / 1000),
                (long long)(total_ms / 1000));
    } else {
        fprintf(stderr, ": %d s", now);
    }
    fputs(p->terminal ? "" : "\n", stderr);
    fflush(stderr);
}

static void print_speed(const options *o, const char *name, const wnpu_session *session)
{
    wnpu_stats s;
    double audio;
    memset(&s, 0, sizeof s);
    s.struct_size = sizeof s;
    if (o->quiet || !(o->verbose || o->terminal) || wnpu_get_stats(session, &s) != WNPU_OK) {
        return;
    }
    audio = (double)s.audio_ms;
    output_safely(stderr, name);
    fprintf(stderr, ": %.1f s of sound in %.2f s, %.1f times real time\n", audio / 1e3,
            s.total_ms / 1e3, s.total_ms > 0 ? audio / s.total_ms : 0.0);
    if (o->verbose) {
        const char *isa = wnpu_isa_name(s.isa);
        const char *language = wnpu_language_code(s.language);
        fprintf(stderr, "  language %s (%.2f), %s, %d thread%s, %u windows, %u tokens\n"
                "  %u decodings refused, %u of them for loops; %u windows silent, %u doubtful\n"
                "  ms: input %.0f, log-mel %.0f, encoder %.0f, cross keys and values %.0f, "
                "decoder %.0f\n", language != NULL ? language : "unknown",
                (double)s.language_probability, isa != NULL ? isa : "?", s.threads,
                s.threads == 1 ? "" : "s", s.windows, s.tokens, s.retries, s.loops, s.silent,
                s.unaccepted, s.audio_in_ms, s.log_mel_ms,
                s.encoder_ms, s.cross_ms, s.decoder_ms);
        fprintf(stderr, "  speech %.1f s (found in %.0f ms), %u times silence skipped, %u times "
                "decoded again, unresolved %.1f s\n", (double)s.speech_ms / 1e3, s.voice_ms,
                s.skips, s.returns, (double)s.unresolved_ms / 1e3);
        if (s.raised > 0) {
            fprintf(stderr, "  %u windows were very quiet: their level was raised\n", s.raised);
        }
        npu_tell(session);
    }
}

/* The exit status for the status of a run. */
static int code_of(int status)
{
    switch (status) {
    case WNPU_OK: return 0;
    case WNPU_E_CANCELLED: return EXIT_CANCELLED;
    case WNPU_E_IO: case WNPU_E_AUDIO: return EXIT_INPUT;
    case WNPU_E_ARGUMENT: case WNPU_E_UNSUPPORTED: return EXIT_USAGE;
    case WNPU_E_ACCEL: return EXIT_NPU;
    default: return EXIT_OTHER;
    }
}

static const char *input_name(const options *o, int index)
{
    return strcmp(o->files[index], "-") == 0 ? "standard input" : o->files[index];
}

/* A run whose text is written while it goes on. */
typedef struct live {
    const options *o;
    wnpu_session *session;
    outputs *out;
    int index;
    int text_on_terminal;     /* which shows the progress as well */
    int failed;               /* writing is tried again after the run */
    progress shown;
} live;

static int on_segment(void *user, const wnpu_segment *segment)
{
    live *l = user;
    (void)segment;
    if (l->text_on_terminal) {
        clear_progress(&l->shown);
    }
    l->failed = l->failed || results_stream(l->o, l->session, l->index, l->out) != 0;
    return 0;
}

static int on_progress(void *user, int64_t done_ms, int64_t total_ms)
{
    live *l = user;
    show_progress(&l->shown, done_ms, total_ms);
    return stop && !finishes;
}

/* Transcribes each channel of a recording in memory as another speaker. */
static int transcribe_channels(wnpu_session *session, wnpu_params *params, const wnpu_audio *audio)
{
    wnpu_audio one = *audio;
    int status = WNPU_OK, last;
    for (one.channel = 0; one.channel < (int32_t)audio->channels && status >= 0; one.channel++) {
        params->speaker = one.channel + 1;
        params->append = one.channel > 0;
        last = wnpu_transcribe(session, params, &one);
        status = last != WNPU_OK ? last : status;
    }
    return status;
}

/* Replaces the text by the given one, with the times at which it was said. */
static int align(const options *o, const char *name, wnpu_session *session)
{
    wnpu_align_stats s;
    int status;
    memset(&s, 0, sizeof s);
    s.struct_size = sizeof s;
    status = wnpu_align(session, o->align.items, o->align.n, o->align_extra, &s);
    if (status == WNPU_OK && !o->quiet) {
        complain(0, "%s: of %llu words in %s, %llu were said, %llu of them otherwise than written; "
                 "%llu words said are not in it", name, (unsigned long long)s.words, o->align.path,
                 (unsigned long long)s.said, (unsigned long long)s.alike,
                 (unsigned long long)s.extra);
    }
    return status;
}

/* The last cut before each multiple of a time. */
typedef struct cutter {
    int64_t step_ms, next_ms; /* next_ms: the multiple that comes next */
    int64_t last_ms;          /* cut that was not written, or 0 */
    int channel;              /* or -1 */
} cutter;

static void write_cut(cutter *c)
{
    if (c->last_ms > 0) {
        if (c->channel >= 0) {
            printf("%d ", c->channel);
        }
        printf("%lld.%03d\n", (long long)(c->last_ms / 1000), (int)(c->last_ms % 1000));
    }
    c->last_ms = 0;
}

static int on_cut(void *user, int64_t cut_ms)
{
    cutter *c = user;
    if (cut_ms > c->next_ms) {
        write_cut(c);
        c->next_ms = (cut_ms + c->step_ms - 1) / c->step_ms * c->step_ms;
    }
    c->last_ms = cut_ms;
    return stop != 0;
}

/* Writes where a recording can be divided, each of its channels if they are speakers. */
static int write_cuts(const options *o, wnpu_session *session, int index, const wnpu_audio *audio)
{
    wnpu_audio one = *audio;
    int status = WNPU_OK, channel, n = o->speakers ? (int)audio->channels : 1;
    for (channel = 0; channel < n && status == WNPU_OK; channel++) {
        int64_t step_ms = (int64_t)o->cuts * 1000;
        cutter c = {step_ms, step_ms, 0, o->speakers ? channel : -1};
        uint64_t frames = 0;
        one.channel = o->speakers ? channel : audio->channel;
        status = wnpu_find_cuts(session, &o->params, &one, on_cut, &c);
        (void)wnpu_get_position(session, &frames);
        if (status == WNPU_OK && (int64_t)(frames * 1000 / audio->rate) > c.next_ms) {
            write_cut(&c);
        }
    }
    if (status != WNPU_OK) {
        return complain(code_of(status), "%s: %s", input_name(o, index),
                        wnpu_session_error(session));
    }
    return fflush(stdout) == 0 ? 0 : EXIT_OUTPUT;
}

/* Runs a session and writes its results; out is open. */
static int run(const options *o, wnpu_session *session, int index, const wnpu_audio *audio,
               outputs *out)
{
    const char *name = input_name(o, index);
    live l = {o, session, out, index, o->terminal && isatty(STDOUT_FILENO), 0,
              {name, -1, o->progress || (o->terminal && !o->quiet), o->terminal}};
    wnpu_params params = o->params;
    wnpu_choice choice;
    int status, code, written = 0, chosen = o->commands.n > 0;
    if (o->cuts > 0) {
        return write_cuts(o, session, index, audio);
    }
    params.on_progress = on_progress;
    params.on_segment = chosen || o->speakers || o->align.n > 0 ? NULL : on_segment;
    params.user = &l;
    memset(out->cursors, 0, sizeof out->cursors);
    memset(&choice, 0, sizeof choice);
    choice.struct_size = sizeof choice;
    status = chosen ? wnpu_choose(session, &params, audio, o->commands.items, o->commands.n,
                                  &choice)
           : o->spans ? wnpu_detect_speech(session, &params, audio)
           : o->speakers ? transcribe_channels(session, &params, audio)
                    : wnpu_transcribe(session, &params, audio);
    chosen = chosen && status == WNPU_OK;
    clear_progress(&l.shown);
    if (status >= 0 && o->align.n > 0) {
        int failed = align(o, name, session);
        status = failed != WNPU_OK ? failed : status;
    }
    code = code_of(status);
    if (status != WNPU_OK) {
        const char *why = stop && status == WNPU_E_CANCELLED
                              ? "interrupted; what was decoded by then is written"
                              : wnpu_session_error(session);
        complain(code, "%s: %s", name, why[0] != '\0' ? why : wnpu_strerror(status));
    }
    if (status >= 0 || status == WNPU_E_CANCELLED || wnpu_segment_count(session) > 0) {
        written = results_write(o, session, index, chosen ? &choice : NULL, out);
    }
    warn_language(o, name, session);
    print_speed(o, name, session);
    return code != 0 ? code : written;
}

/* Prints what was wrong with an input that has been read. Returns code, or if that is 0 the status
 * for an input that was cut short. */
static int report_input(const options *o, input *in, const char *from, int code)
{
    input_state state = input_finish(in);
    if (state == INPUT_CUT || (state == INPUT_ODD && !o->quiet)) {
        complain(0, "%s: %s", from, in->why);
    }
    return state == INPUT_CUT && code == 0 ? EXIT_OTHER : code;
}

static int complain_unread(const options *o, int index)
{
    return complain(EXIT_CANCELLED, "%s: not transcribed: ended by a signal", input_name(o, index));
}

/* Transcribes an input that is open. */
static int transcribe_input(const options *o, engines *e, int index, const input *in, outputs *out)
{
    wnpu_audio audio = in->audio;
    engine *chosen = &e->first;
    replay heard;
    int code;
    finishes = in->stream;
    replay_begin(&heard, &audio);
    atomic_store(&running, e->first.session);
    if (e->english.path[0] != '\0') {
        chosen = choose_engine(o, e, input_name(o, index), &audio);
    }
    replay_again(&heard);
    atomic_store(&running, chosen->session);
    code = stop && !finishes ? complain_unread(o, index)
                             : run(o, chosen->session, index, &audio, out);
    if (stop && code == 0) {
        code = complain(EXIT_CANCELLED, "%s: ended by a signal; what was heard is written",
                        input_name(o, index));
    }
    atomic_store(&running, NULL);
    finishes = 0;
    replay_end(&heard);
    return code;
}

static int transcribe(const options *o, engines *e, int index, outputs *out)
{
    const char *from = o->files[index];
    input in;
    int code = results_open(o, index, out); /* first: a pipe can be heard only once */
    if (code == 0) {
        if (input_open(&in, from, &o->input) != 0) {
            code = stop ? complain_unread(o, index)
                        : complain(EXIT_INPUT, "%s: %s", from, in.why);
        } else {
            code = transcribe_input(o, e, index, &in, out);
            code = report_input(o, &in, from, code);
        }
        input_close(&in);
    }
    results_close(out);
    return code;
}

/* An NPU that cannot be opened is an error only with --require-npu. */
static int open_npu(options *o, const wnpu_model *model)
{
    int status = o->npu != NULL ? npu_open(&o->config.accel, o->npu, model, on_log, o)
                                : WNPU_OK;
    if (status == WNPU_OK || o->config.require_accel) {
        return status == WNPU_OK ? 0 : EXIT_NPU;
    }
    complain(0, "going on without the NPU");
    return 0;
}

static int transcribe_all(options *o)
{
    engines e;
    outputs out;
    int i, code;
    memset(&e, 0, sizeof e);
    memset(&out, 0, sizeof out);
    code = find_models(o, &e);
    code = code == 0 ? open_model(o, e.first.path, &e.first.model) : code;
    code = code == 0 ? open_npu(o, e.first.model) : code;
    code = code == 0 ? open_session(o, e.first.model, &e.first.session) : code;
    for (i = 0; e.first.session != NULL && i < o->n_files && !stop; i++) {
        int one = transcribe(o, &e, i, &out);
        code = one == EXIT_CANCELLED || code == 0 ? one : code;
        if (one == EXIT_USAGE) {
            break; /* the others would fail in the same way */
        }
    }
    if (stop && i < o->n_files) {
        code = complain_unread(o, i);
    }
    if (e.first.session != NULL && results_are_array(o) &&
        (fputs(out.written > 0 ? "]\n" : "[]\n", stdout) == EOF || fflush(stdout) != 0)) {
        code = code == 0 ? complain(EXIT_OUTPUT, "standard output: %s", strerror(errno)) : code;
    }
    wnpu_session_close(e.first.session);
    wnpu_session_close(e.english.session);
    npu_close(o->config.accel);
    wnpu_model_close(e.first.model);
    wnpu_model_close(e.english.model);
    return stop ? EXIT_CANCELLED : code;
}

int main(int argc, char **argv)
{
    options o;
    int code;

    platform_start(&argc, &argv);
    options_init(&o);
    if (options_parse(&o, argc, argv, &code) != 0) {
        options_free(&o);
        return code;
    }
    o.input.end = &stop;
    o.config.log = on_log;
    o.config.log_user = &o;
    protect_cache();
    code = results_settle(&o);
    if (code == 0) {
        platform_catch(on_signal);
        code = transcribe_all(&o);
    }
    options_free(&o);
    return code;
}
