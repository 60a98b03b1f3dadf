/* Behaviour of sessions on a toy model: the public header only, apart from the two tests at the
 * end that look at the decoder's caches. */
#include "../lib/life.h"
#include "../lib/voicelike.h"
#include <pthread.h>
#include <signal.h>

/* A toy talks nonsense for ever: few tokens a window keep the tests short, and no gate would ever let
 * it pass. */
static wnpu_params short_params(void)
{
    wnpu_params p;
    wnpu_params_init(&p, sizeof p);
    p.beam = 1;
    p.max_tokens = 12;
    p.no_speech_threshold = 2;
    p.vad = 0; /* voice.c has its tests */
    p.temperature_step = 0;
    return p;
}

static wnpu_session *open_on(const wnpu_model *m, unsigned threads, int isa, int compute)
{
    wnpu_config c;
    wnpu_config_init(&c, sizeof c);
    c.threads = threads;
    c.isa = isa;
    c.compute = compute;
    return life_open(m, &c);
}

/* Encodes `content` frames of what stands in the window. */
static void encode_window(ru_run *r, size_t content)
{
    ru_view view = wd_view(r, 0, content);
    wd_encode_window(r, &view);
}

/* The same bytes from every instruction set and number of threads. With three threads `before`, if
 * not NULL, is transcribed first. */
static void same_everywhere(const wnpu_model *m, int compute, const wnpu_params *p,
                            const wnpu_audio *a, const wnpu_audio *before)
{
    static const unsigned threads[] = {1, 2, 3, 8};
    life_bytes first = {NULL, 0};
    int isa;
    size_t k;
    for (isa = WNPU_ISA_SCALAR; isa < CP_ISAS; isa++) {
        for (k = 0; k < 4 && wnpu_isa_available((wnpu_isa)isa); k++) {
            wnpu_session *s = open_on(m, threads[k], isa, compute);
            life_bytes t;
            if (before != NULL && threads[k] == 3) {
                wnpu_transcribe(s, p, a);
                wnpu_transcribe(s, p, before);
            }
            T_CHECK(wnpu_transcribe(s, p, a) == WNPU_OK, "%s", wnpu_session_error(s));
            T_CHECK(wnpu_segment_count(s) > 0, "the toy says something");
            t = life_written(s, WNPU_FORMAT_JSON);
            T_CHECK(!p->words || strstr(t.bytes, "\"words\": [") != NULL, "JSON has no words");
            if (first.bytes == NULL) {
                first = t;
            } else {
                T_CHECK(life_alike(t, first), "compute %d, %s, %u threads differs", compute,
                        wnpu_isa_name((wnpu_isa)isa), threads[k]);
                free(t.bytes);
            }
            wnpu_session_close(s);
        }
    }
    free(first.bytes);
}

static void session_one_answer(void)
{
    wnpu_model *m = life_float_toy(7);
    size_t n = 16000 * 50;
    float *x = life_sound(n);
    wnpu_audio a = life_audio(x, n);
    wnpu_params p = short_params();
    same_everywhere(m, WNPU_COMPUTE_INT8, &p, &a, NULL);
    same_everywhere(m, WNPU_COMPUTE_FLOAT, &p, &a, NULL);
    free(x);
    wnpu_model_close(m);
}

/* Before any other session has asked for AMX. */
static void permission(void)
{
#ifdef WNPU_AMX
    static char small[6000]; /* the system wants room for tiles on it */
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = NULL;
    wnpu_config c;
    wnpu_error error;
    stack_t stack, before;
    wnpu_config_init(&c, sizeof c);
    c.isa = WNPU_ISA_AMX;
    if (!wnpu_isa_available(WNPU_ISA_AMX)) {
        T_CHECK(wnpu_session_open(&s, m, &c, NULL, 0, &error) == WNPU_E_UNSUPPORTED && s == NULL &&
                strstr(error.message, "no amx") != NULL, "%s", error.message);
    } else if (cp_permitted(WNPU_ISA_AMX)) {
        t_skip("somebody asked before");
    } else {
        s = open_on(m, 1, WNPU_ISA_AUTO, WNPU_COMPUTE_INT8);
        T_CHECK(s->isa != WNPU_ISA_AMX, "auto takes AMX without permission");
        wnpu_session_close(s);
        T_CHECK(wnpu_session_size(m, &c, &error) > 0, "%s", error.message);
        T_CHECK(wnpu_self_test(NULL, &error) == WNPU_OK, "%s", error.message);
        T_CHECK(!cp_permitted(WNPU_ISA_AMX), "asked, but nobody named it");
        memset(&stack, 0, sizeof stack);
        stack.ss_sp = small;
        stack.ss_size = sizeof small;
        T_CHECK(sigaltstack(&stack, &before) == 0, "no alternate stack");
        T_CHECK(wnpu_session_open(&s, m, &c, NULL, 0, &error) == WNPU_E_UNSUPPORTED && s == NULL &&
                strstr(error.message, "alternate signal stack") != NULL, "%s", error.message);
        sigaltstack(&before, NULL);
        wnpu_session_close(open_on(m, 1, WNPU_ISA_AMX, WNPU_COMPUTE_INT8));
        T_CHECK(cp_permitted(WNPU_ISA_AMX), "no permission");
        s = open_on(m, 1, WNPU_ISA_AUTO, WNPU_COMPUTE_INT8);
        T_CHECK(s->isa == WNPU_ISA_AMX, "auto does not take AMX with permission");
        wnpu_session_close(s);
        T_CHECK(wnpu_self_test(NULL, &error) == WNPU_OK, "%s", error.message);
    }
    wnpu_model_close(m);
#else
    t_skip("this compiler or system has no AMX");
#endif
}

