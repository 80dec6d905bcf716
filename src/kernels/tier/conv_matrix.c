/* SPDX-License-Identifier: Apache-2.0
 *
 * conv_matrix.c -- convolutions on the matrix unit of x86 processors (AMX).
 *
 * What gemm_matrix.c says of pieces and of the unit holds here.  The rows of
 * the left side are output positions of a line: what their taps see is as far
 * apart as the positions, so tiles are loaded from the input as it lies, once
 * it is in pieces, and nothing is packed tap by tap.  A tile has as many rows
 * as divide a line well: the unit takes less time for fewer.
 */
#include "kernels/conv_matrix.h"

#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#if MR_TIER_ID == MR_TIER_AVX512

#include "kernels/tier/half.h"
#include "kernels/tier/matrix.h"
#include "kernels/tier/pieces.h"
#include "kernels/tier/turn.h"

#define STEP MR_CONV_STEP

/* ---- the unit -------------------------------------------------------------
 */

/* Tiles 0 to 3 are sums, 4 and 5 rows, 6 and 7 weights, which always have 16
 * pairs of depths. */
UNIT static void
enter(int rows)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};

    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = i < 6 ? (uint8_t)rows : LANES;
    }
    /* The intrinsic says that it reads a word. */
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
}

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
        _tile_loadd(4, x0 + at + (piece)*apart, row);                          \
        if (two_rows)                                                          \
            _tile_loadd(5, x1 + at + (piece)*apart, row);                      \
    } while (0)
#define LOAD_B(piece, two_cols)                                                \
    do {                                                                       \
        _tile_loadd(6, w + (piece)*w_apart, w_row);                            \
        if (two_cols)                                                          \
            _tile_loadd(7, w + (piece)*w_apart + w_next, w_row);               \
    } while (0)
/* Each tile as late as it may be: 6 % faster than all four first. */
#define STEP_1(two_rows, two_cols)                                             \
    do {                                                                       \
        _tile_loadd(6, w, w_row);                                              \
        _tile_loadd(4, x0 + at, row);                                          \
        _tile_dpbf16ps(0, 4, 6);                                               \
        if (two_rows) {                                                        \
            _tile_loadd(5, x1 + at, row);                                      \
            _tile_dpbf16ps(2, 5, 6);                                           \
        }                                                                      \
        if (two_cols) {                                                        \
            _tile_loadd(7, w + w_next, w_row);                                 \
            _tile_dpbf16ps(1, 4, 7);                                           \
            if (two_rows)                                                      \
                _tile_dpbf16ps(3, 5, 7);                                       \
        }                                                                      \
    } while (0)
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
/* Three: the products of lesser pieces first, of all steps, then those of the
 * largest. */
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

#define SUMS(what, two_rows, two_cols)                                         \
    do {                                                                       \
        what(0, sums, MR_CONV_COLS * 4);                                       \
        if (two_cols)                                                          \
            what(1, sums + LANES, MR_CONV_COLS * 4);                           \
        if (two_rows)                                                          \
            what(2, sums + rows * MR_CONV_COLS, MR_CONV_COLS * 4);             \
        if ((two_rows) && (two_cols))                                          \
            what(3, sums + rows * MR_CONV_COLS + LANES, MR_CONV_COLS * 4);     \
    } while (0)
#define SUMS_BEGIN(add, two_rows, two_cols)                                    \
    do {                                                                       \
        MEMORY_SEEN;                                                           \
        if (add) {                                                             \
            SUMS(_tile_loadd, two_rows, two_cols);                             \
        } else {                                                               \
            SUMS_ZERO;                                                         \
        }                                                                      \
    } while (0)
#define STEPS(multiply, n_pieces, two_rows, two_cols)                          \
    do {                                                                       \
        const char *w = (const char *)weights;                                 \
                                                                               \
        for (int64_t s = 0; s < r->n_steps;                                    \
             s++, w += (n_pieces)*MR_CONV_STEP_FLOATS * 4) {                   \
            int64_t at = r->step[s];                                           \
                                                                               \
            multiply(two_rows, two_cols);                                      \
        }                                                                      \
    } while (0)
#define TILE_3(two_rows, two_cols)                                             \
    STEPS(STEP_LESSER, 3, two_rows, two_cols);                                 \
    STEPS(STEP_1, 3, two_rows, two_cols)
#define TILE_2(two_rows, two_cols) STEPS(STEP_2, 2, two_rows, two_cols)
#define TILE_1(two_rows, two_cols) STEPS(STEP_1, 1, two_rows, two_cols)

#define TILE(name, all, two_rows, two_cols)                                    \
    UNIT static void name(const mr_conv_rows *r, const float *weights,         \
                          float *sums, int64_t rows, bool add)                 \
    {                                                                          \
        const char *x0 = r->x[0], *x1 = r->x[1];                               \
        int64_t row = r->row_bytes, apart = r->apart;                          \
        const int64_t w_row = 64, w_next = TILE_FLOATS * 4,                    \
                      w_apart = 2 * w_next;                                    \
                                                                               \
        (void)x1;                                                              \
        (void)rows;                                                            \
        (void)apart;                                                           \
        (void)w_next;                                                          \
        (void)w_apart;                                                         \
        SUMS_BEGIN(add, two_rows, two_cols);                                   \
        all(two_rows, two_cols);                                               \
        SUMS(_tile_stored, two_rows, two_cols);                                \
        MEMORY_SEEN;                                                           \
    }
