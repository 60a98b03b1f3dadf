/* test_npu_run.c - whole transcriptions on the simulated NPU: library, accelerator, libdrm, and the
 * driver's rules. A toy model's JSON has to equal the CPU's to the byte, on every machine, with
 * every pack, and whatever goes wrong.
 *
 *     test_npu_run [LIBSIM MAKE_PACK PACKS]
 *
 * TEST_NPU_RUNS=N in the environment: N runs with a random fault each (default 60). */
#include "npu_child.h"
#include "../lib/toy_model.h"
#include "../lib/voicelike.h"
#include <math.h>
#include <sys/wait.h>

/* ---- what is transcribed ---- */

#define FRAMES (16000u * 42u) /* two windows */

static toy_options toy(void)
{
    toy_options o = toy_small();
    o.seed = 21;
    return o;
}

static float audio[FRAMES];

/* TEST_NPU_LIVE=speech: with voice activity detection, and tentative text in live runs. */
static int is_speech(void)
{
    const char *text = getenv("TEST_NPU_LIVE");
    return text != NULL && strcmp(text, "speech") == 0;
}

static void make_audio(void)
{
    uint32_t s = 77;
    size_t i;
    if (is_speech()) {
        float *voice = voicelike(FRAMES, 1);
        memcpy(audio, voice, sizeof audio);
        free(voice);
        return;
    }
    for (i = 0; i < FRAMES; i++) {
        double t = (double)i / 16000;
        s = s * 1664525u + 1013904223u;
        audio[i] = (float)(0.3 * sin(t * 800 * (1 + 0.2 * sin(t * 3))) * (sin(t * 5) > 0) +
                           0.01 * ((double)(s >> 8) / 8388608.0 - 1));
    }
}

static int64_t to_file(void *user, const void *data, size_t size)
{
    return (int64_t)fwrite(data, 1, size, user);
}

/* The same as wnpu_transcribe(), but audio is pushed in pieces. */
static int transcribe_live(wnpu_session *session, const wnpu_params *p)
{
    wnpu_stream_options o;
    uint32_t events, tentative = 0;
    size_t at, n;
    int code;
    wnpu_stream_options_init(&o, sizeof o);
    o.format = WNPU_SAMPLE_F32;
    o.step_ms = 400;
    code = wnpu_stream_begin(session, p, &o);
    for (at = 0; at < FRAMES && code == WNPU_OK; at += n) {
        n = FRAMES - at < 7000 ? FRAMES - at : 7000;
        check(wnpu_stream_push(session, audio + at, n) == n, "no room");
        code = wnpu_stream_step(session, &events);
        tentative += (events & WNPU_EVENT_TENTATIVE) != 0;
    }
    check(!is_speech() || tentative > 0, "no tentative text");
    return code == WNPU_OK ? wnpu_stream_finish(session) : code;
}

/* Opens a session on accel (or NULL), transcribes, writes JSON to path. A toy talks nonsense for
 * ever, so its windows are kept short. */
