/* Tentative text: what is shown of one hypothesis after the other. */

typedef struct shown_step {
    const char *latest; /* text of the hypothesis */
    int complete;
    const char *shown;
    const char *likely; /* beginning of what is shown */
} shown_step;

static void show_steps(const char *name, const shown_step *step, size_t n)
{
    ru_run *r = calloc(1, sizeof *r);
    ru_tentative *t = &r->tentative;
    size_t i;
    for (i = 0; i < n; i++) {
        uint32_t revision = t->revision;
        int changes = strcmp(t->text, step[i].shown) != 0;
        memcpy(t->former, t->latest, t->n_latest);
        t->n_former = t->n_latest;
        t->n_latest = strlen(step[i].latest);
        memcpy(t->latest, step[i].latest, t->n_latest);
        t->events = 0;
        tt_show(&r->tentative, step[i].complete);
        T_CHECK(strcmp(t->text, step[i].shown) == 0 && t->length == strlen(t->text),
                "%s, %d: shows \"%s\", not \"%s\"", name, (int)i, t->text, step[i].shown);
        T_CHECK(t->likely == strlen(step[i].likely), "%s, %d: %d bytes likely, not %d", name,
                (int)i, (int)t->likely, (int)strlen(step[i].likely));
        T_CHECK(t->revision - revision == (uint32_t)changes &&
                (t->events == WNPU_EVENT_TENTATIVE) == changes, "%s, %d: %d changes, events %x",
                name, (int)i, (int)(t->revision - revision), t->events);
    }
    tt_clear(&r->tentative);
    T_CHECK(t->length == 0 && t->likely == 0 && t->text[0] == '\0', "%s: cleared", name);
    free(r);
}

#define SHOW(name, steps) show_steps(name, steps, sizeof(steps) / sizeof(steps)[0])

/* Two hypotheses in a row show a word, and two in a row withdraw it. */
static void shown_when_confirmed(void)
{
    static const shown_step grows[] = {
        {" the old", 0, "", ""},
        {" the old man went", 0, " the old", ""},
        {" the old man went home", 0, " the old man went", " the old"},
        {" the old man went home", 0, " the old man went", " the old man went"}};
    static const shown_step once[] = {
        {" the old man", 0, "", ""},
        {" the old man went", 0, " the old man", ""},
        {" the odd men went to", 0, " the old man", " the"},
        {" the old man went", 0, " the old man", " the"},
        {" the old man went home", 0, " the old man went", " the old man"}};
    static const shown_step twice[] = {
        {" the old man", 0, "", ""},
        {" the old man went", 0, " the old man", ""},
        {" the odd man went", 0, " the old man", " the"},
        {" the odd man went to", 0, " the odd man went", " the"},
        {" the odd man", 0, " the odd man went", " the odd"}};
    static const shown_step less[] = { /* what one confirms stays, wherever the other differs */
        {" a b c d", 0, "", ""},
        {" a b c d e", 0, " a b c d", ""},
        {" a x", 0, " a b c d", " a"},
        {" a b y d e f", 0, " a b", " a"}};
    static const shown_step empty[] = {
        {" yes", 1, " yes", ""}, {"", 0, " yes", ""}, {"", 0, "", ""}};
    SHOW("growing", grows);
    SHOW("contradicted once", once);
    SHOW("contradicted twice", twice);
    SHOW("confirmed in part", less);
    SHOW("no text", empty);
}

/* Behind the last word the audio goes on: nothing of the text can be cut. */
static void shown_when_complete(void)
{
    static const shown_step adds[] = {
        {" good", 0, "", ""},
        {" good morning", 1, " good morning", ""},
        {" good morning all", 1, " good morning all", " good morning"}};
    static const shown_step differs[] = {
        {" good morning", 0, "", ""},
        {" good morning all", 0, " good morning", ""},
        {" food warning.", 1, " good morning", ""},
        {" food warning.", 1, " food warning.", ""}};
    SHOW("complete and longer", adds);
    SHOW("complete and different", differs);
}

