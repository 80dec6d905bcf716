/* SPDX-License-Identifier: Apache-2.0
 *
 * index_parse.c -- takes an index apart into one item for each axis.
 */
#include "index.h"

#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

static bool
refuse(PyObject *o)
{
    PyObject *name = PyType_GetName(Py_TYPE(o));

    PyErr_Format(PyExc_ValueError,
                 "an array cannot be indexed with %U: needs ints, slices, "
                 "None, '...' or arrays of them or of bool",
                 name);
    Py_XDECREF(name);
    return false;
}

bool
index_step(mr_array **x, mr_array *y)
{
    mr_release(*x);
    *x = y;
    return y != NULL;
}

void
index_free(index_plan *p)
{
    for (int i = 0; i < p->n; i++)
        if (p->item[i].kind == INDEX_ARRAY)
            mr_release(p->item[i].x);
    p->n = 0;
}

static bool
is_int(PyObject *o)
{
    if (PyBool_Check(o) || ext_is_array(o))
        return false;
    return PyLong_Check(o) || ext_is_size(o) ||
           (PyIndex_Check(o) && ext_is_numpy_scalar(o));
}

/* A bool that is no array: Python's or NumPy's.  -1: it is none. */
static int
bool_value(PyObject *o)
{
    PyObject *name;
    int r = -1;

    if (PyBool_Check(o))
        return o == Py_True;
    if (!ext_is_numpy_scalar(o) || PyIndex_Check(o))
        return -1;
    name = PyType_GetName(Py_TYPE(o));
    if (name && (PyUnicode_CompareWithASCIIString(name, "bool") == 0 ||
                 PyUnicode_CompareWithASCIIString(name, "bool_") == 0))
        r = PyObject_IsTrue(o);
    Py_XDECREF(name);
    return r;
}

/* An index array, integer or bool; NULL with an exception. */
static mr_array *
array_of(PyObject *o)
{
    mr_array *x, *y;
    mr_dtype t;

    if (ext_is_array(o))
        x = mr_retain(ext_x(o));
    else if (PyList_Check(o) || ext_is_foreign_array(o))
        x = ext_from_object(o, MR_DTYPE_DEFAULT);
    else {
        refuse(o);
        return NULL;
    }
    if (!x) {
        ext_raise();
        return NULL;
    }
    t = mr_array_dtype(x);
    if (t == MR_BOOL || mr_dtype_is_integer(t))
        return x;
    if (PyList_Check(o) && mr_array_size(x) == 0) { /* [] is float32 */
        y = mr_astype_at(ext_site(), x, MR_INT32);
        mr_release(x);
        if (!y)
            ext_raise();
        return y;
    }
    PyErr_Format(PyExc_ValueError,
                 "an array cannot be indexed with one of %s: needs integers or "
                 "bool",
                 mr_dtype_name(t));
    mr_release(x);
    return NULL;
}

static index_item *
push(index_plan *p, index_kind kind, int axis)
{
    index_item *it;

    if (p->n == INDEX_MAX) {
        PyErr_Format(PyExc_ValueError,
                     "too many indices: at most %d are possible", INDEX_MAX);
        return NULL;
    }
    it = &p->item[p->n++];
    it->kind = kind;
    it->axis = axis;
    it->x = NULL;
    if (kind == INDEX_ARRAY)
        p->n_arrays++;
    return it;
}

static bool
push_array(index_plan *p, mr_array *x, int axis)
{
    index_item *it = push(p, INDEX_ARRAY, axis);

    if (!it)
        mr_release(x);
    else
        it->x = x;
    return it != NULL;
}

/* ---- in a shapeless trace: bounds are for the operator to settle ----------
 */

/* A bound of a slice, as a number or a size; None is none. */
static bool
bound(PyObject *slice, const char *name, int64_t *out)
{
    PyObject *o = PyObject_GetAttrString(slice, name);
    mr_scalar s;
    int r = o && o != Py_None ? ext_scalar(o, &s) : 0;
    bool ok = o != NULL && r >= 0;

    *out = MR_INT_NONE;
    if (r > 0 && s.kind == MR_SCALAR_INT) {
        *out = s.as.i;
    } else if (ok && o != Py_None) {
        PyErr_SetString(PyExc_TypeError, "slices are of ints");
        ok = false;
    }
    Py_XDECREF(o);
    return ok;
}

