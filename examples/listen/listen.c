/*
 * listen.c - transcribes sound while it is recorded. It starts a recorder, or reads what another
 * program records:
 *     listen MODEL
 *     arecord -q -f S16_LE -r 16000 | listen [OPTION...] MODEL -
 * Final text is shown with tentative text behind it, dimmed. Ctrl-C ends the sound.
 */
#define _DEFAULT_SOURCE /* ioctl() */
#define _XOPEN_SOURCE 700
#include "commands.h"
#include "../kit/args.h"
#include "../kit/list.h"
#include "listen_file.h"
#include "listen_recorder.h"
#include "listen_show.h"
#include "listen_source.h"
#include "../kit/output.h"
#include "../kit/platform.h"
#include "terminal.h"
#include "whisper_npu.h"

#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#define COMMIT_MS "800" /* --commit where somebody watches, see is_watched() */
#define FOLLOW_WORDS "1"

enum { STATUS_FAILED = 1, STATUS_CANCELLED = 4, STATUS_INCOMPLETE = 6 };

typedef struct settings {
    const char *model, *commands, *output, *recorder;
    int from_stdin, live, two_callers;
    int has_commit, has_follow; /* --commit, --follow is given */
    int skip_late;              /* the sound goes on, however slow the computer is */
    long threads, buffer_s, deadline_ms;
    int has_raw;
    wnpu_audio raw;
    list hotwords;
    wnpu_params params;
    show_options show;
} settings;

/* All that a recording needs. */
typedef struct listening {
    settings set;
    wnpu_model *model;
    recorder microphone;
    source sound;
    voice voices[SOURCE_SESSIONS];
    display display;
} listening;

/* Of the file, because on_signal() can be passed nothing: everything that it uses. */
static atomic_int ends, cancelled;
static _Atomic(wnpu_session *) running[SOURCE_SESSIONS];

/* The first signal ends the sound, the second one the runs, and a third one the program. */
static void on_signal(int number)
{
    int i;
    if (cancelled) {
        (void)signal(number, SIG_DFL);
        (void)raise(number);
    }
    cancelled = ends;
    ends = 1;
    for (i = 0; i < SOURCE_SESSIONS && cancelled; i++) {
        wnpu_cancel(atomic_load(&running[i]));
    }
}

/* Prints a line to standard error. Returns status. */
__attribute__((format(printf, 2, 3)))
static int complain(int status, const char *format, ...)
{
    va_list args;
    (void)fflush(stdout);
    va_start(args, format);
    (void)output_complain("listen", status, format, args);
    va_end(args);
    return status;
}

/* ---- options ---- */

static int set_param(settings *s, const char *name, const char *value)
{
    wnpu_error error = {0, ""};
    return wnpu_params_set(&s->params, name, value, &error) == WNPU_OK
               ? 0 : complain(STATUS_FAILED, "%s", error.message);
}

static int take_language(void *to, char *value)
{
    return set_param(to, "language", value);
}

static int take_translate(void *to, char *value)
{
    (void)value;
    return set_param(to, "task", "translate");
}

static int take_prompt(void *to, char *value)
{
    return set_param(to, "initial_prompt", value);
}

static int take_hotwords(void *to, char *value)
{
    settings *s = to;
    const char *wrong = value[0] == '@' ? list_read(&s->hotwords, value + 1)
                                        : list_split(&s->hotwords, value, ",\n");
    s->params.hotwords = s->hotwords.items;
    s->params.n_hotwords = s->hotwords.n;
    return wrong == NULL ? 0 : complain(STATUS_FAILED, "--hotwords: %s: %s", value, wrong);
}

static int take_follow(void *to, char *value)
{
    ((settings *)to)->has_follow = 1;
    return set_param(to, "follow_words", value);
}

static int take_commit(void *to, char *value)
{
    ((settings *)to)->has_commit = 1;
    return set_param(to, "commit_step_ms", value);
}

static int take_speakers(void *to, char *value)
{
    ((settings *)to)->two_callers = 1;
    return strcmp(value, "channels") == 0
               ? 0 : complain(STATUS_FAILED, "--speakers must be channels: who speaks by voice is "
                              "known at the end of a recording only; see --help");
}

