/*
 * json.h - reads JSON (RFC 8259) where it lies, without memory of its own.
 *
 * json_parse() checks a whole text once; everything else then walks through it. A value is a view
 * of the text and lives as long as the text.
 */
#ifndef JSON_H
#define JSON_H

#include <stddef.h>
#include <stdint.h>

typedef struct json {
    const char *at, *end;     /* its text, without blanks around; at NULL: there is no value */
} json;

/* 0, or -1 when text[0..size-1] is not one JSON value, or nests deeper than 64. *wrong then gets
 * the offset of what is wrong and value->at is NULL. */
int json_parse(json *value, const char *text, size_t size, size_t *wrong);

/* '{', '[', '"', 't', 'f', 'n', '0' for any number; 0 for no value. */
char json_type(json value);

/* Walks over an object (key and value) or an array (key is no value): 1 and the next one, or 0 at
 * the end or for anything else. Start with *cursor = NULL. */
int json_next(json container, const char **cursor, json *key, json *value);

/* The value of a key, which is ASCII without quotes and backslashes. No value if it is not there,
 * or object is none. */
json json_get(json object, const char *key);

/* The bytes of a string as UTF-8, escapes resolved; surrogates that lack their other half become
 * U+FFFD. Returns how many there are, and writes as many of them as fit, without NUL. 0 if it is no
 * string. */
size_t json_string(json value, char *out, size_t capacity);

/* Whether value is a string with exactly this text. */
int json_is(json value, const char *text);

/* 0 and *number, or -1 if it is no number, or one of 64 characters and more. */
int json_number(json value, double *number);

/* 0 and *number, or -1 if it is no whole number from low to high. */
int json_integer(json value, int64_t low, int64_t high, int64_t *number);

#endif