static void session_a_b_a(void)
{
    wnpu_model *m = life_float_toy(7);
    size_t n = 16000 * 35;
    float *x = life_sound(n);
    wnpu_audio a = life_audio(x, n), b = life_audio(x + 5000, n / 3);
    wnpu_session *s = open_on(m, 2, 0, 0);
    wnpu_params p = short_params();
    life_bytes t1, t2, t3;
    p.condition_on_previous = 1;
    wnpu_transcribe(s, &p, &a);
    t1 = life_written(s, WNPU_FORMAT_JSON);
    wnpu_transcribe(s, &p, &b);
    t2 = life_written(s, WNPU_FORMAT_JSON);
    wnpu_transcribe(s, &p, &a);
    t3 = life_written(s, WNPU_FORMAT_JSON);
    T_CHECK(life_alike(t1, t3), "the same run, another answer");
    T_CHECK(!life_alike(t1, t2), "the other run is another");
    T_CHECK(wnpu_reset(s) == WNPU_OK && wnpu_segment_count(s) == 0, "reset forgets");
    free(t1.bytes);
    free(t2.bytes);
    free(t3.bytes);
    wnpu_session_close(s);
    free(x);
    wnpu_model_close(m);
}

typedef struct session_source {
    const float *x;
    size_t n, at, step, fail_at;
} session_source;

static int64_t session_pull(void *user, void *buffer, size_t max_frames)
{
    session_source *s = user;
    size_t n = s->n - s->at < max_frames ? s->n - s->at : max_frames;
    n = n < s->step ? n : s->step;
    if (s->fail_at > 0 && s->at >= s->fail_at) {
        return -5;
    }
    memcpy(buffer, s->x + s->at, n * sizeof(float));
    s->at += n;
    return (int64_t)n;
}

static void reader(void)
{
    wnpu_model *m = life_float_toy(7);
    size_t n = 16000 * 70;
    float *x = life_sound(n);
    wnpu_audio a = life_audio(x, n), b;
    wnpu_session *s = open_on(m, 1, 0, 0);
    wnpu_params p = short_params();
    session_source src = {x, n, 0, 777, 0};
    life_bytes t1, t2;
    size_t whole;
    wnpu_transcribe(s, &p, &a);
    t1 = life_written(s, WNPU_FORMAT_JSON);
    whole = wnpu_segment_count(s);
    wnpu_audio_init(&b, sizeof b);
    b.read = session_pull;
    b.user = &src;
    T_CHECK(wnpu_transcribe(s, &p, &b) == WNPU_OK, "%s", wnpu_session_error(s));
    t2 = life_written(s, WNPU_FORMAT_JSON);
    T_CHECK(life_alike(t1, t2), "a reader gives another answer");
    src.at = 0;
    src.fail_at = 16000 * 61;
    T_CHECK(wnpu_transcribe(s, &p, &b) == WNPU_E_IO, "a failing reader");
    T_CHECK(wnpu_session_error(s)[0] != '\0', "says why");
    T_CHECK(wnpu_segment_count(s) > 0 && wnpu_segment_count(s) <= whole, "keeps what it had");
    free(t1.bytes);
    free(t2.bytes);
    wnpu_session_close(s);
    free(x);
    wnpu_model_close(m);
}

static void session_any_length(void)
{
    static const size_t lengths[] = {0, 1, 159, 160, 161, 320, 400, 15999, 16000, 479999, 480000,
                                     480001, 480160};
    wnpu_model *m = life_float_toy(7);
    float *x = life_sound(500000);
    wnpu_session *s = open_on(m, 2, 0, 0);
    size_t k, i;
    for (k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
        wnpu_audio a = life_audio(x, lengths[k]);
        wnpu_params p = short_params();
        int64_t before = 0, end = (int64_t)(lengths[k] / 16);
        wnpu_segment g;
        wnpu_stats stats;
        T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%lu samples: %s",
                (unsigned long)lengths[k], wnpu_session_error(s));
        for (i = 0; wnpu_get_segment(s, i, &g) == WNPU_OK; i++) {
            size_t j;
            T_CHECK(g.t0_ms >= before && g.t1_ms >= g.t0_ms && g.t1_ms <= end,
                    "%lu samples: segment %lu at %ld..%ld", (unsigned long)lengths[k],
                    (unsigned long)i, (long)g.t0_ms, (long)g.t1_ms);
            before = g.t1_ms;
            T_CHECK(g.text[g.text_length] == '\0' && strlen(g.text) == g.text_length, "text");
            for (j = 0; j < g.n_tokens; j++) {
                T_CHECK(g.tokens[j].t0_ms >= g.t0_ms && g.tokens[j].t1_ms <= g.t1_ms &&
                        g.tokens[j].probability >= 0 && g.tokens[j].probability <= 1, "token");
            }
        }
        stats.struct_size = sizeof stats;
        wnpu_get_stats(s, &stats);
        T_CHECK(stats.audio_ms == end, "%ld ms of %ld", (long)stats.audio_ms, (long)end);
        T_CHECK((stats.windows > 0) == (lengths[k] >= 160), "%u windows", stats.windows);
    }
    wnpu_session_close(s);
    free(x);
    wnpu_model_close(m);
}