SHAPES(TILE, tile_1, TILE_1)
SHAPES(TILE, tile_2, TILE_2)
SHAPES(TILE, tile_3, TILE_3)

/* The gradient by the weights: the left side is packed, the right one has pairs
 * of lines of both its tiles. */
#define BACK_STEPS(multiply, n_pieces, two_rows, two_cols)                     \
    do {                                                                       \
        const char *x0 = (const char *)g, *x1 = x0 + 4 * TILE_FLOATS;          \
                                                                               \
        for (int64_t s = 0; s < n_steps; s++) {                                \
            int64_t at = s * (n_pieces)*MR_CONV_STEP_FLOATS * 4;               \
            const char *w = x + s * (STEP / 2) * MR_CONV_PAIR;                 \
                                                                               \
            multiply(two_rows, two_cols);                                      \
        }                                                                      \
    } while (0)
#define BACK_3(two_rows, two_cols)                                             \
    BACK_STEPS(STEP_LESSER, 3, two_rows, two_cols);                            \
    BACK_STEPS(STEP_1, 3, two_rows, two_cols)
#define BACK_2(two_rows, two_cols) BACK_STEPS(STEP_2, 2, two_rows, two_cols)
#define BACK_1(two_rows, two_cols) BACK_STEPS(STEP_1, 1, two_rows, two_cols)
#define BACK(name, all, two_rows, two_cols)                                    \
    UNIT static void name(const float *g, const char *x, int64_t w_apart,      \
                          int64_t n_steps, float *sums, bool add)              \
    {                                                                          \
        const int64_t row = 64, apart = 2 * TILE_FLOATS * 4, rows = LANES;     \
        const int64_t w_row = MR_CONV_PAIR, w_next = MR_CONV_LINE;             \
                                                                               \
        (void)apart;                                                           \
        (void)rows;                                                            \
        (void)w_apart;                                                         \
        (void)w_next;                                                          \
        SUMS_BEGIN(add, two_rows, two_cols);                                   \
        all(two_rows, two_cols);                                               \
        SUMS(_tile_stored, two_rows, two_cols);                                \
        MEMORY_SEEN;                                                           \
    }
SHAPES(BACK, back_1, BACK_1)
SHAPES(BACK, back_2, BACK_2)
SHAPES(BACK, back_3, BACK_3)

/* ---- pieces ---------------------------------------------------------------
 */

/* What is in the upper halves, in their order. */
INLINE __m512i
upper_halves(__m512i low, __m512i high)
{
    static const uint16_t odd[STEP] = {
        1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
        33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};

    return _mm512_permutex2var_epi16(low, _mm512_loadu_si512(odd), high);
}

/* A step of numbers, of which some are there, others 0, in their order. */
INLINE void
step_pieces(const char *p, __mmask32 there, __m512i piece[3], range *r,
            const mr_gemm_kind kind, const int n_pieces)
{
    __m512i low[3], high[3];

    if (kind == MR_GEMM_BFLOAT16) {
        piece[0] = _mm512_maskz_loadu_epi16(there, p);
        range_take_halves(r, piece[0]);
        return;
    }
    wide_split(p, there, low, high, r, kind, n_pieces);
#pragma GCC unroll 3
    for (int k = 0; k < n_pieces; k++)
        piece[k] = upper_halves(low[k], high[k]);
}

INLINE mr_gemm_range
split_all(char *to, int64_t to_bytes, int64_t apart, const void *from,
          int64_t from_bytes, int64_t n, int64_t channels,
          const mr_gemm_kind kind, const int n_pieces)
{
    const char *x = from;
    int64_t size = kind == MR_GEMM_FLOAT32 ? 4 : 2;
    range r = range_none();

    for (int64_t i = 0; i < n; i++, x += from_bytes, to += to_bytes)
        for (int64_t c = 0; c < channels; c += STEP) {
            __m512i piece[3];

            step_pieces(x + c * size, first_lanes(channels - c), piece, &r,
                        kind, n_pieces);
#pragma GCC unroll 3
            for (int k = 0; k < n_pieces; k++)
                _mm512_storeu_si512(to + k * apart + c * 2, piece[k]);
        }
    return range_of(&r, kind);
}

