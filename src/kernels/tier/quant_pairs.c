/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_pairs.c -- codes as pairs of bfloat16, and register tiles of them, for
 * processors whose vdpbf16ps is worth it (kernels/quant_pairs.h).
 *
 * A word's halves have codes at the same places, so a shift of halves brings a
 * code of each to the bottom, where a table of 32 or 64 halves turns them into
 * numbers, whatever lies above.  Formats whose codes cross words are first put
 * together from halves of words so that the same holds.
 */
#include "kernels/quant_pairs.h"

#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#if MR_TIER_ID == MR_TIER_AVX512

#define THIRD MR_QUANT_PAIRS_ROWS
#define HALF  (3 * THIRD / 2)
#define COLS  (2 * N_LANES)
#define WITH                                                                   \
    __attribute__((target("avx512bf16,avx512vbmi,avx512vbmi2,avx512bw")))
#define WITHIN WITH static inline __attribute__((always_inline))

/* ---- formats ----------------------------------------------------------------
 */

WITHIN int
kind_bits(const mr_quant_kind kind)
{
    static const int bits[MR_N_QUANT_KINDS] = {1, 2, 3, 4, 5, 6, 8, 4, 8};

    return bits[kind];
}

/* Half of the codes that fill words: the distance of those of a pair. */
WITHIN int
kind_apart(const mr_quant_kind kind)
{
    const int bits = kind_bits(kind);

    return bits % 2 != 0 ? 16 : bits == 6 ? 8 : 16 / bits;
}

/* Words of each half of a unit of codes. */
enum { MOST_WORDS = 5 };

WITHIN int
kind_words(const mr_quant_kind kind)
{
    return kind_bits(kind) * kind_apart(kind) / 16;
}

/* ---- numbers of codes -------------------------------------------------------
 */

/* An integer below 128 as bfloat16. */
#define EXPONENT(c)                                                            \
    ((c) >= 64   ? 6                                                           \
     : (c) >= 32 ? 5                                                           \
     : (c) >= 16 ? 4                                                           \
     : (c) >= 8  ? 3                                                           \
     : (c) >= 4  ? 2                                                           \
     : (c) >= 2  ? 1                                                           \
                 : 0)
#define INTEGER(c)                                                             \
    ((c) == 0 ? 0                                                              \
              : (127 + EXPONENT(c)) << 7 | ((c) << (7 - EXPONENT(c)) & 0x7f))
/* The seven low bits of an E4M3 byte. */
#define E4M3(c)                                                                \
    ((c) == 0     ? 0                                                          \
     : (c) == 127 ? 0x7fc0                                                     \
     : (c) == 1   ? 118 << 7                                                   \
     : (c) < 4    ? 119 << 7 | ((c)&1) << 6                                    \
     : (c) < 8    ? 120 << 7 | ((c)&3) << 5                                    \
                  : (((c) >> 3) + 120) << 7 | ((c)&7) << 4)
#define LOW(f, c)  (f(c) & 0xff)
#define HIGH(f, c) (f(c) >> 8)
#define FOUR(part, f, c)                                                       \
    part(f, c), part(f, (c) + 1), part(f, (c) + 2), part(f, (c) + 3)
#define SIXTEEN(part, f, c)                                                    \
    FOUR(part, f, c), FOUR(part, f, (c) + 4), FOUR(part, f, (c) + 8),          \
        FOUR(part, f, (c) + 12)
#define SIXTY_FOUR(part, f, c)                                                 \
    SIXTEEN(part, f, c), SIXTEEN(part, f, (c) + 16),                           \
        SIXTEEN(part, f, (c) + 32), SIXTEEN(part, f, (c) + 48)
#define WHOLE(f, c) f(c)

static const uint16_t integers[64] = {SIXTY_FOUR(WHOLE, INTEGER, 0)};
static const uint16_t elements[16] = {
    0,      0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0,
    0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0};
/* Bytes of halves, by seven bits. */
typedef uint8_t byte_table[2][128];
static const byte_table integer_bytes = {
    {SIXTY_FOUR(LOW, INTEGER, 0), SIXTY_FOUR(LOW, INTEGER, 64)},
    {SIXTY_FOUR(HIGH, INTEGER, 0), SIXTY_FOUR(HIGH, INTEGER, 64)}};
