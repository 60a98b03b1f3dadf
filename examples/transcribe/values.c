/*
 * values.c - see values.h.
 */
#define _XOPEN_SOURCE 700

#include "values.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int bad_value(const option_info *info, const char *value)
{
    return complain(EXIT_USAGE, "--%s: must be %s, not \"%s\"; see --help", info->name,
                    info->range, value);
}

int value_number(const option_info *info, const char *value, int *result)
{
    char *end;
    long n;
    errno = 0;
    n = strtol(value, &end, 10);
    if (end == value || *end != '\0' || errno != 0 || n < info->low || n > info->high) {
        return bad_value(info, value);
    }
    *result = (int)n;
    return 0;
}

/* Reports what is wrong with a list, whose value or path is given; nothing if wrong is NULL. */
static int bad_list(const char *where, const char *wrong)
{
    return wrong == NULL ? 0 : complain(EXIT_USAGE, "%s: %s", where, wrong);
}

/* ---- options with their own syntax ---- */

int value_languages(options *o, const option_info *info, const char *value)
{
    const size_t most = sizeof o->languages / sizeof o->languages[0];
    list l = {.text = NULL};
    size_t i;
    int failed = bad_list(value, list_split(&l, value, ","));
    for (i = 0; i < l.n && i < most && failed == 0; i++) {
        int script = wnpu_language_script(l.items[i]);
        o->languages[i] = wnpu_language_id(l.items[i]);
        o->params.script = script != WNPU_SCRIPT_ANY ? script : o->params.script;
        if (o->languages[i] < 0) {
            failed = complain(EXIT_USAGE, "--%s: no such language: %s; see --list-languages or "
                              "--help", info->name, l.items[i]);
        }
    }
    if (failed == 0 && i == 0) {
        failed = complain(EXIT_USAGE, "--%s: the list is empty; see --help", info->name);
    }
    o->params.languages = o->languages;
    o->params.n_languages = i;
    list_free(&l);
    return failed;
}

/* Sets two parameters: language_mode, and language_windows for a number. */
int value_language_mode(options *o, const option_info *info, const char *value)
{
    int each = strcmp(value, "each") == 0;
    o->params.language_mode = each ? WNPU_LANGUAGE_EACH : WNPU_LANGUAGE_ONCE;
    o->params.language_windows = 1;
    return each || strcmp(value, "first") == 0 || strcmp(value, "once") == 0
               ? 0 : value_number(info, value, &o->params.language_windows);
}

int value_hotwords(options *o, const option_info *info, const char *value)
{
    (void)info;
    return value[0] == '@' ? bad_list(value + 1, list_read(&o->hotwords, value + 1))
                           : bad_list(value, list_split(&o->hotwords, value, ",\n"));
}

int value_replace(options *o, const option_info *info, const char *value)
{
    wnpu_error error;
    list l = {.text = NULL};
    size_t i, n = 1;
    int failed = value[0] == '@' ? bad_list(value + 1, list_read(&l, value + 1))
                                 : bad_list(value, list_split(&l, value, ",\n"));
    for (i = 0; i < l.n; i++) {
        n += strlen(l.items[i]) + 1;
    }
    free(o->replace);
    o->replace = failed == 0 ? malloc(n) : NULL;
    if (o->replace != NULL) {
        for (n = i = 0; i < l.n; i++) {
            n += (size_t)sprintf(o->replace + n, "%s\n", l.items[i]);
        }
        o->replace[n] = '\0';
        if (wnpu_params_set(&o->params, "replace", o->replace, &error) != WNPU_OK) {
            failed = complain(EXIT_USAGE, "--%s: %s", info->name, error.message);
        }
    } else if (failed == 0) {
        failed = complain(EXIT_USAGE, "--%s: out of memory", info->name);
    }
    list_free(&l);
    return failed;
}

int value_commands(options *o, const option_info *info, const char *value)
{
    (void)info;
    return bad_list(value, list_read(&o->commands, value));
}

int value_align(options *o, const option_info *info, const char *value)
{
    (void)info;
    o->params.words = 1;
    return bad_list(value, list_read(&o->align, value));
}

int value_channel(options *o, const option_info *info, const char *value)
{
    o->input.channel = WNPU_CHANNEL_MIX;
    if (strcmp(value, "centre") == 0 || strcmp(value, "center") == 0) {
        o->input.channel = INPUT_CENTRE;
        return 0;
    }
    return strcmp(value, "mix") == 0 ? 0 : value_number(info, value, &o->input.channel);
}

