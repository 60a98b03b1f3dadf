/*
 * transcribe.c - recordings in, text or subtitles out. See --help.
 *
 *     cc -DNO_NPU -I. examples/transcribe.c examples/input.c examples/ffmpeg.c examples/output.c \
 *        examples/replay.c examples/npu.c whisper_npu.c -o transcribe -lm -lpthread
 *
 * or without -DNO_NPU, and with npu_amdxdna.c and $(pkg-config --cflags --libs libdrm).
 */
#define _XOPEN_SOURCE 700

#include "input.h"
#include "npu.h"
#include "output.h"
#include "replay.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_SIZE 4096u /* longest name of an output or a model in the cache */
#define MAX_OUTPUTS 16  /* --output options, and formats */

enum {
    EXIT_USAGE = 1,
    EXIT_MODEL = 2,
    EXIT_INPUT = 3,
    EXIT_CANCELLED = 4,
    EXIT_OUTPUT = 5,
    EXIT_OTHER = 6,
    EXIT_NPU = 7,
    EXIT_ELSEWHERE = 8
};

/* In parts, since C99 compilers need not take longer strings. */
static const char help_hear[] =
"Usage: transcribe [options] FILE...\n"
"\n"
"Writes what is said in each FILE. A FILE is a WAV file of any usual kind, anything\n"
"else that ffmpeg can read (if ffmpeg is installed), or - for standard input. Pipes\n"
"and FIFOs are read as they come.\n"
"\n"
"What to hear\n"
"  -m, --model FILE      a ggml Whisper model, or a pack that build/pack made of one; packs\n"
"                        open at once. Default: of the cache that scripts/fetch.sh fills\n"
"                        (~/.cache/whisper_npu) ggml-tiny.bin, which detects the language;\n"
"                        ggml-base.en.bin instead for FILEs that are certainly English,\n"
"                        and with --language en\n"
"  -l, --language LANG   code or name of the language spoken; auto detects it (default)\n"
"      --translate       write in English, whatever is spoken (multilingual models)\n"
"      --languages LIST  only these come into question: codes or names, with commas\n"
"      --language-mode M the language of the recording: first (of its first speech; the\n"
"                        default), a number from 1 to 20 (the average of so many 30 s), or\n"
"                        each (every window its own; a pause of 3 s ends a window)\n"
"      --prompt TEXT     what might have been said before: names, spelling, style\n"
"      --carry-prompt    the prompt before every window, not only the first\n"
"      --condition       let each window of 30 s follow the text of the one before it\n"
"      --prefix TEXT     what the text begins with\n"
"      --hotwords LIST   words that are likely, with commas between them, or @FILE with one\n"
"                        a line; --hotword-boost X makes them more so, 0 to 20 (2)\n"
"      --commands FILE   which of these phrases, one a line, was said? Writes it, its\n"
"                        log-probability, the margin to the next, and that one, with tabs\n"
"      --channel N|mix   use one channel, counted from 0; default: the mean of all\n"
"      --track N         audio track of a file, counted from 0; default: ffmpeg's choice\n"
"      --offset T, --duration T\n"
"                        hear only from there on, and only so long: seconds, M:S or H:M:S.\n"
"                        Times in the output are still those of the file\n"
"      --clip-timestamps LIST\n"
"                        hear only these stretches: start,end,start,end,...; the last one\n"
"                        may have no end\n"
"      --raw FORMAT[,RATE[,CHANNELS]]\n"
"                        FILEs are samples without a header (16000,1): u8, s16le, s24le,\n"
"                        s32le, f32le, f64le, alaw, mulaw\n"
"      --stall SECONDS   give up on ffmpeg after so long without progress; 0: never (30)\n"
"      --max-tokens N    at most N tokens a window, 1 to 224\n"
"      --no-timestamps   one segment a window, without times inside\n"
"      --words           measure when each word is said: segments begin and end with\n"
"                        their words, and json has all of them\n"
"      --no-suppress-nonspeech\n"
"                        allow symbols that are not spoken, such as brackets and notes\n";

static const char help_search[] =
"\n"
"How to search (defaults in brackets)\n"
"      --beam N          beam search, 1 to 16 hypotheses; 1 is greedy search (1)\n"
"      --patience X      a beam ends after N times X hypotheses, 0.1 to 16 (1)\n"
"      --length-penalty X, --length-rule power|ratio\n"
"                        texts of n tokens are ranked by log-probability / n^X, or\n"
"                        / ((5 + n) / 6)^X; -4 to 4 (1, power)\n"
"      --temperature X   of the first try, 0 to 2; above 0 it samples (0)\n"
"      --best-of N       samples at a temperature above 0, 1 to 16 (5)\n"
"      --seed N          other samples (0)\n"
"      --temperature-step X, --no-fallback\n"
"                        a window that fails a gate is tried again so much hotter, up to\n"
"                        1; 0.05 to 1 (0.2), or never\n"
"      --compression-threshold X, --logprob-threshold X, --first-token-threshold X,\n"
"      --no-speech-threshold X\n"
"                        the gates: text may shrink at most so far (2.4), its mean and\n"
"                        first log-probability are at least this (-1; off); above this\n"
"                        a window is silent (0.6). off switches one off\n"
"      --no-loop-check   do not stop where text repeats itself and the audio does not\n"
"      --repetition-penalty X, --no-repeat-ngram N\n"
"                        tokens that are there already lose, 0.5 to 4 (1); no N tokens\n"
"                        in a row twice in a window, 0 to 64 (0)\n";

static const char help_write[] =
"      --vad on|off      decode only where there is speech (default: on)\n"
"      --vad-threshold P probability that counts as speech, 0.05 to 0.95; default 0.5.\n"
"                        Lower finds more\n"
"      --vad-min-speech MS, --vad-min-silence MS, --vad-pad MS\n"
"                        least length of speech (default 100) and of a pause that ends\n"
"                        it (700), and what is added on both sides (300)\n"
"\n"
"What to write\n"
"      --spans           begin and end of each stretch of speech in ms, and no text\n"
"  -f, --format LIST     one or more of txt, srt, vtt, tsv (times in ms), csv, lrc, ass and\n"
"                        json (everything), with commas; default: by the ending of\n"
"                        --output FILE in any case, txt without an ending. An unknown\n"
"                        ending is an error unless --format is given\n"
"      --device          json also tells for each segment what its encoder ran on, cpu or\n"
"                        accelerator: the one member that differs between machines\n"
"  -o, --output PATH     a file; with several formats its name without the ending (talk:\n"
"                        talk.txt, talk.srt); or a directory, which gets NAME.F for each\n"
"                        FILE, and is made if PATH ends with / or there are several FILEs.\n"
"                        May be repeated, for files with different endings; - is standard\n"
"                        output, the default. Several FILEs come under ==> NAME <== lines\n"
"                        there (txt), or as one array (json)\n"
"\n"
"Subtitles (srt, vtt, ass, lrc)\n"
"      --subtitles       lines of 42 columns, 2 a cue, 1 to 7 s, 80 ms between cues, to be\n"
"                        read at 20 columns a second; the options below change that, and\n"
"                        any of them measures --words\n"
"      --max-line-width N\n"
"                        columns, 8 to 1000; East Asian characters and emoji have two\n"
"      --max-lines N     in a cue, 1 to 16, if there is a line width\n"
"      --max-cue-ms N, --min-cue-ms N, --min-gap-ms N\n"
"                        longest and shortest cue (500 to 60000, 0 to 10000) and the time\n"
"                        between cues (0 to 1000)\n"
"      --reading-speed N columns a second, 5 to 100; cues stay that long if there is room\n"
"\n"
"Outputs are checked before anything runs: they must not be files that are read, and what\n"
"cannot be written is an error then. Files appear whole; mode, owner, links and hard links\n"
"stay. If writing fails after all, the text is written beside the output, in $TMPDIR or\n"
"to standard output, and the exit status is 8.\n"
"\n";

