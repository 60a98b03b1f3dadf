/* The header's declarations at the commit from which on layouts are kept; never to be changed. */
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
typedef enum wnpu_status {
    WNPU_OK = 0,
    WNPU_INCOMPLETE = 1,
    WNPU_E_ARGUMENT = -1,
    WNPU_E_MEMORY = -2,
    WNPU_E_IO = -3,
    WNPU_E_MODEL = -4,
    WNPU_E_AUDIO = -5,
    WNPU_E_CANCELLED = -6,
    WNPU_E_UNSUPPORTED = -7,
    WNPU_E_STATE = -8,
    WNPU_E_FULL = -9,
    WNPU_E_ACCEL = -10,
    WNPU_E_VERSION = -11,
    WNPU_E_INTERNAL = -12
} wnpu_status;
typedef struct wnpu_error {
    int code;
    char message[252];
} wnpu_error;
WNPU_API uint32_t wnpu_version(void);
WNPU_API const char *wnpu_strerror(int code);
#ifdef WNPU_NO_OS
double wnpu_clock_ms(void);
#endif
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
typedef void (*wnpu_log_fn)(void *user, wnpu_log_level level, const char *text);
typedef enum wnpu_isa {
    WNPU_ISA_AUTO = 0,
    WNPU_ISA_SCALAR = 1,
    WNPU_ISA_SSE41 = 2,
    WNPU_ISA_AVX2 = 3,
    WNPU_ISA_AVX512 = 4,
    WNPU_ISA_NEON = 5,
    WNPU_ISA_NEON_DOT = 6,
    WNPU_ISA_NEON_I8MM = 7,
    WNPU_ISA_AMX = 8,
    WNPU_ISA_AVX_VNNI = 9,
    WNPU_ISA_WASM = 10
} wnpu_isa;
WNPU_API int wnpu_isa_available(int isa);
WNPU_API const char *wnpu_isa_name(int isa);
WNPU_API int wnpu_isa_from_name(const char *name);
typedef struct wnpu_model wnpu_model;
typedef struct wnpu_source {
    int64_t (*read)(void *user, uint64_t offset, void *buffer, size_t size);
    uint64_t size;
    void *user;
} wnpu_source;
typedef void (*wnpu_parallel_for_fn)(void *user, size_t count,
                                     void (*task)(void *context, size_t index), void *context);
typedef struct wnpu_model_config {
    uint32_t struct_size;
    uint32_t keep_float;
    const wnpu_allocator *allocator;
    wnpu_log_fn log;
    void *log_user;
    uint32_t copy;
    uint32_t full_check;
    uint32_t threads;
    uint32_t reserved;
    wnpu_parallel_for_fn parallel_for;
    void *parallel_user;
} wnpu_model_config;
WNPU_API void wnpu_model_config_init(wnpu_model_config *config, size_t struct_size);
WNPU_API int wnpu_model_open(wnpu_model **model, const char *path,
                             const wnpu_model_config *config, wnpu_error *error);
WNPU_API int wnpu_model_open_memory(wnpu_model **model, const void *data, size_t size,
                                    const wnpu_model_config *config, wnpu_error *error);
WNPU_API int wnpu_model_open_static(wnpu_model **model, const void *data, size_t size,
                                    const wnpu_model_config *config, wnpu_error *error);
WNPU_API int wnpu_model_open_source(wnpu_model **model, const wnpu_source *source,
                                    const wnpu_model_config *config, wnpu_error *error);
typedef struct wnpu_model_memory {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t held;
    uint64_t shared;
    uint64_t peak;
} wnpu_model_memory;
WNPU_API int wnpu_model_measure(const char *path, const wnpu_model_config *config,
                                wnpu_model_memory *memory, wnpu_error *error);
WNPU_API int wnpu_model_measure_source(const wnpu_source *source, const wnpu_model_config *config,
                                       wnpu_model_memory *memory, wnpu_error *error);
WNPU_API void wnpu_model_close(wnpu_model *model);
WNPU_API int wnpu_model_verify(const wnpu_model *model, wnpu_error *error);
typedef int64_t (*wnpu_write_fn)(void *user, const void *data, size_t size);
WNPU_API int wnpu_model_save(const wnpu_model *model, wnpu_write_fn write, void *user,
                             wnpu_error *error);
