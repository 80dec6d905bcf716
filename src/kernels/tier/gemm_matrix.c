/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_matrix.c -- products in bfloat16 pieces on the matrix unit of x86
 * processors (AMX).
 *
 * The unit multiplies two tiles of 16 x 32 bfloat16 numbers and adds the 16 x
 * 16 results to float32 sums, sixteen times as fast as vectors multiply floats.
 * A number is the sum of pieces, each rounded to bfloat16's 8 bits: bfloat16 is
 * one, float16 two, float32 three, exactly.  Of the products of pieces those
 * are made that float32 could notice: what is left out is below 2^-25 of each
 * product.  The unit adds up 16 products before it adds them to a sum, so sums
 * are rounded less often than in a chain of multiply-adds.
 *
 * It takes numbers and results below 2^-126 for 0, and an infinite piece would
 * meet others of both signs: packing says what the range of numbers is, and the
 * caller takes floats where that is too wide.
 *
 * A panel has 32 lanes (rows of a, columns of b), two tiles of 1 KB for each
 * piece of 32 depths.  A tile of a has a row for each lane, one of b for each
 * pair of depths; a pair is in 32 bits.
 */
#include "kernels/gemm.h"

#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#if MR_TIER_ID == MR_TIER_AVX512

#include "kernels/tier/matrix.h"
#include "kernels/tier/pieces.h"
#include "kernels/tier/turn.h"

#define PAIRS       16
#define DEPTHS      (2 * PAIRS)
#define AHEAD       512 /* bytes of a lane that are asked for before */
#define LINE_FLOATS 16

/* ---- the unit -------------------------------------------------------------
 */

/* Eight tiles of 16 rows of 64 bytes. */
UNIT static void
enter(void)
{
    static const struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1,
                .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

    _tile_loadconfig(&config);
}

/* Sums 0 to 3 are those of a's tiles in 4 and 5 with b's in 6 and 7. */
#define LOAD(t, from) _tile_loadd(t, from, 64)
/* What passes by and is not to push out of the first level what stays there. */
#define PASS(t, from) _tile_stream_loadd(t, from, 64)
#define LOAD_A(load, piece, two_rows, two_cols)                                \
    do {                                                                       \
        load(4, a + (piece)*2 * TILE_FLOATS);                                  \
        if (two_rows)                                                          \
            load(5, a + ((piece)*2 + 1) * TILE_FLOATS);                        \
    } while (0)
#define LOAD_B(load, piece, two_rows, two_cols)                                \
    do {                                                                       \
        load(6, b + (piece)*2 * TILE_FLOATS);                                  \
        if (two_cols)                                                          \
            load(7, b + ((piece)*2 + 1) * TILE_FLOATS);                        \
    } while (0)

/* What is done with sum i, of rows `r` and columns `v`, before and after a
 * product is added to it. */
#define NOTHING(i, r, v) (void)0
#define SUM_LOAD(i, r, v)                                                      \
    _tile_loadd(i, s->from + (r)*LANES * s->from_row + (v)*LANES,              \
                s->from_row * 4)
#define SUM_STORE(i, r, v)                                                     \
    _tile_stored(i, s->to + (r)*LANES * s->to_row + (v)*LANES, s->to_row * 4)

/* n lines of what comes next, into the first level. */
INLINE const float *
near_ask(const float *soon, const int n)
{
#pragma GCC unroll 8
    for (int l = 0; l < n; l++)
        __builtin_prefetch(soon + l * LINE_FLOATS, 0, 3);
    return soon + n * LINE_FLOATS;
}

/* n lines that are needed later, into the second level. */
INLINE const float *
far_ask(const float *far, int64_t step, const int n)
{
#pragma GCC unroll 2
    for (int l = 0; l < n; l++, far += step)
        __builtin_prefetch(far, 0, 2);
    return far;
}

/* A product, and lines asked for meanwhile: loads of tiles leave room for that,
 * and wait for long where a line is not there. */
#define PRODUCT(i, x, y, r, v, before, after, near, distant)                   \
    do {                                                                       \
        before(i, r, v);                                                       \
        _tile_dpbf16ps(i, x, y);                                               \
        soon = near_ask(soon, near);                                           \
        far = far_ask(far, s->far_step, distant);                              \
        after(i, r, v);                                                        \
    } while (0)
