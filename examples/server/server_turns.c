/* server_turns.c - see server_turns.h
 *
 * The detector decides with a delay, because its network looks ahead. So that the end of a turn is
 * not told later for that, a shorter silence is awaited, and what the detector has not decided yet
 * must be as quiet as that silence. If it is not, its decision is awaited. Levels also tell, before
 * the detector can, that a turn pauses, so that its text can be decoded while the silence lasts.
 */
#include "server_turns.h"

#include <string.h>

#define KEPT_MS 5000         /* of audio, for the padding and what is committed without speech */
#define AHEAD_MS 240         /* silence that is judged by its level */
#define LEAST_HANGOVER_MS 100
#define DELAY_MS 300         /* of the detector's decisions */
#define ONSET_MS 100         /* of voice that begin an utterance */
#define FRAME_MS 20          /* whose level counts */
#define FADE_MS 60           /* behind speech that do not count as the silence's level */
#define LOUDER 4.0           /* in power: no silence any more */
#define FLOOR 100.0          /* power of silence at least; full scale is 2^30 */
#define BLOCK_MS 20          /* whose power turns_level has */
#define BLOCKS_LEAST 12      /* of one value of turns_level.least */
#define PAUSE_MS 240         /* of silence in which a turn pauses: more than within a word, and */
#define PAUSE_SHARE 2        /* no more than this part of the silence that ends it */
#define ONSET_LOUD 3         /* loud blocks that begin a turn while the detector is open */
#define GOES_ON 2            /* loud blocks after which a turn that paused goes on */
#define TAIL_MS 160          /* for which the detector may hear a voice behind a pause that levels
                                have found: reverberation, or a voice that fades */
#define SILENT 3e-4          /* power beside the loudest speech: silence, whatever the noise */
#define FADES 0.998          /* of turns_level.most for each block: to half in 7 s */

int turns_open(turns *t, const wnpu_model *model, wnpu_error *error)
{
    wnpu_config config;
    wnpu_config_init(&config, sizeof config);
    config.threads = 1;
    config.result_bytes = 1u << 20;
    config.stream_bytes = 1u << 16;
    return wnpu_session_open(&t->session, model, &config, NULL, 0, error);
}

void turns_close(turns *t)
{
    wnpu_session_close(t->session);
    t->session = NULL;
    buffer_free(&t->kept);
}

static int64_t frames_of(const turns *t, int64_t ms)
{
    return ms * (int64_t)t->settings.rate / 1000;
}

int64_t turns_ms(const turns *t, int64_t frame)
{
    return frame * 1000 / (int64_t)t->settings.rate;
}

int64_t turns_cut(const turns *t, int64_t end)
{
    return end + frames_of(t, t->silence_ms);
}

void turns_hurry(turns *t)
{
    t->silence_ms = t->settings.silence_ms;
}

int turns_begin(turns *t, const event_settings *s)
{
    wnpu_params params;
    wnpu_stream_options stream;
    int32_t hangover = s->silence_ms - AHEAD_MS;
    t->settings = *s;
    t->width = s->format == WNPU_SAMPLE_S16LE ? 2 : 1;
    t->heard = t->kept_from = t->least = 0;
    t->speaking = t->open = 0;
    t->silence_ms = s->open_silence_ms;
    t->end = t->pause = -1;
    memset(&t->level, 0, sizeof t->level);
    buffer_clear(&t->kept);
    wnpu_params_init(&params, sizeof params);
    params.vad_threshold = s->threshold;
    wnpu_stream_options_init(&stream, sizeof stream);
    stream.format = s->format;
    stream.rate = s->rate;
    stream.detect_only = 1;
    stream.hangover_ms = hangover > LEAST_HANGOVER_MS ? hangover : LEAST_HANGOVER_MS;
    (void)wnpu_reset(t->session);
    return wnpu_stream_begin(t->session, &params, &stream);
}

/* ---- levels ---- */

/* A sample of G.711. */
static int expand(int32_t format, unsigned byte)
{
    unsigned code = byte ^ (format == WNPU_SAMPLE_ULAW ? 0xffu : 0x55u);
    unsigned exponent = code >> 4 & 7, mantissa = code & 15;
    int value;
    if (format == WNPU_SAMPLE_ULAW) {
        value = (int)((mantissa << 3) + 132) << exponent;
        return value - 132;
    }
    value = (int)(mantissa << 4) + (exponent > 0 ? 264 : 8);
    return exponent > 1 ? value << (exponent - 1) : value;
}

