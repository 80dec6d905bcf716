/* SPDX-License-Identifier: Apache-2.0
 *
 * attend.c -- the steps of attention on a tile of scores, once per instruction
 * set.
 *
 * Lanes are queries; a lane's chain of operations is the same in every tier.
 */
#include "kernels/attend.h"

#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#include "kernels/tier/half.h"
#include "kernels/tier/part.h"

#define INFINITE C(__builtin_inff())

/* Score k of a column after its masks. */
INLINE R
masked(float *s, int64_t at, int64_t k, const mr_attend_masks *m, R limit,
       int64_t c)
{
    R x = v_load(s + at), low = v_set(MR_ATTEND_MASKED);

    if (m->limit)
        x = v_select(v_le(v_set((float)k), limit), x, low);
    if (m->keep)
        x = v_select(m_load(m->keep + at + c), x, low);
    if (m->add)
        x = x + v_load(m->add + at + c);
    v_store(s + at, x);
    return x;
}

/* The largest of a column. */
INLINE R
column_top(float *s, int64_t row, int64_t n_keys, const mr_attend_masks *m,
           int64_t c, R top, const bool plain)
{
    R most[4] = {top, top, top, top};
    R limit = m->limit ? v_load(m->limit + c) : top;
    int64_t k = 0;

    for (; k + 4 <= n_keys; k += 4)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            most[j] =
                v_larger(plain ? v_load(s + (k + j) * row)
                               : masked(s, (k + j) * row, k + j, m, limit, c),
                         most[j]);
    for (; k < n_keys; k++)
        most[0] = v_larger(plain ? v_load(s + k * row)
                                 : masked(s, k * row, k, m, limit, c),
                           most[0]);
    return v_larger(v_larger(most[0], most[1]), v_larger(most[2], most[3]));
}

static void
step(float *s, int64_t row, int64_t n_keys, int64_t width,
     const mr_attend_masks *masks, float *top, float *sum, float *fade)
{
    bool plain = !masks->keep && !masks->add && !masks->limit;

    for (int64_t c = 0; c < width; c += N_LANES, s += N_LANES) {
        R old = v_load(top + c), most, from, f, total = (R){0};

        most = plain ? column_top(s, row, n_keys, masks, c, old, true)
                     : column_top(s, row, n_keys, masks, c, old, false);
        /* -inf - -inf is no number: such a row has weights of 0 so far. */
        from = v_select(v_eq(most, v_neg(INFINITE)), (R){0}, most);
        for (int64_t k = 0; k < n_keys; k++) {
            R e = v_exp(v_load(s + k * row) - from);

            v_store(s + k * row, e);
            total = total + e;
        }
        f = v_exp(old - from);
        v_store(fade + c, f);
        v_store(top + c, most);
        v_store(sum + c, multiply_add(v_load(sum + c), f, total));
    }
}