#define PRODUCTS(before, after, two_rows, two_cols, near, distant)             \
    do {                                                                       \
        PRODUCT(0, 4, 6, 0, 0, before, after, near, distant);                  \
        if (two_cols)                                                          \
            PRODUCT(1, 4, 7, 0, 1, before, after, near, distant);              \
        if (two_rows)                                                          \
            PRODUCT(2, 5, 6, 1, 0, before, after, near, distant);              \
        if ((two_rows) && (two_cols))                                          \
            PRODUCT(3, 5, 7, 1, 1, before, after, near, distant);              \
    } while (0)

/* 32 depths of each number of pieces: one piece changes at a time. */
#define STEP_1(before, after, two_rows, two_cols)                              \
    LOAD_A(LOAD, 0, two_rows, two_cols);                                       \
    LOAD_B(PASS, 0, two_rows, two_cols);                                       \
    PRODUCTS(before, after, two_rows, two_cols, 0, 0)
#define STEP_FAR(before, after, two_rows, two_cols)                            \
    LOAD_A(LOAD, 0, two_rows, two_cols);                                       \
    LOAD_B(LOAD, 0, two_rows, two_cols);                                       \
    PRODUCTS(before, after, two_rows, two_cols, 8, 1)
/* Four products of two pieces; `one` and `other` load a side. */
#define STEP_OF_4(one, other, before, after, two_rows, two_cols)               \
    one(LOAD, 1, two_rows, two_cols);                                          \
    other(LOAD, 1, two_rows, two_cols);                                        \
    PRODUCTS(before, NOTHING, two_rows, two_cols, 4, 1);                       \
    other(LOAD, 0, two_rows, two_cols);                                        \
    PRODUCTS(NOTHING, NOTHING, two_rows, two_cols, 4, 0);                      \
    one(LOAD, 0, two_rows, two_cols);                                          \
    PRODUCTS(NOTHING, NOTHING, two_rows, two_cols, 4, 1);                      \
    other(LOAD, 1, two_rows, two_cols);                                        \
    PRODUCTS(NOTHING, after, two_rows, two_cols, 4, 0)
#define STEP_2(...)        STEP_OF_4(LOAD_A, LOAD_B, __VA_ARGS__)
#define STEP_2_TURNED(...) STEP_OF_4(LOAD_B, LOAD_A, __VA_ARGS__)
/* Three: the products of lesser pieces first, of all depths, then those of the
 * largest, so that large sums are rounded once for 32 depths. */
#define STEP_OF_5(one, other, before, after, two_rows, two_cols)               \
    one(LOAD, 2, two_rows, two_cols);                                          \
    other(LOAD, 0, two_rows, two_cols);                                        \
    PRODUCTS(before, NOTHING, two_rows, two_cols, 0, 1);                       \
    one(LOAD, 1, two_rows, two_cols);                                          \
    PRODUCTS(NOTHING, NOTHING, two_rows, two_cols, 0, 1);                      \
    other(LOAD, 1, two_rows, two_cols);                                        \
    PRODUCTS(NOTHING, NOTHING, two_rows, two_cols, 0, 1);                      \
    one(LOAD, 0, two_rows, two_cols);                                          \
    PRODUCTS(NOTHING, NOTHING, two_rows, two_cols, 0, 1);                      \
    other(LOAD, 2, two_rows, two_cols);                                        \
    PRODUCTS(NOTHING, after, two_rows, two_cols, 0, 1)
#define STEP_LESSER(...)        STEP_OF_5(LOAD_A, LOAD_B, __VA_ARGS__)
#define STEP_LESSER_TURNED(...) STEP_OF_5(LOAD_B, LOAD_A, __VA_ARGS__)
#define STEP_LARGEST(before, after, two_rows, two_cols)                        \
    LOAD_A(LOAD, 0, two_rows, two_cols);                                       \
    LOAD_B(PASS, 0, two_rows, two_cols);                                       \
    PRODUCTS(before, after, two_rows, two_cols, 0, 0)
