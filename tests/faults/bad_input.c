/* SPDX-License-Identifier: Apache-2.0
 *
 * bad_input.c -- calls that must be refused, each with its code and what its
 * message must say; and extreme values that must not be.
 *
 * A refusal names what was given; nothing aborts, nothing is left behind.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "support/mrt.h"

/* ---- what a refusal is --------------------------------------------------- */

static int n_refused;

static void
refused_with(int line, mr_code code, const char *word)
{
    mr_error e = mr_error_take();

    n_refused++;
    if (e.code != code || strstr(e.message, word) == NULL)
        fail_msg("line %d: %s: \"%s\", but %s with \"%s\" is right", line,
                 mr_code_name(e.code), e.message, mr_code_name(code), word);
    assert_true(strlen(e.message) > 9); /* a sentence, not a word */
}

static void
no_object(int line, const void *result, mr_code code, const char *word)
{
    if (result != NULL)
        fail_msg("line %d: the call succeeded", line);
    refused_with(line, code, word);
}

static void
no_success(int line, mr_code rc, mr_code code, const char *word)
{
    if (rc == MR_OK)
        fail_msg("line %d: the call succeeded", line);
    if (rc != code)
        fail_msg("line %d: gave %s, but %s is right", line, mr_code_name(rc),
                 mr_code_name(code));
    refused_with(line, code, word);
}

#define REFUSED(call, code, word) no_object(__LINE__, (call), (code), (word))
#define FAILS(call, code, word)   no_success(__LINE__, (call), (code), (word))

/* ---- what is given ------------------------------------------------------- */

static const int64_t one_40[40] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                   1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                   1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
#define MANY     ((mr_shape){one_40, 40})
#define HUGE     MR_SHAPE(INT64_MAX / 2, 8)
#define NO_DTYPE ((mr_dtype)99)

/* float32 of a shape; integers, bools and complex numbers alike. */
static mr_array *
of(mr_shape shape, mr_dtype t)
{
    mr_array *x = mr_ones(shape, t);

    assert_non_null(x);
    return x;
}

static mr_array *
matrix(void)
{
    return of(MR_SHAPE(3, 4), MR_FLOAT32);
}

static mr_array *
vector(void)
{
    return of(MR_SHAPE(5), MR_FLOAT32);
}

/* ---- making -------------------------------------------------------------- */

static void
making__refuses(void **state)
{
    float f[4] = {0};
    mr_shape none = {NULL, 2};

    (void)state;
    REFUSED(mr_array_from(NULL, MR_SHAPE(3), MR_FLOAT32), MR_E_NULL, "NULL");
    REFUSED(mr_array_from(f, MR_SHAPE(-1), MR_FLOAT32), MR_E_VALUE, "dim 0");
    REFUSED(mr_array_from(f, HUGE, MR_FLOAT32), MR_E_OVERFLOW, "too large");
    REFUSED(mr_array_from(f, MANY, MR_FLOAT32), MR_E_VALUE, "40 dims");
    REFUSED(mr_array_from(f, none, MR_FLOAT32), MR_E_VALUE, "2 dims");
    REFUSED(mr_array_from(f, MR_SHAPE(2), NO_DTYPE), MR_E_DTYPE, "99");
    REFUSED(mr_array_from_scalar(MR_REAL(1), NO_DTYPE), MR_E_DTYPE, "99");
    REFUSED(
        mr_array_from_scalar((mr_scalar){(mr_scalar_kind)9, {.i = 1}}, MR_INT8),
        MR_E_VALUE, "9 is no kind");
    REFUSED(mr_array_wrap(NULL, MR_SHAPE(2), NULL, MR_FLOAT32, NULL, NULL),
            MR_E_NULL, "NULL");
    REFUSED(
        mr_array_wrap((char *)f + 1, MR_SHAPE(2), NULL, MR_FLOAT32, NULL, NULL),
        MR_E_VALUE, "not aligned for float32");
    REFUSED(mr_number_like(NULL, 1), MR_E_NULL, "NULL");
    REFUSED(mr_full(MR_SHAPE(-1), 0, MR_FLOAT32), MR_E_VALUE, "(-1,)");
    REFUSED(mr_zeros(HUGE, MR_FLOAT32), MR_E_OVERFLOW, "too many elements");
    REFUSED(mr_zeros(MANY, MR_FLOAT32), MR_E_VALUE, "40 axes");
    REFUSED(mr_zeros(MR_SHAPE_NONE, MR_FLOAT32), MR_E_VALUE, "zeros: -1 axes");
    REFUSED(mr_ones(MR_SHAPE(2), NO_DTYPE), MR_E_DTYPE, "99");
    REFUSED(mr_full_array(MR_SHAPE(2), vector(), MR_FLOAT32), MR_E_SHAPE,
            "(5,) does not broadcast to (2,)");
    REFUSED(mr_arange(MR_INTEGER(0), MR_INTEGER(5), MR_INTEGER(0), MR_INT32),
            MR_E_VALUE, "step of 0");
    REFUSED(mr_arange(MR_REAL(0), MR_REAL(NAN), MR_REAL(1), MR_FLOAT32),
            MR_E_VALUE, "finite");
    REFUSED(mr_arange(MR_INTEGER(0), MR_INTEGER(INT64_MAX), MR_INTEGER(1),
                      MR_INT64),
            MR_E_OVERFLOW, "9223372036854775807");
    REFUSED(mr_linspace(0, 1, -1, true, MR_FLOAT32), MR_E_VALUE, "-1 numbers");
    REFUSED(mr_linspace(0, 1, 5, true, NO_DTYPE), MR_E_DTYPE, "99");
    REFUSED(mr_eye(-1, 2, 0, MR_FLOAT32), MR_E_VALUE, "(-1, 2)");
    REFUSED(mr_eye(INT64_MAX, 2, 0, MR_FLOAT32), MR_E_OVERFLOW, "too many");
    REFUSED(mr_tril(vector(), 0), MR_E_VALUE, "2 axes or more, got 1");
    REFUSED(mr_diag(mr_float(1), 0), MR_E_VALUE, "got 0");
    REFUSED(mr_diag(vector(), INT64_MIN), MR_E_OVERFLOW, "too many");
    REFUSED(mr_trace(matrix(), 0, 1, 1, MR_DTYPE_DEFAULT), MR_E_VALUE,
            "the same, 1");
}

