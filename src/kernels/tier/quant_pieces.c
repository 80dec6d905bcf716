/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_pieces.c -- codes as tiles of bfloat16, x as pieces beside them, and
 * sums over groups on the matrix unit (kernels/quant_pieces.h).
 *
 * Integers stay in their place of a word, are converted to float16, whose bits
 * are moved to where bfloat16 has them: that is 2^-112 of the number times the
 * power of two of its place, 0 too, for which x makes up: three instructions
 * that two ports take, where a table of words (vpermw) alone takes both.
 *
 * The order of the depths in a step is free, as long as codes and x have the
 * same.  So where codes do not go across words, all copies of the words of a
 * step lie next to each other in a vector, each masked to another code: reading
 * that costs no shuffle.
 */
#include "kernels/quant_pieces.h"

#define MR_LANE_BITS  32
#define MR_LANE_FLOAT 1
#include "kernels/tier/lanes.h"

#if MR_TIER_ID == MR_TIER_AVX512

#include "kernels/tier/pieces.h"
#include "kernels/tier/turn.h"

#define WITH   __attribute__((target("avx512vbmi,avx512bw,avx512fp16")))
#define WITHIN WITH static inline __attribute__((always_inline))
#define UNIT   __attribute__((target("amx-tile,amx-bf16")))
#include "kernels/tier/quant_codes.h"

#define DEPTH          MR_QUANT_PIECES_DEPTH
#define TILE           MR_QUANT_PIECES_TILE
#define SUMS           MR_QUANT_PIECES_SUMS
#define SCALES         MR_QUANT_SCALES
#define HALVES_OF_TILE (2 * SUMS)

/* Codes that go with their scales: one for a step, or two. */
enum { SCALED_32 = MR_N_QUANT_KINDS, SCALED_16 };

/* ---- codes ------------------------------------------------------------------
 */

/* Of b bits in copies of 2 b words: where a code begins in its word, which
 * depth it is, what masks it; the same where words are two bytes that have it.
 */
#define COPY_PLACE(i, b) ((i) / (2 * (b)) * (b))
#define COPY_DEPTH(i, b) ((i) % (2 * (b)) * (16 / (b)) + (i) / (2 * (b)))
#define ALL_ONES(b)      ((1 << (b)) - 1)
#define COPY_MASK(i, b)  (ALL_ONES(b) << COPY_PLACE(i, b))
#define PLACE_MASK(i, b) (ALL_ONES(b) << PLACE(i, b))
static const uint16_t masks[9][32] = {{0},
                                      ALL(COPY_MASK, 1),
                                      ALL(COPY_MASK, 2),
                                      ALL(PLACE_MASK, 3),
                                      ALL(COPY_MASK, 4),
                                      ALL(PLACE_MASK, 5),
                                      ALL(PLACE_MASK, 6),
                                      {0},
                                      ALL(COPY_MASK, 8)};
static const uint16_t element_places[32] = ALL(COPY_PLACE, 4);
#define TWICE(i) (i), (i)
static const uint8_t bytes_twice[64] = {MR_BY_32(TWICE, 0)};
#define SECOND_GROUP(i) ((i) % 8 < 4 ? 0 : 16)
static const uint16_t second_group[32] = {MR_BY_32(SECOND_GROUP, 0)};

/* In the assembler's words: Clang 14 has intrinsics of float16 only in files
 * that are all for processors that have it. */
WITHIN __m512i
float16_of(__m512i words)
{
    __m512i x;

    __asm__("vcvtuw2ph %1, %0" : "=v"(x) : "v"(words));
    return x;
}

WITHIN __m512i
float16_product(__m512i x, __m512i y)
{
    __asm__("vmulph %1, %0, %0" : "+v"(x) : "v"(y));
    return x;
}

/* The words of a step, all their copies; those of 3, 5 and 6 bits one by one.
 */
WITHIN __m512i
words(const uint8_t *from, const bool all, const int bits)
{
    long long few = 0;

    switch (bits) {
    case 1:
        memcpy(&few, from, 4);
        return _mm512_set1_epi32((int)few);
    case 2:
        memcpy(&few, from, 8);
        return _mm512_set1_epi64(few);
    case 4:
        return _mm512_broadcast_i32x4(
            _mm_loadu_si128((const __m128i *)(const void *)from));
    case 8:
        return _mm512_broadcast_i64x4(
            _mm256_loadu_si256((const __m256i *)(const void *)from));
    default:
        return _mm512_permutexvar_epi8(
            _mm512_loadu_si512(bytes_of[bits]),
            _mm512_castsi256_si512(codes_read(from, false, all,
                                              bits == 3   ? MR_QUANT_3
                                              : bits == 5 ? MR_QUANT_5
                                                          : MR_QUANT_6)));
    }
}

