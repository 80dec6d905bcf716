/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_pairs.c -- products of bfloat16 rows with packed matrices, in pairs.
 *
 * Codes are exact in bfloat16, so where the processor multiplies pairs of such
 * twice as fast as floats (kernels/gemm.h) the sums over a group are those of
 * widened numbers; they are scaled group by group, and biases meet the sums of
 * x.  All of x is packed; then each strip of the matrix, as many columns as a
 * register tile has, goes to pairs a piece of depth at a time, and meets up to
 * BLOCK_ROWS rows.
 * Called by: quant_product.c.  Calls: kernels/quant.h, kernels/gemm.h, the
 * pool.
 */
#include <stdatomic.h>
#include <string.h>

#include "cpu/quant.h"
#include "kernels/gemm.h"
#include "kernels/tier/tier.h"

enum {
    BLOCK_ROWS = MR_STRIP_ROWS,
    DEPTH = MR_QUANT_PAIRS_DEPTH,
    LEAST_GROUP = 16,
    MOST_GROUP = 128
};

typedef struct pairs {
    const mr_product *p;
    const mr_quant_format *f;
    mr__quant_matrix_fn *matrix;
    atomic_bool unfit; /* relaxed: read after the loop, else only a hint */
    bool a_shared;
    int64_t rows, cols;               /* of a panel */
    int64_t panels, blocks, strips;   /* of an item */
    int64_t groups, a_floats, floats; /* of an item: packed, with sums */
    float *a;
} pairs;

bool
mr__quant_pairs_fit(const mr_product *p, const mr_quant_format *f)
{
    return p->dtype == MR_BFLOAT16 && p->a.dtype == MR_BFLOAT16 &&
           f->group <= MOST_GROUP && mr__gemm_pairs(MR_BFLOAT16);
}

static pairs
pairs_plan(const mr_product *p, const mr_quant_format *f)
{
    pairs s = {.p = p,
               .f = f,
               .a_shared = true,
               .rows = mr__gemm_rows(),
               .cols = mr__gemm_cols(),
               .blocks = (p->m - 1) / BLOCK_ROWS + 1,
               .groups = p->k / f->group};

    s.panels = (p->m - 1) / s.rows + 1;
    s.strips = (p->n - 1) / s.cols + 1;
    s.a_floats = s.panels * s.rows * (p->k / 2);
    s.floats = s.a_floats + s.panels * s.rows * s.groups;
    s.floats = (s.floats + 15) / 16 * 16;
    for (int32_t k = 0; k < p->batch.ndim; k++)
        s.a_shared = s.a_shared && p->batch.stride[0][k] == 0;
    return s;
}

size_t
mr__quant_pairs_bytes(const mr_product *p, const mr_quant_format *f)
{
    pairs s = pairs_plan(p, f);

    return (size_t)(s.floats * (s.a_shared ? 1 : p->n_items)) * sizeof(float);
}

static bool
unfit(pairs *s)
{
    return atomic_load_explicit(&s->unfit, memory_order_relaxed);
}

/* Rows of a block, its panels, and where its packed rows begin: pieces of
 * depth, each all panels of the block; sums: groups, each all its rows. */
typedef struct block {
    int64_t m, panels;
    float *a, *sums;
} block;

static block
block_at(const pairs *s, int64_t item, int64_t i)
{
    int64_t row = i * BLOCK_ROWS, m = s->p->m - row;
    block b = {.m = m < BLOCK_ROWS ? m : BLOCK_ROWS};
    float *a = s->a + (s->a_shared ? 0 : item) * s->floats;

    b.panels = (b.m - 1) / s->rows + 1;
    b.a = a + row * (s->p->k / 2);
    b.sums = a + s->a_floats + row * s->groups;
    return b;
}

/* Sums over the groups of row i of x. */
static void
sums_make(const pairs *s, const mr_gemm_side *a, int64_t i, float *to,
          int64_t step)
{
    const uint16_t *x = a->data;
    float wide[MOST_GROUP], sum;

    x += i * a->lane_stride;
    for (int64_t g = 0; g < s->groups; g++) {
        mr__tier()->casts->cast[MR_BFLOAT16][MR_FLOAT32](
            wide, x + g * s->f->group, s->f->group);
        mr__quant_group_sums(wide, s->f->group, 1, &sum);
        to[g * step] = sum;
    }
}

