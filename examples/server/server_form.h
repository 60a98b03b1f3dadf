/* server_form.h - takes the body of a multipart/form-data request (RFC 7578) apart as it arrives,
 * in bounded memory. civetweb 1.15, which Debian has, can be made to loop forever in its own parser
 * by a request. Part of server. */
#ifndef SERVER_FORM_H
#define SERVER_FORM_H

#include <stddef.h>

#define FORM_NAME_MOST 128           /* longest name of a field; longer ones are cut */
#define FORM_BUFFER 8192             /* also the longest header of a part */
#define FORM_PARTS_MOST 2000

/* A part begins, or more of its data has arrived. Return 0, or another number to end parsing. */
typedef int (*form_part_fn)(void *user, const char *name);
typedef int (*form_data_fn)(void *user, const char *bytes, size_t n);

typedef enum form_state { FORM_PREAMBLE, FORM_AFTER, FORM_HEADER, FORM_DATA, FORM_DONE } form_state;

typedef struct form {
    form_part_fn on_part;
    form_data_fn on_data;
    void *user;
    form_state state;
    char delimiter[80];              /* CR LF, two hyphens, the boundary */
    size_t delimiter_size, parts, used;
    char buffer[FORM_BUFFER];
} form;

/* content_type: of the request. Returns 0, or -1 if it is not a multipart form. */
int form_init(form *f, const char *content_type, form_part_fn on_part, form_data_fn on_data,
              void *user);
/* Returns 0, or -1 if the body is malformed or a callback has ended the parsing. */
int form_push(form *f, const char *bytes, size_t n);
/* Whether the form was complete. */
int form_is_complete(const form *f);

#endif