/* Punctuation after a word does not matter, and the later one is shown. */
static void shown_words(void)
{
    static const shown_step punctuation[] = {
        {" yes. No", 0, "", ""},
        {" yes, no one", 0, " yes,", ""},
        {" yes. no one", 0, " yes. no", " yes."},
        {" yes. no-one", 0, " yes. no", " yes."},
        {" yes. no-one, no", 0, " yes. no-one,", " yes."}};
    static const shown_step kept[] = { /* longer in bytes, but fewer words than what is kept */
        {" a b c", 0, "", ""},
        {" a b c d", 0, " a b c", ""},
        {" a... b... x y", 0, " a b c", " a b"}};
    static const shown_step no_spaces[] = {
        {"\xe4\xbb\x8a\xe6\x97\xa5", 0, "", ""},
        {"\xe4\xbb\x8a\xe6\x97\xa5\xe3\x81\xaf", 0, "\xe4\xbb\x8a\xe6\x97\xa5", ""},
        {"\xe4\xbb\x8a\xe6\x9c\x9d\xe3\x81\xaf", 1, "\xe4\xbb\x8a\xe6\x97\xa5", "\xe4\xbb\x8a"}};
    static const shown_step quotes[] = { /* an apostrophe U+2019 does not end a word */
        {" I don\xe2\x80\x99t", 0, "", ""},
        {" I don\xe2\x80\x99t", 0, " I", ""},
        {" I don\xe2\x80\x99t know", 0, " I don\xe2\x80\x99t", " I"}};
    SHOW("punctuation", punctuation);
    SHOW("kept words", kept);
    SHOW("without spaces", no_spaces);
    SHOW("apostrophe", quotes);
}

/* A loop of n tokens with this period behind two others: what is shown of it. */
static void check_loop(size_t period, size_t n, size_t kept)
{
    tk_vocab *v = calloc(1, sizeof *v);
    se_hypothesis *h = calloc(1, sizeof *h);
    size_t i, length;
    v->eot = 1000;
    h->tokens[0] = 1001; /* a timestamp */
    h->tokens[1] = 1;
    h->n = 2 + n;
    for (i = 0; i < n; i++) {
        h->tokens[2 + i] = (int32_t)(2 + i % period);
    }
    length = wd_before_loop(v, h);
    T_CHECK(length == kept, "%d tokens of period %d: %d are kept, not %d", (int)n, (int)period,
            (int)length, (int)kept);
    free(v);
    free(h);
}

static void shown_without_loops(void)
{
    check_loop(3, 17, 5);
    check_loop(3, 60, 5);
    check_loop(3, 6, 8); /* too short */
    check_loop(1, 40, 3);
    check_loop(12, 60, 14);
    check_loop(50, 50, 52);
}

/* A run whose window was aligned: n words, each of one token. free() it. */
static ru_run *aligned_run(char *text, al_word *words, uint32_t n)
{
    ru_run *r = calloc(1, sizeof *r);
    uint32_t i;
    r->text.aligner.text = text;
    r->text.aligner.words = words;
    r->text.aligner.n_words = n;
    for (i = 0; i < n; i++) {
        r->text.aligner.from[i] = i;
    }
    return r;
}

/* A window ends behind its last confirmed word where that ended when it was confirmed, or later: the
 * alignment of a later decoding may place it where it has been said before. */
static void end_of_confirmed_words(void)
{
    static char text[] = " So. No";
    static al_word words[] = {{0, 1, 1, 3, 400, 1200, 0.5f, 0, 0, 0},
                              {1, 1, 5, 2, 1200, 11000, 0.5f, 0, 0, 0}};
    ru_run *r = aligned_run(text, words, 2);
    int64_t last_ms;
    r->state.confirmed.n = 1;
    for (last_ms = 0; last_ms <= 12000; last_ms += 4000) {
        size_t n = 0, frames, want = last_ms == 0 ? 120 : last_ms == 12000 ? 0 : (size_t)last_ms / 10;
        r->state.confirmed.last_ms = last_ms;
        frames = wd_find_scroll(&r->text.aligner, &r->state.confirmed, &r->audio, 1200, 1, &n);
        T_CHECK(frames == want && n == 1, "%d ms: %lu frames", (int)last_ms, (unsigned long)frames);
    }
    free(r);
}

/* Unless speech had no text, confirmed words follow the one that a window ends behind, and the next
 * window begins with them: what it ended with cannot be said again. */