static const byte_table e4m3_bytes = {
    {SIXTY_FOUR(LOW, E4M3, 0), SIXTY_FOUR(LOW, E4M3, 64)},
    {SIXTY_FOUR(HIGH, E4M3, 0), SIXTY_FOUR(HIGH, E4M3, 64)}};

/* What a word of up to 6 bits finds: for each 5 bits a half, with those above a
 * code's ignored; of 6 bits the upper half of the table too. */
typedef struct table {
    __m512i low, high;
} table;

WITHIN table
table_make(const mr_quant_kind kind)
{
    uint16_t low[32];
    const uint16_t *from = kind == MR_QUANT_E2M1 ? elements : integers;
    const int bits = kind_bits(kind);

    for (int i = 0; i < 32; i++)
        low[i] = from[i & ((1 << bits) - 1)];
    return (table){_mm512_loadu_si512(low), _mm512_loadu_si512(integers + 32)};
}

WITHIN __m512i
numbers(__m512i codes, const table *t, const mr_quant_kind kind)
{
    return kind == MR_QUANT_6
               ? _mm512_permutex2var_epi16(t->low, codes, t->high)
               : _mm512_permutexvar_epi16(codes, t->low);
}

/* Where the next numbers go is hidden from the compiler, which else works out
 * all places beforehand. */
WITHIN uint32_t *
put(uint32_t *to, int64_t step, __m512i pairs)
{
    _mm512_storeu_si512(to, pairs);
    to += step;
    __asm__("" : "+r"(to));
    return to;
}

/* Codes of up to 6 bits in some words of each lane: half i of the first codes
 * beside half i of the second ones. */
WITHIN uint32_t *
unit_unpack(const __m512i *w, uint32_t *to, int64_t step, const table *t,
            const mr_quant_kind kind)
{
    const int bits = kind_bits(kind), apart = kind_apart(kind);
    const int n_words = kind_words(kind);
    __m512i halves[MOST_WORDS];

#pragma GCC unroll 5
    for (int i = 0; i < n_words; i++)
        halves[i] = i % 2 != 0
                        ? _mm512_shrdi_epi32(w[i / 2], w[(i + n_words) / 2], 16)
                        : _mm512_mask_blend_epi16(0xAAAAAAAA, w[i / 2],
                                                  w[(i + n_words) / 2]);
#pragma GCC unroll 16
    for (int j = 0; j < apart; j++) {
        const int at = j * bits / 16, low = j * bits % 16;
        const int next = at + 1 < n_words ? at + 1 : at;
        __m512i c = low == 0 ? halves[at]
                    : low + bits > 16
                        ? _mm512_shrdi_epi16(halves[at], halves[next], low)
                        : _mm512_srli_epi16(halves[at], low);

        to = put(to, step, numbers(c, t, kind));
    }
    return to;
}

/* Four codes of 8 bits of each lane: their two bytes are looked up apart. */
WITHIN uint32_t *
bytes_unpack(__m512i w, uint32_t *to, int64_t step, const mr_quant_kind kind)
{
    const byte_table *t = kind == MR_QUANT_8 ? &integer_bytes : &e4m3_bytes;
    const __m512i first = _mm512_set1_epi16(0x00FF);
    __m512i low = _mm512_permutex2var_epi8(_mm512_loadu_si512((*t)[0]), w,
                                           _mm512_loadu_si512((*t)[0] + 64));
    __m512i high = _mm512_permutex2var_epi8(_mm512_loadu_si512((*t)[1]), w,
                                            _mm512_loadu_si512((*t)[1] + 64));

    if (kind == MR_QUANT_8) { /* from 128 on the seven bits are the mantissa */
        __mmask64 upper = _mm512_movepi8_mask(w);

        low = _mm512_mask_mov_epi8(low, upper,
                                   _mm512_and_si512(w, _mm512_set1_epi8(0x7f)));
        high = _mm512_mask_mov_epi8(high, upper, _mm512_set1_epi8(0x43));
    } else { /* the sign */
        high = _mm512_ternarylogic_epi32(high, w, _mm512_set1_epi8((char)0x80),
                                         0xF8);
    }
    /* by mask: the first where it is set, else the second */
    to = put(to, step,
             _mm512_ternarylogic_epi32(low, _mm512_slli_epi16(high, 8), first,
                                       0xE4));
    return put(to, step,
               _mm512_ternarylogic_epi32(_mm512_srli_epi16(low, 8), high, first,
                                         0xE4));
}

