/*
 * wer.c - word error rates by group, one column for each hypothesis.
 *
 *     wer REFERENCE.tsv HYPOTHESIS.tsv...      lines of path<TAB>text
 *     wer -n                                   normalises lines of standard input, to look at
 *
 * A path's group is its file name up to the first '_'. An utterance that a hypothesis lacks is not
 * counted in its column and named on standard error.
 *
 * Both sides are normalised first, in the manner of the English normaliser of OpenAI's Whisper
 * (whisper/normalizers/english.py) in compact form: lower case; brackets, fillers, accents and
 * punctuation away; contractions, titles and British spellings folded; numbers written as figures.
 */
#define _POSIX_C_SOURCE 200809L

#include "../lib/distance.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOREIGN_COIN '\001' /* stands for the two bytes of a pound or three of a euro sign */
#define MAX_GROUPS 64

/* ---- strings ---- */

typedef struct text {
    char *s;                  /* always ends in a zero */
    size_t n, room;
} text;

static void *must(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "wer: out of memory\n");
        exit(2);
    }
    return memory;
}

static void add(text *t, const char *s, size_t n)
{
    if (t->n + n + 1 > t->room) {
        t->room = (t->n + n + 1) * 2;
        t->s = must(realloc(t->s, t->room));
    }
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = '\0';
}

static void put(text *t, const char *s) { add(t, s, strlen(s)); }

static int is_digit(char c) { return c >= '0' && c <= '9'; }
static int is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
/* Part of a word; of what lies above ASCII only letters are left by fold(). */
static int is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || c == '_' || (unsigned char)c >= 0x80;
}

/* A word's edge lies before s[i]. */
static int is_edge(const text *t, size_t i)
{
    return (i > 0 && is_word(t->s[i - 1])) != (i < t->n && is_word(t->s[i]));
}

/* ---- normalising ---- */

/* Base letters of U+00C0..U+017F; '.' where there is none. */
static const char base_letters[] =
    "aaaaaa.ceeeeiiii" ".nooooo..uuuuy.." "aaaaaa.ceeeeiiii" ".nooooo..uuuuy.y"
    "aaaaaaccccccccdd" "..eeeeeeeeeegggg" "gggghh..iiiiiiii" "i...jjkk.llllll."
    "...nnnnnn...oooo" "oo..rrrrrrssssss" "sstttt..uuuuuuuu" "uuuuwwyyyzzzzzzs";

static unsigned long decode(const char *s, size_t *length)
{
    const unsigned char *u = (const unsigned char *)s;
    size_t n = u[0] < 0x80 ? 1 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4, i;
    unsigned long c = n == 1 ? u[0] : u[0] & (0x7fu >> n);
    for (i = 1; i < n; i++) {
        if ((u[i] & 0xc0) != 0x80) {
            *length = 1;
            return '"'; /* not UTF-8: counts as punctuation */
        }
        c = c << 6 | (u[i] & 0x3fu);
    }
    *length = n;
    return c;
}

/* Lower case without accents; curly apostrophes straight; other punctuation becomes '"'. */
static void fold(text *out, const char *s)
{
    while (*s != '\0') {
        size_t n;
        unsigned long c = decode(s, &n);
        char ascii = (char)tolower((int)(c < 0x80 ? c : '"'));
        if (c == 0x2018 || c == 0x2019) {
            add(out, "'", 1);
        } else if (c == 0xa3 || c == 0x20ac) {
            ascii = FOREIGN_COIN;
            add(out, &ascii, 1);
        } else if (c < 0x80 || (c < 0xc0 && c != 0xaa && c != 0xb5 && c != 0xba) || c == 0xd7 ||
                   c == 0xf7 || (c >= 0x2000 && c < 0x2070) || (c >= 0x3000 && c < 0x3004) ||
                   c == 0xfffd) { /* stands for half a character, a model's quotation mark */
            add(out, &ascii, 1);
        } else if (c >= 0xc0 && c < 0x180 && base_letters[c - 0xc0] != '.') {
            add(out, &base_letters[c - 0xc0], 1);
        } else if (c >= 0xc0 && c < 0x178) { /* no accent, but a capital perhaps */
            /* Above U+0100 capitals are even and their small letters follow; but for L-stroke. */
            int pair = c == 0x141 || (c >= 0x100 && c % 2 == 0 && (c < 0x138 || c > 0x142));
            char lower[2] = {s[0], (char)(s[1] + (c < 0xdf ? 0x20 : pair))};
            add(out, lower, 2);
        } else if (c < 0x300 || c >= 0x370) { /* but no combining accents */
            add(out, s, n);
        }
        s += n;
    }
}