static void beginning_of_next_window(void)
{
    static char text[] = " One. two three four.";
    static al_word words[] = {{0, 1, 1, 4, 9000, 10000, 0.9f, 0, 0, 0},
                              {1, 1, 6, 3, 10000, 14000, 0.9f, 0, 0, 0},
                              {2, 1, 10, 5, 14000, 16000, 0.9f, 0, 0, 0},
                              {3, 1, 16, 5, 16000, 19000, 0.9f, 0, 0, 0}};
    ru_run *r = aligned_run(text, words, 4);
    uint32_t i;
    for (i = 1; i <= 4; i++) {
        size_t n = 0, want = i > 2 ? 1000 : 0;
        r->state.confirmed.n = i;
        T_CHECK(wd_find_scroll(&r->text.aligner, &r->state.confirmed, &r->audio, 2000, 0, &n) ==
                        want &&
                    n == (i > 2),
                "%d words: %d tokens", (int)i, (int)n);
        T_CHECK(wd_find_scroll(&r->text.aligner, &r->state.confirmed, &r->audio, WD_LATE_FRAMES, 0,
                               &n) > 0 &&
                    n > 0,
                "%d words: %d tokens", (int)i, (int)n);
    }
    free(r);
}

/* How long words wait: less if they were said before, and more if they are improbable. before: a
 * token of the decoding before, -1: it had none there. */
static void words_that_wait(void)
{
    static const struct { float probability; int32_t before; int64_t ms; } of[] = {
        {1.0f, 7, 300}, {0.5f, 7, 300}, {0.49f, 7, 800}, {0.0f, 7, 800}, {1.0f, 8, 500},
        {0.9f, 8, 500}, {0.89f, 8, 1000}, {0.5f, 8, 1000}, {0.49f, 8, 1500}, {0.0f, -1, 1500},
        {0.5f, -1, 1000}, {0.9f, -1, 500}};
    al_word word = {0, 2, 0, 0, 0, 0, 0.0f, 0, 0, 0};
    ru_run *r = calloc(1, sizeof *r);
    se_hypothesis *h = calloc(1, sizeof *h);
    ju_word w;
    size_t i;
    r->text.aligner.words = &word;
    r->text.aligner.n_words = 1;
    r->text.aligner.from[0] = 1;
    r->text.aligner.from[1] = 2;
    h->tokens[1] = r->state.confirmed.tokens[1] = 6;
    h->tokens[2] = 7;
    for (i = 0; i < sizeof of / sizeof of[0]; i++) {
        r->state.confirmed.n_said = of[i].before < 0 ? 2 : 3;
        r->state.confirmed.tokens[2] = of[i].before < 0 ? 7 : of[i].before;
        word.probability = of[i].probability;
        w = wd_word(&r->state.confirmed, &r->text.aligner, h, 0, 900);
        T_CHECK(ju_hold_ms(&w, 500) == of[i].ms && w.rest_ms == 900 && w.followers == 0,
                "%d: %d ms", (int)i, (int)ju_hold_ms(&w, 500));
    }
    free(h);
    free(r);
}

/* Words behind confirmed ones are shown when they are certain or have been followed by sound, and
 * stay while they are said. */
static void words_that_are_shown(void)
{
    static const struct {
        float probability[3];
        uint32_t n_shown;
        int32_t before;
        uint32_t n;
    } of[] = {
        {{0.5f, 0.9f, 0.9f}, 0, 7, 4}, {{0.5f, 0.9f, 0.8f}, 0, 7, 3}, {{0.5f, 0.8f, 0.9f}, 0, 7, 2},
        {{0.5f, 0.8f, 0.8f}, 3, 7, 3}, {{0.5f, 0.8f, 0.8f}, 3, 9, 2}, {{0.5f, 0.8f, 0.9f}, 3, 7, 4},
        {{0.5f, 0.8f, 0.8f}, 4, 7, 4}, {{0.5f, 0.8f, 0.8f}, 0, 7, 2}};
    ru_run *r = calloc(1, sizeof *r);
    se_hypothesis *h = calloc(1, sizeof *h);
    al_word *words = calloc(3, sizeof *words);
    ru_confirmed *c = &r->state.confirmed;
    size_t i, k;
    r->text.aligner.words = words;
    r->text.aligner.n_words = 3;
    h->n = c->n_said = 4;
    for (k = 0; k < 4; k++) { /* a timestamp and three words of a token */
        r->text.aligner.from[k] = (uint32_t)k + 1;
        h->tokens[k] = c->tokens[k] = 5 + (int32_t)k;
    }
    for (i = 0; i < sizeof of / sizeof of[0]; i++) {
        for (k = 0; k < 3; k++) { /* they end at 1, 2 and 3 s */
            words[k].first = (uint32_t)k;
            words[k].n = 1;
            words[k].t1_ms = 1000 * ((int64_t)k + 1);
            words[k].probability = of[i].probability[k];
        }
        c->n_shown = of[i].n_shown;
        c->tokens[2] = of[i].before;
        T_CHECK(wd_shown(c, &r->text.aligner, h, 1500, 1) == of[i].n, "%d: %d tokens", (int)i,
                (int)wd_shown(c, &r->text.aligner, h, 1500, 1));
    }
    T_CHECK(wd_shown(c, &r->text.aligner, h, 0, 3) == 3, "confirmed words: %d",
            (int)wd_shown(c, &r->text.aligner, h, 0, 3));
    free(words);
    free(h);
    free(r);
}

