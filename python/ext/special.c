/* SPDX-License-Identifier: Apache-2.0
 *
 * special.c -- functions whose Python form the table cannot say: overloads and
 * arguments of several kinds.
 *
 * Called by: module.c.  A function here stands in the way of a generated one
 * of the same name.
 */
#include "ext.h"

#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

/* Makes o the scoped stream until mr_stream_scope(*old); None changes
 * nothing.  False with an exception. */
static bool
stream_open(PyObject *o, mr_stream *old)
{
    mr_stream s;

    if (!ext_stream_of(o, &s))
        return false;
    *old = mr_stream_scope(s);
    if (o == Py_None)
        mr_stream_scope(*old);
    return true;
}

/* An array argument, retained. */
static mr_array *
array_argument(PyObject *o, const char *function, const char *name)
{
    if (ext_is_array(o))
        return mr_retain(ext_x(o));
    if (ext_is_foreign_array(o) && !ext_is_numpy_scalar(o)) {
        mr_array *x = ext_from_foreign(o, MR_DTYPE_DEFAULT);
        if (!x)
            ext_raise();
        return x;
    }
    ext_wrong_type(o, "%s(): argument '%s' must be array", function, name);
    return NULL;
}

/* The arrays of a tree as a tuple or list; t is taken. */
static PyObject *
sequence_of(mr_tree *t, bool list)
{
    ext_leaves l = {0};
    PyObject *out = NULL;

    if (!t)
        return ext_raise();
    if (ext_tree_leaves(t, &l))
        out = list ? PyList_New(l.n) : PyTuple_New(l.n);
    for (int i = 0; out && i < l.n; i++) {
        PyObject *o = ext_wrap(mr_retain(l.x[i]));
        if (!o ||
            (list ? PyList_SetItem(out, i, o) : PyTuple_SetItem(out, i, o)) < 0)
            Py_CLEAR(out);
    }
    ext_leaves_free(&l);
    mr_tree_release(t);
    return out;
}

/* ---- arange ------------------------------------------------------------- */

static bool
number_argument(PyObject *o, const char *name, mr_scalar *out)
{
    int r = ext_scalar(o, out);

    if (r == 0) {
        PyObject *type = PyType_GetName(Py_TYPE(o));
        PyErr_Format(PyExc_TypeError,
                     "arange(): argument '%s' must be a number, not %U", name,
                     type);
        Py_XDECREF(type);
    }
    return r > 0;
}

static bool
dtype_argument(PyObject *o, const char *function, mr_dtype *out)
{
    return ext_dtype_of(o, out) ||
           ext_wrong_type(o, "%s(): argument 'dtype' must be Dtype", function);
}

static PyObject *
arange(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD("start"),
                            EXT_WORD("stop"),
                            EXT_WORD("step"),
                            EXT_WORD("dtype"),
                            EXT_WORD("stream"),
                            EXT_WORD("device"),
                            NULL};
    PyObject *first = NULL, *second = Py_None, *step = Py_None,
             *dtype = Py_None, *stream = Py_None, *device = Py_None, *r;
    mr_scalar a = {MR_SCALAR_INT, {.i = 0}}, b, s = {MR_SCALAR_INT, {.i = 1}};
    mr_dtype t = MR_DTYPE_DEFAULT;
    mr_stream old;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "|OOOO$OO:arange", names, &first,
                                     &second, &step, &dtype, &stream, &device))
        return NULL;
    if (stream == Py_None)
        stream = device;
    if (!first && second == Py_None) {
        PyErr_SetString(PyExc_TypeError, "arange() needs a stop");
        return NULL;
    }
    /* arange(stop, dtype=...), or arange(stop, None, step) */
    if (second == Py_None ? !number_argument(first, "stop", &b)
                          : !number_argument(second, "stop", &b))
        return NULL;
    if ((second != Py_None && first && !number_argument(first, "start", &a)) ||
        (step != Py_None && !number_argument(step, "step", &s)) ||
        (dtype != Py_None && !dtype_argument(dtype, "arange", &t)) ||
        !stream_open(stream, &old))
        return NULL;
    r = ext_wrap(mr_arange_at(ext_site(), a, b, s, t));
    mr_stream_scope(old);
    return r;
}

/* ---- split -------------------------------------------------------------- */

