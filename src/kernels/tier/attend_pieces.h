/* SPDX-License-Identifier: Apache-2.0
 *
 * attend_pieces.h -- scores to weights for the matrix unit of x86 processors,
 * of AVX-512.
 *
 * The weights leave in pieces of bfloat16 (gemm_matrix.c), the right side of
 * the product with the values.  Beside that product all that is done here
 * counts, so a weight is 2^(a s - b): one multiply-add from the score, and a
 * polynomial as long as the pieces need.  A weight below 2^-126 is 0, which it
 * is to the unit.
 * The top stays while no score is ENOUGH beyond it, weights being more than 1
 * then: old sums seldom fade.
 *
 * Included by: attend.c.
 */
#ifndef MR_KERNELS_TIER_ATTEND_PIECES_H
#define MR_KERNELS_TIER_ATTEND_PIECES_H

#include "kernels/tier/pieces.h"

#define TILE_FLOATS 256
#define PAIRS       16 /* of keys in a tile */
#define LOG2_E      1.44269504F
#define LN_2        0.693147182F
#define NEAREST     0x1.8p23F   /* plus this, minus this: rounded */
#define LEAST       (-87.3365F) /* e to it is 2^-126 */
#define DROPPED     (-0x1p126F)
#define FAR         0x1p100F
#define ENOUGH      8.0F

/* 2^x, not near overflow, within 2^-18 of it: 2^floor(x) p(x - floor(x)),
 * weighted minimax of degree 4 with p(0) = 1, coefficients rounded one at a
 * time from the lowest. */
INLINE R
power_of_2(R x)
{
    enum { DOWN_QUIETLY = 9 }; /* the rest of rounding to -infinity */
    R r = (R)_mm512_reduce_ps((__m512)x, DOWN_QUIETLY), p;

    p = v_fma(C(0x1.b7f75cp-7F), r, C(0x1.abf854p-5F));
    p = v_fma(p, r, C(0x1.ee2454p-3F));
    p = v_fma(p, r, C(0x1.62d6c6p-1F));
    p = v_fma(p, r, C(1.0F));
    return (R)_mm512_maskz_scalef_ps(
        _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-126.0F), _CMP_NLT_UQ),
        (__m512)p, (__m512)x);
}

/* e^x, not near overflow, within 0.7 ULP: 2^n p(x - n ln 2), n the nearest to x
 * / ln 2 (what ln 2 as a float lacks is 2^-28.5 of it), p minimax of degree 6
 * with p(0) = p'(0) = 1, within 2^-28. */
INLINE R
power_of_e(R x)
{
    R n = v_fma(x, C(LOG2_E), C(NEAREST)) - C(NEAREST);
    R r = v_fma(n, C(-LN_2), x), p;

    p = v_fma(C(0x1.6a3d04p-10F), r, C(0x1.123856p-7F));
    p = v_fma(p, r, C(0x1.5558bep-5F));
    p = v_fma(p, r, C(0x1.555494p-3F));
    p = v_fma(p, r, C(0x1.fffffcp-2F));
    p = v_fma(p, r, C(1.0F));
    p = v_fma(p, r, C(1.0F));
    return (R)_mm512_maskz_scalef_ps(
        _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(LEAST), _CMP_NLT_UQ),
        (__m512)p, (__m512)n);
}

/* What is left to scale of scores that went through masks, and what dropped
 * pairs have.  Unless something was added, that is all of the scale, so that a
 * score and its scale are rounded once, and a power of 2, whose multiples are
 * exact: a row that its mask drops as a whole weighs all alike. */
typedef struct state {
    R by, low;
} state;

INLINE bool
scaled_late(const mr_attend_masks *masks, float scale)
{
    return !masks->add && scale > 0.0F && scale <= 2.0F;
}

INLINE state
state_of(bool late, float scale)
{
    return (state){v_set(late ? scale : 1.0F),
                   v_set(late ? DROPPED : MR_ATTEND_MASKED)};
}

/* What exponents count from, of a row's top. */
INLINE R
from_of(const state *x, R top)
{
    top = v_select(v_eq(top, v_set(MR_ATTEND_MASKED)), x->low * x->by, top);
    return v_select(v_eq(top, v_neg(INFINITE)), (R){0}, top);
}

