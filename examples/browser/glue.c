/* glue.c - the library as a WebAssembly module for engine.mjs: functions of plain numbers and
 * pointers around one model and one session. "make browser" links it with whisper_npu.c compiled
 * with -DWNPU_NO_OS; then it imports only what is declared under "Imports". Text and JSON leave it
 * through output().
 *
 * wnpu_threads.wasm has its memory from the host, shared by instances in several workers.
 * engine.mjs calls all functions but help() in one of them. help() runs the library's tasks, which
 * allocate nothing and print nothing, so libc needs no locks. */
#include <stdio.h>
#include <stdlib.h>
#include "../../whisper_npu.h"

#define EXPORT(name) __attribute__((export_name(#name))) name
#define IMPORT(name) __attribute__((import_module("wnpu"), import_name(#name)))

/* ---- Imports ---- */

IMPORT(clock) double host_clock(void);
/* Copies up to size bytes of the model from offset on; returns how many. */
IMPORT(model) int32_t host_model(double offset, void *to, int32_t size);
/* Copies up to so many frames of the recording; returns how many, 0 at its end. */
IMPORT(audio) int32_t host_audio(void *to, int32_t frames);
IMPORT(output) void host_output(const void *data, size_t size);
IMPORT(log) void host_log(int32_t level, const char *text, size_t length);
/* These return 1 to stop the run. */
IMPORT(progress) int32_t host_progress(double done_ms, double total_ms);
IMPORT(segment) int32_t host_segment(size_t index);
IMPORT(token) int32_t host_token(const char *text, size_t length, int32_t restart,
                                 int32_t complete);

/* ---- State ---- */

#define SECONDS_WAITING 30 /* of live audio */

static wnpu_model *model;
static wnpu_session *session;
static wnpu_params params;
static wnpu_audio audio;
static wnpu_error error;

double wnpu_clock_ms(void) { return host_clock(); }

/* Until the input fails, the answer to a call that failed. */
static int failed(int status)
{
    const char *reason = session != NULL ? wnpu_session_error(session) : "";
    if (status < 0 && reason[0] != '\0') {
        error.code = status;
        (void)snprintf(error.message, sizeof error.message, "%s", reason);
    }
    return status;
}

static int64_t print(void *user, const void *data, size_t size)
{
    (void)user;
    host_output(data, size);
    return (int64_t)size;
}

static void print_text(const char *text) { host_output(text, __builtin_strlen(text)); }

static void print_string(const char *text, size_t length)
{
    (void)wnpu_write_json_string(text, length, print, NULL);
}

/* ---- Threads ---- */

#ifdef __wasm_atomics__
#define HELPERS_MOST 15
#define HELPER_STACK 262144
#define SPINS 20000      /* some tens of microseconds */
#define WAITS 0x40000000 /* in team.busy: the caller sleeps */

enum { IDLE, OFFERED, ASLEEP };

static struct {
    void (*task)(void *context, size_t i);
    void *context;
    int32_t busy;               /* atomic: helpers that have not returned */
    int32_t failed;             /* atomic: a task has trapped in a helper */
    struct {
        int32_t state;          /* atomic: what the helper has to do */
        char padding[124];      /* no two in a cache line */
    } helpers[HELPERS_MOST];
    size_t count;
} team;

