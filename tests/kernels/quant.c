/* SPDX-License-Identifier: Apache-2.0
 *
 * quant.c -- packed rows: the tiers with fused multiply-add give equal bits,
 * and nothing is read or written beyond an operand's end, whatever its extent
 * (a page that may not be touched lies right behind it).
 */
#include "support/base.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gemm.h"
#include "kernels/quant.h"
#include "kernels/quant_digits.h"
#include "kernels/quant_pairs.h"
#include "kernels/tier/tier.h"
#include "support/guard.h"

static const mr_quant_format formats[] = {
    {MR_CODE_INTEGER, MR_SCALE_FLOAT32, 1, 32, true},
    {MR_CODE_INTEGER, MR_SCALE_FLOAT16, 2, 64, true},
    {MR_CODE_INTEGER, MR_SCALE_BFLOAT16, 3, 32, true},
    {MR_CODE_INTEGER, MR_SCALE_FLOAT32, 4, 128, true},
    {MR_CODE_INTEGER, MR_SCALE_FLOAT32, 5, 32, true},
    {MR_CODE_INTEGER, MR_SCALE_BFLOAT16, 6, 64, true},
    {MR_CODE_INTEGER, MR_SCALE_FLOAT16, 8, 32, true},
    {MR_CODE_E2M1, MR_SCALE_E8M0, 4, 32, false},
    {MR_CODE_E4M3, MR_SCALE_E8M0, 8, 32, false},
    {MR_CODE_E2M1, MR_SCALE_E4M3, 4, 16, false},
};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

/* ---- memory that ends at a guard page --------------------------------------
 */

static int n_buffers;

static void *
ending_at_a_guard(size_t bytes)
{
    return mrt_guarded(n_buffers++, bytes, MRT_ENDS);
}

static void
release_all(void)
{
    n_buffers = 0;
}

static uint32_t
noise(uint32_t i)
{
    uint64_t h = (i + 1) * 0x9E3779B97F4A7C15ULL;

    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9ULL;
    return (uint32_t)(h >> 32);
}

static float
number(uint32_t i)
{
    return (float)(int32_t)noise(i) * 0x1p-31F;
}

static size_t
scale_size(const mr_quant_format *f)
{
    return f->scale == MR_SCALE_FLOAT32                             ? 4
           : f->scale == MR_SCALE_E8M0 || f->scale == MR_SCALE_E4M3 ? 1
                                                                    : 2;
}

static void
put_scale(const mr_quant_format *f, char *to, size_t i, float x)
{
    if (f->scale == MR_SCALE_FLOAT32)
        memcpy(to + 4 * i, &x, 4);
    else if (f->scale == MR_SCALE_E8M0)
        to[i] = (char)(120 + noise((uint32_t)i) % 8);
    else if (f->scale == MR_SCALE_E4M3)
        to[i] = (char)(40 + noise((uint32_t)i) % 40);
    else
        mr__tier()->casts->cast[MR_FLOAT32][f->scale == MR_SCALE_FLOAT16
                                                ? MR_FLOAT16
                                                : MR_BFLOAT16](to + 2 * i, &x,
                                                               1);
}

/* Any codes but those that are no number. */
static mr_quant_matrix
matrix(const mr_quant_format *f, int64_t rows, int64_t cols)
{
    size_t bytes = (size_t)(rows * cols / 8 * f->bits);
    size_t groups = (size_t)(rows * cols / f->group);
    char *words = ending_at_a_guard(bytes);
    char *scales = ending_at_a_guard(groups * scale_size(f));
    char *biases = f->biased ? ending_at_a_guard(groups * scale_size(f)) : NULL;

    for (size_t i = 0; i < bytes; i++) {
        words[i] = (char)noise((uint32_t)i);
        if (f->code == MR_CODE_E4M3 && (words[i] & 0x7f) == 0x7f)
            words[i] = 0;
    }
    for (size_t i = 0; i < groups; i++) {
        put_scale(f, scales, i, number((uint32_t)i));
        if (biases)
            put_scale(f, biases, i, number((uint32_t)i + 7));
    }
    return (mr_quant_matrix){*f, rows, cols, words, scales, biases};
}