int value_speakers(options *o, const option_info *info, const char *value)
{
    if (strcmp(value, "voices") == 0 || (*value >= '0' && *value <= '9')) {
        return complain(EXIT_USAGE, "--%s %s: there is no model of voices here, see --help; a "
                        "program can bring one, see \"Speakers by voice\" in examples/README.md",
                        info->name, value);
    }
    if (strcmp(value, "channels") != 0) {
        return complain(EXIT_USAGE, "--%s must be channels, not \"%s\"; see --help", info->name,
                        value);
    }
    o->speakers = 1;
    o->params.words = 1;
    return 0;
}

int value_stall(options *o, const option_info *info, const char *value)
{
    int seconds = 0, failed = value_number(info, value, &seconds);
    o->input.stall_ms = (int64_t)seconds * 1000;
    return failed;
}

/* Parses seconds, M:S or H:M:S, with an optional fraction. *end is set after it. */
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

static int take_time(const option_info *info, const char *value, int64_t *ms)
{
    const char *end;
    return duration(value, &end, ms) == 0 && *end == '\0' ? 0
         : complain(EXIT_USAGE, "--%s: %s is not a time, such as 90, 1:30 or 0:01:30.5; see --help",
                    info->name, value);
}

int value_offset(options *o, const option_info *info, const char *value)
{
    return take_time(info, value, &o->offset_ms);
}

int value_duration(options *o, const option_info *info, const char *value)
{
    return take_time(info, value, &o->duration_ms);
}

/* "start,end,start,end,..."; the last end is optional. */
int value_clips(options *o, const option_info *info, const char *value)
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
        o->clips[n].t1_ms = i % 2 == 1 ? ms : VALUE_TO_THE_END;
        if (i % 2 == 0) {
            o->clips[n].t0_ms = ms;
        }
        if (*at++ == '\0') {
            o->input.clips = o->clips;
            o->input.n_clips = n + 1;
            return 0;
        }
    }
    return complain(EXIT_USAGE, "--%s: %s is not a list of increasing times, such as "
                    "0,1.5,60,1:30; see --help", info->name, value);
}

int value_raw(options *o, const option_info *info, const char *value)
{
    if (input_parse_raw(&o->raw, value) != 0) {
        return complain(EXIT_USAGE, "--%s: the value is FORMAT[,RATE[,CHANNELS]], such as "
                        "s16le,16000,1; see --help", info->name);
    }
    o->input.raw = &o->raw;
    return 0;
}

int value_formats(options *o, const option_info *info, const char *value)
{
    list l = {.text = NULL};
    size_t i;
    int k, failed = bad_list(value, list_split(&l, value, ","));
    o->n_formats = 0;
    for (i = 0; i < l.n && failed == 0; i++) {
        int format = wnpu_format_from_name(l.items[i]);
        for (k = 0; k < o->n_formats && o->formats[k] != format; k++) {
        }
        if (format < 0) {
            failed = bad_value(info, l.items[i]);
        } else if (k == o->n_formats) { /* fewer than MAX_OUTPUTS */
            o->formats[o->n_formats++] = format;
        }
    }
    list_free(&l);
    return failed != 0 || o->n_formats > 0 ? failed : bad_value(info, value);
}

int value_output(options *o, const option_info *info, const char *value)
{
    if (value[0] == '\0') {
        return complain(EXIT_USAGE, "--%s has no name; see --help", info->name);
    }
    if (o->n_outputs == MAX_OUTPUTS) {
        return complain(EXIT_USAGE, "more than %d times --%s; see --help", MAX_OUTPUTS, info->name);
    }
    o->outputs[o->n_outputs++] = value;
    return 0;
}

int value_isa(options *o, const option_info *info, const char *value)
{
    o->config.isa = wnpu_isa_from_name(value);
    return o->config.isa < 0 ? bad_value(info, value) : 0;
}

const char *value_compute_name(int compute)
{
    static const char *const names[] = {"int8", "float"}; /* wnpu_compute */
    return compute >= 0 && compute < 2 ? names[compute] : NULL;
}

int value_compute(options *o, const option_info *info, const char *value)
{
    int compute = 0;
    while (value_compute_name(compute) != NULL && strcmp(value_compute_name(compute), value) != 0) {
        compute++;
    }
    o->config.compute = compute;
    return value_compute_name(compute) == NULL ? bad_value(info, value) : 0;
}
