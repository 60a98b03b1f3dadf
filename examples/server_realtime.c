/* server_realtime.c - see server_realtime.h
 *
 * Each connection has a session and a thread that steps it. An item of the conversation is one live
 * run: it is finished when the client commits it, or when the detector finds that speech has ended.
 */
#define _XOPEN_SOURCE 700

#include "server_realtime.h"

#include "server_answer.h"
#include "server_event.h"
#include "server_pool.h"
#include "server_watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#define STEP_MS 50
/* Where the ends of utterances are looked for, a step gets this much audio at most, although a
 * client may send faster: speech that begins and ends within one step would not be noticed. */
#define STEP_MOST_MS 200u
#define TENTATIVE_MS 1000
#define CLOSE_MS 5000                /* for a client to answer the server's closing frame */
#define RECEIVE_BYTES 262144         /* of the socket: what waits is not taken for a long event */
#define STACK_SIZE ((size_t)1 << 20)

#define LONG_EVENT "the event is longer than 1 MB"

/* Why the server closes a connection (RFC 6455, section 7.4.1). */
typedef enum close_code {
    CLOSE_NORMAL = 1000, CLOSE_GOING_AWAY = 1001, CLOSE_PROTOCOL = 1002, CLOSE_WRONG_TYPE = 1003,
    CLOSE_TOO_BIG = 1009, CLOSE_FAILED = 1011, CLOSE_TRY_LATER = 1013
} close_code;

static const http_options *options;
static atomic_uint connections; /* so far; ids of items are unique */
static atomic_uint events_sent; /* to all connections; their ids are unique */
static atomic_int active;

typedef struct realtime {
    struct mg_connection *conn;
    watch watch;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. */
    event_settings settings;
    int streaming;            /* samples can be pushed */
    size_t width;             /* bytes of a sample of the current item */
    int commit, clear, updated, closing;
    uint64_t pushed;          /* frames of the current item */
    size_t budget;            /* frames that may be pushed before the next step */
    /* Of the handler of messages. */
    buffer message;
    int begun_message;        /* its first frame has come, and its last has not */
    event_settings draft;
    unsigned char *audio;
    size_t left;              /* bytes at audio of a sample that is not complete yet */
    int beta;                 /* the client asks for the beta version of the protocol */
    int reply;                /* code that answers the client's closing frame; 0: it sent none */
    /* Of the thread. */
    wnpu_session *session;
    size_t segments;          /* of the current item that were sent */
    unsigned number, items;   /* the connection's number, its items so far */
    int logprobs;             /* are sent for the item */
    int speaking, begun;      /* begun: speech_started was sent for the item */
    int64_t item_ms, before_ms; /* length of the item; of those before it */
    char id[32], previous[32];
    buffer out;
} realtime;

/* ---- events to the client ---- */

static void begin(buffer *b, const char *type)
{
    buffer_clear(b);
    buffer_print(b, "{\"type\": \"%s\", \"event_id\": \"event_%u\"", type,
                 atomic_fetch_add(&events_sent, 1) + 1);
}

static void end(buffer *b, struct mg_connection *conn)
{
    buffer_text(b, "}");
    if (!b->failed) {
        (void)mg_websocket_write(conn, MG_WEBSOCKET_OPCODE_TEXT, b->bytes, b->n);
    }
}

/* For events of the connection's thread. */
static void begin_event(realtime *r, const char *type)
{
    begin(&r->out, type);
}

static void end_event(realtime *r)
{
    end(&r->out, r->conn);
}

static void send_cleared(realtime *r)
{
    buffer b = {NULL, 0, 0, 0};
    begin(&b, "input_audio_buffer.cleared");
    end(&b, r->conn);
    buffer_free(&b);
}

#define INVALID_EVENT "invalid_event"
#define COMMIT_EMPTY "input_audio_buffer_commit_empty"

/* An error; may be sent by any thread of the connection. event_id: of the client's event that
 * caused it, or empty. */