/* ---- elementwise --------------------------------------------------------- */

static void
elementwise__refuses(void **state)
{
    mr_array *x = matrix(), *v = vector(), *z = of(MR_SHAPE(3), MR_COMPLEX64);

    (void)state;
    REFUSED(mr_add(x, v), MR_E_SHAPE, "add: shapes (3, 4) and (5,)");
    REFUSED(mr_add(NULL, x), MR_E_NULL, "add: argument 'a' is NULL");
    REFUSED(mr_add(x, MR_NONE), MR_E_NULL, "absent (MR_NONE)");
    REFUSED(mr_exp(NULL), MR_E_NULL, "exp: argument 'a'");
    REFUSED(mr_where(v, x, NULL), MR_E_NULL, "'y' is NULL");
    REFUSED(mr_where(x, x, v), MR_E_SHAPE, "(3, 4), (3, 4) and (5,)");
    REFUSED(mr_arctan2(z, z), MR_E_DTYPE, "real numbers, got complex64");
    REFUSED(mr_floor(z), MR_E_DTYPE, "complex64");
    REFUSED(mr_bitwise_and(x, x), MR_E_DTYPE, "integers or bool, got float32");
    REFUSED(mr_left_shift(x, x), MR_E_DTYPE, "float32");
    REFUSED(mr_clip(x, v, MR_NONE), MR_E_SHAPE, "clip: shapes");
    REFUSED(mr_clip(x, MR_NONE, MR_NONE), MR_E_VALUE, "a_min and a_max");
    REFUSED(mr_astype(x, NO_DTYPE), MR_E_DTYPE, "99");
    REFUSED(mr_view(of(MR_SHAPE(3), MR_FLOAT32), MR_FLOAT64), MR_E_VALUE,
            "12 bytes");
    REFUSED(mr_divmod(z, z), MR_E_DTYPE, "divmod");
    /* a chain keeps the first failure */
    REFUSED(mr_exp(mr_add(mr_reshape(x, MR_SHAPE(5)), v)), MR_E_SHAPE,
            "reshape: 12 elements");
}

/* ---- shapes -------------------------------------------------------------- */

static void
shapes__refuse(void **state)
{
    mr_array *x = matrix(), *v = vector(), *zero_d = mr_float(1);
    mr_array *two[] = {x, v}, *hole[] = {x, NULL}, *absent[] = {x, MR_NONE};
    mr_array *empty = mr_zeros(MR_SHAPE(0, 3), MR_FLOAT32);

    (void)state;
    REFUSED(mr_reshape(x, MR_SHAPE(5, 2)), MR_E_SHAPE, "12 elements");
    REFUSED(mr_reshape(x, MR_SHAPE(-1, -1)), MR_E_VALUE, "one may be -1");
    REFUSED(mr_reshape(x, MR_SHAPE(-2, 6)), MR_E_VALUE, "(-2, 6)");
    REFUSED(mr_reshape(empty, MR_SHAPE(-1, 0)), MR_E_SHAPE, "0 elements");
    REFUSED(mr_reshape(x, MANY), MR_E_VALUE, "40 axes");
    REFUSED(mr_reshape(x, (mr_shape){NULL, 2}), MR_E_NULL, "2 numbers at NULL");
    REFUSED(mr_tile(x, (mr_ints){NULL, 2}), MR_E_NULL, "reps: 2 numbers");
    REFUSED(mr_flip(x, (mr_axes){NULL, 1}), MR_E_NULL, "axis: 1 numbers");
    REFUSED(mr_reshape(x, HUGE), MR_E_OVERFLOW, "too many");
    REFUSED(mr_flatten(x, 1, 0), MR_E_VALUE, "start axis 1");
    REFUSED(mr_unflatten(x, 1, MR_SHAPE(3, 2)), MR_E_SHAPE, "(3, 2)");
    REFUSED(mr_transpose(x, MR_INTS(0)), MR_E_VALUE,
            "1 axes for an array of 2");
    REFUSED(mr_transpose(x, MR_INTS(0, 0)), MR_E_VALUE, "given twice");
    REFUSED(mr_transpose(x, MR_INTS(INT64_MIN, 1)), MR_E_INDEX, "-92233720");
    REFUSED(mr_broadcast_to(x, MR_SHAPE(3, 5)), MR_E_SHAPE, "to (3, 5)");
    REFUSED(mr_broadcast_to(x, MR_SHAPE(INT64_MAX, 3, 4)), MR_E_OVERFLOW,
            "too many");
    REFUSED(mr_expand_dims(x, MR_AXES(5)), MR_E_INDEX, "axis 5");
    REFUSED(mr_expand_dims(x, MR_AXES_ALL), MR_E_VALUE, "needs an axis");
    REFUSED(mr_squeeze(x, MR_AXES(0)), MR_E_SHAPE, "not of size 1");
    REFUSED(mr_moveaxis(x, -4, 0), MR_E_INDEX, "axis -4");
    REFUSED(mr_concatenate(two, 2, 0), MR_E_SHAPE, "(3, 4) and (5,)");
    REFUSED(mr_concatenate(two, 0, 0), MR_E_VALUE, "at least one");
    REFUSED(mr_concatenate(two, -1, 0), MR_E_VALUE, "-1 arrays");
    REFUSED(mr_concatenate(NULL, 2, 0), MR_E_VALUE, "at NULL");
    REFUSED(mr_concatenate(hole, 2, 0), MR_E_NULL, "arrays[1] is NULL");
    REFUSED(mr_concatenate(absent, 2, 0), MR_E_NULL, "arrays[1] is absent");
    REFUSED(mr_concatenate(&zero_d, 1, 0), MR_E_INDEX, "0 axes");
    REFUSED(mr_stack(two, 2, 0), MR_E_SHAPE, "differ");
    REFUSED(mr_split(x, 3, 1), MR_E_VALUE, "3 sections");
    REFUSED(mr_split(x, 0, 1), MR_E_VALUE, "0 sections");
    REFUSED(mr_split(empty, INT64_MAX, 0), MR_E_VALUE, "too many pieces");
    REFUSED(mr_unstack(zero_d, 0), MR_E_INDEX, "0 axes");
    REFUSED(mr_pad(x, MR_INTS(-1), "constant", MR_NONE), MR_E_VALUE,
            "negative width");
    REFUSED(mr_pad(x, MR_INTS(1), "round", MR_NONE), MR_E_VALUE, "'round'");
    REFUSED(mr_pad(x, MR_INTS(1, 2, 3), "edge", MR_NONE), MR_E_VALUE,
            "3 widths");
    REFUSED(mr_pad(x, MR_INTS(INT64_MAX), "constant", MR_NONE), MR_E_OVERFLOW,
            "exceed 2^63");
    REFUSED(mr_pad(empty, MR_INTS(1), "edge", MR_NONE), MR_E_VALUE, "empty");
    REFUSED(mr_repeat(x, -1, 0), MR_E_VALUE, "-1 repeats");
    REFUSED(mr_repeat(x, INT64_MAX, 0), MR_E_OVERFLOW, "repeat: shape");
    REFUSED(mr_tile(x, MR_INTS(INT64_MAX, 2)), MR_E_OVERFLOW, "tile: shape");
    REFUSED(mr_roll(x, MR_INTS(1), MR_AXES(8)), MR_E_INDEX, "axis 8");
    REFUSED(mr_as_strided(x, MR_SHAPE(3, 4), MR_INTS(100, 1), 0), MR_E_VALUE,
            "0 to 203");
    REFUSED(mr_as_strided(x, MR_SHAPE(2), MR_INTS(-1), 0), MR_E_VALUE, "-1 to");
    REFUSED(mr_as_strided(x, MR_SHAPE(3, 4), MR_INTS(4), 0), MR_E_VALUE,
            "1 strides");
    REFUSED(mr_as_strided(x, MR_SHAPE(INT64_MAX, 4), MR_INTS(1, 1), 0),
            MR_E_OVERFLOW, "too many");
    REFUSED(mr_diagonal(x, 0, 0, 0), MR_E_VALUE, "the same, 0");
    REFUSED(mr_diff(x, -1, 0), MR_E_VALUE, "order -1");
    REFUSED(mr_meshgrid(&v, 1, false, "zz"), MR_E_VALUE, "xy or ij");
    REFUSED(mr_broadcast_arrays(two, 2), MR_E_SHAPE, "(5,)");
}

