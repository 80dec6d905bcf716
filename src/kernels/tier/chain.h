/* SPDX-License-Identifier: Apache-2.0
 *
 * chain.h -- several maps in a row, their values in registers throughout.
 *
 * The same functions as the single kernels, so the same bits; what falls away
 * is a store and a load of each value between two of them.  One switch serves
 * a whole group of vectors.  Included by ops.h for dtypes with MR_CHAIN.
 */
#ifndef MR_KERNELS_TIER_CHAIN_H
#define MR_KERNELS_TIER_CHAIN_H

/* Vectors at a time: half of the registers at most. */
#if MR_TIER_ID == MR_TIER_AVX512
#define CHAIN_VECTORS 8
#else
#define CHAIN_VECTORS 4
#endif

#define MR_EACH_VECTOR(x)                                                      \
    _Pragma("GCC unroll 8") for (int j = 0; j < n_vectors; j++) v[j] = x;      \
    break

/* Elements at ... of all operands; left < N_LANES: one vector, not whole. */
INLINE void
chain_group(elem *out, const elem *first, int64_t first_step,
            const mr_chain_op *op, int n_op, int64_t at, int64_t left,
            const int n_vectors)
{
    V v[CHAIN_VECTORS];

    first += at * first_step;
#pragma GCC unroll 8
    for (int j = 0; j < n_vectors; j++)
        v[j] = operand(first + j * N_LANES * first_step, first_step, left);
    for (const mr_chain_op *end = op + n_op; op < end; op++) {
        const elem *y = op->arg;
        int64_t dy = op->step;

        y += at * dy;
        switch (op->k) {
#define MR_OPERAND operand(y + j * N_LANES * dy, dy, left)
#define MR_X(id, name)                                                         \
    case MR_K_##id:                                                            \
        MR_EACH_VECTOR(k_##name(v[j]));
            MR_CHAIN_V(MR_X)
#undef MR_X
#define MR_X(id, name)                                                         \
    case MR_K_##id:                                                            \
        MR_EACH_VECTOR(k_##name(v[j], MR_OPERAND));                            \
    case MR_K_##id + MR_N_K:                                                   \
        MR_EACH_VECTOR(k_##name(MR_OPERAND, v[j]));
            MR_CHAIN_VV(MR_X)
#undef MR_X
#undef MR_OPERAND
        default:
            break;
        }
    }
    out += at;
#pragma GCC unroll 8
    for (int j = 0; j < n_vectors; j++) {
        if (left >= N_LANES)
            x_store(out + j * N_LANES, v[j]);
        else
            x_store_n(out, v[j], left);
    }
}

static void
chain(void *out, const void *first, int64_t first_step, const mr_chain_op *op,
      int n_op, int64_t n)
{
    int64_t at = 0;

    for (; at + CHAIN_VECTORS * N_LANES <= n; at += CHAIN_VECTORS * N_LANES)
        chain_group(out, first, first_step, op, n_op, at, N_LANES,
                    CHAIN_VECTORS);
    for (; at + N_LANES <= n; at += N_LANES)
        chain_group(out, first, first_step, op, n_op, at, N_LANES, 1);
    if (at < n)
        chain_group(out, first, first_step, op, n_op, at, n - at, 1);
}

#undef MR_EACH_VECTOR

#endif