typedef struct wnpu_model_info {
    uint32_t struct_size;
    int32_t n_vocab;
    int32_t n_audio_ctx;
    int32_t n_audio_state, n_audio_head, n_audio_layer;
    int32_t n_text_ctx;
    int32_t n_text_state, n_text_head, n_text_layer;
    int32_t n_mels;
    int32_t multilingual;
    int32_t n_languages;
    int32_t has_float;
    uint64_t bytes;
    const char *name;
    const char *weight_type;
    uint64_t shared_bytes;
} wnpu_model_info;
WNPU_API int wnpu_model_get_info(const wnpu_model *model, wnpu_model_info *info);
WNPU_API int wnpu_language_count(void);
WNPU_API const char *wnpu_language_code(int language);
WNPU_API const char *wnpu_language_name(int language);
WNPU_API int wnpu_language_id(const char *code_or_name);
typedef enum wnpu_script {
    WNPU_SCRIPT_ANY = 0,
    WNPU_SCRIPT_SIMPLIFIED = 1,
    WNPU_SCRIPT_TRADITIONAL = 2
} wnpu_script;
WNPU_API int wnpu_language_script(const char *tag);
WNPU_API const char *wnpu_token_text(const wnpu_model *model, int32_t token, size_t *length);
WNPU_API int64_t wnpu_tokenize(const wnpu_model *model, const char *text, size_t length,
                               int32_t *tokens, size_t capacity);
