/* test_flat.c - a recording of hours, read in pieces and then live, on a stack of 256 KiB and with no
 * address space to spare: resident memory stays what it was after the first windows.
 *
 * TEST_MINUTES=N reads N minutes of a sound that repeats itself instead of 20. TEST_RECORDING=FILE
 * is a WAV file to repeat, TEST_MODEL=FILE a model that takes the toy's place. */
#define _GNU_SOURCE 1
#include "../lib/life.h"
#include <sys/resource.h>
#include <unistd.h>

#define STACK_KIB 256u
#define SLACK_KIB 64          /* of stacks that are touched later than at first */

static int limited;           /* this program runs on a small stack */

/* Kilobytes of address space and of memory in use; 0 if the system does not tell. */
static void usage(long *size, long *resident)
{
    FILE *file = fopen("/proc/self/statm", "r");
    *size = *resident = 0;
    if (file != NULL) {
        if (fscanf(file, "%ld %ld", size, resident) != 2) {
            *size = *resident = 0;
        }
        (void)fclose(file);
    }
    *size *= sysconf(_SC_PAGESIZE) / 1024;
    *resident *= sysconf(_SC_PAGESIZE) / 1024;
}

typedef struct source {
    const wnpu_audio *from;
    size_t frame;               /* bytes */
    uint64_t at, left;          /* frames of the recording, and until the end of all */
} source;

static int64_t read_on(void *user, void *buffer, size_t frames)
{
    source *s = user;
    uint64_t n = s->from->frames - s->at;
    n = n < 4801 ? n : 4801;    /* 0.3 s at 16 kHz, as a microphone might deliver */
    n = n < frames ? n : frames;
    n = n < s->left ? n : s->left;
    memcpy(buffer, (const char *)s->from->data + s->at * s->frame, (size_t)n * s->frame);
    s->at = (s->at + n) % s->from->frames;
    s->left -= n;
    return (int64_t)n;
}

typedef struct watch {
    int calls;
    long first, most;
    int64_t done_ms;
} watch;

static int on_progress(void *user, int64_t done_ms, int64_t total_ms)
{
    watch *w = user;
    long size, resident;
    (void)total_ms;
    w->done_ms = done_ms;
    if (++w->calls % 4 == 0) {
        usage(&size, &resident);
        w->first = w->first > 0 ? w->first : resident;
        w->most = resident > w->most ? resident : w->most;
    }
    return 0;
}

/* The address space gets no byte more. Sanitizers need room of their own. */
static void no_more_memory(void)
{
    struct rlimit limit;
    long size, resident;
    usage(&size, &resident);
    if (limited && size > 0) {
        limit.rlim_cur = limit.rlim_max = (rlim_t)size * 1024;
        T_CHECK(setrlimit(RLIMIT_AS, &limit) == 0, "no limit");
    }
}

static wnpu_model *open_model(void)
{
    const char *path = getenv("TEST_MODEL");
    wnpu_model *m = NULL;
    wnpu_error error;
    if (path == NULL) {
        return life_toy(7, NULL);
    }
    T_CHECK(wnpu_model_open(&m, path, NULL, &error) == WNPU_OK, "%s", error.message);
    return m;
}

