/* Limits of ju_: each judgement on both sides of its limit. A limit that moves fails here, and so
 * does a judgement that compares with another one. */

/* A row of a table of limits. */
typedef struct judge_row {
    size_t what;
    int64_t least_ms;
} judge_row;

/* Checks that a table has these n rows, in this order, and where each begins to hold. */
static void limits_of_rows(const judge_row *of, size_t n, size_t rows,
                           int (*holds)(size_t what, int64_t ms))
{
    size_t i;
    T_CHECK(n == rows, "all rows");
    for (i = 0; i < n; i++) {
        T_CHECK(of[i].what == i, "row %d has another place", (int)i);
        T_CHECK(holds(of[i].what, of[i].least_ms) && !holds(of[i].what, of[i].least_ms - 1),
                "row %d", (int)i);
    }
}

/* ---- pauses ---- */

static int pause_holds(size_t what, int64_t ms) { return ju_is_pause((ju_pause)what, ms); }

static void limits_of_pauses(void)
{
    static const judge_row of[] = {
        {JU_WORDS, 60}, {JU_CUT, 200}, {JU_TURN, 300}, {JU_AHEAD, 400}, {JU_NO_WORD, 500},
        {JU_SPANS, 1000}, {JU_BEHIND, 1000}, {JU_NOISE, 1001}, {JU_CONFIRMED, 2000},
        {JU_BEFORE, 2000}};
    limits_of_rows(of, sizeof of / sizeof of[0], sizeof ju_pause_ms / sizeof ju_pause_ms[0],
                   pause_holds);
    T_CHECK(ju_is_quiet(1.0, 32.0, 1) && !ju_is_quiet(1.0, 31.999, 1), "silence is 15 dB below");
    T_CHECK(ju_is_quiet(1.0, 4.0, 0) && !ju_is_quiet(1.0, 3.999, 0), "a pause is 6 dB below");
    T_CHECK(ju_is_quiet(0.0, 0.0, 1), "nothing is as quiet as nothing");
}

static void quiet_levels(void)
{
    T_CHECK(ju_quiet_level(40, 59) == 0, "a range of 19 dB has no pauses");
    T_CHECK(ju_quiet_level(40, 60) == 45, "a quarter of 20 dB: %d", ju_quiet_level(40, 60));
    T_CHECK(ju_quiet_level(40, 92) == 53, "of 52: %d", ju_quiet_level(40, 92));
    T_CHECK(ju_quiet_level(40, 100) == 60, "40 dB below the loudest: %d", ju_quiet_level(40, 100));
}

/* ---- coverage ---- */

static int amount_holds(size_t what, int64_t ms) { return ju_is_enough((ju_amount)what, ms); }

static void limits_of_coverage(void)
{
    static const judge_row of[] = {
        {JU_A_PHRASE, 100}, {JU_A_TEXT, 200}, {JU_A_GAP, 1000}, {JU_A_PASSAGE, 3000},
        {JU_A_STEP, 200}, {JU_A_WINDOW, 1000}};
    limits_of_rows(of, sizeof of / sizeof of[0], sizeof ju_amount_ms / sizeof ju_amount_ms[0],
                   amount_holds);
    T_CHECK(ju_is_sparse(1500, 0, 1500) && !ju_is_sparse(1499, 0, 1500), "without a token");
    T_CHECK(ju_is_sparse(2250, 3, 1500) && !ju_is_sparse(2249, 3, 1500), "around three tokens");
    T_CHECK(ju_exceeds_error(501) && !ju_exceeds_error(500) && !ju_exceeds_error(-501),
            "error of timestamps");
    T_CHECK(ju_is_behind(500) && !ju_is_behind(499), "behind what was decoded");
    T_CHECK(ju_is_at_end(200) && ju_is_at_end(-20) && !ju_is_at_end(201), "end of an open window");
}

static void long_words(void)
{
    int64_t begin = 1000, end = 3000;
    ju_limit_word(2000, 2000, &begin, &end);
    T_CHECK(begin == 1000 && end == 3000, "two seconds may be a word");
    end = 3001;
    ju_limit_word(2000, 2000, &begin, &end);
    T_CHECK(begin == 1300 && end == 2900, "around its place: %d to %d", (int)begin, (int)end);
    begin = 1000;
    end = 4000;
    ju_limit_word(1500, 3500, &begin, &end);
    T_CHECK(begin == 1000 && end == 4000, "but inside of it: %d to %d", (int)begin, (int)end);
    ju_limit_word(500, 500, &begin, &end);
    T_CHECK(begin == 1000 && end == 1400, "a place before it: %d to %d", (int)begin, (int)end);
}

