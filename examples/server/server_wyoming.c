/* server_wyoming.c - see server_wyoming.h */
#define _XOPEN_SOURCE 700

#include "server_wyoming.h"

#include "../kit/json.h"
#include "server_address.h"
#include "server_log.h"
#include "server_models.h"
#include "server_pool.h"
#include "server_reply.h"
#include "server_request.h"
#include "server_run.h"
#include "server_thread.h"
#include "server_upload.h"
#include "server_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define LINE_MOST 65536u           /* bytes of a line, and of the data behind it */
#define PAYLOAD_MOST (4u << 20)
#define INLINE_MOST 32768u         /* bytes of data in a line that is sent */
#define CLIENTS_MOST 32
#define DRAIN_MS 2000              /* for what a client that is hung up on is still sending */
#define DRAIN_MOST ((size_t)8 << 20)

/* The format of audio. */
typedef struct pcm {
    int64_t rate, width, channels;
} pcm;

/* A connection. */
typedef struct client {
    wyoming *server;
    int fd;
    watch watch;
    char *in;                 /* bytes received but not used yet; room for LINE_MOST */
    size_t used;
    char *data;               /* of the current event; room for LINE_MOST */
    request request;
    upload audio;
    pcm format;               /* of the audio */
    int begun;                /* request and audio are open */
    int streaming;            /* transcript-start was sent */
    const char *code, *problem; /* why the client is hung up on, or NULL */
    int refused;              /* it is hung up on behind an error that was sent */
} client;

/* ---- sending ---- */

static int send_all(client *c, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t wrote = send(c->fd, bytes, n, MSG_NOSIGNAL);
        if (wrote <= 0 && errno != EINTR) {
            return -1;
        }
        bytes += wrote > 0 ? wrote : 0;
        n -= wrote > 0 ? (size_t)wrote : 0;
    }
    return 0;
}

/* Sends an event; data is a JSON object. What is too long for a line follows it. */
static int send_event(client *c, const char *type, const buffer *data)
{
    buffer line = {NULL, 0, 0, 0};
    size_t n = data != NULL ? data->n : 0;
    int failed;
    buffer_print(&line, "{\"type\": \"%s\", \"version\": \"1.7.1\", ", type);
    if (n > INLINE_MOST) {
        buffer_print(&line, "\"data_length\": %zu}\n", n);
        buffer_text(&line, data->bytes);
    } else {
        buffer_print(&line, "\"data\": ");
        buffer_text(&line, n > 0 ? data->bytes : "{}");
        buffer_text(&line, "}\n");
    }
    failed = line.failed || send_all(c, line.bytes, line.n) != 0;
    buffer_free(&line);
    return failed ? -1 : 0;
}

static int send_text(client *c, const char *type, const char *text, size_t length)
{
    buffer data = {NULL, 0, 0, 0};
    int failed;
    buffer_text(&data, "{\"text\": ");
    buffer_string(&data, text, length);
    buffer_text(&data, "}");
    failed = data.failed || send_event(c, type, &data) != 0;
    buffer_free(&data);
    return failed ? -1 : 0;
}

static int send_error(client *c, const char *code, const char *text)
{
    buffer data = {NULL, 0, 0, 0};
    int failed;
    buffer_text(&data, "{\"text\": ");
    buffer_string(&data, text, strlen(text));
    buffer_print(&data, ", \"code\": \"%s\"}", code);
    failed = data.failed || send_event(c, "error", &data) != 0;
    buffer_free(&data);
    return failed ? -1 : 0;
}

/* How many languages a model has, of which English is the first. One that was not loaded so far may
 * have all, unless its name says that it has English only. */
static int languages_of(served *m, const wnpu_model_info *info)
{
    const char *english = strstr(m->name, ".en");
    if (info->n_vocab > 0) {
        return info->multilingual ? info->n_languages : 1;
    }
    return english != NULL && strchr(".-", english[3]) != NULL ? 1 : wnpu_language_count();
}

