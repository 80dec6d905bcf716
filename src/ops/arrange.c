/* SPDX-License-Identifier: Apache-2.0
 *
 * arrange.c -- bodies that rearrange: swaps of axes, repeats, rolls, flips,
 * grids, differences.  All are made of the operators in shape.c and join.c.
 *
 * Called by: the generated doors.  Calls: marram/ops.h.
 */
#include <string.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/alloc.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "marram/tree.h"
#include "ops/door.h"
#include "ops/params.h"
#include "ops/rules.h"

/* ---- axes -------------------------------------------------------------------
 */

mr_array *
mr__build_swapaxes(mr_array *a, int64_t axis1, int64_t axis2)
{
    mr_list order = {.n = a->ndim};
    int32_t i, j;

    if (!mr__axis(axis1, a->ndim, &i) || !mr__axis(axis2, a->ndim, &j))
        return NULL;
    for (int32_t k = 0; k < a->ndim; k++)
        order.v[k] = k == i ? j : k == j ? i : k;
    return mr_transpose(a, mr__ints(&order));
}

mr_array *
mr__build_moveaxis(mr_array *a, int64_t source, int64_t destination)
{
    mr_list order = {.n = a->ndim};
    int32_t from, to, next = 0;

    if (!mr__axis(source, a->ndim, &from) ||
        !mr__axis(destination, a->ndim, &to))
        return NULL;
    for (int32_t k = 0; k < a->ndim; k++) {
        if (k == to) {
            order.v[k] = from;
            continue;
        }
        if (next == from)
            next++;
        order.v[k] = next++;
    }
    return mr_transpose(a, mr__ints(&order));
}

/* The axes of a list, each once; false with an error. */
static bool
read_axes(mr_ints list, int32_t ndim, int32_t *axes)
{
    uint32_t seen = 0;

    for (int64_t i = 0; i < list.n; i++) {
        if (!mr__axis(list.v[i], ndim, &axes[i]))
            return false;
        if (seen >> axes[i] & 1) {
            mr__fail(MR_E_VALUE, "axis %d is given twice", (int)axes[i]);
            return false;
        }
        seen |= (uint32_t)1 << axes[i];
    }
    return true;
}

mr_array *
mr__build_moveaxes(mr_array *a, mr_ints sources, mr_ints destinations)
{
    int32_t from[MR_MAX_NDIM], to[MR_MAX_NDIM], next = 0;
    bool moved[MR_MAX_NDIM] = {false};
    mr_list order = {.n = a->ndim};

    if (sources.n != destinations.n || sources.n > a->ndim || sources.n < 0)
        return mr__fail_null(MR_E_VALUE,
                             "%lld sources and %lld destinations for an array "
                             "of %d axes: needs as many of both, and no more",
                             (long long)sources.n, (long long)destinations.n,
                             (int)a->ndim);
    if (!read_axes(sources, a->ndim, from) ||
        !read_axes(destinations, a->ndim, to))
        return NULL;
    for (int32_t k = 0; k < a->ndim; k++)
        order.v[k] = -1;
    for (int64_t i = 0; i < sources.n; i++) {
        order.v[to[i]] = from[i];
        moved[from[i]] = true;
    }
    for (int32_t k = 0; k < a->ndim; k++) {
        if (order.v[k] >= 0)
            continue;
        while (moved[next])
            next++;
        order.v[k] = next++;
    }
    return mr_transpose(a, mr__ints(&order));
}

mr_array *
mr__build_matrix_transpose(mr_array *a)
{
    if (a->ndim < 2)
        return mr__fail_null(MR_E_VALUE, "needs 2 axes or more, got %d",
                             (int)a->ndim);
    return mr_swapaxes(a, -2, -1);
}

mr_array *
mr__build_atleast_1d(mr_array *a)
{
    return a->ndim >= 1 ? a : mr_reshape(a, MR_SHAPE(1));
}

