/* SPDX-License-Identifier: Apache-2.0
 *
 * args.c -- one parser for the arguments of all generated functions.
 *
 * A function is a table of parameters (ext_spec) and a call.  Arguments are
 * bound to parameters first, as Python would; then each is converted; numbers
 * beside arrays last, when the arrays' dtypes are known.
 * Called by: the generated py_functions.c.
 */
#include "ext.h"

#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"

/* Where the arguments go: slot i is parameter i. */
typedef struct bound {
    PyObject *slot[EXT_MAX_PARAMS];
    PyObject *const *rest; /* of *args, or the ints of a spread method */
    Py_ssize_t n_rest;
    bool has_rest;
    PyObject *stream;
    ext_extras extras;
} bound;

static bool
wrong(const ext_spec *s, const ext_param *p, PyObject *o, const char *want)
{
    return ext_wrong_type(o, "%s(): argument '%s' must be %s", s->name, p->name,
                          want);
}

/* ---- binding ----------------------------------------------------------------
 */

static bool
too_many(const ext_spec *s, int most, Py_ssize_t n)
{
    PyErr_Format(PyExc_TypeError,
                 "%s() takes at most %d positional argument%s (%zd given)",
                 s->name, most, most == 1 ? "" : "s", n);
    return false;
}

/* A method whose list may come as separate ints: x.reshape(2, 3). */
static bool
bind_spread(bound *b, PyObject *const *args, Py_ssize_t n)
{
    if (n == 1 && !PyLong_Check(args[0]) && !ext_is_size(args[0])) {
        b->slot[1] = args[0];
        return true;
    }
    b->rest = args;
    b->n_rest = n;
    b->has_rest = n > 0;
    return true;
}

static bool
bind_positional(bound *b, const ext_spec *s, PyObject *self,
                PyObject *const *args, Py_ssize_t n)
{
    int first = 0;

    if (self)
        b->slot[first++] = self;
    if (self && s->spread)
        return bind_spread(b, args, n);
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_ssize_t k = first + i;
        if (k < s->positional) {
            b->slot[k] = args[i];
        } else if (s->variadic >= 0) {
            b->rest = args + i;
            b->n_rest = n - i;
            b->has_rest = true;
            return true;
        } else if (k == s->positional && s->stream) {
            b->stream = args[i];
        } else {
            return too_many(s, s->positional + (s->stream ? 1 : 0) - first, n);
        }
    }
    return true;
}

static bool
is_name(PyObject *name, const char *text)
{
    return PyUnicode_CompareWithASCIIString(name, text) == 0;
}

static int
find_keyword(const ext_spec *s, PyObject *name)
{
    for (int i = 0; i < s->n; i++)
        if (i != s->variadic && is_name(name, s->param[i].name))
            return i;
    for (int i = 0; i < s->n; i++)
        if (i != s->variadic && ext_standard_alias(s->param[i].name, name))
            return i;
    return -1;
}

/* A keyword of the standard's that is no parameter; a device is a stream. */
static bool
bind_extra(bound *b, const ext_spec *s, PyObject *name, PyObject *value)
{
    ext_extra_kind kind = ext_standard_extra(s, name);

    if (is_name(name, "device") && !b->stream) {
        b->stream = value;
        return true;
    }
    if (kind == EXT_EXTRA_NONE || b->extras.n == EXT_MAX_EXTRAS)
        return false;
    b->extras.kind[b->extras.n] = kind;
    b->extras.value[b->extras.n++] = value;
    return true;
}

static bool
bind_keyword(bound *b, const ext_spec *s, PyObject *name, PyObject *value)
{
    int i = find_keyword(s, name);

    if (i < 0) {
        if (is_name(name, "stream") && !b->stream) {
            b->stream = value;
            return true;
        }
        if (bind_extra(b, s, name, value))
            return true;
        PyErr_Format(PyExc_TypeError,
                     "%s() got an unexpected keyword argument '%U'", s->name,
                     name);
        return false;
    }
    if (i < s->positional_only) {
        PyErr_Format(PyExc_TypeError, "%s(): argument '%s' is positional-only",
                     s->name, s->param[i].name);
        return false;
    }
    if (b->slot[i] || (i == 1 && b->has_rest)) {
        PyErr_Format(PyExc_TypeError,
                     "%s() got multiple values for argument '%s'", s->name,
                     s->param[i].name);
        return false;
    }
    b->slot[i] = value;
    return true;
}

