/* test_contract.c - what the library promises whatever its host does: its thread's floating-point
 * environment, fork(), wrong sizes of structures, CPUs that it may not use, callbacks that force
 * tokens or stop. */
#define _GNU_SOURCE 1
#define WI_PROGRESS_MS 20.0 /* so that short windows are long enough */
#include "../../whisper_npu.c"
#include "../lib/life.h"
#include "../lib/voicelike.h"
#include <fenv.h>
#include <sys/wait.h>
#if defined(__linux__)
#include <sched.h>
#endif

/* ---- the floating-point environment ---- */

/* What a host may have set. */
typedef struct environment {
    const char *name;
    int rounding;   /* of fesetround() */
    uint64_t bits;  /* and these of er_float_get() turned over */
} environment;

static const environment environments[] = {
    {"nearest", FE_TONEAREST, 0}, {"upward", FE_UPWARD, 0}, {"downward", FE_DOWNWARD, 0},
    {"toward zero", FE_TOWARDZERO, 0},
#if defined(__SSE__)
    {"flush to zero, denormals are zero", FE_TONEAREST, 0x8040},
    {"all exceptions trap", FE_TONEAREST, 0x1f80},
    {"all of it", FE_UPWARD, 0x8040 | 0x1f80}
#elif defined(__aarch64__)
    {"flush to zero", FE_TONEAREST, (uint64_t)1 << 24}, {"all of it", FE_UPWARD, (uint64_t)1 << 24}
#endif
};

static void enter_environment(const environment *e)
{
    T_CHECK(fesetround(e->rounding) == 0, "%s: cannot be set", e->name);
    er_float_put(er_float_get() ^ e->bits);
}

/* Back to normal; the library left everything as it was. */
static void leave_environment(const environment *e, uint64_t before, const char *after)
{
    uint64_t is = er_float_get();
    T_CHECK(is == before, "%s: %s left %llx for %llx", e->name, after, (unsigned long long)is,
            (unsigned long long)before);
    er_float_put(er_float_get() ^ e->bits);
    (void)fesetround(FE_TONEAREST);
}

/* Does one call in an environment. The value of the comma's right side is that of the call. */
static uint64_t env_before;
#define CALL(e, result, call) do { \
        enter_environment(e); \
        env_before = er_float_get(); \
        result = call; \
        leave_environment(e, env_before, #call); \
    } while (0)

/* A host's parallel-for whose threads have the caller's environment, and callbacks that change it. */
static void in_turn(void *user, size_t count, void (*task)(void *context, size_t index),
                    void *context)
{
    size_t i;
    for (i = 0; i < count; i++) {
        enter_environment(user);
        task(context, i);
    }
}

static const environment *shaken; /* what the callbacks leave behind */

static int shake_progress(void *user, int64_t done_ms, int64_t total_ms)
{
    (void)user;
    (void)done_ms;
    (void)total_ms;
    enter_environment(shaken);
    return 0;
}

static int shake_token(void *user, const wnpu_token_event *event)
{
    (void)user;
    (void)event;
    enter_environment(shaken);
    return 0;
}

static void shake_logits(void *user, const int32_t *tokens, size_t n, float *logits, size_t vocab)
{
    (void)user;
    (void)tokens;
    (void)n;
    (void)logits;
    (void)vocab;
    enter_environment(shaken);
}