/* What turns scores into exponents.  Three pieces: of e, what a score is beyond
 * the top, exact where that is near.  Fewer: of 2, which saves a product. */
typedef struct exponent {
    R by, from;
} exponent;

INLINE exponent
exponent_of(R by, R from, const int n_pieces)
{
    if (n_pieces == 3)
        return (exponent){by, from};
    return (exponent){C(LOG2_E) * by, C(LOG2_E) * from};
}

/* Where scores are so far from 0 that multiples are infinite, they are what
 * they are beyond the top. */
INLINE exponent
exponent_far(exponent x, M far)
{
    return (exponent){v_select(far, C(LOG2_E), x.by),
                      v_select(far, (R){0}, x.from)};
}

INLINE R
power_of(R x, const int n_pieces)
{
    return n_pieces == 3 ? power_of_e(x) : power_of_2(x);
}

INLINE R
weight_of(R s, const exponent *x, const int n_pieces)
{
    if (n_pieces == 3)
        return power_of_e(s * x->by - x->from);
    return power_of_2(v_fma(s, x->by, v_neg(x->from)));
}

/* Weights of 32 keys, of which `left` are there, and their sums.  Keys k and k
 * + apart are a pair. */
INLINE void
weights_split(const float *s, int64_t row, int64_t left, const exponent *x,
              R sum[2], float *to, const int n_pieces, const int apart)
{
#pragma GCC unroll 4
    for (int i = 0; i < PAIRS; i++) {
        int64_t k = apart == 1 ? 2 * i : i, l = k + apart;
        R even = {0}, odd = {0};
        __m512i low[3], high[3];

        if (k < left)
            even = weight_of(v_load(s + k * row), x, n_pieces);
        if (l < left)
            odd = weight_of(v_load(s + l * row), x, n_pieces);
        sum[0] = sum[0] + even;
        sum[1] = sum[1] + odd;
        if (to == NULL)
            continue;
        split(n_pieces, (__m512)even, low);
        split(n_pieces, (__m512)odd, high);
#pragma GCC unroll 3
        for (int p = 0; p < n_pieces; p++)
            _mm512_store_si512(to + p * 2 * TILE_FLOATS + i * N_LANES,
                               pairs_of(low[p], high[p]));
    }
}

/* A column's weights; their sum. */
INLINE R
column_split(const float *s, int64_t row, int64_t n_keys, const exponent *x,
             float *to, const int n_pieces, const int apart)
{
    enum { STEP = MR_GEMM_PIECES_STEP };
    R sum[2] = {{0}, {0}};
    int64_t k = 0;

    for (; k + STEP <= n_keys; k += STEP, s += STEP * row) {
        weights_split(s, row, STEP, x, sum, to, n_pieces, apart);
        to += to ? 2 * n_pieces * TILE_FLOATS : 0;
    }
    if (k < n_keys)
        weights_split(s, row, n_keys - k, x, sum, to, n_pieces, apart);
    return sum[0] + sum[1];
}

/* Scores of columns that are far (exponent_far). */
static __attribute__((noinline)) void
column_shift(float *s, int64_t row, int64_t n_keys, R by, R from, M far)
{
    for (int64_t k = 0; k < n_keys; k++) {
        R x = v_load(s + k * row);

        v_store(s + k * row, v_select(far, v_fma(x, by, v_neg(from)), x));
    }
}

/* The largest of a column and of what came before, scaled; or that, if `stay`
 * and it is near. */
INLINE R
split_top(float *s, int64_t row, int64_t n_keys, const mr_attend_masks *masks,
          float scale, const state *x, int64_t c, R old, bool late, bool stay)
{
    R most = column_top_of(s, row, n_keys, masks, late ? 1.0F : scale, x->low,
                           c, v_neg(INFINITE));

    if (late)
        most =
            v_select(v_eq(most, x->low), v_set(MR_ATTEND_MASKED), most * x->by);
    most = v_larger(most, old);
    return stay ? v_select(v_le(most - old, C(ENOUGH)), old, most) : most;
}