WITHIN __m512i
integers(const uint8_t *from, const bool all, const int bits)
{
    __m512i x = _mm512_and_si512(words(from, all, bits),
                                 _mm512_loadu_si512(masks[bits]));

    return _mm512_srli_epi16(float16_of(x), 3);
}

/* Times 2^-105, NaN taken for 480: exponents of float16 are those of E4M3 and
 * 8, and a multiplication makes all numbers normal ones. */
WITHIN __m512i
lowered_e4m3(__m256i from)
{
    __m512i x = _mm512_permutexvar_epi8(_mm512_loadu_si512(bytes_twice),
                                        _mm512_castsi256_si512(from));

    x = _mm512_and_si512(_mm512_srai_epi16(x, 1),
                         _mm512_set1_epi16((short)0xBF80));
    x = float16_product(x, _mm512_set1_epi16(0x7800)); /* 2^15 */
    return _mm512_and_si512(_mm512_srai_epi16(x, 3),
                            _mm512_set1_epi16((short)0x8FFF));
}

/* 32 codes; `all` as in quant_codes.h. */
WITHIN __m512i
step_codes(const uint8_t *from, const bool all, const int form)
{
    if (form >= SCALED_32 || form == MR_QUANT_E2M1)
        return _mm512_srlv_epi16(words(from, all, 4),
                                 _mm512_loadu_si512(element_places));
    if (form == MR_QUANT_E4M3)
        return lowered_e4m3(
            _mm256_loadu_si256((const __m256i *)(const void *)from));
    return integers(from, all, kind_bits((mr_quant_kind)form));
}

/* Where a scaled code's number is: by its scale's byte. */
WITHIN __m512i
step_scaled(__m512i c, const uint8_t *scale, const uint16_t (*values)[16],
            const int form)
{
    const __m256i *one = (const __m256i *)(const void *)values[scale[0]];
    __m512i table;

    if (form == SCALED_32)
        return _mm512_permutexvar_epi16(
            c, _mm512_broadcast_i64x4(_mm256_loadu_si256(one)));
    table = _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_loadu_si256(one)),
        _mm256_loadu_si256((const __m256i *)(const void *)values[scale[1]]), 1);
    /* four low bits of c, else which of both */
    c = _mm512_ternarylogic_epi32(c, _mm512_set1_epi16(15),
                                  _mm512_loadu_si512(second_group), 0xEA);
    return _mm512_permutexvar_epi16(c, table);
}

/* Puts NaN where codes say so: their seven low bits are set. */
WITH static __attribute__((noinline)) void
unpack_nan(const mr_quant_codes *p)
{
    for (int r = 0; r < TILE; r++)
        for (int64_t i = 0; i < p->n; i++)
            if ((p->row[r][p->offset + i] & 0x7F) == 0x7F)
                p->to[r * DEPTH + i] = 0x7FC0;
}

/* Twice the bytes: the largest is 0xFE where one is NaN. */
WITHIN __m256i
most_doubled(__m256i most, const uint8_t *from)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)from);

    return _mm256_max_epu8(most, _mm256_add_epi8(x, x));
}

WITHIN bool
has_nan(__m256i most)
{
    return _mm256_cmpeq_epi8_mask(most, _mm256_set1_epi8((char)0xFE)) != 0;
}

/* `steps` steps of a row. */
WITHIN void
row_unpack(const mr_quant_codes *p, int r, const int64_t steps, const bool all,
           const int form, __m256i *most)
{
    const int bits = form >= SCALED_32 ? 4 : kind_bits((mr_quant_kind)form);
    const uint8_t *from = p->row[r] + p->offset;
    const uint8_t *scale = form >= SCALED_32 ? p->scale[r] + p->at : NULL;
    uintptr_t next = (uintptr_t)from + (uintptr_t)p->beyond;
    uint16_t *to = p->to + r * DEPTH;

    for (int k = 0; k < bits * DEPTH / 8; k += 64)
        __builtin_prefetch((const void *)(next + (uintptr_t)k), 0, 2);
#pragma GCC unroll 4
    for (int64_t s = 0; s < steps; s++, from += 4 * bits) {
        __m512i c = step_codes(from, all, form);

        if (form == MR_QUANT_E4M3)
            *most = most_doubled(*most, from);
        if (form >= SCALED_32) {
            c = step_scaled(c, scale, p->values, form);
            scale += form == SCALED_16 ? 2 : 1;
        } else if (form == MR_QUANT_E2M1) {
            c = _mm512_permutexvar_epi16(
                c, _mm512_loadu_si512(numbers_of[MR_QUANT_E2M1]));
        }
        _mm512_store_si512(to + s * STEP, c);
    }
}