static void send_error(struct mg_connection *conn, const char *code, const char *message,
                       const char *event_id)
{
    buffer b = {NULL, 0, 0, 0};
    int invalid = strcmp(code, INVALID_EVENT) == 0 || strcmp(code, COMMIT_EMPTY) == 0;
    begin(&b, "error");
    buffer_print(&b, ", \"error\": {\"type\": \"%s\", \"code\": \"%s\", "
                 "\"param\": null, \"message\": ",
                 invalid ? "invalid_request_error" : "server_error", code);
    buffer_string(&b, message, strlen(message));
    buffer_text(&b, ", \"event_id\": ");
    if (event_id[0] != '\0') {
        buffer_string(&b, event_id, strlen(event_id));
    } else {
        buffer_text(&b, "null");
    }
    buffer_text(&b, "}");
    end(&b, conn);
    buffer_free(&b);
}

static void send_close(struct mg_connection *conn, int code)
{
    char bytes[2];
    bytes[0] = (char)(code >> 8);
    bytes[1] = (char)(code & 255);
    (void)mg_websocket_write(conn, MG_WEBSOCKET_OPCODE_CONNECTION_CLOSE, bytes, sizeof bytes);
}

static void add_transcription(buffer *b, const event_settings *s)
{
    const char *at = s->keywords;
    size_t i;
    buffer_text(b, "{\"model\": ");
    buffer_string(b, options->model_name, strlen(options->model_name));
    buffer_text(b, ", \"language\": ");
    if (s->language >= 0) {
        buffer_print(b, "\"%s\"", wnpu_language_code(s->language));
    } else {
        buffer_text(b, "null");
    }
    buffer_text(b, ", \"prompt\": ");
    buffer_string(b, s->prompt, strlen(s->prompt));
    buffer_text(b, ", \"keywords\": [");
    for (i = 0; i < s->n_keywords; i++) {
        buffer_text(b, i > 0 ? ", " : "");
        buffer_string(b, at, strlen(at));
        at += strlen(at) + 1;
    }
    buffer_text(b, "]}");
}

static void add_turn_detection(buffer *b, const event_settings *s)
{
    if (s->detects) {
        buffer_print(b, "{\"type\": \"server_vad\", \"threshold\": %.2f, "
                     "\"prefix_padding_ms\": %d, \"silence_duration_ms\": %d}",
                     (double)s->threshold, (int)s->padding_ms, (int)s->silence_ms);
    } else {
        buffer_text(b, "null");
    }
}

/* The format's name in the current protocol, or in its beta version. */
static const char *format_name(const event_settings *s, int beta)
{
    switch (s->format) {
    case WNPU_SAMPLE_ULAW: return beta ? "g711_ulaw" : "audio/pcmu";
    case WNPU_SAMPLE_ALAW: return beta ? "g711_alaw" : "audio/pcma";
    default: return beta ? "pcm16" : "audio/pcm";
    }
}

/* The settings in force, as "session.updated" or the like. beta: in the form
 * of the protocol's beta version. */
static void send_settings(realtime *r, const char *verb, const event_settings *s, int beta)
{
    buffer b = {NULL, 0, 0, 0};
    char type[64];
    (void)snprintf(type, sizeof type, "%ssession.%s", beta ? "transcription_" : "", verb);
    begin(&b, type);
    buffer_print(&b, ", \"session\": {\"id\": \"sess_%06u\", "
                 "\"object\": \"realtime.transcription_session\", ", r->number);
    if (beta) {
        buffer_print(&b, "\"input_audio_format\": \"%s\", \"input_audio_transcription\": ",
                     format_name(s, beta));
    } else {
        buffer_print(&b, "\"type\": \"transcription\", \"audio\": {\"input\": {\"format\": "
                     "{\"type\": \"%s\", \"rate\": %u}, \"transcription\": ",
                     format_name(s, beta), (unsigned)s->rate);
    }
    add_transcription(&b, s);
    buffer_text(&b, ", \"turn_detection\": ");
    add_turn_detection(&b, s);
    buffer_text(&b, beta ? "" : "}}");
    buffer_text(&b, s->logprobs ? ", \"include\": [\"item.input_audio_transcription.logprobs\"]}"
                                : ", \"include\": []}");
    end(&b, r->conn);
    buffer_free(&b);
}

/* An event about the detector: speech has begun or ended at a time of the whole connection. */
static void send_speech(realtime *r, const char *type, const char *member, int64_t ms)
{
    begin_event(r, type);
    buffer_print(&r->out, ", \"item_id\": \"%s\", \"%s\": %lld", r->id, member,
                 (long long)(r->before_ms + ms));
    end_event(r);
}

