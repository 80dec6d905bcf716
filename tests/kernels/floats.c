/* SPDX-License-Identifier: Apache-2.0
 *
 * floats.c -- float32 and float64 operations against long double references,
 * in every tier, with the bound in ULP of each.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "kernels/program_of.h"

#define N 40000

typedef long double unary_ref(long double);

static long double
ref_square(long double x)
{
    return x * x;
}
static long double
ref_rsqrt(long double x)
{
    return 1 / sqrtl(x);
}
static long double
ref_reciprocal(long double x)
{
    return 1 / x;
}
static long double
ref_negative(long double x)
{
    return -x;
}
static long double
ref_sign(long double x)
{
    return x != x ? x : (long double)((x > 0) - (x < 0));
}
static long double
ref_sigmoid(long double x)
{
    return 1 / (1 + expl(-x));
}

/* Solves erf(y) = x by bisection. */
static long double
ref_erfinv(long double x)
{
    long double a = fabsl(x), lo = 0, hi = 7;

    if (a < 1e-10L)
        return x * sqrtl(acosl(-1)) / 2;
    if (!(a < 1))
        return a == 1 ? copysignl(INFINITY, x) : NAN;
    for (int i = 0; i < 200; i++) {
        long double m = (lo + hi) / 2;

        if (a < 0.5L ? erfl(m) < a : erfcl(m) > 1 - a)
            lo = m;
        else
            hi = m;
    }
    return copysignl((lo + hi) / 2, x);
}

/* ulp32 and ulp64 bound the error beyond the rounding of the exact value. */
typedef struct unary_case {
    mr_k k;
    unary_ref *ref;
    double low, high; /* where it is drawn; special values everywhere */
    double ulp32, ulp64;
} unary_case;

static const unary_case unary[] = {
    {MR_K_ABS, fabsl, -1e3, 1e3, 0.5, 0.5},
    {MR_K_NEGATIVE, ref_negative, -1e3, 1e3, 0.5, 0.5},
    {MR_K_SIGN, ref_sign, -1, 1, 0.5, 0.5},
    {MR_K_SQUARE, ref_square, -1e3, 1e3, 0.51, 0.51},
    {MR_K_SQRT, sqrtl, 0, 1e6, 0.51, 0.51},
    {MR_K_RSQRT, ref_rsqrt, 0, 1e6, 1.6, 1.6},
    {MR_K_RECIPROCAL, ref_reciprocal, -1e3, 1e3, 0.51, 0.51},
    {MR_K_EXP, expl, -110, 95, 1.0, 1.01},
    {MR_K_EXPM1, expm1l, -20, 80, 1.01, 1.01},
    {MR_K_LOG, logl, 0, 100, 1.01, 1.01},
    {MR_K_LOG2, log2l, 0, 100, 1.01, 1.01},
    {MR_K_LOG10, log10l, 0, 100, 1.01, 1.01},
    {MR_K_LOG1P, log1pl, -1, 10, 1.01, 1.01},
    {MR_K_SIN, sinl, -1e4, 1e4, 1.01, 1.01},
    {MR_K_COS, cosl, -1e4, 1e4, 1.01, 1.01},
    {MR_K_TAN, tanl, -100, 100, 1.01, 1.01},
    {MR_K_ARCSIN, asinl, -1, 1, 1.01, 1.01},
    {MR_K_ARCCOS, acosl, -1, 1, 1.01, 1.01},
    {MR_K_ARCTAN, atanl, -100, 100, 1.01, 1.01},
    {MR_K_SINH, sinhl, -80, 80, 1.01, 1.01},
    {MR_K_COSH, coshl, -80, 80, 1.01, 1.01},
    {MR_K_TANH, tanhl, -12, 12, 1.6, 1.01},
    {MR_K_ARCSINH, asinhl, -1e4, 1e4, 1.01, 1.01},
    {MR_K_ARCCOSH, acoshl, 1, 1e4, 1.01, 1.01},
    {MR_K_ARCTANH, atanhl, -1, 1, 1.01, 1.01},
    {MR_K_ERF, erfl, -5, 5, 1.0, 1.01},
    {MR_K_SIGMOID, ref_sigmoid, -110, 110, 2.0, 2.0},
    {MR_K_FLOOR, floorl, -1e3, 1e3, 0.5, 0.5},
    {MR_K_CEIL, ceill, -1e3, 1e3, 0.5, 0.5},
    {MR_K_ROUND, rintl, -1e3, 1e3, 0.5, 0.5},
    {MR_K_TRUNC, truncl, -1e3, 1e3, 0.5, 0.5},
};