/* ---- repetition ---- */

/* The period of a text that says tokens 1..period so often, and the first `more` of them again. */
static size_t period_of(const ju_repetition *r, size_t period, size_t times, size_t more)
{
    int32_t latest[256];
    size_t n = period * times + more, i;
    for (i = 0; i < n; i++) {
        latest[n - 1 - i] = 1 + (int32_t)(i % period);
    }
    latest[n] = 0;
    return ju_period(r, latest, n + 1);
}

static void limits_of_periods(void)
{
    T_CHECK(period_of(&ju_loop, 5, 3, 4) == 0 && period_of(&ju_loop, 5, 4, 0) == 5,
            "short ones at the fourth occurrence");
    T_CHECK(period_of(&ju_loop, 6, 2, 5) == 0 && period_of(&ju_loop, 6, 3, 0) == 6,
            "long ones at the third");
    T_CHECK(period_of(&ju_loop, 1, 15, 0) == 0 && period_of(&ju_loop, 1, 16, 0) == 1,
            "of 16 tokens at least");
    T_CHECK(period_of(&ju_loop, 32, 3, 0) == 32 && period_of(&ju_loop, 33, 3, 0) == 0,
            "and periods of 32 at most");
    T_CHECK(period_of(&ju_twice, 1, 2, 0) == 1 && period_of(&ju_twice, 7, 2, 0) == 7 &&
            period_of(&ju_twice, 100, 2, 0) == 100 && period_of(&ju_twice, 7, 1, 6) == 0,
            "a sentence that is said again");
    T_CHECK(ju_judged_again(5) == 6 && ju_judged_again(7) == 7, "when it is judged again");
    T_CHECK(!ju_is_evidence(2) && ju_is_evidence(3), "occurrences");
}

/* Parts that are alike, and the first of them that the audio does not support. */
static size_t supported_of(int64_t ms, int64_t inner_ms, int64_t voice_ms, size_t letters,
                           float near)
{
    ju_part part[4];
    size_t i;
    for (i = 0; i < 4; i++) {
        part[i].ms = ms;
        part[i].inner_ms = inner_ms;
        part[i].voice_ms = voice_ms;
        part[i].letters = letters;
        part[i].near = near;
    }
    return ju_supported(part, 4);
}

static void limits_of_support(void)
{
    ju_part part[4];
    size_t i;
    T_CHECK(supported_of(300, 200, 150, 10, 0.1401f) == 4, "speech");
    T_CHECK(supported_of(300, 200, 150, 10, 0.1399f) == 0, "attention is elsewhere");
    T_CHECK(supported_of(299, 200, 150, 10, 0.2f) == 0, "too fast");
    T_CHECK(supported_of(300, 200, 149, 10, 0.2f) == 0, "too little voice for its letters");
    T_CHECK(supported_of(300, 200, -1, 10, 0.2f) == 4, "voice is not known");
    T_CHECK(supported_of(800, 400, 200, 10, 0.2f) == 4 &&
            supported_of(800, 402, 200, 10, 0.2f) == 0, "half of it has no voice");
    for (i = 0; i < 4; i++) {
        part[i].ms = i < 2 ? 2000 : 250;
        part[i].inner_ms = i < 2 ? 400 : 100;
        part[i].voice_ms = i < 2 ? 2000 : 250;
        part[i].letters = 10;
        part[i].near = 0.2f;
    }
    T_CHECK(ju_supported(part, 4) == 4, "two parts in a quarter of the time: %d",
            (int)ju_supported(part, 4));
    part[2].inner_ms = part[3].inner_ms = 99;
    T_CHECK(ju_supported(part, 4) == 2, "in less the path stalls: %d", (int)ju_supported(part, 4));
}

static void limits_of_sound(void)
{
    wnpu_params p;
    wnpu_params_init(&p, sizeof p);
    T_CHECK(ju_can_recur(2, 40) && !ju_can_recur(2, 39) && ju_can_recur(4, 120) &&
            !ju_can_recur(4, 119) && !ju_can_recur(1, 100), "parts of 0.8 s can be compared");
    T_CHECK(ju_is_sound(6) && !ju_is_sound(5), "and single ones of 120 ms");
    T_CHECK(ju_recurs(86.0f, 100.0f) && !ju_recurs(86.1f, 100.0f) && ju_recurs(0.0f, 0.0f),
            "distances");
    T_CHECK(ju_is_compressible(&p, 2.41f) && !ju_is_compressible(&p, 2.4f), "compression ratio");
    p.compression_threshold = 0.0f;
    T_CHECK(!ju_is_compressible(&p, 100.0f), "no gate");
    T_CHECK(ju_ends_at_loop(2, 1000) && !ju_ends_at_loop(3, 1000) && !ju_ends_at_loop(2, 999),
            "windows that are cut before a loop");
}

