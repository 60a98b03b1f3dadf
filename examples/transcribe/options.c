/*
 * options.c - see options.h.
 */
#define _XOPEN_SOURCE 700

#include "../kit/args.h"
#include "help.h"
#include "options.h"
#include "../kit/output.h"
#include "values.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int complain(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)output_complain("transcribe", code, format, args);
    va_end(args);
    return code;
}

/* ---- the table ---- */

#define AT(field) offsetof(options, field)
#define FLAG_AT(field) .is.type = ARGS_FLAG, .is.at = AT(field)
#define TEXT_AT(field) .is.type = ARGS_TEXT, .is.at = AT(field)
#define NUMBER_AT(field) .is.type = ARGS_NUMBER, .is.at = AT(field), .is.size = sizeof(int)

/* An option. Members that are not set: the option has none, or, with param, the parameter's. One
 * that is stored in no field has take or print, or else sets its param. */
typedef struct option_row {
    args_row is;              /* what options of all programs are */
    const char *group;
    const char *param;        /* run parameter that it sets, in place of the library's row */
    const char *setting;      /* for that, in place of a value that is given */
    const char *range;        /* in words */
    const char *(*word)(int n); /* the range is all words from word(0) on, up to NULL */
    int (*take)(options *o, const option_info *info, const char *value);
    int (*print)(void);       /* and the program ends */
} option_row;

static const char *isa_name(int isa)
{
    return wnpu_isa_name(isa);
}

