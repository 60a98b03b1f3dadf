/* server_run.c - see server_run.h */
#define _XOPEN_SOURCE 700

#include "server_run.h"

#include "../kit/input.h"
#include "server_pool.h"
#include "server_thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPEAKERS_MOST 16u              /* channels that are told apart */
#define HOTWORDS "hotwords"           /* what the library calls keywords */
#define FRAME_MOST (256 * 8)           /* bytes of a frame */

__attribute__((format(printf, 4, 5)))
static void fail(job *j, int http_status, const char *param, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(j->message, sizeof j->message, format, args);
    va_end(args);
    j->http_status = http_status;
    j->param = param;
}

/* ---- the recording ---- */

/* What the run reads: WAV in memory, or an input. */
typedef struct recording {
    wnpu_audio audio;
    wnpu_audio raw;
    wnpu_audio whole;         /* without the limit of its length */
    uint64_t left;            /* frames within the limit */
    int cut;                  /* there were more */
    input_clip clip;
    input file;
    int is_file;
} recording;

static int is_wav(const upload *u)
{
    return u->fd < 0 && u->used >= 12 && memcmp(u->memory, "RIFF", 4) == 0 &&
           memcmp(u->memory + 8, "WAVE", 4) == 0;
}

/* Length of a recording as its beginning tells it, in ms; 0 if it does not. */
static double told_ms(const request *r, const upload *u)
{
    unsigned char h[48];
    size_t width = (size_t)(r->raw_format == WNPU_SAMPLE_U8 ? 1 : r->raw_format == WNPU_SAMPLE_S16LE
                            ? 2 : r->raw_format == WNPU_SAMPLE_S24LE ? 3 : 4);
    double rate, frames;
    if (r->raw) {
        return (double)u->size * 1e3 / ((double)r->raw_rate * (double)(width * r->raw_channels));
    }
    if (upload_head(u, h, sizeof h) < sizeof h) {
        return 0;
    }
    if (memcmp(h, "fLaC", 4) == 0) { /* STREAMINFO is the first block */
        rate = (double)((unsigned)h[18] << 12 | (unsigned)h[19] << 4 | h[20] >> 4);
        frames = (double)((uint64_t)(h[21] & 15) << 32 | (uint64_t)h[22] << 24 |
                          (uint64_t)h[23] << 16 | (uint64_t)h[24] << 8 | h[25]);
        return rate > 0 ? frames * 1e3 / rate : 0;
    }
    if (memcmp(h, "RIFF", 4) == 0 && memcmp(h + 12, "fmt ", 4) == 0) {
        rate = (double)(h[24] | (unsigned)h[25] << 8 | (unsigned)h[26] << 16 |
                        (uint32_t)h[27] << 24);
        frames = (double)u->size / ((h[32] | h[33] << 8) > 0 ? (h[32] | h[33] << 8) : 1);
        return rate > 0 ? frames * 1e3 / rate : 0;
    }
    return 0;
}

/* Refuses a recording that is certainly too long. */
static int is_too_long(job *j)
{
    const request *r = j->request;
    int part = r->duration_ms > 0 && r->duration_ms <= j->most_ms;
    if (part || told_ms(r, j->upload) - (double)r->offset_ms <= (double)j->most_ms) {
        return 0;
    }
    fail(j, 413, "file", "the recording is longer than %lld min, the most that this server "
         "transcribes", (long long)j->most_ms / 60000);
    return 1;
}

static int64_t read_limited(void *user, void *frames, size_t most)
{
    recording *rec = user;
    int64_t n;
    char more[FRAME_MOST];
    if (rec->left == 0) {
        rec->cut |= rec->whole.read(rec->whole.user, more, 1) > 0;
        return 0;
    }
    n = rec->whole.read(rec->whole.user, frames, most < rec->left ? most : (size_t)rec->left);
    rec->left -= n > 0 ? (uint64_t)n : 0;
    return n;
}

/* Ends what is longer than its beginning tells at the limit. */
static void limit(const job *j, recording *rec)
{
    if (rec->audio.read != NULL) {
        rec->whole = rec->audio;
        rec->left = (uint64_t)(j->most_ms + j->request->offset_ms) / 1000 * rec->audio.rate;
        rec->audio.read = read_limited;
        rec->audio.user = rec;
    }
}

