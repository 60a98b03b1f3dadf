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

typedef enum row_type {
    ROW_CALL,                 /* take() reads the value */
    ROW_FLAG,                 /* no value: sets the int at at to high */
    ROW_NUMBER,               /* a whole number from low to high, for the int at at */
    ROW_TEXT,                 /* a string, for the const char * at at */
    ROW_PARAM,                /* for wnpu_params_set(): value if that is set, else what is given */
    ROW_PRINT                 /* print(), and the program ends */
} row_type;

#define AT(field) offsetof(options, field)

/* An option. Members that are not set: the option has none, or, with param, the parameter's. */
typedef struct option_row {
    const char *name;         /* without "--" */
    char letter;
    const char *argument;     /* what --help calls the value */
    const char *group, *meaning;
    const char *param;        /* run parameter that it sets, in place of the library's row */
    const char *range, *fallback; /* in words */
    const char *(*word)(int n); /* the range is all words from word(0) on, up to NULL */
    row_type type;
    size_t at;                /* of a field of options */
    int low, high;
    const char *value;
    int (*take)(options *o, const option_info *info, const char *value);
    int (*print)(void);
} option_row;

static const char *isa_name(int isa)
{
    return wnpu_isa_name(isa);
}

static const option_row rows[] = {
    {.name = "model", .letter = 'm', .argument = "FILE", .group = "basic", .type = ROW_TEXT,
     .at = AT(model), .fallback = "from the cache",
     .meaning = "Whisper model: a ggml file, or a pack made by " BUILT("pack") ", which opens "
         "faster. Without it one from ~/.cache/whisper_npu, which " FETCH " fills: "
         "ggml-base.en.bin for recordings that are certainly English and with --language en, "
         "else ggml-tiny.bin, which detects the language"},
    {.name = "language", .letter = 'l', .argument = "LANG", .group = "basic", .type = ROW_PARAM,
     .param = "language"},
    {.name = "translate", .group = "basic", .type = ROW_PARAM, .param = "task",
     .value = "translate",
     .meaning = "translate into English (multilingual models)"},

    {.name = "channel", .argument = "N|centre|mix", .group = "input", .take = value_channel,
     .high = 255, .range = "0 to 255, centre or mix", .fallback = "mix",
     .meaning = "use one channel, counted from 0, that of the loudspeaker in the middle, which has "
         "the dialogue of films, or the mean of all"},
    {.name = "speakers", .argument = "channels", .group = "input", .take = value_speakers,
     .range = "channels", .fallback = "none",
     .meaning = "each channel has a speaker of its own: text per channel, ordered by time, what is "
         "also heard in another channel once. json, verbose_json and vtt name the speakers. Reads "
         "the recording into memory; turns on --words; not with --channel N, --spans or "
         "--commands"},
    {.name = "track", .argument = "N", .group = "input", .type = ROW_NUMBER,
     .at = AT(input.track), .high = 999, .fallback = "chosen by ffmpeg",
     .meaning = "audio track of a file, counted from 0"},
    {.name = "offset", .argument = "T", .group = "input", .take = value_offset, .fallback = "0",
     .range = "seconds, M:S or H:M:S",
     .meaning = "start here; times in the output are still those of the file"},
    {.name = "duration", .argument = "T", .group = "input", .take = value_duration,
     .range = "seconds, M:S or H:M:S", .fallback = "to the end",
     .meaning = "stop after this time"},
    {.name = "clip-timestamps", .argument = "LIST", .group = "input", .take = value_clips,
     .range = "start,end,start,end,...", .fallback = "everything",
     .meaning = "transcribe only these stretches; the last one may have no end"},
    {.name = "raw", .argument = "FORMAT[,RATE[,CHANNELS]]", .group = "input", .take = value_raw,
     .range = "u8, s16le, s24le, s32le, f32le, f64le, alaw, mulaw; 8000 to 192000; 1 to 256",
     .fallback = "RATE 16000, CHANNELS 1",
     .meaning = "every FILE consists of samples without a header"},
    {.name = "stall", .argument = "SECONDS", .group = "input", .take = value_stall, .high = 86400,
     .fallback = "30",
     .meaning = "give up on ffmpeg after this time without progress; 0: never"},

    {.name = "format", .letter = 'f', .argument = "LIST", .group = "output", .take = value_formats,
     .word = wnpu_format_name, .fallback = "by the extension of the output, else txt",
     .meaning = "one or more formats, separated by commas; tsv and csv have times in ms, json has "
         "everything. An unknown extension of an output is an error unless this is given"},
    {.name = "output", .letter = 'o', .argument = "PATH", .group = "output", .take = value_output,
     .fallback = "-",
     .meaning = "a file; with several formats its name without the extension (talk: talk.txt, "
         "talk.srt); or a directory, which gets NAME.FORMAT for each FILE and is created if PATH "
         "ends with / or there are several FILEs. Can be repeated for files with different "
         "extensions. - is standard output, where several FILEs are written under ==> NAME <== "
         "lines (txt) or as one array (json)"},
    {.name = "spans", .group = "output", .type = ROW_FLAG, .at = AT(spans), .high = 1,
     .meaning = "write begin and end of each stretch of speech in ms, and no text"},
    {.name = "device", .group = "output", .type = ROW_FLAG, .at = AT(device), .high = 1,
     .meaning = "in json, tell for each segment what its encoder ran on, cpu or accelerator: the "
         "only member that differs between machines"},

    {.name = "align", .argument = "TEXTFILE", .group = "output", .take = value_align,
     .meaning = "write this text, a segment for each line, with the times at which its words were "
         "said. Words that were not said have probability 0 in json"},
    {.name = "align-extra", .group = "output", .type = ROW_FLAG, .at = AT(align_extra), .high = 1,
     .meaning = "with --align, also write what was said but is not in the text"},

    {.name = "subtitles", .group = "subtitles", .type = ROW_FLAG, .at = AT(subtitles), .high = 1,
     .meaning = "lines of 42 columns, 2 per cue, 1 to 7 s, 80 ms between cues, 20 columns per "
         "second. The options below change these values; each of them turns on --words"},
    {.name = "max-line-width", .argument = "N", .group = "subtitles", .type = ROW_NUMBER,
     .at = AT(layout.max_line_width), .low = 8, .high = 1000, .fallback = "no limit",
     .meaning = "columns of a line; East Asian characters and emoji occupy two"},
    {.name = "max-lines", .argument = "N", .group = "subtitles", .type = ROW_NUMBER,
     .at = AT(layout.max_lines), .low = 1, .high = 16, .fallback = "no limit",
     .meaning = "lines of a cue; needs a line width"},
    {.name = "max-cue-ms", .argument = "N", .group = "subtitles", .type = ROW_NUMBER,
     .at = AT(layout.max_cue_ms), .low = 500, .high = 60000, .fallback = "no limit",
     .meaning = "longest cue"},
    {.name = "min-cue-ms", .argument = "N", .group = "subtitles", .type = ROW_NUMBER,
     .at = AT(layout.min_cue_ms), .high = 10000, .fallback = "0",
     .meaning = "shortest cue"},
    {.name = "min-gap-ms", .argument = "N", .group = "subtitles", .type = ROW_NUMBER,
     .at = AT(layout.min_gap_ms), .high = 1000, .fallback = "0",
     .meaning = "time between cues"},
    {.name = "reading-speed", .argument = "N", .group = "subtitles", .type = ROW_NUMBER,
     .at = AT(layout.reading_speed), .low = 5, .high = 100, .fallback = "no limit",
     .meaning = "columns per second; cues stay that long if there is room"},
    {.name = "max-words", .argument = "N", .group = "subtitles", .type = ROW_NUMBER,
     .at = AT(layout.max_words), .low = 1, .high = 128, .fallback = "no limit",
     .meaning = "words of a cue, or characters of a script without spaces; 1 shows word by word"},
    {.name = "word-times", .group = "subtitles", .type = ROW_FLAG, .at = AT(layout.word_times),
     .high = 1,
     .meaning = "mark when each word of a cue begins, for players that highlight it (karaoke), in "
         "vtt, ass and lrc"},

    {.name = "no-fallback", .group = "gates", .type = ROW_PARAM, .param = "temperature_step",
     .value = "off",
     .meaning = "never decode a window again: the same as --temperature-step off"},

    {.name = "hotwords", .argument = "LIST|@FILE", .group = "prompts", .take = value_hotwords,
     .param = "hotwords", .range = "words separated by commas, or a file with one per line"},
    {.name = "replace", .argument = "LIST|@FILE", .group = "style", .take = value_replace,
     .param = "replace", .range = "this => that, separated by commas, or a file with one per line"},
    {.name = "commands", .argument = "FILE", .group = "prompts", .take = value_commands,
     .fallback = "none",
     .meaning = "tell which of the phrases in FILE, one per line, was said: writes the phrase, its "
         "log-probability, the margin to the second best and that one, separated by tabs"},

    {.name = "language-mode", .argument = "MODE", .group = "language", .take = value_language_mode,
     .param = "language_mode", .range = "first, each, or 1 to 20", .low = 1, .high = 20,
     .fallback = "first",
     .meaning = "how auto detects the language. first or once: from the first speech; a number: "
         "from the average of so many windows of 30 s; each: for every window, and a pause of 3 s "
         "ends a window"},
    {.name = "languages", .argument = "LIST", .group = "language", .take = value_languages,
     .param = "languages", .range = "codes or names separated by commas", .fallback = "all"},

    {.name = "threads", .letter = 't', .argument = "N", .group = "run", .type = ROW_NUMBER,
     .at = AT(config.threads), .low = 1, .high = 64,
     .fallback = "one per CPU, at most 8",
     .meaning = "threads"},
    {.name = "batch", .argument = "N", .group = "run", .type = ROW_NUMBER, .at = AT(config.batch),
     .low = 1, .high = 8, .fallback = "off",
     .meaning = "windows end in pauses, and up to N of them are decoded together: long recordings "
         "take less time and more memory. The text is the same for all N, but not as without"},
    {.name = "isa", .argument = "NAME", .group = "run", .take = value_isa, .word = isa_name,
     .fallback = "auto",
     .meaning = "instruction set; the text is the same with all"},
    {.name = "compute", .argument = "C", .group = "run", .take = value_compute,
     .word = value_compute_name, .fallback = "int8",
     .meaning = "arithmetic; float is the slow reference"},
    {.name = "npu", .argument = "auto|PACK", .group = "run", .type = ROW_TEXT, .at = AT(npu),
     .fallback = "none",
     .meaning = "use an AMD XDNA NPU with the built-in kernels, which only a simulator has "
         "executed so far, or with those in directory PACK. The text is the same; without a "
         "working NPU the CPU does everything, after a message"},
    {.name = "npu-all", .group = "run", .type = ROW_FLAG, .at = AT(config.accel_use),
     .high = WNPU_ACCEL_ALL,
     .meaning = "give the NPU every product that fits its kernels, not only those that it is "
         "expected to compute faster than the CPU"},
    {.name = "require-npu", .group = "run", .type = ROW_FLAG, .at = AT(config.require_accel),
     .high = 1,
     .meaning = "fail rather than let the CPU do the NPU's part"},

    {.name = "quiet", .letter = 'q', .group = "messages", .type = ROW_FLAG, .at = AT(quiet),
     .high = 1,
     .meaning = "print errors only"},
    {.name = "verbose", .letter = 'v', .group = "messages", .type = ROW_FLAG, .at = AT(verbose),
     .high = 1,
     .meaning = "print model, speed and time of each stage on standard error; without it, the "
         "speed is printed on terminals only"},
    {.name = "progress", .group = "messages", .type = ROW_FLAG, .at = AT(progress), .high = 1,
     .meaning = "print the progress on standard error: on a terminal in one line (there it is the "
         "default), else one line per step"},
    {.name = "list-languages", .group = "messages", .type = ROW_PRINT, .print = help_list_languages,
     .meaning = "print codes and names of all languages, and exit"},
    {.name = "list-options", .group = "messages", .type = ROW_PRINT, .print = help_list_options,
     .meaning = "print all options as a Markdown table, and exit"},
    {.name = "self-test", .group = "messages", .type = ROW_PRINT, .print = help_self_test,
     .meaning = "compare the library with known answers, and exit with status 0 or 6"},
    {.name = "version", .group = "messages", .type = ROW_PRINT, .print = help_version,
     .meaning = "print the version, and exit"},
    {.name = "help", .letter = 'h', .group = "messages", .type = ROW_PRINT, .print = help_print,
     .meaning = "print this text, and exit"}
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
        if (strcmp(rows[i].name, param->option + 2) == 0) {
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
    info->name = row->name;
    info->letter = row->letter;
    info->low = row->low;
    info->high = row->high;
    info->argument = row->argument;
    info->group = row->group;
    info->meaning = row->meaning != NULL ? row->meaning : info->meaning;
    if (row->range != NULL) {
        snprintf(info->range, sizeof info->range, "%s", row->range);
    } else if (row->word != NULL) {
        describe_words(row->word, info->range, sizeof info->range);
    } else if (row->argument != NULL && row->low < row->high) {
        snprintf(info->range, sizeof info->range, "%d to %d", row->low, row->high);
    }
    if (row->fallback != NULL || row->type == ROW_FLAG) {
        snprintf(info->fallback, sizeof info->fallback, "%s",
                 row->fallback != NULL ? row->fallback : "off");
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

/* Takes one option, that of options_info(of->at, ...). */
static int take_option(void *to, const args_row *of, char *value)
{
    options *o = to;
    option_info info;
    const option_row *row;
    int n = 0, failed;
    (void)options_info(of->at, &info);
    row = info.row;
    if (row == NULL) {
        return set_param(o, &info, value != NULL ? value
                                 : strncmp(info.name, "no-", 3) == 0 ? "off" : "on");
    }
    switch (row->type) {
    case ROW_CALL: return row->take(o, &info, value);
    case ROW_PARAM: return set_param(o, &info, row->value != NULL ? row->value : value);
    case ROW_TEXT: memcpy((char *)o + row->at, &value, sizeof value); return 0;
    case ROW_FLAG: memcpy((char *)o + row->at, &row->high, sizeof row->high); return 0;
    case ROW_NUMBER:
        failed = value_number(&info, value, &n);
        if (failed == 0) {
            memcpy((char *)o + row->at, &n, sizeof n);
        }
        return failed;
    default: /* ROW_PRINT */
        failed = row->print();
        return failed != 0 ? failed : ARGS_END;
    }
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
            row->name = info.name;
            row->letter = info.letter;
            row->value = info.argument;
            row->at = i;
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
