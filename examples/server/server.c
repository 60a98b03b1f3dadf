/*
 * server.c - speech to text for programs that speak the protocol of OpenAI's API, of whisper.cpp's
 * server, or of whisper-asr-webservice. See --help and README.md.
 *
 *     make build/server_page.h build/server_openapi.h
 *     cc -DNO_NPU -I. -Ibuild examples/server/[a-z]*.c examples/kit/[a-z]*.c \
 *        whisper_npu.c -o server -lcivetweb -ldl -lm -lpthread
 *
 * or without -DNO_NPU, and with npu_amdxdna.c and $(pkg-config --cflags --libs libdrm).
 */
#define _XOPEN_SOURCE 700

#include "server_address.h"
#include "server_http.h"
#include "server_jobs.h"
#include "server_models.h"
#include "server_pool.h"
#include "server_realtime.h"
#include "server_tls.h"
#include "server_watch.h"
#include "server_wyoming.h"
#include "../kit/args.h"
#include "../kit/output.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#define TLS_MORE 16    /* connections whose handshake is not over, besides those of HTTP */
#define PHRASE_TOKENS 32768 /* for REQUEST_KEYWORDS_MOST keywords of a few words each */
#define ANSWER_MS 2000 /* for answers to requests that were cancelled */
#define DRAIN_AS_NEEDED (-1L) /* DRAIN_S if somebody has asked for /ready, else 0 */
#define DRAIN_S 5      /* HAProxy asks every 2 s, if it is not told otherwise */

enum { EXIT_USAGE = 1, EXIT_MODEL = 2, EXIT_LISTEN = 3, EXIT_OTHER = 6, EXIT_NPU = 7 };

typedef struct server_options {
    const char *npu, *name, *certificate, *tls_key;
    int n_models;
    char listen[ADDRESS_SIZE], wyoming[ADDRESS_SIZE];
    long sessions, queue, threads, idle_s, max_mb, max_minutes, upload_s, timeout_s, grace_s;
    long connections, jobs, keep_s, drain_s;
    const char *node;
    wnpu_config config;
    http_options http;
} server_options;

__attribute__((format(printf, 2, 3)))
static int complain(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)output_complain("server", code, format, args);
    va_end(args);
    return code;
}

/* ---- options ---- */

static int add_key(server_options *o, const char *secret)
{
    char why[128];
    return keys_add(&o->http.keys, "", secret, why) == 0
               ? 0 : complain(EXIT_USAGE, "--api-key: %s", why);
}

/* The key itself, or the first line of the file after "@". */
static int read_key(void *options, char *value)
{
    server_options *o = options;
    char line[KEYS_SECRET_MOST + 3] = "";
    FILE *file;
    if (value[0] != '@') {
        int failed = add_key(o, value);
        memset(value, '*', strlen(value)); /* not in the list of processes */
        return failed;
    }
    file = fopen(value + 1, "r");
    if (file == NULL || fgets(line, sizeof line, file) == NULL) {
        (void)complain(0, "--api-key: %s: %s", value + 1, strerror(errno));
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    line[strcspn(line, " \t\r\n")] = '\0';
    return add_key(o, line);
}

static int read_keys(void *options, char *value)
{
    char why[128];
    return keys_read(&((server_options *)options)->http.keys, value, why) == 0
               ? 0 : complain(EXIT_USAGE, "--keys: %s: %s", value, why);
}

static int set_parameter(void *options, char *pair)
{
    server_options *o = options;
    wnpu_error error = {0, ""};
    char *value = strchr(pair, '=');
    if (value == NULL) {
        return complain(EXIT_USAGE, "--set needs NAME=VALUE; see --help");
    }
    *value++ = '\0';
    return wnpu_params_set(&o->http.params, pair, value, &error) == WNPU_OK
               ? 0 : complain(EXIT_USAGE, "--set: %s", error.message);
}

static int set_address(const char *name, const char *value, char to[ADDRESS_SIZE])
{
    char why[256];
    return address_resolve(value, to, why) == 0
               ? 0 : complain(EXIT_USAGE, "--%s %s: %s", name, value, why);
}

static int set_listen(void *options, char *value)
{
    return set_address("listen", value, ((server_options *)options)->listen);
}

static int set_wyoming(void *options, char *value)
{
    return set_address("wyoming", value, ((server_options *)options)->wyoming);
}

static int add_model(void *options, char *value)
{
    char why[256];
    ((server_options *)options)->n_models++;
    return models_add(value, why) == 0 ? 0 : complain(EXIT_USAGE, "--model %s: %s", value, why);
}

static int add_host(void *options, char *value)
{
    server_options *o = options;
    if (o->http.n_hosts == HTTP_HOSTS_MOST) {
        return complain(EXIT_USAGE, "--host may be given %d times", HTTP_HOSTS_MOST);
    }
    o->http.hosts[o->http.n_hosts++] = value;
    return 0;
}

static int set_node(void *options, char *value)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-";
    size_t n = strlen(value);
    if (n == 0 || n > JOBS_NODE_MOST || strspn(value, allowed) != n) {
        return complain(EXIT_USAGE, "--node %s: a name has 1 to %d letters, digits and hyphens",
                        value, JOBS_NODE_MOST);
    }
    ((server_options *)options)->node = value;
    return 0;
}

