/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.c -- operators that move elements: copies of views, concatenation,
 * padding, written slices, bytes as another type.
 *
 * All of them are boxes: dims, and strides on both sides.  A box is cut along
 * its outer dims into pieces for the pool; each is one strided copy of
 * kernels/copy.h.
 * Called by: device.c, other kernels of this folder.  Calls: kernels/copy.h.
 */
#include <string.h>

#include "array/layout.h"
#include "cpu/cpu.h"
#include "kernels/copy.h"
#include "kernels/tier/tier.h"
#include "ops/params.h"

enum {
    PIECE_BYTES = 1 << 18,
    PAST_BYTES = 1 << 24, /* copies of as much go past the caches */
    RUN_BYTES = 1024 /* of a row of what is transposed: copy.c of kernels/ */
};

/* ---- boxes ------------------------------------------------------------------
 */

typedef struct cut {
    int32_t ndim;
    int64_t dim[MR_MAX_NDIM];
    int64_t to_stride[MR_MAX_NDIM], from_stride[MR_MAX_NDIM]; /* bytes */
    char *to;
    const char *from;
    size_t item;
    int32_t axis;  /* cut here: outer axes are walked, this one split */
    int64_t split; /* entries of the axis in a piece */
    int64_t pieces_of_axis;
    bool past;
} cut;

/* Without dims of size 1, neighbours that are one run merged. */
static void
cut_merge(const mr_box *b, cut *c)
{
    int32_t n = 0;

    for (int32_t k = 0; k < b->ndim; k++) {
        int64_t to = b->to_stride[k] * b->item;
        int64_t from = b->from_stride[k] * b->item;

        if (b->dim[k] == 1)
            continue;
        if (n > 0 && c->to_stride[n - 1] == to * b->dim[k] &&
            c->from_stride[n - 1] == from * b->dim[k])
            c->dim[n - 1] *= b->dim[k];
        else
            c->dim[n++] = b->dim[k];
        c->to_stride[n - 1] = to;
        c->from_stride[n - 1] = from;
    }
    c->ndim = n;
}

static void
cut_piece(void *ctx, int64_t begin, int64_t end)
{
    const cut *c = ctx;

    for (int64_t i = begin; i < end; i++) {
        int64_t outer = i / c->pieces_of_axis;
        int64_t first = i % c->pieces_of_axis * c->split;
        int64_t dim[MR_MAX_NDIM];
        char *to = c->to + first * c->to_stride[c->axis];
        const char *from = c->from + first * c->from_stride[c->axis];

        for (int32_t k = c->axis - 1; k >= 0; k--) {
            to += outer % c->dim[k] * c->to_stride[k];
            from += outer % c->dim[k] * c->from_stride[k];
            outer /= c->dim[k];
        }
        memcpy(dim, c->dim + c->axis,
               (size_t)(c->ndim - c->axis) * sizeof *dim);
        dim[0] = dim[0] - first < c->split ? dim[0] - first : c->split;
        (c->past ? mr__copy_strided_past : mr__copy_strided)(
            c->item, c->ndim - c->axis, dim, to, c->to_stride + c->axis, from,
            c->from_stride + c->axis);
    }
}

void
mr__cpu_copy_box(const mr_box *b)
{
    cut c = {.to = b->to, .from = b->from, .item = (size_t)b->item};
    int64_t bytes = b->item, outer = 1;
    mr_over over = {.n = 0};

    cut_merge(b, &c);
    for (int32_t k = 0; k < c.ndim; k++)
        bytes *= c.dim[k];
    if (bytes == 0)
        return;
    if (bytes <= PIECE_BYTES || c.ndim == 0) {
        mr__copy_strided(c.item, c.ndim, c.dim, c.to, c.to_stride, c.from,
                         c.from_stride);
        return;
    }
    c.past = bytes >= PAST_BYTES;
    /* the outermost axis whose entries are not too large for a piece */
    for (; c.axis < c.ndim - 1; c.axis++) {
        bytes /= c.dim[c.axis];
        if (bytes <= PIECE_BYTES)
            break;
        outer *= c.dim[c.axis];
    }
    if (c.axis == c.ndim - 1)
        bytes = b->item;
    c.split = PIECE_BYTES / bytes;
    c.split = c.split < 1 ? 1 : c.split;
    if (c.from_stride[c.axis] == b->item) { /* transposed: longer runs of it */
        int64_t run = RUN_BYTES / b->item;

        run = run < c.dim[c.axis] / 8 ? run : c.dim[c.axis] / 8;
        c.split = c.split < run ? run : c.split;
    }
    c.pieces_of_axis = (c.dim[c.axis] - 1) / c.split + 1;
    if (c.from_stride[c.axis] != b->item) { /* no order, if transposed */
        mr__over_add(&over, b->from);
        mr__over_add(&over, b->to);
    }
    mr__cpu_for_over(&over, outer * c.pieces_of_axis, 1, cut_piece, &c);
}

