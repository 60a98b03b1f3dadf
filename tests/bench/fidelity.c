/* fidelity.c - how far the INT8 path's predictions are from the float path's on recordings.
 *
 *     fidelity [-v] [-l LANGUAGE] [-r FILE] [-w NAME] MODEL RECORDING.wav...
 *
 * The float path transcribes each recording greedily. The INT8 path is then given the same tokens,
 * so that both predict every token from the same past, and one different token cannot alter all
 * that follow. Per token that gives
 *
 *   gap         by how much INT8 moves the difference between the logits of the float path's two
 *               best tokens: a token changes if it is moved across 0. Root mean square.
 *   divergence  Kullback-Leibler, from the float path's distribution to INT8's, in millinats. Mean.
 *   changed     tokens whose best one is not the float path's.
 *
 * They show what counts of words need hundreds of recordings for. One bad recording can dominate
 * them: the figures are also printed without the one that has the largest sum of squared gaps, or
 * without the one that is called NAME.
 *
 *   -v       a line for each recording
 *   -l       language of the recordings (default: en)
 *   -r FILE  keeps the float path's predictions in FILE, and reads them if it exists: the float
 *            path is slow. Model and recordings have to be the same then
 *   -w NAME  the recording to leave out, a file name without its directory */
#include "whisper_npu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX ((size_t)64 << 20)
#define TOKENS_MAX 448u /* of one recording */

/* Sums over tokens. */
typedef struct sums {
    double gap2, divergence;
    size_t tokens, changed;
} sums;

typedef struct fidelity {
    int verbose;
    const char *language, *without, *kept_path;
    FILE *kept;       /* predictions of the float path, or NULL */
    int reading;      /* they exist */
    wnpu_model *model;
    wnpu_session *session[2]; /* float, INT8 */
    size_t n_vocab;
    float *predicted; /* [TOKENS_MAX][n_vocab] by the float path */
    size_t n, at;     /* predicted; next one that INT8 is compared with */
    sums now;         /* of this recording */
    unsigned char *data;
} fidelity;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "fidelity: %s: %s\n", what, why);
    exit(1);
}

/* ---- predictions ---- */

static size_t best_of(const float *x, size_t n)
{
    size_t i, best = 0;
    for (i = 1; i < n; i++) {
        best = x[i] > x[best] ? i : best;
    }
    return best;
}

static size_t second_of(const float *x, size_t n, size_t best)
{
    size_t i, second = best == 0 ? 1 : 0;
    for (i = 0; i < n; i++) {
        second = i != best && x[i] > x[second] ? i : second;
    }
    return second;
}

/* Logarithm of the sum of exponents. */
static double normalizer(const float *x, size_t n)
{
    double most = x[best_of(x, n)], sum = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        sum += exp(x[i] - most);
    }
    return most + log(sum);
}

static double divergence(const float *p, const float *q, size_t n)
{
    double of_p = normalizer(p, n), of_q = normalizer(q, n), sum = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        if (p[i] > -INFINITY && q[i] > -INFINITY) {
            double log_p = p[i] - of_p;
            sum += exp(log_p) * (log_p - (q[i] - of_q));
        }
    }
    return sum;
}

static void add_token(sums *s, const float *exact, const float *logits, size_t n)
{
    size_t best = best_of(exact, n), second = second_of(exact, n, best);
    double gap = (double)logits[best] - logits[second] - ((double)exact[best] - exact[second]);
    s->gap2 += gap * gap;
    s->divergence += divergence(exact, logits, n);
    s->changed += best_of(logits, n) != best;
    s->tokens++;
}

static void add_sums(sums *to, const sums *from)
{
    to->gap2 += from->gap2;
    to->divergence += from->divergence;
    to->tokens += from->tokens;
    to->changed += from->changed;
}

/* ---- the two paths ---- */

/* Leaves only this token to be chosen. */
static void force(float *logits, size_t n, size_t token)
{
    size_t i;
    for (i = 0; i < n; i++) {
        logits[i] = i == token ? 0.0f : -INFINITY;
    }
}

