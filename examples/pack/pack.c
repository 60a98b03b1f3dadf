/* pack.c - makes a packed model (.wnpu) from a ggml file or a Hugging Face model. Packs open in
 * milliseconds, and all processes share their memory. See --help.
 *
 *     cc -DNO_NPU -I. examples/pack/[a-z]*.c examples/kit/[a-z]*.c whisper_npu.c \
 *        -o pack -lm -lpthread */
#define _XOPEN_SOURCE 700

#include "hf.h"
#include "../kit/output.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define PATH_SIZE 4096

enum { EXIT_USAGE = 1, EXIT_MODEL = 2, EXIT_OUTPUT = 5, EXIT_OTHER = 6 };

static const char help[] =
"Usage: " PROGRAM("pack") " [--bits 6] MODEL OUT.wnpu\n"
"       pack --check FILE.wnpu\n"
"\n"
"Writes MODEL as a pack. MODEL is a ggml Whisper model, or a directory with a Whisper\n"
"model saved by Hugging Face transformers: config.json; model.safetensors, or\n"
"model.safetensors.index.json and its files; tokenizer.json, or vocab.json and\n"
"added_tokens.json; preprocessor_config.json if there is one. Fine-tuned and distilled\n"
"models are supported; adapters must be merged first.\n"
"\n"
"With 8 bits, transcripts are the same as with MODEL, byte for byte. OUT.wnpu is\n"
"replaced only when the new file is complete.\n"
"\n"
"  --bits N       bits of weights in the layers: 8 (default), or 6: a quarter smaller in\n"
"                 memory, slightly less precise\n"
"  --check FILE   compare every byte of a pack with its checksums\n"
"\n"
"Exit status: 0 success, 1 wrong usage, 2 the model cannot be read or is damaged,\n"
"5 the pack cannot be written, 6 anything else.\n";

__attribute__((format(printf, 2, 3)))
static int complain(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)output_complain("pack", code, format, args);
    va_end(args);
    return code;
}

static int code_of(int status)
{
    return status == WNPU_E_MEMORY || status == WNPU_E_INTERNAL ? EXIT_OTHER : EXIT_MODEL;
}

/* ---- the files of a directory ---- */

typedef struct directory {
    const char *path;
    char name[256];           /* the open file */
    int file;                 /* -1: none */
} directory;

/* Opens name unless it is the open file. Returns its descriptor, or -1. */
static int open_file(directory *d, const char *name)
{
    char path[PATH_SIZE];
    int n = snprintf(path, sizeof path, "%s/%s", d->path, name);
    if (d->file >= 0 && strcmp(d->name, name) == 0) {
        return d->file;
    }
    if (d->file >= 0) {
        close(d->file);
    }
    d->file = n > 0 && (size_t)n < sizeof path && strlen(name) < sizeof d->name ?
              open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    (void)snprintf(d->name, sizeof d->name, "%s", name);
    return d->file;
}

static int64_t file_size(void *user, const char *name)
{
    struct stat info;
    int file = open_file(user, name);
    return file >= 0 && fstat(file, &info) == 0 && S_ISREG(info.st_mode) ? info.st_size : -1;
}

static int64_t file_read(void *user, const char *name, uint64_t offset, void *buffer, size_t size)
{
    int file = open_file(user, name);
    ssize_t got;
    do {
        got = file >= 0 ? pread(file, buffer, size, (off_t)offset) : -1;
    } while (file >= 0 && got < 0 && errno == EINTR);
    return got;
}

/* ---- work ---- */

typedef struct packing {
    const wnpu_model *model;
    wnpu_error error;
} packing;

static int fill(void *user, wnpu_write_fn write, void *sink)
{
    packing *p = user;
    return wnpu_model_save(p->model, write, sink, &p->error);
}

/* The pack is written in pieces of a huge page: Linux caches a file as it was written, so processes
 * that map it next get huge pages. */