static const char help_work[] =
"How to work\n"
"  -t, --threads N       1 to 64; default: one for each CPU, at most 8\n"
"      --batch N         windows end in pauses, and up to N, 1 to 8, are decoded together:\n"
"                        long recordings take less time and more memory. The text is the\n"
"                        same with 1 as with 8, but not as without\n"
"      --isa NAME        instruction set: auto (default), scalar, sse4.1, avx2, avx-vnni,\n"
"                        avx512, neon, neon-dot, neon-i8mm, amx. The text is the same\n"
"                        with all\n"
"      --compute C       int8 (default), or float: the slow reference\n"
"      --npu PACK        let an AMD XDNA NPU multiply, with the kernels in directory PACK.\n"
"                        The text is the same; without a working NPU the CPU does all\n"
"      --npu-all         all products that fit the kernels, not only those that it is\n"
"                        expected to do faster than the CPU\n"
"      --require-npu     fail rather than let the CPU do the NPU's part\n"
"\n"
"What to tell\n"
"  -q, --quiet           nothing but errors\n"
"  -v, --verbose         model, speed and times of each stage, on standard error.\n"
"                        Without it, speed shows on a terminal only\n"
"      --progress        how much is done, on standard error: on a terminal in one line\n"
"                        (which is the default there), else in a line for each step\n"
"      --list-languages  codes and names, then exit\n"
"      --self-test       compare the library with known answers, then exit: 0 or 6\n"
"      --version         then exit\n"
"  -h, --help            this text, then exit\n"
"\n"
"Exit status\n"
"  0  everything was transcribed\n"
"  1  an option is wrong, or does not fit the model or this CPU\n"
"  2  the model cannot be opened\n"
"  3  a FILE cannot be read; the others are done\n"
"  4  ended early by SIGINT (Ctrl-C), SIGTERM or SIGHUP; the text up to there is written\n"
"     to every output. A second signal ends the program at once\n"
"  5  an output cannot be written; that is found out before anything runs, but for outputs\n"
"     that nobody reads any more\n"
"  6  anything else, such as no memory, an incomplete result, or a FILE that is damaged\n"
"     or cut short, of which everything that is there is written\n"
"  7  --require-npu, and the NPU could not do its part; the text up to there is written\n"
"  8  an output could not be written, and its text is somewhere else: a line on standard\n"
"     error says where\n"
"With several failures the status is that of the first, but 4 before all. Each has a\n"
"line on standard error.\n"
"\n"
"Examples\n"
"  transcribe talk.wav                          the text on standard output\n"
"  transcribe --subtitles -o talk.srt film.mp4  subtitles, by way of ffmpeg\n"
"  transcribe -f txt,srt,json -o talk talk.wav  talk.txt, talk.srt and talk.json\n"
"  transcribe -f json -o out/ *.wav             out/NAME.json for each\n"
"  arecord -q -f S16_LE -r 16000 -d 10 | transcribe -\n"
"  arecord -q -t raw -f S16_LE -r 16000 | transcribe --raw s16le,16000 -\n";

/* Lines of a file, or parts of a list. */
typedef struct list {
    char *text;               /* NULs between the items */
    const char **items;
    size_t n, bytes;
} list;

typedef struct options {
    const char *model, *npu;
    const char *outputs[MAX_OUTPUTS]; /* as given; "-": standard output */
    int n_outputs;
    int output_is_dir;        /* the only one is */
    int formats[MAX_OUTPUTS]; /* of each output; or of the only one, which then is a base name or a
                                 directory if there are several. wnpu_format */
    int n_formats;
    int subtitles;            /* the preset */
    wnpu_write_options layout; /* what was given beside it; -1: not given */
    input_options input;
    wnpu_audio raw;           /* what input.raw points to */
    int64_t offset_ms, duration_ms; /* -1: not given */
    input_clip *clips;        /* what input.clips points to */
    int spans;                /* speech only, no text */
    int device;               /* in JSON, too */
    int quiet, verbose, progress, terminal; /* terminal: standard error is one */
    wnpu_config config;
    wnpu_params params;
    list hotwords, commands;
    int32_t languages[100];
    char **files;
    int n_files;
} options;

/* All that the signal handler touches. */
static volatile sig_atomic_t stop;
static volatile sig_atomic_t finishes; /* a pipe is read: what was heard of it is transcribed, as it
                                          cannot be heard again */
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

__attribute__((format(printf, 2, 3)))
static int complain(int code, const char *format, ...)
{
    char line[2 * PATH_SIZE];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fputs("transcribe: ", stderr);
    output_safely(stderr, line);
    fputc('\n', stderr);
    return code;
}

static int is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* ---- options ---- */

/* Capitals and these stand for options that have no short form. */
enum {
    OPT_BEAM = 256, OPT_PATIENCE, OPT_LENGTH_PENALTY, OPT_LENGTH_RULE, OPT_TEMPERATURE, OPT_BEST_OF,
    OPT_SEED, OPT_STEP, OPT_NO_FALLBACK, OPT_COMPRESSION, OPT_LOGPROB, OPT_FIRST_TOKEN,
    OPT_NO_SPEECH, OPT_NO_LOOP_CHECK, OPT_REPETITION, OPT_NO_REPEAT, OPT_CARRY, OPT_PREFIX,
    OPT_HOTWORDS, OPT_BOOST, OPT_COMMANDS, OPT_LANGUAGES, OPT_LANGUAGE_MODE,
    OPT_VAD, OPT_VAD_THRESHOLD, OPT_VAD_SPEECH, OPT_VAD_SILENCE, OPT_VAD_PAD, OPT_SPANS,
    OPT_DEVICE, OPT_BATCH, OPT_PROGRESS, OPT_SUBTITLES, OPT_LINE_WIDTH, OPT_LINES, OPT_MAX_CUE,
    OPT_MIN_CUE, OPT_GAP, OPT_READING,
    OPT_TRACK, OPT_OFFSET, OPT_DURATION, OPT_CLIPS, OPT_RAW, OPT_STALL
};