static bool
bind(bound *b, const ext_spec *s, PyObject *self, PyObject *const *args,
     Py_ssize_t n, PyObject *kw)
{
    Py_ssize_t n_kw = kw ? PyTuple_Size(kw) : 0;

    memset(b, 0, sizeof *b);
    if (!bind_positional(b, s, self, args, n))
        return false;
    for (Py_ssize_t i = 0; i < n_kw; i++)
        if (!bind_keyword(b, s, PyTuple_GetItem(kw, i), args[n + i]))
            return false;
    return true;
}

/* ---- lists of numbers --------------------------------------------------- */

static int
not_int(PyObject *o, const char *function, const char *argument)
{
    PyObject *name = PyType_GetName(Py_TYPE(o));

    PyErr_Format(PyExc_TypeError, "%s(): argument '%s' must be int, not %U",
                 function, argument, name);
    Py_XDECREF(name);
    return -1;
}

static int
one_int(PyObject *o, int64_t *out, const char *function, const char *argument)
{
    PyObject *i = NULL;
    int overflow;

    if (PyFloat_Check(o) || PyBool_Check(o))
        return not_int(o, function, argument);
    if (ext_is_size(o)) {
        mr_scalar s;

        ext_size_scalar(o, &s);
        *out = s.as.i;
        if (s.kind == MR_SCALAR_INT)
            return 1;
        PyErr_Format(PyExc_TypeError,
                     "%s(): argument '%s' must be int, not float", function,
                     argument);
        return -1;
    }
    if (!PyLong_Check(o)) {
        i = PyNumber_Index(o);
        if (!i)
            return PyErr_ExceptionMatches(PyExc_TypeError)
                       ? not_int(o, function, argument)
                       : -1;
    }
    *out = PyLong_AsLongLongAndOverflow(i ? i : o, &overflow);
    Py_XDECREF(i);
    if (overflow) {
        PyErr_Format(PyExc_OverflowError,
                     "%s(): argument '%s' is an int beyond 64 bits", function,
                     argument);
        return -1;
    }
    return 1;
}

int
ext_int_list(PyObject *o, int64_t *out, int cap, const char *function,
             const char *argument)
{
    Py_ssize_t n;

    if (PyLong_Check(o) || PyFloat_Check(o) || PyUnicode_Check(o) ||
        !PySequence_Check(o) ||
        (ext_is_array(o) && mr_array_ndim(ext_x(o)) == 0))
        return one_int(o, out, function, argument);
    n = PySequence_Size(o);
    if (n < 0)
        return -1;
    if (n > cap) {
        PyErr_Format(PyExc_ValueError,
                     "%s(): argument '%s' has more than %d entries", function,
                     argument, cap);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(o, i);
        int r = item ? one_int(item, out + i, function, argument) : -1;
        Py_XDECREF(item);
        if (r < 0)
            return -1;
    }
    return (int)n;
}

/* The same for a list that may hold lists of ints, which are flattened: the
 * pairs of pad, the two lists of tensordot. */
static int
nested_int_list(PyObject *o, int64_t *out, int cap, const char *function,
                const char *argument)
{
    Py_ssize_t size;
    int n = 0;

    if (!PyList_Check(o) && !PyTuple_Check(o))
        return ext_int_list(o, out, cap, function, argument);
    size = PySequence_Size(o);
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = PySequence_GetItem(o, i);
        int r = -1;

        if (item && n >= cap)
            PyErr_Format(PyExc_ValueError,
                         "%s(): argument '%s' has too many entries", function,
                         argument);
        else if (item)
            r = ext_int_list(item, out + n, cap - n, function, argument);
        Py_XDECREF(item);
        if (r < 0)
            return -1;
        n += r;
    }
    return size < 0 ? -1 : n;
}

/* n numbers in the call's room for them, or NULL. */
static int64_t *
room(ext_call *c, int n)
{
    if (c->n_ints + n > EXT_MAX_INTS) {
        PyErr_Format(PyExc_ValueError, "%s(): more than %d numbers in lists",
                     c->spec->name, EXT_MAX_INTS);
        return NULL;
    }
    return c->ints + c->n_ints;
}

