/* server_http.c - see server_http.h */
#define _XOPEN_SOURCE 700

#include "server_http.h"

#include "server_address.h"
#include "server_answer.h"
#include "server_form.h"
#include "server_jobs.h"
#include "server_log.h"
#include "server_models.h"
#include "server_pool.h"
#include "server_realtime.h"
#include "server_run.h"
#include "server_tls.h"
#include "server_upload.h"
#include "server_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define DRAIN_MOST ((uint64_t)8 << 20) /* bytes of a refused body that are read and discarded */
#define DRAIN_MS 2000
#define RENEWED_MS 100 /* time after which data renews the deadline of a body */
#define SLOWEST_BODY 1000 /* bytes per second, while the connections are scarce */
#define FIELDS_MOST (REQUEST_TEXT_MOST + REQUEST_ALIGN_MOST) /* bytes beside the audio */
#define JOBS_PATH "/v1/jobs"
#define TOO_LARGE "the request is larger than this server accepts"

/* The page at "/": examples/server/server.html as numbers, made by the Makefile. */
static const char page[] = {
#include "server_page.h"
};

/* The document at "/openapi.json", in the same way. */
static const char openapi[] = {
#include "server_openapi.h"
};

static http_server *server_of(const connection *conn)
{
    return mg_get_user_context_data(conn);
}

/* Reads what a refused client is still sending, so that it gets to see the answer. */
static void drain(connection *conn, watch *w)
{
    char bytes[4096];
    uint64_t total = 0;
    int n = 1;
    watch_enter(w, WATCH_READING, DRAIN_MS);
    while (n > 0 && total < DRAIN_MOST) {
        n = answer_read(conn, bytes, sizeof bytes);
        total += n > 0 ? (uint64_t)n : 0;
    }
}

/* ---- forms ---- */

/* A form that is being read. */
typedef struct reading {
    request *request;
    upload *upload;
    form form;
    char name[FORM_NAME_MOST + 1];
    buffer value;
    int in_file, files, ignored;
    int status;               /* of an error, or 0 */
    char message[512];
} reading;

static int refuse_form(reading *f, int status, const char *message)
{
    if (f->status == 0) {
        f->status = status;
        (void)snprintf(f->message, sizeof f->message, "%s", message);
    }
    return -1;
}

/* Ends the field before. Returns 0, or -1 if it was refused. */
static int end_field(reading *f)
{
    int failed = 0;
    if (f->name[0] != '\0' && !f->ignored && f->value.n > 0) {
        failed = request_field(f->request, f->name, f->value.bytes, f->value.n);
        if (failed != 0) {
            (void)refuse_form(f, 400, f->request->problem);
        }
    }
    f->name[0] = '\0';
    buffer_clear(&f->value);
    return failed;
}

static int on_part(void *user, const char *name)
{
    reading *f = user;
    int is_file = strcmp(name, "file") == 0 || strcmp(name, "audio_file") == 0;
    if (end_field(f) != 0) {
        return -1;
    }
    f->in_file = is_file && f->files++ == 0;
    f->ignored = is_file || !request_knows(f->request, name);
    (void)snprintf(f->name, sizeof f->name, "%s", name);
    return 0;
}

static int on_data(void *user, const char *bytes, size_t n)
{
    reading *f = user;
    if (f->in_file && upload_add(f->upload, bytes, n) != 0) {
        if (errno != EFBIG) {
            return refuse_form(f, 503, "there is no room for the upload");
        }
        pool_count_refusal(POOL_REFUSED_SIZE);
        return refuse_form(f, 413, TOO_LARGE);
    }
    if (!f->ignored) {
        size_t most = request_most(f->request, f->name);
        (void)buffer_write(&f->value, bytes, n);
        if (f->value.n > most && request_keeps_end(f->request, f->name)) {
            memmove(f->value.bytes, f->value.bytes + f->value.n - most, most);
            f->value.n = most;
        }
        if (f->value.n > most) {
            f->request->wrong = f->name;
            return refuse_form(f, 400, "a field is too long");
        }
    }
    return 0;
}