INLINE void
step_split(float *s, int64_t row, int64_t n_keys, int64_t width,
           const mr_attend_masks *masks, float scale, float *top, float *sum,
           float *fade, float *to, const int n_pieces, const int apart)
{
    bool late = scaled_late(masks, scale);
    state now = state_of(late, scale);

    for (int64_t c = 0; c < width; c += N_LANES, s += N_LANES) {
        R old = v_load(top + c), most, from, f, total;
        exponent x;
        M far;

        most = split_top(s, row, n_keys, masks, scale, &now, c, old, late,
                         to != NULL);
        from = from_of(&now, most);
        old = v_select(v_eq(old, most), from, old);
        x = exponent_of(now.by, from, n_pieces);
        f = n_pieces == 3 ? old - from : old * C(LOG2_E) - x.from;
        far = v_le(C(FAR), v_abs(from));
        if (n_pieces < 3 && m_any(far)) {
            column_shift(s, row, n_keys, now.by, from, far);
            x = exponent_far(x, far);
            f = v_select(far, (old - from) * C(LOG2_E), f);
        }
        total = to ? column_split(s, row, n_keys, &x, to, n_pieces, apart)
                   : column_split(s, row, n_keys, &x, NULL, n_pieces, apart);
        f = power_of(f, n_pieces);
        v_store(fade + c, f);
        v_store(top + c, most);
        v_store(sum + c, multiply_add(v_load(sum + c), f, total));
        to += to ? TILE_FLOATS : 0;
    }
}

#define SPLIT(name, n_pieces, apart)                                           \
    static void name(float *s, int64_t row, int64_t n_keys, int64_t width,     \
                     const mr_attend_masks *masks, float scale, float *top,    \
                     float *sum, float *fade, float *to)                       \
    {                                                                          \
        step_split(s, row, n_keys, width, masks, scale, top, sum, fade, to,    \
                   n_pieces, apart);                                           \
    }
SPLIT(split_f32, 3, 16)
SPLIT(split_f16, 2, 16)
SPLIT(split_bf16, 2, 1)

/* ---- the way back ----------------------------------------------------------
 */

/* What all rows share. */
typedef struct back_of {
    const float *s, *g;
    const mr_attend_masks *masks;
    const float *top, *scale, *dot;
    float late;
    bool is_late;
    int64_t n_rows, n_keys;
} back_of;

/* What a row's vectors share. */
typedef struct line {
    int64_t row;
    R low, by; /* of the state */
    R from, scale, dot;
    exponent x;
    bool far;
} line;

/* from_of, of one top: a branch that is never taken costs nothing. */
INLINE float
line_from(const back_of *b, float top)
{
    if (top > MR_ATTEND_MASKED || top != top)
        return top;
    if (top < MR_ATTEND_MASKED)
        return 0.0F;
    return b->is_late ? DROPPED * b->late : MR_ATTEND_MASKED;
}

INLINE line
line_of(const back_of *b, int64_t row, const int n_pieces)
{
    state now = state_of(b->is_late, b->late);
    float from = line_from(b, b->top[row]);
    line l = {.row = row,
              .low = now.low,
              .by = now.by,
              .from = v_set(from),
              .scale = v_set(b->scale[row]),
              .dot = v_set(b->dot[row]),
              .x = exponent_of(now.by, v_set(from), n_pieces),
              .far = n_pieces < 3 && __builtin_fabsf(from) >= FAR};

    if (l.far)
        l.x = (exponent){C(LOG2_E), (R){0}};
    return l;
}

/* Scores of half a row after masks; `there`: those that count. */
INLINE R
back_masked(const back_of *b, const line *l, int64_t at, int64_t c, M *there)
{
    const mr_attend_masks *m = b->masks;
    R x = v_load(b->s + at), low = l->low;

    if (m->limit)
        *there =
            m_and(*there, v_le(v_load(column + c), v_set(m->limit[l->row])));
    if (m->keep)
        *there = m_and(*there, m_load(m->keep + at));
    if (m->add) {
        R y = v_load(m->add + at);

        *there = m_and(*there, v_ne(y, v_neg(INFINITE)));
        x = multiply_add(x, v_set(b->late), y);
        low = low + y;
    } else if (!b->is_late) {
        x = x * v_set(b->late);
    }
    return v_select(*there, x, low);
}

/* The weights of half a row, bit for bit those that were summed, and what comes
 * back to its scores. */