static const double special[] = {
    0.0,    -0.0,   1.0,      -1.0,      0.5,
    -0.5,   1.5,    2.5,      -2.5,      1e-40,
    -1e-40, 1e-300, INFINITY, -INFINITY, NAN,
    3e38,   -3e38,  1e308,    8388608.5, 4503599627370497.0,
    1e-8,   -1e-8,  88.7,     -87.3,     709.7,
    -745.0};
#define N_SPECIAL (sizeof special / sizeof special[0])

static double
ulp_of(double exact, bool is32)
{
    int e;

    frexp(exact, &e);
    if (is32)
        return ldexp(1.0, (e < -125 ? -125 : e) - 24);
    return ldexp(1.0, (e < -1021 ? -1021 : e) - 53);
}

/* Errors of results beyond the largest number do not count: the exact value
 * rounds to infinity or the largest. */
static double
error_of(double got, long double exact, bool is32)
{
    double rounded = is32 ? (double)(float)exact : (double)exact;

    if (isnan(exact))
        return isnan(got) ? 0 : INFINITY;
    if (got == rounded)
        return 0;
    if (isinf(rounded) || isinf(got)) {
        double big = is32 ? (double)FLT_MAX : DBL_MAX;

        return fabs(isinf(got) ? rounded : got) >= big * 0.999999 ? 0
                                                                  : INFINITY;
    }
    return (double)(fabsl((long double)got - exact) /
                    (long double)ulp_of((double)exact, is32));
}

static void
draw(double *x, int n, double low, double high, bool is32)
{
    uint64_t state = 7;

    for (int i = 0; i < n; i++) {
        double u = (prog_uniform(&state) + 1) / 2;

        x[i] = low + (high - low) * u;
        if (i % 4 == 1) /* small magnitudes too */
            x[i] *= ldexp(1.0, -(int)(prog_random(&state) % 30));
        if (i < (int)N_SPECIAL)
            x[i] = special[i];
        if (is32)
            x[i] = (double)(float)x[i];
    }
}

static void
call(const mr_tier *t, mr_k k, bool is32, const double *x, const double *y,
     double *out, int n)
{
    static float f[3][N];
    const void *arg[2] = {x, y};

    assert_non_null(t->dtype[is32 ? MR_FLOAT32 : MR_FLOAT64]->map[k]);
    if (!is32) {
        t->dtype[MR_FLOAT64]->map[k](out, arg, (int64_t[]){1, 1}, n);
        return;
    }
    for (int i = 0; i < n; i++) {
        f[0][i] = (float)x[i];
        f[1][i] = y != NULL ? (float)y[i] : 0.0F;
    }
    t->dtype[MR_FLOAT32]->map[k](f[2], (const void *[]){f[0], f[1]},
                                 (int64_t[]){1, 1}, n);
    for (int i = 0; i < n; i++)
        out[i] = (double)f[2][i];
}

static double x[N], y[N], got[N];

static void
check_unary(const mr_tier *t, const unary_case *c, bool is32)
{
    double bound = is32 ? c->ulp32 : c->ulp64, worst = 0, at = 0;
    int n = N - 3; /* a tail */

    draw(x, n, c->low, c->high, is32);
    call(t, c->k, is32, x, NULL, got, n);
    for (int i = 0; i < n; i++) {
        double e = error_of(got[i], c->ref((long double)x[i]), is32);

        if (e > worst) {
            worst = e;
            at = x[i];
        }
    }
    /* baseline has no fused multiply-add */
    if (strcmp(t->name, "baseline") == 0 && bound > 0.6)
        bound += 0.5;
    if (getenv("MRT_VERBOSE") != NULL)
        printf("%-10s %s %-8s %.3f ULP at %.9g\n", mr__k_name(c->k),
               is32 ? "float32" : "float64", t->name, worst, at);
    else if (worst > bound)
        fail_msg("%s %s of %s: %.3f ULP at %.17g, the bound is %.2f",
                 mr__k_name(c->k), is32 ? "float32" : "float64", t->name, worst,
                 at, bound);
}

static void
unary_in_tier(const mr_tier *t)
{
    for (size_t i = 0; i < sizeof unary / sizeof unary[0]; i++) {
        check_unary(t, &unary[i], true);
        check_unary(t, &unary[i], false);
    }
}

static void
unary__error_is_within_its_bound(void **state)
{
    (void)state;
    each_tier(unary_in_tier);
}

