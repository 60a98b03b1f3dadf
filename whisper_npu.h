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
 * Ownership   The library copies what it keeps, but for wnpu_model_open_static(). Pointers that it
 *             returns are views: results live until the next run, wnpu_reset() or
 *             wnpu_session_close() on that session; strings of the model live as long as it does.
 * Memory      A session is one block whose exact size wnpu_session_size() tells beforehand, and
 *             which the caller may supply. After wnpu_session_open() nothing is allocated, nothing
 *             grows and no thread is created, however long the recording is.
 * One answer  The same audio, model, configuration and parameters give the same bytes of output
 *             on every instruction set, for any number of threads, with or without an accelerator.
 * Errors      Functions return WNPU_OK (0), a positive status (results are there but not whole)
 *             or a negative error. wnpu_strerror() names it; wnpu_session_error() or the wnpu_error
 *             that you passed says what was wrong and how to cure it. No input, model file or
 *             device makes the library crash, hang or lose text that was already transcribed.
 * Cancelling  wnpu_cancel() from any thread or signal handler. The run ends within a few
 *             milliseconds on a current CPU, apart from your callbacks and an accelerator's jobs in
 *             flight. Results so far stay readable and the session stays usable.
 * Threads     One pool per session, asleep when idle; or your own parallel-for; or one thread.
 * Fork        A session belongs to the process that opened it: in a forked child its calls answer
 *             E_STATE, results stay readable, and wnpu_session_close() frees nothing. A child may
 *             use the model and open sessions of its own.
 * Floats      Round to nearest, without flushing to zero and without traps, whatever the calling
 *             thread has set. What it has set is back when a function returns; callbacks run with
 *             the library's setting.
 * Clean hands No globals, environment, locale, signals, output, exit() or abort().
 * ABI         Structures that you fill carry their own size. Fill them with their _init function
 *             first, then change fields: a newer library then works with an older header, and an
 *             older library refuses (E_VERSION) what it does not know, and leaves 0 in results. A
 *             size is a multiple of 4 and at most 256 bytes above the library's own; others are
 *             refused (E_VERSION in what you fill, E_ARGUMENT in results), and nothing is written.
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
#define WNPU_VERSION_MINOR 2
#define WNPU_VERSION_PATCH 0

/* Two copies of the library in one program: compile one with all that calls it with, say,
 * -DWNPU_PREFIX=acme_, and for the linker its functions are acme_transcribe() and so on. Sources
 * still call wnpu_transcribe(); types and constants keep their names. */
#ifdef WNPU_PREFIX
#define WNPU_JOIN(prefix, name) prefix##name
#define WNPU_RENAMED(prefix, name) WNPU_JOIN(prefix, name)
#define wnpu_version             WNPU_RENAMED(WNPU_PREFIX, version)
#define wnpu_strerror            WNPU_RENAMED(WNPU_PREFIX, strerror)
#define wnpu_isa_available       WNPU_RENAMED(WNPU_PREFIX, isa_available)
#define wnpu_isa_name            WNPU_RENAMED(WNPU_PREFIX, isa_name)
#define wnpu_isa_from_name       WNPU_RENAMED(WNPU_PREFIX, isa_from_name)
#define wnpu_model_config_init   WNPU_RENAMED(WNPU_PREFIX, model_config_init)
#define wnpu_model_open          WNPU_RENAMED(WNPU_PREFIX, model_open)
#define wnpu_model_open_memory   WNPU_RENAMED(WNPU_PREFIX, model_open_memory)
#define wnpu_model_open_static   WNPU_RENAMED(WNPU_PREFIX, model_open_static)
#define wnpu_model_open_source   WNPU_RENAMED(WNPU_PREFIX, model_open_source)
#define wnpu_model_measure       WNPU_RENAMED(WNPU_PREFIX, model_measure)
#define wnpu_model_measure_source WNPU_RENAMED(WNPU_PREFIX, model_measure_source)
#define wnpu_model_close         WNPU_RENAMED(WNPU_PREFIX, model_close)
#define wnpu_model_verify        WNPU_RENAMED(WNPU_PREFIX, model_verify)
#define wnpu_model_save          WNPU_RENAMED(WNPU_PREFIX, model_save)
#define wnpu_model_get_info      WNPU_RENAMED(WNPU_PREFIX, model_get_info)
#define wnpu_language_count      WNPU_RENAMED(WNPU_PREFIX, language_count)
#define wnpu_language_code       WNPU_RENAMED(WNPU_PREFIX, language_code)
#define wnpu_language_name       WNPU_RENAMED(WNPU_PREFIX, language_name)
#define wnpu_language_id         WNPU_RENAMED(WNPU_PREFIX, language_id)
#define wnpu_token_text          WNPU_RENAMED(WNPU_PREFIX, token_text)
#define wnpu_tokenize            WNPU_RENAMED(WNPU_PREFIX, tokenize)
#define wnpu_audio_init          WNPU_RENAMED(WNPU_PREFIX, audio_init)
#define wnpu_wav_open            WNPU_RENAMED(WNPU_PREFIX, wav_open)
#define wnpu_wav_reader_init     WNPU_RENAMED(WNPU_PREFIX, wav_reader_init)
#define wnpu_wav_reader_open     WNPU_RENAMED(WNPU_PREFIX, wav_reader_open)
#define wnpu_config_init         WNPU_RENAMED(WNPU_PREFIX, config_init)
#define wnpu_session_size        WNPU_RENAMED(WNPU_PREFIX, session_size)
#define wnpu_session_accel_bytes WNPU_RENAMED(WNPU_PREFIX, session_accel_bytes)
#define wnpu_session_open        WNPU_RENAMED(WNPU_PREFIX, session_open)
#define wnpu_session_close       WNPU_RENAMED(WNPU_PREFIX, session_close)
#define wnpu_reset               WNPU_RENAMED(WNPU_PREFIX, reset)
#define wnpu_cancel              WNPU_RENAMED(WNPU_PREFIX, cancel)
#define wnpu_session_error       WNPU_RENAMED(WNPU_PREFIX, session_error)
#define wnpu_params_init         WNPU_RENAMED(WNPU_PREFIX, params_init)
#define wnpu_param_info          WNPU_RENAMED(WNPU_PREFIX, param_info)
#define wnpu_params_set          WNPU_RENAMED(WNPU_PREFIX, params_set)
#define wnpu_transcribe          WNPU_RENAMED(WNPU_PREFIX, transcribe)
#define wnpu_resume              WNPU_RENAMED(WNPU_PREFIX, resume)
#define wnpu_get_position        WNPU_RENAMED(WNPU_PREFIX, get_position)
#define wnpu_snapshot_size       WNPU_RENAMED(WNPU_PREFIX, snapshot_size)
#define wnpu_snapshot_most       WNPU_RENAMED(WNPU_PREFIX, snapshot_most)
#define wnpu_snapshot            WNPU_RENAMED(WNPU_PREFIX, snapshot)
#define wnpu_restore             WNPU_RENAMED(WNPU_PREFIX, restore)
#define wnpu_detect_language     WNPU_RENAMED(WNPU_PREFIX, detect_language)
#define wnpu_get_languages       WNPU_RENAMED(WNPU_PREFIX, get_languages)
#define wnpu_choose              WNPU_RENAMED(WNPU_PREFIX, choose)
#define wnpu_detect_speech       WNPU_RENAMED(WNPU_PREFIX, detect_speech)
#define wnpu_segment_count       WNPU_RENAMED(WNPU_PREFIX, segment_count)
#define wnpu_get_segment_sized   WNPU_RENAMED(WNPU_PREFIX, get_segment_sized)
#define wnpu_word_count          WNPU_RENAMED(WNPU_PREFIX, word_count)
#define wnpu_get_word            WNPU_RENAMED(WNPU_PREFIX, get_word)
#define wnpu_speech_span_count   WNPU_RENAMED(WNPU_PREFIX, speech_span_count)
#define wnpu_get_speech_span     WNPU_RENAMED(WNPU_PREFIX, get_speech_span)
#define wnpu_ledger_count        WNPU_RENAMED(WNPU_PREFIX, ledger_count)
#define wnpu_get_ledger_span     WNPU_RENAMED(WNPU_PREFIX, get_ledger_span)
#define wnpu_ledger_reason_name  WNPU_RENAMED(WNPU_PREFIX, ledger_reason_name)
#define wnpu_get_stats           WNPU_RENAMED(WNPU_PREFIX, get_stats)
#define wnpu_get_memory          WNPU_RENAMED(WNPU_PREFIX, get_memory)
#define wnpu_get_accel_stats     WNPU_RENAMED(WNPU_PREFIX, get_accel_stats)
#define wnpu_get_accel_stage     WNPU_RENAMED(WNPU_PREFIX, get_accel_stage)
#define wnpu_format_name         WNPU_RENAMED(WNPU_PREFIX, format_name)
#define wnpu_format_from_name    WNPU_RENAMED(WNPU_PREFIX, format_from_name)
#define wnpu_write               WNPU_RENAMED(WNPU_PREFIX, write)
#define wnpu_write_options_init  WNPU_RENAMED(WNPU_PREFIX, write_options_init)
#define wnpu_write_options_subtitles WNPU_RENAMED(WNPU_PREFIX, write_options_subtitles)
#define wnpu_write_with          WNPU_RENAMED(WNPU_PREFIX, write_with)
#define wnpu_self_test           WNPU_RENAMED(WNPU_PREFIX, self_test)
#define wnpu_amdxdna_config_init WNPU_RENAMED(WNPU_PREFIX, amdxdna_config_init)
#define wnpu_amdxdna_memory      WNPU_RENAMED(WNPU_PREFIX, amdxdna_memory)
#define wnpu_amdxdna_open        WNPU_RENAMED(WNPU_PREFIX, amdxdna_open)
#define wnpu_amdxdna_close       WNPU_RENAMED(WNPU_PREFIX, amdxdna_close)
#define wnpu_amdxdna_diagnose    WNPU_RENAMED(WNPU_PREFIX, amdxdna_diagnose)
#define wnpu_amdxdna_cause_name  WNPU_RENAMED(WNPU_PREFIX, amdxdna_cause_name)
#endif

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
    WNPU_E_VERSION = -11,     /* a structure or a pack is of a version this library does not know */
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

