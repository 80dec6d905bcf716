/* SPDX-License-Identifier: Apache-2.0
 *
 * hadamard.c -- the Hadamard transform of rows of m * 2^k numbers.
 *
 * k passes of butterflies over the last axis of (m, 2^k), then a matrix of
 * order m = 12, 20 or 28 over the first: O(n log n), in place in the output.
 * Such matrices of +-1 with
 * orthogonal rows are N. J. A. Sloane's lists had.12, had.20 and had.28; which
 * of the equivalent ones is meant is part of the contract.
 * Called by: device.c.
 */
#include <math.h>
#include <string.h>

#include "base/pool.h"
#include "cpu/cpu.h"
#include "ops/params.h"

/* Column i of the matrix, + or - by row. */
static const char *const columns_12[] = {
    "+-++++++++++", "--+-+-+-+-+-", "+++-++----++", "+---+--+-++-",
    "+++++-++----", "+-+---+--+-+", "++--+++-++--", "+--++---+--+",
    "++----+++-++", "+--+-++---+-", "++++----+++-", "+-+--+-++---",
};
static const char *const columns_20[] = {
    "+-----++++--++--+--+", "-+---+-+++---+++-+--", "--+--++-+++---+-+-+-",
    "---+-+++-+++-----+-+", "----+++++--++--+--+-", "+----+----+-++---++-",
    "-+----+----+-++---++", "--+----+--+-+-++---+", "---+----+-++-+-++---",
    "----+----+-++-+-++--", "++--+-+--++----+----", "+++--+-+---+----+---",
    "-+++--+-+---+----+--", "--+++--+-+---+----+-", "+--+++--+-----+----+",
    "+-++-++--+-+++++----", "-+-+++++--+-+++-+---", "+-+-+-+++-++-++--+--",
    "++-+---++++++-+---+-", "-++-++--++++++-----+",
};
static const char *const columns_28[] = {
    "+--------++++--+-++-+-++--++", "-+--------+++++-+-++-+-++--+",
    "--+----+---+++-+-+-++++-++--", "---+---++---+++-+-+-+-++-++-",
    "----+--+++---+++-+-+---++-++", "-----+-++++----++-+-++--++-+",
    "------+-++++--+-++-+-++--++-", "++----++------+--++---+-++-+",
    "+++-----+------+--++-+-+-++-", "-+++-----+------+--++-+-+-++",
    "--+++-----+---+--+--++-+-+-+", "---+++-----+--++--+--++-+-+-",
    "----+++-----+--++--+--++-+-+", "+----++------+--++--++-++-+-",
    "+-+--+--++--+++------++----+", "-+-+--++-++--+-+-----+++----",
    "+-+-+--++-++----+-----+++---", "-+-+-+--++-++----+-----+++--",
    "--+-+-+--++-++----+-----+++-", "+--+-+-+--++-+-----+-----+++",
    "-+--+-+++--++-------++----++", "+--++--+-+--+---++++-+------",
    "-+--++--+-+--+---++++-+-----", "--+--+++-+-+--+---+++--+----",
    "+--+--+-+-+-+-++---++---+---", "++--+----+-+-++++---+----+--",
    "-++--+-+--+-+-++++--------+-", "--++--+-+--+-+-++++--------+",
};

enum { LANES = 16 };

typedef struct rows {
    const mr_kernel_args *a;
    const char *const *columns;
    int64_t n, m, count, n_slots;
    double scale;
    bool wide, transposed; /* wide: double */
    mr_walk walk;
} rows;

/* ---- one row
 * ------------------------------------------------------------------ */

/* The three steps of a row, in float32 and float64. */
#define BUTTERFLIES(name, type)                                                \
    static void name(type *x, int64_t n, int64_t run)                          \
    {                                                                          \
        for (int64_t h = 1; h < run; h *= 2)                                   \
            for (int64_t i = 0; i < n; i += 2 * h) {                           \
                type *restrict low = x + i, *restrict high = x + i + h;        \
                                                                               \
                for (int64_t j = 0; j < h; j++) {                              \
                    type a = low[j], b = high[j];                              \
                                                                               \
                    low[j] = a + b;                                            \
                    high[j] = a - b;                                           \
                }                                                              \
            }                                                                  \
    }
BUTTERFLIES(butterflies_f32, float)
BUTTERFLIES(butterflies_f64, double)

/* Is the sign of input i in result k a plus? */
static bool
sign_at(const rows *r, int64_t i, int64_t k)
{
    return (r->transposed ? r->columns[k][i] : r->columns[i][k]) == '+';
}

