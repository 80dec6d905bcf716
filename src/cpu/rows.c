/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c -- products with up to four rows, at the speed of memory.
 *
 * Each element of b is used once for each row, so nothing is packed.  Where
 * b's columns are adjacent, bands of columns are run down ("wide"); where its
 * depths are, each column is a dot product in 64 virtual lanes ("deep").  The
 * depth is cut into chunks of fixed length; their sums are added in order.  A
 * large b may be read in units side by side (share.h).
 * Called by: matmul.c.  Calls: kernels/gemm.h, share.c, the pool.
 */
#include <string.h>

#include "base/integers.h"
#include "base/pool.h"
#include "cpu/product.h"
#include "cpu/share.h"
#include "kernels/tier/tier.h"

enum {
    WIDE_DEPTH = 256,
    DEEP_DEPTH = 16384,
    UNIT_ELEMENTS = 1 << 17, /* of b, in a unit of "deep" */
    FINISH_RUN = 256
};

typedef struct few {
    const mr_product *p;
    bool wide, far, shared, x_ready, direct;
    int64_t slice; /* when shared */
    int64_t chunk, n_chunks, band, n_bands;
    float *x;    /* items x m x k, when x is not ready as it is */
    float *part; /* chunks x items x m x n, when not straight to c */
} few;

bool
mr__product_rows_fit(const mr_product *p)
{
    return p->m <= MR_GEMV_ROWS &&
           (p->b.lane_stride == 1 || p->b.depth_stride == 1);
}

static void
few_plan(const mr_product *p, few *s)
{
    int64_t bytes = p->n_items * p->k * p->n * mr__dtype_size(p->dtype);

    *s = (few){.p = p, .wide = p->b.lane_stride == 1};
    /* A single column may be both: its depths decide. */
    if (p->b.depth_stride == 1 && p->n == 1)
        s->wide = false;
    s->chunk = s->wide ? WIDE_DEPTH : DEEP_DEPTH;
    s->n_chunks = (p->k - 1) / s->chunk + 1;
    s->band =
        mr__gemv_band(p->n, p->m, sizeof(float), p->n_items * s->n_chunks);
    if (!s->wide) {
        int64_t depth = p->k < s->chunk ? p->k : s->chunk;

        s->band = UNIT_ELEMENTS / depth;
        s->band = s->band < 1 ? 1 : s->band;
    }
    s->shared = mr__share_pays(bytes);
    if (s->shared && s->wide)
        s->band = mr__gemv_halves(s->band, p->n);
    s->n_bands = (p->n - 1) / s->band + 1;
    s->far = bytes >= MR_GEMV_FAR;
    s->x_ready = p->dtype == MR_FLOAT32 && p->a.depth_stride == 1;
    s->direct = p->dtype == MR_FLOAT32 && s->n_chunks == 1 && p->c_col == 1;
}

static int64_t
x_floats(const few *s)
{
    return s->x_ready ? 0 : mr__round_up(s->p->n_items * s->p->m * s->p->k, 16);
}

size_t
mr__product_rows_bytes(const mr_product *p)
{
    int64_t part;
    few s;

    few_plan(p, &s);
    part = s.direct ? 0 : s.n_chunks * p->n_items * p->m * p->n;
    return (size_t)(x_floats(&s) + part) * sizeof(float);
}

static void
x_widen(const few *s)
{
    const mr_product *p = s->p;
    const mr_tier *tier = mr__tier();
    int64_t size = mr__dtype_size(p->dtype), step = p->a.depth_stride;
    mr_cast_fn *cast = tier->casts->cast[p->dtype][MR_FLOAT32];

    for (int64_t row = 0; row < p->n_items * p->m; row++) {
        float *to = s->x + row * p->k;
        mr_gemm_side a, b;
        const char *from;
        void *c;

        mr__product_item(p, row / p->m, &a, &b, &c);
        from = (const char *)a.data + row % p->m * a.lane_stride * size;
        if (p->dtype == MR_FLOAT32) {
            tier->moves->gather[2](to, from, step * size, p->k);
        } else if (step == 1) {
            cast(to, from, p->k);
        } else {
            /* the halves wait in the upper half of their own floats */
            uint16_t *dense = (uint16_t *)to + p->k;

            tier->moves->gather[1](dense, from, step * size, p->k);
            for (int64_t i = 0; i < p->k; i++)
                cast(to + i, dense + i, 1);
        }
    }
}

/* A unit: which chunk of an item, which columns, and of b that. */
typedef struct region {
    int64_t item, chunk, depth, j, n;
    mr_gemm_side b;
} region;

static int64_t
n_units(const few *s)
{
    return s->p->n_items * s->n_chunks * s->n_bands;
}