static int transcribe(wnpu_accel *accel, int required, const char *path, wnpu_accel_stats *told)
{
    toy_options o = toy();
    wnpu_model *model = NULL;
    wnpu_session *session = NULL;
    wnpu_config c;
    wnpu_params p;
    wnpu_audio a;
    wnpu_error error = {0, ""};
    wnpu_accel_stage stage;
    wnpu_segment segment;
    size_t size = 0, i;
    unsigned char *file = toy_model(&o, &size);
    int live = accel != NULL && getenv("TEST_NPU_LIVE") != NULL;
    FILE *out = fopen(path, "w");
    int code = wnpu_model_open_memory(&model, file, size, NULL, &error);
    free(file);
    wnpu_config_init(&c, sizeof c);
    c.threads = 2;
    c.result_bytes = 1 << 16;
    c.accel = accel;
    c.accel_use = WNPU_ACCEL_ALL;
    c.require_accel = (uint32_t)required;
    c.stream_bytes = live ? 1 << 17 : 0;
    if (code == WNPU_OK && accel != NULL) {
        uint64_t bytes = wnpu_session_accel_bytes(model, &c, NULL, &error);
        wnpu_accel_account before, after;
        memset(&before, 0, sizeof before);
        before.struct_size = (uint32_t)sizeof before;
        after = before;
        (void)accel->account(accel->self, &before);
        code = wnpu_session_open(&session, model, &c, NULL, 0, &error);
        (void)accel->account(accel->self, &after);
        check(code != WNPU_OK || stats().faults > 0 ||
              after.bytes_locked - before.bytes_locked == bytes, "%llu bytes were told, %llu are "
              "locked", (unsigned long long)bytes,
              (unsigned long long)(after.bytes_locked - before.bytes_locked));
    } else if (code == WNPU_OK) {
        code = wnpu_session_open(&session, model, &c, NULL, 0, &error);
    }
    if (code == WNPU_OK) {
        wnpu_params_init(&p, sizeof p);
        p.beam = 1;
        p.max_tokens = 10;
        p.timestamps = 0;
        p.no_speech_threshold = 2;
        p.vad = is_speech();
        wnpu_audio_init(&a, sizeof a);
        a.data = audio;
        a.frames = FRAMES;
        code = live ? transcribe_live(session, &p) : wnpu_transcribe(session, &p, &a);
        check(wnpu_write(session, WNPU_FORMAT_JSON, to_file, out) == WNPU_OK, "writing");
        told->struct_size = (uint32_t)sizeof *told;
        (void)wnpu_get_accel_stats(session, told);
        check(!live || !required || (told->windows > 0 && told->windows_without == 0),
              "live: %u of %u windows without", told->windows_without, told->windows);
        for (i = 0; live && required && wnpu_get_segment(session, i, &segment) == WNPU_OK; i++) {
            check(segment.device == WNPU_DEVICE_ACCEL, "live: segment %lu", (unsigned long)i);
        }
        memset(&stage, 0, sizeof stage);
        stage.struct_size = (uint32_t)sizeof stage;
        for (i = 0; wnpu_get_accel_stage(session, i, &stage) == WNPU_OK; i++) {
            check(told->fallbacks > 0 || stage.accel_macs == (stage.planned ? stage.macs : 0),
                  "%s: %llu of %llu", stage.name, (unsigned long long)stage.accel_macs,
                  (unsigned long long)stage.macs);
            check(stage.accel_macs + stage.fallback_macs <= stage.macs, "%s: account", stage.name);
        }
    }
    fclose(out);
    wnpu_session_close(session);
    wnpu_model_close(model);
    return code;
}

/* ---- the child: TEST_NPU_EXPECT "fallback" wants one, "retry" none (a command that failed once
 * is submitted again), "wrong" a bad checksum, "any" takes what happens;
 * TEST_NPU_REASON is part of the first reason, _ for blanks ---- */

static void check_reason(const char *reason)
{
    const char *want = getenv("TEST_NPU_REASON");
    char words[200];
    char *p;
    snprintf(words, sizeof words, "%s", want != NULL ? want : "");
    for (p = words; *p != '\0'; p++) {
        *p = *p == '_' ? ' ' : *p;
    }
    check(strstr(reason, words) != NULL, "not \"%s\" but \"%s\"", words, reason);
}

/* For the parent's sum: faults, opened, fallbacks, wrong, the longest wait in milliseconds. */
static void leave_note(const char *path, int opened, const wnpu_accel_stats *told)
{
    sim_amdxdna_stats_v1 s = stats();
    char name[320];
    FILE *f;
    snprintf(name, sizeof name, "%s.note", path);
    f = fopen(name, "w");
    if (f != NULL) {
        fprintf(f, "%llu %d %u %u %.1f\n", (unsigned long long)s.faults, opened, told->fallbacks,
                told->wrong, s.longest_wait_us * 1e-3);
        fclose(f);
    }
}

