/* SPDX-License-Identifier: Apache-2.0
 *
 * rules.c -- the exact algebra of elementwise operators.
 *
 * A rule may stand here if its two sides give the same bits for every operand
 * of the dtypes that it names: infinities, both zeros, subnormal numbers,
 * wrapping integers; any NaN equals any other.  The laws:
 *
 *   x * 1, x / 1 = x               real: rounding an exact product is none
 *   x + -0, x - +0 = x             floats: -0 + -0 = -0, +0 + -0 = +0.  Not
 *                                  x + +0, which turns -0 into +0
 *   x + 0, x - 0 = x               integers
 *   x / 2^k = x * 2^-k             floats, where 2^-k is normal: both are the
 *                                  correctly rounded value of one number
 *   --x = x, x + -y = x - y, x - -y = x + y, -x * -y = x * y
 *                                  IEEE negation is exact; integers wrap
 *   |-x| = |x|, (-x)^2 = x^2, ||x|| = |x|       floats
 *   floor of floor, ceil, round, trunc = that   floats: it is whole already
 *   max(x, x) = min(x, x) = x
 *   x & true, x | false, x != false (xor) = x   bool
 *   x & ~0, x | 0, x ^ 0, x << 0, x >> 0 = x    integers
 *   not not x = x (bool), ~~x = x (integers), conj conj x = x
 *   cast(x, its dtype) = x
 *   cast(cast(x, wide), its dtype) = x          wide holds every value of x
 *   select(true, a, b) = a, select(false, a, b) = b, select(c, a, a) = a
 *
 * Complex numbers multiply and divide by formulas that make NaN of infinities,
 * so no rule of products is theirs.  Not here for the same reason: x * 0,
 * x - x, x / x, distributing, reordering sums.
 *
 * Called by: simplify.c.  Calls: marram/ops.h for what a rule makes.
 */
#include <math.h>

#include "array/dtype.h"
#include "array/number.h"
#include "compile/simplify.h"
#include "eval/fuse.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"

typedef struct match {
    const mr_array *x;
    mr_array *const *in;
    bool *failed;
} match;

typedef mr_array *(*rule_fn)(const match *m);

/* ---- what operands are
 * -------------------------------------------------------------- */

static bool
is_float(const mr_array *x)
{
    return mr__dtype_kind((mr_dtype)x->dtype) == MR_KIND_FLOAT;
}

static bool
is_integer(const mr_array *x)
{
    return mr__dtype_is_integer((mr_dtype)x->dtype);
}

static bool
is_real(const mr_array *x)
{
    return is_float(x) || is_integer(x);
}

static bool
is_bool(const mr_array *x)
{
    return x->dtype == MR_BOOL;
}

/* One number everywhere, and this one: zeros have signs. */
static bool
is_number(const mr_array *x, double v)
{
    const void *bits = mr__fuse_constant(x);
    double got;

    if (bits == NULL || mr__dtype_is_complex((mr_dtype)x->dtype))
        return false;
    got = mr__number_to_f64(mr__number_read((mr_dtype)x->dtype, bits));
    return got == v && (!is_float(x) || signbit(got) == signbit(v));
}

/* x + this is x. */
static bool
is_nothing_added(const mr_array *x)
{
    return is_float(x) ? is_number(x, -0.0)
                       : is_integer(x) && is_number(x, 0.0);
}

static bool
is_all_ones(const mr_array *x)
{
    const void *bits = mr__fuse_constant(x);

    if (bits == NULL || !is_integer(x))
        return false;
    for (int64_t i = 0; i < mr__dtype_size((mr_dtype)x->dtype); i++)
        if (((const unsigned char *)bits)[i] != 0xff)
            return false;
    return true;
}

/* x is this operation of something that is still a recipe: of what, or NULL.
 * Recipes that depend on an argument are nobody else's and keep their inputs.
 */
static mr_array *
operand_of(const mr_array *x, mr_k k)
{
    if ((x->flags & (MR_NODE_PLACEHOLDER | MR_NODE_SCALAR_CONST)) ||
        mr__state(x) != MR_NEW || x->op->fuse.kind != MR_FUSE_ELEMENTWISE ||
        x->op->fuse.k != k)
        return NULL;
    return x->in[0];
}

static bool
is_one_of(const mr_array *x, const mr_k *k, int n)
{
    for (int i = 0; i < n; i++)
        if (operand_of(x, k[i]) != NULL)
            return true;
    return false;
}

/* What a rule made; NULL is a failure. */
static mr_array *
made(const match *m, mr_array *y)
{
    if (y == NULL)
        *m->failed = true;
    return y;
}

/* ---- rules
 * ------------------------------------------------------------------------ */

