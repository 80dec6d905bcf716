/* SPDX-License-Identifier: Apache-2.0
 *
 * convert.c -- Python values as arrays: numbers, nested lists, operands.
 *
 * A nested list is read twice: once for its shape and the widest kind of
 * number in it, once to fill.  Lists that hold arrays are stacked.
 * Called by: the constructor, the operators, args.c.  Calls: buffer.c.
 */
#include "ext.h"

#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

/* numpy.generic, when NumPy has been imported; NULL before.  Looked up again
 * until then, and kept for ever. */
static PyObject *numpy_generic;

static PyObject *
find_numpy_generic(void)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
    PyObject *numpy = PyDict_GetItemString(modules, "numpy"), *g;

    if (numpy_generic || !numpy)
        return numpy_generic;
    g = PyObject_GetAttrString(numpy, "generic");
    if (!g)
        PyErr_Clear();
    numpy_generic = g;
    return g;
}

bool
ext_is_numpy_scalar(PyObject *o)
{
    PyObject *g = find_numpy_generic();

    return g && PyObject_TypeCheck(o, (PyTypeObject *)g);
}

/* ---- numbers ------------------------------------------------------------ */

static int
scalar_of_long(PyObject *o, mr_scalar *out)
{
    int overflow;

    out->kind = MR_SCALAR_INT;
    out->as.i = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (!overflow)
        return 1;
    if (overflow > 0) {
        out->kind = MR_SCALAR_UINT;
        out->as.u = PyLong_AsUnsignedLongLong(o);
        if (!PyErr_Occurred())
            return 1;
        PyErr_Clear();
    }
    PyErr_SetString(PyExc_OverflowError,
                    "an int beyond 64 bits: needs -2^63 to 2^64 - 1");
    return -1;
}

static int
scalar_of_numpy(PyObject *o, mr_scalar *out)
{
    PyObject *v;
    int r;

    if (PyIndex_Check(o) && (v = PyNumber_Index(o))) {
        r = scalar_of_long(v, out);
        Py_DECREF(v);
        return r;
    }
    PyErr_Clear();
    v = PyObject_CallMethod(o, "item", NULL);
    if (!v)
        return -1;
    r = ext_is_numpy_scalar(v) ? 0 : ext_scalar(v, out);
    if (r == 0 && PyNumber_Check(v)) { /* numpy.longdouble stays itself */
        out->kind = MR_SCALAR_FLOAT;
        out->as.f = PyFloat_AsDouble(v);
        r = PyErr_Occurred() ? -1 : 1;
    }
    Py_DECREF(v);
    return r;
}

int
ext_scalar(PyObject *o, mr_scalar *out)
{
    if (PyFloat_Check(o)) {
        out->kind = MR_SCALAR_FLOAT;
        out->as.f = PyFloat_AsDouble(o);
        return 1;
    }
    if (PyBool_Check(o)) {
        out->kind = MR_SCALAR_BOOL;
        out->as.b = o == Py_True;
        return 1;
    }
    if (PyLong_Check(o))
        return scalar_of_long(o, out);
    if (ext_is_size(o)) {
        ext_size_scalar(o, out);
        return 1;
    }
    if (PyComplex_Check(o)) {
        out->kind = MR_SCALAR_COMPLEX;
        out->as.c.re = PyComplex_RealAsDouble(o);
        out->as.c.im = PyComplex_ImagAsDouble(o);
        return 1;
    }
    return ext_is_numpy_scalar(o) ? scalar_of_numpy(o, out) : 0;
}

mr_dtype
ext_scalar_dtype(const mr_scalar *s)
{
    mr_scalar now = mr_size_value(*s);

    s = &now;
    switch (s->kind) {
    case MR_SCALAR_BOOL:
        return MR_BOOL;
    case MR_SCALAR_INT:
        return s->as.i > INT32_MAX || s->as.i < INT32_MIN ? MR_INT64 : MR_INT32;
    case MR_SCALAR_UINT:
        return MR_UINT64;
    case MR_SCALAR_FLOAT:
        return MR_FLOAT32;
    case MR_SCALAR_COMPLEX:
        break;
    }
    return MR_COMPLEX64;
}

static bool
int_fits(const mr_scalar *s, mr_dtype t)
{
    const bool is_unsigned = t >= MR_UINT8 && t <= MR_UINT64;
    const int bits = 8 * (int)mr_dtype_size(t);

    if (s->kind == MR_SCALAR_UINT)
        return t == MR_UINT64;
    if (is_unsigned)
        return s->as.i >= 0 && (bits == 64 || s->as.i < ((int64_t)1 << bits));
    return bits == 64 || (s->as.i < ((int64_t)1 << (bits - 1)) &&
                          s->as.i >= -((int64_t)1 << (bits - 1)));
}