/* <...> and [...] in any mixture, and (...), become a space. */
static void drop_brackets(text *out, const text *in)
{
    size_t i = 0;
    while (i < in->n) {
        int round = in->s[i] == '(';
        const char *rest = in->s + i + 1;
        size_t n = round ? strcspn(rest, ")") : strcspn(rest, ">]");
        if ((round ? n > 0 : in->s[i] == '<' || in->s[i] == '[') && rest[n] != '\0') {
            add(out, " ", 1);
            i += n + 2;
        } else {
            add(out, in->s + i, 1);
            i++;
        }
    }
}

/* What stands for what, in this order. '<' and '>' are word edges, a final '.' is a full stop that
 * has to be there, a final '?' one that may be. */
static const char *const replacements[][2] = {
    {"<to-day>", "today"}, {"<to-morrow>", "tomorrow"}, {"<to-night>", "tonight"},
    {"<any-one>", "anyone"}, {"<any-body>", "anybody"}, {"<some-one>", "someone"},
    {"<some-body>", "somebody"}, {"<every-one>", "everyone"}, {"<every-body>", "everybody"},
    {"<every-day>", "everyday"}, {"<some-day>", "someday"}, {"<good-bye>", "goodbye"},
    {"<good-night>", "goodnight"}, {"<good-day>", "goodday"}, {"<for-ever>", "forever"},
    {"<hmm>", " "}, {"<mm>", " "}, {"<mhm>", " "}, {"<mmm>", " "}, {"<uh>", " "}, {"<um>", " "},
    {" '", "'"},
    {"<won't>", "will not"}, {"<can't>", "can not"}, {"<let's>", "let us"}, {"<ain't>", "aint"},
    {"<y'all>", "you all"}, {"<wanna>", "want to"}, {"<gotta>", "got to"}, {"<gonna>", "going to"},
    {"<i'ma>", "i am going to"}, {"<ma'am>", "madam"}, {"<o'clock>", "oclock"},
    {"<mr>?", "mister "}, {"<mrs>?", "missus "}, {"<st>.", "saint "}, {"<dr>?", "doctor "},
    {"<prof>?", "professor "}, {"<capt>?", "captain "}, {"<gov>?", "governor "},
    {"<gen>.", "general "}, {"<sen>.", "senator "}, {"<rep>.", "representative "},
    {"<rev>?", "reverend "}, {"<hon>.", "honorable "}, {"<jr>?", "junior "}, {"<sr>?", "senior "},
    {"<esq>?", "esquire "},
    {"'d been>", " had been"}, {"'s been>", " has been"}, {"'d gone>", " had gone"},
    {"'s gone>", " has gone"}, {"'d done>", " had done"}, {"'s got>", " has got"},
    {"n't>", " not"}, {"'re>", " are"}, {"'s>", " is"}, {"'d>", " would"}, {"'ll>", " will"},
    {"'t>", " not"}, {"'ve>", " have"}, {"'m>", " am"}, {"%", " percent "}, {"&", " and "}
};

/* Bytes of in at i that pattern matches, 0 for none. */
static size_t match(const text *in, size_t i, const char *pattern)
{
    size_t at = i;
    for (; *pattern != '\0'; pattern++) {
        if (*pattern == '<' || *pattern == '>') {
            if (!is_edge(in, at)) {
                return 0;
            }
        } else if (*pattern == '?') {
            at += in->s[at] == '.';
        } else if (*pattern == ' ') { /* one or more */
            if (!is_space(in->s[at])) {
                return 0;
            }
            at += strspn(in->s + at, " \t\n\v\f\r");
        } else if (in->s[at++] != *pattern) {
            return 0;
        }
    }
    return at - i;
}

static void replace(text *out, const text *in, const char *pattern, const char *by)
{
    size_t i = 0;
    out->n = 0;
    add(out, "", 0);
    while (i < in->n) {
        size_t n = match(in, i, pattern);
        if (n > 0) {
            put(out, by);
            i += n;
        } else {
            add(out, in->s + i, 1);
            i++;
        }
    }
}

