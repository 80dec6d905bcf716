/* SPDX-License-Identifier: Apache-2.0
 *
 * programs.c -- whole block programs: a fused program gives the bits of its
 * instructions run one by one, whatever the layout, phases and units.
 */
#include <math.h>
#include <stdio.h>

#include "kernels/program_of.h"

/* ---- one instruction at a time, on contiguous memory
 * ---------------------------------- */

typedef struct oracle {
    const prog *p;
    int64_t rows, n;     /* n: points of a row */
    char *reg[PROG_MAX]; /* rows * n values, or rows */
} oracle;

static int64_t
reg_count(const oracle *o, int r)
{
    return o->p->row[r] ? o->rows : o->rows * o->n;
}

/* Register r as one value a point, or as it is if `row`. */
static char *
spread(const oracle *o, int r, bool row)
{
    size_t size = prog_size((mr_dtype)o->p->dtype[r]);
    char *x = malloc((size_t)(o->rows * o->n) * size + 64);
    bool is_const = r >= o->p->n_in && r < o->p->n_in + o->p->n_const;

    for (int64_t i = 0; i < (row ? o->rows : o->rows * o->n); i++) {
        int64_t from = row || !o->p->row[r] ? i : i / o->n;

        memcpy(x + (size_t)i * size,
               is_const ? (const char *)o->p->consts[r - o->p->n_in].bytes
                        : o->reg[r] + (size_t)from * size,
               size);
    }
    return x;
}

static void
oracle_fold(oracle *o, const mr_inst *in)
{
    prog q = {0};
    int r = in->arg[0], a = prog_in(&q, (mr_dtype)o->p->dtype[r]);
    size_t size = prog_size((mr_dtype)o->p->dtype[r]);
    char *x = spread(o, r, false);

    prog_out(&q,
             prog_op(&q, (mr_k)in->k, (mr_dtype)o->p->dtype[in->dst], a, 0, 0));
    q.l.n_kept = q.l.n_red = 1;
    q.l.dim[0] = o->rows;
    q.l.dim[1] = o->n;
    prog_contiguous(&q, &q.l.in[0], x, size, false);
    prog_contiguous(&q, &q.l.out[0], o->reg[in->dst],
                    prog_size((mr_dtype)o->p->dtype[in->dst]), true);
    prog_run(&q, ALL_AT_ONCE);
    free(x);
}

static void
oracle_run(oracle *o)
{
    const prog *p = o->p;

    for (int i = 0; i < p->n_inst; i++) {
        const mr_inst *in = &p->inst[i];
        int n_arg = mr__k_operands((mr_k)in->k), dst = in->dst;
        mr_dtype from = (mr_dtype)p->dtype[in->arg[n_arg - 1]];
        mr_dtype to = (mr_dtype)p->dtype[dst];
        char *x[3] = {NULL, NULL, NULL};

        o->reg[dst] = malloc((size_t)reg_count(o, dst) * prog_size(to) + 64);
        if (MR_K_IS_REDUCTION(in->k)) {
            oracle_fold(o, in);
            continue;
        }
        for (int j = 0; j < n_arg; j++)
            x[j] = spread(o, in->arg[j], p->row[dst]);
        if (in->k == MR_K_CAST)
            mr__tier()->casts->cast[from][to](o->reg[dst], x[0],
                                              reg_count(o, dst));
        else
            mr__tier()->dtype[from]->map[in->k](
                o->reg[dst], (const void *[]){x[0], x[1], x[2]},
                (int64_t[]){1, 1, 1}, reg_count(o, dst));
        for (int j = 0; j < 3; j++)
            free(x[j]);
    }
}

/* ---- random layouts
 * ------------------------------------------------------------------------ */

typedef struct memory {
    char *base;
    int64_t count; /* elements of the index space */
} memory;

/* Strides of a random permutation of the dims, with gaps, some negative and,
 * for inputs, some 0. */