static int save(const wnpu_model *model, const char *from, const char *to)
{
    static char buffer[2 << 20];
    packing p = {model, {0, ""}};
    output out;
    int failed;
    if (output_open(&out, strcmp(to, "-") == 0 ? NULL : to) != 0) {
        return complain(EXIT_OUTPUT, "%s: %s", to, out.why);
    }
    if (out.kind == OUTPUT_IN_PLACE) {
        output_close(&out);
        return complain(EXIT_OUTPUT, "%s: can only be written in place, and programs may have it "
                        "mapped; remove it first", to);
    }
    out.strict = 1;
    out.buffer = buffer;
    out.buffer_size = sizeof buffer;
    failed = output_save(&out, fill, &p) != 0;
    output_close(&out);
    return !failed ? 0 : p.error.code != 0 && p.error.code != WNPU_E_IO
               ? complain(code_of(p.error.code), "%s: %s", from, p.error.message)
               : complain(EXIT_OUTPUT, "%s: %s", to, out.why);
}

static int open_directory(wnpu_model **model, const char *path, wnpu_model_config *config,
                          wnpu_error *error)
{
    directory d = {path, "", -1};
    hf_files files = {file_size, file_read, &d};
    hf h;
    int code = 0;
    if (hf_open(&h, &files) != 0) {
        code = complain(EXIT_MODEL, "%s: %s", path, h.why);
    } else {
        config->alignment_heads = h.heads[0];
        config->n_alignment_heads = h.n_heads;
        code = wnpu_model_open_source(model, &h.source, config, error) == WNPU_OK ? 0 :
               complain(code_of(error->code), "%s: %s", path, error->message);
    }
    if (h.note[0] != '\0') {
        fprintf(stderr, "pack: %s: %s\n", path, h.note);
    }
    hf_close(&h);
    if (d.file >= 0) {
        close(d.file);
    }
    return code;
}

/* Refuses a model whose weights did not get that many bits: packs keep theirs, and models whose
 * width is not a multiple of 16 have 8. */
static int check_bits(const wnpu_model *model, const char *from, uint32_t bits)
{
    wnpu_model_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    (void)wnpu_model_get_info(model, &info);
    return info.weight_bits == bits ? 0
         : complain(EXIT_MODEL, "%s: the weights have %u bits and cannot have %u; give the model "
                    "that the pack was made from, if it is one", from,
                    (unsigned)info.weight_bits, (unsigned)bits);
}

/* bits: 0 if they do not matter. */
static int pack(const char *from, const char *to, uint32_t bits)
{
    wnpu_model_config config;
    wnpu_error error = {0, ""};
    wnpu_model *model = NULL;
    struct stat info;
    char why[256];
    int code = 0;
    wnpu_model_config_init(&config, sizeof config);
    config.weight_bits = bits;
    output_protect(from, from);
    if (output_check(strcmp(to, "-") == 0 ? NULL : to, from, why) != 0) {
        code = complain(EXIT_OUTPUT, "%s: %s", to, why);
    } else if (stat(from, &info) == 0 && S_ISDIR(info.st_mode)) {
        code = open_directory(&model, from, &config, &error);
    } else if (wnpu_model_open(&model, from, &config, &error) != WNPU_OK) {
        code = complain(code_of(error.code), "%s: %s", from, error.message);
    }
    if (code == 0 && bits != 0) {
        code = check_bits(model, from, bits);
    }
    if (code == 0) {
        code = save(model, from, to);
    }
    wnpu_model_close(model);
    output_forget();
    return code;
}

static int check(const char *path)
{
    wnpu_error error = {0, ""};
    wnpu_model *model = NULL;
    int code = 0;
    if (wnpu_model_open(&model, path, NULL, &error) != WNPU_OK ||
        wnpu_model_verify(model, &error) != WNPU_OK) {
        code = complain(code_of(error.code), "%s: %s", path, error.message);
    }
    wnpu_model_close(model);
    return code;
}

int main(int argc, char **argv)
{
    uint32_t bits = 0;
    platform_start(&argc, &argv);
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(help, stdout);
        return fflush(stdout) == 0 ? 0 : EXIT_OUTPUT;
    }
    if (argc == 3 && strcmp(argv[1], "--check") == 0) {
        return check(argv[2]);
    }
    if (argc > 2 && strcmp(argv[1], "--bits") == 0) {
        if (strcmp(argv[2], "6") != 0 && strcmp(argv[2], "8") != 0) {
            return complain(EXIT_USAGE, "--bits has to be 6 or 8, not '%s'", argv[2]);
        }
        bits = argv[2][0] == '6' ? 6 : 8;
        argc -= 2;
        argv += 2;
    }
    if (argc != 3 || argv[1][0] == '-') {
        return complain(EXIT_USAGE, "give a model and the name of a pack; see --help");
    }
    return pack(argv[1], argv[2], bits);
}
