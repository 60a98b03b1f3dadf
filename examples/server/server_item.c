/* server_item.c - see server_item.h
 *
 * A run has a session only while it computes; one that waits for more audio is a snapshot. So is
 * one whose end was decoded in a pause: if the speech goes on, so does the run, from before that.
 */
#define _XOPEN_SOURCE 700

#include "server_item.h"

#include "../kit/platform.h"
#include "server_request.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TENTATIVE_MS 1000
#define TRANSCRIPTION "conversation.item.input_audio_transcription."

static atomic_uint events_sent; /* to all connections; their ids are unique */

void item_begin_event(buffer *b, const char *type)
{
    buffer_clear(b);
    buffer_print(b, "{\"type\": \"%s\", \"event_id\": \"event_%u\"", type,
                 atomic_fetch_add(&events_sent, 1) + 1);
}

served *item_model(const event_settings *s)
{
    return models_find(s->model[0] != '\0' ? s->model : NULL);
}

size_t item_width(const event_settings *s)
{
    return s->format == WNPU_SAMPLE_S16LE ? 2 : 1;
}

int item_is_live(const event_settings *s)
{
    return s->commit_ms > 0 || s->tentative;
}

/* ---- telling the text ---- */

static void end_event(item_decoder *d)
{
    buffer_text(&d->event, "}");
    d->send(d->user, &d->event);
}

/* The tokens of segments from the first on. */
static void add_logprobs(const item_decoder *d, const item *it, buffer *b, size_t first, size_t end)
{
    wnpu_segment s;
    size_t i, n = 0;
    if (it->settings.logprobs) {
        buffer_text(b, ", \"logprobs\": [");
        for (i = first; i < end && wnpu_get_segment(d->session, i, &s) == WNPU_OK; i++) {
            reply_logprobs(b, item_model(&it->settings)->model, &s, &n);
        }
        buffer_text(b, "]");
    }
}

/* Tells what of the text, the first n bytes of the item's, was not told so far. first and end:
 * segments that it is from. */
static void send_delta(item_decoder *d, item *it, const char *text, size_t n, size_t first,
                       size_t end)
{
    size_t from = it->said > 0 || n == 0 || text[0] != ' ' ? it->said : 1;
    if (n <= from) {
        return;
    }
    item_begin_event(&d->event, TRANSCRIPTION "delta");
    buffer_print(&d->event, ", \"item_id\": \"%s\", \"content_index\": 0, \"delta\": ", it->id);
    buffer_string(&d->event, text + from, n - from);
    add_logprobs(d, it, &d->event, first, end);
    end_event(d);
    it->said = n;
}

/* Takes the text of segments that are new, and tells it one by one if their tokens are wanted. */
static void take_segments(item_decoder *d, item *it)
{
    wnpu_segment s;
    while (wnpu_get_segment(d->session, it->segments, &s) == WNPU_OK) {
        (void)buffer_write(&it->text, s.text, s.text_length);
        it->segments++;
        if (it->settings.logprobs) {
            send_delta(d, it, it->text.bytes, it->text.n, it->segments - 1, it->segments);
        }
    }
}

/* Tells the text that is final: of segments, and of confirmed words behind them. Those have no
 * probabilities of tokens yet, and wait for them if they are wanted. */
static void send_final(item_decoder *d, item *it, const wnpu_live *live)
{
    size_t n = it->text.n;
    if (!it->settings.logprobs) {
        (void)buffer_write(&it->text, live->text, live->confirmed_length);
        send_delta(d, it, it->text.bytes, it->text.n, 0, 0);
        if (it->text.n > n) {
            it->text.n = n;
            it->text.bytes[n] = '\0';
        }
    }
}

/* An extension: text behind what was told, that may still change. It replaces what was sent before.
 */