static void
random_io(const prog *p, mr_block_io *io, size_t size, int n_dims, bool in,
          memory *m, uint64_t *state)
{
    int order[MR_MAX_NDIM];
    int64_t s = (int64_t)size, offset = 0;
    bool plain = prog_random(state) % 2;

    for (int i = 0; i < n_dims; i++)
        order[i] = n_dims - 1 - i;
    for (int i = n_dims - 1; i > 0 && !plain; i--) {
        int j = (int)(prog_random(state) % (uint64_t)(i + 1)), t = order[i];

        order[i] = order[j];
        order[j] = t;
    }
    for (int i = 0; i < n_dims; i++) {
        int d = order[i];

        if (in && prog_random(state) % 5 == 0) {
            io->stride[d] = 0;
            continue;
        }
        io->stride[d] = s;
        if (!plain && prog_random(state) % 6 == 0)
            io->stride[d] = 2 * s;
        s = io->stride[d] * (p->l.dim[d] > 0 ? p->l.dim[d] : 1);
        if (!plain && prog_random(state) % 6 == 0) {
            offset += io->stride[d] * (p->l.dim[d] - 1);
            io->stride[d] = -io->stride[d];
        }
    }
    m->base = malloc((size_t)s + 64);
    io->data = m->base + (offset > 0 ? offset : 0);
}

static char *
element(const prog *p, const mr_block_io *io, int n_dims, int64_t i)
{
    char *at = io->data;

    for (int d = n_dims - 1; d >= 0; d--) {
        at += i % p->l.dim[d] * io->stride[d];
        i /= p->l.dim[d];
    }
    return at;
}

static void
random_value(char *at, mr_dtype d, uint64_t *state)
{
    mr_const c = {.c128 = {prog_uniform(state) * 4, 0}}, v;

    if (d == MR_BOOL)
        c.c128.re = (double)(prog_random(state) % 2);
    mr__const_cast(&c, MR_FLOAT64, &v, d);
    memcpy(at, v.bytes, prog_size(d));
}

static bool
same(const char *a, const char *b, mr_dtype d)
{
    float x, y;
    uint16_t h, g;

    if (memcmp(a, b, prog_size(d)) == 0)
        return true;
    if (d == MR_FLOAT32) {
        memcpy(&x, a, 4);
        memcpy(&y, b, 4);
        return isnan(x) && isnan(y);
    }
    memcpy(&h, a, 2);
    memcpy(&g, b, 2);
    return d == MR_FLOAT16 && (h & 0x7FFF) > 0x7C00 && (g & 0x7FFF) > 0x7C00;
}

/* Runs p on random memory and compares with the oracle. */
static void
compare(prog *p, uint64_t seed, bool donate)
{
    oracle o = {.p = p, .rows = 1, .n = 1};
    memory in[MR_CODE_MAX_IO], out[MR_CODE_MAX_IO];
    int n_dims = p->l.n_kept + p->l.n_red;
    uint64_t state = seed;
    int donated = -1;

    for (int i = 0; i < p->l.n_kept; i++)
        o.rows *= p->l.dim[i];
    for (int i = p->l.n_kept; i < n_dims; i++)
        o.n *= p->l.dim[i];
    for (int i = 0; i < p->n_in; i++) {
        size_t size = prog_size((mr_dtype)p->dtype[i]);
        int dims = p->row[i] ? p->l.n_kept : n_dims;

        random_io(p, &p->l.in[i], size, dims, !donate, &in[i], &state);
        o.reg[i] = malloc((size_t)(o.rows * o.n) * size + 64);
        for (int64_t e = 0; e < (p->row[i] ? o.rows : o.rows * o.n); e++)
            random_value(element(p, &p->l.in[i], dims, e),
                         (mr_dtype)p->dtype[i], &state);
        for (int64_t e = 0; e < (p->row[i] ? o.rows : o.rows * o.n); e++)
            memcpy(o.reg[i] + (size_t)e * size,
                   element(p, &p->l.in[i], dims, e), size);
    }
    oracle_run(&o);
    for (int i = 0; i < p->n_out; i++) {
        int r = p->out[i].reg;
        size_t size = prog_size((mr_dtype)p->dtype[r]);
        int dims = p->out[i].per_row ? p->l.n_kept : n_dims;

        random_io(p, &p->l.out[i], size, dims, false, &out[i], &state);
        if (donate && donated < 0 && !p->out[i].per_row && !p->row[0] &&
            p->dtype[r] == p->dtype[0]) {
            p->l.out[i] = p->l.in[0];
            donated = i;
        }
    }
    prog_run(p, (prog_how)(seed % 3));
    for (int i = 0; i < p->n_out; i++) {
        int r = p->out[i].reg;
        mr_dtype d = (mr_dtype)p->dtype[r];
        int dims = p->out[i].per_row ? p->l.n_kept : n_dims;
        char *want = spread(&o, r, p->out[i].per_row);

        for (int64_t e = 0; e < (p->out[i].per_row ? o.rows : o.rows * o.n);
             e++) {
            if (!same(element(p, &p->l.out[i], dims, e),
                      want + (size_t)e * prog_size(d), d))
                fail_msg("seed %llu: output %d differs at %lld of %lld x %lld",
                         (unsigned long long)seed, i, (long long)e,
                         (long long)o.rows, (long long)o.n);
        }
        free(want);
    }
    for (int i = 0; i < p->n_in; i++)
        free(in[i].base);
    for (int i = 0; i < p->n_out; i++)
        free(out[i].base);
    for (int i = 0; i < p->n_reg; i++)
        free(o.reg[i]);
}

