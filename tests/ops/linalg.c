/* SPDX-License-Identifier: Apache-2.0
 *
 * linalg.c -- tests of linear algebra from C: known factors, errors at
 * evaluation, what is refused, gradients at points where a formula alone
 * would fail.  Factors of every size and type: tests/python/test_linalg.py.
 */
#include <math.h>
#include <string.h>

#include "ops/gradient.h"

/* The matrix (4, 1, 0.5; 1, 3, 0; 0.5, 0, 2), positive definite. */
static mr_array *
known(void)
{
    return mr_reshape(
        mr_array_from_f32((float[]){4, 1, 0.5F, 1, 3, 0, 0.5F, 0, 2},
                          MRT_SHAPE(9)),
        MR_SHAPE(3, 3));
}

static mr_array *
matrix(const float *v, int64_t rows, int64_t columns)
{
    return mr_reshape(mr_array_from_f32(v, MRT_SHAPE(rows * columns)),
                      MR_SHAPE(rows, columns));
}

static void
near(mr_array *x, const double *want, int64_t n)
{
    mrt_assert_close(x, want, n, 1e-5, 1e-6);
}

/* ---- known factors
 * ------------------------------------------------------------ */

static void
cholesky__of_a_known_matrix(void **state)
{
    (void)state;
    near(mr_linalg_cholesky(known(), false),
         (double[]){2, 0, 0, 0.5, 1.6583124, 0, 0.25, -0.0753778, 1.3898989},
         9);
}

static void
lu__swaps_rows_and_says_so(void **state)
{
    (void)state;
    mr_tree *t = mr_linalg_lu(matrix((float[]){0, 1, 2, 3}, 2, 2));
    mr_tree *f = mr_linalg_lu_factor(matrix((float[]){0, 1, 2, 3}, 2, 2));

    near(mr_tree_array_at(t, 1), (double[]){1, 0, 0, 1}, 4);
    near(mr_tree_array_at(t, 2), (double[]){2, 3, 0, 1}, 4);
    mrt_assert_i64(mr_astype(mr_tree_array_at(t, 0), MR_INT64),
                   (int64_t[]){1, 0}, 2);
    near(mr_tree_array_at(f, 0), (double[]){2, 3, 0, 1}, 4);
    mrt_assert_i64(mr_astype(mr_tree_array_at(f, 1), MR_INT64),
                   (int64_t[]){1, 1}, 2);
}

static void
qr__has_lapacks_signs(void **state)
{
    (void)state;
    mr_tree *t = mr_linalg_qr(matrix((float[]){3, 1, 4, 2}, 2, 2), "reduced");

    near(mr_tree_array_at(t, 0), (double[]){-0.6, -0.8, -0.8, 0.6}, 4);
    near(mr_tree_array_at(t, 1), (double[]){-5, -2.2, 0, 0.4}, 4);
}

static void
qr__complete_has_a_square_q(void **state)
{
    (void)state;
    mr_tree *t = mr_linalg_qr(matrix((float[]){0, 0, 2}, 3, 1), "complete");
    mr_array *q = mr_tree_array_at(t, 0);

    near(mr_matmul(q, mr_transpose(q, MR_INTS_NONE)),
         (double[]){1, 0, 0, 0, 1, 0, 0, 0, 1}, 9);
    near(mr_tree_array_at(t, 1), (double[]){-2, 0, 0}, 3);
    assert_null(mr_linalg_qr(q, NULL));
    mrt_assert_error(MR_E_VALUE, "neither reduced nor complete");
}

static void
svd__without_vectors_is_a_leaf(void **state)
{
    (void)state;
    mr_array *a = matrix((float[]){3, 0, 0, 0, 4, 0}, 2, 3);
    mr_tree *s = mr_linalg_svd(a, false, true),
            *all = mr_linalg_svd(a, true, true);

    assert_int_equal(mr_tree_kind_of(s), MR_TREE_LEAF);
    near(mr_tree_array(s), (double[]){4, 3}, 2);
    mrt_assert_shape(mr_tree_array_at(all, 0), MR_SHAPE(2, 2));
    mrt_assert_shape(mr_tree_array_at(all, 2), MR_SHAPE(3, 3));
    near(mr_abs(mr_tree_array_at(all, 0)), (double[]){0, 1, 1, 0}, 4);
}

static void
svd__thin_has_as_many_vectors_as_values(void **state)
{
    (void)state;
    mr_array *a = matrix((float[]){3, 0, 0, 0, 4, 0}, 2, 3);
    mr_tree *t = mr_linalg_svd(a, true, false);

    mrt_assert_shape(mr_tree_array_at(t, 2), MR_SHAPE(2, 3));
    near(mr_linalg_svdvals(a), (double[]){4, 3}, 2);
}