/* Used only inside wnpu_model_open*(), wnpu_model_save() and wnpu_session_open(). alignment is a
 * power of two up to 4096. alloc returns NULL when it has no memory; release gets the size that was
 * asked for. */
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
    WNPU_ISA_AUTO = 0,        /* the fastest that this CPU has; AMX only where permitted */
    WNPU_ISA_SCALAR = 1,      /* plain C; the definition of every result */
    WNPU_ISA_SSE41 = 2,
    WNPU_ISA_AVX2 = 3,
    WNPU_ISA_AVX512 = 4,      /* AVX-512 F, BW, VL and VNNI */
    WNPU_ISA_NEON = 5,        /* AArch64 Advanced SIMD */
    WNPU_ISA_NEON_DOT = 6,    /* with the dot product instructions */
    WNPU_ISA_NEON_I8MM = 7,   /* with the int8 matrix instructions */
    /* Intel AMX beside AVX-512, on Linux for x86-64. Linux gives a process AMX only on request, and
     * then the signal frames of all its threads grow by 8 KiB: wnpu_session_open() asks if AMX is
     * named, and AUTO takes AMX only if the process has it already (ARCH_REQ_XCOMP_PERM). */
    WNPU_ISA_AMX = 8,
    WNPU_ISA_AVX_VNNI = 9     /* AVX2 and AVX-VNNI: Intel's CPUs for PCs since 2021 */
} wnpu_isa;

/* 1 when this CPU, system and build can run isa, else 0. AUTO is always available. AMX: the CPU has
 * AMX-TILE, AMX-INT8 and all that AVX512 needs, and the system keeps tiles (XCR0 and
 * ARCH_GET_XCOMP_SUPP say so); whether this process is permitted to use them does not matter. */
WNPU_API int wnpu_isa_available(wnpu_isa isa);
/* "auto", "scalar", "sse4.1", "avx2", "avx512", "neon", "neon-dot", "neon-i8mm", "amx", "avx-vnni";
 * NULL: unknown. */
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

/* Runs task(context, i) once for each i in 0..count-1, in any order and any threads, and returns
 * when all are done. Must not fail. */
typedef void (*wnpu_parallel_for_fn)(void *user, size_t count,
                                     void (*task)(void *context, size_t index), void *context);

typedef struct wnpu_model_config {
    uint32_t struct_size;     /* set by wnpu_model_config_init() */
    uint32_t keep_float;      /* 1: also keep float32 weights, for WNPU_COMPUTE_FLOAT; default 0 */
    const wnpu_allocator *allocator; /* NULL: malloc and free. Must outlive the model */
    wnpu_log_fn log;          /* NULL: silent. Called only while opening */
    void *log_user;
    /* For packs; other models ignore them. */
    uint32_t copy;            /* 1: take memory for the whole pack, as if it could not be mapped or
                                 used in place; default 0 */
    uint32_t full_check;      /* 1: wnpu_model_verify() before opening succeeds; default 0 */
    /* For other models; packs ignore them. */
    uint32_t threads;         /* that turn weights into INT8, 1..64; 0 (default): one per CPU, see
                                 wnpu_config, at most 4, and fewer for small files. They end before
                                 opening does. A program compiled before this field: 1 */
    uint32_t reserved;        /* 0 */
    wnpu_parallel_for_fn parallel_for; /* NULL (default): own threads, see wnpu_config */
    void *parallel_user;
} wnpu_model_config;

WNPU_API void wnpu_model_config_init(wnpu_model_config *config, size_t struct_size);