/* One side in one piece, the other in two. */
#define STEP_OF_2(one, other, before, after, two_rows, two_cols)               \
    one(LOAD, 0, two_rows, two_cols);                                          \
    other(LOAD, 1, two_rows, two_cols);                                        \
    PRODUCTS(before, NOTHING, two_rows, two_cols, 4, 0);                       \
    other(LOAD, 0, two_rows, two_cols);                                        \
    PRODUCTS(NOTHING, after, two_rows, two_cols, 4, 0)
#define STEP_1_BY_2(...) STEP_OF_2(LOAD_A, LOAD_B, __VA_ARGS__)
#define STEP_2_BY_1(...) STEP_OF_2(LOAD_B, LOAD_A, __VA_ARGS__)

#define STEP(n, before, after, a_pieces, b_pieces, two_rows, two_cols)         \
    do {                                                                       \
        STEP_##n(before, after, two_rows, two_cols);                           \
        a += 2 * (a_pieces)*TILE_FLOATS;                                       \
        b += 2 * (b_pieces)*TILE_FLOATS;                                       \
    } while (0)

#define SUMS(what, two_rows, two_cols)                                         \
    do {                                                                       \
        what(0, 0, 0);                                                         \
        if (two_cols)                                                          \
            what(1, 0, 1);                                                     \
        if (two_rows)                                                          \
            what(2, 1, 0);                                                     \
        if ((two_rows) && (two_cols))                                          \
            what(3, 1, 1);                                                     \
    } while (0)

/* The first step brings the sums, or begins with none, the last one stores
 * them: tile by tile, so that the products go on meanwhile. */
#define SPAN(name, n, a_pieces, b_pieces, two_rows, two_cols)                  \
    UNIT static void name(const mr_gemm_span *s)                               \
    {                                                                          \
        const float *a = s->a, *b = s->b, *far = s->far;                       \
        int64_t left = s->depth / (PAIRS * (a_pieces));                        \
        const float *soon = left > 1 ? s->soon : s->next;                      \
                                                                               \
        MEMORY_SEEN;                                                           \
        if (s->from != NULL) {                                                 \
            STEP(n, SUM_LOAD, NOTHING, a_pieces, b_pieces, two_rows,           \
                 two_cols);                                                    \
        } else {                                                               \
            SUMS_ZERO;                                                         \
            STEP(n, NOTHING, NOTHING, a_pieces, b_pieces, two_rows, two_cols); \
        }                                                                      \
        for (left -= 2; left > 0; left--)                                      \
            STEP(n, NOTHING, NOTHING, a_pieces, b_pieces, two_rows, two_cols); \
        soon = s->next;                                                        \
        if (left == 0) {                                                       \
            STEP(n, NOTHING, SUM_STORE, a_pieces, b_pieces, two_rows,          \
                 two_cols);                                                    \
        } else {                                                               \
            SUMS(SUM_STORE, two_rows, two_cols);                               \
        }                                                                      \
        MEMORY_SEEN;                                                           \
    }
/* Three pieces, lesser and largest ones, while the sums stay where they are. */
#define SPAN_BOTH(name, lesser, two_rows, two_cols)                            \
    UNIT static void name(const mr_gemm_span *s)                               \
    {                                                                          \
        const float *a = s->a, *b = s->b, *far = s->a, *soon = s->a;           \
                                                                               \
        MEMORY_SEEN;                                                           \
        if (s->from != NULL) {                                                 \
            SUMS(SUM_LOAD, two_rows, two_cols);                                \
        } else {                                                               \
            SUMS_ZERO;                                                         \
        }                                                                      \
        for (int64_t left = s->depth; left > 0; left -= 3 * PAIRS)             \
            STEP(lesser, NOTHING, NOTHING, 3, 3, two_rows, two_cols);          \
        a = s->a;                                                              \
        b = s->b;                                                              \
        for (int64_t left = s->depth; left > 0; left -= 3 * PAIRS)             \
            STEP(LARGEST, NOTHING, NOTHING, 3, 3, two_rows, two_cols);         \
        SUMS(SUM_STORE, two_rows, two_cols);                                   \
        MEMORY_SEEN;                                                           \
    }
