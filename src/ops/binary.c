/* SPDX-License-Identifier: Apache-2.0
 *
 * binary.c -- operators of two arrays, element by element, and select.
 *
 * The front doors have promoted and broadcast: both inputs look the same here.
 * Each section is an operator: its slope by either input (the derivative at
 * the primals) and its descriptor, as in unary.c.
 * Called by: the generated doors, transforms.  Calls: marram/ops.h.
 */
#include <math.h>

#include "array/dtype.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "ops/door.h"
#include "ops/rules.h"

/* -- add ------------------------------------------------------------------- */
const mr_op mr__op_add = {
    MR__ELEMENTWISE(MR_OP_ADD, "add", 2, MR_K_ADD),
    .flags = MR_FLAG_LINEAR,
    .vjp = mr__vjp_pass,
    .jvp = mr__jvp_pass,
};

/* -- subtract -------------------------------------------------------------- */
static mr_array *
subtract_vjp(const mr_rule *r, int i)
{
    return i == 0 ? r->cotangent[0] : mr_negative(r->cotangent[0]);
}

static mr_array *
subtract_jvp(const mr_rule *r, int i)
{
    return i == 0 ? r->tangent[0] : mr_negative(r->tangent[1]);
}

const mr_op mr__op_subtract = {
    MR__ELEMENTWISE(MR_OP_SUBTRACT, "subtract", 2, MR_K_SUBTRACT),
    .flags = MR_FLAG_LINEAR,
    .vjp = subtract_vjp,
    .jvp = subtract_jvp,
};

/* -- multiply -------------------------------------------------------------- */
static mr_array *
multiply_slope(const mr_rule *r, int i)
{
    return r->primal[1 - i];
}

const mr_op mr__op_multiply = {
    MR__ELEMENTWISE(MR_OP_MULTIPLY, "multiply", 2, MR_K_MULTIPLY),
    MR__SLOPED(multiply_slope),
};

/* -- divide ---------------------------------------------------------------- */
static mr_array *
divide_vjp(const mr_rule *r, int i)
{
    mr_array *c = mr_divide(r->cotangent[0], mr__conj(r->primal[1]));

    if (i == 0)
        return c;
    return mr_negative(mr_multiply(c, mr__conj(r->output[0])));
}

static mr_array *
divide_jvp(const mr_rule *r, int i)
{
    mr_array *t = mr_divide(r->tangent[i], r->primal[1]);

    if (i == 0)
        return t;
    return mr_negative(mr_multiply(t, r->output[0]));
}

const mr_op mr__op_divide = {
    MR__ELEMENTWISE(MR_OP_DIVIDE, "divide", 2, MR_K_DIVIDE),
    .vjp = divide_vjp,
    .jvp = divide_jvp,
};

/* -- floor_divide ---------------------------------------------------------- */
const mr_op mr__op_floor_divide = {
    MR__ELEMENTWISE(MR_OP_FLOOR_DIVIDE, "floor_divide", 2, MR_K_FLOOR_DIVIDE),
    MR__FLAT,
};

/* -- remainder ------------------------------------------------------------- */
/* a - b * floor(a / b), the floor being a step function. */
static mr_array *
remainder_slope(const mr_rule *r, int i)
{
    mr_array *const *x = r->primal;

    if (i == 0)
        return mr__ones_like(x[0]);
    return mr_negative(mr_floor_divide(x[0], x[1]));
}

const mr_op mr__op_remainder = {
    MR__ELEMENTWISE(MR_OP_REMAINDER, "remainder", 2, MR_K_REMAINDER),
    MR__SLOPED(remainder_slope),
};

/* -- power ----------------------------------------------------------------- */
/* d/da = b * a^(b - 1), and 0 where b is 0, also at a = 0: a^0 is the constant
 * 1.  d/db = a^b * log(a), and 0 at a = 0, where 0^b stays 0 for b > 0.  The
 * argument that would give 0 * inf is replaced before, not after, so that
 * second derivatives have no NaN either. */
static mr_array *
power_slope(const mr_rule *r, int i)
{
    mr_array *const *x = r->primal;
    mr_array *y = r->output[0];
    mr_array *a = x[0], *b = x[1], *zero, *one;

    zero = mr__number((mr_dtype)a->dtype, 0.0);
    one = mr__number((mr_dtype)a->dtype, 1.0);
    if (i == 0) {
        b = mr_where(mr_equal(b, zero), one, b);
        return mr_multiply(x[1], mr_power(a, mr__shift(b, -1.0)));
    }
    a = mr_where(mr_equal(a, zero), one, a);
    return mr_multiply(y, mr_log(a));
}