/* ---- memory ---- */

static void session_memory(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_config c;
    wnpu_session *s;
    wnpu_error error;
    life_counter l;
    size_t size, n = 16000 * 31;
    float *x = life_sound(n);
    wnpu_audio a = life_audio(x, n);
    wnpu_params p = short_params();
    unsigned char *block;
    life_bytes t1, t2;
    life_count(&l);
    wnpu_config_init(&c, sizeof c);
    c.allocator = &l.allocator;
    c.threads = 2;
    c.result_bytes = 1 << 20;
    size = wnpu_session_size(m, &c, &error);
    T_CHECK(size > 0 && size == wnpu_session_size(m, &c, NULL), "size");
    s = life_open(m, &c);
    T_CHECK(l.calls == 1 && l.bytes == size, "one allocation of %lu bytes, promised %lu",
            (unsigned long)l.bytes, (unsigned long)size);
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "runs");
    T_CHECK(l.calls == 1, "nothing is allocated later");
    t1 = life_written(s, WNPU_FORMAT_JSON);
    wnpu_session_close(s);
    T_CHECK(l.bytes == 0, "all is given back");
    T_CHECK(l.left == 0, "%lu bytes were not wiped", (unsigned long)l.left);
    T_CHECK(l.fresh > c.result_bytes / 2, "caches and results were written to that greedy search "
            "does not need: %lu bytes were not", (unsigned long)l.fresh);
    l.fail_at = l.calls + 1;
    T_CHECK(wnpu_session_open(&s, m, &c, NULL, 0, &error) == WNPU_E_MEMORY && s == NULL,
            "a failing allocator");
    block = life_alloc(&l, size + 64, 64);
    memset(block + size, 0x77, 64);
    T_CHECK(wnpu_session_open(&s, m, &c, block, size - 1, &error) == WNPU_E_MEMORY, "too small");
    T_CHECK(wnpu_session_open(&s, m, &c, block + 8, size, &error) == WNPU_E_MEMORY, "unaligned");
    T_CHECK(wnpu_session_open(&s, m, &c, block, size, &error) == WNPU_OK, "supplied memory");
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "runs in it");
    t2 = life_written(s, WNPU_FORMAT_JSON);
    T_CHECK(life_alike(t1, t2), "the same answer");
    wnpu_session_close(s);
    for (n = 0; n < 64; n++) {
        T_CHECK(block[size + n] == 0x77, "wrote beyond the block");
    }
    for (n = 0; n < size; n++) {
        if (block[n] != 0) {
            T_CHECK(0, "byte %lu was not wiped", (unsigned long)n);
            break;
        }
    }
    free(block);
    free(t1.bytes);
    free(t2.bytes);
    free(x);
    wnpu_model_close(m);
}

/* What a run leaves behind depends on what it was asked for. Memory that was never written to is
 * 0xa5 still, all other memory has to be zero at the end. */
static void wiped(void)
{
    wnpu_model *m = life_float_toy(7);
    size_t n = 16000 * 70;
    float *x = voicelike(n, 1);
    wnpu_audio a = life_audio(x, n);
    int i;
    for (i = 0; i < 16; i++) {
        wnpu_params p = short_params();
        wnpu_session *s;
        wnpu_config c;
        life_counter l;
        life_count(&l);
        wnpu_config_init(&c, sizeof c);
        c.allocator = &l.allocator;
        c.threads = 2;
        c.compute = i & 1 ? WNPU_COMPUTE_FLOAT : WNPU_COMPUTE_INT8;
        c.batch = i & 2 ? 3 : 0;
        p.vad = 1;
        p.max_tokens = 60;
        p.words = i >> 2 & 1;
        p.beam = i & 8 ? 4 : 1;
        T_CHECK(wnpu_session_open(&s, m, &c, NULL, 0, NULL) == WNPU_OK, "opens");
        T_CHECK(wnpu_transcribe(s, &p, &a) >= WNPU_OK, "%s", wnpu_session_error(s));
        if (i % 3 == 0) {
            T_CHECK(wnpu_reset(s) == WNPU_OK, "reset");
        }
        wnpu_session_close(s);
        T_CHECK(l.left == 0, "run %d: %lu bytes were not wiped", i, (unsigned long)l.left);
    }
    free(x);
    wnpu_model_close(m);
}

static void session_full_store(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_config c;
    wnpu_session *s;
    wnpu_params p = short_params();
    size_t n = 16000 * 900;
    float *x = life_sound(n);
    wnpu_audio a = life_audio(x, n);
    int status;
    wnpu_config_init(&c, sizeof c);
    c.result_bytes = 64 << 10;
    s = life_open(m, &c);
    p.max_tokens = 224;
    p.timestamps = 0; /* text to the last token, however often it repeats itself */
    p.stop_loops = 0;
    p.temperature_step = 0.0f;
    status = wnpu_transcribe(s, &p, &a);
    if (status == WNPU_E_FULL) {
        T_CHECK(strstr(wnpu_session_error(s), "result_bytes") != NULL, "names the cure");
    }
    T_CHECK(status == WNPU_E_FULL, "status %d", status);
    T_CHECK(wnpu_segment_count(s) > 0, "keeps what fits");
    wnpu_session_close(s);
    free(x);
    wnpu_model_close(m);
}

