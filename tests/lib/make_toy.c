/* make_toy.c - writes one toy model in every form, for tests/api/test_pack.sh.
 *
 *     build/make_toy DIR    DIR/toy.bin (ggml, f16), DIR/hf/ and DIR/shards/ (the same as Hugging
 *                           Face models)
 */
#include "toy_hf.h"

#include <sys/stat.h>

static int put_file(const char *dir, const char *name, const void *data, size_t size)
{
    char path[512];
    FILE *file;
    (void)snprintf(path, sizeof path, "%.300s/%.100s", dir, name);
    file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
        perror(path);
        return -1;
    }
    return 0;
}

static int put_dir(const char *root, const char *name, const toy_dir *dir)
{
    char path[400];
    size_t i;
    int failed = 0;
    (void)snprintf(path, sizeof path, "%.300s/%.40s", root, name);
    (void)mkdir(path, 0777);
    for (i = 0; i < dir->n && !failed; i++) {
        if (strchr(dir->file[i].name, '/') == NULL) { /* else it was removed */
            failed = put_file(path, dir->file[i].name, dir->file[i].bytes.data,
                              dir->file[i].bytes.size);
        }
    }
    return failed;
}

int main(int argc, char **argv)
{
    toy_options o = toy_small();
    toy_dir dir;
    size_t size = 0;
    unsigned char *ggml;
    int failed;
    if (argc != 2) {
        fputs("usage: make_toy DIR\n", stderr);
        return 1;
    }
    o.vector_type = TOY_F16;
    ggml = toy_hf(&dir, &o, TOY_HF_F16, &size);
    failed = put_file(argv[1], "toy.bin", ggml, size) || put_dir(argv[1], "hf", &dir);
    toy_dir_remove(&dir, "model.safetensors");
    toy_dir_remove(&dir, "tokenizer.json");
    toy_put_words(toy_dir_file(&dir, "vocab.json"), &o);
    toy_put_safetensors(toy_dir_file(&dir, "model-1.safetensors"), ggml, size, TOY_HF_F16, 0, 30);
    toy_put_safetensors(toy_dir_file(&dir, "model-2.safetensors"), ggml, size, TOY_HF_F16, 30,
                        100000);
    toy_dir_text(&dir, "model.safetensors.index.json", "{\"weight_map\": {"
                 "\"a\": \"model-1.safetensors\", \"b\": \"model-2.safetensors\"}}");
    failed = failed || put_dir(argv[1], "shards", &dir);
    toy_dir_free(&dir);
    free(ggml);
    return failed ? 1 : 0;
}
