/* server_request.h - what a client asks for: the fields of OpenAI's API, of whisper.cpp's server
 * and of whisper-asr-webservice as run parameters and an output format. Reads untrusted bytes and
 * does no input or output. Part of server. */
#ifndef SERVER_REQUEST_H
#define SERVER_REQUEST_H

#include "../kit/list.h"
#include "whisper_npu.h"

#include <stddef.h>
#include <stdint.h>

#define REQUEST_NAME_MOST 64         /* longest name of a field */
#define REQUEST_VALUE_MOST 16384     /* longest value of a field */
#define REQUEST_TEXT_MOST 65536      /* all prompts and keywords together */
#define REQUEST_ALIGN_MOST 131072    /* longest text whose words are to be found */
#define REQUEST_KEYWORDS_MOST 512

typedef enum request_api {
    API_OPENAI = 1,           /* /v1/audio/transcriptions and /v1/audio/translations */
    API_WHISPER_CPP = 2,      /* /inference */
    API_ASR = 4,              /* /asr and /detect-language */
    API_SPEECH = 8            /* /v1/audio/speech/timestamps, whose errors are OpenAI's */
} request_api;

/* The format of the answer. */
typedef enum request_format {
    ANSWER_JSON,              /* {"text": ...} */
    ANSWER_TEXT,
    ANSWER_VERBOSE_JSON,
    ANSWER_DIARIZED_JSON,     /* channels as speakers */
    ANSWER_VERBOSE_CPP,       /* verbose_json as whisper.cpp's server has it */
    ANSWER_WRITTEN            /* as the library writes layout.format */
} request_format;

typedef struct request {
    request_api api;
    request_format format;
    int stream;               /* server-sent events */
    int tentative;            /* an extension: events also for text that may still change */
    int async;                /* an extension: the client does not wait for the answer */
    int progress;             /* an extension: events for the wait, the progress, and a warning */
    int speakers;             /* each channel has a speaker of its own */
    int logprobs;             /* of each token, in JSON and events */
    int segments, word_list;  /* timestamp_granularities that were asked for */
    int doubt;                /* an extension: how certain the text and its words are */
    int token_times;          /* of whisper.cpp's server: 1, 0, or -1 if the client does not say */
    wnpu_write_options layout; /* of subtitles; for all that the library writes, its format; for all
                                 texts, paragraphs */
    int has_layout;
    int is_layout_chosen;     /* the client has named a limit, or none */
    int incomplete;           /* the run was ended before the end of the recording */
    int no_detection;         /* without what the detection of the language found */
    int raw;                  /* the audio has no header */
    int32_t raw_format;       /* wnpu_sample_format [S16LE] */
    uint32_t raw_rate, raw_channels; /* [16000, 1] */
    int64_t offset_ms, duration_ms; /* part of the recording; duration_ms 0: up to its end */
    char model[REQUEST_NAME_MOST * 2]; /* that the client names; "" for none */
    int max_beams;            /* of the sessions */
    wnpu_params params;
    list align;               /* lines of a known text, whose words are to be found */
    int align_extra;          /* what was said beside it is in the answer, too */
    wnpu_align_stats aligned; /* once that is done */
    char unknown[64];         /* codes of languages that there are not, with commas; may be cut */
    int32_t languages[100];   /* what params.languages points to */
    const char *keywords[REQUEST_KEYWORDS_MOST]; /* what params.hotwords points to */
    char *text;               /* the strings that these and params point to */
    size_t text_used;
    const char *wrong;        /* name of the field that was refused, or NULL; in wrong_name */
    char wrong_name[REQUEST_NAME_MOST];
    char problem[256];        /* why; one line */
    char warning[256];        /* what was left out; "" if nothing was */
} request;

/* defaults: parameters that fields change. Returns 0, or -1 if there is no memory. */
int request_init(request *r, request_api api, const wnpu_params *defaults, int max_beams);
/* Whether a field is read; others may be of any size. */
int request_knows(const request *r, const char *name);
/* Most bytes of a field's value. */
size_t request_most(const request *r, const char *name);
/* Whether of a field's value that is longer the end counts. */
int request_keeps_end(const request *r, const char *name);
/* Reads one field; value need not end with NUL. Unknown fields are ignored, as are empty values.
 * Returns 0, or -1 with the reason in problem and wrong. */
int request_field(request *r, const char *name, const char *value, size_t length);
/* Reads the fields of a URL's query, "a=b&c=d". Returns as request_field() does. */
int request_query(request *r, const char *query);
/* Call after the last field. Languages that the model lacks are dropped with a warning. Returns 0,
 * or -1 with the reason in problem and wrong if none is left. */
int request_finish(request *r, const wnpu_model *model);
void request_free(request *r);

/* The number of a language; WNPU_LANGUAGE_AUTO for "auto", and for what programs send that have
 * none to name, such as "null", "None" and "und"; else REQUEST_NO_LANGUAGE. */
#define REQUEST_NO_LANGUAGE (-2)
int32_t request_language(const char *text);

/* Keeps those of n languages that a model knows, and returns their number; lacking gets the codes
 * of the others. */
#define REQUEST_LACKING_MOST 160
size_t request_known_languages(const wnpu_model *model, int32_t *languages, size_t n,
                               char lacking[REQUEST_LACKING_MOST]);

/* Where the part of a prompt begins that fits into the model's context: OpenAI's API and
 * whisper.cpp ignore the beginning of a longer one. A word is not divided, unless there is only
 * one. prompt may be NULL. */
const char *request_prompt_end(const wnpu_model *model, const char *prompt);

/* Compares two strings in a time that depends only on the length of given. */
int request_same_secret(const char *given, const char *secret);

#endif
