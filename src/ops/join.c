/* SPDX-License-Identifier: Apache-2.0
 *
 * join.c -- arrays put together and taken apart: concatenate, pad, split, and
 * the bodies made of them.
 *
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
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

static const mr_field axis_fields[] = {
    MR_FIELD(1, AXIS, mr_axis_params, axis),
};

/* The arrays, made alike by fn, in a list to be freed; NULL on failure. */
static mr_array **
map_arrays(mr_array *const *arrays, int n,
           mr_array *(*fn)(mr_array *x, mr_dtype t, int32_t axis), mr_dtype t,
           int32_t axis)
{
    mr_array **out = mr__alloc_array((size_t)n, sizeof(mr_array *));

    for (int i = 0; out != NULL && i < n; i++) {
        out[i] = fn(arrays[i], t, axis);
        if (out[i] == NULL) {
            mr__dealloc(out);
            out = NULL;
        }
    }
    return out;
}

static mr_code
check_list(mr_array *const *arrays, int n, mr_dtype *t)
{
    if (n < 1)
        return mr__fail(MR_E_VALUE, "needs at least one array");
    if (n > INT16_MAX)
        return mr__fail(MR_E_VALUE, "%d arrays, at most %d are possible", n,
                        INT16_MAX);
    *t = (mr_dtype)arrays[0]->dtype;
    for (int i = 1; i < n; i++)
        *t = mr__promote(*t, (mr_dtype)arrays[i]->dtype);
    return MR_OK;
}

/* -- concatenate ----------------------------------------------------------- */

static mr_array *
flat_of_type(mr_array *x, mr_dtype t, int32_t axis)
{
    (void)axis;
    return mr_flatten(mr__cast(x, t), 0, -1);
}

static mr_array *
of_type(mr_array *x, mr_dtype t, int32_t axis)
{
    (void)axis;
    return mr__cast(x, t);
}

static mr_array *
join(mr_array *const *arrays, int n, int32_t axis)
{
    mr_axis_params p;

    if (!mr__axis(axis, arrays[0]->ndim, &p.axis))
        return NULL;
    return n == 1 ? arrays[0]
                  : mr__node_new(&mr__op_concatenate, &p, n, arrays);
}

mr_array *
mr__build_concatenate(mr_array *const *arrays, int n_arrays, int32_t axis)
{
    mr_array **list, *y;
    mr_dtype t;

    if (check_list(arrays, n_arrays, &t) != MR_OK)
        return NULL;
    list = map_arrays(arrays, n_arrays,
                      axis == MR_AXIS_NONE ? flat_of_type : of_type, t, 0);
    y = list == NULL ? NULL
                     : join(list, n_arrays, axis == MR_AXIS_NONE ? 0 : axis);
    mr__dealloc(list);
    return y;
}

static mr_code
concatenate_infer(const mr_op_call *c, mr_aval *out)
{
    int32_t axis = ((const mr_axis_params *)c->params)->axis;
    mr_text a, b;

    mr__aval_like(out, c->in[0]);
    for (int k = 1; k < c->n_in; k++) {
        const mr_array *x = c->in[k];
        bool fits = x->ndim == out->ndim && x->dtype == c->in[0]->dtype;

        for (int32_t i = 0; fits && i < x->ndim; i++)
            fits = i == axis || x->dim[i] == out->dim[i];
        if (!fits)
            return mr__fail(
                MR_E_SHAPE, "shapes %s and %s differ outside of axis %d",
                mr__shape_of(c->in[0], &a), mr__shape_of(x, &b), (int)axis);
        if (__builtin_add_overflow(out->dim[axis], x->dim[axis],
                                   &out->dim[axis]))
            return mr__fail(MR_E_OVERFLOW,
                            "the sizes of axis %d add up to more than 2^63",
                            (int)axis);
    }
    return MR_OK;
}

static mr_array *
concatenate_vjp(const mr_rule *r, int i)
{
    int32_t axis = ((const mr_axis_params *)mr__params(r->node))->axis;
    int64_t start = 0;

    for (int k = 0; k < i; k++)
        start += r->primal[k]->dim[axis];
    return mr__slice_one(r->cotangent[0], axis, start,
                         start + r->primal[i]->dim[axis], 1);
}

