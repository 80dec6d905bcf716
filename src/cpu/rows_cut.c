/* SPDX-License-Identifier: Apache-2.0
 *
 * rows_cut.c -- products with few rows, cut into units.
 *
 * A large b may be read in units side by side (share.h).
 * Called by: rows.c, rows_wide.c.  Calls: kernels/gemm.h, share.c, the pool.
 */
#include "cpu/rows_cut.h"

#include "base/integers.h"
#include "base/pool.h"
#include "cpu/share.h"

enum { WIDE_DEPTH = 256, DEEP_DEPTH = 16384 };

mr_rows_cut
mr__rows_cut(const mr_product *p, int64_t rows, int64_t parts, int64_t real,
             int64_t elements)
{
    int64_t bytes = p->n_items * p->k * p->n * mr__dtype_size(p->dtype);
    mr_rows_cut s = {.p = p,
                     .wide = p->b.lane_stride == 1,
                     .far = bytes >= MR_GEMV_FAR,
                     .shared = mr__share_pays(bytes)};

    /* A single column may be both: its depths decide. */
    if (p->b.depth_stride == 1 && p->n == 1)
        s.wide = false;
    s.chunk = s.wide ? WIDE_DEPTH : DEEP_DEPTH;
    s.n_chunks = (p->k - 1) / s.chunk + 1;
    if (s.wide)
        s.band =
            mr__gemv_band(p->n * parts, rows, real, p->n_items * s.n_chunks) /
            parts;
    else
        s.band = mr__max(elements / mr__min(p->k, s.chunk), 1);
    if (s.shared && s.wide)
        s.band = mr__gemv_halves(s.band, p->n);
    s.n_bands = (p->n - 1) / s.band + 1;
    return s;
}

static int64_t
n_units(const mr_rows_cut *s)
{
    return s->p->n_items * s->n_chunks * s->n_bands;
}

static mr_rows_unit
unit_at(const mr_rows_cut *s, int64_t unit)
{
    const mr_product *p = s->p;
    mr_rows_unit u = {.item = unit / s->n_bands / s->n_chunks,
                      .chunk = unit / s->n_bands % s->n_chunks,
                      .j = unit % s->n_bands * s->band};
    mr_gemm_side a;
    void *c;

    u.depth = mr__min(p->k - u.chunk * s->chunk, s->chunk);
    u.n = mr__min(p->n - u.j, s->band);
    mr__product_item(p, u.item, &a, &u.b, &c);
    u.b.data = (const char *)u.b.data +
               (u.j * u.b.lane_stride + u.chunk * s->chunk * u.b.depth_stride) *
                   mr__dtype_size(p->dtype);
    return u;
}

/* ---- running ---------------------------------------------------------------
 */

typedef struct job {
    const mr_rows_cut *s;
    mr_rows_fn *run;
    const void *ctx;
} job;

static void
piece(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;

    for (int64_t i = begin; i < end; i++) {
        mr_rows_unit u = unit_at(j->s, i);

        j->run(j->ctx, &u);
    }
}

/* With a slice of the unit beside it. */
static void
shared_unit(const void *ctx, int64_t unit, char *slot)
{
    const job *j = ctx;
    const mr_rows_cut *s = j->s;
    int64_t size = mr__dtype_size(s->p->dtype);
    mr_rows_unit u = unit_at(s, unit);

    (void)slot;
    if ((unit ^ 1) < n_units(s)) {
        mr_rows_unit other = unit_at(s, unit ^ 1);
        const mr_gemm_side *b = &other.b;

        if (s->wide)
            mr__share_rows(s->slice, b->data, other.depth, other.n * size,
                           b->depth_stride * size);
        else
            mr__share_rows(s->slice, b->data, other.n, other.depth * size,
                           b->lane_stride * size);
    }
    j->run(j->ctx, &u);
}

void
mr__rows_run(mr_rows_cut *s, double ns, mr_rows_fn *run, const void *ctx)
{
    job j = {s, run, ctx};
    const mr_product *p = s->p;

    ns *= (double)mr__min(p->k, s->chunk) * (double)mr__min(p->n, s->band);
    if (s->shared) {
        s->slice = mr__share_slice();
        mr__cpu_units(mr__pool_threads(), n_units(s), NULL, 0, shared_unit, &j);
    } else {
        mr__cpu_for(n_units(s), mr__cpu_grain(ns), piece, &j);
    }
}
