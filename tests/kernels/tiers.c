/* SPDX-License-Identifier: Apache-2.0
 *
 * tiers.c -- the tiers with fused multiply-add give the same bits in
 * everything: each operation, cast and reduction on each dtype.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "kernels/program_of.h"
#include "marram/array.h"

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
first_tier(void)
{
    int id = 0;

    while (!mr__tier_by_id(id))
        id++;
    return mr__tier_by_id(id);
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
    const mr_tier *a = first_tier();

    (void)state;
    for (int d = 0; d < MR_N_DTYPES; d++) {
        fill(in[0], (mr_dtype)d, 4);
        for (int id = a->id + 1; id < MR_N_TIERS; id++) {
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

/* ---- across machines ------------------------------------------------------
 * Sums over what a tier computes stand in golden/tiers.txt, so that tiers of
 * different architectures are compared too.  A line is `what dtype sum`. */

static uint64_t
sum_of(const char *p, mr_dtype d, size_t n)
{
    static const char nan_bytes[16] = "\x7f\x55";
    uint64_t h = 0xCBF29CE484222325ULL;
    int parts = d == MR_COMPLEX64 || d == MR_COMPLEX128 ? 2 : 1;
    size_t size = prog_size(d) / (size_t)parts;

    for (size_t i = 0; i < n * (size_t)parts; i++, p += size) {
        bool nan = is_nan(p,
                          parts == 1          ? d
                          : d == MR_COMPLEX64 ? MR_FLOAT32
                                              : MR_FLOAT64,
                          0);

        for (size_t b = 0; b < size; b++)
            h = (h ^ (uint8_t)(nan ? nan_bytes[b] : p[b])) * 0x100000001B3ULL;
    }
    return h;
}

static void
line(FILE *f, const char *what, int d, uint64_t sum)
{
    fprintf(f, "%s %s %016" PRIx64 "\n", what, mr_dtype_name((mr_dtype)d), sum);
}

static void
sums_of_maps(FILE *f, const mr_tier *t, int d)
{
    for (int j = 0; j < 3; j++)
        fill(in[j], (mr_dtype)d, (uint64_t)(j + 1));
    for (int k = 0; k < MR_N_K; k++) {
        const void *arg[3] = {k == MR_K_SELECT ? (void *)cond : in[0], in[1],
                              in[2]};

        if (!t->dtype[d]->map[k])
            continue;
        t->dtype[d]->map[k](out[0], arg, (int64_t[]){1, 1, 1}, N);
        line(f, mr__k_name((mr_k)k), d,
             sum_of(out[0], mr__k_result((mr_k)k, (mr_dtype)d), N));
    }
}

static void
sums_of_folds(FILE *f, const mr_tier *t, int d)
{
    static const char *const name[MR_N_FOLDS] = {"fold_sum", "fold_prod",
                                                 "fold_max", "fold_min"};
    mr_dtype acc = t->dtype[d]->acc;

    for (int k = 0; k < MR_N_FOLDS; k++) {
        size_t n = 0;

        for (int64_t m = 0; m < 4096; m = m * 2 + 3, n += 4)
            t->dtype[d]->fold[k].rows(out[0] + n * prog_size(acc), in[0], m, 4,
                                      m * (int64_t)prog_size((mr_dtype)d));
        line(f, name[k], d, sum_of(out[0], acc, n));
    }
}

static void
sums_of_casts(FILE *f, const mr_tier *t, int d)
{
    for (int to = 0; to < MR_N_DTYPES; to++) {
        char name[40];

        t->casts->cast[d][to](out[0], in[0], N);
        snprintf(name, sizeof name, "to_%s", mr_dtype_name((mr_dtype)to));
        line(f, name, d, sum_of(out[0], (mr_dtype)to, N));
    }
}

static void
machines__give_equal_bits(void **state)
{
    const char *path = MRT_SOURCE_DIR "/tests/golden/tiers.txt";
    const char *update = getenv("MRT_UPDATE_TIERS");
    static char want[1 << 17], got[1 << 17];

    (void)state;
    for (int i = 0; i < N; i++)
        cond[i] = i % 3 == 0;
    for (int id = MR_TIER_AVX2; id < MR_N_TIERS; id++) {
        const mr_tier *t = mr__tier_by_id(id);
        FILE *f = fmemopen(got, sizeof got, "w");

        assert_non_null(f);
        for (int d = 0; d < MR_N_DTYPES && t; d++) {
            sums_of_maps(f, t, d);
            sums_of_folds(f, t, d);
            sums_of_casts(f, t, d);
        }
        assert_int_equal(fclose(f), 0);
        if (!t)
            continue;
        f = fopen(path, update ? "w+" : "r");
        assert_non_null(f);
        if (update)
            fputs(got, f);
        rewind(f);
        memset(want, 0, sizeof want);
        assert_true(fread(want, 1, sizeof want - 1, f) > 10000);
        fclose(f);
        assert_string_equal(got, want);
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
    setenv("MARRAM_CPU", mr__tier()->name, 1);
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
        cmocka_unit_test(machines__give_equal_bits),
        cmocka_unit_test(tail__no_element_beyond_is_touched),
        cmocka_unit_test(stream__equals_plain_stores),
        cmocka_unit_test(tier__name_is_checked),
    };

    return cmocka_run_group_tests_name("kernels/tiers", tests, NULL, NULL);
}
