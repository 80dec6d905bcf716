/* SPDX-License-Identifier: Apache-2.0
 *
 * rows_wide.c -- products with few rows of float64 and complex numbers, at the
 * speed of memory.
 *
 * As rows.c, over "reals": a complex number is two of them.  A complex row of x
 * is two rows, of its real and of its imaginary parts; each meets b as it lies,
 * real and imaginary parts side by side, so nothing is shuffled where the time
 * goes.  In the end
 *     re = sum xr br - sum xi bi,  im = sum xr bi + sum xi br.
 * The depth is cut into chunks of fixed length; their sums are added in order.
 * Called by: matmul.c.  Calls: kernels/gemm.h, share.c, the pool.
 */
#include <string.h>

#include "base/integers.h"
#include "base/pool.h"
#include "cpu/product.h"
#include "cpu/share.h"

enum {
    WIDE_DEPTH = 256,
    DEEP_DEPTH = 16384,
    UNIT_ELEMENTS = 1 << 16, /* of b, in a unit of "deep" */
    N_LANES = 64,
    PIECE = 1024 /* reals of a column at a time; a multiple of N_LANES */
};

typedef struct few {
    const mr_product *p;
    bool wide, far, twice; /* twice: reals are doubles */
    bool shared;
    int64_t slice;                /* when shared */
    int64_t parts, rows, columns; /* reals a number; rows of x, columns of b */
    int64_t x_row;                /* reals of a row of x */
    int64_t chunk, n_chunks, band, n_bands; /* in numbers */
    char *x;                                /* items x rows x x_row */
    char *sums; /* chunks x items x rows x columns */
} few;

bool
mr__product_rows_wide_fit(const mr_product *p)
{
    int64_t parts = mr__dtype_is_complex(p->dtype) ? 2 : 1;
    bool real64 = p->dtype == MR_FLOAT64;

    return (real64 || parts == 2) && p->m * parts <= MR_GEMV_ROWS &&
           (p->b.lane_stride == 1 || p->b.depth_stride == 1);
}

static int64_t
real_size(const few *s)
{
    return s->twice ? 8 : 4;
}

static void
few_plan(const mr_product *p, few *s)
{
    int64_t parts = mr__dtype_is_complex(p->dtype) ? 2 : 1;
    int64_t bytes = p->n_items * p->k * p->n * mr__dtype_size(p->dtype);

    *s = (few){.p = p,
               .wide = p->b.lane_stride == 1,
               .far = bytes >= MR_GEMV_FAR,
               .twice = p->dtype != MR_COMPLEX64,
               .parts = parts,
               .rows = p->m * parts,
               .columns = p->n * parts};
    if (p->b.depth_stride == 1 && p->n == 1)
        s->wide = false;
    s->x_row = s->wide ? p->k : p->k * parts;
    s->chunk = s->wide ? WIDE_DEPTH : DEEP_DEPTH;
    s->n_chunks = (p->k - 1) / s->chunk + 1;
    s->band = mr__gemv_band(s->columns, s->rows, s->twice ? 8 : 4,
                            p->n_items * s->n_chunks) /
              parts;
    if (!s->wide) {
        s->band = UNIT_ELEMENTS / (p->k < s->chunk ? p->k : s->chunk);
        s->band = s->band < 1 ? 1 : s->band;
    }
    s->shared = mr__share_pays(bytes);
    if (s->shared && s->wide)
        s->band = mr__gemv_halves(s->band, p->n);
    s->n_bands = (p->n - 1) / s->band + 1;
}

/* Reals of x, in whole lines. */
static int64_t
x_reals(const few *s)
{
    return mr__round_up(s->p->n_items * s->rows * s->x_row, 16);
}

size_t
mr__product_rows_wide_bytes(const mr_product *p)
{
    few s;

    few_plan(p, &s);
    return (
        size_t)((x_reals(&s) + s.n_chunks * p->n_items * s.rows * s.columns) *
                real_size(&s));
}

/* Rows of x: part q of number k at k, or at 2 k and 2 k + 1 where b is read
 * depth by depth. */
#define X_LAY(name, type)                                                      \
    static void name(const few *s, int64_t item, int64_t row,                  \
                     const type *from)                                         \
    {                                                                          \
        int64_t step = s->p->a.depth_stride * s->parts;                        \
        int64_t times = s->wide ? 1 : s->parts;                                \
        type *to = (type *)(void *)s->x +                                      \
                   (item * s->rows + row * s->parts) * s->x_row;               \
                                                                               \
        for (int64_t q = 0; q < s->parts; q++, to += s->x_row)                 \
            for (int64_t k = 0; k < s->p->k; k++)                              \
                for (int64_t t = 0; t < times; t++)                            \
                    to[k * times + t] = from[k * step + q];                    \
    }