static PyObject *
split(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD(""), EXT_WORD("indices_or_sections"),
                            EXT_WORD("axis"), EXT_WORD("stream"), NULL};
    PyObject *a, *where, *along = NULL, *stream = Py_None, *r = NULL;
    int64_t cut[EXT_MAX_INTS], axis = 0;
    int n;
    mr_array *x;
    mr_stream old;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "OO|O$O:split", names, &a,
                                     &where, &along, &stream) ||
        (along && ext_int_list(along, &axis, 1, "split", "axis") < 0))
        return NULL;
    n = ext_int_list(where, cut, EXT_MAX_INTS, "split", "indices_or_sections");
    if (n < 0 || !(x = array_argument(a, "split", "a")))
        return NULL;
    if (stream_open(stream, &old)) {
        mr_tree *t =
            PyIndex_Check(where)
                ? mr_split_at(ext_site(), x, cut[0], axis)
                : mr_split_indices_at(ext_site(), x, (mr_ints){cut, n}, axis);
        r = sequence_of(t, true);
        mr_stream_scope(old);
    }
    mr_release(x);
    return r;
}

/* ---- einsum_path -------------------------------------------------------- */

/* [(i, j), ...]; [(0,)] for one operand. */
static PyObject *
path_list(const int *path, int n)
{
    PyObject *list = PyList_New(0);

    if (list && n == 1) {
        PyObject *alone = Py_BuildValue("(i)", 0);
        if (!alone || PyList_Append(list, alone) < 0)
            Py_CLEAR(list);
        Py_XDECREF(alone);
    }
    for (int k = 0; list && k < n - 1; k++) {
        PyObject *pair = Py_BuildValue("(ii)", path[2 * k], path[2 * k + 1]);
        if (!pair || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

static PyObject *
einsum_path(PyObject *self, PyObject *args)
{
    Py_ssize_t n = PyTuple_Size(args);
    PyObject *first = n > 0 ? PyTuple_GetItem(args, 0) : Py_None, *list;
    const char *subscripts;
    ext_leaves l = {0};
    int path[2 * 64] = {0};
    char *text = NULL;

    (void)self;
    if (!PyUnicode_Check(first)) {
        ext_wrong_type(first, "einsum_path() needs subscripts as text");
        return NULL;
    }
    subscripts = PyUnicode_AsUTF8AndSize(first, NULL);
    for (Py_ssize_t i = 1; subscripts && i < n; i++) {
        mr_array *x =
            array_argument(PyTuple_GetItem(args, i), "einsum_path", "operands");
        if (!x || !ext_leaves_add(&l, x))
            break;
    }
    if (subscripts && l.n == n - 1)
        text = mr_einsum_path(subscripts, l.x, l.n, path);
    n = l.n;
    ext_leaves_free(&l);
    if (!text)
        return PyErr_Occurred() ? NULL : ext_raise();
    list = path_list(path, (int)n);
    args = list ? Py_BuildValue("(Ns)", list, text) : NULL;
    mr_text_free(text);
    return args;
}

/* ---- atleast_1d and its kind -------------------------------------------- */

typedef mr_array *(*one_array)(const char *site, mr_array *x);

static bool
stream_keyword(PyObject *kw, const char *function, PyObject **stream)
{
    *stream = Py_None;
    if (!kw || PyDict_Size(kw) == 0)
        return true;
    *stream = PyDict_GetItemString(kw, "stream");
    if (*stream && PyDict_Size(kw) == 1)
        return true;
    PyErr_Format(PyExc_TypeError, "%s() takes no keyword but stream, got %R",
                 function, kw);
    return false;
}

static PyObject *
atleast(PyObject *args, PyObject *kw, const char *name, one_array fn)
{
    Py_ssize_t n = PyTuple_Size(args);
    PyObject *list = PyList_New(n), *stream;
    mr_stream old;

    if (!list || !stream_keyword(kw, name, &stream) ||
        !stream_open(stream, &old)) {
        Py_XDECREF(list);
        return NULL;
    }
    for (Py_ssize_t i = 0; list && i < n; i++) {
        mr_array *x = array_argument(PyTuple_GetItem(args, i), name, "arys");
        PyObject *o = x ? ext_wrap(fn(ext_site(), x)) : NULL;
        mr_release(x);
        if (!o || PyList_SetItem(list, i, o) < 0)
            Py_CLEAR(list);
    }
    mr_stream_scope(old);
    if (list && n == 1) {
        PyObject *o = Py_NewRef(PyList_GetItem(list, 0));
        Py_DECREF(list);
        return o;
    }
    return list;
}

static PyObject *
atleast_1d(PyObject *self, PyObject *args, PyObject *kw)
{
    (void)self;
    return atleast(args, kw, "atleast_1d", mr_atleast_1d_at);
}

static PyObject *
atleast_2d(PyObject *self, PyObject *args, PyObject *kw)
{
    (void)self;
    return atleast(args, kw, "atleast_2d", mr_atleast_2d_at);
}

static PyObject *
atleast_3d(PyObject *self, PyObject *args, PyObject *kw)
{
    (void)self;
    return atleast(args, kw, "atleast_3d", mr_atleast_3d_at);
}

/* ---- meshgrid ----------------------------------------------------------- */

static PyObject *
meshgrid(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD("sparse"), EXT_WORD("indexing"),
                            EXT_WORD("stream"), NULL};
    Py_ssize_t n = PyTuple_Size(args);
    PyObject *none = PyTuple_New(0), *stream = Py_None, *r = NULL;
    const char *indexing = "xy";
    ext_leaves l = {0};
    mr_stream old;
    int sparse = 0;

    (void)self;
    if (none && PyArg_ParseTupleAndKeywords(none, kw, "|$psO:meshgrid", names,
                                            &sparse, &indexing, &stream)) {
        Py_ssize_t i = 0;
        for (; i < n; i++) {
            mr_array *x =
                array_argument(PyTuple_GetItem(args, i), "meshgrid", "arrays");
            if (!x || !ext_leaves_add(&l, x))
                break;
        }
        if (i == n && stream_open(stream, &old)) {
            r = sequence_of(
                mr_meshgrid_at(ext_site(), l.x, l.n, sparse != 0, indexing),
                false);
            mr_stream_scope(old);
        }
    }
    ext_leaves_free(&l);
    Py_XDECREF(none);
    return r;
}

/* ---- asarray, from_dlpack ----------------------------------------------- */

static mr_array *
cast_taken(mr_array *x, mr_dtype t)
{
    mr_array *y;

    if (!x || t == MR_DTYPE_DEFAULT || mr_array_dtype(x) == t)
        return x;
    y = mr_astype_at(ext_site(), x, t);
    mr_release(x);
    return y;
}

/* Other memory with x's values; a traced array has none. */
static mr_array *
copied(mr_array *x)
{
    size_t n = mr_array_nbytes(x);
    void *p;
    mr_array *y = NULL;

    if (mr_array_is_tracer(x))
        return mr_retain(x);
    p = malloc(n ? n : 1);
    if (!p)
        PyErr_NoMemory();
    else if (mr_array_copy_out(x, p, n) == MR_OK)
        y = mr_array_from_at(ext_site(), p, mr_array_shape(x),
                             mr_array_dtype(x));
    free(p);
    return y;
}

static mr_array *
needs_copy(void)
{
    PyErr_SetString(PyExc_ValueError, "this needs a copy, which copy=False "
                                      "does not allow");
    return NULL;
}

/* float64 comes in as float32 unless it is asked for. */
static mr_dtype
arriving(mr_dtype have, mr_dtype want)
{
    if (want != MR_DTYPE_DEFAULT)
        return want;
    return have == MR_FLOAT64 ? MR_FLOAT32 : have;
}

/* Memory of another library, shared where that is possible. */
static mr_array *
adopt(PyObject *o, mr_dtype t, PyObject *copy)
{
    mr_array *x, *y;
    mr_dtype want;

    if (copy == Py_True || !PyObject_HasAttrString(o, "__dlpack__"))
        return copy == Py_False ? needs_copy() : ext_from_foreign(o, t);
    x = ext_from_dlpack(o);
    if (!x && copy != Py_False) { /* read-only memory, an odd type */
        PyErr_Clear();
        mr_error_take();
        return ext_from_foreign(o, t);
    }
    want = x ? arriving(mr_array_dtype(x), t) : t;
    if (!x || mr_array_dtype(x) == want)
        return x;
    if (copy == Py_False) {
        mr_release(x);
        return needs_copy();
    }
    y = cast_taken(x, want);
    if (y && mr_eval(y) != MR_OK) { /* before the memory changes */
        mr_release(y);
        return NULL;
    }
    return y;
}

static mr_array *
as_array(PyObject *o, mr_dtype t, PyObject *copy)
{
    if (ext_is_array(o)) {
        mr_array *x = ext_x(o);
        bool cast = t != MR_DTYPE_DEFAULT && t != mr_array_dtype(x);
        if (cast)
            return copy == Py_False ? needs_copy()
                                    : mr_astype_at(ext_site(), x, t);
        return copy == Py_True ? copied(x) : mr_retain(x);
    }
    if (ext_is_foreign_array(o) && !ext_is_numpy_scalar(o))
        return adopt(o, t, copy);
    return copy == Py_False ? needs_copy() : ext_from_object(o, t);
}

static PyObject *
asarray(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD("a"), EXT_WORD("dtype"), EXT_WORD("copy"),
                            EXT_WORD("device"), NULL};
    PyObject *o, *dtype = Py_None, *copy = Py_None, *device = Py_None;
    mr_dtype t = MR_DTYPE_DEFAULT;
    mr_stream s;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O|O$OO:asarray", names, &o,
                                     &dtype, &copy, &device) ||
        !ext_stream_of(device, &s) ||
        (dtype != Py_None && !ext_dtype_of(dtype, &t)))
        return NULL;
    return ext_wrap(as_array(o, t, copy));
}