const mr_op mr__op_power = {
    MR__ELEMENTWISE(MR_OP_POWER, "power", 2, MR_K_POWER),
    MR__SLOPED(power_slope),
};

/* -- maximum, minimum ------------------------------------------------------ */
/* All goes to the second operand at a tie, and where the first is NaN.  A
 * select, not a product: an infinite cotangent times 0 would be NaN. */
static mr_array *
extreme_part(const mr_rule *r, mr_array *x, int i)
{
    mr_array *a = r->primal[0], *b = r->primal[1];
    mr_array *first =
        r->node->op == &mr__op_maximum ? mr_greater(a, b) : mr_less(a, b);

    return i == 0 ? mr__masked(first, x) : mr__masked_not(first, x);
}

static mr_array *
extreme_vjp(const mr_rule *r, int i)
{
    return extreme_part(r, r->cotangent[0], i);
}

static mr_array *
extreme_jvp(const mr_rule *r, int i)
{
    return extreme_part(r, r->tangent[i], i);
}

const mr_op mr__op_maximum = {
    MR__ELEMENTWISE(MR_OP_MAXIMUM, "maximum", 2, MR_K_MAXIMUM),
    .vjp = extreme_vjp,
    .jvp = extreme_jvp,
};

const mr_op mr__op_minimum = {
    MR__ELEMENTWISE(MR_OP_MINIMUM, "minimum", 2, MR_K_MINIMUM),
    .vjp = extreme_vjp,
    .jvp = extreme_jvp,
};

/* -- arctan2 --------------------------------------------------------------- */
/* With a over b: d/da = b / (a^2 + b^2), d/db = -a / (a^2 + b^2).  The origin
 * has no slope: 0/0 gives NaN there, which is right.  Beyond 1e19 float32
 * squares overflow and the slope is 0, wrong by less than 1e-19. */
static mr_array *
arctan2_slope(const mr_rule *r, int i)
{
    mr_array *const *x = r->primal;
    mr_array *r2 = mr_add(mr_square(x[0]), mr_square(x[1]));

    return mr_divide(i == 0 ? x[1] : mr_negative(x[0]), r2);
}

const mr_op mr__op_arctan2 = {
    MR__ELEMENTWISE(MR_OP_ARCTAN2, "arctan2", 2, MR_K_ARCTAN2),
    MR__SLOPED(arctan2_slope),
};

/* -- logaddexp ------------------------------------------------------------- */
/* The share of each: exp(x - y), which is 1 where x is all of y, infinities
 * included, and 0 where both are -inf. */
static mr_array *
logaddexp_slope(const mr_rule *r, int i)
{
    mr_array *const *x = r->primal;
    mr_array *y = r->output[0];
    mr_dtype t = (mr_dtype)y->dtype;
    mr_array *zero = mr__number(t, 0.0);
    mr_array *d = mr_subtract(x[i], y);

    d = mr_exp(mr_where(mr_equal(x[i], y), zero, d));
    return mr_where(mr_equal(y, mr__number(t, -INFINITY)), zero, d);
}

const mr_op mr__op_logaddexp = {
    MR__ELEMENTWISE(MR_OP_LOGADDEXP, "logaddexp", 2, MR_K_LOGADDEXP),
    MR__SLOPED(logaddexp_slope),
};

/* -- copysign -------------------------------------------------------------- */
/* By a: whether its sign was changed.  The sign of b is a step function. */
static mr_array *
copysign_slope(const mr_rule *r, int i)
{
    mr_array *const *x = r->primal;

    if (i == 1)
        return mr__zeros_like(x[1]);
    return mr_multiply(mr_copysign(mr__ones_like(x[0]), x[0]),
                       mr_copysign(mr__ones_like(x[1]), x[1]));
}

const mr_op mr__op_copysign = {
    MR__ELEMENTWISE(MR_OP_COPYSIGN, "copysign", 2, MR_K_COPYSIGN),
    MR__SLOPED(copysign_slope),
};

/* -- hypot ----------------------------------------------------------------- */
/* The share of each in the length; 0 at the origin. */
static mr_array *
hypot_slope(const mr_rule *r, int i)
{
    mr_array *h = r->output[0];
    mr_array *flat = mr_equal(h, mr__number((mr_dtype)h->dtype, 0.0));

    return mr_divide(r->primal[i], mr_where(flat, mr__ones_like(h), h));
}

const mr_op mr__op_hypot = {
    MR__ELEMENTWISE(MR_OP_HYPOT, "hypot", 2, MR_K_HYPOT),
    MR__SLOPED(hypot_slope),
};