static bool
take_ints(ext_call *c, const ext_param *p, ext_value *v, const int64_t *x,
          int n)
{
    c->n_ints += n;
    if (p->kind == EXT_SHAPE) {
        v->shape = (mr_shape){x, n};
    } else if (p->kind == EXT_INTS) {
        v->ints = (mr_ints){x, n};
    } else {
        int32_t *axis = c->axes + (x - c->ints);
        for (int i = 0; i < n; i++) {
            /* which axis it is cannot be symbolic */
            int64_t a =
                mr_size_fix((mr_scalar){MR_SCALAR_INT, {.i = x[i]}}).as.i;
            /* beyond any axis, so that the door refuses it */
            axis[i] = a > INT32_MAX    ? INT32_MAX
                      : a < -INT32_MAX ? -INT32_MAX
                                       : (int32_t)a;
        }
        v->axes = (mr_axes){axis, n};
    }
    return true;
}

static bool
parse_ints(ext_call *c, const ext_param *p, PyObject *o, ext_value *v)
{
    int64_t *x = room(c, 0);
    int n;

    if (o == Py_None && (p->flags & EXT_NULLABLE)) {
        if (p->kind == EXT_AXES)
            v->axes = (mr_axes){NULL, -1};
        else if (p->kind == EXT_SHAPE)
            v->shape = (mr_shape){NULL, -1};
        else
            v->ints = (mr_ints){NULL, -1};
        return true;
    }
    if (!x)
        return false;
    n = (p->kind == EXT_INTS ? nested_int_list : ext_int_list)(
        o, x, EXT_MAX_INTS - c->n_ints, c->spec->name, p->name);
    return n >= 0 && take_ints(c, p, v, x, n);
}

static bool
parse_spread(ext_call *c, const ext_param *p, const bound *b, ext_value *v)
{
    int64_t *x = b->n_rest <= EXT_MAX_INTS ? room(c, (int)b->n_rest) : NULL;

    if (!x) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError,
                         "%s(): %zd numbers, at most %d are possible",
                         c->spec->name, b->n_rest, EXT_MAX_INTS);
        return false;
    }
    for (Py_ssize_t i = 0; i < b->n_rest; i++)
        if (one_int(b->rest[i], x + i, c->spec->name, p->name) < 0)
            return false;
    return take_ints(c, p, v, x, (int)b->n_rest);
}

/* ---- arrays ------------------------------------------------------------- */

static mr_array *
hold(ext_call *c, mr_array *x)
{
    if (x)
        c->held[c->n_held++] = x;
    return x;
}

/* An array of ours, or None where it may be: taken as it is. */
static bool
take_array(ext_call *c, const ext_param *p, PyObject *o, ext_value *v)
{
    if (ext_is_array(o))
        v->array = hold(c, mr_retain(ext_x(o)));
    else if (o == Py_None && (p->flags & EXT_NULLABLE))
        v->array = MR_NONE;
    else
        return false;
    return true;
}

static bool
parse_array(ext_call *c, const ext_param *p, PyObject *o, ext_value *v)
{
    if (take_array(c, p, o, v))
        return true;
    if (ext_is_foreign_array(o) && !ext_is_numpy_scalar(o))
        return (v->array = hold(c, ext_from_foreign(o, MR_DTYPE_DEFAULT))) !=
               NULL;
    return wrong(c->spec, p, o, "array");
}

/* A list or tuple of arrays, or what stands for *args. */
static bool
parse_arrays(ext_call *c, const ext_param *p, PyObject *const *items,
             Py_ssize_t n, ext_value *v)
{
    c->list = n ? malloc((size_t)n * sizeof *c->list) : NULL;
    if (n && !c->list) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        mr_array *x = NULL;
        if (ext_is_array(items[i]))
            x = mr_retain(ext_x(items[i]));
        else if (ext_is_foreign_array(items[i]))
            x = ext_from_foreign(items[i], MR_DTYPE_DEFAULT);
        else
            return wrong(c->spec, p, items[i], "a list of arrays");
        if (!x)
            return false;
        c->list[c->n_list++] = x;
    }
    v->arrays.v = c->list;
    v->arrays.n = (int)n;
    return true;
}

