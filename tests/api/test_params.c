/* test_params.c - run parameters by name: the table that wnpu_param_info() shows against the
 * structure that wnpu_params_init() fills, and every value that wnpu_params_set() takes or refuses.
 * Uses the public header only. */
#include "../../whisper_npu.h"
#include "../lib/t.h"
#include <ctype.h>
#include <math.h>

/* Fields that are no parameters by name: callbacks and what belongs to them. */
static const char *const callbacks[] = {"on_segment", "on_progress", "user", "on_logits",
                                        "on_token", "on_voice", "suppress_lines", "hotword_lines",
                                        "language_lines"};

static wnpu_param param(size_t index)
{
    wnpu_param info;
    memset(&info, 0, sizeof info);
    info.struct_size = (uint32_t)sizeof info;
    if (wnpu_param_info(index, &info) != WNPU_OK) {
        info.name = NULL;
    }
    return info;
}

static int set(wnpu_params *p, const char *name, const char *value)
{
    wnpu_error error = {0, ""};
    int code = wnpu_params_set(p, name, value, &error);
    T_CHECK((code == WNPU_OK) == (error.message[0] == '\0') && error.code == code,
            "%s=%s: %d but \"%s\"", name, value, code, error.message);
    return code;
}

static int is_number(const wnpu_param *info)
{
    return info->type == WNPU_PARAM_INT || info->type == WNPU_PARAM_FLOAT;
}

static void test_table(void)
{
    size_t i, j, n_options = 0;
    for (i = 0; param(i).name != NULL; i++) {
        wnpu_param a = param(i);
        T_CHECK(a.meaning != NULL && a.group != NULL && a.struct_size == sizeof a, "%s", a.name);
        T_CHECK(strlen(a.meaning) < 100 && strchr(a.meaning, '\n') == NULL, "%s: \"%s\"", a.name,
                a.meaning);
        T_CHECK((a.type == WNPU_PARAM_CHOICE) == (a.choices != NULL), "%s: choices", a.name);
        T_CHECK(!is_number(&a) || (a.fallback >= a.low && a.fallback <= a.high) ||
                a.fallback == a.off, "%s: default %g", a.name, a.fallback);
        n_options += a.option != NULL;
        for (j = 0; j < i; j++) {
            wnpu_param b = param(j);
            T_CHECK(strcmp(a.name, b.name) != 0, "two parameters %s", a.name);
            T_CHECK(a.option == NULL || b.option == NULL || strcmp(a.option, b.option) != 0,
                    "two options %s", a.option);
        }
        for (j = 0; j < sizeof callbacks / sizeof callbacks[0]; j++) {
            T_CHECK(strcmp(a.name, callbacks[j]) != 0, "%s", a.name);
        }
    }
    T_CHECK(i >= 39 && n_options >= 30, "%d parameters, %d options", (int)i, (int)n_options);
    T_CHECK(wnpu_param_info(i, NULL) == WNPU_E_ARGUMENT && wnpu_param_info(0, NULL) ==
            WNPU_E_ARGUMENT, "nothing to fill");
}

/* The overview before wnpu_params in the header lists the same parameters by the same groups in the
 * same order: " * Title (group)..." and " *   name ...". The order of the fields is another matter,
 * because those that are added are at the end: here each is a field. */
static void test_overview(void)
{
    char line[256], group[64] = "", word[64];
    size_t n = 0, fields = 0, i;
    int inside = 0;
    FILE *file = fopen("whisper_npu.h", "r");
    T_CHECK(file != NULL, "whisper_npu.h is not in the current directory");
    while (file != NULL && fgets(line, sizeof line, file) != NULL &&
           strncmp(line, "typedef struct wnpu_params {", 28) != 0) {
        inside = inside || strncmp(line, "/* Run parameters.", 18) == 0;
        if (!inside || strncmp(line, " * Callbacks", 12) == 0) {
            inside = 0;
        } else if (sscanf(line, " * %*[A-Za-z ] (%31[a-z])", word) == 1) {
            snprintf(group, sizeof group, "%s", word);
        } else if (sscanf(line, " *   %63[a-z_]", word) == 1 && strncmp(line, " *    ", 6) != 0 &&
                   strncmp(line, " *   ", 5) == 0) {
            wnpu_param info = param(n);
            T_CHECK(info.name != NULL && strcmp(info.name, word) == 0 &&
                    strcmp(info.group, group) == 0, "number %d: %s of %s in the header, %s of %s",
                    (int)n, word, group, info.name ? info.name : "none",
                    info.name ? info.group : "none");
            n++;
        }
    }
    T_CHECK(n >= 39 && param(n).name == NULL, "%d parameters in the header", (int)n);
    while (file != NULL && fgets(line, sizeof line, file) != NULL && line[0] != '}') {
        char *end = strrchr(line, ';'), *name = end;
        while (name != NULL && name > line && (name[-1] == '_' || islower((unsigned char)name[-1]))) {
            name--;
        }
        for (i = 0; end != NULL && i < n; i++) {
            fields += strlen(param(i).name) == (size_t)(end - name) &&
                      strncmp(param(i).name, name, (size_t)(end - name)) == 0;
        }
    }
    T_CHECK(fields == n, "%d of %d parameters are fields of wnpu_params", (int)fields, (int)n);
    if (file != NULL) {
        fclose(file);
    }
}

