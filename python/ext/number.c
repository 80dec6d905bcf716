/* SPDX-License-Identifier: Apache-2.0
 *
 * number.c -- the operators of the array type.
 *
 * Two arrays take the short way: a site, the front door, an object.  Beside an
 * array a number is weak and a NumPy array is converted; lists and text are
 * refused; for other objects the interpreter asks their reflected operator.
 */
#include "ext.h"

#include "marram/marram.h"

typedef mr_array *(*binary_door)(const char *site, mr_array *a, mr_array *b);
typedef mr_array *(*unary_door)(const char *site, mr_array *a);

/* One side is an array.  NULL without an exception: not an operand. */
static mr_array *
mixed(PyObject *a, PyObject *b, binary_door door)
{
    const char *site = ext_site();
    bool left = ext_is_array(a);
    PyObject *other = left ? b : a;
    mr_array *x = mr_retain(ext_x(left ? a : b)), *y, *r = NULL;

    y = ext_operand(site, other, mr_array_dtype(x));
    if (y) {
        r = left ? door(site, x, y) : door(site, y, x);
        if (!r)
            ext_raise();
    } else if (!PyErr_Occurred() && mr_error_last().code != MR_OK) {
        ext_raise();
    }
    mr_release(y);
    mr_release(x);
    return r;
}

static PyObject *
binary(PyObject *a, PyObject *b, binary_door door)
{
    mr_array *r;

    if (ext_is_array(a) && ext_is_array(b))
        return ext_wrap(door(ext_site(), ext_x(a), ext_x(b)));
    r = mixed(a, b, door);
    if (r)
        return ext_wrap(r);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NOTIMPLEMENTED;
}

/* a is an array: the object takes the result. */
static PyObject *
in_place(PyObject *a, PyObject *b, binary_door door)
{
    mr_array *r = ext_is_array(b) ? door(ext_site(), ext_x(a), ext_x(b))
                                  : mixed(a, b, door);

    if (r && ext_eager_depth > 0 && !ext_settle(r)) {
        mr_release(r);
        return ext_raise();
    }
    if (r) {
        ext_rebind(a, r);
        return Py_NewRef(a);
    }
    if (ext_is_array(b))
        return ext_raise();
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NOTIMPLEMENTED;
}

static PyObject *
unary(PyObject *a, unary_door door)
{
    return ext_wrap(door(ext_site(), ext_x(a)));
}

/* ---- one function for each slot ----------------------------------------- */

static PyObject *
add(PyObject *a, PyObject *b)
{
    return binary(a, b, mr_add_at);
}

static PyObject *
subtract(PyObject *a, PyObject *b)
{
    return binary(a, b, mr_subtract_at);
}

static PyObject *
multiply(PyObject *a, PyObject *b)
{
    return binary(a, b, mr_multiply_at);
}

static PyObject *
true_divide(PyObject *a, PyObject *b)
{
    return binary(a, b, mr_divide_at);
}

static PyObject *
floor_divide(PyObject *a, PyObject *b)
{
    return binary(a, b, mr_floor_divide_at);
}

static PyObject *
remainder_of(PyObject *a, PyObject *b)
{
    return binary(a, b, mr_remainder_at);
}

static PyObject *
matrix_multiply(PyObject *a, PyObject *b)
{
    return binary(a, b, mr_matmul_at);
}

static PyObject *
lshift(PyObject *a, PyObject *b)
{
    return binary(a, b, mr_left_shift_at);
}

static PyObject *
rshift(PyObject *a, PyObject *b)
{
    return binary(a, b, mr_right_shift_at);
}

static PyObject *
and_(PyObject *a, PyObject *b)
{
    return binary(a, b, mr_bitwise_and_at);
}

static PyObject *
or_(PyObject *a, PyObject *b)
{
    return binary(a, b, mr_bitwise_or_at);
}

static PyObject *
xor_(PyObject *a, PyObject *b)
{
    return binary(a, b, mr_bitwise_xor_at);
}

static bool
no_modulus(PyObject *m)
{
    if (m != Py_None)
        PyErr_SetString(PyExc_TypeError,
                        "pow() of arrays takes no third argument");
    return m == Py_None;
}

/* x ** 2 with a plain number is a product, thirty times faster than a power.
 * The exponent is part of the program, so compiled code does the same. */
