/* SPDX-License-Identifier: Apache-2.0
 *
 * fft.c -- tests of Fourier transforms from C: values known by heart, what is
 * refused, derivatives, frames.
 */
#include <math.h>

#include "ops/gradient.h"

#define NONE MR_INT_NONE

static mr_array *
ramp(int64_t n)
{
    mr_scalar zero = {.kind = MR_SCALAR_INT, .as.i = 0};
    mr_scalar one = {.kind = MR_SCALAR_INT, .as.i = 1};
    mr_scalar stop = {.kind = MR_SCALAR_INT, .as.i = n};

    return mr_arange(zero, stop, one, MR_FLOAT32);
}

static void
fft__of_an_impulse_is_flat(void **state)
{
    (void)state;
    mr_array *x = mrt_f32((float[]){1, 0, 0, 0}, 4);

    mrt_assert_f32(mr_real(mr_fft_fft(x, NONE, -1, "backward")),
                   (float[]){1, 1, 1, 1}, 4);
    mrt_assert_f32(mr_imag(mr_fft_fft(x, NONE, -1, "backward")),
                   (float[]){0, 0, 0, 0}, 4);
}

static void
fft__of_0_1_2_3_by_hand(void **state)
{
    (void)state;
    mr_array *y = mr_fft_fft(ramp(4), NONE, -1, "backward");

    mrt_assert_f32(mr_real(y), (float[]){6, -2, -2, -2}, 4);
    mrt_assert_f32(mr_imag(y), (float[]){0, 2, 0, -2}, 4);
    mrt_assert_f32(mr_real(mr_fft_ifft(y, NONE, -1, "backward")),
                   (float[]){0, 1, 2, 3}, 4);
}

static void
fft__dtypes_follow_the_input(void **state)
{
    static const mr_dtype from[] = {MR_BOOL,      MR_INT8,    MR_FLOAT16,
                                    MR_FLOAT32,   MR_FLOAT64, MR_COMPLEX64,
                                    MR_COMPLEX128};

    (void)state;
    for (size_t i = 0; i < sizeof from / sizeof from[0]; i++) {
        bool wide = from[i] == MR_FLOAT64 || from[i] == MR_COMPLEX128;
        mr_array *x = mr_ones(MRT_SHAPE(4), from[i]);
        mr_array *y = mr_fft_fft(x, NONE, -1, "ortho");
        mr_array *z = mr_fft_irfft(x, NONE, -1, "ortho");

        assert_int_equal(mr_array_dtype(y),
                         wide ? MR_COMPLEX128 : MR_COMPLEX64);
        assert_int_equal(mr_array_dtype(z), wide ? MR_FLOAT64 : MR_FLOAT32);
    }
}

static void
fft__lengths_below_1_are_refused(void **state)
{
    static const int64_t bad[] = {0, -1, INT64_MIN + 1};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        mr_array *x = ramp(4);

        assert_null(mr_fft_fft(x, bad[i], -1, "backward"));
        mrt_assert_error(MR_E_VALUE, "needs 1 or more");
        assert_null(mr_fft_rfft(x, bad[i], -1, "backward"));
        mrt_assert_error(MR_E_VALUE, "needs 1 or more");
        assert_null(mr_fft_irfft(x, bad[i], -1, "backward"));
        mrt_assert_error(MR_E_VALUE, "needs 1 or more");
    }
    assert_null(
        mr_fft_irfft(mr_ones(MRT_SHAPE(1), MR_FLOAT32), NONE, -1, "backward"));
    mrt_assert_error(MR_E_VALUE, "length 0");
}

static void
fft__sizes_beyond_64_bits_are_refused(void **state)
{
    (void)state;
    mr_array *x = mr_broadcast_to(mr_float(1), MRT_SHAPE(8, 4));

    assert_null(mr_fft_fft(x, INT64_MAX, -1, "backward"));
    mrt_assert_error(MR_E_OVERFLOW, "too many elements");
    assert_null(mr_fft_fft2(x, MRT_SHAPE(INT64_MAX / 2, INT64_MAX / 2),
                            MR_AXES(-2, -1), "backward"));
    mrt_assert_error(MR_E_OVERFLOW, "too many elements");
    assert_null(mr_fft_fftfreq(INT64_MAX, 1.0, MR_DTYPE_DEFAULT));
    mr_error_take();
}

