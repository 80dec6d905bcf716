/* SPDX-License-Identifier: Apache-2.0
 *
 * casts.c -- every dtype to every other, in every tier.
 */
#include <math.h>
#include <stdio.h>

#include "kernels/program_of.h"

/* ---- halves by exact search
 * ----------------------------------------------------- */

static double
half_value(uint16_t h, bool bf16)
{
    int ebits = bf16 ? 8 : 5, mbits = 15 - ebits;
    int e = (h & 0x7FFF) >> mbits, m = h & ((1 << mbits) - 1);
    int bias = (1 << (ebits - 1)) - 1;
    double v;

    if (e == (1 << ebits) - 1)
        v = m ? (double)NAN : (double)INFINITY;
    else
        v = ldexp(m + (e ? 1 << mbits : 0), (e ? e : 1) - bias - mbits);
    return h & 0x8000 ? -v : v;
}

/* The nearest half, ties to even: magnitudes grow with their bits. */
static uint16_t
half_of(long double x, bool bf16)
{
    long double a = fabsl(x);
    uint16_t inf = bf16 ? 0x7F80 : 0x7C00, lo = 0, hi = inf;
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    long double below, above;

    if (isnan(x))
        return inf + 1;
    while (hi - lo > 1) {
        uint16_t m = (uint16_t)((lo + hi) / 2);

        if ((long double)half_value(m, bf16) <= a)
            lo = m;
        else
            hi = m;
    }
    below = (long double)half_value(lo, bf16);
    above = hi == inf ? ldexpl(1, bf16 ? 128 : 16)
                      : (long double)half_value(hi, bf16);
    if (a - below > above - a || (a - below == above - a && (lo & 1)))
        lo = hi;
    return lo | sign;
}

/* ---- a number of any dtype
 * -------------------------------------------------------- */

typedef struct number {
    long double re, im;
} number;

static number
load(const void *p, mr_dtype d)
{
    union {
        uint8_t u8;
        uint16_t u16;
        uint32_t u32;
        uint64_t u64;
        int8_t i8;
        int16_t i16;
        int32_t i32;
        int64_t i64;
        float f;
        double d;
        mr_c64 c64;
        mr_c128 c128;
    } u;

    memcpy(&u, p, prog_size(d));
    switch (d) {
    case MR_BOOL:
    case MR_UINT8:
        return (number){u.u8, 0};
    case MR_UINT16:
        return (number){u.u16, 0};
    case MR_UINT32:
        return (number){u.u32, 0};
    case MR_UINT64:
        return (number){(long double)u.u64, 0};
    case MR_INT8:
        return (number){u.i8, 0};
    case MR_INT16:
        return (number){u.i16, 0};
    case MR_INT32:
        return (number){u.i32, 0};
    case MR_INT64:
        return (number){(long double)u.i64, 0};
    case MR_FLOAT16:
    case MR_BFLOAT16:
        return (number){(long double)half_value(u.u16, d == MR_BFLOAT16), 0};
    case MR_FLOAT32:
        return (number){(long double)u.f, 0};
    case MR_FLOAT64:
        return (number){(long double)u.d, 0};
    case MR_COMPLEX64:
        return (number){(long double)u.c64.re, (long double)u.c64.im};
    case MR_COMPLEX128:
        return (number){(long double)u.c128.re, (long double)u.c128.im};
    }
    return (number){0, 0};
}

static bool
is_integer(mr_dtype d)
{
    return d >= MR_UINT8 && d <= MR_INT64;
}

static uint64_t
integer_of(long double x, mr_dtype to, mr_dtype from)
{
    int w = (int)prog_size(to) * 8;
    bool sign = to >= MR_INT8;
    long double low = sign ? -ldexpl(1, w - 1) : 0;
    long double high = ldexpl(1, sign ? w - 1 : w) - 1;

    if (from <= MR_INT64) /* wraps */
        return x < 0 ? (uint64_t)(int64_t)x : (uint64_t)x;
    if (isnan(x))
        return 0;
    x = truncl(x);
    x = x < low ? low : x > high ? high : x;
    return x < 0 ? (uint64_t)(int64_t)x : (uint64_t)x;
}

