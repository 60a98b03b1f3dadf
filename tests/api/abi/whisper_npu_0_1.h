/*
 * whisper_npu.h - speech to text with OpenAI's Whisper models, in two C files.
 *
 * Copy whisper_npu.h and whisper_npu.c into your tree and compile them with your own flags:
 *
 *     cc -c whisper_npu.c                    # no -march, no -ffast-math, no other source
 *     cc app.c whisper_npu.o -lm -lpthread
 *
 * npu_amdxdna.c is a third file for machines with an AMD XDNA NPU; nothing here needs it.
 *
 * THE CONTRACT
 *
 * Objects     wnpu_model is immutable once open and may be used by any number of sessions in any
 *             number of threads. wnpu_session belongs to one thread at a time. Only wnpu_cancel()
 *             may be called on a session that is busy. Close sessions before their model.
 * Ownership   The library copies what it keeps. Pointers that it returns are views: results live
 *             until the next run, wnpu_reset() or wnpu_session_close() on that session; strings
 *             of the model live as long as the model.
 * Memory      A session is one block whose exact size wnpu_session_size() tells beforehand, and
 *             which the caller may supply. After wnpu_session_open() nothing is allocated, nothing
 *             grows and no thread is created, however long the recording is.
 * One answer  The same audio, model, configuration and parameters give the same bytes of output
 *             on every instruction set, for any number of threads, with or without an accelerator.
 * Errors      Functions return WNPU_OK (0), a positive status (results are there but not whole)
 *             or a negative error. wnpu_strerror() names it; wnpu_session_error() or the wnpu_error
 *             that you passed says what was wrong and how to cure it. No input, model file or
 *             device makes the library crash, hang or lose text that was already transcribed.
 * Cancelling  wnpu_cancel() from any thread or signal handler. Results so far stay readable and the
 *             session stays usable.
 * Threads     One pool per session, asleep when idle; or your own parallel-for; or one thread.
 * Clean hands No globals, environment, locale, signals, output, exit() or abort().
 * ABI         Structures that you fill carry their own size. Fill them with their _init function
 *             first, then change fields: a newer library then works with an older header.
 * Times       Milliseconds of the recording's own clock, from its first sample, as int64_t.
 * Text        Always whole, valid UTF-8, NUL-terminated.
 */
#ifndef WHISPER_NPU_H
#define WHISPER_NPU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef WNPU_API
#define WNPU_API
#endif

#define WNPU_VERSION_MAJOR 0
#define WNPU_VERSION_MINOR 1
#define WNPU_VERSION_PATCH 0

/* ---------------------------------------------------------------- status and errors ---- */

typedef enum wnpu_status {
    WNPU_OK = 0,
    WNPU_INCOMPLETE = 1,      /* results are valid, but part of the audio is unresolved */
    WNPU_E_ARGUMENT = -1,     /* a parameter is out of range or contradicts another */
    WNPU_E_MEMORY = -2,       /* an allocation failed, or supplied memory is too small */
    WNPU_E_IO = -3,           /* a read or write callback, or the file system, failed */
    WNPU_E_MODEL = -4,        /* the model file is damaged, truncated or of another kind */
    WNPU_E_AUDIO = -5,        /* the audio is damaged or of an unknown format */
    WNPU_E_CANCELLED = -6,    /* wnpu_cancel(), or a callback asked to stop */
    WNPU_E_UNSUPPORTED = -7,  /* legal, but not something this build, CPU or model can do */
    WNPU_E_STATE = -8,        /* wrong order of calls, or the session is busy */
    WNPU_E_FULL = -9,         /* the session's result store is full; results so far are kept */
    WNPU_E_ACCEL = -10,       /* an accelerator was required and could not do its part */
    WNPU_E_VERSION = -11,     /* a structure asks for something this library does not know */
    WNPU_E_INTERNAL = -12     /* a broken invariant: please report it */
} wnpu_status;

/* Where a function that has no session yet leaves its reason. May be NULL everywhere. */
typedef struct wnpu_error {
    int code;                 /* a wnpu_status */
    char message[252];        /* cause and cure, one line of UTF-8, no newline */
} wnpu_error;

/* Version of the library as MAJOR * 10000 + MINOR * 100 + PATCH. */
WNPU_API uint32_t wnpu_version(void);

/* A short name for a wnpu_status; never NULL, static storage. */
WNPU_API const char *wnpu_strerror(int code);

/* ---------------------------------------------------------------- memory and logging ---- */

/* Used only inside wnpu_model_open*() and wnpu_session_open(). alignment is a power of two up to
 * 4096. alloc returns NULL when it has no memory; release gets the size that was asked for. */
typedef struct wnpu_allocator {
    void *(*alloc)(void *user, size_t size, size_t alignment);
    void (*release)(void *user, void *memory, size_t size);
    void *user;
} wnpu_allocator;

typedef enum wnpu_log_level {
    WNPU_LOG_ERROR = 0,
    WNPU_LOG_WARNING = 1,
    WNPU_LOG_INFO = 2,
    WNPU_LOG_DEBUG = 3
} wnpu_log_level;

/* text is one line without newline, valid during the call. */
typedef void (*wnpu_log_fn)(void *user, wnpu_log_level level, const char *text);

/* ---------------------------------------------------------------- instruction sets ---- */

typedef enum wnpu_isa {
    WNPU_ISA_AUTO = 0,        /* the fastest that this CPU has */
    WNPU_ISA_SCALAR = 1,      /* plain C; the definition of every result */
    WNPU_ISA_SSE41 = 2,
    WNPU_ISA_AVX2 = 3,
    WNPU_ISA_AVX512 = 4,      /* AVX-512 F, BW, VL and VNNI */
    WNPU_ISA_NEON = 5,        /* AArch64 Advanced SIMD */
    WNPU_ISA_NEON_DOT = 6,    /* with the dot product instructions */
    WNPU_ISA_NEON_I8MM = 7    /* with the int8 matrix instructions */
} wnpu_isa;

