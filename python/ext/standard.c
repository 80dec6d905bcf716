/* SPDX-License-Identifier: Apache-2.0
 *
 * standard.c -- keywords that the Python array API standard has beside those
 * of api/: other names of parameters, and arguments that change what goes into
 * a function or comes out of it; tuples whose fields have names.
 *
 * They are looked for only after a keyword fits no parameter, so calls without
 * them pay nothing.
 * Called by: args.c.
 */
#include "ext.h"

#include <string.h>

#include "marram/marram.h"

bool
ext_standard_alias(const char *parameter, PyObject *keyword)
{
    static const char *const pairs[][2] = {
        {"ddof", "correction"},
        {"vals", "fill_value"},
        {"a_min", "min"},
        {"a_max", "max"},
    };

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (strcmp(parameter, pairs[i][0]) == 0 &&
            PyUnicode_CompareWithASCIIString(keyword, pairs[i][1]) == 0)
            return true;
    return false;
}

/* ---- named results ------------------------------------------------------ */

PyObject *
ext_standard_named(const char *function, PyObject *tuple)
{
    static const char *const pairs[][2] = {
        {"eig", "EigResult"}, {"eigh", "EighResult"},       {"qr", "QRResult"},
        {"svd", "SVDResult"}, {"slogdet", "SlogdetResult"},
    };
    PyObject *types, *class, *r;
    size_t i = 0, n = sizeof pairs / sizeof pairs[0];

    while (i < n && strcmp(function, pairs[i][0]) != 0)
        i++;
    if (!tuple || i == n)
        return tuple;
    types = PyImport_ImportModule("marram.core._types");
    class = types ? PyObject_GetAttrString(types, pairs[i][1]) : NULL;
    r = class ? PyObject_CallObject(class, tuple) : NULL;
    Py_XDECREF(class);
    Py_XDECREF(types);
    Py_DECREF(tuple);
    return r;
}

/* ---- which there are ---------------------------------------------------- */

typedef struct known {
    const char *function, *keyword;
    ext_extra_kind kind;
} known;

static const known extras[] = {
    {"sum", "dtype", EXT_EXTRA_DTYPE},
    {"prod", "dtype", EXT_EXTRA_DTYPE},
    {"sort", "descending", EXT_EXTRA_DESCENDING},
    {"argsort", "descending", EXT_EXTRA_DESCENDING},
    {"sort", "stable", EXT_EXTRA_IGNORED}, /* all sorts are */
    {"argsort", "stable", EXT_EXTRA_IGNORED},
    {"reshape", "copy", EXT_EXTRA_IGNORED}, /* arrays are values */
    {"astype", "copy", EXT_EXTRA_IGNORED},
    {"diff", "prepend", EXT_EXTRA_PREPEND},
    {"diff", "append", EXT_EXTRA_APPEND},
    {"cumsum", "include_initial", EXT_EXTRA_INITIAL},
    {"cumprod", "include_initial", EXT_EXTRA_INITIAL},
    {"searchsorted", "sorter", EXT_EXTRA_SORTER},
};

ext_extra_kind
ext_standard_extra(const ext_spec *s, PyObject *keyword)
{
    for (size_t i = 0; i < sizeof extras / sizeof extras[0]; i++)
        if (strcmp(s->name, extras[i].function) == 0 &&
            PyUnicode_CompareWithASCIIString(keyword, extras[i].keyword) == 0)
            return extras[i].kind;
    return EXT_EXTRA_NONE;
}

/* ---- values ------------------------------------------------------------- */

static bool
truth(const ext_spec *s, PyObject *o, const char *keyword, bool *out)
{
    if (!PyBool_Check(o))
        return ext_wrong_type(o, "%s(): argument '%s' must be bool", s->name,
                              keyword);
    *out = o == Py_True;
    return true;
}

static bool
array_value(const ext_spec *s, PyObject *o, const char *keyword, mr_array **out)
{
    if (!ext_is_array(o))
        return ext_wrong_type(o, "%s(): argument '%s' must be array", s->name,
                              keyword);
    *out = ext_x(o);
    return true;
}

/* Replaces array i of the call by y, which is taken. */
static bool
replace(ext_call *c, int i, mr_array *y)
{
    if (!y)
        return false;
    for (int k = 0; k < c->n_held; k++)
        if (c->held[k] == c->v[i].array) {
            mr_release(c->held[k]);
            c->held[k] = y;
            c->v[i].array = y;
            return true;
        }
    mr_release(y);
    return false;
}

/* ---- before the call ---------------------------------------------------- */

static bool
before_dtype(ext_call *c, PyObject *o)
{
    mr_dtype t;

    if (o == Py_None)
        return true;
    if (Py_TYPE(o) != ext.dtype || !ext_dtype_of(o, &t))
        return ext_wrong_type(o, "%s(): argument 'dtype' must be Dtype",
                              c->spec->name);
    return replace(c, 0, mr_astype_at(c->site, c->v[0].array, t));
}

/* The entries back to front: of equals the last comes first. */
static mr_array *
flipped(ext_call *c, mr_array *x, int32_t axis)
{
    return mr_flip_at(c->site, x, (mr_axes){&axis, 1});
}