static PyObject *
from_dlpack(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD(""), EXT_WORD("copy"), EXT_WORD("device"),
                            NULL};
    PyObject *o, *copy = Py_None, *device = Py_None;
    mr_stream s;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O|$OO:from_dlpack", names, &o,
                                     &copy, &device) ||
        !ext_stream_of(device, &s))
        return NULL;
    if (!PyObject_HasAttrString(o, "__dlpack__")) {
        ext_wrong_type(o, "from_dlpack() needs an object with __dlpack__");
        return NULL;
    }
    return ext_wrap(as_array(o, MR_DTYPE_DEFAULT, copy));
}

/* ---- random ------------------------------------------------------------- */

/* Too large a seed is a TypeError, as a negative one is. */
static bool
seed_number(PyObject *o, const char *function, mr_scalar *s)
{
    int r = ext_scalar(o, s);

    if (r == 0)
        ext_wrong_type(o, "%s(): a seed must be an int", function);
    else if (r < 0 && PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_Format(PyExc_TypeError,
                     "%s(): a seed is an integer from 0 to 2^64 - 1", function);
    return r > 0;
}

static PyObject *
key_of(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD("seed"), EXT_WORD("stream"), NULL};
    PyObject *o, *stream = Py_None, *r;
    mr_scalar s;
    mr_stream old;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O|$O:key", names, &o,
                                     &stream) ||
        !seed_number(o, "key", &s) || !stream_open(stream, &old))
        return NULL;
    r = ext_wrap(mr_random_key_at(ext_site(), s));
    mr_stream_scope(old);
    return r;
}