/* ---- one after the other
 * ------------------------------------------------------
 */

static uint32_t
code_at(const mr_quant_matrix *w, int64_t i)
{
    const uint8_t *bytes = w->words;
    uint32_t code = 0;

    for (int b = 0; b < w->f.bits; b++) {
        int64_t bit = i * w->f.bits + b;

        code |= (uint32_t)(bytes[bit / 8] >> bit % 8 & 1) << b;
    }
    return code;
}

static double
scale_value(const mr_quant_format *f, const void *from, int64_t i)
{
    const uint8_t *bytes = from;
    float x;

    if (f->scale == MR_SCALE_FLOAT32)
        return (double)((const float *)from)[i];
    if (f->scale == MR_SCALE_E8M0 || f->scale == MR_SCALE_E4M3)
        return (double)mr__quant_scale_byte(f->scale, bytes[i]);
    mr__tier()
        ->casts->cast[f->scale == MR_SCALE_FLOAT16 ? MR_FLOAT16 : MR_BFLOAT16]
                     [MR_FLOAT32](&x, bytes + 2 * i, 1);
    return (double)x;
}

static double
value_at(const mr_quant_matrix *w, int64_t row, int64_t k)
{
    int64_t i = row * w->cols + k, g = i / w->f.group;
    uint32_t code = code_at(w, i);
    double scale = scale_value(&w->f, w->scales, g);

    if (w->f.code != MR_CODE_INTEGER)
        return (double)mr__quant_element(&w->f, code) * scale;
    return code * scale + scale_value(&w->f, w->biases, g);
}

static void
read__gives_the_values_and_stays_inside(void **state)
{
    (void)state;
    for (int i = 0; i < N_FORMATS; i++)
        for (int64_t groups = 1; groups < 12; groups += 1 + groups / 4) {
            int64_t cols = groups * formats[i].group;
            mr_quant_matrix w = matrix(&formats[i], 3, cols);
            float *to = ending_at_a_guard((size_t)cols * sizeof *to);

            for (int64_t row = 0; row < 3; row++)
                for (int64_t from = 0; from < cols; from += cols / 2 / 8 * 8) {
                    float *at = to + from;

                    mr__quant_read(&w, row, from, cols - from, 1.0F, false, at);
                    for (int64_t k = from; k < cols; k++)
                        assert_true(
                            fabs((double)to[k] - value_at(&w, row, k)) <= 1e-4);
                }
            release_all();
        }
}

static void
panels__hold_the_values_and_zeros(void **state)
{
    (void)state;
    for (int i = 0; i < N_FORMATS; i++) {
        int64_t rows = 37, cols = 5 * formats[i].group;
        int64_t depth = formats[i].group == 16 ? 48 : 64;
        mr_quant_matrix w = matrix(&formats[i], rows, cols);
        int width = mr__gemm_cols();
        float *to = ending_at_a_guard((size_t)(width * depth) * sizeof *to);

        for (int turned = 0; turned < 2; turned++) {
            int64_t lanes = turned ? rows : cols;
            int64_t panel = (lanes - 1) / width, depth0 = turned ? 32 : 0;
            int64_t n = turned ? depth : rows;

            mr__quant_panel(&w, turned, width, panel, depth0, n, to);
            for (int64_t p = 0; p < n; p++)
                for (int64_t l = 0; l < width; l++) {
                    int64_t lane = panel * width + l;
                    double want = lane >= lanes ? 0.0
                                  : turned      ? value_at(&w, lane, depth0 + p)
                                                : value_at(&w, p, lane);

                    assert_true(fabs((double)to[p * width + l] - want) <= 1e-4);
                }
        }
        release_all();
    }
}