static bool
is_square(PyObject *a, PyObject *b)
{
    mr_dtype t;

    if (!ext_is_array(a))
        return false;
    t = mr_array_dtype(ext_x(a));
    if (PyLong_CheckExact(b))
        return t != MR_BOOL && PyLong_AsLong(b) == 2;
    return PyFloat_CheckExact(b) && mr_dtype_is_inexact(t) &&
           PyFloat_AsDouble(b) == 2.0;
}

static PyObject *
power(PyObject *a, PyObject *b, PyObject *m)
{
    if (!no_modulus(m))
        return NULL;
    if (is_square(a, b))
        return unary(a, mr_square_at);
    PyErr_Clear(); /* an exponent beyond long */
    return binary(a, b, mr_power_at);
}

static PyObject *
divmod_(PyObject *a, PyObject *b)
{
    PyObject *q = floor_divide(a, b), *r, *pair;

    if (!q || q == Py_NotImplemented)
        return q;
    r = remainder_of(a, b);
    pair = r ? PyTuple_Pack(2, q, r) : NULL;
    Py_XDECREF(r);
    Py_DECREF(q);
    return pair;
}

static PyObject *
add_in(PyObject *a, PyObject *b)
{
    return in_place(a, b, mr_add_at);
}

static PyObject *
subtract_in(PyObject *a, PyObject *b)
{
    return in_place(a, b, mr_subtract_at);
}

static PyObject *
multiply_in(PyObject *a, PyObject *b)
{
    return in_place(a, b, mr_multiply_at);
}

static PyObject *
true_divide_in(PyObject *a, PyObject *b)
{
    if (!mr_dtype_is_inexact(mr_array_dtype(ext_x(a)))) {
        PyErr_Format(PyExc_ValueError,
                     "/= of an array of %s would change its dtype; use //= or "
                     "x = x / y",
                     mr_dtype_name(mr_array_dtype(ext_x(a))));
        return NULL;
    }
    return in_place(a, b, mr_divide_at);
}

static PyObject *
floor_divide_in(PyObject *a, PyObject *b)
{
    return in_place(a, b, mr_floor_divide_at);
}

static PyObject *
remainder_in(PyObject *a, PyObject *b)
{
    return in_place(a, b, mr_remainder_at);
}

static PyObject *
power_in(PyObject *a, PyObject *b, PyObject *m)
{
    return no_modulus(m) ? in_place(a, b, mr_power_at) : NULL;
}

static PyObject *
matrix_multiply_in(PyObject *a, PyObject *b)
{
    return in_place(a, b, mr_matmul_at);
}

static PyObject *
lshift_in(PyObject *a, PyObject *b)
{
    return in_place(a, b, mr_left_shift_at);
}

static PyObject *
rshift_in(PyObject *a, PyObject *b)
{
    return in_place(a, b, mr_right_shift_at);
}

static PyObject *
and_in(PyObject *a, PyObject *b)
{
    return in_place(a, b, mr_bitwise_and_at);
}

static PyObject *
or_in(PyObject *a, PyObject *b)
{
    return in_place(a, b, mr_bitwise_or_at);
}

static PyObject *
xor_in(PyObject *a, PyObject *b)
{
    return in_place(a, b, mr_bitwise_xor_at);
}

static PyObject *
negative(PyObject *a)
{
    return unary(a, mr_negative_at);
}

static PyObject *
positive(PyObject *a)
{
    return ext_wrap(mr_retain(ext_x(a)));
}

static PyObject *
absolute(PyObject *a)
{
    return unary(a, mr_abs_at);
}

static PyObject *
invert(PyObject *a)
{
    return unary(a, mr_bitwise_invert_at);
}

/* ---- comparing ---------------------------------------------------------- */

static binary_door
door_of(int op)
{
    switch (op) {
    case Py_LT:
        return mr_less_at;
    case Py_LE:
        return mr_less_equal_at;
    case Py_EQ:
        return mr_equal_at;
    case Py_NE:
        return mr_not_equal_at;
    case Py_GT:
        return mr_greater_at;
    default:
        return mr_greater_equal_at;
    }
}

