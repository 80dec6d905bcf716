/* SPDX-License-Identifier: Apache-2.0
 *
 * tiers.c -- the tiers with fused multiply-add give the same bits in
 * everything: each operation, cast and reduction on each dtype.
 */
#include <math.h>
#include <stdio.h>

#include "kernels/program_of.h"

#define N 20011

static char in[3][N * 16], out[2][N * 16];
static uint8_t cond[N];

static void
fill(char *p, mr_dtype d, uint64_t seed)
{
    uint64_t state = seed;

    for (int i = 0; i < N; i++) {
        uint64_t bits[2] = {prog_random(&state), prog_random(&state)};
        mr_const c = {.c128 = {prog_uniform(&state) * 30,
                               prog_uniform(&state) * 30}},
                 v = c;

        if (i % 8 != 0 && d != MR_COMPLEX128) /* else any bits at all */
            mr__const_cast(&c, MR_COMPLEX128, &v, d);
        else if (d != MR_COMPLEX128)
            memcpy(&v, bits, sizeof bits);
        if (d == MR_BOOL)
            v.bytes[0] &= 1;
        memcpy(p + (size_t)i * prog_size(d), v.bytes, prog_size(d));
    }
}

static bool
is_nan(const char *p, mr_dtype d, int part)
{
    float f = 0;
    double g = 0;
    uint16_t h = 0;

    if (d == MR_FLOAT32 || d == MR_COMPLEX64)
        memcpy(&f, p + part * 4, 4);
    if (d == MR_FLOAT64 || d == MR_COMPLEX128)
        memcpy(&g, p + part * 8, 8);
    if (d == MR_FLOAT16 || d == MR_BFLOAT16)
        memcpy(&h, p, 2);
    return isnan(f) || isnan(g) ||
           (h & 0x7FFF) > (d == MR_FLOAT16 ? 0x7C00 : 0x7F80);
}

static bool
same(const char *a, const char *b, mr_dtype d)
{
    int parts = d == MR_COMPLEX64 || d == MR_COMPLEX128 ? 2 : 1;
    size_t size = prog_size(d) / (size_t)parts;

    for (int i = 0; i < parts; i++) {
        if (memcmp(a + (size_t)i * size, b + (size_t)i * size, size) != 0 &&
            !(is_nan(a, d, i) && is_nan(b, d, i)))
            return false;
    }
    return true;
}

static const mr_tier *
need(int id)
{
    const mr_tier *t = mr__tier_by_id(id);

    if (t == NULL)
        skip();
    return t;
}

static void
maps__equal_bits(void **state)
{
    const mr_tier *a = need(MR_TIER_AVX2), *b = need(MR_TIER_AVX512);

    (void)state;
    for (int i = 0; i < N; i++)
        cond[i] = i % 3 == 0;
    for (int d = 0; d < MR_N_DTYPES; d++) {
        for (int j = 0; j < 3; j++)
            fill(in[j], (mr_dtype)d, (uint64_t)(j + 1));
        for (int k = 0; k < MR_N_K; k++) {
            mr_dtype to = mr__k_result((mr_k)k, (mr_dtype)d);
            const void *arg[3] = {k == MR_K_SELECT ? (void *)cond : in[0],
                                  in[1], in[2]};

            assert_int_equal(a->dtype[d]->map[k] == NULL,
                             b->dtype[d]->map[k] == NULL);
            if (a->dtype[d]->map[k] == NULL)
                continue;
            a->dtype[d]->map[k](out[0], arg, (int64_t[]){1, 1, 1}, N);
            b->dtype[d]->map[k](out[1], arg, (int64_t[]){1, 1, 1}, N);
            for (size_t i = 0; i < N; i++) {
                if (!same(out[0] + i * prog_size(to),
                          out[1] + i * prog_size(to), to))
                    fail_msg("%s of dtype %d differs at %zu",
                             mr__k_name((mr_k)k), d, i);
            }
        }
    }
}

static void
casts__equal_bits(void **state)
{
    const mr_tier *a = need(MR_TIER_AVX2), *b = need(MR_TIER_AVX512);

    (void)state;
    for (int from = 0; from < MR_N_DTYPES; from++) {
        fill(in[0], (mr_dtype)from, 9);
        for (int to = 0; to < MR_N_DTYPES; to++) {
            size_t size = prog_size((mr_dtype)to);

            a->casts->cast[from][to](out[0], in[0], N);
            b->casts->cast[from][to](out[1], in[0], N);
            for (size_t i = 0; i < N; i++)
                assert_true(
                    same(out[0] + i * size, out[1] + i * size, (mr_dtype)to));
        }
    }
}

/* A float32 range of ordinary numbers in all tiers: baseline may differ in
 * the last places of transcendental functions, nowhere else. */
