/* SPDX-License-Identifier: Apache-2.0
 *
 * pick.c -- one entry of each row: x[arange(n), t].
 *
 * Of several index arrays all but one often count the rows.  Then the gather
 * takes entries along one axis, as take_along_axis does, of which everything
 * else knows more: what is read inside a block, and which entry of a row has a
 * gradient.  Called by: gather.c.  Calls: marram/ops.h.
 */
#include <string.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/error.h"
#include "gen/build.h"
#include "graph/context.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "ops/door.h"
#include "ops/params.h"
#include "ops/rules.h"

enum { VIEWS = 6 };

/* 0, 1, 2, ... up to n - 1, without wrapping? */
static bool
counts(const mr_array *x)
{
    const mr_arange_params *p;
    bool sign;
    int64_t bits;

    if (x->op != &mr__op_arange)
        return false;
    p = mr__params(x);
    sign = p->dtype >= MR_INT8 && p->dtype <= MR_INT64;
    bits = mr__dtype_size(p->dtype) * 8 - sign;
    return p->exact && p->istart == 0 && p->istep == 1 && p->n > 1 &&
           (bits >= 63 || p->n - 1 < (int64_t)1 << bits);
}

/* The axis along which x counts, the same along all others, or -1.  Views of a
 * live trace keep their inputs; others may lose them to whoever evaluates
 * them meanwhile. */
static int32_t
counted_axis(const mr_array *x)
{
    const mr_array *view[VIEWS];
    mr_layout a, b;
    int32_t axis = -1;
    int n = 0;

    while (x->op != &mr__op_arange) {
        if (n == VIEWS || mr__ctx.trace == 0 || x->trace != mr__ctx.trace ||
            mr__state(x) != MR_NEW || x->op->view == NULL || x->n_in != 1)
            return -1;
        view[n++] = x;
        x = x->in[0];
    }
    if (!counts(x))
        return -1;
    a = (mr_layout){.ndim = 1, .dim = {x->dim[0]}, .stride = {1}};
    for (; n > 0; a = b)
        if (!view[n - 1]->op->view(view[n - 1], &a, &b))
            return -1;
        else
            n--;
    for (int32_t i = 0; i < a.ndim; i++) {
        if (a.dim[i] == 1 || a.stride[i] == 0)
            continue;
        if (axis >= 0 || a.stride[i] != 1)
            return -1;
        axis = i;
    }
    return a.offset == 0 && axis >= 0 && a.dim[axis] == x->dim[0] ? axis : -1;
}

/* Which axes of x go along which of the indices' common shape: order[] by axis
 * of that, the one that is picked from where none does. */
typedef struct picking {
    int32_t ndim;
    int64_t order[MR_MAX_NDIM];
    int t;         /* the index that does not count */
    int32_t along; /* where its axis stands in order[] */
} picking;

static bool
picks(const mr_array *x, mr_array *const *indices, int n, const mr_ints *axes,
      const mr_array *shape, picking *p)
{
    int32_t covered = 0, at;

    p->t = -1;
    p->ndim = shape->ndim;
    for (int32_t i = 0; i < p->ndim; i++)
        p->order[i] = -1;
    for (int k = 0; k < n; k++) {
        at = counted_axis(indices[k]);
        if (at < 0) {
            if (p->t >= 0)
                return false;
            p->t = k;
            continue;
        }
        at += shape->ndim - indices[k]->ndim;
        if (p->order[at] >= 0 || shape->dim[at] > x->dim[axes->v[k]])
            return false;
        p->order[at] = axes->v[k];
        covered++;
    }
    if (p->t < 0 || p->ndim - covered > 1)
        return false;
    p->along = p->ndim;
    for (int32_t i = 0; i < p->ndim; i++)
        p->along = p->order[i] < 0 ? i : p->along;
    if (p->along == p->ndim)
        p->ndim++;
    p->order[p->along] = axes->v[p->t];
    /* an error names the axis that the user sees */
    return p->along == axes->v[p->t];
}

/* x with the axes in this order, cut to the rows that are counted. */
static mr_array *
rows_of(mr_array *x, const picking *p, const mr_array *shape)
{
    bool turned = false;

    for (int32_t i = 0; i < p->ndim && x != NULL; i++) {
        int32_t axis = (int32_t)p->order[i];

        turned |= axis != i;
        if (i != p->along && shape->dim[i] != x->dim[axis])
            x = mr__slice_one(x, axis, 0, shape->dim[i], 1);
    }
    return x != NULL && turned ? mr_transpose(x, (mr_ints){p->order, p->ndim})
                               : x;
}

bool
mr__pick_rows(mr_array *x, mr_array *const *indices, mr_array *const *even,
              int n, mr_ints axes, mr_ints sizes, const char *label,
              mr_array **out)
{
    const mr_array *shape = even[0];
    mr_list dims = {.n = 0};
    mr_array *rows, *index;
    picking p;

    if (n < 2 || n != x->ndim || shape->ndim == 0 || shape->size == 0 ||
        shape->ndim + n > MR_MAX_NDIM ||
        !picks(x, indices, n, &axes, shape, &p))
        return false;
    for (int i = 0; i < n; i++)
        if (sizes.v[i] != 1)
            return false;
    for (int32_t i = 0; i < shape->ndim; i++)
        dims.v[dims.n++] = shape->dim[i];
    for (int i = 0; i < n; i++)
        dims.v[dims.n++] = 1;
    rows = rows_of(x, &p, shape);
    index = even[p.t];
    if (p.ndim > shape->ndim)
        index = mr_expand_dims(index, MR_AXES(p.along));
    *out = rows == NULL || index == NULL
               ? NULL
               : mr_reshape(mr__take_picked(rows, index, p.along, label),
                            mr__shape(&dims));
    return true;
}
