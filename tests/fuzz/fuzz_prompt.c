/* fuzz_prompt.c - libFuzzer target for everything that a user may say to a run in words: initial
 * prompt, prefix, hotwords, commands. The input is
 *
 *     'W' for a run with sound, which takes a hundred times as long; anything else for silence
 *     flags   2: choose among the phrases, 4: a beam, 8: carry the prompt, 16: condition on the text
 *             before, 32: words, 64: sample, 128: each window's language; 2 wants sound
 *     prompt, prefix and phrases, with a newline between them
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -I. tests/fuzz/fuzz_prompt.c \
 *         whisper_npu.c -lm -lpthread -o fuzz_prompt
 *     ./fuzz_prompt -max_len=2000 corpus tests/fuzz/corpus/fuzz_prompt
 *
 * A run either refuses with a reason or gives whole UTF-8 in order, and leaves nothing in the
 * session that changes the next run. */
#include "whisper_npu.h"

#include "../lib/toy_model.h"

#include <math.h>

#define MOST_PHRASES 40

static wnpu_model *model;
static wnpu_session *session;
static float noise[8000];
static toy_bytes first;  /* JSON of a plain run */

static int64_t keep(void *user, const void *data, size_t size)
{
    toy_put(user, data, size);
    return (int64_t)size;
}

static wnpu_params plain_params(void)
{
    wnpu_params p;
    wnpu_params_init(&p, sizeof p);
    p.max_tokens = 5;
    p.temperature_step = 0;
    p.no_speech_threshold = 2;
    return p;
}

static wnpu_audio some_audio(size_t frames)
{
    wnpu_audio a;
    wnpu_audio_init(&a, sizeof a);
    a.data = noise;
    a.frames = frames;
    return a;
}

static void plain_run(toy_bytes *json)
{
    wnpu_params p = plain_params();
    wnpu_audio a = some_audio(sizeof noise / sizeof noise[0]);
    json->size = 0;
    if (wnpu_transcribe(session, &p, &a) != WNPU_OK ||
        wnpu_write(session, WNPU_FORMAT_JSON, keep, json) != WNPU_OK) {
        abort();
    }
}

static void prepare(void)
{
    toy_options o = toy_small();
    wnpu_config config;
    size_t size = 0, i;
    uint32_t s = 3;
    unsigned char *file;
    o.state = 32;
    o.audio_layer = o.text_layer = 1;
    o.mels = 16;
    o.text_ctx = 64;
    file = toy_model(&o, &size);
    for (i = 0; i < sizeof noise / sizeof noise[0]; i++) {
        s = s * 1664525u + 1013904223u;
        noise[i] = (float)(s >> 8) / 16777216.0f - 0.5f;
    }
    wnpu_config_init(&config, sizeof config);
    config.threads = 1;
    config.max_phrase_tokens = 300;
    if (wnpu_model_open_memory(&model, file, size, NULL, NULL) != WNPU_OK ||
        wnpu_session_open(&session, model, &config, NULL, 0, NULL) != WNPU_OK) {
        abort();
    }
    free(file);
    plain_run(&first);
}

/* RFC 3629: how many bytes the sequence at p takes, 0 if it is none. */
static size_t utf8_length(const unsigned char *p, size_t n)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t i, length = p[0] < 0x80 ? 1 : p[0] >> 5 == 6 ? 2 : p[0] >> 4 == 14 ? 3 :
                       p[0] >> 3 == 30 ? 4 : 0;
    uint32_t code = length > 1 ? p[0] & (0x7fu >> length) : p[0];
    if (length == 0 || length > n) {
        return 0;
    }
    for (i = 1; i < length; i++) {
        if (p[i] >> 6 != 2) {
            return 0;
        }
        code = code << 6 | (p[i] & 63u);
    }
    return code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0
                                                                                       : length;
}