/* Opens a ggml Whisper model (f32, f16, q4_0, q4_1, q5_0, q5_1, q8_0 tensors), whose weights are
 * turned into INT8 with one scale per output channel, or a pack, which wnpu_model_save() makes of
 * one. config may be NULL for defaults. On success *model is set and must be closed with
 * wnpu_model_close(); on failure it is set to NULL.
 *
 * A pack (.wnpu) gives the same text as the file it was made from, opens in milliseconds and is the
 * same for all instruction sets. wnpu_model_open() maps the file read-only, so that all processes
 * that use it share its memory (where the system cannot map, it reads). While the model is open,
 * the file may be removed or replaced by renaming another one onto it, but must be neither cut nor
 * written to: reading a mapped page that is gone ends a process with SIGBUS. Where that cannot be
 * ensured, set config->copy. Opening checks the header against its checksum, all sizes and offsets,
 * every index and all float values: no damaged pack can crash the library. Damage to the weights
 * themselves is found by wnpu_model_verify(), or config->full_check. A pack holds no float weights:
 * with config->keep_float it is refused (E_UNSUPPORTED).
 * Errors: E_ARGUMENT, E_IO, E_MODEL, E_MEMORY, E_UNSUPPORTED, E_VERSION (a pack of another format
 * than this library's, or config). */
WNPU_API int wnpu_model_open(wnpu_model **model, const char *path,
                             const wnpu_model_config *config, wnpu_error *error);
/* The same from memory; data is not needed after the call. A pack is copied. */
WNPU_API int wnpu_model_open_memory(wnpu_model **model, const void *data, size_t size,
                                    const wnpu_model_config *config, wnpu_error *error);
/* The same from memory that stays where it is, readable and unchanged, until the model is closed:
 * bytes linked into the program, flash, a mapping of the caller's. A pack is used in place, and
 * only some kilobytes are allocated. data must be aligned to 64 bytes. */
WNPU_API int wnpu_model_open_static(wnpu_model **model, const void *data, size_t size,
                                    const wnpu_model_config *config, wnpu_error *error);
/* The same through read callbacks, which the calling thread calls; source is not needed after the
 * call. A pack is read whole. */
WNPU_API int wnpu_model_open_source(wnpu_model **model, const wnpu_source *source,
                                    const wnpu_model_config *config, wnpu_error *error);
/* Bytes that a model takes. */
typedef struct wnpu_model_memory {
    uint32_t struct_size;     /* set by the caller: sizeof(wnpu_model_memory) */
    uint32_t reserved;        /* 0 */
    uint64_t held;            /* from the allocator, until the model is closed */
    uint64_t shared;          /* of a pack that is mapped or used in place. With config->copy,
                                 from callbacks or with wnpu_model_open_memory() they are held */
    uint64_t peak;            /* most that is held at any time while opening */
} wnpu_model_memory;

/* Exactly what opening the file, or the source, with this configuration will take, told before it
 * is taken: the model, 400 KiB or so, and without a pack 240 KiB for each thread that opens. Reads
 * the headers only; needs those 400 KiB of config->allocator's memory and gives them back. Errors:
 * those of opening, as far as the headers show them. */
WNPU_API int wnpu_model_measure(const char *path, const wnpu_model_config *config,
                                wnpu_model_memory *memory, wnpu_error *error);
WNPU_API int wnpu_model_measure_source(const wnpu_source *source, const wnpu_model_config *config,
                                       wnpu_model_memory *memory, wnpu_error *error);
/* NULL is allowed. All sessions of the model must be closed before. */
WNPU_API void wnpu_model_close(wnpu_model *model);

/* Compares every byte of a model that was opened from a pack with the pack's checksums. May run
 * while sessions use the model. Errors: E_MODEL with the name of the first section that is damaged,
 * E_UNSUPPORTED for a model that is not from a pack, E_ARGUMENT. */
WNPU_API int wnpu_model_verify(const wnpu_model *model, wnpu_error *error);

/* Returns how many of size bytes it took (short writes are legal), or a negative number. */
typedef int64_t (*wnpu_write_fn)(void *user, const void *data, size_t size);

/* Writes the model as a pack; the same model always gives the same bytes. Takes about 400 KiB from
 * the model's allocator and gives it back. Errors: E_UNSUPPORTED for a model with keep_float, E_IO,
 * E_MEMORY, E_ARGUMENT. */
WNPU_API int wnpu_model_save(const wnpu_model *model, wnpu_write_fn write, void *user,
                             wnpu_error *error);

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
    uint64_t shared_bytes;    /* of a pack that is mapped or used in place; not part of bytes */
} wnpu_model_info;

/* Errors: E_ARGUMENT. */
WNPU_API int wnpu_model_get_info(const wnpu_model *model, wnpu_model_info *info);

/* ---------------------------------------------------------------- tokens and languages ---- */

/* Languages are numbered as in OpenAI's tokenizer: 0 is English, 99 Cantonese. */
WNPU_API int wnpu_language_count(void);                    /* 100 */
WNPU_API const char *wnpu_language_code(int language);     /* "en"; NULL out of range */
WNPU_API const char *wnpu_language_name(int language);     /* "english"; NULL out of range */
/* Code (ISO 639-1, 639-2 or 639-3), English name or usual other name, or a BCP 47 tag, of which the
 * language counts ("de", "German", "castilian", "pt-BR", "zh-Hans-CN", "zh-yue", "nb", "fil",
 * "en_US.UTF-8"); any case. -1: unknown. Moldavian and Serbo-Croatian codes give Romanian and
 * Serbian. */
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
 * are NaN or infinite count as 0, others are limited to -4..4. Floats with the full scale of 16, 24
 * or 32-bit integers are noticed when they exceed 1 by far, and divided by it from that stretch of
 * 50 ms on; a warning is logged. */
typedef struct wnpu_audio {
    uint32_t struct_size;     /* set by wnpu_audio_init() */
    int32_t format;           /* wnpu_sample_format; default F32 */
    uint32_t rate;            /* 8000..192000 frames per second; default 16000 */
    uint32_t channels;        /* 1..256; default 1 */
    int32_t channel;          /* 0..channels-1, or WNPU_CHANNEL_MIX for the mean; default mix. In
                                 stretches of 50 ms or less whose channels cancel each other (mean
                                 30 dB below the loudest, or 16 dB below that of independent
                                 channels), the loudest is taken; a warning is logged */
    const void *data;         /* frames * channels samples; any alignment; NULL when read is set */
    uint64_t frames;          /* with read: the total if known, else 0; for progress only */
    /* Copies up to max_frames frames into buffer and returns how many, 0 at the end, or a negative
     * number on failure (the run then ends with E_IO and keeps its results). Called in the thread
     * of the run; may block. */
    int64_t (*read)(void *user, void *buffer, size_t max_frames);
    void *user;
} wnpu_audio;

WNPU_API void wnpu_audio_init(wnpu_audio *audio, size_t struct_size);

/* Understands a WAV file (RIFF, RF64 and BW64; PCM 8 to 32 bit, float 32 and 64, A-law, u-law;
 * WAVE_FORMAT_EXTENSIBLE; unknown chunks, odd chunk sizes, missing or wrong data sizes) held in
 * memory, and fills *audio, which must have seen wnpu_audio_init(); its data then points into the
 * buffer. Reads nothing outside data[0..size-1]. On success error->code is WNPU_OK, and
 * error->message is empty or a warning: see wnpu_wav_problem. Errors: E_AUDIO with a reason,
 * E_ARGUMENT. */
