/* SPDX-License-Identifier: Apache-2.0
 *
 * complex.c -- complex operations against the C library's long double ones.
 */
#include <complex.h>
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "kernels/program_of.h"

#ifndef CMPLXL /* glibc has it for GCC alone */
#define CMPLXL(x, y) __builtin_complex((long double)(x), (long double)(y))
#endif

#define N 6000

typedef long double complex wide;
typedef wide ref(wide);

static wide
ref_square(wide z)
{
    return z * z;
}
static wide
ref_reciprocal(wide z)
{
    return 1 / z;
}
static wide
ref_rsqrt(wide z)
{
    return 1 / csqrtl(z);
}
static wide
ref_sign(wide z)
{
    return z == 0 ? 0 : z / cabsl(z);
}
static wide
ref_expm1(wide z)
{
    long double s = sinl(cimagl(z) / 2);

    return CMPLXL(expm1l(creall(z)) * cosl(cimagl(z)) - 2 * s * s,
                  expl(creall(z)) * sinl(cimagl(z)));
}
static wide
ref_log2(wide z)
{
    return clogl(z) / logl(2);
}
static wide
ref_log10(wide z)
{
    return clogl(z) / logl(10);
}
static wide
ref_log1p(wide z)
{
    long double x = creall(z), y = cimagl(z);

    return CMPLXL(log1pl(x * (2 + x) + y * y) / 2, atan2l(y, 1 + x));
}
static wide
ref_sigmoid(wide z)
{
    return 1 / (1 + cexpl(-z));
}

/* Errors are relative to the magnitude of the result. */
static const struct {
    mr_k k;
    ref *f;
    double range, bound; /* in units of the last place of the magnitude */
} unary[] = {
    {MR_K_SQUARE, ref_square, 100, 4},
    {MR_K_SQRT, csqrtl, 100, 4},
    {MR_K_RSQRT, ref_rsqrt, 100, 8},
    {MR_K_RECIPROCAL, ref_reciprocal, 100, 6},
    {MR_K_SIGN, ref_sign, 100, 4},
    {MR_K_EXP, cexpl, 20, 4},
    {MR_K_EXPM1, ref_expm1, 5, 8},
    {MR_K_LOG, clogl, 100, 6},
    {MR_K_LOG2, ref_log2, 100, 8},
    {MR_K_LOG10, ref_log10, 100, 8},
    {MR_K_LOG1P, ref_log1p, 0.4, 8},
    {MR_K_SIN, csinl, 20, 4},
    {MR_K_COS, ccosl, 20, 4},
    {MR_K_TAN, ctanl, 3, 12},
    {MR_K_SINH, csinhl, 20, 4},
    {MR_K_COSH, ccoshl, 20, 4},
    {MR_K_TANH, ctanhl, 3, 12},
    {MR_K_ARCSIN, casinl, 10, 12},
    {MR_K_ARCCOS, cacosl, 10, 12},
    {MR_K_ARCTAN, catanl, 10, 24},
    {MR_K_ARCSINH, casinhl, 10, 12},
    {MR_K_ARCCOSH, cacoshl, 10, 12},
    {MR_K_ARCTANH, catanhl, 10, 24},
    {MR_K_SIGMOID, ref_sigmoid, 20, 5},
};

static void
put(void *p, bool is64, int i, double re, double im)
{
    if (is64)
        ((mr_c64 *)p)[i] = (mr_c64){(float)re, (float)im};
    else
        ((mr_c128 *)p)[i] = (mr_c128){re, im};
}

static wide
get(const void *p, bool is64, int i)
{
    const mr_c64 *f = p;
    const mr_c128 *d = p;

    return is64 ? CMPLXL((long double)f[i].re, (long double)f[i].im)
                : CMPLXL((long double)d[i].re, (long double)d[i].im);
}

static double
error_of(wide got, wide want, bool is64)
{
    long double unit = is64 ? (long double)FLT_EPSILON : DBL_EPSILON;

    return (double)(cabsl(got - want) / (unit * cabsl(want)));
}

static mr_c128 a[N], b[N], out[N];

static void
unary_in_tier(const mr_tier *t)
{
    for (size_t j = 0; j < sizeof unary / sizeof unary[0]; j++) {
        for (int is64 = 0; is64 < 2; is64++) {
            mr_dtype d = is64 ? MR_COMPLEX64 : MR_COMPLEX128;
            uint64_t seed = 3;

            for (int i = 0; i < N; i++)
                put(a, is64, i, prog_uniform(&seed) * unary[j].range,
                    prog_uniform(&seed) * unary[j].range);
            t->dtype[d]->map[unary[j].k](out, (const void *[]){a},
                                         (int64_t[]){1}, N - 3);
            for (int i = 0; i < N - 3; i++) {
                wide z = get(a, is64, i), want = unary[j].f(z);
                double e = error_of(get(out, is64, i), want, is64);

                if (!(e <= unary[j].bound))
                    fail_msg("%s %s complex%d: %.2f units at %.9Lg%+.9Lgi",
                             mr__k_name(unary[j].k), t->name, is64 ? 64 : 128,
                             e, creall(z), cimagl(z));
            }
        }
    }
}

static void
unary__close_to_the_c_library(void **state)
{
    (void)state;
    each_tier(unary_in_tier);
}

