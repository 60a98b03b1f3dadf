/* server_request.c - see server_request.h */
#define _XOPEN_SOURCE 700

#include "server_request.h"

#include "../kit/json.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PARAGRAPH_MS 2000 /* the pause that begins one, unless the client tells another */
#define PROMPT_MOST 4000 /* bytes of a prompt that the library accepts, and a few less */

__attribute__((format(printf, 3, 4)))
static int refuse(request *r, const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(r->problem, sizeof r->problem, format, args);
    va_end(args);
    (void)snprintf(r->wrong_name, sizeof r->wrong_name, "%s", name);
    r->wrong = r->wrong_name;
    return -1;
}

/* Keeps a string as long as the request. Returns NULL if there is no room. */
static const char *keep(request *r, const char *text, size_t length)
{
    char *to = r->text + r->text_used;
    if (length >= REQUEST_TEXT_MOST - r->text_used) {
        return NULL;
    }
    memcpy(to, text, length);
    to[length] = '\0';
    r->text_used += length + 1;
    return to;
}

/* Buffers behind the texts: threads of a server have small stacks. */
typedef struct request_scratch {
    char field[REQUEST_VALUE_MOST + 1], value[REQUEST_VALUE_MOST + 1];
} request_scratch;

static request_scratch *scratch_of(request *r)
{
    return (request_scratch *)(void *)(r->text + REQUEST_TEXT_MOST);
}

/* ---- kinds of fields ---- */

static int set_param(request *r, const char *name, const char *param, const char *value)
{
    wnpu_error error = {0, ""};
    if (wnpu_params_set(&r->params, param, value, &error) != WNPU_OK) {
        return refuse(r, name, "%s", error.message);
    }
    return 0;
}

/* 1 or 0, or -1 if it is neither. */
static int as_flag(const char *value)
{
    static const char *const words[] = {"false", "true", "0", "1", "no", "yes", "off", "on"};
    size_t i;
    for (i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(value, words[i]) == 0) {
            return (int)(i % 2);
        }
    }
    return -1;
}

static int take_param(request *r, const char *name, const char *param, const char *value)
{
    return set_param(r, name, param, value);
}

/* A parameter that is on or off; Python's clients send "True" and "False". */
static int take_flag(request *r, const char *name, const char *param, const char *value)
{
    int on = as_flag(value);
    return on < 0 ? refuse(r, name, "%s must be true or false", name)
                  : set_param(r, name, param, on ? "1" : "0");
}

/* A parameter that is on when the field is off. */
static int take_opposite(request *r, const char *name, const char *param, const char *value)
{
    int on = as_flag(value);
    return on < 0 ? refuse(r, name, "%s must be true or false", name)
                  : set_param(r, name, param, on ? "0" : "1");
}

int32_t request_language(const char *text)
{
    static const char *const open[] = {"", "auto", "null", "none", "undefined", "und"};
    size_t i;
    int32_t language = wnpu_language_id(text);
    for (i = 0; language < 0 && i < sizeof open / sizeof open[0]; i++) {
        if (strcasecmp(text, open[i]) == 0) {
            return WNPU_LANGUAGE_AUTO;
        }
    }
    return language >= 0 ? language : REQUEST_NO_LANGUAGE;
}

static int take_language(request *r, const char *name, const char *param, const char *value)
{
    return set_param(r, name, param,
                     request_language(value) == WNPU_LANGUAGE_AUTO ? "auto" : value);
}

static int take_text(request *r, const char *name, const char *param, const char *value)
{
    const char *kept = keep(r, value, strlen(value));
    return kept != NULL ? set_param(r, name, param, kept)
                        : refuse(r, name, "the texts of the request are too long");
}

/* The width of a search: 0 and less mean the default, and it is limited by the sessions. */
static int take_width(request *r, const char *name, const char *param, const char *value)
{
    char *end;
    char number[24];
    long n = strtol(value, &end, 10);
    if (*end != '\0') {
        return refuse(r, name, "%s must be a whole number", name);
    }
    (void)snprintf(number, sizeof number, "%ld", n < r->max_beams ? n : (long)r->max_beams);
    return n <= 0 ? 0 : set_param(r, name, param, number);
}

static int read_milliseconds(request *r, const char *name, const char *value, int64_t *to)
{
    char *end;
    long long ms = strtoll(value, &end, 10);
    if (*end != '\0' || ms < 0 || ms > 1000000000000LL) {
        return refuse(r, name, "%s must be a time in milliseconds", name);
    }
    *to = ms;
    return 0;
}