typedef enum wnpu_sample_format {
    WNPU_SAMPLE_F32 = 0,
    WNPU_SAMPLE_S16 = 1,
    WNPU_SAMPLE_U8 = 2,
    WNPU_SAMPLE_S16LE = 3,
    WNPU_SAMPLE_S24LE = 4,
    WNPU_SAMPLE_S32LE = 5,
    WNPU_SAMPLE_F32LE = 6,
    WNPU_SAMPLE_F64LE = 7,
    WNPU_SAMPLE_ALAW = 8,
    WNPU_SAMPLE_ULAW = 9
} wnpu_sample_format;
#define WNPU_CHANNEL_MIX (-1)
typedef struct wnpu_audio {
    uint32_t struct_size;
    int32_t format;
    uint32_t rate;
    uint32_t channels;
    int32_t channel;
    const void *data;
    uint64_t frames;
    int64_t (*read)(void *user, void *buffer, size_t max_frames);
    void *user;
    uint32_t layout;
    uint32_t reserved;
} wnpu_audio;
WNPU_API void wnpu_audio_init(wnpu_audio *audio, size_t struct_size);
WNPU_API size_t wnpu_frame_bytes(const wnpu_audio *audio);
WNPU_API int wnpu_wav_open(wnpu_audio *audio, const void *data, size_t size, wnpu_error *error);
typedef enum wnpu_wav_problem {
    WNPU_WAV_CUT = 1,
    WNPU_WAV_LONGER = 2,
    WNPU_WAV_PARTS = 4
} wnpu_wav_problem;
typedef struct wnpu_wav_reader {
    uint32_t struct_size;
    uint32_t problems;
    int64_t (*read)(void *user, void *buffer, size_t size);
    void *user;
    uint64_t frames;
    uint64_t work[288];
} wnpu_wav_reader;
WNPU_API void wnpu_wav_reader_init(wnpu_wav_reader *reader, size_t struct_size);
WNPU_API int wnpu_wav_reader_open(wnpu_wav_reader *reader, wnpu_audio *audio, wnpu_error *error);
typedef struct wnpu_token {
    int32_t id;
    float probability;
    int64_t t0_ms, t1_ms;
} wnpu_token;
typedef struct wnpu_segment {
    int64_t t0_ms, t1_ms;
    const char *text;
    size_t text_length;
    const wnpu_token *tokens;
    size_t n_tokens;
    int32_t language;
    int32_t window;
    float mean_logprob;
    float no_speech;
    float temperature;
    float compression_ratio;
    float first_logprob;
    int32_t retries;
    uint32_t reasons;
    int32_t accepted;
    int32_t prompted;
    int32_t device;
    float voice;
    uint32_t reserved;
    int64_t window_ms;
    float level;
    int32_t speaker;
} wnpu_segment;
typedef struct wnpu_speech_span {
    int64_t t0_ms, t1_ms;
} wnpu_speech_span;
typedef enum wnpu_ledger_kind {
    WNPU_LEDGER_TEXT = 0,
    WNPU_LEDGER_SILENCE = 1,
    WNPU_LEDGER_UNRESOLVED = 2
} wnpu_ledger_kind;
typedef enum wnpu_ledger_reason {
    WNPU_REASON_NONE = 0,
    WNPU_REASON_NO_VOICE = 1,
    WNPU_REASON_NO_SPEECH = 2,
    WNPU_REASON_PAUSE = 3,
    WNPU_REASON_NO_TEXT = 4,
    WNPU_REASON_CANCELLED = 5,
    WNPU_REASON_FULL = 6,
    WNPU_REASON_INPUT = 7,
    WNPU_REASON_FAILED = 8,
    WNPU_REASON_OVERRUN = 9
} wnpu_ledger_reason;
typedef struct wnpu_ledger_span {
    int64_t t0_ms, t1_ms;
    int32_t kind;
    int32_t reason;
} wnpu_ledger_span;
typedef struct wnpu_word {
    uint32_t struct_size;
    float probability;
    int64_t t0_ms, t1_ms;
    const char *text;
    size_t text_length;
    size_t first_token;
    size_t n_tokens;
    int32_t speaker;
    int32_t reserved;
} wnpu_word;
typedef enum wnpu_refusal {
    WNPU_REFUSED_LOOP = 1,
    WNPU_REFUSED_COMPRESSION = 2,
    WNPU_REFUSED_LOGPROB = 4,
    WNPU_REFUSED_FIRST_TOKEN = 8
} wnpu_refusal;
typedef enum wnpu_device {
    WNPU_DEVICE_CPU = 0,
    WNPU_DEVICE_ACCEL = 1
} wnpu_device;
typedef struct wnpu_stats {
    uint32_t struct_size;
    int32_t isa;
    int32_t threads;
    int32_t language;
    float language_probability;
    uint32_t windows;
    uint32_t tokens;
    uint32_t prompt_tokens;
    int64_t audio_ms;
    double total_ms;
    double audio_in_ms;
    double log_mel_ms;
    double encoder_ms;
    double cross_ms;
    double decoder_ms;
    uint32_t retries;
    uint32_t loops;
    uint32_t unaccepted;
    uint32_t silent;
    uint32_t skips;
    uint32_t reserved;
    double voice_ms;
    int64_t speech_ms;
    int64_t unresolved_ms;
    uint32_t returns;
    uint32_t opposed_ms;
} wnpu_stats;
typedef struct wnpu_session wnpu_session;
typedef struct wnpu_accel wnpu_accel;
typedef enum wnpu_compute {
    WNPU_COMPUTE_INT8 = 0,
    WNPU_COMPUTE_FLOAT = 1
} wnpu_compute;
typedef enum wnpu_accel_use {
    WNPU_ACCEL_FASTER = 0,
    WNPU_ACCEL_ALL = 1
} wnpu_accel_use;
typedef struct wnpu_config {
    uint32_t struct_size;
    uint32_t threads;
    int32_t compute;
    int32_t isa;
    uint64_t result_bytes;
    wnpu_parallel_for_fn parallel_for;
    void *parallel_user;
    wnpu_accel *accel;
    uint32_t require_accel;
    uint32_t accel_use;
    const wnpu_allocator *allocator;
    wnpu_log_fn log;
    void *log_user;
    uint32_t max_beams;
    uint32_t max_phrase_tokens;
    uint32_t batch;
    uint32_t reserved;
    uint64_t stream_bytes;
    uint32_t voice_dimension;
    uint32_t max_turns;
} wnpu_config;
WNPU_API void wnpu_config_init(wnpu_config *config, size_t struct_size);
WNPU_API uint32_t wnpu_default_threads(void);
WNPU_API size_t wnpu_session_size(const wnpu_model *model, const wnpu_config *config,
                                  wnpu_error *error);
