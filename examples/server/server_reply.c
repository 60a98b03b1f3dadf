/* server_reply.c - see server_reply.h */
#define _XOPEN_SOURCE 700

#include "server_reply.h"

#include "../kit/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- buffers ---- */

int64_t buffer_write(void *user, const void *bytes, size_t n)
{
    buffer *b = user;
    if (b->n + n + 1 > b->room) {
        size_t room = 2 * (b->n + n + 1);
        char *larger = b->failed ? NULL : realloc(b->bytes, room);
        if (larger == NULL) {
            b->failed = 1;
            return -1;
        }
        b->bytes = larger;
        b->room = room;
    }
    if (n > 0) { /* or bytes may be NULL */
        memcpy(b->bytes + b->n, bytes, n);
    }
    b->n += n;
    b->bytes[b->n] = '\0';
    return (int64_t)n;
}

void buffer_text(buffer *b, const char *text)
{
    if (text[0] != '\0') {
        (void)buffer_write(b, text, strlen(text));
    }
}

void buffer_print(buffer *b, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    buffer_text(b, text);
}

void buffer_string(buffer *b, const char *text, size_t length)
{
    (void)wnpu_write_json_string(text, length, buffer_write, b);
}

void buffer_clear(buffer *b)
{
    b->n = 0;
    if (b->bytes != NULL) {
        b->bytes[0] = '\0';
    }
}

void buffer_free(buffer *b)
{
    free(b->bytes);
    memset(b, 0, sizeof *b);
}

/* ---- results ---- */

const char *reply_type(const request *r)
{
    wnpu_format_info written = {.struct_size = sizeof written};
    int format = r->format == ANSWER_WRITTEN ? r->layout.format
               : r->format == ANSWER_TEXT ? WNPU_FORMAT_TXT : WNPU_FORMAT_JSON;
    return wnpu_get_format(format, &written) == WNPU_OK ? written.media_type : "";
}

/* The text of all segments, without the space before the first. */
static void add_all_text(buffer *b, const wnpu_session *session)
{
    wnpu_segment s;
    size_t i;
    for (i = 0; wnpu_get_segment(session, i, &s) == WNPU_OK; i++) {
        size_t skip = i == 0 && s.text[0] == ' ';
        (void)buffer_write(b, s.text + skip, s.text_length - skip);
    }
}

static void add_all_text_json(buffer *b, const wnpu_session *session)
{
    buffer text = {NULL, 0, 0, 0};
    add_all_text(&text, session);
    buffer_string(b, text.n > 0 ? text.bytes : "", text.n);
    b->failed |= text.failed;
    buffer_free(&text);
}

void reply_logprobs(buffer *b, const wnpu_model *model, const wnpu_segment *s, size_t *n)
{
    size_t i, k, length;
    for (i = 0; i < s->n_tokens; i++) {
        const char *bytes = wnpu_token_text(model, s->tokens[i].id, &length);
        float p = s->tokens[i].probability;
        buffer_text(b, (*n)++ > 0 ? ", {\"token\": " : "{\"token\": ");
        buffer_string(b, bytes, length);
        buffer_print(b, ", \"logprob\": %.6f, \"bytes\": [", p > 0 ? log((double)p) : -100.0);
        for (k = 0; k < length; k++) {
            buffer_print(b, k > 0 ? ", %u" : "%u", (unsigned char)bytes[k]);
        }
        buffer_text(b, "]}");
    }
}

wnpu_stats reply_stats(const wnpu_session *session)
{
    wnpu_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    (void)wnpu_get_stats(session, &stats);
    return stats;
}

void reply_languages(buffer *b, const wnpu_session *session)
{
    wnpu_stats stats = reply_stats(session);
    if (wnpu_segment_count(session) > 0 && wnpu_language_code(stats.language) != NULL) {
        buffer_print(b, ", \"languages\": [{\"code\": \"%s\"}]",
                     wnpu_language_code(stats.language));
    }
}

/* "A" to "Z", then "27" and so on. */
static void add_speaker(buffer *b, int32_t speaker)
{
    buffer_print(b, speaker <= 26 ? "\"speaker\": \"%c\"" : "\"speaker\": \"%d\"",
                 speaker <= 26 ? 'A' + (speaker > 0 ? speaker - 1 : 0) : speaker);
}

/* What words have besides their times. */
enum { WITH_SPEAKER = 1, WITH_PROBABILITY = 2 };

