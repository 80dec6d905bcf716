/* SPDX-License-Identifier: Apache-2.0
 *
 * devices.c -- devices with memory and queues of their own: where data is, how
 * it gets there, and that nobody has to say so.
 *
 * The far device's addresses cannot be read on the host: what forgets to bring
 * data over ends with a signal, what reads too early reads 0xDB.
 */
#include "devices.h"

/* ---- where data is ----------------------------------------------------------
 */

static void
far__adds_what_lies_on_the_host(void **state)
{
    (void)state;
    mr_array *a = host_numbers(5), *y;
    mr_stream s = mrt_on(MRT_FAR(0));

    y = mr_add(a, a);
    mrt_assert_f32(y, (float[]){0, 2, 4, 6, 8}, 5);
    assert_int_not_equal(y->buffer->space, 0);
    mrt_off(s);
}

static void
chain__stays_on_its_device(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_array *a = host_numbers(16), *y = a;
    mr_stream s = mrt_on(MRT_FAR(0));
    far_figures f;

    far->figures();
    for (int i = 0; i < 6; i++) {
        y = mr_matmul(mr_reshape(y, MRT_SHAPE(4, 4)),
                      mr_eye(4, 4, 0, MR_FLOAT32));
        assert_int_equal(mr_eval(y), MR_OK);
    }
    f = far->figures();
    assert_int_equal(f.to_device, 1);
    assert_int_equal(f.from_device, 0);
    expect_from(y, 0, 1);
    assert_int_equal(far->figures().from_device, 1);
    mrt_off(s);
}

static void
copies__are_made_once(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_array *a = host_numbers(8), *y, *z;
    mr_stream s = mrt_on(MRT_FAR(0));

    far->figures();
    y = mr_add(a, mr_float(1.0));
    z = mr_multiply(a, mr_float(2.0));
    expect_from(y, 1, 1);
    expect_from(z, 0, 2);
    expect_from(y, 1, 1);
    expect_from(mr_index_slice(y, MR_INTS(2), MR_INTS(6), MR_INTS(1)), 3, 1);
    far_figures f = far->figures();
    assert_int_equal(f.to_device, 1);
    assert_int_equal(f.from_device, 2);
    mrt_off(s);
}

static void
copies__within_one_plan_are_shared(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_array *a = mr_add(host_numbers(8), mr_float(0.0)), *y[2];
    mr_stream s = mrt_on(MRT_FAR(0));

    far->figures();
    y[0] = mr_add(a, mr_float(1.0)); /* a is not computed yet */
    y[1] = mr_sum(mr_multiply(a, a), MR_AXES_ALL, false);
    assert_int_equal(mr_eval_many(y, 2), MR_OK);
    assert_int_equal(far->figures().to_device, 1);
    expect_from(y[0], 1, 1);
    mrt_assert_f32(y[1], (float[]){140}, 1);
    mrt_off(s);
}

static void
view__shares_the_buffer_on_any_device(void **state)
{
    (void)state;
    mr_array *x = far_numbers(0, 12);
    mr_array *v = mr_transpose(mr_reshape(x, MRT_SHAPE(3, 4)), MR_INTS_NONE);
    mr_array *w;
    mr_stream s;

    assert_int_equal(mr_eval(v), MR_OK); /* on the CPU's stream: no kernel */
    assert_ptr_equal(v->buffer, x->buffer);
    s = mrt_on(MRT_FAR(0));
    w = mr_add(v, mr_float(0.5));
    mrt_assert_f32(w,
                   (float[]){1.5F, 5.5F, 9.5F, 2.5F, 6.5F, 10.5F, 3.5F, 7.5F,
                             11.5F, 4.5F, 8.5F, 12.5F},
                   12);
    mrt_off(s);
    mrt_assert_f32(v, (float[]){1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 12}, 12);
}

static void
devices__read_each_other(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_array *x = far_numbers(0, 6), *y;
    mr_stream s = mrt_on(MRT_FAR(1));

    far->figures();
    y = mr_multiply(x, mr_float(3.0));
    assert_int_equal(mr_eval(y), MR_OK);
    assert_int_equal(far->figures().peer, 1); /* not through the host */
    assert_int_not_equal(y->buffer->space, x->buffer->space);
    expect_from(y, 3, 3);
    mrt_off(s);
    expect_from(mr_add(x, y), 4, 4); /* on the host */
}

