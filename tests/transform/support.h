/* SPDX-License-Identifier: Apache-2.0
 *
 * support.h -- what the tests of transforms share: a scope around each test,
 * numbers out of arrays, operators of their own.
 */
#ifndef MRT_TRANSFORM_SUPPORT_H
#define MRT_TRANSFORM_SUPPORT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "marram/array.h"
#include "marram/error.h"
#include "marram/eval.h"
#include "marram/ops.h"
#include "marram/scope.h"
#include "marram/sys/testing.h"
#include "marram/transform.h"
#include "marram/tree.h"
#include "support/scoped.h"

static inline void
fail_with_error(const char *what)
{
    mr_error e = mr_error_take();

    print_message("%s: %s: %s (%s at %s)\n", what, mr_code_name(e.code),
                  e.message, e.op, e.site);
    fail();
}

/* x, or the test fails with the error. */
#define GOOD(x) good_array((x), #x)
static inline mr_array *
good_array(mr_array *x, const char *what)
{
    if (!x)
        fail_with_error(what);
    return x;
}

#define GOOD_TREE(x) good_tree((x), #x)
static inline mr_tree *
good_tree(mr_tree *x, const char *what)
{
    if (!x)
        fail_with_error(what);
    return x;
}

static inline double
number(mr_array *x)
{
    double v = mr_array_item_f64(good_array(x, "a number"));

    if (isnan(v) && mr_error_last().code != MR_OK)
        fail_with_error("item");
    return v;
}

static inline void
assert_near(double got, double want, double tolerance)
{
    if (fabs(got - want) <= tolerance * fmax(1.0, fabs(want)))
        return;
    print_message("got %.17g, want %.17g\n", got, want);
    fail();
}

static inline void
assert_values(mr_array *x, int n, const double *want)
{
    double got[64];

    assert_true(n <= 64);
    good_array(x, "an array");
    assert_int_equal(mr_array_size(x), n);
    if (mr_array_copy_f64(x, got, n) != MR_OK)
        fail_with_error("copy_f64");
    for (int i = 0; i < n; i++)
        assert_near(got[i], want[i], 1e-5);
}
#define VALUES(x, ...)                                                         \
    assert_values((x),                                                         \
                  (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)),     \
                  (double[]){__VA_ARGS__})

static inline void
assert_dims(mr_array *x, int n, const int64_t *want)
{
    mr_shape s = mr_array_shape(good_array(x, "an array"));

    assert_int_equal(s.n, n);
    for (int i = 0; i < n; i++)
        assert_int_equal(s.dim[i], want[i]);
}
#define DIMS(x, ...)                                                           \
    assert_dims((x),                                                           \
                (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),     \
                (int64_t[]){__VA_ARGS__})

/* The call failed with this code, and its message contains this text. */
static inline void
assert_failed(const void *result, mr_code code, const char *text)
{
    mr_error e = mr_error_take();

    assert_null(result);
    if (e.code != code || !strstr(e.message, text)) {
        print_message("error %s: %s\n", mr_code_name(e.code), e.message);
        fail();
    }
}

static inline mr_array *
vector(int n, const float *v)
{
    return good_array(mr_array_from_f32(v, MR_SHAPE(n)), "vector");
}
#define VECTOR(...)                                                            \
    vector((int)(sizeof((float[]){__VA_ARGS__}) / sizeof(float)),              \
           (float[]){__VA_ARGS__})

static inline mr_tree *
leaf(mr_array *x)
{
    return mr_tree_leaf(x);
}

/* The i-th argument of a closure. */
static inline mr_array *
arg(const mr_tree *in, int i)
{
    return mr_tree_array_at(in, i);
}

#endif