/* 1 when this CPU and build can run isa, else 0. AUTO is always available. */
WNPU_API int wnpu_isa_available(wnpu_isa isa);
/* "auto", "scalar", "sse4.1", "avx2", "avx512", "neon", "neon-dot", "neon-i8mm"; NULL: unknown. */
WNPU_API const char *wnpu_isa_name(wnpu_isa isa);
/* The other way round; -1 if unknown. */
WNPU_API int wnpu_isa_from_name(const char *name);

/* ---------------------------------------------------------------- models ---- */

typedef struct wnpu_model wnpu_model;

/* Random access to a model's bytes. read copies up to size bytes from offset and returns how many
 * (short reads are legal), 0 at the end, or a negative number on failure. */
typedef struct wnpu_source {
    int64_t (*read)(void *user, uint64_t offset, void *buffer, size_t size);
    uint64_t size;            /* total bytes */
    void *user;
} wnpu_source;

typedef struct wnpu_model_config {
    uint32_t struct_size;     /* set by wnpu_model_config_init() */
    uint32_t keep_float;      /* 1: also keep float32 weights, for WNPU_COMPUTE_FLOAT; default 0 */
    const wnpu_allocator *allocator; /* NULL: malloc and free. Must outlive the model */
    wnpu_log_fn log;          /* NULL: silent. Called only while opening */
    void *log_user;
} wnpu_model_config;

WNPU_API void wnpu_model_config_init(wnpu_model_config *config, size_t struct_size);

/* Opens a ggml Whisper model (f32, f16, q4_0, q4_1, q5_0, q5_1, q8_0 tensors). Weights are turned
 * into INT8 with one scale per output channel. config may be NULL for defaults. On success *model
 * is set and must be closed with wnpu_model_close(); on failure it is set to NULL.
 * Errors: E_ARGUMENT, E_IO, E_MODEL, E_MEMORY, E_UNSUPPORTED, E_VERSION. */
WNPU_API int wnpu_model_open(wnpu_model **model, const char *path,
                             const wnpu_model_config *config, wnpu_error *error);
/* The same from memory; data is not needed after the call. */
WNPU_API int wnpu_model_open_memory(wnpu_model **model, const void *data, size_t size,
                                    const wnpu_model_config *config, wnpu_error *error);
/* The same through read callbacks; source is not needed after the call. */
WNPU_API int wnpu_model_open_source(wnpu_model **model, const wnpu_source *source,
                                    const wnpu_model_config *config, wnpu_error *error);
/* NULL is allowed. All sessions of the model must be closed before. */
WNPU_API void wnpu_model_close(wnpu_model *model);

typedef struct wnpu_model_info {
    uint32_t struct_size;     /* set by the caller: sizeof(wnpu_model_info) */
    int32_t n_vocab;          /* 51864 (.en), 51865 (multilingual) or 51866 (large-v3, turbo) */
    int32_t n_audio_ctx;      /* encoder positions, 1500 */
    int32_t n_audio_state, n_audio_head, n_audio_layer;
    int32_t n_text_ctx;       /* decoder positions, 448 */
    int32_t n_text_state, n_text_head, n_text_layer;
    int32_t n_mels;           /* 80 or 128 */
    int32_t multilingual;     /* 0 or 1 */
    int32_t n_languages;      /* 0 (.en), 99 or 100 */
    int32_t has_float;        /* float32 weights were kept */
    uint64_t bytes;           /* memory that the model holds */
    const char *name;         /* "tiny", "base.en", "large-v3", "turbo", ... or "custom" */
    const char *weight_type;  /* type of most tensors in the file: "f16", "q5_0", ... */
} wnpu_model_info;

/* Errors: E_ARGUMENT. */
WNPU_API int wnpu_model_get_info(const wnpu_model *model, wnpu_model_info *info);

/* ---------------------------------------------------------------- tokens and languages ---- */

/* Languages are numbered as in OpenAI's tokenizer: 0 is English, 99 Cantonese. */
WNPU_API int wnpu_language_count(void);                    /* 100 */
WNPU_API const char *wnpu_language_code(int language);     /* "en"; NULL out of range */
WNPU_API const char *wnpu_language_name(int language);     /* "english"; NULL out of range */
/* Code, English name or usual other name, any case ("de", "German", "castilian"); -1 if unknown. */
WNPU_API int wnpu_language_id(const char *code_or_name);

/* The bytes that a token stands for (not necessarily whole UTF-8: a character may span tokens),
 * or for special tokens their name, such as "<|en|>" or "<|2.40|>". *length gets the byte count
 * and may be NULL. NULL out of range. */
WNPU_API const char *wnpu_token_text(const wnpu_model *model, int32_t token, size_t *length);

/* Byte-level BPE of text (length bytes, any bytes) without special tokens. Writes up to capacity
 * ids and returns how many the text needs, or E_ARGUMENT, or E_UNSUPPORTED for a vocabulary that
 * lacks single bytes. tokens may be NULL when
 * capacity is 0. Uses no heap. */
WNPU_API int64_t wnpu_tokenize(const wnpu_model *model, const char *text, size_t length,
                               int32_t *tokens, size_t capacity);

/* ---------------------------------------------------------------- audio ---- */

