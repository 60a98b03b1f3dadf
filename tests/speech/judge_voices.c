/* judge_voices.c - how well the vectors of examples/voices.c tell voices apart, and what the
 * library's clustering makes of them where it is known who speaks when.
 *
 * usage: judge_voices NAME.wav... > figures          NAME.tsv says who speaks: start, end, speaker
 *        judge_voices --statistics NAME.wav...       the table of examples/voices.c
 *
 * WAV files are 16-bit mono at 16 kHz behind a header of 44 bytes. Only what one speaker says alone
 * counts. The equal error rate is that of pairs of stretches of 1 s of one recording; turns last
 * 2 s and are at most 6 s long. Coverage is the share of time with a speaker, purity the share of
 * that whose speaker is the right one, with the best assignment of numbers to speakers, and
 * confusion the share of all time with a wrong one. */
#include "../../whisper_npu.c"
#define main voices_main
#include "../../examples/voices.c"
#undef main

#define JUDGE_STEP 100 /* per second */
#define JUDGE_TURNS 200
#define JUDGE_NAMES 16

typedef struct recording {
    float *x;
    size_t n;
    int *who;            /* [steps] of 10 ms: number of the only speaker, from 1; else 0 */
    size_t steps;
    char name[JUDGE_NAMES][32];
    int names;
} recording;

typedef struct stretch {
    size_t begin, end;   /* steps */
    int who;
    float vector[DIMENSION];
} stretch;

static unsigned char judge_file[64 << 20];

static void judge_load(recording *r, const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t size = file != NULL ? fread(judge_file, 1, sizeof judge_file, file) : 0, i;
    if (file == NULL || size < 44) {
        fprintf(stderr, "judge_voices: cannot read %s\n", path);
        exit(1);
    }
    fclose(file);
    memset(r, 0, sizeof *r);
    r->n = (size - 44) / 2;
    r->x = malloc(r->n * sizeof *r->x);
    for (i = 0; i < r->n; i++) {
        int16_t sample;
        memcpy(&sample, judge_file + 44 + 2 * i, 2);
        r->x[i] = (float)sample / 32768.0f;
    }
    r->steps = r->n / (16000 / JUDGE_STEP);
    r->who = calloc(r->steps + 1, sizeof *r->who);
}