/* JSON of a run in that environment, of a model that was opened in it. */
static life_bytes run_in(const environment *e, const wnpu_audio *a, unsigned char *file,
                         size_t size, int way)
{
    wnpu_model *m = NULL;
    wnpu_model_config mc;
    wnpu_session *s = NULL;
    wnpu_config c = life_config(way == 1 ? 3 : way == 2 ? 2 : 1);
    wnpu_params p = life_params();
    life_bytes json = {NULL, 0};
    float heard[8];
    int status;
    wnpu_model_config_init(&mc, sizeof mc);
    mc.threads = way == 1 ? 3 : 1;
    if (way == 2) {
        c.parallel_for = mc.parallel_for = in_turn;
        c.parallel_user = mc.parallel_user = (void *)(uintptr_t)e;
    }
    p.words = 1;
    p.temperature = 0.4f;
    CALL(e, status, wnpu_model_open_memory(&m, file, size, &mc, NULL));
    T_CHECK(status == WNPU_OK, "%s: opening: %d", e->name, status);
    CALL(e, status, wnpu_session_open(&s, m, &c, NULL, 0, NULL));
    T_CHECK(status == WNPU_OK, "%s: session: %d", e->name, status);
    if (way == 3) { /* callbacks leave it behind, and are left alone with it */
        p.on_progress = shake_progress;
        p.on_token = shake_token;
        p.on_logits = shake_logits;
        shaken = e;
        env_before = er_float_get();
        status = wnpu_transcribe(s, &p, a);
        T_CHECK(er_float_get() == env_before, "%s: what a callback set stays", e->name);
        (void)fesetround(FE_TONEAREST); /* x87's part */
    } else {
        p.on_logits = way == 4 ? shake_logits : NULL; /* callbacks alone change the search's ties */
        shaken = &environments[0];
        CALL(e, status, wnpu_transcribe(s, &p, a));
    }
    T_CHECK(status == WNPU_OK, "%s: %d, %s", e->name, status, wnpu_session_error(s));
    CALL(e, status, wnpu_get_languages(s, heard, 8));
    CALL(e, status, wnpu_write(s, WNPU_FORMAT_JSON, life_grow, &json));
    T_CHECK(status == WNPU_OK, "%s: writing: %d", e->name, status);
    enter_environment(e);
    env_before = er_float_get();
    wnpu_session_close(s);
    wnpu_model_close(m);
    leave_environment(e, env_before, "closing");
    return json;
}

static void environment_is_ours(void)
{
    toy_options o = toy_small();
    size_t size, n = 16000 * 20, i;
    unsigned char *file;
    float *x = life_sound(n);
    wnpu_audio a = life_audio(x, n);
    life_bytes want, is;
    int way;
    o.seed = 7;
    file = toy_model(&o, &size);
    want = run_in(&environments[0], &a, file, size, 0);
    T_CHECK(want.n > 200, "a run of some length");
    for (i = 0; i < sizeof environments / sizeof environments[0]; i++) {
        for (way = 0; way < 4; way++) {
            if (way == 2 && (environments[i].bits & 0x1f80) != 0) {
                continue; /* the tests' own parallel-for would trap */
            }
            is = run_in(&environments[i], &a, file, size, way);
            T_CHECK(life_alike(is, want), "%s, way %d: another answer", environments[i].name, way);
            free(is.bytes);
        }
    }
    free(want.bytes);
    free(file);
    free(x);
}

