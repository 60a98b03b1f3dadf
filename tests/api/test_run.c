/* test_run.c - some inputs of fuzz_run.c, always the same. TEST_RUNS=N tries N instead of 300;
 * TEST_SEED=N begins with the N-th. */
#include "../fuzz/fuzz_run.c"

static void runs(void)
{
    const char *text = getenv("TEST_RUNS"), *first = getenv("TEST_SEED");
    int n = text != NULL && atoi(text) > 0 ? atoi(text) : 300, i;
    uint32_t seed = first != NULL ? (uint32_t)atoi(first) : 1;
    open_all();
    for (i = 0; i < n; i++, seed++) {
        uint8_t bytes[256];
        uint32_t x = seed * 2654435761u;
        size_t k;
        const char *wrong;
        for (k = 0; k < sizeof bytes; k++) {
            x = x * 1664525u + 1013904223u;
            bytes[k] = (uint8_t)(x >> 24);
        }
        wrong = one(bytes, sizeof bytes);
        T_CHECK(wrong == NULL, "TEST_SEED=%u: not so: %s", (unsigned)seed, wrong);
    }
    close_all();
}

int main(void)
{
    t_run("runs that are stopped and go on are like runs that are not", runs);
    return t_end();
}
