/* SPDX-License-Identifier: Apache-2.0
 *
 * tiny.c -- batches of very small products.
 *
 * For 4 x 4 a call of a library takes longer than the product.  Rows of 4 or 8
 * columns stay in registers of 16 bytes, which every processor has; each
 * element is a sum in the order of the depth, so nothing depends on the tier.
 * Called by: matmul.c.
 */
#include <string.h>

#include "cpu/product.h"

enum { TINY = 8, MIN_ITEMS = 16 };

typedef float FLOATS __attribute__((vector_size(16)));
typedef double DOUBLES __attribute__((vector_size(16)));

bool
mr__product_tiny_fits(const mr_product *p)
{
    return (p->dtype == MR_FLOAT32 || p->dtype == MR_FLOAT64) &&
           p->n_items >= MIN_ITEMS && p->m <= TINY && p->k <= TINY &&
           (p->n == 4 || p->n == 8) && p->b.lane_stride == 1 && p->c_col == 1;
}

/* One item, n_vectors to a row. */
#define ITEM(name, type, V)                                                    \
    static inline __attribute__((always_inline)) void name(                    \
        const mr_product *p, const type *a, const type *b, type *c,            \
        const int n_vectors)                                                   \
    {                                                                          \
        enum { LANES = sizeof(V) / sizeof(type) };                             \
                                                                               \
        for (int64_t i = 0; i < p->m; i++) {                                   \
            V sum[4] = {{0}};                                                  \
                                                                               \
            for (int64_t k = 0; k < p->k; k++) {                               \
                type x = a[i * p->a.lane_stride + k * p->a.depth_stride];      \
                const type *row = b + k * p->b.depth_stride;                   \
                                                                               \
                for (int v = 0; v < n_vectors; v++) {                          \
                    V y;                                                       \
                                                                               \
                    memcpy(&y, row + v * LANES, sizeof y);                     \
                    sum[v] += x * y;                                           \
                }                                                              \
            }                                                                  \
            memcpy(c + i * p->c_row, sum, (size_t)n_vectors * sizeof(V));      \
        }                                                                      \
    }
ITEM(item_f32, float, FLOATS)
ITEM(item_f64, double, DOUBLES)

static void
item_run(const mr_product *p, const void *a, const void *b, void *c)
{
    if (p->dtype == MR_FLOAT32 && p->n == 4)
        item_f32(p, a, b, c, 1);
    else if (p->dtype == MR_FLOAT32)
        item_f32(p, a, b, c, 2);
    else if (p->n == 4)
        item_f64(p, a, b, c, 2);
    else
        item_f64(p, a, b, c, 4);
}

static void
items_piece(void *ctx, int64_t begin, int64_t end)
{
    const mr_product *p = ctx;
    int64_t size = mr__dtype_size(p->dtype);
    mr_walk w = p->batch;

    mr__walk_seek(&w, begin);
    for (int64_t i = begin; i < end; i++, mr__walk_next(&w))
        item_run(p, (const char *)p->a.data + w.offset[0] * size,
                 (const char *)p->b.data + w.offset[1] * size,
                 (char *)p->c + i * p->c_item * size);
}

void
mr__product_tiny(const mr_product *p)
{
    mr_product copy = *p;

    mr__cpu_for(p->n_items,
                mr__cpu_grain(5.0 + 0.3 * (double)(p->m * p->n * p->k)),
                items_piece, &copy);
}
