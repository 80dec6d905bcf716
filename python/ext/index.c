/* SPDX-License-Identifier: Apache-2.0
 *
 * index.c -- x[i], x[i] = v and x.at[i]: indices as operators.
 *
 * Reading cuts (one slice), gathers (take, or one gather for several index
 * arrays), then drops and adds axes.  Writing goes the same way backwards: the
 * value gets the shape of what is selected, is brought into the layout of a
 * scatter or of the slice, and is written into what the slice leaves of the
 * array, which is then put back.
 */
#include "index.h"

#include <string.h>

#include "marram/marram.h"

/* ---- reading ------------------------------------------------------------ */

/* Several index arrays: their common axes go where the first one stood, or in
 * front when something stands between them. */
static bool
gather_several(const index_plan *p, const char *site, mr_array **x)
{
    mr_array *index[MR_MAX_NDIM];
    int64_t axes[MR_MAX_NDIM], sizes[MR_MAX_NDIM], order[2 * MR_MAX_NDIM];
    int32_t drop[MR_MAX_NDIM];
    int n = index_arrays(p, index, axes), rank = index_rank(p);
    int before = 0, k = 0;
    bool taken[MR_MAX_NDIM] = {false};

    memcpy(sizes, p->dim, sizeof sizes);
    for (int i = 0; i < n; i++) {
        taken[axes[i]] = true;
        sizes[axes[i]] = 1;
        drop[i] = rank + (int32_t)axes[i];
    }
    if (!index_step(x,
                    mr_index_gather_at(site, *x, index, n, (mr_ints){axes, n},
                                       (mr_ints){sizes, p->ndim})) ||
        !index_step(x, mr_squeeze_at(site, *x, (mr_axes){drop, n})))
        return false;
    for (int a = 0; a < axes[0] && !p->apart; a++)
        before += !taken[a];
    if (before == 0)
        return true;
    for (int i = 0; i < before; i++)
        order[k++] = rank + i;
    for (int i = 0; i < rank; i++)
        order[k++] = i;
    while (k < rank + p->ndim - n) {
        order[k] = k;
        k++;
    }
    return index_step(x, mr_transpose_at(site, *x, (mr_ints){order, k}));
}

static mr_array *
read_plan(index_plan *p, const char *site, mr_array *source)
{
    mr_array *x = index_cut(p, site, source), *index[MR_MAX_NDIM];
    int64_t array_axes[MR_MAX_NDIM];
    int32_t axes[INDEX_MAX];
    int n;

    if (!x)
        return NULL;
    if (p->n_arrays == 1) {
        index_arrays(p, index, array_axes);
        if (!index_step(&x,
                        mr_take_at(site, x, index[0], (int32_t)array_axes[0])))
            return NULL;
    } else if (p->n_arrays > 1 && (!index_settle(p, site, source) ||
                                   !gather_several(p, site, &x))) {
        return NULL;
    }
    n = index_int_axes(p, axes);
    if (n > 0 && !index_step(&x, mr_squeeze_at(site, x, (mr_axes){axes, n})))
        return NULL;
    n = index_new_axes(p, axes);
    if (n > 0)
        index_step(&x, mr_expand_dims_at(site, x, (mr_axes){axes, n}));
    return x;
}

/* x[False]: no entry of a new axis. */
static mr_array *
read_nothing(const char *site, mr_array *x)
{
    static const int32_t zero[] = {0};
    int64_t none = 0, step = 1;
    mr_array *y = mr_expand_dims_at(site, x, (mr_axes){zero, 1});

    if (y)
        index_step(&y,
                   mr_index_slice_at(site, y, (mr_ints){&none, 1},
                                     (mr_ints){&none, 1}, (mr_ints){&step, 1}));
    return y;
}

PyObject *
ext_subscript(PyObject *self, PyObject *key)
{
    const char *site = ext_site();
    mr_array *x = mr_retain(ext_x(self)), *mask = NULL, *y = NULL;
    index_plan p;

    switch (index_parse(&p, x, key, &mask)) {
    case INDEX_PLAN:
        y = read_plan(&p, site, x);
        index_free(&p);
        break;
    case INDEX_MASK:
        y = mr_index_compress_at(site, x, mask);
        mr_release(mask);
        break;
    case INDEX_NOTHING:
        y = read_nothing(site, x);
        break;
    case INDEX_ERROR:
        break;
    }
    mr_release(x);
    return ext_wrap(y);
}

/* ---- the value that is written ------------------------------------------ */