/* ---- reductions, orders, rows -------------------------------------------- */

static void
reductions__refuse(void **state)
{
    mr_array *x = matrix(), *v = vector(), *zero_d = mr_float(1);
    mr_array *empty = mr_zeros(MR_SHAPE(0, 3), MR_FLOAT32);
    mr_array *q = of(MR_SHAPE(1, 2, 3, 4), MR_FLOAT32);
    mr_array *headless = mr_zeros(MR_SHAPE(1, 0, 3, 4), MR_FLOAT32);
    mr_array *no = MR_NONE;

    (void)state;
    REFUSED(mr_sum(x, MR_AXES(2), false), MR_E_INDEX, "axis 2");
    REFUSED(mr_sum(x, MR_AXES(0, -2), false), MR_E_VALUE, "axis 0 is given");
    REFUSED(mr_max(empty, MR_AXES(0), false), MR_E_VALUE, "(0, 3)");
    REFUSED(mr_argmax(empty, 0, false), MR_E_VALUE, "nothing to reduce");
    REFUSED(mr_median(empty, MR_AXES_ALL, false), MR_E_VALUE, "nothing");
    REFUSED(mr_softmax(x, MR_AXES(2), false), MR_E_INDEX, "softmax: axis 2");
    REFUSED(mr_cumsum(x, 0, false, true, NO_DTYPE), MR_E_DTYPE, "99");
    REFUSED(mr_sort(x, 2), MR_E_INDEX, "axis 2");
    REFUSED(mr_partition(x, INT64_MIN, 1), MR_E_VALUE, "4 elements");
    REFUSED(mr_topk(x, 9, 1), MR_E_VALUE, "9 largest of 4");
    REFUSED(mr_topk(x, -1, 1), MR_E_VALUE, "-1 largest");
    REFUSED(mr_searchsorted(x, v, "left"), MR_E_VALUE, "1 axis, got 2");
    REFUSED(mr_searchsorted(v, v, "middle"), MR_E_VALUE, "left or right");
    REFUSED(mr_layer_norm(mr_astype(x, MR_INT32), no, no, 1e-5), MR_E_DTYPE,
            "int32");
    REFUSED(mr_layer_norm(x, v, no, 1e-5), MR_E_SHAPE, "(5,)");
    REFUSED(mr_rms_norm(zero_d, no, 1e-5), MR_E_VALUE, "1 axis");
    REFUSED(mr_rope(x, 3, false, 1e4, 1, mr_int(0), no), MR_E_VALUE, "dims 3");
    REFUSED(mr_rope(x, 4, false, NAN, 1, mr_int(0), no), MR_E_VALUE,
            "one of base and freqs");
    REFUSED(mr_rope(x, 4, false, 1e4, 1, no, no), MR_E_NULL, "offset");
    REFUSED(mr_scaled_dot_product_attention(x, x, x, 1, no, false, no),
            MR_E_SHAPE, "(B, Hq, Lq, D)");
    REFUSED(mr_scaled_dot_product_attention(q, headless, headless, 1, no, false,
                                            no),
            MR_E_SHAPE, "multiple of Hkv");
    REFUSED(mr_scaled_dot_product_attention(q, q, q, 1, v, false, no),
            MR_E_SHAPE, "must broadcast to");
    REFUSED(mr_scaled_dot_product_attention(q, q, q, 1, no, false, v),
            MR_E_SHAPE, "5 sinks for 2");
}

