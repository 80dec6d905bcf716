/* SPDX-License-Identifier: Apache-2.0
 *
 * erf.c -- the float32 functions of kernels/approx32.h over all float32
 * values, in every tier.
 *
 * The oracle is the C library's double precision function, whose own error is
 * under 1e-8 of a float32's last place.
 */
#include <math.h>
#include <stdio.h>

#include "kernels/program_of.h"

#define CHUNK 65536

typedef struct exhaustive {
    mr_k k;
    double (*f)(double);
    double bound; /* ULP: as approx32.h says */
} exhaustive;

static const exhaustive functions[] = {
    {MR_K_EXP, exp, 1.02}, {MR_K_TANH, tanh, 1.30}, {MR_K_ERF, erf, 0.97}};

static double
error_of(float got, double want)
{
    double rounded = (double)(float)want;
    int e;

    if (isnan(want))
        return isnan(got) ? 0 : INFINITY;
    if ((double)got == rounded)
        return fabs(rounded - want) == 0 || isinf(rounded) ? 0 : 0.5;
    if (isinf(rounded) || isinf(got))
        return INFINITY;
    frexp(want, &e);
    return fabs((double)got - want) / ldexp(1.0, (e < -125 ? -125 : e) - 24);
}

static void
tier_check(const mr_tier *t)
{
    static float x[CHUNK], y[CHUNK];

    for (size_t j = 0; j < sizeof functions / sizeof functions[0]; j++) {
        double worst = 0;
        float at = 0;

        for (uint64_t base = 0; base < (uint64_t)1 << 32; base += CHUNK) {
            for (uint32_t i = 0; i < CHUNK; i++) {
                uint32_t bits = (uint32_t)base + i;

                memcpy(&x[i], &bits, 4);
            }
            t->dtype[MR_FLOAT32]->map[functions[j].k](y, (const void *[]){x},
                                                      (int64_t[]){1}, CHUNK);
            for (uint32_t i = 0; i < CHUNK; i++) {
                double e = error_of(y[i], functions[j].f((double)x[i]));

                if (e > worst) {
                    worst = e;
                    at = x[i];
                }
            }
        }
        printf("%s %s: %.4f ULP at %.9g\n", mr__k_name(functions[j].k), t->name,
               worst, (double)at);
        assert_true(worst <= functions[j].bound);
    }
}

static void
approximations__error_over_all_values(void **state)
{
    (void)state;
    each_tier(tier_check);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(approximations__error_over_all_values),
    };

    return cmocka_run_group_tests_name("slow/erf", tests, NULL, NULL);
}