static int change(int32_t *word, int32_t from, int32_t to)
{
    return __atomic_compare_exchange_n(word, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static void sleep_while(int32_t *word, int32_t is)
{
    (void)__builtin_wasm_memory_atomic_wait32(word, is, -1);
}

/* Calls whose helper has not begun when the caller is done are made by the caller. */
static void parallel_for(void *user, size_t count, void (*task)(void *context, size_t i),
                         void *context)
{
    const size_t helpers = count - 1 < team.count ? count - 1 : team.count;
    int32_t busy, spins = 0;
    size_t i;
    (void)user;
    team.task = task;
    team.context = context;
    __atomic_store_n(&team.busy, (int32_t)helpers, __ATOMIC_RELEASE);
    for (i = 0; i < helpers; i++) {
        int32_t *state = &team.helpers[i].state;
        if (__atomic_exchange_n(state, OFFERED, __ATOMIC_ACQ_REL) == ASLEEP) {
            (void)__builtin_wasm_memory_atomic_notify(state, 1);
        }
    }
    task(context, 0);
    for (i = helpers + 1; i < count; i++) {
        task(context, i);
    }
    for (i = 0; i < helpers; i++) {
        if (change(&team.helpers[i].state, OFFERED, IDLE)) {
            task(context, i + 1);
            (void)__atomic_sub_fetch(&team.busy, 1, __ATOMIC_ACQ_REL);
        }
    }
    while ((busy = __atomic_load_n(&team.busy, __ATOMIC_ACQUIRE) & ~WAITS) != 0) {
        if (spins++ >= SPINS) {
            (void)change(&team.busy, busy, busy | WAITS);
            sleep_while(&team.busy, busy | WAITS);
        }
    }
    if (__atomic_load_n(&team.failed, __ATOMIC_ACQUIRE)) {
        __builtin_trap();
    }
}

static void returned(void)
{
    if (__atomic_fetch_sub(&team.busy, 1, __ATOMIC_ACQ_REL) == (1 | WAITS)) {
        (void)__builtin_wasm_memory_atomic_notify(&team.busy, 1);
    }
}

/* Never returns: what another instance does in a worker of its own, as helper 0 and so on. */
void EXPORT(help)(size_t helper);
void help(size_t helper)
{
    int32_t *state = &team.helpers[helper].state, spins = 0;
    for (;;) {
        if (change(state, OFFERED, IDLE)) {
            team.task(team.context, helper + 1);
            returned();
            spins = 0;
        } else if (spins++ >= SPINS) {
            (void)change(state, IDLE, ASLEEP);
            sleep_while(state, ASLEEP);
        }
    }
}

/* After help() has trapped: its caller traps instead of waiting, as do all later calls. */
void EXPORT(lost)(void);
void lost(void)
{
    __atomic_store_n(&team.failed, 1, __ATOMIC_RELEASE);
    returned();
}

/* Before open(): the end of the stack of one more helper, 0 if there is no memory for it or it
 * would be too many. */
void *EXPORT(hire)(void);
void *hire(void)
{
    char *stack = team.count < HELPERS_MOST ? aligned_alloc(16, HELPER_STACK) : NULL;
    team.count += stack != NULL;
    return stack != NULL ? stack + HELPER_STACK : NULL;
}
#endif

/* How the model is opened. */
static wnpu_model_config loading(void)
{
    wnpu_model_config config;
    wnpu_model_config_init(&config, sizeof config);
    config.threads = 1;
#ifdef __wasm_atomics__
    config.threads += (uint32_t)team.count;
    config.parallel_for = parallel_for;
#endif
    return config;
}

/* ---- Memory and errors ---- */

void *EXPORT(take)(size_t size);
void *take(size_t size) { return malloc(size); }

void EXPORT(give)(void *memory);
void give(void *memory) { free(memory); }

/* Cause and remedy of the last error, to output(). */
void EXPORT(message)(void);
void message(void) { print_text(error.message); }

const char *EXPORT(error_name)(int code);
const char *error_name(int code) { return wnpu_strerror(code); }

/* ---- Model and session ---- */

static int64_t read_model(void *user, uint64_t offset, void *buffer, size_t size)
{
    (void)user;
    return host_model((double)offset, buffer, (int32_t)(size < INT32_MAX ? size : INT32_MAX));
}

static void log_line(void *user, wnpu_log_level level, const char *text)
{
    (void)user;
    host_log((int32_t)level, text, __builtin_strlen(text));
}

/* Bytes that opening a model of so many bytes needs at most; negative: a wnpu_status. */
double EXPORT(measure)(double size);
double measure(double size)
{
    const wnpu_source source = {read_model, (uint64_t)size, NULL};
    const wnpu_model_config config = loading();
    wnpu_model_memory memory = {.struct_size = sizeof memory};
    int status = wnpu_model_measure_source(&source, &config, &memory, &error);
    return status != WNPU_OK ? (double)status : (double)(memory.peak + memory.shared);
}

int EXPORT(open)(double size);
int open(double size)
{
    const wnpu_source source = {read_model, (uint64_t)size, NULL};
    const wnpu_model_config how = loading();
    wnpu_config config;
    int status = wnpu_model_open_source(&model, &source, &how, &error);
    wnpu_config_init(&config, sizeof config);
    config.threads = how.threads;
    config.parallel_for = how.parallel_for;
    config.log = log_line;
    config.stream_bytes = SECONDS_WAITING * 48000 * sizeof(float);
    return status != WNPU_OK ? status :
           wnpu_session_open(&session, model, &config, NULL, 0, &error);
}

/* JSON: what was opened. */
void EXPORT(describe)(void);
void describe(void)
{
    wnpu_model_info info = {.struct_size = sizeof info};
    char text[200];
    int i;
    (void)wnpu_model_get_info(model, &info);
    (void)snprintf(text, sizeof text, "{\"version\": %u, \"isa\": \"%s\", \"languages\": [",
                   (unsigned)wnpu_version(),
                   wnpu_isa_name(wnpu_isa_available(WNPU_ISA_WASM) ? WNPU_ISA_WASM :
                                                                     WNPU_ISA_SCALAR));
    print_text(text);
    for (i = 0; i < (info.multilingual ? info.n_languages : 1); i++) {
        (void)snprintf(text, sizeof text, "%s[\"%s\", \"%s\"]", i > 0 ? ", " : "",
                       wnpu_language_code(i), wnpu_language_name(i));
        print_text(text);
    }
    print_text("]}");
}

/* ---- Parameters ---- */

static int on_progress(void *user, int64_t done_ms, int64_t total_ms)
{
    (void)user;
    return host_progress((double)done_ms, (double)total_ms);
}

static int on_segment(void *user, const wnpu_segment *segment)
{
    (void)user, (void)segment;
    return host_segment(wnpu_segment_count(session) - 1);
}

static int on_token(void *user, const wnpu_token_event *event)
{
    (void)user;
    return host_token(event->text, event->text_length, event->restart, event->complete);
}

/* Defaults of a run, or of a live run. */
void EXPORT(params_begin)(int live);
void params_begin(int live)
{
    if (live) {
        wnpu_stream_params_init(&params, sizeof params);
    } else {
        wnpu_params_init(&params, sizeof params);
    }
    params.on_progress = on_progress;
    params.on_segment = on_segment;
    params.on_token = on_token;
}

/* The strings must stay until the run is over. */
int EXPORT(params_set)(const char *name, const char *value);
int params_set(const char *name, const char *value)
{
    return wnpu_params_set(&params, name, value, &error);
}

/* ---- Runs ---- */

static int64_t read_audio(void *user, void *buffer, size_t frames)
{
    (void)user;
    return host_audio(buffer, (int32_t)(frames < INT32_MAX ? frames : INT32_MAX));
}

/* Of interleaved floats that audio() delivers. */
int EXPORT(run)(uint32_t rate, uint32_t channels, double frames);
int run(uint32_t rate, uint32_t channels, double frames)
{
    wnpu_audio_init(&audio, sizeof audio);
    audio.rate = rate;
    audio.channels = channels;
    audio.frames = (uint64_t)frames;
    audio.read = read_audio;
    return failed(wnpu_transcribe(session, &params, &audio));
}

/* Of a WAV file in memory, which must stay until the run is over. */
int EXPORT(run_wav)(const void *data, size_t size);
int run_wav(const void *data, size_t size)
{
    int status;
    wnpu_audio_init(&audio, sizeof audio);
    status = wnpu_wav_open(&audio, data, size, &error);
    return status != WNPU_OK ? status : failed(wnpu_transcribe(session, &params, &audio));
}

/* Continues a run that a callback has stopped. */
int EXPORT(proceed)(void);
int proceed(void) { return failed(wnpu_resume(session, &params, &audio)); }

int EXPORT(reset)(void);
int reset(void) { return failed(wnpu_reset(session)); }

/* ---- Live runs ---- */

int EXPORT(live_begin)(uint32_t rate, int32_t step_ms);
int live_begin(uint32_t rate, int32_t step_ms)
{
    wnpu_stream_options options;
    wnpu_stream_options_init(&options, sizeof options);
    options.format = WNPU_SAMPLE_F32;
    options.rate = rate;
    options.step_ms = step_ms;
    return failed(wnpu_stream_begin(session, &params, &options));
}

size_t EXPORT(live_room)(void);
size_t live_room(void) { return wnpu_stream_room(session); }

size_t EXPORT(live_push)(const float *samples, size_t frames);
size_t live_push(const float *samples, size_t frames)
{
    return wnpu_stream_push(session, samples, frames);
}

/* Values of wnpu_event, or a negative wnpu_status. */
int EXPORT(live_step)(void);
int live_step(void)
{
    uint32_t events = 0;
    int status = failed(wnpu_stream_step(session, &events));
    return status < 0 ? status : (int)events;
}

int EXPORT(live_finish)(void);
int live_finish(void) { return failed(wnpu_stream_finish(session)); }

/* JSON: how far a live run is, and its tentative text. */
void EXPORT(live_state)(void);
void live_state(void)
{
    wnpu_live live = {.struct_size = sizeof live};
    char text[200];
    if (wnpu_get_live(session, &live) != WNPU_OK) {
        print_text("null");
        return;
    }
    (void)snprintf(text, sizeof text, "{\"speaking\": %s, \"committed\": %.3f, \"audio\": %.3f, "
                   "\"lost\": %.3f, \"tentative\": ", live.speaking ? "true" : "false",
                   (double)live.committed_ms / 1000, (double)live.audio_ms / 1000,
                   (double)live.overrun_ms / 1000);
    print_text(text);
    print_string(live.text, live.text_length);
    print_text("}");
}

/* ---- Results ---- */

/* JSON: a segment. */
void EXPORT(write_segment)(size_t index);
void write_segment(size_t index)
{
    wnpu_segment segment;
    wnpu_word word = {.struct_size = sizeof word};
    char text[100];
    size_t i;
    if (wnpu_get_segment(session, index, &segment) != WNPU_OK) {
        print_text("null");
        return;
    }
    (void)snprintf(text, sizeof text, "{\"id\": %u, \"start\": %.3f, \"end\": %.3f, \"text\": ",
                   (unsigned)index, (double)segment.t0_ms / 1000, (double)segment.t1_ms / 1000);
    print_text(text);
    print_string(segment.text, segment.text_length);
    print_text(", \"words\": [");
    for (i = 0; wnpu_get_word(session, index, i, &word) == WNPU_OK; i++) {
        (void)snprintf(text, sizeof text, "%s{\"start\": %.3f, \"end\": %.3f, \"word\": ",
                       i > 0 ? ", " : "", (double)word.t0_ms / 1000, (double)word.t1_ms / 1000);
        print_text(text);
        print_string(word.text, word.text_length);
        print_text("}");
    }
    print_text("]}");
}

/* All results. subtitles: with the limits that subtitles usually have. */
int EXPORT(write_results)(const char *format, int subtitles);
int write_results(const char *format, int subtitles)
{
    wnpu_write_options options;
    wnpu_write_options_init(&options, sizeof options);
    options.format = wnpu_format_from_name(format);
    if (options.format < 0) {
        (void)snprintf(error.message, sizeof error.message, "no format is called %s", format);
        return WNPU_E_ARGUMENT;
    }
    if (subtitles) {
        wnpu_write_options_subtitles(&options);
    }
    return wnpu_write_with(session, &options, NULL, print, NULL);
}

/* The library's self-test. */
int EXPORT(self_test)(void);
int self_test(void) { return wnpu_self_test(NULL, &error); }
