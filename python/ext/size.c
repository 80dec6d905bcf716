/* SPDX-License-Identifier: Apache-2.0
 *
 * size.c -- the sizes that x.shape has inside a shapeless trace.
 *
 * A size computes with numbers and other sizes, is compared (which the trace
 * remembers) and goes where functions take sizes or numbers.  It is no int:
 * what needs a plain one would hold for a single shape, so it is an error that
 * names the line.  After its trace a size is the number that it was.
 *
 * Called by: array_methods.c, args.c, convert.c, index_parse.c.
 */
#include "ext.h"

#include "marram/marram.h"

typedef struct size_object {
    PyObject_HEAD mr_scalar size; /* a handle */
    mr_scalar value;              /* what it is in its trace */
} size_object;

static PyTypeObject *size_type;

bool
ext_is_size(PyObject *o)
{
    return Py_TYPE(o) == size_type;
}

void
ext_size_scalar(PyObject *o, mr_scalar *out)
{
    const size_object *s = (const size_object *)o;

    *out = mr_size_is_symbolic(s->size) ? s->size : s->value;
}

PyObject *
ext_size_object(mr_scalar s)
{
    size_object *o;

    if (!mr_size_is_symbolic(s))
        return ext_scalar_object(&s);
    o = (size_object *)PyType_GenericAlloc(size_type, 0);
    if (o) {
        o->size = s;
        o->value = mr_size_value(s);
    }
    return (PyObject *)o;
}

PyObject *
ext_dim_object(const mr_array *x, int axis)
{
    mr_scalar s = {MR_SCALAR_INT, {.i = mr_dim(x, axis)}};

    return s.as.i == -1 ? ext_raise() : ext_size_object(s);
}

PyObject *
ext_size_fixed(PyObject *o)
{
    size_object *s = (size_object *)o;

    if (mr_size_is_symbolic(s->size))
        mr_size_fix(s->size);
    return ext_scalar_object(&s->value);
}

/* ---- what needs a plain number ------------------------------------------ */

bool
ext_size_refuse(PyObject *o, const char *what)
{
    const char *site = ext_site();

    PyErr_Format(ext.state_error,
                 "a size of a shapeless trace (here %S) cannot become %s%s%s: "
                 "that would freeze it. Compute with the size itself, or pass "
                 "the number as an argument",
                 o, what, site[0] ? " at " : "", site);
    return false;
}

static PyObject *
plain(PyObject *o, const char *what, bool as_float)
{
    const size_object *s = (const size_object *)o;
    PyObject *v, *r;

    if (mr_size_is_symbolic(s->size)) {
        ext_size_refuse(o, what);
        return NULL;
    }
    v = ext_scalar_object(&s->value);
    r = v ? (as_float ? PyNumber_Float(v) : PyNumber_Long(v)) : NULL;
    Py_XDECREF(v);
    return r;
}

static PyObject *
size_int(PyObject *o)
{
    return plain(o, "a plain int", false);
}

static PyObject *
size_index(PyObject *o)
{
    if (((size_object *)o)->value.kind == MR_SCALAR_INT)
        return plain(o, "a plain int", false);
    PyErr_SetString(PyExc_TypeError, "a float is no index");
    return NULL;
}

static PyObject *
size_float(PyObject *o)
{
    return plain(o, "a plain float", true);
}

static Py_hash_t
size_hash(PyObject *o)
{
    PyObject *v = plain(o, "the key of a dict or set", true);
    Py_hash_t h = v ? PyObject_Hash(v) : -1;

    Py_XDECREF(v);
    return h;
}

static PyObject *
size_repr(PyObject *o)
{
    PyObject *v = ext_scalar_object(&((size_object *)o)->value);
    PyObject *r = v ? PyObject_Repr(v) : NULL;

    Py_XDECREF(v);
    return r;
}

/* ---- arithmetic --------------------------------------------------------- */

/* A size or a number; 0: neither, -1: an exception. */
static int
operand(PyObject *o, mr_scalar *out)
{
    if (ext_is_array(o) || PyComplex_Check(o))
        return 0;
    return ext_scalar(o, out);
}

static bool
divides(mr_size_op op)
{
    return op == MR_SIZE_DIVIDE || op == MR_SIZE_FLOOR_DIVIDE ||
           op == MR_SIZE_REMAINDER;
}

static PyObject *
math(PyObject *a, PyObject *b, mr_size_op op)
{
    mr_scalar x, y, r;
    int left = operand(a, &x), right = left > 0 ? operand(b, &y) : left;

    if (left <= 0 || right <= 0) {
        if (left < 0 || right < 0)
            return NULL;
        Py_RETURN_NOTIMPLEMENTED;
    }
    if (divides(op) && mr_size_compare(y, MR_SIZE_EQUAL,
                                       (mr_scalar){MR_SCALAR_INT, {.i = 0}})) {
        PyErr_SetString(PyExc_ZeroDivisionError, "a size is divided by zero");
        return NULL;
    }
    if (mr_size_math(op, x, y, &r) != MR_OK)
        return ext_raise();
    return ext_size_object(r);
}

