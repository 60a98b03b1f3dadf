/* overlay.c - see overlay.h. */
#include "../../npu_amdxdna.c"

#include "overlay.h"

const uint32_t *overlay_code(int generation, size_t *words)
{
    xo_design design;
    xo_design_init(&design, (unsigned)generation, 1);
    *words = design.words;
    return design.code;
}

const uint32_t *overlay_rung_code(int generation, int rung, size_t *words)
{
    xo_design design;
    xo_rung(&design, (unsigned)generation, (unsigned)rung);
    *words = design.words;
    return design.code;
}

size_t overlay_rung_pdi(int generation, int rung, uint8_t *out, size_t room)
{
    xo_design design;
    size_t size;
    xo_rung(&design, (unsigned)generation, (unsigned)rung);
    size = xo_pdi(&design, (uint32_t *)(void *)out, room / 4) * 4;
    return size <= room ? size : 0;
}

uint64_t overlay_rung_cycles(int generation, int rung)
{
    static const xp_kernel none;
    xo_design design;
    xo_rung(&design, (unsigned)generation, (unsigned)rung);
    return xo_cycles(&design, &none);
}

static xo_design design_of(const overlay *o)
{
    xo_design design;
    xo_design_init(&design, (unsigned)o->generation, (unsigned)o->columns);
    if (o->program != NULL) {
        design.code = (const uint32_t *)(const void *)o->program;
        design.words = (uint32_t)(o->program_size / 4);
    }
    return design;
}

size_t overlay_pdi(const overlay *o, uint8_t *out, size_t room)
{
    xo_design design = design_of(o);
    size_t size = xo_pdi(&design, (uint32_t *)(void *)out, room / 4) * 4;
    return size <= room ? size : 0;
}

static xp_kernel kernel_of(const overlay_shape *shape)
{
    xp_kernel p;
    memset(&p, 0, sizeof p);
    p.m = shape->m;
    p.n = shape->n;
    p.k = shape->k;
    p.b_arg = 1;
    p.c_arg = 2;
    return p;
}

size_t overlay_stream(const overlay *o, const overlay_shape *shape, uint32_t *out, size_t room)
{
    xp_kernel p = kernel_of(shape);
    xo_design design = design_of(o);
    size_t words = xo_stream(&design, &p, out, room);
    return words <= room ? words : 0;
}

uint64_t overlay_cycles(const overlay *o, const overlay_shape *shape)
{
    xp_kernel p = kernel_of(shape);
    xo_design design = design_of(o);
    return xo_cycles(&design, &p);
}

void overlay_tile_b(const overlay_shape *shape, const int8_t *b, int8_t *out)
{
    xp_kernel p = kernel_of(shape);
    int8_t *rows = malloc((size_t)p.n * p.k);
    size_t n, k;
    for (n = 0; rows != NULL && n < p.n; n++) {
        for (k = 0; k < p.k; k++) {
            rows[n * p.k + k] = b[k * p.n + n];
        }
    }
    if (rows != NULL) {
        xo_pack_b(&p, (uint8_t *)out, p.n, p.k, rows, p.k);
    }
    free(rows);
}
