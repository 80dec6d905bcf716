/* SPDX-License-Identifier: Apache-2.0
 *
 * size.c -- sizes of a shapeless trace: handles, and their arithmetic.
 *
 * A handle is an integer, or a NaN, of a pattern that no size has, with the
 * number of a size on the open tape in its low bits.  Outside a trace
 * everything here works on plain numbers.
 *
 * Called by: users, bindings, tape.c, play.c.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "graph/node.h"
#include "graph/tape_steps.h"
#include "marram/array.h"
#include "marram/error.h"

/* Twenty bits that mark a handle: no size, and no sum of sizes, comes near the
 * integer.  Then twenty of the tape's serial number, so that what outlived
 * its trace is not taken for a size of another, and twenty-four of the index.
 */
#define HANDLE       ((uint64_t)0x6d617 << 44)
#define HANDLE_NAN   ((uint64_t)0x7ffcd << 44)
#define HANDLE_MASK  (~(uint64_t)0 << 24)
#define HANDLE_INDEX (~HANDLE_MASK)
#define SERIAL_MASK  ((uint64_t)0xfffff << 24)

/* ---- handles --------------------------------------------------------------
 */

static mr_scalar
handle(const mr_tape *t, size_t index, bool is_float)
{
    uint64_t bits =
        (is_float ? HANDLE_NAN : HANDLE) | t->serial | (uint64_t)index;
    mr_scalar s = {.kind = is_float ? MR_SCALAR_FLOAT : MR_SCALAR_INT};

    memcpy(&s.as, &bits, sizeof bits);
    return s;
}

/* The number of a size on t, or -1. */
static int64_t
handle_index(const mr_tape *t, mr_scalar v)
{
    uint64_t bits, want;

    if (t == NULL || (v.kind != MR_SCALAR_INT && v.kind != MR_SCALAR_FLOAT))
        return -1;
    memcpy(&bits, &v.as, sizeof bits);
    want = (v.kind == MR_SCALAR_INT ? HANDLE : HANDLE_NAN) | t->serial;
    if ((bits & HANDLE_MASK) != want || (bits & HANDLE_INDEX) >= t->sizes.n)
        return -1;
    return (int64_t)(bits & HANDLE_INDEX);
}

bool
mr__tape_is_size(mr_scalar v)
{
    return handle_index(mr__ctx.tape, v) >= 0;
}

mr_scalar
mr__size_now(const mr_sizes *s, mr_scalar v)
{
    int64_t i = handle_index(s->t, v);

    if (i < 0)
        return v;
    return s->now != NULL ? s->now[i] : *(mr_scalar *)s->t->sizes.v[i];
}

/* ---- arithmetic -----------------------------------------------------------
 */

double
mr__size_double(mr_scalar v)
{
    switch (v.kind) {
    case MR_SCALAR_FLOAT:
        return v.as.f;
    case MR_SCALAR_UINT:
        return (double)v.as.u;
    case MR_SCALAR_BOOL:
        return v.as.b;
    case MR_SCALAR_INT:
    case MR_SCALAR_COMPLEX:
        break;
    }
    return (double)v.as.i;
}

static mr_code
too_large(void)
{
    return mr__fail(MR_E_OVERFLOW, "a size beyond 64 bits");
}

static mr_code
by_zero(void)
{
    return mr__fail(MR_E_VALUE, "a size is divided by zero");
}

static mr_code
int_power(int64_t a, int64_t b, int64_t *out)
{
    int64_t r = 1;

    for (; b > 0 && r != 0 && !(a == 1); b--)
        if (__builtin_mul_overflow(r, a, &r))
            return too_large();
    *out = r;
    return MR_OK;
}

static int64_t
floor_divide(int64_t a, int64_t b)
{
    int64_t q = a / b;

    return q - (a % b != 0 && (a < 0) != (b < 0));
}