static mr_array *
of_add(const match *m)
{
    mr_array *a = m->in[0], *b = m->in[1], *n;

    if (is_nothing_added(b))
        return a;
    if (is_nothing_added(a))
        return b;
    if (!is_real(a))
        return NULL;
    if ((n = operand_of(b, MR_K_NEGATIVE)) != NULL)
        return made(m, mr_subtract(a, n));
    if ((n = operand_of(a, MR_K_NEGATIVE)) != NULL)
        return made(m, mr_subtract(b, n));
    return NULL;
}

static mr_array *
of_subtract(const match *m)
{
    mr_array *a = m->in[0], *b = m->in[1], *n;

    if (is_real(b) && is_number(b, 0.0))
        return a;
    if (is_real(a) && (n = operand_of(b, MR_K_NEGATIVE)) != NULL)
        return made(m, mr_add(a, n));
    return NULL;
}

static mr_array *
of_multiply(const match *m)
{
    mr_array *a = m->in[0], *b = m->in[1], *na, *nb;

    if (!is_real(a))
        return NULL;
    if (is_number(b, 1.0))
        return a;
    if (is_number(a, 1.0))
        return b;
    na = operand_of(a, MR_K_NEGATIVE);
    nb = operand_of(b, MR_K_NEGATIVE);
    if (na != NULL && nb != NULL)
        return made(m, mr_multiply(na, nb));
    return NULL;
}

/* 1 / x when x is a power of two whose reciprocal is a normal number, else
 * 0. */
static double
reciprocal(const mr_array *x)
{
    const void *bits = mr__fuse_constant(x);
    int most = x->dtype == MR_FLOAT64   ? 1022
               : x->dtype == MR_FLOAT16 ? 14
                                        : 126;
    int exponent;
    double v;

    if (bits == NULL || !is_float(x))
        return 0.0;
    v = mr__number_to_f64(mr__number_read((mr_dtype)x->dtype, bits));
    if (!isfinite(v) || v == 0.0 || fabs(frexp(v, &exponent)) != 0.5)
        return 0.0;
    exponent--; /* v is 2^exponent */
    return exponent > most || exponent < -most ? 0.0 : 1.0 / v;
}

static mr_array *
of_divide(const match *m)
{
    mr_array *a = m->in[0], *b = m->in[1];
    unsigned char bits[16];
    double r;

    if (is_float(b) && is_number(b, 1.0))
        return a;
    r = reciprocal(b);
    if (r == 0.0)
        return NULL;
    mr__number_write((mr_dtype)b->dtype, bits,
                     (mr_scalar){.kind = MR_SCALAR_FLOAT, .as.f = r});
    return made(m, mr_multiply(a, mr__node_scalar((mr_dtype)b->dtype, bits)));
}

static mr_array *
of_negative(const match *m)
{
    return operand_of(m->in[0], MR_K_NEGATIVE);
}

static mr_array *
of_abs(const match *m)
{
    mr_array *n = operand_of(m->in[0], MR_K_NEGATIVE);

    if (!is_float(m->in[0]))
        return NULL;
    if (n != NULL)
        return made(m, mr_abs(n));
    return operand_of(m->in[0], MR_K_ABS) != NULL ? m->in[0] : NULL;
}

static mr_array *
of_square(const match *m)
{
    mr_array *n = operand_of(m->in[0], MR_K_NEGATIVE);

    return n != NULL && is_float(n) ? made(m, mr_square(n)) : NULL;
}

static mr_array *
of_rounding(const match *m)
{
    static const mr_k whole[] = {MR_K_FLOOR, MR_K_CEIL, MR_K_ROUND, MR_K_TRUNC};

    return is_float(m->x) && is_one_of(m->in[0], whole, 4) ? m->in[0] : NULL;
}

static mr_array *
of_extreme(const match *m)
{
    return m->in[0] == m->in[1] ? m->in[0] : NULL;
}

/* x op c = x, and c op x = x. */
static mr_array *
neutral(const match *m, bool (*is)(const mr_array *x))
{
    return is(m->in[1]) ? m->in[0] : is(m->in[0]) ? m->in[1] : NULL;
}

static bool
is_true(const mr_array *x)
{
    return is_bool(x) && is_number(x, 1.0);
}

static bool
is_false(const mr_array *x)
{
    return is_bool(x) && is_number(x, 0.0);
}

static bool
is_zero_bits(const mr_array *x)
{
    return is_integer(x) && is_number(x, 0.0);
}

static mr_array *
of_logical_and(const match *m)
{
    return is_bool(m->in[0]) ? neutral(m, is_true) : NULL;
}

static mr_array *
of_logical_or(const match *m)
{
    return is_bool(m->in[0]) ? neutral(m, is_false) : NULL;
}

static mr_array *
of_bitwise_and(const match *m)
{
    return neutral(m, is_all_ones);
}

static mr_array *
of_bitwise_or(const match *m)
{
    return neutral(m, is_zero_bits);
}