static const option_row rows[] = {
    {.is.name = "model", .is.letter = 'm', .is.value = "FILE", .group = "basic", TEXT_AT(model),
     .is.otherwise = "from the cache",
     .is.meaning = "Whisper model: a ggml file, or a pack made by " BUILT("pack") ", which opens "
         "faster. Without it one from ~/.cache/whisper_npu, which " FETCH " fills: "
         "ggml-base.en.bin for recordings that are certainly English and with --language en, "
         "else ggml-tiny.bin, which detects the language"},
    {.is.name = "language", .is.letter = 'l', .is.value = "LANG", .group = "basic",
     .param = "language"},
    {.is.name = "translate", .group = "basic", .param = "task", .setting = "translate",
     .is.meaning = "translate into English (multilingual models)"},

    {.is.name = "channel", .is.value = "N|centre|mix", .group = "input", .take = value_channel,
     .is.high = 255, .range = "0 to 255, centre or mix", .is.otherwise = "mix",
     .is.meaning = "use one channel, counted from 0, that of the loudspeaker in the middle, which "
         "has the dialogue of films, or the mean of all"},
    {.is.name = "speakers", .is.value = "channels", .group = "input", .take = value_speakers,
     .range = "channels", .is.otherwise = "none",
     .is.meaning = "each channel has a speaker of its own: text per channel, ordered by time, "
         "what is also heard in another channel once. json, verbose_json and vtt name the "
         "speakers. Reads the recording into memory; turns on --words; not with --channel N, "
         "--spans or --commands"},
    {.is.name = "track", .is.value = "N", .group = "input", NUMBER_AT(input.track), .is.high = 999,
     .is.otherwise = "chosen by ffmpeg",
     .is.meaning = "audio track of a file, counted from 0"},
    {.is.name = "offset", .is.value = "T", .group = "input", .take = value_offset,
     .is.otherwise = "0", .range = "seconds, M:S or H:M:S",
     .is.meaning = "start here; times in the output are still those of the file"},
    {.is.name = "duration", .is.value = "T", .group = "input", .take = value_duration,
     .range = "seconds, M:S or H:M:S", .is.otherwise = "to the end",
     .is.meaning = "stop after this time"},
    {.is.name = "clip-timestamps", .is.value = "LIST", .group = "input", .take = value_clips,
     .range = "start,end,start,end,...", .is.otherwise = "everything",
     .is.meaning = "transcribe only these stretches; the last one may have no end"},
    {.is.name = "raw", .is.value = "FORMAT[,RATE[,CHANNELS]]", .group = "input", .take = value_raw,
     .range = "u8, s16le, s24le, s32le, f32le, f64le, alaw, mulaw; 8000 to 192000; 1 to 256",
     .is.otherwise = "RATE 16000, CHANNELS 1",
     .is.meaning = "every FILE consists of samples without a header"},
    {.is.name = "stall", .is.value = "SECONDS", .group = "input", .take = value_stall,
     .is.high = 86400, .is.otherwise = "30",
     .is.meaning = "give up on ffmpeg after this time without progress; 0: never"},

    {.is.name = "format", .is.letter = 'f', .is.value = "LIST", .group = "output",
     .take = value_formats, .word = wnpu_format_name,
     .is.otherwise = "by the extension of the output, else txt",
     .is.meaning = "one or more formats, separated by commas; tsv and csv have times in ms, json "
         "has everything. An unknown extension of an output is an error unless this is given"},
    {.is.name = "output", .is.letter = 'o', .is.value = "PATH", .group = "output",
     .take = value_output, .is.otherwise = "-",
     .is.meaning = "a file; with several formats its name without the extension (talk: talk.txt, "
         "talk.srt); or a directory, which gets NAME.FORMAT for each FILE and is created if PATH "
         "ends with / or there are several FILEs. Can be repeated for files with different "
         "extensions. - is standard output, where several FILEs are written under ==> NAME <== "
         "lines (txt) or as one array (json)"},
    {.is.name = "cuts", .is.value = "SECONDS", .group = "output", NUMBER_AT(cuts),
     .is.low = 1, .is.high = 86400, .is.otherwise = "off",
     .is.meaning = "write where the recording can be divided into parts of about this length whose "
         "texts are those of one run, in seconds, and no text; with --speakers behind the channel"},
    {.is.name = "spans", .group = "output", FLAG_AT(spans),
     .is.meaning = "write begin and end of each stretch of speech in ms, and no text"},
    {.is.name = "device", .group = "output", FLAG_AT(device),
     .is.meaning = "in json, tell for each segment what its encoder ran on, cpu or accelerator: "
         "the only member that differs between machines"},
    {.is.name = "paragraphs", .is.value = "MS", .group = "output",
     NUMBER_AT(layout.paragraph_ms), .is.low = 200, .is.high = 60000, .is.otherwise = "off",
     .is.meaning = "txt and json have paragraphs: another one begins after a pause of so many ms, "
         "or when somebody else speaks"},
    {.is.name = "doubt", .group = "output", FLAG_AT(layout.doubt),
     .is.meaning = "mark words with a probability below 0.6 (yellow) and 0.3 (red) in vtt and ass, "
         "and in txt on a terminal; json tells how certain the recording's text is. Turns on "
         "--words"},

    {.is.name = "align", .is.value = "TEXTFILE", .group = "output", .take = value_align,
     .is.meaning = "write this text, a segment for each line, with the times at which its words "
         "were said. Words that were not said have probability 0 in json"},
    {.is.name = "align-extra", .group = "output", FLAG_AT(align_extra),
     .is.meaning = "with --align, also write what was said but is not in the text"},

    {.is.name = "subtitles", .group = "subtitles", FLAG_AT(subtitles),
     .is.meaning = "lines of 42 columns, 2 per cue, 1 to 7 s, 80 ms between cues, 20 columns per "
         "second. The options below change these values; each of them turns on --words"},
    {.is.name = "max-line-width", .is.value = "N", .group = "subtitles",
     NUMBER_AT(layout.max_line_width), .is.low = 8, .is.high = 1000, .is.otherwise = "no limit",
     .is.meaning = "columns of a line; East Asian characters and emoji occupy two"},
    {.is.name = "max-lines", .is.value = "N", .group = "subtitles", NUMBER_AT(layout.max_lines),
     .is.low = 1, .is.high = 16, .is.otherwise = "no limit",
     .is.meaning = "lines of a cue; needs a line width"},
    {.is.name = "max-cue-ms", .is.value = "N", .group = "subtitles", NUMBER_AT(layout.max_cue_ms),
     .is.low = 500, .is.high = 60000, .is.otherwise = "no limit",
     .is.meaning = "longest cue"},
    {.is.name = "min-cue-ms", .is.value = "N", .group = "subtitles", NUMBER_AT(layout.min_cue_ms),
     .is.high = 10000, .is.otherwise = "0",
     .is.meaning = "shortest cue"},
    {.is.name = "min-gap-ms", .is.value = "N", .group = "subtitles", NUMBER_AT(layout.min_gap_ms),
     .is.high = 1000, .is.otherwise = "0",
     .is.meaning = "time between cues"},
    {.is.name = "reading-speed", .is.value = "N", .group = "subtitles",
     NUMBER_AT(layout.reading_speed), .is.low = 5, .is.high = 100, .is.otherwise = "no limit",
     .is.meaning = "columns per second; cues stay that long if there is room"},
    {.is.name = "max-words", .is.value = "N", .group = "subtitles", NUMBER_AT(layout.max_words),
     .is.low = 1, .is.high = 128, .is.otherwise = "no limit",
     .is.meaning = "words of a cue, or characters of a script without spaces; 1 shows word by "
         "word"},
    {.is.name = "word-times", .group = "subtitles", FLAG_AT(layout.word_times),
     .is.meaning = "mark when each word of a cue begins, for players that highlight it (karaoke), "
         "in vtt, ass and lrc"},

    {.is.name = "no-fallback", .group = "gates", .param = "temperature_step", .setting = "off",
     .is.meaning = "never decode a window again: the same as --temperature-step off"},

    {.is.name = "hotwords", .is.value = "LIST|@FILE", .group = "prompts", .take = value_hotwords,
     .param = "hotwords", .range = "words separated by commas, or a file with one per line"},
    {.is.name = "replace", .is.value = "LIST|@FILE", .group = "style", .take = value_replace,
     .param = "replace", .range = "this => that, separated by commas, or a file with one per line"},
    {.is.name = "commands", .is.value = "FILE", .group = "prompts", .take = value_commands,
     .is.otherwise = "none",
     .is.meaning = "tell which of the phrases in FILE, one per line, was said: writes the phrase, "
         "its log-probability, the margin to the second best and that one, separated by tabs"},

    {.is.name = "language-mode", .is.value = "MODE", .group = "language",
     .take = value_language_mode, .param = "language_mode", .range = "first, each, or 1 to 20",
     .is.low = 1, .is.high = 20, .is.otherwise = "first",
     .is.meaning = "how auto detects the language. first or once: from the first speech; a "
         "number: from the average of so many windows of 30 s; each: for every window, and a "
         "pause of 1 s ends a window"},
    {.is.name = "languages", .is.value = "LIST", .group = "language", .take = value_languages,
     .param = "languages", .range = "codes or names separated by commas", .is.otherwise = "all"},

    {.is.name = "threads", .is.letter = 't', .is.value = "N", .group = "run",
     NUMBER_AT(config.threads), .is.low = 1, .is.high = 64,
     .is.otherwise = "one per CPU, at most 8",
     .is.meaning = "threads"},
    {.is.name = "batch", .is.value = "N", .group = "run", NUMBER_AT(config.batch), .is.low = 1,
     .is.high = 8, .is.otherwise = "off",
     .is.meaning = "windows end in pauses, and up to N of them are decoded together: long "
         "recordings take less time and more memory. The text is the same for all N, but not as "
         "without"},
    {.is.name = "isa", .is.value = "NAME", .group = "run", .take = value_isa, .word = isa_name,
     .is.otherwise = "auto",
     .is.meaning = "instruction set; the text is the same with all"},
    {.is.name = "compute", .is.value = "C", .group = "run", .take = value_compute,
     .word = value_compute_name, .is.otherwise = "int8",
     .is.meaning = "arithmetic; float is the slow reference"},
    {.is.name = "npu", .is.value = "auto|PACK", .group = "run", TEXT_AT(npu),
     .is.otherwise = "none",
     .is.meaning = "use an AMD XDNA NPU with the built-in kernels, which only a simulator has "
         "executed so far, or with those in directory PACK. The text is the same; without a "
         "working NPU the CPU does everything, after a message"},
    {.is.name = "npu-all", .group = "run", FLAG_AT(config.accel_use),
     .is.meaning = "give the NPU every product that fits its kernels, not only those that it is "
         "expected to compute faster than the CPU"},
    {.is.name = "require-npu", .group = "run", FLAG_AT(config.require_accel),
     .is.meaning = "fail rather than let the CPU do the NPU's part"},

    {.is.name = "quiet", .is.letter = 'q', .group = "messages", FLAG_AT(quiet),
     .is.meaning = "print errors only"},
    {.is.name = "verbose", .is.letter = 'v', .group = "messages", FLAG_AT(verbose),
     .is.meaning = "print model, speed and time of each stage on standard error; without it, the "
         "speed is printed on terminals only"},
    {.is.name = "progress", .group = "messages", FLAG_AT(progress),
     .is.meaning = "print the progress on standard error: on a terminal in one line (there it is "
         "the default), else one line per step"},
    {.is.name = "list-languages", .group = "messages", .print = help_list_languages,
     .is.meaning = "print codes and names of all languages, and exit"},
    {.is.name = "list-options", .group = "messages", .print = help_list_options,
     .is.meaning = "print all options as a Markdown table, and exit"},
    {.is.name = "self-test", .group = "messages", .print = help_self_test,
     .is.meaning = "compare the library with known answers, and exit with status 0 or 6"},
    {.is.name = "version", .group = "messages", .print = help_version,
     .is.meaning = "print the version, and exit"},
    {.is.name = "help", .is.letter = 'h', .group = "messages", .print = help_print,
     .is.meaning = "print this text, and exit"}
};
#define ROWS (sizeof rows / sizeof rows[0])