typedef struct wnpu_accel_info wnpu_accel_info;
WNPU_API uint64_t wnpu_session_accel_bytes(const wnpu_model *model, const wnpu_config *config,
                                           const wnpu_accel_info *info, wnpu_error *error);
typedef struct wnpu_accel_shape wnpu_accel_shape;
WNPU_API int wnpu_model_products(const wnpu_model *model, wnpu_accel_shape *shapes,
                                 size_t capacity);
WNPU_API int wnpu_session_open(wnpu_session **session, const wnpu_model *model,
                               const wnpu_config *config, void *memory, size_t size,
                               wnpu_error *error);
WNPU_API void wnpu_session_close(wnpu_session *session);
WNPU_API int wnpu_reset(wnpu_session *session);
WNPU_API void wnpu_cancel(wnpu_session *session);
WNPU_API const char *wnpu_session_error(const wnpu_session *session);
typedef enum wnpu_task { WNPU_TRANSCRIBE = 0, WNPU_TRANSLATE = 1 } wnpu_task;
#define WNPU_LANGUAGE_AUTO (-1)
typedef enum wnpu_language_mode {
    WNPU_LANGUAGE_ONCE = 0,
    WNPU_LANGUAGE_EACH = 1
} wnpu_language_mode;
typedef enum wnpu_length_rule {
    WNPU_LENGTH_POWER = 0,
    WNPU_LENGTH_RATIO = 1
} wnpu_length_rule;
typedef struct wnpu_token_event {
    uint32_t struct_size;
    int32_t window;
    int64_t window_ms;
    int32_t restart;
    int32_t complete;
    const char *text;
    size_t text_length;
} wnpu_token_event;
typedef struct wnpu_params {
    uint32_t struct_size;
    int32_t task;
    int32_t language;
    int32_t script;
    int32_t timestamps;
    int32_t max_initial_timestamp_ms;
    int32_t words;
    int32_t max_tokens;
    int32_t beam;
    float patience;
    float length_penalty;
    int32_t length_rule;
    float temperature;
    int32_t best_of;
    uint64_t seed;
    float repetition_penalty;
    int32_t no_repeat_ngram;
    int32_t suppress_blank;
    int32_t suppress_non_speech;
    int32_t suppress_numerals;
    const int32_t *suppress;
    size_t n_suppress;
    const char *suppress_lines;
    int32_t drop_fillers;
    const char *replace;
    float temperature_step;
    float compression_threshold;
    float logprob_threshold;
    float first_logprob_threshold;
    float no_speech_threshold;
    int32_t stop_loops;
    const char *initial_prompt;
    int32_t carry_initial_prompt;
    int32_t condition_on_previous;
    const char *prefix;
    const char *const *hotwords;
    size_t n_hotwords;
    const char *hotword_lines;
    float hotword_boost;
    int32_t language_mode;
    int32_t language_windows;
    float language_margin;
    const int32_t *languages;
    size_t n_languages;
    const char *language_lines;
    int32_t vad;
    float vad_threshold;
    int32_t vad_min_speech_ms;
    int32_t vad_min_silence_ms;
    int32_t vad_pad_ms;
    int32_t least_ms;
    int32_t pause_ms;
    int32_t commit_step_ms;
    int32_t hold_ms;
    int32_t encode_margin_ms;
    int32_t speaker;
    int32_t append;
    int32_t voices;
    float voice_threshold;
    float voice_margin;
    int (*on_voice)(void *user, const float *samples, size_t n, float *vector);
    int (*on_segment)(void *user, const wnpu_segment *segment);
    int (*on_progress)(void *user, int64_t done_ms, int64_t total_ms);
    int (*on_token)(void *user, const wnpu_token_event *event);
    void (*on_logits)(void *user, const int32_t *tokens, size_t n_tokens, float *logits,
                      size_t n_vocab);
    void *user;
} wnpu_params;
WNPU_API void wnpu_params_init(wnpu_params *params, size_t struct_size);
typedef enum wnpu_param_type {
    WNPU_PARAM_BOOL = 0,
    WNPU_PARAM_INT = 1,
    WNPU_PARAM_FLOAT = 2,
    WNPU_PARAM_CHOICE = 3,
    WNPU_PARAM_LANGUAGE = 4,
    WNPU_PARAM_SEED = 5,
    WNPU_PARAM_TEXT = 6,
    WNPU_PARAM_LIST = 7
} wnpu_param_type;
typedef struct wnpu_param {
    uint32_t struct_size;
    int32_t type;
    const char *name;
    const char *option;
    const char *choices;
    const char *group;
    const char *meaning;
    double fallback;
    double low, high;
    int32_t has_off;
    double off;
} wnpu_param;
WNPU_API int wnpu_param_info(size_t index, wnpu_param *info);
WNPU_API int wnpu_params_set(wnpu_params *params, const char *name, const char *value,
                             wnpu_error *error);