static void send_tentative(item_decoder *d, const item *it, const wnpu_live *live)
{
    size_t from = it->settings.logprobs ? 0 : live->confirmed_length;
    item_begin_event(&d->event, TRANSCRIPTION "tentative");
    buffer_print(&d->event, ", \"item_id\": \"%s\", \"text\": ", it->id);
    buffer_string(&d->event, live->text + from, live->text_length - from);
    end_event(d);
}

/* Makes the event with the whole text of an item. An extension: what is missing in it is told as
 * X-Warning tells it. */
static void make_completed(const item_decoder *d, const item *it, buffer *b, int status)
{
    const char *text = it->text.n > 0 ? it->text.bytes : "";
    size_t skip = text[0] == ' ';
    item_begin_event(b, TRANSCRIPTION "completed");
    buffer_print(b, ", \"item_id\": \"%s\", \"content_index\": 0, \"transcript\": ", it->id);
    buffer_string(b, text + skip, it->text.n - skip);
    buffer_print(b, ", \"usage\": {\"type\": \"duration\", \"seconds\": %.3f}",
                 (double)reply_stats(d->session).audio_ms / 1e3);
    reply_languages(b, d->session);
    add_logprobs(d, it, b, 0, SIZE_MAX);
    if (status != WNPU_OK) {
        const char *why = wnpu_session_error(d->session);
        why = why[0] != '\0' ? why : wnpu_strerror(status);
        buffer_text(b, ", \"warning\": ");
        buffer_string(b, why, strlen(why));
    }
}

/* ---- runs ---- */

/* The parameters of an item's run, whose final text is decoded as that of a file; keywords receives
 * what its hotwords point to. */
static wnpu_params params_of(const item_decoder *d, const event_settings *s,
                             const char *keywords[EVENT_KEYWORDS_MOST])
{
    wnpu_params params = *d->params;
    const char *at = s->keywords;
    size_t i;
    params.language_windows = 1; /* more needs audio that has not been said yet */
    params.language = s->language != EVENT_LANGUAGE_DEFAULT ? s->language : params.language;
    params.script = s->script != WNPU_SCRIPT_ANY ? s->script : params.script;
    if (s->n_languages > 0) {
        params.languages = s->languages;
        params.n_languages = s->n_languages;
    }
    params.initial_prompt = s->prompt[0] != '\0' ? s->prompt : params.initial_prompt;
    params.initial_prompt = request_prompt_end(item_model(s)->model, params.initial_prompt);
    for (i = 0; i < s->n_keywords; i++) {
        keywords[i] = at;
        at += strlen(at) + 1;
    }
    if (s->n_keywords > 0) {
        params.hotwords = keywords;
        params.n_hotwords = s->n_keywords;
    }
    if (s->follow >= 0) {
        params.follow_words = s->follow;
    } else if (s->tentative && params.follow_words == 0) {
        params.follow_words = 1; /* who sees tentative words can wait for fewer errors */
    }
    params.vad_threshold = s->detects ? s->threshold : params.vad_threshold;
    return params;
}

/* Words are not confirmed one by one if final text may differ from live text because of its style.
 */
static int32_t commit_of(const wnpu_params *p, const event_settings *s)
{
    return !p->vad || p->drop_fillers || p->replace != NULL ||
           p->task != WNPU_TRANSCRIBE ? 0 : s->commit_ms;
}

static int begin_run(const item_decoder *d, const event_settings *s, int32_t commit_ms)
{
    const char *keywords[EVENT_KEYWORDS_MOST];
    wnpu_params params = params_of(d, s, keywords);
    wnpu_stream_options stream;
    params.commit_step_ms = commit_ms;
    wnpu_stream_options_init(&stream, sizeof stream);
    stream.format = s->format;
    stream.rate = s->rate;
    stream.step_ms = s->tentative ? TENTATIVE_MS : 0;
    stream.skip_late = 1;
    return wnpu_stream_begin(d->session, &params, &stream);
}

static int resume_run(const item_decoder *d, const item *it)
{
    const char *keywords[EVENT_KEYWORDS_MOST];
    wnpu_params params = params_of(d, &it->settings, keywords);
    int status = wnpu_restore(d->session, it->snapshot, it->snapshot_size);
    params.commit_step_ms = it->commit_ms;
    return status == WNPU_OK ? wnpu_stream_resume(d->session, &params) : status;
}

