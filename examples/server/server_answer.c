/* server_answer.c - see server_answer.h */
#define _XOPEN_SOURCE 700

#include "server_answer.h"

#include "server_pool.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- connections ---- */

/* Whether the client wants to send another request over the connection. Two lengths, or a length
 * and chunks, are read in different ways by different programs: for a proxy, what follows such a
 * body may be part of it, so nothing behind it is taken for a request. */
static int is_persistent(const connection *conn)
{
    const struct mg_request_info *info = mg_get_request_info(conn);
    const char *wish = mg_get_header(conn, "Connection");
    int i, lengths = 0;
    for (i = 0; i < info->num_headers; i++) {
        lengths += strcasecmp(info->http_headers[i].name, "Content-Length") == 0;
        if (strcasecmp(info->http_headers[i].name, "Transfer-Encoding") == 0) {
            return 0;
        }
    }
    return lengths <= 1 && (wish != NULL ? strcasecmp(wish, "keep-alive") == 0
                                         : strcmp(info->http_version, "1.1") == 0);
}

void exchange_begin(connection *conn, exchange *x, int crowded)
{
    long long length = mg_get_request_info(conn)->content_length;
    x->unread = length > 0 ? length : 0;
    x->keep = !crowded && is_persistent(conn);
    x->audio_ms = x->queued_ms = -1;
    x->reason[0] = '\0';
    x->key = "";
    mg_set_user_connection_data(conn, x);
}

void exchange_end(connection *conn)
{
    const exchange *x = mg_get_user_connection_data(conn);
    if (x == NULL || !x->keep || x->unread > 0) {
        mg_disable_connection_keep_alive(conn);
    }
    mg_set_user_connection_data(conn, NULL);
}

int answer_read(connection *conn, void *bytes, size_t n)
{
    exchange *x = mg_get_user_connection_data(conn);
    int got = mg_read(conn, bytes, n);
    x->unread -= got > 0 ? got : 0;
    return got;
}

void answer_close(connection *conn)
{
    exchange *x = mg_get_user_connection_data(conn);
    if (x != NULL) {
        x->keep = 0;
    }
}

int answer_find_key(const connection *conn)
{
    static const char *const names[] = {"api-key", "X-API-Key"};
    const keys *k = &http_options_of(conn)->keys;
    const char *given = mg_get_header(conn, "Authorization");
    size_t i;
    int found = k->n == 0 ? 0
              : given != NULL && strncasecmp(given, "Bearer ", 7) == 0 ? keys_find(k, given + 7)
                                                                       : -1;
    for (i = 0; found < 0 && i < sizeof names / sizeof names[0]; i++) {
        given = mg_get_header(conn, names[i]);
        found = given != NULL ? keys_find(k, given) : -1;
    }
    return found;
}

/* Whether a page may send requests: one of this server, or of the site that --cors names. */
static int is_own_page(const http_options *o, const char *origin, const char *host)
{
    const char *slashes = strstr(origin, "://");
    return (slashes != NULL && host != NULL && strcmp(slashes + 3, host) == 0) ||
           (o->cors != NULL && (strcmp(o->cors, "*") == 0 || strcmp(o->cors, origin) == 0));
}

static int ends_with(const char *text, size_t n, const char *end)
{
    size_t m = strlen(end);
    return n >= m && strncasecmp(text + n - m, end, m) == 0;
}

/* Whether a name cannot be one that somebody else made an address of this machine: an address
 * itself, a name of the local network, or one that was given to this server. */
