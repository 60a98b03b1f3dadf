/* fuzz_pack.c - hostile kernel packs. The first byte chooses the reader:
 *   0 instruction stream, 1 container, 2 manifest, 3 a whole pack through callbacks (the input is
 *   the manifest, and every file is the input too).
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined -DFUZZ tests/fuzz/fuzz_pack.c -ldrm
 * Without: a program that runs each file named, or with a number n makes n random inputs out of
 * small seeds of its own. */
#include "../../npu_amdxdna.c"

typedef struct fuzz_file { const uint8_t *data; size_t size; } fuzz_file;

static int64_t fuzz_size(void *user, const char *name)
{
    const fuzz_file *file = user;
    (void)name;
    return (int64_t)file->size;
}

static int64_t fuzz_read(void *user, const char *name, uint64_t offset, void *buffer, size_t size)
{
    const fuzz_file *file = user;
    (void)name;
    if (offset > file->size) {
        return -1;
    }
    size = size < file->size - offset ? size : (size_t)(file->size - offset);
    memcpy(buffer, file->data + offset, size);
    return (int64_t)size;
}

static void fuzz_one(const uint8_t *data, size_t size)
{
    wnpu_error error;
    if (size == 0) {
        return;
    }
    switch (data[0] % 4) {
    case 0: {
        xt_limits limits = {3, 4, 3, {4096, 2048, 8192, 0, 0}, {XT_IN, XT_IN, XT_OUT, 0, 0}};
        (void)xt_check(data + 1, size - 1, &limits, &error);
        break;
    }
    case 1: {
        xc_image image;
        uint32_t sum = 0;
        size_t i;
        if (xc_xclbin(&image, data + 1, size - 1, "", 0, &error) == WNPU_OK) {
            for (i = 0; i < image.bytes; i++) {
                sum += image.pdi[i]; /* the sanitizer looks */
            }
        }
        if (sum == 1) {
            error.code = 1;
        }
        break;
    }
    case 2: {
        static xp_pack pack;
        memset(&pack, 0, sizeof pack);
        (void)xp_parse(&pack, (const char *)data + 1, size - 1, &error);
        break;
    }
    default: {
        wnpu_amdxdna_config config;
        wnpu_amdxdna_files files;
        fuzz_file file;
        file.data = data + 1;
        file.size = size - 1;
        files.size = fuzz_size;
        files.read = fuzz_read;
        files.user = &file;
        wnpu_amdxdna_config_init(&config, sizeof config);
        config.files = &files;
        (void)wnpu_amdxdna_memory(&config, NULL, 0, NULL, &error);
        break;
    }
    }
}

#ifdef FUZZ
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_one(data, size);
    return 0;
}
#else
static uint64_t fuzz_state = 88172645463325252u;

static uint32_t fuzz_random(void)
{
    fuzz_state ^= fuzz_state << 13;
    fuzz_state ^= fuzz_state >> 7;
    fuzz_state ^= fuzz_state << 17;
    return (uint32_t)(fuzz_state >> 11);
}

/* Words that the readers understand, in random order with random parts. */
static size_t fuzz_stream(uint8_t *to)
{
    static const uint32_t useful[] = {
        0, 1, 3, 4, 5, 0x80, 0x81, 12, 16, 20, 24, 28, 48, 0x1d000, 0x1d004, 0x1d014, 0x1d204,
        0x1d214, 0x02000000, 0x10100, 0x80000000u, 0xffffffffu, 0x0201d004, 256, 4096
    };
    size_t words = 4 + fuzz_random() % 64, i;
    for (i = 0; i < words; i++) {
        uint32_t value = fuzz_random() % 4 == 0 ? fuzz_random()
                         : useful[fuzz_random() % (sizeof useful / sizeof useful[0])];
        memcpy(to + 4 * i, &value, 4);
    }
    i = words * 4;
    to[0] = (uint8_t)(fuzz_random() & 1);
    to[1] = (uint8_t)!to[0];
    to[2] = 3;
    to[3] = 6;
    to[4] = 4;
    to[5] = 1;
    to[8] = (uint8_t)(fuzz_random() % 16);
    to[9] = to[10] = to[11] = 0;
    to[12] = (uint8_t)i;
    to[13] = (uint8_t)(i >> 8);
    to[14] = to[15] = 0;
    return i;
}

static size_t fuzz_container(uint8_t *to)
{
    size_t size = 0x1c8 + 40 * 3 + fuzz_random() % 1024, i;
    for (i = 0; i < size; i++) {
        to[i] = (uint8_t)(fuzz_random() % 3 == 0 ? fuzz_random() % 256 : fuzz_random() % 2 * 8);
    }
    memcpy(to, "xclbin2", 8);
    memset(to + 0x130, 0, 8);
    to[0x130] = (uint8_t)size;
    to[0x131] = (uint8_t)(size >> 8);
    memset(to + 0x1c0, 0, 4);
    to[0x1c0] = (uint8_t)(fuzz_random() % 4);
    for (i = 0; i < 3; i++) {
        uint8_t *h = to + 0x1c8 + 40 * i;
        uint32_t at = fuzz_random() % (uint32_t)size;
        memset(h, 0, 40);
        h[0] = fuzz_random() % 2 == 0 ? 32 : 8;
        h[24] = (uint8_t)at;
        h[25] = (uint8_t)(at >> 8);
        at = fuzz_random() % (uint32_t)(size - at);
        h[32] = (uint8_t)at;
        h[33] = (uint8_t)(at >> 8);
    }
    return size;
}

static size_t fuzz_manifest(uint8_t *to)
{
    static const char *const words[] = {
        "pack", "overlay", "kernel", "format=1", "device=npu1", "columns=4", "id=g", "id=k",
        "overlay=g", "op=gemm", "file=f", "kind=pdi", "kind=xclbin", "stream=s", "m=512", "n=128",
        "k=64", "tile_m=64", "tile_n=32", "tile_k=64", "a=i8", "b=i8", "c=i32", "acc=i32", "#",
        "a_arg=0", "b_arg=1", "c_arg=2", "a_bytes=32768", "\n", "\n", "\n", "=", "x=", "m=0x",
        "sha256=0000000000000000000000000000000000000000000000000000000000000000"
    };
    size_t at = 0, count = fuzz_random() % 60;
    while (count-- > 0) {
        const char *word = words[fuzz_random() % (sizeof words / sizeof words[0])];
        size_t length = strlen(word);
        memcpy(to + at, word, length);
        at += length;
        to[at++] = (uint8_t)(fuzz_random() % 8 == 0 ? fuzz_random() : ' ');
    }
    return at;
}

int main(int argc, char **argv)
{
    static uint8_t input[1 << 20];
    int i;
    for (i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        long rounds = file == NULL ? strtol(argv[i], NULL, 10) : 0;
        if (file != NULL) {
            fuzz_one(input, fread(input, 1, sizeof input, file));
            (void)fclose(file);
        }
        while (rounds-- > 0) {
            size_t size, at;
            uint8_t *exact;
            input[0] = (uint8_t)(fuzz_random() % 4);
            size = 1 + (input[0] == 0 ? fuzz_stream(input + 1)
                        : input[0] == 1 ? fuzz_container(input + 1) : fuzz_manifest(input + 1));
            for (at = fuzz_random() % 4; at > 0; at--) {
                input[1 + fuzz_random() % size] = (uint8_t)fuzz_random();
            }
            exact = malloc(size);
            if (exact != NULL) {
                memcpy(exact, input, size);
                fuzz_one(exact, size);
            }
            free(exact);
        }
    }
    printf("fuzz_pack: done\n");
    return 0;
}
#endif