SHAPES(SPAN, span_1, 1, 1, 1)
SHAPES(SPAN, span_far, FAR, 1, 1)
SHAPES(SPAN, span_2, 2, 2, 2)
SHAPES(SPAN, span_2_turned, 2_TURNED, 2, 2)
SHAPES(SPAN, span_lesser, LESSER, 3, 3)
SHAPES(SPAN, span_lesser_turned, LESSER_TURNED, 3, 3)
SHAPES(SPAN, span_largest, LARGEST, 3, 3)
SHAPES(SPAN, span_1_by_2, 1_BY_2, 1, 2)
SHAPES(SPAN, span_2_by_1, 2_BY_1, 2, 1)
SHAPES(SPAN_BOTH, span_3, LESSER)
SHAPES(SPAN_BOTH, span_3_turned, LESSER_TURNED)

/* ---- rounding --------------------------------------------------------------
 */

__attribute__((target("avx512bf16"))) static void
round_bf16(const float *sums, uint16_t *to, int64_t row)
{
    for (int i = 0; i < 2 * LANES; i++, sums += 2 * LANES, to += row)
        _mm512_storeu_si512(
            to, (__m512i)_mm512_cvtne2ps_pbh(_mm512_load_ps(sums + LANES),
                                             _mm512_load_ps(sums)));
}

static void
round_f16(const float *sums, uint16_t *to, int64_t row)
{
    for (int i = 0; i < 2 * LANES; i++, sums += 2 * LANES, to += row)
        for (int l = 0; l < 2 * LANES; l += LANES)
            _mm256_storeu_si256(
                (__m256i *)(void *)(to + l),
                _mm512_cvtps_ph(_mm512_load_ps(sums + l),
                                _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* ---- packing --------------------------------------------------------------
 */

/* Sixteen pairs of depths of a lane that are adjacent, as pieces: depth q with
 * q + 16, bfloat16 with its neighbour. */
INLINE void
lane_pairs(const void *p, int64_t n, const mr_gemm_kind kind,
           const int n_pieces, __m512i piece[3], range *r)
{
    __mmask32 there = first_lanes(n);
    __m512i low[3], high[3];

    if (kind == MR_GEMM_BFLOAT16) {
        piece[0] = _mm512_maskz_loadu_epi16(there, p);
        range_take_halves(r, piece[0]);
        return;
    }
    wide_split(p, there, low, high, r, kind, n_pieces);
#pragma GCC unroll 3
    for (int k = 0; k < n_pieces; k++)
        piece[k] = pairs_of(low[k], high[k]);
}

/* The same of one pair of depths of sixteen adjacent lanes; NULL: zeros. */
INLINE void
pair_lanes(const void *p, const void *q, __mmask16 there,
           const mr_gemm_kind kind, const int n_pieces, __m512i piece[3],
           range *r)
{
    __m512i low[3], high[3];

    if (kind == MR_GEMM_BFLOAT16) {
        __m512i l =
            _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(p ? there : 0, p));
        __m512i h = _mm512_slli_epi32(
            _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(q ? there : 0, q)),
            16);

        piece[0] = _mm512_or_si512(l, h);
        range_take_halves(r, piece[0]);
        return;
    }
    floats_split(p, p ? there : 0, low, r, kind, n_pieces);
    floats_split(q, q ? there : 0, high, r, kind, n_pieces);
#pragma GCC unroll 3
    for (int k = 0; k < n_pieces; k++)
        piece[k] = pairs_of(low[k], high[k]);
}

/* Where a tile comes from: `lanes` lanes from `from` on, `depth` depths, all
 * others 0. */
typedef struct source {
    const char *from;
    int64_t lane_bytes, depth_bytes, lanes, depth;
} source;

/* Line i of a tile of each piece: of a lane where depths are adjacent, else of
 * a pair of depths. */
INLINE void
line_split(const source *s, int i, bool adjacent, __m512i piece[3], range *r,
           const mr_gemm_kind kind, const int n_pieces)
{
    int64_t other = kind == MR_GEMM_BFLOAT16 ? 1 : PAIRS; /* of a pair */
    int64_t d = i * (kind == MR_GEMM_BFLOAT16 ? 2 : 1);
    const char *low = s->from + d * s->depth_bytes;
    const char *high = low + other * s->depth_bytes;

    if (adjacent && i < s->lanes) {
        __builtin_prefetch(s->from + i * s->lane_bytes + AHEAD, 0, 2);
        __builtin_prefetch(s->from + i * s->lane_bytes + AHEAD + 64, 0, 2);
        lane_pairs(s->from + i * s->lane_bytes, s->depth, kind, n_pieces, piece,
                   r);
    } else if (adjacent) {
        for (int k = 0; k < n_pieces; k++)
            piece[k] = _mm512_setzero_si512();
    } else {
        __builtin_prefetch(low + DEPTHS * s->depth_bytes, 0, 2);
        __builtin_prefetch(high + DEPTHS * s->depth_bytes, 0, 2);
        pair_lanes(d < s->depth ? low : NULL,
                   d + other < s->depth ? high : NULL,
                   (__mmask16)first_lanes(s->lanes), kind, n_pieces, piece, r);
    }
}

/* Tiles of a in bfloat16 that have all lanes and depths are as it lies. */
INLINE void
tile_copy(const source *s, float *to, range *r)
{
    const char *from = s->from;

#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++, from += s->lane_bytes) {
        __m512i x = _mm512_loadu_si512(from);

        __builtin_prefetch(from + AHEAD, 0, 2);
        range_take_halves(r, x);
        _mm512_store_si512(to + i * LANES, x);
    }
}