static unsigned words_with(const request *r)
{
    return r->doubt ? WITH_PROBABILITY : 0;
}

/* The words of a segment as items of an array that has *n so far. */
static void add_words(buffer *b, const wnpu_session *session, size_t segment, unsigned with,
                      size_t *n)
{
    wnpu_word w;
    size_t k;
    memset(&w, 0, sizeof w);
    w.struct_size = sizeof w;
    for (k = 0; wnpu_get_word(session, segment, k, &w) == WNPU_OK; k++) {
        size_t skip = w.text[0] == ' ';
        buffer_text(b, (*n)++ > 0 ? ", {\"word\": " : "{\"word\": ");
        buffer_string(b, w.text + skip, w.text_length - skip);
        buffer_print(b, ", \"start\": %.3f, \"end\": %.3f", (double)w.t0_ms / 1e3,
                     (double)w.t1_ms / 1e3);
        if ((with & WITH_SPEAKER) != 0) {
            buffer_text(b, ", ");
            add_speaker(b, w.speaker);
        }
        if ((with & WITH_PROBABILITY) != 0) {
            buffer_print(b, ", \"probability\": %.3f", (double)w.probability);
        }
        buffer_text(b, "}");
    }
}

void reply_segment(buffer *b, const wnpu_session *session, const wnpu_segment *segment,
                   size_t index)
{
    wnpu_word w;
    size_t k;
    memset(&w, 0, sizeof w);
    w.struct_size = sizeof w;
    buffer_print(b, "{\"start\": %.3f, \"end\": %.3f, ", (double)segment->t0_ms / 1e3,
                 (double)segment->t1_ms / 1e3);
    if (segment->speaker > 0) {
        add_speaker(b, segment->speaker);
        buffer_text(b, ", ");
    }
    buffer_text(b, "\"text\": ");
    buffer_string(b, segment->text, segment->text_length);
    buffer_text(b, ", \"words\": [");
    for (k = 0; wnpu_get_word(session, index, k, &w) == WNPU_OK; k++) {
        buffer_text(b, k > 0 ? ", {\"word\": " : "{\"word\": ");
        buffer_string(b, w.text, w.text_length);
        buffer_print(b, ", \"start\": %.3f, \"end\": %.3f, \"probability\": %.3f}",
                     (double)w.t0_ms / 1e3, (double)w.t1_ms / 1e3, (double)w.probability);
    }
    buffer_text(b, "]}\n");
}

static void add_all_words(buffer *b, const wnpu_session *session, unsigned with)
{
    size_t i, n = 0;
    buffer_text(b, ", \"words\": [");
    for (i = 0; i < wnpu_segment_count(session); i++) {
        add_words(b, session, i, with, &n);
    }
    buffer_text(b, "]");
}

static void add_plain_segments(buffer *b, const wnpu_session *session)
{
    wnpu_segment s;
    size_t i;
    buffer_text(b, ", \"segments\": [");
    for (i = 0; wnpu_get_segment(session, i, &s) == WNPU_OK; i++) {
        buffer_print(b, "%s{\"id\": %zu, \"start\": %.3f, \"end\": %.3f, \"text\": ",
                     i > 0 ? ", " : "", i, (double)s.t0_ms / 1e3, (double)s.t1_ms / 1e3);
        buffer_string(b, s.text, s.text_length);
        buffer_text(b, "}");
    }
    buffer_text(b, "]");
}

/* What the library writes in a format without limits of subtitles. */
static void write_plain(buffer *b, const wnpu_session *session, const request *r, int32_t format)
{
    wnpu_write_options options;
    wnpu_write_options_init(&options, sizeof options);
    options.format = format;
    options.paragraph_ms = r->layout.paragraph_ms;
    options.doubt = r->doubt;
    if (wnpu_write_with(session, &options, NULL, buffer_write, b) != WNPU_OK) {
        b->failed = 1;
    }
}

/* Copies a member of what the library has written, on one line. */
static void add_member(buffer *b, json all, const char *name)
{
    json value = json_get(all, name);
    size_t i = b->n;
    if (value.at != NULL) {
        buffer_print(b, ", \"%s\": ", name);
        (void)buffer_write(b, value.at, (size_t)(value.end - value.at));
        for (; i < b->n && !b->failed; i++) { /* strings have none */
            b->bytes[i] = b->bytes[i] == '\n' ? ' ' : b->bytes[i];
        }
    }
}

