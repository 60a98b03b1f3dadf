/* server_realtime.c - see server_realtime.h
 *
 * The thread that receives messages also finds the turns, and divides the audio into items of the
 * conversation: the speech of a turn, or all up to a commit. Another thread decodes the items, one
 * after the other, each in a live run. It has a session only while it computes; a run that waits
 * for more audio is a snapshot.
 */
#define _XOPEN_SOURCE 700

#include "server_realtime.h"

#include "server_answer.h"
#include "server_event.h"
#include "server_item.h"
#include "server_log.h"
#include "server_models.h"
#include "server_pool.h"
#include "server_thread.h"
#include "server_turns.h"
#include "server_watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#define TICK_MS 50
#define IDLE_TICKS 20               /* after which a run without audio gives its session back */
/* An item that goes on is decoded when it has so much more audio; the others: where its text is
 * told while it is said, with and without a session. */
#define AHEAD_MS 5000
#define HELD_MS 40
#define LIVE_MS 300
/* A client that is so far ahead of its sound, which is judged after a moment, does not speak now:
 * its items are decoded as files. */
#define LEAD_MS 2000
#define MOMENT_MS 250
#define COMMIT_MS 800
#define COMMIT_LAYERS 6              /* of the encoders of tiny and base */
#define WAITING_MOST ((size_t)16 << 20) /* bytes of audio of a connection that are not decoded */
#define CLOSE_MS 5000                /* for a client to answer the server's closing frame */
#define RECEIVE_BYTES 262144         /* of the socket: what waits is not taken for a long event */

#define KEY_LENGTH 24u               /* of 16 bytes in base64 */
#define PINGS_MOST 5                 /* that a client may leave without an answer */
#define LONG_EVENT "the event is longer than 1 MB"

/* Why the server closes a connection (RFC 6455, section 7.4.1). */
typedef enum close_code {
    CLOSE_NORMAL = 1000, CLOSE_PROTOCOL = 1002, CLOSE_WRONG_TYPE = 1003,
    CLOSE_NOT_UTF8 = 1007,
    CLOSE_TOO_BIG = 1009, CLOSE_FAILED = 1011, CLOSE_RESTART = 1012, CLOSE_TRY_LATER = 1013
} close_code;

static atomic_uint connections; /* so far; ids of items are unique */
static atomic_int active;  /* connections that were not told yet that they end */
static atomic_int present; /* and those whose client has not hung up yet */
static atomic_int hurry; /* see realtime_hurry() */

typedef struct realtime {
    struct mg_connection *conn;
    client_info client;
    watch watch;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. */
    event_settings settings;  /* the client's latest */
    event_settings now;       /* those in force */
    turns turns;
    double heard_ms;          /* all audio so far */
    double begin_ms;          /* of that before the turns' first frame */
    int64_t committed;        /* with turns: frame behind the last item */
    item *item;               /* that goes on, or NULL: the last one of the list */
    item *first, **last;      /* that are not decoded yet */
    size_t waiting;           /* bytes of their audio */
    unsigned number, items;   /* the connection's number, its items so far */
    unsigned pauses;          /* of its items so far */
    char previous[32];        /* the item before */
    double lead_ms;           /* audio that the client sent faster than it can be said */
    int64_t lead_at;          /* at this time, by platform_now_ms() */
    int64_t latest_ms;        /* when the client has sent something, by platform_now_ms() */
    int pings;                /* that were sent since then */
    int closing, ending;      /* ending: no more audio is taken */
    close_code code;          /* for an error of the thread that receives; 0: none */
    buffer out;               /* its events */
    /* Of the handler of messages. */
    served *held[MODELS_MOST]; /* the models; the first is the detector's */
    size_t n_held;
    buffer message;
    int begun_message;        /* its first frame has come, and its last has not */
    event_settings draft;
    unsigned char *audio;
    size_t left;              /* bytes at audio of a sample that is not complete yet */
    int beta;                 /* the client asks for the beta version of the protocol */
    int reply;                /* code that answers the client's closing frame; 0: it sent none */
    /* Of the thread that decodes. */
    item_decoder decoder;
} realtime;

/* ---- events to the client ---- */

static void end(buffer *b, struct mg_connection *conn)
{
    buffer_text(b, "}");
    if (!b->failed) {
        (void)mg_websocket_write(conn, MG_WEBSOCKET_OPCODE_TEXT, b->bytes, b->n);
    }
}

static void send_cleared(realtime *r)
{
    buffer b = {NULL, 0, 0, 0};
    item_begin_event(&b, "input_audio_buffer.cleared");
    end(&b, r->conn);
    buffer_free(&b);
}