mr_array *
ext_scalar_array(const char *site, const mr_scalar *s, mr_dtype t)
{
    if (mr_dtype_is_integer(t) &&
        (s->kind == MR_SCALAR_INT || s->kind == MR_SCALAR_UINT) &&
        !mr_size_is_symbolic(*s) && !int_fits(s, t)) {
        PyObject *v = ext_scalar_object(s);
        PyErr_Format(PyExc_ValueError, "%S does not fit %s", v,
                     mr_dtype_name(t));
        Py_XDECREF(v);
        return NULL;
    }
    return mr_array_from_scalar_at(site, *s, t);
}

PyObject *
ext_scalar_object(const mr_scalar *s)
{
    switch (s->kind) {
    case MR_SCALAR_BOOL:
        return PyBool_FromLong(s->as.b);
    case MR_SCALAR_INT:
        return PyLong_FromLongLong(s->as.i);
    case MR_SCALAR_UINT:
        return PyLong_FromUnsignedLongLong(s->as.u);
    case MR_SCALAR_FLOAT:
        return PyFloat_FromDouble(s->as.f);
    case MR_SCALAR_COMPLEX:
        break;
    }
    return PyComplex_FromDoubles(s->as.c.re, s->as.c.im);
}

/* ---- nested lists ------------------------------------------------------- */

/* What the first reading finds. */
typedef struct survey {
    int ndim; /* of the list itself */
    int64_t dim[MR_MAX_NDIM];
    bool arrays;         /* some leaf is an array */
    mr_scalar_kind kind; /* the widest */
    bool any, wide;      /* an int beyond int32 */
    int64_t lowest;      /* of ints: whether uint64 will do */
} survey;

static bool
survey_shape(PyObject *o, survey *s)
{
    while (ext_is_sequence(o)) {
        if (s->ndim == MR_MAX_NDIM) {
            PyErr_Format(PyExc_ValueError, "lists nested more than %d deep",
                         MR_MAX_NDIM);
            return false;
        }
        s->dim[s->ndim] = ext_sequence_size(o);
        if (s->dim[s->ndim++] == 0)
            return true;
        o = ext_sequence_item(o, 0);
    }
    return true;
}

static bool
ragged(const survey *s, int depth)
{
    PyErr_Format(PyExc_ValueError,
                 "a ragged list: the lists at depth %d differ in length from "
                 "the first, which has %lld entries",
                 depth, depth < s->ndim ? (long long)s->dim[depth] : 0LL);
    return false;
}

static bool
refuse(PyObject *o)
{
    PyObject *name = PyType_GetName(Py_TYPE(o));

    PyErr_Format(o == Py_None ? PyExc_TypeError : PyExc_ValueError,
                 "no array can be made of %U", name);
    Py_XDECREF(name);
    return false;
}

static bool
survey_leaf(PyObject *o, survey *s)
{
    mr_scalar v;
    int r;

    if (ext_is_array(o)) {
        s->arrays = true;
        return true;
    }
    r = ext_scalar(o, &v);
    if (r > 0 && ext_is_size(o) && mr_size_is_symbolic(v))
        return ext_size_refuse(o, "an entry of a list of numbers (stack arrays "
                                  "that are made of them)");
    if (r == 0 && ext_is_foreign_array(o)) {
        s->arrays = true;
        return true;
    }
    if (r <= 0)
        return r == 0 ? refuse(o) : false;
    if (v.kind == MR_SCALAR_INT) {
        if (v.as.i < s->lowest)
            s->lowest = v.as.i;
        if (v.as.i > INT32_MAX || v.as.i < INT32_MIN)
            s->wide = true;
    }
    if (!s->any || v.kind > s->kind)
        s->kind = v.kind;
    s->any = true;
    return true;
}

static bool
survey_leaves(PyObject *o, survey *s, int depth)
{
    Py_ssize_t n = ext_sequence_size(o);

    if (depth >= s->ndim || n != s->dim[depth])
        return ragged(s, depth);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = ext_sequence_item(o, i);
        if (ext_is_sequence(item)) {
            if (!survey_leaves(item, s, depth + 1))
                return false;
        } else {
            if (depth != s->ndim - 1)
                return ragged(s, depth + 1);
            if (!survey_leaf(item, s))
                return false;
        }
    }
    return true;
}

