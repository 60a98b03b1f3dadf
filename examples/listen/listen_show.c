/*
 * listen_show.c - see listen_show.h.
 */
#define _XOPEN_SOURCE 700
#include "listen_show.h"

#include <stdio.h>
#include <string.h>

void show_begin(display *d, const show_options *options)
{
    d->options = options;
    if (!d->options->json) {
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
static size_t begin_line(const display *d, const voice *v, int64_t ms, char *line, size_t size)
{
    int n = 0;
    if (d->options->times) {
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
static void show_segments(display *d, voice *v)
{
    char *line = d->line;
    wnpu_segment g;
    for (; wnpu_get_segment(v->session, v->n_segments, &g) == WNPU_OK; v->n_segments++) {
        size_t n = begin_line(d, v, g.t0_ms, line, sizeof d->line);
        (void)snprintf(line + n, sizeof d->line - n, "%s", g.text + (g.text[0] == ' '));
        d->failed |= file_add(&d->file, line) != 0;
        if (d->options->json) {
            event(v, "text", g.t0_ms, g.t1_ms);
            event_text(g.text_length, g.text);
        } else {
            terminal_print(&d->terminal, line);
        }
    }
}

static void show_command(display *d, const voice *v, const wnpu_live *live)
{
    wnpu_choice c = {.struct_size = sizeof c};
    const char *phrase = commands_choose(d->options->commands, live->utterance_t0_ms,
                                         live->utterance_t1_ms, &c);
    char line[512];
    size_t n = begin_line(d, v, live->utterance_t0_ms, line, sizeof line);
    (void)snprintf(line + n, sizeof line - n, "%s\t%.2f\t%.2f", phrase != NULL ? phrase : "-",
                   (double)c.best_logprob, (double)c.margin);
    d->failed |= file_add(&d->file, line) != 0;
    if (d->options->json) {
        event(v, "command", live->utterance_t0_ms, live->utterance_t1_ms);
        event_text(0, phrase != NULL ? phrase : "");
    } else {
        printf("%s\n", line);
    }
}

/* Losses as the ledger has them. Its last span may still grow, except at the end. */
static void show_losses(display *d, voice *v, int last)
{
    wnpu_ledger_span span, next;
    for (; wnpu_get_ledger_span(v->session, v->n_spans, &span) == WNPU_OK; v->n_spans++) {
        if (!last && wnpu_get_ledger_span(v->session, v->n_spans + 1, &next) != WNPU_OK) {
            break;
        }
        if (span.reason != WNPU_REASON_OVERRUN) {
            continue;
        }
        if (d->options->json) {
            event(v, "lost", span.t0_ms, span.t1_ms);
            event_text(0, "");
        } else {
            terminal_show(&d->terminal, "");
            (void)fflush(stdout);
            fprintf(stderr, "listen: %.1f s of sound from %.1f s on were lost\n",
                    (double)(span.t1_ms - span.t0_ms) / 1e3, (double)span.t0_ms / 1e3);
        }
    }
}

static void show_tentative(display *d, const voice *v, const wnpu_live *live)
{
    char *line = d->line;
    size_t n = 0, plain = 0;
    line[0] = '\0';
    if (live->text_length > 0) {
        n = begin_line(d, v, live->t0_ms, line, sizeof d->line);
        (void)snprintf(line + n, sizeof d->line - n, "%s", live->text + (live->text[0] == ' '));
    }
    if (live->confirmed_length > 0) {
        plain = n + live->confirmed_length - (live->text[0] == ' ');
    }
    terminal_show_behind(&d->terminal, plain, line);
}

/* Final words of a segment that is not complete yet. */
static void keep_confirmed(display *d, const voice *v, const wnpu_live *live)
{
    char line[FILE_LINE] = "";
    size_t length = live->confirmed_length, blank = length > 0 && live->text[0] == ' ';
    if (length > blank) {
        size_t n = begin_line(d, v, live->t0_ms, line, sizeof line);
        (void)snprintf(line + n, sizeof line - n, "%.*s", (int)(length - blank),
                       live->text + blank);
    }
    d->failed |= file_begin_line(&d->file, v->speaker, line) != 0;
}

static int flush(display *d)
{
    file_sync(&d->file);
    d->failed |= fflush(stdout) != 0 || ferror(stdout);
    return d->failed ? -1 : 0;
}

int show(display *d, voice *v, uint32_t events, int last)
{
    wnpu_live live = {.struct_size = sizeof live, .text = ""};
    (void)wnpu_get_live(v->session, &live);
    if (last && live.utterance_t0_ms >= 0 && live.utterance_t1_ms < 0) {
        live.utterance_t1_ms = live.audio_ms; /* the end of the sound ends an utterance, too */
        events |= WNPU_EVENT_UTTERANCE_END;
    }
    if (d->options->json && (events & WNPU_EVENT_SPEECH_START)) {
        event(v, "speech-start", live.utterance_t0_ms, live.audio_ms);
        event_text(0, "");
    }
    show_losses(d, v, 0);
    show_segments(d, v);
    if (d->options->json && (events & WNPU_EVENT_TENTATIVE)) {
        event(v, "tentative", live.t0_ms, live.t1_ms);
        printf(",\"final\":%lu", (unsigned long)live.confirmed_length);
        event_text(live.likely_length, live.text);
    }
    if (d->options->json && (events & WNPU_EVENT_UTTERANCE_END)) {
        event(v, "utterance-end", live.utterance_t0_ms, live.utterance_t1_ms);
        event_text(0, "");
    }
    if (d->options->commands != NULL && (events & WNPU_EVENT_UTTERANCE_END)) {
        show_command(d, v, &live);
    }
    if (!d->options->json && (v->speaker == 0 || (events & WNPU_EVENT_TENTATIVE))) {
        show_tentative(d, v, &live);
    }
    keep_confirmed(d, v, &live);
    return flush(d);
}

int show_end(display *d, voice *v)
{
    const wnpu_live none = {.text = ""};
    show_losses(d, v, 1);
    show_segments(d, v);
    if (!d->options->json) {
        terminal_show(&d->terminal, "");
    }
    keep_confirmed(d, v, &none);
    return flush(d);
}
