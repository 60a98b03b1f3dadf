/*
 * help.c - see help.h.
 */
#define _XOPEN_SOURCE 700

#include "help.h"
#include "options.h"
#include "../kit/args.h"
#include "../kit/platform.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
"Usage: " PROGRAM("transcribe") " [options] FILE...\n"
"\n"
"Transcribes each FILE: a WAV file, anything else that ffmpeg can read (if installed), or\n"
"- for standard input. Pipes and FIFOs are read while they are being written.\n";

/* Divided, because C99 compilers need not accept longer strings. */
static const char outputs[] =
"\n"
"Outputs are checked before anything runs: they must not be files that are read, and those\n"
"that cannot be written are an error. Files appear whole; mode, owner, links and hard links\n"
"are kept. If writing fails after all, the text is written beside the output, in $TMPDIR or\n"
"to standard output, and the exit status is 8.\n"
"\n"
"Exit status\n"
"  0  everything was transcribed\n"
"  1  an option is wrong, or does not fit the model or this CPU\n"
"  2  the model cannot be opened\n"
"  3  a FILE cannot be read; the others are done\n"
"  4  ended early by SIGINT (Ctrl-C), SIGTERM or SIGHUP; the text up to there is written\n"
"     to every output. A signal half a second later or more ends the program at once\n"
"  5  an output cannot be written; this is found out before anything runs, except for\n"
"     outputs that nobody reads any more\n"
"  6  any other error, such as out of memory, an incomplete result, or a FILE that is\n"
"     damaged or cut short, of which everything that is there is written\n"
"  7  --require-npu, and the NPU could not do its part; the text up to there is written\n"
"  8  an output could not be written, and its text is somewhere else: a line on standard\n"
"     error says where\n"
"With several failures the status is that of the first, but 4 before all. Each has a\n"
"line on standard error.\n";

static const char examples[] =
"\n"
"Examples\n"
"  transcribe talk.wav                          the text on standard output\n"
"  transcribe --subtitles -o talk.srt film.mp4  subtitles, by way of ffmpeg\n"
"  transcribe -f txt,srt,json -o talk talk.wav  talk.txt, talk.srt and talk.json\n"
"  transcribe -f json -o out/ *.wav             out/NAME.json for each\n"
"  arecord -q -f S16_LE -r 16000 -d 10 | transcribe -\n"
"  arecord -q -t raw -f S16_LE -r 16000 | transcribe --raw s16le,16000 -\n";

/* Headings of groups of options in this order; other groups follow under their own names. */
static const struct {
    const char *group, *heading;
} headings[] = {
    {"basic", "Basic options"},
    {"input", "Input"},
    {"output", "Output"},
    {"subtitles", "Subtitles"},
    {"language", "Language detection"},
    {"voice", "Voice activity detection"},
    {"prompts", "Prompts and phrases"},
    {"style", "Style of the text"},
    {"search", "Search"},
    {"gates", "Gates: when a window is decoded again"},
    {"run", "Threads, instruction sets and NPU"},
    {"messages", "Messages and information"}
};
#define HEADINGS (sizeof headings / sizeof headings[0])

static size_t rank_of(const char *group)
{
    size_t i;
    for (i = 0; i < HEADINGS && strcmp(headings[i].group, group) != 0; i++) {
    }
    return i;
}

/* The exit status after printing. */
static int printed(void)
{
    int failed = fflush(stdout) != 0 || ferror(stdout) ? platform_write_error() : 0;
    return failed == 0 ? 0
         : failed == EPIPE ? EXIT_OUTPUT /* its reader, such as head, has seen enough */
                           : complain(EXIT_OUTPUT, "standard output: %s", strerror(failed));
}

/* Calls print for each option in one of these groups, in the order of groups and rows. */
static void for_each_option(void (*print)(const option_info *info, const char *heading))
{
    option_info info, other;
    size_t rank, i, k;
    for (rank = 0; rank < HEADINGS; rank++) {
        for (i = 0; options_info(i, &info) == 0; i++) {
            if (rank_of(info.group) == rank) {
                print(&info, headings[rank].heading);
            }
        }
    }
    for (i = 0; options_info(i, &info) == 0; i++) {
        for (k = 0; rank_of(info.group) == HEADINGS && options_info(k, &other) == 0; k++) {
            if (strcmp(other.group, info.group) != 0) {
                continue;
            }
            if (k < i) {
                break; /* was printed with that row */
            }
            print(&other, other.group);
        }
    }
}

/* Whether the option disables its run parameter: the meaning then describes what it prevents. */
static int switches_off(const option_info *info)
{
    return info->row == NULL && info->argument == NULL && info->name != NULL &&
           strncmp(info->name, "no-", 3) == 0;
}