/* 1,000 is 1000. If there is a dollar sign, sums of money become "n dollars". */
static void money(text *out, const text *in)
{
    int dollars = strchr(in->s, '$') != NULL;
    size_t i = 0;
    while (i < in->n) {
        const char *s = in->s + i;
        size_t n = 1;
        if (dollars && (*s == '$' || *s == FOREIGN_COIN) && is_digit(s[is_space(s[1]) ? 2 : 1])) {
            const char *digits = s + (is_space(s[1]) ? 2 : 1);
            size_t length = strspn(digits, "0123456789");
            add(out, digits, length);
            put(out, " dollars");
            n = (size_t)(digits - s) + length;
        } else {
            add(out, s, 1);
        }
        i += n;
    }
}

static void join_thousands(text *out, const text *in)
{
    size_t i = 0;
    while (i < in->n) {
        const char *s = in->s + i;
        add(out, s, 1);
        if (is_digit(s[0]) && s[1] == ',' && is_digit(s[2])) {
            add(out, s + 2, 1);
            i += 3;
        } else {
            i++;
        }
    }
}

/* ---- words ---- */

typedef struct words {
    char **w;
    size_t n, room;
} words;

static void add_word(words *list, const char *s, size_t n)
{
    text t = {NULL, 0, 0};
    if (list->n == list->room) {
        list->room = list->room * 2 + 16;
        list->w = must(realloc(list->w, list->room * sizeof *list->w));
    }
    add(&t, s, n);
    list->w[list->n++] = t.s;
}

static void free_words(words *list)
{
    while (list->n > 0) {
        free(list->w[--list->n]);
    }
    free(list->w);
    memset(list, 0, sizeof *list);
}

/* Pairs of British and American spelling. */
static const char *const spellings[][2] = {
    {"colour", "color"}, {"colours", "colors"}, {"coloured", "colored"}, {"honour", "honor"},
    {"honours", "honors"}, {"honoured", "honored"}, {"honourable", "honorable"},
    {"favour", "favor"}, {"favours", "favors"}, {"favourite", "favorite"},
    {"favoured", "favored"}, {"neighbour", "neighbor"}, {"neighbours", "neighbors"},
    {"neighbourhood", "neighborhood"}, {"labour", "labor"}, {"grey", "gray"},
    {"theatre", "theater"}, {"centre", "center"}, {"realise", "realize"},
    {"realised", "realized"}, {"recognise", "recognize"}, {"recognised", "recognized"},
    {"endeavour", "endeavor"}, {"endeavoured", "endeavored"}, {"behaviour", "behavior"},
    {"harbour", "harbor"}, {"humour", "humor"}, {"rumour", "rumor"}, {"parlour", "parlor"},
    {"vapour", "vapor"}, {"vigour", "vigor"}, {"splendour", "splendor"}, {"odour", "odor"},
    {"armour", "armor"}, {"defence", "defense"}, {"offence", "offense"},
    {"travelled", "traveled"}, {"traveller", "traveler"}, {"travelling", "traveling"},
    {"plough", "plow"}, {"sceptical", "skeptical"}, {"mould", "mold"}, {"towards", "toward"},
    {"marvellous", "marvelous"}, {"jewellery", "jewelry"}, {"programme", "program"},
    {"cheque", "check"}, {"organised", "organized"}, {"apologise", "apologize"},
    {"civilisation", "civilization"}, {"counsellor", "counselor"}, {"fulfil", "fulfill"},
    {"skilful", "skillful"}, {"ageing", "aging"}, {"connexion", "connection"},
    {"shew", "show"}, {"shewed", "showed"}
};

static void split(words *out, const text *in)
{
    size_t i = 0, k;
    while (i < in->n) {
        text word = {NULL, 0, 0};
        const char *s;
        while (i < in->n && in->s[i] != '\'' && (!is_word(in->s[i]) || in->s[i] == '_')) {
            i++;
        }
        add(&word, "", 0);
        for (; i < in->n && (in->s[i] == '\'' || (is_word(in->s[i]) && in->s[i] != '_')); i++) {
            if (in->s[i] != '\'') {
                add(&word, in->s + i, 1);
            }
        }
        s = word.s;
        for (k = 0; k < sizeof spellings / sizeof spellings[0]; k++) {
            s = strcmp(s, spellings[k][0]) == 0 ? spellings[k][1] : s;
        }
        if (*s != '\0') {
            add_word(out, s, strlen(s));
        }
        free(word.s);
    }
}

