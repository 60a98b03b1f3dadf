/* browser_trap.c - examples/browser/glue.c with a self test and a live run that trap in another
 * thread, for test_browser.sh. */
#include "../../whisper_npu.h"

static int trap_elsewhere(void);

#define wnpu_self_test(what, size) trap_elsewhere()
#define wnpu_stream_step(session, events) trap_elsewhere()
#include "../../examples/browser/glue.c"

static int32_t begun;

static void task(void *context, size_t i)
{
    (void)context;
    if (i > 0) {
        __atomic_store_n(&begun, 1, __ATOMIC_RELEASE);
        __builtin_trap();
    }
    while (!__atomic_load_n(&begun, __ATOMIC_ACQUIRE)) {
    }
}

static int trap_elsewhere(void)
{
    parallel_for(NULL, 2, task, NULL);
    return WNPU_OK;
}