/* ---- --help ---- */

/* The formats that options of subtitles are for, in parentheses. */
static void print_subtitle_formats(void)
{
    wnpu_format_info info = {.struct_size = sizeof info};
    const char *before = " (";
    int i;
    for (i = 0; wnpu_get_format(i, &info) == WNPU_OK; i++) {
        if (info.has_layout) {
            printf("%s%s", before, info.name);
            before = ", ";
        }
    }
    putchar(')');
}

static void print_heading(const char *heading, const char *group)
{
    printf("\n%s", heading);
    if (strcmp(group, "subtitles") == 0) {
        print_subtitle_formats();
    }
    putchar('\n');
}

/* An option's meaning, and in parentheses its range and default. */
static void print_help(const option_info *info, const char *heading)
{
    static const char *shown; /* the previous option's heading */
    const char *range = info->argument != NULL ? info->range : "";
    const char *fallback = info->argument != NULL ? info->fallback : "";
    char option[96], text[1024];
    if (info->name == NULL) {
        return;
    }
    if (shown == NULL || strcmp(shown, heading) != 0) {
        print_heading(heading, info->group);
        shown = heading;
    }
    snprintf(option, sizeof option, "  %c%c%c --%s%s%s", info->letter != 0 ? '-' : ' ',
             info->letter != 0 ? info->letter : ' ', info->letter != 0 ? ',' : ' ', info->name,
             info->argument != NULL ? " " : "", info->argument != NULL ? info->argument : "");
    snprintf(text, sizeof text, "%s%s%s%s%s%s%s%s", switches_off(info) ? "disable: " : "",
             info->meaning, range[0] != '\0' || fallback[0] != '\0' ? " (" : "", range,
             range[0] != '\0' && fallback[0] != '\0' ? "; " : "",
             fallback[0] != '\0' ? "default: " : "", fallback,
             range[0] != '\0' || fallback[0] != '\0' ? ")" : "");
    fputs(option, stdout);
    args_wrap(text, strlen(option));
}

int help_print(void)
{
    fputs(usage, stdout);
    for_each_option(print_help);
    fputs(outputs, stdout);
    fputs(examples, stdout);
    return printed();
}

/* ---- --list-options ---- */

/* Prints a cell of a Markdown table, with | escaped. */
static void print_cell(const char *text)
{
    for (; *text != '\0'; text++) {
        printf(*text == '|' ? "\\%c" : "%c", *text);
    }
}

static void print_row(const option_info *info, const char *heading)
{
    (void)heading;
    putchar('|');
    if (info->letter != 0) {
        printf(" `-%c`,", info->letter);
    }
    if (info->name != NULL) {
        printf(" `--%s%s", info->name, info->argument != NULL ? " " : "");
        print_cell(info->argument != NULL ? info->argument : "");
        putchar('`');
    }
    printf(info->param.name != NULL ? " | `%s` | " : " | %s| ",
           info->param.name != NULL ? info->param.name : "");
    print_cell(info->fallback);
    fputs(info->fallback[0] != '\0' ? " | " : "| ", stdout);
    print_cell(info->range);
    fputs(info->range[0] != '\0' ? " | " : "| ", stdout);
    fputs(switches_off(info) ? "disable: " : "", stdout);
    print_cell(info->meaning);
    fputs(" |\n", stdout);
}

int help_list_options(void)
{
    fputs("| option | parameter | default | range | meaning |\n"
          "| --- | --- | --- | --- | --- |\n", stdout);
    for_each_option(print_row);
    return printed();
}

/* ---- others ---- */

int help_list_languages(void)
{
    int i;
    for (i = 0; i < wnpu_language_count(); i++) {
        printf("%s\t%s\n", wnpu_language_code(i), wnpu_language_name(i));
    }
    return printed();
}

int help_version(void)
{
    unsigned v = (unsigned)wnpu_version();
    printf("transcribe (whisper_npu) %u.%u.%u\n", v / 10000, v / 100 % 100, v % 100);
    return printed();
}

int help_self_test(void)
{
    wnpu_error error = {0, ""};
    int isa, status = wnpu_self_test(NULL, &error);
    if (status != WNPU_OK) {
        return complain(EXIT_OTHER, "%s", error.message);
    }
    fputs("self test passed:", stdout);
    for (isa = WNPU_ISA_SCALAR; wnpu_isa_name(isa) != NULL; isa++) {
        if (wnpu_isa_available(isa) && isa != WNPU_ISA_AMX) { /* used only on request */
            printf(" %s", wnpu_isa_name(isa));
        }
    }
    putchar('\n');
    return printed();
}