static region
region_at(const few *s, int64_t unit)
{
    const mr_product *p = s->p;
    region u = {.item = unit / s->n_bands / s->n_chunks,
                .chunk = unit / s->n_bands % s->n_chunks,
                .j = unit % s->n_bands * s->band};
    int64_t depth = p->k - u.chunk * s->chunk, n = p->n - u.j;
    mr_gemm_side a;
    void *c;

    u.depth = depth < s->chunk ? depth : s->chunk;
    u.n = n < s->band ? n : s->band;
    mr__product_item(p, u.item, &a, &u.b, &c);
    u.b.data = (const char *)u.b.data +
               (u.j * u.b.lane_stride + u.chunk * s->chunk * u.b.depth_stride) *
                   mr__dtype_size(p->dtype);
    return u;
}

static void
few_unit(const few *s, int64_t unit)
{
    const mr_product *p = s->p;
    region u = region_at(s, unit);
    int64_t depth0 = u.chunk * s->chunk, x_row = p->k, y_row = p->n;
    mr_gemm_side a, b;
    const float *x;
    float *y;
    void *c;

    mr__product_item(p, u.item, &a, &b, &c);
    if (s->x_ready) {
        x = (const float *)a.data + depth0;
        x_row = a.lane_stride;
    } else {
        x = s->x + u.item * p->m * p->k + depth0;
    }
    if (s->direct) {
        y = (float *)c + u.j;
        y_row = p->c_row;
    } else {
        y = s->part + (u.chunk * p->n_items + u.item) * p->m * p->n + u.j;
    }
    if (s->wide && s->far)
        mr__gemv_far(y, y_row, x, x_row, (int)p->m, &u.b, u.depth, u.n);
    else if (s->wide)
        mr__gemv_wide(y, y_row, x, x_row, (int)p->m, &u.b, u.depth, u.n);
    else
        mr__gemv_deep(y, y_row, x, x_row, (int)p->m, &u.b, u.depth, u.n);
}

/* With a slice of the unit beside it. */
static void
shared_unit(const void *ctx, int64_t unit, char *slot)
{
    const few *s = ctx;
    int64_t size = mr__dtype_size(s->p->dtype);

    (void)slot;
    if ((unit ^ 1) < n_units(s)) {
        region u = region_at(s, unit ^ 1);
        const mr_gemm_side *b = &u.b;

        if (s->wide)
            mr__share_rows(s->slice, b->data, u.depth, u.n * size,
                           b->depth_stride * size);
        else
            mr__share_rows(s->slice, b->data, u.n, u.depth * size,
                           b->lane_stride * size);
    }
    few_unit(s, unit);
}

static void
few_piece(void *ctx, int64_t begin, int64_t end)
{
    for (int64_t u = begin; u < end; u++)
        few_unit(ctx, u);
}

/* The chunks' sums of columns [j, j + n) of one row in order, rounded once. */
static void
finish_run(const few *s, int64_t row, int64_t j, int64_t n)
{
    const mr_product *p = s->p;
    const mr_tier *tier = mr__tier();
    int64_t size = mr__dtype_size(p->dtype);
    int64_t all = p->n_items * p->m * p->n;
    const float *part = s->part + row * p->n + j;
    float sum[FINISH_RUN], rounded[FINISH_RUN];
    const void *from = sum;
    char *to =
        (char *)p->c +
        (row / p->m * p->c_item + row % p->m * p->c_row + j * p->c_col) * size;

    memcpy(sum, part, (size_t)n * sizeof *sum);
    for (int64_t k = 1; k < s->n_chunks; k++)
        for (int64_t i = 0; i < n; i++)
            sum[i] += part[k * all + i];
    if (p->dtype != MR_FLOAT32) {
        tier->casts->cast[MR_FLOAT32][p->dtype](rounded, sum, n);
        from = rounded;
    }
    if (p->c_col == 1)
        memcpy(to, from, (size_t)(n * size));
    else
        tier->moves->scatter[size == 2 ? 1 : 2](to, p->c_col * size, from, n);
}

static void
finish_piece(void *ctx, int64_t begin, int64_t end)
{
    const few *s = ctx;

    for (int64_t i = begin, n; i < end; i += n) {
        int64_t j = i % s->p->n;

        n = s->p->n - j < end - i ? s->p->n - j : end - i;
        n = n < FINISH_RUN ? n : FINISH_RUN;
        finish_run(s, i / s->p->n, j, n);
    }
}

void
mr__product_rows(const mr_product *p, void *workspace)
{
    int64_t depth = p->k;
    double ns;
    few s;

    few_plan(p, &s);
    s.x = workspace;
    s.part = s.x + x_floats(&s);
    if (!s.x_ready)
        x_widen(&s);
    depth = depth < s.chunk ? depth : s.chunk;
    ns = 0.2 * (double)depth * (double)(p->n < s.band ? p->n : s.band);
    if (s.shared) {
        s.slice = mr__share_slice();
        mr__cpu_units(mr__pool_threads(), n_units(&s), NULL, 0, shared_unit,
                      &s);
    } else {
        mr__cpu_for(n_units(&s), mr__cpu_grain(ns), few_piece, &s);
    }
    if (!s.direct)
        mr__cpu_for(p->n_items * p->m * p->n,
                    mr__cpu_grain(0.5 + 0.2 * (double)s.n_chunks), finish_piece,
                    &s);
}