static mr_code
int_math(mr_size_op op, int64_t a, int64_t b, mr_scalar *out)
{
    int64_t r = 0;
    mr_code code = MR_OK;

    switch (op) {
    case MR_SIZE_ADD:
        code = __builtin_add_overflow(a, b, &r) ? too_large() : MR_OK;
        break;
    case MR_SIZE_SUBTRACT:
        code = __builtin_sub_overflow(a, b, &r) ? too_large() : MR_OK;
        break;
    case MR_SIZE_MULTIPLY:
        code = __builtin_mul_overflow(a, b, &r) ? too_large() : MR_OK;
        break;
    case MR_SIZE_FLOOR_DIVIDE:
    case MR_SIZE_REMAINDER:
        if (b == 0)
            return by_zero();
        if (a == INT64_MIN && b == -1)
            return too_large();
        r = floor_divide(a, b);
        r = op == MR_SIZE_FLOOR_DIVIDE ? r : a - r * b;
        break;
    case MR_SIZE_POWER:
        if (b >= 0) {
            code = int_power(a, b, &r);
            break;
        }
        *out = mr__size_real(pow((double)a, (double)b));
        return MR_OK;
    case MR_SIZE_DIVIDE:
        if (b == 0)
            return by_zero();
        *out = mr__size_real((double)a / (double)b);
        return MR_OK;
    case MR_SIZE_MINIMUM:
        r = a < b ? a : b;
        break;
    case MR_SIZE_MAXIMUM:
        r = a > b ? a : b;
        break;
    }
    *out = mr__size_integer(r);
    return code;
}

static mr_code
float_math(mr_size_op op, double a, double b, mr_scalar *out)
{
    double r = 0;

    switch (op) {
    case MR_SIZE_ADD:
        r = a + b;
        break;
    case MR_SIZE_SUBTRACT:
        r = a - b;
        break;
    case MR_SIZE_MULTIPLY:
        r = a * b;
        break;
    case MR_SIZE_FLOOR_DIVIDE:
    case MR_SIZE_REMAINDER:
    case MR_SIZE_DIVIDE:
        if (b == 0)
            return by_zero();
        r = op == MR_SIZE_DIVIDE ? a / b : floor(a / b);
        r = op == MR_SIZE_REMAINDER ? a - r * b : r;
        break;
    case MR_SIZE_POWER:
        r = pow(a, b);
        break;
    case MR_SIZE_MINIMUM:
        r = b < a ? b : a;
        break;
    case MR_SIZE_MAXIMUM:
        r = b > a ? b : a;
        break;
    }
    *out = mr__size_real(r);
    return MR_OK;
}

mr_code
mr__size_compute(mr_size_op op, mr_scalar a, mr_scalar b, mr_scalar *out)
{
    if (a.kind == MR_SCALAR_COMPLEX || b.kind == MR_SCALAR_COMPLEX)
        return mr__fail(MR_E_VALUE, "a size and a complex number");
    if (a.kind == MR_SCALAR_BOOL)
        a = mr__size_integer(a.as.b);
    if (b.kind == MR_SCALAR_BOOL)
        b = mr__size_integer(b.as.b);
    if (a.kind == MR_SCALAR_INT && b.kind == MR_SCALAR_INT)
        return int_math(op, a.as.i, b.as.i, out);
    return float_math(op, mr__size_double(a), mr__size_double(b), out);
}

bool
mr__size_holds(mr_scalar a, mr_size_relation r, mr_scalar b)
{
    bool exact = a.kind == MR_SCALAR_INT && b.kind == MR_SCALAR_INT;
    double x = mr__size_double(a), y = mr__size_double(b);
    bool less = exact ? a.as.i < b.as.i : x < y;
    bool greater = exact ? a.as.i > b.as.i : x > y;
    bool equal = exact ? a.as.i == b.as.i : x == y;

    switch (r) {
    case MR_SIZE_LESS:
        return less;
    case MR_SIZE_LESS_EQUAL:
        return less || equal;
    case MR_SIZE_EQUAL:
        return equal;
    case MR_SIZE_NOT_EQUAL:
        return !equal;
    case MR_SIZE_GREATER:
        return greater;
    case MR_SIZE_GREATER_EQUAL:
        return greater || equal;
    }
    return false;
}

uint64_t
mr__size_serial(void)
{
    static _Atomic uint64_t next; /* relaxed: a counter */

    return atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) << 24 &
           SERIAL_MASK;
}

/* ---- sizes while a tape is open --------------------------------------------
 */

bool
mr_size_tracing(void)
{
    return mr__tape_is_open(mr__ctx.tape);
}

/* A size of value v, from a step of this kind.  Without memory it is a plain
 * number, and the tape is frozen. */
