/*
 * commands.c - see commands.h. The deadline is an alarm that cancels the run.
 */
#define _XOPEN_SOURCE 700
#include "commands.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { KEPT = 1 << 25, PHRASES = 1000, PHRASE_SIZE = 255, AROUND_MS = 300, LONGEST_MS = 30000 };

static wnpu_session *session;
static wnpu_params params;
static wnpu_audio audio;
static char phrases[PHRASES][PHRASE_SIZE];
static const char *list[PHRASES];
static size_t n_phrases, width;        /* width: bytes of a frame */
static unsigned char *kept, *part;     /* [KEPT]: byte i is kept[i % KEPT]; the utterance */
static uint64_t n_kept;
static struct itimerval deadline;

static void too_late(int number)
{
    (void)number;
    wnpu_cancel(session);
}

/* Reads one phrase per line: UTF-8 with or without a byte order mark, lines end with LF or
 * CR LF. Spaces around a phrase are removed. Returns an error message, or NULL. */
static const char *read_phrases(const char *path)
{
    char line[2 * PHRASE_SIZE];
    const char *message = NULL;
    int first = 1;
    FILE *f = fopen(path, "r");
    if (f == NULL) {
        return "the list of commands cannot be read";
    }
    for (; message == NULL && fgets(line, sizeof line, f) != NULL; first = 0) {
        char *from = line + (first && strncmp(line, "\xef\xbb\xbf", 3) == 0 ? 3 : 0), *end;
        from += strspn(from, " \t\r\n");
        for (end = from + strlen(from); end > from && strchr(" \t\r\n", end[-1]) != NULL; end--) {
        }
        if (end == from) {
            continue;
        }
        *end = '\0';
        if (first && (strncmp(line, "\xff\xfe", 2) == 0 || strncmp(line, "\xfe\xff", 2) == 0)) {
            message = "the list of commands is UTF-16; save it as UTF-8";
        } else if (n_phrases == PHRASES) {
            message = "the list has more than 1000 commands";
        } else if (end - from >= PHRASE_SIZE) {
            message = "a command has more than 254 bytes";
        } else {
            memcpy(phrases[n_phrases], from, (size_t)(end - from) + 1);
            list[n_phrases] = phrases[n_phrases];
            n_phrases++;
        }
    }
    if (message == NULL && ferror(f)) {
        message = "the list of commands cannot be read";
    }
    (void)fclose(f);
    return message == NULL && n_phrases == 0 ? "the list of commands is empty" : message;
}

/* Opens the session with room for the phrases, and tries them on an empty recording. */
static const char *open_session(const wnpu_model *model)
{
    static wnpu_error error;
    wnpu_config config;
    wnpu_choice choice = {.struct_size = sizeof choice};
    size_t i, tokens = 0;
    for (i = 0; i < n_phrases; i++) {
        tokens += 8 * strlen(phrases[i]); /* eight spellings of each */
    }
    wnpu_config_init(&config, sizeof config);
    if (tokens > config.max_phrase_tokens) {
        config.max_phrase_tokens = tokens < 1048576 ? (uint32_t)tokens : 1048576;
    }
    if (wnpu_session_open(&session, model, &config, NULL, 0, &error) != WNPU_OK) {
        return error.message;
    }
    wnpu_audio_init(&audio, sizeof audio);
    return wnpu_choose(session, &params, &audio, list, n_phrases, &choice) == WNPU_OK
               ? NULL : wnpu_session_error(session);
}

const char *commands_open(const wnpu_model *model, const char *path, int deadline_ms, int language)
{
    struct sigaction alarm;
    const char *message = read_phrases(path);
    if (message != NULL) {
        return message;
    }
    kept = malloc(KEPT);
    part = malloc(KEPT);
    if (kept == NULL || part == NULL) {
        return "out of memory";
    }
    memset(&alarm, 0, sizeof alarm);
    alarm.sa_handler = too_late;
    alarm.sa_flags = SA_RESTART;
    (void)sigaction(SIGALRM, &alarm, NULL);
    deadline.it_value.tv_sec = deadline_ms / 1000;
    deadline.it_value.tv_usec = deadline_ms % 1000 * 1000;
    wnpu_params_init(&params, sizeof params);
    params.language = language;
    return open_session(model);
}

void commands_keep(const wnpu_audio *format, const void *samples, size_t frames)
{
    static const size_t bytes[] = {4, 2, 1, 2, 3, 4, 4, 8, 1, 1};
    size_t i, n;
    if (kept == NULL) {
        return;
    }
    audio = *format;
    width = bytes[audio.format] * audio.channels;
    n = frames * width;
    for (i = 0; i < n; i++) {
        kept[n_kept++ % KEPT] = ((const unsigned char *)samples)[i];
    }
}

/* Position of a time in what was kept. */
static uint64_t position_of(int64_t ms)
{
    uint64_t at = ms > 0 ? (uint64_t)ms * audio.rate / 1000 * width : 0;
    return at < n_kept ? at : n_kept;
}

const char *commands_choose(int64_t t0_ms, int64_t t1_ms, wnpu_choice *choice)
{
    static const struct itimerval off;
    uint64_t i, end = position_of(t1_ms + AROUND_MS), oldest = n_kept > KEPT ? n_kept - KEPT : 0;
    uint64_t from = position_of(t0_ms > t1_ms - LONGEST_MS ? t0_ms - AROUND_MS
                                                           : t1_ms - LONGEST_MS);
    int status;
    from = from > oldest ? from : (oldest + width - 1) / width * width;
    for (i = from; i < end; i++) {
        part[i - from] = kept[i % KEPT];
    }
    audio.data = part;
    audio.read = NULL;
    audio.frames = end > from ? (end - from) / width : 0;
    (void)setitimer(ITIMER_REAL, &deadline, NULL);
    status = wnpu_choose(session, &params, &audio, list, n_phrases, choice);
    (void)setitimer(ITIMER_REAL, &off, NULL);
    return status == WNPU_OK ? list[choice->best] : NULL;
}

void commands_close(void)
{
    wnpu_session_close(session);
    free(kept);
    free(part);
}