/* ---- what is known of an option ---- */

/* Run parameter number index. Returns 0, or -1 behind the last one. */
static int param_at(size_t index, wnpu_param *param)
{
    memset(param, 0, sizeof *param);
    param->struct_size = (uint32_t)sizeof *param;
    return wnpu_param_info(index, param) == WNPU_OK ? 0 : -1;
}

static int param_named(const char *name, wnpu_param *param)
{
    size_t i;
    for (i = 0; param_at(i, param) == 0; i++) {
        if (strcmp(param->name, name) == 0) {
            return 0;
        }
    }
    return -1;
}

/* Whether a row above stands for the parameter's option. */
static int has_own_row(const wnpu_param *param)
{
    size_t i;
    for (i = 0; i < ROWS && param->option != NULL; i++) {
        if (strcmp(rows[i].is.name, param->option + 2) == 0) {
            return 1;
        }
    }
    return 0;
}

/* "a|b|c" as "a, b, c". */
static void describe_choices(const char *choices, char *text, size_t size)
{
    size_t n = 0;
    for (; *choices != '\0' && n + 3 < size; choices++) {
        text[n++] = *choices == '|' ? ',' : *choices;
        if (*choices == '|') {
            text[n++] = ' ';
        }
    }
    text[n] = '\0';
}