/* Two tiles of a panel of b in bfloat16 that has all columns, line i: pairs of
 * two rows. */
INLINE void
rows_zip(const char *low, const char *high, float *to, range *r)
{
    const __m512i first_half = _mm512_set_epi16(
        47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38,
        6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i other_half =
        _mm512_add_epi16(first_half, _mm512_set1_epi16(16));
    __m512i x = _mm512_loadu_si512(low), y = _mm512_loadu_si512(high);

    range_take_halves(r, x);
    range_take_halves(r, y);
    _mm512_store_si512(to, _mm512_permutex2var_epi16(x, first_half, y));
    _mm512_store_si512(to + TILE_FLOATS,
                       _mm512_permutex2var_epi16(x, other_half, y));
}

/* One tile of each piece, 2 * TILE_FLOATS apart. */
INLINE void
tile_pack(const source *s, bool adjacent, bool right, float *to, range *r,
          const mr_gemm_kind kind, const int n_pieces)
{
    __m512i tile[3][LANES], piece[3];

    if (adjacent && !right && kind == MR_GEMM_BFLOAT16 && s->lanes >= LANES &&
        s->depth >= DEPTHS) {
        tile_copy(s, to, r);
        return;
    }
    if (adjacent && !right) { /* lines are those of the tile */
        for (int i = 0; i < LANES; i++) {
            line_split(s, i, adjacent, piece, r, kind, n_pieces);
#pragma GCC unroll 3
            for (int k = 0; k < n_pieces; k++)
                _mm512_store_si512(to + 2 * k * TILE_FLOATS + i * LANES,
                                   piece[k]);
        }
        return;
    }
    for (int i = 0; i < LANES; i++) {
        line_split(s, i, adjacent, piece, r, kind, n_pieces);
#pragma GCC unroll 3
        for (int k = 0; k < n_pieces; k++)
            tile[k][i] = piece[k];
    }
#pragma GCC unroll 3
    for (int k = 0; k < n_pieces; k++, to += 2 * TILE_FLOATS) {
        turn_registers((__m512 *)tile[k]);
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            _mm512_store_si512(to + i * LANES, tile[k][i]);
    }
}

/* Tiles of n panels of b whose columns are adjacent, a pair of rows at a time:
 * long runs of a row come from memory well. */
INLINE void
rows_pack(const source *s, int64_t n, float *to, int64_t apart, range *r,
          const mr_gemm_kind kind, const int n_pieces)
{
    __m512i piece[3];

    for (int i = 0; i < PAIRS; i++) {
        source x = *s;
        int64_t t = 0;

        if (kind == MR_GEMM_BFLOAT16 && 2 * i + 1 < x.depth)
            for (; t < 2 * n && x.lanes >= 2 * LANES;
                 t += 2, x.lanes -= 2 * LANES) {
                const char *low = x.from + 2 * i * x.depth_bytes;

                __builtin_prefetch(low + DEPTHS * x.depth_bytes, 0, 2);
                __builtin_prefetch(low + (DEPTHS + 1) * x.depth_bytes, 0, 2);
                rows_zip(low, low + x.depth_bytes,
                         to + t / 2 * apart + i * LANES, r);
                x.from += 2 * LANES * x.lane_bytes;
            }
        for (; t < 2 * n; t++, x.lanes -= LANES) {
            float *line = to + t / 2 * apart + t % 2 * TILE_FLOATS + i * LANES;

            line_split(&x, i, false, piece, r, kind, n_pieces);
            x.from += LANES * x.lane_bytes;
#pragma GCC unroll 3
            for (int k = 0; k < n_pieces; k++)
                _mm512_store_si512(line + 2 * k * TILE_FLOATS, piece[k]);
        }
    }
}

INLINE mr_gemm_range
pack(const mr_gemm_side *s, bool right, int64_t lane0, int64_t n,
     int64_t depth0, int64_t depth, float *to, int64_t apart, bool adjacent,
     const mr_gemm_kind kind, const int n_pieces)
{
    int64_t size = kind == MR_GEMM_FLOAT32 ? 4 : 2;
    source x = {.lane_bytes = s->lane_stride * size,
                .depth_bytes = s->depth_stride * size};
    range r = range_none();

    for (int64_t d = 0; d < depth; d += DEPTHS) {
        float *tiles = to + d / DEPTHS * 2 * n_pieces * TILE_FLOATS;

        x.from = (const char *)s->data + lane0 * x.lane_bytes +
                 (depth0 + d) * x.depth_bytes;
        x.lanes = s->lanes - lane0;
        x.depth = depth - d;
        if (!adjacent && right) {
            rows_pack(&x, n, tiles, apart, &r, kind, n_pieces);
            continue;
        }
        for (int64_t t = 0; t < 2 * n; t++) {
            tile_pack(&x, adjacent, right,
                      tiles + t / 2 * apart + t % 2 * TILE_FLOATS, &r, kind,
                      n_pieces);
            x.from += LANES * x.lane_bytes;
            x.lanes -= LANES;
        }
    }
    return range_of(&r, kind);
}

#define PACK(name, kind, n_pieces)                                             \
    static mr_gemm_range name(const mr_gemm_side *s, bool right,               \
                              int64_t lane0, int64_t n, int64_t depth0,        \
                              int64_t depth, float *to, int64_t apart)         \
    {                                                                          \
        if (s->depth_stride == 1)                                              \
            return pack(s, right, lane0, n, depth0, depth, to, apart, true,    \
                        kind, n_pieces);                                       \
        return pack(s, right, lane0, n, depth0, depth, to, apart, false, kind, \
                    n_pieces);                                                 \
    }
PACK(pack_f32, MR_GEMM_FLOAT32, 3)
PACK(pack_f16, MR_GEMM_FLOAT16, 2)
PACK(pack_bf16, MR_GEMM_BFLOAT16, 1)

const mr_gemm_matrix MR_TIER_SYM(mr__gemm_matrix) = {
    .enter = enter,
    .leave = leave,
    .span = {[MR_GEMM_SPAN_1] = OF_SHAPES(span_1),
             [MR_GEMM_SPAN_FAR] = OF_SHAPES(span_far),
             [MR_GEMM_SPAN_2] = OF_SHAPES(span_2),
             [MR_GEMM_SPAN_3] = OF_SHAPES(span_3),
             [MR_GEMM_SPAN_LESSER] = OF_SHAPES(span_lesser),
             [MR_GEMM_SPAN_LARGEST] = OF_SHAPES(span_largest),
             [MR_GEMM_SPAN_1_BY_2] = OF_SHAPES(span_1_by_2),
             [MR_GEMM_SPAN_2_BY_1] = OF_SHAPES(span_2_by_1),
             [MR_GEMM_SPAN_2_TURNED] = OF_SHAPES(span_2_turned),
             [MR_GEMM_SPAN_3_TURNED] = OF_SHAPES(span_3_turned),
             [MR_GEMM_SPAN_LESSER_TURNED] = OF_SHAPES(span_lesser_turned)},
    .round = {[MR_GEMM_FLOAT16] = round_f16, [MR_GEMM_BFLOAT16] = round_bf16},
    .pack = {pack_f32, pack_f16, pack_bf16},
};

#else

const mr_gemm_matrix MR_TIER_SYM(mr__gemm_matrix) = {.enter = NULL};

#endif