/* Reads the body. Returns 0 or an HTTP status with the reason in f->message. */
static int read_body(connection *conn, watch *w, reading *f)
{
    const http_options *o = http_options_of(conn);
    char bytes[4096];
    int64_t renewed = -RENEWED_MS;
    uint64_t total = 0;
    int n = 1;
    if (form_init(&f->form, mg_get_header(conn, "Content-Type"), on_part, on_data, f) != 0) {
        return refuse_form(f, 400, "the request must be a multipart form");
    }
    watch_pace(w, SLOWEST_BODY);
    while (n > 0 && !form_is_complete(&f->form) && f->status == 0 &&
           !w->expired && !w->stop) {
        if (platform_now_ms() >= renewed + RENEWED_MS) { /* something has come */
            renewed = platform_now_ms();
            watch_enter(w, WATCH_READING, o->body_ms);
        }
        n = answer_read(conn, bytes, sizeof bytes);
        total += n > 0 ? (uint64_t)n : 0;
        if (total > o->max_bytes + FIELDS_MOST) { /* a body without a length */
            pool_count_refusal(POOL_REFUSED_SIZE);
            return refuse_form(f, 413, TOO_LARGE);
        }
        if (n > 0 && form_push(&f->form, bytes, (size_t)n) != 0) {
            return refuse_form(f, 400, "the multipart form is malformed");
        }
    }
    while (n > 0 && f->status == 0 && form_is_complete(&f->form)) { /* what follows the form */
        n = answer_read(conn, bytes, sizeof bytes);
    }
    if (w->stop) {
        pool_count_refusal(POOL_REFUSED_CLOSING);
        return refuse_form(f, 503, POOL_CLOSING_MESSAGE);
    }
    if (w->expired) {
        pool_count_refusal(POOL_REFUSED_TIME);
        return refuse_form(f, 408, "the body does not arrive");
    }
    return form_is_complete(&f->form) ? 0 : refuse_form(f, 400, "the body is incomplete");
}

