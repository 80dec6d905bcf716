/* SPDX-License-Identifier: Apache-2.0
 *
 * random.c -- keys, and the distributions made of random words.
 *
 * A stream of words is a pure function of a key (Threefry-2x32 with 20 rounds:
 * J. Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", 2011).
 * For N words and h = N / 2 the block with counter (i, h + i) gives words i
 * and h + i; for odd N it is (i, h + 1 + i), and the middle word is the first
 * of the block with counter (h, 0).  Distributions turn words to numbers with
 * ordinary operators, whose roundings are part of the contract.
 *
 * Without a key a draw takes one from its thread's sequence, which is split on
 * the host at the call: no chain of lazy keys grows.  A thread that never
 * seeded begins with the process's key split by the number of the thread.
 * While a function is traced for compiling, keys come from the trace.  The
 * sequence moves on when a draw has succeeded: one that fails takes no key.
 * Called by: the generated doors.  Calls: marram/ops.h.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "array/dtype.h"
#include "array/layout.h"
#include "base/error.h"
#include "gen/build.h"
#include "gen/ids.h"
#include "graph/context.h"
#include "graph/op.h"
#include "marram/array.h"
#include "marram/ops.h"
#include "ops/door.h"
#include "ops/params.h"
#include "ops/rules.h"

typedef struct key_words {
    uint32_t w[2];
} key_words;

/* ---- blocks on the host: for keys alone
 * ------------------------------------------ */

static uint32_t
rotate(uint32_t x, int r)
{
    return x << r | x >> (32 - r);
}

static key_words
block(key_words key, uint32_t c0, uint32_t c1)
{
    static const int turns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    uint32_t k[3] = {key.w[0], key.w[1], key.w[0] ^ key.w[1] ^ 0x1BD11BDAu};
    uint32_t x0 = c0 + k[0], x1 = c1 + k[1];

    for (uint32_t i = 0; i < 5; i++) {
        for (int j = 0; j < 4; j++) {
            x0 += x1;
            x1 = rotate(x1, turns[i % 2][j]) ^ x0;
        }
        x0 += k[(i + 1) % 3];
        x1 += k[(i + 2) % 3] + i + 1;
    }
    return (key_words){{x0, x1}};
}

/* Row j of split(key, 2): the words j and j + 2 of a stream of four lie in one
 * block each. */
static void
split_two(key_words key, key_words *next, key_words *sub)
{
    key_words even = block(key, 0, 2), odd = block(key, 1, 3);

    *next = (key_words){{even.w[0], odd.w[0]}};
    *sub = (key_words){{even.w[1], odd.w[1]}};
}

static mr_array *
key_array(key_words k)
{
    return mr_array_from(k.w, MR_SHAPE(2), MR_UINT32);
}

/* ---- the sequence of a thread
 * ------------------------------------------------------ */

static _Thread_local struct {
    bool started, drawing; /* drawing: `next` is what comes after this draw */
    key_words key, next;
} sequence;

/* Both are written at most once, by whoever comes first. */
static _Atomic uint64_t process_key;
static _Atomic uint32_t threads_started;