/* The matrix of order m over rows `run` long, LANES columns at a time. */
#define MIX(name, type)                                                        \
    static void name(const rows *r, type *x, int64_t run)                      \
    {                                                                          \
        type sum[28][LANES];                                                   \
                                                                               \
        for (int64_t j = 0; j < run; j += LANES) {                             \
            int64_t lanes = run - j < LANES ? run - j : LANES;                 \
                                                                               \
            memset(sum, 0, sizeof sum);                                        \
            for (int64_t i = 0; i < r->m; i++)                                 \
                for (int64_t k = 0; k < r->m; k++) {                           \
                    type sign = (type)(sign_at(r, i, k) ? 1.0 : -1.0);         \
                                                                               \
                    for (int64_t l = 0; l < lanes; l++)                        \
                        sum[k][l] += sign * x[i * run + j + l];                \
                }                                                              \
            for (int64_t k = 0; k < r->m; k++)                                 \
                memcpy(x + k * run + j, sum[k], (size_t)lanes * sizeof *x);    \
        }                                                                      \
    }
MIX(mix_f32, float)
MIX(mix_f64, double)

#define ROW(name, type, butterflies, mix)                                      \
    static void name(const rows *r, type *x)                                   \
    {                                                                          \
        type scale = (type)r->scale;                                           \
                                                                               \
        butterflies(x, r->n, r->n / r->m);                                     \
        if (r->m > 1)                                                          \
            mix(r, x, r->n / r->m);                                            \
        for (int64_t i = 0; i < r->n; i++)                                     \
            x[i] *= scale;                                                     \
    }
ROW(row_f32, float, butterflies_f32, mix_f32)
ROW(row_f64, double, butterflies_f64, mix_f64)

/* ---- all rows
 * ------------------------------------------------------------------ */

static void
row_load(const rows *r, int64_t offset, void *to)
{
    const mr_kernel_view *in = &r->a->in[0];
    int64_t step = in->stride[in->ndim - 1];

    for (int64_t i = 0; i < r->n; i++) {
        int64_t at = offset + i * step;

        if (r->wide)
            ((double *)to)[i] = ((const double *)in->data)[at];
        else
            ((float *)to)[i] = ((const float *)in->data)[at];
    }
}

static void
slots_piece(void *ctx, int64_t begin, int64_t end)
{
    const rows *r = ctx;
    const mr_kernel_view *out = &r->a->out[0];
    int64_t item = mr__dtype_size(out->dtype);

    for (int64_t slot = begin; slot < end; slot++) {
        int64_t first = r->count * slot / r->n_slots;
        int64_t last = r->count * (slot + 1) / r->n_slots;
        mr_walk w = r->walk;

        mr__walk_seek(&w, first);
        for (int64_t i = first; i < last; i++, mr__walk_next(&w)) {
            void *to = (char *)out->data + i * r->n * item;

            row_load(r, w.offset[0], to);
            if (r->wide)
                row_f64(r, to);
            else
                row_f32(r, to);
        }
    }
}

static void
rows_plan(const mr_kernel_args *a, rows *r)
{
    const mr_hadamard_params *p = a->params;
    const mr_kernel_view *x = &a->in[0];
    int32_t last = x->ndim - 1;
    int64_t odd = x->dim[last];

    *r = (rows){.a = a,
                .n = odd,
                .m = 1,
                .wide = x->dtype == MR_FLOAT64,
                .transposed = p->transposed};
    while (odd > 0 && odd % 2 == 0)
        odd /= 2;
    if (odd > 1) {
        r->m = 4 * odd;
        r->columns = odd == 3 ? columns_12 : odd == 5 ? columns_20 : columns_28;
    }
    r->count = r->n > 0 ? x->size / r->n : 0;
    r->scale = isnan(p->scale) ? 1.0 / sqrt((double)r->n) : p->scale;
    r->n_slots = x->size < 32768 ? 1 : mr__pool_threads();
    r->n_slots = r->n_slots < r->count ? r->n_slots : r->count;
    mr__walk_init(&r->walk, x->ndim, x->dim, 1U << last);
    mr__walk_add(&r->walk, x->ndim, x->stride, 1U << last);
    mr__walk_merge(&r->walk);
}

mr_code
mr__cpu_hadamard(const mr_kernel_args *a)
{
    rows r;

    rows_plan(a, &r);
    mr__cpu_for(r.n_slots, 1, slots_piece, &r);
    return MR_OK;
}
