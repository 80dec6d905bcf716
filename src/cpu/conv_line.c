/* SPDX-License-Identifier: Apache-2.0
 *
 * conv_line.c -- convolution of one channel along a line with one filter: what
 * convolve() is, with filters of any length.
 *
 * A vector of outputs is a sum over taps of vectors of neighbouring inputs
 * times one weight, so depthwise convolution's kernel serves, with a weight
 * in all lanes: no patches, which here would be the input times the taps.  A
 * sum is made of sums of 64 taps, in order; zeros around the input are
 * written down first.
 * Called by: conv.c.  Calls: kernels/depth.h, the tier.
 */
#include <string.h>

#include "base/integers.h"
#include "cpu/conv.h"
#include "kernels/depth.h"
#include "kernels/tier/tier.h"

enum { TAPS = 64, LANES = 64, PIECE = 2048 };

typedef struct line {
    const mr_conv *c;
    mr_depth_fn *run;
    mr_dtype acc;
    int64_t item, row; /* row: entries of an input with its zeros */
    const char *x;
    const char *w; /* widened, in the order in which it meets the input */
} line;

bool
mr__conv_line_fits(const mr_conv *c)
{
    const mr_conv_params *p = c->p;

    return c->n_spatial == 1 && c->channels == 1 && c->outputs == 1 &&
           p->groups == 1 && c->taps > 1 && p->stride.v[0] == 1 &&
           p->kernel_dilation.v[0] == 1 && p->input_dilation.v[0] == 1 &&
           p->low.v[0] >= 0 && p->high.v[0] >= 0;
}

static void
line_plan(const mr_conv *c, line *l)
{
    *l = (line){.c = c,
                .run = mr__depth_of(c->dtype),
                .acc = c->dtype == MR_FLOAT64 ? MR_FLOAT64 : MR_FLOAT32,
                .row = c->in[0] + c->p->low.v[0] + c->p->high.v[0]};
    l->item = mr__dtype_size(l->acc);
}

static size_t
weights_bytes(const line *l)
{
    return mr__whole_lines((size_t)(l->c->taps * l->item));
}

static bool
has_zeros(const line *l)
{
    return l->row != l->c->in[0];
}

size_t
mr__conv_line_bytes(const mr_conv *c)
{
    line l;

    line_plan(c, &l);
    return weights_bytes(&l) +
           (has_zeros(&l) ? (size_t)(c->batch * l.row * c->item) : 0);
}

static void
weights_make(const line *l, char *to)
{
    const mr_conv *c = l->c;

    if (l->acc != c->dtype)
        mr__tier()->casts->cast[c->dtype][l->acc](to, c->w, c->taps);
    else
        memcpy(to, c->w, (size_t)(c->taps * l->item));
    for (int64_t i = 0, j = c->taps - 1; c->p->flip && i < j; i++, j--) {
        char one[8];

        memcpy(one, to + i * l->item, (size_t)l->item);
        memcpy(to + i * l->item, to + j * l->item, (size_t)l->item);
        memcpy(to + j * l->item, one, (size_t)l->item);
    }
}

static void
zeros_make(const line *l, char *to)
{
    const mr_conv *c = l->c;
    int64_t low = c->p->low.v[0] * c->item, high = c->p->high.v[0] * c->item;
    int64_t bytes = c->in[0] * c->item;

    for (int64_t b = 0; b < c->batch; b++, to += l->row * c->item) {
        memset(to, 0, (size_t)low);
        if (bytes > 0)
            memcpy(to + low, c->x + b * bytes, (size_t)bytes);
        memset(to + low + bytes, 0, (size_t)high);
    }
}

/* Each weight in all lanes. */
static void
weights_spread(const line *l, int64_t t, int64_t n, void *to)
{
    for (int64_t k = 0; k < n; k++)
        if (l->item == 4) {
            float w = ((const float *)(const void *)l->w)[t + k];

            for (int i = 0; i < LANES; i++)
                ((float *)to)[k * LANES + i] = w;
        } else {
            double w = ((const double *)(const void *)l->w)[t + k];

            for (int i = 0; i < LANES; i++)
                ((double *)to)[k * LANES + i] = w;
        }
}

static void
sums_add(const line *l, char *to, const char *from, int64_t n)
{
    if (l->item == 4)
        for (int64_t i = 0; i < n; i++)
            ((float *)(void *)to)[i] += ((const float *)(const void *)from)[i];
    else
        for (int64_t i = 0; i < n; i++)
            ((double *)(void *)to)[i] +=
                ((const double *)(const void *)from)[i];
}

/* Outputs [begin, begin + n) of a row, n <= PIECE. */
static void
outputs_run(const line *l, const char *x, char *to, int64_t n)
{
    const mr_conv *c = l->c;
    _Alignas(64) char sums[PIECE * 8], part[LANES * 8], w[TAPS * LANES * 8];
    const void *at[TAPS];

    memset(sums, 0, (size_t)(n * l->item));
    for (int64_t t = 0; t < c->taps; t += TAPS) {
        int64_t m = c->taps - t < TAPS ? c->taps - t : TAPS;

        weights_spread(l, t, m, w);
        for (int64_t i = 0; i < n; i += LANES) {
            int64_t lanes = n - i < LANES ? n - i : LANES;

            for (int64_t k = 0; k < m; k++)
                at[k] = x + (i + t + k) * c->item;
            l->run(part, at, w, LANES, m, lanes, false);
            sums_add(l, sums + i * l->item, part, lanes);
        }
    }
    if (l->acc != c->dtype)
        mr__tier()->casts->cast[l->acc][c->dtype](to, sums, n);
    else
        memcpy(to, sums, (size_t)(n * l->item));
}

static void
pieces_run(void *ctx, int64_t begin, int64_t end)
{
    const line *l = ctx;
    const mr_conv *c = l->c;
    int64_t each = (c->out[0] - 1) / PIECE + 1;

    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / each, from = i % each * PIECE;
        int64_t left = c->out[0] - from;

        outputs_run(l, l->x + (row * l->row + from) * c->item,
                    c->to + (row * c->out[0] + from) * c->item,
                    left < PIECE ? left : PIECE);
    }
}

void
mr__conv_line(const mr_conv *c, void *workspace)
{
    int64_t each = (c->out[0] - 1) / PIECE + 1;
    int64_t points = c->out[0] < PIECE ? c->out[0] : PIECE;
    char *w = workspace;
    line l;

    line_plan(c, &l);
    weights_make(&l, w);
    l.w = w;
    l.x = c->x;
    if (has_zeros(&l)) {
        zeros_make(&l, w + weights_bytes(&l));
        l.x = w + weights_bytes(&l);
    }
    mr__cpu_for(c->batch * each,
                mr__cpu_grain(0.05 * (double)points * (double)c->taps),
                pieces_run, &l);
}