/* ---- random programs
 * ---------------------------------------------------------------------------
 */

static void
random_dims(prog *p, bool rows, uint64_t *state)
{
    static const int64_t size[] = {1, 2, 3, 5, 8, 17, 33, 70};
    int64_t total = 1;

    p->l.n_kept = (int)(prog_random(state) % 4);
    p->l.n_red = rows ? 1 + (int)(prog_random(state) % 2) : 0;
    for (int i = 0; i < p->l.n_kept + p->l.n_red; i++) {
        p->l.dim[i] = size[prog_random(state) % 8];
        total *= p->l.dim[i];
    }
    /* sometimes one long dim: tiles, chunks, blocks, splits */
    if (prog_random(state) % 3 == 0 && p->l.n_kept + p->l.n_red > 0) {
        int d =
            (int)(prog_random(state) % (uint64_t)(p->l.n_kept + p->l.n_red));

        p->l.dim[d] = 200000 / total + 1;
        p->l.dim[d] = p->l.dim[d] > 50000 ? 50000 : p->l.dim[d];
    }
    while (total > 300000) {
        for (int i = 0; i < p->l.n_kept + p->l.n_red; i++)
            p->l.dim[i] = p->l.dim[i] > 20 ? 7 : p->l.dim[i];
        total = 1;
        for (int i = 0; i < p->l.n_kept + p->l.n_red; i++)
            total *= p->l.dim[i];
        if (total > 300000)
            p->l.dim[0] = 1, total /= 2;
    }
}

static int
random_reg(const prog *p, mr_dtype d, uint64_t *state)
{
    for (;;) {
        int r = (int)(prog_random(state) % (uint64_t)p->n_reg);

        if (p->dtype[r] == d)
            return r;
    }
}

