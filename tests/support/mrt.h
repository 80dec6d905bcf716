/* SPDX-License-Identifier: Apache-2.0
 *
 * mrt.h -- what tests of arrays share: a scope and a leak count around each
 * test, comparison with expected values, the tolerances.
 *
 *     mrt_test(subject__what_is_true) in the table of main().
 */
#ifndef MRT_MRT_H
#define MRT_MRT_H

#include "support/base.h"

#include "marram/marram.h"

#define MRT_PI         3.14159265358979F
#define MRT_SHAPE(...) MR_SHAPE(__VA_ARGS__)
#define mrt_test(f)    cmocka_unit_test_setup_teardown(f, mrt_open, mrt_close)

/* Setup and teardown: a scope around the test; at its end no error may be
 * pending that the test did not take. */
int mrt_open(void **state);
int mrt_close(void **state);

/* Values are there a moment before the tasks that made them have let go of what
 * they held: behind this, memory is as it will stay. */
void mrt_tasks_end(void);

/* x (any real dtype) has exactly these n values; NaN equals NaN. */
void mrt_assert_f32(mr_array *x, const float *want, int64_t n);
void mrt_assert_f64(mr_array *x, const double *want, int64_t n);
void mrt_assert_i64(mr_array *x, const int64_t *want, int64_t n);
/* Within rtol * |want| + atol. */
void mrt_assert_close(mr_array *x, const double *want, int64_t n, double rtol,
                      double atol);
/* Same dtype, shape and bits (NaNs are equal). */
void mrt_assert_same(mr_array *a, mr_array *b);
void mrt_assert_shape(mr_array *x, mr_shape want);
/* The pending error has this code and its message holds `text`; takes it. */
void mrt_assert_error(mr_code code, const char *text);

#endif