/* ---- numbers ---- */

enum { OTHER, ONES, TENS, ORDINAL, MULTIPLE };

static const struct number {
    const char *word;
    int kind;
    unsigned long long value;
} number_words[] = {
    {"zero", ONES, 0}, {"one", ONES, 1}, {"two", ONES, 2}, {"three", ONES, 3}, {"four", ONES, 4},
    {"five", ONES, 5}, {"six", ONES, 6}, {"seven", ONES, 7}, {"eight", ONES, 8},
    {"nine", ONES, 9}, {"ten", ONES, 10}, {"eleven", ONES, 11}, {"twelve", ONES, 12},
    {"thirteen", ONES, 13}, {"fourteen", ONES, 14}, {"fifteen", ONES, 15}, {"sixteen", ONES, 16},
    {"seventeen", ONES, 17}, {"eighteen", ONES, 18}, {"nineteen", ONES, 19}, {"twenty", TENS, 20},
    {"thirty", TENS, 30}, {"forty", TENS, 40}, {"fifty", TENS, 50}, {"sixty", TENS, 60},
    {"seventy", TENS, 70}, {"eighty", TENS, 80}, {"ninety", TENS, 90},
    /* no "second", which more often is a time */
    {"first", ORDINAL, 1}, {"third", ORDINAL, 3}, {"fourth", ORDINAL, 4}, {"fifth", ORDINAL, 5},
    {"sixth", ORDINAL, 6}, {"seventh", ORDINAL, 7}, {"eighth", ORDINAL, 8}, {"ninth", ORDINAL, 9},
    {"tenth", ORDINAL, 10}, {"eleventh", ORDINAL, 11}, {"twelfth", ORDINAL, 12},
    {"thirteenth", ORDINAL, 13}, {"fourteenth", ORDINAL, 14}, {"fifteenth", ORDINAL, 15},
    {"sixteenth", ORDINAL, 16}, {"seventeenth", ORDINAL, 17}, {"eighteenth", ORDINAL, 18},
    {"nineteenth", ORDINAL, 19}, {"twentieth", ORDINAL, 20}, {"thirtieth", ORDINAL, 30},
    {"fortieth", ORDINAL, 40}, {"fiftieth", ORDINAL, 50}, {"sixtieth", ORDINAL, 60},
    {"seventieth", ORDINAL, 70}, {"eightieth", ORDINAL, 80}, {"ninetieth", ORDINAL, 90},
    {"hundred", MULTIPLE, 100}, {"thousand", MULTIPLE, 1000}, {"million", MULTIPLE, 1000000},
    {"billion", MULTIPLE, 1000000000}, {"", OTHER, 0}
};

static const struct number *number_of(const words *in, size_t i)
{
    const struct number *n = number_words;
    while (n->kind != OTHER && (i >= in->n || strcmp(n->word, in->w[i]) != 0)) {
        n++;
    }
    return n;
}

/* Reads a number that begins at word i and returns the word after it. */
static size_t read_number(const words *in, size_t i, unsigned long long *value, int *ordinal)
{
    const unsigned long long limit = 1000000000000000ull;
    unsigned long long total = 0, part = 0;
    int last = OTHER;
    *ordinal = 0;
    for (; i < in->n && total < limit && part < limit && !*ordinal; i++) {
        const struct number *n = number_of(in, i), *next = number_of(in, i + 1);
        int after_tens = last == TENS && n->value >= 10;
        if (n->kind == MULTIPLE && last != OTHER) {
            part = part > 0 ? part : 1;
            total += n->value == 100 ? 0 : part * n->value;
            part = n->value == 100 ? part * 100 : 0;
        } else if ((n->kind == ONES || n->kind == ORDINAL) && last != ONES && !after_tens) {
            part += n->value;
            *ordinal = n->kind == ORDINAL;
        } else if (n->kind == TENS && last != ONES && last != TENS) {
            part += n->value;
        } else if (last == MULTIPLE && strcmp(in->w[i], "and") == 0 &&
                   (next->kind == ONES || next->kind == TENS)) {
            continue; /* a hundred and one; last stays MULTIPLE */
        } else {
            break;
        }
        last = n->kind;
    }
    *value = total + part;
    return i;
}

