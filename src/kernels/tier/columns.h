/* SPDX-License-Identifier: Apache-2.0
 *
 * columns.h -- softmax down columns of a panel that stays in a cache.
 *
 * The functions of rows.h in the same order, so the same bits: exponentials
 * are added up as they are made, quotients made by the inverses of the sums.
 * Included by ops.h for float32.
 *
 * Two threads of a Zen 3, ms, of maps and folds before, so: 1024 x 4096 float32
 * 3.02, 2.64 (JAX 4.65), 512 x 2048, in cache, 0.65, 0.60 (0.72).
 */
#ifndef MR_KERNELS_TIER_COLUMNS_H
#define MR_KERNELS_TIER_COLUMNS_H

/* One row: x = exp(x - top), added to a sum of each column. */
INLINE void
column_exps(elem *x, elem *sums, const elem *top, int64_t w)
{
    int64_t c = 0;

    for (; c + 2 * N_LANES <= w; c += 2 * N_LANES) {
        V e[2];

#pragma GCC unroll 2
        for (int j = 0; j < 2; j++)
            e[j] = row_e_to(k_subtract(x_load(x + c + j * N_LANES),
                                       x_load(top + c + j * N_LANES)));
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            elem *sum = sums + c + j * N_LANES;

            x_store(x + c + j * N_LANES, e[j]);
            x_store(sum, k_add(x_load(sum), e[j]));
        }
    }
    for (; c < w; c += N_LANES) {
        int64_t n = w - c < N_LANES ? w - c : N_LANES;
        V e = row_e_to(k_subtract(x_load_n(x + c, n), x_load_n(top + c, n)));

        x_store_n(x + c, e, n);
        x_store_n(sums + c, k_add(x_load_n(sums + c, n), e), n);
    }
}

static void
columns_exp(void *x, void *lanes, const void *top, int64_t n_rows, int64_t w)
{
    for (int64_t r = 0; r < n_rows; r++)
        column_exps((elem *)x + r * w, (elem *)lanes + r % MR_LANES * w, top,
                    w);
}

/* Do quotients by these sums go by inverses?  Then those are written. */
static bool
columns_inverse(void *inverse, const void *sum, int64_t w)
{
    const elem *s = sum;
    elem *o = inverse;
    bool quick = ROW_QUICK;

    for (int64_t c = 0; c < w; c += N_LANES) {
        int64_t n = w - c < N_LANES ? w - c : N_LANES;
        V x = v_select(m_below(n), x_load_n(s + c, n), C(1));

        quick &= !m_any(m_not(m_and(v_le(C(1), x), v_lt(x, MOST_QUICK))));
        x_store_n(o + c, k_divide(C(1), x), n);
    }
    return quick;
}

/* Is one of a row, of whole vectors, too small, and not 0? */
INLINE bool
columns_tiny(const elem *x, int64_t w)
{
    V least = C(1);

    for (int64_t c = 0; c + N_LANES <= w; c += N_LANES)
        least = v_lesser(least, x_load(x + c));
    if (!m_any(v_lt(least, LEAST_QUICK)))
        return false;
    for (int64_t c = 0; c + N_LANES <= w; c += N_LANES) {
        V e = x_load(x + c);

        if (m_any(m_and(v_lt(e, LEAST_QUICK), v_lt(C(0), e))))
            return true;
    }
    return false;
}

/* A row's quotients; inverse: or NULL. */
static void
columns_over(void *to, const void *from, const void *sum, const void *inverse,
             int64_t w)
{
    const elem *x = from, *s = sum, *inv = inverse;
    elem *y = to;
    int64_t c = 0;

    if (inv != NULL && !columns_tiny(x, w))
        for (; c + N_LANES <= w; c += N_LANES) {
            V sums = x_load(s + c);
            divisor d = {sums, v_neg(sums), x_load(inv + c), true};

            x_store(y + c, quotient(x_load(x + c), &d, true));
        }
    for (; c < w; c += N_LANES) {
        int64_t n = w - c < N_LANES ? w - c : N_LANES;

        x_store_n(y + c, k_divide(x_load_n(x + c, n), x_load_n(s + c, n)), n);
    }
}

#endif