static mr_array *
of_shift(const match *m)
{
    return is_zero_bits(m->in[1]) ? m->in[0] : NULL;
}

static mr_array *
of_logical_not(const match *m)
{
    mr_array *n = operand_of(m->in[0], MR_K_LOGICAL_NOT);

    return n != NULL && is_bool(n) ? n : NULL;
}

static mr_array *
of_invert(const match *m)
{
    return operand_of(m->in[0], MR_K_BITWISE_INVERT);
}

static mr_array *
of_conjugate(const match *m)
{
    return operand_of(m->in[0], MR_K_CONJUGATE);
}

/* Bits of a number's magnitude that a dtype holds exactly. */
static int
exact_bits(mr_dtype t)
{
    switch (mr__dtype_kind(t)) {
    case MR_KIND_BOOL:
        return 1;
    case MR_KIND_UINT:
        return (int)(8 * mr__dtype_size(t));
    case MR_KIND_INT:
        return (int)(8 * mr__dtype_size(t)) - 1;
    case MR_KIND_FLOAT:
        return t == MR_BFLOAT16  ? 8
               : t == MR_FLOAT16 ? 11
               : t == MR_FLOAT32 ? 24
                                 : 53;
    case MR_KIND_COMPLEX:
        break;
    }
    return 0;
}

/* Does `wide` hold every value of t, and give it back? */
static bool
holds(mr_dtype wide, mr_dtype t)
{
    mr_kind w = mr__dtype_kind(wide), k = mr__dtype_kind(t);

    if (w == MR_KIND_COMPLEX || k == MR_KIND_COMPLEX || wide == t)
        return wide == t;
    if (k == MR_KIND_BOOL)
        return true;
    if (w == MR_KIND_BOOL || (k == MR_KIND_FLOAT && w != MR_KIND_FLOAT))
        return false;
    if (k == MR_KIND_FLOAT) /* the halves have other exponents */
        return wide == MR_FLOAT64 || (wide == MR_FLOAT32 && t != MR_FLOAT64);
    if (k == MR_KIND_INT && w == MR_KIND_UINT) /* wraps there and back */
        return exact_bits(wide) > exact_bits(t);
    return exact_bits(wide) >= exact_bits(t);
}

static mr_array *
of_cast(const match *m)
{
    mr_array *wide = m->in[0], *x;

    if (wide->dtype == m->x->dtype)
        return wide;
    x = operand_of(wide, MR_K_CAST);
    return x != NULL && x->dtype == m->x->dtype &&
                   holds((mr_dtype)wide->dtype, (mr_dtype)x->dtype)
               ? x
               : NULL;
}

static mr_array *
of_select(const match *m)
{
    if (m->in[1] == m->in[2] || is_true(m->in[0]))
        return m->in[1];
    return is_false(m->in[0]) ? m->in[2] : NULL;
}

/* ---- the table
 * -------------------------------------------------------------------- */

static const struct {
    mr_k k;
    rule_fn fn;
} rules[] = {
    {MR_K_ADD, of_add},
    {MR_K_SUBTRACT, of_subtract},
    {MR_K_MULTIPLY, of_multiply},
    {MR_K_DIVIDE, of_divide},
    {MR_K_NEGATIVE, of_negative},
    {MR_K_ABS, of_abs},
    {MR_K_SQUARE, of_square},
    {MR_K_FLOOR, of_rounding},
    {MR_K_CEIL, of_rounding},
    {MR_K_ROUND, of_rounding},
    {MR_K_TRUNC, of_rounding},
    {MR_K_MAXIMUM, of_extreme},
    {MR_K_MINIMUM, of_extreme},
    {MR_K_LOGICAL_AND, of_logical_and},
    {MR_K_LOGICAL_OR, of_logical_or},
    {MR_K_LOGICAL_XOR, of_logical_or},
    {MR_K_LOGICAL_NOT, of_logical_not},
    {MR_K_BITWISE_AND, of_bitwise_and},
    {MR_K_BITWISE_OR, of_bitwise_or},
    {MR_K_BITWISE_XOR, of_bitwise_or},
    {MR_K_BITWISE_INVERT, of_invert},
    {MR_K_LEFT_SHIFT, of_shift},
    {MR_K_RIGHT_SHIFT, of_shift},
    {MR_K_CONJUGATE, of_conjugate},
    {MR_K_CAST, of_cast},
    {MR_K_SELECT, of_select},
};

mr_array *
mr__rule_apply(const mr_array *x, mr_array *const *in, bool *failed)
{
    match m = {x, in, failed};

    if (x->op->fuse.kind != MR_FUSE_ELEMENTWISE)
        return NULL;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].k == (mr_k)x->op->fuse.k)
            return rules[i].fn(&m);
    return NULL;
}
