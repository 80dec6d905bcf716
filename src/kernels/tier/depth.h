/* SPDX-License-Identifier: Apache-2.0
 *
 * depth.h -- sums over taps for one kind of lane: four vectors of channels stay
 * in registers while the taps go by.  Each channel is a chain of fused
 * multiply-adds in the order of the taps, whatever the tier.
 *
 * The including file has included lanes.h and defines LOAD_X(x, i, left): the
 * elements i ... of x as a vector, `left` of them there.
 */
#ifndef MR_KERNELS_TIER_DEPTH_H
#define MR_KERNELS_TIER_DEPTH_H

INLINE R
load(const lane *p, int64_t left)
{
    return left >= N_LANES ? v_load(p) : v_load_n(p, left);
}

INLINE void
store(lane *p, R x, int64_t left)
{
    if (left >= N_LANES)
        v_store(p, x);
    else
        v_store_n(p, x, left);
}

INLINE R
multiply_add(R a, R b, R c)
{
#if MR_TIER_ID == MR_TIER_BASELINE
    return a * b + c;
#else
    return v_fma(a, b, c);
#endif
}

/* `count` vectors from channel c on, the last one perhaps in part. */
#define TAPS_PIECE(count)                                                      \
    do {                                                                       \
        R sum[count];                                                          \
                                                                               \
        for (int v = 0; v < (count); v++)                                      \
            sum[v] =                                                           \
                add ? load(y + c + v * N_LANES, n - c - v * N_LANES) : (R){0}; \
        for (int64_t t = 0; t < n_taps; t++) {                                 \
            if (!x[t])                                                         \
                continue;                                                      \
            for (int v = 0; v < (count); v++) {                                \
                int64_t at = c + v * N_LANES;                                  \
                                                                               \
                sum[v] =                                                       \
                    multiply_add(LOAD_X(x[t], at, n - at),                     \
                                 load(w + t * w_row + at, n - at), sum[v]);    \
            }                                                                  \
        }                                                                      \
        for (int v = 0; v < (count); v++)                                      \
            store(y + c + v * N_LANES, sum[v], n - c - v * N_LANES);           \
    } while (0)

#define TAPS_BODY                                                              \
    lane *y = to;                                                              \
    const lane *w = weights;                                                   \
    int64_t c = 0;                                                             \
                                                                               \
    for (; c + 4 * N_LANES <= n; c += 4 * N_LANES)                             \
        TAPS_PIECE(4);                                                         \
    for (; c < n; c += N_LANES)                                                \
    TAPS_PIECE(1)

#endif