/* Text that was cut into tokens is the tokens' text. */
static void check_tokens(const char *text, size_t n)
{
    static int32_t tokens[4096];
    int64_t count = wnpu_tokenize(model, text, n, tokens, 4096), i;
    size_t at = 0;
    if (count < 0 || count > (int64_t)n) {
        abort();
    }
    for (i = 0; i < count; i++) {
        size_t length = 0;
        const char *part = wnpu_token_text(model, tokens[i], &length);
        if (part == NULL || length > n - at || memcmp(part, text + at, length) != 0) {
            abort();
        }
        at += length;
    }
    if (at != n) {
        abort();
    }
}

static void check_results(void)
{
    static toy_bytes json;
    wnpu_segment segment;
    int64_t last = 0;
    size_t i, at, length;
    for (i = 0; wnpu_get_segment(session, i, &segment) == WNPU_OK; i++) {
        if (segment.t0_ms < last || segment.t1_ms < segment.t0_ms ||
            segment.text[segment.text_length] != '\0') {
            abort();
        }
        last = segment.t0_ms;
        for (at = 0; at < segment.text_length; at += length) {
            length = utf8_length((const unsigned char *)segment.text + at,
                                 segment.text_length - at);
            if (length == 0) {
                abort();
            }
        }
    }
    json.size = 0;
    if (i != wnpu_segment_count(session) ||
        wnpu_write(session, WNPU_FORMAT_JSON, keep, &json) != WNPU_OK) {
        abort();
    }
}

static int one_run(int sound, unsigned flags, const char *const *part, size_t n_parts)
{
    wnpu_params p = plain_params();
    wnpu_audio a = some_audio(sound ? sizeof noise / sizeof noise[0] : 0);
    wnpu_choice choice;
    int status;
    p.initial_prompt = n_parts > 0 ? part[0] : NULL;
    p.prefix = n_parts > 1 && part[1][0] != '\0' ? part[1] : NULL;
    p.beam = flags & 4 ? 3 : 1;
    p.carry_initial_prompt = (flags & 8) != 0;
    p.condition_on_previous = (flags & 16) != 0;
    p.words = (flags & 32) != 0;
    p.temperature = flags & 64 ? 1.0f : 0.0f;
    p.language_mode = flags & 128 ? WNPU_LANGUAGE_EACH : WNPU_LANGUAGE_ONCE;
    if (sound && (flags & 2)) {
        memset(&choice, 0, sizeof choice);
        choice.struct_size = (uint32_t)sizeof choice;
        p.words = 0;
        p.prefix = NULL;
        status = wnpu_choose(session, &p, &a, part + 2, n_parts > 2 ? n_parts - 2 : 0, &choice);
        if (status == WNPU_OK && (choice.best < 0 || (size_t)choice.best >= n_parts - 2 ||
                                  choice.second >= (int32_t)(n_parts - 2))) {
            abort();
        }
        return status;
    }
    if (n_parts > 2) {
        p.hotwords = part + 2;
        p.n_hotwords = n_parts - 2;
    }
    return wnpu_transcribe(session, &p, &a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned runs;
    static toy_bytes again;
    const char *part[MOST_PHRASES];
    size_t n = 0, i;
    char *text;
    int status;
    if (model == NULL) {
        prepare();
    }
    if (size < 2 || size > 4096) {
        return 0;
    }
    text = malloc(size - 1);
    if (text == NULL) {
        abort();
    }
    memcpy(text, data + 2, size - 2);
    text[size - 2] = '\0';
    part[n++] = text;
    for (i = 0; i + 2 < size && n < MOST_PHRASES; i++) {
        if (text[i] == '\n') {
            text[i] = '\0';
            part[n++] = text + i + 1;
        }
    }
    check_tokens((const char *)data + 2, size - 2);
    status = one_run(data[0] == 'W', data[1], part, n);
    if ((status == WNPU_OK) != (wnpu_session_error(session)[0] == '\0') ||
        (status != WNPU_OK && status != WNPU_E_ARGUMENT)) {
        abort();
    }
    check_results();
    if (++runs % 512 == 0) {
        plain_run(&again);
        if (again.size != first.size || memcmp(again.data, first.data, first.size) != 0) {
            abort();
        }
    }
    free(text);
    return 0;
}
