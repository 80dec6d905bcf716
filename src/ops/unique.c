/* SPDX-License-Identifier: Apache-2.0
 *
 * unique.c -- distinct values: sort, mark the first of each run, take those.
 *
 * NaNs are distinct from one another, -0 and +0 are equal.  Everything is made
 * of operators, so with a size it works inside every transform.
 * Called by: the generated doors.  Calls: marram/ops.h.
 */
#include "array/dtype.h"
#include "base/error.h"
#include "gen/build.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "marram/tree.h"
#include "ops/door.h"
#include "ops/rules.h"

typedef struct unique {
    mr_array *x, *order, *sorted; /* flat */
    mr_array *first;              /* does a run begin here? */
    mr_array *place;              /* where runs begin; n behind them */
    mr_array *from;               /* place, with 0 behind them */
    mr_array *real;               /* is there a value? */
    int64_t n, size;
} unique;

/* Places are sorted along only where they are asked for: that costs twice. */
static bool
mark_runs(unique *u, bool places)
{
    mr_array *one = mr_ones(MR_SHAPE(1), MR_BOOL), *differs;

    u->order = places ? mr_argsort(u->x, 0) : NULL;
    u->sorted = places ? mr__take_along(u->x, u->order, 0) : mr_sort(u->x, 0);
    differs = mr_not_equal(mr__slice_one(u->sorted, 0, 1, MR_INT_NONE, 1),
                           mr__slice_one(u->sorted, 0, MR_INT_NONE, -1, 1));
    u->first = mr_concatenate((mr_array *[]){one, differs}, 2, 0);
    return one != NULL && differs != NULL && u->first != NULL;
}

/* One place more than values: the end of the last run. */
static bool
find_runs(unique *u, int64_t size)
{
    mr_array *places, *n, *flat;

    if (size == MR_INT_NONE) {
        places = mr_flatnonzero(u->first, MR_INT_NONE, 0);
        if (places == NULL)
            return false;
        size = places->dim[0];
    }
    u->size = size;
    flat = mr_flatnonzero(u->first, size + 1, -1);
    if (flat == NULL)
        return false;
    n = mr__integer((mr_dtype)flat->dtype, u->n);
    u->place =
        mr_where(mr_less(flat, mr__integer((mr_dtype)flat->dtype, 0)), n, flat);
    flat = mr__slice_one(u->place, 0, 0, size, 1);
    u->real = mr_less(flat, n);
    u->from = mr__masked(u->real, flat);
    return u->from != NULL;
}

/* Which value each element has; the last one where the size cut it off. */
static mr_array *
inverse_of(const unique *u, mr_shape shape)
{
    mr_dtype t = u->n > INT32_MAX ? MR_INT64 : MR_INT32;
    mr_array *run = mr_cumsum(mr__cast(u->first, t), 0, false, true, t);
    mr_array *zeros = mr_zeros(MR_SHAPE(u->n), MR_UINT32);

    run = mr_subtract(run, mr__integer(t, 1));
    run = mr_minimum(run, mr__integer(t, u->size > 0 ? u->size - 1 : 0));
    if (zeros == NULL || run == NULL)
        return NULL;
    run = mr__put_along(zeros, u->order, mr__cast(run, MR_UINT32), 0, 0);
    return mr_reshape(run, shape);
}

static mr_array *
counts_of(const unique *u)
{
    return mr__cast(mr_subtract(mr__slice_one(u->place, 0, 1, MR_INT_NONE, 1),
                                mr__slice_one(u->place, 0, MR_INT_NONE, -1, 1)),
                    MR_INT32);
}

/* Nothing to choose from: the fill alone. */
static mr_tree *
unique_of_nothing(const mr_array *a, int64_t size, const bool *want,
                  mr_array *fill)
{
    mr_list shape = mr__dims(a);
    mr_array *out[4];
    int n = 1;

    if (size > 0 && !mr__given(fill))
        return mr__fail_null(MR_E_VALUE,
                             "%lld distinct values of no elements: needs a "
                             "fill value",
                             (long long)size);
    size = size > 0 ? size : 0;
    out[0] = size > 0 ? mr_broadcast_to(mr__cast(fill, (mr_dtype)a->dtype),
                                        MR_SHAPE(size))
                      : mr_zeros(MR_SHAPE(0), (mr_dtype)a->dtype);
    if (want[0])
        out[n++] = mr_zeros(MR_SHAPE(size), MR_UINT32);
    if (want[1])
        out[n++] = mr_zeros(mr__shape(&shape), MR_UINT32);
    if (want[2])
        out[n++] = mr_zeros(MR_SHAPE(size), MR_INT32);
    for (int i = 0; i < n; i++)
        if (out[i] == NULL)
            return NULL;
    return mr_tree_arrays(n, out);
}

static bool
check(const mr_array *a, int64_t size, const mr_array *fill)
{
    if (size != MR_INT_NONE && (size < 0 || size > INT32_MAX)) {
        mr__fail(MR_E_VALUE, "a size of %lld, needs 0 to 2^31 - 1",
                 (long long)size);
        return false;
    }
    if (mr__given(fill) && fill->ndim != 0) {
        mr__fail(MR_E_SHAPE, "a fill value of %d axes, needs one number",
                 (int)fill->ndim);
        return false;
    }
    if (a->size >= UINT32_MAX) {
        mr__fail(MR_E_OVERFLOW, "%lld elements, at most 2^32 - 2 are possible",
                 (long long)a->size);
        return false;
    }
    return true;
}

mr_tree *
mr__build_unique(mr_array *a, int64_t size, bool return_index,
                 bool return_inverse, bool return_counts, mr_array *fill_value)
{
    const bool want[3] = {return_index, return_inverse, return_counts};
    unique u = {.n = a->size};
    mr_list shape = mr__dims(a);
    mr_array *out[4];
    int n = 1;

    if (!check(a, size, fill_value))
        return NULL;
    if (a->size == 0)
        return unique_of_nothing(a, size, want, fill_value);
    u.x = mr_flatten(a, 0, -1);
    if (u.x == NULL || !mark_runs(&u, return_index || return_inverse) ||
        !find_runs(&u, size))
        return NULL;
    out[0] = mr_take(u.sorted, u.from, 0);
    if (mr__given(fill_value))
        out[0] =
            mr_where(u.real, out[0], mr__cast(fill_value, (mr_dtype)a->dtype));
    if (return_index)
        out[n++] = mr_take(u.order, u.from, 0);
    if (return_inverse)
        out[n++] = inverse_of(&u, mr__shape(&shape));
    if (return_counts)
        out[n++] = counts_of(&u);
    for (int i = 0; i < n; i++)
        if (out[i] == NULL)
            return NULL;
    return mr_tree_arrays(n, out);
}