/* Paragraphs, and how certain the text is. */
static void add_reading(buffer *b, const wnpu_session *session, const request *r)
{
    buffer text = {NULL, 0, 0, 0};
    json all;
    size_t wrong;
    if (r->layout.paragraph_ms == 0 && !r->doubt) {
        return;
    }
    write_plain(&text, session, r, WNPU_FORMAT_JSON);
    if (text.failed || json_parse(&all, text.bytes, text.n, &wrong) != 0) {
        b->failed = 1;
    } else {
        add_member(b, all, "paragraphs");
        add_member(b, all, "certainty");
    }
    buffer_free(&text);
}

/* Extensions: paragraphs, whether text is missing, and how much of a text that the client gave was
 * said. */
static void add_extensions(buffer *b, const wnpu_session *session, const request *r)
{
    const wnpu_align_stats *a = &r->aligned;
    add_reading(b, session, r);
    buffer_text(b, r->incomplete ? ", \"incomplete\": true" : "");
    if (a->struct_size > 0) {
        buffer_print(b, ", \"alignment\": {\"words\": %llu, \"said\": %llu, \"alike\": %llu, "
                     "\"extra\": %llu}", (unsigned long long)a->words,
                     (unsigned long long)a->said, (unsigned long long)a->alike,
                     (unsigned long long)a->extra);
    }
}

static void add_usage(buffer *b, const wnpu_session *session)
{
    buffer_print(b, "\"usage\": {\"type\": \"duration\", \"seconds\": %lld}",
                 (long long)(reply_stats(session).audio_ms + 999) / 1000);
}

/* Usage in tokens, which is what clients of events know: one for each 100 ms of audio, as OpenAI's
 * models count, and those of the text. */
static void add_usage_tokens(buffer *b, const wnpu_session *session)
{
    size_t i, input = (size_t)(reply_stats(session).audio_ms + 99) / 100, output = 0;
    wnpu_segment s;
    for (i = 0; wnpu_get_segment(session, i, &s) == WNPU_OK; i++) {
        output += s.n_tokens;
    }
    buffer_print(b, "\"usage\": {\"type\": \"tokens\", \"input_tokens\": %zu, "
                 "\"input_token_details\": {\"text_tokens\": 0, \"audio_tokens\": %zu}, "
                 "\"output_tokens\": %zu, \"total_tokens\": %zu}", input, input, output,
                 input + output);
}

/* The members that JSON and the last event have in common. */
static void add_summary(buffer *b, const wnpu_session *session, const wnpu_model *model,
                        const request *r)
{
    wnpu_segment s;
    size_t i, n = 0;
    buffer_text(b, "\"text\": ");
    add_all_text_json(b, session);
    if (r->logprobs) {
        buffer_text(b, ", \"logprobs\": [");
        for (i = 0; wnpu_get_segment(session, i, &s) == WNPU_OK; i++) {
            reply_logprobs(b, model, &s, &n);
        }
        buffer_text(b, "]");
    }
    buffer_text(b, ", ");
    (r->stream ? add_usage_tokens : add_usage)(b, session);
    reply_languages(b, session);
    add_extensions(b, session, r);
}

/* ---- whisper.cpp's verbose_json ----
 * OpenAI's object with the words in the segments, and what the detection of the language found. */

static void add_segment_words(buffer *b, const wnpu_session *session, size_t index,
                              const wnpu_segment *s)
{
    wnpu_word w;
    size_t i;
    memset(&w, 0, sizeof w);
    w.struct_size = sizeof w;
    for (i = 0; wnpu_get_word(session, index, i, &w) == WNPU_OK; i++) {
        /* t_dtw, in units of 10 ms: where the alignment reaches the word's first token */
        int64_t begin = w.first_token < s->n_tokens ? s->tokens[w.first_token].t0_ms : w.t0_ms;
        buffer_text(b, i > 0 ? ",\n    {\"word\": " : ",\n   \"words\": [\n    {\"word\": ");
        buffer_string(b, w.text, w.text_length);
        buffer_print(b, ", \"start\": %.3f, \"end\": %.3f, \"t_dtw\": %lld, "
                     "\"probability\": %.6f}", (double)w.t0_ms / 1e3, (double)w.t1_ms / 1e3,
                     (long long)begin / 10, (double)w.probability);
    }
    buffer_text(b, i > 0 ? "]" : "");
}