/* The tokens of segments from the first on. */
static void add_logprobs(realtime *r, size_t first, size_t end)
{
    wnpu_segment s;
    size_t i, n = 0;
    if (r->logprobs) {
        buffer_text(&r->out, ", \"logprobs\": [");
        for (i = first; i < end && wnpu_get_segment(r->session, i, &s) == WNPU_OK; i++) {
            reply_logprobs(&r->out, options->model, &s, &n);
        }
        buffer_text(&r->out, "]");
    }
}

static void send_segments(realtime *r)
{
    wnpu_segment s;
    while (wnpu_get_segment(r->session, r->segments, &s) == WNPU_OK) {
        size_t skip = r->segments++ == 0 && s.text[0] == ' ';
        begin_event(r, "conversation.item.input_audio_transcription.delta");
        buffer_print(&r->out, ", \"item_id\": \"%s\", \"content_index\": 0, \"delta\": ", r->id);
        buffer_string(&r->out, s.text + skip, s.text_length - skip);
        add_logprobs(r, r->segments - 1, r->segments);
        end_event(r);
    }
}

/* An extension: text that may still change. It replaces what was sent before. */
static void send_tentative(realtime *r)
{
    wnpu_live live;
    memset(&live, 0, sizeof live);
    live.struct_size = sizeof live;
    if (wnpu_get_live(r->session, &live) == WNPU_OK) {
        begin_event(r, "conversation.item.input_audio_transcription.tentative");
        buffer_print(&r->out, ", \"item_id\": \"%s\", \"text\": ", r->id);
        buffer_string(&r->out, live.text, live.text_length);
        end_event(r);
    }
}

static void add_previous(realtime *r)
{
    buffer_print(&r->out, r->previous[0] != '\0' ? ", \"previous_item_id\": \"%s\""
                                                : ", \"previous_item_id\": null", r->previous);
}

static void send_item(realtime *r, const char *type)
{
    begin_event(r, type);
    add_previous(r);
    buffer_print(&r->out, ", \"item\": {\"id\": \"%s\", \"object\": \"realtime.item\", "
                 "\"type\": \"message\", \"status\": \"completed\", \"role\": \"user\", "
                 "\"content\": [{\"type\": \"input_audio\", \"transcript\": null}]}", r->id);
    end_event(r);
}

/* The item is complete, and its text follows. Clients wait for the one or the other name of an item
 * that is new: "created" is that of the protocol's beta version. */
static void send_committed(realtime *r)
{
    begin_event(r, "input_audio_buffer.committed");
    buffer_print(&r->out, ", \"item_id\": \"%s\"", r->id);
    add_previous(r);
    end_event(r);
    send_item(r, "conversation.item.created");
    send_item(r, "conversation.item.added");
    send_item(r, "conversation.item.done");
}

/* The whole text of an item, with its words when they were measured. */
static void send_completed(realtime *r)
{
    wnpu_segment s;
    size_t i;
    buffer text = {NULL, 0, 0, 0};
    for (i = 0; wnpu_get_segment(r->session, i, &s) == WNPU_OK; i++) {
        size_t skip = i == 0 && s.text[0] == ' ';
        (void)buffer_write(&text, s.text + skip, s.text_length - skip);
    }
    begin_event(r, "conversation.item.input_audio_transcription.completed");
    buffer_print(&r->out, ", \"item_id\": \"%s\", \"content_index\": 0, \"transcript\": ", r->id);
    buffer_string(&r->out, text.n > 0 ? text.bytes : "", text.n);
    buffer_print(&r->out, ", \"usage\": {\"type\": \"duration\", \"seconds\": %.3f}",
                 (double)r->item_ms / 1e3);
    reply_languages(&r->out, r->session);
    add_logprobs(r, 0, SIZE_MAX);
    end_event(r);
    buffer_free(&text);
}

/* ---- the run ---- */

/* The parameters of the next item's run. Its final text is decoded as that of a file; keywords
 * receives what its hotwords point to. Call with the lock. */