static int open_file(job *j, recording *rec, int channel)
{
    input_options o;
    int fd = upload_file(j->upload);
    if (fd < 0) {
        fail(j, 500, NULL, "the upload cannot be stored: %s", strerror(errno));
        return -1;
    }
    memset(&o, 0, sizeof o);
    o.channel = channel;
    o.track = -1;
    o.stall_ms = j->stall_ms;
    o.end = &j->watch->stop;
    if (j->request->raw) {
        wnpu_audio_init(&rec->raw, sizeof rec->raw);
        rec->raw.format = j->request->raw_format;
        rec->raw.rate = j->request->raw_rate;
        rec->raw.channels = j->request->raw_channels;
        o.raw = &rec->raw;
    }
    if (j->request->offset_ms > 0 || j->request->duration_ms > 0) {
        rec->clip.t0_ms = j->request->offset_ms;
        rec->clip.t1_ms = j->request->duration_ms > 0
                              ? j->request->offset_ms + j->request->duration_ms
                              : INT64_C(1000000000000);
        o.clips = &rec->clip;
        o.n_clips = 1;
    }
    rec->is_file = 1;
    if (input_open_fd(&rec->file, fd, &o) != 0) {
        fail(j, 400, "file", "the audio cannot be read: %s", rec->file.why);
        return -1;
    }
    rec->audio = rec->file.audio;
    limit(j, rec);
    return 0;
}

static int open_recording(job *j, recording *rec, int channel)
{
    const request *r = j->request;
    wnpu_error error = {0, ""};
    memset(rec, 0, sizeof *rec);
    wnpu_audio_init(&rec->audio, sizeof rec->audio);
    if (is_too_long(j)) {
        return -1;
    }
    if (is_wav(j->upload) && !r->raw && r->offset_ms == 0 && r->duration_ms == 0 &&
        wnpu_wav_open(&rec->audio, j->upload->memory, j->upload->used, &error) == WNPU_OK) {
        rec->audio.channel = channel;
        return 0;
    }
    return open_file(j, rec, channel);
}

static void close_recording(job *j, recording *rec)
{
    if (rec->is_file) {
        if (j->http_status == 200 && input_finish(&rec->file) == INPUT_CUT) {
            (void)snprintf(j->warning, sizeof j->warning, "%s", rec->file.why);
        }
        if (j->http_status == 200 && rec->cut) {
            (void)snprintf(j->warning, sizeof j->warning, "only the first %lld min were "
                           "transcribed, the most that this server does",
                           (long long)j->most_ms / 60000);
        }
        input_close(&rec->file);
    }
}

/* ---- the run ---- */

/* State of a run's callbacks. */
typedef struct running {
    job *j;
    size_t segments;
    int may_yield, yields;    /* the session is given to others, and the run goes on later */
    int64_t since_ms;         /* that it has the session, by platform_now_ms() */
    int64_t done_ms;          /* of the recording */
    buffer tentative;         /* text of the window that is decoded */
} running;

static int on_segment(void *user, const wnpu_segment *segment)
{
    running *r = user;
    if (r->j->on_segment == NULL || r->j->watch->stop) {
        return r->j->watch->stop;
    }
    return r->j->on_segment(r->j->user, segment, r->segments++) != 0;
}

static int on_token(void *user, const wnpu_token_event *event)
{
    running *r = user;
    size_t before = r->tentative.n, skip;
    if (r->j->watch->stop) {
        return 1;
    }
    if (event->restart || event->complete) { /* complete: it is that of segments */
        buffer_clear(&r->tentative);
    }
    if (!event->complete) {
        (void)buffer_write(&r->tentative, event->text, event->text_length);
    }
    if (before == 0 && r->tentative.n == 0) {
        return 0;
    }
    skip = r->segments == 0 && r->tentative.n > 0 && r->tentative.bytes[0] == ' ';
    return r->j->on_tentative(r->j->user, r->tentative.n > 0 ? r->tentative.bytes + skip : "",
                              r->tentative.n - skip) != 0;
}

static pool_rank rank_of(const job *j)
{
    return j->patient ? POOL_JOB : POOL_REQUEST;
}

/* A run may give its session to others, within a window, too, when a second of it is over: they
 * need not wait for its end, and at least that window is completed when the run goes on. */