WNPU_API int wnpu_transcribe(wnpu_session *session, const wnpu_params *params,
                             const wnpu_audio *audio);
WNPU_API int wnpu_resume(wnpu_session *session, const wnpu_params *params,
                         const wnpu_audio *audio);
WNPU_API int wnpu_get_position(const wnpu_session *session, uint64_t *frames);
WNPU_API size_t wnpu_snapshot_size(wnpu_session *session);
WNPU_API size_t wnpu_snapshot_most(const wnpu_session *session);
WNPU_API int wnpu_snapshot(wnpu_session *session, void *memory, size_t size);
WNPU_API int wnpu_restore(wnpu_session *session, const void *snapshot, size_t size);
WNPU_API int wnpu_detect_language(wnpu_session *session, const wnpu_audio *audio,
                                  float *probabilities, size_t count);
WNPU_API int wnpu_get_languages(const wnpu_session *session, float *probabilities, size_t count);
typedef struct wnpu_choice {
    uint32_t struct_size;
    int32_t best, second;
    float best_logprob, second_logprob;
    float margin;
    float no_speech;
} wnpu_choice;
WNPU_API int wnpu_choose(wnpu_session *session, const wnpu_params *params, const wnpu_audio *audio,
                         const char *const *phrases, size_t n_phrases, wnpu_choice *choice);
WNPU_API int wnpu_detect_speech(wnpu_session *session, const wnpu_params *params,
                                const wnpu_audio *audio);
typedef struct wnpu_stream_options {
    uint32_t struct_size;
    int32_t format;
    uint32_t rate;
    uint32_t channels;
    int32_t channel;
    int32_t step_ms;
    int32_t hangover_ms;
    int32_t detect_only;
    uint32_t layout;
    int32_t skip_late;
} wnpu_stream_options;
WNPU_API void wnpu_stream_options_init(wnpu_stream_options *options, size_t struct_size);
WNPU_API void wnpu_stream_params_init(wnpu_params *params, size_t struct_size);
WNPU_API int wnpu_stream_begin(wnpu_session *session, const wnpu_params *params,
                               const wnpu_stream_options *options);
WNPU_API size_t wnpu_stream_push(wnpu_session *session, const void *samples, size_t frames);
WNPU_API size_t wnpu_stream_room(const wnpu_session *session);
typedef enum wnpu_event {
    WNPU_EVENT_COMMITTED = 1,
    WNPU_EVENT_OVERRUN = 2,
    WNPU_EVENT_TENTATIVE = 4,
    WNPU_EVENT_SPEECH_START = 8,
    WNPU_EVENT_UTTERANCE_END = 16,
    WNPU_EVENT_MORE = 32
} wnpu_event;
WNPU_API int wnpu_stream_step(wnpu_session *session, uint32_t *events);
WNPU_API int wnpu_stream_end(wnpu_session *session);
WNPU_API int wnpu_stream_finish(wnpu_session *session);
WNPU_API int wnpu_stream_resume(wnpu_session *session, const wnpu_params *params);
typedef struct wnpu_live {
    uint32_t struct_size;
    int32_t speaking;
    int64_t committed_ms;
    int64_t audio_ms;
    int64_t lag_ms;
    int64_t overrun_ms;
    const char *text;
    size_t text_length;
    size_t likely_length;
    int64_t t0_ms, t1_ms;
    int64_t utterance_t0_ms;
    int64_t utterance_t1_ms;
    uint32_t revision;
    uint32_t skipped;
    size_t confirmed_length;
} wnpu_live;
WNPU_API int wnpu_get_live(const wnpu_session *session, wnpu_live *live);
WNPU_API size_t wnpu_segment_count(const wnpu_session *session);
WNPU_API int wnpu_get_segment_sized(const wnpu_session *session, size_t index,
                                    wnpu_segment *segment, size_t size);