static void
devices__that_are_no_peers_go_through_the_host(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_array *x = far_numbers(0, 6), *y, *z;
    mr_stream s = mrt_on(MRT_NULL);
    far_figures f;

    far->figures();
    y = mr_multiply(x, mr_float(3.0));
    assert_int_equal(mr_eval(y), MR_OK);
    mrt_off(s);
    s = mrt_on(MRT_FAR(0));
    z = mr_add(y, x); /* the null device's memory reads as 0 */
    expect_from(z, 1, 1);
    f = far->figures();
    assert_int_equal(f.from_device, 2); /* x, z */
    assert_int_equal(f.to_device, 1);   /* y */
    assert_int_equal(f.peer, 0);
    mrt_off(s);
}

static void
memory__with_copies_is_not_donated(void **state)
{
    (void)state;
    mr_stream s = mrt_on(MRT_FAR(0));

    for (int read_first = 0; read_first < 2; read_first++) {
        mr_scope inner = mr_scope_none();
        mr_array *a = host_numbers(8), *one = mr_float(1.0);
        mr_array *x = mr_add(a, one), *y;

        assert_int_equal(mr_eval(x), MR_OK);
        if (read_first)
            expect_from(x, 1, 1);
        y = mr_add(x, one);
        mr_release(x); /* y is its only reader */
        expect_from(y, 2, 1);
        mr_release(y);
        mr_release(a);
        mr_release(one);
        mr_scope_end(inner);
    }
    mrt_off(s);
}

static void
wrapped__memory_with_strides_that_leave_it(void **state)
{
    (void)state;
    float memory[6] = {0, 1, 2, 3, 4, 5};
    mr_array *x = mr_array_wrap(memory + 5, MRT_SHAPE(6), (int64_t[]){-1},
                                MR_FLOAT32, NULL, NULL);
    mr_stream s = mrt_on(MRT_FAR(0));

    mrt_assert_f32(mr_add(x, mr_float(1.0)), (float[]){6, 5, 4, 3, 2, 1}, 6);
    mrt_off(s);
}

static void
exported__host_memory_is_read_anew(void **state)
{
    (void)state;
    mr_array *x = host_numbers(4);
    mr_stream s = mrt_on(MRT_FAR(0));
    float *p;

    expect_from(mr_add(x, mr_float(1.0)), 1, 1); /* leaves a copy there */
    p = mr_array_data_exported(x);
    assert_null(x->buffer->copies);
    p[0] = 10;
    mrt_assert_f32(mr_add(x, mr_float(1.0)), (float[]){11, 2, 3, 4}, 4);
    p[0] = 20;
    mrt_assert_f32(mr_add(x, mr_float(1.0)), (float[]){21, 2, 3, 4}, 4);
    assert_null(x->buffer->copies);
    mrt_off(s);
}

static void
exported__memory_of_a_device_counts_on_the_host(void **state)
{
    (void)state;
    mr_array *x = far_numbers(0, 4);
    mr_array *v = mr_index_slice(x, MR_INTS(1), MR_INTS(3), MR_INTS(1));
    float *p = mr_array_data_exported(x);
    mr_stream s;

    assert_non_null(p);
    p[1] = 50;
    mrt_assert_f32(x, (float[]){1, 50, 3, 4}, 4);
    for (int i = 0; i < 2; i++) { /* on its own device, and on another */
        s = mrt_on(MRT_FAR(i));
        p[2] = 60 + (float)i;
        mrt_assert_f32(mr_add(v, mr_float(1.0)), (float[]){51, 61 + (float)i},
                       2);
        mrt_off(s);
    }
}

/* ---- what a device lacks ----------------------------------------------------
 */

