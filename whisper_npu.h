/*
 * whisper_npu.h - speech to text with OpenAI's Whisper models, in two C files.
 *
 * Copy whisper_npu.h and whisper_npu.c into your source tree and compile them with your own flags:
 *
 *     cc -c whisper_npu.c                    # no -march, no -ffast-math; clang needs -O2
 *     cc app.c whisper_npu.o -lm -lpthread
 *
 * A complete program: usage is "app MODEL.bin RECORDING.wav" (also examples/minimal.c).
 *
 *     #include <stdio.h>
 *     #include "whisper_npu.h"
 *
 *     static int64_t read_file(void *file, void *buffer, size_t size)
 *     {
 *         size_t n = fread(buffer, 1, size, (FILE *)file);
 *         return n > 0 || !ferror((FILE *)file) ? (int64_t)n : -1;
 *     }
 *
 *     int main(int argc, char **argv)
 *     {
 *         wnpu_model *model = NULL;
 *         wnpu_session *session = NULL;
 *         wnpu_wav_reader wav;
 *         wnpu_audio audio;
 *         wnpu_segment segment;
 *         wnpu_error error = {0, ""};
 *         size_t i;
 *         int status = -1;
 *         FILE *file = argc == 3 ? fopen(argv[2], "rb") : NULL;
 *
 *         if (file == NULL) {
 *             fprintf(stderr, "usage: minimal MODEL.bin RECORDING.wav\n");
 *             return 1;
 *         }
 *         wnpu_audio_init(&audio, sizeof audio);
 *         wnpu_wav_reader_init(&wav, sizeof wav);
 *         wav.read = read_file;
 *         wav.user = file;
 *         if (wnpu_model_open(&model, argv[1], NULL, &error) == WNPU_OK &&
 *             wnpu_session_open(&session, model, NULL, NULL, 0, &error) == WNPU_OK &&
 *             wnpu_wav_reader_open(&wav, &audio, &error) == WNPU_OK) {
 *             status = wnpu_transcribe(session, NULL, &audio);
 *             for (i = 0; wnpu_get_segment(session, i, &segment) == WNPU_OK; i++)
 *                 printf("%s\n", segment.text);
 *         }
 *         if (status != WNPU_OK)
 *             fprintf(stderr, "%s\n", error.code ? error.message : wnpu_session_error(session));
 *         wnpu_session_close(session);
 *         wnpu_model_close(model);
 *         fclose(file);
 *         return status != WNPU_OK;
 *     }
 *
 * Chapters: status and errors; memory and logging; instruction sets; models; tokens and languages;
 * audio; results; sessions; runs; live audio; reading results; output formats; self-test. Then, for
 * machines with an NPU only: accelerator interface; AMD XDNA accelerator (npu_amdxdna.c).
 *
 * THE CONTRACT
 *
 * Objects     A wnpu_model is immutable once open; any number of sessions in any number of threads
 *             can use it at the same time. A wnpu_session may be used by one thread at a time:
 *             while a call is in progress, other threads may only call wnpu_cancel(), and one
 *             thread wnpu_stream_push(). Callbacks of a run may also read results, write them, and
 *             take snapshots. Close all sessions of a model before the model.
 * Ownership   The library copies everything it keeps, except for wnpu_model_open_static(). Pointers
 *             that it returns are views: results are valid until the next run, wnpu_reset() or
 *             wnpu_session_close() of their session; strings of a model until the model is closed.
 * Memory      A session is one block of memory. wnpu_session_size() returns its exact size in
 *             advance, and the caller can supply it. After wnpu_session_open() the library
 *             allocates nothing and creates no threads, however long the recording is.
 * Results     The same audio, model, configuration and parameters give the same output, byte for
 *             byte, on every instruction set, with any number of threads, with or without an
 *             accelerator.
 * Errors      Functions return WNPU_OK (0), a positive status (the results are valid but
 *             incomplete) or a negative error. wnpu_strerror() returns the name of a status.
 *             wnpu_session_error(), or the wnpu_error passed to the call, describes the cause and
 *             the remedy. No input, model file or device can make the library crash, hang or lose
 *             text that has been transcribed.
 * Cancelling  wnpu_cancel() may be called from any thread or signal handler. The run ends within a
 *             few milliseconds on a current CPU, not counting your callbacks and accelerator jobs
 *             in flight. Its results remain readable and the session remains usable.
 * Threads     Each session has its own thread pool, which sleeps while the session is idle.
 *             Alternatives are your own parallel-for, or a single thread.
 * Callbacks   Run in the thread of the call that they belong to, during that call.
 * Fork        A session belongs to the process that opened it. In a forked child its functions
 *             return E_STATE, its results remain readable, and wnpu_session_close() frees nothing.
 *             A child may use the model and open sessions of its own.
 * Floats      The library computes with rounding to nearest, denormals enabled and traps disabled,
 *             whatever the calling thread has set. The thread's own setting is restored when a
 *             function returns; callbacks run with the library's setting.
 * Isolation   No global variables, environment variables, locale, signal handlers or output; no
 *             exit() and no abort().
 * ABI         Programs and libraries of different versions from 0.2 on work together: functions,
 *             enumerators and fields keep their values, places and types, and new fields are added
 *             at the end of a structure. A structure that may grow starts with struct_size, the
 *             size in the header that the program was compiled with. Structures you fill: call
 *             their _init function with sizeof first, then change fields. Structures the library
 *             fills: set struct_size to sizeof before the call. A newer library supports older
 *             sizes. An older library accepts fields that it does not know if they are 0 (else
 *             E_VERSION), and sets them to 0 in results. A size must be a multiple of 4 and at most
 *             256 bytes above the library's own; otherwise nothing is written (E_VERSION for
 *             structures you fill, E_ARGUMENT for results). Reserved fields must be 0: they may get
 *             a name and a meaning later. Structures without struct_size, wnpu_wav_reader and
 *             wnpu_accel do not change; wnpu_segment grows.
 * Units       Times are milliseconds from the first sample of the recording, as int64_t; sizes are
 *             bytes; log-probabilities are natural logarithms. A probability is in 0..1. A range
 *             a..b includes both ends. A value in [brackets] is the default.
 * Text        Valid UTF-8, never ending inside a character, and NUL-terminated.
 *
 * WHAT BECOMES TEXT
 *
 * Whisper leaves out speech, repeats itself, and writes what nobody has said. So a run asks the
 * following of all text; numbers are those of default parameters (see wnpu_params).
 *
 * Pauses      A window ends in the first pause of 1 s between stretches of speech, or in live runs
 *             of 0.7 s between phrases, that is much quieter than the speech. Silence at its
 *             beginning is skipped from 2 s on, and left out at its end from 1 s on.
 * Coverage    A second of voice without text is decoded again, once; what has no text then is
 *             unresolved in the ledger, and the run returns WNPU_INCOMPLETE. Since the model's own
 *             times are wrong by up to half a second, less than that at the edge of a segment is
 *             not missed, and text is dropped that begins so long behind what was decoded.
 * Repetition  Text that says the same four times, or three times if that is six tokens or more, is
 *             compared with the sound. What goes on while the model's attention does not is a loop:
 *             it is cut off and decoded again. Where attention goes on, but the sound does not
 *             recur, the repeated text does not count as evidence for itself.
 * Belief      A decoding that the model finds improbable, or that compresses too well, is replaced
 *             by one at another temperature if that is better. A segment is discarded if the sum of
 *             its doubts exceeds 1.6: the probability that nobody speaks, its mean negative
 *             log-probability, and half the share of it without voice.
 * Stability   Segments are final when they are reported. Text of the open window of a live run is
 *             shown when two decodings in a row agree on it, and withdrawn when two in a row differ
 *             from it. With commit_step_ms each word becomes final by itself: the sooner, the more
 *             certain it is, and sooner if the decoding before gave it as well.
 *
 * TASKS
 *
 * A recording         wnpu_model_open(), wnpu_session_open(); wnpu_wav_reader_open(), or the fields
 *                     of a wnpu_audio; wnpu_transcribe(); wnpu_get_segment()
 * Options of a run    wnpu_params_init(), then fields or wnpu_params_set(); wnpu_param_info()
 * Text meanwhile      on_segment or on_token of wnpu_params, called during the run
 * Live sound          stream_bytes of wnpu_config; wnpu_stream_begin(), wnpu_stream_push(),
 *                     wnpu_stream_step(), wnpu_stream_finish(); tentative text: wnpu_get_live()
 * Times of words      words of wnpu_params; wnpu_word_count(), wnpu_get_word()
 * A file of a format  wnpu_write(); which there are: wnpu_get_format()
 * Subtitles           wnpu_write_options_subtitles(); before the run wnpu_write_wants_words();
 *                     wnpu_write_with()
 * A given text        a run with words; wnpu_align(), then the lines are the segments
 * One of some phrases wnpu_choose()
 * The language        wnpu_detect_language(), or after a run wnpu_get_languages()
 * Where speech is     wnpu_detect_speech(), or after a run wnpu_get_speech_span()
 * What was missed     wnpu_get_ledger_span(), if a run returns WNPU_INCOMPLETE
 * Stop and continue   wnpu_cancel(); wnpu_resume() from wnpu_get_position()
 * Continue elsewhere  wnpu_snapshot_size(), wnpu_snapshot(); wnpu_restore(), then wnpu_resume() or
 *                     wnpu_stream_resume()
 * Memory beforehand   wnpu_model_measure(), wnpu_session_size()
 * Memory of yours     wnpu_session_open() in a block, wnpu_model_open_static(); wnpu_allocator
 * Threads of yours    parallel_for of wnpu_config and wnpu_model_config
 * Open quickly        wnpu_model_save() once; the pack that it writes is opened like any model
 * An AMD NPU          wnpu_amdxdna_open(), accel of wnpu_config; wnpu_amdxdna_diagnose()
 */
#ifndef WHISPER_NPU_H
#define WHISPER_NPU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Put before the declaration and the definition of each public function, for example
 * -DWNPU_API=static or an attribute for visibility.
 *
 * For two copies of the library in one program, this writes a header with other names for the
 * functions of one copy. Compile that copy and its callers with "-include acme.h". They still call
 * wnpu_transcribe(); the linker sees acme_transcribe(). Types and constants keep their names.
 *
 *     sed -n 's|^WNPU_API.*[ *]wnpu_\([^ (]*\)(.*|#define wnpu_\1 acme_\1|p' whisper_npu.h >acme.h
 */
#ifndef WNPU_API
#define WNPU_API
#endif

#define WNPU_VERSION_MAJOR 0
#define WNPU_VERSION_MINOR 2
#define WNPU_VERSION_PATCH 0

/* ---------------------------------------------------------------- status and errors ---- */

typedef enum wnpu_status {
    WNPU_OK = 0,
    WNPU_INCOMPLETE = 1,      /* results are valid, but part of the audio is unresolved: see
                                 wnpu_ledger_kind */
    WNPU_E_ARGUMENT = -1,     /* a parameter is out of range or contradicts another */
    WNPU_E_MEMORY = -2,       /* an allocation failed, or the supplied memory is too small */
    WNPU_E_IO = -3,           /* a read or write callback, or the file system, failed */
    WNPU_E_MODEL = -4,        /* the model file is damaged, truncated or of another kind */
    WNPU_E_AUDIO = -5,        /* the audio is damaged or of an unknown format */
    WNPU_E_CANCELLED = -6,    /* wnpu_cancel() was called, or a callback requested a stop */
    WNPU_E_UNSUPPORTED = -7,  /* valid, but this build, CPU or model cannot do it */
    WNPU_E_STATE = -8,        /* calls in the wrong order, or the session is busy */
    WNPU_E_FULL = -9,         /* the result store is full; results up to then are kept */
    WNPU_E_ACCEL = -10,       /* an accelerator was required and could not do its part */
    WNPU_E_VERSION = -11,     /* a structure or a pack has a version unknown to this library */
    WNPU_E_INTERNAL = -12     /* an invariant is broken: please report it */
} wnpu_status;

/* Describes an error of a function that does not belong to a session. Every parameter of this type
 * may be NULL. */
typedef struct wnpu_error {
    int code;                 /* wnpu_status */
    char message[252];        /* cause and remedy, one line of UTF-8 without newline */
} wnpu_error;

/* Version of the library: MAJOR * 10000 + MINOR * 100 + PATCH. */
WNPU_API uint32_t wnpu_version(void);

/* Name of a wnpu_status, for messages. Never NULL; static storage. */
WNPU_API const char *wnpu_strerror(int code);

/* Only for a whisper_npu.c compiled with -DWNPU_NO_OS, which calls no operating system: it has no
 * threads, files or clock, and by default allocates with malloc() and free(). The application
 * defines this function, which returns milliseconds from any start and never goes back. Times of
 * computation in statistics, progress once a second, and deadlines of an accelerator depend on it;
 * texts do not. */
#ifdef WNPU_NO_OS
double wnpu_clock_ms(void);
#endif

/* ---------------------------------------------------------------- memory and logging ---- */

/* Called only by wnpu_model_open*(), wnpu_model_measure*(), wnpu_model_save(), wnpu_session_open(),
 * the matching close functions and wnpu_self_test(). alignment is a power of two up to 4096. alloc
 * returns NULL if there is no memory; release receives the size passed to alloc. */
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

/* Receives one message: a line of UTF-8 without newline, valid during the call. */
typedef void (*wnpu_log_fn)(void *user, wnpu_log_level level, const char *text);

/* ---------------------------------------------------------------- instruction sets ---- */

typedef enum wnpu_isa {
    WNPU_ISA_AUTO = 0,        /* the fastest available; AMX only if already permitted */
    WNPU_ISA_SCALAR = 1,      /* plain C; defines the correct result */
    WNPU_ISA_SSE41 = 2,
    WNPU_ISA_AVX2 = 3,
    WNPU_ISA_AVX512 = 4,      /* AVX-512 F, BW, VL and VNNI */
    WNPU_ISA_NEON = 5,        /* AArch64 Advanced SIMD */
    WNPU_ISA_NEON_DOT = 6,    /* NEON and the dot product instructions */
    WNPU_ISA_NEON_I8MM = 7,   /* NEON and the int8 matrix instructions */
    /* Intel AMX with AVX-512, on Linux for x86-64. Linux lets a process use AMX only on request
     * (ARCH_REQ_XCOMP_PERM), which adds 8 KiB to the signal frames of all its threads.
     * wnpu_session_open() makes the request if AMX is selected by name; AUTO uses AMX only if the
     * process has permission already. */
    WNPU_ISA_AMX = 8,
    WNPU_ISA_AVX_VNNI = 9,    /* AVX2 and AVX-VNNI: Intel's CPUs for PCs since 2021 */
    WNPU_ISA_WASM = 10        /* WebAssembly's 128-bit SIMD, in modules compiled with -msimd128 */
} wnpu_isa;

/* Returns 1 if this CPU, operating system and build can run isa, a wnpu_isa, else 0. AUTO is always
 * available. For AMX: the CPU has AMX-TILE, AMX-INT8 and everything AVX512 needs, and the system
 * saves tile registers (XCR0, ARCH_GET_XCOMP_SUPP), whether or not this process has permission to
 * use them. */
WNPU_API int wnpu_isa_available(int isa);
/* "auto", "scalar", "sse4.1", "avx2", "avx512", "neon", "neon-dot", "neon-i8mm", "amx",
 * "avx-vnni" or "simd128"; NULL if isa is unknown. Static storage. */
WNPU_API const char *wnpu_isa_name(int isa);
/* The wnpu_isa with this name, or -1. */
WNPU_API int wnpu_isa_from_name(const char *name);

/* ---------------------------------------------------------------- models ---- */

typedef struct wnpu_model wnpu_model;

/* Random access to the bytes of a model. read copies up to size bytes from offset into buffer and
 * returns how many (short reads are allowed), 0 at the end, or a negative number on failure. */
typedef struct wnpu_source {
    int64_t (*read)(void *user, uint64_t offset, void *buffer, size_t size);
    uint64_t size;            /* total bytes */
    void *user;
} wnpu_source;

