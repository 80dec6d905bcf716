/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.c -- shapes and strides: sizes, broadcasting, views by reshape.
 *
 * A reshape needs no copy when each group of old dims that makes up a group
 * of new dims lies like one long axis: groups are the shortest runs of both
 * shapes with equal products.
 * Called by: graph/, ops/, eval/.  Calls: nothing.
 */
#include "array/layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int64_t
mr__size_of(int32_t ndim, const int64_t *dim)
{
    int64_t size = 1;
    bool overflow = false;

    for (int32_t i = 0; i < ndim; i++) {
        if (dim[i] == 0)
            return 0;
        overflow |= __builtin_mul_overflow(size, dim[i], &size);
    }
    return overflow ? -1 : size;
}

void
mr__strides_fresh(int32_t ndim, const int64_t *dim, int64_t *stride)
{
    int64_t step = 1;

    for (int32_t i = ndim - 1; i >= 0; i--) {
        stride[i] = step;
        step *= dim[i] > 0 ? dim[i] : 1;
    }
}

bool
mr__is_contiguous(int32_t ndim, const int64_t *dim, const int64_t *stride)
{
    int64_t step = 1;
    bool contiguous = true;

    for (int32_t i = ndim - 1; i >= 0; i--) {
        if (dim[i] == 0)
            return true;
        if (dim[i] == 1)
            continue;
        contiguous &= stride[i] == step;
        step *= dim[i];
    }
    return contiguous;
}

int32_t
mr__broadcast_shapes(int32_t na, const int64_t *a, int32_t nb, const int64_t *b,
                     int64_t *out)
{
    int32_t n = na > nb ? na : nb;

    for (int32_t i = 1; i <= n; i++) {
        int64_t x = i <= na ? a[na - i] : 1;
        int64_t y = i <= nb ? b[nb - i] : 1;

        if (x != y && x != 1 && y != 1)
            return -1;
        out[n - i] = x == 1 ? y : x;
    }
    return n;
}

const char *
mr__shape_text(char *buf, size_t cap, int32_t ndim, const int64_t *dim)
{
    size_t at = 0;

    if (cap == 0)
        return buf;
    for (int32_t i = 0; i <= ndim && at < cap; i++) {
        const char *before = i == 0 ? "(" : ", ";
        int n;

        if (i < ndim)
            n = snprintf(buf + at, cap - at, "%s%" PRId64, before, dim[i]);
        else /* a tuple of one has a comma, as Python writes it */
            n = snprintf(buf + at, cap - at, "%s",
                         ndim == 0 ? "()" : (ndim == 1 ? ",)" : ")"));
        at += n > 0 ? (size_t)n : 0;
    }
    if (at >= cap && cap > 4)
        memcpy(buf + cap - 4, "...", 4);
    return buf;
}

/* The strides of new dims [j0, j1) that share the memory of one long axis
 * whose last stride is `step`. */
static void
spread_axis(mr_layout *out, int32_t j0, int32_t j1, int64_t step)
{
    for (int32_t j = j1 - 1; j >= j0; j--) {
        out->stride[j] = step;
        step *= out->dim[j];
    }
}

/* Do old dims [i0, i1) lie like one long axis? */
static bool
is_one_axis(const mr_layout *in, int32_t i0, int32_t i1)
{
    for (int32_t i = i0; i + 1 < i1; i++)
        if (in->stride[i] != in->dim[i + 1] * in->stride[i + 1])
            return false;
    return true;
}

/* `in` without its dims of size 1, whose strides say nothing. */
static void
drop_ones(const mr_layout *in, mr_layout *out)
{
    out->ndim = 0;
    for (int32_t i = 0; i < in->ndim; i++) {
        if (in->dim[i] == 1)
            continue;
        out->dim[out->ndim] = in->dim[i];
        out->stride[out->ndim++] = in->stride[i];
    }
}

static bool
match_groups(const mr_layout *old, mr_layout *out)
{
    int32_t i = 0, j = 0;

    while (i < old->ndim) {
        int32_t i0 = i, j0 = j;
        int64_t a = old->dim[i++], b = j < out->ndim ? out->dim[j++] : 1;

        while (a != b) {
            if (a < b && i < old->ndim)
                a *= old->dim[i++];
            else if (b < a && j < out->ndim)
                b *= out->dim[j++];
            else
                return false;
        }
        if (!is_one_axis(old, i0, i))
            return false;
        spread_axis(out, j0, j, old->stride[i - 1]);
    }
    for (; j < out->ndim; j++) /* ones at the end */
        out->stride[j] = 1;
    return true;
}

bool
mr__reshape_view(const mr_layout *in, int32_t ndim, const int64_t *dim,
                 mr_layout *out)
{
    mr_layout old, made = {.ndim = ndim, .offset = in->offset};
    int64_t size = mr__size_of(in->ndim, in->dim);

    if (ndim > 0)
        memcpy(made.dim, dim, (size_t)ndim * sizeof *dim);
    if (size < 0 || size != mr__size_of(ndim, made.dim))
        return false;
    if (size == 0) {
        mr__strides_fresh(ndim, made.dim, made.stride);
    } else {
        drop_ones(in, &old);
        if (!match_groups(&old, &made))
            return false;
    }
    *out = made;
    return true;
}
