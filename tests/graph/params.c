/* SPDX-License-Identifier: Apache-2.0
 *
 * params.c -- tests of what follows from an operator's list of fields.
 */
#include <math.h>
#include <string.h>

#include "base.h"
#include "graph/op.h"
#include "graph/own.h"

typedef struct all_params {
    bool flag;
    int64_t count;
    double scale;
    mr_dtype dtype;
    int32_t axis;
    uint32_t axes;
    mr_ints list;
    int64_t dim;
    mr_ints dims;
} all_params;

static const mr_field fields[] = {
    MR_FIELD(1, BOOL, all_params, flag),
    MR_FIELD(2, INT, all_params, count),
    MR_FIELD(3, FLOAT, all_params, scale),
    MR_FIELD(4, DTYPE, all_params, dtype),
    MR_FIELD(5, AXIS, all_params, axis),
    MR_FIELD(6, AXES, all_params, axes),
    MR_FIELD(7, INTS, all_params, list),
    MR_FIELD(8, DIM, all_params, dim),
    MR_FIELD(9, DIMS, all_params, dims),
};

static const mr_op op = {.id = 900,
                         .n_fields = 9,
                         .params_bytes = sizeof(all_params),
                         .name = "all",
                         .fields = fields};

static const int64_t some[] = {1, -2, 3};
static const int64_t same[] = {1, -2, 3};
static const int64_t other[] = {1, -2, 4};

/* Padding is filled with `dirt`: nothing may depend on it. */
static void
sample(all_params *p, int dirt)
{
    memset(p, dirt, sizeof *p);
    p->flag = true;
    p->count = -5;
    p->scale = 0.5;
    p->dtype = MR_FLOAT16;
    p->axis = 2;
    p->axes = 5;
    p->list = (mr_ints){dirt ? some : same, 3};
    p->dim = 7;
    p->dims = (mr_ints){NULL, -1};
}

static void
assert_differ(const all_params *a, const all_params *b)
{
    assert_false(mr__params_equal(&op, a, b));
    assert_true(mr__params_hash(&op, a, 1) != mr__params_hash(&op, b, 1));
}

static void
equality__looks_at_fields_alone(void **state)
{
    all_params a, b;

    (void)state;
    sample(&a, 0);
    sample(&b, 0xff);
    assert_true(mr__params_equal(&op, &a, &b));
    assert_int_equal(mr__params_hash(&op, &a, 3), mr__params_hash(&op, &b, 3));
    assert_true(mr__params_hash(&op, &a, 3) != mr__params_hash(&op, &a, 4));
}

static void
equality__sees_every_field(void **state)
{
    all_params a, b;

    (void)state;
    sample(&a, 0);
#define CHANGED(change)                                                        \
    sample(&b, 0);                                                             \
    change;                                                                    \
    assert_differ(&a, &b)
    CHANGED(b.flag = false);
    CHANGED(b.count = 5);
    CHANGED(b.scale = 0.25);
    CHANGED(b.dtype = MR_BOOL);
    CHANGED(b.axis = 3);
    CHANGED(b.axes = 4);
    CHANGED(b.list.v = other);
    CHANGED(b.list.n = 2);
    CHANGED(b.dim = 8);
    CHANGED(b.dims.n = 0);
}

static void
floats__are_compared_by_their_bits(void **state)
{
    all_params a, b;

    (void)state;
    sample(&a, 0);
    sample(&b, 0);
    a.scale = b.scale = (double)NAN;
    assert_true(mr__params_equal(&op, &a, &b));
    a.scale = 0.0;
    b.scale = -0.0;
    assert_differ(&a, &b);
}

static void
copy__has_lists_of_its_own(void **state)
{
    int64_t list[] = {1, -2, 3}, room[64];
    all_params a, *copy = (all_params *)(void *)room;

    (void)state;
    sample(&a, 0);
    a.list.v = list;
    a.dims = (mr_ints){list, 0};
    assert_int_equal(mr__params_room(&op, &a), sizeof a + 24);
    mr__params_copy(&op, &a, room);
    assert_true(mr__params_equal(&op, &a, copy));
    assert_ptr_not_equal(copy->list.v, list);
    assert_int_equal(copy->dims.n, 0);
    list[0] = 9;
    assert_int_equal(copy->list.v[0], 1);
}

static void
text__names_the_fields(void **state)
{
    char buf[256], small[12];
    all_params a;

    (void)state;
    sample(&a, 0);
    assert_string_equal(
        mr__params_text(&op, &a, buf, sizeof buf),
        "flag=true, count=-5, scale=0.5, dtype=float16, axis=2, axes=5, "
        "list=(1, -2, 3), dim=7, dims=none");
    a.list.n = 1;
    a.dims.n = 0;
    a.dtype = MR_DTYPE_DEFAULT;
    assert_string_equal(
        mr__params_text(&op, &a, buf, sizeof buf),
        "flag=true, count=-5, scale=0.5, dtype=default, axis=2, axes=5, "
        "list=(1,), dim=7, dims=()");
    assert_string_equal(mr__params_text(&op, &a, small, sizeof small),
                        "flag=true, ");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equality__looks_at_fields_alone),
        cmocka_unit_test(equality__sees_every_field),
        cmocka_unit_test(floats__are_compared_by_their_bits),
        cmocka_unit_test(copy__has_lists_of_its_own),
        cmocka_unit_test(text__names_the_fields),
    };

    return cmocka_run_group_tests_name("graph/params", tests, NULL, NULL);
}