static int send_info(client *c)
{
    static const char by[] = "\"attribution\": {\"name\": \"whisper_npu\", \"url\": \"\"}, "
                             "\"installed\": true, \"version\": null";
    buffer b = {NULL, 0, 0, 0};
    wnpu_model_info info;
    served *m;
    size_t k;
    int i, failed;
    buffer_print(&b, "{\"asr\": [{\"name\": \"whisper_npu\", \"description\": \"Whisper\", %s, "
                 "\"supports_transcript_streaming\": true, \"models\": [", by);
    for (k = 0; (m = models_at(k)) != NULL; k++) {
        int known = models_info(m, &info) == 0, n = languages_of(m, &info);
        buffer_text(&b, k > 0 ? ", {\"name\": " : "{\"name\": ");
        buffer_string(&b, m->name, strlen(m->name));
        buffer_print(&b, ", \"description\": \"Whisper%s%s\", %s, \"languages\": [",
                     known ? " " : "", known ? info.name : "", by);
        for (i = 0; i < n; i++) {
            buffer_print(&b, i > 0 ? ", \"%s\"" : "\"%s\"", wnpu_language_code(i));
        }
        buffer_text(&b, "]}");
    }
    buffer_text(&b, "]}], \"tts\": [], \"handle\": [], \"intent\": [], \"wake\": [], "
                "\"mic\": [], \"snd\": []}");
    failed = b.failed || send_event(c, "info", &b) != 0;
    buffer_free(&b);
    return failed ? -1 : 0;
}

/* ---- receiving ---- */

/* Decides to hang up, and why. Returns -1. */
static int give_up(client *c, const char *code, const char *problem)
{
    c->code = code;
    c->problem = problem;
    return -1;
}

/* Takes n bytes that follow; to and audio may be NULL. Returns 0, or -1 if they do not come or
 * there is no room for them. */
static int receive(client *c, char *to, size_t n, upload *audio)
{
    while (n > 0) {
        size_t part = c->used < n ? c->used : n;
        if (part == 0) {
            ssize_t got = recv(c->fd, c->in, LINE_MOST, 0);
            if (got == 0 || (got < 0 && errno != EINTR)) {
                return -1;
            }
            c->used = got > 0 ? (size_t)got : 0;
            continue;
        }
        if (to != NULL) {
            memcpy(to, c->in, part);
            to += part;
        }
        if (audio != NULL && upload_add(audio, c->in, part) != 0) {
            return errno == EFBIG ? give_up(c, "too_much_audio", "there is too much audio")
                                  : give_up(c, "server_busy", "there is no room for the audio");
        }
        memmove(c->in, c->in + part, c->used - part);
        c->used -= part;
        n -= part;
    }
    return 0;
}

/* Length of the line that is received next, with its end; 0 if there is none, or it is too long. */
static size_t receive_line(client *c)
{
    char *end = NULL;
    while ((end = memchr(c->in, '\n', c->used)) == NULL && c->used < LINE_MOST) {
        ssize_t got = recv(c->fd, c->in + c->used, LINE_MOST - c->used, 0);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return 0;
        }
        c->used += got > 0 ? (size_t)got : 0;
    }
    if (end == NULL) {
        (void)give_up(c, "invalid_event", "the event is too long");
    }
    return end != NULL ? (size_t)(end - c->in) + 1 : 0;
}

/* ---- events ---- */

static void end_request(client *c)
{
    if (c->begun) {
        upload_free(&c->audio);
        request_free(&c->request);
        atomic_fetch_sub(&c->server->active, 1);
    }
    c->begun = 0;
}

static int begin_request(client *c)
{
    const http_options *o = c->server->options;
    end_request(c);
    if (request_init(&c->request, API_OPENAI, &o->params, o->max_beams) != 0) {
        return give_up(c, "server_busy", "no memory for another request");
    }
    upload_init(&c->audio, o->max_bytes);
    c->request.raw = 1;
    c->begun = 1;
    atomic_fetch_add(&c->server->active, 1);
    c->format = (pcm){16000, 2, 1};
    return 0;
}

static int take_transcribe(client *c, json data)
{
    char language[64], name[2 * REQUEST_NAME_MOST];
    size_t n = json_string(json_get(data, "language"), language, sizeof language);
    size_t m = json_string(json_get(data, "name"), name, sizeof name);
    /* It may also come behind audio-start, whose format then counts. */
    if ((!c->begun || c->audio.size > 0) && begin_request(c) != 0) {
        return -1;
    }
    /* A language that is not known is detected. */
    (void)request_field(&c->request, "language", language, n < sizeof language ? n : 0);
    (void)request_field(&c->request, "model", name, m < sizeof name ? m : 0);
    return 0;
}