int item_accepts_keywords(const wnpu_params *params, const event_settings *s)
{
    wnpu_config config = item_model(s)->config;
    wnpu_error error = {0, ""};
    item_decoder d;
    int accepted;
    memset(&d, 0, sizeof d);
    d.params = params;
    config.threads = 1;
    if (wnpu_session_open(&d.session, item_model(s)->model, &config, NULL, 0, &error) != WNPU_OK) {
        return 0;
    }
    accepted = begin_run(&d, s, 0) != WNPU_E_ARGUMENT;
    wnpu_session_close(d.session);
    return accepted;
}

static void drop_snapshot(item *it)
{
    free(it->snapshot);
    it->snapshot = NULL;
}

int item_take_session(item_decoder *d, item *it)
{
    int64_t begin = platform_now_ms();
    pool_result result;
    int status;
    if (d->session != NULL) {
        return WNPU_OK;
    }
    result = pool_take_again(d->watch, item_model(&it->settings), POOL_LIVE, &d->session);
    if (result != POOL_TAKEN) {
        return result == POOL_FAILED ? WNPU_E_MEMORY : WNPU_E_CANCELLED;
    }
    it->queued_ms += platform_now_ms() - begin;
    if (it->snapshot == NULL) {
        it->commit_ms = commit_of(d->params, &it->settings);
        status = begin_run(d, &it->settings, it->commit_ms);
    } else {
        status = resume_run(d, it);
    }
    drop_snapshot(it);
    return status;
}

/* Takes a snapshot of the run. Returns 0, or -1 without memory. */
static int keep(item_decoder *d, item *it)
{
    size_t size = wnpu_snapshot_size(d->session);
    it->snapshot = size > 0 ? malloc(size) : NULL;
    it->snapshot_size = size;
    if (it->snapshot == NULL || wnpu_snapshot(d->session, it->snapshot, size) != WNPU_OK) {
        drop_snapshot(it);
        return -1;
    }
    return 0;
}

static void give_back(item_decoder *d)
{
    pool_give_back(d->watch, d->session);
    d->session = NULL;
}

void item_suspend(item_decoder *d, item *it)
{
    if (keep(d, it) == 0) {
        give_back(d);
    }
}

size_t item_feed(item_decoder *d, item *it)
{
    size_t width = item_width(&it->settings), n = it->audio.n / width;
    size_t room = wnpu_stream_room(d->session);
    n = wnpu_stream_push(d->session, it->audio.bytes, n < room ? n : room) * width;
    it->audio.n -= n;
    if (it->audio.n > 0) {
        memmove(it->audio.bytes, it->audio.bytes + n, it->audio.n);
    }
    return n;
}

int item_step(item_decoder *d, item *it, int *speaking)
{
    uint32_t events = WNPU_EVENT_MORE;
    wnpu_live live;
    int64_t begin = platform_now_ms();
    int status = WNPU_OK;
    memset(&live, 0, sizeof live);
    live.struct_size = sizeof live;
    while (status == WNPU_OK && (events & WNPU_EVENT_MORE) != 0 && !d->watch->stop) {
        status = wnpu_stream_step(d->session, &events);
        status = status == WNPU_OK ? wnpu_get_live(d->session, &live) : status;
        if (status == WNPU_OK) {
            take_segments(d, it);
            send_final(d, it, &live);
        }
        if (status == WNPU_OK && (events & WNPU_EVENT_TENTATIVE) != 0 && it->settings.tentative) {
            send_tentative(d, it, &live);
        }
    }
    *speaking = live.speaking;
    it->computed_ms += platform_now_ms() - begin;
    return status;
}

/* ---- the end of an item ---- */

/* Whether what the library returned is not the end of the connection. */
static int is_result(int status)
{
    return status >= 0 || status == WNPU_E_FULL;
}