static int add_proxy(void *options, char *value)
{
    server_options *o = options;
    if (o->http.n_proxies == CLIENT_PROXIES_MOST) {
        return complain(EXIT_USAGE, "--proxy may be given %d times", CLIENT_PROXIES_MOST);
    }
    if (client_read_network(value, &o->http.proxies[o->http.n_proxies]) != 0) {
        return complain(EXIT_USAGE, "--proxy %s: an address, such as 10.0.0.1, or a network, such "
                        "as 10.0.0.0/8, is needed", value);
    }
    o->http.n_proxies++;
    return 0;
}

static int set_commit(void *options, char *value)
{
    server_options *o = options;
    wnpu_params params;
    wnpu_error error = {0, ""};
    wnpu_params_init(&params, sizeof params);
    if (strcmp(value, "off") != 0 &&
        wnpu_params_set(&params, "commit_step_ms", value, &error) != WNPU_OK) {
        return complain(EXIT_USAGE, "--commit: %s", error.message);
    }
    o->http.commit_ms = params.commit_step_ms;
    return 0;
}

static int print_version(void *options, char *value)
{
    (void)options;
    (void)value;
    printf("server %d.%d.%d\n", WNPU_VERSION_MAJOR, WNPU_VERSION_MINOR, WNPU_VERSION_PATCH);
    return ARGS_END;
}

static int print_help(void *options, char *value);

