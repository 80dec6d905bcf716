/* SPDX-License-Identifier: Apache-2.0
 *
 * folds.c -- the reductions of many rows at once, and of many columns: in each
 * tier the bits of one row, or one column, alone, and nothing written beyond.
 */
#include <math.h>

#include "kernels/program_of.h"

#define ROWS  70
#define WIDE  1100 /* columns, and points of a row */
#define GUARD 0x55

static char memory[ROWS * WIDE * 16], many[WIDE * 16 + 64], one[16];

/* What the numbers are. */
typedef enum kind {
    ORDINARY,
    NEGATIVE,
    ZEROS,    /* of both signs, now and then another */
    SPECIAL,  /* now and then infinite, or NaN of either sign */
    ONE_ZERO, /* of one sign, above or below all others */
    N_KINDS
} kind;

static double
number(kind k, uint64_t *state)
{
    double x = prog_uniform(state) * 30;
    uint64_t die = prog_random(state) % 64;

    switch (k) {
    case NEGATIVE:
        return -fabs(x);
    case ZEROS:
        return die == 0 ? x : die % 2 == 0 ? 0.0 : -0.0;
    case SPECIAL:
        return die == 0   ? (double)INFINITY
               : die == 1 ? -(double)INFINITY
               : die == 2 ? (double)NAN
               : die == 3 ? -(double)NAN
                          : x;
    case ONE_ZERO:
        return die < 2 ? 0.0 : fabs(x);
    case ORDINARY:
    case N_KINDS:
        break;
    }
    return x;
}

static void
fill(mr_dtype d, kind k)
{
    uint64_t state = 7;

    for (size_t i = 0; i < ROWS * WIDE; i++) {
        mr_const c = {.c128 = {number(k, &state), number(k, &state)}}, v = c;

        if (d != MR_COMPLEX128)
            mr__const_cast(&c, MR_COMPLEX128, &v, d);
        memcpy(memory + i * prog_size(d), v.bytes, prog_size(d));
    }
}

/* All NaNs count as equal. */
static bool
same(const char *a, const char *b, mr_dtype d)
{
    mr_const x = {0}, y = {0}, p = {0}, q = {0};

    if (memcmp(a, b, prog_size(d)) == 0)
        return true;
    memcpy(x.bytes, a, prog_size(d));
    memcpy(y.bytes, b, prog_size(d));
    mr__const_cast(&x, d, &p, MR_COMPLEX128);
    mr__const_cast(&y, d, &q, MR_COMPLEX128);
    return (isnan(p.c128.re) || p.c128.re == q.c128.re) &&
           (isnan(p.c128.im) || p.c128.im == q.c128.im) &&
           isnan(p.c128.re) == isnan(q.c128.re) &&
           isnan(p.c128.im) == isnan(q.c128.im) &&
           (isnan(p.c128.re) || isnan(p.c128.im));
}

static void
guarded(size_t bytes)
{
    for (size_t i = bytes; i < bytes + 64; i++)
        assert_int_equal(many[i], GUARD);
}

static void
rows_in_tier(const mr_tier *t, mr_dtype d, int f, kind k)
{
    const mr_fold_fns *fold = &t->dtype[d]->fold[f];
    mr_dtype acc = t->dtype[d]->acc;
    size_t size = prog_size(acc);

    for (int n = 1; n <= WIDE; n = n < 70 ? n + 1 : n * 2 + 1) {
        int64_t apart = (n + n % 3) * (int64_t)prog_size(d);
        int rows = n % 2 == 0 ? ROWS : 37;

        if (n + n % 3 > WIDE)
            break;
        memset(many, GUARD, sizeof many);
        fold->rows(many, memory, n, rows, apart);
        guarded((size_t)rows * size);
        for (int r = 0; r < rows; r++) {
            fold->rows(one, memory + r * apart, n, 1, apart);
            if (!same(many + (size_t)r * size, one, acc))
                fail_msg("%s, dtype %d, fold %d, kind %d: row %d of %d points",
                         t->name, (int)d, f, (int)k, r, n);
        }
    }
}

static void
columns_in_tier(const mr_tier *t, mr_dtype d, int f, kind k)
{
    static const int cols[] = {1,  7,  16, 31,  32,  33,  40,  63,
                               64, 65, 96, 100, 487, 512, 530, WIDE};
    const mr_fold_fns *fold = &t->dtype[d]->fold[f];
    mr_dtype acc = t->dtype[d]->acc;
    size_t size = prog_size(acc), item = prog_size(d);

    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        int rows = (int[]){1, 2, 3, 4, 5, 9, 62, 70}[i % 8], n = cols[i];

        memset(many, GUARD, sizeof many);
        fold->fill(many, n);
        fold->cols(many, 0, memory, WIDE * (int64_t)item, 0, 1, n);
        fold->cols(many, 0, memory, WIDE * (int64_t)item, 0, rows, n);
        guarded((size_t)n * size);
        for (int c = 0; c < n; c++) {
            const char *at = memory + (size_t)c * item;

            fold->fill(one, 1);
            fold->cols(one, 0, at, WIDE * (int64_t)item, 0, 1, 1);
            fold->cols(one, 0, at, WIDE * (int64_t)item, 0, rows, 1);
            if (!same(many + (size_t)c * size, one, acc))
                fail_msg("%s, dtype %d, fold %d, kind %d: column %d of %d, "
                         "%d rows",
                         t->name, (int)d, f, (int)k, c, n, rows);
        }
    }
}

static void
each(void (*check)(const mr_tier *t, mr_dtype d, int f, kind k))
{
    for (int d = 0; d < MR_N_DTYPES; d++)
        for (int k = 0; k < N_KINDS; k++) {
            fill((mr_dtype)d, (kind)k);
            for (int id = 0; id < MR_N_TIERS; id++)
                for (int f = 0; f < MR_N_FOLDS; f++)
                    if (mr__tier_by_id(id) != NULL)
                        check(mr__tier_by_id(id), (mr_dtype)d, f, (kind)k);
        }
}

static void
rows__many_at_once_have_the_bits_of_one(void **state)
{
    (void)state;
    each(rows_in_tier);
}

static void
columns__many_at_once_have_the_bits_of_one(void **state)
{
    (void)state;
    each(columns_in_tier);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows__many_at_once_have_the_bits_of_one),
        cmocka_unit_test(columns__many_at_once_have_the_bits_of_one),
    };

    return cmocka_run_group_tests_name("kernels/folds", tests, NULL, NULL);
}
