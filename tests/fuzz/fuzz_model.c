/* fuzz_model.c - libFuzzer target for model files.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined tests/fuzz/fuzz_model.c -lm -o fuzz_model
 *     cc -DFUZZ_SEEDS tests/fuzz/fuzz_model.c -lm -o seeds && mkdir corpus && ./seeds corpus
 *     ./fuzz_model -max_len=110000 -rss_limit_mb=2048 corpus
 */
#include "../../whisper_npu.c"

#include "../lib/toy_model.h"

#ifdef FUZZ_SEEDS
int main(int argc, char **argv)
{
    static const int types[] = {
        TOY_F32, TOY_F16, TOY_Q4_0, TOY_Q4_1, TOY_Q5_0, TOY_Q5_1, TOY_Q8_0,
        TOY_Q4_K, TOY_Q5_K, TOY_Q6_K
    };
    size_t i;
    for (i = 0; argc == 2 && i < sizeof types / sizeof types[0]; i++) {
        toy_options o = toy_least(types[i]);
        size_t size = 0;
        unsigned char *file = toy_model(&o, &size);
        char path[512];
        FILE *out;
        (void)snprintf(path, sizeof path, "%.400s/toy_%d.bin", argv[1], types[i]);
        out = fopen(path, "wb");
        if (file == NULL || out == NULL || fwrite(file, 1, size, out) != size || fclose(out) != 0) {
            return 1;
        }
        free(file);
    }
    return argc == 2 ? 0 : 1;
}
#else

/* Memory that remembers how much is out, and a bound on what a file of this size may ask for. */
typedef struct ledger {
    size_t live, most, bound;
} ledger;

static void *ledger_alloc(void *user, size_t size, size_t alignment)
{
    ledger *l = user;
    void *memory = NULL;
    l->live += size;
    l->most = l->live > l->most ? l->live : l->most;
    if (l->most > l->bound || posix_memalign(&memory, alignment, size) != 0) {
        abort();
    }
    return memory;
}

static void ledger_release(void *user, void *memory, size_t size)
{
    ((ledger *)user)->live -= size;
    free(memory);
}

typedef struct input {
    const uint8_t *data;
    size_t size, most;
} input;

static int64_t input_read(void *user, uint64_t offset, void *buffer, size_t size)
{
    const input *in = user;
    size_t n = size < in->most ? size : in->most;
    if (offset > in->size || size > in->size - offset || size == 0) {
        abort(); /* the library must stay inside the source */
    }
    memcpy(buffer, in->data + offset, n);
    return (int64_t)n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wnpu_allocator allocator;
    wnpu_model_config config;
    wnpu_source source;
    wnpu_model *model;
    wnpu_error error;
    ledger l;
    input in;
    int status;
    l.live = l.most = 0;
    l.bound = sizeof(mf_loader) + 4096 + 64 * size; /* 4-bit weights kept as floats, and padding */
    allocator.alloc = ledger_alloc;
    allocator.release = ledger_release;
    allocator.user = &l;
    wnpu_model_config_init(&config, sizeof config);
    config.allocator = &allocator;
    config.keep_float = size & 1;
    in.data = data;
    in.size = size;
    in.most = size & 2 ? 1000 : (size_t)-1;
    source.read = input_read;
    source.size = size;
    source.user = &in;
    status = wnpu_model_open_source(&model, &source, &config, &error);
    if ((status == WNPU_OK) != (model != NULL) || error.code != status ||
        (status == WNPU_OK) != (error.message[0] == '\0') || (model == NULL && l.live != 0)) {
        abort();
    }
    if (model != NULL) {
        wnpu_model_info info;
        int32_t i, tokens[64];
        size_t length;
        info.struct_size = sizeof info;
        if (wnpu_model_get_info(model, &info) != WNPU_OK || info.bytes != l.live) {
            abort();
        }
        for (i = -1; i <= info.n_vocab; i++) {
            const char *text = wnpu_token_text(model, i, &length);
            if (text != NULL && text[length] != '\0') {
                abort();
            }
        }
        (void)wnpu_tokenize(model, (const char *)data, size < 2000 ? size : 2000, tokens, 64);
    }
    wnpu_model_close(model);
    if (l.live != 0) {
        abort();
    }
    return 0;
}
#endif