static PyObject *
seed(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD("seed"), NULL};
    PyObject *o;
    mr_scalar s;
    mr_array *x;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O:seed", names, &o) ||
        !seed_number(o, "seed", &s))
        return NULL;
    x = mr_random_seed_at(ext_site(), s);
    if (!x)
        return ext_raise();
    mr_release(x);
    Py_RETURN_NONE;
}

static PyObject *
permutation(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD("x"), EXT_WORD("axis"), EXT_WORD("key"),
                            EXT_WORD("stream"), NULL};
    PyObject *o, *key = Py_None, *stream = Py_None, *r = NULL;
    const char *site = ext_site();
    mr_array *x = NULL, *k = NULL;
    mr_stream old;
    PyObject *along = NULL;
    int64_t axis = 0;
    mr_scalar n;
    int is_number;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O|OOO:permutation", names, &o,
                                     &along, &key, &stream) ||
        (along && ext_int_list(along, &axis, 1, "permutation", "axis") < 0) ||
        (key != Py_None && !(k = array_argument(key, "permutation", "key"))))
        return NULL;
    is_number = ext_is_array(o) ? 0 : ext_scalar(o, &n);
    if (is_number > 0 && n.kind != MR_SCALAR_INT && n.kind != MR_SCALAR_UINT)
        PyErr_SetString(PyExc_TypeError,
                        "permutation: needs an int or an array");
    else if (is_number > 0 && n.kind == MR_SCALAR_INT && n.as.i < 0)
        PyErr_Format(PyExc_ValueError,
                     "permutation: %lld numbers, needs 0 or more",
                     (long long)n.as.i);
    else if (is_number > 0)
        x = mr_arange_at(site, (mr_scalar){MR_SCALAR_INT, {.i = 0}}, n,
                         (mr_scalar){MR_SCALAR_INT, {.i = 1}}, MR_UINT32);
    else if (is_number == 0)
        x = array_argument(o, "permutation", "x");
    if (x && stream_open(stream, &old)) {
        r = ext_wrap(mr_random_permutation_at(site, x, axis, k ? k : MR_NONE));
        mr_stream_scope(old);
    } else if (!PyErr_Occurred()) {
        ext_raise();
    }
    mr_release(x);
    mr_release(k);
    return r;
}

