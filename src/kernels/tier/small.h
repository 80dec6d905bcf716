/* SPDX-License-Identifier: Apache-2.0
 *
 * small.h -- one product of very small matrices, all sums in registers, of the
 * lanes that the including file has chosen.
 *
 * Each element is one chain of multiply-adds in the order of the depth, so
 * neither the block of rows nor the width of a vector shows.
 */
#ifndef MR_KERNELS_TIER_SMALL_H
#define MR_KERNELS_TIER_SMALL_H

/* n_rows rows times n_vectors vectors of columns, `left` of them in all. */
INLINE void
small_block(const lane *a, int64_t a_row, int64_t a_depth, const lane *b,
            int64_t b_row, lane *c, int64_t c_row, int64_t depth, int64_t left,
            const int n_rows, const int n_vectors)
{
    R sum[8][2];

#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++)
        sum[i][0] = sum[i][1] = (R){0};
    for (int64_t p = 0; p < depth; p++, a += a_depth, b += b_row) {
        R y[2];

        y[0] = n_vectors > 1 ? v_load(b) : load(b, left);
        y[1] = n_vectors > 1 ? load(b + N_LANES, left - N_LANES) : y[0];
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) {
            R x = v_set(a[i * a_row]);

#pragma GCC unroll 2
            for (int v = 0; v < n_vectors; v++)
                sum[i][v] = multiply_add(x, y[v], sum[i][v]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++, c += c_row) {
        if (n_vectors > 1) {
            v_store(c, sum[i][0]);
            store(c + N_LANES, sum[i][1], left - N_LANES);
        } else {
            store(c, sum[i][0], left);
        }
    }
}

/* Rows in blocks of 8 (4 where there are two vectors), then of fewer. */
INLINE void
small_rows(const lane *a, int64_t a_row, int64_t a_depth, const lane *b,
           int64_t b_row, lane *c, int64_t c_row, int64_t m, int64_t depth,
           int64_t left, const int n_vectors)
{
    int64_t i = 0;

    for (; n_vectors == 1 && i + 8 <= m; i += 8)
        small_block(a + i * a_row, a_row, a_depth, b, b_row, c + i * c_row,
                    c_row, depth, left, 8, n_vectors);
    for (; i + 4 <= m; i += 4)
        small_block(a + i * a_row, a_row, a_depth, b, b_row, c + i * c_row,
                    c_row, depth, left, 4, n_vectors);
    for (; i < m; i++)
        small_block(a + i * a_row, a_row, a_depth, b, b_row, c + i * c_row,
                    c_row, depth, left, 1, n_vectors);
}

INLINE void
small(const lane *a, int64_t a_row, int64_t a_depth, const lane *b,
      int64_t b_row, lane *c, int64_t c_row, int64_t m, int64_t depth,
      int64_t n)
{
    for (int64_t j = 0; j < n; j += 2 * N_LANES) {
        int64_t left = n - j;

        if (left >= 2 * N_LANES)
            small_rows(a, a_row, a_depth, b + j, b_row, c + j, c_row, m, depth,
                       2 * N_LANES, 2);
        else if (left > N_LANES)
            small_rows(a, a_row, a_depth, b + j, b_row, c + j, c_row, m, depth,
                       left, 2);
        else if (left == N_LANES)
            small_rows(a, a_row, a_depth, b + j, b_row, c + j, c_row, m, depth,
                       N_LANES, 1);
        else
            small_rows(a, a_row, a_depth, b + j, b_row, c + j, c_row, m, depth,
                       left, 1);
    }
}

#endif