typedef enum wnpu_sample_format {
    WNPU_SAMPLE_F32 = 0,      /* native float, full scale -1..1 */
    WNPU_SAMPLE_S16 = 1,      /* native int16_t */
    /* The rest are little-endian bytes, as WAV files hold them: */
    WNPU_SAMPLE_U8 = 2,
    WNPU_SAMPLE_S16LE = 3,
    WNPU_SAMPLE_S24LE = 4,    /* packed in three bytes */
    WNPU_SAMPLE_S32LE = 5,
    WNPU_SAMPLE_F32LE = 6,
    WNPU_SAMPLE_F64LE = 7,
    WNPU_SAMPLE_ALAW = 8,     /* G.711 */
    WNPU_SAMPLE_ULAW = 9      /* G.711 */
} wnpu_sample_format;

#define WNPU_CHANNEL_MIX (-1)

/* A recording, held in memory or pulled through read. Samples are interleaved; a frame is one
 * sample of each channel. Any length from no frames to 24 hours and beyond is legal. Samples that
 * are NaN or infinite count as 0, others are limited to -4..4. */
typedef struct wnpu_audio {
    uint32_t struct_size;     /* set by wnpu_audio_init() */
    int32_t format;           /* wnpu_sample_format; default F32 */
    uint32_t rate;            /* 8000..192000 frames per second; default 16000 */
    uint32_t channels;        /* 1..256; default 1 */
    int32_t channel;          /* 0..channels-1, or WNPU_CHANNEL_MIX for the mean; default mix. In
                                 memory, channels that cancel (mean 30 dB below the loudest) are
                                 noticed, and the loudest is taken */
    const void *data;         /* frames * channels samples; any alignment; NULL when read is set */
    uint64_t frames;          /* with read: the total if known, else 0; for progress only */
    /* Copies up to max_frames frames into buffer and returns how many, 0 at the end, or a negative
     * number on failure (the run then ends with E_IO and keeps its results). Called in the thread
     * of the run; may block. */
    int64_t (*read)(void *user, void *buffer, size_t max_frames);
    void *user;
} wnpu_audio;

WNPU_API void wnpu_audio_init(wnpu_audio *audio, size_t struct_size);

/* Understands a WAV file (RIFF, RIFX is refused, RF64; PCM 8 to 32 bit, float 32 and 64, A-law,
 * u-law; WAVE_FORMAT_EXTENSIBLE; unknown chunks, odd chunk sizes, missing or wrong data sizes) held
 * in memory, and fills *audio, which must have seen wnpu_audio_init(); its data then points into
 * the buffer. Reads nothing outside data[0..size-1]. Errors: E_AUDIO with a reason, E_ARGUMENT. */
WNPU_API int wnpu_wav_open(wnpu_audio *audio, const void *data, size_t size, wnpu_error *error);

/* ---------------------------------------------------------------- results ---- */

typedef struct wnpu_token {
    int32_t id;
    float probability;        /* of this token given all before it, after the logit rules, 0..1 */
    int64_t t0_ms, t1_ms;     /* inside the segment. With words: where the path of the alignment
                                 enters and leaves the token, which is less exact than the times
                                 of words. Without: an estimate by text length */
} wnpu_token;

typedef struct wnpu_segment {
    int64_t t0_ms, t1_ms;     /* 0 <= t0_ms <= t1_ms <= duration */
    const char *text;         /* usually begins with a space, as the model writes it */
    size_t text_length;       /* bytes */
    const wnpu_token *tokens; /* text tokens only, no special ones */
    size_t n_tokens;
    int32_t language;         /* number of the language, 0 = English */
    int32_t window;           /* number of the window that produced it, from 0 */
    float mean_logprob;       /* of the window's tokens, natural logarithm */
    float no_speech;          /* probability of <|nospeech|> in the window, 0..1 */
} wnpu_segment;

/* A word with the blank and the punctuation that belong to it, when wnpu_params.words asks for
 * words. In languages that are written without spaces (Chinese, Cantonese, Japanese, Thai, Lao,
 * Burmese) a character or the few that a token stands for. The words of a segment, one behind the
 * other, are its text. Times are measured by the method of OpenAI's timing.py: dynamic time warping
 * over the attention of those of the decoder's heads that follow the sound. What is known of the
 * lag of these heads is then made up for, and beside pauses that can be heard words begin and end
 * where the speech does. See README. */
typedef struct wnpu_word {
    uint32_t struct_size;     /* set by the caller: sizeof(wnpu_word) */
    float probability;        /* mean over its tokens, 0..1; joined punctuation does not count */
    int64_t t0_ms, t1_ms;     /* inside the segment, not before the end of the word before */
    const char *text;         /* usually begins with a space */
    size_t text_length;       /* bytes */
    size_t first_token;       /* index into the segment's tokens */
    size_t n_tokens;
} wnpu_word;

/* What happened in the last run. Milliseconds are wall time. */
typedef struct wnpu_stats {
    uint32_t struct_size;     /* set by the caller: sizeof(wnpu_stats) */
    int32_t isa;              /* wnpu_isa in use */
    int32_t threads;          /* threads that work, the caller's included */
    int32_t language;         /* detected or given */
    float language_probability; /* 1 when given */
    uint32_t windows;         /* encoder runs */
    uint32_t tokens;          /* decoder steps that chose a token */
    uint32_t prompt_tokens;   /* decoder positions fed as prompts */
    int64_t audio_ms;         /* length of the recording as read so far */
    double total_ms;
    double audio_in_ms;       /* reading, conversion, resampling */
    double log_mel_ms;
    double encoder_ms;
    double cross_ms;          /* cross-attention keys and values */
    double decoder_ms;        /* steps and prompts, with the logit rules and the search */
} wnpu_stats;

/* ---------------------------------------------------------------- sessions ---- */

typedef struct wnpu_session wnpu_session;
typedef struct wnpu_accel wnpu_accel; /* see the accelerator chapter below */