/* The products of the toy model, for the built-in kernels. */
static uint32_t toy_products(wnpu_accel_shape products[16])
{
    toy_options o = toy();
    wnpu_model *model = NULL;
    size_t size = 0;
    unsigned char *file = toy_model(&o, &size);
    int n = wnpu_model_open_memory(&model, file, size, NULL, NULL) == WNPU_OK
                ? wnpu_model_products(model, products, 16) : 0;
    free(file);
    wnpu_model_close(model);
    check(n == 7, "%d products", n);
    return n > 0 ? (uint32_t)n : 0;
}

static int child(const char *pack, const char *path)
{
    const char *want = getenv("TEST_NPU_EXPECT");
    wnpu_accel_shape products[16];
    wnpu_amdxdna_config config;
    wnpu_accel *accel = NULL;
    wnpu_accel_stats told;
    wnpu_error error = {0, ""};
    sim_amdxdna_stats_v1 s;
    int code, required = want == NULL;
    memset(&told, 0, sizeof told);
    make_audio();
    configure(&config, pack);
    config.test_ms = 400;
    config.products = products;
    config.n_products = toy_products(products);
    code = wnpu_amdxdna_open(&config, &accel, &error);
    check((code == WNPU_OK) == (accel != NULL), "opening answers %d", code);
    check(code == WNPU_OK || error.message[0] != '\0', "no reason for %d", code);
    check(code == WNPU_OK || want != NULL, "opening: %s", error.message);
    code = transcribe(accel, required, path, &told);
    check(code == WNPU_OK, "transcribing: %d %s", code, told.first_reason);
    s = stats();
    check(s.faults > 0 || (accel != NULL && told.fallbacks == 0), "%u fallbacks without a fault: "
          "%s", told.fallbacks, told.first_reason);
    check((told.fallbacks > 0) == (told.first_reason[0] != '\0'), "reason: %s", told.first_reason);
    check(want == NULL || strcmp(want, "retry") != 0 || told.fallbacks == 0, "not retried: %s",
          told.first_reason);
    check(want == NULL || strcmp(want, "any") == 0 || strcmp(want, "retry") == 0 ||
          told.fallbacks > 0, "no fallback");
    check(want == NULL || strcmp(want, "wrong") != 0 || told.wrong > 0, "no wrong checksum");
    check_reason(accel == NULL ? error.message : told.first_reason);
    if (accel != NULL) {
        wnpu_amdxdna_close(accel);
    }
    check_clean("closed");
    check_patience(1000.0); /* no wait of the library's is longer, no self-test's here */
    check_fired();
    leave_note(path, accel != NULL, &told);
    if (getenv("TEST_NPU_LOG") == NULL) {
        return bad > 0;
    }
    printf("    %llu ioctls %llu execs %llu waits; opened %d, %u fallbacks, %u wrong, %u of %u "
           "windows without; %s\n", (unsigned long long)s.ioctls,
           (unsigned long long)s.submissions, (unsigned long long)s.waits, accel != NULL,
           told.fallbacks, told.wrong, told.windows_without, told.windows,
           accel != NULL ? told.first_reason : error.message);
    return bad > 0;
}

/* ---- the parent ---- */

static char cpu_path[300], npu_path[300];

static int same_files(const char *a, const char *b)
{
    char command[1000];
    snprintf(command, sizeof command, "cmp %s %s && test -s %s", a, b, a);
    return system(command) == 0;
}

/* One transcription, which must give the CPU's bytes. */
static void once(const char *environment, const char *pack)
{
    char arguments[700];
    snprintf(arguments, sizeof arguments, "%s%s%s %s", strcmp(pack, "auto") != 0 ? packs_path : "",
             strcmp(pack, "auto") != 0 ? "/" : "", pack, npu_path);
    (void)remove(npu_path);
    T_CHECK(run(environment, arguments) == 0, "%s %s", environment, pack);
    T_CHECK(same_files(cpu_path, npu_path), "%s %s: another text", environment, pack);
}