static void
products__refuse(void **state)
{
    mr_array *x = matrix(), *v = vector(), *n = of(MR_SHAPE(2, 2), MR_INT32);
    mr_array *q = of(MR_SHAPE(1, 2, 3, 4), MR_FLOAT32);
    mr_array *wide = of(MR_SHAPE(1, 9, 9, 4), MR_FLOAT32);
    mr_ints one = MR_INTS(1), zero = MR_INTS(0);

    (void)state;
    REFUSED(mr_matmul(x, x), MR_E_SHAPE, "(3, 4) and (3, 4)");
    REFUSED(mr_matmul(mr_float(1), x), MR_E_VALUE, "0-d");
    REFUSED(mr_matmul(n, n), MR_E_DTYPE, "int32");
    REFUSED(mr_addmm(v, x, mr_transpose(x, MR_INTS_NONE), 1, 1), MR_E_SHAPE,
            "addmm");
    REFUSED(mr_tensordot(x, x, MR_INTS(1)), MR_E_SHAPE, "size 4");
    REFUSED(mr_tensordot(x, x, MR_INTS(9)), MR_E_VALUE, "9 pairs");
    REFUSED(mr_vecdot(x, v, -1), MR_E_SHAPE, "vecdot");
    REFUSED(mr_conv2d(x, x, one, zero, one, 1), MR_E_SHAPE, "4 axes each");
    REFUSED(mr_conv2d(q, q, zero, zero, one, 1), MR_E_VALUE, "stride of 0");
    REFUSED(mr_conv2d(q, q, one, zero, MR_INTS(-1), 1), MR_E_VALUE, "of -1");
    REFUSED(mr_conv2d(q, q, one, zero, one, 3), MR_E_SHAPE, "3 groups");
    REFUSED(mr_conv2d(q, q, one, zero, one, 0), MR_E_SHAPE, "0 groups");
    REFUSED(mr_conv2d(q, q, MR_INTS(1, 1, 1), zero, one, 1), MR_E_VALUE,
            "3 numbers of stride");
    REFUSED(mr_conv2d(q, wide, one, zero, one, 1), MR_E_SHAPE, "kernel of 9");
}

/* ---- indexing ------------------------------------------------------------ */

static void
indexing__refuses(void **state)
{
    mr_array *x = matrix(), *v = vector(), *one = mr_float(1);
    mr_array *nine = mr_full(MR_SHAPE(2), 9, MR_INT32);
    mr_array *minus = mr_full(MR_SHAPE(1), -4, MR_INT64);
    mr_array *mask_5 = of(MR_SHAPE(5), MR_BOOL);
    mr_array *at[] = {nine, nine};
    mr_array *up = mr_zeros(MR_SHAPE(2, 1, 4), MR_FLOAT32);
    mr_ints a = MR_INTS(0), ones = MR_INTS(1, 1), zero_2 = MR_INTS(0, 0);
    mr_array *row = mr_full(MR_SHAPE(1, 4), 7, MR_INT32);

    (void)state;
    REFUSED(
        mr_index_slice(x, MR_INTS(0, 0, 0), MR_INTS(1, 1, 1), MR_INTS(1, 1, 1)),
        MR_E_VALUE, "more slices than the array's 2");
    REFUSED(mr_index_slice(x, a, ones, a), MR_E_VALUE, "stride of 0");
    REFUSED(mr_index_slice_update(x, v, a, MR_INTS(2), MR_INTS(1)), MR_E_SHAPE,
            "index_slice_update: shape (5,)");
    REFUSED(mr_take(x, v, 0), MR_E_VALUE, "integers, got float32");
    REFUSED(mr_take(x, nine, 5), MR_E_INDEX, "axis 5");
    FAILS(mr_eval(mr_take(x, nine, 0)), MR_E_INDEX, "index 9 is out of range");
    FAILS(mr_eval(mr_take(x, minus, 0)), MR_E_INDEX, "index -4");
    REFUSED(mr_take_along_axis(x, nine, 0), MR_E_VALUE, "indices of 1 axes");
    FAILS(mr_eval(mr_take_along_axis(x, row, 0)), MR_E_INDEX, "index 7");
    FAILS(mr_eval(mr_put_along_axis(x, row, one, 0)), MR_E_INDEX, "index 7");
    REFUSED(mr_index_gather(x, at, 2, a, ones), MR_E_VALUE, "2 index arrays");
    REFUSED(mr_index_gather(x, at, 2, zero_2, ones), MR_E_VALUE, "twice");
    REFUSED(mr_index_gather(x, at, 1, a, MR_INTS(1, 9)), MR_E_VALUE, "size 9");
    REFUSED(mr_index_gather(x, at, 1, MR_INTS(7), ones), MR_E_INDEX, "axis 7");
    REFUSED(mr_index_gather(x, NULL, 1, a, ones), MR_E_VALUE, "at NULL");
    FAILS(mr_eval(mr_index_gather(x, at, 1, a, MR_INTS(1, 4))), MR_E_INDEX,
          "index 9");
    REFUSED(mr_index_scatter(x, at, 1, v, a, "add"), MR_E_SHAPE, "(5,)");
    REFUSED(mr_index_scatter(x, at, 1, up, a, "plus"), MR_E_VALUE, "'plus'");
    REFUSED(mr_index_scatter(x, at, 1, up, a, NULL), MR_E_VALUE, "mode");
    FAILS(mr_eval(mr_index_scatter(x, at, 1, up, a, "add")), MR_E_INDEX,
          "index 9");
    REFUSED(mr_index_mask_set(x, v, one), MR_E_VALUE, "of bool, not float32");
    REFUSED(mr_index_mask_set(x, of(MR_SHAPE(4), MR_BOOL), one), MR_E_SHAPE,
            "mask of shape (4,)");
    REFUSED(mr_index_compress(v, of(MR_SHAPE(3), MR_BOOL)), MR_E_SHAPE,
            "(3,) for an array of shape (5,)");
    REFUSED(mr_masked_select(v, mask_5, -1, MR_NONE), MR_E_VALUE, "size of -1");
    REFUSED(mr_masked_select(v, mask_5, INT64_MAX, MR_NONE), MR_E_VALUE,
            "size of 9223372036854775807");
    REFUSED(mr_masked_select(v, mask_5, 2, v), MR_E_SHAPE, "fill value");
    REFUSED(mr_compress(v, v, 3, MR_INT_NONE, MR_NONE), MR_E_INDEX, "axis 3");
    REFUSED(mr_nonzero(one, MR_INT_NONE, 0), MR_E_VALUE, "0-d");
    REFUSED(mr_nonzero(v, 3, INT64_MAX), MR_E_OVERFLOW, "int32");
    REFUSED(mr_unique(v, -5, false, false, false, MR_NONE), MR_E_VALUE, "-5");
    REFUSED(mr_repeat_each(v, v, 0, 3), MR_E_VALUE, "integers, got float32");
    REFUSED(mr_index_mask_update(v, mask_5, one, NULL), MR_E_VALUE, "mode");
    REFUSED(mr_moveaxes(x, MR_INTS(0, 0), MR_INTS(0, 1)), MR_E_VALUE, "twice");
    REFUSED(mr_slice(x, nine, a, ones), MR_E_VALUE, "2 start indices");
    REFUSED(mr_slice(x, nine, MR_INTS(0, 1), MR_INTS(5, 1)), MR_E_VALUE,
            "size 5");
    REFUSED(mr_slice_update(x, v, nine, MR_INTS(0, 1)), MR_E_VALUE,
            "update of 1 axes");
}

