/* test_forged.c - snapshots with wrong values under a right checksum: each word of a good one is
 * replaced by values that tempt. What is refused leaves the session as it was; what is taken has to
 * survive all writers and another snapshot, and a window now and then. tests/fuzz_snapshot.c looks
 * for more. */
#include "../whisper_npu.c"
#include "life.h"
#include "voicelike.h"

static life_sounds sounds;
static wnpu_session *session;
static int taken, refused, gone_on;

static int enough(void *user, int64_t done_ms, int64_t total_ms)
{
    (void)total_ms;
    return done_ms >= *(int64_t *)user;
}

/* Until stop_ms, from the beginning or onwards. */
static int run(int onwards, int64_t stop_ms)
{
    wnpu_params p;
    life_mode_params(&sounds, LIFE_WORDS, 1, &p);
    p.vad = 1;
    p.max_tokens = 8;
    p.on_progress = enough;
    p.user = &stop_ms;
    return onwards ? wnpu_resume(session, &p, &sounds.plain)
                   : wnpu_transcribe(session, &p, &sounds.plain);
}

static int64_t nowhere(void *user, const void *data, size_t size)
{
    (void)user;
    (void)data;
    return (int64_t)size;
}

static void sign(unsigned char *block, size_t size)
{
    uint64_t sum = mf_checksum(block + offsetof(sn_head, model), size - offsetof(sn_head, model));
    memcpy(block + offsetof(sn_head, checksum), &sum, sizeof sum);
}

/* Restores the block with size bytes at where replaced. */
static void forge(const unsigned char *good, unsigned char *block, size_t n, size_t where,
                  const void *value, size_t size)
{
    static unsigned char again[8 << 20];
    static life_text before, after;
    int status;
    memcpy(block + where, value, size);
    sign(block, n);
    life_json(session, &before);
    status = wnpu_restore(session, block, n);
    memcpy(block + where, good + where, size);
    life_json(session, &after);
    if (status != WNPU_OK) {
        refused++;
        T_CHECK(status == WNPU_E_ARGUMENT, "at %lu: status %d", (unsigned long)where, status);
        T_CHECK(life_same(&before, &after), "at %lu: refused, but results changed",
                (unsigned long)where);
        return;
    }
    taken++;
    T_CHECK(wnpu_write(session, WNPU_FORMAT_VTT, nowhere, NULL) == WNPU_OK, "writes");
    n = wnpu_snapshot_size(session);
    T_CHECK(n > 0 && n <= sizeof again && wnpu_snapshot(session, again, n) == WNPU_OK &&
            wnpu_restore(session, again, n) == WNPU_OK, "at %lu: %s", (unsigned long)where,
            wnpu_session_error(session));
    if (taken % 400 == 1) {
        gone_on++;
        (void)run(1, 0);
        life_json(session, &after);
    }
}

static void words(const unsigned char *good, size_t n, size_t from, size_t to)
{
    static const uint32_t values[] = {0, 1, 0x7f, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff,
                                      0x7fc00000};
    unsigned char *block = malloc(n);
    uint64_t wide;
    size_t at, i;
    memcpy(block, good, n);
    for (at = from; at + 8 <= to; at += 4) {
        for (i = 0; i < sizeof values / sizeof values[0]; i++) {
            forge(good, block, n, at, &values[i], sizeof values[i]);
        }
        memcpy(&wide, good + at, sizeof wide);
        for (i = 0; i < 4 && at % 8 == 0; i++) {
            uint64_t change = i == 0 ? wide + 1 : i == 1 ? wide - 1 : i == 2 ? wide + 8 : ~wide;
            forge(good, block, n, at, &change, sizeof change);
        }
    }
    free(block);
}

/* The model's second window has begun; what is left of the audio is short. */
static void all_words(void)
{
    size_t n, results, state = sizeof(sn_head);
    unsigned char *good;
    sn_state s;
    T_CHECK(run(0, 0) == WNPU_E_CANCELLED && wnpu_segment_count(session) > 0, "%s",
            wnpu_session_error(session));
    n = wnpu_snapshot_size(session);
    good = malloc(n);
    T_CHECK(n > 0 && wnpu_snapshot(session, good, n) == WNPU_OK, "%s",
            wnpu_session_error(session));
    memcpy(&s, good + state, sizeof s);
    results = n - (size_t)s.used - (size_t)s.count * sizeof(uint32_t);
    T_CHECK(s.speech.count > 0 && s.ledger.count > 0 && s.voice.seen > 0, "has all parts");
    words(good, n, state, state + offsetof(sn_state, mark) + offsetof(wi_mark, heard) + 16);
    words(good, n, results, n - results > 1600 ? results + 1600 : n);
    words(good, n, n - s.count * sizeof(uint32_t), n);
    printf("  %d refused, %d taken, %d continued\n", refused, taken, gone_on);
    T_CHECK(refused > 1000 && gone_on > 0, "too few");
    free(good);
}

int main(void)
{
    wnpu_model *m = life_toy(7, NULL);
    session = life_session(m, 1);
    life_derive_sounds(&sounds, voicelike(16000 * 31, 1), 31);
    t_run("words of a snapshot replaced under a right checksum", all_words);
    wnpu_session_close(session);
    wnpu_model_close(m);
    life_free_sounds(&sounds);
    return t_end();
}