static mr_tape_step *
add_size(mr_tape *t, mr_tape_step_kind kind, mr_scalar v, mr_scalar *out)
{
    bool pending = mr__error_pending();
    mr_scalar *kept = mr__arena_alloc(&t->arena, sizeof *kept);
    mr_tape_step *s = kept != NULL ? mr__tape_step(t, kind) : NULL;

    *out = v;
    if (s == NULL || !mr__vec_push(&t->sizes, kept)) {
        mr__tape_freeze(t, "no memory");
        if (!pending)
            mr_error_take();
        return NULL;
    }
    *kept = v;
    *out = handle(t, t->sizes.n - 1, v.kind == MR_SCALAR_FLOAT);
    return s;
}

int64_t
mr_dim(const mr_array *x, int axis)
{
    mr_tape *t = mr__ctx.tape;
    int64_t v, i;
    mr_scalar out;
    mr_tape_step *s;

    mr__ctx.tape = NULL; /* not a read */
    v = mr_array_dim(x, axis);
    mr__ctx.tape = t;
    if (v < 0 || t == NULL)
        return v;
    i = mr__tape_number(t, x);
    if (!mr__tape_is_open(t) || i < 0) {
        mr__tape_read(x);
        return v;
    }
    s = add_size(t, STEP_DIM, mr__size_integer(v), &out);
    if (s != NULL) {
        s->x = (int32_t)i;
        s->axis = axis < 0 ? axis + x->ndim : axis;
    }
    return out.as.i;
}

mr_scalar
mr_size_value(mr_scalar a)
{
    mr_sizes here = {mr__ctx.tape, NULL};

    return mr__size_now(&here, a);
}

mr_shape
mr_size_shape(const mr_array *x)
{
    mr_tape *t = mr__ctx.tape;
    mr_shape s;

    mr__ctx.tape = NULL; /* not a read */
    s = mr_array_shape(x);
    mr__ctx.tape = t;
    return s;
}

mr_scalar
mr_size_fix(mr_scalar a)
{
    if (mr__tape_is_size(a))
        mr__tape_freeze(mr__ctx.tape, "a size became a plain number");
    return mr_size_value(a);
}

bool
mr_size_is_symbolic(mr_scalar a)
{
    return mr__tape_is_size(a);
}

bool
mr_dim_is_symbolic(int64_t a)
{
    return mr__tape_is_size(mr__size_integer(a));
}

mr_code
mr_size_math(mr_size_op op, mr_scalar a, mr_scalar b, mr_scalar *out)
{
    mr_tape *t = mr__ctx.tape;
    bool symbolic = mr__tape_is_size(a) || mr__tape_is_size(b);
    mr_scalar v;
    mr_code code;
    mr_tape_step *s;

    if (out == NULL)
        return mr__fail(MR_E_NULL, "the place for the result is NULL");
    if ((int)op < MR_SIZE_ADD || op > MR_SIZE_MAXIMUM)
        return mr__fail(MR_E_VALUE, "%d is none of enum mr_size_op", (int)op);
    code = mr__size_compute(op, mr_size_value(a), mr_size_value(b), &v);
    *out = v;
    if (code != MR_OK || !symbolic)
        return code;
    if (!mr__tape_is_open(t)) {
        mr__tape_freeze(t, "a size is used inside a transform");
        return MR_OK;
    }
    s = add_size(t, STEP_MATH, v, out);
    if (s != NULL) {
        s->op = op;
        s->a = a;
        s->b = b;
    }
    return MR_OK;
}

int64_t
mr_dim_math(mr_size_op op, int64_t a, int64_t b)
{
    mr_scalar out;

    if (mr_size_math(op, mr__size_integer(a), mr__size_integer(b), &out) !=
        MR_OK)
        return -1;
    if (out.kind == MR_SCALAR_INT)
        return out.as.i;
    mr__fail(MR_E_VALUE, "a float is no size");
    return -1;
}

bool
mr_size_compare(mr_scalar a, mr_size_relation r, mr_scalar b)
{
    mr_tape *t = mr__ctx.tape;
    bool outcome = mr__size_holds(mr_size_value(a), r, mr_size_value(b)),
         pending;
    mr_tape_step *s;

    if (!mr__tape_is_size(a) && !mr__tape_is_size(b))
        return outcome;
    pending = mr__error_pending();
    s = mr__tape_is_open(t) ? mr__tape_step(t, STEP_COMPARE) : NULL;
    if (s == NULL) {
        mr__tape_freeze(t, "a size is compared where it cannot be followed");
        if (!pending)
            mr_error_take(); /* for want of memory */
        return outcome;
    }
    s->a = a;
    s->b = b;
    s->relation = r;
    s->outcome = outcome;
    return outcome;
}