static void make_packs(void)
{
    static const struct { const char *name, *options; } packs[] = {
        {"run-npu1-i8", "--device npu1 --dtype i8 --shape 512x128x64 --shape 512x128x256"},
        {"run-npu1-i16", "--device npu1 --dtype i16 --shape 512x256x64 --shape 512x128x192"},
        {"run-npu1-kn", "--device npu1 --dtype i16 --b-layout kn --shape 512x128x128"},
        {"run-npu1-baked", "--device npu1 --dtype i8 --baked --shape 512x256x64 "
                           "--shape 512x128x192"},
        {"run-npu4-i8", "--device npu2 --dtype i8 --shape 512x256x64 --shape 1024x256x256"},
        {"run-npu4-i16", "--device npu2 --dtype i16 --shape 512x256x128 --shape 1536x256x64"}
    };
    size_t i;
    for (i = 0; i < sizeof packs / sizeof packs[0]; i++) {
        make_pack(packs[i].name, packs[i].options);
    }
}

static void test_cpu(void)
{
    wnpu_accel_stats told;
    T_CHECK(transcribe(NULL, 0, cpu_path, &told) == WNPU_OK, "on the CPU");
}

static void test_machines(void)
{
    static const char *const kernels[] = {"6.16", "6.18", "7.1", "7.2", "legacy"};
    static const char *const packs[] = {"npu1-i8", "npu1-i16", "npu4-i8", "npu4-i16"};
    char environment[200], pack[40];
    size_t i, j;
    for (i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        for (j = 0; j < sizeof packs / sizeof packs[0]; j++) {
            snprintf(environment, sizeof environment, "SIM_AMDXDNA_KERNEL=%s "
                     "SIM_AMDXDNA_DEVICE=%.4s", kernels[i], packs[j]);
            snprintf(pack, sizeof pack, "run-%s", packs[j]);
            once(environment, pack);
        }
    }
}

static void test_settings(void)
{
    once("", "run-npu1-kn");
    once("", "run-npu1-baked");
    once("SIM_AMDXDNA_ADDRESS=iova", "run-npu1-i8");
    once("SIM_AMDXDNA_CACHE=syncbo", "run-npu1-i8");
    once("SIM_AMDXDNA_CACHE=trap", "run-npu1-i8"); /* the program's own CLFLUSH */
    once("SIM_AMDXDNA_PROTOCOL=5.7", "run-npu1-i8");
}

#define BUILT_IN "SIM_AMDXDNA_CORES=built-in "

/* Without a pack. What the device makes of the built-in kernels is first a model of them, then their
 * machine code, executed. */
static void test_built_in(void)
{
    static const char *const settings[] = {
        BUILT_IN "SIM_AMDXDNA_DEVICE=npu1 SIM_AMDXDNA_KERNEL=6.16",
        BUILT_IN "SIM_AMDXDNA_DEVICE=npu1 SIM_AMDXDNA_KERNEL=7.1 SIM_AMDXDNA_ADDRESS=iova",
        BUILT_IN "SIM_AMDXDNA_DEVICE=npu1 SIM_AMDXDNA_CACHE=trap",
        BUILT_IN "SIM_AMDXDNA_DEVICE=npu4 SIM_AMDXDNA_KERNEL=6.18",
        BUILT_IN "SIM_AMDXDNA_DEVICE=npu4 SIM_AMDXDNA_KERNEL=legacy",
        BUILT_IN "SIM_AMDXDNA_DEVICE=npu1 SIM_AMDXDNA_COLUMNS=2", /* with column 0: leaves one */
        BUILT_IN "SIM_AMDXDNA_DEVICE=npu1 SIM_AMDXDNA_COLUMNS=4",
        BUILT_IN "SIM_AMDXDNA_DEVICE=npu4 SIM_AMDXDNA_COLUMNS=1",
        BUILT_IN "SIM_AMDXDNA_DEVICE=npu4 SIM_AMDXDNA_COLUMNS=3",
        BUILT_IN "SIM_AMDXDNA_DEVICE=npu4 SIM_AMDXDNA_COLUMNS=7",
        "SIM_AMDXDNA_DEVICE=npu1", "SIM_AMDXDNA_DEVICE=npu4",
        "SIM_AMDXDNA_DEVICE=npu1 SIM_AMDXDNA_COLUMNS=2",
        "SIM_AMDXDNA_DEVICE=npu4 SIM_AMDXDNA_COLUMNS=2"
    };
    static const struct { const char *fault, *expect, *reason; } faults[] = {
        {"exec=1+:timeout", "any", "in_state_8"},
        {"result=*:flipbit", "any", "computes_a_wrong_product"},
        {"ioctl=CREATE_HWCTX:1+:EINVAL", "any", "hardware_context"},
        {"exec=16:timeout", "fallback", "in_state_8"},
        {"exec=16:state5", "retry", ""}, {"result=16:zero", "wrong", "checksum"},
        {"result=17:skip", "wrong", "checksum"}, {"exec=17:lost", "fallback", "in_state_1"}
    };
    char environment[400];
    size_t i;
    for (i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        once(settings[i], "auto");
    }
    for (i = 0; i < 2 * (sizeof faults / sizeof faults[0]); i++) {
        snprintf(environment, sizeof environment, BUILT_IN "SIM_AMDXDNA_DEVICE=npu%d "
                 "SIM_AMDXDNA_FAULT='%s' TEST_NPU_EXPECT=%s TEST_NPU_REASON=%s TEST_NPU_FAULTS=1 "
                 "SIM_AMDXDNA_TIMESCALE=0.05", i % 2 == 0 ? 1 : 4, faults[i / 2].fault,
                 faults[i / 2].expect, faults[i / 2].reason);
        once(environment, "auto");
    }
}