static void judge_labels(recording *r, const char *path)
{
    char tsv[1024], line[256], name[32];
    double from, to;
    size_t i, length = strlen(path) - 4;
    FILE *file;
    int k;
    snprintf(tsv, sizeof tsv, "%.*s.tsv", (int)length, path);
    file = fopen(tsv, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%lf %lf %31s", &from, &to, name) != 3) {
            continue;
        }
        for (k = 0; k < r->names && strcmp(r->name[k], name) != 0; k++) {
        }
        if (k == r->names && k < JUDGE_NAMES) {
            strcpy(r->name[r->names++], name);
        }
        for (i = (size_t)(from * JUDGE_STEP); i < (size_t)(to * JUDGE_STEP) && i < r->steps; i++) {
            r->who[i] = r->who[i] == 0 || r->who[i] == k + 1 ? k + 1 : -1;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* Stretches of least to most steps in which one speaks alone. */
static size_t judge_stretches(const recording *r, size_t least, size_t most, stretch *out)
{
    size_t i, k, n = 0, hop = 16000 / JUDGE_STEP;
    for (i = 0; i < r->steps && n < JUDGE_TURNS; i = k) {
        for (k = i + 1; k < r->steps && r->who[k] == r->who[i] && k - i < most; k++) {
        }
        if (r->who[i] > 0 && k - i >= least) {
            out[n].begin = i;
            out[n].end = k;
            out[n].who = r->who[i];
            memset(out[n].vector, 0, sizeof out[n].vector);
            n += voice_vector(NULL, r->x + i * hop, (k - i) * hop, out[n].vector) == 0;
        }
    }
    return n;
}

static double judge_cosine(const float *a, const float *b)
{
    double ab = 0, aa = 0, bb = 0;
    int i;
    for (i = 0; i < DIMENSION; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa * bb);
}

typedef struct pair {
    double cosine;
    int same;
} pair;

static int judge_order(const void *a, const void *b)
{
    double x = ((const pair *)a)->cosine, y = ((const pair *)b)->cosine;
    return x < y ? -1 : x > y;
}

/* Where as many pairs of one speaker are below the threshold as pairs of two above. */
static double judge_equal_error(pair *p, size_t n, size_t same)
{
    size_t i, missed = 0, passed = 0;
    qsort(p, n, sizeof *p, judge_order);
    for (i = 0; i < n; i++) {
        missed += (size_t)p[i].same;
        passed += (size_t)!p[i].same;
        if ((double)missed / (double)same >=
            1 - (double)passed / (double)(n - same)) {
            break;
        }
    }
    return 100 * (double)missed / (double)same;
}

/* Most steps that agree if each label belongs to one speaker and each speaker has one label. */
static size_t judge_best(size_t table[][JUDGE_NAMES + 1], size_t labels, size_t names, size_t label,
                         unsigned used)
{
    size_t best, k;
    if (label > labels) {
        return 0;
    }
    best = judge_best(table, labels, names, label + 1, used);
    for (k = 1; k <= names; k++) {
        if (!(used >> k & 1)) {
            size_t with = table[label][k] +
                          judge_best(table, labels, names, label + 1, used | 1u << k);
            best = with > best ? with : best;
        }
    }
    return best;
}

typedef struct figures {
    size_t all, covered, right, largest; /* largest: everything is one speaker's */
} figures;

/* Clusters turns as the library does. */
static void judge_cluster(const recording *r, const stretch *turn, size_t n, uint32_t speakers,
                          float threshold, float margin, figures *f)
{
    static int32_t sums[JUDGE_TURNS * DIMENSION];
    static int16_t vectors[JUDGE_TURNS * DIMENSION];
    static vc_turn turns[JUDGE_TURNS];
    static float given[DIMENSION];
    static size_t table[JUDGE_TURNS + 1][JUDGE_NAMES + 1];
    vc_voices v = {1, DIMENSION, JUDGE_TURNS, 0, 0, turns, vectors, sums, given};
    size_t i, most = 0, labels = 0, of[JUDGE_NAMES + 1] = {0};
    int cancel = 0;
    for (i = 0; i < n; i++) {
        memcpy(given, turn[i].vector, sizeof given);
        vc_add(&v, i, 0, 1);
    }
    vc_cluster(&v, speakers, threshold, margin, &cancel);
    memset(table, 0, sizeof table);
    for (i = 0; i < n; i++) {
        size_t length = turn[i].end - turn[i].begin, label = (size_t)turns[i].speaker;
        f->all += length;
        f->covered += label > 0 ? length : 0;
        of[turn[i].who] += length;
        most = of[turn[i].who] > most ? of[turn[i].who] : most;
        labels = label > labels ? label : labels;
        table[label][turn[i].who] += length;
    }
    f->largest += most;
    f->right += judge_best(table, labels < 12 ? labels : 12, (size_t)r->names, 1, 0);
}

static uint32_t judge_speakers(const stretch *turn, size_t n)
{
    unsigned seen = 0;
    uint32_t count = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        count += !(seen >> turn[i].who & 1);
        seen |= 1u << turn[i].who;
    }
    return count;
}

static void judge_print(const char *what, const figures *f)
{
    printf("%-24s coverage %5.1f %%, purity %5.1f %%, confusion %5.1f %% (one speaker: %.1f %%)\n", what,
           100.0 * (double)f->covered / (double)f->all, 100.0 * (double)f->right / (double)f->covered,
           100.0 * (double)(f->covered - f->right) / (double)f->all,
           100.0 * (double)(f->all - f->largest) / (double)f->all);
}

/* Means and deviations of the vectors of whole files. */
static void judge_statistics(int argc, char **argv)
{
    double sum[DIMENSION] = {0}, squares[DIMENSION] = {0};
    recording r;
    int i, k, row;
    for (i = 0; i < argc; i++) {
        float vector[DIMENSION] = {0};
        judge_load(&r, argv[i]);
        (void)describe(r.x, r.n, vector);
        for (k = 0; k < DIMENSION; k++) {
            sum[k] += (double)vector[k] / argc;
            squares[k] += (double)vector[k] * (double)vector[k] / argc;
        }
        free(r.x);
        free(r.who);
    }
    for (row = 0; row < 2; row++) {
        printf("    {");
        for (k = 0; k < DIMENSION; k++) {
            printf("%.3ff%s", row == 0 ? sum[k] : sqrt(squares[k] - sum[k] * sum[k]),
                   k + 1 == DIMENSION ? row == 0 ? "},\n" : "}\n" : k % 8 == 7 ? ",\n     " : ", ");
        }
    }
}

int main(int argc, char **argv)
{
    static const float thresholds[] = {0.4f, 0.6f, 0.8f, 1.0f};
    static stretch turn[JUDGE_TURNS];
    static pair pairs[1 << 16];
    figures given = {0, 0, 0, 0}, sure = given, found[4] = {{0, 0, 0, 0}};
    size_t n_pairs = 0, same = 0;
    recording r;
    int i;
    if (argc > 2 && strcmp(argv[1], "--statistics") == 0) {
        judge_statistics(argc - 2, argv + 2);
        return 0;
    }
    for (i = 1; i < argc; i++) {
        size_t n, a, b;
        uint32_t speakers;
        judge_load(&r, argv[i]);
        judge_labels(&r, argv[i]);
        n = judge_stretches(&r, 100, 100, turn);
        for (a = 0; a < n; a++) {
            for (b = 0; b < a && n_pairs < 1 << 16; b++) {
                pairs[n_pairs].cosine = judge_cosine(turn[a].vector, turn[b].vector);
                same += (size_t)(pairs[n_pairs++].same = turn[a].who == turn[b].who);
            }
        }
        n = judge_stretches(&r, 200, 600, turn);
        speakers = judge_speakers(turn, n);
        judge_cluster(&r, turn, n, speakers, 0, 0, &given);
        judge_cluster(&r, turn, n, speakers, 0, 0.1f, &sure);
        for (a = 0; a < 4; a++) {
            judge_cluster(&r, turn, n, 0, thresholds[a], 0, &found[a]);
        }
        free(r.x);
        free(r.who);
    }
    printf("%lu pairs, %lu of one speaker: equal error rate %.1f %%\n", (unsigned long)n_pairs,
           (unsigned long)same, judge_equal_error(pairs, n_pairs, same));
    judge_print("number given", &given);
    judge_print("number given, margin 0.1", &sure);
    for (i = 0; i < 4; i++) {
        char what[32];
        snprintf(what, sizeof what, "threshold %.1f", (double)thresholds[i]);
        judge_print(what, &found[i]);
    }
    return argc < 2;
}
