/* fuzz_snapshot.c - libFuzzer target for wnpu_restore(). The input is what is changed in a good
 * snapshot, so that it stays small and the checksum is not in the way:
 *
 *     flags   3: which snapshot, 4: leave the checksum as it is, 8: cut the block
 *     then, repeated: offset (3 bytes, low first), length 0..15 in the low half of a byte, bytes.
 *     The high half of that byte: 1, the offset counts from the results' begin; 2, from the end.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined tests/fuzz/fuzz_snapshot.c -lm \
 *         -o fuzz_snapshot
 *     ./fuzz_snapshot -max_len=400 corpus
 *
 * What is restored has to survive all writers and getters, another snapshot, and the run to its
 * end, which has to come. */
#include "../../whisper_npu.c"
#include "../lib/life.h"
#include "../lib/voicelike.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define KINDS 4
#define MOST_CALLS 2000 /* of the progress function for 61 s of sound */
static const int kinds[KINDS] = {LIFE_WORDS, LIFE_READER, LIFE_STEREO, LIFE_SAMPLES};
static life_sounds sounds; /* a voice, 25 s of silence, and a voice again */
static unsigned char *good[KINDS];
static size_t good_size[KINDS];

static int calls_left; /* calls of the progress function before the run is stopped */
static wnpu_session *session;

static int enough(void *user, int64_t done_ms, int64_t total_ms)
{
    (void)user;
    (void)total_ms;
    return wnpu_segment_count(session) > 0 && done_ms > 0 && --calls_left <= 0;
}

/* From the beginning or onwards, until there is a segment and the progress function has been called
 * `calls` times since. */
static int run(int mode, int onwards, int calls)
{
    wnpu_audio a = mode == LIFE_STEREO ? sounds.stereo : sounds.plain;
    life_reader reader;
    wnpu_params p;
    life_mode_params(&sounds, mode, 1, &p);
    p.max_tokens = 6;
    p.logprob_threshold = -INFINITY; /* each window has text, whatever the toy says */
    p.vad = mode != LIFE_WORDS;
    p.on_progress = enough;
    reader.from = &sounds.plain;
    reader.at = 0;
    calls_left = calls;
    if (onwards) {
        (void)wnpu_get_position(session, &reader.at);
        reader.at = reader.at < sounds.plain.frames ? reader.at : sounds.plain.frames;
    }
    if (mode == LIFE_READER) {
        a.data = NULL;
        a.read = life_read;
        a.user = &reader;
    }
    return onwards ? wnpu_resume(session, &p, &a) : wnpu_transcribe(session, &p, &a);
}

static void make_good(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_config c = life_config(1);
    int k;
    float *x = voicelike(16000 * 61, 1);
    size_t i;
    for (i = 16000 * 15; i < 16000 * 40; i++) {
        x[i] *= 0.001f;
    }
    life_derive_sounds(&sounds, x, 61);
    c.batch = 2; /* so that there is sound behind the window */
    session = life_open(m, &c);
    for (k = 0; k < KINDS; k++) {
        if (run(kinds[k], 0, 1) != WNPU_E_CANCELLED ||
            (kinds[k] == LIFE_SAMPLES && run(kinds[k], 1, 2) != WNPU_E_CANCELLED) ||
            (good_size[k] = wnpu_snapshot_size(session)) == 0 ||
            (good[k] = malloc(good_size[k])) == NULL ||
            wnpu_snapshot(session, good[k], good_size[k]) != WNPU_OK) {
            abort();
        }
    }
}

static int64_t nowhere(void *user, const void *data, size_t size)
{
    (void)user;
    (void)data;
    return (int64_t)size;
}

static void use(void)
{
    static unsigned char again[8 << 20];
    wnpu_ledger_span span;
    wnpu_speech_span speech;
    wnpu_segment s;
    wnpu_word w;
    wnpu_write_options o;
    size_t i, k, size = wnpu_snapshot_size(session);
    volatile size_t sum = 0;
    wnpu_write_options_init(&o, sizeof o);
    for (; wnpu_format_name(o.format) != NULL; o.format++) {
        (void)wnpu_write(session, (wnpu_format)o.format, nowhere, NULL);
        wnpu_write_options_subtitles(&o);
        (void)wnpu_write_with(session, &o, NULL, nowhere, NULL);
    }
    w.struct_size = sizeof w;
    for (i = 0; wnpu_get_segment(session, i, &s) == WNPU_OK; i++) {
        sum += strlen(s.text) + (s.n_tokens > 0 ? (size_t)s.tokens[s.n_tokens - 1].id : 0);
        if (s.t0_ms < 0 || s.t1_ms < s.t0_ms) {
            abort();
        }
        for (k = 0; wnpu_get_word(session, i, k, &w) == WNPU_OK; k++) {
            sum += strlen(w.text) + w.first_token;
        }
    }
    for (i = 0; wnpu_get_ledger_span(session, i, &span) == WNPU_OK; i++) {
        sum += strlen(wnpu_ledger_reason_name(span.reason));
    }
    for (i = 0; wnpu_get_speech_span(session, i, &speech) == WNPU_OK; i++) {
        sum += (size_t)speech.t0_ms;
    }
    if (size == 0 || size > sizeof again || wnpu_snapshot(session, again, size) != WNPU_OK ||
        wnpu_restore(session, again, size) != WNPU_OK) {
        abort(); /* what was restored can be put away and restored again */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    unsigned char *block;
    size_t at = 1, n, kind, left;
    sn_state state;
    if (session == NULL) {
        make_good();
    }
    if (size == 0) {
        return 0;
    }
    kind = bytes[0] & 3u;
    n = good_size[kind];
    block = malloc(n);
    memcpy(block, good[kind], n);
    memcpy(&state, block + sizeof(sn_head), sizeof state);
    left = (size_t)state.used + (size_t)state.count * 4;
    while (at + 4 <= size) {
        size_t where = bytes[at] | (size_t)bytes[at + 1] << 8 | (size_t)bytes[at + 2] << 16;
        size_t length = bytes[at + 3] & 15u, from = bytes[at + 3] >> 4;
        at += 4;
        length = length < size - at ? length : size - at;
        where = from == 2 ? n - 1 - where % n : from == 1 ? n - left + where % left : where % n;
        length = length < n - where ? length : n - where;
        memcpy(block + where, bytes + at, length);
        at += length;
    }
    if (bytes[0] & 8 && size > 3) {
        n = (bytes[1] | (size_t)bytes[2] << 8 | (size_t)bytes[3] << 16) % n;
        block = realloc(block, n > 0 ? n : 1);
    }
    if (!(bytes[0] & 4) && n >= sizeof(sn_head)) {
        uint64_t sum = mf_checksum(block + offsetof(sn_head, model), n - offsetof(sn_head, model));
        uint64_t length = n;
        memcpy(block + offsetof(sn_head, size), &length, sizeof length);
        memcpy(block + offsetof(sn_head, checksum), &sum, sizeof sum);
    }
    if (wnpu_restore(session, block, n) == WNPU_OK) {
        use();
        (void)run(kinds[kind], 1, MOST_CALLS);
        if (calls_left <= 0) {
            abort(); /* 61 s have a few windows */
        }
        use();
    }
    free(block);
    return 0;
}