void
mr__cpu_copy_view(void *to, const mr_kernel_view *from)
{
    mr_box b = {.ndim = from->ndim,
                .to = to,
                .from = from->data,
                .item = mr__dtype_size(from->dtype)};
    size_t n = (size_t)from->ndim;

    if (to == from->data) /* a kernel that writes over its operand */
        return;
    memcpy(b.dim, from->dim, n * sizeof *b.dim);
    memcpy(b.from_stride, from->stride, n * sizeof *b.dim);
    mr__strides_fresh(from->ndim, from->dim, b.to_stride);
    mr__cpu_copy_box(&b);
}

void
mr__cpu_fill(void *to, int64_t n, const void *value, int64_t item)
{
    mr_box b = {.ndim = 1,
                .dim = {n},
                .to_stride = {1},
                .from_stride = {0},
                .to = to,
                .from = value,
                .item = item};

    mr__cpu_copy_box(&b);
}

/* ---- rows of the table
 * ------------------------------------------------------- */

/* reshape, flatten, contiguous: the elements in row-major order. */
mr_code
mr__cpu_copy(const mr_kernel_args *a)
{
    mr__cpu_copy_view(a->out[0].data, &a->in[0]);
    return MR_OK;
}

/* The bytes of a row-major input (the table says so). */
mr_code
mr__cpu_view(const mr_kernel_args *a)
{
    mr_kernel_view bytes = a->in[0];
    int64_t n = bytes.size * mr__dtype_size(bytes.dtype), one = 1;

    bytes.dtype = MR_UINT8;
    bytes.ndim = 1;
    bytes.dim = &n;
    bytes.stride = &one;
    mr__cpu_copy_view(a->out[0].data, &bytes);
    return MR_OK;
}

/* Part of the output: x goes to where `offset` elements say, with the
 * output's strides. */
static void
part_copy(const mr_kernel_view *out, int64_t offset, const int64_t *out_stride,
          const mr_kernel_view *x)
{
    mr_box b = {.ndim = x->ndim, .item = mr__dtype_size(x->dtype)};
    size_t n = (size_t)x->ndim;

    b.to = (char *)out->data + offset * b.item;
    b.from = x->data;
    memcpy(b.dim, x->dim, n * sizeof *b.dim);
    memcpy(b.from_stride, x->stride, n * sizeof *b.dim);
    memcpy(b.to_stride, out_stride, n * sizeof *b.dim);
    mr__cpu_copy_box(&b);
}

/* Where the inputs' parts of a row are short, or inputs small, a copy of one
 * after the other would touch every line of the output many times, or never
 * be split: bands of the first axis instead, all inputs in each. */
typedef struct bands {
    const mr_kernel_args *a;
    int32_t axis;
    int64_t rows; /* of a band */
} bands;

static void
band_part(const bands *w, const mr_kernel_view *x, int64_t at, int64_t first,
          int64_t rows)
{
    const mr_kernel_view *out = &w->a->out[0];
    int64_t item = mr__dtype_size(out->dtype), dim[MR_MAX_NDIM];
    int64_t to[MR_MAX_NDIM], from[MR_MAX_NDIM];
    char *o = (char *)out->data +
              (at * out->stride[w->axis] + first * out->stride[0]) * item;
    const char *i = (const char *)x->data + first * x->stride[0] * item;

    for (int32_t k = 0; k < out->ndim; k++) {
        dim[k] = k == 0 ? rows : x->dim[k];
        to[k] = out->stride[k] * item;
        from[k] = x->stride[k] * item;
    }
    mr__copy_strided((size_t)item, out->ndim, dim, o, to, i, from);
}

static void
bands_piece(void *ctx, int64_t begin, int64_t end)
{
    const bands *w = ctx;
    int64_t n = w->a->out[0].dim[0];

    for (int64_t b = begin; b < end; b++) {
        int64_t first = b * w->rows, at = 0;
        int64_t rows = n - first < w->rows ? n - first : w->rows;

        for (int i = 0; i < w->a->n_in; i++) {
            const mr_kernel_view *x = &w->a->in[i];

            band_part(w, x, at, first, rows);
            at += x->dim[w->axis];
        }
    }
}

