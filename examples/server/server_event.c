/* server_event.c - see server_event.h */
#include "server_event.h"

#include "../kit/json.h"
#include "server_request.h"

#include <stdio.h>
#include <string.h>

#define SILENCE_MS 500 /* that ends a turn, unless a client says something else */

void event_defaults(event_settings *s)
{
    memset(s, 0, sizeof *s);
    s->format = WNPU_SAMPLE_S16LE;
    s->rate = 24000;
    s->detects = 1;
    s->threshold = 0.5f;
    s->padding_ms = 300;
    s->silence_ms = s->open_silence_ms = SILENCE_MS;
    s->language = EVENT_LANGUAGE_DEFAULT;
    s->commit_ms = -1;
    s->follow = -1;
}

/* ---- base64 ---- */

static int digit_of(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26
         : c >= '0' && c <= '9' ? c - '0' + 52 : c == '+' || c == '-' ? 62
         : c == '/' || c == '_' ? 63 : -1;
}

/* Decodes a JSON string of base64 (RFC 4648) to out. Returns 0 and *size, or -1. */
static int decode(json value, unsigned char *out, size_t *size)
{
    uint32_t bits = 0;
    unsigned n = 0;
    const char *at = value.at + 1, *end = value.end - 1; /* without the quotes */
    *size = 0;
    for (; at < end && *at != '='; at++) {
        int digit = digit_of(*at);
        if (digit < 0) {
            if (*at == '\\' && at + 1 < end && at[1] == '/') {
                continue; /* JSON may escape a slash */
            }
            return -1;
        }
        bits = bits << 6 | (uint32_t)digit;
        n += 6;
        if (n >= 8) {
            n -= 8;
            out[(*size)++] = (unsigned char)(bits >> n);
        }
    }
    return 0;
}

/* ---- settings ---- */

/* A member of one of two objects: OpenAI has moved them between versions of its protocol. */
static json either(json a, json b, const char *key)
{
    json value = json_get(a, key);
    return value.at != NULL ? value : json_get(b, key);
}

static int read_range(json value, double low, double high, double *to)
{
    double number;
    if (json_type(value) == 'n' || value.at == NULL) {
        return 0;
    }
    if (json_number(value, &number) != 0) {
        return -1;
    }
    *to = number < low ? low : number > high ? high : number;
    return 0;
}

static void copy_string(json value, char *to, size_t size)
{
    size_t n = json_string(value, to, size - 1);
    to[n < size ? n : size - 1] = '\0';
}

/* Models that take audio as a stream: their clients divide it, unless they say something else. */
static int divides_itself(json model)
{
    static const char *const names[] = {"realtime-whisper", "live-transcribe", "gpt-transcribe"};
    char name[EVENT_MODEL_MOST];
    size_t i;
    copy_string(model, name, sizeof name);
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strstr(name, names[i]) != NULL) {
            return 1;
        }
    }
    return 0;
}

static const struct {
    const char *name;
    int32_t silence_ms, open_silence_ms;
} eagerness[] = {
    {NULL, 0, 0}, {"low", 1000, 4000}, {"medium", 600, 2000}, {"high", 300, 1000},
    {"auto", 600, 2000}
};

const char *event_eagerness_name(event_eagerness e)
{
    return eagerness[e].name;
}

/* Silence by eagerness, in place of a number. */
static int read_semantic(json detection, event_settings *s)
{
    json wanted = json_get(detection, "eagerness");
    int e = EAGER_AUTO;
    if (wanted.at != NULL && json_type(wanted) != 'n') {
        while (e != EAGER_NONE && !json_is(wanted, eagerness[e].name)) {
            e--;
        }
    }
    s->eagerness = (event_eagerness)e;
    s->silence_ms = eagerness[e].silence_ms;
    s->open_silence_ms = eagerness[e].open_silence_ms;
    return e != EAGER_NONE ? 0 : -1;
}

static int read_detection(json detection, json model, event_settings *s)
{
    double threshold = (double)s->threshold, padding = s->padding_ms, silence = s->silence_ms;
    if (detection.at == NULL) {
        s->detects = model.at != NULL && !s->chosen ? !divides_itself(model) : s->detects;
        return 0;
    }
    s->chosen = 1;
    s->detects = json_type(detection) == '{' && !json_is(json_get(detection, "type"), "none");
    if (read_range(json_get(detection, "threshold"), 0.05, 0.95, &threshold) != 0 ||
        read_range(json_get(detection, "prefix_padding_ms"), 0, 2000, &padding) != 0 ||
        read_range(json_get(detection, "silence_duration_ms"), 100, 10000, &silence) != 0) {
        return -1;
    }
    s->threshold = (float)threshold;
    s->padding_ms = (int32_t)padding;
    if (json_is(json_get(detection, "type"), "semantic_vad")) {
        return read_semantic(detection, s);
    }
    if (s->eagerness != EAGER_NONE && s->detects &&
        json_get(detection, "silence_duration_ms").at == NULL) {
        silence = SILENCE_MS; /* what semantic_vad had is no default of server_vad */
    }
    s->eagerness = EAGER_NONE;
    s->silence_ms = s->open_silence_ms = (int32_t)silence;
    return 0;
}