static bool
push_symbolic_slice(index_plan *p, PyObject *o, int axis)
{
    if (!bound(o, "start", &p->start[axis]) ||
        !bound(o, "stop", &p->stop[axis]) || !bound(o, "step", &p->step[axis]))
        return false;
    if (p->step[axis] == 0) {
        PyErr_SetString(PyExc_ValueError, "slice step cannot be zero");
        return false;
    }
    if (p->step[axis] == MR_INT_NONE)
        p->step[axis] = 1;
    if (p->start[axis] == 0 && p->step[axis] == 1)
        p->start[axis] = MR_INT_NONE;
    if (p->stop[axis] == PY_SSIZE_T_MAX && p->step[axis] == 1)
        p->stop[axis] = MR_INT_NONE;
    if (p->start[axis] != MR_INT_NONE || p->stop[axis] != MR_INT_NONE ||
        p->step[axis] != 1)
        p->sliced = true;
    return push(p, INDEX_SLICE, axis) != NULL;
}

static bool
push_symbolic_int(index_plan *p, PyObject *o, int axis)
{
    static const mr_scalar minus_one = {MR_SCALAR_INT, {.i = -1}};
    mr_scalar s;
    int64_t i, n = p->dim[axis];

    if (ext_scalar(o, &s) <= 0)
        return refuse(o);
    if (s.kind != MR_SCALAR_INT) {
        PyErr_SetString(PyExc_ValueError,
                        "an array cannot be indexed with a float");
        return false;
    }
    i = mr_size_value(s).as.i;
    if (i < -n || i >= n) {
        PyErr_Format(PyExc_IndexError,
                     "index %lld is out of bounds for axis %d with size %lld",
                     (long long)i, axis, (long long)n);
        return false;
    }
    p->start[axis] = s.as.i;
    p->stop[axis] = mr_size_compare(s, MR_SIZE_EQUAL, minus_one)
                        ? MR_INT_NONE
                        : mr_dim_math(MR_SIZE_ADD, s.as.i, 1);
    p->step[axis] = 1;
    return push(p, INDEX_INT, axis) != NULL;
}

bool
index_settle(index_plan *p, const char *site, mr_array *x)
{
    mr_array *cut;
    int32_t axes[INDEX_MAX];
    int n = index_int_axes(p, axes);

    if (!p->symbolic)
        return true;
    cut = index_cut(p, site, x);
    if (!cut)
        return false;
    for (int i = 0; i < p->n; i++)
        if (p->item[i].kind == INDEX_SLICE || p->item[i].kind == INDEX_ARRAY)
            p->dim[p->item[i].axis] = mr_dim(cut, p->item[i].axis);
    /* A step that fails at sizes where an int is out of bounds. */
    if (n > 0)
        index_step(&cut, mr_squeeze_at(site, cut, (mr_axes){axes, n}));
    mr_release(cut);
    return cut != NULL;
}

/* ---- one item after the other ------------------------------------------- */

static bool
push_int(index_plan *p, PyObject *o, int axis)
{
    int64_t n = p->dim[axis];
    Py_ssize_t i;

    if (p->symbolic)
        return push_symbolic_int(p, o, axis);
    i = PyNumber_AsSsize_t(o, PyExc_IndexError);
    if (i == -1 && PyErr_Occurred())
        return false;
    if (i < -n || i >= n) {
        PyErr_Format(PyExc_IndexError,
                     "index %zd is out of bounds for axis %d with size %lld", i,
                     axis, (long long)n);
        return false;
    }
    p->start[axis] = i < 0 ? i + n : i;
    p->stop[axis] = p->start[axis] + 1;
    p->step[axis] = 1;
    return push(p, INDEX_INT, axis) != NULL;
}

static bool
push_slice(index_plan *p, PyObject *o, int axis)
{
    Py_ssize_t start, stop, step, n;
    Py_ssize_t size = (Py_ssize_t)p->dim[axis];

    if (p->symbolic)
        return push_symbolic_slice(p, o, axis);
    if (PySlice_Unpack(o, &start, &stop, &step) < 0)
        return false;
    /* The whole axis as it is written, not because it has this size: a trace
     * that knows no sizes must come to the same operators. */
    if (start == 0 && stop == PY_SSIZE_T_MAX && step == 1)
        return push(p, INDEX_SLICE, axis) != NULL;
    n = PySlice_AdjustIndices(size, &start, &stop, step);
    p->start[axis] = start;
    p->stop[axis] = stop < 0 ? MR_INT_NONE : stop;
    p->step[axis] = step;
    if (n == 0) {
        p->start[axis] = p->stop[axis] = 0;
        p->step[axis] = 1;
    }
    p->sliced = true;
    p->dim[axis] = n;
    return push(p, INDEX_SLICE, axis) != NULL;
}