WNPU_API int wnpu_wav_open(wnpu_audio *audio, const void *data, size_t size, wnpu_error *error);

/* What can be wrong with a WAV file that is read all the same. */
typedef enum wnpu_wav_problem {
    WNPU_WAV_CUT = 1,         /* it ends before its data chunk does. Sizes that recorders write
                                 before they know better (0, 0x7fff0000 and more) are no problem */
    WNPU_WAV_LONGER = 2,      /* samples go on after the data chunk's end, where neither a chunk nor
                                 the end of the file is: the size was not updated, or is too large
                                 for 32 bits. They are read as well */
    WNPU_WAV_PARTS = 4        /* wnpu_wav_open() only: data chunks after the first one are left out;
                                 wnpu_wav_reader reads them all */
} wnpu_wav_problem;

/* A WAV file that is read once from its first byte to its last, from a pipe for example. Must stay
 * where it is while its recording is used. Needs no other memory, reads at most a few KiB ahead,
 * and applies the rules of wnpu_wav_open(). */
typedef struct wnpu_wav_reader {
    uint32_t struct_size;     /* set by wnpu_wav_reader_init() */
    uint32_t problems;        /* wnpu_wav_problem, ORed, so far; complete after the last frame */
    /* Copies up to size bytes into buffer and returns how many (short reads are legal; may block),
     * 0 at the end, or a negative number on failure, which the recording's read then returns. */
    int64_t (*read)(void *user, void *buffer, size_t size);
    void *user;
    uint64_t frames;          /* that the recording's read has delivered */
    uint64_t work[288];       /* internal */
} wnpu_wav_reader;

WNPU_API void wnpu_wav_reader_init(wnpu_wav_reader *reader, size_t struct_size);
/* Reads up to the first samples and fills *audio, which must have seen wnpu_audio_init(), with
 * format, rate, channels, a read that continues from there, and frames if the file tells. reader
 * needs wnpu_wav_reader_init(), and read and user set. Errors: E_AUDIO with a reason, E_UNSUPPORTED
 * for a file whose fmt chunk comes after the samples, E_VERSION, E_ARGUMENT. */
WNPU_API int wnpu_wav_reader_open(wnpu_wav_reader *reader, wnpu_audio *audio, wnpu_error *error);

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
    /* Since 0.2: how the window came by its text. */
    float temperature;        /* of the decoding that was taken */
    float compression_ratio;  /* bytes of the window's text over those of its zlib form; text that
                                 the audio repeats, see stop_loops, counts once */
    float first_logprob;      /* of the window's first text token, natural logarithm */
    int32_t retries;          /* decodings of the window that were refused before */
    uint32_t reasons;         /* why they were, wnpu_refusal values or'ed; 0: none was */
    int32_t accepted;         /* 1: passed every gate; 0: the best of those refused */
    int32_t prompted;         /* 1: decoded with text before it (prompt or earlier windows) */
    int32_t device;           /* wnpu_device that computed the encoder */
    float voice;              /* share of the segment in which the voice activity detector heard
                                 speech, 0..1; 0 with vad off */
} wnpu_segment;

/* A stretch of speech as the voice activity detector hears it, padding included. Stretches are in
 * order and do not overlap. */
typedef struct wnpu_speech_span {
    int64_t t0_ms, t1_ms;     /* 0 <= t0_ms < t1_ms <= duration */
} wnpu_speech_span;

typedef enum wnpu_ledger_kind {
    WNPU_LEDGER_TEXT = 0,
    WNPU_LEDGER_SILENCE = 1,  /* nothing was said there, as far as anybody can tell */
    WNPU_LEDGER_UNRESOLVED = 2 /* something may have been said that is not in the text */
} wnpu_ledger_kind;

typedef enum wnpu_ledger_reason {
    WNPU_REASON_NONE = 0,
    /* of silence */
    WNPU_REASON_NO_VOICE = 1, /* the detector heard no speech */
    WNPU_REASON_NO_SPEECH = 2, /* the model's no-speech rule; or text that was not to be believed,
                                 and was dropped: vad in wnpu_params */
    WNPU_REASON_PAUSE = 3,    /* beside text: less speech than would be decoded again; with vad
                                 off, whatever the model's times leave out */
    /* of what is unresolved */
    WNPU_REASON_NO_TEXT = 4,  /* speech that was decoded again, and still without text that is to
                                 be believed */
    WNPU_REASON_CANCELLED = 5,
    WNPU_REASON_FULL = 6,     /* the result store was full */
    WNPU_REASON_INPUT = 7,    /* read, but the input failed before it was decoded */
    WNPU_REASON_FAILED = 8    /* another error ended the run */
} wnpu_ledger_reason;

/* What became of a stretch of the recording. The ledger has no gaps and no overlaps: its spans
 * follow each other from 0 to the duration (wnpu_stats.audio_ms) after every run, whatever its
 * end. Only milliseconds that were read count. */
typedef struct wnpu_ledger_span {
    int64_t t0_ms, t1_ms;     /* t0_ms < t1_ms */
    int32_t kind;             /* wnpu_ledger_kind */
    int32_t reason;           /* wnpu_ledger_reason */
} wnpu_ledger_span;

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

/* Why a decoding of a window was refused; see the gates in wnpu_params. */
typedef enum wnpu_refusal {
    WNPU_REFUSED_LOOP = 1,        /* it wrote the same words again and again */
    WNPU_REFUSED_COMPRESSION = 2, /* its text compresses too well */
    WNPU_REFUSED_LOGPROB = 4,     /* its mean log-probability is too low */
    WNPU_REFUSED_FIRST_TOKEN = 8  /* that of its first token is */
} wnpu_refusal;

typedef enum wnpu_device {
    WNPU_DEVICE_CPU = 0,
    WNPU_DEVICE_ACCEL = 1
} wnpu_device;

/* What happened in the last run. Milliseconds are wall time. */
typedef struct wnpu_stats {
    uint32_t struct_size;     /* set by the caller: sizeof(wnpu_stats) */
    int32_t isa;              /* wnpu_isa in use */
    int32_t threads;          /* threads that work, the caller's included */
    int32_t language;         /* detected or given */
    float language_probability; /* 1 when given */
    uint32_t windows;         /* encoder runs */
    uint32_t tokens;          /* that were chosen, each by a decoder step or along with one */
    uint32_t prompt_tokens;   /* decoder positions fed as prompts */
    int64_t audio_ms;         /* length of the recording as read so far */
    double total_ms;
    double audio_in_ms;       /* reading, conversion, resampling */
    double log_mel_ms;
    double encoder_ms;
    double cross_ms;          /* cross-attention keys and values */
    double decoder_ms;        /* steps and prompts, with the logit rules and the search */
    uint32_t retries;         /* decodings of windows that were refused and done again */
    uint32_t loops;           /* those among them that ran into a loop */
    uint32_t unaccepted;      /* windows for which no decoding passed the gates */
    uint32_t silent;          /* windows taken for silence */
    uint32_t skips;           /* stretches without speech that were not decoded */
    double voice_ms;          /* voice activity detection, a part of audio_in_ms */
    int64_t speech_ms;        /* length of all speech spans */
    int64_t unresolved_ms;    /* length of all unresolved spans of the ledger */
    uint32_t returns;         /* windows decoded again because speech was left without text, at
                                 most one in a second of the recording */
    uint32_t opposed_ms;      /* length of the stretches whose channels cancel each other, see
                                 wnpu_audio.channel */
} wnpu_stats;