/* A live run on the device has the bytes of a recording on the CPU, also after a fault. */
static void test_live(void)
{
    once(BUILT_IN "TEST_NPU_LIVE=1 SIM_AMDXDNA_DEVICE=npu1", "auto");
    once(BUILT_IN "TEST_NPU_LIVE=1 SIM_AMDXDNA_DEVICE=npu4", "auto");
    once("TEST_NPU_LIVE=1 SIM_AMDXDNA_DEVICE=npu1", "run-npu1-i8");
    once(BUILT_IN "TEST_NPU_LIVE=1 SIM_AMDXDNA_DEVICE=npu4 SIM_AMDXDNA_FAULT='exec=16:timeout' "
         "TEST_NPU_EXPECT=fallback TEST_NPU_REASON=in_state_8 TEST_NPU_FAULTS=1 "
         "SIM_AMDXDNA_TIMESCALE=0.05", "auto");
    (void)setenv("TEST_NPU_LIVE", "speech", 1);
    make_audio();
    test_cpu();
    once(BUILT_IN "SIM_AMDXDNA_DEVICE=npu1", "auto");
    (void)unsetenv("TEST_NPU_LIVE");
    make_audio();
    test_cpu();
}

static void test_accidents(void)
{
    /* Commands from 15 on come after the self-tests, ioctls from 190 on after the weights. reason:
     * words of the first reason that is told; "" where the fault may hit what nobody looks at. */
    static const struct { const char *fault, *expect, *reason; } cases[] = {
        {"exec=15:timeout", "fallback", "before_its_deadline"},
        {"exec=16:state5", "retry", ""}, {"exec=16+:state5", "fallback", "in_state_5"},
        {"exec=17:state6", "fallback", "in_state_6"},
        {"exec=18:lost", "fallback", "in_state_1"},
        {"exec=19:fw=0x1000004", "retry", ""},
        {"exec=19+:fw=0x1000004", "fallback", "in_state_5"},
        {"exec=20:slow=2000", "fallback", "before_its_deadline"},
        {"result=15:flipbit", "any", ""}, /* it may hit padding, which nobody reads */
        {"result=16:zero", "wrong", "checksum"}, {"result=17:skip", "wrong", "checksum"},
        {"result=20:flipbit", "any", ""}, {"suspend=18", "fallback", "in_state_"},
        {"gone=200", "fallback", "No_such_device"},
        {"wait=15:EINVAL", "fallback", "waiting_for_the_NPU"},
        {"wait=15+:ENODEV", "fallback", "No_such_device"},
        {"ioctl=EXEC_CMD:16:EINVAL", "fallback", "submitting_to_the_NPU"},
        {"ioctl=EXEC_CMD:16+:ENODEV", "fallback", "No_such_device"},
        {"ioctl=CREATE_BO:35+:ENOMEM", "any", "Cannot_allocate"},
        {"mmap=40:EAGAIN", "any", "mapping_a_buffer"},
        {"open=EACCES", "any", "Permission_denied"},
        {"ioctl=CREATE_HWCTX:1+:EINVAL", "any", "hardware_context"},
        {"result=*:flipbit", "any", "computes_a_wrong_product"},
        {"exec=1:timeout", "any", ""} /* one kernel is left out, the other does it all */
    };
    static const char *const kernels[] = {"6.18", "7.2"};
    char environment[400];
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(environment, sizeof environment, "SIM_AMDXDNA_KERNEL=%s SIM_AMDXDNA_FAULT='%s' "
                 "TEST_NPU_EXPECT=%s TEST_NPU_REASON=%s TEST_NPU_FAULTS=1 "
                 "SIM_AMDXDNA_TIMESCALE=0.05%s", kernels[i % 2], cases[i].fault, cases[i].expect,
                 cases[i].reason,
                 strncmp(cases[i].fault, "gone", 4) == 0 ? " TEST_NPU_GONE=1" : "");
        once(environment, "run-npu1-i8");
    }
}