WITHIN void
unpack(const mr_quant_codes *p, const bool all, const int form)
{
    __m256i most = _mm256_setzero_si256();

    if (p->n == DEPTH)
        for (int r = 0; r < TILE; r++)
            row_unpack(p, r, DEPTH / STEP, all, form, &most);
    else
        for (int r = 0; r < TILE; r++)
            row_unpack(p, r, p->n / STEP, all, form, &most);
    if (form == MR_QUANT_E4M3 && has_nan(most))
        unpack_nan(p);
}

#define UNPACK(name, form)                                                     \
    WITH static void codes_##name(const mr_quant_codes *p)                     \
    {                                                                          \
        if (p->all)                                                            \
            unpack(p, true, form);                                             \
        else                                                                   \
            unpack(p, false, form);                                            \
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
UNPACK(scaled_32, SCALED_32)
UNPACK(scaled_16, SCALED_16)

/* ---- x ----------------------------------------------------------------------
 */

/* Where the depths of a step are, and what each is multiplied by. */
typedef struct order {
    int32_t depth[2][16]; /* of the lower halves of pairs, of the upper ones */
    float factor[2][16];
    float sums; /* of sums over groups */
} order;

#define RAISED 86 /* x of codes that are lowered */

static float
power_of_two(int exponent)
{
    uint32_t bits = (uint32_t)(127 + exponent) << 23;
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static void
order_find(mr_quant_kind kind, order *o)
{
    static const int bits_of[MR_N_QUANT_KINDS] = {1, 2, 3, 4, 5, 6, 8, 4, 8};
    int bits = bits_of[kind], low = kind == MR_QUANT_E4M3 ? 105 : 112;
    bool raised = kind != MR_QUANT_E2M1;

    for (int i = 0; i < STEP; i++) {
        int depth = i, place = 0;

        if (kind != MR_QUANT_E4M3 && 8 % bits == 0) {
            depth = COPY_DEPTH(i, bits);
            place = raised ? COPY_PLACE(i, bits) : 0;
        } else if (kind != MR_QUANT_E4M3) {
            place = PLACE(i, bits);
        }
        o->depth[i % 2][i / 2] = depth;
        o->factor[i % 2][i / 2] = power_of_two(raised ? RAISED - place : 0);
    }
    o->sums = power_of_two(raised ? RAISED - low : 0);
}

#define LEAST ((127U - 75) << 23)
#define MOST  ((127U + 40) << 23)

/* Which numbers do not fit? */
INLINE __mmask16
unfit_of(__m512 x)
{
    __m512i size =
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7FFFFFFF));

    /* 0 less 1 is the largest */
    return (
        __mmask16)(_mm512_cmplt_epu32_mask(
                       _mm512_sub_epi32(size, _mm512_set1_epi32(1)),
                       _mm512_set1_epi32((int)LEAST - 1)) |
                   _mm512_cmpge_epu32_mask(size, _mm512_set1_epi32((int)MOST)));
}

/* 32 depths of a row as 16 pairs of each piece. */
INLINE __mmask16
row_split(const float *x, const order *o, const int n_pieces, __m512i piece[3])
{
    __m512 from[2] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
    __m512i half[2][3];

#pragma GCC unroll 2
    for (int h = 0; h < 2; h++)
        split(n_pieces,
              _mm512_mul_ps(
                  _mm512_permutex2var_ps(
                      from[0], _mm512_loadu_si512(o->depth[h]), from[1]),
                  _mm512_loadu_ps(o->factor[h])),
              half[h]);
#pragma GCC unroll 3
    for (int k = 0; k < n_pieces; k++)
        piece[k] = _mm512_mask_blend_epi16(
            0xAAAAAAAA, _mm512_srli_epi32(half[0][k], 16), half[1][k]);
    return (__mmask16)(unfit_of(from[0]) | unfit_of(from[1]));
}

/* The tiles of one step, and in unfit which numbers of each row do not fit. */
INLINE void
step_pack(const mr_quant_x *p, int64_t depth, const order *o, float *to,
          __mmask16 *unfit, const int n_pieces)
{
    __m512i tile[3][TILE];
    int n_tiles = p->narrow ? 1 : n_pieces;

    memset(tile, 0, sizeof tile);
    for (int i = 0; i < p->rows; i++) {
        __m512i piece[3];

        unfit[i] |= row_split(p->x[i] + depth, o, n_pieces, piece);
        for (int k = 0; k < n_pieces; k++)
            if (p->narrow)
                tile[0][k * p->rows + i] = piece[k];
            else
                tile[k][i] = piece[k];
    }
    for (int k = 0; k < n_tiles; k++, to += SUMS) {
        turn_registers((__m512 *)tile[k]);
        for (int i = 0; i < TILE; i++)
            _mm512_store_si512(to + i * 16, tile[k][i]);
    }
}

