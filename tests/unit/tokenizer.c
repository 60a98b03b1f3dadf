/* Tests of section tk_: languages, vocabulary, encoding, suppression, UTF-8. The models, when they
 * are there, hold OpenAI's real vocabularies; everything else needs no data. */
#include "../lib/t.h"

/* ---- vocabularies ---- */

typedef struct tokenizer_vocab {
    tk_vocab v;
    void *memory;
} tokenizer_vocab;

typedef struct token_list {
    char *bytes;
    size_t *offset; /* [n + 1] */
    int32_t n;
} token_list;

static void list_open(token_list *list, size_t bytes, int32_t n)
{
    list->bytes = malloc(bytes + 1);
    list->offset = calloc((size_t)n + 1, sizeof *list->offset);
    list->n = 0;
}

static void list_add(token_list *list, const char *bytes, size_t length)
{
    size_t at = list->offset[list->n];
    memcpy(list->bytes + at, bytes, length);
    list->offset[++list->n] = at + length;
}

static void list_close(token_list *list)
{
    free(list->bytes);
    free(list->offset);
}

/* A vocabulary from a list, through the arena twice as the model loader does. */
static int32_t vocab_mels; /* of the models whose vocabularies these are; 0: not known */

static int vocab_open(tokenizer_vocab *out, int32_t n_vocab, const token_list *list,
                      wnpu_error *error)
{
    ar_arena arena;
    int32_t i;
    int code;
    memset(&arena, 0, sizeof arena);
    out->memory = NULL;
    tk_carve(&arena, &out->v, n_vocab, list->n, list->offset[list->n]);
    if (arena.overflow) {
        return WNPU_E_MODEL;
    }
    out->memory = ar_malloc(NULL, arena.used, 64);
    arena.base = out->memory;
    arena.size = arena.used;
    memset(arena.base, 0xa5, arena.size);
    arena.used = 0;
    tk_carve(&arena, &out->v, n_vocab, list->n, list->offset[list->n]);
    T_CHECK(arena.used == arena.size && !arena.overflow, "measured %zu, took %zu", arena.size,
            arena.used);
    out->v.n_mels = vocab_mels;
    for (i = 0; i < list->n; i++) {
        code = tk_add(&out->v, i, list->bytes + list->offset[i],
                      list->offset[i + 1] - list->offset[i]);
        if (code != WNPU_OK) {
            return code;
        }
    }
    return tk_finish(&out->v, error);
}

static void vocab_close(tokenizer_vocab *out)
{
    ar_free(NULL, out->memory, 0);
    out->memory = NULL;
}

/* 256 single bytes, then numbered words. */
static void list_synthetic(token_list *list, int32_t n)
{
    int32_t i;
    list_open(list, (size_t)n * 8, n);
    for (i = 0; i < n; i++) {
        char word[16];
        int length = snprintf(word, sizeof word, "w%05d", (int)i);
        if (i < 256) {
            word[0] = (char)i;
            length = 1;
        }
        list_add(list, word, (size_t)length);
    }
}

static int32_t read_i32(FILE *file)
{
    int32_t value = -1;
    return fread(&value, sizeof value, 1, file) == 1 ? value : -1;
}

/* Reads the vocabulary of a ggml model file. Returns 0 when there is no such file. */
static int vocab_read(tokenizer_vocab *out, const char *path)
{
    token_list list;
    wnpu_error error;
    int32_t head[11], i, n, n_mel, n_fft;
    char text[1024];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return 0;
    }
    T_CHECK(read_i32(file) == 0x67676d6c, "%s is no ggml file", path);
    for (i = 0; i < 11; i++) {
        head[i] = read_i32(file);
    }
    n_mel = read_i32(file);
    n_fft = read_i32(file);
    fseek(file, (long)n_mel * n_fft * 4, SEEK_CUR);
    n = read_i32(file);
    T_CHECK(n > 50000 && n < 60000, "%s has %d tokens", path, (int)n);
    list_open(&list, 1 << 20, n);
    for (i = 0; i < n; i++) {
        int32_t length = read_i32(file);
        if (length < 0 || length > 1024 || fread(text, 1, (size_t)length, file) != (size_t)length) {
            break;
        }
        list_add(&list, text, (size_t)length);
    }
    fclose(file);
    T_CHECK(list.n == n, "read %d tokens of %d", (int)list.n, (int)n);
    error.message[0] = '\0';
    T_CHECK(vocab_open(out, head[0], &list, &error) == WNPU_OK, "%s", error.message);
    list_close(&list);
    return 1;
}

/* The vocabulary of a model in the cache; 0 if it is not there. */
static int vocab_model(tokenizer_vocab *out, const char *name)
{
    char path[512];
    if (!vocab_read(out, life_cached(path, sizeof path, name))) {
        t_skip(name);
        return 0;
    }
    return 1;
}

static int model_tiny(tokenizer_vocab *out) { return vocab_model(out, "ggml-tiny.bin"); }
static int model_base_en(tokenizer_vocab *out) { return vocab_model(out, "ggml-base.en.bin"); }

static uint32_t tokenizer_random_state = 1;

static uint32_t random_next(void)
{
    /* Numerical Recipes */
    tokenizer_random_state = tokenizer_random_state * 1664525u + 1013904223u;
    return tokenizer_random_state >> 8;
}

/* ---- languages ---- */

static void test_languages(void)
{
    static const struct { const char *name; const char *code; } aliases[] = {
        {"burmese", "my"}, {"valencian", "ca"}, {"flemish", "nl"}, {"haitian", "ht"},
        {"letzeburgesch", "lb"}, {"pushto", "ps"}, {"panjabi", "pa"}, {"moldavian", "ro"},
        {"moldovan", "ro"}, {"sinhalese", "si"}, {"castilian", "es"}, {"mandarin", "zh"},
        /* BCP 47 */
        {"en-US", "en"}, {"en-us", "en"}, {"EN_GB", "en"}, {"zh-CN", "zh"}, {"zh-Hans", "zh"},
        {"zh-Hant-TW", "zh"}, {"zh-yue", "yue"}, {"zh-yue-HK", "yue"}, {"yue-HK", "yue"},
        {"zh-cmn-Hans-CN", "zh"}, {"cmn-Hans-CN", "zh"}, {"pt-BR", "pt"}, {"es-419", "es"},
        {"sr-Latn-RS", "sr"}, {"de-CH-1901", "de"}, {"sl-rozaj-biske", "sl"}, {"nb", "no"},
        {"nb-NO", "no"}, {"no-NO", "no"}, {"nn-NO", "nn"}, {"iw", "he"}, {"iw-IL", "he"},
        {"in", "id"}, {"in-ID", "id"}, {"ji", "yi"}, {"jv", "jw"}, {"jv-ID", "jw"}, {"mo", "ro"},
        {"sh", "sr"}, {"fil", "tl"}, {"fil-PH", "tl"}, {"haw-US", "haw"}, {"prs-AF", "fa"},
        {"arb", "ar"}, {"ar-arb", "ar"}, {"en-x-private", "en"}, {"de_DE.UTF-8", "de"},
        {"de_DE@euro", "de"},
        /* ISO 639-2, both sets, and 639-3 */
        {"eng", "en"}, {"deu", "de"}, {"ger", "de"}, {"fra", "fr"}, {"fre", "fr"}, {"zho", "zh"},
        {"chi", "zh"}, {"nob", "no"}, {"nno", "nn"}, {"tgl", "tl"}, {"lao", "lo"}, {"jav", "jw"},
        {"farsi", "fa"}, {"Filipino", "tl"}
    };
    static const struct { const char *name; const char *code; } scripts[] = {
        {"zh-Hans", "1"}, {"zh-CN", "1"}, {"zh_SG.UTF-8", "1"}, {"cmn-hans-TW", "1"},
        {"zh-Hant", "2"}, {"zh-TW", "2"}, {"zh_HK", "2"}, {"ZH-MO", "2"}, {"yue-Hant-CN", "2"},
        {"zh-yue-HK", "2"}, {"zh", "0"}, {"yue", "0"}, {"ja-Hant", "0"}, {"en-CN", "0"},
        {"zh-Latn", "0"}, {"zh-TWA", "0"}, {"tw", "0"}
    };
    static const char *const wrong[] = {
        "en-", "en--US", "en-US-", "-en", "-", "_", "en us", "en-US ", "xx", "xx-US", "x-klingon",
        "german-DE", "en-toolongsubtag", "en-\303\244", "tlh", "i-klingon", "e-US", "engl", "1-2"
    };
    /* All codes in the order of OpenAI's LANGUAGES. */
    static const char order[] =
        "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no "
        "th ur hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw "
        "gl mr pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl "
        "mg as tt haw ln ha ba jw su yue ";
    char joined[sizeof order + 8] = "";
    size_t i;
    int n;
    T_CHECK(wnpu_language_count() == 100, "%d languages", wnpu_language_count());
    for (n = 0; n < wnpu_language_count(); n++) {
        const char *code = wnpu_language_code(n), *name = wnpu_language_name(n);
        char upper[32];
        for (i = 0; name[i] != '\0'; i++) {
            upper[i] = name[i] >= 'a' && name[i] <= 'z' ? (char)(name[i] - 32) : name[i];
        }
        upper[i] = '\0';
        snprintf(joined + strlen(joined), sizeof joined - strlen(joined), "%s ", code);
        T_CHECK(wnpu_language_id(code) == n, "%s is %d", code, wnpu_language_id(code));
        T_CHECK(wnpu_language_id(name) == n, "%s is %d", name, wnpu_language_id(name));
        T_CHECK(wnpu_language_id(upper) == n, "%s is %d", upper, wnpu_language_id(upper));
    }
    T_CHECK(strcmp(joined, order) == 0, "order is %s", joined);
    for (i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
        n = wnpu_language_id(aliases[i].name);
        T_CHECK(n >= 0 && strcmp(wnpu_language_code(n), aliases[i].code) == 0, "%s is %d",
                aliases[i].name, n);
    }
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        T_CHECK(wnpu_language_id(wrong[i]) == -1, "'%s' is %d", wrong[i],
                wnpu_language_id(wrong[i]));
    }
    T_CHECK(wnpu_language_id("Castilian") == 3, "mixed case");
    T_CHECK(strcmp(wnpu_language_name(80), "haitian creole") == 0, "%s", wnpu_language_name(80));
    T_CHECK(wnpu_language_id(NULL) == -1 && wnpu_language_id("") == -1, "nothing is a language");
    T_CHECK(wnpu_language_id("englis") == -1 && wnpu_language_id("englishx") == -1, "part of one");
    T_CHECK(wnpu_language_id("e") == -1 && wnpu_language_id("auto") == -1, "unknown");
    for (i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        n = wnpu_language_script(scripts[i].name);
        T_CHECK(n == atoi(scripts[i].code), "%s is script %d", scripts[i].name, n);
    }
    T_CHECK(wnpu_language_script(NULL) == WNPU_SCRIPT_ANY, "nothing has a script");
    T_CHECK(wnpu_language_code(-1) == NULL && wnpu_language_code(100) == NULL, "code range");
    T_CHECK(wnpu_language_name(-1) == NULL && wnpu_language_name(100) == NULL, "name range");
}