/* Of x's dtype: ints are checked, all else is cast. */
static mr_array *
value_of(const char *site, PyObject *value, mr_dtype t)
{
    mr_scalar s;
    mr_array *x;
    int r;

    if (!ext_is_array(value)) {
        r = ext_scalar(value, &s);
        if (r != 0)
            return r > 0 ? ext_scalar_array(site, &s, t) : NULL;
        if (value == Py_None) {
            PyErr_SetString(
                PyExc_TypeError,
                "None cannot be written: needs a number or an array");
            return NULL;
        }
    }
    x = ext_operand(site, value, t);
    if (!x) {
        if (!PyErr_Occurred() && mr_error_last().code == MR_OK)
            ext_wrong_type(value, "only numbers and arrays can be written");
        return NULL;
    }
    if (mr_array_dtype(x) != t)
        index_step(&x, mr_astype_at(site, x, t));
    return x;
}

/* Without leading axes of size 1 beyond a rank. */
static bool
strip(const char *site, mr_array **v, int rank)
{
    int32_t axes[MR_MAX_NDIM];
    int n = 0;
    mr_shape s;

    if (mr_array_ndim(*v) <= rank)
        return true;
    s = mr_array_shape(*v);
    while (s.n - n > rank && s.dim[n] == 1) {
        axes[n] = n;
        n++;
    }
    return n == 0 || index_step(v, mr_squeeze_at(site, *v, (mr_axes){axes, n}));
}

/* The common shape of the index arrays. */
static bool
index_shape(const index_plan *p, int64_t *dim, int rank)
{
    for (int k = 0; k < rank; k++)
        dim[k] = 1;
    for (int i = 0; i < p->n; i++) {
        mr_shape s;
        if (p->item[i].kind != INDEX_ARRAY)
            continue;
        s = mr_array_shape(p->item[i].x);
        for (int k = 0; k < s.n; k++) {
            int64_t *d = &dim[rank - s.n + k];
            if (*d != s.dim[k] && *d != 1 && s.dim[k] != 1) {
                PyErr_Format(PyExc_ValueError,
                             "index arrays do not broadcast: sizes %lld and "
                             "%lld",
                             (long long)*d, (long long)s.dim[k]);
                return false;
            }
            *d = *d == 1 ? s.dim[k] : *d;
        }
    }
    return true;
}

/* The shape of what is selected; -1 with an exception. */
static int
selected_shape(const index_plan *p, int64_t *dim)
{
    int n = 0, first = p->apart ? -1 : index_first_array(p);
    int rank = index_rank(p);

    if (p->apart) {
        if (!index_shape(p, dim, rank))
            return -1;
        n = rank;
    }
    for (int i = 0; i < p->n; i++) {
        const index_item *it = &p->item[i];
        if (n + rank + 1 > 2 * MR_MAX_NDIM)
            return -1;
        if (it->kind == INDEX_NEW)
            dim[n++] = 1;
        else if (it->kind == INDEX_SLICE)
            dim[n++] = p->dim[it->axis];
        else if (i == first) {
            if (!index_shape(p, dim + n, rank))
                return -1;
            n += rank;
        }
    }
    return n;
}

/* v with the shape of what is selected, less its new axes. */
static bool
fit_value(const index_plan *p, const char *site, mr_array **v)
{
    int64_t dim[2 * MR_MAX_NDIM + 2];
    int32_t axes[INDEX_MAX];
    int n = selected_shape(p, dim), n_new;

    if (n < 0)
        return false;
    if (!strip(site, v, n) ||
        !index_step(v, mr_broadcast_to_at(site, *v, (mr_shape){dim, n})))
        return false;
    n_new = index_new_axes(p, axes);
    return n_new == 0 ||
           index_step(v, mr_squeeze_at(site, *v, (mr_axes){axes, n_new}));
}

/* ---- writing ------------------------------------------------------------ */

static mr_array *
combine(const char *site, const char *mode, mr_array *a, mr_array *b)
{
    switch (mode[0] == 'm' ? mode[1] : mode[0]) {
    case 's':
        return strcmp(mode, "set") == 0 ? mr_retain(b)
                                        : mr_subtract_at(site, a, b);
    case 'u':
        return mr_multiply_at(site, a, b);
    case 'd':
        return mr_divide_at(site, a, b);
    case 'a':
        return strcmp(mode, "add") == 0 ? mr_add_at(site, a, b)
                                        : mr_maximum_at(site, a, b);
    default:
        return mr_minimum_at(site, a, b);
    }
}

static mr_array *
put_back(const index_plan *p, const char *site, mr_array *x, mr_array *part)
{
    return mr_index_slice_update_at(site, x, part, (mr_ints){p->start, p->ndim},
                                    (mr_ints){p->stop, p->ndim},
                                    (mr_ints){p->step, p->ndim});
}