static int take_raw(void *to, char *value)
{
    settings *s = to;
    s->has_raw = s->from_stdin = 1;
    return input_parse_raw(&s->raw, value) == 0
               ? 0 : complain(STATUS_FAILED, "--raw: the value is FORMAT[,RATE[,CHANNELS]], such "
                              "as s16le,48000,2; see --help");
}

static int print_help(void *to, char *value);

static const args_row rows[] = {
    {.name = "model", .letter = 'm', .value = "FILE", ARGS_TEXT_AT(settings, model),
     .meaning = "the model, in place of MODEL"},
    {.name = "language", .letter = 'l', .value = "LANG", .take = take_language,
     .otherwise = "detected",
     .meaning = "the language spoken"},
    {.name = "translate", .take = take_translate,
     .meaning = "translate into English"},
    {.name = "prompt", .value = "TEXT", .take = take_prompt,
     .meaning = "text that could come before: spelling and style follow it"},
    {.name = "hotwords", .value = "LIST", .take = take_hotwords,
     .meaning = "words to expect, separated by commas, or @FILE with one per line"},
    {.name = "commands", .value = "FILE", ARGS_TEXT_AT(settings, commands),
     .meaning = "tell which of the phrases in FILE, one per line, each utterance was"},
    {.name = "deadline", .value = "MS",
     ARGS_NUMBER_AT(settings, deadline_ms, 1, 3600000), .start = 1000,
     .meaning = "longest time to find out which of --commands it was"},
    {.name = "speakers", .value = "channels", .take = take_speakers,
     .meaning = "each channel has a speaker of its own, as in calls"},
    {.name = "commit", .value = "MS", .take = take_commit,
     .otherwise = COMMIT_MS " on a terminal with tiny and base models, else off",
     .meaning = "make words final at steps of this length, 200 to 10000, or off: at the end of "
         "their phrase"},
    {.name = "follow", .value = "N", .take = take_follow,
     .otherwise = FOLLOW_WORDS " with --commit",
     .meaning = "words are final when so many words behind them, 0 to 4, were said twice in a row"},
    {.name = "times", ARGS_FLAG_AT(settings, show.times),
     .meaning = "begin lines with the time of their text"},
    {.name = "json", ARGS_FLAG_AT(settings, show.json),
     .meaning = "one line of JSON for each event"},
    {.name = "output", .letter = 'o', .value = "FILE", ARGS_TEXT_AT(settings, output),
     .meaning = "append final text to FILE, too; a crash loses none of it"},
    {.name = "threads", .letter = 't', .value = "N", ARGS_NUMBER_AT(settings, threads, 1, 64),
     .otherwise = "one per CPU, at most 8",
     .meaning = "threads"},
    {.name = "raw", .value = "FORMAT[,RATE[,CHANNELS]]", .take = take_raw,
     .meaning = "standard input is samples: u8, s16le, s24le, s32le, f32le, f64le, alaw or mulaw; "
         "16000 Hz and 1 channel if not given"},
    {.name = "recorder", .value = "COMMAND", ARGS_TEXT_AT(settings, recorder),
     .meaning = "record with this"},
    {.name = "live", ARGS_FLAG_AT(settings, live),
     .meaning = "the source cannot wait; found out by its pace if not given"},
    {.name = "buffer", .value = "SECONDS", ARGS_NUMBER_AT(settings, buffer_s, 1, 600), .start = 60,
     .meaning = "sound that can wait to be decoded"},
    {.name = "help", .letter = 'h', .take = print_help,
     .meaning = "print this text, and exit"}
};

static const args_table table = {"listen", rows, sizeof rows / sizeof rows[0], NULL};