/* ---- special tokens ---- */

static void check_name(const tk_vocab *v, int32_t id, const char *name)
{
    size_t length = 0;
    const char *text = tk_text(v, id, &length);
    T_CHECK(text != NULL && strcmp(text, name) == 0 && length == strlen(name),
            "%d of %d is %s, not %s", (int)id, (int)v->n_vocab, text == NULL ? "NULL" : text, name);
}

/* first: the number of ordinary tokens. */
static void check_special(const tk_vocab *v, int32_t first, int32_t languages, int multilingual)
{
    int32_t behind = first + 2 + languages;
    T_CHECK(v->multilingual == multilingual && v->n_languages == (multilingual ? languages : 0),
            "multilingual %d, %d languages", (int)v->multilingual, (int)v->n_languages);
    T_CHECK(v->eot == first && v->sot == first + 1 && v->language0 == first + 2, "front");
    T_CHECK(v->translate == behind && v->transcribe == behind + 1 && v->sot_lm == behind + 2 &&
            v->sot_prev == behind + 3 && v->no_speech == behind + 4 &&
            v->no_timestamps == behind + 5 && v->timestamp0 == behind + 6, "behind languages");
    check_name(v, first, "<|endoftext|>");
    check_name(v, first + 1, "<|startoftranscript|>");
    check_name(v, first + 2, "<|en|>");
    check_name(v, first + 2 + 98, "<|su|>");
    check_name(v, behind - 1, languages == 100 ? "<|yue|>" : "<|su|>");
    check_name(v, behind, "<|translate|>");
    check_name(v, behind + 1, "<|transcribe|>");
    check_name(v, behind + 2, "<|startoflm|>");
    check_name(v, behind + 3, "<|startofprev|>");
    check_name(v, behind + 4, "<|nospeech|>");
    check_name(v, behind + 5, "<|notimestamps|>");
    check_name(v, behind + 6, "<|0.00|>");
    check_name(v, behind + 7, "<|0.02|>");
    check_name(v, behind + 6 + 120, "<|2.40|>");
    check_name(v, behind + 6 + 1499, "<|29.98|>");
    check_name(v, behind + 6 + 1500, "<|30.00|>");
}

/* Writes a character of the Basic Multilingual Plane that has three bytes. */
static void put_three(char *to, uint32_t c)
{
    to[0] = (char)(0xe0 | c >> 12);
    to[1] = (char)(0x80 | (c >> 6 & 0x3f));
    to[2] = (char)(0x80 | (c & 0x3f));
    to[3] = '\0';
}

/* Every character becomes one that its own script keeps, and traditional ones come back to the same
 * simplified one. Characters of both scripts follow the rest of the text. */
static void test_scripts(void)
{
    static const struct {
        int script;
        const char *from, *to;
    } texts[] = {
        {2, "\xe6\x88\x91\xe4\xbb\xac\xe5\x90\x8e\xe6\x9d\xa5, a", /* women houlai */
         "\xe6\x88\x91\xe5\x80\x91\xe5\xbe\x8c\xe4\xbe\x86, a"},
        {1, "\xe6\x88\x91\xe5\x80\x91\xe5\xbe\x8c\xe4\xbe\x86",
         "\xe6\x88\x91\xe4\xbb\xac\xe5\x90\x8e\xe6\x9d\xa5"},
        /* the empress keeps her title in traditional text, and alone */
        {2, "\xe9\x80\x99\xe7\x9a\x87\xe5\x90\x8e", "\xe9\x80\x99\xe7\x9a\x87\xe5\x90\x8e"},
        {2, "\xe5\x90\x8e", "\xe5\x90\x8e"},
        /* famous: the same in both; on the way: traditional */
        {1, "\xe8\x91\x97\xe5\x90\x8d\xe7\x9a\x84", "\xe8\x91\x97\xe5\x90\x8d\xe7\x9a\x84"},
        {1, "\xe9\x80\x99\xe8\xb5\xb0\xe8\x91\x97", "\xe8\xbf\x99\xe8\xb5\xb0\xe7\x9d\x80"},
        /* tou fa, ming bai, fa sheng */
        {2, "\xe8\xbf\x99\xe5\xa4\xb4\xe5\x8f\x91\xe6\x98\x8e\xe7\x99\xbd\xe5\x8f\x91\xe7\x94\x9f",
         "\xe9\x80\x99\xe9\xa0\xad\xe9\xab\xae\xe6\x98\x8e\xe7\x99\xbd\xe7\x99\xbc\xe7\x94\x9f"},
        /* mixed */
        {2, "\xe9\xa0\xad\xe5\x8f\x91",
         "\xe9\xa0\xad\xe9\xab\xae"},
        /* one animal, only; empress, later */
        {2, "\xe8\xbf\x99\xe5\x8f\xaa\xe7\x8c\xab\xe5\x8f\xaa\xe6\x98\xaf\xe7\x9a\x87\xe5\x90\x8e"
         "\xe5\x90\x8e\xe6\x9d\xa5\xe5\x85\xbb",
         "\xe9\x80\x99\xe9\x9a\xbb\xe8\xb2\x93\xe5\x8f\xaa\xe6\x98\xaf\xe7\x9a\x87\xe5\x90\x8e"
         "\xe5\xbe\x8c\xe4\xbe\x86\xe9\xa4\x8a"},
        /* relation, contact */
        {2, "\xe5\x85\xb3\xe7\xb3\xbb\xe4\xb8\x8e\xe8\x81\x94\xe7\xb3\xbb",
         "\xe9\x97\x9c\xe4\xbf\x82\xe8\x88\x87\xe8\x81\xaf\xe7\xb9\xab"},
        /* calendar, history; biscuit, cadre, interfere */
        {2, "\xe6\x97\xa5\xe5\x8e\x86\xe5\x8e\x86\xe5\x8f\xb2\xe9\xa5\xbc\xe5\xb9\xb2\xe5\xb9\xb2"
         "\xe9\x83\xa8\xe5\xb9\xb2\xe6\xb6\x89\xe6\x97\xb6",
         "\xe6\x97\xa5\xe6\x9b\x86\xe6\xad\xb7\xe5\x8f\xb2\xe9\xa4\x85\xe4\xb9\xbe\xe5\xb9\xb9"
         "\xe9\x83\xa8\xe5\xb9\xb2\xe6\xb6\x89\xe6\x99\x82"},
        /* kilometre, here; bread, inside */
        {2, "\xe5\x85\xac\xe9\x87\x8c\xe8\xbf\x99\xe9\x87\x8c\xe9\x9d\xa2\xe5\x8c\x85\xe9\x87\x8c"
         "\xe9\x9d\xa2",
         "\xe5\x85\xac\xe9\x87\x8c\xe9\x80\x99\xe8\xa3\xa1\xe9\xba\xb5\xe5\x8c\x85\xe8\xa3\xa1"
         "\xe9\x9d\xa2"},
        /* complex, restore, reply */
        {2, "\xe5\xa4\x8d\xe6\x9d\x82\xe6\x81\xa2\xe5\xa4\x8d\xe7\xad\x94\xe5\xa4\x8d\xe8\xaf\xb4",
         "\xe8\xa4\x87\xe9\x9b\x9c\xe6\x81\xa2\xe5\xbe\xa9\xe7\xad\x94\xe8\xa6\x86\xe8\xaa\xaa"},
        /* marked, work, looking */
        {1, "\xe9\xa1\xaf\xe8\x91\x97\xe8\x91\x97\xe4\xbd\x9c\xe7\x9c\x8b\xe8\x91\x97",
         "\xe6\x98\xbe\xe8\x91\x97\xe8\x91\x97\xe4\xbd\x9c\xe7\x9c\x8b\xe7\x9d\x80"},
        {0, "\xe6\x88\x91\xe4\xbb\xac", "\xe6\x88\x91\xe4\xbb\xac"},
        {2, "\xef\xbf\xbd \xf0\x9f\x99\x82 \xc3\xa9", "\xef\xbf\xbd \xf0\x9f\x99\x82 \xc3\xa9"}
    };
    char text[128], first[4];
    size_t i;
    uint32_t c;
    for (i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        snprintf(text, sizeof text, "%s", texts[i].from);
        tk_set_script(texts[i].script, text, strlen(text));
        T_CHECK(strcmp(text, texts[i].to) == 0, "text %d is %s", (int)i, text);
    }
    for (c = 0x3400; c < 0xa000; c++) {
        uint32_t simple = tk_variant(WNPU_SCRIPT_SIMPLIFIED, c);
        uint32_t full = tk_variant(WNPU_SCRIPT_TRADITIONAL, c);
        T_CHECK(simple == 0 || full == 0, "%x is of both scripts", (unsigned)c);
        put_three(first, c);
        snprintf(text, sizeof text, "%s", first);
        tk_set_script(WNPU_SCRIPT_TRADITIONAL, text, 3);
        T_CHECK((strcmp(text, first) != 0) == (full != 0), "%x to traditional", (unsigned)c);
        tk_set_script(WNPU_SCRIPT_TRADITIONAL, text, 3);
        T_CHECK(full == 0 || tk_variant(WNPU_SCRIPT_TRADITIONAL, full) == 0, "%x", (unsigned)full);
        tk_set_script(WNPU_SCRIPT_SIMPLIFIED, text, 3);
        T_CHECK(full == 0 || strcmp(text, first) == 0, "%x does not come back", (unsigned)c);
        T_CHECK(simple == 0 || tk_variant(WNPU_SCRIPT_SIMPLIFIED, simple) == 0, "%x",
                (unsigned)simple);
    }
}