static void keep(void *user, const int32_t *tokens, size_t n_tokens, float *logits, size_t n_vocab)
{
    fidelity *f = user;
    (void)tokens;
    (void)n_tokens;
    if (f->n == TOKENS_MAX) {
        die("recording", "more tokens than there is room for; give shorter ones");
    }
    memcpy(f->predicted + f->n++ * n_vocab, logits, n_vocab * sizeof *logits);
}

static void compare(void *user, const int32_t *tokens, size_t n_tokens, float *logits,
                    size_t n_vocab)
{
    fidelity *f = user;
    const float *exact = f->predicted + f->at * n_vocab;
    (void)tokens;
    (void)n_tokens;
    if (f->at++ < f->n) {
        add_token(&f->now, exact, logits, n_vocab);
        force(logits, n_vocab, best_of(exact, n_vocab));
    }
}

static void transcribe(fidelity *f, int path, const wnpu_audio *audio, const char *name)
{
    wnpu_params params;
    wnpu_params_init(&params, sizeof params);
    params.beam = 1; /* one row of logits a step */
    params.language = wnpu_language_id(f->language);
    params.timestamps = 0;
    params.temperature_step = 0.0f; /* decodes once */
    params.vad = 0;
    params.stop_loops = 0;
    params.no_speech_threshold = 1.0f;
    params.on_logits = path == 0 ? keep : compare;
    params.user = f;
    if (wnpu_transcribe(f->session[path], &params, audio) != WNPU_OK) {
        die(name, wnpu_session_error(f->session[path]));
    }
}

/* Writes or reads the predictions of one recording. */
static void exchange(fidelity *f, const char *name)
{
    size_t n = f->n, row = f->n_vocab * sizeof(float);
    int good;
    if (f->reading) {
        good = fread(&n, sizeof n, 1, f->kept) == 1 && n <= TOKENS_MAX &&
               fread(f->predicted, row, n, f->kept) == n;
        f->n = n;
    } else {
        good = fwrite(&n, sizeof n, 1, f->kept) == 1 &&
               fwrite(f->predicted, row, n, f->kept) == n;
    }
    if (!good) {
        die(name, f->reading ? "is not in the file of -r" : "cannot be kept");
    }
}

static void run(fidelity *f, const char *path, const char *name)
{
    FILE *in = fopen(path, "rb");
    size_t size = in != NULL ? fread(f->data, 1, FILE_MAX, in) : 0;
    wnpu_audio audio;
    wnpu_error error = {0, "cannot be read"};
    if (in != NULL) {
        fclose(in);
    }
    wnpu_audio_init(&audio, sizeof audio);
    if (size == 0 || wnpu_wav_open(&audio, f->data, size, &error) != WNPU_OK) {
        die(path, error.message);
    }
    f->n = f->at = 0;
    memset(&f->now, 0, sizeof f->now);
    if (!f->reading) {
        transcribe(f, 0, &audio, name);
    }
    if (f->kept != NULL) {
        exchange(f, name);
    }
    transcribe(f, 1, &audio, name);
    if (f->at != f->n) {
        die(name, "both paths do not have the same windows");
    }
}

/* ---- figures ---- */

static void print_sums(const char *name, const sums *s)
{
    double n = s->tokens > 0 ? (double)s->tokens : 1;
    printf("%-40s %6u %8u %9.4f %12.3f\n", name, (unsigned)s->tokens, (unsigned)s->changed,
           sqrt(s->gap2 / n), 1000 * s->divergence / n);
}

static void print_all(const fidelity *f, const sums *of, const char **name, int n)
{
    sums all = {0}, rest = {0};
    char text[64];
    int i, worst = 0;
    for (i = 0; i < n; i++) {
        worst = of[i].gap2 > of[worst].gap2 ? i : worst;
        add_sums(&all, &of[i]);
    }
    for (i = 0; i < n; i++) {
        worst = f->without != NULL && strcmp(name[i], f->without) == 0 ? i : worst;
    }
    for (i = 0; i < n; i++) {
        if (i != worst) {
            add_sums(&rest, &of[i]);
        }
    }
    (void)snprintf(text, sizeof text, "%d recordings", n);
    print_sums(text, &all);
    (void)snprintf(text, sizeof text, "without %.31s", name[worst]);
    print_sums(text, &rest);
}

