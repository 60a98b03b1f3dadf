/* bench - time of each stage beside what the machine can do at most, in one run.
 *
 *     bench --model MODEL [--threads N] [--isa NAME] [--json] [--commit TEXT] [RECORDING.wav ...]
 *     bench --model MODEL --share        a few lines to post, with one thread and with all
 *
 * It includes the library's source to time single stages. Times are medians. A fraction of what
 * the machine can do is the median of several, each with the peak measured right before. A fraction
 * of what was sustained is beside what the peak's own loop did on average in 0.1 s before and 0.1 s
 * after, with whatever else there was on the machine. A recording is transcribed whole, once to
 * warm up and once to measure. In the library's checkout the commit is git's, and the recording
 * examples/fetch.sh's demo if it is in the cache, unless others are named. */
#include "../../whisper_npu.c"
#include "../lib/machine.h"
#include "peak.h"
#include "steps.h"

#include <sys/resource.h>

typedef struct bench {
    const char *model_path, *commit;
    unsigned threads;
    size_t rounds;
    int isa, json, share;
    const char **recordings;
    int n_recordings;
    wnpu_model *model;
    wnpu_session *session;
    double open_ms, peak, bandwidth, log_mel_ms, encoder_ms, encoder_fraction, cross_ms;
    double token_ms, token_fraction, token_early_ms, token_late_ms, beams8, windows8;
    double windows8_fraction, encoder_macs, token_bytes;
    double sustained, sustained_bandwidth; /* beside everything else on the machine */
    double encoder_sustained, token_sustained; /* parts of these */
    double reading_ms, reading_windows8; /* a token, and 8 windows over one, that only read */
    double two_threads_ms;                 /* a token with two threads */
    double audio_s, total_s, voice_ms, voice_batch_ms, resident_mb;
    uint32_t tokens;
} bench;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench: %s: %s\n", what, why);
    exit(1);
}

static unsigned char *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    unsigned char *data = NULL;
    size_t room = 0, n;
    *size = 0;
    if (f == NULL) {
        die(path, strerror(errno));
    }
    do {
        room = room * 2 + 65536;
        data = realloc(data, room);
        if (data == NULL) {
            die(path, "out of memory");
        }
        n = fread(data + *size, 1, room - *size, f);
        *size += n;
    } while (*size == room);
    fclose(f);
    return data;
}

static wnpu_session *open_session(const bench *b, unsigned threads, unsigned batch)
{
    wnpu_session *session;
    wnpu_config config;
    wnpu_error error;
    wnpu_config_init(&config, sizeof config);
    config.threads = threads;
    config.isa = b->isa;
    config.batch = batch;
    if (wnpu_session_open(&session, b->model, &config, NULL, 0, &error) != WNPU_OK) {
        die("session", error.message);
    }
    return session;
}

static void open_all(bench *b)
{
    wnpu_model_config opening;
    wnpu_error error;
    double open[3], since;
    int i;
    wnpu_model_config_init(&opening, sizeof opening);
    opening.threads = b->threads;
    for (i = 0; i < 3; i++) {
        wnpu_model_close(b->model);
        since = os_now_ms();
        if (wnpu_model_open(&b->model, b->model_path, &opening, &error) != WNPU_OK) {
            die(b->model_path, error.message);
        }
        open[i] = os_now_ms() - since;
    }
    b->open_ms = median(open, 3);
    b->session = open_session(b, b->threads, 0);
}

enum { ROUNDS = 9 };

/* What the session's threads can do now: products, or reading so many bytes. */
static peak_rate rate_now(const bench *b, double bytes)
{
    return peak_all(b->session->isa, (size_t)bytes, b->session->pool.threads, 0.1);
}

/* The mean of what was sustained before and is sustained now. */
static double sustained(const bench *b, peak_rate before, double bytes)
{
    return (before.sustained + rate_now(b, bytes).sustained) / 2.0;
}