/* ---------------------------------------------------------------- sessions ---- */

typedef struct wnpu_session wnpu_session;
typedef struct wnpu_accel wnpu_accel; /* see the accelerator chapter below */

typedef enum wnpu_compute {
    WNPU_COMPUTE_INT8 = 0,
    WNPU_COMPUTE_FLOAT = 1    /* float32 reference; the model must have been opened with
                                 keep_float. Slow: for tests and comparison */
} wnpu_compute;

/* Which products a session gives to its accelerator. The output is the same. */
typedef enum wnpu_accel_use {
    WNPU_ACCEL_FASTER = 0,    /* those that it is expected to do faster than the CPU */
    WNPU_ACCEL_ALL = 1        /* all that can be cut to its shapes */
} wnpu_accel_use;

/* What is fixed while a session is open. */
typedef struct wnpu_config {
    uint32_t struct_size;     /* set by wnpu_config_init() */
    uint32_t threads;         /* 1..64; 0 (default): one for each CPU that the calling thread may
                                 use, at most 8. On Linux that is what its affinity mask has, and
                                 no more than the quota of its control group, rounded up */
    int32_t compute;          /* wnpu_compute; default INT8 */
    int32_t isa;              /* wnpu_isa; default AUTO. E_UNSUPPORTED if the CPU lacks it, or
                                 the system refuses AMX */
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
    /* Room for the search. Each hypothesis decoded at once has a cache of its own: 1.6 MB for tiny,
     * 3 for base, 9 for small, 25 for medium, 41 for large, 5 for turbo. */
    uint32_t max_beams;       /* 1..16: most hypotheses, for beams and samples; default 5 */
    uint32_t max_phrase_tokens; /* 1..1048576: tokens of hotwords or commands in all spellings,
                                   about 10 to 40 a phrase, 44 bytes each; default 4096 */
    /* For long recordings that are there already. 0 (default): a window begins where the text of
     * the one before it ends, and is decoded when that is known. 1..8: where the voice activity
     * detector listens, each window ends in a pause; none needs the text of another, and up to so
     * many are decoded together, for which each weight is read once. The text is the same with 1 as
     * with 8, but not with 0. Windows come one by one for beams, for a first temperature above 0,
     * with text before them (prompt, prefix, condition_on_previous), on_logits or
     * WNPU_LANGUAGE_EACH, and when they are decoded again. A run reads 210 s of audio before it
     * decodes the first window (13 MB); each window from the second on has caches of its own: 5 MB
     * for tiny, 10 for base, 31 for small, 83 for medium, 139 for large, 17 for turbo, and beyond
     * max_beams that of a hypothesis. */
    uint32_t batch;
    uint32_t reserved;        /* 0 */
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

typedef enum wnpu_language_mode {
    WNPU_LANGUAGE_ONCE = 0,   /* the first window decides for all of the recording; if there is
                                 little speech in it, or its language is doubtful, the following
                                 ones too: until there were 3 s with a mean probability of 0.8
                                 or more, or 15 s. Text that is written already stays */
    WNPU_LANGUAGE_EACH = 1    /* every window anew, reluctantly */
} wnpu_language_mode;

/* How hypotheses of different lengths are compared. P is the probability of their text, at whatever
 * times (each timestamp counts as much as all that might stand in its place), n its tokens without
 * timestamps and end of text, p the length_penalty. */
typedef enum wnpu_length_rule {
    WNPU_LENGTH_POWER = 0,    /* log P / n^p, as CTranslate2; p = 1 is the mean, OpenAI's default */
    WNPU_LENGTH_RATIO = 1     /* log P / ((5 + n) / 6)^p, as OpenAI with a length_penalty */
} wnpu_length_rule;

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
    int32_t condition_on_previous; /* feed the text of the window before as prompt, if that one was
                                 accepted at a temperature below 0.5 [0] */
    /* A window is taken for silence when the probability of <|nospeech|> is above the first and
     * the mean log-probability of its tokens not above the second, as in OpenAI's transcribe(). */
    float no_speech_threshold; /* [0.6]; 1 or more switches the rule off */
    float logprob_threshold;  /* also a gate, see below [-1.0]; -INFINITY: off, and silence is told
                                 by no_speech_threshold alone */
    int32_t reserved;         /* 0 */
    const char *initial_prompt; /* UTF-8 that the first window is to follow [NULL] */
    /* Each segment as soon as it is final. The view is valid during the call; the same segment
     * stays readable by wnpu_get_segment(). A non-zero answer cancels. */
    int (*on_segment)(void *user, const wnpu_segment *segment);
    /* Audio done so far and in total (total -1 if unknown): after each window, and within a window
     * that takes long also after layers of the encoder and between tokens, at most once a
     * second. done_ms never goes back. A non-zero answer cancels: at once, but in the first window
     * after wnpu_resume() at its end, so that a host that stops at each call still gets on. */
    int (*on_progress)(void *user, int64_t done_ms, int64_t total_ms);
    void *user;
    int32_t words;            /* 1: times of words and tokens are measured, and segments begin and
                                 end with their words. Costs a pass over the text of each window;
                                 changes no text [0] */

    /* -- Since 0.2. Search: at temperature 0 a beam, above it samples. Greedy search is the default
     * because a beam of 5 costs about twice its time for a few words in a thousand; see
     * examples/README.md. Whatever is not a number is refused. */
    int32_t beam;             /* hypotheses kept, 1..max_beams; 1 is greedy search. OpenAI's beam
                                 search, but each text is there with one set of times only [1] */
    int32_t best_of;          /* samples drawn at a temperature above 0, 1..max_beams; 0: 5, or
                                 max_beams if that is less [0] */
    float patience;           /* a beam goes on until beam * patience hypotheses have ended,
                                 0.1..16 [1] (Kasai and others, 2022) */
    float length_penalty;     /* exponent of the length rule, -4..4 [1] */
    int32_t length_rule;      /* wnpu_length_rule [power] */
    float temperature;        /* of the first decoding of a window, 0..2 [0] */
    uint64_t seed;            /* the same seed draws the same samples [0] */

    /* -- Gates. A decoding that fails one is refused and the window decoded again: first without
     * the text before it, if there was any and the text repeats itself, then at the next
     * temperature. If all are refused, the best of them is taken and its segments say so. */
    float temperature_step;   /* from one temperature to the next, up to 1; 0.05..1, or 0: no
                                 other temperatures [0.2] */
    float compression_threshold; /* text that zlib shrinks more than that repeats itself; 0: off
                                 [2.4] */
    float first_logprob_threshold; /* least log-probability of the first text token, as in
                                 WhisperKit, which has -1.5; 0: off [0] */
    int32_t stop_loops;       /* end a decoding as soon as it repeats itself and the audio does not:
                                 the same text of up to 32 tokens for the fourth time (third, from 8
                                 tokens on), where cross-attention does not advance through the
                                 audio as it does through speech, or with vad finds no voice. 0: no
                                 check, and all repetition counts for compression_threshold [1] */

    /* -- What is told, and what may be said. */
    int32_t carry_initial_prompt; /* initial_prompt before every window, not only the first [0] */
    const char *prefix;       /* UTF-8 that the first window's text begins with [NULL] */
    /* Words that are likely, in any language: their tokens are favoured along each word, and what
     * they gained is taken back when the word is not finished, for which only a beam has other
     * texts to go on with: take one. Capitals and small letters are tried; nothing is taken from
     * the prompt's room. */
    const char *const *hotwords; /* [NULL] */
    size_t n_hotwords;        /* E_ARGUMENT if they need more than max_phrase_tokens */
    float hotword_boost;      /* natural logarithm per token, 0..20 [2] */
    float repetition_penalty; /* logits of tokens that the window has are divided by it (multiplied
                                 if negative), 0.5..4 [1] */
    int32_t no_repeat_ngram;  /* no n tokens in a row twice in a window, timestamps left out,
                                 0..64; 0: off [0] */
    /* Called in the thread of the run for each hypothesis before its next token is chosen, after
     * all rules. tokens are the window's so far; logits[n_vocab] may be changed, -INFINITY
     * forbids, and what is not a number counts as that [NULL] */
    void (*on_logits)(void *user, const int32_t *tokens, size_t n_tokens, float *logits,
                      size_t n_vocab);

    /* -- Which language, when language is auto. */
    int32_t language_mode;    /* wnpu_language_mode [once] */
    int32_t language_windows; /* once: above 1, the average over the speech in so many times 30 s
                                 from the start decides before anything is decoded, 1..20; the
                                 audio must be in memory then [1] */
    float language_margin;    /* each: a language takes over when its probability leads by that, or
                                 when it leads twice in a row, 0..1 [0.3] */
    const int32_t *languages; /* only these come into question [NULL: all of the model] */
    size_t n_languages;

    /* -- Voice activity. Where there is no speech nothing is decoded: a window begins a little
     * before it and ends where none is left in it, or in a pause of 3 s or more. Times stay those of the recording. Of the text
     * that comes out, segments are dropped that begin more than 500 ms behind the window, or have
     * signs but no letters, or were sampled at 0.5 or hotter and still refused by a gate, or where
     * doubts add up: the no-speech probability, minus the mean log-probability, plus half the share
     * without voice (if the segment lasts a second or more), is above no_speech_threshold -
     * logprob_threshold, which is 1.6. */
    int32_t vad;              /* 0: decode everything [1; 0 for programs that were compiled before
                                 there was this field] */
    float vad_threshold;      /* probability of speech that begins a span, 0.05..0.95; it goes on
                                 down to 0.15 less [0.5] */
    int32_t vad_min_speech_ms; /* spans with less speech are dropped, 0..5000 [100] */
    int32_t vad_min_silence_ms; /* shorter pauses do not end a span, 0..10000 [700] */
    int32_t vad_pad_ms;       /* added on both sides, 0..2000 [300] */
} wnpu_params;