/* The expected bytes of n in dtype `to`. */
static void
expect(number n, mr_dtype from, mr_dtype to, void *out)
{
    mr_c64 c64 = {(float)n.re, (float)n.im};
    mr_c128 c128 = {(double)n.re, (double)n.im};
    uint64_t u = integer_of(n.re, to, from);
    uint16_t h = half_of(n.re, to == MR_BFLOAT16);
    uint8_t b = !(n.re == 0 && n.im == 0);

    if (to == MR_BOOL)
        memcpy(out, &b, 1);
    else if (is_integer(to))
        memcpy(out, &u, prog_size(to));
    else if (to == MR_FLOAT16 || to == MR_BFLOAT16)
        memcpy(out, &h, 2);
    else if (to == MR_FLOAT32)
        memcpy(out, &c64.re, 4);
    else if (to == MR_FLOAT64)
        memcpy(out, &c128.re, 8);
    else if (to == MR_COMPLEX64)
        memcpy(out, &c64, 8);
    else
        memcpy(out, &c128, 16);
}

static bool
same(const void *a, const void *b, mr_dtype d)
{
    number x, y;

    if (memcmp(a, b, prog_size(d)) == 0)
        return true;
    x = load(a, d);
    y = load(b, d);
    return (isnan(x.re) && isnan(y.re)) || (isnan(x.im) && isnan(y.im));
}

#define N 4099

/* Interesting elements of a dtype: bit patterns of all kinds. */
static void
fill(char *a, mr_dtype d)
{
    static const double v[] = {0,
                               -0.0,
                               1,
                               -1,
                               -1.7,
                               1.7,
                               0.5,
                               1.5,
                               255.5,
                               300,
                               70000,
                               3e9,
                               -3e9,
                               1e20,
                               -1e20,
                               NAN,
                               INFINITY,
                               -INFINITY,
                               65519,
                               65520,
                               65521,
                               127.9,
                               128,
                               32767.5,
                               32768,
                               2147483647.0,
                               2147483648.0,
                               4294967295.0,
                               4294967296.0,
                               9.2e18,
                               1.9e19,
                               5.9604644775390625e-08,
                               2.98e-8,
                               6.1e-5};
    int n = (int)(sizeof v / sizeof v[0]);
    uint64_t state = 3;
    size_t size = prog_size(d);

    for (int i = 0; i < N; i++) {
        uint64_t bits[2] = {prog_random(&state), prog_random(&state)};
        char *p = a + (size_t)i * size;

        if (i % 3 == 0) /* integers of all lengths, with few bits set */
            bits[0] = ((bits[0] >> 63) << (bits[0] & 63)) ^
                      ((uint64_t)1 << (bits[1] & 63)) ^ (bits[1] >> 40 & 1);
        memcpy(p, bits, size);
        if (d == MR_BOOL)
            *p &= 1;
        if (d >= MR_FLOAT16 && i < n)
            expect((number){(long double)v[i], 0}, MR_FLOAT64, d, p);
        if (d >= MR_FLOAT16 && i >= n && i % 2)
            expect((number){(long double)(int64_t)bits[0] *
                                ldexpl(1, -(int)(bits[1] % 80)),
                            1},
                   MR_FLOAT64, d, p);
    }
}

static void
casts_in_tier(const mr_tier *t)
{
    static char a[N * 16], out[N * 16];

    for (int from = 0; from < MR_N_DTYPES; from++) {
        fill(a, (mr_dtype)from);
        for (int to = 0; to < MR_N_DTYPES; to++) {
            size_t size = prog_size((mr_dtype)to);

            t->casts->cast[from][to](out, a, N);
            for (size_t i = 0; i < N; i++) {
                const char *x = a + i * prog_size((mr_dtype)from);
                char want[16];

                expect(load(x, (mr_dtype)from), (mr_dtype)from, (mr_dtype)to,
                       want);
                if (!same(out + i * size, want, (mr_dtype)to))
                    fail_msg("%s: dtype %d to %d at %zu (%.20Lg): %.20Lg, "
                             "want %.20Lg",
                             t->name, from, to, i, load(x, (mr_dtype)from).re,
                             load(out + i * size, (mr_dtype)to).re,
                             load(want, (mr_dtype)to).re);
            }
        }
    }
}

static void
casts__round_wrap_and_saturate(void **state)
{
    (void)state;
    each_tier(casts_in_tier);
}

static void
halves_in_tier(const mr_tier *t)
{
    static uint16_t h[65536], back[65536];
    static float f[65536];

    for (int d = MR_FLOAT16; d <= MR_BFLOAT16; d++) {
        for (int i = 0; i < 65536; i++)
            h[i] = (uint16_t)i;
        t->casts->cast[d][MR_FLOAT32](f, h, 65536);
        t->casts->cast[MR_FLOAT32][d](back, f, 65536);
        for (int i = 0; i < 65536; i++) {
            double v = half_value(h[i], d == MR_BFLOAT16);

            assert_true(isnan(v) ? isnan(f[i]) : (double)f[i] == v);
            assert_true(isnan(v) ? isnan(half_value(back[i], d == MR_BFLOAT16))
                                 : back[i] == h[i]);
        }
    }
}