/* A self test, a snapshot and a restored run, rounded upward. */
static void environment_of_the_rest(void)
{
    const environment *e = &environments[1];
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = life_session(m, 2);
    wnpu_params p = life_params();
    size_t n = 16000 * 40, size;
    float *x = life_sound(n);
    wnpu_audio a = life_audio(x, n);
    unsigned char *one, *two;
    wnpu_error error;
    int status;
    CALL(e, status, wnpu_self_test(NULL, &error));
    T_CHECK(status == WNPU_OK, "%s", error.message);
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
    size = wnpu_snapshot_size(s);
    one = malloc(size);
    two = malloc(size);
    T_CHECK(wnpu_snapshot(s, one, size) == WNPU_OK, "%s", wnpu_session_error(s));
    CALL(e, status, wnpu_snapshot(s, two, size));
    T_CHECK(status == WNPU_OK && memcmp(one, two, size) == 0, "another snapshot");
    CALL(e, status, wnpu_restore(s, one, size));
    T_CHECK(status == WNPU_OK, "%s", wnpu_session_error(s));
    CALL(e, status, wnpu_reset(s));
    T_CHECK(status == WNPU_OK, "reset");
    free(one);
    free(two);
    free(x);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- fork ---- */

/* In the child: every call that runs is refused, results stay, closing returns. */
static int child_of(wnpu_session *s, const wnpu_audio *a, const wnpu_model *m)
{
    static unsigned char block[1 << 20];
    wnpu_params p = life_params();
    wnpu_choice choice;
    const char *phrase = "yes";
    wnpu_segment segment;
    wnpu_session *own = NULL;
    wnpu_config c = life_config(1); /* qemu-user fails at threads in a forked child */
    int bad = 0;
    choice.struct_size = sizeof choice;
    alarm(600);
    bad |= (wnpu_transcribe(s, &p, a) != WNPU_E_STATE) << 0;
    bad |= (strstr(wnpu_session_error(s), "fork") == NULL) << 1;
    bad |= (wnpu_resume(s, &p, a) != WNPU_E_STATE) << 2;
    bad |= (wnpu_reset(s) != WNPU_E_STATE) << 3;
    bad |= (wnpu_snapshot(s, block, sizeof block) != WNPU_E_STATE) << 4;
    bad |= (wnpu_restore(s, block, sizeof block) != WNPU_E_STATE) << 4;
    bad |= (wnpu_choose(s, &p, a, &phrase, 1, &choice) != WNPU_E_STATE) << 5;
    bad |= (wnpu_detect_language(s, a, NULL, 0) != WNPU_E_STATE ||
            wnpu_detect_speech(s, &p, a) != WNPU_E_STATE) << 5;
    bad |= (wnpu_get_segment(s, 0, &segment) != WNPU_OK) << 6;
    wnpu_session_close(s);
    /* The model is shared, and the child may have a session of its own. */
    if (wnpu_session_open(&own, m, &c, NULL, 0, NULL) != WNPU_OK ||
        wnpu_transcribe(own, &p, a) != WNPU_OK) {
        bad |= 1 << 7;
    }
    wnpu_session_close(own);
    return bad;
}

static void forked(void)
{
    wnpu_model *m = life_toy(7, NULL);
    size_t n = 16000 * 10;
    float *x = life_sound(n);
    wnpu_audio a = life_audio(x, n);
    unsigned threads;
    for (threads = 1; threads <= 3; threads++) {
        wnpu_session *s = life_session(m, threads);
        wnpu_params p = life_params();
        int status = -1;
        pid_t child;
        T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
        fflush(stdout);
        child = fork();
        if (child == 0) {
            _exit(child_of(s, &a, m));
        }
        T_CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
                WEXITSTATUS(status) == 0, "%u threads: the child ended with %x", threads,
                (unsigned)status);
        T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "the parent goes on: %s",
                wnpu_session_error(s));
        wnpu_session_close(s);
    }
    free(x);
    wnpu_model_close(m);
}

/* ---- sizes of structures ---- */

#define ROOM 70000u

/* Calls one getter with a structure of that size in a room of 0xa5; the size stays in it. */
typedef int (*getter)(wnpu_session *s, void *room);

static int get_stats(wnpu_session *s, void *room) { return wnpu_get_stats(s, room); }
static int get_memory(wnpu_session *s, void *room) { return wnpu_get_memory(s, room); }
static int get_word(wnpu_session *s, void *room) { return wnpu_get_word(s, 0, 0, room); }
static int get_accel(wnpu_session *s, void *room) { return wnpu_get_accel_stats(s, room); }
static int get_info(wnpu_session *s, void *room)
{
    return wnpu_model_get_info(s->run.engine.model, room);
}
static int get_choice(wnpu_session *s, void *room)
{
    static const char *const phrases[] = {"yes", "no"};
    static float x[16000];
    wnpu_audio a = life_audio(x, 16000);
    wnpu_params p = life_params();
    return wnpu_choose(s, &p, &a, phrases, 2, room);
}