static int print_help(void *to, char *value)
{
    (void)to;
    (void)value;
    fputs(
        "Usage: listen [OPTION...] MODEL [-]\n"
        "\n"
        "Transcribes speech while it is recorded. Without -, and with a terminal as standard\n"
        "input, it records the default microphone with the first of these that works: parec,\n"
        "pw-record, arecord, ffmpeg, rec. Else sound comes from standard input: WAV, samples\n"
        "(16 bits, 16 kHz, mono), or, with ffmpeg, other formats. Ctrl-C ends the sound, and a\n"
        "second one the program.\n"
        "\n", stdout);
    args_help(&table);
    fputs(
        "\n"
        "Other sources:\n"
        "  parec --format=s16le --rate=16000 --channels=1 --device=NAME | listen MODEL -\n"
        "  arecord -q -f S16_LE -r 16000 -D DEVICE | listen MODEL -\n"
        "  ffmpeg -v error -f avfoundation -i :1 -f s16le -ar 16000 -ac 1 - | listen MODEL -\n"
        "  ffmpeg.exe -v error -f dshow -i audio=NAME -f s16le -ar 16000 -ac 1 - | listen MODEL -\n"
        "                            (Windows, from WSL)\n"
        "The exit status is 0, 1 after an error, 4 if a second Ctrl-C has ended the program, or\n"
        "6 if some speech has no text.\n", stdout);
    return fflush(stdout) != 0 || ferror(stdout) ? STATUS_FAILED : ARGS_END;
}

/* Reads the command line. Returns 0, the exit status, or ARGS_END. */
static int parse(settings *s, int argc, char **argv)
{
    int status;
    args_init(&table, s);
    wnpu_stream_params_init(&s->params, sizeof s->params);
    status = args_parse(&table, s, argc, argv);
    if (status == 0 && s->model == NULL && optind < argc && strcmp(argv[optind], "-") != 0) {
        s->model = argv[optind++];
    }
    if (status == 0 && optind < argc && strcmp(argv[optind], "-") == 0) {
        s->from_stdin = 1;
        optind++;
    }
    if (status == 0 && (s->model == NULL || optind < argc)) {
        status = complain(STATUS_FAILED, s->model == NULL ? "no model given; see --help"
                                                         : "too many arguments; see --help");
    }
    if (status == 0 && s->recorder != NULL && s->from_stdin) {
        status = complain(STATUS_FAILED, "sound comes from --recorder or from standard input; see "
                          "--help");
    }
    if (status == 0 && s->two_callers && s->commands != NULL) {
        status = complain(STATUS_FAILED, "--speakers cannot be combined with --commands; see "
                          "--help");
    }
    s->from_stdin |= s->recorder == NULL && !isatty(STDIN_FILENO);
    return status;
}

/* ---- the runs ---- */

/* Whether text is shown on a terminal, with a model that is quick enough to decode at each step. */
static int is_watched(const wnpu_model *model)
{
    wnpu_model_info info = {.struct_size = sizeof info};
    return isatty(STDOUT_FILENO) && wnpu_model_get_info(model, &info) == WNPU_OK &&
           info.n_audio_layer <= 6;
}

static int open_model(listening *l)
{
    settings *s = &l->set;
    wnpu_error error = {0, ""};
    char why[512];
    if (wnpu_model_open(&l->model, s->model, NULL, &error) != WNPU_OK) {
        return complain(STATUS_FAILED, "%s", error.message);
    }
    if (!s->has_commit && s->commands == NULL && !s->show.json && is_watched(l->model)) {
        (void)set_param(s, "commit_step_ms", COMMIT_MS);
    }
    if (!s->has_follow) { /* has no effect without steps */
        (void)set_param(s, "follow_words", FOLLOW_WORDS);
    }
    if (s->commands != NULL) {
        s->show.commands = commands_open(l->model, s->commands, s->deadline_ms, s->params.language,
                                         why);
        if (s->show.commands == NULL) {
            return complain(STATUS_FAILED, "%s", why);
        }
    }
    return s->output == NULL || file_open(&l->display.file, s->output) == 0
               ? 0 : complain(STATUS_FAILED, "%s: %s", s->output, strerror(errno));
}

