/* SPDX-License-Identifier: Apache-2.0
 *
 * mrt.c -- what tests of arrays share.
 */
#include "support/mrt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct opened {
    mr_scope scope;
} opened;

int
mrt_open(void **state)
{
    opened *o = malloc(sizeof *o);

    mr_error_take();
    o->scope = mr_scope_begin();
    *state = o;
    return 0;
}

int
mrt_close(void **state)
{
    opened *o = *state;
    mr_error e = mr_error_take();
    mr_code rc = mr_scope_end(o->scope);

    free(o);
    if (e.code != MR_OK)
        print_error("an error was left: %s\n", e.message);
    return e.code == MR_OK && rc == MR_OK ? 0 : -1;
}

void
mrt_tasks_end(void)
{
    assert_int_equal(mr_stream_sync((mr_stream){0}), MR_OK);
}

static double *
values(mr_array *x, int64_t n)
{
    double *v = malloc(sizeof(double) * (size_t)(n + 1));

    if (x == NULL)
        print_error("no array: %s\n", mr_error_last().message);
    assert_non_null(x);
    assert_int_equal(mr_array_size(x), n);
    if (mr_array_copy_f64(x, v, n) != MR_OK) {
        print_error("%s\n", mr_error_last().message);
        fail();
    }
    return v;
}

static bool
near(double got, double want, double rtol, double atol)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got))
        return want == got;
    return fabs(got - want) <= rtol * fabs(want) + atol;
}

void
mrt_assert_close(mr_array *x, const double *want, int64_t n, double rtol,
                 double atol)
{
    double *v = values(x, n);

    for (int64_t i = 0; i < n; i++)
        if (!near(v[i], want[i], rtol, atol)) {
            print_error("element %lld is %.17g, not %.17g\n", (long long)i,
                        v[i], want[i]);
            fail();
        }
    free(v);
}

void
mrt_assert_f64(mr_array *x, const double *want, int64_t n)
{
    mrt_assert_close(x, want, n, 0.0, 0.0);
}

void
mrt_assert_f32(mr_array *x, const float *want, int64_t n)
{
    double *w = malloc(sizeof(double) * (size_t)(n + 1));

    for (int64_t i = 0; i < n; i++)
        w[i] = (double)want[i];
    mrt_assert_f64(x, w, n);
    free(w);
}

void
mrt_assert_i64(mr_array *x, const int64_t *want, int64_t n)
{
    int64_t *v = malloc(sizeof(int64_t) * (size_t)(n + 1));

    assert_non_null(x);
    assert_int_equal(mr_array_size(x), n);
    assert_int_equal(mr_array_copy_i64(x, v, n), MR_OK);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(v[i], want[i]);
    free(v);
}

void
mrt_assert_shape(mr_array *x, mr_shape want)
{
    assert_non_null(x);
    assert_int_equal(mr_array_ndim(x), want.n);
    for (int i = 0; i < want.n; i++)
        assert_int_equal(mr_array_dim(x, i), want.dim[i]);
}

void
mrt_assert_same(mr_array *a, mr_array *b)
{
    size_t bytes;
    char *x, *y;

    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(mr_array_dtype(a), mr_array_dtype(b));
    mrt_assert_shape(a, mr_array_shape(b));
    bytes = mr_array_nbytes(a);
    x = malloc(bytes + 1);
    y = malloc(bytes + 1);
    assert_int_equal(mr_array_copy_out(a, x, bytes), MR_OK);
    assert_int_equal(mr_array_copy_out(b, y, bytes), MR_OK);
    if (memcmp(x, y, bytes) != 0) { /* NaNs may have other bits */
        int64_t n = mr_array_size(a);
        double *v = values(a, n), *w = values(b, n);

        for (int64_t i = 0; i < n; i++)
            if (!(isnan(v[i]) && isnan(w[i])) &&
                memcmp(&v[i], &w[i], sizeof(double)) != 0) {
                print_error("element %lld: %.17g and %.17g\n", (long long)i,
                            v[i], w[i]);
                fail();
            }
        free(v);
        free(w);
    }
    free(x);
    free(y);
}

void
mrt_assert_error(mr_code code, const char *text)
{
    mr_error e = mr_error_take();

    if (e.code != code || strstr(e.message, text) == NULL)
        print_error("got %s: %s\n", mr_code_name(e.code), e.message);
    assert_int_equal(e.code, code);
    assert_non_null(strstr(e.message, text));
}
