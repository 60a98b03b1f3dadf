/* toy_hf.h - toys of toy_model.h as Hugging Face's transformers would save them: the files of a
 * directory, in memory. Names of tensors and the byte-level alphabet are made by rules of their own
 * here, not with the reader's tables.
 *
 *     toy_dir dir;
 *     toy_hf(&dir, &o, TOY_HF_F32);        // or TOY_HF_F16, TOY_HF_BF16
 *     hf_open(&h, &dir.files);
 *     ...
 *     toy_dir_free(&dir);
 */
#ifndef TOY_HF_H
#define TOY_HF_H
#include "../../examples/pack/hf.h"
#include "toy_model.h"

enum { TOY_HF_F32, TOY_HF_F16, TOY_HF_BF16 };

#define TOY_DIR_FILES 12

typedef struct toy_file {
    char name[64];
    toy_bytes bytes;
} toy_file;

typedef struct toy_dir {
    hf_files files;
    toy_file file[TOY_DIR_FILES];
    size_t n, most;      /* most: bytes a read gives; 0: all */
    uint64_t fail_at;    /* reads of the weights that reach this offset fail; 0: none */
} toy_dir;

TOY_FN toy_file *toy_dir_find(toy_dir *dir, const char *name)
{
    size_t i;
    for (i = 0; i < dir->n; i++) {
        if (strcmp(dir->file[i].name, name) == 0) {
            return &dir->file[i];
        }
    }
    return NULL;
}

TOY_FN int64_t toy_dir_size(void *user, const char *name)
{
    const toy_file *file = toy_dir_find(user, name);
    return file != NULL ? (int64_t)file->bytes.size : -1;
}

TOY_FN int64_t toy_dir_read(void *user, const char *name, uint64_t offset, void *buffer,
                            size_t size)
{
    toy_dir *dir = user;
    const toy_file *file = toy_dir_find(dir, name);
    size_t n;
    if (file == NULL || offset > file->bytes.size ||
        (dir->fail_at != 0 && strstr(name, ".safetensors") != NULL &&
         offset + size > dir->fail_at)) {
        return -1;
    }
    n = file->bytes.size - (size_t)offset;
    n = n < size ? n : size;
    n = dir->most != 0 && n > dir->most ? dir->most : n;
    if (n > 0) {
        memcpy(buffer, file->bytes.data + offset, n);
    }
    return (int64_t)n;
}

TOY_FN void toy_dir_init(toy_dir *dir)
{
    memset(dir, 0, sizeof *dir);
    dir->files.size = toy_dir_size;
    dir->files.read = toy_dir_read;
    dir->files.user = dir;
}

/* The bytes of a file, which is made if it is not there. */
TOY_FN toy_bytes *toy_dir_file(toy_dir *dir, const char *name)
{
    toy_file *file = toy_dir_find(dir, name);
    if (file == NULL && dir->n < TOY_DIR_FILES) {
        file = &dir->file[dir->n++];
        (void)snprintf(file->name, sizeof file->name, "%s", name);
    }
    return &file->bytes;
}

/* Replaces a file by text. */
TOY_FN void toy_dir_text(toy_dir *dir, const char *name, const char *text)
{
    toy_bytes *bytes = toy_dir_file(dir, name);
    bytes->size = 0;
    toy_put(bytes, text, strlen(text));
}

TOY_FN void toy_dir_remove(toy_dir *dir, const char *name)
{
    toy_file *file = toy_dir_find(dir, name);
    if (file != NULL) {
        (void)snprintf(file->name, sizeof file->name, "removed/%.40s", name);
    }
}

TOY_FN void toy_dir_free(toy_dir *dir)
{
    size_t i;
    for (i = 0; i < dir->n; i++) {
        free(dir->file[i].bytes.data);
    }
    dir->n = 0;
}

TOY_FN void toy_puts(toy_bytes *out, const char *text)
{
    toy_put(out, text, strlen(text));
}

/* ---- tensors ---- */

TOY_FN void toy_replace(char *name, size_t size, const char *from, const char *to)
{
    char *at = strstr(name, from);
    char rest[128];
    if (at != NULL) {
        (void)snprintf(rest, sizeof rest, "%s", at + strlen(from));
        (void)snprintf(at, size - (size_t)(at - name), "%s%s", to, rest);
    }
}