static int on_progress(void *user, int64_t done_ms, int64_t total_ms)
{
    running *r = user;
    done_ms = done_ms > r->done_ms ? done_ms : r->done_ms; /* a window may be decoded again */
    if (total_ms > 0) {
        atomic_store(&r->j->permille, done_ms < total_ms ? (int)(done_ms * 1000 / total_ms) : 1000);
    }
    if (r->j->on_progress != NULL && !r->j->watch->stop &&
        r->j->on_progress(r->j->user, done_ms, total_ms) != 0) {
        return 1;
    }
    r->yields |= r->may_yield && done_ms > r->done_ms && !r->j->watch->stop &&
                 pool_wants_back(rank_of(r->j), platform_now_ms() - r->since_ms);
    r->done_ms = done_ms;
    return r->j->watch->stop || r->yields;
}

/* Work that the watch has ended: the client is gone, its time is up, or the server ends. */
static void end_stopped(job *j)
{
    if (j->watch->gone) {
        j->http_status = 0;
        pool_count_cancelled();
    } else if (j->watch->expired) {
        pool_count_refusal(POOL_REFUSED_TIME);
        fail(j, 504, NULL, "the request took longer than the server permits");
    } else {
        pool_count_refusal(POOL_REFUSED_CLOSING);
        fail(j, 503, NULL, POOL_CLOSING_MESSAGE);
    }
}

/* A run that got no session to go on. */
static void end_lost(job *j)
{
    if (j->watch->gone || j->watch->expired) {
        end_stopped(j);
    } else {
        fail(j, 503, NULL, POOL_FAILED_MESSAGE);
    }
}

/* Seconds up to the end of the last text. */
static double last_end(const wnpu_session *session)
{
    wnpu_segment s;
    size_t n = wnpu_segment_count(session);
    return n > 0 && wnpu_get_segment(session, n - 1, &s) == WNPU_OK ? (double)s.t1_ms / 1e3 : 0;
}

/* Decides on the answer by the status of the run. Text that was found is never withheld. */
static void judge(job *j, const wnpu_session *session, int status)
{
    const char *why = wnpu_session_error(session);
    why = why[0] != '\0' ? why : wnpu_strerror(status);
    if (j->watch->stop && !j->watch->gone && !j->watch->expired &&
        wnpu_segment_count(session) > 0) {
        j->http_status = 200;
        j->request->incomplete = 1;
        (void)snprintf(j->warning, sizeof j->warning, "%s; this is the text of the first %.0f s",
                       POOL_CLOSING_MESSAGE, last_end(session));
    } else if (j->watch->stop) {
        end_stopped(j);
    } else if (status == WNPU_E_ARGUMENT || status == WNPU_E_UNSUPPORTED) {
        int is_keyword = strncmp(why, HOTWORDS, strlen(HOTWORDS)) == 0; /* clients know no others */
        fail(j, 400, is_keyword ? "keywords" : NULL, "%s%s", is_keyword ? "keywords" : "",
             is_keyword ? why + strlen(HOTWORDS) : why);
    } else if (status < 0 && wnpu_segment_count(session) == 0) {
        int bad = status == WNPU_E_AUDIO || status == WNPU_E_IO;
        fail(j, bad ? 400 : 500, bad ? "file" : NULL, "%s", why);
    } else {
        j->http_status = 200;
        if (status != WNPU_OK) {
            (void)snprintf(j->warning, sizeof j->warning, "%s", why);
        }
    }
}

/* Transcribes the other channels, whose results are added to those of the first. */
static int add_channels(job *j, wnpu_session *session, unsigned channels, wnpu_params *params)
{
    unsigned i;
    int status = WNPU_OK, one;
    params->append = 1;
    for (i = 1; i < channels && status >= 0; i++) {
        recording rec;
        params->speaker = (int32_t)i + 1;
        if (open_recording(j, &rec, (int)i) != 0) {
            status = WNPU_E_IO;
        } else {
            one = wnpu_transcribe(session, params, &rec.audio);
            status = one != WNPU_OK ? one : status;
        }
        close_recording(j, &rec);
    }
    return status;
}

/* A job and the session that it got. */
typedef struct work {
    job *j;
    wnpu_session *session;    /* NULL: none any more */
} work;

/* Gives the session of a run to those that wait, and continues in the next one. Returns the status
 * of the run. */