typedef enum wnpu_compute {
    WNPU_COMPUTE_INT8 = 0,
    WNPU_COMPUTE_FLOAT = 1    /* float32 reference; the model must have been opened with
                                 keep_float. Slow: for tests and comparison */
} wnpu_compute;

/* Runs task(context, i) once for each i in 0..count-1, in any order and any threads, and returns
 * when all are done. Must not fail. */
typedef void (*wnpu_parallel_for_fn)(void *user, size_t count,
                                     void (*task)(void *context, size_t index), void *context);

/* Which products a session gives to its accelerator. The output is the same. */
typedef enum wnpu_accel_use {
    WNPU_ACCEL_FASTER = 0,    /* those that it is expected to do faster than the CPU */
    WNPU_ACCEL_ALL = 1        /* all that can be cut to its shapes */
} wnpu_accel_use;

/* What is fixed while a session is open. */
typedef struct wnpu_config {
    uint32_t struct_size;     /* set by wnpu_config_init() */
    uint32_t threads;         /* 1..64; 0 (default): one per online CPU, at most 8 */
    int32_t compute;          /* wnpu_compute; default INT8 */
    int32_t isa;              /* wnpu_isa; default AUTO. E_UNSUPPORTED if the CPU lacks it */
    uint64_t result_bytes;    /* store for text, tokens and segments of one run; 64 KiB..1 GiB;
                                 default 8 MiB, about a day of speech. See E_FULL */
    wnpu_parallel_for_fn parallel_for; /* NULL (default): own pool */
    void *parallel_user;
    wnpu_accel *accel;        /* NULL (default): CPU only. Stays the caller's and outlives the
                                 session. See "How sessions use it" in the accelerator chapter */
    uint32_t require_accel;   /* 1: no silent run on the CPU. Opening fails with E_ACCEL when
                                 nothing would run on accel; a run ends with E_ACCEL after the
                                 window in which the CPU had to do a product that accel should
                                 have done, and keeps that window's text, which is right */
    uint32_t accel_use;       /* wnpu_accel_use [FASTER] */
    const wnpu_allocator *allocator; /* NULL: malloc and free; unused with supplied memory */
    wnpu_log_fn log;          /* NULL: silent. Called in the thread of the run */
    void *log_user;
} wnpu_config;

WNPU_API void wnpu_config_init(wnpu_config *config, size_t struct_size);

/* Exact bytes that a session with this configuration takes, apart from thread stacks. 0 on error,
 * with the reason in *error. Pure: same arguments, same answer. config may be NULL. */
WNPU_API size_t wnpu_session_size(const wnpu_model *model, const wnpu_config *config,
                                  wnpu_error *error);

typedef struct wnpu_accel_info wnpu_accel_info;

/* Bytes of weights that opening a session with this configuration puts into the accelerator's
 * memory, on top of what that holds already (its memory_fixed); they are given back when the
 * session is closed. info NULL: for config->accel. Else for an accelerator that need not exist
 * yet, with these shapes and max_chain (say, from wnpu_amdxdna_memory(); its costs are unknown
 * then, and once it is open and has measured them it may be used otherwise: ask again). 0 with
 * error->code WNPU_OK: nothing would run there. 0 on error, with the reason in *error. Pure. */
WNPU_API uint64_t wnpu_session_accel_bytes(const wnpu_model *model, const wnpu_config *config,
                                           const wnpu_accel_info *info, wnpu_error *error);

/* memory: NULL to use the allocator, else size >= wnpu_session_size() bytes, aligned to 64, that
 * stay the session's until it is closed. On failure *session is NULL.
 * Errors: E_ARGUMENT, E_MEMORY, E_UNSUPPORTED, E_ACCEL, E_VERSION. */
WNPU_API int wnpu_session_open(wnpu_session **session, const wnpu_model *model,
                               const wnpu_config *config, void *memory, size_t size,
                               wnpu_error *error);
/* Wipes audio and text, ends the threads, gives the memory back. NULL is allowed. */
WNPU_API void wnpu_session_close(wnpu_session *session);
/* Forgets results and wipes audio and text. Errors: E_ARGUMENT, E_STATE while busy. */
WNPU_API int wnpu_reset(wnpu_session *session);
/* Stops the run in progress soon: it returns E_CANCELLED with its results kept. Safe from any
 * thread and from signal handlers. Without a run in progress it does nothing. */
WNPU_API void wnpu_cancel(wnpu_session *session);
/* Cause and cure of the last error of this session; "" if none. Valid until the next call. */
WNPU_API const char *wnpu_session_error(const wnpu_session *session);

/* ---------------------------------------------------------------- runs ---- */

typedef enum wnpu_task { WNPU_TRANSCRIBE = 0, WNPU_TRANSLATE = 1 } wnpu_task;

#define WNPU_LANGUAGE_AUTO (-1)