static wnpu_params params_of(realtime *r, const char *keywords[EVENT_KEYWORDS_MOST])
{
    const event_settings *s = &r->settings;
    wnpu_params params = options->params;
    const char *at = s->keywords;
    size_t i;
    params.language_windows = 1; /* more needs audio that has not been said yet */
    params.language = s->language != EVENT_LANGUAGE_DEFAULT ? s->language : params.language;
    if (s->n_languages > 0) {
        params.languages = s->languages;
        params.n_languages = s->n_languages;
    }
    params.initial_prompt = s->prompt[0] != '\0' ? s->prompt : params.initial_prompt;
    params.initial_prompt = request_prompt_end(options->model, params.initial_prompt);
    for (i = 0; i < s->n_keywords; i++) {
        keywords[i] = at;
        at += strlen(at) + 1;
    }
    if (s->n_keywords > 0) {
        params.hotwords = keywords;
        params.n_hotwords = s->n_keywords;
    }
    params.beam = request_beam(&params, options->max_beams);
    params.vad_threshold = s->threshold;
    params.vad_pad_ms = s->padding_ms;
    params.vad_min_silence_ms = s->silence_ms;
    return params;
}

/* Begins a live run with the settings in force. Call with the lock. */
static int begin_run(realtime *r)
{
    const char *keywords[EVENT_KEYWORDS_MOST];
    wnpu_params params = params_of(r, keywords);
    wnpu_stream_options stream;
    wnpu_stream_options_init(&stream, sizeof stream);
    stream.format = r->settings.format;
    stream.rate = r->settings.rate;
    stream.step_ms = r->settings.tentative ? TENTATIVE_MS : 0;
    return wnpu_stream_begin(r->session, &params, &stream);
}

/* Begins the live run of the next item. Call without the lock. */
static int begin_item(realtime *r)
{
    int status, refused;
    pthread_mutex_lock(&r->lock);
    status = begin_run(r);
    refused = status == WNPU_E_ARGUMENT && r->settings.n_keywords > 0;
    if (refused) {
        r->settings.n_keywords = 0;
        status = begin_run(r);
    }
    r->streaming = status == WNPU_OK;
    r->logprobs = r->settings.logprobs;
    r->width = r->settings.format == WNPU_SAMPLE_S16LE ? 2 : 1;
    r->pushed = 0;
    r->updated = r->clear = r->commit = 0;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (refused) {
        send_error(r->conn, INVALID_EVENT, "the keywords have too many tokens and are ignored", "");
    }
    r->segments = 0;
    r->speaking = r->begun = 0;
    r->item_ms = 0;
    (void)snprintf(r->id, sizeof r->id, "item_%06u_%04u", r->number, ++r->items);
    return status;
}

/* From here on, until the next item has begun, the handler of messages waits. */
static void stop_pushing(realtime *r)
{
    pthread_mutex_lock(&r->lock);
    r->streaming = 0;
    pthread_mutex_unlock(&r->lock);
}

/* Ends the item and begins the next one. */
static int finish_item(realtime *r)
{
    int status;
    stop_pushing(r);
    send_committed(r);
    status = wnpu_stream_finish(r->session);
    if (status < 0 && status != WNPU_E_FULL) {
        return status;
    }
    r->item_ms = reply_stats(r->session).audio_ms;
    send_segments(r);
    send_completed(r);
    pool_count_run(r->session);
    r->before_ms += r->item_ms;
    strcpy(r->previous, r->id);
    return begin_item(r);
}

static int forget_item(realtime *r)
{
    stop_pushing(r);
    (void)wnpu_reset(r->session);
    return begin_item(r);
}

/* Reports when speech begins and ends; at its end the item is finished. */
static int follow_speech(realtime *r, int detects)
{
    wnpu_live live;
    memset(&live, 0, sizeof live);
    live.struct_size = sizeof live;
    if (wnpu_get_live(r->session, &live) != WNPU_OK || live.speaking == r->speaking) {
        return WNPU_OK;
    }
    r->speaking = live.speaking;
    if (!detects) {
        return WNPU_OK;
    }
    if (r->speaking) {
        r->begun = 1;
        send_speech(r, "input_audio_buffer.speech_started", "audio_start_ms", live.audio_ms);
        return WNPU_OK;
    }
    send_speech(r, "input_audio_buffer.speech_stopped", "audio_end_ms", live.audio_ms);
    return finish_item(r);
}

/* Waits for samples or something to do. Returns 0 when the connection ends. */
static int wait_for_work(realtime *r)
{
    struct timespec until;
    int on;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += STEP_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&r->lock);
    if (!r->commit && !r->clear && !r->closing && !(r->settings.detects && r->budget == 0)) {
        (void)pthread_cond_timedwait(&r->changed, &r->lock, &until);
    }
    on = !r->closing && !r->watch.stop;
    pthread_mutex_unlock(&r->lock);
    return on;
}