int item_make_draft(item_decoder *d, item *it, unsigned pause)
{
    int64_t begin = platform_now_ms();
    size_t n = it->text.n, segments = it->segments;
    wnpu_segment s;
    int status;
    it->draft.of = pause; /* also without memory: it is not tried again */
    buffer_clear(&it->draft.event);
    if (keep(d, it) != 0) {
        return WNPU_OK;
    }
    status = wnpu_stream_finish(d->session);
    if (is_result(status)) {
        for (; wnpu_get_segment(d->session, segments, &s) == WNPU_OK; segments++) {
            (void)buffer_write(&it->text, s.text, s.text_length);
        }
        make_completed(d, it, &it->draft.event, status);
        buffer_clear(&it->draft.text);
        (void)buffer_write(&it->draft.text, it->text.n > 0 ? it->text.bytes : "", it->text.n);
        it->text.n = n;
        it->draft.status = status;
        it->draft.audio_ms = reply_stats(d->session).audio_ms;
        it->draft.run = pool_measure(d->session);
        pool_count_draft(0);
        status = WNPU_OK;
    }
    it->computed_ms += platform_now_ms() - begin;
    give_back(d);
    return status;
}

int item_is_sentence(const item *it)
{
    static const char *const ends[] = { /* the last are those of Chinese and Japanese */
        ".", "?", "!", "\xe3\x80\x82", "\xef\xbc\x9f", "\xef\xbc\x81"
    };
    const char *text = it->draft.text.n > 0 ? it->draft.text.bytes : "";
    size_t i, n = strlen(text);
    while (n > 0 && strchr("\"')", text[n - 1]) != NULL) {
        n--;
    }
    if (n >= 3 && strncmp(text + n - 3, "...", 3) == 0) {
        return 0;
    }
    for (i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t length = strlen(ends[i]);
        if (n >= length && memcmp(text + n - length, ends[i], length) == 0) {
            return 1;
        }
    }
    return n == 0;
}

/* Decodes what no draft has. */
static int finish(item_decoder *d, item *it)
{
    int64_t begin = platform_now_ms();
    item_draft *draft = &it->draft;
    int status = item_take_session(d, it);
    status = status == WNPU_OK ? wnpu_stream_finish(d->session) : status;
    if (!is_result(status)) {
        return status;
    }
    take_segments(d, it);
    make_completed(d, it, &draft->event, status);
    draft->status = status;
    draft->audio_ms = reply_stats(d->session).audio_ms;
    draft->run = pool_measure(d->session);
    buffer_clear(&draft->text);
    (void)buffer_write(&draft->text, it->text.n > 0 ? it->text.bytes : "", it->text.n);
    it->computed_ms += platform_now_ms() - begin;
    return WNPU_OK;
}

int item_complete(item_decoder *d, item *it, unsigned pause, log_entry *e)
{
    item_draft *draft = &it->draft;
    int status = WNPU_OK;
    if (pause == 0 || draft->of != pause || draft->event.n == 0 || it->settings.logprobs) {
        status = finish(d, it);
    } else {
        pool_count_draft(1);
    }
    if (status != WNPU_OK) {
        return status;
    }
    send_delta(d, it, draft->text.bytes, draft->text.n, 0, 0);
    pool_count_run(&draft->run);
    if (d->session != NULL) {
        give_back(d); /* a client may want it for something else now */
    }
    buffer_text(&draft->event, "}");
    d->send(d->user, &draft->event);
    e->audio_ms = draft->audio_ms;
    e->queued_ms = it->queued_ms;
    e->ms = it->computed_ms;
    e->reason = draft->status != WNPU_OK ? wnpu_strerror(draft->status) : NULL;
    return WNPU_OK;
}

void item_free(item *it)
{
    drop_snapshot(it);
    buffer_free(&it->audio);
    buffer_free(&it->text);
    buffer_free(&it->draft.text);
    buffer_free(&it->draft.event);
    free(it);
}