/* Calls task(context, i) exactly once for each i in 0..count-1, in any order and in any threads,
 * and returns when all calls have returned. Must not fail. */
typedef void (*wnpu_parallel_for_fn)(void *user, size_t count,
                                     void (*task)(void *context, size_t index), void *context);

typedef struct wnpu_model_config {
    uint32_t struct_size;
    uint32_t keep_float;      /* 1: also keep float32 weights, for WNPU_COMPUTE_FLOAT [0] */
    const wnpu_allocator *allocator; /* must outlive the model [NULL: malloc and free] */
    wnpu_log_fn log;          /* called only while opening [NULL: no log] */
    void *log_user;
    /* For packs; ignored for other models. */
    uint32_t copy;            /* 1: read the pack into allocated memory; 0: map it or use it in
                                 place where possible [0] */
    uint32_t full_check;      /* 1: opening includes wnpu_model_verify() [0] */
    /* For other models; ignored for packs. */
    uint32_t threads;         /* threads that quantise weights while opening, 1..64; 0: one per
                                 CPU (counted as in wnpu_config), at most 4, fewer for small files
                                 [0] */
    uint32_t reserved;
    wnpu_parallel_for_fn parallel_for; /* your threads, as in wnpu_config [NULL: own threads] */
    void *parallel_user;
    /* For models that are not packs; ignored for packs, which hold both. */
    const uint16_t *alignment_heads; /* [n_alignment_heads][2]: layer and head, counted from 0, of
                                 the decoder's cross-attention, for the times of words, as
                                 "alignment_heads" of generation_config.json; read only while
                                 opening [NULL: those of OpenAI's model of this shape, or all heads
                                 of the upper half of the layers] */
    uint32_t n_alignment_heads; /* 0..64 [0] */
    uint32_t weight_bits;     /* of weights in the layers: 8, or 6, which take a quarter less memory
                                 and are less precise, see "Models" in README.md. Models whose width
                                 is not a multiple of 16 keep 8 [0: 8] */
} wnpu_model_config;

WNPU_API void wnpu_model_config_init(wnpu_model_config *config, size_t struct_size);

/* Opens a model file: a ggml Whisper model (tensors of type f32, f16, q4_0, q4_1, q5_0, q5_1, q8_0,
 * q4_K, q5_K or q6_K), whose weights are quantised to int8 with one scale per output channel, or a
 * pack, which wnpu_model_save() writes. config NULL selects the defaults. On success *model is set
 * and must be closed with wnpu_model_close(); on failure *model is NULL.
 *
 * A pack (.wnpu) gives the same text as the file it was made from, opens in milliseconds and works
 * with all instruction sets. wnpu_model_open() maps the file read-only, so that all processes that
 * use it share its memory; where the system cannot map files it reads the file. While the model is
 * open the file may be removed, or replaced by renaming another file to its name, but must not be
 * truncated or written to: access to a mapped page that no longer exists ends the process with
 * SIGBUS. Set config->copy where that cannot be ensured. On Windows the file can be renamed, and
 * its name given to another file; paths are UTF-8 there too. Opening verifies the checksum of the
 * header, all sizes and offsets, every index and all float values, so that a damaged pack cannot
 * crash the library. Damage to the int8 weights is found by wnpu_model_verify() or
 * config->full_check. A pack contains no float weights, so config->keep_float is refused
 * (E_UNSUPPORTED).
 *
 * Errors: E_ARGUMENT, E_IO, E_MODEL, E_MEMORY, E_UNSUPPORTED, E_VERSION (of the pack or config). */
WNPU_API int wnpu_model_open(wnpu_model **model, const char *path,
                             const wnpu_model_config *config, wnpu_error *error);
/* Opens a model in memory, as wnpu_model_open() does. data is not used after the call; a pack is
 * copied. */
WNPU_API int wnpu_model_open_memory(wnpu_model **model, const void *data, size_t size,
                                    const wnpu_model_config *config, wnpu_error *error);
/* Opens a model in memory that remains readable and unchanged until the model is closed, such as
 * data linked into the program, flash, or a mapping of your own. A pack is used in place and only a
 * few KiB are allocated. data must be aligned to 64 bytes. Otherwise as wnpu_model_open(). */
WNPU_API int wnpu_model_open_static(wnpu_model **model, const void *data, size_t size,
                                    const wnpu_model_config *config, wnpu_error *error);
/* Opens a model through a read callback, which is called by the calling thread only. source is not
 * used after the call; a pack is read completely. Otherwise as wnpu_model_open(). */
WNPU_API int wnpu_model_open_source(wnpu_model **model, const wnpu_source *source,
                                    const wnpu_model_config *config, wnpu_error *error);

/* Memory that a model needs, in bytes. */
typedef struct wnpu_model_memory {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t held;            /* from the allocator, until the model is closed */
    uint64_t shared;          /* of a pack that is mapped or used in place; 0 if it is copied */
    uint64_t peak;            /* largest amount allocated at any time while opening */
} wnpu_model_memory;

/* Computes exactly the memory that opening this file or source with this configuration will need:
 * the model, about 400 KiB, and without a pack 240 KiB (tiny) to 570 KiB (large) for each thread
 * that opens. Reads headers only, and temporarily allocates about 400 KiB from config->allocator.
 * Errors: those of opening that the headers show. */
WNPU_API int wnpu_model_measure(const char *path, const wnpu_model_config *config,
                                wnpu_model_memory *memory, wnpu_error *error);
WNPU_API int wnpu_model_measure_source(const wnpu_source *source, const wnpu_model_config *config,
                                       wnpu_model_memory *memory, wnpu_error *error);
/* Closes a model and frees its memory. All sessions must be closed. NULL is allowed. */
WNPU_API void wnpu_model_close(wnpu_model *model);

/* Compares every byte of a model that was opened from a pack with the checksums of the pack. May be
 * called while sessions use the model. Errors: E_MODEL (the message names the first damaged
 * section), E_UNSUPPORTED (the model is not from a pack), E_ARGUMENT. */
WNPU_API int wnpu_model_verify(const wnpu_model *model, wnpu_error *error);

/* Writes up to size bytes and returns how many were written (short writes are allowed), or a
 * negative number on failure. */
typedef int64_t (*wnpu_write_fn)(void *user, const void *data, size_t size);

/* Writes the model as a pack. The same model always gives the same bytes. Temporarily allocates
 * about 400 KiB from the model's allocator. Errors: E_UNSUPPORTED (the model was opened with
 * keep_float), E_IO, E_MEMORY, E_ARGUMENT. */
WNPU_API int wnpu_model_save(const wnpu_model *model, wnpu_write_fn write, void *user,
                             wnpu_error *error);

typedef struct wnpu_model_info {
    uint32_t struct_size;
    int32_t n_vocab;          /* 51864 (.en), 51865 (multilingual), 51866 (large-v3, turbo) */
    int32_t n_audio_ctx;      /* encoder positions, 1500 */
    int32_t n_audio_state, n_audio_head, n_audio_layer; /* encoder width, heads, layers */
    int32_t n_text_ctx;       /* decoder positions, 448 */
    int32_t n_text_state, n_text_head, n_text_layer; /* decoder width, heads, layers */
    int32_t n_mels;           /* mel bands, 80 or 128 */
    int32_t multilingual;     /* 0 or 1 */
    int32_t n_languages;      /* 0 (.en), 99 or 100 */
    int32_t has_float;        /* 1: float32 weights were kept */
    uint64_t bytes;           /* memory allocated for the model */
    const char *name;         /* "tiny", "base.en", "large-v3", "turbo", "distil-small.en", ... or
                               * "custom" */
    const char *weight_type;  /* type of most tensors in the file: "f16", "q5_0", ... */
    uint64_t shared_bytes;    /* of a pack that is mapped or used in place; not part of bytes */
    uint32_t weight_bits;     /* 8 or 6, see wnpu_model_config */
    uint32_t reserved;
} wnpu_model_info;

/* Errors: E_ARGUMENT. */
WNPU_API int wnpu_model_get_info(const wnpu_model *model, wnpu_model_info *info);

/* ---------------------------------------------------------------- tokens and languages ---- */

/* Languages have the numbers of OpenAI's tokenizer: 0 is English, 99 is Cantonese. */
WNPU_API int wnpu_language_count(void);                    /* 100 */
WNPU_API const char *wnpu_language_code(int language);     /* "en"; NULL out of range */
WNPU_API const char *wnpu_language_name(int language);     /* "english"; NULL out of range */
/* Number of a language, or -1 if unknown. Accepts a code (ISO 639-1, 639-2 or 639-3), an English or
 * other common name, or a BCP 47 tag, of which only the language matters: "de", "German",
 * "castilian", "pt-BR", "zh-Hans-CN", "zh-yue", "nb", "fil", "en_US.UTF-8". Case is ignored. Codes
 * of Moldavian and Serbo-Croatian give Romanian and Serbian. */
WNPU_API int wnpu_language_id(const char *code_or_name);
/* The scripts that Chinese is written in. */
typedef enum wnpu_script {
    WNPU_SCRIPT_ANY = 0,      /* as the model writes it, which may be both */
    WNPU_SCRIPT_SIMPLIFIED = 1,
    WNPU_SCRIPT_TRADITIONAL = 2
} wnpu_script;

/* The script that a tag of Chinese or Cantonese asks for, a wnpu_script: zh-Hans, zh-CN, zh-SG and
 * zh-MY simplified, zh-Hant, zh-TW, zh-HK and zh-MO traditional characters; otherwise and for NULL
 * WNPU_SCRIPT_ANY. */
WNPU_API int wnpu_language_script(const char *tag);

/* Bytes of a text token, or the name of a special token, such as "<|en|>" or "<|2.40|>". The bytes
 * need not be complete UTF-8, because a character may span several tokens. *length (may be NULL)
 * receives the number of bytes. NULL if token is out of range. Valid as long as the model. */
WNPU_API const char *wnpu_token_text(const wnpu_model *model, int32_t token, size_t *length);

/* Encodes length arbitrary bytes as text tokens (byte-level BPE, no special tokens). Writes up to
 * capacity tokens and returns the number that the text needs, or E_ARGUMENT, or E_UNSUPPORTED for a
 * vocabulary without tokens for single bytes. tokens may be NULL if capacity is 0. Allocates
 * nothing. */
WNPU_API int64_t wnpu_tokenize(const wnpu_model *model, const char *text, size_t length,
                               int32_t *tokens, size_t capacity);

/* ---------------------------------------------------------------- audio ---- */

