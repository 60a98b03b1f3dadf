/* server_item.h - items of a realtime conversation: each is a piece of audio with a live run, whose
 * text is told while it is decoded. Part of server. */
#ifndef SERVER_ITEM_H
#define SERVER_ITEM_H

#include "server_event.h"
#include "server_log.h"
#include "server_models.h"
#include "server_pool.h"
#include "server_reply.h"
#include "server_watch.h"
#include "whisper_npu.h"

#include <stddef.h>
#include <stdint.h>

/* Begins an event of a type in an empty buffer. Its name is unique. */
void item_begin_event(buffer *b, const char *type);

/* The model that settings name. */
served *item_model(const event_settings *s);

/* The end of an item that is decoded before it is certain. */
typedef struct item_draft {
    unsigned of;              /* item.pause that it is for; 0: there is none */
    buffer text;              /* the whole text */
    buffer event;             /* the event that ends the item */
    int64_t audio_ms;
    int status;               /* of the library */
    pool_run run;             /* what to count */
} item_draft;

typedef struct item {
    struct item *next;
    event_settings settings;
    char id[32], previous[32];
    /* Under the lock of the connection, as long as the item goes on. */
    buffer audio;             /* what the run has not taken yet */
    int64_t end;              /* with turns: frame behind the audio that it has had */
    int64_t opened_ms;        /* when it began, by platform_now_ms() */
    unsigned pause;           /* number of a pause in which it may end; 0: it goes on */
    unsigned drafted;         /* the last one for which that was decoded, or is not to be */
    unsigned complete;        /* the last one whose text ends a sentence */
    int ended;                /* all audio is there */
    int forgotten;            /* the client has cleared it */
    /* Of the thread that decodes. */
    int32_t commit_ms;        /* of the run */
    char *snapshot;           /* or NULL */
    size_t snapshot_size;
    size_t segments;          /* whose text is in text */
    buffer text;              /* of segments */
    size_t said;              /* bytes of the item's text that were told */
    item_draft draft;
    int64_t queued_ms, computed_ms; /* so far */
} item;

/* What decodes the items of a connection. */
typedef struct item_decoder {
    const wnpu_params *params; /* that settings change */
    watch *watch;
    void (*send)(void *user, const buffer *event);
    void *user;
    wnpu_session *session;    /* or NULL */
    buffer event;
} item_decoder;

size_t item_width(const event_settings *s); /* bytes of a sample */
/* Whether the text of an item with these settings is told while it is said. */
int item_is_live(const event_settings *s);
/* Whether sessions have room for the keywords. */
int item_accepts_keywords(const wnpu_params *params, const event_settings *s);

/* Gets a session for the run of an item, unless it has one. Functions that return a status return
 * one of the library. */
int item_take_session(item_decoder *d, item *it);
/* Gives the session of an item back; its run goes on later. Without memory for a snapshot it stays
 * as it is. */
void item_suspend(item_decoder *d, item *it);
/* Moves audio of an item to its run, and returns the bytes. Call with the lock. */
size_t item_feed(item_decoder *d, item *it);
/* Steps the run as far as it goes, and tells its text. *speaking: whether somebody does. */
int item_step(item_decoder *d, item *it, int *speaking);
/* Decodes the rest of the item as if it ended here, keeps what was found for item_complete(), and
 * suspends the run, which can go on. */
int item_make_draft(item_decoder *d, item *it, unsigned pause);
/* Whether the text of the draft ends a sentence, or there is none. */
int item_is_sentence(const item *it);
/* Decodes the rest of the item, or takes the draft of this pause, and tells its text and its end.
 * Writes to *e what there is to be logged. */
int item_complete(item_decoder *d, item *it, unsigned pause, log_entry *e);
void item_free(item *it);

#endif
