/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c -- products with up to four rows, at the speed of memory.
 *
 * Each element of b is used once for each row, so nothing is packed.  Where
 * b's columns are adjacent, bands of columns are run down ("wide"); where its
 * depths are, each column is a dot product in 64 virtual lanes ("deep").
 * Called by: matmul.c.  Calls: rows_cut.c, kernels/gemm.h.
 */
#include <string.h>

#include "base/integers.h"
#include "cpu/rows_cut.h"
#include "kernels/tier/tier.h"

enum {
    UNIT_ELEMENTS = 1 << 17, /* of b, in a unit of "deep" */
    FINISH_RUN = 256
};

typedef struct few {
    mr_rows_cut cut;
    bool x_ready, direct;
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
    *s = (few){.cut = mr__rows_cut(p, p->m, 1, sizeof(float), UNIT_ELEMENTS)};
    s->x_ready = p->dtype == MR_FLOAT32 && p->a.depth_stride == 1;
    s->direct = p->dtype == MR_FLOAT32 && s->cut.n_chunks == 1 && p->c_col == 1;
}

static int64_t
x_floats(const few *s)
{
    const mr_product *p = s->cut.p;

    return s->x_ready ? 0 : mr__round_up(p->n_items * p->m * p->k, 16);
}

size_t
mr__product_rows_bytes(const mr_product *p)
{
    int64_t part;
    few s;

    few_plan(p, &s);
    part = s.direct ? 0 : s.cut.n_chunks * p->n_items * p->m * p->n;
    return (size_t)(x_floats(&s) + part) * sizeof(float);
}

static void
x_widen(const few *s)
{
    const mr_product *p = s->cut.p;
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

static void
few_unit(const void *ctx, const mr_rows_unit *u)
{
    const few *s = ctx;
    const mr_rows_cut *cut = &s->cut;
    const mr_product *p = cut->p;
    int64_t depth0 = u->chunk * cut->chunk, x_row = p->k, y_row = p->n;
    mr_gemm_side a, b;
    const float *x;
    float *y;
    void *c;

    mr__product_item(p, u->item, &a, &b, &c);
    if (s->x_ready) {
        x = (const float *)a.data + depth0;
        x_row = a.lane_stride;
    } else {
        x = s->x + u->item * p->m * p->k + depth0;
    }
    if (s->direct) {
        y = (float *)c + u->j;
        y_row = p->c_row;
    } else {
        y = s->part + (u->chunk * p->n_items + u->item) * p->m * p->n + u->j;
    }
    if (cut->wide && cut->far)
        mr__gemv_far(y, y_row, x, x_row, (int)p->m, &u->b, u->depth, u->n);
    else if (cut->wide)
        mr__gemv_wide(y, y_row, x, x_row, (int)p->m, &u->b, u->depth, u->n);
    else
        mr__gemv_deep(y, y_row, x, x_row, (int)p->m, &u->b, u->depth, u->n);
}

/* The chunks' sums of columns [j, j + n) of one row in order, rounded once. */
static void
finish_run(const few *s, int64_t row, int64_t j, int64_t n)
{
    const mr_product *p = s->cut.p;
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
    for (int64_t k = 1; k < s->cut.n_chunks; k++)
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
        int64_t j = i % s->cut.p->n;

        n = s->cut.p->n - j < end - i ? s->cut.p->n - j : end - i;
        n = n < FINISH_RUN ? n : FINISH_RUN;
        finish_run(s, i / s->cut.p->n, j, n);
    }
}

void
mr__product_rows(const mr_product *p, void *workspace)
{
    few s;

    few_plan(p, &s);
    s.x = workspace;
    s.part = s.x + x_floats(&s);
    if (!s.x_ready)
        x_widen(&s);
    mr__rows_run(&s.cut, 0.2, few_unit, &s);
    if (!s.direct)
        mr__cpu_for(p->n_items * p->m * p->n,
                    mr__cpu_grain(0.5 + 0.2 * (double)s.cut.n_chunks),
                    finish_piece, &s);
}