/* ---- belief ---- */

static ju_origin origin_of(float no_speech, float mean_logprob)
{
    ju_origin o;
    memset(&o, 0, sizeof o);
    o.no_speech = no_speech;
    o.mean_logprob = mean_logprob;
    o.accepted = 1;
    return o;
}

static void limits_of_gates(void)
{
    ju_origin good = origin_of(0.0f, -0.5f), o;
    wnpu_params p;
    wnpu_params_init(&p, sizeof p);
    T_CHECK(ju_refusals(&p, &good, 0) == 0 && ju_refusals(&p, &good, 1) == WNPU_REFUSED_LOOP,
            "a good text, and a loop");
    o = origin_of(0.6f, -1.0f);
    T_CHECK(ju_refusals(&p, &o, 0) == 0, "a threshold is not below itself");
    o.mean_logprob = -1.01f;
    T_CHECK(ju_refusals(&p, &o, 0) == WNPU_REFUSED_LOGPROB, "improbable");
    o.no_speech = 0.61f;
    T_CHECK(ju_refusals(&p, &o, 1) == 0, "silence is not decoded again");
    T_CHECK(ju_is_silence(&p, &o), "it is silence");
    o.mean_logprob = -1.0f;
    T_CHECK(ju_is_silence(&p, &o) && ju_refusals(&p, &o, 1) == WNPU_REFUSED_LOOP,
            "so it is at the threshold, where the gate is passed");
    o.mean_logprob = -0.99f;
    T_CHECK(!ju_is_silence(&p, &o), "probable text is none");
    p.logprob_threshold = -INFINITY;
    T_CHECK(ju_is_silence(&p, &o) && ju_refusals(&p, &o, 1) == WNPU_REFUSED_LOOP, "without gate");
    good.first_logprob = -1.6f;
    T_CHECK(ju_refusals(&p, &good, 0) == 0, "no gate of the first token");
    p.first_logprob_threshold = -1.5f;
    T_CHECK(ju_refusals(&p, &good, 0) == WNPU_REFUSED_FIRST_TOKEN, "a gate");
    good.compression_ratio = 2.5f;
    T_CHECK(ju_refusals(&p, &good, 0) == (WNPU_REFUSED_FIRST_TOKEN | WNPU_REFUSED_COMPRESSION),
            "two gates");
    T_CHECK(ju_passes(0, 0) && ju_passes(WNPU_REFUSED_LOOP, 1), "what passes");
    T_CHECK(!ju_passes(WNPU_REFUSED_LOOP, 0) &&
            !ju_passes(WNPU_REFUSED_LOOP | WNPU_REFUSED_LOGPROB, 1), "and not");
}

static void limits_of_fallback(void)
{
    ju_origin a = origin_of(0.0f, -0.5f), b = origin_of(0.0f, -0.6f);
    wnpu_params p;
    wnpu_params_init(&p, sizeof p);
    T_CHECK(ju_is_better(&p, &a, 0, &b, 0) && !ju_is_better(&p, &b, 0, &a, 0) &&
            !ju_is_better(&p, &a, 0, &a, 0), "the more probable one");
    T_CHECK(ju_is_better(&p, &b, 0, &a, 1) && !ju_is_better(&p, &a, 1, &b, 0), "no loop before");
    a.compression_ratio = 2.5f;
    T_CHECK(ju_is_better(&p, &b, 0, &a, 0), "nor repetition");
    T_CHECK(ju_is_better(&p, &a, 0, &b, 1), "a loop is worse than that");
    T_CHECK(!ju_is_too_hot(&p, 1.0f) && !ju_is_too_hot(&p, 0.2f + 4.0f * 0.2f) &&
            ju_is_too_hot(&p, 1.00001f) && ju_has_fallback(&p), "up to 1, if that is rounded");
    p.temperature_step = 0.0f;
    T_CHECK(ju_is_too_hot(&p, 0.2f) && !ju_has_fallback(&p), "no higher ones");
    a.temperature = 0.5f;
    b.temperature = 0.4f;
    T_CHECK(!ju_is_context(&a) && ju_is_context(&b), "context is not random");
    b.accepted = 0;
    T_CHECK(!ju_is_context(&b), "and accepted");
}