/* -- equal ----------------------------------------------------------------- */
const mr_op mr__op_equal = {
    MR__ELEMENTWISE(MR_OP_EQUAL, "equal", 2, MR_K_EQUAL),
    MR__FLAT,
};

/* -- not_equal ------------------------------------------------------------- */
const mr_op mr__op_not_equal = {
    MR__ELEMENTWISE(MR_OP_NOT_EQUAL, "not_equal", 2, MR_K_NOT_EQUAL),
    MR__FLAT,
};

/* -- less ------------------------------------------------------------------ */
const mr_op mr__op_less = {
    MR__ELEMENTWISE(MR_OP_LESS, "less", 2, MR_K_LESS),
    MR__FLAT,
};

/* -- less_equal ------------------------------------------------------------ */
const mr_op mr__op_less_equal = {
    MR__ELEMENTWISE(MR_OP_LESS_EQUAL, "less_equal", 2, MR_K_LESS_EQUAL),
    MR__FLAT,
};

/* -- greater --------------------------------------------------------------- */
const mr_op mr__op_greater = {
    MR__ELEMENTWISE(MR_OP_GREATER, "greater", 2, MR_K_GREATER),
    MR__FLAT,
};

/* -- greater_equal --------------------------------------------------------- */
const mr_op mr__op_greater_equal = {
    MR__ELEMENTWISE(MR_OP_GREATER_EQUAL, "greater_equal", 2,
                    MR_K_GREATER_EQUAL),
    MR__FLAT,
};

/* -- logical_and ----------------------------------------------------------- */
const mr_op mr__op_logical_and = {
    MR__ELEMENTWISE(MR_OP_LOGICAL_AND, "logical_and", 2, MR_K_LOGICAL_AND),
    MR__FLAT,
};

/* -- logical_or ------------------------------------------------------------ */
const mr_op mr__op_logical_or = {
    MR__ELEMENTWISE(MR_OP_LOGICAL_OR, "logical_or", 2, MR_K_LOGICAL_OR),
    MR__FLAT,
};

/* -- logical_xor ----------------------------------------------------------- */
const mr_op mr__op_logical_xor = {
    MR__ELEMENTWISE(MR_OP_LOGICAL_XOR, "logical_xor", 2, MR_K_LOGICAL_XOR),
    MR__FLAT,
};

/* -- bitwise_and ----------------------------------------------------------- */
const mr_op mr__op_bitwise_and = {
    MR__ELEMENTWISE(MR_OP_BITWISE_AND, "bitwise_and", 2, MR_K_BITWISE_AND),
    MR__FLAT,
};

/* -- bitwise_or ------------------------------------------------------------ */
const mr_op mr__op_bitwise_or = {
    MR__ELEMENTWISE(MR_OP_BITWISE_OR, "bitwise_or", 2, MR_K_BITWISE_OR),
    MR__FLAT,
};

/* -- bitwise_xor ----------------------------------------------------------- */
const mr_op mr__op_bitwise_xor = {
    MR__ELEMENTWISE(MR_OP_BITWISE_XOR, "bitwise_xor", 2, MR_K_BITWISE_XOR),
    MR__FLAT,
};

/* -- left_shift ------------------------------------------------------------ */
const mr_op mr__op_left_shift = {
    MR__ELEMENTWISE(MR_OP_LEFT_SHIFT, "left_shift", 2, MR_K_LEFT_SHIFT),
    MR__FLAT,
};

/* -- right_shift ----------------------------------------------------------- */
const mr_op mr__op_right_shift = {
    MR__ELEMENTWISE(MR_OP_RIGHT_SHIFT, "right_shift", 2, MR_K_RIGHT_SHIFT),
    MR__FLAT,
};

/* -- select ---------------------------------------------------------------- */
/* The branch not taken gets 0 whatever the other holds. */
static mr_array *
select_part(const mr_rule *r, mr_array *x, int i)
{
    if (i == 0)
        return MR_NONE;
    return i == 1 ? mr__masked(r->primal[0], x)
                  : mr__masked_not(r->primal[0], x);
}

static mr_array *
select_vjp(const mr_rule *r, int i)
{
    return select_part(r, r->cotangent[0], i);
}

static mr_array *
select_jvp(const mr_rule *r, int i)
{
    return select_part(r, r->tangent[i], i);
}

const mr_op mr__op_select = {
    MR__ELEMENTWISE(MR_OP_SELECT, "select", 3, MR_K_SELECT),
    .vjp = select_vjp,
    .jvp = select_jvp,
};