static void add_segment(buffer *b, const wnpu_session *session, size_t index,
                        const wnpu_segment *s)
{
    size_t i;
    buffer_print(b, "%s\n  {\"id\": %zu, \"start\": %.3f, \"end\": %.3f,\n   \"text\": ",
                 index > 0 ? "," : "", index, (double)s->t0_ms / 1e3, (double)s->t1_ms / 1e3);
    buffer_string(b, s->text, s->text_length);
    buffer_text(b, ",\n   \"tokens\": [");
    for (i = 0; i < s->n_tokens; i++) {
        buffer_print(b, "%s%d", i > 0 ? ", " : "", (int)s->tokens[i].id);
    }
    buffer_text(b, "]");
    add_segment_words(b, session, index, s);
    buffer_print(b, ",\n   \"temperature\": %.6f, \"avg_logprob\": %.6f, "
                 "\"compression_ratio\": %.6f, \"no_speech_prob\": %.6f}",
                 (double)s->temperature, (double)s->mean_logprob, (double)s->compression_ratio,
                 (double)s->no_speech);
}

/* Nothing if no language was detected. */
static void add_language_detection(buffer *b, const wnpu_session *session)
{
    float p[100] = {0};
    size_t i, best = 0;
    const char *separator = "";
    if (wnpu_get_languages(session, p, sizeof p / sizeof p[0]) < 0) {
        return;
    }
    for (i = 1; i < sizeof p / sizeof p[0]; i++) {
        best = p[i] > p[best] ? i : best;
    }
    if (p[best] <= 0.0f) {
        return;
    }
    buffer_print(b, ",\n \"detected_language\": \"%s\", \"detected_language_probability\": %.6f,\n"
                 " \"language_probabilities\": {", wnpu_language_name((int)best), (double)p[best]);
    for (i = 0; i < sizeof p / sizeof p[0]; i++) {
        if (p[i] > 0.001f) {
            buffer_print(b, "%s\"%s\": %.6f", separator, wnpu_language_code((int)i), (double)p[i]);
            separator = ", ";
        }
    }
    buffer_text(b, "}");
}

static void reply_whisper_cpp(buffer *b, const wnpu_session *session, const request *r)
{
    wnpu_stats stats = reply_stats(session);
    wnpu_segment s;
    size_t i;
    buffer_print(b, "{\"task\": \"%s\", \"language\": \"%s\", \"duration\": %.3f,\n \"text\": ",
                 r->params.task == WNPU_TRANSLATE ? "translate" : "transcribe",
                 wnpu_language_name(stats.language), (double)stats.audio_ms / 1e3);
    add_all_text_json(b, session);
    buffer_text(b, ",\n \"segments\": [");
    for (i = 0; wnpu_get_segment(session, i, &s) == WNPU_OK; i++) {
        add_segment(b, session, i, &s);
    }
    buffer_text(b, "]");
    add_extensions(b, session, r);
    if (!r->no_detection) {
        add_language_detection(b, session);
    }
    buffer_text(b, "}\n");
}

/* ---- OpenAI's verbose_json ---- */

/* The segments with their words, which players need there. */
static void add_with_words(buffer *b, const wnpu_session *session, const request *r, json segments)
{
    const char *cursor = NULL, *from = segments.at;
    json unused, segment;
    size_t i;
    for (i = 0; json_next(segments, &cursor, &unused, &segment); i++) {
        size_t n = 0;
        (void)buffer_write(b, from, (size_t)(segment.end - 1 - from));
        from = segment.end - 1;
        buffer_text(b, ",\n   \"words\": [");
        add_words(b, session, i, words_with(r), &n);
        buffer_text(b, "]");
    }
    (void)buffer_write(b, from, (size_t)(segments.end - from));
}

/* What the library writes as an object, member by member: without segments if only words were asked
 * for. A translation is in English, whatever was spoken. */
static void add_verbose_members(buffer *b, const wnpu_session *session, const request *r, json all)
{
    const char *cursor = NULL;
    json key, value;
    size_t n = 0;
    buffer_text(b, "{");
    while (json_next(all, &cursor, &key, &value)) {
        if (json_is(key, "segments") && r->word_list && !r->segments) {
            continue;
        }
        if (json_is(key, "words") && r->doubt) {
            add_all_words(b, session, words_with(r));
            continue;
        }
        buffer_text(b, n++ > 0 ? ",\n " : "");
        (void)buffer_write(b, key.at, (size_t)(key.end - key.at));
        buffer_text(b, ": ");
        if (json_is(key, "segments") && r->word_list) {
            add_with_words(b, session, r, value);
        } else if (json_is(key, "language") && r->params.task == WNPU_TRANSLATE) {
            buffer_text(b, "\"english\"");
        } else {
            (void)buffer_write(b, value.at, (size_t)(value.end - value.at));
        }
    }
}