/* A caller with an older or newer header gets what fits. */
static void test_sizes(void)
{
    unsigned char room[512];
    wnpu_param *info = (wnpu_param *)(void *)room;
    const size_t newer = sizeof *info + 200;
    memset(room, 0xaa, sizeof room);
    info->struct_size = (uint32_t)(offsetof(wnpu_param, option));
    T_CHECK(wnpu_param_info(0, info) == WNPU_OK && strcmp(info->name, "task") == 0 &&
            room[offsetof(wnpu_param, option)] == 0xaa, "an older header");
    info->struct_size = (uint32_t)newer;
    T_CHECK(wnpu_param_info(0, info) == WNPU_OK && room[newer - 1] == 0 && room[newer] == 0xaa,
            "a newer header");
    info->struct_size = 2;
    T_CHECK(wnpu_param_info(0, info) == WNPU_E_ARGUMENT, "no size");
}

/* Setting every parameter to its default gives what wnpu_params_init() gives. */
static void test_defaults(void)
{
    wnpu_params defaults, p;
    size_t i;
    wnpu_params_init(&defaults, sizeof defaults);
    p = defaults;
    for (i = 0; param(i).name != NULL; i++) {
        wnpu_param a = param(i);
        char text[64];
        snprintf(text, sizeof text, "%.9g", a.fallback);
        if (is_number(&a)) {
            T_CHECK(set(&p, a.name, a.has_off && a.fallback == a.off ? "off" : text) == WNPU_OK,
                    "%s=%s", a.name, text);
        } else if (a.type == WNPU_PARAM_BOOL) {
            T_CHECK(set(&p, a.name, a.fallback != 0.0 ? "yes" : "off") == WNPU_OK, "%s", a.name);
        }
    }
    T_CHECK(set(&p, "task", "transcribe") == WNPU_OK && set(&p, "language", "auto") == WNPU_OK &&
            set(&p, "length_rule", "power") == WNPU_OK && set(&p, "seed", "0") == WNPU_OK &&
            set(&p, "language_mode", "once") == WNPU_OK, "words");
    T_CHECK(memcmp(&p, &defaults, sizeof p) == 0, "defaults differ");
}

/* Bounds are taken, what is beyond them is refused, and then nothing has changed. */
static void test_ranges(void)
{
    static const char *const nonsense[] = {"", " 1", "1 ", "nan", "inf", "1e1", "0x1", "--1",
                                           "1.2.3", "one", "."};
    size_t i, j;
    for (i = 0; param(i).name != NULL; i++) {
        wnpu_param a = param(i);
        wnpu_params p, before;
        char text[64];
        double step = a.type == WNPU_PARAM_FLOAT ? 0.001 : 1.0;
        if (!is_number(&a)) {
            continue;
        }
        wnpu_params_init(&p, sizeof p);
        if (isfinite(a.low)) {
            snprintf(text, sizeof text, "%.9g", a.low);
            T_CHECK(set(&p, a.name, text) == WNPU_OK, "%s=%s", a.name, text);
            before = p;
            snprintf(text, sizeof text, "%.9f", a.low - step);
            T_CHECK(set(&p, a.name, text) == WNPU_E_ARGUMENT ||
                    (a.has_off && a.off == a.low - step), "%s=%s", a.name, text);
            T_CHECK(memcmp(&p, &before, sizeof p) == 0, "%s has changed", a.name);
        }
        if (isfinite(a.high)) {
            snprintf(text, sizeof text, "%.9g", a.high);
            T_CHECK(set(&p, a.name, text) == WNPU_OK, "%s=%s", a.name, text);
            snprintf(text, sizeof text, "%.9f", a.high + step);
            T_CHECK(set(&p, a.name, text) == WNPU_E_ARGUMENT, "%s=%s", a.name, text);
        }
        T_CHECK(set(&p, a.name, "off") == (a.has_off ? WNPU_OK : WNPU_E_ARGUMENT), "%s=off",
                a.name);
        T_CHECK(a.type == WNPU_PARAM_FLOAT || set(&p, a.name, "1.5") == WNPU_E_ARGUMENT, "%s=1.5",
                a.name);
        for (j = 0; j < sizeof nonsense / sizeof nonsense[0]; j++) {
            T_CHECK(set(&p, a.name, nonsense[j]) == WNPU_E_ARGUMENT, "%s=\"%s\"", a.name,
                    nonsense[j]);
        }
    }
}

