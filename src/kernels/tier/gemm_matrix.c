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

#include "kernels/tier/pieces.h"
#include "kernels/tier/turn.h"

#define TILE_FLOATS 256
#define LANES       16 /* of a tile */
#define PAIRS       16
#define DEPTHS      (2 * PAIRS)
#define AHEAD       512 /* bytes of a lane that are asked for before */
#define UNIT        __attribute__((target("amx-tile,amx-bf16")))

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

/* Without this the state of the tiles would be kept from thread to thread. */
UNIT static void
leave(void)
{
    _tile_release();
}

/* The intrinsics say nothing of memory to the compiler. */
#define MEMORY_SEEN __asm__ volatile("" ::: "memory")

#define LOAD(t, from) _tile_loadd(t, from, 64)
/* Sums 0 to 3 are those of a's tiles in 4 and 5 with b's in 6 and 7. */
#define MULTIPLY(two_rows, two_cols)                                           \
    do {                                                                       \
        _tile_dpbf16ps(0, 4, 6);                                               \
        if (two_cols)                                                          \
            _tile_dpbf16ps(1, 4, 7);                                           \
        if (two_rows)                                                          \
            _tile_dpbf16ps(2, 5, 6);                                           \
        if ((two_rows) && (two_cols))                                          \
            _tile_dpbf16ps(3, 5, 7);                                           \
    } while (0)
#define LOAD_A(piece, two_rows)                                                \
    do {                                                                       \
        LOAD(4, a + (piece)*2 * TILE_FLOATS);                                  \
        if (two_rows)                                                          \
            LOAD(5, a + ((piece)*2 + 1) * TILE_FLOATS);                        \
    } while (0)
#define LOAD_B(piece, two_cols)                                                \
    do {                                                                       \
        LOAD(6, b + (piece)*2 * TILE_FLOATS);                                  \
        if (two_cols)                                                          \
            LOAD(7, b + ((piece)*2 + 1) * TILE_FLOATS);                        \
    } while (0)

/* 32 depths of each number of pieces: one piece changes at a time. */
#define STEP_1(two_rows, two_cols)                                             \
    LOAD_A(0, two_rows);                                                       \
    LOAD_B(0, two_cols);                                                       \
    MULTIPLY(two_rows, two_cols)
#define STEP_2(two_rows, two_cols)                                             \
    LOAD_A(1, two_rows);                                                       \
    LOAD_B(1, two_cols);                                                       \
    MULTIPLY(two_rows, two_cols);                                              \
    LOAD_B(0, two_cols);                                                       \
    MULTIPLY(two_rows, two_cols);                                              \
    LOAD_A(0, two_rows);                                                       \
    MULTIPLY(two_rows, two_cols);                                              \
    LOAD_B(1, two_cols);                                                       \
    MULTIPLY(two_rows, two_cols)
/* The same with a and b exchanged. */
#define STEP_2_TURNED(two_rows, two_cols)                                      \
    LOAD_B(1, two_cols);                                                       \
    LOAD_A(1, two_rows);                                                       \
    MULTIPLY(two_rows, two_cols);                                              \
    LOAD_A(0, two_rows);                                                       \
    MULTIPLY(two_rows, two_cols);                                              \
    LOAD_B(0, two_cols);                                                       \
    MULTIPLY(two_rows, two_cols);                                              \
    LOAD_A(1, two_rows);                                                       \
    MULTIPLY(two_rows, two_cols)
/* Three: the products of lesser pieces first, of all depths, then those of the
 * largest, so that large sums are rounded once for 32 depths. */
#define STEP_LESSER(two_rows, two_cols)                                        \
    LOAD_A(2, two_rows);                                                       \
    LOAD_B(0, two_cols);                                                       \
    MULTIPLY(two_rows, two_cols);                                              \
    LOAD_A(1, two_rows);                                                       \
    MULTIPLY(two_rows, two_cols);                                              \
    LOAD_B(1, two_cols);                                                       \
    MULTIPLY(two_rows, two_cols);                                              \
    LOAD_A(0, two_rows);                                                       \
    MULTIPLY(two_rows, two_cols);                                              \
    LOAD_B(2, two_cols);                                                       \
    MULTIPLY(two_rows, two_cols)