static void
matrix_power__of_a_shear(void **state)
{
    (void)state;
    mr_array *a = matrix((float[]){1, 1, 0, 1}, 2, 2);

    near(mr_linalg_matrix_power(a, 13), (double[]){1, 13, 0, 1}, 4);
    near(mr_linalg_matrix_power(a, -6), (double[]){1, -6, 0, 1}, 4);
    near(mr_linalg_matrix_power(a, 0), (double[]){1, 0, 0, 1}, 4);
    assert_null(mr_linalg_matrix_power(matrix((float[]){1, 2}, 1, 2), 2));
    mrt_assert_error(MR_E_SHAPE, "square");
}

static void
matrix_power__of_a_singular_matrix_fails(void **state)
{
    (void)state;
    mr_array *a = matrix((float[]){1, 1, 1, 1}, 2, 2);

    assert_int_equal(mr_eval(mr_linalg_matrix_power(a, -1)), MR_E_VALUE);
    mrt_assert_error(MR_E_VALUE, "singular");
    assert_int_equal(mr_eval(mr_linalg_matrix_power(a, -2)), MR_E_VALUE);
    mrt_assert_error(MR_E_VALUE, "singular");
}

static void
rank__counts_above_a_part_of_the_largest(void **state)
{
    (void)state;
    mr_array *a = matrix((float[]){8, 0, 0, 0, 1, 0, 0, 0, 0}, 3, 3);
    mr_array *two = mr_zeros(MR_SHAPE(2), MR_FLOAT32);

    mrt_assert_i64(mr_astype(mr_linalg_matrix_rank(a, MR_NONE), MR_INT64),
                   (int64_t[]){2}, 1);
    mrt_assert_i64(mr_astype(mr_linalg_matrix_rank(a, mr_float(0.2)), MR_INT64),
                   (int64_t[]){1}, 1);
    near(mr_linalg_pinv(a, mr_float(0.2)),
         (double[]){0.125, 0, 0, 0, 0, 0, 0, 0, 0}, 9);
    assert_null(mr_linalg_pinv(a, two));
    mrt_assert_error(MR_E_SHAPE, "rtol of shape (2,)");
    assert_null(mr_linalg_matrix_rank(two, MR_NONE));
    mrt_assert_error(MR_E_SHAPE, "matrices");
}

static void
diagonals__are_of_the_last_two_axes(void **state)
{
    (void)state;
    mr_array *a = matrix((float[]){0, 1, 2, 3, 4, 5, 6, 7}, 2, 4);

    a = mr_reshape(a, MR_SHAPE(2, 2, 2));

    near(mr_linalg_diagonal(a, 0), (double[]){0, 3, 4, 7}, 4);
    near(mr_linalg_trace(a, 0, MR_FLOAT64), (double[]){3, 11}, 2);
    near(mr_linalg_vector_norm(a, MR_AXES(1, 2), false, 1.0), (double[]){6, 22},
         2);
}

static void
eig__of_a_rotation_is_a_pair(void **state)
{
    (void)state;
    mr_array *w = mr_linalg_eigvals(matrix((float[]){0, -1, 1, 0}, 2, 2));

    near(mr_real(w), (double[]){0, 0}, 2);
    near(mr_imag(w), (double[]){1, -1}, 2);
}

static void
solve__of_a_vector_and_of_columns(void **state)
{
    (void)state;
    mr_array *a = matrix((float[]){2, 0, 0, 4}, 2, 2);
    mr_array *b = mrt_f32((float[]){2, 8}, 2);

    near(mr_linalg_solve(a, b), (double[]){1, 2}, 2);
    mrt_assert_shape(mr_linalg_solve(a, mr_reshape(b, MR_SHAPE(2, 1))),
                     MR_SHAPE(2, 1));
    near(mr_linalg_solve_triangular(a, b, true), (double[]){1, 2}, 2);
}

static void
cross__of_two_plane_vectors_is_a_number(void **state)
{
    (void)state;
    mr_array *a = mrt_f32((float[]){1, 2}, 2), *b = mrt_f32((float[]){3, 4}, 2);
    mr_array *c = mrt_f32((float[]){0, 0, 1}, 3);

    near(mr_linalg_cross(a, b, -1), (double[]){-2}, 1);
    near(mr_linalg_cross(a, c, -1), (double[]){2, -1, 0}, 3);
}