static bool
parse_array_list(ext_call *c, const ext_param *p, PyObject *o, ext_value *v)
{
    PyObject *tuple;
    PyObject **items;
    Py_ssize_t n;
    bool ok = false;

    if (!PyList_Check(o) && !PyTuple_Check(o) &&
        (!ext_is_array(o) || mr_array_ndim(ext_x(o)) == 0))
        return wrong(c->spec, p, o, "a list of arrays");
    tuple = PySequence_Tuple(o);
    if (!tuple)
        return false;
    n = PyTuple_Size(tuple);
    items = malloc((size_t)(n ? n : 1) * sizeof *items);
    if (items) {
        for (Py_ssize_t i = 0; i < n; i++)
            items[i] = PyTuple_GetItem(tuple, i);
        ok = parse_arrays(c, p, items, n, v);
    } else {
        PyErr_NoMemory();
    }
    free(items);
    Py_DECREF(tuple);
    return ok;
}

/* Arrays and what stands for them; numbers wait: *number says so. */
static bool
parse_operand(ext_call *c, const ext_param *p, PyObject *o, ext_value *v,
              bool *number)
{
    int r;

    if (take_array(c, p, o, v))
        return true;
    r = ext_scalar(o, &v->scalar);
    if (r != 0) {
        *number = r > 0;
        return r > 0;
    }
    if (ext_is_foreign_array(o))
        return (v->array = hold(c, ext_from_foreign(o, MR_DTYPE_DEFAULT))) !=
               NULL;
    if (PyList_Check(o) || PyTuple_Check(o) || PyUnicode_Check(o)) {
        wrong(c->spec, p, o, "array or number");
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError,
                     "%s(): argument '%s' must be array or number; make an "
                     "array of the list or text first",
                     c->spec->name, p->name);
        return false;
    }
    return wrong(c->spec, p, o, "array or number");
}

/* ---- the rest ----------------------------------------------------------- */

static bool
parse_float(ext_call *c, const ext_param *p, PyObject *o, double *out)
{
    mr_scalar s;

    if (ext_is_size(o)) {
        ext_size_scalar(o, &s);
        /* a product with 1.0 is the size as a float */
        if (s.kind == MR_SCALAR_INT &&
            mr_size_math(MR_SIZE_MULTIPLY, s,
                         (mr_scalar){MR_SCALAR_FLOAT, {.f = 1.0}}, &s) != MR_OK)
            return ext_raise() != NULL;
        *out = s.as.f;
        return true;
    }
    if (!PyFloat_Check(o) && !PyLong_Check(o) && !PyIndex_Check(o) &&
        !ext_is_numpy_scalar(o) && !ext_is_array(o))
        return wrong(c->spec, p, o, "float");
    *out = PyFloat_AsDouble(o);
    return !(*out == -1.0 && PyErr_Occurred());
}

static bool
parse_int(ext_call *c, const ext_param *p, PyObject *o, int64_t *out)
{
    return one_int(o, out, c->spec->name, p->name) > 0;
}

static bool
parse_axis(ext_call *c, const ext_param *p, PyObject *o, int32_t *out)
{
    int64_t i;

    if (!parse_int(c, p, o, &i))
        return false;
    i = mr_size_fix((mr_scalar){MR_SCALAR_INT, {.i = i}}).as.i;
    if (i > INT32_MAX || i <= INT32_MIN) {
        PyErr_Format(PyExc_IndexError, "%s(): axis %lld is out of range",
                     c->spec->name, (long long)i);
        return false;
    }
    *out = (int32_t)i;
    return true;
}

static bool
parse_null(const ext_param *p, ext_value *v)
{
    if (p->kind == EXT_AXIS)
        v->axis = MR_AXIS_NONE;
    else if (p->kind == EXT_INT || p->kind == EXT_FLAG)
        v->i = MR_INT_NONE;
    else if (p->kind == EXT_FLOAT)
        v->f = NAN;
    else if (p->kind == EXT_DTYPE)
        v->dtype = MR_DTYPE_DEFAULT;
    else
        v->s = NULL;
    return true;
}

