/* server_options.c - see server_options.h */
#include "server_options.h"

#include <civetweb.h>

const http_options *http_options_of(const struct mg_connection *conn)
{
    const http_options *const *first = mg_get_user_context_data(conn);
    return *first;
}