/* The same with a and b exchanged. */
#define STEP_TURNED(two_rows, two_cols)                                        \
    LOAD_B(2, two_cols);                                                       \
    LOAD_A(0, two_rows);                                                       \
    MULTIPLY(two_rows, two_cols);                                              \
    LOAD_B(1, two_cols);                                                       \
    MULTIPLY(two_rows, two_cols);                                              \
    LOAD_A(1, two_rows);                                                       \
    MULTIPLY(two_rows, two_cols);                                              \
    LOAD_B(0, two_cols);                                                       \
    MULTIPLY(two_rows, two_cols);                                              \
    LOAD_A(2, two_rows);                                                       \
    MULTIPLY(two_rows, two_cols)

/* One side in one piece, the other in two. */
#define STEP_1_BY_2(two_rows, two_cols)                                        \
    LOAD_A(0, two_rows);                                                       \
    LOAD_B(1, two_cols);                                                       \
    MULTIPLY(two_rows, two_cols);                                              \
    LOAD_B(0, two_cols);                                                       \
    MULTIPLY(two_rows, two_cols)

#define STEP_2_BY_1(two_rows, two_cols)                                        \
    LOAD_B(0, two_cols);                                                       \
    LOAD_A(1, two_rows);                                                       \
    MULTIPLY(two_rows, two_cols);                                              \
    LOAD_A(0, two_rows);                                                       \
    MULTIPLY(two_rows, two_cols)

#define SUMS(what, two_rows, two_cols)                                         \
    do {                                                                       \
        what(0, c, c_row * 4);                                                 \
        if (two_cols)                                                          \
            what(1, c + LANES, c_row * 4);                                     \
        if (two_rows)                                                          \
            what(2, c + LANES * c_row, c_row * 4);                             \
        if ((two_rows) && (two_cols))                                          \
            what(3, c + LANES * c_row + LANES, c_row * 4);                     \
    } while (0)

#define SUMS_BEGIN(add, two_rows, two_cols)                                    \
    do {                                                                       \
        MEMORY_SEEN;                                                           \
        if (add) {                                                             \
            SUMS(_tile_loadd, two_rows, two_cols);                             \
        } else {                                                               \
            _tile_zero(0);                                                     \
            _tile_zero(1);                                                     \
            _tile_zero(2);                                                     \
            _tile_zero(3);                                                     \
        }                                                                      \
    } while (0)
#define STEPS(step, a_pieces, b_pieces, two_rows, two_cols)                    \
    for (; left > 0; left -= PAIRS * (a_pieces)) {                             \
        step(two_rows, two_cols);                                              \
        a += 2 * (a_pieces)*TILE_FLOATS;                                       \
        b += 2 * (b_pieces)*TILE_FLOATS;                                       \
    }