INLINE mr_gemm_range
weigh_all(float *to, const void *from, int64_t lane_bytes, int64_t lanes,
          int64_t depth, const mr_gemm_kind kind, const int n_pieces)
{
    __m512i tile[3][LANES], piece[3];
    range r = range_none();

    for (int64_t i = 0; i < LANES; i++) {
        step_pieces((const char *)from + i * lane_bytes,
                    i < lanes ? first_lanes(depth) : 0, piece, &r, kind,
                    n_pieces);
#pragma GCC unroll 3
        for (int k = 0; k < n_pieces; k++)
            tile[k][i] = piece[k];
    }
#pragma GCC unroll 3
    for (int k = 0; k < n_pieces; k++, to += 2 * TILE_FLOATS) {
        turn_registers((__m512 *)tile[k]);
        for (int i = 0; i < LANES; i++)
            _mm512_store_si512(to + i * LANES, tile[k][i]);
    }
    return range_of(&r, kind);
}

INLINE void
store_all(char *to, int64_t to_bytes, const float *sums, int64_t n,
          int64_t cols, const mr_gemm_kind kind)
{
    __mmask32 there = first_lanes(cols);

    for (int64_t i = 0; i < n; i++, to += to_bytes, sums += MR_CONV_COLS) {
        R x = v_load(sums), y = v_load(sums + LANES);

        if (kind == MR_GEMM_FLOAT32) {
            _mm512_mask_storeu_ps(to, (__mmask16)there, (__m512)x);
            _mm512_mask_storeu_ps(to + 64, (__mmask16)(there >> LANES),
                                  (__m512)y);
        } else if (kind == MR_GEMM_FLOAT16) {
            _mm512_mask_storeu_epi16(
                to, there,
                _mm512_inserti64x4(
                    _mm512_castsi256_si512((__m256i)f16_round(x)),
                    (__m256i)f16_round(y), 1));
        } else {
            _mm512_mask_storeu_epi16(
                to, there,
                upper_halves((__m512i)bf16_above(x), (__m512i)bf16_above(y)));
        }
    }
}

/* ---- sides of the gradient by the weights ----------------------------------
 */

/* Columns [0, 16) of two lines as pairs, or [16, 32). */
INLINE __m512i
lines_pair(const char *from, int half)
{
    static const uint16_t pairs[2][STEP] = {
        {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
         8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
        {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
         24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};

    return _mm512_permutex2var_epi16(_mm512_loadu_si512(from),
                                     _mm512_loadu_si512(pairs[half]),
                                     _mm512_loadu_si512(from + MR_CONV_LINE));
}

static void
pairs(char *even, char *odd, const char *from, int64_t n)
{
    for (int64_t v = 0; v < n; v++, from += MR_CONV_LINE) {
        char *to = (v & 1 ? odd : even) + v / 2 * MR_CONV_PAIR;

        _mm512_storeu_si512(to, lines_pair(from, 0));
        _mm512_storeu_si512(to + MR_CONV_LINE, lines_pair(from, 1));
    }
}

static void
turn(float *to, const char *from)
{
    for (int half = 0; half < 2; half++, to += TILE_FLOATS) {
        __m512i tile[LANES];

        for (int i = 0; i < LANES; i++)
            tile[i] = lines_pair(from + 2 * i * MR_CONV_LINE, half);
        turn_registers((__m512 *)tile);
        for (int i = 0; i < LANES; i++)
            _mm512_store_si512(to + i * LANES, tile[i]);
    }
}

#define OF_KIND(name, kind, n_pieces)                                          \
    static mr_gemm_range split_##name(                                         \
        char *to, int64_t to_bytes, int64_t apart, const void *from,           \
        int64_t from_bytes, int64_t n, int64_t channels)                       \
    {                                                                          \
        return split_all(to, to_bytes, apart, from, from_bytes, n, channels,   \
                         kind, n_pieces);                                      \
    }                                                                          \
    static mr_gemm_range weigh_##name(float *to, const void *from,             \
                                      int64_t lane_bytes, int64_t lanes,       \
                                      int64_t depth)                           \
    {                                                                          \
        return weigh_all(to, from, lane_bytes, lanes, depth, kind, n_pieces);  \
    }                                                                          \
    static void store_##name(char *to, int64_t to_bytes, const float *sums,    \
                             int64_t n, int64_t cols)                          \
    {                                                                          \
        store_all(to, to_bytes, sums, n, cols, kind);                          \
    }
OF_KIND(f32, MR_GEMM_FLOAT32, 3)
OF_KIND(f16, MR_GEMM_FLOAT16, 2)
OF_KIND(bf16, MR_GEMM_BFLOAT16, 1)

const mr_conv_matrix MR_TIER_SYM(mr__conv_matrix) = {
    .enter = enter,
    .leave = leave,
    .tile = {OF_SHAPES(tile_1), OF_SHAPES(tile_2), OF_SHAPES(tile_3)},
    .split = {split_f32, split_f16, split_bf16},
    .weigh = {weigh_f32, weigh_f16, weigh_bf16},
    .store = {store_f32, store_f16, store_bf16},
    .pairs = pairs,
    .turn = turn,
    .back = {OF_SHAPES(back_1), OF_SHAPES(back_2), OF_SHAPES(back_3)},
};

#else

const mr_conv_matrix MR_TIER_SYM(mr__conv_matrix) = {.enter = NULL};

#endif