/* The whole tangent comes with the first input that has one. */
static mr_array *
concatenate_jvp(const mr_rule *r, int i)
{
    mr_array **list, *y = NULL;

    for (int k = 0; k < i; k++)
        if (r->tangent[k] != NULL)
            return MR_NONE;
    list = mr__alloc_array((size_t)r->n_in, sizeof(mr_array *));
    if (list == NULL)
        return NULL;
    for (int k = 0; k < r->n_in; k++) {
        list[k] = r->tangent[k] != NULL ? r->tangent[k]
                                        : mr__zeros_like(r->primal[k]);
        if (list[k] == NULL)
            goto out;
    }
    y = mr__node_new(r->node->op, mr__params(r->node), r->n_in, list);
out:
    mr__dealloc(list);
    return y;
}

static mr_array *
concatenate_vmap(const mr_batch *b)
{
    mr_axis_params p = {((const mr_axis_params *)mr__params(b->node))->axis +
                        1};
    mr_array **list = mr__alloc_array((size_t)b->n_in, sizeof(mr_array *));
    mr_array *y = NULL;

    if (list == NULL)
        return NULL;
    for (int k = 0; k < b->n_in; k++) {
        list[k] = mr__batch_in(b, k);
        if (list[k] == NULL)
            goto out;
    }
    y = mr__node_new(b->node->op, &p, b->n_in, list);
out:
    mr__dealloc(list);
    return y;
}

const mr_op mr__op_concatenate = {
    .id = MR_OP_CONCATENATE,
    .version = 1,
    .n_in = -1,
    .name = "concatenate",
    .flags = MR_FLAG_LINEAR,
    MR__PARAMS(mr_axis_params, axis_fields),
    .infer = concatenate_infer,
    .vjp = concatenate_vjp,
    .jvp = concatenate_jvp,
    .vmap = concatenate_vmap,
};

/* -- stack ----------------------------------------------------------------- */

static mr_array *
flat_row(mr_array *x, mr_dtype t, int32_t axis)
{
    (void)axis;
    return mr_expand_dims(mr_flatten(mr__cast(x, t), 0, -1), MR_AXES(0));
}

static mr_array *
with_axis(mr_array *x, mr_dtype t, int32_t axis)
{
    return mr_expand_dims(mr__cast(x, t), MR_AXES(axis));
}

mr_array *
mr__build_stack(mr_array *const *arrays, int n_arrays, int32_t axis)
{
    bool flat = axis == MR_AXIS_NONE;
    mr_array **list, *y;
    mr_dtype t;
    int32_t k = 0;
    mr_text a, b;

    if (check_list(arrays, n_arrays, &t) != MR_OK ||
        (!flat && !mr__axis(axis, arrays[0]->ndim + 1, &k)))
        return NULL;
    for (int i = 1; i < n_arrays; i++)
        if (arrays[i]->ndim != arrays[0]->ndim ||
            memcmp(arrays[i]->dim, arrays[0]->dim,
                   (size_t)arrays[0]->ndim * sizeof(int64_t)) != 0)
            return mr__fail_null(
                MR_E_SHAPE, "shapes %s and %s differ: all must be the same",
                mr__shape_of(arrays[0], &a), mr__shape_of(arrays[i], &b));
    list = map_arrays(arrays, n_arrays, flat ? flat_row : with_axis, t, k);
    y = list == NULL ? NULL : join(list, n_arrays, k);
    mr__dealloc(list);
    return y;
}

/* -- pad_constant (pad) ---------------------------------------------------- */

static mr_code
pad_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_pad_params *p = c->params;

    mr__aval_like(out, c->in[0]);
    for (int32_t i = 0; i < out->ndim; i++)
        if (__builtin_add_overflow(out->dim[i], p->low.v[i], &out->dim[i]) ||
            __builtin_add_overflow(out->dim[i], p->high.v[i], &out->dim[i]))
            return mr__fail(MR_E_OVERFLOW,
                            "axis %d and its padding of %lld and %lld exceed "
                            "2^63",
                            (int)i, (long long)p->low.v[i],
                            (long long)p->high.v[i]);
    return MR_OK;
}