/* The values as they are read: one buffer of one kind. */
typedef struct filler {
    mr_dtype t; /* BOOL, INT64, UINT64, FLOAT64 or COMPLEX128 */
    char *at;
} filler;

static double
scalar_real(const mr_scalar *v)
{
    switch (v->kind) {
    case MR_SCALAR_BOOL:
        return v->as.b;
    case MR_SCALAR_INT:
        return (double)v->as.i;
    case MR_SCALAR_UINT:
        return (double)v->as.u;
    case MR_SCALAR_FLOAT:
        return v->as.f;
    case MR_SCALAR_COMPLEX:
        break;
    }
    return v->as.c.re;
}

static void
fill_leaf(filler *f, const mr_scalar *v)
{
    if (f->t == MR_BOOL) {
        *f->at = v->as.b;
        f->at += 1;
        return;
    }
    if (f->t == MR_INT64 || f->t == MR_UINT64) {
        /* a UINT fills the same bits */
        int64_t i = v->kind == MR_SCALAR_BOOL ? v->as.b : v->as.i;
        memcpy(f->at, &i, sizeof i);
        f->at += sizeof i;
        return;
    }
    double re = scalar_real(v);
    memcpy(f->at, &re, sizeof re);
    f->at += sizeof re;
    if (f->t == MR_COMPLEX128) {
        double im = v->kind == MR_SCALAR_COMPLEX ? v->as.c.im : 0.0;
        memcpy(f->at, &im, sizeof im);
        f->at += sizeof im;
    }
}

static bool
fill(PyObject *o, filler *f)
{
    Py_ssize_t n = ext_sequence_size(o);

    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = ext_sequence_item(o, i);
        if (ext_is_sequence(item)) {
            if (!fill(item, f))
                return false;
        } else {
            mr_scalar v;
            if (ext_scalar(item, &v) <= 0)
                return false;
            fill_leaf(f, &v);
        }
    }
    return true;
}

/* Narrows n values in place where that is all there is to do; *t tells what
 * they are then. */
static void
narrow(char *p, int64_t n, mr_dtype *t, mr_dtype want)
{
    if (*t == MR_INT64 && want == MR_INT32) {
        for (int64_t i = 0; i < n; i++) {
            int64_t v;
            memcpy(&v, p + 8 * i, 8);
            int32_t w = (int32_t)(uint32_t)(uint64_t)v;
            memcpy(p + 4 * i, &w, 4);
        }
        *t = want;
    } else if ((*t == MR_FLOAT64 && want == MR_FLOAT32) ||
               (*t == MR_COMPLEX128 && want == MR_COMPLEX64)) {
        int64_t m = *t == MR_COMPLEX128 ? 2 * n : n;
        for (int64_t i = 0; i < m; i++) {
            double v;
            memcpy(&v, p + 8 * i, 8);
            float w = (float)v;
            memcpy(p + 4 * i, &w, 4);
        }
        *t = want;
    }
}

static mr_array *
cast_taken(const char *site, mr_array *x, mr_dtype t)
{
    mr_array *y;

    if (!x || mr_array_dtype(x) == t)
        return x;
    y = mr_astype_at(site, x, t);
    mr_release(x);
    return y;
}

static mr_array *
from_numbers(PyObject *o, const survey *s, mr_dtype t)
{
    static const mr_dtype wide[] = {MR_BOOL, MR_INT64, MR_UINT64, MR_FLOAT64,
                                    MR_COMPLEX128};
    mr_dtype own = !s->any                     ? MR_FLOAT32
                   : s->kind == MR_SCALAR_INT  ? (s->wide ? MR_INT64 : MR_INT32)
                   : s->kind == MR_SCALAR_BOOL ? MR_BOOL
                   : s->kind == MR_SCALAR_UINT ? MR_UINT64
                   : s->kind == MR_SCALAR_FLOAT ? MR_FLOAT32
                                                : MR_COMPLEX64;
    filler f = {s->any ? wide[s->kind] : MR_FLOAT64, NULL};
    mr_dtype want = t == MR_DTYPE_DEFAULT ? own : t, have = f.t;
    int64_t n = 1;
    mr_array *x = NULL;
    char *p;

    if (own == MR_UINT64 && (want != MR_UINT64 || s->lowest < 0)) {
        PyErr_SetString(PyExc_OverflowError,
                        "an int beyond int64: only dtype=uint64 holds it");
        return NULL;
    }
    for (int i = 0; i < s->ndim; i++)
        n *= s->dim[i];
    p = malloc((size_t)(n ? n : 1) * mr_dtype_size(f.t));
    if (!p) {
        PyErr_NoMemory();
        return NULL;
    }
    f.at = p;
    if (fill(o, &f)) {
        narrow(p, n, &have, want);
        x = mr_array_from_at(ext_site(), p, (mr_shape){s->dim, s->ndim}, have);
        x = cast_taken(ext_site(), x, want);
    }
    free(p);
    return x;
}