mr_array *
mr__build_atleast_2d(mr_array *a)
{
    if (a->ndim >= 2)
        return a;
    return a->ndim == 1 ? mr_expand_dims(a, MR_AXES(0))
                        : mr_reshape(a, MR_SHAPE(1, 1));
}

mr_array *
mr__build_atleast_3d(mr_array *a)
{
    if (a->ndim >= 3)
        return a;
    if (a->ndim == 2)
        return mr_expand_dims(a, MR_AXES(2));
    return a->ndim == 1 ? mr_expand_dims(a, MR_AXES(0, 2))
                        : mr_reshape(a, MR_SHAPE(1, 1, 1));
}

mr_tree *
mr__build_broadcast_arrays(mr_array *const *arrays, int n_arrays)
{
    int64_t dim[MR_MAX_NDIM];
    int32_t ndim = 0;
    mr_array **list;
    mr_tree *t = NULL;
    mr_text text;

    for (int i = 0; i < n_arrays; i++) {
        ndim = mr__broadcast_shapes(ndim, dim, arrays[i]->ndim, arrays[i]->dim,
                                    dim);
        if (ndim < 0)
            return mr__fail_null(MR_E_SHAPE,
                                 "shape %s does not broadcast with the others",
                                 mr__shape_of(arrays[i], &text));
    }
    list = mr__alloc_array((size_t)n_arrays, sizeof(mr_array *));
    if (list == NULL)
        return NULL;
    for (int i = 0; i < n_arrays; i++) {
        list[i] = mr_broadcast_to(arrays[i], (mr_shape){dim, ndim});
        if (list[i] == NULL)
            goto out;
    }
    t = mr_tree_arrays(n_arrays, list);
out:
    mr__dealloc(list);
    return t;
}

/* ---- repeats
 * ----------------------------------------------------------------- */

/* Each entry of axis so many times (inner), or the axis as a whole so many
 * times: a new axis behind or before it, merged with it. */
static mr_array *
repeat_axis(mr_array *a, int32_t axis, int64_t times, bool inner)
{
    mr_list shape;
    int32_t k = inner ? axis + 1 : axis;

    a = mr_expand_dims(a, MR_AXES(k));
    if (a == NULL)
        return NULL;
    shape = mr__dims(a);
    shape.v[k] = times;
    return mr_flatten(mr_broadcast_to(a, mr__shape(&shape)), axis, axis + 1);
}

mr_array *
mr__build_repeat(mr_array *array, int64_t repeats, int32_t axis)
{
    int32_t k = 0;

    if (repeats < 0)
        return mr__fail_null(MR_E_VALUE, "%lld repeats, needs 0 or more",
                             (long long)repeats);
    array = mr__along(array, axis, &k);
    return array == NULL || repeats == 1 ? array
                                         : repeat_axis(array, k, repeats, true);
}

mr_array *
mr__build_tile(mr_array *a, mr_ints reps)
{
    mr_list shape = {.n = a->ndim};
    int32_t more = (int32_t)reps.n - a->ndim;

    if (reps.n > MR_MAX_NDIM)
        return mr__fail_null(MR_E_VALUE,
                             "%lld numbers of repeats, at most %d axes are "
                             "possible",
                             (long long)reps.n, MR_MAX_NDIM);
    for (int64_t i = 0; i < reps.n; i++)
        if (reps.v[i] < 0)
            return mr__fail_null(MR_E_VALUE, "%lld repeats, needs 0 or more",
                                 (long long)reps.v[i]);
    if (more > 0) {
        shape.n = reps.n;
        for (int64_t i = 0; i < shape.n; i++)
            shape.v[i] = i < more ? 1 : a->dim[i - more];
        a = mr_reshape(a, mr__shape(&shape));
        more = 0; /* below: reps belong to the last axes */
    }
    for (int64_t i = 0; a != NULL && i < reps.n; i++)
        if (reps.v[i] != 1)
            a = repeat_axis(a, (int32_t)(i - more), reps.v[i], false);
    return a;
}

/* ---- rolls, flips
 * ------------------------------------------------------------- */