/* No index arrays: v (taken) goes into the slice. */
static mr_array *
write_slice(const index_plan *p, const char *site, mr_array *x, mr_array *v,
            const char *mode)
{
    mr_array *part, *y = NULL;
    int32_t axes[INDEX_MAX];
    int n;

    if (mr_array_ndim(v) > 0) {
        if (!fit_value(p, site, &v)) {
            mr_release(v);
            return NULL;
        }
        n = index_int_axes(p, axes);
        if (n > 0 &&
            !index_step(&v, mr_expand_dims_at(site, v, (mr_axes){axes, n})))
            return NULL;
    }
    if (strcmp(mode, "set") != 0) {
        part = index_cut(p, site, x);
        if (part)
            index_step(&v, combine(site, mode, part, v));
        mr_release(part);
        if (part && v && mr_array_dtype(v) != mr_array_dtype(x))
            index_step(&v, mr_astype_at(site, v, mr_array_dtype(x)));
        if (!part || !v) {
            mr_release(v);
            return NULL;
        }
    }
    y = put_back(p, site, x, v);
    mr_release(v);
    return y;
}

/* From the layout of what is selected to that of a scatter: index axes first,
 * then all axes, those that are indexed with size 1. */
static bool
scatter_layout(const index_plan *p, const char *site, mr_array **v,
               const int64_t *axes, int n)
{
    int64_t order[2 * MR_MAX_NDIM];
    int32_t single[MR_MAX_NDIM];
    bool taken[MR_MAX_NDIM] = {false};
    int rank = index_rank(p), before = 0, k = 0, m = 0;

    for (int i = 0; i < n; i++)
        taken[axes[i]] = true;
    for (int a = 0; a < p->ndim; a++) {
        before += a < axes[0] && !taken[a] && !p->apart;
        if (taken[a])
            single[m++] = rank + a;
    }
    for (int i = 0; i < rank; i++)
        order[k++] = before + i;
    for (int i = 0; i < before; i++)
        order[k++] = i;
    while (k < rank + p->ndim - n) {
        order[k] = k;
        k++;
    }
    return (before == 0 || rank == 0 ||
            index_step(v, mr_transpose_at(site, *v, (mr_ints){order, k}))) &&
           index_step(v, mr_expand_dims_at(site, *v, (mr_axes){single, m}));
}

static mr_array *
scatter(const char *site, mr_array *x, mr_array *const *index, int n,
        mr_array *v, const int64_t *axes, const char *mode)
{
    mr_array *w = NULL, *y;
    const char *m = mode;

    if (strcmp(mode, "subtract") == 0) {
        m = "add";
        w = mr_negative_at(site, v);
    } else if (strcmp(mode, "divide") == 0) {
        m = "multiply";
        w = mr_reciprocal_at(site, v);
    } else {
        w = mr_retain(v);
    }
    if (!w)
        return NULL;
    y = mr_index_scatter_at(site, x, index, n, w, (mr_ints){axes, n}, m);
    mr_release(w);
    return y;
}

static mr_array *
write_arrays(const index_plan *p, const char *site, mr_array *x, mr_array *v,
             const char *mode)
{
    mr_array *index[MR_MAX_NDIM], *part, *y = NULL;
    int64_t axes[MR_MAX_NDIM];
    int n = index_arrays(p, index, axes);

    if (!fit_value(p, site, &v) || !scatter_layout(p, site, &v, axes, n)) {
        mr_release(v);
        return NULL;
    }
    part = index_cut(p, site, x);
    if (part)
        index_step(&part, scatter(site, part, index, n, v, axes, mode));
    if (part)
        y = p->sliced ? put_back(p, site, x, part) : mr_retain(part);
    mr_release(part);
    mr_release(v);
    return y;
}

static mr_array *
write_mask(const char *site, mr_array *x, mr_array *mask, PyObject *value,
           const char *mode)
{
    mr_array *v = value_of(site, value, mr_array_dtype(x)), *y = NULL;

    if (v)
        y = mr_index_mask_update_at(site, x, mask, v, mode);
    mr_release(v);
    return y;
}

/* Quotients of integers are taken in float32, and cast back. */
static mr_array *
divide_integers(mr_array *x, PyObject *key, PyObject *value)
{
    const char *site = ext_site();
    mr_array *f = mr_astype_at(site, x, MR_FLOAT32);

    if (f)
        index_step(&f, ext_update(f, key, value, "divide"));
    if (f)
        index_step(&f, mr_astype_at(site, f, mr_array_dtype(x)));
    return f;
}

mr_array *
ext_update(mr_array *x, PyObject *key, PyObject *value, const char *mode)
{
    const char *site = ext_site();
    mr_array *mask = NULL, *v, *y = NULL;
    index_plan p;

    if (strcmp(mode, "divide") == 0 && !mr_dtype_is_inexact(mr_array_dtype(x)))
        return divide_integers(x, key, value);
    switch (index_parse(&p, x, key, &mask)) {
    case INDEX_PLAN:
        v = index_settle(&p, site, x) ? value_of(site, value, mr_array_dtype(x))
                                      : NULL;
        if (v)
            y = p.n_arrays ? write_arrays(&p, site, x, v, mode)
                           : write_slice(&p, site, x, v, mode);
        index_free(&p);
        break;
    case INDEX_MASK:
        y = write_mask(site, x, mask, value, mode);
        mr_release(mask);
        break;
    case INDEX_NOTHING:
        y = mr_retain(x);
        break;
    case INDEX_ERROR:
        break;
    }
    return y;
}