static void limits_of_doubt(void)
{
    ju_claim claim = {9999, 1.0f, 1.0f, 0, 0};
    ju_origin o = origin_of(0.6f, -1.0f);
    wnpu_params p;
    wnpu_params_init(&p, sizeof p);
    T_CHECK(!ju_is_unreliable(&p, &o, &claim), "at the limit");
    o.mean_logprob = -1.001f;
    T_CHECK(ju_is_unreliable(&p, &o, &claim), "above it");
    o = origin_of(0.6f, -0.75f);
    claim.voice = claim.around = 0.401f; /* of 10 s, of which 1 s does not count */
    T_CHECK(!ju_is_unreliable(&p, &o, &claim), "half of 0.499");
    claim.voice = claim.around = 0.399f;
    T_CHECK(ju_is_unreliable(&p, &o, &claim), "half of 0.501");
    claim.around = 1.0f;
    T_CHECK(!ju_is_unreliable(&p, &o, &claim), "or that around it");
    claim.around = 0.0f;
    claim.voice = 0.0f;
    claim.ms = 1000;
    T_CHECK(!ju_is_unreliable(&p, &o, &claim), "a second says nothing");
    claim.no_letters = 1;
    T_CHECK(ju_is_unreliable(&p, &o, &claim), "no letters");
    claim.no_letters = 0;
    claim.copied = 1;
    T_CHECK(!ju_is_unreliable(&p, &o, &claim), "copied, and accepted");
    o.accepted = 0;
    T_CHECK(ju_is_unreliable(&p, &o, &claim), "copied, and refused");
    claim.copied = 0;
    o.temperature = 0.49f;
    T_CHECK(!ju_is_unreliable(&p, &o, &claim), "refused");
    o.temperature = 0.5f;
    T_CHECK(ju_is_unreliable(&p, &o, &claim), "the last resort");
}

/* ---- stability ---- */

static void limits_of_words(void)
{
    static const struct { float probability; int agreed; int64_t ms; } of[] = {
        {0.9f, 1, 300}, {0.89f, 1, 300}, {0.5f, 1, 300}, {0.49f, 1, 800},
        {0.9f, 0, 500}, {0.89f, 0, 1000}, {0.5f, 0, 1000}, {0.49f, 0, 1500}};
    ju_word w = {1.0f, 1, 0, 300};
    size_t i;
    for (i = 0; i < sizeof of / sizeof of[0]; i++) {
        w.probability = of[i].probability;
        w.agreed = of[i].agreed;
        T_CHECK(ju_hold_ms(&w, 500) == of[i].ms, "%d: %d ms", (int)i, (int)ju_hold_ms(&w, 500));
        w.followers = 2;
        w.rest_ms = of[i].ms;
        T_CHECK(ju_is_settled(&w, 500, 2), "%d: settled", (int)i);
        w.rest_ms--;
        T_CHECK(!ju_is_settled(&w, 500, 2), "%d: too soon", (int)i);
        w.rest_ms = 1599;
        w.followers = 1;
        T_CHECK(!ju_is_settled(&w, 500, 2), "%d: too few words behind it", (int)i);
        T_CHECK(ju_is_settled(&w, 500, 1) == (w.probability >= 0.5f), "%d: one follows", (int)i);
        w.rest_ms = 1600;
        w.followers = 0;
        T_CHECK(ju_is_settled(&w, 500, 4), "%d: alone", (int)i);
    }
    T_CHECK(ju_longest_ms(500) == 1600 && ju_longest_ms(600) == 1800, "the longest time");
    T_CHECK(ju_is_shown(0.9f, -1) && !ju_is_shown(0.89f, -1) && ju_is_shown(0.0f, 0), "shown");
    T_CHECK(ju_stays(1.0f, 3.0f, 0, 21) && !ju_stays(0.99f, 3.0f, 0, 21), "a former token");
    T_CHECK(!ju_stays(2.99f, 3.0f, 0, 20) && ju_stays(3.0f, 3.0f, 0, 20), "one of the last 20");
}

static void judge_tests(void)
{
    t_run("what a pause is", limits_of_pauses);
    t_run("levels of pauses", quiet_levels);
    t_run("how much voice needs text", limits_of_coverage);
    t_run("words longer than any", long_words);
    t_run("when a text repeats itself", limits_of_periods);
    t_run("when the audio does", limits_of_support);
    t_run("when the sound recurs", limits_of_sound);
    t_run("which gates refuse a decoding", limits_of_gates);
    t_run("which decoding is kept", limits_of_fallback);
    t_run("when a segment is unreliable", limits_of_doubt);
    t_run("when a word is final", limits_of_words);
}
