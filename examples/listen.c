/* listen.c - transcribes audio from standard input while it arrives:
 *     arecord -q -f S16_LE -r 16000 | listen [OPTION...] MODEL -
 * Final text is shown with tentative text behind it, dimmed. Ctrl-C ends the input. */
#include "commands.h"
#include "pipe.h"
#include "terminal.h"
#include "whisper_npu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: listen [OPTION...] MODEL -\n"
    "Transcribes WAV, or raw samples of 16 bits at 16 kHz, from standard input.\n"
    "  --json           one line of JSON for each event\n"
    "  --language LANG  the language spoken [detected]\n"
    "  --commands FILE  tells which of the phrases in FILE, one per line, each utterance was\n"
    "  --deadline MS    in this time, 1..3600000 [1000]\n";
static wnpu_session *session;
static size_t n_shown;                 /* segments */
static const char *commands;
static int json;

static void check(int good, const char *message)
{
    if (!good) {
        fprintf(stderr, "listen: %s\n", message);
        exit(1);
    }
}

static int64_t print(void *user, const void *data, size_t size)
{
    return (void)user, (int64_t)fwrite(data, 1, size, stdout);
}

static void event(const char *name, int64_t t0, int64_t t1, const char *text, size_t likely)
{
    printf("{\"event\":\"%s\",\"t0_ms\":%ld,\"t1_ms\":%ld,\"likely\":%lu,\"text\":", name, (long)t0,
           (long)t1, (unsigned long)likely);
    wnpu_write_json_string(text, strlen(text), print, NULL);
    printf("}\n");
}

static void show_command(const wnpu_live *live)
{
    wnpu_choice c = {.struct_size = sizeof c};
    const char *phrase = commands_choose(live->utterance_t0_ms, live->utterance_t1_ms, &c);
    if (json)
        event("command", live->utterance_t0_ms, live->utterance_t1_ms, phrase ? phrase : "", 0);
    else
        printf("%s\t%.2f\t%.2f\n", phrase ? phrase : "-", (double)c.best_logprob, (double)c.margin);
}

static void show(uint32_t events, int last)
{
    wnpu_live live = {.struct_size = sizeof live, .text = ""};
    wnpu_segment g;
    (void)wnpu_get_live(session, &live);
    if (last && live.utterance_t0_ms >= 0 && live.utterance_t1_ms < 0) {
        live.utterance_t1_ms = live.audio_ms; /* the end of the input ends an utterance, too */
        events |= WNPU_EVENT_UTTERANCE_END;
    }
    if (json && (events & WNPU_EVENT_SPEECH_START))
        event("speech-start", live.utterance_t0_ms, live.audio_ms, "", 0);
    for (; wnpu_get_segment(session, n_shown, &g) == WNPU_OK; n_shown++) {
        if (json)
            event("text", g.t0_ms, g.t1_ms, g.text, g.text_length);
        else
            terminal_print(g.text + (g.text[0] == ' '));
    }
    if (json && (events & WNPU_EVENT_TENTATIVE))
        event("tentative", live.t0_ms, live.t1_ms, live.text, live.likely_length);
    if (json && (events & WNPU_EVENT_UTTERANCE_END))
        event("utterance-end", live.utterance_t0_ms, live.utterance_t1_ms, "", 0);
    if (json && (events & WNPU_EVENT_OVERRUN))
        event("lost", live.audio_ms - live.overrun_ms, live.audio_ms, "", 0);
    if (commands != NULL && (events & WNPU_EVENT_UTTERANCE_END))
        show_command(&live);
    if (!json)
        terminal_show(live.text + (live.text[0] == ' '));
    check(fflush(stdout) == 0 && !ferror(stdout), "the output cannot be written");
}

int main(int argc, char **argv)
{
    static unsigned char samples[1 << 22];
    wnpu_model *model;
    wnpu_config config;
    wnpu_params params;
    wnpu_stream_options options;
    wnpu_audio audio;
    wnpu_error error = {0, ""};
    const char *language = "auto", *message = NULL;
    char *end;
    uint32_t events;
    int64_t n = 0, most, deadline = 1000;
    int i, status = WNPU_OK;
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return fputs(usage, stdout) < 0 || fflush(stdout) != 0;
    for (i = 1; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = 1;
        else if (strcmp(argv[i], "--language") == 0)
            language = argv[++i];
        else if (strcmp(argv[i], "--commands") == 0)
            commands = argv[++i];
        else if (strcmp(argv[i], "--deadline") == 0)
            check((deadline = strtol(argv[++i], &end, 10)) > 0 && deadline <= 3600000 &&
                  *end == '\0', "--deadline is a number in 1..3600000");
        else
            break;
    }
    check(argc - i == 2 && strcmp(argv[i + 1], "-") == 0, "wrong usage; see --help");
    check(wnpu_model_open(&model, argv[i], NULL, &error) == WNPU_OK, error.message);
    check(pipe_open(&audio, &error) == WNPU_OK, error.message);
    wnpu_config_init(&config, sizeof config);
    config.stream_bytes = sizeof samples;
    check(wnpu_session_open(&session, model, &config, NULL, 0, &error) == WNPU_OK, error.message);
    wnpu_params_init(&params, sizeof params);
    params.least_ms = 3000;            /* windows end with phrases */
    params.pause_ms = 700;
    check(wnpu_params_set(&params, "language", language, &error) == WNPU_OK, error.message);
    if (commands != NULL)
        message = commands_open(model, commands, (int)deadline, params.language);
    check(message == NULL, message);
    wnpu_stream_options_init(&options, sizeof options);
    options.format = audio.format;
    options.rate = audio.rate;
    options.channels = audio.channels;
    options.layout = audio.layout;
    options.detect_only = commands != NULL;
    check(wnpu_stream_begin(session, &params, &options) == WNPU_OK, wnpu_session_error(session));
    most = (int64_t)(sizeof samples / wnpu_frame_bytes(&audio));
    most = most < audio.rate / 5 ? most : audio.rate / 5;
    while (status == WNPU_OK && (n = audio.read(audio.user, samples, (size_t)most)) > 0) {
        (void)wnpu_stream_push(session, samples, (size_t)n);
        commands_keep(&audio, samples, (size_t)n);
        while (!(status = wnpu_stream_step(session, &events)) && (events & WNPU_EVENT_MORE))
            show(events, 0);
        show(events, 0);
    }
    show(0, 1);
    status = status == WNPU_OK ? wnpu_stream_finish(session) : status;
    show(0, 0);
    check(status >= 0 && n >= 0, n < 0 ? "the input cannot be read" : wnpu_session_error(session));
    commands_close();
    wnpu_session_close(session);
    wnpu_model_close(model);
    return 0;
}