static void
random__refuses(void **state)
{
    mr_array *x = matrix(), *v = vector(), *no = MR_NONE;
    mr_array *key = mr_random_key(MR_INTEGER(1)), *n = mr_int(1);
    mr_shape two = MR_SHAPE(2);

    (void)state;
    REFUSED(mr_random_seed(MR_INTEGER(-1)), MR_E_TYPE, "0 to 2^64 - 1");
    REFUSED(mr_random_key(MR_REAL(1)), MR_E_TYPE, "integer");
    REFUSED(mr_random_set_state(x), MR_E_VALUE, "(2,), got float32");
    REFUSED(mr_random_split(key, -1), MR_E_VALUE, "-1 keys");
    REFUSED(mr_random_split(key, INT64_MAX), MR_E_OVERFLOW, "too many");
    REFUSED(mr_random_bits(two, 3, no), MR_E_VALUE, "3 bytes, not 1, 2, 4");
    REFUSED(mr_random_normal(two, MR_INT32, no, no, no), MR_E_DTYPE, "int32");
    REFUSED(mr_random_normal(two, NO_DTYPE, no, no, no), MR_E_DTYPE, "99");
    REFUSED(mr_random_normal(two, MR_FLOAT32, v, no, no), MR_E_SHAPE, "(5,)");
    REFUSED(mr_random_normal(HUGE, MR_FLOAT32, no, no, no), MR_E_OVERFLOW,
            "too many");
    REFUSED(mr_random_uniform(no, no, two, MR_FLOAT32, x), MR_E_VALUE, "key");
    REFUSED(mr_random_bernoulli(n, two, no), MR_E_DTYPE, "int32");
    REFUSED(mr_random_randint(n, n, two, MR_FLOAT32, no), MR_E_DTYPE,
            "integer dtype");
    REFUSED(mr_random_categorical(x, -1, two, 3, no), MR_E_VALUE, "not both");
    REFUSED(mr_random_categorical(x, -1, MR_SHAPE_NONE, -3, no), MR_E_VALUE,
            "-3");
    REFUSED(mr_random_permutation(mr_float(1), 0, no), MR_E_INDEX, "0 axes");
    REFUSED(mr_random_permutation_n(-1, no), MR_E_VALUE, "-1 numbers");
}

/* ---- trees --------------------------------------------------------------- */

static mr_array *
gives_nothing(void *ctx, mr_array *const *x)
{
    (void)ctx;
    (void)x;
    return NULL;
}

static void
trees__refuse(void **state)
{
    mr_array *x = matrix(), *two[] = {x, x}, *hole = NULL;
    mr_tree *leaf = mr_tree_leaf(x), *tuple = MR_ARRAYS(x), *nothing = NULL;
    mr_tree *pair[] = {leaf, leaf}, *odd[] = {tuple, leaf};
    const char *same[] = {"a", "a"}, *a[] = {"a"}, *no_key[] = {NULL};
    mr_tree *dict = mr_tree_dict(1, a, &leaf), *deep = leaf;

    (void)state;
    REFUSED(mr_tree_leaf(NULL), MR_E_NULL, "child 0");
    REFUSED(mr_tree_list(-1, NULL), MR_E_VALUE, "-1 children");
    REFUSED(mr_tree_tuple(1, &nothing), MR_E_NULL, "child 0");
    REFUSED(mr_tree_dict(2, same, pair), MR_E_VALUE, "\"a\"");
    REFUSED(mr_tree_dict(1, no_key, pair), MR_E_NULL, "key 0");
    REFUSED(mr_tree_arrays(1, NULL), MR_E_VALUE, "1 arrays");
    REFUSED(mr_tree_at(tuple, -1), MR_E_INDEX, "child -1");
    REFUSED(mr_tree_at(NULL, 0), MR_E_NULL, "the tree is NULL");
    REFUSED(mr_tree_array(tuple), MR_E_TYPE, "got a tuple");
    REFUSED(mr_tree_key(tuple, 0), MR_E_TYPE, "only a dict has keys");
    REFUSED(mr_tree_get(dict, "b"), MR_E_INDEX, "\"b\"");
    REFUSED(mr_tree_get(dict, NULL), MR_E_TYPE, "a key is");
    FAILS(mr_tree_leaves(tuple, two, 2), MR_E_VALUE, "2 arrays");
    FAILS(mr_tree_leaves(tuple, NULL, 1), MR_E_NULL, "1 leaves");
    REFUSED(mr_tree_like(tuple, NULL, 1), MR_E_NULL, "1 leaves");
    REFUSED(mr_tree_like(tuple, &hole, 1), MR_E_NULL, "child 0");
    REFUSED(mr_tree_map(gives_nothing, NULL, 1, &tuple), MR_E_NULL, "child 0");
    REFUSED(mr_tree_map(gives_nothing, NULL, 2, odd), MR_E_VALUE,
            "another structure");
    REFUSED(mr_tree_map(NULL, NULL, 1, &tuple), MR_E_NULL, "function to map");
    for (int i = 0; deep != NULL; i++) {
        assert_true(i < 100000);
        deep = mr_tree_list(1, &deep);
    }
    REFUSED(deep, MR_E_VALUE, "levels");
}