static double sample_of(const turns *t, const unsigned char *at)
{
    return t->width == 2 ? (double)(int16_t)(uint16_t)(at[0] | (unsigned)at[1] << 8)
                         : (double)expand(t->settings.format, at[0]);
}

/* The largest mean power of FRAME_MS between two frames. */
static double power_of(const turns *t, int64_t from, int64_t to)
{
    const unsigned char *at;
    size_t i, n = turns_audio(t, &from, &at), step = (size_t)frames_of(t, FRAME_MS);
    double sum = 0, most = 0;
    n = to - from < (int64_t)n ? (size_t)(to > from ? to - from : 0) : n;
    for (i = 0; i < n; i++) {
        double x = sample_of(t, at + i * t->width);
        sum += x * x;
        if ((i + 1) % step == 0) {
            most = sum > most ? sum : most;
            sum = 0;
        }
    }
    return most / (double)step;
}

/* Whether what the detector has not decided is as quiet as the pause before it. */
static int is_quiet(const turns *t)
{
    int64_t decided = t->heard - frames_of(t, DELAY_MS);
    double pause = power_of(t, t->end + frames_of(t, FADE_MS), decided);
    pause = pause > FLOOR ? pause : FLOOR;
    return power_of(t, decided, t->heard) <= LOUDER * pause;
}

/* Takes the power of the block that is complete. */
static void take_block(turns_level *v, double power, int64_t length)
{
    double noise = v->now;
    size_t i;
    v->end += length;
    v->now = v->n_now == 0 || power < v->now ? power : v->now;
    noise = v->now;
    for (i = 0; i < sizeof v->least / sizeof v->least[0]; i++) {
        noise = v->least[i] > 0 && v->least[i] < noise ? v->least[i] : noise;
    }
    if (++v->n_now == BLOCKS_LEAST) {
        v->least[v->at] = v->now + 1; /* 0 is for none */
        v->at = (v->at + 1) % (sizeof v->least / sizeof v->least[0]);
        v->n_now = 0;
    }
    v->most = power > v->most * FADES ? power : v->most * FADES;
    if (power > FLOOR && power > LOUDER * noise && power > SILENT * v->most) {
        v->loud_end = v->end;
        v->loud++;
    } else {
        v->loud = 0;
    }
}

/* Measures samples. */
static void measure(turns *t, const unsigned char *samples, size_t frames)
{
    turns_level *v = &t->level;
    int64_t length = frames_of(t, BLOCK_MS), at = t->heard;
    size_t i;
    for (i = 0; i < frames; i++) {
        double x = sample_of(t, samples + i * t->width);
        v->sum += x * x;
        if (++at == v->end + length) {
            take_block(v, v->sum / (double)length, length);
            v->sum = 0;
        }
    }
}

/* ---- audio ---- */

size_t turns_audio(const turns *t, int64_t *from, const unsigned char **samples)
{
    *from = *from > t->kept_from ? *from : t->kept_from;
    *from = *from < t->heard ? *from : t->heard;
    *samples = (const unsigned char *)t->kept.bytes + (size_t)(*from - t->kept_from) * t->width;
    return (size_t)(t->heard - *from);
}

static void keep(turns *t, const unsigned char *samples, size_t frames)
{
    size_t most = (size_t)frames_of(t, KEPT_MS) * t->width;
    if (t->kept.n > 2 * most) { /* seldom, so that little is moved */
        size_t drop = t->kept.n - most;
        memmove(t->kept.bytes, t->kept.bytes + drop, most);
        t->kept.n = most;
        t->kept_from += (int64_t)(drop / t->width);
    }
    (void)buffer_write(&t->kept, samples, frames * t->width);
    measure(t, samples, frames);
    t->heard += (int64_t)frames;
}

int64_t turns_certain(const turns *t)
{
    /* If speech has ended, it was not before the detector's decisions. */
    int64_t end = t->end >= 0 ? t->end : t->heard - frames_of(t, DELAY_MS + ONSET_MS);
    int64_t known = turns_cut(t, end);
    known = known < t->level.end ? known : t->level.end;
    return t->pause >= 0 && t->pause < known ? t->pause : known;
}

/* ---- turns ---- */