static void
norm__has_a_number_a_name_or_neither(void **state)
{
    (void)state;
    mr_array *a = matrix((float[]){3, 0, 0, -4}, 2, 2);

    near(mr_linalg_norm(a, (double)NAN, MR_AXES_ALL, false), (double[]){5}, 1);
    near(mr_linalg_norm(a, 1.0, MR_AXES_ALL, false), (double[]){4}, 1);
    near(mr_linalg_norm(a, -2.0, MR_AXES_ALL, true), (double[]){3}, 1);
    near(mr_linalg_norm(a, (double)INFINITY, MR_AXES(1), false),
         (double[]){3, 4}, 2);
    near(mr_linalg_norm_matrix(a, "nuc", MR_AXES_ALL, false), (double[]){7}, 1);
}

/* ---- errors
 * -------------------------------------------------------------------- */

static void
cholesky__names_the_bad_matrix_of_a_batch(void **state)
{
    (void)state;
    mr_array *a = mr_stack((mr_array *[]){known(), mr_negative(known())}, 2, 0);
    mr_array *l = mr_linalg_cholesky(a, false);

    assert_int_equal(mr_eval(l), MR_E_VALUE);
    mrt_assert_error(MR_E_VALUE, "batch index (1,) is not positive definite");
}

static void
inv__of_a_singular_matrix_fails_and_the_next_call_works(void **state)
{
    (void)state;
    mr_array *y = mr_linalg_inv(mr_ones(MRT_SHAPE(2, 2), MR_FLOAT32));

    assert_int_equal(mr_eval(y), MR_E_VALUE);
    mrt_assert_error(MR_E_VALUE, "singular");
    near(mr_linalg_inv(matrix((float[]){2, 0, 0, 4}, 2, 2)),
         (double[]){0.5, 0, 0, 0.25}, 4);
}

typedef mr_array *(*one_array)(mr_array *a);

static mr_array *
lower(mr_array *a)
{
    return mr_linalg_cholesky(a, false);
}

static mr_array *
system_of(mr_array *a)
{
    return mr_linalg_solve(a, a);
}

static mr_array *
inverse(mr_array *a)
{
    return mr_linalg_inv(a);
}

static mr_array *
values(mr_array *a)
{
    return mr_linalg_eigvals(a);
}

static mr_array *
symmetric_values(mr_array *a)
{
    return mr_linalg_eigvalsh(a, "L");
}

/* 21 systems: a group and a part of one; the batch axis is the last in memory.
 */
static void
solve__of_many_small_systems(void **state)
{
    (void)state;
    mr_scalar zero = {MR_SCALAR_INT, {.i = 0}}, one = {MR_SCALAR_INT, {.i = 1}};
    mr_scalar stop = {MR_SCALAR_INT, {.i = 21 * 9}};
    mr_array *b = mr_ones(MR_SHAPE(21, 3, 2), MR_FLOAT32), *x;
    mr_array *a = mr_arange(zero, stop, one, MR_FLOAT32);

    a = mr_reshape(mr_sin(mr_square(a)), MR_SHAPE(3, 3, 21));
    a = mr_transpose(a, MR_INTS(2, 1, 0));
    x = mr_subtract(mr_matmul(a, mr_linalg_solve(a, b)), b);
    mrt_assert_close(mr_max(mr_abs(x), MR_AXES_ALL, false), (double[]){0}, 1,
                     0.0, 1e-4);
    x = mr_linalg_inv(mr_multiply(a, mr_zeros(MR_SCALAR_SHAPE, MR_FLOAT32)));
    assert_int_equal(mr_eval(x), MR_E_VALUE);
    mrt_assert_error(MR_E_VALUE, "index (0,) is singular");
}

static void
square_functions__refuse_others(void **state)
{
    static const one_array fn[] = {lower, system_of, inverse, values,
                                   symmetric_values};

    (void)state;
    for (size_t i = 0; i < sizeof fn / sizeof fn[0]; i++) {
        assert_null(fn[i](mr_ones(MRT_SHAPE(2, 3), MR_FLOAT32)));
        mrt_assert_error(MR_E_SHAPE, "square");
        assert_null(fn[i](mr_ones(MRT_SHAPE(3), MR_FLOAT32)));
        mrt_assert_error(MR_E_SHAPE, "last two axes");
        assert_null(fn[i](mr_ones(MRT_SHAPE(3, 3), MR_INT32)));
        mrt_assert_error(MR_E_DTYPE, "int32");
        assert_null(fn[i](mr_ones(MRT_SHAPE(3, 3), MR_FLOAT16)));
        mrt_assert_error(MR_E_DTYPE, "float16");
        assert_null(fn[i](NULL));
        mrt_assert_error(MR_E_NULL, "a");
    }
}