/* Reads a format, whose missing members stay as they were. Returns 0, or -1 if it is wrong. */
static int read_format(json data, pcm *p)
{
    json rate = json_get(data, "rate"), width = json_get(data, "width");
    json channels = json_get(data, "channels");
    return (rate.at != NULL && json_integer(rate, 1000, 384000, &p->rate) != 0) ||
           (width.at != NULL && json_integer(width, 1, 4, &p->width) != 0) ||
           (channels.at != NULL && json_integer(channels, 1, 256, &p->channels) != 0) ? -1 : 0;
}

static void set_format(request *r, const pcm *p)
{
    static const int32_t formats[] = {WNPU_SAMPLE_U8, WNPU_SAMPLE_S16LE, WNPU_SAMPLE_S24LE,
                                      WNPU_SAMPLE_S32LE};
    r->raw_rate = (uint32_t)p->rate;
    r->raw_channels = (uint32_t)p->channels;
    r->raw_format = formats[p->width - 1];
}

static int take_audio_start(client *c, json data)
{
    pcm format = {16000, 2, 1};
    /* Audio without an end is forgotten. */
    if ((!c->begun || c->audio.size > 0) && begin_request(c) != 0) {
        return -1;
    }
    if (read_format(data, &format) != 0) {
        return give_up(c, "invalid_event", "the format of the audio is not supported");
    }
    set_format(&c->request, &format);
    c->format = format;
    return 0;
}

/* A chunk names its format, too, and audio-start may be missing. */
static int begin_chunk(client *c, json data)
{
    pcm format = c->begun ? c->format : (pcm){16000, 2, 1};
    if (!c->begun && begin_request(c) != 0) {
        return -1;
    }
    if (read_format(data, &format) != 0 ||
        (c->audio.size > 0 && memcmp(&format, &c->format, sizeof format) != 0)) {
        return give_up(c, "invalid_event", "the format of the audio is not supported, or changes");
    }
    set_format(&c->request, &format);
    c->format = format;
    return 0;
}

/* Announces text, once. */
static int start_transcript(client *c)
{
    int failed = !c->streaming && send_event(c, "transcript-start", NULL) != 0;
    c->streaming = 1;
    return failed ? -1 : 0;
}

static int on_segment(void *user, const wnpu_segment *segment, size_t index)
{
    size_t skip = index == 0 && segment->text[0] == ' ';
    return start_transcript(user) != 0 ? -1 :
           send_text(user, "transcript-chunk", segment->text + skip, segment->text_length - skip);
}

static void answer_text(buffer *b, const wnpu_session *session, const wnpu_model *model,
                        const request *r)
{
    request text = *r;
    text.format = ANSWER_TEXT;
    reply_results(b, session, model, &text);
}

/* Sends the result of a job. Returns 0, or -1 if the client is gone (http_status 0), or its
 * connection is to be closed: clients ignore errors, and wait for a transcript or that. */
static int send_result(client *c, const job *j)
{
    size_t n = j->body.n > 0 ? j->body.n - 1 : 0; /* without the line end */
    if (j->http_status == 0) {
        return -1;
    }
    if (j->http_status != 200) {
        c->refused = send_error(c, j->http_status == 503 ? "server_busy" : j->http_status < 500
                                ? "invalid_audio" : "internal_error", j->message) == 0;
        return -1;
    }
    if (start_transcript(c) != 0 ||
        send_text(c, "transcript", n > 0 ? j->body.bytes : "", n) != 0) {
        return -1;
    }
    return send_event(c, "transcript-stop", NULL);
}

static void log_job(const client *c, const job *j, int64_t ms)
{
    char address[64];
    log_entry e = {address, NULL, "Wyoming", "", j->http_status, j->audio_ms, j->queued_ms, ms,
                   j->http_status == 200 ? j->warning
                   : j->http_status == 0 ? "the client is gone" : j->message, NULL};
    address_of_client(c->fd, address);
    log_request(&e);
}