X_LAY(x_lay_f32, float)
X_LAY(x_lay_f64, double)

static void
x_lay(const few *s)
{
    const mr_product *p = s->p;
    int64_t size = mr__dtype_size(p->dtype);
    mr_gemm_side a, b;
    void *c;

    for (int64_t item = 0; item < p->n_items; item++) {
        mr__product_item(p, item, &a, &b, &c);
        for (int64_t row = 0; row < p->m; row++) {
            const char *from =
                (const char *)a.data + row * a.lane_stride * size;

            if (s->twice)
                x_lay_f64(s, item, row, (const double *)(const void *)from);
            else
                x_lay_f32(s, item, row, (const float *)(const void *)from);
        }
    }
}

/* All rows of x with a column, piece by piece, so that the column's pieces are
 * read from memory once; each row's lanes are brought down to `parts` sums in a
 * fixed order. */
#define DEEP(name, type, dot)                                                  \
    static void name(const few *s, const type *x, const type *b, int64_t n,    \
                     type *to)                                                 \
    {                                                                          \
        _Alignas(64) type lanes[MR_GEMV_ROWS][N_LANES] = {{0}};                \
                                                                               \
        for (int64_t at = 0; at < n; at += PIECE)                              \
            for (int64_t i = 0; i < s->rows; i++)                              \
                dot(lanes[i], x + i * s->x_row + at, b + at,                   \
                    n - at < PIECE ? n - at : PIECE);                          \
        for (int64_t i = 0; i < s->rows; i++, to += s->columns) {              \
            for (int64_t half = N_LANES / 2; half >= s->parts; half /= 2)      \
                for (int64_t l = 0; l < half; l++)                             \
                    lanes[i][l] += lanes[i][l + half];                         \
            memcpy(to, lanes[i], (size_t)s->parts * sizeof *to);               \
        }                                                                      \
    }
DEEP(deep_f32, float, mr__gemm_in_use()->dot[MR_GEMM_FLOAT32])
DEEP(deep_f64, double, mr__gemm_in_use()->f64->dot)

/* Columns [j, j + n) of one chunk: x and b at its first depth. */
static void
deep_unit(const few *s, const char *x, const char *b, int64_t step,
          int64_t depth, int64_t n, char *sums)
{
    int64_t reals = depth * s->parts, next = s->parts * real_size(s);

    for (int64_t j = 0; j < n; j++, b += step, sums += next) {
        const void *row = x, *column = b;
        void *to = sums;

        if (s->twice)
            deep_f64(s, row, column, reals, to);
        else
            deep_f32(s, row, column, reals, to);
    }
}

static void
wide_unit(const few *s, const char *x, const char *b, int64_t step,
          int64_t depth, int64_t n, char *sums)
{
    int64_t size = real_size(s), reals = n * s->parts;
    const mr_gemm_tier *t = mr__gemm_in_use();

    for (int64_t i = 0; i < s->rows; i++)
        memset(sums + i * s->columns * size, 0, (size_t)(reals * size));
    if (s->twice)
        t->f64->wide((double *)(void *)sums, s->columns,
                     (const double *)(const void *)x, s->x_row, (int)s->rows, b,
                     step / size, depth, reals, s->far);
    else
        t->wide[MR_GEMM_FLOAT32](
            (float *)(void *)sums, s->columns, (const float *)(const void *)x,
            s->x_row, (int)s->rows, b, step / size, depth, reals, s->far);
}

/* A unit: which chunk of an item, which columns, and of b that. */
typedef struct region {
    int64_t item, chunk, depth, j, n;
    const char *b;
    int64_t depth_step, lane_step; /* bytes */
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
    int64_t number = mr__dtype_size(p->dtype);
    region u = {.item = unit / s->n_bands / s->n_chunks,
                .chunk = unit / s->n_bands % s->n_chunks,
                .j = unit % s->n_bands * s->band};
    int64_t depth = p->k - u.chunk * s->chunk, n = p->n - u.j;
    mr_gemm_side a, b;
    void *c;

    u.depth = depth < s->chunk ? depth : s->chunk;
    u.n = n < s->band ? n : s->band;
    mr__product_item(p, u.item, &a, &b, &c);
    u.depth_step = b.depth_stride * number;
    u.lane_step = b.lane_stride * number;
    u.b = (const char *)b.data + u.j * u.lane_step +
          u.chunk * s->chunk * u.depth_step;
    return u;
}