static PyObject *
get_key(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return ext_wrap(mr_random_state_at(ext_site()));
}

static PyObject *
set_key(PyObject *self, PyObject *o)
{
    mr_array *key = array_argument(o, "set_state", "key"), *x;

    (void)self;
    if (!key)
        return NULL;
    x = mr_random_set_state_at(ext_site(), key);
    mr_release(key);
    if (!x)
        return ext_raise();
    mr_release(x);
    Py_RETURN_NONE;
}

/* random.state is made in Python (marram/core/_types.py), which names its type
 * here. */
bool
ext_is_random_state(PyObject *o)
{
    PyObject *name = PyType_GetName(Py_TYPE(o));
    bool is =
        name && PyUnicode_CompareWithASCIIString(name, "_RandomState") == 0;

    Py_XDECREF(name);
    return is;
}

/* ---- attention ---------------------------------------------------------- */

static PyObject *
attention(PyObject *self, PyObject *args, PyObject *kw)
{
    static const char who[] = "scaled_dot_product_attention";
    static char *names[] = {
        EXT_WORD("q"),           EXT_WORD("k"),      EXT_WORD("v"),
        EXT_WORD("scale"),       EXT_WORD("mask"),   EXT_WORD("sinks"),
        EXT_WORD("force_fused"), EXT_WORD("stream"), NULL};
    PyObject *o[3], *mask = Py_None, *sinks = Py_None, *stream = Py_None;
    PyObject *r = NULL;
    mr_array *x[5] = {NULL}; /* q, k, v, mask, sinks */
    bool causal = false, ok;
    int fused = 0;
    PyObject *factor = Py_None;
    double scale;
    mr_stream old;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(
            args, kw, "OOO|$OOOpO:scaled_dot_product_attention", names, &o[0],
            &o[1], &o[2], &factor, &mask, &sinks, &fused, &stream))
        return NULL;
    if (ext_is_size(factor)) {
        mr_scalar s;

        ext_size_scalar(factor, &s);
        scale = s.as.f;
        if (s.kind == MR_SCALAR_INT)
            scale = (double)mr_size_fix(s).as.i;
    } else {
        scale = PyFloat_AsDouble(factor);
    }
    if (PyErr_Occurred()) {
        PyErr_Clear();
        ext_wrong_type(factor, "%s() needs the keyword scale, a number", who);
        return NULL;
    }
    if (PyUnicode_Check(mask)) {
        causal = PyUnicode_CompareWithASCIIString(mask, "causal") == 0;
        if (!causal) {
            PyErr_Format(PyExc_ValueError,
                         "%s(): the mask must be an array or 'causal', not "
                         "'%U'",
                         who, mask);
            return NULL;
        }
    }
    ok = (x[0] = array_argument(o[0], who, "q")) &&
         (x[1] = array_argument(o[1], who, "k")) &&
         (x[2] = array_argument(o[2], who, "v")) &&
         (mask == Py_None || causal ||
          (x[3] = array_argument(mask, who, "mask"))) &&
         (sinks == Py_None || (x[4] = array_argument(sinks, who, "sinks")));
    if (ok && stream_open(stream, &old)) {
        r = ext_wrap(mr_scaled_dot_product_attention_at(
            ext_site(), x[0], x[1], x[2], scale, x[3] ? x[3] : MR_NONE, causal,
            x[4] ? x[4] : MR_NONE));
        mr_stream_scope(old);
    }
    for (int i = 0; i < 5; i++)
        mr_release(x[i]);
    return r;
}