static int take_audio_stop(client *c)
{
    const http_options *o = c->server->options;
    job j;
    int64_t begin = platform_now_ms();
    int failed, held;
    if (!c->begun) {
        return give_up(c, "invalid_event", "audio-stop came without audio-start");
    }
    memset(&j, 0, sizeof j);
    j.model = models_find(c->request.model[0] != '\0' ? c->request.model : NULL);
    j.request = &c->request;
    j.upload = &c->audio;
    j.watch = &c->watch;
    j.stall_ms = o->stall_ms;
    j.most_ms = o->most_ms;
    j.on_segment = on_segment;
    j.user = c;
    j.answer = answer_text;
    watch_enter(&c->watch, WATCH_WRITING, 0); /* opening a model has no deadline */
    held = models_hold(j.model, j.message) == 0;
    if (held && request_finish(&c->request, j.model->model) != 0) { /* it is detected then */
        c->request.params.language = WNPU_LANGUAGE_AUTO;
    }
    watch_enter(&c->watch, WATCH_WORKING, o->work_ms);
    c->streaming = 0;
    if (!held) {
        j.http_status = 503;
        j.queued_ms = -1;
    } else if (c->audio.size > 0) {
        job_run(&j);
    } else {
        j.http_status = 200;
        j.queued_ms = -1;
    }
    watch_enter(&c->watch, WATCH_WRITING, o->write_ms);
    failed = send_result(c, &j) != 0;
    pool_count_request(j.http_status);
    log_job(c, &j, platform_now_ms() - begin);
    job_free(&j);
    if (held) {
        models_release(j.model);
    }
    end_request(c);
    return failed ? -1 : 0;
}

/* Handles an event; the payload, if there is one, is received. Returns 0, or -1 to hang up. */
static int take_event(client *c, json type, json data, size_t payload)
{
    int is_chunk = json_is(type, "audio-chunk");
    upload *audio = is_chunk ? &c->audio : NULL;
    if (is_chunk && begin_chunk(c, data) != 0) {
        return -1;
    }
    if (payload > 0 && receive(c, NULL, payload, audio) != 0) {
        return -1;
    }
    return json_is(type, "describe") ? send_info(c)
         : json_is(type, "ping") ? send_event(c, "pong", NULL)
         : json_is(type, "transcribe") ? take_transcribe(c, data)
         : json_is(type, "audio-start") ? take_audio_start(c, data)
         : json_is(type, "audio-stop") ? take_audio_stop(c) : 0;
}

/* Reads a length, which may be missing. Returns 0, or -1 if it is wrong. */
static int read_length(json event, const char *name, int64_t most, int64_t *length)
{
    json value = json_get(event, name);
    *length = 0;
    return value.at == NULL || json_type(value) == 'n' ? 0 : json_integer(value, 0, most, length);
}

/* Receives and handles the next event. Returns 0, or -1 to hang up. */
static int serve_event(client *c)
{
    char *line = NULL;
    json event, data, more, type;
    int64_t data_length = 0, payload = 0;
    size_t n, wrong;
    int failed = -1;
    watch_enter(&c->watch, WATCH_READING, c->server->options->work_ms);
    n = receive_line(c);
    line = n > 0 ? malloc(n) : NULL;
    if (line == NULL || receive(c, line, n, NULL) != 0) {
        free(line);
        return -1;
    }
    (void)json_parse(&event, line, n, &wrong);
    type = json_get(event, "type");
    if (json_type(type) != '"') {
        free(line);
        return give_up(c, "invalid_event", "the event is not a JSON object with a type");
    }
    data = json_get(event, "data");
    watch_enter(&c->watch, WATCH_READING, c->server->options->body_ms);
    if (read_length(event, "data_length", LINE_MOST, &data_length) != 0 ||
        read_length(event, "payload_length", PAYLOAD_MOST, &payload) != 0) {
        (void)give_up(c, "invalid_event", "the length of the event's data is wrong");
    } else if (receive(c, c->data, (size_t)data_length, NULL) == 0) {
        if (data_length > 0 && json_parse(&more, c->data, (size_t)data_length, &wrong) == 0) {
            data = more;
        }
        failed = take_event(c, type, data, (size_t)payload);
    }
    free(line);
    return failed;
}

/* ---- connections ---- */