/* A run is a function of model, configuration, audio and these parameters. Defaults in brackets. */
typedef struct wnpu_params {
    uint32_t struct_size;     /* set by wnpu_params_init() */
    int32_t task;             /* wnpu_task [transcribe]; translate needs a multilingual model */
    int32_t language;         /* a language's number, or WNPU_LANGUAGE_AUTO [auto]; .en: English */
    int32_t timestamps;       /* 1: segments by the model's timestamp tokens [1]; 0: one segment
                                 a window, <|notimestamps|> */
    int32_t suppress_blank;   /* no blank and no end of text as first token [1] */
    int32_t suppress_non_speech; /* OpenAI's list of symbols that are not spoken [1] */
    const int32_t *suppress;  /* further tokens never to choose [NULL] */
    size_t n_suppress;
    int32_t max_initial_timestamp_ms; /* first timestamp of a window at most, 0..30000 [1000] */
    int32_t max_tokens;       /* per window, 1..224; 0: half the text context [0] */
    int32_t condition_on_previous; /* feed the text of the window before as prompt [0] */
    /* A window is taken for silence when the probability of <|nospeech|> is above the first and
     * the mean log-probability of its tokens below the second, as in OpenAI's transcribe(). */
    float no_speech_threshold; /* [0.6]; 1 or more switches the rule off */
    float logprob_threshold;  /* [-1.0] */
    int32_t reserved;         /* 0 */
    const char *initial_prompt; /* UTF-8 that the first window is to follow [NULL] */
    /* Each segment as soon as it is final. The view is valid during the call; the same segment
     * stays readable by wnpu_get_segment(). A non-zero answer cancels. */
    int (*on_segment)(void *user, const wnpu_segment *segment);
    /* Audio done so far and in total (total -1 if unknown). A non-zero answer cancels. */
    int (*on_progress)(void *user, int64_t done_ms, int64_t total_ms);
    void *user;
    int32_t words;            /* 1: times of words and tokens are measured, and segments begin and
                                 end with their words. Costs a pass over the text of each window;
                                 changes no text [0] */
} wnpu_params;

WNPU_API void wnpu_params_init(wnpu_params *params, size_t struct_size);

/* Transcribes a whole recording in the calling thread. params may be NULL for defaults. Results of
 * the run before are forgotten. Returns WNPU_OK, or a negative error; whatever was transcribed
 * before an error stays readable. Errors: E_ARGUMENT, E_STATE, E_IO, E_CANCELLED, E_FULL, E_ACCEL,
 * E_VERSION. */
WNPU_API int wnpu_transcribe(wnpu_session *session, const wnpu_params *params,
                             const wnpu_audio *audio);

/* Probabilities of all languages from the first 30 s. probabilities (may be NULL) gets count
 * entries, the rest of them 0 beyond the model's languages. Returns the most probable language's
 * number or a negative error; E_UNSUPPORTED for .en models. Results of the run before are
 * forgotten. */
WNPU_API int wnpu_detect_language(wnpu_session *session, const wnpu_audio *audio,
                                  float *probabilities, size_t count);

WNPU_API size_t wnpu_segment_count(const wnpu_session *session);
/* Errors: E_ARGUMENT. The pointers inside are views, see "Ownership". */
WNPU_API int wnpu_get_segment(const wnpu_session *session, size_t index, wnpu_segment *segment);
/* Words of a segment; 0 if there is no such segment, or wnpu_params.words was 0. */
WNPU_API size_t wnpu_word_count(const wnpu_session *session, size_t segment);
/* Errors: E_ARGUMENT. word->text is a view, see "Ownership". */
WNPU_API int wnpu_get_word(const wnpu_session *session, size_t segment, size_t index,
                           wnpu_word *word);
WNPU_API int wnpu_get_stats(const wnpu_session *session, wnpu_stats *stats);

/* What the accelerator did in the last run. All zero and "" without one. */
typedef struct wnpu_accel_stats {
    uint32_t struct_size;     /* set by the caller: sizeof(wnpu_accel_stats) */
    int32_t health;           /* wnpu_accel_health at the end */
    uint32_t windows;         /* encoder runs */
    uint32_t windows_without; /* of them without the accelerator: it was set aside or busy */
    uint32_t fallbacks;       /* products of a chunk of rows that the CPU had to do, in part or
                                 whole, though they were planned for the accelerator */
    uint32_t wrong;           /* of them because of a wrong checksum */
    uint32_t probes;          /* attempts to get it back */
    uint32_t chunk_rows;      /* encoder positions that travel together, of 1500 */
    uint64_t resident_bytes;  /* of this session's weights */
    uint64_t macs;            /* multiply-accumulates of the encoder's and cross-attention's
                                 products and of the encoder's attention */
    uint64_t accel_macs;      /* of them done by the accelerator, with the right checksum */
    const char *name;         /* of the accelerator; lives as long as it */
    char first_reason[192];   /* why the first fallback happened; "" if none */
} wnpu_accel_stats;

/* Errors: E_ARGUMENT. */
WNPU_API int wnpu_get_accel_stats(const wnpu_session *session, wnpu_accel_stats *stats);

/* The same for one kind of work. Milliseconds are wall time of the session's thread. */
typedef struct wnpu_accel_stage {
    uint32_t struct_size;     /* set by the caller: sizeof(wnpu_accel_stage) */
    int32_t planned;          /* 1: planned for the accelerator */
    const char *name;         /* "conv1", "conv2", "qkv", "attention", "attn_out", "fc1", "fc2",
                                 "cross_kv"; static storage */
    uint64_t macs;            /* multiply-accumulates in all */
    uint64_t accel_macs;      /* done by the accelerator, with the right checksum */
    uint64_t fallback_macs;   /* planned for the accelerator but done by the CPU; the rest was the
                                 CPU's by plan */
    uint64_t padded_macs;     /* what the accelerator computed for its share, padding included */
    uint64_t jobs;            /* submitted by the library */
    uint64_t submissions, waits; /* that became calls of the driver */
    uint64_t bytes_in, bytes_out; /* to and from the accelerator's memory */
    double busy_ms;           /* of its jobs, from submission to completion; they overlap */
    double waited_ms;         /* in which the CPU had nothing to do but wait */
    double cpu_ms;            /* CPU's share: quantise, check, dequantise, attend, multiply. Windows
                                 without the accelerator are not in it but in wnpu_stats */
} wnpu_accel_stage;

/* index counts from 0. Errors: E_ARGUMENT, also for an index past the last stage (of 8) and for a
 * session without accelerator. */
