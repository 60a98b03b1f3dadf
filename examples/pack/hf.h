/* hf.h - presents a Whisper model saved by Hugging Face's transformers (config.json, safetensors,
 * and tokenizer.json or vocab.json) to the library as a ggml file.
 *
 *     hf h;
 *     if (hf_open(&h, &files) == 0) {
 *         config.alignment_heads = h.heads[0];
 *         config.n_alignment_heads = h.n_heads;
 *         wnpu_model_open_source(&model, &h.source, &config, &error);
 *     }
 *     else
 *         puts(h.why);
 *     hf_close(&h);
 *
 * Only headers and vocabulary are held in memory, and no file is written: h.source reads the
 * tensors where they are. F32 and F16 are passed on unchanged, BF16 is converted to f32. The
 * library checks sizes and values. */
#ifndef HF_H
#define HF_H

#include "whisper_npu.h"

/* The files of one directory. */
typedef struct hf_files {
    int64_t (*size)(void *user, const char *name); /* bytes; negative if the file does not exist */
    /* Copies up to size bytes from offset. Returns their number, or a negative number on
     * failure. */
    int64_t (*read)(void *user, const char *name, uint64_t offset, void *buffer, size_t size);
    void *user;
} hf_files;

typedef struct hf {
    wnpu_source source;       /* valid until hf_close(); its user is this structure */
    char why[240];            /* the error, one line */
    char note[240];           /* what was left out, one line, or "" */
    uint16_t heads[64][2];    /* alignment_heads of generation_config.json: layer and head */
    uint32_t n_heads;         /* 0: there are none, or not all are heads of this model */
    hf_files files;
    int32_t sizes[11];        /* as in a ggml header */
    struct hf_tensor *tensors;
    size_t n_tensors;
    struct hf_piece *pieces;  /* of the ggml file, in order */
    size_t n_pieces;
    unsigned char *front;     /* everything before the first tensor */
    size_t front_size, front_capacity;
} hf;

/* Returns 0, or -1 with the error in h->why. files and what it points to must stay valid until
 * hf_close(). */
int hf_open(hf *h, const hf_files *files);
/* Must also be called after hf_open() failed. */
void hf_close(hf *h);

#endif