#define wnpu_get_segment(session,index,segment) \
    wnpu_get_segment_sized((session), (index), (segment), sizeof(wnpu_segment))
WNPU_API size_t wnpu_word_count(const wnpu_session *session, size_t segment);
WNPU_API int wnpu_get_word(const wnpu_session *session, size_t segment, size_t index,
                           wnpu_word *word);
WNPU_API size_t wnpu_speech_span_count(const wnpu_session *session);
WNPU_API int wnpu_get_speech_span(const wnpu_session *session, size_t index,
                                  wnpu_speech_span *span);
WNPU_API size_t wnpu_ledger_count(const wnpu_session *session);
WNPU_API int wnpu_get_ledger_span(const wnpu_session *session, size_t index,
                                  wnpu_ledger_span *span);
WNPU_API const char *wnpu_ledger_reason_name(int reason);
WNPU_API int wnpu_get_stats(const wnpu_session *session, wnpu_stats *stats);
typedef struct wnpu_memory {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t session;
    uint64_t results;
    uint64_t results_used;
    uint64_t results_peak;
    uint64_t phrase_tokens;
    uint64_t accel;
    uint64_t model;
    uint64_t model_shared;
    uint64_t stream;
} wnpu_memory;
WNPU_API int wnpu_get_memory(const wnpu_session *session, wnpu_memory *memory);
typedef struct wnpu_accel_stats {
    uint32_t struct_size;
    int32_t health;
    uint32_t windows;
    uint32_t windows_without;
    uint32_t fallbacks;
    uint32_t wrong;
    uint32_t probes;
    uint32_t chunk_rows;
    uint64_t resident_bytes;
    uint64_t macs;
    uint64_t accel_macs;
    const char *name;
    char first_reason[192];
} wnpu_accel_stats;
WNPU_API int wnpu_get_accel_stats(const wnpu_session *session, wnpu_accel_stats *stats);
typedef struct wnpu_accel_stage {
    uint32_t struct_size;
    int32_t planned;
    const char *name;
    uint64_t macs;
    uint64_t accel_macs;
    uint64_t fallback_macs;
    uint64_t padded_macs;
    uint64_t jobs;
    uint64_t submissions, waits;
    uint64_t bytes_in, bytes_out;
    double busy_ms;
    double waited_ms;
    double cpu_ms;
} wnpu_accel_stage;
WNPU_API int wnpu_get_accel_stage(const wnpu_session *session, size_t index,
                                  wnpu_accel_stage *stage);
typedef struct wnpu_align_stats {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t words;
    uint64_t said;
    uint64_t alike;
    uint64_t extra;
} wnpu_align_stats;
WNPU_API int wnpu_align(wnpu_session *session, const char *const *lines, size_t n_lines,
                        int extra, wnpu_align_stats *stats);
typedef enum wnpu_format {
    WNPU_FORMAT_TXT = 0,
    WNPU_FORMAT_SRT = 1,
    WNPU_FORMAT_VTT = 2,
    WNPU_FORMAT_TSV = 3,
    WNPU_FORMAT_JSON = 4,
    WNPU_FORMAT_CSV = 5,
    WNPU_FORMAT_LRC = 6,
    WNPU_FORMAT_ASS = 7,
    WNPU_FORMAT_VERBOSE_JSON = 8
} wnpu_format;
WNPU_API const char *wnpu_format_name(int format);
WNPU_API int wnpu_format_from_name(const char *name);
typedef struct wnpu_format_info {
    uint32_t struct_size;
    int32_t has_layout;
    int32_t has_word_times;
    int32_t at_end;
    const char *name;
    const char *media_type;
} wnpu_format_info;
WNPU_API int wnpu_get_format(int format, wnpu_format_info *info);
WNPU_API int wnpu_write(const wnpu_session *session, wnpu_format format, wnpu_write_fn write,
                        void *user);
