/* server_event.h - the events that a client of OpenAI's realtime transcription sends, as JSON.
 * Reads untrusted bytes and does no input or output. Part of server. */
#ifndef SERVER_EVENT_H
#define SERVER_EVENT_H

#include "whisper_npu.h"

#include <stddef.h>
#include <stdint.h>

#define EVENT_MOST ((size_t)1 << 20) /* longest event in bytes */
#define EVENT_PROMPT_MOST 4096
#define EVENT_MODEL_MOST 128
#define EVENT_LANGUAGE_DEFAULT (-3)  /* what the server uses unless it is told */
#define EVENT_LANGUAGES_MOST 32
#define EVENT_KEYWORDS_MOST 256
#define EVENT_KEYWORDS_SIZE 8192     /* all keywords, each with its end */

typedef enum event_kind {
    EVENT_UPDATE,             /* the settings have changed */
    EVENT_APPEND,             /* audio has arrived */
    EVENT_COMMIT,             /* what was sent is complete */
    EVENT_CLEAR,              /* what was sent is to be forgotten */
    EVENT_WRONG               /* see event_info.problem */
} event_kind;

/* How soon semantic_vad ends a turn. */
typedef enum event_eagerness {
    EAGER_NONE, EAGER_LOW, EAGER_MEDIUM, EAGER_HIGH, EAGER_AUTO /* as medium */
} event_eagerness;

/* The name of one; NULL for none. */
const char *event_eagerness_name(event_eagerness eagerness);

/* What a client can set. */
typedef struct event_settings {
    int32_t format;           /* wnpu_sample_format */
    uint32_t rate;
    int detects;              /* the server finds the ends of utterances */
    int chosen;               /* the client has said whether it is to */
    int logprobs;             /* send the probability of each token */
    int tentative;            /* an extension: send text that may still change */
    float threshold;          /* of the detector, 0.05..0.95 */
    int32_t padding_ms, silence_ms;
    int32_t open_silence_ms;  /* after text that ends no sentence; at least silence_ms */
    event_eagerness eagerness; /* of semantic_vad, or none for server_vad */
    int32_t language;         /* number, WNPU_LANGUAGE_AUTO or EVENT_LANGUAGE_DEFAULT */
    int32_t script;           /* wnpu_script; any: that of the server */
    int32_t languages[EVENT_LANGUAGES_MOST]; /* without a number: those that are possible */
    size_t n_languages;       /* 0: all */
    char model[EVENT_MODEL_MOST]; /* that the client names; "" for none */
    char prompt[EVENT_PROMPT_MOST];
    char keywords[EVENT_KEYWORDS_SIZE]; /* words that are likely to occur, one NUL behind each */
    size_t n_keywords;
    int32_t commit_ms;        /* an extension: steps at which words are told while they are said, as
                                 commit_step_ms; 0: none are; -1: those of the server */
    int32_t follow;           /* an extension: as follow_words; -1: that of the server, and with
                                 tentative text 1 at least */
} event_settings;

typedef struct event_info {
    char type[64], id[64];
    char problem[160];
    size_t audio_size;        /* bytes of audio */
} event_info;

void event_defaults(event_settings *settings);
/* Whether n bytes are valid UTF-8 (RFC 3629). */
int event_is_utf8(const char *text, size_t n);
/* Reads an event of n bytes. Changes settings for UPDATE; for APPEND, writes the audio to audio,
 * which needs room for 3 bytes per 4 of the event. */
event_kind event_read(const char *text, size_t n, event_settings *settings, unsigned char *audio,
                      event_info *info);

#endif