static int go_on(work *w, running *r, const wnpu_params *params, const wnpu_audio *audio)
{
    job *j = w->j;
    int64_t begin = platform_now_ms();
    size_t size = wnpu_snapshot_size(w->session);
    char *snapshot = size > 0 ? malloc(size) : NULL;
    int status = WNPU_OK;
    r->yields = 0;
    if (snapshot == NULL || wnpu_snapshot(w->session, snapshot, size) != WNPU_OK) {
        r->may_yield = 0;
    } else {
        pool_give_back(j->watch, w->session);
        pool_count_yield();
        status = pool_take_back(j->watch, j->model, rank_of(j), &w->session) == POOL_TAKEN
                     ? wnpu_restore(w->session, snapshot, size) : WNPU_E_MEMORY;
        j->session = w->session;
        r->since_ms = platform_now_ms();
        j->queued_ms += r->since_ms - begin;
    }
    free(snapshot);
    return status == WNPU_OK ? wnpu_resume(w->session, params, audio) : status;
}

/* Puts the text that the client knows in place of what was heard, with the times at which it was
 * said. */
static void align(job *j, wnpu_session *session)
{
    request *r = j->request;
    int status;
    r->aligned.struct_size = sizeof r->aligned;
    status = wnpu_align(session, r->align.items, r->align.n, r->align_extra, &r->aligned);
    if (status == WNPU_E_CANCELLED) {
        end_stopped(j);
    } else if (status != WNPU_OK) {
        fail(j, status == WNPU_E_FULL ? 400 : 500, "align", "%s", status == WNPU_E_FULL
             ? "the text has too many words" : wnpu_session_error(session));
    }
}

/* Tells all segments, of a run that could tell none before its end. */
static void tell_segments(job *j, const wnpu_session *session)
{
    wnpu_segment s;
    size_t i;
    for (i = 0; j->http_status == 200 && wnpu_get_segment(session, i, &s) == WNPU_OK; i++) {
        if (j->on_segment(j->user, &s, i) != 0) {
            end_stopped(j);
        }
    }
}

/* What speakers by channel cannot tell of this recording. */
static void warn_of_channels(job *j, unsigned channels)
{
    if (channels > SPEAKERS_MOST) {
        (void)snprintf(j->warning, sizeof j->warning, "only the first %u of %u channels were "
                       "transcribed", SPEAKERS_MOST, channels);
    } else if (channels == 1) {
        (void)snprintf(j->warning, sizeof j->warning, "speakers are told apart by channel, and "
                       "the recording has one: all of it is speaker A");
    }
}

static void transcribe(work *w, const wnpu_audio *audio)
{
    job *j = w->j;
    running r = {j, 0, !j->request->speakers, 0, platform_now_ms(), 0, {NULL, 0, 0, 0}};
    wnpu_params params = j->request->params;
    unsigned channels = j->request->speakers ? audio->channels : 1;
    /* Not in order, or not of the text that is wanted, until the end. */
    int late = j->request->speakers || j->request->align.n > 0, status, more;
    params.on_segment = late ? NULL : on_segment;
    params.on_token = j->on_tentative != NULL && !late ? on_token : NULL;
    params.on_progress = on_progress;
    params.user = &r;
    params.speaker = j->request->speakers;
    channels = channels < SPEAKERS_MOST ? channels : SPEAKERS_MOST;
    j->session = w->session;
    status = wnpu_transcribe(w->session, &params, audio);
    while (status == WNPU_E_CANCELLED && r.yields && w->session != NULL) {
        status = go_on(w, &r, &params, audio);
    }
    if (status >= 0 && channels > 1) {
        more = add_channels(j, w->session, channels, &params);
        status = more != WNPU_OK ? more : status;
    }
    buffer_free(&r.tentative);
    if (w->session == NULL) {
        end_lost(j);
        return;
    }
    judge(j, w->session, status);
    if (j->request->speakers && j->warning[0] == '\0') {
        warn_of_channels(j, audio->channels);
    }
    if (j->http_status == 200 && j->request->align.n > 0) {
        align(j, w->session);
    }
    if (j->on_segment != NULL && (j->request->align.n > 0 || (late && j->patient))) {
        tell_segments(j, w->session);
    }
    if (j->http_status == 200) {
        (j->answer != NULL ? j->answer : reply_results)(&j->body, w->session, j->model->model,
                                                         j->request);
    }
}