WNPU_API int wnpu_get_accel_stage(const wnpu_session *session, size_t index,
                                  wnpu_accel_stage *stage);

typedef enum wnpu_format {
    WNPU_FORMAT_TXT = 0,      /* one line a segment */
    WNPU_FORMAT_SRT = 1,
    WNPU_FORMAT_VTT = 2,
    WNPU_FORMAT_TSV = 3,      /* start, end in milliseconds, text */
    WNPU_FORMAT_JSON = 4      /* everything, tokens included; one object and a newline */
} wnpu_format;

/* Returns how many of size bytes it took (short writes are legal), or a negative number. */
typedef int64_t (*wnpu_write_fn)(void *user, const void *data, size_t size);

/* Writes the results of the last run. Errors: E_ARGUMENT, E_IO. */
WNPU_API int wnpu_write(const wnpu_session *session, wnpu_format format, wnpu_write_fn write,
                        void *user);

/* ================================================================ the accelerator seam ====
 *
 * For authors of accelerators; applications only pass a wnpu_accel * from an opening function
 * such as wnpu_amdxdna_open() to wnpu_config.accel.
 *
 * An accelerator multiplies int8 matrices exactly: C[M,N] = A[M,K] * B[N,K]^T with int32
 * accumulation. It is right or wrong, never close: the library checks results and computes a
 * block itself when anything fails, so the text cannot change. All functions are called from one
 * thread at a time, not always the same. Only wait, probe and close may wait for the device.
 *
 * How sessions use it  Opening a session puts the weights of the encoder's matrix products and of
 *             the cross-attention's keys and values into the accelerator's memory, closing it takes
 *             them out. Rows travel in a few chunks, so that CPU and accelerator work at the same
 *             time. Every row that comes back has to fit its checksum; one that does not, and
 *             every job that fails, is computed by the CPU from the same integers.
 * Sharing     Sessions of any threads may share an accelerator. It serves one window at a time: a
 *             session that finds it busy computes its window on the CPU, or waits with
 *             require_accel. Opening and closing sessions waits for its turn.
 * Waiting     At most 1 s for a job, usually far less, then the job is given up. wnpu_cancel() is
 *             obeyed after the jobs in flight.
 * Health      When it is OK a window uses it; when it is PROBE, probe() gets up to 500 ms before
 *             the next window; else windows run on the CPU.
 * Privacy     wnpu_reset() cannot wipe the accelerator's memory: it holds numbers of the last
 *             window until the accelerator is closed.
 */

/* One product that the accelerator can do. Smaller ones fit too: see wnpu_accel_product. Shapes and
 * products come as arrays, so these two structures will never change. */
typedef struct wnpu_accel_shape {
    uint32_t m, n, k;         /* C is [m, n], A is [m, k], B is [n, k] */
    uint32_t group;           /* all products of one job must be of one group; a change of group
                                 between jobs may cost a context switch */
    uint64_t resident_bytes;  /* device memory that one resident weight of this shape takes */
    double cost_us;           /* measured: one product submitted alone; 0 if unknown */
    double chained_us;        /* measured: each further product of a job; 0 if unknown */
} wnpu_accel_shape;

struct wnpu_accel_info {
    uint32_t struct_size;     /* set by the caller */
    uint32_t n_shapes;
    const wnpu_accel_shape *shapes; /* lives as long as the accelerator */
    uint32_t max_in_flight;   /* jobs that may be submitted and not yet waited for */
    uint32_t max_chain;       /* products in one job */
    uint64_t memory_fixed;    /* bytes locked by opening; weights come on top */
    uint64_t memory_limit;    /* bytes that may be locked in all; 0: no limit is known */
    const char *name;         /* lives as long as the accelerator */
};

/* One product of a job. b is a resident weight, whose own n and k count; only m is given here. The
 * accelerator pads: rows beyond m and columns beyond n are neither read nor written. */
typedef struct wnpu_accel_product {
    uint32_t shape;           /* index into wnpu_accel_info.shapes */
    uint32_t m;               /* rows, 1..shape's m */
    uint64_t b;               /* from resident(), made for the same shape */
    const int8_t *a;          /* [m, k]; row i at a + i * lda. Values -127..127. Products of a job
                                 with the same a, m, k and lda share one upload. The accelerator
                                 has its own copy when submit returns */
    size_t lda;
    int32_t *c;               /* [m, n]; row i at c + i * ldc; written by wait(). May be NULL */
    size_t ldc;
    /* With c NULL: called by wait() when the whole job has succeeded, once for each product in
     * their order, with the result where it lies in device memory. The results of all products of
     * the job stay there until wait() returns. Spares a copy. */
    void (*take)(void *user, size_t index, const int32_t *c, size_t ldc);
    void *user;
} wnpu_accel_product;

typedef enum wnpu_accel_health {
    WNPU_ACCEL_OK = 0,
    WNPU_ACCEL_SUSPECT = 1,   /* failed lately and cools down: do not submit */
    WNPU_ACCEL_OFF = 2,       /* will not work again without being opened anew */
    WNPU_ACCEL_PROBE = 3      /* cooled down: call probe() when there is time for it */
} wnpu_accel_health;

/* What was done since opening. */
typedef struct wnpu_accel_account {
    uint32_t struct_size;     /* set by the caller */
    int32_t health;           /* wnpu_accel_health */
    uint64_t jobs, products;  /* finished with success */
    uint64_t macs;            /* multiply-accumulates of them, as asked for */
    uint64_t padded_macs;     /* and as done, padding included */
    uint64_t submissions;     /* commands given to the driver */
    uint64_t waits;           /* waits that went to the driver */
    uint64_t bytes_in;        /* copied to device memory, weights included */
    uint64_t bytes_out;       /* read back */
    uint64_t bytes_locked;    /* device memory held now */
    uint64_t failures;        /* jobs that did not succeed, and results that were distrusted */
    uint64_t retries;         /* jobs submitted a second time */
    uint64_t probes;          /* attempts to come back */
    double busy_ms;           /* from submission to completion, summed over jobs */
    double waited_ms;         /* spent inside wait() */
    char first_failure[192];  /* "" if none */
} wnpu_accel_account;