#define TILE(name, step, a_pieces, b_pieces, two_rows, two_cols)               \
    UNIT static void name(int64_t depth, const float *a, const float *b,       \
                          int64_t b_row, float *c, int64_t c_row, bool add)    \
    {                                                                          \
        int64_t left = depth;                                                  \
                                                                               \
        (void)b_row;                                                           \
        SUMS_BEGIN(add, two_rows, two_cols);                                   \
        STEPS(STEP_##step, a_pieces, b_pieces, two_rows, two_cols)             \
        SUMS(_tile_stored, two_rows, two_cols);                                \
        MEMORY_SEEN;                                                           \
    }
#define TILE_3(name, lesser, two_rows, two_cols)                               \
    UNIT static void name(int64_t depth, const float *a, const float *b,       \
                          int64_t b_row, float *c, int64_t c_row, bool add)    \
    {                                                                          \
        const float *a0 = a, *b0 = b;                                          \
        int64_t left = depth;                                                  \
                                                                               \
        (void)b_row;                                                           \
        SUMS_BEGIN(add, two_rows, two_cols);                                   \
        STEPS(lesser, 3, 3, two_rows, two_cols)                                \
        left = depth;                                                          \
        a = a0;                                                                \
        b = b0;                                                                \
        STEPS(STEP_1, 3, 3, two_rows, two_cols)                                \
        SUMS(_tile_stored, two_rows, two_cols);                                \
        MEMORY_SEEN;                                                           \
    }
#define TILES(n, a_pieces, b_pieces)                                           \
    TILE(tile_##n##_quarter, n, a_pieces, b_pieces, 0, 0)                      \
    TILE(tile_##n##_upper, n, a_pieces, b_pieces, 0, 1)                        \
    TILE(tile_##n##_left, n, a_pieces, b_pieces, 1, 0)                         \
    TILE(tile_##n##_whole, n, a_pieces, b_pieces, 1, 1)
TILES(1, 1, 1)
TILES(2, 2, 2)
TILES(2_TURNED, 2, 2)
TILE_3(tile_3_quarter, STEP_LESSER, 0, 0)
TILE_3(tile_3_upper, STEP_LESSER, 0, 1)
TILE_3(tile_3_left, STEP_LESSER, 1, 0)
TILE_3(tile_3_whole, STEP_LESSER, 1, 1)
TILE_3(tile_3_TURNED_quarter, STEP_TURNED, 0, 0)
TILE_3(tile_3_TURNED_upper, STEP_TURNED, 0, 1)
TILE_3(tile_3_TURNED_left, STEP_TURNED, 1, 0)
TILE_3(tile_3_TURNED_whole, STEP_TURNED, 1, 1)
TILES(1_BY_2, 1, 2)
TILES(2_BY_1, 2, 1)
#define TILES_OF(n)                                                            \
    {                                                                          \
        {tile_##n##_quarter, tile_##n##_upper},                                \
        {                                                                      \
            tile_##n##_left, tile_##n##_whole                                  \
        }                                                                      \
    }

/* ---- packing --------------------------------------------------------------
 */

/* The largest and, less one, the least bits of what was packed, those of the
 * signs shifted out. */
typedef struct range {
    __m512i most, least;
} range;

INLINE void
range_take(range *r, __m512i bits)
{
    __m512i size = _mm512_add_epi32(bits, bits); /* without the sign */

    r->most = _mm512_max_epu32(r->most, size);
    r->least = _mm512_min_epu32(r->least,
                                _mm512_sub_epi32(size, _mm512_set1_epi32(1)));
}

/* The same of halves, in halves, signs masked. */
INLINE void
range_take_halves(range *r, __m512i bits)
{
    __m512i size = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFF7FFF));

    r->most = _mm512_max_epu16(r->most, size);
    r->least = _mm512_min_epu16(r->least,
                                _mm512_sub_epi16(size, _mm512_set1_epi16(1)));
}

/* The first n of sixteen numbers, in `there`, others 0. */
INLINE __m512
floats_at(const void *p, __mmask16 there, const mr_gemm_kind kind)
{
    if (kind == MR_GEMM_FLOAT32)
        return _mm512_maskz_loadu_ps(there, p);
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(there, p));
}

INLINE __mmask16
first(int64_t n)
{
    return n >= 16 ? 0xFFFF : n <= 0 ? 0 : (__mmask16)((1U << n) - 1);
}

/* Sixteen pairs of depths of a lane that are adjacent, as pieces: depth q with
 * q + 16, bfloat16 with its neighbour. */
INLINE void
lane_pairs(const void *p, int64_t n, const mr_gemm_kind kind,
           const int n_pieces, __m512i piece[3], range *r)
{
    int64_t size = kind == MR_GEMM_FLOAT32 ? 4 : 2;
    __m512i low[3], high[3];
    __m512 x, y;

    if (kind == MR_GEMM_BFLOAT16) {
        __mmask32 there = n >= DEPTHS ? 0xFFFFFFFF
                          : n <= 0    ? 0
                                      : (__mmask32)((1U << n) - 1);

        piece[0] = _mm512_maskz_loadu_epi16(there, p);
        range_take_halves(r, piece[0]);
        return;
    }
    x = floats_at(p, first(n), kind);
    y = floats_at((const char *)p + PAIRS * size, first(n - PAIRS), kind);
    range_take(r, _mm512_castps_si512(x));
    range_take(r, _mm512_castps_si512(y));
    split(n_pieces, x, low);
    split(n_pieces, y, high);
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
    __m512 x, y;

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
    x = floats_at(p, p ? there : 0, kind);
    y = floats_at(q, q ? there : 0, kind);
    range_take(r, _mm512_castps_si512(x));
    range_take(r, _mm512_castps_si512(y));
    split(n_pieces, x, low);
    split(n_pieces, y, high);
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
                   d + other < s->depth ? high : NULL, first(s->lanes), kind,
                   n_pieces, piece, r);
    }
}

/* One tile of each piece, 2 * TILE_FLOATS apart. */
INLINE void
tile_pack(const source *s, bool adjacent, bool right, float *to, range *r,
          const mr_gemm_kind kind, const int n_pieces)
{
    __m512i tile[3][LANES], piece[3];

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

        for (int64_t t = 0; t < 2 * n; t++, x.lanes -= LANES) {
            float *line = to + t / 2 * apart + t % 2 * TILE_FLOATS + i * LANES;

            line_split(&x, i, false, piece, r, kind, n_pieces);
            x.from += LANES * x.lane_bytes;
#pragma GCC unroll 3
            for (int k = 0; k < n_pieces; k++)
                _mm512_store_si512(line + 2 * k * TILE_FLOATS, piece[k]);
        }
    }
}