/* A number of all that a writer writes. */
static int64_t add_up(void *user, const void *data, size_t size)
{
    uint64_t *sum = user;
    size_t i;
    for (i = 0; i < size; i++) {
        *sum = (*sum ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    }
    return (int64_t)size;
}

static uint64_t results_of(const wnpu_session *s)
{
    uint64_t sum = 14695981039346656037u;
    T_CHECK(wnpu_write(s, WNPU_FORMAT_JSON, add_up, &sum) == WNPU_OK, "writes");
    return sum;
}

/* Checks that the ledger has no gaps and ends at end_ms. */
static void check_ledger(const wnpu_session *s, int64_t end_ms)
{
    wnpu_ledger_span span;
    int64_t end = 0;
    size_t i;
    for (i = 0; wnpu_get_ledger_span(s, i, &span) == WNPU_OK; i++) {
        T_CHECK(span.t0_ms == end, "a gap at %ld", (long)end);
        end = span.t1_ms;
    }
    T_CHECK(end == end_ms, "the ledger ends at %ld, not %ld", (long)end, (long)end_ms);
}

/* The same hours from a ring of 2 s, and the same results. */
static void live_hours(wnpu_session *s, const wnpu_params *p, source *from, watch *w)
{
    static unsigned char samples[4801 * 8];
    wnpu_stream_options o;
    wnpu_live live;
    uint64_t want = results_of(s);
    int64_t n = 1, total = (int64_t)(from->left * 1000 / from->from->rate);
    long first = w->most;
    int status;
    wnpu_stream_options_init(&o, sizeof o);
    o.format = from->from->format;
    o.rate = from->from->rate;
    o.channels = from->from->channels;
    status = wnpu_stream_begin(s, p, &o);
    while (status == WNPU_OK && n > 0) {
        n = read_on(from, samples, sizeof samples / from->frame);
        T_CHECK(wnpu_stream_push(s, samples, (size_t)n) == (size_t)n, "the ring is full");
        status = wnpu_stream_step(s, NULL);
    }
    live.struct_size = sizeof live;
    T_CHECK(status == WNPU_OK && wnpu_get_live(s, &live) == WNPU_OK && live.overrun_ms == 0 &&
            live.committed_ms <= live.audio_ms && live.committed_ms > total - 31000, "step: %s",
            wnpu_session_error(s));
    T_CHECK(wnpu_stream_finish(s) == WNPU_OK, "finish: %s", wnpu_session_error(s));
    T_CHECK(w->most - first <= SLACK_KIB || !limited, "%ld KiB resident, live %ld", first, w->most);
    T_CHECK(results_of(s) == want, "live, the results differ");
    check_ledger(s, total);
}

static void hours(void)
{
    static char buffer[4096];
    const char *minutes = getenv("TEST_MINUTES"), *path = getenv("TEST_RECORDING");
    uint64_t n = (uint64_t)(minutes != NULL && atoi(minutes) > 0 ? atoi(minutes) : 20);
    wnpu_model *m = open_model();
    int toy = life_is_toy(m);
    float *x = life_sound(16000 * 61);
    wnpu_audio recording = life_audio(x, 16000 * 61), a;
    size_t file_size = 0;
    unsigned char *file = path != NULL ? life_load(path, &file_size) : NULL;
    wnpu_config c;
    wnpu_params p;
    wnpu_session *s = NULL;
    wnpu_memory memory;
    wnpu_error error;
    void *block = NULL;
    size_t size;
    source from;
    watch w;
    if (file != NULL) {
        wnpu_audio_init(&recording, sizeof recording);
        T_CHECK(wnpu_wav_open(&recording, file, file_size, &error) == WNPU_OK, "%s", error.message);
    }
    wnpu_config_init(&c, sizeof c);
    c.threads = 2;
    c.stream_bytes = 2 * recording.rate * recording.channels * sizeof(float);
    size = wnpu_session_size(m, &c, &error);
    T_CHECK(size > 0 && posix_memalign(&block, 4096, size) == 0, "%s", error.message);
    memset(block, 1, size); /* so that all of it is resident from the beginning */
    T_CHECK(wnpu_session_open(&s, m, &c, block, size, &error) == WNPU_OK, "%s", error.message);
    memset(&w, 0, sizeof w);
    life_mode_params(NULL, LIFE_GREEDY, toy, &p);
    p.words = 1;
    p.on_progress = on_progress;
    p.user = &w;
    a = recording;
    memset(&from, 0, sizeof from);
    from.from = &recording;
    from.left = n * 60 * a.rate;
    from.frame = file == NULL ? 4 : a.channels * (a.format == WNPU_SAMPLE_S16LE ? 2u : 4u);
    a.data = NULL;
    a.frames = 0;
    a.read = read_on;
    a.user = &from;
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    no_more_memory();
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(w.done_ms >= (int64_t)n * 60000 - 100, "only %ld ms", (long)w.done_ms);
    T_CHECK(w.most - w.first <= SLACK_KIB || !limited, "%ld KiB resident, later %ld", w.first,
            w.most);
    memory.struct_size = sizeof memory;
    (void)wnpu_get_memory(s, &memory);
    printf("  %llu minutes, %d windows: %ld KiB resident at first, at most %ld; %lu segments in "
           "%llu KiB\n", (unsigned long long)n, w.calls, w.first, w.most,
           (unsigned long)wnpu_segment_count(s), (unsigned long long)memory.results_used / 1024);
    from.at = 0;
    from.left = n * 60 * a.rate;
    live_hours(s, &p, &from, &w);
    wnpu_session_close(s);
    wnpu_model_close(m);
    free(block);
    free(file);
    free(x);
}

static void every_mode(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = life_session(m, 2);
    static life_sounds sounds;
    int mode;
    life_make_sounds(&sounds, 31, 0);
    for (mode = 0; mode < LIFE_MODES; mode++) {
        T_CHECK(life_run(&sounds, mode, 1, s) == WNPU_OK, "%s: %s", life_modes[mode],
                wnpu_session_error(s));
    }
    wnpu_session_close(s);
    life_free_sounds(&sounds);
    wnpu_model_close(m);
}

int main(int argc, char **argv)
{
    struct rlimit limit;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (argc < 2 && getenv("WNPU_EMULATOR") == NULL && getrlimit(RLIMIT_STACK, &limit) == 0) {
        char again[] = "again", *arguments[3];
        arguments[0] = argv[0];
        arguments[1] = again;
        arguments[2] = NULL;
        limit.rlim_cur = STACK_KIB * 1024u; /* threads' stacks as well: glibc takes it for those */
        if (setrlimit(RLIMIT_STACK, &limit) == 0) {
            (void)execv(argv[0], arguments);
        }
    }
    limited = argc == 2;
#else
    (void)limit;
    (void)argc;
    (void)argv;
#endif
    t_run("every mode on a small stack", every_mode);
    t_run("memory stays flat over a long recording, on a small stack", hours);
    return t_end();
}
