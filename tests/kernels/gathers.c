/* SPDX-License-Identifier: Apache-2.0
 *
 * gathers.c -- gathers of block programs whose indices are computed inside of
 * them, whatever the program's loops, tiles and units are, and which index is
 * said to be out of range.
 */
#include "kernels/program_of.h"
#include "kernels/source.h"

#define MOST    (3 << 15)
#define ENTRIES 64

static int32_t i32[2 * MOST];
static int16_t i16[2 * MOST];
static double table[ENTRIES], got[MOST], want[MOST];

typedef struct shape {
    int n_kept, n_red;
    int64_t dim[4];
} shape;

static const shape shapes[] = {
    {1, 0, {1}},         {1, 0, {127}},        {1, 0, {128}},
    {1, 0, {129}},       {1, 0, {5000}},       {1, 0, {70001}},
    {2, 0, {300, 7}},    {2, 0, {7, 300}},     {2, 0, {3, 30001}},
    {3, 0, {5, 33, 41}}, {0, 1, {300}},        {0, 1, {70001}},
    {1, 1, {300, 7}},    {1, 1, {7, 300}},     {1, 1, {3, 20000}},
    {1, 2, {9, 30, 41}}, {2, 1, {20, 30, 100}}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

typedef enum layout { PLAIN, REVERSED, APART, ALONG, N_LAYOUTS } layout;

/* (i * 3 + j) & mask, j from int16; less 64 where that is odd: negative
 * indices. */
static const mr_index_code index_code = {
    .n_in = 2,
    .n_const = 3,
    .n_inst = 7,
    .in = {0, 1},
    .dtype = {MR_INT32, MR_INT16, MR_INT32, MR_INT32, MR_INT32, MR_INT32,
              MR_INT32, MR_INT32, MR_INT32, MR_BOOL, MR_INT32, MR_INT32},
    .consts = {{.u64 = {3}}, {.u64 = {ENTRIES - 1}}, {.u64 = {ENTRIES}}},
    .inst = {{.k = MR_K_MULTIPLY, .dst = 5, .arg = {0, 2}},
             {.k = MR_K_CAST, .dst = 6, .arg = {1}},
             {.k = MR_K_ADD, .dst = 7, .arg = {5, 6}},
             {.k = MR_K_BITWISE_AND, .dst = 8, .arg = {7, 3}},
             {.k = MR_K_LESS, .dst = 9, .arg = {0, 6}},
             {.k = MR_K_SUBTRACT, .dst = 10, .arg = {8, 4}},
             {.k = MR_K_SELECT, .dst = 11, .arg = {9, 10, 8}}},
};

static const mr_code_source source[3] = {
    {.kind = MR_FROM_INDEX},
    {.kind = MR_FROM_INDEX},
    {.kind = MR_FROM_GATHER, .index = 0, .axis = 2, .computed = 1}};

static int64_t
points_of(const shape *s)
{
    int64_t n = 1;

    for (int d = 0; d < s->n_kept + s->n_red; d++)
        n *= s->dim[d];
    return n;
}

static void
index_io(const prog *p, layout how, void *data, int64_t size, mr_block_io *io)
{
    int n = p->l.n_kept + p->l.n_red;

    prog_contiguous(p, io, data, (size_t)size, false);
    for (int d = 0; d < n; d++) {
        if (how == REVERSED) {
            io->data = (char *)io->data + (p->l.dim[d] - 1) * io->stride[d];
            io->stride[d] = -io->stride[d];
        } else if (how == APART) {
            io->stride[d] *= 2;
        } else if (how == ALONG && d == n - 1) {
            io->stride[d] = 0;
        }
    }
}

static const char *
index_of(const prog *p, const mr_block_io *io, int64_t point)
{
    const char *at = io->data;

    for (int d = p->l.n_kept + p->l.n_red - 1; d >= 0; d--) {
        at += point % p->l.dim[d] * io->stride[d];
        point /= p->l.dim[d];
    }
    return at;
}

static double
picked(const prog *p, int64_t point)
{
    int32_t i = *(const int32_t *)(const void *)index_of(p, &p->l.in[0], point);
    int32_t j = *(const int16_t *)(const void *)index_of(p, &p->l.in[1], point);

    return table[(i * 3 + j) & (ENTRIES - 1)];
}

static void
begin(void)
{
    uint64_t seed = 5;

    for (int k = 0; k < 2 * MOST; k++) {
        i32[k] = (int32_t)(prog_random(&seed) >> 40);
        i16[k] = (int16_t)prog_random(&seed);
    }
    for (int k = 0; k < ENTRIES; k++)
        table[k] = (double)(k * k - 300);
}

static void
launch(prog *p, const shape *s, layout i, layout j)
{
    p->l.n_kept = s->n_kept;
    p->l.n_red = s->n_red;
    memcpy(p->l.dim, s->dim, sizeof s->dim);
    index_io(p, i, i32, 4, &p->l.in[0]);
    index_io(p, j, i16, 2, &p->l.in[1]);
    p->l.in[2] =
        (mr_block_io){.data = table, .step = sizeof *table, .n = ENTRIES};
    prog_contiguous(p, &p->l.out[0], got, sizeof *got, s->n_red > 0);
}

/* 1 + x of each point, or the sum of x^2 of each row: whole numbers, so exact
 * in any order. */
static void
one_shape(const shape *s, layout i, layout j, prog_how units)
{
    prog p = {.source = source, .indices = &index_code, .n_indices = 1};
    int64_t n = points_of(s), row = n, x, one;

    prog_in(&p, MR_INT32);
    prog_in(&p, MR_INT16);
    x = prog_in(&p, MR_FLOAT64);
    one = prog_const(&p, MR_FLOAT64, 1.0);
    if (s->n_red > 0) {
        x = prog_op(&p, MR_K_SQUARE, MR_FLOAT64, (int)x, 0, 0);
        prog_out(&p, prog_op(&p, MR_R_SUM, MR_FLOAT64, (int)x, 0, 0));
    } else {
        prog_out(&p, prog_op(&p, MR_K_ADD, MR_FLOAT64, (int)x, (int)one, 0));
    }
    launch(&p, s, i, j);
    for (int d = 0; d < s->n_kept && s->n_red > 0; d++)
        row /= s->dim[d];
    memset(want, 0, sizeof want);
    for (int64_t k = 0; k < n; k++) {
        double v = picked(&p, k);

        if (s->n_red > 0)
            want[k / row] += v * v;
        else
            want[k] = v + 1.0;
    }
    memset(got, 0, sizeof got);
    prog_run(&p, units);
    assert_memory_equal(got, want, sizeof got);
}

static void
gathers__compute_their_index_for_each_point(void **state)
{
    (void)state;
    begin();
    for (int k = 0; k < N_SHAPES; k++)
        for (int i = 0; i < N_LAYOUTS; i++)
            for (int u = ALL_AT_ONCE; u <= BACKWARDS; u++)
                one_shape(&shapes[k], (layout)i, (layout)((i + k) % N_LAYOUTS),
                          (prog_how)u);
}

static void
gathers__the_first_bad_index_is_found(void **state)
{
    static const shape s = {2, 0, {70, 300}};
    uint8_t dtype[3] = {MR_INT32, MR_INT16, MR_FLOAT64};
    mr_index_code plus = {.n_in = 2,
                          .n_inst = 2,
                          .in = {0, 1},
                          .dtype = {MR_INT32, MR_INT16, MR_INT32, MR_INT32},
                          .inst = {{.k = MR_K_CAST, .dst = 2, .arg = {1}},
                                   {.k = MR_K_ADD, .dst = 3, .arg = {0, 2}}}};
    mr_block_code c = {.n_in = 3,
                       .n_reg = 3,
                       .reg_dtype = dtype,
                       .source = source,
                       .indices = &plus,
                       .n_indices = 1};
    prog p = {.source = source};
    int64_t index = 0;

    (void)state;
    memset(i32, 0, sizeof i32);
    memset(i16, 0, sizeof i16);
    launch(&p, &s, PLAIN, PLAIN);
    assert_false(mr__block_bad_index(&c, &p.l, 2, &index));
    i32[69 * 300 + 299] = -ENTRIES;
    i16[20000] = ENTRIES - 1;
    assert_false(mr__block_bad_index(&c, &p.l, 2, &index));
    i16[20001] = ENTRIES;
    assert_true(mr__block_bad_index(&c, &p.l, 2, &index));
    assert_int_equal(index, ENTRIES);
    i32[777] = -40;
    i16[777] = -50;
    assert_true(mr__block_bad_index(&c, &p.l, 2, &index));
    assert_int_equal(index, -90);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathers__compute_their_index_for_each_point),
        cmocka_unit_test(gathers__the_first_bad_index_is_found),
    };

    return cmocka_run_group_tests_name("kernels/gathers", tests, NULL, NULL);
}
