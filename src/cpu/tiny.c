/* SPDX-License-Identifier: Apache-2.0
 *
 * tiny.c -- batches of very small products.
 *
 * For 4 x 4 a call of a library takes longer than the product.  All sums of a
 * product stay in registers; each is one chain of multiply-adds in the order of
 * the depth.  So nothing depends on the tier, and nothing on how the operands
 * lie either: a matrix b whose columns are not adjacent is copied first.
 * Called by: matmul.c.  Calls: kernels/gemm.h, the pool.
 */
#include "cpu/product.h"

enum { TINY = 16, MIN_ITEMS = 16 };

bool
mr__product_tiny_fits(const mr_product *p)
{
    return (p->dtype == MR_FLOAT32 || p->dtype == MR_FLOAT64) &&
           p->n_items >= MIN_ITEMS && p->m <= TINY && p->k <= TINY &&
           p->n <= TINY && p->c_col == 1;
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
        else
            item_f64(p, a, b, c);
    }
}

void
mr__product_tiny(const mr_product *p)
{
    mr_product copy = *p;

    mr__cpu_for(p->n_items,
                mr__cpu_grain(8.0 + 0.05 * (double)(p->m * p->n * p->k)),
                items_piece, &copy);
}