/* Does what is due once. Returns a status of the library. */
static int work(realtime *r)
{
    int commit, clear, renew, detects, status;
    uint32_t events = 0;
    pthread_mutex_lock(&r->lock);
    commit = r->commit;
    clear = r->clear;
    renew = r->updated && r->pushed == 0;
    detects = r->settings.detects;
    pthread_mutex_unlock(&r->lock);
    if (clear || renew) {
        return forget_item(r);
    }
    status = wnpu_stream_step(r->session, &events);
    pthread_mutex_lock(&r->lock);
    r->budget = r->settings.rate / 1000 * STEP_MOST_MS;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (status != WNPU_OK) {
        return status;
    }
    send_segments(r);
    if ((events & WNPU_EVENT_TENTATIVE) != 0) {
        send_tentative(r);
    }
    return commit ? finish_item(r) : follow_speech(r, detects);
}

/* Tells the client what went wrong, and decides on the code to close the connection with. */
static close_code explain(realtime *r, pool_result taken, int status)
{
    if (taken == POOL_FULL) {
        pool_count_refusal(POOL_REFUSED_FULL);
        send_error(r->conn, "server_busy", POOL_FULL_MESSAGE, "");
        return CLOSE_TRY_LATER;
    }
    if (taken == POOL_CLOSING) {
        pool_count_refusal(POOL_REFUSED_CLOSING);
        send_error(r->conn, "server_busy", POOL_CLOSING_MESSAGE, "");
        return CLOSE_GOING_AWAY;
    }
    if (r->watch.large) {
        pool_count_refusal(POOL_REFUSED_SIZE);
        send_error(r->conn, INVALID_EVENT, LONG_EVENT, "");
        return CLOSE_TOO_BIG;
    }
    if (r->watch.expired) {
        pool_count_refusal(POOL_REFUSED_TIME);
        send_error(r->conn, "session_expired", "no event has come for too long", "");
        return CLOSE_NORMAL;
    }
    if (status < 0 && !r->watch.stop) {
        send_error(r->conn, "internal_error", wnpu_session_error(r->session), "");
        return CLOSE_FAILED;
    }
    return pool_is_closing() ? CLOSE_GOING_AWAY : CLOSE_NORMAL;
}

/* Waits for a session, and tells the client. */
static pool_result take_session(realtime *r)
{
    event_settings settings;
    pool_result taken;
    if (pool_must_wait()) {
        begin_event(r, "session.queued");
        end_event(r);
    }
    taken = pool_take(&r->watch, &r->session);
    if (taken == POOL_TAKEN) {
        pthread_mutex_lock(&r->lock);
        settings = r->settings; /* the client may have sent some already */
        pthread_mutex_unlock(&r->lock);
        send_settings(r, "created", &settings, r->beta);
    }
    return taken;
}

static void *run(void *user)
{
    realtime *r = user;
    close_code code;
    pool_result taken = take_session(r);
    int status = taken == POOL_TAKEN ? begin_item(r) : WNPU_OK;
    while (taken == POOL_TAKEN && status == WNPU_OK && wait_for_work(r)) {
        status = work(r);
        if (status == WNPU_OK && pool_is_closing()) {
            status = finish_item(r);
            break;
        }
    }
    stop_pushing(r);
    code = explain(r, taken, status);
    if (taken == POOL_TAKEN) {
        pool_give(&r->watch, r->session);
    }
    pthread_mutex_lock(&r->lock);
    if (!r->closing) {
        send_close(r->conn, (int)code);
    }
    r->closing = 1;
    watch_enter(&r->watch, WATCH_WRITING, CLOSE_MS); /* the client has that long to hang up */
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    atomic_fetch_sub(&active, 1);
    return NULL;
}

int realtime_active(void)
{
    return atomic_load(&active);
}

/* ---- messages ---- */

/* Pushes the samples at r->audio, and waits while there is no room: the client's data then waits in
 * the socket. */
