/* SPDX-License-Identifier: Apache-2.0
 *
 * scan.c -- running sums and products of lines side by side: in every tier the
 * bits of a loop over each.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "kernels/scan.h"

enum { LINES = 16, GAP = 3 };

/* Some products become denormal, some entries are zeros of either sign. */
static float
entry(int64_t line, int64_t i)
{
    uint32_t x = (uint32_t)(line * 7919 + i * 104729) * 2654435761U;
    float v = (float)(x >> 8) / (float)(1 << 23) - 1.0F;

    if (line == 3 && i == 0)
        return -0.0F;
    return line % 4 == 1 && x % 5 == 0 ? -0.0F : v * (line % 3 ? 1 : 1e-20F);
}

static void
right_line(float *to, int64_t line, int64_t n, bool product,
           const mr_scan_lines *l)
{
    double sum = 0;
    float running = 1;

    for (int64_t k = 0; k < n; k++) {
        int64_t i = l->reverse ? n - 1 - k : k;
        float x = entry(line, i), before = product ? running : (float)sum;

        sum = k == 0 ? x : sum + (double)x;
        running *= x;
        to[i] = !l->inclusive ? before : product ? running : (float)sum;
    }
}

static void
scan_case(const mr_scan_tier *t, int64_t n, bool product, bool reverse,
          bool inclusive, bool in_place)
{
    int64_t apart = n + GAP, size = t->width * apart;
    float *x = malloc((size_t)size * sizeof *x);
    float *o = malloc((size_t)size * sizeof *o), *right = malloc((size_t)n * 4);
    mr_scan_lines l = {.from = x,
                       .to = in_place ? x : o,
                       .n = n,
                       .apart = apart,
                       .reverse = reverse,
                       .inclusive = inclusive};

    assert_true(x && o && right);
    for (int64_t i = 0; i < size; i++) {
        x[i] = i % apart < n ? entry(i / apart, i % apart) : 77.0F;
        o[i] = 77.0F;
    }
    (product ? t->product : t->sum)(&l);
    for (int64_t line = 0; line < t->width; line++) {
        right_line(right, line, n, product, &l);
        assert_memory_equal(l.to + line * apart, right, (size_t)n * 4);
        for (int64_t i = n; i < apart; i++)
            assert_true(l.to[line * apart + i] == 77.0F);
    }
    free(x);
    free(o);
    free(right);
}

static void
lines__side_by_side_are_those_of_a_loop(void **unused)
{
    static const int64_t sizes[] = {1, 2, 7, 8, 15, 16, 17, 33, 300};

    (void)unused;
    for (int id = 0; id < MR_N_TIERS; id++) {
        const mr_scan_tier *t = mr__scan_of_tier(id);

        if (t == NULL || t->width == 0)
            continue;
        assert_true(t->width <= LINES);
        for (int s = 0; s < 9; s++)
            for (int flags = 0; flags < 16; flags++)
                scan_case(t, sizes[s], flags & 1, flags & 2, flags & 4,
                          flags & 8);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines__side_by_side_are_those_of_a_loop),
    };

    return cmocka_run_group_tests_name("kernels/scan", tests, NULL, NULL);
}