#define INVALID_EVENT "invalid_event"
#define MODEL_UNAVAILABLE "model_unavailable"
#define COMMIT_EMPTY "input_audio_buffer_commit_empty"

/* An error; may be sent by any thread of the connection. event_id: of the client's event that
 * caused it, or empty. */
static void send_error(struct mg_connection *conn, const char *code, const char *message,
                       const char *event_id)
{
    buffer b = {NULL, 0, 0, 0};
    int invalid = strcmp(code, INVALID_EVENT) == 0 || strcmp(code, COMMIT_EMPTY) == 0;
    item_begin_event(&b, "error");
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
    const char *at = s->keywords, *name = item_model(s)->name;
    size_t i;
    buffer_text(b, "{\"model\": ");
    buffer_string(b, name, strlen(name));
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
        const char *name = event_eagerness_name(s->eagerness);
        if (name != NULL) {
            buffer_print(b, "{\"type\": \"semantic_vad\", \"eagerness\": \"%s\"}", name);
            return;
        }
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
    item_begin_event(&b, type);
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

/* An event about a turn: speech has begun or ended at a time of the whole connection. */
static void send_speech(realtime *r, const char *id, const char *type, const char *member,
                        int64_t frame)
{
    item_begin_event(&r->out, type);
    buffer_print(&r->out, ", \"item_id\": \"%s\", \"%s\": %lld", id, member,
                 (long long)(r->begin_ms + (double)turns_ms(&r->turns, frame) + 0.5));
    end(&r->out, r->conn);
}

static void add_previous(buffer *b, const item *it)
{
    buffer_print(b, it->previous[0] != '\0' ? ", \"previous_item_id\": \"%s\""
                                           : ", \"previous_item_id\": null", it->previous);
}

static void send_item(realtime *r, const item *it, const char *type)
{
    item_begin_event(&r->out, type);
    add_previous(&r->out, it);
    buffer_print(&r->out, ", \"item\": {\"id\": \"%s\", \"object\": \"realtime.item\", "
                 "\"type\": \"message\", \"status\": \"completed\", \"role\": \"user\", "
                 "\"content\": [{\"type\": \"input_audio\", \"transcript\": null}]}", it->id);
    end(&r->out, r->conn);
}

/* The item is complete, and its text follows. Clients wait for the one or the other name of an item
 * that is new: "created" is that of the protocol's beta version. */
static void send_committed(realtime *r, const item *it)
{
    item_begin_event(&r->out, "input_audio_buffer.committed");
    buffer_print(&r->out, ", \"item_id\": \"%s\"", it->id);
    add_previous(&r->out, it);
    end(&r->out, r->conn);
    send_item(r, it, "conversation.item.created");
    send_item(r, it, "conversation.item.added");
    send_item(r, it, "conversation.item.done");
}

/* Sends an event about the text of an item. */
static void send_text(void *user, const buffer *event)
{
    realtime *r = user;
    if (!event->failed) {
        (void)mg_websocket_write(r->conn, MG_WEBSOCKET_OPCODE_TEXT, event->bytes, event->n);
    }
}

/* ---- decoding ---- */

/* Frees the first item. */
static void remove_item(realtime *r)
{
    item *it;
    pthread_mutex_lock(&r->lock);
    it = r->first;
    r->first = it->next;
    r->last = r->first != NULL ? r->last : &r->first;
    r->waiting -= it->audio.n;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    item_free(it);
}

/* Whether the end of an item is to be decoded before it is certain. Call with the lock. */
static int wants_draft(const item *it)
{
    return it->pause != 0 && it->pause != it->drafted && !it->settings.logprobs;
}

/* Whether the first item has something to be done. held: it has a session. Call with the lock. */
static int is_due(const realtime *r, int held)
{
    const item *it = r->first;
    uint32_t ms;
    if (it == NULL || it->ended || it->forgotten || wants_draft(it)) {
        return it != NULL;
    }
    ms = !item_is_live(&it->settings) ? AHEAD_MS : held ? HELD_MS : LIVE_MS;
    return platform_now_ms() >= it->opened_ms + MOMENT_MS &&
           it->audio.n >= (size_t)it->settings.rate / 1000 * ms * item_width(&it->settings);
}

/* What the thread that decodes does with an item. */
typedef enum work { WORK_TAKE, WORK_STEP, WORK_DRAFT, WORK_COMPLETE } work;

/* Finds out what is to be done, and moves audio to the run if it has a session. */
static work next_work(realtime *r, item *it, unsigned *pause)
{
    const size_t width = item_width(&it->settings);
    work next = WORK_TAKE;
    pthread_mutex_lock(&r->lock);
    if (it->ended || r->lead_ms > LEAD_MS) {
        it->settings.commit_ms = 0; /* if there is no run yet */
    }
    if (r->decoder.session != NULL) {
        r->waiting -= item_feed(&r->decoder, it);
        next = WORK_STEP;
    }
    *pause = it->pause;
    if (it->ended && it->audio.n < width) {
        next = WORK_COMPLETE;
    } else if (next == WORK_STEP && it->audio.n < width && wants_draft(it)) {
        it->drafted = it->pause;
        next = pool_is_awaited() ? WORK_STEP : WORK_DRAFT;
    }
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return next;
}

static int complete_item(realtime *r, item *it, unsigned pause)
{
    log_entry e = {r->client.address, r->client.id, "realtime", it->id, 0, 0, 0, 0, NULL,
                   NULL};
    int status = item_complete(&r->decoder, it, pause, &e);
    if (status == WNPU_OK) {
        log_request(&e);
        remove_item(r);
    }
    return status;
}

/* Decodes what there is of the first item. Returns a status of the library. */
static int decode_item(realtime *r, item *it)
{
    item_decoder *d = &r->decoder;
    unsigned pause;
    int status = WNPU_OK, more = 1, speaking = 0;
    while (status == WNPU_OK && more) {
        work next = next_work(r, it, &pause);
        if (next == WORK_COMPLETE) {
            return complete_item(r, it, pause);
        }
        status = next == WORK_TAKE    ? item_take_session(d, it)
                 : next == WORK_DRAFT ? item_make_draft(d, it, pause)
                                      : item_step(d, it, &speaking);
        pthread_mutex_lock(&r->lock);
        if (next == WORK_DRAFT && it->draft.of == pause && item_is_sentence(it)) {
            it->complete = pause;
        }
        more = !it->forgotten && !r->watch.stop &&
               (next == WORK_TAKE || is_due(r, d->session != NULL));
        pthread_mutex_unlock(&r->lock);
    }
    /* Whoever speaks will be heard again soon. */
    if (status == WNPU_OK && d->session != NULL &&
        !(item_is_live(&it->settings) && speaking && !pool_is_awaited())) {
        item_suspend(d, it);
    }
    return status;
}

/* Removes an item that the client has cleared. */
static void forget_item(realtime *r)
{
    if (r->decoder.session != NULL) {
        pool_give_back(&r->watch, r->decoder.session);
        r->decoder.session = NULL;
    }
    remove_item(r);
}

/* ---- items ---- */

/* An error of the thread that receives ends the connection. */
static void fail(realtime *r, const char *why)
{
    if (r->code == 0) {
        send_error(r->conn, "internal_error", why, "");
        r->code = CLOSE_FAILED;
        pthread_cond_broadcast(&r->changed);
    }
}

/* Steps at which words are told while they are said: an encoder run each, which small models take
 * on any computer. */
static int32_t default_commit(const http_options *o, const served *m)
{
    return o->commit_ms >= 0                     ? o->commit_ms
           : m->info.n_audio_layer <= COMMIT_LAYERS ? COMMIT_MS
                                                    : 0;
}

/* Begins the next item. Returns NULL if there is no memory. Call this and what follows with the
 * lock. */
static item *open_item(realtime *r)
{
    item *it = calloc(1, sizeof *it);
    if (it == NULL) {
        fail(r, "no memory for another item");
        return NULL;
    }
    it->opened_ms = platform_now_ms();
    it->settings = r->now;
    if (it->settings.commit_ms < 0) {
        it->settings.commit_ms = default_commit(http_options_of(r->conn), item_model(&r->now));
    }
    (void)snprintf(it->id, sizeof it->id, "item_%06u_%04u", r->number, ++r->items);
    *r->last = it;
    r->last = &it->next;
    r->item = it;
    return it;
}

static void add_audio(realtime *r, const unsigned char *samples, size_t n)
{
    (void)buffer_write(&r->item->audio, samples, n);
    r->waiting += n;
    if (r->item->audio.failed) {
        fail(r, "no memory for more audio");
    }
    if (is_due(r, 1)) { /* the other thread knows whether it has one */
        pthread_cond_broadcast(&r->changed);
    }
}

/* Adds what was heard before a frame to the item of a turn. */
static void fill_item(realtime *r, int64_t to)
{
    const unsigned char *samples;
    int64_t from = r->item->end;
    size_t n = turns_audio(&r->turns, &from, &samples);
    if (to > from) {
        n = to - from < (int64_t)n ? (size_t)(to - from) : n;
        r->item->end = from + (int64_t)n;
        add_audio(r, samples, n * r->turns.width);
    }
}

static void end_item(realtime *r)
{
    item *it = r->item;
    strcpy(it->previous, r->previous);
    strcpy(r->previous, it->id);
    send_committed(r, it);
    it->ended = 1;
    r->item = NULL;
    pthread_cond_broadcast(&r->changed);
}

static void on_turn(void *user, turn_change change, int64_t frame)
{
    realtime *r = user;
    if (change == TURN_BEGINS && open_item(r) != NULL) {
        r->item->end = frame;
        send_speech(r, r->item->id, "input_audio_buffer.speech_started", "audio_start_ms", frame);
    } else if (change == TURN_PAUSES && r->item != NULL) {
        fill_item(r, frame);
        r->item->pause = ++r->pauses;
        pthread_cond_broadcast(&r->changed);
    } else if (change == TURN_GOES_ON && r->item != NULL) {
        r->item->pause = 0;
    } else if (change == TURN_ENDS && r->item != NULL) {
        r->committed = turns_cut(&r->turns, frame);
        if (r->item->pause == 0) {
            fill_item(r, r->committed);
        }
        send_speech(r, r->item->id, "input_audio_buffer.speech_stopped", "audio_end_ms", frame);
        end_item(r);
    }
}

/* Begins to look for turns anew. */
static void begin_turns(realtime *r)
{
    r->begin_ms = r->heard_ms;
    r->committed = 0;
    if (turns_begin(&r->turns, &r->now) != WNPU_OK) {
        fail(r, wnpu_session_error(r->turns.session));
    }
}

/* Whether there is audio that belongs to no item that has ended. */
static int has_audio(const realtime *r)
{
    return r->item != NULL || (r->now.detects && r->turns.heard > r->committed);
}

/* Ends the item that goes on, or makes one of the audio so far. */
static void commit(realtime *r)
{
    if (r->item == NULL && open_item(r) != NULL) {
        r->item->end = r->committed;
    }
    if (r->item != NULL) {
        if (r->now.detects) {
            r->item->pause = 0;
            fill_item(r, r->turns.heard);
        }
        end_item(r);
    }
    begin_turns(r);
}

/* Looks for turns in audio. */
static void hear(realtime *r, const unsigned char *samples, size_t frames)
{
    size_t most = r->now.rate / 1000 * TURNS_STEP_MS, n;
    for (; frames > 0 && r->code == 0; frames -= n, samples += n * r->turns.width) {
        int status;
        n = frames < most ? frames : most;
        if (r->item != NULL && r->item->pause != 0 && r->item->complete == r->item->pause) {
            turns_hurry(&r->turns);
        }
        status = turns_hear(&r->turns, samples, n);
        r->heard_ms += (double)n * 1e3 / r->now.rate;
        if (status == WNPU_E_FULL && r->item != NULL) {
            commit(r);
        } else if (status == WNPU_E_FULL) {
            begin_turns(r);
        } else if (status != WNPU_OK) {
            fail(r, wnpu_session_error(r->turns.session));
        } else if (r->item != NULL) {
            fill_item(r, turns_certain(&r->turns));
        }
    }
}

/* Adds audio to the conversation. */
static void take_audio(realtime *r, const unsigned char *samples, size_t frames)
{
    if (r->now.detects) {
        hear(r, samples, frames);
    } else if (r->item != NULL || open_item(r) != NULL) {
        add_audio(r, samples, frames * r->turns.width);
        r->heard_ms += (double)frames * 1e3 / r->now.rate;
    }
}

static int is_other_format(const event_settings *a, const event_settings *b)
{
    return a->format != b->format || a->rate != b->rate;
}

static int is_other_detection(const event_settings *a, const event_settings *b)
{
    return is_other_format(a, b) || a->detects != b->detects || a->threshold > b->threshold ||
           a->threshold < b->threshold || a->padding_ms != b->padding_ms ||
           a->silence_ms != b->silence_ms || a->open_silence_ms != b->open_silence_ms;
}

/* Puts the client's latest settings in force, unless an item goes on with those before. */
static void refresh(realtime *r)
{
    event_settings *s = &r->settings;
    const unsigned char *samples;
    buffer kept = {NULL, 0, 0, 0};
    int64_t from = r->committed;
    if (r->item != NULL && s->detects && !r->now.detects) {
        commit(r); /* turns are looked for behind it */
    }
    if (r->item != NULL) {
        return;
    }
    if (!is_other_detection(s, &r->now)) {
        r->now = *s;
        return;
    }
    if (r->now.detects && !is_other_format(s, &r->now)) { /* what was just said is heard again */
        size_t n = turns_audio(&r->turns, &from, &samples);
        (void)buffer_write(&kept, samples, n * r->turns.width);
        r->heard_ms -= (double)n * 1e3 / s->rate;
    }
    r->left = is_other_format(s, &r->now) ? 0 : r->left;
    r->now = *s;
    begin_turns(r);
    if (kept.n > 0) {
        take_audio(r, (const unsigned char *)kept.bytes, kept.n / r->turns.width);
    }
    buffer_free(&kept);
}

/* ---- the thread that decodes ---- */

/* Tells the client what went wrong, and decides on the code to close the connection with. */
static close_code explain(realtime *r, int status)
{
    close_code code;
    pthread_mutex_lock(&r->lock);
    code = r->code;
    pthread_mutex_unlock(&r->lock);
    if (code != 0) {
        return code;
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
        send_error(r->conn, "internal_error",
                   r->decoder.session != NULL ? wnpu_session_error(r->decoder.session)
                                              : wnpu_strerror(status), "");
        return CLOSE_FAILED;
    }
    return pool_is_closing() ? CLOSE_RESTART : CLOSE_NORMAL; /* clients then connect again */
}

static void wait_tick(realtime *r)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += TICK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    (void)pthread_cond_timedwait(&r->changed, &r->lock, &until);
}