static bool
parse_plain(ext_call *c, const ext_param *p, PyObject *o, ext_value *v)
{
    if (o == Py_None && (p->flags & EXT_NULLABLE))
        return parse_null(p, v);
    switch (p->kind) {
    case EXT_AXIS:
        return parse_axis(c, p, o, &v->axis);
    case EXT_INT:
        return parse_int(c, p, o, &v->i);
    case EXT_FLOAT:
        return parse_float(c, p, o, &v->f);
    case EXT_BOOL:
        if (!PyBool_Check(o) && !ext_is_numpy_scalar(o))
            return wrong(c->spec, p, o, "bool");
        v->b = PyObject_IsTrue(o) == 1;
        return !PyErr_Occurred();
    case EXT_FLAG:
        if (!PyBool_Check(o) && !ext_is_numpy_scalar(o))
            return wrong(c->spec, p, o, "bool");
        v->i = PyObject_IsTrue(o) == 1;
        return !PyErr_Occurred();
    case EXT_DTYPE:
        return Py_TYPE(o) == ext.dtype ? ext_dtype_of(o, &v->dtype)
                                       : wrong(c->spec, p, o, "Dtype");
    case EXT_STR:
        if (!PyUnicode_Check(o))
            return wrong(c->spec, p, o, "str");
        v->s = PyUnicode_AsUTF8AndSize(o, NULL);
        return v->s != NULL;
    case EXT_SCALAR: {
        int r = ext_scalar(o, &v->scalar);
        return r == 0 ? wrong(c->spec, p, o, "a number") : r > 0;
    }
    case EXT_ARRAY:
    case EXT_ARRAYLIKE:
    case EXT_CONDITION:
    case EXT_ARRAYS:
    case EXT_AXES:
    case EXT_SHAPE:
    case EXT_INTS:
        break;
    }
    return false;
}

/* The value of an argument that was left out. */
static bool
parse_default(ext_call *c, const ext_param *p, ext_value *v, bool *number)
{
    if (!(p->flags & EXT_DEFAULT)) {
        PyErr_Format(PyExc_TypeError, "%s() missing required argument: '%s'",
                     c->spec->name, p->name);
        return false;
    }
    *v = p->value;
    if (p->kind == EXT_ARRAY)
        v->array = MR_NONE;
    else if (p->kind == EXT_ARRAYLIKE || p->kind == EXT_CONDITION) {
        if (p->flags & EXT_NULLABLE)
            v->array = MR_NONE;
        else
            *number = true;
    }
    return true;
}

static bool
parse_one(ext_call *c, const bound *b, int i, bool *number)
{
    const ext_param *p = &c->spec->param[i];
    PyObject *o = b->slot[i];
    ext_value *v = &c->v[i];

    if (i == c->spec->variadic)
        return parse_arrays(c, p, b->rest, b->n_rest, v);
    if (!o && i == 1 && b->has_rest)
        return parse_spread(c, p, b, v);
    if (!o)
        return parse_default(c, p, v, number);
    switch (p->kind) {
    case EXT_ARRAY:
        return parse_array(c, p, o, v);
    case EXT_ARRAYLIKE:
    case EXT_CONDITION:
        return parse_operand(c, p, o, v, number);
    case EXT_ARRAYS:
        return parse_array_list(c, p, o, v);
    case EXT_AXES:
    case EXT_SHAPE:
    case EXT_INTS:
        return parse_ints(c, p, o, v);
    case EXT_AXIS:
    case EXT_INT:
    case EXT_FLOAT:
    case EXT_BOOL:
    case EXT_FLAG:
    case EXT_DTYPE:
    case EXT_STR:
    case EXT_SCALAR:
        break;
    }
    return parse_plain(c, p, o, v);
}

/* Does the call speak of 64-bit floats, by an array or a dtype? */
static bool
is_wide_call(const ext_call *c)
{
    for (int i = 0; i < c->spec->n; i++) {
        mr_dtype t = MR_BOOL;
        if (c->spec->param[i].kind == EXT_DTYPE)
            t = c->v[i].dtype;
        else if (c->spec->param[i].kind == EXT_ARRAY && c->v[i].array &&
                 c->v[i].array != MR_NONE)
            t = mr_array_dtype(c->v[i].array);
        if (t == MR_FLOAT64 || t == MR_COMPLEX128)
            return true;
    }
    return false;
}

/* The dtype of a number that has no operand beside it: its own, but with all
 * of its digits where the function will want them (full in float64). */
static mr_dtype
lone_dtype(const ext_call *c, const mr_scalar *number)
{
    mr_dtype t = ext_scalar_dtype(number);

    if ((t == MR_FLOAT32 || t == MR_COMPLEX64) && is_wide_call(c))
        return t == MR_FLOAT32 ? MR_FLOAT64 : MR_COMPLEX128;
    return t;
}

/* Numbers take the dtype of the arrays beside them, as far as their kind
 * allows; alone each takes its own. */