/* Stages of a window of noise: their time does not depend on what is said. */
static void bench_encoder(bench *b)
{
    ru_run *r = &b->session->run;
    ru_view view = wd_view(r, 0, ML_FRAMES);
    double mel[ROUNDS], encoder[ROUNDS], cross[ROUNDS], peak[ROUNDS], fraction[ROUNDS];
    double mean[ROUNDS], part[ROUNDS];
    uint32_t seed = 1;
    size_t i;
    for (i = 0; i < ML_SPAN; i++) {
        seed = seed * 1664525u + 1013904223u;
        r->audio.samples[i] = ((float)(seed >> 8) / 8388608.0f - 1.0f) * 0.1f;
    }
    wd_encode_window(r, &view);
    b->encoder_macs = encoder_macs(b->model);
    for (i = 0; i < b->rounds; i++) {
        double since;
        peak_rate before = rate_now(b, 0.0);
        since = os_now_ms();
        en_log_mel(&r->engine, r->audio.samples, ML_FRAMES);
        mel[i] = ru_elapsed_ms(&since);
        en_run(&r->engine);
        encoder[i] = ru_elapsed_ms(&since);
        en_cross(&r->engine, r->decoder.cross);
        cross[i] = ru_elapsed_ms(&since);
        peak[i] = before.best;
        mean[i] = sustained(b, before, 0.0);
        fraction[i] = b->encoder_macs / encoder[i] * 1e3 / peak[i];
        part[i] = b->encoder_macs / encoder[i] * 1e3 / mean[i];
    }
    b->peak = median(peak, b->rounds);
    b->log_mel_ms = median(mel, b->rounds);
    b->encoder_ms = median(encoder, b->rounds);
    b->encoder_fraction = median(fraction, b->rounds);
    b->sustained = median(mean, b->rounds);
    b->encoder_sustained = median(part, b->rounds);
    b->cross_ms = median(cross, b->rounds);
}

/* ---- a step that only reads ---- */

/* As kernels for few rows do, which ask for lines some way ahead. */
PEAK_WIDE static void read_all(const void *from, size_t bytes)
{
    volatile uint64_t sink = peak_lines(from, bytes / sizeof(peak_line), GM_AHEAD_STREAM);
    (void)sink;
}

static void read_panels(const int8_t *b, size_t pitch, size_t k4, size_t panels)
{
    size_t p;
    if (pitch == k4) { /* they follow each other */
        k4 *= panels;
        panels = 1;
    }
    for (p = 0; p < panels; p++) {
        read_all(b + p * pitch * GM_GROUP, k4 * GM_GROUP);
    }
}

static void read_tile(const gm_product *p) { read_panels(p->b, p->pitch, p->k4, p->panels); }

static void read_int4_tile(const gm_product *p)
{
    read_all(p->b, p->panels * p->k4 * GM_GROUP / 2);
}

static void read_no_outliers(const gm_product *p, const uint16_t *group, size_t n)
{
    (void)p, (void)group, (void)n;
}

static int read_attend(const op_block *b, int32_t *acc, const int8_t *values, size_t pitch)
{
    size_t panels = (b->n + 15) / 16, r;
    (void)acc;
    read_panels(b->keys->packed, b->keys->k4, b->keys->k4, panels);
    read_panels(values, pitch, panels * 4, OP_HEAD / 16);
    for (r = 0; r < b->rows; r++) {
        b->row[r].sum = 1.0f;
        b->row[r].keep = b->row[r].add = 0.0f;
    }
    return 1;
}

static void read_no_logits(float *out, size_t ldo, const int32_t *acc, size_t rows, size_t n,
                           const float *row_scale, const float *scale, const op_rest *rest,
                           const float *columns, size_t ldc)
{
    (void)out, (void)ldo, (void)acc, (void)rows, (void)n, (void)row_scale, (void)scale;
    (void)rest, (void)columns, (void)ldc;
}

static size_t read_none_above(uint32_t *index, size_t capacity, const float *x, size_t first,
                              size_t end, float least)
{
    (void)index, (void)capacity, (void)x, (void)first, (void)end, (void)least;
    return 0;
}

/* Kernels with which a step reads its weights and caches, in the same order and with the same
 * meetings of its threads, and multiplies nothing. What it computes is of no use. */