static void describe_words(const char *(*word)(int), char *text, size_t size)
{
    size_t n = 0;
    int i;
    text[0] = '\0';
    for (i = 0; word(i) != NULL && n < size; i++) {
        int took = snprintf(text + n, size - n, "%s%s", n > 0 ? ", " : "", word(i));
        n += took > 0 ? (size_t)took : 0;
    }
}

/* The values of a run parameter. */
static void describe_range(const wnpu_param *p, char *text, size_t size)
{
    const char *off = p->has_off ? ", or off" : "";
    int has_low = p->low > -1e30, has_high = p->high < 1e30;
    text[0] = '\0';
    switch (p->type) {
    case WNPU_PARAM_BOOL: snprintf(text, size, "on, off"); break;
    case WNPU_PARAM_CHOICE: describe_choices(p->choices, text, size); break;
    case WNPU_PARAM_SEED: snprintf(text, size, "0 to 2^64 - 1"); break;
    case WNPU_PARAM_INT: case WNPU_PARAM_FLOAT:
        if (has_low && has_high) {
            snprintf(text, size, "%g to %g%s", p->low, p->high, off);
        } else if (has_low || has_high) {
            snprintf(text, size, "%g or %s%s", has_low ? p->low : p->high,
                     has_low ? "more" : "less", off);
        } else {
            snprintf(text, size, "any number%s", off);
        }
        break;
    default: break;
    }
}

/* The default of a run parameter. */
static void describe_fallback(const wnpu_param *p, char *text, size_t size)
{
    int i, choice = (int)p->fallback;
    const char *word = p->choices;
    switch (p->type) {
    case WNPU_PARAM_BOOL: snprintf(text, size, "%s", p->fallback != 0.0 ? "on" : "off"); break;
    case WNPU_PARAM_CHOICE:
        for (i = 0; i < choice; i++) {
            word = strchr(word, '|') + 1;
        }
        snprintf(text, size, "%.*s", (int)strcspn(word, "|"), word);
        break;
    case WNPU_PARAM_LANGUAGE: snprintf(text, size, "auto"); break;
    case WNPU_PARAM_TEXT: case WNPU_PARAM_LIST: snprintf(text, size, "none"); break;
    default:
        snprintf(text, size, "%g", p->fallback);
        if (p->has_off && p->fallback == p->off) {
            snprintf(text, size, "off");
        }
        break;
    }
}

/* What --help calls the value of a run parameter; NULL when its option has none: it sets a BOOL to
 * what is not the default. */