/* "pcm16", or {"type": "audio/pcm", "rate": 24000}. */
static int read_format(json format, event_settings *s)
{
    json type = json_type(format) == '{' ? json_get(format, "type") : format;
    int64_t rate;
    if (format.at == NULL || json_type(format) == 'n') {
        return 0;
    }
    if (json_is(type, "pcm16") || json_is(type, "audio/pcm")) {
        s->format = WNPU_SAMPLE_S16LE;
        s->rate = 24000;
    } else if (json_is(type, "g711_ulaw") || json_is(type, "audio/pcmu")) {
        s->format = WNPU_SAMPLE_ULAW;
        s->rate = 8000;
    } else if (json_is(type, "g711_alaw") || json_is(type, "audio/pcma")) {
        s->format = WNPU_SAMPLE_ALAW;
        s->rate = 8000;
    } else {
        return -1;
    }
    if (json_get(format, "rate").at != NULL) {
        if (json_integer(json_get(format, "rate"), 8000, 48000, &rate) != 0) {
            return -1;
        }
        s->rate = (uint32_t)rate;
    }
    return 0;
}

static int read_language(json value, event_settings *s)
{
    char language[64];
    size_t n = json_string(value, language, sizeof language - 1);
    s->n_languages = value.at != NULL ? 0 : s->n_languages;
    if (n == 0) {
        s->language = value.at != NULL ? EVENT_LANGUAGE_DEFAULT : s->language;
        return 0;
    }
    language[n < sizeof language ? n : sizeof language - 1] = '\0';
    s->language = request_language(language);
    s->script = wnpu_language_script(language) != WNPU_SCRIPT_ANY ? wnpu_language_script(language)
                                                                  : s->script;
    return s->language != REQUEST_NO_LANGUAGE ? 0 : -1;
}

/* A list of languages, of which a single one is certain. */
static int read_languages(json array, event_settings *s)
{
    const char *cursor = NULL;
    json unused, value;
    event_settings one = *s;
    if (json_type(array) != '[') {
        return array.at == NULL || json_type(array) == 'n' ? 0 : -1;
    }
    s->n_languages = 0;
    s->language = EVENT_LANGUAGE_DEFAULT;
    while (json_next(array, &cursor, &unused, &value)) {
        if (read_language(value, &one) != 0 || one.language < 0 ||
            s->n_languages == EVENT_LANGUAGES_MOST) {
            return -1;
        }
        s->languages[s->n_languages++] = one.language;
        s->script = one.script;
    }
    if (s->n_languages == 1) {
        s->language = s->languages[--s->n_languages];
    }
    return 0;
}

/* An extension, as in the form of a request: words or phrases that are likely to occur. */
static int read_keywords(json array, event_settings *s)
{
    const char *cursor = NULL;
    json unused, value;
    size_t used = 0, n;
    if (json_type(array) != '[') {
        s->n_keywords = json_type(array) == 'n' ? 0 : s->n_keywords;
        return array.at == NULL || json_type(array) == 'n' ? 0 : -1;
    }
    s->n_keywords = 0;
    while (json_next(array, &cursor, &unused, &value)) {
        char *to = s->keywords + used;
        n = json_string(value, to, sizeof s->keywords - used);
        if (json_type(value) != '"' || n >= sizeof s->keywords - used ||
            memchr(to, '\0', n) != NULL || s->n_keywords == EVENT_KEYWORDS_MOST) {
            return -1;
        }
        to[n] = '\0';
        used += n > 0 ? n + 1 : 0;
        s->n_keywords += n > 0;
    }
    return 0;
}

/* What else the events are to have. */
static void read_include(json array, event_settings *s)
{
    const char *cursor = NULL;
    json unused, value;
    s->logprobs = array.at == NULL && s->logprobs;
    while (json_type(array) == '[' && json_next(array, &cursor, &unused, &value)) {
        s->logprobs |= json_is(value, "item.input_audio_transcription.logprobs");
    }
}

