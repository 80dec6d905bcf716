/* SPDX-License-Identifier: Apache-2.0
 *
 * fusion.c -- fused, donated and reused memory change no bit.
 *
 * Random programs are run twice.  The first time each array is evaluated when
 * it is made and all are held: nothing fuses and no memory is given away.  The
 * second time arrays are lazy, a random part of them is held, and they are
 * evaluated in a random order.  What is held must be equal, bit for bit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "marram/marram.h"
#include "support/base.h"

/* ---- random numbers ----------------------------------------------------- */

static uint64_t seed;

static uint32_t
next_random(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static int
below(int n)
{
    return (int)(next_random() % (uint32_t)n);
}

static bool
chance(int percent)
{
    return below(100) < percent;
}

/* A scope owns what operators make: there is nothing to release. */
static bool in_scope;

static void
drop(mr_array *x)
{
    if (!in_scope)
        mr_release(x);
}

/* ---- programs ----------------------------------------------------------- */

enum { N_DATA = 5, N_MAX = 120 };

typedef struct inst {
    int op, a, b, c;
    int axis;
} inst;

typedef struct program {
    int n; /* data included */
    inst inst[N_MAX];
    int64_t rows, columns;
    uint64_t seed;
} program;

static mr_array *
data_array(const program *p, int k)
{
    int64_t dim[2] = {k == 2 ? 1 : p->rows, k == 3 ? 1 : p->columns};
    size_t n = (size_t)(dim[0] * dim[1]);
    float *v = malloc(n * sizeof *v);
    uint64_t h = p->seed + (uint64_t)k;
    mr_array *x;

    assert_non_null(v);
    for (size_t i = 0; i < n; i++) {
        h = h * 6364136223846793005u + 1442695040888963407u;
        v[i] = (float)((int32_t)(h >> 40) - (1 << 23)) / (1 << 22);
    }
    x = mr_array_from_f32(v, (mr_shape){dim, 2});
    free(v);
    return x;
}

static mr_array *
unary(int which, mr_array *a)
{
    switch (which) {
    case 0:
        return mr_negative(a);
    case 1:
        return mr_abs(a);
    case 2:
        return mr_square(a);
    case 3:
        return mr_tanh(a);
    case 4:
        return mr_exp(a);
    case 5:
        return mr_floor(a);
    case 6:
        return mr_astype(a, MR_FLOAT16);
    case 7:
        return mr_astype(a, MR_FLOAT32);
    case 8:
        return mr_astype(a, MR_INT32);
    default:
        return mr_sigmoid(a);
    }
}

static mr_array *
binary(int which, mr_array *a, mr_array *b)
{
    switch (which) {
    case 0:
        return mr_add(a, b);
    case 1:
        return mr_subtract(a, b);
    case 2:
        return mr_multiply(a, b);
    case 3:
        return mr_maximum(a, b);
    default:
        return mr_divide(a, b);
    }
}

static mr_array *
reduction(int which, mr_array *a, int axis)
{
    mr_axes axes = axis == 2 ? MR_AXES_ALL : MR_AXES(axis % 2 == 0 ? -1 : 0);
    bool keep = axis != 3;

    switch (which) {
    case 0:
        return mr_sum(a, axes, keep);
    case 1:
        return mr_max(a, axes, keep);
    case 2:
        return mr_mean(a, axes, keep);
    default:
        return mr_min(a, axes, keep);
    }
}

static mr_array *
view(int which, mr_array *a)
{
    switch (which) {
    case 0:
        return mr_transpose(a, MR_INTS_NONE);
    case 1:
        return mr_reshape(a, MR_SHAPE(-1));
    case 2:
        return mr_flip(a, MR_AXES(0));
    default:
        return mr_expand_dims(a, MR_AXES(0));
    }
}

/* The pieces of softmax and of a norm, as users write them. */
static mr_array *
rows_of(int which, mr_array *a)
{
    mr_array *top, *shifted, *e, *sum, *y;

    if (which == 0) {
        top = mr_max(a, MR_AXES(-1), true);
        shifted = mr_subtract(a, top);
        e = mr_exp(shifted);
        sum = mr_sum(e, MR_AXES(-1), true);
        y = mr_divide(e, sum);
    } else {
        top = mr_mean(a, MR_AXES(-1), true);
        shifted = mr_subtract(a, top);
        e = mr_square(shifted);
        sum = mr_mean(e, MR_AXES(-1), true);
        y = mr_multiply(shifted, sum);
    }
    drop(top);
    drop(shifted);
    drop(e);
    drop(sum);
    return y;
}

static mr_array *
run_inst(const program *p, const inst *i, mr_array **x)
{
    mr_array *pair[2];

    (void)p;
    switch (i->op / 10) {
    case 0:
    case 1:
    case 2:
        return binary(i->op % 5, x[i->a], x[i->b]);
    case 3:
    case 4:
        return unary(i->op % 10, x[i->a]);
    case 5:
        return reduction(i->op % 4, x[i->a], i->axis);
    case 6:
        return view(i->op % 4, x[i->a]);
    case 7:
        return mr_matmul(x[i->a], x[i->b]);
    case 8:
        pair[0] = x[i->a];
        pair[1] = x[i->b];
        return i->op % 2 ? mr_concatenate(pair, 2, 0)
                         : mr_where(x[i->c], x[i->a], x[i->b]);
    default:
        return i->op % 3 == 2
                   ? mr_cumsum(x[i->a], -1, false, true, MR_DTYPE_DEFAULT)
                   : rows_of(i->op % 3, x[i->a]);
    }
}

static bool
is_small(const program *p, mr_array *x)
{
    return mr_array_size(x) <= 4 * p->rows * p->columns + 64 &&
           mr_array_ndim(x) <= 4;
}

/* Makes a program by running it, one evaluated operator at a time; instructions
 * that do not fit are thrown away. */
static void
make_program(program *p, int n, int64_t rows, int64_t columns, mr_array **x)
{
    p->rows = rows;
    p->columns = columns;
    p->seed = seed;
    for (p->n = 0; p->n < N_DATA; p->n++)
        x[p->n] = data_array(p, p->n);
    while (p->n < n) {
        inst *i = &p->inst[p->n];
        int from = p->n > 12 && chance(80) ? p->n - 12 : 0;

        i->op = below(100);
        i->a = from + below(p->n - from);
        i->b = from + below(p->n - from);
        i->c = below(p->n);
        i->axis = below(4);
        x[p->n] = run_inst(p, i, x);
        if (x[p->n] != NULL && is_small(p, x[p->n]) &&
            mr_eval(x[p->n]) == MR_OK) {
            p->n++;
            continue;
        }
        mr_error_take();
        mr_release(x[p->n]);
    }
}

/* ---- comparing ---------------------------------------------------------- */

static bool
is_nan(mr_dtype t, const unsigned char *p)
{
    uint16_t h;
    uint32_t w;

    if (t == MR_FLOAT16) {
        memcpy(&h, p, sizeof h);
        return (h & 0x7fff) > 0x7c00;
    }
    if (t != MR_FLOAT32)
        return false;
    memcpy(&w, p, sizeof w);
    return (w & 0x7fffffff) > 0x7f800000;
}

static void
print_program(const program *p, int k, mr_array **want)
{
    bool used[N_MAX] = {false};

    used[k] = true;
    for (int i = k; i >= N_DATA; i--) {
        const inst *n = &p->inst[i];

        if (!used[i])
            continue;
        used[n->a] = used[n->b] = used[n->c] = true;
        print_message("  x%d = %s (op %d) of x%d x%d x%d axis %d: ndim %d, "
                      "%lld elements, %s\n",
                      i, mr_array_op(want[i]), n->op, n->a, n->b, n->c, n->axis,
                      mr_array_ndim(want[i]), (long long)mr_array_size(want[i]),
                      mr_dtype_name(mr_array_dtype(want[i])));
    }
}

static void
assert_same_bits(mr_array *got, mr_array *want, const program *p, int k,
                 mr_array **all)
{
    size_t n = mr_array_nbytes(want), item;
    mr_dtype t = mr_array_dtype(want);
    unsigned char *a = malloc(n + 1), *b = malloc(n + 1);

    assert_int_equal(mr_array_dtype(got), t);
    assert_int_equal(mr_array_nbytes(got), n);
    assert_int_equal(mr_array_copy_out(got, a, n), MR_OK);
    assert_int_equal(mr_array_copy_out(want, b, n), MR_OK);
    item = mr_dtype_size(t);
    for (size_t i = 0; i < n; i += item)
        if (memcmp(a + i, b + i, item) != 0 &&
            !(is_nan(t, a + i) && is_nan(t, b + i))) {
            if (all != NULL)
                print_program(p, k, all);
            for (size_t at = i; at < i + item; at++)
                print_message("  %02x, %02x evaluated alone\n", a[at], b[at]);
            fail_msg("program %llu (%lld x %lld): array %d differs at element "
                     "%zu of %zu",
                     (unsigned long long)p->seed, (long long)p->rows,
                     (long long)p->columns, k, i / item, n / item);
        }
    free(a);
    free(b);
}

/* ---- running lazily ----------------------------------------------------- */

static void
forget(mr_array **x, int k)
{
    mr_release(x[k]);
    x[k] = NULL;
}

/* Evaluate some of those that are held, in a random order; forget some. */
static void
evaluate_some(const program *p, mr_array **x, mr_array **want, int n,
              int forget_percent, int last_keep)
{
    for (int tries = 0; tries < n; tries++) {
        int k = below(n);
        mr_array *group[3];
        int n_group = 0;

        if (x[k] == NULL || chance(50))
            continue;
        for (int g = 0; g < 3; g++)
            if (x[(k + 7 * g) % n] != NULL)
                group[n_group++] = x[(k + 7 * g) % n];
        assert_int_equal(mr_eval_many(group, 1 + below(n_group)), MR_OK);
        if (chance(30))
            assert_same_bits(x[k], want[k], p, k, want);
        if (chance(forget_percent) && k < last_keep)
            forget(x, k);
    }
}

static void
run_lazily(const program *p, mr_array **want, int hold_percent)
{
    mr_array *x[N_MAX];
    bool held[N_MAX];
    int last_use[N_MAX] = {0};
    mr_scope scope;

    /* when a phase ends (a random point), what later instructions need stays */
    for (int k = N_DATA; k < p->n; k++) {
        last_use[p->inst[k].a] = last_use[p->inst[k].b] = k;
        last_use[p->inst[k].c] = k;
    }
    for (int k = 0; k < p->n; k++)
        held[k] = chance(hold_percent);
    held[p->n - 1] = true;
    in_scope = chance(30);
    scope = in_scope ? mr_scope_begin() : (mr_scope){0};
    for (int k = 0; k < p->n; k++) {
        x[k] = k < N_DATA ? data_array(p, k) : run_inst(p, &p->inst[k], x);
        assert_non_null(x[k]);
        if (in_scope)
            mr_retain(x[k]);
        for (int i = 0; i < k; i++)
            if (x[i] != NULL && last_use[i] <= k && !held[i])
                forget(x, i);
        if (chance(8))
            evaluate_some(p, x, want, k + 1, 0, 0);
    }
    if (in_scope && chance(50)) {
        mr_scope_end(scope);
        in_scope = false;
    }
    evaluate_some(p, x, want, p->n, 30, p->n);
    for (int k = p->n; k-- > 0;)
        if (x[k] != NULL) {
            assert_same_bits(x[k], want[k], p, k, want);
            forget(x, k);
        }
    if (in_scope)
        mr_scope_end(scope);
    in_scope = false;
}

static void
try_programs(int n_programs, int n_inst, int64_t rows, int64_t columns)
{
    static program p;
    mr_array *want[N_MAX];

    for (int i = 0; i < n_programs; i++) {
        seed = (uint64_t)i * 7919 + (uint64_t)rows * 31 + (uint64_t)columns;
        make_program(&p, n_inst, rows, columns, want);
        run_lazily(&p, want, 0);
        run_lazily(&p, want, 10);
        run_lazily(&p, want, 40);
        for (int k = 0; k < p.n; k++)
            mr_release(want[k]);
    }
}

enum { MANY = MRT_TSAN ? 10 : 1 };

static void
random_programs__small(void **state)
{
    (void)state;
    try_programs(300 / MANY, 60, 4, 6);
    try_programs(100 / MANY, 60, 1, 5);
    try_programs(100 / MANY, 60, 3, 1);
    try_programs(100 / MANY, 60, 7, 7);
}

static void
random_programs__long(void **state)
{
    (void)state;
    try_programs(100 / MANY, N_MAX, 5, 5);
}

static void
random_programs__large(void **state)
{
    (void)state;
    try_programs(20 / MANY, 40, 64, 130);
    try_programs(20 / MANY, 40, 257, 33);
    try_programs(10 / MANY, 40, 3, 9000);
    try_programs(4 / MANY, 30, 500, 500);
}

/* ---- rows that stay in cache -------------------------------------------- */

/* Softmax in pieces, its pieces held (each evaluated alone) or not. */
static mr_array *
softmax_of(mr_array *x, bool alone)
{
    mr_array *top = mr_max(x, MR_AXES(-1), true);
    mr_array *shifted, *e, *sum, *y;

    if (alone)
        mr_eval(top);
    shifted = mr_subtract(x, top);
    if (alone)
        mr_eval(shifted);
    e = mr_exp(shifted);
    if (alone)
        mr_eval(e);
    sum = mr_sum(e, MR_AXES(-1), true);
    if (alone)
        mr_eval(sum);
    y = mr_divide(e, sum);
    mr_release(top);
    mr_release(shifted);
    mr_release(e);
    mr_release(sum);
    return y;
}

static void
softmax_in_pieces__is_equal_fused(void **state)
{
    static const int64_t rows[] = {1, 3, 64, 5, 2, 2};
    static const int64_t columns[] = {1, 100, 64, 4097, 65536, 70000};
    program p = {.seed = 5};

    (void)state;
    for (size_t i = 0; i < MRT_COUNT(rows); i++) {
        mr_array *x, *a, *b;

        p.rows = rows[i];
        p.columns = columns[i];
        x = data_array(&p, 0);
        a = softmax_of(x, true);
        b = softmax_of(x, false);
        assert_same_bits(b, a, &p, 0, NULL);
        mr_release(a);
        mr_release(b);
        mr_release(x);
    }
}

static void
reductions_of_producers__are_equal_fused(void **state)
{
    program p = {.seed = 6, .rows = 37, .columns = 5000};
    mr_array *x = data_array(&p, 0), *y = data_array(&p, 1);

    (void)state;
    for (int which = 0; which < 4; which++)
        for (int axis = 0; axis < 4; axis++) {
            mr_array *m = mr_multiply(x, y), *s = mr_tanh(m), *a, *b;

            mr_release(m);
            a = reduction(which, s, axis);
            mr_release(s);
            m = mr_multiply(x, y);
            mr_eval(m);
            s = mr_tanh(m);
            mr_eval(s);
            b = reduction(which, s, axis);
            assert_same_bits(a, b, &p, 0, NULL);
            mr_release(m);
            mr_release(s);
            mr_release(a);
            mr_release(b);
        }
    mr_release(x);
    mr_release(y);
}

/* Reduced axes of size 1 are no axes of the row: the reduction after a softmax
 * keeps its own, and what it leaves out is found. */
static void
reductions_over_size_1__keep_their_own_axes(void **state)
{
    program p = {.seed = 7, .rows = 1, .columns = 6};
    mr_array *x = data_array(&p, 0), *y, *m;
    float got[6], want[6];
    mr_array *cube, *sum;

    (void)state;
    y = softmax_of(x, false);
    m = mr_min(y, MR_AXES(0), true);
    mr_release(y);
    assert_int_equal(mr_array_copy_f32(m, got, 6), MR_OK);
    y = softmax_of(x, true);
    assert_int_equal(mr_array_copy_f32(y, want, 6), MR_OK);
    assert_memory_equal(got, want, sizeof got);
    mr_release(m);
    mr_release(y);
    mr_release(x);

    x = mr_array_from_f32((float[]){1, 2, 3, 4, 5, 6}, MR_SHAPE(1, 2, 1, 3));
    cube = mr_negative(x);
    sum = mr_sum(cube, MR_AXES(0, 1), false);
    assert_int_equal(mr_array_copy_f32(sum, got, 3), MR_OK);
    assert_memory_equal(got, ((float[]){-5, -7, -9}), 3 * sizeof *got);
    mr_release(sum);
    sum = mr_sum(cube, MR_AXES(0), false);
    assert_int_equal(mr_array_copy_f32(sum, got, 6), MR_OK);
    assert_memory_equal(got, ((float[]){-1, -2, -3, -4, -5, -6}), sizeof got);
    mr_release(sum);
    mr_release(cube);
    mr_release(x);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_in_pieces__is_equal_fused),
        cmocka_unit_test(reductions_of_producers__are_equal_fused),
        cmocka_unit_test(reductions_over_size_1__keep_their_own_axes),
        cmocka_unit_test(random_programs__small),
        cmocka_unit_test(random_programs__long),
        cmocka_unit_test(random_programs__large),
    };

    return cmocka_run_group_tests_name("eval/fusion", tests, NULL, NULL);
}