/* ---- reading, evaluating ------------------------------------------------- */

static void
reading__refuses(void **state)
{
    mr_array *x = matrix(), *two[] = {x, NULL};
    mr_pending pending = {.size = sizeof pending};
    mr_stream gone = {999999};
    mr_device nowhere = {MR_GPU, 99};
    float f[12];
    size_t bytes = 0;

    (void)state;
    FAILS(mr_array_copy_out(x, f, 3), MR_E_VALUE, "48 bytes");
    FAILS(mr_array_copy_out(x, NULL, 48), MR_E_NULL, "copy to");
    FAILS(mr_array_copy_f32(x, f, 5), MR_E_VALUE, "12 elements");
    FAILS(mr_array_copy_f32(NULL, f, 5), MR_E_NULL, "the array is NULL");
    FAILS(mr_array_item(x, &(mr_scalar){0}), MR_E_VALUE, "(3, 4)");
    FAILS(mr_array_item(mr_float(1), NULL), MR_E_NULL, "place");
    assert_true(isnan(mr_array_item_f64(x)));
    mrt_assert_error(MR_E_VALUE, "one element");
    assert_int_equal(mr_array_dim(x, 7), -1);
    mrt_assert_error(MR_E_INDEX, "axis 7");
    REFUSED(mr_array_data(NULL), MR_E_NULL, "NULL");
    REFUSED(mr_array_text(MR_NONE, -1), MR_E_NULL, "NULL");
    FAILS(mr_eval(NULL), MR_E_NULL, "array 0");
    FAILS(mr_eval_many(two, 2), MR_E_NULL, "array 1");
    FAILS(mr_eval_many(NULL, 2), MR_E_VALUE, "at NULL");
    FAILS(mr_async_eval(two, -1), MR_E_VALUE, "-1 arrays");
    FAILS(mr_eval_tree(NULL), MR_E_NULL, "tree");
    FAILS(mr_stats_get(NULL), MR_E_NULL, "mr_stats");
    FAILS(mr_pending_get(two, 2, &pending), MR_E_NULL, "array 1");
    FAILS(mr_pending_get(NULL, 2, &pending), MR_E_NULL, "list of arrays");
    FAILS(mr_pending_get(two, 1, NULL), MR_E_NULL, "mr_pending");
    FAILS(mr_stream_sync(gone), MR_E_VALUE, "stream 999999");
    FAILS(mr_stream_set_default(gone), MR_E_VALUE, "999999");
    FAILS(mr_set_default_device(nowhere), MR_E_VALUE, "gpu:99");
    assert_int_equal(mr_stream_new(nowhere).id, 0);
    mrt_assert_error(MR_E_VALUE, "gpu:99");
    REFUSED(mr_save_npy_memory(x, NULL), MR_E_NULL, "size");
    REFUSED(mr_save_npy_memory(NULL, &bytes), MR_E_NULL, "NULL");
}

static void
files__refuse(void **state)
{
    mr_array *x = matrix();
    mr_tree *leaf = mr_tree_leaf(x), *tuple = MR_ARRAYS(x);
    mr_tree *odd = mr_tree_leaf(of(MR_SHAPE(1), MR_COMPLEX128));
    const char *a[] = {"a"}, *meta[] = {"__metadata__"}, *wrong[] = {"a\xff"};
    mr_tree *dict = mr_tree_dict(1, a, &leaf);

    (void)state;
    REFUSED(mr_load_npy("/nonexistent"), MR_E_IO, "/nonexistent");
    REFUSED(mr_load_npy(NULL), MR_E_NULL, "path");
    REFUSED(mr_load_npy("/tmp"), MR_E_IO, "no regular file");
    REFUSED(mr_load_npy_memory("abc", 3), MR_E_IO, "no npy file");
    REFUSED(mr_load_npy_memory(NULL, 3), MR_E_NULL, "data");
    FAILS(mr_save_npy("/nonexistent/x", x), MR_E_IO, "/nonexistent/x");
    FAILS(mr_save_npy("/tmp/x", NULL), MR_E_NULL, "NULL");
    REFUSED(mr_load_safetensors("/nonexistent", NULL), MR_E_IO, "/nonexistent");
    REFUSED(mr_load_safetensors_memory("abcdefghij", 10, NULL), MR_E_IO,
            "header");
    FAILS(mr_save_safetensors("/tmp/x", tuple, 0, NULL, NULL), MR_E_TYPE,
          "dict");
    FAILS(mr_save_safetensors("/tmp/x", mr_tree_dict(1, a, &tuple), 0, NULL,
                              NULL),
          MR_E_TYPE, "'a'");
    FAILS(
        mr_save_safetensors("/tmp/x", mr_tree_dict(1, a, &odd), 0, NULL, NULL),
        MR_E_DTYPE, "complex128");
    FAILS(mr_save_safetensors("/tmp/x", mr_tree_dict(1, meta, &leaf), 0, NULL,
                              NULL),
          MR_E_VALUE, "__metadata__");
    FAILS(mr_save_safetensors("/tmp/x", mr_tree_dict(1, wrong, &leaf), 0, NULL,
                              NULL),
          MR_E_VALUE, "UTF-8");
    FAILS(mr_save_safetensors("/tmp/x", dict, 2, NULL, NULL), MR_E_VALUE,
          "2 pairs");
    FAILS(mr_save_safetensors("/tmp/x", dict, -2, a, a), MR_E_VALUE, "-2");
}

