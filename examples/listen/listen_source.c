/*
 * listen_source.c - see listen_source.h.
 */
#define _DEFAULT_SOURCE /* ioctl() */
#define _XOPEN_SOURCE 700
#include "listen_source.h"

#include <string.h>
#include <time.h>

enum {
    TICK_MS = 100,                     /* how often the thread looks whether it is to stop */
    WAIT_MS = 50,                      /* how long source_wait() waits for sound */
    QUIET_MS = 80,                     /* sound that is collected in silence; below a piece */
    BEFORE_MS = 500,                   /* for what was recorded before the start */
    SURE_MS = 2500,                    /* a source that kept the pace for so long is live */
    STALL_MS = 700,                    /* without sound, and its recorder may have lost some */
    SETTLE_MS = 200,                   /* for the recorder to deliver what it still has */
    MISSING_MS = 500,                  /* least loss that is told from a late delivery */
    WINDOW_MS = 2000,                  /* a delay that lasts as long is a loss */
    SEEN = 32000                       /* samples that the hint is taken from */
};

static void sleep_ms(int ms)
{
    struct timespec time = {0, 0};
    time.tv_nsec = ms * 1000000L;
    (void)nanosleep(&time, NULL);
}

static double ms_of(const source *s, uint64_t frames)
{
    return 1000.0 * (double)frames / s->in.audio.rate;
}

/* One hint is enough. */
static void tell(source *s, const char *hint)
{
    (void)pthread_mutex_lock(&s->mutex);
    (void)snprintf(s->hint, sizeof s->hint, "%s", hint);
    (void)pthread_mutex_unlock(&s->mutex);
    s->guessed = s->looking = 0;
}

/* ---- whether samples are what they were taken for ---- */

/* Looks at sums[]. In sound of one channel samples are more like their neighbours than like others,
 * and even samples as much as odd ones; white noise of a high level is seldom recorded. */
static void judge_samples(source *s)
{
    const double *sum = s->sums;
    double energy = sum[0] + sum[1], first = sum[2] + sum[3], second = sum[4] + sum[5];
    double mean = energy / (double)s->n_seen;
    if (mean > 6000.0 * 6000.0 && first > 1.5 * energy && second > 1.2 * energy) {
        tell(s, "this sounds like noise as samples of 16 bits: it may be compressed or have "
             "another format; see --raw");
    } else if (mean > 30.0 * 30.0 &&
               (second < 0.6 * first || sum[2] > 4.0 * sum[3] || sum[3] > 4.0 * sum[2])) {
        tell(s, "these may be samples of two channels, or of 32 bits; see --raw, such as "
             "s16le,48000,2");
    }
    s->looking = s->looking && mean <= 30.0 * 30.0; /* silence so far */
    memset(s->sums, 0, sizeof s->sums);
    s->n_seen = 0;
}

/* Sums for even and odd samples of S16LE: [0..1] squares, [2..3] of the difference from the one
 * before, [4..5] from the one before that. */
static void look_at(source *s, const unsigned char *bytes, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        int x = (int16_t)(bytes[2 * i] | bytes[2 * i + 1] << 8);
        double one = x - s->last[0], two = x - s->last[1];
        s->sums[s->odd] += (double)x * x;
        s->sums[2 + s->odd] += one * one;
        s->sums[4 + s->odd] += two * two;
        s->last[1] = s->last[0];
        s->last[0] = x;
        s->odd = !s->odd;
    }
    s->n_seen += n;
    if (s->n_seen >= SEEN) {
        judge_samples(s);
    }
}

/* ---- the clock ---- */

static double delay_at(const source *s, int64_t now)
{
    return (double)(now - s->clock.begin) - ms_of(s, s->clock.frames);
}

static void restart_clock(source *s, int64_t now)
{
    s->clock.begin = s->clock.window = s->clock.arrived = now;
    s->clock.frames = 0;
    s->clock.delay = s->clock.least = 0.0;
}