static void test_values(void)
{
    static const char text[] = "Dr. Klemperer";
    wnpu_params p;
    wnpu_params_init(&p, sizeof p);
    T_CHECK(set(&p, "beam", "5") == WNPU_OK && p.beam == 5, "beam");
    T_CHECK(set(&p, "patience", "0.25") == WNPU_OK && p.patience == 0.25f, "patience");
    T_CHECK(set(&p, "language", "de") == WNPU_OK && p.language == wnpu_language_id("de") &&
            set(&p, "language", "french") == WNPU_OK && p.language == wnpu_language_id("fr") &&
            set(&p, "language", "klingon") == WNPU_E_ARGUMENT, "language");
    T_CHECK(set(&p, "task", "translate") == WNPU_OK && p.task == WNPU_TRANSLATE &&
            set(&p, "task", "trans") == WNPU_E_ARGUMENT && set(&p, "task", "") == WNPU_E_ARGUMENT &&
            set(&p, "task", "translate|") == WNPU_E_ARGUMENT, "task");
    T_CHECK(set(&p, "seed", "18446744073709551615") == WNPU_OK && p.seed == UINT64_MAX &&
            set(&p, "seed", "18446744073709551616") == WNPU_E_ARGUMENT &&
            set(&p, "seed", "-1") == WNPU_E_ARGUMENT && p.seed == UINT64_MAX, "seed");
    T_CHECK(set(&p, "initial_prompt", text) == WNPU_OK && p.initial_prompt == text, "a text");
    T_CHECK(set(&p, "vad", "off") == WNPU_OK && p.vad == 0 && set(&p, "vad", "maybe") ==
            WNPU_E_ARGUMENT, "a switch");
    T_CHECK(set(&p, "logprob_threshold", "off") == WNPU_OK && p.logprob_threshold == -INFINITY,
            "off");
    T_CHECK(set(&p, "language", "zh-TW") == WNPU_OK && p.language == wnpu_language_id("zh") &&
            p.script == WNPU_SCRIPT_TRADITIONAL, "a language with a script");
    T_CHECK(set(&p, "language", "de-CN") == WNPU_OK && p.script == WNPU_SCRIPT_TRADITIONAL &&
            set(&p, "languages", "en\nzh-Hans") == WNPU_OK && p.script == WNPU_SCRIPT_SIMPLIFIED &&
            set(&p, "script", "any") == WNPU_OK && p.script == WNPU_SCRIPT_ANY, "scripts");
    T_CHECK(set(&p, "replace", "a => b\n\nc=>\r\n") == WNPU_OK && p.replace[0] == 'a' &&
            set(&p, "replace", "a => b\nc") == WNPU_E_ARGUMENT && p.replace[3] == '>' &&
            set(&p, "replace", " => b") == WNPU_E_ARGUMENT, "replacements");
    T_CHECK(set(&p, "beams", "5") == WNPU_E_ARGUMENT, "an unknown name");
    T_CHECK(wnpu_params_set(&p, NULL, "5", NULL) == WNPU_E_ARGUMENT &&
            wnpu_params_set(&p, "beam", NULL, NULL) == WNPU_E_ARGUMENT &&
            wnpu_params_set(NULL, "beam", "5", NULL) == WNPU_E_ARGUMENT, "NULL");
    wnpu_params_init(&p, offsetof(wnpu_params, vad)); /* compiled with an older header */
    T_CHECK(set(&p, "beam", "3") == WNPU_OK && set(&p, "vad", "0") == WNPU_E_VERSION, "older");
}

/* Lists are text with one item a line. */
static void test_lists(void)
{
    static const char words[] = "Otto Klemperer\r\n\n  pyridine \n", tokens[] = " 5\n17\r\n",
                      languages[] = "de\nFrench\n";
    wnpu_params p, before;
    wnpu_params_init(&p, sizeof p);
    T_CHECK(set(&p, "hotwords", words) == WNPU_OK && p.hotword_lines == words, "hotwords");
    T_CHECK(set(&p, "suppress", tokens) == WNPU_OK && p.suppress_lines == tokens, "tokens");
    T_CHECK(set(&p, "languages", languages) == WNPU_OK && p.language_lines == languages,
            "languages");
    before = p;
    T_CHECK(set(&p, "suppress", "5,17") == WNPU_E_ARGUMENT && set(&p, "suppress", "-1") ==
            WNPU_E_ARGUMENT && set(&p, "suppress", "1.5") == WNPU_E_ARGUMENT &&
            set(&p, "suppress", "4294967297") == WNPU_E_ARGUMENT, "no tokens");
    T_CHECK(set(&p, "languages", "de,fr") == WNPU_E_ARGUMENT && set(&p, "languages", "klingon") ==
            WNPU_E_ARGUMENT, "no languages");
    T_CHECK(memcmp(&p, &before, sizeof p) == 0, "a refused list has changed something");
    wnpu_params_init(&p, offsetof(wnpu_params, hotword_lines)); /* an older header */
    T_CHECK(set(&p, "hotwords", words) == WNPU_E_VERSION, "older");
}

int main(void)
{
    t_run("the table", test_table);
    t_run("the overview in the header", test_overview);
    t_run("sizes of the structure", test_sizes);
    t_run("defaults", test_defaults);
    t_run("ranges", test_ranges);
    t_run("values", test_values);
    t_run("lists", test_lists);
    return t_end();
}
