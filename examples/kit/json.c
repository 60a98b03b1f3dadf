/* json.c - see json.h */
#include "json.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 64

/* State of the check of a text. */
typedef struct scan {
    const char *at, *end;
} scan;

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_blanks(scan *s)
{
    while (s->at < s->end && is_blank(*s->at)) {
        s->at++;
    }
}

static int take(scan *s, char wanted)
{
    if (s->at < s->end && *s->at == wanted) {
        s->at++;
        return 1;
    }
    return 0;
}

static int is_digit(const scan *s)
{
    return s->at < s->end && *s->at >= '0' && *s->at <= '9';
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 :
           c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Value of four hexadecimal digits, or -1. */
static int32_t hex4(const char *at, const char *end)
{
    int32_t code = 0;
    int i;
    for (i = 0; i < 4; i++) {
        int digit = at + i < end ? hex_digit(at[i]) : -1;
        if (digit < 0) {
            return -1;
        }
        code = code * 16 + digit;
    }
    return code;
}

static int check_string(scan *s)
{
    s->at++;
    while (s->at < s->end && *s->at != '"') {
        if ((unsigned char)*s->at < 0x20) {
            return -1;
        }
        if (*s->at == '\\') {
            s->at++;
            if (s->at == s->end || strchr("\"\\/bfnrtu", *s->at) == NULL || *s->at == '\0' ||
                (*s->at == 'u' && hex4(s->at + 1, s->end) < 0)) {
                return -1;
            }
        }
        s->at++;
    }
    return take(s, '"') ? 0 : -1;
}

static int check_digits(scan *s)
{
    if (!is_digit(s)) {
        return -1;
    }
    while (is_digit(s)) {
        s->at++;
    }
    return 0;
}

static int check_number(scan *s)
{
    (void)take(s, '-');
    if (!take(s, '0') && check_digits(s) != 0) {
        return -1;
    }
    if (take(s, '.') && check_digits(s) != 0) {
        return -1;
    }
    if (take(s, 'e') || take(s, 'E')) {
        if (!take(s, '+')) {
            (void)take(s, '-');
        }
        return check_digits(s);
    }
    return 0;
}

static int check_word(scan *s, const char *word)
{
    while (*word != '\0') {
        if (!take(s, *word++)) {
            return -1;
        }
    }
    return 0;
}

/* Advances past the value at s->at. Returns -1 with s->at at the error. */
static int check_value(scan *s, int depth)
{
    char open = s->at < s->end ? *s->at : '\0';
    if (open == '"') {
        return check_string(s);
    }
    if (open == 't' || open == 'f' || open == 'n') {
        return check_word(s, open == 't' ? "true" : open == 'f' ? "false" : "null");
    }
    if (open != '{' && open != '[') {
        return check_number(s);
    }
    if (depth == MAX_DEPTH) {
        return -1;
    }
    s->at++;
    skip_blanks(s);
    if (take(s, open == '{' ? '}' : ']')) {
        return 0;
    }
    do {
        skip_blanks(s);
        if (open == '{') {
            if (s->at == s->end || *s->at != '"' || check_string(s) != 0) {
                return -1;
            }
            skip_blanks(s);
            if (!take(s, ':')) {
                return -1;
            }
            skip_blanks(s);
        }
        if (check_value(s, depth + 1) != 0) {
            return -1;
        }
        skip_blanks(s);
    } while (take(s, ','));
    return take(s, open == '{' ? '}' : ']') ? 0 : -1;
}

int json_parse(json *value, const char *text, size_t size, size_t *wrong)
{
    scan s;
    int failed;
    s.at = text;
    s.end = text + size;
    skip_blanks(&s);
    value->at = s.at;
    failed = check_value(&s, 0);
    value->end = s.at;
    skip_blanks(&s);
    if (failed || s.at != s.end) {
        *wrong = (size_t)(s.at - text);
        value->at = NULL;
        return -1;
    }
    return 0;
}

char json_type(json value)
{
    char first = value.at != NULL ? *value.at : '\0';
    return first == '-' || (first >= '0' && first <= '9') ? '0' : first;
}

/* The value that begins at s->at. */
static json next_value(scan *s)
{
    json value;
    value.at = s->at;
    (void)check_value(s, 0);
    value.end = s->at;
    return value;
}

int json_next(json container, const char **cursor, json *key, json *value)
{
    char type = json_type(container);
    scan s;
    key->at = value->at = NULL;
    if (type != '{' && type != '[') {
        return 0;
    }
    s.at = *cursor != NULL ? *cursor : container.at + 1;
    s.end = container.end - 1;
    skip_blanks(&s);
    if (*cursor != NULL) {
        (void)take(&s, ',');
        skip_blanks(&s);
    }
    if (s.at >= s.end) {
        return 0;
    }
    if (type == '{') {
        *key = next_value(&s);
        skip_blanks(&s);
        (void)take(&s, ':');
        skip_blanks(&s);
    }
    *value = next_value(&s);
    *cursor = s.at;
    return 1;
}

json json_get(json object, const char *key)
{
    const char *cursor = NULL;
    size_t length = strlen(key);
    json name, value;
    while (json_type(object) == '{' && json_next(object, &cursor, &name, &value)) {
        if ((size_t)(name.end - name.at) == length + 2 && memcmp(name.at + 1, key, length) == 0) {
            return value;
        }
    }
    value.at = value.end = NULL;
    return value;
}

/* Appends a character as UTF-8. Returns the new length even if there is no room. */
static size_t put_character(char *out, size_t capacity, size_t length, int32_t code)
{
    unsigned char bytes[4];
    size_t i, n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (i = n; i-- > 1; code >>= 6) {
        bytes[i] = (unsigned char)(0x80 | (code & 0x3f));
    }
    bytes[0] = (unsigned char)(n == 1 ? code : (0xf00 >> n & 0xff) | code);
    for (i = 0; i < n; i++) {
        if (length + i < capacity) {
            out[length + i] = (char)bytes[i];
        }
    }
    return length + n;
}

/* Decodes an escape sequence. at points after the backslash and is advanced past the sequence. */
static int32_t unescape(const char **at, const char *end)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    const char *found = strchr(from, **at);
    int32_t code, low;
    if (**at != 'u') {
        code = found != NULL ? to[found - from] : **at;
        (*at)++;
        return code;
    }
    code = hex4(*at + 1, end);
    *at += 5;
    if (code < 0xd800 || code > 0xdfff) {
        return code;
    }
    low = end - *at >= 6 && (*at)[0] == '\\' && (*at)[1] == 'u' ? hex4(*at + 2, end) : -1;
    if (code > 0xdbff || low < 0xdc00 || low > 0xdfff) {
        return 0xfffd;
    }
    *at += 6;
    return 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
}