/* A word that was said before is confirmed less than hold_ms before the end of the sound; a
 * snapshot refuses a last word that ends behind what has been confirmed. */
static void words_that_were_said_before(void)
{
    static char text[] = " One. two";
    static al_word words[] = {{0, 1, 1, 4, 0, 400, 0.9f, 0, 0, 0},
                              {1, 1, 6, 3, 400, 1500, 0.9f, 0, 0, 0}};
    ru_run *r = aligned_run(text, words, 2);
    wnpu_model *m = calloc(1, sizeof *m);
    se_hypothesis *h = calloc(1, sizeof *h);
    ru_confirmed *c = calloc(1, sizeof *c);
    m->n_text_ctx = 448;
    r->engine.model = m;
    r->call.params.hold_ms = 500;
    h->n = r->state.confirmed.n_said = 2;
    wd_confirm_words(r, h, 1800, c);
    T_CHECK(c->n == 2 && c->last_ms == 1500 && c->until_ms == 1500, "%d tokens, %d and %d ms",
            (int)c->n, (int)c->last_ms, (int)c->until_ms);
    wd_confirm_words(r, h, 5000, memset(c, 0, sizeof *c));
    T_CHECK(c->n == 2 && c->last_ms == 1500 && c->until_ms == 4500, "%d ms", (int)c->until_ms);
    free(c);
    free(h);
    free(m);
    free(r);
}

/* Words wait for words behind them that two decodings agree on: improbable ones for two, others for
 * follow_words; and for 1.6 s if nothing follows. What follow_words 0 would confirm is stable. */
static void words_that_are_followed(void)
{
    static const struct {
        int follow;
        float probability; /* of the first of four words */
        uint32_t agreed;   /* words of both decodings */
        int64_t end_ms;    /* of the sound; the words end at 1, 2, 3 and 4 s */
        uint32_t n, n_stable;
    } of[] = {
        {0, 0.9f, 4, 4500, 4, 4}, {1, 0.9f, 4, 4500, 3, 4}, {2, 0.9f, 4, 4500, 2, 4},
        {1, 0.9f, 3, 4500, 2, 4}, {1, 0.9f, 2, 3500, 1, 3}, {1, 0.9f, 1, 2500, 0, 2},
        {1, 0.9f, 4, 5600, 4, 4}, {1, 0.9f, 4, 5599, 3, 4}, {0, 0.4f, 2, 2500, 0, 0},
        {0, 0.4f, 3, 2500, 2, 2}, {0, 0.4f, 3, 2200, 1, 1}, {0, 0.4f, 1, 2600, 2, 2},
        {4, 0.4f, 4, 3500, 1, 3}};
    static char text[] = " A b c d";
    al_word words[4];
    ru_run *r = aligned_run(text, words, 4);
    wnpu_model *m = calloc(1, sizeof *m);
    se_hypothesis *h = calloc(1, sizeof *h);
    ru_confirmed *c = calloc(1, sizeof *c);
    size_t i, k;
    m->n_text_ctx = 448;
    r->engine.model = m;
    r->call.params.hold_ms = 400;
    h->n = 4;
    for (i = 0; i < sizeof of / sizeof of[0]; i++) {
        memset(words, 0, sizeof words);
        for (k = 0; k < 4; k++) {
            words[k].first = k;
            words[k].n = 1;
            words[k].t1_ms = 1000 * ((int64_t)k + 1);
            words[k].probability = k > 0 ? 0.9f : of[i].probability;
            h->tokens[k] = r->state.confirmed.tokens[k] = 5 + (int32_t)k;
        }
        r->state.confirmed.n_said = of[i].agreed;
        r->call.params.follow_words = of[i].follow;
        memset(c, 0, sizeof *c);
        wd_confirm_words(r, h, of[i].end_ms, c);
        T_CHECK(c->n == of[i].n && c->n_stable == of[i].n_stable && c->n_shown >= c->n_stable,
                "%d: %d final, %d stable, %d shown", (int)i, (int)c->n, (int)c->n_stable,
                (int)c->n_shown);
    }
    free(c);
    free(h);
    free(m);
    free(r);
}