static int take_offset(request *r, const char *name, const char *param, const char *value)
{
    (void)param;
    return read_milliseconds(r, name, value, &r->offset_ms);
}

static int take_duration(request *r, const char *name, const char *param, const char *value)
{
    (void)param;
    return read_milliseconds(r, name, value, &r->duration_ms);
}

static int take_task(request *r, const char *name, const char *param, const char *value)
{
    int on = as_flag(value);
    (void)param;
    return on >= 0 ? set_param(r, name, "task", on ? "translate" : "transcribe")
                   : set_param(r, name, "task", value);
}

/* Reads a flag of the request itself. */
static int read_flag(request *r, const char *name, const char *value, int *to)
{
    *to = as_flag(value);
    return *to < 0 ? refuse(r, name, "%s must be true or false", name) : 0;
}

static int take_model(request *r, const char *name, const char *param, const char *value)
{
    (void)name;
    (void)param;
    (void)snprintf(r->model, sizeof r->model, "%.*s", (int)sizeof r->model - 1, value);
    return 0;
}

/* Sets a flag of the request itself, whose member param names. */
static int take_switch(request *r, const char *name, const char *param, const char *value)
{
    static const struct { const char *name; size_t offset; } members[] = {
        {"stream", offsetof(request, stream)}, {"tentative", offsetof(request, tentative)},
        {"async", offsetof(request, async)}, {"progress", offsetof(request, progress)},
        {"token_times", offsetof(request, token_times)},
        {"no_detection", offsetof(request, no_detection)},
        {"align_extra", offsetof(request, align_extra)}, {"doubt", offsetof(request, doubt)}
    };
    size_t i = 0;
    while (strcmp(members[i].name, param) != 0) {
        i++;
    }
    return read_flag(r, name, value, (int *)(void *)((char *)r + members[i].offset));
}

/* Takes a text of any length; value need not end with NUL. */
static int take_align(request *r, const char *name, const char *value, size_t length)
{
    char *text = malloc(length + 1);
    const char *wrong = "there is no memory for the text";
    if (text != NULL) {
        memcpy(text, value, length);
        text[length] = '\0';
        wrong = list_split(&r->align, text, "\r\n");
    }
    free(text);
    if (wrong == NULL && r->align.n == 0) {
        wrong = "there is no line with text in it";
    }
    return wrong != NULL ? refuse(r, name, "%s: %s", name, wrong) : 0;
}

static int take_encode(request *r, const char *name, const char *param, const char *value)
{
    int on, failed = read_flag(r, name, value, &on);
    (void)param;
    r->raw = on == 0;
    return failed;
}

/* Answers of the server's own, or any format of the library. An unknown format means JSON. */
static int take_format(request *r, const char *name, const char *param, const char *value)
{
    static const struct {
        const char *name;
        request_format format;
    } own[] = {
        {"text", ANSWER_TEXT}, {"txt", ANSWER_TEXT}, {"verbose_json", ANSWER_VERBOSE_JSON},
        {"diarized_json", ANSWER_DIARIZED_JSON}
    };
    int written = wnpu_format_from_name(value);
    size_t i;
    (void)name;
    (void)param;
    written = written < 0 ? WNPU_FORMAT_JSON : written;
    r->layout.format = written;
    r->format = r->api == API_ASR || written != WNPU_FORMAT_JSON ? ANSWER_WRITTEN : ANSWER_JSON;
    for (i = 0; i < sizeof own / sizeof own[0]; i++) {
        r->format = strcasecmp(value, own[i].name) == 0 ? own[i].format : r->format;
    }
    return 0;
}

#define ITEM_MOST 64 /* bytes of an item of a list, with its end; a longer one is cut */

/* Copies the next item of a list, which commas separate. Returns the rest of the list, or NULL if
 * there is no item. */
static const char *next_item(const char *items, char item[ITEM_MOST])
{
    size_t n, length;
    items += strspn(items, ", ");
    n = length = strcspn(items, ",");
    while (length > 0 && items[length - 1] == ' ') {
        length--;
    }
    (void)snprintf(item, ITEM_MOST, "%.*s", length < ITEM_MOST ? (int)length : ITEM_MOST, items);
    return n > 0 ? items + n : NULL;
}