/* ---- transforms and compiled functions ----------------------------------- */

static mr_tree *
same(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_tree_at(in, 0);
}

static mr_tree *
total(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_tree_leaf(mr_sum(mr_tree_array_at(in, 0), MR_AXES_ALL, false));
}

static mr_tree *
nothing(void *ctx, const mr_tree *in)
{
    (void)ctx;
    (void)in;
    return NULL;
}

static mr_tree *
whole_total(void *ctx, const mr_tree *in)
{
    return mr_tree_leaf(mr_astype(mr_tree_array(total(ctx, in)), MR_INT32));
}

static mr_tree *
peeks(void *ctx, const mr_tree *in)
{
    (void)ctx;
    return mr_eval(mr_tree_array_at(in, 0)) == MR_OK ? mr_tree_at(in, 0) : NULL;
}

static mr_tree *
picks(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);

    (void)ctx;
    return mr_tree_leaf(mr_index_compress(x, mr_greater(x, mr_float(0))));
}

static void
transforms__refuse(void **state)
{
    mr_array *x = matrix(), *v = vector();
    mr_tree *args = MR_ARRAYS(x), *ints = MR_ARRAYS(of(MR_SHAPE(2), MR_INT32));
    mr_tree *both = MR_ARRAYS(x, v), *short_one = MR_ARRAYS(v);
    int32_t front[] = {0, 0}, far[] = {5}, none[] = {MR_VMAP_NONE};
    int twice[] = {0, -1}, third[] = {3};

    (void)state;
    REFUSED(mr_grad(NULL, NULL, args, NULL, 0), MR_E_NULL, "function is NULL");
    REFUSED(mr_grad(total, NULL, NULL, NULL, 0), MR_E_NULL, "args");
    REFUSED(mr_grad(total, NULL, mr_tree_leaf(x), NULL, 0), MR_E_TYPE, "tuple");
    REFUSED(mr_grad(total, NULL, args, third, 1), MR_E_VALUE, "argnum 3");
    REFUSED(mr_grad(total, NULL, args, twice, 2), MR_E_VALUE, "argnum -1");
    REFUSED(mr_grad(total, NULL, args, NULL, 2), MR_E_VALUE, "2 argnums");
    REFUSED(mr_grad(total, NULL, args, twice, -1), MR_E_VALUE, "-1 argnums");
    REFUSED(mr_grad(total, NULL, ints, NULL, 0), MR_E_DTYPE, "int32");
    REFUSED(mr_grad(same, NULL, args, NULL, 0), MR_E_SHAPE, "(3, 4)");
    REFUSED(mr_grad(whole_total, NULL, args, NULL, 0), MR_E_DTYPE, "int32");
    REFUSED(mr_grad(nothing, NULL, args, NULL, 0), MR_E_NULL, "gave NULL");
    REFUSED(mr_vjp(same, NULL, args, short_one), MR_E_SHAPE, "(5,)");
    REFUSED(mr_vjp(same, NULL, args, NULL), MR_E_NULL, "cotangents");
    REFUSED(mr_jvp(same, NULL, args, both), MR_E_VALUE, "2 tangents for 1");
    REFUSED(mr_jvp(same, NULL, args, short_one), MR_E_SHAPE, "(5,)");
    REFUSED(mr_vmap(same, NULL, args, far, 1, NULL, 0), MR_E_INDEX, "is 5");
    REFUSED(mr_vmap(same, NULL, args, front, 2, NULL, 0), MR_E_VALUE,
            "2 in_axes for 1");
    REFUSED(mr_vmap(same, NULL, args, NULL, 1, NULL, 0), MR_E_NULL, "in_axes");
    REFUSED(mr_vmap(same, NULL, both, front, 2, NULL, 0), MR_E_VALUE,
            "array 1 has 5");
    REFUSED(mr_vmap(same, NULL, args, none, 1, NULL, 0), MR_E_VALUE, "mapped");
    REFUSED(mr_vmap(same, NULL, args, front, 1, far, 1), MR_E_INDEX,
            "out_axes 0 is 5");
    REFUSED(mr_vmap(peeks, NULL, args, front, 1, NULL, 0), MR_E_STATE, "vmap");
    REFUSED(mr_vmap(picks, NULL, args, front, 1, NULL, 0), MR_E_STATE,
            "traced");
    REFUSED(mr_closure_new(NULL, NULL, NULL), MR_E_NULL, "closure");
    REFUSED(mr_closure_call(NULL, args), MR_E_NULL, "closure");
}

static void
compiled_functions__refuse(void **state)
{
    mr_tree *args = MR_ARRAYS(matrix());
    mr_function *peek = mr_compile(peeks, NULL, NULL);
    mr_function *no_result = mr_compile(nothing, NULL, NULL);

    (void)state;
    REFUSED(mr_compile(NULL, NULL, NULL), MR_E_NULL, "function");
    REFUSED(mr_compile_closure(NULL, NULL), MR_E_NULL, "closure");
    REFUSED(mr_call(NULL, args), MR_E_NULL, "the function is NULL");
    REFUSED(mr_call(peek, NULL), MR_E_NULL, "argument tree");
    REFUSED(mr_call(peek, args), MR_E_STATE, "while it is traced");
    REFUSED(mr_call(no_result, args), MR_E_NULL, "gave NULL");
    REFUSED(mr_call_keyed(peek, args, NULL, 5, NULL), MR_E_NULL, "5 bytes");
    FAILS(mr_function_cache_info(NULL, NULL), MR_E_NULL, "function");
    FAILS(mr_function_cache_info(peek, NULL), MR_E_NULL, "mr_cache_info");
    FAILS(mr_function_cache_clear(NULL), MR_E_NULL, "function");
    mr_function_release(peek);
    mr_function_release(no_result);
}

