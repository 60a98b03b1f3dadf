/* rungs.c - see rungs.h. */
#include "rungs.h"

#include "matmul.h"

#include <stdio.h>

#define FOUR "    nop\n    nop\n    nop\n    nop\n"

size_t rung_source(int rung, char *text, size_t size)
{
    static const char *const scalar =
        "    .align 16\nword:\n    lda r6, [p0, #0]\n    lda r7, [p1], #4\n"
        "    add r5, r5, #-1\n" FOUR "    nop\n    nop\n    nop\n    add r6, r6, r7\n"
        "    st r6, [p0], #4\n    jnz r5, #word\n    nop\n" FOUR;
    int n = snprintf(text, size,
                     "start:\n    mova r1, #-1; movx r2, #1\n    .align 16\ntile:\n"
                     "    movxm r5, #%d\n    movxm p0, #%d\n    movxm p1, #%d\n"
                     "    acq #%d, r1\n" FOUR "    acq #%d, r1\n" FOUR "    acq #%d, r1\n" FOUR "%s"
                     FOUR "    rel #%d, r2\n" FOUR "    j #tile\n    nop\n" FOUR,
                     MATMUL_A_SIZE / 4, 0x70000 + MATMUL_A, 0x70000 + MATMUL_B, 48 + MATMUL_C_FREE,
                     48 + MATMUL_A_FULL, 48 + MATMUL_B_FULL, rung == 2 ? scalar : "",
                     48 + MATMUL_C_FULL);
    return n < 0 ? 0 : (size_t)n;
}