static mr_array *
pad_with(const mr_pad_params *p, mr_array *x, mr_array *value)
{
    if (x == NULL || value == NULL)
        return NULL;
    return mr__node_new(&mr__op_pad_constant, p, 2, (mr_array *[]){x, value});
}

/* True where x was, false where the value is. */
static mr_array *
pad_inside(const mr_pad_params *p, const mr_array *x)
{
    return pad_with(p, mr__filled(MR_BOOL, x->ndim, x->dim, 1.0),
                    mr__number(MR_BOOL, 0.0));
}

static mr_array *
pad_vjp(const mr_rule *r, int i)
{
    const mr_pad_params *p = mr__params(r->node);
    const mr_array *x = r->primal[0];
    mr_list stop = {.n = x->ndim}, one = {.n = x->ndim};

    if (i == 1)
        return mr_sum(mr__masked_not(pad_inside(p, x), r->cotangent[0]),
                      MR_AXES_ALL, false);
    for (int32_t k = 0; k < x->ndim; k++) {
        stop.v[k] = p->low.v[k] + x->dim[k];
        one.v[k] = 1;
    }
    return mr_index_slice(r->cotangent[0], p->low, mr__ints(&stop),
                          mr__ints(&one));
}

static mr_array *
pad_jvp(const mr_rule *r, int i)
{
    const mr_pad_params *p = mr__params(r->node);
    mr_array *x = r->primal[0];

    if (i == 0)
        return pad_with(p, r->tangent[0], mr__number((mr_dtype)x->dtype, 0.0));
    return pad_with(p, mr__zeros_like(x), r->tangent[1]);
}

static mr_array *
pad_vmap(const mr_batch *b)
{
    const mr_pad_params *p = mr__params(b->node);
    mr_list low = mr__prepend(p->low, 0), high = mr__prepend(p->high, 0);
    mr_pad_params q = {mr__ints(&low), mr__ints(&high)};
    mr_array *x = mr__batch_in(b, 0), *value = b->in[1];
    mr_list shape = {.n = b->node->ndim + 1};

    if (x == NULL || !b->batched[1])
        return pad_with(&q, x, value);
    /* a value for each: put in afterwards */
    for (int64_t i = 0; i < shape.n; i++)
        shape.v[i] = i == 0 ? b->size : 1;
    value = mr_reshape(value, mr__shape(&shape));
    return mr_where(pad_inside(&q, x),
                    pad_with(&q, x, mr__number((mr_dtype)x->dtype, 0.0)),
                    value);
}

static const mr_field pad_fields[] = {
    MR_FIELD(1, INTS, mr_pad_params, low),
    MR_FIELD(2, INTS, mr_pad_params, high),
};

const mr_op mr__op_pad_constant = {
    .id = MR_OP_PAD_CONSTANT,
    .version = 1,
    .n_in = 2,
    .name = "pad",
    .flags = MR_FLAG_LINEAR,
    MR__PARAMS(mr_pad_params, pad_fields),
    .infer = pad_infer,
    .vjp = pad_vjp,
    .jvp = pad_jvp,
    .vmap = pad_vmap,
};

/* Where entry i of the padded axis comes from; i < 0 and i >= n are outside. */
static int64_t
mirrored(int64_t i, int64_t n, bool repeat_edge)
{
    int64_t period = repeat_edge ? 2 * n : 2 * (n - 1);

    if (period == 0)
        return 0;
    i = ((i % period) + period) % period;
    if (i < n)
        return i;
    return repeat_edge ? period - 1 - i : period - i;
}

/* One axis by an index array: repeats of what is there. */
static mr_array *
pad_axis(mr_array *x, int32_t axis, int64_t low, int64_t high, char mode)
{
    int64_t n = x->dim[axis], total = low + n + high;
    int64_t *index;
    mr_array *y;

    if (low == 0 && high == 0)
        return x;
    if (n == 0)
        return mr__fail_null(MR_E_VALUE,
                             "axis %d is empty: nothing to repeat beside it",
                             (int)axis);
    index = mr__alloc_array((size_t)total, sizeof *index);
    if (index == NULL)
        return NULL;
    for (int64_t k = 0; k < total; k++) {
        int64_t i = k - low;

        if (mode == 'e')
            index[k] = i < 0 ? 0 : i >= n ? n - 1 : i;
        else
            index[k] = mirrored(i, n, mode == 's');
    }
    y = mr_take(x, mr_array_from(index, MR_SHAPE(total), MR_INT64), axis);
    mr__dealloc(index);
    return y;
}