static uint32_t draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* One fault at a random call, command or bit of a result, or several by probability. Counts are a
 * little under those of a run without faults on the slowest path, so that each one happens. */
static void random_fault(uint32_t seed, char *to, size_t size)
{
    static const char *const errors[] = {"EINVAL", "ENOMEM", "EIO", "ENODEV", "EAGAIN", "EBUSY",
                                         "EINTR", "ENOENT"};
    static const char *const ends[] = {"timeout", "state5", "state6", "state8", "lost",
                                       "slow=1200", "fw=0x3000002"};
    static const char *const results[] = {"flipbit", "flipbit", "flipbit", "zero", "skip"};
    uint32_t s = seed * 2654435761u;
    unsigned kind = draw(&s) % 6, n = draw(&s);
    switch (kind) {
    case 0: case 1:
        snprintf(to, size, "ioctl=ANY:%u:%s", 1 + n % 200, errors[draw(&s) % 8]);
        break;
    case 2: snprintf(to, size, "exec=%u:%s", 1 + n % 26, ends[draw(&s) % 7]); break;
    case 3: case 4: snprintf(to, size, "result=%u:%s", 1 + n % 26, results[draw(&s) % 5]); break;
    default: snprintf(to, size, "random:%u:0.%03u", seed, 1 + n % 20); break;
    }
}

/* What became of the random faults. */
static struct {
    unsigned runs, hit, faults, unopened, fell_back, wrong;
    double longest_ms;
} sum;

static void add_note(void)
{
    char name[320];
    unsigned faults = 0, opened = 0, fallbacks = 0, wrong = 0;
    double longest = 0;
    FILE *f;
    snprintf(name, sizeof name, "%s.note", npu_path);
    f = fopen(name, "r");
    T_CHECK(f != NULL && fscanf(f, "%u %u %u %u %lf", &faults, &opened, &fallbacks, &wrong,
                                &longest) == 5, "%s", name);
    if (f != NULL && fclose(f) == 0 && remove(name) == 0) {
        sum.runs++;
        sum.hit += faults > 0;
        sum.faults += faults;
        sum.unopened += opened == 0;
        sum.fell_back += opened != 0 && fallbacks > 0;
        sum.wrong += wrong > 0;
        sum.longest_ms = longest > sum.longest_ms ? longest : sum.longest_ms;
    }
}