WITHIN __m128i
quarter_load(const uint8_t *from)
{
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

/* Four words of each of 16 rows: rows 4 i ... 4 i + 3 meet in quarter i, where
 * they are turned. */
WITHIN void
words_turn(const uint8_t *from, int64_t row, __m512i *w)
{
    __m512i x[4], low[2], high[2];

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++, from += row) {
        x[i] = _mm512_castsi128_si512(quarter_load(from));
        x[i] = _mm512_mask_broadcast_i32x4(x[i], 0x00F0,
                                           quarter_load(from + 4 * row));
        x[i] = _mm512_mask_broadcast_i32x4(x[i], 0x0F00,
                                           quarter_load(from + 8 * row));
        x[i] = _mm512_mask_broadcast_i32x4(x[i], 0xF000,
                                           quarter_load(from + 12 * row));
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        low[i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
        high[i] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
    }
    w[0] = _mm512_unpacklo_epi64(low[0], low[1]);
    w[1] = _mm512_unpackhi_epi64(low[0], low[1]);
    w[2] = _mm512_unpacklo_epi64(high[0], high[1]);
    w[3] = _mm512_unpackhi_epi64(high[0], high[1]);
}

/* Up to four units of 16 rows. */
WITHIN uint32_t *
block_unpack(const uint8_t *from, int64_t row, int64_t units, uint32_t *to,
             int64_t step, const table *t, const mr_quant_kind kind)
{
    const int n_words = kind_words(kind);
    __m512i w[4 * MOST_WORDS];

#pragma GCC unroll 5
    for (int i = 0; i < n_words; i++)
        words_turn(from + 16 * i, row, w + 4 * i);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        if (i < units)
            to = kind_bits(kind) == 8
                     ? bytes_unpack(w[i], to, step, kind)
                     : unit_unpack(w + i * n_words, to, step, t, kind);
    return to;
}

/* What is no whole block, or not of 16 rows, goes through a copy. */
WITHIN void
unpack(const uint8_t *from, int64_t row, int64_t lanes, int64_t n, uint32_t *to,
       int64_t step, const mr_quant_kind kind)
{
    const int codes = 2 * kind_apart(kind), bytes = 4 * kind_words(kind);
    uint8_t copy[N_LANES][16 * MOST_WORDS];
    int64_t units = n / codes, left;
    table t = {{0}, {0}};

    if (kind_bits(kind) < 8)
        t = table_make(kind);
    for (; lanes == N_LANES && units >= 4; units -= 4, from += 4 * bytes)
        to = block_unpack(from, row, 4, to, step, &t, kind);
    for (; units > 0; units -= left, from += 4 * bytes) {
        left = units < 4 ? units : 4;
        memset(copy, 0, sizeof copy);
        for (int64_t l = 0; l < lanes; l++)
            memcpy(copy[l], from + l * row, (size_t)(left * bytes));
        to = block_unpack(copy[0], sizeof copy[0], left, to, step, &t, kind);
    }
}

#define UNPACK(name, kind)                                                     \
    WITH static void unpack_##name(const uint8_t *from, int64_t row,           \
                                   int64_t lanes, int64_t n, uint32_t *to,     \
                                   int64_t step)                               \
    {                                                                          \
        unpack(from, row, lanes, n, to, step, kind);                           \
    }
UNPACK(1, MR_QUANT_1)
UNPACK(2, MR_QUANT_2)
UNPACK(3, MR_QUANT_3)
UNPACK(4, MR_QUANT_4)
UNPACK(5, MR_QUANT_5)
UNPACK(6, MR_QUANT_6)
UNPACK(8, MR_QUANT_8)
UNPACK(e2m1, MR_QUANT_E2M1)
UNPACK(e4m3, MR_QUANT_E4M3)

/* ---- x ----------------------------------------------------------------------
 */

