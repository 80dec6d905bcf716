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
 * Called by: matmul.c.  Calls: rows_cut.c, kernels/gemm.h.
 */
#include <string.h>

#include "base/integers.h"
#include "cpu/rows_cut.h"

enum {
    UNIT_ELEMENTS = 1 << 16, /* of b, in a unit of "deep" */
    N_LANES = 64,
    PIECE = 1024 /* reals of a column at a time; a multiple of N_LANES */
};

typedef struct few {
    mr_rows_cut cut;
    bool twice;                   /* reals are doubles */
    int64_t parts, rows, columns; /* reals a number; rows of x, columns of b */
    int64_t x_row;                /* reals of a row of x */
    char *x;                      /* items x rows x x_row */
    char *sums;                   /* chunks x items x rows x columns */
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
    bool twice = p->dtype != MR_COMPLEX64;

    *s = (few){.cut = mr__rows_cut(p, p->m * parts, parts, twice ? 8 : 4,
                                   UNIT_ELEMENTS),
               .twice = twice,
               .parts = parts,
               .rows = p->m * parts,
               .columns = p->n * parts};
    s->x_row = s->cut.wide ? p->k : p->k * parts;
}

/* Reals of x, in whole lines. */
static int64_t
x_reals(const few *s)
{
    return mr__round_up(s->cut.p->n_items * s->rows * s->x_row, 16);
}

size_t
mr__product_rows_wide_bytes(const mr_product *p)
{
    few s;

    few_plan(p, &s);
    return (size_t)((x_reals(&s) +
                     s.cut.n_chunks * p->n_items * s.rows * s.columns) *
                    real_size(&s));
}

/* Rows of x: part q of number k at k, or at 2 k and 2 k + 1 where b is read
 * depth by depth. */
#define X_LAY(name, type)                                                      \
    static void name(const few *s, int64_t item, int64_t row,                  \
                     const type *from)                                         \
    {                                                                          \
        int64_t step = s->cut.p->a.depth_stride * s->parts;                    \
        int64_t times = s->cut.wide ? 1 : s->parts;                            \
        type *to = (type *)(void *)s->x +                                      \
                   (item * s->rows + row * s->parts) * s->x_row;               \
                                                                               \
        for (int64_t q = 0; q < s->parts; q++, to += s->x_row)                 \
            for (int64_t k = 0; k < s->cut.p->k; k++)                          \
                for (int64_t t = 0; t < times; t++)                            \
                    to[k * times + t] = from[k * step + q];                    \
    }
X_LAY(x_lay_f32, float)
X_LAY(x_lay_f64, double)

static void
x_lay(const few *s)
{
    const mr_product *p = s->cut.p;
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
                     step / size, depth, reals, s->cut.far);
    else
        t->wide[MR_GEMM_FLOAT32](
            (float *)(void *)sums, s->columns, (const float *)(const void *)x,
            s->x_row, (int)s->rows, b, step / size, depth, reals, s->cut.far);
}

static void
few_unit(const void *ctx, const mr_rows_unit *u)
{
    const few *s = ctx;
    const mr_rows_cut *cut = &s->cut;
    int64_t real = real_size(s), number = real * s->parts;
    const char *x =
        s->x + (u->item * s->rows * s->x_row +
                u->chunk * cut->chunk * (cut->wide ? 1 : s->parts)) *
                   real;
    char *sums = s->sums + ((u->chunk * cut->p->n_items + u->item) * s->rows *
                                s->columns +
                            u->j * s->parts) *
                               real;

    if (cut->wide)
        wide_unit(s, x, u->b.data, u->b.depth_stride * number, u->depth, u->n,
                  sums);
    else
        deep_unit(s, x, u->b.data, u->b.lane_stride * number, u->depth, u->n,
                  sums);
}

/* Number j of a row: its chunks' sums in order, its parts put together. */
#define FINISH(name, type)                                                     \
    static void name(const few *s, int64_t item, int64_t row, int64_t j,       \
                     type *to)                                                 \
    {                                                                          \
        int64_t all = s->cut.p->n_items * s->rows * s->columns;                \
        const type *from = (const type *)(const void *)s->sums +               \
                           (item * s->rows + row * s->parts) * s->columns +    \
                           j * s->parts;                                       \
        type sum[2][2] = {{0}};                                                \
                                                                               \
        for (int64_t q = 0; q < s->parts; q++, from += s->columns)             \
            for (int64_t r = 0; r < s->parts; r++) {                           \
                sum[q][r] = from[r];                                           \
                for (int64_t k = 1; k < s->cut.n_chunks; k++)                  \
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
    const mr_product *p = s->cut.p;

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
    few s;

    few_plan(p, &s);
    s.x = workspace;
    s.sums = s.x + x_reals(&s) * real_size(&s);
    x_lay(&s);
    mr__rows_run(&s.cut, 0.4 * (double)s.parts, few_unit, &s);
    mr__cpu_for(p->n_items * p->m * p->n,
                mr__cpu_grain(3.0 + 0.5 * (double)(s.cut.n_chunks * s.parts)),
                finish_piece, &s);
}