static void only_read(const en_engine *e, gm_kernels *gm, op_kernels *op)
{
    *gm = *e->gm;
    *op = *e->op;
    gm->tile = read_tile;
    gm->int4_tile = read_int4_tile;
    gm->outliers = read_no_outliers;
    op->attend = read_attend;
    op->complete = read_no_logits;
    op->above = read_none_above;
}

/* The median of steps from a position on. */
static double time_steps(de_decoder *d, size_t rows, size_t windows, size_t from)
{
    enum { STEPS = 41 };
    double time[STEPS], since;
    int32_t token[DE_ROWS];
    de_row row[DE_ROWS];
    size_t i;
    steps_start(token, rows);
    for (i = 0; i < STEPS; i++) {
        steps_rows(row, token, rows, windows, from + i);
        since = os_now_ms();
        de_step(d, row, rows);
        time[i] = os_now_ms() - since;
        steps_next(d, token, rows);
    }
    return median(time, STEPS);
}

/* The same with steps that only read. */
static double time_reading(de_decoder *d, size_t rows, size_t windows, size_t from)
{
    en_engine *e = d->e;
    const gm_kernels *gm = e->gm;
    const op_kernels *op = e->op;
    gm_kernels reading_gm;
    op_kernels reading_op;
    double ms;
    only_read(e, &reading_gm, &reading_op);
    e->gm = &reading_gm;
    e->op = &reading_op;
    ms = time_steps(d, rows, windows, from);
    e->gm = gm;
    e->op = op;
    return ms;
}

/* Steps of one row and of eight in turn, beside what memory gives. */
static void bench_steps(bench *b, de_decoder *d)
{
    double one[ROUNDS], beams[ROUNDS], windows[ROUNDS], band[ROUNDS], fraction[ROUNDS];
    double wide[ROUNDS], early[ROUNDS], late[ROUNDS], mean[ROUNDS], part[ROUNDS];
    double reading[ROUNDS], reading8[ROUNDS];
    double bytes8 = b->token_bytes + 7 * cross_bytes(b->model);
    size_t i;
    for (i = 0; i < ROUNDS; i++) {
        double eight;
        peak_rate before = rate_now(b, b->token_bytes);
        one[i] = time_steps(d, 1, 1, 80);
        band[i] = before.best;
        mean[i] = sustained(b, before, b->token_bytes);
        fraction[i] = b->token_bytes / one[i] * 1e3 / band[i];
        part[i] = b->token_bytes / one[i] * 1e3 / mean[i];
        reading[i] = time_reading(d, 1, 1, 80);
        beams[i] = time_steps(d, 8, 1, 80) / one[i];
        early[i] = time_steps(d, 1, 1, 4);
        late[i] = time_steps(d, 1, 1, 400) / early[i];
        wide[i] = rate_now(b, bytes8).best;
        eight = time_steps(d, 8, 8, 80);
        windows[i] = eight / one[i];
        wide[i] = bytes8 / eight * 1e3 / wide[i];
        reading8[i] = time_reading(d, 8, 8, 80) / reading[i];
    }
    b->token_ms = median(one, ROUNDS);
    b->bandwidth = median(band, ROUNDS);
    b->token_fraction = median(fraction, ROUNDS);
    b->sustained_bandwidth = median(mean, ROUNDS);
    b->token_sustained = median(part, ROUNDS);
    b->beams8 = median(beams, ROUNDS);
    b->windows8 = median(windows, ROUNDS);
    b->windows8_fraction = median(wide, ROUNDS);
    b->reading_ms = median(reading, ROUNDS);
    b->reading_windows8 = median(reading8, ROUNDS);
    b->token_early_ms = median(early, ROUNDS);
    b->token_late_ms = b->token_early_ms * median(late, ROUNDS);
}

static void bench_two_threads(bench *b)
{
    wnpu_session *session = open_session(b, 2, 0);
    double ms[ROUNDS];
    de_decoder d;
    void *memory = steps_open(&d, &session->run.engine, 1, 1);
    size_t i;
    if (memory == NULL) {
        die("decoder", "out of memory");
    }
    for (i = 0; i < ROUNDS; i++) {
        ms[i] = time_steps(&d, 1, 1, 80);
    }
    b->two_threads_ms = median(ms, ROUNDS);
    free(memory);
    wnpu_session_close(session);
}