/* Functions return 0 or a negative wnpu_status, with the reason in *error. */
struct wnpu_accel {
    uint32_t struct_size;     /* sizeof(wnpu_accel) of the author's header */
    uint32_t in_use;          /* 0 at first, then the library's: a session has its turn */
    void *self;
    /* The same answer as long as the accelerator is open. */
    int (*describe)(void *self, wnpu_accel_info *info);
    /* Copies B [n, k] int8, row i at data + i * ldb, n and k at most the shape's, into device
     * memory; *b is its name. E_MEMORY when that would pass memory_limit. */
    int (*resident)(void *self, uint32_t shape, uint32_t n, uint32_t k, const int8_t *data,
                    size_t ldb, uint64_t *b, wnpu_error *error);
    /* Gives the memory back; not while a job that uses it is in flight (E_STATE). */
    int (*release)(void *self, uint64_t b);
    /* Queues 1..max_chain products as one job and returns at once. *products is not needed
     * after the call, c is until the job was waited for. */
    int (*submit)(void *self, const wnpu_accel_product *products, size_t count, uint64_t *job,
                  wnpu_error *error);
    /* Waits until the job is done and its results are delivered, at most until deadline_ns of
     * CLOCK_MONOTONIC. Whatever the answer, the job is over. Only after 0 was anything delivered,
     * and then all of it; after any other answer c is untouched and stays so. */
    int (*wait)(void *self, uint64_t job, int64_t deadline_ns, wnpu_error *error);
    int (*health)(void *self);
    /* From PROBE to OK by a self-test, or back to SUSPECT with a longer pause, or to OFF. */
    int (*probe)(void *self, int64_t deadline_ns, wnpu_error *error);
    /* The caller found a result wrong: to SUSPECT. */
    void (*distrust)(void *self, const char *reason);
    int (*account)(void *self, wnpu_accel_account *account);
    /* NULL is not allowed. Waits for what is in flight, at most a few seconds. */
    void (*close)(void *self);
};

/* ================================================================ the AMD XDNA accelerator ====
 *
 * npu_amdxdna.c: Ryzen AI NPUs (Phoenix and Hawk Point: NPU1; Strix, Strix Halo, Krackan: NPU4 to
 * NPU6) through the amdxdna driver, Linux 6.14 and later. Link with -ldrm. It compiles nothing: the
 * kernels come as a pack, a directory with a file named "manifest" beside overlays and instruction
 * streams (README: how to build one).
 *
 * One accelerator belongs to one thread at a time and to the process that opened it: in a forked
 * child every call answers E_STATE and close() only forgets. Nothing is kept between processes.
 */

/* A kernel pack in memory: name is that of a file in the pack. */
typedef struct wnpu_amdxdna_files {
    int64_t (*size)(void *user, const char *name);   /* bytes, or negative if there is none */
    /* Copies up to size bytes from offset; returns how many, or a negative number. */
    int64_t (*read)(void *user, const char *name, uint64_t offset, void *buffer, size_t size);
    void *user;
} wnpu_amdxdna_files;

typedef enum wnpu_amdxdna_flush {
    WNPU_AMDXDNA_FLUSH_AUTO = 0,   /* CLFLUSH on x86, else by the driver */
    WNPU_AMDXDNA_FLUSH_DRIVER = 1  /* SYNC_BO: slower, needs no instruction */
} wnpu_amdxdna_flush;

typedef struct wnpu_amdxdna_config {
    uint32_t struct_size;     /* set by wnpu_amdxdna_config_init() */
    int32_t flush_mode;       /* wnpu_amdxdna_flush; default AUTO */
    const char *pack;         /* directory of the kernel pack; NULL when files is set */
    const wnpu_amdxdna_files *files; /* or the pack through callbacks; not needed after opening */
    const char *node;         /* "/dev/accel/accel0"; NULL (default): the first NPU that is one */
    const char *root;         /* put before every path that is read outside the pack, for recorded
                                 machines; NULL (default): none */
    uint64_t memory_limit;    /* lock at most so many bytes; 0 (default): no limit of ours */
    uint32_t max_chain;       /* products in one job, 1..24; 0 (default): up to 8, fewer when the
                                 buffers of two jobs would take more than 96 MiB */
    uint32_t test_ms;         /* deadline of one self-test, 1..1500; 0 (default): 1000 */
    uint32_t cooldown_ms;     /* first pause after a failure, doubled by each failed probe up to
                                 64 times; 0 (default): 1000 */
    uint32_t reserved;        /* 0 */
    /* For platforms where neither CLFLUSH nor the driver will do, and for tests: write back and
     * invalidate the cache lines of size bytes at address. NULL (default): flush_mode decides. */
    void (*flush)(void *user, const void *address, size_t size);
    void *flush_user;
    const wnpu_allocator *allocator; /* NULL: malloc and free. Must outlive the accelerator */
    wnpu_log_fn log;          /* NULL: silent */
    void *log_user;
} wnpu_amdxdna_config;

WNPU_API void wnpu_amdxdna_config_init(wnpu_amdxdna_config *config, size_t struct_size);

/* What an accelerator with this configuration will lock, told from the pack alone and without any
 * device: *fixed gets the bytes that opening takes at most, shapes (may be NULL with capacity 0)
 * the pack's shapes, each with its resident_bytes. Returns the number of shapes, or a negative
 * error. The total is *fixed plus resident_bytes of every weight. */