/* pad_width as one number, (before, after) for all, or pairs for each axis. */
static mr_code
pad_widths(const mr_array *a, mr_ints w, mr_list *low, mr_list *high)
{
    bool pairs = w.n == 2 * (int64_t)a->ndim;

    if (!pairs && w.n != 1 && w.n != 2)
        return mr__fail(MR_E_VALUE,
                        "%lld widths for %d axes: give 1, 2, or 2 for each "
                        "axis",
                        (long long)w.n, (int)a->ndim);
    low->n = high->n = a->ndim;
    for (int32_t i = 0; i < a->ndim; i++) {
        low->v[i] = pairs ? w.v[2 * i] : w.v[0];
        high->v[i] = pairs ? w.v[2 * i + 1] : w.v[w.n - 1];
        if (low->v[i] < 0 || high->v[i] < 0)
            return mr__fail(
                MR_E_VALUE, "a negative width for axis %d: got %lld and %lld",
                (int)i, (long long)low->v[i], (long long)high->v[i]);
    }
    return MR_OK;
}

char
mr__pad_mode(const char *mode)
{
    static const char *const modes[] = {"constant", "edge", "reflect",
                                        "symmetric"};

    for (int m = 0; mode == NULL || m < 4; m++)
        if (mode == NULL || strcmp(mode, modes[m]) == 0)
            return modes[m][0];
    mr__fail(MR_E_VALUE,
             "mode '%s' is not constant, edge, reflect or symmetric", mode);
    return '\0';
}

mr_array *
mr__build_pad(mr_array *a, mr_ints pad_width, const char *mode,
              mr_array *constant_values)
{
    char m = mr__pad_mode(mode);
    mr_dtype t = (mr_dtype)a->dtype;
    mr_list low, high;
    mr_text text;

    if (m == '\0' || pad_widths(a, pad_width, &low, &high) != MR_OK)
        return NULL;
    if (m == 'c') {
        mr_pad_params p = {mr__ints(&low), mr__ints(&high)};
        mr_array *value = mr__given(constant_values)
                              ? mr__cast(constant_values, t)
                              : mr__number(t, 0.0);

        if (value != NULL && value->size != 1)
            return mr__fail_null(MR_E_VALUE,
                                 "constant_values must be one number, got "
                                 "shape %s",
                                 mr__shape_of(value, &text));
        if (value != NULL && value->ndim > 0)
            value = mr_reshape(value, MR_SCALAR_SHAPE);
        return pad_with(&p, a, value);
    }
    for (int32_t i = 0; a != NULL && i < low.n; i++)
        a = pad_axis(a, i, low.v[i], high.v[i], m);
    return a;
}

/* -- split_piece (split) --------------------------------------------------- */

static mr_code
split_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_split_params *p = c->params;

    mr__aval_like(out, c->in[0]);
    if (out->dim[p->axis] % p->sections != 0)
        return mr__fail(
            MR_E_VALUE, "%lld sections do not divide axis %d of size %lld",
            (long long)p->sections, (int)p->axis, (long long)out->dim[p->axis]);
    out->dim[p->axis] /= p->sections;
    return MR_OK;
}

static mr_array *
split_vjp(const mr_rule *r, int i)
{
    const mr_split_params *p = mr__params(r->node);
    const mr_array *x = r->primal[i];
    int64_t n = r->output[0]->dim[p->axis];
    mr_list low = {.n = x->ndim}, high = {.n = x->ndim};
    mr_pad_params pad = {mr__ints(&low), mr__ints(&high)};

    for (int32_t k = 0; k < x->ndim; k++)
        low.v[k] = high.v[k] = 0;
    low.v[p->axis] = p->index * n;
    high.v[p->axis] = (p->sections - 1 - p->index) * n;
    return pad_with(&pad, r->cotangent[0], mr__number((mr_dtype)x->dtype, 0.0));
}