static double
half_value(uint32_t bits)
{
    float x;

    bits <<= 16;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* Codes from depth0 on of the last rows, beside their scales, with rows that
 * are not there. */
static void
pairs_check(const mr_quant_format *f, int64_t cols, int64_t depth0)
{
    static uint16_t codes[MR_QUANT_PAIRS_TILE][MR_QUANT_PAIRS_DEPTH];
    static float scale[MR_QUANT_PAIRS_ROWS][MR_QUANT_SCALES];
    static float bias[MR_QUANT_PAIRS_ROWS][MR_QUANT_SCALES];
    int64_t there = 5, row0 = MR_QUANT_PAIRS_ROWS,
            n = (cols - depth0) / f->group;
    mr_quant_matrix w = matrix(f, row0 + there, cols);

    mr_quant_rows rows = mr__quant_pairs_rows_at(&w, row0, MR_QUANT_PAIRS_TILE,
                                                 depth0, cols - depth0);

    mr__quant_pairs_codes(&w, &rows, MR_QUANT_PAIRS_TILE, codes[0]);
    mr__quant_scales(&w, w.scales, row0, MR_QUANT_PAIRS_ROWS, depth0 / f->group,
                     n, scale[0]);
    if (f->biased)
        mr__quant_scales(&w, w.biases, row0, MR_QUANT_PAIRS_ROWS,
                         depth0 / f->group, n, bias[0]);
    for (int64_t r = 0; r < there; r++)
        for (int64_t k = 0; k < cols - depth0; k++) {
            double v = half_value(codes[r][k]) * (double)scale[r][k / f->group];

            v += f->biased ? (double)bias[r][k / f->group] : 0.0;
            assert_true(fabs(v - value_at(&w, row0 + r, depth0 + k)) <= 1e-4);
        }
    assert_true(codes[there][3] == 0 && scale[there][0] == 0.0F);
    release_all();
}

static void
pairs__hold_the_codes_beside_their_scales(void **state)
{
    enum { DEPTH = MR_QUANT_PAIRS_DEPTH };

    (void)state;
    for (int i = 0; i < N_FORMATS; i++) {
        if (!mr__quant_pairs_pay(&formats[i]))
            skip();
        pairs_check(&formats[i], 2 * DEPTH, DEPTH);
        pairs_check(&formats[i], DEPTH + formats[i].group, DEPTH);
    }
}

/* Of w: four together, then those that are left. */
enum { N_ROWS = 7 };

/* Products with the vectors that `fill` makes, handed to `check`. */
enum { N_VECTORS = 7 };

typedef struct products {
    const mr_quant_matrix *w;
    int64_t cols;
    float y[N_VECTORS][N_ROWS];
} products;

/* m: rows that meet a matrix, as mr__quant_arrange is told. */
static void
products_check(const mr_quant_format *f, int64_t groups, int64_t m_told,
               void (*fill)(float *x, int64_t cols, int m),
               void (*check)(const products *p))
{
    int64_t cols = groups * f->group;
    int64_t floats = mr__quant_arranged_floats(f, cols);
    mr_quant_matrix w = matrix(f, N_ROWS, cols);
    float *x = ending_at_a_guard((size_t)cols * 4);
    float *to = aligned_alloc(64, (size_t)floats * N_VECTORS * 4);
    products p = {.w = &w, .cols = cols};
    const float *arranged[N_VECTORS];

    for (int m = 0; m < N_VECTORS; m++) {
        fill(x, cols, m);
        arranged[m] = to + m * floats;
        mr__quant_arrange(f, cols, x, m_told, to + m * floats);
    }
    mr__quant_dot(&w, 0, N_ROWS, N_VECTORS, arranged, p.y[0], N_ROWS);
    free(to);
    check(&p);
    release_all();
}

static void
plain_fill(float *x, int64_t cols, int m)
{
    for (int64_t k = 0; k < cols; k++)
        x[k] = number((uint32_t)(k + m));
}

static void
are_sums(const products *p)
{
    for (int m = 0; m < N_VECTORS; m++)
        for (int64_t j = 0; j < N_ROWS; j++) {
            double sum = 0.0, size = 0.0;

            for (int64_t k = 0; k < p->cols; k++) {
                double v =
                    value_at(p->w, j, k) * (double)number((uint32_t)(k + m));

                sum += v;
                size += fabs(v) + 1.0;
            }
            assert_true(fabs((double)p->y[m][j] - sum) <= 1e-5 * size);
        }
}

static void
dot__gives_the_products_and_stays_inside(void **state)
{
    (void)state;
    for (int i = 0; i < N_FORMATS; i++) {
        for (int64_t m = 1; m <= N_VECTORS; m += N_VECTORS - 1) {
            for (int64_t groups = 1; groups < 40; groups += 1 + groups / 3)
                products_check(&formats[i], groups, m, plain_fill, are_sums);
            /* several spans */
            products_check(&formats[i],
                           (2 * MR_QUANT_SPAN + 640) / formats[i].group, m,
                           plain_fill, are_sums);
        }
    }
}

/* Each odd vector is the one before it, times this. */
#define TINY 0x1p-93F

static void
tiny_fill(float *x, int64_t cols, int m)
{
    for (int64_t k = 0; k < cols; k++)
        x[k] = number((uint32_t)(k + m / 2)) * (m % 2 ? TINY : 1);
    x[0] = m % 2 ? TINY / 4 : 0.25F;
}

static void
are_scaled(const products *p)
{
    for (int m = 0; m + 1 < N_VECTORS; m += 2)
        for (int64_t j = 0; j < N_ROWS; j++)
            assert_true(p->y[m][j] * TINY == p->y[m + 1][j]);
}

/* Tiny numbers are not divided further; all else of the two ways is equal. */
static void
dot__gives_equal_bits_of_tiny_numbers(void **state)
{
    (void)state;
    for (int i = 0; i < N_FORMATS; i++)
        for (int64_t groups = 1; groups < 40; groups += 1 + groups / 3)
            products_check(&formats[i], groups, N_VECTORS, tiny_fill,
                           are_scaled);
}

/* Scales (and biases) times 2^100, where their type has that. */
static bool
scales_enlarge(const mr_quant_matrix *w)
{
    int64_t groups = w->rows * w->cols / w->f.group;
    uint8_t *bytes = (uint8_t *)(uintptr_t)w->scales;
    float *scales = (float *)(uintptr_t)w->scales;
    float *biases = (float *)(uintptr_t)w->biases;

    if (w->f.scale != MR_SCALE_FLOAT32 && w->f.scale != MR_SCALE_E8M0)
        return false;
    for (int64_t g = 0; g < groups; g++) {
        if (w->f.scale == MR_SCALE_E8M0)
            bytes[g] = (uint8_t)(bytes[g] + 100);
        else
            scales[g] *= 0x1p100F;
        if (biases)
            biases[g] *= 0x1p100F;
    }
    return true;
}

/* Scales that cannot be raised meet codes in another way: the same bits. */
static void
dot__gives_equal_bits_of_huge_scales(void **state)
{
    enum { COLS = 1280 };
    float x[COLS], y[2][N_ROWS];

    (void)state;
    plain_fill(x, COLS, 0);
    for (int i = 0; i < N_FORMATS; i++) {
        int64_t floats = mr__quant_arranged_floats(&formats[i], COLS);
        float *to = aligned_alloc(64, (size_t)floats * 4);
        mr_quant_matrix w = matrix(&formats[i], N_ROWS, COLS);
        const float *arranged[1] = {to};

        mr__quant_arrange(&formats[i], COLS, x, N_VECTORS, to);
        mr__quant_dot(&w, 0, N_ROWS, 1, arranged, y[0], N_ROWS);
        if (scales_enlarge(&w)) {
            mr__quant_dot(&w, 0, N_ROWS, 1, arranged, y[1], N_ROWS);
            for (int j = 0; j < N_ROWS; j++)
                assert_true(y[0][j] * 0x1p100F == y[1][j]);
        }
        free(to);
        release_all();
    }
}

/* A row for each byte that a scale may be; x is small enough for the largest.
 */
static void
dot__gives_the_products_of_every_scale_byte(void **state)
{
    enum { COLS = 128, BYTES = 256 };
    float x[COLS], y[BYTES];

    (void)state;
    for (int k = 0; k < COLS; k++)
        x[k] = number((uint32_t)k) * 0x1p-20F;
    for (int i = 0; i < N_FORMATS; i++) {
        const mr_quant_format *f = &formats[i];
        int64_t floats = mr__quant_arranged_floats(f, COLS);
        float *to = aligned_alloc(64, (size_t)floats * 4);
        mr_quant_matrix w = matrix(f, BYTES, COLS);
        const float *arranged[1] = {to};

        mr__quant_arrange(f, COLS, x, N_VECTORS, to);
        for (int j = 0; scale_size(f) == 1 && j < BYTES; j++) {
            double sum = 0.0, size = 0.0;

            memset((char *)(uintptr_t)w.scales + j * (COLS / f->group), j,
                   (size_t)(COLS / f->group));
            /* alone: others may not be raised */
            mr__quant_dot(&w, j, j + 1, 1, arranged, y + j, BYTES);
            for (int k = 0; k < COLS; k++) {
                double v = value_at(&w, j, k) * (double)x[k];

                sum += v;
                size += fabs(v);
            }
            assert_int_equal(isnan(y[j]) != 0, isnan(sum) != 0);
            assert_false(fabs((double)y[j] - sum) > 1e-6 * size + 0x1p-140);
        }
        free(to);
        release_all();
    }
}

/* A code that is no number meets its own row alone. */
static void
dot__gives_nan_for_a_nan_code(void **state)
{
    const mr_quant_format f = {MR_CODE_E4M3, MR_SCALE_E8M0, 8, 32, false};
    int64_t cols = 160, floats = mr__quant_arranged_floats(&f, cols);
    mr_quant_matrix w = matrix(&f, N_ROWS, cols);
    float *to = aligned_alloc(64, (size_t)floats * 4), x[160], y[N_ROWS];
    float was[N_ROWS];
    uint8_t *words = (uint8_t *)(uintptr_t)w.words;
    const float *arranged[1] = {to};

    (void)state;
    for (int tiny = 0; tiny < 2; tiny++) {
        for (int k = 0; k < cols; k++)
            x[k] = number((uint32_t)k) * (tiny ? 0x1p-93F : 1.0F);
        mr__quant_arrange(&f, cols, x, N_VECTORS, to);
        words[cols + 130] = words[6 * cols + 3] = 0;
        mr__quant_dot(&w, 0, N_ROWS, 1, arranged, was, N_ROWS);
        words[cols + 130] = 0xff;
        words[6 * cols + 3] = 0x7f;
        mr__quant_dot(&w, 0, N_ROWS, 1, arranged, y, N_ROWS);
        for (int j = 0; j < N_ROWS; j++) {
            assert_int_equal(isnan(y[j]) != 0, j == 1 || j == 6);
            assert_true(isnan(y[j]) || y[j] == was[j]);
        }
    }
    free(to);
    release_all();
}

/* ---- one row ----------------------------------------------------------------
 */

/* One row of x times row j of w, arranged as few rows are. */
static void
few(const mr_quant_matrix *w, const float *x, float *y)
{
    int64_t floats = mr__quant_arranged_floats(&w->f, w->cols);
    float *to = aligned_alloc(64, (size_t)floats * 4);
    const float *arranged[1] = {to};

    mr__quant_arrange(&w->f, w->cols, x, 1, to);
    mr__quant_dot(w, 0, w->rows, 1, arranged, y, w->rows);
    free(to);
}

/* E4M3: cells that have codes of the least exponent, and such that have none:
 * each alone meets x in an exact product.  One that is no number stays in its
 * row. */
static void
e4m3__codes_of_every_cell_are_exact(void **state)
{
    enum { COLS = 704, ROWS = 11 };
    const mr_quant_format f = {MR_CODE_E4M3, MR_SCALE_E8M0, 8, 32, false};
    mr_quant_matrix w = matrix(&f, ROWS, COLS);
    uint8_t *codes = (uint8_t *)(uintptr_t)w.words;
    float x[COLS], y[ROWS];

    (void)state;
    for (int i = 0; i < ROWS * COLS; i++)
        if ((codes[i] & 0x78) == 0 && i / 64 % 5)
            codes[i] |= (uint8_t)(8 + i % 15 * 8);
    for (int i = 0; i < ROWS * COLS; i++)
        codes[i] = (codes[i] & 0x7f) == 0x7f ? 0x7e : codes[i];
    for (int k = 0; k < COLS; k++) {
        memset(x, 0, sizeof x);
        x[k] = 0x1.fffffep3F;
        few(&w, x, y);
        for (int j = 0; j < ROWS; j++)
            assert_true(y[j] == (float)(value_at(&w, j, k) * (double)x[k]));
    }
    codes[5 * COLS + 131] = 0xff;
    codes[9 * COLS + COLS - 1] = 0x7f;
    few(&w, x, y);
    for (int j = 0; j < ROWS; j++)
        assert_true(isnan(y[j]) == (j == 5 || j == 9));
    release_all();
}

/* ---- digits ----------------------------------------------------------------
 */

enum { DIGITS_COLS = 1280 };

static bool
goes_as_digits(const mr_quant_format *f, const float *x)
{
    int64_t floats = mr__quant_digits_floats(f, DIGITS_COLS);
    float *to = aligned_alloc(64, (size_t)floats * 4);
    bool fine = mr__quant_digits_arrange(f, DIGITS_COLS, x, to);

    free(to);
    return fine;
}

/* Sums in double, and those of magnitudes, biases apart. */
static double
exactly(const mr_quant_matrix *w, int64_t j, const float *x, double *size)
{
    double sum = 0.0;

    *size = 0.0;
    for (int64_t k = 0; k < w->cols; k++) {
        double v = value_at(w, j, k) * (double)x[k];

        sum += v;
        *size += fabs(v);
    }
    return sum;
}

/* A number of 24 bits alone in its row meets codes in 32 bits: the product is
 * rounded once.  Others of its group, up to 2^-6 of it, add up exactly. */
static void
digits__of_near_numbers_are_exact(void **state)
{
    float x[DIGITS_COLS], y[N_ROWS];

    (void)state;
    for (int i = 0; i < N_FORMATS; i++) {
        const mr_quant_format *f = &formats[i];
        mr_quant_matrix w = matrix(f, N_ROWS, DIGITS_COLS);
        double size;

        if (f->scale == MR_SCALE_FLOAT32)
            for (int64_t g = 0; g < N_ROWS * DIGITS_COLS / f->group; g++) {
                ((float *)(uintptr_t)w.scales)[g] = 0.25F;
                ((float *)(uintptr_t)w.biases)[g] = 0.0F;
            }
        if (f->scale == MR_SCALE_FLOAT32 || f->scale == MR_SCALE_E8M0)
            for (int k = 0; k < DIGITS_COLS; k += 37) {
                memset(x, 0, sizeof x);
                x[k] = (float)((noise((uint32_t)k) >> 8) | 0x800001);
                few(&w, x, y);
                for (int j = 0; j < N_ROWS; j++)
                    assert_true(y[j] == (float)exactly(&w, j, x, &size));
            }
        if (mr__quant_digits_pay(f)) {
            for (int k = 0; k < DIGITS_COLS; k++)
                x[k] =
                    (float)((noise((uint32_t)k) >> 8) | 1) * 0x1p-24F + 0x1p-6F;
            assert_true(goes_as_digits(f, x));
        }
        release_all();
    }
}

/* Scales of a byte, tiny ones and 0 too, next to some that are no numbers or
 * negative, which change how their neighbours' are read, but no bit of them. */
static void
digits__scales_of_a_byte_are_numbers_of_their_row(void **state)
{
    enum { COLS = 1280, ROWS = 40, NAN_ROW = 5, NEGATIVE_ROW = 18 };
    float x[COLS], y[ROWS], z[ROWS];

    (void)state;
    for (int k = 0; k < COLS; k++)
        x[k] = number((uint32_t)k + 3);
    for (int i = 0; i < N_FORMATS; i++) {
        const mr_quant_format *f = &formats[i];
        bool e4m3 = f->scale == MR_SCALE_E4M3;
        int64_t per_row = COLS / f->group;
        mr_quant_matrix w = matrix(f, ROWS, COLS);
        uint8_t *scale = (uint8_t *)(uintptr_t)w.scales;
        double size;

        for (int64_t g = 0; scale_size(f) == 1 && g < ROWS * per_row; g++)
            scale[g] = (uint8_t)(noise((uint32_t)g) % 127 + (e4m3 ? 0 : 63));
        few(&w, x, y);
        for (int j = 0; scale_size(f) == 1 && j < ROWS; j++) {
            double want = exactly(&w, j, x, &size);

            assert_true(fabs((double)y[j] - want) <= 1e-6 * size);
        }
        if (scale_size(f) == 1) {
            scale[NAN_ROW * per_row + 7] = e4m3 ? 0x7f : 255;
            scale[NEGATIVE_ROW * per_row + 3] = e4m3 ? 0x9a : 0;
            few(&w, x, z);
            for (int j = 0; j < ROWS; j++)
                if (j != NEGATIVE_ROW)
                    assert_true(j == NAN_ROW ? isnan(z[j]) : z[j] == y[j]);
            assert_true(fabs((double)z[NEGATIVE_ROW] -
                             exactly(&w, NEGATIVE_ROW, x, &size)) <=
                        1e-6 * size);
        }
        release_all();
    }
}

/* Codes of the first number of each group are 0, and it is far larger than the
 * others: so these are all there is, and must not be lost. */
static void
digits__of_numbers_far_apart_are_not_taken(void **state)
{
    float x[DIGITS_COLS], y[N_ROWS];

    (void)state;
    for (int i = 0; i < N_FORMATS; i++) {
        const mr_quant_format *f = &formats[i];
        mr_quant_matrix w = matrix(f, N_ROWS, DIGITS_COLS);
        uint8_t *words = (uint8_t *)(uintptr_t)w.words;
        double size;

        if (f->scale != MR_SCALE_FLOAT32 && f->scale != MR_SCALE_E8M0 &&
            f->scale != MR_SCALE_E4M3)
            continue;
        for (int64_t g = 0; g < N_ROWS * DIGITS_COLS / f->group; g++) {
            words[g * f->group / 8 * f->bits] = 0;
            if (w.biases)
                ((float *)(uintptr_t)w.biases)[g] = 0.0F;
        }
        for (int k = 0; k < DIGITS_COLS; k++)
            x[k] = number((uint32_t)k) * (k % f->group ? 1.0F : 0.0F) +
                   (k % f->group ? 0.0F : 0x1p30F);
        if (mr__quant_digits_pay(f))
            assert_false(goes_as_digits(f, x));
        few(&w, x, y);
        for (int j = 0; j < N_ROWS; j++) {
            double want = exactly(&w, j, x, &size);

            assert_true(fabs((double)y[j] - want) <= 1e-6 * size);
        }
        /* a few of them may be as small as they like */
        for (int k = 0; k < DIGITS_COLS; k++)
            x[k] = number((uint32_t)k) +
                   (number((uint32_t)k) < 0.0F ? -0.5F : 0.5F);
        for (int k = 3; k < DIGITS_COLS; k += f->group)
            x[k] = 1e-20F;
        if (mr__quant_digits_pay(f))
            assert_true(goes_as_digits(f, x));
        few(&w, x, y);
        for (int j = 0; j < N_ROWS; j++) {
            double want = exactly(&w, j, x, &size);

            assert_true(fabs((double)y[j] - want) <= 1e-6 * size);
        }
        release_all();
    }
}

/* Rows together or alone, and those of one call or of several: equal bits. */
static void
digits__of_a_row_do_not_depend_on_others(void **state)
{
    enum { M = 2 };
    float x[M][DIGITS_COLS], y[M][N_ROWS], alone[N_ROWS];

    (void)state;
    for (int i = 0; i < N_FORMATS; i++) {
        const mr_quant_format *f = &formats[i];
        int64_t floats = mr__quant_arranged_floats(f, DIGITS_COLS);
        float *to = aligned_alloc(64, (size_t)floats * M * 4);
        mr_quant_matrix w = matrix(f, N_ROWS, DIGITS_COLS);
        const float *arranged[M] = {to, to + floats};

        for (int m = 0; m < M; m++) {
            plain_fill(x[m], DIGITS_COLS, m);
            mr__quant_arrange(f, DIGITS_COLS, x[m], M, to + m * floats);
        }
        mr__quant_dot(&w, 0, N_ROWS, M, arranged, y[0], N_ROWS);
        for (int m = 0; m < M; m++) {
            few(&w, x[m], alone);
            assert_memory_equal(alone, y[m], sizeof alone);
            for (int j = 0; j < N_ROWS; j++)
                mr__quant_dot(&w, j, j + 1, 1, arranged + m, alone + j, N_ROWS);
            assert_memory_equal(alone, y[m], sizeof alone);
        }
        free(to);
        release_all();
    }
}

/* ---- tiers
 * --------------------------------------------------------------------
 */

static void
tiers__give_equal_bits(void **state)
{
    static const int bits[MR_N_QUANT_KINDS] = {1, 2, 3, 4, 5, 6, 8, 4, 8};
    const mr_quant_tier *tiers[2] = {mr__quant_of_tier(MR_TIER_AVX2),
                                     mr__quant_of_tier(MR_TIER_AVX512)};
    enum { N = 1056, GROUP = 32, X = 2048 };
    static _Alignas(64) float x[4][X];
    static float numbers[2][N];
    float scale[N / GROUP + 16 + N_ROWS] = {0};
    static float lanes[2][4 * MR_QUANT_TOGETHER][16];
    enum { BYTES = N_ROWS * N };
    uint8_t bytes[BYTES];
    const float *rows[4] = {x[0], x[1], x[2], x[3]};

    (void)state;
    if (!tiers[0] || !tiers[1])
        skip();
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)(noise((uint32_t)i) & 0xf7);
    for (int i = 0; i < 4 * X; i++)
        x[i / X][i % X] = number((uint32_t)i);
    for (int i = 0; i < N / GROUP; i++)
        scale[i] = number((uint32_t)i);
    for (int kind = 0; kind < MR_N_QUANT_KINDS; kind++) {
        mr_quant_span s = {bytes,     bytes + BYTES, N,     GROUP,
                           N / GROUP, scale,         scale, N / 8 * bits[kind],
                           1,         NULL,          false};

        for (int t = 0; t < 2; t++)
            tiers[t]->unpack[kind](bytes, N, N * (8 - bits[kind]) / 8,
                                   numbers[t]);
        assert_memory_equal(numbers[0], numbers[1], sizeof numbers[0]);
        for (int m = 0; m < 3; m++) {
            memset(lanes, 0, sizeof lanes);
            for (int t = 0; t < 2; t++)
                tiers[t]->dot[kind][m](&s, N_ROWS, rows, rows, lanes[t]);
            assert_memory_equal(lanes[0], lanes[1], sizeof lanes[0]);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read__gives_the_values_and_stays_inside),
        cmocka_unit_test(panels__hold_the_values_and_zeros),
        cmocka_unit_test(pairs__hold_the_codes_beside_their_scales),
        cmocka_unit_test(dot__gives_the_products_and_stays_inside),
        cmocka_unit_test(dot__gives_equal_bits_of_tiny_numbers),
        cmocka_unit_test(dot__gives_equal_bits_of_huge_scales),
        cmocka_unit_test(dot__gives_the_products_of_every_scale_byte),
        cmocka_unit_test(dot__gives_nan_for_a_nan_code),
        cmocka_unit_test(e4m3__codes_of_every_cell_are_exact),
        cmocka_unit_test(digits__of_near_numbers_are_exact),
        cmocka_unit_test(digits__scales_of_a_byte_are_numbers_of_their_row),
        cmocka_unit_test(digits__of_numbers_far_apart_are_not_taken),
        cmocka_unit_test(digits__of_a_row_do_not_depend_on_others),
        cmocka_unit_test(tiers__give_equal_bits),
    };

    return cmocka_run_group_tests_name("kernels/quant", tests, NULL, NULL);
}
