/* SPDX-License-Identifier: Apache-2.0
 *
 * conv.h -- a convolution as numbers: what all ways to compute one share.
 */
#ifndef MR_CPU_CONV_H
#define MR_CPU_CONV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/cpu.h"
#include "ops/params.h"

#define MR_CONV_SPATIAL 3

typedef struct mr_conv {
    const mr_conv_params *p;
    int n_spatial;
    int64_t in[MR_CONV_SPATIAL], out[MR_CONV_SPATIAL], kernel[MR_CONV_SPATIAL];
    int64_t batch, channels, group_channels, group_outputs, outputs;
    int64_t n_rows, taps, k, chunk;
    mr_dtype dtype;
    int64_t item;
    bool plain; /* one tap at every position: patches are the input */
    bool runs;  /* taps of the last axis lie side by side in the input */
    const char *x, *w;
    char *to;
    const mr_epilogue *epilogue; /* what follows, or NULL */
    /* the chunk being made */
    char *patches;
    int64_t row0, group;
} mr_conv;

/* From the shapes of x, the weights and the output. */
void mr__conv_plan(const mr_conv_params *p, const mr_kernel_view *x,
                   const mr_kernel_view *w, const mr_kernel_view *out,
                   mr_conv *c);

/* The input position of a tap at an output position along an axis; -1 where
 * there is a zero. */
static inline int64_t
mr__conv_position(const mr_conv *c, int axis, int64_t out, int64_t tap)
{
    const mr_conv_params *p = c->p;
    int64_t spread = p->input_dilation.v[axis], at;

    if (p->flip)
        tap = c->kernel[axis] - 1 - tap;
    at = out * p->stride.v[axis] + tap * p->kernel_dilation.v[axis] -
         p->low.v[axis];
    if (spread != 1) {
        if (at < 0 || at % spread != 0)
            return -1;
        at /= spread;
    }
    return at >= 0 && at < c->in[axis] ? at : -1;
}

/* Where a tap is at an output position, over the first axes of item `from` of
 * the batch: counted in row-major order; -1 where there is a zero. */
static inline int64_t
mr__conv_tap_at(const mr_conv *c, int axes, int64_t from, const int64_t *out,
                const int64_t *tap)
{
    for (int i = 0; i < axes; i++) {
        int64_t at = mr__conv_position(c, i, out[i], tap[i]);

        if (at < 0)
            return -1;
        from = from * c->in[i] + at;
    }
    return from;
}

/* The next tap over the first axes. */
static inline void
mr__conv_tap_next(const mr_conv *c, int axes, int64_t *tap)
{
    for (int i = axes - 1; i >= 0; i--) {
        if (++tap[i] < c->kernel[i])
            return;
        tap[i] = 0;
    }
}

/* The output position over the first axes of one that is counted in row-major
 * order; the item of the batch. */
static inline int64_t
mr__conv_out_at(const mr_conv *c, int axes, int64_t at, int64_t *out)
{
    for (int i = axes - 1; i >= 0; i--) {
        out[i] = at % c->out[i];
        at /= c->out[i];
    }
    return at;
}

/* Where the first corner of an output's window lies, if all of that is within
 * the input, which is not dilated; else NULL.  float32; out[MR_CONV_SPATIAL] is
 * the place in the batch. */
static inline const float *
mr__conv_whole_window(const mr_conv *c, const int64_t *out)
{
    int64_t from = out[MR_CONV_SPATIAL];

    for (int i = 0; i < c->n_spatial; i++) {
        int64_t at = out[i] * c->p->stride.v[i] - c->p->low.v[i];
        int64_t reach = (c->kernel[i] - 1) * c->p->kernel_dilation.v[i];

        if (at < 0 || at + reach >= c->in[i])
            return NULL;
        from = from * c->in[i] + at;
    }
    return (const float *)(const void *)c->x + from * c->channels;
}

/* How far the taps of the first axes are from that corner, in floats. */
void mr__conv_offsets(const mr_conv *c, int axes, int64_t *offset);

/* Groups of one channel: each output is a sum over taps alone. */
bool mr__conv_depthwise_fits(const mr_conv *c);
size_t mr__conv_depthwise_bytes(const mr_conv *c);
void mr__conv_depthwise(const mr_conv *c, void *workspace);

/* float32 and halves on the matrix unit.  How many items have numbers that
 * cannot go that way, and which: outputs of those are nothing. */
bool mr__conv_matrix_fits(const mr_conv *c);
size_t mr__conv_matrix_bytes(const mr_conv *c);
int64_t mr__conv_matrix_run(const mr_conv *c, void *workspace, bool *unfit);
/* The gradient by the weights of x's dtype, float32: `out`.  False: the numbers
 * cannot go that way. */
bool mr__conv_matrix_back_fits(const mr_conv *c);
size_t mr__conv_matrix_back_bytes(const mr_conv *c);
bool mr__conv_matrix_back_run(const mr_conv *c, const void *x, const void *g,
                              float *out, void *workspace);
/* float32, read in place. */
bool mr__conv_window_fits(const mr_conv *c);
size_t mr__conv_window_bytes(const mr_conv *c);
void mr__conv_window(const mr_conv *c, void *workspace);
/* Does it run what follows? */
bool mr__conv_window_follows(const mr_conv *c);
/* float32, 3 x 3 taps of many channels: fewer products. */
bool mr__conv_squares_fits(const mr_conv *c);
size_t mr__conv_squares_bytes(const mr_conv *c);
void mr__conv_squares(const mr_conv *c, void *workspace);
/* float32, few outputs: lanes are taps times outputs. */
bool mr__conv_spread_fits(const mr_conv *c);
size_t mr__conv_spread_bytes(const mr_conv *c);
void mr__conv_spread(const mr_conv *c, void *workspace);
/* One channel, one filter, along a line. */
bool mr__conv_line_fits(const mr_conv *c);
size_t mr__conv_line_bytes(const mr_conv *c);
void mr__conv_line(const mr_conv *c, void *workspace);

#endif