static const char *param_argument(const wnpu_param *p)
{
    switch (p->type) {
    case WNPU_PARAM_BOOL:
        return p->fallback != 0.0 && strncmp(p->option, "--no-", 5) != 0 ? "on|off" : NULL;
    case WNPU_PARAM_CHOICE: return p->choices;
    case WNPU_PARAM_LANGUAGE: return "LANG";
    case WNPU_PARAM_TEXT: return "TEXT";
    case WNPU_PARAM_FLOAT: return "X";
    default: return "N";
    }
}

static void info_of_param(option_info *info)
{
    const wnpu_param *p = &info->param;
    info->name = p->option != NULL && p->type != WNPU_PARAM_LIST ? p->option + 2 : NULL;
    info->argument = info->name != NULL ? param_argument(p) : NULL;
    info->group = p->group;
    info->meaning = p->meaning;
    describe_range(p, info->range, sizeof info->range);
    describe_fallback(p, info->fallback, sizeof info->fallback);
}

static void info_of_row(option_info *info, const option_row *row)
{
    if (row->param != NULL && param_named(row->param, &info->param) == 0) {
        info_of_param(info);
    }
    info->row = row;
    info->name = row->is.name;
    info->letter = row->is.letter;
    info->low = (int)row->is.low;
    info->high = (int)row->is.high;
    info->argument = row->is.value;
    info->group = row->group;
    info->meaning = row->is.meaning != NULL ? row->is.meaning : info->meaning;
    if (row->range != NULL) {
        snprintf(info->range, sizeof info->range, "%s", row->range);
    } else if (row->word != NULL) {
        describe_words(row->word, info->range, sizeof info->range);
    } else if (row->is.value != NULL && row->is.low < row->is.high) {
        snprintf(info->range, sizeof info->range, "%ld to %ld", row->is.low, row->is.high);
    }
    if (row->is.otherwise != NULL || row->is.type == ARGS_FLAG) {
        snprintf(info->fallback, sizeof info->fallback, "%s",
                 row->is.otherwise != NULL ? row->is.otherwise : "off");
    }
}

int options_info(size_t index, option_info *info)
{
    size_t i;
    memset(info, 0, sizeof *info);
    if (index < ROWS) {
        info_of_row(info, &rows[index]);
        return 0;
    }
    index -= ROWS;
    for (i = 0; param_at(i, &info->param) == 0; i++) {
        if (!has_own_row(&info->param) && index-- == 0) {
            info_of_param(info);
            return 0;
        }
    }
    return -1;
}

/* ---- the command line ---- */

static int set_param(options *o, const option_info *info, const char *value)
{
    const char *name = info->param.name;
    const char *see = info->param.type == WNPU_PARAM_LANGUAGE ? "--list-languages or " : "";
    wnpu_error error = {0, ""};
    const char *why = error.message;
    if (wnpu_params_set(&o->params, name, value, &error) == WNPU_OK) {
        return 0;
    }
    if (info->param.type == WNPU_PARAM_BOOL) {
        return complain(EXIT_USAGE, "--%s: \"%s\" is neither on nor off; see --help", info->name,
                        value);
    }
    if (strncmp(why, name, strlen(name)) == 0 && strncmp(why + strlen(name), ": ", 2) == 0) {
        why += strlen(name) + 2; /* messages begin with the parameter, here with the option */
    }
    return complain(EXIT_USAGE, "--%s: %s; see %s--help", info->name, why, see);
}

/* Takes an option that no field is for, that of options_info(of->at, ...). */
static int take_option(void *to, const args_row *of, char *value)
{
    options *o = to;
    option_info info;
    const option_row *row;
    int failed;
    (void)options_info(of->at, &info);
    row = info.row;
    if (row != NULL && row->take != NULL) {
        return row->take(o, &info, value);
    }
    if (row != NULL && row->print != NULL) {
        failed = row->print();
        return failed != 0 ? failed : ARGS_END;
    }
    if (row != NULL) {
        return set_param(o, &info, row->setting != NULL ? row->setting : value);
    }
    return set_param(o, &info, value != NULL ? value
                             : strncmp(info.name, "no-", 3) == 0 ? "off" : "on");
}