/* Inputs one after the other in memory, each small: many to a piece. */
static void
inputs_piece(void *ctx, int64_t begin, int64_t end)
{
    const bands *w = ctx;
    int64_t at = 0;

    for (int64_t i = 0; i < end; i++) {
        const mr_kernel_view *x = &w->a->in[i];

        if (i >= begin)
            band_part(w, x, at, 0, x->dim[0]);
        at += x->dim[0];
    }
}

mr_code
mr__cpu_concatenate(const mr_kernel_args *a)
{
    const mr_axis_params *p = a->params;
    const mr_kernel_view *out = &a->out[0];
    int64_t bytes = out->size * mr__dtype_size(out->dtype), at = 0;
    int64_t largest = 0;
    bands w = {a, p->axis, 1};

    for (int i = 0; i < a->n_in; i++)
        largest = a->in[i].size > largest ? a->in[i].size : largest;
    largest *= mr__dtype_size(out->dtype);
    if (bytes > PIECE_BYTES && p->axis > 0 &&
        out->dim[0] >= 2 * bytes / PIECE_BYTES) {
        w.rows = out->dim[0] * PIECE_BYTES / bytes;
        mr__cpu_for((out->dim[0] - 1) / w.rows + 1, 1, bands_piece, &w);
        return MR_OK;
    }
    if (bytes > PIECE_BYTES && p->axis == 0 && largest < PIECE_BYTES) {
        mr__cpu_for(a->n_in, PIECE_BYTES / (bytes / a->n_in + 1) + 1,
                    inputs_piece, &w);
        return MR_OK;
    }
    for (int i = 0; i < a->n_in; i++) {
        part_copy(out, at * out->stride[p->axis], out->stride, &a->in[i]);
        at += a->in[i].dim[p->axis];
    }
    return MR_OK;
}

/* Fills the entries [first, last) of an axis, all that is before the axis
 * restricted to where x lies: each axis fills what the outer ones left. */
static void
pad_fill(const mr_kernel_args *a, const mr_pad_params *p, int32_t axis,
         int64_t first, int64_t last)
{
    const mr_kernel_view *out = &a->out[0];
    mr_box b = {.ndim = out->ndim,
                .from = a->in[1].data,
                .item = mr__dtype_size(out->dtype)};
    int64_t offset = first * out->stride[axis];

    for (int32_t k = 0; k < out->ndim; k++) {
        b.to_stride[k] = out->stride[k];
        b.dim[k] = out->dim[k];
        if (k < axis) {
            b.dim[k] = a->in[0].dim[k];
            offset += p->low.v[k] * out->stride[k];
        }
    }
    b.dim[axis] = last - first;
    b.to = (char *)out->data + offset * b.item;
    mr__cpu_copy_box(&b);
}

mr_code
mr__cpu_pad(const mr_kernel_args *a)
{
    const mr_pad_params *p = a->params;
    const mr_kernel_view *out = &a->out[0], *x = &a->in[0];
    int64_t offset = 0;

    if (out->size == 0)
        return MR_OK;
    for (int32_t k = 0; k < out->ndim; k++) {
        int64_t end = p->low.v[k] + x->dim[k];

        if (p->low.v[k] > 0)
            pad_fill(a, p, k, 0, p->low.v[k]);
        if (end < out->dim[k])
            pad_fill(a, p, k, end, out->dim[k]);
        offset += p->low.v[k] * out->stride[k];
    }
    part_copy(out, offset, out->stride, x);
    return MR_OK;
}

mr_code
mr__cpu_slice_update(const mr_kernel_args *a)
{
    const mr_slice_params *p = a->params;
    const mr_kernel_view *out = &a->out[0], *update = &a->in[1];
    int64_t stride[MR_MAX_NDIM], offset = 0;

    mr__cpu_copy_view(out->data, &a->in[0]);
    for (int32_t k = 0; k < out->ndim; k++) {
        int64_t first, count;

        mr__slice_axis(p, k, out->dim[k], &first, &count);
        offset += first * out->stride[k];
        stride[k] = out->stride[k] * p->stride.v[k];
    }
    if (update->size > 0)
        part_copy(out, offset, stride, update);
    return MR_OK;
}