static void bench_decoder(bench *b)
{
    de_decoder d;
    void *memory = steps_open(&d, &b->session->run.engine, 8, 8);
    if (memory == NULL) {
        die("decoder", "out of memory");
    }
    b->token_bytes = step_bytes(b->model, 100);
    bench_steps(b, &d);
    free(memory);
}

static void transcribe(wnpu_session *session, const char *path, int rounds, wnpu_stats *stats)
{
    size_t size;
    unsigned char *data = read_file(path, &size);
    wnpu_audio audio;
    wnpu_error error;
    wnpu_audio_init(&audio, sizeof audio);
    if (wnpu_wav_open(&audio, data, size, &error) != WNPU_OK) {
        die(path, error.message);
    }
    while (rounds-- > 0) {
        if (wnpu_transcribe(session, NULL, &audio) < 0) {
            die(path, wnpu_session_error(session));
        }
    }
    stats->struct_size = sizeof *stats;
    wnpu_get_stats(session, stats);
    free(data);
}

static void bench_recordings(bench *b)
{
    wnpu_stats stats;
    int i;
    for (i = 0; i < b->n_recordings; i++) {
        transcribe(b->session, b->recordings[i], 2, &stats);
        b->voice_ms += stats.voice_ms;
        b->audio_s += (double)stats.audio_ms / 1e3;
        b->total_s += stats.total_ms / 1e3;
        b->tokens += stats.tokens;
        if (!b->json) {
            printf("%s: %.1f s in %.2f s, %.1f times real time\n"
                   "    audio %.0f, log-mel %.0f, encoder %.0f, cross %.0f, decoder %.0f ms; "
                   "%u windows, %u tokens\n", b->recordings[i], (double)stats.audio_ms / 1e3,
                   stats.total_ms / 1e3, (double)stats.audio_ms / stats.total_ms,
                   stats.audio_in_ms, stats.log_mel_ms, stats.encoder_ms, stats.cross_ms,
                   stats.decoder_ms, stats.windows, stats.tokens);
        }
    }
}

/* The detector of windows that are decoded together runs ahead of them, and once as well. */
static void bench_detector(bench *b)
{
    wnpu_session *session = open_session(b, b->threads, 4);
    wnpu_stats stats;
    int i;
    for (i = 0; i < b->n_recordings; i++) {
        transcribe(session, b->recordings[i], 1, &stats);
        b->voice_batch_ms += stats.voice_ms;
    }
    wnpu_session_close(session);
}

/* The first line that a command prints in the library's checkout, or `otherwise`. */
static const char *line_of(const char *command, char *line, size_t size, const char *otherwise)
{
    FILE *f = access("whisper_npu.h", F_OK) == 0 ? popen(command, "r") : NULL;
    int found = f != NULL && fgets(line, (int)size, f) != NULL;
    if (f != NULL) {
        found = pclose(f) == 0 && found;
    }
    line[found ? strcspn(line, "\n") : 0] = '\0';
    return found ? line : otherwise;
}

/* What the command line did not say. */
static void defaults(bench *b)
{
    static char commit[100], recording[4096];
    if (b->commit == NULL) {
        b->commit = line_of("git rev-parse --short HEAD 2>/dev/null", commit, sizeof commit,
                            "unknown");
    }
    if (b->n_recordings == 0) {
        b->recordings[0] = line_of("examples/fetch.sh --offline demo 2>/dev/null", recording,
                                   sizeof recording, b->share ? "examples/jfk.wav" : NULL);
        b->n_recordings = b->recordings[0] != NULL;
    }
}

static double resident_mb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024.0;
}