/* The exponents of both, from bits without signs, the least with one less. */
INLINE mr_gemm_range
range_of(const range *r, const mr_gemm_kind kind)
{
    enum { BIAS = 127, SHIFT = 24 };
    unsigned most = _mm512_reduce_max_epu32(r->most), least;

    if (kind == MR_GEMM_BFLOAT16) { /* in halves, their signs masked */
        __m512i low = _mm512_and_si512(r->least, _mm512_set1_epi32(0xFFFF));

        least = _mm512_reduce_min_epu32(
            _mm512_min_epu32(low, _mm512_srli_epi32(r->least, 16)));
        if (least == 0xFFFF)
            return MR_GEMM_RANGE_NONE;
        low = _mm512_and_si512(r->most, _mm512_set1_epi32(0xFFFF));
        most = _mm512_reduce_max_epu32(
            _mm512_max_epu32(low, _mm512_srli_epi32(r->most, 16)));
        return (mr_gemm_range){.least = (int)((least + 1) >> 7) - BIAS,
                               .most = (int)(most >> 7) - BIAS};
    }
    least = _mm512_reduce_min_epu32(r->least);
    if (most == 0)
        return MR_GEMM_RANGE_NONE;
    return (mr_gemm_range){.least = (int)((least + 1) >> SHIFT) - BIAS,
                           .most = (int)(most >> SHIFT) - BIAS};
}

INLINE mr_gemm_range
pack(const mr_gemm_side *s, bool right, int64_t lane0, int64_t n,
     int64_t depth0, int64_t depth, float *to, int64_t apart, bool adjacent,
     const mr_gemm_kind kind, const int n_pieces)
{
    int64_t size = kind == MR_GEMM_FLOAT32 ? 4 : 2;
    source x = {.lane_bytes = s->lane_stride * size,
                .depth_bytes = s->depth_stride * size};
    range r = {.most = _mm512_setzero_si512(), .least = _mm512_set1_epi32(-1)};

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
    .tile = {TILES_OF(1), TILES_OF(2), TILES_OF(3), TILES_OF(1_BY_2),
             TILES_OF(2_BY_1), TILES_OF(2_TURNED), TILES_OF(3_TURNED)},
    .pack = {pack_f32, pack_f16, pack_bf16},
};

#else

const mr_gemm_matrix MR_TIER_SYM(mr__gemm_matrix) = {.enter = NULL};

#endif
