/* SPDX-License-Identifier: Apache-2.0
 *
 * integers.c -- integer and bool operations, against plain C and the known
 * edge cases, for every width in every tier.
 */
#include "kernels/program_of.h"

#define N 5003

__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 uwide;

static const mr_dtype ints[] = {MR_UINT8, MR_UINT16, MR_UINT32, MR_UINT64,
                                MR_INT8,  MR_INT16,  MR_INT32,  MR_INT64};

static int
width_of(mr_dtype d)
{
    return (int)prog_size(d) * 8;
}

static bool
is_signed(mr_dtype d)
{
    return d >= MR_INT8;
}

/* v cut to the dtype, as a number. */
static wide
cut(wide v, mr_dtype d)
{
    int shift = 128 - width_of(d);
    uwide u = (uwide)v << shift;

    return is_signed(d) ? (wide)u >> shift : (wide)(u >> shift);
}

static void
put(void *p, mr_dtype d, int i, wide v)
{
    uint64_t bits = (uint64_t)v;

    memcpy((char *)p + (size_t)i * prog_size(d), &bits, prog_size(d));
}

static wide
get(const void *p, mr_dtype d, int i)
{
    uint64_t bits = 0;

    memcpy(&bits, (const char *)p + (size_t)i * prog_size(d), prog_size(d));
    return cut((wide)bits, d);
}

static wide
floor_div(wide a, wide b)
{
    wide q;

    if (b == 0)
        return 0;
    q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static wide
power(wide a, wide b, mr_dtype d)
{
    uwide r = 1, base = (uwide)a;

    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    for (; b > 0; b >>= 1) {
        if (b & 1)
            r = (uwide)cut((wide)(r * base), d);
        base = (uwide)cut((wide)(base * base), d);
    }
    return (wide)r;
}

static wide
reference(mr_k k, wide a, wide b, mr_dtype d)
{
    int w = width_of(d), count = (int)(b & (w == 64 ? 63 : 31));

    if (k == MR_K_ADD)
        return a + b;
    if (k == MR_K_SUBTRACT)
        return a - b;
    if (k == MR_K_MULTIPLY)
        return a * b;
    if (k == MR_K_FLOOR_DIVIDE)
        return floor_div(a, b);
    if (k == MR_K_REMAINDER)
        return b == 0 ? a : a - floor_div(a, b) * b;
    if (k == MR_K_POWER)
        return power(a, b, d);
    if (k == MR_K_MAXIMUM)
        return a > b ? a : b;
    if (k == MR_K_MINIMUM)
        return a < b ? a : b;
    if (k == MR_K_BITWISE_AND)
        return a & b;
    if (k == MR_K_BITWISE_OR)
        return a | b;
    if (k == MR_K_BITWISE_XOR)
        return a ^ b;
    if (k == MR_K_LEFT_SHIFT)
        return a << count;
    if (k == MR_K_RIGHT_SHIFT)
        return a >> count;
    if (k == MR_K_ABS)
        return a < 0 ? -a : a;
    if (k == MR_K_NEGATIVE)
        return -a;
    if (k == MR_K_SIGN)
        return (a > 0) - (a < 0);
    if (k == MR_K_SQUARE)
        return a * a;
    if (k == MR_K_BITWISE_INVERT)
        return ~a;
    fail_msg("no reference for %s", mr__k_name(k));
    return 0;
}

static void
fill(void *a, void *b, mr_dtype d)
{
    static const int64_t edge[] = {
        0,         1,         -1,        2,         -2,        3,
        7,         8,         9,         31,        32,        33,
        63,        64,        100,       -7,        INT8_MIN,  INT8_MAX,
        INT16_MIN, INT16_MAX, INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX};
    int n = (int)(sizeof edge / sizeof edge[0]);
    uint64_t state = 11;

    for (int i = 0; i < N; i++) {
        int64_t x = (int64_t)prog_random(&state);
        int64_t y = (int64_t)prog_random(&state) >> (prog_random(&state) % 64);

        if (i < n * n) {
            x = edge[i % n];
            y = edge[i / n];
        }
        put(a, d, i, x);
        put(b, d, i, y);
    }
}

static void
arithmetic_in_tier(const mr_tier *t)
{
    static const mr_k k[] = {
        MR_K_ADD,          MR_K_SUBTRACT,    MR_K_MULTIPLY,
        MR_K_FLOOR_DIVIDE, MR_K_REMAINDER,   MR_K_POWER,
        MR_K_MAXIMUM,      MR_K_MINIMUM,     MR_K_BITWISE_AND,
        MR_K_BITWISE_OR,   MR_K_BITWISE_XOR, MR_K_LEFT_SHIFT,
        MR_K_RIGHT_SHIFT,  MR_K_ABS,         MR_K_NEGATIVE,
        MR_K_SIGN,         MR_K_SQUARE,      MR_K_BITWISE_INVERT};
    static uint64_t a[N], b[N], out[N];

    for (int j = 0; j < 8; j++) {
        mr_dtype d = ints[j];

        fill(a, b, d);
        for (size_t m = 0; m < sizeof k / sizeof k[0]; m++) {
            t->dtype[d]->map[k[m]](out, (const void *[]){a, b},
                                   (int64_t[]){1, 1}, N);
            for (int i = 0; i < N; i++) {
                wide x = get(a, d, i), y = get(b, d, i);

                if (get(out, d, i) != cut(reference(k[m], x, y, d), d))
                    fail_msg("%s dtype %d %s: %lld, %lld gave %lld",
                             mr__k_name(k[m]), (int)d, t->name, (long long)x,
                             (long long)y, (long long)get(out, d, i));
            }
        }
    }
}

static void
arithmetic__wraps_and_never_traps(void **state)
{
    (void)state;
    each_tier(arithmetic_in_tier);
}

static void
comparisons_in_tier(const mr_tier *t)
{
    static const mr_k k[] = {
        MR_K_EQUAL,       MR_K_NOT_EQUAL,     MR_K_LESS,        MR_K_LESS_EQUAL,
        MR_K_GREATER,     MR_K_GREATER_EQUAL, MR_K_LOGICAL_AND, MR_K_LOGICAL_OR,
        MR_K_LOGICAL_XOR, MR_K_LOGICAL_NOT,   MR_K_ISNAN,       MR_K_ISFINITE};
    static uint64_t a[N], b[N];
    static uint8_t out[N];

    for (int j = 0; j < 8; j++) {
        fill(a, b, ints[j]);
        for (int m = 0; m < 12; m++) {
            t->dtype[ints[j]]->map[k[m]](out, (const void *[]){a, b},
                                         (int64_t[]){1, 1}, N);
            for (int i = 0; i < N; i++) {
                wide x = get(a, ints[j], i), y = get(b, ints[j], i);
                bool want[] = {x == y, x != y, x<y, x <= y, x> y, x >= y,
                               x && y, x || y, !x != !y,          !x,
                               false,  true};

                assert_int_equal(out[i], want[m]);
            }
        }
    }
}

static void
comparisons__know_the_sign(void **state)
{
    (void)state;
    each_tier(comparisons_in_tier);
}

static void
bools_in_tier(const mr_tier *t)
{
    static const struct {
        mr_k k;
        uint8_t want[4]; /* of 00, 01, 10, 11 */
    } c[] = {
        {MR_K_ADD, {0, 1, 1, 1}},           {MR_K_MULTIPLY, {0, 0, 0, 1}},
        {MR_K_SUBTRACT, {0, 1, 1, 0}},      {MR_K_EQUAL, {1, 0, 0, 1}},
        {MR_K_NOT_EQUAL, {0, 1, 1, 0}},     {MR_K_LESS, {0, 1, 0, 0}},
        {MR_K_LESS_EQUAL, {1, 1, 0, 1}},    {MR_K_GREATER, {0, 0, 1, 0}},
        {MR_K_GREATER_EQUAL, {1, 0, 1, 1}}, {MR_K_LOGICAL_AND, {0, 0, 0, 1}},
        {MR_K_LOGICAL_OR, {0, 1, 1, 1}},    {MR_K_LOGICAL_XOR, {0, 1, 1, 0}},
        {MR_K_BITWISE_AND, {0, 0, 0, 1}},   {MR_K_BITWISE_OR, {0, 1, 1, 1}},
        {MR_K_MAXIMUM, {0, 1, 1, 1}},       {MR_K_MINIMUM, {0, 0, 0, 1}},
        {MR_K_POWER, {1, 0, 1, 1}},         {MR_K_FLOOR_DIVIDE, {0, 0, 0, 1}},
        {MR_K_REMAINDER, {0, 0, 1, 0}},     {MR_K_LOGICAL_NOT, {1, 1, 0, 0}},
        {MR_K_BITWISE_INVERT, {1, 1, 0, 0}}};
    const uint8_t a[] = {0, 0, 1, 1}, b[] = {0, 1, 0, 1};

    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        uint8_t out[4];

        t->dtype[MR_BOOL]->map[c[i].k](out, (const void *[]){a, b},
                                       (int64_t[]){1, 1}, 4);
        assert_memory_equal(out, c[i].want, 4);
    }
}