/* Whether the source is live, when it is not known yet. */
static void judge_pace(source *s, int64_t now, double delay)
{
    source_clock *c = &s->clock;
    double elapsed = (double)(now - c->begin), pace = ms_of(s, c->frames) / (elapsed + 1.0);
    if (c->throttled) {
        c->live = -1;
    } else if (!c->settled && elapsed >= BEFORE_MS) {
        c->settled = 1;
        restart_clock(s, now);
    } else if (elapsed < SURE_MS) {
        return;
    } else if (pace > 1.3) {
        c->live = -1;
        if (s->guessed && pace < 30.0) {
            char hint[200];
            (void)snprintf(hint, sizeof hint, "sound arrives %.1f times as fast as samples of 16 "
                           "bits at 16 kHz are recorded; see --raw, such as s16le,48000,2", pace);
            tell(s, hint);
        }
    } else if (delay - c->delay < 0.05 * elapsed + 100.0) {
        c->live = 1;
    } else {
        restart_clock(s, now);
    }
}

/* n frames have arrived. */
static void count(source *s, uint64_t n)
{
    source_clock *c = &s->clock;
    int64_t now = platform_now_ms();
    double delay;
    if (c->begin == 0) {
        restart_clock(s, now);
    }
    c->frames += n;
    delay = delay_at(s, now);
    c->delay += 0.0005 * (double)(now - c->arrived); /* clocks of sound cards are that bad */
    c->delay = delay < c->delay ? delay : c->delay;
    c->least = delay < c->least ? delay : c->least;
    c->arrived = c->running = now;
    if (c->live == 0) {
        judge_pace(s, now, delay);
    }
}

static void lose(source *s, double ms)
{
    static const unsigned char silence[4096];
    uint64_t frames = (uint64_t)(ms * s->in.audio.rate / 1000.0), n, done;
    int i;
    frames = frames < UINT32_MAX ? frames : UINT32_MAX;
    for (i = 0; i < s->n_sessions; i++) {
        (void)wnpu_stream_push(s->session[i], NULL, (size_t)frames);
    }
    for (done = 0; s->keep != NULL && done < frames; done += n) {
        n = sizeof silence / wnpu_frame_bytes(&s->in.audio);
        n = n < frames - done ? n : frames - done;
        commands_keep(s->keep, &s->in.audio, silence, (size_t)n);
    }
    s->clock.frames += frames;
    s->clock.until = 0;
    s->clock.window = platform_now_ms();
    s->clock.least = delay_at(s, s->clock.window);
}

/* Milliseconds of sound that wait in the pipe. */
static double waiting(const source *s)
{
    int n = 0;
    return ioctl(s->in.fd, FIONREAD, &n) == 0 && n > 0
               ? ms_of(s, (uint64_t)n / wnpu_frame_bytes(&s->in.audio)) : 0.0;
}

/* Before sound is read that has arrived: whether some before it is missing. */
static void find_losses(source *s)
{
    source_clock *c = &s->clock;
    int64_t now = platform_now_ms();
    double behind;
    if (c->live != 1 || s->in.uses_ffmpeg || c->arrived == 0) {
        return;
    }
    if (now - c->arrived >= STALL_MS && c->until == 0) {
        /* If this program was stopped, what the pipe holds is from before the loss. */
        c->until = c->frames + 1;
        if (now - c->running >= STALL_MS) {
            c->until += (uint64_t)(waiting(s) / 1000.0 * s->in.audio.rate);
        }
    }
    c->running = now;
    if (c->until != 0 && c->frames + 1 >= c->until) {
        sleep_ms(SETTLE_MS);
        behind = waiting(s);
        if (behind > 2.0 * SETTLE_MS) { /* the recorder is catching up */
            c->until = c->frames + (uint64_t)(behind / 1000.0 * s->in.audio.rate);
            return;
        }
        behind = delay_at(s, platform_now_ms()) - behind - c->delay;
        c->until = 0;
        if (behind >= MISSING_MS) {
            lose(s, behind);
        }
    } else if (c->until == 0 && now - c->window >= WINDOW_MS) {
        if (c->least - c->delay >= MISSING_MS && c->frames > 0) {
            lose(s, c->least - c->delay);
        }
        c->window = now;
        c->least = delay_at(s, now);
    }
}

/* ---- the thread ---- */

/* Waits until there is sound or the end. In silence it is collected for a while, because each piece
 * wakes two threads, unless the n frames read last were already as long. */