static void
random_program(prog *p, bool rows, mr_dtype d, uint64_t *state)
{
    static const mr_k two[] = {MR_K_ADD, MR_K_SUBTRACT, MR_K_MULTIPLY,
                               MR_K_MAXIMUM};
    static const mr_k one[] = {MR_K_TANH, MR_K_ABS, MR_K_SIGMOID, MR_K_COPY};
    static const mr_k fold[] = {MR_R_SUM, MR_R_MEAN, MR_R_MAX, MR_R_LOGSUMEXP};
    int n_in = 1 + (int)(prog_random(state) % 3), n = 0, folds = 0;

    for (int i = 0; i < n_in; i++)
        prog_in(p, d);
    if (rows && n_in > 1 && prog_random(state) % 3 == 0)
        p->row[n_in - 1] = 1;
    for (int i = 0; i < 2; i++)
        prog_const(p, d, prog_uniform(state));
    for (n = 0; n < 3 + (int)(prog_random(state) % 10); n++) {
        int a = random_reg(p, d, state), b = random_reg(p, d, state);
        unsigned pick = (unsigned)(prog_random(state) % 8);

        if (pick < 3) {
            prog_op(p, two[prog_random(state) % 4], d, a, b, 0);
        } else if (pick < 5) {
            prog_op(p, one[prog_random(state) % 4], d, a, 0, 0);
        } else if (pick == 5) {
            int m = prog_op(p, MR_K_LESS, MR_BOOL, a, b, 0);

            prog_op(p, MR_K_SELECT, d, m, a, random_reg(p, d, state));
        } else if (pick == 6 && d == MR_FLOAT16) {
            int w = prog_op(p, MR_K_CAST, MR_FLOAT32, a, 0, 0);

            prog_op(p, MR_K_CAST, d, w, 0, 0);
        } else if (rows && folds < 5) {
            prog_op(p, fold[prog_random(state) % 4], d, a, 0, 0);
            folds++;
        }
    }
    if (rows && folds == 0)
        prog_op(p, MR_R_SUM, d, p->n_reg - 1, 0, 0);
    for (int i = 0; i < 1 + (int)(prog_random(state) % 3); i++) {
        int r = (int)(prog_random(state) % (uint64_t)p->n_reg);

        if (i == 0)
            r = p->n_reg - 1;
        if (r >= p->n_in + p->n_const)
            prog_out(p, r);
    }
    if (p->n_out == 0)
        prog_out(p, prog_op(p, MR_K_COPY, d, 0, 0, 0));
}

static void
fuzz(bool rows, bool donate, int n)
{
    for (int i = 0; i < n; i++) {
        uint64_t seed =
                     (uint64_t)i * 3 + (rows ? 1000000 : 0) + (uint64_t)i % 3,
                 state = seed;
        mr_dtype d = prog_random(&state) % 3 ? MR_FLOAT32 : MR_FLOAT16;
        prog p = {0};

        random_program(&p, rows, d, &state);
        random_dims(&p, rows, &state);
        compare(&p, seed, donate);
    }
}

static void
elementwise__fused_equals_one_by_one(void **state)
{
    (void)state;
    fuzz(false, false, 600);
}

static void
rows__fused_equals_one_by_one(void **state)
{
    (void)state;
    fuzz(true, false, 900);
}

static void
donated__inputs_are_read_before_they_are_written(void **state)
{
    (void)state;
    fuzz(false, true, 300);
    fuzz(true, true, 300);
}

/* ---- programs people write
 * ---------------------------------------------------------------------- */

static void
softmax_check(int64_t rows, int64_t n)
{
    float *x = malloc((size_t)(rows * n) * sizeof *x);
    float *y = malloc((size_t)(rows * n) * sizeof *y);
    uint64_t state = 5;
    prog p = {0};
    int a = prog_in(&p, MR_FLOAT32);
    int m = prog_op(&p, MR_R_MAX, MR_FLOAT32, a, 0, 0);
    int d = prog_op(&p, MR_K_SUBTRACT, MR_FLOAT32, a, m, 0);
    int e = prog_op(&p, MR_K_EXP, MR_FLOAT32, d, 0, 0);
    int s = prog_op(&p, MR_R_SUM, MR_FLOAT32, e, 0, 0);

    prog_out(&p, prog_op(&p, MR_K_DIVIDE, MR_FLOAT32, e, s, 0));
    for (int64_t i = 0; i < rows * n; i++)
        x[i] = (float)(prog_uniform(&state) * 20);
    p.l.n_kept = p.l.n_red = 1;
    p.l.dim[0] = rows;
    p.l.dim[1] = n;
    prog_contiguous(&p, &p.l.in[0], x, 4, false);
    prog_contiguous(&p, &p.l.out[0], y, 4, false);
    prog_run(&p, UNIT_BY_UNIT);
    for (int64_t r = 0; r < rows; r++) {
        double big = -INFINITY, sum = 0;

        for (int64_t i = 0; i < n; i++)
            big = fmax(big, (double)x[r * n + i]);
        for (int64_t i = 0; i < n; i++)
            sum += exp((double)x[r * n + i] - big);
        for (int64_t i = 0; i < n; i++) {
            double want = exp((double)x[r * n + i] - big) / sum;

            assert_true(fabs((double)y[r * n + i] - want) <= 3e-6 * want);
        }
    }
    free(x);
    free(y);
}