static const struct option long_options[] = {
    {"model", required_argument, NULL, 'm'},
    {"language", required_argument, NULL, 'l'},
    {"translate", no_argument, NULL, 'E'},
    {"prompt", required_argument, NULL, 'P'},
    {"condition", no_argument, NULL, 'C'},
    {"channel", required_argument, NULL, 'H'},
    {"track", required_argument, NULL, OPT_TRACK},
    {"offset", required_argument, NULL, OPT_OFFSET},
    {"duration", required_argument, NULL, OPT_DURATION},
    {"clip-timestamps", required_argument, NULL, OPT_CLIPS},
    {"raw", required_argument, NULL, OPT_RAW},
    {"stall", required_argument, NULL, OPT_STALL},
    {"beam", required_argument, NULL, OPT_BEAM},
    {"patience", required_argument, NULL, OPT_PATIENCE},
    {"length-penalty", required_argument, NULL, OPT_LENGTH_PENALTY},
    {"length-rule", required_argument, NULL, OPT_LENGTH_RULE},
    {"temperature", required_argument, NULL, OPT_TEMPERATURE},
    {"best-of", required_argument, NULL, OPT_BEST_OF},
    {"seed", required_argument, NULL, OPT_SEED},
    {"temperature-step", required_argument, NULL, OPT_STEP},
    {"no-fallback", no_argument, NULL, OPT_NO_FALLBACK},
    {"compression-threshold", required_argument, NULL, OPT_COMPRESSION},
    {"logprob-threshold", required_argument, NULL, OPT_LOGPROB},
    {"first-token-threshold", required_argument, NULL, OPT_FIRST_TOKEN},
    {"no-speech-threshold", required_argument, NULL, OPT_NO_SPEECH},
    {"no-loop-check", no_argument, NULL, OPT_NO_LOOP_CHECK},
    {"repetition-penalty", required_argument, NULL, OPT_REPETITION},
    {"no-repeat-ngram", required_argument, NULL, OPT_NO_REPEAT},
    {"carry-prompt", no_argument, NULL, OPT_CARRY},
    {"prefix", required_argument, NULL, OPT_PREFIX},
    {"hotwords", required_argument, NULL, OPT_HOTWORDS},
    {"hotword-boost", required_argument, NULL, OPT_BOOST},
    {"commands", required_argument, NULL, OPT_COMMANDS},
    {"languages", required_argument, NULL, OPT_LANGUAGES},
    {"language-mode", required_argument, NULL, OPT_LANGUAGE_MODE},
    {"max-tokens", required_argument, NULL, 'M'},
    {"no-timestamps", no_argument, NULL, 'N'},
    {"words", no_argument, NULL, 'W'},
    {"no-suppress-nonspeech", no_argument, NULL, 'S'},
    {"vad", required_argument, NULL, OPT_VAD},
    {"vad-threshold", required_argument, NULL, OPT_VAD_THRESHOLD},
    {"vad-min-speech", required_argument, NULL, OPT_VAD_SPEECH},
    {"vad-min-silence", required_argument, NULL, OPT_VAD_SILENCE},
    {"vad-pad", required_argument, NULL, OPT_VAD_PAD},
    {"spans", no_argument, NULL, OPT_SPANS},
    {"device", no_argument, NULL, OPT_DEVICE},
    {"format", required_argument, NULL, 'f'},
    {"output", required_argument, NULL, 'o'},
    {"subtitles", no_argument, NULL, OPT_SUBTITLES},
    {"max-line-width", required_argument, NULL, OPT_LINE_WIDTH},
    {"max-lines", required_argument, NULL, OPT_LINES},
    {"max-cue-ms", required_argument, NULL, OPT_MAX_CUE},
    {"min-cue-ms", required_argument, NULL, OPT_MIN_CUE},
    {"min-gap-ms", required_argument, NULL, OPT_GAP},
    {"reading-speed", required_argument, NULL, OPT_READING},
    {"threads", required_argument, NULL, 't'},
    {"batch", required_argument, NULL, OPT_BATCH},
    {"isa", required_argument, NULL, 'I'},
    {"compute", required_argument, NULL, 'F'},
    {"npu", required_argument, NULL, 'U'},
    {"npu-all", no_argument, NULL, 'A'},
    {"require-npu", no_argument, NULL, 'R'},
    {"progress", no_argument, NULL, OPT_PROGRESS},
    {"quiet", no_argument, NULL, 'q'},
    {"verbose", no_argument, NULL, 'v'},
    {"list-languages", no_argument, NULL, 'L'},
    {"self-test", no_argument, NULL, 'T'},
    {"version", no_argument, NULL, 'V'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}
};

static int bad_value(const char *what, const char *value)
{
    return complain(EXIT_USAGE, "no such %s: %s; see --help", what, value);
}

static int number(const char *text, int low, int high, int *value)
{
    char *end;
    long n;
    errno = 0;
    n = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || n < low || n > high) {
        return complain(EXIT_USAGE, "%s is not a number from %d to %d; see --help", text, low,
                        high);
    }
    *value = (int)n;
    return 0;
}

static int real(const char *text, float low, float high, float *value)
{
    char *end;
    float x = strtof(text, &end); /* as low and high: 0.1 must not be below 0.1 */
    if (end == text || *end != '\0' || !(x >= low && x <= high)) {
        return complain(EXIT_USAGE, "%s is not a number from %g to %g; see --help", text,
                        (double)low, (double)high);
    }
    *value = x;
    return 0;
}

/* A threshold, or the value that switches it off. */
static int threshold(const char *text, float low, float high, float off, float *value)
{
    if (strcmp(text, "off") == 0) {
        *value = off;
        return 0;
    }
    return real(text, low, high, value);
}