static mr_array *
roll_axis(mr_array *a, int32_t axis, int64_t shift)
{
    int64_t n = a->dim[axis];

    if (n == 0)
        return a;
    shift = ((shift % n) + n) % n;
    if (shift == 0)
        return a;
    return mr_concatenate(
        ((mr_array *[]){mr__slice_one(a, axis, n - shift, MR_INT_NONE, 1),
                        mr__slice_one(a, axis, MR_INT_NONE, n - shift, 1)}),
        2, axis);
}

mr_array *
mr__build_roll(mr_array *a, mr_ints shift, mr_axes axis)
{
    mr_list shape = mr__dims(a);
    int64_t total = 0;

    if (axis.n < 0) {
        for (int64_t i = 0; i < shift.n && a->size > 0; i++)
            total = (total + shift.v[i] % a->size) % a->size;
        a = mr_flatten(a, 0, -1);
        return a == NULL
                   ? NULL
                   : mr_reshape(roll_axis(a, 0, total), mr__shape(&shape));
    }
    if (shift.n != 1 && axis.n != 1 && shift.n != axis.n)
        return mr__fail_null(
            MR_E_VALUE,
            "%lld shifts for %d axes: needs one for each, or one of either",
            (long long)shift.n, (int)axis.n);
    for (int64_t i = 0; a != NULL && i < shift.n * axis.n; i++) {
        int32_t k;

        if (i >= shift.n && i >= axis.n)
            break;
        if (!mr__axis(axis.axis[axis.n == 1 ? 0 : i], a->ndim, &k))
            return NULL;
        a = roll_axis(a, k, shift.v[shift.n == 1 ? 0 : i]);
    }
    return a;
}

mr_array *
mr__build_flip(mr_array *a, mr_axes axis)
{
    mr_list start = {.n = a->ndim}, stop = {.n = a->ndim},
            stride = {.n = a->ndim};
    uint32_t mask;

    if (!mr__axes_mask(axis, a->ndim, &mask))
        return NULL;
    for (int32_t i = 0; i < a->ndim; i++) {
        start.v[i] = stop.v[i] = MR_INT_NONE;
        stride.v[i] = mask >> i & 1 ? -1 : 1;
    }
    return mr_index_slice(a, mr__ints(&start), mr__ints(&stop),
                          mr__ints(&stride));
}

/* ---- the flattened array under a layout of one's own
 * ---------------------------- */

/* Lowest and highest element that is reached. */
static mr_code
strided_bounds(const mr_array *a, mr_shape shape, mr_ints strides,
               int64_t offset)
{
    int64_t low = offset, high = offset;
    bool bad = false;

    for (int64_t i = 0; i < shape.n; i++) {
        int64_t span;

        if (shape.dim[i] == 0)
            return MR_OK;
        bad = bad ||
              __builtin_mul_overflow(shape.dim[i] - 1, strides.v[i], &span) ||
              __builtin_add_overflow(span < 0 ? low : high, span,
                                     span < 0 ? &low : &high);
    }
    if (bad || low < 0 || high >= a->size)
        return mr__fail(MR_E_VALUE,
                        "shape, strides and offset reach elements %lld to "
                        "%lld, the array has 0 to %lld",
                        (long long)low, (long long)high,
                        (long long)a->size - 1);
    return MR_OK;
}

mr_array *
mr__build_as_strided(mr_array *a, mr_shape shape, mr_ints strides,
                     int64_t offset)
{
    int64_t fresh[MR_MAX_NDIM];
    mr_array *index;
    mr_list own = mr__dims(a);

    if (shape.n < 0)
        shape = mr__shape(&own);
    if (mr__check_shape(shape.n, shape.dim) != MR_OK)
        return NULL;
    if (strides.n < 0) {
        mr__strides_fresh((int32_t)shape.n, shape.dim, fresh);
        strides = (mr_ints){fresh, shape.n};
    }
    if (strides.n != shape.n)
        return mr__fail_null(
            MR_E_VALUE,
            "%lld strides for a shape of %lld axes: needs one for each",
            (long long)strides.n, (long long)shape.n);
    if (strided_bounds(a, shape, strides, offset) != MR_OK)
        return NULL;
    index = mr__integer(MR_INT64, offset);
    for (int32_t i = 0; index != NULL && i < shape.n; i++)
        index = mr_add(index, mr_multiply(mr__cast(mr__iota(shape.dim[i], i,
                                                            (int32_t)shape.n),
                                                   MR_INT64),
                                          mr__integer(MR_INT64, strides.v[i])));
    return mr_take(a, index, MR_AXIS_NONE);
}