static const args_row rows[] = {
    {.name = "model", .value = "[NAME=]FILE", .take = add_model,
     .meaning = "Whisper model: a ggml file, or a pack made by build/pack. Can be repeated: "
         "clients choose by NAME (the file's, without extension, if not given), and get the first "
         "for other names. The others are loaded when needed"},
    {.name = "name", .value = "NAME", ARGS_TEXT_AT(server_options, name),
     .meaning = "name of the first model for clients"},
    {.name = "idle-unload", .value = "SECONDS",
     ARGS_NUMBER_AT(server_options, idle_s, 1, 1000000), .otherwise = "never",
     .meaning = "unload models that nobody has used for this time"},
    {.name = "listen", .value = "ADDR:PORT", .take = set_listen, .otherwise = "127.0.0.1:9004",
     .meaning = "or PORT alone for 127.0.0.1; 0.0.0.0:9004 for other machines, too, [::1]:9004 for "
         "IPv6 where civetweb supports it"},
    {.name = "wyoming", .value = "ADDR:PORT", .take = set_wyoming, .otherwise = "off",
     .meaning = "also serve Home Assistant's protocol here, such as 127.0.0.1:10300; it has no "
         "keys"},
    {.name = "api-key", .value = "KEY", .take = read_key,
     .meaning = "ask clients for this key, as Bearer token; @FILE reads it from a file"},
    {.name = "keys", .value = "FILE", .take = read_keys,
     .meaning = "ask for one of several keys: lines NAME KEY. Each may have its share of the queue "
         "beside the sessions; the log has its name"},
    {.name = "certificate", .value = "FILE", ARGS_TEXT_AT(server_options, certificate),
     .meaning = "serve HTTPS, with this certificate and its chain (PEM); a new one at its place is "
         "noticed, and SIGHUP reads it anew. Needs OpenSSL"},
    {.name = "key", .value = "FILE", ARGS_TEXT_AT(server_options, tls_key),
     .meaning = "the certificate's key (PEM)"},
    {.name = "cors", .value = "ORIGIN",
     ARGS_TEXT_AT(server_options, http.cors), .otherwise = "none",
     .meaning = "pages of this origin may use the server; *: any"},
    {.name = "host", .value = "NAME", .take = add_host,
     .meaning = "a name that clients may call this server by, such as the one that a proxy has; "
         "can be repeated. Addresses, names of the local network and, with --api-key, all names "
         "may be used without it"},
    {.name = "proxy", .value = "ADDRESS[/BITS]", .take = add_proxy, .otherwise = "none",
     .meaning = "a proxy, or the network of several, whose X-Forwarded-For and X-Request-Id are "
         "believed; can be repeated"},
    {.name = "sessions", .value = "N", ARGS_NUMBER_AT(server_options, sessions, 1, 64), .start = 1,
     .meaning = "requests that are computed at the same time, for all models"},
    {.name = "queue", .value = "N", ARGS_NUMBER_AT(server_options, queue, 0, 1000), .start = 16,
     .meaning = "requests that wait for a session; more are refused with status 503"},
    {.name = "jobs", .value = "N", ARGS_NUMBER_AT(server_options, jobs, 1, 1000), .start = 16,
     .meaning = "requests whose clients do not wait, with those whose result is kept"},
    {.name = "keep-results", .value = "SECONDS",
     ARGS_NUMBER_AT(server_options, keep_s, 1, 1000000), .start = 3600,
     .meaning = "time for such a result"},
    {.name = "threads", .value = "N", ARGS_NUMBER_AT(server_options, threads, 1, 64),
     .otherwise = "one per CPU, at most 8",
     .meaning = "threads of all sessions together"},
    {.name = "max-mb", .value = "N", ARGS_NUMBER_AT(server_options, max_mb, 1, 100000),
     .start = 2048,
     .meaning = "largest upload in MiB; beyond 4 it is in a file, see README.md"},
    {.name = "max-minutes", .value = "N",
     ARGS_NUMBER_AT(server_options, max_minutes, 1, 100000), .start = 300,
     .meaning = "longest recording in minutes"},
    {.name = "upload-timeout", .value = "SECONDS",
     ARGS_NUMBER_AT(server_options, upload_s, 1, 1000000), .start = 30,
     .meaning = "longest time in which nothing of an upload arrives"},
    {.name = "timeout", .value = "SECONDS",
     ARGS_NUMBER_AT(server_options, timeout_s, 1, 1000000), .start = 3600,
     .meaning = "longest time for a request, with the wait in the queue; also for a realtime "
         "connection without an event"},
    {.name = "drain", .value = "SECONDS",
     ARGS_NUMBER_AT(server_options, drain_s, 0, 1000000), .start = DRAIN_AS_NEEDED,
     .otherwise = "5 if /ready was asked for, else 0",
     .meaning = "time after SIGTERM in which everything is still served but /ready is 503, so that "
         "balancers send requests elsewhere"},
    {.name = "grace", .value = "SECONDS",
     ARGS_NUMBER_AT(server_options, grace_s, 0, 1000000), .start = 30,
     .meaning = "time behind that for what has begun: uploads, requests, jobs, turns that are "
         "being spoken"},
    {.name = "node", .value = "NAME", .take = set_node, .otherwise = "none",
     .meaning = "name of this server in the ids of jobs, by which a balancer finds it: letters, "
         "digits and hyphens, at most 16"},
    {.name = "connections", .value = "N", ARGS_NUMBER_AT(server_options, connections, 1, 1000),
     .otherwise = "sessions + queue + 16",
     .meaning = "connections served at a time"},
    {.name = "set", .value = "NAME=VALUE", .take = set_parameter,
     .meaning = "default of a run parameter, such as beam=5; transcribe --list-options and "
         "whisper_npu.h describe them. Can be repeated"},
    {.name = "commit", .value = "MS", .take = set_commit,
     .otherwise = "800 with tiny and base models, else off",
     .meaning = "steps at which realtime connections are told final words while they are said, 200 "
         "to 10000, or off: at the end of their phrase. Each costs an encoder run"},
    {.name = "npu", .value = "PACK", ARGS_TEXT_AT(server_options, npu),
     .meaning = "use an AMD XDNA NPU with the kernels in directory PACK, or auto"},
    {.name = "require-npu", ARGS_FLAG_AT(server_options, config.require_accel),
     .meaning = "fail rather than let the CPU do the NPU's part"},
    {.name = "verbose", ARGS_FLAG_AT(server_options, http.verbose),
     .meaning = "print a line for each request to standard error, not only for those that were "
         "refused or failed"},
    {.name = "help", .take = print_help, .meaning = "print this text, and exit"},
    {.name = "version", .take = print_version, .meaning = "print the version, and exit"}
};