/* The whole of a file as a string; NULL with errno set. */
static char *slurp(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t n = 0, capacity = 0, took = 1;
    while (file != NULL && took > 0) {
        if (n + 1 >= capacity) {
            char *grown = realloc(text, capacity = 2 * capacity + 4096);
            if (grown == NULL) {
                break;
            }
            text = grown;
        }
        took = fread(text + n, 1, capacity - n - 1, file);
        n += took;
    }
    if (file == NULL || took > 0 || ferror(file)) {
        free(text);
        text = NULL;
    } else {
        text[n] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
    return text;
}

/* Takes text (which it frees) apart at any of the separators; empty items are left out. */
static int split(list *l, char *text, const char *separators)
{
    char *at, *item;
    if (text == NULL) {
        return complain(EXIT_USAGE, "list: %s", strerror(errno));
    }
    free(l->text);
    free(l->items);
    memset(l, 0, sizeof *l);
    l->text = text;
    l->bytes = strlen(text);
    l->items = malloc((l->bytes / 2 + 1) * sizeof *l->items);
    if (l->items == NULL) {
        return complain(EXIT_OTHER, "no memory");
    }
    for (item = strtok_r(text, separators, &at); item != NULL;
         item = strtok_r(NULL, separators, &at)) {
        char *end = item + strlen(item);
        while (*item == ' ' || *item == '\t') {
            item++;
        }
        while (end > item && (end[-1] == ' ' || end[-1] == '\t')) {
            *--end = '\0';
        }
        if (*item != '\0') {
            l->items[l->n++] = item;
        }
    }
    return 0;
}

/* The one reader of list files: an item a line, UTF-8 with or without a byte order mark, any line
 * ends. Blanks around items are removed; a file without items is an error. */
static int read_list(list *l, const char *path)
{
    static const char mark[] = "\xef\xbb\xbf";
    char *text = slurp(path);
    int failed;
    if (text == NULL) {
        return complain(EXIT_USAGE, "%s: %s", path, strerror(errno));
    }
    if (strncmp(text, "\xff\xfe", 2) == 0 || strncmp(text, "\xfe\xff", 2) == 0) {
        free(text);
        return complain(EXIT_USAGE, "%s: is UTF-16; save it as UTF-8", path);
    }
    if (strncmp(text, mark, 3) == 0) {
        memmove(text, text + 3, strlen(text + 3) + 1);
    }
    failed = split(l, text, "\r\n");
    if (failed == 0 && l->n == 0) {
        failed = complain(EXIT_USAGE, "%s: has no lines with text", path);
    }
    return failed;
}

static int take_languages(options *o, const char *value)
{
    list l = {NULL, NULL, 0, 0};
    size_t i;
    int failed = split(&l, strdup(value), ",");
    for (i = 0; i < l.n && failed == 0; i++) {
        o->languages[i] = wnpu_language_id(l.items[i]);
        if (o->languages[i] < 0) {
            failed = bad_value("language (--list-languages shows all)", l.items[i]);
        } else if (i + 1 == sizeof o->languages / sizeof o->languages[0]) {
            break;
        }
    }
    o->params.languages = o->languages;
    o->params.n_languages = i < l.n ? i + 1 : l.n;
    free(l.text);
    free(l.items);
    return failed;
}

static int take_language_mode(options *o, const char *value)
{
    o->params.language_mode = strcmp(value, "each") == 0 ? WNPU_LANGUAGE_EACH
                                                         : WNPU_LANGUAGE_ONCE;
    o->params.language_windows = 1;
    return strcmp(value, "each") == 0 || strcmp(value, "first") == 0
               ? 0 : number(value, 1, 20, &o->params.language_windows);
}

static int take_seed(options *o, const char *value)
{
    char *end;
    errno = 0;
    o->params.seed = strtoull(value, &end, 10);
    return end == value || *end != '\0' || errno != 0 || *value == '-'
               ? complain(EXIT_USAGE, "%s is no seed; see --help", value) : 0;
}

static int take_layout_option(options *o, int option, const char *value)
{
    wnpu_write_options *l = &o->layout;
    switch (option) {
    case OPT_SUBTITLES: o->subtitles = 1; return 0;
    case OPT_LINE_WIDTH: return number(value, 8, 1000, &l->max_line_width);
    case OPT_LINES: return number(value, 1, 16, &l->max_lines);
    case OPT_MAX_CUE: return number(value, 500, 60000, &l->max_cue_ms);
    case OPT_MIN_CUE: return number(value, 0, 10000, &l->min_cue_ms);
    case OPT_GAP: return number(value, 0, 1000, &l->min_gap_ms);
    case OPT_READING: return number(value, 5, 100, &l->reading_speed);
    default: return complain(EXIT_OTHER, "option %d has no meaning", option); /* a mistake here */
    }
}

/* Seconds, M:S or H:M:S, each with a fraction or without. Ends at *end. */
static int duration(const char *text, const char **end, int64_t *ms)
{
    double seconds = 0.0;
    int parts;
    for (parts = 1; parts <= 3; parts++) {
        char *after;
        double part = *text >= '0' && *text <= '9' ? strtod(text, &after) : -1.0;
        if (!(part >= 0.0 && part < 1e9)) {
            return -1;
        }
        seconds = seconds * 60.0 + part;
        text = after;
        if (*text != ':') {
            break;
        }
        text++;
    }
    *end = text;
    *ms = (int64_t)(seconds * 1000.0 + 0.5);
    return parts <= 3 ? 0 : -1;
}

static int take_duration(const char *value, int64_t *ms)
{
    const char *end;
    return duration(value, &end, ms) == 0 && *end == '\0' ? 0
         : complain(EXIT_USAGE, "%s is no time, such as 90, 1:30 or 0:01:30.5; see --help", value);
}

#define TO_THE_END INT64_C(1000000000000) /* ms: no recording is as long */

/* "start,end,start,end,...": the last end may be missing. */
static int take_clips(options *o, const char *value)
{
    const char *at = value;
    size_t n = 0, i, most = strlen(value) / 2 + 1;
    int64_t last = 0;
    free(o->clips);
    o->clips = malloc((most / 2 + 1) * sizeof *o->clips);
    for (i = 0; o->clips != NULL && i <= most; i++) {
        int64_t ms;
        if (duration(at, &at, &ms) != 0 || ms < last || (i % 2 == 1 && ms == last) ||
            (*at != '\0' && *at != ',')) {
            break;
        }
        last = ms;
        n = i / 2;
        o->clips[n].t1_ms = i % 2 == 1 ? ms : TO_THE_END;
        if (i % 2 == 0) {
            o->clips[n].t0_ms = ms;
        }
        if (*at++ == '\0') {
            o->input.clips = o->clips;
            o->input.n_clips = n + 1;
            return 0;
        }
    }
    return complain(EXIT_USAGE, "%s is no list of times that grow, such as 0,1.5,60,1:30; see "
                    "--help", value);
}

/* FORMAT[,RATE[,CHANNELS]] */
static int take_raw(options *o, const char *value)
{
    static const struct {
        const char *name;
        int32_t format;
    } names[] = {
        {"u8", WNPU_SAMPLE_U8}, {"s16le", WNPU_SAMPLE_S16LE}, {"s24le", WNPU_SAMPLE_S24LE},
        {"s32le", WNPU_SAMPLE_S32LE}, {"f32le", WNPU_SAMPLE_F32LE}, {"f64le", WNPU_SAMPLE_F64LE},
        {"alaw", WNPU_SAMPLE_ALAW}, {"mulaw", WNPU_SAMPLE_ULAW}
    };
    size_t i, length = strcspn(value, ",");
    int rate = 16000, channels = 1, end = 0;
    wnpu_audio_init(&o->raw, sizeof o->raw);
    o->input.raw = NULL;
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i].name) == length && strncmp(value, names[i].name, length) == 0) {
            o->raw.format = names[i].format;
            o->input.raw = &o->raw;
        }
    }
    value += length;
    if (*value != '\0' && sscanf(value, ",%6d%n,%3d%n", &rate, &end, &channels, &end) >= 1) {
        value += end;
    }
    if (o->input.raw == NULL || *value != '\0' || rate < 8000 || rate > 192000 || channels < 1 ||
        channels > 256) {
        return complain(EXIT_USAGE, "--raw wants FORMAT[,RATE[,CHANNELS]], such as "
                        "s16le,16000,1; see --help");
    }
    o->raw.rate = (uint32_t)rate;
    o->raw.channels = (uint32_t)channels;
    return 0;
}

static int take_input_option(options *o, int option, const char *value)
{
    int n = 0, failed;
    switch (option) {
    case OPT_TRACK: return number(value, 0, 999, &o->input.track);
    case OPT_OFFSET: return take_duration(value, &o->offset_ms);
    case OPT_DURATION: return take_duration(value, &o->duration_ms);
    case OPT_CLIPS: return take_clips(o, value);
    case OPT_RAW: return take_raw(o, value);
    case OPT_STALL:
        failed = number(value, 0, 86400, &n);
        o->input.stall_ms = (int64_t)n * 1000;
        return failed;
    default: return take_layout_option(o, option, value);
    }
}

/* What of the recording is heard. */
static int settle_input(options *o)
{
    static input_clip one;
    if (o->offset_ms >= 0 || o->duration_ms >= 0) {
        if (o->input.clips != NULL) {
            return complain(EXIT_USAGE, "--clip-timestamps and --offset or --duration say the same "
                            "in two ways; see --help");
        }
        if (o->duration_ms == 0) {
            return complain(EXIT_USAGE, "--duration is 0; see --help");
        }
        one.t0_ms = o->offset_ms > 0 ? o->offset_ms : 0;
        one.t1_ms = o->duration_ms > 0 ? one.t0_ms + o->duration_ms : TO_THE_END;
        o->input.clips = &one;
        o->input.n_clips = 1;
    }
    o->input.end = &stop;
    o->input.whole = o->params.language_windows > 1; /* which hears the beginning twice */
    return 0;
}

/* Options of the search and what it may say. */
static int take_voice_option(options *o, int option, const char *value)
{
    wnpu_params *p = &o->params;
    switch (option) {
    case OPT_VAD:
        p->vad = strcmp(value, "on") == 0;
        return p->vad || strcmp(value, "off") == 0 ? 0 : bad_value("state of --vad", value);
    case OPT_VAD_THRESHOLD: return real(value, 0.05f, 0.95f, &p->vad_threshold);
    case OPT_VAD_SPEECH: return number(value, 0, 5000, &p->vad_min_speech_ms);
    case OPT_VAD_SILENCE: return number(value, 0, 10000, &p->vad_min_silence_ms);
    case OPT_VAD_PAD: return number(value, 0, 2000, &p->vad_pad_ms);
    case OPT_SPANS: o->spans = 1; return 0;
    case OPT_DEVICE: o->device = 1; return 0;
    case OPT_PROGRESS: o->progress = 1; return 0;
    default: return take_input_option(o, option, value);
    }
}