static void test_special(void)
{
    /* n_vocab, tokens in the file, first special id, languages. English-only files count the end
     * of text as an ordinary token or not; both must do. */
    static const int32_t known[][4] = {
        {51864, 50256, 50256, 99}, {51864, 50257, 50256, 99}, {51865, 50257, 50257, 99},
        {51865, 50258, 50257, 99}, {51866, 50257, 50257, 100}
    };
    size_t i, length = 1;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        token_list list;
        tokenizer_vocab m;
        list_synthetic(&list, known[i][1]);
        T_CHECK(vocab_open(&m, known[i][0], &list, NULL) == WNPU_OK, "vocabulary %zu", i);
        check_special(&m.v, known[i][2], known[i][3], known[i][0] > 51864);
        T_CHECK(m.v.timestamp0 + 1501 == known[i][0], "the last logit is the last timestamp");
        check_name(&m.v, 'A', "A");
        check_name(&m.v, 300, "w00300");
        T_CHECK(tk_text(&m.v, -1, &length) == NULL && length == 0, "below");
        T_CHECK(tk_text(&m.v, known[i][0], NULL) == NULL, "above");
        T_CHECK(tk_text(&m.v, INT32_MIN, NULL) == NULL, "far below");
        T_CHECK(tk_text(&m.v, INT32_MAX, NULL) == NULL, "far above");
        vocab_close(&m);
        list_close(&list);
    }
    {
        /* The absolute numbers that OpenAI's three vocabularies are known by. */
        token_list list;
        tokenizer_vocab m;
        list_synthetic(&list, 50257);
        T_CHECK(vocab_open(&m, 51864, &list, NULL) == WNPU_OK, "english");
        T_CHECK(m.v.eot == 50256 && m.v.translate == 50357 && m.v.timestamp0 == 50363, "english");
        vocab_close(&m);
        T_CHECK(vocab_open(&m, 51865, &list, NULL) == WNPU_OK, "multilingual");
        T_CHECK(m.v.eot == 50257 && m.v.translate == 50358 && m.v.timestamp0 == 50364, "multi");
        vocab_close(&m);
        T_CHECK(vocab_open(&m, 51866, &list, NULL) == WNPU_OK, "large-v3");
        T_CHECK(m.v.eot == 50257 && m.v.translate == 50359 && m.v.timestamp0 == 50365, "v3");
        vocab_close(&m);
        list_close(&list);
    }
}

/* Vocabularies of other sizes: by count, or by the names in the file. */
static void test_special_other(void)
{
    unsigned char mask[280 + 1509 + 100 + 20];
    token_list list;
    tokenizer_vocab m;
    int32_t i;
    list_synthetic(&list, 300);
    T_CHECK(vocab_open(&m, 300 + 1509 + 99, &list, NULL) == WNPU_OK, "99 languages by count");
    check_special(&m.v, 300, 99, 1);
    vocab_close(&m);
    T_CHECK(vocab_open(&m, 300 + 1509 + 101, &list, NULL) == WNPU_E_MODEL, "101 languages");
    vocab_close(&m);
    T_CHECK(vocab_open(&m, 300 + 1508, &list, NULL) == WNPU_E_MODEL, "too few for timestamps");
    vocab_close(&m);
    list_close(&list);

    /* 280 ordinary tokens, then names, and 20 ids without a meaning at the end. */
    list_open(&list, 1 << 14, 280 + 110);
    for (i = 0; i < 280 + 110; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", (int)i);
        if (i == 280) {
            list_add(&list, "<|endoftext|>", 13);
        } else if (i == 280 + 2 + 100) {
            list_add(&list, "<|translate|>", 13);
        } else {
            name[0] = i < 256 ? (char)i : name[0];
            list_add(&list, name, i < 256 ? 1 : strlen(name));
        }
    }
    T_CHECK(vocab_open(&m, 280 + 1509 + 100 + 20, &list, NULL) == WNPU_OK, "by name");
    check_special(&m.v, 280, 100, 1);
    check_name(&m.v, 280 + 1509 + 100, "<|extra|>");
    check_name(&m.v, 279, "n279");
    memset(mask, 0, sizeof mask);
    tk_suppress_special(&m.v, mask);
    for (i = 0; i < 280 + 1509 + 100 + 20; i++) {
        T_CHECK(mask[i] == ((i > 280 && i < 280 + 107) || i >= 280 + 1509 + 100), "mask %d",
                (int)i);
    }
    vocab_close(&m);
    list_close(&list);
}

/* A list as the Hugging Face converter writes it: ordinary tokens, then the special ones by name,
 * then added ones; extra of these come before the timestamps. Without timestamps: the list ends
 * before them, as older tokenizers do. */
static void list_named(token_list *list, int32_t ordinary, int32_t languages, int32_t extra,
                       int32_t added, int timestamps)
{
    static const char *const others[] = {"translate", "transcribe", "startoflm", "startofprev",
                                         "nocaptions", "notimestamps"};
    int32_t i;
    char name[32];
    list_open(list, 1 << 20, ordinary + languages + 1509 + extra + added);
    for (i = 0; i < ordinary; i++) {
        snprintf(name, sizeof name, "w%05d", (int)i);
        name[0] = i < 256 ? (char)i : name[0];
        list_add(list, name, i < 256 ? 1 : strlen(name));
    }
    list_add(list, "<|endoftext|>", 13);
    list_add(list, "<|startoftranscript|>", 21);
    for (i = 0; i < languages; i++) {
        snprintf(name, sizeof name, "<|%s|>", wnpu_language_code(i));
        list_add(list, name, strlen(name));
    }
    for (i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "<|%s|>", others[i]);
        list_add(list, name, strlen(name));
    }
    for (i = 0; i < extra; i++) {
        snprintf(name, sizeof name, "[before %d]", (int)i);
        list_add(list, name, strlen(name));
    }
    for (i = 0; i < 1501 && timestamps; i++) {
        snprintf(name, sizeof name, "<|%d.%02d|>", (int)(i / 50), (int)(i % 50 * 2));
        list_add(list, name, strlen(name));
    }
    for (i = 0; i < added; i++) {
        snprintf(name, sizeof name, "[added %d]", (int)i);
        list_add(list, name, strlen(name));
    }
}

/* Fine-tunes with added tokens have the sizes of other vocabularies. Their names tell; without
 * names what cannot be told is refused. */
static void test_added(void)
{
    static const struct {
        int32_t ordinary, languages, extra, added, n_vocab, mels;
        int timestamps, status;
    } named[] = {
        {50257, 99, 0, 0, 51865, 80, 1, WNPU_OK}, {50257, 99, 0, 0, 51865, 80, 0, WNPU_OK},
        {50257, 99, 0, 1, 51866, 80, 1, WNPU_OK},   /* a multilingual one and a token */
        {50257, 99, 0, 1, 51866, 128, 1, WNPU_OK},
        {50257, 100, 0, 0, 51866, 128, 1, WNPU_OK}, /* large-v3 */
        {50257, 100, 0, 0, 51866, 80, 1, WNPU_OK},
        {50256, 99, 0, 1, 51865, 80, 1, WNPU_OK},   /* an English one and a token */
        {50256, 99, 0, 2, 51866, 80, 1, WNPU_OK},
        {50257, 100, 0, 30, 51896, 128, 1, WNPU_OK}, /* CrisperWhisper 2.0's size */
        {50257, 99, 0, 31, 51896, 80, 1, WNPU_OK},
        {50257, 100, 30, 0, 51896, 128, 1, WNPU_E_UNSUPPORTED},
        {50257, 99, 1, 0, 51866, 80, 1, WNPU_E_UNSUPPORTED}
    };
    static const struct { int32_t ordinary, n_vocab, mels; int status; } plain[] = {
        {50257, 51865, 80, WNPU_OK}, {50257, 51866, 128, WNPU_OK}, {50256, 51864, 80, WNPU_OK},
        {50257, 51866, 80, WNPU_E_UNSUPPORTED}, {50258, 51866, 80, WNPU_E_UNSUPPORTED},
        {50257, 51867, 80, WNPU_E_MODEL}, {50257, 51896, 128, WNPU_E_MODEL},
        {50256, 51865, 80, WNPU_E_MODEL} /* an English one and a token */
    };
    token_list list;
    wnpu_error error;
    tokenizer_vocab m;
    size_t i;
    int status;
    for (i = 0; i < sizeof named / sizeof named[0]; i++) {
        list_named(&list, named[i].ordinary, named[i].languages, named[i].extra, named[i].added,
                   named[i].timestamps);
        vocab_mels = named[i].mels;
        status = vocab_open(&m, named[i].n_vocab, &list, &error);
        T_CHECK(status == named[i].status, "names %zu: %d, %s", i, status, error.message);
        if (status == WNPU_OK) {
            check_special(&m.v, named[i].ordinary, named[i].languages, named[i].ordinary > 50256);
        }
        vocab_close(&m);
        list_close(&list);
    }
    for (i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        list_synthetic(&list, plain[i].ordinary);
        vocab_mels = plain[i].mels;
        status = vocab_open(&m, plain[i].n_vocab, &list, &error);
        T_CHECK(status == plain[i].status, "without names %zu: %d, %s", i, status, error.message);
        vocab_close(&m);
        list_close(&list);
    }
    vocab_mels = 0;
}