/* The places where a mask is True, as one index array for each of its axes. */
static bool
push_mask(index_plan *p, mr_array *mask, int axis)
{
    int ndim = mr_array_ndim(mask);
    ext_leaves l = {0};
    bool ok = true;
    mr_tree *places;

    for (int k = 0; k < ndim; k++)
        if (axis + k >= p->ndim || mr_array_dim(mask, k) != p->dim[axis + k]) {
            PyErr_Format(
                PyExc_ValueError,
                "the mask's axis %d has size %lld, the array's axis "
                "%d has %lld",
                k, (long long)mr_array_dim(mask, k), axis + k,
                (long long)(axis + k < p->ndim ? p->dim[axis + k] : 0));
            return false;
        }
    places = mr_nonzero_at(ext_site(), mask, MR_INT_NONE, 0);
    if (!places)
        return ext_raise() != NULL;
    ok = ext_tree_leaves(places, &l);
    mr_tree_release(places);
    for (int k = 0; ok && k < ndim; k++)
        ok = push_array(p, mr_retain(l.x[k]), axis + k);
    ext_leaves_free(&l);
    return ok;
}

/* How many axes an item takes; -1 with an exception. */
static int
width(PyObject *o)
{
    mr_array *x;
    int n = 1;

    if (o == Py_None || o == Py_Ellipsis)
        return 0;
    if (PySlice_Check(o) || is_int(o))
        return 1;
    if (bool_value(o) >= 0) {
        PyErr_SetString(PyExc_ValueError,
                        "True and False must be the only index");
        return -1;
    }
    x = array_of(o);
    if (!x)
        return -1;
    if (mr_array_dtype(x) == MR_BOOL)
        n = mr_array_ndim(x);
    mr_release(x);
    return n;
}

static bool
push_object(index_plan *p, PyObject *o, int *axis)
{
    mr_array *x;
    bool ok;

    if (o == Py_None)
        return push(p, INDEX_NEW, 0) != NULL;
    if (PySlice_Check(o))
        return push_slice(p, o, (*axis)++);
    if (is_int(o))
        return push_int(p, o, (*axis)++);
    x = array_of(o);
    if (!x)
        return false;
    if (mr_array_dtype(x) != MR_BOOL)
        return push_array(p, x, (*axis)++);
    ok = push_mask(p, x, *axis);
    *axis += mr_array_ndim(x);
    mr_release(x);
    return ok;
}

/* Whole axes until so many are left. */
static bool
push_rest(index_plan *p, int *axis, int left)
{
    while (*axis < p->ndim - left)
        if (!push(p, INDEX_SLICE, (*axis)++))
            return false;
    return true;
}

/* With index arrays, ints join them as 0-d arrays and cut no axis. */
static bool
settle_ints(index_plan *p)
{
    for (int i = 0; i < p->n; i++) {
        index_item *it = &p->item[i];
        int a = it->axis;
        if (it->kind != INDEX_INT)
            continue;
        if (p->n_arrays == 0) {
            p->dim[a] = 1;
            p->sliced = true;
            continue;
        }
        it->x = mr_array_from_scalar_at(
            ext_site(), (mr_scalar){MR_SCALAR_INT, {.i = p->start[a]}},
            MR_INT64);
        if (!it->x)
            return ext_raise() != NULL;
        it->kind = INDEX_ARRAY;
        p->start[a] = p->stop[a] = p->step[a] = MR_INT_NONE;
    }
    p->n_arrays = 0;
    for (int i = 0; i < p->n; i++)
        p->n_arrays += p->item[i].kind == INDEX_ARRAY;
    p->apart = p->apart && p->n_arrays > 0;
    return true;
}

/* Ints count as arrays: without an array among them nobody asks. */
static void
note_apart(index_plan *p, PyObject *o, bool *begun, bool *ended)
{
    if (o == Py_None || o == Py_Ellipsis || PySlice_Check(o)) {
        *ended = *begun;
        return;
    }
    p->apart = p->apart || *ended;
    *begun = true;
}

static bool
parse_items(index_plan *p, PyObject *tuple)
{
    Py_ssize_t n = PyTuple_Size(tuple);
    int taken = 0, axis = 0, dots = 0;
    bool begun = false, ended = false;

    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyTuple_GetItem(tuple, i);
        int w = width(o);
        if (w < 0)
            return false;
        note_apart(p, o, &begun, &ended);
        taken += w;
        dots += o == Py_Ellipsis;
    }
    if (dots > 1 || taken > p->ndim) {
        if (dots > 1)
            PyErr_Format(PyExc_ValueError,
                         "an index has one '...' at most, this one has %d",
                         dots);
        else
            PyErr_Format(PyExc_ValueError,
                         "too many indices for the array: %d for %d axes",
                         taken, p->ndim);
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyTuple_GetItem(tuple, i);
        bool ok;
        if (o == Py_Ellipsis)
            ok = push_rest(p, &axis, taken - axis);
        else
            ok = push_object(p, o, &axis);
        if (!ok)
            return false;
    }
    return push_rest(p, &axis, 0) && settle_ints(p);
}

