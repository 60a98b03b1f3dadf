/*
 * listen_show.c - see listen_show.h.
 */
#define _XOPEN_SOURCE 700
#include "commands.h"
#include "listen_file.h"
#include "listen_show.h"
#include "terminal.h"

#include <stdio.h>
#include <string.h>

#define LINE_SIZE ((size_t)1 << 16)   /* more than a segment's text has */

static show_options options;
static int failed;                     /* writing has */

void show_begin(const show_options *given)
{
    options = *given;
    failed = 0;
    if (!options.json) {
        terminal_open();
    }
}

static int64_t print(void *user, const void *data, size_t size)
{
    return (void)user, (int64_t)fwrite(data, 1, size, stdout);
}

static void event(const voice *v, const char *name, int64_t t0, int64_t t1)
{
    printf("{\"event\":\"%s\",\"t0_ms\":%ld,\"t1_ms\":%ld", name, (long)t0, (long)t1);
    if (v->speaker > 0) {
        printf(",\"speaker\":%d", v->speaker);
    }
}

static void event_text(size_t likely, const char *text)
{
    printf(",\"likely\":%lu,\"text\":", (unsigned long)likely);
    wnpu_write_json_string(text, strlen(text), print, NULL);
    printf("}\n");
}

/* Begin of a line: its time and its speaker. */
static size_t begin_line(const voice *v, int64_t ms, char *line, size_t size)
{
    int n = 0;
    if (options.times) {
        long s = (long)(ms / 1000);
        n = snprintf(line, size, "[%ld:%02ld:%02ld.%ld] ", s / 3600, s / 60 % 60, s % 60,
                     (long)(ms / 100 % 10));
    }
    if (v->speaker > 0) {
        n += snprintf(line + n, size - (size_t)n, "Speaker %d: ", v->speaker);
    }
    return (size_t)n;
}

/* Final text. */
static void show_segments(voice *v)
{
    static char line[LINE_SIZE];
    wnpu_segment g;
    for (; wnpu_get_segment(v->session, v->n_segments, &g) == WNPU_OK; v->n_segments++) {
        size_t n = begin_line(v, g.t0_ms, line, sizeof line);
        (void)snprintf(line + n, sizeof line - n, "%s", g.text + (g.text[0] == ' '));
        failed |= file_add(line) != 0;
        if (options.json) {
            event(v, "text", g.t0_ms, g.t1_ms);
            event_text(g.text_length, g.text);
        } else {
            terminal_print(line);
        }
    }
}

static void show_command(const voice *v, const wnpu_live *live)
{
    wnpu_choice c = {.struct_size = sizeof c};
    const char *phrase = commands_choose(options.commands, live->utterance_t0_ms,
                                         live->utterance_t1_ms, &c);
    char line[512];
    size_t n = begin_line(v, live->utterance_t0_ms, line, sizeof line);
    (void)snprintf(line + n, sizeof line - n, "%s\t%.2f\t%.2f", phrase != NULL ? phrase : "-",
                   (double)c.best_logprob, (double)c.margin);
    failed |= file_add(line) != 0;
    if (options.json) {
        event(v, "command", live->utterance_t0_ms, live->utterance_t1_ms);
        event_text(0, phrase != NULL ? phrase : "");
    } else {
        printf("%s\n", line);
    }
}

/* Losses as the ledger has them. Its last span may still grow, except at the end. */
static void show_losses(voice *v, int last)
{
    wnpu_ledger_span span, next;
    for (; wnpu_get_ledger_span(v->session, v->n_spans, &span) == WNPU_OK; v->n_spans++) {
        if (!last && wnpu_get_ledger_span(v->session, v->n_spans + 1, &next) != WNPU_OK) {
            break;
        }
        if (span.reason != WNPU_REASON_OVERRUN) {
            continue;
        }
        if (options.json) {
            event(v, "lost", span.t0_ms, span.t1_ms);
            event_text(0, "");
        } else {
            terminal_show("");
            (void)fflush(stdout);
            fprintf(stderr, "listen: %.1f s of sound from %.1f s on were lost\n",
                    (double)(span.t1_ms - span.t0_ms) / 1e3, (double)span.t0_ms / 1e3);
        }
    }
}

static void show_tentative(const voice *v, const wnpu_live *live)
{
    static char line[LINE_SIZE];
    size_t n = 0;
    line[0] = '\0';
    if (live->text_length > 0) {
        n = begin_line(v, live->t0_ms, line, sizeof line);
        (void)snprintf(line + n, sizeof line - n, "%s", live->text + (live->text[0] == ' '));
    }
    terminal_show_behind(live->confirmed_length > 0 ? n + live->confirmed_length -
                                                          (live->text[0] == ' ') : 0, line);
}

/* Final words of a segment that is not complete yet. */
static void keep_confirmed(const voice *v, const wnpu_live *live)
{
    char line[FILE_LINE] = "";
    size_t length = live->confirmed_length, blank = length > 0 && live->text[0] == ' ';
    if (length > blank) {
        size_t n = begin_line(v, live->t0_ms, line, sizeof line);
        (void)snprintf(line + n, sizeof line - n, "%.*s", (int)(length - blank),
                       live->text + blank);
    }
    failed |= file_begin_line(v->speaker, line) != 0;
}

static int flush(void)
{
    file_sync();
    failed |= fflush(stdout) != 0 || ferror(stdout);
    return failed ? -1 : 0;
}

int show(voice *v, uint32_t events, int last)
{
    wnpu_live live = {.struct_size = sizeof live, .text = ""};
    (void)wnpu_get_live(v->session, &live);
    if (last && live.utterance_t0_ms >= 0 && live.utterance_t1_ms < 0) {
        live.utterance_t1_ms = live.audio_ms; /* the end of the sound ends an utterance, too */
        events |= WNPU_EVENT_UTTERANCE_END;
    }
    if (options.json && (events & WNPU_EVENT_SPEECH_START)) {
        event(v, "speech-start", live.utterance_t0_ms, live.audio_ms);
        event_text(0, "");
    }
    show_losses(v, 0);
    show_segments(v);
    if (options.json && (events & WNPU_EVENT_TENTATIVE)) {
        event(v, "tentative", live.t0_ms, live.t1_ms);
        event_text(live.likely_length, live.text);
    }
    if (options.json && (events & WNPU_EVENT_UTTERANCE_END)) {
        event(v, "utterance-end", live.utterance_t0_ms, live.utterance_t1_ms);
        event_text(0, "");
    }
    if (options.commands != NULL && (events & WNPU_EVENT_UTTERANCE_END)) {
        show_command(v, &live);
    }
    if (!options.json && (v->speaker == 0 || (events & WNPU_EVENT_TENTATIVE))) {
        show_tentative(v, &live);
    }
    keep_confirmed(v, &live);
    return flush();
}

int show_end(voice *v)
{
    const wnpu_live none = {.text = ""};
    show_losses(v, 1);
    show_segments(v);
    if (!options.json) {
        terminal_show("");
    }
    keep_confirmed(v, &none);
    return flush();
}