static void getters_are_bounded(void)
{
    static unsigned char room[ROOM];
    static const struct { const char *name; getter get; size_t size; } list[] = {
        {"wnpu_get_word", get_word, sizeof(wnpu_word)},
        {"wnpu_get_stats", get_stats, sizeof(wnpu_stats)},
        {"wnpu_get_memory", get_memory, sizeof(wnpu_memory)},
        {"wnpu_get_accel_stats", get_accel, sizeof(wnpu_accel_stats)},
        {"wnpu_model_get_info", get_info, sizeof(wnpu_model_info)},
        {"wnpu_choose", get_choice, sizeof(wnpu_choice)}
    };
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = life_session(m, 1);
    size_t n = 16000 * 10, i, k, j;
    float *x = life_sound(n);
    wnpu_audio a = life_audio(x, n);
    wnpu_params p = life_params();
    p.words = 1;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK && wnpu_word_count(s, 0) > 0, "%s",
            wnpu_session_error(s));
    for (i = 0; i < sizeof list / sizeof list[0]; i++) {
        const size_t ours = list[i].size;
        const size_t good[] = {4, 8, ours - 4, ours, ours + 4, ours + ER_NEWER};
        const size_t bad[] = {0, 1, 3, 6, ours + 1, ours + ER_NEWER + 4, 4096, 65536, 69000,
                              0xa5a5a5a5u, 0xfffffffcu};
        for (k = 0; k < sizeof good / sizeof good[0]; k++) {
            uint32_t size = (uint32_t)good[k], kept;
            memset(room, 0xa5, sizeof room);
            memcpy(room, &size, 4);
            T_CHECK(list[i].get(s, room) == WNPU_OK, "%s of %u", list[i].name, (unsigned)size);
            memcpy(&kept, room, 4);
            T_CHECK(kept == size, "%s: size %u became %u", list[i].name, (unsigned)size,
                    (unsigned)kept);
            for (j = size; j < sizeof room && room[j] == 0xa5; j++) {
            }
            T_CHECK(j == sizeof room, "%s of %u wrote to byte %lu", list[i].name, (unsigned)size,
                    (unsigned long)j);
            for (j = ours; j < size && room[j] == 0; j++) {
            }
            T_CHECK(j >= size, "%s of %u: what it does not know is not 0", list[i].name,
                    (unsigned)size);
        }
        for (k = 0; k < sizeof bad / sizeof bad[0]; k++) {
            uint32_t size = (uint32_t)bad[k];
            memset(room, 0xa5, sizeof room);
            memcpy(room, &size, 4);
            T_CHECK(list[i].get(s, room) == WNPU_E_ARGUMENT, "%s of %u", list[i].name,
                    (unsigned)size);
            for (j = 4; j < sizeof room && room[j] == 0xa5; j++) {
            }
            T_CHECK(j == sizeof room, "%s of %u wrote to byte %lu", list[i].name, (unsigned)size,
                    (unsigned long)j);
        }
    }
    memset(room, 0xa5, sizeof room);
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(wnpu_get_segment_sized(s, 0, (wnpu_segment *)(void *)room, sizeof room) ==
            WNPU_E_ARGUMENT && room[0] == 0xa5 && room[sizeof room - 1] == 0xa5, "segment");
    T_CHECK(wnpu_get_segment_sized(s, 0, (wnpu_segment *)(void *)room, sizeof(wnpu_segment) + 8) ==
            WNPU_OK && room[sizeof(wnpu_segment)] == 0 && room[sizeof(wnpu_segment) + 8] == 0xa5,
            "a newer segment");
    free(x);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

static void init_params(void *room, size_t size) { wnpu_params_init(room, size); }
static void init_config(void *room, size_t size) { wnpu_config_init(room, size); }
static void init_model(void *room, size_t size) { wnpu_model_config_init(room, size); }
static void init_audio(void *room, size_t size) { wnpu_audio_init(room, size); }

/* A size that cannot be right is noted as 0, which every function refuses. */
static void initialisers_are_bounded(void)
{
    static unsigned char room[ROOM];
    static const struct { const char *name; void (*init)(void *room, size_t size); size_t size; }
        list[] = {
            {"wnpu_params_init", init_params, sizeof(wnpu_params)},
            {"wnpu_config_init", init_config, sizeof(wnpu_config)},
            {"wnpu_model_config_init", init_model, sizeof(wnpu_model_config)},
            {"wnpu_audio_init", init_audio, sizeof(wnpu_audio)}
        };
    size_t i, k, j;
    for (i = 0; i < sizeof list / sizeof list[0]; i++) {
        const size_t ours = list[i].size;
        const size_t sizes[] = {4, ours - 8, ours, ours + ER_NEWER, ours + 2, ours + ER_NEWER + 4,
                                65536, (size_t)-1};
        for (k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            uint32_t size = 1;
            memset(room, 0xa5, sizeof room);
            list[i].init(room, sizes[k]);
            memcpy(&size, room, 4);
            T_CHECK(size == (k < 4 ? sizes[k] : 0), "%s of %lu: says %u", list[i].name,
                    (unsigned long)sizes[k], (unsigned)size);
            for (j = k < 4 ? sizes[k] : 4; j < sizeof room && room[j] == 0xa5; j++) {
            }
            T_CHECK(j == sizeof room, "%s of %lu wrote to byte %lu", list[i].name,
                    (unsigned long)sizes[k], (unsigned long)j);
        }
    }
}

/* ---- CPUs ---- */