/* Sums of the rows over each group. */
INLINE void
groups_sum(const mr_quant_x *p, int group, float factor)
{
    float *to = p->sums;

    for (int64_t d = 0; d < p->depth; d += group, to += p->sums_row) {
        __m512 sum[TILE];

        for (int i = 0; i < TILE; i++) {
            sum[i] = _mm512_setzero_ps();
            for (int k = 0; i < p->rows && k < group; k += 16)
                sum[i] =
                    _mm512_add_ps(sum[i], _mm512_loadu_ps(p->x[i] + d + k));
        }
        turn_registers(sum);
        for (int n = TILE / 2; n > 0; n /= 2)
            for (int i = 0; i < n; i++)
                sum[i] = _mm512_add_ps(sum[i], sum[i + n]);
        _mm512_storeu_ps(to, _mm512_mul_ps(sum[0], _mm512_set1_ps(factor)));
    }
}

static uint32_t
pack(mr_quant_kind kind, int group, const mr_quant_x *p)
{
    __mmask16 unfit[TILE] = {0};
    float *to = p->to;
    uint32_t rows = 0;
    order o;

    order_find(kind, &o);
    for (int64_t d = 0; d < p->depth; d += STEP, to += p->apart)
        if (p->pieces == 1)
            step_pack(p, d, &o, to, unfit, 1);
        else if (p->pieces == 2)
            step_pack(p, d, &o, to, unfit, 2);
        else
            step_pack(p, d, &o, to, unfit, 3);
    if (p->sums)
        groups_sum(p, group, o.sums);
    for (int i = 0; i < TILE; i++)
        rows |= (uint32_t)(unfit[i] != 0) << i;
    return rows;
}

/* ---- products ---------------------------------------------------------------
 */

/* The intrinsics say nothing of memory to the compiler. */
#define MEMORY_SEEN   __asm__ volatile("" ::: "memory")
#define LOAD(t, from) _tile_loadd(t, from, 64)

/* A step of a group whose sums are in tiles c and d, with codes in 4 and x in 6
 * and 7: small pieces first. */
#define LANES_STEP(c, d, k, n_pieces, two)                                     \
    do {                                                                       \
        LOAD(6, b + (k)*SUMS);                                                 \
        _tile_dpbf16ps(c, 4, 6);                                               \
        if (two) {                                                             \
            LOAD(7, b + ((n_pieces) + (k)) * SUMS);                            \
            _tile_dpbf16ps(d, 4, 7);                                           \
        }                                                                      \
    } while (0)
#define STEP_OF(c, d, n_pieces, two)                                           \
    do {                                                                       \
        _tile_loadd(4, a, 2 * DEPTH);                                          \
        if ((n_pieces) > 2)                                                    \
            LANES_STEP(c, d, 2, n_pieces, two);                                \
        if ((n_pieces) > 1)                                                    \
            LANES_STEP(c, d, 1, n_pieces, two);                                \
        LANES_STEP(c, d, 0, n_pieces, two);                                    \
        a += STEP;                                                             \
        b += (n_pieces) * (1 + (two)) * SUMS;                                  \
    } while (0)
#define BEGIN(c, d, two)                                                       \
    do {                                                                       \
        _tile_zero(c);                                                         \
        if (two)                                                               \
            _tile_zero(d);                                                     \
    } while (0)
#define END(c, d, two)                                                         \
    do {                                                                       \
        _tile_stored(c, to, 64);                                               \
        if (two)                                                               \
            _tile_stored(d, to + SUMS, 64);                                    \
        to += (1 + (two)) * SUMS;                                              \
    } while (0)
#define GROUP(c, d, n_pieces, two)                                             \
    do {                                                                       \
        BEGIN(c, d, two);                                                      \
        for (int64_t s = steps; s > 0; s--)                                    \
            STEP_OF(c, d, n_pieces, two);                                      \
        END(c, d, two);                                                        \
    } while (0)