static int take_granularity(request *r, const char *name, const char *param, const char *value)
{
    char one[ITEM_MOST];
    (void)param;
    while ((value = next_item(value, one)) != NULL) {
        if (strcmp(one, "word") != 0 && strcmp(one, "segment") != 0) {
            return refuse(r, name, "%s must be word or segment", name);
        }
        r->params.words |= one[0] == 'w';
        r->word_list |= one[0] == 'w';
        r->segments |= one[0] == 's';
    }
    return 0;
}

static int take_include(request *r, const char *name, const char *param, const char *value)
{
    char one[ITEM_MOST];
    (void)name;
    (void)param;
    while ((value = next_item(value, one)) != NULL) {
        r->logprobs |= strcmp(one, "logprobs") == 0;
    }
    return 0;
}

/* Notes a language that no model knows. */
static void add_unknown(request *r, const char *language)
{
    size_t n = strlen(r->unknown);
    (void)snprintf(r->unknown + n, sizeof r->unknown - n, "%s%s", n > 0 ? ", " : "", language);
}

/* One language, or several separated by commas. */
static int take_languages(request *r, const char *name, const char *param, const char *value)
{
    const size_t most = sizeof r->languages / sizeof r->languages[0];
    char one[ITEM_MOST];
    (void)param;
    if (r->params.languages != r->languages) { /* the server's own are replaced */
        r->params.languages = r->languages;
        r->params.n_languages = 0;
    }
    while ((value = next_item(value, one)) != NULL) {
        int32_t language = request_language(one);
        if (language == WNPU_LANGUAGE_AUTO) {
            continue;
        }
        if (language == REQUEST_NO_LANGUAGE) {
            add_unknown(r, one);
            continue;
        }
        if (r->params.n_languages == most) {
            return refuse(r, name, "there are too many languages");
        }
        r->params.script = wnpu_language_script(one) != WNPU_SCRIPT_ANY ? wnpu_language_script(one)
                                                                        : r->params.script;
        r->languages[r->params.n_languages++] = language;
    }
    return 0;
}

/* Limits of subtitles, by the names of transcribe's options and those that whisper.cpp and OpenAI's
 * whisper have. */
typedef struct layout_member {
    const char *name;
    size_t offset;
    long low, high;
} layout_member;

#define LAYOUT(member) offsetof(wnpu_write_options, member)

static const layout_member layout_members[] = {
    {"max_line_width", LAYOUT(max_line_width), 8, 1000},
    {"max_lines", LAYOUT(max_lines), 1, 16},
    {"max_cue_ms", LAYOUT(max_cue_ms), 500, 60000},
    {"min_cue_ms", LAYOUT(min_cue_ms), 0, 10000},
    {"min_gap_ms", LAYOUT(min_gap_ms), 0, 1000},
    {"reading_speed", LAYOUT(reading_speed), 5, 100},
    {"max_words", LAYOUT(max_words), 1, 128},
    {"paragraph_ms", LAYOUT(paragraph_ms), 200, 60000}
};

/* Moves a number into the range of a member of the layout, unless it is 0. */
static int read_limit(request *r, const char *name, const char *param, const char *value)
{
    const layout_member *m = layout_members;
    char *end;
    long n = strtol(value, &end, 10);
    int32_t limit;
    if (*end != '\0' || n < 0) {
        return refuse(r, name, "%s must be a whole number", name);
    }
    while (strcmp(m->name, param) != 0) {
        m++;
    }
    limit = (int32_t)(n == 0 || n > m->low ? n < m->high ? n : m->high : m->low);
    memcpy((char *)&r->layout + m->offset, &limit, sizeof limit);
    return 0;
}

static int take_layout(request *r, const char *name, const char *param, const char *value)
{
    if (read_limit(r, name, param, value) != 0) {
        return -1;
    }
    r->has_layout |= strtol(value, NULL, 10) > 0;
    r->is_layout_chosen = 1;
    return 0;
}

/* Paragraphs of the usual length of a pause, or of the client's. */
static int take_paragraphs(request *r, const char *name, const char *param, const char *value)
{
    int on, failed = read_flag(r, name, value, &on);
    (void)param;
    r->layout.paragraph_ms = failed == 0 && on ? PARAGRAPH_MS : 0;
    return failed;
}