static void wait_for_sound(source *s, uint64_t n)
{
    struct pollfd p = {s->in.fd, POLLIN, 0};
    if (s->quiet && s->clock.live == 1 && ms_of(s, n) < QUIET_MS) {
        sleep_ms(QUIET_MS);
    }
    while (!s->in.uses_ffmpeg && !s->stop && !*s->end && poll(&p, 1, TICK_MS) == 0) {
        s->clock.running = platform_now_ms();
    }
}

/* Waits until the sessions have room, unless the source is live. */
static void wait_for_room(source *s, size_t frames)
{
    int i;
    for (i = 0; i < s->n_sessions && !s->stop; i++) {
        while (s->clock.live != 1 && !s->stop && wnpu_stream_room(s->session[i]) < frames) {
            sleep_ms(10);
            s->clock.throttled = 1;
            s->clock.running = s->clock.arrived = platform_now_ms();
        }
    }
}

static void *read_all(void *user)
{
    source *s = user;
    const wnpu_audio *a = &s->in.audio;
    size_t most = a->rate / 10;
    unsigned char *samples = malloc(most * wnpu_frame_bytes(a));
    int64_t n = samples != NULL ? 1 : -1;
    int i;
    while (n > 0 && !s->stop) {
        wait_for_sound(s, (uint64_t)n);
        find_losses(s);
        n = a->read(a->user, samples, most);
        if (n <= 0) {
            break;
        }
        count(s, (uint64_t)n);
        wait_for_room(s, (size_t)n);
        for (i = 0; i < s->n_sessions; i++) {
            (void)wnpu_stream_push(s->session[i], samples, (size_t)n);
        }
        if (s->keep != NULL) {
            commands_keep(s->keep, a, samples, (size_t)n);
        }
        if (s->looking) {
            look_at(s, samples, (size_t)n);
        }
        (void)pthread_cond_signal(&s->changed);
    }
    free(samples);
    (void)pthread_mutex_lock(&s->mutex);
    s->failed = n < 0;
    s->ended = 1;
    (void)pthread_cond_signal(&s->changed);
    (void)pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* ---- for the thread that decodes ---- */

int source_open(source *s, int fd, const wnpu_audio *raw, int live, const atomic_int *end)
{
    static wnpu_audio assumed;
    input_options o;
    memset(s, 0, sizeof *s);
    (void)pthread_mutex_init(&s->mutex, NULL);
    (void)pthread_cond_init(&s->changed, NULL);
    wnpu_audio_init(&assumed, sizeof assumed);
    assumed.format = WNPU_SAMPLE_S16LE;
    memset(&o, 0, sizeof o);
    o.channel = WNPU_CHANNEL_MIX;
    o.track = -1;
    o.raw = raw != NULL ? raw : &assumed;
    o.sniff = raw == NULL;
    o.end = s->end = end;
    s->clock.live = live;
    if (input_open_fd(&s->in, fd, &o) != 0) {
        return -1;
    }
    s->guessed = s->looking = raw == NULL && !s->in.uses_wav && !s->in.uses_ffmpeg;
    return 0;
}

int source_start(source *s)
{
    platform_signals before;
    int failed;
    platform_hold(&before);
    failed = pthread_create(&s->thread, NULL, read_all, s);
    platform_release(&before);
    return failed != 0 ? -1 : 0;
}

int source_wait(source *s, int quiet)
{
    struct timespec time;
    int goes_on;
    s->quiet = quiet;
    (void)clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec += 1000000L * (quiet ? 2 * TICK_MS : WAIT_MS);
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&s->mutex);
    goes_on = !s->ended;
    if (goes_on) {
        (void)pthread_cond_timedwait(&s->changed, &s->mutex, &time);
    }
    (void)pthread_mutex_unlock(&s->mutex);
    return goes_on;
}

const char *source_hint(source *s, char hint[256])
{
    (void)pthread_mutex_lock(&s->mutex);
    memcpy(hint, s->hint, sizeof s->hint);
    s->hint[0] = '\0';
    (void)pthread_mutex_unlock(&s->mutex);
    return hint;
}

void source_stop(source *s)
{
    s->stop = 1;
    (void)pthread_join(s->thread, NULL);
}

void source_close(source *s)
{
    if (s->end == NULL) {
        return;                        /* it was never opened */
    }
    input_close(&s->in);
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->mutex);
}
