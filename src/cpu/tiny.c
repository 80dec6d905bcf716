/* SPDX-License-Identifier: Apache-2.0
 *
 * tiny.c -- batches of very small products.
 *
 * For 4 x 4 a call of a library takes longer than the product.  All sums of a
 * product stay in registers; each is one chain of multiply-adds in the order of
 * the depth.  So nothing depends on the tier, and nothing on how the operands
 * lie either: a matrix b whose columns are not adjacent is copied first. Halves
 * are brought together, some items at a time, widened, and rounded at the end.
 * Called by: matmul.c.  Calls: kernels/gemm.h, the pool.
 */
#include <string.h>

#include "base/integers.h"
#include "cpu/product.h"
#include "kernels/tier/tier.h"

enum {
    TINY = 16,
    MIN_ITEMS = 16,
    TOGETHER = 1024 /* halves of an operand that are widened at a time */
};

bool
mr__product_tiny_fits(const mr_product *p)
{
    int64_t most = mr__dtype_is_complex(p->dtype) ? TINY / 2 : TINY;

    return mr__dtype_is_inexact(p->dtype) && p->n_items >= MIN_ITEMS &&
           p->m <= TINY && p->k <= most && p->n <= most && p->c_col == 1;
}

/* One item: b's columns adjacent, else a copy of it whose are. */
#define ITEM(name, type, small)                                                \
    static void name(const mr_product *p, const type *a, const type *b,        \
                     type *c)                                                  \
    {                                                                          \
        int64_t step = p->b.lane_stride, b_row = p->b.depth_stride;            \
        type dense[TINY * TINY];                                               \
                                                                               \
        if (step != 1) {                                                       \
            for (int64_t k = 0; k < p->k; k++)                                 \
                for (int64_t j = 0; j < p->n; j++)                             \
                    dense[k * TINY + j] = b[k * b_row + j * step];             \
            b = dense;                                                         \
            b_row = TINY;                                                      \
        }                                                                      \
        small(a, p->a.lane_stride, p->a.depth_stride, b, b_row, c, p->c_row,   \
              p->m, p->k, p->n);                                               \
    }
ITEM(item_f32, float, mr__gemm_in_use()->small)
ITEM(item_f64, double, mr__gemm_in_use()->f64->small)

/* Of complex numbers: rows of a are of twice as many real ones, and each row of
 * b is two, (re, im) and (-im, re) of each number. */
#define COMPLEX(name, type, small)                                             \
    static void name(const mr_product *p, const type *a, const type *b,        \
                     type *c)                                                  \
    {                                                                          \
        int64_t a_row = 2 * p->a.lane_stride, n = 2 * p->n;                    \
        type left[TINY * TINY], right[TINY * TINY];                            \
                                                                               \
        if (p->a.depth_stride != 1) {                                          \
            for (int64_t i = 0; i < p->m; i++)                                 \
                for (int64_t k = 0; k < p->k; k++)                             \
                    memcpy(left + i * TINY + 2 * k,                            \
                           a + i * a_row + 2 * k * p->a.depth_stride,          \
                           2 * sizeof *a);                                     \
            a = left;                                                          \
            a_row = TINY;                                                      \
        }                                                                      \
        for (int64_t k = 0; k < p->k; k++)                                     \
            for (int64_t j = 0; j < p->n; j++) {                               \
                const type *x =                                                \
                    b + 2 * (k * p->b.depth_stride + j * p->b.lane_stride);    \
                type *y = right + 2 * k * n + 2 * j;                           \
                                                                               \
                y[0] = y[n + 1] = x[0];                                        \
                y[1] = x[1];                                                   \
                y[n] = -x[1];                                                  \
            }                                                                  \
        small(a, a_row, 1, right, n, c, 2 * p->c_row, p->m, 2 * p->k, n);      \
    }
COMPLEX(item_c64, float, mr__gemm_in_use()->small)
COMPLEX(item_c128, double, mr__gemm_in_use()->f64->small)