static bool
before_descending(ext_call *c)
{
    if (c->v[1].axis == MR_AXIS_NONE) {
        if (!replace(c, 0, mr_flatten_at(c->site, c->v[0].array, 0, -1)))
            return false;
        c->v[1].axis = 0;
    }
    return replace(c, 0, flipped(c, c->v[0].array, c->v[1].axis));
}

static bool
before_join(ext_call *c, PyObject *o, bool front)
{
    mr_array *part = NULL, *both[2];
    int64_t axis = c->v[2].i;

    if (o == Py_None)
        return true;
    if (!array_value(c->spec, o, front ? "prepend" : "append", &part))
        return false;
    both[front ? 0 : 1] = part;
    both[front ? 1 : 0] = c->v[0].array;
    return replace(c, 0,
                   mr_concatenate_at(c->site, both, 2,
                                     axis > INT32_MAX    ? INT32_MAX
                                     : axis < -INT32_MAX ? -INT32_MAX
                                                         : (int32_t)axis));
}

static bool
before_sorter(ext_call *c, PyObject *o)
{
    mr_array *order = NULL;

    if (o == Py_None)
        return true;
    return array_value(c->spec, o, "sorter", &order) &&
           replace(c, 0, mr_take_at(c->site, c->v[0].array, order, 0));
}

bool
ext_standard_before(ext_call *c, const ext_extras *e)
{
    bool yes = false;

    for (int i = 0; i < e->n; i++) {
        PyObject *o = e->value[i];
        bool ok = true;
        switch (e->kind[i]) {
        case EXT_EXTRA_DTYPE:
            ok = before_dtype(c, o);
            break;
        case EXT_EXTRA_DESCENDING:
            ok = truth(c->spec, o, "descending", &yes) &&
                 (!yes || before_descending(c));
            break;
        case EXT_EXTRA_PREPEND:
            ok = before_join(c, o, true);
            break;
        case EXT_EXTRA_APPEND:
            ok = before_join(c, o, false);
            break;
        case EXT_EXTRA_SORTER:
            ok = before_sorter(c, o);
            break;
        case EXT_EXTRA_IGNORED:
            ok = o == Py_None || truth(c->spec, o, "stable or copy", &yes);
            break;
        case EXT_EXTRA_INITIAL:
        case EXT_EXTRA_NONE:
            break;
        }
        if (!ok)
            return false;
    }
    return true;
}

/* ---- after it: y is taken ----------------------------------------------- */

static mr_array *
step(mr_array *y, mr_array *next)
{
    mr_release(y);
    return next;
}

/* Places were counted from the end of the axis. */
static mr_array *
after_descending(const char *site, const ext_spec *s, mr_array *y, int32_t axis)
{
    mr_array *last;
    int32_t k = axis < 0 ? axis + mr_array_ndim(y) : axis;
    mr_scalar n = {MR_SCALAR_INT, {.i = mr_array_dim(y, k) - 1}};

    y = step(y, mr_flip_at(site, y, (mr_axes){&k, 1}));
    if (!y || strcmp(s->name, "sort") == 0 || n.as.i < 0)
        return y;
    last = mr_array_from_scalar_at(site, n, mr_array_dtype(y));
    y = step(y, last ? mr_subtract_at(site, last, y) : NULL);
    mr_release(last);
    return y;
}

/* The sum or product of nothing stands in front (reverse: behind). */
static mr_array *
after_initial(const char *site, const ext_spec *s, mr_array *y, int32_t axis,
              bool reverse)
{
    mr_shape shape = mr_array_shape(y);
    int64_t dim[MR_MAX_NDIM];
    int32_t k = axis == MR_AXIS_NONE ? 0
                : axis < 0           ? axis + mr_array_ndim(y)
                                     : axis;
    mr_array *both[2], *one;

    for (int i = 0; i < shape.n; i++)
        dim[i] = i == k ? 1 : shape.dim[i];
    one = (strcmp(s->name, "cumprod") == 0 ? mr_ones_at : mr_zeros_at)(
        site, (mr_shape){dim, shape.n}, mr_array_dtype(y));
    both[reverse ? 1 : 0] = one;
    both[reverse ? 0 : 1] = y;
    y = step(y, one ? mr_concatenate_at(site, both, 2, k) : NULL);
    mr_release(one);
    return y;
}

static mr_array *
after_dtype(const char *site, mr_array *y, PyObject *o)
{
    mr_dtype t;

    if (o == Py_None || !ext_dtype_of(o, &t) || mr_array_dtype(y) == t)
        return y;
    return step(y, mr_astype_at(site, y, t));
}

PyObject *
ext_standard_after(const ext_call *c, const ext_extras *e, PyObject *result)
{
    mr_array *y;
    bool yes;

    if (!result || !ext_is_array(result))
        return result;
    y = mr_retain(ext_x(result));
    for (int i = 0; y && i < e->n; i++) {
        yes = e->value[i] == Py_True;
        if (e->kind[i] == EXT_EXTRA_DTYPE)
            y = after_dtype(c->site, y, e->value[i]);
        else if (e->kind[i] == EXT_EXTRA_DESCENDING && yes)
            y = after_descending(c->site, c->spec, y, c->v[1].axis);
        else if (e->kind[i] == EXT_EXTRA_INITIAL && yes)
            y = after_initial(c->site, c->spec, y, c->v[1].axis, c->v[2].b);
    }
    Py_DECREF(result);
    return ext_wrap(y);
}