static void
operator__that_a_device_lacks_runs_on_the_host(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_array *x = far_numbers(0, 5), *y, *z;
    mr_stream s = mrt_on(MRT_FAR(0));

    far->figures();
    y = mr_sort(mr_negative(x), 0);
    z = mr_add(y, mr_cumsum(x, 0, false, true, MR_DTYPE_DEFAULT));
    mrt_assert_f32(z, (float[]){-4, -1, 3, 8, 14}, 5);
    assert_int_equal(z->stream, s.id);
    mrt_assert_close(
        mr_erf(x),
        (double[]){0.842700793, 0.995322265, 0.999977910, 0.999999985, 1}, 5,
        1e-6, 0);
    assert_true(far->figures().from_device >= 3);
    mrt_off(s);
}

/* ---- order ------------------------------------------------------------------
 */

static void
queues__run_while_the_caller_goes_on(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_stream s = mr_stream_new(MRT_FAR(0)), t = mr_stream_new(MRT_FAR(1));
    mr_array *y = host_numbers(8), *z;

    far->hold(true);
    for (int i = 0; i < 10; i++) {
        mr_stream_scope(i % 2 ? s : t);
        y = mr_add(y, mr_float(1.0));
        assert_int_equal(mr_async_eval(&y, 1), MR_OK);
    }
    mr_stream_scope((mr_stream){0});
    assert_int_equal(mr__state(y), MR_SUBMITTED);
    z = mr_multiply(y, mr_float(2.0)); /* on the host */
    assert_int_equal(mr_async_eval(&z, 1), MR_OK);
    far->hold(false);
    expect_from(z, 20, 2);
    expect_from(y, 10, 1);
    mr_stream_free(s);
    mr_stream_free(t);
}

static void
stream__sync_waits_for_the_queue(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_stream s = mr_stream_new(MRT_FAR(0));
    mr_array *y[8];

    far->delays(7);
    mr_stream_scope(s);
    for (int i = 0; i < 8; i++)
        y[i] = mr_add(numbers(64), mr_float(i));
    assert_int_equal(mr_async_eval(y, 8), MR_OK);
    mr_stream_scope((mr_stream){0});
    assert_int_equal(mr_stream_sync(s), MR_OK);
    for (int i = 0; i < 8; i++)
        assert_int_equal(mr__state(y[i]), MR_DONE);
    far->delays(0);
    mr_stream_free(s);
}

static void
stream__that_is_freed_finishes_first(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    mr_stream s = mr_stream_new(MRT_FAR(0));
    mr_array *y;

    far->hold(true);
    mr_stream_scope(s);
    y = mr_add(numbers(8), mr_float(1.0));
    assert_int_equal(mr_async_eval(&y, 1), MR_OK);
    mr_stream_scope((mr_stream){0});
    mr_stream_free(s);
    far->hold(false);
    expect_from(y, 1, 1);
}

/* ---- programs at random -----------------------------------------------------
 */

enum { N_LIVE = 12, N_STEPS = 120, N_DEVICES_USED = 5 };

typedef struct programs {
    uint64_t seed;
    mr_stream stream[N_DEVICES_USED];
} programs;

static uint64_t
next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static mr_array *
step(uint64_t r, mr_array *const *live)
{
    mr_array *a = live[r / 16 % N_LIVE], *b = live[r / 256 % N_LIVE];

    switch (r % 8) {
    case 0:
        return mr_matmul(a, b);
    case 1:
        return mr_transpose(a, MR_INTS_NONE);
    case 2:
        return mr_maximum(a, b);
    case 3:
        return mr_sort(a, 1);
    case 4:
        return mr_add(a, mr_sum(b, MR_AXES(0), true));
    case 5:
        return mr_subtract(mr_multiply(a, mr_float(0.5)), b);
    case 6:
        return mr_concatenate(
            (mr_array *[]){
                mr_index_slice(a, MR_INTS(0, 0), MR_INTS(3, 6), MR_INTS(1, 1)),
                mr_index_slice(b, MR_INTS(3, 0), MR_INTS(6, 6), MR_INTS(1, 1))},
            2, 0);
    default:
        return mr_add(mr_abs(a), b);
    }
}

/* Small whole numbers, so that nothing overflows: mod 8 now and then. */
static mr_array *
tame(mr_array *x)
{
    return mr_remainder(mr_floor(x), mr_float(8.0));
}