static int take_search_option(options *o, int option, const char *value)
{
    wnpu_params *p = &o->params;
    const float huge = 1e30f;
    switch (option) {
    case OPT_BEAM: return number(value, 1, 16, &p->beam);
    case OPT_PATIENCE: return real(value, 0.1f, 16.0f, &p->patience);
    case OPT_LENGTH_PENALTY: return real(value, -4.0f, 4.0f, &p->length_penalty);
    case OPT_LENGTH_RULE:
        p->length_rule = strcmp(value, "ratio") == 0 ? WNPU_LENGTH_RATIO : WNPU_LENGTH_POWER;
        return strcmp(value, "ratio") == 0 || strcmp(value, "power") == 0
                   ? 0 : bad_value("length rule", value);
    case OPT_TEMPERATURE: return real(value, 0.0f, 2.0f, &p->temperature);
    case OPT_BEST_OF: return number(value, 1, 16, &p->best_of);
    case OPT_SEED: return take_seed(o, value);
    case OPT_STEP: return real(value, 0.05f, 1.0f, &p->temperature_step);
    case OPT_NO_FALLBACK: p->temperature_step = 0.0f; return 0;
    case OPT_COMPRESSION: return threshold(value, 0.0f, huge, 0.0f, &p->compression_threshold);
    case OPT_LOGPROB: return threshold(value, -huge, 0.0f, -INFINITY, &p->logprob_threshold);
    case OPT_FIRST_TOKEN:
        return threshold(value, -huge, 0.0f, 0.0f, &p->first_logprob_threshold);
    case OPT_NO_SPEECH: return threshold(value, 0.0f, huge, huge, &p->no_speech_threshold);
    case OPT_NO_LOOP_CHECK: p->stop_loops = 0; return 0;
    case OPT_REPETITION: return real(value, 0.5f, 4.0f, &p->repetition_penalty);
    case OPT_NO_REPEAT: return number(value, 0, 64, &p->no_repeat_ngram);
    case OPT_CARRY: p->carry_initial_prompt = 1; return 0;
    case OPT_PREFIX: p->prefix = value; return 0;
    case OPT_HOTWORDS:
        return value[0] == '@' ? read_list(&o->hotwords, value + 1)
                               : split(&o->hotwords, strdup(value), ",\n");
    case OPT_BOOST: return real(value, 0.0f, 20.0f, &p->hotword_boost);
    case OPT_COMMANDS: return read_list(&o->commands, value);
    case OPT_LANGUAGES: return take_languages(o, value);
    case OPT_LANGUAGE_MODE: return take_language_mode(o, value);
    default: return take_voice_option(o, option, value);
    }
}

static int take_formats(options *o, const char *value)
{
    list l = {NULL, NULL, 0, 0};
    size_t i;
    int k, failed = split(&l, strdup(value), ",");
    o->n_formats = 0;
    for (i = 0; i < l.n && failed == 0; i++) {
        int format = wnpu_format_from_name(l.items[i]);
        for (k = 0; k < o->n_formats && o->formats[k] != format; k++) {
        }
        if (format < 0) {
            failed = bad_value("format", l.items[i]);
        } else if (k == o->n_formats) { /* there are fewer than MAX_OUTPUTS */
            o->formats[o->n_formats++] = format;
        }
    }
    free(l.text);
    free(l.items);
    return failed != 0 || o->n_formats > 0 ? failed : bad_value("format", value);
}

static int take_output(options *o, const char *value)
{
    if (value[0] == '\0') {
        return complain(EXIT_USAGE, "--output has no name; see --help");
    }
    if (o->n_outputs == MAX_OUTPUTS) {
        return complain(EXIT_USAGE, "more than %d times --output; see --help", MAX_OUTPUTS);
    }
    o->outputs[o->n_outputs++] = value;
    return 0;
}

static int self_test(void)
{
    wnpu_error error = {0, ""};
    int isa, status = wnpu_self_test(NULL, &error);
    if (status != WNPU_OK) {
        return complain(EXIT_OTHER, "%s", error.message);
    }
    fputs("self test passed:", stdout);
    for (isa = WNPU_ISA_SCALAR; wnpu_isa_name((wnpu_isa)isa) != NULL; isa++) {
        if (wnpu_isa_available((wnpu_isa)isa) && isa != WNPU_ISA_AMX) { /* nobody asked for it */
            printf(" %s", wnpu_isa_name((wnpu_isa)isa));
        }
    }
    putchar('\n');
    return 0;
}

/* Options that print something and end the program. */
static int tell(int option)
{
    int i;
    if (option == 'T') {
        int code = self_test();
        if (code != 0) {
            return code;
        }
    } else if (option == 'h') {
        fputs(help_hear, stdout);
        fputs(help_search, stdout);
        fputs(help_write, stdout);
        fputs(help_work, stdout);
    } else if (option == 'V') {
        unsigned v = (unsigned)wnpu_version();
        printf("transcribe (whisper_npu) %u.%u.%u\n", v / 10000, v / 100 % 100, v % 100);
    } else {
        for (i = 0; i < wnpu_language_count(); i++) {
            printf("%s\t%s\n", wnpu_language_code(i), wnpu_language_name(i));
        }
    }
    return fflush(stdout) == 0 && !ferror(stdout)
               ? 0 : complain(EXIT_OUTPUT, "standard output: %s", strerror(errno));
}

/* Takes one option; option is its short form. */
static int take_option(options *o, int option, const char *value)
{
    int n = 0, failed = 0;
    switch (option) {
    case 'm': o->model = value; break;
    case 'o': return take_output(o, value);
    case 'P': o->params.initial_prompt = value; break;
    case 'E': o->params.task = WNPU_TRANSLATE; break;
    case 'C': o->params.condition_on_previous = 1; break;
    case 'N': o->params.timestamps = 0; break;
    case 'W': o->params.words = 1; break;
    case 'S': o->params.suppress_non_speech = 0; break;
    case 'q': o->quiet = 1; break;
    case 'v': o->verbose = 1; break;
    case 'U': o->npu = value; break;
    case 'A': o->config.accel_use = WNPU_ACCEL_ALL; break;
    case 'R': o->config.require_accel = 1; break;
    case 'M': return number(value, 1, 224, &o->params.max_tokens);
    case 'H':
        o->input.channel = WNPU_CHANNEL_MIX;
        return strcmp(value, "mix") == 0 ? 0 : number(value, 0, 255, &o->input.channel);
    case 't':
        failed = number(value, 1, 64, &n);
        o->config.threads = (uint32_t)n;
        return failed;
    case OPT_BATCH:
        failed = number(value, 1, 8, &n);
        o->config.batch = (uint32_t)n;
        return failed;
    case 'l':
        o->params.language = strcmp(value, "auto") == 0 ? WNPU_LANGUAGE_AUTO
                                                        : wnpu_language_id(value);
        failed = o->params.language < 0 && strcmp(value, "auto") != 0;
        return failed ? bad_value("language (--list-languages shows all)", value) : 0;
    case 'f': return take_formats(o, value);
    case 'I':
        o->config.isa = wnpu_isa_from_name(value);
        return o->config.isa < 0 ? bad_value("instruction set", value) : 0;
    case 'F':
        o->config.compute = strcmp(value, "float") == 0 ? WNPU_COMPUTE_FLOAT : WNPU_COMPUTE_INT8;
        failed = strcmp(value, "float") != 0 && strcmp(value, "int8") != 0;
        return failed ? bad_value("way to compute", value) : 0;
    default: return take_search_option(o, option, value);
    }
    return 0;
}

/* ---- where results go ---- */

static const char *name_of(const char *path)
{
    return strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
}

/* What follows the last dot of a file's name, or NULL if there is none. */
static const char *ending_of(const char *path)
{
    const char *name = name_of(path), *dot = strrchr(name, '.');
    return dot != NULL && dot != name ? dot + 1 : NULL;
}

/* How many results each input has: one for each format. */
static int n_targets(const options *o)
{
    return o->n_formats;
}