static void
erfinv_in_tier(const mr_tier *t)
{
    for (int is32 = 0; is32 < 2; is32++) {
        int n = 2000;

        draw(x, n, -1, 1, is32);
        for (int i = (int)N_SPECIAL; i < n; i += 3)
            x[i] = 1 - ldexp(1.0, -(i % (is32 ? 24 : 52)) - 1);
        call(t, MR_K_ERFINV, is32, x, NULL, got, n);
        for (int i = 0; i < n; i++) {
            double e = error_of(got[i], ref_erfinv((long double)x[i]), is32);

            if (e > (is32 ? 5.0 : 8.0))
                fail_msg("erfinv %s %s: %.2f ULP at %.17g", t->name,
                         is32 ? "float32" : "float64", e, x[i]);
        }
    }
}

static void
erfinv__inverts_erf(void **state)
{
    (void)state;
    each_tier(erfinv_in_tier);
}

/* ---- two operands
 * ---------------------------------------------------------------- */

typedef long double binary_ref(long double, long double);

static long double
ref_add(long double a, long double b)
{
    return a + b;
}
static long double
ref_subtract(long double a, long double b)
{
    return a - b;
}
static long double
ref_multiply(long double a, long double b)
{
    return a * b;
}
static long double
ref_divide(long double a, long double b)
{
    return a / b;
}
static long double
ref_maximum(long double a, long double b)
{
    return isnan(a) || isnan(b) ? (long double)NAN : a > b ? a : b;
}
static long double
ref_minimum(long double a, long double b)
{
    return isnan(a) || isnan(b) ? (long double)NAN : a < b ? a : b;
}
static long double
ref_remainder(long double a, long double b)
{
    long double r = fmodl(a, b);

    if (r != 0 && (r < 0) != (b < 0))
        r += b;
    return r;
}
static long double
ref_logaddexp(long double a, long double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == b)
        return a + logl(2);
    return (a > b ? a : b) + log1pl(expl(-fabsl(a - b)));
}

static long double
ref_hypot(long double a, long double b)
{
    return isinf(a) || isinf(b) ? (long double)INFINITY : hypotl(a, b);
}

static const struct {
    mr_k k;
    binary_ref *ref;
    double range, ulp32, ulp64;
} binary[] = {
    {MR_K_ADD, ref_add, 1e3, 0.51, 0.51},
    {MR_K_SUBTRACT, ref_subtract, 1e3, 0.51, 0.51},
    {MR_K_MULTIPLY, ref_multiply, 1e3, 0.51, 0.51},
    {MR_K_DIVIDE, ref_divide, 1e3, 0.51, 0.51},
    {MR_K_MAXIMUM, ref_maximum, 1e3, 0.5, 0.5},
    {MR_K_MINIMUM, ref_minimum, 1e3, 0.5, 0.5},
    {MR_K_REMAINDER, ref_remainder, 1e3, 1.01, 1.01},
    {MR_K_COPYSIGN, copysignl, 1e3, 0.5, 0.5},
    {MR_K_HYPOT, ref_hypot, 1e3, 1.01, 1.01},
    {MR_K_POWER, powl, 10, 1.01, 1.01},
    {MR_K_ARCTAN2, atan2l, 1e2, 1.01, 1.01},
    {MR_K_LOGADDEXP, ref_logaddexp, 20, 2.5, 2.5},
};

static void
binary_in_tier(const mr_tier *t)
{
    for (size_t j = 0; j < sizeof binary / sizeof binary[0]; j++) {
        for (int is32 = 0; is32 < 2; is32++) {
            double bound = is32 ? binary[j].ulp32 : binary[j].ulp64;
            int n = N - 5;

            draw(x, n, -binary[j].range, binary[j].range, is32);
            draw(y, n, -binary[j].range, binary[j].range, is32);
            for (int i = 0; i < n; i++) {
                double s = x[(i * 7 + 3) % n];

                if (i < 2000)
                    y[i] = special[i / 40 % (int)N_SPECIAL];
                else
                    y[i] = s;
                if (i < 2000)
                    x[i] = special[i % (int)N_SPECIAL];
                if (is32)
                    y[i] = (double)(float)y[i], x[i] = (double)(float)x[i];
            }
            call(t, binary[j].k, is32, x, y, got, n);
            if (strcmp(t->name, "baseline") == 0 && bound > 0.6)
                bound += 0.5;
            for (int i = 0; i < n; i++) {
                long double r =
                    binary[j].ref((long double)x[i], (long double)y[i]);
                double e = error_of(got[i], r, is32);

                /* logaddexp near a zero of its own is a sum that cancels */
                if (binary[j].k == MR_K_LOGADDEXP && fabsl(r) < 1)
                    continue;
                if (e > bound)
                    fail_msg("%s %s of %s: %.3f ULP at %.17g, %.17g: %.17g",
                             mr__k_name(binary[j].k),
                             is32 ? "float32" : "float64", t->name, e, x[i],
                             y[i], got[i]);
            }
        }
    }
}