static void
softmax__rows_of_all_lengths(void **state)
{
    (void)state;
    softmax_check(1, 1);
    softmax_check(100, 10);
    softmax_check(33, 1000);
    softmax_check(5, 5000);
    softmax_check(2, 100000);
}

static void
logsumexp__infinite_rows_stay_infinite(void **state)
{
    float x[4][3] = {{-INFINITY, -INFINITY, -INFINITY},
                     {INFINITY, 1, 2},
                     {NAN, 1, 2},
                     {1000, 1000, 1000}};
    float y[4];
    prog p = {0};
    int a = prog_in(&p, MR_FLOAT32);

    (void)state;
    prog_out(&p, prog_op(&p, MR_R_LOGSUMEXP, MR_FLOAT32, a, 0, 0));
    p.l.n_kept = p.l.n_red = 1;
    p.l.dim[0] = 4;
    p.l.dim[1] = 3;
    prog_contiguous(&p, &p.l.in[0], x, 4, false);
    prog_contiguous(&p, &p.l.out[0], y, 4, true);
    prog_run(&p, ALL_AT_ONCE);
    assert_true(y[0] == -INFINITY && y[1] == INFINITY && isnan(y[2]));
    assert_true(fabsf(y[3] - 1001.0986F) < 1e-3F);
}

static void
program__without_dims_is_one_value(void **state)
{
    float x = 3, y = 0;
    prog p = {0};
    int a = prog_in(&p, MR_FLOAT32),
        b = prog_op(&p, MR_K_SQUARE, MR_FLOAT32, a, 0, 0);

    (void)state;
    prog_out(&p, prog_op(&p, MR_K_ADD, MR_FLOAT32, b, a, 0));
    p.l.in[0].data = &x;
    p.l.out[0].data = &y;
    assert_int_equal(prog_run(&p, ALL_AT_ONCE), 1);
    assert_true(y == 12);
}

static void
program__of_no_points_has_no_units(void **state)
{
    prog p = {0};
    int a = prog_in(&p, MR_FLOAT32);

    (void)state;
    prog_out(&p, prog_op(&p, MR_K_EXP, MR_FLOAT32, a, 0, 0));
    p.l.n_kept = 2;
    p.l.dim[0] = 4;
    p.l.dim[1] = 0;
    assert_int_equal(prog_run(&p, ALL_AT_ONCE), 0);
}

/* Very many live registers: more than the small frame holds. */
static void
program__with_many_live_registers(void **state)
{
    double x[1000], y[1000];
    prog p = {0};
    int a = prog_in(&p, MR_FLOAT64), first, sum;

    (void)state;
    first = p.n_reg;
    for (int i = 0; i < 40; i++)
        prog_op(&p, MR_K_ADD, MR_FLOAT64, i ? p.n_reg - 1 : a, a, 0);
    sum = first;
    for (int i = 1; i < 40; i++)
        sum = prog_op(&p, MR_K_ADD, MR_FLOAT64, sum, first + i, 0);
    prog_out(&p, sum);
    for (int i = 0; i < 1000; i++)
        x[i] = i;
    p.l.n_kept = 1;
    p.l.dim[0] = 1000;
    prog_contiguous(&p, &p.l.in[0], x, 8, false);
    prog_contiguous(&p, &p.l.out[0], y, 8, false);
    prog_run(&p, ALL_AT_ONCE);
    for (int i = 0; i < 1000; i++)
        assert_true(y[i] == x[i] * 860); /* 2 + 3 + ... + 41 */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise__fused_equals_one_by_one),
        cmocka_unit_test(rows__fused_equals_one_by_one),
        cmocka_unit_test(donated__inputs_are_read_before_they_are_written),
        cmocka_unit_test(softmax__rows_of_all_lengths),
        cmocka_unit_test(logsumexp__infinite_rows_stay_infinite),
        cmocka_unit_test(program__without_dims_is_one_value),
        cmocka_unit_test(program__of_no_points_has_no_units),
        cmocka_unit_test(program__with_many_live_registers),
    };

    return cmocka_run_group_tests_name("kernels/programs", tests, NULL, NULL);
}
