/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.c -- tests of shapes and strides against brute force.
 */
#include <string.h>

#include "array/layout.h"
#include "base.h"

static uint32_t random_state = 12345;

/* xorshift: the same numbers in every run */
static int
below(int n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return (int)(random_state % (uint32_t)n);
}

/* Where element k (row-major) lies. */
static int64_t
place_of(const mr_layout *l, int64_t k)
{
    int64_t at = l->offset;

    for (int i = l->ndim - 1; i >= 0; i--) {
        at += k % l->dim[i] * l->stride[i];
        k /= l->dim[i];
    }
    return at;
}

static void
size__is_the_product(void **state)
{
    (void)state;
    assert_int_equal(mr__size_of(0, NULL), 1);
    assert_int_equal(mr__size_of(3, (int64_t[]){2, 3, 4}), 24);
    assert_int_equal(mr__size_of(3, (int64_t[]){INT64_MAX, INT64_MAX, 0}), 0);
    assert_int_equal(mr__size_of(2, (int64_t[]){INT64_MAX, 2}), -1);
    assert_int_equal(
        mr__size_of(2, (int64_t[]){INT64_C(1) << 32, INT64_C(1) << 32}), -1);
}

static void
fresh__is_contiguous(void **state)
{
    int64_t stride[3];

    (void)state;
    mr__strides_fresh(3, (int64_t[]){2, 3, 4}, stride);
    assert_int_equal(stride[0], 12);
    assert_int_equal(stride[1], 4);
    assert_int_equal(stride[2], 1);
    assert_true(mr__is_contiguous(3, (int64_t[]){2, 3, 4}, stride));
    assert_false(mr__is_contiguous(2, (int64_t[]){2, 3}, (int64_t[]){1, 2}));
    assert_false(mr__is_contiguous(1, (int64_t[]){3}, (int64_t[]){0}));
    assert_true(mr__is_contiguous(2, (int64_t[]){1, 3}, (int64_t[]){-7, 1}));
    assert_true(mr__is_contiguous(2, (int64_t[]){5, 0}, (int64_t[]){9, 9}));
    assert_true(mr__is_contiguous(2, (int64_t[]){0, 5}, (int64_t[]){9, 9}));
    assert_true(mr__is_contiguous(0, NULL, NULL));
}

static void
broadcast__follows_the_rules(void **state)
{
    int64_t out[MR_MAX_NDIM];

    (void)state;
    assert_int_equal(mr__broadcast_shapes(2, (int64_t[]){3, 1}, 3,
                                          (int64_t[]){2, 1, 4}, out),
                     3);
    assert_memory_equal(out, ((int64_t[]){2, 3, 4}), 24);
    assert_int_equal(mr__broadcast_shapes(0, NULL, 1, (int64_t[]){0}, out), 1);
    assert_int_equal(out[0], 0);
    assert_int_equal(
        mr__broadcast_shapes(1, (int64_t[]){1}, 1, (int64_t[]){0}, out), 1);
    assert_int_equal(out[0], 0);
    assert_int_equal(
        mr__broadcast_shapes(1, (int64_t[]){3}, 1, (int64_t[]){0}, out), -1);
    assert_int_equal(
        mr__broadcast_shapes(2, (int64_t[]){2, 3}, 2, (int64_t[]){3, 2}, out),
        -1);
    assert_int_equal(mr__broadcast_shapes(0, NULL, 0, NULL, out), 0);
}

static void
text__reads_as_a_tuple(void **state)
{
    char buf[64], small[8];

    (void)state;
    assert_string_equal(mr__shape_text(buf, sizeof buf, 0, NULL), "()");
    assert_string_equal(mr__shape_text(buf, sizeof buf, 1, (int64_t[]){5}),
                        "(5,)");
    assert_string_equal(
        mr__shape_text(buf, sizeof buf, 3, (int64_t[]){2, 0, -1}),
        "(2, 0, -1)");
    assert_string_equal(
        mr__shape_text(small, sizeof small, 3, (int64_t[]){100, 200, 300}),
        "(100...");
}