/* Equality with what is no operand is plain False, but None is a mistake. */
PyObject *
ext_richcompare(PyObject *a, PyObject *b, int op)
{
    bool equality = op == Py_EQ || op == Py_NE;
    mr_array *r;

    if (ext_is_array(b))
        return ext_wrap(door_of(op)(ext_site(), ext_x(a), ext_x(b)));
    if (b == Py_None) {
        PyErr_SetString(PyExc_TypeError,
                        "cannot compare an array with None; use 'is None'");
        return NULL;
    }
    if (equality && (PyUnicode_Check(b) || PyList_Check(b) ||
                     PyTuple_Check(b) || PyDict_Check(b)))
        return PyBool_FromLong(op == Py_NE);
    r = mixed(a, b, door_of(op));
    if (r)
        return ext_wrap(r);
    if (PyErr_Occurred())
        return NULL;
    if (equality)
        return PyBool_FromLong(op == Py_NE);
    Py_RETURN_NOTIMPLEMENTED;
}

/* ---- numbers of arrays -------------------------------------------------- */

static int
nonzero(PyObject *self)
{
    mr_scalar s;

    if (!ext_item(self, &s))
        return -1;
    switch (s.kind) {
    case MR_SCALAR_BOOL:
        return s.as.b;
    case MR_SCALAR_INT:
        return s.as.i != 0;
    case MR_SCALAR_UINT:
        return s.as.u != 0;
    case MR_SCALAR_FLOAT:
        return s.as.f < 0.0 || s.as.f > 0.0 || isnan(s.as.f);
    case MR_SCALAR_COMPLEX:
        break;
    }
    return !(fabs(s.as.c.re) <= 0.0 && fabs(s.as.c.im) <= 0.0);
}

static PyObject *
as_int(PyObject *self)
{
    mr_scalar s;
    PyObject *v, *i;

    if (!ext_item(self, &s) || !ext_warn_traced(ext_x(self)))
        return NULL;
    v = ext_scalar_object(&s);
    i = v ? PyNumber_Long(v) : NULL; /* complex: Python's own TypeError */
    Py_XDECREF(v);
    return i;
}

static PyObject *
as_float(PyObject *self)
{
    mr_scalar s;
    PyObject *v, *f;

    if (!ext_item(self, &s) || !ext_warn_traced(ext_x(self)))
        return NULL;
    v = ext_scalar_object(&s);
    f = v ? PyNumber_Float(v) : NULL;
    Py_XDECREF(v);
    return f;
}

static PyObject *
as_index(PyObject *self)
{
    mr_array *x = ext_x(self);

    if (mr_array_ndim(x) != 0 || !mr_dtype_is_integer(mr_array_dtype(x))) {
        PyErr_Format(PyExc_TypeError,
                     "only a 0-d integer array can be an index, not one of %s "
                     "with %d axes",
                     mr_dtype_name(mr_array_dtype(x)), (int)mr_array_ndim(x));
        return NULL;
    }
    return as_int(self);
}

PyType_Slot ext_number_slots[] = {
    {Py_nb_add, add},
    {Py_nb_subtract, subtract},
    {Py_nb_multiply, multiply},
    {Py_nb_true_divide, true_divide},
    {Py_nb_floor_divide, floor_divide},
    {Py_nb_remainder, remainder_of},
    {Py_nb_divmod, divmod_},
    {Py_nb_power, power},
    {Py_nb_matrix_multiply, matrix_multiply},
    {Py_nb_lshift, lshift},
    {Py_nb_rshift, rshift},
    {Py_nb_and, and_},
    {Py_nb_or, or_},
    {Py_nb_xor, xor_},
    {Py_nb_inplace_add, add_in},
    {Py_nb_inplace_subtract, subtract_in},
    {Py_nb_inplace_multiply, multiply_in},
    {Py_nb_inplace_true_divide, true_divide_in},
    {Py_nb_inplace_floor_divide, floor_divide_in},
    {Py_nb_inplace_remainder, remainder_in},
    {Py_nb_inplace_power, power_in},
    {Py_nb_inplace_matrix_multiply, matrix_multiply_in},
    {Py_nb_inplace_lshift, lshift_in},
    {Py_nb_inplace_rshift, rshift_in},
    {Py_nb_inplace_and, and_in},
    {Py_nb_inplace_or, or_in},
    {Py_nb_inplace_xor, xor_in},
    {Py_nb_negative, negative},
    {Py_nb_positive, positive},
    {Py_nb_absolute, absolute},
    {Py_nb_invert, invert},
    {Py_nb_bool, nonzero},
    {Py_nb_int, as_int},
    {Py_nb_float, as_float},
    {Py_nb_index, as_index},
    {0, NULL},
};