/* ---- norm --------------------------------------------------------------- */

/* ord: None, a number or a name; *name stays NULL but for a name. */
static bool
norm_order(const char *function, PyObject *o, double *number, const char **name)
{
    mr_scalar s;
    int r;

    *number = Py_NAN;
    *name = NULL;
    if (o == Py_None)
        return true;
    if (PyUnicode_Check(o)) {
        *name = PyUnicode_AsUTF8AndSize(o, NULL);
        return *name != NULL;
    }
    r = ext_scalar(o, &s);
    if (r > 0 && s.kind == MR_SCALAR_INT)
        *number = (double)s.as.i;
    else if (r > 0 && s.kind == MR_SCALAR_FLOAT)
        *number = s.as.f;
    else if (r >= 0)
        ext_wrong_type(o, "%s(): argument 'ord' must be a number or a name",
                       function);
    if (r > 0 && *number != *number && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "%s(): the order is NaN", function);
    return !PyErr_Occurred();
}

static PyObject *
norm_over(const char *function, PyObject *o, PyObject *ord, mr_axes axes,
          bool keepdims, PyObject *stream)
{
    const char *name;
    double number;
    PyObject *r = NULL;
    mr_array *x;
    mr_stream old;

    if (!norm_order(function, ord, &number, &name))
        return NULL;
    x = array_argument(o, function, "a");
    if (x && stream_open(stream, &old)) {
        r = ext_wrap(
            name ? mr_linalg_norm_matrix_at(ext_site(), x, name, axes, keepdims)
                 : mr_linalg_norm_at(ext_site(), x, number, axes, keepdims));
        mr_stream_scope(old);
    }
    mr_release(x);
    return r;
}

static PyObject *
norm(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD(""),       EXT_WORD("ord"),
                            EXT_WORD("axis"),   EXT_WORD("keepdims"),
                            EXT_WORD("stream"), NULL};
    PyObject *o, *ord = Py_None, *where = Py_None, *stream = Py_None;
    int64_t wide[MR_MAX_NDIM];
    int32_t axis[MR_MAX_NDIM];
    int keepdims = 0, n = -1;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O|OOp$O:norm", names, &o, &ord,
                                     &where, &keepdims, &stream))
        return NULL;
    if (where != Py_None &&
        (n = ext_int_list(where, wide, MR_MAX_NDIM, "norm", "axis")) < 0)
        return NULL;
    for (int i = 0; i < n; i++) /* beyond int32 is out of range as well */
        axis[i] = wide[i] > INT32_MAX || wide[i] <= INT32_MIN
                      ? INT32_MAX
                      : (int32_t)wide[i];
    return norm_over("norm", o, ord, (mr_axes){axis, n}, keepdims != 0, stream);
}

/* The array API standard's: of the last two axes. */
static PyObject *
matrix_norm(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *names[] = {EXT_WORD(""), EXT_WORD("keepdims"), EXT_WORD("ord"),
                            EXT_WORD("stream"), NULL};
    static const int32_t last[] = {-2, -1};
    PyObject *o, *ord = NULL, *stream = Py_None, *fro, *r;
    int keepdims = 0;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O|$pOO:matrix_norm", names, &o,
                                     &keepdims, &ord, &stream))
        return NULL;
    fro = PyUnicode_FromString("fro");
    r = fro ? norm_over("matrix_norm", o, ord ? ord : fro, (mr_axes){last, 2},
                        keepdims != 0, stream)
            : NULL;
    Py_XDECREF(fro);
    return r;
}