/* ---- scopes, threads, references ----------------------------------------- */

static void
end_elsewhere(void *scope, int i)
{
    (void)i;
    assert_int_equal(mr_scope_end(*(mr_scope *)scope), MR_E_STATE);
    mrt_assert_error(MR_E_STATE, "another thread");
}

static void
scopes__refuse(void **state)
{
    mr_array *x = matrix(), *own = mr_retain(x);
    mr_tree *t = MR_ARRAYS(x);
    mr_scope s = mr_scope_begin(), inner = mr_scope_begin();

    (void)state;
    mrt_threads(1, end_elsewhere, &s);
    assert_int_equal(mr_scope_end(s), MR_OK); /* closes the inner one too */
    FAILS(mr_scope_end(inner), MR_E_STATE, "not open");
    FAILS(mr_scope_end(s), MR_E_STATE, "not open");
    FAILS(mr_scope_end((mr_scope){0}), MR_E_STATE, "not open");
    REFUSED(mr_scope_return(s, x), MR_E_STATE, "not open");
    REFUSED(mr_scope_return_tree(s, t), MR_E_STATE, "not open");
    mr_release(own);
    assert_int_equal(mr_error_last().code, MR_OK);
    mr_release(x); /* the scope's, not ours */
    mrt_assert_error(MR_E_STATE, "mr_retain");
    mr_tree_release(t);
    mrt_assert_error(MR_E_STATE, "no reference");
    mr_release(NULL);
    mr_release(MR_NONE);
    mr_tree_release(NULL);
    mr_function_release(NULL);
    mr_closure_release(NULL);
    assert_int_equal(mr_error_last().code, MR_OK);
    mrt_assert_f32(mr_sum(x, MR_AXES_ALL, false), (float[]){12}, 1);
}

/* ---- extremes that are right --------------------------------------------- */

static void
extreme_numbers__are_exact(void **state)
{
    int64_t line[4] = {10, 20, 30, 40};
    mr_array *x = mr_array_from_i64(line, MRT_SHAPE(4));
    mr_ints low = MR_INTS(INT64_MIN), high = MR_INTS(INT64_MAX);
    mr_ints back = MR_INTS(-INT64_MAX), one = MR_INTS(1);
    mr_array *m = mr_reshape(x, MR_SHAPE(2, 2));

    (void)state;
    mrt_assert_i64(mr_index_slice(x, low, high, one), line, 4);
    mrt_assert_i64(mr_index_slice(x, MR_INTS(-INT64_MAX), high, high), line, 1);
    mrt_assert_i64(mr_index_slice(x, high, low, back), line + 3, 1);
    mrt_assert_i64(mr_index_slice(x, high, high, one), line, 0);
    mrt_assert_i64(mr_roll(x, MR_INTS(INT64_MIN), MR_AXES(0)), line, 4);
    mrt_assert_i64(mr_diff(x, INT64_MAX, 0), line, 0);
    mrt_assert_i64(mr_tril(m, INT64_MAX), line, 4);
    mrt_assert_i64(mr_triu(m, INT64_MIN), line, 4);
    mrt_assert_i64(mr_tril(m, INT64_MIN), (int64_t[]){0, 0, 0, 0}, 4);
    mrt_assert_i64(mr_diag(m, INT64_MAX), line, 0);
    mrt_assert_i64(mr_round(x, INT64_MIN), (int64_t[]){0, 0, 0, 0}, 4);
    mrt_assert_i64(mr_round(x, INT64_MAX), line, 4);
    mrt_assert_i64(mr_round(x, -1), line, 4);
    for (int i = -400; i <= 400; i += 5) { /* no power of ten makes a NaN */
        mr_array *h = mr_float(1.5), *r;

        r = mr_isnan(mr_round(mr_astype(h, MR_FLOAT16), i));
        mrt_assert_i64(mr_logical_or(r, mr_isnan(mr_round(h, i))),
                       (int64_t[]){0}, 1);
    }
    mrt_assert_i64(
        mr_tree_array_at(mr_split_indices(x, MR_INTS(INT64_MIN, INT64_MAX), 0),
                         1),
        line, 4);
    mrt_assert_shape(mr_zeros(MR_SHAPE(0, INT64_MAX), MR_INT8),
                     MRT_SHAPE(0, INT64_MAX));
}

static void
count_refusals(void **state)
{
    (void)state;
    print_message("  %d calls were refused\n", n_refused);
    assert_true(n_refused >= 200);
}

/* Misuse is logged too; here it is on purpose. */
static void
quiet(void *ctx, int level, const char *text)
{
    (void)ctx;
    (void)level;
    (void)text;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(making__refuses),    mrt_test(elementwise__refuses),
        mrt_test(shapes__refuse),     mrt_test(reductions__refuse),
        mrt_test(products__refuse),   mrt_test(indexing__refuses),
        mrt_test(random__refuses),    mrt_test(trees__refuse),
        mrt_test(reading__refuses),   mrt_test(files__refuse),
        mrt_test(transforms__refuse), mrt_test(compiled_functions__refuse),
        mrt_test(scopes__refuse),     mrt_test(extreme_numbers__are_exact),
        mrt_test(count_refusals),
    };

    mr__log_set_handler(quiet, NULL);
    return cmocka_run_group_tests_name("faults/bad_input", tests, NULL, NULL);
}