static const char *ending(unsigned long long n)
{
    unsigned tens = (unsigned)(n % 100), ones = (unsigned)(n % 10);
    if (tens >= 10 && tens <= 20) {
        return "th";
    }
    return ones == 1 ? "st" : ones == 2 ? "nd" : ones == 3 ? "rd" : "th";
}

static int two_digits(const char *s) { return strlen(s) == 2 && is_digit(s[0]) && is_digit(s[1]); }

/* Numbers as figures. Two pairs of digits are a year: nineteen forty is 1940. */
static void numbers(words *out, const words *in)
{
    size_t i = 0;
    while (i < in->n) {
        const struct number *n = number_of(in, i);
        char figures[48];
        snprintf(figures, sizeof figures, "%s", "");
        if (n->kind == ONES || n->kind == TENS || n->kind == ORDINAL) {
            unsigned long long value;
            int ordinal;
            i = read_number(in, i, &value, &ordinal);
            snprintf(figures, sizeof figures, "%llu%s", value, ordinal ? ending(value) : "");
        }
        if (figures[0] == '\0') {
            const char *word = in->w[i++];
            if (!two_digits(word)) {
                add_word(out, word, strlen(word));
                continue;
            }
            snprintf(figures, sizeof figures, "%s", word);
        }
        if (two_digits(figures) && out->n > 0 && two_digits(out->w[out->n - 1]) &&
            atoi(out->w[out->n - 1]) <= 20 && atoi(out->w[out->n - 1]) >= 10) {
            char *before = out->w[--out->n], year[8];
            snprintf(year, sizeof year, "%.2s%.2s", before, figures);
            free(before);
            add_word(out, year, 4);
        } else {
            add_word(out, figures, strlen(figures));
        }
    }
}

static void normalise(words *out, const char *s)
{
    text a = {NULL, 0, 0}, b = {NULL, 0, 0}, c;
    words plain = {NULL, 0, 0};
    size_t i;
    add(&a, "", 0);
    add(&b, "", 0);
    fold(&a, s);
    drop_brackets(&b, &a);
    for (i = 0; i < sizeof replacements / sizeof replacements[0]; i++) {
        replace(&a, &b, replacements[i][0], replacements[i][1]);
        c = a, a = b, b = c;
    }
    a.n = 0;
    join_thousands(&a, &b);
    b.n = 0;
    add(&b, "", 0);
    money(&b, &a);
    split(&plain, &b);
    numbers(out, &plain);
    free_words(&plain);
    free(a.s);
    free(b.s);
}

/* ---- counting ---- */

/* Two texts that are compared. */
typedef struct texts {
    const words *a, *b;
} texts;

static int differ(const void *user, size_t i, size_t j)
{
    const texts *t = user;
    return strcmp(t->a->w[i], t->b->w[j]) != 0;
}

/* Lines of path<TAB>text, split in place. */
typedef struct table {
    char *bytes;
    char **path, **line;
    size_t n;
} table;

static void read_table(table *t, const char *name)
{
    FILE *file = fopen(name, "r");
    size_t room = 0, size = 0;
    char *at, *tab, *end;
    ssize_t length;
    memset(t, 0, sizeof *t);
    if (file == NULL || (length = getdelim(&t->bytes, &size, '\0', file)) < 0) {
        fprintf(stderr, "wer: cannot read %s, or it is empty\n", name);
        exit(2);
    }
    fclose(file);
    for (at = t->bytes; *at != '\0'; at = end) {
        end = at + strcspn(at, "\n");
        end += *end != '\0' ? (*end = '\0', 1) : 0;
        tab = strchr(at, '\t');
        if (tab == NULL) {
            continue;
        }
        *tab = '\0';
        if (t->n == room) {
            room = room * 2 + 64;
            t->path = must(realloc(t->path, room * sizeof *t->path));
            t->line = must(realloc(t->line, room * sizeof *t->line));
        }
        t->path[t->n] = at;
        t->line[t->n++] = tab + 1;
    }
}

static void free_table(table *t)
{
    free(t->bytes);
    free(t->path);
    free(t->line);
}