/* A row of the way back. */
INLINE void
back_row(float *s, float *g, int64_t width, const uint8_t *keep,
         const float *add, const float *limit, R top, R scale, R dot)
{
    static const float column[MR_GEMM_MAX_COLS] = {
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
        16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
    R low = v_set(MR_ATTEND_MASKED);

    for (int64_t c = 0; c < width; c += N_LANES) {
        R x = v_load(s + c), y;

        if (limit)
            x = v_select(v_le(v_load(column + c), v_set(*limit)), x, low);
        if (keep)
            x = v_select(m_load(keep + c), x, low);
        if (add)
            x = x + v_load(add + c);
        x = v_exp(x - top) * scale;
        y = x * (v_load(g + c) - dot);
        if (limit)
            y = v_select(v_le(v_load(column + c), v_set(*limit)), y, (R){0});
        if (keep)
            y = v_select(m_load(keep + c), y, (R){0});
        v_store(s + c, x);
        v_store(g + c, y);
    }
}

static void
back(float *s, float *g, int64_t row, int64_t n_rows, int64_t width,
     const mr_attend_masks *m, const float *top, const float *scale,
     const float *dot)
{
    bool plain = !m->keep && !m->add && !m->limit;

    for (int64_t i = 0; i < n_rows; i++, s += row, g += row) {
        R from = v_set(top[i]), by = v_set(scale[i]), d = v_set(dot[i]);

        from = v_select(v_eq(from, v_neg(INFINITE)), (R){0}, from);
        if (plain)
            back_row(s, g, width, NULL, NULL, NULL, from, by, d);
        else
            back_row(s, g, width, m->keep ? m->keep + i * row : NULL,
                     m->add ? m->add + i * row : NULL,
                     m->limit ? m->limit + i : NULL, from, by, d);
    }
}

static void
multiply(float *y, int64_t row, int64_t n_rows, int64_t width, const float *x)
{
    for (int64_t c = 0; c < width; c += N_LANES) {
        R by = v_load(x + c);

        for (int64_t i = 0; i < n_rows; i++)
            v_store(y + i * row + c, v_load(y + i * row + c) * by);
    }
}

static void
divide(float *y, int64_t row, int64_t n_rows, int64_t width, const float *x)
{
    for (int64_t c = 0; c < width; c += N_LANES) {
        R by = v_load(x + c);

        for (int64_t i = 0; i < n_rows; i++)
            v_store(y + i * row + c, v_load(y + i * row + c) / by);
    }
}

/* ---- products of one query with keys --------------------------------------
 */

/* Elements i ... of a key, halves widened. */
INLINE R
load_kind(const void *b, int64_t i, int64_t left, const mr_gemm_kind kind)
{
    const uint16_t *halves = (const uint16_t *)b + i;
    HALF h = {0};

    if (kind == MR_GEMM_FLOAT32)
        return load((const float *)b + i, left);
    if (left >= N_LANES)
        memcpy(&h, halves, sizeof h);
    else if (left > 0)
        memcpy(&h, halves, (size_t)left * 2);
    return kind == MR_GEMM_FLOAT16 ? f16_widen(h) : bf16_widen(h);
}

/* 64 lanes of one product, down to 16: these are `part`. */
INLINE void
dot(R *part, const float *x, const void *key, int64_t depth,
    const mr_gemm_kind kind)
{
    enum { N = MR_LANES / N_LANES };
    R sum[N];
    int64_t i = 0;

#pragma GCC unroll 16
    for (int v = 0; v < N; v++)
        sum[v] = (R){0};
    for (; i + MR_LANES <= depth; i += MR_LANES)
#pragma GCC unroll 16
        for (int v = 0; v < N; v++)
            sum[v] = multiply_add(
                v_load(x + i + v * N_LANES),
                load_kind(key, i + v * N_LANES, N_LANES, kind), sum[v]);
    if (i < depth)
#pragma GCC unroll 16
        for (int v = 0; v < N; v++) {
            int64_t at = i + v * N_LANES;

            if (at < depth)
                sum[v] =
                    multiply_add(load(x + at, depth - at),
                                 load_kind(key, at, depth - at, kind), sum[v]);
        }
#pragma GCC unroll 4
    for (int v = 0; v < N / 4; v++)
        part[v] = (sum[v] + sum[v + N / 2]) +
                  (sum[v + N / 4] + sum[v + N / 2 + N / 4]);
}

/* As many keys as a vector has lanes: their 16 lanes make 16 vectors, whose
 * neighbouring lanes are added four times. */
INLINE void
dots(float *s, const float *x, const void *key, int64_t key_row, int64_t n_keys,
     int64_t depth, const mr_gemm_kind kind)
{
    int64_t size = kind == MR_GEMM_FLOAT32 ? 4 : 2;

    for (int64_t k = 0; k < n_keys; k += N_LANES) {
        R part[16];

        for (int j = 0; j < N_LANES; j++) {
            int64_t at = k + j < n_keys ? k + j : n_keys - 1;

            dot(part + j * (16 / N_LANES), x,
                (const char *)key + at * key_row * size, depth, kind);
        }
        for (int n = 8; n > 0; n /= 2)
            for (int j = 0; j < n; j++)
                part[j] = v_even(part[2 * j], part[2 * j + 1]) +
                          v_odd(part[2 * j], part[2 * j + 1]);
        if (k + N_LANES <= n_keys)
            v_store(s + k, part[0]);
        else
            v_store_n(s + k, part[0], n_keys - k);
    }
}

#define DOTS(name, kind)                                                       \
    static void name(float *s, const float *x, const void *key,                \
                     int64_t key_row, int64_t n_keys, int64_t depth)           \
    {                                                                          \
        dots(s, x, key, key_row, n_keys, depth, kind);                         \
    }
DOTS(dots_f32, MR_GEMM_FLOAT32)
DOTS(dots_f16, MR_GEMM_FLOAT16)
DOTS(dots_bf16, MR_GEMM_BFLOAT16)

const mr_attend_tier MR_TIER_SYM(mr__attend_tier) = {
    .step = step,
    .back = back,
    .multiply = multiply,
    .divide = divide,
    .dots = {dots_f32, dots_f16, dots_bf16},
};
