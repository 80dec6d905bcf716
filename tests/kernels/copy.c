/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.c -- strided copies against a plain loop, all sizes and many layouts.
 */
#include "kernels/copy.h"
#include "kernels/program_of.h"

static void
check(size_t size, int ndim, uint64_t *seed)
{
    static char in[2000000], out[2000000], want[2000000];
    int64_t dim[5] = {0}, is[5] = {0}, os[5] = {0}, total = 1;
    int order[2][5];
    char *from = in, *to;

    for (int i = 0; i < ndim; i++) {
        dim[i] = 1 + (int64_t)(prog_random(seed) % (ndim > 3 ? 7 : 40));
        total *= dim[i];
        order[0][i] = order[1][i] = i;
    }
    for (int w = 0; w < 2; w++) {
        int64_t s = (int64_t)size, *stride = w ? os : is;

        for (int i = ndim - 1; i > 0; i--) {
            int j = (int)(prog_random(seed) % (uint64_t)(i + 1));
            int t = order[w][i];

            order[w][i] = order[w][j];
            order[w][j] = t;
        }
        for (int i = 0; i < ndim; i++) {
            int d = order[w][i];

            stride[d] = w == 0 && prog_random(seed) % 6 == 0 ? 0 : s;
            if (stride[d] != 0)
                s *= dim[d];
        }
    }
    if (ndim > 0 && is[0] != 0 && prog_random(seed) % 3 == 0) {
        from += is[0] * (dim[0] - 1);
        is[0] = -is[0];
    }
    for (size_t i = 0; i < (size_t)total * size + 100; i++) {
        in[i] = (char)prog_random(seed);
        out[i] = want[i] = 0x55;
    }
    mr__copy_strided(size, ndim, dim, out, os, from, is);
    for (int64_t i = 0; i < total; i++) {
        int64_t rest = i, a = 0, b = 0;

        for (int d = ndim - 1; d >= 0; d--) {
            a += rest % dim[d] * is[d];
            b += rest % dim[d] * os[d];
            rest /= dim[d];
        }
        to = want + b;
        memcpy(to, from + a, size);
    }
    assert_memory_equal(out, want, (size_t)total * size + 100);
}

static void
copy__any_layout(void **state)
{
    uint64_t seed = 1;

    (void)state;
    for (size_t size = 1; size <= 16; size *= 2) {
        for (int ndim = 0; ndim <= 5; ndim++) {
            for (int i = 0; i < 100; i++)
                check(size, ndim, &seed);
        }
    }
}

static void
copy__of_nothing_does_nothing(void **state)
{
    int64_t dim[2] = {0, 5}, s[2] = {20, 4};

    (void)state;
    mr__copy_strided(4, 2, dim, NULL, s, NULL, s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copy__any_layout),
        cmocka_unit_test(copy__of_nothing_does_nothing),
    };

    return cmocka_run_group_tests_name("kernels/copy", tests, NULL, NULL);
}