/* What the library writes, and the usage. */
static void reply_verbose(buffer *b, const wnpu_session *session, const request *r)
{
    buffer text = {NULL, 0, 0, 0};
    json all;
    size_t wrong;
    if (wnpu_write(session, WNPU_FORMAT_VERBOSE_JSON, buffer_write, &text) != WNPU_OK ||
        text.failed || json_parse(&all, text.bytes, text.n, &wrong) != 0) {
        b->failed = 1;
    } else {
        add_verbose_members(b, session, r, all);
        buffer_text(b, ",\n ");
        add_usage(b, session);
        add_extensions(b, session, r);
        buffer_text(b, "}\n");
    }
    buffer_free(&text);
}

/* ---- all formats ---- */

static void reply_diarized(buffer *b, const wnpu_session *session, const wnpu_model *model,
                           const request *r);

void reply_results(buffer *b, const wnpu_session *session, const wnpu_model *model,
                   const request *r)
{
    switch (r->format) {
    case ANSWER_JSON:
        buffer_text(b, "{");
        add_summary(b, session, model, r);
        if (r->segments) {
            add_plain_segments(b, session);
        }
        if (r->word_list) {
            add_all_words(b, session, words_with(r));
        }
        buffer_text(b, "}\n");
        break;
    case ANSWER_VERBOSE_JSON: reply_verbose(b, session, r); break;
    case ANSWER_DIARIZED_JSON: reply_diarized(b, session, model, r); break;
    case ANSWER_VERBOSE_CPP: reply_whisper_cpp(b, session, r); break;
    case ANSWER_TEXT:
        if (r->layout.paragraph_ms > 0) {
            write_plain(b, session, r, WNPU_FORMAT_TXT);
            break;
        }
        add_all_text(b, session);
        buffer_text(b, "\n");
        break;
    case ANSWER_WRITTEN:
        if (!r->has_layout) {
            write_plain(b, session, r, r->layout.format);
        } else if (wnpu_write_with(session, &r->layout, NULL, buffer_write, b) != WNPU_OK) {
            b->failed = 1;
        }
        break;
    }
}

/* ---- speakers ---- */

static void add_turn(buffer *b, const wnpu_segment *s, size_t index)
{
    size_t skip = s->text[0] == ' ';
    buffer_print(b, "{\"type\": \"transcript.text.segment\", \"id\": \"seg_%zu\", "
                 "\"start\": %.3f, \"end\": %.3f, ", index, (double)s->t0_ms / 1e3,
                 (double)s->t1_ms / 1e3);
    add_speaker(b, s->speaker);
    buffer_text(b, ", \"text\": ");
    buffer_string(b, s->text + skip, s->text_length - skip);
    buffer_text(b, "}");
}

static void reply_diarized(buffer *b, const wnpu_session *session, const wnpu_model *model,
                           const request *r)
{
    wnpu_stats stats = reply_stats(session);
    wnpu_segment s;
    size_t i;
    buffer_print(b, "{\"task\": \"%s\", \"duration\": %.3f, ",
                 r->params.task == WNPU_TRANSLATE ? "translate" : "transcribe",
                 (double)stats.audio_ms / 1e3);
    add_summary(b, session, model, r);
    buffer_text(b, ", \"segments\": [");
    for (i = 0; wnpu_get_segment(session, i, &s) == WNPU_OK; i++) {
        buffer_text(b, i > 0 ? ", " : "");
        add_turn(b, &s, i);
    }
    buffer_text(b, "]");
    add_all_words(b, session, WITH_SPEAKER | words_with(r));
    buffer_text(b, "}\n");
}

/* ---- events ----
 * OpenAI's clients append deltas and cannot take any back, so a delta is text that does not change
 * any more: that of a segment. The text of a window is not certain earlier, not even where a
 * timestamp ends a segment in it, because the gates judge the window as a whole and may have all
 * of it decoded again. Clients that ask for it get earlier text in events of another type. */

/* Clients may read the type of an event in its data, or in a line of its own. */
static void begin_event(buffer *b, const char *type)
{
    buffer_print(b, "event: %s\ndata: {\"type\": \"%s\"", type, type);
}