/* ---- the program ---- */

static void open_all(fidelity *f, const char *path)
{
    wnpu_model_config model;
    wnpu_config config;
    wnpu_error error;
    int i;
    wnpu_model_config_init(&model, sizeof model);
    model.keep_float = 1;
    if (wnpu_model_open(&f->model, path, &model, &error) != WNPU_OK) {
        die(path, error.message);
    }
    for (i = 0; i < 2; i++) {
        wnpu_config_init(&config, sizeof config);
        config.compute = i == 0 ? WNPU_COMPUTE_FLOAT : WNPU_COMPUTE_INT8;
        if (wnpu_session_open(&f->session[i], f->model, &config, NULL, 0, &error) != WNPU_OK) {
            die("session", error.message);
        }
    }
}

static void make_room(fidelity *f)
{
    wnpu_model_info info = {.struct_size = sizeof info};
    if (wnpu_model_get_info(f->model, &info) != WNPU_OK) {
        die("model", "tells nothing");
    }
    f->n_vocab = (size_t)info.n_vocab;
    f->data = malloc(FILE_MAX);
    f->predicted = malloc(TOKENS_MAX * f->n_vocab * sizeof *f->predicted);
    if (f->data == NULL || f->predicted == NULL) {
        die("predictions", "out of memory");
    }
    if (f->kept_path != NULL) {
        f->kept = fopen(f->kept_path, "rb");
        f->reading = f->kept != NULL;
        if (!f->reading && (f->kept = fopen(f->kept_path, "wb")) == NULL) {
            die(f->kept_path, "cannot be written");
        }
    }
}

/* Returns the number of arguments that were options. */
static int options(fidelity *f, int argc, char **argv)
{
    int i;
    f->language = "en";
    for (i = 1; i < argc && argv[i][0] == '-'; i++) {
        const char **value = strcmp(argv[i], "-l") == 0 ? &f->language :
                             strcmp(argv[i], "-w") == 0 ? &f->without :
                             strcmp(argv[i], "-r") == 0 ? &f->kept_path : NULL;
        if (strcmp(argv[i], "-v") == 0) {
            f->verbose = 1;
        } else if (value != NULL && i + 1 < argc) {
            *value = argv[++i];
        } else {
            die(argv[i], "no such option, or it lacks its value");
        }
    }
    return i;
}

int main(int argc, char **argv)
{
    static fidelity f;
    int first = options(&f, argc, argv), n = argc - first - 1, i;
    const char **name = malloc((size_t)(argc + 1) * sizeof *name);
    sums *of = calloc((size_t)argc + 1, sizeof *of);
    if (n < 1 || name == NULL || of == NULL) {
        fprintf(stderr, "usage: fidelity [-v] [-l LANGUAGE] [-r FILE] [-w NAME] MODEL "
                        "RECORDING.wav...\n");
        return 1;
    }
    open_all(&f, argv[first]);
    make_room(&f);
    printf("%-40s %6s %8s %9s %12s\n", "", "tokens", "changed", "gap", "divergence");
    for (i = 0; i < n; i++) {
        const char *path = argv[first + 1 + i], *slash = strrchr(path, '/');
        name[i] = slash != NULL ? slash + 1 : path;
        run(&f, path, name[i]);
        of[i] = f.now;
        if (f.verbose) {
            print_sums(name[i], &of[i]);
        }
    }
    print_all(&f, of, name, n);
    if (f.kept != NULL && fclose(f.kept) != 0) {
        die(f.kept_path, "cannot be written");
    }
    wnpu_session_close(f.session[0]);
    wnpu_session_close(f.session[1]);
    wnpu_model_close(f.model);
    free(f.predicted);
    free(f.data);
    free(of);
    free(name);
    return 0;
}