static void
fft__axes_out_of_range_or_given_twice_are_refused(void **state)
{
    (void)state;
    mr_array *x = mr_ones(MRT_SHAPE(2, 3), MR_FLOAT32);

    assert_null(mr_fft_fft(x, NONE, 2, "backward"));
    mrt_assert_error(MR_E_INDEX, "axis 2");
    assert_null(mr_fft_rfft(x, NONE, -3, "backward"));
    mrt_assert_error(MR_E_INDEX, "axis -3");
    assert_null(mr_fft_fft(x, NONE, INT64_MAX, "backward"));
    mrt_assert_error(MR_E_INDEX, "out of range");
    assert_null(mr_fft_fftn(x, MR_SHAPE_NONE, MR_AXES(0, -2), "backward"));
    mrt_assert_error(MR_E_VALUE, "given twice");
    assert_null(mr_fft_fftn(x, MRT_SHAPE(2), MR_AXES(0, 1), "backward"));
    mrt_assert_error(MR_E_VALUE, "lengths (2,) for 2 axes");
    assert_null(mr_fft_fftshift(x, MR_AXES(2)));
    mrt_assert_error(MR_E_INDEX, "axis 2");
}

static void
fft__an_unknown_norm_is_refused(void **state)
{
    (void)state;
    assert_null(mr_fft_fft(ramp(3), NONE, -1, "unitary"));
    mrt_assert_error(MR_E_VALUE, "unitary");
    assert_null(mr_fft_irfftn(ramp(3), MR_SHAPE_NONE, MR_AXES_ALL, NULL));
    mrt_assert_error(MR_E_VALUE, "needs backward, ortho or forward");
}

static void
rfft__refuses_complex_numbers(void **state)
{
    (void)state;
    mr_array *x = mr_ones(MRT_SHAPE(4), MR_COMPLEX64);

    assert_null(mr_fft_rfft(x, NONE, -1, "backward"));
    mrt_assert_error(MR_E_DTYPE, "complex64");
    assert_null(mr_fft_rfft2(mr_reshape(x, MRT_SHAPE(2, 2)), MR_SHAPE_NONE,
                             MR_AXES(-2, -1), "backward"));
    mrt_assert_error(MR_E_DTYPE, "complex64");
}

static void
fftn__no_axes_leaves_the_numbers(void **state)
{
    (void)state;
    mr_array *x = mr_ones(MR_SCALAR_SHAPE, MR_FLOAT32);
    mr_array *y = mr_fft_fftn(x, MR_SHAPE_NONE, MR_AXES_ALL, "backward");

    assert_int_equal(mr_array_dtype(y), MR_COMPLEX64);
    assert_int_equal(mr_array_ndim(y), 0);
    assert_null(mr_fft_rfftn(x, MR_SHAPE_NONE, MR_AXES_ALL, "backward"));
    mrt_assert_error(MR_E_VALUE, "at least one axis");
}

static void
fft__empty_batches_and_filled_axes(void **state)
{
    (void)state;
    mr_array *x = mr_ones(MRT_SHAPE(0, 4), MR_FLOAT32);

    mrt_assert_shape(mr_fft_rfft(x, NONE, -1, "backward"), MRT_SHAPE(0, 3));
    assert_null(mr_fft_fft(x, NONE, 0, "backward"));
    mrt_assert_error(MR_E_VALUE, "length 0");
    x = mr_fft_fft(x, 3, 0, "backward");
    mrt_assert_shape(x, MRT_SHAPE(3, 4));
    mrt_assert_f32(mr_sum(mr_real(x), MR_AXES_ALL, false), (float[]){0}, 1);
}

/* ---- derivatives
 * ------------------------------------------------------------------ */

/* sum |rfft x|^2 counts inner numbers once; both ends too. */
static mr_array *
half_power(mr_array *const *x)
{
    return mr_square(mr_abs(mr_fft_rfft(x[0], NONE, -1, "backward")));
}

/* sum |fft x|^2 = n sum x^2, so the gradient is 2 n x. */
static mr_array *
power(mr_array *const *x)
{
    mr_array *y = mr_fft_fft(x[0], NONE, -1, "backward");

    return mr_add(mr_square(mr_real(y)), mr_square(mr_imag(y)));
}

static void
fft__gradient_of_the_power_by_parseval(void **state)
{
    (void)state;
    mr_array *x = mrt_f32((float[]){1, -2, 3, 0.5F, 4}, 5);

    mrt_assert_close(mrt_grad(power, 1, &x, 0), (double[]){10, -20, 30, 5, 40},
                     5, 1e-6, 1e-5);
}