static const args_table table = {"server", rows, sizeof rows / sizeof rows[0], NULL};

static int print_help(void *options, char *value)
{
    (void)options;
    (void)value;
    fputs("Usage: " PROGRAM("server") " --model FILE [OPTION]...\n"
          "\n"
          "Serves speech to text over HTTP:\n"
          "  /v1/audio/transcriptions, /v1/audio/translations, /v1/models   as OpenAI's API\n"
          "  /v1/realtime                                   OpenAI's realtime transcription\n"
          "  /inference                                     as whisper.cpp's server\n"
          "  /asr, /detect-language                         as whisper-asr-webservice\n"
          "  /health, /ready, /metrics\n"
          "\n", stdout);
    args_help(&table);
    fputs("\n"
          "Formats other than WAV need ffmpeg. SIGTERM ends the server: after --drain seconds new\n"
          "requests are refused, and what has begun has --grace seconds. SIGINT does so without\n"
          "--drain; a second signal ends the wait. Exit status: 0 after a signal, 1 wrong\n"
          "options, 2 the model, 3 the address, 6 other errors, 7 the NPU.\n", stdout);
    return ARGS_END;
}

/* Returns 0, or 1 when the program is to end with status *code. */
static int parse(server_options *o, int argc, char **argv, int *code)
{
    int taken;
    char why[256];
    memset(o, 0, sizeof *o);
    wnpu_config_init(&o->config, sizeof o->config);
    wnpu_params_init(&o->http.params, sizeof o->http.params);
    o->http.commit_ms = -1;
    strcpy(o->listen, "127.0.0.1:9004");
    o->drain_s = DRAIN_AS_NEEDED;
    args_init(&table, o);
    taken = args_parse(&table, o, argc, argv);
    if (taken == 0 && optind < argc) {
        taken = complain(EXIT_USAGE, "unexpected argument %s; see --help", argv[optind]);
    }
    if (taken == 0 && o->n_models == 0) {
        taken = complain(EXIT_USAGE, "--model is missing; see --help");
    }
    if (taken == 0 && o->name != NULL && models_rename_first(o->name, why) != 0) {
        taken = complain(EXIT_USAGE, "--name: %s", why);
    }
    if (taken == 0 && (o->certificate == NULL) != (o->tls_key == NULL)) {
        taken = complain(EXIT_USAGE, "--certificate and --key belong together");
    }
    *code = taken == ARGS_END ? 0 : taken;
    return taken != 0;
}

/* ---- model and sessions ---- */

static void on_log(void *user, wnpu_log_level level, const char *text)
{
    const server_options *o = user;
    if (level == WNPU_LOG_WARNING || (level == WNPU_LOG_INFO && o->http.verbose)) {
        (void)complain(0, "%s", text);
    }
}

static void tell_memory(const server_options *o, const served *m)
{
    wnpu_error error = {0, ""};
    fprintf(stderr, "server: model %.0f MB in memory and %.0f MB shared, %ld session%s of %.0f MB "
            "with %u thread%s each\n", (double)m->info.bytes / 1e6,
            (double)m->info.shared_bytes / 1e6, o->sessions, o->sessions == 1 ? "" : "s",
            (double)wnpu_session_size(m->model, &m->config, &error) / 1e6,
            (unsigned)o->config.threads, o->config.threads == 1 ? "" : "s");
}