/* The longest cue in characters, which is on one line; whisper.cpp's clients send 1 for words. */
static int take_max_len(request *r, const char *name, const char *param, const char *value)
{
    (void)param;
    if (strcmp(value, "1") == 0) {
        return take_layout(r, name, "max_words", value);
    }
    return take_layout(r, name, "max_line_width", value) != 0
               ? -1 : take_layout(r, name, "max_lines", r->layout.max_line_width > 0 ? "1" : "0");
}

static int take_word_times(request *r, const char *name, const char *param, const char *value)
{
    int on, failed = read_flag(r, name, value, &on);
    (void)param;
    r->layout.word_times = failed == 0 && on;
    r->has_layout |= r->layout.word_times;
    return failed;
}

/* Words are never divided, unless they are longer than a line. */
static int take_split(request *r, const char *name, const char *param, const char *value)
{
    int unused;
    (void)param;
    return read_flag(r, name, value, &unused);
}

/* One word or phrase, or several separated by commas. Only a beam has alternatives to prefer. */
static int take_keywords(request *r, const char *name, const char *param, const char *value)
{
    (void)param;
    while (*value != '\0') {
        size_t n, skip = strspn(value, ", ");
        value += skip;
        n = strcspn(value, ",");
        if (n > 0) {
            const char *kept = keep(r, value, n);
            if (kept == NULL || r->params.n_hotwords == REQUEST_KEYWORDS_MOST) {
                return refuse(r, name, "too many keywords");
            }
            r->keywords[r->params.n_hotwords++] = kept;
        }
        value += n;
    }
    r->params.hotwords = r->keywords;
    return 0;
}

/* What a client can set of OpenAI's server_vad; values beyond the range are moved into it. */
#define VAD_OF_CHUNKING 3 /* the first of them; another server's API has more */
typedef struct vad_member {
    const char *name, *param;
    double low, high;
} vad_member;

static const vad_member vad_members[] = {
    {"threshold", "vad_threshold", 0.05, 0.95},
    {"prefix_padding_ms", "vad_pad_ms", 0, 2000},
    {"silence_duration_ms", "vad_min_silence_ms", 0, 10000},
    {"min_speech_duration_ms", "vad_min_speech_ms", 0, 5000}
};

static int set_vad(request *r, const char *name, const vad_member *m, double x)
{
    char text[32];
    x = x > m->low ? x : m->low; /* also what is not a number */
    x = x < m->high ? x : m->high;
    (void)snprintf(text, sizeof text, m->high > 1 ? "%.0f" : "%.4f", x);
    return set_param(r, name, m->param, text);
}

/* One member as a field of its own, as OpenAI's SDKs send it. */
static int take_vad(request *r, const char *name, const char *param, const char *value)
{
    char *end;
    double x = strtod(value, &end);
    size_t i = 0;
    while (strcmp(vad_members[i].name, param) != 0) {
        i++;
    }
    return *end == '\0' ? set_vad(r, name, &vad_members[i], x)
                        : refuse(r, name, "%s must be a number", name);
}

/* "auto", or an object of type server_vad as JSON; its type alone is also a field of its own. */
static int take_chunking(request *r, const char *name, const char *param, const char *value)
{
    json object, member;
    size_t i, wrong;
    double x;
    (void)param;
    if (strcmp(value, "auto") == 0 || strcmp(value, "server_vad") == 0) {
        return set_param(r, name, "vad", "1");
    }
    if (strcasecmp(value, "none") == 0) {
        return 0; /* the whole at once, as far as this can be seen from outside */
    }
    if (json_parse(&object, value, strlen(value), &wrong) != 0 ||
        !json_is(json_get(object, "type"), "server_vad")) {
        return refuse(r, name, "%s must be auto or of type server_vad", name);
    }
    for (i = 0; i < VAD_OF_CHUNKING; i++) {
        member = json_get(object, vad_members[i].name);
        if (member.at == NULL || json_type(member) == 'n') {
            continue;
        }
        if (json_number(member, &x) != 0) {
            return refuse(r, name, "%s of %s must be a number", vad_members[i].name, name);
        }
        if (set_vad(r, name, &vad_members[i], x) != 0) {
            return -1;
        }
    }
    return set_param(r, name, "vad", "1");
}

/* ---- the table ---- */