/* A random layout of up to 5 dims: permuted, sliced, reversed, broadcast. */
static void
random_layout(mr_layout *l)
{
    int64_t step = 1;
    int order[5] = {0, 1, 2, 3, 4};

    l->ndim = below(6);
    l->offset = 1000 + below(10);
    for (int i = l->ndim - 1; i > 0 && below(2); i--) {
        int j = below(i + 1), k = order[i];

        if (j < l->ndim) {
            order[i] = order[j];
            order[j] = k;
        }
    }
    for (int i = l->ndim - 1; i >= 0; i--) {
        int axis = order[i];

        l->dim[axis] = 1 + below(4);
        l->stride[axis] = below(8) == 0 ? 0 : step;
        step *= l->dim[axis];
        if (below(6) == 0)
            step *= 2;
        if (below(8) == 0)
            l->stride[axis] = -l->stride[axis];
    }
}

/* A random shape of the same size. */
static int32_t
random_shape(int64_t size, int64_t *dim)
{
    int32_t n = 0;

    while (n < 7 && (size > 1 || below(3))) {
        int64_t d = below(3) ? 1 + below(6) : size;

        if (size % d != 0)
            continue;
        dim[n++] = d;
        size /= d;
    }
    if (size > 1)
        dim[n++] = size;
    return n;
}

static void
reshape__keeps_each_element_in_its_place(void **state)
{
    int views = 0, copies = 0;

    (void)state;
    for (int rep = 0; rep < 200000; rep++) {
        mr_layout in = {0}, out = {0};
        int64_t dim[8], size;
        int32_t n;

        random_layout(&in);
        size = mr__size_of(in.ndim, in.dim);
        n = random_shape(size, dim);
        if (!mr__reshape_view(&in, n, dim, &out)) {
            copies++;
            continue;
        }
        views++;
        assert_int_equal(out.ndim, n);
        for (int64_t k = 0; k < size; k++)
            assert_int_equal(place_of(&in, k), place_of(&out, k));
    }
    assert_true(views > 20000 && copies > 20000);
}

/* Is there a view at all?  Of each axis the stride is what one step from the
 * first element says; then all elements must agree. */
static bool
view_exists(const mr_layout *in, int32_t n, const int64_t *dim)
{
    mr_layout out = {.ndim = n, .offset = in->offset};
    int64_t size = mr__size_of(n, dim), step = 1;

    for (int i = n - 1; i >= 0; i--) {
        out.dim[i] = dim[i];
        out.stride[i] = dim[i] > 1 ? place_of(in, step) - in->offset : 0;
        step *= dim[i];
    }
    for (int64_t k = 0; k < size; k++)
        if (place_of(in, k) != place_of(&out, k))
            return false;
    return true;
}

static void
reshape__finds_every_view(void **state)
{
    (void)state;
    for (int rep = 0; rep < 100000; rep++) {
        mr_layout in = {0}, out = {0};
        int64_t dim[8];
        int32_t n;

        random_layout(&in);
        n = random_shape(mr__size_of(in.ndim, in.dim), dim);
        assert_int_equal(mr__reshape_view(&in, n, dim, &out),
                         view_exists(&in, n, dim));
    }
}

static void
reshape__of_nothing_is_a_view(void **state)
{
    mr_layout in = {2, 3, {0, 5}, {7, -2}}, out;

    (void)state;
    assert_true(mr__reshape_view(&in, 3, (int64_t[]){4, 0, 2}, &out));
    assert_int_equal(out.ndim, 3);
    assert_int_equal(out.offset, 3);
    assert_false(mr__reshape_view(&in, 1, (int64_t[]){1}, &out));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size__is_the_product),
        cmocka_unit_test(fresh__is_contiguous),
        cmocka_unit_test(broadcast__follows_the_rules),
        cmocka_unit_test(text__reads_as_a_tuple),
        cmocka_unit_test(reshape__keeps_each_element_in_its_place),
        cmocka_unit_test(reshape__finds_every_view),
        cmocka_unit_test(reshape__of_nothing_is_a_view),
    };

    return cmocka_run_group_tests_name("array/layout", tests, NULL, NULL);
}