/* Opens the first model and the sessions, which share the threads, so that together they do not use
 * more than there are CPUs. */
static int open_models(server_options *o)
{
    wnpu_error error = {0, ""};
    models_options options;
    pool_options p = {(int)o->sessions, (int)o->queue};
    served *first;
    char why[512];
    long threads = o->threads > 0 ? o->threads : (long)wnpu_default_threads();
    int status;
    memset(&options, 0, sizeof options);
    o->config.threads = (uint32_t)(threads > o->sessions ? threads / o->sessions : 1);
    o->config.stream_bytes = REALTIME_STREAM_BYTES;
    o->config.max_phrase_tokens = PHRASE_TOKENS;
    o->config.log = on_log;
    o->config.log_user = o;
    options.config = o->config;
    options.log = on_log;
    options.log_user = o;
    options.npu = o->npu;
    options.idle_ms = o->idle_s * 1000;
    status = models_start(&options, &first, why);
    if (status != WNPU_OK) {
        return complain(status == WNPU_E_ACCEL ? EXIT_NPU : EXIT_MODEL, "%s", why);
    }
    tell_memory(o, first);
    status = pool_open(&p, first, &error);
    models_release(first);
    return status == WNPU_OK ? 0 : complain(status == WNPU_E_ACCEL ? EXIT_NPU : EXIT_OTHER, "%s",
                                            error.message);
}

/* ---- serving ---- */

/* Prints an address with the port in use, which differs if the given one is 0. */
static void announce(const char *what, const char *address, int port)
{
    const char *colon = strrchr(address, ':');
    (void)complain(0, "%s on %.*s:%d", what, colon != NULL ? (int)(colon - address) : 0, address,
                   port);
}

static void on_certificate(const char *text)
{
    (void)complain(0, "%s", text);
}

/* Reads the certificate. */
static int load_tls(const server_options *o)
{
    tls_options t;
    char why[256];
    memset(&t, 0, sizeof t);
    t.listen = o->listen;
    t.certificate = o->certificate;
    t.key = o->tls_key;
    t.connections = o->http.connections + TLS_MORE;
    t.handshake_ms = o->http.header_ms;
    t.log = on_certificate;
    return tls_load(&t, why) == 0 ? 0 : complain(EXIT_OTHER, "--certificate: %s", why);
}

static void start_jobs(const server_options *o)
{
    jobs_options j;
    j.most = (int)o->jobs;
    j.keep_ms = o->keep_s * 1000;
    j.work_ms = o->http.work_ms;
    j.stall_ms = o->http.stall_ms;
    j.most_ms = o->http.most_ms;
    j.node = o->node;
    jobs_start(&j);
}

/* What is served: with HTTP, and if it is wanted with the Wyoming protocol. */
typedef struct service {
    http_server http;
    wyoming wyoming;
} service;

static int start(server_options *o, service *s)
{
    char why[256];
    int port;
    http_options *h = &o->http;
    h->listen = o->certificate != NULL ? "127.0.0.1:0" : o->listen; /* TLS is in front of it */
    h->max_bytes = (uint64_t)o->max_mb << 20;
    h->most_ms = (int64_t)o->max_minutes * 60000;
    h->header_ms = 10000;
    h->idle_ms = 30000;
    h->body_ms = o->upload_s * 1000;
    h->write_ms = 60000;
    h->work_ms = o->timeout_s * 1000;
    h->stall_ms = 30000;
    h->key_share = (int)(o->sessions + o->queue / (h->keys.n > 0 ? h->keys.n : 1));
    h->max_beams = (int)o->config.max_beams;
    h->connections = (int)(o->connections > 0 ? o->connections : o->sessions + o->queue + 16);
    start_jobs(o);
    if (o->certificate != NULL && load_tls(o) != 0) {
        return EXIT_OTHER;
    }
    port = http_start(&s->http, h, why);
    if (port >= 0 && o->certificate != NULL) {
        port = tls_start(port, why);
    }
    if (port < 0) {
        return complain(EXIT_LISTEN, "%s: %s", o->listen, why);
    }
    if (o->wyoming[0] != '\0') {
        int other = wyoming_start(&s->wyoming, h, o->wyoming, why);
        if (other < 0) {
            return complain(EXIT_LISTEN, "%s: %s", o->wyoming, why);
        }
        announce("wyoming", o->wyoming, other);
    }
    announce("listening", o->listen, port);
    return 0;
}