static void
halves__widen_exactly_and_come_back(void **state)
{
    (void)state;
    each_tier(halves_in_tier);
}

/* Each operation of halves is that of float32, rounded once.  (exp and erf have
 * polynomials of their own: tests/python/test_kernels.py.) */
static void
half_ops_in_tier(const mr_tier *t)
{
    static const mr_k k[] = {MR_K_ADD, MR_K_MULTIPLY, MR_K_DIVIDE,
                             MR_K_LOG, MR_K_SQRT,     MR_K_TANH};
    static uint16_t a[N], b[N], got[N], want[N];
    static float x[N], y[N], z[N];

    for (int d = MR_FLOAT16; d <= MR_BFLOAT16; d++) {
        fill((char *)a, (mr_dtype)d);
        for (int i = 0; i < N; i++)
            b[i] = a[(i * 31 + 5) % N];
        t->casts->cast[d][MR_FLOAT32](x, a, N);
        t->casts->cast[d][MR_FLOAT32](y, b, N);
        for (int j = 0; j < 6; j++) {
            t->dtype[d]->map[k[j]](got, (const void *[]){a, b},
                                   (int64_t[]){1, 1}, N);
            t->dtype[MR_FLOAT32]->map[k[j]](z, (const void *[]){x, y},
                                            (int64_t[]){1, 1}, N);
            t->casts->cast[MR_FLOAT32][d](want, z, N);
            for (int i = 0; i < N; i++)
                assert_true(same(&got[i], &want[i], (mr_dtype)d));
        }
    }
}

static void
halves__are_rounded_after_each_operation(void **state)
{
    (void)state;
    each_tier(half_ops_in_tier);
}

/* From any place in memory, of any length, also of one value for all. */
static void
past_in_tier(const mr_tier *t)
{
    enum { LONGEST = 200, MOST = 40 };
    static float x[LONGEST + MOST];
    static uint16_t got[LONGEST + MOST], want[LONGEST];

    for (int i = 0; i < LONGEST + MOST; i++) {
        uint32_t bits = (uint32_t)i * 2654435761U;

        memcpy(&x[i], &bits, sizeof bits);
    }
    for (int d = MR_FLOAT16; d <= MR_BFLOAT16; d++)
        for (int n = 0; n <= LONGEST; n++)
            for (int at = 0; at < 2 * MOST; at++) {
                int from = at / 2, step = at % 2, to = (at * 7 + n) % MOST;
                const float *in = step != 0 ? x + from : (float[64]){0};
                const void *arg = in;

                memset(got, 0x11, sizeof got);
                t->dtype[d]->stream[MR_K_CAST](got + to, &arg,
                                               (int64_t[]){step}, n);
                t->moves->past_end();
                for (int i = 0; i < n; i++)
                    want[i] = 0;
                if (step != 0)
                    t->casts->cast[MR_FLOAT32][d](want, in, n);
                assert_memory_equal(got + to, want, (size_t)n * 2);
                for (int i = 0; i < LONGEST + MOST; i++)
                    assert_true((i >= to && i < to + n) || got[i] == 0x1111);
            }
}

static void
halves__past_the_caches_are_the_same(void **state)
{
    (void)state;
    each_tier(past_in_tier);
}

static void
const_cast__follows_the_same_rules(void **state)
{
    mr_const a = {.c128 = {-1.7, 0}}, b;

    (void)state;
    mr__const_cast(&a, MR_FLOAT64, &b, MR_UINT8);
    assert_int_equal(b.bytes[0], 0);
    mr__const_cast(&a, MR_FLOAT64, &b, MR_INT16);
    assert_int_equal((int16_t)b.u64[0], -1);
    mr__const_cast(&a, MR_FLOAT64, &b, MR_FLOAT64);
    assert_true(b.c128.re == -1.7);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(casts__round_wrap_and_saturate),
        cmocka_unit_test(halves__widen_exactly_and_come_back),
        cmocka_unit_test(halves__are_rounded_after_each_operation),
        cmocka_unit_test(halves__past_the_caches_are_the_same),
        cmocka_unit_test(const_cast__follows_the_same_rules),
    };

    return cmocka_run_group_tests_name("kernels/casts", tests, NULL, NULL);
}