static void put_file(const char *root, const char *path, const char *text)
{
    char full[1024], *at;
    FILE *file;
    (void)snprintf(full, sizeof full, "%s%s", root, path);
    for (at = full + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(full, 0700);
        *at = '/';
    }
    file = fopen(full, "w");
    T_CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0, "cannot write %s", full);
}

static void quotas(void)
{
#if defined(WNPU_LINUX)
    static const struct { const char *groups, *file, *text, *file2, *text2; unsigned want; } list[] =
    {
        {"0::/\n", "/sys/fs/cgroup/cpu.max", "200000 100000\n", NULL, NULL, 2},
        {"0::/\n", "/sys/fs/cgroup/cpu.max", "max 100000\n", NULL, NULL, UINT_MAX},
        {"0::/\n", "/sys/fs/cgroup/cpu.max", "50000 100000\n", NULL, NULL, 1},
        {"0::/\n", "/sys/fs/cgroup/cpu.max", "150000 100000\n", NULL, NULL, 2},
        {"0::/a/b\n", "/sys/fs/cgroup/a/b/cpu.max", "300000 100000\n",
         "/sys/fs/cgroup/a/cpu.max", "100000 100000\n", 1},
        {"0::/a/b\n", "/sys/fs/cgroup/a/b/cpu.max", "300000 100000\n",
         "/sys/fs/cgroup/a/cpu.max", "max 100000\n", 3},
        {"0::/not/here\n", "/sys/fs/cgroup/cpu.max", "400000 100000\n", NULL, NULL, 4},
        {"0::/../..\n", "/sys/fs/cgroup/cpu.max", "400000 100000\n", NULL, NULL, 4},
        {"0::/\n", "/sys/fs/cgroup/cpu.max", "100000", NULL, NULL, UINT_MAX},
        {"0::/\n", "/sys/fs/cgroup/cpu.max", "0 0\n", NULL, NULL, UINT_MAX},
        {"0::/\n", "/sys/fs/cgroup/cpu.max", "99999999999999999999999 100000\n", NULL, NULL,
         UINT_MAX},
        {"4:cpu,cpuacct:/x\n1:name=systemd:/\n0::/\n", "/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us",
         "250000\n", "/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n", 3},
        {"3:cpuacct,cpu:/docker/1234\n", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n",
         "/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n", 1},
        {"3:cpuset:/x\n", "/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "100000\n",
         "/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n", UINT_MAX},
        {"3:cpu:/x\n", "/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n",
         "/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n", UINT_MAX},
        {"nonsense\n:\n::\n0::/", "/sys/fs/cgroup/cpu.max", "200000 100000\n", NULL, NULL, 2}
    };
    size_t i;
    char root[] = "/tmp/wnpu_quota_XXXXXX", command[64];
    T_CHECK(mkdtemp(root) != NULL, "no directory");
    T_CHECK(os_quota(root) == UINT_MAX, "without files there is no limit");
    for (i = 0; i < sizeof list / sizeof list[0]; i++) {
        unsigned is;
        (void)snprintf(command, sizeof command, "rm -rf %s/sys %s/proc", root, root);
        T_CHECK(system(command) == 0, "%s", command);
        put_file(root, "/proc/self/cgroup", list[i].groups);
        put_file(root, list[i].file, list[i].text);
        if (list[i].file2 != NULL) {
            put_file(root, list[i].file2, list[i].text2);
        }
        is = os_quota(root);
        T_CHECK(is == list[i].want, "case %lu: %u CPUs, expected %u", (unsigned long)i, is,
                list[i].want);
    }
    (void)snprintf(command, sizeof command, "rm -rf %s", root);
    T_CHECK(system(command) == 0, "%s", command);
#else
    t_skip("only for Linux");
#endif
}