/* Lists that hold arrays: each entry an array, stacked. */
static mr_array *
from_arrays(PyObject *o, mr_dtype t)
{
    Py_ssize_t n = ext_sequence_size(o);
    mr_array **x = calloc((size_t)(n ? n : 1), sizeof *x), *y = NULL;
    Py_ssize_t i;

    if (!x) {
        PyErr_NoMemory();
        return NULL;
    }
    for (i = 0; i < n; i++) {
        x[i] = ext_from_object(ext_sequence_item(o, i), MR_DTYPE_DEFAULT);
        if (!x[i])
            goto out;
    }
    y = mr_stack_at(ext_site(), x, (int)n, 0);
    if (y && t != MR_DTYPE_DEFAULT)
        y = cast_taken(ext_site(), y, t);
out:
    for (i = 0; i < n; i++)
        mr_release(x[i]);
    free(x);
    return y;
}

static mr_array *
from_list(PyObject *o, mr_dtype t)
{
    survey s = {0};

    if (!survey_shape(o, &s) || !survey_leaves(o, &s, 0))
        return NULL;
    return s.arrays ? from_arrays(o, t) : from_numbers(o, &s, t);
}

static mr_array *
from_number(const mr_scalar *s, mr_dtype t)
{
    mr_dtype own = ext_scalar_dtype(s);

    if (t == MR_DTYPE_DEFAULT) {
        if (s->kind == MR_SCALAR_UINT) {
            PyErr_SetString(PyExc_OverflowError,
                            "an int beyond int64: only dtype=uint64 holds it");
            return NULL;
        }
        t = own;
    }
    /* as astype would: ints wrap, floats truncate */
    return mr_array_from_scalar_at(ext_site(), *s, t);
}

static mr_array *
from_numpy_scalar(PyObject *o, mr_dtype t)
{
    PyObject *item;
    mr_array *x;
    mr_scalar s;
    int r;

    if (t == MR_DTYPE_DEFAULT)
        return ext_from_foreign(o, t);
    item = PyObject_CallMethod(o, "item", NULL);
    r = item ? ext_scalar(item, &s) : -1;
    x = r > 0 ? from_number(&s, t) : NULL;
    Py_XDECREF(item);
    return x ? x : (r == 0 ? ext_from_foreign(o, t) : NULL);
}

mr_array *
ext_from_object(PyObject *o, mr_dtype t)
{
    mr_scalar s;
    int r;

    if (ext_is_array(o)) {
        if (t == MR_DTYPE_DEFAULT || t == mr_array_dtype(ext_x(o)))
            return mr_retain(ext_x(o));
        return mr_astype_at(ext_site(), ext_x(o), t);
    }
    if (ext_is_sequence(o))
        return from_list(o, t);
    if (PyObject_TypeCheck(o, &PyRange_Type)) {
        PyObject *list = PySequence_List(o);
        mr_array *x = list ? from_list(list, t) : NULL;
        Py_XDECREF(list);
        return x;
    }
    if (ext_is_numpy_scalar(o))
        return from_numpy_scalar(o, t);
    r = ext_scalar(o, &s);
    if (r != 0)
        return r > 0 ? from_number(&s, t) : NULL;
    if (ext_is_foreign_array(o))
        return ext_from_foreign(o, t);
    refuse(o);
    return NULL;
}

/* ---- operands ----------------------------------------------------------- */

mr_array *
ext_operand(const char *site, PyObject *o, mr_dtype t)
{
    mr_scalar s;
    int r;

    if (ext_is_array(o))
        return mr_retain(ext_x(o));
    r = ext_scalar(o, &s);
    if (r < 0)
        return NULL;
    if (r > 0)
        return ext_scalar_array(site, &s, mr_promote_scalar(t, s.kind));
    if (ext_is_foreign_array(o))
        return ext_from_foreign(o, MR_DTYPE_DEFAULT);
    if (ext_is_sequence(o) || PyUnicode_Check(o) || PyDict_Check(o)) {
        PyObject *name = PyType_GetName(Py_TYPE(o));
        PyErr_Format(PyExc_ValueError,
                     "cannot compute with an array and %U; make an array of "
                     "it first",
                     name);
        Py_XDECREF(name);
    }
    return NULL;
}