static int open_sound(listening *l)
{
    settings *s = &l->set;
    int fd = STDIN_FILENO, known_live = s->live || (!s->from_stdin && s->recorder == NULL);
    const char *name = "standard input", *why = l->sound.in.why;
    struct stat about;
    if (!s->from_stdin) {
        if (recorder_start(&l->microphone, s->recorder, &ends) != 0) {
            return complain(STATUS_FAILED, l->microphone.why[0] != '\0' ? "nothing records: %s"
                                : "no recorder is installed%s; for example pulseaudio-utils, "
                                  "pipewire-bin, alsa-utils, ffmpeg and sox have one",
                            l->microphone.why);
        }
        fd = l->microphone.fd;
        name = l->microphone.name;
        if (isatty(STDERR_FILENO)) {
            (void)complain(0, "%s records; Ctrl-C ends it", name);
        }
    }
    s->skip_late = fstat(fd, &about) != 0 || !S_ISREG(about.st_mode);
    if (source_open(&l->sound, fd, s->has_raw ? &s->raw : NULL, known_live, &ends) == 0) {
        l->sound.keep = s->show.commands;
        return 0;
    }
    if (ends) {
        return complain(STATUS_CANCELLED, "nothing was recorded");
    }
    return complain(STATUS_FAILED, strcmp(why, "is empty") == 0
                        ? "%s %s: nothing was recorded. Is there a recorder, and does it work?"
                    : strncmp(why, "is ", 3) == 0 ? "%s %s" : "%s cannot be read: %s", name, why);
}

/* Opens session i, and its stream. */
static int open_voice(listening *l, int i)
{
    const wnpu_audio *a = &l->sound.in.audio;
    const uint64_t second = (uint64_t)wnpu_frame_bytes(a) * a->rate, most = (uint64_t)16 << 20;
    wnpu_config config;
    wnpu_stream_options options;
    wnpu_error error = {0, ""};
    settings *s = &l->set;
    voice *v = &l->voices[i];
    wnpu_config_init(&config, sizeof config);
    config.threads = (uint32_t)s->threads;
    config.stream_bytes = second * (uint64_t)s->buffer_s;
    if (config.stream_bytes > most) { /* a second of 256 channels is more */
        config.stream_bytes = most > second / 5 ? most : second / 5;
    }
    list_make_room(&config, s->hotwords.bytes);
    if (wnpu_session_open(&v->session, l->model, &config, NULL, 0, &error) != WNPU_OK) {
        return complain(STATUS_FAILED, "%s", error.message);
    }
    wnpu_stream_options_init(&options, sizeof options);
    options.format = a->format;
    options.rate = a->rate;
    options.channels = a->channels;
    options.layout = a->layout;
    options.channel = s->two_callers ? i : WNPU_CHANNEL_MIX;
    options.detect_only = s->commands != NULL;
    options.skip_late = s->skip_late;
    v->speaker = s->params.speaker = s->two_callers ? i + 1 : 0;
    if (wnpu_stream_begin(v->session, &s->params, &options) != WNPU_OK) {
        return complain(STATUS_FAILED, "%s", wnpu_session_error(v->session));
    }
    l->sound.session[l->sound.n_sessions++] = v->session;
    atomic_store(&running[i], v->session);
    return 0;
}

static int open_voices(listening *l)
{
    int i, n = l->set.two_callers ? (int)l->sound.in.audio.channels : 1, status = 0;
    if (n > SOURCE_SESSIONS) {
        return complain(STATUS_FAILED, "--speakers channels: there are %d channels, and at most %d "
                        "are possible", n, SOURCE_SESSIONS);
    }
    for (i = 0; i < n && status == 0; i++) {
        status = open_voice(l, i);
    }
    return status;
}

static int cannot_write(void)
{
    return complain(STATUS_FAILED, "the output cannot be written");
}

static int failed_run(const voice *v, int status)
{
    return status == WNPU_E_CANCELLED
               ? complain(STATUS_CANCELLED, "cancelled; the last words are missing")
               : complain(STATUS_FAILED, "%s", wnpu_session_error(v->session));
}

/* Decodes what is due. */
static int step(display *d, voice *v)
{
    uint32_t events;
    int status;
    do {
        status = wnpu_stream_step(v->session, &events);
        if (show(d, v, events, 0) != 0) {
            return cannot_write();
        }
    } while (status == WNPU_OK && (events & WNPU_EVENT_MORE));
    return status < 0 ? failed_run(v, status) : 0;
}

