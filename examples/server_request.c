/* server_request.c - see server_request.h */
#define _XOPEN_SOURCE 700

#include "server_request.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

static int take_milliseconds(request *r, const char *name, const char *param, const char *value)
{
    char *end;
    long long ms = strtoll(value, &end, 10);
    if (*end != '\0' || ms < 0 || ms > 1000000000000LL) {
        return refuse(r, name, "%s must be a time in milliseconds", name);
    }
    *(param[0] == 'o' ? &r->offset_ms : &r->duration_ms) = ms;
    return 0;
}

static int take_task(request *r, const char *name, const char *param, const char *value)
{
    int on = as_flag(value);
    (void)param;
    return on >= 0 ? set_param(r, name, "task", on ? "translate" : "transcribe")
                   : set_param(r, name, "task", value);
}

static int take_stream(request *r, const char *name, const char *param, const char *value)
{
    (void)param;
    r->stream = as_flag(value);
    return r->stream < 0 ? refuse(r, name, "%s must be true or false", name) : 0;
}

static int take_encode(request *r, const char *name, const char *param, const char *value)
{
    int on = as_flag(value);
    (void)param;
    r->raw = on == 0;
    return on < 0 ? refuse(r, name, "%s must be true or false", name) : 0;
}

/* An unknown format means JSON. */
static int take_format(request *r, const char *name, const char *param, const char *value)
{
    static const char *const names[] = {
        "json", "text", "srt", "vtt", "tsv", "verbose_json", "diarized_json", "all"
    };
    int i;
    (void)name;
    (void)param;
    r->format = r->api == API_ASR ? ANSWER_ALL : ANSWER_JSON;
    for (i = ANSWER_TEXT; i < ANSWER_ALL; i++) {
        if (strcasecmp(value, names[i]) == 0 ||
            (i == ANSWER_TEXT && strcasecmp(value, "txt") == 0)) {
            r->format = (request_format)i;
        }
    }
    return 0;
}

static int take_granularity(request *r, const char *name, const char *param, const char *value)
{
    (void)param;
    if (strcmp(value, "word") != 0 && strcmp(value, "segment") != 0) {
        return refuse(r, name, "%s must be word or segment", name);
    }
    r->params.words |= value[0] == 'w';
    return 0;
}

static int take_include(request *r, const char *name, const char *param, const char *value)
{
    (void)name;
    (void)param;
    r->logprobs |= strcmp(value, "logprobs") == 0;
    return 0;
}

/* One language, or several separated by commas. */
static int take_languages(request *r, const char *name, const char *param, const char *value)
{
    const size_t most = sizeof r->languages / sizeof r->languages[0];
    char one[64];
    (void)param;
    while (*value != '\0') {
        size_t n;
        value += strspn(value, ", ");
        n = strcspn(value, ",");
        if (n == 0) {
            break;
        }
        (void)snprintf(one, sizeof one, "%.*s", (int)(n < 63 ? n : 63), value);
        value += n + (value[n] == ',');
        if (r->params.n_languages == most || wnpu_language_id(one) < 0) {
            return refuse(r, name, "no such language, or too many of them");
        }
        r->languages[r->params.n_languages++] = wnpu_language_id(one);
    }
    r->params.languages = r->languages;
    return 0;
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

/* ---- the table ---- */

typedef struct field_row {
    const char *name;         /* without "[]" */
    unsigned apis;            /* request_api, ORed */
    int (*take)(request *r, const char *name, const char *param, const char *value);
    const char *param;        /* the run parameter */
} field_row;

static const field_row fields[] = {
    {"language", API_OPENAI | API_WHISPER_CPP | API_ASR, take_param, "language"},
    {"prompt", API_OPENAI | API_WHISPER_CPP, take_text, "initial_prompt"},
    {"temperature", API_OPENAI | API_WHISPER_CPP, take_param, "temperature"},
    {"response_format", API_OPENAI | API_WHISPER_CPP, take_format, NULL},
    {"timestamp_granularities", API_OPENAI, take_granularity, NULL},
    {"include", API_OPENAI, take_include, NULL},
    {"stream", API_OPENAI, take_stream, NULL},
    {"keywords", API_OPENAI, take_keywords, NULL},
    {"languages", API_OPENAI, take_languages, NULL},

    {"translate", API_WHISPER_CPP, take_task, NULL},
    {"temperature_inc", API_WHISPER_CPP, take_param, "temperature_step"},
    {"beam_size", API_WHISPER_CPP, take_width, "beam"},
    {"best_of", API_WHISPER_CPP, take_width, "best_of"},
    {"offset_t", API_WHISPER_CPP, take_milliseconds, "offset"},
    {"duration", API_WHISPER_CPP, take_milliseconds, "duration"},
    {"no_timestamps", API_WHISPER_CPP, take_opposite, "timestamps"},
    {"suppress_nst", API_WHISPER_CPP, take_flag, "suppress_non_speech"},
    {"logprob_thold", API_WHISPER_CPP, take_param, "logprob_threshold"},
    {"no_speech_thold", API_WHISPER_CPP, take_param, "no_speech_threshold"},
    {"carry_initial_prompt", API_WHISPER_CPP, take_flag, "carry_initial_prompt"},
    {"vad_threshold", API_WHISPER_CPP, take_param, "vad_threshold"},

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
    r->raw_format = WNPU_SAMPLE_S16LE;
    r->raw_rate = 16000;
    r->raw_channels = 1;
    r->params = *defaults;
    r->max_beams = max_beams;
    r->text = malloc(REQUEST_TEXT_MOST + sizeof(request_scratch));
    return r->text != NULL ? 0 : -1;
}

int request_field(request *r, const char *name, const char *value, size_t length)
{
    char plain[REQUEST_NAME_MOST], *text = scratch_of(r)->field;
    size_t i, n = strlen(name);
    n -= n > 2 && strcmp(name + n - 2, "[]") == 0 ? 2 : 0;
    if (n >= sizeof plain || length == 0) {
        return 0;
    }
    memcpy(plain, name, n);
    plain[n] = '\0';
    for (i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if ((fields[i].apis & (unsigned)r->api) == 0 || strcmp(fields[i].name, plain) != 0) {
            continue;
        }
        if (length > REQUEST_VALUE_MOST || memchr(value, '\0', length) != NULL) {
            return refuse(r, plain, "%s is too long or contains a NUL", plain);
        }
        memcpy(text, value, length);
        text[length] = '\0';
        return fields[i].take(r, plain, fields[i].param, text);
    }
    return 0;
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

void request_finish(request *r)
{
    if (r->params.n_hotwords > 0 && r->params.beam == 1) {
        r->params.beam = r->max_beams < 5 ? r->max_beams : 5;
    }
    if (r->format == ANSWER_DIARIZED_JSON) {
        r->params.words = 1;
        r->speakers = 1;
    }
}

/* Whether a prompt fits into the half of the context that is for text before, which has one token
 * more, and into the library's limit in bytes. The library puts a space before it. */
static int prompt_fits(const wnpu_model *model, const char *prompt, size_t length, int32_t context)
{
    return length < PROMPT_MOST && wnpu_tokenize(model, prompt, length, NULL, 0) < context / 2 - 1;
}

const char *request_prompt_end(const wnpu_model *model, const char *prompt)
{
    wnpu_model_info info;
    size_t length = prompt != NULL ? strlen(prompt) : 0, low = 0, high = length, word;
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
    return prompt + (word < length ? word : high);
}

void request_free(request *r)
{
    if (r->text != NULL) {
        memset(r->text, 0, r->text_used);
    }
    free(r->text);
    r->text = NULL;
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