static void detect_language(job *j, wnpu_session *session, const wnpu_audio *audio)
{
    float p[100] = {0};
    int language = wnpu_detect_language(session, audio, p, sizeof p / sizeof p[0]);
    judge(j, session, language < 0 ? language : WNPU_OK);
    if (j->http_status == 200) {
        const char *name = wnpu_language_name(language), *code = wnpu_language_code(language);
        buffer_print(&j->body, "{\"detected_language\": \"%s\", \"language_code\": \"%s\", "
                     "\"confidence\": %.6f}\n", name, code, (double)p[language]);
    }
}

/* Spans of voice, in the form of speaches. */
static void detect_speech(job *j, wnpu_session *session, const wnpu_audio *audio)
{
    running r = {j, 0, 0, 0, platform_now_ms(), 0, {NULL, 0, 0, 0}};
    wnpu_params params = j->request->params;
    wnpu_speech_span span;
    size_t i;
    params.on_progress = on_progress;
    params.user = &r;
    judge(j, session, wnpu_detect_speech(session, &params, audio));
    if (j->http_status == 200) {
        buffer_text(&j->body, "[");
        for (i = 0; wnpu_get_speech_span(session, i, &span) == WNPU_OK; i++) {
            buffer_print(&j->body, "%s{\"start\": %lld, \"end\": %lld}", i > 0 ? ", " : "",
                         (long long)span.t0_ms, (long long)span.t1_ms);
        }
        buffer_text(&j->body, "]\n");
    }
}

static void *do_work(void *user)
{
    work *w = user;
    recording rec;
    if (open_recording(w->j, &rec, w->j->request->speakers ? 0 : WNPU_CHANNEL_MIX) == 0) {
        if (w->j->kind == JOB_DETECT_LANGUAGE) {
            detect_language(w->j, w->session, &rec.audio);
        } else if (w->j->kind == JOB_DETECT_SPEECH) {
            detect_speech(w->j, w->session, &rec.audio);
        } else {
            transcribe(w, &rec.audio);
        }
    } else if (w->j->watch->stop) {
        end_stopped(w->j);
    } else {
        pool_count_refusal(POOL_REFUSED_AUDIO);
    }
    close_recording(w->j, &rec);
    if (w->j->body.failed) {
        fail(w->j, 500, NULL, "no memory for the answer");
    }
    return NULL;
}

static void do_in_thread(work *w)
{
    pthread_t thread;
    if (thread_start(&thread, do_work, w) != 0) {
        fail(w->j, 503, NULL, "no memory for another thread");
    } else {
        pthread_join(thread, NULL);
    }
}

static pool_result take_session(const job *j, wnpu_session **session)
{
    const pool_listener told = {j->on_wait, j->user};
    return j->patient           ? pool_take_again(j->watch, j->model, POOL_JOB, session)
           : j->on_wait != NULL ? pool_take_told(j->watch, j->model, session, &told)
                                : pool_take(j->watch, j->model, session);
}

void job_run(job *j)
{
    work w = {j, NULL};
    int64_t begin = platform_now_ms();
    pool_result taken = take_session(j, &w.session);
    j->queued_ms = taken == POOL_TAKEN ? platform_now_ms() - begin : -1;
    j->audio_ms = -1;
    switch (taken) {
    case POOL_TAKEN:
        atomic_store(&j->running, 1);
        do_in_thread(&w);
        if (w.session != NULL) {
            j->audio_ms = reply_stats(w.session).audio_ms;
            pool_give(j->watch, w.session);
        }
        break;
    case POOL_FULL:
        pool_count_refusal(POOL_REFUSED_FULL);
        fail(j, 503, NULL, POOL_FULL_MESSAGE);
        break;
    case POOL_SHUT:
        pool_count_refusal(POOL_REFUSED_CLOSING);
        fail(j, 503, NULL, POOL_CLOSING_MESSAGE);
        break;
    case POOL_FAILED: fail(j, 503, NULL, POOL_FAILED_MESSAGE); break;
    case POOL_STOPPED: end_stopped(j); break;
    }
}

void job_free(job *j)
{
    buffer_free(&j->body);
}

void job_warnings(const job *j, char both[JOB_WARNINGS_SIZE])
{
    const char *first = j->request->warning;
    (void)snprintf(both, JOB_WARNINGS_SIZE, "%s%s%s", first,
                   j->warning[0] != '\0' && first[0] != '\0' ? "; " : "", j->warning);
}