static void
bools__stay_zero_or_one(void **state)
{
    (void)state;
    each_tier(bools_in_tier);
}

static void
select_in_tier(const mr_tier *t)
{
    for (int d = 0; d < MR_N_DTYPES; d++) {
        size_t size = prog_size((mr_dtype)d), n = 133;
        uint8_t cond[133], a[133 * 16], b[133 * 16], out[133 * 16];

        for (size_t i = 0; i < n * size; i++) {
            a[i] = 0; /* no NaN patterns: halves pass through float32 */
            b[i] = 1;
        }
        for (size_t i = 0; i < n; i++)
            cond[i] = i % 3 == 0;
        t->dtype[d]->map[MR_K_SELECT](out, (const void *[]){cond, a, b},
                                      (int64_t[]){1, 1, 1}, (int64_t)n);
        for (size_t i = 0; i < n * size; i++)
            assert_int_equal(out[i], !cond[i / size]);
    }
}

static void
select__takes_from_either_side(void **state)
{
    (void)state;
    each_tier(select_in_tier);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arithmetic__wraps_and_never_traps),
        cmocka_unit_test(comparisons__know_the_sign),
        cmocka_unit_test(bools__stay_zero_or_one),
        cmocka_unit_test(select__takes_from_either_side),
    };

    return cmocka_run_group_tests_name("kernels/integers", tests, NULL, NULL);
}