typedef struct wnpu_write_options {
    uint32_t struct_size;
    int32_t format;
    int32_t max_line_width;
    int32_t max_lines;
    int32_t max_cue_ms;
    int32_t min_cue_ms;
    int32_t min_gap_ms;
    int32_t reading_speed;
    int32_t max_words;
    int32_t word_times;
    int32_t device;
} wnpu_write_options;
WNPU_API void wnpu_write_options_init(wnpu_write_options *options, size_t struct_size);
WNPU_API void wnpu_write_options_subtitles(wnpu_write_options *options);
WNPU_API int wnpu_write_wants_words(const wnpu_write_options *options);
typedef struct wnpu_write_cursor {
    uint32_t struct_size;
    int32_t last;
    uint64_t segment, offset;
    uint64_t cues;
    int64_t end_ms;
    uint64_t begun;
} wnpu_write_cursor;
WNPU_API int wnpu_write_with(const wnpu_session *session, const wnpu_write_options *options,
                             wnpu_write_cursor *cursor, wnpu_write_fn write, void *user);
WNPU_API int wnpu_write_json_string(const char *text, size_t length, wnpu_write_fn write,
                                    void *user);
WNPU_API int wnpu_self_test(const wnpu_allocator *allocator, wnpu_error *error);
struct wnpu_accel_shape {
    uint32_t m, n, k;
    uint32_t group;
    uint64_t resident_bytes;
    double cost_us;
    double chained_us;
};
struct wnpu_accel_info {
    uint32_t struct_size;
    uint32_t n_shapes;
    const wnpu_accel_shape *shapes;
    uint32_t max_in_flight;
    uint32_t max_chain;
    uint64_t memory_fixed;
    uint64_t memory_limit;
    const char *name;
};
typedef struct wnpu_accel_product {
    uint32_t shape;
    uint32_t m;
    uint64_t b;
    const int8_t *a;
    size_t lda;
    int32_t *c;
    size_t ldc;
    void (*take)(void *user, size_t index, const int32_t *c, size_t ldc);
    void *user;
} wnpu_accel_product;
typedef enum wnpu_accel_health {
    WNPU_ACCEL_OK = 0,
    WNPU_ACCEL_SUSPECT = 1,
    WNPU_ACCEL_OFF = 2,
    WNPU_ACCEL_PROBE = 3
} wnpu_accel_health;
typedef struct wnpu_accel_account {
    uint32_t struct_size;
    int32_t health;
    uint64_t jobs, products;
    uint64_t macs;
    uint64_t padded_macs;
    uint64_t submissions;
    uint64_t waits;
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t bytes_locked;
    uint64_t failures;
    uint64_t retries;
    uint64_t probes;
    double busy_ms;
    double waited_ms;
    char first_failure[192];
} wnpu_accel_account;
struct wnpu_accel {
    uint32_t struct_size;
    uint32_t in_use;
    void *self;
    int (*describe)(void *self, wnpu_accel_info *info);
    int (*resident)(void *self, uint32_t shape, uint32_t n, uint32_t k, const int8_t *data,
                    size_t ldb, uint64_t *b, wnpu_error *error);
    int (*release)(void *self, uint64_t b);
    int (*submit)(void *self, const wnpu_accel_product *products, size_t count, uint64_t *job,
                  wnpu_error *error);
    int (*wait)(void *self, uint64_t job, int64_t deadline_ns, wnpu_error *error);
    int (*health)(void *self);
    int (*probe)(void *self, int64_t deadline_ns, wnpu_error *error);
    void (*distrust)(void *self, const char *reason);
    int (*account)(void *self, wnpu_accel_account *account);
    void (*close)(void *self);
};
typedef struct wnpu_amdxdna_files {
    int64_t (*size)(void *user, const char *name);
    int64_t (*read)(void *user, const char *name, uint64_t offset, void *buffer, size_t size);
    void *user;
} wnpu_amdxdna_files;
typedef enum wnpu_amdxdna_flush {
    WNPU_AMDXDNA_FLUSH_AUTO = 0,
    WNPU_AMDXDNA_FLUSH_DRIVER = 1
} wnpu_amdxdna_flush;
typedef struct wnpu_amdxdna_config {
    uint32_t struct_size;
    int32_t flush_mode;
    const char *pack;
    const wnpu_amdxdna_files *files;
    const char *node;
    const char *root;
    uint64_t memory_limit;
    uint32_t max_chain;
    uint32_t test_ms;
    uint32_t cooldown_ms;
    uint32_t reserved;
    void (*flush)(void *user, const void *address, size_t size);
    void *flush_user;
    const wnpu_allocator *allocator;
    wnpu_log_fn log;
    void *log_user;
    const wnpu_accel_shape *products;
    uint32_t n_products;
    uint32_t reserved2;
} wnpu_amdxdna_config;
WNPU_API void wnpu_amdxdna_config_init(wnpu_amdxdna_config *config, size_t struct_size);
WNPU_API int wnpu_amdxdna_memory(const wnpu_amdxdna_config *config, wnpu_accel_shape *shapes,
                                 size_t capacity, uint64_t *fixed, wnpu_error *error);