static int is_standard(const options *o, int target)
{
    return strcmp(o->outputs[o->n_outputs > 1 ? target : 0], "-") == 0;
}

/* Where result number target of one input goes: 0 and path filled in, or -1 when that is too long.
 * In a directory it has the name of the input with another ending. */
static int target_path(const options *o, const char *from, int target, char path[PATH_SIZE])
{
    const char *to = o->outputs[o->n_outputs > 1 ? target : 0], *ending = ending_of(from);
    const char *format = wnpu_format_name(o->formats[target]);
    size_t length = strlen(to);
    int took;
    if (o->output_is_dir) {
        const char *base = strcmp(from, "-") == 0 ? "stdin" : name_of(from);
        int n = (int)(ending != NULL ? (size_t)(ending - 1 - base) : strlen(base));
        took = snprintf(path, PATH_SIZE, "%s%s%.*s.%s", to, to[length - 1] == '/' ? "" : "/", n,
                        base, format);
    } else if (o->n_outputs == 1 && o->n_formats > 1) {
        ending = ending_of(to);
        if (ending != NULL && wnpu_format_from_name(ending) >= 0) {
            length = (size_t)(ending - 1 - to);
        }
        took = snprintf(path, PATH_SIZE, "%.*s.%s", (int)length, to, format);
    } else {
        took = snprintf(path, PATH_SIZE, "%s", to);
    }
    return took > 0 && (size_t)took < PATH_SIZE ? 0 : -1;
}

/* Several inputs write to standard output: text under their names, or one JSON array. */
static int is_shared(const options *o)
{
    return o->n_files > 1 && is_standard(o, 0);
}

static int is_array(const options *o)
{
    return is_shared(o) && o->formats[0] == WNPU_FORMAT_JSON && !o->spans;
}

/* The format of a file by its ending, or -1 after a complaint. */
static int format_of(const char *path)
{
    const char *ending = ending_of(path);
    int format = ending != NULL && strcmp(path, "-") != 0 ? wnpu_format_from_name(ending)
                                                          : WNPU_FORMAT_TXT;
    if (format < 0) {
        (void)complain(EXIT_USAGE, "%s: no format has the ending .%s; give --format, see --help",
                       path, ending);
    }
    return format;
}

/* Finds the format of each output. */
static int settle_formats(options *o)
{
    int i, given = o->n_formats;
    if (o->n_outputs == 0) {
        o->outputs[o->n_outputs++] = "-";
    }
    if (o->n_outputs == 1) {
        const char *to = o->outputs[0];
        o->output_is_dir = strcmp(to, "-") != 0 &&
                           (o->n_files > 1 || to[strlen(to) - 1] == '/' || is_dir(to));
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
        return complain(EXIT_USAGE, "several --output options are for one FILE, and their endings "
                        "tell the formats; see --help");
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

/* The layout of subtitles: the preset, and what was given beside it. */
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
    if (l->max_cue_ms > 0 && l->max_cue_ms < l->min_cue_ms) {
        l->min_cue_ms = l->max_cue_ms; /* the preset's */
    }
    l->min_cue_ms = given.min_cue_ms >= 0 ? given.min_cue_ms : l->min_cue_ms;
    if (l->max_lines > 0 && l->max_line_width == 0) {
        return complain(EXIT_USAGE, "--max-lines wants --max-line-width; see --help");
    }
    if (l->max_cue_ms > 0 && l->min_cue_ms > l->max_cue_ms) {
        return complain(EXIT_USAGE, "--min-cue-ms is more than --max-cue-ms; see --help");
    }
    for (i = 0; i < n_targets(o); i++) {
        int f = o->formats[i];
        if ((f == WNPU_FORMAT_SRT || f == WNPU_FORMAT_VTT || f == WNPU_FORMAT_ASS ||
             f == WNPU_FORMAT_LRC) && (l->max_line_width > 0 || l->max_cue_ms > 0 ||
                                       l->min_cue_ms > 0 || l->min_gap_ms > 0 ||
                                       l->reading_speed > 0)) {
            o->params.words = 1; /* cues need the times of words */
        }
    }
    return 0;
}

/* Finds out what cannot be written, before anything runs. */
static int check_outputs(const options *o)
{
    char path[PATH_SIZE], why[256];
    int i, target, code = 0;
    output_protect(o->model, o->model != NULL ? o->model : "");
    for (i = 0; i < o->n_files; i++) {
        output_protect(o->files[i], o->files[i]);
    }
    for (i = 0; i < o->n_files && code == 0; i++) {
        for (target = 0; target < n_targets(o) && code == 0; target++) {
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

/* Room for what the search was told. */
static void settle_search(options *o)
{
    const wnpu_params *p = &o->params;
    int widest = p->beam > p->best_of ? p->beam : p->best_of;
    size_t tokens = 8 * (o->hotwords.bytes + o->commands.bytes); /* eight spellings of each */
    o->config.max_beams = widest > 5 ? (uint32_t)widest : 5;
    if (tokens > o->config.max_phrase_tokens) {
        o->config.max_phrase_tokens = tokens < 1048576 ? (uint32_t)tokens : 1048576;
    }
    o->params.hotwords = o->hotwords.items;
    o->params.n_hotwords = o->hotwords.n;
}

/* What the options mean together. */
static int settle(options *o)
{
    int code;
    settle_search(o);
    if (settle_input(o) != 0) {
        return EXIT_USAGE;
    }
    if (o->n_files == 0) {
        return complain(EXIT_USAGE, "no recording given; see --help");
    }
    if (o->npu == NULL && (o->config.require_accel || o->config.accel_use != 0)) {
        return complain(EXIT_USAGE, "--npu-all and --require-npu want --npu PACK; see --help");
    }
    code = settle_formats(o);
    if (code == 0) {
        code = settle_layout(o);
    }
    if (code != 0) {
        return code;
    }
    if (is_shared(o) && o->formats[0] != WNPU_FORMAT_TXT && !is_array(o)) {
        return complain(EXIT_USAGE, "several %s files cannot share standard output; "
                        "add --output DIRECTORY", wnpu_format_name(o->formats[0]));
    }
    if (o->output_is_dir && mkdir(o->outputs[0], 0777) != 0 && !is_dir(o->outputs[0])) {
        return complain(EXIT_OUTPUT, "%s: %s", o->outputs[0],
                        strerror(errno == EEXIST ? ENOTDIR : errno));
    }
    return check_outputs(o);
}

/* ---- the model ---- */

#define ENGLISH_ONLY "ggml-base.en.bin"
#define MULTILINGUAL "ggml-tiny.bin"

/* A model that is open. */
typedef struct engine {
    char path[PATH_SIZE];     /* "" if there is none */
    wnpu_model *model;
    wnpu_session *session;
} engine;

/* Recordings in English have the English-only model if both are there and the language is to be
 * found out; all others have the first one. */
typedef struct engines {
    engine first, english;
} engines;

/* Whether a model of that name is in the cache; its path. */
static int in_cache(const char *name, char path[PATH_SIZE])
{
    const char *cache = getenv("WHISPER_NPU_CACHE"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
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

/* Whether English is among the languages that come into question. */
static int may_be_english(const options *o)
{
    size_t i, n = o->params.n_languages;
    for (i = 0; i < n && o->languages[i] != 0; i++) {
    }
    return o->params.language <= 0 && o->params.task == WNPU_TRANSCRIBE && (n == 0 || i < n);
}

/* Whether the language is to be found out, of the recording as a whole and before it is decoded. */
static int asks_language(const options *o)
{
    return o->params.language == WNPU_LANGUAGE_AUTO && o->params.n_languages != 1 && !o->spans;
}

/* Which models are to be used. */
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
                           "and there is no " MULTILINGUAL "; scripts/fetch.sh tiny fetches it");
        }
        return 0;
    }
    return multilingual ? 0 : complain(EXIT_MODEL, "no --model given and none in the cache that "
                                       "fits; scripts/fetch.sh tiny fetches one");
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
        fprintf(stderr, ": %s, %s, %.0f MB in memory, %.0f MB shared\n", info.name,
                info.weight_type, (double)info.bytes / 1e6, (double)info.shared_bytes / 1e6);
    }
    return status;
}

/* The library does not ask the system for AMX on behalf of its hosts, whose signal frames would
 * grow. This process is our own; without it, or where it is refused, the best of the others. */
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

/* The pool's threads are started with the signals blocked: a signal then always interrupts this
 * thread, and with it a read() that waits for input. */
static int open_session(const options *o, const wnpu_model *model, wnpu_session **session)
{
    wnpu_error error = {0, ""};
    sigset_t ours, before;
    int status;
    sigemptyset(&ours);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &ours, &before);
    status = open_fastest(o, model, session, &error);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
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

/* Least probability of a language that is certain. Of 110 English clips tiny gives 106 at least
 * that much, and of 27 others none to English; of the 4 of them that it takes for another language 3
 * are below, and 5 of the 23 that it names right. */
#define CERTAIN 0.8f

/* The most probable of the languages in question. */
static int likeliest(const options *o, const float *probabilities)
{
    int best = o->params.n_languages > 0 ? o->languages[0] : 0, i;
    int n = o->params.n_languages > 0 ? (int)o->params.n_languages : wnpu_language_count();
    for (i = 0; i < n; i++) {
        int language = o->params.n_languages > 0 ? o->languages[i] : i;
        best = probabilities[language] > probabilities[best] ? language : best;
    }
    return best;
}

/* The engine for a recording, whose beginning is heard for that. */
static engine *choose_engine(const options *o, engines *e, const char *name,
                             const wnpu_audio *audio)
{
    float p[100] = {0};
    engine *chosen = &e->first;
    int language;
    if (wnpu_detect_language(e->first.session, audio, p, sizeof p / sizeof p[0]) < 0) {
        return chosen; /* the run will fail in the same way, and say so */
    }
    language = likeliest(o, p);
    if (language == 0 && p[0] >= CERTAIN) {
        chosen = e->english.session != NULL || open_engine(o, &e->english) == 0 ? &e->english
                                                                                : chosen;
    }
    if (!o->quiet) {
        (void)complain(0, "%s: the language is %s (probability %.2f); model %s", name,
                       wnpu_language_name(language), (double)p[language],
                       strrchr(chosen->path, '/') + 1);
    }
    return chosen;
}

/* After a run: says so if it is not certain which language was spoken. */
static void tell_doubt(const options *o, const char *name, const wnpu_session *session)
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

static void tell_speed(const options *o, const char *name, const wnpu_session *session)
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
        const char *isa = wnpu_isa_name((wnpu_isa)s.isa);
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
        npu_tell(session);
    }
}