/* Two groups of two steps, which are most, without loops. */
#define MULTIPLY(name, n_pieces, two)                                          \
    UNIT static void name(const mr_quant_groups *g)                            \
    {                                                                          \
        const uint16_t *a = g->codes;                                          \
        const float *b = g->x;                                                 \
        int64_t steps = g->steps;                                              \
        float *to = g->sums;                                                   \
                                                                               \
        MEMORY_SEEN;                                                           \
        if (steps == 2 && g->n_groups == 2) {                                  \
            BEGIN(0, 1, two);                                                  \
            STEP_OF(0, 1, n_pieces, two);                                      \
            STEP_OF(0, 1, n_pieces, two);                                      \
            BEGIN(2, 3, two);                                                  \
            STEP_OF(2, 3, n_pieces, two);                                      \
            STEP_OF(2, 3, n_pieces, two);                                      \
            END(0, 1, two);                                                    \
            END(2, 3, two);                                                    \
            MEMORY_SEEN;                                                       \
            return;                                                            \
        }                                                                      \
        for (int64_t i = g->n_groups; i > 0; i -= 2) {                         \
            GROUP(0, 1, n_pieces, two);                                        \
            if (i > 1)                                                         \
                GROUP(2, 3, n_pieces, two);                                    \
        }                                                                      \
        MEMORY_SEEN;                                                           \
    }
MULTIPLY(multiply_1_1, 1, 0)
MULTIPLY(multiply_1_2, 1, 1)
MULTIPLY(multiply_2_1, 2, 0)
MULTIPLY(multiply_2_2, 2, 1)
MULTIPLY(multiply_3_1, 3, 0)
MULTIPLY(multiply_3_2, 3, 1)

/* ---- scales -----------------------------------------------------------------
 */

INLINE void
rows_scale(const mr_quant_scaling *s, const int n_groups, const int n_blocks,
           const bool biased)
{
    R x_sums[4][2];

#pragma GCC unroll 4
    for (int g = 0; g < n_groups && biased; g++)
        for (int b = 0; b < n_blocks; b++)
            x_sums[g][b] = v_load(s->x_sums + g * s->sums_row + b * N_LANES);
    for (int r = 0; r < TILE; r++) {
        const float *scale = s->scale + r * s->scale_row;
        const float *bias = biased ? s->bias + r * s->scale_row : NULL;
        const float *sums = s->sums + r * N_LANES;
        float *y = s->y + r * s->y_row;
        R sum[2];

#pragma GCC unroll 2
        for (int b = 0; b < n_blocks; b++)
            sum[b] = v_load(y + b * N_LANES);
#pragma GCC unroll 4
        for (int g = 0; g < n_groups; g++)
#pragma GCC unroll 2
            for (int b = 0; b < n_blocks; b++) {
                sum[b] = multiply_add(v_load(sums + (g * n_blocks + b) * SUMS),
                                      v_set(scale[g]), sum[b]);
                if (biased)
                    sum[b] = multiply_add(x_sums[g][b], v_set(bias[g]), sum[b]);
            }
#pragma GCC unroll 2
        for (int b = 0; b < n_blocks; b++)
            v_store(y + b * N_LANES, sum[b]);
    }
}

INLINE void
some_scale(const mr_quant_scaling *s, const int n_groups, const int n_blocks)
{
    if (s->bias)
        rows_scale(s, n_groups, n_blocks, true);
    else
        rows_scale(s, n_groups, n_blocks, false);
}

INLINE void
scale(const mr_quant_scaling *s, const int n_blocks)
{
    mr_quant_scaling t = *s;

    if (t.n_groups == 2) {
        some_scale(&t, 2, n_blocks);
        return;
    }
    if (t.n_groups == 4) {
        some_scale(&t, 4, n_blocks);
        return;
    }
    for (; t.n_groups > 0; t.n_groups--) {
        some_scale(&t, 1, n_blocks);
        t.sums += n_blocks * SUMS;
        t.scale++;
        t.bias = t.bias ? t.bias + 1 : NULL;
        t.x_sums += t.sums_row;
    }
}

static void
scale_1(const mr_quant_scaling *s)
{
    scale(s, 1);
}

static void
scale_2(const mr_quant_scaling *s)
{
    scale(s, 2);
}

const mr_quant_pieces MR_TIER_SYM(mr__quant_pieces) = {
    .codes = {codes_1, codes_2, codes_3, codes_4, codes_5, codes_6, codes_8,
              codes_e2m1, codes_e4m3, codes_scaled_32, codes_scaled_16},
    .pack = pack,
    .multiply = {{multiply_1_1, multiply_1_2},
                 {multiply_2_1, multiply_2_2},
                 {multiply_3_1, multiply_3_2}},
    .scale = {scale_1, scale_2},
};

#else

const mr_quant_pieces MR_TIER_SYM(mr__quant_pieces) = {.pack = NULL};

#endif