WNPU_API int wnpu_amdxdna_memory(const wnpu_amdxdna_config *config, wnpu_accel_shape *shapes,
                                 size_t capacity, uint64_t *fixed, wnpu_error *error);

/* Opens the NPU with a kernel pack. Every kernel is tested against the CPU before it is offered;
 * those that fail are left out, and opening fails when none is left. On failure *accel is NULL.
 * Errors: E_ARGUMENT, E_IO, E_MEMORY, E_MODEL (the pack is damaged), E_UNSUPPORTED (no device,
 * driver or pack that fits), E_ACCEL (the device did not work), E_VERSION. When it fails,
 * wnpu_amdxdna_diagnose() says more. */
WNPU_API int wnpu_amdxdna_open(const wnpu_amdxdna_config *config, wnpu_accel **accel,
                               wnpu_error *error);
/* NULL is allowed. Not while a session uses it. */
WNPU_API void wnpu_amdxdna_close(wnpu_accel *accel);

typedef enum wnpu_amdxdna_cause {
    WNPU_AMDXDNA_FINE = 0,            /* nothing is wrong */
    WNPU_AMDXDNA_NO_NPU = 1,          /* no such device on the PCI bus */
    WNPU_AMDXDNA_UNKNOWN_DEVICE = 2,  /* an NPU of a kind that is not supported */
    WNPU_AMDXDNA_KERNEL_OLD = 3,      /* Linux older than 6.14 and no driver from elsewhere */
    WNPU_AMDXDNA_KERNEL_NO_DRIVER = 4, /* new enough, but built without amdxdna */
    WNPU_AMDXDNA_MODULE_MISSING = 5,  /* amdxdna is installed but not loaded */
    WNPU_AMDXDNA_MODULE_BLOCKED = 6,  /* amdxdna is blacklisted */
    WNPU_AMDXDNA_FIRMWARE_MISSING = 7, /* no firmware file for the device */
    WNPU_AMDXDNA_FIRMWARE_OLD = 8,    /* older than the driver wants */
    WNPU_AMDXDNA_FIRMWARE_NEW = 9,    /* of a protocol that this driver does not speak */
    WNPU_AMDXDNA_FIRMWARE_UNKNOWN = 10, /* runs, but tells no version */
    WNPU_AMDXDNA_IOMMU_MISSING = 11,  /* off in firmware setup or on the kernel's command line */
    WNPU_AMDXDNA_HYPERVISOR = 12,     /* a virtual machine, which the driver refuses */
    WNPU_AMDXDNA_DRIVER_FAILED = 13,  /* loaded, but it did not take the device */
    WNPU_AMDXDNA_NO_NODE = 14,        /* driver bound, no /dev/accel node */
    WNPU_AMDXDNA_PERMISSION = 15,     /* the node may not be opened by this user */
    WNPU_AMDXDNA_OTHER_DRIVER = 16,   /* nodes belong to accelerators of other makers */
    WNPU_AMDXDNA_USER_QUEUES = 17,    /* an NPU with user queues (NPU3), another protocol */
    WNPU_AMDXDNA_SVA = 18,            /* the driver could not share the address space */
    WNPU_AMDXDNA_DEVICE_GONE = 19,    /* the firmware does not answer any more */
    WNPU_AMDXDNA_MEMLOCK = 20,        /* RLIMIT_MEMLOCK is in the way */
    WNPU_AMDXDNA_MEMORY = 21,         /* the kernel has no memory for the buffers */
    WNPU_AMDXDNA_CONTEXTS = 22,       /* every hardware context is taken */
    WNPU_AMDXDNA_PACK_MISSING = 23,   /* no kernel pack at the path */
    WNPU_AMDXDNA_PACK_DAMAGED = 24,   /* a file of the pack is damaged or refused */
    WNPU_AMDXDNA_PACK_DEVICE = 25,    /* the pack is for another device */
    WNPU_AMDXDNA_SELF_TEST = 26,      /* the kernels run but compute something else */
    WNPU_AMDXDNA_OTHER = 27           /* something else; the message has the details */
} wnpu_amdxdna_cause;

typedef struct wnpu_amdxdna_diagnosis {
    uint32_t struct_size;     /* set by the caller */
    int32_t cause;            /* wnpu_amdxdna_cause */
    uint64_t memlock_needed;  /* bytes that the pack would lock, without weights; 0 unknown */
    uint64_t memlock_limit;   /* RLIMIT_MEMLOCK in force; UINT64_MAX: none */
    char device[48];          /* "NPU1 (1022:1502 rev 00)", "" if none */
    char node[64];            /* "" if none */
    char kernel[64];          /* release of the running kernel */
    char driver[64];          /* "amdxdna 0.10", "" if none */
    char firmware[32];        /* "1.5.5.391", "" if unknown */
    char message[384];        /* what is wrong */
    char cure[384];           /* what to do about it */
} wnpu_amdxdna_diagnosis;

/* Looks for the first thing that keeps the NPU from working and says how to cure it. config may be
 * NULL; without a pack that part is left out. With root set it reads the recorded machine under
 * that directory and touches no device. Returns WNPU_OK when cause is set (FINE included).
 * Errors: E_ARGUMENT, E_VERSION. */
WNPU_API int wnpu_amdxdna_diagnose(const wnpu_amdxdna_config *config,
                                   wnpu_amdxdna_diagnosis *diagnosis);
/* "permission", "memlock", ...; never NULL. */
WNPU_API const char *wnpu_amdxdna_cause_name(int cause);

#ifdef __cplusplus
}
#endif
#endif /* WHISPER_NPU_H */