static int is_own_name(const http_options *o, const char *host)
{
    static const char *const local[] = {
        ".local", ".localhost", ".localdomain", ".internal", ".intranet", ".home.arpa", ".home",
        ".lan", ".fritz.box", ".ts.net"
    };
    size_t i, n = strcspn(host, ":");
    if (host[0] == '[') {
        return 1;
    }
    n -= n > 0 && host[n - 1] == '.';
    if (memchr(host, '.', n) == NULL || strspn(host, "0123456789.") >= n) {
        return 1;
    }
    for (i = 0; i < sizeof local / sizeof local[0]; i++) {
        if (ends_with(host, n, local[i])) {
            return 1;
        }
    }
    for (i = 0; i < (size_t)o->n_hosts; i++) {
        if (strlen(o->hosts[i]) == n && strncasecmp(o->hosts[i], host, n) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Whether a request comes from a program, rather than from a page, out of the local network. It may
 * use any name: only pages can be given one that is not theirs. */
static int is_local_program(const connection *conn)
{
    client_info client;
    return mg_get_header(conn, "Origin") == NULL && mg_get_header(conn, "Sec-Fetch-Site") == NULL &&
           client_identify(conn, &client) == 0 && client_is_private(client.address);
}

const char *answer_distrusts(const connection *conn)
{
    const http_options *o = http_options_of(conn);
    const char *origin = mg_get_header(conn, "Origin"), *host = mg_get_header(conn, "Host");
    const char *given = mg_get_header(conn, "Authorization");
    int is_socket = mg_get_header(conn, "Upgrade") != NULL;
    /* No page of another site knows the key, or can send it without being asked before; browsers
     * do not ask before they connect. */
    given = given != NULL ? given : mg_get_header(conn, "api-key");
    given = given != NULL ? given : mg_get_header(conn, "X-API-Key");
    if (o->keys.n > 0 && given != NULL && !is_socket) {
        return NULL;
    }
    if (origin != NULL && !is_own_page(o, origin, host)) {
        return "pages of this origin may not use this server; see --cors";
    }
    if (o->keys.n == 0 && host != NULL && !is_own_name(o, host) && !is_local_program(conn) &&
        (o->cors == NULL || strcmp(o->cors, "*") != 0)) {
        return "this server is not known by this name; see --host";
    }
    return NULL;
}

int has_method(const connection *conn, const char *method)
{
    const char *given = mg_get_request_info(conn)->request_method;
    return given != NULL && strcmp(given, method) == 0;
}

/* ---- answers ---- */

static const char *reason_of(int status)
{
    switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 411: return "Length Required";
    case 413: return "Content Too Large";
    case 429: return "Too Many Requests";
    case 426: return "Upgrade Required";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Internal Server Error";
    }
}

void answer_header(buffer *head, const char *name, const char *value)
{
    buffer_print(head, "%s: ", name);
    for (; *value != '\0'; value++) {
        char c = *value >= ' ' && *value < 127 && *value != '"' ? *value : '?';
        (void)buffer_write(head, &c, 1);
    }
    buffer_text(head, "\r\n");
}

static void add_connection(connection *conn, buffer *head)
{
    exchange *x = mg_get_user_connection_data(conn);
    if (x != NULL && (x->unread > 0 || pool_phase_now() != POOL_OPEN)) {
        x->keep = 0;
    }
    if (x != NULL && x->keep) {
        buffer_print(head, "Connection: keep-alive\r\nKeep-Alive: timeout=%d\r\n",
                     HTTP_KEEP_MS / 1000);
    } else {
        buffer_text(head, "Connection: close\r\n");
    }
}

void answer_head(connection *conn, buffer *head, int status, const char *type)
{
    const char *cors = http_options_of(conn)->cors;
    const exchange *x = mg_get_user_connection_data(conn);
    buffer_print(head, "HTTP/1.1 %d %s\r\nX-Content-Type-Options: nosniff\r\n", status,
                 reason_of(status));
    add_connection(conn, head);
    if (x != NULL) {
        buffer_print(head, "X-Request-Id: %s\r\n", x->client.id);
    }
    if (type != NULL) {
        buffer_print(head, "Content-Type: %s\r\n", type);
    }
    if (cors != NULL) {
        buffer_print(head, "Access-Control-Allow-Origin: %s\r\n"
                     "Access-Control-Expose-Headers: Retry-After, X-Request-Id, "
                     "X-Warning\r\nVary: Origin\r\n",
                     cors);
    }
    if (status == 503 || status == 429) {
        buffer_print(head, "Retry-After: %d\r\n", pool_retry_after());
    }
    if (status == 401) {
        buffer_text(head, "WWW-Authenticate: Bearer\r\n");
    }
}

void answer_send(connection *conn, buffer *head, const void *body, size_t n)
{
    buffer_print(head, "Content-Length: %zu\r\n\r\n", n);
    if (!head->failed) {
        (void)mg_write(conn, head->bytes, head->n);
        if (n > 0 && !has_method(conn, "HEAD")) {
            (void)mg_write(conn, body, n);
        }
    }
    buffer_free(head);
}

int answer_events(connection *conn, int chunked)
{
    buffer head = {NULL, 0, 0, 0};
    int failed;
    if (!chunked) {
        answer_close(conn);
    }
    answer_head(conn, &head, 200, "text/event-stream; charset=utf-8");
    buffer_text(&head, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
    buffer_text(&head, chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    failed = head.failed || mg_write(conn, head.bytes, head.n) <= 0;
    buffer_free(&head);
    return failed ? -1 : 0;
}

int answer(connection *conn, int status, const char *type, const void *body, size_t n)
{
    buffer head = {NULL, 0, 0, 0};
    answer_head(conn, &head, status, type);
    answer_send(conn, &head, body, n);
    return status;
}

int answer_send_error(connection *conn, buffer *head, request_api api, int status,
                      const char *message, const char *param)
{
    buffer body = {NULL, 0, 0, 0};
    exchange *x = mg_get_user_connection_data(conn);
    if (x != NULL) {
        (void)snprintf(x->reason, sizeof x->reason, "%.255s", message);
    }
    reply_error(&body, api, status, message, param);
    answer_send(conn, head, body.bytes, body.n);
    buffer_free(&body);
    return status;
}

int answer_error(connection *conn, request_api api, int status, const char *message,
                 const char *param)
{
    buffer head = {NULL, 0, 0, 0};
    answer_head(conn, &head, status, "application/json");
    return answer_send_error(conn, &head, api, status, message, param);
}