WNPU_API void wnpu_params_init(wnpu_params *params, size_t struct_size);

/* -- Parameters by name, for command lines, configuration files and bindings to other languages. */
typedef enum wnpu_param_type {
    WNPU_PARAM_BOOL = 0,      /* int32_t; any value but 0 is 1 */
    WNPU_PARAM_INT = 1,       /* int32_t */
    WNPU_PARAM_FLOAT = 2,     /* float */
    WNPU_PARAM_CHOICE = 3,    /* int32_t, the number of a word in choices, from 0 */
    WNPU_PARAM_LANGUAGE = 4,  /* int32_t, a language's number or WNPU_LANGUAGE_AUTO */
    WNPU_PARAM_SEED = 5,      /* uint64_t */
    WNPU_PARAM_TEXT = 6,      /* const char *, UTF-8 */
    WNPU_PARAM_LIST = 7       /* a pointer and a size_t n_...; by its field only */
} wnpu_param_type;

/* What is known of one parameter. Strings are static. */
typedef struct wnpu_param {
    uint32_t struct_size;     /* set by the caller */
    int32_t type;             /* wnpu_param_type */
    const char *name;         /* of the field of wnpu_params */
    const char *option;       /* of the example's command line, "--beam"; one that begins with
                                 "--no-" sets a BOOL to 0; NULL if there is none */
    const char *choices;      /* of a CHOICE: "power|ratio"; else NULL */
    const char *group;        /* basic, search, gates, prompts, language, voice */
    const char *meaning;      /* in one line */
    double fallback;          /* the default, where the type is a number */
    double low, high;         /* the range, both included; may be infinite */
    int32_t has_off;          /* 1: the value off is allowed too, and switches it off */
    double off;
} wnpu_param;

/* Parameter number index, from 0 in the order of groups. Errors: E_ARGUMENT behind the last one. */
WNPU_API int wnpu_param_info(size_t index, wnpu_param *info);
/* Sets one parameter of a structure that wnpu_params_init() has initialised. value is a decimal
 * number; 0, 1, off, on, false, true, no or yes for a BOOL; a word for a CHOICE; a code, a name or
 * "auto" for a LANGUAGE; "off" where has_off is 1. The pointer to a TEXT is kept: it must live until
 * the runs with these parameters are over. On error nothing changes. Errors: E_ARGUMENT (unknown
 * name, or a value that is malformed or outside its range), E_UNSUPPORTED (a LIST), E_VERSION (the
 * program was compiled with a header that does not have the parameter). */
WNPU_API int wnpu_params_set(wnpu_params *params, const char *name, const char *value,
                             wnpu_error *error);

/* Transcribes a whole recording in the calling thread. params may be NULL for defaults. Results of
 * the run before are forgotten. Returns WNPU_OK, WNPU_INCOMPLETE when the ledger has unresolved
 * spans, or a negative error; whatever was transcribed before an error stays readable. Errors:
 * E_ARGUMENT, E_STATE, E_IO, E_CANCELLED, E_FULL, E_ACCEL, E_VERSION. */
WNPU_API int wnpu_transcribe(wnpu_session *session, const wnpu_params *params,
                             const wnpu_audio *audio);

/* Goes on with a run that was cancelled, or ended by a progress callback or with E_ACCEL: it
 * continues with the window that was not finished, and in the end results are those of a run that
 * was never interrupted, byte for byte. params must be those of the run, to the letter, but for
 * callbacks; audio the same recording. Its read continues at the frame that wnpu_get_position()
 * tells. Returns what wnpu_transcribe() would. Errors: its own; E_ARGUMENT also when params or
 * audio are others, and then all stays as it was; E_STATE when there is no such run: none at all,
 * or it ended in another way (a segment callback, E_IO, E_FULL, before its first window), or was
 * not by wnpu_transcribe(). */
WNPU_API int wnpu_resume(wnpu_session *session, const wnpu_params *params,
                         const wnpu_audio *audio);