static uint64_t
process_key_once(void)
{
    /* relaxed: the value is all that is shared */
    uint64_t key = atomic_load_explicit(&process_key, memory_order_relaxed);
    uint64_t fresh = 0;
    struct timespec now;

    if (key != 0)
        return key;
    if (getrandom(&fresh, sizeof fresh, GRND_NONBLOCK) !=
        (ssize_t)sizeof fresh) {
        clock_gettime(CLOCK_REALTIME, &now);
        fresh = (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
    }
    fresh |= 1; /* 0 is "none yet" */
    if (atomic_compare_exchange_strong_explicit(&process_key, &key, fresh,
                                                memory_order_relaxed,
                                                memory_order_relaxed))
        return fresh;
    return key;
}

static key_words
seed_words(uint64_t seed)
{
    return (key_words){{(uint32_t)(seed >> 32), (uint32_t)seed}};
}

static key_words *
thread_key(void)
{
    uint32_t number;

    if (sequence.started)
        return &sequence.key;
    /* relaxed: each thread needs a number of its own, no order */
    number =
        atomic_fetch_add_explicit(&threads_started, 1, memory_order_relaxed);
    sequence.key = block(seed_words(process_key_once()), number, 0);
    sequence.started = true;
    return &sequence.key;
}

/* The thread's next key, which stays the next until the draw is drawn(). */
static mr_array *
next_key(void)
{
    key_words sub;

    sequence.drawing = mr__ctx.keys == NULL;
    if (!sequence.drawing)
        return mr__ctx.keys->next(mr__ctx.keys);
    split_two(*thread_key(), &sequence.next, &sub);
    return key_array(sub);
}

/* The result of a draw, NULL if it failed. */
static mr_array *
drawn(mr_array *x)
{
    if (x != NULL && sequence.drawing)
        sequence.key = sequence.next;
    sequence.drawing = false;
    return x;
}

mr_array *
mr__build_random_next_key(void)
{
    return drawn(next_key());
}

static mr_code
seed_of(mr_scalar s, uint64_t *seed)
{
    if (s.kind == MR_SCALAR_INT && s.as.i >= 0)
        *seed = (uint64_t)s.as.i;
    else if (s.kind == MR_SCALAR_UINT)
        *seed = s.as.u;
    else if (s.kind == MR_SCALAR_INT)
        return mr__fail(MR_E_TYPE,
                        "a seed is an integer from 0 to 2^64 - 1, not %lld",
                        (long long)s.as.i);
    else
        return mr__fail(MR_E_TYPE,
                        "a seed is an integer from 0 to 2^64 - 1, not bool, "
                        "float or complex");
    return MR_OK;
}

mr_array *
mr__build_random_key(mr_scalar seed)
{
    uint64_t s = 0;

    return seed_of(seed, &s) == MR_OK ? key_array(seed_words(s)) : NULL;
}

mr_array *
mr__build_random_seed(mr_scalar seed)
{
    mr_array *key = mr__build_random_key(seed);
    uint64_t s = 0;

    if (key == NULL || seed_of(seed, &s) != MR_OK)
        return NULL;
    sequence.key = seed_words(s);
    sequence.started = true;
    return key;
}

mr_array *
mr__build_random_state(void)
{
    return key_array(*thread_key());
}

static mr_code
check_key(const mr_array *key, bool one)
{
    mr_text text;

    if ((mr_dtype)key->dtype != MR_UINT32 || key->ndim < 1 ||
        key->dim[key->ndim - 1] != 2 || (one && key->ndim != 1))
        return mr__fail(
            MR_E_VALUE, "a key is uint32 of shape (2,), got %s of shape %s",
            mr_dtype_name((mr_dtype)key->dtype), mr__shape_of(key, &text));
    return MR_OK;
}

mr_array *
mr__build_random_set_state(mr_array *key)
{
    key_words k;

    if (check_key(key, true) != MR_OK ||
        mr_array_copy_out(key, k.w, sizeof k.w) != MR_OK)
        return NULL;
    sequence.key = k;
    sequence.started = true;
    return key;
}

/* -- random_bits ----------------------------------------------------------- */

static mr_code
random_bits_infer(const mr_op_call *c, mr_aval *out)
{
    const mr_random_bits_params *p = c->params;
    const mr_array *key = c->in[0];
    int32_t batch = key->ndim - 1;

    if (batch + p->shape.n > MR_MAX_NDIM)
        return mr__fail(MR_E_VALUE, "%lld axes, at most %d are possible",
                        (long long)(batch + p->shape.n), MR_MAX_NDIM);
    out->dtype = p->width == 4   ? MR_UINT32
                 : p->width == 2 ? MR_UINT16
                                 : MR_UINT8;
    out->ndim = batch + (int32_t)p->shape.n;
    for (int32_t i = 0; i < out->ndim; i++)
        out->dim[i] = i < batch ? key->dim[i] : p->shape.v[i - batch];
    return mr__check_shape(out->ndim, out->dim);
}

static mr_array *
random_bits_vmap(const mr_batch *b)
{
    return mr__node_new(b->node->op, mr__params(b->node), 1, b->in);
}

static const mr_field random_bits_fields[] = {
    MR_FIELD(1, DIMS, mr_random_bits_params, shape),
    MR_FIELD(2, INT, mr_random_bits_params, width),
};

const mr_op mr__op_random_bits = {
    .id = MR_OP_RANDOM_BITS,
    .version = 1,
    .n_in = 1,
    .name = "random_bits",
    .flags = MR_FLAG_ZERO_GRADIENT,
    .fuse = {MR_FUSE_DRAW, 0},
    MR__PARAMS(mr_random_bits_params, random_bits_fields),
    .infer = random_bits_infer,
    .vmap = random_bits_vmap,
};

static mr_array *
words(mr_array *key, mr_shape shape, int64_t width)
{
    mr_random_bits_params p = {{shape.dim, shape.n}, width};

    return key == NULL ? NULL : mr__node_new(&mr__op_random_bits, &p, 1, &key);
}

/* The key given, or the thread's next: then the result is to be drawn(). */
static mr_array *
key_or_next(mr_array *key)
{
    sequence.drawing = false;
    if (!mr__given(key))
        return next_key();
    return check_key(key, true) == MR_OK ? key : NULL;
}

static mr_shape
shape_or_scalar(mr_shape s)
{
    return s.n < 0 ? MR_SCALAR_SHAPE : s;
}

mr_array *
mr__build_random_bits(mr_shape shape, int64_t width, mr_array *key)
{
    if (width != 1 && width != 2 && width != 4)
        return mr__fail_null(MR_E_VALUE, "a width of %lld bytes, not 1, 2, 4",
                             (long long)width);
    if (!mr__given(key))
        return drawn(words(next_key(), shape, width));
    return check_key(key, false) == MR_OK ? words(key, shape, width) : NULL;
}

/* ---- splitting
 * ---------------------------------------------------------------------- */

#define HOST_SPLITS 64

/* A key whose value can be had now is split at once. */
static mr_array *
split_on_host(mr_array *key, int64_t num)
{
    uint32_t row[2 * HOST_SPLITS];
    key_words k, b;

    if (mr_array_copy_out(key, k.w, sizeof k.w) != MR_OK)
        return NULL;
    for (uint32_t i = 0; i < num; i++) {
        b = block(k, i, (uint32_t)num + i);
        row[i] = b.w[0];
        row[num + i] = b.w[1];
    }
    return mr_array_from(row, MR_SHAPE(num, 2), MR_UINT32);
}

mr_array *
mr__build_random_split(mr_array *key, int64_t num)
{
    if (check_key(key, true) != MR_OK)
        return NULL;
    if (num < 0)
        return mr__fail_null(MR_E_VALUE, "%lld keys, needs 0 or more",
                             (long long)num);
    if (num <= HOST_SPLITS && key->trace == 0 && mr__ctx.no_eval == NULL)
        return split_on_host(key, num);
    return words(key, MR_SHAPE(num, 2), 4);
}

/* ---- uniform numbers
 * ------------------------------------------------------------------ */

static mr_code
check_float(mr_dtype t)
{
    if (t == MR_FLOAT16 || t == MR_BFLOAT16 || t == MR_FLOAT32)
        return MR_OK;
    if (t == MR_FLOAT64)
        return mr__fail(MR_E_UNSUPPORTED,
                        "float64 is not drawn: cast a float32 draw");
    return mr__fail(MR_E_DTYPE, "needs float16, bfloat16 or float32, got %s",
                    mr_dtype_name(t));
}

/* The largest number below 1. */
static double
below_one(mr_dtype t)
{
    return t == MR_FLOAT16    ? 1.0 - 0x1p-11
           : t == MR_BFLOAT16 ? 1.0 - 0x1p-8
                              : 1.0 - 0x1p-24;
}

/* [0, 1) of dtype t. */
static mr_array *
unit(mr_array *key, mr_shape shape, mr_dtype t)
{
    mr_array *u = words(key, shape, 4);

    if (u == NULL)
        return NULL;
    /* by a power of two: the quotient's bits, without a division */
    u = mr_multiply(mr__cast(u, MR_FLOAT32), mr__number(MR_FLOAT32, 0x1p-32));
    u = mr_minimum(u, mr__number(MR_FLOAT32, below_one(t)));
    return u == NULL ? NULL : mr__cast(u, t);
}

/* An array cast to t, of a shape that the draw's shape covers. */
static mr_array *
bound(mr_array *x, mr_dtype t, mr_shape shape)
{
    int64_t dim[MR_MAX_NDIM];
    char want[192];
    mr_text text;
    int32_t ndim;
    bool fits;

    if (x == NULL)
        return NULL;
    ndim =
        mr__broadcast_shapes(x->ndim, x->dim, (int32_t)shape.n, shape.dim, dim);
    fits = ndim == shape.n;
    for (int32_t i = 0; fits && i < ndim; i++)
        fits = dim[i] == shape.dim[i];
    if (!fits)
        return mr__fail_null(
            MR_E_SHAPE,
            "an argument of shape %s does not broadcast to "
            "the draw's shape, %s",
            mr__shape_of(x, &text),
            mr__shape_text(want, sizeof want, (int32_t)shape.n, shape.dim));
    return mr__cast(x, t);
}

static mr_array *
uniform(mr_array *low, mr_array *high, mr_shape shape, mr_dtype t,
        mr_array *key)
{
    mr_array *u;

    low = bound(low, t, shape);
    high = bound(high, t, shape);
    if (low == NULL || high == NULL)
        return NULL;
    u = unit(key, shape, t);
    return mr_add(mr_multiply(mr_subtract(high, low), u), low);
}

static mr_dtype
float_dtype(mr_dtype t)
{
    return t == MR_DTYPE_DEFAULT ? MR_FLOAT32 : t;
}

mr_array *
mr__build_random_uniform(mr_array *low, mr_array *high, mr_shape shape,
                         mr_dtype dtype, mr_array *key)
{
    mr_dtype t = float_dtype(dtype);

    shape = shape_or_scalar(shape);
    if (check_float(t) != MR_OK)
        return NULL;
    key = key_or_next(key);
    if (!mr__given(low) && !mr__given(high))
        return drawn(unit(key, shape, t));
    low = mr__given(low) ? low : mr__number(t, 0.0);
    high = mr__given(high) ? high : mr__number(t, 1.0);
    return drawn(uniform(low, high, shape, t, key));
}

/* (-1, 1) in float32, as normal and laplace want it. */
static mr_array *
signed_unit(mr_array *key, mr_shape shape)
{
    return uniform(mr__number(MR_FLOAT32, -1.0 + 0x1p-24),
                   mr__number(MR_FLOAT32, 1.0), shape, MR_FLOAT32, key);
}

/* ---- normal and its kin
 * ---------------------------------------------------------------- */

static mr_array *
complex_normal(mr_array *key, mr_shape shape)
{
    mr_list parts = {.n = shape.n + 1};
    mr_array *z;

    if (shape.n >= MR_MAX_NDIM)
        return mr__fail_null(MR_E_VALUE,
                             "%lld axes, at most %d are possible here",
                             (long long)shape.n, MR_MAX_NDIM - 1);
    for (int64_t i = 0; i < shape.n; i++)
        parts.v[i] = shape.dim[i];
    parts.v[shape.n] = 2;
    z = mr_erfinv(signed_unit(key, mr__shape(&parts)));
    return mr_squeeze(mr_view(z, MR_COMPLEX64), MR_AXES(-1));
}

mr_array *
mr__build_random_normal(mr_shape shape, mr_dtype dtype, mr_array *loc,
                        mr_array *scale, mr_array *key)
{
    mr_dtype t = float_dtype(dtype);
    mr_array *z, *factor;

    shape = shape_or_scalar(shape);
    if (!mr__dtype_is_inexact(t) || t == MR_COMPLEX128)
        return mr__fail_null(MR_E_DTYPE,
                             "needs a floating dtype or complex64, got %s",
                             mr_dtype_name(t));
    if ((mr__given(loc) && bound(loc, t, shape) == NULL) ||
        (mr__given(scale) && bound(scale, t, shape) == NULL))
        return NULL;
    key = key_or_next(key);
    if (t == MR_COMPLEX64) {
        z = complex_normal(key, shape);
        if (mr__given(scale))
            z = mr_multiply(z, mr__cast(scale, t));
    } else {
        z = mr_erfinv(signed_unit(key, shape));
        factor = mr__number(t, 1.4142135623730951);
        if (mr__given(scale))
            factor = mr_multiply(factor, mr__cast(scale, t));
        z = z == NULL ? NULL : mr_multiply(mr__cast(z, t), factor);
    }
    return drawn(mr__given(loc) ? mr_add(z, mr__cast(loc, t)) : z);
}

mr_array *
mr__build_random_laplace(mr_shape shape, mr_dtype dtype, double loc,
                         double scale, mr_array *key)
{
    mr_dtype t = float_dtype(dtype);
    mr_array *u;

    /* computed in float32 and cast, as normal is: float64 too */
    if (t != MR_FLOAT64 && check_float(t) != MR_OK)
        return NULL;
    u = signed_unit(key_or_next(key), shape_or_scalar(shape));
    if (u == NULL)
        return NULL;
    u = mr_multiply(mr_sign(u), mr_log1p(mr_negative(mr_abs(u))));
    u = u == NULL ? NULL : mr__cast(u, t);
    if (scale != 1.0)
        u = mr__scale(u, scale);
    return drawn(loc != 0.0 ? mr__shift(u, loc) : u);
}

static mr_array *
gumbel(mr_array *key, mr_shape shape, mr_dtype t)
{
    mr_array *u = unit(key, shape, t);

    return mr_negative(mr_log(mr_negative(mr_log(u))));
}

mr_array *
mr__build_random_gumbel(mr_shape shape, mr_dtype dtype, mr_array *key)
{
    mr_dtype t = float_dtype(dtype);

    if (check_float(t) != MR_OK)
        return NULL;
    return drawn(gumbel(key_or_next(key), shape_or_scalar(shape), t));
}

mr_array *
mr__build_random_truncated_normal(mr_array *lower, mr_array *upper,
                                  mr_shape shape, mr_dtype dtype, mr_array *key)
{
    mr_dtype t = float_dtype(dtype);
    int64_t dim[MR_MAX_NDIM];
    mr_array *root, *u;
    mr_text tl, tu;

    if (check_float(t) != MR_OK)
        return NULL;
    if (shape.n < 0) {
        shape.dim = dim;
        shape.n = mr__broadcast_shapes(lower->ndim, lower->dim, upper->ndim,
                                       upper->dim, dim);
        if (shape.n < 0)
            return mr__fail_null(
                MR_E_SHAPE, "bounds of shapes %s and %s do not broadcast",
                mr__shape_of(lower, &tl), mr__shape_of(upper, &tu));
    }
    lower = bound(lower, t, shape);
    upper = bound(upper, t, shape);
    if (lower == NULL || upper == NULL)
        return NULL;
    root = mr__number(t, 1.4142135623730951);
    u = uniform(mr_erf(mr_divide(lower, root)), mr_erf(mr_divide(upper, root)),
                shape, t, key_or_next(key));
    u = mr_multiply(root, mr_erfinv(u));
    return drawn(mr_maximum(mr_minimum(u, upper), lower));
}

/* ---- coins, integers, orders
 * ------------------------------------------------------------- */

mr_array *
mr__build_random_bernoulli(mr_array *p, mr_shape shape, mr_array *key)
{
    mr_list own;
    mr_array *w;

    if (!mr__given(p))
        p = mr__number(MR_FLOAT32, 0.5);
    if (p == NULL)
        return NULL;
    if (!mr__dtype_is_inexact((mr_dtype)p->dtype) ||
        mr__dtype_is_complex((mr_dtype)p->dtype))
        return mr__fail_null(MR_E_DTYPE, "p is a floating number, not %s",
                             mr_dtype_name((mr_dtype)p->dtype));
    if (shape.n < 0) {
        own = mr__dims(p);
        shape = mr__shape(&own);
    }
    p = bound(p, MR_FLOAT32, shape);
    if (p == NULL)
        return NULL;
    w = words(key_or_next(key), shape, 4);
    /* the next float32 above 2^32, so that p >= 1 is always true */
    p = mr_multiply(p, mr__number(MR_FLOAT32, 4294967808.0));
    return w == NULL ? NULL : drawn(mr_less(mr__cast(w, MR_FLOAT32), p));
}

mr_array *
mr__build_random_randint(mr_array *low, mr_array *high, mr_shape shape,
                         mr_dtype dtype, mr_array *key)
{
    mr_dtype t = dtype == MR_DTYPE_DEFAULT ? MR_INT32 : dtype;
    mr_array *u;

    shape = shape_or_scalar(shape);
    if (!mr__dtype_is_integer(t) && t != MR_BOOL)
        return mr__fail_null(MR_E_DTYPE,
                             "needs an integer dtype or bool, got %s",
                             mr_dtype_name(t));
    if (t == MR_BOOL) /* the arithmetic of bounds is for numbers */
        return mr__cast(
            mr__build_random_randint(low, high, shape, MR_INT32, key), t);
    u = uniform(low, high, shape, MR_FLOAT32, key_or_next(key));
    if (u == NULL)
        return NULL;
    u = mr__cast(mr_floor(u), t);
    high = mr_subtract(mr__cast(high, t), mr__integer(t, 1));
    return drawn(mr_maximum(mr_minimum(u, high), mr__cast(low, t)));
}

static mr_array *
random_order(int64_t n, mr_array *key)
{
    return mr_argsort(words(key_or_next(key), MR_SHAPE(n), 4), 0);
}

mr_array *
mr__build_random_permutation(mr_array *x, int64_t axis, mr_array *key)
{
    int32_t k;

    if (!mr__axis(axis, x->ndim, &k))
        return NULL;
    return drawn(mr_take(x, random_order(x->dim[k], key), k));
}

mr_array *
mr__build_random_permutation_n(int64_t n, mr_array *key)
{
    if (n < 0)
        return mr__fail_null(MR_E_VALUE, "%lld numbers, needs 0 or more",
                             (long long)n);
    return drawn(random_order(n, key));
}

/* ---- categorical
 * ----------------------------------------------------------------------------
 */

/* Draws from one distribution: where u falls in the running sum. */
static mr_array *
by_inverse(mr_array *logits, mr_shape shape, mr_array *key)
{
    mr_array *x = mr__cast(mr_flatten(logits, 0, -1), MR_FLOAT32);
    mr_array *top = mr_max(x, MR_AXES_ALL, false), *w, *sum, *u, *k;

    w = mr_subtract(x, top);
    /* an infinite largest: all weight on its likes */
    w = mr_where(mr_isnan(w),
                 mr_where(mr_equal(x, top), mr__number(MR_FLOAT32, 0.0),
                          mr__number(MR_FLOAT32, -INFINITY)),
                 w);
    w = mr_exp(w);
    sum = mr_sum(w, MR_AXES_ALL, false);
    u = mr_multiply(unit(key, shape, MR_FLOAT32), sum);
    w = mr_cumsum(w, 0, false, false, MR_FLOAT32);
    k = mr_searchsorted(w, u, "right");
    return mr_subtract(k, mr__integer(MR_UINT32, 1));
}

/* logits plus Gumbel noise of a shape; the largest along axis (from the end,
 * negative). */
static mr_array *
by_gumbel(mr_array *logits, mr_shape shape, int32_t axis, mr_array *key)
{
    mr_array *g = gumbel(key, shape, MR_FLOAT32);

    return mr_argmax(mr_add(logits, g), axis, false);
}

/* The shape wanted, with n put in where axis (negative) then stands. */
static mr_code
shape_with_axis(mr_shape shape, const mr_array *logits, int32_t axis,
                mr_list *out)
{
    int64_t at = shape.n + 1 + axis;
    bool fits = shape.n + 1 >= logits->ndim && shape.n < MR_MAX_NDIM;
    mr_text text;

    out->n = shape.n + 1;
    for (int64_t i = 0; fits && i < out->n; i++) {
        int64_t k = i - (out->n - logits->ndim); /* logits' own axis */

        out->v[i] = i == at  ? logits->dim[logits->ndim + axis]
                    : i < at ? shape.dim[i]
                             : shape.dim[i - 1];
        fits = k < 0 || logits->dim[k] == 1 || logits->dim[k] == out->v[i];
    }
    if (!fits)
        return mr__fail(MR_E_SHAPE,
                        "a shape of %lld axes for logits of shape %s: it must "
                        "end with theirs without the axis",
                        (long long)shape.n, mr__shape_of(logits, &text));
    return MR_OK;
}

mr_array *
mr__build_random_categorical(mr_array *logits, int64_t axis, mr_shape shape,
                             int64_t num_samples, mr_array *key)
{
    bool samples = num_samples != MR_INT_NONE;
    mr_list wanted = {.n = 0}, full;
    int32_t k, from_end;

    if (!mr__axis(axis, logits->ndim, &k))
        return NULL;
    if (shape.n >= 0 && samples)
        return mr__fail_null(MR_E_VALUE, "give shape or num_samples, not both");
    from_end = k - logits->ndim;
    for (int32_t i = 0; i < logits->ndim; i++)
        if (i != k)
            wanted.v[wanted.n++] = logits->dim[i];
    if (samples && wanted.n < MR_MAX_NDIM)
        wanted.v[wanted.n++] = num_samples;
    if (shape.n < 0)
        shape = mr__shape(&wanted);
    if (logits->size == logits->dim[k] && logits->size > 0 && shape.n > 0)
        return drawn(by_inverse(logits, shape, key_or_next(key)));
    key = key_or_next(key);
    if (!samples) {
        if (shape_with_axis(shape, logits, from_end, &full) != MR_OK)
            return NULL;
        return drawn(by_gumbel(logits, mr__shape(&full), from_end, key));
    }
    full = mr__dims(logits);
    if (full.n >= MR_MAX_NDIM)
        return mr__fail_null(MR_E_VALUE,
                             "logits of %d axes, at most %d are possible here",
                             (int)full.n, MR_MAX_NDIM - 1);
    full.v[full.n++] = num_samples;
    logits = mr_expand_dims(logits, MR_AXES(-1));
    return drawn(by_gumbel(logits, mr__shape(&full), from_end - 1, key));
}