/* ---- grids, differences, Kronecker products
 * -------------------------------------- */

mr_tree *
mr__build_meshgrid(mr_array *const *arrays, int n_arrays, bool sparse,
                   const char *indexing)
{
    bool xy = indexing != NULL && strcmp(indexing, "xy") == 0;
    mr_array **list;
    mr_tree *t = NULL;

    if (!xy && (indexing == NULL || strcmp(indexing, "ij") != 0))
        return mr__fail_null(MR_E_VALUE, "indexing '%s' is not xy or ij",
                             indexing == NULL ? "" : indexing);
    if (n_arrays < 1 || n_arrays > MR_MAX_NDIM)
        return mr__fail_null(MR_E_VALUE, "%d arrays, needs 1 to %d", n_arrays,
                             MR_MAX_NDIM);
    list = mr__alloc_array((size_t)n_arrays, sizeof(mr_array *));
    if (list == NULL)
        return NULL;
    for (int i = 0; i < n_arrays; i++) {
        int k = xy && n_arrays > 1 && i < 2 ? 1 - i : i;
        mr_list shape = {.n = n_arrays};

        for (int j = 0; j < n_arrays; j++)
            shape.v[j] = j == k ? arrays[i]->size : 1;
        list[i] = mr_reshape(arrays[i], mr__shape(&shape));
        if (list[i] == NULL)
            goto out;
    }
    t = sparse ? mr_tree_arrays(n_arrays, list)
               : mr_broadcast_arrays(list, n_arrays);
out:
    mr__dealloc(list);
    return t;
}

mr_array *
mr__build_diff(mr_array *a, int64_t n, int64_t axis)
{
    int32_t k;

    if (n < 0)
        return mr__fail_null(MR_E_VALUE, "order %lld, needs 0 or more",
                             (long long)n);
    if (!mr__axis(axis, a->ndim, &k))
        return NULL;
    for (int64_t i = 0; a != NULL && i < n && a->dim[k] > 0; i++) {
        mr_array *next = mr__slice_one(a, k, 1, MR_INT_NONE, 1);
        mr_array *here = mr__slice_one(a, k, MR_INT_NONE, -1, 1);

        a = (mr_dtype)a->dtype == MR_BOOL ? mr_not_equal(next, here)
                                          : mr_subtract(next, here);
    }
    return a;
}

mr_array *
mr__build_kron(mr_array *a, mr_array *b)
{
    int32_t n = a->ndim > b->ndim ? a->ndim : b->ndim;
    mr_list sa = {.n = 2 * n}, sb = {.n = 2 * n}, out = {.n = n};

    if (2 * n > MR_MAX_NDIM)
        return mr__fail_null(MR_E_VALUE,
                             "%d axes, at most %d are possible here", (int)n,
                             MR_MAX_NDIM / 2);
    for (int32_t i = 0; i < n; i++) {
        int32_t ka = i - (n - a->ndim), kb = i - (n - b->ndim);

        sa.v[2 * i] = ka < 0 ? 1 : a->dim[ka];
        sa.v[2 * i + 1] = 1;
        sb.v[2 * i] = 1;
        sb.v[2 * i + 1] = kb < 0 ? 1 : b->dim[kb];
        out.v[i] = sa.v[2 * i] * sb.v[2 * i + 1];
    }
    a = mr_multiply(mr_reshape(a, mr__shape(&sa)),
                    mr_reshape(b, mr__shape(&sb)));
    return mr_reshape(a, mr__shape(&out));
}
