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
#define ROWS  (3 * THIRD)
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

/* Codes of up to 6 bits in n_words words of each lane: half i of the first
 * codes beside half i of the second ones. */
WITHIN uint32_t *
unit_unpack(const uint32_t *words, uint32_t *to, int64_t step, const table *t,
            const mr_quant_kind kind)
{
    const int bits = kind_bits(kind), apart = kind_apart(kind);
    const int n_words = bits * apart / 16;
    __m512i w[5], halves[5];

#pragma GCC unroll 5
    for (int i = 0; i < n_words; i++)
        w[i] = _mm512_loadu_si512(words + i * N_LANES);
#pragma GCC unroll 5
    for (int i = 0; i < n_words; i++)
        halves[i] = i % 2 != 0
                        ? _mm512_shrdi_epi32(w[i / 2], w[(i + n_words) / 2], 16)
                        : _mm512_mask_blend_epi16(0xAAAAAAAA, w[i / 2],
                                                  w[(i + n_words) / 2]);
#pragma GCC unroll 16
    for (int j = 0; j < apart; j++) {
        const int at = j * bits / 16, low = j * bits % 16;
        __m512i c = low == 0 ? halves[at]
                    : low + bits > 16
                        ? _mm512_shrdi_epi16(
                              halves[at], halves[at + 1 < 5 ? at + 1 : 4], low)
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

WITHIN void
unpack(const uint32_t *words, int64_t n, uint32_t *to, int64_t step,
       const mr_quant_kind kind)
{
    const int bits = kind_bits(kind), codes = 2 * kind_apart(kind);
    table t;

    if (bits == 8) {
        for (; n > 0; n -= codes, words += N_LANES)
            to = bytes_unpack(_mm512_loadu_si512(words), to, step, kind);
        return;
    }
    t = table_make(kind);
    for (; n > 0; n -= codes, words += codes * bits / 32 * N_LANES)
        to = unit_unpack(words, to, step, &t, kind);
}

#define UNPACK(name, kind)                                                     \
    WITH static void unpack_##name(const uint32_t *words, int64_t n,           \
                                   uint32_t *to, int64_t step)                 \
    {                                                                          \
        unpack(words, n, to, step, kind);                                      \
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

WITHIN void
tile(const mr_quant_group *g, const float *restrict a,
     const float *restrict x_sums, float *restrict c, const int n_rows)
{
    const float *restrict b = g->b;
    R sum[ROWS][2], scale[2], bias[2];

#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++) {
        sum[i][0] = (R){0};
        sum[i][1] = (R){0};
    }
    for (int64_t p = 0; p < g->depth; p++, a += n_rows, b += COLS) {
        __m512bh b0 = (__m512bh)v_load(b), b1 = (__m512bh)v_load(b + N_LANES);

#pragma GCC unroll 12
        for (int i = 0; i < n_rows; i++) {
            __m512bh x;
            int pair;

            memcpy(&pair, a + i, sizeof pair);
            x = (__m512bh)_mm512_set1_epi32(pair);
            sum[i][0] = (R)_mm512_dpbf16_ps((__m512)sum[i][0], x, b0);
            sum[i][1] = (R)_mm512_dpbf16_ps((__m512)sum[i][1], x, b1);
        }
    }
    for (int v = 0; v < 2; v++)
        scale[v] = v_load(g->scale + v * N_LANES);
#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++)
        for (int v = 0; v < 2; v++)
            sum[i][v] = multiply_add(sum[i][v], scale[v],
                                     v_load(c + i * COLS + v * N_LANES));
    if (g->bias) {
        for (int v = 0; v < 2; v++)
            bias[v] = v_load(g->bias + v * N_LANES);
#pragma GCC unroll 12
        for (int i = 0; i < n_rows; i++)
            for (int v = 0; v < 2; v++)
                sum[i][v] = multiply_add(v_set(x_sums[i]), bias[v], sum[i][v]);
    }
#pragma GCC unroll 12
    for (int i = 0; i < n_rows; i++)
        for (int v = 0; v < 2; v++)
            v_store(c + i * COLS + v * N_LANES, sum[i][v]);
}

#define TILE(name, n_rows)                                                     \
    WITH static void name(const mr_quant_group *g, const float *a,             \
                          const float *x_sums, float *c)                       \
    {                                                                          \
        tile(g, a, x_sums, c, n_rows);                                         \
    }
TILE(tile_third, THIRD)
TILE(tile_two_thirds, 2 * THIRD)
TILE(tile_whole, 3 * THIRD)

const mr_quant_pairs MR_TIER_SYM(mr__quant_pairs) = {
    .unpack = {unpack_1, unpack_2, unpack_3, unpack_4, unpack_5, unpack_6,
               unpack_8, unpack_e2m1, unpack_e4m3},
    .order = order,
    .tile = {tile_third, tile_two_thirds, tile_whole},
};

#else

const mr_quant_pairs MR_TIER_SYM(mr__quant_pairs) = {.order = NULL};

#endif
