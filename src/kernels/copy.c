/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.c -- strided copies, by the moves of the tier in use.
 *
 * The two dims that matter are the one along which the output is contiguous
 * and the one along which the input is.  When they differ the copy goes in
 * tiles: long pieces of each row of the input (short ones of rows far apart
 * take three times as long), which are as many rows of the output.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/copy.h"
#include "kernels/tier/tier.h"
#include "marram/types.h"

#define TILE_BYTES 1024 /* of a row of the input */
#define TILE_COLS  64

static int
size_row(size_t size)
{
    assert(size == 1 || size == 2 || size == 4 || size == 8 || size == 16);
    return __builtin_ctzll(size);
}

static void
run_in(const mr_tier_moves *m, size_t size, void *out, const void *in,
       int64_t stride, int64_t n)
{
    if (stride == (int64_t)size)
        memcpy(out, in, size * (size_t)n);
    else if (stride == 0)
        m->fill[size_row(size)](out, in, n);
    else
        m->gather[size_row(size)](out, in, stride, n);
}

void
mr__copy_in(size_t size, void *out, const void *in, int64_t rows,
            int64_t row_stride, int64_t cols, int64_t col_stride)
{
    const mr_tier_moves *m = mr__tier()->moves;
    int64_t bytes = (int64_t)size, row = cols * bytes;

    if (col_stride == bytes && row_stride == row) {
        memcpy(out, in, (size_t)(rows * row));
        return;
    }
    if (row_stride == bytes && rows >= 4 && cols >= 4) {
        m->transpose[size_row(size)](out, row, in, col_stride, rows, cols);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        run_in(m, size, (char *)out + r * row,
               (const char *)in + r * row_stride, col_stride, cols);
}

void
mr__copy_out(size_t size, void *out, int64_t row_stride, int64_t col_stride,
             const void *in, int64_t rows, int64_t cols)
{
    const mr_tier_moves *m = mr__tier()->moves;
    int64_t bytes = (int64_t)size, row = cols * bytes;

    if (col_stride == bytes && row_stride == row) {
        memcpy(out, in, (size_t)(rows * row));
        return;
    }
    if (row_stride == bytes && rows >= 4 && cols >= 4) {
        m->transpose[size_row(size)](out, col_stride, in, row, cols, rows);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        char *o = (char *)out + r * row_stride;
        const char *a = (const char *)in + r * row;

        if (col_stride == bytes)
            memcpy(o, a, (size_t)row);
        else
            m->scatter[size_row(size)](o, col_stride, a, cols);
    }
}

/* ---- any number of dims -----------------------------------------------------
 */

typedef struct nest {
    int n;
    int64_t dim[MR_MAX_NDIM], out[MR_MAX_NDIM], in[MR_MAX_NDIM];
} nest;

/* Drops dims of size 1, sorts by the output's stride, largest first, and joins
 * neighbours that are one dim in memory.  False when there is nothing. */
static bool
nest_make(nest *s, int ndim, const int64_t *dim, const int64_t *out,
          const int64_t *in)
{
    s->n = 0;
    for (int i = 0; i < ndim; i++) {
        int j = s->n;

        if (dim[i] == 0)
            return false;
        if (dim[i] == 1)
            continue;
        for (; j > 0 && llabs(s->out[j - 1]) < llabs(out[i]); j--) {
            s->dim[j] = s->dim[j - 1];
            s->out[j] = s->out[j - 1];
            s->in[j] = s->in[j - 1];
        }
        s->dim[j] = dim[i];
        s->out[j] = out[i];
        s->in[j] = in[i];
        s->n++;
    }
    for (int i = s->n - 1; i > 0; i--) {
        if (s->out[i - 1] != s->out[i] * s->dim[i] ||
            s->in[i - 1] != s->in[i] * s->dim[i])
            continue;
        s->dim[i - 1] *= s->dim[i];
        s->out[i - 1] = s->out[i];
        s->in[i - 1] = s->in[i];
        for (int j = i; j + 1 < s->n; j++) {
            s->dim[j] = s->dim[j + 1];
            s->out[j] = s->out[j + 1];
            s->in[j] = s->in[j + 1];
        }
        s->n--;
    }
    return true;
}

/* The dim to pair with the last one: where the input is contiguous, if that is
 * another, else the one before. */
static int
nest_partner(const nest *s)
{
    int best = s->n - 2;

    for (int i = 0; i + 1 < s->n; i++) {
        if (llabs(s->in[i]) != 0 && llabs(s->in[i]) < llabs(s->in[best]))
            best = i;
    }
    return best;
}

static void
strided_line(const mr_tier_moves *m, size_t size, char *out, int64_t os,
             const char *in, int64_t is, int64_t n)
{
    if (os == (int64_t)size) {
        run_in(m, size, out, in, is, n);
        return;
    }
    if (is == (int64_t)size) {
        m->scatter[size_row(size)](out, os, in, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(out + i * os, in + i * is, size);
}

typedef void transpose_fn(void *out, int64_t out_row, const void *in,
                          int64_t in_row, int64_t n_rows, int64_t n_cols);

static transpose_fn *
transpose_of(const nest *s, int p, size_t size, const char *out, bool past)
{
    const mr_tier_moves *m = mr__tier()->moves;
    int row = size_row(size);

    if (past && m->transpose_past[row] != NULL &&
        ((uintptr_t)out | (uintptr_t)s->out[p]) % 64 == 0)
        return m->transpose_past[row];
    return m->transpose[row];
}

/* The last dim is the columns, dim p the rows. */
static void
plane(const nest *s, int p, size_t size, char *out, const char *in, bool past)
{
    const mr_tier_moves *m = mr__tier()->moves;
    int c = s->n - 1;
    int64_t rows = s->dim[p], cols = s->dim[c];
    int64_t tile = TILE_BYTES / (int64_t)size;
    transpose_fn *transpose;

    if (s->in[p] != (int64_t)size || s->out[c] != (int64_t)size) {
        for (int64_t r = 0; r < rows; r++)
            strided_line(m, size, out + r * s->out[p], s->out[c],
                         in + r * s->in[p], s->in[c], cols);
        return;
    }
    transpose = transpose_of(s, p, size, out, past);
    for (int64_t r = 0; r < rows; r += tile) {
        int64_t n_rows = rows - r < tile ? rows - r : tile;

        for (int64_t k = 0; k < cols; k += TILE_COLS) {
            int64_t n_cols = cols - k < TILE_COLS ? cols - k : TILE_COLS;

            transpose(out + r * s->out[p] + k * s->out[c], s->out[p],
                      in + r * s->in[p] + k * s->in[c], s->in[c], n_rows,
                      n_cols);
        }
    }
}

static void
copy_nest(size_t size, int ndim, const int64_t *dim, void *out,
          const int64_t *out_stride, const void *in, const int64_t *in_stride,
          bool past)
{
    int64_t index[MR_MAX_NDIM] = {0};
    char *o = out;
    const char *a = in;
    nest s;
    int p;

    if (!nest_make(&s, ndim, dim, out_stride, in_stride))
        return;
    if (s.n < 2) {
        strided_line(mr__tier()->moves, size, o, s.n ? s.out[0] : (int64_t)size,
                     a, s.n ? s.in[0] : 0, s.n ? s.dim[0] : 1);
        return;
    }
    p = nest_partner(&s);
    for (;;) {
        int i = s.n - 2;

        plane(&s, p, size, o, a, past);
        for (; i >= 0; i--) {
            if (i == p)
                continue;
            o += s.out[i];
            a += s.in[i];
            if (++index[i] < s.dim[i])
                break;
            o -= s.out[i] * s.dim[i];
            a -= s.in[i] * s.dim[i];
            index[i] = 0;
        }
        if (i < 0)
            return;
    }
}

void
mr__copy_strided(size_t size, int ndim, const int64_t *dim, void *out,
                 const int64_t *out_stride, const void *in,
                 const int64_t *in_stride)
{
    copy_nest(size, ndim, dim, out, out_stride, in, in_stride, false);
}

void
mr__copy_strided_past(size_t size, int ndim, const int64_t *dim, void *out,
                      const int64_t *out_stride, const void *in,
                      const int64_t *in_stride)
{
    copy_nest(size, ndim, dim, out, out_stride, in, in_stride, true);
    mr__tier()->moves->past_end();
}