INLINE void
back_vectors(const back_of *b, const line *l, int64_t c, const int n_pieces,
             R *weight, R *slope)
{
    int64_t at = l->row * MR_GEMM_PIECES_LANES + c;
    M there = m_below(b->n_keys - c);
    R s = back_masked(b, l, at, c, &there);

    if (l->far)
        s = v_fma(s, l->by, v_neg(l->from));
    *weight = weight_of(s, &l->x, n_pieces) * l->scale;
    *slope = v_select(there, *weight * (v_load(b->g + at) - l->dot), (R){0});
}

/* Pairs of neighbours: of x, then of y. */
INLINE __m512i
neighbours_of(__m512i x, __m512i y)
{
    static const uint16_t odd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                     23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                     45, 47, 49, 51, 53, 55, 57, 59, 61, 63};

    return _mm512_permutex2var_epi16(x, _mm512_loadu_si512(odd), y);
}

/* A row of a left side, its 32 depths in x and y. */
INLINE void
left_store(float *to, R x, R y, const int n_pieces, const int apart)
{
    __m512i low[3], high[3];

    split(n_pieces, (__m512)x, low);
    split(n_pieces, (__m512)y, high);
#pragma GCC unroll 3
    for (int p = 0; p < n_pieces; p++)
        _mm512_store_si512(to + p * 2 * TILE_FLOATS,
                           apart == 1 ? neighbours_of(low[p], high[p])
                                      : pairs_of(low[p], high[p]));
}

/* A pair of depths of a right side, 16 lanes. */
INLINE void
right_store(float *to, R even, R odd, const int n_pieces)
{
    __m512i low[3], high[3];

    split(n_pieces, (__m512)even, low);
    split(n_pieces, (__m512)odd, high);
#pragma GCC unroll 3
    for (int p = 0; p < n_pieces; p++)
        _mm512_store_si512(to + p * 2 * TILE_FLOATS, pairs_of(low[p], high[p]));
}

/* Rows `row` of a pair: [0] the first, [1] the second, each in halves. */
INLINE void
back_pair(const back_of *b, const int64_t row[2], int64_t right,
          const mr_attend_pieces *to, const int n_pieces, const int apart)
{
    R weight[2][2] = {{{0}}}, slope[2][2] = {{{0}}};

#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        int64_t r = row[i] % MR_GEMM_PIECES_LANES;
        float *left = to->left +
                      row[i] / MR_GEMM_PIECES_LANES * to->left_apart +
                      r / PAIRS * TILE_FLOATS + r % PAIRS * N_LANES;
        line l;

        if (row[i] >= b->n_rows)
            continue;
        l = line_of(b, row[i], n_pieces);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++)
            back_vectors(b, &l, h * N_LANES, n_pieces, &weight[i][h],
                         &slope[i][h]);
        left_store(left, slope[i][0], slope[i][1], n_pieces, apart);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        right_store(to->weights + right + h * TILE_FLOATS, weight[0][h],
                    weight[1][h], n_pieces);
        right_store(to->slopes + right + h * TILE_FLOATS, slope[0][h],
                    slope[1][h], n_pieces);
    }
}

INLINE void
back_rows(const back_of *b, const mr_attend_pieces *to, const int n_pieces,
          const int apart)
{
    enum { STEP = MR_GEMM_PIECES_STEP };

    for (int64_t step = 0; step * STEP < b->n_rows; step++)
        for (int64_t i = 0; i < PAIRS; i++) {
            int64_t r = step * STEP + (apart == 1 ? 2 * i : i);

            back_pair(b, (int64_t[]){r, r + apart},
                      step * 2 * n_pieces * TILE_FLOATS + i * N_LANES, to,
                      n_pieces, apart);
        }
}

#define BACK_SPLIT(name, n_pieces, apart)                                      \
    static void name(const float *s, const float *g, int64_t n_rows,           \
                     int64_t n_keys, const mr_attend_masks *masks, float late, \
                     const float *top, const float *scale, const float *dot,   \
                     const mr_attend_pieces *to)                               \
    {                                                                          \
        back_of b = {s,      g,     masks, top,                                \
                     scale,  dot,   late,  scaled_late(masks, late),           \
                     n_rows, n_keys};                                          \
                                                                               \
        back_rows(&b, to, n_pieces, apart);                                    \
    }
BACK_SPLIT(back_split_f32, 3, 16)
BACK_SPLIT(back_split_f16, 2, 16)
BACK_SPLIT(back_split_bf16, 2, 1)

#endif
