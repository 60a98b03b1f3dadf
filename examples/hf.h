/*
 * hf.h - a Whisper model as Hugging Face's transformers save it (config.json, safetensors, and
 * tokenizer.json or vocab.json), shown to the library as the ggml file that it would be.
 *
 *     hf h;
 *     if (hf_open(&h, &files) == 0)
 *         wnpu_model_open_source(&model, &h.source, NULL, &error);
 *     else
 *         puts(h.why);
 *     hf_close(&h);
 *
 * Nothing is converted to a file or held in memory but headers and vocabulary: h.source reads the
 * tensors where they are. F32 and F16 go through as they are, BF16 becomes f32. Whether sizes fit
 * together, and whether values are sane, is for the library to check.
 */
#ifndef HF_H
#define HF_H

#include "whisper_npu.h"

/* The files of one directory. */
typedef struct hf_files {
    int64_t (*size)(void *user, const char *name); /* bytes; negative if there is no such file */
    /* Copies up to size bytes from offset and returns how many, or a negative number. */
    int64_t (*read)(void *user, const char *name, uint64_t offset, void *buffer, size_t size);
    void *user;
} hf_files;

typedef struct hf {
    wnpu_source source;       /* good until hf_close(); its user is this structure */
    char why[240];            /* one line: what is wrong with the model */
    hf_files files;
    int32_t sizes[11];        /* as in a ggml header */
    struct hf_tensor *tensors;
    size_t n_tensors;
    struct hf_piece *pieces;  /* of the ggml file, in order */
    size_t n_pieces;
    unsigned char *front;     /* all before the first tensor */
    size_t front_size, front_capacity;
} hf;

/* 0, or -1 with the reason in h->why. files and what it points to must stay until hf_close(). */
int hf_open(hf *h, const hf_files *files);
/* Also after hf_open() failed. */
void hf_close(hf *h);

#endif