/* d/dx_j sum_{k=0}^{n/2} |X_k|^2 = n x_j + sum x + (-1)^j sum (-1)^i x_i, as
 * the inner terms alone would give n x_j. */
static void
rfft__gradient_counts_each_kept_number_once(void **state)
{
    (void)state;
    mr_array *x = mrt_f32((float[]){1, -2, 3, 0.5F}, 4);

    mrt_assert_close(mrt_grad(half_power, 1, &x, 0),
                     (double[]){4 + 2.5 + 5.5, -8 + 2.5 - 5.5, 12 + 2.5 + 5.5,
                                2 + 2.5 - 5.5},
                     4, 1e-6, 1e-5);
}

/* ---- frequencies, frames
 * ---------------------------------------------------------- */

static void
fftfreq__is_k_over_n_d(void **state)
{
    (void)state;
    mrt_assert_f32(mr_fft_fftfreq(5, 0.1, MR_DTYPE_DEFAULT),
                   (float[]){0, 2, 4, -4, -2}, 5);
    mrt_assert_f32(mr_fft_fftfreq(4, 1.0, MR_DTYPE_DEFAULT),
                   (float[]){0, 0.25F, -0.5F, -0.25F}, 4);
    mrt_assert_f32(mr_fft_rfftfreq(5, 1.0, MR_DTYPE_DEFAULT),
                   (float[]){0, 0.2F, 0.4F}, 3);
    assert_null(mr_fft_fftfreq(0, 1.0, MR_DTYPE_DEFAULT));
    mrt_assert_error(MR_E_VALUE, "n is 0");
    assert_null(mr_fft_rfftfreq(-3, 1.0, MR_DTYPE_DEFAULT));
    mrt_assert_error(MR_E_VALUE, "n is -3");
    assert_null(mr_fft_fftfreq(3, 0.0, MR_DTYPE_DEFAULT));
    mrt_assert_error(MR_E_VALUE, "d is 0");
}

static void
hfft__is_the_transform_of_a_symmetric_signal(void **state)
{
    (void)state;
    mr_array *x = mrt_f32((float[]){1, 2, 3}, 3), *y;

    y = mr_fft_hfft(x, MR_INT_NONE, -1, "backward");
    mrt_assert_f32(y, (float[]){8, -2, 0, -2}, 4);
    y = mr_real(mr_fft_ihfft(y, MR_INT_NONE, -1, "backward"));
    mrt_assert_f32(y, (float[]){1, 2, 3}, 3);
    assert_null(mr_fft_hfft(x, MR_INT_NONE, -1, NULL));
    mrt_assert_error(MR_E_VALUE, "norm");
}

static void
fftshift__and_back(void **state)
{
    (void)state;
    mr_array *x = mr_fft_fftshift(ramp(5), MR_AXES_ALL);

    mrt_assert_f32(x, (float[]){3, 4, 0, 1, 2}, 5);
    mrt_assert_f32(mr_fft_ifftshift(x, MR_AXES_ALL), (float[]){0, 1, 2, 3, 4},
                   5);
}

static mr_array *
stft(mr_array *x, int64_t n_fft, int64_t hop, int64_t win, mr_array *window)
{
    return mr_fft_stft(x, n_fft, hop, win, window, true, "reflect", "backward",
                       MR_INT_NONE);
}

static mr_array *
istft(mr_array *m, int64_t n_fft, int64_t hop, mr_array *window)
{
    return mr_fft_istft(m, n_fft, hop, NONE, window, true, "backward",
                        MR_INT_NONE, NONE);
}

static void
stft__bad_sizes_are_refused(void **state)
{
    (void)state;
    mr_array *x = ramp(16), *w = mr_ones(MRT_SHAPE(5), MR_FLOAT32);

    assert_null(stft(x, 0, NONE, NONE, MR_NONE));
    mrt_assert_error(MR_E_VALUE, "n_fft is 0");
    assert_null(stft(x, 8, -1, NONE, MR_NONE));
    mrt_assert_error(MR_E_VALUE, "hop_length is -1");
    assert_null(stft(x, 8, NONE, 9, MR_NONE));
    mrt_assert_error(MR_E_VALUE, "win_length is 9");
    assert_null(stft(x, 8, NONE, 4, w));
    mrt_assert_error(MR_E_VALUE, "needs (4)");
    assert_null(stft(x, 4, NONE, NONE, w));
    mrt_assert_error(MR_E_VALUE, "(5,)");
    assert_null(stft(mr_float(1), 4, NONE, NONE, MR_NONE));
    mrt_assert_error(MR_E_VALUE, "0 axes");
    assert_null(mr_fft_stft(x, 17, NONE, NONE, MR_NONE, false, "reflect",
                            "backward", MR_INT_NONE));
    mrt_assert_error(MR_E_VALUE, "shorter than n_fft");
    assert_null(stft(x, INT64_MAX, NONE, NONE, MR_NONE));
    mr_error_take();
}