static void
svd__of_nan_is_nan(void **state)
{
    (void)state;
    mr_array *a = mr_full(MRT_SHAPE(2, 2), (double)NAN, MR_FLOAT32);
    mr_tree *t = mr_linalg_svd(a, true, true);

    mrt_assert_f32(mr_tree_array_at(t, 1), (float[]){NAN, NAN}, 2);
}

/* ---- gradients
 * ----------------------------------------------------------------- */

static mr_array *
det_of(mr_array *const *x)
{
    return mr_linalg_det(x[0]);
}

static void
det__of_a_singular_matrix_has_its_gradient(void **state)
{
    (void)state;
    mr_array *a = matrix((float[]){1, 2, 2, 4}, 2, 2);

    near(mrt_grad(det_of, 1, &a, 0), (double[]){4, -2, -2, 1}, 4);
}

static mr_array *
norm_of(mr_array *const *x)
{
    return mr_linalg_norm(x[0], (double)NAN, MR_AXES_ALL, false);
}

static void
norm__at_zero_has_gradient_zero(void **state)
{
    (void)state;
    mr_array *z = mr_zeros(MRT_SHAPE(3), MR_FLOAT32);

    mrt_assert_f32(mrt_grad(norm_of, 1, &z, 0), (float[]){0, 0, 0}, 3);
}

static mr_array *
log_det_of(mr_array *const *x)
{
    mr_array *l = mr_linalg_cholesky(x[0], false);

    return mr_multiply(mr_log(mr_diagonal(l, 0, 0, 1)), mr_float(2));
}

static void
cholesky__log_determinant_has_the_inverse_as_gradient(void **state)
{
    (void)state;
    mr_array *a = known(), *g = mrt_grad(log_det_of, 1, &a, 0);

    near(mr_matmul(g, a), (double[]){1, 0, 0, 0, 1, 0, 0, 0, 1}, 9);
}

static void
hadamard__refuses_sizes_without_a_matrix(void **state)
{
    (void)state;
    assert_null(mr_hadamard_transform(mr_ones(MRT_SHAPE(6), MR_FLOAT32), 1.0));
    mrt_assert_error(MR_E_VALUE, "size 6");
    near(mr_hadamard_transform(mrt_f32((float[]){1, 2, 3, 4}, 4), (double)NAN),
         (double[]){5, -1, -2, 0}, 4);
}

static void
multivariate_normal__refuses_other_dtypes(void **state)
{
    (void)state;
    mr_array *mean = mr_zeros(MRT_SHAPE(3), MR_FLOAT32);

    assert_null(mr_random_multivariate_normal(mean, known(), MR_SHAPE_NONE,
                                              MR_FLOAT64, MR_NONE));
    mrt_assert_error(MR_E_DTYPE, "float64");
    mrt_assert_shape(mr_random_multivariate_normal(mean, known(), MR_SHAPE(5),
                                                   MR_DTYPE_DEFAULT, MR_NONE),
                     MR_SHAPE(5, 3));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(cholesky__of_a_known_matrix),
        mrt_test(lu__swaps_rows_and_says_so),
        mrt_test(qr__has_lapacks_signs),
        mrt_test(qr__complete_has_a_square_q),
        mrt_test(svd__without_vectors_is_a_leaf),
        mrt_test(svd__thin_has_as_many_vectors_as_values),
        mrt_test(matrix_power__of_a_shear),
        mrt_test(matrix_power__of_a_singular_matrix_fails),
        mrt_test(rank__counts_above_a_part_of_the_largest),
        mrt_test(diagonals__are_of_the_last_two_axes),
        mrt_test(eig__of_a_rotation_is_a_pair),
        mrt_test(solve__of_a_vector_and_of_columns),
        mrt_test(cross__of_two_plane_vectors_is_a_number),
        mrt_test(norm__has_a_number_a_name_or_neither),
        mrt_test(cholesky__names_the_bad_matrix_of_a_batch),
        mrt_test(inv__of_a_singular_matrix_fails_and_the_next_call_works),
        mrt_test(solve__of_many_small_systems),
        mrt_test(square_functions__refuse_others),
        mrt_test(svd__of_nan_is_nan),
        mrt_test(det__of_a_singular_matrix_has_its_gradient),
        mrt_test(norm__at_zero_has_gradient_zero),
        mrt_test(cholesky__log_determinant_has_the_inverse_as_gradient),
        mrt_test(hadamard__refuses_sizes_without_a_matrix),
        mrt_test(multivariate_normal__refuses_other_dtypes),
    };

    return cmocka_run_group_tests_name("ops/linalg", tests, NULL, NULL);
}