WNPU_API int wnpu_amdxdna_open(const wnpu_amdxdna_config *config, wnpu_accel **accel,
                               wnpu_error *error);
WNPU_API uint64_t wnpu_amdxdna_cycles(const wnpu_accel *accel, uint32_t shape);
WNPU_API void wnpu_amdxdna_close(wnpu_accel *accel);
typedef enum wnpu_amdxdna_cause {
    WNPU_AMDXDNA_FINE = 0,
    WNPU_AMDXDNA_NO_NPU = 1,
    WNPU_AMDXDNA_UNKNOWN_DEVICE = 2,
    WNPU_AMDXDNA_KERNEL_OLD = 3,
    WNPU_AMDXDNA_KERNEL_NO_DRIVER = 4,
    WNPU_AMDXDNA_MODULE_MISSING = 5,
    WNPU_AMDXDNA_MODULE_BLOCKED = 6,
    WNPU_AMDXDNA_FIRMWARE_MISSING = 7,
    WNPU_AMDXDNA_FIRMWARE_OLD = 8,
    WNPU_AMDXDNA_FIRMWARE_NEW = 9,
    WNPU_AMDXDNA_FIRMWARE_UNKNOWN = 10,
    WNPU_AMDXDNA_IOMMU_MISSING = 11,
    WNPU_AMDXDNA_HYPERVISOR = 12,
    WNPU_AMDXDNA_DRIVER_FAILED = 13,
    WNPU_AMDXDNA_NO_NODE = 14,
    WNPU_AMDXDNA_PERMISSION = 15,
    WNPU_AMDXDNA_OTHER_DRIVER = 16,
    WNPU_AMDXDNA_USER_QUEUES = 17,
    WNPU_AMDXDNA_SVA = 18,
    WNPU_AMDXDNA_DEVICE_GONE = 19,
    WNPU_AMDXDNA_MEMLOCK = 20,
    WNPU_AMDXDNA_MEMORY = 21,
    WNPU_AMDXDNA_CONTEXTS = 22,
    WNPU_AMDXDNA_PACK_MISSING = 23,
    WNPU_AMDXDNA_PACK_DAMAGED = 24,
    WNPU_AMDXDNA_PACK_DEVICE = 25,
    WNPU_AMDXDNA_SELF_TEST = 26,
    WNPU_AMDXDNA_OTHER = 27,
    WNPU_AMDXDNA_KERNEL_HANGS = 28,
    WNPU_AMDXDNA_CONTEXT_REFUSED = 29,
    WNPU_AMDXDNA_CONFIG_REFUSED = 30
} wnpu_amdxdna_cause;
typedef struct wnpu_amdxdna_diagnosis {
    uint32_t struct_size;
    int32_t cause;
    uint64_t memlock_needed;
    uint64_t memlock_limit;
    char device[48];
    char node[64];
    char kernel[64];
    char driver[64];
    char firmware[32];
    char message[384];
    char cure[384];
    uint32_t columns;
    uint32_t clock_mhz;
    uint32_t rungs;
    uint32_t reserved;
} wnpu_amdxdna_diagnosis;
WNPU_API int wnpu_amdxdna_diagnose(const wnpu_amdxdna_config *config,
                                   wnpu_amdxdna_diagnosis *diagnosis);
WNPU_API const char *wnpu_amdxdna_cause_name(int cause);
#ifdef __cplusplus
}
#endif
#endif