static void push(realtime *r, size_t bytes)
{
    unsigned char *samples = r->audio;
    pthread_mutex_lock(&r->lock);
    while (bytes >= r->width && !r->closing) {
        size_t room = r->streaming ? wnpu_stream_room(r->session) : 0, n = bytes / r->width;
        n = n < room ? n : room;
        n = r->settings.detects && n > r->budget ? r->budget : n;
        if (n > 0 && (n = wnpu_stream_push(r->session, samples, n)) > 0) {
            samples += n * r->width;
            bytes -= n * r->width;
            r->pushed += n;
            r->budget -= n < r->budget ? n : r->budget;
        } else {
            struct timespec until;
            pthread_cond_broadcast(&r->changed);
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += 20000000L;
            until.tv_sec += until.tv_nsec / 1000000000L;
            until.tv_nsec %= 1000000000L;
            (void)pthread_cond_timedwait(&r->changed, &r->lock, &until);
        }
    }
    r->left = bytes < r->width ? bytes : 0; /* a sample may be divided between two events */
    memmove(r->audio, samples, r->left);
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* Asks the thread for something, and waits until it is done. */
static void ask(realtime *r, int *what)
{
    pthread_mutex_lock(&r->lock);
    *what = 1;
    pthread_cond_broadcast(&r->changed);
    while (*what && !r->closing) {
        pthread_cond_wait(&r->changed, &r->lock);
    }
    pthread_mutex_unlock(&r->lock);
}

/* Whether the current item has audio. */
static int has_audio(realtime *r)
{
    int has;
    pthread_mutex_lock(&r->lock);
    has = r->pushed > 0;
    pthread_mutex_unlock(&r->lock);
    return has;
}

static int is_closing(realtime *r)
{
    int closing;
    pthread_mutex_lock(&r->lock);
    closing = r->closing;
    pthread_mutex_unlock(&r->lock);
    return closing;
}

static void take_event(realtime *r)
{
    event_info info;
    pthread_mutex_lock(&r->lock);
    r->draft = r->settings;
    pthread_mutex_unlock(&r->lock);
    switch (event_read(r->message.bytes, r->message.n, &r->draft, r->audio + r->left, &info)) {
    case EVENT_APPEND: push(r, r->left + info.audio_size); break;
    case EVENT_COMMIT:
        r->left = 0;
        if (!has_audio(r)) {
            send_error(r->conn, COMMIT_EMPTY, "there is no audio to commit", info.id);
        } else {
            ask(r, &r->commit);
        }
        break;
    case EVENT_CLEAR:
        r->left = 0;
        ask(r, &r->clear);
        send_cleared(r);
        break;
    case EVENT_UPDATE:
        pthread_mutex_lock(&r->lock);
        r->settings = r->draft;
        r->updated = 1;
        pthread_cond_broadcast(&r->changed);
        while (r->updated && r->pushed == 0 && !r->closing) {
            pthread_cond_wait(&r->changed, &r->lock); /* audio behind it has the new format */
        }
        r->draft = r->settings; /* keywords may have been refused */
        pthread_mutex_unlock(&r->lock);
        send_settings(r, "updated", &r->draft, info.type[0] == 't');
        break;
    default: send_error(r->conn, INVALID_EVENT, info.problem, info.id); break;
    }
}

/* The code that answers a closing frame: the frame's own, if a client may send it. */
static int reply_code(const char *bytes, size_t n)
{
    int code = n >= 2 ? (unsigned char)bytes[0] << 8 | (unsigned char)bytes[1] : CLOSE_NORMAL;
    if (n == 1 || code < 1000 || (code >= 1004 && code <= 1006) || (code > 1014 && code < 3000) ||
        code > 4999) {
        return CLOSE_PROTOCOL;
    }
    return code;
}

/* Whether RFC 6455 forbids a frame. civetweb answers pings and drops pongs itself, and does not
 * tell whether a frame was masked. */
static int is_forbidden(const realtime *r, int bits, size_t n)
{
    int opcode = bits & 15, last = (bits & 128) != 0;
    if ((bits & 0x70) != 0) {
        return 1; /* bits of extensions, of which there are none */
    }
    switch (opcode) {
    case MG_WEBSOCKET_OPCODE_CONTINUATION: return !r->begun_message;
    case MG_WEBSOCKET_OPCODE_TEXT: case MG_WEBSOCKET_OPCODE_BINARY: return r->begun_message;
    case MG_WEBSOCKET_OPCODE_CONNECTION_CLOSE: case MG_WEBSOCKET_OPCODE_PING:
    case MG_WEBSOCKET_OPCODE_PONG: return !last || n > 125;
    default: return 1;
    }
}

/* Ends the connection because of a frame. Returns what on_message() returns then. */
static int refuse_frame(realtime *r, close_code code, const char *why)
{
    pthread_mutex_lock(&r->lock);
    if (!r->closing) {
        send_error(r->conn, INVALID_EVENT, why, "");
        send_close(r->conn, (int)code);
    }
    r->closing = 1;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return 0;
}

/* Notes that the client has sent something. Returns 0 if the connection has ended. */
static int note_activity(realtime *r, size_t n)
{
    int open;
    watch_took(&r->watch, n + 14, 2 * EVENT_MOST); /* with the frame's header */
    pthread_mutex_lock(&r->lock);
    open = !r->closing;
    if (open) {
        watch_enter(&r->watch, WATCH_WORKING, options->work_ms);
    }
    pthread_mutex_unlock(&r->lock);
    return open;
}

static int on_message(struct mg_connection *conn, int bits, char *bytes, size_t n, void *unused)
{
    realtime *r = mg_get_user_connection_data(conn);
    int opcode = bits & 15;
    (void)unused;
    if (r == NULL || !note_activity(r, n)) {
        return 0;
    }
    if (is_forbidden(r, bits, n)) {
        return refuse_frame(r, CLOSE_PROTOCOL, "the frame is not allowed by RFC 6455");
    }
    if (opcode == MG_WEBSOCKET_OPCODE_CONNECTION_CLOSE) {
        r->reply = reply_code(bytes, n);
        return 0;
    }
    if (opcode > MG_WEBSOCKET_OPCODE_BINARY) {
        return 1; /* ping and pong */
    }
    if (opcode == MG_WEBSOCKET_OPCODE_BINARY) {
        return refuse_frame(r, CLOSE_WRONG_TYPE, "events are text messages");
    }
    if (r->message.n + n > EVENT_MOST) {
        return refuse_frame(r, CLOSE_TOO_BIG, LONG_EVENT);
    }
    (void)buffer_write(&r->message, bytes, n);
    r->begun_message = (bits & 128) == 0;
    if (!r->begun_message) {
        take_event(r);
        buffer_clear(&r->message);
    }
    return !r->message.failed && !is_closing(r);
}

/* ---- connections ---- */

static void free_realtime(realtime *r)
{
    buffer_free(&r->message);
    buffer_free(&r->out);
    free(r->audio);
    (void)pthread_mutex_destroy(&r->lock);
    (void)pthread_cond_destroy(&r->changed);
    free(r);
}

/* Browsers cannot set headers: OpenAI's clients name the key as a protocol then. */
static int has_key(const struct mg_connection *conn)
{
    static const char prefix[] = "openai-insecure-api-key.";
    const char *given = mg_get_header(conn, "Authorization");
    const char *protocols = mg_get_header(conn, "Sec-WebSocket-Protocol");
    char key[512];
    if (options->api_key == NULL) {
        return 1;
    }
    if (given != NULL && strncasecmp(given, "Bearer ", 7) == 0) {
        return request_same_secret(given + 7, options->api_key);
    }
    protocols = protocols != NULL ? strstr(protocols, prefix) : NULL;
    if (protocols == NULL) {
        return 0;
    }
    protocols += strlen(prefix);
    (void)snprintf(key, sizeof key, "%.*s", (int)strcspn(protocols, ", "), protocols);
    return request_same_secret(key, options->api_key);
}

/* Pages of other sites may connect only with --cors: browsers do not ask before. */
static int is_own_page(const struct mg_connection *conn)
{
    const char *origin = mg_get_header(conn, "Origin"), *host = mg_get_header(conn, "Host");
    const char *slashes = origin != NULL ? strstr(origin, "://") : NULL;
    return origin == NULL || (slashes != NULL && host != NULL && strcmp(slashes + 3, host) == 0) ||
           (options->cors != NULL && (strcmp(options->cors, "*") == 0 ||
                                      strcmp(options->cors, origin) == 0));
}

/* Answers a request for a WebSocket with an error. Returns what makes civetweb close it. */
static int refuse(const struct mg_connection *conn, int status, pool_refusal why,
                  const char *message)
{
    pool_count_refusal(why);
    pool_count_request(status);
    (void)answer_error((struct mg_connection *)(uintptr_t)conn, API_OPENAI, status, message, NULL);
    return 1;
}

static int on_connect(const struct mg_connection *conn, void *unused)
{
    (void)unused;
    if (!has_key(conn)) {
        return refuse(conn, 401, POOL_REFUSED_KEY, "the API key is missing or wrong");
    }
    if (!is_own_page(conn)) {
        return refuse(conn, 403, POOL_REFUSED_KEY, "pages of this origin may not connect");
    }
    if (pool_is_closing()) {
        return refuse(conn, 503, POOL_REFUSED_CLOSING, POOL_CLOSING_MESSAGE);
    }
    if (pool_is_full()) {
        return refuse(conn, 503, POOL_REFUSED_FULL, POOL_FULL_MESSAGE);
    }
    return 0;
}

/* Whether a client asks for the beta version of the protocol, by a header or, in browsers, by the
 * name of a protocol. */
static int wants_beta(const struct mg_connection *conn)
{
    const char *version = mg_get_header(conn, "OpenAI-Beta");
    const char *protocols = mg_get_header(conn, "Sec-WebSocket-Protocol");
    return (version != NULL && strstr(version, "realtime=v1") != NULL) ||
           (protocols != NULL && strstr(protocols, "openai-beta.realtime-v1") != NULL);
}

/* Starts the thread of a connection. Returns 0, or -1 if there is no memory. */
static int open_realtime(realtime *r)
{
    const struct mg_request_info *info = mg_get_request_info(r->conn);
    pthread_attr_t attributes;
    int failed, room = RECEIVE_BYTES;
    r->audio = malloc(EVENT_MOST);
    if (r->audio == NULL || pthread_attr_init(&attributes) != 0) {
        return -1;
    }
    (void)pthread_attr_setstacksize(&attributes, STACK_SIZE);
    watch_add(&r->watch, watch_find_socket(info->remote_addr, info->remote_port,
                                           info->server_port), WATCH_WORKING,
              options->work_ms);
    watch_took(&r->watch, 0, 2 * EVENT_MOST);
    if (r->watch.fd >= 0) {
        (void)setsockopt(r->watch.fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    }
    atomic_fetch_add(&active, 1);
    failed = pthread_create(&r->thread, &attributes, run, r);
    (void)pthread_attr_destroy(&attributes);
    if (failed) {
        atomic_fetch_sub(&active, 1);
        watch_remove(&r->watch);
    }
    return failed ? -1 : 0;
}

static void on_ready(struct mg_connection *conn, void *unused)
{
    realtime *r = calloc(1, sizeof *r);
    (void)unused;
    if (r != NULL) {
        r->conn = conn;
        r->width = 2;
        r->beta = wants_beta(conn);
        r->number = atomic_fetch_add(&connections, 1) % 1000000 + 1;
        event_defaults(&r->settings);
        (void)pthread_mutex_init(&r->lock, NULL);
        (void)pthread_cond_init(&r->changed, NULL);
    }
    if (r == NULL || open_realtime(r) != 0) {
        send_error(conn, "server_busy", "no memory for another connection", "");
        send_close(conn, CLOSE_TRY_LATER);
        if (r != NULL) {
            free_realtime(r);
        }
        return; /* its next message ends the connection */
    }
    mg_set_user_connection_data(conn, r);
}

static void on_close(const struct mg_connection *conn, void *unused)
{
    realtime *r = mg_get_user_connection_data(conn);
    (void)unused;
    if (r == NULL) {
        return;
    }
    mg_set_user_connection_data(conn, NULL);
    pthread_mutex_lock(&r->lock);
    r->reply = r->closing ? 0 : r->reply; /* the thread has sent a closing frame already */
    r->closing = 1;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    watch_stop_one(&r->watch);
    pthread_join(r->thread, NULL);
    if (r->reply != 0) {
        send_close(r->conn, r->reply); /* the last frame, behind the thread's events */
    }
    watch_remove(&r->watch);
    free_realtime(r);
}

void realtime_register(struct mg_context *context, const http_options *given)
{
    static const char *names[] = {"realtime"};
    static struct mg_websocket_subprotocols protocols = {1, names};
    options = given;
    mg_set_websocket_handler_with_subprotocols(context, "/v1/realtime", &protocols, on_connect,
                                               on_ready, on_message, on_close, NULL);
    mg_set_websocket_handler_with_subprotocols(context, "/realtime", &protocols, on_connect,
                                               on_ready, on_message, on_close, NULL);
}
