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

/* Which masks a tile has; each a copy of the loop. */
enum { PLAIN, SCALED, KEEP, ADD, ANY };

/* x where a byte of `keep` is not 0. */
INLINE R
kept(R x, const uint8_t *keep, R low)
{
#if MR_TIER_ID == MR_TIER_AVX512
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)keep);

    return (R)_mm512_mask_mov_ps((__m512)low, _mm_test_epi8_mask(b, b),
                                 (__m512)x);
#else
    return v_select(m_load(keep), x, low);
#endif
}

/* A score scaled, and what is added to it (or NULL), which a dropped pair's low
 * one gets as well; -inf whatever the score where that is added. */
INLINE R
scaled(R x, R scale, const float *add, R *low)
{
    R y;

    if (!add)
        return x * scale;
    y = v_load(add);
    *low = *low + y;
    return v_select(v_eq(y, v_neg(INFINITE)), y, multiply_add(x, scale, y));
}

/* Score k of a column, scaled, after its masks; `low`: a dropped pair's. */
INLINE R
masked(float *s, int64_t at, int64_t k, const mr_attend_masks *m, R scale,
       R low, R limit, int64_t c, const int which)
{
    bool add = which == ADD || (which == ANY && m->add);
    R x = v_load(s + at);

    if (which == PLAIN)
        return x;
    x = scaled(x, scale, add ? m->add + at + c : NULL, &low);
    if (which == ANY && m->limit)
        x = v_select(v_le(v_set((float)k), limit), x, low);
    if (which == KEEP || (which == ANY && m->keep))
        x = kept(x, m->keep + at + c, low);
    v_store(s + at, x);
    return x;
}

/* The largest of a column. */
INLINE R
column_top(float *s, int64_t row, int64_t n_keys, const mr_attend_masks *m,
           float scale, R low, int64_t c, R top, const int which)
{
    R most[4] = {top, top, top, top}, by = v_set(scale);
    R limit = which == ANY && m->limit ? v_load(m->limit + c) : top;
    int64_t k = 0;

    for (; k + 4 <= n_keys; k += 4)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            most[j] = v_larger(
                masked(s, (k + j) * row, k + j, m, by, low, limit, c, which),
                most[j]);
    for (; k < n_keys; k++)
        most[0] = v_larger(masked(s, k * row, k, m, by, low, limit, c, which),
                           most[0]);
    return v_larger(v_larger(most[0], most[1]), v_larger(most[2], most[3]));
}

INLINE R
column_top_of(float *s, int64_t row, int64_t n_keys, const mr_attend_masks *m,
              float scale, R low, int64_t c, R top)
{
    if (m->limit || (m->keep && m->add))
        return column_top(s, row, n_keys, m, scale, low, c, top, ANY);
    if (m->keep)
        return column_top(s, row, n_keys, m, scale, low, c, top, KEEP);
    if (m->add)
        return column_top(s, row, n_keys, m, scale, low, c, top, ADD);
    if (scale != 1.0F)
        return column_top(s, row, n_keys, m, scale, low, c, top, SCALED);
    return column_top(s, row, n_keys, m, scale, low, c, top, PLAIN);
}

static void
step(float *s, int64_t row, int64_t n_keys, int64_t width,
     const mr_attend_masks *masks, float scale, float *top, float *sum,
     float *fade)
{
    for (int64_t c = 0; c < width; c += N_LANES, s += N_LANES) {
        R old = v_load(top + c), most, from, f, total = (R){0};

        most = column_top_of(s, row, n_keys, masks, scale,
                             v_set(MR_ATTEND_MASKED), c, old);
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

/* ---- masks turned ----------------------------------------------------------
 * to[k * to_row + i] = from[i * from_row + k], by squares of 16 bytes each way:
 * interleaving the first half of the lines with the second turns a square in
 * as many rounds as halve it to one. */
#define TURN(name, type, n, rounds, low, high)                                 \
    typedef type name##_line __attribute__((vector_size(16)));                 \
    INLINE void name##_square(type *to, int64_t to_row, const type *from,      \
                              int64_t from_row)                                \
    {                                                                          \
        name##_line x[n], y[n];                                                \
                                                                               \
        UNROLL(n)                                                              \
        for (int i = 0; i < n; i++)                                            \
            memcpy(&x[i], from + i * from_row, sizeof x[i]);                   \
        UNROLL(4) for (int r = 0; r < rounds; r++)                             \
        {                                                                      \
            UNROLL(n) for (int i = 0; i < n / 2; i++)                          \
            {                                                                  \
                y[2 * i] = __builtin_shufflevector(x[i], x[i + n / 2], low);   \
                y[2 * i + 1] =                                                 \
                    __builtin_shufflevector(x[i], x[i + n / 2], high);         \
            }                                                                  \
            UNROLL(n) for (int i = 0; i < n; i++) x[i] = y[i];                 \
        }                                                                      \
        UNROLL(n)                                                              \
        for (int i = 0; i < n; i++)                                            \
            memcpy(to + i * to_row, &x[i], sizeof x[i]);                       \
    }                                                                          \
    static void name(void *to, int64_t to_row, const void *from,               \
                     int64_t from_row, int64_t n_rows, int64_t n_keys)         \
    {                                                                          \
        const type *a = from;                                                  \
        type *b = to;                                                          \
        int64_t i = 0, k;                                                      \
                                                                               \
        for (; i + n <= n_rows; i += n) {                                      \
            for (k = 0; k + n <= n_keys; k += n)                               \
                name##_square(b + k * to_row + i, to_row,                      \
                              a + i * from_row + k, from_row);                 \
            for (; k < n_keys; k++)                                            \
                for (int j = 0; j < n; j++)                                    \
                    b[k * to_row + i + j] = a[(i + j) * from_row + k];         \
        }                                                                      \
        for (; i < n_rows; i++)                                                \
            for (k = 0; k < n_keys; k++)                                       \
                b[k * to_row + i] = a[i * from_row + k];                       \
    }