static void test_random(void)
{
    static const char *const kernels[] = {"6.16", "6.18", "7.1", "7.2", "legacy"};
    static const char *const packs[] = {"npu1-i8", "npu4-i8", "npu1-i16", "npu1", "npu4"};
    const char *runs = getenv("TEST_NPU_RUNS");
    uint32_t n = runs != NULL ? (uint32_t)atoi(runs) : 30, i;
    char environment[400], fault[60], pack[40];
    for (i = 1; i <= n; i++) {
        const char *name = packs[i % 5];
        int built_in = name[4] == '\0';
        random_fault(i, fault, sizeof fault);
        snprintf(environment, sizeof environment, "%sSIM_AMDXDNA_KERNEL=%s SIM_AMDXDNA_DEVICE=%.4s "
                 "SIM_AMDXDNA_FAULT='%s' TEST_NPU_EXPECT=any%s SIM_AMDXDNA_TIMESCALE=0.05",
                 built_in ? BUILT_IN : "", kernels[i / 5 % 5], name, fault,
                 strncmp(fault, "random", 6) == 0 ? "" : " TEST_NPU_FAULTS=1");
        snprintf(pack, sizeof pack, "run-%s", name);
        once(environment, built_in ? "auto" : pack);
        add_note();
    }
    printf("  %u runs, %u with faults (%u): %u without an NPU, %u with fallbacks, %u with wrong "
           "results; no wait was to take over %.0f ms\n", sum.runs, sum.hit, sum.faults,
           sum.unopened, sum.fell_back, sum.wrong, sum.longest_ms);
}

/* ---- the command line program ---- */

static void put(FILE *f, uint32_t value, int bytes)
{
    int i;
    for (i = 0; i < bytes; i++) {
        (void)fputc((int)(value >> 8 * i & 255), f);
    }
}

/* toy.bin and toy.wav beside the packs. */
static void write_files(void)
{
    toy_options o = toy();
    char path[300];
    size_t size = 0, i;
    unsigned char *model = toy_model(&o, &size);
    FILE *f;
    snprintf(path, sizeof path, "%s/toy.bin", packs_path);
    f = fopen(path, "w");
    T_CHECK(f != NULL && fwrite(model, 1, size, f) == size && fclose(f) == 0, "%s", path);
    free(model);
    snprintf(path, sizeof path, "%s/toy.wav", packs_path);
    f = fopen(path, "w");
    (void)fwrite("RIFF", 1, 4, f);
    put(f, 36 + 2 * FRAMES, 4);
    (void)fwrite("WAVEfmt ", 1, 8, f);
    put(f, 16, 4);
    put(f, 1 | 1u << 16, 4);
    put(f, 16000, 4);
    put(f, 32000, 4);
    put(f, 2 | 16u << 16, 4);
    (void)fwrite("data", 1, 4, f);
    put(f, 2 * FRAMES, 4);
    for (i = 0; i < FRAMES; i++) {
        put(f, (uint32_t)(int32_t)lrintf(audio[i] * 30000.0f), 2);
    }
    T_CHECK(fclose(f) == 0, "%s", path);
}

/* Runs transcribe with these settings and options; its output goes to OUT, what it says to
 * OUT.log. The voice detector is off: it is right to hear no voice in a toy's sound, and nothing
 * would be decoded. */