static void affinity(void)
{
#if defined(WNPU_LINUX)
    cpu_set_t all, one;
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = NULL;
    wnpu_stats stats;
    size_t n = 16000;
    float *x = life_sound(n);
    wnpu_audio a = life_audio(x, n);
    wnpu_params p = life_params();
    size_t cpu = 0;
    T_CHECK(sched_getaffinity(0, sizeof all, &all) == 0, "no affinity");
    T_CHECK(os_affinity() == (unsigned)CPU_COUNT(&all), "%u CPUs", os_affinity());
    while (!CPU_ISSET(cpu, &all)) {
        cpu++;
    }
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    T_CHECK(sched_setaffinity(0, sizeof one, &one) == 0, "cannot be set");
    T_CHECK(os_cpus() == 1, "%u CPUs on one", os_cpus());
    T_CHECK(wnpu_default_threads() == 1, "%u threads on one", (unsigned)wnpu_default_threads());
    T_CHECK(wnpu_session_open(&s, m, NULL, NULL, 0, NULL) == WNPU_OK, "session");
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    T_CHECK(wnpu_get_stats(s, &stats) == WNPU_OK && stats.threads == 1, "%d threads on one CPU",
            (int)stats.threads);
    T_CHECK(sched_setaffinity(0, sizeof all, &all) == 0, "cannot be set back");
    free(x);
    wnpu_session_close(s);
    wnpu_model_close(m);
#else
    t_skip("only for Linux");
#endif
}

/* ---- callbacks and cancelled runs ---- */

static void force_text(void *user, const int32_t *tokens, size_t n, float *logits, size_t vocab)
{
    (void)user;
    (void)tokens;
    if (n == 0) { /* where a timestamp is due */
        logits['A'] = 1e38f;
    } else if (n == 3) {
        logits[vocab - 1] = 1e38f; /* 30 s */
    } else if (n == 4) {
        logits[vocab - 1400] = 1e38f; /* and back */
    }
}

static void forced_text(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_session *s = life_session(m, 1);
    size_t n = 16000 * 40, i, k;
    float *x = life_sound(n);
    wnpu_audio a = life_audio(x, n);
    wnpu_params p = life_params();
    wnpu_segment g;
    life_bytes srt;
    int64_t at = 0;
    p.on_logits = force_text;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(wnpu_segment_count(s) > 1, "%lu segments", (unsigned long)wnpu_segment_count(s));
    for (i = 0; wnpu_get_segment(s, i, &g) == WNPU_OK; i++) {
        T_CHECK(g.t0_ms >= at && g.t0_ms <= g.t1_ms && g.t1_ms <= 40000, "segment %lu: %ld to %ld",
                (unsigned long)i, (long)g.t0_ms, (long)g.t1_ms);
        at = g.t0_ms;
        for (k = 0; k < g.n_tokens; k++) {
            T_CHECK(g.tokens[k].probability >= 0.0f && g.tokens[k].probability <= 1.0f,
                    "probability %g", (double)g.tokens[k].probability);
        }
    }
    srt = life_written(s, WNPU_FORMAT_SRT);
    T_CHECK(strncmp(srt.bytes, "1\n00:00:00,", 11) == 0 && strchr(srt.bytes, '-') != NULL,
            "%.40s", srt.bytes);
    free(srt.bytes);
    free(x);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

static int stop_now(void *user, int64_t done_ms, int64_t total_ms)
{
    int *calls = user;
    (void)done_ms;
    (void)total_ms;
    ++*calls;
    return 1;
}

/* A batch session reads ahead: the ledger ends with what was read, and spans of speech where the
 * ends of the windows so far were decided. */
static void cancelled_batch(void)
{
    wnpu_model *m = life_toy(7, NULL);
    wnpu_config c = life_config(1);
    wnpu_session *s;
    size_t n = 16000 * 130, i;
    float *x = voicelike(n, 1);
    wnpu_audio a = life_audio(x, n);
    wnpu_params p = life_params();
    wnpu_stats stats;
    wnpu_ledger_span span;
    wnpu_speech_span speech;
    int64_t end = 0, last = 0;
    int calls = 0;
    c.batch = 4;
    s = life_open(m, &c);
    p.vad = 1;
    p.pause_ms = 3000; /* the first window reaches nearly 30 s */
    p.on_progress = stop_now;
    p.user = &calls;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_E_CANCELLED, "%s", wnpu_session_error(s));
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    T_CHECK(wnpu_get_stats(s, &stats) == WNPU_OK, "stats");
    for (i = 0; wnpu_get_speech_span(s, i, &speech) == WNPU_OK; i++) {
        last = speech.t1_ms;
    }
    for (i = 0; wnpu_get_ledger_span(s, i, &span) == WNPU_OK; i++) {
        T_CHECK(span.t0_ms == end, "a gap at %ld", (long)end);
        end = span.t1_ms;
    }
    T_CHECK(last > 25000 && last <= stats.audio_ms && end == stats.audio_ms && end <= 130000,
            "speech to %ld, ledger to %ld, audio to %ld ms", (long)last, (long)end,
            (long)stats.audio_ms);
    free(x);
    wnpu_session_close(s);
    wnpu_model_close(m);
}