typedef struct field_row {
    const char *name;         /* without the brackets behind that of a list */
    unsigned apis;            /* request_api, ORed */
    int (*take)(request *r, const char *name, const char *param, const char *value);
    const char *param;        /* the run parameter, or the member of take_switch() */
} field_row;

#define ALIGN "align" /* take_align() reads it */
#define API_ALL (API_OPENAI | API_WHISPER_CPP | API_ASR)

static const field_row fields[] = {
    {"model", API_ALL | API_SPEECH, take_model, NULL},
    {"language", API_ALL, take_language, "language"},
    {ALIGN, API_ALL, NULL, NULL},
    {"align_extra", API_ALL, take_switch, "align_extra"},
    {"script", API_ALL, take_param, "script"},
    {"replace", API_ALL, take_text, "replace"},
    {"drop_fillers", API_ALL, take_flag, "drop_fillers"},
    {"suppress_numerals", API_ALL, take_flag, "suppress_numerals"},
    {"prompt", API_OPENAI | API_WHISPER_CPP, take_text, "initial_prompt"},
    {"temperature", API_OPENAI | API_WHISPER_CPP, take_param, "temperature"},
    {"response_format", API_OPENAI | API_WHISPER_CPP, take_format, NULL},
    {"timestamp_granularities", API_OPENAI, take_granularity, NULL},
    {"include", API_OPENAI, take_include, NULL},
    {"stream", API_OPENAI, take_switch, "stream"},
    {"tentative", API_OPENAI, take_switch, "tentative"},
    {"async", API_OPENAI, take_switch, "async"},
    {"progress", API_OPENAI, take_switch, "progress"},
    {"keywords", API_OPENAI, take_keywords, NULL},
    {"languages", API_OPENAI, take_languages, NULL},
    {"chunking_strategy", API_OPENAI, take_chunking, NULL},
    {"chunking_strategy[type]", API_OPENAI, take_chunking, NULL},
    {"chunking_strategy[threshold]", API_OPENAI, take_vad, "threshold"},
    {"chunking_strategy[prefix_padding_ms]", API_OPENAI, take_vad, "prefix_padding_ms"},
    {"chunking_strategy[silence_duration_ms]", API_OPENAI, take_vad, "silence_duration_ms"},

    {"max_len", API_ALL, take_max_len, NULL},
    {"split_on_word", API_ALL, take_split, NULL},
    {"max_line_width", API_ALL, take_layout, "max_line_width"},
    {"max_line_count", API_ALL, take_layout, "max_lines"},
    {"max_lines", API_ALL, take_layout, "max_lines"},
    {"max_words_per_line", API_ALL, take_layout, "max_words"},
    {"max_words", API_ALL, take_layout, "max_words"},
    {"max_cue_ms", API_ALL, take_layout, "max_cue_ms"},
    {"min_cue_ms", API_ALL, take_layout, "min_cue_ms"},
    {"min_gap_ms", API_ALL, take_layout, "min_gap_ms"},
    {"reading_speed", API_ALL, take_layout, "reading_speed"},
    {"highlight_words", API_ALL, take_word_times, NULL},
    {"word_times", API_ALL, take_word_times, NULL},
    {"paragraphs", API_ALL, take_paragraphs, NULL},
    {"paragraph_ms", API_ALL, read_limit, "paragraph_ms"},
    {"doubt", API_ALL, take_switch, "doubt"},

    {"translate", API_WHISPER_CPP, take_task, NULL},
    {"temperature_inc", API_WHISPER_CPP, take_param, "temperature_step"},
    {"beam_size", API_WHISPER_CPP, take_width, "beam"},
    {"best_of", API_WHISPER_CPP, take_width, "best_of"},
    {"offset_t", API_WHISPER_CPP, take_offset, NULL},
    {"duration", API_WHISPER_CPP, take_duration, NULL},
    {"no_timestamps", API_WHISPER_CPP, take_opposite, "timestamps"},
    {"token_timestamps", API_WHISPER_CPP, take_switch, "token_times"},
    {"no_language_probabilities", API_WHISPER_CPP, take_switch, "no_detection"},
    {"suppress_nst", API_WHISPER_CPP, take_flag, "suppress_non_speech"},
    {"suppress_non_speech", API_WHISPER_CPP, take_flag, "suppress_non_speech"},
    {"logprob_thold", API_WHISPER_CPP, take_param, "logprob_threshold"},
    {"no_speech_thold", API_WHISPER_CPP, take_param, "no_speech_threshold"},
    {"carry_initial_prompt", API_WHISPER_CPP, take_flag, "carry_initial_prompt"},
    {"vad_threshold", API_WHISPER_CPP, take_param, "vad_threshold"},

    {"threshold", API_SPEECH, take_vad, "threshold"},
    {"min_speech_duration_ms", API_SPEECH, take_vad, "min_speech_duration_ms"},
    {"min_silence_duration_ms", API_SPEECH, take_vad, "silence_duration_ms"},
    {"speech_pad_ms", API_SPEECH, take_vad, "prefix_padding_ms"},

    {"task", API_ASR, take_task, NULL},
    {"output", API_ASR, take_format, NULL},
    {"initial_prompt", API_ASR, take_text, "initial_prompt"},
    {"word_timestamps", API_ASR, take_flag, "words"},
    {"encode", API_ASR, take_encode, NULL}
};