typedef enum wnpu_sample_format {
    WNPU_SAMPLE_F32 = 0,      /* native float, full scale -1..1 */
    WNPU_SAMPLE_S16 = 1,      /* native int16_t */
    /* The others are little-endian bytes, as in WAV files: */
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

/* A recording, in memory or read through a callback. Samples are interleaved; a frame is one sample
 * of each channel. Any length is valid, from no frames to more than 24 hours. NaN and infinite
 * samples are replaced by 0, others are clamped to -4..4. Float samples with the full scale of 16,
 * 24 or 32-bit integers are detected when they exceed 1 by far, and are rescaled from that block of
 * 50 ms on; a warning is logged. */
typedef struct wnpu_audio {
    uint32_t struct_size;
    int32_t format;           /* wnpu_sample_format [F32] */
    uint32_t rate;            /* frames per second, 8000..192000 [16000] */
    uint32_t channels;        /* 1..256 [1] */
    int32_t channel;          /* 0..channels-1, or WNPU_CHANNEL_MIX for the mean of all, weighted
                                 by layout if that is known [MIX]. In
                                 blocks of up to 50 ms whose channels cancel each other (the mean is
                                 30 dB below the loudest channel, or 16 dB below the mean of
                                 independent channels) the loudest channel is used instead; a
                                 warning is logged */
    const void *data;         /* frames * channels samples, any alignment; NULL if read is set */
    uint64_t frames;          /* with read: total if known, else 0; used for progress only */
    /* Copies up to max_frames frames into buffer and returns how many, 0 at the end, or a negative
     * number on failure (the run then ends with E_IO and keeps its results). May block, but the run
     * reads 30 s ahead before it decodes: for audio that is still being recorded, see the chapter
     * "live audio". */
    int64_t (*read)(void *user, void *buffer, size_t max_frames);
    void *user;
    uint32_t layout;          /* loudspeakers that the channels are for, in this order, as the
                                 channel mask of WAVE_FORMAT_EXTENSIBLE: 1 front left, 2 front
                                 right, 4 centre, 8 low frequencies, ... The mean then has the
                                 weights of ITU-R BS.775: front 1, centre 1.41, side and back 0.71,
                                 low frequencies 0. Ignored unless it has as many bits as there are
                                 channels. wnpu_wav_open() and wnpu_wav_reader_open() set it
                                 [0: unknown] */
    uint32_t reserved;
} wnpu_audio;

WNPU_API void wnpu_audio_init(wnpu_audio *audio, size_t struct_size);
/* Bytes of a frame: channels times the bytes of a sample in this format. 0 if audio is NULL, or its
 * format or number of channels is invalid. */
WNPU_API size_t wnpu_frame_bytes(const wnpu_audio *audio);

/* Parses a WAV file in memory and sets the fields of *audio, which must have been initialised with
 * wnpu_audio_init(); audio->data then points into the buffer. Supports RIFF, RF64 and BW64; PCM of
 * 8 to 32 bits, float of 32 and 64 bits, A-law and u-law; WAVE_FORMAT_EXTENSIBLE; unknown chunks,
 * odd chunk sizes, missing or wrong data sizes. Reads nothing outside data[0..size-1]. On success
 * error->code is WNPU_OK and error->message is empty or a warning, see wnpu_wav_problem. Errors:
 * E_AUDIO, E_ARGUMENT. */
WNPU_API int wnpu_wav_open(wnpu_audio *audio, const void *data, size_t size, wnpu_error *error);

/* Defects of a WAV file that can be read nevertheless. */
typedef enum wnpu_wav_problem {
    WNPU_WAV_CUT = 1,         /* the file ends before its data chunk does. The placeholder sizes of
                                 recorders (0, 0x7fff0000 and more) are not reported */
    WNPU_WAV_LONGER = 2,      /* samples continue after the end of the data chunk, where neither a
                                 chunk nor the end of the file follows: its size was not updated, or
                                 exceeds 32 bits. They are read as well */
    WNPU_WAV_PARTS = 4        /* only for wnpu_wav_open(): there are more data chunks, which are not
                                 read; wnpu_wav_reader reads all */
} wnpu_wav_problem;

/* Reads a WAV file sequentially, for example from a pipe, by the rules of wnpu_wav_open(). The
 * structure must stay at its address while the recording is in use. It needs no other memory and
 * reads at most a few KiB ahead. */
typedef struct wnpu_wav_reader {
    uint32_t struct_size;
    uint32_t problems;        /* wnpu_wav_problem values, ORed; complete after the last frame */
    /* Copies up to size bytes into buffer and returns how many (short reads are allowed; may
     * block), 0 at the end, or a negative number on failure, which audio->read then returns. */
    int64_t (*read)(void *user, void *buffer, size_t size);
    void *user;
    uint64_t frames;          /* frames delivered by audio->read so far */
    uint64_t work[288];       /* internal */
} wnpu_wav_reader;

WNPU_API void wnpu_wav_reader_init(wnpu_wav_reader *reader, size_t struct_size);
/* Reads up to the first sample, and sets format, rate, channels and read of *audio, and frames if
 * the file specifies them. Before: wnpu_wav_reader_init(), then set reader->read and reader->user;
 * wnpu_audio_init() for audio. Errors: E_AUDIO, E_IO (read failed), E_UNSUPPORTED (the fmt chunk
 * comes after the samples), E_VERSION, E_ARGUMENT. */
WNPU_API int wnpu_wav_reader_open(wnpu_wav_reader *reader, wnpu_audio *audio, wnpu_error *error);

/* ---------------------------------------------------------------- results ---- */

typedef struct wnpu_token {
    int32_t id;
    float probability;        /* given the tokens before it, after suppression rules */
    int64_t t0_ms, t1_ms;     /* inside the segment. With wnpu_params.words: where the alignment
                                 path enters and leaves the token, less exact than times of
                                 words. Otherwise estimated from the length of the text */
} wnpu_token;

typedef struct wnpu_segment {
    int64_t t0_ms, t1_ms;     /* 0 <= t0_ms <= t1_ms <= duration */
    const char *text;         /* usually begins with a space, as written by the model */
    size_t text_length;       /* bytes */
    const wnpu_token *tokens; /* text tokens only, no special ones */
    size_t n_tokens;
    int32_t language;         /* number of the language, 0 = English */
    int32_t window;           /* number of the window that the segment comes from, from 0 */
    float mean_logprob;       /* mean log-probability of the window's tokens, without repetition
                                 whose sound does not recur, see stop_loops */
    float no_speech;          /* probability of <|nospeech|> in the window */
    /* How the text of the window was decoded. */
    float temperature;        /* of the decoding that was kept */
    float compression_ratio;  /* bytes of the window's text divided by bytes of its zlib form; text
                                 that is repeated in the audio, see stop_loops, counts once */
    float first_logprob;      /* log-probability of the window's first text token */
    int32_t retries;          /* decodings of the window that were rejected before */
    uint32_t reasons;         /* why, wnpu_refusal values ORed; 0: none was rejected */
    int32_t accepted;         /* 1: passed all gates; 0: the best of the rejected ones */
    int32_t prompted;         /* 1: decoded after text (a prompt or earlier windows) */
    int32_t device;           /* wnpu_device that computed the encoder */
    float voice;              /* share of the segment in which the voice activity detector found
                                 speech, 0..1; 0 if vad is off */
    uint32_t reserved;
    int64_t window_ms;        /* start of the window, at most t1_ms */
    float level;              /* mean level of the segment's audio in dB, 0: full scale; at least
                                 -120 */
    int32_t speaker;          /* wnpu_params.speaker of the run, or found by voice, see
                                 wnpu_params.voices; 0: unknown */
} wnpu_segment;

/* A span of speech found by the voice activity detector, padding included. Spans are in order and
 * do not overlap. */
typedef struct wnpu_speech_span {
    int64_t t0_ms, t1_ms;     /* 0 <= t0_ms < t1_ms <= duration */
} wnpu_speech_span;

typedef enum wnpu_ledger_kind {
    WNPU_LEDGER_TEXT = 0,
    WNPU_LEDGER_SILENCE = 1,  /* no speech was found */
    WNPU_LEDGER_UNRESOLVED = 2 /* possibly speech that is missing in the text */
} wnpu_ledger_kind;

typedef enum wnpu_ledger_reason {
    WNPU_REASON_NONE = 0,
    /* of silence */
    WNPU_REASON_NO_VOICE = 1, /* the voice activity detector found no speech */
    WNPU_REASON_NO_SPEECH = 2, /* the edge of a span of speech, with at most 500 ms of voice: no
                                 speech by the probability of <|nospeech|>, or the text was
                                 discarded as unreliable (see "Voice activity" before
                                 wnpu_params) */
    WNPU_REASON_PAUSE = 3,    /* next to text: less speech than is decoded again; with vad off,
                                 everything outside the model's timestamps */
    /* of unresolved spans */
    WNPU_REASON_NO_TEXT = 4,  /* speech that gave no reliable text, although decoded again */
    WNPU_REASON_CANCELLED = 5,
    WNPU_REASON_FULL = 6,     /* the result store was full */
    WNPU_REASON_INPUT = 7,    /* read, but the input failed before it was decoded */
    WNPU_REASON_FAILED = 8,   /* another error ended the run */
    WNPU_REASON_OVERRUN = 9   /* live audio that was lost, see wnpu_stream_push() */
} wnpu_ledger_reason;

/* What became of a span of the recording. After every run, however it ended, the spans of the
 * ledger cover 0..wnpu_stats.audio_ms without gaps or overlaps. Audio that was not read is not
 * included. Between the steps of a live run they cover 0..wnpu_live.committed_ms. */
typedef struct wnpu_ledger_span {
    int64_t t0_ms, t1_ms;     /* t0_ms < t1_ms */
    int32_t kind;             /* wnpu_ledger_kind */
    int32_t reason;           /* wnpu_ledger_reason */
} wnpu_ledger_span;

/* A word with its leading space and punctuation; needs wnpu_params.words. In languages written
 * without spaces (Chinese, Cantonese, Japanese, Thai, Lao, Burmese) a character, or the few
 * characters of one token. The words of a segment concatenated are its text. Times are computed as
 * in OpenAI's timing.py, by dynamic time warping over the cross-attention of the decoder's
 * alignment heads; they are then corrected for the lag of these heads, which is known for tiny and
 * base.en and may be 200 ms for other models, and moved to the beginning and end of speech next to
 * audible pauses. */
typedef struct wnpu_word {
    uint32_t struct_size;
    float probability;        /* mean over its tokens, not counting attached punctuation */
    int64_t t0_ms, t1_ms;     /* inside the segment, not before the end of the previous word */
    const char *text;         /* usually begins with a space */
    size_t text_length;       /* bytes */
    size_t first_token;       /* index into the segment's tokens */
    size_t n_tokens;
    int32_t speaker;          /* as in its segment */
    int32_t reserved;
} wnpu_word;

/* Why a decoding of a window was rejected: the gates of wnpu_params. Values can be ORed. */
typedef enum wnpu_refusal {
    WNPU_REFUSED_LOOP = 1,        /* stop_loops: it repeats itself */
    WNPU_REFUSED_COMPRESSION = 2, /* compression_threshold */
    WNPU_REFUSED_LOGPROB = 4,     /* logprob_threshold */
    WNPU_REFUSED_FIRST_TOKEN = 8  /* first_logprob_threshold */
} wnpu_refusal;

typedef enum wnpu_device {
    WNPU_DEVICE_CPU = 0,
    WNPU_DEVICE_ACCEL = 1
} wnpu_device;

/* Statistics of the last run. Times of computation (double) are wall-clock milliseconds. */
typedef struct wnpu_stats {
    uint32_t struct_size;
    int32_t isa;              /* wnpu_isa in use */
    int32_t threads;          /* working threads, including the calling one */
    int32_t language;         /* number of the language, detected or given */
    float language_probability; /* 1 if given; 0 if only speech was detected */
    uint32_t windows;         /* encoder runs */
    uint32_t tokens;          /* chosen tokens */
    uint32_t prompt_tokens;   /* in the prompts of all decodings */
    int64_t audio_ms;         /* length of the audio read so far */
    double total_ms;
    double audio_in_ms;       /* reading, conversion, resampling */
    double log_mel_ms;
    double encoder_ms;
    double cross_ms;          /* keys and values of the cross-attention */
    double decoder_ms;        /* prompts and steps, including suppression rules and search */
    uint32_t retries;         /* decodings that were rejected and repeated */
    uint32_t loops;           /* those of them that were rejected because of a loop */
    uint32_t unaccepted;      /* windows for which no decoding passed the gates */
    uint32_t silent;          /* windows classified as silence */
    uint32_t skips;           /* spans without speech that were not decoded */
    uint32_t raised;          /* encoder runs of windows more than about 30 dB quieter than usual
                                 speech, whose level was raised for the model */
    double voice_ms;          /* voice activity detection; part of audio_in_ms */
    int64_t speech_ms;        /* total length of speech spans */
    int64_t unresolved_ms;    /* total length of unresolved ledger spans */
    uint32_t returns;         /* windows decoded again because speech had no text, at most one per
                                 second of the recording */
    uint32_t opposed_ms;      /* total length of blocks whose channels cancel each other, see
                                 wnpu_audio.channel */
} wnpu_stats;

/* ---------------------------------------------------------------- sessions ---- */

typedef struct wnpu_session wnpu_session;
typedef struct wnpu_accel wnpu_accel; /* see the chapter "Accelerator interface" */

typedef enum wnpu_compute {
    WNPU_COMPUTE_INT8 = 0,
    WNPU_COMPUTE_FLOAT = 1    /* float32, slow, for tests and comparison; the model must have been
                                 opened with keep_float */
} wnpu_compute;

/* Which matrix products a session assigns to its accelerator. The output is the same. */
typedef enum wnpu_accel_use {
    WNPU_ACCEL_FASTER = 0,    /* those that it is expected to compute faster than the CPU */
    WNPU_ACCEL_ALL = 1        /* all that can be divided into its shapes */
} wnpu_accel_use;

/* Settings that are fixed while a session is open.
 *
 * threads counts the calling thread. By default there is one thread for each CPU that the calling
 * thread may use, at most 8; on Linux these are the CPUs of its affinity mask, limited by the quota
 * of its control group, rounded up.
 *
 * max_beams is the number of hypotheses that the session has room for. Each has a cache of 1.6 MB
 * for tiny, 3 MB for base, 9 MB for small, 25 MB for medium, 41 MB for large, 5 MB for turbo.
 *
 * batch is for recordings that are available as a whole. With 0, a window begins where the text of
 * the previous window ends, and is decoded after it. With 1..8, windows end in pauses found by the
 * voice activity detector, none needs the text of another, and up to that many are decoded
 * together, which reads each weight only once. The text is the same for 1 to 8, but differs from 0.
 * Windows are decoded one at a time with a first temperature above 0, with text before them
 * (prompt, prefix, condition_on_previous), with on_logits or WNPU_LANGUAGE_EACH, and when they are
 * decoded again. A run reads 210 s of audio (13 MB) before it decodes the first window. Each
 * window after the first needs 5 MB for tiny, 10 MB for base, 31 MB for small, 83 MB for medium,
 * 139 MB for large, 17 MB for turbo, and the cache of a hypothesis. With beams, windows share these
 * caches: as many are decoded at a time as the caches suffice for.
 *
 * require_accel turns computation on the CPU instead of the accelerator into an error: opening
 * fails with E_ACCEL if nothing would run on accel, and a run ends with E_ACCEL after the first
 * window in which the CPU had to compute a product assigned to accel. The (correct) text of that
 * window is kept. */
typedef struct wnpu_config {
    uint32_t struct_size;
    uint32_t threads;         /* 1..64; 0: one per available CPU, at most 8 [0] */
    int32_t compute;          /* wnpu_compute [INT8] */
    int32_t isa;              /* wnpu_isa; E_UNSUPPORTED if not available [AUTO] */
    uint64_t result_bytes;    /* store for text, tokens and segments of one run, 64 KiB..1 GiB. The
                                 default holds about a day of speech; see E_FULL [8 MiB] */
    wnpu_parallel_for_fn parallel_for; /* use these threads instead of a pool [NULL: own pool] */
    void *parallel_user;
    wnpu_accel *accel;        /* belongs to the caller and must outlive the session; see "How
                                 sessions use it" [NULL: CPU only] */
    uint32_t require_accel;   /* 1: do not replace accel by the CPU silently [0] */
    uint32_t accel_use;       /* wnpu_accel_use [FASTER] */
    const wnpu_allocator *allocator; /* not used if memory is supplied [NULL: malloc and free] */
    wnpu_log_fn log;          /* called in the thread of the run [NULL: no log] */
    void *log_user;
    uint32_t max_beams;       /* largest beam and best_of, 1..16 [5] */
    uint32_t max_phrase_tokens; /* tokens of all hotwords or phrases in all spellings, 1..1048576;
                                   about 10 to 40 per phrase, 44 bytes each [4096]. With
                                   stream_bytes 8 bytes more, for replace and spellings */
    uint32_t batch;           /* windows decoded together, 1..8; 0: sequential windows [0] */
    uint32_t reserved;
    uint64_t stream_bytes;    /* live samples that can wait between wnpu_stream_push() and
                                 wnpu_stream_step(), in the format of the stream, up to 1 GiB. The
                                 time of one window (about 1 s for base on two cores) is the least
                                 that makes sense; 10 s of 16-bit samples at 16 kHz are 320000.
                                 0: no live audio [0] */
    uint32_t voice_dimension; /* numbers in a vector of wnpu_params.on_voice, up to 2048; 0: no
                                 speakers by voice [0] */
    uint32_t max_turns;       /* turns whose voices are compared, up to 4096; each needs 6 bytes a
                                 dimension and 40 more. An hour of conversation has up to 1000
                                 [0: 1024] */
} wnpu_config;

WNPU_API void wnpu_config_init(wnpu_config *config, size_t struct_size);

/* Number of threads that a session opened by the calling thread has with threads 0, 1..8. Programs
 * that run several sessions at a time divide it among them. */
WNPU_API uint32_t wnpu_default_threads(void);

/* Exact size in bytes of a session with this configuration, not counting thread stacks. Returns 0
 * on error, with the reason in *error. Depends on the arguments only. config NULL selects the
 * defaults. */
WNPU_API size_t wnpu_session_size(const wnpu_model *model, const wnpu_config *config,
                                  wnpu_error *error);

typedef struct wnpu_accel_info wnpu_accel_info;

/* Bytes of weights that opening a session with this configuration will place in the accelerator's
 * memory, in addition to its memory_fixed; closing the session releases them. With info NULL the
 * accelerator is config->accel. Otherwise info describes one that need not exist yet, by its shapes
 * and max_chain, for example those from wnpu_amdxdna_memory(). Costs are unknown then; once the
 * accelerator is open and has measured them, sessions may use it differently, so call again.
 * Returns 0 if nothing would run there (error->code is WNPU_OK), or on error. Depends on the
 * arguments only. */
WNPU_API uint64_t wnpu_session_accel_bytes(const wnpu_model *model, const wnpu_config *config,
                                           const wnpu_accel_info *info, wnpu_error *error);

/* The matrix products that sessions of a model may give to an accelerator: m, n and k of at most
 * capacity elements are set, the other fields are 0. Returns their number (7 at present) or
 * E_ARGUMENT. For wnpu_amdxdna_config.products. */
typedef struct wnpu_accel_shape wnpu_accel_shape;
WNPU_API int wnpu_model_products(const wnpu_model *model, wnpu_accel_shape *shapes,
                                 size_t capacity);

/* Opens a session. memory is NULL to use the allocator, or a block of size >= wnpu_session_size()
 * bytes, aligned to 64, that the session uses until it is closed. On failure *session is NULL.
 * Errors: E_ARGUMENT, E_MEMORY, E_UNSUPPORTED, E_ACCEL, E_VERSION. */
WNPU_API int wnpu_session_open(wnpu_session **session, const wnpu_model *model,
                               const wnpu_config *config, void *memory, size_t size,
                               wnpu_error *error);
/* Erases audio and text, ends the threads and frees the memory. NULL is allowed. */
WNPU_API void wnpu_session_close(wnpu_session *session);
/* Discards results, and erases audio and text. Errors: E_ARGUMENT, E_STATE (busy). */
WNPU_API int wnpu_reset(wnpu_session *session);
/* Stops the current run soon: it returns E_CANCELLED and keeps its results. May be called from any
 * thread and from signal handlers. Without a current run it has no effect. Between the steps of a
 * live run it applies to the next wnpu_stream_step() or wnpu_stream_finish(), which returns
 * E_CANCELLED without decoding anything; the call after that continues. */
WNPU_API void wnpu_cancel(wnpu_session *session);
/* Cause and remedy of the session's last error, or "". Valid until the next call. */
WNPU_API const char *wnpu_session_error(const wnpu_session *session);

/* ---------------------------------------------------------------- runs ---- */

typedef enum wnpu_task { WNPU_TRANSCRIBE = 0, WNPU_TRANSLATE = 1 } wnpu_task;

#define WNPU_LANGUAGE_AUTO (-1)

typedef enum wnpu_language_mode {
    WNPU_LANGUAGE_ONCE = 0,   /* one language for the recording, detected in the first window. If
                                 that has little speech or the language is uncertain, the following
                                 windows are included, up to 3 s of speech with a mean probability
                                 of 0.8 or more, or 15 s. Text already written does not change */
    WNPU_LANGUAGE_EACH = 1    /* detected for each window; see language_margin */
} wnpu_language_mode;

/* How hypotheses of different lengths are compared. P is the probability of the text with any
 * timestamps (each timestamp counts with the total probability of all timestamps allowed in its
 * place), n the number of tokens without timestamps and end of text, p the length_penalty. */
typedef enum wnpu_length_rule {
    WNPU_LENGTH_POWER = 0,    /* log P / n^p, as in CTranslate2; p = 1, the mean, is OpenAI's
                                 default */
    WNPU_LENGTH_RATIO = 1     /* log P / ((5 + n) / 6)^p, OpenAI's rule with a length_penalty */
} wnpu_length_rule;

/* Text of a window while it is decoded; see wnpu_params.on_token. Append the text of each event to
 * what the window has so far; if restart is 1, discard that first:
 *
 *     static int on_token(void *user, const wnpu_token_event *e)
 *     {
 *         line *l = user;
 *         l->length = e->restart ? 0 : l->length;
 *         append(l, e->text, e->text_length);
 *         if (e->complete) {
 *             finish(l);  // its text does not change any more: begin the next line
 *         }
 *         return 0;
 *     }
 *
 * The first event of each window has restart 1, also if the window is decoded again after a run was
 * cancelled in it. So have events in the middle of a window if the text was reported too soon: a
 * gate rejects the decoding and the window is decoded again, a loop is cut off, text after the last
 * timestamp is left to the next window, or segments are discarded as unreliable. The last event of
 * a window has complete 1 and usually no text. Then the text since the latest restart is exactly
 * that of the window's segments (wnpu_segment.window), one after the other; on_segment has received
 * them before. (With append, the end of the run may still remove text that two channels have.) A
 * run that ends within a window may leave it without complete 1: of its text only the segments
 * count.
 *
 * Text is valid UTF-8 in whole characters: bytes of an incomplete one are held back. It has no
 * timestamps and special tokens. Windows come in order. A token is reported as soon as all
 * hypotheses have it: at once in greedy search. The text of a window decoded ahead of its turn,
 * with others (wnpu_config.batch) or in a live run during the pause at its end, comes in one piece.
 * A live run reports a window when its end is known; until then wnpu_get_live() has tentative text.
 * wnpu_choose() reports nothing.
 *
 * Called in the thread of the run, which waits for it. Functions that read results, wnpu_get_live()
 * and wnpu_cancel() may be called in it. */
typedef struct wnpu_token_event {
    uint32_t struct_size;     /* of the library: an older one does not have fields beyond it */
    int32_t window;           /* number of the window, as in wnpu_segment */
    int64_t window_ms;        /* its start, as in wnpu_segment */
    int32_t restart;          /* 1: what was reported of this window is withdrawn */
    int32_t complete;         /* 1: last event of the window, its text is final */
    const char *text;         /* to be appended; NUL-terminated. Valid during the call */
    size_t text_length;       /* bytes; may be 0 */
    int64_t place_ms;         /* about when the latest token of the window was said, in ms of the
                                 recording: where attention was while it was decoded, which costs
                                 nothing and may be wrong by some tenths of a second, single ones by
                                 more; words are measured. -1: not known */
} wnpu_token_event;

/* Run parameters. The result of a run depends only on model, configuration, audio and these
 * parameters. NaN is not accepted for any of them. This overview lists the parameters by group, in
 * the order of wnpu_param_info(); fields of the structure that were added later are at its end.
 * wnpu_param_info() and "transcribe --list-options" show the command-line options.
 *
 * Basic (basic)
 *   task             [transcribe]  write the spoken language, or translate it into English, which
 *                    needs a multilingual model
 *   language         [auto]  number of the language spoken, or WNPU_LANGUAGE_AUTO to detect it.
 *                    Models named .en support English only
 *   script           [any]  wnpu_script of Chinese and Cantonese text, which models write in either
 *                    or mix. Characters of the other one are replaced after decoding, character by
 *                    character; tokens remain those decoded. A language set by name with a tag such
 *                    as zh-Hant or zh-CN sets it as well
 *   timestamps       [1]  divide windows into segments at the model's timestamp tokens; 0: one
 *                    segment per window, decoded with <|notimestamps|>
 *   max_initial_timestamp_ms  [1000]  0..30000: latest first timestamp of a window
 *   words            [0]  measure the times of words and tokens, and begin and end segments with
 *                    their words. Costs one pass over the text of each window; the text does not
 *                    change
 *   max_tokens       [0]  1..224: most tokens of a window; 0: half of the text context
 *
 * Search (search): a beam at temperature 0, samples above. A beam of 5 corrects five to ten words
 * in a thousand of one reader, and more where speakers take turns; see tests/BENCHMARKS.md for
 * errors and time, with beam_limit and of greedy search.
 *   beam             [0]  1..max_beams: hypotheses kept; 1 is greedy search; 0: 5, or max_beams if
 *                    that is less. As OpenAI's beam search, but hypotheses that differ only in
 *                    timestamps are merged
 *   beam_limit       [1]  0.1..1000; 0: off. A hypothesis is dropped when its log-probability is
 *                    below that of the best one, alive or ended, by more than this (nats), and when
 *                    it goes on as a better one does: the last 3 tokens are the same. The search
 *                    then has one or two hypotheses most of the time, and nearly the same text. Not
 *                    applied with hotwords, whose bonus would drop what is said in their place
 *   patience         [1]  0.1..16: the search continues until beam * patience hypotheses have ended
 *                    (Kasai et al., 2022)
 *   length_penalty   [1]  -4..4: exponent of the length rule
 *   length_rule      [power]  wnpu_length_rule
 *   temperature      [0]  0..2: of a window's first decoding
 *   best_of          [0]  1..max_beams: samples at a temperature above 0; 0: 5, or max_beams if
 *                    that is less
 *   seed             [0]  of the random numbers; the same seed gives the same samples
 *   repetition_penalty  [1]  0.5..4: logits of tokens already in the window are divided by it
 *                    (multiplied if negative)
 *   no_repeat_ngram  [0]  1..64: no sequence of this many tokens, not counting timestamps, occurs
 *                    twice in a window; 0: off
 *   suppress_blank   [1]  a window does not begin with a blank or end of text
 *   suppress_non_speech  [1]  suppress OpenAI's list of symbols that are not spoken
 *   suppress_numerals  [0]  numbers in words as far as the model can: tokens with digits, %, $ and
 *                    signs of pound and euro are never chosen
 *   suppress         [NULL]  n_suppress further tokens that are never chosen
 *
 * Style (style): what is changed in the text of segments and words after decoding. Tokens remain
 * those decoded, and JSON has the text before in "decoded". Words that are replaced together become
 * one word, unless what replaces them has as many: each then has the time of its place. Live text
 * of the open window is not changed; on_token gets the changed text at the end of its window.
 *   drop_fillers     [0]  leave out sounds of hesitation (um, uh) with the comma behind them, in
 *                    nine languages. A segment of nothing else is left out, too
 *   replace          [NULL]  UTF-8 text with lines "this => that": words or phrases, or parts of
 *                    text in scripts without spaces, that are replaced in upper or lower case
 *                    wherever they occur whole; by nothing if "that" is empty. A capital remains
 *                    where the line has none. The longest match prevails. E_ARGUMENT for a line
 *                    without =>. In "that", \n is a line break and \\ a backslash; punctuation and
 *                    line breaks attach to the word before in place of the model's punctuation,
 *                    for dictation: "new line => \n", "full stop => ."
 *
 * Gates (gates): a decoding that fails one of them is rejected and the window is decoded again;
 * first without the text before it, if there was any and the text repeats itself, then at the next
 * temperature, and last without the text before it, if that was not tried yet. If all are rejected,
 * the best one is kept and its segments have accepted = 0.
 *   temperature_step  [0.2]  0.05..1: step between temperatures, up to 1; 0: no higher ones
 *   compression_threshold  [2.4]  text that zlib shrinks by more than this factor repeats itself
 *                    and fails; 0: off
 *   logprob_threshold  [-1.0]  lowest mean log-probability of the window's tokens; -INFINITY: off
 *   first_logprob_threshold  [0]  lowest log-probability of the first text token (WhisperKit uses
 *                    -1.5); 0: off
 *   no_speech_threshold  [0.6]  a window is silence if the probability of <|nospeech|> is above
 *                    this and the mean log-probability is not above logprob_threshold, as in
 *                    OpenAI's transcribe(); with logprob_threshold -INFINITY, the first condition
 *                    is enough. 1 or more: off
 *   stop_loops       [1]  stop and reject a decoding that repeats itself where the audio does not:
 *                    the same text of up to 32 tokens for the fourth time (third time if it has 6
 *                    tokens or more), 16 tokens together, while the cross-attention does not
 *                    advance through the audio as it does for speech, or, with vad, finds no voice.
 *                    Where it advances, but the sound of parts of 0.8 s or more does not recur, as
 *                    in babble, repetition does not count for logprob_threshold, and with vad the
 *                    ledger has it as unresolved if no decoding passes. 0: no check, and any
 *                    repetition counts for compression_threshold
 *
 * Prompts (prompts)
 *   initial_prompt   [NULL]  UTF-8 text that the first window continues: names, spelling, style
 *   carry_initial_prompt  [0]  put initial_prompt before every window
 *   condition_on_previous  [0]  use the text of the previous window as prompt, if that was accepted
 *                    at a temperature below 0.5
 *   prefix           [NULL]  UTF-8 text with which the text of the first window begins
 *   hotwords         [NULL]  n_hotwords words or phrases, in UTF-8 and any language, that are
 *                    likely to occur. Each token of a hotword gets a bonus, which is withdrawn if
 *                    the hotword is not completed; then only a beam has alternatives, so use one.
 *                    Upper and lower case are tried. No room of the prompt is used. E_ARGUMENT if
 *                    they need more than max_phrase_tokens. "Saoirse=Sersha,Seersha" (or with |)
 *                    adds spellings that the model may decode instead of a word: they are
 *                    favoured too, and replaced by the word, as with replace
 *   hotword_boost    [2]  0..20: bonus per token, a log-probability
 *
 * Language detection (language), if language is WNPU_LANGUAGE_AUTO
 *   language_mode    [once]  wnpu_language_mode
 *   language_windows  [1]  1..20, for once: above 1, average over the speech in this many windows
 *                    of 30 s from the beginning before anything is decoded; needs audio in memory
 *   language_margin  [0.3]  0..1, for each: the language changes when another leads by this
 *                    probability, or leads in two windows in a row
 *   languages        [NULL]  n_languages numbers of the only languages to consider; NULL: all of
 *                    the model
 *
 * Voice activity (voice): with vad, only audio with speech is decoded. A window begins shortly
 * before speech and ends where no speech is left in it, or in a pause of pause_ms. Times remain
 * those of the recording. A segment is discarded as unreliable if it begins more than 500 ms after
 * the end of the window; contains symbols but no letters; was sampled at a temperature of 0.5 or
 * more and rejected by a gate; or if the probability of <|nospeech|>, minus the mean
 * log-probability, plus half the share without voice, exceeds no_speech_threshold -
 * logprob_threshold, by default 1.6. A second without voice is not counted, since both ends of a
 * segment may be wrong by half a second. Voice whose text is discarded is unresolved in the ledger,
 * and in a run that ends without any text all voice is: the run returns WNPU_INCOMPLETE.
 *   vad              [1]  0: decode everything
 *   vad_threshold    [0.5]  0.05..0.95: probability of speech at which a span begins; it continues
 *                    down to 0.15 less. In a recording of at most 30 s where no span begins, one
 *                    covers what reaches 0.8 times this
 *   vad_min_speech_ms  [100]  0..5000: spans with less speech are dropped
 *   vad_min_silence_ms  [700]  0..10000: shorter pauses do not end a span
 *   vad_pad_ms       [300]  0..2000: added before and after each span
 *   least_ms         [3000]  0..30000: a window does not end in a pause before this time
 *   pause_ms         [1000]  300..30000: a window ends in the first pause of this length after
 *                    least_ms, at the latest after 30 s. Pauses of 1000 ms and more are those
 *                    between spans, not counting their padding, and 15 dB quieter than the speech;
 *                    shorter ones are counted from the last voice and 6 dB quieter. 700 after 3000
 *                    ends windows with phrases: text is final sooner, with a few errors more,
 *                    because each window is decoded without knowing what was said before
 *   commit_step_ms   [0]  200..10000; 0: off. At steps of this length from the beginning of its
 *                    speech, the window is decoded as far as it goes, and words that end at least
 *                    hold_ms before are confirmed: from then on they are part of the result and
 *                    begin each further decoding. A window ends behind one of them after 20 s, or
 *                    after 3 s of speech without text, 1 s behind the end of a sentence. A
 *                    pause_ms below 1000 ends it after 10 s, pauses of 2 s after least_ms. For live
 *                    runs, see wnpu_live: words are final soon after they were said, for an encoder
 *                    run per step. A run of a file gives the same text. Needs vad and a batch of 0
 *                    or 1
 *   hold_ms          [300]  0..5000, with commit_step_ms; less gives more errors. Words that the
 *                    step before gave as well need 0.6 times this, or 1.6 times if their
 *                    probability is below 0.5; other words once if it is 0.9 and more, twice, or
 *                    three times below 0.5
 *   word_gap_ms      [1500]  1000..30000; 0: off. Where the text of a window leaves so much voice
 *                    without a word, at its ends or in a segment that lasts longer than its words,
 *                    that stretch is decoded again by itself, once; its text is put in order, and
 *                    what stays empty is unresolved in the ledger. Costs a pass of the decoder in
 *                    windows whose words are few, and a window for each stretch. Needs vad
 *   follow_words     [0]  0..4, with commit_step_ms: so many words behind a word have to be the
 *                    same in two steps in a row before it is confirmed, unless it ended 1.6 s ago;
 *                    at least 2 if its probability is below 0.5. With 1, words that the end of the
 *                    sound has cut are seldom confirmed, and words are final later by about the
 *                    step; wnpu_live.likely_length counts those that 0 would have confirmed
 *   encode_margin_ms  [0]  1000..30000; 0: off. Of windows shorter than 6 s, such as commands,
 *                    only the content and this much after it are encoded, in steps of 2.56 s,
 *                    instead of 30 s. If the text fails a gate, ends with a repetition, or ends 0.5
 *                    s before or after the content, the window is encoded and decoded once more in
 *                    full. 4000 is meant for base and larger models; tiny makes more errors. Not
 *                    used with a batch or commit_step_ms, before the language is known, and by
 *                    wnpu_choose(). Computed on the CPU
 *
 * Speakers (speakers): a recording with one speaker per channel is transcribed channel by channel
 * (wnpu_audio.channel), each run with the number of its speaker, and all but the first with append.
 *   speaker          [0]  1..9999: number given to the segments of the run; 0: unknown
 *   append           [0]  add the results to those of the session's previous run, ordered by time,
 *                    instead of discarding these. In the merged ledger and spans of speech, each
 *                    time has what any run has found there: unresolved before text before silence.
 *                    WNPU_INCOMPLETE and audio_ms, speech_ms and unresolved_ms of wnpu_stats refer
 *                    to all runs together. After an error, E_FULL included, the results of earlier
 *                    runs remain; what no longer fits into the ledger is unresolved in it.
 *                    If both runs had words, text of one speaker that is also heard in another's
 *                    channel is reported once: words that are the same at the same time, where
 *                    their sound comes 2 to 130 ms later, or, if that is not clear, is less loud;
 *                    and segments 15 dB below both the other speaker and the loudest segment of
 *                    their own channel. What comes later is known if the samples are in memory
 *                    and the speakers are 1 to 16. The order and this are established at the end of
 *                    the run; until then its segments come last. It cannot be resumed, and no
 *                    snapshot can be taken. For wnpu_transcribe() only
 *   voices           [off]  experimental: tell speakers apart by their voices. 1..99: there are so
 *                    many; -1: as many as differ by voice_threshold. Give the number where it is
 *                    known: finding it is the larger source of errors. The library has no model of
 *                    voices: on_voice makes vectors of them, for which the session has
 *                    voice_dimension and max_turns. A turn is a segment, or with words, part of one
 *                    between pauses of 300 ms, and lasts 2 s at least. At the end of the run turns
 *                    are clustered by average linkage of cosine similarities, and segments and
 *                    words get the numbers of their speakers, from 1 in order of appearance. A
 *                    segment in which several speak is divided between two words. Unknown (0) are
 *                    shorter segments, turns without vector, those not sure by voice_margin, and
 *                    those after max_turns, of which a warning is logged. Text and times of words
 *                    are the same with and without it, and so are speakers on every machine if the
 *                    vectors are. All are unknown before the end of the run, and while
 *                    wnpu_resume() can continue it. No snapshot can be taken. For
 *                    wnpu_transcribe() only, without speaker and append
 *   voice_threshold  [0.5]  0..2, for -1: cosine distance (1 - cosine), averaged over turns, from
 *                    which two voices are two speakers'. Depends on the vectors: measure it
 *   voice_margin     [0.05]  0..2: how much more similar, as a difference of cosines, a turn has to
 *                    be to the others of its speaker than to those of any other one
 *
 * Callbacks, in the thread of the run
 *   on_voice         for voices: makes a vector of a voice, with a network of yours for example.
 *                    samples[n] are of one turn, 16 kHz mono within about -1..1, 2 to 30 s with its
 *                    pauses, valid during the call. Fill vector[voice_dimension], which is zero
 *                    before, and return 0; only its direction matters. With any other return value,
 *                    or a vector that is zero or not finite, the turn has none, and who speaks is
 *                    unknown. Called once for each turn, in order, when its segment is final and
 *                    before on_segment. wnpu_cancel() may be called in it: the run ends when the
 *                    other turns of the window have their vectors
 *   on_segment       receives each segment as soon as it is final. The view is valid during the
 *                    call; the segment remains available from wnpu_get_segment(), which a program
 *                    that may run with an older library uses instead: a view ends with the fields
 *                    that the library knows. A non-zero return value cancels the run
 *   on_progress      receives the milliseconds done and in total (-1 if unknown): after each
 *                    window, and in long windows between layers and tokens, at most once a second.
 *                    done_ms never decreases. A non-zero return value cancels the run: at once,
 *                    except in the first window after wnpu_resume(), or after a callback has
 *                    stopped a live run. That window is completed first, so that a program that
 *                    stops at every call still reaches the end
 *   on_token         receives the text of a window while it is decoded, to be shown at once; see
 *                    wnpu_token_event. Results are the same with and without it. A non-zero return
 *                    value cancels the run like that of on_progress: wnpu_resume(), or the next
 *                    step of a live run, decodes the window again and completes it
 *   on_logits        called for each hypothesis before its next token is chosen, after all rules.
 *                    tokens are the window's so far. logits[n_vocab] may be changed; -INFINITY
 *                    forbids a token, and NaN is treated as -INFINITY
 */
typedef struct wnpu_params {
    uint32_t struct_size;
    /* Basic */
    int32_t task;             /* wnpu_task */
    int32_t language;         /* number or WNPU_LANGUAGE_AUTO */
    int32_t script;           /* wnpu_script */
    int32_t timestamps;       /* 0 or 1 */
    int32_t max_initial_timestamp_ms;
    int32_t words;            /* 0 or 1 */
    int32_t max_tokens;
    /* Search. Lists can also be text (*_lines) with one item a line, as wnpu_params_set() takes
     * them; both count. NULL: none */
    int32_t beam;
    float patience;
    float length_penalty;
    int32_t length_rule;      /* wnpu_length_rule */
    float temperature;
    int32_t best_of;
    uint64_t seed;
    float repetition_penalty;
    int32_t no_repeat_ngram;
    int32_t suppress_blank;   /* 0 or 1 */
    int32_t suppress_non_speech; /* 0 or 1 */
    int32_t suppress_numerals; /* 0 or 1 */
    const int32_t *suppress;  /* token numbers */
    size_t n_suppress;
    const char *suppress_lines; /* decimal numbers of tokens */
    /* Style */
    int32_t drop_fillers;     /* 0 or 1 */
    const char *replace;      /* lines */
    /* Gates */
    float temperature_step;
    float compression_threshold;
    float logprob_threshold;  /* also used by no_speech_threshold */
    float first_logprob_threshold;
    float no_speech_threshold; /* probability */
    int32_t stop_loops;       /* 0 or 1 */
    /* Prompts */
    const char *initial_prompt;
    int32_t carry_initial_prompt; /* 0 or 1 */
    int32_t condition_on_previous; /* 0 or 1 */
    const char *prefix;
    const char *const *hotwords;
    size_t n_hotwords;
    const char *hotword_lines;
    float hotword_boost;
    /* Language detection */
    int32_t language_mode;    /* wnpu_language_mode */
    int32_t language_windows;
    float language_margin;
    const int32_t *languages; /* numbers of languages */
    size_t n_languages;
    const char *language_lines; /* codes or names */
    /* Voice activity */
    int32_t vad;              /* 0 or 1 */
    float vad_threshold;
    int32_t vad_min_speech_ms;
    int32_t vad_min_silence_ms;
    int32_t vad_pad_ms;
    int32_t least_ms;
    int32_t pause_ms;
    int32_t commit_step_ms;
    int32_t hold_ms;
    int32_t encode_margin_ms; /* 0 or 1000..30000 */
    /* Speakers */
    int32_t speaker;
    int32_t append;           /* 0 or 1 */
    int32_t voices;           /* -1..99 */
    float voice_threshold;
    float voice_margin;
    /* Callbacks */
    int (*on_voice)(void *user, const float *samples, size_t n, float *vector);
    int (*on_segment)(void *user, const wnpu_segment *segment);
    int (*on_progress)(void *user, int64_t done_ms, int64_t total_ms);
    int (*on_token)(void *user, const wnpu_token_event *event);
    void (*on_logits)(void *user, const int32_t *tokens, size_t n_tokens, float *logits,
                      size_t n_vocab);
    void *user;               /* first argument of the callbacks */
    /* Fields that are added go here, whatever their group. */
    float beam_limit;         /* nats, 0: none */
    int32_t word_gap_ms;      /* 0 or 1000..30000 */
    int32_t follow_words;
    uint32_t reserved;
} wnpu_params;

WNPU_API void wnpu_params_init(wnpu_params *params, size_t struct_size);

/* Parameters by name, for command lines, configuration files and bindings to other languages. */
typedef enum wnpu_param_type {
    WNPU_PARAM_BOOL = 0,      /* int32_t; non-zero is 1 */
    WNPU_PARAM_INT = 1,       /* int32_t */
    WNPU_PARAM_FLOAT = 2,     /* float */
    WNPU_PARAM_CHOICE = 3,    /* int32_t, index of a word in choices, from 0 */
    WNPU_PARAM_LANGUAGE = 4,  /* int32_t, number of a language or WNPU_LANGUAGE_AUTO */
    WNPU_PARAM_SEED = 5,      /* uint64_t */
    WNPU_PARAM_TEXT = 6,      /* const char *, UTF-8 */
    WNPU_PARAM_LIST = 7       /* pointer and size_t n_...; by name, text with one item a line */
} wnpu_param_type;

/* Description of a parameter. Strings are static. */
typedef struct wnpu_param {
    uint32_t struct_size;
    int32_t type;             /* wnpu_param_type */
    const char *name;         /* name of the field in wnpu_params */
    const char *option;       /* option of the program transcribe, such as "--beam", or NULL.
                                 The option of a BOOL sets it to 0 if it begins with "--no-",
                                 else to 1; if the default is 1, it has the value on or off */
    const char *choices;      /* for a CHOICE: "power|ratio"; otherwise NULL */
    const char *group;        /* "basic", "search", "gates", "prompts", "language", "voice"
                                 or "speakers" */
    const char *meaning;      /* one line */
    double fallback;          /* default, if the type is a number */
    double low, high;         /* range, both ends included; may be infinite */
    int32_t has_off;          /* 1: off, which may be outside the range, disables the feature */
    double off;
} wnpu_param;

/* Describes parameter number index; numbers start at 0 and are ordered by group. Errors:
 * E_ARGUMENT, also if index is past the last parameter. */
WNPU_API int wnpu_param_info(size_t index, wnpu_param *info);
/* Sets a parameter of a structure initialised by wnpu_params_init(). value is a decimal number; 0,
 * 1, off, on, false, true, no or yes for a BOOL; a word for a CHOICE; a code, a name or "auto" for
 * a LANGUAGE; "off" if has_off is 1. A LIST has one item a line: numbers of tokens for suppress,
 * codes or names for languages; blanks around items and empty lines are ignored, and the array of
 * the structure is kept. For a TEXT and a LIST the pointer is stored: value must remain valid
 * during all runs with these parameters. On error nothing changes. Errors: E_ARGUMENT (unknown
 * name, or malformed or out of range value), E_VERSION (params->struct_size does not include the
 * parameter). */
WNPU_API int wnpu_params_set(wnpu_params *params, const char *name, const char *value,
                             wnpu_error *error);

/* Transcribes a recording in the calling thread. params NULL selects the defaults. The results of
 * the previous run are discarded. Returns WNPU_OK, WNPU_INCOMPLETE if the ledger has unresolved
 * spans, or a negative error; text transcribed before an error remains readable. Errors:
 * E_ARGUMENT, E_STATE, E_IO, E_CANCELLED, E_FULL, E_ACCEL, E_VERSION. */
WNPU_API int wnpu_transcribe(wnpu_session *session, const wnpu_params *params,
                             const wnpu_audio *audio);

/* Continues a run of wnpu_transcribe() that was cancelled, stopped by on_progress or on_token, or
 * ended with E_ACCEL, from the window that was not completed. The final results are, byte for byte,
 * those of an uninterrupted run. params must equal those of the run, except for callbacks; audio
 * must be the same recording, whose read continues at the frame returned by wnpu_get_position().
 * Returns what wnpu_transcribe() returns. Errors: those of wnpu_transcribe(); E_ARGUMENT also if
 * params or audio differ (nothing changes); E_STATE if there is no run that can be continued: none
 * at all, a run of another function, or one that ended before its first window, through on_segment,
 * or with E_IO or E_FULL. */
WNPU_API int wnpu_resume(wnpu_session *session, const wnpu_params *params,
                         const wnpu_audio *audio);
/* Number of frames that the last run has read from its recording. Errors: E_ARGUMENT. */
WNPU_API int wnpu_get_position(const wnpu_session *session, uint64_t *frames);

/* A snapshot saves a run in a block of bytes: the results so far, the audio of the current window,
 * and the state carried from window to window. wnpu_restore() loads it into another session, in any
 * process, on any machine and with any threads, instruction set and accelerator, if the session has
 * the same compute, max_beams, batch, result_bytes and max_phrase_tokens and exactly the same
 * model, or the pack made from it. (Weights are compared by a checksum, which the first snapshot or
 * restore of a model computes, in about 10 ms per 100 MB.) Then the results can be read, with audio
 * that is not decoded yet as cancelled in the ledger, and wnpu_resume() continues the run. A
 * snapshot contains audio and text without encryption.
 *
 * A snapshot can be taken when wnpu_resume() could continue, after a run has ended without error,
 * in the on_progress callback of a run, and between the steps of a live run (see
 * wnpu_stream_resume(); stream_bytes must then be the same, too); always in the session's thread.
 * wnpu_snapshot_size() returns the bytes needed now, or 0 if no snapshot can be taken;
 * wnpu_snapshot_most() the upper limit for this session, 2 MB + result_bytes + stream_bytes. While
 * another thread pushes, only the latter is certain to be enough. memory belongs to the caller and
 * needs no alignment. Nothing is allocated. Errors: E_ARGUMENT, E_STATE, E_MEMORY (size is too
 * small). */
WNPU_API size_t wnpu_snapshot_size(wnpu_session *session);
WNPU_API size_t wnpu_snapshot_most(const wnpu_session *session);
WNPU_API int wnpu_snapshot(wnpu_session *session, void *memory, size_t size);
/* Loads a snapshot; snapshot needs no alignment and is not used after the call. Untrusted bytes are
 * safe: everything is validated, and if the snapshot is refused the session is unchanged. Errors:
 * E_ARGUMENT (not a snapshot, damaged, or of another model or configuration), E_VERSION (of another
 * version or build of the library), E_STATE. */
WNPU_API int wnpu_restore(wnpu_session *session, const void *snapshot, size_t size);

/* A long recording in parts, on several machines: each part is transcribed by itself, and the parts
 * joined are, byte for byte, the results of one run in every format.
 *
 *     wnpu_find_cuts(session, &params, &audio, take_cut, &cuts);       // once; choose some of them
 *     wnpu_transcribe_part(session, &params, &audio, cut[0], cut[1]);  // in any session, any order
 *     size = wnpu_snapshot_size(session); ... wnpu_snapshot(session, part[0], size);
 *     wnpu_join(session, &params, part, size, n);                      // where results are written
 *
 * wnpu_find_cuts() runs the voice activity detector only, and calls on_cut in order for each time
 * at which the recording may be divided: a pause that ends a window in any case. Until speech goes
 * on for 30 s without a pause, that is each one that ends a window; then a window may begin where a
 * text ended, and it is certain again from the first pause that begins more than least_ms +
 * pause_ms, and by default less than 25 s, behind the one before. A non-zero return value ends the
 * call with E_CANCELLED. There are no results.
 *
 * wnpu_transcribe_part() transcribes from_ms to until_ms, both cuts, or 0 for the recording's begin
 * and end. audio is the whole recording: what is before the part is read, and heard by the
 * detector, whose state depends on it, but not decoded; nothing is read far beyond its end. Times
 * are those of the recording. Save the result with wnpu_snapshot(). Whether one run would divide
 * the text there is checked: by a part at its end (E_STATE), and by wnpu_join() (E_STATE). Then
 * transcribe this part and the next one as one. Such a run can be cancelled and resumed.
 *
 * wnpu_join() takes n snapshots of sizes[i] bytes, in order, from 0 to the recording's end; with
 * append in params, the results of another channel, joined, are added to those before, as by
 * wnpu_transcribe(). Of the statistics, windows, tokens, raised, and what follows from spans and
 * ledger are those of all parts. Returns what that would. params are those of the parts, besides
 * append. The snapshots are untrusted, as for wnpu_restore().
 *
 * E_ARGUMENT, with the reason, where a part's text would depend on the one before: with a pause_ms
 * below 1000, commit_step_ms, condition_on_previous, voices, a batch above 1, without vad, and with
 * a multilingual model if language is not given. Other errors: those of wnpu_transcribe(). */
WNPU_API int wnpu_find_cuts(wnpu_session *session, const wnpu_params *params,
                            const wnpu_audio *audio, int (*on_cut)(void *user, int64_t cut_ms),
                            void *user);
WNPU_API int wnpu_transcribe_part(wnpu_session *session, const wnpu_params *params,
                                  const wnpu_audio *audio, int64_t from_ms, int64_t until_ms);
WNPU_API int wnpu_join(wnpu_session *session, const wnpu_params *params, const void *const *parts,
                       const size_t *sizes, size_t n);

/* Computes probabilities of all languages from the beginning of the speech, from as much of it as
 * WNPU_LANGUAGE_ONCE would use; if the voice activity detector finds no speech, from the first 30
 * s. probabilities (may be NULL) receives count values, by number of the language, 0 for languages
 * that the model does not have. Returns the number of the most probable language or a negative
 * error. The results of the previous run are discarded. Errors: those of wnpu_transcribe();
 * E_UNSUPPORTED for .en models. */
WNPU_API int wnpu_detect_language(wnpu_session *session, const wnpu_audio *audio,
                                  float *probabilities, size_t count);

/* Probabilities of languages detected in the last run, averaged over the windows examined, weighted
 * by their seconds of speech: count values by number of the language, 0 for languages that the
 * model does not have. A language that was given has 1. Returns the number of languages of the
 * model, or E_ARGUMENT. */
WNPU_API int wnpu_get_languages(const wnpu_session *session, float *probabilities, size_t count);

/* Which phrase of a list was spoken. A log-probability here is that of exactly this phrase, in its
 * most probable spelling, followed by nothing but punctuation. */
typedef struct wnpu_choice {
    uint32_t struct_size;
    int32_t best, second;     /* indices into the list; second is -1 if the list has one phrase */
    float best_logprob, second_logprob; /* -INFINITY if there is none */
    float margin;             /* best_logprob - second_logprob; INFINITY if there is no second */
    float no_speech;          /* probability of <|nospeech|> */
} wnpu_choice;

/* Recognises one of 1..65535 phrases (UTF-8, up to 32 tokens and 254 bytes each) in up to 30 s of
 * audio. It always chooses one: compare best_logprob and margin with the values that your phrases
 * give when they are spoken and when they are not. Of params (may be NULL) language, prompts and
 * callbacks are used; the search is exact and has no options. The result is also one segment, for
 * wnpu_write(). Errors: those of wnpu_transcribe(); E_ARGUMENT also if the phrases need more than
 * max_phrase_tokens. */
WNPU_API int wnpu_choose(wnpu_session *session, const wnpu_params *params, const wnpu_audio *audio,
                         const char *const *phrases, size_t n_phrases, wnpu_choice *choice);

/* Runs the voice activity detector only. Results are speech spans, statistics, and a ledger of
 * silence and unresolved speech (WNPU_REASON_NO_TEXT), which does not change the status. Of params
 * (may be NULL) the vad_ fields, on_progress and user are used; vad is assumed to be 1. The results
 * of the previous run are discarded. Errors: E_ARGUMENT, E_STATE, E_IO, E_CANCELLED, E_FULL,
 * E_VERSION. */
WNPU_API int wnpu_detect_speech(wnpu_session *session, const wnpu_params *params,
                                const wnpu_audio *audio);

/* ---------------------------------------------------------------- live audio ---- */

/* A live run transcribes audio while it is recorded. One thread pushes samples as they arrive, for
 * example in the callback of an audio device; another (or the same one) calls wnpu_stream_step() a
 * few times per second, which decodes what is due, and wnpu_stream_finish() at the end:
 *
 *     config.stream_bytes = 320000;         // 10 s of 16-bit samples at 16 kHz
 *     ... wnpu_session_open() ...
 *     wnpu_stream_begin(session, NULL, NULL);
 *     while (more && (status = wnpu_stream_step(session, NULL)) == WNPU_OK) {
 *         for (; wnpu_get_segment(session, n, &segment) == WNPU_OK; n++)
 *             printf("%s\n", segment.text);  // final
 *         more = record(samples, 1600);     // meanwhile, or in another thread:
 *         wnpu_stream_push(session, samples, 1600);
 *     }
 *     status = wnpu_stream_finish(session); // and print the remaining segments
 *
 * Segments, words, speech spans and ledger spans that can be read after a step are final: later
 * steps only append to them (and extend the last ledger span). After wnpu_stream_finish() status
 * and results are those of wnpu_transcribe() of the same recording with the same parameters, byte
 * for byte, whatever the sizes of pushes and the times of steps were, unless samples were lost or
 * steps skipped (see skip_late). A window is decoded as soon as its end is known, see
 * wnpu_config.batch and "Voice activity" before wnpu_params.
 *
 * What is final, and when: the text of a window, when the window ends. params NULL selects the
 * defaults of live runs, those of wnpu_stream_params_init(): least_ms 3000 and pause_ms 700, so
 * that a window ends with a phrase, in a pause, and after 30 s if there is none. With pause_ms
 * below 1000, the text of a phrase is usually decoded during the pause, and final when the pause is
 * long enough. With commit_step_ms also, each word is final soon after it was said, whether or not
 * a pause follows, while its window is open: at the first step that is hold_ms or more behind its
 * end; improbable words take longer. It never changes after that. There are two levels: with
 * follow_words 1 or more, a word is first stable, shown as likely to stay and seldom corrected, and
 * final when the words behind it are known as well. Unless speech had no text, a
 * window ends where more confirmed words follow; the next one begins with them, and so does not
 * repeat the end of this one. That costs an encoder run a step. The defaults of
 * wnpu_params_init() are for files: windows are longer, and text is final later.
 *
 * wnpu_get_live() shows tentative text in the meantime: what the open window says so far. It is
 * decoded again every step_ms of audio while somebody speaks; less often if the computer is too
 * slow, so that at most 40 % of its time is used for it, and not at all while audio is waiting. It
 * needs vad and a batch of 0 or 1, uses greedy search on the CPU, without on_logits and stop_loops,
 * and never affects results. With commit_step_ms it is what the latest decoding of a step said, and
 * begins with confirmed words, which are results already; a word behind them is shown when its
 * probability is 0.9 and more or hold_ms have followed it, and then as long as it is said.
 *
 * Between two steps all functions that read results can be used. The other functions that start a
 * run return E_STATE until wnpu_stream_finish() or wnpu_reset() has ended the stream. */
typedef struct wnpu_stream_options {
    uint32_t struct_size;
    int32_t format;           /* wnpu_sample_format [S16] */
    uint32_t rate;            /* as in wnpu_audio [16000] */
    uint32_t channels;        /* as in wnpu_audio [1] */
    int32_t channel;          /* as in wnpu_audio [MIX] */
    int32_t step_ms;          /* audio between two updates of the tentative text, 100..10000; 0: no
                                 tentative text [500] */
    int32_t hangover_ms;      /* silence that ends an utterance, 100..10000 [500] */
    int32_t detect_only;      /* 1: voice activity only, as wnpu_detect_speech() [0] */
    uint32_t layout;          /* as in wnpu_audio [0] */
    int32_t skip_late;        /* 1: steps of commit_step_ms are left out while the next one is due
                                 as well, or the recording is over: a slow computer confirms words
                                 later and loses no audio, but results depend on its speed [0] */
} wnpu_stream_options;

WNPU_API void wnpu_stream_options_init(wnpu_stream_options *options, size_t struct_size);
/* As wnpu_params_init(), with the defaults of live runs. */
WNPU_API void wnpu_stream_params_init(wnpu_params *params, size_t struct_size);

/* Begins a live run, and discards the results of the previous run. params and options may be NULL.
 * Strings and arrays that params point to are not used after the call. No thread may be in
 * wnpu_stream_push(). Errors: E_ARGUMENT (also for language_windows above 1, which needs the audio
 * as a whole, for append, and if stream_bytes holds less than 50 ms), E_STATE (busy, a stream is
 * open, or stream_bytes is 0), E_UNSUPPORTED, E_VERSION. */
WNPU_API int wnpu_stream_begin(wnpu_session *session, const wnpu_params *params,
                               const wnpu_stream_options *options);

/* Copies frames (one sample of each channel, interleaved) into the session and returns how many
 * were accepted. Takes no lock, never waits and makes no system call, so it may be called in an
 * audio callback. One thread at a time may push, also while another thread is in a step; none may
 * push while wnpu_stream_begin(), wnpu_stream_end(), wnpu_stream_finish(), wnpu_reset() or
 * wnpu_session_close() is in progress, and none in a forked child. Returns 0 and changes nothing if
 * no stream is open, or frames are more bytes than PTRDIFF_MAX.
 *
 * Frames that are not accepted are lost: silence takes their place, so that times remain true, and
 * the ledger reports it as unresolved, WNPU_REASON_OVERRUN. (Losses less than a second apart may be
 * reported as one.) After a loss everything is lost until a quarter of the space is free, so that
 * one gap takes the place of many. A program that can wait, because it reads from a file, calls
 * wnpu_stream_room() before it pushes and loses nothing. With samples NULL, frames (at most
 * 4294967295) are lost that the recorder did not deliver, and 0 is returned. */
WNPU_API size_t wnpu_stream_push(wnpu_session *session, const void *samples, size_t frames);
/* Number of frames that wnpu_stream_push() would accept now; for the thread that pushes. */
WNPU_API size_t wnpu_stream_room(const wnpu_session *session);

/* What has happened during a step. Values can be ORed. */
typedef enum wnpu_event {
    WNPU_EVENT_COMMITTED = 1, /* there are new segments */
    WNPU_EVENT_OVERRUN = 2,   /* samples were lost during the step */
    WNPU_EVENT_TENTATIVE = 4, /* the tentative text has changed, or more of it is final */
    WNPU_EVENT_SPEECH_START = 8, /* somebody has begun to speak, see wnpu_live.utterance_t0_ms */
    WNPU_EVENT_UTTERANCE_END = 16, /* hangover_ms of silence have followed speech */
    WNPU_EVENT_MORE = 32      /* another step has something to do at once: it reports the next
                                 utterance, or decodes the next window, whose end is known */
} wnpu_event;

/* Reads what has been pushed, and decodes the next window if its end is known. Returns soon if it
 * is not. A step decodes one window at most, however much is waiting. *events (may be NULL)
 * receives wnpu_event values; while they include WNPU_EVENT_MORE, the next step need not wait for
 * samples. A step reports the end of at most one utterance, whose times wnpu_get_live() has then;
 * up to 128 wait for the next steps, so a program that is late sees all of them. After E_CANCELLED
 * through wnpu_cancel() (also called between two steps), on_progress or on_token, and after
 * E_ACCEL, the next step continues and nothing is lost. If a callback stopped the run, the next
 * window that is decoded is completed before a callback can stop it again. After other errors the
 * stream remains as it is, and only wnpu_stream_finish() and wnpu_reset() are of use. Errors: those
 * of wnpu_transcribe(); E_STATE also if no stream is open. */
WNPU_API int wnpu_stream_step(wnpu_session *session, uint32_t *events);
/* Ends the recording: nothing can be pushed any more, and an utterance that goes on ends. Steps
 * decode the rest, a window each, and report what happens in it; step until events do not include
 * WNPU_EVENT_MORE. A program that calls wnpu_stream_finish() without that gets the same results,
 * but all at once and without events. No thread may be in wnpu_stream_push(). Errors: E_ARGUMENT,
 * E_STATE (busy, or no stream is open). */
WNPU_API int wnpu_stream_end(wnpu_session *session);
/* Ends the recording, decodes the rest of it, and ends the stream. Returns what wnpu_transcribe()
 * would return. After E_CANCELLED through wnpu_cancel(), on_progress or on_token, and after
 * E_ACCEL, the stream is still open, and the call can be repeated. */
WNPU_API int wnpu_stream_finish(wnpu_session *session);

/* Continues a live run that wnpu_restore() has loaded: from then on samples can be pushed. A
 * snapshot of a live run includes what has been pushed but not read yet; what another thread pushes
 * after the snapshot was taken belongs to the original session only. params must equal those of
 * wnpu_stream_begin(), except for callbacks. Errors: those of wnpu_stream_begin(); E_ARGUMENT also
 * if params differ (nothing changes); E_STATE also if the session has no restored live run. The
 * options are those of wnpu_stream_begin(); utterances continue, confirmed words are shown at once,
 * and other tentative text is decoded anew. */
WNPU_API int wnpu_stream_resume(wnpu_session *session, const wnpu_params *params);

/* State of a live run. */
typedef struct wnpu_live {
    uint32_t struct_size;
    int32_t speaking;         /* 1: a speech span is open: there was speech, and since then no
                                 silence of vad_min_silence_ms; 0: none is, or vad is off */
    int64_t committed_ms;     /* everything before it is final: text, silence or unresolved */
    int64_t audio_ms;         /* audio read by steps */
    int64_t lag_ms;           /* audio pushed, but not yet read by a step */
    int64_t overrun_ms;       /* audio lost so far */
    /* Text of the window that is not final yet. It may change and is not part of the results. Words
     * are held back until two decodings in a row agree on them (or a pause follows), and withdrawn
     * when two in a row differ from them; the last word is held back while somebody speaks. Valid
     * until the next call that changes the session. */
    const char *text;         /* never NULL; "" if there is none */
    size_t text_length;       /* bytes */
    size_t likely_length;     /* bytes at the beginning that were shown before and that the last two
                                 decodings confirm: they rarely change, but punctuation is not
                                 compared. Words that a pause has added may remain unlikely until
                                 their window ends. With commit_step_ms final and stable words, see
                                 follow_words */
    int64_t t0_ms, t1_ms;     /* audio that it is from */
    int64_t utterance_t0_ms;  /* begin of the utterance reported last; -1: none yet */
    int64_t utterance_t1_ms;  /* its end; -1 while it continues. Both are times of the voice itself:
                                 vad_pad_ms, part of speech spans, is not included */
    uint32_t revision;        /* incremented whenever text changes */
    uint32_t skipped;         /* steps that skip_late has left out */
    size_t confirmed_length;  /* bytes at the beginning that are final, see commit_step_ms */
} wnpu_live;

/* Describes the live run between two steps, in the thread that steps. In a callback during a step
 * text is still the one from before the step, also when segments or token events of its window have
 * been reported already: show those instead of it. Errors: E_ARGUMENT, E_STATE (no stream is
 * open). */
WNPU_API int wnpu_get_live(const wnpu_session *session, wnpu_live *live);

/* ---------------------------------------------------------------- reading results ---- */

/* These functions return results of the session's last run, as views: see "Ownership". For session
 * NULL, counts are 0 and the other functions return E_ARGUMENT. They may be called in callbacks of
 * the run, and otherwise between calls, in the session's thread. */
WNPU_API size_t wnpu_segment_count(const wnpu_session *session);
/* Writes size bytes of *segment, the size of the caller's wnpu_segment, so that a newer library
 * writes only fields that the caller knows; those that an older one does not know are 0. C code
 * calls the macro; bindings to other languages, which have no macros, call this function with their
 * size. Errors: E_ARGUMENT. */
WNPU_API int wnpu_get_segment_sized(const wnpu_session *session, size_t index,
                                    wnpu_segment *segment, size_t size);
#define wnpu_get_segment(session, index, segment) \
    wnpu_get_segment_sized((session), (index), (segment), sizeof(wnpu_segment))
/* Number of words of a segment; 0 if there is no such segment, or wnpu_params.words was 0. */
WNPU_API size_t wnpu_word_count(const wnpu_session *session, size_t segment);
/* Errors: E_ARGUMENT. */
WNPU_API int wnpu_get_word(const wnpu_session *session, size_t segment, size_t index,
                           wnpu_word *word);
/* Speech spans; none with vad off. Errors: E_ARGUMENT. */
WNPU_API size_t wnpu_speech_span_count(const wnpu_session *session);
WNPU_API int wnpu_get_speech_span(const wnpu_session *session, size_t index,
                                  wnpu_speech_span *span);
/* The ledger. Errors: E_ARGUMENT. */
WNPU_API size_t wnpu_ledger_count(const wnpu_session *session);
WNPU_API int wnpu_get_ledger_span(const wnpu_session *session, size_t index,
                                  wnpu_ledger_span *span);
/* "none", "no-voice", "no-speech", "pause", "no-text", "cancelled", "full", "input", "failed" or
 * "overrun"; NULL if reason is unknown. Static storage. */
WNPU_API const char *wnpu_ledger_reason_name(int reason);
/* Errors: E_ARGUMENT. */
WNPU_API int wnpu_get_stats(const wnpu_session *session, wnpu_stats *stats);

/* Memory of a session, in bytes. All values except results_used and phrase_tokens are fixed when it
 * is opened; results_peak shows which config.result_bytes would have been enough. */
typedef struct wnpu_memory {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t session;         /* the session's block, wnpu_session_size() */
    uint64_t results;         /* part of it for results, config.result_bytes */
    uint64_t results_used;    /* part of that used by the last run so far */
    uint64_t results_peak;    /* most used by any run since opening */
    uint64_t phrase_tokens;   /* tokens used by hotwords or phrases, of max_phrase_tokens */
    uint64_t accel;           /* of this session's weights in the accelerator's memory */
    uint64_t model;           /* allocated for the model, which sessions share */
    uint64_t model_shared;    /* of a model that is mapped or used in place */
    uint64_t stream;          /* part of the session's block: config.stream_bytes */
} wnpu_memory;

/* May be called between runs, or in a callback of the run. Errors: E_ARGUMENT. */
WNPU_API int wnpu_get_memory(const wnpu_session *session, wnpu_memory *memory);

/* Statistics of the accelerator in the last run; 0 and "" without one. */
typedef struct wnpu_accel_stats {
    uint32_t struct_size;
    int32_t health;           /* wnpu_accel_health at the end */
    uint32_t windows;         /* encoder runs */
    uint32_t windows_without; /* those without the accelerator, because it was disabled or busy */
    uint32_t fallbacks;       /* products of a chunk of rows assigned to the accelerator that the
                                 CPU computed, in part or completely */
    uint32_t wrong;           /* those of them with a wrong checksum */
    uint32_t probes;          /* attempts to enable it again */
    uint32_t chunk_rows;      /* encoder positions processed together, of 1500 */
    uint64_t resident_bytes;  /* of this session's weights */
    uint64_t macs;            /* multiply-accumulates of the matrix products of encoder and
                                 cross-attention and of the encoder's attention */
    uint64_t accel_macs;      /* those done by the accelerator with correct checksum */
    const char *name;         /* name of the accelerator; valid as long as it */
    char first_reason[192];   /* why the CPU first had to replace it; "" if never */
} wnpu_accel_stats;

/* Errors: E_ARGUMENT. */
WNPU_API int wnpu_get_accel_stats(const wnpu_session *session, wnpu_accel_stats *stats);

/* Statistics of the accelerator for one kind of work. Times are wall-clock milliseconds of the
 * session's thread. */
typedef struct wnpu_accel_stage {
    uint32_t struct_size;
    int32_t planned;          /* 1: assigned to the accelerator */
    const char *name;         /* "conv1", "conv2", "qkv", "attention", "attn_out", "fc1", "fc2" or
                                 "cross_kv"; static storage */
    uint64_t macs;            /* multiply-accumulates in total */
    uint64_t accel_macs;      /* done by the accelerator with correct checksum */
    uint64_t fallback_macs;   /* assigned to the accelerator but done by the CPU. The remaining ones
                                 were assigned to the CPU */
    uint64_t padded_macs;     /* done by the accelerator including padding */
    uint64_t jobs;            /* jobs submitted */
    uint64_t submissions, waits; /* calls of the driver */
    uint64_t bytes_in, bytes_out; /* copied to and from the accelerator's memory */
    double busy_ms;           /* from submission to completion, summed over jobs, which overlap */
    double waited_ms;         /* while the CPU waited without other work */
    double cpu_ms;            /* CPU work: quantise, verify, dequantise, attention, products.
                                 Windows without the accelerator are in wnpu_stats only */
} wnpu_accel_stage;

/* Errors: E_ARGUMENT, also if index is not in 0..7, or the session has no accelerator. */
WNPU_API int wnpu_get_accel_stage(const wnpu_session *session, size_t index,
                                  wnpu_accel_stage *stage);

/* ---------------------------------------------------------------- a given text ---- */

/* What wnpu_align() found; words are characters in scripts without spaces. */
typedef struct wnpu_align_stats {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t words;           /* in the text */
    uint64_t said;            /* those of them that were said */
    uint64_t alike;           /* those of these that were heard in another spelling or as numbers */
    uint64_t extra;           /* words heard that are not in the text */
} wnpu_align_stats;

/* Finds out when a known text was said: a script, the text of a book, lyrics. Call it
 * after a run with wnpu_params.words, whose words it compares with the text (case and punctuation
 * aside; words that share half of their letters are taken for spellings of one word, and numbers in
 * digits for those in words). The results are then the given lines (n_lines strings of UTF-8), one
 * segment for each that has a letter or digit, with the times of their words, for all writers. A
 * word that was not said has probability 0 and no duration; other probabilities are those of the
 * words heard, lower if the spelling differs. A line of which nothing was said has accepted = 0.
 * With extra = 1, what was said but is not in the text is in segments of its own, with
 * accepted = 0.
 *
 * Takes time proportional to the product of the two numbers of words (an hour of speech: a few
 * seconds at most), and allocates memory for the duration of the call, about 100 bytes a word, with
 * the session's allocator. lines are not used after the call. stats may be NULL. Strings of
 * segments read before are valid until the next run. A run that was cancelled can be aligned, but
 * then not resumed. May be cancelled. On error the results do not change. Errors: E_ARGUMENT,
 * E_STATE (a live run is not finished, or the run had no words), E_MEMORY, E_FULL (the results have
 * no room for the text), E_CANCELLED. */
WNPU_API int wnpu_align(wnpu_session *session, const char *const *lines, size_t n_lines,
                        int extra, wnpu_align_stats *stats);

/* ---------------------------------------------------------------- output formats ---- */

typedef enum wnpu_format {
    WNPU_FORMAT_TXT = 0,      /* one line per segment */
    WNPU_FORMAT_SRT = 1,      /* SubRip */
    WNPU_FORMAT_VTT = 2,      /* WebVTT */
    WNPU_FORMAT_TSV = 3,      /* start and end in milliseconds, text */
    WNPU_FORMAT_JSON = 4,     /* all results including tokens; one object and a newline. The same on
                                 every machine, with or without an accelerator */
    WNPU_FORMAT_CSV = 5,      /* RFC 4180: the columns of TSV, quoted text, lines end with CR LF */
    WNPU_FORMAT_LRC = 6,      /* lyrics: [mm:ss.xx]text, no end times; minutes may exceed 99 */
    WNPU_FORMAT_ASS = 7,      /* Advanced SubStation Alpha 4.00+ */
    WNPU_FORMAT_VERBOSE_JSON = 8 /* the object that OpenAI's speech API calls verbose_json, and a
                                    newline: task, language (its name), duration, text, segments,
                                    and with wnpu_params.words all words in one list. "seek" is
                                    window_ms in units of 10 ms */
} wnpu_format;

/* "txt", "srt", "vtt", "tsv", "json", "csv", "lrc", "ass" or "verbose_json", also the usual file
 * name extension; NULL if format is unknown. Static storage. */
WNPU_API const char *wnpu_format_name(int format);
/* The wnpu_format with this name, ignoring case; -1 if unknown. */
WNPU_API int wnpu_format_from_name(const char *name);

/* A format, so that a program need not know which there are. Strings are static. */
typedef struct wnpu_format_info {
    uint32_t struct_size;
    int32_t has_layout;       /* 1: wnpu_write_options divide the text into cues and lines */
    int32_t has_word_times;   /* 1: their word_times applies */
    int32_t at_end;           /* 1: one object with all results, which is written at the end */
    const char *name;         /* see wnpu_format_name() */
    const char *media_type;   /* such as "text/vtt; charset=utf-8" */
} wnpu_format_info;

/* Describes a wnpu_format; they are numbered from 0 without gaps. Errors: E_ARGUMENT. */
WNPU_API int wnpu_get_format(int format, wnpu_format_info *info);

/* Writes the results of the last run. Output is valid UTF-8 with "\n" line ends (CSV: CR LF).
 * Control characters in the text are written as spaces, in JSON as escapes. In SRT "-->" within
 * text becomes "-- >"; VTT, CSV and ASS are escaped by their own rules; other text that players
 * would interpret as markup ("{\" in subtitles, "[12:34]" in LRC) is broken by an invisible U+2060,
 * except for <i> and similar tags in SRT. Known speakers are named in TXT and SRT ("Speaker 1: "),
 * in VTT (<v Speaker 1>), in ASS (Name) and in all JSON formats. In SRT, VTT, LRC and ASS cues are
 * in order of their start, last at least 1 ms (ASS: 10 ms), and overlap only those of other
 * speakers (from the 16th speaker on, only those of the first 15). Errors: E_ARGUMENT, E_IO. */
WNPU_API int wnpu_write(const wnpu_session *session, wnpu_format format, wnpu_write_fn write,
                        void *user);

/* Layout of subtitles. With all fields 0, the default, there is one cue per segment, on
 * one line. With any of them set, SRT, VTT, LRC (one line per cue) and ASS divide the text into
 * cues and lines within the limits, preferably at ends of sentences, then of clauses, pauses,
 * spaces. Other formats ignore the layout.
 *
 * Cue times are times of words if wnpu_params.words was set, otherwise estimates from the length of
 * the text. Every word is written once and in order. A segment too short for min_cue_ms may be
 * joined with an adjacent one of the same language. Widths are display columns: 2 for East Asian
 * wide characters and emoji, 0 for combining marks, otherwise 1. Scripts without spaces are divided
 * between characters, but not before closing or after opening punctuation; other words are divided
 * only if longer than a line. A cue has at most 128 words (or characters of a script without
 * spaces). A speaker's name in SRT counts as part of its line, unless that leaves less than 8
 * columns; durations and gaps are those between cues of one speaker. */
typedef struct wnpu_write_options {
    uint32_t struct_size;
    int32_t format;           /* wnpu_format [TXT] */
    int32_t max_line_width;   /* columns, 8..1000; 0: no limit [0] */
    int32_t max_lines;        /* lines per cue, 1..16, needs max_line_width; 0: no limit [0] */
    int32_t max_cue_ms;       /* longest cue, 500..60000; 0: no limit [0] */
    int32_t min_cue_ms;       /* shortest cue, 0..10000, at most max_cue_ms. Shorter ones are
                                 extended or joined where adjacent cues and the end of the
                                 recording permit [0] */
    int32_t min_gap_ms;       /* between cues, 0..1000 [0] */
    int32_t reading_speed;    /* columns per second, 5..100; cues are extended accordingly where
                                 there is room and max_cue_ms permits; 0: off [0] */
    int32_t max_words;        /* words per cue, or characters of a script without spaces, 1..128; 0:
                                 no limit [0] */
    int32_t word_times;       /* 1: VTT, ASS and LRC also tell when each word of a cue begins, so
                                 that players can highlight it (karaoke): <hh:mm:ss.mmm><c>word</c>,
                                 {\k..} in hundredths of a second, <mm:ss.xx> [0] */
    int32_t device;           /* no layout: 1: JSON has the "device" of each segment, "cpu", or
                                 "accelerator" if one computed products of the encoder [0] */
    int32_t paragraph_ms;     /* TXT and JSON have paragraphs: another one begins where nobody
                                 speaks for so long, 200..60000, or somebody else does, or where one
                                 was dictated. In TXT a paragraph is one line, with an empty line
                                 before the next; JSON lists them. 0: no paragraphs [0] */
    int32_t doubt;            /* 1: VTT and ASS mark words with a low probability, in VTT as
                                 <c.unsure> and <c.doubtful>, in ASS by colours; JSON has the mean
                                 probability of the recording's tokens and the number of doubtful
                                 words [0] */
} wnpu_write_options;

/* A word with a probability below this is unsure, or doubtful. */
#define WNPU_PROBABILITY_UNSURE 0.6f
#define WNPU_PROBABILITY_DOUBTFUL 0.3f

WNPU_API void wnpu_write_options_init(wnpu_write_options *options, size_t struct_size);
/* Sets usual limits of subtitles: 42 columns, 2 lines, 1 to 7 s, 80 ms between cues, 20 columns per
 * second. options must have been initialised with wnpu_write_options_init(). */
WNPU_API void wnpu_write_options_subtitles(wnpu_write_options *options);
/* 1 if words are needed for exact times of the cues that these options make: then set
 * wnpu_params.words for the run. Otherwise, and for invalid options, 0. */
WNPU_API int wnpu_write_wants_words(const wnpu_write_options *options);

/* Position in the output, for writing during a run. Set struct_size, and all other fields to 0,
 * before the first call; then only last may be changed. */
typedef struct wnpu_write_cursor {
    uint32_t struct_size;
    int32_t last;             /* 1: no more results will follow */
    uint64_t segment, offset; /* next segment, and byte of its text */
    uint64_t cues;            /* number of cues written */
    int64_t end_ms;           /* end of the last cue */
    uint64_t begun;           /* 1: the beginning of the file was written */
} wnpu_write_cursor;

/* Writes results with options. With cursor NULL, all results; otherwise those after the cursor that
 * later results cannot change, and advances the cursor. The concatenated parts are, byte for byte,
 * what one call at the end would write: call it from on_segment with last = 0, and after the run
 * with last = 1, with the same options. With a layout, a cue may be delayed until the next segment
 * exists; JSON, and cues of several speakers, are written only with last = 1. A run with append
 * changes the order of segments: start with a new cursor after it. Allocates nothing; uses about
 * 16 KiB of stack.
 * Errors: E_ARGUMENT, E_IO (some bytes may have been written), E_VERSION; on error the cursor does
 * not change. */
WNPU_API int wnpu_write_with(const wnpu_session *session, const wnpu_write_options *options,
                             wnpu_write_cursor *cursor, wnpu_write_fn write, void *user);

/* Writes length bytes of text as a JSON string with its quotes, for programs that write JSON around
 * results. Quotes, backslashes and control characters are escaped; invalid UTF-8 becomes U+FFFD.
 * May be called in any thread at any time. Errors: E_ARGUMENT, E_IO (some bytes may have been
 * written). */
WNPU_API int wnpu_write_json_string(const char *text, size_t length, wnpu_write_fn write,
                                    void *user);

/* ---------------------------------------------------------------- self-test ---- */

/* Compares the library with known results: its tables, FFT and log-mel spectrogram, tokenizer, and
 * the matrix product and one window of a small model on every available instruction set (AMX if the
 * process has permission). Takes about 20 ms on one core, and temporarily allocates about 1.5 MiB
 * (allocator NULL: malloc and free). May be called in any thread at any time. Errors: E_INTERNAL
 * (the message says what differs), E_MEMORY, E_ARGUMENT. */
WNPU_API int wnpu_self_test(const wnpu_allocator *allocator, wnpu_error *error);

/* ================================================================ accelerator interface ====
 *
 * For authors of accelerators. Applications only pass the wnpu_accel * from a function such as
 * wnpu_amdxdna_open() to wnpu_config.accel.
 *
 * An accelerator computes exact products of int8 matrices: C[M,N] = A[M,K] * B[N,K]^T with int32
 * accumulation. A result is either correct or wrong, never approximate: the library verifies
 * results, and computes a block itself if anything fails, so that the text does not depend on the
 * accelerator. All functions are called from one thread at a time, not always the same one. Only
 * wait, probe and close may wait for the device.
 *
 * How sessions use it  Opening a session places the weights of the encoder's matrix products and of
 *             the cross-attention's keys and values in the accelerator's memory; closing it removes
 *             them. Rows are processed in a few chunks so that CPU and accelerator work at the same
 *             time. The checksum of every returned row is verified. A row with a wrong checksum and
 *             every failed job is computed by the CPU from the same integers.
 * Sharing     Sessions in any threads may share an accelerator, which processes one window at a
 *             time. A session that finds it busy computes its window on the CPU or, with
 *             require_accel, waits. Opening and closing sessions waits.
 * Waiting     A job that takes longer than 1 s is abandoned. wnpu_cancel() takes effect after the
 *             jobs in flight.
 * Health      A window uses the accelerator if its health is OK. If it is PROBE, probe() gets up to
 *             500 ms before the next window. Otherwise windows run on the CPU.
 * Privacy     wnpu_reset() cannot erase the accelerator's memory, which contains values of the last
 *             window until the accelerator is closed.
 */

/* A shape of product that the accelerator supports. Smaller products fit as well: see
 * wnpu_accel_product. This structure and wnpu_accel_product are used in arrays and will never
 * change. */
struct wnpu_accel_shape {
    uint32_t m, n, k;         /* C is [m, n], A is [m, k], B is [n, k] */
    uint32_t group;           /* all products of a job must have the same group; another group
                                 in the next job may cost a context switch */
    uint64_t resident_bytes;  /* device memory of one resident weight of this shape */
    double cost_us;           /* measured time of a job of one product, microseconds; 0: unknown */
    double chained_us;        /* measured time of each further product of a job; 0: unknown */
};

struct wnpu_accel_info {
    uint32_t struct_size;
    uint32_t n_shapes;
    const wnpu_accel_shape *shapes; /* valid until the accelerator is closed */
    uint32_t max_in_flight;   /* jobs submitted and not yet waited for */
    uint32_t max_chain;       /* products per job */
    uint64_t memory_fixed;    /* bytes locked by opening, without weights */
    uint64_t memory_limit;    /* bytes that may be locked in total; 0: no known limit */
    const char *name;         /* valid until the accelerator is closed */
};

/* One product of a job. b is a resident weight, which determines n and k. The accelerator pads:
 * rows from m on and columns from n on are neither read nor written. */
typedef struct wnpu_accel_product {
    uint32_t shape;           /* index into wnpu_accel_info.shapes */
    uint32_t m;               /* rows, 1..m of the shape */
    uint64_t b;               /* from resident(), of the same shape */
    const int8_t *a;          /* [m, k], values -127..127; row i at a + i * lda. Products of a job
                                 with equal a, m, k and lda share one upload. Not used after
                                 submit() */
    size_t lda;
    int32_t *c;               /* [m, n]; row i at c + i * ldc; written by wait(). May be NULL */
    size_t ldc;
    /* Used if c is NULL, and saves a copy: wait() calls it after the whole job has succeeded, once
     * for each product in order, with the result in device memory. The results of all products of
     * the job remain there until wait() returns. */
    void (*take)(void *user, size_t index, const int32_t *c, size_t ldc);
    void *user;
} wnpu_accel_product;

typedef enum wnpu_accel_health {
    WNPU_ACCEL_OK = 0,
    WNPU_ACCEL_SUSPECT = 1,   /* failed recently and is in its cooldown: do not submit */
    WNPU_ACCEL_OFF = 2,       /* permanently disabled until it is opened again */
    WNPU_ACCEL_PROBE = 3      /* the cooldown is over: call probe() when there is time */
} wnpu_accel_health;

/* Totals since the accelerator was opened. */
typedef struct wnpu_accel_account {
    uint32_t struct_size;
    int32_t health;           /* wnpu_accel_health */
    uint64_t jobs, products;  /* completed successfully */
    uint64_t macs;            /* their multiply-accumulates, without padding */
    uint64_t padded_macs;     /* and with padding */
    uint64_t submissions;     /* commands given to the driver */
    uint64_t waits;           /* waits passed to the driver */
    uint64_t bytes_in;        /* copied to device memory, weights included */
    uint64_t bytes_out;       /* read back */
    uint64_t bytes_locked;    /* device memory held now */
    uint64_t failures;        /* failed jobs, and results reported by distrust() */
    uint64_t retries;         /* jobs submitted a second time */
    uint64_t probes;          /* calls of probe() that tested the device */
    double busy_ms;           /* from submission to completion, summed over jobs */
    double waited_ms;         /* time inside wait() */
    char first_failure[192];  /* "" if none */
} wnpu_accel_account;

/* Functions with a wnpu_error return 0, or a negative wnpu_status with the reason in *error. */
struct wnpu_accel {
    uint32_t struct_size;     /* sizeof(wnpu_accel) in the header of the accelerator's author */
    uint32_t in_use;          /* 0 at first; then used by the library: a session is using it */
    void *self;
    /* Always the same answer while the accelerator is open. */
    int (*describe)(void *self, wnpu_accel_info *info);
    /* Copies B [n, k], int8, row i at data + i * ldb, n and k at most those of the shape, to device
     * memory; *b is its handle. E_MEMORY if memory_limit would be exceeded. */
    int (*resident)(void *self, uint32_t shape, uint32_t n, uint32_t k, const int8_t *data,
                    size_t ldb, uint64_t *b, wnpu_error *error);
    /* Frees a resident weight. E_STATE while a job in flight uses it. */
    int (*release)(void *self, uint64_t b);
    /* Queues 1..max_chain products as one job and returns immediately. *products is not used after
     * the call; c is, until the job has been waited for. */
    int (*submit)(void *self, const wnpu_accel_product *products, size_t count, uint64_t *job,
                  wnpu_error *error);
    /* Waits until the job is complete and its results are delivered, at most until deadline_ns of
     * CLOCK_MONOTONIC. After the call the job no longer exists, whatever the return value. 0: all
     * results were delivered. Otherwise none were, and c is and remains unchanged. */
    int (*wait)(void *self, uint64_t job, int64_t deadline_ns, wnpu_error *error);
    /* wnpu_accel_health */
    int (*health)(void *self);
    /* Tests the device in state PROBE. The new state is OK, SUSPECT with a longer cooldown, or OFF.
     * */
    int (*probe)(void *self, int64_t deadline_ns, wnpu_error *error);
    /* Reports that a result was wrong. The new state is SUSPECT. */
    void (*distrust)(void *self, const char *reason);
    int (*account)(void *self, wnpu_accel_account *account);
    /* Waits for jobs in flight, at most a few seconds. Never called with NULL. */
    void (*close)(void *self);
};

/* ================================================================ AMD XDNA accelerator ====
 *
 * npu_amdxdna.c: NPUs of AMD Ryzen AI (Phoenix and Hawk Point: NPU1; Strix, Strix Halo and Krackan:
 * NPU4 to NPU6) through the amdxdna driver of Linux 6.14 or later. Link with -ldrm. It contains
 * kernels for both generations, which so far only a simulator has executed; a pack replaces them, a
 * directory with a file "manifest", overlays and instruction streams (README: how to build one).
 * Whatever the kernels are, each must pass a self-test, and each result is verified.
 *
 * An accelerator may be used by one thread at a time, and belongs to the process that opened it. In
 * a forked child every function returns E_STATE, and close() only releases what the child holds.
 * Nothing is stored between processes.
 */

/* A kernel pack read through callbacks; name is the name of a file in the pack. */
typedef struct wnpu_amdxdna_files {
    int64_t (*size)(void *user, const char *name);   /* bytes, or negative if it does not exist */
    /* Copies up to size bytes from offset and returns how many, or a negative number on failure. */
    int64_t (*read)(void *user, const char *name, uint64_t offset, void *buffer, size_t size);
    void *user;
} wnpu_amdxdna_files;

/* How buffers are made coherent with the device. */
typedef enum wnpu_amdxdna_flush {
    WNPU_AMDXDNA_FLUSH_AUTO = 0,   /* CLFLUSH on x86, otherwise the driver */
    WNPU_AMDXDNA_FLUSH_DRIVER = 1  /* the driver's SYNC_BO: slower, works on every CPU */
} wnpu_amdxdna_flush;

typedef struct wnpu_amdxdna_config {
    uint32_t struct_size;
    int32_t flush_mode;       /* wnpu_amdxdna_flush [AUTO] */
    const char *pack;         /* directory of a kernel pack [NULL: files, or built-in kernels] */
    const wnpu_amdxdna_files *files; /* a pack through callbacks; not used after opening [NULL] */
    const char *node;         /* device, such as "/dev/accel/accel0" [NULL: the first NPU] */
    const char *root;         /* prefix of every path outside the pack, for recorded machines
                                 [NULL: none] */
    uint64_t memory_limit;    /* most bytes to lock; 0: no limit [0] */
    uint32_t max_chain;       /* products per job, 1..24; 0: up to 8, fewer if the buffers of two
                                 jobs would exceed 96 MiB [0] */
    uint32_t test_ms;         /* deadline of a self-test, 1..1500; 0: 1000. Built-in kernels have
                                 more if the cycles counted for them take it at 100 MHz [0] */
    uint32_t cooldown_ms;     /* pause after a failure; each failed probe doubles it, up to 64
                                 times; 0: 1250 [0] */
    uint32_t reserved;
    /* For platforms that support neither CLFLUSH nor the driver's flush, and for tests: writes back
     * and invalidates the cache lines of size bytes at address [NULL: by flush_mode]. */
    void (*flush)(void *user, const void *address, size_t size);
    void *flush_user;
    const wnpu_allocator *allocator; /* must outlive the accelerator [NULL: malloc and free] */
    wnpu_log_fn log;          /* [NULL: no log] */
    void *log_user;
    /* What the built-in kernels are prepared for: n and k of n_products (up to 64) products, the
     * other fields are ignored; see wnpu_model_products(). Not used after opening. With a pack they
     * are ignored [0: shapes of which any product can be composed, with more padding]. */
    const wnpu_accel_shape *products;
    uint32_t n_products;
    uint32_t reserved2;
} wnpu_amdxdna_config;

WNPU_API void wnpu_amdxdna_config_init(wnpu_amdxdna_config *config, size_t struct_size);

/* Computes the memory that an accelerator with this configuration will lock, from the pack or the
 * products alone and without a device. *fixed receives the most bytes that opening locks; the first
 * capacity elements of shapes (may be NULL if capacity is 0) receive the kernels' shapes with their
 * resident_bytes. Returns the number of shapes, or a negative error. The total is *fixed plus
 * resident_bytes of every weight. */
WNPU_API int wnpu_amdxdna_memory(const wnpu_amdxdna_config *config, wnpu_accel_shape *shapes,
                                 size_t capacity, uint64_t *fixed, wnpu_error *error);

/* Opens the NPU. Every kernel is compared with the CPU before it is offered;
 * those that fail are omitted, and opening fails if none is left. On failure *accel is NULL, and
 * wnpu_amdxdna_diagnose() gives details. Errors: E_ARGUMENT, E_IO, E_MEMORY, E_MODEL (the pack is
 * damaged), E_UNSUPPORTED (no suitable device, driver or pack), E_ACCEL (the device did not work),
 * E_VERSION. Creates one thread, with all signals blocked, which sleeps unless a hardware context
 * has to be opened again: the driver may block for seconds then. */
WNPU_API int wnpu_amdxdna_open(const wnpu_amdxdna_config *config, wnpu_accel **accel,
                               wnpu_error *error);
/* Cycles that a product of a shape (a number from describe()) takes by the count of a simulated
 * array, to be compared with cost_us: built-in kernels only, without the submission and with host
 * memory that answers at once. 0: unknown, as for packs. */
WNPU_API uint64_t wnpu_amdxdna_cycles(const wnpu_accel *accel, uint32_t shape);
/* Closes the accelerator; no session may be using it. Waits while the driver recreates a context,
 * which takes some seconds if the firmware has stopped. NULL is allowed. */
WNPU_API void wnpu_amdxdna_close(wnpu_accel *accel);

typedef enum wnpu_amdxdna_cause {
    WNPU_AMDXDNA_FINE = 0,            /* no problem found */
    WNPU_AMDXDNA_NO_NPU = 1,          /* no NPU on the PCI bus */
    WNPU_AMDXDNA_UNKNOWN_DEVICE = 2,  /* an NPU of an unsupported kind */
    WNPU_AMDXDNA_KERNEL_OLD = 3,      /* Linux older than 6.14 and no separately installed driver */
    WNPU_AMDXDNA_KERNEL_NO_DRIVER = 4, /* new enough, but built without amdxdna */
    WNPU_AMDXDNA_MODULE_MISSING = 5,  /* amdxdna is installed but not loaded */
    WNPU_AMDXDNA_MODULE_BLOCKED = 6,  /* amdxdna is blacklisted */
    WNPU_AMDXDNA_FIRMWARE_MISSING = 7, /* no firmware file for the device */
    WNPU_AMDXDNA_FIRMWARE_OLD = 8,    /* firmware older than the driver requires */
    WNPU_AMDXDNA_FIRMWARE_NEW = 9,    /* firmware protocol not supported by the driver */
    WNPU_AMDXDNA_FIRMWARE_UNKNOWN = 10, /* firmware runs but does not report its version */
    WNPU_AMDXDNA_IOMMU_MISSING = 11,  /* disabled in firmware setup or by the command line */
    WNPU_AMDXDNA_HYPERVISOR = 12,     /* a virtual machine, which the driver does not support */
    WNPU_AMDXDNA_DRIVER_FAILED = 13,  /* loaded, but did not bind to the device */
    WNPU_AMDXDNA_NO_NODE = 14,        /* driver bound, but no /dev/accel node */
    WNPU_AMDXDNA_PERMISSION = 15,     /* this user may not open the node */
    WNPU_AMDXDNA_OTHER_DRIVER = 16,   /* all nodes belong to other accelerators */
    WNPU_AMDXDNA_USER_QUEUES = 17,    /* an NPU with user queues (NPU3), a different protocol */
    WNPU_AMDXDNA_SVA = 18,            /* the driver could not share the address space */
    WNPU_AMDXDNA_DEVICE_GONE = 19,    /* the firmware has stopped responding */
    WNPU_AMDXDNA_MEMLOCK = 20,        /* RLIMIT_MEMLOCK is too low */
    WNPU_AMDXDNA_MEMORY = 21,         /* the kernel has no memory for the buffers */
    WNPU_AMDXDNA_CONTEXTS = 22,       /* all hardware contexts are in use */
    WNPU_AMDXDNA_PACK_MISSING = 23,   /* no kernel pack at the path */
    WNPU_AMDXDNA_PACK_DAMAGED = 24,   /* a file of the pack is damaged or was refused */
    WNPU_AMDXDNA_PACK_DEVICE = 25,    /* the pack is for another device */
    WNPU_AMDXDNA_SELF_TEST = 26,      /* kernels run but give wrong results */
    WNPU_AMDXDNA_OTHER = 27,          /* see the message */
    WNPU_AMDXDNA_KERNEL_HANGS = 28,   /* a kernel does not end in time; the firmware responds. The
                                         message says whether it hangs or is slow, and the
                                         array's status is logged, a line for each tile */
    WNPU_AMDXDNA_CONTEXT_REFUSED = 29, /* no hardware context: too many, columns, or its firmware */
    WNPU_AMDXDNA_CONFIG_REFUSED = 30  /* the kernels' configuration was refused */
} wnpu_amdxdna_cause;

typedef struct wnpu_amdxdna_diagnosis {
    uint32_t struct_size;
    int32_t cause;            /* wnpu_amdxdna_cause */
    uint64_t memlock_needed;  /* bytes that the pack would lock, without weights; 0: unknown */
    uint64_t memlock_limit;   /* RLIMIT_MEMLOCK in force; UINT64_MAX: none */
    char device[48];          /* "NPU1 (1022:1502 rev 00)", "" if none */
    char node[64];            /* "" if none */
    char kernel[64];          /* release of the running kernel */
    char driver[64];          /* "amdxdna 0.10", "" if none */
    char firmware[32];        /* "1.5.5.391", "" if unknown */
    char message[384];        /* the problem */
    char cure[384];           /* the remedy */
    uint32_t columns;         /* of the array that the kernels use, or that it has; 0: unknown */
    uint32_t clock_mhz;       /* of the array; 0: unknown */
    uint32_t rungs;           /* of a ladder that passed: 1 locks and DMA, 2 scalar code, 3 the
                                 built-in kernels; 0 with a pack */
    uint32_t reserved;
} wnpu_amdxdna_diagnosis;

/* Finds the first problem that prevents the NPU from working, and its remedy. config may be NULL:
 * the built-in kernels are tested then, and before them two small ones: see rungs. With root set,
 * the recorded machine under that directory is examined and no device is used. Returns WNPU_OK if
 * cause was determined, FINE included. Errors: E_ARGUMENT, E_VERSION. */
WNPU_API int wnpu_amdxdna_diagnose(const wnpu_amdxdna_config *config,
                                   wnpu_amdxdna_diagnosis *diagnosis);
/* "permission", "memlock", ...; never NULL. Static storage. */
WNPU_API const char *wnpu_amdxdna_cause_name(int cause);

#ifdef __cplusplus
}
#endif
#endif /* WHISPER_NPU_H */