/* Waits for something to do, a tick at most: *it is NULL if there is nothing. Returns 0 when the
 * connection ends. */
static int wait_for_item(realtime *r, item **it, int *forgotten)
{
    int on;
    pthread_mutex_lock(&r->lock);
    if (pool_is_closing() && !r->ending && (r->item == NULL || atomic_load(&hurry))) {
        if (has_audio(r)) {
            commit(r);
        }
        r->ending = 1;
    }
    if (!r->closing && r->code == 0 && !r->ending && !is_due(r, r->decoder.session != NULL)) {
        wait_tick(r);
    }
    on = !r->closing && r->code == 0 && !r->watch.stop && !(r->ending && r->first == NULL);
    *it = on && is_due(r, r->decoder.session != NULL) ? r->first : NULL;
    *forgotten = *it != NULL && (*it)->forgotten;
    pthread_mutex_unlock(&r->lock);
    return on;
}

/* Finds out whether a client is there that sends nothing. Returns 0 if it does not answer. */
static int check_client(realtime *r)
{
    int pings;
    pthread_mutex_lock(&r->lock);
    pings = r->pings;
    if (platform_now_ms() - r->latest_ms > (pings + 1) * http_options_of(r->conn)->idle_ms) {
        r->pings++;
        if (pings < PINGS_MOST) {
            (void)mg_websocket_write(r->conn, MG_WEBSOCKET_OPCODE_PING, "", 0);
        }
    }
    pthread_mutex_unlock(&r->lock);
    return pings <= PINGS_MOST;
}