/* Units: the panels of all items. */
static void
pack_piece(void *ctx, int64_t begin, int64_t end)
{
    pairs *s = ctx;

    for (int64_t u = begin; u < end && !unfit(s); u++) {
        int64_t per_block = BLOCK_ROWS / s->rows, panel = u % s->panels;
        block b = block_at(s, u / s->panels, panel / per_block);
        int64_t own = panel % per_block, depth;
        float *to = b.a, *sums = b.sums + own * s->rows;
        mr_gemm_side a, side;
        bool fine = true;
        void *c;

        mr__product_item(s->p, u / s->panels, &a, &side, &c);
        for (int64_t at = 0; at < s->p->k; at += depth) {
            depth = s->p->k - at < DEPTH ? s->p->k - at : DEPTH;
            fine = mr__gemm_pack_pairs(&a, (int)s->rows, panel, at, depth,
                                       to + own * s->rows * depth / 2) &&
                   fine;
            to += b.panels * s->rows * depth / 2;
        }
        if (!fine)
            atomic_store_explicit(&s->unfit, true, memory_order_relaxed);
        for (int64_t i = 0; s->f->biased && i < s->rows; i++)
            if (panel * s->rows + i < s->p->m)
                sums_make(s, &a, panel * s->rows + i, sums + i,
                          b.panels * s->rows);
            else
                for (int64_t g = 0; g < s->groups; g++)
                    sums[g * b.panels * s->rows + i] = 0.0F;
    }
}

/* y = the rows of a block times the columns of a strip. */
static void
strip_run(const pairs *s, const block *b, const mr_quant_matrix *w,
          int64_t strip, float *y)
{
    _Alignas(64) float codes[DEPTH / 2 * MR_GEMM_MAX_COLS];
    _Alignas(64) float scale[DEPTH / LEAST_GROUP * MR_GEMM_MAX_COLS];
    _Alignas(64) float bias[DEPTH / LEAST_GROUP * MR_GEMM_MAX_COLS];
    int64_t group = s->f->group, high = b->panels * s->rows, depth;
    const float *a = b->a;

    memset(y, 0, (size_t)(high * s->cols) * sizeof *y);
    for (int64_t at = 0; at < s->p->k; at += depth) {
        depth = s->p->k - at < DEPTH ? s->p->k - at : DEPTH;
        mr__quant_pairs_panel(w, (int)s->cols, strip, at, depth, codes, scale,
                              s->f->biased ? bias : NULL);
        for (int64_t g = 0; g < depth / group; g++) {
            mr_gemm_group part = {.m = b->m,
                                  .depth = group / 2,
                                  .a = a + g * group / 2 * s->rows,
                                  .b = codes + g * group / 2 * s->cols,
                                  .scale = scale + g * s->cols,
                                  .bias =
                                      s->f->biased ? bias + g * s->cols : NULL,
                                  .x_sums = b->sums + (at / group + g) * high,
                                  .a_panel = depth / 2 * s->rows,
                                  .c = y};

            mr__gemm_group_run(&part);
        }
        a += high * depth / 2;
    }
}

/* Units: strips of the blocks of all items. */
static void
strip_piece(void *ctx, int64_t begin, int64_t end)
{
    const pairs *s = ctx;
    const mr_product *p = s->p;
    _Alignas(64) float y[BLOCK_ROWS * MR_GEMM_MAX_COLS];

    for (int64_t u = begin; u < end; u++) {
        int64_t i = u % s->blocks, strip = u / s->blocks % s->strips;
        int64_t item = u / s->blocks / s->strips, j = strip * s->cols;
        int64_t n = p->n - j < s->cols ? p->n - j : s->cols;
        mr_quant_matrix w = s->matrix(p->pack_ctx, mr__product_offset(p, item));
        block b = block_at(s, item, i);
        mr_gemm_side side[2];
        void *c;

        mr__product_item(p, item, &side[0], &side[1], &c);
        strip_run(s, &b, &w, strip, y);
        for (int64_t r = 0; r < b.m; r++)
            mr__tier()->casts->cast[MR_FLOAT32][MR_BFLOAT16](
                (uint16_t *)c + (i * BLOCK_ROWS + r) * p->c_row + j,
                y + r * s->cols, n);
    }
}

bool
mr__quant_pairs(const mr_product *p, const mr_quant_format *f,
                mr__quant_matrix_fn *matrix, void *workspace)
{
    pairs s = pairs_plan(p, f);
    double depth = (double)p->k, rows = (double)s.rows, cols = (double)s.cols;
    double high = (double)(p->m < BLOCK_ROWS ? p->m : BLOCK_ROWS);

    s.matrix = matrix;
    s.a = workspace;
    mr__cpu_for((s.a_shared ? 1 : p->n_items) * s.panels,
                mr__cpu_grain(0.2 * depth * rows), pack_piece, &s);
    if (unfit(&s))
        return false;
    mr__cpu_for(p->n_items * s.strips * s.blocks,
                mr__cpu_grain(depth * cols * (0.15 + 0.01 * high)), strip_piece,
                &s);
    return true;
}