static void test_refused(void)
{
    static const struct { long n_vocab, n_base; size_t bytes; } sizes[] = {
        {0, 1, 1}, {1, 0, 1}, {-1, 1, 1}, {51865, -1, 1}, {51865, 51866, 100}, {INT32_MAX, 1, 1},
        {INT32_MAX, INT32_MAX, 1}, {51865, 50257, SIZE_MAX}, {51865, 50257, (size_t)1 << 31}
    };
    wnpu_error error;
    token_list list;
    tokenizer_vocab m;
    size_t i;
    for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ar_arena arena;
        memset(&arena, 0, sizeof arena);
        T_CHECK(tk_check((int32_t)sizes[i].n_vocab, (int32_t)sizes[i].n_base, sizes[i].bytes,
                         &error) == WNPU_E_MODEL, "sizes %zu", i);
        tk_carve(&arena, &m.v, (int32_t)sizes[i].n_vocab, (int32_t)sizes[i].n_base, sizes[i].bytes);
        T_CHECK(arena.overflow, "taking sizes %zu", i);
    }
    list_synthetic(&list, 50200);
    T_CHECK(vocab_open(&m, 51865, &list, &error) == WNPU_E_MODEL, "tokens are missing");
    T_CHECK(strstr(error.message, "50200 of the 50257") != NULL, "%s", error.message);
    vocab_close(&m);
    list_close(&list);

    list_synthetic(&list, 300);
    T_CHECK(vocab_open(&m, 1908, &list, NULL) == WNPU_OK, "whole");
    T_CHECK(tk_add(&m.v, 300, "x", 1) == WNPU_E_INTERNAL, "one too many");
    m.v.n_added = 0;
    T_CHECK(tk_add(&m.v, 1, "x", 1) == WNPU_E_INTERNAL, "out of order");
    T_CHECK(tk_add(&m.v, 0, "x", m.v.bytes_size) == WNPU_E_MODEL, "too long");
    T_CHECK(tk_add(&m.v, 0, "x", SIZE_MAX) == WNPU_E_MODEL, "far too long");
    T_CHECK(tk_finish(&m.v, &error) == WNPU_E_MODEL, "truncated");
    T_CHECK(strstr(error.message, "after 0 of 300") != NULL, "%s", error.message);
    vocab_close(&m);
    list_close(&list);
}