static int cli(const char *environment, const char *options, const char *out)
{
    char command[2000], program[300];
    int status;
    snprintf(command, sizeof command, "env SIM_AMDXDNA_QUIET=1 SIM_AMDXDNA_CACHE=off "
             "SIM_AMDXDNA_CLOCK=model ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 %s %s "
             "-m %s/toy.bin -t 2 -f json --vad off --max-tokens 10 --no-timestamps %s %s/toy.wav "
             ">%s 2>%s.log", environment, in_build(program, sizeof program, "transcribe"),
             packs_path, options, packs_path, out, out);
    status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int holds(const char *path, const char *end, const char *words)
{
    char command[700];
    snprintf(command, sizeof command, "grep -q -e '%s' %s%s", words, path, end);
    return system(command) == 0;
}

static int said(const char *words)
{
    return holds(npu_path, ".log", words);
}

static void test_program(void)
{
    static const char *const packs[] = {"npu1-i8", "npu1-i16", "npu4-i8", "npu4-i16"};
    char environment[500], options[400];
    size_t i;
    write_files();
    T_CHECK(cli("", "-q", cpu_path) == 0 && holds(cpu_path, "", "\"probability\""),
            "on the CPU: no tokens in %s", cpu_path);
    for (i = 0; i < sizeof packs / sizeof packs[0]; i++) {
        snprintf(environment, sizeof environment, "SIM_AMDXDNA_DEVICE=%.4s LD_PRELOAD=%s",
                 packs[i], sim_path);
        snprintf(options, sizeof options, "-v --npu %s/run-%s --npu-all --require-npu",
                 packs_path, packs[i]);
        T_CHECK(cli(environment, options, npu_path) == 0 && same_files(cpu_path, npu_path), "%s",
                options);
        T_CHECK(said("^  fc1  .* 100.0% .* 0.0%"), "no account: see %s.log", npu_path);
    }
    snprintf(environment, sizeof environment, "SIM_AMDXDNA_FAULT=exec=16+:state5 LD_PRELOAD=%s",
             sim_path);
    snprintf(options, sizeof options, "-v --npu %s/run-npu1-i8 --npu-all", packs_path);
    T_CHECK(cli(environment, options, npu_path) == 0 && same_files(cpu_path, npu_path) &&
            said("fallbacks .*the first: the NPU ended a command in state 5"), "a fallback");
    snprintf(options, sizeof options, "-q --npu %s/run-npu1-i8 --npu-all --require-npu",
             packs_path);
    T_CHECK(cli(environment, options, npu_path) == 7 &&
            said("required, but part ran on the CPU: the NPU ended a command in state 5"),
            "a required NPU that fails");
    T_CHECK(cli("", options, npu_path) == 7 && said("^npu: "), "a required NPU that is not there");
    for (i = 1; i <= 4; i += 3) {
        snprintf(environment, sizeof environment, BUILT_IN "SIM_AMDXDNA_DEVICE=npu%d LD_PRELOAD=%s",
                 (int)i, sim_path);
        T_CHECK(cli(environment, "-v --npu auto --npu-all --require-npu", npu_path) == 0 &&
                same_files(cpu_path, npu_path) && said("^  fc1  .* 100.0% .* 0.0%") &&
                said("pack built-in"), "--npu auto on NPU%d", (int)i);
    }
    snprintf(environment, sizeof environment, "SIM_AMDXDNA_FAULT=ioctl=CREATE_HWCTX:1+:EINVAL "
             "LD_PRELOAD=%s", sim_path);
    T_CHECK(cli(environment, "--npu auto", npu_path) == 0 && same_files(cpu_path, npu_path) &&
            said("^npu: creating a hardware context failed") && said("^npu: context-refused: Close") &&
            said("going on without the NPU"), "--npu auto, and an NPU that fails");
    T_CHECK(cli("", "--npu auto --require-npu", npu_path) == 7 && said("^npu: "),
            "--npu auto, required and not there");
    T_CHECK(cli("", "--npu auto", npu_path) == 0 && same_files(cpu_path, npu_path) &&
            said("^npu: ") && said("going on without the NPU"), "--npu auto without an NPU");
    snprintf(options, sizeof options, "--npu %s/run-npu1-i8", packs_path);
    T_CHECK(cli("", options, npu_path) == 0 && same_files(cpu_path, npu_path) &&
            said("going on without the NPU"), "no NPU");
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--child") == 0) {
        return child(argv[2], argv[3]);
    }
    if (find_paths(argc, argv) != 0) {
        return 2;
    }
    snprintf(cpu_path, sizeof cpu_path, "%s/cpu.json", packs_path);
    snprintf(npu_path, sizeof npu_path, "%s/npu.json", packs_path);
    make_audio();
    t_run("make packs", make_packs);
    t_run("the command line program", test_program);
    t_run("the CPU's text", test_cpu);
    t_run("the same text on every machine", test_machines);
    t_run("the same text with every setting", test_settings);
    t_run("the same text with the built-in kernels", test_built_in);
    t_run("the same text from live audio", test_live);
    t_run("the same text after accidents", test_accidents);
    t_run("the same text after random faults", test_random);
    return t_end();
}
