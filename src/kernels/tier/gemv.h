/* SPDX-License-Identifier: Apache-2.0
 *
 * gemv.h -- products of up to four rows with a matrix, of the lanes that the
 * including file has chosen.  It says how elements of b are loaded:
 * load_kind(b, i, left, kind).
 */
#ifndef MR_KERNELS_TIER_GEMV_H
#define MR_KERNELS_TIER_GEMV_H

INLINE int64_t
kind_size(const mr_gemm_kind kind)
{
    return kind == MR_GEMM_FLOAT16 || kind == MR_GEMM_BFLOAT16
               ? 2
               : (int64_t)sizeof(lane);
}

/* Where b comes from memory (`far`) the rows of the next group are asked for
 * while one is summed, at the same columns: prefetchers lose eight rows at each
 * page's end (4096^2 float64 with one row: 28 GB/s, 24 without; the same rows
 * further on: 23).  What is in the third-level cache comes faster without
 * (1024^2 float32: 72 GB/s, 65).  A line of each of `count` rows, once. */
INLINE void
rows_fetch(const void *b, int64_t at, int64_t b_row, const int count, int64_t j,
           const mr_gemm_kind kind)
{
    int64_t size = kind_size(kind);

    if (j * size % 64 != 0)
        return;
#pragma GCC unroll 8
    for (int p = 0; p < count; p++)
        __builtin_prefetch((const char *)b + (at + p * b_row) * size, 0, 2);
}

/* Cores of AVX2 alone foresee the rows by themselves, and requests cost
 * (4096^2, two threads of a Zen 3, ms with and without: float32, one row 1.27
 * and 1.10, four 3.41 and 2.19; float64, one 3.42 and 2.91), but for several
 * rows of halves (float16, two: 0.78 and 0.87). */
INLINE bool
rows_fetch_pays(const int m, const mr_gemm_kind kind)
{
    return VEC_BYTES != 32 || (m > 1 && kind_size(kind) == 2);
}

/* One vector of columns, `count` depths: the chain of each element is the
 * same whatever the count. */
INLINE void
wide_piece(lane *restrict y, int64_t y_row, const lane *restrict x,
           int64_t x_row, const void *restrict b, int64_t at, int64_t b_row,
           int64_t left, const int m, const int count, const mr_gemm_kind kind)
{
    R row[8];

#pragma GCC unroll 8
    for (int p = 0; p < count; p++)
        row[p] = load_kind(b, at + p * b_row, left, kind);
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) {
        R s = load(y + i * y_row, left);

#pragma GCC unroll 8
        for (int p = 0; p < count; p++)
            s = multiply_add(v_set(x[i * x_row + p]), row[p], s);
        store(y + i * y_row, s, left);
    }
}

INLINE void
wide_rows(lane *restrict y, int64_t y_row, const lane *restrict x,
          int64_t x_row, const void *restrict b, int64_t b_row, int64_t depth,
          int64_t n, const int m, const bool far, const mr_gemm_kind kind)
{
    /* One row's elements fit the registers eight at a time. */
    const int most = m == 1 ? 8 : 4;
    int64_t whole = n - n % N_LANES, at = 0;

    for (; depth >= most; depth -= most, x += most, at += most * b_row) {
        for (int64_t j = 0; j < whole; j += N_LANES) {
            if (far && rows_fetch_pays(m, kind))
                rows_fetch(b, at + most * b_row + j, b_row, most, j, kind);
            wide_piece(y + j, y_row, x, x_row, b, at + j, b_row, N_LANES, m,
                       most, kind);
        }
        if (whole < n)
            wide_piece(y + whole, y_row, x, x_row, b, at + whole, b_row,
                       n - whole, m, most, kind);
    }
    for (; depth > 0; depth--, x++, at += b_row)
        for (int64_t j = 0; j < n; j += N_LANES)
            wide_piece(y + j, y_row, x, x_row, b, at + j, b_row, n - j, m, 1,
                       kind);
}

INLINE void
wide_any(lane *y, int64_t y_row, const lane *x, int64_t x_row, int m,
         const void *b, int64_t b_row, int64_t depth, int64_t n, const bool far,
         const mr_gemm_kind kind)
{
    switch (m) {
    case 1:
        wide_rows(y, y_row, x, x_row, b, b_row, depth, n, 1, far, kind);
        break;
    case 2:
        wide_rows(y, y_row, x, x_row, b, b_row, depth, n, 2, far, kind);
        break;
    case 3:
        wide_rows(y, y_row, x, x_row, b, b_row, depth, n, 3, far, kind);
        break;
    default:
        wide_rows(y, y_row, x, x_row, b, b_row, depth, n, 4, far, kind);
        break;
    }
}

INLINE void
wide(lane *y, int64_t y_row, const lane *x, int64_t x_row, int m, const void *b,
     int64_t b_row, int64_t depth, int64_t n, bool far, const mr_gemm_kind kind)
{
    if (far)
        wide_any(y, y_row, x, x_row, m, b, b_row, depth, n, true, kind);
    else
        wide_any(y, y_row, x, x_row, m, b, b_row, depth, n, false, kind);
}

INLINE void
dot(lane *lanes, const lane *x, const void *b, int64_t n,
    const mr_gemm_kind kind)
{
    enum { N = MR_LANES / N_LANES };
    int64_t i = 0;
    R sum[N];

#pragma GCC unroll 16
    for (int v = 0; v < N; v++)
        sum[v] = v_load(lanes + v * N_LANES);
    for (; i + MR_LANES <= n; i += MR_LANES)
#pragma GCC unroll 16
        for (int v = 0; v < N; v++)
            sum[v] = multiply_add(v_load(x + i + v * N_LANES),
                                  load_kind(b, i + v * N_LANES, N_LANES, kind),
                                  sum[v]);
    if (i < n)
#pragma GCC unroll 16
        for (int v = 0; v < N; v++) {
            int64_t at = i + v * N_LANES;

            if (at < n)
                sum[v] = multiply_add(load(x + at, n - at),
                                      load_kind(b, at, n - at, kind), sum[v]);
        }
#pragma GCC unroll 16
    for (int v = 0; v < N; v++)
        v_store(lanes + v * N_LANES, sum[v]);
}

#endif
