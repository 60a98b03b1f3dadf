/* json.h - reads JSON (RFC 8259) in place, without allocating memory.
 *
 * json_parse() checks a complete text once; the other functions then walk through it. A value is a
 * view of the text and is valid as long as the text. */
#ifndef JSON_H
#define JSON_H

#include <stddef.h>
#include <stdint.h>

typedef struct json {
    const char *at, *end;     /* its text, without surrounding white space; if at is NULL there
                               * is no value */
} json;

/* Returns 0, or -1 if text[0..size-1] is not one JSON value or nests deeper than 64; then *wrong
 * receives the offset of the error and value->at is NULL. */
int json_parse(json *value, const char *text, size_t size, size_t *wrong);

/* Returns '{', '[', '"', 't', 'f' or 'n'; '0' for any number; 0 for no value. */
char json_type(json value);

/* Iterates over an object (key and value) or an array (key is no value). Returns 1 and the next
 * element, or 0 at the end or for other types. Start with *cursor = NULL. */
int json_next(json container, const char **cursor, json *key, json *value);

/* The value of a key, which must be ASCII without quotes and backslashes. No value if the key is
 * missing or object is not an object. */
json json_get(json object, const char *key);

/* Decodes a string to UTF-8; unpaired surrogates become U+FFFD. Returns the length in bytes and
 * writes as many as fit, without NUL. Returns 0 if value is not a string. */
size_t json_string(json value, char *out, size_t capacity);

/* Whether value is a string with exactly this text. */
int json_is(json value, const char *text);

/* Returns 0 and *number, or -1 if value is not a number or has 64 characters or more. */
int json_number(json value, double *number);

/* Returns 0 and *number, or -1 if value is not an integer from low to high. */
int json_integer(json value, int64_t low, int64_t high, int64_t *number);

#endif
