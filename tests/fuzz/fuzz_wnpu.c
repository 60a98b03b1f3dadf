/* fuzz_wnpu.c - libFuzzer target for packed models. The input is what is changed in a good pack, so
 * that it stays small and no checksum is in the way:
 *
 *     flags   1: reseal the header, 2: cut the pack, 4: through a source, 8: full check,
 *             16: run a window
 *     then, repeated: offset (3 bytes, low first), length 0..15 in the low half of a byte, bytes.
 *     The high half of that byte says where the offset counts from: 0 the file, else the section of
 *     that number.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined tests/fuzz/fuzz_wnpu.c -lm -o fuzz_wnpu
 *     ./fuzz_wnpu -max_len=400 corpus
 *
 * A pack that opens has to survive a window of the encoder and a step of the decoder. */
#include "../../whisper_npu.c"

#include "../lib/toy_model.h"

/* ---- the good pack ---- */

static unsigned char *good, *pack; /* pack: the one that is changed, aligned */
static size_t good_size;

static int64_t keep(void *user, const void *data, size_t size)
{
    toy_put(user, data, size);
    return (int64_t)size;
}

static void make_good(void)
{
    toy_options o = toy_least(TOY_F16);
    toy_bytes bytes = {NULL, 0, 0, 0};
    size_t size = 0;
    unsigned char *file;
    void *aligned = NULL;
    wnpu_model *m = NULL;
    o.state = 32;
    o.audio_head = o.text_head = 2;
    o.audio_ctx = 20;
    o.text_ctx = 16;
    o.mels = 16;
    o.n_base = 300;
    o.n_vocab = 300 + 1509 + 2;
    file = toy_model(&o, &size);
    if (wnpu_model_open_memory(&m, file, size, NULL, NULL) != WNPU_OK ||
        wnpu_model_save(m, keep, &bytes, NULL) != WNPU_OK ||
        posix_memalign(&aligned, 64, bytes.size) != 0) {
        abort();
    }
    wnpu_model_close(m);
    free(file);
    good = bytes.data;
    good_size = bytes.size;
    pack = aligned;
}

/* ---- what a model is used for ---- */

static void use_tokens(const wnpu_model *m, const uint8_t *data, size_t size)
{
    int32_t i, tokens[64];
    for (i = -1; i <= m->vocab.n_vocab; i++) {
        size_t length;
        const char *text = wnpu_token_text(m, i, &length);
        if (text != NULL && text[length] != '\0') {
            abort();
        }
    }
    (void)wnpu_tokenize(m, (const char *)data, size, tokens, 64);
}

static void use_weights(wnpu_model *m)
{
    wnpu_allocator allocator = ar_allocator(NULL);
    int32_t tokens[4] = {m->vocab.sot, m->vocab.transcribe, 0, m->vocab.n_vocab - 1};
    size_t vocab = (size_t)m->vocab.n_vocab;
    sf_run r;
    ar_arena arena;
    uint32_t i;
    if (m->n_audio_state / m->n_audio_head % 16 != 0 || m->n_text_state / m->n_text_head % 16 != 0) {
        return; /* sessions refuse it */
    }
    memset(&r, 0, sizeof r);
    memset(&arena, 0, sizeof arena);
    r.model = m;
    if (tp_open(&r.pool, 1, NULL, NULL, &r.cancel, NULL) != WNPU_OK) {
        abort();
    }
    sf_carve(&r, &arena, WNPU_ISA_AUTO, 0);
    arena.size = arena.used;
    arena.used = 0;
    arena.base = allocator.alloc(NULL, arena.size, 64);
    if (arena.base == NULL) {
        abort();
    }
    memset(arena.base, 0, arena.size);
    sf_carve(&r, &arena, WNPU_ISA_AUTO, 0);
    en_start(&r.engine);
    for (i = 0; i < 2 * m->n_audio_ctx * m->n_mels; i++) {
        r.engine.mel[m->n_mels + i] = (float)(i % 17) * 0.1f - 0.8f;
    }
    en_run(&r.engine);
    en_cross(&r.engine, r.decoder.cross);
    sf_step_decoder(&r.decoder, tokens, 0, 4);
    for (i = 0; i < vocab; i++) {
        if (!(fabsf(r.decoder.logits[i]) < 1e38f)) {
            abort(); /* no logit may be NaN or infinite, however damaged the weights are */
        }
    }
    if (r.engine.op->argmax(r.decoder.logits, vocab) >= vocab) {
        abort();
    }
    allocator.release(NULL, arena.base, arena.size);
    tp_close(&r.pool);
}

/* ---- the target ---- */

static int64_t read_pack(void *user, uint64_t offset, void *buffer, size_t size)
{
    size_t n = size < 30000 ? size : 30000, whole = *(const size_t *)user;
    if (offset > whole || size > whole - offset || size == 0) {
        abort(); /* the library must stay inside the source */
    }
    memcpy(buffer, pack + offset, n);
    return (int64_t)n;
}

/* Applies the changes and returns the size of the pack. */
static size_t change(const uint8_t *data, size_t size)
{
    size_t at = 1, whole = good_size;
    memcpy(pack, good, good_size);
    while (size - at >= 4) {
        size_t offset = data[at] | (size_t)data[at + 1] << 8 | (size_t)data[at + 2] << 16;
        size_t n = data[at + 3] & 15u, section = data[at + 3] >> 4, i;
        if (section > 0) {
            offset += (size_t)er_u64(good + MF_PACK_HEADER + section * MF_PACK_ENTRY + 40);
        }
        at += 4;
        for (i = 0; i < n && at < size; i++, at++) {
            pack[(offset + i) % good_size] = data[at];
        }
        if ((data[0] & 2) && n == 0) {
            whole = offset % good_size;
        }
    }
    if (data[0] & 1) {
        size_t data_at = (size_t)er_u64(pack + 32);
        mf_put64(pack + 16, whole);
        if (data_at > 32 && data_at <= whole) {
            mf_put64(pack + 24, mf_checksum(pack + 32, data_at - 32));
        }
    }
    return whole;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wnpu_model_config config;
    wnpu_source source;
    wnpu_model *m = NULL;
    wnpu_error error;
    size_t whole;
    int status;
    if (good == NULL) {
        make_good();
    }
    if (size == 0) {
        return 0;
    }
    whole = change(data, size);
    wnpu_model_config_init(&config, sizeof config);
    config.full_check = (data[0] & 8) != 0;
    source.read = read_pack;
    source.size = whole;
    source.user = &whole;
    status = data[0] & 4 ? wnpu_model_open_source(&m, &source, &config, &error) :
                           wnpu_model_open_static(&m, pack, whole, &config, &error);
    if ((status == WNPU_OK) != (m != NULL) || error.code != status ||
        (status == WNPU_OK) != (error.message[0] == '\0')) {
        abort();
    }
    if (m != NULL) {
        if (config.full_check && wnpu_model_verify(m, &error) != WNPU_OK) {
            abort();
        }
        use_tokens(m, data, size);
        if (data[0] & 16) {
            use_weights(m);
        }
    }
    wnpu_model_close(m);
    return 0;
}