/* A consumer of the open window that the library does not have: whether what was said so far ends
 * with one of these marks. It prepares nothing but its view, and puts nothing back. */
static int ends_with(ru_run *r, const char *marks)
{
    const tk_vocab *vocab = &r->engine.model->vocab;
    ru_view v = wd_view(r, 0, aw_frames(&r->audio.at));
    ru_cost cost = {0};
    ru_reading reading;
    se_prompt p;
    se_options o;
    const char *text = NULL;
    size_t length = 0, n;
    if (v.content < 100) {
        return 0;
    }
    wd_encode(r, &v, &cost);
    wd_prepare_open(r, &v, &p, &o);
    reading.text = r->text.hypothesis;
    wd_read(r, &v, &p, &o, &reading);
    for (n = reading.text->n; n > 0 && text == NULL; n--) {
        text = reading.text->tokens[n - 1] < vocab->eot
                   ? tk_text(vocab, reading.text->tokens[n - 1], &length) : NULL;
    }
    return text != NULL && length > 0 && strchr(marks, text[length - 1]) != NULL;
}

/* Asking during a run changes nothing of what it says. */
static void a_further_consumer(void)
{
    static life_text text[2];
    static life_sounds sounds;
    char path[512];
    wnpu_model *m = NULL;
    wnpu_session *s;
    wnpu_config c;
    wnpu_params p;
    wnpu_error error;
    uint64_t at;
    unsigned asks, ended = 0, open = 0;
    if (life_cached(path, sizeof path, "ggml-tiny.bin")[0] == '\0' ||
        wnpu_model_open(&m, path, NULL, &error) != WNPU_OK) {
        t_skip("examples/fetch.sh tiny fetches the model");
        return;
    }
    life_make_sounds(&sounds, 12, 1);
    wnpu_config_init(&c, sizeof c);
    c.stream_bytes = 1 << 20;
    s = life_open(m, &c);
    for (asks = 0; asks < 2; asks++) {
        wnpu_stream_options options = life_stream(&sounds.plain, 0);
        wnpu_stream_params_init(&p, sizeof p);
        p.language = 0;
        p.commit_step_ms = 800;
        T_CHECK(wnpu_stream_begin(s, &p, &options) == WNPU_OK, "%s", wnpu_session_error(s));
        for (at = 0; at < sounds.plain.frames;) {
            life_push(s, &sounds.plain, &at, 32000);
            T_CHECK(wnpu_stream_step(s, NULL) >= WNPU_OK, "%s", wnpu_session_error(s));
            if (asks) {
                int ends = ends_with(&s->run, ".?!");
                ended += ends != 0;
                open += ends == 0;
            }
        }
        T_CHECK(wnpu_stream_finish(s) >= WNPU_OK, "%s", wnpu_session_error(s));
        life_json(s, &text[asks]);
    }
    T_CHECK(life_same(&text[0], &text[1]), "asking changes the text");
    T_CHECK(ended > 0 && open > 0, "%u sentences ended, %u went on", ended, open);
    wnpu_session_close(s);
    wnpu_model_close(m);
    life_free_sounds(&sounds);
}

static void live_tests(void)
{
    t_run("text is shown and withdrawn when two hypotheses agree", shown_when_confirmed);
    t_run("text before a pause is shown at once", shown_when_complete);
    t_run("words of tentative text", shown_words);
    t_run("tentative text does not repeat itself", shown_without_loops);
    t_run("where a window with confirmed words ends", end_of_confirmed_words);
    t_run("what the window behind it begins with", beginning_of_next_window);
    t_run("improbable words are confirmed later", words_that_wait);
    t_run("words that were said before end before what is confirmed", words_that_were_said_before);
    t_run("which words behind confirmed ones are shown", words_that_are_shown);
    t_run("words wait for those behind them", words_that_are_followed);
    t_run("a further consumer of the open window", a_further_consumer);
}
