/* SPDX-License-Identifier: Apache-2.0
 *
 * select.c -- functions whose Python form the table cannot say: unique, whose
 * single result comes alone, repeat, whose count is a number or an array, and
 * moveaxis, which takes one axis or several.
 *
 * Called by: module.c.
 */
#include "ext.h"

#include "marram/marram.h"

/* An array of a value that is none yet: a list, a NumPy array. */
static mr_array *
array_of(PyObject *o, const char *function, const char *argument)
{
    mr_array *x;

    if (ext_is_array(o))
        return mr_retain(ext_x(o));
    if (!PyList_Check(o) && !PyTuple_Check(o) && !ext_is_foreign_array(o)) {
        ext_wrong_type(o, "%s(): argument '%s' must be array", function,
                       argument);
        return NULL;
    }
    x = ext_from_object(o, MR_DTYPE_DEFAULT);
    if (!x)
        ext_raise();
    return x;
}

static bool
int_or_none(PyObject *o, const char *function, const char *argument,
            int64_t *out)
{
    int n;

    *out = MR_INT_NONE;
    if (o == Py_None)
        return true;
    n = ext_int_list(o, out, 1, function, argument);
    if (n == 0)
        PyErr_Format(PyExc_TypeError,
                     "%s(): argument '%s' must be int or None, not an empty "
                     "sequence",
                     function, argument);
    return n == 1;
}

/* ---- unique ------------------------------------------------------------- */

/* The number or array of dtype t that fills; MR_NONE for None. */
static mr_array *
fill_of(PyObject *o, mr_dtype t)
{
    mr_scalar s;
    int r;

    if (o == Py_None)
        return MR_NONE;
    r = ext_is_array(o) ? 0 : ext_scalar(o, &s);
    if (r > 0)
        return ext_scalar_array(ext_site(), &s, mr_promote_scalar(t, s.kind));
    return r < 0 ? NULL : array_of(o, "unique", "fill_value");
}

/* One result alone, several as a tuple; t is taken. */
static PyObject *
one_or_tuple(mr_tree *t)
{
    ext_leaves l = {0};
    PyObject *out = NULL;

    if (!t)
        return ext_raise();
    if (ext_tree_leaves(t, &l))
        out = l.n == 1 ? ext_wrap(mr_retain(l.x[0])) : PyTuple_New(l.n);
    for (int i = 0; out && l.n > 1 && i < l.n; i++) {
        PyObject *o = ext_wrap(mr_retain(l.x[i]));
        if (!o || PyTuple_SetItem(out, i, o) < 0)
            Py_CLEAR(out);
    }
    ext_leaves_free(&l);
    mr_tree_release(t);
    return out;
}

static PyObject *
unique(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD(""),
                            EXT_WORD("size"),
                            EXT_WORD("return_index"),
                            EXT_WORD("return_inverse"),
                            EXT_WORD("return_counts"),
                            EXT_WORD("fill_value"),
                            EXT_WORD("stream"),
                            NULL};
    PyObject *o, *size = Py_None, *fill = Py_None, *stream = Py_None;
    PyObject *r = NULL;
    int index = 0, inverse = 0, counts = 0;
    mr_array *x, *f = NULL;
    mr_stream s, old;
    int64_t n;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O|OpppO$O:unique", names, &o,
                                     &size, &index, &inverse, &counts, &fill,
                                     &stream) ||
        !int_or_none(size, "unique", "size", &n) ||
        !ext_stream_of(stream, &s) || !(x = array_of(o, "unique", "a")))
        return NULL;
    old = mr_stream_scope(s);
    if (stream == Py_None)
        mr_stream_scope(old);
    f = fill_of(fill, mr_array_dtype(x));
    if (f)
        r = one_or_tuple(mr_unique_at(ext_site(), x, n, index != 0,
                                      inverse != 0, counts != 0, f));
    else if (!PyErr_Occurred())
        ext_raise();
    mr_stream_scope(old);
    if (f != MR_NONE)
        mr_release(f);
    mr_release(x);
    return r;
}

/* ---- repeat ------------------------------------------------------------- */