/* ---- progress inside a window ---- */

typedef struct watch {
    wnpu_session *session;
    int calls, inside, stop_at;
    int64_t done_ms;
    size_t size;
    unsigned char *block;
} watch;

static int look_at(void *user, int64_t done_ms, int64_t total_ms)
{
    watch *w = user;
    T_CHECK(done_ms >= w->done_ms && done_ms <= total_ms, "%ld after %ld ms of %ld", (long)done_ms,
            (long)w->done_ms, (long)total_ms);
    w->done_ms = done_ms;
    w->calls++;
    w->inside += done_ms > 0 && done_ms < total_ms;
    if (w->stop_at > 0 && w->calls >= w->stop_at) {
        w->size = wnpu_snapshot_size(w->session);
        w->block = realloc(w->block, w->size);
        T_CHECK(wnpu_snapshot(w->session, w->block, w->size) == WNPU_OK, "inside a window: %s",
                wnpu_session_error(w->session));
        return 1;
    }
    return 0;
}

/* A window of some tenths of a second on plain C: the host hears of it meanwhile, can stop it and go on. */
static void inside_a_window(void)
{
    toy_options o = toy_small();
    wnpu_model *m = NULL;
    wnpu_config c = life_config(1);
    wnpu_session *s, *other;
    size_t size = 0, n = 16000 * 20;
    unsigned char *file;
    float *x = life_sound(n);
    wnpu_audio a = life_audio(x, n);
    wnpu_params p = life_params();
    life_bytes want, is;
    watch w;
    int status, stops = 0;
    memset(&w, 0, sizeof w);
    o.state = 128;
    o.audio_layer = 6;
    file = toy_model(&o, &size);
    T_CHECK(wnpu_model_open_memory(&m, file, size, NULL, NULL) == WNPU_OK, "model");
    c.isa = WNPU_ISA_SCALAR;
    s = w.session = life_open(m, &c);
    other = life_open(m, &c);
    p.on_progress = look_at;
    p.user = &w;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_OK, "%s", wnpu_session_error(s));
    T_CHECK(w.inside > 0, "%d calls, none inside the window", w.calls);
    want = life_written(s, WNPU_FORMAT_JSON);
    w.calls = 0;
    w.done_ms = 0;
    w.stop_at = 1;
    T_CHECK(wnpu_transcribe(s, &p, &a) == WNPU_E_CANCELLED && w.calls == 1 && w.done_ms < 20000 &&
            wnpu_segment_count(s) == 0, "stops at once, after %d calls", w.calls);
    T_CHECK(wnpu_restore(other, w.block, w.size) == WNPU_OK, "%s", wnpu_session_error(other));
    w.session = other;
    do { /* a host that stops at each call still comes to the end */
        w.done_ms = 0;
        status = wnpu_resume(other, &p, &a);
    } while (status == WNPU_E_CANCELLED && ++stops < 5);
    T_CHECK(status == WNPU_OK, "after %d stops: %s", stops, wnpu_session_error(other));
    is = life_written(other, WNPU_FORMAT_JSON);
    T_CHECK(life_alike(is, want), "another output");
    free(is.bytes);
    free(want.bytes);
    free(w.block);
    free(file);
    free(x);
    wnpu_session_close(s);
    wnpu_session_close(other);
    wnpu_model_close(m);
}

int main(void)
{
    t_run("one answer in every floating-point environment", environment_is_ours);
    t_run("self test and snapshots in another environment", environment_of_the_rest);
    t_run("a forked child is refused and can close", forked);
    t_run("getters refuse sizes that cannot be right", getters_are_bounded);
    t_run("initialisers refuse sizes that cannot be right", initialisers_are_bounded);
    t_run("quotas of control groups", quotas);
    t_run("affinity decides the number of threads", affinity);
    t_run("tokens that a callback forces break no times", forced_text);
    t_run("a cancelled batch run accounts for what it read", cancelled_batch);
    t_run("progress, snapshots and stops inside a window", inside_a_window);
    return t_end();
}
