/* fuzz_hf.c - libFuzzer target for Hugging Face models: JSON, safetensors and what is made of them.
 * The input is the files of a directory, each preceded by its number and its size in 3 bytes.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined tests/fuzz/fuzz_hf.c -lm -o fuzz_hf
 *     cc -DFUZZ_SEEDS tests/fuzz/fuzz_hf.c -lm -o seeds && mkdir corpus && ./seeds corpus
 *     ./fuzz_hf -max_len=60000 -rss_limit_mb=2048 corpus
 */
#include "../../whisper_npu.c"

#include "../../examples/kit/json.c"
#include "../../examples/pack/hf.c"
#include "../lib/toy_hf.h"

static const char *const names[] = {
    "config.json", "tokenizer.json", "vocab.json", "added_tokens.json", "preprocessor_config.json",
    "model.safetensors", "model.safetensors.index.json", "model-1.safetensors"
};
#define NAMES (sizeof names / sizeof names[0])

#ifdef FUZZ_SEEDS
static int write_seed(const char *dir, const char *name, toy_dir *from)
{
    char path[512];
    FILE *out;
    size_t i, j;
    (void)snprintf(path, sizeof path, "%.400s/%.40s", dir, name);
    out = fopen(path, "wb");
    for (i = 0; out != NULL && i < from->n; i++) {
        const toy_bytes *bytes = &from->file[i].bytes;
        for (j = 0; j < NAMES; j++) {
            if (strcmp(names[j], from->file[i].name) == 0) {
                fputc((int)j, out);
                fputc((int)(bytes->size & 255), out);
                fputc((int)(bytes->size >> 8 & 255), out);
                fputc((int)(bytes->size >> 16 & 255), out);
                fwrite(bytes->data, 1, bytes->size, out);
            }
        }
    }
    return out == NULL || fclose(out) != 0;
}

int main(int argc, char **argv)
{
    static const int types[] = {TOY_HF_F32, TOY_HF_F16, TOY_HF_BF16};
    static const char *const seeds[] = {"f32", "f16", "bf16"};
    int i, failed = argc != 2;
    for (i = 0; i < 3 && !failed; i++) {
        toy_options o = toy_least(TOY_F32);
        toy_dir dir;
        size_t size = 0;
        unsigned char *ggml = toy_hf(&dir, &o, types[i], &size);
        failed = write_seed(argv[1], seeds[i], &dir);
        if (i == 1) { /* the other names of everything */
            toy_dir_remove(&dir, "tokenizer.json");
            toy_dir_remove(&dir, "model.safetensors");
            toy_put_words(toy_dir_file(&dir, "vocab.json"), &o);
            toy_dir_text(&dir, "added_tokens.json", "{\"<|endoftext|>\": 256}");
            toy_put_safetensors(toy_dir_file(&dir, "model-1.safetensors"), ggml, size, TOY_HF_F16,
                                0, 1000);
            toy_dir_text(&dir, "model.safetensors.index.json",
                         "{\"weight_map\": {\"a\": \"model-1.safetensors\"}}");
            failed = failed || write_seed(argv[1], "others", &dir);
        }
        toy_dir_free(&dir);
        free(ggml);
    }
    return failed;
}
#else

typedef struct input {
    const uint8_t *at[NAMES]; /* NULL: no such file */
    size_t size[NAMES];
} input;

static size_t number_of_file(const char *name)
{
    size_t i;
    for (i = 0; i < NAMES && strcmp(name, names[i]) != 0; i++) {
    }
    return i;
}

static int64_t input_size(void *user, const char *name)
{
    const input *in = user;
    size_t i = number_of_file(name);
    return i < NAMES && in->at[i] != NULL ? (int64_t)in->size[i] : -1;
}

static int64_t input_read(void *user, const char *name, uint64_t offset, void *buffer, size_t size)
{
    const input *in = user;
    size_t i = number_of_file(name);
    if (i == NAMES || in->at[i] == NULL || offset > in->size[i] || size > in->size[i] - offset) {
        abort(); /* the reader must stay inside the files */
    }
    memcpy(buffer, in->at[i] + offset, size);
    return (int64_t)size;
}

static void walk(json value, int depth)
{
    const char *cursor = NULL;
    json key, next;
    char text[64];
    double x;
    (void)json_string(value, text, sizeof text);
    (void)json_number(value, &x);
    while (depth < 70 && json_next(value, &cursor, &key, &next)) {
        (void)json_string(key, text, sizeof text);
        walk(next, depth + 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in;
    hf_files files = {input_size, input_read, &in};
    hf h;
    size_t at = 0, wrong;
    json root;
    memset(&in, 0, sizeof in);
    while (size - at >= 4) {
        size_t i = data[at] % NAMES;
        size_t n = data[at + 1] | (size_t)data[at + 2] << 8 | (size_t)data[at + 3] << 16;
        at += 4;
        n = n < size - at ? n : size - at;
        in.at[i] = data + at;
        in.size[i] = n;
        at += n;
    }
    if (in.at[0] != NULL && json_parse(&root, (const char *)in.at[0], in.size[0], &wrong) == 0) {
        walk(root, 0);
    }
    if (hf_open(&h, &files) == 0) {
        wnpu_model *m = NULL;
        wnpu_error error;
        if ((wnpu_model_open_source(&m, &h.source, NULL, &error) == WNPU_OK) != (m != NULL)) {
            abort();
        }
        wnpu_model_close(m);
    } else if (h.why[0] == '\0') {
        abort();
    }
    hf_close(&h);
    return 0;
}
#endif