/* What the exit status says about the end of a run. */
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

/* What one output is filled with. */
typedef struct content {
    const options *o;
    const wnpu_session *session;
    const wnpu_choice *choice; /* NULL: no list of phrases */
    int index, format;        /* of the input; wnpu_format */
    int shared;               /* several inputs share standard output */
    int first;                /* this is the first one there */
    const wnpu_write_cursor *written; /* what went there during the run, or NULL; the first time that
                                 the output is filled, only the rest is written */
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

/* Text on one line: controls become spaces. */
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

/* The phrase that was said, how sure that is, and the one after it. */
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

/* A JSON string; what is not UTF-8 or no text becomes "?". */
static int put_json_string(wnpu_write_fn write, void *sink, const char *text)
{
    const unsigned char *t = (const unsigned char *)text;
    int status = put(write, sink, "\"");
    while (*t != '\0' && status == WNPU_OK) {
        char part[8];
        size_t i, n = *t < 0x80 ? 1 : *t >= 0xc2 && *t < 0xe0 ? 2 : *t >= 0xe0 && *t < 0xf0 ? 3
                    : *t >= 0xf0 && *t < 0xf5 ? 4 : 0;
        for (i = 1; i < n && (t[i] & 0xc0) == 0x80; i++) {
        }
        if (n == 0 || i < n || *t < 32 || *t == 127 || (*t == 0xe0 && t[1] < 0xa0) ||
            (*t == 0xed && t[1] > 0x9f) || (*t == 0xf0 && t[1] < 0x90) ||
            (*t == 0xf4 && t[1] > 0x8f)) {
            n = 1;
            (void)snprintf(part, sizeof part, "?");
        } else {
            (void)snprintf(part, sizeof part, "%s%.*s", *t == '"' || *t == '\\' ? "\\" : "", (int)n,
                           (const char *)t);
        }
        status = put(write, sink, part);
        t += n;
    }
    return status == WNPU_OK ? put(write, sink, "\"") : status;
}

/* What stands before the results of one of several inputs. */
static int put_name(const content *c, wnpu_write_fn write, void *sink)
{
    const char *name = c->o->files[c->index];
    int status = WNPU_OK;
    if (is_array(c->o)) {
        status = put(write, sink, c->first ? "[{\"file\": " : ",\n{\"file\": ");
        status = status == WNPU_OK ? put_json_string(write, sink, name) : status;
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
    layout.format = c->o->device && c->format == WNPU_FORMAT_JSON ? WNPU_FORMAT_JSON_DEVICE
                                                                  : c->format;
    if (status == WNPU_OK) {
        status = c->o->spans ? put_spans(c->session, write, sink)
               : c->choice != NULL && c->format == WNPU_FORMAT_TXT ? put_choice(c, write, sink)
               : wnpu_write_with(c->session, &layout, rest ? &cursor : NULL, write, sink);
    }
    return is_array(c->o) && status == WNPU_OK ? put(write, sink, "}") : status;
}

/* The outputs of one input. */
typedef struct outputs {
    output of[MAX_OUTPUTS];
    wnpu_write_cursor cursors[MAX_OUTPUTS]; /* of what was written during the run; struct_size 0:
                                 nothing was */
    int n;
    int written;              /* results on standard output so far */
} outputs;

static void close_outputs(outputs *out)
{
    while (out->n > 0) {
        output_close(&out->of[--out->n]);
    }
}

/* Before the run: what became unwritable since check_outputs() shows at once. */
static int open_outputs(const options *o, const char *from, outputs *out)
{
    char path[PATH_SIZE];
    for (out->n = 0; out->n < n_targets(o); out->n++) {
        int standard = is_standard(o, out->n);
        if (!standard && target_path(o, from, out->n, path) != 0) {
            return EXIT_OUTPUT; /* cannot be: check_outputs() was content */
        }
        if (output_open(&out->of[out->n], standard ? NULL : path) != 0) {
            return complain(EXIT_OUTPUT, "%s: %s", standard ? "standard output" : path,
                            out->of[out->n].why);
        }
    }
    return 0;
}

/* Writes the results of one input to all its outputs. choice may be NULL. */
static int write_results(const options *o, const wnpu_session *session, int index,
                         const wnpu_choice *choice, outputs *out)
{
    content c = {o, session, choice, index, 0, is_shared(o), out->written == 0, NULL};
    int target, code = 0;
    for (target = 0; target < out->n; target++) {
        output *one = &out->of[target];
        int saved;
        c.format = o->formats[target];
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

static const char *input_name(const options *o, int index)
{
    return strcmp(o->files[index], "-") == 0 ? "standard input" : o->files[index];
}

/* A run whose text is written as it comes. */
typedef struct live {
    const options *o;
    wnpu_session *session;
    outputs *out;
    int index;
    int text_on_terminal;     /* where the progress is, too */
    int failed;               /* after the run it is tried again, and perhaps elsewhere */
    progress shown;
} live;

static int64_t write_fd(void *user, const void *data, size_t size)
{
    ssize_t n;
    do {
        n = write(*(const int *)user, data, size);
    } while (n < 0 && errno == EINTR);
    return n;
}

/* What is final goes to standard output, FIFOs and devices at once. */
static int on_segment(void *user, const wnpu_segment *segment)
{
    live *l = user;
    content c = {l->o, l->session, NULL, l->index, 0, is_shared(l->o), l->out->written == 0, NULL};
    wnpu_write_options layout = l->o->layout;
    int target;
    (void)segment;
    for (target = 0; target < l->out->n && !l->failed; target++) {
        output *one = &l->out->of[target];
        wnpu_write_cursor *cursor = &l->out->cursors[target];
        int fd = one->kind == OUTPUT_STDOUT ? STDOUT_FILENO
               : one->kind == OUTPUT_STREAM ? one->fd : -1;
        layout.format = l->o->formats[target];
        if (fd < 0 || layout.format == WNPU_FORMAT_JSON) {
            continue;
        }
        if (l->text_on_terminal) {
            clear_progress(&l->shown);
        }
        if (cursor->struct_size == 0) {
            l->failed = put_name(&c, write_fd, &fd) != WNPU_OK;
            cursor->struct_size = l->failed ? 0 : sizeof *cursor;
        }
        l->failed = l->failed ||
                    wnpu_write_with(l->session, &layout, cursor, write_fd, &fd) != WNPU_OK;
    }
    return 0;
}

static int on_progress(void *user, int64_t done_ms, int64_t total_ms)
{
    live *l = user;
    show_progress(&l->shown, done_ms, total_ms);
    return stop && !finishes;
}

/* The run itself: out is open. */
static int run(const options *o, wnpu_session *session, int index, const wnpu_audio *audio,
               outputs *out)
{
    const char *name = input_name(o, index);
    live l = {o, session, out, index, o->terminal && isatty(STDOUT_FILENO), 0,
              {name, -1, o->progress || (o->terminal && !o->quiet), o->terminal}};
    wnpu_params params = o->params;
    wnpu_choice choice;
    int status, code, written = 0, chosen = o->commands.n > 0;
    params.on_progress = on_progress;
    params.on_segment = chosen ? NULL : on_segment;
    params.user = &l;
    memset(out->cursors, 0, sizeof out->cursors);
    memset(&choice, 0, sizeof choice);
    choice.struct_size = sizeof choice;
    status = chosen ? wnpu_choose(session, &params, audio, o->commands.items, o->commands.n,
                                  &choice)
           : o->spans ? wnpu_detect_speech(session, &params, audio)
                    : wnpu_transcribe(session, &params, audio);
    chosen = chosen && status == WNPU_OK;
    code = code_of(status);
    clear_progress(&l.shown);
    if (status != WNPU_OK) {
        const char *why = wnpu_session_error(session);
        complain(code, "%s: %s", name, why[0] != '\0' ? why : wnpu_strerror(status));
    }
    if (status >= 0 || status == WNPU_E_CANCELLED || wnpu_segment_count(session) > 0) {
        written = write_results(o, session, index, chosen ? &choice : NULL, out);
    }
    tell_doubt(o, name, session);
    tell_speed(o, name, session);
    return code != 0 ? code : written;
}

/* What the input was like, now that it has been read: code, or that sound is missing. */
static int tell_input(const options *o, input *in, const char *from, int code)
{
    input_state state = input_finish(in);
    if (state == INPUT_CUT || (state == INPUT_ODD && !o->quiet)) {
        complain(0, "%s: %s", from, in->why);
    }
    return state == INPUT_CUT && code == 0 ? EXIT_OTHER : code;
}

/* The input is open. */
static int hear(const options *o, engines *e, int index, const input *in, outputs *out)
{
    wnpu_audio audio = in->audio;
    engine *chosen = &e->first;
    replay heard;
    int code;
    finishes = !in->seekable;
    replay_begin(&heard, &audio);
    atomic_store(&running, e->first.session);
    if (e->english.path[0] != '\0') {
        chosen = choose_engine(o, e, input_name(o, index), &audio);
    }
    replay_again(&heard);
    atomic_store(&running, chosen->session);
    code = stop && !finishes ? EXIT_CANCELLED : run(o, chosen->session, index, &audio, out);
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
    int code = open_outputs(o, from, out); /* first: a pipe can be heard only once */
    if (code == 0) {
        if (input_open(&in, from, &o->input) != 0) {
            code = stop ? EXIT_CANCELLED : complain(EXIT_INPUT, "%s: %s", from, in.why);
        } else {
            code = hear(o, e, index, &in, out);
            code = tell_input(o, &in, from, code);
        }
        input_close(&in);
    }
    close_outputs(out);
    return code;
}

/* An NPU that does not open is a reason to stop only if it is required. */
static int open_npu(options *o)
{
    int status = o->npu != NULL ? npu_open(&o->config.accel, o->npu, on_log, o) : WNPU_OK;
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
    code = code == 0 ? open_npu(o) : code;
    code = code == 0 ? open_session(o, e.first.model, &e.first.session) : code;
    for (i = 0; e.first.session != NULL && i < o->n_files && !stop; i++) {
        int one = transcribe(o, &e, i, &out);
        code = one == EXIT_CANCELLED || code == 0 ? one : code;
        if (one == EXIT_USAGE) {
            break; /* the others would fail in the same way */
        }
    }
    if (e.first.session != NULL && is_array(o) &&
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

/* A descriptor 0 to 2 that is closed would go to the next file that is opened, and messages or text
 * into it. They are opened in a way that reading or writing fails. */
static void open_standard(void)
{
    int fd;
    for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF) {
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
}

/* A signal that is ignored, as by nohup, stays so. */
static void catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action, before;
    size_t i;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    for (i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            sigaction(numbers[i], &action, NULL);
        }
    }
}

int main(int argc, char **argv)
{
    options o;
    struct sigaction action;
    int option, code;

    open_standard();
    opterr = 0; /* its messages would write options as they are */
    memset(&o, 0, sizeof o);
    memset(&o.layout, -1, sizeof o.layout); /* nothing was given */
    o.input.channel = WNPU_CHANNEL_MIX;
    o.input.track = -1;
    o.input.stall_ms = 30000;
    o.offset_ms = o.duration_ms = -1;
    o.terminal = isatty(STDERR_FILENO);
    wnpu_config_init(&o.config, sizeof o.config);
    wnpu_params_init(&o.params, sizeof o.params);
    while ((option = getopt_long(argc, argv, "m:l:f:o:t:qvh", long_options, NULL)) != -1) {
        if (option < 128 && strchr("hVLT", option) != NULL) { /* longer codes have no letter */
            return tell(option);
        }
        code = option == '?' ? complain(EXIT_USAGE, "%s: no such option, or a value is missing; "
                                        "see --help", argv[optind - 1])
                             : take_option(&o, option, optarg);
        if (code != 0) {
            return code;
        }
    }
    o.files = argv + optind;
    o.n_files = argc - optind;
    o.config.log = on_log;
    o.config.log_user = &o;
    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_IGN; /* an output that fails is no reason to lose the others */
    sigemptyset(&action.sa_mask);
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL);
    code = settle(&o);
    if (code != 0) {
        return code;
    }
    catch_signals();
    code = transcribe_all(&o);
    free(o.hotwords.text);
    free(o.hotwords.items);
    free(o.commands.text);
    free(o.commands.items);
    free(o.clips);
    return code;
}