int request_init(request *r, request_api api, const wnpu_params *defaults, int max_beams)
{
    memset(r, 0, sizeof *r);
    r->api = api;
    r->format = api == API_ASR ? ANSWER_TEXT : ANSWER_JSON;
    r->token_times = -1;
    r->raw_format = WNPU_SAMPLE_S16LE;
    r->raw_rate = 16000;
    r->raw_channels = 1;
    r->params = *defaults;
    if (api == API_SPEECH) { /* the defaults of speaches */
        r->params.vad_min_speech_ms = 0;
        r->params.vad_min_silence_ms = 1000;
        r->params.vad_pad_ms = 0;
    }
    r->max_beams = max_beams;
    wnpu_write_options_init(&r->layout, sizeof r->layout);
    r->text = malloc(REQUEST_TEXT_MOST + sizeof(request_scratch));
    return r->text != NULL ? 0 : -1;
}

/* Length of a field's name without the brackets or the index in brackets behind that of a list. */
static size_t length_of(const char *name)
{
    const char *bracket = strrchr(name, '[');
    size_t digits = bracket != NULL ? strspn(bracket + 1, "0123456789") : 0;
    return bracket != NULL && strcmp(bracket + 1 + digits, "]") == 0 ? (size_t)(bracket - name)
                                                                     : strlen(name);
}

/* The row of a field; NULL if it is unknown. */
static const field_row *find_row(const request *r, const char *name)
{
    size_t i, n = length_of(name);
    for (i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if ((fields[i].apis & (unsigned)r->api) != 0 && strlen(fields[i].name) == n &&
            memcmp(fields[i].name, name, n) == 0) {
            return &fields[i];
        }
    }
    return NULL;
}

int request_knows(const request *r, const char *name)
{
    return find_row(r, name) != NULL;
}

/* The items of a list that is JSON. Returns 0, or -1 if one is refused. */
static int take_items(request *r, const field_row *row, json items)
{
    char *item = scratch_of(r)->value;
    const char *cursor = NULL;
    json unused, value;
    while (json_next(items, &cursor, &unused, &value)) {
        size_t n = json_string(value, item, REQUEST_VALUE_MOST); /* less than the list */
        if (json_type(value) != '"' || memchr(item, '\0', n) != NULL) {
            return refuse(r, row->name, "%s must be a list of texts", row->name);
        }
        item[n] = '\0';
        if (row->take(r, row->name, row->param, item) != 0) {
            return -1;
        }
    }
    return 0;
}

static int is_list(const field_row *row)
{
    return row->take == take_granularity || row->take == take_include ||
           row->take == take_keywords || row->take == take_languages;
}

size_t request_most(const request *r, const char *name)
{
    const field_row *row = find_row(r, name);
    return row != NULL && row->take == NULL ? REQUEST_ALIGN_MOST : REQUEST_VALUE_MOST;
}

int request_keeps_end(const request *r, const char *name)
{
    const field_row *row = find_row(r, name);
    return row != NULL && row->param != NULL && strcmp(row->param, "initial_prompt") == 0;
}

/* What forms made by JavaScript have where nothing was chosen. */
static int is_nothing(const char *value)
{
    return strcmp(value, "null") == 0 || strcmp(value, "undefined") == 0;
}