/* ---- callbacks and cancelling ---- */

typedef struct watch {
    int segments, progress, stop_after;
    int64_t last;
    wnpu_session *session;
} watch;

static int session_on_segment(void *user, const wnpu_segment *segment)
{
    watch *w = user;
    w->segments++;
    (void)segment;
    return w->stop_after > 0 && w->segments >= w->stop_after;
}

static int on_progress(void *user, int64_t done, int64_t total)
{
    watch *w = user;
    w->progress++;
    T_CHECK(done >= w->last && done <= total, "progress %ld after %ld", (long)done, (long)w->last);
    w->last = done;
    return 0;
}

static void *canceller(void *user)
{
    watch *w = user;
    int i;
    for (i = 0; i < 300; i++) {
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
        wnpu_cancel(w->session);
    }
    return NULL;
}

static void callbacks(void)
{
    wnpu_model *m = life_float_toy(7);
    size_t n = 16000 * 95;
    float *x = life_sound(n);
    wnpu_audio a = life_audio(x, n);
    wnpu_session *s = open_on(m, 2, 0, 0);
    wnpu_params p = short_params();
    watch w;
    pthread_t thread;
    life_bytes t1, t2;
    int i, cancelled = 0;
    memset(&w, 0, sizeof w);
    p.on_segment = session_on_segment;
    p.on_progress = on_progress;
    p.user = &w;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "runs");
    T_CHECK(w.segments == (int)wnpu_segment_count(s) && w.segments > 1, "each segment once");
    T_CHECK(w.progress >= 3 && w.last == 95000, "progress to the end: %ld", (long)w.last);
    t1 = life_written(s, WNPU_FORMAT_JSON);
    memset(&w, 0, sizeof w);
    w.stop_after = 1;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_E_CANCELLED, "a callback stops the run");
    T_CHECK(wnpu_segment_count(s) == 1, "and its segment is kept");
    memset(&w, 0, sizeof w);
    w.session = s;
    pthread_create(&thread, NULL, canceller, &w);
    for (i = 0; i < 5; i++) {
        w.last = 0;
        cancelled += wnpu_transcribe(s, &p, &a) == WNPU_E_CANCELLED;
    }
    pthread_join(thread, NULL);
    T_CHECK(cancelled > 0, "cancelling from another thread stops runs");
    memset(&w, 0, sizeof w);
    wnpu_cancel(s); /* no run in progress: nothing happens */
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "the session stays usable");
    t2 = life_written(s, WNPU_FORMAT_JSON);
    T_CHECK(life_alike(t1, t2), "with the same answer");
    free(t1.bytes);
    free(t2.bytes);
    wnpu_session_close(s);
    free(x);
    wnpu_model_close(m);
}

/* Results can be written after a run that was refused before it had a language, too. */
static void writes_nothing(wnpu_session *s)
{
    int format;
    for (format = WNPU_FORMAT_TXT; wnpu_format_name(format) != NULL; format++) {
        life_bytes t = life_written(s, (wnpu_format)format);
        free(t.bytes);
    }
    T_CHECK(wnpu_segment_count(s) == 0, "segments");
}

static void refused_runs(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = open_on(m, 1, 0, 0);
    float x[160] = {0};
    wnpu_audio a = life_audio(x, 160);
    wnpu_params p;
    wnpu_choice choice;
    memset(&choice, 0, sizeof choice);
    choice.struct_size = (uint32_t)sizeof choice;
    wnpu_params_init(&p, sizeof p);
    p.beam = 1;
    p.struct_size = 2;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_E_VERSION, "struct_size 2");
    writes_nothing(s);
    T_CHECK(wnpu_detect_language(s, NULL, NULL, 0) == WNPU_E_ARGUMENT, "no audio");
    writes_nothing(s);
    T_CHECK(wnpu_choose(s, NULL, &a, NULL, 0, &choice) == WNPU_E_ARGUMENT, "no phrases");
    writes_nothing(s);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