/* 32 halves at a time, whole pairs of every format; the last ones may be 16. */
WITH static bool
order(const uint16_t *x, int64_t n, mr_quant_kind kind, uint16_t *to)
{
    const __m512i magnitude = _mm512_set1_epi16(0x7FFF);
    const __m512i one = _mm512_set1_epi16(1), normal = _mm512_set1_epi16(0x7F);
    const __m512i huge = _mm512_set1_epi16((127 + 64) << 7);
    const int apart = kind_apart(kind);
    __mmask32 found = 0;
    uint16_t from[32];
    __m512i pick;

    for (int i = 0; i < 32; i++)
        from[i] = (uint16_t)(i / 2 / apart * 2 * apart + i / 2 % apart +
                             i % 2 * apart);
    pick = _mm512_loadu_si512(from);
    for (int64_t i = 0; i < n; i += 32) {
        __mmask32 there = n - i < 32 ? 0x0000FFFF : 0xFFFFFFFF;
        __m512i h = _mm512_maskz_loadu_epi16(there, x + i);
        __m512i size = _mm512_and_si512(h, magnitude);

        found |= _mm512_cmplt_epu16_mask(_mm512_sub_epi16(size, one), normal) |
                 _mm512_cmpge_epu16_mask(size, huge);
        _mm512_mask_storeu_epi16(to + i, there,
                                 _mm512_permutexvar_epi16(pick, h));
    }
    return found == 0;
}

/* ---- tiles ------------------------------------------------------------------
 */

/* Some rows of a panel of `high` ones.  Sums of codes and those of values wait
 * in registers, so that a group begins while the last one is being scaled. */
WITHIN void
tile(const mr_quant_piece *g, const float *restrict a,
     const float *restrict x_sums, float *restrict c, const int n_rows,
     const int high)
{
    const float *restrict b = g->b, *scale = g->scale, *bias = g->bias;
    R sum[HALF][2];

#pragma GCC unroll 6
    for (int i = 0; i < n_rows; i++)
        for (int v = 0; v < 2; v++)
            sum[i][v] = v_load(c + i * COLS + v * N_LANES);
    for (int64_t k = 0; k < g->n_groups; k++, scale += COLS) {
        R codes[HALF][2];

#pragma GCC unroll 6
        for (int i = 0; i < n_rows; i++)
            codes[i][0] = codes[i][1] = (R){0};
        for (int64_t p = 0; p < g->depth; p++, a += high, b += COLS) {
            __m512bh b0 = (__m512bh)v_load(b);
            __m512bh b1 = (__m512bh)v_load(b + N_LANES);

#pragma GCC unroll 6
            for (int i = 0; i < n_rows; i++) {
                __m512bh x;
                int pair;

                memcpy(&pair, a + i, sizeof pair);
                x = (__m512bh)_mm512_set1_epi32(pair);
                codes[i][0] = (R)_mm512_dpbf16_ps((__m512)codes[i][0], x, b0);
                codes[i][1] = (R)_mm512_dpbf16_ps((__m512)codes[i][1], x, b1);
            }
        }
#pragma GCC unroll 6
        for (int i = 0; i < n_rows; i++)
            for (int v = 0; v < 2; v++)
                sum[i][v] = multiply_add(
                    codes[i][v], v_load(scale + v * N_LANES), sum[i][v]);
        if (!bias)
            continue;
#pragma GCC unroll 6
        for (int i = 0; i < n_rows; i++)
            for (int v = 0; v < 2; v++)
                sum[i][v] = multiply_add(v_set(x_sums[i]),
                                         v_load(bias + v * N_LANES), sum[i][v]);
        bias += COLS;
        x_sums += g->sums_row;
    }
#pragma GCC unroll 6
    for (int i = 0; i < n_rows; i++)
        for (int v = 0; v < 2; v++)
            v_store(c + i * COLS + v * N_LANES, sum[i][v]);
}

#define TILE(name, n_rows, high)                                               \
    WITH static void name(const mr_quant_piece *g, const float *a,             \
                          const float *x_sums, float *c)                       \
    {                                                                          \
        for (int i = 0; i < high; i += n_rows)                                 \
            tile(g, a + i, x_sums + i, c + i * COLS, n_rows, high);            \
    }
TILE(tile_third, THIRD, THIRD)
TILE(tile_two_thirds, THIRD, 2 * THIRD)
TILE(tile_whole, HALF, 3 * THIRD)

const mr_quant_pairs MR_TIER_SYM(mr__quant_pairs) = {
    .unpack = {unpack_1, unpack_2, unpack_3, unpack_4, unpack_5, unpack_6,
               unpack_8, unpack_e2m1, unpack_e4m3},
    .order = order,
    .tile = {tile_third, tile_two_thirds, tile_whole},
};

#else

const mr_quant_pairs MR_TIER_SYM(mr__quant_pairs) = {.order = NULL};

#endif