int request_field(request *r, const char *name, const char *value, size_t length)
{
    char *text = scratch_of(r)->field;
    const field_row *row = find_row(r, name);
    json items;
    size_t wrong;
    if (row == NULL || length == 0) {
        return 0;
    }
    if (length > request_most(r, name) || memchr(value, '\0', length) != NULL) {
        return refuse(r, row->name, "%s is too long or contains a NUL", row->name);
    }
    if (row->take == NULL) {
        return take_align(r, row->name, value, length);
    }
    memcpy(text, value, length);
    text[length] = '\0';
    if (is_nothing(text)) {
        return 0;
    }
    if (is_list(row) && text[0] == '[' && json_parse(&items, text, length, &wrong) == 0) {
        return take_items(r, row, items);
    }
    return row->take(r, row->name, row->param, text);
}

static int hex_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes a part of a query to out, which has room for it. Returns its length. */
static size_t decode(const char *from, size_t length, char *out)
{
    size_t i, n = 0;
    for (i = 0; i < length; i++) {
        int high = i + 2 < length && from[i] == '%' ? hex_of(from[i + 1]) : -1;
        int low = high >= 0 ? hex_of(from[i + 2]) : -1;
        out[n++] = low >= 0 ? (char)(high * 16 + low) : from[i] == '+' ? ' ' : from[i];
        i += low >= 0 ? 2 : 0;
    }
    out[n] = '\0';
    return n;
}

int request_query(request *r, const char *query)
{
    char name[REQUEST_NAME_MOST + 1], *value = scratch_of(r)->value;
    while (query != NULL && *query != '\0') {
        size_t part = strcspn(query, "&"), key = strcspn(query, "=&");
        if (key < part && key <= REQUEST_NAME_MOST) {
            size_t length = part - key - 1;
            (void)decode(query, key, name);
            if (length > REQUEST_VALUE_MOST) {
                return refuse(r, name, "a value of the query is too long");
            }
            length = decode(query + key + 1, length, value);
            if (request_field(r, name, value, length) != 0) {
                return -1;
            }
        }
        query += part + (query[part] == '&');
    }
    return 0;
}

static int has_language(const wnpu_model *model, int32_t language)
{
    wnpu_model_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    (void)wnpu_model_get_info(model, &info);
    return info.multilingual ? language < info.n_languages
                             : language == wnpu_language_id("en");
}

size_t request_known_languages(const wnpu_model *model, int32_t *languages, size_t n,
                               char lacking[REQUEST_LACKING_MOST])
{
    size_t i, kept = 0, used = 0;
    lacking[0] = '\0';
    for (i = 0; i < n; i++) {
        if (has_language(model, languages[i])) {
            languages[kept++] = languages[i];
        } else if (used + 8 < REQUEST_LACKING_MOST) {
            used += (size_t)snprintf(lacking + used, REQUEST_LACKING_MOST - used, "%s%s",
                                     used > 0 ? ", " : "", wnpu_language_code(languages[i]));
        }
    }
    return kept;
}

/* Drops the languages that the model lacks. Returns 0, or -1 if none is left. */
static int choose_languages(request *r, const wnpu_model *model)
{
    char lacking[REQUEST_LACKING_MOST];
    size_t n = r->params.n_languages, kept;
    if (r->params.language >= 0 &&
        request_known_languages(model, &r->params.language, 1, lacking) == 0) {
        return refuse(r, "language", "the model does not know this language: %s", lacking);
    }
    if (r->params.languages != r->languages || (n == 0 && r->unknown[0] == '\0')) {
        return 0;
    }
    kept = request_known_languages(model, r->languages, n, lacking);
    if (r->unknown[0] != '\0') {
        size_t used = strlen(lacking);
        (void)snprintf(lacking + used, sizeof lacking - used, "%s%.*s", used > 0 ? ", " : "",
                       (int)sizeof r->unknown, r->unknown);
    }
    if (kept == 0) {
        return refuse(r, "languages", "the model does not know any of these languages: %s",
                      lacking);
    }
    if (lacking[0] != '\0') {
        (void)snprintf(r->warning, sizeof r->warning,
                       "languages that the model does not know were left out: %s", lacking);
    }
    if (kept == 1 && r->params.language < 0) { /* there is nothing to detect */
        r->params.language = r->languages[0];
    }
    r->params.n_languages = kept > 1 ? kept : 0;
    return 0;
}