/* Tells the client why it is hung up on, if it is, and reads what it is still sending: a socket
 * that is closed with unread bytes may lose the answer. */
static void hang_up(client *c)
{
    size_t total = 0;
    ssize_t got = 1;
    if (c->problem == NULL && !c->refused) {
        return;
    }
    if (c->problem != NULL) {
        watch_enter(&c->watch, WATCH_WRITING, c->server->options->write_ms);
        (void)send_error(c, c->code, c->problem);
        pool_count_refusal(POOL_REFUSED_REQUEST);
    }
    (void)shutdown(c->fd, SHUT_WR);
    watch_enter(&c->watch, WATCH_READING, DRAIN_MS);
    while (got > 0 && total < DRAIN_MOST) {
        got = recv(c->fd, c->in, LINE_MOST, 0);
        total += got > 0 ? (size_t)got : 0;
    }
}

static void *serve_client(void *user)
{
    client *c = user;
    wyoming *server = c->server;
    watch_add(&c->watch, c->fd, WATCH_READING, server->options->work_ms);
    while (!atomic_load(&server->ending) && serve_event(c) == 0) {
    }
    end_request(c);
    hang_up(c);
    watch_remove(&c->watch);
    close(c->fd);
    free(c->in);
    free(c->data);
    free(c);
    atomic_fetch_sub(&server->clients, 1); /* the last use of it, see wyoming_stop() */
    return NULL;
}

/* Starts a thread for a connection. */
static void accept_client(wyoming *server, int fd)
{
    client *c = calloc(1, sizeof *c);
    struct timeval patience = {0}; /* with a client that receives nothing */
    int one = 1, started = 0;
    patience.tv_sec = (time_t)(server->options->idle_ms / 1000);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (c != NULL) {
        c->server = server;
        c->fd = fd;
        c->in = malloc(LINE_MOST);
        c->data = malloc(LINE_MOST);
        atomic_fetch_add(&server->clients, 1);
        started = c->in != NULL && c->data != NULL &&
                  thread_start(NULL, serve_client, c) == 0;
        if (!started) {
            atomic_fetch_sub(&server->clients, 1);
            free(c->in);
            free(c->data);
        }
    }
    if (!started) {
        close(fd);
        free(c);
    }
}

/* Answers a connection that is not served. Its socket is new, so that sending does not block. */
static void refuse_client(int fd)
{
    client c;
    int closing = pool_is_closing();
    memset(&c, 0, sizeof c);
    c.fd = fd;
    (void)send_error(&c, "server_busy",
                     closing ? POOL_CLOSING_MESSAGE : "there are too many connections");
    close(fd);
    pool_count_refusal(closing ? POOL_REFUSED_CLOSING : POOL_REFUSED_FULL);
}

static void *listen_for_clients(void *user)
{
    wyoming *server = user;
    while (!atomic_load(&server->ending)) {
        struct pollfd p = {server->listening, POLLIN, 0};
        int fd = poll(&p, 1, 200) > 0 ? accept(p.fd, NULL, NULL) : -1;
        if (fd >= 0 && (atomic_load(&server->clients) >= CLIENTS_MOST || pool_is_closing())) {
            refuse_client(fd);
        } else if (fd >= 0) {
            accept_client(server, fd);
        }
    }
    return NULL;
}

int wyoming_start(wyoming *server, const http_options *options, const char *address,
                  char why[256])
{
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    server->options = options;
    server->listening = address_listen(address, why);
    if (server->listening < 0) {
        return -1;
    }
    if (getsockname(server->listening, (struct sockaddr *)&own, &size) != 0 ||
        pthread_create(&server->thread, NULL, listen_for_clients, server) != 0) {
        (void)snprintf(why, 256, "%s", strerror(errno));
        close(server->listening);
        return -1;
    }
    server->started = 1;
    return ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port
                                           : ((struct sockaddr_in *)&own)->sin_port);
}

void wyoming_stop(wyoming *server)
{
    struct timespec tick = {0, WATCH_TICK_MS * 1000000L};
    if (!server->started) {
        return;
    }
    atomic_store(&server->ending, 1);
    pthread_join(server->thread, NULL);
    close(server->listening);
    while (atomic_load(&server->clients) > 0) {
        nanosleep(&tick, NULL);
    }
}