static void print_json(const bench *b, const char *machine)
{
    char realtime[40] = "null";
    if (b->total_s > 0) {
        snprintf(realtime, sizeof realtime, "%.2f", b->audio_s / b->total_s);
    }
    printf("{\"machine\": \"%s\", \"commit\": \"%s\", \"model\": \"%s\", \"isa\": \"%s\", "
           "\"threads\": %u,\n \"peak_gmac_s\": %.2f, \"bandwidth_gb_s\": %.2f, "
           "\"log_mel_ms\": %.3f, \"encoder_ms\": %.3f, \"encoder_fraction_of_peak\": %.4f,\n "
           "\"cross_ms\": %.3f, \"decoder_ms_per_token\": %.4f, "
           "\"decoder_ms_at_400_over_4\": %.3f, \"decoder_fraction_of_bandwidth\": %.4f, "
           "\"decoder_beams8_over_1\": %.3f, \"decoder_windows8_over_1\": %.3f, "
           "\"decoder_windows8_fraction_of_bandwidth\": %.4f,\n "
           "\"sustained_gmac_s\": %.2f, \"encoder_fraction_of_sustained\": %.4f, "
           "\"sustained_gb_s\": %.2f, \"decoder_fraction_of_sustained\": %.4f,\n "
           "\"decoder_reading_ms\": %.4f, \"decoder_reading_windows8_over_1\": %.3f, "
           "\"decoder_ms_two_threads\": %.4f,\n \"detector_ms\": %.3f, "
           "\"detector_ms_batch4\": %.3f,\n "
           "\"realtime_factor\": %s, \"rss_mb\": %.1f, \"model_open_ms\": %.2f}\n",
           machine, b->commit, b->model->name, wnpu_isa_name(b->session->isa),
           b->session->pool.threads, b->peak / 1e9, b->bandwidth / 1e9, b->log_mel_ms,
           b->encoder_ms, b->encoder_fraction, b->cross_ms, b->token_ms,
           b->token_late_ms / b->token_early_ms, b->token_fraction, b->beams8, b->windows8,
           b->windows8_fraction, b->sustained / 1e9, b->encoder_sustained,
           b->sustained_bandwidth / 1e9, b->token_sustained, b->reading_ms, b->reading_windows8,
           b->two_threads_ms, b->voice_ms, b->voice_batch_ms, realtime, b->resident_mb, b->open_ms);
}

static void print_table(const bench *b, const char *machine)
{
    double rate = b->encoder_macs / b->encoder_ms * 1e3;
    double read = b->token_bytes / b->token_ms * 1e3;
    printf("\n%s\ncommit %s, model %s, %s, %u threads\n\n", machine, b->commit, b->model->name,
           wnpu_isa_name(b->session->isa), b->session->pool.threads);
    printf("int8 peak of the machine        %8.1f GMAC/s, %.1f sustained\n", b->peak / 1e9,
           b->sustained / 1e9);
    printf("bandwidth for %3.0f MB            %8.1f GB/s, %.1f sustained\n", b->token_bytes / 1e6,
           b->bandwidth / 1e9, b->sustained_bandwidth / 1e9);
    printf("log-mel of 30 s                 %8.2f ms\n", b->log_mel_ms);
    printf("encoder of 30 s                 %8.2f ms   %.1f GMAC, %.1f GMAC/s, %.0f %% of peak, "
           "%.0f %% of what was sustained\n",
           b->encoder_ms, b->encoder_macs / 1e9, rate / 1e9, 100 * b->encoder_fraction,
           100 * b->encoder_sustained);
    printf("cross-attention keys and values %8.2f ms\n", b->cross_ms);
    printf("decoder, one token              %8.3f ms   %.1f GB/s, %.0f %% of bandwidth, "
           "%.0f %% of what was sustained\n",
           b->token_ms, read / 1e9, 100 * b->token_fraction, 100 * b->token_sustained);
    printf("    if it only reads            %8.3f ms   %.1f GB/s\n", b->reading_ms,
           b->token_bytes / b->reading_ms * 1e-6);
    printf("    with two threads            %8.3f ms\n", b->two_threads_ms);
    printf("    at positions 4 and 400      %8.3f ms and %.3f ms\n", b->token_early_ms,
           b->token_late_ms);
    printf("a step for 8 beams over one     %8.2f\n", b->beams8);
    printf("a step for 8 windows over one   %8.2f      %.0f %% of bandwidth, %.2f if both only "
           "read\n", b->windows8, 100 * b->windows8_fraction, b->reading_windows8);
    if (b->total_s > 0) {
        printf("recordings                      %8.1f times real time\n", b->audio_s / b->total_s);
        printf("voice detector over them        %8.2f ms, %.2f with --batch 4\n", b->voice_ms,
               b->voice_batch_ms);
    }
    printf("opening the model               %8.1f ms\n", b->open_ms);
    printf("resident at most                %8.1f MB\n", b->resident_mb);
}