int request_finish(request *r, const wnpu_model *model)
{
    wnpu_format_info written = {.struct_size = sizeof written};
    r->layout.doubt = r->doubt;
    r->params.words |= r->doubt;
    if (r->format == ANSWER_DIARIZED_JSON) {
        r->params.words = 1;
        r->speakers = 1;
    }
    if (r->api == API_WHISPER_CPP && r->format == ANSWER_VERBOSE_JSON) {
        r->format = ANSWER_VERBOSE_CPP;
        r->token_times = r->token_times < 0 ? r->params.timestamps : r->token_times;
    }
    if (r->format == ANSWER_WRITTEN && !r->is_layout_chosen && r->align.n == 0 &&
        (r->layout.format == WNPU_FORMAT_SRT || r->layout.format == WNPU_FORMAT_VTT)) {
        wnpu_write_options_subtitles(&r->layout);
        r->has_layout = 1;
    }
    r->has_layout &= r->format == ANSWER_WRITTEN &&
                     wnpu_get_format(r->layout.format, &written) == WNPU_OK && written.has_layout;
    r->params.words |= r->token_times > 0 || r->align.n > 0 ||
                       (r->format == ANSWER_WRITTEN && wnpu_write_wants_words(&r->layout));
    if (r->align.n > 0 && (r->params.task == WNPU_TRANSLATE || r->speakers)) {
        return refuse(r, ALIGN, r->speakers ? "align is not for channels as speakers"
                                            : "align is not for translations");
    }
    if (r->align_extra && r->align.n == 0) {
        return refuse(r, "align_extra", "align_extra needs align");
    }
    if (r->has_layout && r->layout.max_lines > 0 && r->layout.max_line_width == 0) {
        return refuse(r, "max_lines", "a number of lines needs max_line_width");
    }
    if (r->has_layout && r->layout.max_cue_ms > 0 && r->layout.min_cue_ms > r->layout.max_cue_ms) {
        return refuse(r, "min_cue_ms", "min_cue_ms is more than max_cue_ms");
    }
    return choose_languages(r, model);
}

/* Whether a prompt fits into the half of the context that is for text before, which has one token
 * more, and into the library's limit in bytes. The library puts a space before it. */
static int prompt_fits(const wnpu_model *model, const char *prompt, size_t length, int32_t context)
{
    return length < PROMPT_MOST && wnpu_tokenize(model, prompt, length, NULL, 0) < context / 2 - 1;
}

/* Start of the word before the one that starts at `at`; at itself if there is none. */
static size_t word_before(const char *prompt, size_t at)
{
    size_t i = at;
    for (; i > 0 && prompt[i - 1] == ' '; i--) {
    }
    if (i == 0) {
        return at;
    }
    for (; i > 0 && prompt[i - 1] != ' '; i--) {
    }
    return i;
}

const char *request_prompt_end(const wnpu_model *model, const char *prompt)
{
    wnpu_model_info info;
    size_t length = prompt != NULL ? strlen(prompt) : 0, low = 0, high = length, word, before;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    if (length == 0 || wnpu_model_get_info(model, &info) != WNPU_OK ||
        prompt_fits(model, prompt, length, info.n_text_ctx)) {
        return prompt;
    }
    while (high - low > 1) { /* what begins at low is too long, what begins at high is not */
        size_t middle = low + (high - low) / 2;
        if (prompt_fits(model, prompt + middle, length - middle, info.n_text_ctx)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    word = prompt[high - 1] == ' ' ? high : high + strcspn(prompt + high, " ");
    while ((prompt[high] & 0xc0) == 0x80) { /* within a character of UTF-8 */
        high++;
    }
    if (word >= length) {
        return prompt + high;
    }
    /* A part of a word can have more tokens than the word, so the search may stop too late. */
    while ((before = word_before(prompt, word)) < word &&
           prompt_fits(model, prompt + before, length - before, info.n_text_ctx)) {
        word = before;
    }
    return prompt + word;
}

void request_free(request *r)
{
    if (r->text != NULL) {
        memset(r->text, 0, r->text_used);
    }
    free(r->text);
    r->text = NULL;
    if (r->align.text != NULL) {
        memset(r->align.text, 0, r->align.bytes);
    }
    list_free(&r->align);
}

int request_same_secret(const char *given, const char *secret)
{
    size_t i, n = strlen(given), m = strlen(secret);
    unsigned difference = n != m;
    for (i = 0; i < n; i++) {
        difference |= (unsigned char)(given[i] ^ secret[m > 0 ? i % m : 0]);
    }
    return difference == 0;
}