static const char *look_up(const table *t, const char *path)
{
    size_t i;
    for (i = 0; i < t->n; i++) {
        if (strcmp(t->path[i], path) == 0) {
            return t->line[i];
        }
    }
    return NULL;
}

typedef struct score {
    char name[24];
    size_t clips, errors, total;
} score;

/* The group's entry; groups[0] is for all. */
static score *group_of(score *groups, size_t *n, const char *path)
{
    const char *base = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    char name[sizeof groups->name];
    size_t i;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(base, "_"), base);
    for (i = 1; i < *n; i++) {
        if (strcmp(groups[i].name, name) == 0) {
            return &groups[i];
        }
    }
    if (*n == MAX_GROUPS) {
        return &groups[MAX_GROUPS - 1];
    }
    memcpy(groups[*n].name, name, sizeof name);
    return &groups[(*n)++];
}

/* Fills one column; all columns have the reference's groups, in its order. */
static size_t count(score *groups, const table *reference, const char *hypothesis)
{
    table h;
    size_t i, n = 1, missing = 0;
    read_table(&h, hypothesis);
    for (i = 0; i < reference->n; i++) {
        score *group = group_of(groups, &n, reference->path[i]);
        const char *line = look_up(&h, reference->path[i]);
        words want = {NULL, 0, 0}, got = {NULL, 0, 0};
        const texts both = {&want, &got};
        size_t errors, *row;
        if (line == NULL) {
            missing++;
            continue;
        }
        normalise(&want, reference->line[i]);
        normalise(&got, line);
        row = must(calloc(got.n + 1, sizeof *row));
        errors = edit_distance(want.n, got.n, row, differ, &both);
        free(row);
        group->clips++, groups->clips++;
        group->errors += errors, groups->errors += errors;
        group->total += want.n, groups->total += want.n;
        free_words(&want);
        free_words(&got);
    }
    free_table(&h);
    if (missing > 0) {
        fprintf(stderr, "wer: %s lacks %zu of %zu\n", hypothesis, missing, reference->n);
    }
    return n;
}

static void print_row(score *const *columns, int n_columns, size_t group, const char *name)
{
    int i;
    printf("%-12s %5zu %6zu", name, columns[0][group].clips, columns[0][group].total);
    for (i = 0; i < n_columns; i++) {
        const score *s = &columns[i][group];
        printf(" %7.2f %% %5zu", s->total > 0 ? 100.0 * (double)s->errors / (double)s->total : 0.0,
               s->errors);
    }
    printf("\n");
}

static void normalise_stdin(void)
{
    char *line = NULL;
    size_t size = 0, i;
    while (getline(&line, &size, stdin) >= 0) {
        words list = {NULL, 0, 0};
        normalise(&list, line);
        for (i = 0; i < list.n; i++) {
            printf("%s%s", i > 0 ? " " : "", list.w[i]);
        }
        printf("\n");
        free_words(&list);
    }
    free(line);
}

int main(int argc, char **argv)
{
    table reference;
    score **columns;
    size_t g, n_groups = 1;
    int i;
    if (argc == 2 && strcmp(argv[1], "-n") == 0) {
        normalise_stdin();
        return 0;
    }
    if (argc < 3) {
        fprintf(stderr, "usage: wer REFERENCE.tsv HYPOTHESIS.tsv... | wer -n\n");
        return 2;
    }
    read_table(&reference, argv[1]);
    columns = must(calloc((size_t)argc, sizeof *columns));
    printf("%-12s %5s %6s", "group", "clips", "words");
    for (i = 2; i < argc; i++) {
        const char *base = strrchr(argv[i], '/') != NULL ? strrchr(argv[i], '/') + 1 : argv[i];
        columns[i - 2] = must(calloc(MAX_GROUPS, sizeof **columns));
        n_groups = count(columns[i - 2], &reference, argv[i]);
        const char *dot = strrchr(base, '.');
        printf(" %15.*s", (int)(dot != NULL ? (size_t)(dot - base) : strlen(base)), base);
    }
    printf("\n");
    for (g = 1; g < n_groups; g++) {
        print_row(columns, argc - 2, g, columns[0][g].name);
    }
    print_row(columns, argc - 2, 0, "all");
    for (i = 2; i < argc; i++) {
        free(columns[i - 2]);
    }
    free(columns);
    free_table(&reference);
    return 0;
}