size_t json_string(json value, char *out, size_t capacity)
{
    const char *at, *end;
    size_t length = 0;
    if (json_type(value) != '"') {
        return 0;
    }
    at = value.at + 1;
    end = value.end - 1;
    while (at < end) {
        if (*at == '\\') {
            at++;
            length = put_character(out, capacity, length, unescape(&at, end));
        } else {
            if (length < capacity) {
                out[length] = *at;
            }
            length++;
            at++;
        }
    }
    return length;
}

int json_is(json value, const char *text)
{
    char is[64];
    size_t length = json_string(value, is, sizeof is);
    return json_type(value) == '"' && length == strlen(text) && length <= sizeof is &&
           memcmp(is, text, length) == 0;
}

int json_number(json value, double *number)
{
    char text[64];
    size_t length = json_type(value) == '0' ? (size_t)(value.end - value.at) : sizeof text;
    if (length >= sizeof text) {
        return -1;
    }
    memcpy(text, value.at, length);
    text[length] = '\0';
    *number = strtod(text, NULL); /* the program stays in the C locale */
    return 0;
}

int json_integer(json value, int64_t low, int64_t high, int64_t *number)
{
    double x;
    if (json_number(value, &x) != 0 || !(x >= (double)low && x <= (double)high) ||
        x != (double)(int64_t)x) {
        return -1;
    }
    *number = (int64_t)x;
    return 0;
}