PyMethodDef ext_functions[] = {
    {"arange", EXT_KEYWORDS(arange),
     "arange(start, stop=None, step=None, dtype=None, *, stream=None, "
     "device=None)\n--\n\n"
     "start, start + step, ... before stop; arange(stop) starts at 0."},
    {"split", EXT_KEYWORDS(split),
     "split(a, /, indices_or_sections, axis=0, *, stream=None)\n--\n\n"
     "A list of parts along an axis: equal ones, or cut before indices."},
    {"einsum_path", einsum_path, METH_VARARGS,
     "einsum_path(subscripts, *operands)\n--\n\n"
     "The order in which einsum contracts, and a report of its cost.\n\n"
     "Returns:\n"
     "    A list of pairs, each of the places of two operands among those\n"
     "    left, whose result goes to the end; the text of the report."},
    {"atleast_1d", EXT_KEYWORDS(atleast_1d),
     "atleast_1d(*arys, stream=None)\n--\n\nArrays with 1 axis at least."},
    {"atleast_2d", EXT_KEYWORDS(atleast_2d),
     "atleast_2d(*arys, stream=None)\n--\n\nArrays with 2 axes at least."},
    {"atleast_3d", EXT_KEYWORDS(atleast_3d),
     "atleast_3d(*arys, stream=None)\n--\n\nArrays with 3 axes at least."},
    {"meshgrid", EXT_KEYWORDS(meshgrid),
     "meshgrid(*arrays, sparse=False, indexing='xy', stream=None)\n--\n\n"
     "Coordinate arrays of a grid, from one 1-d array an axis."},
    {"asarray", EXT_KEYWORDS(asarray),
     "asarray(a, dtype=None, *, copy=None, device=None)\n--\n\n"
     "An array of a value.\n\n"
     "Args:\n"
     "    copy: None shares memory where that is possible, True always\n"
     "        copies, False raises a ValueError where a copy is needed."},
    {"from_dlpack", EXT_KEYWORDS(from_dlpack),
     "from_dlpack(x, /, *, copy=None, device=None)\n--\n\n"
     "An array over the memory of another library's."},
    {"matrix_norm", EXT_KEYWORDS(norm),
     "matrix_norm(a, /, ord=None, axis=None, keepdims=False, *, "
     "stream=None)\n--\n\n"
     "The norm of vectors (one axis) or matrices (two).\n\n"
     "Args:\n"
     "    ord: None, the 2-norm of all numbers; else as in NumPy: inf, -inf,\n"
     "        1, -1, 2, -2, for vectors any number, for matrices 'fro' or\n"
     "        'nuc'."},
    {NULL, NULL, 0, NULL},
};

PyMethodDef ext_linalg_functions[] = {
    {"norm", EXT_KEYWORDS(norm),
     "norm(a, /, ord=None, axis=None, keepdims=False, *, stream=None)\n--\n\n"
     "The norm of vectors (one axis) or matrices (two).\n\n"
     "Args:\n"
     "    ord: None, the 2-norm of all numbers; else as in NumPy: inf, -inf,\n"
     "        1, -1, 2, -2, for vectors any number, for matrices 'fro' or\n"
     "        'nuc'."},
    {"matrix_norm", EXT_KEYWORDS(matrix_norm),
     "matrix_norm(a, /, *, keepdims=False, ord='fro', stream=None)\n--\n\n"
     "The norm of each matrix of the last two axes.\n\n"
     "Args:\n"
     "    ord: 'fro', 'nuc', inf, -inf, 1, -1, 2, -2, as norm has them."},
    {NULL, NULL, 0, NULL},
};

PyMethodDef ext_random_functions[] = {
    {"key", EXT_KEYWORDS(key_of),
     "key(seed, *, stream=None)\n--\n\n"
     "The key of a seed: its high and low 32 bits."},
    {"seed", EXT_KEYWORDS(seed),
     "seed(seed)\n--\n\nStarts this thread's sequence."},
    {"permutation", EXT_KEYWORDS(permutation),
     "permutation(x, axis=0, key=None, stream=None)\n--\n\n"
     "The entries of an array along an axis, or range(x), in random order."},
    {"_get_key", get_key, METH_NOARGS, NULL},
    {"_set_key", set_key, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

PyMethodDef ext_fast_functions[] = {
    {"scaled_dot_product_attention", EXT_KEYWORDS(attention),
     "scaled_dot_product_attention(q, k, v, *, scale, mask=None, sinks=None, "
     "force_fused=False, stream=None)\n--\n\n"
     "softmax(scale * q @ k.T + mask) @ v, for (B, H, L, D) arrays; mask may\n"
     "be 'causal'.  Fewer heads of k and v are shared by those of q."},
    {NULL, NULL, 0, NULL},
};
