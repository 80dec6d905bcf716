/* SPDX-License-Identifier: Apache-2.0
 *
 * random.c -- tests of keys, sequences and draws against known values.
 */
#include "ops/gradient.h"

static mr_array *
key(int64_t seed)
{
    return mr_random_key((mr_scalar){.kind = MR_SCALAR_INT, .as.i = seed});
}

static void
start(int64_t seed)
{
    assert_non_null(
        mr_random_seed((mr_scalar){.kind = MR_SCALAR_INT, .as.i = seed}));
}

static void
key__is_the_two_halves_of_the_seed(void **state)
{
    (void)state;
    mrt_assert_i64(key(((int64_t)1 << 40) + 5), (int64_t[]){256, 5}, 2);
    assert_null(key(-1));
    mrt_assert_error(MR_E_TYPE, "seed");
}

static void
split__gives_known_keys(void **state)
{
    (void)state;
    mrt_assert_i64(mr_random_split(key(0), 2),
                   (int64_t[]){4146024105, 967050713, 2718843009, 1272950319},
                   4);
    mrt_assert_i64(mr_random_split(key(7), 1),
                   (int64_t[]){195045567, 4062205631}, 2);
}

static void
split__refuses_what_is_no_key(void **state)
{
    (void)state;
    assert_null(mr_random_split(mr_zeros(MRT_SHAPE(2), MR_INT32), 2));
    mrt_assert_error(MR_E_VALUE, "int32");
    assert_null(mr_random_split(mr_zeros(MRT_SHAPE(3), MR_UINT32), 2));
    mrt_assert_error(MR_E_VALUE, "(3");
}

static void
uniform__gives_known_numbers(void **state)
{
    (void)state;
    mr_array *u = mr_random_uniform(MR_NONE, MR_NONE, MRT_SHAPE(3),
                                    MR_DTYPE_DEFAULT, key(0));

    mrt_assert_f32(u,
                   (float[]){0.9653214812278748F, 0.3146817088127136F,
                             0.6330299973487854F},
                   3);
}

static void
uniform__refuses_float64(void **state)
{
    (void)state;
    assert_null(
        mr_random_uniform(MR_NONE, MR_NONE, MRT_SHAPE(3), MR_FLOAT64, MR_NONE));
    mrt_assert_error(MR_E_UNSUPPORTED, "float64");
    assert_null(
        mr_random_uniform(MR_NONE, MR_NONE, MRT_SHAPE(3), MR_INT32, MR_NONE));
    mrt_assert_error(MR_E_DTYPE, "int32");
}

static void
sequence__follows_the_seed(void **state)
{
    (void)state;
    start(11);
    mrt_assert_f32(mr_random_uniform(MR_NONE, MR_NONE, MRT_SHAPE(3),
                                     MR_DTYPE_DEFAULT, MR_NONE),
                   (float[]){0.43049925565719604F, 0.3751341700553894F,
                             0.2060239315032959F},
                   3);
    mrt_assert_f32(mr_random_uniform(MR_NONE, MR_NONE, MRT_SHAPE(3),
                                     MR_DTYPE_DEFAULT, MR_NONE),
                   (float[]){0.660149097442627F, 0.3857036828994751F,
                             0.40374061465263367F},
                   3);
    mrt_assert_i64(mr_random_state(), (int64_t[]){1342292488, 35291568}, 2);
}

static void
sequence__is_not_moved_by_draws_with_a_key(void **state)
{
    (void)state;
    start(0);
    assert_non_null(mr_random_gumbel(MRT_SHAPE(2), MR_FLOAT32, key(3)));
    mrt_assert_i64(mr_random_randint(mr_int(0), mr_int(100), MRT_SHAPE(4),
                                     MR_DTYPE_DEFAULT, MR_NONE),
                   (int64_t[]){87, 44, 27, 78}, 4);
}

static void
sequence__can_be_put_back(void **state)
{
    (void)state;
    start(5);
    mr_array *s = mr_random_state();
    mr_array *a = mr_random_bits(MRT_SHAPE(4), 4, MR_NONE);

    assert_non_null(mr_random_set_state(s));
    mrt_assert_same(mr_random_bits(MRT_SHAPE(4), 4, MR_NONE), a);
}

/* Words that are held are made by a kernel; else inside of what reads them. */
static void
bits__are_the_same_inside_what_reads_them(void **state)
{
    static const int64_t size[] = {1, 2, 3, 5, 64, 2047, 2048, 2049};

    (void)state;
    for (int64_t width = 1; width <= 4; width *= 2)
        for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
            mr_shape s = MRT_SHAPE(size[i]);
            mr_array *held = mr_random_bits(s, width, key(9));

            assert_int_equal(mr_eval(held), MR_OK);
            mrt_assert_same(mr_add(mr_random_bits(s, width, key(9)), held),
                            mr_add(held, held));
            mrt_assert_same(
                mr_astype(mr_random_bits(s, width, key(9)), MR_FLOAT32),
                mr_astype(held, MR_FLOAT32));
        }
}

static uint64_t drawn[8];

static void
draw_unseeded(void *arg, int i)
{
    mr_scope s = mr_scope_begin();
    uint32_t w[2] = {0, 0};

    (void)arg;
    mr_array_copy_out(mr_random_bits(MRT_SHAPE(2), 4, MR_NONE), w, sizeof w);
    drawn[i] = (uint64_t)w[0] << 32 | w[1];
    mr_scope_end(s);
}

static void
sequence__unseeded_threads_draw_different_numbers(void **state)
{
    (void)state;
    mrt_threads(8, draw_unseeded, NULL);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < i; j++)
            assert_true(drawn[i] != drawn[j]);
}

static void
categorical__shape_and_num_samples_exclude_each_other(void **state)
{
    (void)state;
    assert_null(mr_random_categorical(mr_zeros(MRT_SHAPE(2, 3), MR_FLOAT32), -1,
                                      MRT_SHAPE(2), 3, key(0)));
    mrt_assert_error(MR_E_VALUE, "not both");
}

static void
categorical__an_impossible_outcome_is_never_drawn(void **state)
{
    (void)state;
    const float low = -1e30F;
    mr_array *x = mrt_f32((float[]){low, 0, low}, 3);

    mrt_assert_i64(mr_random_categorical(x, -1, MR_SHAPE_NONE, 4, key(1)),
                   (int64_t[]){1, 1, 1, 1}, 4);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(key__is_the_two_halves_of_the_seed),
        mrt_test(split__gives_known_keys),
        mrt_test(split__refuses_what_is_no_key),
        mrt_test(uniform__gives_known_numbers),
        mrt_test(uniform__refuses_float64),
        mrt_test(sequence__follows_the_seed),
        mrt_test(sequence__is_not_moved_by_draws_with_a_key),
        mrt_test(sequence__can_be_put_back),
        mrt_test(bits__are_the_same_inside_what_reads_them),
        mrt_test(sequence__unseeded_threads_draw_different_numbers),
        mrt_test(categorical__shape_and_num_samples_exclude_each_other),
        mrt_test(categorical__an_impossible_outcome_is_never_drawn),
    };

    return cmocka_run_group_tests_name("ops/random", tests, NULL, NULL);
}
