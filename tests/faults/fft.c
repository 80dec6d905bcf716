/* SPDX-License-Identifier: Apache-2.0
 *
 * fft.c -- Fourier transforms with each of their allocations failing in turn,
 * those of their plans too, since each call begins with an empty cache.
 */
#include "faults/each.h"

#define NONE MR_INT_NONE

static mr_tree *
run_lengths(void *arg)
{
    mr_array *x = arg;

    mr_fft_cache_clear();
    return each_evaluated(MR_ARRAYS(
        mr_fft_fft(x, NONE, -1, "ortho"), mr_fft_fft(x, 67, -1, "backward"),
        mr_fft_ifft(x, 521, 1, "backward"), mr_fft_rfft(x, 96, -1, "backward"),
        mr_fft_irfft(x, 33, 0, "forward"),
        mr_fft_rfft2(x, MR_SHAPE_NONE, MR_AXES(-2, -1), "backward"),
        mr_fft_fftn(x, MR_SHAPE(4, 9), MR_AXES_ALL, "backward")));
}

static mr_tree *
run_frames(void *arg)
{
    mr_array *m = mr_fft_stft(arg, 8, 2, NONE, MR_NONE, true, "reflect",
                              "backward", MR_INT_NONE);

    return each_evaluated(
        MR_ARRAYS(m,
                  mr_fft_istft(m, NONE, 2, NONE, MR_NONE, true, "backward",
                               MR_INT_NONE, 60),
                  mr_fft_fftfreq(7, 0.5, MR_DTYPE_DEFAULT),
                  mr_fft_fftshift(arg, MR_AXES_ALL)));
}

static mr_tree *
loss(void *ctx, const mr_tree *in)
{
    mr_array *x = mr_tree_array_at(in, 0);
    mr_array *m = mr_fft_stft(x, 8, 4, NONE, MR_NONE, false, "reflect",
                              "backward", MR_INT_NONE);

    (void)ctx;
    x = mr_fft_irfft(mr_fft_rfft(x, 40, -1, "backward"), 30, -1, "backward");
    return mr_tree_leaf(mr_add(mr_sum(mr_square(mr_abs(m)), MR_AXES_ALL, false),
                               mr_sum(mr_square(x), MR_AXES_ALL, false)));
}

static mr_tree *
run_slopes(void *arg)
{
    mr_tree *args = MR_ARRAYS(arg);

    return each_evaluated(args ? mr_grad(loss, NULL, args, NULL, 0) : NULL);
}

static void
fft__survives_each_failure(void **state)
{
    mr_array *x = mr_reshape(mr_sin(mr_arange(MR_INTEGER(0), MR_INTEGER(150),
                                              MR_INTEGER(1), MR_FLOAT32)),
                             MRT_SHAPE(3, 50));
    mr_tree *keep = mr_tree_leaf(x);
    const each_case c[] = {{"lengths", run_lengths, x, keep, NULL},
                           {"frames", run_frames, x, keep, NULL},
                           {"slopes", run_slopes, x, keep, NULL}};

    (void)state;
    assert_non_null(keep);
    assert_int_equal(mr_eval_tree(keep), MR_OK);
    for (size_t i = 0; i < MRT_COUNT(c); i++)
        assert_true(each_run(&c[i]).failed > 15);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {mrt_test(fft__survives_each_failure)};

    return cmocka_run_group_tests_name("faults/fft", tests, NULL, NULL);
}