static mr_array *
repeated(mr_array *x, PyObject *repeats, int32_t axis, int64_t size)
{
    mr_array *counts, *y;
    int64_t n;

    if (PyLong_Check(repeats) ||
        !(ext_is_array(repeats) || PyList_Check(repeats) ||
          PyTuple_Check(repeats) || ext_is_foreign_array(repeats))) {
        if (size != MR_INT_NONE) {
            PyErr_SetString(PyExc_ValueError,
                            "repeat(): size goes with an array of repeats");
            return NULL;
        }
        return ext_int_list(repeats, &n, 1, "repeat", "repeats") == 1
                   ? mr_repeat_at(ext_site(), x, n, axis)
                   : NULL;
    }
    counts = array_of(repeats, "repeat", "repeats");
    y = counts ? mr_repeat_each_at(ext_site(), x, counts, axis, size) : NULL;
    mr_release(counts);
    return y;
}

static PyObject *
repeat(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD("array"),  EXT_WORD("repeats"),
                            EXT_WORD("axis"),   EXT_WORD("size"),
                            EXT_WORD("stream"), NULL};
    PyObject *o, *repeats, *axis = Py_None, *size = Py_None;
    PyObject *stream = Py_None, *r = NULL;
    mr_array *x;
    mr_stream s, old;
    int64_t n, k;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "OO|O$OO:repeat", names, &o,
                                     &repeats, &axis, &size, &stream) ||
        !int_or_none(size, "repeat", "size", &n) ||
        !int_or_none(axis, "repeat", "axis", &k) ||
        !ext_stream_of(stream, &s) || !(x = array_of(o, "repeat", "array")))
        return NULL;
    if (k != MR_INT_NONE && (k > INT32_MAX || k <= INT32_MIN))
        k = INT32_MAX; /* beyond any axis, so that the door refuses it */
    old = mr_stream_scope(s);
    if (stream == Py_None)
        mr_stream_scope(old);
    r = ext_wrap(
        repeated(x, repeats, k == MR_INT_NONE ? MR_AXIS_NONE : (int32_t)k, n));
    mr_stream_scope(old);
    mr_release(x);
    return r;
}

/* ---- moveaxis ----------------------------------------------------------- */

static PyObject *
moveaxis(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD(""), EXT_WORD("source"),
                            EXT_WORD("destination"), EXT_WORD("stream"), NULL};
    int64_t from[MR_MAX_NDIM], to[MR_MAX_NDIM];
    PyObject *o, *source, *destination, *stream = Py_None, *r = NULL;
    mr_array *x;
    mr_stream s, old;
    int n, m;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "OOO|$O:moveaxis", names, &o,
                                     &source, &destination, &stream) ||
        (n = ext_int_list(source, from, MR_MAX_NDIM, "moveaxis", "source")) <
            0 ||
        (m = ext_int_list(destination, to, MR_MAX_NDIM, "moveaxis",
                          "destination")) < 0 ||
        !ext_stream_of(stream, &s) || !(x = array_of(o, "moveaxis", "a")))
        return NULL;
    old = mr_stream_scope(s);
    if (stream == Py_None)
        mr_stream_scope(old);
    r = ext_wrap(n == 1 && m == 1
                     ? mr_moveaxis_at(ext_site(), x, from[0], to[0])
                     : mr_moveaxes_at(ext_site(), x, (mr_ints){from, n},
                                      (mr_ints){to, m}));
    mr_stream_scope(old);
    mr_release(x);
    return r;
}

PyMethodDef ext_select_functions[] = {
    {"moveaxis", EXT_KEYWORDS(moveaxis),
     "moveaxis(a, /, source, destination, *, stream=None)\n--\n\n"
     "The axis or axes at source moved to destination, the others in order."},
    {"unique", EXT_KEYWORDS(unique),
     "unique(a, /, size=None, return_index=False, return_inverse=False, "
     "return_counts=False, fill_value=None, *, stream=None)\n--\n\n"
     "The sorted distinct values; a tuple when more is asked for.\n\n"
     "Args:\n"
     "    size: how many values: cut, or filled with the smallest one or\n"
     "        fill_value.  None: all, which a traced function cannot know.\n"},
    {"repeat", EXT_KEYWORDS(repeat),
     "repeat(array, repeats, axis=None, *, size=None, stream=None)\n--\n\n"
     "Each entry along an axis several times.\n\n"
     "Args:\n"
     "    repeats: one number, or an array with a count for each entry.\n"
     "    size: with an array, how many entries in all: cut, or filled with\n"
     "        the last one.  None: their sum, which a traced function may not\n"
     "        know.\n"},
    {NULL, NULL, 0, NULL},
};