/* Tells that the turn pauses at a frame, or goes on behind it. */
static void set_pause(turns *t, turn_change change, int64_t frame)
{
    t->pause = change == TURN_PAUSES ? frame : -1;
    t->silence_ms = t->settings.open_silence_ms;
    t->on_change(t->user, change, frame);
}

static void end_turn(turns *t)
{
    int64_t end = t->end;
    if (t->pause >= 0 &&
        (t->pause + frames_of(t, TAIL_MS) < end || t->pause > turns_cut(t, end))) {
        set_pause(t, TURN_GOES_ON, t->pause); /* something in it was not as loud as most */
    }
    t->speaking = 0;
    t->end = -1;
    t->on_change(t->user, TURN_ENDS, end);
    t->pause = -1;
    t->least = end + frames_of(t, t->silence_ms) / 2;
    t->silence_ms = t->settings.open_silence_ms;
}

/* Speech begins, or goes on after a pause that is too short to end the turn. */
static void begin_speech(turns *t, int64_t frame)
{
    int64_t first = frame - frames_of(t, t->settings.padding_ms);
    if (t->speaking && t->end >= 0 && frame >= turns_cut(t, t->end)) {
        end_turn(t);
    }
    t->end = -1;
    if (!t->speaking) {
        first = first > t->least ? first : t->least;
        t->speaking = 1;
        t->begin = first > t->kept_from ? first : t->kept_from;
        t->on_change(t->user, TURN_BEGINS, t->begin);
    }
}

/* The end of a turn by its level, where less silence is to end it than the detector needs to find
 * it; else -1. */
static int64_t end_by_level(const turns *t)
{
    const turns_level *v = &t->level;
    return t->speaking && t->silence_ms < AHEAD_MS + LEAST_HANGOVER_MS && v->loud_end > t->begin &&
           v->end >= turns_cut(t, v->loud_end) ? v->loud_end : -1;
}

/* Whether the end is certain, or as good as that. */
static int has_ended(const turns *t)
{
    int64_t since = t->end >= 0 ? t->heard - turns_cut(t, t->end) : -1;
    return t->speaking && since >= 0 &&
           (since >= frames_of(t, DELAY_MS + ONSET_MS) || is_quiet(t));
}

/* Tells whether the turn pauses or ends, or another one begins, by the levels. */
static void find_pause(turns *t)
{
    const turns_level *v = &t->level;
    int32_t most = t->settings.silence_ms / PAUSE_SHARE;
    int64_t pause = v->loud_end + frames_of(t, most < PAUSE_MS ? most : PAUSE_MS);
    if (t->speaking && t->pause >= 0 && v->loud >= GOES_ON) {
        set_pause(t, TURN_GOES_ON, t->pause);
    }
    if (t->speaking && t->pause < 0 && v->end >= pause && v->loud_end > t->begin) {
        set_pause(t, TURN_PAUSES, pause);
    }
    if (t->open && !t->speaking && v->loud >= ONSET_LOUD) {
        begin_speech(t, v->end - v->loud * frames_of(t, BLOCK_MS));
    }
    if (end_by_level(t) >= 0) {
        t->open = t->end < 0;
        t->end = end_by_level(t);
        end_turn(t);
    }
}

int turns_hear(turns *t, const unsigned char *samples, size_t frames)
{
    uint32_t events = WNPU_EVENT_MORE;
    wnpu_live live;
    int status = WNPU_OK;
    memset(&live, 0, sizeof live);
    live.struct_size = sizeof live;
    keep(t, samples, frames);
    (void)wnpu_stream_push(t->session, samples, frames);
    while (status == WNPU_OK && (events & WNPU_EVENT_MORE) != 0) {
        status = wnpu_stream_step(t->session, &events);
        status = status == WNPU_OK ? wnpu_get_live(t->session, &live) : status;
        if (status == WNPU_OK && (events & WNPU_EVENT_SPEECH_START) != 0) {
            t->open = 0;
            begin_speech(t, frames_of(t, live.utterance_t0_ms));
        }
        if (status == WNPU_OK && (events & WNPU_EVENT_UTTERANCE_END) != 0) {
            int64_t end = frames_of(t, live.utterance_t1_ms);
            t->open = 0;
            t->end = !t->speaking ? -1 : end > t->begin ? end : t->begin;
        }
    }
    find_pause(t);
    if (status == WNPU_OK && has_ended(t)) {
        end_turn(t);
    }
    return t->kept.failed && status == WNPU_OK ? WNPU_E_MEMORY : status;
}