static void
plan_start(index_plan *p, mr_array *x)
{
    mr_shape s;

    p->symbolic = mr_size_tracing() && mr_array_is_tracer(x);
    s = p->symbolic ? mr_size_shape(x) : mr_array_shape(x);
    p->n = p->n_arrays = 0;
    p->sliced = p->apart = false;
    p->ndim = (int)s.n;
    for (int i = 0; i < s.n; i++) {
        p->dim[i] = s.dim[i];
        p->start[i] = p->stop[i] = p->step[i] = MR_INT_NONE;
    }
}

/* A key alone that may be a mask or a bool.  INDEX_PLAN: it is neither, or
 * *yes says that it is True. */
static index_form
parse_bool(PyObject *key, mr_array **mask, bool *yes)
{
    int b = bool_value(key);
    mr_array *x;
    mr_scalar v;

    *yes = b == 1;
    if (b >= 0)
        return b ? INDEX_PLAN : INDEX_NOTHING;
    if (!ext_is_array(key) && !PyList_Check(key) &&
        (PyTuple_Check(key) || PySlice_Check(key) || ext_is_numpy_scalar(key) ||
         !ext_is_foreign_array(key)))
        return INDEX_PLAN;
    x = array_of(key);
    if (!x)
        return INDEX_ERROR;
    if (mr_array_dtype(x) == MR_BOOL && mr_array_ndim(x) > 0) {
        *mask = x;
        return INDEX_MASK;
    }
    if (mr_array_dtype(x) == MR_BOOL) {
        mr_code code = mr_array_item(x, &v);
        mr_release(x);
        if (code != MR_OK)
            return ext_raise() ? INDEX_PLAN : INDEX_ERROR;
        *yes = v.as.b;
        return v.as.b ? INDEX_PLAN : INDEX_NOTHING;
    }
    mr_release(x);
    return INDEX_PLAN;
}

index_form
index_parse(index_plan *p, mr_array *x, PyObject *key, mr_array **mask)
{
    PyObject *tuple;
    bool ok, yes;
    index_form form = parse_bool(key, mask, &yes);

    plan_start(p, x);
    if (form != INDEX_PLAN)
        return form;
    if (PyTuple_Check(key))
        tuple = Py_NewRef(key);
    else
        tuple = PyTuple_Pack(1, yes ? Py_None : key);
    ok = tuple && parse_items(p, tuple);
    Py_XDECREF(tuple);
    if (!ok)
        index_free(p);
    return ok ? INDEX_PLAN : INDEX_ERROR;
}

/* ---- what the plan says ------------------------------------------------- */

mr_array *
index_cut(const index_plan *p, const char *site, mr_array *x)
{
    if (!p->sliced)
        return mr_retain(x);
    return mr_index_slice_at(site, x, (mr_ints){p->start, p->ndim},
                             (mr_ints){p->stop, p->ndim},
                             (mr_ints){p->step, p->ndim});
}

int
index_arrays(const index_plan *p, mr_array **x, int64_t *axes)
{
    int n = 0;

    for (int i = 0; i < p->n; i++)
        if (p->item[i].kind == INDEX_ARRAY) {
            x[n] = p->item[i].x;
            axes[n++] = p->item[i].axis;
        }
    return n;
}

int
index_first_array(const index_plan *p)
{
    int i = 0;

    while (i < p->n && p->item[i].kind != INDEX_ARRAY)
        i++;
    return i;
}

int
index_rank(const index_plan *p)
{
    int rank = 0;

    for (int i = 0; i < p->n; i++)
        if (p->item[i].kind == INDEX_ARRAY) {
            int r = mr_array_ndim(p->item[i].x);
            rank = r > rank ? r : rank;
        }
    return rank;
}

int
index_new_axes(const index_plan *p, int32_t *axes)
{
    int n = 0, at = p->apart ? index_rank(p) : 0;
    int first = p->apart ? -1 : index_first_array(p);

    for (int i = 0; i < p->n; i++) {
        index_kind k = p->item[i].kind;
        if (k == INDEX_NEW)
            axes[n++] = at++;
        else if (k == INDEX_ARRAY)
            at += i == first ? index_rank(p) : 0;
        else if (k != INDEX_INT)
            at++;
    }
    return n;
}

int
index_int_axes(const index_plan *p, int32_t *axes)
{
    int n = 0;

    for (int i = 0; i < p->n; i++)
        if (p->item[i].kind == INDEX_INT)
            axes[n++] = p->item[i].axis;
    return n;
}