static void
items_piece(void *ctx, int64_t begin, int64_t end)
{
    const mr_product *p = ctx;
    int64_t size = mr__dtype_size(p->dtype);
    mr_walk w = p->batch;

    mr__walk_seek(&w, begin);
    for (int64_t i = begin; i < end; i++, mr__walk_next(&w)) {
        const void *a = (const char *)p->a.data + w.offset[0] * size;
        const void *b = (const char *)p->b.data + w.offset[1] * size;
        void *c = (char *)p->c + i * p->c_item * size;

        if (p->dtype == MR_FLOAT32)
            item_f32(p, a, b, c);
        else if (p->dtype == MR_FLOAT64)
            item_f64(p, a, b, c);
        else if (p->dtype == MR_COMPLEX64)
            item_c64(p, a, b, c);
        else
            item_c128(p, a, b, c);
    }
}

/* A matrix of one item, row by row. */
static void
halves_gather(const mr_gemm_side *side, int64_t at, int64_t rows, int64_t cols,
              int64_t row, int64_t col, uint16_t *to)
{
    const uint16_t *from = (const uint16_t *)side->data + at;

    if (row == cols && col == 1) {
        memcpy(to, from, (size_t)(rows * cols) * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < rows; i++, from += row, to += cols)
        for (int64_t j = 0; j < cols; j++)
            to[j] = from[j * col];
}

/* n items, whose results lie one after the other in `c`. */
static void
halves_run(const mr_product *p, mr_walk *w, int64_t n, float *c)
{
    uint16_t half[TOGETHER];
    float a[TOGETHER], b[TOGETHER];
    int64_t a_size = p->m * p->k, b_size = p->k * p->n, c_size = p->m * p->n;
    mr_walk at = *w;

    for (int64_t i = 0; i < n; i++, mr__walk_next(&at))
        halves_gather(&p->a, at.offset[0], p->m, p->k, p->a.lane_stride,
                      p->a.depth_stride, half + i * a_size);
    mr__tier()->casts->cast[p->dtype][MR_FLOAT32](a, half, n * a_size);
    for (int64_t i = 0; i < n; i++, mr__walk_next(w))
        halves_gather(&p->b, w->offset[1], p->k, p->n, p->b.depth_stride,
                      p->b.lane_stride, half + i * b_size);
    mr__tier()->casts->cast[p->dtype][MR_FLOAT32](b, half, n * b_size);
    for (int64_t i = 0; i < n; i++)
        mr__gemm_in_use()->small(a + i * a_size, p->k, 1, b + i * b_size, p->n,
                                 c + i * c_size, p->n, p->m, p->k, p->n);
}

/* Results of items [i, i + n) to their places. */
static void
halves_store(const mr_product *p, int64_t i, int64_t n, const uint16_t *from)
{
    uint16_t *to = (uint16_t *)p->c + i * p->c_item;

    if (p->c_row == p->n && p->c_item == p->m * p->n) {
        memcpy(to, from, (size_t)(n * p->m * p->n) * sizeof *to);
        return;
    }
    for (int64_t k = 0; k < n; k++, to += p->c_item)
        for (int64_t row = 0; row < p->m; row++, from += p->n)
            memcpy(to + row * p->c_row, from, (size_t)p->n * sizeof *to);
}

static void
halves_piece(void *ctx, int64_t begin, int64_t end)
{
    const mr_product *p = ctx;
    int64_t size = p->m * p->n, n;
    int64_t most = mr__max(size, mr__max(p->m * p->k, p->k * p->n));
    uint16_t half[TOGETHER];
    float c[TOGETHER];
    mr_walk w = p->batch;

    mr__walk_seek(&w, begin);
    for (int64_t i = begin; i < end; i += n) {
        n = mr__min(end - i, TOGETHER / most);
        halves_run(p, &w, n, c);
        mr__tier()->casts->cast[MR_FLOAT32][p->dtype](half, c, n * size);
        halves_store(p, i, n, half);
    }
}

void
mr__product_tiny(const mr_product *p)
{
    mr_product copy = *p;

    mr__cpu_for(
        p->n_items,
        mr__cpu_grain(8.0 + (mr__dtype_is_complex(p->dtype) ? 0.2 : 0.05) *
                                (double)(p->m * p->n * p->k)),
        mr__dtype_is_half(p->dtype) ? halves_piece : items_piece, &copy);
}