/* Frames that the last run took from its recording so far. Errors: E_ARGUMENT. */
WNPU_API int wnpu_get_position(const wnpu_session *session, uint64_t *frames);

/* A snapshot is such a run as a block of bytes, which may be moved, kept and sent: results so far,
 * the audio of the current window, and what goes from window to window. wnpu_restore() takes it
 * into a session, of any process and machine and with any threads, instruction set and accelerator,
 * that has the same compute, max_beams, result_bytes and max_phrase_tokens and exactly the same
 * model, or the pack made of it: every weight counts, which is found out when the first snapshot of
 * a model is taken or restored, in about 10 ms for each 100 MB. Results can then
 * be read, with what was not decoded yet as cancelled in the ledger, and wnpu_resume() goes on. A
 * snapshot holds audio and text in the clear.
 *
 * It may be taken between runs, when wnpu_resume() could go on or the run has ended well, and from
 * a run's progress callback; in the session's thread. wnpu_snapshot_size() tells the bytes it takes
 * now, 0 if none can be taken; wnpu_snapshot_most() what it can ever take: 2 MB and result_bytes.
 * The memory is the caller's and needs no alignment; nothing is allocated. Errors: E_ARGUMENT,
 * E_STATE, E_MEMORY (size is too small). */
WNPU_API size_t wnpu_snapshot_size(wnpu_session *session);
WNPU_API size_t wnpu_snapshot_most(const wnpu_session *session);
WNPU_API int wnpu_snapshot(wnpu_session *session, void *memory, size_t size);
/* snapshot needs no alignment, and is not needed after the call. It may come from an enemy: all of
 * it is checked, and nothing in the session has changed when it is refused. Errors: E_ARGUMENT (no
 * snapshot, damaged, or of another model or configuration), E_VERSION (of another version or build
 * of the library), E_STATE. */
WNPU_API int wnpu_restore(wnpu_session *session, const void *snapshot, size_t size);

/* Probabilities of all languages, from the first speech: as much of it as WNPU_LANGUAGE_ONCE takes
 * to settle on a language. A recording in which the voice activity detector hears no speech is
 * judged by its first 30 s. probabilities (may be NULL) gets count entries, 0 beyond the model's
 * languages. Returns the number of the most probable language or a negative error; E_UNSUPPORTED
 * for .en models. Results of the run before are forgotten. */
WNPU_API int wnpu_detect_language(wnpu_session *session, const wnpu_audio *audio,
                                  float *probabilities, size_t count);

/* Probabilities of the languages that the last run heard, averaged over the windows that it asked,
 * weighted by the seconds of speech in them: count entries, 0 beyond the model's. A language that was given
 * has 1. Returns the number of languages of the model, or E_ARGUMENT. */
WNPU_API int wnpu_get_languages(const wnpu_session *session, float *probabilities, size_t count);

/* Which phrase of a list was said. Log-probabilities are those that the model gives to exactly this
 * phrase, in its likeliest spelling, and nothing after it but punctuation. */
typedef struct wnpu_choice {
    uint32_t struct_size;     /* set by the caller: sizeof(wnpu_choice) */
    int32_t best, second;     /* indices into the list; second -1 if it has one phrase */
    float best_logprob, second_logprob; /* -INFINITY if there is none */
    float margin;             /* best_logprob - second_logprob; INFINITY without a second */
    float no_speech;          /* probability of <|nospeech|>, 0..1 */
} wnpu_choice;

/* Listens to up to 30 s for one of 1..65535 phrases (UTF-8, up to 32 tokens and 254 bytes) and
 * nothing else. It always chooses: compare best_logprob and margin with what your phrases give when
 * they are said, and when they are not. params (may be NULL) gives language, prompts and callbacks;
 * the search is exact and has no options. The result is one segment as well, for wnpu_write().
 * Errors: those of wnpu_transcribe(); E_ARGUMENT when the phrases need more than
 * max_phrase_tokens. */
WNPU_API int wnpu_choose(wnpu_session *session, const wnpu_params *params, const wnpu_audio *audio,
                         const char *const *phrases, size_t n_phrases, wnpu_choice *choice);

/* Finds speech without transcribing anything: results are speech spans, statistics and a ledger of
 * silence and unresolved speech (WNPU_REASON_NO_TEXT). params may be NULL; of them only the vad_
 * fields, on_progress and user count, and vad is taken as 1. Results of the run before are
 * forgotten. Errors: E_ARGUMENT, E_STATE, E_IO, E_CANCELLED, E_FULL, E_VERSION. */
WNPU_API int wnpu_detect_speech(wnpu_session *session, const wnpu_params *params,
                                const wnpu_audio *audio);

WNPU_API size_t wnpu_segment_count(const wnpu_session *session);
/* Fills the first size bytes of *segment: pass sizeof(wnpu_segment), and a newer library does not
 * write beyond what your header knows. Errors: E_ARGUMENT. The pointers inside are views, see
 * "Ownership". */
WNPU_API int wnpu_get_segment_sized(const wnpu_session *session, size_t index,
                                    wnpu_segment *segment, size_t size);
/* The same by its first name. The function fills what 0.1 knew, for programs compiled then; the
 * macro of the same name, which source code meets, passes its own size. */
#ifndef WNPU_PREFIX
WNPU_API int wnpu_get_segment(const wnpu_session *session, size_t index, wnpu_segment *segment);
#endif
/* Words of a segment; 0 if there is no such segment, or wnpu_params.words was 0. */
WNPU_API size_t wnpu_word_count(const wnpu_session *session, size_t segment);
/* Errors: E_ARGUMENT. word->text is a view, see "Ownership". */
WNPU_API int wnpu_get_word(const wnpu_session *session, size_t segment, size_t index,
                           wnpu_word *word);
#define wnpu_get_segment(session, index, segment) \
    wnpu_get_segment_sized((session), (index), (segment), sizeof(wnpu_segment))
/* Speech of the last run; none with vad off. Errors: E_ARGUMENT. */
WNPU_API size_t wnpu_speech_span_count(const wnpu_session *session);
WNPU_API int wnpu_get_speech_span(const wnpu_session *session, size_t index,
                                  wnpu_speech_span *span);
/* The ledger of the last run. Errors: E_ARGUMENT. */
WNPU_API size_t wnpu_ledger_count(const wnpu_session *session);
WNPU_API int wnpu_get_ledger_span(const wnpu_session *session, size_t index,
                                  wnpu_ledger_span *span);
/* "none", "no-voice", "no-speech", "pause", "no-text", "cancelled", "full", "input", "failed";
 * NULL: unknown. */
WNPU_API const char *wnpu_ledger_reason_name(int reason);
WNPU_API int wnpu_get_stats(const wnpu_session *session, wnpu_stats *stats);

/* Where a session's memory is. Bytes. All but results_used and phrase_tokens are fixed from opening
 * on; results_peak says how much smaller config.result_bytes could have been. */