static void bad_arguments(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = open_on(m, 1, 0, 0), *none;
    float x[160] = {0};
    wnpu_audio a = life_audio(x, 160);
    wnpu_params p;
    wnpu_config c;
    wnpu_error error;
    int32_t bad_token = 1 << 30;
    char long_prompt[9000];
#define REFUSED(change)                                                       \
    wnpu_params_init(&p, sizeof p);                                           \
    change;                                                                   \
    T_CHECK(wnpu_transcribe(s, &p, &a) < 0 && wnpu_session_error(s)[0], #change)
    REFUSED(p.task = 2);
    REFUSED(p.language = 100);
    REFUSED(p.language = -2);
    REFUSED(p.max_tokens = 225);
    REFUSED(p.max_tokens = -1);
    REFUSED(p.max_initial_timestamp_ms = 30001);
    REFUSED(p.n_suppress = 1);
    REFUSED(p.suppress = &bad_token; p.n_suppress = 1);
    REFUSED(p.struct_size = 2);
    memset(long_prompt, 'x', sizeof long_prompt - 1);
    long_prompt[sizeof long_prompt - 1] = '\0';
    REFUSED(p.initial_prompt = long_prompt);
#define NO_SESSION(change)                                                    \
    wnpu_config_init(&c, sizeof c);                                           \
    change;                                                                   \
    T_CHECK(wnpu_session_open(&none, m, &c, NULL, 0, &error) < 0 && none == NULL && \
            error.message[0] && wnpu_session_size(m, &c, &error) == 0, #change)
    NO_SESSION(c.require_accel = 1);
    NO_SESSION(c.struct_size = 0);
#define OUTSIDE(field, value, range)                                          \
    NO_SESSION(c.field = value);                                              \
    T_CHECK(error.code == WNPU_E_ARGUMENT && strcmp(error.message, #field " " #value \
            " is outside " range) == 0, "%s", error.message)
    OUTSIDE(threads, 65, "0..64");
    OUTSIDE(compute, 2, "0..1");
    OUTSIDE(isa, 77, "0..10");
    OUTSIDE(isa, -1, "0..10");
    OUTSIDE(result_bytes, 1, "65536..1073741824");
    OUTSIDE(result_bytes, 4295032832, "65536..1073741824"); /* 2^32 + 65536 */
    OUTSIDE(stream_bytes, 1073741825, "0..1073741824");
    OUTSIDE(batch, 9, "0..8");
    T_CHECK(wnpu_transcribe(NULL, NULL, &a) == WNPU_E_ARGUMENT, "no session");
    T_CHECK(wnpu_transcribe(s, NULL, NULL) == WNPU_E_ARGUMENT, "no audio");
    a.rate = 7999;
    T_CHECK(wnpu_transcribe(s, NULL, &a) == WNPU_E_ARGUMENT, "rate");
    T_CHECK(wnpu_write(s, (wnpu_format)10, life_grow, NULL) == WNPU_E_ARGUMENT, "format");
    {
        const char *phrase = NULL;
        wnpu_choice choice;
        life_bytes t;
        choice.struct_size = sizeof choice;
        T_CHECK(wnpu_choose(s, NULL, NULL, &phrase, 1, &choice) == WNPU_E_ARGUMENT, "no audio");
        a.rate = 16000;
        T_CHECK(wnpu_choose(s, NULL, &a, &phrase, 1, &choice) == WNPU_E_ARGUMENT, "no phrase");
        t = life_written(s, WNPU_FORMAT_JSON);
        T_CHECK(t.n > 0, "what failed before a language was known can be written");
        free(t.bytes);
    }
    T_CHECK(wnpu_segment_count(NULL) == 0 && wnpu_session_error(NULL)[0] == '\0', "no session");
    wnpu_session_close(NULL);
    wnpu_cancel(NULL);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- the decoder's caches ---- */

/* Logits after tokens 0..n-1: step by step with the cache, in blocks, and anew from position 0 for
 * every token. All three must have the same bits. */
static void cache(void)
{
    wnpu_model *m = life_float_toy(7);
    int compute;
    for (compute = 0; compute < 2; compute++) {
        wnpu_session *s = open_on(m, 2, 0, compute);
        de_decoder *d = &s->run.decoder;
        size_t vocab = (size_t)m->vocab.n_vocab, i, n = 448, checked = 0;
        float *kept = malloc(vocab * sizeof *kept), *x = life_sound(ML_SPAN);
        static int32_t tokens[448];
        memcpy(s->run.audio.samples, x, ML_SPAN * sizeof *x);
        encode_window(&s->run, ML_FRAMES);
        for (i = 0; i < n; i++) {
            tokens[i] = (int32_t)(i * 31 % 300);
        }
        for (i = 0; i < n; i++) {
            de_row row;
            row.token = tokens[i];
            row.position = (uint32_t)i;
            row.slot = 0;
            row.window = 0;
            row.want = 1;
            de_step(d, &row, 1);
            if (i % 37 == 0 || i + 1 == n) {
                float *last;
                memcpy(kept, d->logits, vocab * sizeof *kept);
                last = se_feed(d, tokens, i + 1, i, NULL); /* all positions anew, in blocks */
                T_CHECK(memcmp(kept, last, vocab * sizeof *kept) == 0,
                        "compute %d: position %d differs without the cache", compute, (int)i);
                checked++;
            }
        }
        T_CHECK(checked > 10, "positions were checked");
        free(kept);
        free(x);
        wnpu_session_close(s);
    }
    wnpu_model_close(m);
}

/* Padding in the prompt's blocks, other rows and stale caches must not matter either. */
static void stale_cache(void)
{
    wnpu_model *m = life_float_toy(7);
    wnpu_session *a = open_on(m, 1, 0, 0), *b = open_on(m, 1, 0, 0);
    size_t vocab = (size_t)m->vocab.n_vocab;
    int32_t tokens[40];
    float *x = life_sound(ML_SPAN), *last_a, *last_b;
    int i;
    memcpy(a->run.audio.samples, x, ML_SPAN * sizeof *x);
    memcpy(b->run.audio.samples, x, ML_SPAN * sizeof *x);
    encode_window(&a->run, ML_FRAMES);
    encode_window(&b->run, ML_FRAMES);
    for (i = 0; i < 40; i++) {
        tokens[i] = i * 7 % 300;
    }
    se_feed(&a->run.decoder, tokens, 40, 40, NULL);
    last_a = se_feed(&a->run.decoder, tokens + 5, 3, 3, NULL);
    last_b = se_feed(&b->run.decoder, tokens + 5, 3, 3, NULL);
    T_CHECK(memcmp(last_a, last_b, vocab * sizeof *last_a) == 0, "old positions leak");
    wnpu_session_close(a);
    wnpu_session_close(b);
    free(x);
    wnpu_model_close(m);
}

/* A store with one segment of that text. */
static void one_segment(const wnpu_model *m, rs_store *store, unsigned char *block, size_t size,
                        const char *said, int64_t t0_ms, int64_t t1_ms)
{
    int32_t tokens[512];
    float probability[512] = {0};
    rs_draft d;
    int stored = 0;
    int64_t n = wnpu_tokenize(m, said, strlen(said), tokens, 512);
    memset(store, 0, sizeof *store);
    store->base = block;
    store->size = size;
    rs_reset(store);
    memset(&d, 0, sizeof d);
    d.t0_ms = t0_ms;
    d.t1_ms = t1_ms;
    d.tokens = tokens;
    d.probability = probability;
    d.n = (size_t)n;
    T_CHECK(n > 0 && n <= 512 && rs_add(store, &m->vocab, &d, &stored) == WNPU_OK && stored,
            "%d tokens are stored", (int)n);
}

/* What a format makes of a store, with a layout if width is not 0. */
static life_bytes format_of(const wnpu_model *m, const rs_store *store, int format, int32_t width)
{
    life_bytes t = {NULL, 0};
    wnpu_write_options o;
    wnpu_write_cursor c;
    rs_summary summary;
    wnpu_write_options_init(&o, sizeof o);
    o.format = format;
    o.max_line_width = width;
    memset(&c, 0, sizeof c);
    c.last = 1;
    memset(&summary, 0, sizeof summary);
    summary.duration_ms = 363600007;
    T_CHECK(wr_write(store, &m->vocab, &summary, &o, &c, life_grow, &t) == WNPU_OK &&
            t.bytes != NULL, "format %d is written", format);
    return t;
}

#define J "\xe2\x81\xa0" /* U+2060 */

/* Text that looks like markup, and a segment without length, in each format but JSON. Of
 * verbose_json, the part before the token numbers is compared. */
static void markup(void)
{
    static const char said[] = " A&B <i>up</i> ---> \"down\"\n\x7f\xe2\x80\xa8"
                               "{\\an8}\\N [12:34.56]<1:2> ";
    static const char *const want[] = {
        "A&B <i>up</i> ---> \"down\"\n  {\\an8}\\N [12:34.56]<1:2>\n",
        "1\n101:00:00,007 --> 101:00:00,008\n"
            "A&B <i>up</i> --- > \"down\"\n  {" J "\\an8}\\N [12:34.56]<1:2>\n\n",
        "WEBVTT\n\n101:00:00.007 --> 101:00:00.008\n"
            "A&amp;B &lt;i&gt;up&lt;/i&gt; ---&gt; \"down\"\n  {" J "\\an8}\\N [12:34.56]&lt;1:2&gt;"
            "\n\n",
        "start\tend\ttext\n363600007\t363600007\t"
            "A&B <i>up</i> ---> \"down\"   {\\an8}\\N [12:34.56]<1:2>\n",
        NULL,
        "start,end,text\r\n363600007,363600007,"
            "\"A&B <i>up</i> ---> \"\"down\"\"   {\\an8}\\N [12:34.56]<1:2>\"\r\n",
        "[6060:00.00]A&B <i>up</i> ---> \"down\"   {" J "\\an8}\\N "
            "[" J "12:34.56]<" J "1:2>\n",
        "Dialogue: 0,101:00:00.00,101:00:00.01,Default,,0,0,0,,A&B <i>up</i> ---> \"down\"\\N  "
            "\\{" J "\\" J "an8\\}\\" J "N [12:34.56]<1:2>\n",
        "{\"task\": \"transcribe\", \"language\": \"english\", \"duration\": 363600.007,\n"
            " \"text\": \"A&B <i>up</i> ---> \\\"down\\\"\\u000a\x7f\xe2\x80\xa8"
            "{\\\\an8}\\\\N [12:34.56]<1:2> \",\n \"segments\": [\n"
            "  {\"id\": 0, \"seek\": 0, \"start\": 363600.007, \"end\": 363600.007,\n"
            "   \"text\": \" A&B <i>up</i> ---> \\\"down\\\"\\u000a\x7f\xe2\x80\xa8"
            "{\\\\an8}\\\\N [12:34.56]<1:2> \",\n   \"tokens\": ["
    };
    static unsigned char block[16384];
    wnpu_model *m = life_float_toy(7);
    rs_store store;
    int format;
    one_segment(m, &store, block, sizeof block, said, 363600007, 363600007);
    for (format = WNPU_FORMAT_TXT; wnpu_format_name(format) != NULL; format++) {
        if (want[format] != NULL) {
            life_bytes t = format_of(m, &store, format, 0);
            const char *found = strstr(t.bytes, "Dialogue:");
            found = format == WNPU_FORMAT_ASS && found != NULL ? found : t.bytes;
            T_CHECK(strncmp(found, want[format], strlen(want[format])) == 0 &&
                    (format == WNPU_FORMAT_VERBOSE_JSON || strlen(found) == strlen(want[format])),
                    "format %d: %s", format, t.bytes);
            T_CHECK(format != WNPU_FORMAT_ASS ||
                    strncmp(t.bytes, "[Script Info]\n", 14) == 0, "the head of ass");
            free(t.bytes);
        }
    }
    wnpu_model_close(m);
}

/* Lines break where their readers would. */
static void session_lines(void)
{
    static const struct {
        const char *said, *want;
        int32_t width;
    } of[] = {
        {" Well, I never knew that, but it is so.", "Well, I never knew that,\nbut it is so.", 30},
        {" one two three four five six", "one two three\nfour five six", 24},
        {" Donaudampfschifffahrt", "Donaudampfsc\nhifffahrt", 12},
        {"\xe4\xbb\x8a\xe5\xa4\xa9\xe5\xa4\xa9\xe6\xb0\xa3\xe3\x80\x82\xe5\xa5\xbd",
         "\xe4\xbb\x8a\xe5\xa4\xa9\xe5\xa4\xa9\n\xe6\xb0\xa3\xe3\x80\x82\xe5\xa5\xbd", 8},
        {" e\xcc\x81" "e\xcc\x81 a", "e\xcc\x81" "e\xcc\x81 a", 8},
    };
    static unsigned char block[16384];
    wnpu_model *m = life_float_toy(7);
    rs_store store;
    size_t i;
    for (i = 0; i < sizeof of / sizeof of[0]; i++) {
        life_bytes t;
        char want[256];
        one_segment(m, &store, block, sizeof block, of[i].said, 1000, 2000);
        t = format_of(m, &store, WNPU_FORMAT_VTT, of[i].width);
        (void)snprintf(want, sizeof want, "WEBVTT\n\n00:00:01.000 --> 00:00:02.000\n%s\n\n",
                       of[i].want);
        T_CHECK(strcmp(t.bytes, want) == 0, "%d: %s", (int)i, t.bytes);
        free(t.bytes);
    }
    wnpu_model_close(m);
}

/* Two lists that grow together: every element is found, in any order. A list that is searched from
 * its beginning would need minutes here. */
static void long_lists(void)
{
    const size_t n = 1000000, size = 2 * 26 * n;
    rs_store store;
    wnpu_ledger_span ledger;
    wnpu_speech_span speech;
    size_t i, k = 0, wrong = 0;
    memset(&store, 0, sizeof store);
    store.base = malloc(size);
    store.size = size;
    rs_reset(&store);
    for (i = 0; i < n; i++) {
        ledger.t0_ms = 10 * (int64_t)i;
        ledger.t1_ms = ledger.t0_ms + 10;
        ledger.kind = WNPU_LEDGER_SILENCE;
        ledger.reason = i % 2 == 0 ? WNPU_REASON_PAUSE : WNPU_REASON_NO_VOICE; /* not merged */
        speech.t0_ms = 10 * (int64_t)i;
        speech.t1_ms = speech.t0_ms + 7;
        wrong += rs_add_ledger(&store, &ledger) != WNPU_OK ||
                 rs_list_add(&store, &store.speech, &speech) != WNPU_OK;
    }
    T_CHECK(wrong == 0 && store.ledger.count == n && store.speech.count == n, "no room");
    for (i = 0; i < 3 * n && wrong == 0; i++) {
        k = i < n ? i : i < 2 * n ? 2 * n - 1 - i : i * 7919 % n;
        wrong += rs_get_ledger(&store, k, &ledger) != WNPU_OK || ledger.t0_ms != 10 * (int64_t)k;
        memcpy(&speech, rs_list_get(&store, &store.speech, k), sizeof speech);
        wrong += speech.t1_ms != 10 * (int64_t)k + 7;
    }
    T_CHECK(wrong == 0, "element %lu is another one", (unsigned long)k);
    T_CHECK(rs_get_ledger(&store, n, &ledger) == WNPU_E_ARGUMENT &&
            rs_list_get(&store, &store.speech, n) == NULL, "beyond the end");
    free(store.base);
}

static int64_t refuses(void *user, const void *data, size_t size)
{
    (void)user;
    (void)data;
    (void)size;
    return -1;
}

/* Any bytes become a valid JSON string. */
static void json_string(void)
{
    static const char said[] = "a\"\\\x01\n\0\xc3\xa4\xff\xe2\x82x\xf0\x9f\x98\x80";
    static const char want[] = "\"a\\\"\\\\\\u0001\\u000a\\u0000\xc3\xa4\xef\xbf\xbd\xef\xbf\xbdx"
                               "\xf0\x9f\x98\x80\"";
    life_bytes t = {NULL, 0};
    T_CHECK(wnpu_write_json_string(said, sizeof said - 1, life_grow, &t) == WNPU_OK &&
            t.n == sizeof want - 1 && memcmp(t.bytes, want, t.n) == 0, "%s",
            t.bytes != NULL ? t.bytes : "");
    free(t.bytes);
    T_CHECK(wnpu_write_json_string(NULL, 0, life_grow, &t) == WNPU_E_ARGUMENT &&
            wnpu_write_json_string("", 0, NULL, &t) == WNPU_E_ARGUMENT, "no text or no writer");
    T_CHECK(wnpu_write_json_string("x", 1, refuses, NULL) == WNPU_E_IO, "a writer that fails");
}

/* Names of formats, and options that are refused. */
static void write_options(void)
{
    static const int32_t wrong[][2] = {{0, -1}, {0, 9}, {9, 2}, {9, -1}, {1, 7}, {1, 1001}, {1, -1}, {2, 17},
                                       {3, 499}, {3, 60001}, {4, 10001}, {4, -1}, {5, 1001},
                                       {6, 4}, {6, 101}, {7, -1}, {7, 129}, {8, 2}, {8, -1}};
    wnpu_write_options o;
    wnpu_write_cursor c;
    wnpu_model *m = life_float_toy(7);
    wnpu_session *s = life_open(m, NULL);
    life_bytes t = {NULL, 0};
    size_t i;
    for (i = 0; wnpu_format_name((int)i) != NULL; i++) {
        T_CHECK(wnpu_format_from_name(wnpu_format_name((int)i)) == (int)i, "format %d", (int)i);
    }
    T_CHECK(i == 9 && wnpu_format_name(-1) == NULL, "%d formats", (int)i);
    T_CHECK(wnpu_format_from_name("VERBOSE_json") == WNPU_FORMAT_VERBOSE_JSON &&
            wnpu_format_from_name("verbose\x7fjson") == -1 &&
            wnpu_format_from_name("SrT") == WNPU_FORMAT_SRT && wnpu_format_from_name("sr") == -1 &&
            wnpu_format_from_name("srtx") == -1 && wnpu_format_from_name(NULL) == -1, "names");
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int32_t *fields = &o.format;
        wnpu_write_options_init(&o, sizeof o);
        wnpu_write_options_subtitles(&o);
        o.max_lines = 0;
        T_CHECK(wnpu_write_with(s, &o, NULL, life_grow, &t) == WNPU_OK, "the preset");
        fields[wrong[i][0]] = wrong[i][1];
        T_CHECK(wnpu_write_with(s, &o, NULL, life_grow, &t) == WNPU_E_ARGUMENT, "wrong %d", (int)i);
    }
    wnpu_write_options_init(&o, sizeof o);
    memset(&c, 0, sizeof c);
    T_CHECK(wnpu_write_with(s, &o, &c, life_grow, &t) == WNPU_E_VERSION, "a cursor without size");
    c.struct_size = sizeof c;
    c.segment = 1;
    T_CHECK(wnpu_write_with(s, &o, &c, life_grow, &t) == WNPU_E_ARGUMENT && c.segment == 1,
            "a cursor behind the results");
    free(t.bytes);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* A model with 99 languages says which ones know Cantonese. */
static void cantonese(void)
{
    toy_options o = toy_small();
    wnpu_model *m = NULL;
    wnpu_session *s;
    float x[160] = {0};
    wnpu_audio a = life_audio(x, 160);
    wnpu_params p = short_params();
    unsigned char *file;
    size_t size;
    o.n_vocab += 97;
    file = toy_model(&o, &size);
    T_CHECK(wnpu_model_open_memory(&m, file, size, NULL, NULL) == WNPU_OK, "opens");
    free(file);
    s = open_on(m, 1, 0, 0);
    p.language = 99;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_E_ARGUMENT &&
                strstr(wnpu_session_error(s), "know cantonese (language 99)") != NULL &&
                strstr(wnpu_session_error(s), "99 of 100 languages; large-v3 and turbo") != NULL,
            "%s", wnpu_session_error(s));
    p.language = 98;
    T_CHECK(wnpu_transcribe(s, &p, &a) >= WNPU_OK, "%s", wnpu_session_error(s));
    wnpu_session_close(s);
    wnpu_model_close(m);
}

static void session_tests(void)
{
    voice_seed = 5; /* the same sounds whatever ran before */
    t_run("AMX only for who asks", permission);
    t_run("one answer: instruction sets, threads 1 2 3 8, int8 and float", session_one_answer);
    t_run("a run is a function: A, B, A", session_a_b_a);
    t_run("audio through a reader, and a reader that fails", reader);
    t_run("any length, times inside the recording", session_any_length);
    t_run("memory is known beforehand and wiped", session_memory);
    t_run("whatever was asked for is wiped", wiped);
    t_run("a full result store keeps what it has", session_full_store);
    t_run("text like markup, and no length, in subtitles", markup);
    t_run("lines of subtitles", session_lines);
    t_run("who knows Cantonese", cantonese);
    t_run("lists of a million spans", long_lists);
    t_run("JSON strings of any bytes", json_string);
    t_run("options of writers", write_options);
    t_run("callbacks and cancelling", callbacks);
    t_run("bad arguments are refused with a reason", bad_arguments);
    t_run("a refused run can be written", refused_runs);
    t_run("decoding with the cache equals decoding without it", cache);
    t_run("stale caches do not matter", stale_cache);
}

#undef NO_SESSION
#undef REFUSED