static bool
settle_numbers(ext_call *c, uint32_t numbers)
{
    const ext_spec *s = c->spec;
    bool any = false;
    mr_dtype t = MR_BOOL;

    for (int i = 0; i < s->n; i++) {
        mr_dtype u;
        if (s->param[i].kind != EXT_ARRAYLIKE || (numbers >> i & 1u) ||
            c->v[i].array == MR_NONE)
            continue;
        u = mr_array_dtype(c->v[i].array);
        t = any ? mr_promote_types(t, u) : u;
        any = true;
    }
    for (int i = 0; i < s->n; i++) {
        mr_scalar number;
        mr_dtype u;
        if (!(numbers >> i & 1u))
            continue;
        number = c->v[i].scalar;
        u = any && s->param[i].kind == EXT_ARRAYLIKE
                ? mr_promote_scalar(t, number.kind)
                : lone_dtype(c, &number);
        c->v[i].array = hold(c, ext_scalar_array(c->site, &number, u));
        if (!c->v[i].array)
            return false;
    }
    return true;
}

static bool
parse(ext_call *c, const bound *b)
{
    uint32_t numbers = 0;

    for (int i = 0; i < c->spec->n; i++) {
        bool number = false;
        if (!parse_one(c, b, i, &number))
            return false;
        if (number)
            numbers |= (uint32_t)1 << i;
    }
    if (b->stream && b->stream != Py_None) {
        mr_stream s;
        if (!ext_stream_of(b->stream, &s))
            return false;
        c->old_stream = mr_stream_scope(s);
        c->has_stream = true;
    }
    return numbers == 0 || settle_numbers(c, numbers);
}

/* ---- calls -------------------------------------------------------------- */

PyObject *
ext_run(const ext_spec *spec, PyObject *self, PyObject *const *args,
        Py_ssize_t n, PyObject *kw)
{
    ext_call c;
    bound b;

    c.spec = spec;
    c.has_stream = false;
    c.n_held = c.n_ints = c.n_list = 0;
    c.list = NULL;
    if (!bind(&b, spec, self, args, n, kw))
        return NULL;
    c.site = ext_site();
    if (!parse(&c, &b) || (b.extras.n && !ext_standard_before(&c, &b.extras))) {
        ext_end(&c);
        return PyErr_Occurred() ? NULL : ext_raise();
    }
    if (b.extras.n)
        return ext_standard_after(&c, &b.extras, spec->call(&c));
    return spec->call(&c);
}

void
ext_end(ext_call *c)
{
    if (c->has_stream)
        mr_stream_scope(c->old_stream);
    for (int i = 0; i < c->n_held; i++)
        mr_release(c->held[i]);
    for (int i = 0; i < c->n_list; i++)
        mr_release(c->list[i]);
    free(c->list);
}

PyObject *
ext_array(ext_call *c, mr_array *result)
{
    ext_end(c);
    return ext_wrap(result);
}

/* A tuple or list of the arrays; a tree that is one leaf gives the array. */
static PyObject *
end_tree(ext_call *c, mr_tree *t, PyObject *(*new)(Py_ssize_t),
         int (*set)(PyObject *, Py_ssize_t, PyObject *))
{
    ext_leaves l = {0};
    PyObject *out = NULL;

    ext_end(c);
    if (!t)
        return ext_raise();
    if (mr_tree_kind_of(t) == MR_TREE_LEAF) {
        out = ext_wrap(mr_retain(mr_tree_array(t)));
        mr_tree_release(t);
        return out;
    }
    if (ext_tree_leaves(t, &l))
        out = new (l.n);
    for (int i = 0; out && i < l.n; i++) {
        PyObject *o = ext_wrap(mr_retain(l.x[i]));
        if (!o || set(out, i, o) < 0)
            Py_CLEAR(out);
    }
    ext_leaves_free(&l);
    mr_tree_release(t);
    return out;
}

PyObject *
ext_tuple(ext_call *c, mr_tree *result)
{
    PyObject *r = end_tree(c, result, PyTuple_New, PyTuple_SetItem);

    return r && PyTuple_Check(r) ? ext_standard_named(c->spec->name, r) : r;
}

PyObject *
ext_list(ext_call *c, mr_tree *result)
{
    return end_tree(c, result, PyList_New, PyList_SetItem);
}