#define UNROLL(n)  UNROLL_(GCC unroll n)
#define UNROLL_(x) _Pragma(#x)
#define LOW_4      0, 4, 1, 5
#define HIGH_4     2, 6, 3, 7
#define LOW_8      0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_8     4, 12, 5, 13, 6, 14, 7, 15
#define LOW_16     0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_16    8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
TURN(turn_bytes, uint8_t, 16, 4, LOW_16, HIGH_16)
TURN(turn_halves, uint16_t, 8, 3, LOW_8, HIGH_8)
TURN(turn_words, uint32_t, 4, 2, LOW_4, HIGH_4)

static const float column[MR_GEMM_MAX_COLS] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

#if MR_TIER_ID == MR_TIER_AVX512
#include "kernels/tier/attend_pieces.h"
#endif

/* A row of the way back. */
INLINE void
back_row(float *s, float *g, int64_t width, const uint8_t *keep,
         const float *add, const float *limit, R late, R top, R scale, R dot)
{
    for (int64_t c = 0; c < width; c += N_LANES) {
        R low = v_set(MR_ATTEND_MASKED), x = v_load(s + c), y;

        x = scaled(x, late, add ? add + c : NULL, &low);
        if (limit)
            x = v_select(v_le(v_load(column + c), v_set(*limit)), x, low);
        if (keep)
            x = v_select(m_load(keep + c), x, low);
        x = v_exp(x - top) * scale;
        y = x * (v_load(g + c) - dot);
        if (limit)
            y = v_select(v_le(v_load(column + c), v_set(*limit)), y, (R){0});
        if (keep)
            y = v_select(m_load(keep + c), y, (R){0});
        if (add)
            y = v_select(v_eq(v_load(add + c), v_neg(INFINITE)), (R){0}, y);
        v_store(s + c, x);
        v_store(g + c, y);
    }
}

static void
back(float *s, float *g, int64_t row, int64_t n_rows, int64_t width,
     const mr_attend_masks *m, float late, const float *top, const float *scale,
     const float *dot)
{
    bool plain = !m->keep && !m->add && !m->limit;

    for (int64_t i = 0; i < n_rows; i++, s += row, g += row) {
        R from = v_set(top[i]), by = v_set(scale[i]), d = v_set(dot[i]);

        from = v_select(v_eq(from, v_neg(INFINITE)), (R){0}, from);
        if (plain)
            back_row(s, g, width, NULL, NULL, NULL, v_set(late), from, by, d);
        else
            back_row(s, g, width, m->keep ? m->keep + i * row : NULL,
                     m->add ? m->add + i * row : NULL,
                     m->limit ? m->limit + i : NULL, v_set(late), from, by, d);
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

/* x - x is 0 of finite numbers only. */
static bool
all_finite(const float *x, int64_t n)
{
    M all = v_eq((R){0}, (R){0});
    int64_t i = 0;

    for (; i + N_LANES <= n; i += N_LANES) {
        R y = v_load(x + i);

        all = m_and(all, v_eq(y - y, (R){0}));
    }
    for (; i < n; i++)
        if (!(x[i] - x[i] == 0.0F))
            return false;
    return !m_any(m_not(all));
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
     int64_t depth, int64_t ahead, const mr_gemm_kind kind)
{
    int64_t size = kind == MR_GEMM_FLOAT32 ? 4 : 2;
    int64_t fetch = ahead > 0 ? depth * size : 0;

    for (int64_t k = 0; k < n_keys; k += N_LANES) {
        R part[16];

        for (int j = 0; j < N_LANES; j++) {
            int64_t at = k + j < n_keys ? k + j : n_keys - 1;
            const char *from = (const char *)key + at * key_row * size;

            for (int64_t i = 0; i < fetch; i += 64)
                __builtin_prefetch(from + ahead * key_row * size + i, 0, 2);
            dot(part + j * (16 / N_LANES), x, from, depth, kind);
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
                     int64_t key_row, int64_t n_keys, int64_t depth,           \
                     int64_t ahead)                                            \
    {                                                                          \
        dots(s, x, key, key_row, n_keys, depth, ahead, kind);                  \
    }
DOTS(dots_f32, MR_GEMM_FLOAT32)
DOTS(dots_f16, MR_GEMM_FLOAT16)
DOTS(dots_bf16, MR_GEMM_BFLOAT16)

const mr_attend_tier MR_TIER_SYM(mr__attend_tier) = {
    .step = step,
    .turn = {turn_bytes, turn_halves, turn_words},
    .back = back,
    .multiply = multiply,
    .divide = divide,
    .finite = all_finite,
    .dots = {dots_f32, dots_f16, dots_bf16},
#if MR_TIER_ID == MR_TIER_AVX512
    .split = {split_f32, split_f16, split_bf16},
    .back_split = {back_split_f32, back_split_f16, back_split_bf16},
#endif
};