/* Whether a request arrives or is being answered, or a connection is to be told that it ends. */
static int is_active(service *s)
{
    return atomic_load(&s->http.active) > 0 || atomic_load(&s->wyoming.active) > 0 ||
           realtime_active() > 0;
}

/* Whether another signal asks for the end, which this takes. */
static int is_urged(void)
{
    sigset_t pending, ends;
    int number;
    if (sigpending(&pending) != 0 ||
        (sigismember(&pending, SIGTERM) != 1 && sigismember(&pending, SIGINT) != 1)) {
        return 0;
    }
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    return sigwait(&ends, &number) == 0;
}

/* Waits until a time, or until nothing is active and no answer of a job that was completed after
 * since_ms is left. Returns 0 when another signal has ended the wait. */
static int await_end(service *s, int64_t until, int64_t since_ms)
{
    struct timespec tick = {0, WATCH_TICK_MS * 1000000L};
    while ((is_active(s) || jobs_active(since_ms) > 0) && platform_now_ms() < until) {
        if (is_urged()) {
            return 0;
        }
        nanosleep(&tick, NULL);
    }
    return 1;
}

/* Serves on while balancers learn that they are to send requests elsewhere. */
static void drain(const server_options *o, const service *s)
{
    struct timespec tick = {0, WATCH_TICK_MS * 1000000L};
    long seconds = o->drain_s != DRAIN_AS_NEEDED ? o->drain_s
                 : atomic_load(&s->http.ready_asked) ? DRAIN_S : 0;
    int64_t until = platform_now_ms() + seconds * 1000;
    pool_enter(POOL_DRAINING);
    while (platform_now_ms() < until && !is_urged()) {
        nanosleep(&tick, NULL);
    }
}

/* Lets what has begun end, for a time. Then runs are cancelled, and clients that are still sending
 * are refused. */
static void finish(const server_options *o, service *s, int number)
{
    int64_t since = platform_now_ms(), now;
    if (number == SIGTERM) {
        drain(o, s);
    }
    pool_enter(POOL_CLOSING);
    now = platform_now_ms();
    if (await_end(s, now + o->grace_s * 1000 / 2, since)) {
        realtime_hurry();
        (void)await_end(s, now + o->grace_s * 1000, since);
    }
    pool_enter(POOL_ENDED);
    watch_stop_all();
    jobs_stop();
    now = platform_now_ms();
    while (is_active(s) && platform_now_ms() < now + ANSWER_MS) {
        nanosleep(&(struct timespec){0, WATCH_TICK_MS * 1000000L}, NULL);
    }
}

static int serve(server_options *o, const sigset_t *signals)
{
    service s = {.http.options = NULL};
    int code, number = 0;
    if (watch_start() != 0) {
        return complain(EXIT_OTHER, "cannot start a thread: %s", strerror(errno));
    }
    code = start(o, &s);
    if (code == 0) {
        while (sigwait(signals, &number) != 0 || number == SIGHUP) {
            tls_reload(1);
        }
        finish(o, &s, number);
    }
    watch_hang_up();
    tls_stop();
    wyoming_stop(&s.wyoming);
    http_stop(&s.http);
    jobs_stop();
    watch_stop();
    return code;
}

int main(int argc, char **argv)
{
    server_options o;
    sigset_t signals;
    int code;
    if (parse(&o, argc, argv, &code) != 0) {
        return code;
    }
    /* All threads block these signals, which this one waits for. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    if (o.certificate != NULL) {
        sigaddset(&signals, SIGHUP);
    }
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
#ifdef __GLIBC__
    (void)mallopt(M_ARENA_MAX, 2); /* or each thread keeps what it has freed */
    (void)mallopt(M_MMAP_THRESHOLD, 262144); /* or that rises, and freed uploads are kept, too */
#endif
    code = open_models(&o);
    code = code == 0 ? serve(&o, &signals) : code;
    models_stop();
    return code;
}