static void
istft__gives_the_signal_back(void **state)
{
    (void)state;
    mr_array *w = mrt_f32((float[]){0.5F, 1, 2, 1, 0.5F, 0.25F}, 6);
    mr_array *m = stft(ramp(9), 6, 2, NONE, w);
    double want[] = {0, 1, 2, 3, 4, 5, 6, 7};

    mrt_assert_shape(m, MRT_SHAPE(4, 5));
    mrt_assert_close(istft(m, 6, 2, w), want, 8, 1e-5, 1e-5);
}

static void
istft__windows_that_vanish_fail_at_evaluation(void **state)
{
    (void)state;
    mr_array *m = stft(ramp(16), 8, 2, NONE, MR_NONE);
    mr_array *y = istft(m, 8, 2, mr_zeros(MRT_SHAPE(8), MR_FLOAT32));

    assert_non_null(y);
    assert_int_equal(mr_eval(y), MR_E_VALUE);
    mrt_assert_error(MR_E_VALUE, "add up to 0");
    /* a window without zeros, but gaps between the frames */
    y = istft(m, 8, 9, MR_NONE);
    assert_int_equal(mr_eval(y), MR_E_VALUE);
    mrt_assert_error(MR_E_VALUE, "add up to 0");
}

static void
istft__bad_matrices_are_refused(void **state)
{
    (void)state;
    mr_array *m = mr_ones(MRT_SHAPE(5, 3), MR_COMPLEX64);

    assert_null(
        istft(mr_ones(MRT_SHAPE(5), MR_COMPLEX64), NONE, NONE, MR_NONE));
    mrt_assert_error(MR_E_VALUE, "1 axes");
    assert_null(istft(m, 12, NONE, MR_NONE));
    mrt_assert_error(MR_E_VALUE, "5 frequencies do not fit n_fft 12");
    assert_null(istft(m, NONE, 0, MR_NONE));
    mrt_assert_error(MR_E_VALUE, "hop_length is 0");
    assert_null(
        istft(mr_ones(MRT_SHAPE(5, 0), MR_COMPLEX64), NONE, NONE, MR_NONE));
    mrt_assert_error(MR_E_VALUE, "0 frames");
    assert_null(istft(m, NONE, INT64_MAX / 2, MR_NONE));
    mrt_assert_error(MR_E_VALUE, "2^63");
    assert_null(mr_fft_istft(m, NONE, NONE, NONE, MR_NONE, true, "backward",
                             MR_INT_NONE, -1));
    mrt_assert_error(MR_E_VALUE, "length is -1");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(fft__of_an_impulse_is_flat),
        mrt_test(fft__of_0_1_2_3_by_hand),
        mrt_test(fft__dtypes_follow_the_input),
        mrt_test(fft__lengths_below_1_are_refused),
        mrt_test(fft__sizes_beyond_64_bits_are_refused),
        mrt_test(fft__axes_out_of_range_or_given_twice_are_refused),
        mrt_test(fft__an_unknown_norm_is_refused),
        mrt_test(rfft__refuses_complex_numbers),
        mrt_test(fftn__no_axes_leaves_the_numbers),
        mrt_test(fft__empty_batches_and_filled_axes),
        mrt_test(fft__gradient_of_the_power_by_parseval),
        mrt_test(rfft__gradient_counts_each_kept_number_once),
        mrt_test(fftfreq__is_k_over_n_d),
        mrt_test(hfft__is_the_transform_of_a_symmetric_signal),
        mrt_test(fftshift__and_back),
        mrt_test(stft__bad_sizes_are_refused),
        mrt_test(istft__gives_the_signal_back),
        mrt_test(istft__windows_that_vanish_fail_at_evaluation),
        mrt_test(istft__bad_matrices_are_refused),
    };

    return cmocka_run_group_tests_name("ops/fft", tests, NULL, NULL);
}