/* OpenAI's name to theirs. */
TOY_FN void toy_hf_name(const char *openai, char name[128])
{
    (void)snprintf(name, 128, "model.%s", openai);
    toy_replace(name, 128, ".blocks.", ".layers.");
    toy_replace(name, 128, "cross_attn_ln", "encoder_attn_layer_norm");
    toy_replace(name, 128, "cross_attn", "encoder_attn");
    toy_replace(name, 128, ".attn_ln", ".self_attn_layer_norm");
    toy_replace(name, 128, ".attn.", ".self_attn.");
    toy_replace(name, 128, ".query.", ".q_proj.");
    toy_replace(name, 128, ".key.", ".k_proj.");
    toy_replace(name, 128, ".value.", ".v_proj.");
    toy_replace(name, 128, "attn.out.", "attn.out_proj.");
    toy_replace(name, 128, "mlp_ln", "final_layer_norm");
    toy_replace(name, 128, "mlp.0", "fc1");
    toy_replace(name, 128, "mlp.2", "fc2");
    toy_replace(name, 128, "ln_post", "layer_norm");
    toy_replace(name, 128, "decoder.ln.", "decoder.layer_norm.");
    toy_replace(name, 128, "positional_embedding", "embed_positions.weight");
    toy_replace(name, 128, "token_embedding", "embed_tokens");
}

/* The tensors first..last-1 of a ggml file, and the projection that is the embedding once more. */
TOY_FN void toy_put_safetensors(toy_bytes *out, const unsigned char *ggml, size_t size, int type,
                                int first, int last)
{
    static const char *const types[] = {"F32", "F16", "BF16"};
    toy_bytes header = {NULL, 0, 0, 0}, data = {NULL, 0, 0, 0};
    toy_tensor t;
    int i, k;
    toy_puts(&header, "{\"__metadata__\": {\"format\": \"pt\"}");
    for (i = first; i < last && toy_find(ggml, size, NULL, i, &t); i++) {
        char name[128], text[64];
        size_t j, begin = data.size;
        int squeeze = t.ne[0] == 1 && t.n_dims == 2; /* how ggml has the biases of convolutions */
        toy_hf_name(t.name, name);
        for (j = 0; j < t.rows * t.columns; j++) {
            float x = toy_value(ggml, &t, j);
            uint32_t bits;
            memcpy(&bits, &x, 4);
            if (type == TOY_HF_F32) {
                toy_put_i32(&data, (int32_t)bits);
            } else {
                toy_put_u16(&data, type == TOY_HF_F16 ? toy_to_half((double)x) : bits >> 16);
            }
        }
        toy_puts(&header, ", \"");
        toy_puts(&header, name);
        toy_puts(&header, "\": {\"dtype\": \"");
        toy_puts(&header, types[type]);
        toy_puts(&header, "\", \"shape\": [");
        for (k = t.n_dims - 1; k >= squeeze; k--) {
            (void)snprintf(text, sizeof text, "%d%s", (int)t.ne[k], k > squeeze ? ", " : "");
            toy_puts(&header, text);
        }
        (void)snprintf(text, sizeof text, "], \"data_offsets\": [%lu, %lu]}", (unsigned long)begin,
                       (unsigned long)data.size);
        toy_puts(&header, text);
    }
    toy_puts(&header, "}");
    while (header.size % 8 != 0) {
        toy_puts(&header, " ");
    }
    toy_put_i32(out, (int32_t)header.size);
    toy_put_i32(out, 0);
    toy_put(out, header.data, header.size);
    toy_put(out, data.data, data.size);
    free(header.data);
    free(data.data);
}

/* ---- the vocabulary ---- */

/* A byte's character in GPT-2's alphabet, built as its encoder.py does. */
TOY_FN uint32_t toy_shown(int byte)
{
    uint32_t extra = 256;
    int b;
    for (b = 0; b < 256; b++) {
        int visible = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        if (b == byte) {
            return visible ? (uint32_t)b : extra;
        }
        extra += !visible;
    }
    return 0;
}