/* What of the recording is heard. */
static int settle_clips(options *o)
{
    if (o->offset_ms < 0 && o->duration_ms < 0) {
        return 0;
    }
    if (o->input.clips != NULL) {
        return complain(EXIT_USAGE, "--clip-timestamps cannot be combined with --offset or "
                        "--duration; see --help");
    }
    if (o->duration_ms == 0) {
        return complain(EXIT_USAGE, "--duration is 0; see --help");
    }
    o->clips = malloc(sizeof *o->clips);
    if (o->clips == NULL) {
        return complain(EXIT_OTHER, "no memory");
    }
    o->clips->t0_ms = o->offset_ms > 0 ? o->offset_ms : 0;
    o->clips->t1_ms = o->duration_ms > 0 ? o->clips->t0_ms + o->duration_ms : VALUE_TO_THE_END;
    o->input.clips = o->clips;
    o->input.n_clips = 1;
    return 0;
}

/* Memory for what the search was told. */
static void settle_search(options *o)
{
    const wnpu_params *p = &o->params;
    int widest = p->beam > p->best_of ? p->beam : p->best_of;
    o->config.max_beams = widest > 5 ? (uint32_t)widest : 5;
    list_make_room(&o->config, o->hotwords.bytes + o->commands.bytes);
    o->config.result_bytes *= o->align.n > 0 ? 2 : 1; /* for what was heard and for the text */
    o->params.hotwords = o->hotwords.items;
    o->params.n_hotwords = o->hotwords.n;
}

/* What options mean together. */
static int settle(options *o)
{
    int code = settle_clips(o);
    settle_search(o);
    o->input.whole = o->speakers || o->params.language_windows > 1; /* what is heard twice */
    if (code != 0) {
        return code;
    }
    if (o->n_files == 0) {
        return complain(EXIT_USAGE, "no recording given; see --help");
    }
    if (o->speakers && (o->input.channel != WNPU_CHANNEL_MIX || o->spans || o->commands.n > 0)) {
        return complain(EXIT_USAGE, "--speakers needs all channels and their text: it cannot be "
                        "combined with --channel, --spans or --commands; see --help");
    }
    if (o->align_extra && o->align.n == 0) {
        return complain(EXIT_USAGE, "--align-extra needs --align TEXTFILE; see --help");
    }
    if (o->align.n > 0 && (o->n_files > 1 || o->spans || o->commands.n > 0 ||
                           o->params.task == WNPU_TRANSLATE)) {
        return complain(EXIT_USAGE, "--align is for the words of one FILE: it cannot be combined "
                        "with --spans, --commands or --translate; see --help");
    }
    if (o->hotwords.n > 0 && o->params.beam == 1 && !o->quiet) {
        complain(0, "--hotwords find few words in greedy search: add --beam 5");
    }
    if (o->npu == NULL && (o->config.require_accel || o->config.accel_use != 0)) {
        return complain(EXIT_USAGE, "--npu-all and --require-npu need --npu PACK; see --help");
    }
    return 0;
}

void options_init(options *o)
{
    memset(o, 0, sizeof *o);
    memset(&o->layout, -1, sizeof o->layout); /* nothing was given */
    o->input.channel = WNPU_CHANNEL_MIX;
    o->input.track = -1;
    o->input.stall_ms = 30000;
    o->offset_ms = o->duration_ms = -1;
    o->terminal = isatty(STDERR_FILENO);
    wnpu_config_init(&o->config, sizeof o->config);
    wnpu_params_init(&o->params, sizeof o->params);
}

int options_parse(options *o, int argc, char **argv, int *code)
{
    args_row known[ARGS_MOST];
    args_table table = {"transcribe", known, 0, take_option};
    option_info info;
    size_t i;
    memset(known, 0, sizeof known);
    for (i = 0; options_info(i, &info) == 0; i++) {
        if (info.name != NULL && table.n_rows++ < ARGS_MOST) {
            args_row *row = &known[table.n_rows - 1];
            if (info.row != NULL) {
                *row = info.row->is;
            }
            row->name = info.name;
            row->value = info.argument;
            row->at = row->type == ARGS_TAKE ? i : row->at;
        }
    }
    *code = args_parse(&table, o, argc, argv);
    if (*code != 0) {
        *code = *code == ARGS_END ? 0 : *code;
        return 1;
    }
    o->files = argv + optind;
    o->n_files = argc - optind;
    *code = settle(o);
    return *code != 0;
}

void options_free(options *o)
{
    free(o->replace);
    list_free(&o->hotwords);
    list_free(&o->commands);
    list_free(&o->align);
    free(o->clips);
}