/* ---- a few lines to post ---- */

static void share_threads(const bench *all, unsigned threads)
{
    bench b = *all;
    wnpu_stats stats;
    de_decoder d;
    double ms[ROUNDS];
    void *memory;
    size_t i;
    b.session = open_session(&b, threads, 0);
    transcribe(b.session, b.recordings[0], 2, &stats);
    bench_encoder(&b);
    memory = steps_open(&d, &b.session->run.engine, 1, 1);
    if (memory == NULL) {
        die("decoder", "out of memory");
    }
    for (i = 0; i < b.rounds; i++) {
        ms[i] = time_steps(&d, 1, 1, 80);
    }
    free(memory);
    b.bandwidth = rate_now(&b, step_bytes(b.model, 100)).best;
    printf("%u thread%s: %.1f s of speech in %.2f s, %.1f times real time (%u tokens)\n"
           "    log-mel %.1f, encoder %.1f, cross %.1f, token %.3f ms; %.1f GMAC/s, %.1f GB/s\n",
           threads, threads == 1 ? "" : "s", (double)stats.audio_ms / 1e3, stats.total_ms / 1e3,
           (double)stats.audio_ms / stats.total_ms, stats.tokens, b.log_mel_ms, b.encoder_ms,
           b.cross_ms, median(ms, b.rounds), b.peak / 1e9, b.bandwidth / 1e9);
    wnpu_session_close(b.session);
}

/* At most ten lines. */
static void share(const bench *b, const char *machine)
{
    uint32_t version = wnpu_version();
    printf("whisper_npu %u.%u.%u, commit %s, model %s, %s\n%s, %.2f GHz\n", version / 10000,
           version / 100 % 100, version % 100, b->commit, b->model->name,
           wnpu_isa_name(b->session->isa), machine, machine_ghz());
    share_threads(b, 1);
    if (b->session->pool.threads > 1) {
        share_threads(b, b->session->pool.threads);
    }
    printf("at most %.0f MB resident\n", resident_mb());
}

static void bench_all(bench *b, const char *machine)
{
    bench_recordings(b);
    bench_encoder(b);
    b->resident_mb = resident_mb(); /* what follows has caches for several windows */
    bench_detector(b);
    bench_decoder(b);
    bench_two_threads(b);
    if (b->json) {
        print_json(b, machine);
    } else {
        print_table(b, machine);
    }
}

int main(int argc, char **argv)
{
    static bench b;
    char machine[300];
    int i;
    b.recordings = calloc((size_t)argc + 1, sizeof *b.recordings);
    for (i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--json") == 0) {
            b.json = 1;
        } else if (strcmp(argv[i], "--share") == 0) {
            b.share = 1;
        } else if (argv[i][0] != '-') {
            b.recordings[b.n_recordings++] = argv[i];
        } else {
            i++;
            if (strcmp(argv[i - 1], "--model") == 0) {
                b.model_path = value;
            } else if (strcmp(argv[i - 1], "--threads") == 0) {
                b.threads = (unsigned)strtoul(value, NULL, 10);
            } else if (strcmp(argv[i - 1], "--isa") == 0) {
                b.isa = wnpu_isa_from_name(value);
            } else if (strcmp(argv[i - 1], "--commit") == 0) {
                b.commit = value;
            } else {
                die(argv[i - 1], "unknown option; see the top of tests/bench/bench.c");
            }
        }
    }
    if (b.model_path == NULL) {
        die("--model", "missing");
    }
    defaults(&b);
    b.rounds = b.share ? 3 : ROUNDS;
    open_all(&b);
    machine_name(machine, sizeof machine);
    if (b.share) {
        share(&b, machine);
    } else {
        bench_all(&b, machine);
    }
    wnpu_session_close(b.session);
    wnpu_model_close(b.model);
    free(b.recordings);
    return 0;
}