static void
binary__error_is_within_its_bound(void **state)
{
    (void)state;
    each_tier(binary_in_tier);
}

static double
call_2(const mr_tier *t, mr_k k, double a, double b, bool is32)
{
    double r;

    call(t, k, is32, &a, &b, &r, 1);
    return r;
}

static void
division_in_tier(const mr_tier *t)
{
    for (int is32 = 0; is32 < 2; is32++) {
        double a[] = {7, -7, 7, -7, 5, -5, 5, -5, 0.0, -1e-3};
        double b[] = {3, 3, -3, -3, 0, 0, INFINITY, INFINITY, 4, 5};
        double q[] = {2, -3, -3, 2, INFINITY, -INFINITY, 0, -1, 0, -1};
        double m[] = {1, 2, -2, -1, NAN, NAN, 5, INFINITY, 0, 0};

        for (int i = 0; i < 10; i++) {
            double f = call_2(t, MR_K_FLOOR_DIVIDE, a[i], b[i], is32);
            double r = call_2(t, MR_K_REMAINDER, a[i], b[i], is32);

            assert_true(f == q[i]);
            if (i < 9)
                assert_true(isnan(m[i]) ? isnan(r) : r == m[i]);
        }
    }
}

static void
floor_divide__rounds_down_as_python_does(void **state)
{
    (void)state;
    each_tier(division_in_tier);
}

/* ---- bools
 * -------------------------------------------------------------------------- */

static void
predicates_in_tier(const mr_tier *t)
{
    static const mr_k k[] = {MR_K_ISNAN,    MR_K_ISINF,    MR_K_ISFINITE,
                             MR_K_ISPOSINF, MR_K_ISNEGINF, MR_K_LOGICAL_NOT,
                             MR_K_SIGNBIT};

    for (int j = 0; j < 7; j++) {
        uint8_t out[N_SPECIAL];

        t->dtype[MR_FLOAT64]->map[k[j]](out, (const void *[]){special},
                                        (int64_t[]){1}, N_SPECIAL);
        for (size_t i = 0; i < N_SPECIAL; i++) {
            double v = special[i];
            bool want[] = {isnan(v),       isinf(v) != 0,  isfinite(v) != 0,
                           v == INFINITY,  v == -INFINITY, v == 0,
                           signbit(v) != 0};

            assert_int_equal(out[i], want[j]);
        }
    }
}

static void
predicates__hold_for_special_values(void **state)
{
    (void)state;
    each_tier(predicates_in_tier);
}

static void
comparisons_in_tier(const mr_tier *t)
{
    static const mr_k k[] = {
        MR_K_EQUAL,       MR_K_NOT_EQUAL,  MR_K_LESS,
        MR_K_LESS_EQUAL,  MR_K_GREATER,    MR_K_GREATER_EQUAL,
        MR_K_LOGICAL_AND, MR_K_LOGICAL_OR, MR_K_LOGICAL_XOR};

    for (int j = 0; j < 9; j++) {
        for (size_t i = 0; i < N_SPECIAL; i++) {
            uint8_t out[N_SPECIAL];
            double a = special[i];

            t->dtype[MR_FLOAT64]->map[k[j]](
                out,
                (const void *[]){(double[8]){a, a, a, a, a, a, a, a}, special},
                (int64_t[]){0, 1}, N_SPECIAL);
            for (size_t m = 0; m < N_SPECIAL; m++) {
                double b = special[m];
                bool want[] = {a == b,
                               a != b,
                               a<b, a <= b, a> b,
                               a >= b,
                               a != 0 && b != 0,
                               a != 0 || b != 0,
                               (a != 0) != (b != 0)};

                assert_int_equal(out[m], want[j]);
            }
        }
    }
}

static void
comparisons__follow_ieee(void **state)
{
    (void)state;
    each_tier(comparisons_in_tier);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unary__error_is_within_its_bound),
        cmocka_unit_test(erfinv__inverts_erf),
        cmocka_unit_test(binary__error_is_within_its_bound),
        cmocka_unit_test(floor_divide__rounds_down_as_python_does),
        cmocka_unit_test(predicates__hold_for_special_values),
        cmocka_unit_test(comparisons__follow_ieee),
    };

    return cmocka_run_group_tests_name("kernels/floats", tests, NULL, NULL);
}