/* A token as a JSON string, every third of its characters escaped. */
TOY_FN void toy_put_word(toy_bytes *out, const char *text, size_t length)
{
    size_t i;
    toy_puts(out, "\"");
    for (i = 0; i < length; i++) {
        uint32_t c = toy_shown((unsigned char)text[i]);
        char piece[16];
        if (c == '"' || c == '\\') {
            (void)snprintf(piece, sizeof piece, "\\%c", (int)c);
        } else if ((c + i) % 3 == 0) {
            (void)snprintf(piece, sizeof piece, "\\u%04x", (unsigned)c);
        } else if (c < 128) {
            (void)snprintf(piece, sizeof piece, "%c", (int)c);
        } else {
            (void)snprintf(piece, sizeof piece, "%c%c", (int)(0xc0 | c >> 6),
                           (int)(0x80 | (c & 0x3f)));
        }
        toy_puts(out, piece);
    }
    toy_puts(out, "\"");
}

TOY_FN void toy_put_words(toy_bytes *out, const toy_options *o)
{
    int32_t i;
    toy_puts(out, "{");
    for (i = o->n_base - 1; i >= 0; i--) { /* the order does not matter */
        char text[8], number[32];
        size_t length = toy_token(i, text);
        toy_put_word(out, text, length);
        (void)snprintf(number, sizeof number, ": %d%s", (int)i, i > 0 ? ",\n" : "");
        toy_puts(out, number);
    }
    toy_puts(out, "}");
}

TOY_FN void toy_put_config(toy_bytes *out, const toy_options *o)
{
    char text[800];
    (void)snprintf(text, sizeof text,
                   "{\"architectures\": [\"WhisperForConditionalGeneration\"], "
                   "\"model_type\": \"whisper\", \"activation_function\": \"gelu\", "
                   "\"scale_embedding\": false, \"vocab_size\": %d, \"max_source_positions\": %d, "
                   "\"d_model\": %d, \"encoder_attention_heads\": %d, \"encoder_layers\": %d, "
                   "\"encoder_ffn_dim\": %d, \"max_target_positions\": %d, "
                   "\"decoder_attention_heads\": %d, \"decoder_layers\": %d, "
                   "\"decoder_ffn_dim\": %d, \"num_mel_bins\": %d, \"max_length\": 1024}",
                   (int)o->n_vocab, (int)o->audio_ctx, (int)o->state, (int)o->audio_head,
                   (int)o->audio_layer, (int)o->state * 4, (int)o->text_ctx, (int)o->text_head,
                   (int)o->text_layer, (int)o->state * 4, (int)o->mels);
    toy_puts(out, text);
}

/* The mel filters of a ggml file as a list of lists. */
TOY_FN void toy_put_preprocessor(toy_bytes *out, const unsigned char *ggml, int mels)
{
    int m, i;
    toy_puts(out, "{\"sampling_rate\": 16000, \"mel_filters\": [");
    for (m = 0; m < mels; m++) {
        toy_puts(out, m > 0 ? ", [" : "[");
        for (i = 0; i < 201; i++) {
            uint32_t bits = toy_get_u32(ggml + 56 + 4 * (size_t)(m * 201 + i));
            float x;
            char text[40];
            memcpy(&x, &bits, 4);
            (void)snprintf(text, sizeof text, "%s%.9g", i > 0 ? ", " : "", (double)x);
            toy_puts(out, text);
        }
        toy_puts(out, "]");
    }
    toy_puts(out, "]}");
}

/* A directory like that of a model saved today: tokenizer.json and one file of weights. Returns the
 * same model as a ggml file, to be freed. */
TOY_FN unsigned char *toy_hf(toy_dir *dir, const toy_options *o, int type, size_t *size)
{
    unsigned char *ggml = toy_model(o, size);
    toy_bytes *out;
    toy_dir_init(dir);
    toy_put_config(toy_dir_file(dir, "config.json"), o);
    toy_put_preprocessor(toy_dir_file(dir, "preprocessor_config.json"), ggml, o->mels);
    out = toy_dir_file(dir, "tokenizer.json");
    toy_puts(out, "{\"version\": \"1.0\", \"added_tokens\": [], \"model\": {\"type\": \"BPE\", "
             "\"vocab\": ");
    toy_put_words(out, o);
    toy_puts(out, ", \"merges\": [\"a b\"]}}");
    toy_put_safetensors(toy_dir_file(dir, "model.safetensors"), ggml, *size, type, 0, 100000);
    return ggml;
}
#endif