int
ext_ass_subscript(PyObject *self, PyObject *key, PyObject *value)
{
    mr_array *x, *y;

    if (!value) {
        PyErr_SetString(
            PyExc_TypeError,
            "entries of an array cannot be deleted: take the others");
        return -1;
    }
    x = mr_retain(ext_x(self));
    y = ext_update(x, key, value, "set");
    mr_release(x);
    if (y && ext_eager_depth > 0 && !ext_settle(y)) {
        mr_release(y);
        y = NULL;
    }
    if (!y) {
        ext_raise();
        return -1;
    }
    ext_rebind(self, y);
    return 0;
}

/* ---- x.at[i] ------------------------------------------------------------ */

typedef struct at_object {
    PyObject_HEAD PyObject *array, *key;
} at_object;

static PyObject *
at_new(PyTypeObject *type, PyObject *args, PyObject *kw)
{
    PyObject *array;
    at_object *at;

    (void)kw;
    if (!PyArg_ParseTuple(args, "O!:ArrayAt", ext.array, &array))
        return NULL;
    at = (at_object *)PyType_GenericAlloc(type, 0);
    if (at)
        at->array = Py_NewRef(array);
    return (PyObject *)at;
}

static int
at_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((at_object *)self)->array);
    Py_VISIT(((at_object *)self)->key);
    return 0;
}

static int
at_clear(PyObject *self)
{
    Py_CLEAR(((at_object *)self)->array);
    Py_CLEAR(((at_object *)self)->key);
    return 0;
}

static void
at_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    at_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *
at_subscript(PyObject *self, PyObject *key)
{
    at_object *at = (at_object *)PyType_GenericAlloc(Py_TYPE(self), 0);

    if (at) {
        at->array = Py_NewRef(((at_object *)self)->array);
        at->key = Py_NewRef(key);
    }
    return (PyObject *)at;
}

static PyObject *
at_update(PyObject *self, PyObject *value, const char *mode)
{
    at_object *at = (at_object *)self;
    mr_array *x, *y;

    if (!at->key) {
        PyErr_SetString(PyExc_ValueError, "x.at needs an index: x.at[i]");
        return NULL;
    }
    x = mr_retain(ext_x(at->array));
    y = ext_update(x, at->key, value, mode);
    mr_release(x);
    return ext_wrap(y);
}

static PyObject *
at_add(PyObject *self, PyObject *value)
{
    return at_update(self, value, "add");
}

static PyObject *
at_subtract(PyObject *self, PyObject *value)
{
    return at_update(self, value, "subtract");
}

static PyObject *
at_multiply(PyObject *self, PyObject *value)
{
    return at_update(self, value, "multiply");
}

static PyObject *
at_divide(PyObject *self, PyObject *value)
{
    return at_update(self, value, "divide");
}

static PyObject *
at_maximum(PyObject *self, PyObject *value)
{
    return at_update(self, value, "maximum");
}

static PyObject *
at_minimum(PyObject *self, PyObject *value)
{
    return at_update(self, value, "minimum");
}

static PyMethodDef at_methods[] = {
    {"add", at_add, METH_O, "add($self, value, /)\n--\n\nAdds."},
    {"subtract", at_subtract, METH_O,
     "subtract($self, value, /)\n--\n\nSubtracts."},
    {"multiply", at_multiply, METH_O,
     "multiply($self, value, /)\n--\n\nMultiplies."},
    {"divide", at_divide, METH_O, "divide($self, value, /)\n--\n\nDivides."},
    {"maximum", at_maximum, METH_O,
     "maximum($self, value, /)\n--\n\nTakes the larger."},
    {"minimum", at_minimum, METH_O,
     "minimum($self, value, /)\n--\n\nTakes the smaller."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot at_slots[] = {
    {Py_tp_doc, EXT_DOC("What x.at[i] gives: updates that make a new array.")},
    {Py_tp_new, at_new},
    {Py_tp_dealloc, at_dealloc},
    {Py_tp_traverse, at_traverse},
    {Py_tp_clear, at_clear},
    {Py_mp_subscript, at_subscript},
    {Py_tp_methods, at_methods},
    {0, NULL},
};

int
ext_init_at(PyObject *module)
{
    PyType_Spec spec = {"marram.core.ArrayAt", sizeof(at_object), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, at_slots};

    ext.array_at = (PyTypeObject *)PyType_FromSpec(&spec);
    return ext.array_at ? PyModule_AddType(module, ext.array_at) : -1;
}