static void
folds__equal_bits_in_every_tier(void **state)
{
    const mr_tier *a = mr__tier_by_id(MR_TIER_BASELINE);

    (void)state;
    for (int d = 0; d < MR_N_DTYPES; d++) {
        fill(in[0], (mr_dtype)d, 4);
        for (int id = MR_TIER_AVX2; id < MR_N_TIERS; id++) {
            const mr_tier *b = mr__tier_by_id(id);
            mr_dtype acc = a->dtype[d]->acc;
            size_t size = prog_size(acc);

            if (b == NULL)
                continue;
            for (int f = 0; f < MR_N_FOLDS; f++) {
                for (int n = 0; n < 4096; n = n * 2 + 3) {
                    int64_t row = n * (int64_t)prog_size((mr_dtype)d);

                    a->dtype[d]->fold[f].rows(out[0], in[0], n, 4, row);
                    b->dtype[d]->fold[f].rows(out[1], in[0], n, 4, row);
                    for (size_t i = 0; i < 4; i++)
                        assert_true(
                            same(out[0] + i * size, out[1] + i * size, acc));
                }
            }
        }
    }
}

/* Tails: every count up to a few vectors touches exactly that many. */
static void
tail_in_tier(const mr_tier *t)
{
    for (int d = 0; d < MR_N_DTYPES; d++) {
        size_t size = prog_size((mr_dtype)d);

        fill(in[0], (mr_dtype)d, 5);
        fill(in[1], (mr_dtype)d, 6);
        for (int n = 0; n < 140; n++) {
            memset(out[0], 0x55, sizeof out[0]);
            t->dtype[d]->map[MR_K_ADD](out[0], (const void *[]){in[0], in[1]},
                                       (int64_t[]){1, 1}, n);
            t->dtype[d]->map[MR_K_ADD](out[1], (const void *[]){in[0], in[1]},
                                       (int64_t[]){1, 1}, 200);
            for (size_t i = 0; i < (size_t)n; i++)
                assert_true(
                    same(out[0] + i * size, out[1] + i * size, (mr_dtype)d));
            for (size_t i = (size_t)n * size; i < (size_t)n * size + 200; i++)
                assert_int_equal(out[0][i], 0x55);
        }
    }
}

static void
tail__no_element_beyond_is_touched(void **state)
{
    (void)state;
    each_tier(tail_in_tier);
}

static void
stream_in_tier(const mr_tier *t)
{
    const mr_k k[] = {MR_K_ADD, MR_K_SUBTRACT, MR_K_MULTIPLY};

    for (int d = 0; d < MR_N_DTYPES; d++) {
        fill(in[0], (mr_dtype)d, 5);
        fill(in[1], (mr_dtype)d, 6);
        for (int j = 0; j < 3; j++) {
            size_t size = prog_size((mr_dtype)d);
            int at = (j * 5 + 1) % 7, n = N - 40;
            const void *arg[] = {in[0], in[1]};

            for (size_t i = 1; i < MR_SPLAT_N; i++)
                memcpy(in[1] + i * size, in[1], size);

            if (t->dtype[d]->stream[k[j]] == NULL)
                continue;
            memset(out[0], 0x55, sizeof out[0]);
            t->dtype[d]->stream[k[j]](out[0] + (size_t)at * size, arg,
                                      (int64_t[]){1, 0}, n);
            t->dtype[d]->map[k[j]](out[1], arg, (int64_t[]){1, 0}, n);
            for (size_t i = 0; i < (size_t)n; i++)
                assert_true(same(out[0] + ((size_t)at + i) * size,
                                 out[1] + i * size, (mr_dtype)d));
            assert_int_equal(out[0][(size_t)(at + n) * size], 0x55);
        }
    }
}

static void
stream__equals_plain_stores(void **state)
{
    (void)state;
    each_tier(stream_in_tier);
}

static void
tier__name_is_checked(void **state)
{
    (void)state;
    setenv("MARRAM_CPU", "pentium", 1);
    assert_null(mr__cpu_tier());
    setenv("MARRAM_CPU", "baseline", 1);
    assert_non_null(mr__cpu_tier());
    unsetenv("MARRAM_CPU");
    assert_non_null(mr__cpu_tier());
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps__equal_bits),
        cmocka_unit_test(casts__equal_bits),
        cmocka_unit_test(folds__equal_bits_in_every_tier),
        cmocka_unit_test(tail__no_element_beyond_is_touched),
        cmocka_unit_test(stream__equals_plain_stores),
        cmocka_unit_test(tier__name_is_checked),
    };

    return cmocka_run_group_tests_name("kernels/tiers", tests, NULL, NULL);
}