static mr_array *
split_jvp(const mr_rule *r, int i)
{
    return mr__again(r, r->tangent[i]);
}

static mr_array *
split_vmap(const mr_batch *b)
{
    mr_split_params p = *(const mr_split_params *)mr__params(b->node);

    p.axis++;
    return mr__node_new(b->node->op, &p, 1, b->in);
}

static bool
split_view(const mr_node *n, const mr_layout *in, mr_layout *out)
{
    const mr_split_params *p = mr__params(n);

    *out = *in;
    out->dim[p->axis] = in->dim[p->axis] / p->sections;
    out->offset += p->index * out->dim[p->axis] * in->stride[p->axis];
    return true;
}

static const mr_field split_fields[] = {
    MR_FIELD(1, AXIS, mr_split_params, axis),
    MR_FIELD(2, INT, mr_split_params, index),
    MR_FIELD(3, INT, mr_split_params, sections),
};

const mr_op mr__op_split_piece = {
    .id = MR_OP_SPLIT_PIECE,
    .version = 1,
    .n_in = 1,
    .name = "split",
    .flags = MR_FLAG_LINEAR,
    MR__PARAMS(mr_split_params, split_fields),
    .infer = split_infer,
    .vjp = split_vjp,
    .jvp = split_jvp,
    .vmap = split_vmap,
    .fuse = {MR_FUSE_VIEW, 0},
    .view = split_view,
};

/* A tuple of n arrays that part(ctx, k) makes. */
static mr_tree *
tuple_of(int64_t n, mr_array *(*part)(const void *ctx, int64_t k),
         const void *ctx)
{
    mr_array **list;
    mr_tree *t = NULL;

    if (n > INT32_MAX)
        return mr__fail_null(
            MR_E_VALUE, "too many pieces, %lld: at most 2^31 - 1 are possible",
            (long long)n);
    list = mr__alloc_array((size_t)n, sizeof(mr_array *));
    if (list == NULL)
        return NULL;
    for (int64_t k = 0; k < n; k++) {
        list[k] = part(ctx, k);
        if (list[k] == NULL)
            goto out;
    }
    t = mr_tree_arrays((int)n, list);
out:
    mr__dealloc(list);
    return t;
}

typedef struct cut {
    mr_array *x;
    int32_t axis;
    int64_t sections;
    mr_ints at;
} cut;

static mr_array *
cut_equal(const void *ctx, int64_t k)
{
    const cut *c = ctx;
    mr_split_params p = {c->axis, k, c->sections};
    mr_array *x = c->x;

    return mr__node_new(&mr__op_split_piece, &p, 1, &x);
}

static mr_array *
cut_between(const void *ctx, int64_t k)
{
    const cut *c = ctx;

    return mr__slice_one(c->x, c->axis, k == 0 ? MR_INT_NONE : c->at.v[k - 1],
                         k == c->at.n ? MR_INT_NONE : c->at.v[k], 1);
}

static mr_array *
cut_entry(const void *ctx, int64_t k)
{
    const cut *c = ctx;

    return mr_squeeze(mr__slice_one(c->x, c->axis, k, k + 1, 1),
                      MR_AXES(c->axis));
}

mr_tree *
mr__build_split(mr_array *a, int64_t sections, int64_t axis)
{
    cut c = {.x = a, .sections = sections};

    if (!mr__axis(axis, a->ndim, &c.axis))
        return NULL;
    if (sections < 1)
        return mr__fail_null(MR_E_VALUE, "%lld sections, needs 1 or more",
                             (long long)sections);
    return tuple_of(sections, cut_equal, &c);
}

mr_tree *
mr__build_split_indices(mr_array *a, mr_ints indices, int64_t axis)
{
    cut c = {.x = a, .at = indices};

    if (!mr__axis(axis, a->ndim, &c.axis))
        return NULL;
    return tuple_of(indices.n + 1, cut_between, &c);
}

mr_tree *
mr__build_unstack(mr_array *x, int64_t axis)
{
    cut c = {.x = x};

    if (!mr__axis(axis, x->ndim, &c.axis))
        return NULL;
    return tuple_of(x->dim[c.axis], cut_entry, &c);
}