/* Decodes the rest. */
static int finish(display *d, voice *v)
{
    int status;
    (void)wnpu_stream_end(v->session);
    status = step(d, v);
    if (status != 0) {
        return status;
    }
    if (show(d, v, 0, 1) != 0) {
        return cannot_write();
    }
    status = wnpu_stream_finish(v->session);
    if (show_end(d, v) != 0) {
        return cannot_write();
    }
    return status < 0 ? failed_run(v, status) : 0;
}

/* Whether nobody speaks, and all that was said is final. */
static int is_quiet(const listening *l)
{
    wnpu_live live = {.struct_size = sizeof live};
    int i, quiet = l->set.params.vad != 0;
    for (i = 0; i < l->sound.n_sessions && quiet; i++) {
        quiet = wnpu_get_live(l->voices[i].session, &live) == WNPU_OK && !live.speaking &&
                live.text_length == 0 && (live.utterance_t0_ms < 0 || live.utterance_t1_ms >= 0);
    }
    return quiet;
}

static int run(listening *l)
{
    char hint[256];
    int i, goes_on = 1, status = 0;
    while (goes_on && status == 0) {
        goes_on = source_wait(&l->sound, is_quiet(l));
        if (source_hint(&l->sound, hint)[0] != '\0') {
            (void)complain(0, "%s", hint);
        }
        for (i = 0; i < l->sound.n_sessions && status == 0; i++) {
            voice *v = &l->voices[i];
            status = goes_on ? step(&l->display, v) : finish(&l->display, v);
        }
        terminal_refresh(&l->display.terminal);
    }
    return status;
}

/* Speech without text is no silence: its length is told. (Losses have been told already.) */
static int judge_text(const listening *l, int status)
{
    int64_t missing_ms = 0;
    wnpu_ledger_span span;
    size_t k;
    int i;
    for (i = 0; i < l->sound.n_sessions; i++) {
        for (k = 0; wnpu_get_ledger_span(l->voices[i].session, k, &span) == WNPU_OK; k++) {
            missing_ms += span.reason == WNPU_REASON_NO_TEXT ? span.t1_ms - span.t0_ms : 0;
        }
    }
    return status == 0 && missing_ms > 0 && l->set.commands == NULL
               ? complain(STATUS_INCOMPLETE, "%.1f s of speech have no text",
                          (double)missing_ms / 1e3)
               : status;
}

/* What was wrong with the sound. */
static int judge_sound(listening *l, int status)
{
    int cut = input_finish(&l->sound.in) == INPUT_CUT;
    if (status == 0 && (cut || l->sound.failed)) {
        status = complain(STATUS_FAILED, "the sound ended early: %s", cut ? l->sound.in.why
                          : "reading failed");
    }
    return status;
}

static void close_all(listening *l)
{
    int i;
    commands_close(l->set.show.commands);
    for (i = 0; i < SOURCE_SESSIONS; i++) {
        atomic_store(&running[i], NULL);
        wnpu_session_close(l->voices[i].session);
    }
    wnpu_model_close(l->model);
    list_free(&l->set.hotwords);
    source_close(&l->sound);
    file_close(&l->display.file);
}

int main(int argc, char **argv)
{
    listening l = {.microphone = {.child = -1, .fd = -1}, .display.file.fd = -1};
    int status;
    platform_start(&argc, &argv);
    status = parse(&l.set, argc, argv);
    if (status != 0) {
        return status > 0 ? status : 0;
    }
    platform_catch(on_signal);
    status = open_model(&l);
    status = status == 0 ? open_sound(&l) : status;
    status = status == 0 ? open_voices(&l) : status;
    if (status == 0) {
        show_begin(&l.display, &l.set.show);
        if (source_start(&l.sound) != 0) {
            status = complain(STATUS_FAILED, "no thread can be started");
        } else {
            status = run(&l);
            ends |= status != 0;       /* also where ffmpeg waits for more */
            source_stop(&l.sound);
            status = judge_text(&l, judge_sound(&l, status));
        }
    }
    if (l.microphone.child > 0) {
        recorder_stop(&l.microphone);
        if (recorder_close(&l.microphone) != 0 && status == 0 && !ends) {
            status = complain(STATUS_FAILED, "the recorder has ended: %s", l.microphone.why);
        }
    }
    close_all(&l);
    return status;
}