/* Equal tokens: the lowest id wins. A missing byte: no encoding, but decoding. */
static void test_odd_vocabularies(void)
{
    token_list list;
    tokenizer_vocab m;
    int32_t ids[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    unsigned char mask[2048] = {0};
    list_synthetic(&list, 256);
    list.offset = realloc(list.offset, 300 * sizeof *list.offset);
    list_add(&list, "ab", 2);
    list_add(&list, "", 0);
    list_add(&list, "ab", 2);
    list_add(&list, "A", 1);
    list_add(&list, "xyz", 3);
    T_CHECK(vocab_open(&m, 261 + 1509 + 50, &list, NULL) == WNPU_OK, "duplicates");
    T_CHECK(tk_encode(&m.v, "abA", 3, ids, 8) == 2 && ids[0] == 256 && ids[1] == 'A', "lowest");
    T_CHECK(tk_encode(&m.v, "xyz", 3, ids, 8) == 1 && ids[0] == 260, "whole, without joins");
    T_CHECK(tk_encode(&m.v, " xyz", 4, ids, 8) == 4 && ids[1] == 'x', "no joins to it");
    check_name(&m.v, 257, "");
    check_name(&m.v, 258, "ab");
    check_name(&m.v, 259, "A");
    T_CHECK(tk_encode(&m.v, "x", 0, ids, 8) == 0, "no text");
    T_CHECK(tk_encode(&m.v, NULL, 0, NULL, 0) == 0, "no text at all");
    vocab_close(&m);
    list.bytes['q'] = 'Q';
    T_CHECK(vocab_open(&m, 261 + 1509 + 50, &list, NULL) == WNPU_OK, "opens without q");
    T_CHECK(tk_encode(&m.v, "abA", 3, ids, 8) == WNPU_E_UNSUPPORTED, "cannot encode");
    tk_suppress_non_speech(&m.v, mask);
    T_CHECK(memchr(mask, 1, sizeof mask) == NULL, "nothing to suppress");
    check_name(&m.v, 256, "ab");
    vocab_close(&m);
    list_close(&list);
}

/* A file whose tokens all fall into one slot of the table must be refused, not slow. */
static void test_collisions(void)
{
    enum { N = 256 + 600 };
    token_list list;
    wnpu_error error;
    tokenizer_vocab m;
    uint32_t i;
    list_synthetic(&list, 256);
    list.bytes = realloc(list.bytes, N * 16);
    list.offset = realloc(list.offset, (N + 1) * sizeof *list.offset);
    for (i = 0; list.n < N; i++) {
        char word[16];
        int length = snprintf(word, sizeof word, "c%u", i);
        if ((tk_hash(word, (size_t)length) & 2047u) == 77) {
            list_add(&list, word, (size_t)length);
        }
    }
    error.message[0] = '\0';
    T_CHECK(vocab_open(&m, N + 1509 + 99, &list, &error) == WNPU_E_MODEL, "collisions");
    T_CHECK(m.v.slot_mask == 2047, "slots %u", (unsigned)m.v.slot_mask);
    T_CHECK(strstr(error.message, "collide") != NULL, "%s", error.message);
    vocab_close(&m);
    list_close(&list);
}

/* ---- encoding ---- */

/* Expected tokens and lists, made by a separate program that follows the definition (regular
 * expression, then the lowest joined rank first) with the vocabularies of OpenAI's repository. */
#define MAX_IDS 34

static const struct encoding {
    const char *text;
    int32_t multilingual[MAX_IDS], english[MAX_IDS]; /* each ends with -1 */
} encodings[] = {
    {"Hello, world!",
     {15947, 11, 1002, 0, -1},
     {15496, 11, 995, 0, -1}},
    {" Hello world",
     {2425, 1002, -1},
     {18435, 995, -1}},
    {"hello",
     {675, 1913, -1},
     {31373, -1}},
    {"HELLO WORLD",
     {39, 8763, 46, 30029, 23704, -1},
     {13909, 3069, 46, 29564, -1}},
    {" And so, my fellow Americans, ask not what your country can do for you.",
     {400, 370, 11, 452, 7177, 6280, 11, 1029, 406, 437, 428, 1941, 393, 360, 337, 291, 13, -1},
     {843, 523, 11, 616, 5891, 3399, 11, 1265, 407, 644, 534, 1499, 460, 466, 329, 345, 13, -1}},
    {"it's we're they've I'm she'll he'd don't",
     {270, 311, 321, 434, 436, 600, 286, 478, 750, 603, 415, 1116, 500, 380, -1},
     {270, 338, 356, 821, 484, 1053, 314, 1101, 673, 1183, 339, 1549, 836, 470, -1}},
    {"IT'S WE'RE THEY'VE I'M SHE'LL HE'D DON'T",
     {3927, 6, 50, 15813, 6, 3850, 34970, 6, 7540, 286, 6, 44, 44179, 6, 24010, 11827, 6, 35,
      20403, 6, 51, -1},
     {2043, 6, 50, 12887, 6, 2200, 33302, 6, 6089, 314, 6, 44, 48052, 6, 3069, 11179, 6, 35,
      23917, 6, 51, -1}},
    {"'s 't 're 've 'm 'll 'd",
     {311, 922, 83, 922, 265, 922, 303, 922, 76, 922, 285, 922, 67, -1},
     {338, 705, 83, 705, 260, 705, 303, 705, 76, 705, 297, 705, 67, -1}},
    {"'sabc 'rest 'dx '",
     {311, 455, 66, 922, 4149, 922, 67, 87, 922, -1},
     {338, 39305, 705, 2118, 705, 34350, 705, -1}},
    {"rock 'n' roll's",
     {17799, 922, 77, 6, 3373, 311, -1},
     {10823, 705, 77, 6, 4836, 338, -1}},
    {"x''s",
     {87, 15025, 82, -1},
     {87, 7061, 82, -1}},
    {" 's",
     {922, 82, -1},
     {705, 82, -1}},
    {"'",
     {6, -1},
     {6, -1}},
    {"''",
     {15025, -1},
     {7061, -1}},
    {"l'ecole d'ete",
     {75, 6, 68, 27247, 274, 6, 3498, -1},
     {75, 6, 721, 2305, 288, 6, 14471, -1}},
    {"1234567890",
     {4762, 18, 8465, 22452, 23, 7771, -1},
     {10163, 2231, 30924, 3829, -1}},
    {" 3.14159",
     {805, 13, 7271, 5211, 24, -1},
     {513, 13, 1415, 19707, -1}},
    {"12,345.67 €",
     {4762, 11, 18, 8465, 13, 22452, 17450, -1},
     {1065, 11, 27712, 13, 3134, 10432, -1}},
    {"v2.0-rc1",
     {85, 17, 13, 15, 12, 81, 66, 16, -1},
     {85, 17, 13, 15, 12, 6015, 16, -1}},
    {"½ ⅓ ²³ Ⅷ ٣٤٥ १२३",
     {126, 121, 672, 227, 241, 1815, 110, 126, 111, 672, 227, 100, 1447, 96, 149, 97, 149, 98,
      220, 8703, 100, 8703, 101, 8703, 102, -1},
     {23141, 2343, 227, 241, 1587, 110, 126, 111, 2343, 227, 100, 18923, 96, 149, 97, 149, 98,
      220, 24231, 100, 24231, 101, 24231, 102, -1}},
    {"a1b2c3",
     {64, 16, 65, 17, 66, 18, -1},
     {64, 16, 65, 17, 66, 18, -1}},
    {"1st 2nd 3rd",
     {16, 372, 568, 273, 805, 7800, -1},
     {16, 301, 362, 358, 513, 4372, -1}},
    {" ",
     {220, -1},
     {220, -1}},
    {"  ",
     {220, 220, -1},
     {220, 220, -1}},
    {"   ",
     {220, 220, 220, -1},
     {220, 220, 220, -1}},
    {"a ",
     {64, 220, -1},
     {64, 220, -1}},
    {"a  ",
     {64, 220, 220, -1},
     {64, 220, 220, -1}},
    {"a   b",
     {64, 220, 220, 272, -1},
     {64, 220, 220, 275, -1}},
    {"  leading",
     {220, 5775, -1},
     {220, 3756, -1}},
    {"tab\there",
     {83, 455, 197, 6703, -1},
     {8658, 197, 1456, -1}},
    {"a\n\nb",
     {64, 198, 198, 65, -1},
     {64, 198, 198, 65, -1}},
    {"a \n b",
     {64, 220, 198, 272, -1},
     {64, 220, 198, 275, -1}},
    {"line\r\nline\r\n",
     {1889, 201, 198, 1889, 201, 198, -1},
     {1370, 201, 198, 1370, 201, 198, -1}},
    {"\n",
     {198, -1},
     {198, -1}},
    {" \t \n",
     {220, 197, 220, 198, -1},
     {220, 197, 220, 198, -1}},
    {"x\302\240y \343\200\200z",
     {87, 126, 254, 88, 220, 756, 222, 89, -1},
     {87, 1849, 88, 220, 5099, 222, 89, -1}},
    {"a\342\200\203\342\200\203b",
     {64, 913, 225, 913, 225, 65, -1},
     {64, 447, 225, 447, 225, 65, -1}},
    {"\302\205\342\200\250\342\200\251",
     {126, 227, 913, 101, 913, 102, -1},
     {126, 227, 447, 101, 447, 102, -1}},
    {"\034\035\013\014.",
     {216, 217, 199, 200, 13, -1},
     {216, 217, 199, 200, 13, -1}},
    {"no\342\200\213width",
     {1771, 3134, 21271, -1},
     {3919, 9525, 10394, -1}},
    {"Grüße aus München, Straße!",
     {20038, 774, 11451, 3437, 35840, 2470, 11, 43817, 0, -1},
     {8642, 9116, 39683, 68, 257, 385, 40790, 77, 6607, 11, 15195, 39683, 68, 0, -1}},
    {"Où êtes-vous né ? Ça va très bien.",
     {46, 5035, 18935, 12, 16514, 7024, 2506, 11527, 2773, 5732, 3610, 13, -1},
     {46, 127, 117, 6184, 103, 4879, 12, 31222, 299, 2634, 5633, 6184, 229, 64, 46935, 491,
      14064, 82, 275, 2013, 13, -1}},
    {"¿Qué tal, señor? ¡Adiós!",
     {25073, 15137, 4023, 11, 22188, 30, 6514, 32, 4504, 12994, 0, -1},
     {126, 123, 4507, 2634, 3305, 11, 384, 12654, 273, 30, 1587, 94, 2782, 72, 10205, 82, 0, -1}},
    {"Žluťoučký kůň",
     {129, 121, 2781, 27101, 263, 10236, 74, 11822, 350, 23241, 129, 230, -1},
     {129, 121, 2290, 129, 98, 280, 46195, 74, 127, 121, 479, 129, 107, 129, 230, -1}},
    {"İstanbul'da çığ",
     {20320, 43928, 1116, 64, 1844, 7366, -1},
     {128, 108, 24179, 1549, 64, 6184, 100, 30102, 33133, -1}},
    {"Việt Nam tiếng Việt",
     {41093, 21931, 10684, 34923, 872, 32936, -1},
     {38432, 157, 119, 229, 83, 17871, 46668, 157, 118, 123, 782, 16049, 157, 119, 229, 83, -1}},
    {"cafe\314\201 e\314\201te\314\201",
     {496, 2106, 32797, 308, 32797, 975, 32797, -1},
     {66, 8635, 136, 223, 304, 136, 223, 660, 136, 223, -1}},
    {"Привет, как дела?",
     {43971, 31259, 11, 3014, 46157, 30, -1},
     {140, 253, 21169, 18849, 38857, 16843, 20375, 11, 12466, 118, 16142, 31583, 12466, 112,
      16843, 30143, 16142, 30, -1}},
    {"Γειά σου Κόσμε",
     {138, 241, 6452, 3849, 43455, 19233, 41292, 9104, -1},
     {138, 241, 30950, 29945, 138, 105, 18074, 225, 26517, 139, 227, 7377, 248, 139, 234, 38392,
      34703, 30950, -1}},
    {"שלום עולם",
     {43911, 17333, 7535, 39383, -1},
     {50227, 40010, 27072, 147, 251, 14360, 95, 27072, 40010, 147, 251, -1}},
    {"مرحبا بالعالم",
     {29973, 5016, 3555, 995, 20666, 3615, 45340, -1},
     {25405, 26897, 148, 255, 39848, 12919, 17550, 101, 23525, 44690, 23525, 25405, -1}},
    {"नमस\340\245\215त\340\245\207 द\340\245\201न\340\244\277य\340\244\276",
     {35082, 48521, 45938, 27099, 36158, 21981, 8485, 99, 8703, 223, 35082, 33279, 48268, 17937,
      -1},
     {11976, 101, 11976, 106, 11976, 116, 24231, 235, 11976, 97, 24231, 229, 28225, 99, 24231,
      223, 11976, 101, 11976, 123, 11976, 107, 48077, -1}},
    {"สว\340\270\261สด\340\270\265ชาวโลก",
     {13715, 7643, 5981, 13715, 9345, 6033, 17080, 4943, 7643, 24929, 10133, 6223, -1},
     {19567, 103, 19567, 100, 19567, 109, 19567, 103, 19567, 242, 19567, 113, 19567, 232, 19567,
      110, 19567, 100, 31479, 224, 19567, 98, 19567, 223, -1}},
    {"გამარჯობა",
     {157, 225, 240, 157, 12476, 157, 225, 249, 157, 12476, 157, 225, 254, 157, 225, 107, 157,
      225, 251, 157, 225, 239, 157, 12476, -1},
     {157, 225, 240, 157, 225, 238, 157, 225, 249, 157, 225, 238, 157, 225, 254, 157, 225, 107,
      157, 225, 251, 157, 225, 239, 157, 225, 238, -1}},
    {"வணக\340\257\215கம\340\257\215",
     {8708, 15297, 4234, 2133, 4234, 6980, 2133, -1},
     {156, 106, 113, 156, 106, 96, 156, 106, 243, 156, 107, 235, 156, 106, 243, 156, 106, 106,
      156, 107, 235, -1}},
    {"ሰላም ልዑል",
     {157, 230, 108, 157, 230, 233, 157, 230, 251, 21879, 230, 235, 157, 233, 239, 157, 230,
      235, -1},
     {157, 230, 108, 157, 230, 233, 157, 230, 251, 28053, 230, 235, 157, 233, 239, 157, 230,
      235, -1}},
    {"你好，世界！今天天气很好。",
     {26410, 171, 120, 234, 24486, 171, 120, 223, 12074, 6135, 42204, 23801, 1543, -1},
     {19526, 254, 25001, 121, 171, 120, 234, 10310, 244, 45911, 234, 171, 120, 223, 20015, 232,
      25465, 25465, 36365, 242, 36181, 230, 25001, 121, 16764, -1}},
    {"こんにちは、世界。カタカナ",
     {38088, 1231, 24486, 1543, 10111, 12144, 10111, 26719, -1},
     {46036, 22174, 28618, 2515, 94, 31676, 23513, 10310, 244, 45911, 234, 16764, 21763, 23376,
      21763, 26229, -1}},
    {"안녕하세요 세계",
     {49200, 12831, 15377, 40179, -1},
     {168, 243, 230, 167, 227, 243, 47991, 246, 168, 226, 116, 168, 248, 242, 23821, 226, 116,
      166, 111, 226, -1}},
    {"𠮷野家𪚥",
     {172, 254, 106, 115, 37178, 5155, 172, 103, 248, 98, -1},
     {172, 254, 106, 115, 34932, 236, 22522, 114, 172, 103, 248, 98, -1}},
    {"😀😃 👩\342\200\215👩\342\200\215👧\342\200\215👦 "
     "🇩🇪🏳\357\270\217\342\200\215🌈",
     {13125, 222, 13125, 225, 36276, 102, 913, 235, 31017, 102, 913, 235, 31017, 100, 913, 235,
      31017, 99, 7385, 229, 102, 4222, 229, 103, 4222, 237, 111, 32306, 913, 235, 4222, 234,
      230, -1},
     {47249, 222, 47249, 225, 50169, 102, 447, 235, 41840, 102, 447, 235, 41840, 100, 447, 235,
      41840, 99, 12520, 229, 102, 8582, 229, 103, 8582, 237, 111, 37929, 447, 235, 8582, 234,
      230, -1}},
    {"♪♪♪ ♫ la la",
     {26130, 3961, 3846, 635, 635, -1},
     {17992, 103, 17992, 103, 17992, 103, 20724, 104, 8591, 8591, -1}},
    {"「こんにちは」『本』",
     {3246, 38088, 3253, 16553, 8802, 16604, -1},
     {13697, 46036, 22174, 28618, 2515, 94, 31676, 13700, 40493, 17312, 105, 40549, -1}},
    {"𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚",
     {10933, 242, 246, 10933, 242, 104, 10933, 242, 99, 10933, 242, 254, 10933, 242, 105, 10933,
      242, 94, 10933, 242, 95, 42244, 253, 247, 10933, 253, 248, -1},
     {47728, 242, 246, 47728, 242, 104, 47728, 242, 99, 47728, 242, 254, 47728, 242, 105, 47728,
      242, 94, 47728, 242, 95, 220, 47728, 253, 247, 47728, 253, 248, -1}},
    {"(applause) [MUSIC] {x} <b>",
     {7, 9138, 8, 542, 6848, 60, 10929, 87, 92, 2627, 65, 29, -1},
     {7, 1324, 75, 682, 8, 685, 44, 2937, 2149, 60, 1391, 87, 92, 1279, 65, 29, -1}},
    {"--- ... !!! ?\??",
     {20075, 1097, 25901, 29678, -1},
     {6329, 2644, 220, 10185, 34913, -1}},
    {"http://example.com/?q=1&r=%20#top",
     {357, 83, 79, 21492, 3121, 335, 781, 13, 1112, 14, 30, 80, 28, 16, 5, 81, 28, 4, 2009, 2,
      19337, -1},
     {4023, 1378, 20688, 13, 785, 20924, 80, 28, 16, 5, 81, 28, 4, 1238, 2, 4852, -1}},
    {"user_name@example.org",
     {18088, 62, 16344, 31, 3121, 335, 781, 13, 4646, -1},
     {7220, 62, 3672, 31, 20688, 13, 2398, -1}},
    {"int main(void) { return 0; }",
     {686, 2135, 7, 3080, 327, 8, 10929, 2736, 1958, 26, 49870, -1},
     {600, 1388, 7, 19382, 8, 1391, 1441, 657, 26, 1782, -1}},
    {"$5 £6 ¥7 100% #1 @you ~ ^ | \\ `x`",
     {3, 20, 14378, 21, 1815, 98, 22, 2319, 4, 3536, 16, 10428, 5616, 11938, 18956, 18362,
      12033, 28279, 87, 63, -1},
     {3, 20, 4248, 21, 38221, 22, 1802, 4, 1303, 16, 2488, 5832, 5299, 10563, 930, 3467, 4600,
      87, 63, -1}},
    {"<|endoftext|>",
     {27, 91, 3999, 844, 3828, 91, 29, -1},
     {27, 91, 437, 1659, 5239, 91, 29, -1}},
    {"<|startoftranscript|><|en|><|0.00|>",
     {27, 91, 24419, 6750, 25392, 5944, 91, 29986, 91, 268, 91, 29986, 91, 15, 13, 628, 91, 29,
      -1},
     {27, 91, 9688, 11205, 26084, 6519, 91, 6927, 91, 268, 91, 6927, 91, 15, 13, 405, 91, 29, -1}},
    {"supercalifragilisticexpialidocious",
     {48172, 9895, 351, 3731, 388, 468, 573, 87, 79, 831, 2925, 4139, -1},
     {16668, 9948, 361, 22562, 346, 396, 501, 42372, 498, 312, 32346, -1}},
    {"antidisestablishmentarianism aaaaaaaaaaaaaaaaaaa",
     {394, 40920, 33542, 1933, 518, 10652, 1434, 257, 16425, 16425, 16425, 16425, 4332, -1},
     {415, 29207, 44390, 3699, 1042, 257, 24794, 24794, 24794, 24794, 7252, -1}},
    {"zzzzqxjkvbwq",
     {4313, 4313, 80, 87, 73, 74, 85, 65, 86, 80, -1},
     {3019, 3019, 80, 87, 73, 74, 85, 65, 86, 80, -1}},
    {"Dr. Smith's “quote” — it’s",
     {12274, 13, 8538, 311, 1059, 250, 25016, 913, 251, 3466, 309, 913, 247, 82, -1},
     {6187, 13, 4176, 338, 564, 250, 22708, 447, 251, 851, 340, 447, 247, 82, -1}},
    {"\377\376",
     {187, 186, -1},
     {187, 186, -1}},
    {"caf\351 ol\351",
     {496, 69, 165, 2545, 165, -1},
     {66, 1878, 165, 25776, 165, -1}},
    {"\360\237\230",
     {13125, -1},
     {47249, -1}},
    {"\300\257x\355\240\200y",
     {124, 107, 87, 169, 254, 222, 88, -1},
     {124, 107, 87, 169, 254, 222, 88, -1}},
    {" \200a",
     {220, 222, 64, -1},
     {220, 222, 64, -1}},
    {"control \001\002\177 end",
     {40905, 220, 189, 190, 221, 917, -1},
     {13716, 220, 189, 190, 221, 886, -1}},
    {"\357\277\275",
     {5342, -1},
     {4210, -1}}
};

static const int32_t non_speech_multilingual[] = {
    1, 2, 7, 8, 9, 10, 14, 25, 26, 27, 28, 29, 31, 58, 59, 60, 61, 62, 63, 90, 91, 92, 93, 359,
    503, 522, 542, 873, 893, 902, 918, 922, 931, 1350, 1853, 1982, 2460, 2627, 3246, 3253, 3268,
    3536, 3846, 3961, 4183, 4667, 6585, 6647, 7273, 9061, 9383, 10428, 10929, 11938, 12033,
    12331, 12562, 13793, 14157, 14635, 15265, 15618, 16553, 16604, 18362, 18956, 20075, 21675,
    22520, 26130, 26161, 26435, 28279, 29464, 31650, 32302, 32470, 36865, 42863, 47425, 49870,
    50254
};

static const int32_t non_speech_english[] = {
    1, 2, 7, 8, 9, 10, 14, 25, 26, 27, 28, 29, 31, 58, 59, 60, 61, 62, 63, 90, 91, 92, 93, 357,
    366, 438, 532, 685, 705, 796, 930, 1058, 1220, 1267, 1279, 1303, 1343, 1377, 1391, 1635,
    1782, 1875, 2162, 2361, 2488, 3467, 4008, 4211, 4600, 4808, 5299, 5855, 6329, 7203, 9609,
    9959, 10563, 10786, 11420, 11709, 11907, 13163, 13697, 13700, 14808, 15306, 16410, 16791,
    17992, 19203, 19510, 20724, 22305, 22935, 27007, 30109, 30420, 33409, 34949, 40283, 40493,
    40549, 47282, 49146
};

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

static void check_encodings(const tk_vocab *v)
{
    int i, k;
    for (i = 0; i < COUNT(encodings); i++) {
        const char *text = encodings[i].text;
        const int32_t *want = v->multilingual ? encodings[i].multilingual : encodings[i].english;
        int32_t ids[MAX_IDS];
        int64_t n = tk_encode(v, text, strlen(text), ids, MAX_IDS);
        for (k = 0; want[k] >= 0 && k < n && ids[k] == want[k]; k++) {
        }
        T_CHECK(want[k] < 0 && k == n, "\"%s\": token %d of %d is %d, not %d", text, k, (int)n,
                k < n ? (int)ids[k] : -1, (int)want[k]);
        for (k = 0; k < n; k++) { /* any capacity: the same count, and nothing behind it written */
            int32_t some[MAX_IDS];
            memset(some, 0x55, sizeof some);
            T_CHECK(tk_encode(v, text, strlen(text), some, (size_t)k) == n, "count");
            T_CHECK(some[k] == 0x55555555 && memcmp(some, ids, (size_t)k * sizeof *ids) == 0,
                    "\"%s\" into %d", text, k);
        }
    }
}

static void test_encodings_multilingual(void)
{
    tokenizer_vocab m;
    if (model_tiny(&m)) {
        check_encodings(&m.v);
        vocab_close(&m);
    }
}

static void test_encodings_english(void)
{
    tokenizer_vocab m;
    if (model_base_en(&m)) {
        check_encodings(&m.v);
        vocab_close(&m);
    }
}

/* Joining by the definition, for one piece of any length. find() here is a binary search in a
 * sorted list, to share nothing with the library but the bytes of the tokens. */
typedef struct reference {
    const tk_vocab *v;
    int32_t *sorted;
    int32_t n;
} reference;

static int compare_tokens(const char *a, size_t n, const char *b, size_t m)
{
    int order = memcmp(a, b, n < m ? n : m);
    return order != 0 ? order : n < m ? -1 : n > m;
}

static const tk_vocab *sorting; /* qsort() has no context */

static int compare_ids(const void *left, const void *right)
{
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    size_t n, m;
    const char *p = tk_text(sorting, a, &n), *q = tk_text(sorting, b, &m);
    int order = compare_tokens(p, n, q, m);
    return order != 0 ? order : a < b ? -1 : a > b;
}

static void reference_open(reference *r, const tk_vocab *v)
{
    int32_t i;
    r->v = v;
    r->n = v->eot;
    r->sorted = malloc((size_t)r->n * sizeof *r->sorted);
    for (i = 0; i < r->n; i++) {
        r->sorted[i] = i;
    }
    sorting = v;
    qsort(r->sorted, (size_t)r->n, sizeof *r->sorted, compare_ids);
}

static int32_t reference_find(const reference *r, const char *bytes, size_t length)
{
    int32_t low = 0, high = r->n - 1;
    while (low <= high) {
        int32_t middle = (low + high) / 2;
        size_t n;
        const char *text = tk_text(r->v, r->sorted[middle], &n);
        int order = compare_tokens(bytes, length, text, n);
        if (order == 0) {
            return r->sorted[middle];
        }
        if (order < 0) {
            high = middle - 1;
        } else {
            low = middle + 1;
        }
    }
    return INT32_MAX;
}

static size_t reference_join(const reference *r, const char *text, size_t length, int32_t *ids)
{
    size_t *start = malloc((length + 1) * sizeof *start), i, n = length;
    int32_t *rank = malloc((length + 1) * sizeof *rank), whole = reference_find(r, text, length);
    for (i = 0; i <= length; i++) {
        start[i] = i;
        rank[i] = i + 2 <= length ? reference_find(r, text + i, 2) : INT32_MAX;
    }
    while (n > 1) {
        size_t best = 0;
        for (i = 0; i + 1 < n; i++) {
            best = rank[i] < rank[best] ? i : best;
        }
        if (rank[best] == INT32_MAX) {
            break;
        }
        for (i = best + 1; i < n; i++) {
            start[i] = start[i + 1];
            rank[i] = rank[i + 1];
        }
        n--;
        for (i = best > 0 ? best - 1 : 0; i <= best; i++) {
            rank[i] = i + 1 < n ? reference_find(r, text + start[i], start[i + 2] - start[i])
                                : INT32_MAX;
        }
    }
    for (i = 0; i < n; i++) {
        ids[i] = reference_find(r, text + start[i], start[i + 1] - start[i]);
    }
    if (whole != INT32_MAX) {
        ids[0] = whole;
        n = 1;
    }
    free(start);
    free(rank);
    return n;
}

/* Appends a code point from U+0080 to U+FFFF. */
static size_t put_utf8(char *out, uint32_t code)
{
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    out[0] = (char)(0xe0 | code >> 12);
    out[1] = (char)(0x80 | (code >> 6 & 0x3f));
    out[2] = (char)(0x80 | (code & 0x3f));
    return 3;
}

/* One piece without a place to split, of up to size bytes; kind chooses the script. */
static size_t one_piece(char *out, size_t size, int kind)
{
    size_t n = 0;
    while (n + 3 <= size) {
        uint32_t r = random_next();
        switch (kind) {
        case 0: out[n++] = 'a'; break;
        case 1: out[n++] = (char)('a' + r % 26); break;
        case 2: out[n++] = "etaoinshrdlu"[r % 12]; break;
        case 3: n += put_utf8(out + n, 0x4e00 + r % 0x5000); break;  /* Han */
        case 4: n += put_utf8(out + n, 0x430 + r % 32); break;       /* Cyrillic */
        case 5: n += put_utf8(out + n, 0x3042 + r % 80); break;      /* Hiragana */
        case 6: n += put_utf8(out + n, 0xac00 + r % 0x2ba4); break;  /* Hangul */
        case 7: out[n++] = (char)('0' + r % 10); break;
        case 8: out[n++] = "-=*.!"[r % 5]; break;
        case 9: out[n++] = '-'; break;
        case 10: out[n++] = ' '; break;
        case 11: out[n] = "ab"[n % 2]; n++; break;
        default: out[n++] = (char)(0x80 + r % 64); break;            /* no UTF-8 at all */
        }
    }
    return n;
}

/* Pieces as long as the window, longer, and much longer: the same tokens as joining at once. */
static void check_pieces(const tk_vocab *v)
{
    static const size_t sizes[] = {5, 20, 100, 1000, 1023, 1024, 1025, 1030, 2048, 5000};
    static char text[5000];
    static int32_t got[5000], want[5000];
    reference r;
    int kind, i;
    reference_open(&r, v);
    for (kind = 0; kind < 13; kind++) {
        for (i = 0; i < COUNT(sizes); i++) {
            size_t length = one_piece(text, sizes[i], kind);
            size_t n = reference_join(&r, text, length, want);
            int64_t m = tk_encode(v, text, length, got, 5000);
            T_CHECK((size_t)m == n && memcmp(got, want, n * sizeof *got) == 0,
                    "kind %d, %zu bytes: %ld tokens, not %zu", kind, length, (long)m, n);
        }
    }
    free(r.sorted);
}

/* Every token's text, and any bytes, survive encoding and decoding. */
static int round_trip(const tk_vocab *v, const char *text, size_t length, int32_t *ids,
                      size_t capacity)
{
    int64_t n = tk_encode(v, text, length, ids, capacity), i;
    size_t at = 0;
    for (i = 0; i < n; i++) {
        size_t bytes;
        const char *part = tk_text(v, ids[i], &bytes);
        if (part == NULL || bytes > length - at || memcmp(part, text + at, bytes) != 0) {
            return 0;
        }
        at += bytes;
    }
    return n >= 0 && n <= (int64_t)capacity && at == length;
}

static void tokenizer_check_tokens(const tk_vocab *v)
{
    int32_t id, ids[256];
    int differ = 0;
    for (id = 0; id < v->eot; id++) {
        size_t length;
        const char *text = tk_text(v, id, &length);
        T_CHECK(text[length] == '\0', "token %d has no NUL behind it", (int)id);
        T_CHECK(round_trip(v, text, length, ids, 256), "token %d", (int)id);
        T_CHECK(length == 0 || tk_find(v, text, length) == id, "token %d is not found", (int)id);
        differ += length > 0 && (tk_encode(v, text, length, ids, 256) != 1 || ids[0] != id);
    }
    /* Tokens that the pattern cuts, or that are half a character; counted by the same separate
     * program that made the table. */
    T_CHECK(differ == (v->multilingual ? 497 : 17), "%d tokens encode to others", differ);
}

/* Random text of kind: bytes; ASCII; code points of the first three planes. */
static size_t random_text(char *out, size_t size, int kind)
{
    size_t n = 0, want = random_next() % (size - 4);
    while (n < want) {
        uint32_t r = random_next();
        if (kind == 0) {
            out[n++] = (char)r;
        } else if (kind == 1) {
            out[n++] = (r & 0x300) == 0 ? "' \n\t"[r % 4] : (char)(r % 128);
        } else if ((r & 3) == 0) {
            out[n++] = "aB 1'\n-s"[r >> 2 & 7];
        } else {
            uint32_t code = 0x80 + random_next() % 0x2ff80;
            if (code >= 0x10000) {
                out[n++] = (char)(0xf0 | code >> 18);
                out[n++] = (char)(0x80 | (code >> 12 & 0x3f));
                out[n++] = (char)(0x80 | (code >> 6 & 0x3f));
                out[n++] = (char)(0x80 | (code & 0x3f));
            } else if (code < 0xd800 || code > 0xdfff) {
                n += put_utf8(out + n, code);
            }
        }
    }
    return n;
}

static void check_random(const tk_vocab *v)
{
    int i;
    for (i = 0; i < 3000; i++) {
        char text[400];
        size_t length = random_text(text, sizeof text, i % 3);
        char *exact = malloc(length + 1); /* lets the sanitizer see a read past the end */
        int32_t *ids = malloc((length + 1) * sizeof *ids);
        memcpy(exact, text, length);
        exact = realloc(exact, length > 0 ? length : 1);
        T_CHECK(round_trip(v, exact, length, ids, length), "random text %d", i);
        free(exact);
        free(ids);
    }
}

static void check_all(const tk_vocab *v)
{
    tokenizer_check_tokens(v);
    check_pieces(v);
    check_random(v);
}

static void test_round_trip_multilingual(void)
{
    tokenizer_vocab m;
    if (model_tiny(&m)) {
        size_t length = 1;
        T_CHECK(tk_text(&m.v, 50256, &length)[0] == '\0' && length == 0, "50256 is empty");
        check_special(&m.v, 50257, 99, 1);
        check_all(&m.v);
        vocab_close(&m);
    }
}

static void test_round_trip_english(void)
{
    tokenizer_vocab m;
    if (model_base_en(&m)) {
        check_special(&m.v, 50256, 99, 0);
        check_all(&m.v);
        vocab_close(&m);
    }
}

/* Without a model: a small vocabulary with chances to join, in the wrong order too. */
static void test_round_trip_synthetic(void)
{
    static const char *const joins[] = {
        "in", " t", "th", "the", " the", "er", "aa", "aaaa", "ab", "abab", "\xe4\xb8", "  ", "    ",
        "--", "----", "an", "ana", "nan", "na", "anan", "et", "ta", "12", "123", "\xd0\xb0", "ba"
    };
    token_list list;
    tokenizer_vocab m;
    int i;
    list_synthetic(&list, 256);
    list.bytes = realloc(list.bytes, 4096);
    list.offset = realloc(list.offset, 400 * sizeof *list.offset);
    for (i = 0; i < COUNT(joins); i++) {
        list_add(&list, joins[i], strlen(joins[i]));
    }
    T_CHECK(vocab_open(&m, list.n + 1509 + 99, &list, NULL) == WNPU_OK, "opens");
    check_pieces(&m.v);
    check_random(&m.v);
    vocab_close(&m);
    list_close(&list);
}

/* Sizes of classes in Unicode 14.0, and characters at their edges. */
static void test_classes(void)
{
    static const struct { int32_t code; tk_class kind; } some[] = {
        {'A', TK_LETTER}, {'z', TK_LETTER}, {'@', TK_OTHER}, {'[', TK_OTHER}, {'`', TK_OTHER},
        {'{', TK_OTHER}, {'0', TK_NUMBER}, {'9', TK_NUMBER}, {'/', TK_OTHER}, {':', TK_OTHER},
        {0, TK_OTHER}, {8, TK_OTHER}, {9, TK_SPACE}, {13, TK_SPACE}, {14, TK_OTHER},
        {0x1c, TK_OTHER}, {0x1f, TK_OTHER}, {0x20, TK_SPACE}, {0x7f, TK_OTHER}, {0x85, TK_SPACE},
        {0xa0, TK_SPACE}, {0xaa, TK_LETTER}, {0xb2, TK_NUMBER}, {0xb5, TK_LETTER},
        {0xd7, TK_OTHER}, {0x300, TK_OTHER}, {0x660, TK_NUMBER}, {0x180e, TK_OTHER},
        {0x200a, TK_SPACE}, {0x200b, TK_OTHER}, {0x2028, TK_SPACE}, {0x2160, TK_NUMBER},
        {0x3000, TK_SPACE}, {0x3007, TK_NUMBER}, {0x4e00, TK_LETTER}, {0xd800, TK_OTHER},
        {0xfeff, TK_OTHER}, {0x1d7ff, TK_NUMBER}, {0x1f600, TK_OTHER}, {0x3134a, TK_LETTER},
        {0x10ffff, TK_OTHER}, {-1, TK_OTHER}
    };
    long count[4] = {0, 0, 0, 0};
    int32_t code;
    int i;
    for (code = 0; code < 0x110000; code++) {
        count[tk_classify(code)]++;
    }
    T_CHECK(count[TK_LETTER] == 131756, "%ld letters", count[TK_LETTER]);
    T_CHECK(count[TK_NUMBER] == 1791, "%ld numbers", count[TK_NUMBER]);
    T_CHECK(count[TK_SPACE] == 25, "%ld spaces", count[TK_SPACE]);
    for (i = 0; i < COUNT(some); i++) {
        T_CHECK(tk_classify(some[i].code) == some[i].kind, "U+%04X is %d",
                (unsigned)some[i].code, (int)tk_classify(some[i].code));
    }
}

/* ---- suppression ---- */

static void check_suppression(const tk_vocab *v, const int32_t *want, int n)
{
    unsigned char *mask = calloc((size_t)v->n_vocab, 1);
    int32_t id;
    int i = 0;
    tk_suppress_non_speech(v, mask);
    for (id = 0; id < v->n_vocab; id++) {
        int expected = i < n && want[i] == id;
        T_CHECK(mask[id] == expected, "token %d: %d", (int)id, (int)mask[id]);
        i += expected;
    }
    T_CHECK(i == n, "%d of %d in the list", i, n);
    memset(mask, 0, (size_t)v->n_vocab);
    tk_suppress_special(v, mask);
    for (id = 0; id < v->n_vocab; id++) {
        int expected = id == v->transcribe || id == v->translate || id == v->sot ||
                       id == v->sot_prev || id == v->sot_lm || id == v->no_speech ||
                       (id >= v->language0 && id < v->translate) || id > v->timestamp0 + 1500;
        T_CHECK(mask[id] == expected, "special %d: %d", (int)id, (int)mask[id]);
    }
    free(mask);
}

static void test_suppression_multilingual(void)
{
    tokenizer_vocab m;
    if (model_tiny(&m)) {
        check_suppression(&m.v, non_speech_multilingual, COUNT(non_speech_multilingual));
        vocab_close(&m);
    }
}

static void test_suppression_english(void)
{
    tokenizer_vocab m;
    if (model_base_en(&m)) {
        check_suppression(&m.v, non_speech_english, COUNT(non_speech_english));
        vocab_close(&m);
    }
}

/* With single bytes only: the single symbols, the space of " -", and the first byte of music. */
static void test_suppression_synthetic(void)
{
    token_list list;
    tokenizer_vocab m;
    int32_t want[64];
    int n = 0, c;
    for (c = 1; c < 256; c++) {
        if (c == 0xe2 || strchr(" \"#()*+/:;<=>@[\\]^_`{|}~", c) != NULL) {
            want[n++] = c;
        }
    }
    list_synthetic(&list, 256);
    T_CHECK(vocab_open(&m, 256 + 1509 + 99, &list, NULL) == WNPU_OK, "opens");
    check_suppression(&m.v, want, n);
    vocab_close(&m);
    list_close(&list);
}

/* ---- UTF-8 ---- */

/* Well-formed byte sequences, table 3-7 of the Unicode standard. */
static const unsigned char well_formed[9][5][2] = {
    {{1, 0}, {0x00, 0x7f}},
    {{2, 0}, {0xc2, 0xdf}, {0x80, 0xbf}},
    {{3, 0}, {0xe0, 0xe0}, {0xa0, 0xbf}, {0x80, 0xbf}},
    {{3, 0}, {0xe1, 0xec}, {0x80, 0xbf}, {0x80, 0xbf}},
    {{3, 0}, {0xed, 0xed}, {0x80, 0x9f}, {0x80, 0xbf}},
    {{3, 0}, {0xee, 0xef}, {0x80, 0xbf}, {0x80, 0xbf}},
    {{4, 0}, {0xf0, 0xf0}, {0x90, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}},
    {{4, 0}, {0xf1, 0xf3}, {0x80, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}},
    {{4, 0}, {0xf4, 0xf4}, {0x80, 0x8f}, {0x80, 0xbf}, {0x80, 0xbf}}
};

/* How many bytes of text match the beginning of a row, and whether that is all of the row. */
static size_t matches(int row, const unsigned char *text, size_t length, int *whole)
{
    size_t n = well_formed[row][0][0], i = 0;
    while (i < n && i < length && text[i] >= well_formed[row][i + 1][0] &&
           text[i] <= well_formed[row][i + 1][1]) {
        i++;
    }
    *whole = i == n;
    return i;
}

/* U+FFFD for each maximal subpart: the longest beginning of any well-formed sequence, or one byte. */
static size_t reference_utf8(char *out, const unsigned char *text, size_t length)
{
    size_t at = 0, n = 0;
    while (at < length) {
        size_t longest = 0;
        int row, whole = 0;
        for (row = 0; row < 9 && !whole; row++) {
            size_t match = matches(row, text + at, length - at, &whole);
            longest = match > longest ? match : longest;
        }
        if (whole && text[at] != 0) {
            memcpy(out + n, text + at, longest);
            n += longest;
        } else {
            memcpy(out + n, "\357\277\275", 3);
            n += 3;
        }
        at += longest > 0 ? longest : 1;
    }
    return n;
}

static void check_utf8(const unsigned char *text, size_t length)
{
    char want[64], got[64];
    size_t n = reference_utf8(want, text, length), m;
    memset(got, 'x', sizeof got);
    m = tk_sanitize_utf8(got, sizeof got, (const char *)text, length);
    if (m != n || memcmp(got, want, n) != 0 || got[n] != '\0' || got[n + 1] != 'x') {
        T_CHECK(0, "%zu bytes %02x %02x %02x %02x: %zu, not %zu", length, text[0],
                length > 1 ? text[1] : 0, length > 2 ? text[2] : 0, length > 3 ? text[3] : 0, m,
                n);
    }
}

static void test_utf8_exhaustive(void)
{
    /* Bytes at the edges of the rules. */
    static const unsigned char edges[] = {
        0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1,
        0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff
    };
    const unsigned n = sizeof edges;
    unsigned char text[8] = {0};
    unsigned i, k;
    check_utf8(text, 0);
    for (i = 0; i < 65536; i++) {
        text[0] = (unsigned char)(i >> 8);
        text[1] = (unsigned char)i;
        check_utf8(text, 1);
        check_utf8(text, 2);
        for (k = 0; k < n; k++) {
            text[2] = edges[k];
            check_utf8(text, 3);
        }
    }
    for (i = 0; i < n * n * n * n; i++) {
        text[0] = edges[i % n];
        text[1] = edges[i / n % n];
        text[2] = edges[i / n / n % n];
        text[3] = edges[i / n / n / n];
        check_utf8(text, 4);
    }
    for (i = 0; i < 100000; i++) {
        for (k = 0; k < 8; k++) {
            text[k] = (random_next() & 1) != 0 ? edges[random_next() % n]
                                               : (unsigned char)random_next();
        }
        check_utf8(text, 5 + i % 4);
    }
}

#define R "\357\277\275"

static void test_utf8_table(void)
{
    static const struct { const char *in; size_t length; const char *want; } table[] = {
        {"", 0, ""}, {"abc", 3, "abc"}, {"a\0b", 3, "a" R "b"},
        {"\302\200\337\277", 4, "\302\200\337\277"},
        {"\340\240\200\355\237\277\356\200\200\357\277\277", 12,
         "\340\240\200\355\237\277\356\200\200\357\277\277"},
        {"\360\220\200\200\364\217\277\277", 8, "\360\220\200\200\364\217\277\277"},
        /* Tables 3-8 to 3-11 of the Unicode standard: overlong, surrogates, out of range,
         * truncated. */
        {"\300\257\340\200\277\360\201\202\101", 9, R R R R R R R R "A"},
        {"\355\240\200\355\277\277\355\257\101", 9, R R R R R R R R "A"},
        {"\364\221\222\223\377\101\200\277\102", 9, R R R R R "A" R R "B"},
        {"\341\200\342\360\221\222\361\277\101", 9, R R R R "A"}
    };
    int i;
    for (i = 0; i < COUNT(table); i++) {
        char out[64];
        size_t n = tk_sanitize_utf8(out, sizeof out, table[i].in, table[i].length);
        T_CHECK(n == strlen(table[i].want) && strcmp(out, table[i].want) == 0, "row %d", i);
    }
}

/* A capacity that is too small: whole characters, a NUL, nothing behind, and never a later
 * character after one that was left out. */
static void test_utf8_capacity(void)
{
    static const char in[] = "a\303\251\342\230\203\377\360\237\230\200z";
    static const char want[] = "a\303\251\342\230\203" R "\360\237\230\200z";
    static const size_t ends[] = {0, 1, 3, 6, 9, 13, 14};
    const size_t need = sizeof want - 1;
    size_t capacity;
    for (capacity = 0; capacity <= need + 2; capacity++) {
        char out[32];
        size_t n, i, fits = 0;
        memset(out, 'x', sizeof out);
        n = tk_sanitize_utf8(capacity > 0 ? out : NULL, capacity, in, sizeof in - 1);
        T_CHECK(n == need, "%zu bytes needed", n);
        for (i = 0; i < sizeof ends / sizeof ends[0]; i++) {
            fits = ends[i] < capacity ? ends[i] : fits;
        }
        T_CHECK(memcmp(out, want, fits) == 0, "capacity %zu", capacity);
        T_CHECK(out[capacity] == 'x', "capacity %zu passed", capacity);
        T_CHECK(capacity == 0 || (out[fits] == '\0' && strlen(out) == fits), "end at %zu",
                capacity);
    }
}

static void tokenizer_tests(void)
{
    t_run("languages", test_languages);
    t_run("scripts of Chinese", test_scripts);
    t_run("special tokens", test_special);
    t_run("special tokens of other vocabularies", test_special_other);
    t_run("tokens added by fine-tunes", test_added);
    t_run("vocabularies that are refused", test_refused);
    t_run("odd vocabularies", test_odd_vocabularies);
    t_run("colliding tokens", test_collisions);
    t_run("character classes", test_classes);
    t_run("encoding, multilingual", test_encodings_multilingual);
    t_run("encoding, english", test_encodings_english);
    t_run("round trip, synthetic", test_round_trip_synthetic);
    t_run("round trip, multilingual", test_round_trip_multilingual);
    t_run("round trip, english", test_round_trip_english);
    t_run("suppression, synthetic", test_suppression_synthetic);
    t_run("suppression, multilingual", test_suppression_multilingual);
    t_run("suppression, english", test_suppression_english);
    t_run("utf-8 table", test_utf8_table);
    t_run("utf-8 exhaustive", test_utf8_exhaustive);
    t_run("utf-8 capacity", test_utf8_capacity);
}