static PyObject *
size_add(PyObject *a, PyObject *b)
{
    return math(a, b, MR_SIZE_ADD);
}

static PyObject *
size_subtract(PyObject *a, PyObject *b)
{
    return math(a, b, MR_SIZE_SUBTRACT);
}

static PyObject *
size_multiply(PyObject *a, PyObject *b)
{
    return math(a, b, MR_SIZE_MULTIPLY);
}

static PyObject *
size_floor_divide(PyObject *a, PyObject *b)
{
    return math(a, b, MR_SIZE_FLOOR_DIVIDE);
}

static PyObject *
size_true_divide(PyObject *a, PyObject *b)
{
    return math(a, b, MR_SIZE_DIVIDE);
}

static PyObject *
size_remainder(PyObject *a, PyObject *b)
{
    return math(a, b, MR_SIZE_REMAINDER);
}

static PyObject *
size_divmod(PyObject *a, PyObject *b)
{
    PyObject *q = math(a, b, MR_SIZE_FLOOR_DIVIDE), *r, *pair = NULL;

    if (!q || q == Py_NotImplemented)
        return q;
    r = math(a, b, MR_SIZE_REMAINDER);
    if (r)
        pair = PyTuple_Pack(2, q, r);
    Py_DECREF(q);
    Py_XDECREF(r);
    return pair;
}

static PyObject *
size_power(PyObject *a, PyObject *b, PyObject *modulus)
{
    if (modulus != Py_None)
        Py_RETURN_NOTIMPLEMENTED;
    return math(a, b, MR_SIZE_POWER);
}

static PyObject *
size_negative(PyObject *o)
{
    PyObject *zero = PyLong_FromLong(0), *r = NULL;

    if (zero)
        r = math(zero, o, MR_SIZE_SUBTRACT);
    Py_XDECREF(zero);
    return r;
}

static PyObject *
size_positive(PyObject *o)
{
    return Py_NewRef(o);
}

static PyObject *
size_absolute(PyObject *o)
{
    PyObject *negative = size_negative(o), *r = NULL;

    if (negative)
        r = math(o, negative, MR_SIZE_MAXIMUM);
    Py_XDECREF(negative);
    return r;
}

/* ---- comparisons -------------------------------------------------------- */

static int
size_bool(PyObject *o)
{
    mr_scalar s;

    ext_size_scalar(o, &s);
    return mr_size_compare(s, MR_SIZE_NOT_EQUAL,
                           (mr_scalar){MR_SCALAR_INT, {.i = 0}});
}

static PyObject *
size_compare(PyObject *a, PyObject *b, int op)
{
    static const mr_size_relation relation[] = {
        [Py_LT] = MR_SIZE_LESS,    [Py_LE] = MR_SIZE_LESS_EQUAL,
        [Py_EQ] = MR_SIZE_EQUAL,   [Py_NE] = MR_SIZE_NOT_EQUAL,
        [Py_GT] = MR_SIZE_GREATER, [Py_GE] = MR_SIZE_GREATER_EQUAL,
    };
    mr_scalar x, y;
    int r = operand(b, &y);

    if (r < 0)
        return NULL;
    if (r == 0)
        Py_RETURN_NOTIMPLEMENTED;
    ext_size_scalar(a, &x);
    return PyBool_FromLong(mr_size_compare(x, relation[op], y));
}

static void
size_dealloc(PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);

    PyObject_Free(o);
    Py_DECREF(type);
}

static PyType_Slot size_slots[] = {
    {Py_tp_doc, EXT_DOC("A size inside a shapeless trace.")},
    {Py_tp_dealloc, size_dealloc},
    {Py_tp_hash, size_hash},
    {Py_tp_repr, size_repr},
    {Py_tp_richcompare, size_compare},
    {Py_nb_add, size_add},
    {Py_nb_subtract, size_subtract},
    {Py_nb_multiply, size_multiply},
    {Py_nb_floor_divide, size_floor_divide},
    {Py_nb_true_divide, size_true_divide},
    {Py_nb_remainder, size_remainder},
    {Py_nb_divmod, size_divmod},
    {Py_nb_power, size_power},
    {Py_nb_negative, size_negative},
    {Py_nb_positive, size_positive},
    {Py_nb_absolute, size_absolute},
    {Py_nb_bool, size_bool},
    {Py_nb_int, size_int},
    {Py_nb_index, size_index},
    {Py_nb_float, size_float},
    {0, NULL},
};

int
ext_init_size(void)
{
    PyType_Spec spec = {"marram.core._Size", sizeof(size_object), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        size_slots};

    size_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return size_type ? 0 : -1;
}