static void *run(void *user)
{
    realtime *r = user;
    close_code code;
    item *it;
    int status = WNPU_OK, idle = 0, forgotten;
    while (status == WNPU_OK && wait_for_item(r, &it, &forgotten) && check_client(r)) {
        idle = it != NULL ? 0 : idle + 1;
        if (forgotten) {
            forget_item(r);
        } else if (it != NULL) {
            status = decode_item(r, it);
        } else if (r->decoder.session != NULL && (idle > IDLE_TICKS || pool_is_awaited())) {
            item_suspend(&r->decoder, r->first);
        }
    }
    code = explain(r, status);
    if (r->decoder.session != NULL) {
        pool_give_back(&r->watch, r->decoder.session);
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
    return atomic_load(&present);
}

void realtime_hurry(void)
{
    atomic_store(&hurry, 1);
}

/* ---- messages ---- */

/* Notes how much audio has come. */
static void note_lead(realtime *r, double ms)
{
    int64_t now = platform_now_ms();
    r->lead_ms -= (double)(now - r->lead_at);
    r->lead_ms = ms + (r->lead_ms > 0 ? r->lead_ms : 0);
    r->lead_at = now;
}

/* Takes the samples at r->audio, and waits while there is too much that was not decoded: the
 * client's data then waits in the socket. */
static void append(realtime *r, size_t bytes)
{
    size_t n;
    pthread_mutex_lock(&r->lock);
    while (r->waiting > WAITING_MOST && !r->closing && r->code == 0) {
        wait_tick(r);
    }
    n = bytes / r->turns.width * r->turns.width; /* a sample may be divided between two events */
    if (n > 0 && !r->closing && !r->ending) {
        note_lead(r, (double)n * 1e3 / (double)r->turns.width / r->now.rate);
        take_audio(r, r->audio, n / r->turns.width);
    }
    r->left = bytes - n;
    memmove(r->audio, r->audio + n, r->left);
    refresh(r);
    pthread_mutex_unlock(&r->lock);
}

static void take_commit(realtime *r, const char *event_id)
{
    int has;
    pthread_mutex_lock(&r->lock);
    r->left = 0;
    has = has_audio(r) && !r->ending;
    if (has) {
        commit(r);
        refresh(r);
    }
    pthread_mutex_unlock(&r->lock);
    if (!has) {
        send_error(r->conn, COMMIT_EMPTY, "there is no audio to commit", event_id);
    }
}

static void take_clear(realtime *r)
{
    pthread_mutex_lock(&r->lock);
    r->left = 0;
    if (r->item != NULL) {
        r->item->forgotten = 1;
        r->item = NULL;
        pthread_cond_broadcast(&r->changed);
    }
    begin_turns(r);
    refresh(r);
    pthread_mutex_unlock(&r->lock);
    send_cleared(r);
}

/* Holds a model until the connection ends. Returns 0, or -1 with the reason in why. */
static int hold_model(realtime *r, served *m, char why[512])
{
    size_t i = 0;
    while (i < r->n_held && r->held[i] != m) {
        i++;
    }
    if (i == r->n_held && models_hold(m, why) != 0) {
        return -1;
    }
    r->held[i] = m;
    r->n_held += i == r->n_held;
    return 0;
}

/* Drops the languages that the model lacks; lacking gets their codes. Returns 0, or -1 if none is
 * left. */
static int choose_languages(event_settings *s, char lacking[REQUEST_LACKING_MOST])
{
    const wnpu_model *model = item_model(s)->model;
    size_t n = s->n_languages, kept;
    lacking[0] = '\0';
    if (n == 0) {
        return s->language < 0 ||
               request_known_languages(model, &s->language, 1, lacking) == 1 ? 0 : -1;
    }
    kept = request_known_languages(model, s->languages, n, lacking);
    s->language = kept == 1 ? s->languages[0] : s->language;
    s->n_languages = kept > 1 ? kept : 0;
    return kept > 0 ? 0 : -1;
}

static int accepts_keywords(const realtime *r)
{
    const http_options *o = http_options_of(r->conn);
    return item_accepts_keywords(&o->params, &r->draft);
}

/* Changes the settings to the draft, and tells them in the form of the protocol that was used. */
static void take_update(realtime *r, int beta, const char *event_id)
{
    char lacking[REQUEST_LACKING_MOST], why[512];
    int refused;
    if (hold_model(r, item_model(&r->draft), why) != 0) {
        send_error(r->conn, MODEL_UNAVAILABLE, why, event_id);
        return;
    }
    refused = choose_languages(&r->draft, lacking) != 0;
    if (lacking[0] != '\0') {
        (void)snprintf(why, sizeof why, "the model does not know these languages: %s", lacking);
        send_error(r->conn, INVALID_EVENT, why, event_id);
    }
    if (refused) {
        return;
    }
    if (r->draft.n_keywords > 0 && !accepts_keywords(r)) {
        r->draft.n_keywords = 0;
        send_error(r->conn, INVALID_EVENT, "the keywords have too many tokens and are ignored",
                   "");
    }
    pthread_mutex_lock(&r->lock);
    r->settings = r->draft;
    refresh(r);
    pthread_mutex_unlock(&r->lock);
    send_settings(r, "updated", &r->draft, beta);
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
    case EVENT_APPEND: append(r, r->left + info.audio_size); break;
    case EVENT_COMMIT: take_commit(r, info.id); break;
    case EVENT_CLEAR: take_clear(r); break;
    case EVENT_UPDATE: take_update(r, info.type[0] == 't', info.id); break;
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

/* Whether RFC 6455 forbids a frame. civetweb does not tell whether a frame was
 * masked. */
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
static int note_activity(realtime *r, size_t n, int is_event)
{
    int open;
    watch_took(&r->watch, n + 14, 2 * EVENT_MOST); /* with the frame's header */
    pthread_mutex_lock(&r->lock);
    open = !r->closing;
    r->latest_ms = platform_now_ms();
    r->pings = 0;
    if (open && is_event) {
        watch_enter(&r->watch, WATCH_WORKING, http_options_of(r->conn)->work_ms);
    }
    pthread_mutex_unlock(&r->lock);
    return open;
}

static int on_message(struct mg_connection *conn, int bits, char *bytes, size_t n, void *unused)
{
    realtime *r = mg_get_user_connection_data(conn);
    int opcode = bits & 15;
    (void)unused;
    if (r == NULL) {
        return 0;
    }
    if (!note_activity(r, n, opcode < MG_WEBSOCKET_OPCODE_CONNECTION_CLOSE)) {
        /* Were it closed with unread bytes, the client might not get to read our closing frame. */
        return opcode != MG_WEBSOCKET_OPCODE_CONNECTION_CLOSE;
    }
    if (is_forbidden(r, bits, n)) {
        return refuse_frame(r, CLOSE_PROTOCOL, "the frame is not allowed by RFC 6455");
    }
    if (opcode == MG_WEBSOCKET_OPCODE_CONNECTION_CLOSE) {
        r->reply = reply_code(bytes, n);
        return 0;
    }
    if (opcode == MG_WEBSOCKET_OPCODE_PING) {
        (void)mg_websocket_write(conn, MG_WEBSOCKET_OPCODE_PONG, bytes, n);
    }
    if (opcode > MG_WEBSOCKET_OPCODE_BINARY) {
        return 1;
    }
    if (opcode == MG_WEBSOCKET_OPCODE_BINARY) {
        return refuse_frame(r, CLOSE_WRONG_TYPE, "events are text messages");
    }
    if (r->message.n + n > EVENT_MOST) {
        return refuse_frame(r, CLOSE_TOO_BIG, LONG_EVENT);
    }
    (void)buffer_write(&r->message, bytes, n);
    r->begun_message = (bits & 128) == 0;
    if (!r->begun_message && !event_is_utf8(r->message.bytes, r->message.n)) {
        return refuse_frame(r, CLOSE_NOT_UTF8, "the event is not UTF-8");
    }
    if (!r->begun_message) {
        take_event(r);
        buffer_clear(&r->message);
    }
    return !r->message.failed && !is_closing(r);
}

/* ---- connections ---- */

static void free_realtime(realtime *r)
{
    while (r->first != NULL) {
        remove_item(r);
    }
    turns_close(&r->turns);
    while (r->n_held > 0) {
        models_release(r->held[--r->n_held]);
    }
    buffer_free(&r->decoder.event);
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
    const char *protocols = mg_get_header(conn, "Sec-WebSocket-Protocol");
    char key[512];
    if (answer_find_key(conn) >= 0) {
        return 1;
    }
    protocols = protocols != NULL ? strstr(protocols, prefix) : NULL;
    if (protocols == NULL) {
        return 0;
    }
    protocols += strlen(prefix);
    (void)snprintf(key, sizeof key, "%.*s", (int)strcspn(protocols, ", "), protocols);
    return keys_find(&http_options_of(conn)->keys, key) >= 0;
}

/* Each connection has one of the threads that requests need, too: a quarter of them is left. */
static int most_connections(const http_options *o)
{
    return o->connections - (o->connections + 3) / 4 + (o->connections == 1);
}

static void log_refusal(const struct mg_connection *conn, int status, const char *reason)
{
    client_info client;
    log_entry e = {client.address, client.id, "WebSocket", mg_get_request_info(conn)->local_uri,
                   status, -1, -1, 0, reason, NULL};
    (void)client_identify(conn, &client);
    log_request(&e);
}

/* Answers a request for a WebSocket with an error. Returns what makes civetweb close it. */
static int refuse(const struct mg_connection *conn, int status, pool_refusal why,
                  const char *message)
{
    pool_count_refusal(why);
    pool_count_request(status);
    log_refusal(conn, status, message);
    (void)answer_error((struct mg_connection *)(uintptr_t)conn, API_OPENAI, status, message, NULL);
    return 1;
}

static int on_connect(const struct mg_connection *conn, void *unused)
{
    const char *why = answer_distrusts(conn), *key = mg_get_header(conn, "Sec-WebSocket-Key");
    client_info client;
    (void)unused;
    if (key == NULL || strlen(key) != KEY_LENGTH) {
        return refuse(conn, 400, POOL_REFUSED_REQUEST, "the header Sec-WebSocket-Key is missing");
    }
    if (client_identify(conn, &client) != 0) {
        return refuse(conn, 403, POOL_REFUSED_KEY, "TLS is needed");
    }
    if (!has_key(conn)) {
        return refuse(conn, 401, POOL_REFUSED_KEY, "the API key is missing or wrong");
    }
    if (why != NULL) {
        return refuse(conn, 403, POOL_REFUSED_KEY, why);
    }
    if (pool_is_closing()) {
        return refuse(conn, 503, POOL_REFUSED_CLOSING, POOL_CLOSING_MESSAGE);
    }
    if (atomic_load(&active) >= most_connections(http_options_of(conn))) {
        return refuse(conn, 503, POOL_REFUSED_FULL, "there are too many realtime connections");
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

/* Opens the detector. Returns 0, or -1 if there is no memory. */
static int open_turns(realtime *r)
{
    wnpu_error error = {0, ""};
    r->turns.on_change = on_turn;
    r->turns.user = r;
    return turns_open(&r->turns, r->held[0]->model, &error) == WNPU_OK &&
           turns_begin(&r->turns, &r->now) == WNPU_OK ? 0 : -1;
}

/* Starts the thread of a connection. Returns 0, or -1 if there is no memory. */
static int open_realtime(realtime *r)
{
    const struct mg_request_info *info = mg_get_request_info(r->conn);
    int failed, room = RECEIVE_BYTES;
    r->audio = malloc(EVENT_MOST);
    if (r->audio == NULL || open_turns(r) != 0) {
        return -1;
    }
    atomic_fetch_add(&active, 1);
    pool_count_realtime(1);
    send_settings(r, "created", &r->settings, r->beta);
    watch_add(&r->watch, watch_find_socket(info->remote_addr, info->remote_port,
                                           info->server_port), WATCH_WORKING,
              http_options_of(r->conn)->work_ms);
    watch_took(&r->watch, 0, 2 * EVENT_MOST);
    if (r->watch.fd >= 0) {
        (void)setsockopt(r->watch.fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    }
    failed = thread_start(&r->thread, run, r);
    if (failed) {
        atomic_fetch_sub(&active, 1);
        pool_count_realtime(-1);
        watch_remove(&r->watch);
    }
    atomic_fetch_add(&present, !failed);
    return failed ? -1 : 0;
}

/* The model that the URL names, until an event names another. */
static void read_query(const struct mg_connection *conn, event_settings *s)
{
    const char *query = mg_get_request_info(conn)->query_string;
    if (query == NULL || mg_get_var(query, strlen(query), "model", s->model, sizeof s->model) < 0) {
        s->model[0] = '\0';
    }
}

static void open_decoder(realtime *r)
{
    const http_options *o = http_options_of(r->conn);
    r->decoder.params = &o->params;
    r->decoder.watch = &r->watch;
    r->decoder.send = send_text;
    r->decoder.user = r;
}

static void on_ready(struct mg_connection *conn, void *unused)
{
    realtime *r = calloc(1, sizeof *r);
    char why[512] = "no memory for another connection";
    int held = 0;
    (void)unused;
    if (r != NULL) {
        r->conn = conn;
        (void)client_identify(conn, &r->client);
        r->last = &r->first;
        open_decoder(r);
        r->latest_ms = platform_now_ms();
        r->beta = wants_beta(conn);
        r->number = atomic_fetch_add(&connections, 1) % 1000000 + 1;
        event_defaults(&r->settings);
        read_query(conn, &r->settings);
        r->now = r->settings;
        (void)pthread_mutex_init(&r->lock, NULL);
        (void)pthread_cond_init(&r->changed, NULL);
    }
    held = r != NULL && hold_model(r, item_model(&r->settings), why) == 0;
    if (!held || open_realtime(r) != 0) {
        send_error(conn, r != NULL && !held ? MODEL_UNAVAILABLE : "server_busy", why, "");
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
    pool_count_realtime(-1);
    free_realtime(r);
    atomic_fetch_sub(&present, 1);
}

void realtime_register(struct mg_context *context)
{
    static const char *names[] = {"realtime"};
    static struct mg_websocket_subprotocols protocols = {1, names};
    static const char *const fronts[] = HTTP_FRONTS;
    static const char *const paths[] = {"/v1/realtime", "/realtime"};
    char path[64];
    size_t i;
    for (i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        mg_set_websocket_handler_with_subprotocols(context, paths[i], &protocols, on_connect,
                                                   on_ready, on_message, on_close, NULL);
    }
    for (i = 0; i < sizeof fronts / sizeof fronts[0]; i++) {
        (void)snprintf(path, sizeof path, "%s%s", fronts[i], paths[0]);
        mg_set_websocket_handler_with_subprotocols(context, path, &protocols, on_connect, on_ready,
                                                   on_message, on_close, NULL);
    }
}