static int read_form(connection *conn, watch *w, reading *f)
{
    const char *expect = mg_get_header(conn, "Expect");
    if (expect != NULL && strcasecmp(expect, "100-continue") == 0) {
        (void)mg_write(conn, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    }
    if (read_body(conn, w, f) == 0 && end_field(f) == 0 && f->upload->size == 0) {
        f->request->wrong = "file";
        (void)refuse_form(f, 400, f->files > 0 ? "the file is empty"
                          : f->request->api == API_ASR ? "the field audio_file is missing"
                                                       : "the field file is missing");
    }
    buffer_free(&f->value);
    return f->status;
}

/* ---- runs ---- */

/* What a client is sent to find out whether it is gone: an interim answer, which HTTP/1.1's clients
 * skip, or in place of an event a comment. */
#define PROBE_ANSWER "HTTP/1.1 100 Continue\r\n\r\n"
#define PROBE_EVENTS ":\n\n"
#define PROBE_CHUNK "3\r\n:\n\n\r\n"

/* A client that receives events. */
typedef struct listener {
    connection *conn;
    watch *watch;
    const request *request;
    const wnpu_model *model;
    int chunked, begun;
    int64_t latest_ms;        /* of what was sent, by platform_now_ms() */
} listener;

#define COMMENT_MS 10000 /* after which a client that receives events is sent something */

static int send_event(void *user, const buffer *event)
{
    listener *l = user;
    int failed = 0;
    watch_probe(l->watch, "");
    if (!l->begun) {
        l->begun = 1;
        failed = answer_events(l->conn, l->chunked) != 0;
    }
    if (!failed && event->n > 0) {
        failed = (l->chunked ? mg_send_chunk(l->conn, event->bytes, (unsigned)event->n)
                             : mg_write(l->conn, event->bytes, event->n)) <= 0;
    }
    watch_probe(l->watch, l->chunked ? PROBE_CHUNK : PROBE_EVENTS);
    l->latest_ms = platform_now_ms();
    return failed ? -1 : 0;
}

/* Begins the answer, and sends a comment if nothing else has been sent for a time: proxies and
 * clients give up on connections that are silent. */
static int keep_alive(listener *l)
{
    const int64_t since = l->begun ? platform_now_ms() - l->latest_ms : 0;
    buffer comment = {NULL, 0, 0, 0};
    int failed = 0;
    if (since >= COMMENT_MS) {
        buffer_text(&comment, ":\n\n");
    }
    if (!l->begun || since >= COMMENT_MS) {
        failed = send_event(l, &comment);
    }
    buffer_free(&comment);
    return failed;
}

/* Sends an event and frees it. */
static int pass_event(listener *l, buffer *event)
{
    int failed = event->failed || send_event(l, event) != 0;
    buffer_free(event);
    return failed ? -1 : 0;
}

static int send_segment(void *user, const wnpu_segment *segment, size_t index)
{
    listener *l = user;
    buffer event = {NULL, 0, 0, 0};
    reply_delta(&event, l->model, l->request, segment, index);
    return pass_event(l, &event);
}

static int send_tentative(void *user, const char *text, size_t length)
{
    buffer event = {NULL, 0, 0, 0};
    reply_tentative(&event, text, length);
    return pass_event(user, &event);
}

static int send_progress(void *user, int64_t done_ms, int64_t total_ms)
{
    listener *l = user;
    buffer event = {NULL, 0, 0, 0};
    if (!l->request->progress) {
        return keep_alive(l);
    }
    reply_progress(&event, done_ms, total_ms);
    return pass_event(l, &event);
}

static void send_waiting(void *user, int before)
{
    listener *l = user;
    buffer event = {NULL, 0, 0, 0};
    if (!l->request->progress) {
        (void)keep_alive(l);
        return;
    }
    reply_waiting(&event, before);
    (void)pass_event(l, &event); /* the watch notices a client that is gone */
}

/* Sends the end of the events, or the error that ended them. */
static void end_events(listener *l, job *j)
{
    if (j->http_status != 200) {
        buffer_clear(&j->body);
        buffer_text(&j->body, "event: error\ndata: ");
        reply_error(&j->body, API_OPENAI, j->http_status, j->message, j->param);
        buffer_text(&j->body, "\n");
    } else if (j->request->progress) {
        char both[JOB_WARNINGS_SIZE];
        buffer event = {NULL, 0, 0, 0};
        job_warnings(j, both);
        if (both[0] != '\0') {
            reply_warning(&event, both);
            (void)pass_event(l, &event);
        }
    }
    if (send_event(l, &j->body) == 0 && l->chunked) {
        (void)mg_send_chunk(l->conn, "", 0);
    }
}

static int answer_job(connection *conn, job *j, listener *l)
{
    buffer head = {NULL, 0, 0, 0};
    watch_enter(j->watch, WATCH_WRITING, http_options_of(conn)->write_ms);
    if (j->http_status == 0) {
        answer_close(conn);
        return 499; /* the client is gone; nginx's number for it */
    }
    if (l->begun || (j->on_segment != NULL && j->http_status == 200)) {
        end_events(l, j);
        return j->http_status;
    }
    if (j->http_status != 200) {
        return answer_error(conn, j->request->api, j->http_status, j->message, j->param);
    }
    answer_head(conn, &head, 200, j->kind != JOB_TRANSCRIBE ? "application/json"
                                      : reply_type(j->request));
    if (j->warning[0] != '\0' || j->request->warning[0] != '\0') {
        char both[JOB_WARNINGS_SIZE];
        job_warnings(j, both);
        answer_header(&head, "X-Warning", both);
    }
    answer_send(conn, &head, j->body.bytes, j->body.n);
    return 200;
}

static int run_job(connection *conn, watch *w, job_kind kind, request *r, upload *u, served *m)
{
    int chunked = strcmp(mg_get_request_info(conn)->http_version, "1.0") != 0;
    listener l = {conn, w, r, m->model, chunked, 0, 0};
    exchange *x = mg_get_user_connection_data(conn);
    const http_options *o = http_options_of(conn);
    job j;
    int status;
    memset(&j, 0, sizeof j);
    j.kind = kind;
    j.model = m;
    j.request = r;
    j.upload = u;
    j.watch = w;
    j.stall_ms = o->stall_ms;
    j.most_ms = o->most_ms;
    j.on_segment = r->stream ? send_segment : NULL;
    j.on_tentative = r->stream && r->tentative ? send_tentative : NULL;
    j.on_progress = r->stream ? send_progress : NULL;
    j.on_wait = r->stream ? send_waiting : NULL;
    j.answer = r->stream ? reply_done : NULL;
    j.user = &l;
    watch_probe(w, l.chunked ? PROBE_ANSWER : NULL);
    watch_enter(w, WATCH_WORKING, o->work_ms);
    job_run(&j);
    status = answer_job(conn, &j, &l);
    x->audio_ms = j.audio_ms;
    x->queued_ms = j.queued_ms;
    if (j.http_status != 200 || j.warning[0] != '\0') {
        (void)snprintf(x->reason, sizeof x->reason, "%.255s",
                       j.http_status == 0 ? "the client is gone"
                       : j.http_status != 200 ? j.message : j.warning);
    }
    job_free(&j);
    return status;
}

/* Holds the model that a request names, which *m then receives. Returns 0 or an HTTP status with
 * the reason in f->message. */
static int choose_model(watch *w, reading *f, served **m)
{
    served *named = models_find(f->request->model[0] != '\0' ? f->request->model : NULL);
    char why[512];
    watch_enter(w, WATCH_WRITING, 0); /* opening a model has no deadline */
    if (models_hold(named, why) != 0) {
        (void)refuse_form(f, 503, why);
        return f->status;
    }
    *m = named;
    if (request_finish(f->request, named->model) != 0) {
        (void)refuse_form(f, 400, f->request->problem);
    }
    return f->status;
}

/* Whether the client does not want to wait for the answer (RFC 7240), or says so in the form. */
static int is_async(const connection *conn, const request *r)
{
    const char *prefer = r->api == API_OPENAI ? mg_get_header(conn, "Prefer") : NULL;
    return r->async || (prefer != NULL && strstr(prefer, "respond-async") != NULL);
}

/* Makes a job of a request, which then owns the submission. Returns the HTTP status, 202 if so. */
static int submit(connection *conn, submission *s)
{
    buffer head = {NULL, 0, 0, 0}, body = {NULL, 0, 0, 0};
    char id[JOBS_ID_SIZE], path[JOBS_ID_SIZE + sizeof JOBS_PATH];
    if (jobs_submit(s, id) != 0) {
        pool_count_refusal(POOL_REFUSED_FULL);
        return answer_error(conn, API_OPENAI, 503, "there are too many jobs", NULL);
    }
    if (jobs_describe(id, JOBS_ANSWER, &body) != 0) { /* done, and others made it go already */
        buffer_print(&body, "{\"id\": \"%s\"}\n", id);
    }
    (void)snprintf(path, sizeof path, "%s/%s", JOBS_PATH, id);
    answer_head(conn, &head, 202, "application/json");
    answer_header(&head, "Location", path);
    answer_header(&head, "Preference-Applied", "respond-async");
    answer_send(conn, &head, body.bytes, body.n);
    buffer_free(&body);
    return 202;
}

/* Room for what a client sends; NULL without memory. */
static submission *open_submission(const http_options *o, request_api api, int task)
{
    submission *s = calloc(1, sizeof *s);
    if (s == NULL || request_init(&s->request, api, &o->params, o->max_beams) != 0) {
        free(s);
        return NULL;
    }
    s->request.params.task = task;
    upload_init(&s->upload, o->max_bytes);
    return s;
}

/* Runs what was sent, at once or as a job. Returns the HTTP status. */
static int serve_submission(connection *conn, watch *w, submission *s, job_kind kind)
{
    request *r = &s->request;
    int status;
    r->params.initial_prompt = request_prompt_end(s->model->model, r->params.initial_prompt);
    status = is_async(conn, r) ? submit(conn, s)
                               : run_job(conn, w, kind, r, &s->upload, s->model);
    if (status != 202) {
        submission_free(s);
    }
    return status;
}

/* Reads a form and runs what it asks for. */
static int serve_upload(connection *conn, watch *w, request_api api, job_kind kind, int task)
{
    const struct mg_request_info *info = mg_get_request_info(conn);
    const http_options *o = http_options_of(conn);
    submission *s;
    reading *f;
    int status = 0;
    if (info->content_length > (long long)(o->max_bytes + FIELDS_MOST)) {
        pool_count_refusal(POOL_REFUSED_SIZE);
        status = answer_error(conn, api, 413, TOO_LARGE, "file");
        drain(conn, w);
        return status;
    }
    f = calloc(1, sizeof *f);
    s = f != NULL ? open_submission(o, api, task) : NULL;
    if (s == NULL) {
        free(f);
        return answer_error(conn, api, 503, "no memory for another request", NULL);
    }
    f->request = &s->request;
    f->upload = &s->upload;
    if (request_query(f->request, api == API_ASR ? info->query_string : NULL) != 0) {
        (void)refuse_form(f, 400, f->request->problem);
    }
    status = f->status != 0 ? f->status : read_form(conn, w, f);
    status = status == 0 ? choose_model(w, f, &s->model) : status;
    if (status != 0) {
        if (status == 400) {
            pool_count_refusal(POOL_REFUSED_REQUEST);
        }
        (void)answer_error(conn, api, status, f->message, f->request->wrong);
        drain(conn, w);
        submission_free(s);
    } else {
        status = serve_submission(conn, w, s, kind);
    }
    free(f);
    return status;
}

/* ---- endpoints ---- */

static int serve_transcriptions(connection *conn, watch *w)
{
    return serve_upload(conn, w, API_OPENAI, JOB_TRANSCRIBE, WNPU_TRANSCRIBE);
}

static int serve_translations(connection *conn, watch *w)
{
    return serve_upload(conn, w, API_OPENAI, JOB_TRANSCRIBE, WNPU_TRANSLATE);
}

static int serve_inference(connection *conn, watch *w)
{
    return serve_upload(conn, w, API_WHISPER_CPP, JOB_TRANSCRIBE,
                        http_options_of(conn)->params.task);
}

static int serve_asr(connection *conn, watch *w)
{
    return serve_upload(conn, w, API_ASR, JOB_TRANSCRIBE, http_options_of(conn)->params.task);
}

static int serve_detect_language(connection *conn, watch *w)
{
    return serve_upload(conn, w, API_ASR, JOB_DETECT_LANGUAGE, WNPU_TRANSCRIBE);
}

static int serve_speech(connection *conn, watch *w)
{
    return serve_upload(conn, w, API_SPEECH, JOB_DETECT_SPEECH, WNPU_TRANSCRIBE);
}

static int serve_health(connection *conn, watch *w)
{
    const http_options *o = http_options_of(conn);
    char text[512];
    size_t n = 1;
    (void)w;
    text[0] = '{';
    n += pool_health(text + n, sizeof text - n);
    n += (size_t)snprintf(text + n, sizeof text - n, ", \"max_mb\": %llu, \"max_minutes\": %lld}\n",
                          (unsigned long long)(o->max_bytes >> 20),
                          (long long)o->most_ms / 60000);
    return answer(conn, 200, "application/json", text, n);
}

/* Whether a balancer is to send requests here: not from SIGTERM on, nor while no model is open or
 * can be. */
static int serve_ready(connection *conn, watch *w)
{
    const char *state = pool_phase_now() == POOL_OPEN ? "ready" : "draining";
    char text[64];
    int n, is_ready = pool_phase_now() == POOL_OPEN;
    (void)w;
    atomic_store(&server_of(conn)->ready_asked, 1);
    if (is_ready && !models_can_serve()) {
        is_ready = 0;
        state = "no model";
    }
    n = snprintf(text, sizeof text, "{\"status\": \"%s\"}\n", state);
    return answer(conn, is_ready ? 200 : 503, "application/json", text, (size_t)n);
}

/* The languages of a model that has most: their codes with their names. A model that was not open
 * so far may have all. */
static int serve_languages(connection *conn, watch *w)
{
    wnpu_model_info info;
    buffer b = {NULL, 0, 0, 0};
    int i, status, most = 1;
    served *m;
    (void)w;
    for (i = 0; (m = models_at((size_t)i)) != NULL; i++) {
        int n = models_info(m, &info) != 0 ? wnpu_language_count() : info.n_languages;
        most = n > most ? n : most;
    }
    for (i = 0; i < most; i++) {
        buffer_print(&b, "%s\"%s\": \"%s\"", i > 0 ? ", " : "{", wnpu_language_code(i),
                     wnpu_language_name(i));
    }
    buffer_text(&b, "}\n");
    status = answer(conn, 200, "application/json", b.bytes, b.n);
    buffer_free(&b);
    return status;
}

static int serve_metrics(connection *conn, watch *w)
{
    char text[16384];
    buffer b = {NULL, 0, 0, 0};
    int status;
    (void)w;
    (void)buffer_write(&b, text, pool_metrics(text, sizeof text));
    models_metrics(&b);
    status = answer(conn, 200, "text/plain; version=0.0.4; charset=utf-8", b.bytes, b.n);
    buffer_free(&b);
    return status;
}

/* What the page may do: nothing of other origins. Its audio thread's code is a blob. */
static int serve_page(connection *conn, watch *w)
{
    buffer head = {NULL, 0, 0, 0};
    (void)w;
    answer_head(conn, &head, 200, "text/html; charset=utf-8");
    buffer_text(&head, "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; "
                "script-src 'unsafe-inline' blob:; connect-src 'self' ws: wss:; media-src blob:; "
                "img-src data:; worker-src blob:; base-uri 'none'; form-action 'none'; "
                "frame-ancestors 'none'\r\nReferrer-Policy: no-referrer\r\n");
    answer_send(conn, &head, page, sizeof page);
    return 200;
}

static int serve_openapi(connection *conn, watch *w)
{
    (void)w;
    return answer(conn, 200, "application/json", openapi, sizeof openapi);
}

#define OPENAI_MODEL "whisper-1"

/* The models under their own names, and the first also under OpenAI's, which many clients insist
 * on. */
static int serve_models(connection *conn, watch *w)
{
    const char *id = strstr(mg_get_request_info(conn)->local_uri, "/models") + strlen("/models");
    buffer b = {NULL, 0, 0, 0};
    served *m;
    size_t i;
    int status;
    (void)w;
    if (id[0] == '/' && id[1] != '\0') {
        m = models_find(id + 1);
        if (strcmp(id + 1, m->name) != 0 && strcmp(id + 1, OPENAI_MODEL) != 0) {
            return answer_error(conn, API_OPENAI, 404, "there is no such model", "model");
        }
        models_describe(&b, m, id + 1);
    } else {
        buffer_text(&b, "{\"object\": \"list\", \"data\": [");
        for (i = 0; (m = models_at(i)) != NULL; i++) {
            models_describe(&b, m, m->name);
            buffer_text(&b, ", ");
        }
        models_describe(&b, models_find(NULL), OPENAI_MODEL);
        buffer_text(&b, "]}");
    }
    buffer_text(&b, "\n");
    status = answer(conn, 200, "application/json", b.bytes, b.n);
    buffer_free(&b);
    return status;
}

/* The state of a job and its answer, or the end of a job. */
static int serve_jobs(connection *conn, watch *w)
{
    const struct mg_request_info *info = mg_get_request_info(conn);
    const char *id = strstr(info->local_uri, "/jobs") + strlen("/jobs");
    const char *query = info->query_string != NULL ? info->query_string : "";
    char after[24];
    size_t from = JOBS_ANSWER;
    char node[JOBS_NODE_MOST + 1], why[96];
    buffer b = {NULL, 0, 0, 0};
    int status;
    (void)w;
    id += id[0] == '/';
    if (mg_get_var(query, strlen(query), "after", after, sizeof after) > 0) {
        from = (size_t)strtoull(after, NULL, 10);
        from = from != JOBS_ANSWER ? from : 0; /* no place */
    }
    if (has_method(conn, "DELETE") ? jobs_cancel(id) != 0 : jobs_describe(id, from, &b) != 0) {
        if (jobs_is_elsewhere(id, node)) {
            (void)snprintf(why, sizeof why, "this job is one of the server %s, and this is another "
                           "one", node);
            return answer_error(conn, API_OPENAI, 404, why, "id");
        }
        return answer_error(conn, API_OPENAI, 404, "there is no such job, or not any more", "id");
    }
    if (b.n == 0) {
        return answer(conn, 204, NULL, "", 0);
    }
    status = b.failed ? answer_error(conn, API_OPENAI, 503, "no memory for the answer", NULL)
                      : answer(conn, 200, "application/json", b.bytes, b.n);
    buffer_free(&b);
    return status;
}

/* What a client gets that does not ask for a WebSocket. */
static int serve_realtime(connection *conn, watch *w)
{
    buffer head = {NULL, 0, 0, 0};
    (void)w;
    answer_head(conn, &head, 426, "application/json");
    answer_header(&head, "Upgrade", "websocket");
    return answer_send_error(conn, &head, API_OPENAI, 426, "this path is a WebSocket", NULL);
}

#define VERSION "/v1"
#define DELETED_BELOW 2

typedef struct endpoint {
    const char *path;
    int below;                /* paths below it, too: DELETED_BELOW has the method DELETE */
    const char *method;
    int open;                 /* needs no key */
    request_api api;          /* the form of its errors */
    int (*serve)(connection *conn, watch *w);
} endpoint;

static const endpoint endpoints[] = {
    {"/", 0, "GET", 1, API_OPENAI, serve_page},
    {"/v1/audio/transcriptions", 0, "POST", 0, API_OPENAI, serve_transcriptions},
    {"/v1/audio/translations", 0, "POST", 0, API_OPENAI, serve_translations},
    {"/v1/audio/speech/timestamps", 0, "POST", 0, API_SPEECH, serve_speech},
    {"/v1/models", 1, "GET", 0, API_OPENAI, serve_models},
    {JOBS_PATH, DELETED_BELOW, "GET", 0, API_OPENAI, serve_jobs},
    {"/v1/languages", 0, "GET", 0, API_OPENAI, serve_languages},
    {"/v1/realtime", 0, "GET", 0, API_OPENAI, serve_realtime},
    {"/inference", 0, "POST", 0, API_WHISPER_CPP, serve_inference},
    {"/asr", 0, "POST", 0, API_ASR, serve_asr},
    {"/detect-language", 0, "POST", 0, API_ASR, serve_detect_language},
    {"/health", 0, "GET", 1, API_OPENAI, serve_health},
    {"/openapi.json", 0, "GET", 1, API_OPENAI, serve_openapi},
    {"/ready", 0, "GET", 1, API_OPENAI, serve_ready},
    {"/metrics", 0, "GET", 0, API_OPENAI, serve_metrics}
};

static const char *skip(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0 ? text + strlen(start) : NULL;
}

/* What follows an endpoint's path in uri, or NULL if uri is not at it or below. People leave out
 * the version in front. */
static const char *behind_path(const endpoint *e, const char *uri)
{
    const char *rest = skip(uri, e->path), *short_path = skip(e->path, VERSION);
    return rest == NULL && short_path != NULL ? skip(uri, short_path) : rest;
}

/* The endpoint of a path, which may end with a slash, and begin with what other servers have in
 * front of the version. */
static const endpoint *find_endpoint(const char *uri)
{
    static const char *const fronts[] = HTTP_FRONTS;
    size_t i;
    for (i = 0; uri != NULL && i < sizeof fronts / sizeof fronts[0]; i++) {
        const char *rest = skip(uri, fronts[i]);
        uri = rest != NULL && skip(rest, VERSION "/") != NULL ? rest : uri;
    }
    for (i = 0; uri != NULL && i < sizeof endpoints / sizeof endpoints[0]; i++) {
        const char *rest = behind_path(&endpoints[i], uri);
        if (rest != NULL && (rest[0] == '\0' || (endpoints[i].below && rest[0] == '/') ||
                             (strcmp(rest, "/") == 0 && endpoints[i].path[1] != '\0'))) {
            return &endpoints[i];
        }
    }
    return NULL;
}

/* Paths that answer GET answer HEAD, too, which monitoring programs send. */
static int allows(const endpoint *e, const connection *conn)
{
    return has_method(conn, e->method) || (e->method[0] == 'G' && has_method(conn, "HEAD")) ||
           (e->below == DELETED_BELOW && has_method(conn, "DELETE"));
}

static void add_methods(buffer *head, const char *header, const endpoint *e)
{
    buffer_print(head, "%s: %s%s, OPTIONS\r\n", header,
                 e->method[0] == 'G' ? "GET, HEAD" : e->method,
                 e->below == DELETED_BELOW ? ", DELETE" : "");
}

static int answer_other_method(connection *conn, const endpoint *e)
{
    buffer head = {NULL, 0, 0, 0};
    answer_head(conn, &head, 405, "application/json");
    add_methods(&head, "Allow", e);
    return answer_send_error(conn, &head, e->api, 405, "this path has another method", NULL);
}

/* Answers what browsers ask before a request from another site, which is allowed with --cors only.
 * OpenAI's SDK sends headers of its own, so all that are named are allowed. */
static int answer_preflight(connection *conn, const endpoint *e)
{
    const char *headers = mg_get_header(conn, "Access-Control-Request-Headers");
    buffer head = {NULL, 0, 0, 0};
    answer_head(conn, &head, 204, NULL);
    add_methods(&head, "Allow", e);
    if (http_options_of(conn)->cors != NULL) {
        add_methods(&head, "Access-Control-Allow-Methods", e);
        answer_header(&head, "Access-Control-Allow-Headers",
                      headers != NULL ? headers : "Authorization, Content-Type");
        buffer_text(&head, "Access-Control-Max-Age: 600\r\n");
    }
    if (!head.failed) {
        buffer_text(&head, "\r\n");
        (void)mg_write(conn, head.bytes, head.n);
    }
    buffer_free(&head);
    return 204;
}

/* Serves a request that computes, unless its key has its share of the server already. */
static int serve_share(connection *conn, watch *w, const endpoint *e, int key)
{
    http_server *s = server_of(conn);
    const keys *k = &s->options->keys;
    exchange *x = mg_get_user_connection_data(conn);
    int status;
    if (k->n > 0) {
        x->key = k->entry[key].name;
    }
    if (atomic_fetch_add(&s->of_key[key], 1) >= s->options->key_share && k->n > 1) {
        pool_count_refusal(POOL_REFUSED_FULL);
        status = answer_error(conn, e->api, 429, "this key has too many requests in progress",
                              NULL);
        drain(conn, w);
    } else {
        status = e->serve(conn, w);
    }
    atomic_fetch_sub(&s->of_key[key], 1);
    return status;
}

static int dispatch(connection *conn, watch *w)
{
    const struct mg_request_info *info = mg_get_request_info(conn);
    const endpoint *e = find_endpoint(info->local_uri);
    const char *refused = NULL, *why;
    int status = 0, key = answer_find_key(conn);
    if (e == NULL) {
        status = answer_error(conn, API_OPENAI, 404, "there is nothing at this path", NULL);
        drain(conn, w);
        return status;
    }
    if (has_method(conn, "OPTIONS")) {
        return answer_preflight(conn, e);
    }
    if (!allows(e, conn)) {
        status = answer_other_method(conn, e);
        drain(conn, w);
        return status;
    }
    if (!e->open && key < 0) {
        pool_count_refusal(POOL_REFUSED_KEY);
        status = 401, refused = "the API key is missing or wrong";
    } else if ((e->method[0] == 'P' || has_method(conn, "DELETE")) &&
               (why = answer_distrusts(conn)) != NULL) {
        pool_count_refusal(POOL_REFUSED_KEY);
        status = 403, refused = why;
    } else if (e->method[0] == 'P' && pool_is_closing()) {
        pool_count_refusal(POOL_REFUSED_CLOSING);
        status = 503, refused = POOL_CLOSING_MESSAGE;
    } else if (e->method[0] == 'P' && pool_is_full()) {
        pool_count_refusal(POOL_REFUSED_FULL);
        status = 503, refused = POOL_FULL_MESSAGE;
    }
    if (refused != NULL) {
        (void)answer_error(conn, e->api, status, refused, NULL);
        drain(conn, w);
        return status;
    }
    return e->method[0] == 'P' ? serve_share(conn, w, e, key) : e->serve(conn, w);
}

static int on_request(connection *conn, void *unused)
{
    const struct mg_request_info *info = mg_get_request_info(conn);
    http_server *s = server_of(conn);
    int64_t begin = platform_now_ms();
    exchange x;
    watch w;
    log_entry e;
    int status, is_safe = client_identify(conn, &x.client) == 0;
    (void)unused;
    atomic_fetch_add(&s->active, 1);
    watch_add(&w, watch_find_socket(info->remote_addr, info->remote_port, info->server_port),
              WATCH_WRITING, s->options->write_ms);
    jobs_expire();
    exchange_begin(conn, &x, 2 * atomic_load(&s->connections) > s->options->connections);
    status = is_safe ? dispatch(conn, &w)
                     : answer_error(conn, API_OPENAI, 403, "TLS is needed", NULL);
    e.client = x.client.address;
    e.id = x.client.id;
    e.what = info->request_method;
    e.path = info->local_uri;
    e.status = status;
    e.audio_ms = x.audio_ms;
    e.queued_ms = x.queued_ms;
    e.ms = platform_now_ms() - begin;
    e.reason = x.reason;
    e.key = x.key;
    exchange_end(conn);
    watch_remove(&w);
    pool_count_request(status);
    if (e.what != NULL && e.what[0] == 'P') {
        pool_count_time((double)e.ms / 1e3);
    }
    log_request(&e);
    atomic_fetch_sub(&s->active, 1);
    return status;
}

/* ---- start and stop ---- */

/* Nothing of what civetweb would print. */
static int on_message(const connection *conn, const char *message)
{
    (void)conn;
    (void)message;
    return 1;
}

/* What civetweb says of requests that it refuses itself. */
static int on_http_error(connection *conn, int status, const char *message)
{
    pool_count_request(status);
    (void)message;
    return answer_error(conn, API_OPENAI, status, "the request is not valid HTTP", NULL) == 0;
}

static int on_open(const connection *conn, void **data)
{
    (void)data;
    atomic_fetch_add(&server_of(conn)->connections, 1);
    return 0;
}

static void on_closed(const connection *conn)
{
    atomic_fetch_sub(&server_of(conn)->connections, 1);
}

/* Whether civetweb can listen there, which does not tell why not. */
static int can_listen(const char *address, char why[256])
{
    int fd;
    if (address_is_ipv6(address) && !mg_check_feature(MG_FEATURES_IPV6)) { /* as Debian's */
        (void)snprintf(why, 256, "this civetweb was made without IPv6; use an address of IPv4");
        return 0;
    }
    fd = address_listen(address, why);
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

int http_start(http_server *s, const http_options *o, char why[256])
{
    char threads[16], timeout[24], waiting[16], keep[16];
    int64_t idle_ms = o->idle_ms > o->body_ms ? o->idle_ms : o->body_ms;
    const char *settings[] = {
        "listening_ports", o->listen, "num_threads", threads, "request_timeout_ms", timeout,
        "enable_keep_alive", "yes", "keep_alive_timeout_ms", keep, "connection_queue", waiting,
        "tcp_nodelay", "1",
        "access_control_allow_methods", "", "access_control_allow_origin", "",
        "access_control_allow_headers", "", "enable_directory_listing", "no",
        "enable_websocket_ping_pong", "no", NULL
    };
    struct mg_callbacks callbacks;
    struct mg_init_data init = {&callbacks, s, settings};
    struct mg_error_data error = {NULL, why, 256};
    struct mg_server_port port;
    s->options = o;
    if (!can_listen(o->listen, why)) {
        return -1;
    }
    (void)snprintf(threads, sizeof threads, "%d", o->connections);
    (void)snprintf(waiting, sizeof waiting, "%d", o->connections);
    (void)snprintf(timeout, sizeof timeout, "%lld", (long long)idle_ms);
    (void)snprintf(keep, sizeof keep, "%d", HTTP_KEEP_MS);
    log_init(o->verbose);
    memset(&callbacks, 0, sizeof callbacks);
    callbacks.log_message = on_message;
    callbacks.http_error = on_http_error;
    callbacks.init_connection = on_open;
    callbacks.connection_closed = on_closed;
    (void)mg_init_library(0);
    (void)snprintf(why, 256, "civetweb does not start");
    s->context = mg_start2(&init, &error);
    if (s->context == NULL) {
        return -1;
    }
    mg_set_request_handler(s->context, "**", on_request, NULL);
    realtime_register(s->context);
    if (mg_get_server_ports(s->context, 1, &port) == 1) {
        watch_guard(port.port, o->header_ms, o->connections / 2);
        return port.port;
    }
    return 0;
}

void http_stop(http_server *s)
{
    watch_guard(0, 0, 0);
    if (s->context != NULL) {
        mg_stop(s->context);
        (void)mg_exit_library();
    }
    s->context = NULL;
}