static void
few_unit(const few *s, int64_t unit)
{
    const mr_product *p = s->p;
    int64_t real = real_size(s);
    region u = region_at(s, unit);
    const char *x = s->x + (u.item * s->rows * s->x_row +
                            u.chunk * s->chunk * (s->wide ? 1 : s->parts)) *
                               real;
    char *sums =
        s->sums + ((u.chunk * p->n_items + u.item) * s->rows * s->columns +
                   u.j * s->parts) *
                      real;

    if (s->wide)
        wide_unit(s, x, u.b, u.depth_step, u.depth, u.n, sums);
    else
        deep_unit(s, x, u.b, u.lane_step, u.depth, u.n, sums);
}

static void
few_piece(void *ctx, int64_t begin, int64_t end)
{
    for (int64_t u = begin; u < end; u++)
        few_unit(ctx, u);
}

/* With a slice of the unit beside it. */
static void
shared_unit(const void *ctx, int64_t unit, char *slot)
{
    const few *s = ctx;
    int64_t number = mr__dtype_size(s->p->dtype);

    (void)slot;
    if ((unit ^ 1) < n_units(s)) {
        region u = region_at(s, unit ^ 1);

        if (s->wide)
            mr__share_rows(s->slice, u.b, u.depth, u.n * number, u.depth_step);
        else
            mr__share_rows(s->slice, u.b, u.n, u.depth * number, u.lane_step);
    }
    few_unit(s, unit);
}

/* Number j of a row: its chunks' sums in order, its parts put together. */
#define FINISH(name, type)                                                     \
    static void name(const few *s, int64_t item, int64_t row, int64_t j,       \
                     type *to)                                                 \
    {                                                                          \
        int64_t all = s->p->n_items * s->rows * s->columns;                    \
        const type *from = (const type *)(const void *)s->sums +               \
                           (item * s->rows + row * s->parts) * s->columns +    \
                           j * s->parts;                                       \
        type sum[2][2] = {{0}};                                                \
                                                                               \
        for (int64_t q = 0; q < s->parts; q++, from += s->columns)             \
            for (int64_t r = 0; r < s->parts; r++) {                           \
                sum[q][r] = from[r];                                           \
                for (int64_t k = 1; k < s->n_chunks; k++)                      \
                    sum[q][r] += from[k * all + r];                            \
            }                                                                  \
        to[0] = s->parts == 1 ? sum[0][0] : sum[0][0] - sum[1][1];             \
        if (s->parts == 2)                                                     \
            to[1] = sum[0][1] + sum[1][0];                                     \
    }
FINISH(finish_f32, float)
FINISH(finish_f64, double)

static void
finish_piece(void *ctx, int64_t begin, int64_t end)
{
    const few *s = ctx;
    const mr_product *p = s->p;

    for (int64_t u = begin; u < end; u++) {
        int64_t j = u % p->n, row = u / p->n % p->m, item = u / p->n / p->m;
        int64_t at = item * p->c_item + row * p->c_row + j * p->c_col;

        if (s->twice)
            finish_f64(s, item, row, j, (double *)p->c + at * s->parts);
        else
            finish_f32(s, item, row, j, (float *)p->c + at * s->parts);
    }
}

void
mr__product_rows_wide(const mr_product *p, void *workspace)
{
    double depth, band;
    few s;

    few_plan(p, &s);
    s.x = workspace;
    s.sums = s.x + x_reals(&s) * real_size(&s);
    x_lay(&s);
    depth = (double)(p->k < s.chunk ? p->k : s.chunk);
    band = (double)(p->n < s.band ? p->n : s.band);
    if (s.shared) {
        s.slice = mr__share_slice();
        mr__cpu_units(mr__pool_threads(), n_units(&s), NULL, 0, shared_unit,
                      &s);
    } else {
        mr__cpu_for(n_units(&s),
                    mr__cpu_grain(0.4 * depth * band * (double)s.parts),
                    few_piece, &s);
    }
    mr__cpu_for(p->n_items * p->m * p->n,
                mr__cpu_grain(3.0 + 0.5 * (double)(s.n_chunks * s.parts)),
                finish_piece, &s);
}