void reply_delta(buffer *b, const wnpu_model *model, const request *r, const wnpu_segment *segment,
                 size_t index)
{
    size_t skip = index == 0 && segment->text[0] == ' ', n = 0;
    begin_event(b, "transcript.text.delta");
    buffer_text(b, ", \"delta\": ");
    buffer_string(b, segment->text + skip, segment->text_length - skip);
    if (r->logprobs) {
        buffer_text(b, ", \"logprobs\": [");
        reply_logprobs(b, model, segment, &n);
        buffer_text(b, "]");
    }
    buffer_text(b, "}\n\n");
}

void reply_tentative(buffer *b, const char *text, size_t length)
{
    begin_event(b, "transcript.text.tentative");
    buffer_text(b, ", \"text\": ");
    buffer_string(b, text, length);
    buffer_text(b, "}\n\n");
}

void reply_waiting(buffer *b, int before)
{
    begin_event(b, "transcript.waiting");
    buffer_print(b, ", \"before\": %d}\n\n", before);
}

void reply_progress(buffer *b, int64_t done_ms, int64_t total_ms)
{
    begin_event(b, "transcript.progress");
    buffer_print(b, ", \"done\": %.3f", (double)done_ms / 1e3);
    if (total_ms > 0) {
        buffer_print(b, ", \"total\": %.3f", (double)total_ms / 1e3);
    }
    buffer_text(b, "}\n\n");
}

void reply_warning(buffer *b, const char *message)
{
    begin_event(b, "transcript.warning");
    buffer_text(b, ", \"message\": ");
    buffer_string(b, message, strlen(message));
    buffer_text(b, "}\n\n");
}

/* Results as a member of an event, which is a single line. */
static void add_verbose(buffer *b, const wnpu_session *session, const wnpu_model *model,
                        const request *r)
{
    size_t i;
    buffer_text(b, ", \"verbose_json\": ");
    i = b->n;
    reply_results(b, session, model, r);
    for (; i < b->n; i++) { /* strings have none */
        b->bytes[i] = b->bytes[i] == '\n' ? ' ' : b->bytes[i];
    }
}

void reply_done(buffer *b, const wnpu_session *session, const wnpu_model *model, const request *r)
{
    wnpu_segment s;
    size_t i;
    for (i = 0; r->speakers && wnpu_get_segment(session, i, &s) == WNPU_OK; i++) {
        buffer_text(b, "event: transcript.text.segment\ndata: ");
        add_turn(b, &s, i);
        buffer_text(b, "\n\n");
    }
    begin_event(b, "transcript.text.done");
    buffer_text(b, ", ");
    add_summary(b, session, model, r);
    if (!r->speakers) {
        add_plain_segments(b, session);
    }
    if (r->word_list) {
        add_all_words(b, session, words_with(r));
    }
    if (r->tentative && r->format == ANSWER_VERBOSE_JSON) {
        add_verbose(b, session, model, r);
    }
    buffer_text(b, "}\n\n");
}

/* ---- errors ---- */

static const char *error_code(int http_status)
{
    switch (http_status) {
    case 400: return "invalid_request";
    case 401: return "invalid_api_key";
    case 403: return "forbidden";
    case 404: return "not_found";
    case 405: return "method_not_allowed";
    case 408: return "request_timeout";
    case 413: return "file_too_large";
    case 429: return "rate_limit_exceeded";
    case 426: return "upgrade_required";
    case 503: return "server_busy";
    case 504: return "deadline_exceeded";
    default: return http_status < 500 ? "invalid_request" : "internal_error";
    }
}

void reply_error(buffer *b, request_api api, int http_status, const char *message,
                 const char *param)
{
    if (api == API_WHISPER_CPP || api == API_ASR) {
        buffer_text(b, api == API_ASR ? "{\"detail\": " : "{\"error\": ");
        buffer_string(b, message, strlen(message));
        buffer_text(b, "}\n");
        return;
    }
    buffer_text(b, "{\"error\": {\"message\": ");
    buffer_string(b, message, strlen(message));
    buffer_print(b, ", \"type\": \"%s\", \"code\": \"%s\", \"param\": ",
                 http_status < 500 ? "invalid_request_error" : "server_error",
                 error_code(http_status));
    if (param != NULL) {
        buffer_string(b, param, strlen(param));
    } else {
        buffer_text(b, "null");
    }
    buffer_text(b, "}}\n");
}