/* Extensions: text while it is said. Returns NULL, or the name of what is wrong. */
static const char *read_live(json session, event_settings *s)
{
    double ms = s->commit_ms, follow = s->follow;
    if (json_get(session, "tentative").at != NULL) {
        s->tentative = json_type(json_get(session, "tentative")) == 't';
    }
    if (read_range(json_get(session, "commit_step_ms"), 0, 10000, &ms) != 0) {
        return "commit_step_ms";
    }
    if (read_range(json_get(session, "follow_words"), 0, 4, &follow) != 0) {
        return "follow_words";
    }
    s->commit_ms = ms > 0 && ms < 200 ? 200 : (int32_t)ms;
    s->follow = (int32_t)follow;
    return NULL;
}

/* Returns NULL, or the name of what is wrong. */
static const char *read_settings(json session, event_settings *settings)
{
    event_settings s = *settings;
    json input = json_get(json_get(session, "audio"), "input");
    json transcription = json_get(session, "input_audio_transcription"), prompt, model;
    const char *wrong;
    size_t n;
    if (transcription.at == NULL) {
        transcription = json_get(input, "transcription");
    }
    prompt = json_get(transcription, "prompt");
    model = json_get(transcription, "model");
    if (json_type(model) == '"') {
        copy_string(model, s.model, sizeof s.model);
    }
    if (read_format(json_get(input, "format").at != NULL
                        ? json_get(input, "format") : json_get(session, "input_audio_format"),
                    &s) != 0) {
        return "the audio format";
    }
    if (read_language(json_get(transcription, "language"), &s) != 0) {
        return "the language";
    }
    if (read_languages(json_get(transcription, "languages"), &s) != 0) {
        return "a language";
    }
    if (read_keywords(json_get(transcription, "keywords"), &s) != 0) {
        return "the list of keywords";
    }
    if (read_detection(either(session, input, "turn_detection"),
                       model, &s) != 0) {
        return "turn_detection";
    }
    read_include(json_get(session, "include"), &s);
    wrong = read_live(session, &s);
    if (wrong != NULL) {
        return wrong;
    }
    if (prompt.at != NULL) {
        n = json_string(prompt, s.prompt, sizeof s.prompt - 1);
        if (n >= sizeof s.prompt || memchr(s.prompt, '\0', n) != NULL) {
            return "the prompt";
        }
        s.prompt[n] = '\0';
    }
    *settings = s;
    return NULL;
}

/* ---- events ---- */

int event_is_utf8(const char *text, size_t n)
{
    const unsigned char *at = (const unsigned char *)text, *end = at + n;
    while (at < end) {
        unsigned char first = *at++;
        int more = first < 0x80 ? 0 : first >= 0xc2 && first < 0xe0 ? 1
                 : first >= 0xe0 && first < 0xf0 ? 2 : first >= 0xf0 && first < 0xf5 ? 3 : -1;
        unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
        unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
        if (more < 0 || more > end - at) {
            return 0;
        }
        for (; more > 0; more--, at++) { /* the limits are those of the second byte */
            if (*at < low || *at > high) {
                return 0;
            }
            low = 0x80;
            high = 0xbf;
        }
    }
    return 1;
}

static event_kind wrong(event_info *info, const char *problem, const char *what)
{
    (void)snprintf(info->problem, sizeof info->problem, problem, what);
    return EVENT_WRONG;
}

event_kind event_read(const char *text, size_t n, event_settings *settings, unsigned char *audio,
                      event_info *info)
{
    json event, value;
    size_t at;
    const char *bad;
    memset(info, 0, sizeof *info);
    if (json_parse(&event, text, n, &at) != 0) {
        (void)snprintf(info->problem, sizeof info->problem, "the event is not valid JSON");
        return EVENT_WRONG;
    }
    copy_string(json_get(event, "type"), info->type, sizeof info->type);
    copy_string(json_get(event, "event_id"), info->id, sizeof info->id);
    if (strcmp(info->type, "input_audio_buffer.append") == 0) {
        value = json_get(event, "audio");
        return json_type(value) == '"' && decode(value, audio, &info->audio_size) == 0
                   ? EVENT_APPEND : wrong(info, "%s is not base64", "audio");
    }
    if (strcmp(info->type, "input_audio_buffer.commit") == 0) {
        return EVENT_COMMIT;
    }
    if (strcmp(info->type, "input_audio_buffer.clear") == 0) {
        return EVENT_CLEAR;
    }
    if (strcmp(info->type, "session.update") == 0 ||
        strcmp(info->type, "transcription_session.update") == 0) {
        bad = read_settings(json_get(event, "session"), settings);
        return bad == NULL ? EVENT_UPDATE : wrong(info, "%s is not supported", bad);
    }
    return wrong(info, "there is no event of type \"%s\"", info->type);
}
