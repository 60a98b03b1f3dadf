/* server_form.c - see server_form.h */
#define _XOPEN_SOURCE 700

#include "server_form.h"

#include <string.h>
#include <strings.h>

/* ---- parameters of header fields ---- */

/* Reads the value of a parameter at text, which is a token or a quoted string, into value, cut to
 * size - 1 bytes. Returns where it ends. */
static const char *read_value(const char *text, char *value, size_t size)
{
    int quoted = *text == '"';
    size_t n = 0;
    text += quoted;
    while (*text != '\0' && (quoted ? *text != '"' : strchr("; \t\r\n", *text) == NULL)) {
        text += quoted && *text == '\\' && text[1] != '\0';
        if (n + 1 < size) {
            value[n++] = *text;
        }
        text++;
    }
    value[n] = '\0';
    return text + (quoted && *text == '"');
}

/* Finds a parameter among "; name=value" after the first word of a field. Returns 1 if there is
 * one. */
static int find_parameter(const char *field, const char *name, char *value, size_t size)
{
    const char *at = field + strcspn(field, ";");
    size_t n = strlen(name);
    while (*at == ';') {
        at += 1 + strspn(at + 1, " \t\r\n");
        if (strncasecmp(at, name, n) == 0 && at[n + strspn(at + n, " \t")] == '=') {
            at += n + strspn(at + n, " \t") + 1;
            (void)read_value(at + strspn(at, " \t"), value, size);
            return 1;
        }
        at += strcspn(at, "=;");
        if (*at == '=') {
            char unused[2];
            at = read_value(at + 1 + strspn(at + 1, " \t"), unused, sizeof unused);
        }
        at += strcspn(at, ";");
    }
    return 0;
}

int form_init(form *f, const char *content_type, form_part_fn on_part, form_data_fn on_data,
              void *user)
{
    char boundary[72];
    memset(f, 0, sizeof *f);
    f->on_part = on_part;
    f->on_data = on_data;
    f->user = user;
    if (content_type == NULL || strncasecmp(content_type, "multipart/form-data", 19) != 0 ||
        strchr("; \t", content_type[19]) == NULL ||
        !find_parameter(content_type, "boundary", boundary, sizeof boundary) ||
        boundary[0] == '\0' || strlen(boundary) > 70) {
        return -1;
    }
    strcpy(f->delimiter, "\r\n--");
    strcat(f->delimiter, boundary);
    f->delimiter_size = strlen(f->delimiter);
    memcpy(f->buffer, "\r\n", 2); /* the first boundary may stand at the beginning */
    f->used = 2;
    return 0;
}

/* ---- the body ---- */

static void drop(form *f, size_t n)
{
    memmove(f->buffer, f->buffer + n, f->used - n);
    f->used -= n;
}

/* Position of the delimiter, or of the first bytes that may begin it; f->used if there are none. */
static size_t find_delimiter(const form *f, int *whole)
{
    size_t at = 0;
    *whole = 0;
    while (at < f->used) {
        const char *found = memchr(f->buffer + at, '\r', f->used - at);
        size_t left, compared;
        if (found == NULL) {
            return f->used;
        }
        at = (size_t)(found - f->buffer);
        left = f->used - at;
        compared = left < f->delimiter_size ? left : f->delimiter_size;
        if (memcmp(found, f->delimiter, compared) == 0) {
            *whole = compared == f->delimiter_size;
            return at;
        }
        at++;
    }
    return f->used;
}

/* Data up to the delimiter. Returns 1 if the state has changed, 0 if more bytes are needed. */
static int take_data(form *f)
{
    int whole;
    size_t n = find_delimiter(f, &whole);
    if (n > 0 && f->state == FORM_DATA && f->on_data(f->user, f->buffer, n) != 0) {
        return -1;
    }
    drop(f, n + (whole ? f->delimiter_size : 0));
    if (whole) {
        f->state = FORM_AFTER;
    }
    return whole;
}

/* What follows a delimiter: two hyphens at the end, or the end of the line. */
static int take_after(form *f)
{
    size_t skip = 0;
    while (skip < f->used && (f->buffer[skip] == ' ' || f->buffer[skip] == '\t')) {
        skip++;
    }
    drop(f, skip);
    if (f->used < 2) {
        return 0;
    }
    if (memcmp(f->buffer, "--", 2) == 0) {
        f->state = FORM_DONE;
        return 1;
    }
    if (memcmp(f->buffer, "\r\n", 2) != 0) {
        return -1;
    }
    f->state = FORM_HEADER; /* the line end stays, so that an empty header ends like others */
    return 1;
}

/* The field of a header, without its name; NULL if there is none. */
static const char *find_field(const char *header, const char *name)
{
    size_t n = strlen(name);
    const char *line;
    for (line = header; line != NULL; line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, name, n) == 0 && line[2 + n] == ':') {
            return line + 2 + n + 1;
        }
    }
    return NULL;
}

static int take_header(form *f)
{
    char name[FORM_NAME_MOST + 1];
    const char *field;
    size_t at;
    for (at = 0; at + 4 <= f->used && memcmp(f->buffer + at, "\r\n\r\n", 4) != 0; at++) {
    }
    if (at + 4 > f->used) {
        return f->used == sizeof f->buffer ? -1 : 0;
    }
    f->buffer[at] = '\0'; /* a NUL within the header ends it as well */
    field = find_field(f->buffer, "Content-Disposition");
    if (field == NULL || !find_parameter(field, "name", name, sizeof name) ||
        f->parts++ == FORM_PARTS_MOST || f->on_part(f->user, name) != 0) {
        return -1;
    }
    drop(f, at + 4);
    f->state = FORM_DATA;
    return 1;
}

int form_push(form *f, const char *bytes, size_t n)
{
    while (n > 0 && f->state != FORM_DONE) {
        size_t part = sizeof f->buffer - f->used;
        int done = 1;
        part = part < n ? part : n;
        memcpy(f->buffer + f->used, bytes, part);
        f->used += part;
        bytes += part;
        n -= part;
        while (done > 0 && f->state != FORM_DONE) {
            switch (f->state) {
            case FORM_AFTER: done = take_after(f); break;
            case FORM_HEADER: done = take_header(f); break;
            default: done = take_data(f); break;
            }
        }
        if (done < 0) {
            return -1;
        }
    }
    return 0;
}

int form_is_complete(const form *f)
{
    return f->state == FORM_DONE;
}
