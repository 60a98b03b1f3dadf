/*
 * options.h - the command line of transcribe. Each option is one row: options of the program in the
 * table in options.c, run parameters in the library's table, read with wnpu_param_info(). Parsing,
 * --help and --list-options use the same rows. A new run parameter needs nothing here, unless it
 * is a list: its option needs a row in options.c and a function in values.c that reads the value.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "../kit/input.h"
#include "../kit/list.h"
#include "whisper_npu.h"

#include <stddef.h>
#include <stdint.h>

#define PATH_SIZE 4096u /* longest name of an output or a model in the cache */
#define MAX_OUTPUTS 16  /* --output options, and formats */

/* Exit statuses; --help explains them. */
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

typedef struct options {
    const char *model, *npu;
    const char *outputs[MAX_OUTPUTS]; /* as given; "-": standard output */
    int n_outputs;
    int output_is_dir;        /* the only one is */
    int formats[MAX_OUTPUTS]; /* wnpu_format of each output; several for one output, which is then a
                                 base name or a directory */
    int n_formats;
    int subtitles;            /* --subtitles, the preset */
    wnpu_write_options layout; /* the other layout options; -1: not given */
    input_options input;
    wnpu_audio raw;           /* what input.raw points to */
    int64_t offset_ms, duration_ms; /* -1: not given */
    input_clip *clips;        /* what input.clips points to; input.n_clips of them */
    int speakers;             /* each channel has a speaker of its own */
    int spans;                /* write spans of speech, no text */
    int cuts;                 /* write cuts at about this distance in seconds, no text; 0: off */
    int device;               /* write the device of each segment in JSON */
    int quiet, verbose, progress;
    int terminal;             /* standard error is a terminal */
    wnpu_config config;
    wnpu_params params;
    char *replace;            /* lines of --replace */
    list hotwords, commands;
    list align;               /* lines of a text that is aligned instead of being written */
    int align_extra;          /* also write what was said beside it */
    int32_t languages[100];   /* what params.languages points to */
    char **files;             /* the recordings */
    int n_files;
} options;

/* One option, or a run parameter that has none. Strings that are pointers live as long as the
 * program. */
typedef struct option_info {
    const struct option_row *row; /* in options.c; NULL: from the library's table alone */
    wnpu_param param;         /* the run parameter that it sets; param.name is NULL if none */
    const char *name;         /* without "--"; NULL: a parameter without an option */
    char letter;              /* short form, or 0 */
    const char *argument;     /* what --help calls its value; NULL: it has no value */
    const char *group;        /* a heading of --help */
    const char *meaning;
    int low, high;            /* of options of the program whose value is a number */
    char range[192];          /* values in words; "" where the meaning says it */
    char fallback[64];        /* the default in words; "" if there is none */
} option_info;

/* Option number index, from 0. Returns 0, or -1 behind the last one. */
int options_info(size_t index, option_info *info);

void options_init(options *o);
/* Reads the command line and checks what options mean together. Returns 0, or 1 when the program is
 * to end with status *code. Call options_free() afterwards in both cases. */
int options_parse(options *o, int argc, char **argv, int *code);
void options_free(options *o);

/* Prints a line to standard error, control characters as escapes. Returns code. */
#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
int complain(int code, const char *format, ...);

#endif