static void
binary_in_tier(const mr_tier *t)
{
    for (int is64 = 0; is64 < 2; is64++) {
        static const mr_k k[] = {MR_K_ADD,    MR_K_SUBTRACT, MR_K_MULTIPLY,
                                 MR_K_DIVIDE, MR_K_POWER,    MR_K_LOGADDEXP};
        mr_dtype d = is64 ? MR_COMPLEX64 : MR_COMPLEX128;
        uint64_t seed = 5;

        for (int i = 0; i < N; i++) {
            put(a, is64, i, prog_uniform(&seed) * 4, prog_uniform(&seed) * 4);
            put(b, is64, i, prog_uniform(&seed) * 3, prog_uniform(&seed) * 1.5);
        }
        for (int j = 0; j < 6; j++) {
            t->dtype[d]->map[k[j]](out, (const void *[]){a, b},
                                   (int64_t[]){1, 1}, N);
            for (int i = 0; i < N; i++) {
                wide x = get(a, is64, i), y = get(b, is64, i);
                wide want[] = {x + y, x - y,       x * y,
                               x / y, cpowl(x, y), clogl(cexpl(x) + cexpl(y))};
                double e = error_of(get(out, is64, i), want[j], is64);

                if (j == 5 && cabsl(want[j]) < 0.5L)
                    continue;
                if (j == 5) /* any branch of the log */
                    e = fmin(e, error_of(cexpl(get(out, is64, i)),
                                         cexpl(x) + cexpl(y), is64) /
                                    30);
                if (!(e <= (j == 4 ? 60 : j == 5 ? 20 : 5)))
                    fail_msg("%s %s complex%d: %.2f units at %d",
                             mr__k_name(k[j]), t->name, is64 ? 64 : 128, e, i);
            }
        }
    }
}

static void
binary__close_to_the_c_library(void **state)
{
    (void)state;
    each_tier(binary_in_tier);
}

static void
magnitude_in_tier(const mr_tier *t)
{
    const mr_c64 z[] = {{3e38F, 3e37F},  {3, 4},           {1e-40F, 0},
                        {INFINITY, NAN}, {NAN, -INFINITY}, {NAN, 1}};
    float r[6];

    t->dtype[MR_COMPLEX64]->map[MR_K_ABS](r, (const void *[]){z},
                                          (int64_t[]){1}, 6);
    assert_true(fabsf(r[0] - 3.0149627e38F) < 1e32F);
    assert_true(r[1] == 5 && r[2] == 1e-40F);
    assert_true(isinf(r[3]) && isinf(r[4]) && isnan(r[5]));
}

static void
magnitude__neither_overflows_nor_vanishes(void **state)
{
    (void)state;
    each_tier(magnitude_in_tier);
}

static mr_c128
call(const mr_tier *t, mr_k k, mr_c128 x, mr_c128 y)
{
    mr_c128 r;

    t->dtype[MR_COMPLEX128]->map[k](&r, (const void *[]){&x, &y},
                                    (int64_t[]){1, 1}, 1);
    return r;
}

static void
special_in_tier(const mr_tier *t)
{
    mr_c128 none = {0, 0}, r;

    r = call(t, MR_K_EXP, (mr_c128){-INFINITY, NAN}, none);
    assert_true(r.re == 0 && r.im == 0);
    r = call(t, MR_K_EXP, (mr_c128){INFINITY, 0}, none);
    assert_true(r.re == INFINITY && r.im == 0);
    r = call(t, MR_K_EXP, (mr_c128){709.9, 1.5}, none);
    assert_true(isfinite(r.re) && isinf(r.im));
    r = call(t, MR_K_SQRT, (mr_c128){-4, 0.0}, none);
    assert_true(r.re == 0 && r.im == 2);
    r = call(t, MR_K_SQRT, (mr_c128){-4, -0.0}, none);
    assert_true(r.re == 0 && r.im == -2);
    r = call(t, MR_K_SQRT, (mr_c128){1e308, 1e308}, none);
    assert_true(isfinite(r.re) && isfinite(r.im));
    r = call(t, MR_K_DIVIDE, (mr_c128){1e300, 1e300}, (mr_c128){1e300, 1e300});
    assert_true(r.re == 1 && r.im == 0);
    r = call(t, MR_K_POWER, none, none);
    assert_true(r.re == 1 && r.im == 0);
    r = call(t, MR_K_POWER, none, (mr_c128){2, 1});
    assert_true(r.re == 0 && r.im == 0);
    r = call(t, MR_K_TANH, (mr_c128){1000, 1}, none);
    assert_true(r.re == 1 && r.im == 0);
    r = call(t, MR_K_MAXIMUM, (mr_c128){1, 5}, (mr_c128){1, 7});
    assert_true(r.re == 1 && r.im == 7);
    r = call(t, MR_K_MAXIMUM, (mr_c128){NAN, 5}, (mr_c128){1, 7});
    assert_true(isnan(r.re));
    r = call(t, MR_K_SIGN, none, none);
    assert_true(r.re == 0 && r.im == 0);
}

static void
special__values_of_the_standard(void **state)
{
    (void)state;
    each_tier(special_in_tier);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unary__close_to_the_c_library),
        cmocka_unit_test(binary__close_to_the_c_library),
        cmocka_unit_test(magnitude__neither_overflows_nor_vanishes),
        cmocka_unit_test(special__values_of_the_standard),
    };

    return cmocka_run_group_tests_name("kernels/complex", tests, NULL, NULL);
}