typedef struct wnpu_memory {
    uint32_t struct_size;     /* set by the caller: sizeof(wnpu_memory) */
    uint32_t reserved;        /* 0 */
    uint64_t session;         /* the block: what wnpu_session_size() promised */
    uint64_t results;         /* of it the store for results, config.result_bytes */
    uint64_t results_used;    /* of that by the last run, so far */
    uint64_t results_peak;    /* and most by any run since opening */
    uint64_t phrase_tokens;   /* tokens of hotwords or commands in use, of max_phrase_tokens */
    uint64_t accel;           /* of this session's weights in the accelerator's memory */
    uint64_t model;           /* of the model, which other sessions may share */
    uint64_t model_shared;    /* mapped or used in place, and so shared with other processes */
} wnpu_memory;

/* Between runs, or from a callback of the run. Errors: E_ARGUMENT. */
WNPU_API int wnpu_get_memory(const wnpu_session *session, wnpu_memory *memory);

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
    WNPU_FORMAT_TXT = 0,      /* one line per segment */
    WNPU_FORMAT_SRT = 1,      /* SubRip */
    WNPU_FORMAT_VTT = 2,      /* WebVTT */
    WNPU_FORMAT_TSV = 3,      /* start, end in milliseconds, text */
    WNPU_FORMAT_JSON = 4,     /* everything, tokens included; one object and a newline. The same
                                 bytes on every machine, with an accelerator or without */
    WNPU_FORMAT_JSON_DEVICE = 5, /* since 0.2: each segment has its "device", too: "cpu", or
                                 "accelerator" if one multiplied for the encoder (wnpu_device) */
    /* Since 0.2: */
    WNPU_FORMAT_CSV = 6,      /* RFC 4180: the columns of tsv, text in quotes, lines end in CR LF */
    WNPU_FORMAT_LRC = 7,      /* lyrics: [mm:ss.xx]text. Has no end times; minutes may pass 99 */
    WNPU_FORMAT_ASS = 8       /* Advanced SubStation Alpha 4.00+ */
} wnpu_format;

/* "txt", "srt", "vtt", "tsv", "json" (both JSON formats), "csv", "lrc" or "ass", which is also the
 * usual file name ending; NULL if there is no such format. */
WNPU_API const char *wnpu_format_name(int format);
/* The reverse, in any case; WNPU_FORMAT_JSON for "json". -1 if unknown. */
WNPU_API int wnpu_format_from_name(const char *name);

/* Writes the results of the last run. Every format is valid UTF-8 with "\n" line ends (csv: RFC
 * 4180). In all formats but JSON control characters in the text are written as spaces. In srt "-->"
 * within a text is written as "-- >"; vtt, csv and ass are escaped by their own rules; what else
 * would be taken for markup by usual players ("{\" in subtitles, "[12:34]" in lrc) is broken by an
 * invisible U+2060, except for <i> and its like in srt. In srt, vtt, lrc and ass cues never overlap,
 * and end at least 1 ms (ass: 10 ms) after they begin.
 * Errors: E_ARGUMENT, E_IO. */
WNPU_API int wnpu_write(const wnpu_session *session, wnpu_format format, wnpu_write_fn write,
                        void *user);

/* Subtitle layout, since 0.2. All limits 0 (default): one cue per segment, on one line. With any
 * limit set, srt, vtt, lrc (one line per cue) and ass break the text into cues and lines at the
 * best places within the limits: ends of sentences, then of clauses, pauses, spaces. Other formats
 * ignore the layout.
 *
 * Cue times come from the times of words; set wnpu_params.words for that, or times within a segment
 * are estimated by the length of the text. Every word is written once and in order. A segment that
 * is too short for min_cue_ms may share a cue with its neighbour of the same language. Width counts
 * display columns: 2 for East Asian wide characters and emoji, 0 for combining marks, 1 otherwise.
 * Scripts without spaces break between characters, not before closing or after opening punctuation;
 * only words longer than a line are broken elsewhere. A cue has at most 128 words (or characters of
 * a script without spaces). */
typedef struct wnpu_write_options {
    uint32_t struct_size;     /* set by wnpu_write_options_init() */
    int32_t format;           /* wnpu_format [TXT] */
    int32_t max_line_width;   /* columns, 8..1000; 0: no limit [0] */
    int32_t max_lines;        /* of a cue, 1..16; 0: no limit [0]. Needs max_line_width */
    int32_t max_cue_ms;       /* longest cue, 500..60000; 0: no limit [0] */
    int32_t min_cue_ms;       /* shortest cue, 0..10000 and at most max_cue_ms [0]. Shorter ones are
                                 shown longer or joined, as far as the cues around them and the
                                 recording's end permit */
    int32_t min_gap_ms;       /* between cues, 0..1000 [0] */
    int32_t reading_speed;    /* columns per second that viewers can read, 5..100; 0: any [0]. Cues
                                 stay for that long where there is room and max_cue_ms permits */
} wnpu_write_options;

WNPU_API void wnpu_write_options_init(wnpu_write_options *options, size_t struct_size);
/* Sets the limits that are usual for subtitles: 42 columns, 2 lines, 1 to 7 s, 80 ms between cues,
 * 20 columns per second. options must have seen wnpu_write_options_init(). */
WNPU_API void wnpu_write_options_subtitles(wnpu_write_options *options);

/* How far results were written; for output while a run goes on. Opaque but for the first two. */
typedef struct wnpu_write_cursor {
    uint32_t struct_size;     /* set by the caller, all else 0 before the first call */
    int32_t last;             /* set by the caller: 1 when no results will follow */
    uint64_t segment, offset; /* what comes next: segment, byte of its text */
    uint64_t cues;            /* written so far */
    int64_t end_ms;           /* of the last cue */
    uint64_t begun;           /* the beginning of the file was written */
} wnpu_write_cursor;

/* Writes with options. With cursor NULL all results; else those after the cursor that later results
 * cannot change, and moves the cursor. Together the parts are what one call at the end would write,
 * byte for byte: call it from on_segment with last = 0, and after the run with last = 1. With a
 * layout a cue may be held back until the segment after it is there; JSON is written with last = 1
 * only. Options must be the same in all calls. Allocates nothing; uses about 16 KiB of stack.
 * Errors: E_ARGUMENT (with the cursor unchanged), E_IO (as before; part of the bytes may have been
 * taken), E_VERSION. */
WNPU_API int wnpu_write_with(const wnpu_session *session, const wnpu_write_options *options,
                             wnpu_write_cursor *cursor, wnpu_write_fn write, void *user);

/* ---------------------------------------------------------------- self test ---- */

/* Compares the library with known answers: its tables, FFT and log-mel, the matrix product and one
 * window of a toy model on every instruction set that this machine has (AMX if the process is
 * permitted to use it), the tokenizer. Takes some 20 ms on one core; allocates about 1.5 MiB
 * (allocator NULL: malloc) and gives all of it back. Any thread, any time.
 * Errors: E_INTERNAL, with what differs and where; E_MEMORY, E_ARGUMENT. */
WNPU_API int wnpu_self_test(const wnpu_allocator *allocator, wnpu_error *error);

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
                                 64 times; 0 (default): 1250 */
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
/* NULL is allowed. Not while a session uses it. Waits for the driver where it is renewing a
 * context, which takes some seconds when the firmware is dead. */
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