static void
program_run(const programs *p, uint64_t seed, bool spread, float *out)
{
    mr_scope s = mr_scope_begin();
    uint64_t state = seed;
    mr_array *live[N_LIVE];

    for (int i = 0; i < N_LIVE; i++)
        live[i] =
            tame(mr_reshape(mr_add(numbers(36), mr_float(i)), MRT_SHAPE(6, 6)));
    for (int i = 0; i < N_STEPS; i++) {
        uint64_t r = next(&state), to = next(&state) % N_LIVE;

        mr_stream_scope(spread ? p->stream[next(&state) % N_DEVICES_USED]
                               : (next(&state), (mr_stream){0}));
        live[to] = tame(step(r >> 8, live));
        r = next(&state) % 16;
        if (r == 0)
            assert_int_equal(mr_eval(live[to]), MR_OK);
        else if (r < 4)
            assert_int_equal(mr_async_eval(&live[r], 1), MR_OK);
    }
    mr_stream_scope((mr_stream){0});
    for (int i = 0; i < N_LIVE; i++)
        assert_int_equal(mr_array_copy_f32(live[i], out + 36 * i, 36), MR_OK);
    mr_scope_end(s);
}

static void
programs_thread(void *ctx, int k)
{
    const programs *p = ctx;
    float want[36 * N_LIVE], got[36 * N_LIVE];

    for (int i = 0; i < (MRT_TSAN ? 4 : 25); i++) {
        uint64_t seed = p->seed + (uint64_t)(1000 * k + i + 1);

        program_run(p, seed, false, want);
        program_run(p, seed, true, got);
        assert_memory_equal(got, want, sizeof want);
    }
}

static void
programs__on_many_devices_give_what_one_gives(void **state)
{
    (void)state;
    const far_control *far = mrt_far();
    programs p = {.seed = 0x5EED};

    for (int i = 0; i < N_DEVICES_USED; i++)
        p.stream[i] = i == 0 ? mr_stream_new((mr_device){MR_CPU, 0})
                             : mr_stream_new(MRT_FAR(i % 2));
    far->delays(11);
    mrt_threads(3, programs_thread, &p);
    far->delays(0);
    for (int i = 0; i < N_DEVICES_USED; i++)
        mr_stream_free(p.stream[i]);
}

/* ---- the null device --------------------------------------------------------
 */

static void
null__plans_what_no_memory_would_hold(void **state)
{
    (void)state;
    mr_stream s = mrt_on(MRT_NULL);
    mr_array *x = mr_zeros(MRT_SHAPE(1 << 20, 1 << 11), MR_FLOAT32);
    mr_array *y = x;

    for (int i = 0; i < 10; i++) /* 16 GiB a round */
        y = mr_softmax(mr_add(y, mr_float(1.0)), MR_AXES(-1), false);
    assert_int_equal(mr_eval(y), MR_OK);
    y = mr_sum(y, MR_AXES_ALL, false);
    mrt_assert_f32(y, (float[]){0}, 1); /* its memory reads as 0 */
    mrt_off(s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        mrt_test(far__adds_what_lies_on_the_host),
        mrt_test(chain__stays_on_its_device),
        mrt_test(copies__are_made_once),
        mrt_test(copies__within_one_plan_are_shared),
        mrt_test(view__shares_the_buffer_on_any_device),
        mrt_test(devices__read_each_other),
        mrt_test(devices__that_are_no_peers_go_through_the_host),
        mrt_test(memory__with_copies_is_not_donated),
        mrt_test(wrapped__memory_with_strides_that_leave_it),
        mrt_test(exported__host_memory_is_read_anew),
        mrt_test(exported__memory_of_a_device_counts_on_the_host),
        mrt_test(operator__that_a_device_lacks_runs_on_the_host),
        mrt_test(queues__run_while_the_caller_goes_on),
        mrt_test(stream__sync_waits_for_the_queue),
        mrt_test(stream__that_is_freed_finishes_first),
        mrt_test(programs__on_many_devices_give_what_one_gives),
        mrt_test(null__plans_what_no_memory_would_hold),
    };

    mrt_devices_path();
    return cmocka_run_group_tests_name("eval/devices", tests, NULL, NULL);
}
